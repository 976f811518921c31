//! When sampled packets were at a link.
//!
//! Samples say only when a packet arrived at the receiver. A simulation also records how many packets
//! reached the queue of each link in each window, and how many of them met congestion. The samples of
//! a link are laid over these packets in the order in which they arrived. Every sum over windows stays
//! as it is.

/// Samples in columns, one row for each window, pair (label and job) and link.
#[derive(Debug, Clone, Copy)]
pub struct SampleRows<'a> {
    /// Link of each row.
    pub link: &'a [u32],
    /// Window of arrival.
    pub window: &'a [u32],
    /// Number of label and job.
    pub pair: &'a [u32],
    /// Columns that count packets of any kind, and packets that met congestion: samples, weight, …
    pub columns: [&'a [&'a [u64]]; 2],
}

/// The simulation's record of some links and windows; rows with equal link and window are added up.
#[derive(Debug, Clone, Copy)]
pub struct LinkRecord<'a> {
    /// Link of each row.
    pub link: &'a [u32],
    /// Its window.
    pub window: &'a [u32],
    /// Packets that left the link.
    pub left: &'a [u64],
    /// Packets that met congestion when they reached its queue.
    pub met: &'a [u64],
}

/// Samples by the window in which packets were at the link, in order of window, pair and link.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DatedSamples {
    /// Window of each row.
    pub window: Vec<u32>,
    /// Number of label and job.
    pub pair: Vec<u32>,
    /// Link.
    pub link: Vec<u32>,
    /// The columns of both kinds, one after the other.
    pub columns: Vec<Vec<u64>>,
}

/// Spreads the samples of rows evenly over their packets: the golden ratio.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Shares below this are rounding errors.
const SMALLEST_SHARE: f64 = 1e-9;

/// Puts samples into the windows in which their packets were at the link. Samples of links without a
/// record stay in the window of arrival. Links and windows are below the given numbers.
///
/// Takes O((n + r) log n) for n rows of samples and r of the record.
pub fn date_samples(
    rows: SampleRows<'_>,
    record: LinkRecord<'_>,
    (links, windows): (usize, usize),
) -> DatedSamples {
    let (of_link, recorded) = (by_link(rows.link, links), by_link(record.link, links));
    let mut layers = rows.columns.map(|columns| Layer::new(columns, rows, &of_link, links));
    let mut out = LinkTimeSums::new(rows.columns.map(<[_]>::len));
    let (mut reached, mut met) = (vec![0.0; windows], vec![0.0; windows]);
    // Rows are numbered in the order of the table, not by link, so this loop comes first.
    let mut recorded_any = vec![[false; 2]; links];
    for (row, &link) in record.link.iter().enumerate() {
        let any = &mut recorded_any[link as usize];
        // Packets that met congestion count when they reach the queue. Where none did, packets
        // count when they leave.
        any[0] |= record.left[row] > 0 || record.met[row] > 0;
        any[1] |= record.met[row] > 0;
    }
    let has_record =
        |link: usize, layer: usize| recorded_any[link][layer] && layers[layer].weight[link] > 0.0;
    let dated: Vec<[bool; 2]> =
        (0..links).map(|link| [0, 1].map(|at| has_record(link, at))).collect();
    for (number, layer) in layers.iter_mut().enumerate() {
        layer.number_rows(rows, |link| dated[link as usize][number]);
    }
    for (link, dated) in dated.into_iter().enumerate() {
        let mine = of_link.of(link);
        if mine.is_empty() {
            continue;
        }
        record_of(record, recorded.of(link), &mut reached, &mut met);
        for (number, when) in [&reached, &met].into_iter().enumerate() {
            let layer = &mut layers[number];
            if dated[number] {
                layer.lay(link, mine, rows, when);
            }
            layer.move_rows(mine, rows, dated[number], |window, pair, values| {
                out.add(number, (window, pair), values);
            });
        }
        out.finish(link as u32);
    }
    out.in_order()
}

