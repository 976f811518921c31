//! Turns graphs of operations and dependencies into sequential rank programs.

use crate::graph::{ANY_SOURCE, AT_START, Graph};
use crate::matching::{MessageRows, NONE, match_messages};
use crate::wildcards::match_on_arrival;
use tailback_program::{OpKind, Program};

use crate::op;

/// Maximum number of operations. Numbers leave a bit for a flag, and there are at most twice as
/// many levels.
const MAX_OPERATIONS: usize = 1 << 29;
/// Level of an operation that has not been reached, and of one that waits for its requirements.
const NOT_REACHED: u32 = u32::MAX;
const IN_PROGRESS: u32 = u32::MAX - 1;

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
    /// Labels of the messages of the program, which numbers them in this order.
    pub labels: Vec<u32>,
    /// Number of receives from any source or with any tag, which are matched on arrival.
    pub wildcards: u64,
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
    let n = graph.kind.len();
    if n >= MAX_OPERATIONS {
        return Err(GraphError::TooLarge);
    }
    let mut times = Times::default();
    earliest_times(graph, None, true, &mut times).map_err(GraphError::Cycle)?;
    let wildcards = graph.wildcards();
    let pair = if wildcards > 0 {
        match_on_arrival(graph)
    } else {
        match_messages(&GraphMessages { graph, level: &times.level }, graph.rank_start)
    };
    let buffered = earliest_times(graph, Some(&pair), true, &mut times).is_err();
    if buffered {
        earliest_times(graph, Some(&pair), false, &mut times).map_err(GraphError::Cycle)?;
    }
    let lost =
        |kind| (0..n).filter(|&at| graph.kind[at] == kind && pair[at] == NONE).count() as u64;
    let (lost_sends, lost_receives) = (lost(op::ISEND), lost(op::IRECV));
    let n_ranks = graph.rank_start.len() - 1;
    let mut emission = Emission {
        graph,
        pair: &pair,
        times: &times,
        buffered,
        number: vec![0; n],
        messages: 0,
        out: Program::with_capacity(n_ranks, n + n / 4 + n_ranks),
    };
    let mut buffers = RankBuffers::default();
    for ends in graph.rank_start.windows(2) {
        emission.rank(ends[0] as usize, ends[1] as usize, &mut buffers);
    }
    let mut program = emission.out;
    let labels = number_labels(&mut program);
    Ok(OrderedGraph { program, lost_sends, lost_receives, buffered, labels, wildcards })
}

/// Replaces the labels of messages with consecutive numbers, and returns the labels in that order.
fn number_labels(program: &mut Program) -> Vec<u32> {
    let highest = program.label.iter().max().map_or(0, |&label| label as usize + 1);
    let mut number = vec![NONE; highest];
    let messages = || program.kind.iter().map(|&kind| kind == op::ISEND || kind == op::IRECV);
    for (&label, _) in program.label.iter().zip(messages()).filter(|(_, message)| *message) {
        number[label as usize] = 0;
    }
    let mut labels = Vec::new();
    for (label, slot) in number.iter_mut().enumerate().filter(|(_, slot)| **slot == 0) {
        *slot = labels.len() as u32;
        labels.push(label as u32);
    }
    let kinds = program.kind.iter();
    for (label, _) in program
        .label
        .iter_mut()
        .zip(kinds)
        .filter(|(_, kind)| **kind == op::ISEND || **kind == op::IRECV)
    {
        *label = number[*label as usize];
    }
    labels
}

/// Sends and receives in the order in which their ranks can begin them.
struct GraphMessages<'a> {
    graph: &'a Graph<'a>,
    level: &'a [u32],
}

impl MessageRows for GraphMessages<'_> {
    #[inline]
    fn is_send(&self, row: usize) -> Option<bool> {
        match self.graph.kind[row] {
            op::ISEND => Some(true),
            op::IRECV => Some(false),
            _ => None,
        }
    }

    #[inline]
    fn peer(&self, row: usize) -> u32 {
        self.graph.peer[row] as u32
    }

    #[inline]
    fn channel(&self, row: usize) -> i64 {
        self.graph.channel[self.graph.stream[row] as usize]
    }

    #[inline]
    fn order(&self, row: usize) -> u32 {
        self.level[row]
    }
}

