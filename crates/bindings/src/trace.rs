//! OTF2 traces for Python: columns as NumPy arrays, errors as `(message, file, place)`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tailback_readers::post_rows::{ComputeRow, PostRow, RecordedRanks};
use tailback_trace::{
    Definitions, LocationEvents, NO_ID, PostTrace, RecordKind, SystemNode, Trace, TraceError,
};

use crate::dumpi::{Compiled, already_read, compiled};
use crate::readers::{PostColumns, PostEnds};
use crate::table::columns;

/// Adds the OTF2 functions to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Otf2Posts>()?;
    m.add_function(wrap_pyfunction!(read_otf2_posts, m)?)?;
    m.add_function(wrap_pyfunction!(read_otf2_definitions, m)?)?;
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
    let trace =
        reporting(py, progress, |report| tailback_trace::read(&library, &anchor, threads, report))?;
    convert(py, trace.map_err(value_error)?)
}

/// Reads the definitions of an OTF2 archive: as `read_otf2`, with an empty list of locations.
#[pyfunction]
fn read_otf2_definitions(
    py: Python<'_>,
    library: PathBuf,
    anchor: PathBuf,
) -> PyResult<Bound<'_, PyDict>> {
    let trace = py.detach(|| tailback_trace::read_definitions(&library, &anchor));
    convert(py, trace.map_err(value_error)?)
}

/// Runs `work` without the GIL. `work` reports to `progress`, and an exception of `progress` is
/// raised afterwards.
fn reporting<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(tailback_trace::Progress<'_>) -> T + Send,
) -> PyResult<T> {
    let (last, raised) = (Mutex::new(None::<Instant>), Mutex::new(None));
    let report = |done: usize, total: usize| {
        let Some(progress) = &progress else { return };
        // If another thread is reporting, this report is not needed.
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
    let out = py.detach(|| work(&report));
    match raised.into_inner().ok().flatten() {
        Some(error) => Err(error),
        None => Ok(out),
    }
}

/// Reads an archive like `read_otf2`, but turns messages between two ranks into posts. Returns None
/// if the archive needs columns. Also returns a dictionary as `read_otf2` does, of collectives and
/// the calls that contain them, with `labels`, `label_counts`, `channels`, `channel_counts`,
/// `regions`, `proc_null` and `between_ps`.
#[pyfunction]
fn read_otf2_posts<'py>(
    py: Python<'py>,
    library: PathBuf,
    anchor: PathBuf,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Option<(Otf2Posts, Bound<'py, PyDict>)>> {
    let trace = reporting(py, progress, |report| {
        tailback_trace::read_posts(&library, &anchor, threads, report)
    })?;
    let Some(mut trace) = trace else { return Ok(None) };
    let tables = post_tables(py, &trace)?;
    let n_ranks = trace.definitions.n_ranks as usize;
    let mut posts = Otf2Posts { n_ranks, locations: Some(Vec::new()) };
    let events =
        trace.locations.iter_mut().map(|location| std::mem::take(&mut location.events)).collect();
    let ranks: Vec<u32> = trace.definitions.locations.iter().map(|&(_, rank)| rank).collect();
    let (creator, definitions) = (trace.creator, trace.definitions);
    let out = convert(py, Trace { creator, definitions, locations: events })?;
    out.update(tables.as_mapping())?;
    if let Some(locations) = &mut posts.locations {
        for (posts_of_location, rank) in trace.locations.into_iter().zip(ranks) {
            let tables = [posts_of_location.channels.len(), posts_of_location.labels.len()];
            locations.push(RankPosts {
                rank,
                posts: posts_of_location.posts,
                computes: posts_of_location.computes,
                tables,
            });
        }
    }
    Ok(Some((posts, out)))
}

/// Labels, channels and counts of all locations.
fn post_tables<'py>(py: Python<'py>, trace: &PostTrace) -> PyResult<Bound<'py, PyDict>> {
    let (out, labels) = (PyDict::new(py), PyDict::new(py));
    let of = || {
        trace
            .locations
            .iter()
            .flat_map(|location| location.labels.iter().map(move |label| (location, label)))
    };
    let column = |get: fn(&tailback_trace::PostLabel) -> u32| {
        PyArray1::from_vec(py, of().map(|(_, label)| get(label)).collect())
    };
    labels.set_item("phase", column(|label| label.phase))?;
    labels.set_item("path", column(|label| label.path))?;
    let calls: Vec<i64> = of().map(|(_, label)| label.call).collect();
    labels.set_item("call", calls.into_pyarray(py))?;
    let channel =
        |(location, label): (&tailback_trace::LocationPosts, &tailback_trace::PostLabel)| {
            location.channels[label.channel as usize]
        };
    let comms: Vec<i64> = of().map(|at| channel(at).0.into()).collect();
    let tags: Vec<i64> = of().map(|at| channel(at).1.into()).collect();
    labels.set_item("comm", comms.into_pyarray(py))?;
    labels.set_item("tag", tags.into_pyarray(py))?;
    out.set_item("labels", labels)?;
    let counts: Vec<i64> =
        trace.locations.iter().map(|location| location.labels.len() as i64).collect();
    out.set_item("label_counts", counts.into_pyarray(py))?;
    let channels: Vec<i64> = trace
        .locations
        .iter()
        .flat_map(|location| &location.channels)
        .map(|&(comm, tag)| i64::from(comm) << 32 | i64::from(tag))
        .collect();
    out.set_item("channels", channels.into_pyarray(py))?;
    let mut regions: BTreeMap<u32, (u64, u64, u64, i64)> = BTreeMap::new();
    for (&region, calls) in trace.locations.iter().flat_map(|location| &location.regions) {
        let sum = regions.entry(region).or_default();
        sum.0 += calls.calls;
        sum.1 += calls.recorded;
        sum.2 += calls.left_out;
        sum.3 = sum.3.wrapping_add(calls.ticks);
    }
    out.set_item("regions", regions)?;
    let proc_null: u64 = trace.locations.iter().map(|location| location.proc_null).sum();
    out.set_item("proc_null", proc_null)?;
    let posts: usize = trace.locations.iter().map(|location| location.posts.len()).sum();
    out.set_item("posts", posts)?;
    let computes = trace.locations.iter().flat_map(|location| &location.computes);
    out.set_item("between_ps", computes.map(|row| row.ps).sum::<u64>())?;
    Ok(out)
}

