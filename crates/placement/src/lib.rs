//! Partitions with parts of fixed size, improved by exchanges between two parts (Kernighan and Lin,
//! "An efficient heuristic procedure for partitioning graphs", 1970).

mod exchange;
mod graph;
mod search;

pub use graph::{PlacementError, TrafficGraph};
pub use search::{ImprovedPartition, Limits, Parts, improve};
