//! Assigns the paths of forwarding tables to virtual lanes so that routes cannot deadlock.
//!
//! InfiniBand's forwarding tables do not name lanes. The subnet manager gives each path a service
//! level, which selects the lane. Tables on rings, tori and dragonflies need several lanes, because
//! their channels form cycles on a single one. Here, too, a packet stays on the lane of its path
//! from a switch to a node. Channels then wait only for channels of the same lane, and it suffices
//! that each lane is free of cycles. These are the layers of LASH (Skeie, Lysne and Theiss, IPDPS
//! 2002) and DFSSSP (Domke, Hoefler and Nagel, IPDPS 2011). As in LASH, paths come in order and
//! take the first lane on which they close no cycle. A subnet manager may have chosen otherwise.
//!
//! Each lane keeps a topological order of its channels while dependencies are added
//! (Marchetti-Spaccamela, Nanni and Rohnert, Information Processing Letters 59, 1996): only
//! channels between the two ends of a dependency that contradicts the order are visited.
//! Dependencies are never removed. So a dependency that once closed a cycle always does, and is not
//! tried again.

use crate::memory::filled;
use crate::rules::{RoutePlan, RouteState, RoutingRule};
use crate::{Fabric, FabricError, Routes};

/// Virtual lanes for data that InfiniBand has; lane 15 is for management.
pub const DATA_LANES: u8 = 15;

impl Routes {
    /// Virtual lane of a packet for `node` at `switch`, and its next state. The first switch
    /// selects the lane of the path, and later switches keep it.
    #[inline]
    pub(crate) fn lane_of_path(
        &self,
        switch: u32,
        node: u32,
        state: RouteState,
    ) -> (u8, RouteState) {
        if self.lanes == 1 {
            return (0, state);
        }
        let lane = match state.class() {
            0 => {
                let column = self.column[node as usize] as usize;
                self.lane[switch as usize * self.columns as usize + column]
            }
            taken => taken - 1,
        };
        (lane, RouteState(lane + 1))
    }

    /// Whether every switch has at most one link to each node.
    fn is_single_path(&self) -> bool {
        !self.is_arithmetic() && self.set_start.len() == self.set_links.len() + 1
    }
}

impl RoutePlan {
    /// Lets single-path routes of a table use more than one virtual lane if they can deadlock on one;
    /// other routes stay as they are. [`RoutePlan::lanes`] tells how many lanes they use afterwards.
    ///
    /// # Errors
    /// [`FabricError::TooFewLanes`] if [`DATA_LANES`] lanes do not suffice. Otherwise as
    /// [`RoutePlan::check_deadlock_free`].
    pub fn spread_over_lanes(&mut self, fabric: &Fabric) -> Result<(), FabricError> {
        let checked = self.check_deadlock_free(fabric);
        match (&checked, &mut self.rule) {
            (Err(FabricError::Deadlock { .. }), RoutingRule::Table(routes))
                if routes.is_single_path() =>
            {
                let lane = lanes_of_paths(fabric, routes, &self.node_switch)?;
                routes.lanes = 1 + lane.iter().max().copied().unwrap_or(0);
                routes.lane = lane;
                Ok(())
            }
            _ => checked,
        }
    }

    /// Takes over the lanes of `other`, a table on `other_fabric` that cannot deadlock, in place of
    /// [`RoutePlan::spread_over_lanes`]; false if it has other links or routes. Rates and delays may
    /// differ.
    pub fn take_lanes_of(&mut self, fabric: &Fabric, other: &Self, other_fabric: &Fabric) -> bool {
        let (RoutingRule::Table(routes), RoutingRule::Table(other_routes)) =
            (&mut self.rule, &other.rule)
        else {
            return false;
        };
        let alike = !other_routes.is_arithmetic()
            && fabric.link_src == other_fabric.link_src
            && fabric.link_dst == other_fabric.link_dst
            && routes.column == other_routes.column
            && routes.set_start == other_routes.set_start
            && routes.set_links == other_routes.set_links
            && routes.table == other_routes.table;
        if alike {
            routes.lane.clone_from(&other_routes.lane);
            routes.lanes = other_routes.lanes;
        }
        alike
    }
}

