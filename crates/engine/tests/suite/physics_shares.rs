//! Closed-form answers: the shares of flows on a full link, and their victims.
//!
//! Each holds under first come first served and under round-robin over the input ports. With input
//! buffers of one size the two give the same shares: an output serves its queue in the order of
//! arrival, and a served packet makes room for one of the same input, so inputs with full buffers
//! take turns.

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::probe::TruthTable;
use tailback_engine::{Arbitration, Injection, Outcome, Program, Settings};

const PACKET: u64 = 4096;
const WIRE: u64 = PACKET * 80; // at 100 Gb/s, in picoseconds
const BOTH: [Arbitration; 2] = [Arbitration::Fcfs, Arbitration::RoundRobin];

/// Senders with `counts` one-packet messages each: so that the log says when each packet arrived.
fn packets(ranks: u32, flows: &[(u32, u32, u64)]) -> Program {
    let messages: Vec<_> = flows
        .iter()
        .flat_map(|&(src, dst, count)| (0..count).map(move |_| (src, dst, PACKET)))
        .collect();
    burst(ranks as usize, &messages)
}

/// Rate of each flow, in packets per packet time at 100 Gb/s, from a third of the time at which the
/// first flow ends to that time. Then all flows are active, and all buffers have filled.
fn rates(outcome: &Outcome, flows: &[(u32, u32, u64)]) -> Vec<f64> {
    let log = &outcome.messages;
    let arrivals = |&(src, dst, _): &(u32, u32, u64)| -> Vec<u64> {
        let of = |&m: &usize| (log.src[m], log.dst[m]) == (src, dst);
        (0..log.src.len()).filter(of).map(|m| log.arrival_ps[m]).collect()
    };
    let all: Vec<Vec<u64>> = flows.iter().map(arrivals).collect();
    let end = all.iter().filter_map(|times| times.iter().max()).min().copied().unwrap();
    let from = end / 3;
    let rate = |times: &Vec<u64>| {
        let count = times.iter().filter(|&&time| from < time && time <= end).count();
        count as f64 * WIRE as f64 / (end - from) as f64
    };
    all.iter().map(rate).collect()
}

fn check(what: &str, measured: &[f64], expected: &[f64], tolerance: f64) {
    for (found_one, expected_one) in measured.iter().zip(expected) {
        assert!(
            (found_one / expected_one - 1.0).abs() < tolerance,
            "{what}: {measured:?} against {expected:?}"
        );
    }
}

/// The max-min fair shares of one link of capacity `capacity` (Bertsekas and Gallager, 1992, 6.5):
/// flows that demand less than an equal share of the remaining capacity get their demand.
fn water_fill(wanted: &[f64], capacity: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let (mut left, mut shares) = (capacity, vec![0.0; wanted.len()]);
    for (done, &who) in order.iter().enumerate() {
        shares[who] = wanted[who].min(left / (wanted.len() - done) as f64);
        left -= shares[who];
    }
    shares
}

/// Max-min shares: senders behind links of unequal rate into one node get `min(own rate, equal share
/// of the rest)`.
fn senders_of_unequal_rate(arbitration: Arbitration) {
    for (demands, into) in [
        (vec![10.0, 40.0, 100.0], 100.0),
        (vec![100.0, 100.0, 100.0, 20.0], 100.0),
        (vec![20.0, 20.0, 50.0, 50.0, 50.0], 100.0),
        (vec![200.0, 30.0, 60.0], 200.0),
        (vec![10.0, 10.0], 100.0),
    ] {
        let n = demands.len() as u32;
        let mut wires: Vec<_> =
            demands.iter().enumerate().map(|(i, &g)| (i as u32, n + 1, g)).collect();
        wires.push((n, n + 1, into));
        let case = wired(n + 1, 1, CABLE, &wires);
        let flows: Vec<_> = (0..n).map(|src| (src, n, 2000)).collect();
        let expected: Vec<f64> =
            water_fill(&demands, into).iter().map(|gbps| gbps / 100.0).collect();
        let settings = Settings { arbitration, ..settings() };
        let measured = rates(&case.run(&settings, &packets(n + 1, &flows)), &flows);
        check(&format!("{arbitration:?} {demands:?}"), &measured, &expected, 0.03);
    }
}

#[test]
fn unequal_senders_share_max_min_under_fcfs() {
    senders_of_unequal_rate(Arbitration::Fcfs);
}

/// An output must not wait for a packet whose tail is still on a slower link while others are whole.
#[test]
fn unequal_senders_share_max_min_under_round_robin() {
    senders_of_unequal_rate(Arbitration::RoundRobin);
}

