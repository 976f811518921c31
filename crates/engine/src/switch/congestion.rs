//! Congestion control in switches: marking packets, and the red and green lights of RGBCC.

use crate::congestion::Ports;
use crate::events::queue::{Event, EventKind};
use crate::model::packets_of;
use crate::network::packet::{Flags, Light, Packet, PacketKind};
use crate::probe::Probe;
use crate::rng::{Stream, random};
use crate::settings::{CongestionControl, CongestionScheme, Dcqcn, MIN_WIRE_BYTES};
use crate::shard::Shard;

impl<P: Probe> Shard<'_, P> {
    /// A packet at `switch` (shard index) will leave by `lane`: marks it if the queue exceeds
    /// the threshold of congestion control.
    pub fn mark_congestion(
        &mut self,
        control: &CongestionControl,
        switch: u32,
        lane: u32,
        slot: u32,
    ) {
        let packet = &self.packets[slot];
        let (wire, mut flags) = (packet.wire, packet.flags);
        if packet.content() != PacketKind::Data {
            return;
        }
        if let CongestionScheme::Dcqcn(dcqcn) = &control.scheme {
            return self.mark_ecn(dcqcn, lane, slot);
        }
        if control.scheme == CongestionScheme::Assignment {
            return self.collect_weight(lane, slot);
        }
        let root = self.is_root(lane, wire);
        let over = self.queued(lane) + u64::from(wire) > control.threshold_bytes;
        let mut rate = control.marking_rate;
        if let CongestionScheme::Dcms { calm_marking_rate, hold_ps, poll_ps } = control.scheme {
            let created = if poll_ps > 0 {
                self.poll_victims(switch, lane, slot, root, poll_ps)
            } else {
                self.congestion.victims.observe(switch, flags, (over, root), self.now, hold_ps)
            };
            flags.set(Flags::VICTIMS, created && over && !root);
            rate = if created { rate } else { calm_marking_rate };
        }
        let lit = matches!(control.scheme, CongestionScheme::Rgbcc { .. });
        let eligible = over && (root || control.victims) && wire >= control.packet_bytes;
        // A packet carries at most one light.
        let taken = lit && flags.has(Flags::NOTIFIED);
        if eligible && !taken && self.congestion.marking.due(lane, rate) {
            flags.set(Flags::NOTIFIED, true);
            self.congestion.marked += 1;
            if let CongestionScheme::Rgbcc { green_bytes } = control.scheme {
                self.turn_red(lane, slot, green_bytes);
            }
        }
        self.packets[slot].flags = flags;
    }

    /// The data packet in `slot` crosses `lane`: the link stores the weight of its flow, and the
    /// packet collects the time that the link needs for all of its flows.
    pub fn collect_weight(&mut self, lane: u32, slot: u32) {
        let model = self.model;
        let packet = &self.packets[slot];
        let message = &model.program.messages[packet.message as usize];
        let number = packet.id - message.first_packet;
        let ends = (number == 0, number + 1 == u64::from(packets_of(message, &model.settings)));
        let bytes = self.congestion.weights.cross(lane, message.bytes, ends);
        let ns = self.links.cable(self.links.lane(lane)).drain_ps(bytes) / 1000;
        let mut light = self.congestion.lights.on_packet(slot);
        light.output = light.output.max(u32::try_from(ns).unwrap_or(u32::MAX));
        self.congestion.lights.attach(slot, light);
    }

    /// Counts a packet for the manager that polls every `poll` picoseconds. Returns whether
    /// `switch` creates victims by its counters.
    fn poll_victims(&mut self, switch: u32, lane: u32, slot: u32, root: bool, poll: u64) -> bool {
        let Packet { input, flags, wire, .. } = self.packets[slot];
        let (links, output) = (&self.links, self.links.link_of(lane));
        let vertex = self.model.fabric.link_src[links.global(output) as usize];
        let first = self.model.first_port(vertex) as usize;
        let ports = Ports {
            all: first..first + self.model.fabric.out_links(vertex).len(),
            input: first + usize::from(input),
            output: output as usize,
        };
        let full = |link: usize| {
            let lane = links.lane(links.lanes_of(link as u32).start);
            links.cable(lane).bytes_in(poll)
        };
        let packet = (flags, wire, !root);
        self.congestion.victims.poll(switch, &ports, packet, (self.now, poll), full)
    }

    /// Whether `lane` is a root of congestion: only earlier packets keep it from sending a packet of
    /// `wire` bytes. If outputs are booked ahead, the credit may be held by packets being sent.
    pub fn is_root(&mut self, lane: u32, wire: u32) -> bool {
        let now = self.now;
        self.links.free_at(self.links.link_of(lane)) > now || self.links.has(lane, wire, now)
    }

    /// The packet in `slot` is marked at `lane`, whose light stays red until the queue falls to
    /// `green` bytes.
    pub fn turn_red(&mut self, lane: u32, slot: u32, green: u64) {
        let message = self.packets[slot].message;
        let src = self.model.program.messages[message as usize].src;
        let node = self.model.placement.node[src as usize];
        let (turn, turned) = self.congestion.lights.mark(lane, node, message);
        let light = Light { output: self.output_of(lane), turn };
        self.congestion.lights.attach(slot, light);
        if turned {
            self.schedule_recheck(lane, green);
        }
    }

    /// Fabric number of a lane.
    fn output_of(&self, lane: u32) -> u32 {
        let (link, lane) = self.links.link_and_lane(lane);
        link * u32::from(self.model.lanes()) + u32::from(lane)
    }

    /// Schedules a check of the light of `lane` for when its queue can be down to `green` at
    /// the earliest, at least one packet time from now.
    fn schedule_recheck(&mut self, lane: u32, green: u64) {
        let link = self.links.cable(self.links.lane(lane));
        let settings = &self.model.settings;
        let packet = settings.wire_bytes(settings.packet_bytes);
        let above = self.queued(lane).saturating_sub(green).max(packet.into());
        let time = self.now + link.drain_ps(above);
        self.queue.push(Event::new(time, EventKind::Light, lane, 0));
    }

    /// The queue of a red light may have drained.
    pub fn on_light(&mut self, lane: u32) {
        let control: Option<&CongestionControl> = self.model.settings.congestion_control.as_ref();
        let Some(CongestionScheme::Rgbcc { green_bytes }) = control.map(|control| control.scheme)
        else {
            return;
        };
        if self.queued(lane) > green_bytes {
            return self.schedule_recheck(lane, green_bytes);
        }
        let (turn, notified) = self.congestion.lights.turn_green(lane);
        let light = Light { output: self.output_of(lane), turn };
        let link = self.links.global(self.links.link_of(lane));
        let switch = self.model.fabric.link_src[link as usize] - self.model.fabric.n_nodes;
        for (node, message) in notified {
            let mut packet = Packet::notice(PacketKind::Congestion, message, node, MIN_WIRE_BYTES);
            packet.flags.set(Flags::GREEN, true);
            packet.ready = self.now + self.model.notice_latency(switch, node);
            let out = self.model.plan.ejection[node as usize];
            let shard = self.model.partition.of_node[node as usize];
            self.send_packet(shard, out, &packet, light);
        }
    }

    /// `node` is notified that a light is green.
    pub fn on_green(&mut self, node: u32, light: Light) {
        if self.adapter(node).flows().turn_green(light) {
            // A separate event, so that other events of this node at this time do not
            // depend on the order.
            self.queue.push(Event::new(self.now, EventKind::Adapter, node, 0));
        }
    }

    /// The data packet in `slot` joins the queue of `lane`: marks it with the probability that the
    /// length of the queue gives, the packet included. Whether the output is paused does not matter.
    fn mark_ecn(&mut self, dcqcn: &Dcqcn, lane: u32, slot: u32) {
        let queued = self.queued(lane) + u64::from(self.packets[slot].wire);
        let packet = &mut self.packets[slot];
        if queued <= dcqcn.kmin_bytes || packet.flags.has(Flags::NOTIFIED) {
            return;
        }
        let bits = random(self.model.settings.seed, Stream::Ecn, packet.id, packet.hops.into());
        if dcqcn.marks(queued, bits) {
            packet.flags.set(Flags::NOTIFIED, true);
            self.congestion.marked += 1;
        }
    }
}
