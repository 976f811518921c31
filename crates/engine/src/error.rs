//! What can go wrong with a simulation.

use tailback_fabric::FabricError;
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
    /// The rank program is malformed.
    #[error("rank {rank}, operation {operation}: {problem}")]
    Program {
        /// Rank.
        rank: u32,
        /// Operation within the rank.
        operation: u64,
        /// What is wrong.
        problem: String,
    },
    /// Sends and receives of a pair of ranks do not match.
    #[error(
        "rank {src} sends {sends} messages to rank {dst} with tag {tag}, which receives {receives}"
    )]
    Unmatched {
        /// Sending rank.
        src: u32,
        /// Receiving rank.
        dst: u32,
        /// Tag.
        tag: i64,
        /// Sends posted over the whole program.
        sends: usize,
        /// Receives posted over the whole program.
        receives: usize,
    },
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
    /// Ranks wait on one another for ever.
    #[error("{blocked} ranks are blocked for ever at {time_ps} ps: {examples}")]
    Stuck {
        /// Ranks that have not finished.
        blocked: usize,
        /// When the last event happened.
        time_ps: u64,
        /// The first few and what each waits for.
        examples: String,
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
