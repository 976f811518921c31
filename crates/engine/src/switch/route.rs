//! The output that a packet takes, and the candidates among which it is chosen.

/// Where a packet goes on, numbered within the shard: a link, and the lane of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub link: u32,
    pub lane: u32,
}

/// What does not depend on load of a packet's way on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Route {
    /// Neighbouring candidates, numbered within the shard: the first and how many; none where only the
    /// rule can tell.
    pub start: u32,
    pub n: u16,
    /// Which of them is looked at first.
    pub first: u16,
}
