//! Turns graphs of operations and dependencies into sequential rank programs.

use crate::matching::{MessageRows, NONE, match_messages};
use crate::numbering::Map;
use tailback_program::{OpKind, Program};

use crate::op;

/// Marks a requirement that is met when its operation has begun, not when it has ended.
const AT_START: u32 = 1 << 31;
/// Limit of operations: their numbers leave a bit for a flag, and their levels are at most twice as many.
const MAX_OPERATIONS: usize = 1 << 29;
/// Level of an operation that has not been reached, and of one that waits for its requirements.
const NOT_REACHED: u32 = u32::MAX;
const IN_PROGRESS: u32 = u32::MAX - 1;

/// Operations of all ranks, rank by rank, and dependencies within ranks.
#[derive(Clone, Copy)]
pub struct Graph<'a> {
    /// Number of ranks.
    pub n_ranks: usize,
    /// Rank of each operation, in ascending order.
    pub rank: &'a [u32],
    /// Kind of each operation, as in [`op`].
    pub kind: &'a [u8],
    /// The other rank of a send or receive.
    pub peer: &'a [i32],
    /// Matching tag.
    pub tag: &'a [i64],
    /// Bytes or picoseconds.
    pub amount: &'a [u64],
    /// Number of the label.
    pub label: &'a [u32],
    /// For each dependency, the operation depended on.
    pub before: &'a [u32],
    /// For each dependency, the dependent operation.
    pub after: &'a [u32],
    /// Whether it suffices that `before` has begun.
    pub begun: &'a [bool],
}

/// The operations of a graph in order.
#[derive(Debug)]
pub struct OrderedGraph {
    /// The operations.
    pub program: Program,
    /// Number of sends without a matching receive, which are left out.
    pub lost_sends: u64,
    /// Number of receives without a matching send, which are left out.
    pub lost_receives: u64,
    /// Whether the program can only run with buffered sends, which complete before they are received.
    pub buffered: bool,
}

/// Why a graph cannot be ordered.
#[derive(Debug, PartialEq, Eq)]
pub enum GraphError {
    /// This operation depends on itself, directly or through others.
    Cycle(u32),
    /// Too many operations.
    TooLarge,
}

/// Puts the operations of a graph in order.
///
/// Operations are ordered by the earliest time at which they could begin if messages took no time. The
/// waits for what an operation requires come right before it. Dependencies must be within ranks.
pub fn compile(graph: &Graph<'_>) -> Result<OrderedGraph, GraphError> {
    let n = graph.rank.len();
    if n >= MAX_OPERATIONS {
        return Err(GraphError::TooLarge);
    }
    let is_empty = |at: usize| graph.kind[at] == op::COMPUTE && graph.amount[at] == 0;
    let kinds: Vec<u8> =
        (0..n).map(|at| if is_empty(at) { op::NOTHING } else { graph.kind[at] }).collect();
    let mut rank_start = vec![0];
    for rank in 0..graph.n_ranks {
        let first = rank_start[rank];
        rank_start.push(first + graph.rank[first..].partition_point(|&one| one as usize == rank));
    }
    let required = Requirements::new(graph, &kinds);
    let operations = Operations { graph, kinds: &kinds, required: &required };
    let mut times = Times::default();
    operations.earliest_times(&vec![NONE; n], true, &mut times).map_err(GraphError::Cycle)?;
    let pair =
        match_messages(&GraphMessages { graph, kinds: &kinds, level: &times.level }, &rank_start);
    let buffered = operations.earliest_times(&pair, true, &mut times).is_err();
    if buffered {
        operations.earliest_times(&pair, false, &mut times).map_err(GraphError::Cycle)?;
    }
    let lost = |kind| (0..n).filter(|&at| kinds[at] == kind && pair[at] == NONE).count() as u64;
    let mut emission = Emission {
        graph,
        kinds: &kinds,
        required: &required,
        pair: &pair,
        times: &times,
        buffered,
        number: vec![0; n],
        messages: 0,
        out: Program::with_capacity(graph.n_ranks, n + n / 4 + graph.n_ranks),
    };
    let mut buffers = RankBuffers::default();
    for ends in rank_start.windows(2) {
        emission.rank(ends[0], ends[1], &mut buffers);
    }
    let (lost_sends, lost_receives) = (lost(op::ISEND), lost(op::IRECV));
    Ok(OrderedGraph { program: emission.out, lost_sends, lost_receives, buffered })
}

