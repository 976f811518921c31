//! What really crossed links, by window.
//!
//! Most packets are of one size: in each window a number a link counts them. All else goes to the end of
//! a log of the window, which the simulator's loop does not read. A window is added up and put in order
//! of links at the end, its log also when that takes more memory than what becomes of it.

use tailback_telemetry::{Log, in_shares, table};

use super::{Sent, Slot};
use crate::link::{Link, Wire};

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

impl Truth {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.busy_ps += other.busy_ps;
        self.stall_ps += other.stall_ps;
        self.packets += other.packets;
        self.observed_packets += other.observed_packets;
        self.congested_packets += other.congested_packets;
        self.observed_congested_packets += other.observed_congested_packets;
    }
}

impl Truths {
    fn extend(&mut self, window: u32, links: &[u32], truths: &[Truth]) {
        self.window.extend(links.iter().map(|_| window.into()));
        self.link.extend(links.iter().map(|&link| link.into()));
        let rows = || links.iter().map(|&link| &truths[link as usize]);
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

/// What happened at a link.
#[derive(Debug, Clone, Copy)]
struct Noted<T> {
    link: u32,
    what: T,
}

/// A packet of another size than most was sent: its bytes, and in the highest bit whether it is of an observed job.
type Sending = Noted<u32>;

/// Of a [`Sending`].
const OBSERVED: u32 = 31;

/// What happened in a window.
#[derive(Debug, Default)]
struct Page {
    /// For each link how many full packets it sent, of jobs that are not observed and of those that
    /// are; of no link if there was none yet.
    full: [Vec<u16>; 2],
    /// The others, since they were last added up.
    sent: Log<Sending>,
    /// Packets that met congestion: whether they are of observed jobs.
    met: Log<Noted<bool>>,
    /// Packets that had waited at an idle link: for how long.
    stalled: Log<Noted<u64>>,
    /// Sums of the logs until then, in order; and what there was no room for in `full`.
    rows: Vec<Noted<Truth>>,
}

impl Page {
    /// Entries of its logs.
    fn len(&self) -> usize {
        self.sent.len() + self.met.len() + self.stalled.len() + self.rows.len()
    }

    /// The page of the window that it is joined with.
    fn join(&mut self, mut other: Self, links: &[Numbered]) {
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
                self.rows.extend(over.map(|(link, _)| too_many_of(link, observed, links)));
            }
        }
        self.sent.append(other.sent);
        self.met.append(other.met);
        self.stalled.append(other.stalled);
        self.rows.append(&mut other.rows);
    }
}

/// More full packets of a link than [`Page::full`] has room for.
#[cold]
fn too_many_of(link: u32, observed: bool, links: &[Numbered]) -> Noted<Truth> {
    Noted { link, what: links[link as usize].full(1 << u16::BITS, observed) }
}

/// A link of the shard.
#[derive(Debug)]
struct Numbered {
    /// Its number over the whole fabric.
    global: u32,
    /// Bytes of a full packet.
    full: u32,
    wire: Wire,
}

impl Numbered {
    /// So many full packets.
    #[inline]
    fn full(&self, packets: u32, observed: bool) -> Truth {
        Truth {
            packets,
            observed_packets: if observed { packets } else { 0 },
            bytes: u64::from(packets) * u64::from(self.full),
            busy_ps: u64::from(packets) * self.wire.serialization(self.full),
            ..Truth::default()
        }
    }
}

/// What crossed the links of a shard, which numbers them.
#[derive(Debug)]
pub(super) struct Ledger {
    links: Vec<Numbered>,
    /// Bytes of a full packet.
    full: u32,
    pages: Vec<Page>,
    /// For logs that are added up before the end.
    tally: Tally,
}

/// A log is added up when it has so many entries for each link: they take as much memory as a row.
const MOST: usize = 4;

impl Ledger {
    /// For these links, where most packets are of `full` bytes.
    pub fn new(links: &[Link], full: u32) -> Self {
        let numbered = |&Link { global, wire, .. }: &Link| Numbered { global, full, wire };
        let links = links.iter().map(numbered).collect();
        Self { links, full, pages: Vec::new(), tally: Tally::default() }
    }

    /// A link sends a packet in a window.
    #[inline(always)]
    pub fn sent(&mut self, window: u32, link: u32, slot: Slot, packet: Sent) {
        let Sent { wire, observed, .. } = packet;
        let page = &mut self.pages[window as usize];
        if wire == self.full {
            let full = &mut page.full[usize::from(observed)];
            if full.is_empty() {
                *full = vec![0; self.links.len()];
            }
            let packets = &mut full[link as usize];
            *packets = packets.wrapping_add(1);
            if *packets == 0 {
                page.rows.push(too_many_of(link, observed, &self.links));
            }
        } else {
            page.sent.push(Noted { link, what: wire | u32::from(observed) << OBSERVED });
        }
        if slot.stall_ps > 0 {
            page.stalled.push(Noted { link, what: slot.stall_ps });
        }
    }

