//! Turns the records of a trace into columns, rank by rank.

use super::calls::{Action, LineError, POSTS, Record, ReplayCalls, TYPED};
use crate::assembly::UNKNOWN;
use crate::numbering::Map;

/// SimGrid's values of MPI_PROC_NULL and MPI_ANY_TAG; any other negative source is MPI_ANY_SOURCE.
const PROC_NULL: i32 = -666;
const ANY_TAG: i32 = -444;

/// The records of each rank, in the order of their lines.
pub(super) struct RankOrder {
    pub first: Vec<u32>,
    order: Option<Vec<u32>>,
}

impl RankOrder {
    pub fn of(records: &[Record], largest: u64) -> Result<Self, LineError> {
        if records.is_empty() {
            return Err(LineError::Empty);
        }
        if largest >= records.len() as u64 {
            let mut ranks: Vec<u32> = records.iter().map(|record| record.rank).collect();
            ranks.sort_unstable();
            ranks.dedup();
            let gap = ranks.iter().enumerate().find(|&(at, &rank)| at as u64 != u64::from(rank));
            let missing = gap.map_or(ranks.len(), |(at, _)| at);
            return Err(LineError::MissingRank(missing as u64, largest));
        }
        let n = largest as usize + 1;
        let mut first = vec![0u32; n + 1];
        for record in records {
            first[record.rank as usize + 1] += 1;
        }
        if let Some(rank) = first[1..].iter().position(|&lines| lines == 0) {
            return Err(LineError::MissingRank(rank as u64, largest));
        }
        for at in 0..n {
            first[at + 1] += first[at];
        }
        if records.is_sorted_by_key(|record| record.rank) {
            return Ok(Self { first, order: None });
        }
        let mut next = first.clone();
        let mut order = vec![0; records.len()];
        for (at, record) in records.iter().enumerate() {
            let slot = &mut next[record.rank as usize];
            order[*slot as usize] = at as u32;
            *slot += 1;
        }
        Ok(Self { first, order: Some(order) })
    }

    pub fn of_rank<'r>(
        &'r self,
        records: &'r [Record],
        rank: u32,
    ) -> impl Iterator<Item = &'r Record> + Clone {
        (self.first[rank as usize]..self.first[rank as usize + 1]).map(move |at| {
            &records[self.order.as_ref().map_or(at, |order| order[at as usize]) as usize]
        })
    }
}

/// Turns records into columns.
pub(super) struct CallRows {
    pub out: ReplayCalls,
    labels: Map<(u8, u32), u32>,
    /// Tag and label of the last message of each kind of call.
    last: [Option<(i32, u32)>; POSTS.len()],
}

/// Source, destination and tag of a message.
type MessageKey = (i32, i32, i32);

impl CallRows {
    pub fn new(out: ReplayCalls) -> Self {
        Self { out, labels: Map::default(), last: [None; POSTS.len()] }
    }

    pub fn rank<'r>(
        &mut self,
        records: impl Iterator<Item = &'r Record> + Clone,
    ) -> Result<(), LineError> {
        let named = records.clone().any(|record| record.what == Action::Wait);
        // Open requests, the oldest first.
        let mut open: Map<MessageKey, std::collections::VecDeque<usize>> = Map::default();
        for record in records {
            let me = record.rank as i32;
            match record.what {
                Action::Post { call, is_send } => {
                    let at = self.post(record, call, is_send)?;
                    if let Some(at) = at.filter(|_| named && !blocking(call)) {
                        let (from, to) =
                            if is_send { (me, record.peer) } else { (record.peer, me) };
                        open.entry((from, to, record.tag)).or_default().push_back(at);
                    }
                }
                Action::Wait => {
                    let key = (record.amount as u32 as i32, record.peer, record.tag);
                    if let Some(at) = open.get_mut(&key).and_then(|some| some.pop_front()) {
                        self.out.posts.wait_position[at] = 2 * record.row as i64 + 1;
                    }
                }
                Action::WaitAll => {
                    open.clear();
                    self.out.waitalls.push(record.rank, record.row);
                }
                Action::Compute if record.amount > 0 => {
                    self.out.computes.push(record.rank, record.row);
                    self.out.computes_ps.push(record.amount);
                }
                Action::Collective => {
                    self.out.collectives.push(record.rank, record.row);
                    self.out.collective_kind.push(record.amount as u32);
                }
                Action::Compute | Action::Nothing | Action::Init | Action::Finalize => {}
            }
        }
        Ok(())
    }

    /// The number of a label; mostly the same as for the last message of the same call.
    fn label(&mut self, call: u8, tag: i32) -> u32 {
        let last = &mut self.last[call as usize];
        if let Some(number) = last.filter(|label| label.0 == tag) {
            return number.1;
        }
        let next = self.out.labels.len() as u32;
        let label = *self.labels.entry((call, tag as u32)).or_insert(next);
        if label == next {
            self.out.labels.push((call, tag));
        }
        *last = Some((tag, label));
        label
    }

    /// Adds a send or receive and returns its index; `None` for MPI_PROC_NULL.
    fn post(
        &mut self,
        record: &Record,
        call: u8,
        is_send: bool,
    ) -> Result<Option<usize>, LineError> {
        if record.peer == PROC_NULL {
            self.out.proc_null += 1;
            return Ok(None);
        }
        let wildcard = !is_send && (record.peer < 0 || record.tag == ANY_TAG);
        let n_ranks = self.out.n_ranks;
        if !wildcard && (record.peer < 0 || record.peer as u32 >= n_ranks) {
            return Err(LineError::NoSuchRank(record.row, record.peer, n_ranks));
        }
        let size = match record.amount & TYPED {
            0 => record.amount * self.out.default_bytes,
            _ => record.amount & !TYPED,
        };
        let label = self.label(call, record.tag);
        let position = 2 * record.row as i64;
        let posts = &mut self.out.posts;
        posts.rank.push(i64::from(record.rank));
        posts.position.push(position);
        posts.step.push(i64::from(is_send));
        posts.is_send.push(is_send);
        posts.peer.push(if wildcard { UNKNOWN } else { i64::from(record.peer) });
        posts.channel.push(i64::from(record.tag));
        posts.size.push(size);
        posts.label.push(i64::from(label));
        posts.wait_position.push(if blocking(call) { position + 1 } else { UNKNOWN });
        posts.peer_known.push(!wildcard && (is_send || size > 0));
        Ok(Some(posts.rank.len() - 1))
    }
}

fn blocking(call: u8) -> bool {
    !POSTS[call as usize].starts_with('i')
}
