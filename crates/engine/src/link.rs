//! Directed links: the transmitter, the credits for the buffer at the far end, who waits for them.

/// No packet, no link, no message.
pub(crate) const NIL: u32 = u32::MAX;

/// Time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

const RATE_BITS: u32 = 16;

/// State of one directed link: one cache line.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(crate) struct Link {
    /// When the transmitter has sent everything it took on.
    pub free_at: u64,
    /// Wire time of the packets that wait for credit.
    pub wait_ps: u64,
    /// Cable delay.
    pub delay: u64,
    /// When a credit event is due, [`NEVER`] if none is.
    pub wake_at: u64,
    /// Picoseconds a byte, in units of 2^-16.
    rate: u32,
    /// Destination vertex.
    pub dst: u32,
    /// Bytes that may be sent.
    pub credit: u32,
    /// First and last packet that wait for credit, in order of arrival.
    pub wait_head: u32,
    pub wait_tail: u32,
    /// First and last credit on its way back, in order of time.
    first_return: u32,
    last_return: u32,
    /// Somebody waits for credit here: a packet in the line above, or the adapter at the source.
    pub starving: bool,
}

impl Link {
    pub fn new(gbps: f64, delay: u64, dst: u32, credit: u32) -> Self {
        let rate = ((8000.0 / gbps) * f64::from(1 << RATE_BITS)).round();
        Self {
            free_at: 0,
            wait_ps: 0,
            delay,
            wake_at: NEVER,
            rate: rate.clamp(1.0, f64::from(u32::MAX)) as u32,
            dst,
            credit,
            wait_head: NIL,
            wait_tail: NIL,
            first_return: NIL,
            last_return: NIL,
            starving: false,
        }
    }

    /// Slowest rate a link can have, in gigabits per second.
    pub const MIN_GBPS: f64 = 0.125;

    /// Time `bytes` take on the wire, at least one picosecond.
    #[inline]
    pub fn serialization(&self, bytes: u32) -> u64 {
        ((u64::from(bytes) * u64::from(self.rate)) >> RATE_BITS).max(1)
    }

    /// Bytes the transmitter moves in `ps`.
    #[inline]
    pub fn bytes_in(&self, ps: u64) -> u64 {
        (ps << RATE_BITS) / u64::from(self.rate)
    }

    /// Time a packet would wait here before its own transmission: the adaptive measure.
    #[inline]
    pub fn backlog(&self, now: u64) -> u64 {
        self.free_at.saturating_sub(now) + self.wait_ps
    }

    /// Bytes that wait for credit.
    #[inline]
    pub fn waiting_bytes(&self) -> u64 {
        // Exact to a byte a packet: what waits is kept as wire time only.
        if self.wait_head == NIL { 0 } else { self.bytes_in(self.wait_ps).max(1) }
    }

    /// Bytes queued: taken on and not yet sent, or waiting for credit.
    #[inline]
    pub fn queued_bytes(&self, now: u64) -> u64 {
        self.bytes_in(self.free_at.saturating_sub(now)) + self.waiting_bytes()
    }
}

/// Credit on its way back to a link.
#[derive(Debug, Clone, Copy)]
struct Return {
    time: u64,
    bytes: u32,
    next: u32,
}

/// All links, and all credit on its way back to them.
///
/// Returns live in one slab whose free list is last-in-first-out: as many of them are in the cache as
/// there are packets in flight.
#[derive(Debug)]
pub(crate) struct Links {
    links: Vec<Link>,
    returns: Vec<Return>,
    free: u32,
}

impl Links {
    pub fn new(links: Vec<Link>) -> Self {
        Self { links, returns: Vec::new(), free: NIL }
    }

    /// Takes credit for `bytes` if it is there at `now`; credit that came back is counted first.
    #[inline]
    pub fn take(&mut self, link: u32, bytes: u32, now: u64) -> bool {
        if self[link].credit < bytes {
            self.collect(link, now);
            if self[link].credit < bytes {
                return false;
            }
        }
        self[link].credit -= bytes;
        true
    }

