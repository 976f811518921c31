//! Readers of traces and the order of operations for Python: columns in, columns out.
//!
//! Errors are `ValueError`s with the arguments `(kind, row, text, number, limit)`.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use tailback_program::Program;
use tailback_readers::chakra::{ChakraError, ChakraProblem};
use tailback_readers::goal::{Schedule, ScheduleError};
use tailback_readers::goal_binary;
use tailback_readers::graph::Graph;
use tailback_readers::ordering::{self, GraphError};
use tailback_readers::simgrid_ti::LineError;
use tailback_readers::{assembly, chakra, goal, numbering, simgrid_ti, sources};

use crate::table::columns;

type Integers<'py> = PyReadonlyArray1<'py, i64>;
type Booleans<'py> = PyReadonlyArray1<'py, bool>;
type Sizes<'py> = PyReadonlyArray1<'py, u64>;
type Numbers<'py> = PyReadonlyArray1<'py, u32>;

/// Adds the functions of the readers to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(dense_numbers, m)?)?;
    m.add_function(wrap_pyfunction!(count_turns, m)?)?;
    m.add_function(wrap_pyfunction!(pair_posts, m)?)?;
    m.add_function(wrap_pyfunction!(match_unknown_sources, m)?)?;
    m.add_function(wrap_pyfunction!(assemble_posts, m)?)?;
    m.add_function(wrap_pyfunction!(compile_graph, m)?)?;
    m.add_function(wrap_pyfunction!(read_chakra, m)?)?;
    m.add_function(wrap_pyfunction!(read_goal, m)?)?;
    m.add_function(wrap_pyfunction!(read_goal_binary, m)?)?;
    m.add_function(wrap_pyfunction!(read_simgrid_ti, m)?)
}

/// Two arrays of 64-bit integers.
type Pair<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>);

/// The distinct values in ascending order, and the index of each value among them.
#[pyfunction]
fn dense_numbers<'py>(py: Python<'py>, values: Integers<'py>) -> PyResult<Pair<'py>> {
    let values = values.as_slice()?;
    let (different, place) = py.detach(|| numbering::dense(values));
    Ok((different.into_pyarray(py), place.into_pyarray(py)))
}

/// For each value, the number of earlier equal values.
#[pyfunction]
fn count_turns<'py>(py: Python<'py>, values: Integers<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let values = values.as_slice()?;
    Ok(py.detach(|| numbering::earlier_occurrences(values)).into_pyarray(py))
}

/// Columns of posts from Python: rank, position, step, is_send, peer, channel.
pub(crate) type PostColumns<'py> =
    (Integers<'py>, Integers<'py>, Integers<'py>, Booleans<'py>, Integers<'py>, Integers<'py>);

pub(crate) fn posts_of<'a>(columns: &'a PostColumns<'_>) -> PyResult<assembly::Posts<'a>> {
    Ok(assembly::Posts {
        rank: columns.0.as_slice()?,
        position: columns.1.as_slice()?,
        step: columns.2.as_slice()?,
        is_send: columns.3.as_slice()?,
        peer: columns.4.as_slice()?,
        channel: columns.5.as_slice()?,
    })
}

/// Further columns of posts from Python: size, label, wait_position, wait_step.
pub(crate) type PostEnds<'py> = (Sizes<'py>, Integers<'py>, Integers<'py>, Integers<'py>);

/// Raises ValueError if the columns differ in length.
pub(crate) fn ends_of<'a>(columns: &'a PostEnds<'_>) -> PyResult<assembly::Completions<'a>> {
    let ends = assembly::Completions {
        size: columns.0.as_slice()?,
        label: columns.1.as_slice()?,
        wait_position: columns.2.as_slice()?,
        wait_step: columns.3.as_slice()?,
    };
    if [ends.label.len(), ends.wait_position.len(), ends.wait_step.len()] != [ends.size.len(); 3] {
        return Err(PyValueError::new_err("columns of different lengths"));
    }
    Ok(ends)
}

