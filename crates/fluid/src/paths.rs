//! The links a flow takes: one path, or a spread over the candidates of its route.

use tailback_fabric::{Fabric, Routes};

use crate::FluidError;
use crate::rng::{below, random};

/// Paths of flows in columns: flow `f` uses `link[start[f]..start[f + 1]]`.
#[derive(Debug, Default, Clone)]
pub struct Paths {
    /// First use of each flow; one entry more than there are flows.
    pub start: Vec<u64>,
    /// Links, in the order a flow passes them.
    pub link: Vec<u32>,
    /// Fraction of the flow that crosses each; empty means 1 everywhere.
    pub share: Vec<f64>,
}

impl Paths {
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
    /// The first that does not fit.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathChoice {
    /// D-mod-k: by destination, as the packet engine's `deterministic`.
    Deterministic,
    /// One candidate at random at each switch, once for the flow.
    Random,
    /// The candidate that the fewest active flows use as the flow starts, ties at random: what VC
    /// routing (document 004) does.
    LeastFlows,
    /// Eight equal parts, each by the fewest flows: near what per-packet adaptive routing does.
    Split,
    /// Equal parts over all candidates: the limit of per-packet random routing. A flow across a
    /// large fabric uses a thousand links and more, and costs accordingly.
    Spread,
}

/// Parts of a flow under [`PathChoice::Split`].
const PARTS: u64 = 8;

/// Finds paths on a fabric.
#[derive(Debug)]
pub struct Router<'a> {
    fabric: &'a Fabric,
    routes: &'a Routes,
    choice: PathChoice,
    seed: u64,
    /// Flows on each link, parts as such; kept by [`Router::occupy`] and [`Router::release`].
    flows: Vec<f64>,
}

impl<'a> Router<'a> {
    /// Paths by `choice`.
    pub fn new(fabric: &'a Fabric, routes: &'a Routes, choice: PathChoice, seed: u64) -> Self {
        Self { fabric, routes, choice, seed, flows: vec![0.0; fabric.n_links()] }
    }

    /// Counts a flow on its links.
    pub fn occupy(&mut self, path: &[(u32, f64)]) {
        path.iter().for_each(|&(link, share)| self.flows[link as usize] += share);
    }

    /// Takes a flow off its links.
    pub fn release(&mut self, path: impl Iterator<Item = (u32, f64)>) {
        path.for_each(|(link, share)| self.flows[link as usize] -= share);
    }

    /// The links from node `src` to node `dst` for flow number `flow`, with their shares. The flow
    /// counts on its links only when [`Router::occupy`] is called.
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
        if self.routes.require(self.fabric, src, dst).is_err() {
            return Err(FluidError::Unconnected { from: src, to: dst });
        }
        out.push((self.routes.injection[src as usize], 1.0));
        match self.choice {
            PathChoice::Spread => self.spread(src, dst, out),
            PathChoice::Split => self.split(src, dst, flow, out),
            _ => self.single(src, dst, flow, out),
        }
        out.push((self.routes.ejection[dst as usize], 1.0));
        Ok(())
    }

    fn switch_after(&self, link: u32) -> u32 {
        self.fabric.link_dst[link as usize] - self.fabric.n_nodes
    }

    fn single(&self, src: u32, dst: u32, flow: u64, out: &mut Vec<(u32, f64)>) {
        let mut switch = self.switch_after(self.routes.injection[src as usize]);
        let last =
            self.fabric.link_src[self.routes.ejection[dst as usize] as usize] - self.fabric.n_nodes;
        while switch != last {
            let links = self.routes.candidates(switch, dst);
            let n = links.len() as u32;
            let draw = || below(random(self.seed, out.len() as u64, flow), n) as usize;
            let link = match self.choice {
                PathChoice::Deterministic => {
                    links[(dst / self.routes.divisor[switch as usize] % n) as usize]
                }
                PathChoice::Random => links[draw()],
                _ => {
                    let (before, after) = links.split_at(draw());
                    let flows = |link: &u32| self.flows[*link as usize];
                    let around = after.iter().chain(before);
                    *around.min_by(|a, b| flows(a).total_cmp(&flows(b))).expect("a candidate")
                }
            };
            out.push((link, 1.0));
            switch = self.switch_after(link);
        }
    }

    /// Routes the parts one after the other; parts that take the same link are put together.
    fn split(&mut self, src: u32, dst: u32, flow: u64, out: &mut Vec<(u32, f64)>) {
        let each = 1.0 / PARTS as f64;
        let mut all: Vec<(u32, f64)> = Vec::new();
        for part in 0..PARTS {
            let mut one = Vec::new();
            self.single(src, dst, flow * PARTS + part, &mut one);
            one.iter_mut().for_each(|used| used.1 = each);
            self.occupy(&one);
            all.extend(one);
        }
        self.release(all.iter().copied());
        all.sort_unstable_by_key(|&(link, _)| link);
        all.dedup_by(|from, into| {
            let same = from.0 == into.0;
            if same {
                into.1 += from.1;
            }
            same
        });
        out.extend(all);
    }

    /// Splits equally at each switch, switch by switch in the order they are reached.
    fn spread(&self, src: u32, dst: u32, out: &mut Vec<(u32, f64)>) {
        let first = self.switch_after(self.routes.injection[src as usize]);
        let last =
            self.fabric.link_src[self.routes.ejection[dst as usize] as usize] - self.fabric.n_nodes;
        // All candidates of a switch are equally far from the destination: levels do not mix.
        let mut level = vec![(first, 1.0)];
        while level.iter().any(|&(switch, _)| switch != last) {
            let mut next: Vec<(u32, f64)> = Vec::new();
            for &(switch, part) in &level {
                let links = self.routes.candidates(switch, dst);
                let each = part / links.len() as f64;
                for &link in links {
                    out.push((link, each));
                    next.push((self.switch_after(link), each));
                }
            }
            next.sort_unstable_by_key(|&(switch, _)| switch);
            next.dedup_by(|from, into| {
                let same = from.0 == into.0;
                if same {
                    into.1 += from.1;
                }
                same
            });
            level = next;
        }
    }
}
