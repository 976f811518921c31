//! What is read from one location: tables of MPI calls, message records and call paths.

/// "None" in a `u32` column.
pub const NONE: u32 = u32::MAX;

/// "None" in a column of requests or messages; OTF2's undefined one.
pub const NO_ID: u64 = u64::MAX;

/// Which record a row of [`Messages`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// MPI_Send and its like, finished when the call is left.
    Send = 0,
    /// A non-blocking send is posted.
    Isend = 1,
    /// A non-blocking send is complete.
    IsendComplete = 2,
    /// A non-blocking receive is posted; what it will match is not known yet.
    IrecvRequest = 3,
    /// MPI_Recv and similar calls; contains the matched rank.
    Recv = 4,
    /// A non-blocking receive is complete; contains the matched rank.
    Irecv = 5,
    /// A test found the request incomplete.
    RequestTest = 6,
    /// The request was cancelled.
    RequestCancelled = 7,
    /// A collective ends; contains its operation.
    CollectiveEnd = 8,
    /// A non-blocking collective is called; what it is is not known yet.
    IcollectiveRequest = 9,
    /// A non-blocking collective is complete; contains its operation.
    IcollectiveComplete = 10,
    /// A probe took a message out of the matching; contains the matched rank.
    MatchedProbe = 11,
    /// Such a message is received.
    Mrecv = 12,
    /// A non-blocking receive of such a message is posted.
    ImrecvRequest = 13,
    /// A non-blocking receive of such a message is complete.
    Imrecv = 14,
}

/// Call paths of one location: each is a frame below another path.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CallPaths {
    /// Path that calls this one, [`NONE`] at the top, shape (P,).
    pub parent: Vec<u32>,
    /// Region of the last frame, shape (P,).
    pub region: Vec<u32>,
    /// Source code location of that frame, [`NONE`] where unknown, shape (P,).
    pub site: Vec<u32>,
}

/// Outermost MPI calls of one location, in the order they were entered.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Calls {
    /// Region of the call, shape (C,).
    pub region: Vec<u32>,
    /// When it was entered, ticks, shape (C,).
    pub enter: Vec<u64>,
    /// When it was left, ticks, shape (C,).
    pub leave: Vec<u64>,
    /// Whether recording was switched off and on again since the call before, shape (C,).
    pub paused: Vec<bool>,
    /// Event number of the enter, shape (C,).
    pub enter_event: Vec<u64>,
    /// Event number of the leave, shape (C,).
    pub leave_event: Vec<u64>,
    /// Row of [`CallPaths`]: the regions of the application around it, [`NONE`] without, shape (C,).
    pub path: Vec<u32>,
}

/// Message records of one location, in order. Columns that a kind does not have hold 0 or [`NONE`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Messages {
    /// [`RecordKind`] of the record, shape (M,).
    pub kind: Vec<u8>,
    /// Ticks, shape (M,).
    pub time: Vec<u64>,
    /// Event number within the location, shape (M,).
    pub event: Vec<u64>,
    /// Row of [`Calls`] the record sits in, [`NONE`] outside of any, shape (M,).
    pub call: Vec<u32>,
    /// Region of the nearest enclosing phase of the application, [`NONE`] without, shape (M,).
    pub phase: Vec<u32>,
    /// Row of [`CallPaths`]: the regions of the application around it, [`NONE`] without, shape (M,).
    pub path: Vec<u32>,
    /// Receiver, sender or root, local to the communicator, shape (M,).
    pub peer: Vec<u32>,
    /// Communicator, shape (M,).
    pub comm: Vec<u32>,
    /// MPI tag; for collectives the OTF2 operation, shape (M,).
    pub tag: Vec<u32>,
    /// Bytes of the message; for collectives bytes sent, shape (M,).
    pub bytes: Vec<u64>,
    /// For collectives bytes received, shape (M,).
    pub received: Vec<u64>,
    /// Request that is posted, tested, completed or cancelled, [`NO_ID`] without, shape (M,).
    pub request: Vec<u64>,
    /// Message of a matched probe that is found or received, [`NO_ID`] without, shape (M,).
    pub message: Vec<u64>,
    /// The row of this location that posted the request, [`NONE`] if unknown, shape (M,).
    pub posted: Vec<u32>,
    /// The row of this location that found the message, [`NONE`] if unknown, shape (M,).
    pub probed: Vec<u32>,
}

/// A clock of the recording compared with the clock of the whole trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// When, in ticks of the location's own clock.
    pub time: u64,
    /// What was added to that clock there, in ticks.
    pub offset: i64,
}

/// Everything read from one location.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LocationEvents {
    /// The location, as the trace numbers it.
    pub location: u64,
    /// Records in the file, of any kind.
    pub records: u64,
    /// Enter events.
    pub enters: u64,
    /// Leave events.
    pub leaves: u64,
    /// MPI calls.
    pub calls: Calls,
    /// Message records.
    pub messages: Messages,
    /// Call paths of the calls and of the message records.
    pub paths: CallPaths,
    /// Clock offsets that the tracer recorded; the library has applied them to all times.
    pub clock_offsets: Vec<ClockOffset>,
}
