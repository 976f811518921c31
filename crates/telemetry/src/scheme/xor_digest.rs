//! XOR digest, as in PINT (Ben Basat et al., SIGCOMM 2020), for comparison.
//!
//! Every switch XORs the hash of its link into a digest when a shared hash of (packet id, hop)
//! selects it, with probability p. The receiver knows which hops acted. PINT traces a fixed path by peeling digests
//! of several hops; counting links without a fixed path can only use packets on which exactly one hop
//! acted, which are the samples here. One further bit is the OR of the congestion at the hops that acted.

use super::{HeaderSample, LinkOrHash, Scheme, Visit, shared};
use crate::hash::LinkHash;

/// A digest of b bits.
#[derive(Debug, Clone, Copy)]
pub struct XorDigest {
    /// Link hash.
    pub hash: LinkHash,
    /// Its bits.
    pub bits: u32,
    /// Probability that a hop acts, between 0 and 1.
    pub probability: f64,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, Default)]
pub struct XorMark {
    /// XOR of the hashes of the links of hops that acted.
    pub digest: u8,
    /// Whether one of them was congested.
    pub congested: bool,
}

impl XorDigest {
    /// Whether a hop acts on a packet.
    #[inline]
    pub(crate) fn acts(&self, packet: u32, hop: u8) -> bool {
        f64::from(shared(packet, hop)) < self.probability * 2f64.powi(32)
    }
}

impl Scheme for XorDigest {
    type Mark = XorMark;

    fn name(&self) -> &'static str {
        "xor_digest"
    }
    fn header_bits(&self) -> u32 {
        self.bits + 1
    }
    fn hash_bits(&self) -> Option<u32> {
        Some(self.bits)
    }
    fn start(&self) -> XorMark {
        XorMark::default()
    }
    #[inline]
    fn visit(&self, mark: &mut XorMark, visit: &Visit) {
        if self.acts(visit.packet, visit.hop) {
            mark.digest ^= self.hash.value(visit.packet, visit.link, self.bits) as u8;
            mark.congested |= visit.congested;
        }
    }
    fn receive(&self, mark: &XorMark, packet: u32, hops: u8, out: &mut Vec<HeaderSample>) {
        let mut acted = (0..hops).filter(|&hop| self.acts(packet, hop));
        let (Some(hop), None) = (acted.next(), acted.next()) else { return };
        let p = self.probability;
        let weight = 1.0 / (p * (1.0 - p).powi(i32::from(hops) - 1));
        let seen = LinkOrHash::Hash(u32::from(mark.digest));
        out.push(HeaderSample { congested: false, seen, hop: Some(hop), weight });
        if mark.congested {
            out.push(HeaderSample { congested: true, seen, hop: Some(hop), weight });
        }
    }
}
