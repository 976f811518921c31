//! Progress of a run, for whoever watches it.

use std::ops::ControlFlow;

/// How far a run is, for whoever watches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Simulated time.
    pub time_ps: u64,
    /// Packets delivered so far.
    pub delivered: u64,
    /// Packets of the whole run.
    pub packets: u64,
    /// Events so far.
    pub events: u64,
}

/// Called now and then; breaking stops the run.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;
