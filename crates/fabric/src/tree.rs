//! Up/down routes of a regular tree, computed arithmetically instead of looked up in a table.
//!
//! In a regular tree, the leaves below a switch are one interval of columns. The down links of a
//! switch, in port order, divide this interval into equal blocks, with the same number of parallel
//! links into each. The uplinks are adjacent and equivalent. A route then takes one comparison and one
//! division, and a tree of a million hosts needs 32 bytes per switch and 4 per link, where a table
//! would need gigabytes. Whether a fabric is regular is determined from its links, so generated and
//! discovered trees are treated alike.

use std::collections::HashMap;
use std::hint::select_unpredictable;
use std::ops::Range;

use crate::{Fabric, NONE};
#[cfg(test)]
use crate::{FabricError, Routes};

/// The subtree below a switch, and its uplinks.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Subtree {
    /// Columns below the switch: `low..high`.
    low: u32,
    high: u32,
    /// Inverse of the columns per block: see [`inverse`].
    inverse: u64,
    /// Parallel links into each block.
    parallel: u32,
    /// First down link.
    down: u32,
    /// First uplink.
    up: u32,
    /// Number of uplinks.
    n_up: u32,
}

/// The inverse of `divisor` for [`quotient`]; 0 is treated as 1.
fn inverse(divisor: u32) -> u64 {
    u64::MAX / u64::from(divisor.max(1))
}

/// `number` divided by the divisor of `inverse`, with a multiplication. The inverse is rounded down,
/// by less than 1 in 2^64; adding 1 to the number compensates for that, without reaching the next
/// quotient.
#[inline]
fn quotient(number: u32, inverse: u64) -> u32 {
    ((u128::from(inverse) * (u128::from(number) + 1)) >> 64) as u32
}

/// Routes of a regular tree.
#[derive(Debug, Clone)]
pub(crate) struct TreeRoutes {
    /// By switch.
    subtrees: Vec<Subtree>,
    /// The numbers 0, 1, … of all links, so that a range of links can be borrowed as a slice.
    links: Vec<u32>,
}

impl TreeRoutes {
    /// The candidate links at `switch` towards the switch of `column`, which is another switch.
    #[inline]
    pub fn candidate_range(&self, switch: u32, column: u32) -> Range<u32> {
        let Subtree { low, high, inverse, parallel, down, up, n_up } =
            self.subtrees[switch as usize];
        // The branch predictor cannot guess up or down: compute both and select.
        let offset = column.wrapping_sub(low);
        let is_below = offset < high - low;
        let into = down.wrapping_add(quotient(offset, inverse).wrapping_mul(parallel));
        let first = select_unpredictable(is_below, into, up);
        first..first + select_unpredictable(is_below, parallel, n_up)
    }

    /// The candidate links as a slice.
    #[inline]
    pub fn candidates(&self, switch: u32, column: u32) -> &[u32] {
        let Range { start, end } = self.candidate_range(switch, column);
        &self.links[start as usize..end as usize]
    }

