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

/// A switch whose node 0 sends at 100 Gb/s to node 1, which takes 25.
fn quarter(delay_ps: u64) -> Case {
    wired(2, 1, delay_ps, &[(0, 2, 100.0), (1, 2, 25.0)])
}

fn longest_queue(outcome: &Outcome) -> u64 {
    let rows = outcome.probed.queues.iter();
    rows.map(|row| row.value.waiting_bytes + row.value.booked_bytes).max().unwrap()
}

/// A sender four times as fast as the output is paused for three quarters of the time, and the output
/// never idles. The buffer holds `xoff`, and what arrives until the PAUSE has taken effect: of what the
/// headroom is for, and hardly less.
#[test]
fn a_sender_is_paused_for_the_time_that_it_is_too_fast() {
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

/// The time of a pause in detail: one packet crosses the threshold, and exactly those sent before the
/// news of it follow.
#[test]
fn a_pause_takes_effect_two_cables_after_the_packet_that_crossed_the_threshold() {
    let (wire, delay) = (u64::from(PACKET) * 80, 1_000_000);
    let mut settings = pfc(4 * PACKET, 0, 1 << 17);
    settings.probes.counters_ps = 1_000_000;
    let case = wired(2, 1, delay, &[(0, 2, 100.0), (1, 2, 0.1)]);
    let outcome = case.run(&settings, &burst(2, &[(0, 1, 100 * u64::from(PACKET))]));
    // Five packets are more than four; the first leaves the switch long after. The fifth ends after
    // 5 wires and is known to be there two delays later; until then the sender sends.
    let sent = (5 * wire + 2 * delay).div_ceil(wire);
    let injection = case.plan.injection[0];
    let rows = outcome.probed.counters.iter();
    let by_then = rows.filter(|row| row.link == injection && row.instant <= 40);
    let packets = by_then.map(|row| row.value.packets).max().unwrap();
    assert_eq!(outcome.probed.counters_ps, 1_000_000);
    assert_eq!(packets, sent);
}

/// Without enough headroom the run is refused, with what would do.
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

/// Zhu et al. (2015), section 2.2, in small: packets of a paused cable wait together, so a flow that
/// goes elsewhere gets no more than the flows to the congested port with which it shares the cable.
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
