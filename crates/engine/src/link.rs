//! Directed links: the transmitter; for each virtual lane the credit for its buffer at the far end and
//! who waits for it.

use std::ops::Range;

use crate::prefetch::prefetch;

/// No packet, no link, no message.
pub(crate) const NIL: u32 = u32::MAX;

/// Time that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

const RATE_BITS: u32 = 16;

/// One directed link: what does not change in a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    /// Picoseconds a byte, in units of 2^-16.
    pub rate: u32,
    /// Cable delay.
    pub delay: u32,
    /// The vertex it leads to, and its shard.
    pub dst: u32,
    pub shard: u8,
    /// The vertex is a node.
    pub to_node: bool,
}

impl Link {
    pub fn new(gbps: f64, delay: u64) -> Self {
        let rate = ((8000.0 / gbps) * f64::from(1 << RATE_BITS)).round();
        let rate = rate.clamp(1.0, f64::from(u32::MAX)) as u32;
        let delay = delay.min(Self::MOST_DELAY_PS) as u32;
        Self { rate, delay, dst: 0, shard: 0, to_node: false }
    }

    /// Longest delay a cable can have, in picoseconds.
    pub const MOST_DELAY_PS: u64 = u32::MAX as u64;

    /// Slowest rate a link can have, in gigabits per second.
    pub const MIN_GBPS: f64 = 0.125;

    /// Time `bytes` take on the wire, at least one picosecond.
    #[inline]
    pub fn serialization(&self, bytes: u32) -> u64 {
        serialization(bytes, self.rate)
    }

    /// Bytes the transmitter moves in `ps`.
    #[inline]
    pub fn bytes_in(&self, ps: u64) -> u64 {
        (ps << RATE_BITS) / u64::from(self.rate)
    }
}

/// One virtual lane of a link: the credit for its buffer at the far end, and who waits for it.
///
/// All that a packet needs of it lies together, and two share a cache line: that state is small matters
/// more than anything else for speed.
#[derive(Debug, Clone)]
#[repr(align(32))]
pub(crate) struct Lane {
    rate: u32,
    delay: u32,
    dst: u32,
    /// Bytes that may be sent.
    credit: u32,
    /// Bytes that may be sent from some time of the open window on, and that time, since its start.
    back_bytes: u32,
    back_at: u32,
    /// Last packet that waits for credit, in order of arrival; the first is the next to it.
    pub wait_tail: u32,
    shard: u8,
    to_node: bool,
    /// Somebody waits for credit here: a packet in the line above, or the adapter at the source.
    pub starving: bool,
}

const _: () = assert!(size_of::<Lane>() == 32);

impl Lane {
    fn new(link: Link, credit: u32) -> Self {
        let Link { rate, delay, dst, shard, to_node } = link;
        Self {
            rate,
            delay,
            dst,
            credit,
            back_bytes: 0,
            back_at: 0,
            wait_tail: NIL,
            shard,
            to_node,
            starving: false,
        }
    }

    /// The link.
    #[inline]
    pub fn link(&self) -> Link {
        let Self { rate, delay, dst, shard, to_node, .. } = *self;
        Link { rate, delay, dst, shard, to_node }
    }

    /// Takes credit for `bytes` if it is there `at` so long after the start of the window.
    #[inline]
    pub fn take(&mut self, bytes: u32, at: u32) -> bool {
        if self.credit < bytes && self.credit_at(at) < bytes {
            return false;
        }
        self.credit -= bytes;
        true
    }

    /// Credit that is there `at` so long after the start of the window.
    #[inline]
    pub fn credit_at(&mut self, at: u32) -> u32 {
        if self.back_at <= at {
            self.settle();
        }
        self.credit
    }

    /// Counts what has come back in a window that is over.
    #[inline]
    pub fn settle(&mut self) {
        self.credit += std::mem::take(&mut self.back_bytes);
    }

    /// Adds credit that is there now.
    #[inline]
    pub fn add(&mut self, bytes: u32) {
        self.credit += bytes;
    }

