//! Matches sends with receives.

use crate::numbering::Map;

/// No match.
pub(crate) const NONE: u32 = u32::MAX;

/// Sends and receives, rank by rank.
pub(crate) trait MessageRows {
    /// Whether a row is a send, else a receive; `None` if it is neither, or has no known peer.
    fn is_send(&self, row: usize) -> Option<bool>;
    /// The rank that posts it.
    fn rank(&self, row: usize) -> u32;
    /// The other rank.
    fn peer(&self, row: usize) -> u32;
    /// Key that must be equal for a send and a receive to match.
    fn channel(&self, row: usize) -> i64;
    /// Order of posting within a rank; rows of equal order are posted in the order of rows.
    fn order(&self, row: usize) -> u32;
}

/// The match of each row, [`NONE`] if it has none: the k-th receive matches the k-th send of each source,
/// destination and channel. `rank_start` has the first row of each rank, and the number of rows.
pub(crate) fn match_messages(rows: &impl MessageRows, rank_start: &[usize]) -> Vec<u32> {
    let n_ranks = rank_start.len() - 1;
    let mut pair = vec![NONE; rank_start[n_ranks]];
    let (first, mut sends) = sends_by_receiver(rows, rank_start);
    let mut receives = Vec::new();
    let mut cursors = vec![(0, 0); n_ranks];
    for receiver in 0..n_ranks {
        let sends = &mut sends[first[receiver] as usize..first[receiver + 1] as usize];
        let own = rank_start[receiver]..rank_start[receiver + 1];
        receives.clear();
        receives.extend(own.filter(|&at| rows.is_send(at) == Some(false)).map(|at| at as u32));
        sort_by_order(&mut receives, rows);
        // Sends are grouped by the rank that sends.
        let same = |one: &u32, two: &u32| rows.rank(*one as usize) == rows.rank(*two as usize);
        sends.chunk_by_mut(same).for_each(|group| sort_by_order(group, rows));
        if !match_in_step(rows, sends, &receives, &mut cursors, &mut pair) {
            match_by_channel(rows, sends, &receives, &mut pair);
        }
    }
    pair
}

/// The first send to each rank, and the sends to each rank in the order of rows.
fn sends_by_receiver(rows: &impl MessageRows, rank_start: &[usize]) -> (Vec<u32>, Vec<u32>) {
    let n_ranks = rank_start.len() - 1;
    // A send to a rank that does not exist is not received.
    let sends = || {
        (0..rank_start[n_ranks])
            .filter(|&at| rows.is_send(at) == Some(true) && (rows.peer(at) as usize) < n_ranks)
    };
    let mut first = vec![0u32; n_ranks + 1];
    sends().for_each(|at| first[rows.peer(at) as usize + 1] += 1);
    for rank in 0..n_ranks {
        first[rank + 1] += first[rank];
    }
    let mut next = first.clone();
    let mut out = vec![0; first[n_ranks] as usize];
    for at in sends() {
        let slot = &mut next[rows.peer(at) as usize];
        out[*slot as usize] = at as u32;
        *slot += 1;
    }
    (first, out)
}

fn sort_by_order(messages: &mut [u32], rows: &impl MessageRows) {
    if !messages.is_sorted_by_key(|&at| rows.order(at as usize)) {
        messages.sort_by_key(|&at| rows.order(at as usize));
    }
}

