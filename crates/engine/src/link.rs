//! Directed links: the transmitter, the credits for the buffer at the far end, who waits for them.

use std::collections::VecDeque;

/// No packet, no link, no message.
pub(crate) const NIL: u32 = u32::MAX;

/// Time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

const RATE_BITS: u32 = 16;

/// State of one directed link, but for what adaptive routing scans (see [`Links`]).
#[derive(Debug)]
pub(crate) struct Link {
    /// Picoseconds a byte, in units of 2^-16.
    rate: u64,
    /// Cable delay.
    pub delay: u64,
    /// Destination vertex.
    pub dst: u32,
    /// Bytes that may be sent.
    pub credit: u32,
    /// First and last packet that wait for credit, in order of arrival.
    pub wait_head: u32,
    pub wait_tail: u32,
    /// Bytes that wait.
    pub wait_bytes: u64,
    /// Somebody waits for credit here: a packet in the line above, or the adapter at the source.
    pub starving: bool,
    /// When a credit event is due, [`NEVER`] if none is.
    pub wake_at: u64,
    /// Credit on its way back, by time of arrival.
    returning: VecDeque<(u64, u32)>,
}

impl Link {
    pub fn new(gbps: f64, delay: u64, dst: u32, credit: u32) -> Self {
        Self {
            rate: ((8000.0 / gbps) * f64::from(1 << RATE_BITS)).round().max(1.0) as u64,
            delay,
            dst,
            credit,
            wait_head: NIL,
            wait_tail: NIL,
            wait_bytes: 0,
            starving: false,
            wake_at: NEVER,
            returning: VecDeque::new(),
        }
    }

    /// Time `bytes` take on the wire, at least one picosecond.
    #[inline]
    pub fn serialization(&self, bytes: u64) -> u64 {
        ((bytes * self.rate) >> RATE_BITS).max(1)
    }

    /// Bytes the transmitter moves in `ps`.
    #[inline]
    pub fn bytes_in(&self, ps: u64) -> u64 {
        (ps << RATE_BITS) / self.rate
    }

    /// Takes credit for `bytes` if it is there at `now`; credit that came back is counted first.
    #[inline]
    pub fn take(&mut self, bytes: u32, now: u64) -> bool {
        if self.credit < bytes {
            self.collect(now);
            if self.credit < bytes {
                return false;
            }
        }
        self.credit -= bytes;
        true
    }

    /// Counts credit that has come back by `now`.
    #[inline]
    pub fn collect(&mut self, now: u64) {
        while let Some(&(time, bytes)) = self.returning.front() {
            if time > now {
                break;
            }
            self.credit += bytes;
            self.returning.pop_front();
        }
    }

    /// Notes that `bytes` of credit arrive at `time`.
    #[inline]
    pub fn returns(&mut self, time: u64, bytes: u32) {
        let mut at = self.returning.len();
        while at > 0 && self.returning[at - 1].0 > time {
            at -= 1;
        }
        if at == self.returning.len() {
            self.returning.push_back((time, bytes));
        } else {
            self.returning.insert(at, (time, bytes));
        }
    }

    /// When the next credit arrives.
    #[inline]
    pub fn next_return(&self) -> u64 {
        self.returning.front().map_or(NEVER, |&(time, _)| time)
    }

    /// Credit here and on its way: the whole buffer when the network is empty.
    pub fn credit_in_all(&self) -> u64 {
        u64::from(self.credit) + self.returning.iter().map(|&(_, b)| u64::from(b)).sum::<u64>()
    }
}

/// All links. What adaptive routing scans lies in arrays of its own.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub state: Vec<Link>,
    /// When each transmitter has sent everything it took on.
    pub free_at: Vec<u64>,
    /// Wire time of the packets that wait for credit.
    pub wait_ps: Vec<u64>,
}

impl Links {
    /// Time a packet would wait at `link` before its own transmission: the adaptive measure.
    #[inline]
    pub fn backlog(&self, link: u32, now: u64) -> u64 {
        self.free_at[link as usize].saturating_sub(now) + self.wait_ps[link as usize]
    }

    /// Bytes queued at `link`: taken on and not yet sent, or waiting for credit.
    #[inline]
    pub fn queued_bytes(&self, link: u32, now: u64) -> u64 {
        let state = &self.state[link as usize];
        state.bytes_in(self.free_at[link as usize].saturating_sub(now)) + state.wait_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_returns_in_order_of_time_whatever_the_order_of_notice() {
        let mut link = Link::new(100.0, 0, 0, 100);
        assert!(link.take(100, 0));
        link.returns(50, 30);
        link.returns(20, 20);
        link.returns(50, 50);
        assert_eq!(link.next_return(), 20);
        assert!(!link.take(30, 30));
        assert!(link.take(20, 30));
        assert!(!link.take(81, 50));
        assert!(link.take(80, 50));
        assert_eq!(link.credit_in_all(), 0);
    }

    #[test]
    fn rates_are_exact_to_a_byte() {
        for (gbps, ps) in [(100.0, 327_680), (200.0, 163_840), (25.0, 1_310_720)] {
            assert_eq!(Link::new(gbps, 0, 0, 0).serialization(4096), ps);
        }
        let fdr = Link::new(54.545_454_545_454_55, 0, 0, 0);
        assert!(
            (fdr.serialization(4096) as f64 - 4096.0 * 8000.0 / 54.545_454_545_454_55).abs() < 1.0
        );
        assert_eq!(fdr.bytes_in(fdr.serialization(4096)), 4095);
    }
}
