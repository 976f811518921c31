//! Link hashes, which a switch writes in place of a link (Taffet 2019, §5.4).
//!
//! The receiver compares what arrived with the hash of every link the packet may have used. Counts
//! are unbiased if the hash of a wrong link agrees with probability 2^-b, and have the published
//! variance if the hashes of a link for two packets are independent.

mod gf;
mod mult;

use ::crc::{CRC_32_ISO_HDLC, Crc, Table};
use ::md5::{Digest, Md5};

pub use gf::{GaloisField, UnknownField};
use mult::mult;
pub use mult::product;

/// A hash of (packet id, link) to a few bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkHash {
    /// H_mult': the upper bits of constant × id × d.
    Mult,
    /// H_doubleMult: the upper bits of id × d².
    DoubleMult,
    /// The lower bits of the CRC of id × d.
    Crc,
    /// The lower bits of MD5(id × d).
    Md5,
    /// The lower bits of id × d in GF(2^n): the only one that can be decoded by a transform.
    Gf(GaloisField),
    /// Parity of id AND d: the example of a hash that fails.
    Parity,
}

impl LinkHash {
    /// The hash called `name`; `field_bits` is the n of `gf`.
    ///
    /// # Errors
    /// An unknown name or field.
    pub fn parse(name: &str, field_bits: u32) -> Result<Self, UnknownHash> {
        Ok(match name {
            "mult" => Self::Mult,
            "double_mult" => Self::DoubleMult,
            "crc" => Self::Crc,
            "md5" => Self::Md5,
            "gf" => Self::Gf(
                GaloisField::new(field_bits).map_err(|_| UnknownHash::GaloisField(field_bits))?,
            ),
            "parity" => Self::Parity,
            other => return Err(UnknownHash::Name(other.to_owned())),
        })
    }

    /// Hash of `bits` bits (1 to 8) of packet `id` and link value `d`; parity has one bit only.
    #[inline]
    pub fn value(self, id: u32, d: u32, bits: u32) -> u32 {
        match self {
            Self::Mult => mult(id, d, bits),
            Self::DoubleMult => double_mult(id, d, bits),
            Self::Crc => crc(id, d, bits),
            Self::Md5 => md5(id, d, bits),
            Self::Gf(field) => field.hash(id, d, bits),
            Self::Parity => parity(id, d),
        }
    }
}

/// CRC-32 (IEEE 802.3).
static CRC_32: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);

/// Lower `bits` bits of the CRC-32 of the eight bytes of id × d, for which switches have the hardware.
#[inline]
fn crc(id: u32, d: u32, bits: u32) -> u32 {
    let product = (u64::from(id) * u64::from(d)).to_be_bytes();
    CRC_32.checksum(&product) & ((1 << bits) - 1)
}

/// H_doubleMult (Bond and McKinley, Bell, 2006): upper `bits` bits of id × d².
#[inline]
fn double_mult(id: u32, d: u32, bits: u32) -> u32 {
    id.wrapping_mul(d).wrapping_mul(d) >> (32 - bits)
}

/// Lower `bits` bits of the MD5 digest of the eight bytes of id × d: the example of a pseudo-random
/// function (Taffet 2019, Figure 5.1 b).
fn md5(id: u32, d: u32, bits: u32) -> u32 {
    let product = (u64::from(id) * u64::from(d)).to_le_bytes();
    u32::from(Md5::digest(product)[15]) & ((1 << bits) - 1)
}

/// H_parity, the example of an unsuitable hash: parity(id) ∧ parity(d) as the thesis reads it,
/// `(id & d) & 1` in its C. It is 1 only if both are odd.
#[inline]
fn parity(id: u32, d: u32) -> u32 {
    id & d & 1
}

/// A hash that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownHash {
    /// No hash has this name.
    #[error("unknown link hash {0:?}; valid: mult, double_mult, crc, md5, gf, parity")]
    Name(String),
    /// No field of this size is supported.
    #[error("unsupported field GF(2^{0}); valid: n = 8, 16, 24 and 32")]
    GaloisField(u32),
}

#[cfg(test)]
mod tests {
    use super::mult::encode_link;
    use super::*;

    const NAMES: [&str; 6] = ["mult", "double_mult", "crc", "md5", "gf", "parity"];

    const LINKS: u32 = 64;
    const IDS: u32 = 4096;

