//! Dragonfly (Kim et al., ISCA 2008): groups of fully connected routers; every pair of groups is
//! connected by global cables.
//!
//! Routers are numbered group by group, nodes router by router; `switch_pod` is the group.

use crate::error::require_positive;
use crate::global::{Arrangement, cables as global_cables};
use crate::{CableList, Fabric, FabricError};

/// Shape of a dragonfly.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// p: nodes on each router.
    pub nodes_per_router: u32,
    /// a: routers in a group.
    pub routers: u32,
    /// h: global ports of a router.
    pub global_ports: u32,
    /// g: groups, at most a·h + 1.
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
        ("nodes_per_router", shape.nodes_per_router),
        ("routers", shape.routers),
        ("groups", shape.groups),
    ])?;
    let routers = u64::from(shape.routers) * u64::from(shape.groups);
    let vertices = routers.saturating_mul(1 + u64::from(shape.nodes_per_router));
    let ports = u64::from(shape.routers) * u64::from(shape.global_ports);
    if vertices >= u64::from(u32::MAX) || ports >= u64::from(u32::MAX) {
        let why = "the fabric exceeds 2^32 vertices, or a group 2^32 global ports".to_owned();
        return Err(FabricError::Parameter { field: "groups", value: shape.groups.into(), why });
    }
    let routers = routers as u32;
    let nodes = routers * shape.nodes_per_router;
    let mut cables = CableList::new((nodes + routers) as usize);
    for node in 0..nodes {
        let router = nodes + node / shape.nodes_per_router;
        cables.add(node, router, shape.gbps[0], shape.delay_ps[0]);
    }
    for group in 0..shape.groups {
        let first = nodes + group * shape.routers;
        for a in 0..shape.routers {
            for b in a + 1..shape.routers {
                cables.add(first + a, first + b, shape.gbps[1], shape.delay_ps[1]);
            }
        }
    }
    for (a, port_a, b, port_b) in global_cables(shape.groups, ports as u32, shape.arrangement)? {
        let router = |group, port| nodes + group * shape.routers + port / shape.global_ports;
        cables.add(router(a, port_a), router(b, port_b), shape.gbps[2], shape.delay_ps[2]);
    }
    let pod = (0..routers).map(|router| (router / shape.routers) as i32).collect();
    cables.finish(nodes, vec![0; routers as usize], pod)
}
