//! Closed-form answers the engine must give.

use crate::common::*;
use tailback_engine::{
    Buffering, EngineError, MarkingPoint, MarkingRule, Parallelism, ProgramError, Settings,
    Switching,
};
use tailback_fabric::CableList;
use tailback_fabric::fat_tree::{Shape, build};

const WIRE: u64 = 4096 * 80; // one packet at 100 Gb/s, picoseconds
const CABLE: u64 = 10_000;
const SWITCH: u64 = 60_000;

#[test]
fn a_lone_packet_takes_wire_cables_and_switches() {
    let arrival = |switching| {
        let settings = Settings { switching, ..settings() };
        let outcome = run(&settings, &burst(16, &[(0, 15, 4096)]));
        outcome.messages.arrival_ps[0]
    };
    // Four cables and three switches; cut-through pays the wire once, store-and-forward each time.
    assert_eq!(arrival(Switching::CutThrough), 4 * CABLE + 3 * SWITCH + WIRE);
    assert_eq!(arrival(Switching::StoreAndForward), 4 * CABLE + 3 * SWITCH + 4 * WIRE);
}

#[test]
fn a_long_message_runs_at_line_rate_on_every_speed() {
    for gbps in [8.0, 54.545_454_545_454_55, 100.0, 200.0, 400.0] {
        let fabric = build(&Shape { gbps: [gbps; 3], ..SMALL }).unwrap();
        let bytes = 1 << 22;
        let outcome = run_on(&fabric, &settings(), &burst(16, &[(0, 15, bytes)])).unwrap();
        let wire = bytes as f64 * 8000.0 / gbps;
        let expected = wire + (4 * CABLE + 3 * SWITCH) as f64;
        let measured = outcome.messages.arrival_ps[0] as f64;
        assert!(
            (measured - expected).abs() / expected < 1e-5,
            "{gbps} Gb/s: {measured} {expected}"
        );
    }
}

#[test]
fn small_buffers_limit_throughput_to_buffer_over_round_trip() {
    // One packet of buffer on a long cable: packet, cable, credit back over the cable.
    let delay = 5_000_000;
    let shape = Shape { delay_ps: [delay; 3], leaves: 1, ..SMALL };
    let fabric = build(&shape).unwrap();
    let settings = Settings { buffer_bytes: 4096, ..settings() };
    let packets = 200;
    let outcome = run_on(&fabric, &settings, &burst(4, &[(0, 1, packets * 4096)])).unwrap();
    // The injection link may send again when its packet has left the switch and the credit is back:
    // cable + switch + wire + cable. The ejection link's own loop (wire + 2 cables) is shorter.
    let period = delay + SWITCH + WIRE + delay;
    let expected = (packets - 1) * period + delay + SWITCH + WIRE + delay;
    assert_eq!(outcome.messages.arrival_ps[0], expected);
}

#[test]
fn senders_to_one_node_share_its_link_and_fill_it() {
    // Three senders on the node's own leaf: FCFS shares the ejection link evenly.
    let bytes = 64 * 4096;
    let messages = [(0, 3, bytes), (1, 3, bytes), (2, 3, bytes)];
    let outcome = run(&settings(), &burst(16, &messages));
    let last = *outcome.messages.arrival_ps.iter().max().unwrap();
    assert_eq!(last, 3 * 64 * WIRE + 2 * CABLE + SWITCH);
    let first = *outcome.messages.arrival_ps.iter().min().unwrap();
    assert!(last - first <= 3 * WIRE, "unfair: {first} to {last}");
}

