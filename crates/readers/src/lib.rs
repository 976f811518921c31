//! Decodes traces (GOAL, SimGrid's time-independent traces, Chakra, DUMPI) and orders the operations of
//! ranks.
//!
//! Input is the bytes of files, output is columns. Python recognises formats and words the errors.

#![forbid(unsafe_code)]

pub mod assembly;
pub mod chakra;
pub mod dumpi;
pub mod goal;
pub mod goal_binary;
mod goal_labels;
pub mod graph;
mod matching;
pub mod numbering;
pub mod ordering;
pub mod post_rows;
pub mod requirements;
pub mod simgrid_ti;
pub mod sources;
mod text;
mod wildcards;

/// Kinds of operations as numbers in columns.
pub mod op {
    use tailback_program::OpKind;

    /// [`OpKind::Compute`].
    pub const COMPUTE: u8 = OpKind::Compute as u8;
    /// [`OpKind::Isend`].
    pub const ISEND: u8 = OpKind::Isend as u8;
    /// [`OpKind::Irecv`].
    pub const IRECV: u8 = OpKind::Irecv as u8;
    /// No operation: a node of a graph that only has dependencies.
    pub const NOTHING: u8 = 255;
}
