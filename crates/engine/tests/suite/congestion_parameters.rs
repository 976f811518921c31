//! Congestion control by its parameters, one at a time, by closed-form answers: which packets are marked,
//! and how long a sender that is told of it waits.

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

/// Marks, but nobody waits.
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

/// Two packets come at the end of every packet time, and one leaves: pair j finds j packets queued and
/// makes it j + 1 and j + 2. Of n pairs `2 (n - t) + 1` packets are beyond a threshold of t packets, and a
/// byte less of threshold is as good as a packet less.
#[test]
fn who_makes_a_queue_longer_than_the_threshold_is_marked() {
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

/// `Marking_Rate` r: of e packets that could be marked the first is, and every (r + 1)th after it. Every
/// output counts its own.
#[test]
fn the_marking_rate_says_how_many_pass_between_two_marks() {
    for rate in [0, 1, 2, 3, 7, 100] {
        let control = CongestionControl { marking_rate: rate, ..marks_only(0) };
        let found = marked(control.clone(), 21, PACKET, settings());
        assert_eq!(found, 42u64.div_ceil(u64::from(rate) + 1), "rate {rate}");
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

/// A branch of the congestion, whose output has no credit, marks only with `Victim_Mask`. Two nodes fill
/// the link to a switch whose node takes a hundredth: at the root the queue is b packets at most, one
/// buffer, at the branch two buffers.
#[test]
fn an_output_without_credit_marks_only_if_told_to() {
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
        // All but those that find the queue short as it first fills.
        assert!(marked(true) > 40, "{arbitration:?}: {}", marked(true));
    }
}

/// Every packet is marked: the index is at its limit soon, and then a packet goes every
/// `wire + pause`, with pause `table[limit]` packet times; a flow with a rate goes by what is slower, its
/// rate or the pause.
#[test]
fn a_sender_told_of_every_packet_ends_at_the_limit_of_the_table() {
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

/// A light turns green when the queue is down to `green_bytes`. From then on the queue lasts for that; the
/// news takes a cable, and the next packet a cable and a switch: with less than that queued the link falls
/// idle, with more it never does.
#[test]
fn a_light_is_green_as_soon_as_the_queue_is_short_enough() {
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

/// A packet that is marked, then, `later`, two to the same node or to another; the time between the last
/// two is what the first of them waited for.
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

/// A notification raises the index by `CCTI_Increase`, each run-down of `CCTI_Timer` lowers it by one, and
/// the pause after a packet is the table's entry at the index, in packet times, from the packet's end on.
/// Only the flow that was told of waits.
#[test]
fn the_timer_takes_back_what_a_notification_added() {
    let timer_ps = 50 * WIRE;
    for increase in [1u32, 4, 6] {
        for expired in 0..8 {
            let table = vec![0, 3, 5, 6, 11, 17, 30];
            let index = increase.saturating_sub(expired);
            let pause = u64::from(table[index as usize]);
            let control = CongestionControl { increase, timer_ps, table, ..marks_only(0) };
            // The first packet is sent, and told of, before the timer first expires.
            let later = u64::from(expired) * timer_ps + 10 * WIRE;
            assert_eq!(gap(control.clone(), later, 1), WIRE * (1 + pause), "{increase} {expired}");
            assert_eq!(gap(control, later, 2), WIRE, "another destination");
        }
    }
}
