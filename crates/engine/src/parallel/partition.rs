//! The partition of a fabric into shards.
//!
//! A shard is a set of switches with their nodes. Nothing in one shard can affect another sooner
//! than [`Partition::lookahead_ps`]: a packet's head needs the cable and the switch delay until it
//! is ready for its next output, and buffer space is returned a switch delay after the decision at
//! the earliest. So shards can be simulated independently for that long (Chandy and Misra, 1979;
//! the windows are those of Lubachevsky, 1989).
//!
//! Results do not depend on the partition, so there is one shard per thread.

use std::cmp::Reverse;

use tailback_fabric::{Fabric, RoutePlan};

const MAX_SHARDS: usize = 255;

/// With a shorter lookahead the exchange would take longer than the work in between.
const MIN_LOOKAHEAD_PS: u64 = 1000;

/// The switches and nodes of every shard, and the shard index of each link.
#[derive(Debug)]
pub(crate) struct Partition {
    pub shards: u32,
    /// Shard of every switch.
    pub of_switch: Vec<u8>,
    /// Shard of every node: that of its switch.
    pub of_node: Vec<u8>,
    /// By vertex: fabric number minus shard index of its links.
    pub link_shift: Vec<u32>,
    /// Shard index of the first link that leaves each vertex.
    pub first_link: Vec<u32>,
    /// Index of each node in its shard; empty with one shard.
    local_nodes: Vec<u32>,
    /// Index of each switch in its shard.
    pub local_switch: Vec<u32>,
    /// Group of every switch and its nodes, in its shard. Events of a group are processed in
    /// order of time. Every switch is its own group, unless its hosts are also attached to
    /// other switches.
    pub group: Vec<u32>,
    /// Number of groups of each shard.
    pub groups: Vec<u32>,
    /// Number of groups on the shard's boundary, which come first. The others affect other shards
    /// only through these.
    pub boundary: Vec<u32>,
    /// Shortest time in which one group can affect another.
    pub lookahead_ps: u64,
}

impl Partition {
    /// Partitions `fabric` into `wanted` shards, or fewer if it has too few switches or no
    /// delays.
    pub fn new(fabric: &Fabric, plan: &RoutePlan, switch_delay_ps: u64, wanted: u32) -> Self {
        let lookahead_ps = lookahead(fabric, switch_delay_ps);
        let most = (fabric.n_switches as usize).clamp(1, MAX_SHARDS);
        let worth = lookahead_ps >= MIN_LOOKAHEAD_PS;
        let shards = if worth { (wanted as usize).clamp(1, most) } else { 1 };
        let of_switch = partition_switches(fabric, plan, shards);
        let of_node: Vec<u8> =
            plan.node_switch.iter().map(|&switch| of_switch[switch as usize]).collect();
        let apart = lookahead_ps >= MIN_LOOKAHEAD_PS;
        Self::number(fabric, shards, of_switch, of_node, lookahead_ps, apart)
    }

    /// All of `fabric` in one shard and one group, whose events are processed in order of time:
    /// for programs in which a node can affect any other at once.
    pub fn in_one_group(fabric: &Fabric, switch_delay_ps: u64) -> Self {
        let (switches, nodes) = (fabric.n_switches as usize, fabric.n_nodes as usize);
        let lookahead_ps = lookahead(fabric, switch_delay_ps);
        Self::number(fabric, 1, vec![0; switches], vec![0; nodes], lookahead_ps, false)
    }

