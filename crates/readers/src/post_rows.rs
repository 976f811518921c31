//! Compiles sends and receives in the order of posting, as rows of 40 bytes, to a program.
//!
//! The rows of a rank are freed once its operations are written, from the last rank to the first, so that
//! the program and its input are never in memory together.

use tailback_program::{OpKind, Program};

use crate::assembly::{ByRank, Completions, Posts, RecordedPosts, UNKNOWN};
use crate::matching::{MessageRows, NONE, match_messages};

/// A wait that the trace does not record.
pub const NO_WAIT: u32 = u32::MAX;
/// A peer that the trace does not record.
pub const NO_PEER: u32 = u32::MAX;
/// Step of a wait after all others at its position.
pub(crate) const LAST_STEP: u32 = u32::MAX;
const SEND: u32 = 1 << 31;
const COLLECTIVE: u32 = 1 << 30;
/// Memory is returned to the system in pieces of at least so many rows.
const PIECE: usize = 1 << 14;

/// A send or receive.
#[derive(Debug, Clone, Copy)]
pub struct PostRow {
    /// Bytes.
    pub size: u64,
    /// Position in the order of the rank's events.
    pub position: u32,
    /// Order among posts at the same position.
    pub step: u32,
    /// Position of the wait for it, or [`NO_WAIT`].
    pub wait: u32,
    /// Order among waits at the same position.
    pub wait_step: u32,
    /// The other rank, or [`NO_PEER`].
    pub peer: u32,
    /// Number that must be equal for a send and a receive to match.
    pub channel: u32,
    /// Number of the label, with flags.
    label: u32,
}

impl PostRow {
    /// A post of a call between two ranks, with the position of its wait.
    #[inline]
    pub fn new(size: u64, (position, wait): (u32, u32), peer: u32, channel: u32) -> Self {
        Self { size, position, step: 0, wait, wait_step: LAST_STEP, peer, channel, label: 0 }
    }

    /// Sets the label and the direction; the post comes after the computation before its call.
    #[inline]
    pub(crate) fn labelled(mut self, label: u32, is_send: bool) -> Self {
        self.step = 1;
        self.label = label | if is_send { SEND } else { 0 };
        self
    }

    /// Sets the label and the direction, and leaves the order among posts as it is.
    #[inline]
    pub fn marked(mut self, label: u32, is_send: bool) -> Self {
        self.label = label | if is_send { SEND } else { 0 };
        self
    }

    /// Replaces the numbers of channel and label by those that tables give for them.
    #[inline]
    pub fn renumbered(mut self, channels: &[u32], labels: &[u32]) -> Self {
        self.channel = channels[self.channel as usize];
        self.label = self.label & (SEND | COLLECTIVE) | labels[self.label() as usize];
        self
    }

    #[inline]
    fn is_send(&self) -> bool {
        self.label & SEND != 0
    }

    #[inline]
    fn is_collective(&self) -> bool {
        self.label & COLLECTIVE != 0
    }

    #[inline]
    fn label(&self) -> u32 {
        self.label & !(SEND | COLLECTIVE)
    }
}

/// A computation.
#[derive(Debug, Clone, Copy)]
pub struct ComputeRow {
    /// Rank.
    pub rank: u32,
    /// Position in the order of the rank's events.
    pub position: u32,
    /// Picoseconds.
    pub ps: u64,
}

/// What the ranks of a trace do: posts, rank by rank in order, and computations.
#[derive(Debug, Default)]
pub struct RecordedRanks {
    /// Sends and receives.
    pub posts: Vec<PostRow>,
    /// First post of each rank, and their number.
    pub first: Vec<u32>,
    /// Computations, in order.
    pub computes: Vec<ComputeRow>,
    /// Tag of each channel in the program; a channel beyond the list is its own tag.
    pub tags: Vec<u32>,
}

/// Receives whose size differs from that of their send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DifferingSizes {
    /// Their number.
    pub number: u64,
    /// Rank of the first.
    pub rank: u32,
    /// Its sender.
    pub peer: u32,
    /// Its label.
    pub label: u32,
    /// Bytes sent and received.
    pub sizes: [u64; 2],
}

/// A program, and what was left out of it.
#[derive(Debug, Default)]
pub struct CompiledRanks {
    /// The program.
    pub program: Program,
    /// Labels of its messages, which it numbers in this order.
    pub labels: Vec<u32>,
    /// Number of sends, receives and messages of collectives without a partner.
    pub lost: [u64; 3],
    /// Messages with two sizes; the sender's counts.
    pub differing: Option<DifferingSizes>,
}

struct PostRows<'a>(&'a [PostRow]);

