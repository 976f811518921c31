//! Choice of output: the candidates that the routing rule names, and the one that is taken.

use std::hint::select_unpredictable;

use tailback_fabric::{Detour, RouteState, RouteStep};

use crate::network::link::{NEVER, NIL};
use crate::network::load::Chosen;
use crate::network::packet::{Packet, PacketKind};
use crate::probe::Probe;
use crate::rng::{Stream, below, random};
use crate::settings::{AdaptiveUnit, Routing};
use crate::shard::Shard;
use crate::switch::route::{Output, Route};

impl<P: Probe> Shard<'_, P> {
    /// Chooses the lane by which a packet leaves.
    #[inline(always)]
    pub(super) fn choose_output(
        &mut self,
        switch: u32,
        slot: u32,
        service: u8,
        route: Route,
        chosen: Option<Chosen>,
    ) -> Output {
        let Route { start, n, first } = route;
        let (link, lane) = match (n, chosen) {
            (0, _) => self.choose_by_rule(switch, slot),
            (_, Some(chosen)) if self.links.loads.is_still_first_idle(chosen, n, self.now) => {
                (chosen.link, service)
            }
            _ => {
                (self.links.least_loaded_in_range(start, n.into(), first.into(), self.now), service)
            }
        };
        Output { link, lane: self.links.lane_of(link, lane) }
    }

    /// Chooses the output of the arrival after the next, as if the next one changed nothing, and
    /// prefetches its lane. The choice is mostly right, and is checked
    /// ([`Loads::is_still_first_idle`]). An event takes about as long as loading a line from the
    /// next cache. Not done with a probe, where it was measured to be slower.
    ///
    /// [`Loads::is_still_first_idle`]: crate::network::load::Loads::is_still_first_idle
    #[inline(always)]
    pub fn choose_ahead(&mut self) {
        let Some((slot, Route { start, n, first })) = self.upcoming.following() else { return };
        let Packet { ready, service, .. } = self.packets[slot];
        let loads = &self.links.loads;
        let idle = loads.first_idle(start, n.into(), first.into(), ready);
        let link = idle.unwrap_or(start + u32::from(first));
        self.links.prefetch_lane(self.links.lane_of(link, service));
        self.upcoming.chosen = Some(Chosen { link, releases: loads.releases });
    }

    /// The part of the route of `packet`, which heads for a switch, that does not depend on
    /// load; and whether the next link leads to its node.
    #[inline(always)]
    pub(super) fn route(&self, packet: &Packet) -> (Route, bool) {
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
            Routing::Ecmp | Routing::Spray => {
                self.hash_path(packet.message, packet.id, packet.hops, n)
            }
            Routing::Adaptive | Routing::VirtualCircuit => return Route::default(),
        };
        Route { start: start + attachment, n: 1, first: 0 }
    }

    /// The known part of the route of `packet`, and whether the next link leads to its node; prefetches
    /// the loads that determine the rest if the network does not fit in the cache, and with a probe
    /// what is likely to be read: an output is not chosen ahead then.
    #[inline(always)]
    pub fn prefetch_arrival(&self, packet: &Packet) -> (Route, bool) {
        if self.model.is_node(packet.next) {
            return (Route::default(), false);
        }
        let (route, ejects) = self.route(packet);
        let likely = route.start + u32::from(route.first);
        if self.links.exceed_cache() {
            self.links.loads.prefetch(route.start, route.first.into());
        } else if P::ON {
            self.links.prefetch_lane(self.links.lane_of(likely, packet.service));
        }
        if P::ON {
            let input = self.input_link(packet.next, packet.input);
            self.probe.prefetch(likely, input);
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

    /// Hash of what a packet carries, for one hop, among `n` candidates.
    #[inline]
    fn hash_path(&self, message: u32, id: u64, hops: u8, n: u32) -> u32 {
        below(self.model.path_bits(message, id, u64::from(hops) - 1), n)
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
        let links = step.minimal();
        let n = links.len();
        let draw = || self.draw(id, hops, n as u32) as usize;
        let fixed = || model.plan.deterministic_link(switch, node, via, state, &step);
        let link = match model.settings.routing {
            Routing::Deterministic => fixed().wrapping_sub(shift),
            Routing::Random => links[draw()].wrapping_sub(shift),
            Routing::Ecmp | Routing::Spray => {
                let message = self.packets[slot].message;
                links[self.hash_path(message, id, hops, n as u32) as usize].wrapping_sub(shift)
            }
            Routing::VirtualCircuit => {
                let default = fixed().wrapping_sub(shift);
                self.virtual_circuit_link(switch, slot, default, shift, step.links)
            }
            Routing::Adaptive => {
                if step.links.len() == 1 {
                    step.links[0].wrapping_sub(shift)
                } else if model.settings.adaptive.per == AdaptiveUnit::Flow {
                    let usual = fixed().wrapping_sub(shift);
                    self.flow_link(switch, slot, &step, usual, shift)
                } else if self.adaptive_by_rule {
                    let draw = draw();
                    self.adaptive_link(switch, slot, &step, lane, shift, draw)
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
    fn least_loaded(&self, step: &RouteStep<'_>, lane: u8, shift: u32, start: usize) -> u32 {
        let shortest = step.minimal();
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
        if model.settings.detour == Detour::Valiant || !state.is_on_detour() {
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
}
