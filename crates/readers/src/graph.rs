//! Turns graphs of operations and dependencies into sequential rank programs.

use crate::numbering::{Map, SeededHash};
use tailback_program::{OpKind, Program};

use crate::op;

const NONE: u32 = u32::MAX;
/// Marks an edge from the start of its operation, not from its end.
const AT_START: u32 = 1 << 31;
/// Limit of operations: there are up to two events for each, and their numbers leave a bit for a flag.
const MAX_OPERATIONS: usize = 1 << 29;

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
/// waits for what an operation requires come right before it.
pub fn compile(graph: &Graph<'_>) -> Result<OrderedGraph, GraphError> {
    if graph.rank.len() >= MAX_OPERATIONS {
        return Err(GraphError::TooLarge);
    }
    let is_empty = |at: usize| graph.kind[at] == op::COMPUTE && graph.amount[at] == 0;
    let kinds: Vec<u8> = (0..graph.kind.len())
        .map(|at| if is_empty(at) { op::NOTHING } else { graph.kind[at] })
        .collect();
    let edges = with_inherited_edges(graph, &kinds);
    let matched = match_messages(graph, &kinds, &edges)?;
    let (place, order, buffered) = sequence(graph, &kinds, &edges, &matched.pair)?;
    Ok(OrderedGraph {
        program: emit(graph, &kinds, &edges, &matched.pair, (&place, &order), buffered),
        lost_sends: matched.lost_sends,
        lost_receives: matched.lost_receives,
        buffered,
    })
}

/// Before, after, and whether it suffices that the first has begun.
type Edge = (u32, u32, bool);

/// The dependencies. An operation that may begin with a computation inherits the dependencies of that
/// computation.
///
/// It precedes the computation in the sequence, because a rank does nothing else while it computes.
fn with_inherited_edges(graph: &Graph<'_>, kinds: &[u8]) -> Vec<Edge> {
    let mut edges: Vec<Edge> = graph
        .before
        .iter()
        .zip(graph.after)
        .zip(graph.begun)
        .map(|((&before, &after), &begun)| (before, after, begun))
        .collect();
    let early: Vec<(u32, u32)> = edges
        .iter()
        .filter(|edge| edge.2 && kinds[edge.0 as usize] == op::COMPUTE)
        .map(|edge| (edge.0, edge.1))
        .collect();
    if early.is_empty() {
        return edges;
    }
    let mut required: Map<u32, Vec<u32>> = early.iter().map(|&(at, _)| (at, Vec::new())).collect();
    for &(before, after, begun) in &edges {
        if let Some(of) = required.get_mut(&after).filter(|_| !begun) {
            of.push(before);
        }
    }
    for (computation, at) in early {
        edges.extend(required[&computation].iter().map(|&before| (before, at, false)));
    }
    edges
}

struct Matched {
    /// The match of each send and receive.
    pair: Vec<u32>,
    lost_sends: u64,
    lost_receives: u64,
}

/// Matches the k-th send with the k-th receive of each source, destination and tag, in the order in which
/// their ranks can begin them.
fn match_messages(graph: &Graph<'_>, kinds: &[u8], edges: &[Edge]) -> Result<Matched, GraphError> {
    let n = kinds.len();
    let level = earliest_times(n, &EdgesOnly(edges), |_| 0)?.level;
    let messages = by_level(kinds, &level);
    drop(level);
    let mut pair = vec![NONE; n];
    // First and last unmatched operation of each stream; `next` links those between.
    let mut waiting: Map<(u64, i64), (u32, u32)> =
        Map::with_capacity_and_hasher(messages.len() / 2, SeededHash::default());
    let mut next = vec![NONE; n];
    for at in messages {
        let row = at as usize;
        let (mut from, mut to) = (u64::from(graph.rank[row]), graph.peer[row] as u64);
        if kinds[row] == op::IRECV {
            std::mem::swap(&mut from, &mut to);
        }
        let (head, tail) = waiting.entry((from << 32 | to, graph.tag[row])).or_insert((NONE, NONE));
        if *head != NONE && kinds[*head as usize] != kinds[row] {
            pair[row] = *head;
            pair[*head as usize] = at;
            *head = next[*head as usize];
        } else {
            if *head == NONE {
                *head = at;
            } else {
                next[*tail as usize] = at;
            }
            *tail = at;
        }
    }
    let lost = |kind| (0..n).filter(|&at| kinds[at] == kind && pair[at] == NONE).count() as u64;
    let (lost_sends, lost_receives) = (lost(op::ISEND), lost(op::IRECV));
    Ok(Matched { pair, lost_sends, lost_receives })
}

