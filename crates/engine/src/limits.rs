//! Limits of the engine's number formats; larger inputs are refused before the run.

use tailback_fabric::{Fabric, RoutePlan};
use tailback_program::ProgramError;

use crate::network::cable::{Cable, distinct};
use crate::network::link::{Links, NIL};
use crate::program::{Placement, Program};
use crate::settings::MAX_TIME_PS;
use crate::{EngineError, Settings};

/// Checks the sizes, messages and times of a run.
pub(crate) fn check(
    fabric: &Fabric,
    plan: &RoutePlan,
    settings: &Settings,
    program: &Program,
    placement: &Placement,
) -> Result<(), EngineError> {
    check_sizes(fabric, plan, program, placement)?;
    check_carried(fabric, settings)?;
    check_messages(program, settings)?;
    check_local(program, settings)?;
    check_times(program, placement)
}

/// No message takes longer than [`MAX_TIME_PS`] through the memory of a host.
fn check_local(program: &Program, settings: &Settings) -> Result<(), EngineError> {
    let sends = program.kind.iter().zip(&program.amount).filter(|&(&kind, _)| kind == 1);
    let most = sends.map(|(_, &bytes)| bytes).max().unwrap_or(0);
    match settings.local_ps(most) {
        Some(_) => Ok(()),
        None => Err(EngineError::Setting {
            field: "local_rate",
            value: format!("{} Gb/s", settings.local_gbps),
            valid: format!("fast enough for the largest message, {most} B, in 53 days"),
        }),
    }
}

/// A recorded packet carries the link in 24 bits.
fn check_carried(fabric: &Fabric, settings: &Settings) -> Result<(), EngineError> {
    const LIMIT: u64 = (1 << 24) - 2;
    let value = fabric.n_links() as u64;
    if settings.probes.carry.is_some() && value > LIMIT {
        let what = "links of a run that keeps packets";
        return Err(EngineError::TooLarge { what, value, limit: LIMIT });
    }
    Ok(())
}

/// Packets of a message are counted in 32 bits.
fn check_messages(program: &Program, settings: &Settings) -> Result<(), EngineError> {
    const LIMIT: u64 = u32::MAX as u64;
    let sends = program.kind.iter().zip(&program.amount).filter(|&(&kind, _)| kind == 1);
    let most = sends.map(|(_, &bytes)| bytes.div_ceil(settings.packet_bytes.into())).max();
    match most {
        Some(value) if value > LIMIT => {
            Err(EngineError::TooLarge { what: "packets of a message", value, limit: LIMIT })
        }
        _ => Ok(()),
    }
}

/// No rank starts, and no computation lasts, beyond [`MAX_TIME_PS`].
fn check_times(program: &Program, placement: &Placement) -> Result<(), EngineError> {
    let computing = program.kind.iter().zip(&program.amount).filter(|&(&kind, _)| kind == 0);
    let times = computing.map(|(_, &ps)| ("picoseconds that a rank computes", ps));
    let starts = placement.start_ps.iter().map(|&ps| ("picoseconds before a rank starts", ps));
    match times.chain(starts).find(|&(_, ps)| ps > MAX_TIME_PS) {
        Some((what, value)) => Err(EngineError::TooLarge { what, value, limit: MAX_TIME_PS }),
        None => Ok(()),
    }
}

/// Ports of a switch are numbered in 16 bits.
const MAX_PORTS: usize = u16::MAX as usize;

fn check_sizes(
    fabric: &Fabric,
    plan: &RoutePlan,
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
    let ports = |switch: u32| fabric.out_links(fabric.n_nodes + switch).len();
    let most = (0..fabric.n_switches).map(ports).max().unwrap_or(0);
    if most > MAX_PORTS {
        let (value, limit) = (most as u64, MAX_PORTS as u64);
        return Err(EngineError::TooLarge { what: "ports of a switch", value, limit });
    }
    placement.check(ranks, fabric.n_nodes)?;
    let wire = |link: usize| Cable::new(fabric.link_gbps[link], fabric.link_delay_ps[link]);
    let wires = distinct((0..fabric.n_links()).map(wire)).0.len();
    if wires > Links::MAX_CABLES {
        let (value, limit) = (wires as u64, Links::MAX_CABLES as u64);
        return Err(EngineError::TooLarge { what: "pairs of link rate and delay", value, limit });
    }
    if let Some(link) = fabric.link_gbps.iter().position(|&gbps| gbps < Cable::MIN_GBPS) {
        return Err(EngineError::Setting {
            field: "link rate",
            value: format!("{} Gb/s at link {link}", fabric.link_gbps[link]),
            valid: format!("at least {} Gb/s", Cable::MIN_GBPS),
        });
    }
    if let Some(link) = fabric.link_delay_ps.iter().position(|&ps| ps > Cable::MAX_DELAY_PS) {
        return Err(EngineError::Setting {
            field: "link delay",
            value: format!("{} ps at link {link}", fabric.link_delay_ps[link]),
            valid: format!("at most {} ps", Cable::MAX_DELAY_PS),
        });
    }
    if let Some(&label) = program.label.iter().max()
        && (label as usize >= placement.label_observed.len() || label == NIL)
    {
        let problem = format!("label {label} does not exist");
        return Err(ProgramError::Operation { rank: 0, operation: 0, problem }.into());
    }
    Ok(())
}
