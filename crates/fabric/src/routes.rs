//! Up/down routes: for every switch and destination, the candidate links.
//!
//! A path goes up to higher switches, then down. It goes down as soon as it can and never up again,
//! so there is no cyclic channel dependency (up*/down* routing; Schroeder et al., Autonet, 1991).
//! Switches are ordered by tier, then by number. If two leaves have no common ancestor in that order,
//! a breadth-first tree supplies the order instead; it always connects them.
//!
//! Large regular trees need no table: see [`crate::tree`].

use std::collections::HashMap;

use crate::d_mod_k::DModK;
use crate::memory::filled;
use crate::tree::TreeRoutes;
use crate::{Fabric, FabricError, NONE};

/// What a routing table is called in error messages.
pub(crate) const TABLE: &str = "the routing table";

/// A table of at most this many entries is used even where routes could be computed: it is faster.
const SMALL_TABLE: usize = 1 << 12;

/// Candidate links from every switch to every switch with nodes.
#[derive(Debug, Clone)]
pub struct Routes {
    /// Link by which each node injects.
    pub injection: Vec<u32>,
    /// Link by which each node is reached.
    pub ejection: Vec<u32>,
    /// Column in the table of the switch of each node.
    pub column: Vec<u32>,
    /// Number of columns: switches with nodes.
    pub columns: u32,
    /// Number of the candidate set of (switch, column), row-major; `u32::MAX` if there is no path.
    pub table: Vec<u32>,
    /// Candidate set `i` is `set_links[set_start[i]..set_start[i + 1]]`.
    pub set_start: Vec<u32>,
    /// Links of all candidate sets, ascending within a set.
    pub set_links: Vec<u32>,
    /// Virtual lane of the path from (switch, column), as `table`; empty if all take lane 0. See
    /// [`crate::RoutePlan::spread_over_lanes`].
    pub lane: Vec<u8>,
    /// Number of virtual lanes that packets take.
    pub lanes: u8,
    /// Data for D-mod-k.
    pub(crate) d_mod_k: DModK,
    /// Replaces the table in large regular trees; the table is then empty.
    pub(crate) tree: Option<TreeRoutes>,
}

impl Routes {
    /// Computes the up/down routes of `fabric`.
    ///
    /// # Errors
    /// [`FabricError::NodeCables`]. A pair without a path is not an error: see [`Routes::require`].
    pub fn up_down(fabric: &Fabric) -> Result<Self, FabricError> {
        let all: Vec<u32> = (0..fabric.n_nodes).collect();
        Self::up_down_among(fabric, &all)
    }

    /// As [`Routes::up_down`], for traffic among `nodes` only; with no nodes, there are no routes.
    ///
    /// Tiers define the direction of links as long as they connect these nodes: otherwise one stray
    /// management switch of a real fabric would force all routes into a tree with one root.
    ///
    /// # Errors
    /// As [`Routes::up_down`].
    pub fn up_down_among(fabric: &Fabric, nodes: &[u32]) -> Result<Self, FabricError> {
        let routes = Self::attach_nodes(fabric)?;
        if nodes.is_empty() {
            return Ok(routes);
        }
        if fabric.n_switches as usize * routes.columns as usize > SMALL_TABLE
            && let Some(tree) = TreeRoutes::detect(fabric, &routes.injection, &routes.column)
        {
            return Ok(routes.with_tree(fabric, tree));
        }
        Self::table_among(fabric, nodes)
    }

    /// As [`Routes::up_down`], but always computed arithmetically; `None` if the fabric is not a
    /// regular tree. Takes 4 bytes per link and 36 per switch; where switches have a choice of down
    /// links, also 4 bytes per node and tier and 5 per link.
    ///
    /// # Errors
    /// [`FabricError::NodeCables`].
    pub fn arithmetic(fabric: &Fabric) -> Result<Option<Self>, FabricError> {
        let routes = Self::attach_nodes(fabric)?;
        Ok(TreeRoutes::detect(fabric, &routes.injection, &routes.column)
            .map(|tree| routes.with_tree(fabric, tree)))
    }