/// Raises ValueError if columns of posts differ in length or name ranks beyond `n_ranks`.
pub(crate) fn checked(posts: &assembly::Posts<'_>, n_ranks: usize) -> PyResult<()> {
    let n = posts.rank.len();
    let lengths = [
        posts.position.len(),
        posts.step.len(),
        posts.is_send.len(),
        posts.peer.len(),
        posts.channel.len(),
    ];
    if lengths != [n; 5] || n >= u32::MAX as usize {
        return Err(PyValueError::new_err("columns of different lengths, or too many posts"));
    }
    ranks_exist(posts.rank, n_ranks)
}

fn ranks_exist(rank: &[i64], n_ranks: usize) -> PyResult<()> {
    match rank.iter().find(|&&rank| rank < 0 || rank as usize >= n_ranks) {
        Some(rank) => Err(PyValueError::new_err(format!("rank {rank} of {n_ranks} ranks"))),
        None => Ok(()),
    }
}

/// The order of posts by rank, position and step (None if they are sorted), and the post that matches
/// each one in that order, -1 if there is none.
#[pyfunction]
#[allow(clippy::type_complexity)]
fn pair_posts<'py>(
    py: Python<'py>,
    n_ranks: usize,
    posts: PostColumns<'py>,
) -> PyResult<(Option<Bound<'py, PyArray1<i64>>>, Bound<'py, PyArray1<i64>>)> {
    let posts = posts_of(&posts)?;
    checked(&posts, n_ranks)?;
    let (order, partner) = py.detach(|| assembly::match_posts(n_ranks, &posts));
    Ok((order.map(|order| order.into_pyarray(py)), partner.into_pyarray(py)))
}

/// The send that each receive of unknown source takes, -1 for none and for other posts, from sorted posts,
/// the position of the wait for each, and whether each is a receive that takes nothing, by a guess.
#[pyfunction]
fn match_unknown_sources<'py>(
    py: Python<'py>,
    n_ranks: usize,
    posts: PostColumns<'py>,
    ends: Integers<'py>,
    unused: Booleans<'py>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let posts = posts_of(&posts)?;
    checked(&posts, n_ranks)?;
    let (ends, unused) = (ends.as_slice()?, unused.as_slice()?);
    if [ends.len(), unused.len()] != [posts.rank.len(); 2] || !posts.rank.is_sorted() {
        return Err(PyValueError::new_err("columns of different lengths, or not in order"));
    }
    let source = py.detach(|| sources::match_unknown_sources(n_ranks, &posts, ends, unused));
    Ok(source.into_pyarray(py))
}

/// The columns of a program from sorted posts, waits `(rank, position, post)` and computations
/// `(rank, position, ps)`.
#[pyfunction]
#[allow(clippy::type_complexity)]
fn assemble_posts<'py>(
    py: Python<'py>,
    n_ranks: usize,
    posts: PostColumns<'py>,
    completions: PostEnds<'py>,
    waits: (Integers<'py>, Integers<'py>, Integers<'py>),
    computes: (Integers<'py>, Integers<'py>, Sizes<'py>),
) -> PyResult<Bound<'py, PyDict>> {
    let posts = posts_of(&posts)?;
    let ends = ends_of(&completions)?;
    let waits = assembly::Events {
        rank: waits.0.as_slice()?,
        position: waits.1.as_slice()?,
        value: waits.2.as_slice()?,
    };
    let computes = assembly::Events {
        rank: computes.0.as_slice()?,
        position: computes.1.as_slice()?,
        value: computes.2.as_slice()?,
    };
    checked(&posts, n_ranks)?;
    ranks_exist(waits.rank, n_ranks)?;
    ranks_exist(computes.rank, n_ranks)?;
    let n = posts.rank.len();
    let same = ends.size.len() == n
        && [waits.position.len(), waits.value.len()] == [waits.rank.len(); 2]
        && [computes.position.len(), computes.value.len()] == [computes.rank.len(); 2];
    if !same || !posts.rank.is_sorted() {
        return Err(PyValueError::new_err("columns of different lengths, or not in order"));
    }
    let program = py.detach(|| assembly::assemble(n_ranks, &posts, &ends, &waits, &computes));
    program_columns(py, program)
}

