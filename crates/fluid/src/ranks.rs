//! Rank programs in the fluid view: MPI's blocking rules, messages as flows.
//!
//! As in the packet engine: a send is complete when its last byte has left the adapter, a receive
//! when its last byte is there and it has been posted; a send reaches its adapter a software latency
//! after it is posted; messages above the eager limit wait for their receive; ranks of one host
//! exchange messages through memory. Approximated: the hand-shake of a large message takes the
//! latency of its path twice but no bandwidth, and a byte reaches the far end one path latency after
//! it left, however full the buffers on its way would be.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tailback_fabric::{Fabric, Routes};

use crate::FluidError;
use crate::compile::{Compiled, Envelope, Op, Program};
use crate::paths::Router;
use crate::pool::{Pool, Work};
use crate::rank_model::{Placement, RankSettings, RankTimes, check};

/// The least a message occupies on the wire, as in the packet engine.
const MIN_WIRE_BYTES: u64 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request to send reaches its receiver.
    Requested(u32),
    /// A clearance reaches its sender.
    Cleared(u32),
    Arrived(u32),
    /// The software latency of a send is over.
    Ready(u32),
    Rank(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    No,
    Computing,
    Send(u32),
    Receive(u32),
    All,
}

#[derive(Debug, Clone)]
struct Rank {
    next_op: usize,
    waiting: Waiting,
    since: u64,
    open: u32,
}

#[derive(Debug, Default, Clone)]
struct Message {
    sent: bool,
    arrived: bool,
    receive_posted: bool,
    requested: bool,
    latency_ps: u64,
    path: Vec<(u32, f64)>,
}

struct Sim<'a> {
    settings: &'a RankSettings,
    placement: &'a Placement,
    fabric: &'a Fabric,
    program: Compiled,
    router: Router<'a>,
    pool: Pool,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    now: u64,
    ranks: Vec<Rank>,
    messages: Vec<Message>,
    /// Messages in front of each adapter, and the one it is sending under FIFO.
    queue: Vec<VecDeque<u32>>,
    sending: Vec<bool>,
    message_of_flow: Vec<u32>,
    unfinished: usize,
    out: RankTimes,
}

/// Runs `program` to the end.
///
/// # Errors
/// A program that does not pair up or blocks for ever, a placement that does not fit, a setting out
/// of range, or nodes without a path.
pub fn simulate_program(
    fabric: &Fabric,
    routes: &Routes,
    settings: &RankSettings,
    program: &Program,
    placement: &Placement,
) -> Result<RankTimes, FluidError> {
    check(fabric, settings, program, placement)?;
    let compiled = program.compile()?;
    let (ranks, messages) = (program.n_ranks(), compiled.messages.len());
    let first_ops = compiled.rank_start[..ranks].iter();
    let rank = |&op: &usize| Rank { next_op: op, waiting: Waiting::Computing, since: 0, open: 0 };
    let mut sim = Sim {
        settings,
        placement,
        fabric,
        router: Router::new(fabric, routes, settings.paths, settings.seed),
        pool: Pool::new(fabric.link_gbps.clone(), settings.policy, settings.quantum_ps)?,
        events: BinaryHeap::new(),
        now: 0,
        ranks: first_ops.map(rank).collect(),
        messages: vec![Message::default(); messages],
        queue: vec![VecDeque::new(); fabric.n_nodes as usize],
        sending: vec![false; fabric.n_nodes as usize],
        message_of_flow: Vec::new(),
        unfinished: ranks,
        out: RankTimes {
            messages: compiled.messages.iter().map(|m| (m.src, m.dst, m.bytes, m.label)).collect(),
            post_ps: vec![0; messages],
            begin_ps: vec![0; messages],
            arrival_ps: vec![0; messages],
            switches: vec![0; messages],
            finish_ps: vec![0; ranks],
            compute_ps: vec![0; ranks],
            wait_ps: vec![0; ranks],
            link_bytes: vec![0.0; fabric.n_links()],
            work: Work::default(),
        },
        program: compiled,
    };
    sim.run()?;
    sim.out.work = sim.pool.work();
    Ok(sim.out)
}

