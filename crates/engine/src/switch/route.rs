//! Outputs and the candidates among which one is chosen.

/// The link and lane by which a packet leaves, shard indices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub link: u32,
    pub lane: u32,
}

/// The part of a routing decision that does not depend on load.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Route {
    /// Consecutive candidates (shard indices): the first and how many. None if only the routing
    /// rule can list them.
    pub start: u32,
    pub n: u16,
    /// The candidate that is examined first.
    pub first: u16,
}
