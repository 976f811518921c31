//! GOAL schedules in text form: `num_ranks N`, then a block of lines for each rank, with dependencies by
//! label.

use std::ops::Range;

use crate::goal_labels::{BlockLabel, BlockLabels};
use crate::graph::{ANY_SOURCE, ANY_TAG};
use crate::numbering::{Interner, Map};
use crate::op;
use crate::requirements::{Dependency, Requirements};
use crate::text::{lines, natural, trimmed};

/// Largest message: the largest integer range that a double represents exactly.
const MAX_BYTES: u64 = 1 << 53;
const PS_PER_NS: u64 = 1000;

/// Operations of all ranks, rank by rank, and their dependencies.
#[derive(Debug, Default)]
pub struct Schedule {
    /// First operation of each rank, and the number of operations.
    pub rank_start: Vec<u32>,
    /// Line of each operation, from 0, if the reader keeps lines.
    pub line: Vec<u32>,
    /// Kind of each, as numbered in [`op`]; computations take time.
    pub kind: Vec<u8>,
    /// The other rank of a send or receive, [`ANY_SOURCE`] of a receive from any, else -1.
    pub peer: Vec<i32>,
    /// Bytes or picoseconds.
    pub amount: Vec<u64>,
    /// Number of the stream, which stands for kind and tag; 0 of computations.
    pub stream: Vec<u32>,
    /// Kind and tag of each stream, [`ANY_TAG`] of receives with any.
    pub streams: Vec<(u8, i64)>,
    /// What operations require.
    pub required: Requirements,
    /// Largest number of cores that a rank computes on.
    pub cores: u32,
    /// Largest number of adapters (`nic`) that a rank sends and receives by.
    pub adapters: u32,
}

/// An operation of a schedule; see the columns of [`Schedule`].
pub(crate) struct Operation {
    pub kind: u8,
    pub peer: i32,
    pub amount: u64,
    pub tag: i64,
}

impl Schedule {
    #[inline]
    pub(crate) fn push(&mut self, operation: &Operation, streams: &mut Interner) {
        let message = operation.kind == op::ISEND || operation.kind == op::IRECV;
        // A computation that takes no time only has dependencies.
        let empty = !message && operation.amount == 0;
        self.kind.push(if empty { op::NOTHING } else { operation.kind });
        self.peer.push(operation.peer);
        self.amount.push(operation.amount);
        let mut stream = 0;
        if message {
            let (number, new) = streams.number(operation.kind.into(), operation.tag);
            if new {
                self.streams.push((operation.kind, operation.tag));
            }
            stream = number;
        }
        self.stream.push(stream);
    }

    /// Ends a rank with these dependencies.
    pub(crate) fn close_rank(&mut self, dependencies: &mut Vec<Dependency>) {
        self.required.add_rank(&self.kind, dependencies);
        self.rank_start.push(self.kind.len() as u32);
    }
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
///
/// # Errors
/// [`ScheduleError`] for the first error.
pub fn read(data: &[u8], longest_ps: u64) -> Result<Schedule, ScheduleError> {
    let mut reader = GoalReader::new(longest_ps, true);
    reader.feed(data)?;
    reader.finish()
}

/// The number after `word` and blanks.
fn number_after(line: &[u8], word: &[u8]) -> Option<u64> {
    let tail = line.strip_prefix(word)?;
    natural(blanks(tail)?)
}

/// The text after one or more blanks.
#[inline(always)]
fn blanks(text: &[u8]) -> Option<&[u8]> {
    let (&first, mut remaining) = text.split_first()?;
    if !is_blank(first) {
        return None;
    }
    while let Some((_, tail)) = remaining.split_first().filter(|(byte, _)| is_blank(**byte)) {
        remaining = tail;
    }
    Some(remaining)
}

#[inline(always)]
fn maybe_blanks(text: &[u8]) -> &[u8] {
    blanks(text).unwrap_or(text)
}

#[inline(always)]
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
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

/// Reads a schedule piece by piece.
#[derive(Default)]
pub struct GoalReader {
    out: Schedule,
    longest_ps: u64,
    keep_lines: bool,
    /// Number of the next line.
    next: usize,
    /// From the first line.
    n_ranks: Option<u64>,
    /// The rank whose block is open.
    open: Option<u32>,
    last: u32,
    /// Rank of each block.
    blocks: Vec<u32>,
    seen: Map<u32, ()>,
    streams: Interner,
    names: BlockLabels,
    dependencies: Vec<Dependency>,
    /// Dependencies on labels that appear later: line, labels, and whether the begin suffices.
    pending: Vec<(u32, [Range<usize>; 2], bool)>,
    pending_text: Vec<u8>,
    cores: Vec<u64>,
    adapters: Vec<u64>,
    /// The first error within a block. Reported only if all blocks are complete: otherwise the file
    /// is truncated, which explains more.
    fault: Option<ScheduleError>,
}

impl GoalReader {
    /// A reader that refuses computations longer than `longest_ps`; with `keep_lines`, the schedule has
    /// the line of each operation.
    pub fn new(longest_ps: u64, keep_lines: bool) -> Self {
        let mut reader = Self { longest_ps, keep_lines, ..Self::default() };
        reader.out.rank_start.push(0);
        reader
    }

