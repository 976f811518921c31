//! Settings of the optional probes.

use serde::Deserialize;
use tailback_telemetry::scheme::MAX_SLOTS;

use crate::error::{EngineError, TELEMETRY};

/// Optional probes, off by default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Probes {
    /// Time between two readings of the port counters, 0 for none.
    pub counters_ps: u64,
    /// Time between two readings of the queue lengths, 0 for none.
    pub queues_ps: u64,
    /// Contents of packet headers, and how many packets are recorded; none when absent.
    pub carry: Option<HeaderSettings>,
}

impl Probes {
    /// Whether any probe is on.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Checks values.
    ///
    /// # Errors
    /// [`EngineError::Setting`] names the key, the value and the valid range.
    pub fn check(&self) -> Result<(), EngineError> {
        self.carry.as_ref().map_or(Ok(()), HeaderSettings::check)
    }

    /// Whether port counters or queue lengths are recorded.
    pub(crate) fn of_ports(&self) -> bool {
        self.counters_ps > 0 || self.queues_ps > 0
    }
}

/// Contents of packet headers. Fields are listed from the lowest bit; links are numbered from 1, 0
/// means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeaderScheme {
    /// Link (24), hops (8), congested link (24), congested hops (8).
    Full,
    /// Hash (b), hops (c), hash of a congested hop (b), congested hops (c).
    SingleBit,
    /// Congested (1), hash (b), hops (c).
    Compact,
    /// Congested (1), hash (b).
    Coordinated,
    /// Congested (1), digest (b).
    XorDigest,
    /// Locator (7), signal value (5), reserved (1), signal type (3).
    Csig,
    /// Congestion experienced (1), entropy value (16).
    EntropyEcn,
    /// Congested (1), link (24).
    NodeMarking,
    /// Congested (1), link (24), switches since (5).
    EdgeMarking,
}

/// How many peers a queue pair serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueuePairs {
    /// One queue pair for each pair of ranks, as reliable connections (RC) have.
    PerPeer,
    /// One for everything a rank sends, as datagrams (UD) have.
    Shared,
}

/// Packet sequence number of the first packet of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PsnStart {
    /// 0, as UCX sets it.
    Zero,
    /// A random number for each queue pair.
    Random,
}

/// Bits of a field of the sender's decisions: two of them, and two hashes of 8 bits, fit into 64 bits.
const MAX_SENDER_BITS: u32 = 16;

/// A header scheme with its parameters, and how many packets are recorded.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderSettings {
    /// What packets carry.
    pub scheme: HeaderScheme,
    /// Bits b of a link hash.
    pub hash_bits: u32,
    /// Bits c of a hop count.
    pub count_bits: u32,
    /// Probability that a switch acts, for the schemes that use one.
    pub probability: f64,
    /// Maximum number of recorded packets; with more packets, one in k carries a sample.
    pub most: u64,
    /// One packet in this many carries a sample, drawn at random from each group of that size.
    pub one_in: u64,
    /// How many peers a queue pair serves.
    pub queue_pairs: QueuePairs,
    /// Where the packet sequence numbers of a queue pair start.
    pub psn_start: PsnStart,
    /// Source of the decisions in schemes compact and single-bit.
    #[serde(default)]
    pub randomness: Randomness,
    /// Slots of a reservoir.
    #[serde(default = "one_slot")]
    pub slots: u32,
}

const fn one_slot() -> u32 {
    1
}

/// Source of reservoir decisions in a switch (Taffet 2019, §5.9).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Randomness {
    /// Independent random words.
    #[default]
    Ideal,
    /// A linear feedback shift register and a table in every port.
    Lfsr,
    /// Rings with a clock of their own in every port.
    Ring,
    /// Bits that the sending adapter draws into the header, in place of a count of hops: a field of
    /// `count_bits` bits, for paths of one hop less.
    Sender,
}

impl HeaderSettings {
    /// Whether receivers add up samples as they arrive: full reservoirs of one link.
    pub(crate) fn summed_on_arrival(&self) -> bool {
        self.scheme == HeaderScheme::Full && self.slots == 1
    }

    /// Checks values.
    ///
    /// # Errors
    /// [`EngineError::Setting`] names the key, the value and the valid range.
    pub fn check(&self) -> Result<(), EngineError> {
        if !(1..=8).contains(&self.hash_bits) {
            return TELEMETRY.range("hash_bits", self.hash_bits, "give 1 to 8");
        }
        let sender = self.randomness == Randomness::Sender;
        let (least, most) = if sender { (2, MAX_SENDER_BITS) } else { (1, 8) };
        if !(least..=most).contains(&self.count_bits) {
            return TELEMETRY.range(
                "count_bits",
                self.count_bits,
                format!("give {least} to {most}"),
            );
        }
        if !(1..=MAX_SLOTS as u32).contains(&self.slots) {
            return TELEMETRY.range("slots", self.slots, format!("give 1 to {MAX_SLOTS}"));
        }
        // A switch that always acts overwrites all earlier hops.
        if !(self.probability > 0.0 && self.probability < 1.0) {
            let remedy = "give a number above 0 and below 1";
            return TELEMETRY.range("probability", self.probability, remedy);
        }
        if self.most == 0 {
            return TELEMETRY.range("packets", 0, "give at least 1");
        }
        if self.one_in == 0 {
            return TELEMETRY.range("one_in", 0, "give at least 1 (every packet)");
        }
        Ok(())
    }
}