    /// Notes credit that comes back in the open window. Not where somebody waits for it, or for a second
    /// time in a window: then it must be an event.
    #[inline]
    pub fn expect(&mut self, at: u32, bytes: u32) -> bool {
        let noted = !self.starving && self.back_bytes == 0;
        if noted {
            (self.back_at, self.back_bytes) = (at, bytes);
        }
        noted
    }

    /// Somebody waits from now on: takes out what was noted for the rest of the window, if anything was.
    pub fn starve(&mut self) -> Option<(u32, u32)> {
        self.starving = true;
        match std::mem::take(&mut self.back_bytes) {
            0 => None,
            bytes => Some((self.back_at, bytes)),
        }
    }
}

/// Rate and delay of a link, as in [`Link`].
#[derive(Debug, Clone, Copy)]
struct Wire {
    rate: u32,
    delay: u32,
}

/// Time `bytes` take on a wire of `rate`, at least one picosecond.
#[inline]
fn serialization(bytes: u32, rate: u32) -> u64 {
    ((u64::from(bytes) * u64::from(rate)) >> RATE_BITS).max(1)
}

/// What adaptive routing compares, apart from all else: a switch's candidates are neighbours here.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    /// When the link has sent everything it took on (of a link's first lane).
    free_at: u64,
    /// Bytes that wait for credit at the lane.
    waiting: u64,
}

/// All links of a shard with their lanes.
///
/// Lane `l` of link `k` has the number `k × lanes + l`.
#[derive(Debug)]
pub(crate) struct Links {
    lanes: Vec<Lane>,
    loads: Vec<Load>,
    /// What others need to know of a lane: the switch that gives credit back, and who compares loads.
    wires: Vec<Wire>,
    /// Number of each link over the whole fabric.
    global: Vec<u32>,
    per_link: u32,
}

impl Links {
    /// `lanes` virtual lanes a link, each with `buffer` bytes at the far end; links with their numbers
    /// over the whole fabric.
    pub fn new(links: &[(u32, Link)], lanes: u8, buffer: u32) -> Self {
        let n = usize::from(lanes);
        let lane = |&(_, link): &(u32, Link)| std::iter::repeat_n(Lane::new(link, buffer), n);
        let wire = |(_, link): &(u32, Link)| {
            std::iter::repeat_n(Wire { rate: link.rate, delay: link.delay }, n)
        };
        Self {
            lanes: links.iter().flat_map(lane).collect(),
            loads: vec![Load::default(); links.len() * n],
            wires: links.iter().flat_map(wire).collect(),
            global: links.iter().map(|&(global, _)| global).collect(),
            per_link: lanes.into(),
        }
    }

    /// Number of lane `lane` of `link`.
    #[inline]
    pub fn lane_of(&self, link: u32, lane: u8) -> u32 {
        link * self.per_link + u32::from(lane)
    }

    /// Whether every link has one lane.
    #[inline]
    pub fn single_lane(&self) -> bool {
        self.per_link == 1
    }

    /// Lanes of `link`.
    pub fn lanes_of(&self, link: u32) -> std::ops::Range<u32> {
        link * self.per_link..(link + 1) * self.per_link
    }

    /// Link of a lane.
    #[inline]
    pub fn link_of(&self, lane: u32) -> u32 {
        if self.per_link == 1 { lane } else { lane / self.per_link }
    }

    /// Number over the whole fabric of a lane's link, and which of the link's lanes it is.
    pub fn link_and_lane(&self, lane: u32) -> (u32, u8) {
        (self.global(self.link_of(lane)), (lane % self.per_link) as u8)
    }

