//! Fat trees of two and three levels, tapered at any level.
//!
//! Nodes are numbered leaf by leaf; switches by tier: leaves (pod by pod), then aggregation, then
//! core switches.
//! Tapered and Full are the two networks of Taffet's thesis, Table 3.1.

use crate::error::require_positive;
use crate::{CableList, Fabric, FabricError};

/// Shape of a fat tree. `pods = 0` gives a two-level tree, with the aggregation switches at the top.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Hosts on each leaf.
    pub hosts_per_leaf: u32,
    /// Leaves in a pod (in all, for two levels).
    pub leaves: u32,
    /// Aggregation switches in a pod (in all, for two levels).
    pub aggregation: u32,
    /// Pods; 0 for two levels.
    pub pods: u32,
    /// Core switches.
    pub cores: u32,
    /// Cables from a leaf to each aggregation switch of its pod.
    pub leaf_cables: u32,
    /// Uplinks of an aggregation switch, distributed round-robin over the core switches.
    pub aggregation_uplinks: u32,
    /// Rates in Gb/s: host–leaf, leaf–aggregation, aggregation–core.
    pub gbps: [f64; 3],
    /// Cable delays in picoseconds, same order.
    pub delay_ps: [u64; 3],
}

impl Shape {
    /// The half-bisection network of the thesis: 4608 nodes, 288 switches of radix 48.
    pub const TAPERED: Shape = Shape {
        hosts_per_leaf: 32,
        leaves: 24,
        aggregation: 16,
        pods: 6,
        cores: 48,
        leaf_cables: 1,
        aggregation_uplinks: 24,
        gbps: [100.0; 3],
        delay_ps: [0; 3],
    };

    /// The full-bisection network of the thesis: 3564 nodes, 504 switches of radix 36.
    pub const FULL: Shape = Shape {
        hosts_per_leaf: 18,
        leaves: 18,
        aggregation: 18,
        pods: 11,
        cores: 108,
        leaf_cables: 1,
        aggregation_uplinks: 18,
        gbps: [100.0; 3],
        delay_ps: [0; 3],
    };

    fn check(&self) -> Result<(), FabricError> {
        let wrong = |field, value: u32, why: &str| {
            Err(FabricError::Parameter { field, value: value.into(), why: why.to_owned() })
        };
        require_positive(&[
            ("hosts_per_leaf", self.hosts_per_leaf),
            ("leaves", self.leaves),
            ("aggregation", self.aggregation),
            ("leaf_cables", self.leaf_cables),
        ])?;
        if self.pods == 0 {
            if self.cores != 0 {
                return wrong("cores", self.cores, "a two-level tree (pods = 0) has no cores");
            }
            if self.aggregation_uplinks != 0 {
                let why = "a two-level tree (pods = 0) has no links above the aggregation switches";
                return wrong("aggregation_uplinks", self.aggregation_uplinks, why);
            }
            return Ok(());
        }
        if self.cores == 0 {
            return wrong("cores", 0, "a three-level tree needs core switches");
        }
        if self.aggregation_uplinks == 0 {
            return wrong("aggregation_uplinks", 0, "a three-level tree needs uplinks");
        }
        let (up, cores) = (self.aggregation * self.aggregation_uplinks, self.cores);
        if up % cores != 0 {
            let why = format!(
                "{} aggregation switches x {} uplinks = {up} uplinks per pod, to be distributed \
                 evenly over the core switches: cores must divide {up}",
                self.aggregation, self.aggregation_uplinks
            );
            return Err(FabricError::Parameter { field: "cores", value: cores.into(), why });
        }
        Ok(())
    }
}

