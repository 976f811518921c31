//! Yellowstone (Alali et al., figures 2 and 3).
//!
//! There are 18 hosts per top-of-rack switch (ToR) and 18 ToRs per B-group. Every ToR of B-group b has
//! a cable to leaf 2b and to leaf 2b + 1 of each of 9 directors. In a director, 29 leaves and 18 spines
//! are fully connected. The 29th leaf of every director leads to the storage system, whose servers
//! attach to storage leaves, which are connected by storage spines. Switches are numbered: ToRs,
//! storage leaves, director leaves, storage spines, director spines. The study does not state the
//! number of servers, or of cables between storage and directors: those are parameters.

use crate::{CableList, Fabric, FabricError};

/// Shape of Yellowstone, a part of it, or a similar machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Hosts on a ToR.
    pub hosts_per_tor: u32,
    /// ToRs in a B-group.
    pub tors_per_group: u32,
    /// B-groups; each takes two leaves of every director.
    pub groups: u32,
    /// Directors.
    pub directors: u32,
    /// Leaves of a director, the last of them for storage.
    pub leaves: u32,
    /// Spines of a director.
    pub spines: u32,
    /// Storage leaf switches.
    pub storage_leaves: u32,
    /// Storage spine switches.
    pub storage_spines: u32,
    /// Servers on each storage leaf.
    pub servers_per_leaf: u32,
    /// Cables from each storage leaf to each director.
    pub storage_cables: u32,
    /// Rate of every cable in Gb/s.
    pub gbps: f64,
    /// Delay of every cable in picoseconds.
    pub delay_ps: u64,
}

impl Shape {
    fn check(&self) -> Result<(), FabricError> {
        let wrong = |field, value: u32, why: &str| {
            Err(FabricError::Parameter { field, value: value.into(), why: why.to_owned() })
        };
        for (field, value) in [
            ("hosts_per_tor", self.hosts_per_tor),
            ("tors_per_group", self.tors_per_group),
            ("groups", self.groups),
            ("directors", self.directors),
            ("spines", self.spines),
        ] {
            if value == 0 || value > 4096 {
                return wrong(field, value, "must be 1 to 4096");
            }
        }
        for (field, value) in [
            ("leaves", self.leaves),
            ("storage_leaves", self.storage_leaves),
            ("storage_spines", self.storage_spines),
            ("servers_per_leaf", self.servers_per_leaf),
            ("storage_cables", self.storage_cables),
        ] {
            if value > 65_535 {
                return wrong(field, value, "must be at most 65535");
            }
        }
        if self.leaves < 2 * self.groups + 1 {
            let why = format!(
                "{} B-groups need {} leaves of every director: two each, and one for storage",
                self.groups,
                2 * self.groups + 1
            );
            return wrong("leaves", self.leaves, &why);
        }
        if self.storage_leaves > 0 && self.storage_cables == 0 {
            return wrong("storage_cables", 0, "the storage leaves need a cable to each director");
        }
        let hosts = u64::from(self.groups * self.tors_per_group) * u64::from(self.hosts_per_tor);
        if hosts > 1 << 30 {
            return wrong("groups", self.groups, "the fabric has more than 2^30 hosts");
        }
        Ok(())
    }
}

/// Builds the fabric of `shape`; pods are the B-groups, then the directors.
///
/// # Errors
/// [`FabricError::Parameter`] names the field, the value and what is wrong with it.
pub fn build(shape: &Shape) -> Result<Fabric, FabricError> {
    shape.check()?;
    let tors = shape.groups * shape.tors_per_group;
    let hosts = tors * shape.hosts_per_tor;
    let nodes = hosts + shape.storage_leaves * shape.servers_per_leaf;
    let storage_leaf = |n: u32| nodes + tors + n;
    let leaf = |d: u32, n: u32| storage_leaf(shape.storage_leaves) + d * shape.leaves + n;
    let storage_spine = |n: u32| leaf(shape.directors, n);
    let spine = |d: u32, n: u32| storage_spine(shape.storage_spines) + d * shape.spines + n;
    let switches = spine(shape.directors, 0) - nodes;
    let mut cables = CableList::new((nodes + switches) as usize);
    let mut connect = |a, b| cables.add(a, b, shape.gbps, shape.delay_ps);
    for host in 0..hosts {
        connect(host, nodes + host / shape.hosts_per_tor);
    }
    for server in hosts..nodes {
        connect(server, storage_leaf((server - hosts) / shape.servers_per_leaf));
    }
    for tor in 0..tors {
        for director in 0..shape.directors {
            for parity in 0..2 {
                connect(nodes + tor, leaf(director, 2 * (tor / shape.tors_per_group) + parity));
            }
        }
    }
    for n in 0..shape.storage_leaves {
        for director in 0..shape.directors {
            for _ in 0..shape.storage_cables {
                connect(storage_leaf(n), leaf(director, shape.leaves - 1));
            }
        }
        for top in 0..shape.storage_spines {
            connect(storage_leaf(n), storage_spine(top));
        }
    }
    for director in 0..shape.directors {
        for n in 0..shape.leaves {
            for top in 0..shape.spines {
                connect(leaf(director, n), spine(director, top));
            }
        }
    }
    let (tier, pod) = tiers_and_pods(shape);
    cables.finish(nodes, tier, pod)
}

/// Tier and pod of every switch.
fn tiers_and_pods(shape: &Shape) -> (Vec<i32>, Vec<i32>) {
    let tors = shape.groups * shape.tors_per_group;
    let counts = [
        (tors, 0),
        (shape.storage_leaves, 0),
        (shape.directors * shape.leaves, 1),
        (shape.storage_spines, 1),
        (shape.directors * shape.spines, 2),
    ];
    let tier = counts.iter().flat_map(|&(n, tier)| vec![tier; n as usize]).collect();
    let group = (0..tors).map(|tor| (tor / shape.tors_per_group) as i32);
    let director =
        |each: u32| (0..shape.directors * each).map(move |n| (shape.groups + n / each) as i32);
    let none = |n: u32| std::iter::repeat_n(-1, n as usize);
    let pod = group
        .chain(none(shape.storage_leaves))
        .chain(director(shape.leaves))
        .chain(none(shape.storage_spines))
        .chain(director(shape.spines))
        .collect();
    (tier, pod)
}
