//! Decoder of the published one-bit hash H_mult', which is not linear: tests every packet against every link.

use super::packets::DecodeError;
use crate::hash::product;

/// Packets per block: its columns stay in the L1 and L2 caches while all links are tested.
const BLOCK: usize = 4096;
const LANES: usize = 32;

/// Scores of `links` as algorithm 7 counts: Σ weight where the bit agrees, −weight where not.
///
/// # Errors
/// Columns of different lengths, or a hash above 1.
pub fn scores(
    ids: &[u32],
    hashes: &[u8],
    weights: &[u8],
    links: &[u32],
) -> Result<Vec<i64>, DecodeError> {
    if hashes.len() != ids.len() || weights.len() != ids.len() {
        let (hashes, weights) = (hashes.len(), weights.len());
        return Err(DecodeError::Lengths { ids: ids.len(), hashes, weights });
    }
    if let Some(index) = hashes.iter().position(|&h| h > 1) {
        let value = u32::from(hashes[index]);
        return Err(DecodeError::Value { what: "hash", index, value, bits: 1 });
    }
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the feature.
            return Ok(unsafe { with_avx512(ids, hashes, weights, links) });
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the feature.
            return Ok(unsafe { with_avx2(ids, hashes, weights, links) });
        }
    }
    Ok(any(ids, hashes, weights, links))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2")]
fn with_avx512(ids: &[u32], hashes: &[u8], weights: &[u8], links: &[u32]) -> Vec<i64> {
    any(ids, hashes, weights, links)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(ids: &[u32], hashes: &[u8], weights: &[u8], links: &[u32]) -> Vec<i64> {
    any(ids, hashes, weights, links)
}

#[inline(always)]
fn any(ids: &[u32], hashes: &[u8], weights: &[u8], links: &[u32]) -> Vec<i64> {
    let all: i64 = weights.iter().map(|&w| i64::from(w)).sum();
    let mut matched = vec![0u64; links.len()];
    let mut id = vec![[0u32; LANES]; BLOCK / LANES];
    let (mut bit, mut weight) = (id.clone(), id.clone());
    for first in (0..ids.len()).step_by(BLOCK) {
        let last = (first + BLOCK).min(ids.len());
        // Entries past the end have weight 0.
        weight.as_flattened_mut().fill(0);
        for (slot, p) in (first..last).enumerate() {
            id.as_flattened_mut()[slot] = ids[p];
            bit.as_flattened_mut()[slot] = u32::from(hashes[p]) << 31;
            weight.as_flattened_mut()[slot] = weights[p].into();
        }
        for (&link, sum) in links.iter().zip(&mut matched) {
            let factor = product(1, link);
            let mut lanes = [0u32; LANES];
            for group in 0..(last - first).div_ceil(LANES) {
                for lane in 0..LANES {
                    let product = id[group][lane].wrapping_mul(factor);
                    // All ones where the top bits differ.
                    let differ = ((product ^ bit[group][lane]) as i32 >> 31) as u32;
                    lanes[lane] += weight[group][lane] & !differ;
                }
            }
            *sum += lanes.iter().map(|&x| u64::from(x)).sum::<u64>();
        }
    }
    matched.into_iter().map(|m| 2 * m as i64 - all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::LinkHash;
    use crate::scheme::mix;

    #[test]
    fn scores_follow_the_published_algorithm() {
        let n = 9000usize;
        let ids: Vec<u32> = (0..n).map(|p| mix(p as u64) as u32).collect();
        let hashes: Vec<u8> = (0..n).map(|p| (mix(p as u64 + 1) & 1) as u8).collect();
        let weights: Vec<u8> = (0..n).map(|p| mix(p as u64 + 2) as u8).collect();
        let links = [509, 33_277, 4_294_967_295];
        let totals = scores(&ids, &hashes, &weights, &links).unwrap();
        for (&link, totals) in links.iter().zip(totals) {
            let sum = |p: usize| {
                let same = LinkHash::Mult.value(ids[p], link, 1) == u32::from(hashes[p]);
                (2 * i64::from(same) - 1) * i64::from(weights[p])
            };
            assert_eq!(totals, (0..n).map(sum).sum::<i64>());
        }
        assert!(scores(&ids, &hashes[1..], &weights, &links).is_err());
        assert!(scores(&[1], &[2], &[1], &links).is_err());
    }
}
