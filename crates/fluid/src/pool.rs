//! The active flows: remaining bytes, rates and end times.

use serde::Deserialize;

use crate::FluidError;
use crate::assigned::Assigned;
use crate::heap::IndexedHeap;
use crate::link_load::WindowedLoad;
use crate::links::ActiveFlows;
use crate::maxmin::{MaxMin, SHARED_FROM};
use crate::shared_levels::SharedLevels;

/// How rates are determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Weighted max-min fair.
    MaxMin,
    /// Single application assignment: the weight is the flow's size; rates follow as flows come
    /// and go.
    Assignment,
}

/// Computational effort of a simulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Times at which flows started or ended.
    pub settlements: u64,
    /// Flows whose rate was set, over all settlements.
    pub rates_set: u64,
}

/// Progress of a flow.
#[derive(Debug, Clone, Copy)]
struct FlowProgress {
    /// Bits left when its rate was last set.
    left: f64,
    /// When its rate was last set.
    since: u64,
    /// Its rate since then, Gb/s; 0 before the first settlement.
    rate: f64,
    /// Number of flows started before it, modulo 2^32: flows that end at the same time end in this
    /// order.
    number: u32,
}

impl FlowProgress {
    /// Bits sent from when the rate was last set until `now`.
    fn sent(&self, now: u64) -> f64 {
        // 1 Gb/s is 1e-3 bits a picosecond.
        self.rate * 1e-3 * (now - self.since) as f64
    }
}

/// Active flows.
#[derive(Debug)]
pub(crate) struct Pool {
    pub links: ActiveFlows,
    policy: Policy,
    /// Minimum time between two settlements, and the earliest time of the next.
    quantum_ps: u64,
    due: u64,
    max_min: MaxMin,
    assigned: Assigned,
    ends: IndexedHeap,
    /// Ends of the flows that share the level of a link.
    shared: SharedLevels,
    /// Progress of each flow; of shared flows only the number.
    progress: Vec<FlowProgress>,
    starts: u32,
    started: Vec<u32>,
    ended: Vec<u32>,
    touched: Vec<u32>,
    changed: Vec<(u32, f64)>,
    work: Work,
    /// Load of the links, if requested.
    link_load: Option<WindowedLoad>,
}

impl Pool {
    /// With a `quantum_ps` above 0, flows that start or end within that time after a settlement
    /// change the rates only at its end: starts are late by at most that, and no link is overloaded.
    pub fn new(capacity: Vec<f64>, policy: Policy, quantum_ps: u64) -> Result<Self, FluidError> {
        let mut max_min = MaxMin::default();
        max_min.share_levels(SHARED_FROM);
        Ok(Self {
            links: ActiveFlows::new(capacity)?,
            policy,
            quantum_ps,
            due: 0,
            max_min,
            assigned: Assigned::default(),
            ends: IndexedHeap::default(),
            shared: SharedLevels::default(),
            progress: Vec::new(),
            starts: 0,
            started: Vec::new(),
            ended: Vec::new(),
            touched: Vec::new(),
            changed: Vec::new(),
            work: Work::default(),
            link_load: None,
        })
    }

    /// Records the load of each link in at least `windows` time windows. That needs every rate of every
    /// flow, so no flow shares the level of its link.
    pub fn record_load(&mut self, windows: u32) {
        self.max_min.share_levels(0);
        self.link_load = Some(WindowedLoad::new(self.links.capacity.len(), windows));
    }

    /// The recorded load, if there is one.
    pub fn recorded_load(&self) -> Option<&WindowedLoad> {
        self.link_load.as_ref()
    }

    /// Starts a flow of `bytes` at `now`; the next [`Pool::settle`] sets its rate. Returns its
    /// number, which is reused after it has ended.
    pub fn start(&mut self, now: u64, path: &[(u32, f64)], bytes: f64, weight: f64) -> u32 {
        let weight = if self.policy == Policy::Assignment { bytes } else { weight };
        let flow = self.links.add(path, weight);
        self.links.enter(flow);
        let number = self.starts;
        self.starts = number.wrapping_add(1);
        let progress = FlowProgress { left: bytes * 8.0, since: now, rate: 0.0, number };
        match self.progress.get_mut(flow as usize) {
            Some(slot) => *slot = progress,
            None => self.progress.push(progress),
        }
        self.started.push(flow);
        flow
    }

    /// Bytes that `flow` has left to send at `now`.
    pub fn left_bytes(&self, flow: u32, now: u64) -> f64 {
        self.left_bits(flow, now).max(0.0) / 8.0
    }

    fn left_bits(&self, flow: u32, now: u64) -> f64 {
        let progress = &self.progress[flow as usize];
        match self.shared.left(flow, now) {
            Some(left) => left * self.links.weight[flow as usize],
            None => progress.left - progress.sent(now),
        }
    }

