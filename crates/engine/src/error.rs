//! Errors of a simulation.

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
        /// Name of the setting in the scenario.
        field: &'static str,
        /// Its value.
        value: String,
        /// Valid values.
        valid: String,
    },
    /// The fabric is inconsistent or not connected.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The rank program or its placement is malformed, or its ranks deadlock.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// An input beyond the engine's number formats.
    #[error("{what}: {value} is more than the engine's limit of {limit}")]
    TooLarge {
        /// The quantity.
        what: &'static str,
        /// Its value.
        value: u64,
        /// Limit.
        limit: u64,
    },
    /// The simulated time exceeds what the engine can represent.
    #[error(
        "the run goes on after {time_ps} ps, beyond {limit_ps} ps (53 days), the engine's limit: \
         a compute time may be in the wrong unit"
    )]
    TooLong {
        /// When the last event happened.
        time_ps: u64,
        /// The latest time the engine can represent.
        limit_ps: u64,
    },
    /// Buffers wait for one another in a cycle.
    #[error(
        "the network is deadlocked at {time_ps} ps: links (lane) {} wait for each other in a cycle",
        named(cycle)
    )]
    Deadlock {
        /// When the last event happened.
        time_ps: u64,
        /// Each link and lane waits for the next, the last for the first.
        cycle: Vec<(u32, u8)>,
    },
}
