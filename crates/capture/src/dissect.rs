//! Dissects a frame from its first byte to the base transport header (BTH) with its telemetry bits, or
//! to the header of TCP.
//!
//! Both networks have the same BTH. Its byte 4 is FECN, BECN and six reserved bits: the sample. The
//! invariant CRC covers that byte as ones, in InfiniBand (volume 1, section 7.8.1) as in RoCEv2 (annex
//! A17.3.3), so a switch may rewrite it.

use tailback_telemetry::packet_id::{FlowKey, packet_id};

use crate::erf;
use crate::record::{LinkType, read_u16, read_u32};

const UDP_PORT_ROCE: u16 = 4791;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Ethernet type of CSIG's compact tag that switch software uses (FBOSS and SAI); none is assigned yet.
const CSIG: u16 = 0x9900;
/// In [`Headers::csig`]: the frame has a tag.
const TAGGED: u32 = 1 << 16;
const LRH: usize = 8;
const GRH: usize = 40;
const BTH: usize = 12;
const DETH: usize = 8;
const ICRC: usize = 4;
const UDP: usize = 8;
/// Without options.
const TCP: usize = 20;
const TCP_PROTOCOL: u8 = 6;
const UDP_PROTOCOL: u8 = 17;
/// Flag of TCP that begins a connection.
const SYN: u8 = 2;
/// Congestion experienced (RFC 3168), the largest value of the field.
pub const ECN: u8 = 3;
/// Bit of byte 4 of the BTH that is FECN.
const FECN: u8 = 0x80;
/// Largest number of VLAN tags, and of IPv6 extension headers.
const MAX_TAGS: usize = 4;

/// Where a packet comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// Local id of an InfiniBand port.
    Lid(u16),
    /// IPv4.
    V4([u8; 4]),
    /// IPv6.
    V6([u8; 16]),
}

impl Address {
    /// The 24 bits that enter packet ids: the local id, or the last three bytes.
    #[inline]
    pub(crate) fn id_bits(self) -> u32 {
        match self {
            Self::Lid(lid) => lid.into(),
            Self::V4([_, b, c, d]) => u32::from_be_bytes([0, b, c, d]),
            Self::V6([.., b, c, d]) => u32::from_be_bytes([0, b, c, d]),
        }
    }
}

/// Why a frame holds no sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Skip {
    /// Neither InfiniBand nor UDP to port 4791, nor TCP if that is read.
    Other,
    /// InfiniBand without a transport header (raw packets, link packets).
    NoTransport,
    /// A fragment of an IP packet.
    Fragment,
    /// The capture kept too few bytes of it (snapshot length).
    Truncated,
    /// Its headers contradict each other.
    Malformed,
    /// The link type of its interface is not one of [`LinkType`].
    LinkType,
    /// The format has no time for it.
    NoTime,
}

impl Skip {
    /// Number of reasons.
    pub(crate) const COUNT: usize = 7;
}

/// The fields of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// Sender.
    pub source: Address,
    /// Receiver.
    pub destination: Address,
    /// Packet sequence number; of TCP that of the first byte, or of the SYN.
    pub psn: u32,
    /// Queue pair: the receiver's, or the sender's for datagrams.
    pub queue_pair: u32,
    /// The six reserved bits.
    pub sample: u8,
    /// What lets switches choose a path: the source port of UDP or TCP; 0 in InfiniBand.
    pub entropy: u16,
    /// Destination port; 0 in InfiniBand.
    pub port: u16,
    /// Protocol above IP; 0 in InfiniBand.
    pub protocol: u8,
    /// Whether it begins a connection of TCP.
    pub syn: bool,
    /// Explicit congestion notification: [`ECN`] of IP, 3 or 1 with or without FECN in InfiniBand.
    pub ecn: u8,
    /// The 16 bits of a compact CSIG tag, and bit 16 set; 0 without one.
    pub csig: u32,
    /// Payload, padding not included.
    pub payload_bytes: u32,
}

