//! Matches receives from any source or with any tag: in the order in which messages would arrive if they
//! took no time and sends were buffered.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::graph::{ANY_SOURCE, ANY_TAG, AT_START, Graph};
use crate::matching::NONE;
use crate::numbering::Map;
use crate::op;

/// Marks a receive that its dependents do not wait for any more.
const RELEASED: u32 = u32::MAX;

/// Key of a message or receive: receiver, source and tag. Source and tag may be wildcards.
type Envelope = (u32, i32, i64);

/// The match of each send and receive of a graph without cycles, [`NONE`] if it has none.
///
/// A message takes the first posted receive that accepts it, and a receive the first message that has
/// arrived, as in MPI. At equal times operations run in the order of ranks, then of the schedule.
pub(crate) fn match_on_arrival(graph: &Graph<'_>) -> Vec<u32> {
    let mut run = Run::new(graph);
    run.make_ready();
    loop {
        while let Some(Reverse((time, at))) = run.ready.pop() {
            run.now = time;
            run.begin(at);
        }
        // Dependents of a receive without a message proceed without it.
        let mut waiting = std::mem::take(&mut run.unmet);
        waiting.retain(|&at| run.pair[at as usize] == NONE);
        if waiting.is_empty() {
            return run.pair;
        }
        for at in waiting {
            run.missing[at as usize] = RELEASED;
            run.release(at, run.now, false);
        }
    }
}

struct Run<'a> {
    graph: &'a Graph<'a>,
    pair: Vec<u32>,
    /// Operations that require each one, list by list, with [`AT_START`]; `first` has where lists begin.
    first: Vec<u32>,
    dependents: Vec<u32>,
    /// Number of requirements of each operation that are not met yet, and when the last one was met.
    missing: Vec<u32>,
    time: Vec<u64>,
    ready: BinaryHeap<Reverse<(u64, u32)>>,
    now: u64,
    rank_of: Vec<u32>,
    /// Posted receives with their order of posting, and arrived messages, each of which is in four
    /// queues.
    posted: Map<Envelope, VecDeque<(u32, u32)>>,
    arrived: Map<Envelope, VecDeque<u32>>,
    posts: u32,
    /// Receives that had no message when they were posted.
    unmet: Vec<u32>,
}

impl<'a> Run<'a> {
    fn new(graph: &'a Graph<'a>) -> Self {
        let n = graph.kind.len();
        let mut first = vec![0u32; n + 1];
        for &required in graph.source {
            first[(required & !AT_START) as usize + 1] += 1;
        }
        for at in 0..n {
            first[at + 1] += first[at];
        }
        let (mut next, mut dependents) = (first.clone(), vec![0; graph.source.len()]);
        for at in 0..n {
            for &required in graph.required(at) {
                let slot = &mut next[(required & !AT_START) as usize];
                dependents[*slot as usize] = at as u32 | required & AT_START;
                *slot += 1;
            }
        }
        let ranks = graph.rank_start.windows(2).enumerate();
        Self {
            graph,
            pair: vec![NONE; n],
            first,
            dependents,
            missing: (0..n).map(|at| graph.required(at).len() as u32).collect(),
            time: vec![0; n],
            ready: BinaryHeap::new(),
            now: 0,
            rank_of: ranks
                .flat_map(|(rank, ends)| (ends[0]..ends[1]).map(move |_| rank as u32))
                .collect(),
            posted: Map::default(),
            arrived: Map::default(),
            posts: 0,
            unmet: Vec::new(),
        }
    }

    fn make_ready(&mut self) {
        let free = (0..self.missing.len()).filter(|&at| self.missing[at] == 0);
        self.ready.extend(free.map(|at| Reverse((0, at as u32))));
    }

    /// Meets the requirements for the begin (`start`) or end of an operation.
    fn release(&mut self, at: u32, time: u64, start: bool) {
        for list in self.first[at as usize]..self.first[at as usize + 1] {
            let dependent = self.dependents[list as usize];
            if (dependent & AT_START != 0) != start {
                continue;
            }
            let after = (dependent & !AT_START) as usize;
            self.time[after] = self.time[after].max(time);
            self.missing[after] -= 1;
            if self.missing[after] == 0 {
                self.ready.push(Reverse((self.time[after], after as u32)));
            }
        }
    }

    fn begin(&mut self, at: u32) {
        self.release(at, self.now, true);
        match self.graph.kind[at as usize] {
            op::COMPUTE => {
                let end = self.now.saturating_add(self.graph.amount[at as usize]);
                self.release(at, end, false);
            }
            op::ISEND => {
                self.release(at, self.now, false);
                self.arrive(at);
            }
            op::IRECV => self.post(at),
            _ => self.release(at, self.now, false),
        }
    }

    fn channel(&self, at: u32) -> i64 {
        self.graph.channel[self.graph.stream[at as usize] as usize]
    }

    fn arrive(&mut self, send: u32) {
        let (to, from) = (self.graph.peer[send as usize], self.rank_of[send as usize] as i32);
        let envelopes = envelopes(to as u32, from, self.channel(send));
        let first = |envelope| self.posted.get(envelope).and_then(VecDeque::front);
        let earliest =
            envelopes.iter().filter_map(|envelope| Some((first(envelope)?.0, *envelope))).min();
        if let Some((_, envelope)) = earliest {
            let taken = self.posted.get_mut(&envelope).and_then(VecDeque::pop_front);
            if let Some((_, receive)) = taken {
                self.matched(send, receive);
            }
            return;
        }
        for envelope in envelopes {
            self.arrived.entry(envelope).or_default().push_back(send);
        }
    }

    fn post(&mut self, receive: u32) {
        let (me, from) = (self.rank_of[receive as usize], self.graph.peer[receive as usize]);
        let envelope = (me, from, self.channel(receive));
        if let Some(queue) = self.arrived.get_mut(&envelope) {
            while let Some(send) = queue.pop_front() {
                // A message stays in its other queues when it is received.
                if self.pair[send as usize] == NONE {
                    return self.matched(send, receive);
                }
            }
        }
        self.posted.entry(envelope).or_default().push_back((self.posts, receive));
        self.posts += 1;
        self.unmet.push(receive);
    }

    fn matched(&mut self, send: u32, receive: u32) {
        self.pair[send as usize] = receive;
        self.pair[receive as usize] = send;
        if self.missing[receive as usize] != RELEASED {
            self.release(receive, self.now, false);
        }
    }
}

/// The keys of receives that match a message, in a fixed order.
fn envelopes(to: u32, from: i32, channel: i64) -> [Envelope; 4] {
    [(to, from, channel), (to, ANY_SOURCE, channel), (to, from, ANY_TAG), (to, ANY_SOURCE, ANY_TAG)]
}
