//! Text that dumpi2ascii converts from a binary file.

use super::arguments::{Arguments, Field};
use super::calls::{DumpiCall, Fault, FaultKind, FilePosition};
use super::rank::RankFile;
use crate::text::{lines, natural};

const NS: i64 = 1_000_000_000;

/// A call that has begun.
struct Begun<'a> {
    name: &'a [u8],
    enter_ns: i64,
    thread: u16,
    place: FilePosition,
}

pub(super) fn read(data: &[u8], rank: &mut RankFile<'_>) -> Result<(), Fault> {
    if let Err(error) = std::str::from_utf8(data) {
        let place = FilePosition::Byte(error.valid_up_to() as u64);
        return Err(rank.fault(FaultKind::Damaged, place, "is not text"));
    }
    if data.last().is_some_and(|&last| last != b'\n') {
        let place = FilePosition::Line(lines(data).count() as u64);
        return Err(rank.fault(FaultKind::Truncated, place, "the last line is truncated"));
    }
    // The sizes of types are at the end of the file, but are needed first.
    for (kind, size) in lines(data).filter_map(type_size) {
        rank.sizes.set(kind, size);
    }
    let mut arguments = Arguments::default();
    let mut begun: Option<Begun<'_>> = None;
    let mut last = 0;
    for (number, line) in (1..).zip(lines(data)) {
        last = number;
        let place = FilePosition::Line(number);
        if let Some((name, enters, seconds, ns, thread)) = call(line) {
            if seconds > u64::from(u32::MAX) {
                let text =
                    format!("{} at {seconds} s is later than any plausible time", ascii(name));
                return Err(rank.fault(FaultKind::Damaged, place, &text));
            }
            let now = seconds as i64 * NS + ns as i64;
            begun = if enters {
                arguments.clear();
                enter(rank, begun, Begun { name, enter_ns: now, thread, place })?
            } else {
                leave(rank, begun, name, now, place, &arguments)?
            };
        } else if begun.is_some() {
            if let Some((name, value)) = argument(line) {
                if let Some(field) = Field::named(name) {
                    set_argument(&mut arguments, field, value);
                }
            } else if line.starts_with(b"MPI_") {
                return Err(rank.fault(
                    FaultKind::UnknownLine,
                    place,
                    &String::from_utf8_lossy(line),
                ));
            }
        }
    }
    if let Some(begun) = begun {
        let text = format!("{} does not return", ascii(begun.name));
        return Err(rank.fault(FaultKind::Truncated, FilePosition::Line(last), &text));
    }
    Ok(())
}

fn enter<'a>(
    rank: &RankFile<'_>,
    begun: Option<Begun<'_>>,
    now: Begun<'a>,
) -> Result<Option<Begun<'a>>, Fault> {
    match begun {
        None => Ok(Some(now)),
        Some(other) => {
            let text = format!("{} begins within {}", ascii(now.name), ascii(other.name));
            Err(rank.fault(FaultKind::Damaged, now.place, &text))
        }
    }
}

fn leave<'a>(
    rank: &mut RankFile<'_>,
    begun: Option<Begun<'a>>,
    name: &[u8],
    leave_ns: i64,
    place: FilePosition,
    arguments: &Arguments,
) -> Result<Option<Begun<'a>>, Fault> {
    let Some(begun) = begun.filter(|begun| begun.name == name) else {
        let text = format!("{} returns without having been entered", ascii(name));
        return Err(rank.fault(FaultKind::Damaged, place, &text));
    };
    let name = if name == b"MPI_Init_thread" { b"MPI_Init" } else { name };
    let name = rank.shared.named(&ascii(name));
    let Begun { enter_ns, thread, place, .. } = begun;
    let call = DumpiCall { name, enter_ns, leave_ns, thread, place };
    rank.call(call, arguments)?;
    Ok(None)
}

fn ascii(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Removes a prefix.
fn after<'a>(text: &'a [u8], prefix: &str) -> Option<&'a [u8]> {
    text.strip_prefix(prefix.as_bytes())
}

/// Splits off the leading bytes for which `wanted` holds, at least one.
fn run(text: &[u8], wanted: impl Fn(u8) -> bool) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&byte| !wanted(byte)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Splits off a number of at most `most` digits.
fn digits(text: &[u8], most: usize) -> Option<(u64, &[u8])> {
    let (text_of_number, tail) = run(text, |byte| byte.is_ascii_digit())?;
    Some((natural(text_of_number).filter(|_| text_of_number.len() <= most)?, tail))
}

/// Seconds and nanoseconds.
fn seconds(text: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (seconds_part, fraction) = digits(text, 12)?;
    let fraction = after(fraction, ".")?;
    let (part, end) = digits(fraction, 9)?;
    let ns = part * 10u64.pow(9 - (fraction.len() - end.len()) as u32);
    Some((seconds_part, ns, end))
}

