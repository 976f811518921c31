//! Routing rules, with or without virtual lanes and packet state, behind one interface: a route is
//! computed step by step.
//!
//! # How to use a [`RoutePlan`]
//!
//! A packet carries a [`RouteState`] (one byte) and, if the rule makes detours, its intermediate
//! switch or group, `via`. `via` need not be stored, because it can be drawn again from the packet's
//! random stream.
//!
//! 1. At the first switch: `state = plan.start(switch, node, via)` for a detour, or
//!    [`RouteState::START`] for a minimal route. Valiant draws `via` uniformly below
//!    [`RoutePlan::detours`]; UGAL compares both routes (see [`RoutePlan::hops`]).
//! 2. At every switch: if `plan.node_switch[node] == switch`, the packet leaves by
//!    `plan.ejection[node]`. Otherwise `plan.next(switch, node, via, state)` gives the candidate
//!    links, the virtual lane whose buffer the packet takes at the receiving end, and its state
//!    there. Any candidate is valid: the least loaded, a random one, or one chosen by D-mod-k.
//!
//! Injection and ejection links use lane 0. [`RoutePlan::check_deadlock_free`] proves that these lanes
//! suffice, or returns a cyclic channel dependency.

mod dimension_order;
mod dragonfly;
mod hyperx;
mod peer_links;
mod step;

pub use dimension_order::{DimensionOrder, Tie};
pub use dragonfly::DragonflyRouting;
pub use hyperx::HyperXRouting;
pub use peer_links::PeerLinkRouting;
pub use step::{RouteState, RouteStep};

use serde::Deserialize;

use crate::error::message;
use crate::{Fabric, FabricError, Routes};

/// Whether packets take non-minimal routes, if the routing rule has any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detour {
    /// Minimal routes only.
    #[default]
    Never,
    /// Through a random intermediate switch or group (Valiant, 1982).
    Valiant,
    /// Minimal or Valiant, whichever has the lower cost at the first switch (UGAL-L; Singh, 2005).
    Ugal,
}

/// A routing rule prepared for one fabric.
#[derive(Debug, Clone)]
pub enum RoutingRule {
    /// Up/down routes or forwarding tables; with more than one lane, the state is the lane plus 1.
    Table(Routes),
    /// Dimension order on tori and meshes.
    DimensionOrder(DimensionOrder),
    /// Dimension order on HyperX and full meshes.
    HyperX(HyperXRouting),
    /// Dragonfly and dragonfly+.
    Dragonfly(DragonflyRouting),
    /// k-ary n-trees with peer links.
    PeerLinks(PeerLinkRouting),
}

