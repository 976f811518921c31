//! Time series of link values at fixed instants, with a row wherever a value has changed.

use std::marker::PhantomData;

use tailback_telemetry::{BLOCK, Column, Log, places_of};

/// The value of a link at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkReading<T> {
    /// Number of the instant, which is at `instant` × interval; the last one is at the end of
    /// the run.
    pub instant: u32,
    /// Link, fabric number.
    pub link: u32,
    /// The value.
    pub value: T,
}

/// A reading made of several numbers.
pub trait Reading: Copy + Default + PartialEq {
    /// How many numbers.
    const NUMBERS: usize;

    /// The reading with these numbers.
    fn of(number: impl Fn(usize) -> u64) -> Self;
}

/// Rows in order of instant and link, column by column.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkReadings<T> {
    /// Number of the instant: see [`LinkReading`].
    pub instant: Column,
    /// Link, fabric number.
    pub link: Column,
    /// Each number of the reading.
    pub numbers: Vec<Column>,
    reading: PhantomData<T>,
}

impl<T: Reading> Default for LinkReadings<T> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<T: Reading> LinkReadings<T> {
    fn with_capacity(rows: usize) -> Self {
        let column = || Column::with_capacity(rows);
        Self {
            instant: column(),
            link: column(),
            numbers: std::iter::repeat_with(column).take(T::NUMBERS).collect(),
            reading: PhantomData,
        }
    }

    /// Appends rows for the links `first` + each of `places`, with their values in `now`.
    fn extend<const N: usize>(
        &mut self,
        instant: usize,
        first: usize,
        places: &[u8],
        now: &[[u64; N]],
    ) {
        self.instant.extend(std::iter::repeat_n(instant as u64, places.len()));
        self.link.extend(places.iter().map(|&place| (first + usize::from(place)) as u64));
        for (number, column) in self.numbers.iter_mut().enumerate() {
            column.extend(places.iter().map(|&place| now[usize::from(place)][number]));
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.link.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = LinkReading<T>> {
        (0..self.len()).map(|place| LinkReading {
            instant: self.instant.at(place) as u32,
            link: self.link.at(place) as u32,
            value: T::of(|number| self.numbers[number].at(place)),
        })
    }
}

/// Change of the `N` numbers of a link, new minus old modulo 2^64, so that changes of several
/// instants add up.
type Change<const N: usize> = [u64; N];

/// Changes of links at an instant.
#[derive(Debug)]
struct Changes<const N: usize> {
    /// Changes that fit in half as many bytes.
    small: Log<(u32, [i32; N])>,
    large: Log<(u32, Change<N>)>,
}

impl<const N: usize> Default for Changes<N> {
    fn default() -> Self {
        Self { small: Log::default(), large: Log::default() }
    }
}

impl<const N: usize> Changes<N> {
    fn push(&mut self, link: u32, change: Change<N>) {
        let small = change.map(|number| number as i32);
        let pairs = small.iter().zip(&change);
        let lost =
            pairs.fold(0, |lost, (&small, &number)| lost | (i64::from(small) as u64 ^ number));
        if lost == 0 {
            self.small.push((link, small));
        } else {
            self.large.push((link, change));
        }
    }

    fn append(&mut self, other: Self) {
        self.small.append(other.small);
        self.large.append(other.large);
    }

    /// Calls `each` for all changes, and frees their memory.
    fn drain(&mut self, mut each: impl FnMut(u32, Change<N>)) {
        self.small.drain(|changes| {
            for &(link, change) in changes {
                each(link, change.map(|number| i64::from(number) as u64));
            }
        });
        self.large.drain(|changes| changes.iter().for_each(|&(link, change)| each(link, change)));
    }

    fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }
}

/// Values of `N` numbers of each link at multiples of an interval. When there would be more than
/// `most` instants, every other one is dropped and the interval doubles, so the length of a run
/// need not be known in advance.
#[derive(Debug)]
pub(crate) struct SampledSeries<const N: usize> {
    /// Time between instants, 0 when nothing is sampled.
    interval: u64,
    most: u32,
    /// Changes since the previous instant.
    instants: Vec<Changes<N>>,
    /// The last position computed: division is slow, and all links are read at the same time.
    last_position: InstantPosition,
}

/// Position of a time among the instants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstantPosition {
    time: u64,
    /// Whether the time is an instant.
    pub due: bool,
    /// The first instant after it.
    pub after: u64,
    /// Number of the first instant that is not before it.
    number: u64,
}

