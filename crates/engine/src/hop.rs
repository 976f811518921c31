//! One hop: arrival at a switch, choice of output, credit, departure.
//!
//! A link serves packets in the order they obtain credit, and credit is given in the order of
//! arrival. So a packet's departure can be computed the moment it has credit, and nothing happens
//! between that moment and its arrival at the next switch: one event a hop. Credit is a fact noted
//! ahead of time ([`crate::link::Links::give`]); an event for it exists only while somebody waits.

use crate::EngineError;
use crate::link::{NEVER, NIL};
use crate::packet::Content;
use crate::probe::{Probe, Sent};
use crate::queue::{Class, Event};
use crate::rng::{Stream, below, random};
use tailback_fabric::{RouteState, Rule as PlanRule};

use crate::settings::{Buffering, Detour, Routing, Rule, Switching, When};
use crate::sim::Sim;

impl<P: Probe> Sim<'_, P> {
    /// A packet's head reaches a switch, or its tail its node.
    pub fn on_arrival(&mut self, link: u32, slot: u32) {
        let state = &self.links[link];
        if self.fabric.is_node(state.dst) {
            return self.deliver(slot);
        }
        let delay = self.settings.switch_delay_ps;
        let switch = state.dst - self.fabric.n_nodes;
        let wire = self.packets[slot].wire;
        let tail = self.now + state.serialization(wire);
        let (out, lane) = self.choose(switch, slot);
        let packet = &mut self.packets[slot];
        packet.tail_ready = tail + delay;
        packet.ready = match self.settings.switching {
            Switching::CutThrough => self.now + delay,
            Switching::StoreAndForward => tail + delay,
        };
        packet.hops += 1;
        self.packet_hops += 1;
        let lane = self.links.lane_of(out, lane);
        if P::ON && self.settings.when == When::Arrival {
            self.mark(lane, slot, true);
        }
        if !self.links.lane(lane).starving && self.links.take(lane, wire, self.now) {
            self.depart(lane, slot, 0);
        } else {
            self.wait(lane, slot);
        }
    }

    /// Credit came back to a lane somebody waits at.
    pub fn on_credit(&mut self, lane: u32) {
        if self.links.lane(lane).wake_at != self.now {
            return; // An earlier event has done it.
        }
        self.links.lane_mut(lane).wake_at = NEVER;
        let link = self.links.link_of(lane);
        let src = self.fabric.link_src[link as usize];
        if self.fabric.is_node(src) {
            return self.adapter_send(src);
        }
        loop {
            let slot = self.links.lane(lane).wait_head;
            if slot == NIL {
                self.links.lane_mut(lane).starving = false;
                return;
            }
            let wire = self.packets[slot].wire;
            if !self.links.take(lane, wire, self.now) {
                return self.wake(lane);
            }
            let packet = &self.packets[slot];
            let had_data_since = packet.ready.max(self.links[link].free_at);
            let state = self.links.lane_mut(lane);
            state.wait_head = packet.next;
            state.wait_bytes -= u64::from(wire);
            self.depart(lane, slot, self.now.saturating_sub(had_data_since));
        }
    }

    /// Marks a packet as its head leaves.
    pub fn on_departure(&mut self, lane: u32, slot: u32) {
        self.mark(lane, slot, false);
    }

    /// Makes sure there is an event when the next credit reaches `lane`, where somebody waits.
    pub fn wake(&mut self, lane: u32) {
        let time = self.links.next_return(lane);
        if time < self.links.lane(lane).wake_at {
            self.links.lane_mut(lane).wake_at = time;
            self.queue.push(Event::new(time, Class::Credit, lane, 0));
        }
    }

    /// Gives `lane` back the buffer space of a packet at `time`.
    fn return_credit(&mut self, lane: u32, time: u64, wire: u32) {
        let time = time + self.links[self.links.link_of(lane)].delay;
        let state = self.links.lane_mut(lane);
        if state.starving && time < state.wake_at {
            state.wake_at = time;
            self.queue.push(Event::new(time, Class::Credit, lane, 0));
        }
        self.links.give(lane, self.now, time, wire);
    }

    /// Puts a packet at the end of the line for `lane`'s credit.
    fn wait(&mut self, lane: u32, slot: u32) {
        let packet = &mut self.packets[slot];
        packet.next = NIL;
        let wire = packet.wire;
        let state = self.links.lane_mut(lane);
        if state.wait_head == NIL {
            state.wait_head = slot;
        } else {
            self.packets[state.wait_tail].next = slot;
        }
        state.wait_tail = slot;
        state.starving = true;
        state.wait_bytes += u64::from(wire);
        self.wake(lane);
    }

    /// Computes when a packet with credit for `lane` leaves, arrives, and frees its buffer.
    fn depart(&mut self, lane: u32, slot: u32, stall_ps: u64) {
        let out = self.links.link_of(lane);
        let packet = &mut self.packets[slot];
        let (wire, tail_ready) = (packet.wire, packet.tail_ready);
        let in_lane = std::mem::replace(&mut packet.lane, lane);
        let state = &mut self.links[out];
        let busy = state.serialization(wire);
        // On a faster link the head holds back, so that the tail is there when it is due.
        let start =
            packet.ready.max(state.free_at).max(self.now).max(tail_ready.saturating_sub(busy));
        let end = start + busy;
        state.free_at = end;
        let delay = state.delay;
        let to_node = self.fabric.is_node(state.dst);
        let freed = match self.settings.buffering {
            Buffering::Input => end,
            Buffering::Output => (tail_ready - self.settings.switch_delay_ps).max(self.now),
        };
        self.return_credit(in_lane, freed, wire);
        let arrival = if to_node {
            // The node takes everything at line rate: its credit comes back as the tail arrives.
            self.return_credit(lane, end + delay, wire);
            end + delay
        } else {
            start + delay
        };
        if P::ON {
            match self.settings.when {
                When::Arrival => {}
                When::Insertion => self.mark(lane, slot, false),
                When::Departure => {
                    self.queue.push(Event::new(start, Class::Departure, lane, slot));
                }
            }
            let observed = self.observed(slot);
            self.probe.sent(out, start, busy, stall_ps, Sent { wire, observed });
        }
        self.queue.push(Event::new(arrival, Class::Arrival, out, slot));
    }

    /// Chooses the output towards the packet's node, and the virtual lane.
    fn choose(&mut self, switch: u32, slot: u32) -> (u32, u8) {
        let packet = &self.packets[slot];
        let (node, id, hops) = (packet.node, packet.id, packet.hops);
        if self.plan.home[node as usize] == switch {
            return (self.plan.ejection[node as usize], 0);
        }
        let (via, state) = self.detour(switch, slot);
        let step = self.plan.next(switch, node, via, state);
        let n = step.links.len();
        let draw = || {
            let bits = random(self.settings.seed, Stream::Route, id, hops.into());
            below(bits, n as u32) as usize
        };
        let link = match self.settings.routing {
            _ if n == 1 => step.links[0],
            Routing::Deterministic => step.links[self.modulus(switch, node) % n],
            Routing::Random => step.links[draw()],
            Routing::Adaptive => self.least_loaded(step.links, step.lane, draw()),
        };
        self.packets[slot].state = step.next;
        (link, step.lane)
    }

    /// The first candidate from `start` on, round the list, with the least backlog.
    fn least_loaded(&self, links: &[u32], lane: u8, start: usize) -> u32 {
        let (before, after) = links.split_at(start);
        let (mut best, mut least) = (NIL, NEVER);
        for &link in after.iter().chain(before) {
            let backlog = self.links.backlog(link, lane, self.now);
            if backlog < least {
                (best, least) = (link, backlog);
                if backlog == 0 {
                    break;
                }
            }
        }
        best
    }

    /// D-mod-k's dividend (Zahavi et al., 2010): what the switches below leave undistinguished.
    fn modulus(&self, switch: u32, node: u32) -> usize {
        let divisor = match &self.plan.rule {
            PlanRule::Table(routes) => routes.divisor[switch as usize],
            _ => 1,
        };
        (node / divisor) as usize
    }

    /// Detour and state of a packet at `switch`; decided at its first switch.
    fn detour(&self, switch: u32, slot: u32) -> (u32, RouteState) {
        let packet = &self.packets[slot];
        let detours = self.plan.detours();
        if detours == 0 || self.settings.detour == Detour::Never {
            return (u32::MAX, packet.state);
        }
        let bits = random(self.settings.seed, Stream::Detour, packet.id, 0);
        let via = below(bits, detours);
        if packet.hops > 0 {
            return (via, packet.state);
        }
        let state = self.plan.start(switch, packet.node, via);
        if self.settings.detour == Detour::Valiant || !state.detouring() {
            return (via, state);
        }
        // UGAL-L (Singh, 2005): queue × hops of both ways, as this switch sees them.
        let cost = |via: u32, state: RouteState| {
            let step = self.plan.next(switch, packet.node, via, state);
            let queue =
                step.links.iter().map(|&l| self.links.backlog(l, step.lane, self.now)).min();
            let hops = self.plan.hops(self.fabric, switch, packet.node, via);
            queue.unwrap_or(NEVER).saturating_mul(hops.into())
        };
        let minimal = cost(u32::MAX, RouteState::START);
        if minimal <= cost(via, state) { (via, RouteState::START) } else { (via, state) }
    }

    /// A circle of buffers that wait on one another, once nothing moves any more.
    ///
    /// Packets in the buffer of lane A that wait for credit of lane B make A wait for B.
    pub fn deadlock(&self) -> Option<EngineError> {
        let lanes = self.links.n_lanes();
        let mut waits_for = vec![NIL; lanes as usize];
        for lane in 0..lanes {
            let mut slot = self.links.lane(lane).wait_head;
            while slot != NIL {
                waits_for[self.packets[slot].lane as usize] = lane;
                slot = self.packets[slot].next;
            }
        }
        let mut seen = vec![NIL; lanes as usize];
        for start in 0..lanes {
            let mut at = start;
            while at != NIL && seen[at as usize] == NIL {
                seen[at as usize] = start;
                at = waits_for[at as usize];
            }
            if at != NIL && seen[at as usize] == start {
                let mut cycle = vec![self.links.link_and_lane(at)];
                let mut next = waits_for[at as usize];
                while next != at {
                    cycle.push(self.links.link_and_lane(next));
                    next = waits_for[next as usize];
                }
                return Some(EngineError::Deadlock { time_ps: self.now, cycle });
            }
        }
        None
    }

    /// Shows the packet's mark this hop. `queues` says the packet itself has yet to join the queue.
    fn mark(&mut self, lane: u32, slot: u32, queues: bool) {
        let (id, hops, wire) = {
            let packet = &self.packets[slot];
            (packet.id, packet.hops, if queues { packet.wire } else { 0 })
        };
        let congested = self.congested(lane, wire, id, hops);
        let bits = random(self.settings.seed, Stream::Reservoir, id, hops.into());
        let observed = self.observed(slot);
        let mark = &mut self.packets[slot].mark;
        let link = self.links.link_of(lane);
        self.probe.hop(self.now, link, congested, observed, mark, bits);
    }

    /// The congestion rule (thesis §3.2, §5.10).
    ///
    /// A packet is booked on a link with its credit in hand, so booked bytes cancel out of "queue
    /// exceeds credit": what waits for credit is compared with the credit that is left.
    fn congested(&mut self, lane: u32, joining: u32, id: u64, hops: u8) -> bool {
        let now = self.now;
        let waiting = self.links.lane(lane).wait_bytes + u64::from(joining);
        let queued = || {
            let link = &self.links[self.links.link_of(lane)];
            link.bytes_in(link.free_at.saturating_sub(now)) + waiting
        };
        match self.settings.rule {
            Rule::QueueExceedsCredit => self.short_of(lane, waiting),
            Rule::Queue => queued() > self.settings.rule_bytes,
            Rule::Credit => self.short_of(lane, self.settings.rule_bytes),
            Rule::Proportional => {
                let bits = random(self.settings.seed, Stream::Mark, id, hops.into()) >> 32;
                u128::from(bits) * u128::from(self.settings.rule_bytes) < u128::from(queued()) << 32
            }
        }
    }

    /// Whether `lane` has less than `bytes` of credit.
    fn short_of(&mut self, lane: u32, bytes: u64) -> bool {
        // Credit that came back since it was last counted can only add to it.
        if u64::from(self.links.lane(lane).credit) >= bytes {
            return false;
        }
        self.links.collect(lane, self.now);
        u64::from(self.links.lane(lane).credit) < bytes
    }

    /// Whether a packet is data of an observed job: what samples are taken of.
    #[inline]
    pub fn observed(&self, slot: u32) -> bool {
        let packet = &self.packets[slot];
        let label = self.program.messages[packet.message as usize].label;
        packet.content == Content::Data && self.placement.label_observed[label as usize]
    }
}