    /// Numbers everything; with `apart` each switch is a separate group.
    fn number(
        fabric: &Fabric,
        shards: usize,
        of_switch: Vec<u8>,
        of_node: Vec<u8>,
        lookahead_ps: u64,
        apart: bool,
    ) -> Self {
        let mut links = vec![0u32; shards];
        let (mut nodes, mut switches) = (vec![0u32; shards], vec![0u32; shards]);
        let mut local_switch = Vec::with_capacity(of_switch.len());
        let mut link_shift = Vec::with_capacity(fabric.n_vertices());
        let mut first_link = Vec::with_capacity(fabric.n_vertices());
        let mut local_nodes = Vec::with_capacity(of_node.len());
        for vertex in 0..fabric.n_vertices() {
            let node = vertex < of_node.len();
            let shard = if node { of_node[vertex] } else { of_switch[vertex - of_node.len()] };
            let shard = usize::from(shard);
            let out = fabric.out_links(vertex as u32);
            // May wrap: only the difference matters.
            link_shift.push(out.start.wrapping_sub(links[shard]));
            first_link.push(links[shard]);
            links[shard] += out.end - out.start;
            if node {
                local_nodes.push(nodes[shard]);
                nodes[shard] += 1;
            } else {
                local_switch.push(switches[shard]);
                switches[shard] += 1;
            }
        }
        Self {
            shards: shards as u32,
            of_switch,
            of_node,
            link_shift,
            first_link,
            local_nodes: if shards == 1 { Vec::new() } else { local_nodes },
            group: if apart { local_switch.clone() } else { vec![0; local_switch.len()] },
            groups: if apart { switches } else { vec![1; shards] },
            boundary: vec![0; shards],
            local_switch,
            lookahead_ps,
        }
    }

    /// Merges the groups of each pair of switches, transitively. Both must be in one shard.
    pub fn merge_groups(&mut self, pairs: &[(u32, u32)]) {
        let mut first: Vec<u32> = (0..self.group.len() as u32).collect();
        let find = |first: &mut [u32], mut at: u32| {
            while first[at as usize] != at {
                first[at as usize] = first[first[at as usize] as usize];
                at = first[at as usize];
            }
            at
        };
        for &(a, b) in pairs {
            let (a, b) = (find(&mut first, a), find(&mut first, b));
            first[a.max(b) as usize] = a.min(b);
        }
        for switch in 0..self.group.len() {
            self.group[switch] = self.group[find(&mut first, switch as u32) as usize];
        }
    }

    /// Renumbers the groups of each shard so that those on its boundary come first: groups with
    /// a link from or to another shard, or `all` groups.
    pub fn number_boundary_first(&mut self, fabric: &Fabric, plan: &RoutePlan, all: bool) {
        let switch_of = |vertex: u32| match plan.node_switch.get(vertex as usize) {
            Some(&switch) => switch as usize,
            None => vertex as usize - self.of_node.len(),
        };
        let mut on_boundary: Vec<Vec<bool>> =
            self.groups.iter().map(|&groups| vec![all; groups as usize]).collect();
        for (&src, &dst) in fabric.link_src.iter().zip(&fabric.link_dst) {
            if self.of_vertex(src) != self.of_vertex(dst) {
                for switch in [src, dst].map(switch_of) {
                    let shard = usize::from(self.of_switch[switch]);
                    on_boundary[shard][self.group[switch] as usize] = true;
                }
            }
        }
        let mut numbers = Vec::new();
        for (on_boundary, boundary) in on_boundary.iter().zip(&mut self.boundary) {
            let groups = 0..on_boundary.len() as u32;
            let (outer, inner): (Vec<u32>, Vec<u32>) =
                groups.partition(|&group| on_boundary[group as usize]);
            *boundary = outer.len() as u32;
            let mut number = vec![0; on_boundary.len()];
            let in_order = (0..).zip(outer.into_iter().chain(inner));
            in_order.for_each(|(new, old): (u32, u32)| number[old as usize] = new);
            numbers.push(number);
        }
        for (group, &shard) in self.group.iter_mut().zip(&self.of_switch) {
            *group = numbers[usize::from(shard)][*group as usize];
        }
    }

    /// Index of a node in its shard.
    #[inline]
    pub fn local_node(&self, node: u32) -> u32 {
        self.local_nodes.get(node as usize).copied().unwrap_or(node)
    }

    /// Shard of a vertex.
    pub fn of_vertex(&self, vertex: u32) -> u8 {
        match self.of_node.get(vertex as usize) {
            Some(&shard) => shard,
            None => self.of_switch[vertex as usize - self.of_node.len()],
        }
    }

