//! SST DUMPI traces for Python: files are read one by one, then the columns of all are returned.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use tailback_readers::dumpi::{Fault, FaultKind, FilePosition, Reader};

use crate::table::columns;

/// Adds the reader to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<DumpiReader>()
}

/// Reads the files of all ranks; errors are ValueErrors with the arguments `(rank, kind, place, text)`.
#[pyclass(module = "tailback._core")]
struct DumpiReader {
    reader: Option<Reader>,
}

impl DumpiReader {
    fn reader(&mut self) -> PyResult<&mut Reader> {
        self.reader.as_mut().ok_or_else(|| PyValueError::new_err("the trace has already been read"))
    }
}

#[pymethods]
impl DumpiReader {
    #[new]
    fn new(n_ranks: u32, longest_ps: u64) -> Self {
        Self { reader: Some(Reader::new(n_ranks, longest_ps)) }
    }

    /// Reads the file of the next rank.
    fn file(&mut self, py: Python<'_>, data: PyBackedBytes) -> PyResult<()> {
        let reader = self.reader()?;
        py.detach(|| reader.file(&data)).map_err(raised)
    }

    /// The columns of all ranks; the reader is empty afterwards.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.reader()?;
        let Some(reader) = self.reader.take() else { return Ok(PyDict::new(py)) };
        let found = py.detach(|| reader.finish()).map_err(raised)?;
        let out = PyDict::new(py);
        let (posts, computes, collectives) = (found.posts, found.computes, found.collectives);
        let posts = columns!(py, posts; rank, position, step, is_send, peer, channel, size, label,
            wait_position, wait_step, peer_known);
        out.set_item("posts", posts)?;
        out.set_item("computes", columns!(py, computes; rank, position, ps))?;
        let collectives = columns!(py, collectives; rank, position, comm, instance, label,
            operation, size, me, root, sent, received, counts);
        out.set_item("collectives", collectives)?;
        let labels: Vec<(String, bool, i64, String)> = found
            .labels
            .into_iter()
            .map(|one| (one.call, one.collective, one.tag, one.communicator))
            .collect();
        out.set_item("labels", labels)?;
        out.set_item("counts", found.counts)?;
        out.set_item("members", found.members)?;
        out.set_item("inside_ns", found.inside_ns)?;
        out.set_item("lost_posts", found.lost_posts)?;
        out.set_item("lost_collectives", found.lost_collectives)?;
        out.set_item("of_unknown_type", found.of_unknown_type)?;
        out.set_item("proc_null", found.proc_null)?;
        out.set_item("cancelled", found.cancelled)?;
        Ok(out)
    }
}

fn raised(fault: Fault) -> PyErr {
    let kind = match fault.kind {
        FaultKind::Truncated => "cut",
        FaultKind::Damaged => "damaged",
        FaultKind::UnknownLine => "line",
        FaultKind::OldVersion => "old",
        FaultKind::UnknownCall => "unknown",
        FaultKind::WrongRankCount => "world",
        FaultKind::TooLarge => "large",
    };
    let place = match fault.place {
        FilePosition::None => None,
        FilePosition::Byte(at) => Some(format!("byte {at}")),
        FilePosition::Line(number) => Some(format!("line {number}")),
    };
    PyValueError::new_err((fault.file, kind, place, fault.text))
}
