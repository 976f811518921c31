//! Dragonfly+ (Shpiner et al., HiPINEB 2017; "megafly"): in a group every leaf is connected to every
//! spine, nodes attach to leaves, and global cables between the spines connect every pair of groups.
//!
//! Switches are numbered group by group, leaves before spines; `switch_pod` is the group.

use crate::error::require_positive;
use crate::global::{Arrangement, cables as global_cables};
use crate::{CableList, Fabric, FabricError};

/// Shape of a dragonfly+.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Nodes on each leaf.
    pub nodes_per_leaf: u32,
    /// Leaves in a group.
    pub leaves: u32,
    /// Spines in a group.
    pub spines: u32,
    /// Global ports of a spine.
    pub global_ports: u32,
    /// Groups, at most spines · global ports + 1.
    pub groups: u32,
    /// Which group each global port leads to.
    pub arrangement: Arrangement,
    /// Rates in Gb/s: node, local, global.
    pub gbps: [f64; 3],
    /// Cable delays in picoseconds, same order.
    pub delay_ps: [u64; 3],
}

/// Builds the fabric of `shape`; all switches are of tier 0.
///
/// # Errors
/// [`FabricError::Parameter`] names the field, the value and what is wrong with it.
pub fn build(shape: &Shape) -> Result<Fabric, FabricError> {
    require_positive(&[
        ("nodes_per_leaf", shape.nodes_per_leaf),
        ("leaves", shape.leaves),
        ("spines", shape.spines),
        ("groups", shape.groups),
    ])?;
    let groups = u64::from(shape.groups);
    let nodes = (groups * u64::from(shape.leaves)).saturating_mul(shape.nodes_per_leaf.into());
    let switches = groups.saturating_mul(u64::from(shape.leaves) + u64::from(shape.spines));
    let ports = u64::from(shape.spines) * u64::from(shape.global_ports);
    if nodes.saturating_add(switches) >= u64::from(u32::MAX) || ports >= u64::from(u32::MAX) {
        let why = "the fabric exceeds 2^32 vertices, or a group 2^32 global ports".to_owned();
        return Err(FabricError::Parameter { field: "groups", value: groups, why });
    }
    let (nodes, switches, per_group) = (nodes as u32, switches as u32, shape.leaves + shape.spines);
    let mut cables = CableList::new((nodes + switches) as usize);
    for node in 0..nodes {
        let leaf = node / shape.nodes_per_leaf;
        let switch = nodes + leaf / shape.leaves * per_group + leaf % shape.leaves;
        cables.add(node, switch, shape.gbps[0], shape.delay_ps[0]);
    }
    for group in 0..shape.groups {
        let first = nodes + group * per_group;
        for leaf in 0..shape.leaves {
            for spine in 0..shape.spines {
                let spine = first + shape.leaves + spine;
                cables.add(first + leaf, spine, shape.gbps[1], shape.delay_ps[1]);
            }
        }
    }
    for (a, port_a, b, port_b) in global_cables(shape.groups, ports as u32, shape.arrangement)? {
        let spine =
            |group, port| nodes + group * per_group + shape.leaves + port / shape.global_ports;
        cables.add(spine(a, port_a), spine(b, port_b), shape.gbps[2], shape.delay_ps[2]);
    }
    let pod = (0..switches).map(|switch| (switch / per_group) as i32).collect();
    cables.finish(nodes, vec![0; switches as usize], pod)
}
