//! What really crossed links, by window.
//!
//! A link serves in order, so the start of what it sends never goes back. One small account a link
//! holds the window it is in; when that is over for the link, a row goes to the end of the window's
//! page. So memory is written in sequence, and once; rows are put in order of links at the end. Stalls
//! and congestion, which most packets do not meet, have a book of their own.

use tailback_telemetry::{Log, table};

use crate::prefetch::prefetch;

use super::{Sent, Slot};

/// What really crossed a link in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Truth {
    /// Bytes sent.
    pub bytes: u64,
    /// Time sending.
    pub busy_ps: u64,
    /// Time with data but no credit.
    pub stall_ps: u64,
    /// Packets sent.
    pub packets: u32,
    /// Of them, of observed jobs.
    pub observed_packets: u32,
    /// Packets that met congestion.
    pub congested_packets: u32,
    /// Of them, of observed jobs.
    pub observed_congested_packets: u32,
}

table! {
    /// The table of truth: one entry a window and link with traffic, in this order; see [`Truth`].
    Truths: window, link, bytes, busy_ps, stall_ps, packets, observed_packets, congested_packets,
    observed_congested_packets,
}

impl Truths {
    fn extend(&mut self, window: usize, rows: &[(u32, Truth)]) {
        self.window.extend(rows.iter().map(|_| window as u64));
        self.link.extend(rows.iter().map(|&(link, _)| link.into()));
        let rows = || rows.iter().map(|(_, truth)| truth);
        self.bytes.extend(rows().map(|row| row.bytes));
        self.busy_ps.extend(rows().map(|row| row.busy_ps));
        self.stall_ps.extend(rows().map(|row| row.stall_ps));
        self.packets.extend(rows().map(|row| row.packets.into()));
        self.observed_packets.extend(rows().map(|row| row.observed_packets.into()));
        self.congested_packets.extend(rows().map(|row| row.congested_packets.into()));
        let observed = rows().map(|row| row.observed_congested_packets.into());
        self.observed_congested_packets.extend(observed);
    }
}

/// Sums of a link in a window, or in a part of it.
trait Sums: Copy + Default + PartialEq {
    /// These sums, or none.
    fn kept(self, keep: bool) -> Self;

    /// Adds other sums, if there is room for them.
    fn add(&mut self, other: &Self) -> bool;

    /// Counts it all.
    fn count(&self, truth: &mut Truth);
}

/// What a link sent. An account that is half full goes to its page.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Traffic {
    /// Packets, and above [`OBSERVED`] those of observed jobs.
    packets: u32,
    bytes: u32,
    busy_ps: u32,
}

/// Where in [`Traffic::packets`] packets of observed jobs are.
const OBSERVED: u32 = 16;

/// A number with half the bits of `packets`.
const HALF: u32 = (1 << OBSERVED) - 1;

impl Traffic {
    /// Whether it is half full.
    #[inline]
    fn full(&self) -> bool {
        (self.bytes | self.busy_ps | self.packets << OBSERVED) >> 31 > 0
    }
}

impl Sums for Traffic {
    #[inline]
    fn kept(self, keep: bool) -> Self {
        // In place of a branch nobody could guess.
        let bits = u32::from(keep).wrapping_neg();
        let Self { packets, bytes, busy_ps } = self;
        Self { packets: packets & bits, bytes: bytes & bits, busy_ps: busy_ps & bits }
    }

    fn add(&mut self, other: &Self) -> bool {
        let fits = !self.full() && !other.full();
        if fits {
            self.packets += other.packets;
            self.bytes += other.bytes;
            self.busy_ps += other.busy_ps;
        }
        fits
    }

    fn count(&self, truth: &mut Truth) {
        truth.packets += self.packets & HALF;
        truth.observed_packets += self.packets >> OBSERVED;
        truth.bytes += u64::from(self.bytes);
        truth.busy_ps += u64::from(self.busy_ps);
    }
}

/// What kept a link's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Trouble {
    stall_ps: u64,
    congested: u32,
    observed: u32,
}

impl Sums for Trouble {
    fn kept(self, keep: bool) -> Self {
        if keep { self } else { Self::default() }
    }

    fn add(&mut self, other: &Self) -> bool {
        self.stall_ps += other.stall_ps;
        self.congested += other.congested;
        self.observed += other.observed;
        true
    }

