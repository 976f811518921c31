//! Settings of the pacing of flows that have a rate.

use serde::Deserialize;

/// How flows that have a rate are paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Pacing {
    /// Rates are ignored.
    #[default]
    Off,
    /// A leaky bucket of `depth_bytes` on top of one packet (virtual scheduling, ITU-T I.371).
    LeakyBucket {
        /// Bytes that may be sent in a burst after a pause.
        depth_bytes: u32,
    },
    /// At least the interval between any two packets.
    Spaced,
    /// Packets are scheduled at the flow's rate; late packets catch up, but no closer than
    /// `percent` of the interval apart.
    Elastic {
        /// Percent of the interval, 1 to 100.
        percent: u32,
    },
}

/// Start of a paced flow within its first interval. Otherwise flows of equal rate that start
/// together would collide again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacingOffset {
    /// At once.
    #[default]
    None,
    /// Anywhere, at random.
    Random,
    /// Proportional to the distance from source to destination in node numbers, modulo the
    /// number of nodes: this staggers the flows of a source, and those to a destination.
    Shift,
}
