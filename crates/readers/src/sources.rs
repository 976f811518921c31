//! Sources of receives that a trace records without them, as some tracers do for non-blocking receives.
//!
//! The ranks are run in rounds: in each, every rank posts what it posts before its next wait, and passes
//! that wait once as many messages have arrived as it waits for. So a receive never takes a message that
//! depends on itself, and the program runs to its end.

use std::collections::VecDeque;

use crate::assembly::{Posts, UNKNOWN};
use crate::numbering::{Map, earlier_occurrences};

/// The send that each receive of unknown source takes, -1 where there is none, and for other posts.
///
/// Of several messages that have arrived, a receive takes that of the stream of which the smallest part
/// is received; then the earliest; then one from a rank to which its own sends before the wait.
///
/// Posts must be sorted by rank, position and step. `ends` has the position of the wait for each;
/// `unused` marks receives that take nothing, such as those from `MPI_PROC_NULL`, by a guess: where the
/// ranks would wait forever, the receives that they wait for are the ones that take nothing.
pub fn match_unknown_sources(
    n_ranks: usize,
    posts: &Posts<'_>,
    ends: &[i64],
    unused: &[bool],
) -> Vec<i64> {
    let mut run = Run::new(n_ranks, posts, ends, unused);
    while run.post() {
        if !run.pass_waits() {
            run.give_up();
        }
        run.round += 1;
    }
    run.source
}

/// A message that no receive of known source takes.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Unclaimed {
    /// Share of its stream that is sent before it.
    place: f64,
    round: u32,
    stream: u32,
    send: u32,
}

#[derive(Default)]
struct RankState {
    next_post: usize,
    end_post: usize,
    /// First post after the last wait.
    group: usize,
    /// Receives in the order of their waits, and the first whose wait is not passed.
    waits: Vec<u32>,
    next_wait: usize,
    /// Arrived messages by stream, and their number.
    arrived: Vec<VecDeque<Unclaimed>>,
    place_of: Map<u32, usize>,
    count: usize,
}

struct Run<'a> {
    posts: &'a Posts<'a>,
    ends: &'a [i64],
    unused: Vec<bool>,
    source: Vec<i64>,
    ranks: Vec<RankState>,
    /// Stream of each post, and how many posts of the same kind it has before.
    stream: Vec<u32>,
    turn: Vec<i64>,
    /// Messages of each stream: all, those that receives of known source take, those sent so far.
    total: Vec<i64>,
    claimed: Vec<i64>,
    sent: Vec<i64>,
    round: u32,
}

const NO_STREAM: u32 = u32::MAX;

impl<'a> Run<'a> {
    fn new(n_ranks: usize, posts: &'a Posts<'a>, ends: &'a [i64], unused: &[bool]) -> Self {
        let n = posts.rank.len();
        let stream = streams(n_ranks, posts);
        let streams =
            stream.iter().filter(|&&at| at != NO_STREAM).max().map_or(0, |&at| at as usize + 1);
        let (mut total, mut claimed) = (vec![0; streams], vec![0; streams]);
        for at in (0..n).filter(|&at| stream[at] != NO_STREAM) {
            let count = if posts.is_send[at] { &mut total } else { &mut claimed };
            count[stream[at] as usize] += 1;
        }
        let kinds: Vec<i64> =
            (0..n).map(|at| 2 * i64::from(stream[at]) + i64::from(posts.is_send[at])).collect();
        let mut ranks: Vec<RankState> = (0..n_ranks).map(|_| RankState::default()).collect();
        let mut first = 0;
        for (number, rank) in ranks.iter_mut().enumerate() {
            let last = first + posts.rank[first..].partition_point(|&of| of as usize <= number);
            (rank.next_post, rank.end_post, rank.group) = (first, last, first);
            rank.waits =
                (first..last).filter(|&at| !posts.is_send[at]).map(|at| at as u32).collect();
            rank.waits.sort_by_key(|&at| ends[at as usize]);
            first = last;
        }
        Self {
            posts,
            ends,
            unused: unused.to_vec(),
            source: vec![UNKNOWN; n],
            ranks,
            stream,
            turn: earlier_occurrences(&kinds),
            total,
            sent: vec![0; streams],
            claimed,
            round: 0,
        }
    }

    /// Posts what each rank posts before its next wait; false if all ranks are at their end.
    fn post(&mut self) -> bool {
        let mut any = false;
        for number in 0..self.ranks.len() {
            let rank = &self.ranks[number];
            let until =
                rank.waits.get(rank.next_wait).map_or(i64::MAX, |&at| self.ends[at as usize]);
            any |= rank.next_wait < rank.waits.len() || rank.next_post < rank.end_post;
            let first = rank.next_post;
            let upto = first
                + self.posts.position[first..rank.end_post].partition_point(|&at| at <= until);
            self.ranks[number].next_post = upto;
            (first..upto).for_each(|at| self.arrive(at));
        }
        any
    }

