//! Runs a program and hands back its columns.

use std::ops::ControlFlow;

use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailback_engine::{EngineError, Outcome, Placement, Program, Progress, Settings};

use crate::network::{Network, raise};
use crate::topologies::Routing;

type Columns<'py> = (
    PyReadonlyArray1<'py, u64>,
    PyReadonlyArray1<'py, u8>,
    PyReadonlyArray1<'py, i32>,
    PyReadonlyArray1<'py, u64>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i32>,
    PyReadonlyArray1<'py, u32>,
);

/// Simulates on `network` by its own routes or those of `routing`; `program` is (rank_start, kind, peer, amount, tag, request, label), `placement` is
/// (node, host, start_ps), `settings` is JSON, `watch(time_ps, delivered, packets, events)` is
/// called now and then. Returns a dictionary of columns and figures.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (network, settings, program, placement, label_observed, watch=None, routing=None))]
pub fn simulate<'py>(
    py: Python<'py>,
    network: &Network,
    settings: &str,
    program: Columns<'py>,
    placement: (PyReadonlyArray1<'py, u32>, PyReadonlyArray1<'py, u32>, PyReadonlyArray1<'py, u64>),
    label_observed: Vec<bool>,
    watch: Option<Py<PyAny>>,
    routing: Option<&Routing>,
) -> PyResult<Bound<'py, PyDict>> {
    let settings: Settings = serde_json::from_str(settings).map_err(raise)?;
    let program = Program {
        rank_start: program.0.as_slice()?.to_vec(),
        kind: program.1.as_slice()?.to_vec(),
        peer: program.2.as_slice()?.to_vec(),
        amount: program.3.as_slice()?.to_vec(),
        tag: program.4.as_slice()?.to_vec(),
        request: program.5.as_slice()?.to_vec(),
        label: program.6.as_slice()?.to_vec(),
    };
    let placement = Placement {
        node: placement.0.as_slice()?.to_vec(),
        host: placement.1.as_slice()?.to_vec(),
        start_ps: placement.2.as_slice()?.to_vec(),
        label_observed,
    };
    let plan = routing.map_or(&network.plan, |routing| &routing.plan);
    let mut raised: Option<PyErr> = None;
    let result = py.detach(|| {
        let mut look = |progress: Progress| match tell(watch.as_ref(), progress) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                raised = Some(error);
                ControlFlow::Break(())
            }
        };
        tailback_engine::simulate(&network.fabric, plan, &settings, &program, &placement, &mut look)
    });
    match result {
        Ok(outcome) => columns(py, outcome),
        Err(EngineError::Interrupted) => {
            Err(raised.unwrap_or_else(|| PyKeyboardInterrupt::new_err("interrupted")))
        }
        Err(error) => Err(raise(error)),
    }
}

/// Lets Python see signals and, if there is one, calls the watcher.
fn tell(watch: Option<&Py<PyAny>>, progress: Progress) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        if let Some(watch) = watch {
            let Progress { time_ps, delivered, packets, events } = progress;
            watch.call1(py, (time_ps, delivered, packets, events))?;
        }
        Ok(())
    })
}

fn columns<'py>(py: Python<'py>, outcome: Outcome) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("packets", outcome.packets)?;
    out.set_item("packet_hops", outcome.packet_hops)?;
    out.set_item("events", outcome.events)?;
    out.set_item("end_ps", outcome.end_ps)?;
    out.set_item("window_ps", outcome.window_ps)?;
    let messages = PyDict::new(py);
    messages.set_item("src_rank", outcome.messages.src.into_pyarray(py))?;
    messages.set_item("dst_rank", outcome.messages.dst.into_pyarray(py))?;
    messages.set_item("size_bytes", outcome.messages.bytes.into_pyarray(py))?;
    messages.set_item("label", outcome.messages.label.into_pyarray(py))?;
    messages.set_item("post_ps", outcome.messages.post_ps.into_pyarray(py))?;
    messages.set_item("start_ps", outcome.messages.start_ps.into_pyarray(py))?;
    messages.set_item("arrival_ps", outcome.messages.arrival_ps.into_pyarray(py))?;
    messages.set_item("packets", outcome.messages.packets.into_pyarray(py))?;
    messages.set_item("switch_hops", outcome.messages.switch_hops.into_pyarray(py))?;
    out.set_item("messages", messages)?;
    let table = |rows: Vec<(&str, Vec<u64>)>| -> PyResult<Bound<'py, PyDict>> {
        let table = PyDict::new(py);
        for (name, column) in rows {
            table.set_item(name, column.into_pyarray(py))?;
        }
        Ok(table)
    };
    let r = &outcome.ranks;
    out.set_item(
        "ranks",
        table(vec![
            ("finish_ps", r.iter().map(|rank| rank.finish_ps).collect()),
            ("compute_ps", r.iter().map(|rank| rank.compute_ps).collect()),
            ("wait_ps", r.iter().map(|rank| rank.wait_ps).collect()),
        ])?,
    )?;
    let s = &outcome.samples;
    out.set_item(
        "samples",
        table(vec![
            ("window", s.iter().map(|(key, _)| key.window.into()).collect()),
            ("label", s.iter().map(|(key, _)| key.label.into()).collect()),
            ("link", s.iter().map(|(key, _)| key.link.into()).collect()),
            ("hop_samples", s.iter().map(|(_, sums)| sums.hop_samples).collect()),
            ("hop_weight", s.iter().map(|(_, sums)| sums.hop_weight).collect()),
            ("hop_variance", s.iter().map(|(_, sums)| sums.hop_variance).collect()),
            ("hop_bytes", s.iter().map(|(_, sums)| sums.hop_bytes).collect()),
            ("congested_samples", s.iter().map(|(_, sums)| sums.congested_samples).collect()),
            ("congested_weight", s.iter().map(|(_, sums)| sums.congested_weight).collect()),
            ("congested_variance", s.iter().map(|(_, sums)| sums.congested_variance).collect()),
        ])?,
    )?;
    let t = &outcome.truth;
    out.set_item(
        "truth",
        table(vec![
            ("window", t.iter().map(|(window, ..)| (*window).into()).collect()),
            ("link", t.iter().map(|(_, link, _)| (*link).into()).collect()),
            ("packets", t.iter().map(|(.., truth)| truth.packets.into()).collect()),
            ("bytes", t.iter().map(|(.., truth)| truth.bytes).collect()),
            (
                "observed_packets",
                t.iter().map(|(.., truth)| truth.observed_packets.into()).collect(),
            ),
            (
                "congested_packets",
                t.iter().map(|(.., truth)| truth.congested_packets.into()).collect(),
            ),
            (
                "observed_congested_packets",
                t.iter().map(|(.., truth)| truth.observed_congested_packets.into()).collect(),
            ),
            ("busy_ps", t.iter().map(|(.., truth)| truth.busy_ps).collect()),
            ("stall_ps", t.iter().map(|(.., truth)| truth.stall_ps).collect()),
        ])?,
    )?;
    Ok(out)
}
