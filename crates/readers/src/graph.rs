//! From operations that depend on each other to the operations of ranks in order.

use crate::numbering::{Map, Seeded};
use tailback_program::{OpKind, Program};

use crate::op;

const NEVER: u32 = u32::MAX;
/// Marks an edge that takes no time.
const BEGUN: u32 = 1 << 31;
/// Most operations of a graph: twice as many events, and a bit beside them.
const MOST: usize = 1 << 29;

/// Operations of all ranks, rank after rank, and dependencies within ranks.
#[derive(Clone, Copy)]
pub struct Graph<'a> {
    /// Number of ranks.
    pub n_ranks: usize,
    /// Rank of each operation, in ascending order.
    pub rank: &'a [u32],
    /// What each does, as numbered in [`op`].
    pub kind: &'a [u8],
    /// The other rank of a send or receive.
    pub peer: &'a [i32],
    /// Matching tag.
    pub tag: &'a [i64],
    /// Bytes or picoseconds.
    pub amount: &'a [u64],
    /// Number of the label.
    pub label: &'a [u32],
    /// Operation that another depends on.
    pub before: &'a [u32],
    /// That other one.
    pub after: &'a [u32],
    /// Whether it is enough that the first has begun.
    pub begun: &'a [bool],
}

/// The operations of a graph in order.
#[derive(Debug)]
pub struct OrderedGraph {
    /// The operations.
    pub program: Program,
    /// Sends that no receive takes, left out.
    pub lost_sends: u64,
    /// Receives that no send is for, left out.
    pub lost_receives: u64,
    /// Whether they only run if sends are complete before they are received.
    pub buffered: bool,
}

/// Why a graph has no order.
#[derive(Debug, PartialEq, Eq)]
pub enum GraphError {
    /// This operation waits for itself.
    Cycle(u32),
    /// There are too many operations.
    Large,
}

/// Puts the operations of a graph in order.
///
/// Each stands where it can begin at the earliest if messages take no time, and waits for what it
/// requires right before.
pub fn compile(graph: &Graph<'_>) -> Result<OrderedGraph, GraphError> {
    if graph.rank.len() >= MOST {
        return Err(GraphError::Large);
    }
    let idle = |at: usize| graph.kind[at] == op::COMPUTE && graph.amount[at] == 0;
    let kinds: Vec<u8> = (0..graph.kind.len())
        .map(|at| if idle(at) { op::NOTHING } else { graph.kind[at] })
        .collect();
    let edges = inherited(graph, &kinds);
    let matched = pair(graph, &kinds, &edges)?;
    let (place, order, buffered) = sequence(graph, &kinds, &edges, &matched.pair)?;
    Ok(OrderedGraph {
        program: emit(graph, &kinds, &edges, &matched.pair, (&place, &order), buffered),
        lost_sends: matched.lost_sends,
        lost_receives: matched.lost_receives,
        buffered,
    })
}

/// Before, after, and whether the beginning of the first is enough.
type Edge = (u32, u32, bool);

/// The dependencies; what begins with a computation also requires what that computation requires.
///
/// It stands before the computation in the sequence, for a rank does nothing else while it computes.
fn inherited(graph: &Graph<'_>, kinds: &[u8]) -> Vec<Edge> {
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
    /// The operation that each send or receive meets.
    pair: Vec<u32>,
    lost_sends: u64,
    lost_receives: u64,
}

