//! Random numbers as a function of their purpose: there is no shared generator, so the order of draws
//! does not matter.
//!
//! Each crate hashes its own keys (seed, purpose, packet, hop) with [`splitmix`].

/// One step of SplitMix64: increment and finaliser (Steele, Lea and Flood, OOPSLA 2014).
#[inline]
pub const fn splitmix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A uniform integer in `0..n` from the upper 32 of 64 random bits; 0 for `n = 0`.
#[inline]
pub const fn below(random: u64, n: u32) -> u32 {
    ((random >> 32).wrapping_mul(n as u64) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the reference implementation with seed 1234567.
    #[test]
    fn the_outputs_are_those_of_splitmix64() {
        let outputs = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
        ];
        let mut state = 1_234_567u64;
        for output in outputs {
            assert_eq!(splitmix(state), output);
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
    }

    #[test]
    fn numbers_below_n_are_uniform() {
        let mut seen = [0u32; 7];
        (0..7_000).for_each(|i| seen[below(splitmix(i), 7) as usize] += 1);
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
        assert_eq!((below(0, 7), below(u64::MAX, 7)), (0, 6));
    }
}
