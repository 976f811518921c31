//! The event queue: windows of time, and within a window one group after the other.
//!
//! A *group* is a part of the network nothing outside of which can matter to sooner than a window is
//! long: a switch with its nodes (see [`crate::cut`]). So within a window the order of groups is free,
//! and all of a group's events come together: what one has fetched the next finds in the cache, and what
//! comes next is known, so it can be fetched ahead.
//!
//! Contract: windows are opened in ascending order; within a window events come out by group and within
//! a group in ascending [`Event`] order, that is by time, then class, then entity, then packet; the order
//! of pushing never shows. An event for the window that is open must be for the group that is being
//! served. Pushing is O(1) within the horizon ([`WINDOWS`] windows) and O(log n) beyond; opening a window
//! of n events and g groups is O(n + g), or O(n log n) where they are few. Memory: 16 bytes an event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Windows that are kept apart; what comes later is in a heap.
const WINDOWS: usize = 1 << 10;

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

/// No chunk.
const NIL: u32 = u32::MAX;

/// An event of a window, in the order it is taken: group, time since the window's start, and the rest.
type Key = u128;

/// What comes after all events.
const END: Key = Key::MAX;

/// Events of a window, in no order.
#[derive(Debug)]
#[repr(align(64))]
struct Chunk {
    keys: [Key; Chunk::ROOM],
    /// Full chunk of the same window, or free one.
    next: u32,
}

impl Chunk {
    const ROOM: usize = 31;
}

/// What is pending for a window.
#[derive(Debug, Clone, Copy)]
struct Pending {
    chunk: u32,
    /// Events in that chunk; all behind it are full.
    used: u32,
    events: u32,
}

impl Pending {
    const NONE: Self = Self { chunk: NIL, used: Chunk::ROOM as u32, events: 0 };
}

/// Times in windows of equal length.
#[derive(Debug, Clone, Copy)]
struct Clock {
    width: u64,
    /// 2^64 / `width`.
    inverse: u64,
}

impl Clock {
    fn new(width: u64) -> Self {
        // Time within a window has 32 bits.
        let width = width.clamp(2, 1 << 31);
        Self { width, inverse: ((1u128 << 64) / u128::from(width)) as u64 }
    }

    /// Window of `time`, and the time since its start.
    #[inline]
    fn split(&self, time: u64) -> (u64, u64) {
        // The quotient by the inverse, which is rounded down, is at most one too small.
        let window = ((u128::from(time) * u128::from(self.inverse)) >> 64) as u64;
        let rest = time - window * self.width;
        if rest < self.width { (window, rest) } else { (window + 1, rest - self.width) }
    }
}

/// Pending events.
#[derive(Debug)]
pub struct EventQueue {
    clock: Clock,
    /// The window that is open; before the first it is the one before 0.
    window: u64,
    start: u64,
    /// Its events in order, and [`END`].
    ordered: Vec<Key>,
    next: usize,
    /// Events pushed into the open window, last one first.
    late: Vec<Key>,
    /// The first of them, [`END`] if there is none.
    first_late: Key,
    /// Group that is being served.
    group: u32,
    /// Where each group's events begin, while they are put in order.
    places: Vec<u32>,
    /// The windows after the open one, by number modulo [`WINDOWS`].
    ring: Vec<Pending>,
    /// Chunks of all windows; the one last given back is the first to be used again, so as much is in
    /// the cache as there are events pending.
    chunks: Vec<Chunk>,
    free: u32,
    /// A bit for every window of the ring that holds something.
    occupied: [u64; WINDOWS / 64],
    in_ring: usize,
    far: BinaryHeap<Reverse<(Event, u32)>>,
    /// Window of the first event in `far`.
    first_far: u64,
}

