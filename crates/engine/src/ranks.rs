//! Ranks: they execute their programs with MPI's blocking rules.
//!
//! A send is complete when its last byte has left the adapter, a receive when its last byte is there
//! and it has been posted. Messages above the eager limit shake hands first: a request to send, and
//! a clearance once the receive is posted, both real packets. Ranks of one host exchange messages
//! through memory, at a rate and latency of their own.

use crate::link::NEVER;
use crate::packet::Content;
use crate::probe::{Arrival, Probe};
use crate::program::{Envelope, Op};
use crate::queue::{Class, Event};
use crate::shard::Shard;

/// What a rank is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    No,
    Computing,
    Send(u32),
    Receive(u32),
    All,
}

/// A rank in execution.
#[derive(Debug)]
pub(crate) struct RankState {
    next_op: usize,
    waiting: Waiting,
    waiting_since: u64,
    open_requests: u32,
    pub finish_ps: u64,
    pub compute_ps: u64,
    pub wait_ps: u64,
}

impl RankState {
    pub fn new(first_op: usize) -> Self {
        Self {
            next_op: first_op,
            waiting: Waiting::No,
            waiting_since: 0,
            open_requests: 0,
            finish_ps: 0,
            compute_ps: 0,
            wait_ps: 0,
        }
    }
}

/// The sending side of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sending {
    pub post_ps: u64,
    pub start_ps: u64,
    pub packets: u32,
    pub packets_unsent: u32,
    sent: bool,
}

impl Sending {
    pub fn new(packets: u32) -> Self {
        Self { post_ps: 0, start_ps: NEVER, packets, packets_unsent: packets, sent: false }
    }
}

/// The receiving side of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiving {
    pub arrival_ps: u64,
    pub packets_left: u32,
    received: u32,
    pub switch_hops: u32,
    pub arrived: bool,
    posted: bool,
    requested: bool,
}

impl Receiving {
    pub fn new(packets: u32) -> Self {
        Self {
            arrival_ps: 0,
            packets_left: packets,
            received: 0,
            switch_hops: 0,
            arrived: false,
            posted: false,
            requested: false,
        }
    }
}

/// [`Class::Message`] events carry what happens in their packet field.
const READY: u32 = 0;
const LOCAL_ARRIVAL: u32 = 1;
const ARRIVED: u32 = 2;
const REQUESTED: u32 = 3;
const CLEARED: u32 = 4;
const MARKED: u32 = 5;
const NOTIFIED: u32 = 6;

