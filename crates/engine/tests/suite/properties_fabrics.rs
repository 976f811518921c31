//! Properties on random fabrics of every kind, with random routes, traffic and settings: every
//! packet arrives once, a run ends, and results do not depend on threads.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::common::ethernet::*;
use crate::common::fabrics::*;
use crate::common::*;
use proptest::prelude::*;
use tailback_engine::probe::{PortCounters, Probes};
use tailback_engine::{
    Arbitration, Buffering, CongestionControl, CongestionScheme, Detour, EngineError, Injection,
    MessageLog, Outcome, Pacing, PacingOffset, Parallelism, Placement, Program, RankLog, Routing,
    Settings, Switching, simulate,
};
use tailback_fabric::rules::{DimensionOrder, DragonflyRouting, HyperXRouting, Tie};
use tailback_fabric::{
    Arrangement, CableList, Fabric, RoutingRule, dragonfly, dragonfly_plus, hyperx, pgft, torus,
};

/// A hundred times the events that any of these runs needs: beyond it, a run counts as hung.
const MAX_EVENTS: u64 = 20_000_000;

fn dragonflies(n: u32, plus: bool, delay_ps: [u64; 3], detour: bool) -> Case {
    let (arrangement, gbps) = (Arrangement::Palmtree, [100.0, 54.545_454, 200.0]);
    let fabric = if plus {
        dragonfly_plus::build(&dragonfly_plus::Shape {
            nodes_per_leaf: 2,
            leaves: n,
            spines: n,
            global_ports: 1,
            groups: n + 1,
            arrangement,
            gbps,
            delay_ps,
        })
    } else {
        dragonfly::build(&dragonfly::Shape {
            nodes_per_router: 2,
            routers: n,
            global_ports: 1,
            groups: n + 1,
            arrangement,
            gbps,
            delay_ps,
        })
    };
    let fabric = fabric.unwrap();
    let rule = DragonflyRouting::new(&fabric, detour, true).unwrap();
    Case::new("groups", fabric, RoutingRule::Dragonfly(rule))
}

fn grids(dims: &[u32], wrap: bool, delay_ps: u64, detour: bool) -> Case {
    let gbps = vec![100.0, 37.6];
    let dimensions = dims
        .iter()
        .map(|&size| torus::Dimension { size, wrap, cables: 1, gbps: gbps.clone(), delay_ps })
        .collect();
    let shape =
        torus::Shape { dimensions, nodes_per_switch: 1, node_gbps: 83.2, node_delay_ps: delay_ps };
    let fabric = torus::build(&shape).unwrap();
    let rule = DimensionOrder::new(&fabric, dims, Tie::Parity, true, detour).unwrap();
    Case::new("grid", fabric, RoutingRule::DimensionOrder(rule))
}

fn hyperxes(dims: &[u32], delay_ps: u64, detour: bool) -> Case {
    let dimensions = dims
        .iter()
        .map(|&size| hyperx::Dimension { size, cables: 1, gbps: 100.0, delay_ps })
        .collect();
    let shape =
        hyperx::Shape { dimensions, nodes_per_switch: 2, node_gbps: 100.0, node_delay_ps: 0 };
    let fabric = hyperx::build(&shape).unwrap();
    let rule = HyperXRouting::new(&fabric, dims, detour).unwrap();
    Case::new("hyperx", fabric, RoutingRule::HyperX(rule))
}

/// Randomly connected switches: a tree, so that all are connected, and some further cables.
fn tangle(switches: u32, parents: &[u32], extra: &[(u32, u32)], delay_ps: u64) -> Case {
    let nodes = 2 * switches;
    let mut cables = CableList::new((nodes + switches) as usize);
    for node in 0..nodes {
        cables.add(node, nodes + node / 2, 100.0, delay_ps);
    }
    for switch in 1..switches {
        let parent = parents[switch as usize % parents.len()] % switch;
        cables.add(nodes + switch, nodes + parent, 54.545_454, delay_ps);
    }
    for &(a, b) in extra {
        let (a, b) = (a % switches, b % switches);
        if a != b {
            cables.add(nodes + a, nodes + b, 200.0, delay_ps);
        }
    }
    let n = switches as usize;
    up_down("tangle", cables.finish(nodes, vec![0; n], vec![-1; n]).unwrap())
}