/// Of each source, destination and tag the k-th send meets the k-th receive, in the order in which their
/// rank can begin them.
fn pair(graph: &Graph<'_>, kinds: &[u8], edges: &[Edge]) -> Result<Matched, GraphError> {
    let n = kinds.len();
    let level = run(n, &InTheOrderOf(edges), |_| 0)?.level;
    let messages = by_level(kinds, &level);
    drop(level);
    let mut pair = vec![NEVER; n];
    // The first operation of each stream that is not met, whether it is a send, and the next of its kind.
    let mut waiting: Map<(u64, i64), (u32, u32)> =
        Map::with_capacity_and_hasher(messages.len() / 2, Seeded::default());
    let mut next = vec![NEVER; n];
    for at in messages {
        let row = at as usize;
        let (mut from, mut to) = (u64::from(graph.rank[row]), graph.peer[row] as u64);
        if kinds[row] == op::IRECV {
            std::mem::swap(&mut from, &mut to);
        }
        let (head, tail) =
            waiting.entry((from << 32 | to, graph.tag[row])).or_insert((NEVER, NEVER));
        if *head != NEVER && kinds[*head as usize] != kinds[row] {
            pair[row] = *head;
            pair[*head as usize] = at;
            *head = next[*head as usize];
        } else {
            if *head == NEVER {
                *head = at;
            } else {
                next[*tail as usize] = at;
            }
            *tail = at;
        }
    }
    let lost = |kind| (0..n).filter(|&at| kinds[at] == kind && pair[at] == NEVER).count() as u64;
    let (lost_sends, lost_receives) = (lost(op::ISEND), lost(op::IRECV));
    Ok(Matched { pair, lost_sends, lost_receives })
}

