//! Pacing of flows that have a rate.

use serde::Deserialize;

/// How flows with a rate are paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Pacing {
    /// Rates are ignored.
    #[default]
    Off,
    /// A leaky bucket of so many bytes on top of one packet (virtual scheduling, ITU-T I.371).
    LeakyBucket {
        /// What may be sent at once after a pause.
        depth_bytes: u32,
    },
    /// At least the interval between any two packets.
    Spaced,
    /// By timetable; late packets follow each other at `percent` of the interval at least.
    Elastic {
        /// Percent of the interval, 1 to 100.
        percent: u32,
    },
}

/// Where in its first interval a paced flow begins. Flows of one rate that start together stay in step
/// otherwise, and so do their collisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PacingOffset {
    /// At once.
    #[default]
    None,
    /// Anywhere, at random.
    Random,
    /// By how far its destination is from its source, round the nodes as they are numbered: flows of
    /// a node one after the other, and flows to a node too.
    Shift,
}
