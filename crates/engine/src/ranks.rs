//! Ranks: they execute their programs with MPI's blocking rules.
//!
//! A send is complete when its last byte has left the adapter, a receive when its last byte is there
//! and it has been posted. Messages above the eager limit shake hands first: a request to send, and
//! a clearance once the receive is posted, both real packets. Ranks of one host exchange messages
//! through memory, at a rate and latency of their own.

use crate::EngineError;
use crate::link::NEVER;
use crate::packet::Content;
use crate::probe::Probe;
use crate::program::Op;
use crate::queue::{Class, Event};
use crate::sim::Sim;

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

/// A message on its way.
#[derive(Debug)]
pub(crate) struct MessageState {
    pub post_ps: u64,
    pub start_ps: u64,
    pub arrival_ps: u64,
    pub packets: u32,
    pub packets_unsent: u32,
    pub packets_left: u32,
    pub switch_hops: u32,
    sent: bool,
    arrived: bool,
    receive_posted: bool,
    requested: bool,
}

impl MessageState {
    pub fn new(bytes: u64, packet_bytes: u32) -> Self {
        let packets = bytes.div_ceil(packet_bytes.into()).max(1) as u32;
        Self {
            post_ps: 0,
            start_ps: NEVER,
            arrival_ps: 0,
            packets,
            packets_unsent: packets,
            packets_left: packets,
            switch_hops: 0,
            sent: false,
            arrived: false,
            receive_posted: false,
            requested: false,
        }
    }
}

/// [`Class::Message`] events carry what happens in their packet field.
const READY: u32 = 0;
const LOCAL_ARRIVAL: u32 = 1;

impl<P: Probe> Sim<'_, P> {
    /// Executes `rank` until it blocks, computes or ends.
    pub fn go_on(&mut self, rank: u32) {
        let r = rank as usize;
        self.ranks[r].waiting = Waiting::No;
        let end = self.program.rank_start[r + 1];
        while self.ranks[r].next_op < end {
            let op = self.program.ops[self.ranks[r].next_op];
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
        self.unfinished -= 1;
    }

    /// A message's software latency is over, or it has arrived through memory.
    pub fn on_message(&mut self, message: u32, what: u32) {
        if what == LOCAL_ARRIVAL {
            self.messages[message as usize].switch_hops = 0;
            self.delivered += u64::from(self.messages[message as usize].packets);
            self.on_sent(message);
            return self.arrived(message);
        }
        let envelope = self.program.messages[message as usize];
        if self.same_host(message) {
            let wire = (envelope.bytes as f64 * 8000.0 / self.settings.local_gbps).ceil() as u64;
            self.messages[message as usize].start_ps = self.now;
            let time = self.now + self.settings.local_delay_ps + wire;
            self.queue.push(Event::new(time, Class::Message, message, LOCAL_ARRIVAL));
            return;
        }
        let node = self.placement.node[envelope.src as usize];
        let content = if envelope.bytes > self.settings.eager_bytes {
            Content::RequestToSend
        } else {
            Content::Data
        };
        self.enqueue(node, message, content);
    }

    /// The last byte of a message has left its adapter.
    pub fn on_sent(&mut self, message: u32) {
        self.messages[message as usize].sent = true;
        self.completed(self.program.messages[message as usize].src);
    }

    /// A packet's tail has reached its node.
    pub fn deliver(&mut self, slot: u32) {
        let observed = self.observed(slot);
        let packet = self.packets.remove(slot);
        let message = packet.message;
        let envelope = self.program.messages[message as usize];
        match packet.content {
            Content::RequestToSend => {
                self.messages[message as usize].requested = true;
                if self.messages[message as usize].receive_posted {
                    self.clear(message);
                }
            }
            Content::ClearToSend => {
                let node = self.placement.node[envelope.src as usize];
                self.enqueue(node, message, Content::Data);
            }
            Content::Data => {
                self.delivered += 1;
                if P::ON {
                    let (bytes, mark) = (packet.payload, packet.mark);
                    self.probe.delivered(self.now, envelope.label, bytes, observed, mark);
                }
                let state = &mut self.messages[message as usize];
                state.switch_hops += u32::from(packet.hops);
                state.packets_left -= 1;
                if state.packets_left == 0 {
                    self.arrived(message);
                }
            }
        }
    }

    fn arrived(&mut self, message: u32) {
        let state = &mut self.messages[message as usize];
        assert!(!state.arrived, "message {message} arrived twice");
        state.arrived = true;
        state.arrival_ps = self.now;
        if state.receive_posted {
            self.completed(self.program.messages[message as usize].dst);
        }
    }

    /// A request of `rank` is complete: it may go on.
    fn completed(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        state.open_requests -= 1;
        let waiting = state.waiting;
        if matches!(waiting, Waiting::No | Waiting::Computing) || !self.satisfied(rank, waiting) {
            return;
        }
        let state = &mut self.ranks[rank as usize];
        state.wait_ps += self.now - state.waiting_since;
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
            Waiting::All => self.ranks[rank as usize].open_requests == 0,
        }
    }

    fn post_send(&mut self, rank: u32, message: u32) {
        self.ranks[rank as usize].open_requests += 1;
        self.messages[message as usize].post_ps = self.now;
        let time = self.now + self.settings.send_delay_ps;
        self.queue.push(Event::new(time, Class::Message, message, READY));
    }

    fn post_receive(&mut self, rank: u32, message: u32) {
        let state = &mut self.messages[message as usize];
        state.receive_posted = true;
        if !state.arrived {
            self.ranks[rank as usize].open_requests += 1;
            if state.requested {
                self.clear(message);
            }
        }
    }

    /// Tells the sender of `message` to go on.
    fn clear(&mut self, message: u32) {
        let dst = self.program.messages[message as usize].dst;
        self.enqueue(self.placement.node[dst as usize], message, Content::ClearToSend);
    }

    fn same_host(&self, message: u32) -> bool {
        let envelope = self.program.messages[message as usize];
        let host = &self.placement.host;
        host[envelope.src as usize] == host[envelope.dst as usize]
    }

    /// Says who waits for what when nothing happens any more.
    pub fn stuck(&self) -> EngineError {
        let examples: Vec<String> = (0..self.ranks.len() as u32)
            .filter(|&rank| {
                let state = &self.ranks[rank as usize];
                state.waiting != Waiting::No
                    || state.next_op < self.program.rank_start[rank as usize + 1]
            })
            .take(4)
            .map(|rank| format!("rank {rank} waits for {}", self.awaited(rank)))
            .collect();
        EngineError::Stuck {
            blocked: self.unfinished,
            time_ps: self.now,
            examples: examples.join("; "),
        }
    }

    fn awaited(&self, rank: u32) -> String {
        let of = |message: u32| self.program.messages[message as usize];
        match self.ranks[rank as usize].waiting {
            Waiting::Send(m) => format!("its send of {} B to rank {}", of(m).bytes, of(m).dst),
            Waiting::Receive(m) => format!("{} B from rank {}", of(m).bytes, of(m).src),
            _ => format!("{} open requests", self.ranks[rank as usize].open_requests),
        }
    }
}
