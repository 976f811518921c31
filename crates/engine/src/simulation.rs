//! Runs a simulation from start to results.

use std::sync::Arc;

use tailback_fabric::{Fabric, RoutePlan};
use tailback_program::Op;
use tailback_telemetry::Samples;

use crate::model::{Model, packets_of};
use crate::network::link::Link;
use crate::outcome::{MessageLog, Outcome, RankLog};
use crate::parallel::workers::{RunEnd, run_windows};
use crate::probe::{
    CombinedProbe, Deployment, HeaderProbe, NullProbe, PassTable, PortProbe, Probe, ProbeTables,
    ShardProbes, StepProbe, TruthTable, WindowProbe, connections, steps_of_messages,
};
use crate::program::{Placement, Program};
use crate::progress::{Decide, Watch};
use crate::settings::units::MAX_TIME_PS;
use crate::shard::Shard;
use crate::steps::Steps;
use crate::{EngineError, Settings, deadlock};

/// Threads and shards of a run. Results do not depend on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallelism {
    /// Threads to use.
    pub threads: usize,
    /// Shards to partition the fabric into; one per thread by default.
    pub shards: Option<u32>,
}

impl Parallelism {
    fn shards(self) -> u32 {
        self.shards.unwrap_or(self.threads as u32).max(1)
    }
}

impl Default for Parallelism {
    fn default() -> Self {
        Self { threads: 1, shards: None }
    }
}

/// Simulates `program`, placed by `placement`, on `fabric`.
///
/// # Errors
/// Settings out of range, a program whose sends and receives do not match, ranks without a path
/// between them, or ranks that block forever. A run that `watch` interrupts is not an error: its
/// outcome is marked incomplete.
pub fn simulate(
    fabric: &Fabric,
    plan: &RoutePlan,
    settings: &Settings,
    program: &Program,
    placement: &Placement,
    work: Parallelism,
    watch: Watch<'_>,
) -> Result<Outcome, EngineError> {
    let model = Model::new(fabric, plan, settings, program, placement, work.shards())?;
    if settings.probes.any() {
        return simulate_probed(&model, minimum_duration_ps(&model, program), work, watch);
    }
    if !settings.measure {
        return Ok(run(&model, |_| NullProbe, work.threads, (watch, None))?.0);
    }
    let least = minimum_duration_ps(&model, program);
    if let Some(&steps) = placement.label_step.iter().max().filter(|&&steps| steps > 0) {
        return measure_steps(&model, least, steps, work.threads, (watch, None));
    }
    let probe = |links: &[Link]| WindowProbe::new(links, settings, least);
    let (mut outcome, shards) = run(&model, probe, work.threads, (watch, None))?;
    let parts = shards.into_iter().map(|shard| shard.probe).collect();
    (outcome.window_ps, outcome.samples, outcome.truth) =
        WindowProbe::join(parts, outcome.end_ps, work.threads);
    Ok(outcome)
}

/// Simulates `program` like [`simulate`], on one thread and without probes other than the
/// measurement of links, and asks `decide` which of its `steps` to leave out. What is left out is
/// not in the outcome. If the steps have offsets of labels, `program` is a single step that is
/// repeated.
///
/// # Errors
/// As [`simulate`].
#[allow(clippy::too_many_arguments, reason = "those of `simulate`, and the steps")]
pub fn simulate_in_steps(
    fabric: &Fabric,
    plan: &RoutePlan,
    settings: &Settings,
    program: &Program,
    placement: &Placement,
    steps: Steps,
    decide: Decide<'_>,
    watch: Watch<'_>,
) -> Result<Outcome, EngineError> {
    let model = Model::in_steps(fabric, plan, settings, program, placement, steps)?;
    if !settings.measure {
        return Ok(run(&model, |_| NullProbe, 1, (watch, Some(decide)))?.0);
    }
    let marks = placement.label_step.iter().max().copied().unwrap_or(0).max(1);
    // The length of the run depends on the steps left out, but none is left out before the first
    // check.
    let least = minimum_until_check_ps(&model);
    measure_steps(&model, least, marks, 1, (watch, Some(decide)))
}

/// Callbacks of a run: regular ones, and those at checks.
type Callbacks<'a> = (Watch<'a>, Option<Decide<'a>>);

