//! Reports of a run to its caller: its progress, and its steps.

use std::ops::ControlFlow;

use crate::outcome::MessageLog;
use crate::probe::TruthTable;
use crate::steps::Decision;

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

/// Report to the caller at a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReport {
    /// The step that each rank is in; the number of steps where it has finished.
    pub rank_step: Vec<u32>,
    /// Messages of the steps of the check, in order of sending rank and operation.
    pub messages: MessageLog,
    /// Traffic of each link so far, per step that labels state; the window is the step minus 1.
    pub traffic: TruthTable,
}

/// Decides at checks; `Break` interrupts the run.
pub type Decide<'a> = &'a mut dyn FnMut(StepReport) -> ControlFlow<(), Decision>;
