//! Load of links in compact form: when each is free, and the bytes that wait for credit.

use std::collections::BTreeMap;
use std::hint::select_unpredictable;
use std::ops::Range;

use crate::events::epoch::Epoch;
use crate::intrinsics::{SIMD_LANES, at_most_bits, collect_with_huge_pages, prefetch};

/// The loads that adaptive routing compares: when each link is free, and the bytes that wait for credit at each lane.
#[derive(Debug)]
pub(crate) struct Loads {
    /// Compared several at a time. For each lane, if packets wait there: their bytes. Otherwise,
    /// in a link's first lane, when the link is free, as a negative number: below that of any
    /// later time, and of any lane where packets wait. Padded at the end for SIMD loads.
    compact: Vec<i32>,
    /// Bytes that wait, where they are too many for `compact`.
    many_bytes: BTreeMap<u32, u64>,
    pub epoch: Epoch,
    /// How often the last packet that waited at a lane left it.
    pub releases: u32,
}

/// At least this many bytes wait: see [`Loads::many_bytes`].
const MANY_BYTES: i32 = i32::MAX;

/// A time of an epoch, below all numbers of bytes.
#[inline(always)]
fn below_bytes(since: i32) -> i32 {
    since.wrapping_add(i32::MIN)
}

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
        let n = lanes + SIMD_LANES;
        Self {
            compact: collect_with_huge_pages(n, std::iter::repeat_n(below_bytes(0), n)),
            many_bytes: BTreeMap::new(),
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
    }

    /// `time` as it is stored.
    #[inline(always)]
    fn free_from(&self, time: u64) -> i32 {
        below_bytes(self.epoch.since(time))
    }

    /// Reserves the link whose first lane is `lane` until `time`.
    #[inline]
    pub fn reserve(&mut self, lane: u32, time: u64) {
        let free_from = self.free_from(time);
        let compact = &mut self.compact[lane as usize];
        *compact = if *compact >= 0 { *compact } else { free_from };
    }

    /// Bytes waiting for credit at `lane`.
    #[inline]
    pub fn waiting(&self, lane: u32) -> u64 {
        let bytes = self.compact[lane as usize].max(0);
        if bytes == MANY_BYTES { self.many_bytes[&lane] } else { bytes as u64 }
    }

    /// Adds a packet of `wire` bytes to those that wait at `lane`.
    pub fn enqueue(&mut self, lane: u32, wire: u32) {
        self.set_waiting(lane, self.waiting(lane) + u64::from(wire));
    }

    /// Removes a packet of `wire` bytes from those that wait at `lane`, whose link is free at
    /// `free_at`.
    pub fn dequeue(&mut self, lane: u32, wire: u32, free_at: u64) {
        let bytes = self.waiting(lane) - u64::from(wire);
        self.set_waiting(lane, bytes);
        if bytes == 0 {
            self.releases = self.releases.wrapping_add(1);
            self.compact[lane as usize] = self.free_from(free_at);
        }
    }

    /// Stores the bytes that wait at `lane`.
    fn set_waiting(&mut self, lane: u32, bytes: u64) {
        self.compact[lane as usize] = i32::try_from(bytes).unwrap_or(MANY_BYTES);
        if bytes >= MANY_BYTES as u64 {
            self.many_bytes.insert(lane, bytes);
        }
    }

    /// Whether `chosen` is still the first idle one of `n` candidates at `now`. It was when chosen,
    /// at an earlier event.
    #[inline(always)]
    pub fn is_still_first_idle(&self, chosen: Chosen, n: u16, now: u64) -> bool {
        // Whether there is a choice is unpredictable: select without a branch.
        let forced = n == 1;
        let limit = select_unpredictable(forced, i32::MAX, below_bytes(self.epoch.present(now)));
        let relevant = select_unpredictable(forced, 0, u32::MAX);
        let released = (chosen.releases ^ self.releases) & relevant;
        (released == 0) & (self.compact[chosen.link as usize] <= limit)
    }

    /// Begins `epoch`; `free_at` says when each lane's link is free.
    pub fn begin_epoch(&mut self, epoch: Epoch, free_at: impl Iterator<Item = u64>) {
        self.epoch = epoch;
        for (compact, free_at) in self.compact.iter_mut().zip(free_at) {
            if *compact < 0 {
                *compact = below_bytes(epoch.since(free_at));
            }
        }
    }

    /// Time until each single-lane link is free; `None` if its full state must be read.
    #[inline(always)]
    pub fn time_until_idle(
        &self,
        links: Range<u32>,
        now: u64,
    ) -> impl Iterator<Item = Option<u64>> {
        let now = below_bytes(self.epoch.present(now));
        let far = below_bytes(Epoch::FAR);
        self.compact[links.start as usize..links.end as usize].iter().map(move |&compact| {
            // A negative difference is that of an idle link.
            let ahead = compact.wrapping_sub(now).max(0);
            (compact < far).then_some(ahead as u64)
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
        // The position is unpredictable: select without a branch.
        let first_idle = select_unpredictable(behind != 0, behind, idle);
        (idle != 0).then(|| start + first_idle.trailing_zeros())
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
        let now = below_bytes(self.epoch.present(now));
        at_most_bits(few, now) & !(u64::MAX << n) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Changes of a link: packets wait, leave, or it is booked for some time.
    fn load_changes() -> impl Strategy<Value = Vec<(u64, u32, u8, u64)>> {
        proptest::collection::vec((0u64..3 << 28, 0u32..48, 0u8..4, 1u64..1 << 33), 1..200)
    }

    proptest! {
        /// A returned link is the first that is free and has no waiting packets. If there is none,
        /// no link in reach is idle. Compact times agree with the full state.
        #[test]
        fn the_first_idle_one_is_found(load_changes in load_changes(), n in 1u32..=48, turn in 0u32..48) {
            let mut loads = Loads::new(48);
            let (mut now, mut busy, mut lines) = (0, [0u64; 48], [0u64; 48]);
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
                // A choice made before the change is kept only if it would be made now.
                if let Some(before) = chosen && n > 1 && loads.is_still_first_idle(before, n as u16, now) {
                    prop_assert_eq!(loads.first_idle(0, n, first, now), Some(before.link));
                }
                let idle = |link: u32| busy[link as usize] <= now && lines[link as usize] == 0;
                let mut row = (first..n).chain(0..first);
                match loads.first_idle(0, n, first, now) {
                    Some(chosen) => prop_assert!(n == 1 || row.find(|&link| idle(link)) == Some(chosen)),
                    None => {
                        // If there are many links, those from the first on; otherwise all.
                        let many = (n as usize > SIMD_LANES).then_some((n - first) as usize);
                        let examined = many.map_or(n as usize, |behind| behind.min(SIMD_LANES));
                        prop_assert!(n > 1 && !row.take(examined).any(idle));
                    }
                }
            }
        }
    }
}
