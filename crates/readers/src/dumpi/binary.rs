//! Binary files: numbers are big-endian.
//!
//! A call consists of its number (16 bits), a mask of what follows (8 bits), a thread (16 bits), the
//! times of entry and exit by CPU clock and wall clock (16 bits of seconds since the start and 32 bits of
//! nanoseconds each), and its arguments.

use super::arguments::{Arguments, Field};
use super::calls::{DumpiCall, Fault, FaultKind, FilePosition, MAGIC};
use super::rank::RankFile;
use super::signatures::{END, INIT, INIT_THREAD};

/// The first version that stores all arguments correctly.
const OLDEST: [u8; 3] = [0, 6, 9];
/// Size of the index at the end: the magic bytes and seven offsets of 64 bits.
const INDEX_BYTES: usize = 64;
/// Bits of the mask: what follows a call.
const STATUS: u8 = 3;
const CPU: u8 = 4;
const WALL: u8 = 8;
const THREAD: u8 = 64;
const COUNTERS: u8 = 128;
const NS: i64 = 1_000_000_000;

/// The file ends too early, or a length is invalid.
struct Short;

pub(super) fn read(data: &[u8], rank: &mut RankFile<'_>) -> Result<(), Fault> {
    let at = data.len().saturating_sub(INDEX_BYTES);
    if at < MAGIC.len() || !data[at..].starts_with(MAGIC) {
        let text = "does not end with an index of its parts";
        return Err(rank.fault(FaultKind::Truncated, FilePosition::Byte(data.len() as u64), text));
    }
    let part = |number: usize| {
        let first = at + MAGIC.len() + 8 * number;
        u64::from_be_bytes(data[first..first + 8].try_into().expect("eight bytes"))
    };
    let (sizes, header, body) = (part(0), part(3), part(4));
    if sizes.max(header).max(body) >= at as u64 || body == 0 {
        let text = "the index points beyond the end of the file";
        return Err(rank.fault(FaultKind::Damaged, FilePosition::Byte(at as u64), text));
    }
    let version = &data[header as usize..(header as usize + 3).min(data.len())];
    if version < &OLDEST[..] {
        let words: Vec<String> = version.iter().map(u8::to_string).collect();
        let text = format!("is of version {}, older than 0.6.9", words.join("."));
        return Err(rank.fault(FaultKind::OldVersion, FilePosition::Byte(header), &text));
    }
    let mut cursor = Cursor { data: &data[..at], at: sizes as usize };
    let mut arguments = Arguments::default();
    let read = if sizes == 0 { Ok(()) } else { type_sizes(&mut cursor, rank) };
    let read = read.map_err(|Short| None).and_then(|()| {
        cursor.at = body as usize;
        stream(&mut cursor, rank, &mut arguments)
    });
    read.map_err(|fault| {
        let text = "a call is truncated, or has invalid arguments";
        fault.unwrap_or_else(|| {
            rank.fault(FaultKind::Damaged, FilePosition::Byte(cursor.at as u64), text)
        })
    })
}

fn type_sizes(cursor: &mut Cursor<'_>, rank: &mut RankFile<'_>) -> Result<(), Short> {
    for (kind, size) in cursor.vector::<4>()?.enumerate() {
        rank.sizes.set(kind as i64, size);
    }
    Ok(())
}

/// Reads calls up to the end of the stream; the error is `None` if the bytes end too early.
fn stream(
    cursor: &mut Cursor<'_>,
    rank: &mut RankFile<'_>,
    arguments: &mut Arguments,
) -> Result<(), Option<Fault>> {
    let short = |Short| None;
    let mut base = [0; 2];
    for seconds in &mut base {
        *seconds = i64::from(cursor.i32().map_err(short)?) * NS;
    }
    loop {
        let place = cursor.at as u64;
        let number = cursor.u16().map_err(short)?;
        if number == END {
            return Ok(());
        }
        let (enter_ns, leave_ns, thread, mask) = times(cursor, base).map_err(short)?;
        let Some(name) = rank.shared.numbered(number) else {
            let text = format!("call number {number} has arguments that Tailback does not know");
            return Err(Some(rank.fault(FaultKind::UnknownCall, FilePosition::Byte(place), &text)));
        };
        arguments.clear();
        if number == INIT || number == INIT_THREAD {
            for _ in 0..cursor.i32().map_err(short)? {
                cursor.skip_text().map_err(short)?;
            }
            if number == INIT_THREAD {
                cursor.skip(2).map_err(short)?;
            }
        } else {
            let signature = rank.shared.signatures[usize::from(number)].as_ref();
            let wanted = signature.map_or(&[][..], |seconds| &seconds.arguments);
            cursor.call(wanted, mask & STATUS != 0, arguments).map_err(short)?;
        }
        let place = FilePosition::Byte(place);
        rank.call(DumpiCall { name, enter_ns, leave_ns, thread, place }, arguments)?;
    }
}

