//! Pending items of each of the next time windows, unordered.

use crate::events::epoch::Epoch;
use crate::intrinsics::{prefetch, push_with_huge_pages};

/// Number of windows of the ring.
pub(crate) const WINDOWS: usize = 1 << 10;

/// No chunk.
const NIL: u32 = u32::MAX;

/// Division of time into windows of equal length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    width: u64,
    /// 2^64 / `width`.
    inverse: u64,
}

impl Clock {
    pub fn new(width: u64) -> Self {
        // Every time in a window that begins in an epoch is representable in that epoch.
        let width = width.clamp(2, Epoch::LONG / 2);
        Self { width, inverse: ((1u128 << 64) / u128::from(width)) as u64 }
    }

    /// Right shift that brings an offset within a window below `parts`, a power of two.
    pub fn shift(&self, parts: u64) -> u32 {
        self.width.div_ceil(parts).next_power_of_two().ilog2()
    }

    /// The window of `time`, and the offset within it.
    #[inline]
    pub fn split(&self, time: u64) -> (u64, u32) {
        // The inverse is rounded down, so the quotient is at most one too small.
        let window = ((u128::from(time) * u128::from(self.inverse)) >> 64) as u64;
        let offset = time - window * self.width;
        if offset < self.width {
            (window, offset as u32)
        } else {
            (window + 1, (offset - self.width) as u32)
        }
    }

    /// When `window` begins.
    #[inline]
    pub fn start(&self, window: u64) -> u64 {
        window * self.width
    }
}

/// Some of the pending items of a window.
#[derive(Debug)]
#[repr(align(64))]
struct Chunk<T>([T; CHUNK_ITEMS]);

const CHUNK_ITEMS: usize = 32;

/// The first chunk of a window; all chunks linked behind it are full.
#[derive(Debug, Clone, Copy)]
struct Pending {
    chunk: u32,
    used: u32,
}

impl Pending {
    const NONE: Self = Self { chunk: NIL, used: 0 };
}

/// A list for each of the next [`WINDOWS`] windows. Insertion is O(1); memory is proportional to
/// the pending items, plus a few chunks.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    slots: Box<[Pending; WINDOWS]>,
    /// Chunks of all windows. The most recently freed chunk is reused first, which keeps the
    /// working set in the cache.
    chunks: Vec<Chunk<T>>,
    /// Link of each chunk to the next one of the same window or of the free list; apart from
    /// the chunks, so that following it does not touch their memory.
    next: Vec<u32>,
    free: u32,
    /// A bit for every window with items.
    occupied: [u64; WINDOWS / 64],
    len: usize,
}

impl<T: Copy + Default> Ring<T> {
    pub fn new() -> Self {
        Self {
            slots: Box::new([Pending::NONE; WINDOWS]),
            chunks: Vec::new(),
            next: Vec::new(),
            free: NIL,
            occupied: [0; WINDOWS / 64],
            len: 0,
        }
    }

    /// Items of all windows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds an item for `window`, which must be within the ring.
    #[inline]
    pub fn push(&mut self, window: u64, item: T) {
        let slot = window as usize % WINDOWS;
        let pending = &mut self.slots[slot];
        if let Some(chunk) = self.chunks.get_mut(pending.chunk as usize)
            && let Some(place) = chunk.0.get_mut(pending.used as usize)
        {
            *place = item;
            pending.used += 1;
            self.len += 1;
            return;
        }
        self.push_to_new(slot, item);
    }

    #[inline(never)]
    fn push_to_new(&mut self, slot: usize, item: T) {
        let pending = &mut self.slots[slot];
        let index = self.free;
        if let Some(next) = self.next.get_mut(index as usize) {
            self.free = std::mem::replace(next, pending.chunk);
            pending.chunk = index;
        } else {
            self.next.push(std::mem::replace(&mut pending.chunk, self.chunks.len() as u32));
            push_with_huge_pages(&mut self.chunks, Chunk([T::default(); CHUNK_ITEMS]));
        }
        self.chunks[pending.chunk as usize].0[0] = item;
        pending.used = 1;
        self.len += 1;
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    /// All items of `window`, chunk by chunk.
    pub fn of(&self, window: u64) -> impl Iterator<Item = &[T]> {
        let Pending { mut chunk, mut used } = self.slots[window as usize % WINDOWS];
        std::iter::from_fn(move || {
            let Chunk(items) = self.chunks.get(chunk as usize)?;
            chunk = self.next[chunk as usize];
            if let Some(Chunk(next)) = self.chunks.get(chunk as usize) {
                (0..CHUNK_ITEMS as u32).step_by(4).for_each(|place| prefetch(next, place));
            }
            Some(&items[..std::mem::replace(&mut used, CHUNK_ITEMS as u32) as usize])
        })
    }

    /// Removes all items of `window`.
    pub fn clear(&mut self, window: u64) {
        let slot = window as usize % WINDOWS;
        let Pending { mut chunk, mut used } =
            std::mem::replace(&mut self.slots[slot], Pending::NONE);
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        while chunk != NIL {
            self.len -= std::mem::replace(&mut used, CHUNK_ITEMS as u32) as usize;
            let next = std::mem::replace(&mut self.next[chunk as usize], self.free);
            self.free = std::mem::replace(&mut chunk, next);
        }
    }

    /// The first window after `window` with items, [`u64::MAX`] if there is none.
    pub fn next_after(&self, window: u64) -> u64 {
        if self.len == 0 {
            return u64::MAX;
        }
        let start = (window.wrapping_add(1) as usize) % WINDOWS;
        let words = WINDOWS / 64;
        let (mut word, mut bits) = (start / 64, self.occupied[start / 64] & (!0 << (start % 64)));
        for _ in 0..=words {
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + WINDOWS - start) % WINDOWS;
                return window.wrapping_add(1 + ahead as u64);
            }
            word = (word + 1) % words;
            bits = self.occupied[word];
        }
        unreachable!("there is a bit for every window that holds something")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_one_window() {
        for width in [2, 3, 60_000, 65_536, (1 << 29) - 1] {
            let clock = Clock::new(width);
            for time in [0, 1, width - 1, width, width + 1, 7 * width - 1, 1 << 40, u64::MAX >> 2] {
                let (window, offset) = clock.split(time);
                assert_eq!((window, u64::from(offset)), (time / width, time % width));
                assert_eq!(clock.start(window) + u64::from(offset), time);
            }
        }
    }

    #[test]
    fn every_window_gets_its_own_items() {
        let mut ring = Ring::new();
        for item in 0..1000u32 {
            ring.push(u64::from(item % 7) + 1020, item);
        }
        assert_eq!((ring.len(), ring.next_after(1000)), (1000, 1020));
        for window in 1020..1027u64 {
            assert_eq!(ring.next_after(window - 1), window);
            let mut items: Vec<_> = ring.of(window).flatten().copied().collect();
            ring.clear(window);
            items.sort_unstable();
            let prefetch_for_write =
                (0..1000u32).filter(|item| u64::from(item % 7) + 1020 == window);
            assert_eq!(items, prefetch_for_write.collect::<Vec<_>>());
        }
        assert_eq!((ring.len(), ring.next_after(1026)), (0, u64::MAX));
    }
}
