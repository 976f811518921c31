//! Values of links at fixed instants: a row where a value has changed.

use std::marker::PhantomData;

use tailback_telemetry::Column;

/// What a link showed at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<T> {
    /// Number of the instant: it is at `instant` × the interval, the last one at the end of the run.
    pub instant: u32,
    /// Link, over the whole fabric.
    pub link: u32,
    /// What it showed.
    pub value: T,
}

/// A reading of some numbers.
pub trait Reading: Copy + Default + PartialEq {
    /// How many numbers it has.
    const NUMBERS: usize;

    /// Appends numbers of links to as many columns.
    fn extend(columns: &mut [Column], rows: &[(u32, Self)]);

    /// The reading whose numbers are at a place of the columns.
    fn at(columns: &[Column], place: usize) -> Self;
}

/// Rows in order of instant and link, column by column.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows<T> {
    /// Number of the instant: see [`Row`].
    pub instant: Column,
    /// Link, over the whole fabric.
    pub link: Column,
    /// Each number of the reading.
    pub numbers: Vec<Column>,
    reading: PhantomData<T>,
}

impl<T: Reading> Default for Rows<T> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<T: Reading> Rows<T> {
    fn with_capacity(rows: usize) -> Self {
        let column = || Column::with_capacity(rows);
        Self {
            instant: column(),
            link: column(),
            numbers: std::iter::repeat_with(column).take(T::NUMBERS).collect(),
            reading: PhantomData,
        }
    }

    fn extend(&mut self, instant: usize, rows: &[(u32, T)]) {
        self.instant.extend(rows.iter().map(|_| instant as u64));
        self.link.extend(rows.iter().map(|&(link, _)| link.into()));
        T::extend(&mut self.numbers, rows);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.link.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Row<T>> {
        (0..self.len()).map(|place| Row {
            instant: self.instant.at(place) as u32,
            link: self.link.at(place) as u32,
            value: T::at(&self.numbers, place),
        })
    }
}

/// What links showed at multiples of an interval. When there would be more than `most` instants, every
/// other one is dropped and the interval doubles, so the length of a run need not be known beforehand.
#[derive(Debug)]
pub(crate) struct Sampled<T> {
    /// Time between instants, 0 when nothing is sampled.
    interval: u64,
    most: u32,
    /// For each instant links and what they showed; of several of a link the last counts.
    instants: Vec<Vec<(u32, T)>>,
    /// Where it looked last: division is slow, and all links are looked at together.
    looked: Look,
}

/// A time among the instants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    time: u64,
    /// Whether there is an instant at that time.
    pub due: bool,
    /// The first one after it.
    pub after: u64,
    /// Number of the first one that is not before it.
    number: u64,
}

impl<T: Copy + PartialEq> Sampled<T> {
    pub fn new(interval: u64, most: u32) -> Self {
        Self { interval, most, instants: Vec::new(), looked: Look::at(0, interval) }
    }

    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// Where `time` is among the instants.
    #[inline]
    pub fn look(&mut self, time: u64) -> Look {
        if self.looked.time != time {
            self.looked = Look::at(time, self.interval);
        }
        self.looked
    }

    /// Keeps what a link shows at `time`, an instant or the end of the run, unless it is what it last `said`.
    pub fn tell(&mut self, time: u64, link: u32, value: T, said: T) {
        if value == said {
            return;
        }
        while self.look(time).number > u64::from(self.most) {
            self.double();
        }
        let instant = self.look(time).number as usize;
        if instant >= self.instants.len() {
            let like_before = self.instants.last().map_or(0, Vec::len);
            self.instants.resize_with(instant, Vec::new);
            self.instants.push(Vec::with_capacity(like_before));
        }
        self.instants[instant].push((link, value));
    }

    /// What an instant that is dropped showed counts for the next one, unless that has a row of its own:
    /// no row means no change.
    fn double(&mut self) {
        self.interval *= 2;
        self.looked = Look::at(0, self.interval);
        let mut halved: Vec<Vec<(u32, T)>> = Vec::with_capacity(self.instants.len() / 2 + 1);
        for (instant, rows) in std::mem::take(&mut self.instants).into_iter().enumerate() {
            match halved.get_mut(instant.div_ceil(2)) {
                Some(dropped) => dropped.extend(rows),
                None => halved.push(rows),
            }
        }
        self.instants = halved;
    }

    /// Makes the interval as long as `interval`, a power of two times it.
    pub fn lengthen(&mut self, interval: u64) {
        while self.interval > 0 && self.interval < interval {
            self.double();
        }
    }
}

