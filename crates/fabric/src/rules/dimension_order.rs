//! Dimension-order routing on tori and meshes: first X, then Y, then Z, each in its shorter direction.
//!
//! If both directions around a ring are equally long, a tie rule decides. The routers of Blue
//! Waters do the same. Their tie rule is documented only as deterministic (Jha et al., section II),
//! so it is a setting here. In a ring, a packet that has yet to cross the wrap-around link uses
//! lane 0, any other packet lane 1 (Dally and Seitz, 1987). No channel of lane 1 waits for the
//! wrap-around link, so the ring has no cyclic channel dependency. A detour (Valiant, 1982) goes in
//! dimension order to a random intermediate switch, then on a separate set of lanes to the node.

use super::step::{LinkSets, RouteState, RouteStep, coordinates, differing_dimension};
use crate::error::{MessagePart, message};
use crate::{Fabric, FabricError};

/// Direction to take around a ring if both are equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// Towards higher coordinates.
    Positive,
    /// Towards lower coordinates.
    Negative,
    /// Positive from even coordinates, negative from odd ones: balances the load.
    Parity,
}

/// Dimension-order routes.
#[derive(Debug, Clone)]
pub struct DimensionOrder {
    dims: Vec<u16>,
    /// Whether each dimension has wrap-around links.
    wrap: Vec<bool>,
    /// Coordinates of every switch, one for each dimension.
    coordinates: Vec<u16>,
    tie: Tie,
    dateline: bool,
    detour: bool,
    /// Links by (switch, dimension, direction: 0 positive, 1 negative).
    links: LinkSets,
}

const RULE: &str = "dimension-order";

impl DimensionOrder {
    /// Assigns the links of `fabric` to the dimensions of size `dims`; the first dimension varies
    /// fastest in the numbering of switches.
    ///
    /// `dateline` gives rings two lanes. Without it, the rule has one lane and can deadlock on rings of
    /// four or more switches, as [`crate::RoutePlan::check_deadlock_free`] shows.
    ///
    /// # Errors
    /// [`FabricError::WrongTopology`]: a link between switches that are not neighbours, or neighbours
    /// without a link.
    pub fn new(
        fabric: &Fabric,
        dims: &[u32],
        tie: Tie,
        dateline: bool,
        detour: bool,
    ) -> Result<Self, FabricError> {
        let coordinates = coordinates(RULE, fabric, dims)?;
        let n = dims.len();
        let of = |switch: u32| &coordinates[switch as usize * n..(switch as usize + 1) * n];
        let mut wrap = vec![false; n];
        let mut pairs = Vec::new();
        for link in 0..fabric.n_links() {
            let (src, dst) = (fabric.link_src[link], fabric.link_dst[link]);
            if fabric.is_node(src) || fabric.is_node(dst) {
                continue;
            }
            let (a, b) = (src - fabric.n_nodes, dst - fabric.n_nodes);
            let wrong = || FabricError::WrongTopology {
                rule: RULE,
                why: message![
                    MessagePart::Link(link as u32),
                    " connects switches that are not neighbours"
                ],
            };
            let d = differing_dimension(of(a), of(b)).ok_or_else(wrong)?;
            let (size, x, y) = (dims[d] as u16, of(a)[d], of(b)[d]);
            let positive = if x.abs_diff(y) == 1 {
                y > x
            } else if x.abs_diff(y) == size - 1 {
                wrap[d] = true;
                y == 0
            } else {
                return Err(wrong());
            };
            pairs.push((
                2 * (u64::from(a) * n as u64 + d as u64) + u64::from(!positive),
                link as u32,
            ));
        }
        let links = LinkSets::of(2 * n * fabric.n_switches as usize, pairs);
        let dims: Vec<u16> = dims.iter().map(|&size| size as u16).collect();
        let rule = Self { dims, wrap, coordinates, tie, dateline, detour, links };
        rule.require_links(fabric.n_switches)?;
        Ok(rule)
    }

    /// Checks that all neighbours have a link.
    fn require_links(&self, switches: u32) -> Result<(), FabricError> {
        let n = self.dims.len();
        for switch in 0..switches as usize {
            for d in 0..n {
                for (direction, end) in [(0, self.dims[d] - 1), (1, 0)] {
                    let needed = self.wrap[d] || self.coordinates[switch * n + d] != end;
                    if needed && self.links.get(2 * (switch * n + d) + direction).is_empty() {
                        let name = ["positive", "negative"][direction];
                        let why = message![
                            MessagePart::Switch(switch as u32),
                            format!(" has no link in the {name} direction of dimension {d}")
                        ];
                        return Err(FabricError::WrongTopology { rule: RULE, why });
                    }
                }
            }
        }
        Ok(())
    }

    /// Number of lanes: two if there are rings, else one; twice as many with detours.
    pub fn lanes(&self) -> u8 {
        self.ring_lanes() * if self.detour { 2 } else { 1 }
    }

    fn ring_lanes(&self) -> u8 {
        if self.dateline && self.wrap.contains(&true) { 2 } else { 1 }
    }

    /// Number of detours: every switch can be the intermediate one.
    pub fn detours(&self) -> u32 {
        if self.detour { (self.coordinates.len() / self.dims.len()) as u32 } else { 0 }
    }

    /// Whether the path from coordinate `a` to another, `b`, takes the positive direction.
    #[inline]
    fn goes_positive(&self, d: usize, a: u16, b: u16) -> bool {
        if !self.wrap[d] {
            return b > a;
        }
        let size = self.dims[d];
        let positive_hops = if b > a { b - a } else { b + (size - a) };
        let negative_hops = size - positive_hops;
        match positive_hops.cmp(&negative_hops) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => match self.tie {
                Tie::Positive => true,
                Tie::Negative => false,
                Tie::Parity => a.is_multiple_of(2),
            },
        }
    }

    /// The step from `switch` towards `goal`, or towards `via` on the first leg of a detour.
    #[inline]
    pub(super) fn next(
        &self,
        switch: u32,
        goal: u32,
        via: u32,
        state: RouteState,
    ) -> RouteStep<'_> {
        let n = self.dims.len();
        let target = state.target(goal, via) as usize * n;
        let here = switch as usize * n;
        for d in 0..n {
            let (a, b) = (self.coordinates[here + d], self.coordinates[target + d]);
            if a == b {
                continue;
            }
            let positive = self.goes_positive(d, a, b);
            let lanes = self.ring_lanes();
            let wraps_around = positive == (b < a);
            let lane = if lanes == 2 && self.wrap[d] && !wraps_around { 1 } else { 0 };
            let links = self.links.get(2 * (here + d) + usize::from(!positive));
            let lane = lane + lanes * state.class();
            return RouteStep { links, next: state, lane, non_minimal: 0 };
        }
        RouteStep { links: &[], next: state, lane: 0, non_minimal: 0 }
    }
}