    fn arrive(&mut self, send: usize) {
        let stream = self.stream[send];
        if !self.posts.is_send[send] || stream == NO_STREAM {
            return;
        }
        let at = stream as usize;
        self.sent[at] += 1;
        let turn = self.turn[send] - self.claimed[at];
        if turn < 0 {
            return;
        }
        let place = (turn as f64 + 0.5) / (self.total[at] - self.claimed[at]) as f64;
        let message = Unclaimed { place, round: self.round, stream, send: send as u32 };
        let receiver = &mut self.ranks[self.posts.peer[send] as usize];
        let slot = *receiver.place_of.entry(stream).or_insert(receiver.arrived.len());
        if slot == receiver.arrived.len() {
            receiver.arrived.push(VecDeque::new());
        }
        receiver.arrived[slot].push_back(message);
        receiver.count += 1;
    }

    /// The receives for which a rank waits next.
    fn awaited(&self, number: usize) -> &[u32] {
        let rank = &self.ranks[number];
        let left = &rank.waits[rank.next_wait..];
        let Some(&next) = left.first() else { return left };
        let end = self.ends[next as usize];
        &left[..left.partition_point(|&at| self.ends[at as usize] == end)]
    }

    fn takes_unknown(&self, at: u32) -> bool {
        self.posts.peer[at as usize] == UNKNOWN && !self.unused[at as usize]
    }

    /// Passes all waits whose messages have arrived; false if none has.
    fn pass_waits(&mut self) -> bool {
        let mut passed = false;
        for number in 0..self.ranks.len() {
            let awaited = self.awaited(number);
            let unknown = awaited.iter().filter(|&&at| self.takes_unknown(at)).count();
            let arrived = awaited.iter().all(|&at| {
                let stream = self.stream[at as usize];
                let missing = stream != NO_STREAM
                    && self.sent[stream as usize] <= self.turn[at as usize]
                    && self.turn[at as usize] < self.total[stream as usize];
                !missing
            });
            if arrived && unknown <= self.ranks[number].count {
                passed |= !awaited.is_empty();
                self.pass(number);
            }
        }
        passed
    }

    /// Gives the awaited receives their messages, as far as there are any, and passes the wait.
    fn pass(&mut self, number: usize) {
        let awaited = self.awaited(number).to_vec();
        let receives: Vec<u32> =
            awaited.iter().copied().filter(|&at| self.takes_unknown(at)).collect();
        let taken = self.take(number, receives.len());
        for (&receive, message) in receives.iter().zip(&taken) {
            self.source[receive as usize] = i64::from(message.send);
        }
        let rank = &mut self.ranks[number];
        rank.next_wait += awaited.len();
        rank.group = rank.next_post;
        // As many later receives take a message instead.
        let later = &rank.waits[rank.next_wait..];
        let unused = later.iter().filter(|&&at| self.unused[at as usize]).copied();
        let swapped: Vec<u32> = unused.take(receives.len() - taken.len()).collect();
        swapped.into_iter().for_each(|at| self.unused[at as usize] = false);
    }

    /// The next messages for a rank, in the order in which its receives take them.
    fn take(&mut self, number: usize, wanted: usize) -> Vec<Unclaimed> {
        let rank = &self.ranks[number];
        let group = rank.group..rank.next_post;
        let is_partner = |from: i64| {
            group.clone().any(|at| self.posts.is_send[at] && self.posts.peer[at] == from)
        };
        let mut partner: Map<u32, bool> = Map::default();
        if wanted < rank.count {
            for message in rank.arrived.iter().filter_map(VecDeque::front) {
                let from = self.posts.rank[message.send as usize];
                partner.insert(message.stream, is_partner(from));
            }
        }
        let rank = &mut self.ranks[number];
        let mut out = Vec::with_capacity(wanted.min(rank.count));
        if wanted >= rank.count {
            rank.arrived.iter_mut().for_each(|queue| out.extend(queue.drain(..)));
            out.sort_by(|left, right| left.partial_cmp(right).unwrap_or(std::cmp::Ordering::Equal));
        }
        while out.len() < wanted && rank.count > out.len() {
            let heads = rank.arrived.iter().enumerate();
            let best = heads
                .filter_map(|(slot, queue)| {
                    let head = queue.front()?;
                    let other = !partner.get(&head.stream).copied().unwrap_or(false);
                    Some(((head.place, head.round, other, head.stream), slot))
                })
                .min_by(|left, right| {
                    left.0.partial_cmp(&right.0).unwrap_or(std::cmp::Ordering::Equal)
                });
            let Some((_, slot)) = best else { break };
            out.extend(rank.arrived[slot].pop_front());
        }
        rank.count -= out.len();
        out
    }

    /// Lets all ranks go on that wait for messages which do not come.
    fn give_up(&mut self) {
        for number in 0..self.ranks.len() {
            if !self.awaited(number).is_empty() {
                self.pass(number);
            }
        }
    }
}

