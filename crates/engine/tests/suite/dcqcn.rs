//! DCQCN in the engine: shares, queues and pauses of competing flows, compared with its equations.

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::{
    CongestionControl, CongestionScheme, Dcqcn, FlowControl, Injection, Outcome, Routing, Settings,
};

const PACKET: u64 = 1000;
const GBPS: f64 = 40.0;
const MS: u64 = 1_000_000_000;

/// Published constants, or none, over links that pause beyond `xoff` bytes.
fn with(dcqcn: Option<Dcqcn>, xoff_bytes: u32) -> Settings {
    let control = |dcqcn| CongestionControl {
        table: vec![0],
        ..control(CongestionScheme::Dcqcn(dcqcn), 0, 1 << 40)
    };
    Settings {
        packet_bytes: PACKET as u32,
        routing: Routing::Ecmp,
        injection: Injection::PerDestination,
        flow_control: FlowControl::Pfc { xoff_bytes, xon_bytes: xoff_bytes - 2 * PACKET as u32 },
        buffer_bytes: xoff_bytes + 8 * PACKET as u32,
        congestion_control: dcqcn.map(control),
        ..settings()
    }
}

/// A star of `n` senders and their receiver, the last node.
fn star(n: u32) -> Case {
    let cables: Vec<_> = (0..=n).map(|node| (node, n + 1, GBPS)).collect();
    wired(n + 1, 1, CABLE, &cables)
}

/// `n` senders that together fill the receiver's link for `ms` milliseconds, in messages of a
/// hundredth of that.
fn incast(n: u32, ms: u64, mut settings: Settings) -> Outcome {
    let bytes = ms * (GBPS * 125_000.0) as u64 / u64::from(n) / 100;
    let messages: Vec<_> = (0..100).flat_map(|_| (0..n).map(move |src| (src, n, bytes))).collect();
    settings.probes.queues_ps = 10_000_000;
    star(n).run(&settings, &burst(n as usize + 1, &messages))
}

/// Bytes of each sender that arrive between two instants, message by message.
fn received(outcome: &Outcome, senders: u32, from: u64, until: u64) -> Vec<f64> {
    let log = &outcome.messages;
    let mut sums = vec![0.0; senders as usize];
    for m in 0..log.src.len() {
        if (from..until).contains(&log.arrival_ps[m]) {
            sums[log.src[m] as usize] += log.bytes[m] as f64;
        }
    }
    sums
}

/// Jain's index of fairness: 1 for equal shares, 1 / n if one has all.
fn fairness(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / shares.len() as f64 / shares.iter().map(|x| x * x).sum::<f64>()
}

/// Mean bytes queued at the link to the receiver in the second half of the run.
fn mean_queue(outcome: &Outcome, link: u32) -> f64 {
    let instants = outcome.end_ps / 10_000_000;
    let rows = outcome.probed.queues.iter().filter(|row| row.link == link);
    let (mut sum, mut last, mut at) = (0.0, 0.0, instants / 2);
    for row in rows {
        let instant = u64::from(row.instant);
        if instant > at {
            sum += last * (instant - at) as f64;
            at = instant;
        }
        last = (row.value.waiting_bytes + row.value.booked_bytes) as f64;
    }
    sum / (instants - instants / 2) as f64
}