/// Sends and receives in the order in which their ranks can begin them.
struct GraphMessages<'a> {
    graph: &'a Graph<'a>,
    kinds: &'a [u8],
    level: &'a [u32],
}

impl MessageRows for GraphMessages<'_> {
    #[inline]
    fn is_send(&self, row: usize) -> Option<bool> {
        match self.kinds[row] {
            op::ISEND => Some(true),
            op::IRECV => Some(false),
            _ => None,
        }
    }

    #[inline]
    fn rank(&self, row: usize) -> u32 {
        self.graph.rank[row]
    }

    #[inline]
    fn peer(&self, row: usize) -> u32 {
        self.graph.peer[row] as u32
    }

    #[inline]
    fn channel(&self, row: usize) -> i64 {
        self.graph.tag[row]
    }

    #[inline]
    fn order(&self, row: usize) -> u32 {
        self.level[row]
    }
}

/// What each operation requires, as lists of operations, with [`AT_START`].
struct Requirements {
    /// End of the list of each operation.
    end: Vec<u32>,
    source: Vec<u32>,
}

impl Requirements {
    fn new(graph: &Graph<'_>, kinds: &[u8]) -> Self {
        let inherited = inherited_edges(graph, kinds);
        let mut end = vec![0u32; kinds.len()];
        for &after in graph.after {
            end[after as usize] += 1;
        }
        for &(_, after) in &inherited {
            end[after as usize] += 1;
        }
        let mut total = 0;
        for one in &mut end {
            // Begin of the list; becomes its end as the list is filled.
            total += std::mem::replace(one, total);
        }
        let mut source = vec![0u32; total as usize];
        let mut add = |after: u32, required: u32| {
            let at = &mut end[after as usize];
            source[*at as usize] = required;
            *at += 1;
        };
        for ((&before, &after), &begun) in graph.before.iter().zip(graph.after).zip(graph.begun) {
            add(after, before | if begun { AT_START } else { 0 });
        }
        inherited.iter().for_each(|&(before, after)| add(after, before));
        Self { end, source }
    }

    #[inline]
    fn of(&self, at: usize) -> &[u32] {
        let begin = if at == 0 { 0 } else { self.end[at - 1] };
        &self.source[begin as usize..self.end[at] as usize]
    }
}

/// Further dependencies, before and after: an operation that may begin with a computation inherits those
/// of that computation.
///
/// It precedes the computation in the sequence, because a rank does nothing else while it computes.
fn inherited_edges(graph: &Graph<'_>, kinds: &[u8]) -> Vec<(u32, u32)> {
    let edges = || graph.before.iter().zip(graph.after).zip(graph.begun);
    let early: Vec<(u32, u32)> = edges()
        .filter(|((before, _), begun)| **begun && kinds[**before as usize] == op::COMPUTE)
        .map(|((&before, &after), _)| (before, after))
        .collect();
    let mut required: Map<u32, Vec<u32>> = early.iter().map(|&(at, _)| (at, Vec::new())).collect();
    if required.is_empty() {
        return Vec::new();
    }
    for ((&before, after), _) in edges().filter(|(_, begun)| !**begun) {
        if let Some(of) = required.get_mut(after) {
            of.push(before);
        }
    }
    let inherits =
        |&(computation, at): &(u32, u32)| required[&computation].iter().map(move |&one| (one, at));
    early.iter().flat_map(inherits).collect()
}

/// When operations can begin.
#[derive(Default)]
struct Times {
    /// Earliest time of each operation.
    time: Vec<u64>,
    /// Number of dependencies, including those through messages, on the longest path to it.
    level: Vec<u32>,
}

/// What determines when operations can begin.
struct Operations<'a> {
    graph: &'a Graph<'a>,
    kinds: &'a [u8],
    required: &'a Requirements,
}

