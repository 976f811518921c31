//! D-mod-k (Zahavi, 2010): the candidate that a deterministic route takes.
//!
//! *Up*, destination j takes uplink j / D mod n of the n uplinks of a switch. The uplinks are
//! interleaved over the parents: the first cable to each parent, then the second to each, and so on.
//! D is the product, over the tiers below, of the number of parents of a switch: what these tiers
//! already spread. Parents are ordered by switch number, so it does not matter which port a cable is
//! plugged into.
//!
//! *Down*, where several links lead to the destination, the route takes the reverse of the link by
//! which a packet from j's own switch would have come up. Destinations share a down link only if they
//! share an uplink; in a complete tree with as many uplinks as down links, none do.

use crate::{Fabric, NONE};

/// Data for choosing deterministic routes.
#[derive(Debug, Clone, Default)]
pub(crate) struct DModK {
    /// D of each switch.
    divisor: Vec<u32>,
    /// All candidate sets (of arithmetic routes: all links of each switch), interleaved over the
    /// neighbours; empty if that is already their order.
    interleaved: Vec<u32>,
    /// For each node, `depth` down links towards it, those of its own switch first; empty if no switch
    /// has a choice of down links.
    down: Vec<u32>,
    depth: usize,
    /// Whether each link leads down a tier; empty if `down` is.
    descends: Vec<bool>,
}

impl DModK {
    /// The destination alone decides (D = 1 everywhere), for `switches` switches.
    pub fn plain(switches: u32) -> Self {
        Self { divisor: vec![1; switches as usize], ..Self::default() }
    }

    /// Prepares the choice among candidates.
    ///
    /// `sets` are the candidate sets with more than one link, each with its position in the list
    /// that `all_links` returns.
    pub fn new(
        fabric: &Fabric,
        injection: &[u32],
        sets: &[(usize, &[u32])],
        all_links: impl Fn() -> Vec<u32>,
    ) -> Self {
        let mut d_mod_k = Self { divisor: divisors(fabric, sets), ..Self::default() };
        for &(start, links) in sets {
            let interleaved = interleave(fabric, links);
            if interleaved != links && d_mod_k.interleaved.is_empty() {
                d_mod_k.interleaved = all_links();
            }
            if interleaved != links {
                d_mod_k.interleaved[start..start + links.len()].copy_from_slice(&interleaved);
            }
        }
        if sets.iter().any(|(_, links)| tiers_climbed(fabric, links[0]) < 0) {
            d_mod_k.find_down_links(fabric, injection);
        }
        d_mod_k
    }

    /// The link that the route from `switch` to `node` takes among `links`, which begin at position
    /// `start` of all candidates.
    #[inline]
    pub fn choose(&self, switch: u32, node: u32, (start, links): (usize, &[u32])) -> u32 {
        let n = links.len();
        if n == 1 {
            return links[0];
        }
        let Self { divisor, interleaved, down, depth, descends } = self;
        let mut index = (node / divisor[switch as usize]) as usize % n;
        if !down.is_empty() && descends[links[0] as usize] {
            let to_node = &down[node as usize * depth..(node as usize + 1) * depth];
            if let Some(&link) = to_node.iter().find(|link| links.binary_search(link).is_ok()) {
                return link;
            }
            // The packet went up another path than one from the node's own switch would:
            // spread the nodes of that switch round-robin.
            index = node as usize % n;
        }
        interleaved.get(start + index).copied().unwrap_or(links[index])
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        let words = self.divisor.capacity() + self.interleaved.capacity() + self.down.capacity();
        4 * words + self.descends.capacity()
    }

    /// Climbs from each node's switch to ever higher tiers, and keeps the reverse links.
    fn find_down_links(&mut self, fabric: &Fabric, injection: &[u32]) {
        self.depth = (tiers(fabric) - 1).max(1);
        self.down = vec![NONE; self.depth * injection.len()];
        let uplinks = |switch| {
            let links = fabric.out_links(fabric.n_nodes + switch);
            links.filter(|&link| tiers_climbed(fabric, link) > 0).collect::<Vec<u32>>()
        };
        let up: Vec<Vec<u32>> =
            (0..fabric.n_switches).map(|s| interleave(fabric, &uplinks(s))).collect();
        for (node, to_node) in self.down.chunks_exact_mut(self.depth).enumerate() {
            let mut vertex = fabric.link_dst[injection[node] as usize];
            for down in to_node {
                let switch = (vertex - fabric.n_nodes) as usize;
                let links = &up[switch];
                if links.is_empty() {
                    break;
                }
                let index = node / self.divisor[switch] as usize % links.len();
                *down = fabric.link_reverse[links[index] as usize];
                vertex = fabric.link_dst[links[index] as usize];
            }
        }
        self.descends =
            (0..fabric.n_links() as u32).map(|link| tiers_climbed(fabric, link) < 0).collect();
    }
}

/// Number of tiers.
fn tiers(fabric: &Fabric) -> usize {
    fabric.switch_tier.iter().copied().max().unwrap_or(0).max(0) as usize + 1
}

/// How many tiers a link leads up, negative for down; 0 for links of nodes.
fn tiers_climbed(fabric: &Fabric, link: u32) -> i32 {
    let tier = |vertex: u32| {
        let switch = vertex.checked_sub(fabric.n_nodes)?;
        Some(fabric.switch_tier[switch as usize])
    };
    let ends = [fabric.link_src[link as usize], fabric.link_dst[link as usize]];
    let [Some(from), Some(to)] = ends.map(tier) else { return 0 };
    to.saturating_sub(from)
}

/// The `links` of one switch, interleaved over its neighbours: the first link to each neighbour by
/// number, then the second link to each, and so on.
fn interleave(fabric: &Fabric, links: &[u32]) -> Vec<u32> {
    let to = |link: u32| fabric.link_dst[link as usize];
    let mut order = links.to_vec();
    order.sort_unstable_by_key(|&link| (to(link), link));
    let (mut round, mut neighbour) = (0, NONE);
    let mut rounds: Vec<(u32, u32, u32)> = Vec::with_capacity(order.len());
    for link in order {
        round = if to(link) == neighbour { round + 1 } else { 0 };
        neighbour = to(link);
        rounds.push((round, neighbour, link));
    }
    rounds.sort_unstable();
    rounds.into_iter().map(|(_, _, link)| link).collect()
}

/// D of each switch: the product, over the tiers below, of the largest number of parents.
fn divisors(fabric: &Fabric, sets: &[(usize, &[u32])]) -> Vec<u32> {
    let mut most_parents = vec![1u32; tiers(fabric)];
    let tier = |switch: u32| fabric.switch_tier[switch as usize].max(0) as usize;
    for (_, links) in sets.iter().filter(|(_, links)| tiers_climbed(fabric, links[0]) >= 0) {
        let switch = fabric.link_src[links[0] as usize] - fabric.n_nodes;
        let mut parents: Vec<u32> =
            links.iter().map(|&link| fabric.link_dst[link as usize]).collect();
        parents.sort_unstable();
        parents.dedup();
        let most = &mut most_parents[tier(switch)];
        *most = (*most).max(parents.len() as u32);
    }
    let below = |switch| most_parents[..tier(switch)].iter();
    let product =
        |switch| below(switch).fold(1u32, |product, &parents| product.saturating_mul(parents));
    (0..fabric.n_switches).map(product).collect()
}