    fn count(&self, truth: &mut Truth) {
        truth.stall_ps += self.stall_ps;
        truth.congested_packets += self.congested;
        truth.observed_congested_packets += self.observed;
    }
}

/// Sums of a link's last window.
#[derive(Debug, Clone, Copy)]
struct Account<T> {
    window: u32,
    sums: T,
}

/// Sums of a link in the window of the page.
#[derive(Debug, Clone, Copy)]
struct Row<T> {
    link: u32,
    sums: T,
}

const _: () = assert!(size_of::<Account<Traffic>>() == 16 && size_of::<Row<Traffic>>() == 16);

/// An account a link, and a page a window for what is over.
#[derive(Debug)]
struct Book<T> {
    accounts: Vec<Account<T>>,
    /// What is over and on no page yet, and the links.
    tray: Vec<(u32, Account<T>)>,
    in_tray: usize,
    /// Of a link there may be several rows on a page.
    pages: Vec<Log<Row<T>>>,
}

/// Rows in a tray at most.
const TRAY: usize = 1 << 10;

/// A page with more rows than this for each link is summed where windows are merged.
const MOST: usize = 2;

impl<T: Sums> Book<T> {
    fn new(links: usize) -> Self {
        let account = Account { window: 0, sums: T::default() };
        let accounts = vec![account; links];
        Self { accounts, tray: vec![(0, account); TRAY], in_tray: 0, pages: Vec::new() }
    }

    /// The sums of a link in a window. Those of an earlier one go to the tray: they are put there in
    /// any case and stay if the window is over, without a branch nobody could guess.
    #[inline(always)]
    fn at(&mut self, window: u32, link: u32) -> &mut T {
        if self.in_tray == self.tray.len() {
            self.clear_tray();
        }
        let account = &mut self.accounts[link as usize];
        debug_assert!(account.window <= window, "time goes back at link {link}");
        let same = account.window == window;
        self.tray[self.in_tray] = (link, *account);
        self.in_tray += usize::from(!same);
        *account = Account { window, sums: account.sums.kept(same) };
        &mut account.sums
    }

    /// Puts what is in the tray on its pages.
    #[inline(never)]
    fn clear_tray(&mut self) {
        for &(link, Account { window, sums }) in &self.tray[..self.in_tray] {
            if sums != T::default() {
                self.pages[window as usize].push(Row { link, sums });
            }
        }
        self.in_tray = 0;
    }

    fn double_windows(&mut self) {
        self.clear_tray();
        self.accounts.iter_mut().for_each(|account| account.window /= 2);
        let mut pages = std::mem::take(&mut self.pages).into_iter();
        while let Some(mut page) = pages.next() {
            page.append(pages.next().unwrap_or_default());
            if page.len() > MOST * self.accounts.len() {
                page = summed(page);
            }
            self.pages.push(page);
        }
    }

    /// Ends all windows.
    fn close(&mut self) {
        self.clear_tray();
        self.tray = (0..).zip(std::mem::take(&mut self.accounts)).collect();
        self.in_tray = self.tray.len();
        self.clear_tray();
    }
}

/// A page with one row a link, but for what has no room there.
fn summed<T: Sums>(mut page: Log<Row<T>>) -> Log<Row<T>> {
    let mut rows = Vec::with_capacity(page.len());
    page.drain(|piece| rows.extend_from_slice(piece));
    rows.sort_unstable_by_key(|row| row.link);
    rows.dedup_by(|later, first| later.link == first.link && first.sums.add(&later.sums));
    rows.into_iter().for_each(|row| page.push(row));
    page
}

/// What crossed the links of a shard, which numbers them.
#[derive(Debug)]
pub(super) struct Ledger {
    traffic: Book<Traffic>,
    trouble: Book<Trouble>,
}

impl Ledger {
    /// For so many links.
    pub fn new(links: usize) -> Self {
        Self { traffic: Book::new(links), trouble: Book::new(links) }
    }

    /// Starts to fetch the account of a link.
    #[inline]
    pub fn fetch(&self, link: u32) {
        prefetch(&self.traffic.accounts, link);
    }