impl Operations<'_> {
    /// Sets the earliest times of all operations, given the match of each send and receive, and whether
    /// sends complete only once their receives are posted (rendezvous). The error is an operation that
    /// waits for itself.
    ///
    /// Depth first from each operation to what it requires, so that each is visited at most twice.
    fn earliest_times(&self, pair: &[u32], strict: bool, times: &mut Times) -> Result<(), u32> {
        let n = self.kinds.len();
        times.time.resize(n, 0);
        times.level.clear();
        times.level.resize(n, NOT_REACHED);
        let mut stack = Vec::new();
        for root in 0..n as u32 {
            stack.push(root);
            while let Some(&at) = stack.last() {
                let row = at as usize;
                if times.level[row] < IN_PROGRESS {
                    stack.pop();
                    continue;
                }
                let depth = stack.len();
                if let Some(begin) = self.begin(row, times, (pair, strict), &mut stack)? {
                    (times.time[row], times.level[row]) = begin;
                    stack.pop();
                } else if stack.len() > depth {
                    times.level[row] = IN_PROGRESS;
                }
            }
        }
        Ok(())
    }

    /// Time and level of an operation. If what it requires is not known yet, adds that to `missing`.
    #[inline]
    fn begin(
        &self,
        at: usize,
        times: &Times,
        (pair, strict): (&[u32], bool),
        missing: &mut Vec<u32>,
    ) -> Result<Option<(u64, u32)>, u32> {
        let (mut time, mut level) = (0, 0);
        let mut known = true;
        let mut get = |at: u32| match times.level[at as usize] {
            IN_PROGRESS => Err(at),
            NOT_REACHED => {
                missing.push(at);
                known = false;
                Ok((0, 0))
            }
            level => Ok((times.time[at as usize], level)),
        };
        for &required in self.required.of(at) {
            let before = required & !AT_START;
            let (mut from, mut steps) = get(before)?;
            if required & AT_START == 0 {
                let (row, partner) = (before as usize, pair[before as usize]);
                let receives = self.kinds[row] == op::IRECV;
                if self.kinds[row] == op::COMPUTE {
                    from = from.saturating_add(self.graph.amount[row]);
                } else if partner != NONE && (receives || strict) {
                    let other = get(partner)?;
                    // The arrival of a message is an event between the receive and what requires it.
                    (from, steps) = (from.max(other.0), steps.max(other.1) + u32::from(receives));
                }
            }
            (time, level) = (time.max(from), level.max(steps + 1));
        }
        Ok(known.then_some((time, level)))
    }
}

/// Space for the operations of one rank, by their index within the rank.
#[derive(Default)]
struct RankBuffers {
    /// Time, whether it computes and level, and index.
    keys: Vec<(u64, u64, u32)>,
    /// Index in the sequence.
    place: Vec<u32>,
    /// Index in the sequence before which a message must be complete; [`NONE`] if it need not.
    needed: Vec<u32>,
    /// By index in the sequence: the first message to wait for.
    head: Vec<u32>,
    /// The next message to wait for at the same index, in the order in which they are posted.
    next: Vec<u32>,
    request: Vec<i32>,
}

impl RankBuffers {
    fn clear(&mut self, operations: usize) {
        self.keys.clear();
        for column in [&mut self.place, &mut self.needed, &mut self.head, &mut self.next] {
            column.clear();
            column.resize(operations, NONE);
        }
        self.request.clear();
        self.request.resize(operations, -1);
    }

    /// Messages to wait for before the operation at `place`.
    fn waits(&self, place: usize) -> impl Iterator<Item = u32> {
        let known = |at: u32| (at != NONE).then_some(at);
        std::iter::successors(known(self.head[place]), move |&at| known(self.next[at as usize]))
    }
}

/// Writes the operations in order, each after the waits for what it requires.
struct Emission<'a> {
    graph: &'a Graph<'a>,
    kinds: &'a [u8],
    required: &'a Requirements,
    pair: &'a [u32],
    times: &'a Times,
    buffered: bool,
    /// Number of the message of each send and receive.
    number: Vec<u32>,
    messages: u32,
    out: Program,
}