impl MessageRows for PostRows<'_> {
    #[inline]
    fn is_send(&self, row: usize) -> Option<bool> {
        Some(self.0[row].is_send())
    }

    #[inline]
    fn peer(&self, row: usize) -> u32 {
        self.0[row].peer
    }

    #[inline]
    fn channel(&self, row: usize) -> i64 {
        self.0[row].channel.into()
    }

    #[inline]
    fn order(&self, _row: usize) -> u32 {
        0
    }
}

impl RecordedRanks {
    /// Adds the posts of collectives, in any order; their positions and steps fit 32 bits.
    pub fn join(&mut self, posts: &Posts<'_>, ends: &Completions<'_>) {
        if posts.rank.is_empty() {
            return;
        }
        let n_ranks = self.first.len() - 1;
        let of = ByRank::new(n_ranks, posts.rank);
        let mut all = Vec::with_capacity(self.posts.len() + posts.rank.len());
        let mut first = vec![0];
        for rank in 0..n_ranks {
            let begin = all.len();
            let posts_of_rank = self.first[rank] as usize..self.first[rank + 1] as usize;
            all.extend_from_slice(&self.posts[posts_of_rank]);
            all.extend(of.of(rank).map(|at| collective_row(posts, ends, at)));
            let key = |row: &PostRow| (row.position, row.step);
            if !all[begin..].is_sorted_by_key(key) {
                all[begin..].sort_by_key(key);
            }
            first.push(all.len() as u32);
        }
        (self.posts, self.first) = (all, first);
    }

    /// The posts as columns, for traces with receives of unknown source, which this module cannot
    /// match.
    pub fn columns(&self) -> RecordedPosts {
        let mut out = RecordedPosts::default();
        out.reserve(self.posts.len());
        for (rank, ends) in self.first.windows(2).enumerate() {
            for post in &self.posts[ends[0] as usize..ends[1] as usize] {
                let (waited, has_peer) = (post.wait != NO_WAIT, post.peer != NO_PEER);
                out.rank.push(rank as i64);
                out.position.push(post.position.into());
                out.step.push(post.step.into());
                out.is_send.push(post.is_send());
                out.peer.push(if has_peer { post.peer.into() } else { UNKNOWN });
                out.channel.push(self.tags[post.channel as usize].into());
                out.size.push(post.size);
                out.label.push(post.label().into());
                out.wait_position.push(if waited { post.wait.into() } else { UNKNOWN });
                out.wait_step.push(post.wait_step.into());
                out.peer_known.push(has_peer);
            }
        }
        out
    }

    /// The program. `scatters` are the labels of calls whose sizes the receivers record.
    pub fn compile(mut self, scatters: &[u32]) -> CompiledRanks {
        let pair = match_messages(&PostRows(&self.posts), &self.first);
        let differing = self.reconcile_sizes(&pair, scatters);
        let lost = self.drop_unpaired(&pair);
        drop(pair);
        let labels = self.number_labels();
        CompiledRanks { program: self.write(), labels, lost, differing }
    }

    /// Gives both ends of each message the same size. This is the size sent, except for scatters,
    /// where the root records only the total.
    fn reconcile_sizes(&mut self, pair: &[u32], scatters: &[u32]) -> Option<DifferingSizes> {
        let posts = &mut self.posts;
        let matched = |at: usize, post: &PostRow| {
            (!post.is_send() && pair[at] != NONE).then(|| pair[at] as usize)
        };
        for at in 0..if scatters.is_empty() { 0 } else { posts.len() } {
            let post = posts[at];
            if let Some(send) = matched(at, &post)
                && post.is_collective()
                && scatters.contains(&post.label())
            {
                posts[send].size = post.size;
            }
        }
        let mut differing: Option<DifferingSizes> = None;
        for at in 0..posts.len() {
            let post = posts[at];
            let Some(send) = matched(at, &post) else { continue };
            let sent = posts[send].size;
            if sent == post.size {
                continue;
            }
            if !post.is_collective() {
                let rank = self.first.partition_point(|&first| first as usize <= at) as u32 - 1;
                let (peer, label, sizes) = (post.peer, post.label(), [sent, post.size]);
                let first = DifferingSizes { number: 0, rank, peer, label, sizes };
                differing.get_or_insert(first).number += 1;
            }
            posts[at].size = sent;
        }
        differing
    }

