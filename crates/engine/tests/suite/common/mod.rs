//! Shared by the engine's tests: default settings, and short notations for programs.

pub mod ethernet;
pub mod fabrics;

use std::ops::ControlFlow;

use tailback_engine::{
    CongestionControl, CongestionScheme, EngineError, Outcome, Parallelism, Placement, Program,
    Settings, simulate,
};
use tailback_fabric::fat_tree::{Shape, build};
use tailback_fabric::{Fabric, RoutePlan, Routes, RoutingRule};

/// Two-level tree: 4 leaves of 4 hosts, 2 spines, 100 Gb/s, 10 ns cables.
pub const SMALL: Shape = Shape {
    hosts_per_leaf: 4,
    leaves: 4,
    aggregation: 2,
    pods: 0,
    cores: 0,
    leaf_cables: 1,
    aggregation_uplinks: 0,
    gbps: [100.0; 3],
    delay_ps: [10_000; 3],
};

/// 4 KiB packets without header, 64 KiB buffers, 60 ns switches, no software delay.
pub fn settings() -> Settings {
    Settings { measure: true, windows: 16, ..Settings::default() }
}

/// Congestion control that marks every packet beyond a queue of `threshold_bytes`; a notification costs
/// a packet time after each packet until the timer takes it back.
pub fn control(scheme: CongestionScheme, threshold_bytes: u64, timer_ps: u64) -> CongestionControl {
    CongestionControl {
        scheme,
        threshold_bytes,
        marking_rate: 0,
        packet_bytes: 0,
        victims: false,
        increase: 1,
        limit: 127,
        timer_ps,
        table: (0..128).collect(),
    }
}

/// One operation of a rank.
#[derive(Clone, Copy)]
pub enum Do {
    Compute(u64),
    Send(u32, u64),
    Receive(u32, u64),
    /// A synchronous send.
    Issend(u32, u64),
    /// An acknowledged send.
    Acknowledged(u32, u64),
    /// Wait for the request of the operation with this number.
    Wait(usize),
    WaitAll,
}

pub fn program(ranks: &[Vec<Do>]) -> Program {
    let mut p = Program { rank_start: vec![0], ..Program::default() };
    for ops in ranks {
        for (number, &op) in ops.iter().enumerate() {
            let (kind, peer, amount, request) = match op {
                Do::Compute(ps) => (0, -1, ps, number),
                Do::Send(to, bytes) => (1, to as i32, bytes, number),
                Do::Receive(from, bytes) => (2, from as i32, bytes, number),
                Do::Wait(posted) => (3, -1, 0, posted),
                Do::WaitAll => (4, -1, 0, number),
                Do::Issend(to, bytes) => (5, to as i32, bytes, number),
                Do::Acknowledged(to, bytes) => (6, to as i32, bytes, number),
            };
            p.kind.push(kind);
            p.peer.push(peer);
            p.amount.push(amount);
            p.tag.push(0);
            p.request.push(request as i32);
            p.label.push(0);
        }
        p.rank_start.push(p.kind.len() as u64);
    }
    p
}

/// Messages (source, destination, bytes), all posted at time 0.
pub fn burst(ranks: usize, messages: &[(u32, u32, u64)]) -> Program {
    let mut ops = vec![Vec::new(); ranks];
    for &(src, dst, bytes) in messages {
        ops[dst as usize].push(Do::Receive(src, bytes));
    }
    for &(src, dst, bytes) in messages {
        ops[src as usize].push(Do::Send(dst, bytes));
    }
    for rank in &mut ops {
        rank.push(Do::WaitAll);
    }
    program(&ops)
}

/// Rank i on node i, each a host of its own.
pub fn in_order(ranks: usize) -> Placement {
    Placement {
        node: (0..ranks as u32).collect(),
        host: (0..ranks as u32).collect(),
        start_ps: vec![0; ranks],
        label_observed: vec![true],
        ..Placement::default()
    }
}

pub fn run_on(
    fabric: &Fabric,
    settings: &Settings,
    program: &Program,
) -> Result<Outcome, EngineError> {
    let plan = RoutePlan::new(fabric, RoutingRule::Table(Routes::up_down(fabric)?))?;
    let placement = in_order(program.n_ranks());
    simulate(fabric, &plan, settings, program, &placement, Parallelism::default(), &mut |_| {
        ControlFlow::Continue(())
    })
}

pub fn run(settings: &Settings, program: &Program) -> Outcome {
    run_on(&build(&SMALL).unwrap(), settings, program).unwrap()
}
