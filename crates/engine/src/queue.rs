//! The event queue: a calendar of buckets with a heap behind it.
//!
//! Contract: events come out in ascending [`Event`] order, that is by time, then class, then entity,
//! then packet; the order of pushing never shows. Pushing is O(1) for events within the horizon
//! (`BUCKETS` × bucket width) and O(log n) beyond; popping is O(1) amortised for buckets of a few
//! events. Memory: 24 bytes an event, 4 a bucket.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Buckets of the ring.
pub(crate) const BUCKETS: usize = 1 << 13;

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
    /// An output is idle again and packets wait in line for it.
    Free = 7,
    /// A packet that came by a slower link may leave.
    Ready = 8,
}

/// An event: when, and what to whom. Its order is that of one number: time, class, entity, packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event(u128);

const ENTITY_BITS: u32 = 28;

impl Event {
    /// An event of `class` at `entity` (link, node, rank or message; below 2^28).
    #[inline]
    pub fn new(time: u64, class: Class, entity: u32, packet: u32) -> Self {
        debug_assert!(entity < 1 << ENTITY_BITS);
        let key = (class as u64) << 60 | u64::from(entity) << 32 | u64::from(packet);
        Self(u128::from(time) << 64 | u128::from(key))
    }

    /// Picoseconds.
    #[inline]
    pub fn time(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// Its class.
    #[inline]
    pub fn class(self) -> Class {
        match self.0 as u64 >> 60 {
            0 => Class::Credit,
            1 => Class::Departure,
            2 => Class::Arrival,
            3 => Class::Sent,
            4 => Class::Message,
            5 => Class::Adapter,
            6 => Class::Rank,
            7 => Class::Free,
            _ => Class::Ready,
        }
    }

    /// The link, node, rank or message concerned.
    #[inline]
    pub fn entity(self) -> u32 {
        (self.0 >> 32) as u32 & ((1 << ENTITY_BITS) - 1)
    }

    /// The packet concerned.
    #[inline]
    pub fn packet(self) -> u32 {
        self.0 as u32
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (class, entity, packet) = (self.class(), self.entity(), self.packet());
        write!(f, "{class:?} of {entity} ({packet}) at {} ps", self.time())
    }
}

/// No event.
const NIL: u32 = u32::MAX;

/// An event in the line of its bucket.
#[derive(Debug, Clone, Copy)]
struct Cell {
    /// The event in two halves: aligned like one number of 128 bits a cell would be a third larger.
    halves: [u64; 2],
    next: u32,
}

impl Cell {
    #[inline]
    fn new(event: Event, next: u32) -> Self {
        Self { halves: [(event.0 >> 64) as u64, event.0 as u64], next }
    }

    #[inline]
    fn event(&self) -> Event {
        Event(u128::from(self.halves[0]) << 64 | u128::from(self.halves[1]))
    }
}

/// Pending events.
#[derive(Debug)]
pub struct EventQueue {
    shift: u32,
    cursor: u64,
    /// Events of the bucket at the cursor, last one first.
    current: Vec<Event>,
    /// The buckets after it.
    heads: Vec<u32>,
    /// Events of all buckets; the cell last given back is the first to be used again, so as many are
    /// in the cache as there are events pending.
    cells: Vec<Cell>,
    free: u32,
    /// A bit for every bucket that holds something.
    occupied: [u64; BUCKETS / 64],
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
            cells: Vec::new(),
            free: NIL,
            occupied: [0; BUCKETS / 64],
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
        let bucket = event.time() >> self.shift;
        // Not ahead of the cursor: wraps to a large number.
        let ahead = bucket.wrapping_sub(self.cursor + 1);
        if ahead < BUCKETS as u64 - 1 {
            let slot = bucket as usize % BUCKETS;
            let cell = Cell::new(event, self.heads[slot]);
            let index = self.free;
            if let Some(place) = self.cells.get_mut(index as usize) {
                self.free = std::mem::replace(place, cell).next;
                self.heads[slot] = index;
            } else {
                self.heads[slot] = self.cells.len() as u32;
                self.cells.push(cell);
            }
            self.occupied[slot / 64] |= 1 << (slot % 64);
            self.in_ring += 1;
        } else {
            self.push_elsewhere(bucket, event);
        }
    }

