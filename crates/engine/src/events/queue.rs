//! The event queue: time windows, and within a window one group after the other.
//!
//! A *group* is a part of the network that nothing outside can affect within the length of a
//! window: a switch with its nodes (`parallel/partition.rs`). So within a window the groups are
//! independent, and all events of a group are processed together: data that one event has fetched
//! is in the cache for the next, and upcoming events are known, so their data can be prefetched.
//!
//! Contract: windows are opened in ascending order. Within a window events come out by group, and
//! within a group in ascending [`Event`] order: by time, kind, entity, packet. The order of
//! insertion never matters. An event for the open window must be for the group that is being
//! processed. Insertion takes O(1) within the horizon (1024 windows) and O(log n) beyond; opening a
//! window of n events and g groups takes O(n + g), or O(n log n) for small n. Memory: 16 bytes per
//! event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::events::ring::{Clock, Ring, WINDOWS};

/// Kind of an event. At equal times, events are processed in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum EventKind {
    /// Credit came back to a link that waits for it.
    Credit = 0,
    /// A packet's head leaves through a link (scheduled only for marking at departure).
    Departure = 1,
    /// A packet is ready to leave a switch, or its tail has reached a node.
    Arrival = 2,
    /// The last byte of a message has left its adapter.
    MessageSent = 3,
    /// A message is ready for its adapter.
    Message = 4,
    /// An adapter may send its next packet.
    Adapter = 5,
    /// A rank has finished computing.
    Rank = 6,
    /// An output is idle and packets wait for it.
    OutputFree = 7,
    /// A packet from a slower link may leave.
    HeadReady = 8,
    /// The queue behind a red light may have subsided.
    Light = 9,
    /// Unused.
    None = 15,
}

/// An event, ordered as one number: time, kind, entity, packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event(u128);

const ENTITY_BITS: u32 = 28;

impl Event {
    /// An event of `kind` at `entity` (link, node, rank or message; below 2^28).
    #[inline]
    pub fn new(time: u64, class: EventKind, entity: u32, packet: u32) -> Self {
        debug_assert!(entity < 1 << ENTITY_BITS);
        let key = (class as u64) << 60 | u64::from(entity) << 32 | u64::from(packet);
        Self(u128::from(time) << 64 | u128::from(key))
    }

