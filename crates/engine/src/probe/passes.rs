//! Packets of observed jobs that pass each link, by step of a repeated program and label.

use tailback_telemetry::{Mark, NO_LINK, Sample, SampleLog, table};

use super::Hop;
use crate::network::link::Link;

table! {
    /// Packets that switches could sample: one row per step, label and link that they leave by, in
    /// this order. The window is the step minus 1.
    PassTable: window, label, link, hop_samples, congested_samples,
}

/// Maximum memory of counters, in bytes. Where they would take more, passes are logged and summed.
const MOST_BYTES: usize = 1 << 26;

/// Packets of a label at a link, and those of them that met congestion there.
type PassCount = [u32; 2];

/// Passes of the links of a shard.
#[derive(Debug)]
pub(super) enum PassLog {
    /// In counters.
    Counted(PassCounters),
    /// In a log, as samples of weight 1. Where there are many combinations of label and link, few
    /// of them occur.
    Logged(Box<SampleLog>, u32),
}

impl PassLog {
    /// For a shard with these links of `all`, and packets of so many labels and steps, most of them
    /// with `payload` bytes.
    pub fn new(links: &[Link], all: usize, labels: u32, steps: u32, payload: u32) -> Self {
        let counters = all.saturating_mul(labels as usize).saturating_mul(steps as usize);
        if counters.saturating_mul(size_of::<PassCount>()) > MOST_BYTES {
            return Self::Logged(Box::new(SampleLog::new(links.len(), payload)), payload);
        }
        let global = links.iter().map(|link| link.global).collect();
        Self::Counted(PassCounters { global, labels, pages: vec![Vec::new(); steps as usize] })
    }

    /// A packet of a label and a step, counted from 0, chooses a link.
    #[inline]
    pub fn pass(&mut self, step: u32, label: u32, hop: &Hop) {
        match self {
            Self::Counted(counters) => counters.pass(step, label, hop),
            Self::Logged(log, payload) => {
                let congested_link = if hop.congested { hop.link } else { NO_LINK };
                let mark = Mark {
                    hop_link: hop.link,
                    congested_link,
                    hop_count: 1,
                    congested_count: u8::from(hop.congested),
                };
                log.push(Sample { window: step, label, bytes: *payload, mark });
            }
        }
    }

    /// The table of all shards.
    pub fn finish(parts: Vec<Self>, threads: usize) -> PassTable {
        let (mut counted, mut logged) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Self::Counted(counters) => counted.push(counters),
                Self::Logged(log, _) => logged.push(*log),
            }
        }
        if logged.is_empty() {
            return PassCounters::finish(&counted);
        }
        let table = SampleLog::finish(logged, threads);
        PassTable {
            window: table.window,
            label: table.label,
            link: table.link,
            hop_samples: table.hop_samples,
            congested_samples: table.congested_samples,
        }
    }
}

/// Counters by step, label and link.
#[derive(Debug)]
pub(super) struct PassCounters {
    /// Fabric number of each link of the shard, ascending.
    global: Vec<u32>,
    labels: u32,
    /// Counters by step: by label and shard index of the link; empty until the first packet.
    pages: Vec<Vec<PassCount>>,
}

impl PassCounters {
    #[inline]
    fn pass(&mut self, step: u32, label: u32, hop: &Hop) {
        let page = &mut self.pages[step as usize];
        if page.is_empty() {
            page.resize(self.labels as usize * self.global.len(), PassCount::default());
        }
        let [passed, met] = &mut page[label as usize * self.global.len() + hop.local as usize];
        *passed += 1;
        *met += u32::from(hop.congested);
    }

    fn finish(parts: &[Self]) -> PassTable {
        let mut table = PassTable::with_capacity(0);
        let labels = parts.iter().map(|part| part.labels).max().unwrap_or(0);
        let steps = parts.iter().map(|part| part.pages.len()).max().unwrap_or(0);
        let mut rows: Vec<(u32, PassCount)> = Vec::new();
        for (step, label) in (0..steps).flat_map(|step| (0..labels).map(move |label| (step, label)))
        {
            rows.clear();
            for Self { global, pages, .. } in parts {
                let begin = label as usize * global.len();
                let counts = pages[step].get(begin..begin + global.len()).unwrap_or_default();
                let rows_of_part = global.iter().copied().zip(counts.iter().copied());
                rows.extend(rows_of_part.filter(|(_, [passed, _])| *passed > 0));
            }
            rows.sort_unstable_by_key(|(link, _)| *link);
            table.window.extend(std::iter::repeat_n(step as u64, rows.len()));
            table.label.extend(std::iter::repeat_n(u64::from(label), rows.len()));
            table.link.extend(rows.iter().map(|(link, _)| u64::from(*link)));
            table.hop_samples.extend(rows.iter().map(|(_, [passed, _])| u64::from(*passed)));
            table.congested_samples.extend(rows.iter().map(|(_, [_, met])| u64::from(*met)));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::truth::tests::links;

    #[test]
    fn counters_and_log_agree() {
        let tables = [1, MOST_BYTES].map(|all| {
            let parts = [0..3, 3..7].map(|numbers: std::ops::Range<u32>| {
                let mut log = PassLog::new(&links(numbers.clone(), 100.0), all, 3, 4, 4096);
                for number in 0..5000u32 {
                    let link = numbers.start + number * number % numbers.len() as u32;
                    let hop = Hop {
                        local: link - numbers.start,
                        link,
                        congested: number % 7 == 0,
                        drain_ps: 0,
                        packet: 0,
                        message: 0,
                        index: 0,
                    };
                    log.pass(number % 5 % 3, number % 11 % 3, &hop);
                }
                log
            });
            assert!(parts.iter().all(|part| matches!(part, PassLog::Counted(_)) == (all == 1)));
            PassLog::finish(parts.into(), 1)
        });
        let [counted, logged] = tables;
        assert_eq!(counted.hop_samples.iter().sum::<u64>(), 10_000);
        assert_eq!(counted, logged);
    }
}