impl Headers {
    /// The packet's id ([`tailback_telemetry::packet_id`]).
    #[inline]
    pub fn packet_id(&self) -> u32 {
        // Only a number for packets of TCP, which have no queue pair, and longer sequence numbers.
        let psn = self.psn & 0xff_ffff;
        let (source, destination) = (self.source.id_bits(), self.destination.id_bits());
        packet_id(psn, FlowKey { source, destination, queue_pair: self.queue_pair })
    }

    /// Whether it is one of TCP.
    #[inline]
    pub fn is_tcp(&self) -> bool {
        self.protocol == TCP_PROTOCOL
    }
}

/// Captured bytes of a frame, its length on the wire, and whether packets of TCP are read.
#[derive(Debug, Clone, Copy)]
struct Remaining<'a> {
    bytes: &'a [u8],
    wire: usize,
    tcp: bool,
}

impl<'a> Remaining<'a> {
    /// The first `n` bytes. If there are fewer, the capture truncated the packet, or the packet is
    /// malformed.
    #[inline]
    fn first(self, n: usize) -> Result<&'a [u8], Skip> {
        let short = if self.wire >= n { Skip::Truncated } else { Skip::Malformed };
        self.bytes.get(..n).ok_or(short)
    }

    /// Whether this protocol above IP is read.
    #[inline]
    fn reads(self, protocol: u8) -> bool {
        protocol == UDP_PROTOCOL || (self.tcp && protocol == TCP_PROTOCOL)
    }

    /// The bytes after the first `n`.
    #[inline]
    fn after(self, n: usize) -> Result<Self, Skip> {
        self.first(n)?;
        Ok(Self { bytes: &self.bytes[n..], wire: self.wire.saturating_sub(n), ..self })
    }
}

/// Finds the transport header of a frame.
///
/// # Errors
/// Why there is none.
#[inline]
pub(crate) fn dissect(
    link: LinkType,
    bytes: &[u8],
    wire_bytes: usize,
    tcp: bool,
) -> Result<Headers, Skip> {
    let frame = Remaining { bytes, wire: wire_bytes.max(bytes.len()), tcp };
    match link {
        LinkType::Ethernet => ethernet(frame),
        LinkType::LinuxCooked => {
            let header = frame.first(16)?;
            network(read_u16(header, 14, true), frame.after(16)?)
        }
        LinkType::LinuxCooked2 => {
            let header = frame.first(20)?;
            network(read_u16(header, 0, true), frame.after(20)?)
        }
        LinkType::RawIp => match frame.first(1)?[0] >> 4 {
            4 => ipv4(frame),
            6 => ipv6(frame),
            _ => Err(Skip::Other),
        },
        LinkType::Erf => erf_record(frame),
        LinkType::InfiniBand => infiniband(frame),
    }
}

fn ethernet(frame: Remaining<'_>) -> Result<Headers, Skip> {
    let (mut at, mut csig, mut foreign) = (12, 0, false);
    for _ in 0..=MAX_TAGS {
        let kind = read_u16(frame.first(at + 2)?, at, true);
        match kind {
            0x8100 | 0x88a8 | 0x9100 => {}
            CSIG => csig = TAGGED | u32::from(read_u16(frame.first(at + 4)?, at + 2, true)),
            IPV4 | IPV6 => {
                return network(kind, frame.after(at + 2)?)
                    .map(|headers| Headers { csig, ..headers })
                    .map_err(|skip| if foreign { Skip::Other } else { skip });
            }
            // A tag of another type, if a packet follows: what it says is unknown. ARP looks alike.
            _ => {
                let next = frame.first(at + 6).map_or(0, |bytes| read_u16(bytes, at + 4, true));
                if !matches!(next, IPV4 | IPV6 | 0x8100 | 0x88a8 | 0x9100 | CSIG) {
                    return Err(Skip::Other);
                }
                foreign = true;
            }
        }
        at += 4;
    }
    Err(Skip::Malformed)
}

fn network(kind: u16, payload: Remaining<'_>) -> Result<Headers, Skip> {
    match kind {
        IPV4 => ipv4(payload),
        IPV6 => ipv6(payload),
        _ => Err(Skip::Other),
    }
}