fn trees(children: &[u32], parents: &[u32], cables: &[u32], delay_ps: u64) -> Case {
    let n = children.len();
    let mut shape = pgft::Shape {
        children: children.to_vec(),
        parents: parents[..n].to_vec(),
        cables: cables[..n].to_vec(),
        gbps: [100.0, 200.0, 54.545_454][..n].to_vec(),
        delay_ps: vec![delay_ps; n],
        planes: 1,
    };
    (shape.parents[0], shape.cables[0]) = (1, 1);
    up_down("tree", pgft::build(&shape).unwrap())
}

/// A fabric of any kind, and whether its routes have detours.
fn any_case() -> impl Strategy<Value = (Case, bool)> {
    let delay = prop_oneof![Just(0u64), 5000u64..300_000];
    let sizes = proptest::collection::vec(2u32..5, 1..4);
    (0u8..6, sizes, delay, any::<bool>(), any::<bool>(), any::<u64>()).prop_map(
        |(kind, sizes, delay, flag, detour, bits)| {
            let some = |k: u32| (bits >> (5 * k) & 31) as u32;
            match kind {
                0 => {
                    let upper = [1 + some(0) % 3, 1 + some(1) % 3, 1 + some(2) % 3];
                    (trees(&sizes, &upper, &[1 + some(3) % 2; 3], delay), false)
                }
                1 => (grids(&sizes, flag, delay, detour), detour),
                2 => (hyperxes(&sizes, delay, detour), detour),
                3 => (dragonflies(sizes[0], flag, [delay, delay, 5 * delay], detour), detour),
                _ => {
                    let parents: Vec<u32> = (0..8).map(some).collect();
                    let extra: Vec<_> =
                        (0..some(9)).map(|k| (some(k % 7), some(k % 5) + k)).collect();
                    (tangle(2 + some(10) % 9, &parents, &extra, delay), false)
                }
            }
        },
    )
}

fn any_control(packet: u64) -> impl Strategy<Value = CongestionControl> {
    let scheme = prop_oneof![
        Just(CongestionScheme::Infiniband),
        (0u32..20, 1u64..10_000_000, prop_oneof![Just(0u64), 1u64..10_000_000]).prop_map(
            |(calm_marking_rate, hold_ps, poll_ps)| {
                CongestionScheme::Dcms { calm_marking_rate, hold_ps, poll_ps }
            }
        ),
        Just(CongestionScheme::Rgbcc { green_bytes: 0 }),
        Just(CongestionScheme::Rgbcc { green_bytes: packet / 2 }),
        any_dcqcn().prop_map(CongestionScheme::Dcqcn),
    ];
    (scheme, 0u64..4, 0u32..3, any::<bool>(), any::<bool>(), 1u32..5).prop_map(
        move |(scheme, packets, marking_rate, small, victims, increase)| CongestionControl {
            scheme,
            threshold_bytes: packet * packets + packet / 2 + 1,
            marking_rate,
            packet_bytes: if small { 0 } else { packet as u32 },
            victims,
            increase,
            limit: 8,
            timer_ps: 500_000,
            table: vec![0, 1, 2, 3, 1 << 14 | 9],
        },
    )
}

/// Features that are off by default: services with or without weights, queues per destination and
/// features that need them, VC routing.
fn any_extras() -> impl Strategy<Value = Settings> {
    let weights = prop_oneof![Just(0u32), Just(2048), Just(9000)];
    (
        (1u8..4).prop_flat_map(move |n| {
            let all = proptest::collection::vec(weights.clone(), usize::from(n));
            (Just(n), prop_oneof![Just(Vec::new()), all])
        }),
        proptest::option::of(any_control(2048)),
        prop_oneof![
            Just(Pacing::Off),
            Just(Pacing::Spaced),
            Just(Pacing::LeakyBucket { depth_bytes: 5000 }),
            Just(Pacing::Elastic { percent: 25 }),
        ],
        prop_oneof![
            Just(PacingOffset::None),
            Just(PacingOffset::Random),
            Just(PacingOffset::Shift)
        ],
        proptest::option::of(0u32..5),
        any_flow_control(),
    )
        .prop_map(
            |((services, lane_weights), control, pacing, pacing_offset, entries, flow_control)| {
                let lines = control.is_some() || pacing != Pacing::Off;
                Settings {
                    services,
                    lane_weights,
                    flow_control,
                    congestion_control: control,
                    pacing,
                    pacing_offset,
                    injection: if lines { Injection::PerDestination } else { Injection::Fifo },
                    routing: entries.map_or(Routing::Adaptive, |_| Routing::VirtualCircuit),
                    vc_entries: entries.unwrap_or(0),
                    ..settings()
                }
            },
        )
}

