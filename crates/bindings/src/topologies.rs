//! Topology builders, and routing rules with their deadlock check.

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailback_fabric::rules::{
    DimensionOrder, DragonflyRouting, HyperXRouting, PeerLinkRouting, Tie,
};
use tailback_fabric::{
    Arrangement, Fabric, FabricError, RoutePlan, RouteState, Routes, RoutingRule, dragonfly,
    dragonfly_plus, hyperx, modified_tree, pgft, torus, yellowstone,
};

use crate::errors::raise;
use crate::network::{Network, arrays};

type Arrays<'py> = PyResult<Bound<'py, PyDict>>;

fn finish<'py>(
    py: Python<'py>,
    build: impl FnOnce() -> Result<Fabric, FabricError> + Send,
) -> Arrays<'py> {
    arrays(py, py.detach(build).map_err(raise)?)
}

fn arrangement(name: &str) -> PyResult<Arrangement> {
    match name {
        "consecutive" => Ok(Arrangement::Consecutive),
        "palmtree" => Ok(Arrangement::Palmtree),
        _ => Err(raise(format!("arrangement = {name:?}; valid: consecutive, palmtree"))),
    }
}

/// Builds a generalised fat tree; returns its arrays by name.
#[pyfunction]
fn pgft_fabric(
    py: Python<'_>,
    children: Vec<u32>,
    parents: Vec<u32>,
    cables: Vec<u32>,
    gbps: Vec<f64>,
    delay_ps: Vec<u64>,
    planes: u32,
) -> Arrays<'_> {
    let shape = pgft::Shape { children, parents, cables, gbps, delay_ps, planes };
    finish(py, move || pgft::build(&shape))
}

/// Builds a k-ary n-tree with peer (horizontal) links from (k, n, width).
#[pyfunction]
fn modified_tree_fabric(
    py: Python<'_>,
    counts: (u32, u32, u32),
    gbps: [f64; 3],
    delay_ps: [u64; 3],
) -> Arrays<'_> {
    let (arity, levels, width) = counts;
    let shape = modified_tree::Shape { arity, levels, width, gbps, delay_ps };
    finish(py, move || modified_tree::build(&shape))
}

/// Builds a torus or mesh; a dimension is (size, wrap, cables, rates, delay).
#[pyfunction]
fn torus_fabric(
    py: Python<'_>,
    dimensions: Vec<(u32, bool, u32, Vec<f64>, u64)>,
    nodes_per_switch: u32,
    node_gbps: f64,
    node_delay_ps: u64,
) -> Arrays<'_> {
    let dimensions = dimensions
        .into_iter()
        .map(|(size, wrap, cables, gbps, delay_ps)| torus::Dimension {
            size,
            wrap,
            cables,
            gbps,
            delay_ps,
        })
        .collect();
    let shape = torus::Shape { dimensions, nodes_per_switch, node_gbps, node_delay_ps };
    finish(py, move || torus::build(&shape))
}

/// Builds a HyperX; a dimension is (size, cables, rate, delay).
#[pyfunction]
fn hyperx_fabric(
    py: Python<'_>,
    dimensions: Vec<(u32, u32, f64, u64)>,
    nodes_per_switch: u32,
    node_gbps: f64,
    node_delay_ps: u64,
) -> Arrays<'_> {
    let dimensions = dimensions
        .into_iter()
        .map(|(size, cables, gbps, delay_ps)| hyperx::Dimension { size, cables, gbps, delay_ps })
        .collect();
    let shape = hyperx::Shape { dimensions, nodes_per_switch, node_gbps, node_delay_ps };
    finish(py, move || hyperx::build(&shape))
}

/// Builds a dragonfly from (nodes a router, routers, global ports, groups).
#[pyfunction]
fn dragonfly_fabric<'py>(
    py: Python<'py>,
    counts: (u32, u32, u32, u32),
    global_cables: &str,
    gbps: [f64; 3],
    delay_ps: [u64; 3],
) -> Arrays<'py> {
    let (nodes_per_router, routers, global_ports, groups) = counts;
    let arrangement = arrangement(global_cables)?;
    let shape = dragonfly::Shape {
        nodes_per_router,
        routers,
        global_ports,
        groups,
        arrangement,
        gbps,
        delay_ps,
    };
    finish(py, move || dragonfly::build(&shape))
}

/// Builds a dragonfly+ from (nodes a leaf, leaves, spines, global ports, groups).
#[pyfunction]
fn dragonfly_plus_fabric<'py>(
    py: Python<'py>,
    counts: (u32, u32, u32, u32, u32),
    global_cables: &str,
    gbps: [f64; 3],
    delay_ps: [u64; 3],
) -> Arrays<'py> {
    let (nodes_per_leaf, leaves, spines, global_ports, groups) = counts;
    let arrangement = arrangement(global_cables)?;
    let shape = dragonfly_plus::Shape {
        nodes_per_leaf,
        leaves,
        spines,
        global_ports,
        groups,
        arrangement,
        gbps,
        delay_ps,
    };
    finish(py, move || dragonfly_plus::build(&shape))
}

