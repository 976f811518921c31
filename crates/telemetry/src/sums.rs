//! The receiver: weighted counts per window, label and link (thesis §3.2, algorithm 4).
//!
//! What packets say is logged by window as they arrive: the simulator's loop appends, and neither
//! hashes nor looks for anything. A window's log is put in order and summed when it has grown much
//! longer than the sums it makes, and at the end. Windows double in length when there are too many of
//! them: the length of a run need not be known beforehand.

use crate::{Log, Mark, NO_LINK, in_shares, table};

/// One received packet.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Window of its arrival.
    pub window: u32,
    /// Label of its message.
    pub label: u32,
    /// Payload bytes.
    pub bytes: u32,
    /// What it carried.
    pub mark: Mark,
}

table! {
    /// The table of samples: one entry a window, label and link, in this order.
    Samples: window, label, link, hop_samples, hop_weight, hop_variance, hop_bytes,
    congested_samples, congested_weight, congested_variance,
}

impl Samples {
    fn extend(&mut self, window: u32, rows: &[Row]) {
        self.window.extend(rows.iter().map(|_| window.into()));
        self.label.extend(rows.iter().map(|row| row.key >> 32));
        self.link.extend(rows.iter().map(|row| row.key & u64::from(u32::MAX)));
        self.hop_samples.extend(rows.iter().map(|row| row.hop_samples));
        self.hop_weight.extend(rows.iter().map(|row| row.hop_weight));
        self.hop_variance.extend(rows.iter().map(|row| row.hop_variance));
        self.hop_bytes.extend(rows.iter().map(|row| row.hop_bytes));
        self.congested_samples.extend(rows.iter().map(|row| row.congested_samples));
        self.congested_weight.extend(rows.iter().map(|row| row.congested_weight));
        self.congested_variance.extend(rows.iter().map(|row| row.congested_variance));
    }
}

/// Sums of one label and link.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// See [`key`].
    key: u64,
    hop_samples: u64,
    hop_weight: u64,
    hop_variance: u64,
    hop_bytes: u64,
    congested_samples: u64,
    congested_weight: u64,
    congested_variance: u64,
}

/// A label and a link as one number, in the order of the table.
fn key(label: u32, link: u32) -> u64 {
    u64::from(label) << 32 | u64::from(link)
}

impl Row {
    const EMPTY: Self = Self {
        key: 0,
        hop_samples: 0,
        hop_weight: 0,
        hop_variance: 0,
        hop_bytes: 0,
        congested_samples: 0,
        congested_weight: 0,
        congested_variance: 0,
    };

    fn add(&mut self, other: &Self) {
        self.hop_samples += other.hop_samples;
        self.hop_weight += other.hop_weight;
        self.hop_variance += other.hop_variance;
        self.hop_bytes += other.hop_bytes;
        self.congested_samples += other.congested_samples;
        self.congested_weight += other.congested_weight;
        self.congested_variance += other.congested_variance;
    }

    fn count(&mut self, said: &Said) {
        let count = u64::from(said.count);
        if said.congested {
            self.congested_samples += 1;
            self.congested_weight += count;
            self.congested_variance += count * (count - 1);
        } else {
            self.hop_samples += 1;
            self.hop_weight += count;
            self.hop_variance += count * (count - 1);
            self.hop_bytes += count * u64::from(said.bytes);
        }
    }
}

/// What a packet said about a link: one of its reservoirs.
#[derive(Debug, Clone, Copy)]
struct Said {
    /// See [`key`].
    key: u64,
    bytes: u32,
    /// Hops, or congested hops.
    count: u8,
    /// Which of the two it is.
    congested: bool,
}

const _: () = assert!(size_of::<Said>() == 16);

/// The same of a packet with the payload of most, of one of the first labels: half as long.
#[derive(Debug, Clone, Copy)]
struct Short {
    link: u32,
    label: u16,
    count: u8,
    congested: bool,
}

const _: () = assert!(size_of::<Short>() == 8);

impl Said {
    /// As few bytes as it may take where most packets have a payload of `full` bytes.
    #[inline]
    fn shortened(&self, full: u32) -> Option<Short> {
        let (label, link) = ((self.key >> 32) as u32, self.key as u32);
        let Self { bytes, count, congested, .. } = *self;
        let fits = bytes == full && label <= u16::MAX.into();
        fits.then_some(Short { link, label: label as u16, count, congested })
    }
}

impl Short {
    fn in_full(&self, full: u32) -> Said {
        let Self { link, label, count, congested } = *self;
        Said { key: key(label.into(), link), bytes: full, count, congested }
    }
}

/// The log of a window.
#[derive(Debug, Default)]
struct Page {
    /// What was said since it was last summed, in short where that may be.
    short: Log<Short>,
    said: Log<Said>,
    /// Sums until then, in order.
    rows: Vec<Row>,
}

impl Page {
    /// Appends what a packet said, where most have a payload of `full` bytes.
    #[inline]
    fn push(&mut self, said: Said, full: u32) {
        match said.shortened(full) {
            Some(short) => self.short.push(short),
            None => self.said.push(said),
        }
    }

