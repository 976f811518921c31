//! Routing rules that need lanes or a memory: one form for all, one step at a time.
//!
//! # How an engine uses a [`RoutePlan`]
//!
//! A packet carries a [`RouteState`] (one byte) and, where the rule takes detours, the number of
//! its detour (`via`, which can be drawn again from the packet's random stream and need not be
//! stored).
//!
//! 1. At its first switch: `state = plan.start(switch, node, via)` for a detour, or
//!    [`RouteState::START`] for a minimal route. Valiant draws `via` below
//!    [`RoutePlan::detours`] evenly; UGAL compares the two (see [`RoutePlan::hops`]).
//! 2. At every switch: if `plan.node_switch[node] == switch`, it leaves by `plan.ejection[node]`.
//!    Otherwise `plan.next(switch, node, via, state)` gives the candidate links, the virtual lane
//!    whose buffer it takes at their far end, and the state it has there. Any of the links will do:
//!    the least loaded, a random one, or one by a modulus.
//!
//! The injection and ejection links use lane 0. [`RoutePlan::check`] proves that no cycle of
//! buffers can form with the lanes given, or names one.

mod all_to_all;
mod dimension_order;
mod groups;
mod horizontal;

pub use all_to_all::AllToAll;
pub use dimension_order::{DimensionOrder, Tie};
pub use groups::Groups;
pub use horizontal::Horizontal;

use serde::Deserialize;

use crate::{Fabric, FabricError, Routes};

/// Routing state of a packet: a class (how many stages it has passed) and whether it is on a
/// detour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RouteState(pub u8);

impl RouteState {
    /// State of a packet on a minimal route at its first switch.
    pub const START: RouteState = RouteState(0);
    const DETOUR: u8 = 0x80;

    /// The same class on the way to a detour.
    pub fn towards_detour(self) -> Self {
        Self(self.0 | Self::DETOUR)
    }

    /// Whether the packet still heads for its detour.
    pub fn detouring(self) -> bool {
        self.0 & Self::DETOUR != 0
    }

    /// Where the packet heads: `via` on its detour, else `goal`.
    fn target(self, goal: u32, via: u32) -> u32 {
        if self.detouring() { via } else { goal }
    }

    /// The class, without the detour.
    pub fn class(self) -> u8 {
        self.0 & !Self::DETOUR
    }

    /// This class, on a detour or not as `like`.
    fn with_class(self, class: u8) -> Self {
        Self(self.0 & Self::DETOUR | class)
    }
}

/// One step of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteStep<'a> {
    /// Candidate links; empty if there is no route.
    pub links: &'a [u32],
    /// State at the far end of any of them.
    pub next: RouteState,
    /// Virtual lane taken on any of them.
    pub lane: u8,
    /// Number of candidates, the last ones, that do not lead closer: for use where they are
    /// less loaded.
    pub non_minimal: u8,
}

impl<'a> RouteStep<'a> {
    /// The candidates that lead closer: all that a choice without load may use.
    #[inline]
    pub fn shortest(&self) -> &'a [u32] {
        &self.links[..self.links.len() - usize::from(self.non_minimal)]
    }

    /// The candidate of least `load`: among equals the first from place `start` on, round the list,
    /// and one that does not lead nearer only where its load is less than all others'.
    #[inline]
    pub fn least<T: PartialOrd>(&self, start: usize, load: impl Fn(u32) -> T) -> u32 {
        let (shortest, non_minimal) =
            self.links.split_at(self.links.len() - usize::from(self.non_minimal));
        let (before, after) = shortest.split_at(start);
        let mut around = after.iter().chain(before).chain(non_minimal).copied();
        let mut best = around.next().expect("a candidate");
        let mut least = load(best);
        for link in around {
            let here = load(link);
            if here < least {
                (best, least) = (link, here);
            }
        }
        best
    }
}

