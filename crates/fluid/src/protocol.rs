//! The distributed protocol of the assignment, simulated message by message (Birk and Zdornov 2009).
//!
//! Links store `W_l` and no state of flows. When a flow starts, its *announce* packet adds `w_f` to each
//! link on the path. It *collects* `W_f`, the weight of the heaviest link on its path, by data packets,
//! and sets `r(f) = w_f / W_f`. When it ends, its *leave* packet subtracts `w_f`. The announcement also
//! collects, so a flow has a rate one round trip after it starts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::FluidError;
use crate::links::ActiveFlows;
use crate::{FlowSet, assignment};

/// How packets travel.
#[derive(Debug, Clone, Copy)]
pub struct ProtocolSettings {
    /// Time a control packet takes from link to link.
    pub hop_ps: u64,
    /// Between the return of one collection and the start of the next.
    pub probe_ps: u64,
}

/// Results of a simulation of the protocol.
#[derive(Debug, Default, Clone)]
pub struct ProtocolOutcome {
    /// Announce packets.
    pub announcements: u64,
    /// Collections by data packets.
    pub collections: u64,
    /// Leave packets.
    pub leaves: u64,
    /// Links that control packets passed, for each of the three.
    pub link_visits: [u64; 3],
    /// When the last announcement passed its last link.
    pub announced_ps: u64,
    /// When the first flow left.
    pub first_leave_ps: u64,
    /// When each flow got its first rate.
    pub initial_ps: Vec<u64>,
    /// When each flow first had the rate that the assignment of all flows gives it, after the last
    /// announcement; `u64::MAX` if it never had.
    pub final_ps: Vec<u64>,
    /// Collections each flow began after the last announcement until then.
    pub probes: Vec<u32>,
    /// When each flow ended.
    pub end_ps: Vec<u64>,
    /// Highest sum of rates on a link by its capacity, before and after the last announcement was
    /// collected by everyone.
    pub overload: [f64; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ProtocolEvent {
    /// A packet's visit to a link: (flow, hop). What it has seen travels in `seen`.
    Announce(u32, u32),
    Collect(u32, u32),
    Leave(u32, u32),
    /// `W_f` has returned to the source: (flow, whether by the announcement).
    Back(u32, bool),
    Probe(u32),
    /// (flow, version of its rate).
    End(u32, u32),
}

struct ProtocolSimulation<'a> {
    flows: &'a FlowSet,
    settings: ProtocolSettings,
    capacity: &'a [f64],
    events: BinaryHeap<Reverse<(u64, ProtocolEvent)>>,
    now: u64,
    heaviness: Vec<f64>,
    links: ActiveFlows,
    rate: Vec<f64>,
    load: Vec<f64>,
    seen: Vec<f64>,
    probing_since: Vec<u64>,
    left: Vec<f64>,
    since: Vec<u64>,
    version: Vec<u32>,
    ended: Vec<bool>,
    announcing: usize,
    unsettled: usize,
    assigned_rate: Vec<f64>,
    out: ProtocolOutcome,
}

/// Runs the protocol until every flow has left.
///
/// # Errors
/// As [`crate::simulate_flows`], or a packet that takes no time.
pub fn run_protocol(
    capacity: &[f64],
    flows: &FlowSet,
    settings: ProtocolSettings,
) -> Result<ProtocolOutcome, FluidError> {
    let n = flows.start_ps.len();
    if flows.bytes.len() != n {
        let (name, length) = ("bytes", flows.bytes.len());
        return Err(FluidError::Length { name, length, expected: n });
    }
    for (name, value) in [("hop time", settings.hop_ps), ("probe interval", settings.probe_ps)] {
        crate::error::require_positive(name, || "the protocol".to_owned(), value as f64)?;
    }
    let weight: Vec<f64> = flows.bytes.iter().map(|&bytes| bytes as f64).collect();
    let (assigned_rate, _) = assignment(capacity, &flows.paths, &weight)?;
    let mut links = ActiveFlows::new(capacity.to_vec())?;
    for (flow, &w) in weight.iter().enumerate() {
        links.add(&flows.paths.of(flow).collect::<Vec<_>>(), w);
    }
    let mut sim = ProtocolSimulation {
        flows,
        settings,
        capacity,
        events: BinaryHeap::new(),
        now: 0,
        heaviness: vec![0.0; capacity.len()],
        rate: vec![0.0; n],
        load: vec![0.0; capacity.len()],
        seen: vec![0.0; n],
        probing_since: vec![0; n],
        left: weight.iter().map(|bytes| bytes * 8.0).collect(),
        since: flows.start_ps.clone(),
        version: vec![0; n],
        ended: vec![false; n],
        announcing: n,
        unsettled: n,
        assigned_rate,
        links,
        out: ProtocolOutcome {
            initial_ps: vec![u64::MAX; n],
            final_ps: vec![u64::MAX; n],
            probes: vec![0; n],
            end_ps: vec![0; n],
            first_leave_ps: u64::MAX,
            ..ProtocolOutcome::default()
        },
    };
    sim.run();
    Ok(sim.out)
}

impl ProtocolSimulation<'_> {
    fn run(&mut self) {
        for (flow, &start) in self.flows.start_ps.iter().enumerate() {
            self.out.announcements += 1;
            self.at(
                start.saturating_add(self.settings.hop_ps),
                ProtocolEvent::Announce(flow as u32, 0),
            );
        }
        while let Some(Reverse((time, event))) = self.events.pop() {
            self.now = time;
            match event {
                ProtocolEvent::Announce(flow, hop) => self.announce(flow, hop),
                ProtocolEvent::Collect(flow, hop) => self.collect(flow, hop),
                ProtocolEvent::Leave(flow, hop) => self.visit_leaving(flow, hop),
                ProtocolEvent::Back(flow, first) => self.back(flow, first),
                ProtocolEvent::Probe(flow) => self.probe(flow),
                ProtocolEvent::End(flow, version) => self.end(flow, version),
            }
        }
    }