    /// Entries that are not summed.
    #[inline]
    fn unsummed(&self) -> usize {
        self.short.len() + self.said.len()
    }

    /// Takes in the log of the same window, or of the one it is joined with.
    fn join(&mut self, mut other: Page) {
        self.short.append(other.short);
        self.said.append(other.said);
        if self.rows.is_empty() {
            self.rows = other.rows;
        } else if !other.rows.is_empty() {
            self.rows.append(&mut other.rows);
            // Stable: made of sorted runs, which it finds.
            self.rows.sort_by_key(|row| row.key);
            self.rows.dedup_by(|later, first| {
                let same = later.key == first.key;
                if same {
                    first.add(later);
                }
                same
            });
        }
    }
}

/// Adds up what a window's log holds. Its memory is used again for every window.
#[derive(Debug, Default)]
struct Summing {
    said: Vec<Said>,
    sorted: Vec<Said>,
    rows: Vec<Row>,
}

impl Summing {
    /// The sums of everything, in order, where most packets have a payload of `full` bytes.
    fn sum(&mut self, mut page: Page, full: u32) -> &[Row] {
        self.said.clear();
        page.short.drain(|short| self.said.extend(short.iter().map(|said| said.in_full(full))));
        page.said.drain(|said| self.said.extend_from_slice(said));
        self.sort();
        self.rows.clear();
        let mut rows = page.rows.into_iter().peekable();
        for said in self.said.chunk_by(|a, b| a.key == b.key) {
            let key = said[0].key;
            self.rows.extend(std::iter::from_fn(|| rows.next_if(|row| row.key < key)));
            let row = rows.next_if(|row| row.key == key);
            let mut row = row.unwrap_or(Row { key, ..Row::EMPTY });
            said.iter().for_each(|said| row.count(said));
            self.rows.push(row);
        }
        self.rows.extend(rows);
        &self.rows
    }

    /// Puts what was said in order of key: by one byte of it after the other, of those that differ.
    fn sort(&mut self) {
        let Self { said, sorted, .. } = self;
        let differ = said.iter().fold(0, |bits, one| bits | (one.key ^ said[0].key));
        sorted.resize(said.len(), Said { key: 0, bytes: 0, count: 0, congested: false });
        for shift in (0..64).step_by(8).filter(|shift| differ >> shift & 0xff != 0) {
            let byte = |said: &Said| (said.key >> shift) as usize & 0xff;
            let mut place = [0usize; 257];
            said.iter().for_each(|one| place[byte(one) + 1] += 1);
            (0..256).for_each(|at| place[at + 1] += place[at]);
            for one in said.iter() {
                let at = &mut place[byte(one)];
                sorted[*at] = *one;
                *at += 1;
            }
            std::mem::swap(said, sorted);
        }
    }
}

/// So much is kept unsummed in any window.
const LEAST: usize = 1024;

/// Collects samples by window and sums them by label and link.
#[derive(Debug)]
pub struct SampleLog {
    pages: Vec<Page>,
    /// Payload of most packets.
    payload: u32,
    /// A window's log of this length is summed: it takes as much memory as what becomes of it.
    full: usize,
    summing: Summing,
}

impl SampleLog {
    /// For packets that name one of so many links, most of them with so many bytes of payload.
    pub fn new(links: usize, payload: u32) -> Self {
        let (full, summing) = (links.max(LEAST), Summing::default());
        Self { pages: Vec::new(), payload, full, summing }
    }

    /// Logs a received packet.
    #[inline]
    pub fn push(&mut self, sample: Sample) {
        let Sample { window, label, bytes, mark } = sample;
        if window as usize >= self.pages.len() {
            self.grow(window);
        }
        let page = &mut self.pages[window as usize];
        if mark.hop_link != NO_LINK {
            let (key, count) = (key(label, mark.hop_link), mark.hop_count);
            page.push(Said { key, bytes, count, congested: false }, self.payload);
        }
        if mark.congested_link != NO_LINK {
            let (key, count) = (key(label, mark.congested_link), mark.congested_count);
            page.push(Said { key, bytes, count, congested: true }, self.payload);
        }
        if page.unsummed() >= self.full {
            self.sum(window);
        }
    }

    #[cold]
    fn grow(&mut self, window: u32) {
        self.pages.resize_with(window as usize + 1, Page::default);
    }

    #[cold]
    fn sum(&mut self, window: u32) {
        let page = std::mem::take(&mut self.pages[window as usize]);
        let rows = self.summing.sum(page, self.payload).to_vec();
        self.full = LEAST.max(rows.len() * size_of::<Row>() / size_of::<Said>());
        self.pages[window as usize].rows = rows;
    }

    /// Merges windows in pairs.
    pub fn double_windows(&mut self) {
        let mut pages = std::mem::take(&mut self.pages).into_iter();
        while let Some(mut page) = pages.next() {
            page.join(pages.next().unwrap_or_default());
            self.pages.push(page);
            if self.pages.last().is_some_and(|page| page.unsummed() >= self.full) {
                self.sum(self.pages.len() as u32 - 1);
            }
        }
    }