    /// Reads the next lines, without comments; the last one may lack its line end.
    ///
    /// # Errors
    /// [`ScheduleError`] for the first line that does not belong where it is.
    pub fn feed(&mut self, data: &[u8]) -> Result<(), ScheduleError> {
        for line in lines(data) {
            let at = self.next;
            self.next += 1;
            let at =
                u32::try_from(at).ok().filter(|&at| at < 1 << 29).ok_or(ScheduleError::TooLarge)?;
            let line = trimmed(line);
            if line.is_empty() {
                continue;
            }
            if self.n_ranks.is_some() {
                self.line(at, line)?;
            } else {
                let n_ranks = number_after(line, b"num_ranks").ok_or(ScheduleError::NoHeader)?;
                self.n_ranks = Some(n_ranks);
            }
        }
        Ok(())
    }

    fn line(&mut self, at: u32, line: &[u8]) -> Result<(), ScheduleError> {
        self.last = at;
        match self.open {
            None => self.open_block(at, line),
            Some(_) if line == b"}" => {
                self.close_block();
                Ok(())
            }
            Some(_) if block(line).is_some() => Err(ScheduleError::UnexpectedLine(at)),
            Some(_) => {
                if let Err(fault) = self.block_line(at, line) {
                    self.fault.get_or_insert(fault);
                }
                Ok(())
            }
        }
    }

    fn open_block(&mut self, at: u32, line: &[u8]) -> Result<(), ScheduleError> {
        let rank = block(line).ok_or(ScheduleError::UnexpectedLine(at))?;
        let n_ranks = self.n_ranks.unwrap_or(0);
        if rank >= n_ranks || rank >= 1 << 31 {
            return Err(ScheduleError::NoSuchRank(at, rank, n_ranks));
        }
        if self.seen.insert(rank as u32, ()).is_some() {
            return Err(ScheduleError::DuplicateBlock(at, rank));
        }
        self.open = Some(rank as u32);
        self.blocks.push(rank as u32);
        Ok(())
    }

    fn close_block(&mut self) {
        self.open = None;
        for (line, names, begun) in self.pending.drain(..) {
            let [before, after] = names.map(|range| &self.pending_text[range]);
            match [before, after].map(|name| self.names.get(&BlockLabel::of(name))) {
                [Some(before), Some(after)] => {
                    self.dependencies.push(Dependency { before, after, begun });
                }
                [position, _] => {
                    let lost = if position.is_none() { before } else { after };
                    self.fault.get_or_insert(ScheduleError::UndefinedLabel(line, lost.to_vec()));
                }
            }
        }
        self.pending_text.clear();
        self.out.close_rank(&mut self.dependencies);
        self.names.clear();
        self.out.cores = self.out.cores.max(self.cores.len() as u32);
        self.cores.clear();
        self.out.adapters = self.out.adapters.max(self.adapters.len() as u32);
        self.adapters.clear();
    }

