//! Closed-form answers: when a send is complete, and so when the next message can be posted.

use std::ops::ControlFlow;

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::{
    EagerSends, EngineError, Parallelism, Placement, RendezvousProgress, Settings, simulate,
};
use tailback_fabric::fat_tree::build;
use tailback_fabric::{RoutePlan, Routes, RoutingRule};

const PACKET: u64 = 4096;
const WIRE: u64 = PACKET * 80; // at 100 Gb/s, in picoseconds
const SWITCH: u64 = 60_000;
/// From the last byte's departure to its arrival, over one switch.
const LATENCY: u64 = 2 * CABLE + SWITCH;

/// Three nodes on one switch.
fn star() -> Case {
    wired(3, 1, CABLE, &[(0, 3, 100.0), (1, 3, 100.0), (2, 3, 100.0)])
}

/// Rank 0 sends one message to each of two others, one after the other; the first receiver computes for
/// `late_ps` before it posts its receive. Returns when each message was posted and arrived.
fn one_after_the_other(
    send: fn(u32, u64) -> Do,
    late_ps: u64,
    settings: &Settings,
) -> [(u64, u64); 2] {
    let bytes = 3 * PACKET;
    let ranks = [
        vec![send(1, bytes), Do::Wait(0), send(2, bytes), Do::Wait(2)],
        vec![Do::Compute(late_ps), Do::Receive(0, bytes), Do::WaitAll],
        vec![Do::Receive(0, bytes), Do::WaitAll],
    ];
    let log = star().run(settings, &program(&ranks)).messages;
    [0, 1].map(|message| (log.post_ps[message], log.arrival_ps[message]))
}

/// Two messages, one after the other. If a send is complete when its last byte has left, they take
/// two wire times and one latency. If it is complete when the message is delivered, they take two
/// of both.
#[test]
fn the_next_message_waits_for_completion() {
    let delivery = 3 * WIRE + LATENCY;
    assert_eq!(
        one_after_the_other(Do::Send, 0, &settings()),
        [(0, delivery), (3 * WIRE, 3 * WIRE + delivery)]
    );
    assert_eq!(
        one_after_the_other(Do::Issend, 0, &settings()),
        [(0, delivery), (delivery, 2 * delivery)]
    );
}

/// A send up to the eager limit is complete at once if its bytes are copied: the next message follows it
/// on the wire as before, but the sender goes on. Larger and synchronous ones are sent as ever.
#[test]
fn copied_sends_complete_at_once() {
    let copied = Settings { eager_sends: EagerSends::Copied, ..settings() };
    let delivery = 3 * WIRE + LATENCY;
    assert_eq!(
        one_after_the_other(Do::Send, 0, &copied),
        [(0, delivery), (0, 3 * WIRE + delivery)]
    );
    for (send, eager_bytes) in [(Do::Send as fn(u32, u64) -> Do, PACKET), (Do::Issend, u64::MAX)] {
        let (copied, sent) =
            (Settings { eager_bytes, ..copied.clone() }, Settings { eager_bytes, ..settings() });
        assert_eq!(one_after_the_other(send, 0, &copied), one_after_the_other(send, 0, &sent));
    }
}

/// As with MPI_Ssend, a send does not complete before the receive is posted, even if the message
/// arrived long before.
#[test]
fn a_synchronous_send_waits_for_its_receive_to_be_posted() {
    let (delivery, late) = (3 * WIRE + LATENCY, 50 * WIRE);
    assert_eq!(
        one_after_the_other(Do::Issend, late, &settings()),
        [(0, delivery), (late, late + delivery)]
    );
}

/// A rendezvous with a synchronous send: the handshake, the message, and nothing else.
#[test]
fn large_synchronous_sends_complete_on_delivery() {
    let settings = Settings { eager_bytes: PACKET, ..settings() };
    let delivery = 2 * (32 * 80 + LATENCY) + 3 * WIRE + LATENCY;
    assert_eq!(
        one_after_the_other(Do::Issend, 0, &settings),
        [(0, delivery), (delivery, 2 * delivery)]
    );
}

/// The acknowledgement is a returning packet of 32 bytes. It is sent when the receive is complete:
/// when the message has arrived and the receive is posted. A large message also has a handshake.
#[test]
fn acknowledged_sends_complete_on_acknowledgement() {
    let control = 32 * 80 + LATENCY;
    let delivery = 3 * WIRE + LATENCY;
    let turn = delivery + control;
    assert_eq!(
        one_after_the_other(Do::Acknowledged, 0, &settings()),
        [(0, delivery), (turn, turn + delivery)]
    );
    let late = 50 * WIRE;
    assert_eq!(
        one_after_the_other(Do::Acknowledged, late, &settings()),
        [(0, delivery), (late + control, late + control + delivery)]
    );
    let shaking = Settings { eager_bytes: PACKET, ..settings() };
    let shaken = 2 * control + delivery;
    assert_eq!(
        one_after_the_other(Do::Acknowledged, 0, &shaking),
        [(0, shaken), (shaken + control, 2 * shaken + control)]
    );
}