/// Whether traffic takes non-minimal routes, where the routing rule offers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detour {
    /// Minimal routes only.
    #[default]
    Never,
    /// Through a random intermediate switch or group (Valiant, 1982).
    Valiant,
    /// Minimal or Valiant, whichever has the lower cost at the first
    /// switch (UGAL-L; Singh, 2005).
    Ugal,
}

/// A routing rule made for one fabric.
#[derive(Debug, Clone)]
pub enum RoutingRule {
    /// Up/down or forwarding tables: one lane, no state.
    Table(Routes),
    /// Dimension order on tori and meshes.
    DimensionOrder(DimensionOrder),
    /// Dimension order on HyperX and full meshes.
    AllToAll(AllToAll),
    /// Dragonfly and dragonfly+.
    Groups(Groups),
    /// k-ary n-trees with horizontal links.
    Horizontal(Horizontal),
}

/// A routing rule with the attachment of nodes.
#[derive(Debug, Clone)]
pub struct RoutePlan {
    /// Link by which each node injects.
    pub injection: Vec<u32>,
    /// Link by which each node is reached.
    pub ejection: Vec<u32>,
    /// Switch of each node.
    pub node_switch: Vec<u32>,
    /// The rule.
    pub rule: RoutingRule,
}

impl RoutePlan {
    /// Combines a rule with its fabric.
    ///
    /// # Errors
    /// A node without exactly one switch cable.
    pub fn new(fabric: &Fabric, rule: RoutingRule) -> Result<Self, FabricError> {
        let Routes { injection, ejection, .. } = Routes::attach(fabric)?;
        let node_switch = injection.iter().map(|&l| fabric.link_dst[l as usize] - fabric.n_nodes);
        Ok(Self { node_switch: node_switch.collect(), injection, ejection, rule })
    }

    /// Virtual lanes the rule needs.
    pub fn lanes(&self) -> u8 {
        match &self.rule {
            RoutingRule::Table(_) => 1,
            RoutingRule::DimensionOrder(rule) => rule.lanes(),
            RoutingRule::AllToAll(rule) => rule.lanes(),
            RoutingRule::Groups(rule) => rule.lanes(),
            RoutingRule::Horizontal(_) => 1,
        }
    }

    /// Detours to draw from, 0 where the rule takes none.
    pub fn detours(&self) -> u32 {
        match &self.rule {
            RoutingRule::Table(_) | RoutingRule::Horizontal(_) => 0,
            RoutingRule::DimensionOrder(rule) => rule.detours(),
            RoutingRule::AllToAll(rule) => rule.detours(),
            RoutingRule::Groups(rule) => rule.detours(),
        }
    }

    /// State at `switch` of a packet that goes to `node` by detour `via`; that of a minimal route
    /// where the detour is none.
    pub fn start(&self, switch: u32, node: u32, via: u32) -> RouteState {
        if via >= self.detours() {
            return RouteState::START;
        }
        let goal = self.node_switch[node as usize];
        let useful = match &self.rule {
            RoutingRule::Groups(rule) => rule.useful(switch, goal, via),
            _ => via != goal && switch != goal,
        };
        let state = if useful { RouteState::START.towards_detour() } else { RouteState::START };
        self.settle(switch, via, state)
    }

    /// Ends a detour that is reached.
    #[inline]
    pub(crate) fn settle(&self, switch: u32, via: u32, state: RouteState) -> RouteState {
        if !state.detouring() {
            return state;
        }
        match &self.rule {
            RoutingRule::Groups(rule) if rule.group(switch) == via => RouteState(state.class()),
            RoutingRule::DimensionOrder(_) | RoutingRule::AllToAll(_) if switch == via => {
                RouteState(1)
            }
            _ => state,
        }
    }