    /// An operation or a dependency.
    #[inline]
    fn block_line(&mut self, at: u32, line: &[u8]) -> Result<(), ScheduleError> {
        let (mut name, mut remaining) = (None, line);
        if let Some((first, tail)) = BlockLabel::split(line) {
            let tail = maybe_blanks(tail);
            if let [b':', operation @ ..] = tail {
                name = Some(first);
                remaining = maybe_blanks(operation);
            } else if !matches!(first.text, b"send" | b"recv" | b"calc") || !tail_is_number(tail) {
                return self.dependency(at, &first, tail);
            }
        }
        let operation_text = operation(remaining).ok_or(ScheduleError::UnknownLine(at))?;
        self.add(at, name, &operation_text)
    }

    /// The rest of a line that makes `after` depend on another operation.
    #[inline]
    fn dependency(
        &mut self,
        at: u32,
        after: &BlockLabel<'_>,
        tail: &[u8],
    ) -> Result<(), ScheduleError> {
        let unknown = || ScheduleError::UnknownLine(at);
        let (begun, tail) = match tail.strip_prefix(b"requires") {
            Some(tail) => (false, tail),
            None => (true, tail.strip_prefix(b"irequires").ok_or_else(unknown)?),
        };
        let (before, tail) = blanks(tail).and_then(BlockLabel::split).ok_or_else(unknown)?;
        if !tail.is_empty() {
            return Err(unknown());
        }
        match (self.names.get(&before), self.names.get(after)) {
            (Some(before), Some(after)) => {
                self.dependencies.push(Dependency { before, after, begun });
            }
            _ => {
                let names = [before.text, after.text].map(|name| {
                    let begin = self.pending_text.len();
                    self.pending_text.extend_from_slice(name);
                    begin..self.pending_text.len()
                });
                self.pending.push((at, names, begun));
            }
        }
        Ok(())
    }

    #[inline]
    fn add(
        &mut self,
        at: u32,
        name: Option<BlockLabel<'_>>,
        text: &OperationText,
    ) -> Result<(), ScheduleError> {
        let operation =
            self.operation(text).ok_or(ScheduleError::InvalidValue(at, self.ranks()))?;
        if operation.kind == op::COMPUTE {
            let core = text.core.flatten().unwrap_or(0);
            if !self.cores.contains(&core) && self.cores.len() < 1 << 10 {
                self.cores.push(core);
            }
        } else {
            let adapter = text.adapter.unwrap_or(0);
            if !self.adapters.contains(&adapter) && self.adapters.len() < 1 << 10 {
                self.adapters.push(adapter);
            }
        }
        if let Some(name) = name
            && !self.names.insert(&name, self.out.kind.len() as u32)
        {
            return Err(ScheduleError::DuplicateLabel(at, name.text.to_vec()));
        }
        if self.keep_lines {
            self.out.line.push(at);
        }
        self.out.push(&operation, &mut self.streams);
        Ok(())
    }

    /// An operation; `None` if a value is out of range.
    #[inline]
    fn operation(&self, text: &OperationText) -> Option<Operation> {
        let (kind, amount) = (text.kind, text.amount?);
        if kind == op::COMPUTE {
            let valid = text.peer.is_none() && amount <= self.longest_ps / PS_PER_NS;
            let amount = amount.saturating_mul(PS_PER_NS);
            return valid.then_some(Operation { kind, peer: -1, amount, tag: 0 });
        }
        let (to, peer) = text.peer?;
        let peer = match peer {
            Number::Any if kind == op::IRECV => ANY_SOURCE,
            Number::Value(Some(peer)) if peer < self.ranks() => peer as i32,
            _ => return None,
        };
        let tag = match text.tag {
            None => 0,
            Some(Number::Any) if kind == op::IRECV => ANY_TAG,
            Some(Number::Value(tag)) => i64::try_from(tag?).ok()?,
            Some(Number::Any) => return None,
        };
        let valid = to == (kind == op::ISEND) && amount <= MAX_BYTES;
        valid.then_some(Operation { kind, peer, amount, tag })
    }

