//! Directed links: the transmitter; for each virtual lane the credit for its buffer at the far end and
//! who waits for it.

/// No packet, no link, no message.
pub(crate) const NIL: u32 = u32::MAX;

/// Time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

const RATE_BITS: u32 = 16;

/// The transmitter of one directed link: what does not change in a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    /// Cable delay.
    pub delay: u64,
    /// Picoseconds a byte, in units of 2^-16.
    pub rate: u32,
    /// Number over the whole fabric.
    pub global: u32,
    /// Number within the shard.
    pub local: u32,
    /// Shard of the destination.
    pub shard: u8,
    /// The destination is a node.
    pub to_node: bool,
    /// Group of the destination within its shard.
    pub group: u32,
}

impl Link {
    pub fn new(gbps: f64, delay: u64) -> Self {
        let rate = ((8000.0 / gbps) * f64::from(1 << RATE_BITS)).round();
        let rate = rate.clamp(1.0, f64::from(u32::MAX)) as u32;
        Self { delay, rate, global: 0, local: 0, shard: 0, to_node: false, group: 0 }
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
}

/// One virtual lane of a link: the credit for its buffer at the far end, and who waits for it.
///
/// One cache line holds all that a packet needs of it: that state is small matters more than anything
/// else for speed.
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(crate) struct Lane {
    pub link: Link,
    /// When a credit event is due, [`NEVER`] if none is.
    pub wake_at: u64,
    /// Bytes that may be sent.
    pub credit: u32,
    /// First and last packet that wait for credit, in order of arrival.
    pub wait_head: u32,
    pub wait_tail: u32,
    /// First and last credit on its way back, in the order they were noted.
    first_return: u32,
    last_return: u32,
    /// The returns are in order of time too: the first one is the earliest.
    in_order: bool,
    /// Somebody waits for credit here: a packet in the line above, or the adapter at the source.
    pub starving: bool,
}

impl Lane {
    fn new(link: Link, credit: u32) -> Self {
        Self {
            link,
            wake_at: NEVER,
            credit,
            wait_head: NIL,
            wait_tail: NIL,
            first_return: NIL,
            last_return: NIL,
            in_order: true,
            starving: false,
        }
    }
}

/// Credit on its way back to a link.
#[derive(Debug, Clone, Copy)]
struct Return {
    time: u64,
    bytes: u32,
    next: u32,
}

/// All links of a shard with their lanes, and all credit on its way back to them.
///
/// Lane `l` of link `k` has the number `k × lanes + l`. What adaptive routing compares, `free_at` and
/// `waiting`, is kept apart: a switch's candidates are neighbours there.
#[derive(Debug)]
pub(crate) struct Links {
    lanes: Vec<Lane>,
    /// When each link has sent everything it took on.
    free_at: Vec<u64>,
    /// Bytes that wait for credit at each lane.
    waiting: Vec<u64>,
    per_link: u32,
    /// Returns of all lanes: a slab whose free list is last-in-first-out, as many in the cache as
    /// there are packets in flight.
    returns: Vec<Return>,
    free: u32,
}

impl Links {
    /// `lanes` virtual lanes a link, each with `buffer` bytes at the far end.
    pub fn new(links: &[Link], lanes: u8, buffer: u32) -> Self {
        let each = |(local, link): (usize, &Link)| {
            let lane = Lane::new(Link { local: local as u32, ..*link }, buffer);
            std::iter::repeat_n(lane, lanes.into())
        };
        Self {
            lanes: links.iter().enumerate().flat_map(each).collect(),
            free_at: vec![0; links.len()],
            waiting: vec![0; links.len() * usize::from(lanes)],
            per_link: lanes.into(),
            returns: Vec::new(),
            free: NIL,
        }
    }

    /// Number of lane `lane` of `link`.
    #[inline]
    pub fn lane_of(&self, link: u32, lane: u8) -> u32 {
        link * self.per_link + u32::from(lane)
    }

    /// Lanes of `link`.
    pub fn lanes_of(&self, link: u32) -> std::ops::Range<u32> {
        link * self.per_link..(link + 1) * self.per_link
    }

