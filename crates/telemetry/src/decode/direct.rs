//! Tests every packet against every link, in loops that the compiler vectorises.

use super::packets::{Hash, Packets};

/// Packets per block: its columns stay in the L1 and L2 caches while all links are tested.
const BLOCK: usize = 8192;
const LANES: usize = 64;

/// Scores of `links`; the input must have passed [`check`](super::check).
pub fn scores(hash: Hash, packets: &Packets<'_>, links: &[u32]) -> Vec<i64> {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the features.
            return unsafe { with_avx512(hash, packets, links) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the feature.
            return unsafe { with_avx2(hash, packets, links) };
        }
    }
    any(hash, packets, links)
}

// The same source, compiled for the instruction sets that the processor may have.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx2")]
fn with_avx512(hash: Hash, packets: &Packets<'_>, links: &[u32]) -> Vec<i64> {
    any(hash, packets, links)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(hash: Hash, packets: &Packets<'_>, links: &[u32]) -> Vec<i64> {
    any(hash, packets, links)
}

#[inline(always)]
fn any(hash: Hash, packets: &Packets<'_>, links: &[u32]) -> Vec<i64> {
    match (hash.field.bits() <= 16, hash.bits == 1) {
        (true, true) => narrow::<true>(hash, packets, links),
        (true, false) => narrow::<false>(hash, packets, links),
        (false, true) => wide::<true>(hash, packets, links),
        (false, false) => wide::<false>(hash, packets, links),
    }
}

/// `S = 2^b × (weight of packets that match) − (weight of all)`.
fn finish(hash: Hash, packets: &Packets<'_>, matched: Vec<u64>) -> Vec<i64> {
    let all: i64 = packets.weights.iter().map(|&w| i64::from(w)).sum();
    matched.into_iter().map(|m| ((m as i64) << hash.bits) - all).collect()
}

/// One version for each width of a packet id; the sum of 128 weights of 8 bits fits 16 bits.
macro_rules! version {
    ($name:ident, $word:ty, $signed:ty, $width:expr, $folds:expr) => {
        #[inline(always)]
        fn $name<const ONE: bool>(hash: Hash, packets: &Packets<'_>, links: &[u32]) -> Vec<i64> {
            let masks: Vec<[$word; 8]> = links
                .iter()
                .map(|&d| {
                    std::array::from_fn(|k| {
                        if (k as u32) < hash.bits {
                            hash.field.mask(d, k as u32) as $word
                        } else {
                            0
                        }
                    })
                })
                .collect();
            let bits = if ONE { 1 } else { hash.bits as usize };
            let mut matched = vec![0u64; links.len()];
            let mut ids = vec![[0 as $word; LANES]; BLOCK / LANES];
            let mut weights = ids.clone();
            let mut planes = vec![ids.clone(); bits];
            for first in (0..packets.ids.len()).step_by(BLOCK) {
                let last = (first + BLOCK).min(packets.ids.len());
                // Entries past the end have weight 0.
                weights.as_flattened_mut().fill(0);
                for (slot, p) in (first..last).enumerate() {
                    ids.as_flattened_mut()[slot] = packets.ids[p] as $word;
                    weights.as_flattened_mut()[slot] = packets.weights[p].into();
                    for (k, plane) in planes.iter_mut().enumerate() {
                        // Hash bit k in the sign bit, where the parity ends up.
                        plane.as_flattened_mut()[slot] =
                            <$word>::from((packets.hashes[p] >> k) & 1) << ($width - 1);
                    }
                }
                let groups = (last - first).div_ceil(LANES);
                for (mask, sum) in masks.iter().zip(&mut matched) {
                    let mut lanes = [0 as $word; LANES];
                    for group in 0..groups {
                        let mut differ = [0 as $word; LANES];
                        // Bit by bit over all lanes: the innermost loops have fixed lengths.
                        for k in 0..bits {
                            for lane in 0..LANES {
                                let mut x = ids[group][lane] & mask[k];
                                for shift in $folds {
                                    x ^= x << shift;
                                }
                                differ[lane] |= x ^ planes[k][group][lane];
                            }
                        }
                        for lane in 0..LANES {
                            // All ones where the sign bit is set: the hashes differ.
                            let out = ((differ[lane] as $signed) >> ($width - 1)) as $word;
                            lanes[lane] = lanes[lane].wrapping_add(weights[group][lane] & !out);
                        }
                    }
                    *sum += lanes.iter().map(|&x| u64::from(x)).sum::<u64>();
                }
            }
            finish(hash, packets, matched)
        }
    };
}

version!(narrow, u16, i16, 16, [8, 4, 2, 1]);
version!(wide, u32, i32, 32, [16, 8, 4, 2, 1]);
