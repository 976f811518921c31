//! GOAL schedules in text form: `num_ranks N`, then a block of lines for each rank, with dependencies by
//! label.

use crate::numbering::{Interner, Map};
use crate::op;
use crate::text::{lines, natural, trimmed};

/// Largest message: the largest integer range that a double represents exactly.
const MAX_BYTES: u64 = 1 << 53;
const PS_PER_NS: u64 = 1000;

/// Operations of all ranks, rank by rank, and their dependencies.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Number of ranks.
    pub n_ranks: u32,
    /// Line of each operation, from 0; of a binary schedule, its number.
    pub line: Vec<u32>,
    /// Rank of each.
    pub rank: Vec<u32>,
    /// Kind of each, as numbered in [`op`].
    pub kind: Vec<u8>,
    /// The other rank of a send or receive, else -1.
    pub peer: Vec<i32>,
    /// Matching tag, 0 if none is given.
    pub tag: Vec<i64>,
    /// Bytes or picoseconds.
    pub amount: Vec<u64>,
    /// Number of the label, which stands for kind and tag.
    pub label: Vec<u32>,
    /// Kind and tag of each label.
    pub labels: Vec<(u8, i64)>,
    /// For each dependency, the operation depended on.
    pub before: Vec<u32>,
    /// For each dependency, the dependent operation.
    pub after: Vec<u32>,
    /// Whether it suffices that `before` has begun (`irequires`).
    pub begun: Vec<bool>,
    /// Largest number of cores that a rank computes on.
    pub cores: u32,
}

/// What is wrong with a schedule; lines are counted from 0.
#[derive(Debug, PartialEq, Eq)]
pub enum ScheduleError {
    /// The first line is not `num_ranks N`.
    NoHeader,
    /// A line outside of a block, or a block within a block.
    UnexpectedLine(u32),
    /// The last block is not closed: its last line.
    UnclosedBlock(u32),
    /// A second block of a rank: line and rank.
    DuplicateBlock(u32, u64),
    /// A block of a rank that does not exist: line, rank and number of ranks.
    NoSuchRank(u32, u64, u64),
    /// No block of a rank: the rank, and the number of ranks.
    MissingBlock(u64, u64),
    /// A line that is neither an operation nor a dependency.
    UnknownLine(u32),
    /// A rank, size, time or tag out of range: line, and number of ranks.
    InvalidValue(u32, u64),
    /// A label that is used twice in a block.
    DuplicateLabel(u32, Vec<u8>),
    /// A label that no operation of the block has.
    UndefinedLabel(u32, Vec<u8>),
    /// More lines than can be numbered.
    TooLarge,
}

/// Reads a schedule without comments; `longest_ps` is the longest valid computation.
pub fn read(data: &[u8], longest_ps: u64) -> Result<Schedule, ScheduleError> {
    let mut reader = GoalReader { longest_ps, ..GoalReader::default() };
    let mut begun = false;
    for (at, line) in lines(data).enumerate() {
        let at =
            u32::try_from(at).ok().filter(|&at| at < 1 << 29).ok_or(ScheduleError::TooLarge)?;
        let line = trimmed(line);
        if line.is_empty() {
            continue;
        }
        if begun {
            reader.line(at, line)?;
            continue;
        }
        reader.n_ranks = number_after(line, b"num_ranks").ok_or(ScheduleError::NoHeader)?;
        begun = true;
    }
    if !begun {
        return Err(ScheduleError::NoHeader);
    }
    reader.finish()
}

/// The number after `word` and blanks.
fn number_after(line: &[u8], word: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(word)?;
    natural(blanks(rest)?)
}

/// The text after one or more blanks.
fn blanks(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(|&byte| !is_blank(byte)).unwrap_or(text.len());
    (end > 0).then(|| &text[end..])
}

