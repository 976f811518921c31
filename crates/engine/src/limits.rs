//! Limits of the engine's number formats; larger inputs are refused before the run.

use tailback_fabric::{Fabric, RoutePlan};
use tailback_program::{OpKind, ProgramError};

use crate::EngineError;
use crate::error::FLOW_CONTROL;
use crate::network::cable::{Cable, distinct};
use crate::network::link::{Links, NIL};
use crate::program::{Placement, Program};
use crate::settings::units::{MAX_TIME_PS, size, time};
use crate::settings::{FlowControl, Settings};

/// Checks the sizes, messages and times of a run that executes `program` so many `times`.
pub(crate) fn check(
    fabric: &Fabric,
    plan: &RoutePlan,
    settings: &Settings,
    program: &Program,
    placement: &Placement,
    times: usize,
) -> Result<(), EngineError> {
    check_sizes(fabric, plan, program, times)?;
    placement.check(program.n_ranks(), fabric.n_nodes)?;
    check_links(fabric)?;
    check_labels(program, placement)?;
    check_recorded_links(fabric, settings)?;
    check_flow_control(fabric, settings)?;
    check_messages(program, settings)?;
    check_local(program, placement, settings)?;
    check_copies(program, settings)?;
    check_times(program, placement)
}

/// Bytes of the largest message.
fn largest_message(program: &Program) -> u64 {
    const SENDS: [u8; 3] =
        [OpKind::Isend as u8, OpKind::Issend as u8, OpKind::AcknowledgedSend as u8];
    let sends = program.kind.iter().zip(&program.amount).filter(|(kind, _)| SENDS.contains(kind));
    sends.map(|(_, &bytes)| bytes).max().unwrap_or(0)
}

/// No message takes longer than [`MAX_TIME_PS`] through the memory of a host.
fn check_local(
    program: &Program,
    placement: &Placement,
    settings: &Settings,
) -> Result<(), EngineError> {
    let most = largest_message(program);
    let gbps = placement.slowest_local_rate(settings.local_gbps);
    match settings.local_ps(most, gbps) {
        Some(_) => Ok(()),
        None => Err(EngineError::Setting {
            section: "engine",
            key: "local_rate",
            value: format!("{gbps} Gb/s"),
            problem: format!("takes more than 53 days for the largest message, {}", size(most)),
            remedy: "give a higher rate, like 80 Gb/s".into(),
        }),
    }
}

/// No processor copies a message for longer than [`MAX_TIME_PS`].
fn check_copies(program: &Program, settings: &Settings) -> Result<(), EngineError> {
    let most = largest_message(program).min(settings.eager_bytes);
    let gbps = settings.copy_gbps;
    if gbps == 0.0 || most as f64 * 8000.0 / gbps <= MAX_TIME_PS as f64 {
        return Ok(());
    }
    Err(EngineError::Setting {
        section: "engine",
        key: "copy_rate",
        value: format!("{gbps} Gb/s"),
        problem: format!("takes more than 53 days for a message of {}", size(most)),
        remedy: "give a higher rate, like 80 Gb/s".into(),
    })
}

/// A recorded packet carries the link in 24 bits.
fn check_recorded_links(fabric: &Fabric, settings: &Settings) -> Result<(), EngineError> {
    if settings.probes.carry.is_none() {
        return Ok(());
    }
    let remedy = "record no packets: [telemetry] scheme = \"full\" without packets";
    at_most("links of a run that records packets", fabric.n_links() as u64, (1 << 24) - 2, remedy)
}

/// Packets of a message are counted in 32 bits.
fn check_messages(program: &Program, settings: &Settings) -> Result<(), EngineError> {
    let packets = largest_message(program).div_ceil(settings.packet_bytes.into());
    let remedy = "give a larger [engine] packet, or check the sizes of the messages";
    at_most("packets of a message", packets, u32::MAX.into(), remedy)
}

/// No rank starts, and no computation lasts, beyond [`MAX_TIME_PS`].
fn check_times(program: &Program, placement: &Placement) -> Result<(), EngineError> {
    if let Some(rank) = placement.start_ps.iter().position(|&ps| ps > MAX_TIME_PS) {
        let ps = placement.start_ps[rank];
        return Err(EngineError::LongTime { what: "starts after", rank, ps });
    }
    let operations = program.kind.iter().zip(&program.amount);
    let too_long = |(&kind, &ps): (&u8, &u64)| kind == OpKind::Compute as u8 && ps > MAX_TIME_PS;
    match operations.map(too_long).position(|too_long| too_long) {
        Some(operation) => {
            let first = |&first: &u64| first <= operation as u64;
            let rank = program.rank_start.partition_point(first).saturating_sub(1);
            let ps = program.amount[operation];
            Err(EngineError::LongTime { what: "computes for", rank, ps })
        }
        None => Ok(()),
    }
}

