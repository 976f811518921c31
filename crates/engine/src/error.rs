//! What can go wrong with a simulation.

use tailback_fabric::FabricError;
use tailback_program::ProgramError;
use thiserror::Error;

fn named(cycle: &[(u32, u8)]) -> String {
    let names: Vec<String> = cycle.iter().map(|(link, lane)| format!("{link} ({lane})")).collect();
    names.join(", ")
}

/// A simulation that cannot start or cannot end.
#[derive(Debug, Error, Clone, PartialEq)]
pub enum EngineError {
    /// A setting out of range.
    #[error("{field} = {value}: must be {valid}")]
    Setting {
        /// Setting, as the scenario calls it.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would be valid.
        valid: String,
    },
    /// The fabric is inconsistent or not connected.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The rank program or its placement is malformed, or its ranks wait on one another for ever.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// More of something than the engine can number.
    #[error("{what}: {value} is more than the engine's limit of {limit}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much.
        value: u64,
        /// Limit.
        limit: u64,
    },
    /// What happens after the last event lies beyond the times the engine has numbers for.
    #[error(
        "the run goes on after {time_ps} ps, beyond {limit_ps} ps (53 days), the engine's limit: \
         a compute time may be in the wrong unit"
    )]
    TooLong {
        /// When the last event happened.
        time_ps: u64,
        /// The last time there is a number for.
        limit_ps: u64,
    },
    /// Buffers wait on one another in a circle.
    #[error(
        "the network is deadlocked at {time_ps} ps: links (lane) {} wait on one another in a circle",
        named(cycle)
    )]
    Deadlock {
        /// When the last event happened.
        time_ps: u64,
        /// Each link and lane waits for the next, the last for the first.
        cycle: Vec<(u32, u8)>,
    },
}
