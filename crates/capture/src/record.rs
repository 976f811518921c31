//! The frame that the readers of all formats return.

use crate::error::CaptureFault;

/// Link types that are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet, VLAN tags included.
    Ethernet,
    /// Linux "cooked" capture as `tcpdump -i any` writes it, version 1.
    LinuxCooked,
    /// The same, version 2.
    LinuxCooked2,
    /// IPv4 or IPv6 without a link header.
    RawIp,
    /// Records of capture cards.
    Erf,
    /// InfiniBand from the local route header on.
    InfiniBand,
}

impl LinkType {
    /// The link type with this number in the registry of pcap and pcapng.
    pub fn of(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Ethernet,
            101 | 228 | 229 => Self::RawIp,
            113 => Self::LinuxCooked,
            276 => Self::LinuxCooked2,
            197 => Self::Erf,
            247 => Self::InfiniBand,
            _ => return None,
        })
    }
}

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
    /// Length of the frame on the wire, in bytes.
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

/// Four bytes in either byte order.
#[inline]
pub(crate) fn read_u32(bytes: &[u8], at: usize, big: bool) -> u32 {
    let four =
        bytes.get(at..).and_then(|tail| tail.first_chunk::<4>()).copied().unwrap_or_default();
    if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

/// Two bytes in either byte order.
#[inline]
pub(crate) fn read_u16(bytes: &[u8], at: usize, big: bool) -> u16 {
    let two = bytes.get(at..).and_then(|tail| tail.first_chunk::<2>()).copied().unwrap_or_default();
    if big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) }
}

/// Nanoseconds since 1970 by the capturing clock.
pub(crate) fn checked_time(time_ns: i128) -> Result<i64, CaptureFault> {
    i64::try_from(time_ns).ok().filter(|&time| time >= 0).ok_or(CaptureFault::Time(time_ns))
}