fn at_most(
    what: &'static str,
    value: u64,
    limit: u64,
    remedy: &'static str,
) -> Result<(), EngineError> {
    if value <= limit {
        return Ok(());
    }
    Err(EngineError::TooMany { what, value, limit, remedy })
}

/// Ports of a switch are numbered in 16 bits, from 0. A packet has one port fewer to choose from,
/// because it came by another one.
const MAX_PORTS: usize = 1 << 16;

fn check_sizes(
    fabric: &Fabric,
    plan: &RoutePlan,
    program: &Program,
    times: usize,
) -> Result<(), EngineError> {
    const LIMIT: u64 = (1 << 28) - 1;
    const FEWER_LANES: &str = "use fewer [engine] services or a smaller fabric";
    const LESS_TRAFFIC: &str = "simulate fewer jobs, ranks or repetitions";
    let lanes = fabric.n_links() as u64 * u64::from(plan.lanes());
    at_most("lanes of links", lanes, LIMIT, FEWER_LANES)?;
    at_most("ranks", program.n_ranks() as u64, LIMIT, LESS_TRAFFIC)?;
    let operations = (program.kind.len() as u64).saturating_mul(times as u64);
    at_most("operations of ranks", operations, LIMIT, LESS_TRAFFIC)?;
    let ports = |switch: u32| fabric.out_links(fabric.n_nodes + switch).len();
    let most = (0..fabric.n_switches).map(ports).max().unwrap_or(0);
    let remedy = "split the switch, or connect fewer cables to it";
    at_most("ports of a switch", most as u64, MAX_PORTS as u64, remedy)
}

/// Rates and delays that a [`Cable`] can represent, and not too many different ones.
fn check_links(fabric: &Fabric) -> Result<(), EngineError> {
    if let Some(link) = fabric.link_gbps.iter().position(|&gbps| gbps < Cable::MIN_GBPS) {
        let value = format!("{} Gb/s", fabric.link_gbps[link]);
        let remedy = format!("give at least {} Gb/s", Cable::MIN_GBPS);
        return Err(EngineError::Link { link, quantity: "rate", value, remedy });
    }
    if let Some(link) = fabric.link_delay_ps.iter().position(|&ps| ps > Cable::MAX_DELAY_PS) {
        let value = time(fabric.link_delay_ps[link]);
        let remedy = "give at most 4.29 ms".into();
        return Err(EngineError::Link { link, quantity: "delay", value, remedy });
    }
    let cable = |link: usize| Cable::new(fabric.link_gbps[link], fabric.link_delay_ps[link]);
    let cables = distinct((0..fabric.n_links()).map(cable)).0.len();
    let remedy = "round the rates and delays of the cables";
    at_most("pairs of link rate and delay", cables as u64, Links::MAX_CABLES as u64, remedy)
}

fn check_labels(program: &Program, placement: &Placement) -> Result<(), EngineError> {
    if let Some(&label) = program.label.iter().max()
        && (label as usize >= placement.label_observed.len() || label == NIL)
    {
        let problem = format!("label {label} does not exist");
        return Err(ProgramError::Operation { rank: 0, operation: 0, problem }.into());
    }
    Ok(())
}

impl Settings {
    /// Bytes that arrive after a buffer has decided to pause its sender, at most: what the cable
    /// holds in both directions, and a packet each that crosses the threshold, that has just begun,
    /// and that had just begun when the PAUSE arrives.
    pub fn headroom_bytes(&self, gbps: f64, delay_ps: u64) -> u64 {
        let cable = Cable::new(gbps, delay_ps);
        let packet = u64::from(self.wire_bytes(self.packet_bytes));
        cable.bytes_in(2 * u64::from(cable.delay)) + 3 * packet + 1
    }
}

/// Checks the thresholds of priority flow control, and that no cable of `fabric` needs more
/// headroom than the buffer has above them.
fn check_flow_control(fabric: &Fabric, settings: &Settings) -> Result<(), EngineError> {
    let FlowControl::Pfc { xoff_bytes, xon_bytes } = settings.flow_control else { return Ok(()) };
    if xon_bytes > xoff_bytes {
        let problem = format!("is above xoff = {}", size(xoff_bytes.into()));
        let remedy = "give at most xoff, or leave xon out";
        return FLOW_CONTROL.refuse("xon", size(xon_bytes.into()), problem, remedy);
    }
    let of_link =
        |link: usize| settings.headroom_bytes(fabric.link_gbps[link], fabric.link_delay_ps[link]);
    let headroom = (0..fabric.n_links()).map(of_link).max().unwrap_or(0);
    let least = u64::from(xoff_bytes) + headroom;
    if u64::from(settings.buffer_bytes) < least {
        let problem = format!(
            "leaves less than the {} of headroom that priority flow control needs above xoff = {}",
            size(headroom),
            size(xoff_bytes.into())
        );
        let remedy = format!("give [engine] buffer at least {}, or lower xoff", size(least));
        return FLOW_CONTROL.refuse("xoff", size(settings.buffer_bytes.into()), problem, remedy);
    }
    Ok(())
}
