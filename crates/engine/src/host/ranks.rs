//! Ranks execute their programs under MPI's blocking rules.
//!
//! A send is complete when its last byte has left the adapter, a receive when its last byte has
//! arrived and it has been posted. A synchronous send is complete when its receive is. The sender
//! is informed at once, so such programs run in one group (see [`crate::parallel::partition`]). An
//! acknowledged send is complete when the acknowledgement of its completed receive has arrived.
//! Messages above the eager limit use a rendezvous: a request to send, and a clear to send once the
//! receive is posted, both simulated as packets. A rank whose library answers only in calls answers
//! them when its computation is over. What of its processor each message takes is in
//! [`crate::host::processors`]. Ranks on the same host exchange messages through
//! memory, whose bandwidth all of them share, or through ports of their own, whose buffers take
//! messages of any size. In memory, large ones wait for their receive, too.

use tailback_program::{Op, Rank, Request};

use crate::events::queue::{Event, EventKind};
use crate::intrinsics::prefetch;
use crate::network::link::NIL;
use crate::network::packet::{Flags, PacketKind};
use crate::probe::{DeliveredPacket, Probe};
use crate::program::Envelope;
use crate::settings::EagerSends;
use crate::shard::Shard;

/// Messages that fit in the cache beside the network: 8 MB with their send and receive states.
const CACHED_MESSAGES: usize = 1 << 16;

/// Operations of a rank whose messages are prefetched when it continues: as many as a halo exchange
/// posts at once.
const OPERATIONS_AHEAD: usize = 8;

/// In [`EventKind::Message`] events, the packet field tells what happens to the message.
const READY: u32 = 0;
const LOCAL_ARRIVAL: u32 = 1;
const ARRIVED: u32 = 2;
const REQUESTED: u32 = 3;
const CLEARED: u32 = 4;
const RECEIVED: u32 = 5;
const COPIED: u32 = 6;
pub(super) const HANDLED: u32 = 7;
/// Values from here on: a control packet in slot `value - NOTICE`.
const NOTICE: u32 = 8;