impl<const N: usize> SampledSeries<N> {
    pub fn new(interval: u64, most: u32) -> Self {
        Self {
            interval,
            most,
            instants: Vec::new(),
            last_position: InstantPosition::at(0, interval),
        }
    }

    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// The position of `time` among the instants.
    #[inline]
    pub fn position(&mut self, time: u64) -> InstantPosition {
        if self.last_position.time != time {
            self.last_position = InstantPosition::at(time, self.interval);
        }
        self.last_position
    }

    /// Records the value of a link at a time, which is an instant or the end of the run,
    /// replacing its `reported_value`.
    // Without inlining, the arguments would go through memory and stall.
    #[inline(always)]
    pub fn record(
        &mut self,
        at_time: InstantPosition,
        link: u32,
        value: [u64; N],
        reported_value: &mut [u64; N],
    ) {
        let change =
            std::array::from_fn(|number| value[number].wrapping_sub(reported_value[number]));
        if change.iter().fold(0, |any, number| any | number) == 0 {
            return;
        }
        let mut instant = at_time.number;
        while instant > u64::from(self.most) {
            self.double();
            instant = self.position(at_time.time).number;
        }
        let instant = instant as usize;
        if instant >= self.instants.len() {
            self.instants.resize_with(instant + 1, Changes::default);
        }
        self.instants[instant].push(link, change);
        *reported_value = value;
    }

    /// Changes of a dropped instant count for the next one.
    fn double(&mut self) {
        self.interval *= 2;
        self.last_position = InstantPosition::at(0, self.interval);
        let mut halved: Vec<Changes<N>> = Vec::with_capacity(self.instants.len() / 2 + 1);
        for (instant, changes) in std::mem::take(&mut self.instants).into_iter().enumerate() {
            match halved.get_mut(instant.div_ceil(2)) {
                Some(dropped) => dropped.append(changes),
                None => halved.push(changes),
            }
        }
        self.instants = halved;
    }

    /// Lengthens the interval to `interval`, a power of two times as long.
    pub(crate) fn lengthen(&mut self, interval: u64) {
        while self.interval > 0 && self.interval < interval {
            self.double();
        }
    }
}

impl InstantPosition {
    fn at(time: u64, interval: u64) -> Self {
        let Some(before) = time.checked_div(interval) else {
            return Self { time, due: false, after: u64::MAX, number: 0 };
        };
        let due = before * interval == time;
        let after = (before + 1).saturating_mul(interval);
        Self { time, due, after, number: before + u64::from(!due) }
    }
}

/// Series of all shards, each with the fabric numbers of its links.
pub(super) struct ShardSeries<const N: usize>(pub Vec<(SampledSeries<N>, Vec<u32>)>);

impl<const N: usize> ShardSeries<N> {
    /// Lengthens all intervals to the longest; returns that and the number of instants.
    fn lengthen(&mut self) -> (u64, usize) {
        let interval = self.0.iter().map(|(sampled, _)| sampled.interval).max().unwrap_or(0);
        self.0.iter_mut().for_each(|(sampled, _)| sampled.lengthen(interval));
        let instants = self.0.iter().map(|(sampled, _)| sampled.instants.len()).max();
        (interval, instants.unwrap_or(0))
    }

    /// Number of changes.
    fn len(&self) -> usize {
        self.0.iter().flat_map(|(sampled, _)| &sampled.instants).map(Changes::len).sum()
    }

