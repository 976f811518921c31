//! The record common to all formats, and the detection of the format.

use std::io::Read;

use crate::dissect::LinkType;
use crate::error::{CaptureError, CaptureFault};
use crate::input::Input;
use crate::{erf, pcap, pcapng};

/// Whether the capturing host received or sent a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Direction {
    /// The format does not record it.
    #[default]
    Unknown = 0,
    /// It received the packet.
    Inbound = 1,
    /// It sent the packet.
    Outbound = 2,
}

/// One captured frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame<'a> {
    /// Offset of its record in the file.
    pub offset: u64,
    /// Nanoseconds since 1970; `None` where the format has no time.
    pub time_ns: Option<i64>,
    /// Link type of the bytes; `None` if it is not supported.
    pub link: Option<LinkType>,
    /// The bytes that were captured.
    pub bytes: &'a [u8],
    /// Bytes that the frame had on the wire.
    pub wire_bytes: usize,
    pub direction: Direction,
}

/// How a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileEnd {
    /// At the end of a record.
    Whole,
    /// Within the record that begins at this offset.
    Cut(u64),
}

/// Longest frame accepted: libpcap's largest snapshot length.
pub(crate) const MAX_FRAME: usize = 262_144;

/// Calls `each` for every frame of a file.
///
/// # Errors
/// The file has none of the formats or is damaged, or `each` fails.
pub(crate) fn frames<R: Read>(
    from: R,
    each: &mut dyn FnMut(Frame<'_>) -> Result<(), CaptureFault>,
) -> Result<FileEnd, CaptureError> {
    let mut input = Input::new(from);
    let first = input.peek(24).map_err(|error| CaptureFault::Io(error).at(0))?;
    let Some(&magic) = first.first_chunk::<4>() else {
        return Err(CaptureFault::Unknown(first.to_vec()).at(0));
    };
    if let Some(compressed) = compressed(magic) {
        return Err(compressed.at(0));
    }
    match magic {
        [0x0a, 0x0d, 0x0d, 0x0a] => pcapng::frames(&mut input, each),
        [0xd4, 0xc3, 0xb2, 0xa1]
        | [0xa1, 0xb2, 0xc3, 0xd4]
        | [0x4d, 0x3c, 0xb2, 0xa1]
        | [0xa1, 0xb2, 0x3c, 0x4d] => pcap::frames(&mut input, each),
        [0x34, 0xcd, 0xb2, 0xa1] | [0xa1, 0xb2, 0xcd, 0x34] => {
            Err(CaptureFault::ModifiedPcap.at(0))
        }
        _ if erf::looks_like(&mut input).map_err(|error| CaptureFault::Io(error).at(0))? => {
            erf::frames(&mut input, each)
        }
        _ => Err(CaptureFault::Unknown(magic.to_vec()).at(0)),
    }
}

fn compressed(magic: [u8; 4]) -> Option<CaptureFault> {
    let known: [&[u8]; 4] = [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], &[0xfd, b'7', b'z'], b"BZh"];
    known.iter().any(|start| magic.starts_with(start)).then_some(CaptureFault::Compressed)
}

/// Four bytes in either byte order.
#[inline]
pub(crate) fn read_u32(bytes: &[u8], at: usize, big: bool) -> u32 {
    let four =
        bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap_or_default();
    if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

/// Two bytes in either byte order.
#[inline]
pub(crate) fn read_u16(bytes: &[u8], at: usize, big: bool) -> u16 {
    let two = bytes.get(at..).and_then(|rest| rest.first_chunk::<2>()).copied().unwrap_or_default();
    if big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) }
}

/// Nanoseconds since 1970 by the capturing clock.
pub(crate) fn checked_time(time_ns: i128) -> Result<i64, CaptureFault> {
    i64::try_from(time_ns).ok().filter(|&time| time >= 0).ok_or(CaptureFault::Time(time_ns))
}
