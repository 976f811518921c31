//! Checks that routes are free of deadlock: the channel dependency graph must have no cycle.
//!
//! A *channel* is the buffer of one virtual lane at the receiving end of a link. A packet in one
//! channel waits for the next channel of its route. Without a cycle of such dependencies, no set of
//! packets can wait for one another forever (Dally and Seitz, 1987; the condition is also sufficient
//! for adaptive choices among candidates). The check follows every route: from each switch with
//! nodes, over every candidate link and detour, to each node. It combines every first leg of a
//! detour with every second leg, even where the rule would not take that detour. It is therefore
//! conservative: with detours it may reject routes that are safe, but it never accepts unsafe ones.
//! Nothing waits for an injection link and an ejection link waits for nothing, so neither can be
//! part of a cycle.

use crate::memory::zeros;
use crate::rules::{RoutePlan, RoutingRule};
use crate::{Fabric, FabricError, RouteState};

/// The channel dependency graph: for each channel, a bit for each (port, lane) of the next switch.
struct ChannelDependencies<'a> {
    fabric: &'a Fabric,
    lanes: usize,
    /// First word of each link; the channels of a link are adjacent.
    start: Vec<usize>,
    bits: Vec<u64>,
}

/// Where a packet is: a switch, and the routing state there.
type RoutePosition = (u32, RouteState);

/// Channels in which packets arrive at the end of a detour, by switch and routing state.
type DetourEnds = std::collections::BTreeMap<(u32, u8), Vec<(u32, u8)>>;

impl RoutePlan {
    /// Proves that the routes cannot deadlock, or returns a cyclic channel dependency.
    ///
    /// Time is proportional to destinations (plus detours) × switches, memory to links × ports.
    /// Arithmetic routes are not checked: they exist only for trees in which every link leads up or
    /// down a tier, and go up before they go down, so no cycle is possible.
    ///
    /// # Errors
    /// [`FabricError::Deadlock`] with a cycle that is the shortest through one of its channels;
    /// [`FabricError::OutOfMemory`] if the switches have too many ports to check.
    pub fn check_deadlock_free(&self, fabric: &Fabric) -> Result<(), FabricError> {
        if let RoutingRule::Table(routes) = &self.rule
            && routes.is_arithmetic()
        {
            return Ok(());
        }
        let mut dependencies = ChannelDependencies::new(fabric, self.lanes().into())?;
        let detour_ends = self.follow_detours(&mut dependencies);
        let column_per_node =
            matches!(&self.rule, RoutingRule::Table(routes) if routes.columns == fabric.n_nodes);
        let mut seen = vec![false; fabric.n_switches as usize];
        let mut worklist = Worklist::default();
        for node in 0..fabric.n_nodes {
            let node_switch = self.node_switch[node as usize] as usize;
            if !seen[node_switch] || column_per_node {
                seen[node_switch] = true;
                self.follow(&mut dependencies, &mut worklist, node, &detour_ends);
            }
        }
        dependencies.cycle().map_or(Ok(()), |cycle| Err(FabricError::Deadlock { cycle }))
    }

    /// Follows the first leg of every detour; returns where the second legs start.
    fn follow_detours(&self, dependencies: &mut ChannelDependencies<'_>) -> DetourEnds {
        let mut detour_ends = DetourEnds::new();
        let mut worklist = Worklist::default();
        for via in 0..self.detours() {
            worklist.clear(dependencies.fabric.n_switches);
            for &switch in &self.node_switch {
                let state = self.end_reached_detour(switch, via, RouteState::START.on_detour());
                if state.is_on_detour() {
                    worklist.add((switch, state));
                }
            }
            while let Some((switch, state)) = worklist.next() {
                // The first leg does not depend on the node: take node 0.
                let step = self.next(switch, 0, via, state);
                for &link in step.links {
                    let fabric = dependencies.fabric;
                    let next_switch = fabric.link_dst[link as usize] - fabric.n_nodes;
                    let next_state = self.end_reached_detour(next_switch, via, step.next);
                    if next_state.is_on_detour() {
                        let next_step = self.next(next_switch, 0, via, next_state);
                        dependencies.add((link, step.lane), next_step.links, next_step.lane);
                        worklist.add((next_switch, next_state));
                    } else {
                        let channels = detour_ends.entry((next_switch, next_state.0)).or_default();
                        if !channels.contains(&(link, step.lane)) {
                            channels.push((link, step.lane));
                        }
                    }
                }
            }
        }
        detour_ends
    }

