//! Routing on the modified k-ary n-tree (Birk and Zdornov, 2009): up/down, with peer links on the way
//! down.
//!
//! A packet goes up by any uplink to a switch above its destination, then down by the only link that
//! leads there. Instead of going down it may take a peer link (a horizontal link, as the authors say)
//! to the next switch in the line, from which another link leads down to the same subtree. All
//! packets move along a line in the same direction.
//!
//! # Why there is no deadlock
//! Rank the links: first uplinks by level; then, level by level from the top, peer links by position in
//! the line and after them the down links of that level. The rank increases along every path, so one
//! lane suffices for a channel dependency graph without cycles (Dally and Seitz, 1987).
//! [`crate::RoutePlan::check_deadlock_free`] verifies this on the actual links.

use super::step::{LinkSets, RouteState, RouteStep};
use crate::error::{MessagePart, message};
use crate::modified_tree::line_length;
use crate::{Fabric, FabricError};

/// Routes of a modified k-ary n-tree.
#[derive(Debug, Clone)]
pub struct PeerLinkRouting {
    arity: u32,
    per_level: u32,
    width: u8,
    /// Uplinks of each switch.
    up: LinkSets,
    /// By (switch, digit): the down link to that digit, then the peer links.
    down: LinkSets,
}

const RULE: &str = "peer-link (horizontal)";

impl PeerLinkRouting {
    /// Computes the routes of `fabric`, numbered as [`crate::modified_tree::build`] does.
    ///
    /// # Errors
    /// [`FabricError::WrongTopology`]: a link that such a tree does not have, or a missing link.
    pub fn new(fabric: &Fabric, arity: u32, levels: u32, width: u32) -> Result<Self, FabricError> {
        let wrong = |why: Vec<MessagePart>| FabricError::WrongTopology { rule: RULE, why };
        let nodes = arity.checked_pow(levels).filter(|_| arity > 1 && levels > 0);
        let per_level = nodes.unwrap_or(0) / arity.max(1);
        let complete = nodes == Some(fabric.n_nodes) && fabric.n_switches == levels * per_level;
        let Some(width) = u8::try_from(width).ok().filter(|_| complete) else {
            return Err(wrong(message![format!(
                "{} nodes and {} switches do not form a {arity}-ary {levels}-tree",
                fabric.n_nodes, fabric.n_switches
            )]));
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
            let ((a, x), (b, y)) = (rule.level_and_number(src), rule.level_and_number(dst));
            let digit = |of: u32, level: u32| of / line_length(arity, level) % arity;
            let without = |of: u32, level: u32| of - digit(of, level) * line_length(arity, level);
            let line = |of: u32, level: u32| of / line_length(arity, level);
            if b == a + 1 && without(x, a) == without(y, a) {
                up.push((u64::from(src), link));
            } else if a == b + 1 && without(x, b) == without(y, b) {
                down.push((rule.key(src, digit(y, b)), link));
            } else if a == b && y == x + 1 && line(x, a) == line(y, a) {
                down.extend((0..arity).map(|digit| (rule.key(src, digit), link)));
            } else if !(a == b && x == y + 1) {
                return Err(wrong(message![
                    MessagePart::Link(link),
                    format!(" is not a link of a {arity}-ary {levels}-tree")
                ]));
            }
        }
        rule.up = LinkSets::of(fabric.n_switches as usize, up);
        rule.down = LinkSets::of((fabric.n_switches * arity) as usize, down);
        rule.require_links(levels)?;
        Ok(rule)
    }

    fn require_links(&self, levels: u32) -> Result<(), FabricError> {
        for switch in 0..levels * self.per_level {
            let (level, number) = self.level_and_number(switch);
            let expected = if level + 1 < levels { self.arity as usize } else { 0 };
            let count = self.up.get(switch as usize).len();
            if count != expected {
                let why = message![
                    MessagePart::Switch(switch),
                    format!(" has {count} uplinks, expected {expected}")
                ];
                return Err(FabricError::WrongTopology { rule: RULE, why });
            }
            let expected =
                if level > 0 { 1 + usize::from(self.peer_links(level, number)) } else { 0 };
            for digit in 0..self.arity {
                let count = self.down.get(self.key(switch, digit) as usize).len();
                if count != expected {
                    let why = message![
                        MessagePart::Switch(switch),
                        format!(
                            " has {count} links down to digit {digit} or to the next peer, expected \
                             {expected}"
                        )
                    ];
                    return Err(FabricError::WrongTopology { rule: RULE, why });
                }
            }
        }
        Ok(())
    }

    /// Level of a switch, and its number within the level.
    #[inline]
    fn level_and_number(&self, switch: u32) -> (u32, u32) {
        (switch / self.per_level, switch % self.per_level)
    }

    fn key(&self, switch: u32, digit: u32) -> u64 {
        u64::from(switch * self.arity + digit)
    }

    /// Number of peer links from a switch to the next in its line; the last switch of a line and the
    /// leaves have none.
    #[inline]
    fn peer_links(&self, level: u32, number: u32) -> u8 {
        let last = (number + 1).is_multiple_of(line_length(self.arity, level));
        if last { 0 } else { self.width }
    }

