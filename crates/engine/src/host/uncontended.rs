//! Injection without contention.
//!
//! All packets of a message take the same path and arrive in order, so only the last one needs an
//! event when it arrives. An adapter that sends one message after another sends the packets of a
//! message as a *train*: only a control packet can come between two of them. So one event, at the
//! start of the last packet, suffices for all. Probes observe every packet, so with a probe each
//! packet is sent and delivered by an event of its own.

use crate::events::queue::{Event, EventKind};
use crate::host::adapter::{Outgoing, Train};
use crate::host::pacing::interval;
use crate::network::packet::{Light, PacketKind};
use crate::probe::Probe;
use crate::settings::{Injection, RendezvousProgress};
use crate::shard::Shard;

impl<P: Probe> Shard<'_, P> {
    /// Sends a packet that reaches its first switch at `time` to its node without contention.
    #[inline(never)]
    pub(super) fn send_uncontended(
        &mut self,
        (link, slot): (u32, u32),
        time: u64,
        last: bool,
        light: Light,
    ) {
        let model = self.model;
        let mut packet = self.packets[slot];
        self.packets.remove(slot);
        let (latency, hops) = model.uncontended(self.links.global(link), packet.node);
        (packet.hops, packet.next, packet.ready) = (hops, packet.node, time + latency);
        self.packet_hops += u64::from(hops);
        if self.last_stands_for_all() && !last && packet.content() == PacketKind::Data {
            return;
        }
        let out = model.plan.ejection[packet.node as usize];
        let shard = model.partition.of_node[packet.node as usize];
        self.send_packet(shard, out, &packet, light);
    }

    /// Whether only the last packet of a message is delivered, on behalf of all.
    pub(super) fn last_stands_for_all(&self) -> bool {
        !P::ON && !self.model.settings.contention
    }

    /// Whether adapters send trains. Excludes settings and programs in which a control packet may
    /// become ready at an instant at which adapters have already sent.
    fn sends_trains(&self) -> bool {
        let settings = &self.model.settings;
        self.last_stands_for_all()
            && settings.injection == Injection::Fifo
            && settings.congestion_control.is_none()
            && settings.progress == RendezvousProgress::Always
            && settings.send_delay_ps > 0
            && !self.model.program.replies_at_once()
    }

    /// Starts a train of all packets of a message but the last, if there are any.
    pub(super) fn begin_train(&mut self, node: u32, first: Outgoing) -> bool {
        let packets = self.sends[first.send as usize].packets_unsent - 1;
        if packets == 0 || !self.sends_trains() {
            return false;
        }
        let now = self.now;
        let interval_ps = self.interval_of_full_packets(node);
        let state = &mut self.sends[first.send as usize];
        state.start_ps = state.start_ps.min(now);
        let adapter = self.adapter(node);
        let number = adapter.train.number.wrapping_add(1).max(1);
        adapter.train = Train { begin: now, interval_ps, packets, number };
        adapter.pending = true;
        let end = now.saturating_add(interval_ps.saturating_mul(packets.into()));
        self.queue.push(Event::new(end, EventKind::Adapter, node, number));
        true
    }

    /// All packets of a train have left; false if another event has taken the place of this one.
    pub(super) fn finish_train(&mut self, node: u32, number: u32) -> bool {
        let Train { packets, number: current, .. } = self.adapter(node).train;
        if packets == 0 || number != current {
            return false;
        }
        self.shorten_train(node, packets);
        true
    }

    /// A control packet is ready. It follows the packet of the train that is being sent.
    pub(super) fn interrupt_train(&mut self, node: u32) {
        let Train { begin, interval_ps, packets, .. } = self.adapter(node).train;
        if packets == 0 {
            return;
        }
        let passed = self.now - begin;
        // Ranks that end a computation follow the adapters that send at the same instant.
        let next = u64::from(passed.is_multiple_of(interval_ps) && self.rank_resumes);
        let sent = (passed.div_ceil(interval_ps) + next).max(1);
        if sent < u64::from(packets) {
            self.shorten_train(node, sent as u32);
            let time = begin + sent * interval_ps;
            self.queue.push(Event::new(time, EventKind::Adapter, node, 0));
        }
    }

    /// Ends the train of `node` after some packets.
    fn shorten_train(&mut self, node: u32, packets: u32) {
        let (model, adapter) = (self.model, self.adapter(node));
        adapter.train.packets = 0;
        let (send, link) = (adapter.first.send as usize, adapter.link);
        let (_, hops) = model.uncontended(self.links.global(link), self.sends[send].node);
        let (number, state) = (u64::from(packets), &mut self.sends[send]);
        state.next_packet += number;
        state.bytes_unsent -= number * u64::from(model.settings.packet_bytes);
        state.packets_unsent -= packets;
        self.transmissions += number;
        self.packet_hops += number * u64::from(hops);
    }

    /// Time from the start of a full packet to that of the next.
    fn interval_of_full_packets(&mut self, node: u32) -> u64 {
        let settings = &self.model.settings;
        let wire = settings.wire_bytes(settings.packet_bytes);
        let link = self.adapter(node).link;
        let busy = self.links.cable_of(link).serialization_ps(wire);
        match settings.injection_mbps {
            0 => busy,
            mbps => busy.max(interval(wire, mbps)),
        }
    }
}