    /// The step of a packet for `node`, on detour `via` if `state` is set, at `switch`, which is
    /// not the node's own.
    #[inline]
    pub fn next(&self, switch: u32, node: u32, via: u32, state: RouteState) -> RouteStep<'_> {
        if let RoutingRule::Table(routes) = &self.rule {
            let links = routes.candidates(switch, node);
            return RouteStep { links, next: state, lane: 0, non_minimal: 0 };
        }
        self.next_by_rule(switch, node, via, state)
    }

    fn next_by_rule(&self, switch: u32, node: u32, via: u32, state: RouteState) -> RouteStep<'_> {
        let state = self.settle(switch, via, state);
        let goal = self.node_switch[node as usize];
        match &self.rule {
            RoutingRule::Table(routes) => RouteStep {
                links: routes.candidates(switch, node),
                next: state,
                lane: 0,
                non_minimal: 0,
            },
            RoutingRule::DimensionOrder(rule) => rule.next(switch, goal, via, state),
            RoutingRule::AllToAll(rule) => rule.next(switch, goal, via, state),
            RoutingRule::Groups(rule) => rule.next(switch, goal, via, state),
            RoutingRule::Horizontal(rule) => rule.next(switch, goal, state),
        }
    }

    /// The link of a fixed route on `step`, which is [`RoutePlan::next`]'s of the same arguments:
    /// D-mod-k's of trees (Zahavi, 2010; [`Routes::fixed`]); elsewhere by the same modulus, so that
    /// destinations that take one link here do not all take one link of the next choice.
    #[inline]
    pub fn fixed(
        &self,
        switch: u32,
        node: u32,
        via: u32,
        state: RouteState,
        step: &RouteStep<'_>,
    ) -> u32 {
        let divisor = match &self.rule {
            RoutingRule::Table(routes) => return routes.fixed(switch, node),
            RoutingRule::Horizontal(rule) => rule.divisor(switch),
            RoutingRule::Groups(rule) => {
                let state = self.settle(switch, via, state);
                rule.divisor(switch, self.node_switch[node as usize], via, state)
            }
            _ => 1,
        };
        let links = step.shortest();
        links[(node / divisor) as usize % links.len()]
    }

    /// Whether there is a route from `switch` to `node`, which is attached to another switch.
    pub fn leads(&self, fabric: &Fabric, switch: u32, node: u32) -> bool {
        match &self.rule {
            RoutingRule::Table(routes) => routes.leads(fabric, switch, node),
            _ => true,
        }
    }

    /// Switch-to-switch links and lanes of one route from the switch of `from` to that of `to`:
    /// `pick` chooses one of several candidates. Detours beyond [`RoutePlan::detours`] mean none.
    ///
    /// # Errors
    /// [`FabricError::Unconnected`] when the route does not arrive.
    pub fn path(
        &self,
        fabric: &Fabric,
        from: u32,
        to: u32,
        via: u32,
        mut pick: impl FnMut(usize) -> usize,
    ) -> Result<Vec<(u32, u8)>, FabricError> {
        let (mut switch, goal) = (self.node_switch[from as usize], self.node_switch[to as usize]);
        let lost = FabricError::Unconnected { from: switch, to: goal };
        let mut state = self.start(switch, to, via);
        let mut taken = Vec::new();
        while switch != goal {
            if !self.leads(fabric, switch, to) {
                return Err(lost);
            }
            let step = self.next(switch, to, via, state);
            if step.links.is_empty() || taken.len() > 4 * fabric.n_switches as usize {
                return Err(lost);
            }
            let link = step.links[pick(step.links.len()) % step.links.len()];
            taken.push((link, step.lane));
            switch = fabric.link_dst[link as usize] - fabric.n_nodes;
            state = step.next;
        }
        Ok(taken)
    }

    /// Switch-to-switch hops from `switch` to `node` with the first candidate everywhere.
    ///
    /// UGAL-L (Singh, 2005; Kim et al., ISCA 2008) compares at the first switch: the minimal route
    /// is taken if `queue(minimal) * hops(minimal) <= queue(detour) * hops(detour)`.
    pub fn hops(&self, fabric: &Fabric, mut switch: u32, node: u32, via: u32) -> u32 {
        let mut state = self.start(switch, node, via);
        let mut hops = 0;
        while switch != self.node_switch[node as usize] {
            if !self.leads(fabric, switch, node) {
                return u32::MAX;
            }
            let step = self.next(switch, node, via, state);
            let Some(&link) = step.links.first() else { return u32::MAX };
            switch = fabric.link_dst[link as usize] - fabric.n_nodes;
            state = step.next;
            hops += 1;
        }
        hops
    }

    /// The same routes as a table, for an engine without lanes.
    ///
    /// # Errors
    /// [`FabricError::Unfit`] when the rule needs more than one lane.
    pub fn to_routes(&self, fabric: &Fabric) -> Result<Routes, FabricError> {
        if let RoutingRule::Table(routes) = &self.rule {
            return Ok(routes.clone());
        }
        if let RoutingRule::Horizontal(_) = &self.rule {
            let why = "a table does not tell which candidates lead aside".to_owned();
            return Err(FabricError::Unfit { rule: self.name(), why });
        }
        if self.lanes() > 1 {
            let why = format!("it needs {} virtual lanes, a table has one", self.lanes());
            return Err(FabricError::Unfit { rule: self.name(), why });
        }
        Routes::from_steps(fabric, |switch, node| {
            self.next(switch, node, u32::MAX, RouteState::START).links
        })
    }

    /// Name of the rule.
    pub fn name(&self) -> &'static str {
        match &self.rule {
            RoutingRule::Table(_) => "table",
            RoutingRule::DimensionOrder(_) => "dimension-order",
            RoutingRule::AllToAll(_) => "all-to-all",
            RoutingRule::Groups(_) => "group",
            RoutingRule::Horizontal(_) => "horizontal",
        }
    }
}