/// A routing rule and the switches that nodes are attached to.
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
    /// [`FabricError::NodeCables`].
    pub fn new(fabric: &Fabric, rule: RoutingRule) -> Result<Self, FabricError> {
        let Routes { injection, ejection, .. } = Routes::attach_nodes(fabric)?;
        let node_switch = injection.iter().map(|&l| fabric.link_dst[l as usize] - fabric.n_nodes);
        Ok(Self { node_switch: node_switch.collect(), injection, ejection, rule })
    }

    /// Number of virtual lanes that the rule needs.
    pub fn lanes(&self) -> u8 {
        match &self.rule {
            RoutingRule::Table(routes) => routes.lanes,
            RoutingRule::DimensionOrder(rule) => rule.lanes(),
            RoutingRule::HyperX(rule) => rule.lanes(),
            RoutingRule::Dragonfly(rule) => rule.lanes(),
            RoutingRule::PeerLinks(_) => 1,
        }
    }

    /// Number of intermediate switches or groups to draw from, 0 if the rule makes no detours.
    pub fn detours(&self) -> u32 {
        match &self.rule {
            RoutingRule::Table(_) | RoutingRule::PeerLinks(_) => 0,
            RoutingRule::DimensionOrder(rule) => rule.detours(),
            RoutingRule::HyperX(rule) => rule.detours(),
            RoutingRule::Dragonfly(rule) => rule.detours(),
        }
    }

    /// State at `switch` of a packet that takes the detour through `via` to `node`. If `via` is
    /// beyond [`RoutePlan::detours`] or is not a detour, the route is minimal.
    pub fn start(&self, switch: u32, node: u32, via: u32) -> RouteState {
        if via >= self.detours() {
            return RouteState::START;
        }
        let goal = self.node_switch[node as usize];
        let is_detour = match &self.rule {
            RoutingRule::Dragonfly(rule) => rule.is_third_group(switch, goal, via),
            _ => via != goal && switch != goal,
        };
        let state = if is_detour { RouteState::START.on_detour() } else { RouteState::START };
        self.end_reached_detour(switch, via, state)
    }

    /// The state after a packet has arrived at `switch`: at `via` the first leg of its detour ends.
    #[inline]
    pub(crate) fn end_reached_detour(
        &self,
        switch: u32,
        via: u32,
        state: RouteState,
    ) -> RouteState {
        if !state.is_on_detour() {
            return state;
        }
        match &self.rule {
            RoutingRule::Dragonfly(rule) if rule.group(switch) == via => RouteState(state.class()),
            RoutingRule::DimensionOrder(_) | RoutingRule::HyperX(_) if switch == via => {
                RouteState(1)
            }
            _ => state,
        }
    }

    /// The next step at `switch` of a packet for `node`, which is attached to another switch; `via`
    /// matters only on the first leg of a detour.
    #[inline]
    pub fn next(&self, switch: u32, node: u32, via: u32, state: RouteState) -> RouteStep<'_> {
        if let RoutingRule::Table(routes) = &self.rule {
            let links = routes.candidates(switch, node);
            let (lane, next) = routes.lane_of_path(switch, node, state);
            return RouteStep { links, next, lane, non_minimal: 0 };
        }
        self.next_by_rule(switch, node, via, state)
    }

    fn next_by_rule(&self, switch: u32, node: u32, via: u32, state: RouteState) -> RouteStep<'_> {
        let state = self.end_reached_detour(switch, via, state);
        let goal = self.node_switch[node as usize];
        match &self.rule {
            RoutingRule::Table(routes) => {
                let (lane, next) = routes.lane_of_path(switch, node, state);
                RouteStep { links: routes.candidates(switch, node), next, lane, non_minimal: 0 }
            }
            RoutingRule::DimensionOrder(rule) => rule.next(switch, goal, via, state),
            RoutingRule::HyperX(rule) => rule.next(switch, goal, via, state),
            RoutingRule::Dragonfly(rule) => rule.next(switch, goal, via, state),
            RoutingRule::PeerLinks(rule) => rule.next(switch, goal, state),
        }
    }

    /// The link of the deterministic route among the candidates of `step`, which
    /// [`RoutePlan::next`] returned for the same arguments.
    ///
    /// Trees use D-mod-k (Zahavi, 2010; [`Routes::deterministic_link`]). The other rules use the same
    /// modulus with their own divisors, so that destinations that share a link here spread over the
    /// links of the next choice.
    #[inline]
    pub fn deterministic_link(
        &self,
        switch: u32,
        node: u32,
        via: u32,
        state: RouteState,
        step: &RouteStep<'_>,
    ) -> u32 {
        let divisor = match &self.rule {
            RoutingRule::Table(routes) => return routes.deterministic_link(switch, node),
            RoutingRule::PeerLinks(rule) => rule.divisor(switch),
            RoutingRule::Dragonfly(rule) => {
                let state = self.end_reached_detour(switch, via, state);
                rule.divisor(switch, self.node_switch[node as usize], via, state)
            }
            _ => 1,
        };
        let links = step.minimal();
        links[(node / divisor) as usize % links.len()]
    }

    /// Whether there is a route from `switch` to `node`, which is attached to another switch.
    pub fn has_route(&self, fabric: &Fabric, switch: u32, node: u32) -> bool {
        match &self.rule {
            RoutingRule::Table(routes) => routes.has_route(fabric, switch, node),
            _ => true,
        }
    }

    /// Links between switches, and their lanes, on one route from node `from` to node `to`. `pick`
    /// chooses among n candidates; a `via` beyond [`RoutePlan::detours`] means a minimal route.
    ///
    /// # Errors
    /// [`FabricError::Unconnected`] if there is no route.
    pub fn path(
        &self,
        fabric: &Fabric,
        from: u32,
        to: u32,
        via: u32,
        mut pick: impl FnMut(usize) -> usize,
    ) -> Result<Vec<(u32, u8)>, FabricError> {
        let (mut switch, goal) = (self.node_switch[from as usize], self.node_switch[to as usize]);
        let unconnected = FabricError::Unconnected { from: switch, to: goal };
        let mut state = self.start(switch, to, via);
        let mut path = Vec::new();
        while switch != goal {
            if !self.has_route(fabric, switch, to) {
                return Err(unconnected);
            }
            let step = self.next(switch, to, via, state);
            if step.links.is_empty() || path.len() > 4 * fabric.n_switches as usize {
                return Err(unconnected);
            }
            let link = step.links[pick(step.links.len()) % step.links.len()];
            path.push((link, step.lane));
            switch = fabric.link_dst[link as usize] - fabric.n_nodes;
            state = step.next;
        }
        Ok(path)
    }

    /// Number of hops between switches from `switch` to `node`, with the first candidate at each step;
    /// `u32::MAX` if there is no route.
    ///
    /// UGAL-L (Singh, 2005; Kim et al., ISCA 2008) compares routes at the first switch: it takes the
    /// minimal one if `queue(minimal) * hops(minimal) <= queue(detour) * hops(detour)`.
    pub fn hops(&self, fabric: &Fabric, mut switch: u32, node: u32, via: u32) -> u32 {
        let mut state = self.start(switch, node, via);
        let mut hops = 0;
        while switch != self.node_switch[node as usize] {
            if !self.has_route(fabric, switch, node) {
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

    /// The same routes as a routing table, which has no non-minimal candidates.
    ///
    /// # Errors
    /// [`FabricError::WrongTopology`] if the rule needs more than that.
    pub fn to_table(&self, fabric: &Fabric) -> Result<Routes, FabricError> {
        if let RoutingRule::Table(routes) = &self.rule {
            return Ok(routes.clone());
        }
        if let RoutingRule::PeerLinks(_) = &self.rule {
            let why = message!["a routing table cannot mark candidates as non-minimal"];
            return Err(FabricError::WrongTopology { rule: self.name(), why });
        }
        if self.lanes() > 1 {
            let lanes = self.lanes();
            let why = message![format!("it needs {lanes} virtual lanes, but a table has one")];
            return Err(FabricError::WrongTopology { rule: self.name(), why });
        }
        Routes::from_candidates(fabric, |switch, node| {
            self.next(switch, node, u32::MAX, RouteState::START).links
        })
    }

    /// Name of the rule.
    pub fn name(&self) -> &'static str {
        match &self.rule {
            RoutingRule::Table(_) => "table",
            RoutingRule::DimensionOrder(_) => "dimension-order",
            RoutingRule::HyperX(_) => "HyperX",
            RoutingRule::Dragonfly(_) => "dragonfly",
            RoutingRule::PeerLinks(_) => "peer-link (horizontal)",
        }
    }
}
