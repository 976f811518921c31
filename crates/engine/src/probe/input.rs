//! Inq stall: time in which an input buffer holds a packet that could leave and has not begun to.
//!
//! A packet is ready when it gets in line or, if it need not wait, as it is taken on; from then on it stalls
//! its input until it begins to leave. All that is told in the order of time, so the stall of an input is
//! the union of stretches that end with the latest beginning among the packets taken on.

use super::covered::Covered;

/// The input buffer of the port that a link leaves, as what arrives there sees it.
#[derive(Debug)]
#[repr(align(32))]
pub(super) struct Input {
    /// Time in which a packet was ready to leave it. While packets are in line, all until then is counted.
    stalled: Covered,
    /// What the last row said.
    pub told: u64,
    /// Packets in line.
    pub waiting: u32,
}

impl Input {
    pub const EMPTY: Self = Self { stalled: Covered::NOTHING, told: 0, waiting: 0 };

    /// So many packets are in line from `now` on.
    pub fn wait(&mut self, now: u64, packets: u32) {
        if self.waiting > 0 {
            self.stalled.add(0, now);
        }
        self.stalled.until = self.stalled.until.max(now);
        self.waiting = packets;
    }

    /// A packet that is taken on now begins to leave at `start`.
    #[inline]
    pub fn leaves(&mut self, now: u64, start: u64) {
        self.stalled.add(if self.waiting > 0 { 0 } else { now }, start);
    }

    /// What it shows at `time`, nothing having happened since.
    pub fn at(&self, time: u64) -> u64 {
        let more = if self.waiting > 0 { time.saturating_sub(self.stalled.until) } else { 0 };
        self.stalled.before(time) + more
    }

    /// Nothing changes after `time` before the next packet comes.
    pub fn quiet(&self, time: u64) -> bool {
        self.waiting == 0 && self.stalled.until <= time
    }
}
