//! Matches sends with receives.

use crate::numbering::Map;

/// No match.
pub(crate) const NONE: u32 = u32::MAX;

/// Sends and receives, rank by rank.
pub(crate) trait MessageRows {
    /// Whether a row is a send, else a receive; `None` if it is neither, or has no known peer.
    fn is_send(&self, row: usize) -> Option<bool>;
    /// The other rank.
    fn peer(&self, row: usize) -> u32;
    /// Key that must be equal for a send and a receive to match.
    fn channel(&self, row: usize) -> i64;
    /// Order of posting within a rank; rows of equal order are posted in the order of rows.
    fn order(&self, row: usize) -> u32;
}

/// A send: its row and rank.
#[derive(Clone, Copy, Default)]
struct Sent {
    row: u32,
    rank: u32,
}

/// The match of each row, or [`NONE`]. The k-th receive matches the k-th send of each source,
/// destination and channel. `rank_start` has the first row of each rank, and the number of rows.
pub(crate) fn match_messages(rows: &impl MessageRows, rank_start: &[u32]) -> Vec<u32> {
    let n_ranks = rank_start.len() - 1;
    let mut pair = vec![NONE; rank_start[n_ranks] as usize];
    let (first, mut sends) = sends_by_receiver(rows, rank_start);
    let mut receives = Vec::new();
    let mut cursors = vec![(0, 0); n_ranks];
    for receiver in 0..n_ranks {
        let sends = &mut sends[first[receiver] as usize..first[receiver + 1] as usize];
        let rows_of_rank = rank_start[receiver]..rank_start[receiver + 1];
        receives.clear();
        receives.extend(rows_of_rank.filter(|&at| rows.is_send(at as usize) == Some(false)));
        sort_by_order(&mut receives, rows, |at| at);
        // Sends are grouped by the rank that sends.
        sends
            .chunk_by_mut(|left, right| left.rank == right.rank)
            .for_each(|group| sort_by_order(group, rows, |send| send.row));
        if !match_in_step(rows, sends, &receives, &mut cursors, &mut pair) {
            match_by_channel(rows, sends, &receives, &mut pair);
        }
    }
    pair
}

/// The first send to each rank, and the sends to each rank in the order of rows.
fn sends_by_receiver(rows: &impl MessageRows, rank_start: &[u32]) -> (Vec<u32>, Vec<Sent>) {
    let n_ranks = rank_start.len() - 1;
    let sends = |at: usize| {
        // A send to a rank that does not exist is not received.
        let to = (rows.is_send(at) == Some(true)).then(|| rows.peer(at) as usize);
        to.filter(|&to| to < n_ranks)
    };
    let mut first = vec![0u32; n_ranks + 1];
    (0..rank_start[n_ranks] as usize).filter_map(sends).for_each(|to| first[to + 1] += 1);
    for rank in 0..n_ranks {
        first[rank + 1] += first[rank];
    }
    let mut next = first.clone();
    let mut out = vec![Sent::default(); first[n_ranks] as usize];
    for (rank, ends) in rank_start.windows(2).enumerate() {
        for row in ends[0]..ends[1] {
            if let Some(to) = sends(row as usize) {
                out[next[to] as usize] = Sent { row, rank: rank as u32 };
                next[to] += 1;
            }
        }
    }
    (first, out)
}

fn sort_by_order<T: Copy>(messages: &mut [T], rows: &impl MessageRows, row: fn(T) -> u32) {
    let order = |&item: &T| rows.order(row(item) as usize);
    if !messages.is_sorted_by_key(order) {
        messages.sort_by_key(order);
    }
}

/// Matches each receive with the next send of its source. Returns false unless all channels agree
/// and no send or receive is left over. Most programs receive messages in the order in which they
/// are sent.
fn match_in_step(
    rows: &impl MessageRows,
    sends: &[Sent],
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
    let source = |place: usize| sends[place].rank as usize;
    for place in 0..sends.len() {
        let cursor = &mut cursors[source(place)];
        let begins = place == 0 || source(place - 1) != source(place);
        *cursor = (if begins { place as u32 } else { cursor.0 }, place as u32 + 1);
    }
    for &at in receives {
        let (next, end) = &mut cursors[rows.peer(at as usize) as usize];
        let channel = rows.channel(at as usize);
        if next == end || rows.channel(sends[*next as usize].row as usize) != channel {
            return false;
        }
        let send = sends[*next as usize].row;
        *next += 1;
        pair[at as usize] = send;
        pair[send as usize] = at;
    }
    true
}

/// Matches sends to a rank with its receives by source and channel.
fn match_by_channel(rows: &impl MessageRows, sends: &[Sent], receives: &[u32], pair: &mut [u32]) {
    // First and last unmatched send of each stream; `next` links those between.
    let mut waiting: Map<(u32, i64), (u32, u32)> = Map::default();
    let mut next = vec![NONE; sends.len()];
    for (place, &Sent { row, rank }) in sends.iter().enumerate() {
        pair[row as usize] = NONE;
        let place = place as u32;
        waiting
            .entry((rank, rows.channel(row as usize)))
            .and_modify(|(_, tail)| next[std::mem::replace(tail, place) as usize] = place)
            .or_insert((place, place));
    }
    for &at in receives {
        let row = at as usize;
        pair[row] = NONE;
        let stream = waiting.get_mut(&(rows.peer(row), rows.channel(row)));
        if let Some((head, _)) = stream.filter(|(head, _)| *head != NONE) {
            let send = sends[*head as usize].row;
            pair[row] = send;
            pair[send as usize] = at;
            *head = next[*head as usize];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MessageRows, NONE, match_messages};

    /// Whether it sends, peer, channel and order of each row.
    struct Listed(Vec<(bool, u32, i64, u32)>);

    impl MessageRows for Listed {
        fn is_send(&self, row: usize) -> Option<bool> {
            Some(self.0[row].0)
        }
        fn peer(&self, row: usize) -> u32 {
            self.0[row].1
        }
        fn channel(&self, row: usize) -> i64 {
            self.0[row].2
        }
        fn order(&self, row: usize) -> u32 {
            self.0[row].3
        }
    }

    #[test]
    fn messages_match_in_and_out_of_step() {
        let send = |channel, order| (true, 1, channel, order);
        let receive = |channel, order| (false, 0, channel, order);
        let in_step = Listed(vec![
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
            Listed(vec![send(7, 0), send(8, 1), receive(8, 0), receive(7, 0), receive(7, 0)]);
        assert_eq!(match_messages(&crossed, &[0, 2, 5]), [3, 2, 1, 0, NONE]);
    }

    #[test]
    fn messages_match_in_posting_order() {
        let rows =
            Listed(vec![(true, 1, 5, 9), (true, 1, 5, 2), (false, 0, 5, 4), (false, 0, 5, 3)]);
        assert_eq!(match_messages(&rows, &[0, 2, 4]), [2, 3, 0, 1]);
    }

    #[test]
    fn peers_that_do_not_exist_match_nothing() {
        let rows = Listed(vec![(true, 9, 5, 0), (false, 9, 5, 1)]);
        assert_eq!(match_messages(&rows, &[0, 2]), [NONE, NONE]);
    }
}
