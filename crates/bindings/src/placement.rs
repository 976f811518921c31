//! Improvement of partitions for Python.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use tailback_placement::{Limits, Parts, TrafficGraph};

use crate::errors::raise;

/// (start, neighbour, weight) of `tailback.placement.graph.Graph`.
type GraphColumns<'py> =
    (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, f64>);

/// Adds the functions of placements to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(improve_partition, m)?)
}

/// Part of each vertex after swaps between parts, and how many were made. `limits` are depth,
/// partners and rounds.
#[pyfunction]
#[pyo3(signature = (graph, part, n_parts, *, limits, group=None, kind=None))]
fn improve_partition<'py>(
    py: Python<'py>,
    graph: GraphColumns<'py>,
    part: PyReadonlyArray1<'py, i64>,
    n_parts: usize,
    limits: (usize, usize, usize),
    group: Option<PyReadonlyArray1<'py, i64>>,
    kind: Option<PyReadonlyArray1<'py, i64>>,
) -> PyResult<(Bound<'py, PyArray1<i64>>, u64)> {
    let graph = TrafficGraph::new(graph.0.as_slice()?, graph.1.as_slice()?, graph.2.as_slice()?);
    let graph = graph.map_err(raise)?;
    let parts = Parts {
        part: part.as_slice()?,
        n_parts,
        group: group.as_ref().map(|group| group.as_slice()).transpose()?,
        kind: kind.as_ref().map(|kind| kind.as_slice()).transpose()?,
    };
    let limits = Limits { depth: limits.0, partners: limits.1, rounds: limits.2 };
    let improved =
        py.detach(|| tailback_placement::improve(&graph, parts, limits)).map_err(raise)?;
    Ok((improved.part.into_pyarray(py), improved.swaps))
}
