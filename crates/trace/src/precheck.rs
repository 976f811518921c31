//! Checks that files are complete before the C library reads them.
//!
//! The library reads a chunk without checking how many bytes it got: after the end of a truncated file
//! it interprets whatever the buffer held before. Therefore the structure of every file is checked
//! here first: header, length of each record, end mark. The contents of the records are left to the
//! library.
//!
//! Layout (OTF2 2.x and 3.x): a chunk starts with `03`, the byte order (`42` little, `23` big), and the
//! numbers of its first and last event, 8 bytes each. Records follow, each with a type byte and a
//! length byte, where `ff` means that 8 bytes of length follow. Type `00` ends the chunk; the next one
//! starts at a multiple of the chunk size. Type `02` ends the file. Time stamps of events have type
//! `05` and 8 bytes without a length. In records of one compressed number (enter, leave, …), the length
//! byte is that of the number, and `ff` means "undefined" with no bytes following.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const LITTLE: u8 = 0x42;
const BIG: u8 = 0x23;
const CHUNK_HEADER: u8 = 3;
const CHUNK_HEADER_BYTES: usize = 18;
const END_OF_CHUNK: u8 = 0;
const END_OF_FILE: u8 = 2;
const TIMESTAMP: u8 = 5;
const ATTRIBUTES: u8 = 6;
const LONG: u8 = 0xff;
/// Types of events that consist of one compressed number.
const SINGLE: [u8; 10] = [12, 13, 16, 17, 20, 21, 24, 28, 29, 30];
/// Chunk sizes that the library accepts: 256 KiB to 128 MiB.
const CHUNK_SIZES: std::ops::RangeInclusive<u64> = (1 << 18)..=(1 << 27);

/// What is wrong with a file, and the number of intact records before that.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub records: u64,
    pub reason: String,
}

fn damage(records: u64, reason: impl Into<String>) -> Damage {
    Damage { records, reason: reason.into() }
}

/// What the anchor file states about the other files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub event_chunk: u64,
    pub definition_chunk: u64,
    pub compressed: bool,
}

/// Whether a file holds events or definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileContent {
    Events,
    Definitions,
}

/// Parses an anchor file and checks that it is complete.
pub(crate) fn anchor(path: &Path) -> Result<Anchor, String> {
    const LIMIT: u64 = 1 << 24;
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > LIMIT {
        return Err("not an OTF2 anchor file (too large)".to_owned());
    }
    parse_anchor(&fs::read(path).map_err(|error| error.to_string())?)
}

fn parse_anchor(bytes: &[u8]) -> Result<Anchor, String> {
    const FOREIGN: &str = "not an OTF2 anchor file";
    const SHORT: &str = "not an OTF2 anchor file, or a truncated one";
    let little = match bytes {
        [CHUNK_HEADER, LITTLE, b'O', b'T', b'F', b'2', ..] => true,
        [CHUNK_HEADER, BIG, b'O', b'T', b'F', b'2', ..] => false,
        _ => return Err(FOREIGN.to_owned()),
    };
    let number = |at: usize, width: usize| -> Result<u64, String> {
        let field = bytes.get(at..at + width).ok_or(SHORT)?;
        let fold = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Ok(if little { field.iter().rev().fold(0, fold) } else { field.iter().fold(0, fold) })
    };
    let (event_chunk, definition_chunk) = (number(0x0c, 8)?, number(0x14, 8)?);
    if !CHUNK_SIZES.contains(&event_chunk) || !CHUNK_SIZES.contains(&definition_chunk) {
        return Err(format!(
            "states chunk sizes of {event_chunk} and {definition_chunk} bytes; valid: 256 KiB to \
             128 MiB"
        ));
    }
    let compressed = number(0x1d, 1)? > 1;
    let mut at = 0x2e;
    let skip_text = |at: &mut usize| -> Result<(), String> {
        let tail = bytes.get(*at..).ok_or(SHORT)?;
        *at += 1 + tail.iter().position(|&byte| byte == 0).ok_or(SHORT)?;
        Ok(())
    };
    for _ in ["machine", "creator", "description"] {
        skip_text(&mut at)?;
    }
    let properties = number(at, 4)?;
    at += 4;
    for _ in 0..properties {
        skip_text(&mut at)?;
        skip_text(&mut at)?;
    }
    // Skip the trace id and the numbers of snapshots and thumbnails.
    at += 8 + 4 + 4;
    match bytes.get(at) {
        Some(&END_OF_FILE) => Ok(Anchor { event_chunk, definition_chunk, compressed }),
        _ => Err(SHORT.to_owned()),
    }
}