    /// Number over the whole fabric of a lane's link, and which of the link's lanes it is.
    pub fn link_and_lane(&self, lane: u32) -> (u32, u8) {
        (self.lane(lane).link.global, (lane % self.per_link) as u8)
    }

    /// Number of lanes of all links.
    pub fn n_lanes(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// Number of links.
    pub fn n_links(&self) -> u32 {
        self.free_at.len() as u32
    }

    /// A link by its number within the shard.
    #[inline]
    pub fn link(&self, link: u32) -> &Link {
        &self.lane(self.lane_of(link, 0)).link
    }

    /// The lane.
    #[inline]
    pub fn lane(&self, lane: u32) -> &Lane {
        &self.lanes[lane as usize]
    }

    /// The lane, to change.
    #[inline]
    pub fn lane_mut(&mut self, lane: u32) -> &mut Lane {
        &mut self.lanes[lane as usize]
    }

    /// Time a packet would wait at a lane before its own transmission: the adaptive measure.
    #[inline]
    pub fn backlog(&self, link: u32, lane: u8, now: u64) -> u64 {
        let waiting = self.waiting[self.lane_of(link, lane) as usize];
        let sending = self.free_at[link as usize].saturating_sub(now);
        if waiting == 0 { sending } else { sending + self.link(link).serialization(waiting as u32) }
    }

    /// The first of `links` (numbers over the fabric, `shift` more than the shard's) with a backlog
    /// less than that of `best`, and less than all others'; an idle one at once.
    #[inline]
    pub fn least_loaded(
        &self,
        links: &[u32],
        shift: u32,
        lane: u8,
        now: u64,
        mut best: (u32, u64),
    ) -> (u32, u64) {
        let (Some(&first), Some(&last)) = (links.first(), links.last()) else { return best };
        let neighbours = (last - first) as usize == links.len() - 1;
        if self.per_link > 1 || !neighbours {
            for link in links.iter().map(|link| link.wrapping_sub(shift)) {
                let backlog = self.backlog(link, lane, now);
                if backlog < best.1 {
                    best = (link, backlog);
                }
            }
            return best;
        }
        // The same, for links that lie side by side.
        let from = first.wrapping_sub(shift);
        let range = from as usize..from as usize + links.len();
        let states = self.free_at[range.clone()].iter().zip(&self.waiting[range]);
        for (link, (&free_at, &waiting)) in (from..).zip(states) {
            let mut backlog = free_at.saturating_sub(now);
            if waiting > 0 {
                backlog += self.link(link).serialization(waiting as u32);
            }
            if backlog < best.1 {
                best = (link, backlog);
                if backlog == 0 {
                    break;
                }
            }
        }
        best
    }

    /// When `link` has sent everything it took on.
    #[inline]
    pub fn free_at(&self, link: u32) -> u64 {
        self.free_at[link as usize]
    }

    /// Books `link` until `time`.
    #[inline]
    pub fn book(&mut self, link: u32, time: u64) {
        self.free_at[link as usize] = time;
    }

    /// Bytes that wait for credit at `lane`.
    #[inline]
    pub fn waiting(&self, lane: u32) -> u64 {
        self.waiting[lane as usize]
    }

    /// The same, to change.
    #[inline]
    pub fn waiting_mut(&mut self, lane: u32) -> &mut u64 {
        &mut self.waiting[lane as usize]
    }

    /// Takes credit for `bytes` if it is there at `now`; credit that came back is counted first.
    #[inline]
    pub fn take(&mut self, lane: u32, bytes: u32, now: u64) -> bool {
        if self.lane(lane).credit < bytes {
            self.collect(lane, now);
            if self.lane(lane).credit < bytes {
                return false;
            }
        }
        self.lane_mut(lane).credit -= bytes;
        true
    }

    /// Counts credit that has come back by `now`.
    #[inline]
    pub fn collect(&mut self, lane: u32, now: u64) {
        let state = &mut self.lanes[lane as usize];
        if !state.in_order {
            return self.collect_any(lane, now);
        }
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

    /// The same where the line of returns is not in order of time.
    fn collect_any(&mut self, lane: u32, now: u64) {
        let state = &mut self.lanes[lane as usize];
        let (mut index, mut kept, mut latest) = (state.first_return, NIL, 0);
        state.first_return = NIL;
        state.in_order = true;
        while index != NIL {
            let back = &mut self.returns[index as usize];
            let next = back.next;
            if back.time <= now {
                state.credit += back.bytes;
                back.next = self.free;
                self.free = index;
            } else {
                state.in_order &= back.time >= latest;
                latest = back.time;
                back.next = NIL;
                match kept {
                    NIL => state.first_return = index,
                    last => self.returns[last as usize].next = index,
                }
                kept = index;
            }
            index = next;
        }
        state.last_return = kept;
    }

    /// Notes that `bytes` of credit arrive at `time`.
    ///
    /// Counts the oldest credit if it has come back by `past`, which the lane's own switch must not have
    /// gone back behind yet: so the line stays as short as what is really on
    /// its way, and the slab in the cache.
    #[inline]
    pub fn give(&mut self, lane: u32, past: u64, time: u64, bytes: u32) {
        let state = &mut self.lanes[lane as usize];
        let mut slot = self.free;
        let first = state.first_return;
        if first != NIL && self.returns[first as usize].time <= past {
            let back = &self.returns[first as usize];
            state.credit += back.bytes;
            state.first_return = back.next;
            if back.next == NIL {
                state.last_return = NIL;
            }
            slot = first;
        } else if slot == NIL {
            slot = self.returns.len() as u32;
            self.returns.push(Return { time, bytes, next: NIL });
        } else {
            self.free = self.returns[slot as usize].next;
        }
        self.returns[slot as usize] = Return { time, bytes, next: NIL };
        match state.last_return {
            NIL => {
                state.first_return = slot;
                state.in_order = true;
            }
            last => {
                let last = &mut self.returns[last as usize];
                last.next = slot;
                state.in_order &= last.time <= time;
            }
        }
        state.last_return = slot;
    }

    /// When the next credit arrives at `lane`.
    pub fn next_return(&self, lane: u32) -> u64 {
        if self.lane(lane).in_order {
            return self.returning(lane).next().map_or(NEVER, |back| back.time);
        }
        self.returning(lane).map(|back| back.time).min().unwrap_or(NEVER)
    }

    fn returning(&self, lane: u32) -> impl Iterator<Item = &Return> {
        let mut index = self.lane(lane).first_return;
        std::iter::from_fn(move || {
            let back = self.returns.get(index as usize)?;
            index = back.next;
            Some(back)
        })
    }

    /// Credit of each lane, here and on its way: the whole buffer when the network is empty.
    pub fn credit_in_all(&self) -> impl Iterator<Item = u64> {
        (0..self.lanes.len() as u32).map(|lane| {
            let back: u64 = self.returning(lane).map(|back| u64::from(back.bytes)).sum();
            u64::from(self.lane(lane).credit) + back
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_returns_in_order_of_time_whatever_the_order_of_notice() {
        let mut links = Links::new(&[Link::new(100.0, 0)], 2, 100);
        assert!(links.take(1, 100, 0));
        for (time, bytes) in
            [(50, 30), (20, 10), (60, 40), (50, 5), (20, 10), (30, 5), (30, 0), (90, 0)]
        {
            links.give(1, 0, time, bytes);
        }
        assert_eq!(links.next_return(1), 20);
        assert!(!links.take(1, 26, 30));
        assert!(links.take(1, 25, 30));
        assert!(!links.take(1, 36, 50));
        assert!(links.take(1, 35, 50));
        assert_eq!(links.credit_in_all().collect::<Vec<_>>(), [100, 40]);
        assert!(links.take(1, 40, 60));
        assert_eq!(links.next_return(1), 90);
        assert_eq!((links.lane_of(0, 1), links.link_and_lane(1)), (1, (0, 1)));
    }

    #[test]
    fn rates_are_exact_to_a_byte() {
        for (gbps, ps) in [(100.0, 327_680), (200.0, 163_840), (25.0, 1_310_720)] {
            assert_eq!(Link::new(gbps, 0).serialization(4096), ps);
        }
        let rate = 54.545_454_545_454_55;
        let fdr = Link::new(rate, 0);
        assert!((fdr.serialization(4096) as f64 - 4096.0 * 8000.0 / rate).abs() < 1.0);
        assert_eq!(fdr.bytes_in(fdr.serialization(4096)), 4095);
    }
}