impl<P: Probe> Shard<'_, P> {
    /// Prefetches the send state of a message.
    #[inline]
    pub fn prefetch_send(&self, message: u32) {
        prefetch(&self.sends, self.model.send_of(message));
    }

    /// Prefetches the receive state of a message. For a control packet on its way back that
    /// state is in another shard, and the prefetch is wasted.
    #[inline]
    pub fn prefetch_receive(&self, message: u32) {
        prefetch(&self.receives, self.model.receive_of(message));
    }

    /// Prefetches both states of a message and the ranks at its endpoints, as far as they are
    /// in this shard.
    #[inline]
    pub fn prefetch_endpoints_and_ranks(&self, message: u32) {
        self.prefetch_send(message);
        self.prefetch_receive(message);
        let Envelope { src, dst, .. } = self.model.program.messages[message as usize];
        for rank in [src, dst] {
            prefetch(&self.ranks, self.model.local_rank(rank));
            prefetch(&self.model.placement.host, rank);
        }
    }

    /// Whether messages, or the lanes of the network, do not fit in the cache.
    #[inline]
    pub fn messages_exceed_cache(&self) -> bool {
        self.sends.len() > CACHED_MESSAGES || self.links.exceed_cache()
    }

    /// Prefetches the states of messages that the next operations of a rank post.
    #[inline]
    fn prefetch_posts(&self, ops: &[Op]) {
        for op in ops.iter().take(OPERATIONS_AHEAD) {
            match *op {
                Op::Send(message)
                | Op::SynchronousSend(message)
                | Op::AcknowledgedSend(message) => {
                    self.prefetch_send(message);
                }
                Op::Receive(message) => self.prefetch_receive(message),
                Op::Compute(_) | Op::Wait(_) => {}
            }
        }
    }

    /// Prefetches a rank of this shard.
    #[inline]
    pub fn prefetch_rank(&self, rank: u32) {
        prefetch(&self.ranks, self.model.local_rank(rank));
        prefetch(&self.model.program.rank_start, rank + 1);
    }

    /// Prefetches the next operation of a rank of this shard.
    #[inline]
    pub fn prefetch_operation(&self, rank: u32) {
        let next = self.ranks[self.model.local_rank(rank) as usize].next_op();
        prefetch(&self.model.program.ops, next as u32);
    }

    /// Whether an event of a message at an endpoint may end its send or its receive.
    #[inline]
    pub fn ends_message(what: u32) -> bool {
        what == ARRIVED || what == LOCAL_ARRIVAL
    }

    /// Prefetches the next operation of the sender or the receiver of a message, if it is in this shard.
    #[inline]
    pub fn prefetch_next_operation(&self, message: u32, of_sender: bool) {
        let Envelope { src, dst, .. } = self.model.program.messages[message as usize];
        let rank = self.model.local_rank(if of_sender { src } else { dst });
        // The rank may be in another shard, which has fewer.
        if let Some(rank) = self.ranks.get(rank as usize) {
            prefetch(&self.model.program.ops, rank.next_op() as u32);
        }
    }

    /// Executes `rank` until it blocks, computes or finishes.
    pub fn advance_rank(&mut self, rank: u32) {
        let r = self.model.local_rank(rank) as usize;
        let program = &self.model.program;
        let mut end = self.end_of_step(rank);
        if self.messages_exceed_cache() {
            self.prefetch_posts(&program.ops[self.ranks[r].next_op()..end]);
        }
        loop {
            let Some(op) = self.ranks[r].next(&program.ops, end, self.now) else {
                if !self.begin_next_step(rank) {
                    self.answer_rendezvous(rank);
                    return;
                }
                end = self.end_of_step(rank);
                continue;
            };
            if !matches!(op, Op::Compute(_)) {
                self.answer_rendezvous(rank);
            }
            match op {
                Op::Compute(ps) => {
                    if let Some(computations) = &mut self.computations {
                        computations.push((rank, self.now));
                    }
                    self.queue.push(Event::new(self.now + ps, EventKind::Rank, rank, 0));
                    return;
                }
                Op::Send(message)
                | Op::SynchronousSend(message)
                | Op::AcknowledgedSend(message) => {
                    self.post_send(rank, message, !matches!(op, Op::Send(_)));
                    let busy_ps = self.processor_ps(message);
                    if busy_ps > 0 {
                        let posted = Event::new(self.now + busy_ps, EventKind::Rank, rank, 0);
                        return self.queue.push(posted);
                    }
                }
                Op::Receive(message) => self.post_receive(rank, message),
                Op::Wait(request) => {
                    let handled = self.handle_arrived(rank);
                    if !self.is_complete(rank, request) {
                        self.ranks[r].block(request, self.now);
                        return;
                    }
                    if handled > self.now {
                        return self.queue.push(Event::new(handled, EventKind::Rank, rank, 0));
                    }
                }
            }
        }
    }

    /// First operation behind the step that a rank is in: the end of its program unless steps may be
    /// left out.
    #[inline]
    fn end_of_step(&self, rank: u32) -> usize {
        match &self.gates {
            None => self.model.program.rank_start[rank as usize + 1],
            Some(gates) => gates.end(rank as usize),
        }
    }

    /// A rank has ended its step; returns whether it has another one.
    fn begin_next_step(&mut self, rank: u32) -> bool {
        // Runs with steps have one shard, in which ranks have their own numbers.
        let next = self.gates.as_mut().and_then(|gates| gates.begin_next(rank as usize));
        if let Some(op) = next {
            self.ranks[rank as usize].continue_at(op);
        }
        next.is_some()
    }

    /// An event of a message at one of its endpoints.
    pub fn on_message(&mut self, message: u32, what: u32) {
        match what {
            READY => self.on_ready(message),
            LOCAL_ARRIVAL => {
                let receive = self.model.receive_of(message);
                self.delivered += u64::from(self.receives[receive as usize].packets_left);
                self.receives[receive as usize].packets_left = 0;
                self.receives[receive as usize].arrival_ps = self.now;
                self.on_sent(message);
                self.on_arrived(message);
            }
            ARRIVED => self.on_arrived(message),
            HANDLED => self.message_arrived(message),
            REQUESTED => {
                let dst = self.model.program.messages[message as usize].dst;
                if !self.answers_later(dst, message) {
                    self.on_requested(message);
                }
            }
            CLEARED => {
                let src = self.model.program.messages[message as usize].src;
                if self.sends[self.model.send_of(message) as usize].packets_unsent == 0 {
                    self.send_completed(message);
                } else if !self.answers_later(src, message) {
                    self.on_cleared(message);
                }
            }
            RECEIVED => self.received(message),
            COPIED => self.on_copied(message),
            _ => self.on_notice(what - NOTICE),
        }
    }

    /// Whether a rank answers a step of a rendezvous only when its computation is over.
    fn answers_later(&mut self, rank: u32, message: u32) -> bool {
        let r = self.model.local_rank(rank) as usize;
        match &mut self.unanswered {
            Some(unanswered) if self.ranks[r].computes() => {
                unanswered[r].push(message);
                true
            }
            _ => false,
        }
    }

    /// A rank in a call answers the steps of rendezvous that came while it computed.
    #[inline]
    fn answer_rendezvous(&mut self, rank: u32) {
        let r = self.model.local_rank(rank) as usize;
        let Some(unanswered) = &mut self.unanswered else { return };
        let mut messages = std::mem::take(&mut unanswered[r]);
        for message in messages.drain(..) {
            if self.model.program.messages[message as usize].dst == rank {
                self.on_requested(message);
            } else {
                self.on_cleared(message);
            }
        }
        if let Some(unanswered) = &mut self.unanswered {
            unanswered[r] = messages; // Keeps its memory.
        }
    }

    /// The receiver of a message learns that it waits to be sent.
    fn on_requested(&mut self, message: u32) {
        let state = &mut self.receives[self.model.receive_of(message) as usize];
        state.requested = true;
        if state.posted {
            self.reply_to_sender(message);
        }
    }

    /// The sender of a message learns that its receive is posted.
    fn on_cleared(&mut self, message: u32) {
        let envelope = &self.model.program.messages[message as usize];
        if self.model.same_host(envelope) {
            return self.send_within_host(message);
        }
        self.enqueue(self.model.placement.node[envelope.src as usize], message, PacketKind::Data);
    }

    /// A node processes a packet that carries a congestion notification or mark.
    fn on_notice(&mut self, slot: u32) {
        let light = self.congestion.lights.on_packet(slot);
        self.packets.remove(slot);
        let packet = &self.packets[slot];
        let (node, message) = (packet.node, packet.message);
        match packet.content() {
            PacketKind::Congestion if packet.flags.has(Flags::GREEN) => self.on_green(node, light),
            PacketKind::Congestion => self.on_congestion_notice(node, message, light),
            _ => self.send_notification(node, message, light),
        }
    }

    /// A message's software latency is over.
    fn on_ready(&mut self, message: u32) {
        let model = self.model;
        let envelope = &model.program.messages[message as usize];
        let waits = envelope.bytes > model.settings.eager_bytes;
        if model.same_host(envelope) {
            return if waits && self.local_ports.is_none() {
                self.on_message(message, REQUESTED)
            } else {
                self.send_within_host(message)
            };
        }
        let node = model.placement.node[envelope.src as usize];
        let content = if waits { PacketKind::RequestToSend } else { PacketKind::Data };
        self.enqueue(node, message, content);
    }

    /// A message within a host begins: a copy in its memory, or a transfer between two ports.
    fn send_within_host(&mut self, message: u32) {
        let model = self.model;
        let envelope = &model.program.messages[message as usize];
        let gbps = model.placement.local_rate(envelope.src, model.settings.local_gbps);
        let mut begin = self.now;
        if let Some(ports) = &mut self.local_ports {
            let duration = model.settings.local_ps(envelope.bytes, gbps);
            let duration = duration.expect("limits::check refused longer ones");
            let port = |rank| model.local_rank(rank) as usize;
            begin = ports.begin(
                port(envelope.src),
                port(envelope.dst),
                self.now,
                duration - model.settings.local_delay_ps,
                model.settings.contention,
            );
            let time = begin.saturating_add(duration);
            self.queue.push(Event::new(time, EventKind::Message, message, LOCAL_ARRIVAL));
        } else {
            let host = model.placement.host[envelope.src as usize];
            let (time, first) = self.memory.start(host, message, envelope.bytes, gbps, self.now);
            self.queue.push(Event::new(time, EventKind::Message, first, COPIED));
        }
        self.sends[model.send_of(message) as usize].start_ps = begin;
    }

    /// The copy of a message within a host may have ended, and others with it.
    fn on_copied(&mut self, message: u32) {
        let model = self.model;
        let src = model.program.messages[message as usize].src;
        let host = model.placement.host[src as usize];
        let arrival = self.now.saturating_add(model.settings.local_delay_ps);
        let queue = &mut self.queue;
        let next = self.memory.finish(host, self.now, |message| {
            queue.push(Event::new(arrival, EventKind::Message, message, LOCAL_ARRIVAL));
        });
        if let Some((time, first)) = next {
            self.queue.push(Event::new(time, EventKind::Message, first, COPIED));
        }
    }

    /// The last byte of a message has left its adapter.
    pub fn on_sent(&mut self, message: u32) {
        let state = &self.sends[self.model.send_of(message) as usize];
        if !state.synchronous && !state.complete {
            self.send_completed(message);
        }
    }

    fn send_completed(&mut self, message: u32) {
        let envelope = &self.model.program.messages[message as usize];
        self.sends[self.model.send_of(message) as usize].complete = true;
        self.request_completed(envelope.src);
    }

    /// The receive of a message is complete, and so is its send if it is synchronous. Sends an
    /// acknowledgement, which takes no time within a host.
    fn received(&mut self, message: u32) {
        if self.acknowledges_by_packet(message) {
            return self.reply_to_sender(message);
        }
        if self.model.program.acknowledges(message) {
            return self.send_completed(message);
        }
        // Only one shard, which has the send too, runs programs with synchronous sends.
        if self.model.program.synchronous
            && self.sends[self.model.send_of(message) as usize].synchronous
        {
            self.send_completed(message);
        }
    }

    /// Delivers a packet whose tail reaches its node at `time`, which may lie in the future:
    /// nothing can intervene. An event is scheduled only if the node has to react.
    pub fn deliver(&mut self, slot: u32, time: u64) {
        let packet = &self.packets[slot];
        let (message, content) = (packet.message, packet.content());
        if content == PacketKind::Congestion || packet.flags.has(Flags::NOTIFIED) {
            // It keeps its slot until the node processes it.
            self.queue.push(Event::new(time, EventKind::Message, message, NOTICE + slot));
        } else {
            self.packets.remove(slot);
        }
        let packet = &self.packets[slot];
        let what = match content {
            PacketKind::RequestToSend => REQUESTED,
            PacketKind::ClearToSend => CLEARED,
            PacketKind::Congestion => return,
            PacketKind::Data => {
                let envelope = &self.model.program.messages[message as usize];
                if P::ON {
                    let size = u64::from(self.model.settings.packet_bytes);
                    let before = (packet.id - envelope.first_packet) * size;
                    let nodes = &self.model.placement.node;
                    let bytes = (envelope.bytes - before).min(size) as u32;
                    let arrival = DeliveredPacket {
                        packet: packet.id,
                        message,
                        label: envelope.label,
                        bytes,
                        // `get` instead of an index: a probe that does not use the node then has no
                        // bounds check.
                        src: nodes.get(envelope.src as usize).map_or(NIL, |&node| node),
                        dst: packet.node,
                        hops: packet.hops,
                        observed: packet.observed(),
                    };
                    self.probe.delivered(time, arrival, packet.mark);
                }
                let alone = !self.last_stands_for_all();
                let state = &mut self.receives[self.model.receive_of(message) as usize];
                if self.model.settings.in_order() {
                    let number = (packet.id - envelope.first_packet) as u32;
                    assert_eq!(number, state.received, "packet of message {message} out of order");
                }
                let packets = if alone { 1 } else { state.packets_left };
                self.delivered += u64::from(packets);
                state.received += packets;
                state.switch_hops += u32::from(packet.hops) * packets;
                state.packets_left -= packets;
                state.arrival_ps = state.arrival_ps.max(time);
                if state.packets_left > 0 {
                    return;
                }
                ARRIVED
            }
        };
        self.queue.push(Event::new(time, EventKind::Message, message, what));
    }

    pub(super) fn message_arrived(&mut self, message: u32) {
        let envelope = &self.model.program.messages[message as usize];
        let state = &mut self.receives[self.model.receive_of(message) as usize];
        assert!(!state.arrived, "message {message} arrived twice");
        state.arrived = true;
        if state.posted {
            self.received(message);
            self.request_completed(envelope.dst);
        }
    }

    fn rank(&mut self, rank: u32) -> &mut Rank {
        &mut self.ranks[self.model.local_rank(rank) as usize]
    }

    /// A request of `rank` is complete: the rank may continue.
    fn request_completed(&mut self, rank: u32) {
        let now = self.now;
        if let Some(request) = self.rank(rank).completed()
            && self.is_complete(rank, request)
        {
            self.rank(rank).unblock(now);
            self.continue_rank(rank);
        }
    }

    fn is_complete(&mut self, rank: u32, request: Request) -> bool {
        match request {
            Request::Send(message) => self.sends[self.model.send_of(message) as usize].complete,
            Request::Receive(message) => {
                let state = &self.receives[self.model.receive_of(message) as usize];
                state.arrived && state.posted
            }
            Request::All => self.rank(rank).all_complete(),
        }
    }

    fn post_send(&mut self, rank: u32, message: u32, synchronous: bool) {
        let copied = !synchronous && self.is_copied(message);
        if !copied {
            self.rank(rank).opened();
        }
        let state = &mut self.sends[self.model.send_of(message) as usize];
        (state.post_ps, state.synchronous, state.complete) = (self.now, synchronous, copied);
        let time = self.now + self.processor_ps(message) + self.model.settings.send_delay_ps;
        self.queue.push(Event::new(time, EventKind::Message, message, READY));
    }

    /// Whether the bytes of a message are copied before they leave, so that its sender goes on.
    fn is_copied(&self, message: u32) -> bool {
        let settings = &self.model.settings;
        let envelope = &self.model.program.messages[message as usize];
        settings.eager_sends == EagerSends::Copied
            && envelope.bytes <= settings.eager_bytes
            && !self.model.same_host(envelope)
    }

    fn post_receive(&mut self, rank: u32, message: u32) {
        let receive = self.model.receive_of(message);
        let state = &mut self.receives[receive as usize];
        state.posted = true;
        let (arrived, requested) = (state.arrived, state.requested);
        if arrived {
            let program = &self.model.program;
            if self.acknowledges_by_packet(message) {
                self.reply_to_sender(message);
            } else if program.synchronous || program.acknowledges(message) {
                // The sender resumes by an event: otherwise calls would nest as deep as a chain of
                // ranks is long.
                self.queue.push(Event::new(self.now, EventKind::Message, message, RECEIVED));
            }
        } else {
            self.rank(rank).opened();
            if requested {
                self.reply_to_sender(message);
            }
        }
    }

    /// Whether the receiver acknowledges `message` over the network: ranks of one host need no packet.
    fn acknowledges_by_packet(&self, message: u32) -> bool {
        let program = &self.model.program;
        program.acknowledges(message) && !self.model.same_host(&program.messages[message as usize])
    }

    /// Sends the sender of `message` a clear to send, or an acknowledgement after the message. Within
    /// a host an event tells it: calls would nest otherwise.
    fn reply_to_sender(&mut self, message: u32) {
        let envelope = &self.model.program.messages[message as usize];
        if self.model.same_host(envelope) {
            let cleared = Event::new(self.now, EventKind::Message, message, CLEARED);
            return self.queue.push(cleared);
        }
        let node = self.model.placement.node[envelope.dst as usize];
        self.enqueue(node, message, PacketKind::ClearToSend);
    }
}