impl Look {
    fn at(time: u64, interval: u64) -> Self {
        let Some(before) = time.checked_div(interval) else {
            return Self { time, due: false, after: u64::MAX, number: 0 };
        };
        let due = before * interval == time;
        let after = (before + 1).saturating_mul(interval);
        Self { time, due, after, number: before + u64::from(!due) }
    }
}

/// What the links of all shards showed, each shard with the numbers of its links over the whole fabric.
pub(super) struct OfShards<T>(pub Vec<(Sampled<T>, Vec<u32>)>);

impl<T: Copy + PartialEq> OfShards<T> {
    /// The longest interval.
    pub fn interval(&self) -> u64 {
        self.0.iter().map(|(sampled, _)| sampled.interval).max().unwrap_or(0)
    }

    /// Makes all intervals as long as `interval`; returns the number of instants.
    pub fn lengthen(&mut self, interval: u64) -> usize {
        self.0.iter_mut().for_each(|(sampled, _)| sampled.lengthen(interval));
        self.0.iter().map(|(sampled, _)| sampled.instants.len()).max().unwrap_or(0)
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.0.iter().flat_map(|(sampled, _)| &sampled.instants).map(Vec::len).sum()
    }

    /// Takes out what links showed at an instant; its memory is given back.
    pub fn take(&mut self, instant: usize) -> impl Iterator<Item = (u32, T)> {
        self.0.iter_mut().flat_map(move |(sampled, global)| {
            let rows = sampled.instants.get_mut(instant).map(std::mem::take);
            rows.into_iter().flatten().map(|(link, value)| (global[link as usize], value))
        })
    }
}

/// A table in the making: what links showed last.
pub(super) struct Table<T> {
    now: Vec<T>,
    /// What their rows say.
    said: Vec<T>,
    /// Links that may have changed, a bit each.
    touched: Vec<u64>,
}

impl<T: Reading> Table<T> {
    /// Rows in order of instant and link, `most` of them at most; `fill` is told to touch the links that
    /// may have changed.
    pub fn in_order(
        links: usize,
        instants: usize,
        most: usize,
        mut fill: impl FnMut(usize, &mut Self),
    ) -> Rows<T> {
        let mut table = Self {
            now: vec![T::default(); links],
            said: vec![T::default(); links],
            touched: vec![0; links.div_ceil(64)],
        };
        let (mut rows, mut changed) = (Rows::with_capacity(most), Vec::new());
        for instant in 0..instants {
            fill(instant, &mut table);
            table.changed(&mut changed);
            rows.extend(instant, &changed);
        }
        rows
    }

    /// What a link shows, to change.
    pub fn touch(&mut self, link: u32) -> &mut T {
        self.touched[link as usize / 64] |= 1 << (link % 64);
        &mut self.now[link as usize]
    }

    /// Puts links that have changed in order, and what they show.
    fn changed(&mut self, rows: &mut Vec<(u32, T)>) {
        rows.clear();
        for (word, touched) in self.touched.iter_mut().enumerate() {
            let mut links = std::mem::take(touched);
            while links != 0 {
                let link = word * 64 + links.trailing_zeros() as usize;
                links &= links - 1;
                let value = self.now[link];
                if value != self.said[link] {
                    self.said[link] = value;
                    rows.push((link as u32, value));
                }
            }
        }
    }
}

/// Rows of all shards at the longest of their intervals.
pub(super) fn in_order<T: Reading>(links: usize, mut shown: OfShards<T>) -> (u64, Rows<T>) {
    let interval = shown.interval();
    let instants = shown.lengthen(interval);
    let rows = Table::in_order(links, instants, shown.rows(), |instant, table| {
        shown.take(instant).for_each(|(link, value)| *table.touch(link) = value);
    });
    (interval, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Reading for u64 {
        const NUMBERS: usize = 1;

        fn extend(columns: &mut [Column], rows: &[(u32, u64)]) {
            columns[0].extend(rows.iter().map(|&(_, value)| value));
        }

        fn at(columns: &[Column], place: usize) -> u64 {
            columns[0].at(place)
        }
    }

    #[test]
    fn twice_the_interval_shows_what_every_other_instant_showed() {
        let values = [3, 3, 5, 7, 5, 5, 0, 2, 2, 2, 4, 4];
        let record = |interval: u64, most: u32| {
            let mut sampled = Sampled::new(interval, most);
            let mut said = 0;
            for (at, &value) in values.iter().enumerate() {
                let time = 10 * (at as u64 + 1);
                if sampled.look(time).due {
                    sampled.tell(time, 8, value, said);
                    said = value;
                }
            }
            in_order(9, OfShards(vec![(sampled, (0..9).collect())]))
        };
        assert_eq!(record(10, 6), record(20, 100));
        assert_eq!(record(10, 3), record(40, 100));
        assert_eq!(record(10, 100).1.len(), 7);
    }
}
