//! The modified k-ary n-tree of Birk and Zdornov (2009): a k-ary n-tree with horizontal links.
//!
//! [`tailback_fabric::modified_tree`] describes and builds it. Here its links are numbered so that the
//! static evaluation of permutations can compute their numbers.
//!
//! # Why no deadlock
//! Every path uses links of strictly ascending [`Tree::rank`], hence the links that wait for one
//! another cannot form a cycle (Dally and Seitz, 1987).

use tailback_fabric::modified_tree;

use crate::FluidError;

/// Shape of the tree, and the numbers of its directed links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// Down (and up) ports of a switch.
    pub arity: u32,
    /// Levels of switches.
    pub levels: u32,
    /// Parallel horizontal links from a switch to the next of its line.
    pub width: u32,
    /// Nodes.
    pub nodes: u32,
    /// Switches of one level.
    pub per_level: u32,
}

/// Kind and position of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// From a node.
    Injection,
    /// To a node.
    Ejection,
    /// From a switch of this level upwards.
    Up(u32),
    /// From a switch of this level downwards.
    Down(u32),
    /// Within this level, from the switch of this number.
    Horizontal(u32, u32),
}

impl Tree {
    /// A tree with `arity^levels` nodes.
    ///
    /// # Errors
    /// A shape with fewer than two ports or one level, or with more than a million nodes.
    pub fn new(arity: u32, levels: u32, width: u32) -> Result<Self, FluidError> {
        let wrong = |name, value: u32, valid| {
            let (place, value) = ("the tree".to_owned(), value.to_string());
            Err(FluidError::Value { name, place, value, valid })
        };
        if arity < 2 {
            return wrong("arity", arity, "2 or more");
        }
        if levels < 1 {
            return wrong("levels", levels, "1 or more");
        }
        if width > 64 {
            return wrong("width", width, "0 to 64");
        }
        let Some(nodes) = arity.checked_pow(levels).filter(|&nodes| nodes <= 1 << 20) else {
            return wrong("levels", levels, "at most 1,048,576 nodes in all");
        };
        Ok(Self { arity, levels, width, nodes, per_level: nodes / arity })
    }

    /// Number of directed links, the unused one at the end of each line included.
    pub fn n_links(&self) -> u32 {
        let between = (self.levels - 1) * self.per_level;
        2 * self.nodes + between * (2 * self.arity + self.width)
    }

    /// Link of `node` to its leaf.
    pub fn injection(&self, node: u32) -> u32 {
        node
    }

    /// Link to `node` from its leaf.
    pub fn ejection(&self, node: u32) -> u32 {
        self.nodes + node
    }

    /// Up link by `port` of a switch of `level`.
    #[inline]
    pub fn up(&self, level: u32, switch: u32, port: u32) -> u32 {
        2 * self.nodes + (level * self.per_level + switch) * self.arity + port
    }

    /// Down link by `port` of a switch of `level`, 1 or more.
    #[inline]
    pub fn down(&self, level: u32, switch: u32, port: u32) -> u32 {
        let between = (self.levels - 1) * self.per_level;
        2 * self.nodes + (between + (level - 1) * self.per_level + switch) * self.arity + port
    }

    /// Horizontal link number `lane` of a switch of `level`, 1 or more, to the next of its line.
    #[inline]
    pub fn horizontal(&self, level: u32, switch: u32, lane: u32) -> u32 {
        let between = (self.levels - 1) * self.per_level;
        let first = 2 * self.nodes + 2 * between * self.arity;
        first + ((level - 1) * self.per_level + switch) * self.width + lane
    }

    /// Switches that make one node of the ideal fat tree at `level`.
    #[inline]
    pub fn line(&self, level: u32) -> u32 {
        modified_tree::line_length(self.arity, level)
    }

    /// Kind and position of a link.
    pub fn kind(&self, link: u32) -> LinkKind {
        let (n, s) = (self.nodes, self.per_level);
        let between = (self.levels - 1) * s * self.arity;
        match link {
            _ if link < n => LinkKind::Injection,
            _ if link < 2 * n => LinkKind::Ejection,
            _ if link < 2 * n + between => LinkKind::Up((link - 2 * n) / (s * self.arity)),
            _ if link < 2 * n + 2 * between => {
                LinkKind::Down((link - 2 * n - between) / (s * self.arity) + 1)
            }
            _ => {
                let at = (link - 2 * n - 2 * between) / self.width;
                LinkKind::Horizontal(at / s + 1, at % s)
            }
        }
    }

    /// Rank of a link, which ascends along every path (see the module's description).
    pub fn rank(&self, link: u32) -> u64 {
        let below = |level: u32| u64::from(self.levels - level) * (u64::from(self.nodes) + 2);
        let climb = u64::from(self.levels) + 1;
        match self.kind(link) {
            LinkKind::Injection => 0,
            LinkKind::Up(level) => 1 + u64::from(level),
            LinkKind::Horizontal(level, switch) => climb + below(level) + u64::from(switch),
            LinkKind::Down(level) => climb + below(level) + u64::from(self.nodes),
            LinkKind::Ejection => climb + below(0),
        }
    }

    /// Switch ports in all, each end of a cable counted: (without, with horizontal links).
    pub fn ports(&self) -> (u64, u64) {
        let s = u64::from(self.per_level);
        let vertical = s * u64::from(self.arity) * (2 * u64::from(self.levels) - 1);
        let horizontal: u64 = (1..self.levels)
            .map(|level| {
                let line = u64::from(self.line(level));
                s / line * (line - 1) * 2 * u64::from(self.width)
            })
            .sum();
        (vertical, vertical + horizontal)
    }

    /// `switch` with its digit `place` replaced.
    #[inline]
    pub(crate) fn with_digit(&self, switch: u32, place: u32, digit: u32) -> u32 {
        modified_tree::with_digit(self.arity, switch, place, digit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_the_published_ports() {
        let tree = Tree::new(16, 3, 2).unwrap();
        assert_eq!((tree.nodes, tree.per_level), (4096, 256));
        // 512 switches of 32 ports and 256 of 16; lines of 16 and of 256 switches.
        assert_eq!(tree.ports(), (20_480, 20_480 + 2 * 2 * (16 * 15 + 255)));
    }

    #[test]
    fn link_numbers_are_dense_and_invertible() {
        let tree = Tree::new(3, 3, 2).unwrap();
        let mut all = vec![];
        for node in 0..27 {
            all.extend([
                (tree.injection(node), LinkKind::Injection),
                (tree.ejection(node), LinkKind::Ejection),
            ]);
        }
        for (level, switch) in (0..2).flat_map(|level| (0..9).map(move |s| (level, s))) {
            for port in 0..3 {
                all.push((tree.up(level, switch, port), LinkKind::Up(level)));
                all.push((tree.down(level + 1, switch, port), LinkKind::Down(level + 1)));
            }
            for lane in 0..2 {
                let kind = LinkKind::Horizontal(level + 1, switch);
                all.push((tree.horizontal(level + 1, switch, lane), kind));
            }
        }
        all.sort_by_key(|&(link, _)| link);
        assert_eq!(all.len(), tree.n_links() as usize);
        for (number, &(link, kind)) in all.iter().enumerate() {
            assert_eq!((number as u32, kind), (link, tree.kind(link)));
        }
    }
}