/// Name, whether the call is entered or left, the time, by wall clock if it is known, and the thread.
fn call(line: &[u8]) -> Option<(&[u8], bool, u64, u64, u16)> {
    let (_, remaining) = run(after(line, "MPI_")?, is_word)?;
    let name = &line[..line.len() - remaining.len()];
    let (enters, remaining) = match after(remaining, " entering at walltime ") {
        Some(remaining) => (true, remaining),
        None => (false, after(remaining, " returning at walltime ")?),
    };
    let (wall, wall_ns, remaining) = seconds(remaining)?;
    let (cpu, cpu_ns, remaining) = seconds(after(remaining, ", cputime ")?)?;
    let (thread, remaining) =
        run(after(remaining, " seconds in thread ")?, |byte| byte.is_ascii_digit())?;
    if remaining != b"." {
        return None;
    }
    let has_wall_time = (wall, wall_ns) != (0, 0);
    let (time_s, ns) = if has_wall_time { (wall, wall_ns) } else { (cpu, cpu_ns) };
    Some((name, enters, time_s, ns, natural(thread).unwrap_or_default() as u16))
}

/// Number and bytes of a type.
fn type_size(line: &[u8]) -> Option<(i64, i64)> {
    let (kind, tail) = digits(after(line, "Datatype ")?, 9)?;
    let tail = after(tail, " (")?;
    let end = tail.len() - tail.iter().rev().position(|&byte| byte == b' ')?;
    let (size, left) = digits(&tail[end..], 9)?;
    let has_prefix = tail[..end].ends_with(b") has size ") && left.is_empty();
    has_prefix.then_some((kind as i64, size as i64))
}

/// Name and value of an argument: `int count=3`, `MPI_Request requests[2]=[4, 5]`.
fn argument(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let equals = line.iter().position(|&byte| byte == b'=')?;
    let (mut left, value) = (&line[..equals], &line[equals + 1..]);
    while left.ends_with(b"]") {
        let open = left.iter().rposition(|&byte| byte == b'[')?;
        let inside = &left[open + 1..left.len() - 1];
        let inside = inside.strip_prefix(b"-").unwrap_or(inside);
        if inside.is_empty() || !inside.iter().all(u8::is_ascii_digit) {
            return None;
        }
        left = &left[..open];
    }
    let mut words = left.split(|&byte| byte == b' ');
    let right =
        words.clone().all(|word| !word.is_empty() && word.iter().all(|&byte| is_word(byte)));
    let name = words.next_back()?;
    let begins = words.next()?.first().is_some_and(|byte| !byte.is_ascii_digit());
    (right && begins).then_some((name, value))
}

/// Sets an argument: a number, several numbers, or source and tag of statuses.
fn set_argument(arguments: &mut Arguments, field: Field, value: &[u8]) {
    if value.starts_with(b"[") && value.contains(&b'{') {
        arguments.set_statuses(field, statuses(value));
    } else if value.starts_with(b"[") {
        arguments.set_many(field, numbers(value));
    } else {
        match number(value) {
            Some((value, _)) => arguments.set(field, value),
            None => arguments.set_many(field, std::iter::empty()),
        }
    }
}

/// Splits off the number at the beginning of a text.
fn number(text: &[u8]) -> Option<(i64, &[u8])> {
    let bare = text.strip_prefix(b"-").unwrap_or(text);
    let (digits_text, _) = run(bare, |byte| byte.is_ascii_digit())?;
    let length = digits_text.len().min(18);
    let value = natural(&digits_text[..length])? as i64;
    Some((if bare.len() < text.len() { -value } else { value }, &bare[length..]))
}

fn numbers(mut text: &[u8]) -> impl Iterator<Item = i64> {
    std::iter::from_fn(move || {
        while !text.is_empty() {
            if let Some((value, tail)) = number(text) {
                text = tail;
                return Some(value);
            }
            text = &text[1..];
        }
        None
    })
}

fn statuses(mut text: &[u8]) -> impl Iterator<Item = (i64, i64)> {
    const SOURCE: &[u8] = b"source=";
    std::iter::from_fn(move || {
        while let Some(at) = text.windows(SOURCE.len()).position(|window| window == SOURCE) {
            text = &text[at + SOURCE.len()..];
            let status = number(text).and_then(|(source, tail)| {
                let (tag, tail) = number(after(tail, ", tag=")?)?;
                Some((source, tag, tail))
            });
            if let Some((source, tag, tail)) = status {
                text = tail;
                return Some((source, tag));
            }
        }
        None
    })
}
