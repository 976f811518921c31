//! Estimates which decoder is faster. The constants are nanoseconds on a server core of the 2020s; only
//! their ratios matter, and only where the two estimates are close.

use super::packets::Hash;
use super::transform;

/// A decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Test every packet against every link.
    Direct,
    /// Walsh–Hadamard transforms.
    Transform,
}

/// Testing one bit of a packet against a link, with 16-bit ids.
const TEST_NS: f64 = 0.1;
/// Adding a packet to a histogram.
const COUNT_NS: f64 = 1.5;
/// Projecting the id of a packet or bin.
const PROJECT_NS: f64 = 2.5;
/// One butterfly of a transform.
const BUTTERFLY_NS: f64 = 0.4;
/// Computing a mask of the direct loop, per link, bit of the field and bit of the hash.
const MASK_NS: f64 = 1.0;
/// Making the tables of a projection, per transform.
const TABLES_NS: f64 = 1000.0;
/// Reading the score of a link from a transform.
const READ_NS: f64 = 1.0;

/// Sorting a packet by class.
const SORT_NS: f64 = 2.5;
/// Adding a packet, unsorted, to the points of its class.
const UNSORTED_NS: f64 = 1.7;
/// Writing and reading a byte of tables and points.
const FILL_NS: f64 = 0.7;
/// Bytes that fit the L2 cache, and the factor by which a packet costs more when they do not.
const L2_BYTES: usize = 1 << 20;
const CACHE_MISS_FACTOR: f64 = 3.0;

/// Largest rank for which a transform is computed: its points take 8 × 2^rank bytes.
pub(crate) const MAX_RANK: usize = 22;

/// Estimated nanoseconds (direct, transform), for links that span `rank` dimensions over GF(2).
pub fn estimate(hash: Hash, packets: usize, links: usize, rank: usize) -> (f64, f64) {
    let (n, l, b) = (packets as f64, links as f64, f64::from(hash.bits));
    let wide = if hash.field.bits() <= 16 { 1.0 } else { 2.2 };
    let direct = l * b * (n * TEST_NS * wide + MASK_NS * f64::from(hash.field.bits()))
        + n * (1.0 + b) * COUNT_NS;
    let rank = rank as f64;
    let transforms = 2f64.powi(hash.bits as i32) - 1.0;
    let (once, each) = if transform::histogram_pays(hash, packets) {
        let bins = 2f64.powi((hash.field.bits() + hash.bits) as i32);
        (n * COUNT_NS, bins * PROJECT_NS)
    } else {
        (0.0, n * PROJECT_NS)
    };
    let butterflies = rank / 2.0 * 2f64.powf(rank) * BUTTERFLY_NS;
    (direct, once + transforms * (each + butterflies + TABLES_NS + l * READ_NS))
}

/// Estimated nanoseconds of sorting packets by class, then decoding each class by the cheaper
/// method; classes are assumed to be alike.
pub fn sorted(hash: Hash, packets: usize, classes: usize, links: usize, rank: usize) -> f64 {
    let classes = classes.max(1);
    let (direct, transform) = estimate(hash, packets.div_ceil(classes), links, rank);
    packets as f64 * SORT_NS + classes as f64 * direct.min(transform)
}

/// Estimated nanoseconds of one pass over unsorted packets, with tables and points of `each` bytes
/// a transform, `all` bytes together.
pub(crate) fn unsorted(hash: Hash, packets: usize, each: usize, all: usize) -> f64 {
    let transforms = 2f64.powi(hash.bits as i32) - 1.0;
    let factor = if each <= L2_BYTES { 1.0 } else { CACHE_MISS_FACTOR };
    packets as f64 * transforms * UNSORTED_NS * factor + all as f64 * FILL_NS
}

/// The faster decoder.
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
