//! The links of a flow: one path, or shares of all candidates of its route.

use serde::Deserialize;
use tailback_fabric::{Detour, Fabric, RoutePlan, RouteState};

use crate::FluidError;
use crate::rng::{below, random};
use crate::trunks::Trunks;

/// Paths of flows in columns: flow `f` uses `link[start[f]..start[f + 1]]`.
#[derive(Debug, Default, Clone)]
pub struct FlowPaths {
    /// First use of each flow; one entry more than there are flows.
    pub start: Vec<u64>,
    /// Links, in the order a flow passes them.
    pub link: Vec<u32>,
    /// Fraction of the flow that crosses each; empty means 1 everywhere.
    pub share: Vec<f64>,
}

impl FlowPaths {
    /// Single paths.
    pub fn single(paths: &[&[u32]]) -> Self {
        let mut out = Self { start: vec![0], ..Self::default() };
        for path in paths {
            out.link.extend_from_slice(path);
            out.start.push(out.link.len() as u64);
        }
        out
    }

    /// Links of `flow` with their shares.
    pub fn of(&self, flow: usize) -> impl Iterator<Item = (u32, f64)> + '_ {
        let range = self.start[flow] as usize..self.start[flow + 1] as usize;
        range.map(|at| (self.link[at], self.share.get(at).copied().unwrap_or(1.0)))
    }

    /// Checks the columns against each other.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self, links: usize, flows: usize) -> Result<(), FluidError> {
        let length = |name, length, expected| Err(FluidError::Length { name, length, expected });
        if self.start.len() != flows + 1 {
            return length("path starts", self.start.len(), flows + 1);
        }
        let last = self.start[flows] as usize;
        if !self.start.is_sorted() || self.start[0] != 0 || last != self.link.len() {
            return length("path links", self.link.len(), last);
        }
        if !self.share.is_empty() && self.share.len() != self.link.len() {
            return length("path shares", self.share.len(), self.link.len());
        }
        for flow in 0..flows {
            if self.start[flow] == self.start[flow + 1] {
                let (name, place) = ("path", format!("flow {flow}"));
                let (value, valid) = ("empty".to_owned(), "at least one link");
                return Err(FluidError::Value { name, place, value, valid });
            }
            for (link, share) in self.of(flow) {
                if link as usize >= links {
                    return Err(FluidError::Link { flow, link, links });
                }
                if !(share > 0.0 && share <= 1.0) {
                    let (name, place) = ("share", format!("flow {flow}, link {link}"));
                    let (value, valid) = (share.to_string(), "above 0, at most 1");
                    return Err(FluidError::Value { name, place, value, valid });
                }
            }
        }
        Ok(())
    }
}

/// How a flow's links are chosen among the candidates of its route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathChoice {
    /// D-mod-k: by destination, as the packet engine's `deterministic`.
    Deterministic,
    /// One candidate at random at each switch, once for the flow.
    Random,
    /// The candidate with the fewest active flows when the flow starts: VC routing (Birk and
    /// Zdornov 2009). Ties go to the candidate of D-mod-k.
    LeastFlows,
    /// Eight equal parts, each by the fewest flows: approximates per-packet adaptive routing.
    Split,
    /// Equal parts over all candidates: the limit of per-packet random routing. A flow across a
    /// large fabric uses a thousand links or more, which takes time accordingly.
    Spread,
    /// Trunks (see [`Trunks`]) as single links of their joint capacity: perfect per-packet balance at
    /// the cost of a single path. For trees.
    Pooled,
}

/// Parts of a flow under [`PathChoice::Split`].
const SPLIT_PARTS: u64 = 8;

/// Random stream of detours, separate from that of hops.
const DETOUR: u64 = 0xde70;

/// Finds paths on a fabric.
#[derive(Debug)]
pub struct Router<'a> {
    fabric: &'a Fabric,
    plan: &'a RoutePlan,
    choice: PathChoice,
    detour: Detour,
    seed: u64,
    trunks: Option<Trunks>,
    /// Flows on each link, with fractions; updated by [`Router::occupy`] and [`Router::release`].
    flows: Vec<f64>,
}