/// Sets of links, indexed by a key.
#[derive(Debug, Clone, Default)]
struct LinkSets {
    start: Vec<u32>,
    links: Vec<u32>,
}

impl LinkSets {
    /// Sorts (key, link) pairs into one set for each key below `keys`.
    fn of(keys: usize, mut pairs: Vec<(u64, u32)>) -> Self {
        pairs.sort_unstable();
        let mut start = vec![0u32; keys + 1];
        for &(key, _) in &pairs {
            start[key as usize + 1] += 1;
        }
        for key in 0..keys {
            start[key + 1] += start[key];
        }
        Self { start, links: pairs.into_iter().map(|(_, link)| link).collect() }
    }

    #[inline]
    fn get(&self, key: usize) -> &[u32] {
        &self.links[self.start[key] as usize..self.start[key + 1] as usize]
    }
}

/// Coordinates of every switch, first dimension fastest.
fn coordinates(rule: &'static str, fabric: &Fabric, dims: &[u32]) -> Result<Vec<u16>, FabricError> {
    let product = dims.iter().fold(1u64, |a, &b| a.saturating_mul(b.into()));
    if product != u64::from(fabric.n_switches) || dims.iter().any(|&d| d > 65_535) {
        let why = format!("dimensions {dims:?} make {product} switches, not {}", fabric.n_switches);
        return Err(FabricError::Unfit { rule, why });
    }
    let mut all = Vec::with_capacity(fabric.n_switches as usize * dims.len());
    for switch in 0..fabric.n_switches {
        let mut rest = switch;
        for &size in dims {
            all.push((rest % size) as u16);
            rest /= size;
        }
    }
    Ok(all)
}

/// The dimension in which two switches differ, if it is one alone.
fn one_difference(a: &[u16], b: &[u16]) -> Option<usize> {
    let mut differ = (0..a.len()).filter(|&d| a[d] != b[d]);
    match (differ.next(), differ.next()) {
        (Some(dimension), None) => Some(dimension),
        _ => None,
    }
}