/// Index of each operation in the sequence of all, the operations in that order, and whether sends must
/// be buffered.
fn sequence(
    graph: &Graph<'_>,
    kinds: &[u8],
    edges: &[Edge],
    pair: &[u32],
) -> Result<(Vec<u32>, Vec<u32>, bool), GraphError> {
    let n = kinds.len();
    let receives: Vec<u32> = (0..n as u32)
        .filter(|&at| kinds[at as usize] == op::IRECV && pair[at as usize] != NONE)
        .collect();
    // A receive has two events: it is posted, and its message arrives.
    let mut arrival = vec![NONE; n];
    for (number, &at) in receives.iter().enumerate() {
        arrival[at as usize] = (n + number) as u32;
    }
    let duration = |at: u32| match kinds.get(at as usize) {
        Some(&op::COMPUTE) => graph.amount[at as usize],
        _ => 0,
    };
    let events = n + receives.len();
    let (receives, arrival) = (&receives[..], &arrival[..]);
    let strict = WithMessages { kinds, edges, pair, receives, arrival, strict: true };
    let (times, buffered) = match earliest_times(events, &strict, duration) {
        Ok(times) => (times, false),
        Err(_) => match earliest_times(events, &WithMessages { strict: false, ..strict }, duration)
        {
            Ok(times) => (times, true),
            Err(GraphError::Cycle(at)) if at as usize >= n => {
                return Err(GraphError::Cycle(receives[at as usize - n]));
            }
            Err(error) => return Err(error),
        },
    };
    let mut order = Vec::with_capacity(n);
    let mut row = Vec::new();
    let mut first = 0;
    while first < n {
        let last = first + graph.rank[first..].partition_point(|&rank| rank == graph.rank[first]);
        row.clear();
        row.extend((first..last).map(|at| {
            let computes = u64::from(kinds[at] == op::COMPUTE);
            (times.time[at], computes << 32 | u64::from(times.level[at]), at as u32)
        }));
        row.sort_unstable();
        order.extend(row.iter().map(|&(_, _, at)| at));
        first = last;
    }
    let mut place = vec![0; n];
    for (number, &at) in order.iter().enumerate() {
        place[at as usize] = number as u32;
    }
    Ok((place, order, buffered))
}

/// Writes the operations in order, each after the waits for what it requires.
fn emit(
    graph: &Graph<'_>,
    kinds: &[u8],
    edges: &[Edge],
    pair: &[u32],
    (place, order): (&[u32], &[u32]),
    buffered: bool,
) -> Program {
    let n = kinds.len();
    let sent_at_once = |row: usize| buffered && kinds[row] == op::ISEND;
    let waits = Waits::of(n, edges, pair, (place, order), sent_at_once);
    let number = message_numbers(pair);
    let mut out = Program::with_capacity(graph.n_ranks, n + waits.count + graph.n_ranks);
    let mut request = vec![-1i32; n];
    let mut first = 0;
    for rank in 0..graph.n_ranks {
        let last = first + graph.rank[first..].partition_point(|&one| one as usize == rank);
        let (mut requests, mut open) = (0, false);
        for (index, &at) in (first..last).zip(&order[first..last]) {
            for waited in waits.before(index) {
                out.push(OpKind::Wait, -1, 0, 0, request[waited as usize], 0);
            }
            let row = at as usize;
            if kinds[row] == op::COMPUTE {
                out.push(OpKind::Compute, -1, graph.amount[row], 0, -1, 0);
            } else if pair[row] != NONE {
                // The size of the send counts, not the size of the receive buffer.
                let receives = kinds[row] == op::IRECV;
                let sender = if receives { pair[row] as usize } else { row };
                let kind = if receives { OpKind::Irecv } else { OpKind::Isend };
                let (size, tag) = (graph.amount[sender], i64::from(number[row]));
                request[row] = requests;
                requests += 1;
                open |= waits.needed[row] == NONE;
                out.push(kind, graph.peer[row], size, tag, request[row], graph.label[row]);
            }
        }
        if open {
            out.push(OpKind::Waitall, -1, 0, 0, -1, 0);
        }
        out.close_rank();
        first = last;
    }
    out
}

