//! OTF2 traces for Python: columns as NumPy arrays, errors as `(message, file, place)`.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tailback_trace::{Definitions, LocationEvents, SystemNode, Trace, TraceError};

use crate::table::columns;

/// Adds the OTF2 functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(read_otf2, m)?)
}

/// Reads the OTF2 archive of `anchor` with the OTF2 library at `library` on `threads` threads; calls
/// `progress` now and then with the share of locations that have been read.
///
/// Returns a dictionary: `creator`, `definitions` and `locations`, the last a list of dictionaries
/// of columns. Raises ValueError with the arguments `(message, file, place)`.
#[pyfunction]
fn read_otf2<'py>(
    py: Python<'py>,
    library: PathBuf,
    anchor: PathBuf,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (last, raised) = (Mutex::new(None::<Instant>), Mutex::new(None));
    let report = |done: usize, total: usize| {
        let Some(progress) = &progress else { return };
        // Another thread that reports right now is enough.
        let Ok(mut last) = last.try_lock() else { return };
        if last.is_some_and(|last| last.elapsed() < REPORT_EVERY) {
            return;
        }
        *last = Some(Instant::now());
        let share = done as f64 / total as f64;
        if let Err(error) = Python::attach(|py| progress.call1(py, (share,)).map(drop))
            && let Ok(mut raised) = raised.lock()
        {
            *raised = Some(error);
        }
    };
    let trace = py.detach(|| tailback_trace::read(&library, &anchor, threads, &report));
    if let Some(error) = raised.into_inner().ok().flatten() {
        return Err(error);
    }
    convert(py, trace.map_err(value_error)?)
}

/// Least time between two reports of progress: short enough for a bar that moves.
const REPORT_EVERY: Duration = Duration::from_millis(100);

fn value_error(error: TraceError) -> PyErr {
    PyValueError::new_err((error.reason().to_owned(), error.file().clone(), error.place()))
}

fn convert(py: Python<'_>, trace: Trace) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("creator", trace.creator)?;
    out.set_item("definitions", definitions(py, &trace.definitions)?)?;
    let locations = PyList::empty(py);
    for location in trace.locations {
        locations.append(location_columns(py, location)?)?;
    }
    out.set_item("locations", locations)?;
    Ok(out)
}

fn definitions<'py>(py: Python<'py>, from: &Definitions) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("ticks_per_second", from.ticks_per_second)?;
    out.set_item("start", from.start)?;
    out.set_item("length", from.length)?;
    out.set_item("realtime_ns", from.realtime_ns)?;
    out.set_item("n_ranks", from.n_ranks)?;
    let node = |at: &SystemNode| (at.name.clone(), at.class.clone());
    let system: Vec<Vec<(String, String)>> =
        from.system.iter().map(|path| path.iter().map(node).collect()).collect();
    out.set_item("system", system)?;
    out.set_item("locations", from.locations.clone())?;
    out.set_item("regions", from.regions.clone())?;
    out.set_item("region_lines", from.region_lines.clone())?;
    out.set_item("sites", from.sites.clone())?;
    let communicators = PyDict::new(py);
    for (id, communicator) in &from.communicators {
        let one = PyDict::new(py);
        one.set_item("name", &communicator.name)?;
        one.set_item("members", PyArray1::from_slice(py, &communicator.members))?;
        let remote = communicator.remote.as_ref();
        one.set_item("remote", remote.map(|ranks| PyArray1::from_slice(py, ranks)))?;
        one.set_item("is_self", communicator.is_self)?;
        communicators.set_item(id, one)?;
    }
    out.set_item("communicators", communicators)?;
    let cartesian: Vec<(u32, Vec<u32>)> =
        from.cartesian.iter().map(|grid| (grid.comm, grid.extents.clone())).collect();
    out.set_item("cartesian", cartesian)?;
    Ok(out)
}

fn location_columns(py: Python<'_>, from: LocationEvents) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("location", from.location)?;
    out.set_item("records", from.records)?;
    out.set_item("enters", from.enters)?;
    out.set_item("leaves", from.leaves)?;
    let (calls, messages, paths) = (from.calls, from.messages, from.paths);
    let calls = columns!(py, calls; region, enter, leave, paused, enter_event, leave_event,
        path);
    out.set_item("calls", calls)?;
    let messages = columns!(py, messages; kind, time, event, call, phase, path, peer, comm, tag,
        bytes, received, request, message, posted, probed);
    out.set_item("messages", messages)?;
    let offsets: Vec<(u64, i64)> =
        from.clock_offsets.iter().map(|at| (at.time, at.offset)).collect();
    out.set_item("clock_offsets", offsets)?;
    out.set_item("paths", columns!(py, paths; parent, region, site))?;
    Ok(out)
}