/// Place of each operation in the sequence of all, the operations in that order, and whether sends must
/// be complete before they are received.
fn sequence(
    graph: &Graph<'_>,
    kinds: &[u8],
    edges: &[Edge],
    pair: &[u32],
) -> Result<(Vec<u32>, Vec<u32>, bool), GraphError> {
    let n = kinds.len();
    let receives: Vec<u32> = (0..n as u32)
        .filter(|&at| kinds[at as usize] == op::IRECV && pair[at as usize] != NEVER)
        .collect();
    // Two events stand for a receive: it is posted, and its message is there.
    let mut arrival = vec![NEVER; n];
    for (number, &at) in receives.iter().enumerate() {
        arrival[at as usize] = (n + number) as u32;
    }
    let lasts = |at: u32| match kinds.get(at as usize) {
        Some(&op::COMPUTE) => graph.amount[at as usize],
        _ => 0,
    };
    let events = n + receives.len();
    let (receives, arrival) = (&receives[..], &arrival[..]);
    let strict = WithMessages { kinds, edges, pair, receives, arrival, strict: true };
    let (times, buffered) = match run(events, &strict, lasts) {
        Ok(times) => (times, false),
        Err(_) => match run(events, &WithMessages { strict: false, ..strict }, lasts) {
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

/// The operations in their order, with what each requires waited for right before it.
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
        for (spot, &at) in (first..last).zip(&order[first..last]) {
            for waited in waits.before(spot) {
                out.push(OpKind::Wait, -1, 0, 0, request[waited as usize], 0);
            }
            let row = at as usize;
            if kinds[row] == op::COMPUTE {
                out.push(OpKind::Compute, -1, graph.amount[row], 0, -1, 0);
            } else if pair[row] != NEVER {
                // MPI delivers what is sent.
                let receives = kinds[row] == op::IRECV;
                let sender = if receives { pair[row] as usize } else { row };
                let kind = if receives { OpKind::Irecv } else { OpKind::Isend };
                let (size, tag) = (graph.amount[sender], i64::from(number[row]));
                request[row] = requests;
                requests += 1;
                open |= waits.needed[row] == NEVER;
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

/// What is waited for where.
struct Waits {
    /// Place before which each message must be complete; [`NEVER`] where none asks for that.
    needed: Vec<u32>,
    /// The first message that each place waits for.
    head: Vec<u32>,
    /// The next one of the same place, in the order in which they were posted.
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
        let mut needed = vec![NEVER; n];
        for &(before, after, begun) in edges {
            if !begun {
                let first = &mut needed[before as usize];
                *first = (*first).min(place[after as usize]);
            }
        }
        let mut out = Self { needed, head: vec![NEVER; n], next: vec![NEVER; n], count: 0 };
        for &at in order.iter().rev() {
            let row = at as usize;
            if pair[row] == NEVER || sent_at_once(row) {
                out.needed[row] = NEVER;
            } else if out.needed[row] != NEVER {
                let head = &mut out.head[out.needed[row] as usize];
                out.next[row] = std::mem::replace(head, at);
                out.count += 1;
            }
        }
        out
    }

    /// Messages that a place waits for.
    fn before(&self, place: usize) -> impl Iterator<Item = u32> {
        let known = |at: u32| (at != NEVER).then_some(at);
        std::iter::successors(known(self.head[place]), move |&at| known(self.next[at as usize]))
    }
}

/// The number of each message, at its send and at its receive; 0 elsewhere.
fn message_numbers(pair: &[u32]) -> Vec<u32> {
    let mut number = vec![0u32; pair.len()];
    let mut messages = 0;
    for at in 0..pair.len() {
        if pair[at] != NEVER && at < pair[at] as usize {
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
    /// Length of the longest way to it.
    level: Vec<u32>,
}

/// What depends on what.
trait Dependencies {
    /// Calls `add` for each dependency: before, after, and whether it takes no time.
    fn each(&self, add: impl FnMut(u32, u32, bool));
}

/// Dependencies as they stand, without times.
struct InTheOrderOf<'a>(&'a [Edge]);

impl Dependencies for InTheOrderOf<'_> {
    fn each(&self, mut add: impl FnMut(u32, u32, bool)) {
        self.0.iter().for_each(|edge| add(edge.0, edge.1, true));
    }
}

/// Dependencies, and those of receives on their messages.
#[derive(Clone, Copy)]
struct WithMessages<'a> {
    kinds: &'a [u8],
    edges: &'a [Edge],
    pair: &'a [u32],
    receives: &'a [u32],
    /// The event of a receive at which its message is there.
    arrival: &'a [u32],
    /// Whether sends are complete only once they are received.
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
            add(if arrival == NEVER { before } else { arrival }, after, false);
            // A large message is through for its sender only once it is received, if that can be.
            if self.strict && self.kinds[row] == op::ISEND && self.pair[row] != NEVER {
                add(self.pair[row], after, true);
            }
        }
        for &at in self.receives {
            add(at, self.arrival[at as usize], true);
            add(self.pair[at as usize], self.arrival[at as usize], true);
        }
    }
}

/// Sends and receives in the order of their levels, those of one level in their own order.
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

/// Lets `n` events happen as soon as all that they depend on have; `lasts` is the time that one takes.
fn run(
    n: usize,
    edges: &impl Dependencies,
    lasts: impl Fn(u32) -> u64,
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
        target[*next as usize] = after | if begun { BEGUN } else { 0 };
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
        let ends = times.time[row].saturating_add(lasts(at));
        for &edge in &target[begin as usize..first[row] as usize] {
            let to = (edge & !BEGUN) as usize;
            let then = if edge & BEGUN == 0 { ends } else { times.time[row] };
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

/// An event that waits for itself, by going backwards from one that never happens.
fn on_a_cycle(first: &[u32], target: &[u32], missing: &[u32]) -> u32 {
    let mut back = vec![NEVER; missing.len()];
    let mut start = NEVER;
    let mut begin = 0;
    for (at, &end) in first[..missing.len()].iter().enumerate() {
        for &edge in &target[begin as usize..end as usize] {
            let to = (edge & !BEGUN) as usize;
            if missing[at] > 0 && missing[to] > 0 {
                back[to] = at as u32;
                start = if start == NEVER { to as u32 } else { start };
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
    fn a_send_follows_what_it_requires_and_its_size_counts() {
        let done = compile(&graph(&[0], &[1], &[false])).expect("it can run").program;
        let waitall = OpKind::Waitall as u8;
        assert_eq!(done.kind, [op::COMPUTE, op::ISEND, waitall, op::IRECV, waitall]);
        assert_eq!(done.rank_start, [0, 3, 5]);
        assert_eq!((done.amount[1], done.amount[3]), (8, 8));
    }

    #[test]
    fn operations_that_wait_for_themselves_are_named() {
        let cycle = compile(&graph(&[0, 1], &[1, 0], &[false, false]));
        assert!(matches!(cycle, Err(GraphError::Cycle(0 | 1))));
    }
}