/// The waits before each operation, as linked lists.
struct Waits {
    /// Index in the sequence before which each message must be complete; [`NONE`] if it need not.
    needed: Vec<u32>,
    /// The first message to wait for, by index in the sequence.
    head: Vec<u32>,
    /// The next message to wait for at the same index, in the order in which they were posted.
    next: Vec<u32>,
    /// Number of waits.
    count: usize,
}

impl Waits {
    fn of(
        n: usize,
        edges: &[Edge],
        pair: &[u32],
        (place, order): (&[u32], &[u32]),
        sent_at_once: impl Fn(usize) -> bool,
    ) -> Self {
        let mut needed = vec![NONE; n];
        for &(before, after, begun) in edges {
            if !begun {
                let first = &mut needed[before as usize];
                *first = (*first).min(place[after as usize]);
            }
        }
        let mut out = Self { needed, head: vec![NONE; n], next: vec![NONE; n], count: 0 };
        for &at in order.iter().rev() {
            let row = at as usize;
            if pair[row] == NONE || sent_at_once(row) {
                out.needed[row] = NONE;
            } else if out.needed[row] != NONE {
                let head = &mut out.head[out.needed[row] as usize];
                out.next[row] = std::mem::replace(head, at);
                out.count += 1;
            }
        }
        out
    }

    /// Messages to wait for before the operation at `place`.
    fn before(&self, place: usize) -> impl Iterator<Item = u32> {
        let known = |at: u32| (at != NONE).then_some(at);
        std::iter::successors(known(self.head[place]), move |&at| known(self.next[at as usize]))
    }
}

/// Number of the message of each send and receive; 0 for other operations.
fn message_numbers(pair: &[u32]) -> Vec<u32> {
    let mut number = vec![0u32; pair.len()];
    let mut messages = 0;
    for at in 0..pair.len() {
        if pair[at] != NONE && at < pair[at] as usize {
            number[at] = messages;
            number[pair[at] as usize] = messages;
            messages += 1;
        }
    }
    number
}

struct Times {
    /// Earliest time of each event.
    time: Vec<u64>,
    /// Number of edges of the longest path to it.
    level: Vec<u32>,
}

/// Dependencies between events.
trait Dependencies {
    /// Calls `add` for each dependency: before, after, and whether it suffices that the first has begun.
    fn each(&self, add: impl FnMut(u32, u32, bool));
}

/// The given dependencies, without durations.
struct EdgesOnly<'a>(&'a [Edge]);

impl Dependencies for EdgesOnly<'_> {
    fn each(&self, mut add: impl FnMut(u32, u32, bool)) {
        self.0.iter().for_each(|edge| add(edge.0, edge.1, true));
    }
}

/// The given dependencies, and those of receives on their messages.
#[derive(Clone, Copy)]
struct WithMessages<'a> {
    kinds: &'a [u8],
    edges: &'a [Edge],
    pair: &'a [u32],
    receives: &'a [u32],
    /// For each receive, the event of the arrival of its message.
    arrival: &'a [u32],
    /// Whether sends complete only once their receives are posted.
    strict: bool,
}

