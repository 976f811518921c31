//! One small fabric of every topology with its own routes, and helpers to run on them.

use std::ops::ControlFlow;

use tailback_engine::{EngineError, Outcome, Parallelism, Placement, Program, Settings, simulate};
use tailback_fabric::rules::{
    DimensionOrder, DragonflyRouting, HyperXRouting, PeerLinkRouting, Tie,
};
use tailback_fabric::{
    Arrangement, CableList, Fabric, RoutePlan, Routes, RoutingRule, dragonfly, dragonfly_plus,
    fat_tree, hyperx, modified_tree, pgft, torus, yellowstone,
};

/// Cable delay used throughout.
pub const CABLE: u64 = 5_000;

/// A fabric, its routes and its name.
pub struct Case {
    pub name: &'static str,
    pub fabric: Fabric,
    pub plan: RoutePlan,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, fabric, .. } = self;
        write!(f, "{name}: {} nodes", fabric.n_nodes)?;
        for link in 0..fabric.n_links() {
            let (a, b) = (fabric.link_src[link], fabric.link_dst[link]);
            if a < b {
                write!(f, ", {a}-{b} {} {}", fabric.link_gbps[link], fabric.link_delay_ps[link])?;
            }
        }
        Ok(())
    }
}

impl Case {
    pub fn new(name: &'static str, fabric: Fabric, rule: RoutingRule) -> Self {
        let plan = RoutePlan::new(&fabric, rule).expect("a fabric with its own rule");
        Self { name, fabric, plan }
    }

    /// The same with every rate rounded to one at which a byte takes whole picoseconds.
    pub fn with_whole_rates(mut self) -> Self {
        for gbps in &mut self.fabric.link_gbps {
            *gbps = 8000.0 / (8000.0 / *gbps).round();
        }
        self
    }

    /// The same with 1 / `times` of every rate and `times` every delay.
    pub fn slower(mut self, times: u32) -> Self {
        self.fabric.link_gbps.iter_mut().for_each(|gbps| *gbps /= f64::from(times));
        self.fabric.link_delay_ps.iter_mut().for_each(|ps| *ps *= u64::from(times));
        self
    }

    /// Runs `program`, rank i on node i.
    pub fn run(&self, settings: &Settings, program: &Program) -> Outcome {
        let nodes: Vec<u32> = (0..program.n_ranks() as u32).collect();
        self.run_at(settings, program, &nodes)
    }

