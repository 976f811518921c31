//! Pacing: when the next packet of a flow with an assigned rate may go.
//!
//! Birk and Zdornov (2009, slides) ask for bursts to be suppressed "stronger than leaky bucket", so
//! that computed rates are realized with small buffers under first come, first served, and leave
//! the scheme open. Three schemes are implemented for comparison:
//!
//! * leaky bucket: after a pause a flow may send what its bucket holds in a burst;
//! * spaced: a packet goes no sooner than one interval after the previous one. There are no bursts,
//!   but lost time is never recovered: a flow that is ever delayed stays below its rate;
//! * elastic: packets are scheduled at the flow's rate. A late packet may catch up, but no closer
//!   than a given fraction of the interval to the previous one. So the mean rate is realized, and a
//!   burst never exceeds the rate by more than that fraction allows.

use crate::settings::Pacing;

/// Time that `wire` bytes take at `mbps` megabits per second; `mbps` is not 0.
pub(crate) fn interval(wire: u32, mbps: u32) -> u64 {
    u64::from(wire) * 8_000_000 / u64::from(mbps)
}

/// Schedule of a paced flow.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Timetable {
    /// When its next packet is due.
    due: u64,
}

impl Timetable {
    /// The flow becomes active at `begin` after it was idle, so it is not late.
    pub fn begin(&mut self, begin: u64) {
        self.due = self.due.max(begin);
    }

    /// A packet that takes `interval` at the flow's rate is sent at `now`; returns when the
    /// next one may go.
    pub fn sent(&mut self, pacing: Pacing, now: u64, interval: u64, packet: u32) -> u64 {
        match pacing {
            Pacing::Off => now,
            Pacing::Spaced => now + interval,
            Pacing::LeakyBucket { depth_bytes } => {
                let slack = u128::from(interval) * u128::from(depth_bytes);
                let slack = (slack / u128::from(packet.max(1))).min(u64::MAX.into()) as u64;
                self.due = self.due.max(now) + interval;
                self.due.saturating_sub(slack).max(now)
            }
            Pacing::Elastic { percent } => {
                let least = interval * u64::from(percent) / 100;
                self.due = self.due.max(now.saturating_sub(interval * LATENESS)) + interval;
                self.due.max(now + least)
            }
        }
    }
}

/// Intervals by which a flow may be late; time lost beyond that is not recovered.
const LATENESS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn times(pacing: Pacing, held_until: u64) -> Vec<u64> {
        let mut table = Timetable::default();
        let mut now = 1000;
        table.begin(now);
        (0..8)
            .map(|k| {
                if k == 3 {
                    now = now.max(held_until);
                }
                let sent = now;
                now = table.sent(pacing, now, 100, 4096);
                sent
            })
            .collect()
    }

    #[test]
    fn late_flows_burst_lose_or_catch_up() {
        let spaced = times(Pacing::Spaced, 1700);
        assert_eq!(spaced, [1000, 1100, 1200, 1700, 1800, 1900, 2000, 2100]);
        let bucket = times(Pacing::LeakyBucket { depth_bytes: 8192 }, 1700);
        assert_eq!(bucket, [1000, 1000, 1000, 1700, 1700, 1700, 1800, 1900]);
        let elastic = times(Pacing::Elastic { percent: 50 }, 1450);
        assert_eq!(elastic[3..], [1450, 1500, 1550, 1600, 1700]);
    }

    #[test]
    fn a_bucket_of_any_depth_lets_a_burst_through() {
        let mut table = Timetable::default();
        table.begin(7);
        let deep = Pacing::LeakyBucket { depth_bytes: u32::MAX };
        assert_eq!(table.sent(deep, 7, 1 << 60, 1), 7);
    }
}
