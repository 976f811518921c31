//! Arbitration: shares under first come first served and under round-robin, virtual lanes and their
//! weights, crossbar speed, queues per destination, congestion control.

use std::ops::ControlFlow;

use crate::common::*;
use tailback_engine::{
    Arbitration, CongestionControl, CongestionScheme, Injection, Outcome, Pacing, PacingOffset,
    Parallelism, Placement, Routing, Settings, simulate,
};
use tailback_fabric::{CableList, Fabric, RoutePlan, Routes, RoutingRule};

const PACKET: u64 = 4096;
const WIRE: u64 = PACKET * 80;

/// Switches in a row with `hosts` nodes each; 100 Gb/s, 10 ns cables.
fn row(hosts: &[u32]) -> Fabric {
    row_with(hosts, 100.0)
}

/// The same with `gbps` between switches.
fn row_with(hosts: &[u32], gbps: f64) -> Fabric {
    let nodes: u32 = hosts.iter().sum();
    let mut cables = CableList::new(nodes as usize + hosts.len());
    let mut node = 0;
    for (switch, &count) in hosts.iter().enumerate() {
        for _ in 0..count {
            cables.add(node, nodes + switch as u32, 100.0, 10_000);
            node += 1;
        }
    }
    for switch in 1..hosts.len() as u32 {
        cables.add(nodes + switch - 1, nodes + switch, gbps, 10_000);
    }
    cables.finish(nodes, (0..hosts.len() as i32).collect(), vec![0; hosts.len()]).unwrap()
}

fn run_row(
    fabric: &Fabric,
    settings: &Settings,
    messages: &[(u32, u32, u64)],
    service: &[u8],
) -> Outcome {
    let mut program = burst(fabric.n_nodes as usize, messages);
    // The label of a message is its sender's number.
    for rank in 0..fabric.n_nodes {
        let ops = program.rank_start[rank as usize]..program.rank_start[rank as usize + 1];
        for op in ops {
            program.label[op as usize] = rank;
        }
    }
    let plan =
        RoutePlan::new(fabric, RoutingRule::Table(Routes::up_down(fabric).unwrap())).unwrap();
    let placement = Placement {
        label_observed: vec![true; fabric.n_nodes as usize],
        label_service: service.to_vec(),
        ..in_order(fabric.n_nodes as usize)
    };
    let mut watch = |_| ControlFlow::Continue(());
    simulate(fabric, &plan, settings, &program, &placement, Parallelism::default(), &mut watch)
        .unwrap()
}

/// Share of each sender in the bytes delivered to the node until the first message is complete.
fn shares(fabric: &Fabric, settings: &Settings, senders: &[u32], to: u32) -> Vec<f64> {
    let bytes = 400 * PACKET;
    let messages: Vec<_> = senders.iter().map(|&src| (src, to, bytes)).collect();
    let outcome = run_row(fabric, settings, &messages, &[]);
    let first = *outcome.messages.arrival_ps.iter().min().unwrap();
    // All senders have a steady rate until the first message is complete, and the node's link is
    // always full. The shares follow from the completion times. With two senders: share = first
    // served / line rate.
    senders.iter().map(|_| bytes as f64 * 80.0 / first as f64).collect()
}

fn round_robin() -> Settings {
    Settings { arbitration: Arbitration::RoundRobin, ..settings() }
}

/// Parking lot (Dally and Towles, 2004, 15.4.1). With round-robin at each switch of a row, the
/// sender next to the destination gets half of its link, the next a quarter, and so on.
#[test]
fn a_parking_lot_halves_shares_under_round_robin() {
    let fabric = row(&[2, 1, 1, 1]);
    // Node 0 receives; nodes 1 (same switch), 2, 3, 4 send from further and further away.
    let share = shares(&fabric, &round_robin(), &[1, 2, 3, 4], 0)[0];
    assert!((share - 0.5).abs() < 0.02, "nearest sender: {share}");
    // Under first come, first served, packets are served in the order in which they arrive at the
    // last switch. The row delivers at line rate there, like the near sender, so the near sender
    // gets half as well.
    let fcfs = shares(&fabric, &settings(), &[1, 2, 3, 4], 0)[0];
    assert!((fcfs - 0.5).abs() < 0.02, "nearest sender: {fcfs}");
}

/// Three local senders against one remote: four inputs, a quarter each.
#[test]
fn round_robin_gives_inputs_equal_shares() {
    let fabric = row(&[4, 3]);
    let senders = [1, 2, 3, 4, 5, 6];
    let near = shares(&fabric, &round_robin(), &senders, 0)[0];
    assert!((near - 0.25).abs() < 0.02, "{near}");
}

