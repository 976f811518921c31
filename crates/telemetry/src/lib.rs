//! What a packet carries, and the sums a receiver keeps.
//!
//! The switch side ([`Mark`]) is a few bytes a packet and one decision a hop; the receiver side
//! ([`Sums`]) is a table of weighted counts. Neither knows the simulator.

mod reservoir;
mod sums;

pub use reservoir::{Mark, NO_LINK};
pub use sums::{Key, Sample, SampleLog, Sums};
