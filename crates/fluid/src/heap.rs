//! When flows end: a binary heap whose entries can be moved.
//!
//! One entry a flow, so that the heap is never larger than the flows under way, however often their
//! rates change. Ties go to the lower flow, so that the order of events is fixed.

const OUT: u32 = u32::MAX;

/// Flows by the time they end.
#[derive(Debug, Default)]
pub(crate) struct EndTimes {
    heap: Vec<(u64, u32)>,
    place: Vec<u32>,
}

impl EndTimes {
    /// The earliest end.
    pub fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().copied()
    }

    /// Sets when `flow` ends, whether it is here already or not.
    pub fn set(&mut self, flow: u32, time: u64) {
        if self.place.len() <= flow as usize {
            self.place.resize(flow as usize + 1, OUT);
        }
        let at = self.place[flow as usize];
        if at == OUT {
            self.heap.push((time, flow));
            self.rise(self.heap.len() - 1);
        } else {
            self.heap[at as usize].0 = time;
            let at = self.rise(at as usize);
            self.sink(at);
        }
    }

    /// Takes `flow` out, if it is here.
    pub fn remove(&mut self, flow: u32) {
        let Some(&at) = self.place.get(flow as usize) else { return };
        if at == OUT {
            return;
        }
        self.place[flow as usize] = OUT;
        let last = self.heap.pop().expect("the heap holds the flow");
        if at as usize == self.heap.len() {
            return;
        }
        self.heap[at as usize] = last;
        self.place[last.1 as usize] = at;
        let at = self.rise(at as usize);
        self.sink(at);
    }

    fn rise(&mut self, mut at: usize) -> usize {
        let entry = self.heap[at];
        while at > 0 {
            let above = (at - 1) / 2;
            if self.heap[above] <= entry {
                break;
            }
            self.put(at, self.heap[above]);
            at = above;
        }
        self.put(at, entry);
        at
    }

    fn sink(&mut self, mut at: usize) {
        let entry = self.heap[at];
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

    fn put(&mut self, at: usize, entry: (u64, u32)) {
        self.heap[at] = entry;
        self.place[entry.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::random;

    #[test]
    fn it_gives_what_a_sorted_set_gives() {
        let mut heap = EndTimes::default();
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
                heap.set(flow, time);
            }
            assert_eq!(heap.first(), set.first().copied());
        }
    }
}
