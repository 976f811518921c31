//! The lower bits of the CRC of id × d (thesis §5.4): hardware that switches already have.

/// CRC-32 (IEEE 802.3, reflected) of each byte.
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut out = [0u32; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (0xedb8_8320 & (value & 1).wrapping_neg());
            bit += 1;
        }
        out[byte] = value;
        byte += 1;
    }
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

/// Lower `bits` bits of the CRC-32 of the eight bytes of id × d.
#[inline]
pub fn crc(id: u32, d: u32, bits: u32) -> u32 {
    crc32(&(u64::from(id) * u64::from(d)).to_be_bytes()) & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
