//! Runs the packet engine and returns its tables as columns.

use std::cell::RefCell;
use std::ops::ControlFlow;

use numpy::{IntoPyArray, PyArrayMethods as _, PyReadonlyArray1};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailback_engine::probe::{LinkReadings, ProbeTables};
use tailback_engine::{
    Check, Decision, MessageLog, Outcome, Parallelism, Progress, Settings, StepReport, Steps,
};
use tailback_telemetry::Column;

use crate::errors::raise;
use crate::network::Network;
use crate::program::PlacedProgram;
use crate::settings::settings_of;
use crate::table::{array, columns, numbers, rows};
use crate::topologies::NetworkRouting;

/// A `tailback.simulation.repetition.continued.StepChecks`.
#[derive(FromPyObject)]
pub struct StepChecks<'py> {
    bounds: PyReadonlyArray1<'py, u64>,
    count: u32,
    first: (u32, u32),
    decide: Py<PyAny>,
    label_offset: Option<PyReadonlyArray1<'py, u32>>,
}

impl StepChecks<'_> {
    /// As the engine takes them.
    fn read(self) -> PyResult<(Steps, Py<PyAny>)> {
        let bounds = self.bounds.as_slice()?.iter().map(|&bound| bound as usize).collect();
        let (from, at) = self.first;
        let label_offset = self.label_offset.map(|labels| labels.as_slice().map(<[u32]>::to_vec));
        let label_offset = label_offset.transpose()?;
        let first = Check { from, at };
        Ok((Steps { bounds, count: self.count, first, label_offset }, self.decide))
    }
}

/// Simulates `traffic` on `network` by its own routes or those of `routing`. `settings` is a dataclass
/// with the fields of [`Settings`]. `watch(time_ps, delivered, packets, events)` is called
/// regularly; Ctrl-C ends the run with partial results and `complete` false. With `steps`, parts of the
/// program can be left out while it runs, on one thread.
#[pyfunction]
#[pyo3(signature = (network, settings, traffic, *, routing=None, threads=1, watch=None, steps=None))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
pub fn simulate<'py>(
    py: Python<'py>,
    network: &Network,
    settings: &Bound<'py, PyAny>,
    traffic: PlacedProgram<'py>,
    routing: Option<&NetworkRouting>,
    threads: usize,
    watch: Option<Py<PyAny>>,
    steps: Option<StepChecks<'py>>,
) -> PyResult<PacketOutcome> {
    let settings: Settings = settings_of(settings)?;
    let (program, placement) = traffic.read()?;
    let plan = routing.map_or(&network.plan, |routing| &routing.plan);
    let steps = steps.map(StepChecks::read).transpose()?;
    let (result, raised) = py.detach(|| {
        let raised = RefCell::new(None);
        let keep = |error| {
            // Keep the first error: later callbacks may fail only because of it.
            raised.borrow_mut().get_or_insert(error);
        };
        let mut on_progress = |progress: Progress| match report_progress(watch.as_ref(), progress) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                keep(error);
                ControlFlow::Break(())
            }
        };
        let work = Parallelism { threads, shards: None };
        let fabric = &network.fabric;
        if let Some((steps, decide)) = steps {
            let mut on_check = |report| match ask(&decide, report) {
                Ok(decision) => ControlFlow::Continue(decision),
                Err(error) => {
                    keep(error);
                    ControlFlow::Break(())
                }
            };
            let result = tailback_engine::simulate_in_steps(
                fabric,
                plan,
                &settings,
                &program,
                &placement,
                steps,
                &mut on_check,
                &mut on_progress,
            );
            return (result, raised.into_inner());
        }
        let result = tailback_engine::simulate(
            fabric,
            plan,
            &settings,
            &program,
            &placement,
            work,
            &mut on_progress,
        );
        (result, raised.into_inner())
    });
    match (result, raised) {
        // Partial results are kept on Ctrl-C; any other exception of the callback is an
        // error.
        (_, Some(error)) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => Err(error),
        (Ok(outcome), _) => PacketOutcome::of(py, outcome),
        (Err(error), _) => Err(raise(error)),
    }
}

/// Results of a run: totals, and tables as dictionaries of columns.
#[pyclass(frozen, get_all, module = "tailback._core")]
pub struct PacketOutcome {
    packets: u64,
    packet_hops: u64,
    vc_refused: Option<u64>,
    marked_packets: Option<u64>,
    notifications: u64,
    pauses: u64,
    paused_ps: u64,
    events: u64,
    adapters_shared: bool,
    end_ps: u64,
    complete: bool,
    window_ps: u64,
    ranks: Py<PyDict>,
    computations: Py<PyDict>,
    messages: Py<PyDict>,
    samples: Py<PyDict>,
    truth: Py<PyDict>,
    step_truth: Py<PyDict>,
    step_passes: Py<PyDict>,
    counters_ps: u64,
    counters: Py<PyDict>,
    queues_ps: u64,
    queues: Py<PyDict>,
    one_in: u64,
    carried: Py<PyDict>,
}

