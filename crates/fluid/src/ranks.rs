//! Rank programs in the fluid model: MPI's blocking rules, messages as flows.
//!
//! As in the packet engine: a send is complete when its last byte has left the adapter, a receive
//! when its last byte is there and it has been posted, a synchronous send when its receive is, an
//! acknowledged send when its acknowledgement is back; a send reaches its adapter a software latency
//! after it is posted; messages above the eager limit wait for their receive; ranks of one host
//! exchange messages through memory. Approximations: the handshake of a large message takes the latency of its path twice but no bandwidth, an acknowledgement takes it once, and a byte reaches
//! the far end one path latency after it left, however full the buffers on its path would be.
//!
//! # The first buffer
//! Rates are those of the whole path, but an adapter sends at line rate until the buffer at the far
//! end of its own link is full. So a message is two consecutive flows. The first is the part that
//! does not fit into the buffer. The second is the buffered part, which no longer needs the
//! adapter. The adapter proceeds when the first flow has ended, but no sooner than line rate
//! allows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use tailback_fabric::{Fabric, RoutePlan};
use tailback_program::{
    LocalPorts, MatchedProgram, Message, Op, Placement, Program, ProgramError, Rank, Request,
    SharedMemory,
};

use crate::FluidError;
use crate::error::check_time;
use crate::paths::Router;
use crate::pool::{Pool, Work};
use crate::rank_model::{RankSettings, RankTimes, check, link_uses};

/// Minimum size of a message on the wire, as in the packet engine.
const MIN_WIRE_BYTES: u64 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MessageEvent {
    /// A request to send reaches its receiver.
    Requested(u32),
    /// A clearance reaches its sender.
    Cleared(u32),
    Arrived(u32),
    /// The last byte of a message has left its adapter.
    Sent(u32),
    /// The sender of a synchronous or acknowledged send is notified that its receive is complete.
    Received(u32),
    /// The copy of a message within a host may have ended, and others with it.
    Copied(u32),
    /// The software latency of a send is over.
    Ready(u32),
    Rank(u32),
}

#[derive(Debug, Default, Clone)]
struct MessageProgress {
    /// Its send is complete when its receive is.
    synchronous: bool,
    /// Synchronous, and the sender is notified one latency later.
    acknowledged: bool,
    /// Its send is complete.
    complete: bool,
    arrived: bool,
    receive_posted: bool,
    requested: bool,
    latency_ps: u64,
    path: Vec<(u32, f64)>,
    /// Bytes on the wire of the part that fits the first buffer.
    buffered_bytes: f64,
    /// When its last byte leaves the adapter at line rate.
    line_ps: u64,
}

struct ProgramSimulation<'a> {
    settings: &'a RankSettings,
    placement: &'a Placement,
    program: MatchedProgram,
    router: Router<'a>,
    pool: Pool,
    events: BinaryHeap<Reverse<(u64, MessageEvent)>>,
    now: u64,
    ranks: Vec<Rank>,
    /// Shared by messages within a host: ports, if the ranks have any, or memory.
    local_ports: Option<LocalPorts>,
    memory: SharedMemory,
    messages: Vec<MessageProgress>,
    /// Messages of each rank with a step of their rendezvous to answer when it is in a call again.
    unanswered: Vec<Vec<u32>>,
    /// Messages waiting at each adapter, and whether it is sending one.
    queue: Vec<VecDeque<u32>>,
    sending: Vec<bool>,
    /// Message of each flow, and whether it is the last part of it.
    message_of_flow: Vec<(u32, bool)>,
    /// Last parts in flight of each node: the bytes in its switch.
    held: Vec<Vec<u32>>,
    unfinished: usize,
    out: RankTimes,
}