/// Packets that reached the queue of a link in each window, and those that met congestion.
///
/// The record counts packets when they leave, and congested packets when they reach the queue.
/// Other packets hardly wait: they reach and leave the queue in one window. While congested packets
/// wait, the queue sends them first, because it is first in, first out.
fn record_of(record: LinkRecord<'_>, rows: &[u32], reached: &mut [f64], met: &mut [f64]) {
    reached.fill(0.0);
    met.fill(0.0);
    for &row in rows {
        let row = row as usize;
        reached[record.window[row] as usize] += record.left[row] as f64;
        met[record.window[row] as usize] += record.met[row] as f64;
    }
    let mut waiting = 0.0;
    for (reached, &met) in reached.iter_mut().zip(&*met) {
        waiting += met;
        let gone = f64::min(*reached, waiting);
        waiting -= gone;
        *reached = met + *reached - gone;
    }
}

/// Rows of each link, in their order.
struct RowsByLink {
    start: Vec<usize>,
    rows: Vec<u32>,
}

impl RowsByLink {
    fn of(&self, link: usize) -> &[u32] {
        &self.rows[self.start[link]..self.start[link + 1]]
    }
}

fn by_link(link: &[u32], links: usize) -> RowsByLink {
    let mut start = vec![0; links + 1];
    link.iter().for_each(|&link| start[link as usize + 1] += 1);
    for at in 0..links {
        start[at + 1] += start[at];
    }
    let (mut next, mut rows) = (start.clone(), vec![0; link.len()]);
    for (row, &link) in (0..).zip(link) {
        rows[next[link as usize]] = row;
        next[link as usize] += 1;
    }
    RowsByLink { start, rows }
}

/// A share of the samples of a link that arrived in a window, and the window in which these packets
/// were at the link.
#[derive(Clone, Copy)]
struct Piece {
    to: u32,
    low: f64,
    high: f64,
}

/// Samples of one kind: of all packets, or of those that met congestion.
struct Layer<'a> {
    columns: &'a [&'a [u64]],
    /// Weight of the samples of each link.
    weight: Vec<f64>,
    /// Number of each row among those that are dated.
    number: Vec<u32>,
    /// Sums over the links so far. Positions on a link are differences of such sums.
    arrived: f64,
    there: f64,
    upto: f64,
    /// End of the last part on the number line, over the links so far.
    end: f64,
    /// Pieces of the current link, and the pieces of each window of arrival.
    pieces: Vec<Piece>,
    of_window: Vec<(u32, u32, u32)>,
}