    /// Calls `each` for the changes at an instant, and frees their memory.
    fn drain(&mut self, instant: usize, mut each: impl FnMut(u32, Change<N>)) {
        for (sampled, global) in &mut self.0 {
            if let Some(changes) = sampled.instants.get_mut(instant) {
                changes.drain(|link, change| each(global[link as usize], change));
            }
        }
    }

    /// Rows of `links` links at the longest interval of the shards, in order of instant and
    /// link, and that interval. `each` applies a change to at most `most` links.
    pub fn in_order<T: Reading>(
        mut self,
        links: usize,
        most: usize,
        each: impl Fn(u32, Change<N>, &mut Table<N>),
    ) -> (u64, LinkReadings<T>) {
        let (interval, instants) = self.lengthen();
        let touched = vec![0; links.div_ceil(64)];
        let mut table =
            Table { now: vec![[0; N]; links], reported_value: vec![[0; N]; links], touched };
        let mut rows = LinkReadings::with_capacity(most * self.len());
        for instant in 0..instants {
            self.drain(instant, |link, change| each(link, change, &mut table));
            table.changed(|first, places, now| rows.extend(instant, first, places, now));
        }
        (interval, rows)
    }
}

/// A table under construction: current values of links.
pub(super) struct Table<const N: usize> {
    now: Vec<[u64; N]>,
    /// Values in their last rows.
    reported_value: Vec<[u64; N]>,
    /// Links that may have changed, one bit each.
    touched: Vec<u64>,
}

impl<const N: usize> Table<N> {
    /// The values of a link, mutable.
    #[inline]
    pub(crate) fn values_mut(&mut self, link: u32) -> &mut [u64; N] {
        self.touched[link as usize / 64] |= 1 << (link % 64);
        &mut self.now[link as usize]
    }

    /// Numbers of a link have changed.
    #[inline]
    pub fn change(&mut self, link: u32, change: Change<N>) {
        let numbers = self.values_mut(link).iter_mut().zip(change);
        numbers.for_each(|(number, more)| *number = number.wrapping_add(more));
    }

    /// Calls `each` for the links that have changed, in order, block by block: the first link
    /// of the block, the offsets of those that have changed, and all values of the block.
    fn changed(&mut self, mut each: impl FnMut(usize, &[u8], &[[u64; N]])) {
        let of_links = self.now.chunks(BLOCK).zip(self.reported_value.chunks_mut(BLOCK));
        let blocks = of_links.zip(self.touched.chunks_mut(BLOCK / 64));
        for (first, ((now, reported_value), touched)) in (0..).step_by(BLOCK).zip(blocks) {
            let mut places = [0; BLOCK];
            let places = places_of(touched, &mut places, |place| {
                let now = now[usize::from(place)];
                let reported_value =
                    std::mem::replace(&mut reported_value[usize::from(place)], now);
                (0..N).fold(0, |differ, number| differ | (reported_value[number] ^ now[number]))
                    != 0
            });
            each(first, places, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Reading for u64 {
        const NUMBERS: usize = 1;

        fn of(number: impl Fn(usize) -> u64) -> u64 {
            number(0)
        }
    }

    #[test]
    fn a_doubled_interval_keeps_every_other_reading() {
        let values = [3, 3, 5, 7, 5, 5, 0, 2, 2, 2, 4, 4];
        let record = |interval: u64, most: u32| {
            let mut sampled = SampledSeries::new(interval, most);
            let mut reported_value = [0];
            for (at, &value) in values.iter().enumerate() {
                let at_time = sampled.position(10 * (at as u64 + 1));
                if at_time.due {
                    sampled.record(at_time, 8, [value], &mut reported_value);
                }
            }
            let shards = ShardSeries(vec![(sampled, (0..9).collect())]);
            shards.in_order::<u64>(9, 1, |link, change, table| table.change(link, change))
        };
        assert_eq!(record(10, 6), record(20, 100));
        assert_eq!(record(10, 3), record(40, 100));
        assert_eq!(record(10, 100).1.len(), 7);
    }
}
