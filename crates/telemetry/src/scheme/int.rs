//! Full in-band telemetry (INT-MD, P4.org), the upper bound for comparison: every hop writes its link.

use super::{HeaderSample, LinkOrHash, Scheme, Visit};

/// Longest path that a packet can record.
pub const MAX_HOPS: usize = 16;

/// Every hop's link and congested bit, for up to `max_hops` hops.
#[derive(Debug, Clone, Copy)]
pub struct FullInt {
    /// Hops recorded, at most [`MAX_HOPS`]; further ones are not.
    pub max_hops: u8,
    /// Bits of a link in the header.
    pub link_bits: u32,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy)]
pub struct IntMark {
    links: [(u32, bool); MAX_HOPS],
    hops: u8,
}

impl Scheme for FullInt {
    type Mark = IntMark;

    fn name(&self) -> &'static str {
        "full_int"
    }
    fn header_bits(&self) -> u32 {
        8 + u32::from(self.max_hops) * (self.link_bits + 1)
    }
    fn hash_bits(&self) -> Option<u32> {
        None
    }
    fn start(&self) -> IntMark {
        IntMark { links: [(0, false); MAX_HOPS], hops: 0 }
    }
    #[inline]
    fn visit(&self, mark: &mut IntMark, visit: &Visit) {
        if usize::from(mark.hops) < usize::from(self.max_hops).min(MAX_HOPS) {
            mark.links[usize::from(mark.hops)] = (visit.link, visit.congested);
            mark.hops += 1;
        }
    }
    fn receive(&self, mark: &IntMark, _: u32, _: u8, out: &mut Vec<HeaderSample>) {
        for (hop, &(link, congested)) in mark.links[..usize::from(mark.hops)].iter().enumerate() {
            let (seen, hop) = (LinkOrHash::Link(link), Some(hop as u8));
            out.push(HeaderSample { congested: false, seen, hop, weight: 1.0 });
            if congested {
                out.push(HeaderSample { congested: true, seen, hop, weight: 1.0 });
            }
        }
    }
}