/// Sends, receives and computations of a rank; channels and labels are numbered from 0.
struct RankPosts {
    rank: u32,
    posts: Vec<PostRow>,
    computes: Vec<ComputeRow>,
    /// Number of channels and of labels.
    tables: [usize; 2],
}

/// Sends, receives and computations of an OTF2 trace.
#[pyclass(module = "tailback._core")]
struct Otf2Posts {
    n_ranks: usize,
    /// In the order of ranks.
    locations: Option<Vec<RankPosts>>,
}

#[pymethods]
impl Otf2Posts {
    /// The program with these posts of collectives; `channels` and `labels` are the numbers of those of all
    /// locations. The posts are gone afterwards.
    fn compile<'py>(
        &mut self,
        py: Python<'py>,
        channels: PyReadonlyArray1<'py, u32>,
        labels: PyReadonlyArray1<'py, u32>,
        posts: PostColumns<'py>,
        completions: PostEnds<'py>,
        scatters: Vec<u32>,
    ) -> PyResult<Compiled<'py>> {
        let locations = self.locations.take().ok_or_else(already_read)?;
        let (channels, labels) = (channels.as_slice()?, labels.as_slice()?);
        let needed =
            |of: usize| locations.iter().map(|location| location.tables[of]).sum::<usize>();
        let total: usize = locations.iter().map(|location| location.posts.len()).sum();
        if [channels.len(), labels.len()] != [needed(0), needed(1)] || total >= u32::MAX as usize {
            return Err(PyValueError::new_err("tables of another length, or too many posts"));
        }
        let n_ranks = self.n_ranks;
        let ranks = py.detach(|| united(n_ranks, locations, total, channels, labels));
        compiled(py, ranks, &(posts, completions), &scatters)
    }
}

