//! Rank programs: what the ranks of a parallel job do, and the messages their operations pair up to.
//!
//! A program comes from outside in columns ([`Program`]), is checked and resolved once
//! ([`Compiled`]), and is then executed rank by rank ([`Rank`]). The packet engine and the fluid view
//! execute the same programs by the same blocking rules; they differ in what a message costs.

mod compile;
mod error;
mod program;
mod rank;

pub use compile::{Compiled, Message, Op, Request};
pub use error::ProgramError;
pub use program::{OpKind, Placement, Program};
pub use rank::Rank;
