//! Captures for Python: columns as NumPy arrays, errors as `(message, file, offset, remedy)`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tailback_capture::{Address, CaptureError, CaptureLog, FileSummary};

use crate::table::columns;

/// Adds the reader of captures to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(read_captures, m)?)
}

/// Reads captures in order and keeps at most `most` packets, those of TCP only if `tcp`.
///
/// Returns a dictionary: `packets` (columns), `addresses` (a local id or IP address by number),
/// `one_in`, and `files`, a dictionary for each. Raises ValueError with the arguments
/// `(message, index of the file, offset, remedy)`.
#[pyfunction]
fn read_captures(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    most: usize,
    tcp: bool,
) -> PyResult<Bound<'_, PyDict>> {
    let read = py.detach(|| {
        let mut log = CaptureLog::new(most, tcp);
        let mut files = Vec::with_capacity(paths.len());
        for (number, path) in paths.iter().enumerate() {
            files.push(log.read(path).map_err(|error| (number, error))?);
        }
        Ok((log, files))
    });
    let (log, files) = read.map_err(|(number, error): (usize, CaptureError)| {
        let remedy = error.fault.remedy();
        PyValueError::new_err((error.to_string(), number, error.offset, remedy))
    })?;
    let out = PyDict::new(py);
    out.set_item("one_in", log.one_in())?;
    let (packets, addresses) = log.into_columns();
    let packets = columns!(py, packets; time_ns, source, destination, psn, queue_pair, id,
        size_bytes, sample, entropy, port, protocol, stream_byte, ecn, csig, direction, file);
    out.set_item("packets", packets)?;
    out.set_item("addresses", addresses.into_iter().map(text).collect::<Vec<_>>())?;
    let summaries = PyList::empty(py);
    for file in &files {
        summaries.append(summary(py, file)?)?;
    }
    out.set_item("files", summaries)?;
    Ok(out)
}

fn text(address: Address) -> String {
    match address {
        Address::Lid(lid) => lid.to_string(),
        Address::V4(bytes) => Ipv4Addr::from(bytes).to_string(),
        Address::V6(bytes) => Ipv6Addr::from(bytes).to_string(),
    }
}

fn summary<'py>(py: Python<'py>, of: &FileSummary) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("frames", of.frames)?;
    out.set_item("packets", of.packets)?;
    let skipped: Vec<(u64, u64)> =
        of.skipped.iter().map(|skip| (skip.frames, skip.first_offset)).collect();
    out.set_item("skipped", skipped)?;
    out.set_item("cut_at", of.cut_at)?;
    out.set_item("times_ns", of.times_ns)?;
    Ok(out)
}