    fn ranks(&self) -> u64 {
        self.n_ranks.unwrap_or(0)
    }

    /// The schedule.
    ///
    /// # Errors
    /// [`ScheduleError`] if the schedule is not complete, or else for the first error in a block.
    pub fn finish(mut self) -> Result<Schedule, ScheduleError> {
        let n_ranks = self.n_ranks.ok_or(ScheduleError::NoHeader)?;
        if self.open.is_some() {
            return Err(ScheduleError::UnclosedBlock(self.last));
        }
        if (self.blocks.len() as u64) < n_ranks {
            let missing = (0..n_ranks).find(|&rank| !self.seen.contains_key(&(rank as u32)));
            return Err(ScheduleError::MissingBlock(missing.unwrap_or(0), n_ranks));
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if !self.blocks.is_sorted() {
            self.out.reorder(&self.blocks);
        }
        Ok(self.out)
    }
}

fn tail_is_number(tail: &[u8]) -> bool {
    tail.first().is_some_and(u8::is_ascii_digit)
}

/// The rank of `rank R {`.
fn block(line: &[u8]) -> Option<u64> {
    let (rank, tail) = number(blanks(line.strip_prefix(b"rank")?)?)?;
    rank.filter(|_| maybe_blanks(tail) == b"{")
}

/// A number, or `-1` for any.
#[derive(Clone, Copy)]
enum Number {
    /// `None` if it is too large.
    Value(Option<u64>),
    Any,
}

/// The text of an operation; numbers that are too large are `None`.
struct OperationText {
    kind: u8,
    amount: Option<u64>,
    /// Whether it is `to`, and the rank.
    peer: Option<(bool, Number)>,
    tag: Option<Number>,
    core: Option<Option<u64>>,
    adapter: Option<u64>,
}

/// `send 8b to 1 tag 5 cpu 0 nic 0`, `recv 8b from 1`, `calc 100`.
#[inline]
fn operation(text: &[u8]) -> Option<OperationText> {
    let (name, remaining) = text.split_at_checked(4)?;
    let kind = match name {
        b"send" => op::ISEND,
        b"recv" => op::IRECV,
        b"calc" => op::COMPUTE,
        _ => return None,
    };
    let (amount, remaining) = number(blanks(remaining)?)?;
    let mut remaining = remaining.strip_prefix(b"b").unwrap_or(remaining);
    let mut parsed =
        OperationText { kind, amount, peer: None, tag: None, core: None, adapter: None };
    let mut first = true;
    while !remaining.is_empty() {
        let (word, tail) = keyword(blanks(remaining)?)?;
        let tail = blanks(tail)?;
        let (value, tail) = match tail {
            [b'-', b'1', tail @ ..] if tail.first().is_none_or(|&byte| is_blank(byte)) => {
                (Number::Any, tail)
            }
            _ => number(tail).map(|(value, tail)| (Number::Value(value), tail))?,
        };
        match (word, value) {
            (Keyword::To | Keyword::From, _) if first => {
                parsed.peer = Some((word == Keyword::To, value));
            }
            (Keyword::Tag, _) => parsed.tag = parsed.tag.or(Some(value)),
            (Keyword::Cpu, Number::Value(core)) => parsed.core = parsed.core.or(Some(core)),
            (Keyword::Nic, Number::Value(adapter)) => parsed.adapter = adapter,
            _ => return None,
        }
        first = false;
        remaining = tail;
    }
    Some(parsed)
}

/// A word before a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keyword {
    To,
    From,
    Tag,
    Cpu,
    Nic,
}

/// Splits a keyword from the beginning of a text; blanks must follow.
#[inline(always)]
fn keyword(text: &[u8]) -> Option<(Keyword, &[u8])> {
    Some(match text {
        [b't', b'o', tail @ ..] => (Keyword::To, tail),
        [b'f', b'r', b'o', b'm', tail @ ..] => (Keyword::From, tail),
        [b't', b'a', b'g', tail @ ..] => (Keyword::Tag, tail),
        [b'c', b'p', b'u', tail @ ..] => (Keyword::Cpu, tail),
        [b'n', b'i', b'c', tail @ ..] => (Keyword::Nic, tail),
        _ => return None,
    })
}

impl Schedule {
    /// Sorts the blocks by rank, and numbers streams in this order.
    fn reorder(&mut self, blocks: &[u32]) {
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        order.sort_by_key(|&at| blocks[at]);
        let mut streams = Interner::default();
        let old = std::mem::take(self);
        (self.cores, self.adapters, self.rank_start) = (old.cores, old.adapters, vec![0]);
        for block in order {
            let (begin, end) = (old.rank_start[block], old.rank_start[block + 1]);
            let shift = (self.kind.len() as u32).wrapping_sub(begin);
            for row in begin as usize..end as usize {
                let (kind, tag) = match old.kind[row] {
                    op::ISEND | op::IRECV => old.streams[old.stream[row] as usize],
                    _ => (op::COMPUTE, 0),
                };
                let (peer, amount) = (old.peer[row], old.amount[row]);
                self.push(&Operation { kind, peer, amount, tag }, &mut streams);
                // Only the number changes, not the flag in the highest bit.
                let required =
                    old.required.of(row).iter().map(|&operation| operation.wrapping_add(shift));
                self.required.source.extend(required);
                self.required.end.push(self.required.source.len() as u32);
            }
            self.line.extend(old.line.get(begin as usize..end as usize).unwrap_or_default());
            self.rank_start.push(self.kind.len() as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GoalReader, ScheduleError, read};
    use crate::graph::{ANY_SOURCE, ANY_TAG, AT_START};
    use crate::op;

    #[test]
    fn adapters_of_a_rank_are_counted() {
        let text =
            b"num_ranks 2\nrank 0 {\nsend 8b to 1 nic 0\nsend 8b to 1 nic 3\ncalc 1 nic 2\n}\n\
                     rank 1 {\nrecv 8b from 0\nrecv 8b from 0\n}\n";
        assert_eq!(read(text, 1 << 60).expect("a valid trace").adapters, 2);
    }

    #[test]
    fn blocks_are_put_in_the_order_of_ranks() {
        let text = b"num_ranks 2\nrank 1 {\na: recv 8b from 0\nb: calc 2 cpu 3\nb requires a\nb irequires a\n}\n\
                     rank 0 {\nsend 8b to 1 tag 0 nic 1\n}\n";
        let schedule = read(text, 1 << 60).expect("a valid trace");
        assert_eq!(schedule.rank_start, [0, 1, 3]);
        assert_eq!(
            (schedule.required.end, schedule.required.source),
            (vec![0, 0, 2], vec![1, 1 | AT_START])
        );
        assert_eq!(schedule.amount, [8, 8, 2000]);
        assert_eq!(schedule.line, [8, 2, 3]);
        assert_eq!(schedule.streams, [(op::ISEND, 0), (op::IRECV, 0)]);
    }

    #[test]
    fn schedules_may_come_in_pieces() {
        let mut reader = GoalReader::new(1 << 60, false);
        for piece in [
            &b"num_ranks 1\nrank 0 {\nb2 requires first_one\n"[..],
            b"b2: calc 4\n",
            b"first_one: recv 8b from -1 tag -1 nic 0\ncalc 0\n}",
        ] {
            reader.feed(piece).expect("valid lines");
        }
        let schedule = reader.finish().expect("a valid trace");
        assert_eq!(schedule.kind, [op::COMPUTE, op::IRECV, op::NOTHING]);
        assert_eq!(
            (schedule.peer[1], &schedule.streams[..]),
            (ANY_SOURCE, &[(op::IRECV, ANY_TAG)][..])
        );
        assert_eq!((schedule.required.end, schedule.required.source), (vec![1, 1, 1], vec![1]));
    }

    #[test]
    fn a_huge_rank_count_takes_no_memory() {
        let text = b"num_ranks 999999999999\nrank 0 {\n}\n";
        assert_eq!(
            read(text, 1 << 60).err(),
            Some(ScheduleError::MissingBlock(1, 999_999_999_999))
        );
    }
}