/// Counts the records of a file of events or definitions up to its end mark.
pub(crate) fn count_records(
    path: &Path,
    chunk_size: u64,
    content: FileContent,
) -> Result<u64, Damage> {
    let open = || -> io::Result<(File, u64)> {
        // Opening a pipe would wait for its writer.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    };
    let (file, size) = open().map_err(|error| damage(0, error.to_string()))?;
    let mut buffer = vec![0; chunk_size.min(size) as usize];
    let mut records = 0;
    let mut start = 0;
    while start < size {
        let length = chunk_size.min(size - start) as usize;
        let chunk = &mut buffer[..length];
        file.read_exact_at(chunk, start).map_err(|error| damage(records, error.to_string()))?;
        if walk_chunk(chunk, content, &mut records).map_err(|reason| damage(records, reason))? {
            return Ok(records);
        }
        start += chunk_size;
    }
    Err(damage(records, "the file is truncated: it has no end mark"))
}

/// Counts the records of one chunk; returns whether it is the last of the file.
fn walk_chunk(chunk: &[u8], content: FileContent, records: &mut u64) -> Result<bool, String> {
    const SHORT: &str = "the file is truncated or damaged";
    let little = match chunk {
        [CHUNK_HEADER, LITTLE, ..] => true,
        [CHUNK_HEADER, BIG, ..] => false,
        _ => return Err("the file is damaged: a chunk has no header".to_owned()),
    };
    let mut at = CHUNK_HEADER_BYTES;
    loop {
        let kind = *chunk.get(at).ok_or(SHORT)?;
        at += 1;
        match kind {
            END_OF_CHUNK => return Ok(false),
            END_OF_FILE => return Ok(true),
            TIMESTAMP if content == FileContent::Events => {
                at += 8;
                continue;
            }
            _ => {}
        }
        let length = *chunk.get(at).ok_or(SHORT)?;
        at += 1;
        let single = content == FileContent::Events && SINGLE.contains(&kind);
        if length == LONG && !single {
            let field: [u8; 8] =
                chunk.get(at..at + 8).and_then(|field| field.try_into().ok()).ok_or(SHORT)?;
            let long = if little { u64::from_le_bytes(field) } else { u64::from_be_bytes(field) };
            at = usize::try_from(long)
                .ok()
                .and_then(|long| long.checked_add(at + 8))
                .ok_or(SHORT)?;
        } else if length != LONG {
            at += usize::from(length);
        }
        if at > chunk.len() {
            return Err(SHORT.to_owned());
        }
        if content == FileContent::Definitions || kind != ATTRIBUTES {
            *records += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(records: &[u8]) -> Vec<u8> {
        let mut bytes = vec![CHUNK_HEADER, LITTLE];
        bytes.extend([0; 16]);
        bytes.extend(records);
        bytes
    }

    #[test]
    fn records_are_counted_up_to_the_end_mark() {
        // A time stamp, an enter of region 1, a leave of an undefined region, a long record.
        let mut records = vec![5, 1, 0, 0, 0, 0, 0, 0, 0, 12, 1, 1, 13, LONG];
        records.extend([14, LONG, 3, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7, END_OF_FILE, 1]);
        let file = chunk(&records);
        let mut n = 0;
        assert_eq!(walk_chunk(&file, FileContent::Events, &mut n), Ok(true));
        assert_eq!(n, 3);
        // Truncated anywhere before the end mark, it is damaged.
        for length in 0..file.len() - 2 {
            assert!(walk_chunk(&file[..length], FileContent::Events, &mut 0).is_err(), "{length}");
        }
    }

    #[test]
    fn a_length_that_exceeds_memory_is_an_error() {
        let mut records = vec![14, LONG];
        records.extend([0xff; 8]);
        assert!(walk_chunk(&chunk(&records), FileContent::Events, &mut 0).is_err());
    }

    #[test]
    fn type_five_is_a_time_stamp_only_among_events() {
        let clock = chunk(&[5, 2, 9, 9, END_OF_FILE]);
        assert_eq!(walk_chunk(&clock, FileContent::Definitions, &mut 0), Ok(true));
    }

    #[test]
    fn an_anchor_is_read_to_its_end() {
        let mut bytes = b"\x03\x42OTF2\0\x03\x02\x03\0\0".to_vec();
        bytes.extend((1u64 << 20).to_le_bytes());
        bytes.extend((1u64 << 18).to_le_bytes());
        bytes.extend([1, 1]);
        bytes.extend([0; 16]);
        bytes.extend(b"\0Score-P\0\0");
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(b"name\0value\0");
        bytes.extend([0; 16]);
        bytes.extend([END_OF_FILE, 1, 0]);
        let expected =
            Anchor { event_chunk: 1 << 20, definition_chunk: 1 << 18, compressed: false };
        assert_eq!(parse_anchor(&bytes), Ok(expected));
        for length in 0..bytes.len() - 3 {
            assert!(parse_anchor(&bytes[..length]).is_err(), "{length}");
        }
        // More properties than the file can contain.
        bytes[0x2e + 10 + 3] = 0x7f;
        assert!(parse_anchor(&bytes).is_err());
    }
}
