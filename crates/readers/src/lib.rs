//! Decodes traces of messages (GOAL, SimGrid's time-independent traces, …) and puts the operations of
//! ranks in order.
//!
//! Files arrive as bytes and leave as columns; sniffing, options and the wording of errors are Python's.

#![forbid(unsafe_code)]

pub mod assembly;
pub mod chakra;
pub mod goal;
pub mod graph;
pub mod numbering;
pub mod simgrid_ti;
mod text;

/// Operations of all ranks, rank after rank: the columns of `tailback.traffic.program.Program`.
#[derive(Debug, Default)]
pub struct ProgramColumns {
    /// First operation of each rank, one more than there are ranks.
    pub rank_start: Vec<u64>,
    /// What each operation does, as numbered in [`op`].
    pub kind: Vec<u8>,
    /// The other rank of sends and receives, -1 otherwise.
    pub peer: Vec<i32>,
    /// Bytes, or picoseconds of computation.
    pub amount: Vec<u64>,
    /// Number by which sends and receives match.
    pub tag: Vec<i64>,
    /// Request within the rank, -1 without one.
    pub request: Vec<i32>,
    /// Number of the label of sends and receives, 0 for others.
    pub label: Vec<u32>,
}

impl ProgramColumns {
    fn with_room(ranks: usize, operations: usize) -> Self {
        let mut rank_start = Vec::with_capacity(ranks + 1);
        rank_start.push(0);
        Self {
            rank_start,
            kind: Vec::with_capacity(operations),
            peer: Vec::with_capacity(operations),
            amount: Vec::with_capacity(operations),
            tag: Vec::with_capacity(operations),
            request: Vec::with_capacity(operations),
            label: Vec::with_capacity(operations),
        }
    }

    fn push(&mut self, kind: u8, peer: i32, amount: u64, tag: i64, request: i32, label: u32) {
        self.kind.push(kind);
        self.peer.push(peer);
        self.amount.push(amount);
        self.tag.push(tag);
        self.request.push(request);
        self.label.push(label);
    }

    fn close_rank(&mut self) {
        self.rank_start.push(self.kind.len() as u64);
    }
}

/// Numbers of operations, those of `tailback.traffic.program.Op`.
pub mod op {
    /// Occupies the rank for an amount of picoseconds.
    pub const COMPUTE: u8 = 0;
    /// Posts a send.
    pub const ISEND: u8 = 1;
    /// Posts a receive.
    pub const IRECV: u8 = 2;
    /// Waits for one request.
    pub const WAIT: u8 = 3;
    /// Waits for all open requests.
    pub const WAITALL: u8 = 4;
    /// Only passes dependencies on; of graphs alone.
    pub const NOTHING: u8 = 255;
}