/// Builds the fabric of `shape`.
///
/// Uplink `u` of aggregation switch `a` of a pod leads to core `(a * uplinks + u) mod cores`, so each
/// pod has the same number of links to each core.
///
/// # Errors
/// [`FabricError::Parameter`] names the field, the value and what is wrong with it.
pub fn build(shape: &Shape) -> Result<Fabric, FabricError> {
    shape.check()?;
    let pods = shape.pods.max(1);
    let (leaves, aggregation) = (pods * shape.leaves, pods * shape.aggregation);
    let nodes = u64::from(leaves) * u64::from(shape.hosts_per_leaf);
    let Ok(nodes) = u32::try_from(nodes) else {
        let why = "the tree has more than 2^32 hosts".to_owned();
        return Err(FabricError::Parameter { field: "pods", value: pods.into(), why });
    };
    let switches = leaves + aggregation + shape.cores;
    let leaf = |n: u32| nodes + n;
    let upper = |n: u32| nodes + leaves + n;
    let core = |n: u32| nodes + leaves + aggregation + n;
    let mut cables = CableList::new((nodes + switches) as usize);
    for node in 0..nodes {
        cables.add(node, leaf(node / shape.hosts_per_leaf), shape.gbps[0], shape.delay_ps[0]);
    }
    for pod in 0..pods {
        for l in 0..shape.leaves {
            for a in 0..shape.aggregation {
                for _ in 0..shape.leaf_cables {
                    let (low, high) = (pod * shape.leaves + l, pod * shape.aggregation + a);
                    cables.add(leaf(low), upper(high), shape.gbps[1], shape.delay_ps[1]);
                }
            }
        }
    }
    for pod in 0..shape.pods {
        for a in 0..shape.aggregation {
            for u in 0..shape.aggregation_uplinks {
                let top = (a * shape.aggregation_uplinks + u) % shape.cores;
                let low = upper(pod * shape.aggregation + a);
                cables.add(low, core(top), shape.gbps[2], shape.delay_ps[2]);
            }
        }
    }
    let pod_of = |n: u32, each: u32| if shape.pods == 0 { -1 } else { (n / each) as i32 };
    let mut tier = Vec::with_capacity(switches as usize);
    let mut pod = Vec::with_capacity(switches as usize);
    for n in 0..leaves {
        tier.push(0);
        pod.push(pod_of(n, shape.leaves));
    }
    for n in 0..aggregation {
        tier.push(1);
        pod.push(pod_of(n, shape.aggregation));
    }
    for _ in 0..shape.cores {
        tier.push(2);
        pod.push(-1);
    }
    cables.finish(nodes, tier, pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tapered_has_the_counts_of_table_3_1() {
        let fabric = build(&Shape::TAPERED).unwrap();
        assert_eq!((fabric.n_nodes, fabric.n_switches), (4608, 288));
        // 16/32 + 16/32 cables between switches for each node.
        assert_eq!(fabric.n_links(), 2 * (4608 + 144 * 16 + 96 * 24));
        for switch in 0..fabric.n_switches {
            assert_eq!(fabric.out_links(4608 + switch).len(), 48, "switch {switch}");
        }
        // Leaf 43 and aggregation switch 175 are in the same pod; node 1446 is attached to leaf 45.
        assert_eq!(fabric.switch_pod[43], fabric.switch_pod[175]);
        let link = fabric.out_links(1446).start as usize;
        assert_eq!(fabric.link_dst[link] - fabric.n_nodes, 45);
    }

    #[test]
    fn full_has_the_counts_of_table_3_1() {
        let fabric = build(&Shape::FULL).unwrap();
        assert_eq!((fabric.n_nodes, fabric.n_switches), (3564, 504));
        for switch in 0..fabric.n_switches {
            assert!(fabric.out_links(3564 + switch).len() <= 36, "switch {switch}");
        }
    }

    #[test]
    fn each_pod_of_tapered_has_eight_links_to_each_core() {
        let fabric = build(&Shape::TAPERED).unwrap();
        let mut count = vec![0; 6 * 48];
        for link in 0..fabric.n_links() {
            let (src, dst) = (fabric.link_src[link], fabric.link_dst[link]);
            if (4608 + 144..4608 + 240).contains(&src) && dst >= 4608 + 240 {
                count[((src - 4608 - 144) / 16 * 48 + dst - 4608 - 240) as usize] += 1;
            }
        }
        assert!(count.iter().all(|&links| links == 8));
    }

    #[test]
    fn impossible_shapes_name_the_field() {
        let shape = Shape { cores: 47, ..Shape::TAPERED };
        let error = build(&shape).unwrap_err().to_string();
        assert!(error.starts_with("cores = 47:"), "{error}");
        let shape = Shape { pods: 0, ..Shape::TAPERED };
        assert!(build(&shape).unwrap_err().to_string().starts_with("cores = 48:"));
    }
}
