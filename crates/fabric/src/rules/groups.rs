//! Minimal and Valiant routes of dragonfly and dragonfly+.
//!
//! Minimal: inside the own group to a switch with a global link to the node's group, across, and
//! inside that group to the node's switch. A detour (Kim et al., ISCA 2008: Valiant by groups) goes
//! to a group drawn at random first. The class of a packet is the number of global links it has
//! taken, and its lane is its class, so lanes only rise: two lanes, three with detours.

use super::{LinkSets, RouteState, RouteStep};
use crate::memory::filled;
use crate::{Fabric, FabricError};

/// Routes of a fabric of groups, every pair of which is joined.
#[derive(Debug, Clone)]
pub struct Groups {
    group: Vec<u32>,
    /// Position of each switch in its group.
    member: Vec<u32>,
    groups: usize,
    /// Largest group.
    members: usize,
    detour: bool,
    lanes: bool,
    /// Links of (switch, group) and of (switch, member of its own group).
    outward: LinkSets,
    inward: LinkSets,
    /// Whether the links of (switch, group) are global.
    across: Vec<bool>,
    /// Switches of (group, other group) with global links there.
    gates: Vec<u32>,
}

const RULE: &str = "group";
const FAR: u32 = u32::MAX;

impl Groups {
    /// Finds the routes of `fabric`, whose groups are its pods.
    ///
    /// `lanes = false` puts everything on one lane, which can deadlock.
    ///
    /// # Errors
    /// [`FabricError::Unfit`]: a switch without a pod, or groups or switches that are not joined.
    pub fn new(fabric: &Fabric, detour: bool, lanes: bool) -> Result<Self, FabricError> {
        let n = fabric.n_switches as usize;
        let mut size: Vec<u32> = Vec::new();
        let (mut group, mut member) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for (switch, &pod) in fabric.switch_pod.iter().enumerate() {
            let Ok(pod) = u32::try_from(pod) else {
                let why = format!("switch {switch} belongs to no group (pod)");
                return Err(FabricError::Unfit { rule: RULE, why });
            };
            if pod >= fabric.n_switches {
                let why = format!("switch {switch} is of group {pod}, of {n} switches in all");
                return Err(FabricError::Unfit { rule: RULE, why });
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
            outward: LinkSets::default(),
            inward: LinkSets::default(),
            across: Vec::new(),
            gates: Vec::new(),
        };
        let mut of_group = vec![Vec::new(); rule.groups];
        for switch in 0..fabric.n_switches {
            of_group[rule.group[switch as usize] as usize].push(switch);
        }
        (rule.outward, rule.across) = rule.towards_groups(fabric, &of_group)?;
        rule.inward = rule.towards_members(fabric, &of_group)?;
        rule.gates = filled("routes between groups", rule.groups.saturating_mul(rule.groups), 0)?;
        for (key, _) in rule.across.iter().enumerate().filter(|&(_, &across)| across) {
            let own = rule.group[key / rule.groups] as usize;
            rule.gates[own * rule.groups + key % rule.groups] += 1;
        }
        Ok(rule)
    }

    /// For every switch and other group: its global links there, else local links that lead nearer.
    fn towards_groups(
        &self,
        fabric: &Fabric,
        of_group: &[Vec<u32>],
    ) -> Result<(LinkSets, Vec<bool>), FabricError> {
        let mut pairs = Vec::new();
        let entries = self.group.len().saturating_mul(self.groups);
        let mut across = filled("routes between groups", entries, false)?;
        let mut distance = vec![FAR; fabric.n_switches as usize];
        for own in of_group {
            for goal in 0..self.groups as u32 {
                let mut nearest = Vec::new();
                for &switch in own {
                    distance[switch as usize] = FAR;
                    for link in fabric.out_links(fabric.n_nodes + switch) {
                        let other = self.neighbour(fabric, link);
                        let global = other.is_some_and(|o| self.group[o as usize] == goal);
                        if global && self.group[switch as usize] != goal {
                            pairs.push((self.outward_key(switch, goal) as u64, link));
                            distance[switch as usize] = 0;
                        }
                    }
                    if distance[switch as usize] == 0 {
                        across[self.outward_key(switch, goal)] = true;
                        nearest.push(switch);
                    }
                }
                if own.first().is_none_or(|&s| self.group[s as usize] == goal) {
                    continue;
                }
                let key = |switch| self.outward_key(switch, goal);
                self.spread(fabric, own, nearest, &mut distance, &mut pairs, key).map_err(
                    |switch| FabricError::Unfit {
                        rule: RULE,
                        why: format!("switch {switch} has no path to group {goal}"),
                    },
                )?;
            }
        }
        Ok((LinkSets::of(self.group.len() * self.groups, pairs), across))
    }

    /// For every switch and other member of its group: the local links that lead nearer.
    fn towards_members(
        &self,
        fabric: &Fabric,
        of_group: &[Vec<u32>],
    ) -> Result<LinkSets, FabricError> {
        let mut pairs = Vec::new();
        let mut distance = vec![FAR; fabric.n_switches as usize];
        for own in of_group {
            for &goal in own {
                for &switch in own {
                    distance[switch as usize] = FAR;
                }
                distance[goal as usize] = 0;
                let key = |switch: u32| self.inward_key(switch, goal);
                self.spread(fabric, own, vec![goal], &mut distance, &mut pairs, key).map_err(
                    |switch| FabricError::Unfit {
                        rule: RULE,
                        why: format!("switch {switch} has no path to switch {goal} in its group"),
                    },
                )?;
            }
        }
        Ok(LinkSets::of(self.group.len() * self.members, pairs))
    }

    /// Breadth first over local links from `nearest`; keeps the links that lead nearer, and fails
    /// with a switch that none leads from.
    fn spread(
        &self,
        fabric: &Fabric,
        own: &[u32],
        mut nearest: Vec<u32>,
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
        while head < nearest.len() {
            let switch = nearest[head];
            head += 1;
            for (_, other) in local(switch) {
                if distance[other as usize] == FAR {
                    distance[other as usize] = distance[switch as usize] + 1;
                    nearest.push(other);
                }
            }
        }
        for &switch in own {
            let here = distance[switch as usize];
            if here == FAR {
                return Err(switch);
            }
            let nearer = local(switch).filter(|&(_, o)| distance[o as usize] + 1 == here);
            pairs.extend(nearer.map(|(link, _)| (key(switch) as u64, link)));
        }
        Ok(())
    }

    fn neighbour(&self, fabric: &Fabric, link: u32) -> Option<u32> {
        fabric.link_dst[link as usize].checked_sub(fabric.n_nodes)
    }

    fn outward_key(&self, switch: u32, goal: u32) -> usize {
        switch as usize * self.groups + goal as usize
    }

    fn inward_key(&self, switch: u32, goal: u32) -> usize {
        switch as usize * self.members + self.member[goal as usize] as usize
    }

    /// Group of a switch.
    pub(super) fn group(&self, switch: u32) -> u32 {
        self.group[switch as usize]
    }

    /// Whether the detour is a third group.
    pub(super) fn useful(&self, switch: u32, goal: u32, via: u32) -> bool {
        let (own, other) = (self.group(switch), self.group(goal));
        own != other && via != own && via != other
    }

    /// What a fixed route divides the node by before the modulus: at a global link, that of a switch
    /// among all that have some to the group has been chosen already.
    #[inline]
    pub(super) fn divisor(&self, switch: u32, goal: u32, via: u32, state: RouteState) -> u32 {
        let group = if state.detouring() { via } else { self.group[goal as usize] };
        let across = self.across[self.outward_key(switch, group)];
        let own = self.group[switch as usize] as usize;
        if across { self.gates[own * self.groups + group as usize] } else { 1 }
    }

    /// Lanes: two, three with detours.
    pub fn lanes(&self) -> u8 {
        if self.lanes { 2 + u8::from(self.detour) } else { 1 }
    }

    /// Detours: any group.
    pub fn detours(&self) -> u32 {
        if self.detour { self.groups as u32 } else { 0 }
    }

    /// The step from `switch` towards `goal`, or group `via` on a detour.
    #[inline]
    pub(super) fn next(
        &self,
        switch: u32,
        goal: u32,
        via: u32,
        state: RouteState,
    ) -> RouteStep<'_> {
        let own = self.group[switch as usize];
        let group = if state.detouring() { via } else { self.group[goal as usize] };
        let lane = if self.lanes { state.class() } else { 0 };
        if group == own {
            return RouteStep {
                links: self.inward.get(self.inward_key(switch, goal)),
                next: state,
                lane,
                non_minimal: 0,
            };
        }
        let key = self.outward_key(switch, group);
        let links = self.outward.get(key);
        // All candidates are global or none is: a global link is always nearer than a local one.
        let next = if self.across[key] { state.with_class(state.class() + 1) } else { state };
        RouteStep { links, next, lane, non_minimal: 0 }
    }
}