impl Dependencies for WithMessages<'_> {
    fn each(&self, mut add: impl FnMut(u32, u32, bool)) {
        for &(before, after, begun) in self.edges {
            let row = before as usize;
            if begun {
                add(before, after, true);
                continue;
            }
            let arrival = self.arrival[row];
            add(if arrival == NONE { before } else { arrival }, after, false);
            // A large send completes only after its receive is posted (rendezvous).
            if self.strict && self.kinds[row] == op::ISEND && self.pair[row] != NONE {
                add(self.pair[row], after, true);
            }
        }
        for &at in self.receives {
            add(at, self.arrival[at as usize], true);
            add(self.pair[at as usize], self.arrival[at as usize], true);
        }
    }
}

/// Sends and receives sorted by level, in their original order within a level.
fn by_level(kinds: &[u8], level: &[u32]) -> Vec<u32> {
    let is_message = |at: usize| matches!(kinds[at], op::ISEND | op::IRECV);
    let deepest = level.iter().max().map_or(0, |&level| level as usize);
    let mut next = vec![0u32; deepest + 2];
    let messages = (0..kinds.len()).filter(|&at| is_message(at));
    messages.clone().for_each(|at| next[level[at] as usize + 1] += 1);
    for at in 0..=deepest {
        next[at + 1] += next[at];
    }
    let mut out = vec![0; next[deepest + 1] as usize];
    for at in messages {
        let slot = &mut next[level[at] as usize];
        out[*slot as usize] = at as u32;
        *slot += 1;
    }
    out
}

/// The earliest time of each of `n` events, given the `duration` of each.
fn earliest_times(
    n: usize,
    edges: &impl Dependencies,
    duration: impl Fn(u32) -> u64,
) -> Result<Times, GraphError> {
    let mut first = vec![0u32; n + 1];
    let mut missing = vec![0u32; n];
    edges.each(|before, after, _| {
        first[before as usize + 1] += 1;
        missing[after as usize] += 1;
    });
    for at in 0..n {
        first[at + 1] += first[at];
    }
    let mut target = vec![0u32; first[n] as usize];
    edges.each(|before, after, begun| {
        let next = &mut first[before as usize];
        target[*next as usize] = after | if begun { AT_START } else { 0 };
        *next += 1;
    });
    // Each `first` has become the one after it.
    let mut times = Times { time: vec![0; n], level: vec![0; n] };
    let mut ready: Vec<u32> = (0..n as u32).filter(|&at| missing[at as usize] == 0).collect();
    let mut done = 0;
    while let Some(at) = ready.pop() {
        done += 1;
        let row = at as usize;
        let begin = if row == 0 { 0 } else { first[row - 1] };
        let ends = times.time[row].saturating_add(duration(at));
        for &edge in &target[begin as usize..first[row] as usize] {
            let to = (edge & !AT_START) as usize;
            let then = if edge & AT_START == 0 { ends } else { times.time[row] };
            times.time[to] = times.time[to].max(then);
            times.level[to] = times.level[to].max(times.level[row] + 1);
            missing[to] -= 1;
            if missing[to] == 0 {
                ready.push(to as u32);
            }
        }
    }
    if done < n { Err(GraphError::Cycle(on_a_cycle(&first, &target, &missing))) } else { Ok(times) }
}

/// An event on a cycle, found by going backwards from an event that never happens.
fn on_a_cycle(first: &[u32], target: &[u32], missing: &[u32]) -> u32 {
    let mut back = vec![NONE; missing.len()];
    let mut start = NONE;
    let mut begin = 0;
    for (at, &end) in first[..missing.len()].iter().enumerate() {
        for &edge in &target[begin as usize..end as usize] {
            let to = (edge & !AT_START) as usize;
            if missing[at] > 0 && missing[to] > 0 {
                back[to] = at as u32;
                start = if start == NONE { to as u32 } else { start };
            }
        }
        begin = end;
    }
    let mut seen = vec![false; missing.len()];
    let mut at = start;
    while !std::mem::replace(&mut seen[at as usize], true) {
        at = back[at as usize];
    }
    at
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
