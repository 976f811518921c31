//! Deadlock freedom, checked: the dependencies between buffers have no cycle.
//!
//! A *channel* is the buffer of one lane at the far end of one link. A packet in a channel waits
//! for the next one on its route, so routes make a graph of channels, and without a cycle in it no
//! set of packets can wait on one another for ever (Dally and Seitz, 1987; for adaptive choices
//! among candidates it is sufficient as well). All routes are followed: from every switch that
//! carries nodes, over every candidate and detour, to every node. Every first leg of a detour is
//! joined with every second one, also where the rule would not take that detour, so the check is
//! cautious: with detours it may refuse routes on too few lanes that happen to be safe, and never
//! accepts unsafe ones. Injection links wait but nothing waits for them, and ejection links never
//! wait, so neither can be part of a cycle.

use crate::memory::zeros;
use crate::rules::{RoutePlan, RoutingRule};
use crate::{Fabric, FabricError, RouteState};

/// The channels that each channel waits for, as bits over (port, lane) at the far end of its link.
struct BufferDependencies<'a> {
    fabric: &'a Fabric,
    lanes: usize,
    /// First word of each link; channels of a link lie side by side.
    start: Vec<usize>,
    bits: Vec<u64>,
}

/// A position of a packet: a switch and the routing state there.
type RouteNode = (u32, RouteState);

/// Channels by which packets reach the end of their detour.
type DetourEnds = std::collections::BTreeMap<(u32, u8), Vec<(u32, u8)>>;

impl RoutePlan {
    /// Proves that the routes cannot deadlock, or names a cycle.
    ///
    /// Time grows as destinations (and detours) times switches; memory as links times ports. Routes
    /// by arithmetic need no walk: they exist only for fabrics whose links were found to go up or
    /// down tiers, climb before they descend, and so cannot close a cycle.
    ///
    /// # Errors
    /// [`FabricError::Deadlock`] with a shortest cycle through one of its buffers; [`FabricError::OutOfMemory`]
    /// where switches have too many ports to check.
    pub fn check(&self, fabric: &Fabric) -> Result<(), FabricError> {
        if let RoutingRule::Table(routes) = &self.rule
            && routes.is_arithmetic()
        {
            return Ok(());
        }
        let mut waits = BufferDependencies::new(fabric, self.lanes().into())?;
        let exits = self.follow_detours(&mut waits);
        let by_node =
            matches!(&self.rule, RoutingRule::Table(routes) if routes.columns == fabric.n_nodes);
        let mut seen = vec![false; fabric.n_switches as usize];
        let mut walk = Worklist::default();
        for node in 0..fabric.n_nodes {
            let node_switch = self.node_switch[node as usize] as usize;
            if !seen[node_switch] || by_node {
                seen[node_switch] = true;
                self.follow(&mut waits, &mut walk, node, &exits);
            }
        }
        waits.cycle().map_or(Ok(()), |cycle| Err(FabricError::Deadlock { cycle }))
    }

    /// Follows every first leg; the second ones start where these end.
    fn follow_detours(&self, waits: &mut BufferDependencies<'_>) -> DetourEnds {
        let mut exits = DetourEnds::new();
        let mut walk = Worklist::default();
        for via in 0..self.detours() {
            walk.clear(waits.fabric.n_switches);
            for &switch in &self.node_switch {
                let state = self.settle(switch, via, RouteState::START.towards_detour());
                if state.detouring() {
                    walk.reach((switch, state));
                }
            }
            while let Some((switch, state)) = walk.next() {
                // A first leg does not depend on the node.
                let step = self.next(switch, 0, via, state);
                for &link in step.links {
                    let there = waits.fabric.link_dst[link as usize] - waits.fabric.n_nodes;
                    let settled = self.settle(there, via, step.next);
                    if settled.detouring() {
                        let then = self.next(there, 0, via, settled);
                        waits.add((link, step.lane), then.links, then.lane);
                        walk.reach((there, settled));
                    } else {
                        let at = exits.entry((there, settled.0)).or_default();
                        if !at.contains(&(link, step.lane)) {
                            at.push((link, step.lane));
                        }
                    }
                }
            }
        }
        exits
    }

    /// Follows every route to `node` that is on no detour.
    fn follow(
        &self,
        waits: &mut BufferDependencies<'_>,
        walk: &mut Worklist,
        node: u32,
        exits: &DetourEnds,
    ) {
        const NO_DETOUR: u32 = u32::MAX;
        let goal = self.node_switch[node as usize];
        let fabric = waits.fabric;
        let leads = |switch: u32| self.leads(fabric, switch, node);
        walk.clear(fabric.n_switches);
        for &switch in &self.node_switch {
            if switch != goal && leads(switch) {
                walk.reach((switch, RouteState::START));
            }
        }
        for (&(switch, state), channels) in exits {
            if switch == goal {
                continue;
            }
            let then = self.next(switch, node, NO_DETOUR, RouteState(state));
            for &channel in channels {
                waits.add(channel, then.links, then.lane);
            }
            walk.reach((switch, RouteState(state)));
        }
        while let Some((switch, state)) = walk.next() {
            let step = self.next(switch, node, NO_DETOUR, state);
            for &link in step.links {
                let there = fabric.link_dst[link as usize] - fabric.n_nodes;
                if there == goal || !leads(there) {
                    continue;
                }
                let then = self.next(there, node, NO_DETOUR, step.next);
                waits.add((link, step.lane), then.links, then.lane);
                walk.reach((there, step.next));
            }
        }
    }
}

