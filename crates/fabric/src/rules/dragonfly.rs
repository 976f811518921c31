//! Minimal and Valiant routing on dragonfly and dragonfly+.
//!
//! A minimal route leads within the source group to a switch with a global link to the node's group,
//! over that link, and within that group to the node's switch. A detour (Kim et al., ISCA 2008:
//! Valiant routing by groups) visits a random intermediate group first. A packet's class is the
//! number of global links it has taken, and its lane is its class. Lanes therefore only increase along
//! a route: there are two, or three with detours.

use super::step::{LinkSets, RouteState, RouteStep};
use crate::error::{MessagePart, message};
use crate::memory::filled;
use crate::{Fabric, FabricError};

/// Routes of a fabric of groups, every pair of which is connected by global links.
#[derive(Debug, Clone)]
pub struct DragonflyRouting {
    group: Vec<u32>,
    /// Position of each switch in its group.
    member: Vec<u32>,
    groups: usize,
    /// Switches in the largest group.
    members: usize,
    detour: bool,
    lanes: bool,
    /// Links by (switch, other group).
    to_group: LinkSets,
    /// Links by (switch, member of its own group).
    to_member: LinkSets,
    /// Whether the links of (switch, other group) are global.
    is_global: Vec<bool>,
    /// By (group, other group): number of switches with global links to the other group.
    gateways: Vec<u32>,
}

const RULE: &str = "dragonfly";
const UNREACHED: u32 = u32::MAX;

impl DragonflyRouting {
    /// Computes the routes of `fabric`, whose groups are its pods.
    ///
    /// `lanes = false` puts all packets on one lane, which can deadlock.
    ///
    /// # Errors
    /// [`FabricError::WrongTopology`]: a switch without a pod, or groups or switches of a group without
    /// a path between them.
    pub fn new(fabric: &Fabric, detour: bool, lanes: bool) -> Result<Self, FabricError> {
        let n = fabric.n_switches as usize;
        let mut size: Vec<u32> = Vec::new();
        let (mut group, mut member) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for (switch, &pod) in fabric.switch_pod.iter().enumerate() {
            let Ok(pod) = u32::try_from(pod) else {
                let why =
                    message![MessagePart::Switch(switch as u32), " belongs to no group (pod)"];
                return Err(FabricError::WrongTopology { rule: RULE, why });
            };
            if pod >= fabric.n_switches {
                let why = message![
                    MessagePart::Switch(switch as u32),
                    format!(
                        " belongs to group {pod}, but a fabric of {n} switches has at most {n}"
                    )
                ];
                return Err(FabricError::WrongTopology { rule: RULE, why });
            }
            size.resize(size.len().max(pod as usize + 1), 0);
            group.push(pod);
            member.push(size[pod as usize]);
            size[pod as usize] += 1;
        }
        let members = size.iter().copied().max().unwrap_or(0) as usize;
        let mut rule = Self {
            group,
            member,
            groups: size.len(),
            members,
            detour,
            lanes,
            to_group: LinkSets::default(),
            to_member: LinkSets::default(),
            is_global: Vec::new(),
            gateways: Vec::new(),
        };
        let mut switches_of_group = vec![Vec::new(); rule.groups];
        for switch in 0..fabric.n_switches {
            switches_of_group[rule.group[switch as usize] as usize].push(switch);
        }
        (rule.to_group, rule.is_global) = rule.links_to_groups(fabric, &switches_of_group)?;
        rule.to_member = rule.links_to_members(fabric, &switches_of_group)?;
        rule.gateways =
            filled("the routes between groups", rule.groups.saturating_mul(rule.groups), 0)?;
        for (key, _) in rule.is_global.iter().enumerate().filter(|&(_, &global)| global) {
            let group = rule.group[key / rule.groups] as usize;
            rule.gateways[group * rule.groups + key % rule.groups] += 1;
        }
        Ok(rule)
    }

    /// For every switch and other group: the global links to that group, or, if the switch has none,
    /// the local links that lead closer to a switch that does.
    fn links_to_groups(
        &self,
        fabric: &Fabric,
        switches_of_group: &[Vec<u32>],
    ) -> Result<(LinkSets, Vec<bool>), FabricError> {
        let mut pairs = Vec::new();
        let entries = self.group.len().saturating_mul(self.groups);
        let mut is_global = filled("the routes between groups", entries, false)?;
        let mut distance = vec![UNREACHED; fabric.n_switches as usize];
        for switches in switches_of_group {
            for goal in 0..self.groups as u32 {
                let mut gateways = Vec::new();
                for &switch in switches {
                    distance[switch as usize] = UNREACHED;
                    for link in fabric.out_links(fabric.n_nodes + switch) {
                        let other = self.neighbour(fabric, link);
                        let global = other.is_some_and(|o| self.group[o as usize] == goal);
                        if global && self.group[switch as usize] != goal {
                            pairs.push((self.group_key(switch, goal) as u64, link));
                            distance[switch as usize] = 0;
                        }
                    }
                    if distance[switch as usize] == 0 {
                        is_global[self.group_key(switch, goal)] = true;
                        gateways.push(switch);
                    }
                }
                if switches.first().is_none_or(|&s| self.group[s as usize] == goal) {
                    continue;
                }
                let key = |switch| self.group_key(switch, goal);
                self.minimal_local_links(
                    fabric,
                    switches,
                    gateways,
                    &mut distance,
                    &mut pairs,
                    key,
                )
                .map_err(|switch| FabricError::WrongTopology {
                    rule: RULE,
                    why: message![
                        MessagePart::Switch(switch),
                        format!(" has no path to group {goal}")
                    ],
                })?;
            }
        }
        Ok((LinkSets::of(self.group.len() * self.groups, pairs), is_global))
    }

