//! Ranks: they execute their programs with MPI's blocking rules.
//!
//! A send is complete when its last byte has left the adapter, a receive when its last byte is there
//! and it has been posted. Messages above the eager limit shake hands first: a request to send, and
//! a clearance once the receive is posted, both real packets. Ranks of one host exchange messages
//! through memory, at a rate and latency of their own.

use tailback_program::{Op, Rank, Request};

use crate::events::queue::{Class, Event};
use crate::intrinsics::prefetch;
use crate::network::packet::{Content, Flags};
use crate::probe::{Arrival, Probe};
use crate::program::Envelope;
use crate::shard::Shard;

/// [`Class::Message`] events carry what happens in their packet field.
const READY: u32 = 0;
const LOCAL_ARRIVAL: u32 = 1;
const ARRIVED: u32 = 2;
const REQUESTED: u32 = 3;
const CLEARED: u32 = 4;
/// From here on: a packet to be dealt with is in the slot so much beyond.
const NOTICE: u32 = 5;

impl<P: Probe> Shard<'_, P> {
    /// Starts to fetch the sending side of a message.
    #[inline]
    pub fn fetch_send(&self, message: u32) {
        prefetch(&self.sends, self.world.send_of(message));
    }

    /// Starts to fetch the receiving side of a message. That of a handshake that goes back is in
    /// another shard.
    #[inline]
    pub fn fetch_receive(&self, message: u32) {
        prefetch(&self.receives, self.world.receive_of(message));
    }

    /// Starts to fetch both sides of a message and the ranks at them, as far as they are of this shard.
    #[inline]
    pub fn fetch_ends(&self, message: u32) {
        self.fetch_send(message);
        self.fetch_receive(message);
        let Envelope { src, dst, .. } = self.world.program.messages[message as usize];
        for rank in [src, dst] {
            prefetch(&self.ranks, self.world.local_rank(rank));
            prefetch(&self.world.placement.host, rank);
        }
    }

    /// Starts to fetch a rank of this shard.
    #[inline]
    pub fn fetch_rank(&self, rank: u32) {
        prefetch(&self.ranks, self.world.local_rank(rank));
        prefetch(&self.world.program.rank_start, rank + 1);
    }

    /// Starts to fetch what a rank of this shard does next.
    #[inline]
    pub fn fetch_op(&self, rank: u32) {
        let next = self.ranks[self.world.local_rank(rank) as usize].next_op();
        prefetch(&self.world.program.ops, next as u32);
    }

    /// Executes `rank` until it blocks, computes or ends.
    pub fn go_on(&mut self, rank: u32) {
        let r = self.world.local_rank(rank) as usize;
        let program = &self.world.program;
        let end = program.rank_start[rank as usize + 1];
        while let Some(op) = self.ranks[r].next(&program.ops, end, self.now) {
            match op {
                Op::Compute(ps) => {
                    self.queue.push(Event::new(self.now + ps, Class::Rank, rank, 0));
                    return;
                }
                Op::Send(message) => self.post_send(rank, message),
                Op::Receive(message) => self.post_receive(rank, message),
                Op::Wait(request) => {
                    if !self.complete(rank, request) {
                        self.ranks[r].block(request, self.now);
                        return;
                    }
                }
            }
        }
    }

    /// Something happens to a message, other than to its packets on their way.
    pub fn on_message(&mut self, message: u32, what: u32) {
        match what {
            READY => self.on_ready(message),
            LOCAL_ARRIVAL => {
                let receive = self.world.receive_of(message);
                self.delivered += u64::from(self.receives[receive as usize].packets_left);
                self.receives[receive as usize].packets_left = 0;
                self.receives[receive as usize].arrival_ps = self.now;
                self.on_sent(message);
                self.arrived(message);
            }
            ARRIVED => self.arrived(message),
            REQUESTED => {
                let state = &mut self.receives[self.world.receive_of(message) as usize];
                state.requested = true;
                if state.posted {
                    self.clear(message);
                }
            }
            CLEARED => {
                let envelope = &self.world.program.messages[message as usize];
                let node = self.world.placement.node[envelope.src as usize];
                self.enqueue(node, message, Content::Data);
            }
            _ => self.on_notice(what - NOTICE),
        }
    }

    /// A node deals with a packet that has something to say about congestion.
    fn on_notice(&mut self, slot: u32) {
        let light = self.congestion.lights.carried(slot);
        self.packets.remove(slot);
        let packet = &self.packets[slot];
        let (node, message) = (packet.node, packet.message);
        match packet.content() {
            Content::Congestion if packet.flags.has(Flags::GREEN) => self.green(node, light),
            Content::Congestion => self.throttle(node, message, light),
            _ => self.send_notice(node, message, light),
        }
    }

    /// A message's software latency is over.
    fn on_ready(&mut self, message: u32) {
        let world = self.world;
        let envelope = &world.program.messages[message as usize];
        if world.same_host(envelope) {
            let wire = (envelope.bytes as f64 * 8000.0 / world.settings.local_gbps).ceil() as u64;
            self.sends[self.world.send_of(message) as usize].start_ps = self.now;
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
        self.sends[self.world.send_of(message) as usize].sent = true;
        self.completed(envelope.src);
    }

    /// Delivers a packet whose tail reaches its node at `time`, which may lie ahead: nothing can come
    /// between. The node learns of it by an event only where that matters to it.
    pub fn deliver(&mut self, slot: u32, time: u64) {
        let packet = &self.packets[slot];
        let (message, content) = (packet.message, packet.content());
        if content == Content::Congestion || packet.flags.has(Flags::NOTIFIED) {
            // It stays until the node deals with it.
            self.queue.push(Event::new(time, Class::Message, message, NOTICE + slot));
        } else {
            self.packets.remove(slot);
        }
        let packet = &self.packets[slot];
        let what = match content {
            Content::RequestToSend => REQUESTED,
            Content::ClearToSend => CLEARED,
            Content::Congestion => return,
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
                        observed: packet.observed(),
                    };
                    self.probe.delivered(time, arrival, packet.mark);
                }
                let state = &mut self.receives[self.world.receive_of(message) as usize];
                if self.world.settings.in_order() {
                    let number = (packet.id - envelope.first_packet) as u32;
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
        let state = &mut self.receives[self.world.receive_of(message) as usize];
        assert!(!state.arrived, "message {message} arrived twice");
        state.arrived = true;
        if state.posted {
            self.completed(envelope.dst);
        }
    }

    fn rank(&mut self, rank: u32) -> &mut Rank {
        &mut self.ranks[self.world.local_rank(rank) as usize]
    }

    /// A request of `rank` is complete: it may go on.
    fn completed(&mut self, rank: u32) {
        let now = self.now;
        if let Some(request) = self.rank(rank).completed()
            && self.complete(rank, request)
        {
            self.rank(rank).unblock(now);
            self.go_on(rank);
        }
    }

    fn complete(&mut self, rank: u32, request: Request) -> bool {
        match request {
            Request::Send(message) => self.sends[self.world.send_of(message) as usize].sent,
            Request::Receive(message) => {
                let state = &self.receives[self.world.receive_of(message) as usize];
                state.arrived && state.posted
            }
            Request::All => self.rank(rank).all_complete(),
        }
    }

    fn post_send(&mut self, rank: u32, message: u32) {
        self.rank(rank).opened();
        let send = self.world.send_of(message);
        self.sends[send as usize].post_ps = self.now;
        let time = self.now + self.world.settings.send_delay_ps;
        self.queue.push(Event::new(time, Class::Message, message, READY));
    }

    fn post_receive(&mut self, rank: u32, message: u32) {
        let receive = self.world.receive_of(message);
        let state = &mut self.receives[receive as usize];
        state.posted = true;
        let (arrived, requested) = (state.arrived, state.requested);
        if !arrived {
            self.rank(rank).opened();
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
