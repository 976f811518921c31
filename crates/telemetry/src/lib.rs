//! What a packet carries, and the sums a receiver keeps.
//!
//! The switch side ([`Mark`]) is a few bytes a packet and one decision a hop; the receiver side
//! ([`Sums`]) is a table of weighted counts. Neither knows the simulator. [`scheme`] has every other
//! way to carry a sample of the path, [`hash`] what stands for a link in a few bits, [`decode`] the
//! way back from hashes to counts.

pub mod congestion;
pub mod decode;
pub mod hash;
pub mod randomness;
mod reservoir;
pub mod scheme;
mod sums;

pub use reservoir::{Mark, NO_LINK};
pub use sums::{Key, Sample, SampleLog, Sums};
