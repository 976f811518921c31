//! SimGrid's time-independent traces: one line per call, `rank call arguments…`.

mod call_lines;
mod columns;

use crate::assembly::RecordedPosts;
use crate::text::{lines, trimmed};
use call_lines::LineReader;

/// Calls that post a send or receive, by number.
pub const POSTS: [&str; 9] =
    ["send", "ssend", "bsend", "recv", "isend", "issend", "ibsend", "irecv", "sendrecv"];
/// Collectives, by number; the non-blocking ones have the prefix `i`.
pub const COLLECTIVES: [&str; 15] = [
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
pub const IGNORED: [&str; 8] =
    ["comm_size", "comm_dup", "probe", "iprobe", "location", "iteration_in", "iteration_out", "io"];
/// Calls that complete requests which the trace does not name.
pub const UNNAMED_COMPLETIONS: [&str; 6] =
    ["test", "testall", "testany", "testsome", "waitany", "waitsome"];
/// One-sided and persistent calls, which are left out.
pub const LEFT_OUT: [&str; 12] = [
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
pub const OTHERS: [&str; 7] =
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
    fn push(&mut self, rank: u32, row: u64) {
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

/// Reads the lines of all files in order.
pub fn read(files: &[&[u8]], options: TiOptions<'_>) -> Result<ReplayCalls, LineError> {
    let mut reader = LineReader::new(options);
    let mut row = 0;
    for data in files {
        reader.out.first.push(row);
        for line in lines(data) {
            let line = trimmed(line);
            if !line.is_empty() && line[0] != b'#' {
                reader.line(row, line)?;
            }
            row += 1;
        }
    }
    reader.finish()
}

#[cfg(test)]
mod tests {
    use super::{LineError, TiOptions, read};

    const OPTIONS: TiOptions<'_> =
        TiOptions { type_bytes: &[8, 4], ps_per_flop: 1000, longest_ps: 1 << 60 };

    #[test]
    fn a_wait_completes_the_oldest_request_of_its_source_destination_and_tag() {
        let text =
            b"0 init\n0 isend 1 7 10\n0 send 1 7 9\n0 isend 1 7 20\n0 wait 0 1 7\n0 waitall\n\
                     0 isend 1 7 5 1\n0 wait 0 1 7\n0 finalize\n1 init\n1 Recv 0 7 4 1\n1 finalize";
        let found = read(&[text], OPTIONS).expect("a valid trace").posts;
        assert_eq!(found.wait_position, [9, 5, -1, 15, 21]);
        assert_eq!(found.size, [10, 9, 20, 20, 16]);
    }

    #[test]
    fn errors_have_a_row() {
        let fault = |text: &[u8]| read(&[text], OPTIONS).err();
        assert_eq!(fault(b"0 init\n\n0 fly\n"), Some(LineError::UnknownCall(2, b"fly".to_vec())));
        let far = b"4000000000 init\n0 init\n1 init\n";
        assert_eq!(fault(far), Some(LineError::MissingRank(2, 4_000_000_000)));
        assert_eq!(
            fault(b"0 init\n0 recv 0 1\n0 finalize"),
            Some(LineError::MissingArgument(1, "size"))
        );
        assert_eq!(fault(b"0 init\n"), Some(LineError::Unfinished(0, 0)));
    }
}
