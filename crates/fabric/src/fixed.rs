//! D-mod-k (Zahavi, 2010): which of several candidates a fixed route takes.
//!
//! *Up*, destination j takes link j / D mod n of a switch's n up-links, dealt over its parents: the first
//! cable to each of them, then the second to each. D is the number of parents of a switch of each tier
//! below, multiplied: the stride that these already distinguish. Parents are in the order of their numbers, so which port a
//! cable is plugged into does not matter.
//!
//! *Down*, where several links lead on, it is the one by which a climb from j's own switch would have come
//! up. Destinations that share a link down are then those that share a link up, and in a whole tree with
//! as many links up as down none do.

use crate::Fabric;
use crate::routes::{NONE, Routes, tiers};

/// Data for choosing fixed routes.
#[derive(Debug, Clone, Default)]
pub(crate) struct FixedChoice {
    /// D of each switch.
    divisor: Vec<u32>,
    /// All candidate sets (in arithmetic trees: all links of each switch), interleaved over
    /// their neighbours; empty where that is their own order.
    dealt: Vec<u32>,
    /// For each node `depth` links down, from its own switch upwards; empty where no switch has a choice.
    down: Vec<u32>,
    depth: usize,
    /// Whether each link leads down a tier; empty as `down` is.
    descends: Vec<bool>,
}

impl Routes {
    /// The link of the fixed route from `switch` to `node`, which is attached to another
    /// switch.
    #[inline]
    pub fn fixed(&self, switch: u32, node: u32) -> u32 {
        let (start, links) = self.offered(switch, node);
        let n = links.len();
        if n == 1 {
            return links[0];
        }
        let FixedChoice { divisor, dealt, down, depth, descends } = &self.fixed;
        let mut place = (node / divisor[switch as usize]) as usize % n;
        if !down.is_empty() && descends[links[0] as usize] {
            let way = &down[node as usize * depth..(node as usize + 1) * depth];
            if let Some(&link) = way.iter().find(|link| links.binary_search(link).is_ok()) {
                return link;
            }
            // For packets that climbed another way than the node's own switch would:
            // the nodes of a switch in turn.
            place = node as usize % n;
        }
        dealt.get(start + place).copied().unwrap_or(links[place])
    }

    /// Prepares the choice of fixed routes; the routes exist already.
    pub(crate) fn fix(&mut self, fabric: &Fabric) {
        let sets = self.choices(fabric);
        let mut fixed = FixedChoice { divisor: divisors(fabric, &sets), ..FixedChoice::default() };
        for &(start, links) in &sets {
            let dealt = deal(fabric, links);
            if dealt != links && fixed.dealt.is_empty() {
                let in_turn = || (0..fabric.n_links() as u32).collect();
                fixed.dealt =
                    self.tree.as_ref().map_or_else(|| self.set_links.clone(), |_| in_turn());
            }
            if dealt != links {
                fixed.dealt[start..start + links.len()].copy_from_slice(&dealt);
            }
        }
        if sets.iter().any(|(_, links)| rise(fabric, links[0]) < 0) {
            fixed.find_ways_down(fabric, &self.injection);
        }
        self.fixed = fixed;
    }

    /// Every candidate set of more than one link, and where it begins as in [`Routes::offered`].
    fn choices(&self, fabric: &Fabric) -> Vec<(usize, &[u32])> {
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
}

impl FixedChoice {
    /// By destination alone, for `switches` switches.
    pub fn plain(switches: u32) -> Self {
        Self { divisor: vec![1; switches as usize], ..Self::default() }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let words = self.divisor.capacity() + self.dealt.capacity() + self.down.capacity();
        4 * words + self.descends.capacity()
    }

    /// The climb of each node's switch towards ever higher tiers, as the links that lead back.
    fn find_ways_down(&mut self, fabric: &Fabric, injection: &[u32]) {
        self.depth = (tiers(fabric) - 1).max(1);
        self.down = vec![NONE; self.depth * injection.len()];
        let higher = |switch| {
            let links = fabric.out_links(fabric.n_nodes + switch);
            links.filter(|&link| rise(fabric, link) > 0).collect::<Vec<u32>>()
        };
        let up: Vec<Vec<u32>> = (0..fabric.n_switches).map(|s| deal(fabric, &higher(s))).collect();
        for (node, way) in self.down.chunks_exact_mut(self.depth).enumerate() {
            let mut vertex = fabric.link_dst[injection[node] as usize];
            for down in way {
                let switch = (vertex - fabric.n_nodes) as usize;
                let links = &up[switch];
                if links.is_empty() {
                    break;
                }
                let place = node / self.divisor[switch] as usize % links.len();
                *down = fabric.link_reverse[links[place] as usize];
                vertex = fabric.link_dst[links[place] as usize];
            }
        }
        self.descends = (0..fabric.n_links() as u32).map(|link| rise(fabric, link) < 0).collect();
    }
}

/// By how many tiers a link leads higher; 0 for links of nodes.
fn rise(fabric: &Fabric, link: u32) -> i32 {
    let tier = |vertex: u32| {
        let switch = vertex.checked_sub(fabric.n_nodes)?;
        Some(fabric.switch_tier[switch as usize])
    };
    let ends = [fabric.link_src[link as usize], fabric.link_dst[link as usize]];
    let [Some(from), Some(to)] = ends.map(tier) else { return 0 };
    to.saturating_sub(from)
}

/// `links` of one switch, dealt: one to each neighbour in the order of their numbers, then a second to
/// each, and so on.
fn deal(fabric: &Fabric, links: &[u32]) -> Vec<u32> {
    let to = |link: u32| fabric.link_dst[link as usize];
    let mut order = links.to_vec();
    order.sort_unstable_by_key(|&link| (to(link), link));
    let (mut turn, mut before) = (0, NONE);
    let mut turns: Vec<(u32, u32, u32)> = Vec::with_capacity(order.len());
    for link in order {
        turn = if to(link) == before { turn + 1 } else { 0 };
        before = to(link);
        turns.push((turn, before, link));
    }
    turns.sort_unstable();
    turns.into_iter().map(|(_, _, link)| link).collect()
}

/// D of each switch: for each tier below the most switches one of it climbs to, multiplied.
fn divisors(fabric: &Fabric, sets: &[(usize, &[u32])]) -> Vec<u32> {
    let mut widest = vec![1u32; tiers(fabric)];
    let tier = |switch: u32| fabric.switch_tier[switch as usize].max(0) as usize;
    for (_, links) in sets.iter().filter(|(_, links)| rise(fabric, links[0]) >= 0) {
        let switch = fabric.link_src[links[0] as usize] - fabric.n_nodes;
        let mut to: Vec<u32> = links.iter().map(|&link| fabric.link_dst[link as usize]).collect();
        to.sort_unstable();
        to.dedup();
        let width = &mut widest[tier(switch)];
        *width = (*width).max(to.len() as u32);
    }
    let below = |switch| widest[..tier(switch)].iter();
    let product =
        |switch| below(switch).fold(1u32, |product, &width| product.saturating_mul(width));
    (0..fabric.n_switches).map(product).collect()
}