    /// A link sends a packet in a window.
    #[inline(always)]
    pub fn sent(&mut self, window: u32, link: u32, slot: Slot, packet: Sent) {
        let traffic = self.traffic.at(window, link);
        let busy_ps = u64::from(traffic.busy_ps) + slot.busy_ps;
        traffic.packets += 1 + (u32::from(packet.observed) << OBSERVED);
        traffic.bytes += packet.wire;
        traffic.busy_ps = busy_ps as u32;
        if traffic.full() || busy_ps > u32::MAX.into() {
            self.close(link, busy_ps);
        }
        if slot.stall_ps > 0 {
            self.trouble.at(window, link).stall_ps += slot.stall_ps;
        }
    }

    /// Puts a full account on its page: in several rows if a row has no room for the time.
    #[cold]
    fn close(&mut self, link: u32, mut busy_ps: u64) {
        let account = &mut self.traffic.accounts[link as usize];
        let page = &mut self.traffic.pages[account.window as usize];
        while busy_ps > u32::MAX.into() {
            page.push(Row { link, sums: Traffic { busy_ps: u32::MAX, ..Traffic::default() } });
            busy_ps -= u64::from(u32::MAX);
        }
        let sums = std::mem::take(&mut account.sums);
        page.push(Row { link, sums: Traffic { busy_ps: busy_ps as u32, ..sums } });
    }

    /// A packet met congestion in a window.
    #[inline]
    pub fn met(&mut self, window: u32, link: u32, observed: bool) {
        let trouble = self.trouble.at(window, link);
        trouble.congested += 1;
        trouble.observed += u32::from(observed);
    }

    /// Number of windows.
    #[inline]
    pub fn windows(&self) -> usize {
        self.traffic.pages.len()
    }

    /// Makes it so many.
    pub fn grow(&mut self, windows: usize) {
        self.traffic.pages.resize_with(windows, Log::default);
        self.trouble.pages.resize_with(windows, Log::default);
    }

    /// Merges windows in pairs.
    pub fn double_windows(&mut self) {
        self.traffic.double_windows();
        self.trouble.double_windows();
    }

    /// The table of what the shards' ledgers hold, each with the numbers of its links over the whole
    /// fabric, whose windows are of one length.
    pub fn finish(mut ledgers: Vec<(Self, Vec<u32>)>) -> Truths {
        for (ledger, _) in &mut ledgers {
            ledger.traffic.close();
            ledger.trouble.close();
        }
        let rows = ledgers.iter().flat_map(|(ledger, _)| &ledger.traffic.pages).map(Log::len).sum();
        let links = ledgers.iter().flat_map(|(_, global)| global).max();
        let mut tally = Tally::new(links.map_or(0, |&link| link as usize + 1));
        let mut table = Truths::with_capacity(rows);
        let windows = ledgers.iter().map(|(ledger, _)| ledger.windows()).max().unwrap_or(0);
        for window in 0..windows {
            for (ledger, global) in &mut ledgers {
                tally.count(ledger.traffic.pages.get_mut(window), global);
                tally.count(ledger.trouble.pages.get_mut(window), global);
            }
            table.extend(window, tally.take());
        }
        table
    }
}

/// Adds up rows of a window and puts them in order of links. Its memory is used for every window.
struct Tally {
    sums: Vec<(u32, Truth)>,
    ordered: Vec<(u32, Truth)>,
    /// Where in `sums` a link is.
    place: Vec<u32>,
    /// A bit for each link that is there.
    there: Vec<u64>,
}

impl Tally {
    /// For so many links.
    fn new(links: usize) -> Self {
        let (place, there) = (vec![0; links], vec![0; links.div_ceil(64)]);
        Self { sums: Vec::new(), ordered: Vec::new(), place, there }
    }

    /// Counts what is on a page, if there is one, whose links have the numbers `global`.
    fn count<T: Sums>(&mut self, page: Option<&mut Log<Row<T>>>, global: &[u32]) {
        let Some(page) = page else { return };
        page.drain(|rows| {
            for row in rows {
                row.sums.count(self.of(global[row.link as usize]));
            }
        });
    }

    #[inline]
    fn of(&mut self, link: u32) -> &mut Truth {
        let (place, word) = (&mut self.place[link as usize], &mut self.there[link as usize / 64]);
        let bit = 1 << (link % 64);
        if *word & bit == 0 {
            *word |= bit;
            *place = self.sums.len() as u32;
            self.sums.push((link, Truth::default()));
        }
        &mut self.sums[*place as usize].1
    }

