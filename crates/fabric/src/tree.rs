//! Up/down routes of a regular tree by arithmetic, without a table.
//!
//! In a regular tree the leaves below a switch form one interval of columns, equally many
//! down-links in the order of its ports lead into each of equal blocks of that interval, and its
//! up-links are neighbours, all equally good. Then a route is a comparison and a division, and a
//! tree of a million hosts needs 32 bytes a switch and 4 a link where a table would need gigabytes.
//! Whether a fabric is regular is determined from its links, so computed and discovered trees are
//! treated alike.

use std::collections::HashMap;
use std::hint::select_unpredictable;
use std::ops::Range;

use crate::Fabric;
#[cfg(test)]
use crate::FabricError;
use crate::routes::{NONE, Routes};

/// The subtree below a switch, and its up-links.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Subtree {
    /// Columns below the switch: `low..high`.
    low: u32,
    high: u32,
    /// By which a column is divided by the columns of a block: see [`inverse`].
    inverse: u64,
    /// Links into each block.
    parallel: u32,
    /// First link down and first link up.
    down: u32,
    up: u32,
    /// Number of up-links.
    ups: u32,
}

/// What [`quotient`] divides by `divisor` with, by 1 for 0.
fn inverse(divisor: u32) -> u64 {
    u64::MAX / u64::from(divisor.max(1))
}

/// A number divided, by a multiplication: the inverse is too small by less than one in 2^64, one more than the
/// number makes up for that, and neither is enough to reach the next quotient.
#[inline]
fn quotient(number: u32, inverse: u64) -> u32 {
    ((u128::from(inverse) * (u128::from(number) + 1)) >> 64) as u32
}

/// Routes of a regular tree.
#[derive(Debug, Clone)]
pub(crate) struct TreeRoutes {
    reach: Vec<Subtree>,
    /// Every link at its own index: slices of it are ranges of links.
    links: Vec<u32>,
}

impl TreeRoutes {
    /// The candidate links at `switch` towards the switch of `column`, another one.
    #[inline]
    pub fn range(&self, switch: u32, column: u32) -> Range<u32> {
        let Subtree { low, high, inverse, parallel, down, up, ups } = self.reach[switch as usize];
        // Up or down is unpredictable: compute both and select.
        let place = column.wrapping_sub(low);
        let below = place < high - low;
        let into = down.wrapping_add(quotient(place, inverse).wrapping_mul(parallel));
        let first = select_unpredictable(below, into, up);
        first..first + select_unpredictable(below, parallel, ups)
    }

    /// The same as a list.
    #[inline]
    pub fn candidates(&self, switch: u32, column: u32) -> &[u32] {
        let Range { start, end } = self.range(switch, column);
        &self.links[start as usize..end as usize]
    }

