//! Probes see packets and decide nothing.
//!
//! The engine is generic over [`Probe`]; with [`Silent`] every hook compiles to nothing.

use tailback_telemetry::{Key, Mark, Sample, SampleLog, Sums};

/// Hooks into the life of a packet. They must not change anything the engine decides by.
pub trait Probe {
    /// Whether the engine should work out what the hooks are told.
    const ON: bool;
    /// A packet goes through `link`, which was or was not congested for it.
    fn hop(
        &mut self,
        now: u64,
        link: u32,
        congested: bool,
        observed: bool,
        mark: &mut Mark,
        random: u64,
    );
    /// A link took on a packet: it sends from `start` for `busy_ps`, after `stall_ps` without credit.
    fn sent(&mut self, link: u32, start: u64, busy_ps: u64, stall_ps: u64, packet: Sent);
    /// A packet with `bytes` of a message labelled `label` arrived.
    fn delivered(&mut self, now: u64, label: u32, bytes: u32, observed: bool, mark: Mark);
}

/// What a link sends, as far as probes need to know.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Bytes on the wire.
    pub wire: u32,
    /// Of an observed job.
    pub observed: bool,
}

/// Measures nothing and costs nothing.
#[derive(Debug, Default)]
pub struct Silent;

impl Probe for Silent {
    const ON: bool = false;
    #[inline]
    fn hop(&mut self, _: u64, _: u32, _: bool, _: bool, _: &mut Mark, _: u64) {}
    #[inline]
    fn sent(&mut self, _: u32, _: u64, _: u64, _: u64, _: Sent) {}
    #[inline]
    fn delivered(&mut self, _: u64, _: u32, _: u32, _: bool, _: Mark) {}
}

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
        let shift = width.max(FIRST_WINDOW_PS).ilog2();
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
        for (window, links) in self.truth.iter().enumerate() {
            for (link, truth) in links.iter().enumerate() {
                if *truth != Truth::default() {
                    rows.push((window as u32, link as u32, *truth));
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
        let window = (time >> self.windows.shift) as usize;
        while self.truth.len() <= window {
            self.truth.push(vec![Truth::default(); self.links]);
        }
        window
    }
}

impl Probe for Measure {
    const ON: bool = true;

    #[inline]
    fn hop(
        &mut self,
        now: u64,
        link: u32,
        congested: bool,
        observed: bool,
        mark: &mut Mark,
        random: u64,
    ) {
        mark.visit(link, congested, random);
        if congested {
            let window = self.window(now);
            let truth = &mut self.truth[window][link as usize];
            truth.congested_packets += 1;
            truth.observed_congested_packets += u32::from(observed);
        }
    }

    #[inline]
    fn sent(&mut self, link: u32, start: u64, busy_ps: u64, stall_ps: u64, packet: Sent) {
        let window = self.window(start);
        let truth = &mut self.truth[window][link as usize];
        truth.packets += 1;
        truth.observed_packets += u32::from(packet.observed);
        truth.bytes += u64::from(packet.wire);
        truth.busy_ps += busy_ps;
        truth.stall_ps += stall_ps;
    }

    #[inline]
    fn delivered(&mut self, now: u64, label: u32, bytes: u32, observed: bool, mark: Mark) {
        if observed {
            let window = self.window(now) as u32;
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
        for step in 0..1000u64 {
            measure.sent(1, step * FIRST_WINDOW_PS, 5, 1, packet);
            let mark = Mark { hop_link: 0, hop_count: 3, ..Mark::EMPTY };
            measure.delivered(step * FIRST_WINDOW_PS, 0, 10, true, mark);
        }
        let (samples, truth) = measure.finish();
        assert!((4..=8).contains(&truth.len()), "{}", truth.len());
        assert_eq!(truth.iter().map(|row| row.2.bytes).sum::<u64>(), 10_000);
        assert_eq!(truth.iter().map(|row| row.2.stall_ps).sum::<u64>(), 1000);
        assert_eq!(samples.iter().map(|(_, sums)| sums.hop_weight).sum::<u64>(), 3000);
        assert_eq!(samples.len(), truth.len());
    }
}
