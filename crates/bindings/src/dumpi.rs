//! SST DUMPI traces for Python: files are read one by one, then the columns of all are returned.

use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use tailback_readers::dumpi::{Fault, FaultKind, FilePosition, Reader};
use tailback_readers::post_rows::{ComputeRow, RecordedRanks};

use crate::readers::{PostColumns, PostEnds, checked, ends_of, posts_of, program_columns};
use crate::table::columns;

/// Adds the reader to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<DumpiReader>()
}

/// Reads the files of all ranks; errors are ValueErrors with the arguments `(rank, kind, place, text)`.
#[pyclass(module = "tailback._core")]
struct DumpiReader {
    reader: Option<Reader>,
    ranks: Option<RecordedRanks>,
}

impl DumpiReader {
    fn reader(&mut self) -> PyResult<&mut Reader> {
        self.reader.as_mut().ok_or_else(already_read)
    }

    fn ranks(&mut self) -> PyResult<RecordedRanks> {
        self.ranks.take().ok_or_else(already_read)
    }
}

#[pymethods]
impl DumpiReader {
    #[new]
    #[pyo3(signature = (n_ranks, longest_ps, times = false))]
    fn new(n_ranks: u32, longest_ps: u64, times: bool) -> Self {
        let reader = Reader::new(n_ranks, longest_ps);
        Self { reader: Some(if times { reader.with_times() } else { reader }), ranks: None }
    }

    /// Reads the file of the next rank.
    fn file(&mut self, py: Python<'_>, data: PyBackedBytes) -> PyResult<()> {
        let reader = self.reader()?;
        py.detach(|| reader.file(&data)).map_err(raised)
    }

    /// Returns everything but sends, receives and computations, which `compile` or `posts` returns.
    /// Includes every call with its times if the reader records times.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.reader()?;
        let Some(reader) = self.reader.take() else { return Ok(PyDict::new(py)) };
        let trace = py.detach(|| reader.finish()).map_err(raised)?;
        let out = PyDict::new(py);
        let collectives = trace.collectives;
        let collectives = columns!(py, collectives; rank, position, comm, instance, label,
            operation, size, me, root, sent, received, counts, stay_ns);
        out.set_item("collectives", collectives)?;
        let labels: Vec<(String, bool, i64, String)> = trace
            .labels
            .into_iter()
            .map(|label| (label.call, label.collective, label.tag, label.communicator))
            .collect();
        out.set_item("labels", labels)?;
        out.set_item("counts", trace.counts)?;
        out.set_item("members", trace.members)?;
        out.set_item("inside_ns", trace.inside_ns)?;
        out.set_item("lost_posts", trace.lost_posts)?;
        out.set_item("lost_collectives", trace.lost_collectives)?;
        out.set_item("of_unknown_type", trace.of_unknown_type)?;
        out.set_item("proc_null", trace.proc_null)?;
        out.set_item("cancelled", trace.cancelled)?;
        out.set_item("unknown_sources", trace.unknown_sources)?;
        out.set_item("channels", trace.ranks.tags.len())?;
        out.set_item("between_ps", trace.ranks.computes.iter().map(|row| row.ps).sum::<u64>())?;
        if let Some(timed) = trace.timed {
            let calls = columns!(py, timed; rank, name, thread, enter_ns, leave_ns);
            out.set_item("calls", calls)?;
            out.set_item("names", timed.names)?;
            out.set_item("channel_keys", timed.channels)?;
            out.set_item("communicators", timed.communicators)?;
        }
        self.ranks = Some(trace.ranks);
        Ok(out)
    }

    /// The program with these posts of collectives; see [`compiled`]. The reader is empty afterwards.
    fn compile<'py>(
        &mut self,
        py: Python<'py>,
        posts: PostColumns<'py>,
        completions: PostEnds<'py>,
        scatters: Vec<u32>,
    ) -> PyResult<Compiled<'py>> {
        compiled(py, self.ranks()?, &(posts, completions), &scatters)
    }

    /// The columns of sends and receives, and of computations. The reader is empty afterwards.
    fn posts<'py>(
        &mut self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let ranks = self.ranks()?;
        let posts = ranks.columns();
        let posts = columns!(py, posts; rank, position, step, is_send, peer, channel, size, label,
            wait_position, wait_step, peer_known);
        let computes = PyDict::new(py);
        let column =
            |of: fn(&ComputeRow) -> i64| PyArray1::from_iter(py, ranks.computes.iter().map(of));
        computes.set_item("rank", column(|row| row.rank.into()))?;
        computes.set_item("position", column(|row| row.position.into()))?;
        let ps = ranks.computes.iter().map(|row| row.ps);
        computes.set_item("ps", PyArray1::from_iter(py, ps))?;
        Ok((posts, computes))
    }
}

/// The columns of a program; the labels of its messages; the sends, receives and messages of
/// collectives left out; and `(number, sent, peer, label, rank, received)`: how many messages have
/// two sizes, and the first of these.
pub(crate) type Compiled<'py> =
    (Bound<'py, PyDict>, Vec<u32>, [u64; 3], Option<(u64, u64, u32, u32, u32, u64)>);

/// The program of ranks with these posts of collectives.
pub(crate) fn compiled<'py>(
    py: Python<'py>,
    mut ranks: RecordedRanks,
    (posts, completions): &(PostColumns<'py>, PostEnds<'py>),
    scatters: &[u32],
) -> PyResult<Compiled<'py>> {
    let (posts, ends) = (posts_of(posts)?, ends_of(completions)?);
    checked(&posts, ranks.first.len() - 1)?;
    if ends.size.len() != posts.rank.len() {
        return Err(PyValueError::new_err("columns of different lengths"));
    }
    let done = py.detach(|| {
        ranks.join(&posts, &ends);
        ranks.compile(scatters)
    });
    let differing = done.differing.map(|differing| {
        (
            differing.number,
            differing.sizes[0],
            differing.peer,
            differing.label,
            differing.rank,
            differing.sizes[1],
        )
    });
    Ok((program_columns(py, done.program)?, done.labels, done.lost, differing))
}

pub(crate) fn already_read() -> PyErr {
    PyValueError::new_err("the trace has already been read")
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