    /// As [`Routes::up_down`], but always with a table: 4 bytes × switches × switches with nodes.
    ///
    /// # Errors
    /// [`FabricError::NodeCables`] or [`FabricError::OutOfMemory`].
    pub fn table(fabric: &Fabric) -> Result<Self, FabricError> {
        let all: Vec<u32> = (0..fabric.n_nodes).collect();
        Self::table_among(fabric, &all)
    }

    fn table_among(fabric: &Fabric, nodes: &[u32]) -> Result<Self, FabricError> {
        let mut routes = Self::attach_nodes(fabric)?;
        let by_tier: Vec<u64> = (0..fabric.n_switches as usize)
            .map(|s| (((fabric.switch_tier[s] + 1).max(0) as u64) << 32) | s as u64)
            .collect();
        let missing = routes.fill(fabric, &by_tier, nodes)?;
        if missing > 0 {
            let mut breadth_first = Self::attach_nodes(fabric)?;
            // In a broken fabric both orders may leave pairs unconnected: then keep the tiers.
            if breadth_first.fill(fabric, &breadth_first_heights(fabric), nodes)? < missing {
                routes = breadth_first;
            }
        }
        Ok(routes)
    }

    /// The candidate links at `switch` towards `node`, which is attached to another switch.
    #[inline]
    pub fn candidates(&self, switch: u32, node: u32) -> &[u32] {
        self.candidate_set(switch, node).1
    }

    /// The candidates and their position in `set_links` (of arithmetic routes: among all links).
    #[inline]
    pub(crate) fn candidate_set(&self, switch: u32, node: u32) -> (usize, &[u32]) {
        let column = self.column[node as usize];
        if let Some(tree) = &self.tree {
            let links = tree.candidates(switch, column);
            return (links.first().map_or(0, |&link| link as usize), links);
        }
        let set = self.table[switch as usize * self.columns as usize + column as usize] as usize;
        let start = self.set_start[set] as usize;
        (start, &self.set_links[start..self.set_start[set + 1] as usize])
    }

    /// The candidates at `switch` towards the other switch whose [`Routes::column`] is `column`, as a
    /// range of links; `None` unless routes are arithmetic.
    #[inline]
    pub fn candidate_range(&self, switch: u32, column: u32) -> Option<std::ops::Range<u32>> {
        self.tree.as_ref().map(|tree| tree.candidate_range(switch, column))
    }

    /// Whether routes are computed when needed instead of looked up in a table.
    pub fn is_arithmetic(&self) -> bool {
        self.tree.is_some()
    }

