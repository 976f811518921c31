//! MD5 of id × d: the example of a pseudo-random function (Taffet 2019, Figure 5.1 b).

use ::md5::{Digest, Md5};

/// Lower `bits` bits of the digest of the eight bytes of id × d.
pub fn md5(id: u32, d: u32, bits: u32) -> u32 {
    let product = (u64::from(id) * u64::from(d)).to_le_bytes();
    u32::from(Md5::digest(product)[15]) & ((1 << bits) - 1)
}