    /// For every switch and other member of its group: the local links that lead closer.
    fn links_to_members(
        &self,
        fabric: &Fabric,
        switches_of_group: &[Vec<u32>],
    ) -> Result<LinkSets, FabricError> {
        let mut pairs = Vec::new();
        let mut distance = vec![UNREACHED; fabric.n_switches as usize];
        for switches in switches_of_group {
            for &goal in switches {
                for &switch in switches {
                    distance[switch as usize] = UNREACHED;
                }
                distance[goal as usize] = 0;
                let key = |switch: u32| self.member_key(switch, goal);
                let start = vec![goal];
                self.minimal_local_links(fabric, switches, start, &mut distance, &mut pairs, key)
                    .map_err(|switch| FabricError::WrongTopology {
                    rule: RULE,
                    why: message![
                        MessagePart::Switch(switch),
                        " has no path to ",
                        MessagePart::Switch(goal),
                        " within their group"
                    ],
                })?;
            }
        }
        Ok(LinkSets::of(self.group.len() * self.members, pairs))
    }

    /// Searches breadth-first over local links from the switches `queue`, and adds to `pairs` the
    /// links that lead closer to them; fails with a switch of the group that has none.
    fn minimal_local_links(
        &self,
        fabric: &Fabric,
        switches: &[u32],
        mut queue: Vec<u32>,
        distance: &mut [u32],
        pairs: &mut Vec<(u64, u32)>,
        key: impl Fn(u32) -> usize,
    ) -> Result<(), u32> {
        let local = |switch: u32| {
            let range = fabric.out_links(fabric.n_nodes + switch);
            range.filter_map(move |link| {
                let other = self.neighbour(fabric, link)?;
                (self.group[other as usize] == self.group[switch as usize]).then_some((link, other))
            })
        };
        let mut head = 0;
        while head < queue.len() {
            let switch = queue[head];
            head += 1;
            for (_, other) in local(switch) {
                if distance[other as usize] == UNREACHED {
                    distance[other as usize] = distance[switch as usize] + 1;
                    queue.push(other);
                }
            }
        }
        for &switch in switches {
            let here = distance[switch as usize];
            if here == UNREACHED {
                return Err(switch);
            }
            let closer = local(switch).filter(|&(_, o)| distance[o as usize] + 1 == here);
            pairs.extend(closer.map(|(link, _)| (key(switch) as u64, link)));
        }
        Ok(())
    }

    fn neighbour(&self, fabric: &Fabric, link: u32) -> Option<u32> {
        fabric.link_dst[link as usize].checked_sub(fabric.n_nodes)
    }

    fn group_key(&self, switch: u32, goal: u32) -> usize {
        switch as usize * self.groups + goal as usize
    }

    fn member_key(&self, switch: u32, goal: u32) -> usize {
        switch as usize * self.members + self.member[goal as usize] as usize
    }

    /// Group of a switch.
    pub(super) fn group(&self, switch: u32) -> u32 {
        self.group[switch as usize]
    }

    /// Whether `via` is a third group, besides those of `switch` and `goal`, which differ.
    pub(super) fn is_third_group(&self, switch: u32, goal: u32, via: u32) -> bool {
        let (source, destination) = (self.group(switch), self.group(goal));
        source != destination && via != source && via != destination
    }

    /// The number by which a deterministic route divides the node before the modulus. Where the next
    /// link is global, the switches with global links to that group have already split the nodes.
    #[inline]
    pub(super) fn divisor(&self, switch: u32, goal: u32, via: u32, state: RouteState) -> u32 {
        let group = if state.is_on_detour() { via } else { self.group[goal as usize] };
        let global = self.is_global[self.group_key(switch, group)];
        let here = self.group[switch as usize] as usize;
        if global { self.gateways[here * self.groups + group as usize] } else { 1 }
    }

    /// Number of lanes: two, or three with detours.
    pub fn lanes(&self) -> u8 {
        if self.lanes { 2 + u8::from(self.detour) } else { 1 }
    }

    /// Number of detours: every group can be the intermediate one.
    pub fn detours(&self) -> u32 {
        if self.detour { self.groups as u32 } else { 0 }
    }

    /// The step from `switch` towards `goal`, or towards group `via` on the first leg of a detour.
    #[inline]
    pub(super) fn next(
        &self,
        switch: u32,
        goal: u32,
        via: u32,
        state: RouteState,
    ) -> RouteStep<'_> {
        let here = self.group[switch as usize];
        let group = if state.is_on_detour() { via } else { self.group[goal as usize] };
        let lane = if self.lanes { state.class() } else { 0 };
        if group == here {
            return RouteStep {
                links: self.to_member.get(self.member_key(switch, goal)),
                next: state,
                lane,
                non_minimal: 0,
            };
        }
        let key = self.group_key(switch, group);
        let links = self.to_group.get(key);
        // Either all candidates are global or none is: a switch with global links to the group uses
        // only those.
        let next = if self.is_global[key] { state.with_class(state.class() + 1) } else { state };
        RouteStep { links, next, lane, non_minimal: 0 }
    }
}
