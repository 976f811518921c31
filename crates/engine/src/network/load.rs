//! Load of links in brief: when each has sent everything it took on, and what waits for credit.

use std::hint::select_unpredictable;
use std::ops::Range;

use crate::events::epoch::Epoch;
use crate::intrinsics::{SIMD_LANES, at_most_bits, collect_with_huge_pages, prefetch};

/// What adaptive routing compares.
#[derive(Debug)]
pub(crate) struct Loads {
    /// Bytes that wait for credit at each lane.
    waiting: Vec<u64>,
    /// What several are seen by at once: for each lane [`BUSY`] if packets wait there, and of a link's first
    /// lane otherwise when the link is free. A few that no lane has follow.
    compact: Vec<i32>,
    pub epoch: Epoch,
}

/// Packets wait, or the link is not free for long.
const BUSY: i32 = Epoch::FAR;

impl Loads {
    /// Of so many lanes.
    pub fn new(lanes: usize) -> Self {
        Self {
            waiting: collect_with_huge_pages(lanes, std::iter::repeat_n(0, lanes)),
            compact: collect_with_huge_pages(
                lanes + SIMD_LANES,
                std::iter::repeat_n(0, lanes + SIMD_LANES),
            ),
            epoch: Epoch::new(0),
        }
    }

    /// Starts to fetch what is looked at of candidates side by side from `start` on, from place `first` on,
    /// round the row.
    #[inline]
    pub fn prefetch(&self, start: u32, first: u32) {
        for link in [start, start + first, start + first + 2 * SIMD_LANES as u32 - 1] {
            prefetch(&self.compact, link);
        }
    }

    /// Starts to fetch that of a lane, and what waits there.
    #[inline]
    pub fn prefetch_lane(&self, lane: u32) {
        prefetch(&self.compact, lane);
        prefetch(&self.waiting, lane);
    }

    /// Books the link whose first lane is `lane` until `time`.
    #[inline]
    pub fn book(&mut self, lane: u32, time: u64) {
        let compact = &mut self.compact[lane as usize];
        *compact = if *compact == BUSY { BUSY } else { self.epoch.since(time) };
    }

    /// Bytes that wait for credit at `lane`.
    #[inline]
    pub fn waiting(&self, lane: u32) -> u64 {
        if self.compact[lane as usize] == BUSY { self.waiting[lane as usize] } else { 0 }
    }

    /// A packet of `wire` bytes waits at `lane`.
    pub fn enqueue(&mut self, lane: u32, wire: u32) {
        self.waiting[lane as usize] += u64::from(wire);
        self.compact[lane as usize] = BUSY;
    }

    /// A packet of `wire` bytes no longer waits at `lane`, whose link is free at `free_at`.
    pub fn dequeue(&mut self, lane: u32, wire: u32, free_at: u64) {
        let waiting = &mut self.waiting[lane as usize];
        *waiting -= u64::from(wire);
        if *waiting == 0 {
            self.compact[lane as usize] = self.epoch.since(free_at);
        }
    }

    /// Begins `epoch`; lanes are free at these times.
    pub fn begin_epoch(&mut self, epoch: Epoch, free_at: impl Iterator<Item = u64>) {
        self.epoch = epoch;
        for ((compact, &waiting), free_at) in
            self.compact.iter_mut().zip(&self.waiting).zip(free_at)
        {
            *compact = if waiting > 0 { BUSY } else { epoch.since(free_at) };
        }
    }

    /// Time until each of the links, which have one lane, is free; none if more must be looked at.
    #[inline(always)]
    pub fn time_until_idle(
        &self,
        links: Range<u32>,
        now: u64,
    ) -> impl Iterator<Item = Option<u64>> {
        let now = self.epoch.present(now);
        self.compact[links.start as usize..links.end as usize].iter().map(move |&compact| {
            // Times of an epoch and the present are not negative.
            let ahead = (compact - now).max(0);
            (compact != BUSY).then_some(ahead as u64)
        })
    }

    /// The first idle link of `n` side by side from `start` on, from place `first` on, round the row, if
    /// it is one of the first few; of a single one that one.
    #[inline(always)]
    pub fn first_idle(&self, start: u32, n: u32, first: u32, now: u64) -> Option<u32> {
        const FEW: u32 = SIMD_LANES as u32;
        let now = self.epoch.present(now);
        let idle = |from: u32, n: u32| {
            let (few, _) =
                self.compact[(start + from) as usize..].split_first_chunk().expect("a few follow");
            at_most_bits(few, now) & ((1 << n.min(FEW)) - 1)
        };
        // A few, and the next few. Which one it is nobody could guess: so there is no branch on it.
        let ends = n - first <= FEW;
        let next = select_unpredictable(ends, 0, first + FEW);
        let left = select_unpredictable(ends, first, (n - first).wrapping_sub(FEW));
        let found = idle(first, n - first) | u32::from(n == 1) | idle(next, left) << FEW;
        let place = found.trailing_zeros();
        let turned = select_unpredictable(place < FEW, first, next.wrapping_sub(FEW));
        (found != 0).then(|| start + turned.wrapping_add(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What happens to a link: packets wait, go on, or it is booked for some time.
    fn happenings() -> impl Strategy<Value = Vec<(u64, u32, u8, u64)>> {
        proptest::collection::vec((0u64..3 << 28, 0u32..24, 0u8..4, 1u64..1 << 33), 1..200)
    }

    proptest! {
        /// A link that is found is the first that is free and has nobody waiting; if none is found, none
        /// of the first few is. What is said in brief is right.
        #[test]
        fn the_first_idle_one_is_found(happenings in happenings(), n in 1u32..=24, turn in 0u32..24) {
            let mut loads = Loads::new(24);
            let (mut now, mut busy, mut lines) = (0, [0u64; 24], [0u64; 24]);
            for (wait, link, what, long) in happenings {
                now += wait;
                if loads.epoch.is_over(now) {
                    loads.begin_epoch(Epoch::new(now), busy.iter().copied());
                }
                let at = link as usize;
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
                        // Mostly short, now and then beyond what is seen in brief.
                        busy[at] = now.max(busy[at]) + (long >> (8 * u32::from(what)));
                        loads.book(link, busy[at]);
                    }
                }
                prop_assert_eq!(loads.waiting(link), lines[at]);
                if let Some(Some(backlog)) = loads.time_until_idle(link..link + 1, now).next() {
                    prop_assert_eq!((backlog, 0), (busy[at].saturating_sub(now), lines[at]));
                }
                let first = turn % n;
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
