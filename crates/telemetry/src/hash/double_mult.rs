//! H_doubleMult (Bond and McKinley, Bell, 2006; thesis §5.4): bit 31 of id × d².

/// Upper `bits` bits of id × d².
#[inline]
pub fn double_mult(id: u32, d: u32, bits: u32) -> u32 {
    id.wrapping_mul(d).wrapping_mul(d) >> (32 - bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_arguments_give_zero() {
        // Why the thesis multiplies by a constant: "id × d² might be less than 2^30".
        assert!((1..1000).all(|id| double_mult(id, 100, 1) == 0));
    }
}
