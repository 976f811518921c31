//! Static evaluation: how many flows share the links of each flow when all nodes send at once.
//!
//! Flows set up their paths one after the other, in random order, as VC routing does with a flow's
//! first packet: at each switch by the number of flows on each output, the default port when it is
//! the best choice (Birk and Zdornov 2009). The congestion a flow *encounters* is the number of flows on the
//! most used link of its path, itself included.

use crate::rng::{below, permutation, random};
use crate::tree::Tree;
use crate::{FlowPaths, FluidError};

/// The default port of each destination at each switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultPort {
    /// By the destination's digits: permutations never meet on the way down.
    DModK,
    /// Drawn at random for each switch and destination, once for a run.
    RandomTable,
}

/// How flows are routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermutationRouting {
    /// Default ports.
    pub default: DefaultPort,
    /// Choose by local load; otherwise every flow takes the default ports.
    pub adaptive: bool,
    /// A flow leaves its default port only for an output with this many fewer flows, 1 or more.
    pub margin: u32,
}

/// Congestion that flows encounter.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Congestion {
    /// The highest congestion any flow encounters: flows on the most used link.
    pub max: u32,
    /// The mean over flows of the congestion each encounters.
    pub mean: f64,
    /// Mean number of links of a path, node links included.
    pub mean_links: f64,
}

/// Routes flows on a tree; its buffers are reused between evaluations.
#[derive(Debug)]
pub struct Evaluation {
    /// The tree.
    pub tree: Tree,
    rule: PermutationRouting,
    /// Flows on each link.
    pub load: Vec<u32>,
    path: Vec<u32>,
    start: Vec<u32>,
    /// Flow of each path, in the order they were set up.
    flow: Vec<u32>,
}

impl Evaluation {
    /// An evaluation without flows.
    ///
    /// # Errors
    /// A margin of 0.
    pub fn new(tree: Tree, rule: PermutationRouting) -> Result<Self, FluidError> {
        if rule.margin == 0 {
            let (name, place) = ("margin", "the routing rule".to_owned());
            let (value, valid) = ("0".to_owned(), "1 or more");
            return Err(FluidError::Value { name, place, value, valid });
        }
        let load = vec![0; tree.n_links() as usize];
        Ok(Self { tree, rule, load, path: Vec::new(), start: vec![0], flow: Vec::new() })
    }

    /// Removes all flows.
    pub fn clear(&mut self) {
        self.load.fill(0);
        self.path.clear();
        self.flow.clear();
        self.start.truncate(1);
    }

    /// Routes one flow a node to `destination[node]`, in random order; nodes that would send to
    /// themselves send nothing.
    ///
    /// # Errors
    /// Not one destination a node, or one that does not exist.
    pub fn add(&mut self, destination: &[u32], seed: u64) -> Result<(), FluidError> {
        let nodes = self.tree.nodes;
        if destination.len() != nodes as usize {
            let (length, expected) = (destination.len(), nodes as usize);
            return Err(FluidError::Length { name: "destinations", length, expected });
        }
        if let Some(node) = destination.iter().position(|&node| node >= nodes) {
            let (name, place) = ("destination", format!("node {node}"));
            let (value, valid) = (destination[node].to_string(), "a node of the tree");
            return Err(FluidError::Value { name, place, value, valid });
        }
        let base = self.flow.len() as u64;
        for node in permutation(nodes, seed, base ^ 0x0bde) {
            let dst = destination[node as usize];
            if dst != node {
                self.route(node, dst, seed);
                self.start.push(self.path.len() as u32);
                self.flow.push(node);
            }
        }
        Ok(())
    }

    /// Congestion of the flows once all have their paths.
    pub fn congestion(&self) -> Congestion {
        let (mut max, mut sum) = (0, 0u64);
        for range in self.start.windows(2) {
            let links = &self.path[range[0] as usize..range[1] as usize];
            let worst = links.iter().map(|&link| self.load[link as usize]).max().unwrap_or(0);
            max = max.max(worst);
            sum += u64::from(worst);
        }
        let flows = self.flow.len().max(1) as f64;
        let mean_links = self.path.len() as f64 / flows;
        Congestion { max, mean: sum as f64 / flows, mean_links }
    }

    /// The flows' paths, and the node that sends each.
    pub fn paths(&self) -> (FlowPaths, Vec<u32>) {
        let start = self.start.iter().map(|&at| at.into()).collect();
        (FlowPaths { start, link: self.path.clone(), share: Vec::new() }, self.flow.clone())
    }

    fn take(&mut self, link: u32) {
        self.load[link as usize] += 1;
        self.path.push(link);
    }

