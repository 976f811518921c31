//! Runs a program and hands back its columns.

use std::ops::ControlFlow;

use numpy::IntoPyArray;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailback_engine::probe::{ProbeTables, Rows};
use tailback_engine::{Outcome, Parallelism, Placement, Program, Progress, Settings};

use tailback_telemetry::Column;

use crate::errors::raise;
use crate::network::Network;
use crate::program::{Columns, PlacementRows, placement_of, program_of};
use crate::table::{array, columns, numbers, rows};
use crate::topologies::Routing;

/// Simulates on `network` by its own routes or those of `routing`; `program` is (rank_start, kind,
/// peer, amount, tag, request, label), `placement` is (node, host, start_ps), `settings` is JSON,
/// `watch(time_ps, delivered, packets, events)` is called now and then; Ctrl-C ends the run with what
/// there is, `complete` false. `label_service` is the service level of each label, `pace_mbps` the pace
/// of each operation; empty for none. Returns a dictionary of columns and figures.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
#[pyo3(signature = (network, settings, program, placement, label_observed, watch=None, routing=None,
    threads=1, label_service=Vec::new(), pace_mbps=Vec::new()))]
pub fn simulate<'py>(
    py: Python<'py>,
    network: &Network,
    settings: &str,
    program: Columns<'py>,
    placement: PlacementRows<'py>,
    label_observed: Vec<bool>,
    watch: Option<Py<PyAny>>,
    routing: Option<&Routing>,
    threads: usize,
    label_service: Vec<u8>,
    pace_mbps: Vec<u32>,
) -> PyResult<Bound<'py, PyDict>> {
    let settings: Settings = serde_json::from_str(settings).map_err(raise)?;
    let program = Program { pace_mbps, ..program_of(&program)? };
    let placement = Placement { label_observed, label_service, ..placement_of(&placement)? };
    let plan = routing.map_or(&network.plan, |routing| &routing.plan);
    let mut raised: Option<PyErr> = None;
    let result = py.detach(|| {
        let mut look = |progress: Progress| match report_progress(watch.as_ref(), progress) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                raised = Some(error);
                ControlFlow::Break(())
            }
        };
        let work = Parallelism { threads, shards: None };
        let fabric = &network.fabric;
        tailback_engine::simulate(fabric, plan, &settings, &program, &placement, work, &mut look)
    });
    match (result, raised) {
        // Partial results are kept on Ctrl-C; any other exception of the callback is an
        // error.
        (_, Some(error)) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => Err(error),
        (Ok(outcome), _) => tables(py, outcome),
        (Err(error), _) => Err(raise(error)),
    }
}

/// Lets Python handle signals and calls the progress callback, if there is one.
fn report_progress(watch: Option<&Py<PyAny>>, progress: Progress) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        if let Some(watch) = watch {
            let Progress { time_ps, delivered, packets, events } = progress;
            watch.call1(py, (time_ps, delivered, packets, events))?;
        }
        Ok(())
    })
}

/// A table of whole numbers.
fn table<'py>(py: Python<'py>, columns: Vec<(&str, Vec<u64>)>) -> PyResult<Bound<'py, PyDict>> {
    let table = PyDict::new(py);
    for (name, column) in columns {
        table.set_item(name, column.into_pyarray(py))?;
    }
    Ok(table)
}

fn tables<'py>(py: Python<'py>, outcome: Outcome) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("packets", outcome.packets)?;
    out.set_item("packet_hops", outcome.packet_hops)?;
    out.set_item("vc_refused", outcome.refused)?;
    out.set_item("marked_packets", outcome.marked)?;
    out.set_item("events", outcome.events)?;
    out.set_item("end_ps", outcome.end_ps)?;
    out.set_item("complete", outcome.complete)?;
    out.set_item("window_ps", outcome.window_ps)?;
    probed(py, &out, outcome.probed, outcome.end_ps)?;
    let s = outcome.samples;
    let samples = numbers!(py, s; window, label, link, hop_samples, hop_weight, hop_variance,
        hop_bytes, congested_samples, congested_weight, congested_variance);
    out.set_item("samples", samples)?;
    let t = outcome.truth;
    let truth = numbers!(py, t; window, link, packets, bytes, observed_packets, congested_packets,
        observed_congested_packets, busy_ps, stall_ps);
    out.set_item("truth", truth)?;
    out.set_item("ranks", rows!(py, outcome.ranks; finish_ps, compute_ps, wait_ps))?;
    let m = outcome.messages;
    let messages =
        columns!(py, m; label, post_ps, start_ps, arrival_ps, packets, arrived, switch_hops);
    messages.set_item("src_rank", m.src.into_pyarray(py))?;
    messages.set_item("dst_rank", m.dst.into_pyarray(py))?;
    messages.set_item("size_bytes", m.bytes.into_pyarray(py))?;
    out.set_item("messages", messages)?;
    Ok(out)
}

/// Rows as a dictionary of arrays, each of the numbers under its name; the last instant is the end of
/// the run.
fn in_columns<'py, T>(
    py: Python<'py>,
    names: &[&str],
    rows: Rows<T>,
    (interval, end): (u64, u64),
) -> PyResult<Bound<'py, PyDict>> {
    let mut time = Column::default();
    time.extend(rows.instant.iter().map(|instant| instant.saturating_mul(interval).min(end)));
    let table = PyDict::new(py);
    table.set_item("time_ps", array(py, time))?;
    table.set_item("link", array(py, rows.link))?;
    for (name, column) in names.iter().zip(rows.numbers) {
        table.set_item(name, array(py, column))?;
    }
    Ok(table)
}

/// Tables of the optional probes; empty for those that are off.
fn probed(
    py: Python<'_>,
    out: &Bound<'_, PyDict>,
    probed: ProbeTables,
    end_ps: u64,
) -> PyResult<()> {
    let ProbeTables { counters_ps, counters, queues_ps, queues, .. } = probed;
    let names = ["data_bytes", "packets", "busy_ps", "stall_ps", "queue_ps", "inq_ps"];
    out.set_item("counters_ps", counters_ps)?;
    out.set_item("counters", in_columns(py, &names, counters, (counters_ps, end_ps))?)?;
    let names = ["waiting_bytes", "booked_bytes", "packets"];
    out.set_item("queues_ps", queues_ps)?;
    out.set_item("queues", in_columns(py, &names, queues, (queues_ps, end_ps))?)?;
    let p = &probed.packets;
    let carried = vec![
        ("packet", p.iter().map(|record| record.packet).collect()),
        ("time_ps", p.iter().map(|record| record.time_ps).collect()),
        ("src_node", p.iter().map(|record| record.src.into()).collect()),
        ("dst_node", p.iter().map(|record| record.dst.into()).collect()),
        ("label", p.iter().map(|record| record.label.into()).collect()),
        ("size_bytes", p.iter().map(|record| record.bytes.into()).collect()),
        ("hops", p.iter().map(|record| record.hops.into()).collect()),
        ("header", p.iter().map(|record| record.header).collect()),
    ];
    out.set_item("one_in", probed.one_in)?;
    out.set_item("carried", table(py, carried)?)
}
