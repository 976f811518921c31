//! Contents of a trace, and the state that the readers of all ranks share.

use super::communicators::{Comm, Communicators};
use super::signatures::{CallKind, Signature};
use crate::numbering::Map;
use crate::post_rows::{ComputeRow, RecordedRanks};

/// MPI_ANY_SOURCE and MPI_ANY_TAG.
pub(super) const ANY: i64 = -1;
/// A wait that the trace does not record, and a cancelled post.
pub(super) const NO_WAIT: u32 = u32::MAX;
pub(super) const CANCELLED: u32 = u32::MAX - 1;

/// Bytes sent to and received from every member.
pub(super) type Counts = (Vec<u64>, Vec<u64>);

/// First bytes of a binary file.
pub const MAGIC: &[u8] = b"\xff\xaa\xddDUMPI";

/// A position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePosition {
    /// Unknown.
    None,
    /// Byte offset.
    Byte(u64),
    /// Line number, counted from 1.
    Line(u64),
}

/// The kind of a fault, which decides on the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The file is truncated.
    Truncated,
    /// The file is damaged.
    Damaged,
    /// A line that is not an argument; the text is the line.
    UnknownLine,
    /// A format version that records some arguments wrongly.
    OldVersion,
    /// A call whose arguments are not known.
    UnknownCall,
    /// The run had another number of ranks than there are files.
    WrongRankCount,
    /// More calls than can be numbered.
    TooLarge,
}

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Number of the rank.
    pub file: u32,
    /// Position in the file.
    pub place: FilePosition,
    /// Its kind.
    pub kind: FaultKind,
    /// What is wrong.
    pub text: String,
}

/// Label of messages or collectives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLabel {
    /// The MPI call; for collectives, `tag` is the number of the operation.
    pub call: String,
    /// Whether it is a collective.
    pub collective: bool,
    /// The tag.
    pub tag: i64,
    /// The communicator.
    pub communicator: String,
}

/// Collectives in which all members of the communicator take part, as columns.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct DumpiCollectives {
    pub rank: Vec<i64>,
    pub position: Vec<i64>,
    pub comm: Vec<i64>,
    pub instance: Vec<i64>,
    pub label: Vec<i64>,
    pub operation: Vec<i64>,
    pub size: Vec<i64>,
    pub me: Vec<i64>,
    pub root: Vec<i64>,
    pub sent: Vec<i64>,
    pub received: Vec<i64>,
    pub counts: Vec<i64>,
    pub stay_ns: Vec<i64>,
}

impl DumpiCollectives {
    pub(super) fn push(
        &mut self,
        call: &Collective,
        comm: u32,
        instance: u32,
        label: u32,
        size: usize,
        me: u32,
    ) {
        self.rank.push(call.rank.into());
        self.position.push(call.position.into());
        self.comm.push(comm.into());
        self.instance.push(instance.into());
        self.label.push(label.into());
        self.operation.push(call.operation.into());
        self.size.push(size as i64);
        self.me.push(me.into());
        self.root.push(call.root);
        self.sent.push(call.sent as i64);
        self.received.push(call.received as i64);
        self.counts.push(call.counts);
        self.stay_ns.push(call.stay_ns);
    }
}

/// The calls of all ranks.
#[derive(Debug, Default)]
pub struct DumpiCalls {
    /// Sends and receives, and the time between calls.
    pub ranks: RecordedRanks,
    /// Number of receives of which the trace does not record the message: they have no peer.
    pub unknown_sources: u64,
    /// Labels by number.
    pub labels: Vec<CallLabel>,
    /// Collectives.
    pub collectives: DumpiCollectives,
    /// Bytes sent to and received from every member, for collectives with a vector of counts.
    pub counts: Vec<(Vec<u64>, Vec<u64>)>,
    /// World ranks of the members of each communicator that collectives use.
    pub members: Vec<(u32, Vec<u32>)>,
    /// Number of sends and receives on communicators with unknown members, which are left out.
    pub lost_posts: u64,
    /// Number of collectives that some members did not record, which are left out.
    pub lost_collectives: u64,
    /// Number of messages of types of unknown size.
    pub of_unknown_type: u64,
    /// Number of sends and receives with MPI_PROC_NULL.
    pub proc_null: u64,
    /// Number of cancelled requests.
    pub cancelled: u64,
    /// Nanoseconds spent in all calls of each name.
    pub inside_ns: Vec<(String, i128)>,
    /// All calls with their times, if the reader was asked for them.
    pub timed: Option<TimedDumpiCalls>,
}

