//! OTF2 traces for Python: columns as NumPy arrays, errors as `(message, file, place)`.

use std::path::PathBuf;

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tailback_trace::{Calls, Definitions, LocationEvents, Messages, Paths, Trace, TraceError};

/// Adds the OTF2 functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(read_otf2, m)?)
}

/// Reads the OTF2 archive of `anchor` with the OTF2 library at `library` on `threads` threads.
///
/// Returns a dictionary: `creator`, `definitions` and `locations`, the last a list of dictionaries
/// of columns. Raises ValueError with the arguments `(message, file, place)`.
#[pyfunction]
fn read_otf2<'py>(
    py: Python<'py>,
    library: PathBuf,
    anchor: PathBuf,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let trace =
        py.detach(|| tailback_trace::read(&library, &anchor, threads)).map_err(value_error)?;
    convert(py, trace)
}

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
    out.set_item("n_ranks", from.n_ranks)?;
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
    let Calls { region, enter, leave, paused, enter_event, leave_event } = from.calls;
    let calls = PyDict::new(py);
    calls.set_item("region", region.into_pyarray(py))?;
    calls.set_item("enter", enter.into_pyarray(py))?;
    calls.set_item("leave", leave.into_pyarray(py))?;
    calls.set_item("paused", paused.into_pyarray(py))?;
    calls.set_item("enter_event", enter_event.into_pyarray(py))?;
    calls.set_item("leave_event", leave_event.into_pyarray(py))?;
    out.set_item("calls", calls)?;
    let m: Messages = from.messages;
    let messages = PyDict::new(py);
    messages.set_item("kind", m.kind.into_pyarray(py))?;
    messages.set_item("time", m.time.into_pyarray(py))?;
    messages.set_item("event", m.event.into_pyarray(py))?;
    messages.set_item("call", m.call.into_pyarray(py))?;
    messages.set_item("phase", m.phase.into_pyarray(py))?;
    messages.set_item("path", m.path.into_pyarray(py))?;
    messages.set_item("peer", m.peer.into_pyarray(py))?;
    messages.set_item("comm", m.comm.into_pyarray(py))?;
    messages.set_item("tag", m.tag.into_pyarray(py))?;
    messages.set_item("bytes", m.bytes.into_pyarray(py))?;
    messages.set_item("received", m.received.into_pyarray(py))?;
    messages.set_item("posted", m.posted.into_pyarray(py))?;
    out.set_item("messages", messages)?;
    let Paths { parent, region, site } = from.paths;
    let paths = PyDict::new(py);
    paths.set_item("parent", parent.into_pyarray(py))?;
    paths.set_item("region", region.into_pyarray(py))?;
    paths.set_item("site", site.into_pyarray(py))?;
    out.set_item("paths", paths)?;
    Ok(out)
}
