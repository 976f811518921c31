//! Ground truth: traffic of each link, per window.
//!
//! Most packets are of one size: in each window a counter per link counts them. Everything else is
//! appended to a log of the window, which the event loop never reads. A window is summed and sorted
//! by link at the end; its log also earlier when it takes more memory than its sums.

use tailback_telemetry::{BLOCK, Block, EntrySums, Log, RadixSorter, in_shares};

use super::truth_table::{SUMS, TruthTable};
use super::{SentPacket, Transmission};
use crate::intrinsics::prefetch;
use crate::network::cable::Cable;
use crate::network::link::Link;

/// Indices of the sums, in column order. Packets of observed jobs follow all packets.
const BYTES: usize = 0;
const BUSY_PS: usize = 1;
const STALL_PS: usize = 2;
const PACKETS: usize = 3;
const CONGESTED: usize = 5;

/// An entry about a link.
#[derive(Debug, Clone, Copy)]
struct LinkEntry<T> {
    link: u32,
    what: T,
}

/// Either the bytes of a packet that is not full-sized, or 0 for a packet that met congestion. The
/// highest bit is set for an observed job.
type PacketEntry = LinkEntry<u32>;

/// Counter of full packets: small, because the counters of all links of a window should fit in the
/// L1 cache.
type PacketCount = u8;

/// The flag bit of a [`PacketEntry`].
const OBSERVED: u32 = 31;

/// The log of a window.
#[derive(Debug, Default, Clone)]
struct TruthWindowLog {
    /// Full packets that each link sent, of jobs that are not observed and of those that are;
    /// empty if there were none yet.
    full: [Vec<PacketCount>; 2],
    /// Other packets since the log was last summed.
    noticed: Log<PacketEntry>,
    /// How long packets waited for credit at an idle link.
    stalled: Log<LinkEntry<u64>>,
    /// Earlier sums of the logs, and overflows of `full`; by fabric number.
    rows: Vec<LinkEntry<[u64; SUMS]>>,
}

impl TruthWindowLog {
    /// Number of log entries.
    fn len(&self) -> usize {
        self.noticed.len() + self.stalled.len() + self.rows.len()
    }

    /// Merges the log of the window that it is joined with.
    fn join(&mut self, mut other: Self, links: &ShardLinks) {
        for (observed, more) in [false, true].into_iter().zip(other.full) {
            let full = &mut self.full[usize::from(observed)];
            if full.is_empty() {
                *full = more;
                continue;
            }
            let mut too_many = false;
            for (packets, more) in full.iter_mut().zip(&more) {
                *packets = packets.wrapping_add(*more);
                too_many |= *packets < *more;
            }
            if too_many {
                let over = (0..).zip(full.iter().zip(more)).filter(|(_, (sum, more))| *sum < more);
                self.rows.extend(over.map(|(link, _)| links.overflow_entry(link, observed)));
            }
        }
        self.noticed.append(other.noticed);
        self.stalled.append(other.stalled);
        self.rows.append(&mut other.rows);
    }
}

/// The links of a shard.
#[derive(Debug, Clone)]
struct ShardLinks {
    /// Fabric number of each, ascending.
    global: Vec<u32>,
    wire: Vec<Cable>,
    /// Bytes of a full packet.
    full: u32,
}

impl ShardLinks {
    /// The overflow of a counter of [`TruthWindowLog::full`].
    #[cold]
    fn overflow_entry(&self, link: u32, observed: bool) -> LinkEntry<[u64; SUMS]> {
        let packets = 1 << PacketCount::BITS;
        let busy_ps = packets * self.wire[link as usize].serialization_ps(self.full);
        let of_observed = if observed { packets } else { 0 };
        let what = [packets * u64::from(self.full), busy_ps, 0, packets, of_observed, 0, 0];
        LinkEntry { link: self.global[link as usize], what }
    }
}

/// Traffic of the links of a shard.
#[derive(Debug)]
pub(super) struct TruthLog {
    links: ShardLinks,
    pages: Vec<TruthWindowLog>,
    /// Buffers for logs that are summed before the end.
    tally: TruthSummer,
}

