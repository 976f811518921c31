//! Packets of one or several captures as columns, with bounded memory.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::Read;
use std::path::Path;

use tailback_random::splitmix;

use crate::dissect::{Address, Headers, Skip, dissect};
use crate::error::{CaptureError, CaptureFault};
use crate::input::Input;
use crate::record::{Direction, FileEnd, Frame};
use crate::{erf, pcap, pcapng};

/// Maximum number of different addresses: more than a subnet has local ids, or any machine hosts.
const MAX_ADDRESSES: usize = 1 << 20;
/// Maximum time between a packet and the first of its file.
const MAX_SECONDS: u64 = 86_400;
/// Maximum number of connections of TCP whose start is kept.
const MAX_CONNECTIONS: usize = 1 << 20;
const NS_PER_S: u64 = 1_000_000_000;

/// Frames that were left out for one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many.
    pub frames: u64,
    /// Offset in the file of the first.
    pub first_offset: u64,
}

/// How the frames of a file were handled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileSummary {
    /// Frames in it.
    pub frames: u64,
    /// Packets with a transport header.
    pub packets: u64,
    /// Frames that were left out, by [`Skip`].
    pub skipped: [Skipped; Skip::COUNT],
    /// Offset of the incomplete record at the end of the file; `None` if the file is complete.
    pub cut_at: Option<u64>,
    /// Time of its first packet and of its last one.
    pub times_ns: Option<(i64, i64)>,
}

/// The packets that were kept, a row for each.
#[derive(Debug, Clone, Default)]
pub struct PacketColumns {
    /// Nanoseconds since 1970.
    pub time_ns: Vec<i64>,
    /// Number of the sender's address.
    pub source: Vec<u32>,
    /// Number of the receiver's address.
    pub destination: Vec<u32>,
    /// Packet sequence number; the largest value for TCP, which has none.
    pub psn: Vec<u32>,
    /// Queue pair that goes into the packet id.
    pub queue_pair: Vec<u32>,
    /// Packet id.
    pub id: Vec<u32>,
    /// Payload.
    pub size_bytes: Vec<u32>,
    /// The six reserved bits.
    pub sample: Vec<u8>,
    /// Source port of UDP or TCP; 0 in InfiniBand.
    pub entropy: Vec<u16>,
    /// Destination port; 0 in InfiniBand.
    pub port: Vec<u16>,
    /// Protocol above IP; 0 in InfiniBand.
    pub protocol: Vec<u8>,
    /// Number of the packet's first byte in its connection of TCP, from 0 after the SYN; -1 if the
    /// file has no SYN of it, and of other packets.
    pub stream_byte: Vec<i64>,
    /// Explicit congestion notification, 0 to 3; 3 is congestion experienced.
    pub ecn: Vec<u8>,
    /// The 16 bits of a compact CSIG tag, and bit 16 set; 0 without one.
    pub csig: Vec<u32>,
    /// [`Direction`].
    pub direction: Vec<u8>,
    /// Which file, in the order they were read.
    pub file: Vec<u16>,
}

/// A fast hash of short addresses. Collisions are harmless, since the number of addresses is bounded.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        splitmix(self.0)
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut read_u32 = [0; 8];
            read_u32[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(read_u32));
        }
    }
    fn write_u64(&mut self, read_u32: u64) {
        self.0 = self.0.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ read_u32;
    }
    fn write_u16(&mut self, read_u32: u16) {
        self.write_u64(read_u32.into());
    }
    fn write_usize(&mut self, read_u32: usize) {
        self.write_u64(read_u32 as u64);
    }
    fn write_isize(&mut self, read_u32: isize) {
        self.write_u64(read_u32 as u64);
    }
}

/// A direction of a connection: numbers of the addresses, and ports.
type StreamKey = (u32, u32, u16, u16);

/// Where a direction of a connection of TCP is.
#[derive(Debug, Clone, Copy)]
struct StreamPosition {
    /// Sequence number of byte 0.
    first: u32,
    /// The last byte so far that a packet began with.
    last: i64,
}

