//! The mark of unmodified Ethernet switches: congestion experienced (ECN, RFC 3168) at any hop.
//!
//! A packet needs no field beyond those of IP and UDP. Its entropy value, its addresses and the hash
//! of the switches give its path; the mark says that at least one hop of the path was congested. Which one, a
//! receiver infers from packets of other paths: a mark alone is a sample of a path, not of a link.

use super::{HeaderSample, Scheme, Visit};

/// One bit, set by any congested hop.
#[derive(Debug, Clone, Copy)]
pub struct EntropyEcn;

impl Scheme for EntropyEcn {
    type Mark = bool;

    fn name(&self) -> &'static str {
        "entropy_ecn"
    }
    /// None beyond those that packets have.
    fn header_bits(&self) -> u32 {
        0
    }
    fn hash_bits(&self) -> Option<u32> {
        None
    }
    fn unbiased(&self) -> bool {
        false
    }
    fn start(&self) -> bool {
        false
    }
    #[inline]
    fn visit(&self, marked: &mut bool, visit: &Visit) {
        *marked |= visit.congested;
    }
    fn receive(&self, _: &bool, _: u32, _: u8, _: &mut Vec<HeaderSample>) {}
}
