//! Tori and meshes of any dimension; each dimension has its own number of parallel cables and rates.
//!
//! Switch (x, y, z) has the number x + X·(y + Y·z): the first dimension varies fastest. Nodes are
//! numbered switch by switch. A wrapped dimension of two switches has one cable, not two.

use crate::{CableList, Fabric, FabricError};

/// One dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    /// Switches along it.
    pub size: u32,
    /// Whether a wrap-around cable connects its ends (torus) or not (mesh).
    pub wrap: bool,
    /// Cables between neighbours.
    pub cables: u32,
    /// Rates in Gb/s of the cables from position 0, 1, … to the next; repeated from the start when the
    /// list is shorter than the dimension.
    pub gbps: Vec<f64>,
    /// Cable delay in picoseconds.
    pub delay_ps: u64,
}

impl Dimension {
    /// Number of pairs of neighbours along the dimension.
    pub fn pairs(&self) -> u32 {
        if self.wrap && self.size > 2 { self.size } else { self.size - 1 }
    }
}

/// Shape of a torus or mesh.
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

/// Number of switches of a grid whose dimensions are (size, cables); checks sizes and counts.
pub(crate) fn count_switches(
    dimensions: &[(u32, u32)],
    nodes_per_switch: u32,
) -> Result<u32, FabricError> {
    let wrong = |field, value: u64, why: &str| {
        Err(FabricError::Parameter { field, value, why: why.to_owned() })
    };
    if dimensions.is_empty() || dimensions.len() > 8 {
        let why = format!("a grid has 1 to 8 dimensions, this one {}", dimensions.len());
        let value = dimensions.first().map_or(0, |dimension| dimension.0.into());
        return Err(FabricError::Parameter { field: "dims", value, why });
    }
    let mut switches = 1u64;
    for &(size, cables) in dimensions {
        if size == 0 || size > 65_535 {
            return wrong("dims", size.into(), "the size of a dimension must be 1 to 65535");
        }
        if cables == 0 {
            return wrong("cables", 0, "must be at least 1");
        }
        switches = switches.saturating_mul(size.into());
    }
    if nodes_per_switch == 0 {
        return wrong("nodes_per_switch", 0, "must be at least 1");
    }
    if switches.saturating_mul(1 + u64::from(nodes_per_switch)) >= u64::from(u32::MAX) {
        let why = format!("{switches} switches and their nodes are more than 2^32");
        return Err(FabricError::Parameter { field: "dims", value: dimensions[0].0.into(), why });
    }
    Ok(switches as u32)
}

/// Builds the fabric of `shape`.
///
/// Ports of nodes come first, then those of each dimension. All switches are of tier 0 and belong to
/// no pod.
///
/// # Errors
/// [`FabricError::Parameter`] names the field, the value and what is wrong with it.
pub fn build(shape: &Shape) -> Result<Fabric, FabricError> {
    let sizes: Vec<(u32, u32)> = shape.dimensions.iter().map(|d| (d.size, d.cables)).collect();
    let switches = count_switches(&sizes, shape.nodes_per_switch)?;
    if shape.dimensions.iter().any(|d| d.gbps.is_empty()) {
        let why = "each dimension needs at least one rate".to_owned();
        return Err(FabricError::Parameter { field: "rates", value: 0, why });
    }
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
            if at >= dimension.pairs() {
                continue;
            }
            let next = (at + 1) % dimension.size;
            let other = switch - at * stride + next * stride;
            let gbps = dimension.gbps[at as usize % dimension.gbps.len()];
            for _ in 0..dimension.cables {
                cables.add(nodes + switch, nodes + other, gbps, dimension.delay_ps);
            }
        }
        stride *= dimension.size;
    }
    cables.finish(nodes, vec![0; switches as usize], vec![-1; switches as usize])
}