/// Simulates with truth and passes of `steps` steps too.
fn measure_steps(
    model: &Model<'_>,
    least: u64,
    steps: u32,
    threads: usize,
    callbacks: Callbacks<'_>,
) -> Result<Outcome, EngineError> {
    let (settings, messages) = (&model.settings, steps_of_messages(model));
    let probe = |links: &[Link]| {
        let measure = WindowProbe::new(links, settings, least);
        StepProbe::new(measure, links, model, Arc::clone(&messages), steps)
    };
    let (mut outcome, shards) = run(model, probe, threads, callbacks)?;
    let parts = shards.into_iter().map(|shard| shard.probe).collect();
    let (measured, step_truth, step_passes) = StepProbe::join(parts, threads);
    (outcome.step_truth, outcome.step_passes) = (step_truth, step_passes);
    (outcome.window_ps, outcome.samples, outcome.truth) =
        WindowProbe::join(measured, outcome.end_ps, threads);
    Ok(outcome)
}

/// Simulates with the probes that the settings ask for.
fn simulate_probed(
    model: &Model<'_>,
    least: u64,
    work: Parallelism,
    watch: Watch<'_>,
) -> Result<Outcome, EngineError> {
    let (settings, all) = (&model.settings, model.fabric.n_links());
    let probes = &settings.probes;
    let measure = |links: &[Link]| WindowProbe::new(links, settings, least);
    if settings.measure && probes.carry.is_none() && probes.of_ports() {
        let probe =
            |links: &[Link]| (measure(links), PortProbe::of_shard(probes, links.len(), all));
        return probed(model, probe, work, watch);
    }
    let carried = probes.carry.as_ref().map(|carry| {
        let connections = connections(model, carry).into();
        (carry, connections)
    });
    let probe = |links: &[Link]| CombinedProbe {
        measure: settings.measure.then(|| measure(links)),
        ports: probes.of_ports().then(|| PortProbe::of_shard(probes, links.len(), all)),
        carried: carried.as_ref().map(|(carry, connections)| {
            let deployment = Deployment::new(settings);
            HeaderProbe::new(
                carry,
                model.total_packets,
                Arc::clone(connections),
                deployment,
                settings,
            )
        }),
    };
    probed(model, probe, work, watch)
}

/// Simulates with the probes that `probe` makes for each shard.
fn probed<P: Probe + Send + Into<CombinedProbe>>(
    model: &Model<'_>,
    probe: impl Fn(&[Link]) -> P + Sync,
    work: Parallelism,
    watch: Watch<'_>,
) -> Result<Outcome, EngineError> {
    let (mut outcome, shards) = run(model, probe, work.threads, (watch, None))?;
    let (mut measured, mut tables) = (Vec::new(), Vec::new());
    for Shard { probe, links, .. } in shards {
        let CombinedProbe { measure, ports, carried } = probe.into();
        measured.extend(measure);
        tables.push(ShardProbes { ports, carried, global: links.global_numbers() });
    }
    (outcome.window_ps, outcome.samples, outcome.truth) =
        WindowProbe::join(measured, outcome.end_ps, work.threads);
    outcome.probed =
        ProbeTables::join(tables, outcome.end_ps, &model.fabric.link_reverse, work.threads);
    Ok(outcome)
}

fn run<'w, P: Probe + Send>(
    model: &'w Model<'w>,
    probe: impl Fn(&[Link]) -> P + Sync,
    threads: usize,
    (watch, decide): Callbacks<'_>,
) -> Result<(Outcome, Vec<Shard<'w, P>>), EngineError> {
    let (shards, end) = run_windows(model, probe, threads, watch, decide);
    if end == RunEnd::TooLong {
        let time_ps = shards.iter().map(|shard| shard.end).max().unwrap_or(0);
        return Err(EngineError::TooLong { time_ps, limit_ps: MAX_TIME_PS });
    }
    if end == RunEnd::Complete {
        if shards.iter().any(|shard| shard.unfinished() > 0) {
            return Err(deadlock::explain(model, &shards));
        }
        assert_conserved(model, &shards, &left_out(model, &shards));
    }
    Ok((outcome(model, &shards, end == RunEnd::Complete), shards))
}