/// Max-min shares over two links in a row where no packets wait behind another flow's bottleneck:
/// flow 0 shares a 50 Gb/s cable with flow 1 and then node 3's 100 Gb/s link with flow 2. Shares: flows
/// 0 and 1 get 25 each, flow 2 the rest, 75.
fn two_bottlenecks_in_a_row(arbitration: Arbitration) {
    // Switches 5 and 6; senders 0 and 1 at switch 5, sender 2 and receivers 3 and 4 at switch 6.
    let wires =
        [(0, 5, 100.0), (1, 5, 100.0), (2, 6, 100.0), (3, 6, 100.0), (4, 6, 100.0), (5, 6, 50.0)];
    let case = wired(5, 2, CABLE, &wires);
    let flows = [(0, 3, 800), (1, 4, 800), (2, 3, 2400)];
    let settings = Settings { arbitration, ..settings() };
    let measured = rates(&case.run(&settings, &packets(5, &flows)), &flows);
    check(&format!("{arbitration:?}"), &measured, &[0.25, 0.25, 0.75], 0.03);
}

#[test]
fn two_bottlenecks_share_max_min_under_fcfs() {
    two_bottlenecks_in_a_row(Arbitration::Fcfs);
}

#[test]
fn two_bottlenecks_share_max_min_under_round_robin() {
    two_bottlenecks_in_a_row(Arbitration::RoundRobin);
}

/// The parking lot (Dally and Towles, 2004, 15.4.1): a row of switches with a sender each, all to a
/// node behind the last. At every switch the cable from behind and the switch's own sender take turns, so
/// the shares counted from the far end are 1/2^(n-1), 1/2^(n-1), 1/2^(n-2), ..., 1/4, 1/2.
#[test]
fn a_parking_lot_halves_the_share_at_every_switch() {
    for n in 2..=5u32 {
        // Senders 0..n, receiver n; switch i is vertex n + 1 + i.
        let first = n + 1;
        let mut wires: Vec<_> = (0..n).map(|i| (i, first + i, 100.0)).collect();
        wires.push((n, first + n - 1, 100.0));
        wires.extend((1..n).map(|i| (first + i - 1, first + i, 100.0)));
        let case = wired(n + 1, n, CABLE, &wires);
        let shares: Vec<f64> = (0..n).map(|i| 0.5f64.powi((n - i.max(1)) as i32)).collect();
        let flows: Vec<_> = (0..n).map(|i| (i, n, (6000.0 * shares[i as usize]) as u64)).collect();
        for arbitration in BOTH {
            let settings = Settings { arbitration, ..settings() };
            let measured = rates(&case.run(&settings, &packets(n + 1, &flows)), &flows);
            check(&format!("{n} switches, {arbitration:?}"), &measured, &shares, 0.04);
        }
    }
}

/// The slide "Congestion Spreading" of Birk and Zdornov (2009): outputs serve inputs in turn, flows
/// have one size, and whatever the buffers, the run takes 25 % longer than the optimum. (The
/// slide's drawing is not in the text; this network has its properties.)
///
/// Cable q from switch r to switch s carries four flows: a from one input, b, c and d from another.
/// At s, a's node p also takes flows e and f by an input each. With flows of size 1: no link
/// carries more than 4, which is the optimum (all of q's flows at 1/4). But a gets 1/3 of p, and
/// its packets fill q's buffer at s. So q, which serves its inputs in turn, moves b, c, d together
/// no faster than a: at 1/3. At time 3, a is complete and 1 of their 3 is sent; the other 2 take 2
/// more. Total: `3 + 2 = 5 = 1.25 x 4`, less what is in q's buffer when it first fills. Under first
/// come first served, the packets of b, c, d in that buffer reduce a's share of p, the more the
/// smaller the buffer: `+ 0.1 / packets of buffer`.
#[test]
fn congestion_spreading_costs_a_quarter() {
    // Nodes: 0 sends a; 1 sends b, c, d; 2 and 3 send e, f; 4 is p; 5, 6, 7 take b, c, d.
    let wires = [
        (0, 8, 100.0),
        (1, 8, 100.0),
        (2, 9, 100.0),
        (3, 9, 100.0),
        (4, 9, 100.0),
        (5, 9, 100.0),
        (6, 9, 100.0),
        (7, 9, 100.0),
        (8, 9, 100.0),
    ];
    let case = wired(8, 2, CABLE, &wires);
    let size = 3000 * PACKET;
    let messages =
        [(0, 4, size), (1, 5, size), (1, 6, size), (1, 7, size), (2, 4, size), (3, 4, size)];
    let optimum = 4.0 * (3000 * WIRE) as f64;
    for arbitration in BOTH {
        for buffer in [2, 4, 16, 64] {
            let settings = Settings {
                arbitration,
                injection: Injection::RoundRobin,
                buffer_bytes: buffer * PACKET as u32,
                ..settings()
            };
            let outcome = case.run(&settings, &burst(8, &messages));
            let total = *outcome.messages.arrival_ps.iter().max().unwrap() as f64;
            let passing = if arbitration == Arbitration::Fcfs { 0.1 / buffer as f64 } else { 0.0 };
            assert!(
                (total / optimum - 1.25 - passing).abs() < 0.02,
                "{arbitration:?}, {buffer} packets of buffer: {:.3} of the optimum",
                total / optimum
            );
        }
    }
    // The rate control that the slide proposes: limiting the sender of a to its share of p removes
    // the loss.
    let slow = wires.map(|(a, b, gbps)| (a, b, if a == 0 { 25.0 } else { gbps }));
    let outcome = wired(8, 2, CABLE, &slow)
        .run(&Settings { injection: Injection::RoundRobin, ..settings() }, &burst(8, &messages));
    let total = *outcome.messages.arrival_ps.iter().max().unwrap() as f64;
    assert!((total / optimum - 1.0).abs() < 0.02, "held back: {:.3}", total / optimum);
}

