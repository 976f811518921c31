//! H_mult' (Taffet 2019, §5.4): bit 31 of 1 846 571 429 × id × d, and the encoding of links.

/// The published random 31-bit prime.
const CONSTANT: u32 = 1_846_571_429;

/// The published link value d: (switch id) × 2^15 + (port number) × 2^9 + 509, never small.
#[cfg(test)]
pub(super) fn encode_link(switch: u32, port: u32) -> u32 {
    switch.wrapping_shl(15).wrapping_add(port << 9).wrapping_add(509)
}

/// The product of which the upper bits are the hash.
#[inline]
pub fn product(id: u32, d: u32) -> u32 {
    CONSTANT.wrapping_mul(id).wrapping_mul(d)
}

/// Upper `bits` bits; one bit is the published function.
#[inline]
pub(super) fn mult(id: u32, d: u32, bits: u32) -> u32 {
    product(id, d) >> (32 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of all 2^32 values of d on which two ids agree, from a regular subset of them: the
    /// hash is a step function of d × step, so an odd stride visits every phase.
    fn agreement(a: u32, b: u32) -> f64 {
        let (count, stride) = (1u32 << 20, 2_654_435_761u32);
        let agree = (0..count)
            .filter(|i| {
                let d = i.wrapping_mul(stride);
                mult(a, d, 1) == mult(b, d, 1)
            })
            .count();
        agree as f64 / f64::from(count)
    }

    #[test]
    fn ids_2_and_6_agree_on_two_thirds_of_the_links() {
        assert!((agreement(2, 6) - 2.0 / 3.0).abs() < 1e-3, "{}", agreement(2, 6));
        // The property that fails there holds for most large ids.
        assert!((agreement(44_974_351, 90_210_733) - 0.5).abs() < 0.01);
    }

    #[test]
    fn the_published_example_has_period_six_or_seven() {
        // r = 2^32 / ±(constant × id) is about 6.4 for id 44 974 351.
        let step = product(44_974_351, 1);
        let step = step.min(step.wrapping_neg());
        let r = 2f64.powi(32) / f64::from(step);
        assert!((r - 6.4).abs() < 0.05, "{r}");
    }

    #[test]
    fn exactly_half_of_a_full_period_is_one() {
        // Theorem 5.1 on a small modulus' worth: id = 2^20 leaves 2^12 distinct values of d.
        let ones: u32 = (0..1 << 12).map(|d| mult(1 << 20, d, 1)).sum();
        assert_eq!(ones, 1 << 11);
    }

    #[test]
    fn link_values_are_never_small_and_distinct() {
        assert_eq!(encode_link(0, 0), 509);
        assert_eq!(encode_link(3, 5), 3 * 32768 + 5 * 512 + 509);
    }
}