/// Whether each message belongs to steps left out; empty if none does.
fn left_out<P>(model: &Model<'_>, shards: &[Shard<'_, P>]) -> Vec<bool> {
    let gates = shards.first().and_then(|shard| shard.gates.as_ref());
    gates.map(|gates| gates.left_out(&model.program)).unwrap_or_default()
}

/// Asserts that every packet was delivered once and every credit returned.
fn assert_conserved<P>(model: &Model<'_>, shards: &[Shard<'_, P>], left_out: &[bool]) {
    let delivered: u64 = shards.iter().map(|shard| shard.delivered).sum();
    let messages = left_out.iter().zip(&model.program.messages).filter(|&(&out, _)| out);
    let missing: u64 =
        messages.map(|(_, message)| u64::from(packets_of(message, &model.settings))).sum();
    assert_eq!(delivered, model.total_packets - missing, "packets delivered");
    let buffer = model.settings.buffer_bytes;
    for shard in shards {
        assert_eq!(shard.packets.live(), 0, "packets left in the network");
        assert!(shard.virtual_circuits.is_empty(), "circuits left open");
        assert!(shard.congestion.lights.all_green(), "lights left red");
        assert!(shard.pauses.all_open(), "lanes left paused");
        for (lane, credit) in shard.links.credit().enumerate() {
            assert_eq!(credit, buffer, "credit of lane {lane} of shard {}", shard.number);
        }
    }
}

fn outcome<P>(model: &Model<'_>, shards: &[Shard<'_, P>], complete: bool) -> Outcome {
    let end_ps = shards.iter().map(|shard| shard.end).max().unwrap_or(0);
    let ranks = (0..model.placement.node.len() as u32).map(|rank| {
        let shard = &shards[model.shard_of_rank(rank)];
        RankLog::new(&shard.ranks[model.local_rank(rank) as usize], end_ps)
    });
    Outcome {
        messages: MessageLog::new(model, shards, &left_out(model, shards)),
        ranks: ranks.collect(),
        computations: computations(shards),
        packets: shards.iter().map(|shard| shard.delivered).sum(),
        packet_hops: shards.iter().map(|shard| shard.packet_hops).sum(),
        refused: shards.iter().map(|shard| shard.virtual_circuits.refused).sum(),
        marked: shards.iter().map(|shard| shard.congestion.marked).sum(),
        notifications: shards.iter().map(|shard| shard.congestion.notifications).sum(),
        pauses: shards.iter().map(|shard| shard.pauses.pauses).sum(),
        paused_ps: shards.iter().map(|shard| shard.pauses.paused_ps).sum(),
        events: shards.iter().map(|shard| shard.events).sum(),
        adapters_shared: shards.iter().any(|shard| shard.adapters_shared),
        end_ps,
        complete,
        window_ps: 0,
        samples: Samples::default(),
        truth: TruthTable::default(),
        step_truth: TruthTable::default(),
        step_passes: PassTable::default(),
        probed: ProbeTables::default(),
    }
}

