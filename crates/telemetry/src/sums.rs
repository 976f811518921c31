//! The receiver: weighted counts per window, label and link (Taffet 2019, §3.2, algorithm 4).
//!
//! Samples are logged by window as packets arrive: the simulator's loop appends, and neither
//! hashes nor searches. A window's log is sorted and summed when it has grown much
//! longer than its sums, and at the end. Windows double in length when there are too many of
//! them, so the length of a run need not be known in advance.

use crate::{BLOCK, Block, EntrySums, Log, Mark, NO_LINK, RadixSorter, append, in_shares, table};

/// One received packet.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Window of its arrival.
    pub window: u32,
    /// Label of its message.
    pub label: u32,
    /// Payload bytes.
    pub bytes: u32,
    /// The mark it carried.
    pub mark: Mark,
}

table! {
    /// The table of samples: one row per window, label and link, in this order.
    Samples: window, label, link, hop_samples, hop_weight, hop_variance, hop_bytes,
    congested_samples, congested_weight, congested_variance,
}

impl Samples {
    /// Appends sums of a window, for the keys `first` + each of `places`.
    fn extend(&mut self, window: u32, first: u64, places: &[u8], sums: &[EntrySums<SUMS>; BLOCK]) {
        let (label, link) = (first >> 32, first & u64::from(u32::MAX));
        self.window.extend(std::iter::repeat_n(window.into(), places.len()));
        self.label.extend(std::iter::repeat_n(label, places.len()));
        self.link.extend(places.iter().map(|&place| link + u64::from(place)));
        let columns = [
            &mut self.hop_samples,
            &mut self.hop_weight,
            &mut self.hop_variance,
            &mut self.hop_bytes,
            &mut self.congested_samples,
            &mut self.congested_weight,
            &mut self.congested_variance,
        ];
        append(columns, places, sums);
    }
}

/// Number of sums per label and link: those of the hop reservoir, then those of the congested one.
const SUMS: usize = 7;

/// Indices of the first sum of the congested reservoir, and of bytes.
const CONGESTED: usize = 4;
const BYTES: usize = 3;

/// Sums of a label and link, in column order.
#[derive(Debug, Clone, Copy)]
struct LabelLinkSums {
    /// See [`key`].
    key: u64,
    sums: [u64; SUMS],
}

/// A label and link as one number, in table order.
#[inline]
fn key(label: u32, link: u32) -> u64 {
    u64::from(label) << 32 | u64::from(link)
}

/// The block of a key.
#[inline]
fn block_of(key: u64) -> u64 {
    key / BLOCK as u64
}

/// One reservoir of a packet: an observation of a link.
#[derive(Debug, Clone, Copy)]
struct Observation {
    /// See [`key`].
    key: u64,
    bytes: u32,
    /// Hops, or congested hops.
    count: u8,
    /// Which of the two reservoirs.
    congested: bool,
}

const _: () = assert!(size_of::<Observation>() == 16);

/// An observation in 64 bits, for packets with the usual payload and a label below 2^16. From the lowest
/// bit: count (8), reservoir (8), link (32), label (16).
#[derive(Debug, Clone, Copy)]
struct CompactObservation(u64);

impl CompactObservation {
    #[inline]
    fn new(label: u16, link: u32, count: u8, congested: bool) -> Self {
        let [label, link] = [u64::from(label) << 48, u64::from(link) << 16];
        Self(label | link | u64::from(congested) << 8 | u64::from(count))
    }

    #[inline]
    fn key(&self) -> u64 {
        self.0 >> 16
    }

    #[inline]
    fn expand(&self, full: u32) -> Observation {
        let (count, congested) = (self.0 as u8, self.0 >> 8 & 1 > 0);
        Observation { key: self.key(), bytes: full, count, congested }
    }
}

