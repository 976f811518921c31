//! The engine room: a discrete-event packet simulator of lossless, credit-flow-controlled networks.
//!
//! Time is integer picoseconds. The same fabric, settings and program give the same outcome bit for
//! bit: events at equal time have a fixed order, and random numbers are a function of the seed, the
//! purpose and the packet; the number of threads does not show. In free flow a packet costs one event
//! a hop (see `hop.rs`).

mod adapter;
mod ahead;
mod arbiter;
mod circuits;
mod congestion;
mod cut;
mod deadlock;
mod error;
mod flows;
mod gate;
mod hop;
mod limits;
mod link;
mod load;
mod machine;
mod mail;
mod outcome;
mod pacing;
mod packet;
pub mod probe;
mod program;
pub mod queue;
mod ranks;
mod ring;
mod rng;
mod settings;
mod shard;
mod sim;
mod windows;
mod wire;
mod world;

pub use congestion::{CongestionControl, Scheme};
pub use error::EngineError;
pub use outcome::{MessageLog, Outcome, RankLog};
pub use pacing::{Offset, Pacing};
pub use settings::{
    Arbitration, Buffering, Detour, Injection, MIN_WIRE_BYTES, Routing, Rule, Settings, Switching,
    When,
};
pub use sim::{Progress, Watch, Work, simulate};
pub use tailback_program::{Placement, Program, ProgramError};
