//! Inq stall: time in which an input buffer holds a packet that could leave and has not begun to.
//!
//! A packet is ready when it gets in line or, if it need not wait, as it is taken on; from then on it stalls
//! its input until it begins to leave. All that is told in the order of time, so the stall of an input is
//! the union of stretches that end with the latest beginning among the packets taken on.

/// The input buffer of the port that a link leaves, as what arrives there sees it.
#[derive(Debug)]
pub(super) struct InputBuffer {
    /// Time in which a packet was ready to leave it. While packets are in line, all until then is counted.
    stalled_ps: u64,
    /// End of the last stretch, which may lie ahead.
    until: u64,
    /// Packets in line.
    pub waiting: u32,
}

impl InputBuffer {
    pub const EMPTY: Self = Self { stalled_ps: 0, until: 0, waiting: 0 };

    /// So many packets are in line from `now` on.
    pub fn wait(&mut self, now: u64, packets: u32) {
        if self.waiting > 0 {
            self.stalls(0, now);
        }
        self.until = self.until.max(now);
        self.waiting = packets;
    }

    /// A packet that is taken on now begins to leave at `start`.
    #[inline]
    pub fn leaves(&mut self, now: u64, start: u64) {
        self.stalls(if self.waiting > 0 { 0 } else { now }, start);
    }

    /// Adds a stretch that is told as it begins, or that goes on where the last one ends.
    #[inline]
    fn stalls(&mut self, from: u64, to: u64) {
        self.stalled_ps += to.saturating_sub(self.until.max(from));
        self.until = self.until.max(to);
    }

    /// What it shows at `time`, nothing having happened since.
    pub fn at(&self, time: u64) -> u64 {
        let more = if self.waiting > 0 { time.saturating_sub(self.until) } else { 0 };
        // What lies ahead is one stretch.
        self.stalled_ps.saturating_sub(self.until.saturating_sub(time)) + more
    }

    /// Nothing changes after `time` before the next packet comes.
    #[inline]
    pub fn quiet(&self, time: u64) -> bool {
        self.waiting == 0 && self.until <= time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_count_once_and_the_future_not_yet() {
        let mut input = InputBuffer::EMPTY;
        input.leaves(10, 20);
        input.leaves(15, 18);
        input.leaves(16, 30);
        assert_eq!([16, 20, 25, 30, 99].map(|time| input.at(time)), [6, 10, 15, 20, 20]);
        input.leaves(40, 45);
        assert_eq!([40, 42, 50].map(|time| input.at(time)), [20, 22, 25]);
        assert_eq!([44, 45].map(|time| input.quiet(time)), [false, true]);
    }
}
