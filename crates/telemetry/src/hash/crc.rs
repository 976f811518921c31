//! The lower bits of the CRC of id × d (Taffet 2019, §5.4), for which switches have the hardware.

use ::crc::{CRC_32_ISO_HDLC, Crc, Table};

/// CRC-32 (IEEE 802.3).
static CRC_32: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);

/// Lower `bits` bits of the CRC-32 of the eight bytes of id × d.
#[inline]
pub fn crc(id: u32, d: u32, bits: u32) -> u32 {
    let product = (u64::from(id) * u64::from(d)).to_be_bytes();
    CRC_32.checksum(&product) & ((1 << bits) - 1)
}
