//! Decoding: from hashes to counts of links, by three methods that give identical integers.
//!
//! The *score* of link d over packets p with hash h, weight w and b bits is
//! `S(d) = Σ_p w (2^b [h = H(p, d)] − 1)`; `S / (2^b − 1)` is the unbiased count of §5.2 (for b = 1
//! exactly the counts of algorithms 7 and 9). [`direct`](direct::scores) tests every packet against
//! every link; [`transform`](transform::scores) gets all links at once from Walsh–Hadamard
//! transforms, since the GF(2^n) hash is linear; [`cost`] estimates which is faster, and
//! [`classes`](classes::scores) does so for each class of packets with the same candidates.

pub mod classes;
pub mod cost;
pub mod direct;
mod packets;
pub mod published;
pub mod transform;
mod unsorted;

pub use packets::{Classes, DecodeError, Hash, Packets, check};

/// Scores by the faster method, or by the given one; the input must have passed [`check`].
///
/// A transform above [`cost::MAX_RANK`] is never computed, even on request: it would not fit in memory.
pub fn scores(
    hash: Hash,
    packets: &Packets<'_>,
    links: &[u32],
    how: Option<cost::Choice>,
) -> Vec<i64> {
    let basis = transform::Basis::of(links);
    let rank = basis.links.len();
    let how = how.unwrap_or_else(|| cost::choose(hash, packets.ids.len(), links.len(), rank));
    match how {
        cost::Choice::Transform if rank <= cost::MAX_RANK => {
            transform::scores(hash, packets, links, &basis)
        }
        _ => direct::scores(hash, packets, links),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::GaloisField;
    use crate::scheme::mix;

    /// The definition, one packet and one link at a time.
    fn naive(hash: Hash, packets: &Packets<'_>, links: &[u32]) -> Vec<i64> {
        links
            .iter()
            .map(|&d| {
                (0..packets.ids.len())
                    .map(|p| {
                        let same = hash.field.hash(packets.ids[p], d, hash.bits)
                            == u32::from(packets.hashes[p]);
                        let gain = if same { (1i64 << hash.bits) - 1 } else { -1 };
                        gain * i64::from(packets.weights[p])
                    })
                    .sum()
            })
            .collect()
    }

    fn made(n: usize, hash: Hash, seed: u64) -> (Vec<u32>, Vec<u8>, Vec<u8>) {
        let random = |i: usize, k: u64| mix(seed ^ (i as u64 * 8 + k)) as u32;
        let ids = (0..n).map(|i| random(i, 1) & hash.field.max()).collect();
        let hashes = (0..n).map(|i| (random(i, 2) & ((1 << hash.bits) - 1)) as u8).collect();
        let weights = (0..n).map(|i| random(i, 3) as u8).collect();
        (ids, hashes, weights)
    }

    #[test]
    fn all_decoders_agree() {
        for field_bits in [8, 16, 24, 32] {
            let field = GaloisField::new(field_bits).unwrap();
            for bits in [1, 2, 3, 5, 8] {
                let hash = Hash { field, bits };
                for n in [0, 1, 31, 33, 1000, 9000] {
                    let (ids, hashes, weights) = made(n, hash, u64::from(field_bits * 100 + bits));
                    let packets = Packets { ids: &ids, hashes: &hashes, weights: &weights };
                    // Anywhere in the field, but of rank 8 at most.
                    let links: Vec<u32> = (0..40).map(|i| field.multiply(i, 0xb5)).collect();
                    let basis = transform::Basis::of(&links);
                    check(hash, &packets, &links).unwrap();
                    let truth = naive(hash, &packets, &links);
                    assert_eq!(direct::scores(hash, &packets, &links), truth);
                    assert_eq!(transform::scores(hash, &packets, &links, &basis), truth);
                    assert_eq!(scores(hash, &packets, &links, None), truth);
                }
            }
        }
    }

    #[test]
    fn folding_repeated_ids_changes_nothing() {
        // More packets than ids × hashes: the transform histograms first.
        let hash = Hash { field: GaloisField::new(8).unwrap(), bits: 3 };
        let (ids, hashes, weights) = made(20_000, hash, 5);
        let packets = Packets { ids: &ids, hashes: &hashes, weights: &weights };
        let links: Vec<u32> = (0..256).collect();
        let basis = transform::Basis::of(&links);
        assert_eq!(
            transform::scores(hash, &packets, &links, &basis),
            naive(hash, &packets, &links)
        );
    }

    #[test]
    fn classes_sum_their_own_candidates_only() {
        let hash = Hash { field: GaloisField::new(16).unwrap(), bits: 2 };
        let (ids, hashes, weights) = made(3000, hash, 9);
        let packets = Packets { ids: &ids, hashes: &hashes, weights: &weights };
        let links: Vec<u32> = (1..=50).collect();
        let class: Vec<u32> = (0..3000).map(|p| mix(p + 77) as u32 % 4).collect();
        // Class 3 has no candidate; link 10 is one of two classes.
        let (start, members) =
            ([0, 20, 45, 60, 60], [(0..20), (10..35), (35..50)].map(Vec::from_iter).concat());
        let table = Classes { of_packet: &class, start: &start, links: &members };
        let totals = classes::scores(hash, &packets, &table, &links, None).unwrap();
        for how in [cost::Choice::Direct, cost::Choice::Transform] {
            assert_eq!(
                classes::scores(hash, &packets, &table, &links, Some(how)),
                Ok(totals.clone())
            );
        }
        let mut truth = vec![0; links.len()];
        for k in 0..4 {
            let pick = |p: &usize| class[*p] == k as u32;
            let (mut i, mut h, mut w) = (vec![], vec![], vec![]);
            for p in (0..3000).filter(pick) {
                i.push(ids[p]);
                h.push(hashes[p]);
                w.push(weights[p]);
            }
            let part = Packets { ids: &i, hashes: &h, weights: &w };
            let all = naive(hash, &part, &links);
            for &link in &members[start[k]..start[k + 1]] {
                truth[link as usize] += all[link as usize];
            }
        }
        assert_eq!(totals, truth);
        let wrong = Classes { of_packet: &class, start: &start[..4], links: &members };
        assert_eq!(
            classes::scores(hash, &packets, &wrong, &links, None),
            Err(DecodeError::Class(3))
        );
    }

    #[test]
    fn one_pass_and_sorted_classes_agree() {
        // Few links a class go by parities, more by tables, and 20 independent ones are sorted.
        for (field_bits, width, bits) in
            [(8, 2, 1), (16, 1, 3), (24, 12, 2), (32, 9, 1), (32, 20, 1)]
        {
            let hash = Hash { field: GaloisField::new(field_bits).unwrap(), bits };
            let (ids, hashes, weights) = made(40_000, hash, u64::from(field_bits));
            let packets = Packets { ids: &ids, hashes: &hashes, weights: &weights };
            let class: Vec<u32> = (0..40_000).map(|p| mix(p + 5) as u32 % 3).collect();
            let links: Vec<u32> =
                (0..3 * width).map(|i| (mix(i) as u32 | 1) & hash.field.max()).collect();
            let w = width as usize;
            let members: Vec<u32> = (0..3 * width as u32).collect();
            let start = [0, w, 2 * w, 3 * w];
            let table = Classes { of_packet: &class, start: &start, links: &members };
            let totals = |how| classes::scores(hash, &packets, &table, &links, how).unwrap();
            let direct = totals(Some(cost::Choice::Direct));
            assert_eq!(totals(Some(cost::Choice::Transform)), direct);
            assert_eq!(totals(None), direct);
            let late = [&ids[..39_999], &[hash.field.max()]].concat();
            let mut wrong = hashes.clone();
            wrong[39_999] = 255;
            let packets = Packets { ids: &late, hashes: &wrong, weights: &weights };
            let error = classes::scores(hash, &packets, &table, &links, None).unwrap_err();
            assert!(error.to_string().starts_with("hash 39999 is 255"), "{error}");
        }
    }

    #[test]
    fn errors_name_the_entry_that_does_not_fit() {
        let hash = Hash { field: GaloisField::new(8).unwrap(), bits: 2 };
        let packets = Packets { ids: &[1, 256], hashes: &[0, 1], weights: &[1, 1] };
        let error = check(hash, &packets, &[]).unwrap_err();
        assert_eq!(error.to_string(), "packet id 1 is 256, which does not fit 8 bits");
        let packets = Packets { ids: &[1, 2], hashes: &[0, 4], weights: &[1, 1] };
        assert!(check(hash, &packets, &[]).is_err());
        let packets = Packets { ids: &[1], hashes: &[0, 1], weights: &[1, 1] };
        assert!(check(hash, &packets, &[]).is_err());
    }
}