pub(crate) fn program_columns(py: Python<'_>, program: Program) -> PyResult<Bound<'_, PyDict>> {
    Ok(columns!(py, program; rank_start, kind, peer, amount, tag, request, label))
}

/// The columns of a program from operations `(rank_start, kind, peer, amount, stream)`, the tags and labels
/// of their streams, and their requirements `(end, source)`; the labels of its messages, the sends and
/// receives left out, whether sends are buffered, and the number of receives matched on arrival.
#[pyfunction]
#[allow(clippy::type_complexity)]
fn compile_graph<'py>(
    py: Python<'py>,
    nodes: (
        Numbers<'py>,
        PyReadonlyArray1<'py, u8>,
        PyReadonlyArray1<'py, i32>,
        Sizes<'py>,
        Numbers<'py>,
    ),
    streams: (Integers<'py>, Numbers<'py>),
    required: (Numbers<'py>, Numbers<'py>),
) -> PyResult<(Bound<'py, PyDict>, Vec<u32>, u64, u64, bool, u64)> {
    let graph = Graph {
        rank_start: nodes.0.as_slice()?,
        kind: nodes.1.as_slice()?,
        peer: nodes.2.as_slice()?,
        amount: nodes.3.as_slice()?,
        stream: nodes.4.as_slice()?,
        channel: streams.0.as_slice()?,
        label: streams.1.as_slice()?,
        end: required.0.as_slice()?,
        source: required.1.as_slice()?,
    };
    if !graph.is_valid() {
        return Err(PyValueError::new_err("columns that do not make a graph"));
    }
    let done = py.detach(|| ordering::compile(&graph)).map_err(|error| match error {
        GraphError::Cycle(at) => fault("cycle", u64::from(at)),
        GraphError::TooLarge => fault("large", 0),
    })?;
    let (sends, receives) = (done.lost_sends, done.lost_receives);
    let columns = program_columns(py, done.program)?;
    Ok((columns, done.labels, sends, receives, done.buffered, done.wildcards))
}

fn fault(kind: &str, row: u64) -> PyErr {
    full_fault(kind, row, &[], 0, 0.0)
}

fn full_fault(kind: &str, row: u64, text: &[u8], number: i64, limit: f64) -> PyErr {
    let text = String::from_utf8_lossy(text).into_owned();
    PyValueError::new_err((kind.to_owned(), row, text, number, limit))
}

/// A GOAL schedule without comments, in pieces of whole lines; `keep_lines` adds the line of each operation.
#[pyfunction]
fn read_goal<'py>(
    py: Python<'py>,
    pieces: Bound<'py, PyAny>,
    longest_ps: u64,
    keep_lines: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let mut reader = goal::GoalReader::new(longest_ps, keep_lines);
    for data in pieces.try_iter()? {
        let data: PyBackedBytes = data?.extract()?;
        py.detach(|| reader.feed(&data)).map_err(goal_fault)?;
    }
    schedule_columns(py, reader.finish().map_err(goal_fault)?)
}

/// A GOAL schedule in LogGOPSim's binary form; `number` of the error is the offset in bytes.
#[pyfunction]
fn read_goal_binary(
    py: Python<'_>,
    data: PyBackedBytes,
    longest_ps: u64,
) -> PyResult<Bound<'_, PyDict>> {
    let schedule = py
        .detach(|| goal_binary::read(&data, longest_ps))
        .map_err(|fault| full_fault("binary", 0, fault.what.as_bytes(), fault.byte as i64, 0.0))?;
    schedule_columns(py, schedule)
}

