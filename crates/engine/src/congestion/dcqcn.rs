//! DCQCN: rates of senders that follow ECN marks (Zhu et al., *Congestion Control for Large-Scale
//! RDMA Deployments*, SIGCOMM 2015, section 3).
//!
//! * Congestion point, a switch: marks by the length of the output queue, as RED does
//!   ([`Dcqcn::mark_probability`]).
//! * Notification point, the receiver: answers marks of a flow by a notification (CNP), at most one
//!   in `cnp_interval` ([`NotificationPoint`]).
//! * Reaction point, the sender: a rate per flow ([`ReactionPoint`]). A flow starts at the rate of
//!   its link and is limited from its first notification on.
//!
//! A flow is all that a node sends to another one. Timers are not events: the rate is only read
//! when a packet is sent or a notification arrives, which applies the timers that have expired.
//! Only additions, multiplications and divisions are used, so that rates are the same on every
//! machine.

use std::collections::BTreeMap;

use crate::settings::Dcqcn;

impl Dcqcn {
    /// Probability that a packet which makes a queue `queued` bytes long is marked.
    pub fn mark_probability(&self, queued: u64) -> f64 {
        if queued <= self.kmin_bytes {
            return 0.0;
        }
        if queued > self.kmax_bytes {
            return 1.0;
        }
        let range = (self.kmax_bytes - self.kmin_bytes) as f64;
        self.pmax * (queued - self.kmin_bytes) as f64 / range
    }

    /// Whether 64 random `bits` mark such a packet.
    pub fn marks(&self, queued: u64, bits: u64) -> bool {
        const BITS: u32 = 53;
        let drawn = (bits >> (u64::BITS - BITS)) as f64 / (1u64 << BITS) as f64;
        drawn < self.mark_probability(queued)
    }
}

/// State of the receiver: when it may notify each sender again.
#[derive(Debug, Default)]
pub(crate) struct NotificationPoint {
    silent_until: BTreeMap<u32, u64>,
}

impl NotificationPoint {
    /// Whether the receiver answers a marked packet of node `sender` by a notification.
    pub fn answers(&mut self, sender: u32, now: u64, dcqcn: &Dcqcn) -> bool {
        let until = self.silent_until.entry(sender).or_default();
        let answers = now >= *until;
        if answers {
            *until = now + dcqcn.cnp_interval_ps;
        }
        answers
    }
}

/// The sender's state of a flow. Rates are shares of the rate of its link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReactionPoint {
    current: f64,
    target: f64,
    /// The next notification reduces the rate by half of this share.
    alpha: f64,
    /// When alpha decays and when the timer increases the rate, unless a notification comes first.
    decay_at: u64,
    increase_at: u64,
    /// Bytes sent since the byte counter last expired.
    bytes: u64,
    /// How often timer and byte counter have expired since the last notification.
    timer_steps: u32,
    byte_steps: u32,
}

impl ReactionPoint {
    /// The state at the first notification of a flow: it has sent at the rate of its link.
    pub fn new() -> Self {
        Self {
            current: 1.0,
            target: 1.0,
            alpha: 1.0,
            decay_at: u64::MAX,
            increase_at: u64::MAX,
            bytes: 0,
            timer_steps: 0,
            byte_steps: 0,
        }
    }

    /// A notification arrives (equation 1): the rate falls, and all counting begins anew.
    pub fn notified(&mut self, now: u64, dcqcn: &Dcqcn, line_mbps: f64) {
        self.advance(now, dcqcn, line_mbps);
        self.target = self.current;
        let least = (dcqcn.least_mbps / line_mbps).min(1.0);
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(least);
        self.alpha = (1.0 - dcqcn.g) * self.alpha + dcqcn.g;
        self.decay_at = now + dcqcn.alpha_timer_ps;
        self.increase_at = now + dcqcn.increase_timer_ps;
        (self.bytes, self.timer_steps, self.byte_steps) = (0, 0, 0);
    }

    /// A packet of `wire` bytes starts, which takes `busy_ps` at the rate of the link; returns the
    /// time from its start to that of the next.
    pub fn sent(
        &mut self,
        now: u64,
        dcqcn: &Dcqcn,
        line_mbps: f64,
        (wire, busy_ps): (u32, u64),
    ) -> u64 {
        self.advance(now, dcqcn, line_mbps);
        self.bytes += u64::from(wire);
        while self.bytes >= dcqcn.byte_counter_bytes {
            self.bytes -= dcqcn.byte_counter_bytes;
            self.increase(dcqcn, line_mbps);
            self.byte_steps = self.byte_steps.saturating_add(1);
        }
        (busy_ps as f64 / self.current) as u64
    }

    /// Applies the timers that have expired by `now`.
    fn advance(&mut self, now: u64, dcqcn: &Dcqcn, line_mbps: f64) {
        let decays = expired(&mut self.decay_at, now, dcqcn.alpha_timer_ps);
        self.alpha *= power(1.0 - dcqcn.g, decays);
        for _ in 0..expired(&mut self.increase_at, now, dcqcn.increase_timer_ps) {
            let before = (self.current, self.target);
            self.increase(dcqcn, line_mbps);
            self.timer_steps = self.timer_steps.saturating_add(1);
            // At the rate of the link, nothing changes until the next notification.
            if (self.current, self.target) == before && self.target >= 1.0 {
                break;
            }
        }
    }

