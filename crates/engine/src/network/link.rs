//! Directed links: the transmitter, and for each virtual lane the credit for its buffer at the far
//! end and the packets that wait for it.

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::events::epoch::Epoch;
use crate::intrinsics::{at_most_bits_of_4, collect_with_huge_pages, prefetch};
use crate::network::cable::{Cable, distinct};
use crate::network::load::Loads;

/// Marks the absence of a packet, link or message.
pub(crate) const NIL: u32 = u32::MAX;

/// A time that is never reached.
pub(crate) const NEVER: u64 = u64::MAX;

/// A directed link of a shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub cable: Cable,
    /// Number in the fabric.
    pub global: u32,
    /// The vertex it leads to, and its shard.
    pub dst: u32,
    pub shard: u8,
    /// Input port at the switch it leads to: the index of the reverse link among the links that
    /// leave there.
    pub port: u16,
    /// Group of its source vertex.
    pub src_group: u32,
    /// It leads to a node.
    pub to_node: bool,
    /// It comes from a node.
    pub from_node: bool,
}

/// Notes of returning credit that a lane can hold, of less than 64 KiB each.
const CREDIT_NOTES: usize = 4;

/// One virtual lane of a link: the credit for its buffer at the far end, and who waits for it.
///
/// Returning credit is only noted. Notes are added up when the credit without them is too small, or
/// when there is no room for another note. Times are those of an [`Epoch`].
#[derive(Debug, Clone)]
#[repr(align(64))]
pub(crate) struct Lane {
    /// The vertex it leads to.
    pub dst: u32,
    /// Group of its source vertex.
    pub src_group: u32,
    /// Number of the link in the fabric.
    pub global: u32,
    /// First and last packet of the linked list that waits for credit, in order of arrival;
    /// empty if the last is [`NIL`].
    first_waiting: u32,
    last_waiting: u32,
    /// Index of its cable among those of the shard.
    cable: u16,
    /// As in [`Link`].
    pub port: u16,
    /// A lower bound on the size of waiting packets, saturated.
    smallest_waiting: u16,
    /// Shard of the vertex it leads to.
    pub shard: u8,
    flags: u8,
    /// Bytes that may be sent, not counting the notes.
    credit: u32,
    /// Bytes of returning credit, and when they are available.
    note_bytes: [u16; CREDIT_NOTES],
    note_times: [i32; CREDIT_NOTES],
    /// When the link is free; valid in its first lane only.
    free_at: u64,
}

const _: () = assert!(size_of::<Lane>() == 64);

/// A packet of the lane's queue, or the adapter at its source, waits for credit.
const STARVING: u8 = 1;
const TO_NODE: u8 = 2;
const FROM_NODE: u8 = 4;

impl Lane {
    fn new(link: &Link, cable: u16, credit: u32) -> Self {
        let Link { global, dst, shard, port, src_group, to_node, from_node, .. } = *link;
        Self {
            dst,
            src_group,
            global,
            first_waiting: NIL,
            last_waiting: NIL,
            cable,
            port,
            smallest_waiting: u16::MAX,
            shard,
            flags: (TO_NODE * u8::from(to_node)) | (FROM_NODE * u8::from(from_node)),
            credit,
            note_bytes: [0; CREDIT_NOTES],
            note_times: [0; CREDIT_NOTES],
            free_at: 0,
        }
    }

    /// Whether it leads to a node.
    #[inline]
    pub fn leads_to_node(&self) -> bool {
        self.flags & TO_NODE != 0
    }

    /// Whether it comes from a node.
    #[inline]
    pub fn starts_at_node(&self) -> bool {
        self.flags & FROM_NODE != 0
    }

    /// First and last packet that wait for credit, if any do.
    #[inline]
    pub fn waiting_ends(&self) -> Option<(u32, u32)> {
        (self.last_waiting != NIL).then_some((self.first_waiting, self.last_waiting))
    }

    /// Appends the packet in `slot` to the queue; returns the packet before it, if any.
    #[inline]
    pub fn enqueue(&mut self, slot: u32, bytes: u32) -> Option<u32> {
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        let before = std::mem::replace(&mut self.last_waiting, slot);
        if before == NIL {
            (self.first_waiting, self.smallest_waiting) = (slot, bytes);
            return None;
        }
        self.smallest_waiting = self.smallest_waiting.min(bytes);
        Some(before)
    }