impl Emission<'_> {
    /// The operations from `first` to before `last`, which are those of a rank.
    fn rank(&mut self, first: usize, last: usize, buffers: &mut RankBuffers) {
        self.number_messages(first, last);
        buffers.clear(last - first);
        buffers.keys.extend((first..last).map(|at| {
            let computes = u64::from(self.kinds[at] == op::COMPUTE);
            let level = u64::from(self.times.level[at]);
            (self.times.time[at], computes << 32 | level, (at - first) as u32)
        }));
        sort_nearly_sorted(&mut buffers.keys);
        self.set_waits(first, buffers);
        let (mut requests, mut open) = (0, false);
        for place in 0..buffers.keys.len() {
            for waited in buffers.waits(place) {
                self.out.push(OpKind::Wait, -1, 0, 0, buffers.request[waited as usize], 0);
            }
            let index = buffers.keys[place].2 as usize;
            let row = first + index;
            if self.kinds[row] == op::COMPUTE {
                self.out.push(OpKind::Compute, -1, self.graph.amount[row], 0, -1, 0);
            } else if self.pair[row] != NONE {
                // The size of the send counts, not the size of the receive buffer.
                let receives = self.kinds[row] == op::IRECV;
                let sender = if receives { self.pair[row] as usize } else { row };
                let kind = if receives { OpKind::Irecv } else { OpKind::Isend };
                let (size, tag) = (self.graph.amount[sender], i64::from(self.number[row]));
                let (peer, label) = (self.graph.peer[row], self.graph.label[row]);
                self.out.push(kind, peer, size, tag, requests, label);
                buffers.request[index] = requests;
                requests += 1;
                open |= buffers.needed[index] == NONE;
            }
        }
        if open {
            self.out.push(OpKind::Waitall, -1, 0, 0, -1, 0);
        }
        self.out.close_rank();
    }

    /// Numbers messages in the order of their first operation.
    fn number_messages(&mut self, first: usize, last: usize) {
        for at in first..last {
            let partner = self.pair[at];
            if partner != NONE && at < partner as usize {
                self.number[at] = self.messages;
                self.number[partner as usize] = self.messages;
                self.messages += 1;
            }
        }
    }

    /// Finds the operation before which each message must be complete.
    fn set_waits(&self, first: usize, buffers: &mut RankBuffers) {
        let RankBuffers { keys, place, needed, head, next, .. } = buffers;
        for (at, key) in keys.iter().enumerate() {
            place[key.2 as usize] = at as u32;
        }
        for (index, &place) in place.iter().enumerate() {
            for &required in self.required.of(first + index) {
                if required & AT_START == 0 {
                    let one = &mut needed[required as usize - first];
                    *one = (*one).min(place);
                }
            }
        }
        for &(_, _, index) in keys.iter().rev() {
            let (row, needed) = (first + index as usize, &mut needed[index as usize]);
            let sent_at_once = self.buffered && self.kinds[row] == op::ISEND;
            if self.pair[row] == NONE || sent_at_once {
                *needed = NONE;
            } else if *needed != NONE {
                next[index as usize] = std::mem::replace(&mut head[*needed as usize], index);
            }
        }
    }
}

/// Sorts keys that are mostly in order: each moves to its place among those before it, unless that takes
/// long.
fn sort_nearly_sorted<T: Copy + Ord>(keys: &mut [T]) {
    let mut moves = 8 * keys.len();
    for at in 1..keys.len() {
        let key = keys[at];
        let mut to = at;
        while to > 0 && keys[to - 1] > key {
            keys[to] = keys[to - 1];
            to -= 1;
        }
        keys[to] = key;
        let Some(left) = moves.checked_sub(at - to) else {
            return keys.sort_unstable();
        };
        moves = left;
    }
}

#[cfg(test)]
mod tests {
    use super::{Graph, GraphError, OpKind, compile};
    use crate::op;

    fn graph<'a>(before: &'a [u32], after: &'a [u32], begun: &'a [bool]) -> Graph<'a> {
        Graph {
            n_ranks: 2,
            rank: &[0, 0, 1],
            kind: &[op::COMPUTE, op::ISEND, op::IRECV],
            peer: &[-1, 1, 0],
            tag: &[0, 4, 4],
            amount: &[50, 8, 9],
            label: &[0, 1, 2],
            before,
            after,
            begun,
        }
    }

    #[test]
    fn a_send_follows_what_it_requires_and_its_size_is_used() {
        let done = compile(&graph(&[0], &[1], &[false])).expect("it can run").program;
        let waitall = OpKind::Waitall as u8;
        assert_eq!(done.kind, [op::COMPUTE, op::ISEND, waitall, op::IRECV, waitall]);
        assert_eq!(done.rank_start, [0, 3, 5]);
        assert_eq!((done.amount[1], done.amount[3]), (8, 8));
    }

    #[test]
    fn a_cycle_of_operations_is_named() {
        let cycle = compile(&graph(&[0, 1], &[1, 0], &[false, false]));
        assert!(matches!(cycle, Err(GraphError::Cycle(0 | 1))));
    }
}
