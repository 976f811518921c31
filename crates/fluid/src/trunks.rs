//! Trunks: links of a tree that act as a single link.
//!
//! The switches of one level that reach the same leaves downwards are one node of the ideal fat tree
//! (Leiserson, 1985), and all links that leave them upwards, or come down to them, together are one
//! link of that tree. Packets that choose among them one by one load them equally, so a trunk
//! has the joint capacity of its links; a flow's path has two trunks per level, whatever the width.

use std::collections::HashMap;

use tailback_fabric::Fabric;

/// The trunks of a fabric. A link of a node, or between switches of one tier, is a trunk by itself.
#[derive(Debug)]
pub struct Trunks {
    /// Trunk of each link.
    pub of_link: Vec<u32>,
    /// Joint capacity of each trunk, Gb/s.
    pub gbps: Vec<f64>,
    start: Vec<u32>,
    links: Vec<u32>,
}

impl Trunks {
    /// Finds the trunks of `fabric` from its tiers.
    pub fn of(fabric: &Fabric) -> Self {
        let below = leaves_below(fabric);
        let place = |vertex: u32| -> Option<(i32, &[u64])> {
            let switch = vertex.checked_sub(fabric.n_nodes)? as usize;
            Some((fabric.switch_tier[switch], &below[switch]))
        };
        let mut number: HashMap<(i32, &[u64], bool), u32> = HashMap::new();
        let (mut of_link, mut gbps) = (Vec::with_capacity(fabric.n_links()), Vec::new());
        for link in 0..fabric.n_links() {
            let ends = (place(fabric.link_src[link]), place(fabric.link_dst[link]));
            let shared = match ends {
                (Some((a, set)), Some((b, _))) if a < b => Some((a, set, true)),
                (Some((a, _)), Some((b, set))) if a > b => Some((b, set, false)),
                _ => None,
            };
            let new = gbps.len() as u32;
            let trunk = shared.map_or(new, |key| *number.entry(key).or_insert(new));
            if trunk == new {
                gbps.push(0.0);
            }
            gbps[trunk as usize] += fabric.link_gbps[link];
            of_link.push(trunk);
        }
        let mut links: Vec<u32> = (0..fabric.n_links() as u32).collect();
        links.sort_by_key(|&link| of_link[link as usize]);
        let mut start = vec![0; gbps.len() + 1];
        of_link.iter().for_each(|&trunk| start[trunk as usize + 1] += 1);
        (0..gbps.len()).for_each(|trunk| start[trunk + 1] += start[trunk]);
        Self { of_link, gbps, start, links }
    }

    /// The links of a trunk.
    pub fn members(&self, trunk: u32) -> &[u32] {
        let trunk = trunk as usize;
        &self.links[self.start[trunk] as usize..self.start[trunk + 1] as usize]
    }
}

/// For each switch, the switches with nodes that it reaches by descending, as a set of bits.
fn leaves_below(fabric: &Fabric) -> Vec<Vec<u64>> {
    let n = fabric.n_switches as usize;
    let tier = |switch: u32| fabric.switch_tier[switch as usize];
    let mut leaf = vec![u32::MAX; n];
    let mut leaves = 0;
    for node in 0..fabric.n_nodes {
        for link in fabric.out_links(node) {
            if let Some(switch) = fabric.link_dst[link as usize].checked_sub(fabric.n_nodes)
                && leaf[switch as usize] == u32::MAX
            {
                leaf[switch as usize] = leaves;
                leaves += 1;
            }
        }
    }
    let words = leaves.div_ceil(64) as usize;
    let mut below = vec![vec![0u64; words]; n];
    let mut order: Vec<u32> = (0..fabric.n_switches).collect();
    order.sort_by_key(|&switch| tier(switch));
    for switch in order {
        let leaf_bit = leaf[switch as usize];
        let mut set = vec![0u64; words];
        if leaf_bit != u32::MAX {
            set[leaf_bit as usize / 64] |= 1 << (leaf_bit % 64);
        }
        for link in fabric.out_links(fabric.n_nodes + switch) {
            if let Some(child) = fabric.link_dst[link as usize].checked_sub(fabric.n_nodes)
                && tier(child) < tier(switch)
            {
                set.iter_mut().zip(&below[child as usize]).for_each(|(a, b)| *a |= b);
            }
        }
        below[switch as usize] = set;
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailback_fabric::fat_tree::{Shape, build};

    #[test]
    fn a_fat_tree_has_its_trunks() {
        let fabric = build(&Shape::TAPERED).unwrap();
        let trunks = Trunks::of(&fabric);
        // Two a leaf, two a pod, two a host.
        assert_eq!(trunks.gbps.len(), 2 * (4608 + 144 + 6));
        let mut kinds: Vec<(u64, usize)> = (0..trunks.gbps.len() as u32)
            .map(|t| (trunks.gbps[t as usize] as u64, trunks.members(t).len()))
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        // A host's link; a leaf's 16 up-links; a pod's 16 x 24.
        assert_eq!(kinds, [(100, 1), (1600, 16), (38_400, 384)]);
        let all: usize = (0..trunks.gbps.len() as u32).map(|t| trunks.members(t).len()).sum();
        assert_eq!(all, fabric.n_links());
    }
}