/// A log is summed when it has this many entries per link, which take as much memory as a row.
const MOST: usize = 4;

impl TruthLog {
    /// For these links, in ascending order, where most packets are of `full` bytes.
    pub fn new(links: &[Link], full: u32) -> Self {
        let (global, wire) = links.iter().map(|link| (link.global, link.cable)).unzip();
        let links = ShardLinks { global, wire, full };
        Self { links, pages: Vec::new(), tally: TruthSummer::default() }
    }

    /// Prefetches the counter of full packets of observed jobs of a link.
    #[inline]
    pub fn prefetch(&self, window: usize, link: u32) {
        if let Some(page) = self.pages.get(window) {
            prefetch(&page.full[1], link);
        }
    }

    /// Counts a packet that a link sends in a window if that takes no more than its counter: it is
    /// full-sized, and the counter exists and does not overflow. Returns whether it was counted.
    #[inline(always)]
    pub fn count_full(&mut self, window: u64, link: u32, packet: SentPacket) -> bool {
        let full = packet.wire == self.links.full;
        let page = self.pages.get_mut(window as usize).filter(|_| full);
        let counters = page.map(|page| &mut page.full[usize::from(packet.observed)]);
        match counters.and_then(|counters| counters.get_mut(link as usize)) {
            Some(&mut PacketCount::MAX) | None => false,
            Some(packets) => {
                *packets += 1;
                true
            }
        }
    }

    /// A link sends a packet in a window.
    pub fn sent(&mut self, window: u32, link: u32, slot: Transmission, packet: SentPacket) {
        let SentPacket { wire, observed, .. } = packet;
        if self.count_full(window.into(), link, packet) {
            // That was all.
        } else if wire == self.links.full {
            self.sent_full(window, link, observed);
        } else {
            let page = &mut self.pages[window as usize];
            page.noticed.push(LinkEntry { link, what: wire | u32::from(observed) << OBSERVED });
        }
        if slot.stall_ps > 0 {
            self.pages[window as usize].stalled.push(LinkEntry { link, what: slot.stall_ps });
        }
    }

    /// Counts a full packet whose counter overflows or does not exist yet.
    #[cold]
    fn sent_full(&mut self, window: u32, link: u32, observed: bool) {
        let page = &mut self.pages[window as usize];
        let full = &mut page.full[usize::from(observed)];
        if full.is_empty() {
            full.resize(self.links.global.len(), 0);
        } else {
            page.rows.push(self.links.overflow_entry(link, observed));
        }
        let packets = &mut full[link as usize];
        *packets = packets.wrapping_add(1);
    }

    /// A packet met congestion in a window.
    #[inline]
    pub fn congested(&mut self, window: u32, link: u32, observed: bool) {
        let what = u32::from(observed) << OBSERVED;
        self.pages[window as usize].noticed.push(LinkEntry { link, what });
    }

    /// Number of windows.
    #[inline]
    pub fn windows(&self) -> usize {
        self.pages.len()
    }

    /// Grows to `windows` windows.
    pub fn grow(&mut self, windows: usize) {
        self.pages.resize_with(windows, TruthWindowLog::default);
    }

    /// Sums the log of a window if it has grown long.
    #[inline]
    pub fn compact_if_long(&mut self, window: usize) {
        if self.pages.get(window).is_some_and(|page| page.len() > MOST * self.links.global.len()) {
            self.compact(window);
        }
    }

    #[cold]
    fn compact(&mut self, window: usize) {
        let page = std::mem::take(&mut self.pages[window]);
        let logs = TruthWindowLog { full: Default::default(), ..page };
        let mut rows = Vec::new();
        let links = std::slice::from_ref(&self.links);
        self.tally.sum(vec![logs], links, |first, places, sums| {
            rows.extend(places.iter().map(|&place| LinkEntry {
                link: first + u32::from(place),
                what: sums[usize::from(place)].0,
            }));
        });
        self.pages[window] = TruthWindowLog { full: page.full, rows, ..TruthWindowLog::default() };
    }