fn ipv4(packet: Remaining<'_>) -> Result<Headers, Skip> {
    let header = packet.first(20)?;
    let length = usize::from(header[0] & 15) * 4;
    let total = usize::from(read_u16(header, 2, true));
    if header[0] >> 4 != 4 || length < 20 || total < length || total > packet.wire {
        return Err(Skip::Malformed);
    }
    let protocol = header[9];
    if !packet.reads(protocol) {
        return Err(Skip::Other);
    }
    // More fragments, or an offset.
    if read_u16(header, 6, true) & 0x3fff != 0 {
        return Err(Skip::Fragment);
    }
    let ends = [12, 16].map(|at| Address::V4(take(header, at)));
    transported(ends, protocol, header[1] & ECN, packet.after(length)?, total - length)
}

fn ipv6(packet: Remaining<'_>) -> Result<Headers, Skip> {
    let header = packet.first(40)?;
    let mut left = usize::from(read_u16(header, 4, true));
    if header[0] >> 4 != 6 || left + 40 > packet.wire {
        return Err(Skip::Malformed);
    }
    let ends = [8, 24].map(|at| Address::V6(take(header, at)));
    let ecn = header[1] >> 4 & ECN;
    let (mut next, mut packet) = (header[6], packet.after(40)?);
    for _ in 0..=MAX_TAGS {
        match next {
            protocol if packet.reads(protocol) => {
                return transported(ends, protocol, ecn, packet, left);
            }
            44 => return Err(Skip::Fragment),
            // Hop by hop, routing, destination options.
            0 | 43 | 60 => {
                let extension = packet.first(2)?;
                let length = 8 + 8 * usize::from(extension[1]);
                next = extension[0];
                left = left.checked_sub(length).ok_or(Skip::Malformed)?;
                packet = packet.after(length)?;
            }
            _ => return Err(Skip::Other),
        }
    }
    Err(Skip::Malformed)
}

/// UDP or TCP in the `available` bytes of an IP packet.
#[inline]
fn transported(
    ends: [Address; 2],
    protocol: u8,
    ecn: u8,
    packet: Remaining<'_>,
    available: usize,
) -> Result<Headers, Skip> {
    if protocol == UDP_PROTOCOL {
        return udp(ends, ecn, packet, available);
    }
    tcp(ends, ecn, packet, available)
}

fn tcp(
    [source, destination]: [Address; 2],
    ecn: u8,
    segment: Remaining<'_>,
    available: usize,
) -> Result<Headers, Skip> {
    let header = segment.first(TCP)?;
    let length = usize::from(header[12] >> 4) * 4;
    if length < TCP || length > available {
        return Err(Skip::Malformed);
    }
    Ok(Headers {
        source,
        destination,
        psn: read_u32(header, 4, true),
        queue_pair: 0,
        sample: 0,
        entropy: read_u16(header, 0, true),
        port: read_u16(header, 2, true),
        protocol: TCP_PROTOCOL,
        syn: header[13] & SYN != 0,
        ecn,
        csig: 0,
        payload_bytes: (available - length) as u32,
    })
}

/// UDP in the `available` bytes of an IP packet.
#[inline]
fn udp(
    ends: [Address; 2],
    ecn: u8,
    datagram: Remaining<'_>,
    available: usize,
) -> Result<Headers, Skip> {
    let header = datagram.first(UDP)?;
    if read_u16(header, 2, true) != UDP_PORT_ROCE {
        return Err(Skip::Other);
    }
    let length = usize::from(read_u16(header, 4, true));
    if length < UDP || length > available {
        return Err(Skip::Malformed);
    }
    let entropy = read_u16(header, 0, true);
    let headers = transport(ends, datagram.after(UDP)?, length - UDP)?;
    Ok(Headers { entropy, ecn, port: UDP_PORT_ROCE, protocol: UDP_PROTOCOL, ..headers })
}