impl<P: Probe> Shard<'_, P> {
    /// Executes `rank` until it blocks, computes or ends.
    pub fn go_on(&mut self, rank: u32) {
        let r = self.world.local_rank[rank as usize] as usize;
        self.ranks[r].waiting = Waiting::No;
        let program = &self.world.program;
        let end = program.rank_start[rank as usize + 1];
        while self.ranks[r].next_op < end {
            let op = program.ops[self.ranks[r].next_op];
            self.ranks[r].next_op += 1;
            let waiting = match op {
                Op::Compute(ps) => {
                    self.ranks[r].waiting = Waiting::Computing;
                    self.ranks[r].compute_ps += ps;
                    self.queue.push(Event::new(self.now + ps, Class::Rank, rank, 0));
                    return;
                }
                Op::Send(message) => {
                    self.post_send(rank, message);
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
                self.ranks[r].waiting_since = self.now;
                return;
            }
        }
        self.ranks[r].finish_ps = self.now;
    }

    /// Something happens to a message, other than to its packets on their way.
    pub fn on_message(&mut self, message: u32, what: u32) {
        match what {
            READY => self.on_ready(message),
            LOCAL_ARRIVAL => {
                let receive = self.world.sides[message as usize].receive;
                self.delivered += u64::from(self.receives[receive as usize].packets_left);
                self.receives[receive as usize].packets_left = 0;
                self.receives[receive as usize].arrival_ps = self.now;
                self.on_sent(message);
                self.arrived(message);
            }
            ARRIVED => self.arrived(message),
            REQUESTED => {
                let state = &mut self.receives[self.world.sides[message as usize].receive as usize];
                state.requested = true;
                if state.posted {
                    self.clear(message);
                }
            }
            MARKED => {
                let dst = self.world.program.messages[message as usize].dst;
                let node = self.world.placement.node[dst as usize];
                self.enqueue(node, message, Content::Congestion);
            }
            NOTIFIED => {
                let src = self.world.program.messages[message as usize].src;
                self.throttle(self.world.placement.node[src as usize], message);
            }
            _ => {
                debug_assert_eq!(what, CLEARED);
                let envelope = &self.world.program.messages[message as usize];
                let node = self.world.placement.node[envelope.src as usize];
                self.enqueue(node, message, Content::Data);
            }
        }
    }

    /// A message's software latency is over.
    fn on_ready(&mut self, message: u32) {
        let world = self.world;
        let envelope = &world.program.messages[message as usize];
        if world.same_host(envelope) {
            let wire = (envelope.bytes as f64 * 8000.0 / world.settings.local_gbps).ceil() as u64;
            self.sends[self.world.sides[message as usize].send as usize].start_ps = self.now;
            let time = self.now + world.settings.local_delay_ps + wire;
            self.queue.push(Event::new(time, Class::Message, message, LOCAL_ARRIVAL));
            return;
        }
        let node = world.placement.node[envelope.src as usize];
        let content = if envelope.bytes > world.settings.eager_bytes {
            Content::RequestToSend
        } else {
            Content::Data
        };
        self.enqueue(node, message, content);
    }

    /// The last byte of a message has left its adapter.
    pub fn on_sent(&mut self, message: u32) {
        let envelope = &self.world.program.messages[message as usize];
        self.sends[self.world.sides[message as usize].send as usize].sent = true;
        self.completed(envelope.src);
    }

    /// Delivers a packet whose tail reaches its node at `time`, which may lie ahead: nothing can come
    /// between. The node learns of it by an event only where that matters to it.
    pub fn deliver(&mut self, slot: u32, time: u64) {
        let packet = self.packets.remove(slot);
        let message = packet.message;
        let what = match packet.content() {
            Content::RequestToSend => REQUESTED,
            Content::ClearToSend => CLEARED,
            Content::Congestion => NOTIFIED,
            Content::Data => {
                let envelope = &self.world.program.messages[message as usize];
                self.delivered += 1;
                if P::ON {
                    let size = u64::from(self.world.settings.packet_bytes);
                    let before = (packet.id - envelope.first_packet) * size;
                    let bytes = (envelope.bytes - before).min(size) as u32;
                    let arrival = Arrival {
                        packet: packet.id,
                        label: envelope.label,
                        bytes,
                        src: self.world.placement.node[envelope.src as usize],
                        dst: packet.node,
                        hops: packet.hops,
                        observed: packet.observed,
                    };
                    self.probe.delivered(time, arrival, packet.mark);
                }
                if packet.notified {
                    self.queue.push(Event::new(time, Class::Message, message, MARKED));
                }
                let number = (packet.id - envelope.first_packet) as u32;
                let state = &mut self.receives[self.world.sides[message as usize].receive as usize];
                if self.world.settings.in_order() {
                    assert_eq!(number, state.received, "packet of message {message} out of order");
                }
                state.received += 1;
                state.switch_hops += u32::from(packet.hops);
                state.packets_left -= 1;
                state.arrival_ps = state.arrival_ps.max(time);
                if state.packets_left > 0 {
                    return;
                }
                ARRIVED
            }
        };
        self.queue.push(Event::new(time, Class::Message, message, what));
    }

    fn arrived(&mut self, message: u32) {
        let envelope = &self.world.program.messages[message as usize];
        let state = &mut self.receives[self.world.sides[message as usize].receive as usize];
        assert!(!state.arrived, "message {message} arrived twice");
        state.arrived = true;
        if state.posted {
            self.completed(envelope.dst);
        }
    }

    fn rank(&mut self, rank: u32) -> &mut RankState {
        &mut self.ranks[self.world.local_rank[rank as usize] as usize]
    }

    /// A request of `rank` is complete: it may go on.
    fn completed(&mut self, rank: u32) {
        let state = self.rank(rank);
        state.open_requests -= 1;
        let waiting = state.waiting;
        if matches!(waiting, Waiting::No | Waiting::Computing) || !self.satisfied(rank, waiting) {
            return;
        }
        let now = self.now;
        let state = self.rank(rank);
        state.wait_ps += now - state.waiting_since;
        self.go_on(rank);
    }

    fn satisfied(&mut self, rank: u32, waiting: Waiting) -> bool {
        let sides = &self.world.sides;
        match waiting {
            Waiting::No | Waiting::Computing => true,
            Waiting::Send(message) => self.sends[sides[message as usize].send as usize].sent,
            Waiting::Receive(message) => {
                let state = &self.receives[sides[message as usize].receive as usize];
                state.arrived && state.posted
            }
            Waiting::All => self.rank(rank).open_requests == 0,
        }
    }

    fn post_send(&mut self, rank: u32, message: u32) {
        self.rank(rank).open_requests += 1;
        let send = self.world.sides[message as usize].send;
        self.sends[send as usize].post_ps = self.now;
        let time = self.now + self.world.settings.send_delay_ps;
        self.queue.push(Event::new(time, Class::Message, message, READY));
    }

    fn post_receive(&mut self, rank: u32, message: u32) {
        let receive = self.world.sides[message as usize].receive;
        let state = &mut self.receives[receive as usize];
        state.posted = true;
        let (arrived, requested) = (state.arrived, state.requested);
        if !arrived {
            self.rank(rank).open_requests += 1;
            if requested {
                self.clear(message);
            }
        }
    }

    /// Tells the sender of `message` to go on.
    fn clear(&mut self, message: u32) {
        let dst = self.world.program.messages[message as usize].dst;
        self.enqueue(self.world.placement.node[dst as usize], message, Content::ClearToSend);
    }
}

impl RankState {
    /// Whether it has not finished its program, which ends at operation `end`.
    pub fn unfinished(&self, end: usize) -> bool {
        self.waiting != Waiting::No || self.next_op < end
    }

    /// What it waits for, in words.
    pub fn awaits(&self, messages: &[Envelope]) -> String {
        let of = |message: u32| &messages[message as usize];
        match self.waiting {
            Waiting::Send(m) => format!("its send of {} B to rank {}", of(m).bytes, of(m).dst),
            Waiting::Receive(m) => format!("{} B from rank {}", of(m).bytes, of(m).src),
            _ => format!("{} open requests", self.open_requests),
        }
    }
}