impl EventQueue {
    /// A queue for so many groups, with windows of `width_ps` picoseconds.
    pub fn new(width_ps: u64, groups: usize) -> Self {
        Self {
            clock: Clock::new(width_ps),
            window: u64::MAX,
            start: 0,
            ordered: vec![END],
            next: 0,
            late: Vec::new(),
            first_late: END,
            group: 0,
            places: vec![0; groups + 1],
            ring: vec![Pending::NONE; WINDOWS],
            chunks: Vec::new(),
            free: NIL,
            occupied: [0; WINDOWS / 64],
            in_ring: 0,
            far: BinaryHeap::new(),
            first_far: u64::MAX,
        }
    }

    /// Number of pending events.
    pub fn len(&self) -> usize {
        self.ordered.len() - 1 - self.next + self.late.len() + self.in_ring + self.far.len()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The window of a time.
    pub fn window_of(&self, time: u64) -> u64 {
        self.clock.split(time).0
    }

    /// When the open window began.
    #[inline]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Adds an event for the group that is being served.
    #[inline]
    pub fn push(&mut self, event: Event) {
        self.push_for(self.group, event);
    }

    /// Adds an event for `group`; it must not lie before the open window.
    #[inline]
    pub fn push_for(&mut self, group: u32, event: Event) {
        let (window, offset) = self.clock.split(event.time());
        let key = Key::from(group) << 96 | Key::from(offset) << 64 | Key::from(event.0 as u64);
        let ahead = window.wrapping_sub(self.window);
        debug_assert!(ahead < 1 << 63, "{event:?} comes too late");
        if ahead.wrapping_sub(1) < WINDOWS as u64 - 1 {
            self.append(window as usize % WINDOWS, key);
        } else if ahead == 0 {
            self.push_late(key);
        } else {
            self.far.push(Reverse((event, group)));
            self.first_far = self.first_far.min(window);
        }
    }

    #[inline]
    fn append(&mut self, slot: usize, key: Key) {
        let pending = &mut self.ring[slot];
        if pending.used == Chunk::ROOM as u32 {
            return self.append_to_new(slot, key);
        }
        self.chunks[pending.chunk as usize].keys[pending.used as usize] = key;
        pending.used += 1;
        pending.events += 1;
        self.in_ring += 1;
    }

    #[inline(never)]
    fn append_to_new(&mut self, slot: usize, key: Key) {
        let pending = &mut self.ring[slot];
        let index = self.free;
        match self.chunks.get_mut(index as usize) {
            Some(chunk) => {
                self.free = std::mem::replace(&mut chunk.next, pending.chunk);
                pending.chunk = index;
            }
            None => {
                let next = std::mem::replace(&mut pending.chunk, self.chunks.len() as u32);
                self.chunks.push(Chunk { keys: [END; Chunk::ROOM], next });
            }
        }
        pending.used = 0;
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.append(slot, key);
    }

    #[inline(never)]
    fn push_late(&mut self, key: Key) {
        let at = self.late.partition_point(|other| *other > key);
        self.late.insert(at, key);
        self.first_late = self.late.last().copied().unwrap_or(END);
    }

    /// Takes the next event of the open window.
    #[inline]
    pub fn pop(&mut self) -> Option<Event> {
        let mut key = self.ordered[self.next];
        if self.first_late < key {
            key = self.first_late;
            self.late.pop();
            self.first_late = self.late.last().copied().unwrap_or(END);
        } else if key == END {
            return None;
        } else {
            self.next += 1;
        }
        self.group = (key >> 96) as u32;
        Some(self.event(key))
    }

    #[inline]
    fn event(&self, key: Key) -> Event {
        let time = self.start + u64::from((key >> 64) as u32);
        Event(u128::from(time) << 64 | u128::from(key as u64))
    }

    /// The event that comes `ahead` places after the next one of the open window, were none added.
    #[inline]
    pub fn ahead(&self, ahead: usize) -> Option<Event> {
        let key = *self.ordered.get(self.next + ahead)?;
        (key != END).then(|| self.event(key))
    }

    /// The next window that holds something, [`u64::MAX`] if there is none.
    pub fn next_window(&self) -> u64 {
        // Whatever is far lies beyond all windows of the ring.
        if self.in_ring == 0 { self.first_far } else { self.next_occupied() }
    }

    /// Opens `window`, which comes after the open one, whose events are all taken, and not after the
    /// next one that holds something.
    pub fn open(&mut self, window: u64) {
        debug_assert!(self.next + 1 == self.ordered.len() && self.late.is_empty());
        self.window = window.wrapping_sub(1);
        while self.first_far < window.saturating_add(WINDOWS as u64 - 1) {
            self.draw_near();
        }
        self.window = window;
        self.start = window * self.clock.width;
        self.next = 0;
        let slot = window as usize % WINDOWS;
        let pending = std::mem::replace(&mut self.ring[slot], Pending::NONE);
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        let n = pending.events as usize;
        self.in_ring -= n;
        self.ordered.resize(n + 1, END);
        self.ordered[n] = END;
        if 4 * n < self.places.len() {
            self.order_few(pending);
        } else {
            self.order_by_group(pending);
        }
        self.give_back(pending);
    }

    /// Sorts what is pending for a window.
    fn order_few(&mut self, pending: Pending) {
        let (mut chunk, mut used, mut at) = (pending.chunk, pending.used as usize, 0);
        while chunk != NIL {
            let from = &self.chunks[chunk as usize];
            self.ordered[at..at + used].copy_from_slice(&from.keys[..used]);
            at += used;
            (chunk, used) = (from.next, Chunk::ROOM);
        }
        self.ordered[..at].sort_unstable();
    }

    /// The same by counting each group's events first.
    fn order_by_group(&mut self, pending: Pending) {
        self.places.fill(0);
        let (mut chunk, mut used) = (pending.chunk, pending.used as usize);
        while chunk != NIL {
            let from = &self.chunks[chunk as usize];
            for key in &from.keys[..used] {
                self.places[(key >> 96) as usize] += 1;
            }
            (chunk, used) = (from.next, Chunk::ROOM);
        }
        let mut before = 0;
        for place in &mut self.places {
            before += std::mem::replace(place, before);
        }
        (chunk, used) = (pending.chunk, pending.used as usize);
        while chunk != NIL {
            let from = &self.chunks[chunk as usize];
            for &key in &from.keys[..used] {
                let place = &mut self.places[(key >> 96) as usize];
                self.ordered[*place as usize] = key;
                *place += 1;
            }
            (chunk, used) = (from.next, Chunk::ROOM);
        }
        // Every place is now the end of its group.
        let mut start = 0;
        for &end in &self.places {
            if end - start > 1 {
                sort_few(&mut self.ordered[start as usize..end as usize]);
            }
            start = end;
        }
    }

    /// Frees the chunks of a window.
    fn give_back(&mut self, pending: Pending) {
        let mut chunk = pending.chunk;
        while chunk != NIL {
            let next = std::mem::replace(&mut self.chunks[chunk as usize].next, self.free);
            self.free = std::mem::replace(&mut chunk, next);
        }
    }

    /// Moves the first far event into its window, which has come within the horizon.
    fn draw_near(&mut self) {
        if let Some(Reverse((event, group))) = self.far.pop() {
            self.push_for(group, event);
        }
        let first = self.far.peek();
        self.first_far = first.map_or(u64::MAX, |Reverse((event, _))| self.window_of(event.time()));
    }

    /// Number of the first occupied window after the open one.
    fn next_occupied(&self) -> u64 {
        let start = (self.window.wrapping_add(1) as usize) % WINDOWS;
        let words = WINDOWS / 64;
        let (mut word, mut bits) = (start / 64, self.occupied[start / 64] & (!0 << (start % 64)));
        for _ in 0..=words {
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + WINDOWS - start) % WINDOWS;
                return self.window.wrapping_add(1 + ahead as u64);
            }
            word = (word + 1) % words;
            bits = self.occupied[word];
        }
        unreachable!("in_ring counts the events of occupied windows")
    }
}