    /// Drops posts without a partner, which would block their rank forever.
    fn drop_unpaired(&mut self, pair: &[u32]) -> [u64; 3] {
        let mut lost = [0; 3];
        if !pair.contains(&NONE) {
            return lost;
        }
        let mut at = 0;
        let mut removed = vec![0u32; self.first.len()];
        let mut rank = 0;
        let first = &self.first;
        self.posts.retain(|post| {
            while first[rank + 1] as usize <= at {
                rank += 1;
            }
            let keep = pair[at] != NONE;
            at += 1;
            if !keep {
                removed[rank + 1] += 1;
                let kind = if post.is_collective() { 2 } else { usize::from(!post.is_send()) };
                lost[kind] += 1;
            }
            keep
        });
        let mut total = 0;
        for (first, removed) in self.first.iter_mut().zip(removed) {
            total += removed;
            *first -= total;
        }
        lost
    }

    /// Numbers the labels in use, and returns them in this order.
    fn number_labels(&mut self) -> Vec<u32> {
        let highest = self
            .posts
            .iter()
            .map(PostRow::label)
            .max()
            .map_or(0, |highest_label| highest_label as usize + 1);
        let mut number = vec![NONE; highest];
        self.posts.iter().for_each(|post| number[post.label() as usize] = 0);
        let mut labels = Vec::new();
        for (label, slot) in number.iter_mut().enumerate().filter(|(_, slot)| **slot == 0) {
            *slot = labels.len() as u32;
            labels.push(label as u32);
        }
        for post in &mut self.posts {
            post.label = post.label & (SEND | COLLECTIVE) | number[post.label() as usize];
        }
        labels
    }

    /// Writes the program, and frees the rows of each rank once they are written.
    fn write(mut self) -> Program {
        let n_ranks = self.first.len() - 1;
        let first_compute = first_of_ranks(&self.computes, n_ranks);
        let mut out = Program { rank_start: vec![0], ..Program::default() };
        let mut total = 0;
        for rank in 0..n_ranks {
            let posts = &self.posts[self.first[rank] as usize..self.first[rank + 1] as usize];
            let waits = posts.iter().filter(|post| post.wait != NO_WAIT).count();
            let computes = (first_compute[rank + 1] - first_compute[rank]) as usize;
            total += posts.len() + waits + computes + usize::from(waits < posts.len());
            out.rank_start.push(total as u64);
        }
        (out.kind, out.peer) = (vec![0; total], vec![0; total]);
        (out.amount, out.tag) = (vec![0; total], vec![0; total]);
        (out.request, out.label) = (vec![0; total], vec![0; total]);
        let mut waits = Vec::new();
        for rank in (0..n_ranks).rev() {
            let (post, compute) = (self.first[rank] as usize, first_compute[rank] as usize);
            let mut writer =
                RankWriter { tags: &self.tags, at: out.rank_start[rank] as usize, out: &mut out };
            writer.rank(&self.posts[post..], &self.computes[compute..], &mut waits);
            self.posts.truncate(post);
            self.computes.truncate(compute);
            if self.posts.capacity() - self.posts.len() > PIECE {
                self.posts.shrink_to_fit();
                self.computes.shrink_to_fit();
            }
        }
        out
    }
}

/// The post of a collective.
fn collective_row(posts: &Posts<'_>, ends: &Completions<'_>, at: usize) -> PostRow {
    let waited = ends.wait_position[at] != UNKNOWN;
    let label = ends.label[at] as u32 | COLLECTIVE;
    PostRow {
        size: ends.size[at],
        position: posts.position[at] as u32,
        step: posts.step[at] as u32,
        wait: if waited { ends.wait_position[at] as u32 } else { NO_WAIT },
        wait_step: ends.wait_step[at] as u32,
        peer: posts.peer[at] as u32,
        channel: posts.channel[at] as u32,
        label: label | if posts.is_send[at] { SEND } else { 0 },
    }
}

fn first_of_ranks(computes: &[ComputeRow], n_ranks: usize) -> Vec<u32> {
    let mut first = vec![0; n_ranks + 1];
    for row in computes {
        first[row.rank as usize + 1] += 1;
    }
    for rank in 0..n_ranks {
        first[rank + 1] += first[rank];
    }
    first
}

/// Writes the operations of one rank.
struct RankWriter<'a> {
    tags: &'a [u32],
    at: usize,
    out: &'a mut Program,
}

