//! Samples of packets and ground truth of links, per time window.

use tailback_telemetry::{Mark, Sample, SampleLog, Samples};

use super::headers::{Deployment, takes};
use super::truth::TruthLog;
use super::{DeliveredPacket, Hop, Probe, SentPacket, Transmission, TruthTable};
use crate::Settings;
use crate::network::link::Link;

/// Shortest length of a window.
const FIRST_WINDOW_PS: u64 = 1 << 16;

/// Time windows of equal length, at least `target` and at most `2 × target` of them.
#[derive(Debug)]
struct Windows {
    target: u32,
    shift: u32,
}

/// Samples packets of observed jobs, all or one in n, and counts every link, per time window.
#[derive(Debug)]
pub struct WindowProbe {
    windows: Windows,
    samples: SampleLog,
    truth: TruthLog,
    /// The window at the present time.
    present: usize,
    one_in: u64,
    deployment: Deployment,
}

impl WindowProbe {
    /// For a shard with these links and a run that lasts at least `minimum_duration_ps`: a good
    /// first guess avoids merging windows repeatedly.
    pub(crate) fn new(links: &[Link], settings: &Settings, minimum_duration_ps: u64) -> Self {
        let Settings { windows, packet_bytes, .. } = *settings;
        let width = minimum_duration_ps / (2 * u64::from(windows));
        let shift = width.max(FIRST_WINDOW_PS).next_power_of_two().ilog2();
        Self {
            windows: Windows { target: windows, shift },
            samples: SampleLog::new(links.len(), packet_bytes),
            truth: TruthLog::new(links, settings.wire_bytes(packet_bytes)),
            present: 0,
            one_in: settings.one_in,
            deployment: Deployment::new(settings),
        }
    }

    /// Which switches put samples into packets.
    #[inline]
    pub(crate) fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Length of a window.
    pub fn window_ps(&self) -> u64 {
        1 << self.windows.shift
    }

    /// Merges the probes of all shards of a run that ended at `end`: length of a window,
    /// samples by window, label and link, and ground truth by window and link. Uses `threads`
    /// threads.
    pub(crate) fn join(
        mut parts: Vec<WindowProbe>,
        end: u64,
        threads: usize,
    ) -> (u64, Samples, TruthTable) {
        let mut window_ps = parts.iter().map(WindowProbe::window_ps).max().unwrap_or(0);
        // Ranks may have communicated within hosts, or computed, long after the last
        // packet.
        let most = parts.first().map_or(0, |measure| 2 * u64::from(measure.windows.target));
        while window_ps > 0 && end / window_ps >= most {
            window_ps *= 2;
        }
        parts.iter_mut().for_each(|measure| measure.lengthen(window_ps));
        let (logs, ledgers) = parts.into_iter().map(|part| (part.samples, part.truth)).unzip();
        (window_ps, SampleLog::finish(logs, threads), TruthLog::finish(ledgers, threads))
    }

    #[inline]
    fn window(&mut self, time: u64) -> u32 {
        let window = time >> self.windows.shift;
        if window as usize >= self.truth.windows() {
            return self.grow(time);
        }
        window as u32
    }

    #[cold]
    fn grow(&mut self, time: u64) -> u32 {
        while time >> self.windows.shift >= 2 * u64::from(self.windows.target) {
            self.double();
        }
        let window = (time >> self.windows.shift) as u32;
        self.truth.grow(window as usize + 1);
        window
    }

    fn double(&mut self) {
        self.windows.shift += 1;
        self.samples.double_windows();
        self.truth.double_windows();
    }

    /// Counts a packet that met congestion.
    #[inline]
    pub(super) fn count(&mut self, now: u64, hop: &Hop, observed: bool) {
        if hop.congested {
            self.count_congested(now, hop.local, observed);
        }
    }

    #[inline(never)]
    fn count_congested(&mut self, now: u64, link: u32, observed: bool) {
        let window = self.window(now);
        self.truth.congested(window, link, observed);
    }

    /// Counts a packet that takes more than a counter.
    #[inline(never)]
    fn log_sent(&mut self, link: u32, slot: Transmission, packet: SentPacket) {
        let window = self.window(slot.start);
        self.truth.sent(window, link, slot, packet);
    }

    /// Lengthens windows to `window_ps`, a power of two times theirs.
    fn lengthen(&mut self, window_ps: u64) {
        while self.window_ps() < window_ps {
            self.double();
        }
    }
}

impl Probe for WindowProbe {
    const ON: bool = true;

    #[inline]
    fn prefetch(&self, link: u32, _: u32) {
        self.truth.prefetch(self.present, link);
    }

    #[inline]
    fn begin_window(&mut self, now: u64) {
        self.present = (now >> self.windows.shift) as usize;
        self.truth.compact_if_long(self.present);
    }

    #[inline]
    fn hop(&mut self, now: u64, hop: Hop, observed: bool, mark: &mut Mark, random: u64) {
        if self.deployment.stamps(hop.link) {
            mark.visit(hop.link, hop.congested, random);
        }
        self.count(now, &hop, observed);
    }

    #[inline(always)]
    fn sent(&mut self, _: u64, link: u32, slot: Transmission, packet: SentPacket) {
        let window = slot.start >> self.windows.shift;
        if slot.stall_ps > 0 || !self.truth.count_full(window, link, packet) {
            self.log_sent(link, slot, packet);
        }
    }

    #[inline(always)]
    fn delivered(&mut self, time: u64, arrival: DeliveredPacket, mark: Mark) {
        let DeliveredPacket { packet, .. } = arrival;
        if arrival.observed && takes(packet, self.one_in) && self.deployment.arrives(packet) {
            let DeliveredPacket { label, bytes, .. } = arrival;
            let window = self.window(time);
            self.samples.push(Sample { window, label, bytes, mark });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::truth::tests::links;

    #[test]
    fn windows_double_and_lose_nothing() {
        let mut measure = WindowProbe::new(
            &links(0..2, 100.0),
            &Settings { windows: 4, ..Settings::default() },
            0,
        );
        let packet = SentPacket { wire: 10, observed: true, message: 0, input: 0 };
        let arrival = DeliveredPacket {
            packet: 0,
            message: 0,
            label: 0,
            bytes: 10,
            src: 0,
            dst: 1,
            hops: 3,
            observed: true,
        };
        for step in 0..1000u64 {
            let time = step * FIRST_WINDOW_PS;
            measure.sent(time, 1, Transmission { start: time, busy_ps: 5, stall_ps: 1 }, packet);
            let mark = Mark { hop_link: 0, hop_count: 3, ..Mark::EMPTY };
            measure.delivered(time, arrival, mark);
        }
        let (_, samples, truth) = WindowProbe::join(vec![measure], 999 * FIRST_WINDOW_PS, 1);
        assert!((4..=8).contains(&truth.link.len()), "{}", truth.link.len());
        assert_eq!(truth.bytes.iter().sum::<u64>(), 10_000);
        assert_eq!(truth.stall_ps.iter().sum::<u64>(), 1000);
        assert_eq!(samples.hop_weight.iter().sum::<u64>(), 3000);
        assert_eq!(samples.window, truth.window);
    }
}
