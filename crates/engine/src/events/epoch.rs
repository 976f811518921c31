//! Compact times of 31 bits.

/// A time base for 31-bit times: picoseconds since the start of the epoch, which advances with the
/// simulation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch(u64);

impl Epoch {
    /// Later than any time the epoch can represent.
    pub const FAR: i32 = i32::MAX;

    /// Length of an epoch: half its representable range. No window is longer than half an
    /// epoch.
    pub const LONG: u64 = 1 << 30;

    pub fn new(start: u64) -> Self {
        Self(start)
    }

    /// Whether a new epoch should begin.
    #[inline]
    pub fn is_over(self, now: u64) -> bool {
        now - self.0 >= Self::LONG
    }

    /// `time` relative to the start, clamped to 0 below and [`Epoch::FAR`] above.
    #[inline(always)]
    pub fn since(self, time: u64) -> i32 {
        time.saturating_sub(self.0).min(Self::FAR as u64) as i32
    }

    /// The current time relative to the start; it is always in range.
    #[inline(always)]
    pub fn present(self, now: u64) -> i32 {
        (now - self.0) as i32
    }

    /// The absolute time of a relative one.
    #[inline]
    pub fn time(self, since: i32) -> u64 {
        self.0 + since as u64
    }
}