/// Builds Yellowstone from its counts in the order of its shape.
#[pyfunction]
fn yellowstone_fabric(py: Python<'_>, counts: [u32; 10], gbps: f64, delay_ps: u64) -> Arrays<'_> {
    let [
        hosts_per_tor,
        tors_per_group,
        groups,
        directors,
        leaves,
        spines,
        storage_leaves,
        storage_spines,
        servers_per_leaf,
        storage_cables,
    ] = counts;
    let shape = yellowstone::Shape {
        hosts_per_tor,
        tors_per_group,
        groups,
        directors,
        leaves,
        spines,
        storage_leaves,
        storage_spines,
        servers_per_leaf,
        storage_cables,
        gbps,
        delay_ps,
    };
    finish(py, move || yellowstone::build(&shape))
}

/// A routing rule for one network.
#[pyclass(frozen)]
pub struct NetworkRouting {
    pub network: Py<Network>,
    pub plan: RoutePlan,
}

impl NetworkRouting {
    fn make(
        py: Python<'_>,
        network: Py<Network>,
        rule: impl FnOnce(&Fabric) -> Result<RoutingRule, FabricError> + Send,
    ) -> PyResult<Self> {
        let here = network.get();
        let plan =
            py.detach(|| RoutePlan::new(&here.fabric, rule(&here.fabric)?)).map_err(raise)?;
        Ok(Self { network, plan })
    }

    fn check_ends(&self, switch: u32, nodes: &[u32]) -> PyResult<()> {
        let fabric = &self.network.get().fabric;
        if switch >= fabric.n_switches {
            return Err(raise(format!("switch {switch} does not exist")));
        }
        match nodes.iter().find(|&&node| node >= fabric.n_nodes) {
            Some(node) => Err(raise(format!("node {node} does not exist"))),
            None => Ok(()),
        }
    }
}

#[pymethods]
impl NetworkRouting {
    /// The network's own routes: up/down, or forwarding tables.
    #[staticmethod]
    fn of_network(py: Python<'_>, network: Py<Network>) -> PyResult<Self> {
        let routes = network.get().routes.clone();
        Self::make(py, network, |_| Ok(RoutingRule::Table(routes)))
    }

    /// Dimension order on a torus or mesh.
    #[staticmethod]
    fn dimension_order(
        py: Python<'_>,
        network: Py<Network>,
        dims: Vec<u32>,
        tie: &str,
        dateline: bool,
        detour: bool,
    ) -> PyResult<Self> {
        let tie = match tie {
            "positive" => Tie::Positive,
            "negative" => Tie::Negative,
            "parity" => Tie::Parity,
            _ => return Err(raise(format!("tie = {tie:?}; valid: positive, negative, parity"))),
        };
        Self::make(py, network, move |fabric| {
            DimensionOrder::new(fabric, &dims, tie, dateline, detour)
                .map(RoutingRule::DimensionOrder)
        })
    }

    /// Dimension order on a HyperX.
    #[staticmethod]
    fn hyperx(
        py: Python<'_>,
        network: Py<Network>,
        dims: Vec<u32>,
        detour: bool,
    ) -> PyResult<Self> {
        Self::make(py, network, move |fabric| {
            HyperXRouting::new(fabric, &dims, detour).map(RoutingRule::HyperX)
        })
    }

    /// Minimal or Valiant routing on dragonfly and dragonfly+.
    #[staticmethod]
    fn dragonfly(
        py: Python<'_>,
        network: Py<Network>,
        detour: bool,
        lanes: bool,
    ) -> PyResult<Self> {
        Self::make(py, network, move |fabric| {
            DragonflyRouting::new(fabric, detour, lanes).map(RoutingRule::Dragonfly)
        })
    }

    /// Up/down with peer links on the way down, on a k-ary n-tree with peer (horizontal) links.
    #[staticmethod]
    fn peer_links(py: Python<'_>, network: Py<Network>, counts: (u32, u32, u32)) -> PyResult<Self> {
        let (arity, levels, width) = counts;
        Self::make(py, network, move |fabric| {
            PeerLinkRouting::new(fabric, arity, levels, width).map(RoutingRule::PeerLinks)
        })
    }

    /// Number of virtual lanes that the rule needs.
    #[getter]
    fn lanes(&self) -> u8 {
        self.plan.lanes()
    }

    /// Number of detours to draw from, 0 if the rule makes none.
    #[getter]
    fn detours(&self) -> u32 {
        self.plan.detours()
    }

    /// Candidate links at `switch` for `node`, the state after, and the lane.
    fn next(&self, switch: u32, node: u32, via: u32, state: u8) -> PyResult<(Vec<u32>, u8, u8)> {
        self.check_ends(switch, &[node])?;
        if self.plan.node_switch[node as usize] == switch {
            return Err(raise(format!(
                "node {node} is attached to switch {switch}: it has arrived"
            )));
        }
        let fabric = &self.network.get().fabric;
        if !self.plan.has_route(fabric, switch, node) {
            return Ok((Vec::new(), state, 0));
        }
        let step = self.plan.next(switch, node, via, RouteState(state));
        Ok((step.links.to_vec(), step.next.0, step.lane))
    }

    /// The link on which each switch sends packets for `node` by deterministic routing without detours,
    /// when it is the first switch of a route; 2^32 - 1 where there is none.
    fn deterministic_links<'py>(
        &self,
        py: Python<'py>,
        node: u32,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        self.check_ends(0, &[node])?;
        let (fabric, plan) = (&self.network.get().fabric, &self.plan);
        let node_switch = plan.node_switch[node as usize];
        let link = |switch| {
            if switch == node_switch || !plan.has_route(fabric, switch, node) {
                return u32::MAX;
            }
            let step = plan.next(switch, node, u32::MAX, RouteState::START);
            plan.deterministic_link(switch, node, u32::MAX, RouteState::START, &step)
        };
        Ok(PyArray1::from_iter(py, (0..fabric.n_switches).map(link)))
    }

    /// Links and lanes from the switch of `source` to that of `node`. A `via` beyond the detours means a
    /// minimal route; `pick` chooses among candidates.
    fn path(&self, source: u32, node: u32, via: u32, pick: usize) -> PyResult<Vec<(u32, u8)>> {
        self.check_ends(0, &[source, node])?;
        let fabric = &self.network.get().fabric;
        self.plan.path(fabric, source, node, via, |n| pick % n).map_err(raise)
    }

    /// A cyclic channel dependency as (link, lane), empty if there is none.
    fn cycle(&self, py: Python<'_>) -> PyResult<Vec<(u32, u8)>> {
        let fabric = &self.network.get().fabric;
        match py.detach(|| self.plan.check_deadlock_free(fabric)) {
            Ok(()) => Ok(Vec::new()),
            Err(FabricError::Deadlock { cycle }) => Ok(cycle),
            Err(error) => Err(raise(error)),
        }
    }

    /// A network with these routes as a routing table; raises ValueError if they need lanes.
    fn as_network(&self, py: Python<'_>) -> PyResult<Network> {
        let fabric = &self.network.get().fabric;
        let routes = py.detach(|| self.plan.to_table(fabric)).map_err(raise)?;
        Network::assemble(fabric.clone(), routes).map_err(raise)
    }
}

