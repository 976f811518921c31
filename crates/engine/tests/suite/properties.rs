//! Properties of every fabric, setting and program.

use crate::common::*;
use proptest::prelude::*;
use tailback_engine::{
    Buffering, Injection, MarkingPoint, MarkingRule, Outcome, Program, Routing, Settings, Switching,
};
use tailback_fabric::fat_tree::{Shape, build};

fn any_settings() -> impl Strategy<Value = Settings> {
    (
        0u64..1000,
        prop_oneof![Just(256u32), Just(2048), Just(4096)],
        1u32..20,
        prop_oneof![Just(Buffering::Input), Just(Buffering::Output)],
        prop_oneof![Just(Switching::CutThrough), Just(Switching::StoreAndForward)],
        prop_oneof![Just(Routing::Adaptive), Just(Routing::Random), Just(Routing::Deterministic)],
        prop_oneof![Just(Injection::Fifo), Just(Injection::RoundRobin)],
        prop_oneof![Just(0u64), Just(2000), Just(u64::MAX)],
        prop_oneof![
            Just(MarkingPoint::Arrival),
            Just(MarkingPoint::Insertion),
            Just(MarkingPoint::Departure)
        ],
        any::<bool>(),
    )
        .prop_map(
            |(
                seed,
                packet,
                packets,
                buffering,
                switching,
                routing,
                injection,
                eager,
                when,
                injected,
            )| {
                Settings {
                    seed,
                    packet_bytes: packet,
                    buffer_bytes: packet * packets,
                    buffering,
                    switching,
                    routing,
                    injection,
                    eager_bytes: eager,
                    when,
                    count_injection: injected,
                    rule: MarkingRule::QueueExceedsCredit,
                    ..settings()
                }
            },
        )
}

