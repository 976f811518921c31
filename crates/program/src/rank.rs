//! Execution of a rank under MPI's blocking rules, independent of how messages are transported.

use crate::{Message, Op, Request};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    No,
    Computing,
    For(Request),
}

/// A rank in execution: its position in the program, what it waits for, and how long it took.
///
/// The caller calls [`Rank::next`] and acts on the operation. After [`Op::Compute`] it calls again when
/// that time is over. After an [`Op::Wait`] whose request is not complete it calls [`Rank::block`], and
/// continues when [`Rank::completed`] has returned a request that is complete by then.
#[derive(Debug, Clone)]
pub struct Rank {
    next_op: usize,
    waiting: Waiting,
    waiting_since: u64,
    open_requests: u32,
    /// When its last operation completed.
    pub finish_ps: u64,
    /// Time computing.
    pub compute_ps: u64,
    /// Time blocked in a wait.
    pub wait_ps: u64,
}

impl Rank {
    /// Before its first operation.
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

    /// Place of its next operation.
    #[inline]
    pub fn next_op(&self) -> usize {
        self.next_op
    }

    /// The next operation of its program, which ends at `end`; `None` when it has finished.
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

    /// A request is open.
    #[inline]
    pub fn opened(&mut self) {
        self.open_requests += 1;
    }

    /// A request has completed; returns the request that the rank is blocked on, if any.
    #[inline]
    pub fn completed(&mut self) -> Option<Request> {
        self.open_requests -= 1;
        match self.waiting {
            Waiting::For(request) => Some(request),
            Waiting::No | Waiting::Computing => None,
        }
    }

    /// Whether all of its requests are complete.
    #[inline]
    pub fn all_complete(&self) -> bool {
        self.open_requests == 0
    }

    /// It waits for `request` from now on.
    #[inline]
    pub fn block(&mut self, request: Request, now: u64) {
        self.waiting = Waiting::For(request);
        self.waiting_since = now;
    }

    /// It has waited until now.
    #[inline]
    pub fn unblock(&mut self, now: u64) {
        self.waiting = Waiting::No;
        self.wait_ps += now - self.waiting_since;
    }

    /// Time it has been blocked by `now`, a wait that has not ended included.
    pub fn waited_ps(&self, now: u64) -> u64 {
        let open = match self.waiting {
            Waiting::No => 0,
            _ => now.saturating_sub(self.waiting_since),
        };
        self.wait_ps + open
    }

    /// Whether it has not finished its program, which ends at operation `end`.
    pub fn unfinished(&self, end: usize) -> bool {
        self.waiting != Waiting::No || self.next_op < end
    }

    /// What it waits for, as text.
    pub(crate) fn awaits(&self, message: impl Fn(u32) -> Message) -> String {
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
