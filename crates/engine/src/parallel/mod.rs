//! Parallel simulation: the partition into shards, the threads that run them, and the exchange
//! between shards.

pub(crate) mod barrier;
pub(crate) mod exchange;
pub(crate) mod partition;
pub(crate) mod workers;