    /// Size of the routes in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let words = self.injection.capacity()
            + self.ejection.capacity()
            + self.column.capacity()
            + self.table.capacity()
            + self.set_start.capacity()
            + self.set_links.capacity();
        4 * words
            + self.lane.capacity()
            + self.d_mod_k.bytes()
            + self.tree.as_ref().map_or(0, TreeRoutes::bytes)
    }

    /// Whether `switch` has a route to `node`, which is attached to another switch.
    pub(crate) fn has_route(&self, fabric: &Fabric, switch: u32, node: u32) -> bool {
        let column = self.column[node as usize];
        match &self.tree {
            Some(tree) => tree.has_route(fabric, switch, column),
            None => {
                let entry = switch as usize * self.columns as usize + column as usize;
                self.table.get(entry).is_some_and(|&set| set != NONE)
            }
        }
    }

    /// Checks that there is a path between the switches of two nodes.
    ///
    /// # Errors
    /// [`FabricError::Unconnected`].
    pub fn require(&self, fabric: &Fabric, from: u32, to: u32) -> Result<(), FabricError> {
        let switch = fabric.link_dst[self.injection[from as usize] as usize] - fabric.n_nodes;
        let target = fabric.link_src[self.ejection[to as usize] as usize] - fabric.n_nodes;
        if switch != target && !self.has_route(fabric, switch, to) {
            return Err(FabricError::Unconnected { from: switch, to: target });
        }
        Ok(())
    }

    /// Finds each node's cable and assigns a column to each switch with nodes.
    pub(crate) fn attach_nodes(fabric: &Fabric) -> Result<Self, FabricError> {
        let nodes = fabric.n_nodes;
        let mut column_of_switch = vec![NONE; fabric.n_switches as usize];
        let mut routes = Routes {
            injection: Vec::with_capacity(nodes as usize),
            ejection: Vec::with_capacity(nodes as usize),
            column: Vec::with_capacity(nodes as usize),
            columns: 0,
            table: Vec::new(),
            set_start: vec![0],
            set_links: Vec::new(),
            lane: Vec::new(),
            lanes: 1,
            d_mod_k: DModK::plain(fabric.n_switches),
            tree: None,
        };
        for node in 0..nodes {
            let links = fabric.out_links(node);
            let link = links.start;
            if links.len() != 1 || fabric.is_node(fabric.link_dst[link as usize]) {
                return Err(FabricError::NodeCables { node, cables: links.len() });
            }
            let switch = (fabric.link_dst[link as usize] - nodes) as usize;
            if column_of_switch[switch] == NONE {
                column_of_switch[switch] = routes.columns;
                routes.columns += 1;
            }
            routes.injection.push(link);
            routes.ejection.push(fabric.link_reverse[link as usize]);
            routes.column.push(column_of_switch[switch]);
        }
        Ok(routes)
    }

    /// Fills the table; links lead up to switches of greater `height`.
    ///
    /// Returns the number of unconnected pairs of switches that both have nodes of `endpoints`. Other
    /// pairs may be unconnected: a core switch that lost its cable to a pod has no path to it.
    ///
    /// # Errors
    /// [`FabricError::OutOfMemory`] if there is no memory for the table.
    fn fill(
        &mut self,
        fabric: &Fabric,
        height: &[u64],
        endpoints: &[u32],
    ) -> Result<usize, FabricError> {
        let (nodes, switches) = (fabric.n_nodes, fabric.n_switches as usize);
        let columns = self.columns as usize;
        self.table = filled(TABLE, switches.saturating_mul(columns), NONE)?;
        let mut target = vec![NONE; columns];
        for node in 0..nodes as usize {
            target[self.column[node] as usize] =
                fabric.link_dst[self.injection[node] as usize] - nodes;
        }
        let mut has_endpoint = vec![false; switches];
        for &node in endpoints {
            has_endpoint[target[self.column[node as usize] as usize] as usize] = true;
        }
        let mut order: Vec<u32> = (0..switches as u32).collect();
        order.sort_unstable_by_key(|&s| std::cmp::Reverse(height[s as usize]));
        let mut set_ids: HashMap<Vec<u32>, u32> = HashMap::new();
        let (mut down, mut any) = (vec![NONE; switches], vec![NONE; switches]);
        let (mut frontier, mut set) = (Vec::new(), Vec::new());
        let mut missing = 0;
        for (column, &goal) in target.iter().enumerate() {
            down_distances(fabric, height, goal, &mut down, &mut frontier);
            any.copy_from_slice(&down);
            for &switch in &order {
                let s = switch as usize;
                if switch == goal {
                    continue;
                }
                let best = shortest_links(fabric, height, switch, (&down, &any), &mut set);
                if best == NONE {
                    missing += usize::from(has_endpoint[s] && has_endpoint[goal as usize]);
                    continue;
                }
                any[s] = best + 1;
                let entry = &mut self.table[s * columns + column];
                *entry = match set_ids.get(&set) {
                    Some(&id) => id,
                    None => {
                        let id = self.set_start.len() as u32 - 1;
                        self.set_links.extend_from_slice(&set);
                        self.set_start.push(self.set_links.len() as u32);
                        set_ids.insert(set.clone(), id);
                        id
                    }
                };
            }
        }
        self.prepare_d_mod_k(fabric);
        Ok(missing)
    }

    /// The link of the deterministic route from `switch` to `node`, which is attached to another
    /// switch.
    #[inline]
    pub fn deterministic_link(&self, switch: u32, node: u32) -> u32 {
        self.d_mod_k.choose(switch, node, self.candidate_set(switch, node))
    }

    /// Prepares the choice of deterministic routes, once the candidates are known.
    pub(crate) fn prepare_d_mod_k(&mut self, fabric: &Fabric) {
        let all_links = || match &self.tree {
            Some(_) => (0..fabric.n_links() as u32).collect(),
            None => self.set_links.clone(),
        };
        let sets = self.sets_with_a_choice(fabric);
        self.d_mod_k = DModK::new(fabric, &self.injection, &sets, all_links);
    }

    /// Every candidate set of more than one link, and where it begins as in
    /// [`Routes::candidate_set`].
    fn sets_with_a_choice(&self, fabric: &Fabric) -> Vec<(usize, &[u32])> {
        let mut all: Vec<(usize, &[u32])> = Vec::new();
        if let Some(tree) = &self.tree {
            let sets = (0..fabric.n_switches).flat_map(|switch| tree.sets(fabric, switch));
            all.extend(
                sets.filter(|links| links.len() > 1).map(|links| (links[0] as usize, links)),
            );
        } else {
            let ends = self.set_start.windows(2).map(|ends| [ends[0] as usize, ends[1] as usize]);
            let several = ends.filter(|[start, end]| end - start > 1);
            all.extend(several.map(|[start, end]| (start, &self.set_links[start..end])));
        }
        all
    }

    /// Uses arithmetic routes instead of a table.
    fn with_tree(mut self, fabric: &Fabric, tree: TreeRoutes) -> Self {
        self.tree = Some(tree);
        self.prepare_d_mod_k(fabric);
        self
    }
}

