//! Values of links at fixed instants: a row where a value has changed.

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

/// Rows at multiples of an interval. When there would be more than `most` instants, every other one is
/// dropped and the interval doubles, so the length of a run need not be known beforehand.
#[derive(Debug)]
pub(crate) struct Sampled<T> {
    /// Time between instants, 0 when nothing is sampled.
    interval: u64,
    most: u32,
    rows: Vec<Row<T>>,
}

impl<T: Copy + PartialEq + Default> Sampled<T> {
    pub fn new(interval: u64, most: u32) -> Self {
        Self { interval, most, rows: Vec::new() }
    }

    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// The first instant after `time`.
    pub fn after(&self, time: u64) -> u64 {
        match self.interval {
            0 => u64::MAX,
            interval => (time / interval + 1).saturating_mul(interval),
        }
    }

    /// Whether there is an instant at `time`.
    pub fn due(&self, time: u64) -> bool {
        self.interval > 0 && time.is_multiple_of(self.interval)
    }

    /// Keeps what a link shows at `time`, an instant or the end of the run.
    pub fn push(&mut self, time: u64, link: u32, value: T) {
        let mut instant = time.div_ceil(self.interval);
        while instant > u64::from(self.most) {
            self.double();
            instant = time.div_ceil(self.interval);
        }
        self.rows.push(Row { instant: instant as u32, link, value });
    }

    /// What an instant that is dropped showed counts for the next one, unless that has a row of its own:
    /// no row means no change.
    fn double(&mut self) {
        self.interval *= 2;
        for row in &mut self.rows {
            row.instant = row.instant.div_ceil(2);
        }
    }

    /// Makes the interval as long as `interval`, a power of two times it.
    pub fn lengthen(&mut self, interval: u64) {
        while self.interval > 0 && self.interval < interval {
            self.double();
        }
    }

    pub fn into_rows(self) -> Vec<Row<T>> {
        self.rows
    }
}

/// Rows of all links in order of instant and link: of several for one instant the last, and none that
/// says what the one before said.
pub(crate) fn in_order<T: Copy + PartialEq + Default>(mut rows: Vec<Row<T>>) -> Vec<Row<T>> {
    // Rows of a link are in order of time already, and stay so.
    rows = by_number(&rows, |row| row.link);
    rows = by_number(&rows, |row| row.instant);
    let links = rows.iter().map(|row| row.link as usize + 1).max().unwrap_or(0);
    let mut before = vec![T::default(); links];
    let mut kept = 0;
    for at in 0..rows.len() {
        let row = rows[at];
        let same = |next: &Row<T>| (next.link, next.instant) == (row.link, row.instant);
        let said = &mut before[row.link as usize];
        if !rows.get(at + 1).is_some_and(same) && row.value != *said {
            *said = row.value;
            rows[kept] = row;
            kept += 1;
        }
    }
    rows.truncate(kept);
    rows
}

/// Rows in order of a number, those of one number in the order they are in.
fn by_number<T: Copy>(rows: &[Row<T>], number: impl Fn(&Row<T>) -> u32) -> Vec<Row<T>> {
    let numbers = rows.iter().map(|row| number(row) as usize + 1).max().unwrap_or(0);
    let mut place = vec![0usize; numbers + 1];
    rows.iter().for_each(|row| place[number(row) as usize + 1] += 1);
    (0..numbers).for_each(|n| place[n + 1] += place[n]);
    let mut sorted = rows.to_vec();
    for row in rows {
        let at = &mut place[number(row) as usize];
        sorted[*at] = *row;
        *at += 1;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_interval_shows_what_every_other_instant_showed() {
        let values = [3, 3, 5, 7, 5, 5, 0, 2, 2, 2, 4, 4];
        let record = |interval: u64, most: u32| {
            let mut sampled = Sampled::new(interval, most);
            let mut before = 0;
            for (at, &value) in values.iter().enumerate() {
                let time = 10 * (at as u64 + 1);
                if value != before && sampled.due(time) {
                    sampled.push(time, 8, value);
                    before = value;
                }
            }
            (sampled.interval(), in_order(sampled.into_rows()))
        };
        assert_eq!(record(10, 6), record(20, 100));
        assert_eq!(record(10, 3), record(40, 100));
        assert_eq!(record(10, 100).1.len(), 7);
    }
}
