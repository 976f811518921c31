//! HyperX (Ahn et al., SC 2009): along every dimension, all switches are directly connected.
//!
//! One dimension is a full mesh, two of equal size a flattened butterfly. Numbering is as in
//! [`crate::torus`]: the first dimension varies fastest, nodes go switch by switch.

use crate::torus::count_switches;
use crate::{CableList, Fabric, FabricError};

/// One dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    /// Switches along it.
    pub size: u32,
    /// Cables between each pair of switches.
    pub cables: u32,
    /// Rate of its cables in Gb/s.
    pub gbps: f64,
    /// Cable delay in picoseconds.
    pub delay_ps: u64,
}

/// Shape of a HyperX.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Its dimensions, the fastest-varying first.
    pub dimensions: Vec<Dimension>,
    /// Nodes on each switch.
    pub nodes_per_switch: u32,
    /// Rate of node cables in Gb/s.
    pub node_gbps: f64,
    /// Delay of node cables in picoseconds.
    pub node_delay_ps: u64,
}

/// Builds the fabric of `shape`; all switches are of tier 0 and belong to no pod.
///
/// # Errors
/// [`FabricError::Parameter`] names the field, the value and what is wrong with it.
pub fn build(shape: &Shape) -> Result<Fabric, FabricError> {
    let sizes: Vec<(u32, u32)> = shape.dimensions.iter().map(|d| (d.size, d.cables)).collect();
    let switches = count_switches(&sizes, shape.nodes_per_switch)?;
    let nodes = switches * shape.nodes_per_switch;
    let mut cables = CableList::new((nodes + switches) as usize);
    for node in 0..nodes {
        let switch = nodes + node / shape.nodes_per_switch;
        cables.add(node, switch, shape.node_gbps, shape.node_delay_ps);
    }
    let mut stride = 1;
    for dimension in &shape.dimensions {
        for switch in 0..switches {
            let at = switch / stride % dimension.size;
            for other in at + 1..dimension.size {
                let peer = switch + (other - at) * stride;
                for _ in 0..dimension.cables {
                    cables.add(nodes + switch, nodes + peer, dimension.gbps, dimension.delay_ps);
                }
            }
        }
        stride *= dimension.size;
    }
    cables.finish(nodes, vec![0; switches as usize], vec![-1; switches as usize])
}
