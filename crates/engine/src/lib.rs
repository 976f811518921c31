//! A discrete-event packet simulator of lossless networks, with credit or priority flow
//! control.
//!
//! Time is integer picoseconds. The same fabric, settings and program give the same outcome bit for
//! bit on any number of threads: events at the same time have a fixed order, and random numbers are
//! a function of the seed, the stream and the packet. Without congestion a packet costs one event
//! per hop (see `switch/forwarding.rs`).

mod congestion;
mod deadlock;
mod entropy;
mod error;
pub mod events;
mod host;
mod intrinsics;
mod limits;
mod model;
mod network;
mod outcome;
mod parallel;
pub mod probe;
mod program;
mod progress;
mod rng;
mod settings;
mod shard;
mod simulation;
mod steps;
mod switch;

pub use error::EngineError;
pub use outcome::{MessageLog, Outcome, RankLog};
pub use progress::{Decide, Progress, StepReport, Watch};
pub use settings::{
    AdaptiveLoad, AdaptiveRule, AdaptiveTies, AdaptiveUnit, Arbitration, Buffering,
    CongestionControl, CongestionScheme, Dcqcn, EagerSends, FlowControl, Injection, MIN_WIRE_BYTES,
    MarkingPoint, MarkingRule, Pacing, PacingOffset, RendezvousProgress, Routing, Settings,
    Switching,
};
pub use simulation::{Parallelism, simulate, simulate_in_steps};
pub use steps::{Check, Decision, Steps};
pub use tailback_fabric::Detour;
pub use tailback_program::{Placement, Program, ProgramError};
