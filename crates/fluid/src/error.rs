//! What can be wrong with what came from outside.

use tailback_program::ProgramError;
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
    /// What happens next lies beyond the times there are numbers for.
    #[error(
        "the run goes on after {time_ps} ps, beyond {limit_ps} ps (53 days), the fluid model's \
         limit: a compute time, a size or a link rate may be in the wrong unit"
    )]
    TooLong {
        /// When the last event happened.
        time_ps: u64,
        /// The last time there is a number for.
        limit_ps: u64,
    },
    /// A program or a placement that is malformed, or ranks that wait on one another for ever.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// The last time there is a number for, as in the packet engine: two such times can be added.
const MOST_PS: u64 = 1 << 62;

/// Refuses to go on from `now` to an event that is too far away.
pub(crate) fn in_time(now: u64, event: u64) -> Result<(), FluidError> {
    if event <= MOST_PS {
        return Ok(());
    }
    Err(FluidError::TooLong { time_ps: now, limit_ps: MOST_PS })
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
