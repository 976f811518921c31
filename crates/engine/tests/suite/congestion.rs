//! Congestion control beyond the specification's: dynamic marking rates and lights.

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::{
    Arbitration, CongestionControl, CongestionScheme, Injection, Outcome, Pacing, Routing, Settings,
};

const PACKET: u64 = 4096;
/// 8 Gb/s of data, as in the test bed of Alali et al. (2017).
const GBPS: f64 = 8.0;

/// Two switches; nodes 0 and 1 on the first, the others on the second.
fn two_switches() -> Case {
    let mut cables: Vec<_> = (0..6).map(|n| (n, if n < 2 { 6 } else { 7 }, GBPS)).collect();
    cables.push((6, 7, GBPS));
    wired(6, 2, CABLE, &cables)
}

/// A Marking_Rate so high that nothing is marked twice.
const HARDLY: u32 = 100_000;

/// Marks from four packets on, forgets slowly.
fn slow(scheme: CongestionScheme) -> CongestionControl {
    control(scheme, 4 * PACKET, 150_000_000)
}

fn with(control: Option<CongestionControl>) -> Settings {
    Settings {
        routing: Routing::Deterministic,
        arbitration: Arbitration::RoundRobin,
        injection: Injection::PerDestination,
        congestion_control: control,
        ..settings()
    }
}

const DCMS: CongestionScheme =
    CongestionScheme::Dcms { calm_marking_rate: HARDLY, hold_ps: 1_000_000_000, poll_ps: 0 };
const RGBCC: CongestionScheme = CongestionScheme::Rgbcc { green_bytes: PACKET };

/// Rate of the flow from `src` in Gb/s.
fn gbps(outcome: &Outcome, src: u32) -> f64 {
    let log = &outcome.messages;
    let message = log.src.iter().position(|&s| s == src).unwrap();
    log.bytes[message] as f64 * 8000.0 / log.arrival_ps[message] as f64
}

/// Alali et al. (2017), section V: "a victim flow's throughput decreased from 8 Gbps to 2.67 Gbps because of
/// congestion at a switch port that the victim flow did not even traverse"; with DCMS it "rebounded
/// back to 8 Gbps". Three flows meet at node 2, one of them shares a cable with the victim, from 1 to
/// 3: each gets a third of 8 Gb/s, and so does the victim behind it.
#[test]
fn a_victim_of_a_third_rebounds_as_document_002_has_it() {
    let case = two_switches();
    let size = 2000 * PACKET;
    let contributors = [(0, 2, 8 * size), (4, 2, 8 * size), (5, 2, 8 * size)];
    let mut messages = contributors.to_vec();
    messages.push((1, 3, size));
    let program = burst(6, &messages);
    let victim = |scheme: Option<CongestionScheme>| {
        let outcome = case.run(&with(scheme.map(slow)), &program);
        (gbps(&outcome, 1), outcome)
    };
    let (alone, none) = (GBPS, victim(None).0);
    assert!((none - alone / 3.0).abs() < 0.1, "a third: {none}");
    let (dcms, outcome) = victim(Some(DCMS));
    assert!(dcms > 0.8 * alone, "DCMS: {dcms}");
    assert!(outcome.marked > 10);
    let (lights, _) = victim(Some(RGBCC));
    assert!(lights > 2.0 * none, "RGBCC: {lights}");

    // No other flow on the cable: there is no victim, so no flow is throttled.
    let program = burst(6, &contributors);
    let end = |scheme: Option<CongestionScheme>| {
        let outcome = case.run(&with(scheme.map(slow)), &program);
        (outcome.end_ps as f64, outcome.marked)
    };
    let none = end(None).0;
    let (infiniband, dcms) = (end(Some(CongestionScheme::Infiniband)), end(Some(DCMS)));
    assert!(infiniband.0 > 1.5 * none, "{} {none}", infiniband.0);
    assert!(dcms.0 < 1.01 * none && dcms.1 <= 2, "{dcms:?} {none}");
}

/// A manager that reads port counters tells victims from the flows that delay them: the victim
/// rebounds if it polls often, and not if the victim has arrived before the second poll. Without a
/// victim no flow is throttled.
#[test]
fn polled_counters_tell_victims_from_their_cause() {
    let case = two_switches();
    let size = 2000 * PACKET;
    let contributors = [(0, 2, 8 * size), (4, 2, 8 * size), (5, 2, 8 * size)];
    let mut messages = contributors.to_vec();
    messages.push((1, 3, size));
    let polled = |poll_ps| {
        let scheme = CongestionScheme::Dcms { calm_marking_rate: HARDLY, hold_ps: 1, poll_ps };
        with(Some(slow(scheme)))
    };
    let victim = |settings: &Settings| gbps(&case.run(settings, &burst(6, &messages)), 1);
    let (alone, none) = (GBPS, victim(&with(None)));
    let rates = [1, 4, 16, 64].map(|ms| victim(&polled(ms * 1_000_000_000)));
    assert!(rates[0] > 0.7 * alone, "{rates:?}");
    assert!(rates.is_sorted_by(|often, seldom| often >= seldom), "{rates:?}");
    assert!((rates[3] - none).abs() < 0.01, "{rates:?} {none}");

    let run = |settings: &Settings| case.run(settings, &burst(6, &contributors));
    let (none, often) = (run(&with(None)), run(&polled(1_000_000_000)));
    assert!((often.end_ps as f64) < 1.01 * none.end_ps as f64 && often.marked <= 2);
}

