//! Load of links in compact form: when each is free, and the bytes that wait for credit.

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::events::epoch::Epoch;
use crate::intrinsics::{SIMD_LANES, at_most_bits, collect_with_huge_pages, prefetch};

/// The loads that adaptive routing compares.
#[derive(Debug)]
pub(crate) struct Loads {
    /// Bytes waiting for credit at each lane.
    waiting: Vec<u64>,
    /// Compared several at a time: for each lane [`LANE_BUSY`] if packets wait there, otherwise, in
    /// a link's first lane, when the link is free. Padded at the end for SIMD loads.
    compact: Vec<i32>,
    pub epoch: Epoch,
    /// How often the last packet that waited at a lane left it.
    pub releases: u32,
}

/// Packets wait, or the link is busy beyond the epoch.
const LANE_BUSY: i32 = Epoch::FAR;

/// The output of a packet that has not arrived yet, chosen ahead so that its lane can be fetched.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Chosen {
    /// The link, shard index.
    pub link: u32,
    /// [`Loads::releases`] when it was chosen.
    pub releases: u32,
}

impl Loads {
    /// Loads of `lanes` lanes.
    pub fn new(lanes: usize) -> Self {
        Self {
            waiting: collect_with_huge_pages(lanes, std::iter::repeat_n(0, lanes)),
            compact: collect_with_huge_pages(
                lanes + SIMD_LANES,
                std::iter::repeat_n(0, lanes + SIMD_LANES),
            ),
            epoch: Epoch::new(0),
            releases: 0,
        }
    }

    /// Prefetches the loads of candidates from `start` on, beginning at position `first`.
    #[inline]
    pub fn prefetch(&self, start: u32, first: u32) {
        for link in [start, start + first, start + first + SIMD_LANES as u32 - 1] {
            prefetch(&self.compact, link);
        }
    }

    /// Prefetches the load of a lane.
    #[inline]
    pub fn prefetch_lane(&self, lane: u32) {
        prefetch(&self.compact, lane);
        prefetch(&self.waiting, lane);
    }

    /// Reserves the link whose first lane is `lane` until `time`.
    #[inline]
    pub fn reserve(&mut self, lane: u32, time: u64) {
        let compact = &mut self.compact[lane as usize];
        *compact = if *compact == LANE_BUSY { LANE_BUSY } else { self.epoch.since(time) };
    }

    /// Bytes waiting for credit at `lane`.
    #[inline]
    pub fn waiting(&self, lane: u32) -> u64 {
        if self.compact[lane as usize] == LANE_BUSY { self.waiting[lane as usize] } else { 0 }
    }

    /// Adds a packet of `wire` bytes to those that wait at `lane`.
    pub fn enqueue(&mut self, lane: u32, wire: u32) {
        self.waiting[lane as usize] += u64::from(wire);
        self.compact[lane as usize] = LANE_BUSY;
    }

    /// Removes a packet of `wire` bytes from those that wait at `lane`, whose link is free at
    /// `free_at`.
    pub fn dequeue(&mut self, lane: u32, wire: u32, free_at: u64) {
        let waiting = &mut self.waiting[lane as usize];
        *waiting -= u64::from(wire);
        if *waiting == 0 {
            self.releases = self.releases.wrapping_add(1);
            self.compact[lane as usize] = self.epoch.since(free_at);
        }
    }

    /// Whether `chosen`, the first idle one of `n` candidates at `now` as of an earlier event, still is:
    /// none before it has become idle since, and it is not busy.
    #[inline(always)]
    pub fn is_still_first_idle(&self, chosen: Chosen, n: u16, now: u64) -> bool {
        // Whether there is a choice is unpredictable: select without a branch.
        let forced = n == 1;
        let limit = select_unpredictable(forced, LANE_BUSY, self.epoch.present(now));
        let relevant = select_unpredictable(forced, 0, u32::MAX);
        let released = (chosen.releases ^ self.releases) & relevant;
        (released == 0) & (self.compact[chosen.link as usize] <= limit)
    }

    /// Begins `epoch`; `free_at` says when each lane's link is free.
    pub fn begin_epoch(&mut self, epoch: Epoch, free_at: impl Iterator<Item = u64>) {
        self.epoch = epoch;
        for ((compact, &waiting), free_at) in
            self.compact.iter_mut().zip(&self.waiting).zip(free_at)
        {
            *compact = if waiting > 0 { LANE_BUSY } else { epoch.since(free_at) };
        }
    }