fn maybe_blanks(text: &[u8]) -> &[u8] {
    blanks(text).unwrap_or(text)
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

/// Splits a label from the beginning of a text.
#[inline]
fn label(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if !text.first()?.is_ascii_alphabetic() {
        return None;
    }
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let end = text.iter().position(|&byte| !is_word(byte)).unwrap_or(text.len());
    Some(text.split_at(end))
}

/// Splits a number from the beginning of a text; its value is `None` if it is too large.
#[inline]
fn number(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let (mut value, mut length) = (0u64, 0);
    while let Some(digit) = text.get(length).map(|byte| byte.wrapping_sub(b'0')).filter(|&d| d < 10)
    {
        value = value.wrapping_mul(10).wrapping_add(digit.into());
        length += 1;
    }
    // Nineteen digits fit in 64 bits.
    let value = if length < 20 { Some(value) } else { natural(&text[..length]) };
    (length > 0).then(|| (value, &text[length..]))
}

#[derive(Default)]
struct GoalReader<'a> {
    out: Schedule,
    longest_ps: u64,
    n_ranks: u64,
    /// The rank whose block is open.
    open: Option<u32>,
    last: u32,
    /// Rank of each block, and its first operation and dependency.
    blocks: Vec<(u32, usize, usize)>,
    seen: Map<u32, ()>,
    names: LabelTable<'a>,
    pending: Vec<(u32, &'a [u8], &'a [u8], bool)>,
    cores: Vec<u64>,
    /// The first error within a block, reported only if all blocks are complete: otherwise the file is
    /// truncated, and that is the better explanation.
    fault: Option<ScheduleError>,
}

impl<'a> GoalReader<'a> {
    fn line(&mut self, at: u32, line: &'a [u8]) -> Result<(), ScheduleError> {
        self.last = at;
        match self.open {
            None => self.open_block(at, line),
            Some(_) if line == b"}" => {
                self.close_block();
                Ok(())
            }
            Some(_) if block(line).is_some() => Err(ScheduleError::UnexpectedLine(at)),
            Some(rank) => {
                if let Err(fault) = self.block_line(at, rank, line) {
                    self.fault.get_or_insert(fault);
                }
                Ok(())
            }
        }
    }

    fn open_block(&mut self, at: u32, line: &[u8]) -> Result<(), ScheduleError> {
        let rank = block(line).ok_or(ScheduleError::UnexpectedLine(at))?;
        if rank >= self.n_ranks || rank >= 1 << 31 {
            return Err(ScheduleError::NoSuchRank(at, rank, self.n_ranks));
        }
        if self.seen.insert(rank as u32, ()).is_some() {
            return Err(ScheduleError::DuplicateBlock(at, rank));
        }
        self.open = Some(rank as u32);
        self.blocks.push((rank as u32, self.out.kind.len(), self.out.before.len()));
        Ok(())
    }

    fn close_block(&mut self) {
        self.open = None;
        for (line, after, before, begun) in self.pending.drain(..) {
            match (self.names.get(before), self.names.get(after)) {
                (Some(before), Some(after)) => self.out.depend(before, after, begun),
                (found, _) => {
                    let lost = if found.is_none() { before } else { after };
                    self.fault.get_or_insert(ScheduleError::UndefinedLabel(line, lost.to_vec()));
                }
            }
        }
        self.names.clear();
        self.out.cores = self.out.cores.max(self.cores.len() as u32);
        self.cores.clear();
    }

    /// An operation or a dependency.
    fn block_line(&mut self, at: u32, rank: u32, line: &'a [u8]) -> Result<(), ScheduleError> {
        let unknown = ScheduleError::UnknownLine(at);
        let (mut name, mut rest) = (None, line);
        if let Some((first, tail)) = label(line) {
            let tail = maybe_blanks(tail);
            if let [b':', operation @ ..] = tail {
                name = Some(first);
                rest = maybe_blanks(operation);
            } else if !matches!(first, b"send" | b"recv" | b"calc") || !tail_is_number(tail) {
                let (how, tail) = label(tail).ok_or(unknown)?;
                let begun = match how {
                    b"requires" => false,
                    b"irequires" => true,
                    _ => return Err(ScheduleError::UnknownLine(at)),
                };
                let unknown = || ScheduleError::UnknownLine(at);
                let (before, tail) = blanks(tail).and_then(label).ok_or_else(unknown)?;
                if !tail.is_empty() {
                    return Err(unknown());
                }
                match (self.names.get(before), self.names.get(first)) {
                    (Some(before), Some(after)) => self.out.depend(before, after, begun),
                    _ => self.pending.push((at, first, before, begun)),
                }
                return Ok(());
            }
        }
        let found = operation(rest).ok_or(unknown)?;
        self.add(at, rank, name, &found)
    }

