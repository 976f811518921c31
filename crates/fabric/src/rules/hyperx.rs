//! Dimension-order routing on a HyperX: one hop in each dimension, in the order of the dimensions.
//!
//! Minimal routes need one lane, because a channel of one dimension waits only for channels of later
//! dimensions. A detour (Valiant, 1982) takes a minimal route to a random intermediate switch on lane
//! 0, and from there to the node on lane 1.

use super::step::{LinkSets, RouteState, RouteStep, coordinates, differing_dimension};
use crate::error::{MessagePart, message};
use crate::{Fabric, FabricError};

/// Routes of a HyperX.
#[derive(Debug, Clone)]
pub struct HyperXRouting {
    /// Number of dimensions.
    n: usize,
    /// Coordinates of every switch, `n` each.
    coordinates: Vec<u16>,
    /// First key of each dimension within the keys of a switch.
    offset: Vec<usize>,
    /// Number of keys per switch.
    width: usize,
    detour: bool,
    /// Links by (switch, dimension, coordinate of the neighbour).
    links: LinkSets,
}

const RULE: &str = "HyperX";

impl HyperXRouting {
    /// Assigns the links of `fabric` to the dimensions of size `dims`; the first dimension varies
    /// fastest in the numbering of switches.
    ///
    /// # Errors
    /// [`FabricError::WrongTopology`]: a link between switches that differ in several dimensions, or
    /// no link between two that differ in one.
    pub fn new(fabric: &Fabric, dims: &[u32], detour: bool) -> Result<Self, FabricError> {
        let coordinates = coordinates(RULE, fabric, dims)?;
        let n = dims.len();
        let mut offset = Vec::with_capacity(n);
        let mut width = 0;
        for &size in dims {
            offset.push(width);
            width += size as usize;
        }
        let mut pairs = Vec::new();
        for link in 0..fabric.n_links() {
            let (src, dst) = (fabric.link_src[link], fabric.link_dst[link]);
            if fabric.is_node(src) || fabric.is_node(dst) {
                continue;
            }
            let (a, b) = ((src - fabric.n_nodes) as usize, (dst - fabric.n_nodes) as usize);
            let of = |switch: usize| &coordinates[switch * n..(switch + 1) * n];
            let d = differing_dimension(of(a), of(b));
            let d = d.ok_or_else(|| FabricError::WrongTopology {
                rule: RULE,
                why: message![
                    MessagePart::Link(link as u32),
                    " connects switches that differ in more than one coordinate"
                ],
            })?;
            pairs.push(((a * width + offset[d] + usize::from(of(b)[d])) as u64, link as u32));
        }
        let links = LinkSets::of(width * fabric.n_switches as usize, pairs);
        for switch in 0..fabric.n_switches as usize {
            for (d, &size) in dims.iter().enumerate() {
                let here = coordinates[switch * n + d] as usize;
                for to in (0..size as usize).filter(|&to| to != here) {
                    if links.get(switch * width + offset[d] + to).is_empty() {
                        let why = message![
                            MessagePart::Switch(switch as u32),
                            format!(" has no link to position {to} of dimension {d}")
                        ];
                        return Err(FabricError::WrongTopology { rule: RULE, why });
                    }
                }
            }
        }
        Ok(Self { n, coordinates, offset, width, detour, links })
    }

    /// Number of lanes: one, or two with detours.
    pub fn lanes(&self) -> u8 {
        1 + u8::from(self.detour)
    }

    /// Number of detours: every switch can be the intermediate one.
    pub fn detours(&self) -> u32 {
        if self.detour { (self.coordinates.len() / self.n) as u32 } else { 0 }
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
        let n = self.n;
        let target = state.target(goal, via) as usize * n;
        let here = switch as usize * n;
        for d in 0..n {
            let to = self.coordinates[target + d];
            if self.coordinates[here + d] != to {
                let key = switch as usize * self.width + self.offset[d] + to as usize;
                let links = self.links.get(key);
                return RouteStep { links, next: state, lane: state.class(), non_minimal: 0 };
            }
        }
        RouteStep { links: &[], next: state, lane: 0, non_minimal: 0 }
    }
}
