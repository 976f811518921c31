//! Rank programs: the operations of the ranks of a parallel job, and the messages formed by
//! matching sends and receives.
//!
//! A program is given in columns ([`Program`]), is checked and resolved once
//! ([`MatchedProgram`]), and is then executed rank by rank ([`Rank`]). The packet engine and the
//! fluid model execute the same programs by the same blocking rules; they differ in what a message
//! costs.

mod compile;
mod error;
mod program;
mod rank;

pub use compile::{MatchedProgram, Message, Op, Request};
pub use error::ProgramError;
pub use program::{OpKind, Placement, Program};
pub use rank::Rank;