    /// Removes the first packet; `next` is the one behind it, if any.
    #[inline]
    pub fn dequeue(&mut self, next: u32) {
        if self.first_waiting == self.last_waiting {
            self.last_waiting = NIL;
        }
        self.first_waiting = next;
    }

    /// Whether there is too little credit for any waiting packet, without touching them.
    #[inline]
    pub fn credit_below_smallest(&self) -> bool {
        self.credit < self.smallest_waiting.into()
    }

    /// Whether a packet or an adapter waits for credit.
    #[inline]
    pub fn is_starving(&self) -> bool {
        self.flags & STARVING != 0
    }

    /// Clears the waiting state; returns whether it was set.
    #[inline]
    pub fn clear_starving(&mut self) -> bool {
        let starving = self.is_starving();
        self.flags &= !STARVING;
        starving
    }

    /// Takes credit for `bytes` if it is there at `now`.
    #[inline]
    pub fn take_credit(&mut self, bytes: u32, now: i32) -> bool {
        let enough = self.has(bytes, now);
        if enough {
            self.credit -= bytes;
        }
        enough
    }

    /// Whether there is credit for `bytes` at `now`.
    #[inline]
    pub fn has(&mut self, bytes: u32, now: i32) -> bool {
        self.credit >= bytes || {
            self.collect_notes(now);
            self.credit >= bytes
        }
    }

    /// Adds up the notes whose time has come.
    #[inline]
    fn collect_notes(&mut self, now: i32) {
        for (bytes, &time) in self.note_bytes.iter_mut().zip(&self.note_times) {
            if time <= now {
                self.credit += u32::from(std::mem::take(bytes));
            }
        }
    }

    /// Adds credit that is available now.
    #[inline]
    pub fn add(&mut self, bytes: u32) {
        self.credit += bytes;
    }

    /// Notes credit that returns at `time`. Returns false if the return must be an event instead:
    /// because a packet waits for it, or there is no space for the note. No later query is for a
    /// time before `since`.
    #[inline(always)]
    fn note_credit(&mut self, time: i32, bytes: u16, since: i32) -> bool {
        let expired = at_most_bits_of_4(&self.note_times, since);
        if self.is_starving() || expired == 0 {
            return false;
        }
        let place = expired.trailing_zeros() as usize % CREDIT_NOTES;
        self.credit += u32::from(std::mem::replace(&mut self.note_bytes[place], bytes));
        self.note_times[place] = time;
        true
    }

    /// Enters the waiting state; takes out the pending notes as (time, bytes).
    fn starve(&mut self) -> impl Iterator<Item = (i32, u32)> + use<> {
        self.flags |= STARVING;
        let note_times = std::mem::take(&mut self.note_times).into_iter();
        let note_bytes = std::mem::take(&mut self.note_bytes).into_iter().map(u32::from);
        note_times.zip(note_bytes).filter(|&(_, bytes)| bytes > 0)
    }
}

/// Lanes that fit in a core's own caches.
const CACHED_LANES: usize = 1 << 16;

/// All links of a shard with their lanes.
///
/// Lane `l` of link `k` has the number `k × lanes + l`.
#[derive(Debug)]
pub(crate) struct Links {
    lanes: Vec<Lane>,
    pub loads: Loads,
    cables: Vec<Cable>,
    per_link: u32,
    /// No later query is for an earlier time.
    window_start: i32,
}

impl Links {
    /// Links with `lanes` virtual lanes each and buffers of `buffer` bytes at the far end.
    ///
    /// # Panics
    /// If there are more than [`Links::MAX_CABLES`] distinct cables.
    pub fn new(links: &[Link], lanes: u8, buffer: u32) -> Self {
        let (n, per_link) = (usize::from(lanes), lanes.into());
        let (cables, numbers) = distinct(links.iter().map(|link| link.cable));
        let wire = numbers.iter().flat_map(|&wire| {
            let wire = u16::try_from(wire).expect("wires are counted before the run");
            std::iter::repeat_n(wire, n)
        });
        let of_lanes = links.iter().flat_map(|link| std::iter::repeat_n(link, n)).zip(wire);
        let of_lanes = of_lanes.map(|(link, wire)| Lane::new(link, wire, buffer));
        let lanes = collect_with_huge_pages(links.len() * n, of_lanes);
        Self { lanes, loads: Loads::new(links.len() * n), cables, per_link, window_start: 0 }
    }