    /// A packet met congestion in a window.
    #[inline]
    pub fn met(&mut self, window: u32, link: u32, observed: bool) {
        self.pages[window as usize].met.push(Noted { link, what: observed });
    }

    /// Number of windows.
    #[inline]
    pub fn windows(&self) -> usize {
        self.pages.len()
    }

    /// Makes it so many.
    pub fn grow(&mut self, windows: usize) {
        self.pages.resize_with(windows, Page::default);
    }

    /// Counts a window if it has grown long.
    #[inline]
    pub fn look_at(&mut self, window: usize) {
        if self.pages.get(window).is_some_and(|page| page.len() > MOST * self.links.len()) {
            self.count(window);
        }
    }

    #[cold]
    fn count(&mut self, window: usize) {
        let page = &mut self.pages[window];
        self.tally.make_room(self.links.len());
        self.tally.count_logs(page, &self.links, |local, _| local);
        let (links, truths) = self.tally.in_order();
        page.rows = links.iter().map(|&link| Noted { link, what: truths[link as usize] }).collect();
        self.tally.clear();
    }

    /// Merges windows in pairs.
    pub fn double_windows(&mut self) {
        let mut pages = std::mem::take(&mut self.pages).into_iter();
        while let Some(mut page) = pages.next() {
            page.join(pages.next().unwrap_or_default(), &self.links);
            self.pages.push(page);
            self.look_at(self.pages.len() - 1);
        }
    }

    /// The table of what the shards' ledgers hold, whose windows are of one length. Uses so many threads.
    pub fn finish(ledgers: Vec<Self>, threads: usize) -> Truths {
        let windows = ledgers.iter().map(Self::windows).max().unwrap_or(0);
        let all = ledgers.iter().map(|ledger| ledger.links.len()).sum();
        let (mut pages, mut links): (Vec<Vec<Page>>, Vec<_>) = (Vec::new(), Vec::new());
        pages.resize_with(windows, Vec::new);
        for mut ledger in ledgers {
            ledger.grow(windows);
            pages.iter_mut().zip(ledger.pages).for_each(|(pages, page)| pages.push(page));
            links.push(ledger.links);
        }
        let weight = |pages: &Vec<Page>| all + pages.iter().map(Page::len).sum::<usize>();
        let tables = in_shares(pages, threads, weight, |first, share| {
            let mut table = Truths::with_capacity(share.len() * all);
            let mut tally = Tally::default();
            tally.make_room(all);
            for (window, mut pages) in (first as u32..).zip(share) {
                for (page, links) in pages.iter_mut().zip(&links) {
                    tally.count_full(page, links);
                    tally.count_logs(page, links, |_, link| link.global);
                }
                let (links, truths) = tally.in_order();
                table.extend(window, links, truths);
                tally.clear();
            }
            table
        });
        Truths::default().append(tables.into_iter())
    }
}

/// Adds up what happened in a window and puts it in order of links. Its memory is used for every window.
#[derive(Debug, Default)]
struct Tally {
    truths: Vec<Truth>,
    /// A bit for each link that has any.
    there: Vec<u64>,
    /// These links, in order.
    links: Vec<u32>,
}

impl Tally {
    /// For so many links.
    fn make_room(&mut self, links: usize) {
        self.truths.resize(links, Truth::default());
        self.there.resize(links.div_ceil(64), 0);
    }

    #[inline]
    fn of(&mut self, link: u32) -> &mut Truth {
        self.there[link as usize / 64] |= 1 << (link % 64);
        &mut self.truths[link as usize]
    }

    /// Counts full packets on a page of these `links`.
    fn count_full(&mut self, page: &Page, links: &[Numbered]) {
        for (observed, full) in [false, true].into_iter().zip(&page.full) {
            for (link, &packets) in links.iter().zip(full).filter(|&(_, &packets)| packets > 0) {
                self.of(link.global).add(&link.full(packets.into(), observed));
            }
        }
    }

