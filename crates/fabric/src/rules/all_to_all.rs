//! Dimension order on a HyperX: one hop a dimension, first dimension first.
//!
//! Minimal routes need one lane: buffers of a dimension wait only for later dimensions. A detour
//! (Valiant, 1982) goes minimally to a switch drawn at random on lane 0, then on to the node on
//! lane 1.

use super::{LinkSets, RouteState, RouteStep, coordinates, one_difference};
use crate::{Fabric, FabricError};

/// Routes of a HyperX.
#[derive(Debug, Clone)]
pub struct AllToAll {
    n: usize,
    at: Vec<u16>,
    /// First key of each dimension, and keys of a switch.
    offset: Vec<usize>,
    width: usize,
    detour: bool,
    /// Links of (switch, dimension, coordinate).
    links: LinkSets,
}

const RULE: &str = "all-to-all";

impl AllToAll {
    /// Finds the dimensions `dims` in the links of `fabric`, whose switches are numbered with the
    /// first dimension fastest.
    ///
    /// # Errors
    /// [`FabricError::Unfit`]: a link across two dimensions, or two switches of a line without one.
    pub fn new(fabric: &Fabric, dims: &[u32], detour: bool) -> Result<Self, FabricError> {
        let at = coordinates(RULE, fabric, dims)?;
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
            let d = one_difference(&at[a * n..(a + 1) * n], &at[b * n..(b + 1) * n]);
            let d = d.ok_or_else(|| FabricError::Unfit {
                rule: RULE,
                why: format!("link {link} joins switches {a} and {b}, which differ in more than one coordinate"),
            })?;
            pairs.push(((a * width + offset[d] + at[b * n + d] as usize) as u64, link as u32));
        }
        let links = LinkSets::of(width * fabric.n_switches as usize, pairs);
        for switch in 0..fabric.n_switches as usize {
            for (d, &size) in dims.iter().enumerate() {
                for to in (0..size as usize).filter(|&to| to != at[switch * n + d] as usize) {
                    if links.get(switch * width + offset[d] + to).is_empty() {
                        let why = format!(
                            "switch {switch} has no link to position {to} of dimension {d}"
                        );
                        return Err(FabricError::Unfit { rule: RULE, why });
                    }
                }
            }
        }
        Ok(Self { n, at, offset, width, detour, links })
    }

    /// Lanes: one, two with detours.
    pub fn lanes(&self) -> u8 {
        1 + u8::from(self.detour)
    }

    /// Detours: any switch.
    pub fn detours(&self) -> u32 {
        if self.detour { (self.at.len() / self.n) as u32 } else { 0 }
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
        let n = self.n;
        let target = state.target(goal, via) as usize * n;
        let here = switch as usize * n;
        for d in 0..n {
            let to = self.at[target + d];
            if self.at[here + d] != to {
                let key = switch as usize * self.width + self.offset[d] + to as usize;
                let links = self.links.get(key);
                return RouteStep { links, next: state, lane: state.class(), non_minimal: 0 };
            }
        }
        RouteStep { links: &[], next: state, lane: 0, non_minimal: 0 }
    }
}