    #[inline(never)]
    fn push_elsewhere(&mut self, bucket: u64, event: Event) {
        if bucket <= self.cursor {
            let at = self.current.partition_point(|e| *e > event);
            self.current.insert(at, event);
        } else {
            self.far.push(Reverse(event));
            self.first_far = self.first_far.min(bucket);
        }
    }

    /// Takes the first event.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        self.pop_before(u64::MAX)
    }

    /// Takes the first event if it comes before `end`.
    #[inline]
    pub fn pop_before(&mut self, end: u64) -> Option<Event> {
        self.pop_marked(end).map(|(event, _)| event)
    }

    /// The same, and whether it is the first of its bucket.
    #[inline]
    pub fn pop_marked(&mut self, end: u64) -> Option<(Event, bool)> {
        let mut first = false;
        loop {
            if let Some(event) = self.current.last() {
                return if event.time() < end {
                    self.current.pop().map(|event| (event, first))
                } else {
                    None
                };
            }
            if !self.advance(end) {
                return None;
            }
            first = true;
        }
    }

    /// What is left of the bucket that events are taken from, last one first.
    pub fn bucket(&self) -> &[Event] {
        &self.current
    }

    /// A time no pending event comes before; [`u64::MAX`] when nothing is pending.
    ///
    /// It is the start of the first bucket with anything in it: finding it costs no sorting.
    pub fn not_before(&self) -> u64 {
        if let Some(event) = self.current.last() {
            return event.time();
        }
        match self.next_bucket() {
            u64::MAX => u64::MAX,
            bucket => bucket << self.shift,
        }
    }

    /// The next bucket that holds something, [`u64::MAX`] if there is none.
    fn next_bucket(&self) -> u64 {
        // Whatever is far lies beyond all buckets of the ring.
        if self.in_ring == 0 { self.first_far } else { self.next_occupied() }
    }

    /// Moves the cursor to the next bucket that holds something if that starts before `end`.
    #[inline(never)]
    fn advance(&mut self, end: u64) -> bool {
        let next = self.next_bucket();
        if next == u64::MAX || next << self.shift >= end {
            return false;
        }
        self.cursor = next;
        let slot = next as usize % BUCKETS;
        let mut more = std::mem::replace(&mut self.heads[slot], NIL);
        while more != NIL {
            let cell = &mut self.cells[more as usize];
            self.current.push(cell.event());
            let next = std::mem::replace(&mut cell.next, self.free);
            self.free = std::mem::replace(&mut more, next);
            self.in_ring -= 1;
        }
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        while self.first_far < next + BUCKETS as u64 {
            self.draw_near(next);
        }
        sort_last_first(&mut self.current);
        true
    }

    /// Moves the first far event into its bucket, which has come within the horizon.
    fn draw_near(&mut self, cursor: u64) {
        if let Some(Reverse(event)) = self.far.pop() {
            if event.time() >> self.shift == cursor {
                self.current.push(event);
            } else {
                self.push(event);
            }
        }
        let first = self.far.peek();
        self.first_far = first.map_or(u64::MAX, |Reverse(event)| event.time() >> self.shift);
    }

    /// Absolute number of the first occupied bucket after the cursor.
    fn next_occupied(&self) -> u64 {
        let start = (self.cursor as usize + 1) % BUCKETS;
        let words = BUCKETS / 64;
        let (mut word, mut bits) = (start / 64, self.occupied[start / 64] & (!0 << (start % 64)));
        for _ in 0..=words {
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + BUCKETS - start) % BUCKETS;
                return self.cursor + 1 + ahead as u64;
            }
            word = (word + 1) % words;
            bits = self.occupied[word];
        }
        unreachable!("in_ring counts the occupied buckets")
    }
}

/// Sorts a few events: by insertion, which for so few beats everything.
fn sort_last_first(events: &mut [Event]) {
    if events.len() > 32 {
        return events.sort_unstable_by(|a, b| b.cmp(a));
    }
    for i in 1..events.len() {
        let event = events[i];
        let mut at = i;
        while at > 0 && events[at - 1] < event {
            events[at] = events[at - 1];
            at -= 1;
        }
        events[at] = event;
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
                    now = event.map_or(now, |e| e.time());
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
