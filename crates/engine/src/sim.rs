//! The simulation: state, start, event loop and end.

use std::ops::ControlFlow;

use tailback_fabric::{Fabric, FabricError, Plan};

use crate::adapter::Adapter;
use crate::link::{Link, Links, NIL};
use crate::outcome::{MessageLog, Outcome, RankLog};
use crate::packet::Packets;
use crate::probe::{Measure, Probe, Silent};
use crate::program::{Compiled, Placement, Program};
use crate::queue::{Class, Event, EventQueue};
use crate::ranks::{MessageState, RankState};
use crate::{EngineError, Settings};

/// How far a run is, for whoever watches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Simulated time.
    pub time_ps: u64,
    /// Packets delivered so far.
    pub delivered: u64,
    /// Packets of the whole run.
    pub packets: u64,
    /// Events so far.
    pub events: u64,
}

/// Called now and then; breaking stops the run.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

const EVENTS_BETWEEN_WATCHES: u64 = 1 << 17;

pub(crate) struct Sim<'a, P> {
    pub fabric: &'a Fabric,
    pub plan: &'a Plan,
    pub settings: &'a Settings,
    pub placement: &'a Placement,
    pub program: Compiled,
    pub now: u64,
    pub queue: EventQueue,
    pub links: Links,
    pub packets: Packets,
    pub adapters: Vec<Adapter>,
    pub messages: Vec<MessageState>,
    pub ranks: Vec<RankState>,
    pub unfinished: usize,
    pub probe: P,
    pub events: u64,
    pub delivered: u64,
    pub packet_hops: u64,
    pub total_packets: u64,
}

/// Runs `program` placed by `placement` on `fabric`.
///
/// # Errors
/// Settings out of range, a program that does not pair up, ranks without a path between them, ranks
/// that block for ever, or an interruption by `watch`.
pub fn simulate(
    fabric: &Fabric,
    plan: &Plan,
    settings: &Settings,
    program: &Program,
    placement: &Placement,
    watch: Watch<'_>,
) -> Result<Outcome, EngineError> {
    if settings.measure {
        let least = least_ps(fabric, plan, program, placement);
        let probe = Measure::new(fabric.n_links(), settings.windows, least);
        let (mut outcome, probe) =
            Sim::new(fabric, plan, settings, program, placement, probe)?.run(watch)?;
        outcome.window_ps = probe.window_ps();
        (outcome.samples, outcome.truth) = probe.finish();
        Ok(outcome)
    } else {
        let sim = Sim::new(fabric, plan, settings, program, placement, Silent)?;
        Ok(sim.run(watch)?.0)
    }
}

impl<'a, P: Probe> Sim<'a, P> {
    fn new(
        fabric: &'a Fabric,
        plan: &'a Plan,
        settings: &'a Settings,
        program: &'a Program,
        placement: &'a Placement,
        probe: P,
    ) -> Result<Self, EngineError> {
        settings.check()?;
        check_sizes(fabric, plan, program, placement)?;
        let compiled = program.compile(settings.packet_bytes)?;
        let ranks: Vec<RankState> =
            (0..program.n_ranks()).map(|rank| RankState::new(compiled.rank_start[rank])).collect();
        let messages: Vec<MessageState> = compiled
            .messages
            .iter()
            .map(|m| MessageState::new(m.bytes, settings.packet_bytes))
            .collect();
        let total_packets = messages.iter().map(|m| u64::from(m.packets_left)).sum();
        let mut sim = Self {
            queue: EventQueue::new(bucket_ps(fabric, settings)),
            links: build_links(fabric, plan, settings),
            packets: Packets::new(),
            adapters: (0..fabric.n_nodes).map(|_| Adapter::default()).collect(),
            unfinished: ranks.len(),
            program: compiled,
            now: 0,
            events: 0,
            delivered: 0,
            packet_hops: 0,
            total_packets,
            fabric,
            plan,
            settings,
            placement,
            messages,
            ranks,
            probe,
        };
        sim.check_paths()?;
        for rank in 0..sim.ranks.len() as u32 {
            let start = placement.start_ps[rank as usize];
            sim.queue.push(Event::new(start, Class::Rank, rank, 0));
        }
        Ok(sim)
    }

    /// Every pair of ranks that communicates needs a path.
    fn check_paths(&self) -> Result<(), EngineError> {
        let mut pairs: Vec<(u32, u32)> = self
            .program
            .messages
            .iter()
            .map(|m| (self.placement.node[m.src as usize], self.placement.node[m.dst as usize]))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        for (from, to) in pairs {
            if from != to {
                self.require(from, to)?;
            }
        }
        Ok(())
    }

    fn require(&self, from: u32, to: u32) -> Result<(), FabricError> {
        let (here, goal) = (self.plan.home[from as usize], self.plan.home[to as usize]);
        if here == goal || self.plan.leads(self.fabric, here, to) {
            return Ok(());
        }
        Err(FabricError::Unconnected { from: here, to: goal })
    }