    /// Picoseconds.
    #[inline]
    pub fn time(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// Its kind.
    #[inline]
    pub fn class(self) -> EventKind {
        match self.0 as u64 >> 60 {
            0 => EventKind::Credit,
            1 => EventKind::Departure,
            2 => EventKind::Arrival,
            3 => EventKind::MessageSent,
            4 => EventKind::Message,
            5 => EventKind::Adapter,
            6 => EventKind::Rank,
            7 => EventKind::OutputFree,
            8 => EventKind::HeadReady,
            9 => EventKind::Light,
            _ => EventKind::None,
        }
    }

    /// Whether it is of `kind`.
    #[inline]
    pub fn is(self, class: EventKind) -> bool {
        self.0 as u64 >> 60 == class as u64
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

/// Sort key of an event within a window: group, time since the start of the window, and the rest.
type Key = u128;

/// Sentinel behind all events.
const END: Key = Key::MAX;

/// Pending events.
#[derive(Debug)]
pub struct EventQueue {
    clock: Clock,
    /// The open window; -1 before the first.
    window: u64,
    start: u64,
    /// Its events in order, [`END`], then leftovers of earlier windows.
    ordered: Vec<Key>,
    next: usize,
    /// Where processing pauses, and where the events end.
    stop: usize,
    end: usize,
    /// Events added to the open window, latest first.
    late: Vec<Key>,
    /// The earliest of them, [`END`] if there is none.
    earliest_late: Key,
    /// The group that is being processed.
    group: u32,
    /// Where each group's events begin, used while sorting.
    group_starts: Vec<u32>,
    by_time: Vec<Key>,
    /// The windows after the open one.
    ring: Ring<Key>,
    /// Events beyond the ring's horizon.
    far: BinaryHeap<Reverse<(Event, u32)>>,
    /// Window of the first event in `far`.
    first_far_window: u64,
}

impl EventQueue {
    /// A queue for `groups` groups, with windows of `width_ps`.
    pub fn new(width_ps: u64, groups: usize) -> Self {
        Self {
            clock: Clock::new(width_ps),
            window: u64::MAX,
            start: 0,
            ordered: vec![END],
            next: 0,
            stop: 0,
            end: 0,
            late: Vec::new(),
            earliest_late: END,
            group: 0,
            group_starts: vec![0; groups + 1],
            by_time: Vec::new(),
            ring: Ring::new(),
            far: BinaryHeap::new(),
            first_far_window: u64::MAX,
        }
    }

    /// Number of pending events.
    pub fn len(&self) -> usize {
        self.end - self.next + self.late.len() + self.ring.len() + self.far.len()
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The window of a time, and the time since its start.
    #[inline]
    pub(crate) fn window_of(&self, time: u64) -> (u64, u32) {
        self.clock.split(time)
    }

    /// The open window.
    #[inline]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Start of the open window.
    #[inline]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// How many windows `window` lies after the open one.
    #[inline]
    fn windows_ahead(&self, window: u64) -> u64 {
        window.wrapping_sub(self.window)
    }

    /// Adds an event for the group that is being processed.
    #[inline]
    pub fn push(&mut self, event: Event) {
        self.push_for(self.group, event);
    }

    /// Adds an event for `group`; it must not lie before the open window.
    #[inline]
    pub fn push_for(&mut self, group: u32, event: Event) {
        let (window, offset) = self.clock.split(event.time());
        let high = u64::from(group) << 32 | u64::from(offset);
        let key = Key::from(high) << 64 | Key::from(event.0 as u64);
        let ahead = self.windows_ahead(window);
        debug_assert!(ahead < 1 << 63, "{event:?} comes too late");
        if ahead.wrapping_sub(1) < WINDOWS as u64 - 1 {
            self.ring.push(window, key);
        } else {
            self.push_late_or_far(group, event, window, key);
        }
    }

    #[inline(never)]
    fn push_late_or_far(&mut self, group: u32, event: Event, window: u64, key: Key) {
        if window == self.window {
            let at = self.late.partition_point(|other| *other > key);
            self.late.insert(at, key);
            self.earliest_late = self.late.last().copied().unwrap_or(END);
        } else {
            self.far.push(Reverse((event, group)));
            self.first_far_window = self.first_far_window.min(window);
        }
    }

    /// Takes the next event of the open window, up to the pause, and says whether it is late:
    /// added after the window was opened.
    #[inline]
    pub fn pop(&mut self) -> Option<(Event, bool)> {
        let mut key = self.ordered[self.next];
        let late = self.earliest_late < key;
        if late {
            key = self.pop_late();
        } else if self.next == self.stop {
            return None;
        } else {
            self.next += 1;
        }
        self.group = (key >> 96) as u32;
        let time = self.start + u64::from((key >> 64) as u32);
        Some((Event(u128::from(time) << 64 | u128::from(key as u64)), late))
    }

    #[inline(never)]
    fn pop_late(&mut self) -> Key {
        self.late.pop();
        let next = self.late.last().copied().unwrap_or(END);
        std::mem::replace(&mut self.earliest_late, next)
    }

    /// Pauses the open window before `group`. No event of the window may have been taken yet.
    pub(crate) fn pause_before(&mut self, group: u32) {
        let before = |&key: &Key| (key >> 96) < Key::from(group);
        self.stop = self.ordered[..self.end].partition_point(before);
    }

    /// Processes the rest of the open window.
    pub(crate) fn resume(&mut self) {
        self.stop = self.end;
    }

    /// Whether events of the open window remain behind the pause.
    pub(crate) fn is_paused(&self) -> bool {
        self.stop < self.end
    }

    /// Events taken from the open window, not counting late ones.
    #[inline]
    pub fn taken(&self) -> usize {
        self.next
    }

    /// Up to `n` events of the open window from position `from` on, without their times. Late
    /// events are not included.
    #[inline]
    pub(crate) fn upcoming(&self, from: usize, n: usize) -> impl Iterator<Item = Event> + '_ {
        let (from, to) = (from.min(self.end), (from + n).min(self.end));
        self.ordered[from..to].iter().map(|&key| Event(u128::from(key as u64)))
    }

    /// The next window with events, [`u64::MAX`] if there is none.
    pub fn next_window(&self) -> u64 {
        // Far events lie beyond all windows of the ring.
        self.ring.next_after(self.window).min(self.first_far_window)
    }

    /// Moves the horizon so that `window` is next. All events of the open window must have been
    /// taken, and no event may lie before `window`.
    pub(crate) fn advance_to(&mut self, window: u64) {
        debug_assert!(self.next == self.end && self.late.is_empty());
        self.window = window.wrapping_sub(1);
        while self.first_far_window < window.saturating_add(WINDOWS as u64 - 1) {
            self.pull_from_far();
        }
    }

    /// Opens `window`, under the conditions of [`EventQueue::advance_to`].
    pub fn open_window(&mut self, window: u64) {
        self.advance_to(window);
        self.window = window;
        self.start = self.clock.start(window);
        self.next = 0;
        let n = self.ring.of(window).map(<[Key]>::len).sum();
        (self.stop, self.end) = (n, n);
        for keys in [&mut self.ordered, &mut self.by_time] {
            if keys.len() <= n {
                keys.resize(2 * n + 1, END);
            }
        }
        if n <= FEW || 4 * n < self.group_starts.len() {
            let all = self.ring.of(window).flatten();
            self.ordered.iter_mut().zip(all).for_each(|(place, &key)| *place = key);
            self.ordered[..n].sort_unstable();
        } else {
            self.order_by_group(window);
        }
        self.ring.clear(window);
        self.ordered[n] = END;
    }

    /// Sorts the events of a window: two counting sorts, by time slice and by group, then an
    /// insertion sort of almost sorted keys.
    fn order_by_group(&mut self, window: u64) {
        let Self { clock, ring, group_starts, by_time, ordered, end, .. } = self;
        let shift = clock.shift(SLICES as u64);
        let slice = |key: Key| usize::from(((key >> 64) as u32 >> shift) as u8);
        let group = |key: Key| (key >> 96) as usize;
        let mut slices = [0u32; SLICES];
        group_starts.fill(0);
        for keys in ring.of(window) {
            for &key in keys {
                slices[slice(key)] += 1;
                group_starts[group(key)] += 1;
            }
        }
        exclusive_sums(&mut slices);
        exclusive_sums(group_starts);
        for keys in ring.of(window) {
            distribute(keys, by_time, &mut slices, slice);
        }
        distribute(&by_time[..*end], ordered, group_starts, group);
        sort_almost_sorted(&mut ordered[..*end]);
    }

    /// Moves the first far event into its window, which is now within the horizon.
    fn pull_from_far(&mut self) {
        if let Some(Reverse((event, group))) = self.far.pop() {
            self.push_for(group, event);
        }
        let first = self.far.peek();
        let window = |&Reverse((event, _)): &Reverse<(Event, u32)>| self.window_of(event.time()).0;
        self.first_far_window = first.map_or(u64::MAX, window);
    }
}

/// Most events that a general sort orders faster than counting sorts do.
const FEW: usize = 32;

/// Time slices of a window for the counting sort, at most: what a byte can distinguish.
const SLICES: usize = 1 << u8::BITS;

/// One pass of a counting sort: puts each key at the next position of its bucket.
#[inline]
fn distribute(
    keys: &[Key],
    ordered: &mut [Key],
    group_starts: &mut [u32],
    kind: impl Fn(Key) -> usize,
) {
    for &key in keys {
        let place = &mut group_starts[kind(key)];
        ordered[*place as usize] = key;
        *place += 1;
    }
}

/// Exclusive prefix sums, in place.
fn exclusive_sums(counts: &mut [u32]) {
    let mut before = 0;
    for count in counts {
        before += std::mem::replace(count, before);
    }
}

/// Insertion sort for almost sorted keys; falls back to a general sort.
fn sort_almost_sorted(keys: &mut [Key]) {
    const FAR: usize = 64;
    for at in 1..keys.len() {
        let key = keys[at];
        if keys[at - 1] > key {
            let passed = keys[..at].iter().rev().take(FAR).take_while(|&&other| other > key);
            let passed = passed.count();
            if passed == FAR {
                return keys.sort_unstable();
            }
            keys[at - passed..=at].rotate_right(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Opens the next window of the queue and compares its events with the model's.
    fn compare_window(
        queue: &mut EventQueue,
        model: &mut std::collections::BTreeSet<(u64, u32, Event)>,
        mut late: impl FnMut(&mut EventQueue, u32, Event) -> Option<(u64, u32, Event)>,
    ) -> Result<(), TestCaseError> {
        let window = queue.next_window();
        prop_assert_eq!(Some(window), model.first().map(|first| first.0));
        queue.open_window(window);
        while let Some((event, _)) = queue.pop() {
            let first = model.pop_first();
            prop_assert_eq!(first, Some((window, queue.group, event)));
            model.extend(late(queue, queue.group, event));
            prop_assert_eq!(queue.len(), model.len());
        }
        prop_assert!(model.first().is_none_or(|next| next.0 > window));
        Ok(())
    }

    proptest! {
        /// Events come out as from a sorted list, whatever the order of insertion.
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
                let event = Event::new(time, EventKind::Arrival, entity, packet);
                let place = (queue.window_of(time).0, group, event);
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
    fn a_window_pauses_before_a_group() {
        let mut queue = EventQueue::new(1000, 4);
        let event = |time, link| Event::new(time, EventKind::Arrival, link, 0);
        for group in 0..4 {
            queue.push_for(group, event(100, group));
        }
        queue.open_window(0);
        queue.pause_before(2);
        let mut links = Vec::new();
        while let Some((taken, late)) = queue.pop() {
            links.push((taken.entity(), late));
            if taken.entity() == 1 {
                // An event of the current group comes before the pause.
                queue.push(event(200, 9));
            }
        }
        assert_eq!(links, [(0, false), (1, false), (9, true)]);
        assert!(queue.is_paused() && queue.len() == 2);
        queue.resume();
        let events = std::iter::from_fn(|| queue.pop()).map(|(taken, _)| taken.entity());
        assert!(events.eq([2, 3]) && queue.is_empty() && !queue.is_paused());
    }

    #[test]
    fn equal_times_sort_by_kind_entity_packet() {
        let mut queue = EventQueue::new(64, 1);
        let events = [
            Event::new(5, EventKind::Rank, 0, 0),
            Event::new(5, EventKind::Arrival, 2, 1),
            Event::new(5, EventKind::Arrival, 1, 9),
            Event::new(5, EventKind::Credit, 7, 0),
        ];
        for event in events {
            queue.push(event);
        }
        queue.open_window(0);
        let order: Vec<_> =
            std::iter::from_fn(|| queue.pop()).map(|(e, _)| (e.class(), e.entity())).collect();
        assert_eq!(
            order,
            [
                (EventKind::Credit, 7),
                (EventKind::Arrival, 1),
                (EventKind::Arrival, 2),
                (EventKind::Rank, 0)
            ]
        );
    }
}