/// The number of the source, destination and channel of each post, [`NO_STREAM`] where one is unknown.
fn streams(n_ranks: usize, posts: &Posts<'_>) -> Vec<u32> {
    let mut number: Map<(i64, i64, i64), u32> = Map::default();
    (0..posts.rank.len())
        .map(|at| {
            let (rank, peer) = (posts.rank[at], posts.peer[at]);
            if peer < 0 || peer as usize >= n_ranks {
                return NO_STREAM;
            }
            let (from, to) = if posts.is_send[at] { (rank, peer) } else { (peer, rank) };
            let next = number.len() as u32;
            *number.entry((from, to, posts.channel[at])).or_insert(next)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Posts of ranks as `(send?, peer)`, and of the waits after them, in steps of one position.
    #[derive(Default)]
    struct Script {
        rank: Vec<i64>,
        position: Vec<i64>,
        is_send: Vec<bool>,
        peer: Vec<i64>,
        ends: Vec<i64>,
    }

    impl Script {
        /// Each rank posts its groups one after another, and waits for each.
        fn of(ranks: &[&[&[(bool, i64)]]]) -> Self {
            let mut out = Self::default();
            let mut position = 0;
            for (rank, groups) in ranks.iter().enumerate() {
                for group in *groups {
                    let end = position + group.len() as i64;
                    for &(is_send, peer) in *group {
                        out.rank.push(rank as i64);
                        out.position.push(position);
                        out.is_send.push(is_send);
                        out.peer.push(peer);
                        out.ends.push(end);
                        position += 1;
                    }
                    position += 1;
                }
            }
            out
        }

        /// The rank that sends what each receive of unknown source takes.
        fn sources(&self, unused: &[usize]) -> Vec<i64> {
            let zeros = vec![0; self.rank.len()];
            let posts = Posts {
                rank: &self.rank,
                position: &self.position,
                step: &zeros,
                is_send: &self.is_send,
                peer: &self.peer,
                channel: &zeros,
            };
            let none: Vec<bool> = (0..self.rank.len()).map(|at| unused.contains(&at)).collect();
            let ranks = 1 + *self.rank.iter().max().unwrap() as usize;
            let send = match_unknown_sources(ranks, &posts, &self.ends, &none);
            let receives = (0..send.len()).filter(|&at| !self.is_send[at]);
            receives
                .map(|at| if send[at] < 0 { -1 } else { self.rank[send[at] as usize] })
                .collect()
        }
    }

    const RECEIVE: (bool, i64) = (false, UNKNOWN);

    fn to(peer: i64) -> (bool, i64) {
        (true, peer)
    }

    /// Each rank exchanges with one partner, then with another: whoever is first by number.
    #[test]
    fn exchanges_take_messages_of_their_step() {
        let ranks: [&[&[(bool, i64)]]; 4] = [
            &[&[RECEIVE, to(1)], &[RECEIVE, to(2)]],
            &[&[RECEIVE, to(0)], &[RECEIVE, to(3)]],
            &[&[RECEIVE, to(3)], &[RECEIVE, to(0)]],
            &[&[RECEIVE, to(2)], &[RECEIVE, to(1)]],
        ];
        assert_eq!(Script::of(&ranks).sources(&[]), [1, 2, 0, 3, 3, 0, 2, 1]);
    }

    /// Rank 2 has no first partner, and so sends to rank 1 before that is at its second exchange.
    #[test]
    fn of_equal_messages_that_of_the_partner_is_taken() {
        let ranks: [&[&[(bool, i64)]]; 3] =
            [&[&[RECEIVE, to(1)]], &[&[RECEIVE, to(0)], &[RECEIVE, to(2)]], &[&[RECEIVE, to(1)]]];
        assert_eq!(Script::of(&ranks).sources(&[]), [1, 0, 2, 1]);
    }

    /// What comes first may be far ahead: streams are taken evenly.
    #[test]
    fn streams_are_taken_evenly() {
        let ranks: [&[&[(bool, i64)]]; 3] = [
            &[&[RECEIVE], &[RECEIVE], &[RECEIVE], &[RECEIVE]],
            &[&[to(0), to(0)]],
            &[&[to(0), to(0)]],
        ];
        assert_eq!(Script::of(&ranks).sources(&[]), [1, 2, 1, 2]);
    }

    /// A receive from nobody is not waited for; where it is another one, the ranks still end.
    #[test]
    fn ranks_end_whichever_receive_takes_nothing() {
        let ranks: [&[&[(bool, i64)]]; 2] =
            [&[&[RECEIVE], &[RECEIVE, to(1)]], &[&[RECEIVE, to(0)]]];
        let script = Script::of(&ranks);
        assert_eq!(script.sources(&[0]), [-1, 1, 0]);
        assert_eq!(script.sources(&[1]), [1, -1, 0]);
        let late: [&[&[(bool, i64)]]; 2] =
            [&[&[RECEIVE], &[to(1)], &[RECEIVE]], &[&[(false, 0)], &[to(0)]]];
        assert_eq!(Script::of(&late).sources(&[2]), [-1, 1, -1]);
    }
}