/// One large message whose receiver posts the receive, and whose sender posts the send, before they
/// compute. A library that answers in calls alone lets the handshake wait for both computations.
#[test]
fn a_handshake_waits_for_ranks_that_compute() {
    let bytes = 3 * PACKET;
    let control = 32 * 80 + LATENCY;
    let arrival = |progress, sender_ps, receiver_ps| {
        let settings = Settings { eager_bytes: PACKET, progress, ..settings() };
        let ranks = [
            vec![Do::Send(1, bytes), Do::Compute(sender_ps), Do::WaitAll],
            vec![Do::Receive(0, bytes), Do::Compute(receiver_ps), Do::WaitAll],
            vec![],
        ];
        star().run(&settings, &program(&ranks)).messages.arrival_ps[0]
    };
    let (delivery, late) = (3 * WIRE + LATENCY, 50 * WIRE);
    for (sender_ps, receiver_ps, begins_ps) in [
        (0, 0, 2 * control),
        (0, late, late + control),
        (late, 0, late),
        (late, late, late + control),
        (2 * late, late, 2 * late),
    ] {
        let always = arrival(RendezvousProgress::Always, sender_ps, receiver_ps);
        assert_eq!(always, 2 * control + delivery);
        let in_calls = arrival(RendezvousProgress::Calls, sender_ps, receiver_ps);
        assert_eq!(in_calls, begins_ps + delivery, "{sender_ps} {receiver_ps}");
    }
}

/// Two ranks that wait for a synchronous send before they post the receive wait for ever.
#[test]
fn facing_synchronous_sends_deadlock() {
    let rank = |peer| vec![Do::Issend(peer, 8), Do::Wait(0), Do::Receive(peer, 8), Do::WaitAll];
    let case = wired(2, 1, CABLE, &[(0, 2, 100.0), (1, 2, 100.0)]);
    let error = run_on(&case.fabric, &settings(), &program(&[rank(1), rank(0)])).unwrap_err();
    assert!(matches!(error, EngineError::Program(_)), "{error}");
    assert!(error.to_string().contains("rank 0 waits for its send of 8 B to rank 1"), "{error}");
}

/// A receive that completes a send that lets a rank post a receive, and so on through all ranks.
#[test]
fn a_long_chain_of_synchronous_sends_resolves() {
    let n = 50_000;
    let rank = |r: u32| {
        let mut ops = Vec::new();
        if r + 1 < n {
            ops.extend([Do::Issend(r + 1, 8), Do::Wait(0)]);
        } else {
            ops.push(Do::Compute(1_000_000_000));
        }
        if r > 0 {
            ops.extend([Do::Receive(r - 1, 8), Do::WaitAll]);
        }
        ops
    };
    let ranks: Vec<_> = (0..n).map(rank).collect();
    let placement = Placement { node: vec![0; 50_000], host: vec![0; 50_000], ..in_order(50_000) };
    let Case { fabric, plan, .. } = star();
    let mut watch = |_| ControlFlow::Continue(());
    let work = Parallelism::default();
    let outcome =
        simulate(&fabric, &plan, &settings(), &program(&ranks), &placement, work, &mut watch);
    let finish: Vec<_> = outcome.unwrap().ranks.iter().map(|rank| rank.finish_ps).collect();
    assert_eq!(finish, vec![1_000_000_000; 50_000]);
}

/// The sender may be in any shard: results are the same on any number of threads.
#[test]
fn completions_are_the_same_on_any_number_of_threads() {
    for send in [Do::Issend, Do::Acknowledged] {
        same_on_any_number_of_threads(send, &settings());
    }
}

/// So are those of handshakes that wait for computations.
#[test]
fn answers_in_calls_are_the_same_on_any_number_of_threads() {
    let progress = RendezvousProgress::Calls;
    let settings = Settings { eager_bytes: PACKET, progress, ..settings() };
    same_on_any_number_of_threads(Do::Send, &settings);
}

/// So are those of sends that are complete at once.
#[test]
fn copied_sends_are_the_same_on_any_number_of_threads() {
    let settings = Settings { eager_sends: EagerSends::Copied, ..settings() };
    same_on_any_number_of_threads(Do::Send, &settings);
}

fn same_on_any_number_of_threads(send: fn(u32, u64) -> Do, settings: &Settings) {
    let fabric = build(&SMALL).unwrap();
    let plan =
        RoutePlan::new(&fabric, RoutingRule::Table(Routes::up_down(&fabric).unwrap())).unwrap();
    let rank = |r: u32| {
        let mut ops = vec![Do::Receive((r + 11) % 16, 9 * PACKET), Do::Receive((r + 9) % 16, 8)];
        ops.extend([send((r + 5) % 16, 9 * PACKET), Do::Compute(r as u64 * WIRE), Do::Wait(2)]);
        ops.extend([send((r + 7) % 16, 8), Do::WaitAll]);
        ops
    };
    let program = program(&(0..16).map(rank).collect::<Vec<_>>());
    let run = |threads| {
        let work = Parallelism { threads, shards: Some(4) };
        let mut watch = |_| ControlFlow::Continue(());
        simulate(&fabric, &plan, settings, &program, &in_order(16), work, &mut watch).unwrap()
    };
    let outcome = run(1);
    assert!(outcome.complete);
    assert!(run(3) == outcome);
}

/// An adapter below its link's rate: packets start that much apart, each at line rate on the wire.
#[test]
fn an_adapter_injects_at_its_own_rate() {
    let settings = Settings { injection_mbps: 50_000, ..settings() };
    let gap = 2 * WIRE;
    assert_eq!(
        one_after_the_other(Do::Send, 0, &settings),
        [(0, 2 * gap + WIRE + LATENCY), (2 * gap + WIRE, 3 * gap + 2 * gap + WIRE + LATENCY)]
    );
    // A rate above the link's does nothing.
    let faster = Settings { injection_mbps: 400_000, ..settings };
    assert_eq!(one_after_the_other(Do::Send, 0, &faster)[0], (0, 3 * WIRE + LATENCY));
}
