//! The compact tag of CSIG, Congestion Signaling (Ravi et al. 2024, `draft-ravi-ippm-csig-01`): four bytes that
//! name the bottleneck of a packet's path.
//!
//! The tag follows the Ethernet addresses like a VLAN tag: 16 bits of Ethernet type, then from the highest
//! bit signal type (3), reserved (1), signal value (5) and locator metadata (7). A port compares its own
//! value with the tag's and replaces value and locator if its own is larger, so the tag that arrives
//! holds the largest value on the path and the locator of the first port that had it. The signal here is
//! nQD, queue depth over port speed, in the 32 bands of [`band`].
//!
//! A locator has 7 bits, so it does not identify a link of a larger network: links are numbered modulo
//! [`LOCATORS`], and the receiver resolves a locator by the routing. The tag is chosen by an
//! extremum, not sampled: it finds the bottleneck of every packet and counts neither packets nor congested
//! packets of a link.

use super::{HeaderSample, LinkOrHash, Scheme, Visit};

/// Bits of the locator metadata.
pub(crate) const LOCATOR_BITS: u32 = 7;
/// Number of locators. It is prime, so that links at the same port of successive switches differ. 0 means
/// that no port replaced the tag.
pub(crate) const LOCATORS: u32 = (1 << LOCATOR_BITS) - 1;
/// Bits of the signal value.
pub(crate) const VALUE_BITS: u32 = 5;
/// Largest signal value.
pub(crate) const MAX_VALUE: u8 = (1 << VALUE_BITS) - 1;
/// Signal type of nQD: the maximum over the path of queue depth over port speed.
pub(crate) const SIGNAL_TYPE: u32 = 3;
/// Position of the signal type in the 16 bits behind the Ethernet type.
const TYPE_SHIFT: u32 = 13;

/// Locator of a link that is numbered from 1, in `1..=LOCATORS`.
#[inline]
pub(crate) fn locator(link: u32) -> u8 {
    (link.wrapping_sub(1) % LOCATORS + 1) as u8
}

/// log2 of the picoseconds at which band 3 begins: 65.5 ns, the time of a packet of 0.8 KB at 100 Gb/s.
const BASE_LOG2: u32 = 16;

/// Band of a port by the time its queue needs at its speed, from 1 to [`MAX_VALUE`].
///
/// A tag has 32 bands with freely configured limits (Ravi et al. 2024, SAI proposal §3.2). These grow by √2, as
/// the difference between a short and a long queue matters more than that between two long ones: the
/// last band begins at 1.1 ms, or 13 MB at 100 Gb/s.
#[inline]
pub fn band(drain_ps: u64) -> u8 {
    let Some(octave) = drain_ps.checked_ilog2().and_then(|log2| log2.checked_sub(BASE_LOG2)) else {
        return if drain_ps >> (BASE_LOG2 - 1) == 0 { 1 } else { 2 };
    };
    // Whether the square is at least twice that of the octave's start.
    let upper = u128::from(drain_ps).pow(2) >> (2 * (octave + BASE_LOG2) + 1) != 0;
    (3 + 2 * octave + u32::from(upper)).min(MAX_VALUE.into()) as u8
}

/// The compact tag.
#[derive(Debug, Clone, Copy)]
pub struct Csig;

/// What a packet carries: 0 in both fields if no port was congested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CsigMark {
    /// Largest signal value on the path, up to [`MAX_VALUE`].
    pub value: u8,
    /// Locator of the first link that had it.
    pub locator: u8,
}

impl Csig {
    /// The 16 bits behind the Ethernet type.
    pub fn to_wire(self, mark: CsigMark) -> u32 {
        SIGNAL_TYPE << TYPE_SHIFT | u32::from(mark.value) << LOCATOR_BITS | u32::from(mark.locator)
    }

    /// The mark of these bits; those of type and reserved are ignored.
    pub fn from_wire(self, tag: u32) -> CsigMark {
        let value = (tag >> LOCATOR_BITS) as u8 & MAX_VALUE;
        CsigMark { value, locator: (tag & LOCATORS) as u8 }
    }
}

impl Scheme for Csig {
    type Mark = CsigMark;

    fn name(&self) -> &'static str {
        "csig"
    }
    fn header_bits(&self) -> u32 {
        32
    }
    fn hash_bits(&self) -> Option<u32> {
        None
    }
    fn unbiased(&self) -> bool {
        false
    }
    fn start(&self) -> CsigMark {
        CsigMark::default()
    }
    #[inline]
    fn visit(&self, mark: &mut CsigMark, visit: &Visit) {
        // A congested port has at least the lowest band.
        let value = visit.level.max(u8::from(visit.congested)).min(MAX_VALUE);
        if value > mark.value {
            *mark = CsigMark { value, locator: locator(visit.link) };
        }
    }
    fn receive(&self, mark: &CsigMark, _: u32, _: u8, out: &mut Vec<HeaderSample>) {
        if mark.value > 0 {
            let seen = LinkOrHash::Hash(mark.locator.into());
            out.push(HeaderSample { congested: true, seen, hop: None, weight: 1.0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(link: u32, level: u8) -> Visit {
        Visit { link, hop: 0, congested: level > 0, level, packet: 0, random: 0 }
    }

    #[test]
    fn the_first_largest_value_stays() {
        let mut mark = Csig.start();
        for (link, level) in [(5, 0), (128, 7), (9, 3), (300, 40), (301, 31), (302, 6)] {
            Csig.visit(&mut mark, &visit(link, level));
        }
        // 300 = 2 × 127 + 46, and values end at 31.
        assert_eq!(mark, CsigMark { value: 31, locator: 46 });
        let (mut lowest, weak) =
            (Csig.start(), Visit { level: 0, congested: true, ..visit(127, 0) });
        Csig.visit(&mut lowest, &weak);
        assert_eq!(lowest, CsigMark { value: 1, locator: 127 });
    }

    #[test]
    fn a_tag_is_laid_out_as_in_the_draft() {
        let mark = CsigMark { value: 0x17, locator: 5 };
        // From the highest bit: type 011, reserved 0, value 10111, locator 0000101.
        assert_eq!(Csig.to_wire(mark), 0b0110_1011_1000_0101);
        for tag in 0..1 << 16 {
            let mark = Csig.from_wire(tag);
            assert_eq!(Csig.to_wire(mark) & 0xfff, tag & 0xfff);
        }
    }

    #[test]
    fn no_link_has_locator_0() {
        assert!((1..1000).all(|link| (1..=127).contains(&locator(link))));
        assert_ne!(locator(1), locator(127));
        assert_eq!(locator(1), locator(128));
    }

    #[test]
    fn bands_are_half_octaves() {
        let start = 1_u64 << BASE_LOG2;
        assert_eq!([0, start / 2 - 1, start / 2, start - 1].map(band), [1, 1, 2, 2]);
        assert_eq!([start, start * 14142 / 10000, start * 14143 / 10000].map(band), [3, 3, 4]);
        assert_eq!([start * 2 - 1, start * 2, start * 4].map(band), [4, 5, 7]);
        assert_eq!([start << 14, u64::MAX].map(band), [31, 31]);
        let all: Vec<u8> = (0..64).map(|log2| band(1 << log2)).collect();
        assert!(all.is_sorted());
    }
}