    /// Runs `program`, rank i on `nodes[i]`.
    pub fn run_at(&self, settings: &Settings, program: &Program, nodes: &[u32]) -> Outcome {
        let work = Parallelism::default();
        self.try_run(settings, program, nodes, work)
            .unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// The same, with errors and threads.
    pub fn try_run(
        &self,
        settings: &Settings,
        program: &Program,
        nodes: &[u32],
        work: Parallelism,
    ) -> Result<Outcome, EngineError> {
        let placement = Placement {
            node: nodes.to_vec(),
            host: (0..nodes.len() as u32).collect(),
            start_ps: vec![0; nodes.len()],
            label_observed: vec![true],
            ..Placement::default()
        };
        let mut watch = |_| ControlFlow::Continue(());
        simulate(&self.fabric, &self.plan, settings, program, &placement, work, &mut watch)
    }
}

/// Up/down routes of a tree or of any fabric.
pub fn up_down(name: &'static str, fabric: Fabric) -> Case {
    let routes = Routes::up_down(&fabric).expect("a connected fabric");
    Case::new(name, fabric, RoutingRule::Table(routes))
}

/// Switches (numbered after the nodes) and cables written down one by one: (a, b, Gb/s).
pub fn wired(nodes: u32, switches: u32, delay_ps: u64, cables: &[(u32, u32, f64)]) -> Case {
    let mut list = CableList::new((nodes + switches) as usize);
    for &(a, b, gbps) in cables {
        list.add(a, b, gbps, delay_ps);
    }
    let n = switches as usize;
    let fabric = list.finish(nodes, vec![0; n], vec![-1; n]).expect("consistent cables");
    up_down("wired by hand", fabric)
}

/// A k-ary n-tree (Petrini and Vanneschi, 1997): k^n nodes, n levels of k^(n-1) switches.
pub fn k_ary_n_tree(k: u32, n: usize, gbps: f64) -> Case {
    let mut parents = vec![k; n];
    parents[0] = 1;
    let shape = pgft::Shape {
        children: vec![k; n],
        parents,
        cables: vec![1; n],
        gbps: vec![gbps; n],
        delay_ps: vec![CABLE; n],
        planes: 1,
    };
    up_down("k-ary n-tree", pgft::build(&shape).expect("a k-ary n-tree"))
}

/// A torus with dimension-order routes. Each dimension: size, whether it is joined, rates.
pub fn grid(dims: &[(u32, bool, &[f64])], nodes_per_switch: u32, node_gbps: f64) -> Case {
    let dimensions = dims
        .iter()
        .map(|&(size, wrap, gbps)| torus::Dimension {
            size,
            wrap,
            cables: 1,
            gbps: gbps.to_vec(),
            delay_ps: CABLE,
        })
        .collect();
    let shape = torus::Shape { dimensions, nodes_per_switch, node_gbps, node_delay_ps: CABLE };
    let fabric = torus::build(&shape).expect("a torus");
    let sizes: Vec<u32> = dims.iter().map(|d| d.0).collect();
    let rule = DimensionOrder::new(&fabric, &sizes, Tie::Parity, true, false);
    Case::new("torus", fabric, RoutingRule::DimensionOrder(rule.expect("its own rule")))
}

/// Every topology once, its links slower the farther they are from the nodes, so that the last link
/// of its kind on a route is the slowest.
pub fn every_topology() -> Vec<Case> {
    let mut cases = trees();
    cases.push(grid(&[(4, true, &[75.2]), (3, true, &[37.6]), (3, false, &[120.0])], 2, 400.0));
    let dimension = |size, gbps| hyperx::Dimension { size, cables: 1, gbps, delay_ps: CABLE };
    let shape = hyperx::Shape {
        dimensions: vec![dimension(4, 200.0), dimension(3, 54.545_454)],
        nodes_per_switch: 2,
        node_gbps: 400.0,
        node_delay_ps: CABLE,
    };
    let fabric = hyperx::build(&shape).expect("a HyperX");
    let rule = HyperXRouting::new(&fabric, &[4, 3], false).expect("its own rule");
    cases.push(Case::new("hyperx", fabric, RoutingRule::HyperX(rule)));
    cases.extend(groups());
    cases
}

fn trees() -> Vec<Case> {
    let shape = fat_tree::Shape {
        hosts_per_leaf: 3,
        leaves: 3,
        aggregation: 2,
        pods: 2,
        cores: 4,
        leaf_cables: 1,
        aggregation_uplinks: 4,
        gbps: [400.0, 200.0, 100.0],
        delay_ps: [CABLE, CABLE, 4 * CABLE],
    };
    let tree = up_down("fat tree", fat_tree::build(&shape).expect("a fat tree"));
    let shape = pgft::Shape {
        children: vec![3, 4, 2],
        parents: vec![1, 2, 2],
        cables: vec![1, 2, 1],
        gbps: vec![200.0, 100.0, 25.0],
        delay_ps: vec![CABLE; 3],
        planes: 1,
    };
    let general = up_down("pgft", pgft::build(&shape).expect("a generalised tree"));
    let shape = modified_tree::Shape {
        arity: 3,
        levels: 2,
        width: 1,
        gbps: [400.0, 100.0, 50.0],
        delay_ps: [CABLE; 3],
    };
    let fabric = modified_tree::build(&shape).expect("a modified tree");
    let rule = PeerLinkRouting::new(&fabric, 3, 2, 1).expect("its own rule");
    let sideways = Case::new("modified tree", fabric, RoutingRule::PeerLinks(rule));
    let shape = yellowstone::Shape {
        hosts_per_tor: 3,
        tors_per_group: 2,
        groups: 2,
        directors: 2,
        leaves: 5,
        spines: 2,
        storage_leaves: 2,
        storage_spines: 1,
        servers_per_leaf: 2,
        storage_cables: 1,
        gbps: 54.545_454,
        delay_ps: CABLE,
    };
    let storage = up_down("yellowstone", yellowstone::build(&shape).expect("a small Yellowstone"));
    vec![tree, general, sideways, storage]
}

fn groups() -> Vec<Case> {
    let shape = dragonfly::Shape {
        nodes_per_router: 2,
        routers: 4,
        global_ports: 1,
        groups: 5,
        arrangement: Arrangement::Palmtree,
        gbps: [400.0, 200.0, 100.0],
        delay_ps: [CABLE, CABLE, 20 * CABLE],
    };
    let fabric = dragonfly::build(&shape).expect("a dragonfly");
    let rule = DragonflyRouting::new(&fabric, false, true).expect("its own rule");
    let dragonfly = Case::new("dragonfly", fabric, RoutingRule::Dragonfly(rule));
    let shape = dragonfly_plus::Shape {
        nodes_per_leaf: 2,
        leaves: 4,
        spines: 4,
        global_ports: 1,
        groups: 5,
        arrangement: Arrangement::Palmtree,
        gbps: [400.0, 200.0, 100.0],
        delay_ps: [CABLE, CABLE, 20 * CABLE],
    };
    let fabric = dragonfly_plus::build(&shape).expect("a dragonfly+");
    let rule = DragonflyRouting::new(&fabric, false, true).expect("its own rule");
    vec![dragonfly, Case::new("dragonfly+", fabric, RoutingRule::Dragonfly(rule))]
}
