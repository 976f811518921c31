//! Time covered by stretches that are told in the order of their beginnings.

/// Length of the union of stretches of time, the last of which may end in the future.
///
/// All of it is contiguous from any time after the last stretch was told up to its end: so what lies
/// ahead of such a time can be taken off again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Covered {
    /// End of the last stretch.
    pub until: u64,
    /// Length of all of them.
    pub ps: u64,
}

impl Covered {
    /// No stretch yet.
    pub const NOTHING: Self = Self { until: 0, ps: 0 };

    /// Adds `from`..`to`, told at `from` or as a stretch that goes on where the last one ends.
    #[inline]
    pub fn add(&mut self, from: u64, to: u64) {
        self.ps += to.saturating_sub(self.until.max(from));
        self.until = self.until.max(to);
    }

    /// Length of what lies before `time`, which is not before any stretch was told.
    pub fn before(&self, time: u64) -> u64 {
        self.ps.saturating_sub(self.until.saturating_sub(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_count_once_and_the_future_not_yet() {
        let mut covered = Covered::NOTHING;
        covered.add(10, 20);
        covered.add(15, 18);
        covered.add(16, 30);
        assert_eq!([16, 20, 25, 30, 99].map(|time| covered.before(time)), [6, 10, 15, 20, 20]);
        covered.add(40, 45);
        assert_eq!([40, 42, 50].map(|time| covered.before(time)), [20, 22, 25]);
    }
}
