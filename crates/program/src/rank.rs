//! Execution of a rank by MPI's blocking rules, independent of how messages are transported.

use crate::{Message, Op, ProgramError, Request};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    No,
    Computing,
    For(Request),
}

/// A running rank: its position in the program, what it waits for, and the time it has spent.
///
/// The caller calls [`Rank::next`] and acts on the operation. After [`Op::Compute`], it calls again when
/// that time has passed. After an [`Op::Wait`] for an incomplete request, it calls [`Rank::block`] and
/// continues once [`Rank::completed`] returns a request that has completed.
#[derive(Debug, Clone)]
pub struct Rank {
    next_op: usize,
    waiting: Waiting,
    waiting_since: u64,
    open_requests: u32,
    /// When its last operation completed, in picoseconds.
    pub finish_ps: u64,
    /// Time spent computing, in picoseconds.
    pub compute_ps: u64,
    /// Time spent blocked in waits, in picoseconds.
    pub wait_ps: u64,
}

impl Rank {
    /// A rank about to execute `first_op`.
    pub fn new(first_op: usize) -> Self {
        Self {
            next_op: first_op,
            waiting: Waiting::No,
            waiting_since: 0,
            open_requests: 0,
            finish_ps: 0,
            compute_ps: 0,
            wait_ps: 0,
        }
    }

    /// Index of its next operation.
    #[inline]
    pub fn next_op(&self) -> usize {
        self.next_op
    }

    /// Continues with another operation of its program.
    #[inline]
    pub fn continue_at(&mut self, op: usize) {
        self.next_op = op;
    }

    /// Takes the next operation of its program, which ends before `end`; `None` if it has finished.
    #[inline]
    pub fn next(&mut self, ops: &[Op], end: usize, now: u64) -> Option<Op> {
        self.waiting = Waiting::No;
        if self.next_op == end {
            self.finish_ps = now;
            return None;
        }
        let op = ops[self.next_op];
        self.next_op += 1;
        if let Op::Compute(ps) = op {
            self.waiting = Waiting::Computing;
            self.compute_ps += ps;
        }
        Some(op)
    }

    /// Records that the rank has posted a request.
    #[inline]
    pub fn opened(&mut self) {
        self.open_requests += 1;
    }

    /// Records that a request has completed; returns the request that the rank is blocked on, if any.
    #[inline]
    pub fn completed(&mut self) -> Option<Request> {
        self.open_requests -= 1;
        match self.waiting {
            Waiting::For(request) => Some(request),
            Waiting::No | Waiting::Computing => None,
        }
    }

    /// Whether the rank computes.
    #[inline]
    pub fn computes(&self) -> bool {
        matches!(self.waiting, Waiting::Computing)
    }

    /// Whether the rank waits for requests.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        matches!(self.waiting, Waiting::For(_))
    }

    /// Whether all requests of the rank have completed.
    #[inline]
    pub fn all_complete(&self) -> bool {
        self.open_requests == 0
    }

    /// Records that the rank blocks on `request` from `now` on.
    #[inline]
    pub fn block(&mut self, request: Request, now: u64) {
        self.waiting = Waiting::For(request);
        self.waiting_since = now;
    }

    /// Records that the rank stops waiting at `now`.
    #[inline]
    pub fn unblock(&mut self, now: u64) {
        self.waiting = Waiting::No;
        self.wait_ps += now - self.waiting_since;
    }

    /// Time the rank has been blocked until `now`, including an unfinished wait, in picoseconds.
    pub fn waited_ps(&self, now: u64) -> u64 {
        let unfinished = match self.waiting {
            Waiting::No => 0,
            _ => now.saturating_sub(self.waiting_since),
        };
        self.wait_ps + unfinished
    }

    /// Whether the rank has not finished its program, which ends before operation `end`.
    pub fn unfinished(&self, end: usize) -> bool {
        self.waiting != Waiting::No || self.next_op < end
    }

    /// What the rank waits for, as text.
    fn waits_for(&self, message: impl Fn(u32) -> Message) -> String {
        match self.waiting {
            Waiting::For(Request::Send(m)) => {
                format!("its send of {} B to rank {}", message(m).bytes, message(m).dst)
            }
            Waiting::For(Request::Receive(m)) => {
                format!("{} B from rank {}", message(m).bytes, message(m).src)
            }
            _ => format!("{} open requests", self.open_requests),
        }
    }
}

impl ProgramError {
    /// [`Self::Stuck`] for all `ranks` of a program, in order.
    ///
    /// `rank_start` is that of the [`crate::MatchedProgram`]; `message` returns a message by number.
    pub fn stuck<'r>(
        time_ps: u64,
        rank_start: &[usize],
        ranks: impl Iterator<Item = &'r Rank>,
        message: impl Fn(u32) -> Message,
    ) -> Self {
        let mut blocked = 0;
        let mut examples = Vec::new();
        for (rank, state) in ranks.enumerate() {
            if state.unfinished(rank_start[rank + 1]) {
                blocked += 1;
                if examples.len() < 4 {
                    examples.push(format!("rank {rank} waits for {}", state.waits_for(&message)));
                }
            }
        }
        Self::Stuck { blocked, time_ps, examples: examples.join("; ") }
    }
}
