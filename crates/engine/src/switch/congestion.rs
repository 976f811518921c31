//! What switches do about congestion: they mark packets, and show senders red and green lights.

use crate::events::queue::{Event, EventKind};
use crate::network::packet::{Flags, Light, Packet, PacketKind};
use crate::probe::Probe;
use crate::settings::{CongestionControl, CongestionScheme, MIN_WIRE_BYTES};
use crate::shard::Shard;

impl<P: Probe> Shard<'_, P> {
    /// A packet that came to `switch` (numbered within the shard) is to leave by `lane`: marks it
    /// where the queue is longer than congestion control allows.
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
        // Where outputs are booked ahead the credit is spent on what is being sent: a root too.
        let sending = self.links.free_at(self.links.link_of(lane)) > self.now;
        let now = self.now;
        let root = sending || self.links.has(lane, wire, now);
        let over = self.queued(lane) + u64::from(wire) > control.threshold_bytes;
        let mut rate = control.marking_rate;
        if let CongestionScheme::Dcms { calm_marking_rate, hold_ps } = control.scheme {
            let created =
                self.congestion.victims.observe(switch, flags, (over, root), self.now, hold_ps);
            flags.set(Flags::VICTIMS, created && over && !root);
            rate = if created { rate } else { calm_marking_rate };
        }
        let lit = matches!(control.scheme, CongestionScheme::Rgbcc { .. });
        let eligible = over && (root || control.victims) && wire >= control.packet_bytes;
        // A packet has room for one light.
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

    /// The packet in `slot` is marked at `lane`: its light is red until the queue is `green` bytes.
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

    /// Number of a lane over the whole fabric.
    fn output_of(&self, lane: u32) -> u32 {
        let (link, lane) = self.links.link_and_lane(lane);
        link * u32::from(self.model.lanes()) + u32::from(lane)
    }

    /// Sees to it that the light of `lane` is looked at when its queue can be down to `green` at the
    /// earliest, a packet's time from now at least.
    fn schedule_recheck(&mut self, lane: u32, green: u64) {
        let link = self.links.cable(self.links.lane(lane));
        let settings = &self.model.settings;
        let packet = settings.wire_bytes(settings.packet_bytes);
        let above = self.queued(lane).saturating_sub(green).max(packet.into());
        let time = self.now + link.serialization_ps(above.min(u32::MAX.into()) as u32);
        self.queue.push(Event::new(time, EventKind::Light, lane, 0));
    }

    /// The queue of a red light may have subsided.
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

    /// `node` learns that a light is green.
    pub fn on_green(&mut self, node: u32, light: Light) {
        if self.adapter(node).flows().turn_green(light) {
            // An event of its own: what else happens to this node now is not to depend on the order.
            self.queue.push(Event::new(self.now, EventKind::Adapter, node, 0));
        }
    }
}
