//! Settings of adaptive routing: how ports are compared, and how often.

use serde::Deserialize;

/// The rule by which adaptive routing takes one of several ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveRule {
    /// See [`AdaptiveLoad`].
    #[serde(default)]
    pub load: AdaptiveLoad,
    /// See [`AdaptiveTies`].
    #[serde(default)]
    pub ties: AdaptiveTies,
    /// See [`AdaptiveUnit`].
    #[serde(default)]
    pub per: AdaptiveUnit,
    /// Pause after which a message chooses again, with per flowlet.
    #[serde(default)]
    pub gap_ps: u64,
    /// Bytes of a message that share one choice, with per chunk.
    #[serde(default)]
    pub chunk_bytes: u64,
}

/// What is compared between ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdaptiveLoad {
    /// The time that the bytes booked and waiting at the port need.
    #[default]
    Queue,
    /// The bytes that wait, and those whose credit has not come back: booked, on the cable, or in
    /// the buffer at its far end. CODES compares this (`vc_occupancy` + `queued_length`).
    QueueAndCredit,
}

/// Which of equal ports is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdaptiveTies {
    /// The first one found, cyclically from a random port on.
    #[default]
    Random,
    /// The lowest.
    Lowest,
    /// A random port if no port has less load, else the lowest of those with the least. CODES draws
    /// a port first, then looks for a better one from the lowest on.
    RandomOrLowest,
}

/// How long a choice holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdaptiveUnit {
    /// One packet.
    #[default]
    Packet,
    /// All data packets of a message.
    Message,
    /// Data packets of one chunk of a message: `chunk_bytes` from its first byte on, and so on; a
    /// packet counts to the chunk of its first byte (flowcells of He et al., 2015).
    Chunk,
    /// Data packets of a message without a longer pause between them at the switch (Sinha,
    /// Kandula and Katabi, 2004).
    Flowlet,
    /// All data packets from one rank to another. A new flow takes the port that the fewest chose,
    /// of equal ones that of deterministic routing: what hashing of flows is at best.
    Flow,
}