/// Collects in `set` the links of `switch` that begin its shortest paths: down links if the
/// destination can be reached going down, else uplinks.
///
/// `down` and `any` are the distances of all switches to the destination, going down only and by any
/// up/down path. Returns the distance of the switches that the links lead to, [`NONE`] without a path.
#[inline]
fn shortest_links(
    fabric: &Fabric,
    height: &[u64],
    switch: u32,
    (down, any): (&[u32], &[u32]),
    set: &mut Vec<u32>,
) -> u32 {
    let s = switch as usize;
    let climbing = down[s] == NONE;
    let mut best = NONE;
    set.clear();
    for link in fabric.out_links(fabric.n_nodes + switch) {
        let dst = fabric.link_dst[link as usize];
        if fabric.is_node(dst) {
            continue;
        }
        let next = (dst - fabric.n_nodes) as usize;
        let distance = match (climbing, height[next] > height[s]) {
            (true, true) => any[next],
            (false, false) => down[next],
            _ => NONE,
        };
        if distance < best {
            best = distance;
            set.clear();
        }
        if distance == best && distance != NONE {
            set.push(link);
        }
    }
    best
}

/// Computes the distance to `goal` of every switch from which a path leads down only.
fn down_distances(
    fabric: &Fabric,
    height: &[u64],
    goal: u32,
    down: &mut [u32],
    frontier: &mut Vec<u32>,
) {
    down.fill(NONE);
    frontier.clear();
    down[goal as usize] = 0;
    frontier.push(goal);
    let mut head = 0;
    while head < frontier.len() {
        let switch = frontier[head];
        head += 1;
        for link in fabric.out_links(fabric.n_nodes + switch) {
            let dst = fabric.link_dst[link as usize];
            if fabric.is_node(dst) {
                continue;
            }
            let above = (dst - fabric.n_nodes) as usize;
            if height[above] > height[switch as usize] && down[above] == NONE {
                down[above] = down[switch as usize] + 1;
                frontier.push(above as u32);
            }
        }
    }
}

