//! Single bit, two reservoirs (Taffet 2019, §5.2, algorithms 5 to 7): a hash of b bits in place of a link.
//!
//! Unbiased while the hop counts do not saturate. b = 1 is the published scheme.

use super::{HeaderSample, LinkOrHash, Scheme, Visit, draw, saturation};
use crate::hash::LinkHash;

/// Two reservoirs of a hash each, and their counts.
#[derive(Debug, Clone, Copy)]
pub struct SingleBit {
    /// Link hash.
    pub hash: LinkHash,
    /// Its bits.
    pub bits: u32,
    /// Bits of each hop count, which saturates (§5.6).
    pub count_bits: u32,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SingleBitMark {
    /// Hash of a hop.
    pub hop: u8,
    /// Hops, saturated.
    pub hops: u8,
    /// Hash of a congested hop.
    pub congested: u8,
    /// Congested hops, saturated.
    pub congested_hops: u8,
}

impl Scheme for SingleBit {
    type Mark = SingleBitMark;

    fn name(&self) -> &'static str {
        "single_bit"
    }
    fn header_bits(&self) -> u32 {
        2 * (self.bits + self.count_bits)
    }
    fn hash_bits(&self) -> Option<u32> {
        Some(self.bits)
    }
    fn start(&self) -> SingleBitMark {
        SingleBitMark::default()
    }
    #[inline]
    fn visit(&self, mark: &mut SingleBitMark, visit: &Visit) {
        let most = saturation(self.count_bits);
        if draw(visit.random as u32, mark.hops) {
            mark.hop = self.hash.value(visit.packet, visit.link, self.bits) as u8;
        }
        mark.hops = (mark.hops + 1).min(most);
        if visit.congested {
            if draw((visit.random >> 32) as u32, mark.congested_hops) {
                mark.congested = self.hash.value(visit.packet, visit.link, self.bits) as u8;
            }
            mark.congested_hops = (mark.congested_hops + 1).min(most);
        }
    }
    fn receive(&self, mark: &SingleBitMark, _: u32, _: u8, out: &mut Vec<HeaderSample>) {
        let both = [(false, mark.hop, mark.hops), (true, mark.congested, mark.congested_hops)];
        for (congested, value, count) in both {
            if count > 0 {
                let seen = LinkOrHash::Hash(u32::from(value));
                out.push(HeaderSample { congested, seen, hop: None, weight: f64::from(count) });
            }
        }
    }
}
