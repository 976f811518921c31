//! Progress reports of a run.

use std::ops::ControlFlow;

/// How far a run has advanced.
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

/// Callback for progress reports; returning `Break` interrupts the run.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;
