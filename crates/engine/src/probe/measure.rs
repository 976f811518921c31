//! Samples of packets and the truth about links, by time window.

use tailback_telemetry::{Key, Mark, Sample, SampleLog, Sums};

use crate::prefetch::prefetch;

use super::{Arrival, Hop, Probe, Sent, Slot};

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

impl Truth {
    fn add(&mut self, other: &Truth) {
        self.bytes += other.bytes;
        self.busy_ps += other.busy_ps;
        self.stall_ps += other.stall_ps;
        self.packets += other.packets;
        self.observed_packets += other.observed_packets;
        self.congested_packets += other.congested_packets;
        self.observed_congested_packets += other.observed_congested_packets;
    }
}

/// Shortest length of a window.
const FIRST_WINDOW_PS: u64 = 1 << 16;

/// Time windows of equal length, at least `target` and at most `2 × target` of them.
#[derive(Debug)]
struct Windows {
    target: u32,
    shift: u32,
}

/// Samples every packet of observed jobs and counts every link, per time window.
#[derive(Debug)]
pub struct Measure {
    windows: Windows,
    samples: SampleLog,
    truth: Vec<Vec<Truth>>,
    links: usize,
}

impl Measure {
    /// For `links` links, at least `windows` windows, and a run that cannot be shorter than
    /// `least_ps`: a good first guess saves merging windows over and over.
    pub fn new(links: usize, windows: u32, least_ps: u64) -> Self {
        let width = least_ps / (2 * u64::from(windows));
        let shift = width.max(FIRST_WINDOW_PS).next_power_of_two().ilog2();
        Self {
            windows: Windows { target: windows, shift },
            samples: SampleLog::default(),
            truth: Vec::new(),
            links,
        }
    }

    /// Length of a window.
    pub fn window_ps(&self) -> u64 {
        1 << self.windows.shift
    }

    /// All sums by window, label and link; and all truths by window and link, those with traffic.
    #[allow(clippy::type_complexity)]
    pub fn finish(self) -> (Vec<(Key, Sums)>, Vec<(u32, u32, Truth)>) {
        let mut rows = Vec::new();
        // A window's memory is given back before the next one's rows are made.
        for (window, links) in self.truth.into_iter().enumerate() {
            for (link, truth) in links.into_iter().enumerate() {
                if truth != Truth::default() {
                    rows.push((window as u32, link as u32, truth));
                }
            }
        }
        (self.samples.finish(), rows)
    }

    #[inline]
    fn window(&mut self, time: u64) -> usize {
        let window = time >> self.windows.shift;
        if window as usize >= self.truth.len() {
            return self.grow(time);
        }
        window as usize
    }

    #[cold]
    fn grow(&mut self, time: u64) -> usize {
        while time >> self.windows.shift >= 2 * u64::from(self.windows.target) {
            self.double();
        }
        let window = (time >> self.windows.shift) as usize;
        while self.truth.len() <= window {
            self.truth.push(vec![Truth::default(); self.links]);
        }
        window
    }
}

impl Measure {
    fn double(&mut self) {
        self.windows.shift += 1;
        self.samples.double_windows();
        let mut halved: Vec<Vec<Truth>> = Vec::with_capacity(self.truth.len().div_ceil(2));
        for (window, links) in std::mem::take(&mut self.truth).into_iter().enumerate() {
            match halved.get_mut(window / 2) {
                Some(first) => first.iter_mut().zip(&links).for_each(|(a, b)| a.add(b)),
                None => halved.push(links),
            }
        }
        self.truth = halved;
    }

    /// Counts a packet that met congestion.
    #[inline]
    pub(super) fn count(&mut self, now: u64, hop: &Hop, observed: bool) {
        if hop.congested {
            let window = self.window(now);
            let truth = &mut self.truth[window][hop.local as usize];
            truth.congested_packets += 1;
            truth.observed_congested_packets += u32::from(observed);
        }
    }

    /// Makes windows as long as `window_ps`, a power of two times theirs.
    pub fn lengthen(&mut self, window_ps: u64) {
        while self.window_ps() < window_ps {
            self.double();
        }
    }
}

impl Probe for Measure {
    const ON: bool = true;

    #[inline]
    fn fetch(&self, now: u64, link: u32) {
        if let Some(truth) = self.truth.get((now >> self.windows.shift) as usize) {
            prefetch(&truth[link as usize]);
        }
    }

    #[inline]
    fn hop(&mut self, now: u64, hop: Hop, observed: bool, mark: &mut Mark, random: u64) {
        mark.visit(hop.link, hop.congested, random);
        self.count(now, &hop, observed);
    }

    #[inline]
    fn sent(&mut self, _: u64, link: u32, slot: Slot, packet: Sent) {
        let Slot { start, busy_ps, stall_ps } = slot;
        let window = self.window(start);
        let truth = &mut self.truth[window][link as usize];
        truth.packets += 1;
        truth.observed_packets += u32::from(packet.observed);
        truth.bytes += u64::from(packet.wire);
        truth.busy_ps += busy_ps;
        truth.stall_ps += stall_ps;
    }

    #[inline]
    fn delivered(&mut self, time: u64, arrival: Arrival, mark: Mark) {
        if arrival.observed {
            let Arrival { label, bytes, .. } = arrival;
            let window = self.window(time) as u32;
            self.samples.push(Sample { window, label, bytes, mark });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_and_lose_nothing() {
        let mut measure = Measure::new(2, 4, 0);
        let packet = Sent { wire: 10, observed: true };
        let arrival =
            Arrival { packet: 0, label: 0, bytes: 10, src: 0, dst: 1, hops: 3, observed: true };
        for step in 0..1000u64 {
            let time = step * FIRST_WINDOW_PS;
            measure.sent(time, 1, Slot { start: time, busy_ps: 5, stall_ps: 1 }, packet);
            let mark = Mark { hop_link: 0, hop_count: 3, ..Mark::EMPTY };
            measure.delivered(time, arrival, mark);
        }
        let (samples, truth) = measure.finish();
        assert!((4..=8).contains(&truth.len()), "{}", truth.len());
        assert_eq!(truth.iter().map(|row| row.2.bytes).sum::<u64>(), 10_000);
        assert_eq!(truth.iter().map(|row| row.2.stall_ps).sum::<u64>(), 1000);
        assert_eq!(samples.iter().map(|(_, sums)| sums.hop_weight).sum::<u64>(), 3000);
        assert_eq!(samples.len(), truth.len());
    }
}