/// Lanes of weights 3 and 1 share a full link 3 : 1.
#[test]
fn lane_weights_divide_a_full_link() {
    let fabric = row(&[2, 2]);
    let settings = Settings {
        services: 2,
        lane_weights: vec![3 * PACKET as u32, PACKET as u32],
        ..settings()
    };
    let bytes = 300 * PACKET;
    let messages = [(2, 0, bytes), (3, 1, bytes)];
    let outcome = run_row(&fabric, &settings, &messages, &[0, 0, 0, 1]);
    let heavy = outcome.messages.arrival_ps[0] as f64;
    let full = (bytes * 80) as f64;
    assert!((full / heavy - 0.75).abs() < 0.02, "heavy lane's share: {}", full / heavy);
    let both = outcome.messages.arrival_ps[1] as f64;
    assert!((both / (2.0 * full) - 1.0).abs() < 0.02, "the link is full all along");
}

/// A lane without credit does not delay another. With one lane, the flow to the idle node is as
/// slow as the flow to the busy node (the victim of Alali et al., 2017, Fig. 1). With two lanes, it
/// has its own rate.
#[test]
fn a_second_lane_frees_the_victim() {
    // Nodes 0, 1 on the first switch; 2, 3 on the second: 2 floods 0 which is busy with 1 as well.
    let fabric = row(&[4, 2]);
    let bytes = 100 * PACKET;
    let messages = [(4, 0, bytes), (2, 0, bytes), (3, 0, bytes), (5, 1, bytes)];
    let time = |services, service: &[u8]| {
        let settings = Settings { services, buffer_bytes: 8192, ..round_robin() };
        let outcome = run_row(&fabric, &settings, &messages, service);
        let victim = outcome.messages.src.iter().position(|&src| src == 5).unwrap();
        outcome.messages.arrival_ps[victim]
    };
    let alone = bytes * 80;
    let shared = time(1, &[]);
    let apart = time(2, &[0, 0, 0, 0, 0, 1]);
    assert!(shared > 25 * alone / 10, "one lane: {shared} against {alone}");
    assert!(apart < 16 * alone / 10, "two lanes: {apart} against {alone}");
}

/// With a crossbar as fast as its inputs, two outputs fed from one input port get half of its rate
/// each.
#[test]
fn the_crossbar_limits_an_input() {
    let fabric = row(&[2, 1]);
    let bytes = 200 * PACKET;
    // One sender, line rate: a speed-up of one half is half the rate.
    let time = |crossbar_speedup| {
        let settings = Settings { crossbar_speedup, ..settings() };
        run_row(&fabric, &settings, &[(0, 1, bytes)], &[]).messages.arrival_ps[0] as f64
    };
    let full = (bytes * 80) as f64;
    assert!((time(1.0) / full - 1.0).abs() < 0.02);
    assert!((time(0.5) / full - 2.0).abs() < 0.02, "{}", time(0.5) / full);
    assert_eq!(time(0.0), time(8.0));
}

/// An input is read at the rate at which packets arrive, whatever the opposite direction carries.
#[test]
fn an_input_is_read_at_its_link_rate() {
    let mut fabric = row(&[2, 1]);
    let settings = Settings { crossbar_speedup: 1.0, ..settings() };
    let messages = [(0, 1, 200 * PACKET)];
    let before = run_row(&fabric, &settings, &messages, &[]).end_ps;
    let into = fabric.link_dst.iter().position(|&dst| dst == 0).unwrap();
    fabric.link_gbps[into] = 1.0;
    assert_eq!(run_row(&fabric, &settings, &messages, &[]).end_ps, before);
}

/// Queues per destination: a large message does not delay a small one to another node.
#[test]
fn queues_per_destination_let_small_messages_pass() {
    let fabric = row(&[3]);
    let messages = [(0, 1, 500 * PACKET), (0, 2, 2 * PACKET)];
    let small = |injection| {
        let settings = Settings { injection, ..settings() };
        run_row(&fabric, &settings, &messages, &[]).messages.arrival_ps[1]
    };
    assert!(small(Injection::Fifo) > 500 * WIRE);
    assert!(small(Injection::PerDestination) < 6 * WIRE);
}

/// Congestion control at an incast keeps the victim near its own rate. The incast itself is no
/// slower: it takes as long as its link needs.
#[test]
fn congestion_control_frees_the_victim_on_one_lane() {
    // Twice the rate between switches: only the link of node 0 is overloaded.
    let fabric = row_with(&[4, 2], 200.0);
    let bytes = 400 * PACKET;
    let messages = [(4, 0, bytes), (2, 0, bytes), (3, 0, bytes), (5, 1, bytes / 4)];
    let run = |congestion_control: Option<CongestionControl>| {
        let settings = Settings {
            injection: Injection::PerDestination,
            routing: Routing::Deterministic,
            buffer_bytes: 16384,
            congestion_control,
            ..round_robin()
        };
        let outcome = run_row(&fabric, &settings, &messages, &[]);
        let victim = outcome.messages.src.iter().position(|&src| src == 5).unwrap();
        (outcome.messages.arrival_ps[victim], outcome.end_ps)
    };
    let control = control(CongestionScheme::Infiniband, 4 * PACKET, 10_000_000);
    let (victim_without, end_without) = run(None);
    let (victim_with, end_with) = run(Some(control));
    assert!(victim_with * 3 < victim_without * 2, "{victim_with} against {victim_without}");
    assert!(end_with as f64 <= 1.5 * end_without as f64, "{end_with} against {end_without}");
}

