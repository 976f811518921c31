//! Random numbers as a function of (seed, stream, entity): no shared generator, no order of use.

/// 64 random bits of `entity` in `stream`: three rounds of the splitmix64 finaliser (Steele, Lea
/// and Flood, OOPSLA 2014).
#[inline]
pub fn random(seed: u64, stream: u64, entity: u64) -> u64 {
    mix(mix(mix(seed) ^ stream) ^ entity)
}

#[inline]
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A uniform integer below `n` from 64 random bits.
#[inline]
pub(crate) fn below(random: u64, n: u32) -> u32 {
    ((random >> 32).wrapping_mul(u64::from(n)) >> 32) as u32
}

/// A uniformly random permutation of `0..n` (Fisher and Yates).
pub(crate) fn permutation(n: u32, seed: u64, stream: u64) -> Vec<u32> {
    let mut out: Vec<u32> = (0..n).collect();
    for i in (1..n).rev() {
        out.swap(i as usize, below(random(seed, stream, i.into()), i + 1) as usize);
    }
    out
}
