//! Schemes: what a packet carries, how a switch updates it, and what a receiver infers from it.
//!
//! One file per scheme. A switch calls [`Scheme::visit`]; the receiver turns the header into
//! [`HeaderSample`]s, whose weighted sums are unbiased for every scheme with
//! [`Scheme::unbiased`].

mod compact;
mod coordinated;
mod csig;
mod edge_marking;
mod entropy_ecn;
mod full;
mod int;
mod run;
mod single_bit;
mod slots;
mod xor_digest;

pub use compact::{Compact, CompactMark};
pub use coordinated::{Coordinated, CoordinatedMark};
pub use csig::{Csig, CsigMark, band};
pub use edge_marking::{EdgeMark, EdgeMarking, NodeMark, NodeMarking};
pub use entropy_ecn::EntropyEcn;
pub use full::{FullMark, FullReservoirs, MAX_SLOTS};
pub use int::{FullInt, IntMark, MAX_HOPS};
pub use run::{PacketPaths, SchemeColumns, run};
pub use single_bit::{SingleBit, SingleBitMark};
pub use slots::{HashSlots, SlotScheme};
pub use xor_digest::{XorDigest, XorMark};

use tailback_random::splitmix;

use crate::packet_id::hop_hash;

/// One switch forwards one packet through `link`.
#[derive(Debug, Clone, Copy)]
pub struct Visit {
    /// Value of the outgoing link, as input of the link hash.
    pub link: u32,
    /// Index of the hop on the path, from 0: the stage and direction of the switch, or a TTL.
    pub hop: u8,
    /// Whether the outgoing port is congested.
    pub congested: bool,
    /// How congested, from 0 (see [`band`]), for schemes that carry a value.
    pub level: u8,
    /// Packet id.
    pub packet: u32,
    /// 64 fresh random bits.
    pub random: u64,
}

/// A link, or the hash of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkOrHash {
    /// A link.
    Link(u32),
    /// The hash of a link.
    Hash(u32),
}

/// What a receiver learns from a packet about one link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeaderSample {
    /// Whether it counts congested packets of a link, or all packets.
    pub congested: bool,
    /// The link or its hash.
    pub seen: LinkOrHash,
    /// Which hop it was, where that is known.
    pub hop: Option<u8>,
    /// Weight: the inverse of the probability that this hop is the one sampled.
    pub weight: f64,
}

/// A telemetry scheme.
pub trait Scheme {
    /// What a packet carries.
    type Mark: Copy;

    /// Its name.
    fn name(&self) -> &'static str;
    /// Bits it takes in the packet header.
    fn header_bits(&self) -> u32;
    /// Bits of a link hash; `None` if packets carry whole links.
    fn hash_bits(&self) -> Option<u32>;
    /// Whether weighted sums are unbiased, under the conditions stated in its file.
    fn unbiased(&self) -> bool {
        true
    }
    /// What the sending adapter writes.
    fn start(&self) -> Self::Mark;
    /// How a switch updates the mark.
    fn visit(&self, mark: &mut Self::Mark, visit: &Visit);
    /// Appends the samples that the receiver infers. `hops` is the length of the path, known from
    /// source, destination and routing; schemes with a hop counter use the counter.
    fn receive(&self, mark: &Self::Mark, packet: u32, hops: u8, out: &mut Vec<HeaderSample>);
}

/// True with probability 1/(count + 1): a uniform integer of `0..=count` made from `random` is 0.
#[inline]
pub fn draw(random: u32, count: u8) -> bool {
    // The high word of random × (count + 1) is uniform up to 2^-32 × (count + 1).
    (u64::from(random) * (u64::from(count) + 1)) >> 32 == 0
}

/// Two steps of splitmix64.
#[inline]
pub fn mix(value: u64) -> u64 {
    splitmix(splitmix(value))
}

/// The hash that switches and receivers share: 32 bits of (packet id, hop index), the lower 8 of them 0.
#[inline]
pub fn shared(packet: u32, hop: u8) -> u32 {
    hop_hash(packet, hop) << 8
}

/// Largest count in `bits` bits.
pub(crate) const fn saturation(bits: u32) -> u8 {
    if bits >= 8 { u8::MAX } else { (1 << bits) - 1 }
}
