//! Inq stall: time in which an input buffer holds a packet that could leave and has not begun to.
//!
//! A packet is ready when it starts waiting or, if it need not wait, when its output is booked;
//! from then on it stalls its input until it begins to leave. Events arrive in order of time, so
//! the stall of an input is the union of intervals that end with the latest start among the booked
//! packets.

/// The input buffer of the port that a link leaves from. None is on two cache lines.
#[derive(Debug)]
#[repr(align(32))]
pub(super) struct InputBuffer {
    /// Time in which a packet was ready to leave. Counted up to `until` while packets wait.
    stalled_ps: u64,
    /// End of the last interval, which may lie in the future.
    until: u64,
    /// When a packet last stopped waiting for the link. It belongs to the output, but this cache
    /// line has room and is more likely to be in the cache than the port's history.
    pub output_left_at: u64,
    /// Packets waiting.
    pub waiting: u32,
}

const _: () = assert!(size_of::<InputBuffer>() == 32);

impl InputBuffer {
    pub const EMPTY: Self = Self { stalled_ps: 0, until: 0, output_left_at: 0, waiting: 0 };

    /// From `now` on, `packets` packets wait.
    pub fn wait(&mut self, now: u64, packets: u32) {
        if self.waiting > 0 {
            self.stalls(0, now);
        }
        self.until = self.until.max(now);
        self.waiting = packets;
    }

    /// A packet booked now begins to leave at `start`.
    #[inline]
    pub fn leaves(&mut self, now: u64, start: u64) {
        self.stalls(if self.waiting > 0 { 0 } else { now }, start);
    }

    /// Adds an interval that begins now or continues the last one.
    #[inline]
    fn stalls(&mut self, from: u64, to: u64) {
        self.stalled_ps += to.saturating_sub(self.until.max(from));
        self.until = self.until.max(to);
    }

    /// The counter at `time`, if nothing has happened since.
    pub fn at(&self, time: u64) -> u64 {
        let more = if self.waiting > 0 { time.saturating_sub(self.until) } else { 0 };
        // What lies in the future is one interval.
        self.stalled_ps.saturating_sub(self.until.saturating_sub(time)) + more
    }

    /// Whether nothing changes after `time` before the next packet comes.
    #[inline]
    pub fn quiet(&self, time: u64) -> bool {
        self.waiting == 0 && self.until <= time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_stalls_count_once() {
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
