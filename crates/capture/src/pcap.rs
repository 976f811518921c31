//! The pcap format of libpcap, with microseconds or nanoseconds, in both byte orders.

use std::io::Read;

use crate::error::{CaptureError, CaptureFault};
use crate::input::Input;
use crate::record::{Direction, FileEnd, Frame, LinkType, MAX_FRAME, read_u16, read_u32};

const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;

pub(crate) fn frames<R: Read>(
    input: &mut Input<R>,
    each: &mut dyn FnMut(Frame<'_>) -> Result<(), CaptureFault>,
) -> Result<FileEnd, CaptureError> {
    let header = input.peek(FILE_HEADER).map_err(|error| CaptureFault::Io(error).at(0))?;
    if header.len() < FILE_HEADER {
        return Ok(FileEnd::Cut(0));
    }
    let big = header[0] == 0xa1;
    let (unit, per_second) = match read_u32(header, 0, big) {
        0xa1b2_3c4d => ("ns", 1_000_000_000),
        _ => ("µs", 1_000_000),
    };
    let version = (read_u16(header, 4, big), read_u16(header, 6, big));
    if version != (2, 4) {
        return Err(CaptureFault::Version(version.0, version.1).at(4));
    }
    // The upper half holds the length of the frame check sequence, not a type.
    let number = read_u32(header, 20, big) & 0xffff;
    let link = LinkType::of(number).ok_or_else(|| CaptureFault::LinkType(number).at(20))?;
    input.skip(FILE_HEADER);
    loop {
        let offset = input.offset();
        let record =
            input.peek(RECORD_HEADER).map_err(|error| CaptureFault::Io(error).at(offset))?;
        if record.is_empty() {
            return Ok(FileEnd::Whole);
        }
        if record.len() < RECORD_HEADER {
            return Ok(FileEnd::Cut(offset));
        }
        let [seconds, fraction, held, wire] = [0, 4, 8, 12].map(|at| read_u32(record, at, big));
        if held as usize > MAX_FRAME {
            let (length, most) = (u64::from(held), MAX_FRAME as u64);
            return Err(CaptureFault::Length { what: "packet", length, least: 0, most }.at(offset));
        }
        if fraction >= per_second {
            return Err(CaptureFault::Fraction { value: fraction, unit }.at(offset));
        }
        let record_bytes = RECORD_HEADER + held as usize;
        let bytes = input.peek(record_bytes).map_err(|error| CaptureFault::Io(error).at(offset))?;
        if bytes.len() < record_bytes {
            return Ok(FileEnd::Cut(offset));
        }
        let scale = i64::from(1_000_000_000 / per_second);
        let time_ns = i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * scale;
        let frame = Frame {
            offset,
            time_ns: Some(time_ns),
            link: Some(link),
            bytes: &bytes[RECORD_HEADER..],
            wire_bytes: wire as usize,
            direction: Direction::Unknown,
        };
        each(frame).map_err(|fault| fault.at(offset))?;
        input.skip(record_bytes);
    }
}