impl Sim<'_> {
    fn run(&mut self) -> Result<(), FluidError> {
        for (rank, &start) in self.placement.start_ps.iter().enumerate() {
            self.events.push(Reverse((start, Event::Rank(rank as u32))));
        }
        loop {
            let event = self.events.peek().map(|Reverse((time, _))| *time);
            let Some(now) = [event, self.pool.next_event()].into_iter().flatten().min() else {
                break;
            };
            self.now = now;
            while let Some(flow) = self.pool.pop_end(now) {
                self.flow_ended(flow)?;
            }
            while let Some(&Reverse((time, event))) = self.events.peek() {
                if time > now {
                    break;
                }
                self.events.pop();
                self.handle(event)?;
            }
            self.pool.settle(now);
        }
        if self.unfinished > 0 { Err(self.stuck()) } else { Ok(()) }
    }

    fn handle(&mut self, event: Event) -> Result<(), FluidError> {
        match event {
            Event::Rank(rank) => self.go_on(rank),
            Event::Ready(message) => return self.ready(message),
            Event::Requested(message) => {
                self.messages[message as usize].requested = true;
                if self.messages[message as usize].receive_posted {
                    self.clear(message);
                }
            }
            Event::Cleared(message) => self.enqueue(message),
            Event::Arrived(message) => {
                let m = message as usize;
                self.messages[m].arrived = true;
                self.out.arrival_ps[m] = self.now;
                if self.local(message) {
                    self.messages[m].sent = true;
                    self.completed(self.envelope(message).src);
                }
                if self.messages[m].receive_posted {
                    self.completed(self.envelope(message).dst);
                }
            }
        }
        Ok(())
    }

    fn at(&mut self, time: u64, event: Event) {
        self.events.push(Reverse((time, event)));
    }

    fn envelope(&self, message: u32) -> Envelope {
        self.program.messages[message as usize]
    }

    fn local(&self, message: u32) -> bool {
        let Envelope { src, dst, .. } = self.envelope(message);
        self.placement.host[src as usize] == self.placement.host[dst as usize]
    }

    fn go_on(&mut self, rank: u32) {
        let r = rank as usize;
        self.ranks[r].waiting = Waiting::No;
        while self.ranks[r].next_op < self.program.rank_start[r + 1] {
            let op = self.program.ops[self.ranks[r].next_op];
            self.ranks[r].next_op += 1;
            let waiting = match op {
                Op::Compute(ps) => {
                    self.ranks[r].waiting = Waiting::Computing;
                    self.out.compute_ps[r] += ps;
                    return self.at(self.now.saturating_add(ps), Event::Rank(rank));
                }
                Op::Send(message) => {
                    self.ranks[r].open += 1;
                    self.out.post_ps[message as usize] = self.now;
                    self.at(self.now + self.settings.send_delay_ps, Event::Ready(message));
                    continue;
                }
                Op::Receive(message) => {
                    self.post_receive(rank, message);
                    continue;
                }
                Op::WaitSend(message) => Waiting::Send(message),
                Op::WaitReceive(message) => Waiting::Receive(message),
                Op::WaitAll => Waiting::All,
            };
            if !self.satisfied(rank, waiting) {
                self.ranks[r].waiting = waiting;
                self.ranks[r].since = self.now;
                return;
            }
        }
        self.out.finish_ps[r] = self.now;
        self.unfinished -= 1;
    }

    fn post_receive(&mut self, rank: u32, message: u32) {
        let state = &mut self.messages[message as usize];
        state.receive_posted = true;
        if !state.arrived {
            self.ranks[rank as usize].open += 1;
            if state.requested {
                self.clear(message);
            }
        }
    }

    /// A send has come through the software: through memory, straight out, or shaking hands.
    fn ready(&mut self, message: u32) -> Result<(), FluidError> {
        let m = message as usize;
        let envelope = self.envelope(message);
        if self.local(message) {
            self.out.begin_ps[m] = self.now;
            let wire = (envelope.bytes as f64 * 8000.0 / self.settings.local_gbps).ceil() as u64;
            self.at(self.now + self.settings.local_delay_ps + wire, Event::Arrived(message));
            return Ok(());
        }
        self.route(message)?;
        if envelope.bytes > self.settings.eager_bytes {
            let latency = self.messages[m].latency_ps;
            self.at(self.now + latency, Event::Requested(message));
        } else {
            self.enqueue(message);
        }
        Ok(())
    }

    fn clear(&mut self, message: u32) {
        let latency = self.messages[message as usize].latency_ps;
        self.at(self.now + latency, Event::Cleared(message));
    }

    /// Finds the path and latency of a message.
    fn route(&mut self, message: u32) -> Result<(), FluidError> {
        let Envelope { src, dst, bytes, .. } = self.envelope(message);
        let (src, dst) = (self.placement.node[src as usize], self.placement.node[dst as usize]);
        let mut path = Vec::new();
        self.router.path(src, dst, message.into(), &mut path)?;
        let links: f64 = path.iter().map(|&(_, share)| share).sum();
        let switches = links.round() as u64 - 1;
        let delay: f64 = path
            .iter()
            .map(|&(link, share)| self.fabric.link_delay_ps[link as usize] as f64 * share)
            .sum();
        let packet = bytes.min(self.settings.packet_bytes.into());
        let wire = (packet + u64::from(self.settings.header_bytes)).max(MIN_WIRE_BYTES) as f64;
        let again = if self.settings.store_and_forward {
            let last = &path[1..];
            let gbps = |link: u32| self.fabric.link_gbps[link as usize];
            last.iter().map(|&(link, share)| wire * 8000.0 / gbps(link) * share).sum()
        } else {
            0.0
        };
        self.router.occupy(&path);
        let state = &mut self.messages[message as usize];
        state.latency_ps =
            switches * self.settings.switch_delay_ps + delay.round() as u64 + again.round() as u64;
        state.path = path;
        self.out.switches[message as usize] = switches as u32;
        Ok(())
    }

    /// Puts a message in front of its adapter.
    fn enqueue(&mut self, message: u32) {
        let node = self.placement.node[self.envelope(message).src as usize] as usize;
        self.queue[node].push_back(message);
        if !self.settings.fifo || !self.sending[node] {
            self.send_next(node);
        }
    }

    fn send_next(&mut self, node: usize) {
        let Some(message) = self.queue[node].pop_front() else {
            self.sending[node] = false;
            return;
        };
        self.sending[node] = true;
        let m = message as usize;
        let bytes = self.envelope(message).bytes;
        let packets = bytes.div_ceil(self.settings.packet_bytes.into()).max(1);
        let wire = (bytes + packets * u64::from(self.settings.header_bytes)).max(MIN_WIRE_BYTES);
        let path = std::mem::take(&mut self.messages[m].path);
        for &(link, share) in &path {
            self.out.link_bytes[link as usize] += wire as f64 * share;
        }
        self.out.begin_ps[m] = self.now;
        self.pool.start(self.now, path.into_iter(), wire as f64, 1.0);
        self.message_of_flow.push(message);
    }

    /// A message's last byte has left its adapter.
    fn flow_ended(&mut self, flow: u32) -> Result<(), FluidError> {
        let message = self.message_of_flow[flow as usize];
        self.router.release(self.pool.links.path(flow).iter().map(|used| (used.link, used.share)));
        let state = &mut self.messages[message as usize];
        state.sent = true;
        let arrival = self.now + state.latency_ps;
        self.at(arrival, Event::Arrived(message));
        let src = self.envelope(message).src;
        if self.settings.fifo {
            self.send_next(self.placement.node[src as usize] as usize);
        }
        self.completed(src);
        Ok(())
    }

    /// A request of `rank` is complete: it may go on.
    fn completed(&mut self, rank: u32) {
        let r = rank as usize;
        self.ranks[r].open -= 1;
        let waiting = self.ranks[r].waiting;
        if matches!(waiting, Waiting::No | Waiting::Computing) || !self.satisfied(rank, waiting) {
            return;
        }
        self.out.wait_ps[r] += self.now - self.ranks[r].since;
        self.go_on(rank);
    }

    fn satisfied(&self, rank: u32, waiting: Waiting) -> bool {
        match waiting {
            Waiting::No | Waiting::Computing => true,
            Waiting::Send(message) => self.messages[message as usize].sent,
            Waiting::Receive(message) => {
                let state = &self.messages[message as usize];
                state.arrived && state.receive_posted
            }
            Waiting::All => self.ranks[rank as usize].open == 0,
        }
    }

    fn stuck(&self) -> FluidError {
        let unfinished = (0..self.ranks.len()).filter(|&r| {
            self.ranks[r].waiting != Waiting::No
                || self.ranks[r].next_op < self.program.rank_start[r + 1]
        });
        let of = |message: u32| self.envelope(message);
        let examples: Vec<String> = unfinished
            .take(4)
            .map(|r| match self.ranks[r].waiting {
                Waiting::Send(m) => {
                    format!(
                        "rank {r} waits for its send of {} B to rank {}",
                        of(m).bytes,
                        of(m).dst
                    )
                }
                Waiting::Receive(m) => {
                    format!("rank {r} waits for {} B from rank {}", of(m).bytes, of(m).src)
                }
                _ => format!("rank {r} waits for {} open requests", self.ranks[r].open),
            })
            .collect();
        let (blocked, time_ps) = (self.unfinished, self.now);
        FluidError::Stuck { blocked, time_ps, examples: examples.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::PathChoice;
    use crate::pool::Policy;
    use tailback_fabric::fat_tree::{Shape, build};

    fn two_hosts() -> (Fabric, Routes) {
        let shape = Shape {
            hosts_per_leaf: 2,
            leaves: 1,
            aggregation: 1,
            pods: 0,
            cores: 0,
            leaf_cables: 1,
            aggregation_uplinks: 0,
            gbps: [8.0; 3],
            delay_ps: [10_000; 3],
        };
        let fabric = build(&shape).unwrap();
        let routes = Routes::up_down(&fabric).unwrap();
        (fabric, routes)
    }

    fn settings(eager_bytes: u64) -> RankSettings {
        RankSettings {
            seed: 1,
            policy: Policy::MaxMin,
            paths: PathChoice::Deterministic,
            fifo: true,
            packet_bytes: 1000,
            header_bytes: 0,
            switch_delay_ps: 5_000,
            store_and_forward: false,
            send_delay_ps: 100_000,
            eager_bytes,
            local_gbps: 8.0,
            local_delay_ps: 0,
            quantum_ps: 0,
        }
    }

    /// Rank 0 sends 1000 bytes to rank 1, which posts its receive after `late` picoseconds.
    fn one_message(late: u64) -> Program {
        Program {
            rank_start: vec![0, 2, 5],
            kind: vec![1, 4, 0, 2, 4],
            peer: vec![1, -1, -1, 0, -1],
            amount: vec![1000, 0, late, 1000, 0],
            tag: vec![7; 5],
            request: vec![0, -1, -1, 0, -1],
            label: vec![0; 5],
        }
    }

    fn run(program: &Program, eager_bytes: u64) -> Result<RankTimes, FluidError> {
        let (fabric, routes) = two_hosts();
        let placement = Placement { node: vec![0, 1], host: vec![0, 1], start_ps: vec![0, 0] };
        simulate_program(&fabric, &routes, &settings(eager_bytes), program, &placement)
    }

    #[test]
    fn an_eager_message_takes_software_wire_and_path() {
        let times = run(&one_message(0), 4096).unwrap();
        // 100 ns software, 1000 ns wire; the path is two cables of 10 ns and a switch of 5 ns.
        assert_eq!(times.finish_ps, [1_100_000, 1_125_000]);
        assert_eq!(times.switches, [1]);
    }

    #[test]
    fn a_large_message_waits_for_its_receive() {
        let times = run(&one_message(500_000), 100).unwrap();
        // Cleared 25 ns after the receive is posted at 500 ns.
        assert_eq!(times.begin_ps, [525_000]);
        assert_eq!(times.finish_ps, [1_525_000, 1_550_000]);
    }

    #[test]
    fn who_waits_for_ever_is_named() {
        // Both ranks wait for a large send before they post the receive.
        let program = Program {
            rank_start: vec![0, 3, 6],
            kind: vec![1, 3, 2, 1, 3, 2],
            peer: vec![1, -1, 1, 0, -1, 0],
            amount: vec![1000, 0, 1000, 1000, 0, 1000],
            tag: vec![0; 6],
            request: vec![0, 0, 1, 0, 0, 1],
            label: vec![0; 6],
        };
        let error = run(&program, 100).unwrap_err().to_string();
        assert!(error.contains("rank 0 waits for its send of 1000 B to rank 1"), "{error}");
        assert!(run(&program, 4096).is_ok());
    }
}
