//! The pcapng format: sections, interfaces and packets as blocks.

use std::io::Read;

use crate::error::{CaptureError, CaptureFault};
use crate::input::Input;
use crate::record::{Direction, FileEnd, Frame, LinkType, checked_time, read_u16, read_u32};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Bytes of a block around its body.
const FRAME: usize = 12;
/// Longest block accepted; packets of dumpcap have at most 256 KiB.
const MAX_BLOCK: usize = 16 << 20;
const MAX_INTERFACES: usize = 4096;

const OPTION_END: u16 = 0;
const OPTION_FLAGS: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_OFFSET: u16 = 14;

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: Option<LinkType>,
    /// Ticks per second.
    per_second: u64,
    offset_s: i64,
}

impl Interface {
    fn time_ns(&self, ticks: u64) -> Result<i64, CaptureFault> {
        let ns = i128::from(ticks) * 1_000_000_000 / i128::from(self.per_second);
        checked_time(ns + i128::from(self.offset_s) * 1_000_000_000)
    }
}

/// State of a section so far.
#[derive(Debug, Default)]
struct Section {
    big: bool,
    interfaces: Vec<Interface>,
}

pub(crate) fn frames<R: Read>(
    input: &mut Input<R>,
    each: &mut dyn FnMut(Frame<'_>) -> Result<(), CaptureFault>,
) -> Result<FileEnd, CaptureError> {
    let mut section = Section::default();
    loop {
        let offset = input.offset();
        let start = input.peek(FRAME).map_err(|error| CaptureFault::Io(error).at(offset))?;
        if start.is_empty() {
            return Ok(FileEnd::Whole);
        }
        if start.len() < FRAME {
            return Ok(FileEnd::Cut(offset));
        }
        // The type of a section is the same in both byte orders.
        if read_u32(start, 0, false) == SECTION {
            section =
                Section { big: big_endian(start).map_err(|f| f.at(offset))?, ..Section::default() };
        }
        let big = section.big;
        let (kind, stated) = (read_u32(start, 0, big), read_u32(start, 4, big));
        let block_bytes = stated as usize;
        if !(FRAME..=MAX_BLOCK).contains(&block_bytes) || !block_bytes.is_multiple_of(4) {
            let (length, least, most) = (u64::from(stated), FRAME as u64, MAX_BLOCK as u64);
            return Err(CaptureFault::Length { what: "block", length, least, most }.at(offset));
        }
        let block = input.peek(block_bytes).map_err(|error| CaptureFault::Io(error).at(offset))?;
        if block.len() < block_bytes {
            return Ok(FileEnd::Cut(offset));
        }
        let trailer = read_u32(block, block_bytes - 4, big);
        if trailer != stated {
            return Err(CaptureFault::Trailer(stated, trailer).at(offset));
        }
        let body = &block[8..block_bytes - 4];
        match kind {
            SECTION => version(body, big),
            INTERFACE => section.describe(body),
            ENHANCED_PACKET | OLD_PACKET => section.packet(offset, body, kind == OLD_PACKET, each),
            SIMPLE_PACKET => section.simple(offset, body, each),
            _ => Ok(()),
        }
        .map_err(|fault| fault.at(offset))?;
        input.skip(block_bytes);
    }
}

fn big_endian(start: &[u8]) -> Result<bool, CaptureFault> {
    match (read_u32(start, 8, false), read_u32(start, 8, true)) {
        (BYTE_ORDER, _) => Ok(false),
        (_, BYTE_ORDER) => Ok(true),
        (magic, _) => Err(CaptureFault::ByteOrder(magic)),
    }
}

fn version(body: &[u8], big: bool) -> Result<(), CaptureFault> {
    let (major, minor) = (read_u16(body, 4, big), read_u16(body, 6, big));
    if major == 1 { Ok(()) } else { Err(CaptureFault::Version(major, minor)) }
}

fn too_short(length: usize, least: usize) -> CaptureFault {
    let (length, least) = (length as u64, least as u64);
    CaptureFault::Length { what: "block's body", length, least, most: MAX_BLOCK as u64 }
}

impl Section {
    fn describe(&mut self, body: &[u8]) -> Result<(), CaptureFault> {
        if body.len() < 8 {
            return Err(too_short(body.len(), 8));
        }
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(CaptureFault::Interfaces(MAX_INTERFACES));
        }
        let link = LinkType::of(u32::from(read_u16(body, 0, self.big)));
        let mut interface = Interface { link, per_second: 1_000_000, offset_s: 0 };
        for (code, value) in options(&body[8..], self.big) {
            match (code, value) {
                (OPTION_RESOLUTION, &[resolution, ..]) => {
                    interface.per_second =
                        ticks(resolution).ok_or(CaptureFault::Resolution(resolution))?;
                }
                (OPTION_OFFSET, value) if value.len() == 8 => {
                    let [first, second] = [0, 4].map(|at| u64::from(read_u32(value, at, self.big)));
                    let (high, low) = if self.big { (first, second) } else { (second, first) };
                    interface.offset_s = (high << 32 | low).cast_signed();
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(())
    }

    fn packet(
        &self,
        offset: u64,
        body: &[u8],
        old: bool,
        each: &mut dyn FnMut(Frame<'_>) -> Result<(), CaptureFault>,
    ) -> Result<(), CaptureFault> {
        if body.len() < 20 {
            return Err(too_short(body.len(), 20));
        }
        let number =
            if old { u32::from(read_u16(body, 0, self.big)) } else { read_u32(body, 0, self.big) };
        let interfaces = self.interfaces.len();
        let interface = self
            .interfaces
            .get(number as usize)
            .ok_or(CaptureFault::Interface(number, interfaces))?;
        let [high, low, held, wire] = [4, 8, 12, 16].map(|at| read_u32(body, at, self.big));
        let bytes = body.get(20..20 + held as usize).ok_or(CaptureFault::Length {
            what: "packet",
            length: u64::from(held),
            least: 0,
            most: body.len() as u64 - 20,
        })?;
        let option_bytes = &body[(20 + bytes.len().next_multiple_of(4)).min(body.len())..];
        let flags = options(option_bytes, self.big).find(|(code, _)| *code == OPTION_FLAGS);
        let direction = match flags.map_or(0, |(_, value)| read_u32(value, 0, self.big)) & 3 {
            1 => Direction::Inbound,
            2 => Direction::Outbound,
            _ => Direction::Unknown,
        };
        let time_ns = interface.time_ns(u64::from(high) << 32 | u64::from(low))?;
        each(Frame {
            offset,
            time_ns: Some(time_ns),
            link: interface.link,
            bytes,
            wire_bytes: wire as usize,
            direction,
        })
    }

    /// A packet without a time.
    fn simple(
        &self,
        offset: u64,
        body: &[u8],
        each: &mut dyn FnMut(Frame<'_>) -> Result<(), CaptureFault>,
    ) -> Result<(), CaptureFault> {
        let interface = self.interfaces.first().ok_or(CaptureFault::Interface(0, 0))?;
        let (wire_bytes, bytes) =
            (read_u32(body, 0, self.big) as usize, body.get(4..).unwrap_or(&[]));
        let direction = Direction::Unknown;
        each(Frame { offset, time_ns: None, link: interface.link, bytes, wire_bytes, direction })
    }
}

/// Ticks per second as `if_tsresol` states them; `None` if they exceed 64 bits.
fn ticks(resolution: u8) -> Option<u64> {
    let exponent = u32::from(resolution & 0x7f);
    if resolution & 0x80 == 0 { 10_u64.checked_pow(exponent) } else { 1_u64.checked_shl(exponent) }
}

/// Options of a block up to the end mark or the first malformed one.
fn options(mut bytes: &[u8], big: bool) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (code, length) = (read_u16(bytes, 0, big), usize::from(read_u16(bytes, 2, big)));
        let value = bytes.get(4..4 + length)?;
        bytes = bytes.get((4 + length).next_multiple_of(4)..).unwrap_or(&[]);
        (code != OPTION_END).then_some((code, value))
    })
}
