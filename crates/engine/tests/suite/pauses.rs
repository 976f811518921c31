//! Priority flow control, by closed forms.

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::{EngineError, FlowControl, Outcome, Parallelism, Settings};

const PACKET: u32 = 1024;
const XOFF: u32 = 24 * PACKET;

fn pfc(xoff_bytes: u32, xon_bytes: u32, buffer_bytes: u32) -> Settings {
    let flow_control = FlowControl::Pfc { xoff_bytes, xon_bytes };
    Settings { flow_control, packet_bytes: PACKET, buffer_bytes, ..settings() }
}

/// A switch whose node 0 sends at 100 Gb/s to node 1, which receives at 25 Gb/s.
fn quarter(delay_ps: u64) -> Case {
    wired(2, 1, delay_ps, &[(0, 2, 100.0), (1, 2, 25.0)])
}

fn longest_queue(outcome: &Outcome) -> u64 {
    let rows = outcome.probed.queues.iter();
    rows.map(|row| row.value.waiting_bytes + row.value.booked_bytes).max().unwrap()
}

/// A sender four times as fast as the output is paused for three quarters of the time, and the
/// output never idles. The buffer holds `xoff` bytes plus the arrivals until the PAUSE takes
/// effect, which nearly fill the headroom.
#[test]
fn a_fast_sender_is_paused_proportionally() {
    for (delay, xon) in [(5_000, XOFF - 2 * PACKET), (400_000, XOFF / 2)] {
        let case = quarter(delay);
        let mut settings = pfc(XOFF, xon, 1 << 17);
        settings.probes.queues_ps = 100_000;
        let bytes = 4000 * u64::from(PACKET);
        let outcome = case.run(&settings, &burst(2, &[(0, 1, bytes)]));
        let wire = bytes * 320;
        let end = outcome.messages.arrival_ps[0];
        // The first packet leaves the switch a cable and a switch delay after it began.
        assert_eq!(end, wire + 2 * delay + 60_000, "the output never idles");
        // A packet that has begun is sent to its end, paused or not.
        let idle = wire * 3 / 4;
        let overlap = outcome.pauses * u64::from(PACKET) * 80;
        // At the end the buffer drains without a pause, as nothing more comes.
        let drain = u64::from(XOFF) * 320 + 4 * delay;
        let paused = outcome.paused_ps;
        assert!((idle - drain..=idle + overlap).contains(&paused), "{paused} {idle}");
        assert!(outcome.pauses > 10, "{}", outcome.pauses);
        let longest = longest_queue(&outcome);
        let beyond = longest - u64::from(XOFF);
        let headroom = settings.headroom_bytes(100.0, delay);
        let drained = 2 * delay / 320;
        assert!(beyond <= headroom, "{beyond} of {headroom}");
        assert!(beyond + 3 * u64::from(PACKET) + drained >= headroom, "{beyond} of {headroom}");
    }
}

/// Timing of a pause: one packet crosses the threshold, and exactly the packets sent before the
/// PAUSE arrives follow.
#[test]
fn a_pause_takes_effect_after_two_cables() {
    let (wire, delay) = (u64::from(PACKET) * 80, 1_000_000);
    let mut settings = pfc(4 * PACKET, 0, 1 << 17);
    settings.probes.counters_ps = 1_000_000;
    let case = wired(2, 1, delay, &[(0, 2, 100.0), (1, 2, 0.1)]);
    let outcome = case.run(&settings, &burst(2, &[(0, 1, 100 * u64::from(PACKET))]));
    // Five packets exceed the threshold of four; the first leaves the switch much later. The fifth
    // ends after 5 packet times, and the sender is informed two cable delays later. Until then it
    // sends.
    let sent = (5 * wire + 2 * delay).div_ceil(wire);
    let injection = case.plan.injection[0];
    let rows = outcome.probed.counters.iter();
    let by_then = rows.filter(|row| row.link == injection && row.instant <= 40);
    let packets = by_then.map(|row| row.value.packets).max().unwrap();
    assert_eq!(outcome.probed.counters_ps, 1_000_000);
    assert_eq!(packets, sent);
}

/// Without enough headroom the run is refused, and the error states a sufficient buffer.
#[test]
fn a_buffer_without_headroom_is_refused() {
    let case = quarter(1_000_000);
    let needs = pfc(XOFF, XOFF, 1 << 17).headroom_bytes(100.0, 1_000_000);
    assert_eq!(needs, 25_000 + 3 * u64::from(PACKET) + 1);
    let run = |buffer: u64| {
        let program = burst(2, &[(0, 1, 100_000)]);
        let settings = pfc(XOFF, XOFF, buffer as u32);
        case.try_run(&settings, &program, &[0, 1], Parallelism::default())
    };
    assert!(run(u64::from(XOFF) + needs).is_ok());
    match run(u64::from(XOFF) + needs - 1) {
        Err(EngineError::Setting { section, key, problem, .. }) => {
            assert_eq!((section, key), ("engine.flow_control", "xoff"));
            assert!(problem.contains("headroom"), "{problem}");
        }
        other => panic!("{other:?}"),
    }
}

/// Zhu et al. (2015), section 2.2, on a small network. All packets of a paused cable wait. So a
/// flow to another port gets no more than the flows to the congested port that share the cable.
#[test]
fn a_paused_cable_has_victims() {
    let mut cables: Vec<_> = (0..6).map(|n| (n, if n < 2 { 6 } else { 7 }, 40.0)).collect();
    cables.push((6, 7, 40.0));
    let case = wired(6, 2, CABLE, &cables);
    let size = 2000 * u64::from(PACKET);
    let incast = [(0, 2, 4 * size), (4, 2, 4 * size), (5, 2, 4 * size)];
    let victim = |with: &[(u32, u32, u64)]| {
        let mut messages = vec![(1, 3, size)];
        messages.extend(with);
        let outcome = case.run(&pfc(XOFF, XOFF - 2 * PACKET, 1 << 16), &burst(6, &messages));
        let log = &outcome.messages;
        let place = log.src.iter().position(|&src| src == 1).unwrap();
        size as f64 * 8000.0 / log.arrival_ps[place] as f64
    };
    assert!(victim(&[]) > 39.0, "alone");
    let shared = victim(&incast);
    assert!((shared - 40.0 / 3.0).abs() < 1.0, "{shared}: as much as the others on its cable");
}
