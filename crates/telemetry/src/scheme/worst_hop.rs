//! Worst hop, as in CSIG (Ravi et al., IETF draft), for comparison: the packet carries the highest
//! congestion level on its path and the link where it occurred.
//!
//! It finds the bottleneck of a packet exactly but does not measure traffic; as a count of congested
//! packets it is a lower bound, since a packet reports one hop.

use super::{HeaderSample, LinkOrHash, Scheme, Visit};

/// Highest level and its link; of equal levels the first.
#[derive(Debug, Clone, Copy)]
pub struct WorstHop {
    /// Bits of a link in the header.
    pub link_bits: u32,
    /// Bits of the level.
    pub level_bits: u32,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorstMark {
    /// Link of the worst hop.
    pub link: u32,
    /// Its level, 0 when no hop was congested.
    pub level: u8,
}

impl Scheme for WorstHop {
    type Mark = WorstMark;

    fn name(&self) -> &'static str {
        "worst_hop"
    }
    fn header_bits(&self) -> u32 {
        self.link_bits + self.level_bits
    }
    fn hash_bits(&self) -> Option<u32> {
        None
    }
    fn unbiased(&self) -> bool {
        false
    }
    fn start(&self) -> WorstMark {
        WorstMark::default()
    }
    #[inline]
    fn visit(&self, mark: &mut WorstMark, visit: &Visit) {
        // A congested port has at least the lowest level.
        let level = u32::from(visit.level).max(u32::from(visit.congested));
        let kept = if level == 0 { 0 } else { (level >> (8 - self.level_bits.min(8))).max(1) };
        if kept > u32::from(mark.level) {
            *mark = WorstMark { link: visit.link, level: kept as u8 };
        }
    }
    fn receive(&self, mark: &WorstMark, _: u32, _: u8, out: &mut Vec<HeaderSample>) {
        if mark.level > 0 {
            let seen = LinkOrHash::Link(mark.link);
            out.push(HeaderSample { congested: true, seen, hop: None, weight: 1.0 });
        }
    }
}
