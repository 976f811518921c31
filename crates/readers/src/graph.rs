//! Graphs of operations and their dependencies.

use crate::op;

/// Marks a requirement that is met when its operation has begun, not when it has ended.
pub(crate) const AT_START: u32 = 1 << 31;
/// Peer of a receive from any source.
pub(crate) const ANY_SOURCE: i32 = -1;
/// Matching tag of a receive with any tag; no reader makes it from a tag of 32 bits.
pub(crate) const ANY_TAG: i64 = i64::MIN;

/// Operations of all ranks, rank by rank, and dependencies within ranks.
#[derive(Clone, Copy)]
pub struct Graph<'a> {
    /// First operation of each rank, and the number of operations.
    pub rank_start: &'a [u32],
    /// Kind of each operation, as in [`op`]; computations take time.
    pub kind: &'a [u8],
    /// The other rank of a send or receive, [`ANY_SOURCE`] of a receive from any.
    pub peer: &'a [i32],
    /// Bytes or picoseconds.
    pub amount: &'a [u64],
    /// Number of the stream of each send and receive: what its tag and label are.
    pub stream: &'a [u32],
    /// Matching tag of each stream, [`ANY_TAG`] of receives with any.
    pub channel: &'a [i64],
    /// Number of the label of each stream.
    pub label: &'a [u32],
    /// End of the list of requirements of each operation.
    pub end: &'a [u32],
    /// What operations require, list by list, with [`AT_START`].
    pub source: &'a [u32],
}

impl Graph<'_> {
    /// Whether the columns make a graph: equal lengths, and numbers of things that exist.
    pub fn is_valid(&self) -> bool {
        let n = self.kind.len();
        let (Some(&0), Some(&last)) = (self.rank_start.first(), self.rank_start.last()) else {
            return false;
        };
        let sorted = self.rank_start.is_sorted() && self.end.is_sorted();
        let columns = [self.peer.len(), self.amount.len(), self.stream.len(), self.end.len()];
        let lists = self.end.last().map_or(0, |&end| end as usize);
        let message = |at: usize| self.kind[at] == op::ISEND || self.kind[at] == op::IRECV;
        sorted
            && last as usize == n
            && columns == [n; 4]
            && lists == self.source.len()
            && self.channel.len() == self.label.len()
            && (0..n).all(|at| !message(at) || (self.stream[at] as usize) < self.channel.len())
            && self.rank_start.windows(2).all(|ends| {
                let operations = ends[0]..ends[1];
                operations.clone().all(|at| {
                    self.required(at as usize)
                        .iter()
                        .all(|&requirement| operations.contains(&(requirement & !AT_START)))
                })
            })
    }

    /// What an operation requires.
    #[inline]
    pub(crate) fn required(&self, at: usize) -> &[u32] {
        let begin = if at == 0 { 0 } else { self.end[at - 1] };
        &self.source[begin as usize..self.end[at] as usize]
    }

    /// The rank of an operation.
    pub(crate) fn rank_of(&self, at: usize) -> usize {
        self.rank_start.partition_point(|&first| first as usize <= at) - 1
    }

    /// Number of receives from any source or with any tag.
    pub(crate) fn wildcards(&self) -> u64 {
        let any = |at: usize| {
            self.kind[at] == op::IRECV
                && (self.peer[at] == ANY_SOURCE
                    || self.channel[self.stream[at] as usize] == ANY_TAG)
        };
        (0..self.kind.len()).filter(|&at| any(at)).count() as u64
    }
}