    /// A link as the thesis encodes it; GF(2^n) takes dense indices from 1.
    fn link(hash: LinkHash, index: u32) -> u32 {
        match hash {
            LinkHash::Gf(_) => index + 1,
            _ => encode_link(index / 8, index % 8 + 1),
        }
    }

    /// Share of ids with hash 1, for the link where it is farthest from 1/2.
    fn balance(hash: LinkHash, base: u32) -> f64 {
        (0..LINKS)
            .map(|index| {
                let d = link(hash, index);
                let ones: u32 = (0..IDS).map(|i| hash.value(base + i, d, 1)).sum();
                (f64::from(ones) / f64::from(IDS) - 0.5).abs()
            })
            .fold(0.0, f64::max)
    }

    /// Share of links (of many) on which two ids agree, for consecutive ids and those two apart:
    /// root of the mean squared distance from 1/2.
    fn dependence(hash: LinkHash, base: u32, apart: u32) -> f64 {
        let (links, ids) = (1024, 128);
        let squares: f64 = (0..ids)
            .map(|i| {
                let (a, b) = (base + i, base + i + apart);
                let agree = (0..links)
                    .filter(|&index| {
                        let d = link(hash, index);
                        hash.value(a, d, 1) == hash.value(b, d, 1)
                    })
                    .count();
                (agree as f64 / f64::from(links) - 0.5).powi(2)
            })
            .sum();
        (squares / f64::from(ids)).sqrt()
    }

    fn good() -> [LinkHash; 5] {
        let field = GaloisField::new(32).unwrap();
        [LinkHash::Mult, LinkHash::DoubleMult, LinkHash::Crc, LinkHash::Md5, LinkHash::Gf(field)]
    }

    #[test]
    fn hashes_are_balanced_over_packets() {
        for hash in good() {
            let worst = balance(hash, 44_974_351);
            assert!(worst < 0.08, "{hash:?}: {worst}");
        }
    }

    #[test]
    fn parity_is_not_balanced() {
        // Every other d is even, and then the hash is 0 for every second id at best.
        let even = (0..IDS).map(|id| parity(id, 0)).sum::<u32>();
        assert_eq!(even, 0);
        // The formula as the thesis reads it, over odd and even values: 1 for a quarter.
        let ones: u32 = (0..64).flat_map(|d| (0..64).map(move |id| parity(id, d))).sum();
        assert_eq!(ones, 64 * 64 / 4);
    }

    #[test]
    fn hashes_of_packets_are_independent() {
        for hash in good() {
            for apart in [1, 2, 3] {
                // 1/(2 √1024) = 0.016 for coin flips; H_mult' is periodic and gets more leave.
                let spread = dependence(hash, 44_974_351, apart);
                let limit = if hash == LinkHash::Mult { 0.15 } else { 0.06 };
                assert!(spread < limit, "{hash:?}, {apart} apart: {spread}");
            }
        }
    }

    #[test]
    fn parity_fails_independence() {
        // "We have H(id, d) = H(id + 2, d)": always equal, 1/2 too often.
        assert_eq!(dependence(LinkHash::Parity, 44_974_351, 2), 0.5);
    }

    #[test]
    fn wrong_links_agree_with_probability_two_to_the_minus_b() {
        let field = GaloisField::new(16).unwrap();
        for hash in [LinkHash::Mult, LinkHash::Crc, LinkHash::Md5, LinkHash::Gf(field)] {
            for bits in 1..=5 {
                let (mut agree, mut all) = (0u32, 0u32);
                for id in 20_000..20_500 {
                    for a in 0..16 {
                        for b in 0..a {
                            let (a, b) = (link(hash, a), link(hash, b));
                            agree += u32::from(hash.value(id, a, bits) == hash.value(id, b, bits));
                            all += 1;
                        }
                    }
                }
                let share = f64::from(agree) / f64::from(all) * f64::from(1 << bits);
                assert!((share - 1.0).abs() < 0.12, "{hash:?}, {bits} bits: {share}");
            }
        }
    }

    #[test]
    fn names_parse() {
        for name in NAMES {
            assert!(LinkHash::parse(name, 16).is_ok());
        }
        assert!(LinkHash::parse("sha", 16).is_err() && LinkHash::parse("gf", 7).is_err());
    }

    #[test]
    fn double_mult_of_small_arguments_is_zero() {
        // Why the thesis multiplies by a constant: "id × d² might be less than 2^30".
        assert!((1..1000).all(|id| double_mult(id, 100, 1) == 0));
    }
}
