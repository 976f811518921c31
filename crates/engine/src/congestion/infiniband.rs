//! InfiniBand congestion control (InfiniBand Architecture Specification, volume 1, annex A10).
//!
//! A notification raises the sender's index for that destination into the congestion control table,
//! whose entry is the pause after each packet; a timer lowers the index again.

use crate::settings::CongestionControl;

const MULTIPLIER_BITS: u32 = 14;

impl CongestionControl {
    /// Pause after a packet that takes `busy` on the wire.
    pub fn pause(&self, index: u32, busy: u64) -> u64 {
        let entry = self.table.get(index as usize).or(self.table.last()).copied().unwrap_or(0);
        let multiplier = u64::from(entry & ((1 << MULTIPLIER_BITS) - 1));
        (busy >> (entry >> MULTIPLIER_BITS)) * multiplier
    }
}

/// For each lane, the eligible packets since the last marked one.
#[derive(Debug, Default)]
pub(crate) struct MarkingCounters(Vec<u32>);

impl MarkingCounters {
    /// For `lanes` lanes.
    pub fn new(lanes: usize) -> Self {
        // The first packet over the threshold is marked.
        Self(vec![u32::MAX; lanes])
    }

    /// Whether the next eligible packet of `lane` is marked.
    pub fn due(&mut self, lane: u32, rate: u32) -> bool {
        let passed = &mut self.0[lane as usize];
        let due = *passed >= rate;
        *passed = if due { 0 } else { *passed + 1 };
        due
    }
}

/// Injection throttling of a sender towards one destination.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Throttle {
    index: u32,
    /// Up to when timer expirations have been applied to the index.
    eased_at: u64,
}

impl Throttle {
    /// A notification arrives.
    pub fn notified(&mut self, now: u64, control: &CongestionControl) {
        self.apply_timer(now, control);
        self.index = self.index.saturating_add(control.increase).min(control.limit);
    }

    /// Index into the table at `now`.
    pub fn index(&mut self, now: u64, control: &CongestionControl) -> u32 {
        self.apply_timer(now, control);
        self.index
    }

    /// Lowers the index by the number of timer expirations. One timer serves all destinations.
    fn apply_timer(&mut self, now: u64, control: &CongestionControl) {
        let timer = control.timer_ps.max(1);
        let expired = now / timer - self.eased_at / timer;
        self.index = self.index.saturating_sub(expired.min(u32::MAX.into()) as u32);
        self.eased_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CongestionScheme;

    fn control() -> CongestionControl {
        CongestionControl {
            scheme: CongestionScheme::Infiniband,
            threshold_bytes: 0,
            marking_rate: 0,
            packet_bytes: 0,
            victims: false,
            increase: 4,
            limit: 10,
            timer_ps: 100,
            table: vec![0, 1, 2, 1 << 14 | 3],
        }
    }

    #[test]
    fn the_index_rises_with_notifications_and_falls_with_time() {
        let mut throttle = Throttle::default();
        throttle.notified(10, &control());
        throttle.notified(20, &control());
        throttle.notified(30, &control());
        assert_eq!(throttle.index(99, &control()), 10);
        assert_eq!(throttle.index(100, &control()), 9);
        assert_eq!(throttle.index(450, &control()), 6);
        assert_eq!(throttle.index(10_000, &control()), 0);
    }

    #[test]
    fn no_increase_is_too_large() {
        let mut throttle = Throttle::default();
        let control = CongestionControl { increase: u32::MAX, ..control() };
        (10..13).for_each(|now| throttle.notified(now, &control));
        assert_eq!(throttle.index(20, &control), 10);
    }

    #[test]
    fn a_table_entry_shifts_and_multiplies() {
        let pauses: Vec<u64> = (0..5).map(|index| control().pause(index, 1000)).collect();
        assert_eq!(pauses, [0, 1000, 2000, 1500, 1500]);
    }
}