impl<'a> Layer<'a> {
    fn new(
        columns: &'a [&'a [u64]],
        rows: SampleRows<'_>,
        of_link: &RowsByLink,
        links: usize,
    ) -> Self {
        let weight = |link: usize| {
            let counted = of_link.of(link).iter().filter(|&&row| columns[0][row as usize] > 0);
            counted.map(|&row| columns[1][row as usize] as f64).sum()
        };
        Self {
            columns,
            weight: (0..links).map(weight).collect(),
            number: vec![0; rows.link.len()],
            arrived: 0.0,
            there: 0.0,
            upto: 0.0,
            end: 0.0,
            pieces: Vec::new(),
            of_window: Vec::new(),
        }
    }

    fn number_rows(&mut self, rows: SampleRows<'_>, dated: impl Fn(u32) -> bool) {
        let mut next = 0;
        for (row, &link) in rows.link.iter().enumerate() {
            self.number[row] = next;
            next += u32::from(dated(link) && self.columns[0][row] > 0);
        }
    }

    /// Lays the samples of `link` over the packets that were there in each window.
    ///
    /// On a number line, the link is the span from its number to the next. The span is cut where
    /// the samples of a window of arrival end, and where the packets of a window at the link end.
    fn lay(&mut self, link: usize, mine: &[u32], rows: SampleRows<'_>, when: &[f64]) {
        let mut amounts: Vec<(u32, f64)> = Vec::new();
        let counted = mine.iter().map(|&row| row as usize).filter(|&row| self.columns[0][row] > 0);
        for row in counted {
            amounts.push((rows.window[row], self.columns[1][row] as f64));
        }
        amounts.sort_by_key(|&(window, _)| window);
        amounts.dedup_by(|next, first| {
            let same = next.0 == first.0;
            first.1 += if same { next.1 } else { 0.0 };
            same
        });
        let there = (0..).zip(when).filter(|&(_, &packets)| packets > 0.0);
        let there: Vec<(u32, f64)> = there.map(|(window, &packets)| (window, packets)).collect();
        let arrivals = ends(link, &amounts, &mut self.arrived);
        let there_ends = ends(link, &there, &mut self.there);
        self.cut(link, (&amounts, &arrivals), (&there, &there_ends));
    }

    fn cut(
        &mut self,
        link: usize,
        (amounts, arrivals): (&[(u32, f64)], &[f64]),
        (there, there_ends): (&[(u32, f64)], &[f64]),
    ) {
        self.pieces.clear();
        self.of_window.clear();
        let mut low = self.end.max(link as f64);
        let (mut arrival, mut place, mut before) = (0, 0, self.upto);
        while arrival < arrivals.len() || place < there_ends.len() {
            let next_arrival = arrivals.get(arrival).copied().unwrap_or(f64::INFINITY);
            let next_there = there_ends.get(place).copied().unwrap_or(f64::INFINITY);
            let high = next_arrival.min(next_there);
            if high - low > SMALLEST_SHARE && arrival < amounts.len() && place < there.len() {
                let window = amounts[arrival].0;
                if self.of_window.last().is_none_or(|&(last, ..)| last != window) {
                    self.finish_window(before);
                    before = self.upto;
                    self.of_window.push((window, self.pieces.len() as u32, 0));
                }
                self.upto += high - low;
                // The sum so far, until the window is finished.
                self.pieces.push(Piece { to: there[place].0, low: 0.0, high: self.upto });
            }
            low = high;
            if next_arrival <= next_there {
                arrival += 1;
            } else {
                place += 1;
            }
        }
        self.finish_window(before);
        self.end = self.end.max(low);
    }

    /// Turns the sums of the pieces of the last window into shares of the whole.
    fn finish_window(&mut self, before: f64) {
        let Some((_, first, count)) = self.of_window.last_mut() else { return };
        let pieces = &mut self.pieces[*first as usize..];
        *count = pieces.len() as u32;
        let (last, mut low) = (pieces.len() - 1, 0.0);
        let total = pieces[last].high - before;
        for (number, piece) in pieces.iter_mut().enumerate() {
            piece.low = low;
            piece.high = if number == last { 1.0 } else { (piece.high - before) / total };
            low = piece.high;
        }
    }

    /// Hands over the rows of a link with their new windows.
    fn move_rows(
        &self,
        mine: &[u32],
        rows: SampleRows<'_>,
        dated: bool,
        mut add: impl FnMut(u32, u32, &[u64]),
    ) {
        let mut values = vec![0; self.columns.len()];
        for row in mine.iter().map(|&row| row as usize) {
            let (window, pair, count) = (rows.window[row], rows.pair[row], self.columns[0][row]);
            if !dated || count == 0 {
                values
                    .iter_mut()
                    .zip(self.columns)
                    .for_each(|(value, column)| *value = column[row]);
                if values.iter().any(|&value| value > 0) {
                    add(window, pair, &values);
                }
                continue;
            }
            // Rows of one link and window are there at the same time. Their samples are spread
            // evenly over the pieces, so that single samples do not all fall to one side.
            let (spread, n_samples) = ((f64::from(self.number[row]) * GOLDEN) % 1.0, count as f64);
            let at = self.of_window.binary_search_by_key(&window, |&(window, ..)| window);
            let Ok(at) = at else { continue };
            let (_, first, count) = self.of_window[at];
            for piece in &self.pieces[first as usize..(first + count) as usize] {
                let first = (piece.low * n_samples + spread).floor();
                let last = (piece.high * n_samples + spread).floor();
                if last > first {
                    for (value, column) in values.iter_mut().zip(self.columns) {
                        let each = column[row] as f64 / n_samples;
                        let upto = (each * last).round_ties_even();
                        *value = (upto - (each * first).round_ties_even()) as u64;
                    }
                    add(piece.to, pair, &values);
                }
            }
        }
    }
}