/// Heights from a breadth-first tree in each connected part, rooted at its highest switch with the
/// most links.
fn breadth_first_heights(fabric: &Fabric) -> Vec<u64> {
    let n = fabric.n_switches as usize;
    let mut depth = vec![NONE; n];
    let mut roots: Vec<u32> = (0..n as u32).collect();
    roots.sort_unstable_by_key(|&s| {
        let links = fabric.out_links(fabric.n_nodes + s).len();
        (std::cmp::Reverse((fabric.switch_tier[s as usize], links)), s)
    });
    for root in roots {
        if depth[root as usize] != NONE {
            continue;
        }
        depth[root as usize] = 0;
        let mut queue = vec![root];
        let mut head = 0;
        while head < queue.len() {
            let switch = queue[head];
            head += 1;
            for link in fabric.out_links(fabric.n_nodes + switch) {
                let dst = fabric.link_dst[link as usize];
                if !fabric.is_node(dst) && depth[(dst - fabric.n_nodes) as usize] == NONE {
                    depth[(dst - fabric.n_nodes) as usize] = depth[switch as usize] + 1;
                    queue.push(dst - fabric.n_nodes);
                }
            }
        }
    }
    (0..n).map(|s| ((u64::from(u32::MAX - depth[s])) << 32) | s as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fat_tree::{Shape, build};
    use proptest::prelude::*;

    /// Follows all candidates from one node to another; returns the switches on the longest path.
    fn longest(fabric: &Fabric, routes: &Routes, from: u32, to: u32) -> usize {
        let goal = fabric.link_src[routes.ejection[to as usize] as usize];
        let mut at = vec![fabric.link_dst[routes.injection[from as usize] as usize]];
        let mut steps = 1;
        while at != [goal] {
            let mut next: Vec<u32> = at
                .iter()
                .flat_map(|&v| routes.candidates(v - fabric.n_nodes, to))
                .map(|&link| fabric.link_dst[link as usize])
                .collect();
            next.sort_unstable();
            next.dedup();
            at = next;
            steps += 1;
            assert!(steps <= 2 * fabric.n_switches as usize, "path does not end");
        }
        steps
    }

    #[test]
    fn tapered_paths_visit_one_three_or_five_switches() {
        let fabric = build(&Shape::TAPERED).unwrap();
        let routes = Routes::up_down(&fabric).unwrap();
        assert_eq!(longest(&fabric, &routes, 0, 31), 1);
        assert_eq!(longest(&fabric, &routes, 0, 32), 3);
        assert_eq!(longest(&fabric, &routes, 0, 24 * 32), 5);
        // At a leaf every uplink is a candidate; from a core, eight links lead down into a pod.
        assert_eq!(routes.candidates(0, 32).len(), 16);
        assert_eq!(routes.candidates(144, 24 * 32).len(), 24);
        assert_eq!(routes.candidates(240, 0).len(), 8);
    }

    proptest! {
        #[test]
        fn random_switch_graphs_route_every_connected_pair(
            switches in 2u32..12,
            extra in proptest::collection::vec((0u32..12, 0u32..12), 0..20),
            tiers in proptest::collection::vec(0i32..3, 12),
        ) {
            // A random tree with random extra cables and arbitrary tiers, one node per switch.
            let mut cables = CableList::new(2 * switches as usize);
            for s in 0..switches {
                cables.add(s, switches + s, 100.0, 0);
                if s > 0 {
                    cables.add(switches + s, switches + s / 2, 100.0, 0);
                }
            }
            for (a, b) in extra {
                if a % switches != b % switches {
                    cables.add(switches + a % switches, switches + b % switches, 100.0, 0);
                }
            }
            let tier = tiers[..switches as usize].to_vec();
            let fabric = cables.finish(switches, tier, vec![-1; switches as usize]).unwrap();
            let routes = Routes::up_down(&fabric).unwrap();
            for from in 0..switches {
                for to in 0..switches {
                    routes.require(&fabric, from, to).unwrap();
                    if from != to {
                        longest(&fabric, &routes, from, to);
                    }
                }
            }
        }
    }

    use crate::CableList;

    #[test]
    fn a_lost_cable_changes_no_other_routes() {
        // Two leaves, three spines, one of them without its cable to the second leaf.
        let mut cables = CableList::new(2 + 5);
        for (node, leaf) in [(0, 2), (1, 3)] {
            cables.add(node, leaf, 100.0, 0);
        }
        for (leaf, spine) in [(2, 4), (2, 5), (2, 6), (3, 4), (3, 5)] {
            cables.add(leaf, spine, 100.0, 0);
        }
        let fabric = cables.finish(2, vec![0, 0, 1, 1, 1], vec![-1; 5]).unwrap();
        let routes = Routes::up_down(&fabric).unwrap();
        assert_eq!(routes.candidates(0, 1).len(), 2);
        assert_eq!(routes.candidates(1, 0).len(), 2);
    }

    #[test]
    fn unconnected_switches_are_named() {
        let mut cables = CableList::new(4);
        cables.add(0, 2, 100.0, 0);
        cables.add(1, 3, 100.0, 0);
        let fabric = cables.finish(2, vec![0, 0], vec![-1, -1]).unwrap();
        let routes = Routes::up_down(&fabric).unwrap();
        assert_eq!(routes.require(&fabric, 0, 1), Err(FabricError::Unconnected { from: 0, to: 1 }));
    }
}