fn any_settings() -> impl Strategy<Value = Settings> {
    (
        any_extras(),
        (0u64..1000, prop_oneof![Just(256u32), Just(2048), Just(4096)], 1u32..12, any::<u64>()),
        prop_oneof![
            Just(Routing::Adaptive),
            Just(Routing::Random),
            Just(Routing::Ecmp),
            Just(Routing::Deterministic)
        ],
        prop_oneof![Just(0u64), Just(3000), Just(u64::MAX)],
        prop_oneof![Just(0u64), Just(60_000)],
        prop_oneof![Just(Detour::Never), Just(Detour::Valiant), Just(Detour::Ugal)],
    )
        .prop_map(
            |(extras, (seed, packet_bytes, packets, bits), routing, eager_bytes, delay, detour)| {
                let flag = |k: u32| bits >> k & 1 == 1;
                let either = |k| if flag(k) { Arbitration::RoundRobin } else { Arbitration::Fcfs };
                Settings {
                    seed,
                    packet_bytes,
                    header_bytes: if flag(0) { 30 } else { 0 },
                    buffer_bytes: (packet_bytes + 30) * packets,
                    buffering: if flag(1) { Buffering::Input } else { Buffering::Output },
                    switching: if flag(2) {
                        Switching::CutThrough
                    } else {
                        Switching::StoreAndForward
                    },
                    injection: match extras.injection {
                        Injection::Fifo if flag(3) => Injection::RoundRobin,
                        injection => injection,
                    },
                    arbitration: either(4),
                    crossbar_speedup: if flag(5) && flag(6) { 1.5 } else { 0.0 },
                    // VC routing has no detours.
                    routing: if extras.routing == Routing::VirtualCircuit {
                        Routing::VirtualCircuit
                    } else {
                        routing
                    },
                    detour: if extras.routing == Routing::VirtualCircuit {
                        Detour::Never
                    } else {
                        detour
                    },
                    eager_bytes,
                    switch_delay_ps: delay,
                    send_delay_ps: if flag(7) { 1_000_000 } else { 0 },
                    overhead_ps: if flag(8) { 300_000 } else { 0 },
                    copy_gbps: if flag(8) && flag(9) { 80.0 } else { 0.0 },
                    ..extras
                }
            },
        )
}

/// Labels of the traffic: each has a service level.
const LABELS: usize = 3;

/// Gives the sends labels and rates.
fn mixed(mut program: Program) -> Program {
    let sends = program.kind.iter().map(|&kind| kind == 1);
    program.pace_mbps =
        sends.enumerate().map(|(op, send)| if send { 1000 << (op % 6) } else { 0 }).collect();
    for (op, label) in program.label.iter_mut().enumerate() {
        *label = (op % LABELS) as u32;
    }
    program
}

/// Runs it; a run of more than [`MAX_EVENTS`] events is returned incomplete.
fn run(
    case: &Case,
    settings: &Settings,
    program: &Program,
    work: Parallelism,
) -> Result<Outcome, EngineError> {
    let ranks = program.n_ranks();
    let label_observed = vec![true; LABELS];
    let label_service = (0..LABELS as u8).collect();
    let placement = Placement { label_observed, label_service, ..in_order(ranks) };
    let mut watch = |progress: tailback_engine::Progress| {
        if progress.events > MAX_EVENTS {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let settings = &with_headroom(&case.fabric, settings);
    simulate(&case.fabric, &case.plan, settings, program, &placement, work, &mut watch)
}

fn among(fabric: &Fabric, raw: &[(u32, u32, u64)]) -> Vec<(u32, u32, u64)> {
    let n = fabric.n_nodes;
    let ends = raw.iter().map(|&(a, b, bytes)| (a % n, b % n, bytes));
    ends.filter(|(a, b, _)| a != b).collect()
}

/// Bytes of a message; many are empty, because equal and short packets meet at equal times.
fn any_size() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), 0u64..20_000]
}