/// Runs `program` to the end.
///
/// # Errors
/// Sends and receives that do not match, ranks that block forever, a placement that does not fit, a
/// setting out of range, or nodes without a path.
pub fn simulate_program(
    fabric: &Fabric,
    plan: &RoutePlan,
    settings: &RankSettings,
    program: &Program,
    placement: &Placement,
) -> Result<RankTimes, FluidError> {
    check(fabric, settings, program, placement)?;
    let compiled = program.compile()?;
    let (ranks, messages) = (program.n_ranks(), compiled.messages.len());
    let first_ops = compiled.rank_start[..ranks].iter();
    let router = Router::new(fabric, plan, settings.paths, settings.detour, settings.seed);
    let mut pool = Pool::new(router.capacity(), settings.policy, settings.quantum_ps)?;
    if settings.windows > 0 {
        pool.record_load(settings.windows);
    }
    let mut sim = ProgramSimulation {
        settings,
        placement,
        router,
        pool,
        events: BinaryHeap::new(),
        now: 0,
        ranks: first_ops.map(|&op| Rank::new(op)).collect(),
        local_ports: settings.local_ports.then(|| LocalPorts::new(ranks)),
        memory: SharedMemory::new(placement.n_hosts(), settings.memory_gbps),
        messages: vec![MessageProgress::default(); messages],
        unanswered: vec![Vec::new(); ranks],
        queue: vec![VecDeque::new(); fabric.n_nodes as usize],
        sending: vec![false; fabric.n_nodes as usize],
        message_of_flow: Vec::new(),
        held: vec![Vec::new(); fabric.n_nodes as usize],
        unfinished: ranks,
        out: RankTimes {
            messages: compiled.messages.iter().map(|m| (m.src, m.dst, m.bytes, m.label)).collect(),
            post_ps: vec![0; messages],
            begin_ps: vec![0; messages],
            arrival_ps: vec![0; messages],
            switches: vec![0; messages],
            finish_ps: Vec::new(),
            compute_ps: Vec::new(),
            wait_ps: Vec::new(),
            link_bytes: vec![0.0; fabric.n_links()],
            end_ps: 0,
            window_ps: 0,
            link_use: Vec::new(),
            work: Work::default(),
        },
        program: compiled,
    };
    sim.run()?;
    sim.out.finish_ps = sim.ranks.iter().map(|rank| rank.finish_ps).collect();
    sim.out.compute_ps = sim.ranks.iter().map(|rank| rank.compute_ps).collect();
    sim.out.wait_ps = sim.ranks.iter().map(|rank| rank.wait_ps).collect();
    sim.out.work = sim.pool.work();
    sim.out.end_ps = sim.now;
    if let Some(recorded_load) = sim.pool.recorded_load() {
        sim.out.window_ps = recorded_load.window_ps();
        sim.out.link_use = link_uses(recorded_load, &sim.router, fabric);
    }
    Ok(sim.out)
}

