//! Outputs and the candidates among which one is chosen.

use crate::network::link::NIL;

/// The link and lane by which a packet leaves, shard indices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub link: u32,
    pub lane: u32,
}

/// The part of a routing decision that does not depend on load.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Route {
    /// Consecutive candidates (shard indices): the first and how many; none where only the
    /// routing rule knows them.
    pub start: u32,
    pub n: u16,
    /// The candidate that is examined first.
    pub first: u16,
}

/// The output of a packet that has not arrived yet, chosen ahead so that its lane can be fetched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chosen {
    /// The link, shard index; [`NIL`] if none was chosen.
    pub link: u32,
    /// [`Loads::releases`](crate::network::load::Loads::releases) when it was chosen.
    pub releases: u32,
}

impl Chosen {
    pub const NONE: Self = Self { link: NIL, releases: 0 };
}
