//! Errors of a simulation.

use std::fmt;

use tailback_fabric::FabricError;
use tailback_program::ProgramError;
use thiserror::Error;

use crate::settings::units::time;

fn link_list(cycle: &[(u32, u8)]) -> String {
    let names: Vec<String> = cycle.iter().map(|(link, lane)| format!("{link} ({lane})")).collect();
    names.join(", ")
}

/// A simulation that cannot start or cannot end.
#[derive(Debug, Error, Clone, PartialEq)]
pub enum EngineError {
    /// A setting with a value that the engine cannot run with.
    #[error("[{section}] {key}: {}; {remedy}", self.message())]
    Setting {
        /// Table of the scenario: `engine.pacing`.
        section: &'static str,
        /// Its key in that table.
        key: &'static str,
        /// Its value, with its unit.
        value: String,
        /// What is wrong with it, as a predicate: `is out of range`.
        problem: String,
        /// What to write instead: the valid range, or the other key to change.
        remedy: String,
    },
    /// The fabric is inconsistent or not connected.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The rank program or its placement is malformed, or its ranks deadlock.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A count beyond the engine's number formats.
    #[error("{}", self.message())]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        value: u64,
        /// How many there may be.
        limit: u64,
        /// How to get fewer.
        remedy: &'static str,
    },
    /// A computation or the start of a rank beyond the longest time that the engine can represent.
    #[error("{}", self.message())]
    LongTime {
        /// What rank number `rank` does at that time, or for so long.
        what: &'static str,
        /// The rank.
        rank: usize,
        /// The time.
        ps: u64,
    },
    /// A link with a rate or delay that the engine cannot represent.
    #[error("link {link} has a {quantity} of {value}; {remedy}")]
    Link {
        /// The link.
        link: usize,
        /// `rate` or `delay`.
        quantity: &'static str,
        /// Its value, with its unit.
        value: String,
        /// The valid range.
        remedy: String,
    },
    /// The simulated time exceeds what the engine can represent.
    #[error("{}", self.message())]
    TooLong {
        /// When the last event happened.
        time_ps: u64,
        /// The latest time the engine can represent.
        limit_ps: u64,
    },
    /// Buffers wait for one another in a cycle.
    #[error(
        "{}: links (lane) {} wait for each other in a cycle", self.message(), link_list(cycle)
    )]
    Deadlock {
        /// When the last event happened.
        time_ps: u64,
        /// Each link and lane waits for the next, the last for the first.
        cycle: Vec<(u32, u8)>,
    },
}

impl EngineError {
    /// What is wrong, without where it is and without a remedy.
    pub fn message(&self) -> String {
        match self {
            Self::Setting { value, problem, .. } => format!("{value} {problem}"),
            Self::TooMany { what, value, limit, .. } => {
                format!("{what}: {value} is more than the engine's limit of {limit}")
            }
            Self::LongTime { what, rank, ps } => {
                let days = ps / DAY_PS;
                format!("rank {rank} {what} {days} days; the engine's limit is 53 days")
            }
            Self::TooLong { .. } => {
                "the run lasts longer than the engine's limit of 53 days".into()
            }
            Self::Deadlock { time_ps, .. } => {
                format!("the network is deadlocked at {}", time(*time_ps))
            }
            Self::Link { .. } | Self::Fabric(_) | Self::Program(_) => self.to_string(),
        }
    }

    /// What the user can do, where the engine knows it.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Setting { remedy, .. } | Self::Link { remedy, .. } => Some(remedy),
            Self::TooMany { remedy, .. } => Some(remedy),
            Self::LongTime { .. } | Self::TooLong { .. } => {
                Some("check the unit of the times in the trace, start and compute_scale")
            }
            _ => None,
        }
    }
}

const DAY_PS: u64 = 86_400 * 1_000_000_000_000;

/// A table of the scenario, for error texts.
#[derive(Clone, Copy)]
pub(crate) struct TableName(&'static str);

pub(crate) const ENGINE: TableName = TableName("engine");
pub(crate) const ADAPTIVE: TableName = TableName("engine.adaptive");
pub(crate) const PACING: TableName = TableName("engine.pacing");
pub(crate) const CONGESTION_CONTROL: TableName = TableName("engine.congestion_control");
pub(crate) const DCQCN: TableName = TableName("engine.dcqcn");
pub(crate) const FLOW_CONTROL: TableName = TableName("engine.flow_control");
pub(crate) const TELEMETRY: TableName = TableName("telemetry");

impl TableName {
    /// The error of a value outside its range.
    pub(crate) fn range(
        self,
        key: &'static str,
        value: impl fmt::Display,
        remedy: impl Into<String>,
    ) -> Result<(), EngineError> {
        self.refuse(key, value, "is out of range", remedy)
    }

    /// The error of a value that has a `problem`: `is out of range`.
    pub(crate) fn refuse(
        self,
        key: &'static str,
        value: impl fmt::Display,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Result<(), EngineError> {
        Err(EngineError::Setting {
            section: self.0,
            key,
            value: value.to_string(),
            problem: problem.into(),
            remedy: remedy.into(),
        })
    }
}