/// With offset `shift`, the start within the interval is proportional to the distance from source
/// to destination. With offset `random`, it differs by flow and seed.
fn paced_flows_begin_where_they_are_told() {
    let fabric = row(&[4]);
    let plan =
        RoutePlan::new(&fabric, RoutingRule::Table(Routes::up_down(&fabric).unwrap())).unwrap();
    let messages = [(0, 1, 3 * PACKET), (2, 1, 3 * PACKET), (3, 2, 3 * PACKET)];
    let mut program = burst(4, &messages);
    program.pace_mbps = vec![25_000; program.kind.len()];
    let begins = |pacing_offset, seed| {
        let injection = Injection::PerDestination;
        let pacing = Pacing::Elastic { percent: 25 };
        let settings = Settings { seed, injection, pacing, pacing_offset, ..settings() };
        let (placement, work) = (in_order(4), Parallelism::default());
        let mut watch = |_| ControlFlow::Continue(());
        let run = simulate(&fabric, &plan, &settings, &program, &placement, work, &mut watch);
        run.unwrap().messages.start_ps
    };
    let interval = 4 * WIRE;
    assert_eq!(begins(PacingOffset::None, 1), [0, 0, 0]);
    let shifted = begins(PacingOffset::Shift, 1);
    for (start, part) in shifted.into_iter().zip([1, 3, 3]) {
        assert!(start.abs_diff(part * interval / 4) <= 1, "{start}");
    }
    let random: Vec<u64> = (1..4).flat_map(|seed| begins(PacingOffset::Random, seed)).collect();
    assert!(random.iter().all(|&start| start < interval));
    assert!(random.iter().enumerate().all(|(i, start)| !random[..i].contains(start)), "{random:?}");
}

/// The duration of a flow follows from its rate, whatever the pacing. VC routing keeps order
/// (asserted in every run) while it spreads flows that D-mod-k sends over one cable.
#[test]
fn paced_flows_keep_their_rate() {
    let fabric = row(&[2]);
    let bytes = 200 * PACKET;
    let plan =
        RoutePlan::new(&fabric, RoutingRule::Table(Routes::up_down(&fabric).unwrap())).unwrap();
    for pacing in [
        Pacing::LeakyBucket { depth_bytes: 4 * PACKET as u32 },
        Pacing::Spaced,
        Pacing::Elastic { percent: 80 },
    ] {
        let mut program = burst(2, &[(0, 1, bytes)]);
        program.pace_mbps = vec![40_000; program.kind.len()];
        let settings = Settings { injection: Injection::PerDestination, pacing, ..settings() };
        let mut watch = |_| ControlFlow::Continue(());
        let run = simulate(
            &fabric,
            &plan,
            &settings,
            &program,
            &in_order(2),
            Parallelism::default(),
            &mut watch,
        );
        let took = run.unwrap().messages.arrival_ps[0] as f64 / (bytes as f64 * 200.0);
        assert!((took - 1.0).abs() < 0.03, "{pacing:?}: {took}");
    }
    paced_flows_begin_where_they_are_told();
    let tree = tailback_fabric::fat_tree::build(&SMALL).unwrap();
    // Four senders of one leaf to nodes that D-mod-k reaches by one and the same spine.
    let messages: Vec<_> = (0..4).map(|src| (src, 4 + 2 * src, bytes)).collect();
    let run = |routing, vc_entries| {
        let settings = Settings { routing, vc_entries, ..settings() };
        run_row(&tree, &settings, &messages, &[])
    };
    let time = |routing, vc_entries| run(routing, vc_entries).end_ps as f64;
    let refused = [0, 1, 4].map(|entries| run(Routing::VirtualCircuit, entries).refused);
    assert!(refused[0] > refused[1] && refused[1] > 0 && refused[2] == 0, "{refused:?}");
    let oblivious = time(Routing::Deterministic, 0);
    assert!((time(Routing::VirtualCircuit, 0) / oblivious - 1.0).abs() < 1e-9);
    assert!(
        time(Routing::VirtualCircuit, 4) < 0.6 * oblivious,
        "{}",
        time(Routing::VirtualCircuit, 4) / oblivious
    );
}
