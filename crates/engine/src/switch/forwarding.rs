//! Forwarding: arrival at a switch, choice of output, credit, departure.
//!
//! A link serves packets in the order in which they obtain credit, and credit is granted in order
//! of arrival. So a packet's departure can be computed as soon as it has credit, and nothing
//! happens until it arrives at the next switch: one event per hop. Returning credit is noted at its
//! lane; it is an event only where somebody waits for it or there is no room for a note.

use std::hint::select_unpredictable;

use crate::events::queue::{Event, EventKind};
use crate::network::link::{Lane, NEVER, NIL};
use crate::network::packet::{Flags, Packet, PacketKind};
use crate::probe::{Hop, Probe, SentPacket, Transmission};
use crate::rng::{Stream, below, random};
use tailback_fabric::{RouteState, Step};

use crate::network::cable::Cable;
use crate::parallel::exchange::Credit;
use crate::settings::{Buffering, Detour, MarkingPoint, MarkingRule, Routing, Switching};
use crate::shard::Shard;
use crate::switch::route::{Output, Route};

impl<P: Probe> Shard<'_, P> {
    /// A packet that came by `link` is ready to leave a switch, the switch delay included. On
    /// an ideal network: its tail reaches its node.
    pub fn on_arrival(&mut self, link: u32, slot: u32, route: Option<Route>) {
        let model = self.model;
        let packet = &self.packets[slot];
        let Packet { next: dst, service, wire, tail_ready, input, .. } = *packet;
        if model.is_node(dst) {
            return self.deliver(slot, self.now);
        }
        let route = route.unwrap_or_else(|| self.route(packet).0);
        let out = self.choose_output(dst - model.n_nodes, slot, service, route);
        self.packet_hops += 1;
        if self.has_congestion_control {
            self.control_congestion(dst, out.lane, slot);
        }
        if P::ON && !self.marks_on_grant && model.settings.when == MarkingPoint::Arrival {
            self.mark(out, slot, wire);
        }
        // Before a faster link the head waits, so that the tail is there when it is due.
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
    fn input_link(&self, switch: u32, port: u16) -> u32 {
        if P::ON && self.probe.wants_inputs() {
            self.model.first_port(switch) + u32::from(port)
        } else {
            NIL
        }
    }

    /// The reverse link of the input port of a packet that waits for `link`; [`NIL`] if no
    /// probe needs it.
    pub fn input_link_of_waiting(&self, link: u32, slot: u32) -> u32 {
        if P::ON && self.probe.wants_inputs() { self.input_link_of(link, slot) } else { NIL }
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
        if !state.is_starving() && state.take(wire, now) {
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
        let state = self.links.lane_mut(lane);
        state.add(bytes);
        if state.is_starving() {
            self.grant_waiters(lane);
        }
        self.events -= u64::from(self.transmissions == before);
    }

    /// Grants credit to those who wait at a lane, in order.
    #[inline(never)]
    fn grant_waiters(&mut self, lane: u32) {
        let link = self.links.link_of(lane);
        let state = self.links.lane(lane);
        if state.starts_at_node() {
            return self.send_next(self.model.fabric.link_src[state.global as usize]);
        }
        if self.arbitrated {
            self.links.lane_mut(lane).clear_starving();
            return self.give_out(link);
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
            if !self.links.take(lane, wire, now) {
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
        let start = self.links.book(out.link, self.now, busy_ps);
        let end = start + busy_ps;
        let packet = &mut self.packets[slot];
        let (wire, tail_ready) = (packet.wire, packet.tail_ready);
        let (in_lane, from, observed) = (packet.lane, packet.from, packet.observed());
        if self.has_congestion_control {
            packet.flags.set(Flags::STALLED, stall_ps > 0);
        }
        if P::ON {
            let sending = Transmission { start, busy_ps, stall_ps };
            self.probe.sent(self.now, out.link, sending, SentPacket { wire, observed, input });
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

    /// Chooses the lane by which a packet leaves.
    #[inline(always)]
    fn choose_output(&mut self, switch: u32, slot: u32, service: u8, route: Route) -> Output {
        let Route { start, n, first } = route;
        let (link, lane) = match n {
            0 => self.choose_by_rule(switch, slot),
            _ => {
                (self.links.least_loaded_in_range(start, n.into(), first.into(), self.now), service)
            }
        };
        Output { link, lane: self.links.lane_of(link, lane) }
    }

    /// The part of the route of `packet`, which heads for a switch, that does not depend on
    /// load; and whether the next link leads to its node.
    #[inline(always)]
    fn route(&self, packet: &Packet) -> (Route, bool) {
        let model = self.model;
        let attachment = model.attachments[packet.node as usize];
        let switch = packet.next - model.n_nodes;
        let ejects = attachment.switch == switch;
        let Some(links) = model.candidate_range(switch, attachment) else {
            return (Route { start: attachment.ejection, n: ejects.into(), first: 0 }, ejects);
        };
        // Up, down or ejection is unpredictable: select without a branch.
        let elsewhere = links.start.wrapping_sub(model.partition.link_shift[packet.next as usize]);
        let start = select_unpredictable(ejects, attachment.ejection, elsewhere);
        let n = select_unpredictable(ejects, 1, links.end - links.start);
        let route = if self.adaptive_single_lane {
            let first = self.draw(packet.id, packet.hops, n) as u16;
            Route { start, n: n as u16, first }
        } else {
            self.route_unloaded(packet, start, n)
        };
        (route, ejects)
    }

    /// The route where load alone does not decide, among `n` consecutive links from `start` on.
    #[inline(never)]
    fn route_unloaded(&self, packet: &Packet, start: u32, n: u32) -> Route {
        let model = self.model;
        let attachment = match model.settings.routing {
            _ if n == 1 => 0,
            Routing::Deterministic => {
                let shift = model.partition.link_shift[packet.next as usize];
                let link = model.fixed(packet.next - model.n_nodes, packet.node);
                link.wrapping_sub(shift).wrapping_sub(start)
            }
            Routing::Random => self.draw(packet.id, packet.hops, n),
            Routing::Adaptive | Routing::VirtualCircuit => return Route::default(),
        };
        Route { start: start + attachment, n: 1, first: 0 }
    }

    /// Prefetches what the arrival of `packet` will read: the lane it is likely to leave by or,
    /// if the network does not fit in the cache, the loads that determine it. Returns the known
    /// part of its route, and whether the next link leads to its node.
    #[inline(always)]
    pub fn prefetch_arrival(&self, packet: &Packet) -> (Route, bool) {
        if self.model.is_node(packet.next) {
            return (Route::default(), false);
        }
        let (route, ejects) = self.route(packet);
        let link = route.start + u32::from(route.first);
        if self.links.exceed_cache() {
            self.links.loads.prefetch(route.start, route.first.into());
        } else {
            self.links.prefetch_lane(self.links.lane_of(link, packet.service));
        }
        if P::ON {
            let input = self.input_link(packet.next, packet.input);
            self.probe.prefetch(link, input);
        }
        (route, ejects)
    }

    /// Prefetches the lane that `packet` would take when it arrives, if nothing happened
    /// before.
    #[inline]
    pub fn prefetch_likely_output(&self, packet: &Packet, route: Route) {
        let Route { start, n, first } = route;
        if n > 0 {
            let (n, first) = (n.into(), first.into());
            let link = self.links.least_loaded_in_range(start, n, first, packet.ready);
            self.links.prefetch_lane(self.links.lane_of(link, packet.service));
        }
    }

    /// Random start among `n` candidates, for one hop of a packet.
    #[inline]
    fn draw(&self, id: u64, hops: u8, n: u32) -> u32 {
        below(self.model.choice.draw(id, u64::from(hops) - 1), n)
    }

    /// Chooses link and lane under any routing rule, routing mode and number of lanes.
    fn choose_by_rule(&mut self, switch: u32, slot: u32) -> (u32, u8) {
        let model = self.model;
        let shift = model.partition.link_shift[(model.n_nodes + switch) as usize];
        let packet = &self.packets[slot];
        let (node, id, hops, service) = (packet.node, packet.id, packet.hops, packet.service);
        let (via, state) = self.choose_detour(switch, slot);
        let step = model.plan.next(switch, node, via, state);
        let lane = step.lane * model.settings.services + service;
        let links = step.shortest();
        let n = links.len();
        let draw = || self.draw(id, hops, n as u32) as usize;
        let fixed = || model.plan.fixed(switch, node, via, state, &step);
        let link = match model.settings.routing {
            Routing::Deterministic => fixed().wrapping_sub(shift),
            Routing::Random => links[draw()].wrapping_sub(shift),
            Routing::VirtualCircuit => {
                let default = fixed().wrapping_sub(shift);
                self.virtual_circuit_link(switch, slot, default, shift, step.links)
            }
            Routing::Adaptive => {
                if step.links.len() == 1 {
                    step.links[0].wrapping_sub(shift)
                } else {
                    self.least_loaded(&step, lane, shift, draw())
                }
            }
        };
        self.packets[slot].state = step.next;
        (link, lane)
    }

    /// The link of a packet under virtual-circuit routing; control packets take the default
    /// port.
    fn virtual_circuit_link(
        &mut self,
        switch: u32,
        slot: u32,
        default: u32,
        shift: u32,
        links: &[u32],
    ) -> u32 {
        let packet = &self.packets[slot];
        if packet.content() != PacketKind::Data {
            return default;
        }
        let message = &self.model.program.messages[packet.message as usize];
        let size = u64::from(self.model.settings.packet_bytes);
        let number = packet.id - message.first_packet;
        let attachment = (number == 0, (number + 1) * size >= message.bytes);
        let links = links.iter().map(|link| link.wrapping_sub(shift));
        let switch = self.model.partition.local_switch[switch as usize];
        self.virtual_circuits.route(switch, packet.message, attachment, default, links)
    }

    /// The candidate with the smallest backlog; ties go to the first from position `start` on,
    /// cyclically. A candidate that does not lead closer wins only if its backlog is smaller by
    /// a full buffer.
    #[inline]
    fn least_loaded(&self, step: &Step<'_>, lane: u8, shift: u32, start: usize) -> u32 {
        let shortest = step.shortest();
        let non_minimal = &step.links[shortest.len()..];
        let (before, after) = shortest.split_at(start);
        let mut best = (NIL, NEVER);
        for links in [after, before] {
            best = self.links.least_loaded(links, shift, lane, self.now, best);
            if best.1 == 0 {
                return best.0;
            }
        }
        if !non_minimal.is_empty() {
            // A sideways hop must save what it costs: the transmission time of a full
            // buffer.
            let buffer = self.model.settings.buffer_bytes;
            let gain = self.links.cable_of(best.0).drain_ps(buffer.into());
            let limit = (best.0, best.1.saturating_sub(gain));
            best = self.links.least_loaded(non_minimal, shift, lane, self.now, limit);
        }
        best.0
    }

    /// Detour and routing state of a packet at `switch`; decided at its first switch.
    fn choose_detour(&self, switch: u32, slot: u32) -> (u32, RouteState) {
        let model = self.model;
        let packet = &self.packets[slot];
        let detours = model.plan.detours();
        if detours == 0 || model.settings.detour == Detour::Never {
            return (u32::MAX, packet.state);
        }
        let bits = random(model.settings.seed, Stream::Detour, packet.id, 0);
        let via = below(bits, detours);
        if packet.hops > 1 {
            return (via, packet.state);
        }
        let state = model.plan.start(switch, packet.node, via);
        if model.settings.detour == Detour::Valiant || !state.detouring() {
            return (via, state);
        }
        // UGAL-L (Singh, 2005): queue × hops of both paths, as seen by this switch.
        let shift = model.partition.link_shift[(model.n_nodes + switch) as usize];
        let cost = |via: u32, state: RouteState| {
            let step = model.plan.next(switch, packet.node, via, state);
            let lane = step.lane * model.settings.services + packet.service;
            let backlog =
                |&link: &u32| self.links.backlog(link.wrapping_sub(shift), lane, self.now);
            let queue = step.links.iter().map(backlog).min();
            let hops = model.plan.hops(model.fabric, switch, packet.node, via);
            queue.unwrap_or(NEVER).saturating_mul(hops.into())
        };
        let minimal = cost(u32::MAX, RouteState::START);
        if minimal <= cost(via, state) { (via, RouteState::START) } else { (via, state) }
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
        let queue =
            if self.probe.wants_queue() { self.queued(out.lane) + u64::from(joining) } else { 0 };
        let packet = &mut self.packets[slot];
        let hop = Hop {
            local: out.link,
            link: self.links.lane(out.lane).global,
            congested,
            queue,
            packet: packet.id,
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
        let queued = || self.queued(lane) + u64::from(joining);
        match self.model.settings.rule {
            MarkingRule::QueueExceedsCredit => false,
            MarkingRule::Queue => queued() > self.model.settings.rule_bytes,
            MarkingRule::Credit => self.lacks_credit(lane, self.model.settings.rule_bytes),
            MarkingRule::Proportional => {
                let Packet { id, hops, .. } = self.packets[slot];
                let bits = random(self.model.settings.seed, Stream::Mark, id, hops.into()) >> 32;
                u128::from(bits) * u128::from(self.model.settings.rule_bytes)
                    < u128::from(queued()) << 32
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
