//! Reservoir decisions that the sending adapter draws into the header (Taffet 2019, §5.9): switches of
//! schemes compact and single-bit need no source of random numbers.
//!
//! In place of each count of hops the header has a field of as many bits. A switch reads its leading bit and
//! shifts it out; the sentinel behind the last decision tells the receiver how many were read.

use tailback_telemetry::hash::LinkHash;
use tailback_telemetry::randomness::{DecisionSource, SenderBits};
use tailback_telemetry::scheme::{
    Compact, CompactMark, Scheme as _, SingleBit, SingleBitMark, Visit, draw,
};

use crate::rng::{RandomSource, Stream};
use crate::settings::{HeaderScheme, HeaderSettings};

/// A field of a header word, from its least bit.
pub(super) fn bits(word: u64, from: u32, count: u32) -> u32 {
    ((word >> from) & ((1 << count) - 1)) as u32
}

/// Decisions of the sending adapter for one field of one packet.
struct SenderDraws {
    source: RandomSource,
    packet: u64,
    /// 0 for hops, 1 for congested hops.
    which: u64,
}

impl DecisionSource for SenderDraws {
    fn decide(&mut self, l: u32) -> bool {
        let random = self.source.draw(self.packet, 2 * u64::from(l) + self.which) >> 32;
        draw(random as u32, l as u8 - 1)
    }
}

/// Headers with fields of decisions.
#[derive(Debug)]
pub(super) struct SenderHeaders {
    source: RandomSource,
    hash: LinkHash,
    compact: bool,
    hash_bits: u32,
    field_bits: u32,
}

impl SenderHeaders {
    pub fn new(carry: &HeaderSettings, hash: LinkHash, seed: u64) -> Self {
        Self {
            source: RandomSource::new(seed, Stream::SenderBits),
            hash,
            compact: carry.scheme == HeaderScheme::Compact,
            hash_bits: carry.hash_bits,
            field_bits: carry.count_bits,
        }
    }

    /// The field of a header that begins at bit `from`.
    fn field(&self, word: u64, from: u32, packet: u64, which: u64) -> SenderBits {
        match bits(word, from, self.field_bits) {
            // The adapter never writes 0, so the first switch can draw instead.
            0 => {
                let mut draws = SenderDraws { source: self.source, packet, which };
                SenderBits::draw(&mut draws, self.field_bits - 1)
            }
            field => SenderBits::from_field(field, self.field_bits),
        }
    }

    /// The header behind a switch.
    pub fn after(&self, word: u64, visit: &Visit, packet: u64) -> u64 {
        // A word of 0 always decides for the hop. A word of all ones does so only for the first
        // hop, which is always taken.
        const NO: u64 = u32::MAX as u64;
        let (b, f, hash) = (self.hash_bits, self.field_bits, self.hash);
        let hash_at = u32::from(self.compact);
        let mut hops = self.field(word, hash_at + b, packet, 0);
        let count = hops.hops() as u8;
        let random = if hops.take() { 0 } else { NO };
        let hop = bits(word, hash_at, b) as u8;
        if self.compact {
            let mut mark = CompactMark { congested: word & 1 != 0, hop, hops: count };
            let scheme = Compact { hash, bits: b, count_bits: u8::BITS };
            scheme.visit(&mut mark, &Visit { random, ..*visit });
            let kept = u64::from(mark.congested) | u64::from(mark.hop) << 1;
            return kept | u64::from(hops.field()) << (1 + b);
        }
        let mut met = self.field(word, 2 * b + f, packet, 1);
        let (congested, congested_hops) = (bits(word, b + f, b) as u8, met.hops() as u8);
        let refused = visit.congested && !met.take();
        let mut mark = SingleBitMark { hop, hops: count, congested, congested_hops };
        let scheme = SingleBit { hash, bits: b, count_bits: u8::BITS };
        let random = random | ((NO << 32) * u64::from(refused));
        scheme.visit(&mut mark, &Visit { random, ..*visit });
        u64::from(mark.hop)
            | u64::from(hops.field()) << b
            | u64::from(mark.congested) << (b + f)
            | u64::from(met.field()) << (2 * b + f)
    }
}