/// When operations can begin.
#[derive(Default)]
struct Times {
    /// Earliest time of each operation.
    time: Vec<u64>,
    /// Number of dependencies, including those through messages, on the longest path to it.
    level: Vec<u32>,
}

/// Sets the earliest times of all operations. `pair` is the match of each send and receive, if they
/// are matched. `strict` makes sends complete only once their receives are posted (rendezvous). The
/// error is an operation that waits for itself.
///
/// The search is depth-first from each operation to its requirements and visits each at most twice.
fn earliest_times(
    graph: &Graph<'_>,
    pair: Option<&[u32]>,
    strict: bool,
    times: &mut Times,
) -> Result<(), u32> {
    let n = graph.kind.len();
    times.time.resize(n, 0);
    times.level.clear();
    times.level.resize(n, NOT_REACHED);
    let mut stack = Vec::new();
    for root in 0..n as u32 {
        if times.level[root as usize] < IN_PROGRESS {
            continue;
        }
        stack.push(root);
        while let Some(&at) = stack.last() {
            let row = at as usize;
            if times.level[row] < IN_PROGRESS {
                stack.pop();
                continue;
            }
            let depth = stack.len();
            if let Some(begin) = begin(graph, row, times, (pair, strict), &mut stack)? {
                (times.time[row], times.level[row]) = begin;
                stack.pop();
            } else if stack.len() > depth {
                times.level[row] = IN_PROGRESS;
            }
        }
    }
    Ok(())
}

/// Time and level of an operation. Adds requirements without a time to `missing`.
#[inline]
fn begin(
    graph: &Graph<'_>,
    at: usize,
    times: &Times,
    (pair, strict): (Option<&[u32]>, bool),
    missing: &mut Vec<u32>,
) -> Result<Option<(u64, u32)>, u32> {
    let (mut time, mut level) = (0, 0);
    let mut complete = true;
    let mut get = |at: u32| match times.level[at as usize] {
        IN_PROGRESS => Err(at),
        NOT_REACHED => {
            missing.push(at);
            complete = false;
            Ok((0, 0))
        }
        level => Ok((times.time[at as usize], level)),
    };
    for &required in graph.required(at) {
        let before = required & !AT_START;
        let (mut from, mut steps) = get(before)?;
        if required & AT_START == 0 {
            let row = before as usize;
            let receives = graph.kind[row] == op::IRECV;
            if graph.kind[row] == op::COMPUTE {
                from = from.saturating_add(graph.amount[row]);
            } else if let Some(pair) = pair
                && pair[row] != NONE
                && (receives || strict)
            {
                let other = get(pair[row])?;
                // The arrival of a message is an event between the receive and what requires it.
                (from, steps) = (from.max(other.0), steps.max(other.1) + u32::from(receives));
            }
        }
        (time, level) = (time.max(from), level.max(steps + 1));
    }
    Ok(complete.then_some((time, level)))
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
        let message = |at: u32| (at != NONE).then_some(at);
        std::iter::successors(message(self.head[place]), move |&at| message(self.next[at as usize]))
    }
}

