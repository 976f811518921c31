//! Routes of the modified k-ary n-tree (Birk and Zdornov 2009): up, down, and sideways on the way down.
//!
//! A packet climbs by any up link to a switch above its destination, then descends by the one link
//! that leads there. Wherever it could descend it may instead take a horizontal link to the next
//! switch of the line, which descends to the same place by another link. It always moves along the
//! line in the same direction.
//!
//! # Why no deadlock
//! Rank the links: up links by level; then, level by level from the top, horizontal links by
//! position in the line, then the level's down links. Every path ascends in rank, so buffers that
//! wait for one another cannot form a cycle (Dally and Seitz, 1987), on one lane.
//! [`crate::RoutePlan::check`] proves it from the links.

use super::{LinkSets, RouteState, RouteStep};
use crate::modified_tree::line;
use crate::{Fabric, FabricError};

/// Routes of a modified k-ary n-tree.
#[derive(Debug, Clone)]
pub struct Horizontal {
    arity: u32,
    per_level: u32,
    width: u8,
    /// Up links of each switch.
    up: LinkSets,
    /// For (switch, digit): the down link there, then the horizontal links onwards.
    down: LinkSets,
}

const RULE: &str = "horizontal";

impl Horizontal {
    /// Finds the routes of `fabric`, built as [`crate::modified_tree::build`] numbers it.
    ///
    /// # Errors
    /// [`FabricError::Unfit`]: a link that such a tree does not have, or one that is missing.
    pub fn new(fabric: &Fabric, arity: u32, levels: u32, width: u32) -> Result<Self, FabricError> {
        let unfit = |why: String| FabricError::Unfit { rule: RULE, why };
        let nodes = arity.checked_pow(levels).filter(|_| arity > 1 && levels > 0);
        let per_level = nodes.unwrap_or(0) / arity.max(1);
        let whole = nodes == Some(fabric.n_nodes) && fabric.n_switches == levels * per_level;
        let Some(width) = u8::try_from(width).ok().filter(|_| whole) else {
            return Err(unfit(format!(
                "{} nodes and {} switches are no {arity}-ary {levels}-tree",
                fabric.n_nodes, fabric.n_switches
            )));
        };
        let mut rule =
            Self { arity, per_level, width, up: LinkSets::default(), down: LinkSets::default() };
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for link in 0..fabric.n_links() as u32 {
            let ends = [fabric.link_src[link as usize], fabric.link_dst[link as usize]];
            if ends.iter().any(|&end| fabric.is_node(end)) {
                continue;
            }
            let [src, dst] = ends.map(|end| end - fabric.n_nodes);
            let ((a, x), (b, y)) = (rule.place(src), rule.place(dst));
            let digit = |of: u32, level: u32| of / line(arity, level) % arity;
            let same_but = |level: u32| {
                x - digit(x, level) * line(arity, level) == y - digit(y, level) * line(arity, level)
            };
            if b == a + 1 && same_but(a) {
                up.push((u64::from(src), link));
            } else if a == b + 1 && same_but(b) {
                down.push((rule.key(src, digit(y, b)), link));
            } else if a == b && y == x + 1 && x / line(arity, a) == y / line(arity, a) {
                down.extend((0..arity).map(|digit| (rule.key(src, digit), link)));
            } else if !(a == b && x == y + 1) {
                let why = format!("link {link} joins switches {src} and {dst}");
                return Err(unfit(why));
            }
        }
        rule.up = LinkSets::of(fabric.n_switches as usize, up);
        rule.down = LinkSets::of((fabric.n_switches * arity) as usize, down);
        rule.require_links(levels)?;
        Ok(rule)
    }

    fn require_links(&self, levels: u32) -> Result<(), FabricError> {
        for switch in 0..levels * self.per_level {
            let (level, number) = self.place(switch);
            let ups = if level + 1 < levels { self.arity as usize } else { 0 };
            let found = self.up.get(switch as usize).len();
            if found != ups {
                let why = format!("switch {switch} has {found} links up, not {ups}");
                return Err(FabricError::Unfit { rule: RULE, why });
            }
            let downs =
                if level > 0 { 1 + usize::from(self.non_minimal(level, number)) } else { 0 };
            for digit in 0..self.arity {
                let found = self.down.get(self.key(switch, digit) as usize).len();
                if found != downs {
                    let why = format!(
                        "switch {switch} has {found} links down to digit {digit} or onwards, not \
                         {downs}"
                    );
                    return Err(FabricError::Unfit { rule: RULE, why });
                }
            }
        }
        Ok(())
    }

    /// Level of a switch and its number there.
    #[inline]
    fn place(&self, switch: u32) -> (u32, u32) {
        (switch / self.per_level, switch % self.per_level)
    }

    fn key(&self, switch: u32, digit: u32) -> u64 {
        u64::from(switch * self.arity + digit)
    }

    /// Horizontal links onwards from a switch; none from the last of its line, or of a leaf.
    #[inline]
    fn non_minimal(&self, level: u32, number: u32) -> u8 {
        let last = (number + 1).is_multiple_of(line(self.arity, level));
        if last { 0 } else { self.width }
    }

    /// D-mod-k's divisor: up port j of level h goes to the switch whose digit h is j.
    #[inline]
    pub(super) fn divisor(&self, switch: u32) -> u32 {
        line(self.arity, switch / self.per_level)
    }