    fn run(mut self, watch: Watch<'_>) -> Result<(Outcome, P), EngineError> {
        while let Some(event) = self.queue.pop() {
            debug_assert!(event.time >= self.now);
            self.now = event.time;
            self.events += 1;
            if self.events.is_multiple_of(EVENTS_BETWEEN_WATCHES) {
                let progress = Progress {
                    time_ps: self.now,
                    delivered: self.delivered,
                    packets: self.total_packets,
                    events: self.events,
                };
                if watch(progress).is_break() {
                    return Err(EngineError::Interrupted);
                }
            }
            match event.class() {
                Class::Credit => self.on_credit(event.entity()),
                Class::Departure => self.on_departure(event.entity(), event.packet()),
                Class::Arrival => self.on_arrival(event.entity(), event.packet()),
                Class::Sent => self.on_sent(event.entity()),
                Class::Message => self.on_message(event.entity(), event.packet()),
                Class::Adapter => self.on_adapter(event.entity()),
                Class::Rank => self.go_on(event.entity()),
            }
        }
        if self.unfinished > 0 {
            return Err(self.deadlock().unwrap_or_else(|| self.stuck()));
        }
        self.assert_conserved();
        Ok(self.outcome())
    }

    /// Every packet delivered once, every credit back home.
    fn assert_conserved(&self) {
        assert_eq!(self.packets.live(), 0, "packets left in the network");
        assert_eq!(self.delivered, self.total_packets, "packets delivered");
        let whole = u64::from(self.settings.buffer_bytes);
        for (lane, credit) in self.links.credit_in_all().enumerate() {
            assert_eq!(credit, whole, "credit of lane {lane}");
        }
    }

    fn outcome(self) -> (Outcome, P) {
        let messages = MessageLog::new(&self.program.messages, &self.messages);
        let ranks = self.ranks.iter().map(RankLog::from).collect();
        let outcome = Outcome {
            messages,
            ranks,
            packets: self.total_packets,
            packet_hops: self.packet_hops,
            events: self.events,
            end_ps: self.now,
            window_ps: 0,
            samples: Vec::new(),
            truth: Vec::new(),
        };
        (outcome, self.probe)
    }
}

fn build_links(fabric: &Fabric, plan: &Plan, settings: &Settings) -> Links {
    let links = (0..fabric.n_links())
        .map(|l| Link::new(fabric.link_gbps[l], fabric.link_delay_ps[l], fabric.link_dst[l]))
        .collect();
    Links::new(links, plan.lanes(), settings.buffer_bytes)
}

/// A run is at least as long as its busiest rank computes and sends at line rate.
fn least_ps(fabric: &Fabric, plan: &Plan, program: &Program, placement: &Placement) -> u64 {
    let ranks = program.n_ranks().min(placement.node.len()).min(placement.start_ps.len());
    let length = |rank: usize| -> Option<u64> {
        let link = *plan.injection.get(placement.node[rank] as usize)? as usize;
        let ps_per_byte = (8000.0 / fabric.link_gbps[link]) as u64;
        let ops = program.rank_start[rank] as usize..program.rank_start[rank + 1] as usize;
        let (kinds, amounts) = (program.kind.get(ops.clone())?, program.amount.get(ops)?);
        let (mut compute, mut sent) = (0u64, 0u64);
        for (&kind, &amount) in kinds.iter().zip(amounts) {
            match kind {
                0 => compute = compute.saturating_add(amount),
                1 => sent = sent.saturating_add(amount),
                _ => {}
            }
        }
        // Sending may overlap with computing.
        Some(placement.start_ps[rank] + compute.max(sent.saturating_mul(ps_per_byte)))
    };
    (0..ranks).filter_map(length).max().unwrap_or(0)
}

/// A few events a bucket when every adapter sends full packets at line rate (found by measurement).
fn bucket_ps(fabric: &Fabric, settings: &Settings) -> u64 {
    let fastest = fabric.link_gbps.iter().copied().fold(1.0, f64::max);
    let packet_ps = f64::from(settings.wire_bytes(settings.packet_bytes)) * 8000.0 / fastest;
    ((packet_ps * 4.0 / f64::from(fabric.n_nodes.max(1))) as u64).max(16)
}

fn check_sizes(
    fabric: &Fabric,
    plan: &Plan,
    program: &Program,
    placement: &Placement,
) -> Result<(), EngineError> {
    const LIMIT: u64 = 1 << 28;
    let ranks = program.n_ranks();
    for (what, value) in [
        ("lanes of links", fabric.n_links() as u64 * u64::from(plan.lanes())),
        ("ranks", ranks as u64),
        ("messages", program.kind.len() as u64),
    ] {
        if value >= LIMIT {
            return Err(EngineError::TooLarge { what, value, limit: LIMIT });
        }
    }
    let wrong = |rank: usize, problem: String| {
        Err(EngineError::Program { rank: rank as u32, operation: 0, problem })
    };
    for (name, length) in [
        ("node", placement.node.len()),
        ("host", placement.host.len()),
        ("start", placement.start_ps.len()),
    ] {
        if length != ranks {
            return wrong(0, format!("placement has {length} {name} entries for {ranks} ranks"));
        }
    }
    if let Some(link) = fabric.link_gbps.iter().position(|&gbps| gbps < Link::MIN_GBPS) {
        return Err(EngineError::Setting {
            field: "link rate",
            value: format!("{} Gb/s at link {link}", fabric.link_gbps[link]),
            valid: format!("at least {} Gb/s", Link::MIN_GBPS),
        });
    }
    if let Some(rank) = placement.node.iter().position(|&node| node >= fabric.n_nodes) {
        return wrong(
            rank,
            format!("placed on node {}, which does not exist", placement.node[rank]),
        );
    }
    if let Some(&label) = program.label.iter().max()
        && (label as usize >= placement.label_observed.len().max(1) || label == NIL)
    {
        return wrong(0, format!("label {label} does not exist"));
    }
    Ok(())
}