    /// Takes out everything, in order.
    fn take(&mut self) -> &[(u32, Truth)] {
        self.ordered.clear();
        for (first, word) in (0..).step_by(64).zip(&mut self.there) {
            while *word != 0 {
                let link = first + word.trailing_zeros();
                *word &= *word - 1;
                self.ordered.push(self.sums[self.place[link as usize] as usize]);
            }
        }
        self.sums.clear();
        &self.ordered
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use tailback_telemetry::scheme::mix;

    const LINKS: u32 = 5;

    /// Sends so many packets by `LINKS` links, half of them observed, each link in order of time, and
    /// merges windows three times; returns the ledger and what it should say.
    fn send(packets: u64, busy_ps: u64) -> (Ledger, BTreeMap<(u32, u32), Truth>) {
        let mut ledger = Ledger::new(LINKS as usize);
        let mut expected: BTreeMap<(u32, u32), Truth> = BTreeMap::new();
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
            let slot = Slot { start: 0, busy_ps, stall_ps };
            ledger.sent(window, link, slot, Sent { wire: 4096, observed, input: 0 });
            let truth = expected.entry((window << halvings, link)).or_default();
            truth.packets += 1;
            truth.observed_packets += u32::from(observed);
            truth.bytes += 4096;
            truth.busy_ps += busy_ps;
            truth.stall_ps += stall_ps;
            if draw >> 8 & 3 == 0 {
                ledger.met(window, link, observed);
                truth.congested_packets += 1;
                truth.observed_congested_packets += u32::from(observed);
            }
        }
        (ledger, expected)
    }

    fn rows(table: &Truths) -> Vec<[u64; 9]> {
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
    fn tables_are_the_sums_in_order_of_window_and_link() {
        // Few packets; more than an account has bits for; times that no row has room for.
        for (packets, busy_ps) in [(3000, 327_680), (900_000, 1), (600, 5 << 32)] {
            let (first, expected) = send(packets, busy_ps);
            let (second, _) = send(packets, busy_ps);
            let (even, odd) = (|link| 2 * link, |link| 2 * link + 1);
            let parts = vec![
                (first, (0..LINKS).map(even).collect()),
                (second, (0..LINKS).map(odd).collect()),
            ];
            let mut sums: BTreeMap<(u64, u64), [u64; 7]> = BTreeMap::new();
            for ((window, link), t) in expected {
                for link in [even(link), odd(link)] {
                    let sum = sums.entry((u64::from(window >> 3), link.into())).or_default();
                    let row = [t.bytes, t.busy_ps, t.stall_ps];
                    let counts = [
                        t.packets,
                        t.observed_packets,
                        t.congested_packets,
                        t.observed_congested_packets,
                    ];
                    let row = row.into_iter().chain(counts.map(u64::from));
                    sum.iter_mut().zip(row).for_each(|(sum, more)| *sum += more);
                }
            }
            let rows = rows(&Ledger::finish(parts));
            let expected = sums.into_iter().map(|((window, link), sum)| {
                std::array::from_fn(|c| {
                    [window, link].get(c).copied().unwrap_or_else(|| sum[c - 2])
                })
            });
            assert_eq!(rows, expected.collect::<Vec<[u64; 9]>>());
        }
    }

    #[test]
    fn merging_windows_keeps_pages_short() {
        let mut ledger = Ledger::new(LINKS as usize);
        for window in 0..256 {
            ledger.grow(window as usize + 1);
            for link in 0..LINKS {
                let slot = Slot { start: 0, busy_ps: 1, stall_ps: 1 };
                ledger.sent(window, link, slot, Sent { wire: 1, observed: true, input: 0 });
            }
        }
        (0..8).for_each(|_| ledger.double_windows());
        let most = (MOST + 1) * LINKS as usize;
        assert!(ledger.traffic.pages[0].len() <= most && ledger.trouble.pages[0].len() <= most);
        let table = Ledger::finish(vec![(ledger, (0..LINKS).collect())]);
        assert!(table.packets.iter().eq([256; LINKS as usize]));
    }
}