/// Queue, in bytes, at the fixed point of the fluid model (Zhu et al., 2015, section 5, equations 5 to
/// 9) for `n` flows over a link of `GBPS`: the marking probability at which no rate changes. Rates in
/// packets a second, times in seconds.
fn fixed_point(n: u32, dcqcn: &Dcqcn) -> f64 {
    let seconds = |ps: u64| ps as f64 * 1e-12;
    let rate = GBPS * 1e9 / 8.0 / PACKET as f64 / f64::from(n);
    let additive = dcqcn.additive_mbps * 1e6 / 8.0 / PACKET as f64;
    let (interval, timer) = (seconds(dcqcn.cnp_interval_ps), seconds(dcqcn.increase_timer_ps));
    let counter = dcqcn.byte_counter_bytes as f64 / PACKET as f64;
    let steps = f64::from(dcqcn.recovery_steps);
    let growth = |p: f64| {
        // (1 - p)^packets, and the chance that a period of so many packets ends without a mark
        // per packet.
        let unmarked = |packets: f64| (packets * (-p).ln_1p()).exp();
        let periods = |packets: f64| p / (unmarked(-packets) - 1.0);
        let marked = 1.0 - unmarked(interval * rate);
        let alpha = 1.0 - unmarked(seconds(dcqcn.alpha_timer_ps) * rate);
        let [by_bytes, by_time] = [periods(counter), periods(timer * rate)];
        let (late_bytes, late_time) =
            (unmarked(steps * counter) * by_bytes, unmarked(steps * timer * rate) * by_time);
        // The distance of target and current rate from equation 8, the change from equation 9.
        let distance = interval * additive * rate * (late_bytes + late_time) / marked;
        distance / 2.0 * rate * (by_bytes + by_time) - rate * alpha * marked / (2.0 * interval)
    };
    let (mut low, mut high) = (1e-9f64, 0.5f64);
    for _ in 0..200 {
        let p = (low * high).sqrt();
        if growth(p) > 0.0 { low = p } else { high = p }
    }
    let range = (dcqcn.kmax_bytes - dcqcn.kmin_bytes) as f64;
    dcqcn.kmin_bytes as f64 + low / dcqcn.pmax * range
}

/// Incast with the published constants: the rates are equal, the queue is within 30 % of the fixed
/// point, and no link is paused. With pauses alone, queues fill the buffers.
#[test]
fn an_incast_reaches_the_fixed_point() {
    let dcqcn = Dcqcn::default();
    for n in [2u32, 4, 8] {
        let outcome = incast(n, 80, with(Some(dcqcn), 1 << 20));
        let shares = received(&outcome, n, 20 * MS, 70 * MS);
        let fair = fairness(&shares);
        assert!(fair > 0.98, "{n}: {fair} {shares:?}");
        assert_eq!(outcome.pauses, 0);
        let link = star(n).plan.ejection[n as usize];
        let (queue, expected) = (mean_queue(&outcome, link), fixed_point(n, &dcqcn));
        assert!((0.7..1.3).contains(&(queue / expected)), "{n}: {queue} of {expected}");
        let full = mean_queue(&incast(n, 10, with(None, 100_000)), link);
        assert!(full > 95_000.0 * f64::from(n), "{n}: {full}");
    }
}

/// A receiver notifies a sender at most once in 50 us, however many packets are marked.
#[test]
fn notifications_respect_their_interval() {
    // A packet of a thousand bytes each 8 us at least.
    let eager = Dcqcn { kmin_bytes: 0, kmax_bytes: 1, least_mbps: 1000.0, ..Dcqcn::default() };
    for us in [50, 200] {
        let dcqcn = Dcqcn { cnp_interval_ps: us * 1_000_000, ..eager };
        let outcome = incast(4, 5, with(Some(dcqcn), 1 << 20));
        let most = 4 * (outcome.end_ps / dcqcn.cnp_interval_ps + 1);
        assert!(outcome.marked == outcome.packets, "every packet is marked");
        assert!((most / 2..=most).contains(&outcome.notifications), "{}", outcome.notifications);
    }
}

/// The victim of [`crate::pauses`]. With DCQCN the cable is hardly ever paused, and the victim gets
/// what the other flow leaves of the cable.
#[test]
fn a_victim_gets_its_share_back() {
    let mut cables: Vec<_> = (0..6).map(|n| (n, if n < 2 { 6 } else { 7 }, GBPS)).collect();
    cables.push((6, 7, GBPS));
    let case = wired(6, 2, CABLE, &cables);
    let size = 100_000 * PACKET;
    let messages = [(1, 3, size), (0, 2, 2 * size), (4, 2, 2 * size), (5, 2, 2 * size)];
    let victim = |dcqcn| {
        let outcome = case.run(&with(dcqcn, 24_000), &burst(6, &messages));
        let log = &outcome.messages;
        let place = log.src.iter().position(|&src| src == 1).unwrap();
        (size as f64 * 8000.0 / log.arrival_ps[place] as f64, outcome.paused_ps)
    };
    let (paused, fair) = (victim(None), victim(Some(Dcqcn::default())));
    assert!((paused.0 - GBPS / 3.0).abs() < 1.0, "{paused:?}");
    assert!(fair.0 > 0.85 * GBPS * 2.0 / 3.0, "{fair:?}");
    assert!(fair.1 * 20 < paused.1, "{fair:?} {paused:?}");
}