impl<'a> Router<'a> {
    /// Paths by `choice`.
    pub fn new(
        fabric: &'a Fabric,
        plan: &'a RoutePlan,
        choice: PathChoice,
        detour: Detour,
        seed: u64,
    ) -> Self {
        let trunks = (choice == PathChoice::Pooled).then(|| Trunks::of(fabric));
        let flows = vec![0.0; trunks.as_ref().map_or(fabric.n_links(), |t| t.gbps.len())];
        Self { fabric, plan, choice, detour, seed, trunks, flows }
    }

    /// Whether paths depend on the active flows.
    pub(crate) fn depends_on_load(&self) -> bool {
        matches!(self.choice, PathChoice::LeastFlows | PathChoice::Split)
            || self.detour == Detour::Ugal
    }

    /// Capacity of each link or, if links are pooled, trunk, in Gb/s.
    pub fn capacity(&self) -> Vec<f64> {
        self.trunks.as_ref().map_or_else(|| self.fabric.link_gbps.clone(), |t| t.gbps.clone())
    }

    /// The links of an entry of a path: the link itself, or the members of a trunk.
    pub fn members(&self, used: u32) -> std::borrow::Cow<'_, [u32]> {
        match &self.trunks {
            Some(trunks) => trunks.members(used).into(),
            None => vec![used].into(),
        }
    }

    /// Latency of the cable of a link, or of the first of a trunk.
    pub fn delay_ps(&self, used: u32) -> u64 {
        self.fabric.link_delay_ps[self.members(used)[0] as usize]
    }

    /// Rate of the link, or of the first of a trunk.
    pub fn gbps(&self, used: u32) -> f64 {
        self.fabric.link_gbps[self.members(used)[0] as usize]
    }

    /// Counts a flow on its links.
    pub fn occupy(&mut self, path: &[(u32, f64)]) {
        path.iter().for_each(|&(link, share)| self.flows[link as usize] += share);
    }

    /// Removes a flow from the counts of its links.
    pub fn release(&mut self, path: impl Iterator<Item = (u32, f64)>) {
        path.for_each(|(link, share)| self.flows[link as usize] -= share);
    }

    /// The links (or trunks) from node `src` to node `dst` for flow number `flow`, with their
    /// shares. The flow counts on its links only when [`Router::occupy`] is called.
    ///
    /// # Errors
    /// A node that does not exist, a node that sends to itself, or no path.
    pub fn path(
        &mut self,
        src: u32,
        dst: u32,
        flow: u64,
        out: &mut Vec<(u32, f64)>,
    ) -> Result<(), FluidError> {
        out.clear();
        for node in [src, dst] {
            if node >= self.fabric.n_nodes {
                let (name, place) = ("node", format!("flow {flow}"));
                let (value, valid) = (node.to_string(), "a node of the fabric");
                return Err(FluidError::Value { name, place, value, valid });
            }
        }
        if src == dst {
            let (name, place) = ("destination", format!("flow {flow}"));
            let (value, valid) = (dst.to_string(), "another node than the source");
            return Err(FluidError::Value { name, place, value, valid });
        }
        let (from, to) = (self.plan.node_switch[src as usize], self.plan.node_switch[dst as usize]);
        if from != to && !self.plan.has_route(self.fabric, from, dst) {
            return Err(FluidError::Unconnected { from: src, to: dst });
        }
        out.push((self.plan.injection[src as usize], 1.0));
        match self.choice {
            PathChoice::Spread => self.spread(src, dst, flow, out),
            PathChoice::Split => self.split(src, dst, flow, out),
            _ => self.single(src, dst, flow, out),
        }
        out.push((self.plan.ejection[dst as usize], 1.0));
        if let Some(trunks) = &self.trunks {
            out.iter_mut().for_each(|used| used.0 = trunks.of_link[used.0 as usize]);
        }
        Ok(())
    }

    fn switch_after(&self, link: u32) -> u32 {
        self.fabric.link_dst[link as usize] - self.fabric.n_nodes
    }

    /// Detour and state of a flow at its first switch.
    fn start(&self, switch: u32, dst: u32, flow: u64) -> (u32, RouteState) {
        const MINIMAL: (u32, RouteState) = (u32::MAX, RouteState::START);
        let detours = self.plan.detours();
        if detours == 0 || self.detour == Detour::Never {
            return MINIMAL;
        }
        let via = below(random(self.seed, DETOUR, flow), detours);
        let state = self.plan.start(switch, dst, via);
        if self.detour == Detour::Valiant || !state.is_on_detour() {
            return (via, state);
        }
        let cost = |via: u32, state: RouteState| {
            let links = self.plan.next(switch, dst, via, state).links;
            let flows = links.iter().map(|&link| self.flows[link as usize]);
            let hops = self.plan.hops(self.fabric, switch, dst, via);
            flows.fold(f64::INFINITY, f64::min) * f64::from(hops)
        };
        if cost(u32::MAX, RouteState::START) <= cost(via, state) { MINIMAL } else { (via, state) }
    }

    fn single(&self, src: u32, dst: u32, flow: u64, out: &mut Vec<(u32, f64)>) {
        let (mut switch, last) =
            (self.plan.node_switch[src as usize], self.plan.node_switch[dst as usize]);
        let (via, mut state) = self.start(switch, dst, flow);
        while switch != last {
            let step = self.plan.next(switch, dst, via, state);
            let shortest = step.minimal();
            let n = shortest.len() as u32;
            let draw = |n: u32| below(random(self.seed, out.len() as u64, flow), n) as usize;
            let fixed = || self.plan.deterministic_link(switch, dst, via, state, &step);
            let link = match self.choice {
                PathChoice::Pooled => shortest[0],
                PathChoice::Deterministic => fixed(),
                PathChoice::Random => shortest[draw(n)],
                PathChoice::LeastFlows => {
                    let default = fixed();
                    let place = shortest.iter().position(|&link| link == default).unwrap_or(0);
                    step.least_loaded(place, |link| self.flows[link as usize])
                }
                _ => step.least_loaded(draw(n), |link| self.flows[link as usize]),
            };
            out.push((link, 1.0));
            state = step.next;
            switch = self.switch_after(link);
        }
    }

    /// Routes the parts one after the other; parts on the same link are merged.
    fn split(&mut self, src: u32, dst: u32, flow: u64, out: &mut Vec<(u32, f64)>) {
        let each = 1.0 / SPLIT_PARTS as f64;
        let mut all: Vec<(u32, f64)> = Vec::new();
        for part in 0..SPLIT_PARTS {
            let mut part_path = Vec::new();
            self.single(src, dst, flow * SPLIT_PARTS + part, &mut part_path);
            part_path.iter_mut().for_each(|used| used.1 = each);
            self.occupy(&part_path);
            all.extend(part_path);
        }
        self.release(all.iter().copied());
        merge_parts(&mut all, |used| used.0);
        out.extend(all);
    }

    /// Splits equally at each switch, step by step.
    fn spread(&self, src: u32, dst: u32, flow: u64, out: &mut Vec<(u32, f64)>) {
        let (first, last) =
            (self.plan.node_switch[src as usize], self.plan.node_switch[dst as usize]);
        let (via, state) = self.start(first, dst, flow);
        let mut level = vec![((first, state.0), 1.0)];
        let mut all: Vec<(u32, f64)> = Vec::new();
        while !level.is_empty() {
            let mut next = Vec::new();
            for &((switch, state), part) in &level {
                if switch == last {
                    continue;
                }
                let step = self.plan.next(switch, dst, via, RouteState(state));
                let links = step.minimal();
                let each = part / links.len() as f64;
                for &link in links {
                    all.push((link, each));
                    next.push(((self.switch_after(link), step.next.0), each));
                }
            }
            merge_parts(&mut next, |there| there.0);
            level = next;
        }
        merge_parts(&mut all, |used| used.0);
        out.extend(all);
    }
}

/// Sorts by key and adds up the parts of equal keys.
fn merge_parts<T: Copy, K: Ord>(parts: &mut Vec<(T, f64)>, key: impl Fn(&(T, f64)) -> K) {
    parts.sort_unstable_by_key(|part| key(part));
    parts.dedup_by(|from, into| {
        let same = key(from) == key(into);
        if same {
            into.1 += from.1;
        }
        same
    });
}