    /// The same partition with all switches in a single shard.
    pub fn into_single_shard(self, fabric: &Fabric) -> Self {
        let (switches, nodes) = (self.of_switch.len(), self.of_node.len());
        let apart = self.lookahead_ps >= MIN_LOOKAHEAD_PS;
        Self::number(fabric, 1, vec![0; switches], vec![0; nodes], self.lookahead_ps, apart)
    }
}

/// Delay of the shortest cable between switches, plus the switch delay.
fn lookahead(fabric: &Fabric, switch_delay_ps: u64) -> u64 {
    let between = (0..fabric.n_links()).filter(|&link| {
        !fabric.is_node(fabric.link_src[link]) && !fabric.is_node(fabric.link_dst[link])
    });
    let shortest = between.map(|link| fabric.link_delay_ps[link]).min();
    shortest.map_or(u64::MAX, |delay| delay + switch_delay_ps)
}

/// Assigns switches to `shards` shards with about equal numbers of ports: leaves in their order,
/// every other switch to the shard with space left that most of its cables lead to. Every level is
/// divided evenly, because ports of different levels are not equally busy.
fn partition_switches(fabric: &Fabric, plan: &RoutePlan, shards: usize) -> Vec<u8> {
    let n = fabric.n_switches as usize;
    if shards == 1 {
        return vec![0; n];
    }
    let mut hosts = vec![0usize; n];
    plan.node_switch.iter().for_each(|&switch| hosts[switch as usize] += 1);
    let total: usize = hosts.iter().sum();
    let mut shard = vec![NONE; n];
    let mut load = vec![0usize; shards];
    let mut before = 0;
    for switch in (0..n).filter(|&s| hosts[s] > 0) {
        let here = (before * shards / total.max(1)).min(shards - 1);
        before += hosts[switch];
        shard[switch] = here as u8;
        load[here] += ports(fabric, switch);
    }
    // Switches adjacent to assigned ones first, level by level.
    loop {
        let level: Vec<usize> = (0..n)
            .filter(|&s| shard[s] == NONE)
            .filter(|&s| neighbours(fabric, s).any(|other| shard[other] != NONE))
            .collect();
        if level.is_empty() {
            break;
        }
        assign_level(fabric, level, &mut shard, &mut load);
    }
    shard.into_iter().map(|s| if s == NONE { 0 } else { s }).collect()
}

/// No shard.
const NONE: u8 = u8::MAX;

/// Assigns the switches of a level; those with the clearest preference come first.
fn assign_level(fabric: &Fabric, mut level: Vec<usize>, shard: &mut [u8], load: &mut [usize]) {
    let of_level: usize = level.iter().map(|&switch| ports(fabric, switch)).sum();
    let limit = (load.iter().sum::<usize>() + of_level).div_ceil(load.len());
    let shards = load.len();
    let votes = |shard: &[u8], switch: usize| {
        let mut votes = vec![0usize; shards];
        for other in neighbours(fabric, switch).filter(|&other| shard[other] != NONE) {
            votes[usize::from(shard[other])] += 1;
        }
        votes
    };
    level.sort_by_cached_key(|&switch| Reverse(votes(shard, switch).into_iter().max()));
    for switch in level {
        let votes = votes(shard, switch);
        let best = (0..shards)
            .filter(|&s| load[s] + ports(fabric, switch) <= limit)
            .max_by_key(|&s| (votes[s], usize::MAX - load[s]))
            .or_else(|| (0..shards).min_by_key(|&s| load[s]))
            .unwrap_or(0);
        shard[switch] = best as u8;
        load[best] += ports(fabric, switch);
    }
}

fn ports(fabric: &Fabric, switch: usize) -> usize {
    fabric.out_links(fabric.n_nodes + switch as u32).len()
}