    /// Whether a climb from `switch` reaches a switch above `column`.
    pub fn reaches(&self, fabric: &Fabric, mut switch: u32, column: u32) -> bool {
        loop {
            let reach = &self.reach[switch as usize];
            if (reach.low..reach.high).contains(&column) {
                return true;
            }
            if reach.ups == 0 {
                return false;
            }
            switch = fabric.link_dst[reach.up as usize] - fabric.n_nodes;
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.reach.capacity() * size_of::<Subtree>() + 4 * self.links.capacity()
    }

    /// Whether a climb from `switch` reaches a switch above more columns.
    fn leads_beyond(&self, fabric: &Fabric, switch: u32) -> bool {
        let own = self.reach[switch as usize];
        let mut top = own;
        while top.ups > 0 {
            let next = fabric.link_dst[top.up as usize] - fabric.n_nodes;
            top = self.reach[next as usize];
        }
        (top.low, top.high) != (own.low, own.high)
    }

    /// The links up from `switch`, if there is anything to climb for, and those into each block below it;
    /// no empty ones.
    pub fn sets(&self, fabric: &Fabric, switch: u32) -> impl Iterator<Item = &[u32]> {
        let Subtree { parallel, down, up, ups, low, high, inverse } = self.reach[switch as usize];
        let ups = if self.leads_beyond(fabric, switch) { ups } else { 0 };
        let blocks = if parallel > 0 { 1 + quotient(high - 1 - low, inverse) } else { 0 };
        let into = (0..blocks).map(move |block| (down + block * parallel, parallel));
        let all = std::iter::once((up, ups)).chain(into).filter(|&(_, n)| n > 0);
        all.map(|(first, n)| &self.links[first as usize..(first + n) as usize])
    }

    /// Recognises a regular tree; `None` for anything else.
    pub fn detect(fabric: &Fabric, routes: &Routes) -> Option<Self> {
        let mut column = vec![NONE; fabric.n_switches as usize];
        for (node, &link) in routes.injection.iter().enumerate() {
            column[(fabric.link_dst[link as usize] - fabric.n_nodes) as usize] =
                routes.column[node];
        }
        let mut order: Vec<u32> = (0..fabric.n_switches).collect();
        order.sort_by_key(|&s| fabric.switch_tier[s as usize]);
        let unknown =
            Subtree { low: 0, high: 0, inverse: inverse(1), parallel: 0, down: 0, up: 0, ups: 0 };
        let mut reach = vec![unknown; fabric.n_switches as usize];
        for &switch in &order {
            reach[switch as usize] = look(fabric, switch, column[switch as usize], &reach)?;
        }
        same_above(fabric, &order, &reach)?;
        Some(Self { reach, links: (0..fabric.n_links() as u32).collect() })
    }
}

/// What is below and above `switch`, whose children are known; `None` if it is irregular.
fn look(fabric: &Fabric, switch: u32, column: u32, known: &[Subtree]) -> Option<Subtree> {
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
    let neighbours = |links: &[u32]| links.windows(2).all(|pair| pair[1] == pair[0] + 1);
    if !neighbours(&down) || !neighbours(&up) || (column == NONE) == down.is_empty() {
        return None;
    }
    let (first, ups) = (up.first().copied().unwrap_or(0), up.len() as u32);
    if down.is_empty() {
        let high = column + 1;
        return Some(Subtree {
            low: column,
            high,
            inverse: inverse(1),
            parallel: 0,
            down: 0,
            up: first,
            ups,
        });
    }
    let child = |link: u32| (fabric.link_dst[link as usize] - fabric.n_nodes) as usize;
    let below = |link: u32| (known[child(link)].low, known[child(link)].high);
    // With a tier skipped, links into one block could differ in length.
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
    Some(Subtree { low, high: next, inverse: inverse(block), parallel, down, up: first, ups })
}

/// Checks that all parents of a switch offer the same upward paths: the same intervals, tier by tier.
fn same_above(fabric: &Fabric, order: &[u32], reach: &[Subtree]) -> Option<()> {
    let mut kinds: HashMap<(u32, u32, u32), u32> = HashMap::new();
    let mut kind = vec![NONE; reach.len()];
    for &switch in order.iter().rev() {
        let here = reach[switch as usize];
        let mut above = NONE;
        for link in here.up..here.up + here.ups {
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

/// Compares arithmetic with the table for every switch and node.
///
/// # Errors
/// The first switch and node they differ at.
#[cfg(test)]
pub(crate) fn compare(fabric: &Fabric) -> Result<bool, FabricError> {
    let table = Routes::table(fabric)?;
    let Some(tree) = Routes::arithmetic(fabric)? else { return Ok(false) };
    for node in 0..fabric.n_nodes {
        let node_switch = fabric.link_dst[table.injection[node as usize] as usize] - fabric.n_nodes;
        for switch in (0..fabric.n_switches).filter(|&s| s != node_switch) {
            let leads = table.leads(fabric, switch, node);
            assert_eq!(leads, tree.leads(fabric, switch, node), "switch {switch} node {node}");
            if leads {
                let (a, b) = (table.candidates(switch, node), tree.candidates(switch, node));
                assert_eq!(a, b, "switch {switch} node {node}");
                let (a, b) = (table.fixed(switch, node), tree.fixed(switch, node));
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
