//! Rank programs: the operations of the ranks of a parallel job, and the messages formed by
//! matching sends and receives.
//!
//! A program is given in columns ([`Program`]). It is checked and matched once ([`MatchedProgram`]),
//! then each rank executes its operations ([`Rank`]). The packet engine and the fluid model execute the
//! same programs by the same blocking rules, and differ only in how long a message takes.

mod compile;
mod error;
mod in_host;
mod program;
mod rank;
mod repetition;

pub use compile::{MatchedProgram, Message, Op, Request};
pub use error::{ProgramError, time_text};
pub use in_host::{LocalPorts, SharedMemory};
pub use program::{OpKind, Placement, Program};
pub use rank::Rank;
pub use repetition::RepeatedStep;
