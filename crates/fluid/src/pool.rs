//! The active flows: remaining bytes, rates and end times.

use serde::Deserialize;

use crate::FluidError;
use crate::assigned::Assigned;
use crate::heap::IndexedHeap;
use crate::ledger::Ledger;
use crate::links::ActiveFlows;
use crate::maxmin::MaxMin;

/// Who decides the rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Weighted max-min fair.
    MaxMin,
    /// Single application assignment: the weight is the flow's size; rates follow as flows come
    /// and go.
    Assignment,
}

/// What the fluid engine did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Times at which flows started or ended.
    pub settlements: u64,
    /// Flows whose rate was set, over all settlements.
    pub rates_set: u64,
}

/// How far a flow has come.
#[derive(Debug, Clone, Copy)]
struct Sending {
    /// Bits left when its rate was last set.
    left: f64,
    /// When that was.
    since: u64,
    /// Its rate since then, Gb/s; 0 before the first settlement.
    rate: f64,
    /// How many flows started before it, modulo 2^32: of flows that end together the first goes
    /// first.
    number: u32,
}

impl Sending {
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
    /// Least time between two settlements, and when the next may be.
    quantum_ps: u64,
    due: u64,
    max_min: MaxMin,
    assigned: Assigned,
    ends: IndexedHeap,
    /// What is known of each flow.
    sending: Vec<Sending>,
    starts: u32,
    started: Vec<u32>,
    ended: Vec<u32>,
    touched: Vec<u32>,
    changed: Vec<(u32, f64)>,
    work: Work,
    /// Load of the links, if requested.
    ledger: Option<Ledger>,
}

impl Pool {
    /// With a `quantum_ps` above 0, flows that come or go within so long after a settlement change
    /// the rates at its end only: starts are late by at most that, and no link is ever overloaded.
    pub fn new(capacity: Vec<f64>, policy: Policy, quantum_ps: u64) -> Result<Self, FluidError> {
        Ok(Self {
            links: ActiveFlows::new(capacity)?,
            policy,
            quantum_ps,
            due: 0,
            max_min: MaxMin::default(),
            assigned: Assigned::default(),
            ends: IndexedHeap::default(),
            sending: Vec::new(),
            starts: 0,
            started: Vec::new(),
            ended: Vec::new(),
            touched: Vec::new(),
            changed: Vec::new(),
            work: Work::default(),
            ledger: None,
        })
    }

    /// Keeps account of what crosses each link, in at least `windows` time windows.
    pub fn keep_account(&mut self, windows: u32) {
        self.ledger = Some(Ledger::new(self.links.capacity.len(), windows));
    }

    /// The account, if one was kept.
    pub fn account(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// Starts a flow of `bytes` at `now`; its rate comes with the next [`Pool::settle`]. Returns its
    /// number, which another flow may have after it has ended.
    pub fn start(&mut self, now: u64, path: &[(u32, f64)], bytes: f64, weight: f64) -> u32 {
        let weight = if self.policy == Policy::Assignment { bytes } else { weight };
        let flow = self.links.add(path, weight);
        self.links.enter(flow);
        let number = self.starts;
        self.starts = number.wrapping_add(1);
        let sending = Sending { left: bytes * 8.0, since: now, rate: 0.0, number };
        match self.sending.get_mut(flow as usize) {
            Some(known) => *known = sending,
            None => self.sending.push(sending),
        }
        self.started.push(flow);
        flow
    }

    /// Bytes that `flow` has left to send at `now`.
    pub fn left_bytes(&self, flow: u32, now: u64) -> f64 {
        let sending = &self.sending[flow as usize];
        (sending.left - sending.sent(now)).max(0.0) / 8.0
    }

    /// Notes `bytes` that cross `link` evenly from `from` to `to` without being part of a flow.
    pub fn note(&mut self, link: u32, from: u64, to: u64, bytes: f64) {
        if let Some(ledger) = &mut self.ledger {
            ledger.add(link, from, to, bytes * 8.0);
        }
    }

    /// When the next flow ends or the rates are due.
    pub fn next_event(&self) -> Option<u64> {
        let pending = !self.started.is_empty() || !self.ended.is_empty();
        let end = self.ends.first().map(|(time, _)| time);
        [end, pending.then_some(self.due)].into_iter().flatten().min()
    }

    /// A flow that ends at `now`, if there is one. Its links are free with the next [`Pool::settle`].
    pub fn pop_end(&mut self, now: u64) -> Option<u32> {
        let (time, flow) = self.ends.first()?;
        if time > now {
            return None;
        }
        self.ends.remove(flow);
        let left = std::mem::take(&mut self.sending[flow as usize].left);
        self.carried(flow, now, left.max(0.0));
        self.ended.push(flow);
        Some(flow)
    }

    /// Sets the rates after starts and ends up to `now`, if they are due. Call it before time goes
    /// on.
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
        for at in 0..self.changed.len() {
            let (flow, rate) = self.changed[at];
            let sending = &mut self.sending[flow as usize];
            if sending.rate > 0.0 && (rate - sending.rate).abs() <= 1e-12 * sending.rate {
                continue;
            }
            let bits = sending.sent(now);
            let left = sending.left - bits;
            if self.ledger.is_some() {
                self.carried(flow, now, bits);
            }
            let sending = &mut self.sending[flow as usize];
            *sending = Sending { left, since: now, rate, ..*sending };
            let wait = left.max(0.0) / (rate * 1e-3);
            // Rounded up; what is too long for a number stays so.
            let whole = wait as u64;
            let wait = whole.saturating_add(u64::from(wait > whole as f64));
            self.ends.set(flow, now.saturating_add(wait), sending.number);
        }
        self.started.clear();
        self.ended.drain(..).for_each(|flow| self.links.forget(flow));
    }

    /// Notes that `flow` has sent `bits` since its rate was last set.
    fn carried(&mut self, flow: u32, now: u64, bits: f64) {
        let Some(ledger) = &mut self.ledger else { return };
        let since = self.sending[flow as usize].since;
        if bits > 0.0 {
            for (link, share) in self.links.path(flow) {
                ledger.add(link, since, now, bits * share);
            }
        }
    }

    /// What was done so far.
    pub fn work(&self) -> Work {
        self.work
    }
}
