//! Bands of the signal value of scheme csig.

use crate::scheme::MAX_VALUE;

/// log2 of the picoseconds at which band 3 begins: 65.5 ns, the time of a packet of 0.8 KB at 100 Gb/s.
const BASE_LOG2: u32 = 16;

/// Band of a port by the time its queue needs at its speed, from 1 to [`MAX_VALUE`].
///
/// A tag has 32 bands with freely configured limits (Ravi et al. 2024, SAI proposal §3.2). These grow by √2, as
/// the difference between a short and a long queue matters more than that between two long ones: the
/// last band begins at 1.1 ms, or 13 MB at 100 Gb/s.
#[inline]
pub fn band(drain_ps: u64) -> u8 {
    let Some(octave) = drain_ps.checked_ilog2().and_then(|log2| log2.checked_sub(BASE_LOG2)) else {
        return if drain_ps >> (BASE_LOG2 - 1) == 0 { 1 } else { 2 };
    };
    // Whether the square is at least twice that of the octave's start.
    let upper = u128::from(drain_ps).pow(2) >> (2 * (octave + BASE_LOG2) + 1) != 0;
    (3 + 2 * octave + u32::from(upper)).min(MAX_VALUE.into()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_half_octaves() {
        let start = 1_u64 << BASE_LOG2;
        assert_eq!([0, start / 2 - 1, start / 2, start - 1].map(band), [1, 1, 2, 2]);
        assert_eq!([start, start * 14142 / 10000, start * 14143 / 10000].map(band), [3, 3, 4]);
        assert_eq!([start * 2 - 1, start * 2, start * 4].map(band), [4, 5, 7]);
        assert_eq!([start << 14, u64::MAX].map(band), [31, 31]);
        let all: Vec<u8> = (0..64).map(|log2| band(1 << log2)).collect();
        assert!(all.is_sorted());
    }
}