    /// Follows all minimal routes and all second legs of detours to `node`.
    fn follow(
        &self,
        dependencies: &mut ChannelDependencies<'_>,
        worklist: &mut Worklist,
        node: u32,
        detour_ends: &DetourEnds,
    ) {
        const NO_DETOUR: u32 = u32::MAX;
        let target = self.node_switch[node as usize];
        let fabric = dependencies.fabric;
        let has_route = |switch: u32| self.has_route(fabric, switch, node);
        worklist.clear(fabric.n_switches);
        for &switch in &self.node_switch {
            if switch != target && has_route(switch) {
                worklist.add((switch, RouteState::START));
            }
        }
        for (&(switch, state), channels) in detour_ends {
            if switch == target {
                continue;
            }
            let step = self.next(switch, node, NO_DETOUR, RouteState(state));
            for &channel in channels {
                dependencies.add(channel, step.links, step.lane);
            }
            worklist.add((switch, RouteState(state)));
        }
        while let Some((switch, state)) = worklist.next() {
            let step = self.next(switch, node, NO_DETOUR, state);
            for &link in step.links {
                let next_switch = fabric.link_dst[link as usize] - fabric.n_nodes;
                if next_switch == target || !has_route(next_switch) {
                    continue;
                }
                let next_step = self.next(next_switch, node, NO_DETOUR, step.next);
                dependencies.add((link, step.lane), next_step.links, next_step.lane);
                worklist.add((next_switch, step.next));
            }
        }
    }
}

/// Positions still to be followed; each is handed out once.
#[derive(Default)]
struct Worklist {
    /// A bit for each state, two words per switch: 64 classes, without and with a detour.
    seen: Vec<[u64; 2]>,
    open: Vec<RoutePosition>,
}

impl Worklist {
    fn clear(&mut self, switches: u32) {
        self.seen.clear();
        self.seen.resize(switches as usize, [0; 2]);
        self.open.clear();
    }

    fn add(&mut self, position: RoutePosition) {
        let (switch, state) = position;
        let word = &mut self.seen[switch as usize][usize::from(state.is_on_detour())];
        let bit = 1 << (state.class() & 63);
        if *word & bit == 0 {
            *word |= bit;
            self.open.push(position);
        }
    }

    fn next(&mut self) -> Option<RoutePosition> {
        self.open.pop()
    }
}

impl<'a> ChannelDependencies<'a> {
    fn new(fabric: &'a Fabric, lanes: usize) -> Result<Self, FabricError> {
        let mut start = Vec::with_capacity(fabric.n_links() + 1);
        let mut words = 0usize;
        for &dst in &fabric.link_dst {
            start.push(words);
            let ports = if fabric.is_node(dst) { 0 } else { fabric.out_links(dst).len() };
            words = words.saturating_add(lanes * (ports * lanes).div_ceil(64));
        }
        start.push(words);
        let bits = zeros("the deadlock check", words)?;
        Ok(Self { fabric, lanes, start, bits })
    }

    /// Range of the words of a channel.
    fn words(&self, (link, lane): (u32, u8)) -> std::ops::Range<usize> {
        let (first, end) = (self.start[link as usize], self.start[link as usize + 1]);
        let per_lane = (end - first) / self.lanes;
        first + usize::from(lane) * per_lane..first + (usize::from(lane) + 1) * per_lane
    }

    /// Makes `channel` wait for `lane` of each of `links`.
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
    fn successors(&self, channel: (u32, u8)) -> impl Iterator<Item = (u32, u8)> + '_ {
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

    fn index(&self, (link, lane): (u32, u8)) -> usize {
        link as usize * self.lanes + usize::from(lane)
    }

    /// A cycle, if there is one: a depth-first search finds a channel on a cycle, a breadth-first
    /// search from there the shortest cycle through it.
    fn cycle(&self) -> Option<Vec<(u32, u8)>> {
        const NEW: u8 = 0;
        const OPEN: u8 = 1;
        const DONE: u8 = 2;
        let mut mark = vec![NEW; self.fabric.n_links() * self.lanes];
        for link in 0..self.fabric.n_links() as u32 {
            for lane in 0..self.lanes as u8 {
                if mark[self.index((link, lane))] != NEW {
                    continue;
                }
                mark[self.index((link, lane))] = OPEN;
                let mut path = vec![((link, lane), self.successors((link, lane)))];
                while let Some((channel, successors)) = path.last_mut() {
                    let Some(next) = successors.next() else {
                        mark[self.index(*channel)] = DONE;
                        path.pop();
                        continue;
                    };
                    match mark[self.index(next)] {
                        NEW => {
                            mark[self.index(next)] = OPEN;
                            path.push((next, self.successors(next)));
                        }
                        OPEN => return Some(self.shortest_cycle(next)),
                        _ => {}
                    }
                }
            }
        }
        None
    }

    /// The shortest cycle through `start`, which is on a cycle.
    fn shortest_cycle(&self, start: (u32, u8)) -> Vec<(u32, u8)> {
        let mut from = vec![None; self.fabric.n_links() * self.lanes];
        let mut queue = std::collections::VecDeque::from([start]);
        while let Some(channel) = queue.pop_front() {
            for next in self.successors(channel) {
                if next == start {
                    let mut cycle = vec![channel];
                    while let Some(before) = from[self.index(cycle[cycle.len() - 1])] {
                        cycle.push(before);
                    }
                    cycle.reverse();
                    return cycle;
                }
                if from[self.index(next)].is_none() {
                    from[self.index(next)] = Some(channel);
                    queue.push_back(next);
                }
            }
        }
        vec![start]
    }
}