/// Where each part of a link ends on the number line; `so_far` is the sum over the links before.
fn ends(link: usize, parts: &[(u32, f64)], so_far: &mut f64) -> Vec<f64> {
    let before = *so_far;
    let total = parts.iter().fold(0.0, |sum, part| sum + part.1);
    let end = |part: &(u32, f64)| {
        *so_far += part.1;
        link as f64 + (*so_far - before) / total
    };
    parts.iter().map(end).collect()
}

/// Sums by window, pair and link.
struct LinkTimeSums {
    /// Number of columns of each kind.
    widths: [usize; 2],
    /// Window and pair of each row of the current link, and where its values begin in `values`.
    open: Vec<(u64, usize)>,
    values: Vec<u64>,
    /// Window and pair, link, and first value of each finished row.
    done: Vec<(u64, u32, usize)>,
    sums: Vec<u64>,
}

impl LinkTimeSums {
    fn new(widths: [usize; 2]) -> Self {
        let (open, values, done, sums) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { widths, open, values, done, sums }
    }

    fn add(&mut self, kind: usize, (window, pair): (u32, u32), values: &[u64]) {
        let start = self.values.len();
        self.open.push((u64::from(window) << 32 | u64::from(pair), start));
        self.values.resize(start + self.widths[0] + self.widths[1], 0);
        let first = start + kind * self.widths[0];
        self.values[first..first + values.len()].copy_from_slice(values);
    }

    /// Adds up what a link has.
    fn finish(&mut self, link: u32) {
        let width = self.widths[0] + self.widths[1];
        self.open.sort_unstable();
        for &(key, start) in &self.open {
            let values = &self.values[start..start + width];
            match self.done.last() {
                Some(&(last, of, sum)) if (last, of) == (key, link) => {
                    self.sums[sum..].iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                }
                _ => {
                    self.done.push((key, link, self.sums.len()));
                    self.sums.extend_from_slice(values);
                }
            }
        }
        self.open.clear();
        self.values.clear();
    }

    fn in_order(mut self) -> DatedSamples {
        // Links are in order already.
        self.done.sort_by_key(|&(key, ..)| key);
        let width = self.widths[0] + self.widths[1];
        let column = |number: usize| {
            self.done.iter().map(|&(.., start)| self.sums[start + number]).collect::<Vec<u64>>()
        };
        DatedSamples {
            window: self.done.iter().map(|&(key, ..)| (key >> 32) as u32).collect(),
            pair: self.done.iter().map(|&(key, ..)| key as u32).collect(),
            link: self.done.iter().map(|&(_, link, _)| link).collect(),
            columns: (0..width).map(column).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two windows of arrival, four samples each, of a link that sent all of its packets earlier.
    #[test]
    fn samples_move_to_the_windows_in_which_packets_were_there() {
        let four: &[u64] = &[4, 4];
        let weight: &[u64] = &[8, 8];
        let none: &[u64] = &[0, 0];
        let rows = SampleRows {
            link: &[1, 1],
            window: &[2, 3],
            pair: &[0, 0],
            columns: [&[four, weight], &[none, none]],
        };
        let record = LinkRecord { link: &[1, 1], window: &[0, 1], left: &[30, 10], met: &[0, 0] };
        let dated = date_samples(rows, record, (2, 4));
        assert_eq!((dated.window, dated.link), (vec![0, 1], vec![1, 1]));
        assert_eq!(dated.columns[..2], [vec![6, 2], vec![12, 4]]);
        let unknown = LinkRecord { link: &[0], window: &[0], left: &[9], met: &[0] };
        let stay = date_samples(rows, unknown, (2, 4));
        assert_eq!((stay.window, &stay.columns[0]), (vec![2, 3], &vec![4, 4]));
    }
}