/// The log of a window.
#[derive(Debug, Default)]
struct WindowLog {
    /// Observations since the last summation, in compact form where possible.
    compact: Log<CompactObservation>,
    observed: Log<Observation>,
    /// Earlier sums, in order.
    rows: Vec<LabelLinkSums>,
}

impl WindowLog {
    /// Entries that have not been summed.
    #[inline]
    fn unsummed(&self) -> usize {
        self.compact.len() + self.observed.len()
    }

    /// Merges another log of the same window, or that of the next window.
    fn join(&mut self, mut other: WindowLog) {
        self.compact.append(other.compact);
        self.observed.append(other.observed);
        if self.rows.is_empty() {
            self.rows = other.rows;
        } else if !other.rows.is_empty() {
            self.rows.append(&mut other.rows);
            // The stable sort finds the sorted runs.
            self.rows.sort_by_key(|row| row.key);
            self.rows.dedup_by(|later, first| {
                let same = later.key == first.key;
                if same {
                    (0..SUMS).for_each(|at| first.sums[at] += later.sums[at]);
                }
                same
            });
        }
    }
}

/// Sums the log of a window; its buffers are reused.
#[derive(Debug, Default)]
struct LogSummer {
    compact: RadixSorter<CompactObservation>,
    observed: RadixSorter<Observation>,
    block: Block<SUMS>,
}

impl LogSummer {
    /// Calls `each` for all sums, block by block in order: the first key of the block, the
    /// offsets of those present, and all sums. Most packets have a payload of `full` bytes.
    fn sum(
        &mut self,
        mut log: WindowLog,
        full: u32,
        mut each: impl FnMut(u64, &[u8], &[EntrySums<SUMS>; BLOCK]),
    ) {
        let Self { compact, observed, block } = self;
        let mut compact = compact.drain(&mut log.compact, |compact| block_of(compact.key()));
        let mut observed = observed.drain(&mut log.observed, |observed| block_of(observed.key));
        let mut rows = &log.rows[..];
        loop {
            let keys = [
                compact.first().map(CompactObservation::key),
                observed.first().map(|observed| observed.key),
                rows.first().map(|row| row.key),
            ];
            let Some(number) = keys.into_iter().flatten().map(block_of).min() else { break };
            while let Some((first, tail)) = compact.split_first()
                && block_of(first.key()) == number
            {
                count(block, &first.expand(full));
                compact = tail;
            }
            while let Some((first, tail)) = observed.split_first()
                && block_of(first.key) == number
            {
                count(block, first);
                observed = tail;
            }
            while let Some((first, tail)) = rows.split_first()
                && block_of(first.key) == number
            {
                block.add(first.key as u8, first.sums);
                rows = tail;
            }
            block.drain(|places, sums| each(number * BLOCK as u64, places, sums));
        }
    }
}

/// Adds an observation to the block of its key.
#[inline]
fn count(block: &mut Block<SUMS>, observed: &Observation) {
    let (place, count) = (observed.key as u8, u64::from(observed.count));
    let first = if observed.congested { CONGESTED } else { 0 };
    let sums = block.sums(place);
    sums[first] += 1;
    sums[first + 1] += count;
    sums[first + 2] += count * (count - 1);
    sums[BYTES] += u64::from(!observed.congested) * count * u64::from(observed.bytes);
}

/// A window with fewer entries than this is never summed early.
const MIN_UNSUMMED: usize = 1024;

/// Collects samples by window and sums them by label and link.
#[derive(Debug)]
pub struct SampleLog {
    logs: Vec<WindowLog>,
    /// Payload of most packets.
    payload: u32,
    /// Length at which a window's log is summed: it then takes as much memory as its sums.
    full: usize,
    summer: LogSummer,
}

impl SampleLog {
    /// For packets on `links` links, most of them with `payload` bytes.
    pub fn new(links: usize, payload: u32) -> Self {
        let (full, summer) = (links.max(MIN_UNSUMMED), LogSummer::default());
        Self { logs: Vec::new(), payload, full, summer }
    }

