//! Injection: adapters split messages into packets and send them one at a time.

use crate::congestion::{ReactionPoint, assigned_mbps};
use crate::events::queue::{Event, EventKind};
use crate::host::adapter::{Adapter, Outgoing};
use crate::host::pacing::interval;
use crate::intrinsics::prefetch;
use crate::network::link::{Lane, NEVER, NIL};
use crate::network::packet::{Flags, Light, PacketKind};
use crate::probe::{Hop, Probe, SentPacket, Transmission};
use crate::settings::{CongestionControl, CongestionScheme, Dcqcn, Injection, Switching};
use crate::shard::Shard;

impl<P: Probe> Shard<'_, P> {
    /// Queues a message or control packet at the adapter of `node`.
    pub fn enqueue(&mut self, node: u32, message: u32, content: PacketKind) {
        let model = self.model;
        let by_destination = model.settings.injection == Injection::PerDestination;
        let begin = self.now + model.pacing_offset(message);
        let outgoing = self.outgoing(message);
        let adapter = self.adapter(node);
        match content {
            PacketKind::Data if by_destination => {
                let dst = model.program.messages[message as usize].dst;
                adapter.flows().push(model.placement.node[dst as usize], message, begin);
            }
            PacketKind::Data => adapter.push(outgoing),
            _ => {
                adapter.control.push_back((message, content, Light::default()));
                self.interrupt_train(node);
            }
        }
        if !self.adapter(node).pending {
            self.send_next(node);
        }
    }

    /// Sends a notification from `node` to the sender of `message` that its packets meet
    /// congestion.
    pub fn send_notification(&mut self, node: u32, message: u32, light: Light) {
        if !self.answers_mark(node, message) {
            return;
        }
        self.congestion.notifications += 1;
        let adapter = self.adapter(node);
        adapter.control.push_back((message, PacketKind::Congestion, light));
        if !adapter.pending {
            self.send_next(node);
        }
    }

    /// The queue entry of a message that starts in this shard.
    fn outgoing(&self, message: u32) -> Outgoing {
        Outgoing { message, send: self.model.send_of(message) }
    }

    /// Prefetches the adapter of `node`.
    #[inline]
    pub fn prefetch_adapter(&self, node: u32) {
        prefetch(&self.adapters, self.model.partition.local_node(node));
    }

    /// Prefetches what the next packet of `node` will need.
    #[inline]
    pub fn prefetch_next_send(&self, node: u32) {
        let Adapter { link, first, .. } = self.adapters[self.local(node)];
        self.links.prefetch_lane_and_load(self.links.lane_of(link, 0));
        prefetch(&self.sends, first.send);
        if P::ON {
            self.probe.prefetch(link, NIL);
        }
    }

    /// The adapter's link is free again, or a train has left (its number, else 0).
    pub fn on_adapter(&mut self, node: u32, train: u32) {
        if train != 0 && !self.finish_train(node, train) {
            return;
        }
        self.adapter(node).pending = false;
        self.send_next(node);
    }

    /// Index of a node in the shard.
    #[inline]
    fn local(&self, node: u32) -> usize {
        self.model.partition.local_node(node) as usize
    }

    pub fn adapter(&mut self, node: u32) -> &mut Adapter {
        let local = self.local(node);
        &mut self.adapters[local]
    }

    /// Sends the next packet of `node` if link and credit allow; otherwise schedules an event
    /// for when they do.
    pub fn send_next(&mut self, node: u32) {
        let local = self.local(node);
        let adapter = &mut self.adapters[local];
        let link = adapter.link;
        let (message, content, light) = match (adapter.control.front(), adapter.first) {
            (Some(&(message, content, light)), _) => (self.outgoing(message), content, light),
            (None, Outgoing::NONE) if adapter.is_idle() => return,
            (None, Outgoing::NONE) => return self.send_from_flows(node, link),
            (None, message) => (message, PacketKind::Data, Light::default()),
        };
        if self.links.free_at(link) > self.now {
            return self.schedule_retry(node, link);
        }
        if !P::ON
            && !self.model.settings.contention
            && content == PacketKind::Data
            && self.begin_train(node, message)
        {
            return;
        }
        let Some((slot, last)) = self.make_packet(message, content, link) else {
            return self.stall(node);
        };
        let adapter = &mut self.adapters[local];
        if content != PacketKind::Data {
            adapter.control.pop_front();
        } else if last {
            adapter.pop();
        } else if adapter.has_others {
            self.adapters_shared = true;
            if self.model.settings.injection == Injection::RoundRobin {
                adapter.rotate();
            }
        }
        let needs_event = adapter.needs_event();
        let free = self.inject((node, link), slot, light, last);
        if needs_event {
            self.queue.push(Event::new(free, EventKind::Adapter, node, 0));
        }
    }

    /// Schedules the adapter for when its link is free, if it has more to send.
    fn schedule_retry(&mut self, node: u32, link: u32) {
        if self.adapter(node).needs_event() {
            let free = self.links.free_at(link);
            self.queue.push(Event::new(free, EventKind::Adapter, node, 0));
        }
    }

    /// Sends the next packet of the first queue whose time has come and whose lane has credit.
    #[inline(never)]
    fn send_from_flows(&mut self, node: u32, link: u32) {
        let now = self.now;
        if self.links.free_at(link) > now {
            return self.schedule_retry(node, link);
        }
        let mut place = 0;
        while let Some((at, message)) = self.adapter(node).flows().ready(place, now) {
            let outgoing = self.outgoing(message);
            let Some((slot, last)) = self.make_packet(outgoing, PacketKind::Data, link) else {
                place = at + 1;
                continue;
            };
            let wire = self.packets[slot].wire;
            let cable = self.links.cable_of(link);
            let busy = cable.serialization_ps(wire);
            let settings = &self.model.settings;
            let pace = self.model.program.messages[message as usize].pace_mbps;
            self.adapter(node).flows().packet_sent(at, last, |flow| {
                let control = settings.congestion_control.as_ref();
                let pause = |c: &CongestionControl| flow.rest(c, now, (wire, busy), cable);
                let rested = now + control.map_or(0, pause);
                let pace = flow.assigned.filter(|of| of.0 == message).map_or(pace, |of| of.1);
                if pace == 0 {
                    return rested;
                }
                let interval = interval(wire, pace);
                rested.max(flow.timetable.sent(settings.pacing, now, interval, wire))
            });
            self.inject((node, link), slot, Light::default(), last);
            return self.schedule_retry(node, link);
        }
        if place > 0 {
            self.stall(node);
        }
        let flows = self.adapter(node).flows();
        let next = flows.next_at(now);
        if next != NEVER && (flows.wake_at <= now || next < flows.wake_at) {
            flows.wake_at = next;
            self.queue.push(Event::new(next, EventKind::Adapter, node, 0));
        }
    }

    /// `node` has data, a free link, and no credit.
    #[inline(always)]
    fn stall(&mut self, node: u32) {
        if P::ON {
            let now = self.now;
            self.adapter(node).stall(now);
        }
    }

    /// `node` receives a congestion notification for the destination of `message`.
    pub fn on_congestion_notice(&mut self, node: u32, message: u32, light: Light) {
        let (model, now) = (self.model, self.now);
        let dst = model.program.messages[message as usize].dst;
        let flows = self.adapter(node).flows();
        let to = model.placement.node[dst as usize];
        match &model.settings.congestion_control {
            Some(CongestionControl { scheme: CongestionScheme::Rgbcc { .. }, .. }) => {
                flows.stop(to, light)
            }
            Some(CongestionControl { scheme: CongestionScheme::Dcqcn(dcqcn), .. }) => {
                self.lower_rate(node, to, dcqcn)
            }
            Some(CongestionControl { scheme: CongestionScheme::Assignment, .. }) => {
                let bytes = model.program.messages[message as usize].bytes;
                flows.flow(to).assigned = Some((message, assigned_mbps(bytes, light.output)));
            }
            Some(control) => flows.flow(to).throttle.notified(now, control),
            None => {}
        }
    }

    /// Makes the next packet of a message; returns its slot and whether it is the last, or
    /// `None` if it must wait for credit.
    #[inline(always)]
    fn make_packet(
        &mut self,
        Outgoing { message, send }: Outgoing,
        content: PacketKind,
        link: u32,
    ) -> Option<(u32, bool)> {
        let (model, now) = (self.model, self.now);
        let data = content == PacketKind::Data;
        let (payload, service) = if data {
            let state = &self.sends[send as usize];
            let full = model.settings.packet_bytes.into();
            (state.bytes_unsent.min(full) as u32, state.service)
        } else {
            (0, model.service(&model.program.messages[message as usize]))
        };
        let wire = model.settings.wire_bytes(payload);
        let lane = self.links.lane_of(link, service);
        let brief = self.links.present(now);
        let state = self.links.lane_mut(lane);
        let waited = state.clear_starving();
        if model.settings.contention && !state.take_credit(wire, brief) {
            self.starve(lane);
            if P::ON {
                self.probe.blocked(self.now, link, wire);
            }
            return None;
        }
        let slot = self.packets.make();
        let packet = &mut self.packets[slot];
        (packet.message, packet.wire, packet.lane) = (message, wire, lane);
        (packet.from, packet.service) = (self.number, service);
        packet.flags.set(Flags::STALLED, waited);
        if !data {
            let envelope = &model.program.messages[message as usize];
            let back = matches!(content, PacketKind::ClearToSend | PacketKind::Congestion);
            let to = if back { envelope.src } else { envelope.dst };
            packet.id = content.numbered(envelope.first_packet);
            packet.node = model.placement.node[to as usize];
            return Some((slot, false));
        }
        let state = &mut self.sends[send as usize];
        packet.id = content.numbered(state.next_packet);
        packet.node = state.node;
        packet.flags.set(Flags::OBSERVED, state.observed);
        state.start_ps = state.start_ps.min(now);
        state.next_packet += 1;
        state.bytes_unsent -= u64::from(payload);
        state.packets_unsent -= 1;
        Some((slot, state.packets_unsent == 0))
    }

    /// Puts the packet in `slot` on the link of the node now, with `light` if it notifies of one; `last`
    /// says whether it completes its message. Returns when the link is free again.
    #[inline(always)]
    fn inject(&mut self, (node, link): (u32, u32), slot: u32, light: Light, last: bool) -> u64 {
        let (model, now) = (self.model, self.now);
        self.transmissions += 1;
        let stall_ps = if P::ON { self.adapter(node).end_stall(now) } else { 0 };
        let packet = &mut self.packets[slot];
        let (message, wire, observed) = (packet.message, packet.wire, packet.observed());
        let content = packet.content();
        let cable = self.links.cable_of(link);
        let busy = cable.serialization_ps(wire);
        let (end, delay) = (self.now + busy, u64::from(cable.delay));
        let paced = match model.settings.injection_mbps {
            0 => busy,
            mbps => busy.max(interval(wire, mbps)),
        };
        self.links.reserve(link, self.now, paced);
        if P::ON {
            let sending = Transmission { start: now, busy_ps: busy, stall_ps };
            let sent = SentPacket { wire, observed, message, input: NIL };
            self.probe.sent(self.now, link, sending, sent);
            if model.settings.count_injection {
                let bits = model.reservoir.draw(packet.id, 0xff);
                let hop = Hop {
                    local: link,
                    link: self.links.global(link),
                    congested: false,
                    drain_ps: 0,
                    packet: packet.id,
                    message,
                    index: 0,
                };
                self.probe.hop(self.now, hop, observed, &mut packet.mark, bits);
            }
        }
        if last {
            self.queue.push(Event::new(end, EventKind::MessageSent, message, 0));
        }
        if !model.settings.contention {
            self.send_uncontended((link, slot), end + delay, last, light);
            return self.now + paced;
        }
        let &Lane { global, dst, port, .. } = self.links.lane(self.links.lane_of(link, 0));
        (packet.hops, packet.next, packet.input) = (1, dst, port);
        let switch_delay = model.settings.switch_delay_ps;
        packet.tail_ready = end + delay + switch_delay;
        packet.ready = match model.settings.switching {
            Switching::CutThrough => self.now + delay + switch_delay,
            Switching::StoreAndForward => packet.tail_ready,
        };
        let arrival = Event::new(packet.ready, EventKind::Arrival, global, slot);
        let lane = packet.lane;
        self.congestion.lights.attach(slot, light);
        if self.has_congestion_control && content == PacketKind::Data {
            self.begin_probe(lane, slot);
        }
        self.queue.push(arrival);
        if self.pauses.is_on() {
            self.expect_arrival(lane, wire, end);
        }
        self.now + paced
    }

    /// With an assignment, a data packet collects the weight of the link it leaves its node by; one in
    /// several asks for an answer.
    #[inline(never)]
    fn begin_probe(&mut self, lane: u32, slot: u32) {
        let Some(control) = &self.model.settings.congestion_control else { return };
        if control.scheme == CongestionScheme::Assignment {
            self.collect_weight(lane, slot);
            let packet = &mut self.packets[slot];
            let message = &self.model.program.messages[packet.message as usize];
            let number = packet.id - message.first_packet;
            let probes = number.is_multiple_of(u64::from(control.marking_rate) + 1);
            packet.flags.set(Flags::NOTIFIED, probes);
        }
    }

    /// Whether `node` answers the mark of a packet of `message` by a notification. DCQCN limits how
    /// often; other schemes answer each.
    pub(super) fn answers_mark(&mut self, node: u32, message: u32) -> bool {
        let (model, now) = (self.model, self.now);
        let Some(CongestionScheme::Dcqcn(dcqcn)) = model.congestion_scheme() else { return true };
        let src = model.program.messages[message as usize].src;
        let sender = model.placement.node[src as usize];
        self.adapter(node).flows().notification_point.answers(sender, now, dcqcn)
    }

    /// `node` is notified that its packets to the node `to` meet congestion: their rate falls.
    pub(super) fn lower_rate(&mut self, node: u32, to: u32, dcqcn: &Dcqcn) {
        let now = self.now;
        let link = self.adapter(node).link;
        let line = self.links.cable_of(link).mbps();
        let flow = self.adapter(node).flows().flow(to);
        flow.reaction.get_or_insert_with(ReactionPoint::new).notified(now, dcqcn, line);
    }
}