/// The sign of a victim travels along the congestion tree to its root. There are three switches in
/// a row, with the root at the last; the victim flow leaves the row at the second.
#[test]
fn the_root_learns_of_remote_victims() {
    let mut cables = vec![(0, 6, GBPS), (1, 6, GBPS), (2, 7, GBPS)];
    cables.extend((3..6).map(|n| (n, 8, GBPS)));
    cables.extend([(6, 7, GBPS), (7, 8, GBPS)]);
    let case = wired(6, 3, CABLE, &cables);
    let size = 2000 * PACKET;
    let messages = [(0, 3, 4 * size), (4, 3, 4 * size), (5, 3, 4 * size), (1, 2, size)];
    let rate = |control: Option<CongestionControl>| {
        gbps(&case.run(&with(control), &burst(6, &messages)), 1)
    };
    let (none, dcms) = (rate(None), rate(Some(slow(DCMS))));
    assert!((none - GBPS / 3.0).abs() < 0.2, "{none}");
    assert!(dcms > 0.85 * GBPS, "{dcms}");
    let polled =
        CongestionScheme::Dcms { calm_marking_rate: HARDLY, hold_ps: 1, poll_ps: 1_000_000_000 };
    let polled = rate(Some(slow(polled)));
    assert!(polled > 0.6 * GBPS, "{polled}");
}

/// Flows of different sizes meet at node 2 and finish together; the flow from 1 to 3 shares a cable
/// with the largest of them. Each gets its size over the weight of the heaviest link of its path, as
/// computed, from its second probe on at the latest.
#[test]
fn flows_learn_their_share_of_the_heaviest_link() {
    let (case, size) = (two_switches(), 500 * PACKET);
    let program = burst(6, &[(0, 2, 2 * size), (4, 2, size), (5, 2, size), (1, 3, size)]);
    for between in [7, 63] {
        let scheme = CongestionScheme::Assignment;
        let control = CongestionControl { marking_rate: between, ..control(scheme, 0, 1) };
        let settings = Settings { pacing: Pacing::Elastic { percent: 25 }, ..with(Some(control)) };
        let outcome = case.run(&settings, &program);
        for (src, share) in [(0, 2.0 / 4.0), (4, 1.0 / 4.0), (5, 1.0 / 4.0), (1, 1.0 / 3.0)] {
            let rate = gbps(&outcome, src) / GBPS;
            let wrong = 0.04 + f64::from(between + 1) / 1000.0;
            assert!((rate - share).abs() < wrong * share, "{src}, {between}: {rate}");
        }
        let probes = 5 * 500 / (u64::from(between) + 1);
        assert!(outcome.notifications.abs_diff(probes) <= 4, "{}", outcome.notifications);
    }
}

#[test]
fn assignments_need_one_path_and_pacing() {
    let control = Some(control(CongestionScheme::Assignment, 0, 1));
    let unpaced = with(control.clone());
    assert!(unpaced.check().unwrap_err().to_string().contains("nothing paces"));
    let adaptive = Settings { routing: Routing::Adaptive, ..with(control) };
    assert!(adaptive.check().unwrap_err().to_string().contains("one path"));
}

/// A light stays red until the queue falls to the second threshold. So a queue never exceeds the
/// first threshold by much more than three senders send while the first notification waits in it.
/// The common destination stays busy.
#[test]
fn lights_keep_the_queue_short_and_the_root_busy() {
    let case = two_switches();
    let size = 3000 * PACKET;
    let program = burst(6, &[(0, 2, size), (4, 2, size), (5, 2, size)]);
    let longest = |control: Option<CongestionControl>| {
        let mut settings = with(control);
        settings.probes.queues_ps = 5_000_000;
        let outcome = case.run(&settings, &program);
        let queued =
            |row: &tailback_engine::probe::QueueLengths| row.waiting_bytes + row.booked_bytes;
        (outcome.probed.queues.iter().map(|row| queued(&row.value)).max().unwrap(), outcome.end_ps)
    };
    let (full, none) = longest(None);
    let (short, lights) = longest(Some(slow(RGBCC)));
    assert!(full > 30 * PACKET && short < 20 * PACKET, "{full} {short}");
    assert!((lights as f64) < 1.1 * none as f64, "{lights} {none}");
}

/// Handshakes, small packets, several lights a flow, buffers of one packet: every run ends.
#[test]
fn lights_never_stay_red() {
    let case = k_ary_n_tree(3, 3, GBPS);
    let messages: Vec<_> = (0..27)
        .flat_map(|src| [(src, (src + 13) % 27, 90_000), (src, 26 - src, 50_000), (src, 0, 9000)])
        .filter(|&(src, dst, _)| src != dst)
        .collect();
    for (buffer, eager_bytes, threshold_bytes) in
        [(1, 0, 1), (1, 1 << 20, 5000), (2, 20_000, 4096), (8, 0, 1000)]
    {
        for arbitration in [Arbitration::Fcfs, Arbitration::RoundRobin] {
            let control = CongestionControl {
                threshold_bytes,
                packet_bytes: 2000,
                victims: true,
                ..slow(CongestionScheme::Rgbcc { green_bytes: 0 })
            };
            let settings = Settings {
                arbitration,
                buffer_bytes: buffer * PACKET as u32,
                eager_bytes,
                ..with(Some(control))
            };
            let outcome = case.run(&settings, &burst(27, &messages));
            assert!(outcome.complete && outcome.marked > 50);
        }
    }
}
