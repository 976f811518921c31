//! Which decoder is cheaper. The constants are nanoseconds on a server core of the 2020s; only their
//! ratios matter, and only where the two are close.

use super::{Hash, transform};

/// A decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Every packet against every link.
    Direct,
    /// Walsh–Hadamard transforms.
    Transform,
}

/// A packet against a link, a bit, with 16-bit ids.
const TEST: f64 = 0.1;
/// A packet into a histogram.
const COUNT: f64 = 1.5;
/// A packet, or a bin, through a projection.
const PROJECT: f64 = 2.5;
/// A butterfly of a transform.
const BUTTERFLY: f64 = 0.4;
/// A link, a bit of the field and of the hash: masks of the direct loop.
const MASK: f64 = 1.0;
/// Tables of a projection, a transform.
const TABLES: f64 = 1000.0;
/// Reading a score off a transform.
const READ: f64 = 1.0;

/// A packet sorted by class.
const SORT: f64 = 2.5;
/// A packet to the point of its class.
const STRAIGHT: f64 = 1.7;
/// A byte of tables and points, made and read.
const FILL: f64 = 0.7;
/// Bytes that stay in the nearer caches, and how much dearer a packet is beyond them.
const NEAR: usize = 1 << 20;
const FAR: f64 = 3.0;

/// Largest rank a transform is made for: its points take 8 × 2^rank bytes.
pub const MAX_RANK: usize = 22;

/// Estimated nanoseconds of the two, (direct, transform), for links of a rank over GF(2).
pub fn estimate(hash: Hash, packets: usize, links: usize, rank: usize) -> (f64, f64) {
    let (n, l, b) = (packets as f64, links as f64, f64::from(hash.bits));
    let wide = if hash.field.bits() <= 16 { 1.0 } else { 2.2 };
    let direct =
        l * b * (n * TEST * wide + MASK * f64::from(hash.field.bits())) + n * (1.0 + b) * COUNT;
    let rank = rank as f64;
    let transforms = 2f64.powi(hash.bits as i32) - 1.0;
    let (once, each) = if transform::folds(hash, packets) {
        let bins = 2f64.powi((hash.field.bits() + hash.bits) as i32);
        (n * COUNT, bins * PROJECT)
    } else {
        (0.0, n * PROJECT)
    };
    let butterflies = rank / 2.0 * 2f64.powf(rank) * BUTTERFLY;
    (direct, once + transforms * (each + butterflies + TABLES + l * READ))
}

/// Estimated nanoseconds of sorting packets by class, then decoding each class by the cheaper
/// method; classes are assumed to be alike.
pub fn sorted(hash: Hash, packets: usize, classes: usize, links: usize, rank: usize) -> f64 {
    let classes = classes.max(1);
    let (direct, transform) = estimate(hash, packets.div_ceil(classes), links, rank);
    packets as f64 * SORT + classes as f64 * direct.min(transform)
}

/// Estimated nanoseconds of one pass over unsorted packets, with tables and points of `each` bytes
/// a transform, `all` bytes together.
pub fn unsorted(hash: Hash, packets: usize, each: usize, all: usize) -> f64 {
    let transforms = 2f64.powi(hash.bits as i32) - 1.0;
    let miss = if each <= NEAR { 1.0 } else { FAR };
    packets as f64 * transforms * STRAIGHT * miss + all as f64 * FILL
}

/// The cheaper one.
pub fn choose(hash: Hash, packets: usize, links: usize, rank: usize) -> Choice {
    let (direct, transform) = estimate(hash, packets, links, rank);
    if rank > MAX_RANK || direct <= transform { Choice::Direct } else { Choice::Transform }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::GaloisField;

    #[test]
    fn few_packets_or_links_go_direct_and_many_do_not() {
        let hash = Hash { field: GaloisField::new(16).unwrap(), bits: 1 };
        assert_eq!(choose(hash, 10, 20, 16), Choice::Direct);
        assert_eq!(choose(hash, 500, 2, 2), Choice::Direct);
        assert_eq!(choose(hash, 10_000_000, 20_000, 15), Choice::Transform);
        let (direct, transform) = estimate(hash, 10_000_000, 20_000, 15);
        assert!(direct > 100.0 * transform);
        // Links without structure in a large field: no transform fits in memory.
        let wide = Hash { field: GaloisField::new(32).unwrap(), bits: 1 };
        assert_eq!(choose(wide, 10_000_000, 20_000, 32), Choice::Direct);
    }
}
