//! Packets to decode, and checks of them.

use crate::hash::GaloisField;

/// Packets to decode; the slices are equally long.
#[derive(Debug, Clone, Copy)]
pub struct Packets<'a> {
    /// Packet ids, below 2^n.
    pub ids: &'a [u32],
    /// Hashes that arrived, below 2^b.
    pub hashes: &'a [u8],
    /// Weights.
    pub weights: &'a [u8],
}

/// The hash the packets carry.
#[derive(Debug, Clone, Copy)]
pub struct Hash {
    /// Field of the product.
    pub field: GaloisField,
    /// Bits b that travel, 1 to 8.
    pub bits: u32,
}

/// Which links the packets of a class may have used.
#[derive(Debug, Clone, Copy)]
pub struct Classes<'a> {
    /// Class of each packet.
    pub of_packet: &'a [u32],
    /// Candidates of class k are `links[start[k]..start[k + 1]]`.
    pub start: &'a [usize],
    /// Indices into the link values.
    pub links: &'a [u32],
}

/// A packet or hash that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Bits out of range.
    #[error("hash_bits = {0} is out of range: 1 to 8 bits can be decoded")]
    Bits(u32),
    /// Columns of different lengths.
    #[error(
        "{ids} packet ids, {hashes} hashes and {weights} weights: the columns must be equally long"
    )]
    Lengths {
        /// Ids.
        ids: usize,
        /// Hashes.
        hashes: usize,
        /// Weights.
        weights: usize,
    },
    /// An id or hash too large.
    #[error("{what} {index} is {value}, which does not fit {bits} bits")]
    Value {
        /// Kind of entry.
        what: &'static str,
        /// Which one.
        index: usize,
        /// Its value.
        value: u32,
        /// Bits it must fit.
        bits: u32,
    },
    /// A packet of a class that does not exist.
    #[error("a packet is of class {0}, which does not exist")]
    Class(u32),
    /// A class table that is not ascending or ends elsewhere.
    #[error("the class table must ascend from 0 to the number of candidate links")]
    Table,
}

/// Checks the input of the decoders.
///
/// # Errors
/// Lengths, ids and hashes that do not fit.
pub fn check(hash: Hash, packets: &Packets<'_>, links: &[u32]) -> Result<(), DecodeError> {
    if !(1..=8).contains(&hash.bits) {
        return Err(DecodeError::Bits(hash.bits));
    }
    let (ids, hashes, weights) = (packets.ids.len(), packets.hashes.len(), packets.weights.len());
    if ids != hashes || ids != weights {
        return Err(DecodeError::Lengths { ids, hashes, weights });
    }
    check_values(hash, packets, 0)?;
    check_fit("link", links, hash.field, 0)
}

/// Checks ids and hashes alone; `first` is the index of the first packet.
pub(super) fn check_values(
    hash: Hash,
    packets: &Packets<'_>,
    first: usize,
) -> Result<(), DecodeError> {
    check_fit("packet id", packets.ids, hash.field, first)?;
    if u32::from(packets.hashes.iter().fold(0, |a, &b| a | b)) >> hash.bits != 0 {
        let index = packets.hashes.iter().position(|&h| u32::from(h) >> hash.bits != 0);
        let index = index.unwrap_or(0);
        let (value, bits) = (u32::from(packets.hashes[index]), hash.bits);
        return Err(DecodeError::Value { what: "hash", index: first + index, value, bits });
    }
    Ok(())
}

pub(super) fn check_fit(
    what: &'static str,
    values: &[u32],
    field: GaloisField,
    first: usize,
) -> Result<(), DecodeError> {
    // The fold vectorises; the search runs only if the fold finds something.
    if values.iter().fold(0, |a, &b| a | b) <= field.max() {
        return Ok(());
    }
    match values.iter().position(|&value| value > field.max()) {
        Some(index) => {
            let (value, bits) = (values[index], field.bits());
            Err(DecodeError::Value { what, index: first + index, value, bits })
        }
        None => Ok(()),
    }
}