    fn route(&mut self, src: u32, dst: u32, seed: u64) {
        let tree = self.tree;
        let (mut switch, goal) = (src / tree.arity, dst / tree.arity);
        let mut level = 0;
        self.take(tree.injection(src));
        while switch / tree.line(level) != goal / tree.line(level) {
            let port = self.up_port(level, switch, dst, seed);
            self.take(tree.up(level, switch, port));
            switch = tree.with_digit(switch, level, port);
            level += 1;
        }
        while level > 0 {
            if let Some(lane) = self.sideways(level, switch, goal) {
                self.take(tree.horizontal(level, switch, lane));
                switch += 1;
                continue;
            }
            level -= 1;
            let digit = goal / tree.line(level) % tree.arity;
            self.take(tree.down(level + 1, switch, digit));
            switch = tree.with_digit(switch, level, digit);
        }
        self.take(tree.ejection(dst));
    }

    fn up_port(&self, level: u32, switch: u32, dst: u32, seed: u64) -> u32 {
        let arity = self.tree.arity;
        let default = match self.rule.default {
            DefaultPort::DModK => dst / self.tree.line(level) % arity,
            DefaultPort::RandomTable => {
                let entry = u64::from(level * self.tree.per_level + switch) << 32 | u64::from(dst);
                below(random(seed, 0x7ab1e, entry), arity)
            }
        };
        if !self.rule.adaptive {
            return default;
        }
        let first = self.tree.up(level, switch, 0) as usize;
        let load = &self.load[first..first + arity as usize];
        let least = load.iter().copied().min().unwrap_or(0);
        if load[default as usize] < least + self.rule.margin {
            return default;
        }
        // Ties go to the next port after the default, so that no port number is preferred.
        let mut port = default;
        loop {
            port = if port + 1 == arity { 0 } else { port + 1 };
            if load[port as usize] == least {
                return port;
            }
        }
    }

    /// The horizontal link that a descending flow prefers to its down link, if there is one.
    fn sideways(&self, level: u32, switch: u32, goal: u32) -> Option<u32> {
        let tree = &self.tree;
        if !self.rule.adaptive || tree.width == 0 || (switch + 1).is_multiple_of(tree.line(level)) {
            return None;
        }
        let digit = goal / tree.line(level - 1) % tree.arity;
        let down = self.load[tree.down(level, switch, digit) as usize];
        let first = tree.horizontal(level, switch, 0) as usize;
        let lanes = &self.load[first..first + tree.width as usize];
        let (lane, &least) = lanes.iter().enumerate().min_by_key(|&(_, load)| *load)?;
        (least + self.rule.margin <= down).then_some(lane as u32)
    }
}

/// A random permutation of the nodes: destination of each.
pub fn random_permutation(nodes: u32, seed: u64, number: u64) -> Vec<u32> {
    permutation(nodes, seed, number ^ 0x9e12_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(tree: Tree, rule: PermutationRouting, seed: u64) -> Evaluation {
        let mut evaluation = Evaluation::new(tree, rule).unwrap();
        evaluation.add(&random_permutation(tree.nodes, seed, 0), seed).unwrap();
        evaluation
    }

    const ADAPTIVE: PermutationRouting =
        PermutationRouting { default: DefaultPort::DModK, adaptive: true, margin: 1 };

    #[test]
    fn d_mod_k_never_meets_on_the_way_down() {
        let rule = PermutationRouting { adaptive: false, ..ADAPTIVE };
        let evaluation = evaluate(Tree::new(8, 3, 0).unwrap(), rule, 3);
        let tree = evaluation.tree;
        for link in 0..tree.n_links() {
            if matches!(tree.kind(link), crate::tree::LinkKind::Down(_)) {
                assert!(evaluation.load[link as usize] <= 1, "link {link}");
            }
        }
        assert!(evaluation.congestion().max > 1);
    }

    #[test]
    fn a_shift_by_one_leaf_is_free_of_congestion() {
        let tree = Tree::new(4, 3, 0).unwrap();
        let rule = PermutationRouting { adaptive: false, ..ADAPTIVE };
        let mut evaluation = Evaluation::new(tree, rule).unwrap();
        let shift: Vec<u32> = (0..64).map(|node| (node + 4) % 64).collect();
        evaluation.add(&shift, 1).unwrap();
        let Congestion { max, mean, .. } = evaluation.congestion();
        assert_eq!((max, mean), (1, 1.0));
    }

    #[test]
    fn paths_lead_to_their_destinations_in_ascending_rank() {
        for (arity, levels, width, seed) in [(3, 3, 1, 1), (4, 3, 2, 2), (2, 5, 3, 3), (5, 2, 1, 4)]
        {
            let tree = Tree::new(arity, levels, width).unwrap();
            let evaluation = evaluate(tree, ADAPTIVE, seed);
            let wanted = random_permutation(tree.nodes, seed, 0);
            let (paths, nodes) = evaluation.paths();
            for (flow, &node) in nodes.iter().enumerate() {
                let links: Vec<u32> = paths.of(flow).map(|(link, _)| link).collect();
                assert_eq!(links[0], node);
                assert_eq!(*links.last().unwrap(), tree.nodes + wanted[node as usize]);
                assert!(links.windows(2).all(|w| tree.rank(w[0]) < tree.rank(w[1])), "{links:?}");
            }
        }
    }
}