    /// Merges windows in pairs.
    pub fn double_windows(&mut self) {
        let mut pages = std::mem::take(&mut self.pages).into_iter();
        while let Some(mut page) = pages.next() {
            page.join(pages.next().unwrap_or_default(), &self.links);
            self.pages.push(page);
            self.compact_if_long(self.pages.len() - 1);
        }
    }

    /// The table of what has been logged so far.
    pub fn so_far(&self) -> TruthTable {
        let Self { links, pages, .. } = self;
        let tally = TruthSummer::default();
        Self::finish(vec![Self { links: links.clone(), pages: pages.clone(), tally }], 1)
    }

    /// The table of the logs of all shards, whose windows are of equal length. Uses `threads`
    /// threads.
    pub fn finish(ledgers: Vec<Self>, threads: usize) -> TruthTable {
        let windows = ledgers.iter().map(Self::windows).max().unwrap_or(0);
        let all: usize = ledgers.iter().map(|ledger| ledger.links.global.len()).sum();
        let (mut pages, mut links): (Vec<Vec<TruthWindowLog>>, Vec<_>) = (Vec::new(), Vec::new());
        pages.resize_with(windows, Vec::new);
        for mut ledger in ledgers {
            ledger.grow(windows);
            pages.iter_mut().zip(ledger.pages).for_each(|(pages, page)| pages.push(page));
            links.push(ledger.links);
        }
        let weight = |pages: &Vec<TruthWindowLog>| {
            all + pages.iter().map(TruthWindowLog::len).sum::<usize>()
        };
        let tables = in_shares(pages, threads, weight, |first, share| {
            let mut table = TruthTable::with_room(share.len() * all);
            let mut tally = TruthSummer::default();
            for (window, pages) in (first as u32..).zip(share) {
                tally.sum(pages, &links, |first, places, sums| {
                    table.extend(window, first, places, sums);
                });
            }
            table
        });
        TruthTable::joined(tables.into_iter())
    }
}

/// Sums the logs of a window in order of links. Its buffers are reused for every window.
#[derive(Debug, Default)]
struct TruthSummer {
    /// Sorting buffers of each shard.
    logs: Vec<(RadixSorter<PacketEntry>, RadixSorter<LinkEntry<u64>>)>,
    block: Block<SUMS>,
}

impl TruthSummer {
    /// Calls `each` for the sums of `pages`, one per shard with its `links`, in order of
    /// blocks: the first link of the block, the offsets of links with traffic, and all sums.
    fn sum(
        &mut self,
        mut pages: Vec<TruthWindowLog>,
        links: &[ShardLinks],
        mut each: impl FnMut(u32, &[u8], &[EntrySums<SUMS>; BLOCK]),
    ) {
        self.logs.resize_with(links.len(), Default::default);
        let shards = self.logs.iter_mut().zip(&mut pages).zip(links);
        let mut unread: Vec<_> =
            shards.map(|((logs, page), links)| SortedLog::of(page, links, logs)).collect();
        let last = links.iter().filter_map(|links| links.global.last()).max();
        for first in (0..last.map_or(0, |last| last + 1)).step_by(BLOCK) {
            unread.iter_mut().for_each(|unread_log| unread_log.count(first, &mut self.block));
            self.block.drain(|places, sums| each(first, places, sums));
        }
    }
}

/// The unread part of a window's log, in order of links.
struct SortedLog<'a> {
    links: &'a ShardLinks,
    /// The first link that has not been summed.
    next: usize,
    full: &'a [Vec<PacketCount>; 2],
    noticed: &'a [PacketEntry],
    stalled: &'a [LinkEntry<u64>],
    rows: &'a [LinkEntry<[u64; SUMS]>],
}

impl<'a> SortedLog<'a> {
    fn of(
        page: &'a mut TruthWindowLog,
        links: &'a ShardLinks,
        (noticed, stalled): &'a mut (RadixSorter<PacketEntry>, RadixSorter<LinkEntry<u64>>),
    ) -> Self {
        let block = |link: u32| u64::from(links.global[link as usize]) / BLOCK as u64;
        page.rows.sort_unstable_by_key(|row| row.link);
        Self {
            links,
            next: 0,
            full: &page.full,
            noticed: noticed.drain(&mut page.noticed, |noticed| block(noticed.link)),
            stalled: stalled.drain(&mut page.stalled, |stalled| block(stalled.link)),
            rows: &page.rows,
        }
    }