    /// The step from `switch` towards switch `goal`, a leaf.
    #[inline]
    pub(super) fn next(&self, switch: u32, goal: u32, state: RouteState) -> RouteStep<'_> {
        let (level, number) = self.place(switch);
        let unit = line(self.arity, level);
        if level == 0 || number / unit != goal / unit {
            let links = self.up.get(switch as usize);
            return RouteStep { links, next: state, lane: 0, non_minimal: 0 };
        }
        let digit = goal / (unit / self.arity) % self.arity;
        let links = self.down.get(self.key(switch, digit) as usize);
        RouteStep { links, next: state, lane: 0, non_minimal: self.non_minimal(level, number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modified_tree::{Shape, build};
    use crate::{RoutePlan, RoutingRule};

    fn tree(arity: u32, levels: u32, width: u32) -> (Fabric, RoutePlan) {
        let shape = Shape { arity, levels, width, gbps: [100.0; 3], delay_ps: [0; 3] };
        let fabric = build(&shape).unwrap();
        let rule = Horizontal::new(&fabric, arity, levels, width).unwrap();
        let plan = RoutePlan::new(&fabric, RoutingRule::Horizontal(rule)).unwrap();
        (fabric, plan)
    }

    #[test]
    fn no_cycle_of_buffers_and_every_node_is_reached() {
        for (arity, levels, width) in [(2, 2, 1), (3, 3, 2), (4, 3, 1), (2, 5, 3), (4, 2, 0)] {
            let (fabric, plan) = tree(arity, levels, width);
            plan.check(&fabric).unwrap();
            for pick in [0, 1, usize::MAX] {
                for (from, to) in [(0, fabric.n_nodes - 1), (fabric.n_nodes - 1, 0), (1, arity)] {
                    // The last candidate everywhere walks lines to their ends and still arrives.
                    let path = plan.path(&fabric, from, to, u32::MAX, |n| pick.min(n - 1)).unwrap();
                    assert!(path.len() <= 2 * levels as usize + fabric.n_switches as usize);
                }
            }
        }
    }

    #[test]
    fn a_ring_instead_of_a_line_would_deadlock() {
        // The same rule with one link from the last switch of a line back to the first, as if it
        // were one onwards: the check names the ring.
        let (fabric, _) = tree(2, 2, 1);
        let tops = [fabric.n_nodes + 2, fabric.n_nodes + 3];
        let reverse = (0..fabric.n_links() as u32)
            .find(|&l| {
                [fabric.link_src[l as usize], fabric.link_dst[l as usize]] == [tops[1], tops[0]]
            })
            .unwrap();
        let mut rule = Horizontal::new(&fabric, 2, 2, 1).unwrap();
        let mut pairs = Vec::new();
        for key in 0..(fabric.n_switches * 2) as usize {
            pairs.extend(rule.down.get(key).iter().map(|&link| (key as u64, link)));
        }
        pairs.extend((0..2).map(|digit| (rule.key(3, digit), reverse)));
        rule.down = LinkSets::of((fabric.n_switches * 2) as usize, pairs);
        let plan = RoutePlan::new(&fabric, RoutingRule::Horizontal(rule)).unwrap();
        let error = plan.check(&fabric).unwrap_err();
        let FabricError::Deadlock { cycle } = error else { panic!("{error}") };
        assert!(cycle.iter().any(|&(link, _)| link == reverse), "{cycle:?}");
    }

    #[test]
    fn who_finds_equal_load_goes_straight() {
        let (fabric, plan) = tree(4, 3, 2);
        let path = plan.path(&fabric, 0, 63, u32::MAX, |_| 0).unwrap();
        let top = fabric.link_dst[path[1].0 as usize] - fabric.n_nodes;
        let step = plan.next(top, 63, u32::MAX, RouteState::START);
        assert_eq!((step.links.len(), step.non_minimal, step.shortest().len()), (3, 2, 1));
        assert_eq!(step.least(0, |_| 1), step.shortest()[0]);
        assert_eq!(step.least(0, |link| u32::from(link != step.links[2])), step.links[2]);
    }

    #[test]
    fn d_mod_k_spreads_up_links_evenly() {
        let (fabric, plan) = tree(4, 3, 0);
        let mut load = vec![0; fabric.n_links()];
        for to in 16..64 {
            let mut switch = plan.node_switch[0];
            while switch != plan.node_switch[to as usize] {
                let step = plan.next(switch, to, u32::MAX, RouteState::START);
                let link = plan.fixed(switch, to, u32::MAX, RouteState::START, &step) as usize;
                load[link] += 1;
                switch = fabric.link_dst[link] - fabric.n_nodes;
            }
        }
        let up: Vec<u32> =
            fabric.out_links(64).map(|l| load[l as usize]).filter(|&l| l > 0).collect();
        assert_eq!(up, [12; 4]);
    }

    #[test]
    fn another_fabric_is_refused() {
        let (fabric, _) = tree(4, 2, 1);
        let error = Horizontal::new(&fabric, 4, 2, 2).unwrap_err().to_string();
        assert!(error.contains("2 links down to digit 0 or onwards, not 3"), "{error}");
        let error = Horizontal::new(&fabric, 2, 4, 1).unwrap_err().to_string();
        assert!(error.contains("no 2-ary 4-tree"), "{error}");
    }
}
