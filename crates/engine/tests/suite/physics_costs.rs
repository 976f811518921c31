//! Closed-form answers: costs of headers, handshakes and software, the return of buffer space, and
//! shares of an adapter or of an input of the crossbar.

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::{
    Arbitration, Buffering, Injection, MarkingRule, Outcome, Parallelism, Placement, Routing,
    Settings, simulate,
};

const PACKET: u64 = 4096;
const WIRE: u64 = PACKET * 80; // at 100 Gb/s, in picoseconds
const SWITCH: u64 = 60_000;

/// A star of `nodes` nodes.
fn star(nodes: u32, delay_ps: u64) -> Case {
    let wires: Vec<_> = (0..nodes).map(|node| (node, nodes, 100.0)).collect();
    wired(nodes, 1, delay_ps, &wires)
}

/// Every packet has a header, including the last, and at least 32 bytes.
#[test]
fn every_packet_carries_a_header() {
    for (header_bytes, bytes, wire) in [
        (58, 10 * PACKET, 10 * (PACKET + 58)),
        (58, 9 * PACKET + 1, 9 * (PACKET + 58) + 59),
        (58, 0, 58),
        (0, 1, 32),
        (0, PACKET + 1, PACKET + 32),
    ] {
        let settings = Settings { header_bytes, ..settings() };
        let outcome = star(2, CABLE).run(&settings, &burst(2, &[(0, 1, bytes)]));
        let expected = 80 * wire + 2 * CABLE + SWITCH;
        assert_eq!(
            outcome.messages.arrival_ps[0], expected,
            "{bytes} bytes, {header_bytes} a header"
        );
    }
}

/// A message goes eagerly up to the limit, the limit included, and shakes hands above; software comes
/// before either. The handshake is a round trip of packets of 32 bytes.
#[test]
fn messages_above_the_eager_limit_shake_hands_after_the_software() {
    let trip = 2 * CABLE + SWITCH + 32 * 80;
    for (bytes, trips) in [(PACKET - 1, 0), (PACKET, 0), (PACKET + 1, 2)] {
        let settings = Settings { eager_bytes: PACKET, send_delay_ps: 777_777, ..settings() };
        let outcome = star(2, CABLE).run(&settings, &burst(2, &[(0, 1, bytes)]));
        let log = &outcome.messages;
        assert_eq!((log.post_ps[0], log.start_ps[0]), (0, 777_777 + trips * trip), "{bytes} bytes");
    }
}

/// MPI's blocking rules: a send is complete when its last byte has left, a receive when its last
/// byte has arrived and it has been posted.
#[test]
fn completion_follows_mpi() {
    let late = 50 * WIRE;
    for (compute, complete) in [(0, 3 * WIRE + 2 * CABLE + SWITCH), (late, late)] {
        let ranks = [
            vec![Do::Send(1, 3 * PACKET), Do::WaitAll],
            vec![Do::Compute(compute), Do::Receive(0, 3 * PACKET), Do::WaitAll],
        ];
        let outcome = star(2, CABLE).run(&settings(), &program(&ranks));
        let finish = [0, 1].map(|rank: usize| outcome.ranks[rank].finish_ps);
        assert_eq!(finish, [3 * WIRE, complete]);
    }
}