/// The same settings where everything takes `times` as long.
fn slower(settings: &Settings, times: u64) -> Settings {
    let control = settings.congestion_control.clone().map(|control| CongestionControl {
        timer_ps: times * control.timer_ps,
        scheme: match control.scheme {
            CongestionScheme::Dcms { calm_marking_rate, hold_ps, poll_ps } => {
                CongestionScheme::Dcms {
                    calm_marking_rate,
                    hold_ps: times * hold_ps,
                    poll_ps: times * poll_ps,
                }
            }
            scheme => scheme,
        },
        ..control
    });
    Settings {
        switch_delay_ps: times * settings.switch_delay_ps,
        send_delay_ps: times * settings.send_delay_ps,
        overhead_ps: times * settings.overhead_ps,
        copy_gbps: settings.copy_gbps / times as f64,
        local_gbps: settings.local_gbps / times as f64,
        memory_gbps: settings.memory_gbps / times as f64,
        local_delay_ps: times * settings.local_delay_ps,
        congestion_control: control,
        probes: Probes {
            counters_ps: times * settings.probes.counters_ps,
            queues_ps: times * settings.probes.queues_ps,
            carry: None,
        },
        ..settings.clone()
    }
}

/// The same log with `times` all times.
fn longer(log: &MessageLog, times: u64) -> MessageLog {
    let all = |ps: &[u64]| ps.iter().map(|ps| times * ps).collect();
    MessageLog {
        post_ps: all(&log.post_ps),
        start_ps: all(&log.start_ps),
        arrival_ps: all(&log.arrival_ps),
        ..log.clone()
    }
}

/// What each link carried over all windows, with `times` its times.
fn totals(outcome: &Outcome, times: u64) -> BTreeMap<u64, [u64; 7]> {
    let truth = &outcome.truth;
    let columns = [
        (&truth.bytes, 1),
        (&truth.busy_ps, times),
        (&truth.stall_ps, times),
        (&truth.packets, 1),
        (&truth.observed_packets, 1),
        (&truth.congested_packets, 1),
        (&truth.observed_congested_packets, 1),
    ];
    let mut totals: BTreeMap<u64, [u64; 7]> = BTreeMap::new();
    for (at, (column, times)) in columns.into_iter().enumerate() {
        for (link, number) in truth.link.iter().zip(column.iter()) {
            totals.entry(link).or_default()[at] += times * number;
        }
    }
    totals
}

