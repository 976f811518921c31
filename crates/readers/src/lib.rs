//! Decodes traces of messages (GOAL, SimGrid's time-independent traces, …) and puts the operations of
//! ranks in order.
//!
//! Files arrive as bytes and leave as columns; sniffing, options and the wording of errors are Python's.

#![forbid(unsafe_code)]

pub mod assembly;
pub mod chakra;
pub mod dumpi;
pub mod goal;
pub mod graph;
pub mod numbering;
pub mod simgrid_ti;
mod text;

/// Kinds of operations as numbers, as they stand in columns.
pub mod op {
    use tailback_program::OpKind;

    /// [`OpKind::Compute`].
    pub const COMPUTE: u8 = OpKind::Compute as u8;
    /// [`OpKind::Isend`].
    pub const ISEND: u8 = OpKind::Isend as u8;
    /// [`OpKind::Irecv`].
    pub const IRECV: u8 = OpKind::Irecv as u8;
    /// Only passes dependencies on; in graphs alone.
    pub const NOTHING: u8 = 255;
}