    /// Whether going up from `switch` leads to a switch above `column`.
    pub fn has_route(&self, fabric: &Fabric, mut switch: u32, column: u32) -> bool {
        loop {
            let subtree = &self.subtrees[switch as usize];
            if (subtree.low..subtree.high).contains(&column) {
                return true;
            }
            if subtree.n_up == 0 {
                return false;
            }
            switch = fabric.link_dst[subtree.up as usize] - fabric.n_nodes;
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.subtrees.capacity() * size_of::<Subtree>() + 4 * self.links.capacity()
    }

    /// Whether going up from `switch` leads to more columns than are below it.
    fn routes_go_up(&self, fabric: &Fabric, switch: u32) -> bool {
        let subtree = self.subtrees[switch as usize];
        let mut top = subtree;
        while top.n_up > 0 {
            let next = fabric.link_dst[top.up as usize] - fabric.n_nodes;
            top = self.subtrees[next as usize];
        }
        (top.low, top.high) != (subtree.low, subtree.high)
    }

    /// The candidate sets of `switch`: its uplinks, if routes use them, and the links into each block
    /// below it. No set is empty.
    pub fn sets(&self, fabric: &Fabric, switch: u32) -> impl Iterator<Item = &[u32]> {
        let Subtree { parallel, down, up, n_up, low, high, inverse } =
            self.subtrees[switch as usize];
        let n_up = if self.routes_go_up(fabric, switch) { n_up } else { 0 };
        let blocks = if parallel > 0 { 1 + quotient(high - 1 - low, inverse) } else { 0 };
        let into = (0..blocks).map(move |block| (down + block * parallel, parallel));
        let all = std::iter::once((up, n_up)).chain(into).filter(|&(_, n)| n > 0);
        all.map(|(first, n)| &self.links[first as usize..(first + n) as usize])
    }

    /// Recognises a regular tree, given the injection link and the column of each node; `None` for
    /// anything else.
    pub fn detect(fabric: &Fabric, injection: &[u32], columns: &[u32]) -> Option<Self> {
        let mut column = vec![NONE; fabric.n_switches as usize];
        for (&link, &of_node) in injection.iter().zip(columns) {
            column[(fabric.link_dst[link as usize] - fabric.n_nodes) as usize] = of_node;
        }
        let mut order: Vec<u32> = (0..fabric.n_switches).collect();
        order.sort_by_key(|&s| fabric.switch_tier[s as usize]);
        let unknown =
            Subtree { low: 0, high: 0, inverse: inverse(1), parallel: 0, down: 0, up: 0, n_up: 0 };
        let mut subtrees = vec![unknown; fabric.n_switches as usize];
        for &switch in &order {
            subtrees[switch as usize] =
                subtree_of(fabric, switch, column[switch as usize], &subtrees)?;
        }
        check_parents_equivalent(fabric, &order, &subtrees)?;
        Some(Self { subtrees, links: (0..fabric.n_links() as u32).collect() })
    }
}

/// The subtree of `switch`, once those of its children are known; `None` if it is irregular.
fn subtree_of(fabric: &Fabric, switch: u32, column: u32, subtrees: &[Subtree]) -> Option<Subtree> {
    let tier = |s: u32| fabric.switch_tier[s as usize];
    let (mut down, mut up): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    for link in fabric.out_links(fabric.n_nodes + switch) {
        let dst = fabric.link_dst[link as usize];
        if fabric.is_node(dst) {
            continue;
        }
        match tier(dst - fabric.n_nodes).cmp(&tier(switch)) {
            std::cmp::Ordering::Less => down.push(link),
            std::cmp::Ordering::Greater => up.push(link),
            std::cmp::Ordering::Equal => return None,
        }
    }
    let adjacent = |links: &[u32]| links.windows(2).all(|pair| pair[1] == pair[0] + 1);
    if !adjacent(&down) || !adjacent(&up) || (column == NONE) == down.is_empty() {
        return None;
    }
    let (first_up, n_up) = (up.first().copied().unwrap_or(0), up.len() as u32);
    if down.is_empty() {
        let high = column + 1;
        return Some(Subtree {
            low: column,
            high,
            inverse: inverse(1),
            parallel: 0,
            down: 0,
            up: first_up,
            n_up,
        });
    }
    let child = |link: u32| (fabric.link_dst[link as usize] - fabric.n_nodes) as usize;
    let below = |link: u32| (subtrees[child(link)].low, subtrees[child(link)].high);
    // If a link skips a tier, paths through the links into one block could differ in length.
    if down.iter().any(|&link| tier(child(link) as u32) + 1 != tier(switch)) {
        return None;
    }
    let (low, mut next) = below(down[0]);
    let block = next - low;
    let parallel = down.iter().take_while(|&&link| below(link) == (low, next)).count();
    next = low;
    for links in down.chunks(parallel) {
        if links.len() < parallel || links.iter().any(|&l| below(l) != (next, next + block)) {
            return None;
        }
        next += block;
    }
    let (down, parallel) = (down[0], parallel as u32);
    Some(Subtree { low, high: next, inverse: inverse(block), parallel, down, up: first_up, n_up })
}

/// Checks that all parents of a switch are equivalent: on the way up from each of them, the intervals
/// are the same, tier by tier.
fn check_parents_equivalent(fabric: &Fabric, order: &[u32], subtrees: &[Subtree]) -> Option<()> {
    let mut kinds: HashMap<(u32, u32, u32), u32> = HashMap::new();
    let mut kind = vec![NONE; subtrees.len()];
    for &switch in order.iter().rev() {
        let here = subtrees[switch as usize];
        let mut above = NONE;
        for link in here.up..here.up + here.n_up {
            let parent = kind[(fabric.link_dst[link as usize] - fabric.n_nodes) as usize];
            if link > here.up && parent != above {
                return None;
            }
            above = parent;
        }
        let number = kinds.len() as u32;
        kind[switch as usize] = *kinds.entry((here.low, here.high, above)).or_insert(number);
    }
    Some(())
}

/// Asserts that arithmetic routes equal those of the table for every switch and node; `false` if the
/// fabric is not a regular tree.
#[cfg(test)]
pub(crate) fn compare(fabric: &Fabric) -> Result<bool, FabricError> {
    let table = Routes::table(fabric)?;
    let Some(tree) = Routes::arithmetic(fabric)? else { return Ok(false) };
    for node in 0..fabric.n_nodes {
        let node_switch = fabric.link_dst[table.injection[node as usize] as usize] - fabric.n_nodes;
        for switch in (0..fabric.n_switches).filter(|&s| s != node_switch) {
            let routed = table.has_route(fabric, switch, node);
            assert_eq!(routed, tree.has_route(fabric, switch, node), "switch {switch} node {node}");
            if routed {
                let (a, b) = (table.candidates(switch, node), tree.candidates(switch, node));
                assert_eq!(a, b, "switch {switch} node {node}");
                let (a, b) =
                    (table.deterministic_link(switch, node), tree.deterministic_link(switch, node));
                assert_eq!(a, b, "switch {switch} node {node}");
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quotient_by_the_inverse_is_exact() {
        for divisor in [1, 2, 3, 7, 18, 64, 641, 65_535, 65_537, 1 << 31, u32::MAX - 1, u32::MAX] {
            let multiples = (1..40).map(|part| u32::MAX / divisor / part * divisor);
            let near = multiples.flat_map(|number| [number.saturating_sub(1), number]);
            for number in near.chain([0, 1, divisor - 1, divisor, u32::MAX - 1, u32::MAX]) {
                assert_eq!(quotient(number, inverse(divisor)), number / divisor);
            }
        }
        assert_eq!(quotient(5, inverse(0)), 5);
    }
}