    /// Timer or byte counter has expired (section 3): fast recovery up to `recovery_steps` times, then
    /// additive increase, and hyper increase once both have expired more often than that.
    fn increase(&mut self, dcqcn: &Dcqcn, line_mbps: f64) {
        let (timer, byte, recovery) = (self.timer_steps, self.byte_steps, dcqcn.recovery_steps);
        let added = if timer.max(byte) < recovery {
            0.0
        } else if timer.min(byte) > recovery {
            f64::from(timer.min(byte) - recovery) * dcqcn.hyper_mbps
        } else {
            dcqcn.additive_mbps
        };
        self.target = (self.target + added / line_mbps).min(1.0);
        self.current = (self.current + self.target) / 2.0;
    }
}

/// How often a timer that is due at `due` and then every `period` has expired by `now`; moves `due`
/// to the next time.
fn expired(due: &mut u64, now: u64, period: u64) -> u64 {
    if now < *due {
        return 0;
    }
    let times = (now - *due) / period + 1;
    *due += times * period;
    times
}

/// `base` to the power of `n`, by squaring.
fn power(mut base: f64, mut n: u64) -> f64 {
    let mut result = 1.0;
    while n > 0 {
        if n & 1 == 1 {
            result *= base;
        }
        base *= base;
        n >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000_000;
    const LINE: f64 = 40_000.0;
    /// A packet of 1000 bytes at 40 Gb/s.
    const PACKET: (u32, u64) = (1000, 200_000);

    fn rate(point: &mut ReactionPoint, now: u64) -> f64 {
        point.advance(now, &Dcqcn::default(), LINE);
        point.current * LINE
    }

    #[test]
    fn marking_probability_follows_red() {
        let dcqcn = Dcqcn::default();
        let of = |queued| dcqcn.mark_probability(queued);
        assert_eq!([of(0), of(5_000), of(200_001)], [0.0, 0.0, 1.0]);
        assert!((of(102_500) - 0.005).abs() < 1e-15 && (of(200_000) - 0.01).abs() < 1e-15);
        let drawn = (0..100_000u64).filter(|n| dcqcn.marks(200_000, n << 47)).count();
        assert!((1000..1500).contains(&drawn), "{drawn}: 1 % of the lowest quarter and a bit");
    }

    #[test]
    fn a_receiver_notifies_each_sender_once_in_a_while() {
        let (mut receiver, dcqcn) = (NotificationPoint::default(), Dcqcn::default());
        let mut answers = |sender, us| receiver.answers(sender, us * US, &dcqcn);
        assert_eq!([answers(3, 7), answers(3, 8), answers(4, 9)], [true, false, true]);
        assert_eq!([answers(3, 56), answers(3, 57), answers(4, 58)], [false, true, false]);
    }

    /// Equations 1 to 4: the first notification halves the rate and alpha decays; fast recovery halves
    /// the distance to the rate before, five times; then 40 Mb/s are added each time to the target.
    #[test]
    fn a_rate_falls_recovers_and_rises() {
        let dcqcn = Dcqcn::default();
        let mut point = ReactionPoint::new();
        point.notified(0, &dcqcn, LINE);
        assert!((rate(&mut point, 54 * US) - 20_000.0).abs() < 1e-6);
        let expected = [30_000.0, 35_000.0, 37_500.0, 38_750.0, 39_375.0];
        for (step, mbps) in (1..).zip(expected) {
            assert!((rate(&mut point, 55 * step * US) - mbps).abs() < 1e-6, "step {step}");
        }
        // The second notification takes alpha / 2, which has decayed five times since the first.
        let alpha = power(255.0 / 256.0, 5);
        point.notified(276 * US, &dcqcn, LINE);
        let fallen = 39_375.0 * (1.0 - alpha / 2.0);
        assert!((rate(&mut point, 277 * US) - fallen).abs() < 1e-6);
        let mut target = 39_375.0;
        let mut current = fallen;
        for step in 1..=8 {
            target += if step > 5 { 40.0 } else { 0.0 };
            current = (current + target) / 2.0;
            assert!((rate(&mut point, (276 + 55 * step) * US) - current).abs() < 1e-6, "{step}");
        }
    }

    #[test]
    fn timer_and_byte_counter_hyper_increase() {
        let dcqcn = Dcqcn { byte_counter_bytes: 1000, ..Dcqcn::default() };
        let mut point = ReactionPoint::new();
        for _ in 0..3 {
            point.notified(0, &dcqcn, LINE);
        }
        let low = point.current;
        assert_eq!(point.sent(1, &dcqcn, LINE, PACKET), (200_000.0 / point.current) as u64);
        assert!(point.current > low, "the first packet has expired the counter");
        for _ in 0..6 {
            point.sent(2, &dcqcn, LINE, PACKET);
        }
        let target = point.target;
        point.advance(55 * 6 * US, &dcqcn, LINE);
        assert_eq!((point.timer_steps, point.byte_steps), (6, 7));
        assert!((point.target - target - 6.0 * 40.0 / LINE).abs() < 1e-12);
        let target = point.target;
        point.advance(55 * 7 * US, &dcqcn, LINE);
        assert!((point.target - target - 400.0 / LINE).abs() < 1e-12, "hyper increase, once");
    }

    #[test]
    fn rates_stay_within_their_limits() {
        let dcqcn = Dcqcn::default();
        let mut point = ReactionPoint::new();
        for step in 0..100 {
            point.notified(step * 50 * US, &dcqcn, LINE);
        }
        assert!((rate(&mut point, 5000 * US) - 5.0).abs() < 1e-9);
        assert_eq!(rate(&mut point, 1 << 60), LINE);
        assert_eq!(point.sent(1 << 60, &dcqcn, LINE, PACKET), PACKET.1);
    }
}