    fn add(
        &mut self,
        at: u32,
        rank: u32,
        name: Option<&'a [u8]>,
        found: &Operation,
    ) -> Result<(), ScheduleError> {
        let n_ranks = self.n_ranks;
        let invalid = || ScheduleError::InvalidValue(at, n_ranks);
        let mut amount = found.amount.ok_or_else(invalid)?;
        let most = match found.kind {
            op::COMPUTE => self.longest_ps / PS_PER_NS,
            _ => MAX_BYTES,
        };
        let right = match found.kind {
            op::COMPUTE => found.peer.is_none(),
            op::ISEND => found.peer.is_some_and(|(to, _)| to),
            _ => found.peer.is_some_and(|(to, _)| !to),
        };
        if amount > most || !right {
            return Err(invalid());
        }
        let peer = match found.peer {
            Some((_, peer)) => peer.filter(|&peer| peer < self.n_ranks).ok_or_else(invalid)? as i32,
            None => -1,
        };
        let tag = match found.tag {
            Some(tag) => tag.and_then(|tag| i64::try_from(tag).ok()).ok_or_else(invalid)?,
            None => 0,
        };
        if found.kind == op::COMPUTE {
            amount *= PS_PER_NS;
            let core = found.core.flatten().unwrap_or(0);
            if !self.cores.contains(&core) && self.cores.len() < 1 << 10 {
                self.cores.push(core);
            }
        }
        if let Some(name) = name
            && !self.names.insert(name, self.out.kind.len() as u32)
        {
            return Err(ScheduleError::DuplicateLabel(at, name.to_vec()));
        }
        let out = &mut self.out;
        out.line.push(at);
        out.rank.push(rank);
        out.kind.push(found.kind);
        out.peer.push(peer);
        out.tag.push(tag);
        out.amount.push(amount);
        Ok(())
    }

    fn finish(mut self) -> Result<Schedule, ScheduleError> {
        if self.open.is_some() {
            return Err(ScheduleError::UnclosedBlock(self.last));
        }
        if (self.blocks.len() as u64) < self.n_ranks {
            let missing = (0..self.n_ranks).find(|&rank| !self.seen.contains_key(&(rank as u32)));
            return Err(ScheduleError::MissingBlock(missing.unwrap_or(0), self.n_ranks));
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.out.n_ranks = self.n_ranks as u32;
        if !self.blocks.is_sorted() {
            self.out.reorder(&self.blocks);
        }
        self.out.number_labels();
        Ok(self.out)
    }
}

fn tail_is_number(tail: &[u8]) -> bool {
    tail.first().is_some_and(u8::is_ascii_digit)
}

/// The rank of `rank R {`.
fn block(line: &[u8]) -> Option<u64> {
    let (rank, rest) = number(blanks(line.strip_prefix(b"rank")?)?)?;
    rank.filter(|_| maybe_blanks(rest) == b"{")
}

/// An operation; numbers that are too large are `None`.
struct Operation {
    kind: u8,
    amount: Option<u64>,
    /// Whether it is `to`, and the rank.
    peer: Option<(bool, Option<u64>)>,
    tag: Option<Option<u64>>,
    core: Option<Option<u64>>,
}

/// `send 8b to 1 tag 5 cpu 0 nic 0`, `recv 8b from 1`, `calc 100`.
#[inline]
fn operation(text: &[u8]) -> Option<Operation> {
    let (name, rest) = label(text)?;
    let kind = match name {
        b"send" => op::ISEND,
        b"recv" => op::IRECV,
        b"calc" => op::COMPUTE,
        _ => return None,
    };
    let (amount, rest) = number(blanks(rest)?)?;
    let mut rest = rest.strip_prefix(b"b").unwrap_or(rest);
    let mut found = Operation { kind, amount, peer: None, tag: None, core: None };
    let mut first = true;
    while !rest.is_empty() {
        let (word, tail) = label(blanks(rest)?)?;
        let (value, tail) = number(blanks(tail)?)?;
        match word {
            b"to" | b"from" if first => found.peer = Some((word == b"to", value)),
            b"tag" => found.tag = found.tag.or(Some(value)),
            b"cpu" => found.core = found.core.or(Some(value)),
            b"nic" => {}
            _ => return None,
        }
        first = false;
        rest = tail;
    }
    Some(found)
}

/// Whether two short words are equal.
fn equal(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one == two)
}

/// Operations of a block by label. Most labels are a word and a number, like `l12`, and need no hashing.
#[derive(Default)]
struct LabelTable<'a> {
    words: Vec<(&'a [u8], Vec<u32>)>,
    others: Map<&'a [u8], u32>,
}

impl<'a> LabelTable<'a> {
    const NONE: u32 = u32::MAX;
    const MAX_WORDS: usize = 8;

    /// Word and number of a label.
    #[inline]
    fn split(name: &[u8]) -> Option<(&[u8], usize)> {
        let (mut number, mut scale, mut at) = (0, 1, name.len());
        while at > 0 && name[at - 1].is_ascii_digit() {
            at -= 1;
            if name.len() - at > 9 {
                return None;
            }
            number += scale * usize::from(name[at] - b'0');
            scale *= 10;
        }
        let digits = name.len() - at;
        if digits == 0 || (name[at] == b'0' && digits > 1) {
            return None;
        }
        Some((&name[..at], number))
    }