/// The victim flow of Alali et al. (2017), Fig. 1: F1 goes by port q of switch r to the congested
/// port p of switch s, F2 by q to port w, which no other flow uses. With n other senders to p, F1
/// gets `1 / (n + 1)` of line rate, and so does F2, which takes turns with it at q. The victim port
/// q has no credit for the remaining time: stall fraction `1 - 2 / (n + 1)`. For n = 2 this is the
/// third that the paper quotes (8 Gb/s down to 2.67, section VI). Alone, F2 has all of q.
#[test]
fn a_victim_gets_no_more_than_the_culprit() {
    for arbitration in BOTH {
        for n in 2..=5u32 {
            // Nodes: 0 = j (F1), 1 = k (F2), 2 = p, 3 = w, 4.. = other senders to p; r, s after them.
            let nodes = 4 + n;
            let (r, s) = (nodes, nodes + 1);
            let mut wires = vec![(0, r, 8.0), (1, r, 8.0), (2, s, 8.0), (3, s, 8.0), (r, s, 8.0)];
            wires.extend((4..nodes).map(|other| (other, s, 8.0)));
            let case = wired(nodes, 2, CABLE, &wires);
            let mut flows = vec![(0, 2, 1000), (1, 3, 1000)];
            flows.extend((4..nodes).map(|other| (other, 2, 1000)));
            let settings = Settings { arbitration, windows: 64, ..settings() };
            let outcome = case.run(&settings, &packets(nodes, &flows));
            let share = 1.0 / f64::from(n + 1);
            let measured = rates(&outcome, &flows);
            // Rates are in packets at 100 Gb/s; the links have 8.
            let measured: Vec<f64> = measured.iter().map(|rate| rate * 100.0 / 8.0).collect();
            let expected = vec![share; flows.len()];
            check(&format!("{arbitration:?}, {n} others"), &measured, &expected, 0.04);

            let q = case.fabric.out_links(r).end - 1;
            assert_eq!(case.fabric.link_dst[q as usize], s);
            let stall = stall_fraction(&outcome, q);
            let closed = 1.0 - 2.0 * share;
            assert!((stall - closed).abs() < 0.04, "{arbitration:?}, {n}: {stall} {closed}");

            let alone = case.run(&settings, &packets(nodes, &flows[1..2]));
            let last = *alone.messages.arrival_ps.iter().max().unwrap() as f64;
            let line = 1000.0 * PACKET as f64 * 8000.0 / 8.0;
            assert!((last / line - 1.0).abs() < 0.01, "F2 alone: {last} {line}");
        }
    }
}

/// Stalled time over all time of a link, in the middle half of the run's windows.
fn stall_fraction(outcome: &Outcome, link: u32) -> f64 {
    let TruthTable { window, link: links, stall_ps, .. } = &outcome.truth;
    let end = window.iter().max().unwrap();
    let middle = end / 4..3 * end / 4;
    let rows = window.iter().zip(links.iter()).zip(stall_ps.iter());
    let rows = rows.filter(|((at, of), _)| *of == u64::from(link) && middle.contains(at));
    let stall: u64 = rows.map(|(_, stall_ps)| stall_ps).sum();
    stall as f64 / (outcome.window_ps * (middle.end - middle.start)) as f64
}
