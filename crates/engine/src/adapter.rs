//! The adapter of a node: takes messages, sends packets, one at a time.

use std::collections::VecDeque;

use tailback_fabric::RouteState;
use tailback_telemetry::Mark;

use crate::packet::{Content, Packet};
use crate::probe::{Probe, Sent};
use crate::queue::{Class, Event};
use crate::rng::{Stream, random};
use crate::settings::Injection;
use crate::sim::Sim;

/// Messages an adapter has to send.
#[derive(Debug, Default)]
pub(crate) struct Adapter {
    /// Handshake packets: they go first.
    control: VecDeque<(u32, Content)>,
    /// Messages with packets left.
    data: VecDeque<u32>,
    /// An event will come when it may send again.
    pending: bool,
}

impl<P: Probe> Sim<'_, P> {
    /// Gives the adapter of `node` something to send.
    pub fn enqueue(&mut self, node: u32, message: u32, content: Content) {
        let adapter = &mut self.adapters[node as usize];
        match content {
            Content::Data => adapter.data.push_back(message),
            _ => adapter.control.push_back((message, content)),
        }
        if !adapter.pending {
            self.adapter_send(node);
        }
    }

    /// The adapter's link is free again.
    pub fn on_adapter(&mut self, node: u32) {
        self.adapters[node as usize].pending = false;
        self.adapter_send(node);
    }

    /// Sends the next packet of `node` if link and credit allow; otherwise sees to it that an event
    /// comes when they do.
    pub fn adapter_send(&mut self, node: u32) {
        let link = self.plan.injection[node as usize];
        let free = self.links[link].free_at;
        let adapter = &mut self.adapters[node as usize];
        let (message, content) = match (adapter.control.front(), adapter.data.front()) {
            (Some(&(message, content)), _) => (message, content),
            (None, Some(&message)) => (message, Content::Data),
            (None, None) => return,
        };
        if free > self.now {
            if !adapter.pending {
                adapter.pending = true;
                self.queue.push(Event::new(free, Class::Adapter, node, 0));
            }
            return;
        }
        let slot = self.next_packet(message, content, link);
        let Some(slot) = slot else { return };
        let adapter = &mut self.adapters[node as usize];
        if content != Content::Data {
            adapter.control.pop_front();
        } else if self.messages[message as usize].packets_unsent == 0 {
            adapter.data.pop_front();
        } else if self.settings.injection == Injection::RoundRobin {
            adapter.data.rotate_left(1);
        }
        self.inject(link, slot);
        let adapter = &mut self.adapters[node as usize];
        if !(adapter.pending || adapter.control.is_empty() && adapter.data.is_empty()) {
            adapter.pending = true;
            let free = self.links[link].free_at;
            self.queue.push(Event::new(free, Class::Adapter, node, 0));
        }
    }

    /// Makes the next packet of `message`, or waits for credit and returns nothing.
    fn next_packet(&mut self, message: u32, content: Content, link: u32) -> Option<u32> {
        let envelope = self.program.messages[message as usize];
        let state = &self.messages[message as usize];
        let (sent, payload) = match content {
            Content::Data => {
                let size = u64::from(self.settings.packet_bytes);
                let number = u64::from(state.packets - state.packets_unsent);
                (number, (envelope.bytes - number * size).min(size) as u32)
            }
            _ => (0, 0),
        };
        let wire = self.settings.wire_bytes(payload);
        let lane = self.links.lane_of(link, 0);
        let starving = self.settings.contention && !self.links.take(lane, wire, self.now);
        self.links.lane_mut(lane).starving = starving;
        if starving {
            self.wake(lane);
            return None;
        }
        let to = if content == Content::ClearToSend { envelope.src } else { envelope.dst };
        let node = self.placement.node[to as usize];
        // Handshake packets draw their random numbers beyond all data packets.
        let id = match content {
            Content::Data => envelope.first_packet + sent,
            Content::RequestToSend => (1 << 62) | envelope.first_packet,
            Content::ClearToSend => (1 << 63) | envelope.first_packet,
        };
        if content == Content::Data {
            self.messages[message as usize].packets_unsent -= 1;
        }
        Some(self.packets.insert(Packet {
            id,
            ready: 0,
            tail_ready: 0,
            message,
            node,
            wire,
            payload,
            lane,
            next: 0,
            mark: Mark::EMPTY,
            hops: 0,
            state: RouteState::START,
            content,
        }))
    }

    /// Puts a packet on the wire now.
    fn inject(&mut self, link: u32, slot: u32) {
        let packet = self.packets[slot];
        let state = &mut self.links[link];
        let busy = state.serialization(packet.wire);
        let (end, delay) = (self.now + busy, state.delay);
        state.free_at = end;
        if P::ON {
            let observed = self.observed(slot);
            self.probe.sent(link, self.now, busy, 0, Sent { wire: packet.wire, observed });
            if self.settings.count_injection {
                let bits = random(self.settings.seed, Stream::Reservoir, packet.id, 0xff);
                let mark = &mut self.packets[slot].mark;
                self.probe.hop(self.now, link, false, observed, mark, bits);
            }
        }
        if packet.content == Content::Data {
            let message = &mut self.messages[packet.message as usize];
            message.start_ps = message.start_ps.min(self.now);
            if message.packets_unsent == 0 {
                self.queue.push(Event::new(end, Class::Sent, packet.message, 0));
            }
        }
        if self.settings.contention {
            self.queue.push(Event::new(self.now + delay, Class::Arrival, link, slot));
        } else {
            let (latency, hops) = self.uncontended(link, packet.node);
            self.packets[slot].hops = hops;
            self.packet_hops += u64::from(hops);
            let out = self.plan.ejection[packet.node as usize];
            self.queue.push(Event::new(end + delay + latency, Class::Arrival, out, slot));
        }
    }

    /// Latency beyond the first cable, and switches visited, of a path nobody else is on.
    fn uncontended(&self, injection: u32, node: u32) -> (u64, u8) {
        let ejection = self.plan.ejection[node as usize];
        let goal = self.plan.home[node as usize];
        let mut switch = self.fabric.link_dst[injection as usize] - self.fabric.n_nodes;
        let (mut latency, mut hops) = (self.settings.switch_delay_ps, 1);
        let mut state = RouteState::START;
        while switch != goal {
            let step = self.plan.next(switch, node, u32::MAX, state);
            let link = step.links[0] as usize;
            latency += self.fabric.link_delay_ps[link] + self.settings.switch_delay_ps;
            switch = self.fabric.link_dst[link] - self.fabric.n_nodes;
            state = step.next;
            hops += 1;
        }
        (latency + self.fabric.link_delay_ps[ejection as usize], hops)
    }
}