/// The lane of the path from each switch with nodes to each node, in the shape of the table; 0 for
/// other switches.
fn lanes_of_paths(
    fabric: &Fabric,
    routes: &Routes,
    node_switch: &[u32],
) -> Result<Vec<u8>, FabricError> {
    let mut starts = node_switch.to_vec();
    starts.sort_unstable();
    starts.dedup();
    let mut lanes: Vec<OrderedChannels<'_>> = Vec::new();
    let mut assigned = filled("the virtual lanes", routes.table.len(), 0)?;
    let mut path = Vec::new();
    for (node, &target) in (0..).zip(node_switch) {
        let column = routes.column[node as usize] as usize;
        for &start in &starts {
            path.clear();
            let mut switch = start;
            while switch != target && routes.has_route(fabric, switch, node) {
                let link = routes.candidates(switch, node)[0];
                path.push(link);
                switch = fabric.link_dst[link as usize] - fabric.n_nodes;
            }
            let mut lane = 0;
            while lane < lanes.len() && !lanes[lane].add_path(&path) {
                lane += 1;
            }
            if lane == lanes.len() {
                // A single path cannot close a cycle.
                if lane == usize::from(DATA_LANES) {
                    return Err(FabricError::TooFewLanes { lanes: DATA_LANES, from: start, node });
                }
                lanes.push(OrderedChannels::new(fabric)?);
                lanes[lane].add_path(&path);
            }
            assigned[start as usize * routes.columns as usize + column] = lane as u8;
        }
    }
    Ok(assigned)
}

/// State of a dependency on one lane.
const UNKNOWN: u8 = 0;
const ADDED: u8 = 1;
const CLOSES_CYCLE: u8 = 2;

/// The channels of one lane, with the dependencies among them and in a topological order of these.
struct OrderedChannels<'a> {
    fabric: &'a Fabric,
    /// First element in `states` of the dependencies of each link on those of its far end.
    start: Vec<usize>,
    states: Vec<u8>,
    /// Channels that wait for each channel.
    waited_by: Vec<Vec<u32>>,
    /// A topological order of the channels (each precedes those it waits for), and the position of
    /// each.
    order: Vec<u32>,
    position: Vec<u32>,
    /// Channels that the current search has reached, and a mark for each. Empty between searches.
    reached: Vec<u32>,
    is_reached: Vec<bool>,
    /// Channels that are about to move back in the order.
    behind: Vec<u32>,
}

impl<'a> OrderedChannels<'a> {
    /// Without dependencies.
    fn new(fabric: &'a Fabric) -> Result<Self, FabricError> {
        let links = fabric.n_links();
        let mut start = Vec::with_capacity(links);
        let mut dependencies = 0usize;
        for &dst in &fabric.link_dst {
            start.push(dependencies);
            let ports = if fabric.is_node(dst) { 0 } else { fabric.out_links(dst).len() };
            dependencies = dependencies.saturating_add(ports);
        }
        Ok(Self {
            fabric,
            start,
            states: filled("the deadlock check", dependencies, UNKNOWN)?,
            waited_by: vec![Vec::new(); links],
            order: (0..links as u32).collect(),
            position: (0..links as u32).collect(),
            reached: Vec::new(),
            is_reached: vec![false; links],
            behind: Vec::new(),
        })
    }

    /// Adds the dependencies of a path of links; false if one of them would close a cycle.
    fn add_path(&mut self, path: &[u32]) -> bool {
        let refused = |hop: &[u32]| self.states[self.dependency(hop[0], hop[1])] == CLOSES_CYCLE;
        if path.windows(2).any(refused) {
            return false;
        }
        path.windows(2).all(|hop| self.add(hop[0], hop[1]))
    }