    /// Records `bytes` that cross `link` evenly from `from` to `to` outside of any flow.
    pub fn record(&mut self, link: u32, from: u64, to: u64, bytes: f64) {
        if let Some(link_load) = &mut self.link_load {
            link_load.add(link, from, to, bytes * 8.0);
        }
    }

    /// When the next flow ends or the rates are due.
    pub fn next_event(&self) -> Option<u64> {
        let pending = !self.started.is_empty() || !self.ended.is_empty();
        let end = self.first_end().map(|(time, _)| time);
        [end, pending.then_some(self.due)].into_iter().flatten().min()
    }

    /// The time of the next end, and the flow.
    fn first_end(&self) -> Option<(u64, u32)> {
        let (alone, shared) = (self.ends.first(), self.shared.first());
        let (Some((time, flow)), Some((at, number, other))) = (alone, shared) else {
            return alone.or(shared.map(|(at, _, other)| (at, other)));
        };
        let first = (time, self.progress[flow as usize].number) < (at, number);
        Some(if first { (time, flow) } else { (at, other) })
    }

    /// A flow that ends at `now`, if there is one. The next [`Pool::settle`] frees its links.
    pub fn pop_end(&mut self, now: u64) -> Option<u32> {
        let (time, flow) = self.first_end()?;
        if time > now {
            return None;
        }
        self.ends.remove(flow);
        self.shared.leave(flow);
        let left = std::mem::take(&mut self.progress[flow as usize].left);
        self.record_sent(flow, now, left.max(0.0));
        self.ended.push(flow);
        Some(flow)
    }

    /// Sets the rates after starts and ends up to `now`, if due. To be called before time advances.
    pub fn settle(&mut self, now: u64) {
        if (self.started.is_empty() && self.ended.is_empty()) || now < self.due {
            return;
        }
        self.due = now + self.quantum_ps;
        self.changed.clear();
        self.touched.clear();
        match self.policy {
            Policy::MaxMin => {
                self.max_min.settle(&mut self.links, &self.started, &self.ended, &mut self.changed);
            }
            Policy::Assignment => {
                self.ended.iter().for_each(|&flow| self.links.leave(flow));
                self.touched.extend(self.started.iter().chain(&self.ended));
                self.assigned.settle(&self.links, &self.touched, &mut self.changed);
            }
        }
        self.work.settlements += 1;
        self.work.rates_set += self.changed.len() as u64;
        for &link in self.max_min.changed_links() {
            self.shared.set_level(link, now, self.max_min.level(link));
        }
        for at in 0..self.changed.len() {
            let (flow, rate) = self.changed[at];
            let link = self.max_min.shared_at(flow);
            if link.is_some() || self.shared.link_of(flow).is_some() {
                self.move_shared(flow, link, rate, now);
            } else {
                self.set_rate(flow, rate, now);
            }
        }
        self.started.clear();
        self.ended.drain(..).for_each(|flow| self.links.recycle(flow));
    }

    /// Sets the rate of a flow that shares no level.
    fn set_rate(&mut self, flow: u32, rate: f64, now: u64) {
        let progress = &self.progress[flow as usize];
        if progress.rate > 0.0 && (rate - progress.rate).abs() <= 1e-12 * progress.rate {
            return;
        }
        let bits = progress.sent(now);
        let left = progress.left - bits;
        if self.link_load.is_some() {
            self.record_sent(flow, now, bits);
        }
        self.set_end(flow, left, rate, now);
    }

    /// Sets when `flow` ends that has `left` bits to send at `rate`.
    fn set_end(&mut self, flow: u32, left: f64, rate: f64, now: u64) {
        let progress = &mut self.progress[flow as usize];
        *progress = FlowProgress { left, since: now, rate, ..*progress };
        let wait = left.max(0.0) / (rate * 1e-3);
        // Rounded up; conversion and addition saturate.
        let wait_ps = wait as u64;
        let wait = wait_ps.saturating_add(u64::from(wait > wait_ps as f64));
        self.ends.set(flow, now.saturating_add(wait), progress.number);
    }

    /// Lets `flow` share the level of `link` from now on, or no level.
    fn move_shared(&mut self, flow: u32, link: Option<u32>, rate: f64, now: u64) {
        if self.shared.link_of(flow) == link {
            return;
        }
        let left = self.left_bits(flow, now);
        self.shared.leave(flow);
        let Some(link) = link else { return self.set_end(flow, left, rate, now) };
        self.ends.remove(flow);
        let number = self.progress[flow as usize].number;
        self.shared.join(link, flow, number, now, left / self.links.weight[flow as usize]);
    }

    /// Records that `flow` has sent `bits` since its rate was last set.
    fn record_sent(&mut self, flow: u32, now: u64, bits: f64) {
        let Some(link_load) = &mut self.link_load else { return };
        let since = self.progress[flow as usize].since;
        if bits > 0.0 {
            for (link, share) in self.links.path(flow) {
                link_load.add(link, since, now, bits * share);
            }
        }
    }

    /// Effort so far.
    pub fn work(&self) -> Work {
        self.work
    }
}
