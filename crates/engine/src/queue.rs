//! The event queue: a calendar of buckets with a heap behind it.
//!
//! Contract: events come out in ascending [`Event`] order, that is by time, then class, then entity,
//! then packet; the order of pushing never shows. Pushing is O(1) for events within the horizon
//! (`BUCKETS` × bucket width) and O(log n) beyond; popping is O(1) amortised for buckets of a few
//! events. Memory: 24 bytes an event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const BUCKETS: usize = 1 << 13;
const NIL: u32 = u32::MAX;

/// What happens, in the order it happens at equal times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Credit came back to a link that waits for it.
    Credit = 0,
    /// A packet's head leaves through a link (scheduled only for marking at departure).
    Departure = 1,
    /// A packet's head reaches a switch, or its tail a node.
    Arrival = 2,
    /// The last byte of a message has left its adapter.
    Sent = 3,
    /// A message is ready for its adapter.
    Message = 4,
    /// An adapter may send its next packet.
    Adapter = 5,
    /// A rank goes on after computing.
    Rank = 6,
}

/// An event: when, and what to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Picoseconds.
    pub time: u64,
    key: u64,
}

const ENTITY_BITS: u32 = 28;

impl Event {
    /// An event of `class` at `entity` (link, node, rank or message; below 2^28).
    #[inline]
    pub fn new(time: u64, class: Class, entity: u32, packet: u32) -> Self {
        debug_assert!(entity < 1 << ENTITY_BITS);
        let key = (class as u64) << 60 | u64::from(entity) << 32 | u64::from(packet);
        Self { time, key }
    }

    /// Its class.
    #[inline]
    pub fn class(self) -> Class {
        match self.key >> 60 {
            0 => Class::Credit,
            1 => Class::Departure,
            2 => Class::Arrival,
            3 => Class::Sent,
            4 => Class::Message,
            5 => Class::Adapter,
            _ => Class::Rank,
        }
    }

    /// The link, node, rank or message concerned.
    #[inline]
    pub fn entity(self) -> u32 {
        (self.key >> 32) as u32 & ((1 << ENTITY_BITS) - 1)
    }

    /// The packet concerned.
    #[inline]
    pub fn packet(self) -> u32 {
        self.key as u32
    }
}

#[derive(Debug, Clone, Copy)]
struct Cell {
    event: Event,
    next: u32,
}

/// Pending events.
#[derive(Debug)]
pub struct EventQueue {
    shift: u32,
    cursor: u64,
    /// Events of the bucket at the cursor, last one first.
    current: Vec<Event>,
    heads: Vec<u32>,
    occupied: Vec<u64>,
    cells: Vec<Cell>,
    free: u32,
    in_ring: usize,
    far: BinaryHeap<Reverse<Event>>,
    /// Bucket of the first event in `far`.
    first_far: u64,
}

impl EventQueue {
    /// A queue with buckets of about `bucket_ps` picoseconds (rounded to a power of two).
    pub fn new(bucket_ps: u64) -> Self {
        Self {
            shift: bucket_ps.max(1).next_power_of_two().trailing_zeros(),
            cursor: 0,
            current: Vec::with_capacity(64),
            heads: vec![NIL; BUCKETS],
            occupied: vec![0; BUCKETS / 64],
            cells: Vec::new(),
            free: NIL,
            in_ring: 0,
            far: BinaryHeap::new(),
            first_far: u64::MAX,
        }
    }

