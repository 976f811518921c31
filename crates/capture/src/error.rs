//! What makes a capture unreadable: the fault, the byte it is at, and what to do.

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
    /// The operating system refused.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// None of the formats.
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
    #[error("has link type {0}, in which no InfiniBand or RoCEv2 packets are known")]
    LinkType(u32),
    /// A record or block longer than any can be.
    #[error("a {what} states a length of {length} bytes; {least} to {most} are possible")]
    Length {
        /// Record or block.
        what: &'static str,
        /// As stated.
        length: u64,
        /// Shortest possible.
        least: u64,
        /// Longest that is accepted.
        most: u64,
    },
    /// The two lengths of a pcapng block differ.
    #[error("a block begins with length {0} and ends with length {1}")]
    Trailer(u32, u32),
    /// Not the byte-order magic of a pcapng section.
    #[error(
        "a section states byte order {0:#010x}; 0x1a2b3c4d is expected in one order or the other"
    )]
    ByteOrder(u32),
    /// A packet of an interface that no block describes.
    #[error("a packet is of interface {0}, and {1} are described before it")]
    Interface(u32, usize),
    /// More interfaces than any machine has.
    #[error("describes more than {0} interfaces")]
    Interfaces(usize),
    /// A clock that no machine has.
    #[error("an interface states time resolution {0:#04x}")]
    Resolution(u8),
    /// A part of a second that is a second or more.
    #[error("a packet has {value} {unit} beyond its second")]
    Fraction {
        /// As stated.
        value: u32,
        /// Microseconds or nanoseconds.
        unit: &'static str,
    },
    /// A time before 1970 or after 2262.
    #[error("a packet is at {0} ns since 1970, which is not a plausible time")]
    Time(i128),
    /// Further from the first packet than a capture can span.
    #[error("a packet is {seconds} s away from the first one of the file; {most} s is the most")]
    Span {
        /// Distance in seconds.
        seconds: u64,
        /// Largest distance.
        most: u64,
    },
    /// More different addresses than a network has.
    #[error("packets name more than {0} different addresses")]
    Addresses(usize),
    /// More files than one reading takes.
    #[error("is one file too many: {0} can be read together")]
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
                "the file is damaged here: copy it again, or cut it before this place with editcap -r"
            }
            Self::Interface(..) | Self::Interfaces(_) | Self::Resolution(_) => {
                "the file is damaged, or its writer is: convert it with editcap -F pcapng IN OUT"
            }
            Self::Time(_) | Self::Span { .. } => {
                "correct the clock's jump (editcap -t), or keep one stretch of time (editcap -A, -B)"
            }
            Self::Addresses(_) => "the file is damaged, or not a capture of one network",
            Self::Files(_) => "merge files first: mergecap",
        }
    }

    /// This fault at a byte of the file.
    pub(crate) fn at(self, offset: u64) -> CaptureError {
        CaptureError { offset, fault: self }
    }
}
