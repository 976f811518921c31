//! GOAL schedules in the binary form of LogGOPSim's `txt2bin` (also that of ATLAHS): little-endian.
//!
//! The file begins with the number 4223 (64 bits), the number of ranks (32 bits), the largest numbers of a
//! core and of an adapter (8 bits each), and where the part of each rank begins and ends (64 bits each,
//! counted from byte 8). A part consists of the number of operations, of those that require nothing, and
//! the indices of the latter (32 bits each), the operations (39 bytes each), and the indices of the
//! operations that depend on each: first those that require its end, then those that require its begin.

use crate::goal::{Operation, Schedule};
use crate::graph::{ANY_SOURCE, ANY_TAG};
use crate::numbering::Interner;
use crate::op;
use crate::requirements::Dependency;

/// Offsets within a file are counted from here.
const ORIGIN: u64 = 8;
/// Bytes before the table of the parts.
const TABLE: usize = 14;
const OPERATION_BYTES: u64 = 39;
const MAX_BYTES: u64 = 1 << 53;
const PS_PER_NS: u64 = 1000;
/// Any source, any tag.
const ANY: u32 = u32::MAX;
/// Limit of operations, as for schedules in text form.
const MAX_OPERATIONS: usize = 1 << 29;

/// What is wrong with a file.
#[derive(Debug, PartialEq, Eq)]
pub struct BinaryFault {
    /// Offset in bytes.
    pub byte: u64,
    /// What is wrong there.
    pub what: String,
}

/// Reads a schedule; `longest_ps` is the longest valid computation.
///
/// # Errors
/// [`BinaryFault`] if the file is truncated or damaged.
pub fn read(data: &[u8], longest_ps: u64) -> Result<Schedule, BinaryFault> {
    let file = Bytes { data };
    let n_ranks = file.u32(ORIGIN)?;
    let mut out = Builder::default();
    out.schedule.rank_start.push(0);
    let mut free = (TABLE as u64).saturating_add(16 * u64::from(n_ranks));
    if free > data.len() as u64 {
        return Err(cut(data));
    }
    for rank in 0..n_ranks {
        let entry = TABLE as u64 + 16 * u64::from(rank);
        let place = |at| Ok(file.u64(at)?.saturating_add(ORIGIN));
        let (begin, end) = (place(entry)?, place(entry + 8)?);
        if end > data.len() as u64 {
            return Err(cut(data));
        }
        // Parts follow each other: otherwise a small file could hold any number of operations.
        if begin < free || end < begin {
            return Err(fault(
                entry,
                format!("rank {rank} has no schedule, or it overlaps another"),
            ));
        }
        free = end;
        let part =
            RankPart { file: Bytes { data: &data[..end as usize] }, rank, n_ranks, longest_ps };
        part.read(begin, &mut out)?;
        out.schedule.close_rank(&mut out.dependencies);
    }
    Ok(out.schedule)
}

/// What has been read so far; the dependencies are those of the rank that is being read.
#[derive(Default)]
struct Builder {
    schedule: Schedule,
    streams: Interner,
    dependencies: Vec<Dependency>,
}

fn fault(byte: u64, what: String) -> BinaryFault {
    BinaryFault { byte, what }
}

fn cut(data: &[u8]) -> BinaryFault {
    fault(data.len() as u64, "the file is cut short".to_owned())
}

#[derive(Clone, Copy)]
struct Bytes<'a> {
    data: &'a [u8],
}

impl Bytes<'_> {
    #[inline]
    fn get<const N: usize>(&self, at: u64) -> Result<[u8; N], BinaryFault> {
        let tail = usize::try_from(at).ok().and_then(|at| self.data.get(at..));
        tail.and_then(|tail| tail.first_chunk()).copied().ok_or_else(|| cut(self.data))
    }

    #[inline]
    fn u32(&self, at: u64) -> Result<u32, BinaryFault> {
        self.get(at).map(u32::from_le_bytes)
    }

    #[inline]
    fn u64(&self, at: u64) -> Result<u64, BinaryFault> {
        self.get(at).map(u64::from_le_bytes)
    }
}

/// Reads the part of one rank, which reaches to the end of `file`.
struct RankPart<'a> {
    file: Bytes<'a>,
    rank: u32,
    n_ranks: u32,
    longest_ps: u64,
}

