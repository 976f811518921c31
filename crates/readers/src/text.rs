//! Splits text into lines, words and numbers.

/// A line without leading and trailing blanks.
pub(crate) fn trimmed(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r', trimmed_line @ ..] = line {
        line = trimmed_line;
    }
    while let [trimmed_line @ .., b' ' | b'\t' | b'\r'] = line {
        line = trimmed_line;
    }
    line
}

/// Removes the first word, and the blanks after it, from a trimmed line.
pub(crate) fn word<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    if line.is_empty() {
        return None;
    }
    let end = line.iter().position(|&byte| byte == b' ' || byte == b'\t').unwrap_or(line.len());
    let first = &line[..end];
    let mut remaining = &line[end..];
    while let [b' ' | b'\t', tail @ ..] = remaining {
        remaining = tail;
    }
    *line = remaining;
    Some(first)
}

/// An unsigned integer that consists of digits only.
pub(crate) fn natural(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// A signed 32-bit integer, like MPI's `int`.
pub(crate) fn integer(text: &[u8]) -> Option<i32> {
    match text {
        [b'-', digits @ ..] => natural(digits)
            .filter(|&value| value <= 1 << 31)
            .map(|value| (value as i64).wrapping_neg() as i32),
        [b'+', digits @ ..] | digits => natural(digits).and_then(|value| i32::try_from(value).ok()),
    }
}

/// A number, also in the form `1e6`.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    if let Some(value) = natural(text).filter(|_| text.len() <= 15) {
        return Some(value as f64);
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The lines of a file, without their line ends.
pub(crate) fn lines(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut remaining = data;
    std::iter::from_fn(move || {
        if remaining.is_empty() {
            return None;
        }
        let end = newline(remaining).unwrap_or(remaining.len());
        let line = &remaining[..end];
        remaining = remaining.get(end + 1..).unwrap_or_default();
        Some(line)
    })
}

/// Index of the first line end. Lines are short, so eight bytes at a time are fast enough.
fn newline(data: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let mut at = 0;
    for chunk in data.chunks_exact(8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes")) ^ (LOW * 10);
        let marks = word.wrapping_sub(LOW) & !word & (LOW << 7);
        if marks != 0 {
            return Some(at + marks.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    data[at..].iter().position(|&byte| byte == b'\n').map(|offset| at + offset)
}
