//! Errors of the fluid model: invalid input, and runs beyond its limits.

use tailback_program::ProgramError;
use thiserror::Error;

/// A mistake in the flows, the program, the tree or the settings.
#[derive(Debug, Error, PartialEq, Clone)]
pub enum FluidError {
    /// A column has the wrong length.
    #[error("{name} has {length} entries; {expected} are needed")]
    Length {
        /// Which column.
        name: &'static str,
        /// Its length.
        length: usize,
        /// Expected length.
        expected: usize,
    },
    /// A flow names a link that does not exist.
    #[error("flow {flow} uses link {link}, which does not exist; links are numbered below {links}")]
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
        /// Valid values.
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
    /// The next event lies beyond the latest time that the model can represent.
    #[error(
        "the run lasts longer than the fluid model's limit of 53 days (last event at {:.3} s): check \
         the unit of compute times, sizes and link rates",
        *.time_ps as f64 / 1e12
    )]
    TooLong {
        /// When the last event happened.
        time_ps: u64,
        /// The latest time that the model can represent.
        limit_ps: u64,
    },
    /// A malformed program or placement, or ranks that wait on one another forever.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

/// The latest time that the model can represent, as in the packet engine: the sum of two fits 64 bits.
const MAX_TIME_PS: u64 = 1 << 62;

/// Fails if the event after `now` is beyond [`MAX_TIME_PS`].
pub(crate) fn check_time(now: u64, event: u64) -> Result<(), FluidError> {
    if event <= MAX_TIME_PS {
        return Ok(());
    }
    Err(FluidError::TooLong { time_ps: now, limit_ps: MAX_TIME_PS })
}

/// Fails for a value that is not positive and finite.
pub(crate) fn require_positive(
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