impl PacketOutcome {
    fn of(py: Python<'_>, outcome: Outcome) -> PyResult<Self> {
        let s = outcome.samples;
        let samples = numbers!(py, s; window, label, link, hop_samples, hop_weight, hop_variance,
            hop_bytes, congested_samples, congested_weight, congested_variance);
        let t = outcome.truth;
        let truth = numbers!(py, t; window, link, packets, bytes, observed_packets,
            congested_packets, observed_congested_packets, busy_ps, stall_ps);
        let t = outcome.step_truth;
        let step_truth = numbers!(py, t; window, link, packets, bytes, observed_packets,
            congested_packets, observed_congested_packets, busy_ps, stall_ps);
        let s = outcome.step_passes;
        let step_passes = numbers!(py, s; window, label, link, hop_samples, congested_samples);
        let messages = message_columns(py, outcome.messages)?;
        let (rank, start): (Vec<u32>, Vec<u64>) = outcome.computations.into_iter().unzip();
        let computations = PyDict::new(py);
        computations.set_item("rank", rank.into_pyarray(py))?;
        computations.set_item("start_ps", start.into_pyarray(py))?;
        let end_ps = outcome.end_ps;
        let carried = carried(py, &outcome.probed)?;
        let ProbeTables { counters_ps, counters, queues_ps, queues, one_in, .. } = outcome.probed;
        let counted = ["data_bytes", "packets", "busy_ps", "stall_ps", "queue_ps", "inq_ps"];
        let queued = ["waiting_bytes", "booked_bytes", "packets"];
        Ok(Self {
            packets: outcome.packets,
            packet_hops: outcome.packet_hops,
            vc_refused: Some(outcome.refused),
            marked_packets: Some(outcome.marked),
            notifications: outcome.notifications,
            pauses: outcome.pauses,
            paused_ps: outcome.paused_ps,
            events: outcome.events,
            adapters_shared: outcome.adapters_shared,
            end_ps,
            complete: outcome.complete,
            window_ps: outcome.window_ps,
            ranks: rows!(py, outcome.ranks; finish_ps, compute_ps, wait_ps).unbind(),
            computations: computations.unbind(),
            messages: messages.unbind(),
            samples: samples.unbind(),
            truth: truth.unbind(),
            step_truth: step_truth.unbind(),
            step_passes: step_passes.unbind(),
            counters_ps,
            counters: readings_table(py, &counted, counters, (counters_ps, end_ps))?,
            queues_ps,
            queues: readings_table(py, &queued, queues, (queues_ps, end_ps))?,
            one_in,
            carried,
        })
    }
}

/// The message log as a dictionary of columns.
fn message_columns(py: Python<'_>, m: MessageLog) -> PyResult<Bound<'_, PyDict>> {
    let messages =
        columns!(py, m; label, post_ps, start_ps, arrival_ps, packets, arrived, switch_hops);
    messages.set_item("src_rank", m.src.into_pyarray(py))?;
    messages.set_item("dst_rank", m.dst.into_pyarray(py))?;
    messages.set_item("size_bytes", m.bytes.into_pyarray(py))?;
    Ok(messages)
}

/// Asks Python which steps to leave out. The callback returns the first of these steps, the step
/// after the last, and the next check or None.
fn ask(decide: &Py<PyAny>, report: StepReport) -> PyResult<Decision> {
    Python::attach(|py| {
        let messages = message_columns(py, report.messages)?;
        let t = report.traffic;
        let traffic = numbers!(py, t; window, link, packets, bytes, observed_packets,
            congested_packets, observed_congested_packets, busy_ps, stall_ps);
        let answer = decide.call1(py, (report.rank_step.into_pyarray(py), messages, traffic))?;
        let (begin, end, next): (u32, u32, Option<(u32, u32)>) = answer.extract(py)?;
        Ok(Decision { skip: begin..end, next: next.map(|(from, at)| Check { from, at }) })
    })
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

/// Readings as a dictionary of arrays by name; the last reading is at the end of the run.
fn readings_table<T>(
    py: Python<'_>,
    names: &[&str],
    rows: LinkReadings<T>,
    (interval, end): (u64, u64),
) -> PyResult<Py<PyDict>> {
    let mut time = Column::default();
    time.extend(rows.instant.iter().map(|instant| instant.saturating_mul(interval).min(end)));
    let table = PyDict::new(py);
    table.set_item("time_ps", array(py, time))?;
    table.set_item("link", array(py, rows.link))?;
    for (name, column) in names.iter().zip(rows.numbers) {
        table.set_item(name, array(py, column))?;
    }
    Ok(table.unbind())
}

/// The table of recorded packets, which may be empty.
fn carried(py: Python<'_>, probed: &ProbeTables) -> PyResult<Py<PyDict>> {
    let p = &probed.packets;
    let columns: [(&str, Vec<u64>); 10] = [
        ("packet", p.iter().map(|record| record.packet).collect()),
        ("sequence", p.iter().map(|record| record.psn.into()).collect()),
        ("queue_pair", p.iter().map(|record| record.queue_pair.into()).collect()),
        ("time_ps", p.iter().map(|record| record.time_ps).collect()),
        ("src_node", p.iter().map(|record| record.src.into()).collect()),
        ("dst_node", p.iter().map(|record| record.dst.into()).collect()),
        ("label", p.iter().map(|record| record.label.into()).collect()),
        ("size_bytes", p.iter().map(|record| record.bytes.into()).collect()),
        ("hops", p.iter().map(|record| record.hops.into()).collect()),
        ("header", p.iter().map(|record| record.header).collect()),
    ];
    let table = PyDict::new(py);
    for (name, column) in columns {
        table.set_item(name, column.into_pyarray(py))?;
    }
    if !probed.reservoirs.is_empty() {
        let each = probed.reservoirs.len() / p.len();
        let links = probed.reservoirs.clone().into_pyarray(py);
        table.set_item("links", links.reshape([p.len(), each])?)?;
    }
    Ok(table.unbind())
}
