//! Congestion control by its parameters, one at a time, by closed-form answers: which packets are marked,
//! and how long a notified sender waits.

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::{
    Arbitration, CongestionControl, CongestionScheme, Injection, Outcome, Pacing, Routing, Settings,
};

const PACKET: u64 = 4096;
const WIRE: u64 = PACKET * 80; // at 100 Gb/s, in picoseconds
const PATH: u64 = 2 * CABLE + 60_000;

/// A star of `nodes` nodes.
fn star(nodes: u32) -> Case {
    let wires: Vec<_> = (0..nodes).map(|node| (node, nodes, 100.0)).collect();
    wired(nodes, 1, CABLE, &wires)
}

fn with(control: CongestionControl) -> Settings {
    let (injection, routing) = (Injection::PerDestination, Routing::Deterministic);
    Settings { injection, routing, congestion_control: Some(control), ..settings() }
}

/// Marks, but no sender waits.
fn marks_only(threshold_bytes: u64) -> CongestionControl {
    CongestionControl {
        table: vec![0],
        ..control(CongestionScheme::Infiniband, threshold_bytes, 1 << 40)
    }
}

/// Packets marked where nodes 0 and 1 of a star send `pairs` packets of `bytes` each to node 2.
fn marked(control: CongestionControl, pairs: u64, bytes: u64, more: Settings) -> u64 {
    let settings = Settings { buffer_bytes: 1 << 20, ..with(control) };
    let settings = Settings { eager_bytes: more.eager_bytes, ..settings };
    let messages: Vec<_> = (0..pairs).flat_map(|_| [(0, 2, bytes), (1, 2, bytes)]).collect();
    star(3).run(&settings, &burst(3, &messages)).marked
}

/// Two packets arrive at the end of every packet time, and one leaves: pair j finds j packets
/// queued, and the queue grows to j + 1 and j + 2. Of n pairs, `2 (n - t) + 1` packets are beyond a
/// threshold of t packets. Lowering the threshold by a byte has the same effect as lowering it by a
/// packet.
#[test]
fn packets_above_the_threshold_are_marked() {
    let n = 20;
    for threshold in 1..n {
        let count = |bytes| marked(marks_only(bytes), n, PACKET, settings());
        assert_eq!(count(threshold * PACKET), 2 * (n - threshold) + 1, "{threshold} packets");
        assert_eq!(
            count(threshold * PACKET - 1),
            2 * (n - threshold + 1) + 1 - u64::from(threshold == 1)
        );
    }
}

/// With `Marking_Rate` r, the first eligible packet is marked, then every (r + 1)th. Every output
/// counts separately.
#[test]
fn the_marking_rate_spaces_marks() {
    for rate in [0, 1, 2, 3, 7, 100] {
        let control = CongestionControl { marking_rate: rate, ..marks_only(0) };
        let count = marked(control.clone(), 21, PACKET, settings());
        assert_eq!(count, 42u64.div_ceil(u64::from(rate) + 1), "rate {rate}");
        let flows = [(0, 2, 21 * PACKET), (1, 3, 21 * PACKET)];
        let outcome = star(4).run(&with(control), &burst(4, &flows));
        assert_eq!(outcome.marked, 2 * 21u64.div_ceil(u64::from(rate) + 1), "rate {rate}");
    }
}

/// Packets below `Packet_Size` are not marked, nor are handshakes, whatever the size.
#[test]
fn small_packets_and_handshakes_are_not_marked() {
    for (bytes, expected) in [(PACKET, 14), (PACKET - 1, 0)] {
        let control = CongestionControl { packet_bytes: PACKET as u32, ..marks_only(0) };
        assert_eq!(marked(control, 7, bytes, settings()), expected);
    }
    let shaken = Settings { eager_bytes: 0, ..settings() };
    assert_eq!(marked(marks_only(0), 7, PACKET, shaken), 14);
}

/// An output without credit, a branch of the congestion tree, marks only with `Victim_Mask`. Two
/// nodes fill the link to a switch whose node receives at a hundredth of line rate. The queue is at
/// most one buffer of b packets at the root, and two buffers at the branch.
#[test]
fn outputs_without_credit_mark_with_victim_mask_only() {
    let mut cables: Vec<_> = (0..2).map(|node| (node, 3, 100.0)).collect();
    cables.extend([(2, 4, 1.0), (3, 4, 100.0)]);
    let case = wired(3, 2, CABLE, &cables);
    for arbitration in [Arbitration::Fcfs, Arbitration::RoundRobin] {
        let marked = |victims| {
            let control = CongestionControl { victims, ..marks_only(12 * PACKET) };
            let buffer_bytes = 8 * PACKET as u32;
            let settings = Settings { arbitration, buffer_bytes, ..with(control) };
            case.run(&settings, &burst(3, &[(0, 2, 40 * PACKET), (1, 2, 40 * PACKET)])).marked
        };
        assert_eq!(marked(false), 0, "{arbitration:?}");
        // All packets except those that arrive before the queue has filled.
        assert!(marked(true) > 40, "{arbitration:?}: {}", marked(true));
    }
}

