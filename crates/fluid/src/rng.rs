//! Random numbers of the fluid model: a function of (seed, stream, entity).

use tailback_random::splitmix;

pub(crate) use tailback_random::below;

/// 64 random bits of `entity` in `stream`: three steps of splitmix64.
#[inline]
pub fn random(seed: u64, stream: u64, entity: u64) -> u64 {
    splitmix(splitmix(splitmix(seed) ^ stream) ^ entity)
}

/// A uniformly random permutation of `0..n` (Fisher and Yates).
pub(crate) fn permutation(n: u32, seed: u64, stream: u64) -> Vec<u32> {
    let mut out: Vec<u32> = (0..n).collect();
    for i in (1..n).rev() {
        out.swap(i as usize, below(random(seed, stream, i.into()), i + 1) as usize);
    }
    out
}
