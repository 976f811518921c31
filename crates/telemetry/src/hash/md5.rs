//! MD5 (RFC 1321) of id × d: the thesis' example of a pseudo-random function (Figure 5.1 b).

use std::sync::LazyLock;

/// floor(2^32 |sin(i + 1)|), RFC 1321 section 3.4.
static SINES: LazyLock<[u32; 64]> = LazyLock::new(|| {
    std::array::from_fn(|i| (((i + 1) as f64).sin().abs() * 2f64.powi(32)) as u32)
});
const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// Digest of a message of at most 55 bytes (one block).
///
/// # Panics
/// The message is longer.
pub fn digest(message: &[u8]) -> [u8; 16] {
    assert!(message.len() <= 55, "one block only");
    let mut block = [0u8; 64];
    block[..message.len()].copy_from_slice(message);
    block[message.len()] = 0x80;
    block[56..].copy_from_slice(&(8 * message.len() as u64).to_le_bytes());
    let word = |i: usize| u32::from_le_bytes(std::array::from_fn(|k| block[4 * i + k]));
    let start = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let [mut a, mut b, mut c, mut d] = start;
    for (i, &sine) in SINES.iter().enumerate() {
        let (mixed, index) = match i / 16 {
            0 => ((b & c) | (!b & d), i),
            1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
            2 => (b ^ c ^ d, (3 * i + 5) % 16),
            _ => (c ^ (b | !d), (7 * i) % 16),
        };
        let sum = a.wrapping_add(mixed).wrapping_add(sine).wrapping_add(word(index));
        (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4])));
    }
    let mut out = [0u8; 16];
    for (i, (s, v)) in start.into_iter().zip([a, b, c, d]).enumerate() {
        out[4 * i..4 * i + 4].copy_from_slice(&s.wrapping_add(v).to_le_bytes());
    }
    out
}

/// Lower `bits` bits of the digest of the eight bytes of id × d.
pub fn md5(id: u32, d: u32, bits: u32) -> u32 {
    let product = (u64::from(id) * u64::from(d)).to_le_bytes();
    u32::from(digest(&product)[15]) & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::digest;

    fn hex(message: &str) -> String {
        digest(message.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_test_suite_of_the_rfc() {
        assert_eq!(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        assert_eq!(hex("abcdefghijklmnopqrstuvwxyz"), "c3fcd3d76192e4007dfb496cca67e13b");
    }
}