/// Every packet is marked, so the index soon reaches its limit. Then a packet starts every `wire +
/// pause`, with a pause of `table[limit]` packet times. A flow with a rate follows the slower of
/// its rate and the pause.
#[test]
fn constant_notification_reaches_the_table_limit() {
    for (limit, increase) in [(5, 1), (5, 3), (7, 100)] {
        let table = (0..20).map(|index| index * index).collect();
        let control = CongestionControl { limit, increase, table, ..marks_only(0) };
        let arrival = |packets: u64, pace_mbps: u32| {
            let mut program = burst(2, &[(0, 1, packets * PACKET)]);
            program.pace_mbps = vec![pace_mbps; program.kind.len()];
            let settings = Settings { pacing: Pacing::Spaced, ..with(control.clone()) };
            star(2).run(&settings, &program).messages.arrival_ps[0]
        };
        let pause = u64::from(limit * limit);
        for (pace_mbps, slower) in [(0, 1), (100_000, 1), (50_000, 2), (1_000, 100)] {
            let took = arrival(300, pace_mbps) - arrival(200, pace_mbps);
            let period = WIRE * (1 + pause).max(slower);
            assert_eq!(took, 100 * period, "limit {limit}, increase {increase}, {pace_mbps} Mb/s");
        }
    }
}

/// A light turns green when the queue falls to `green_bytes`. The notice takes a cable delay, and
/// the next packet a cable and a switch delay. With less than that queued the link becomes idle;
/// with more it never does.
#[test]
fn a_light_turns_green_at_its_threshold() {
    let (delay, packets) = (400_000, 300);
    let wires: Vec<_> = (0..3).map(|node| (node, 3, 100.0)).collect();
    let end = |green_bytes| {
        let scheme = CongestionScheme::Rgbcc { green_bytes };
        let control = control(scheme, 12 * PACKET, 1 << 40);
        let flows = [(0, 2, packets * PACKET), (1, 2, packets * PACKET)];
        let outcome = wired(3, 1, delay, &wires).run(&with(control), &burst(3, &flows));
        outcome.messages.arrival_ps.into_iter().max().unwrap()
    };
    let busy = 2 * packets * WIRE + 2 * delay + 60_000;
    assert_eq!(end(6 * PACKET), busy);
    assert!(end(PACKET / 2) > busy + 10 * WIRE, "{} {busy}", end(PACKET / 2));
}

/// Sends a packet that is marked and, `later`, two to the same node or to another. The time between
/// the last two is the pause of the first of them.
fn gap(control: CongestionControl, later: u64, to: u32) -> u64 {
    let second = vec![Do::Receive(0, 2 * PACKET), Do::WaitAll];
    let mut ranks = vec![
        vec![Do::Send(1, PACKET), Do::WaitAll, Do::Compute(later), Do::Send(to, 2 * PACKET)],
        vec![Do::Receive(0, PACKET), Do::WaitAll],
        vec![],
    ];
    ranks[0].push(Do::WaitAll);
    ranks[to as usize].extend(second);
    let outcome: Outcome = star(3).run(&with(control), &program(&ranks));
    outcome.messages.arrival_ps[1] - outcome.messages.start_ps[1] - WIRE - PATH
}

/// A notification raises the index by `CCTI_Increase`, and each expiry of `CCTI_Timer` lowers it by
/// one. The pause after a packet, from its end on, is the table's entry at the index, in packet
/// times. Only the marked flow waits.
#[test]
fn the_timer_undoes_notifications() {
    let timer_ps = 50 * WIRE;
    for increase in [1u32, 4, 6] {
        for expired in 0..8 {
            let table = vec![0, 3, 5, 6, 11, 17, 30];
            let index = increase.saturating_sub(expired);
            let pause = u64::from(table[index as usize]);
            let control = CongestionControl { increase, timer_ps, table, ..marks_only(0) };
            // The first packet is sent, and marked, before the timer first expires.
            let later = u64::from(expired) * timer_ps + 10 * WIRE;
            assert_eq!(gap(control.clone(), later, 1), WIRE * (1 + pause), "{increase} {expired}");
            assert_eq!(gap(control, later, 2), WIRE, "another destination");
        }
    }
}