    #[inline]
    fn get(&self, name: &[u8]) -> Option<u32> {
        let split = Self::split(name);
        let known = split.and_then(|(word, number)| {
            let (_, table) = self.words.iter().find(|one| equal(one.0, word))?;
            table.get(number).copied().filter(|&at| at != Self::NONE)
        });
        if known.is_some() || self.others.is_empty() {
            known
        } else {
            self.others.get(name).copied()
        }
    }

    /// Adds a label; returns whether it is new.
    fn insert(&mut self, name: &'a [u8], operation: u32) -> bool {
        if self.get(name).is_some() {
            return false;
        }
        if let Some((word, number)) = Self::split(name) {
            let at = self.words.iter().position(|one| equal(one.0, word)).or_else(|| {
                (self.words.len() < Self::MAX_WORDS).then(|| {
                    self.words.push((word, Vec::new()));
                    self.words.len() - 1
                })
            });
            // A table with large gaps would waste memory.
            if let Some(table) = at.map(|at| &mut self.words[at].1)
                && number < 2 * table.len() + 64
            {
                if number >= table.len() {
                    table.resize(number + 1, Self::NONE);
                }
                table[number] = operation;
                return true;
            }
        }
        self.others.insert(name, operation);
        true
    }

    fn clear(&mut self) {
        for (_, table) in &mut self.words {
            table.clear();
        }
        if self.words.len() == Self::MAX_WORDS {
            self.words.clear();
        }
        self.others.clear();
    }
}

impl Schedule {
    pub(crate) fn depend(&mut self, before: u32, after: u32, begun: bool) {
        self.before.push(before);
        self.after.push(after);
        self.begun.push(begun);
    }

    /// Puts the blocks in the order of their ranks.
    fn reorder(&mut self, blocks: &[(u32, usize, usize)]) {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|&at| blocks[at].0);
        let end = |at: usize, column: usize, whole: usize| {
            blocks.get(at + 1).map_or(whole, |next| if column == 0 { next.1 } else { next.2 })
        };
        let nodes: Vec<usize> =
            order.iter().flat_map(|&at| blocks[at].1..end(at, 0, self.kind.len())).collect();
        let edges: Vec<usize> =
            order.iter().flat_map(|&at| blocks[at].2..end(at, 1, self.before.len())).collect();
        let mut place = vec![0; nodes.len()];
        for (new, &old) in nodes.iter().enumerate() {
            place[old] = new as u32;
        }
        take(&mut self.line, &nodes);
        take(&mut self.rank, &nodes);
        take(&mut self.kind, &nodes);
        take(&mut self.peer, &nodes);
        take(&mut self.tag, &nodes);
        take(&mut self.amount, &nodes);
        take(&mut self.begun, &edges);
        for column in [&mut self.before, &mut self.after] {
            take(column, &edges);
            for one in column {
                *one = place[*one as usize];
            }
        }
    }

    pub(crate) fn number_labels(&mut self) {
        let mut numbers = Interner::default();
        self.label.reserve_exact(self.kind.len());
        for (&kind, &tag) in self.kind.iter().zip(&self.tag) {
            let (number, new) = numbers.number(kind.into(), tag);
            if new {
                self.labels.push((kind, tag));
            }
            self.label.push(number);
        }
    }
}

fn take<T: Copy>(column: &mut Vec<T>, rows: &[usize]) {
    *column = rows.iter().map(|&row| column[row]).collect();
}

#[cfg(test)]
mod tests {
    use super::{ScheduleError, read};

    #[test]
    fn blocks_are_put_in_the_order_of_ranks() {
        let text = b"num_ranks 2\nrank 1 {\na: recv 8b from 0\nb: calc 2 cpu 3\nb requires a\n}\n\
                     rank 0 {\nsend 8b to 1 tag 0 nic 1\n}\n";
        let found = read(text, 1 << 60).expect("a valid trace");
        assert_eq!(found.rank, [0, 1, 1]);
        assert_eq!((found.before, found.after), (vec![1], vec![2]));
        assert_eq!(found.amount, [8, 8, 2000]);
    }

    #[test]
    fn an_absurd_number_of_ranks_takes_no_memory() {
        let text = b"num_ranks 999999999999\nrank 0 {\n}\n";
        assert_eq!(
            read(text, 1 << 60).err(),
            Some(ScheduleError::MissingBlock(1, 999_999_999_999))
        );
    }
}