fn schedule_columns(py: Python<'_>, schedule: Schedule) -> PyResult<Bound<'_, PyDict>> {
    let required = schedule.required;
    let out = columns!(py, schedule; line, rank_start, kind, peer, amount, stream);
    out.set_item("required", (required.end.into_pyarray(py), required.source.into_pyarray(py)))?;
    out.set_item("cores", schedule.cores)?;
    out.set_item("adapters", schedule.adapters)?;
    out.set_item("streams", schedule.streams)?;
    Ok(out)
}

fn goal_fault(error: ScheduleError) -> PyErr {
    match error {
        ScheduleError::NoHeader => fault("beginning", 0),
        ScheduleError::UnexpectedLine(at) => fault("unexpected", at.into()),
        ScheduleError::UnclosedBlock(at) => fault("open", at.into()),
        ScheduleError::DuplicateBlock(at, rank) => {
            full_fault("again", at.into(), &[], rank as i64, 0.0)
        }
        ScheduleError::NoSuchRank(at, rank, ranks) => {
            full_fault("beyond", at.into(), ranks.to_string().as_bytes(), rank as i64, 0.0)
        }
        ScheduleError::MissingBlock(rank, ranks) => {
            full_fault("missing", 0, ranks.to_string().as_bytes(), rank as i64, 0.0)
        }
        ScheduleError::UnknownLine(at) => fault("unknown", at.into()),
        ScheduleError::InvalidValue(at, ranks) => {
            full_fault("impossible", at.into(), ranks.to_string().as_bytes(), 0, 0.0)
        }
        ScheduleError::DuplicateLabel(at, label) => full_fault("twice", at.into(), &label, 0, 0.0),
        ScheduleError::UndefinedLabel(at, label) => {
            full_fault("undefined", at.into(), &label, 0, 0.0)
        }
        ScheduleError::TooLarge => fault("large", 0),
    }
}

/// A time-independent trace of SimGrid: the files of all ranks.
#[pyfunction]
fn read_simgrid_ti(
    py: Python<'_>,
    files: Vec<PyBackedBytes>,
    type_bytes: Vec<u64>,
    ps_per_flop: u64,
    longest_ps: u64,
) -> PyResult<Bound<'_, PyDict>> {
    let calls = py.detach(|| {
        let files: Vec<&[u8]> = files.iter().map(|data| &**data).collect();
        simgrid_ti::read(
            &files,
            simgrid_ti::TiOptions { type_bytes: &type_bytes, ps_per_flop, longest_ps },
        )
    });
    let calls = calls.map_err(line_fault)?;
    let out = PyDict::new(py);
    out.set_item("n_ranks", calls.n_ranks)?;
    out.set_item("default_bytes", calls.default_bytes)?;
    out.set_item("proc_null", calls.proc_null)?;
    out.set_item("left_out", calls.left_out)?;
    out.set_item("unnamed_completions", calls.unnamed_completions)?;
    out.set_item("splits", calls.splits)?;
    out.set_item("labels", calls.labels)?;
    let posts = calls.posts;
    let posts = columns!(py, posts; rank, position, step, is_send, peer, channel, size, label,
        wait_position, peer_known);
    out.set_item("posts", posts)?;
    let (waitalls, computes, collectives) = (calls.waitalls, calls.computes, calls.collectives);
    out.set_item("waitalls", columns!(py, waitalls; rank, row))?;
    let computes = columns!(py, computes; rank, row);
    computes.set_item("ps", calls.computes_ps.into_pyarray(py))?;
    out.set_item("computes", computes)?;
    let collectives = columns!(py, collectives; rank, row);
    collectives.set_item("kind", calls.collective_kind.into_pyarray(py))?;
    out.set_item("collectives", collectives)?;
    let kinds: Vec<(u8, bool, u32, String, u64)> = calls
        .kinds
        .into_iter()
        .map(|kind| {
            let arguments = String::from_utf8_lossy(&kind.arguments).into_owned();
            (kind.operation, kind.blocking, kind.me, arguments, kind.row)
        })
        .collect();
    out.set_item("kinds", kinds)?;
    Ok(out)
}