fn neighbours(fabric: &Fabric, switch: usize) -> impl Iterator<Item = usize> + '_ {
    let links = fabric.out_links(fabric.n_nodes + switch as u32);
    links.filter_map(|link| {
        let dst = fabric.link_dst[link as usize];
        (!fabric.is_node(dst)).then(|| (dst - fabric.n_nodes) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailback_fabric::fat_tree::{Shape, build};
    use tailback_fabric::{Routes, RoutingRule};

    fn tapered() -> (Fabric, RoutePlan) {
        let fabric = build(&Shape::TAPERED).expect("a preset");
        let plan =
            RoutePlan::new(&fabric, RoutingRule::Table(Routes::up_down(&fabric).expect("a tree")));
        (fabric, plan.expect("a tree"))
    }

    #[test]
    fn shards_are_balanced_and_links_dense() {
        let (fabric, plan) = tapered();
        for shards in [1, 2, 7, 12, 48] {
            let partition = Partition::new(&fabric, &plan, 60_000, shards);
            let mut local = vec![Vec::new(); shards as usize];
            for link in 0..fabric.n_links() as u32 {
                let src = fabric.link_src[link as usize];
                let number = link.wrapping_sub(partition.link_shift[src as usize]);
                local[usize::from(partition.of_vertex(src))].push(number);
            }
            let sizes: Vec<usize> = local.iter().map(Vec::len).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(*most as f64 <= 1.3 * *least as f64, "{sizes:?}");
            for numbers in &mut local {
                numbers.sort_unstable();
                assert!(numbers.iter().enumerate().all(|(i, &n)| i == n as usize));
            }
            for node in 0..fabric.n_nodes as usize {
                assert_eq!(
                    partition.of_node[node],
                    partition.of_switch[plan.node_switch[node] as usize]
                );
            }
        }
    }

    #[test]
    fn every_level_is_divided_and_pods_stay_together() {
        let (fabric, plan) = tapered();
        for (shards, most) in [(2, 2304), (3, 3072), (4, 3840)] {
            let partition = Partition::new(&fabric, &plan, 60_000, shards);
            let mut count = vec![[0; 3]; shards as usize];
            for (&shard, &tier) in partition.of_switch.iter().zip(&fabric.switch_tier) {
                count[usize::from(shard)][tier as usize] += 1;
            }
            assert_eq!(count, vec![[144, 96, 48].map(|n| n / shards); shards as usize]);
            let ends = fabric.link_src.iter().zip(&fabric.link_dst);
            let apart =
                ends.filter(|&(&a, &b)| partition.of_vertex(a) != partition.of_vertex(b)).count();
            assert!(apart <= most, "{apart} links between {shards} shards");
        }
    }

    #[test]
    fn boundary_groups_come_first() {
        let (fabric, plan) = tapered();
        let mut partition = Partition::new(&fabric, &plan, 60_000, 4);
        partition.number_boundary_first(&fabric, &plan, false);
        // Two of six pods are split between two shards: a third of the leaves are on a
        // boundary.
        assert_eq!(partition.boundary, [(144 / 3 + 96 + 48) / 4; 4]);
        for switch in 0..partition.group.len() {
            let shard = partition.of_switch[switch];
            let apart =
                neighbours(&fabric, switch).any(|other| partition.of_switch[other] != shard);
            let boundary = partition.boundary[usize::from(shard)];
            assert_eq!(partition.group[switch] < boundary, apart, "switch {switch}");
        }
        let numbers = partition.of_switch.iter().zip(&partition.group);
        assert_eq!(numbers.collect::<std::collections::BTreeSet<_>>().len(), 144 + 96 + 48);

        // If one switch of a pair is on the boundary, both are.
        let mut partition = Partition::new(&fabric, &plan, 60_000, 4);
        partition.merge_groups(&[(0, partition.of_switch.len() as u32 - 1)]);
        partition.number_boundary_first(&fabric, &plan, false);
        assert!(partition.group[0] < partition.boundary[usize::from(partition.of_switch[0])]);

        partition.number_boundary_first(&fabric, &plan, true);
        assert_eq!(partition.boundary, partition.groups);
    }

    #[test]
    fn a_fabric_without_delay_is_one_shard() {
        let (mut fabric, plan) = tapered();
        fabric.link_delay_ps.fill(0);
        assert_eq!(Partition::new(&fabric, &plan, 0, 8).shards, 1);
        assert_eq!(Partition::new(&fabric, &plan, 2000, 8).shards, 8);
    }
}