/// Sorts a few events: by insertion, which for so few beats everything.
fn sort_few(keys: &mut [Key]) {
    if keys.len() > 32 {
        return keys.sort_unstable();
    }
    for i in 1..keys.len() {
        let key = keys[i];
        let mut at = i;
        while at > 0 && keys[at - 1] > key {
            keys[at] = keys[at - 1];
            at -= 1;
        }
        keys[at] = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Opens the next window of a queue and of the model, and compares what comes out.
    fn compare_window(
        queue: &mut EventQueue,
        model: &mut std::collections::BTreeSet<(u64, u32, Event)>,
        mut late: impl FnMut(&mut EventQueue, u32, Event) -> Option<(u64, u32, Event)>,
    ) -> Result<(), TestCaseError> {
        let window = queue.next_window();
        prop_assert_eq!(Some(window), model.first().map(|first| first.0));
        queue.open(window);
        while let Some(event) = queue.pop() {
            let first = model.pop_first();
            prop_assert_eq!(first, Some((window, queue.group, event)));
            model.extend(late(queue, queue.group, event));
            prop_assert_eq!(queue.len(), model.len());
        }
        prop_assert!(model.first().is_none_or(|next| next.0 > window));
        Ok(())
    }

    proptest! {
        /// Whatever is pushed when, events come out as from a sorted list.
        #[test]
        fn order_is_by_window_group_and_event(
            width in 1u64..5_000,
            groups in 1u32..20,
            pushes in proptest::collection::vec((0u64..200_000_000, 0u32..50, 0u32..20), 1..400),
        ) {
            let mut queue = EventQueue::new(width, groups as usize);
            let mut model = std::collections::BTreeSet::new();
            let mut pushes = pushes.into_iter();
            let mut packet = 0;
            let mut next = |queue: &mut EventQueue, group: Option<u32>, now: u64| {
                packet += 1;
                let (ahead, entity, other) = pushes.next()?;
                // Some far beyond the horizon, most near; for other groups beyond the window.
                let (group, least) = match group {
                    Some(group) if ahead % 2 == 0 => (group, 0),
                    _ => (other % groups, 2 * width.max(2)),
                };
                let time = now + least + ahead % (1 << (ahead % 28));
                let event = Event::new(time, Class::Arrival, entity, packet);
                let place = (queue.window_of(time), group, event);
                queue.push_for(group, event);
                Some(place)
            };
            for _ in 0..50 {
                let (group, time) = (None, 0);
                model.extend(next(&mut queue, group, time));
            }
            while !queue.is_empty() {
                compare_window(&mut queue, &mut model, |queue, group, event| {
                    next(queue, Some(group), event.time())
                })?;
            }
            prop_assert!(model.is_empty());
        }
    }

    #[test]
    fn equal_times_come_in_class_entity_packet_order() {
        let mut queue = EventQueue::new(64, 1);
        let events = [
            Event::new(5, Class::Rank, 0, 0),
            Event::new(5, Class::Arrival, 2, 1),
            Event::new(5, Class::Arrival, 1, 9),
            Event::new(5, Class::Credit, 7, 0),
        ];
        for event in events {
            queue.push(event);
        }
        queue.open(0);
        let order: Vec<_> =
            std::iter::from_fn(|| queue.pop()).map(|e| (e.class(), e.entity())).collect();
        assert_eq!(
            order,
            [(Class::Credit, 7), (Class::Arrival, 1), (Class::Arrival, 2), (Class::Rank, 0)]
        );
    }

    #[test]
    fn a_time_has_one_window_whatever_the_width() {
        for width in [2, 3, 60_000, 65_536, (1 << 31) - 1] {
            let clock = Clock::new(width);
            for time in [0, 1, width - 1, width, width + 1, 7 * width - 1, 1 << 40, u64::MAX >> 2] {
                assert_eq!(clock.split(time), (time / width, time % width), "{time} by {width}");
            }
        }
    }
}