fn any_shape() -> impl Strategy<Value = Shape> {
    (1u32..5, 1u32..4, 1u32..4, 0u32..3, 1u32..3, 0u64..200_000).prop_map(
        |(hosts, leaves, aggregation, pods, cables, delay)| Shape {
            hosts_per_leaf: hosts,
            leaves,
            aggregation,
            pods,
            cores: if pods == 0 { 0 } else { aggregation },
            leaf_cables: cables,
            aggregation_uplinks: if pods == 0 { 0 } else { 2 },
            gbps: [100.0, 54.545_454, 200.0],
            delay_ps: [delay; 3],
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Conservation is asserted inside every run. This test checks the sums of bytes and hops, that
    /// a run repeats bit for bit, and that measuring does not change it.
    #[test]
    fn runs_conserve_repeat_and_ignore_probes(
        settings in any_settings(),
        shape in any_shape(),
        messages in proptest::collection::vec((0u32..64, 0u32..64, 0u64..40_000), 1..80),
    ) {
        let fabric = build(&shape).unwrap();
        let nodes = fabric.n_nodes;
        let messages: Vec<_> = messages
            .into_iter()
            .map(|(a, b, bytes)| (a % nodes, b % nodes, bytes))
            .filter(|(a, b, _)| a != b)
            .collect();
        let program = burst(nodes as usize, &messages);
        let run = |settings: &Settings| -> Outcome { run_on(&fabric, settings, &program).unwrap() };
        let first = run(&settings);
        prop_assert_eq!(&first, &run(&settings));

        let silent = run(&Settings { measure: false, ..settings.clone() });
        prop_assert_eq!(&silent.messages, &first.messages);
        prop_assert_eq!(&silent.ranks, &first.ranks);

        let bytes: u64 = messages.iter().map(|m| m.2).sum();
        prop_assert_eq!(first.messages.bytes.iter().sum::<u64>(), bytes);
        let hops: u64 = first.messages.switch_hops.iter().map(|&h| u64::from(h)).sum();
        prop_assert!(hops <= first.packet_hops);
        // Every data packet arrives with exactly one link in its hop reservoir.
        let samples: u64 = first.samples.hop_samples.iter().sum();
        prop_assert_eq!(samples, first.packets);
    }
}

/// Without contention and probes, adapters send trains of packets. Computations and delays of whole
/// packet times make control packets ready at the very instants at which packets start.
mod trains {
    use super::*;

    const PACKET_PS: u64 = 4096 * 80;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn trains_of_packets_take_as_long_as_packet_by_packet(
            send_delay in prop_oneof![Just(0), Just(1_000), Just(PACKET_PS), Just(3 * PACKET_PS)],
            eager in prop_oneof![Just(0u64), Just(20_000), Just(u64::MAX)],
            injection in prop_oneof![Just(Injection::Fifo), Just(Injection::RoundRobin)],
            injection_mbps in prop_oneof![Just(0), Just(40_000)],
            acknowledged in any::<bool>(),
            steps in proptest::collection::vec(
                (0u32..16, 0u32..16, 0u64..20, any::<bool>(), 0u64..12, 0u64..12), 1..40
            ),
        ) {
            let mut ranks = vec![Vec::new(); 16];
            for (src, dst, packets, delay, before, after) in steps {
                if src != dst {
                    let bytes = packets * 4096 + u64::from(!delay) * 1000;
                    let send = if acknowledged { Do::Acknowledged } else { Do::Send };
                    ranks[src as usize].extend([Do::Compute(before * PACKET_PS), send(dst, bytes)]);
                    ranks[dst as usize]
                        .extend([Do::Compute(after * PACKET_PS), Do::Receive(src, bytes)]);
                }
            }
            ranks.iter_mut().for_each(|ops: &mut Vec<Do>| ops.push(Do::WaitAll));
            let measured = Settings {
                contention: false, send_delay_ps: send_delay, eager_bytes: eager, injection,
                injection_mbps, ..settings()
            };
            let trains = Settings { measure: false, ..measured.clone() };
            let (one_by_one, trains) =
                (run(&measured, &program(&ranks)), run(&trains, &program(&ranks)));
            prop_assert_eq!(&trains.messages, &one_by_one.messages);
            prop_assert_eq!(&trains.ranks, &one_by_one.ranks);
            prop_assert_eq!(trains.end_ps, one_by_one.end_ps);
            prop_assert_eq!(trains.packets, one_by_one.packets);
            prop_assert_eq!(trains.packet_hops, one_by_one.packet_hops);
        }
    }

    #[test]
    fn a_message_without_contention_costs_a_few_events() {
        let settings =
            Settings { contention: false, measure: false, send_delay_ps: 1_000, ..settings() };
        let outcome = run(&settings, &burst(16, &[(0, 15, 1000 * 4096)]));
        assert!(outcome.packets == 1000 && outcome.events < 30, "{} events", outcome.events);
    }
}

/// Whether adapters that take turns differ from those that send one message after another, as
/// reported by the run.
mod turns {
    use super::*;

    fn both(settings: &Settings, program: &Program) -> [Outcome; 2] {
        [Injection::Fifo, Injection::RoundRobin]
            .map(|injection| run(&Settings { injection, ..settings.clone() }, program))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn without_a_choice_of_messages_both_kinds_of_adapters_give_the_same_run(
            settings in any_settings(),
            steps in proptest::collection::vec(
                (0u32..16, 0u32..16, 0u64..60_000, 0u64..9_000_000), 1..30
            ),
        ) {
            let mut ranks = vec![Vec::new(); 16];
            for (src, dst, bytes, compute) in steps {
                if src != dst {
                    ranks[src as usize].extend([Do::Compute(compute), Do::Send(dst, bytes)]);
                    ranks[dst as usize].push(Do::Receive(src, bytes));
                }
            }
            ranks.iter_mut().for_each(|ops: &mut Vec<Do>| ops.push(Do::WaitAll));
            let [fifo, turns] = both(&settings, &program(&ranks));
            prop_assert_eq!(fifo.adapters_shared, turns.adapters_shared);
            prop_assert!(fifo.adapters_shared || fifo == turns);
        }
    }

    #[test]
    fn a_run_reports_whether_injection_order_mattered() {
        let both = |messages: &[_]| both(&settings(), &burst(16, messages));
        let [fifo, turns] = both(&[(0, 5, 40_000), (1, 5, 40_000)]);
        assert!(!fifo.adapters_shared && fifo == turns);
        // Messages of one packet leave in the same order.
        let [fifo, turns] = both(&[(0, 5, 4096), (0, 6, 4096), (0, 7, 4096)]);
        assert!(!fifo.adapters_shared && fifo == turns);
        let [fifo, turns] = both(&[(0, 5, 40_000), (0, 6, 40_000)]);
        assert!(fifo.adapters_shared && turns.adapters_shared && fifo != turns);
    }
}

/// With one packet size and one path, packets cannot overtake. So messages of one pair finish in
/// order.
#[test]
fn deterministic_routing_keeps_the_order_of_a_flow() {
    let settings = Settings { routing: Routing::Deterministic, ..settings() };
    let mut messages = Vec::new();
    for src in 0..12u32 {
        for k in 0..6 {
            messages.push((src, 12 + (src + k) % 4, 3 * 4096));
            messages.push((src, 15, 5 * 4096));
        }
    }
    let outcome = run(&settings, &burst(16, &messages));
    let log = &outcome.messages;
    for a in 0..log.src.len() {
        for b in a + 1..log.src.len() {
            if (log.src[a], log.dst[a]) == (log.src[b], log.dst[b]) {
                assert!(log.arrival_ps[a] < log.arrival_ps[b]);
            }
        }
    }
}

mod lanes {
    use super::*;
    use std::ops::ControlFlow;
    use tailback_engine::{Detour, EngineError, Parallelism, simulate};
    use tailback_fabric::rules::{DimensionOrder, HyperXRouting, Tie};
    use tailback_fabric::{Fabric, RoutePlan, RoutingRule};
    use tailback_fabric::{hyperx, torus};

    fn ring_of(dims: &[u32]) -> Fabric {
        let dimensions = dims
            .iter()
            .map(|&size| torus::Dimension {
                size,
                wrap: true,
                cables: 1,
                gbps: vec![100.0],
                delay_ps: 10_000,
            })
            .collect();
        let shape =
            torus::Shape { dimensions, nodes_per_switch: 1, node_gbps: 100.0, node_delay_ps: 0 };
        torus::build(&shape).unwrap()
    }

    /// Every node sends to the node `steps` ahead, with one packet of buffer per lane.
    fn rush(
        fabric: &Fabric,
        rule: RoutingRule,
        detour: Detour,
        steps: &[u32],
    ) -> Result<Outcome, EngineError> {
        let plan = RoutePlan::new(fabric, rule)?;
        let n = fabric.n_nodes;
        let messages: Vec<_> = (0..n)
            .flat_map(|src| steps.iter().map(move |&k| (src, (src + k) % n, 20 * 4096)))
            .filter(|(src, dst, _)| src != dst)
            .collect();
        let program = burst(n as usize, &messages);
        let settings = Settings { detour, buffer_bytes: 4096, ..settings() };
        let placement = in_order(n as usize);
        simulate(
            fabric,
            &plan,
            &settings,
            &program,
            &placement,
            Parallelism::default(),
            &mut |_| ControlFlow::Continue(()),
        )
    }

    #[test]
    fn datelines_keep_a_full_torus_moving() {
        let fabric = ring_of(&[5, 4]);
        for (detour, way) in [(false, Detour::Never), (true, Detour::Valiant), (true, Detour::Ugal)]
        {
            let rule = DimensionOrder::new(&fabric, &[5, 4], Tie::Positive, true, detour).unwrap();
            let rule = RoutingRule::DimensionOrder(rule);
            let outcome = rush(&fabric, rule, way, &[1, 2, 3, 7, 11]).unwrap();
            assert_eq!(outcome.packets, 20 * 5 * 20);
        }
    }

    #[test]
    fn a_ring_without_datelines_names_its_deadlock() {
        let fabric = ring_of(&[8]);
        let rule = DimensionOrder::new(&fabric, &[8], Tie::Positive, false, false).unwrap();
        let error =
            rush(&fabric, RoutingRule::DimensionOrder(rule), Detour::Never, &[3]).unwrap_err();
        let EngineError::Deadlock { cycle, .. } = error else { panic!("{error}") };
        assert_eq!(cycle.len(), 8);
        for (at, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            assert_eq!(fabric.link_dst[at.0 as usize], fabric.link_src[next.0 as usize]);
        }
    }

    #[test]
    fn detours_relieve_an_adversarial_pattern() {
        // All nodes of a switch of a HyperX send to the same neighbour: over one link minimally,
        // over many by Valiant routing.
        let dims = vec![hyperx::Dimension { size: 8, cables: 1, gbps: 100.0, delay_ps: 0 }];
        let shape = hyperx::Shape {
            dimensions: dims,
            nodes_per_switch: 4,
            node_gbps: 100.0,
            node_delay_ps: 0,
        };
        let fabric = hyperx::build(&shape).unwrap();
        let time = |detour, way| {
            let rule = HyperXRouting::new(&fabric, &[8], detour).unwrap();
            rush(&fabric, RoutingRule::HyperX(rule), way, &[4]).unwrap().end_ps
        };
        let minimal = time(false, Detour::Never);
        assert!(time(true, Detour::Valiant) < minimal);
        assert!(time(true, Detour::Ugal) < minimal);
    }
}