    /// Maximum number of distinct cables.
    pub const MAX_CABLES: usize = 1 << 16;

    /// Number of lane `lane` of `link`.
    #[inline]
    pub fn lane_of(&self, link: u32, lane: u8) -> u32 {
        link * self.per_link + u32::from(lane)
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

    /// Fabric number of a lane's link, and the lane's index within it.
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

    /// Cable of a lane.
    #[inline]
    pub fn cable(&self, lane: &Lane) -> Cable {
        self.cables[usize::from(lane.cable)]
    }

    /// Cable of a link.
    #[inline]
    pub fn cable_of(&self, link: u32) -> Cable {
        self.cable(self.lane(self.lane_of(link, 0)))
    }

    /// The lane.
    #[inline]
    pub fn lane(&self, lane: u32) -> &Lane {
        &self.lanes[lane as usize]
    }

    /// The lane, mutable.
    #[inline]
    pub fn lane_mut(&mut self, lane: u32) -> &mut Lane {
        &mut self.lanes[lane as usize]
    }

    /// Prefetches a lane.
    #[inline]
    pub fn prefetch_lane(&self, lane: u32) {
        prefetch(&self.lanes, lane);
    }

    /// Prefetches a lane with its load.
    #[inline]
    pub fn prefetch_lane_and_load(&self, lane: u32) {
        prefetch(&self.lanes, lane);
        if self.exceed_cache() {
            self.loads.prefetch_lane(lane);
        }
    }

    /// Whether the lanes do not fit in the cache.
    #[inline]
    pub fn exceed_cache(&self) -> bool {
        self.lanes.len() > CACHED_LANES
    }

    /// Time a packet would wait at a lane before its own transmission: the measure of adaptive
    /// routing.
    #[inline(always)]
    pub fn backlog(&self, link: u32, lane: u8, now: u64) -> u64 {
        let lane = self.lane_of(link, lane);
        let waiting = self.loads.waiting(lane);
        let line = if waiting > 0 { self.drain_ps(lane, waiting) } else { 0 };
        self.free_at(link).saturating_sub(now) + line
    }

    /// Bytes that wait at a lane with `buffer` bytes at its far end, and those whose credit has
    /// not come back at `now`.
    pub fn unreturned(&self, lane: u32, buffer: u32, now: u64) -> u64 {
        let (state, brief) = (self.lane(lane), self.present(now));
        let notes = state.note_bytes.iter().zip(&state.note_times);
        let back: u32 = notes.map(|(&b, &time)| u32::from(b) * u32::from(time <= brief)).sum();
        self.loads.waiting(lane) + u64::from(buffer - state.credit - back)
    }

    /// Transmission time of `bytes` on a lane's link.
    #[inline(never)]
    fn drain_ps(&self, lane: u32, bytes: u64) -> u64 {
        self.cable(self.lane(lane)).drain_ps(bytes)
    }

    /// The first of `links` (fabric numbers, `shift` above the shard's) with the smallest
    /// backlog, if that is smaller than that of `best`; stops at the first idle one.
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

    /// The link with the smallest backlog among `n` consecutive single-lane links from `start`
    /// on; ties go to the first from position `first` on, cyclically. With `n` = 1, that link,
    /// whatever its lanes.
    #[inline(always)]
    pub fn least_loaded_in_range(&self, start: u32, n: u32, first: u32, now: u64) -> u32 {
        let smallest_waiting =
            || self.least_backlog_in_ranges([start + first..start + n, start..start + first], now);
        self.loads.first_idle(start, n, first, now).unwrap_or_else(smallest_waiting)
    }

    /// The same when none of the first links is idle.
    #[inline(never)]
    fn least_backlog_in_ranges(&self, parts: [Range<u32>; 2], now: u64) -> u32 {
        let mut best = (NIL, NEVER);
        for links in parts {
            for (link, brief) in links.clone().zip(self.loads.time_until_idle(links, now)) {
                let backlog = brief.unwrap_or_else(|| self.backlog(link, 0, now));
                // The minimum is unpredictable: select without a branch.
                let less = backlog < best.1;
                best.0 = select_unpredictable(less, link, best.0);
                best.1 = select_unpredictable(less, backlog, best.1);
            }
        }
        best.0
    }

    /// When `link` is free.
    #[inline]
    pub fn free_at(&self, link: u32) -> u64 {
        self.lane(self.lane_of(link, 0)).free_at
    }

    /// Reserves `link` for `busy_ps` after earlier reservations; returns the start.
    #[inline]
    pub fn reserve(&mut self, link: u32, now: u64, busy_ps: u64) -> u64 {
        let first = self.lane_of(link, 0);
        let free_at = &mut self.lane_mut(first).free_at;
        let start = now.max(*free_at);
        *free_at = start + busy_ps;
        self.loads.reserve(first, start + busy_ps);
        start
    }

    /// Adds a packet of `wire` bytes to those that wait at `lane`.
    pub fn enqueue(&mut self, lane: u32, wire: u32) {
        self.loads.enqueue(lane, wire);
    }

    /// Removes a packet of `wire` bytes from those that wait at `lane`.
    pub fn dequeue(&mut self, lane: u32, wire: u32) {
        self.loads.dequeue(lane, wire, self.lanes[lane as usize].free_at);
    }

    /// A window begins at `now`: no later event is earlier.
    #[inline]
    pub fn begin_window(&mut self, now: u64) {
        if self.loads.epoch.is_over(now) {
            self.begin_epoch(now);
        }
        self.window_start = self.present(now);
    }

    /// Begins a new epoch.
    #[cold]
    fn begin_epoch(&mut self, now: u64) {
        let (before, next) = (self.loads.epoch, Epoch::new(now));
        for time in self.lanes.iter_mut().flat_map(|lane| &mut lane.note_times) {
            *time = next.since(before.time(*time));
        }
        self.loads.begin_epoch(next, self.lanes.iter().map(|lane| lane.free_at));
    }

    /// The current time in the epoch of lanes.
    #[inline(always)]
    pub fn present(&self, now: u64) -> i32 {
        self.loads.epoch.present(now)
    }

    /// Whether there is credit for `bytes` at `lane` at `now`.
    pub fn has(&mut self, lane: u32, bytes: u32, now: u64) -> bool {
        let now = self.present(now);
        self.lane_mut(lane).has(bytes, now)
    }

    /// Takes credit for `bytes` at `lane` if it is there at `now`.
    #[inline]
    pub fn take_credit(&mut self, lane: u32, bytes: u32, now: u64) -> bool {
        let now = self.present(now);
        self.lane_mut(lane).take_credit(bytes, now)
    }

    /// Enters the waiting state of `lane`; takes out the pending notes as (time, bytes).
    pub fn starve(&mut self, lane: u32) -> impl Iterator<Item = (u64, u32)> + use<> {
        let epoch = self.loads.epoch;
        self.lane_mut(lane).starve().map(move |(time, bytes)| (epoch.time(time), bytes))
    }

    /// Returns buffer space that is free at `freed` to a lane. The result is when the credit is
    /// available there, and whether that must be an event.
    #[inline(always)]
    pub fn return_credit(&mut self, lane: u32, freed: u64, bytes: u32) -> (u64, bool) {
        let lane = &mut self.lanes[lane as usize];
        let time = freed + u64::from(self.cables[usize::from(lane.cable)].delay);
        let brief = self.loads.epoch.since(time);
        let small = u16::try_from(bytes).ok().filter(|_| brief != Epoch::FAR);
        (time, small.is_none_or(|bytes| !lane.note_credit(brief, bytes, self.window_start)))
    }

    /// Fabric number of a link.
    #[inline]
    pub fn global(&self, link: u32) -> u32 {
        self.lane(self.lane_of(link, 0)).global
    }

    /// Fabric number of each link.
    pub fn global_numbers(&self) -> Vec<u32> {
        (0..self.n_links()).map(|link| self.global(link)).collect()
    }

    /// Credit of each lane, notes included: the whole buffer when the network is empty.
    pub fn credit(&self) -> impl Iterator<Item = u32> {
        let note_bytes = |lane: &Lane| lane.note_bytes.iter().copied().map(u32::from).sum::<u32>();
        self.lanes.iter().map(move |lane| lane.credit + note_bytes(lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Link {
        /// A link between switches of which only the number and cable matter.
        pub fn isolated(global: u32, cable: Cable) -> Self {
            let (to_node, from_node) = (false, false);
            let (dst, shard, port, src_group) = (0, 0, 0, 0);
            Self { cable, global, dst, shard, port, src_group, to_node, from_node }
        }
    }

    #[test]
    fn credit_is_taken_fully_or_not_at_all() {
        let link = Link::isolated(7, Cable::new(100.0, 0));
        let mut links = Links::new(&[link], 2, 100);
        let lane = links.lane_mut(1);
        assert!(!lane.take_credit(101, 0));
        assert!(lane.take_credit(100, 0));
        for time in [20, 10, 30, 30] {
            assert!(lane.note_credit(time, 5, 1));
        }
        assert!(!lane.take_credit(6, 19));
        assert!(lane.take_credit(5, 10));
        assert!(
            !lane.note_credit(60, 5, 9) && lane.note_credit(50, 5, 10),
            "of five one must have come"
        );
        assert!(!lane.has(6, 29) && lane.has(15, 30));
        assert_eq!(lane.starve().collect::<Vec<_>>(), [(50, 5)]);
        assert_eq!(lane.starve().count(), 0);
        assert!(!lane.note_credit(70, 50, 50), "somebody waits for it");
        assert_eq!(links.credit().collect::<Vec<_>>(), [100, 15]);
    }

    #[test]
    fn packets_wait_for_credit_in_order() {
        let link = Link::isolated(7, Cable::new(100.0, 0));
        let mut links = Links::new(&[link], 2, 15);
        let lane = links.lane_mut(1);
        assert_eq!([lane.enqueue(3, 80), lane.enqueue(4, 16)], [None, Some(3)]);
        assert!(lane.credit_below_smallest(), "15 are there");
        assert_eq!(lane.enqueue(5, 15), Some(4));
        assert!(!lane.credit_below_smallest());
        for (line, next) in [((3, 5), 4), ((4, 5), 5), ((5, 5), 9)] {
            assert_eq!(lane.waiting_ends(), Some(line));
            lane.dequeue(next);
        }
        assert_eq!((lane.waiting_ends(), lane.enqueue(6, 1 << 16)), (None, None));
        assert!(lane.credit_below_smallest(), "the others have gone");
        assert_eq!(lane.starve().count(), 0);
        assert!(lane.clear_starving() && !lane.clear_starving());
        assert_eq!((links.lane_of(0, 1), links.link_of(1), links.link_and_lane(1)), (1, 0, (7, 1)));
    }

    #[test]
    fn notes_and_loads_outlast_their_epoch() {
        let link = Link::isolated(0, Cable::new(100.0, 7));
        let mut links = Links::new(&[link], 1, 10);
        assert!(links.take_credit(0, 10, 0));
        let late = (1 << 30) + 100;
        assert_eq!(links.return_credit(0, late, 4), (late + 7, false));
        assert_eq!(links.return_credit(0, 3 << 30, 1), ((3 << 30) + 7, true), "beyond the epoch");
        assert_eq!(links.reserve(0, late, 9), late);
        links.begin_window(1 << 30);
        assert!(!links.has(0, 4, late + 6) && links.has(0, 4, late + 7));
        assert_eq!(links.return_credit(0, late, 1 << 16), (late + 7, true), "too much for a note");
        let idle = |links: &Links, now| links.loads.time_until_idle(0..1, now).next().flatten();
        assert_eq!([late, late + 20].map(|now| idle(&links, now)), [Some(9), Some(0)]);
        assert_eq!(links.return_credit(0, late + 30, 2), (late + 37, false));
        assert_eq!(links.starve(0).collect::<Vec<_>>(), [(late + 37, 2)]);
    }
}
