//! The calls of a trace: their names, their columns, and what may be wrong with them.

use crate::assembly::RecordedPosts;

/// Calls that post a send or receive, by number.
pub(crate) const POSTS: [&str; 9] =
    ["send", "ssend", "bsend", "recv", "isend", "issend", "ibsend", "irecv", "sendrecv"];
/// Collectives, by number; the non-blocking ones have the prefix `i`.
pub(crate) const COLLECTIVES: [&str; 15] = [
    "barrier",
    "bcast",
    "reduce",
    "allreduce",
    "alltoall",
    "allgather",
    "gather",
    "scatter",
    "gatherv",
    "allgatherv",
    "scatterv",
    "alltoallv",
    "reducescatter",
    "scan",
    "exscan",
];
/// Calls that neither send, receive nor wait.
pub(crate) const IGNORED: [&str; 8] =
    ["comm_size", "comm_dup", "probe", "iprobe", "location", "iteration_in", "iteration_out", "io"];
/// Calls that complete requests which the trace does not name.
pub(crate) const UNNAMED_COMPLETIONS: [&str; 6] =
    ["test", "testall", "testany", "testsome", "waitany", "waitsome"];
/// One-sided and persistent calls, which are left out.
pub(crate) const LEFT_OUT: [&str; 12] = [
    "put",
    "get",
    "accumulate",
    "get_accumulate",
    "fetch_and_op",
    "compare_and_swap",
    "rput",
    "rget",
    "raccumulate",
    "rget_accumulate",
    "start",
    "startall",
];
/// The other calls.
pub(crate) const OTHERS: [&str; 7] =
    ["init", "finalize", "comm_split", "wait", "waitall", "compute", "sleep"];

/// Defaults for properties that a trace does not record.
#[derive(Clone, Copy)]
pub struct TiOptions<'a> {
    /// Bytes of each type by its number.
    pub type_bytes: &'a [u64],
    /// Picoseconds per flop.
    pub ps_per_flop: u64,
    /// Longest valid computation, in picoseconds.
    pub longest_ps: u64,
}

/// The calls of all ranks, rank by rank. A row is the number of a line, counted from 0 over all files.
#[derive(Debug, Default)]
pub struct ReplayCalls {
    /// Number of ranks.
    pub n_ranks: u32,
    /// First row of each file.
    pub first: Vec<u64>,
    /// Bytes per element if a line names no type.
    pub default_bytes: u64,
    /// Sends and receives.
    pub posts: RecordedPosts,
    /// Call and tag of each label.
    pub labels: Vec<(u8, i32)>,
    /// Number of sends and receives with MPI_PROC_NULL.
    pub proc_null: u64,
    /// Number of one-sided and persistent calls.
    pub left_out: u64,
    /// Number of calls that complete requests which the trace does not name.
    pub unnamed_completions: u64,
    /// Whether the program splits communicators.
    pub splits: bool,
    /// Waits for all requests.
    pub waitalls: EventRows,
    /// Computations and pauses.
    pub computes: EventRows,
    /// Their durations in picoseconds.
    pub computes_ps: Vec<u64>,
    /// Collective calls.
    pub collectives: EventRows,
    /// For each collective call, the index into `kinds`.
    pub collective_kind: Vec<u32>,
    /// The distinct collective calls.
    pub kinds: Vec<CollectiveKind>,
}

/// Rank and row of events.
#[derive(Debug, Default)]
pub struct EventRows {
    /// Rank.
    pub rank: Vec<i64>,
    /// Row.
    pub row: Vec<i64>,
}

impl EventRows {
    pub(super) fn push(&mut self, rank: u32, row: u64) {
        self.rank.push(i64::from(rank));
        self.row.push(row as i64);
    }
}

/// Collective calls with the same arguments.
#[derive(Debug, PartialEq, Eq, Hash, Clone)]
pub struct CollectiveKind {
    /// Index into [`COLLECTIVES`].
    pub operation: u8,
    /// Whether it blocks.
    pub blocking: bool,
    /// The calling rank, if the arguments have another meaning at the root; else 0.
    pub me: u32,
    /// The arguments.
    pub arguments: Vec<u8>,
    /// Row of the first such call.
    pub row: u64,
}

/// What is wrong; the first number is the row unless stated otherwise.
#[derive(Debug, PartialEq)]
pub enum LineError {
    /// The trace has no calls.
    Empty,
    /// A line that does not begin with a rank.
    NoRank(u64),
    /// A line without a call.
    NoCall(u64),
    /// An unknown call, in lower case.
    UnknownCall(u64, Vec<u8>),
    /// A rank without lines, and the largest rank with lines.
    MissingRank(u64, u64),
    /// A second `init` of a rank.
    SecondInit(u64, u32),
    /// The last line of a rank without `finalize`.
    Unfinished(u64, u32),
    /// A missing argument.
    MissingArgument(u64, &'static str),
    /// An argument that is not a 32-bit integer.
    NotInteger(u64, &'static str, Vec<u8>),
    /// An argument that is not a number or exceeds the limit, which comes last.
    OutOfRange(u64, &'static str, Vec<u8>, f64),
    /// An unknown type.
    UnknownType(u64, Vec<u8>),
    /// A rank that does not exist, and the number of ranks.
    NoSuchRank(u64, i32, u32),
    /// More lines than can be numbered.
    TooLarge,
}

/// Marks an amount that is already in bytes.
pub(super) const TYPED: u64 = 1 << 63;

/// Content of a line; kept small because there are many.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub row: u64,
    /// Bytes, picoseconds, number of the kind of a collective, or the tag of a wait.
    pub amount: u64,
    pub rank: u32,
    pub peer: i32,
    pub tag: i32,
    pub what: Action,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Post {
        call: u8,
        is_send: bool,
    },
    /// A line without effect.
    Nothing,
    Wait,
    WaitAll,
    Compute,
    Collective,
    Init,
    Finalize,
}
