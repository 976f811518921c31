//! Telemetry: what packets carry, and the sums that receivers compute from it.
//!
//! The switch side ([`Mark`]) is a few bytes per packet and one decision per hop; the receiver side
//! ([`Samples`]) is a table of weighted counts. Neither depends on the simulator. [`scheme`] has
//! other encodings of a path sample. [`hash`] represents a link in a few bits. [`decode`] turns
//! hashes into counts.

mod column;
pub mod decode;
pub mod hash;
pub mod link_times;
mod log;
mod order;
pub mod packet_id;
pub mod randomness;
mod reservoir;
pub mod scheme;
mod shares;
mod sums;

pub use column::Column;
pub use log::Log;
pub use order::{BLOCK, Block, EntrySums, RadixSorter, append, places_of};
pub use reservoir::{Mark, NO_LINK};
pub use shares::{in_shares, side_by_side};
pub use sums::{Sample, SampleLog, Samples};