/// When each rank began each of its computations, by rank and time.
fn computations<P>(shards: &[Shard<'_, P>]) -> Vec<(u32, u64)> {
    let mut all: Vec<_> =
        shards.iter().flat_map(|shard| shard.computations.iter().flatten()).copied().collect();
    // A stable sort keeps the computations of a rank in order of time.
    all.sort_by_key(|&(rank, _)| rank);
    all
}

/// A lower bound on the length of a run: its busiest rank computes and sends, and its busiest node
/// receives, at line rate.
fn minimum_duration_ps(model: &Model<'_>, program: &Program) -> u64 {
    let Model { plan, placement, .. } = model;
    let ps_per_byte = |link: u32| ps_per_byte(model, link);
    let network = || model.program.messages.iter().filter(|message| !model.same_host(message));
    let mut sent = vec![0u64; program.n_ranks()];
    for message in network() {
        let rank = &mut sent[message.src as usize];
        *rank = rank.saturating_add(message.bytes);
    }
    let length = |rank: usize| {
        let ops = program.rank_start[rank] as usize..program.rank_start[rank + 1] as usize;
        let computing = program.kind[ops.clone()].iter().zip(&program.amount[ops]);
        let computing = computing.filter(|&(&kind, _)| kind == 0).map(|(_, &ps)| ps);
        let compute = computing.fold(0u64, u64::saturating_add);
        let rate = ps_per_byte(plan.injection[placement.node[rank] as usize]);
        // Sending may overlap with computing.
        placement.start_ps[rank] + compute.max(sent[rank].saturating_mul(rate))
    };
    let mut received = vec![0u64; model.fabric.n_nodes as usize];
    for message in network() {
        let node = &mut received[placement.node[message.dst as usize] as usize];
        *node = node.saturating_add(message.bytes);
    }
    let receiving = received.into_iter().zip(&plan.ejection).map(|(bytes, &link)| {
        // The last packet counts from its start.
        bytes.saturating_sub(model.settings.packet_bytes.into()).saturating_mul(ps_per_byte(link))
    });
    let receiving = receiving.filter(|_| model.settings.contention);
    (0..program.n_ranks()).map(length).chain(receiving).max().unwrap_or(0)
}

/// A lower bound on the time of the first check: the busiest rank computes and sends until then, at
/// line rate.
fn minimum_until_check_ps(model: &Model<'_>) -> u64 {
    let Some(gates) = &model.gates else { return 0 };
    let Some(check) = gates.check() else { return 0 };
    let placement = model.placement;
    let length = |rank: usize| {
        let rate = ps_per_byte(model, model.plan.injection[placement.node[rank] as usize]);
        let (mut compute, mut sent) = (0u64, 0u64);
        for op in gates.operations(&model.program, rank, 0..check.at) {
            if let Op::Compute(ps) = *op {
                compute = compute.saturating_add(ps);
            } else if let Some(message) = op.message() {
                let message = &model.program.messages[message as usize];
                let bytes = if model.same_host(message) { 0 } else { message.bytes };
                sent = sent.saturating_add(bytes);
            }
        }
        placement.start_ps[rank].saturating_add(compute.max(sent.saturating_mul(rate)))
    };
    (0..placement.node.len()).map(length).max().unwrap_or(0)
}

/// Time of a byte at line rate, rounded down.
fn ps_per_byte(model: &Model<'_>, link: u32) -> u64 {
    (8000.0 / model.fabric.link_gbps[link as usize]) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Routing;
    use tailback_fabric::{Routes, RoutingRule, fat_tree};

    /// The message of the conservation check after `happens` has changed the only shard of an
    /// idle network.
    fn panic_message(happens: impl FnOnce(&mut Shard<'_, NullProbe>)) -> Option<String> {
        let shape =
            fat_tree::Shape { pods: 0, cores: 0, aggregation_uplinks: 0, ..fat_tree::Shape::FULL };
        let fabric = fat_tree::build(&shape).unwrap();
        let routes = Routes::up_down(&fabric).unwrap();
        let plan = RoutePlan::new(&fabric, RoutingRule::Table(routes)).unwrap();
        let settings =
            Settings { routing: Routing::VirtualCircuit, vc_entries: 1, ..Settings::default() };
        let program = Program { rank_start: vec![0], ..Program::default() };
        let placement = Placement::default();
        let model = Model::new(&fabric, &plan, &settings, &program, &placement, 1).unwrap();
        let mut shards = [model.shard(0, |_| NullProbe)];
        happens(&mut shards[0]);
        let check = std::panic::AssertUnwindSafe(|| assert_conserved(&model, &shards, &[]));
        let panicked = std::panic::catch_unwind(check).err()?;
        let text = panicked.downcast_ref::<String>().cloned();
        text.or_else(|| panicked.downcast_ref::<&str>().map(|&text| text.to_owned()))
    }

    #[test]
    fn the_conservation_check_finds_losses() {
        assert_eq!(panic_message(|_| ()), None);
        let notices = |happens: fn(&mut Shard<'_, NullProbe>), what: &str| {
            let message = panic_message(happens).expect(what);
            assert!(message.contains(what), "{message}");
        };
        notices(|shard| shard.delivered += 1, "packets delivered");
        notices(|shard| assert!(shard.packets.make() < 9), "packets left in the network");
        notices(|shard| assert!(shard.links.take_credit(7, 1, 0)), "credit of lane 7");
        notices(|shard| shard.links.lane_mut(7).add(1), "credit of lane 7");
        let open = |shard: &mut Shard<'_, NullProbe>| {
            shard.virtual_circuits.route(0, 0, (true, false), 0, 0..1);
        };
        notices(open, "circuits left open");
    }
}
