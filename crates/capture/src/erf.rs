//! ERF, the format of Endace's capture cards: records without a file header.

use std::io::{self, Read};

use crate::error::{CaptureError, CaptureFault};
use crate::input::Input;
use crate::record::{Direction, FileEnd, Frame, LinkType, checked_time, read_u16, read_u32};

/// Bytes of a record's header.
pub(crate) const HEADER: usize = 16;
/// Consecutive valid records that identify a file as ERF, which has no magic number.
const RECORDS_CHECKED: usize = 4;
const LARGEST_TYPE: u8 = 48;

/// Type of a record without the bit that announces extension headers.
#[inline]
pub(crate) fn kind(record: &[u8]) -> u8 {
    record.get(8).map_or(0, |kind| kind & 0x7f)
}

/// Payload of an ERF record, after its header and extension headers.
pub(crate) fn payload(record: &[u8]) -> Option<&[u8]> {
    let mut at = HEADER;
    let mut more = record.get(8)? & 0x80 != 0;
    while more {
        more = record.get(at)? & 0x80 != 0;
        at += 8;
    }
    record.get(at..)
}

#[inline]
fn length(record: &[u8]) -> usize {
    usize::from(read_u16(record, 10, true))
}

/// Whether the first records look like ERF: known types, and lengths that lead from one to the next.
///
/// # Errors
/// The reader's.
pub(crate) fn looks_like<R: Read>(input: &mut Input<R>) -> io::Result<bool> {
    let mut at = 0;
    for number in 0..RECORDS_CHECKED {
        let bytes = input.peek(at + HEADER)?;
        if bytes.len() == at && number > 0 {
            return Ok(true);
        }
        let Some(record) = bytes.get(at..at + HEADER) else { return Ok(number > 0) };
        let is_known_type = (1..=LARGEST_TYPE).contains(&kind(record));
        // Seconds are the upper half of the time: 0 in simulations, otherwise after 1998.
        let seconds = read_u32(record, 4, false);
        if !is_known_type || length(record) < HEADER || (1 << 24..=900_000_000).contains(&seconds) {
            return Ok(false);
        }
        at += length(record);
    }
    Ok(true)
}

pub(crate) fn frames<R: Read>(
    input: &mut Input<R>,
    each: &mut dyn FnMut(Frame<'_>) -> Result<(), CaptureFault>,
) -> Result<FileEnd, CaptureError> {
    loop {
        let offset = input.offset();
        let header = input.peek(HEADER).map_err(|error| CaptureFault::Io(error).at(offset))?;
        if header.is_empty() {
            return Ok(FileEnd::Whole);
        }
        if header.len() < HEADER {
            return Ok(FileEnd::Cut(offset));
        }
        let record_bytes = length(header);
        if record_bytes < HEADER || !(1..=LARGEST_TYPE).contains(&kind(header)) {
            let (least, most) = (HEADER as u64, u64::from(u16::MAX));
            return Err(CaptureFault::Length {
                what: "record",
                length: record_bytes as u64,
                least,
                most,
            }
            .at(offset));
        }
        let time_ns = checked_time(time(header)).map_err(|fault| fault.at(offset))?;
        let bytes = input.peek(record_bytes).map_err(|error| CaptureFault::Io(error).at(offset))?;
        if bytes.len() < record_bytes {
            return Ok(FileEnd::Cut(offset));
        }
        // 48 is padding between records.
        if kind(bytes) != LARGEST_TYPE {
            let wire_bytes = usize::from(read_u16(bytes, 14, true));
            let headers = bytes.len() - payload(bytes).map_or(0, <[u8]>::len);
            let frame = Frame {
                offset,
                time_ns: Some(time_ns),
                link: Some(LinkType::Erf),
                bytes,
                wire_bytes: headers + wire_bytes,
                direction: Direction::Unknown,
            };
            each(frame).map_err(|fault| fault.at(offset))?;
        }
        input.skip(record_bytes);
    }
}

/// Nanoseconds of a little-endian fixed-point time: seconds with 32 fractional bits.
fn time(header: &[u8]) -> i128 {
    let fixed = header.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (i128::from(fixed) * 1_000_000_000 + (1 << 31)) >> 32
}
