//! Rank programs and placements from columns.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use tailback_program::{Placement, Program};

use crate::errors::raise;

/// A `tailback.traffic.program.Program`.
#[derive(FromPyObject)]
pub struct ProgramColumns<'py> {
    rank_start: PyReadonlyArray1<'py, u64>,
    kind: PyReadonlyArray1<'py, u8>,
    peer: PyReadonlyArray1<'py, i32>,
    amount: PyReadonlyArray1<'py, u64>,
    tag: PyReadonlyArray1<'py, i64>,
    request: PyReadonlyArray1<'py, i32>,
    label: PyReadonlyArray1<'py, u32>,
}

/// A `tailback.traffic.program.PlacedProgram`.
#[derive(FromPyObject)]
pub struct PlacedProgram<'py> {
    program: ProgramColumns<'py>,
    node: PyReadonlyArray1<'py, u32>,
    host: PyReadonlyArray1<'py, u32>,
    local_gbps: PyReadonlyArray1<'py, f64>,
    start_ps: PyReadonlyArray1<'py, u64>,
    label_observed: Vec<bool>,
    label_service: Vec<u8>,
    label_step: Vec<u32>,
    pace_mbps: Option<PyReadonlyArray1<'py, u32>>,
}

impl ProgramColumns<'_> {
    /// As the crates take it, without pacing rates.
    fn read(self) -> PyResult<Program> {
        let Self { rank_start, kind, peer, amount, tag, request, label } = self;
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
}

/// Label of the receive that each message of `program` meets, by sending rank and operation.
#[pyfunction]
pub fn receive_labels<'py>(
    py: Python<'py>,
    program: ProgramColumns<'py>,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let program = program.read()?;
    let labels = py.detach(|| program.receive_labels()).map_err(raise)?;
    Ok(labels.into_pyarray(py))
}

impl PlacedProgram<'_> {
    /// As the crates take it.
    pub fn read(self) -> PyResult<(Program, Placement)> {
        let pace_mbps = self.pace_mbps.map(|pace| pace.as_slice().map(<[u32]>::to_vec));
        let pace_mbps = pace_mbps.transpose()?.unwrap_or_default();
        let program = Program { pace_mbps, ..self.program.read()? };
        let placement = Placement {
            node: self.node.as_slice()?.to_vec(),
            host: self.host.as_slice()?.to_vec(),
            local_gbps: self.local_gbps.as_slice()?.to_vec(),
            start_ps: self.start_ps.as_slice()?.to_vec(),
            label_observed: self.label_observed,
            label_service: self.label_service,
            label_step: self.label_step,
        };
        Ok((program, placement))
    }
}
