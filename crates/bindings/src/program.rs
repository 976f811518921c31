//! Rank programs and placements from columns.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use tailback_program::{Placement, Program};

/// (rank_start, kind, peer, amount, tag, request, label) of `tailback.traffic.program.Program`.
pub type Columns<'py> = (
    PyReadonlyArray1<'py, u64>,
    PyReadonlyArray1<'py, u8>,
    PyReadonlyArray1<'py, i32>,
    PyReadonlyArray1<'py, u64>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i32>,
    PyReadonlyArray1<'py, u32>,
);

/// (node, host, start_ps) of each rank.
pub type PlacementRows<'py> =
    (PyReadonlyArray1<'py, u32>, PyReadonlyArray1<'py, u32>, PyReadonlyArray1<'py, u64>);

/// A program without paces.
pub fn program_of(columns: &Columns<'_>) -> PyResult<Program> {
    let (rank_start, kind, peer, amount, tag, request, label) = columns;
    Ok(Program {
        rank_start: rank_start.as_slice()?.to_vec(),
        kind: kind.as_slice()?.to_vec(),
        peer: peer.as_slice()?.to_vec(),
        amount: amount.as_slice()?.to_vec(),
        tag: tag.as_slice()?.to_vec(),
        request: request.as_slice()?.to_vec(),
        label: label.as_slice()?.to_vec(),
        pace_mbps: Vec::new(),
    })
}

/// A placement without labels.
pub fn placement_of(places: &PlacementRows<'_>) -> PyResult<Placement> {
    let (node, host, start_ps) = places;
    Ok(Placement {
        node: node.as_slice()?.to_vec(),
        host: host.as_slice()?.to_vec(),
        start_ps: start_ps.as_slice()?.to_vec(),
        ..Placement::default()
    })
}