impl RankWriter<'_> {
    /// Merges posts, the waits for them and computations, in this order where positions and steps are
    /// equal.
    fn rank(
        &mut self,
        posts: &[PostRow],
        computes: &[ComputeRow],
        waits: &mut Vec<(u32, u32, i32)>,
    ) {
        waits.clear();
        let waited = posts.iter().zip(0..).filter(|(post, _)| post.wait != NO_WAIT);
        waits.extend(waited.map(|(post, request)| (post.wait, post.wait_step, request)));
        if !waits.is_sorted_by_key(|&(position, step, _)| (position, step)) {
            waits.sort_by_key(|&(position, step, _)| (position, step));
        }
        const NEVER: (u32, u32) = (u32::MAX, u32::MAX);
        let (mut post, mut wait, mut compute) = (0, 0, 0);
        loop {
            let post_key = posts.get(post).map_or(NEVER, |row| (row.position, row.step));
            let wait_key = waits.get(wait).map_or(NEVER, |event| (event.0, event.1));
            let compute_key = computes.get(compute).map_or(NEVER, |row| (row.position, 0));
            if post < posts.len() && post_key <= wait_key && post_key <= compute_key {
                self.post(&posts[post], post as i32);
                post += 1;
            } else if wait < waits.len() && wait_key <= compute_key {
                self.put(OpKind::Wait, -1, 0, 0, waits[wait].2, 0);
                wait += 1;
            } else if let Some(computation) = computes.get(compute) {
                self.put(OpKind::Compute, -1, computation.ps, 0, -1, 0);
                compute += 1;
            } else {
                break;
            }
        }
        if waits.len() < posts.len() {
            self.put(OpKind::Waitall, -1, 0, 0, -1, 0);
        }
    }

    #[inline]
    fn post(&mut self, post: &PostRow, request: i32) {
        let kind = if post.is_send() { OpKind::Isend } else { OpKind::Irecv };
        let tag = self.tags.get(post.channel as usize).unwrap_or(&post.channel);
        self.put(kind, post.peer as i32, post.size, i64::from(*tag), request, post.label());
    }

    #[inline]
    fn put(&mut self, kind: OpKind, peer: i32, amount: u64, tag: i64, request: i32, label: u32) {
        let (out, at) = (&mut *self.out, self.at);
        out.kind[at] = kind as u8;
        out.peer[at] = peer;
        out.amount[at] = amount;
        out.tag[at] = tag;
        out.request[at] = request;
        out.label[at] = label;
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{ComputeRow, NO_WAIT, OpKind, PostRow, RecordedRanks};
    use crate::assembly::{Completions, Posts};
    use crate::op;

    fn two_ranks() -> RecordedRanks {
        let post = |size, position, wait, peer| PostRow::new(size, (position, wait), peer, 0);
        RecordedRanks {
            posts: vec![
                post(8, 2, 3, 1).labelled(5, true),
                post(9, 4, NO_WAIT, 1).labelled(6, true),
                post(7, 0, 1, 0).labelled(7, false),
            ],
            first: vec![0, 2, 3],
            computes: vec![ComputeRow { rank: 0, position: 2, ps: 40 }],
            tags: vec![3],
        }
    }

    #[test]
    fn operations_are_merged_and_unmatched_posts_left_out() {
        let done = two_ranks().compile(&[]);
        let wait = OpKind::Wait as u8;
        assert_eq!(done.program.kind, [op::COMPUTE, op::ISEND, wait, op::IRECV, wait]);
        assert_eq!(done.program.rank_start, [0, 3, 5]);
        assert_eq!(done.program.amount, [40, 8, 0, 8, 0]);
        assert_eq!((done.program.tag[1], done.program.label[3]), (3, 1));
        assert_eq!((done.labels, done.lost), (vec![5, 7], [1, 0, 0]));
        let differing = done.differing.expect("the sizes differ");
        assert_eq!((differing.rank, differing.peer, differing.sizes), (1, 0, [8, 7]));
    }

    #[test]
    fn unwaited_requests_complete_at_the_end() {
        let mut ranks = two_ranks();
        ranks.posts.push(PostRow::new(9, (4, 5), 0, 0).labelled(7, false));
        ranks.first[2] = 4;
        let done = ranks.compile(&[]);
        assert_eq!(done.program.kind[3..5], [op::ISEND, OpKind::Waitall as u8]);
        assert_eq!(done.lost, [0; 3]);
    }

    #[test]
    fn collectives_are_merged_by_position() {
        let mut ranks = two_ranks();
        let posts = Posts {
            rank: &[1, 0],
            position: &[6, 1],
            step: &[1, 1],
            is_send: &[false, true],
            peer: &[0, 1],
            channel: &[1, 1],
        };
        let ends = Completions {
            size: &[30, 100],
            label: &[9, 9],
            wait_position: &[6, 1],
            wait_step: &[2, 2],
        };
        ranks.join(&posts, &ends);
        let done = ranks.compile(&[9]);
        assert_eq!(done.program.kind[..2], [op::ISEND, OpKind::Wait as u8]);
        assert_eq!((done.program.amount[0], done.program.tag[0]), (30, 1));
        assert_eq!(done.labels, [5, 7, 9]);
    }
}
