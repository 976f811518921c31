//! Coordinated: the reservoir decision is a hash of (packet id, hop index) that switches and receivers
//! share.
//!
//! Hop i (from 0) replaces the current sample if the shared hash selects it, with probability
//! 1/(i + 1) over packet ids. The receiver evaluates the same hash to find the surviving hop: the
//! packet needs no hop counter, and only the links of that hop are candidates. Shared decisions are
//! taken from PINT (Ben Basat et al., SIGCOMM 2020); counting with them requires not a fixed path
//! but only a fixed path *length* between two nodes.

use super::{HeaderSample, LinkOrHash, Scheme, Visit};
use crate::hash::LinkHash;
use crate::packet_id::takes_sample;

/// One congested bit and b hash bits.
#[derive(Debug, Clone, Copy)]
pub struct Coordinated {
    /// Link hash.
    pub hash: LinkHash,
    /// Its bits, 1 to 8.
    pub bits: u32,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoordinatedMark {
    /// Hash of the link that survived.
    pub hop: u8,
    /// Whether it was congested.
    pub congested: bool,
}

impl Coordinated {
    /// The hop whose sample survives on a path of `hops`; `None` if there are none.
    pub fn survivor(packet: u32, hops: u8) -> Option<u8> {
        (0..hops).rev().find(|&hop| takes_sample(packet, hop))
    }

    /// The header field: congested bit, then hash (from the least bit).
    pub fn to_wire(&self, mark: CoordinatedMark) -> u32 {
        u32::from(mark.congested) | (u32::from(mark.hop) << 1)
    }

    /// The mark of a header field.
    pub fn from_wire(&self, field: u32) -> CoordinatedMark {
        let hop = ((field >> 1) & ((1 << self.bits) - 1)) as u8;
        CoordinatedMark { congested: field & 1 != 0, hop }
    }
}

impl Scheme for Coordinated {
    type Mark = CoordinatedMark;

    fn name(&self) -> &'static str {
        "coordinated"
    }
    fn header_bits(&self) -> u32 {
        1 + self.bits
    }
    fn hash_bits(&self) -> Option<u32> {
        Some(self.bits)
    }
    fn start(&self) -> CoordinatedMark {
        CoordinatedMark::default()
    }
    #[inline]
    fn visit(&self, mark: &mut CoordinatedMark, visit: &Visit) {
        if takes_sample(visit.packet, visit.hop) {
            mark.hop = self.hash.value(visit.packet, visit.link, self.bits) as u8;
            mark.congested = visit.congested;
        }
    }
    fn receive(&self, mark: &CoordinatedMark, packet: u32, hops: u8, out: &mut Vec<HeaderSample>) {
        let Some(hop) = Self::survivor(packet, hops) else { return };
        let (seen, weight) = (LinkOrHash::Hash(u32::from(mark.hop)), f64::from(hops));
        out.push(HeaderSample { congested: false, seen, hop: Some(hop), weight });
        if mark.congested {
            out.push(HeaderSample { congested: true, seen, hop: Some(hop), weight });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hop_survives_equally_often() {
        let mut count = [0u32; 5];
        for packet in 0..100_000 {
            count[usize::from(Coordinated::survivor(packet, 5).unwrap())] += 1;
        }
        // Six standard deviations of Binomial(100 000, 1/5).
        assert!(count.iter().all(|&c| c.abs_diff(20_000) < 760), "{count:?}");
        assert_eq!(Coordinated::survivor(7, 1), Some(0));
        assert_eq!(Coordinated::survivor(7, 0), None);
    }

    #[test]
    fn the_wire_field_has_the_declared_bits() {
        let scheme = Coordinated { hash: LinkHash::Mult, bits: 5 };
        assert_eq!(scheme.header_bits(), 6);
        for field in 0..64 {
            assert_eq!(scheme.to_wire(scheme.from_wire(field)), field);
        }
    }
}