impl StreamPosition {
    /// Number of the byte with this sequence number, which is within 2 GiB of the last one.
    fn byte(&mut self, sequence: u32) -> i64 {
        let last = self.first.wrapping_add(self.last as u32);
        let byte = self.last + i64::from(sequence.wrapping_sub(last).cast_signed());
        self.last = self.last.max(byte);
        byte.max(-1)
    }
}

/// Reads captures and keeps a limited number of packets: if there are more, one in 2^k by a hash.
#[derive(Debug)]
pub struct CaptureLog {
    most: usize,
    tcp: bool,
    /// Of the file that is read.
    connections: HashMap<StreamKey, StreamPosition>,
    /// One packet in 2^`shift` is kept.
    shift: u32,
    numbers: HashMap<Address, u32, BuildHasherDefault<AddressHasher>>,
    addresses: Vec<Address>,
    files: usize,
    columns: PacketColumns,
}

impl CaptureLog {
    /// Keeps at most `most` packets, at least one; those of TCP only if `tcp`.
    pub fn new(most: usize, tcp: bool) -> Self {
        Self {
            most: most.max(1),
            tcp,
            connections: HashMap::new(),
            shift: 0,
            numbers: HashMap::default(),
            addresses: Vec::new(),
            files: 0,
            columns: PacketColumns::default(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or is damaged.
    pub fn read(&mut self, path: &Path) -> Result<FileSummary, CaptureError> {
        let file = File::open(path).map_err(|error| CaptureFault::Io(error).at(0))?;
        self.read_from(file)
    }

    /// Reads from any reader.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_from(&mut self, from: impl Read) -> Result<FileSummary, CaptureError> {
        let number = u16::try_from(self.files).map_err(|_| CaptureFault::Files(1 << 16).at(0))?;
        self.files += 1;
        self.connections.clear();
        let mut summary = FileSummary::default();
        let end = frames(from, &mut |frame| self.take(number, frame, &mut summary))?;
        if let FileEnd::Cut(offset) = end {
            summary.cut_at = Some(offset);
        }
        Ok(summary)
    }

    /// Number of captured packets per packet kept.
    pub fn one_in(&self) -> u64 {
        1 << self.shift
    }

    /// The packets that were kept, and the addresses by number.
    pub fn into_columns(self) -> (PacketColumns, Vec<Address>) {
        (self.columns, self.addresses)
    }

    fn take(
        &mut self,
        file: u16,
        frame: Frame<'_>,
        summary: &mut FileSummary,
    ) -> Result<(), CaptureFault> {
        summary.frames += 1;
        let dissected = match (frame.link, frame.time_ns) {
            (None, _) => Err(Skip::LinkType),
            (_, None) => Err(Skip::NoTime),
            (Some(link), Some(time)) => dissect(link, frame.bytes, frame.wire_bytes, self.tcp)
                .map(|headers| (headers, time)),
        };
        match dissected {
            Ok((headers, time_ns)) => {
                summary.packets += 1;
                let (first, last) = summary.times_ns.unwrap_or((time_ns, time_ns));
                let apart = time_ns.abs_diff(first);
                if apart > MAX_SECONDS * NS_PER_S {
                    return Err(CaptureFault::Span {
                        seconds: apart / NS_PER_S,
                        most: MAX_SECONDS,
                    });
                }
                summary.times_ns = Some((first, last.max(time_ns)));
                self.keep(file, &headers, time_ns, frame.direction)
            }
            Err(skip) => {
                let skipped = &mut summary.skipped[skip as usize];
                if skipped.frames == 0 {
                    skipped.first_offset = frame.offset;
                }
                skipped.frames += 1;
                Ok(())
            }
        }
    }

    #[inline]
    fn keep(
        &mut self,
        file: u16,
        headers: &Headers,
        time_ns: i64,
        direction: Direction,
    ) -> Result<(), CaptureFault> {
        let id = headers.packet_id();
        // Each packet says where its connection is, kept or not.
        let stream_byte = if headers.is_tcp() { self.stream_byte(headers)? } else { -1 };
        let psn = if headers.is_tcp() { u32::MAX } else { headers.psn };
        if !keeps(id, psn, time_ns, self.shift) {
            return Ok(());
        }
        let (source, destination) =
            (self.number(headers.source)?, self.number(headers.destination)?);
        let columns = &mut self.columns;
        columns.time_ns.push(time_ns);
        columns.source.push(source);
        columns.destination.push(destination);
        columns.psn.push(psn);
        columns.queue_pair.push(headers.queue_pair);
        columns.id.push(id);
        columns.size_bytes.push(headers.payload_bytes);
        columns.sample.push(headers.sample);
        columns.entropy.push(headers.entropy);
        columns.port.push(headers.port);
        columns.protocol.push(headers.protocol);
        columns.stream_byte.push(stream_byte);
        columns.ecn.push(headers.ecn);
        columns.csig.push(headers.csig);
        columns.direction.push(direction as u8);
        columns.file.push(file);
        while self.columns.time_ns.len() > self.most && self.shift < 63 {
            self.halve();
        }
        Ok(())
    }

    /// Number of a packet's first byte in its connection, -1 if the SYN was not captured.
    fn stream_byte(&mut self, headers: &Headers) -> Result<i64, CaptureFault> {
        let ends = (self.number(headers.source)?, self.number(headers.destination)?);
        let key = (ends.0, ends.1, headers.entropy, headers.port);
        if !headers.syn {
            return Ok(self
                .connections
                .get_mut(&key)
                .map_or(-1, |connection| connection.byte(headers.psn)));
        }
        if self.connections.len() < MAX_CONNECTIONS || self.connections.contains_key(&key) {
            let first = headers.psn.wrapping_add(1);
            self.connections.insert(key, StreamPosition { first, last: 0 });
        }
        // Its own number is that of no byte.
        Ok(-1)
    }

    #[inline]
    fn number(&mut self, address: Address) -> Result<u32, CaptureFault> {
        if let Some(&number) = self.numbers.get(&address) {
            return Ok(number);
        }
        if self.addresses.len() >= MAX_ADDRESSES {
            return Err(CaptureFault::Addresses(MAX_ADDRESSES));
        }
        let number = self.addresses.len() as u32;
        self.addresses.push(address);
        self.numbers.insert(address, number);
        Ok(number)
    }

    /// Halves the share of packets that are kept, and applies it to those kept so far.
    #[cold]
    fn halve(&mut self) {
        self.shift += 1;
        let c = &mut self.columns;
        let stays: Vec<bool> = (0..c.id.len())
            .map(|row| keeps(c.id[row], c.psn[row], c.time_ns[row], self.shift))
            .collect();
        retain(&mut c.time_ns, &stays);
        retain(&mut c.sample, &stays);
        retain(&mut c.entropy, &stays);
        retain(&mut c.port, &stays);
        retain(&mut c.protocol, &stays);
        retain(&mut c.stream_byte, &stays);
        retain(&mut c.ecn, &stays);
        retain(&mut c.direction, &stays);
        retain(&mut c.file, &stays);
        for column in [
            &mut c.source,
            &mut c.destination,
            &mut c.psn,
            &mut c.queue_pair,
            &mut c.id,
            &mut c.size_bytes,
            &mut c.csig,
        ] {
            retain(column, &stays);
        }
    }
}

fn retain<T: Copy>(column: &mut Vec<T>, stays: &[bool]) {
    let mut row = 0;
    column.retain(|_| {
        row += 1;
        stays[row - 1]
    });
}

/// Whether a packet is in the sample of one in 2^`shift`; samples of larger shifts are subsets of those
/// of smaller. Hashing the time makes retransmissions independent; the link hash plays no role.
#[inline]
fn keeps(id: u32, psn: u32, time_ns: i64, shift: u32) -> bool {
    if shift == 0 {
        return true;
    }
    let key = u64::from(id) << 24 ^ u64::from(psn) ^ splitmix(time_ns.cast_unsigned());
    splitmix(key) & ((1 << shift) - 1) == 0
}

/// Calls `each` for every frame of a file.
///
/// # Errors
/// The file has none of the formats or is damaged, or `each` fails.
fn frames<R: Read>(
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
    let magics: [&[u8]; 4] =
        [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], &[0xfd, b'7', b'z'], b"BZh"];
    magics.iter().any(|start| magic.starts_with(start)).then_some(CaptureFault::Compressed)
}
