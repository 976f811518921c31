//! Generalised fat trees: PGFT(h; m1 … mh; w1 … wh; p1 … ph) of Zahavi (D-Mod-K routing, 2010).
//!
//! A switch of level l has m_l children, w_{l+1} parents and p_{l+1} cables to each parent. With
//! all p = 1 the tree is an XGFT (Öhring et al., 1995); with all m = k and w = 1, k, …, k it is a
//! k-ary n-tree (Petrini and Vanneschi, 1997). A node has one cable, so w1 = p1 = 1. Nodes are
//! numbered leaf by leaf, switches level by level from the leaves. Planes are separate copies of the
//! tree.

use crate::{CableList, Fabric, FabricError};

/// Shape of a generalised fat tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// m: children of a switch at each level, starting with the nodes of a leaf.
    pub children: Vec<u32>,
    /// w: parents of a vertex at each level, starting with those of a node (1).
    pub parents: Vec<u32>,
    /// p: cables to each parent, starting with those of a node (1).
    pub cables: Vec<u32>,
    /// Rate of the cables below each level, in Gb/s.
    pub gbps: Vec<f64>,
    /// Delay of the cables below each level, in picoseconds.
    pub delay_ps: Vec<u64>,
    /// Number of separate copies of the tree.
    pub planes: u32,
}

impl Shape {
    /// Switches of each level of one plane, leaves first.
    pub fn switches(&self) -> Vec<u64> {
        (0..self.children.len())
            .map(|level| {
                let above: u64 = product(&self.children[level + 1..]);
                product(&self.parents[..=level]).saturating_mul(above)
            })
            .collect()
    }

    /// Nodes of one plane.
    pub fn nodes(&self) -> u64 {
        product(&self.children)
    }

    fn check(&self) -> Result<(), FabricError> {
        let levels = self.children.len();
        for (name, length) in [
            ("parents", self.parents.len()),
            ("cables", self.cables.len()),
            ("gbps", self.gbps.len()),
            ("delay_ps", self.delay_ps.len()),
        ] {
            if length != levels {
                return Err(FabricError::Length { name, length, expected: levels });
            }
        }
        let wrong = |field, value: u64, why: &str| {
            Err(FabricError::Parameter { field, value, why: why.to_owned() })
        };
        if levels == 0 {
            return wrong("levels", 0, "a tree has at least one level");
        }
        for (field, values) in
            [("children", &self.children), ("parents", &self.parents), ("cables", &self.cables)]
        {
            if values.contains(&0) {
                return wrong(field, 0, "must be at least 1");
            }
        }
        if self.planes == 0 {
            return wrong("planes", 0, "must be at least 1");
        }
        for (field, first) in [("parents", self.parents[0]), ("cables", self.cables[0])] {
            if first != 1 {
                let why = "the first value must be 1, because a node is one adapter port with one \
                           cable (for several adapters per host use rails)";
                return wrong(field, first.into(), why);
            }
        }
        let vertices = self.switches().iter().fold(self.nodes(), |a, &b| a.saturating_add(b));
        let vertices = vertices.saturating_mul(self.planes.into());
        if vertices >= u64::from(u32::MAX) {
            let why = format!("the tree has {vertices} nodes and switches, more than 2^32");
            let value = u64::from(self.children[levels - 1]);
            return Err(FabricError::Parameter { field: "children", value, why });
        }
        Ok(())
    }
}

fn product(values: &[u32]) -> u64 {
    values.iter().fold(1, |a: u64, &b| a.saturating_mul(b.into()))
}

/// Builds the fabric of `shape`; pods are the subtrees below the roots.
///
/// # Errors
/// [`FabricError::Parameter`] or [`FabricError::Length`] names the field and what is wrong with it.
pub fn build(shape: &Shape) -> Result<Fabric, FabricError> {
    shape.check()?;
    let levels = shape.children.len();
    let (nodes, counts) = (shape.nodes() as u32, shape.switches());
    let per_plane: u32 = counts.iter().sum::<u64>() as u32;
    let n_nodes = nodes * shape.planes;
    let mut cables = CableList::new((n_nodes + per_plane * shape.planes) as usize);
    let (mut tier, mut pod) = (Vec::new(), Vec::new());
    let pods = shape.children[levels - 1];
    for plane in 0..shape.planes {
        let mut below = plane * nodes;
        let mut here = n_nodes + plane * per_plane;
        for (level, &count) in counts.iter().enumerate() {
            connect_level(shape, level, below, here, &mut cables);
            let count = count as u32;
            let inner = level + 1 < levels && levels > 2;
            for switch in 0..count {
                let number = plane * pods + switch / (count / pods).max(1);
                tier.push(level as i32);
                pod.push(if inner { number as i32 } else { -1 });
            }
            below = here;
            here += count;
        }
    }
    cables.finish(n_nodes, tier, pod)
}