/// Positions to continue from, each once.
#[derive(Default)]
struct Worklist {
    /// Bit per state, two words for a switch: 64 classes, with and without detour.
    seen: Vec<[u64; 2]>,
    open: Vec<RouteNode>,
}

impl Worklist {
    fn clear(&mut self, switches: u32) {
        self.seen.clear();
        self.seen.resize(switches as usize, [0; 2]);
        self.open.clear();
    }

    fn reach(&mut self, place: RouteNode) {
        let (switch, state) = place;
        let word = &mut self.seen[switch as usize][usize::from(state.detouring())];
        let bit = 1 << (state.class() & 63);
        if *word & bit == 0 {
            *word |= bit;
            self.open.push(place);
        }
    }

    fn next(&mut self) -> Option<RouteNode> {
        self.open.pop()
    }
}

impl<'a> BufferDependencies<'a> {
    fn new(fabric: &'a Fabric, lanes: usize) -> Result<Self, FabricError> {
        let mut start = Vec::with_capacity(fabric.n_links() + 1);
        let mut words = 0usize;
        for &dst in &fabric.link_dst {
            start.push(words);
            let ports = if fabric.is_node(dst) { 0 } else { fabric.out_links(dst).len() };
            words = words.saturating_add(lanes * (ports * lanes).div_ceil(64));
        }
        start.push(words);
        let bits = zeros("looking for deadlocks among so many ports", words)?;
        Ok(Self { fabric, lanes, start, bits })
    }

    /// Words of a channel.
    fn words(&self, (link, lane): (u32, u8)) -> std::ops::Range<usize> {
        let (first, end) = (self.start[link as usize], self.start[link as usize + 1]);
        let each = (end - first) / self.lanes;
        first + usize::from(lane) * each..first + (usize::from(lane) + 1) * each
    }

    #[inline]
    fn add(&mut self, channel: (u32, u8), links: &[u32], lane: u8) {
        let base = self.fabric.out_start[self.fabric.link_dst[channel.0 as usize] as usize];
        let first = self.words(channel).start;
        for &link in links {
            let bit = (link - base) as usize * self.lanes + usize::from(lane);
            self.bits[first + bit / 64] |= 1 << (bit % 64);
        }
    }

    /// Channels that `channel` waits for.
    fn after(&self, channel: (u32, u8)) -> impl Iterator<Item = (u32, u8)> + '_ {
        let base = self.fabric.out_start[self.fabric.link_dst[channel.0 as usize] as usize];
        let words = &self.bits[self.words(channel)];
        words.iter().enumerate().flat_map(move |(index, &word)| {
            let bits = (0..64).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| {
                let bit = index * 64 + bit;
                (base + (bit / self.lanes) as u32, (bit % self.lanes) as u8)
            })
        })
    }

    fn number(&self, (link, lane): (u32, u8)) -> usize {
        link as usize * self.lanes + usize::from(lane)
    }

    /// A cycle, if there is one: depth first finds a buffer on it, breadth first the shortest back.
    fn cycle(&self) -> Option<Vec<(u32, u8)>> {
        const NEW: u8 = 0;
        const OPEN: u8 = 1;
        const DONE: u8 = 2;
        let mut mark = vec![NEW; self.fabric.n_links() * self.lanes];
        for link in 0..self.fabric.n_links() as u32 {
            for lane in 0..self.lanes as u8 {
                if mark[self.number((link, lane))] != NEW {
                    continue;
                }
                mark[self.number((link, lane))] = OPEN;
                let mut path = vec![((link, lane), self.after((link, lane)))];
                while let Some((channel, after)) = path.last_mut() {
                    let Some(next) = after.next() else {
                        mark[self.number(*channel)] = DONE;
                        path.pop();
                        continue;
                    };
                    match mark[self.number(next)] {
                        NEW => {
                            mark[self.number(next)] = OPEN;
                            path.push((next, self.after(next)));
                        }
                        OPEN => return Some(self.shortest(next)),
                        _ => {}
                    }
                }
            }
        }
        None
    }

    /// The shortest cycle through `start`, which is on one.
    fn shortest(&self, start: (u32, u8)) -> Vec<(u32, u8)> {
        let mut from = vec![None; self.fabric.n_links() * self.lanes];
        let mut queue = std::collections::VecDeque::from([start]);
        while let Some(channel) = queue.pop_front() {
            for next in self.after(channel) {
                if next == start {
                    let mut cycle = vec![channel];
                    while let Some(before) = from[self.number(cycle[cycle.len() - 1])] {
                        cycle.push(before);
                    }
                    cycle.reverse();
                    return cycle;
                }
                if from[self.number(next)].is_none() {
                    from[self.number(next)] = Some(channel);
                    queue.push_back(next);
                }
            }
        }
        vec![start]
    }
}
