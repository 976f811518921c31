//! What can be wrong with what came from outside.

use thiserror::Error;

/// A mistake in the flows, the program, the tree or the settings.
#[derive(Debug, Error, PartialEq, Clone)]
pub enum FluidError {
    /// A column has the wrong length.
    #[error("{name} has {length} entries, {expected} are needed")]
    Length {
        /// Which column.
        name: &'static str,
        /// What it has.
        length: usize,
        /// What it should have.
        expected: usize,
    },
    /// A flow names a link that does not exist.
    #[error("flow {flow} uses link {link}, there are {links}")]
    Link {
        /// The flow.
        flow: usize,
        /// The link it names.
        link: u32,
        /// How many there are.
        links: usize,
    },
    /// A number is not positive and finite, or not in its range.
    #[error("{name} of {place} is {value}; valid: {valid}")]
    Value {
        /// Which quantity.
        name: &'static str,
        /// Where.
        place: String,
        /// Its value.
        value: String,
        /// What it may be.
        valid: &'static str,
    },
    /// Two nodes without a path between them.
    #[error("no path from node {from} to node {to}: the fabric is not connected")]
    Unconnected {
        /// Source node.
        from: u32,
        /// Destination node.
        to: u32,
    },
    /// An operation that cannot be.
    #[error("rank {rank}, operation {operation}: {problem}")]
    Program {
        /// The rank.
        rank: u32,
        /// Its operation.
        operation: u64,
        /// What is wrong.
        problem: String,
    },
    /// Sends and receives that do not pair up.
    #[error(
        "rank {src} sends {sends} messages to rank {dst} with tag {tag}, which receives {receives}"
    )]
    Unmatched {
        /// Sender.
        src: u32,
        /// Receiver.
        dst: u32,
        /// Tag.
        tag: i64,
        /// Sends posted.
        sends: usize,
        /// Receives posted.
        receives: usize,
    },
    /// Ranks wait for one another.
    #[error("{blocked} ranks are blocked for ever at {time_ps} ps: {examples}")]
    Stuck {
        /// How many.
        blocked: usize,
        /// Since when.
        time_ps: u64,
        /// Some of them.
        examples: String,
    },
}

/// Refuses a value that is not positive and finite.
pub(crate) fn positive(
    name: &'static str,
    place: impl Fn() -> String,
    value: f64,
) -> Result<(), FluidError> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    let valid = "above 0 and finite";
    Err(FluidError::Value { name, place: place(), value: value.to_string(), valid })
}
