//! One hop: arrival at a switch, choice of output, credit, departure.
//!
//! A link serves packets in the order they obtain credit, and credit is given in the order of
//! arrival. So a packet's departure can be computed the moment it has credit, and nothing happens
//! between that moment and its arrival at the next switch: one event a hop. Credit is a fact noted
//! ahead of time ([`crate::link::Link::returns`]); an event for it exists only while somebody waits.

use crate::link::{NEVER, NIL};
use crate::packet::Content;
use crate::probe::{Probe, Sent};
use crate::queue::{Class, Event};
use crate::rng::{Stream, below, random};
use crate::settings::{Buffering, Routing, Rule, Switching, When};
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
        let out = self.choose(switch, slot);
        let packet = &mut self.packets[slot];
        packet.in_link = link;
        packet.tail_ready = tail + delay;
        packet.ready = match self.settings.switching {
            Switching::CutThrough => self.now + delay,
            Switching::StoreAndForward => tail + delay,
        };
        packet.hops += 1;
        self.packet_hops += 1;
        if P::ON && self.settings.when == When::Arrival {
            self.mark(out, slot, true);
        }
        if !self.links[out].starving && self.links.take(out, wire, self.now) {
            self.depart(out, slot, 0);
        } else {
            self.wait(out, slot);
        }
    }

    /// Credit came back to a link somebody waits at.
    pub fn on_credit(&mut self, link: u32) {
        if self.links[link].wake_at != self.now {
            return; // An earlier event has done it.
        }
        self.links[link].wake_at = NEVER;
        let src = self.fabric.link_src[link as usize];
        if self.fabric.is_node(src) {
            return self.adapter_send(src);
        }
        loop {
            let slot = self.links[link].wait_head;
            if slot == NIL {
                self.links[link].starving = false;
                return;
            }
            let wire = self.packets[slot].wire;
            if !self.links.take(link, wire, self.now) {
                return self.wake(link);
            }
            let packet = &self.packets[slot];
            let state = &mut self.links[link];
            state.wait_head = packet.next;
            state.wait_ps -= state.serialization(wire);
            let had_data_since = packet.ready.max(state.free_at);
            self.depart(link, slot, self.now.saturating_sub(had_data_since));
        }
    }

    /// Marks a packet as its head leaves.
    pub fn on_departure(&mut self, link: u32, slot: u32) {
        self.mark(link, slot, false);
    }

    /// Makes sure there is an event when the next credit reaches `link`, where somebody waits.
    pub fn wake(&mut self, link: u32) {
        let time = self.links.next_return(link);
        if time < self.links[link].wake_at {
            self.links[link].wake_at = time;
            self.queue.push(Event::new(time, Class::Credit, link, 0));
        }
    }

    /// Gives `link` back the buffer space of a packet at `time`.
    fn return_credit(&mut self, link: u32, time: u64, wire: u32) {
        let state = &mut self.links[link];
        let time = time + state.delay;
        if state.starving && time < state.wake_at {
            state.wake_at = time;
            self.queue.push(Event::new(time, Class::Credit, link, 0));
        }
        self.links.give(link, time, wire);
    }

    /// Puts a packet at the end of the line for `out`'s credit.
    fn wait(&mut self, out: u32, slot: u32) {
        let packet = &mut self.packets[slot];
        packet.next = NIL;
        let wire = packet.wire;
        let state = &mut self.links[out];
        if state.wait_head == NIL {
            state.wait_head = slot;
        } else {
            self.packets[state.wait_tail].next = slot;
        }
        state.wait_tail = slot;
        state.starving = true;
        state.wait_ps += state.serialization(wire);
        self.wake(out);
    }

    /// Computes when a packet with credit for `out` leaves, arrives, and frees its buffer.
    fn depart(&mut self, out: u32, slot: u32, stall_ps: u64) {
        let packet = &self.packets[slot];
        let (wire, in_link, tail_ready) = (packet.wire, packet.in_link, packet.tail_ready);
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
        self.return_credit(in_link, freed, wire);
        let arrival = if to_node {
            // The node takes everything at line rate: its credit comes back as the tail arrives.
            self.return_credit(out, end + delay, wire);
            end + delay
        } else {
            start + delay
        };
        if P::ON {
            match self.settings.when {
                When::Arrival => {}
                When::Insertion => self.mark(out, slot, false),
                When::Departure => self.queue.push(Event::new(start, Class::Departure, out, slot)),
            }
            let observed = self.observed(slot);
            self.probe.sent(out, start, busy, stall_ps, Sent { wire, observed });
        }
        self.queue.push(Event::new(arrival, Class::Arrival, out, slot));
    }

    /// Chooses the output towards the packet's node.
    fn choose(&self, switch: u32, slot: u32) -> u32 {
        let packet = &self.packets[slot];
        if self.node_switch[packet.node as usize] == switch {
            return self.routes.ejection[packet.node as usize];
        }
        let candidates = self.routes.candidates(switch, packet.node);
        let n = candidates.len();
        if n == 1 {
            return candidates[0];
        }
        let draw = || {
            let bits = random(self.settings.seed, Stream::Route, packet.id, packet.hops.into());
            below(bits, n as u32) as usize
        };
        match self.settings.routing {
            Routing::Deterministic => {
                candidates[(packet.node / self.routes.divisor[switch as usize]) as usize % n]
            }
            Routing::Random => candidates[draw()],
            Routing::Adaptive => {
                let (before, after) = candidates.split_at(draw());
                let (mut best, mut least) = (NIL, NEVER);
                for &link in after.iter().chain(before) {
                    let backlog = self.links[link].backlog(self.now);
                    if backlog < least {
                        (best, least) = (link, backlog);
                        if backlog == 0 {
                            break;
                        }
                    }
                }
                best
            }
        }
    }

    /// Shows the packet's mark this hop. `queues` says the packet itself has yet to join the queue.
    fn mark(&mut self, out: u32, slot: u32, queues: bool) {
        let (id, hops, wire) = {
            let packet = &self.packets[slot];
            (packet.id, packet.hops, if queues { packet.wire } else { 0 })
        };
        let congested = self.congested(out, wire, id, hops);
        let bits = random(self.settings.seed, Stream::Reservoir, id, hops.into());
        let observed = self.observed(slot);
        let mark = &mut self.packets[slot].mark;
        self.probe.hop(self.now, out, congested, observed, mark, bits);
    }

    /// The congestion rule (thesis §3.2, §5.10).
    ///
    /// A packet is booked on a link with its credit in hand, so booked bytes cancel out of "queue
    /// exceeds credit": what waits for credit is compared with the credit that is left.
    fn congested(&mut self, link: u32, joining: u32, id: u64, hops: u8) -> bool {
        let now = self.now;
        self.links.collect(link, now);
        let state = &self.links[link];
        let queued = || state.queued_bytes(now) + u64::from(joining);
        match self.settings.rule {
            Rule::QueueExceedsCredit => {
                state.waiting_bytes() + u64::from(joining) > u64::from(state.credit)
            }
            Rule::Queue => queued() > self.settings.rule_bytes,
            Rule::Credit => u64::from(state.credit) < self.settings.rule_bytes,
            Rule::Proportional => {
                let bits = random(self.settings.seed, Stream::Mark, id, hops.into()) >> 32;
                u128::from(bits) * u128::from(self.settings.rule_bytes) < u128::from(queued()) << 32
            }
        }
    }

    /// Whether a packet is data of an observed job: what samples are taken of.
    #[inline]
    pub fn observed(&self, slot: u32) -> bool {
        let packet = &self.packets[slot];
        let label = self.program.messages[packet.message as usize].label;
        packet.content == Content::Data && self.placement.label_observed[label as usize]
    }
}