/// Matches each receive with the next send of its source, if the channels of all are equal and no send or
/// receive remains; returns whether they are. Most programs receive messages in the order in which they
/// are sent.
fn match_in_step(
    rows: &impl MessageRows,
    sends: &[u32],
    receives: &[u32],
    cursors: &mut [(u32, u32)],
    pair: &mut [u32],
) -> bool {
    if sends.len() != receives.len() {
        return false;
    }
    for &at in receives {
        // A receive from a rank that does not exist matches nothing.
        let Some(cursor) = cursors.get_mut(rows.peer(at as usize) as usize) else { return false };
        *cursor = (0, 0);
    }
    let source = |place: usize| rows.rank(sends[place] as usize) as usize;
    for place in 0..sends.len() {
        let cursor = &mut cursors[source(place)];
        let begins = place == 0 || source(place - 1) != source(place);
        *cursor = (if begins { place as u32 } else { cursor.0 }, place as u32 + 1);
    }
    for &at in receives {
        let (next, end) = &mut cursors[rows.peer(at as usize) as usize];
        let channel = rows.channel(at as usize);
        if next == end || rows.channel(sends[*next as usize] as usize) != channel {
            return false;
        }
        let send = sends[*next as usize];
        *next += 1;
        pair[at as usize] = send;
        pair[send as usize] = at;
    }
    true
}

/// Matches sends to a rank with its receives by source and channel.
fn match_by_channel(rows: &impl MessageRows, sends: &[u32], receives: &[u32], pair: &mut [u32]) {
    // First and last unmatched send of each stream; `next` links those between.
    let mut waiting: Map<(u32, i64), (u32, u32)> = Map::default();
    let mut next = vec![NONE; sends.len()];
    for (place, &at) in sends.iter().enumerate() {
        pair[at as usize] = NONE;
        let (place, row) = (place as u32, at as usize);
        waiting
            .entry((rows.rank(row), rows.channel(row)))
            .and_modify(|(_, tail)| next[std::mem::replace(tail, place) as usize] = place)
            .or_insert((place, place));
    }
    for &at in receives {
        let row = at as usize;
        pair[row] = NONE;
        let stream = waiting.get_mut(&(rows.peer(row), rows.channel(row)));
        if let Some((head, _)) = stream.filter(|(head, _)| *head != NONE) {
            let send = sends[*head as usize];
            pair[row] = send;
            pair[send as usize] = at;
            *head = next[*head as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MessageRows, NONE, match_messages};

    /// Rank, whether it sends, peer, channel and order of each row.
    struct Rows(Vec<(u32, bool, u32, i64, u32)>);

    impl MessageRows for Rows {
        fn is_send(&self, row: usize) -> Option<bool> {
            Some(self.0[row].1)
        }
        fn rank(&self, row: usize) -> u32 {
            self.0[row].0
        }
        fn peer(&self, row: usize) -> u32 {
            self.0[row].2
        }
        fn channel(&self, row: usize) -> i64 {
            self.0[row].3
        }
        fn order(&self, row: usize) -> u32 {
            self.0[row].4
        }
    }

    #[test]
    fn messages_match_in_and_out_of_step() {
        let send = |channel, order| (0, true, 1, channel, order);
        let receive = |channel, order| (1, false, 0, channel, order);
        let in_step = Rows(vec![
            send(7, 0),
            send(8, 1),
            send(7, 2),
            receive(7, 0),
            receive(8, 0),
            receive(7, 0),
        ]);
        assert_eq!(match_messages(&in_step, &[0, 3, 6]), [3, 4, 5, 0, 1, 2]);
        // The first two receives have the channels of the second and first send; the last has none.
        let crossed =
            Rows(vec![send(7, 0), send(8, 1), receive(8, 0), receive(7, 0), receive(7, 0)]);
        assert_eq!(match_messages(&crossed, &[0, 2, 5]), [3, 2, 1, 0, NONE]);
    }

    #[test]
    fn the_order_of_posting_counts_not_that_of_rows() {
        let rows = Rows(vec![
            (0, true, 1, 5, 9),
            (0, true, 1, 5, 2),
            (1, false, 0, 5, 4),
            (1, false, 0, 5, 3),
        ]);
        assert_eq!(match_messages(&rows, &[0, 2, 4]), [2, 3, 0, 1]);
    }

    #[test]
    fn peers_that_do_not_exist_match_nothing() {
        let rows = Rows(vec![(0, true, 9, 5, 0), (0, false, 9, 5, 1)]);
        assert_eq!(match_messages(&rows, &[0, 2]), [NONE, NONE]);
    }
}