    /// Time until each single-lane link is free; `None` if its full state must be read.
    #[inline(always)]
    pub fn time_until_idle(
        &self,
        links: Range<u32>,
        now: u64,
    ) -> impl Iterator<Item = Option<u64>> {
        let now = self.epoch.present(now);
        self.compact[links.start as usize..links.end as usize].iter().map(move |&compact| {
            // Relative times are not negative.
            let ahead = (compact - now).max(0);
            (compact != LANE_BUSY).then_some(ahead as u64)
        })
    }

    /// The first idle link of `n` consecutive ones from `start` on, beginning at position
    /// `first` cyclically, unless it is too far behind; with `n` = 1, that link.
    #[inline(always)]
    pub fn first_idle(&self, start: u32, n: u32, first: u32, now: u64) -> Option<u32> {
        if n > SIMD_LANES as u32 {
            return self.first_idle_of_many(start, n, first, now);
        }
        let idle = self.idle(start, n, now) | u32::from(n == 1);
        let behind = idle & (u32::MAX << first);
        // Which one it is is unpredictable: select without a branch.
        let found = select_unpredictable(behind != 0, behind, idle);
        (idle != 0).then(|| start + found.trailing_zeros())
    }

    /// The same of more than [`SIMD_LANES`] links: the first of as many from `first` on.
    #[inline(never)]
    fn first_idle_of_many(&self, start: u32, n: u32, first: u32, now: u64) -> Option<u32> {
        let idle = self.idle(start + first, (n - first).min(SIMD_LANES as u32), now);
        (idle != 0).then(|| start + first + idle.trailing_zeros())
    }

    /// A bit for each idle link of `n` from `start` on, at most [`SIMD_LANES`].
    #[inline(always)]
    fn idle(&self, start: u32, n: u32, now: u64) -> u32 {
        let (few, _) = self.compact[start as usize..].split_first_chunk().expect("a few follow");
        at_most_bits(few, self.epoch.present(now)) & (u32::MAX >> (SIMD_LANES as u32 - n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Changes of a link: packets wait, leave, or it is booked for some time.
    fn load_changes() -> impl Strategy<Value = Vec<(u64, u32, u8, u64)>> {
        proptest::collection::vec((0u64..3 << 28, 0u32..24, 0u8..4, 1u64..1 << 33), 1..200)
    }

    proptest! {
        /// A link that is found is the first that is free with nothing waiting; if none is
        /// found, none of the first is idle. Compact times are right.
        #[test]
        fn the_first_idle_one_is_found(load_changes in load_changes(), n in 1u32..=24, turn in 0u32..24) {
            let mut loads = Loads::new(24);
            let (mut now, mut busy, mut lines) = (0, [0u64; 24], [0u64; 24]);
            for (wait, link, what, long) in load_changes {
                now += wait;
                if loads.epoch.is_over(now) {
                    loads.begin_epoch(Epoch::new(now), busy.iter().copied());
                }
                let (at, first) = (link as usize, turn % n);
                let chosen = loads.first_idle(0, n, first, now);
                let chosen = chosen.map(|link| Chosen { link, releases: loads.releases });
                match what {
                    0 => {
                        lines[at] += u64::from(long as u32);
                        loads.enqueue(link, long as u32);
                    }
                    1 if lines[at] > 0 => {
                        let wire = lines[at] as u32;
                        lines[at] -= u64::from(wire);
                        loads.dequeue(link, wire, busy[at]);
                    }
                    _ => {
                        // Mostly short, sometimes beyond the epoch.
                        busy[at] = now.max(busy[at]) + (long >> (8 * u32::from(what)));
                        loads.reserve(link, busy[at]);
                    }
                }
                prop_assert_eq!(loads.waiting(link), lines[at]);
                if let Some(Some(backlog)) = loads.time_until_idle(link..link + 1, now).next() {
                    prop_assert_eq!((backlog, 0), (busy[at].saturating_sub(now), lines[at]));
                }
                // What was chosen before the change is taken only if it would be chosen now.
                if let Some(before) = chosen && n > 1 && loads.is_still_first_idle(before, n as u16, now) {
                    prop_assert_eq!(loads.first_idle(0, n, first, now), Some(before.link));
                }
                let idle = |link: u32| busy[link as usize] <= now && lines[link as usize] == 0;
                let mut row = (first..n).chain(0..first);
                match loads.first_idle(0, n, first, now) {
                    Some(found) => prop_assert!(n == 1 || row.find(|&link| idle(link)) == Some(found)),
                    None => prop_assert!(n > 1 && !row.take(SIMD_LANES).any(idle)),
                }
            }
        }
    }
}
