//! The engine room: a discrete-event packet simulator of lossless, credit-flow-controlled networks.
//!
//! Time is integer picoseconds. The same fabric, settings and program give the same outcome bit for
//! bit: events at equal time have a fixed order, and random numbers are a function of the seed, the
//! purpose and the packet. In free flow a packet costs one event a hop (see `hop.rs`).

mod adapter;
mod error;
mod hop;
mod link;
mod outcome;
mod packet;
pub mod probe;
mod program;
pub mod queue;
mod ranks;
mod rng;
mod settings;
mod sim;

pub use error::EngineError;
pub use outcome::{MessageLog, Outcome, RankLog};
pub use program::{OpKind, Placement, Program};
pub use settings::{
    Buffering, Detour, Injection, MIN_WIRE_BYTES, Routing, Rule, Settings, Switching, When,
};
pub use sim::{Progress, Watch, simulate};