/// Entry and exit of a call, its thread, and the mask of what follows.
fn times(cursor: &mut Cursor<'_>, base: [i64; 2]) -> Result<(i64, i64, u16, u8), Short> {
    let [mask] = cursor.bytes()?;
    let thread = if mask & THREAD != 0 { cursor.u16()? } else { 0 };
    let (mut enter, mut leave) = (0, 0);
    // The wall clock comes last and overrides the CPU clock.
    for (bit, base) in [(CPU, base[0]), (WALL, base[1])] {
        if mask & bit != 0 {
            let [a, b, c, d, e, f, g, h, i, j, k, l] = cursor.bytes()?;
            let seconds = |bytes| i64::from(u16::from_be_bytes(bytes)) * NS;
            let ns = |bytes| i64::from(u32::from_be_bytes(bytes));
            enter = base + seconds([a, b]) + ns([c, d, e, f]);
            leave = base + seconds([g, h]) + ns([i, j, k, l]);
        }
    }
    if mask & COUNTERS != 0 {
        let [counters] = cursor.bytes()?;
        cursor.skip(16 * usize::from(counters))?;
    }
    Ok((enter, leave, thread, mask))
}

/// Reads numbers and arguments from the bytes of a file.
struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let chunk = self.data.get(self.at..).and_then(|tail| tail.first_chunk()).ok_or(Short)?;
        self.at += N;
        Ok(*chunk)
    }

    fn skip(&mut self, bytes: usize) -> Result<(), Short> {
        if bytes > self.data.len() - self.at {
            return Err(Short);
        }
        self.at += bytes;
        Ok(())
    }

    #[inline]
    fn u16(&mut self) -> Result<u16, Short> {
        self.bytes().map(u16::from_be_bytes)
    }

    #[inline]
    fn i16(&mut self) -> Result<i16, Short> {
        self.bytes().map(i16::from_be_bytes)
    }

    #[inline]
    fn i32(&mut self) -> Result<i32, Short> {
        self.bytes().map(i32::from_be_bytes)
    }

    /// Numbers of N bytes, preceded by how many there are.
    fn vector<const N: usize>(
        &mut self,
    ) -> Result<impl ExactSizeIterator<Item = i64> + use<'a, N>, Short> {
        let length = usize::try_from(self.i32()?).map_err(|_| Short)?;
        let begin = self.at;
        self.skip(length.checked_mul(N).ok_or(Short)?)?;
        Ok(self.data[begin..self.at].as_chunks::<N>().0.iter().map(|number| {
            let sign = if number[0] >= 0x80 { -1 } else { 0 };
            number.iter().fold(sign, |value: i64, &byte| value << 8 | i64::from(byte))
        }))
    }

    /// Skips text, which is preceded by its length.
    fn skip_text(&mut self) -> Result<(), Short> {
        self.vector::<1>().map(|_| ())
    }

    /// The arguments of a call.
    #[inline]
    fn call(
        &mut self,
        wanted: &[(u8, Option<Field>)],
        statuses: bool,
        out: &mut Arguments,
    ) -> Result<(), Short> {
        let mut root = None;
        for &(code, field) in wanted {
            if matches!(code, b'x' | b'X' | b'y') {
                let here = *root
                    .get_or_insert_with(|| out.maybe(Field::Commrank) == out.maybe(Field::Root));
                if !here {
                    continue;
                }
            }
            let value = match code {
                b'i' | b'x' => i64::from(self.i32()?),
                b'h' | b'y' => i64::from(self.i16()?),
                b'b' => i64::from(self.bytes().map(i8::from_be_bytes)?),
                _ => {
                    self.several(code, field, statuses, out)?;
                    continue;
                }
            };
            if let Some(field) = field {
                out.set(field, value);
            }
        }
        Ok(())
    }

    /// An argument of several parts.
    fn several(
        &mut self,
        code: u8,
        field: Option<Field>,
        statuses: bool,
        out: &mut Arguments,
    ) -> Result<(), Short> {
        match code {
            b'H' => {
                let values = self.vector::<2>()?;
                if let Some(field) = field {
                    out.set_many(field, values);
                }
            }
            b'I' | b'X' => {
                let values = self.vector::<4>()?;
                if let Some(field) = field {
                    out.set_many(field, values);
                }
            }
            b'J' => {
                for _ in 0..self.i32()? {
                    drop(self.vector::<4>()?);
                }
            }
            b'C' => self.skip_text()?,
            // If statuses are not recorded, their number is not recorded either.
            _ if !statuses => {}
            _ => {
                let length = usize::try_from(self.i32()?).unwrap_or(0);
                let begin = self.at;
                self.skip(length.checked_mul(14).ok_or(Short)?)?;
                let records = self.data[begin..self.at].as_chunks::<14>().0;
                let number = |status: &[u8; 14], at: usize| {
                    i64::from(i32::from_be_bytes([
                        status[at],
                        status[at + 1],
                        status[at + 2],
                        status[at + 3],
                    ]))
                };
                if let Some(field) = field {
                    // Bytes, source, whether cancelled, error, tag.
                    out.set_statuses(
                        field,
                        records.iter().map(|status| (number(status, 4), number(status, 10))),
                    );
                }
            }
        }
        Ok(())
    }
}
