//! SimGrid's time-independent traces: a line for each call, `rank call arguments…`.

mod call_lines;
mod columns;

use crate::assembly::RecordedPosts;
use crate::text::{lines, trimmed};
use call_lines::LineReader;

/// Calls that post a message, in the order of their numbers.
pub const POSTS: [&str; 9] =
    ["send", "ssend", "bsend", "recv", "isend", "issend", "ibsend", "irecv", "sendrecv"];
/// Collectives, in the order of their numbers; the non-blocking ones begin with `i`.
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
/// Calls of which the trace does not name the requests they complete.
pub const UNNAMED_COMPLETIONS: [&str; 6] =
    ["test", "testall", "testany", "testsome", "waitany", "waitsome"];
/// One-sided and persistent calls.
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
pub struct Scale<'a> {
    /// Bytes of each type by its number.
    pub type_bytes: &'a [u64],
    /// Picoseconds of a flop.
    pub ps_per_flop: u64,
    /// The longest computation.
    pub longest_ps: u64,
}

/// The calls of all ranks, rank after rank; a row is a line of all files, from 0.
#[derive(Debug, Default)]
pub struct ReplayCalls {
    /// Number of ranks.
    pub n_ranks: u32,
    /// First row of each file.
    pub first: Vec<u64>,
    /// Bytes of an element where no type is named.
    pub default_bytes: u64,
    /// Sends and receives.
    pub posts: RecordedPosts,
    /// Call and tag of each label.
    pub labels: Vec<(u8, i32)>,
    /// Sends and receives of MPI_PROC_NULL.
    pub proc_null: u64,
    /// One-sided and persistent calls.
    pub left_out: u64,
    /// Calls of which the trace does not name the requests they complete.
    pub unnamed_completions: u64,
    /// Whether communicators are made.
    pub splits: bool,
    /// Calls that wait for all.
    pub waitalls: EventRows,
    /// Computations and pauses.
    pub computes: EventRows,
    /// Picoseconds of each.
    pub computes_ps: Vec<u64>,
    /// Collective calls.
    pub collectives: EventRows,
    /// Index into `kinds` of each.
    pub collective_kind: Vec<u32>,
    /// The different collective calls.
    pub kinds: Vec<CollectiveKind>,
}

/// Where events of ranks stand.
#[derive(Debug, Default)]
pub struct EventRows {
    /// Whose.
    pub rank: Vec<i64>,
    /// On which row.
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
    /// The rank that calls, where the arguments mean another thing at the root; else 0.
    pub me: u32,
    /// The arguments.
    pub arguments: Vec<u8>,
    /// Row of the first.
    pub row: u64,
}

/// What is wrong, and on which row.
#[derive(Debug, PartialEq)]
pub enum LineError {
    /// There is no call.
    Empty,
    /// A line that does not begin with a rank.
    NoRank(u64),
    /// A line without a call.
    NoCall(u64),
    /// A call that is not known, in lower case.
    Unknown(u64, Vec<u8>),
    /// No lines of a rank: which, and the last that has some.
    Missing(u64, u64),
    /// A second beginning of a rank.
    Twice(u64, u32),
    /// The last line of a rank that does not finish.
    Unfinished(u64, u32),
    /// An argument that is not there.
    Lacks(u64, &'static str),
    /// An argument that is no whole number.
    NotWhole(u64, &'static str, Vec<u8>),
    /// An argument that is no number up to a limit.
    NotCount(u64, &'static str, Vec<u8>, f64),
    /// A type that does not exist.
    NoType(u64, Vec<u8>),
    /// A rank that does not exist, and how many there are.
    Beyond(u64, i32, u32),
    /// More lines than can be numbered.
    Large,
}

/// Reads the lines of files, one file after the other.
pub fn read(files: &[&[u8]], scale: Scale<'_>) -> Result<ReplayCalls, LineError> {
    let mut reader = LineReader::new(scale);
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
    use super::{LineError, Scale, read};

    const SCALE: Scale<'_> = Scale { type_bytes: &[8, 4], ps_per_flop: 1000, longest_ps: 1 << 60 };

    #[test]
    fn a_wait_takes_the_oldest_request_of_its_triple() {
        let text =
            b"0 init\n0 isend 1 7 10\n0 send 1 7 9\n0 isend 1 7 20\n0 wait 0 1 7\n0 waitall\n\
                     0 isend 1 7 5 1\n0 wait 0 1 7\n0 finalize\n1 init\n1 Recv 0 7 4 1\n1 finalize";
        let found = read(&[text], SCALE).expect("it is right").posts;
        assert_eq!(found.wait_position, [9, 5, -1, 15, 21]);
        assert_eq!(found.size, [10, 9, 20, 20, 16]);
    }

    #[test]
    fn faults_have_a_row() {
        let fault = |text: &[u8]| read(&[text], SCALE).err();
        assert_eq!(fault(b"0 init\n\n0 fly\n"), Some(LineError::Unknown(2, b"fly".to_vec())));
        let far = b"4000000000 init\n0 init\n1 init\n";
        assert_eq!(fault(far), Some(LineError::Missing(2, 4_000_000_000)));
        assert_eq!(fault(b"0 init\n0 recv 0 1\n0 finalize"), Some(LineError::Lacks(1, "size")));
        assert_eq!(fault(b"0 init\n"), Some(LineError::Unfinished(0, 0)));
    }
}