#[test]
fn a_late_joiner_gets_half() {
    // Nodes 0, 1 on leaf A and 2 on leaf B send to node 3 on B: at B's ejection link the shared
    // cable from A and node 2 alternate under FCFS with full queues, so node 2 gets about 1/2.
    let mut cables = CableList::new(6);
    for (node, leaf) in [(0, 4), (1, 4), (2, 5), (3, 5)] {
        cables.add(node, leaf, 100.0, 0);
    }
    cables.add(4, 5, 100.0, 0);
    let fabric = cables.finish(4, vec![0, 0], vec![-1, -1]).unwrap();
    let bytes = 256 * 4096;
    let messages = [(0, 3, bytes), (1, 3, bytes), (2, 3, bytes)];
    let outcome = run_on(&fabric, &settings(), &burst(4, &messages)).unwrap();
    let arrival = &outcome.messages.arrival_ps;
    let lone = arrival[2] as f64;
    // Node 2's message ends when it has had half the link: after 2 × its own wire time.
    let half = 2.0 * bytes as f64 * 80.0;
    assert!((lone / half - 1.0).abs() < 0.05, "{lone} against {half}");
    // Node 2's first packet opens the link one switch away; from then on it is never idle.
    assert_eq!(*arrival.iter().max().unwrap(), 3 * 256 * WIRE + SWITCH);
}

#[test]
fn a_faster_output_waits_for_the_tail() {
    // 25 Gb/s host link into 100 Gb/s: the head holds back so the tail never underruns.
    let shape = Shape { gbps: [25.0, 100.0, 100.0], ..SMALL };
    let fabric = build(&shape).unwrap();
    let outcome = run_on(&fabric, &settings(), &burst(16, &[(0, 15, 4096)])).unwrap();
    let slow = 4 * WIRE;
    // In at 25 (tail at `slow`), two hops at 100 that end when the tail is through, out at 25.
    let expected = 4 * CABLE + 3 * SWITCH + slow - WIRE + slow;
    assert_eq!(outcome.messages.arrival_ps[0], expected);
}

#[test]
fn an_ideal_network_has_no_contention() {
    let bytes = 64 * 4096;
    let messages: Vec<_> = (1..16).map(|src| (src, 0, bytes)).collect();
    let settings = Settings { contention: false, ..settings() };
    let outcome = run(&settings, &burst(16, &messages));
    for (message, &arrival) in outcome.messages.arrival_ps.iter().enumerate() {
        let hops = if message < 3 { (2, 1) } else { (4, 3) };
        assert_eq!(arrival, 64 * WIRE + hops.0 * CABLE + hops.1 * SWITCH);
    }
}

#[test]
fn rendezvous_costs_a_round_trip_of_small_packets() {
    let eager = run(&settings(), &burst(16, &[(0, 15, 4096)]));
    let shaken = Settings { eager_bytes: 1024, ..settings() };
    let shaken = run(&shaken, &burst(16, &[(0, 15, 4096)]));
    let trip = 4 * CABLE + 3 * SWITCH + 32 * 80;
    let delta = shaken.messages.arrival_ps[0] - eager.messages.arrival_ps[0];
    assert_eq!(delta, 2 * trip);
}

#[test]
fn an_unposted_receive_holds_a_rendezvous_back() {
    let late = 1_000_000_000;
    let ranks = vec![
        vec![Do::Send(1, 8192), Do::WaitAll],
        vec![Do::Compute(late), Do::Receive(0, 8192), Do::WaitAll],
    ];
    let settings = Settings { eager_bytes: 0, ..settings() };
    let outcome = run(&settings, &program(&ranks));
    assert!(outcome.messages.start_ps[0] > late);
    assert!(outcome.ranks[0].wait_ps > late);
    assert_eq!(outcome.ranks[1].compute_ps, late);
}

#[test]
fn ranks_of_one_host_do_not_use_the_network() {
    use std::ops::ControlFlow;
    use tailback_engine::{Placement, simulate};
    use tailback_fabric::{RoutePlan, Routes, RoutingRule};
    let fabric = build(&SMALL).unwrap();
    let routes = Routes::up_down(&fabric).unwrap();
    let plan = RoutePlan::new(&fabric, RoutingRule::Table(routes)).unwrap();
    let placement = Placement { node: vec![0, 0], host: vec![0, 0], ..in_order(2) };
    let program = burst(2, &[(0, 1, 1 << 20)]);
    let mut watch = |_| ControlFlow::Continue(());
    let outcome = simulate(
        &fabric,
        &plan,
        &settings(),
        &program,
        &placement,
        Parallelism::default(),
        &mut watch,
    )
    .unwrap();
    // A byte takes 100 ps at the assumed 80 Gb/s.
    assert_eq!(outcome.messages.arrival_ps[0], 500_000 + (1 << 20) * 100);
    assert_eq!(outcome.packet_hops, 0);
}

