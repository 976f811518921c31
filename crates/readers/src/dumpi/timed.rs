//! All calls with their times, for the analysis of the recorded run; a program does not need them.

use super::rank::DumpiCall;

/// The calls of all ranks, rank by rank in order, as columns, and what their messages refer to.
#[derive(Debug, Default)]
pub struct TimedDumpiCalls {
    /// World rank of each call.
    pub rank: Vec<u32>,
    /// Index of each call into `names`.
    pub name: Vec<u32>,
    /// Thread of each call.
    pub thread: Vec<u16>,
    /// Nanoseconds of entry by the clock of the rank.
    pub enter_ns: Vec<i64>,
    /// Nanoseconds of exit.
    pub leave_ns: Vec<i64>,
    /// Names of calls.
    pub names: Vec<String>,
    /// Communicator and tag of the messages of each channel.
    pub channels: Vec<(u32, u32)>,
    /// Names of communicators.
    pub communicators: Vec<String>,
}

impl TimedDumpiCalls {
    pub(super) fn push(&mut self, rank: u32, call: &DumpiCall) {
        self.rank.push(rank);
        self.name.push(call.name);
        self.thread.push(call.thread);
        self.enter_ns.push(call.enter_ns);
        self.leave_ns.push(call.leave_ns);
    }
}