    /// The divisor of D-mod-k: up port j of level h leads to the switch whose digit h is j.
    #[inline]
    pub(super) fn divisor(&self, switch: u32) -> u32 {
        line_length(self.arity, switch / self.per_level)
    }

    /// The step from `switch` towards the leaf `goal`.
    #[inline]
    pub(super) fn next(&self, switch: u32, goal: u32, state: RouteState) -> RouteStep<'_> {
        let (level, number) = self.level_and_number(switch);
        let unit = line_length(self.arity, level);
        if level == 0 || number / unit != goal / unit {
            let links = self.up.get(switch as usize);
            return RouteStep { links, next: state, lane: 0, non_minimal: 0 };
        }
        let digit = goal / (unit / self.arity) % self.arity;
        let links = self.down.get(self.key(switch, digit) as usize);
        RouteStep { links, next: state, lane: 0, non_minimal: self.peer_links(level, number) }
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
        let rule = PeerLinkRouting::new(&fabric, arity, levels, width).unwrap();
        let plan = RoutePlan::new(&fabric, RoutingRule::PeerLinks(rule)).unwrap();
        (fabric, plan)
    }

    #[test]
    fn routes_are_deadlock_free_and_reach_every_node() {
        for (arity, levels, width) in [(2, 2, 1), (3, 3, 2), (4, 3, 1), (2, 5, 3), (4, 2, 0)] {
            let (fabric, plan) = tree(arity, levels, width);
            plan.check_deadlock_free(&fabric).unwrap();
            for pick in [0, 1, usize::MAX] {
                for (from, to) in [(0, fabric.n_nodes - 1), (fabric.n_nodes - 1, 0), (1, arity)] {
                    // With the last candidate everywhere, packets follow lines to their ends, and
                    // still arrive.
                    let path = plan.path(&fabric, from, to, u32::MAX, |n| pick.min(n - 1)).unwrap();
                    assert!(path.len() <= 2 * levels as usize + fabric.n_switches as usize);
                }
            }
        }
    }

    #[test]
    fn a_ring_instead_of_a_line_would_deadlock() {
        // Add a link from the last switch of a line back to the first: the check names the ring.
        let (fabric, _) = tree(2, 2, 1);
        let tops = [fabric.n_nodes + 2, fabric.n_nodes + 3];
        let reverse = (0..fabric.n_links() as u32)
            .find(|&l| {
                [fabric.link_src[l as usize], fabric.link_dst[l as usize]] == [tops[1], tops[0]]
            })
            .unwrap();
        let mut rule = PeerLinkRouting::new(&fabric, 2, 2, 1).unwrap();
        let mut pairs = Vec::new();
        for key in 0..(fabric.n_switches * 2) as usize {
            pairs.extend(rule.down.get(key).iter().map(|&link| (key as u64, link)));
        }
        pairs.extend((0..2).map(|digit| (rule.key(3, digit), reverse)));
        rule.down = LinkSets::of((fabric.n_switches * 2) as usize, pairs);
        let plan = RoutePlan::new(&fabric, RoutingRule::PeerLinks(rule)).unwrap();
        let error = plan.check_deadlock_free(&fabric).unwrap_err();
        let FabricError::Deadlock { cycle } = error else { panic!("{error}") };
        assert!(cycle.iter().any(|&(link, _)| link == reverse), "{cycle:?}");
    }

    #[test]
    fn packets_go_down_at_equal_load() {
        let (fabric, plan) = tree(4, 3, 2);
        let path = plan.path(&fabric, 0, 63, u32::MAX, |_| 0).unwrap();
        let top = fabric.link_dst[path[1].0 as usize] - fabric.n_nodes;
        let step = plan.next(top, 63, u32::MAX, RouteState::START);
        assert_eq!((step.links.len(), step.non_minimal, step.minimal().len()), (3, 2, 1));
        assert_eq!(step.least_loaded(0, |_| 1), step.minimal()[0]);
        assert_eq!(step.least_loaded(0, |link| u32::from(link != step.links[2])), step.links[2]);
    }

    #[test]
    fn d_mod_k_spreads_routes_evenly_over_uplinks() {
        let (fabric, plan) = tree(4, 3, 0);
        let mut load = vec![0; fabric.n_links()];
        for to in 16..64 {
            let mut switch = plan.node_switch[0];
            while switch != plan.node_switch[to as usize] {
                let step = plan.next(switch, to, u32::MAX, RouteState::START);
                let link = plan.deterministic_link(switch, to, u32::MAX, RouteState::START, &step)
                    as usize;
                load[link] += 1;
                switch = fabric.link_dst[link] - fabric.n_nodes;
            }
        }
        let up: Vec<u32> =
            fabric.out_links(64).map(|l| load[l as usize]).filter(|&l| l > 0).collect();
        assert_eq!(up, [12; 4]);
    }

    #[test]
    fn a_fabric_of_another_shape_is_refused() {
        let (fabric, _) = tree(4, 2, 1);
        let error = PeerLinkRouting::new(&fabric, 4, 2, 2).unwrap_err().to_string();
        assert!(
            error.contains("2 links down to digit 0 or to the next peer, expected 3"),
            "{error}"
        );
        let error = PeerLinkRouting::new(&fabric, 2, 4, 1).unwrap_err().to_string();
        assert!(error.contains("do not form a 2-ary 4-tree"), "{error}");
    }
}