/// A rank spends its processor on every message that it sends, and on every one that it receives, one
/// after the other: when they arrive in a wait, in order; otherwise at the next wait.
#[test]
fn ranks_spend_overhead_on_every_message() {
    const OVERHEAD: u64 = 10 * WIRE;
    let settings = Settings { overhead_ps: OVERHEAD, ..settings() };
    let trip = WIRE + 2 * CABLE + SWITCH;
    let finishes = |ranks: &[Vec<Do>]| {
        let outcome = star(ranks.len() as u32, CABLE).run(&settings, &program(ranks));
        outcome.ranks.iter().map(|rank| rank.finish_ps).collect::<Vec<_>>()
    };
    let sender = || vec![Do::Send(0, PACKET), Do::WaitAll];
    let receives = |n| (1..=n).map(|src| Do::Receive(src, PACKET));
    let alone = finishes(&[receives(1).chain([Do::WaitAll]).collect(), sender()]);
    assert_eq!(alone, [OVERHEAD + trip + OVERHEAD, OVERHEAD + WIRE]);
    let waiting: Vec<Do> = receives(3).chain([Do::WaitAll]).collect();
    let three = finishes(&[waiting, sender(), sender(), sender()]);
    assert_eq!(three[0], OVERHEAD + trip + 3 * OVERHEAD);
    let busy = 100 * OVERHEAD;
    let late = [Do::Compute(busy)].into_iter().chain(receives(3)).chain([Do::WaitAll]).collect();
    let three = finishes(&[late, sender(), sender(), sender()]);
    assert_eq!(three[0], busy + 3 * OVERHEAD);
    let to_all: Vec<Do> = (1..=3).map(|dst| Do::Send(dst, PACKET)).chain([Do::WaitAll]).collect();
    let one = || vec![Do::Receive(0, PACKET), Do::WaitAll];
    let out = finishes(&[to_all, one(), one(), one()]);
    let arrivals = [1, 2, 3].map(|sends| sends * OVERHEAD + trip + OVERHEAD);
    assert_eq!(out, [&[3 * OVERHEAD + WIRE][..], &arrivals].concat());
    // Copies of messages up to the limit take as long at 100 Gb/s as they do on the wire.
    for (eager_bytes, copied) in [(PACKET, WIRE), (PACKET - 1, 0)] {
        let settings =
            Settings { overhead_ps: 0, copy_gbps: 100.0, eager_bytes, ..settings.clone() };
        let ranks = [receives(1).chain([Do::WaitAll]).collect(), sender()];
        let outcome = star(2, CABLE).run(&settings, &program(&ranks));
        let handshake = if copied == 0 { 2 * (2 * CABLE + SWITCH + 32 * 80) } else { 0 };
        assert_eq!(outcome.ranks[0].finish_ps, handshake + trip + 2 * copied);
    }
}

/// One packet of buffer on long cables: the interval between packets is the round trip of a
/// packet's buffer space. An input buffer returns the space when the tail has left (a switch delay
/// and a packet time after the head arrived). An output buffer, and a node, return it when the tail
/// has arrived.
#[test]
fn buffer_space_returns_by_buffering_mode() {
    let (delay, packets) = (5_000_000, 100);
    let slow_node = [(0, 2, 100.0), (1, 2, 50.0)];
    for (cables, buffering, period) in [
        ([(0, 2, 100.0), (1, 2, 100.0)], Buffering::Input, 2 * delay + SWITCH + WIRE),
        ([(0, 2, 100.0), (1, 2, 100.0)], Buffering::Output, 2 * delay + WIRE),
        // The node's link is slower, and its credit loop contains no switch.
        (slow_node, Buffering::Output, 2 * delay + 2 * WIRE),
    ] {
        let case = wired(2, 1, delay, &cables);
        let settings = Settings { buffer_bytes: PACKET as u32, buffering, ..settings() };
        let arrival =
            |n: u64| case.run(&settings, &burst(2, &[(0, 1, n * PACKET)])).messages.arrival_ps[0];
        assert_eq!(arrival(2 * packets) - arrival(packets), packets * period, "{buffering:?}");
    }
}

/// The rule `queue` counts the packet that joins: of n pairs of packets, two a packet time, into a link
/// that takes one, `2 (n - t) + 1` make the queue longer than t packets. `proportional` meets congestion as
/// often as the queue is long: pair j with probability (j + 1) / t and (j + 2) / t.
#[test]
fn rules_count_the_packet_that_joins() {
    let (n, repeats) = (20, 60);
    let congested = |rule, rule_bytes, seed| {
        let settings = Settings { seed, rule, rule_bytes, buffer_bytes: 1 << 20, ..settings() };
        let messages: Vec<_> = (0..n).flat_map(|_| [(0, 2, PACKET), (1, 2, PACKET)]).collect();
        let outcome = star(3, CABLE).run(&settings, &burst(3, &messages));
        outcome.truth.congested_packets.iter().sum::<u64>()
    };
    for threshold in 1..n {
        let count = congested(MarkingRule::Queue, threshold * PACKET, 1);
        assert_eq!(count, 2 * (n - threshold) + 1, "{threshold} packets");
    }
    let threshold = 30.0;
    let count: u64 = (0..repeats)
        .map(|seed| congested(MarkingRule::Proportional, threshold as u64 * PACKET, seed))
        .sum();
    let chances =
        (0..n).flat_map(|pair| [pair + 1, pair + 2]).map(|queue| queue as f64 / threshold);
    let mean = repeats as f64 * chances.clone().sum::<f64>();
    let deviation = (repeats as f64 * chances.map(|p| p * (1.0 - p)).sum::<f64>()).sqrt();
    assert!((count as f64 - mean).abs() < 4.0 * deviation, "{count}, not {mean} ± {deviation}");
}