impl RankPart<'_> {
    fn read(&self, begin: u64, out: &mut Builder) -> Result<(), BinaryFault> {
        let (count, roots) = (self.file.u32(begin)?, self.file.u32(begin + 4)?);
        let operations = begin + 8 + 4 * u64::from(roots);
        let appendix = operations + OPERATION_BYTES * u64::from(count);
        let end = self.file.data.len() as u64;
        if appendix > end {
            let what =
                format!("rank {} has {count} operations, more than its part holds", self.rank);
            return Err(fault(begin, what));
        }
        let first = out.schedule.kind.len();
        if first + count as usize >= MAX_OPERATIONS {
            return Err(fault(begin, "more operations than Tailback can number".to_owned()));
        }
        let (mut cores, mut adapters) = ([false; 256], [false; 256]);
        // Each index of the appendix belongs to one list, so lists cannot be longer than the file.
        let (dependencies, mut used) = ((end - appendix) / 4, 0);
        for index in 0..u64::from(count) {
            let at = operations + OPERATION_BYTES * index;
            let (computes, core, adapter) = self.operation(at, out)?;
            if computes {
                cores[core] = true;
            } else {
                adapters[adapter] = true;
            }
            for (field, begun) in [(23, false), (31, true)] {
                let (length, start) = (self.file.u32(at + field)?, self.file.u32(at + field + 4)?);
                used += u64::from(length);
                if u64::from(start) + u64::from(length) > dependencies && length > 0
                    || used > dependencies
                {
                    let what = "dependencies beyond the end of the rank's part".to_owned();
                    return Err(fault(at + field, what));
                }
                for number in u64::from(start)..u64::from(start) + u64::from(length) {
                    let place = appendix + 4 * number;
                    let after = self.file.u32(place)?;
                    if after >= count {
                        let what = format!("operation {after}, but the rank has only {count}");
                        return Err(fault(place, what));
                    }
                    let (before, after) = (first as u32 + index as u32, first as u32 + after);
                    out.dependencies.push(Dependency { before, after, begun });
                }
            }
        }
        let count = |used: &[bool]| used.iter().filter(|&&used| used).count() as u32;
        out.schedule.cores = out.schedule.cores.max(count(&cores));
        out.schedule.adapters = out.schedule.adapters.max(count(&adapters));
        Ok(())
    }

    /// Adds an operation; returns whether it computes, its core and its adapter.
    fn operation(&self, at: u64, out: &mut Builder) -> Result<(bool, usize, usize), BinaryFault> {
        let [kind] = self.file.get(at + 4)?;
        let (peer, amount) = (self.file.u32(at + 5)?, self.file.u64(at + 9)?);
        let (tag, [core, adapter]) = (self.file.u32(at + 17)?, self.file.get(at + 21)?);
        let kind = match kind {
            1 => op::ISEND,
            2 => op::IRECV,
            3 => op::COMPUTE,
            other => return Err(fault(at + 4, format!("an operation of unknown type {other}"))),
        };
        let computes = kind == op::COMPUTE;
        let any_source = kind == op::IRECV && peer == ANY;
        if !computes && !any_source && peer >= self.n_ranks {
            return Err(fault(at + 5, format!("rank {peer} of {} ranks", self.n_ranks)));
        }
        if amount > if computes { self.longest_ps / PS_PER_NS } else { MAX_BYTES } {
            return Err(fault(at + 9, format!("a size or time of {amount} is out of range")));
        }
        let (peer, tag, amount) = match kind {
            op::COMPUTE => (-1, 0, amount * PS_PER_NS),
            op::IRECV if tag == ANY => (peer as i32, ANY_TAG, amount),
            _ => (peer as i32, tag.into(), amount),
        };
        let peer = if any_source { ANY_SOURCE } else { peer };
        out.schedule.push(&Operation { kind, peer, amount, tag }, &mut out.streams);
        Ok((computes, core.into(), adapter.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::{ANY, BinaryFault, read};
    use crate::graph::{ANY_SOURCE, ANY_TAG};
    use crate::op;

    /// Two ranks: a computation and a send that requires it; a receive.
    fn file() -> Vec<u8> {
        let operation = |kind: u8, peer: u32, amount: u64, lists: [u32; 4]| {
            let mut out = vec![0; 4];
            out.push(kind);
            out.extend(peer.to_le_bytes());
            out.extend(amount.to_le_bytes());
            out.extend([9, 0, 0, 0, 0, 0]);
            out.extend(lists.into_iter().flat_map(u32::to_le_bytes));
            out
        };
        let part = |operations: &[Vec<u8>], appendix: &[u32]| {
            let count = operations.len() as u32;
            let mut out = [count, 1, 0].into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
            out.extend(operations.concat());
            out.extend(appendix.iter().flat_map(|index| index.to_le_bytes()));
            out
        };
        let parts = [
            part(&[operation(3, 0, 5, [1, 0, 0, 1]), operation(1, 1, 64, [0, 1, 0, 1])], &[1]),
            part(&[operation(2, 0, 64, [0; 4])], &[]),
        ];
        let mut out = 4223u64.to_le_bytes().to_vec();
        out.extend([2, 0, 0, 0, 0, 0]);
        let mut begin = 38u64;
        for rank_part in &parts {
            out.extend(begin.to_le_bytes());
            begin += rank_part.len() as u64;
            out.extend(begin.to_le_bytes());
        }
        out.extend(parts.concat());
        out
    }

    #[test]
    fn operations_and_dependencies_are_read() {
        let schedule = read(&file(), 1 << 60).expect("a valid schedule");
        assert_eq!((schedule.rank_start, schedule.peer), (vec![0, 2, 3], vec![-1, 1, 0]));
        assert_eq!((schedule.amount, schedule.stream), (vec![5000, 64, 64], vec![0, 0, 1]));
        assert_eq!(schedule.streams, [(op::ISEND, 9), (op::IRECV, 9)]);
        assert_eq!((schedule.required.end, schedule.required.source), (vec![0, 1, 1], vec![0]));
        assert_eq!((schedule.cores, schedule.adapters), (1, 1));
    }

    #[test]
    fn receives_from_any_source_with_any_tag_are_read() {
        let mut data = file();
        // Source and tag of the last operation, a receive without dependencies.
        let at = data.len() - 39;
        data[at + 5..at + 9].copy_from_slice(&ANY.to_le_bytes());
        data[at + 17..at + 21].copy_from_slice(&ANY.to_le_bytes());
        let schedule = read(&data, 1 << 60).expect("a valid schedule");
        assert_eq!((schedule.peer[2], schedule.streams[1]), (ANY_SOURCE, (op::IRECV, ANY_TAG)));
    }

    #[test]
    fn truncated_files_are_refused() {
        let bytes = file();
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length], 1 << 60).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn parts_that_overlap_are_refused() {
        let mut data = file();
        // The second rank begins where the first does.
        data.copy_within(14..22, 30);
        let BinaryFault { byte, what } = read(&data, 1 << 60).expect_err("the parts overlap");
        assert_eq!((byte, what.as_str()), (30, "rank 1 has no schedule, or it overlaps another"));
    }
}