/// Connects the vertices of the level below, numbered from `below`, to the switches of `level`,
/// numbered from `here`.
///
/// Each subtree has `width` vertices at its top; the i-th of them has the parents i, width + i, … in
/// the subtree above.
fn connect_level(shape: &Shape, level: usize, below: u32, here: u32, cables: &mut CableList) {
    let (parents, gbps, delay_ps) =
        (shape.parents[level], shape.gbps[level], shape.delay_ps[level]);
    let width = product(&shape.parents[..level]) as u32;
    let subtrees = product(&shape.children[level..]) as u32;
    for subtree in 0..subtrees {
        let above = here + subtree / shape.children[level] * width * parents;
        for i in 0..width {
            for parent in 0..parents {
                for _ in 0..shape.cables[level] {
                    let child = below + subtree * width + i;
                    cables.add(child, above + parent * width + i, gbps, delay_ps);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fat_tree, tree};
    use proptest::prelude::*;

    fn shape(children: &[u32], parents: &[u32], cables: &[u32]) -> Shape {
        let n = children.len();
        Shape {
            children: children.to_vec(),
            parents: parents.to_vec(),
            cables: cables.to_vec(),
            gbps: vec![100.0; n],
            delay_ps: vec![0; n],
            planes: 1,
        }
    }

    #[test]
    fn a_k_ary_n_tree_has_n_k_to_the_n_minus_1_switches() {
        for (k, n) in [(2u32, 2u32), (3, 3), (4, 2), (2, 5)] {
            let mut parents = vec![k; n as usize];
            parents[0] = 1;
            let fabric =
                build(&shape(&vec![k; n as usize], &parents, &vec![1; n as usize])).unwrap();
            assert_eq!(fabric.n_nodes, k.pow(n));
            assert_eq!(fabric.n_switches, n * k.pow(n - 1));
            assert_eq!(fabric.n_links() as u32, 2 * n * k.pow(n));
            assert!(tree::compare(&fabric).unwrap(), "{k}-ary {n}-tree is regular");
        }
    }

    #[test]
    fn the_networks_of_the_thesis_are_regular() {
        let two =
            fat_tree::Shape { pods: 0, cores: 0, aggregation_uplinks: 0, ..fat_tree::Shape::FULL };
        for s in [fat_tree::Shape::TAPERED, fat_tree::Shape::FULL, two] {
            assert!(tree::compare(&fat_tree::build(&s).unwrap()).unwrap());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn arithmetic_equals_the_table(
            levels in 1usize..4,
            m in proptest::collection::vec(1u32..5, 3),
            w in proptest::collection::vec(1u32..4, 3),
            p in proptest::collection::vec(1u32..3, 3),
            planes in 1u32..3,
        ) {
            let mut s = shape(&m[..levels], &w[..levels], &p[..levels]);
            s.parents[0] = 1;
            s.cables[0] = 1;
            s.planes = planes;
            let fabric = build(&s).unwrap();
            let switches: u64 = s.switches().iter().sum();
            prop_assert_eq!(u64::from(fabric.n_switches), switches * u64::from(planes));
            prop_assert!(tree::compare(&fabric).unwrap());
        }
    }

    /// No packet uses cables above the highest switch that separates destinations. They are not
    /// candidates in a table, so they must not count in D-mod-k's divisor of arithmetic routes either.
    #[test]
    fn links_that_no_route_uses_do_not_change_the_divisor() {
        for (children, planes) in [([3, 1, 1], 1), ([3, 1, 1], 2), ([4, 2, 1], 1), ([2, 1, 3], 2)] {
            let tree = Shape { planes, ..shape(&children, &[1, 3, 3], &[1, 2, 2]) };
            assert!(tree::compare(&build(&tree).unwrap()).unwrap(), "{children:?}");
        }
    }

    #[test]
    fn a_wrong_shape_names_its_field() {
        let error = build(&shape(&[4, 4], &[2, 4], &[1, 1])).unwrap_err().to_string();
        assert!(error.starts_with("parents = 2:"), "{error}");
        let error = build(&shape(&[4, 4], &[1], &[1, 1])).unwrap_err().to_string();
        assert!(error.starts_with("parents has 1"), "{error}");
        let error = build(&shape(&[9999; 4], &[1; 4], &[1; 4])).unwrap_err().to_string();
        assert!(error.contains("more than 2^32"), "{error}");
    }
}
