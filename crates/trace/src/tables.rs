//! Tables of the MPI calls, message records and call paths of one location.

/// No value, in a `u32` column.
pub const NONE: u32 = u32::MAX;

/// No value, in a column of requests or messages; OTF2's undefined id.
pub const NO_ID: u64 = u64::MAX;

/// Which record a row of [`Messages`] comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// MPI_Send or another blocking send, complete when the call returns.
    Send = 0,
    /// A non-blocking send is posted.
    Isend = 1,
    /// A non-blocking send is complete.
    IsendComplete = 2,
    /// A non-blocking receive is posted; the record does not name the sender.
    IrecvRequest = 3,
    /// A blocking receive is complete; the record names the sender.
    Recv = 4,
    /// A non-blocking receive is complete; the record names the sender.
    Irecv = 5,
    /// A test found the request incomplete.
    RequestTest = 6,
    /// The request was cancelled.
    RequestCancelled = 7,
    /// A collective ends; the record names the operation.
    CollectiveEnd = 8,
    /// A non-blocking collective is posted; the record does not name the operation.
    IcollectiveRequest = 9,
    /// A non-blocking collective is complete; the record names the operation.
    IcollectiveComplete = 10,
    /// A matched probe (MPI_Mprobe) found a message; the record names the sender.
    MatchedProbe = 11,
    /// A blocking receive of a message from a matched probe is complete.
    Mrecv = 12,
    /// A non-blocking receive of a message from a matched probe is posted.
    ImrecvRequest = 13,
    /// A non-blocking receive of a message from a matched probe is complete.
    Imrecv = 14,
    /// A one-sided operation: bytes to the target, and received from it.
    OneSided = 15,
    /// A one-sided operation is complete at its origin.
    OneSidedComplete = 16,
    /// A call opens or closes an epoch of a window.
    OneSidedSync = 17,
}

/// Call paths of one location, as a tree: each path extends its parent by one frame.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CallPaths {
    /// Row of the path of the caller, [`NONE`] at the top, shape (P,).
    pub parent: Vec<u32>,
    /// Region of the last frame, shape (P,).
    pub region: Vec<u32>,
    /// Source code location of that frame, [`NONE`] if unknown, shape (P,).
    pub site: Vec<u32>,
}

/// Outermost MPI calls of one location, in the order in which they were entered.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Calls {
    /// Region of the call, shape (C,).
    pub region: Vec<u32>,
    /// When it was entered, in ticks, shape (C,).
    pub enter: Vec<u64>,
    /// When it was left, in ticks, shape (C,).
    pub leave: Vec<u64>,
    /// Whether recording was switched off and on again since the previous call, shape (C,).
    pub paused: Vec<bool>,
    /// Processor time since the previous call of the location, ns, [`NO_ID`] if it was not recorded,
    /// shape (C,); empty if the trace has no such times.
    pub processor: Vec<u64>,
    /// Number of the enter event, shape (C,).
    pub enter_event: Vec<u64>,
    /// Number of the leave event, shape (C,).
    pub leave_event: Vec<u64>,
    /// Row of [`CallPaths`]: the application's regions around the call, [`NONE`] if none, shape (C,).
    pub path: Vec<u32>,
}

/// Message records of one location, in order. Columns that do not apply to a kind hold 0 or [`NONE`].
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Messages {
    /// [`RecordKind`] of the record, shape (M,).
    pub kind: Vec<u8>,
    /// Time in ticks, shape (M,).
    pub time: Vec<u64>,
    /// Event number within the location, shape (M,).
    pub event: Vec<u64>,
    /// Row of [`Calls`] of the enclosing call, [`NONE`] outside of calls, shape (M,).
    pub call: Vec<u32>,
    /// Region of the innermost phase of the application around it, [`NONE`] if none, shape (M,).
    pub phase: Vec<u32>,
    /// Row of [`CallPaths`]: the application's regions around it, [`NONE`] if none, shape (M,).
    pub path: Vec<u32>,
    /// Receiver, sender or root, as a rank of the communicator, shape (M,).
    pub peer: Vec<u32>,
    /// Communicator, shape (M,).
    pub comm: Vec<u32>,
    /// MPI tag; for collectives the OTF2 operation, for one-sided records the window, shape (M,).
    pub tag: Vec<u32>,
    /// Bytes of the message; for collectives bytes sent, shape (M,).
    pub bytes: Vec<u64>,
    /// For collectives bytes received, shape (M,).
    pub received: Vec<u64>,
    /// Request that is posted, tested, completed or cancelled, [`NO_ID`] if none, shape (M,).
    pub request: Vec<u64>,
    /// Message that a matched probe found or that is received; for collectives the string with the bytes
    /// to each partner; [`NO_ID`] if none, shape (M,).
    pub message: Vec<u64>,
    /// Row of this table that posted the request, [`NONE`] if unknown, shape (M,).
    pub posted: Vec<u32>,
    /// Row of this table whose probe found the message, [`NONE`] if unknown, shape (M,).
    pub probed: Vec<u32>,
}

/// Offset of a location's clock from the clock of the whole trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// When it was measured, in ticks of the location's clock.
    pub time: u64,
    /// Ticks to add to the location's clock at that time.
    pub offset: i64,
}

/// Everything read from one location.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LocationEvents {
    /// The location, as the trace numbers it.
    pub location: u64,
    /// Number of records of all kinds in the file.
    pub records: u64,
    /// Number of enter events.
    pub enters: u64,
    /// Number of leave events.
    pub leaves: u64,
    /// MPI calls.
    pub calls: Calls,
    /// Message records.
    pub messages: Messages,
    /// Call paths of the calls and of the message records.
    pub paths: CallPaths,
    /// Clock offsets that the tracer recorded; the library has already applied them to all times.
    pub clock_offsets: Vec<ClockOffset>,
}