/// A call by name.
pub(super) struct Name {
    pub text: String,
    pub kind: CallKind,
    pub finalize: bool,
    pub inside_ns: i128,
    /// For persistent calls such as MPI_Send_init, the name of the started call.
    pub started: Option<u32>,
}

/// State shared by the readers of all ranks.
pub(super) struct Shared {
    pub n_ranks: u32,
    pub longest_ps: u64,
    pub signatures: Vec<Option<Signature>>,
    pub names: Vec<Name>,
    pub numbers: Map<String, u32>,
    /// Name of each call number of binary files.
    pub by_number: Vec<Option<u32>>,
    pub communicators: Communicators,
    pub posts: Vec<Post>,
    /// First post of each rank.
    pub first: Vec<u32>,
    pub computes: Vec<ComputeRow>,
    pub collectives: Vec<Collective>,
    pub counts: Map<Counts, i64>,
    pub of_unknown_type: u64,
    pub proc_null: u64,
    pub cancelled: u64,
    pub timed: Option<TimedDumpiCalls>,
    /// The first fault of each kind, reported only if all files can be read.
    pub rank_count_fault: Option<Fault>,
    pub argument_fault: Option<Fault>,
    pub gap_fault: Option<Fault>,
}

impl Shared {
    /// Number of a name; adds unknown names.
    pub fn named(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(Name {
            text: name.to_owned(),
            kind: CallKind::of(name),
            finalize: name == "MPI_Finalize",
            inside_ns: 0,
            started: None,
        });
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Name of a call of a binary file; `None` if its arguments are not known.
    #[inline]
    pub fn numbered(&self, number: u16) -> Option<u32> {
        self.by_number.get(usize::from(number)).copied().flatten()
    }

    /// Name of the call that a persistent call prepares: MPI_Send for MPI_Send_init.
    pub fn started(&mut self, name: u32) -> u32 {
        if let Some(started_name) = self.names[name as usize].started {
            return started_name;
        }
        let text = self.names[name as usize].text.replace("_init", "");
        let started_name = self.named(&text);
        self.names[name as usize].started = Some(started_name);
        started_name
    }
}

/// A call: number of its name, nanoseconds of entry and exit.
#[derive(Clone, Copy)]
pub(super) struct DumpiCall {
    pub name: u32,
    pub enter_ns: i64,
    pub leave_ns: i64,
    pub thread: u16,
    pub place: FilePosition,
}

/// A send or receive; kept small because there are many.
#[derive(Clone, Copy)]
pub(super) struct Post {
    pub size: u64,
    pub position: u32,
    /// Position of the wait for it, or [`NO_WAIT`] or [`CANCELLED`].
    pub wait: u32,
    pub peer: i32,
    pub tag: i32,
    pub comm: Comm,
    /// Number of the name of the call.
    pub name: u32,
    pub is_send: bool,
}

/// A collective call.
pub(super) struct Collective {
    pub position: u32,
    pub rank: u32,
    pub comm: Comm,
    pub operation: u8,
    pub root: i64,
    pub sent: u64,
    pub received: u64,
    /// Index of the vectors of counts, -1 if there are none.
    pub counts: i64,
    /// Nanoseconds in the call.
    pub stay_ns: i64,
}

/// The calls of all ranks, rank by rank in order, as columns, and what their messages refer to.
#[derive(Debug, Default)]
pub struct TimedDumpiCalls {
    /// World rank of each call.
    pub rank: Vec<u32>,
    /// Index of each call into `names`.
    pub name: Vec<u32>,
    /// Thread of each call.
    pub thread: Vec<u16>,
    /// Nanoseconds of entry by the clock of the rank.
    pub enter_ns: Vec<i64>,
    /// Nanoseconds of exit.
    pub leave_ns: Vec<i64>,
    /// Names of calls.
    pub names: Vec<String>,
    /// Communicator and tag of the messages of each channel.
    pub channels: Vec<(u32, u32)>,
    /// Names of communicators.
    pub communicators: Vec<String>,
}

impl TimedDumpiCalls {
    pub(super) fn push(&mut self, rank: u32, call: &DumpiCall) {
        self.rank.push(rank);
        self.name.push(call.name);
        self.thread.push(call.thread);
        self.enter_ns.push(call.enter_ns);
        self.leave_ns.push(call.leave_ns);
    }
}