    /// Counts credit that has come back by `now`.
    #[inline]
    pub fn collect(&mut self, link: u32, now: u64) {
        let state = &mut self.links[link as usize];
        while state.first_return != NIL {
            let index = state.first_return;
            let back = &mut self.returns[index as usize];
            if back.time > now {
                return;
            }
            state.credit += back.bytes;
            state.first_return = back.next;
            back.next = self.free;
            self.free = index;
        }
        state.last_return = NIL;
    }

    /// Notes that `bytes` of credit arrive at `time`.
    #[inline]
    pub fn give(&mut self, link: u32, time: u64, bytes: u32) {
        let new = Return { time, bytes, next: NIL };
        let index = self.free;
        let index = if index == NIL {
            self.returns.push(new);
            self.returns.len() as u32 - 1
        } else {
            self.free = self.returns[index as usize].next;
            self.returns[index as usize] = new;
            index
        };
        let state = &mut self.links[link as usize];
        let last = state.last_return;
        if last == NIL {
            state.first_return = index;
            state.last_return = index;
        } else if self.returns[last as usize].time <= time {
            self.returns[last as usize].next = index;
            state.last_return = index;
        } else {
            self.insert(link, index);
        }
    }

    /// Puts a return where it belongs when it is not the last one.
    fn insert(&mut self, link: u32, index: u32) {
        let time = self.returns[index as usize].time;
        let first = self[link].first_return;
        if self.returns[first as usize].time > time {
            self.returns[index as usize].next = first;
            self[link].first_return = index;
            return;
        }
        let mut before = first;
        loop {
            let next = self.returns[before as usize].next;
            if self.returns[next as usize].time > time {
                self.returns[index as usize].next = next;
                self.returns[before as usize].next = index;
                return;
            }
            before = next;
        }
    }

    /// When the next credit arrives at `link`.
    #[inline]
    pub fn next_return(&self, link: u32) -> u64 {
        match self[link].first_return {
            NIL => NEVER,
            index => self.returns[index as usize].time,
        }
    }

    /// Credit of each link, here and on its way: the whole buffer when the network is empty.
    pub fn credit_in_all(&self) -> impl Iterator<Item = u64> {
        self.links.iter().map(|state| {
            let mut sum = u64::from(state.credit);
            let mut index = state.first_return;
            while index != NIL {
                sum += u64::from(self.returns[index as usize].bytes);
                index = self.returns[index as usize].next;
            }
            sum
        })
    }
}

impl std::ops::Index<u32> for Links {
    type Output = Link;
    #[inline]
    fn index(&self, link: u32) -> &Link {
        &self.links[link as usize]
    }
}

impl std::ops::IndexMut<u32> for Links {
    #[inline]
    fn index_mut(&mut self, link: u32) -> &mut Link {
        &mut self.links[link as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_one_cache_line() {
        assert_eq!(size_of::<Link>(), 64);
    }

    #[test]
    fn credit_returns_in_order_of_time_whatever_the_order_of_notice() {
        let mut links = Links::new(vec![Link::new(100.0, 0, 0, 100)]);
        assert!(links.take(0, 100, 0));
        for (time, bytes) in [(50, 30), (20, 10), (60, 40), (50, 5), (20, 10), (30, 5)] {
            links.give(0, time, bytes);
        }
        assert_eq!(links.next_return(0), 20);
        assert!(!links.take(0, 26, 30));
        assert!(links.take(0, 25, 30));
        assert!(!links.take(0, 36, 50));
        assert!(links.take(0, 35, 50));
        assert_eq!(links.credit_in_all().collect::<Vec<_>>(), [40]);
        assert!(links.take(0, 40, 60));
        assert_eq!(links.next_return(0), NEVER);
    }

    #[test]
    fn rates_are_exact_to_a_byte() {
        for (gbps, ps) in [(100.0, 327_680), (200.0, 163_840), (25.0, 1_310_720)] {
            assert_eq!(Link::new(gbps, 0, 0, 0).serialization(4096), ps);
        }
        let rate = 54.545_454_545_454_55;
        let fdr = Link::new(rate, 0, 0, 0);
        assert!((fdr.serialization(4096) as f64 - 4096.0 * 8000.0 / rate).abs() < 1.0);
        assert_eq!(fdr.bytes_in(fdr.serialization(4096)), 4095);
    }
}