fn erf_record(record: Remaining<'_>) -> Result<Headers, Skip> {
    let header = record.first(erf::HEADER)?;
    let (kind, wire) = (erf::kind(header), usize::from(read_u16(header, 14, true)));
    let bytes = erf::payload(record.bytes).ok_or(Skip::Malformed)?;
    let frame = Remaining { bytes: &bytes[..bytes.len().min(wire)], wire, ..record };
    match kind {
        21 => infiniband(frame),
        25 => Err(Skip::NoTransport),
        // Ethernet of several kinds of cards; two bytes of padding come first.
        2 | 11 | 16 | 20 => {
            let held = bytes.get(2..).ok_or(Skip::Malformed)?;
            ethernet(Remaining { bytes: &held[..held.len().min(wire)], wire, ..record })
        }
        22 => ipv4(frame),
        23 => ipv6(frame),
        _ => Err(Skip::Other),
    }
}

fn infiniband(frame: Remaining<'_>) -> Result<Headers, Skip> {
    let lrh = frame.first(LRH)?;
    let words = usize::from(read_u16(lrh, 4, true) & 0x7ff) * 4;
    // Link version 0; from the LRH to the invariant CRC, and the variant CRC behind it.
    if lrh[0] & 15 != 0 || words < LRH || words > frame.wire {
        return Err(Skip::Malformed);
    }
    let ends = [6, 2].map(|at| Address::Lid(read_u16(lrh, at, true)));
    match lrh[1] & 3 {
        2 => transport(ends, frame.after(LRH)?, words - LRH),
        3 => {
            let remaining = frame.after(LRH)?;
            let grh = remaining.first(GRH)?;
            if grh[0] >> 4 != 6 || words < LRH + GRH {
                return Err(Skip::Malformed);
            }
            // 0x1b: an InfiniBand transport header follows.
            if grh[6] != 0x1b {
                return Err(Skip::NoTransport);
            }
            transport(ends, remaining.after(GRH)?, words - LRH - GRH)
        }
        _ => Err(Skip::NoTransport),
    }
}

/// The transport header and `length` bytes from it to the end of the invariant CRC.
#[inline]
fn transport(
    [source, destination]: [Address; 2],
    remaining: Remaining<'_>,
    length: usize,
) -> Result<Headers, Skip> {
    let bth = remaining.first(BTH)?;
    let (opcode, pad) = (bth[0], usize::from(bth[1] >> 4 & 3));
    let extended = extended_bytes(opcode);
    // Transport version 0.
    if bth[1] & 15 != 0 || length < BTH + extended + ICRC + pad {
        return Err(Skip::Malformed);
    }
    let datagram = opcode >> 5 == 3;
    let pair = if datagram { remaining.first(BTH + DETH)?.get(BTH + 5..) } else { bth.get(5..) };
    let number = |bytes: &[u8]| match *bytes {
        [a, b, c, ..] => u32::from_be_bytes([0, a, b, c]),
        _ => 0,
    };
    Ok(Headers {
        source,
        destination,
        psn: number(&bth[9..]),
        queue_pair: pair.map_or(0, number),
        sample: bth[4] & 0x3f,
        entropy: 0,
        port: 0,
        protocol: 0,
        syn: false,
        ecn: if bth[4] & FECN == 0 { 1 } else { ECN },
        csig: 0,
        payload_bytes: (length - BTH - extended - ICRC - pad) as u32,
    })
}

/// Bytes of the headers between the BTH and the payload.
fn extended_bytes(opcode: u8) -> usize {
    let operation = match opcode & 0x1f {
        3 | 5 | 9 | 13 | 15 | 16 | 17 | 22 | 23 => 4,
        6 | 10 | 12 => 16,
        11 => 20,
        18 => 12,
        19 | 20 => 28,
        _ => 0,
    };
    match opcode >> 5 {
        0 | 1 => operation,
        2 => 12 + operation,
        3 => DETH + operation,
        // Responses of extended connections name no receive queue.
        5 => operation + if (13..=18).contains(&(opcode & 0x1f)) { 0 } else { 4 },
        _ => 0,
    }
}

#[inline]
fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|tail| tail.first_chunk::<N>()).copied().unwrap_or([0; N])
}