/// Credit for two lanes of one link returns at the same time: by an event to one lane, and by a
/// note or an event to the other, depending on the partition. A case that the property below
/// generated.
#[test]
fn simultaneous_credit_is_independent_of_the_partition() {
    let messages = [
        (0, 4, 0),
        (13, 10, 988),
        (3, 0, 0),
        (11, 3, 0),
        (11, 15, 5181),
        (3, 6, 0),
        (4, 9, 0),
        (15, 3, 2561),
        (3, 14, 0),
        (8, 4, 0),
        (13, 1, 2997),
        (15, 12, 4336),
        (4, 12, 0),
        (0, 8, 2151),
        (8, 0, 2411),
        (11, 14, 2049),
        (2, 3, 5007),
        (3, 4, 0),
        (7, 1, 512),
        (9, 3, 0),
        (4, 0, 0),
        (9, 0, 181),
        (0, 15, 0),
        (9, 2, 1),
        (14, 1, 4608),
        (10, 9, 0),
        (9, 8, 0),
        (2, 1, 2997),
        (9, 6, 0),
        (13, 4, 4246),
    ];
    let case = hyperxes(&[4, 2], 0, false);
    let settings = Settings {
        seed: 0,
        packet_bytes: 256,
        header_bytes: 0,
        buffer_bytes: 1716,
        buffering: Buffering::Output,
        switching: Switching::StoreAndForward,
        routing: Routing::Deterministic,
        injection: Injection::PerDestination,
        pacing: Pacing::LeakyBucket { depth_bytes: 5000 },
        pacing_offset: PacingOffset::Shift,
        services: 3,
        lane_weights: vec![2048, 2048, 0],
        send_delay_ps: 1_000_000,
        eager_bytes: 0,
        ..settings()
    };
    let program = mixed(burst(case.fabric.n_nodes as usize, &messages));
    let on = |shards| {
        let work = Parallelism { threads: 1, shards: Some(shards) };
        Outcome { events: 0, ..run(&case, &settings, &program, work).unwrap() }
    };
    let outcome = on(1);
    for shards in 2..6 {
        assert!(on(shards) == outcome, "{shards} shards");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    /// The engine asserts in every run that each packet is delivered once and all credit has
    /// returned. This test checks that bytes and packets add up, no packet arrives too early, the
    /// run ends, and three threads with another partition give the same results.
    #[test]
    fn every_run_ends_conserves_and_ignores_threads(
        (case, knows_detours) in any_case(),
        settings in any_settings(),
        raw in proptest::collection::vec((0u32..4096, 0u32..4096, any_size()), 1..100),
        shards in 2u32..6,
    ) {
        let detour = if knows_detours { settings.detour } else { Detour::Never };
        let settings = Settings { detour, ..settings };
        let messages = among(&case.fabric, &raw);
        let program = mixed(burst(case.fabric.n_nodes as usize, &messages));
        let work = Parallelism { threads: 1, shards: Some(1) };
        let outcome = run(&case, &settings, &program, work).unwrap();
        prop_assert!(outcome.complete, "{}: still running at {} ps", case.name, outcome.end_ps);

        let log = &outcome.messages;
        prop_assert_eq!(log.bytes.iter().sum::<u64>(), messages.iter().map(|m| m.2).sum::<u64>());
        let size = u64::from(settings.packet_bytes);
        let packets: u64 = messages.iter().map(|m| m.2.div_ceil(size).max(1)).sum();
        prop_assert_eq!(outcome.packets, packets);
        prop_assert_eq!(log.packets.iter().map(|&p| u64::from(p)).sum::<u64>(), packets);
        let line = case.fabric.link_gbps.iter().copied().fold(0.0, f64::max);
        for m in 0..log.src.len() {
            prop_assert!(log.start_ps[m] >= log.post_ps[m] + settings.send_delay_ps);
            let least = (log.bytes[m] as f64 * 8000.0 / line) as u64;
            prop_assert!(log.arrival_ps[m] >= log.start_ps[m] + least);
            // Every packet visits at least one switch.
            prop_assert!(log.switch_hops[m] >= log.packets[m]);
        }
        // Packets sent by a node crossed its link, and packets on a link reached its end.
        let data: u64 = log.switch_hops.iter().map(|&h| u64::from(h)).sum();
        let carried: u64 = outcome.truth.packets.iter().sum();
        prop_assert!(carried >= data, "{} packets on links, {} switches visited", carried, data);

        let other = run(&case, &settings, &program, Parallelism { threads: 3, shards: Some(shards) });
        let events = outcome.events;
        prop_assert_eq!(Outcome { events, ..other.unwrap() }, outcome);
    }

    /// Megabits instead of gigabits: at a thousandth of every rate, with a thousand times every delay
    /// and timer, everything takes exactly a thousand times as long and is otherwise the same. Times
    /// of packets and links then exceed every compact representation in the engine.
    #[test]
    fn a_thousandth_of_the_rates_takes_a_thousand_times_as_long(
        (case, knows_detours) in any_case(),
        settings in any_settings(),
        raw in proptest::collection::vec((0u32..4096, 0u32..4096, 0u64..2_000), 1..60),
    ) {
        let settings = Settings {
            detour: if knows_detours { settings.detour } else { Detour::Never },
            pacing_offset: PacingOffset::None,
            pacing: match settings.pacing {
                // The others round to picoseconds.
                Pacing::LeakyBucket { .. } => Pacing::Spaced,
                pacing => pacing,
            },
            probes: Probes { counters_ps: 500_000, queues_ps: 700_000, carry: None },
            // Its rates are not whole numbers of picoseconds per byte.
            congestion_control: settings
                .congestion_control
                .clone()
                .filter(|control| !matches!(control.scheme, CongestionScheme::Dcqcn(_))),
            ..settings
        };
        let case = case.with_whole_rates();
        // Whole picoseconds at every rate and in every part of a packet that counts.
        let messages: Vec<_> = among(&case.fabric, &raw).into_iter().map(|(a, b, n)| (a, b, 8 * n)).collect();
        let program = mixed(burst(case.fabric.n_nodes as usize, &messages));
        let slow_program = Program {
            pace_mbps: program.pace_mbps.iter().map(|mbps| mbps / 1000).collect(),
            ..program.clone()
        };
        let fast = run(&case, &settings, &program, Parallelism::default()).unwrap();
        let work = Parallelism { threads: 2, shards: Some(3) };
        let slow = run(&case.slower(1000), &slower(&settings, 1000), &slow_program, work).unwrap();

        prop_assert_eq!(&slow.messages, &longer(&fast.messages, 1000));
        let ranks: Vec<_> = fast.ranks.iter().map(|r| RankLog {
            finish_ps: 1000 * r.finish_ps,
            compute_ps: 1000 * r.compute_ps,
            wait_ps: 1000 * r.wait_ps,
        }).collect();
        prop_assert_eq!(&slow.ranks, &ranks);
        prop_assert_eq!(slow.end_ps, 1000 * fast.end_ps);
        let counts = |o: &Outcome| (o.packets, o.packet_hops, o.refused, o.marked);
        prop_assert_eq!(counts(&slow), counts(&fast));
        prop_assert_eq!(totals(&slow, 1), totals(&fast, 1000));
        let counters = |o: &Outcome, times: u64| -> Vec<_> {
            o.probed.counters.iter().map(|row| {
                let PortCounters { busy_ps, stall_ps, queue_ps, inq_ps, .. } = row.value;
                let ps = [busy_ps, stall_ps, queue_ps, inq_ps].map(|ps| times * ps);
                (row.instant, row.link, row.value.bytes, row.value.packets, ps)
            }).collect()
        };
        prop_assert_eq!(counters(&slow, 1), counters(&fast, 1000));
        prop_assert_eq!(&slow.probed.queues, &fast.probed.queues);
    }

    /// Routes that can deadlock: a run ends, or fails with a cycle of links each of which leads to
    /// where the next begins. It never hangs.
    #[test]
    fn rings_without_datelines_end_or_name_their_circle(
        dims in proptest::collection::vec(3u32..7, 1..3),
        raw in proptest::collection::vec((0u32..4096, 0u32..4096, 0u64..60_000), 1..150),
        packets in 1u32..4,
        routing in prop_oneof![Just(Routing::Adaptive), Just(Routing::Deterministic)],
        turns in any::<bool>(),
    ) {
        let Case { fabric, .. } = grids(&dims, true, 5000, false);
        let rule = DimensionOrder::new(&fabric, &dims, Tie::Positive, false, false).unwrap();
        let case = Case::new("ring", fabric, RoutingRule::DimensionOrder(rule));
        let arbitration = if turns { Arbitration::RoundRobin } else { Arbitration::Fcfs };
        let settings =
            Settings { buffer_bytes: 4096 * packets, routing, arbitration, ..settings() };
        let messages = among(&case.fabric, &raw);
        let program = burst(case.fabric.n_nodes as usize, &messages);
        match run(&case, &settings, &program, Parallelism { threads: 2, shards: Some(3) }) {
            Ok(outcome) => prop_assert!(outcome.complete),
            Err(EngineError::Deadlock { cycle, .. }) => {
                for (at, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                    let (end, start) = (case.fabric.link_dst[at.0 as usize], next.0 as usize);
                    prop_assert_eq!(end, case.fabric.link_src[start]);
                }
            }
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}
