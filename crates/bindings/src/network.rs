//! Fabrics and routes.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailback_fabric::fat_tree::{Shape, build};
use tailback_fabric::{Fabric, FabricError, RoutePlan, Routes, RoutingRule};

use crate::errors::raise;
use crate::table::columns;

/// A fabric with its routes, ready to simulate on.
#[pyclass(frozen)]
pub struct Network {
    pub fabric: Fabric,
    pub routes: Routes,
    /// The same routes, as the engine takes them.
    pub plan: RoutePlan,
}

impl Network {
    pub fn assemble(fabric: Fabric, routes: Routes) -> Result<Self, FabricError> {
        let plan = RoutePlan::new(&fabric, RoutingRule::Table(routes.clone()))?;
        Ok(Self { fabric, routes, plan })
    }
}

#[pymethods]
impl Network {
    /// From the arrays of a fabric whose links are sorted by source vertex and port. `among` lists
    /// the nodes that will communicate, by default all.
    #[new]
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (n_nodes, *, switch_tier, switch_pod, link_src, link_dst, link_src_port,
        link_dst_port, link_gbps, link_delay_ps, link_reverse, among=None))]
    fn new(
        py: Python<'_>,
        n_nodes: u32,
        switch_tier: PyReadonlyArray1<'_, i32>,
        switch_pod: PyReadonlyArray1<'_, i32>,
        link_src: PyReadonlyArray1<'_, u32>,
        link_dst: PyReadonlyArray1<'_, u32>,
        link_src_port: PyReadonlyArray1<'_, u32>,
        link_dst_port: PyReadonlyArray1<'_, u32>,
        link_gbps: PyReadonlyArray1<'_, f64>,
        link_delay_ps: PyReadonlyArray1<'_, u64>,
        link_reverse: PyReadonlyArray1<'_, u32>,
        among: Option<PyReadonlyArray1<'_, u32>>,
    ) -> PyResult<Self> {
        let fabric = Fabric {
            n_nodes,
            n_switches: switch_tier.len()? as u32,
            switch_tier: switch_tier.as_slice()?.to_vec(),
            switch_pod: switch_pod.as_slice()?.to_vec(),
            link_src: link_src.as_slice()?.to_vec(),
            link_dst: link_dst.as_slice()?.to_vec(),
            link_src_port: link_src_port.as_slice()?.to_vec(),
            link_dst_port: link_dst_port.as_slice()?.to_vec(),
            link_gbps: link_gbps.as_slice()?.to_vec(),
            link_delay_ps: link_delay_ps.as_slice()?.to_vec(),
            link_reverse: link_reverse.as_slice()?.to_vec(),
            out_start: Vec::new(),
        };
        let among = match among {
            Some(nodes) => nodes.as_slice()?.to_vec(),
            None => (0..n_nodes).collect(),
        };
        if let Some(node) = among.iter().find(|&&node| node >= n_nodes) {
            return Err(raise(format!("node is {node}; valid: below {n_nodes}")));
        }
        let made = py.detach(|| -> Result<Self, FabricError> {
            let fabric = fabric.index()?;
            let routes = Routes::up_down_among(&fabric, &among)?;
            Self::assemble(fabric, routes)
        });
        made.map_err(raise)
    }

    /// Number of virtual lanes that the routes need.
    #[getter]
    fn lanes(&self) -> u8 {
        self.plan.lanes()
    }
}

/// Builds a fat tree; returns its arrays by name.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (*, hosts_per_leaf, leaves, aggregation, pods, cores, leaf_cables,
    aggregation_uplinks, gbps, delay_ps))]
pub fn fat_tree<'py>(
    py: Python<'py>,
    hosts_per_leaf: u32,
    leaves: u32,
    aggregation: u32,
    pods: u32,
    cores: u32,
    leaf_cables: u32,
    aggregation_uplinks: u32,
    gbps: [f64; 3],
    delay_ps: [u64; 3],
) -> PyResult<Bound<'py, PyDict>> {
    let shape = Shape {
        hosts_per_leaf,
        leaves,
        aggregation,
        pods,
        cores,
        leaf_cables,
        aggregation_uplinks,
        gbps,
        delay_ps,
    };
    let fabric = py.detach(|| build(&shape)).map_err(raise)?;
    arrays(py, fabric)
}

/// The arrays of a fabric by name.
pub(crate) fn arrays(py: Python<'_>, fabric: Fabric) -> PyResult<Bound<'_, PyDict>> {
    let arrays = columns!(py, fabric; switch_tier, switch_pod, link_src, link_dst, link_src_port,
        link_dst_port, link_gbps, link_delay_ps, link_reverse);
    arrays.set_item("n_nodes", fabric.n_nodes)?;
    Ok(arrays)
}
