//! Adaptive routing by a rule other than the default, whose fast path is in `network/load.rs`.

use tailback_fabric::RouteStep;

use crate::network::link::NIL;
use crate::network::packet::PacketKind;
use crate::probe::Probe;
use crate::settings::{AdaptiveLoad, AdaptiveTies, AdaptiveUnit};
use crate::shard::Shard;

impl<P: Probe> Shard<'_, P> {
    /// The link by which a packet leaves: an earlier choice that still holds, or a new one.
    #[inline(never)]
    pub(super) fn adaptive_link(
        &mut self,
        switch: u32,
        slot: u32,
        step: &RouteStep<'_>,
        lane: u8,
        shift: u32,
        draw: usize,
    ) -> u32 {
        let settings = &self.model.settings;
        let gap_ps = match settings.adaptive.per {
            AdaptiveUnit::Packet | AdaptiveUnit::Flow => {
                return self.least_by_rule(step, lane, shift, draw);
            }
            AdaptiveUnit::Message | AdaptiveUnit::Chunk => u64::MAX,
            AdaptiveUnit::Flowlet => settings.adaptive.gap_ps,
        };
        let packet = &self.packets[slot];
        if packet.content() != PacketKind::Data {
            return self.least_by_rule(step, lane, shift, draw);
        }
        let message = &self.model.program.messages[packet.message as usize];
        let sent = (packet.id - message.first_packet + 1) * u64::from(settings.packet_bytes);
        // The chunk of a packet by its first byte; the whole message is one unless chosen per chunk.
        let chunk_of = |byte: u64| match settings.adaptive.per {
            AdaptiveUnit::Chunk => byte / settings.adaptive.chunk_bytes.max(1),
            _ => 0,
        };
        let chunk = chunk_of(sent - u64::from(settings.packet_bytes));
        let ends = sent >= message.bytes || chunk_of(sent) != chunk;
        let key = (switch, packet.message, chunk);
        let link = self
            .adaptive_choices
            .known(key, self.now, gap_ps)
            .unwrap_or_else(|| self.least_by_rule(step, lane, shift, draw));
        // Packets that follow one path arrive in order.
        if settings.adaptive.per != AdaptiveUnit::Flowlet && ends {
            self.adaptive_choices.forget(key);
        } else {
            self.adaptive_choices.note(key, link, self.now, gap_ps);
        }
        link
    }

    /// The link of all messages between two ranks; that of control packets is `usual`.
    pub(super) fn flow_link(
        &mut self,
        switch: u32,
        slot: u32,
        step: &RouteStep<'_>,
        usual: u32,
        shift: u32,
    ) -> u32 {
        let packet = &self.packets[slot];
        if packet.content() != PacketKind::Data {
            return usual;
        }
        let message = &self.model.program.messages[packet.message as usize];
        let links = step.minimal().iter().map(|link| link.wrapping_sub(shift));
        self.adaptive_choices.of_flow(switch, (message.src, message.dst), usual, links)
    }

    /// The candidate with the smallest load. As in the default rule, a sideways candidate must save
    /// a full buffer.
    fn least_by_rule(&self, step: &RouteStep<'_>, lane: u8, shift: u32, draw: usize) -> u32 {
        let settings = &self.model.settings;
        let least = |links: &mut dyn Iterator<Item = &u32>| {
            let links = links.map(|link| link.wrapping_sub(shift));
            let loads = links.map(|link| match settings.adaptive.load {
                AdaptiveLoad::Queue => (self.links.backlog(link, lane, self.now), link),
                AdaptiveLoad::QueueAndCredit => {
                    let lane = self.links.lane_of(link, lane);
                    (self.links.unreturned(lane, settings.buffer_bytes, self.now), link)
                }
            });
            // The first of equal ones.
            loads.min_by_key(|&(load, _)| load)
        };
        let shortest = step.minimal();
        let (early, late) = match settings.adaptive.ties {
            AdaptiveTies::Random => {
                let (before, after) = shortest.split_at(draw);
                (after, before)
            }
            AdaptiveTies::Lowest => (shortest, &[][..]),
            AdaptiveTies::RandomOrLowest => {
                (shortest.get(draw..=draw).unwrap_or_default(), shortest)
            }
        };
        let Some(best) = least(&mut early.iter().chain(late)) else { return NIL };
        let buffer = u64::from(settings.buffer_bytes);
        let gain = match settings.adaptive.load {
            AdaptiveLoad::Queue => self.links.cable_of(best.1).drain_ps(buffer),
            AdaptiveLoad::QueueAndCredit => buffer,
        };
        match least(&mut step.links[shortest.len()..].iter()) {
            Some(other) if other.0 < best.0.saturating_sub(gain) => other.1,
            _ => best.1,
        }
    }
}