    /// Adds the links of the block that begins with `first`.
    fn count(&mut self, first: u32, block: &mut Block<SUMS>) {
        let ShardLinks { global, wire, .. } = self.links;
        // At most the links of a block.
        let links = &global[self.next..global.len().min(self.next + BLOCK)];
        let begin = self.next;
        self.next += links.partition_point(|&link| link - first < BLOCK as u32);
        for (observed, full) in [false, true].into_iter().zip(self.full) {
            let full = full.get(begin..self.next).unwrap_or_default();
            let (global, wire) = (&global[begin..self.next], &wire[begin..self.next]);
            // Which links have traffic is unpredictable: no branches.
            let (mut sent, mut length) = ([0_u8; BLOCK], 0);
            for (number, &packets) in full.iter().enumerate() {
                sent[length] = number as u8;
                length += usize::from(packets > 0);
            }
            for number in sent[..length].iter().map(|&number| usize::from(number)) {
                let (place, packets) = (global[number] as u8, u64::from(full[number]));
                let sums = block.sums(place);
                sums[BYTES] += packets * u64::from(self.links.full);
                sums[BUSY_PS] += packets * wire[number].serialization_ps(self.links.full);
                sums[PACKETS] += packets;
                sums[PACKETS + 1] += if observed { packets } else { 0 };
            }
        }
        while let Some((&LinkEntry { link, what }, tail)) = self.noticed.split_first()
            && (link as usize) < self.next
        {
            let (bytes, observed) = (what & !(1 << OBSERVED), what >> OBSERVED);
            let place = global[link as usize] as u8;
            let (kind, busy_ps) = match bytes {
                0 => (CONGESTED, 0),
                _ => (PACKETS, wire[link as usize].serialization_ps(bytes)),
            };
            let sums = block.sums(place);
            sums[BYTES] += u64::from(bytes);
            sums[BUSY_PS] += busy_ps;
            sums[kind] += 1;
            sums[kind + 1] += u64::from(observed);
            self.noticed = tail;
        }
        while let Some((&LinkEntry { link, what }, tail)) = self.stalled.split_first()
            && (link as usize) < self.next
        {
            let place = global[link as usize] as u8;
            block.sums(place)[STALL_PS] += what;
            self.stalled = tail;
        }
        while let Some((row, tail)) = self.rows.split_first()
            && row.link - first < BLOCK as u32
        {
            block.add(row.link as u8, row.what);
            self.rows = tail;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use tailback_telemetry::scheme::mix;

    const LINKS: u32 = 5;

    /// Links with these numbers at `gbps`.
    pub fn links(numbers: impl Iterator<Item = u32>, gbps: f64) -> Vec<Link> {
        numbers.map(|number| Link::isolated(number, Cable::new(gbps, 0))).collect()
    }

    /// Sends `packets` packets of two sizes by `LINKS` links, half of them observed, and merges
    /// windows three times; returns the log and the expected sums.
    fn send(packets: u64, links: &[Link]) -> (TruthLog, BTreeMap<(u32, u32), [u64; SUMS]>) {
        let mut ledger = TruthLog::new(links, 4096);
        let mut expected: BTreeMap<(u32, u32), [u64; SUMS]> = BTreeMap::new();
        let mut halvings = 0;
        for number in 0..packets {
            let (window, link) = ((number * 48 / packets) as u32, number as u32 % LINKS);
            let draw = mix(number + 1);
            if number.is_multiple_of(packets / 3) {
                ledger.double_windows();
                halvings += 1;
            }
            let window = window >> halvings;
            ledger.grow(window as usize + 1);
            let (observed, stall_ps) = (draw & 1 > 0, draw % 7 / 6 * 1000);
            let wire = if draw >> 16 & 3 == 0 { 32 } else { 4096 };
            let busy_ps = links[0].cable.serialization_ps(wire);
            let slot = Transmission { start: 0, busy_ps, stall_ps };
            ledger.sent(window, link, slot, SentPacket { wire, observed, message: 0, input: 0 });
            let truth = expected.entry((window << halvings, link)).or_default();
            let row = [wire.into(), busy_ps, stall_ps, 1, observed.into(), 0, 0];
            truth.iter_mut().zip(row).for_each(|(sum, more)| *sum += more);
            if draw >> 8 & 3 == 0 {
                ledger.congested(window, link, observed);
                truth[CONGESTED] += 1;
                truth[CONGESTED + 1] += u64::from(observed);
            }
        }
        (ledger, expected)
    }

    fn rows(table: &TruthTable) -> Vec<[u64; 9]> {
        let columns = [
            &table.window,
            &table.link,
            &table.bytes,
            &table.busy_ps,
            &table.stall_ps,
            &table.packets,
            &table.observed_packets,
            &table.congested_packets,
            &table.observed_congested_packets,
        ];
        let columns = columns.map(|column| column.iter().collect::<Vec<_>>());
        (0..table.window.len()).map(|at| std::array::from_fn(|c| columns[c][at])).collect()
    }

    #[test]
    fn truth_rows_are_sorted_sums() {
        // Few packets; windows that are summed before the end; times beyond 32 bits.
        for (packets, gbps, threads) in [(300, 100.0, 1), (90_000, 400.0, 2), (600, 0.000_2, 3)] {
            let (even, odd) = (|link| 2 * link, |link| 2 * link + 1);
            let (first, expected) = send(packets, &links((0..LINKS).map(even), gbps));
            let (second, _) = send(packets, &links((0..LINKS).map(odd), gbps));
            let mut sums: BTreeMap<(u64, u64), [u64; SUMS]> = BTreeMap::new();
            for ((window, link), row) in expected {
                for link in [even(link), odd(link)] {
                    let sum = sums.entry((u64::from(window >> 3), link.into())).or_default();
                    sum.iter_mut().zip(row).for_each(|(sum, more)| *sum += more);
                }
            }
            let rows = rows(&TruthLog::finish(vec![first, second], threads));
            let expected = sums.into_iter().map(|((window, link), sum)| {
                std::array::from_fn(|c| {
                    [window, link].get(c).copied().unwrap_or_else(|| sum[c - 2])
                })
            });
            assert_eq!(rows, expected.collect::<Vec<[u64; 9]>>());
        }
    }

    #[test]
    fn packet_counters_may_overflow() {
        let mut ledger = TruthLog::new(&links(0..1, 100.0), 100);
        ledger.grow(2);
        let slot = Transmission { start: 0, busy_ps: 8000, stall_ps: 0 };
        for (window, packets) in [(0, 40_000), (1, 100_000)] {
            for number in 0..packets {
                let observed = number % 8 > 0;
                ledger.sent(
                    window,
                    0,
                    slot,
                    SentPacket { wire: 100, observed, message: 0, input: 0 },
                );
            }
        }
        ledger.double_windows();
        let expected = [0, 0, 14_000_000, 1_120_000_000, 0, 140_000, 122_500, 0, 0];
        assert_eq!(rows(&TruthLog::finish(vec![ledger], 1)), [expected]);
    }

    #[test]
    fn merging_windows_keeps_pages_short() {
        let mut ledger = TruthLog::new(&links(0..LINKS, 100.0), 4096);
        for window in 0..256 {
            ledger.grow(window as usize + 1);
            for link in 0..LINKS {
                let slot = Transmission { start: 0, busy_ps: 1, stall_ps: 1 };
                ledger.sent(
                    window,
                    link,
                    slot,
                    SentPacket { wire: 1, observed: true, message: 0, input: 0 },
                );
            }
        }
        (0..8).for_each(|_| ledger.double_windows());
        assert!(ledger.pages[0].len() <= 2 * MOST * LINKS as usize);
        let table = TruthLog::finish(vec![ledger], 1);
        assert!(table.packets.iter().eq([256; LINKS as usize]));
    }
}