/// The same network with routes from forwarding tables: for each switch and node, switch by switch,
/// the link taken, `2**32 - 1` where the table has no entry. Paths are spread over virtual lanes if
/// they can deadlock on one: as in `like`, an earlier result, if its links and tables are the same.
#[pyfunction]
#[pyo3(signature = (network, forward, like=None))]
fn with_forwarding(
    py: Python<'_>,
    network: Py<Network>,
    forward: PyReadonlyArray1<'_, u32>,
    like: Option<Py<Network>>,
) -> PyResult<Network> {
    let fabric = &network.get().fabric;
    let forward = forward.as_slice()?;
    let made = py.detach(|| -> Result<Network, FabricError> {
        let table = RoutingRule::Table(Routes::forwarding(fabric, forward)?);
        let mut plan = RoutePlan::new(fabric, table)?;
        let like = like.as_ref().map(Py::get);
        if !like.is_some_and(|routed| plan.take_lanes_of(fabric, &routed.plan, &routed.fabric)) {
            plan.spread_over_lanes(fabric)?;
        }
        let routes = plan.to_table(fabric)?;
        Ok(Network { fabric: fabric.clone(), routes, plan })
    });
    made.map_err(raise)
}

/// Adds this file's functions and classes to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<NetworkRouting>()?;
    m.add_function(wrap_pyfunction!(pgft_fabric, m)?)?;
    m.add_function(wrap_pyfunction!(modified_tree_fabric, m)?)?;
    m.add_function(wrap_pyfunction!(torus_fabric, m)?)?;
    m.add_function(wrap_pyfunction!(hyperx_fabric, m)?)?;
    m.add_function(wrap_pyfunction!(dragonfly_fabric, m)?)?;
    m.add_function(wrap_pyfunction!(dragonfly_plus_fabric, m)?)?;
    m.add_function(wrap_pyfunction!(yellowstone_fabric, m)?)?;
    m.add_function(wrap_pyfunction!(with_forwarding, m)?)
}