    /// Number of lanes of all links.
    pub fn n_lanes(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// Number of links.
    pub fn n_links(&self) -> u32 {
        self.n_lanes() / self.per_link
    }

    /// A link by its number within the shard.
    #[inline]
    pub fn link(&self, link: u32) -> Link {
        self.lane(self.lane_of(link, 0)).link()
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

    /// Starts to fetch a lane.
    #[inline]
    pub fn fetch_lane(&self, lane: u32) {
        prefetch(&self.lanes[lane as usize]);
    }

    /// Starts to fetch what a packet needs of a lane it may leave by.
    #[inline]
    pub fn fetch(&self, lane: u32) {
        prefetch(&self.lanes[lane as usize]);
        prefetch(&self.loads[lane as usize]);
    }

    /// Time a packet would wait at a lane before its own transmission: the adaptive measure.
    #[inline]
    pub fn backlog(&self, link: u32, lane: u8, now: u64) -> u64 {
        let first = self.lane_of(link, 0) as usize;
        let waiting = self.loads[first + usize::from(lane)].waiting;
        let sending = self.loads[first].free_at.saturating_sub(now);
        if waiting == 0 {
            sending
        } else {
            sending + serialization(waiting as u32, self.wires[first].rate)
        }
    }

    /// The first of `links` (numbers over the fabric, `shift` more than the shard's) with a backlog
    /// less than that of `best`, and less than all others'; an idle one at once.
    pub fn least_loaded(
        &self,
        links: &[u32],
        shift: u32,
        lane: u8,
        now: u64,
        mut best: (u32, u64),
    ) -> (u32, u64) {
        for link in links.iter().map(|link| link.wrapping_sub(shift)) {
            let backlog = self.backlog(link, lane, now);
            if backlog < best.1 {
                best = (link, backlog);
                if backlog == 0 {
                    break;
                }
            }
        }
        best
    }

    /// The same for links side by side that have one lane.
    #[inline]
    pub fn least_loaded_of(&self, links: Range<u32>, now: u64, mut best: (u32, u64)) -> (u32, u64) {
        for link in links {
            let backlog = self.backlog(link, 0, now);
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
        self.loads[self.lane_of(link, 0) as usize].free_at
    }

    /// Books `link` until `time`.
    #[inline]
    pub fn book(&mut self, link: u32, time: u64) {
        let first = self.lane_of(link, 0);
        self.loads[first as usize].free_at = time;
    }

    /// Bytes that wait for credit at `lane`.
    #[inline]
    pub fn waiting(&self, lane: u32) -> u64 {
        self.loads[lane as usize].waiting
    }

    /// The same, to change.
    #[inline]
    pub fn waiting_mut(&mut self, lane: u32) -> &mut u64 {
        &mut self.loads[lane as usize].waiting
    }

    /// Cable delay of a lane.
    #[inline]
    pub fn delay(&self, lane: u32) -> u32 {
        self.wires[lane as usize].delay
    }

    /// Starts to fetch the delay of a lane.
    #[inline]
    pub fn fetch_delay(&self, lane: u32) {
        prefetch(&self.wires[lane as usize]);
    }

    /// Number of a link over the whole fabric.
    #[inline]
    pub fn global(&self, link: u32) -> u32 {
        self.global[link as usize]
    }

    /// Credit of each lane: the whole buffer when the network is empty.
    pub fn credit(&self) -> impl Iterator<Item = u32> {
        self.lanes.iter().map(|lane| lane.credit + lane.back_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_taken_whole_or_not_at_all() {
        let mut links = Links::new(&[(7, Link::new(100.0, 0))], 2, 100);
        let lane = links.lane_mut(1);
        assert!(!lane.take(101, 0));
        assert!(lane.take(60, 0));
        assert!(!lane.take(41, 0));
        assert!(lane.expect(20, 5));
        assert!(!lane.expect(10, 5), "one at a time");
        assert!(!lane.take(41, 19));
        assert!(lane.take(41, 20));
        assert!(lane.expect(30, 50));
        assert_eq!(lane.starve(), Some((30, 50)));
        assert_eq!(lane.starve(), None);
        assert!(!lane.expect(40, 50), "somebody waits for it");
        assert_eq!(links.credit().collect::<Vec<_>>(), [100, 4]);
        assert_eq!((links.lane_of(0, 1), links.link_of(1), links.link_and_lane(1)), (1, 0, (7, 1)));
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