impl ProgramSimulation<'_> {
    fn run(&mut self) -> Result<(), FluidError> {
        for (rank, &start) in self.placement.start_ps.iter().enumerate() {
            self.events.push(Reverse((start, MessageEvent::Rank(rank as u32))));
        }
        loop {
            let event = self.events.peek().map(|Reverse((time, _))| *time);
            let Some(now) = [event, self.pool.next_event()].into_iter().flatten().min() else {
                break;
            };
            check_time(self.now, now)?;
            self.now = now;
            while let Some(flow) = self.pool.pop_end(now) {
                self.flow_ended(flow);
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
        if self.unfinished > 0 { Err(self.stuck().into()) } else { Ok(()) }
    }

    fn handle(&mut self, event: MessageEvent) -> Result<(), FluidError> {
        match event {
            MessageEvent::Rank(rank) => self.advance_rank(rank),
            MessageEvent::Ready(message) => return self.ready(message),
            MessageEvent::Requested(message) => {
                if !self.answers_later(self.envelope(message).dst, message) {
                    self.requested(message);
                }
            }
            MessageEvent::Cleared(message) => {
                if !self.answers_later(self.envelope(message).src, message) {
                    self.enqueue(message);
                }
            }
            MessageEvent::Sent(message) => self.sent(message),
            MessageEvent::Received(message) => self.send_completed(message),
            MessageEvent::Copied(message) => self.copied(message),
            MessageEvent::Arrived(message) => {
                let m = message as usize;
                self.messages[m].arrived = true;
                self.out.arrival_ps[m] = self.now;
                let MessageProgress { synchronous, acknowledged, receive_posted, .. } =
                    self.messages[m];
                let sent = if synchronous { receive_posted } else { self.local(message) };
                if sent && acknowledged {
                    self.acknowledge(message);
                } else if sent {
                    self.send_completed(message);
                }
                if receive_posted {
                    self.completed(self.envelope(message).dst);
                }
            }
        }
        Ok(())
    }

    fn at(&mut self, time: u64, event: MessageEvent) {
        self.events.push(Reverse((time, event)));
    }

    fn envelope(&self, message: u32) -> Message {
        self.program.messages[message as usize]
    }

    fn local(&self, message: u32) -> bool {
        let Message { src, dst, .. } = self.envelope(message);
        self.placement.host[src as usize] == self.placement.host[dst as usize]
    }

    fn advance_rank(&mut self, rank: u32) {
        let r = rank as usize;
        let end = self.program.rank_start[r + 1];
        while let Some(op) = self.ranks[r].next(&self.program.ops, end, self.now) {
            if !matches!(op, Op::Compute(_)) {
                self.answer_rendezvous(rank);
            }
            match op {
                Op::Compute(ps) => {
                    return self.at(self.now.saturating_add(ps), MessageEvent::Rank(rank));
                }
                Op::Send(message) => self.post_send(rank, message, false),
                Op::SynchronousSend(message) => self.post_send(rank, message, true),
                Op::AcknowledgedSend(message) => {
                    self.messages[message as usize].acknowledged = true;
                    self.post_send(rank, message, true);
                }
                Op::Receive(message) => self.post_receive(rank, message),
                Op::Wait(request) => {
                    if !self.complete(rank, request) {
                        return self.ranks[r].block(request, self.now);
                    }
                }
            }
        }
        self.answer_rendezvous(rank);
        self.unfinished -= 1;
    }

    /// Whether a rank answers a step of a rendezvous only when its computation is over.
    fn answers_later(&mut self, rank: u32, message: u32) -> bool {
        let later = self.settings.progress_in_calls && self.ranks[rank as usize].computes();
        if later {
            self.unanswered[rank as usize].push(message);
        }
        later
    }

    /// A rank in a call answers the steps of rendezvous that came while it computed.
    fn answer_rendezvous(&mut self, rank: u32) {
        for message in std::mem::take(&mut self.unanswered[rank as usize]) {
            if self.envelope(message).dst == rank {
                self.requested(message);
            } else {
                self.enqueue(message);
            }
        }
    }

    /// The receiver of a message learns that it waits to be sent.
    fn requested(&mut self, message: u32) {
        self.messages[message as usize].requested = true;
        if self.messages[message as usize].receive_posted {
            self.clear(message);
        }
    }

    fn post_send(&mut self, rank: u32, message: u32, synchronous: bool) {
        let eager = self.envelope(message).bytes <= self.settings.eager_bytes;
        let copied = self.settings.copies_eager && eager && !synchronous && !self.local(message);
        if !copied {
            self.ranks[rank as usize].opened();
        }
        let state = &mut self.messages[message as usize];
        (state.synchronous, state.complete) = (synchronous, copied);
        self.out.post_ps[message as usize] = self.now;
        let ready = self.now.saturating_add(self.settings.send_delay_ps);
        self.at(ready, MessageEvent::Ready(message));
    }

    fn post_receive(&mut self, rank: u32, message: u32) {
        let state = &mut self.messages[message as usize];
        state.receive_posted = true;
        if state.arrived {
            if state.synchronous {
                self.acknowledge(message);
            }
        } else {
            self.ranks[rank as usize].opened();
            if state.requested {
                self.clear(message);
            }
        }
    }

    /// Notifies the sender of a synchronous send that its receive is complete: at once, or one latency
    /// later if it is acknowledged over the network.
    fn acknowledge(&mut self, message: u32) {
        let MessageProgress { acknowledged, latency_ps, .. } = self.messages[message as usize];
        let takes = if acknowledged && !self.local(message) { latency_ps } else { 0 };
        self.at(self.now.saturating_add(takes), MessageEvent::Received(message));
    }

    /// The software latency of a send is over: it goes through memory, to the adapter, or starts a
    /// handshake.
    fn ready(&mut self, message: u32) -> Result<(), FluidError> {
        let m = message as usize;
        let envelope = self.envelope(message);
        if self.local(message) {
            let gbps = self.placement.local_rate(envelope.src, self.settings.local_gbps);
            let (from, to) = (envelope.src as usize, envelope.dst as usize);
            let Some(ports) = &mut self.local_ports else {
                self.out.begin_ps[m] = self.now;
                let host = self.placement.host[from];
                let (time, first) =
                    self.memory.start(host, message, envelope.bytes, gbps, self.now);
                self.at(time, MessageEvent::Copied(first));
                return Ok(());
            };
            let wire = (envelope.bytes as f64 * 8000.0 / gbps).ceil() as u64;
            let begin = ports.begin(from, to, self.now, wire, true);
            self.out.begin_ps[m] = begin;
            let takes = self.settings.local_delay_ps.saturating_add(wire);
            self.at(begin.saturating_add(takes), MessageEvent::Arrived(message));
            return Ok(());
        }
        self.route(message)?;
        if envelope.bytes > self.settings.eager_bytes {
            let latency = self.messages[m].latency_ps;
            self.at(self.now.saturating_add(latency), MessageEvent::Requested(message));
        } else {
            self.enqueue(message);
        }
        Ok(())
    }

    /// The copy of a message within a host may have ended.
    fn copied(&mut self, message: u32) {
        let host = self.placement.host[self.envelope(message).src as usize];
        let arrival = self.now.saturating_add(self.settings.local_delay_ps);
        let events = &mut self.events;
        let next = self.memory.finish(host, self.now, |message| {
            events.push(Reverse((arrival, MessageEvent::Arrived(message))));
        });
        if let Some((time, first)) = next {
            self.at(time, MessageEvent::Copied(first));
        }
    }

    fn clear(&mut self, message: u32) {
        let latency = self.messages[message as usize].latency_ps;
        self.at(self.now.saturating_add(latency), MessageEvent::Cleared(message));
    }

    /// Finds the path and latency of a message; it counts on its links only when it starts.
    fn route(&mut self, message: u32) -> Result<(), FluidError> {
        let Message { src, dst, bytes, .. } = self.envelope(message);
        let (src, dst) = (self.placement.node[src as usize], self.placement.node[dst as usize]);
        let mut path = Vec::new();
        self.router.path(src, dst, message.into(), &mut path)?;
        let links: f64 = path.iter().map(|&(_, share)| share).sum();
        let switches = links.round() as u64 - 1;
        let delay: f64 =
            path.iter().map(|&(link, share)| self.router.delay_ps(link) as f64 * share).sum();
        let packet = bytes.min(self.settings.packet_bytes.into());
        let wire = (packet + u64::from(self.settings.header_bytes)).max(MIN_WIRE_BYTES) as f64;
        let again = if self.settings.store_and_forward {
            let last = &path[1..];
            last.iter().map(|&(link, share)| wire * 8000.0 / self.router.gbps(link) * share).sum()
        } else {
            0.0
        };
        let state = &mut self.messages[message as usize];
        // Latencies saturate: the run then ends with an error at that time.
        state.latency_ps = switches
            .saturating_mul(self.settings.switch_delay_ps)
            .saturating_add((delay + again).round() as u64);
        state.path = path;
        self.out.switches[message as usize] = switches as u32;
        Ok(())
    }

    /// Queues a message at its adapter.
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
        if self.router.depends_on_load() {
            // The least loaded links may have changed since the send was posted.
            self.route(message).expect("a path was found before");
        }
        self.router.occupy(&self.messages[m].path);
        let bytes = self.envelope(message).bytes;
        let packets = bytes.div_ceil(self.settings.packet_bytes.into()).max(1);
        let headers = packets.saturating_mul(self.settings.header_bytes.into());
        let wire = bytes.saturating_add(headers).max(MIN_WIRE_BYTES);
        for &(used, share) in &self.messages[m].path {
            let members = self.router.members(used);
            for &link in members.iter() {
                self.out.link_bytes[link as usize] += wire as f64 * share / members.len() as f64;
            }
        }
        self.out.begin_ps[m] = self.now;
        let state = &mut self.messages[m];
        let line = wire as f64 * 8000.0 / self.router.gbps(state.path[0].0);
        state.line_ps = self.now.saturating_add(line.ceil() as u64);
        let held: f64 =
            self.held[node].iter().map(|&flow| self.pool.left_bytes(flow, self.now)).sum();
        let free = (self.settings.buffer_bytes as f64 - held).max(0.0);
        self.messages[m].buffered_bytes = free.min(wire as f64);
        if wire as f64 > free {
            let path = std::mem::take(&mut self.messages[m].path);
            self.start(message, &path, wire as f64 - free, free == 0.0);
            self.messages[m].path = path;
        } else {
            self.start_rest(message);
            self.at(self.messages[m].line_ps, MessageEvent::Sent(message));
        }
    }

    fn start(&mut self, message: u32, path: &[(u32, f64)], bytes: f64, last: bool) -> u32 {
        let flow = self.pool.start(self.now, path, bytes, 1.0);
        let length = self.message_of_flow.len().max(flow as usize + 1);
        self.message_of_flow.resize(length, (message, last));
        self.message_of_flow[flow as usize] = (message, last);
        flow
    }

    /// Starts the part that the first buffer has taken, which no longer needs the adapter.
    fn start_rest(&mut self, message: u32) {
        let state = &mut self.messages[message as usize];
        let (buffered_bytes, path) = (state.buffered_bytes, std::mem::take(&mut state.path));
        let (first, last) = (path[0].0, path[path.len() - 1].0);
        // The rest cannot be faster than a slow adapter.
        let slow = self.router.gbps(first) < self.router.gbps(last);
        let onwards = if slow { &path[..] } else { &path[1..] };
        if !slow {
            let wire = buffered_bytes * 8000.0 / self.router.gbps(first);
            let end = self.now.saturating_add(wire.ceil() as u64);
            self.pool.record(first, self.now, end, buffered_bytes);
        }
        let flow = self.start(message, onwards, buffered_bytes, true);
        self.messages[message as usize].path = path;
        let node = self.placement.node[self.envelope(message).src as usize] as usize;
        self.held[node].push(flow);
    }

    /// A part of a message has been sent.
    fn flow_ended(&mut self, flow: u32) {
        let (message, last) = self.message_of_flow[flow as usize];
        let m = message as usize;
        let node = self.placement.node[self.envelope(message).src as usize] as usize;
        let line_ps = self.messages[m].line_ps;
        if !last {
            self.start_rest(message);
            return self.at(line_ps.max(self.now), MessageEvent::Sent(message));
        }
        let path = std::mem::take(&mut self.messages[m].path);
        self.router.release(path.into_iter());
        self.held[node].retain(|&other| other != flow);
        let arrival = self.now.saturating_add(self.messages[m].latency_ps);
        self.at(arrival, MessageEvent::Arrived(message));
        if self.messages[m].buffered_bytes == 0.0 {
            self.sent(message);
        }
    }

    /// A message's last byte has left its adapter.
    fn sent(&mut self, message: u32) {
        if self.settings.fifo {
            let src = self.envelope(message).src;
            self.send_next(self.placement.node[src as usize] as usize);
        }
        let MessageProgress { synchronous, complete, .. } = self.messages[message as usize];
        if !synchronous && !complete {
            self.send_completed(message);
        }
    }

    fn send_completed(&mut self, message: u32) {
        self.messages[message as usize].complete = true;
        self.completed(self.envelope(message).src);
    }

    /// A request of `rank` is complete, which may unblock it.
    fn completed(&mut self, rank: u32) {
        if let Some(request) = self.ranks[rank as usize].completed()
            && self.complete(rank, request)
        {
            self.ranks[rank as usize].unblock(self.now);
            self.advance_rank(rank);
        }
    }

    fn complete(&self, rank: u32, request: Request) -> bool {
        match request {
            Request::Send(message) => self.messages[message as usize].complete,
            Request::Receive(message) => {
                let state = &self.messages[message as usize];
                state.arrived && state.receive_posted
            }
            Request::All => self.ranks[rank as usize].all_complete(),
        }
    }

    fn stuck(&self) -> ProgramError {
        let starts = &self.program.rank_start;
        ProgramError::stuck(self.now, starts, self.ranks.iter(), |m| self.envelope(m))
    }
}
