//! Times of 31 bits.

/// Times of 31 bits: picoseconds since a moment that moves on with time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Epoch(u64);

impl Epoch {
    /// After whatever an epoch has times for.
    pub const FAR: i32 = i32::MAX;

    /// How long one lasts; half of what it has times for. No window is longer than half of that.
    pub const LONG: u64 = 1 << 30;

    pub fn new(start: u64) -> Self {
        Self(start)
    }

    /// Whether it is time for another.
    #[inline]
    pub fn is_over(self, now: u64) -> bool {
        now - self.0 >= Self::LONG
    }

    /// `time`, but the start for what was before, and [`Epoch::FAR`] for what is too far.
    #[inline(always)]
    pub fn since(self, time: u64) -> i32 {
        time.saturating_sub(self.0).min(Self::FAR as u64) as i32
    }

    /// The same of the present, which lies within.
    #[inline(always)]
    pub fn present(self, now: u64) -> i32 {
        (now - self.0) as i32
    }

    /// The time that it is so long after the start.
    #[inline]
    pub fn time(self, since: i32) -> u64 {
        self.0 + since as u64
    }
}
