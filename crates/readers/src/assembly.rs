//! Matches sends with receives and orders the operations of each rank.

use crate::matching::{MessageRows, NONE, match_messages};
use tailback_program::{OpKind, Program};

/// A peer or a wait that the trace does not record.
pub const UNKNOWN: i64 = -1;
/// A step after all others at its position.
const LAST_STEP: i64 = 1 << 40;

/// Sends and receives that ranks post, as columns of equal length.
#[derive(Clone, Copy)]
pub struct Posts<'a> {
    /// Rank that posts.
    pub rank: &'a [i64],
    /// Position in the order of the rank's events.
    pub position: &'a [i64],
    /// Order among posts at the same position.
    pub step: &'a [i64],
    /// Whether it is a send; else a receive.
    pub is_send: &'a [bool],
    /// The other rank, or [`UNKNOWN`].
    pub peer: &'a [i64],
    /// Key, such as communicator and tag, that must be equal for a send and a receive to match.
    pub channel: &'a [i64],
}

/// Further columns of posts, needed to build a program.
#[derive(Clone, Copy)]
pub struct Completions<'a> {
    /// Size in bytes.
    pub size: &'a [u64],
    /// Number of the label.
    pub label: &'a [i64],
    /// Position of the wait for each post, or [`UNKNOWN`].
    pub wait_position: &'a [i64],
    /// Order among waits at the same position.
    pub wait_step: &'a [i64],
}

/// Posts that a reader has found, with the columns of [`Posts`] and [`Completions`].
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct RecordedPosts {
    pub rank: Vec<i64>,
    pub position: Vec<i64>,
    pub step: Vec<i64>,
    pub is_send: Vec<bool>,
    pub peer: Vec<i64>,
    pub channel: Vec<i64>,
    pub size: Vec<u64>,
    pub label: Vec<i64>,
    pub wait_position: Vec<i64>,
    /// Empty in formats in which positions suffice to order waits.
    pub wait_step: Vec<i64>,
    /// Whether the trace records peer and size.
    pub peer_known: Vec<bool>,
}

impl RecordedPosts {
    /// Reserves capacity for the given number of posts.
    pub fn reserve(&mut self, posts: usize) {
        for column in [
            &mut self.rank,
            &mut self.position,
            &mut self.step,
            &mut self.peer,
            &mut self.channel,
            &mut self.label,
            &mut self.wait_position,
            &mut self.wait_step,
        ] {
            column.reserve_exact(posts);
        }
        self.is_send.reserve_exact(posts);
        self.size.reserve_exact(posts);
        self.peer_known.reserve_exact(posts);
    }
}

/// Waits or computations of ranks, as columns of equal length.
#[derive(Clone, Copy)]
pub struct Events<'a, T> {
    /// Rank.
    pub rank: &'a [i64],
    /// Position in the order of the rank's events.
    pub position: &'a [i64],
    /// For waits: the post, -1 for all open posts; for computations: picoseconds.
    pub value: &'a [T],
}

/// The order of posts by rank, position and step; `None` if they are already sorted.
fn sorted_order(posts: &Posts<'_>) -> Option<Vec<i64>> {
    let key = |at: usize| (posts.rank[at], posts.position[at], posts.step[at]);
    let n = posts.rank.len();
    if (1..n).all(|at| key(at - 1) <= key(at)) {
        return None;
    }
    let mut order: Vec<i64> = (0..n as i64).collect();
    order.sort_by_key(|&at| key(at as usize));
    Some(order)
}

/// Matches the k-th send with the k-th receive of each source, destination and channel.
///
/// Returns the order of posts by rank, position and step (`None` if they are already sorted), and for
/// each post in that order the index of its match, -1 if there is none.
pub fn match_posts(n_ranks: usize, posts: &Posts<'_>) -> (Option<Vec<i64>>, Vec<i64>) {
    let Some(order) = sorted_order(posts) else {
        return (None, match_sorted(n_ranks, posts));
    };
    fn take<T: Copy>(column: &[T], order: &[i64]) -> Vec<T> {
        order.iter().map(|&at| column[at as usize]).collect()
    }
    let sorted = Posts {
        rank: &take(posts.rank, &order),
        is_send: &take(posts.is_send, &order),
        peer: &take(posts.peer, &order),
        channel: &take(posts.channel, &order),
        ..*posts
    };
    let partner = match_sorted(n_ranks, &sorted);
    (Some(order), partner)
}

fn match_sorted(n_ranks: usize, posts: &Posts<'_>) -> Vec<i64> {
    let mut rank_start = vec![0];
    for rank in 0..n_ranks {
        let first = rank_start[rank];
        rank_start.push(
            first + posts.rank[first..].partition_point(|&post_rank| post_rank as usize == rank),
        );
    }
    let rank_start: Vec<u32> = rank_start.into_iter().map(|at| at as u32).collect();
    let pair = match_messages(posts, &rank_start);
    pair.into_iter().map(|at| if at == NONE { -1 } else { at.into() }).collect()
}

