//! Multiplication in GF(2^n): every bit of id × d is the parity of the id under a mask.
//!
//! For a fixed link d ≠ 0 the map id → id × d is a bijection, so all hash values are equally
//! frequent; for two different ids, d → (id + id') × d is one too, so their hashes agree in a given bit for
//! exactly half of the links. The hash needs no multiplier: mask `k` of a link, computed once per port, gives bit `k` as
//! `parity(id & mask)`. The hash is linear over GF(2) in the id *and* in the link, which is what
//! makes decoding by transform possible.
//!
//! The link is multiplied by a constant first, as in H_mult': low bits of the product of small
//! polynomials depend on few bits of the id and would hardly change between consecutive ids.

/// GF(2^n) for n = 8, 16, 24 or 32, with a fixed irreducible polynomial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GaloisField {
    bits: u32,
    low: u32,
}

/// A field that is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownField(pub u32);

impl GaloisField {
    /// The field of 2^`bits` elements.
    ///
    /// # Errors
    /// `bits` is not 8, 16, 24 or 32.
    pub const fn new(bits: u32) -> Result<Self, UnknownField> {
        // Below x^n: x^4+x^3+x+1, x^5+x^3+x+1, x^7+x^2+x+1, x^7+x^3+x^2+1.
        let low = match bits {
            8 => 0x1b,
            16 => 0x2b,
            24 => 0x87,
            32 => 0x8d,
            _ => return Err(UnknownField(bits)),
        };
        Ok(Self { bits, low })
    }

    /// The n of GF(2^n).
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Largest element.
    pub const fn max(self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }

    /// a × x.
    #[inline]
    pub const fn double(self, a: u32) -> u32 {
        let carry = (a >> (self.bits - 1)) & 1;
        ((a << 1) & self.max()) ^ (self.low & carry.wrapping_neg())
    }

    /// a × b.
    pub(crate) const fn multiply(self, mut a: u32, b: u32) -> u32 {
        let mut product = 0;
        let mut bit = 0;
        while bit < self.bits {
            product ^= a & ((b >> bit) & 1).wrapping_neg();
            a = self.double(a);
            bit += 1;
        }
        product
    }

    /// A link spread over the field: × an arbitrary constant (the digits of the golden ratio).
    const fn spread(self, d: u32) -> u32 {
        self.multiply(d & self.max(), 0x9e37_79b9 >> (32 - self.bits))
    }

    /// Mask of link `d` for bit `k`: that bit of id × d × constant is `parity(id & mask)`.
    pub const fn mask(self, d: u32, k: u32) -> u32 {
        let (mut power, mut mask, mut bit) = (self.spread(d), 0, 0);
        while bit < self.bits {
            mask |= ((power >> k) & 1) << bit;
            power = self.double(power);
            bit += 1;
        }
        mask
    }

    /// Lower `bits` bits of id × d × constant; id and d are taken modulo 2^n.
    #[inline]
    pub const fn hash(self, id: u32, d: u32, bits: u32) -> u32 {
        self.multiply(self.spread(d), id & self.max()) & ((1 << bits) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u32; 4] = [8, 16, 24, 32];

    #[test]
    fn the_polynomials_are_irreducible() {
        // Rabin's test: x^(2^n) = x, and x^(2^(n/p)) + x is invertible for each prime p of n.
        for bits in SIZES {
            let field = GaloisField::new(bits).unwrap();
            let frobenius = |times: u32| (0..times).fold(2, |a, _| field.multiply(a, a));
            assert_eq!(frobenius(bits), 2, "n = {bits}");
            for prime in [2, 3] {
                if bits % prime == 0 {
                    let modulus = (1u64 << bits) | u64::from(field.low);
                    assert_eq!(gcd(modulus, u64::from(frobenius(bits / prime) ^ 2)), 1);
                }
            }
        }
    }

    fn gcd(mut a: u64, mut b: u64) -> u64 {
        while b != 0 {
            while a != 0 && a.ilog2() >= b.ilog2() {
                a ^= b << (a.ilog2() - b.ilog2());
            }
            (a, b) = (b, a);
        }
        a
    }

    #[test]
    fn masks_equal_the_multiplication() {
        for bits in SIZES {
            let field = GaloisField::new(bits).unwrap();
            let (mut id, mut d) = (0x9e37_79b9u32, 0x7f4a_7c15u32);
            for _ in 0..100 {
                (id, d) = (id.wrapping_mul(0x2545_f491) ^ 77, d.wrapping_mul(0x5851_f42d) ^ 99);
                let (a, b) = (id & field.max(), d & field.max());
                assert_eq!(field.multiply(a, b), field.multiply(b, a));
                let product = field.multiply(a, field.spread(b));
                assert_eq!(field.hash(a, b, 3), product & 7);
                for k in 0..bits {
                    assert_eq!((a & field.mask(b, k)).count_ones() & 1, (product >> k) & 1);
                }
            }
        }
    }

    #[test]
    fn every_hash_value_is_taken_equally_often() {
        let field = GaloisField::new(16).unwrap();
        for d in [1, 2, 12_345, 65_535] {
            let mut count = [0u32; 16];
            for id in 0..=65_535 {
                count[field.hash(id, d, 4) as usize] += 1;
            }
            assert_eq!(count, [4096; 16], "link {d}");
        }
    }

    #[test]
    fn two_ids_agree_on_exactly_half_of_all_links() {
        let field = GaloisField::new(16).unwrap();
        for (a, b) in [(2, 6), (1, 3), (40_000, 40_002)] {
            let agree = (0..=65_535).filter(|&d| field.hash(a, d, 1) == field.hash(b, d, 1));
            assert_eq!(agree.count(), 32_768, "ids {a} and {b}");
        }
    }
}
