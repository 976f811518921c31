//! Entropy values: the 16 bits of a packet that let switches spread packets over paths.
//!
//! They are the UDP source port in RoCEv2, the entropy value in Ultra Ethernet. A switch hashes them with
//! the addresses, so that whoever knows the hash knows the path of a packet.

use tailback_random::splitmix;

use crate::Settings;

/// Bits of an entropy value.
const ENTROPY_BITS: u32 = 16;
const NODE_BITS: u32 = 24;

/// Entropy value of a packet, which its sender draws.
#[inline]
pub(crate) fn entropy(settings: &Settings, packet: u64) -> u16 {
    (splitmix(splitmix(settings.seed) ^ packet) >> (64 - ENTROPY_BITS)) as u16
}

/// The fields that switches hash, as one word.
#[inline]
pub(crate) fn path_key([source, destination]: [u32; 2], entropy: u16) -> u64 {
    u64::from(source) << (NODE_BITS + ENTROPY_BITS)
        | u64::from(destination) << ENTROPY_BITS
        | u64::from(entropy)
}