    fn at(&mut self, time: u64, event: ProtocolEvent) {
        self.events.push(Reverse((time, event)));
    }

    fn hops(&self, flow: u32) -> u32 {
        self.links.entries(flow).len() as u32
    }

    /// Adds `sign * w_f` to the weight of the link at `hop` and returns what it is now.
    fn add_weight(&mut self, flow: u32, hop: u32, sign: f64) -> f64 {
        let entry = self.links.entries(flow).start + hop as usize;
        let part = self.links.weight[flow as usize] * self.links.share(entry as u32);
        let link = self.links.link[entry] as usize;
        self.heaviness[link] += sign * part / self.capacity[link];
        self.heaviness[link]
    }

    fn announce(&mut self, flow: u32, hop: u32) {
        self.out.link_visits[0] += 1;
        let heaviness = self.add_weight(flow, hop, 1.0);
        self.seen[flow as usize] = self.seen[flow as usize].max(heaviness);
        let hops = self.hops(flow);
        if hop + 1 < hops {
            return self
                .at(self.now + self.settings.hop_ps, ProtocolEvent::Announce(flow, hop + 1));
        }
        self.announcing -= 1;
        if self.announcing == 0 {
            self.out.announced_ps = self.now;
        }
        self.at(self.now + u64::from(hops) * self.settings.hop_ps, ProtocolEvent::Back(flow, true));
    }

    fn collect(&mut self, flow: u32, hop: u32) {
        self.out.link_visits[1] += 1;
        let heaviness = self.add_weight(flow, hop, 0.0);
        self.seen[flow as usize] = self.seen[flow as usize].max(heaviness);
        let hops = self.hops(flow);
        if hop + 1 < hops {
            return self.at(self.now + self.settings.hop_ps, ProtocolEvent::Collect(flow, hop + 1));
        }
        self.at(
            self.now + u64::from(hops) * self.settings.hop_ps,
            ProtocolEvent::Back(flow, false),
        );
    }

    fn visit_leaving(&mut self, flow: u32, hop: u32) {
        self.out.link_visits[2] += 1;
        self.add_weight(flow, hop, -1.0);
        if hop + 1 < self.hops(flow) {
            self.at(self.now + self.settings.hop_ps, ProtocolEvent::Leave(flow, hop + 1));
        }
    }

    fn probe(&mut self, flow: u32) {
        if self.ended[flow as usize] {
            return;
        }
        self.out.collections += 1;
        self.seen[flow as usize] = 0.0;
        self.probing_since[flow as usize] = self.now;
        self.at(self.now + self.settings.hop_ps, ProtocolEvent::Collect(flow, 0));
    }

    /// A source receives the weight of its heaviest link.
    fn back(&mut self, flow: u32, first: bool) {
        let f = flow as usize;
        if self.ended[f] {
            return;
        }
        self.set_rate(flow, self.links.weight[f] / self.seen[f]);
        if first {
            self.out.initial_ps[f] = self.now;
        }
        if self.announcing == 0 && self.out.final_ps[f] == u64::MAX {
            let begun_after = !first && self.probing_since[f] >= self.out.announced_ps;
            self.out.probes[f] += u32::from(begun_after);
            if (self.rate[f] - self.assigned_rate[f]).abs() <= 1e-9 * self.assigned_rate[f] {
                self.out.final_ps[f] = self.now;
                self.unsettled -= 1;
            }
        }
        self.at(self.now + self.settings.probe_ps, ProtocolEvent::Probe(flow));
    }

    fn set_rate(&mut self, flow: u32, rate: f64) {
        let f = flow as usize;
        let old = self.rate[f];
        self.left[f] -= old * 1e-3 * (self.now - self.since[f]) as f64;
        self.since[f] = self.now;
        self.rate[f] = rate;
        let settled = usize::from(self.unsettled == 0);
        for (link, share) in self.links.path(flow) {
            let link = link as usize;
            self.load[link] += (rate - old) * share;
            let ratio = self.load[link] / self.capacity[link];
            self.out.overload[settled] = self.out.overload[settled].max(ratio);
        }
        if rate > 0.0 {
            self.version[f] += 1;
            let wait = (self.left[f].max(0.0) / (rate * 1e-3)).ceil() as u64;
            self.at(self.now.saturating_add(wait), ProtocolEvent::End(flow, self.version[f]));
        }
    }

    fn end(&mut self, flow: u32, version: u32) {
        let f = flow as usize;
        if self.version[f] != version || self.ended[f] {
            return;
        }
        self.set_rate(flow, 0.0);
        self.ended[f] = true;
        self.out.end_ps[f] = self.now;
        self.out.first_leave_ps = self.out.first_leave_ps.min(self.now);
        self.out.leaves += 1;
        self.at(self.now + self.settings.hop_ps, ProtocolEvent::Leave(flow, 0));
    }
}