/// Injection in turn: messages of one adapter share its link a packet each, so n messages of m packets to
/// different nodes end within a round of one another; one after the other they end m packets apart. The
/// first has sent a packet before the others are posted, and stands in front of them: a round ahead.
#[test]
fn injection_order_follows_its_mode() {
    let (messages, packets) = (4, 30);
    let flows: Vec<_> = (1..=messages).map(|to| (0, to as u32, packets * PACKET)).collect();
    let path = 2 * CABLE + SWITCH;
    for injection in [Injection::Fifo, Injection::RoundRobin, Injection::PerDestination] {
        let settings = Settings { injection, ..settings() };
        let outcome = star(5, CABLE).run(&settings, &burst(5, &flows));
        for (k, &arrival) in (1..=messages).zip(&outcome.messages.arrival_ps) {
            let last = match injection {
                Injection::Fifo => k * packets,
                _ if k == 1 => (packets - 2) * messages + 2,
                _ => (packets - 1) * messages + k,
            };
            assert_eq!(arrival, last * WIRE + path, "{injection:?}, message {k}");
        }
    }
}

/// An adapter's queue whose lane has no credit does not delay the queue of another service level.
/// One sends to a node that receives at a hundredth of line rate; the other gets the remaining
/// rate.
#[test]
fn other_lanes_pass_a_stalled_queue() {
    let case = wired(3, 1, CABLE, &[(0, 3, 100.0), (1, 3, 1.0), (2, 3, 100.0)]);
    let mut program = burst(3, &[(0, 1, 100 * PACKET), (0, 2, 100 * PACKET)]);
    let fast = program.peer.iter().position(|&peer| peer == 2).unwrap();
    program.label[fast] = 1;
    let placement =
        Placement { label_observed: vec![true; 2], label_service: vec![0, 1], ..in_order(3) };
    let arrival = |services| -> u64 {
        let injection = Injection::PerDestination;
        let settings = Settings { services, injection, buffer_bytes: 4 * 4096, ..settings() };
        let mut watch = |_| std::ops::ControlFlow::Continue(());
        let (fabric, plan, work) = (&case.fabric, &case.plan, Parallelism::default());
        let run = simulate(fabric, plan, &settings, &program, &placement, work, &mut watch);
        let log = run.unwrap().messages;
        log.arrival_ps[log.dst.iter().position(|&dst| dst == 2).unwrap()]
    };
    // On its own lane, it waits only for the few packets of the other that have credit.
    assert!(arrival(2) < 125 * WIRE, "{}", arrival(2) / WIRE);
    assert!(arrival(1) > 5000 * WIRE, "{}", arrival(1) / WIRE);
}

/// A crossbar of speed-up 1/2 reads each input at half of line rate. Node 0 sends to nodes 2 and 3
/// in turn, node 1 to node 2. If the next input at node 2 is being read for node 3, the other input
/// is served. So node 1 gets half of line rate, and node 0 gets half for both of its messages.
#[test]
fn outputs_serve_other_inputs_during_a_read() {
    let settings = Settings {
        crossbar_speedup: 0.5,
        arbitration: Arbitration::RoundRobin,
        injection: Injection::RoundRobin,
        ..settings()
    };
    let messages = [(0, 2, 100 * PACKET), (0, 3, 100 * PACKET), (1, 2, 100 * PACKET)];
    let outcome = star(4, CABLE).run(&settings, &burst(4, &messages));
    let arrival = &outcome.messages.arrival_ps;
    for (arrival, expected) in [(arrival[0].max(arrival[1]), 400.0), (arrival[2], 200.0)] {
        let took = arrival as f64 / WIRE as f64;
        assert!((took / expected - 1.0).abs() < 0.02, "{took} packet times, not {expected}");
    }
}

/// A buffer smaller than a packet with its header is refused: no packet could move.
#[test]
fn a_buffer_below_a_packet_is_refused() {
    let run = |buffer_bytes| -> Result<Outcome, _> {
        let settings = Settings {
            buffer_bytes,
            header_bytes: 58,
            routing: Routing::Deterministic,
            ..settings()
        };
        let program = burst(2, &[(0, 1, 3 * PACKET)]);
        star(2, CABLE).try_run(&settings, &program, &[0, 1], Parallelism::default())
    };
    assert!(run(4154).is_ok());
    let error = run(4153).unwrap_err().to_string();
    assert!(error.contains("4153 B") && error.contains("give at least 4154 B"), "{error}");
}