/// Writes the operations in order, each after the waits for what it requires.
struct Emission<'a> {
    graph: &'a Graph<'a>,
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
            let computes = u64::from(self.graph.kind[at] == op::COMPUTE);
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
            if self.graph.kind[row] == op::COMPUTE {
                self.out.push(OpKind::Compute, -1, self.graph.amount[row], 0, -1, 0);
            } else if self.pair[row] != NONE {
                self.message(row, requests);
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

    /// Writes a send or receive.
    #[inline]
    fn message(&mut self, row: usize, request: i32) {
        let (graph, partner) = (self.graph, self.pair[row] as usize);
        // The size of the send counts, not the size of the receive buffer.
        let (kind, sender) = match graph.kind[row] {
            op::IRECV => (OpKind::Irecv, partner),
            _ => (OpKind::Isend, row),
        };
        let peer = match graph.peer[row] {
            ANY_SOURCE => graph.rank_of(partner) as i32,
            peer => peer,
        };
        let (size, tag) = (graph.amount[sender], i64::from(self.number[row]));
        let label = graph.label[graph.stream[row] as usize];
        self.out.push(kind, peer, size, tag, request, label);
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
            for &required in self.graph.required(first + index) {
                if required & AT_START == 0 {
                    let slot = &mut needed[required as usize - first];
                    *slot = (*slot).min(place);
                }
            }
        }
        for &(_, _, index) in keys.iter().rev() {
            let (row, needed) = (first + index as usize, &mut needed[index as usize]);
            let sent_at_once = self.buffered && self.graph.kind[row] == op::ISEND;
            if self.pair[row] == NONE || sent_at_once {
                *needed = NONE;
            } else if *needed != NONE {
                next[index as usize] = std::mem::replace(&mut head[*needed as usize], index);
            }
        }
    }
}

/// Sorts keys that are mostly in order by insertion, or by a general sort if that takes long.
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
    use super::{GraphError, OpKind, compile};
    use crate::graph::{ANY_SOURCE, ANY_TAG, Graph};
    use crate::op;

    fn graph<'a>(end: &'a [u32], source: &'a [u32]) -> Graph<'a> {
        Graph {
            rank_start: &[0, 2, 3],
            kind: &[op::COMPUTE, op::ISEND, op::IRECV],
            peer: &[-1, 1, 0],
            amount: &[50, 8, 9],
            stream: &[0, 0, 1],
            channel: &[4, 4],
            label: &[1, 2],
            end,
            source,
        }
    }

    #[test]
    fn a_send_follows_its_requirements() {
        let done = compile(&graph(&[0, 1, 1], &[0])).expect("it can run");
        let (labels, done) = (done.labels, done.program);
        let waitall = OpKind::Waitall as u8;
        assert_eq!(done.kind, [op::COMPUTE, op::ISEND, waitall, op::IRECV, waitall]);
        assert_eq!(done.rank_start, [0, 3, 5]);
        assert_eq!((done.amount[1], done.amount[3]), (8, 8));
        assert_eq!((labels, done.label[1], done.label[3]), (vec![1, 2], 0, 1));
    }

    #[test]
    fn a_cycle_of_operations_is_named() {
        let cycle = compile(&graph(&[1, 2, 2], &[1, 0]));
        assert!(matches!(cycle, Err(GraphError::Cycle(0 | 1))));
    }

    #[test]
    fn wildcard_receives_take_the_first_arrival() {
        // Rank 0 receives twice from any source with any tag, one after the other; rank 1 computes
        // before it sends, rank 2 does not, and both use other tags.
        let any = Graph {
            rank_start: &[0, 2, 4, 5],
            kind: &[op::IRECV, op::IRECV, op::COMPUTE, op::ISEND, op::ISEND],
            peer: &[ANY_SOURCE, ANY_SOURCE, -1, 0, 0],
            amount: &[9, 9, 70, 10, 20],
            stream: &[2, 2, 0, 0, 1],
            channel: &[5, 6, ANY_TAG],
            label: &[0, 1, 2],
            end: &[0, 1, 1, 2, 2],
            source: &[0, 2],
        };
        let done = compile(&any).expect("it can run");
        let wait = OpKind::Wait as u8;
        assert_eq!(done.wildcards, 2);
        assert_eq!(done.program.kind[..3], [op::IRECV, wait, op::IRECV]);
        assert_eq!((done.program.peer[0], done.program.amount[0]), (2, 20));
        assert_eq!((done.program.peer[2], done.program.amount[2]), (1, 10));
    }
}