#[test]
fn a_stalled_link_counts_its_stall() {
    // Node 15 takes from two leaves; the spines' links to its leaf fill and wait for credit.
    let bytes = 256 * 4096;
    let messages: Vec<_> = (0..8).map(|src| (src, 15, bytes)).collect();
    let outcome = run(&settings(), &burst(16, &messages));
    let stall: u64 = outcome.truth.stall_ps.iter().sum();
    assert!(stall > 0);
    // The ejection link itself is never short of credit: busy throughout.
    let busiest = outcome
        .truth
        .link
        .iter()
        .zip(outcome.truth.busy_ps.iter())
        .fold(std::collections::HashMap::new(), |mut sums, (link, busy_ps)| {
            *sums.entry(link).or_insert(0) += busy_ps;
            sums
        })
        .into_values()
        .max();
    assert_eq!(busiest, Some(8 * 256 * WIRE));
}

#[test]
fn marking_rules_detect_an_incast_only() {
    let rules = [
        MarkingRule::QueueExceedsCredit,
        MarkingRule::Queue,
        MarkingRule::Credit,
        MarkingRule::Proportional,
    ];
    let incast: Vec<_> = (0..12).map(|src| (src, 15, 256 * 4096)).collect();
    for rule in rules {
        for when in [MarkingPoint::Arrival, MarkingPoint::Insertion, MarkingPoint::Departure] {
            let settings = Settings { rule, when, rule_bytes: 32768, ..settings() };
            let congested = |messages: &[(u32, u32, u64)]| -> u64 {
                let outcome = run(&settings, &burst(16, messages));
                outcome.samples.congested_weight.iter().sum()
            };
            assert!(congested(&incast) > 1000, "{rule:?} {when:?}");
            if rule != MarkingRule::Proportional {
                assert_eq!(congested(&[(0, 15, 64 * 4096)]), 0, "{rule:?} {when:?}");
            }
        }
    }
}

#[test]
fn a_deadlocked_program_is_explained() {
    // Two rendezvous sends that each wait before posting their receive.
    let ranks: Vec<Vec<Do>> = (0..2)
        .map(|me| vec![Do::Send(1 - me, 4096), Do::WaitAll, Do::Receive(1 - me, 4096), Do::WaitAll])
        .collect();
    let settings = Settings { eager_bytes: 0, ..settings() };
    let error = run_on(&build(&SMALL).unwrap(), &settings, &program(&ranks)).unwrap_err();
    assert!(
        matches!(error, EngineError::Program(ProgramError::Stuck { blocked: 2, .. })),
        "{error}"
    );
    assert!(error.to_string().contains("rank 0 waits for 1 open requests"), "{error}");
}

#[test]
fn output_buffers_let_senders_finish_earlier() {
    // With output buffers, the space at the input is free again at once, so a blocked path holds
    // more. The last byte leaves the adapters earlier, but arrives no earlier.
    let done = |buffering| {
        let settings = Settings { buffering, ..settings() };
        let messages: Vec<_> = (0..4).map(|src| (src, 15, 40 * 4096)).collect();
        let outcome = run(&settings, &burst(16, &messages));
        let sent = outcome.ranks[..4].iter().map(|rank| rank.finish_ps).max().unwrap();
        (sent, *outcome.messages.arrival_ps.iter().max().unwrap())
    };
    let (input, output) = (done(Buffering::Input), done(Buffering::Output));
    assert!(output.0 + 8 * WIRE < input.0, "{input:?} {output:?}");
    assert_eq!(input.1, output.1);
}
