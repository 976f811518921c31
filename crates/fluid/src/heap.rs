//! An indexed binary heap of due times, in which entries can be moved.
//!
//! There is one entry per item, so the heap never has more entries than there are items, however often
//! their times change. Ties are broken by a number given with the time, so the order is deterministic.

const ABSENT: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    time: u64,
    tie: u32,
    item: u32,
}

/// Items by the time they are due.
#[derive(Debug, Default)]
pub(crate) struct IndexedHeap {
    heap: Vec<Entry>,
    place: Vec<u32>,
}

impl IndexedHeap {
    /// The earliest time and the item due then.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().map(|entry| (entry.time, entry.item))
    }

    /// Sets when `item` is due, and inserts it if it is absent.
    pub fn set(&mut self, item: u32, time: u64, tie: u32) {
        if self.place.len() <= item as usize {
            self.place.resize(item as usize + 1, ABSENT);
        }
        let mut at = self.place[item as usize] as usize;
        let entry = Entry { time, tie, item };
        if at == ABSENT as usize {
            at = self.heap.len();
            self.heap.push(entry);
        }
        self.sift(at, entry);
    }

    /// Removes `item`, if present.
    pub fn remove(&mut self, item: u32) {
        let Some(place) = self.place.get_mut(item as usize) else { return };
        let at = std::mem::replace(place, ABSENT);
        if at == ABSENT {
            return;
        }
        let last = self.heap.pop().expect("the heap holds the item");
        if (at as usize) < self.heap.len() {
            self.sift(at as usize, last);
        }
    }

    /// Places `entry` at `at` and moves it up or down until the heap is in order.
    fn sift(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let above = (at - 1) / 2;
            if self.heap[above] <= entry {
                break;
            }
            self.put(at, self.heap[above]);
            at = above;
        }
        loop {
            let mut below = 2 * at + 1;
            if below >= self.heap.len() {
                break;
            }
            if below + 1 < self.heap.len() && self.heap[below + 1] < self.heap[below] {
                below += 1;
            }
            if self.heap[below] >= entry {
                break;
            }
            self.put(at, self.heap[below]);
            at = below;
        }
        self.put(at, entry);
    }

    fn put(&mut self, at: usize, entry: Entry) {
        self.heap[at] = entry;
        self.place[entry.item as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::random;

    #[test]
    fn the_heap_equals_a_sorted_set() {
        let mut heap = IndexedHeap::default();
        let mut set = std::collections::BTreeSet::new();
        let mut time_of = [None; 50];
        for step in 0..5000u64 {
            let flow = (random(1, 0, step) % 50) as u32;
            if let Some(old) = time_of[flow as usize].take() {
                set.remove(&(old, flow));
            }
            if random(1, 1, step).is_multiple_of(3) {
                heap.remove(flow);
            } else {
                let time = random(1, 2, step) % 100;
                time_of[flow as usize] = Some(time);
                set.insert((time, flow));
                heap.set(flow, time, flow);
            }
            assert_eq!(heap.first(), set.first().copied());
        }
    }
}