/// The posts of all ranks, with channels and labels of the whole trace; those of each location are freed
/// once they are copied.
fn united(
    n_ranks: usize,
    locations: Vec<RankPosts>,
    total: usize,
    mut channels: &[u32],
    mut labels: &[u32],
) -> RecordedRanks {
    let computes = locations.iter().map(|location| location.computes.len()).sum();
    let mut out = RecordedRanks {
        posts: Vec::with_capacity(total),
        computes: Vec::with_capacity(computes),
        tags: (0..channels.iter().max().map_or(0, |highest| highest + 1)).collect(),
        first: vec![0; n_ranks + 1],
    };
    for location in locations {
        let (own_channels, own_labels);
        (own_channels, channels) = channels.split_at(location.tables[0]);
        (own_labels, labels) = labels.split_at(location.tables[1]);
        let row = |post: PostRow| post.renumbered(own_channels, own_labels);
        out.posts.extend(location.posts.into_iter().map(row));
        out.computes.extend(location.computes);
        out.first[location.rank as usize + 1] = out.posts.len() as u32;
    }
    for rank in 0..n_ranks {
        // Ranks without a location have no posts.
        out.first[rank + 1] = out.first[rank + 1].max(out.first[rank]);
    }
    out
}

/// Least time between two reports of progress: short enough for a bar that moves.
const REPORT_EVERY: Duration = Duration::from_millis(100);

fn value_error(error: TraceError) -> PyErr {
    PyValueError::new_err((error.reason().to_owned(), error.file().clone(), error.place()))
}

fn convert(py: Python<'_>, trace: Trace) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("size_texts", size_texts(py, &trace)?)?;
    out.set_item("creator", trace.creator)?;
    out.set_item("definitions", definitions(py, &trace.definitions)?)?;
    let locations = PyList::empty(py);
    for location in trace.locations {
        locations.append(location_columns(py, location)?)?;
    }
    out.set_item("locations", locations)?;
    Ok(out)
}

/// Text of the bytes to each partner by the number in column `message` of collectives; None if the trace
/// has no such texts.
fn size_texts<'py>(py: Python<'py>, trace: &Trace) -> PyResult<Option<Bound<'py, PyDict>>> {
    if trace.definitions.attributes.sizes.is_none() {
        return Ok(None);
    }
    let kinds = [RecordKind::CollectiveEnd as u8, RecordKind::IcollectiveComplete as u8];
    let out = PyDict::new(py);
    let rows = trace.locations.iter().map(|location| &location.messages);
    for (kind, &number) in rows.flat_map(|m| m.kind.iter().zip(&m.message)) {
        if number != NO_ID && kinds.contains(kind) && !out.contains(number)? {
            let text = u32::try_from(number).ok().and_then(|id| trace.definitions.strings.get(&id));
            out.set_item(number, text.map_or("", String::as_str))?;
        }
    }
    Ok(Some(out))
}

fn definitions<'py>(py: Python<'py>, from: &Definitions) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("ticks_per_second", from.ticks_per_second)?;
    out.set_item("start", from.start)?;
    out.set_item("length", from.length)?;
    out.set_item("realtime_ns", from.realtime_ns)?;
    out.set_item("n_ranks", from.n_ranks)?;
    out.set_item("processor_times", from.attributes.processor.is_some())?;
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
        let communicator_dict = PyDict::new(py);
        communicator_dict.set_item("name", &communicator.name)?;
        communicator_dict.set_item("members", PyArray1::from_slice(py, &communicator.members))?;
        let remote = communicator.remote.as_ref();
        communicator_dict
            .set_item("remote", remote.map(|ranks| PyArray1::from_slice(py, ranks)))?;
        communicator_dict.set_item("is_self", communicator.is_self)?;
        communicators.set_item(id, communicator_dict)?;
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
    let calls = columns!(py, calls; region, enter, leave, paused, processor, enter_event, leave_event,
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