    /// Logs a received packet.
    #[inline(always)]
    pub fn push(&mut self, sample: Sample) {
        let Sample { window, label, bytes, mark } = sample;
        if window as usize >= self.logs.len() {
            self.grow(window);
        }
        let hop = (mark.hop_link, mark.hop_count, false);
        let met = (mark.congested_link, mark.congested_count, true);
        // Whether a packet met congestion is unpredictable, so there is no branch on it.
        let any = mark.hop_link != NO_LINK;
        let kept = usize::from(any) + usize::from(mark.congested_link != NO_LINK);
        let both = if any { [hop, met] } else { [met, hop] };
        if let Ok(label) = u16::try_from(label)
            && bytes == self.payload
        {
            let compact =
                |(link, count, congested)| CompactObservation::new(label, link, count, congested);
            if self.logs[window as usize].compact.push_first(kept, both.map(compact)) {
                self.sum_if_full(window);
            }
        } else {
            let key = |link| key(label, link);
            let observed =
                |(link, count, congested)| Observation { key: key(link), bytes, count, congested };
            self.push_long(window, kept, both.map(observed));
        }
    }

    #[inline(never)]
    fn push_long(&mut self, window: u32, kept: usize, both: [Observation; 2]) {
        if self.logs[window as usize].observed.push_first(kept, both) {
            self.sum_if_full(window);
        }
    }

    /// Sums the log of a window once it is long enough.
    #[cold]
    fn sum_if_full(&mut self, window: u32) {
        if self.logs[window as usize].unsummed() >= self.full {
            self.sum(window);
        }
    }

    #[cold]
    fn grow(&mut self, window: u32) {
        self.logs.resize_with(window as usize + 1, WindowLog::default);
    }

    fn sum(&mut self, window: u32) {
        let log = std::mem::take(&mut self.logs[window as usize]);
        let mut rows = Vec::new();
        self.summer.sum(log, self.payload, |first, places, sums| {
            rows.extend(places.iter().map(|&place| LabelLinkSums {
                key: first + u64::from(place),
                sums: sums[usize::from(place)].0,
            }));
        });
        self.full =
            MIN_UNSUMMED.max(rows.len() * size_of::<LabelLinkSums>() / size_of::<Observation>());
        self.logs[window as usize].rows = rows;
    }

    /// Merges windows in pairs.
    pub fn double_windows(&mut self) {
        let mut logs = std::mem::take(&mut self.logs).into_iter();
        while let Some(mut log) = logs.next() {
            log.join(logs.next().unwrap_or_default());
            self.logs.push(log);
            self.sum_if_full(self.logs.len() as u32 - 1);
        }
    }

    /// The table of several logs, whose windows are of equal length. Uses `threads` threads.
    pub fn finish(logs: Vec<SampleLog>, threads: usize) -> Samples {
        let windows = logs.iter().map(|log| log.logs.len()).max().unwrap_or(0);
        let payload = logs.first().map_or(0, |log| log.payload);
        let mut joined: Vec<WindowLog> = Vec::new();
        joined.resize_with(windows, WindowLog::default);
        for log in logs {
            joined.iter_mut().zip(log.logs).for_each(|(log, other)| log.join(other));
        }
        let length = |log: &WindowLog| log.unsummed() + log.rows.len();
        let tables = in_shares(joined, threads, length, |first, share| {
            let mut table = Samples::with_capacity(share.iter().map(length).sum());
            let mut summer = LogSummer::default();
            for (window, log) in (first as u32..).zip(share) {
                summer.sum(log, payload, |first, places, sums| {
                    table.extend(window, first, places, sums);
                });
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
    fn merged_sums_are_sorted() {
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
    fn long_logs_are_summed_early() {
        let log = receive(100_000, 1, 9, &mut Sums::new());
        assert!(
            log.logs.iter().all(|log| log.unsummed() <= 2 * MIN_UNSUMMED && log.rows.len() <= 9)
        );
    }
}