    /// Position in `states` of the dependency of `from` on `to`.
    fn dependency(&self, from: u32, to: u32) -> usize {
        let first = self.fabric.out_start[self.fabric.link_dst[from as usize] as usize];
        self.start[from as usize] + (to - first) as usize
    }

    /// Makes `from` wait for `to`; false if that would close a cycle.
    fn add(&mut self, from: u32, to: u32) -> bool {
        let dependency = self.dependency(from, to);
        if self.states[dependency] == UNKNOWN {
            if self.make_room(from, to) {
                self.states[dependency] = ADDED;
                self.waited_by[to as usize].push(from);
            } else {
                self.states[dependency] = CLOSES_CYCLE;
            }
        }
        self.states[dependency] == ADDED
    }

    /// Reorders channels such that `from` precedes `to`. Returns false, with the order unchanged,
    /// if `to` already waits for `from`, directly or indirectly.
    fn make_room(&mut self, from: u32, to: u32) -> bool {
        let (first, last) = (self.position[to as usize], self.position[from as usize]);
        if last < first {
            return true;
        }
        let cyclic = self.find_waiting_for(from, to);
        if !cyclic {
            // Channels that wait for `from` move before `to`; the order within each set is kept.
            let region = &mut self.order[first as usize..=last as usize];
            let is_reached = |channel: &u32| self.is_reached[*channel as usize];
            self.behind.clear();
            self.behind.extend(region.iter().filter(|&channel| !is_reached(channel)));
            let mut moved = 0;
            for place in 0..region.len() {
                if is_reached(&region[place]) {
                    region[moved] = region[place];
                    moved += 1;
                }
            }
            region[moved..].copy_from_slice(&self.behind);
            for (place, &channel) in (first..).zip(&*region) {
                self.position[channel as usize] = place;
            }
        }
        for channel in self.reached.drain(..) {
            self.is_reached[channel as usize] = false;
        }
        !cyclic
    }

    /// Finds the channels that wait for `from`, from the position of `to` on. Returns true, and
    /// stops, if `to` is one of them.
    fn find_waiting_for(&mut self, from: u32, to: u32) -> bool {
        let first = self.position[to as usize];
        self.is_reached[from as usize] = true;
        self.reached.push(from);
        let mut head = 0;
        while head < self.reached.len() {
            for &before in &self.waited_by[self.reached[head] as usize] {
                if before == to {
                    return true;
                }
                if self.position[before as usize] > first && !self.is_reached[before as usize] {
                    self.is_reached[before as usize] = true;
                    self.reached.push(before);
                }
            }
            head += 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torus;

    #[test]
    fn dependencies_are_accepted_until_a_cycle_closes() {
        let ring =
            torus::Dimension { size: 5, wrap: true, cables: 1, gbps: vec![100.0], delay_ps: 0 };
        let fabric = torus::build(&torus::Shape {
            dimensions: vec![ring],
            nodes_per_switch: 1,
            node_gbps: 100.0,
            node_delay_ps: 0,
        });
        let fabric = fabric.unwrap();
        let to_next = |switch: u32| {
            let next = 5 + (switch + 1) % 5;
            fabric.out_links(5 + switch).find(|&l| fabric.link_dst[l as usize] == next).unwrap()
        };
        let links: Vec<u32> = (0..5).map(to_next).collect();
        let mut channels = OrderedChannels::new(&fabric).unwrap();
        assert!(channels.add_path(&[links[3], links[4]]));
        assert!(channels.add_path(&[links[4], links[0], links[1]]));
        assert!(channels.add_path(&[links[2], links[3]]));
        assert!(!channels.add_path(&[links[1], links[2]]));
        assert!(!channels.add_path(&[links[0], links[1], links[2]]), "refused for good");
        let order = [2, 3, 4, 0, 1].map(|switch| channels.position[links[switch] as usize]);
        assert!(order.is_sorted(), "{order:?}");
        assert!(channels.is_reached.iter().all(|is_reached| !is_reached));
    }
}