impl MessageRows for Posts<'_> {
    #[inline]
    fn is_send(&self, row: usize) -> Option<bool> {
        (self.peer[row] != UNKNOWN).then_some(self.is_send[row])
    }

    #[inline]
    fn peer(&self, row: usize) -> u32 {
        self.peer[row] as u32
    }

    #[inline]
    fn channel(&self, row: usize) -> i64 {
        self.channel[row]
    }

    #[inline]
    fn order(&self, _row: usize) -> u32 {
        0
    }
}

/// Builds a program from posts, waits and computations.
///
/// The posts must be sorted by rank, position and step. At equal positions and steps, posts come first,
/// then the waits for them, then other waits, then computations.
pub fn assemble(
    n_ranks: usize,
    posts: &Posts<'_>,
    ends: &Completions<'_>,
    waits: &Events<'_, i64>,
    computes: &Events<'_, u64>,
) -> Program {
    let n = posts.rank.len();
    let completed = ends.wait_position.iter().filter(|&&at| at != UNKNOWN).count();
    let events = n + completed + waits.rank.len() + computes.rank.len();
    let mut out = Program::with_capacity(n_ranks, events);
    let of_waits = ByRank::new(n_ranks, waits.rank);
    let of_computes = ByRank::new(n_ranks, computes.rank);
    // Position, step and post of the waits of a rank; position and picoseconds of its computations.
    let mut wait_events: Vec<(i64, i64, i64)> = Vec::new();
    let mut compute_events: Vec<(i64, u64)> = Vec::new();
    let mut first = 0;
    for rank in 0..n_ranks {
        let last =
            first + posts.rank[first..].partition_point(|&post_rank| post_rank as usize <= rank);
        wait_events.clear();
        for at in (first..last).filter(|&at| ends.wait_position[at] != UNKNOWN) {
            wait_events.push((ends.wait_position[at], ends.wait_step[at], at as i64));
        }
        let others = of_waits.of(rank);
        wait_events.extend(others.map(|at| (waits.position[at], LAST_STEP, waits.value[at])));
        // These sorts are stable, and fast if the input is already sorted.
        wait_events.sort_by_key(|&(position, step, _)| (position, step));
        compute_events.clear();
        compute_events
            .extend(of_computes.of(rank).map(|at| (computes.position[at], computes.value[at])));
        compute_events.sort_by_key(|&(position, _)| position);
        let (mut wait_events, mut compute_events) = (&wait_events[..], &compute_events[..]);
        let mut at = first;
        loop {
            const NEVER: (i64, i64) = (i64::MAX, i64::MAX);
            let post = if at < last { (posts.position[at], posts.step[at]) } else { NEVER };
            let wait = wait_events.first().map_or(NEVER, |&(position, step, _)| (position, step));
            let compute = compute_events.first().map_or(NEVER, |&(position, _)| (position, 0));
            if at < last && post <= wait && post <= compute {
                let kind = if posts.is_send[at] { OpKind::Isend } else { OpKind::Irecv };
                let (peer, request) = (posts.peer[at] as i32, (at - first) as i32);
                let label = ends.label[at] as u32;
                out.push(kind, peer, ends.size[at], posts.channel[at], request, label);
                at += 1;
            } else if let (Some((&(_, _, post), tail)), true) =
                (wait_events.split_first(), wait <= compute)
            {
                match post {
                    0.. => {
                        let request = (post - first as i64) as i32;
                        out.push(OpKind::Wait, -1, 0, 0, request, 0);
                    }
                    _ => out.push(OpKind::Waitall, -1, 0, 0, -1, 0),
                }
                wait_events = tail;
            } else if let Some((&(_, ps), tail)) = compute_events.split_first() {
                out.push(OpKind::Compute, -1, ps, 0, -1, 0);
                compute_events = tail;
            } else {
                break;
            }
        }
        out.close_rank();
        first = last;
    }
    out
}

/// Rows grouped by rank, in their original order within each rank.
pub(crate) struct ByRank {
    first: Vec<usize>,
    order: Option<Vec<u32>>,
}

impl ByRank {
    pub fn new(n_ranks: usize, rank: &[i64]) -> Self {
        let mut first = vec![0; n_ranks + 1];
        for &rank_of_row in rank {
            first[rank_of_row as usize + 1] += 1;
        }
        for at in 0..n_ranks {
            first[at + 1] += first[at];
        }
        if rank.is_sorted() {
            return Self { first, order: None };
        }
        let mut next = first.clone();
        let mut order = vec![0; rank.len()];
        for (at, &rank_of_row) in rank.iter().enumerate() {
            order[next[rank_of_row as usize]] = at as u32;
            next[rank_of_row as usize] += 1;
        }
        Self { first, order: Some(order) }
    }

    pub fn of(&self, rank: usize) -> impl Iterator<Item = usize> {
        (self.first[rank]..self.first[rank + 1])
            .map(|at| self.order.as_ref().map_or(at, |order| order[at] as usize))
    }
}