fn line_fault(error: LineError) -> PyErr {
    match error {
        LineError::Empty => fault("empty", 0),
        LineError::NoRank(row) => fault("no-rank", row),
        LineError::NoCall(row) => fault("no-call", row),
        LineError::UnknownCall(row, call) => full_fault("unknown", row, &call, 0, 0.0),
        LineError::MissingRank(rank, last) => {
            full_fault("missing", 0, last.to_string().as_bytes(), rank as i64, 0.0)
        }
        LineError::SecondInit(row, rank) => full_fault("twice", row, &[], rank.into(), 0.0),
        LineError::Unfinished(row, rank) => full_fault("unfinished", row, &[], rank.into(), 0.0),
        LineError::MissingArgument(row, what) => full_fault("lacks", row, what.as_bytes(), 0, 0.0),
        LineError::NotInteger(row, what, text) => {
            full_fault("not-whole", row, &joined(what, &text), 0, 0.0)
        }
        LineError::OutOfRange(row, what, text, most) => {
            full_fault("not-count", row, &joined(what, &text), 0, most)
        }
        LineError::UnknownType(row, text) => full_fault("no-type", row, &text, 0, 0.0),
        LineError::NoSuchRank(row, rank, ranks) => {
            full_fault("beyond", row, ranks.to_string().as_bytes(), rank.into(), 0.0)
        }
        LineError::TooLarge => fault("large", 0),
    }
}

/// The name of an argument and its text, separated by a blank.
fn joined(what: &str, text: &[u8]) -> Vec<u8> {
    [what.as_bytes(), text].join(&b' ')
}

/// The Chakra execution traces of all ranks. `files` yields the bytes of each file, which is read
/// before the next one is requested; `calls` has the number of the algorithm of each type.
#[pyfunction]
fn read_chakra<'py>(
    py: Python<'py>,
    n_ranks: usize,
    files: Bound<'py, PyAny>,
    calls: Vec<(i64, u32)>,
    longest_ps: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let mut reader =
        chakra::ChakraReader::new(n_ranks, chakra::ChakraOptions { calls: &calls, longest_ps });
    for data in files.try_iter()? {
        let data: PyBackedBytes = data?.extract()?;
        py.detach(|| reader.file(&data)).map_err(chakra_fault)?;
    }
    let nodes = reader.finish();
    let required = nodes.required;
    let out = columns!(py, nodes; rank_start, kind, peer, amount, label, number);
    out.set_item("required", (required.end.into_pyarray(py), required.source.into_pyarray(py)))?;
    let collectives = nodes.collectives;
    let collectives = columns!(py, collectives; row, call, size, root, ordinal, label);
    out.set_item("collectives", collectives)?;
    out.set_item("labels", nodes.labels)?;
    out.set_item("without_duration", nodes.without_duration)?;
    out.set_item("missing_dependencies", nodes.missing_dependencies)?;
    out.set_item("left_out", nodes.left_out)?;
    out.set_item("unused", nodes.unused)?;
    Ok(out)
}

/// A ValueError with the arguments `(file, kind, number, name, message)`.
fn chakra_fault(fault: ChakraError) -> PyErr {
    let none = String::new;
    let (kind, number, name, message) = match fault.what {
        ChakraProblem::Bytes(at, message) => ("bytes", at, none(), message),
        ChakraProblem::Empty => ("empty", 0, none(), none()),
        ChakraProblem::DuplicateNode(number) => ("again", number, none(), none()),
        ChakraProblem::InvalidNode(number, name, why) => ("node", number, name, why),
        ChakraProblem::TooLarge => ("large", 0, none(), none()),
    };
    PyValueError::new_err((fault.file, kind, number, name, message))
}