    /// The table of what several logs hold, whose windows are of one length. Uses so many threads.
    pub fn finish(logs: Vec<SampleLog>, threads: usize) -> Samples {
        let windows = logs.iter().map(|log| log.pages.len()).max().unwrap_or(0);
        let payload = logs.first().map_or(0, |log| log.payload);
        let mut joined: Vec<Page> = Vec::new();
        joined.resize_with(windows, Page::default);
        for log in logs {
            joined.iter_mut().zip(log.pages).for_each(|(page, other)| page.join(other));
        }
        let length = |page: &Page| page.unsummed() + page.rows.len();
        let tables = in_shares(joined, threads, length, |first, share| {
            let mut table = Samples::with_capacity(share.iter().map(length).sum());
            let mut summing = Summing::default();
            for (window, page) in (first as u32..).zip(share) {
                table.extend(window, summing.sum(page, payload));
            }
            table
        });
        Samples::default().append(tables.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::scheme::mix;

    #[test]
    fn a_packet_charges_its_whole_path_to_the_sampled_link() {
        let mut log = SampleLog::new(5, 100);
        let mark = Mark { hop_link: 3, congested_link: 4, hop_count: 5, congested_count: 2 };
        for window in [0, 1] {
            log.push(Sample { window, label: 0, bytes: 100, mark });
        }
        log.double_windows();
        let table = SampleLog::finish(vec![log], 1);
        let columns = [
            (table.window, [0, 0]),
            (table.label, [0, 0]),
            (table.link, [3, 4]),
            (table.hop_samples, [2, 0]),
            (table.hop_weight, [10, 0]),
            (table.hop_variance, [40, 0]),
            (table.hop_bytes, [1000, 0]),
            (table.congested_samples, [0, 2]),
            (table.congested_weight, [0, 4]),
            (table.congested_variance, [0, 4]),
        ];
        for (column, expected) in columns {
            assert!(column.iter().eq(expected));
        }
    }

    /// Window, label and link, and the seven sums in the order of the table.
    type Sums = BTreeMap<[u64; 3], [u64; 7]>;

    fn sums_of(table: &Samples) -> Vec<([u64; 3], [u64; 7])> {
        let columns = [
            &table.window,
            &table.label,
            &table.link,
            &table.hop_samples,
            &table.hop_weight,
            &table.hop_variance,
            &table.hop_bytes,
            &table.congested_samples,
            &table.congested_weight,
            &table.congested_variance,
        ];
        let columns = columns.map(|column| column.iter().collect::<Vec<_>>());
        let row = |at: usize| {
            (std::array::from_fn(|c| columns[c][at]), std::array::from_fn(|c| columns[c + 3][at]))
        };
        (0..table.window.len()).map(row).collect()
    }

    /// Logs samples of some labels and links in four windows, twice as long from half of them on.
    fn receive(samples: u64, labels: u32, links: u32, expected: &mut Sums) -> SampleLog {
        let mut log = SampleLog::new(links as usize, 100);
        for number in 0..samples {
            let draw = mix(number + 1);
            if number == samples / 2 {
                log.double_windows();
            }
            let half = u32::from(number < samples / 2);
            let window = (number * 4 / samples) as u32 * (1 + half) / 2;
            let (label, link) = (draw as u32 % labels, (draw >> 32) as u32 % links);
            let met = if draw >> 20 & 3 == 0 { (link + 1) % links } else { NO_LINK };
            let (l, g, bytes) = (((1 + draw) >> 40) & 7, ((1 + draw) >> 50) & 3, 100 + label);
            let (l, g) = (l as u8 + 1, g as u8 + 1);
            let mark =
                Mark { hop_link: link, congested_link: met, hop_count: l, congested_count: g };
            log.push(Sample { window, label, bytes, mark });
            let (l, g) = (u64::from(l), u64::from(g));
            let window = u64::from(window >> half);
            let mut add = |link: u32, sums: [u64; 7]| {
                let sum = expected.entry([window, label.into(), link.into()]).or_default();
                sum.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
            };
            add(link, [1, l, l * (l - 1), l * u64::from(bytes), 0, 0, 0]);
            if met != NO_LINK {
                add(met, [0, 0, 0, 0, 1, g, g * (g - 1)]);
            }
        }
        log
    }

    #[test]
    fn sums_of_several_logs_are_in_order_of_window_label_and_link() {
        let cases = [(100, 2, 7), (20_000, 1, 70_000), (50_000, 300, 11)];
        for ((samples, labels, links), threads) in cases.into_iter().zip([3, 2, 1]) {
            let mut expected = Sums::new();
            let first = receive(samples, labels, links, &mut expected);
            let second = receive(samples / 3, labels, links, &mut expected);
            let table = SampleLog::finish(vec![first, second], threads);
            assert_eq!(sums_of(&table), expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_logged_is_summed_before_it_takes_much_more_memory_than_the_sums() {
        let log = receive(100_000, 1, 9, &mut Sums::new());
        assert!(log.pages.iter().all(|page| page.unsummed() <= 2 * LEAST && page.rows.len() <= 9));
    }
}
