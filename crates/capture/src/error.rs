//! Errors of captures: the fault, the byte where it occurs, and the remedy.

use std::io;

/// A capture that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{fault}")]
pub struct CaptureError {
    /// Byte offset of the record, block or header at fault.
    pub offset: u64,
    /// What is wrong there.
    #[source]
    pub fault: CaptureFault,
}

/// What is wrong with a capture.
#[derive(Debug, thiserror::Error)]
pub enum CaptureFault {
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// None of the supported formats.
    #[error("begins with {0:02x?}, which is neither pcap, pcapng nor ERF")]
    Unknown(Vec<u8>),
    /// A compressed file.
    #[error("is compressed")]
    Compressed,
    /// Kuznetzov's modified pcap, whose records have another header.
    #[error("is a modified pcap file (magic number 0xa1b2cd34)")]
    ModifiedPcap,
    /// Not version 2.4, or not 1.x of pcapng.
    #[error("is version {0}.{1}, which this reader does not know")]
    Version(u16, u16),
    /// A link type without InfiniBand or RoCEv2 packets.
    #[error("has link type {0}, which is not supported")]
    LinkType(u32),
    /// A record or block of an impossible length.
    #[error("a {what} states a length of {length} bytes; {least} to {most} are possible")]
    Length {
        /// Record or block.
        what: &'static str,
        /// As stated.
        length: u64,
        /// Shortest possible.
        least: u64,
        /// Longest accepted.
        most: u64,
    },
    /// The two lengths of a pcapng block differ.
    #[error("a block begins with length {0} and ends with length {1}")]
    Trailer(u32, u32),
    /// Not the byte-order magic of a pcapng section.
    #[error("a section has byte-order magic {0:#010x}; expected 0x1a2b3c4d in either byte order")]
    ByteOrder(u32),
    /// A packet of an interface that no block describes.
    #[error("a packet belongs to interface {0}, but only {1} are described before it")]
    Interface(u32, usize),
    /// More interfaces than are accepted.
    #[error("describes more than {0} interfaces")]
    Interfaces(usize),
    /// A time resolution too fine for 64 bits.
    #[error("an interface has time resolution {0:#04x}, which is finer than 64 bits can count")]
    Resolution(u8),
    /// A fraction of a second that is a second or more.
    #[error("the time of a packet has a fraction of {value} {unit}, a second or more")]
    Fraction {
        /// As stated.
        value: u32,
        /// Microseconds or nanoseconds.
        unit: &'static str,
    },
    /// A time before 1970 or after 2262.
    #[error("the time of a packet is {0} ns since 1970; valid: 1970 to 2262")]
    Time(i128),
    /// A packet too long after or before the first one.
    #[error(
        "a packet is {seconds} s away from the first one of the file; at most {most} s are accepted"
    )]
    Span {
        /// Distance in seconds.
        seconds: u64,
        /// Largest distance.
        most: u64,
    },
    /// More different addresses than are accepted.
    #[error("the packets have more than {0} different addresses")]
    Addresses(usize),
    /// More files than can be read together.
    #[error("is one file too many: at most {0} can be read together")]
    Files(usize),
}

impl CaptureFault {
    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Io(_) => "check the path and its permissions",
            Self::Unknown(_) => {
                "give a capture that tcpdump, dumpcap, ibdump or a capture card wrote"
            }
            Self::Compressed => "decompress it first: gunzip, unzstd, unxz or bunzip2",
            Self::ModifiedPcap | Self::Version(..) => {
                "convert it: editcap -F pcapng IN OUT (part of Wireshark)"
            }
            Self::LinkType(_) => {
                "capture with link type Ethernet (1), Linux cooked (113, 276), raw IP (101), ERF (197) \
                 or InfiniBand (247)"
            }
            Self::Length { .. }
            | Self::Trailer(..)
            | Self::ByteOrder(_)
            | Self::Fraction { .. } => {
                "the file is damaged at this byte: copy it again, or keep only the packets before it with editcap -r"
            }
            Self::Interface(..) | Self::Interfaces(_) | Self::Resolution(_) => {
                "the file is damaged or was written incorrectly: convert it with editcap -F pcapng IN OUT"
            }
            Self::Time(_) | Self::Span { .. } => {
                "correct the jump of the clock (editcap -t), or keep one period (editcap -A, -B)"
            }
            Self::Addresses(_) => {
                "the file is damaged, or not a capture of a single network: split it by network"
            }
            Self::Files(_) => "merge files first: mergecap",
        }
    }

    /// This fault at a byte of the file.
    pub(crate) fn at(self, offset: u64) -> CaptureError {
        CaptureError { offset, fault: self }
    }
}