    /// Counts what is logged on a page, whose `links` have the numbers that `number` says; the logs are
    /// empty then.
    fn count_logs(
        &mut self,
        page: &mut Page,
        links: &[Numbered],
        number: impl Fn(u32, &Numbered) -> u32,
    ) {
        page.sent.drain(|sent| {
            for &Noted { link, what } in sent {
                let (wire, from) = (what & !(1 << OBSERVED), &links[link as usize]);
                let truth = self.of(number(link, from));
                truth.packets += 1;
                truth.observed_packets += what >> OBSERVED;
                truth.bytes += u64::from(wire);
                truth.busy_ps += from.wire.serialization(wire);
            }
        });
        page.met.drain(|met| {
            for &Noted { link, what } in met {
                let truth = self.of(number(link, &links[link as usize]));
                truth.congested_packets += 1;
                truth.observed_congested_packets += u32::from(what);
            }
        });
        page.stalled.drain(|stalled| {
            for &Noted { link, what } in stalled {
                self.of(number(link, &links[link as usize])).stall_ps += what;
            }
        });
        for Noted { link, what } in page.rows.drain(..) {
            self.of(number(link, &links[link as usize])).add(&what);
        }
    }

    /// Links that have any, in order, and what every link has.
    fn in_order(&mut self) -> (&[u32], &[Truth]) {
        self.links.clear();
        for (first, word) in (0..).step_by(64).zip(&mut self.there) {
            while *word != 0 {
                self.links.push(first + word.trailing_zeros());
                *word &= *word - 1;
            }
        }
        (&self.links, &self.truths)
    }

    /// Forgets what is in order.
    fn clear(&mut self) {
        self.links.iter().for_each(|&link| self.truths[link as usize] = Truth::default());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use tailback_telemetry::scheme::mix;

    const LINKS: u32 = 5;

    /// Links with these numbers, of so many gigabits per second.
    pub fn links(numbers: impl Iterator<Item = u32>, gbps: f64) -> Vec<Link> {
        numbers.map(|number| Link::lone(number, Wire::new(gbps, 0))).collect()
    }

    /// Sends so many packets of two sizes by `LINKS` links, half of them observed, and merges windows
    /// three times; returns the ledger and what it should say.
    fn send(packets: u64, links: &[Link]) -> (Ledger, BTreeMap<(u32, u32), Truth>) {
        let mut ledger = Ledger::new(links, 4096);
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
            let wire = if draw >> 16 & 3 == 0 { 32 } else { 4096 };
            let busy_ps = links[0].wire.serialization(wire);
            let slot = Slot { start: 0, busy_ps, stall_ps };
            ledger.sent(window, link, slot, Sent { wire, observed, input: 0 });
            let truth = expected.entry((window << halvings, link)).or_default();
            truth.packets += 1;
            truth.observed_packets += u32::from(observed);
            truth.bytes += u64::from(wire);
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
        // Few packets; windows that are counted before the end; times beyond 32 bits.
        for (packets, gbps, threads) in [(300, 100.0, 1), (90_000, 400.0, 2), (600, 0.000_2, 3)] {
            let (even, odd) = (|link| 2 * link, |link| 2 * link + 1);
            let (first, expected) = send(packets, &links((0..LINKS).map(even), gbps));
            let (second, _) = send(packets, &links((0..LINKS).map(odd), gbps));
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
            let rows = rows(&Ledger::finish(vec![first, second], threads));
            let expected = sums.into_iter().map(|((window, link), sum)| {
                std::array::from_fn(|c| {
                    [window, link].get(c).copied().unwrap_or_else(|| sum[c - 2])
                })
            });
            assert_eq!(rows, expected.collect::<Vec<[u64; 9]>>());
        }
    }

    #[test]
    fn a_link_may_send_more_packets_than_a_number_has_room_for() {
        let mut ledger = Ledger::new(&links(0..1, 100.0), 100);
        ledger.grow(2);
        let slot = Slot { start: 0, busy_ps: 8000, stall_ps: 0 };
        for (window, packets) in [(0, 40_000), (1, 100_000)] {
            for number in 0..packets {
                let observed = number % 8 > 0;
                ledger.sent(window, 0, slot, Sent { wire: 100, observed, input: 0 });
            }
        }
        ledger.double_windows();
        let expected = [0, 0, 14_000_000, 1_120_000_000, 0, 140_000, 122_500, 0, 0];
        assert_eq!(rows(&Ledger::finish(vec![ledger], 1)), [expected]);
    }

    #[test]
    fn merging_windows_keeps_pages_short() {
        let mut ledger = Ledger::new(&links(0..LINKS, 100.0), 4096);
        for window in 0..256 {
            ledger.grow(window as usize + 1);
            for link in 0..LINKS {
                let slot = Slot { start: 0, busy_ps: 1, stall_ps: 1 };
                ledger.sent(window, link, slot, Sent { wire: 1, observed: true, input: 0 });
            }
        }
        (0..8).for_each(|_| ledger.double_windows());
        assert!(ledger.pages[0].len() <= 2 * MOST * LINKS as usize);
        let table = Ledger::finish(vec![ledger], 1);
        assert!(table.packets.iter().eq([256; LINKS as usize]));
    }
}