    /// Number of pending events.
    pub fn len(&self) -> usize {
        self.current.len() + self.in_ring + self.far.len()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an event; it must not lie before the event last popped.
    #[inline]
    pub fn push(&mut self, event: Event) {
        let bucket = event.time >> self.shift;
        if bucket <= self.cursor {
            let at = self.current.partition_point(|e| *e > event);
            self.current.insert(at, event);
        } else if bucket - self.cursor < BUCKETS as u64 {
            self.push_ring(bucket, event);
        } else {
            self.far.push(Reverse(event));
            self.first_far = self.first_far.min(bucket);
        }
    }

    /// Takes the first event.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.current.pop() {
                return Some(event);
            }
            if !self.advance() {
                return None;
            }
        }
    }

    #[inline]
    fn push_ring(&mut self, bucket: u64, event: Event) {
        let slot = bucket as usize & (BUCKETS - 1);
        let next = self.heads[slot];
        let cell = Cell { event, next };
        let index = self.free;
        if index == NIL {
            self.heads[slot] = self.cells.len() as u32;
            self.cells.push(cell);
        } else {
            self.free = self.cells[index as usize].next;
            self.cells[index as usize] = cell;
            self.heads[slot] = index;
        }
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.in_ring += 1;
    }

    /// Moves the cursor to the next bucket that holds something; false when nothing is left.
    fn advance(&mut self) -> bool {
        let next = match (self.in_ring, self.first_far) {
            (0, u64::MAX) => return false,
            (0, bucket) => bucket,
            _ => self.next_occupied(),
        };
        self.cursor = next;
        let slot = next as usize & (BUCKETS - 1);
        let mut index = std::mem::replace(&mut self.heads[slot], NIL);
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        while index != NIL {
            let cell = self.cells[index as usize];
            self.current.push(cell.event);
            self.cells[index as usize].next = self.free;
            self.free = index;
            self.in_ring -= 1;
            index = cell.next;
        }
        while self.first_far < next + BUCKETS as u64 {
            self.draw_near(next);
        }
        self.current.sort_unstable_by(|a, b| b.cmp(a));
        true
    }

    /// Moves the first far event into its bucket, which has come within the horizon.
    fn draw_near(&mut self, cursor: u64) {
        if let Some(Reverse(event)) = self.far.pop() {
            let bucket = event.time >> self.shift;
            if bucket == cursor {
                self.current.push(event);
            } else {
                self.push_ring(bucket, event);
            }
        }
        let first = self.far.peek();
        self.first_far = first.map_or(u64::MAX, |Reverse(event)| event.time >> self.shift);
    }

    /// Absolute number of the first occupied bucket after the cursor.
    fn next_occupied(&self) -> u64 {
        let start = (self.cursor as usize + 1) & (BUCKETS - 1);
        let words = BUCKETS / 64;
        let (mut word, mut bits) = (start / 64, self.occupied[start / 64] & (!0 << (start % 64)));
        for _ in 0..=words {
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + BUCKETS - start) & (BUCKETS - 1);
                return self.cursor + 1 + ahead as u64;
            }
            word = (word + 1) % words;
            bits = self.occupied[word];
        }
        unreachable!("in_ring counts the occupied buckets")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is pushed when, events come out as from a sorted list.
        #[test]
        fn order_is_that_of_a_sorted_list(
            bucket in 1u64..5000,
            steps in proptest::collection::vec((any::<bool>(), 0u64..200_000_000, 0u32..50), 1..400),
        ) {
            let mut queue = EventQueue::new(bucket);
            let mut model = std::collections::BTreeSet::new();
            let mut now = 0;
            for (pop, ahead, entity) in steps {
                if pop {
                    let event = queue.pop();
                    prop_assert_eq!(event, model.pop_first());
                    now = event.map_or(now, |e| e.time);
                } else {
                    let event = Event::new(now + ahead % (1 << (ahead % 28)), Class::Arrival, entity, 0);
                    if model.insert(event) {
                        queue.push(event);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
            }
            while let Some(event) = queue.pop() {
                prop_assert_eq!(Some(event), model.pop_first());
            }
            prop_assert!(model.is_empty());
        }
    }

    #[test]
    fn equal_times_come_in_class_entity_packet_order() {
        let mut queue = EventQueue::new(64);
        let events = [
            Event::new(5, Class::Rank, 0, 0),
            Event::new(5, Class::Arrival, 2, 1),
            Event::new(5, Class::Arrival, 1, 9),
            Event::new(5, Class::Credit, 7, 0),
        ];
        for event in events {
            queue.push(event);
        }
        let order: Vec<_> =
            std::iter::from_fn(|| queue.pop()).map(|e| (e.class(), e.entity())).collect();
        assert_eq!(
            order,
            [(Class::Credit, 7), (Class::Arrival, 1), (Class::Arrival, 2), (Class::Rank, 0)]
        );
    }
}
