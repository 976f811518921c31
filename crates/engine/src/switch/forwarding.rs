//! Forwarding: arrival at a switch, credit, departure.
//!
//! A link serves packets in the order in which they obtain credit, and credit is granted in order
//! of arrival. So a packet's departure can be computed as soon as it has credit, and nothing
//! happens until it arrives at the next switch: one event per hop. Returning credit is noted at its
//! lane; it is an event only if something waits for it or
//! there is no space for the note.

use crate::events::queue::{Event, EventKind};
use crate::network::cable::Cable;
use crate::network::link::{Lane, NIL};
use crate::network::load::Chosen;
use crate::network::packet::{Flags, Packet};
use crate::parallel::exchange::Credit;
use crate::probe::{Hop, Probe, SentPacket, Transmission};
use crate::rng::{Stream, random};
use crate::settings::{Buffering, CongestionScheme, MarkingPoint, MarkingRule, Switching};
use crate::shard::Shard;
use crate::switch::route::{Output, Route};

impl<P: Probe> Shard<'_, P> {
    /// A packet that came by `link` is ready to leave a switch, the switch delay included. On
    /// an ideal network: its tail reaches its node.
    pub fn on_arrival(&mut self, link: u32, slot: u32, route: Option<(Route, Option<Chosen>)>) {
        let model = self.model;
        let packet = &self.packets[slot];
        let Packet { next: dst, service, wire, tail_ready, input, .. } = *packet;
        if model.is_node(dst) {
            return self.deliver(slot, self.now);
        }
        let (route, chosen) = route.unwrap_or_else(|| (self.route(packet).0, None));
        let out = self.choose_output(dst - model.n_nodes, slot, service, route, chosen);
        self.packet_hops += 1;
        if self.has_congestion_control {
            self.control_congestion(dst, out.lane, slot);
        }
        if P::ON && !self.marks_on_grant && model.settings.when == MarkingPoint::Arrival {
            self.mark(out, slot, wire);
        }
        // The head waits before a faster link, so that the tail arrives in time.
        let cable = self.links.cable(self.links.lane(out.lane));
        let busy = cable.serialization_ps(wire);
        if tail_ready > self.now + busy {
            if P::ON && self.marks_on_grant {
                self.mark(out, slot, wire);
            }
            self.packets[slot].next = out.lane;
            let time = tail_ready - busy;
            self.queue.push(Event::new(time, EventKind::HeadReady, link, slot));
        } else {
            let input = self.input_link(dst, input);
            self.request_output(
                out,
                slot,
                wire,
                (cable, busy),
                input,
                P::ON && self.marks_on_grant,
            );
        }
    }

    /// A packet that waited for its tail may leave.
    pub fn on_held_back(&mut self, slot: u32) {
        let packet = &mut self.packets[slot];
        packet.ready = self.now;
        let (lane, wire) = (packet.next, packet.wire);
        let out = Output { link: self.links.link_of(lane), lane };
        let cable = self.links.cable(self.links.lane(lane));
        let input = self.input_link_of_waiting(out.link, slot);
        self.request_output(out, slot, wire, (cable, cable.serialization_ps(wire)), input, false);
    }

    /// The reverse link of an input port of `switch`, shard index; [`NIL`] if no probe needs
    /// it.
    #[inline(always)]
    pub(super) fn input_link(&self, switch: u32, port: u16) -> u32 {
        if P::ON && self.probe.wants_inputs() {
            self.model.first_port(switch) + u32::from(port)
        } else {
            NIL
        }
    }

    /// The reverse link of the input port of a packet that waits for `link`; [`NIL`] if no
    /// probe needs it.
    pub fn input_link_of_waiting(&self, link: u32, slot: u32) -> u32 {
        if !(P::ON && self.probe.wants_inputs()) {
            return NIL;
        }
        let packet = &self.packets[slot];
        if packet.from == self.number {
            // The lane to which its credit returns is in the cache.
            return self.input_link(self.links.lane(packet.lane).dst, packet.input);
        }
        self.input_link_of(link, slot)
    }

    /// A packet of `wire` bytes takes its output or waits for it. `marks` says whether its hop
    /// is still to be reported.
    #[inline(always)]
    fn request_output(
        &mut self,
        out: Output,
        slot: u32,
        wire: u32,
        sending: (Cable, u64),
        input: u32,
        marks: bool,
    ) {
        if self.arbitrated {
            self.request(out.lane, slot);
            return;
        }
        let now = self.links.present(self.now);
        let state = self.links.lane_mut(out.lane);
        if !state.is_starving() && state.take_credit(wire, now) {
            if marks {
                self.report_hop(out, slot, wire, false);
            }
            self.depart(out, slot, sending, 0, input);
        } else {
            if marks {
                // There is too little credit for this packet, or for the first that
                // waits.
                debug_assert!(self.congested(out.lane, slot, wire));
                self.report_hop(out, slot, wire, true);
            }
            self.wait_for_credit(out.lane, slot, input);
        }
    }

    /// Applies congestion control to a packet at `switch` that will leave by `lane`.
    #[inline(never)]
    fn control_congestion(&mut self, switch: u32, lane: u32, slot: u32) {
        if let Some(control) = &self.model.settings.congestion_control {
            let switch = switch - self.model.n_nodes;
            self.mark_congestion(
                control,
                self.model.partition.local_switch[switch as usize],
                lane,
                slot,
            );
        }
    }

    /// Bytes booked on the link of `lane` plus those that wait for the lane.
    pub fn queued(&self, lane: u32) -> u64 {
        let link = self.links.cable(self.links.lane(lane));
        let booked = self.links.free_at(self.links.link_of(lane)).saturating_sub(self.now);
        link.bytes_in(booked) + self.links.loads.waiting(lane)
    }

    /// Credit has returned to a lane.
    ///
    /// It counts as an event only if it lets a packet leave: whether other such events exist
    /// depends on the partition.
    pub fn on_credit(&mut self, lane: u32, bytes: u32) {
        let before = self.transmissions;
        if self.pauses.is_on() {
            self.on_buffer_report(lane, bytes);
            self.events -= u64::from(self.transmissions == before);
            return;
        }
        let state = self.links.lane_mut(lane);
        state.add(bytes);
        if state.is_starving() {
            self.grant_waiters(lane);
        }
        self.events -= u64::from(self.transmissions == before);
    }

    /// Grants credit to the packets that wait at a lane, in order.
    #[inline(never)]
    fn grant_waiters(&mut self, lane: u32) {
        let link = self.links.link_of(lane);
        let state = self.links.lane(lane);
        if state.starts_at_node() {
            return self.send_next(self.model.fabric.link_src[state.global as usize]);
        }
        if self.arbitrated {
            self.links.lane_mut(lane).clear_starving();
            return self.schedule_arbitration(link);
        }
        loop {
            let state = self.links.lane_mut(lane);
            let Some((slot, _)) = state.waiting_ends() else {
                state.clear_starving();
                return;
            };
            if state.credit_below_smallest() {
                return;
            }
            let packet = &self.packets[slot];
            let (wire, next) = (packet.wire, packet.next);
            let had_data_since = packet.ready.max(self.links.free_at(link));
            let now = self.now;
            if !self.links.take_credit(lane, wire, now) {
                return;
            }
            self.links.lane_mut(lane).dequeue(next);
            self.links.dequeue(lane, wire);
            let input = self.input_link_of_waiting(link, slot);
            if P::ON {
                self.probe.dequeued(self.now, link, wire, input);
            }
            let cable = self.links.cable(self.links.lane(lane));
            let sending = (cable, cable.serialization_ps(wire));
            let stall_ps = self.now.saturating_sub(had_data_since);
            self.depart(Output { link, lane }, slot, sending, stall_ps, input);
        }
    }

    /// Marks a packet as its head leaves.
    pub fn on_departure(&mut self, lane: u32, slot: u32) {
        let out = Output { link: self.links.link_of(lane), lane };
        self.mark_queued(out, slot);
        let cable = self.links.cable(self.links.lane(lane));
        let end = self.now + cable.serialization_ps(self.packets[slot].wire);
        self.forward(out, slot, cable, (self.now, end));
    }

    /// Returns to `lane`, of this shard, buffer space that is free at `freed`.
    #[inline(always)]
    pub fn return_credit(&mut self, lane: u32, freed: u64, wire: u32) {
        let (time, tell) = self.links.return_credit(lane, freed, wire);
        if tell {
            self.schedule_credit(lane, time, wire);
        }
    }

    /// Schedules an event for returning credit.
    #[inline(never)]
    pub fn schedule_credit(&mut self, lane: u32, time: u64, bytes: u32) {
        self.queue.push_for(
            self.links.lane(lane).src_group,
            Event::new(time, EventKind::Credit, lane, bytes),
        );
    }

    /// Marks `lane` as waited for: noted credit becomes events.
    pub fn starve(&mut self, lane: u32) {
        for (time, bytes) in self.links.starve(lane) {
            self.queue.push(Event::new(time, EventKind::Credit, lane, bytes));
        }
    }

    /// Appends a packet to the queue for credit of `lane`.
    fn wait_for_credit(&mut self, lane: u32, slot: u32, input: u32) {
        self.starve(lane);
        let wire = self.packets[slot].wire;
        if let Some(before) = self.links.lane_mut(lane).enqueue(slot, wire) {
            self.packets[before].next = slot;
        }
        self.links.enqueue(lane, wire);
        if P::ON {
            let link = self.links.link_of(lane);
            self.probe.enqueued(self.now, link, wire, input);
        }
    }

    /// A packet with credit leaves by `out`, whose cable takes `busy_ps`: computes when it
    /// leaves, arrives, and frees its buffer.
    #[inline(always)]
    pub fn depart(
        &mut self,
        out: Output,
        slot: u32,
        (cable, busy_ps): (Cable, u64),
        stall_ps: u64,
        input: u32,
    ) {
        let model = self.model;
        self.transmissions += 1;
        let start = self.links.reserve(out.link, self.now, busy_ps);
        let end = start + busy_ps;
        let packet = &mut self.packets[slot];
        let (wire, tail_ready, message) = (packet.wire, packet.tail_ready, packet.message);
        let (in_lane, from, observed) = (packet.lane, packet.from, packet.observed());
        if self.has_congestion_control {
            packet.flags.set(Flags::STALLED, stall_ps > 0);
        }
        if P::ON {
            let sending = Transmission { start, busy_ps, stall_ps };
            let sent = SentPacket { wire, observed, message, input };
            self.probe.sent(self.now, out.link, sending, sent);
        }
        let marks = P::ON && !self.marks_on_grant;
        if marks && model.settings.when == MarkingPoint::Departure {
            self.queue.push(Event::new(start, EventKind::Departure, out.lane, slot));
        } else {
            if marks && model.settings.when == MarkingPoint::Insertion {
                self.mark_queued(out, slot);
            }
            self.forward(out, slot, cable, (start, end));
        }
        let switch_delay = model.settings.switch_delay_ps;
        let freed = match model.settings.buffering {
            Buffering::Input => end,
            Buffering::Output => tail_ready - switch_delay,
        };
        // Buffer space is returned no sooner than a switch delay after the decision.
        let freed = freed.max(self.now + switch_delay);
        if from == self.number {
            self.return_credit(in_lane, freed, wire);
        } else {
            let credit = Credit { freed, lane: in_lane, bytes: wire };
            self.outbox[usize::from(from)].credits.push(credit);
            self.first_handoff_ps = self.first_handoff_ps.min(freed + model.least_cable_ps);
        }
    }

    /// Forwards a packet whose head leaves at `start` and whose tail leaves at `end` along
    /// `cable`.
    #[inline(always)]
    fn forward(&mut self, out: Output, slot: u32, cable: Cable, (start, end): (u64, u64)) {
        let state = self.links.lane(out.lane);
        if state.leads_to_node() {
            // Nodes receive at line rate: credit returns when the tail arrives.
            let arrival = end + u64::from(cable.delay);
            self.return_credit(out.lane, arrival, self.packets[slot].wire);
            return self.deliver(slot, arrival);
        }
        let latency = u64::from(cable.delay) + self.model.settings.switch_delay_ps;
        let Lane { global, shard, dst, port, .. } = *state;
        let tail_ready = end + latency;
        let ready = match self.model.settings.switching {
            Switching::CutThrough => start + latency,
            Switching::StoreAndForward => tail_ready,
        };
        let packet = &mut self.packets[slot];
        let (hops, lane, from) = (packet.hops + 1, out.lane, self.number);
        if shard == from {
            (packet.next, packet.input, packet.hops) = (dst, port, hops);
            (packet.ready, packet.tail_ready) = (ready, tail_ready);
            (packet.lane, packet.from) = (lane, from);
            let arrival = Event::new(ready, EventKind::Arrival, global, slot);
            self.queue.push_for(self.model.group(dst), arrival);
        } else {
            let light = self.congestion.lights.on_packet(slot);
            let there = self.outbox[usize::from(shard)].add_packet(global, light);
            let input = port;
            *there = Packet { next: dst, input, hops, ready, tail_ready, lane, from, ..*packet };
            self.first_handoff_ps = self.first_handoff_ps.min(ready);
            self.packets.remove(slot);
        }
    }

    /// Reports this hop for a packet that is in the queue.
    #[inline(never)]
    fn mark_queued(&mut self, out: Output, slot: u32) {
        self.mark(out, slot, 0);
    }

    /// Reports this hop to the probe; `joining` bytes of the packet are not in the queue yet.
    #[inline(always)]
    fn mark(&mut self, out: Output, slot: u32, joining: u32) {
        if self.probe.wants_hops() {
            let congested = self.congested(out.lane, slot, joining);
            self.report_hop(out, slot, joining, congested);
        }
    }

    /// Reports this hop when it is known whether it was congested.
    #[inline(always)]
    fn report_hop(&mut self, out: Output, slot: u32, joining: u32, congested: bool) {
        if !self.probe.wants_hops() {
            return;
        }
        let drain_ps = if self.probe.wants_queue() {
            let cable = self.links.cable(self.links.lane(out.lane));
            cable.drain_ps(self.queued(out.lane) + u64::from(joining))
        } else {
            0
        };
        let packet = &mut self.packets[slot];
        let hop = Hop {
            local: out.link,
            link: self.links.lane(out.lane).global,
            congested,
            drain_ps,
            packet: packet.id,
            message: packet.message,
            index: packet.hops - 1 + u8::from(self.model.settings.count_injection),
        };
        let bits = self.model.reservoir.draw(packet.id, packet.hops.into());
        self.probe.hop(self.now, hop, packet.observed(), &mut packet.mark, bits);
    }

    /// The congestion rule (Taffet 2019, §3.2, §5.10).
    ///
    /// A packet is booked on a link only with its credit in hand, so booked bytes cancel out of
    /// "queue exceeds credit": bytes waiting for credit are compared with the credit that is
    /// left.
    #[inline(always)]
    fn congested(&mut self, lane: u32, slot: u32, joining: u32) -> bool {
        if self.model.settings.rule == MarkingRule::QueueExceedsCredit {
            return self.lacks_credit(lane, self.links.loads.waiting(lane) + u64::from(joining));
        }
        self.congested_by_other_rules(lane, slot, joining)
    }

    /// The other congestion rules.
    #[inline(never)]
    fn congested_by_other_rules(&mut self, lane: u32, slot: u32, joining: u32) -> bool {
        let model = self.model;
        let queued = self.queued(lane) + u64::from(joining);
        let limit = model.settings.rule_bytes;
        match model.settings.rule {
            MarkingRule::QueueExceedsCredit => false,
            MarkingRule::Queue => queued > limit,
            MarkingRule::Credit => self.lacks_credit(lane, limit),
            MarkingRule::Proportional => {
                let Packet { id, hops, .. } = self.packets[slot];
                let bits = random(model.settings.seed, Stream::Mark, id, hops.into()) >> 32;
                u128::from(bits) * u128::from(limit) < u128::from(queued) << 32
            }
            MarkingRule::Fecn => {
                let wire = self.packets[slot].wire;
                model.settings.congestion_control.as_ref().is_some_and(|control| {
                    if let CongestionScheme::Dcqcn(dcqcn) = &control.scheme {
                        return queued > dcqcn.kmin_bytes;
                    }
                    queued > control.threshold_bytes
                        && wire >= control.packet_bytes
                        && (control.victims || self.is_root(lane, wire))
                })
            }
        }
    }

    /// Whether `lane` has less than `bytes` of credit.
    #[inline(always)]
    fn lacks_credit(&mut self, lane: u32, bytes: u64) -> bool {
        let now = self.now;
        u32::try_from(bytes).map_or(true, |bytes| !self.links.has(lane, bytes, now))
    }
}
