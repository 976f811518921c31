//! Dimension order on tori and meshes: X first, then Y, then Z, each in its shorter direction.
//!
//! On a ring the shorter direction is used; if both are equally long (half an even ring) a fixed
//! rule decides. The routers of Blue Waters do the same, and their tie rule is only said to be
//! deterministic (characterisation of its network, §II), so it is a choice here. Within a ring a
//! packet that has the wrap-around link still ahead of it uses lane 0, any other lane 1 (Dally and
//! Seitz, 1987): no buffer of lane 1 waits for the wrap-around link, so no ring of buffers closes.
//! A detour (Valiant, 1982) goes in dimension order to a switch drawn at random, then on to the
//! node on lanes of its own.

use super::{LinkSets, RouteState, RouteStep, coordinates, one_difference};
use crate::{Fabric, FabricError};

/// Direction on a ring if both are equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// Towards higher coordinates.
    Positive,
    /// Towards lower coordinates.
    Negative,
    /// Positive from even coordinates, negative from odd ones: loads both directions equally.
    Parity,
}

/// Dimension-order routes.
#[derive(Debug, Clone)]
pub struct DimensionOrder {
    dims: Vec<u16>,
    wrap: Vec<bool>,
    at: Vec<u16>,
    tie: Tie,
    dateline: bool,
    detour: bool,
    /// Links of (switch, dimension, direction).
    links: LinkSets,
}

const RULE: &str = "dimension-order";

impl DimensionOrder {
    /// Finds the dimensions `dims` in the links of `fabric`, whose switches are numbered with the
    /// first dimension fastest.
    ///
    /// `dateline` gives wrapped rings their two lanes; without it the rule has one and deadlocks on
    /// rings of four and more, which [`crate::RoutePlan::check`] shows.
    ///
    /// # Errors
    /// [`FabricError::Unfit`]: a link that joins no neighbours, or neighbours without a link.
    pub fn new(
        fabric: &Fabric,
        dims: &[u32],
        tie: Tie,
        dateline: bool,
        detour: bool,
    ) -> Result<Self, FabricError> {
        let at = coordinates(RULE, fabric, dims)?;
        let n = dims.len();
        let place = |switch: u32| &at[switch as usize * n..(switch as usize + 1) * n];
        let mut wrap = vec![false; n];
        let mut pairs = Vec::new();
        for link in 0..fabric.n_links() {
            let (src, dst) = (fabric.link_src[link], fabric.link_dst[link]);
            if fabric.is_node(src) || fabric.is_node(dst) {
                continue;
            }
            let (a, b) = (src - fabric.n_nodes, dst - fabric.n_nodes);
            let unfit = || FabricError::Unfit {
                rule: RULE,
                why: format!("link {link} joins switches {a} and {b}, which are not neighbours"),
            };
            let d = one_difference(place(a), place(b)).ok_or_else(unfit)?;
            let (size, x, y) = (dims[d] as u16, place(a)[d], place(b)[d]);
            let upwards = if x.abs_diff(y) == 1 {
                y > x
            } else if x.abs_diff(y) == size - 1 {
                wrap[d] = true;
                y == 0
            } else {
                return Err(unfit());
            };
            pairs.push((
                2 * (u64::from(a) * n as u64 + d as u64) + u64::from(!upwards),
                link as u32,
            ));
        }
        let links = LinkSets::of(2 * n * fabric.n_switches as usize, pairs);
        let dims: Vec<u16> = dims.iter().map(|&size| size as u16).collect();
        let rule = Self { dims, wrap, at, tie, dateline, detour, links };
        rule.require_links(fabric.n_switches)?;
        Ok(rule)
    }

    /// Every neighbour there should be has a link.
    fn require_links(&self, switches: u32) -> Result<(), FabricError> {
        let n = self.dims.len();
        for switch in 0..switches as usize {
            for d in 0..n {
                for (way, end) in [(0, self.dims[d] - 1), (1, 0)] {
                    let needed = self.wrap[d] || self.at[switch * n + d] != end;
                    if needed && self.links.get(2 * (switch * n + d) + way).is_empty() {
                        let sign = ["+", "-"][way];
                        let why = format!(
                            "switch {switch} has no link in direction {sign} of dimension {d}"
                        );
                        return Err(FabricError::Unfit { rule: RULE, why });
                    }
                }
            }
        }
        Ok(())
    }

    /// Lanes: two where rings are wrapped, twice as many with detours.
    pub fn lanes(&self) -> u8 {
        self.ring_lanes() * if self.detour { 2 } else { 1 }
    }

    fn ring_lanes(&self) -> u8 {
        if self.dateline && self.wrap.contains(&true) { 2 } else { 1 }
    }

    /// Detours: any switch.
    pub fn detours(&self) -> u32 {
        if self.detour { (self.at.len() / self.dims.len()) as u32 } else { 0 }
    }

    /// Whether the path from `a` to `b`, which differ, is in the positive direction.
    #[inline]
    fn upwards(&self, d: usize, a: u16, b: u16) -> bool {
        if !self.wrap[d] {
            return b > a;
        }
        let size = self.dims[d];
        let up = if b > a { b - a } else { b + (size - a) };
        let down = size - up;
        match up.cmp(&down) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => match self.tie {
                Tie::Positive => true,
                Tie::Negative => false,
                Tie::Parity => a.is_multiple_of(2),
            },
        }
    }

    /// The step from `switch` towards `goal`, or `via` on a detour.
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
            let (a, b) = (self.at[here + d], self.at[target + d]);
            if a == b {
                continue;
            }
            let upwards = self.upwards(d, a, b);
            let lanes = self.ring_lanes();
            let crosses = upwards == (b < a);
            let lane = if lanes == 2 && self.wrap[d] && !crosses { 1 } else { 0 };
            let links = self.links.get(2 * (here + d) + usize::from(!upwards));
            let lane = lane + lanes * state.class();
            return RouteStep { links, next: state, lane, non_minimal: 0 };
        }
        RouteStep { links: &[], next: state, lane: 0, non_minimal: 0 }
    }
}
