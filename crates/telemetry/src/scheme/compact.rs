//! One reservoir and a congested bit (Taffet 2019, §5.7, algorithms 8 and 9): 5 or 6 bits.

use super::{HeaderSample, LinkOrHash, Scheme, Visit, draw, saturation};
use crate::hash::LinkHash;

/// One reservoir of a hash, with the congestion of the hop in it.
#[derive(Debug, Clone, Copy)]
pub struct Compact {
    /// Link hash.
    pub hash: LinkHash,
    /// Its bits.
    pub bits: u32,
    /// Bits of the hop count, which saturates (§5.6): 3 make the published 5 bits, 4 make 6.
    pub count_bits: u32,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactMark {
    /// Hash of the hop in the reservoir.
    pub hop: u8,
    /// Whether it was congested.
    pub congested: bool,
    /// Hops, saturated.
    pub hops: u8,
}

impl Compact {
    /// The header field: congested bit, then hash, then hop count (from the least bit).
    pub fn to_wire(&self, mark: CompactMark) -> u32 {
        u32::from(mark.congested)
            | (u32::from(mark.hop) << 1)
            | (u32::from(mark.hops) << (1 + self.bits))
    }

    /// The mark of a header field.
    pub fn from_wire(&self, field: u32) -> CompactMark {
        CompactMark {
            congested: field & 1 != 0,
            hop: ((field >> 1) & ((1 << self.bits) - 1)) as u8,
            hops: ((field >> (1 + self.bits)) & ((1 << self.count_bits) - 1)) as u8,
        }
    }
}

impl Scheme for Compact {
    type Mark = CompactMark;

    fn name(&self) -> &'static str {
        "compact"
    }
    fn header_bits(&self) -> u32 {
        1 + self.bits + self.count_bits
    }
    fn hash_bits(&self) -> Option<u32> {
        Some(self.bits)
    }
    fn start(&self) -> CompactMark {
        CompactMark::default()
    }
    #[inline]
    fn visit(&self, mark: &mut CompactMark, visit: &Visit) {
        if draw(visit.random as u32, mark.hops) {
            mark.hop = self.hash.value(visit.packet, visit.link, self.bits) as u8;
            mark.congested = visit.congested;
        }
        mark.hops = (mark.hops + 1).min(saturation(self.count_bits));
    }
    fn receive(&self, mark: &CompactMark, _: u32, _: u8, out: &mut Vec<HeaderSample>) {
        if mark.hops == 0 {
            return;
        }
        let (seen, weight) = (LinkOrHash::Hash(u32::from(mark.hop)), f64::from(mark.hops));
        out.push(HeaderSample { congested: false, seen, hop: None, weight });
        if mark.congested {
            out.push(HeaderSample { congested: true, seen, hop: None, weight });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected weighted count of each hop: chance to be in the reservoir × the weight charged.
    fn expected(length: u8, count_bits: u32) -> Vec<f64> {
        let most = f64::from(saturation(count_bits));
        let mut chance = Vec::new();
        let mut count = 0.0;
        for _ in 0..length {
            let replace = 1.0 / (count + 1.0);
            chance.iter_mut().for_each(|c| *c *= 1.0 - replace);
            chance.push(replace);
            count = f64::min(count + 1.0, most);
        }
        chance.into_iter().map(|c| c * count).collect()
    }

    #[test]
    fn saturated_counts_weigh_9_and_12_sixteenths() {
        assert_eq!(expected(5, 2), [9.0, 9.0, 9.0, 9.0, 12.0].map(|x| x / 16.0));
        assert!(expected(5, 3).iter().all(|w| (w - 1.0).abs() < 1e-12));
        // The switches do so: 8 hash bits tell five links apart.
        let field = crate::hash::GaloisField::new(8).unwrap();
        let scheme = Compact { hash: LinkHash::Gf(field), bits: 8, count_bits: 2 };
        let (packets, mut sums) = (200_000u32, [0.0; 5]);
        for packet in 0..packets {
            let mut mark = scheme.start();
            for hop in 0..5u8 {
                let random = super::super::mix(u64::from(packet * 5 + u32::from(hop)));
                let (link, id) = (u32::from(hop) + 1, packet % 255 + 1);
                let visit = Visit { link, hop, congested: false, level: 0, packet: id, random };
                scheme.visit(&mut mark, &visit);
            }
            let hit =
                (1..=5).find(|&link| field.hash(packet % 255 + 1, link, 8) == mark.hop.into());
            sums[hit.unwrap() as usize - 1] += f64::from(mark.hops);
        }
        for (hop, sum) in sums.into_iter().enumerate() {
            let weight = sum / f64::from(packets);
            assert!((weight - expected(5, 2)[hop]).abs() < 0.015, "hop {hop}: {weight}");
        }
    }

    #[test]
    fn header_fields_survive_a_round_trip() {
        let hash = LinkHash::Mult;
        for (count_bits, bits) in [(3, 5), (4, 6)] {
            let scheme = Compact { hash, bits: 1, count_bits };
            assert_eq!(scheme.header_bits(), bits);
            for field in 0..1 << bits {
                assert_eq!(scheme.to_wire(scheme.from_wire(field)), field);
            }
        }
    }
}
