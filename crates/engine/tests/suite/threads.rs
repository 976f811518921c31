//! The same tables on any number of threads, on every topology and by every routing.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::common::*;
use tailback_engine::{
    Arbitration, CongestionControl, CongestionScheme, Dcqcn, Detour, FlowControl, Injection,
    Outcome, Pacing, Parallelism, Progress, Routing, Settings, simulate,
};
use tailback_fabric::rules::{DimensionOrder, DragonflyRouting, HyperXRouting, Tie};
use tailback_fabric::{
    Arrangement, Fabric, RoutePlan, Routes, RoutingRule, dragonfly, dragonfly_plus, fat_tree,
    hyperx, pgft, torus,
};

const CABLE: u64 = 5_000;

/// Every node sends to a few others, near and far, in several sizes; some by rendezvous.
fn rush(fabric: &Fabric, plan: &RoutePlan, settings: &Settings, work: Parallelism) -> Outcome {
    let n = fabric.n_nodes;
    let steps = [1, 3, n / 3 + 1, n / 2, n - 1];
    let messages: Vec<_> = (0..n)
        .flat_map(|src| {
            let to =
                move |(k, &step): (usize, &u32)| (src, (src + step) % n, 3000 * (1 + k as u64 * 4));
            steps.iter().enumerate().map(to)
        })
        .filter(|(src, dst, _)| src != dst)
        .collect();
    let program = burst(n as usize, &messages);
    let placement = in_order(n as usize);
    let mut watch = |_| ControlFlow::Continue(());
    simulate(fabric, plan, settings, &program, &placement, work, &mut watch).unwrap()
}

/// Runs with 1 to 4 threads, and with other partitions, and compares all results. Returns the
/// outcome.
fn same_everywhere(fabric: &Fabric, rule: RoutingRule, settings: &Settings) -> Outcome {
    let plan = RoutePlan::new(fabric, rule).unwrap();
    let run = |threads, shards| rush(fabric, &plan, settings, Parallelism { threads, shards });
    let outcome = run(1, Some(5));
    assert!(outcome.complete && outcome.packet_hops > 0);
    for threads in 2..=4 {
        assert!(run(threads, Some(5)) == outcome, "{threads} threads");
    }
    for shards in [1, 3] {
        assert!(run(2, Some(shards)) == outcome, "{shards} shards");
    }
    outcome
}

fn every_setting(fabric: &Fabric, rule: impl Fn(bool) -> RoutingRule) {
    for routing in [Routing::Adaptive, Routing::Random, Routing::Deterministic] {
        for (detour, way) in [(false, Detour::Never), (true, Detour::Valiant), (true, Detour::Ugal)]
        {
            if detour && matches!(rule(false), RoutingRule::Table(_)) {
                continue;
            }
            let settings = Settings {
                routing,
                detour: way,
                eager_bytes: 8192,
                buffer_bytes: 8192,
                ..settings()
            };
            same_everywhere(fabric, rule(detour), &settings);
        }
    }
}

/// Features that are off by default, all at once and one by one.
fn every_extra(fabric: &Fabric, rule: impl Fn(bool) -> RoutingRule) {
    let plain = Settings { eager_bytes: 8192, buffer_bytes: 8192, ..settings() };
    let round_robin = Settings { arbitration: Arbitration::RoundRobin, ..plain.clone() };
    let by_destination = Settings { injection: Injection::PerDestination, ..plain.clone() };
    let slow = Settings { crossbar_speedup: 1.0, ..plain.clone() };
    let ideal = Settings { contention: false, ..plain.clone() };
    let weighted = Settings { services: 2, lane_weights: vec![8192, 4096], ..plain };
    let all = Settings {
        arbitration: Arbitration::RoundRobin,
        crossbar_speedup: 1.5,
        services: 3,
        lane_weights: vec![4096, 0, 8192],
        ..controlled(CongestionScheme::Infiniband)
    };
    let circuits =
        Settings { routing: Routing::VirtualCircuit, vc_entries: 3, ..by_destination.clone() };
    for settings in [round_robin, by_destination, slow, weighted, all, circuits, ideal] {
        same_everywhere(fabric, rule(false), &settings);
    }
    every_control(fabric, rule);
}

fn controlled(scheme: CongestionScheme) -> Settings {
    let control =
        CongestionControl { marking_rate: 1, victims: true, ..control(scheme, 4096, 1_000_000) };
    Settings {
        eager_bytes: 8192,
        buffer_bytes: 8192,
        injection: Injection::PerDestination,
        congestion_control: Some(control),
        ..settings()
    }
}

/// Every scheme of congestion control: notices between shards.
fn every_control(fabric: &Fabric, rule: impl Fn(bool) -> RoutingRule) {
    let [dcms, polled] = [0, 2_000_000].map(|poll_ps| CongestionScheme::Dcms {
        calm_marking_rate: 5,
        hold_ps: 3_000_000,
        poll_ps,
    });
    let rgbcc = CongestionScheme::Rgbcc { green_bytes: 1024 };
    for scheme in [CongestionScheme::Infiniband, dcms, polled, rgbcc] {
        let marked = same_everywhere(fabric, rule(false), &controlled(scheme)).marked;
        assert!(marked > 100, "{scheme:?} marks {marked} packets: nothing to see");
    }
    let assigned = Settings {
        routing: Routing::Ecmp,
        pacing: Pacing::Elastic { percent: 50 },
        ..controlled(CongestionScheme::Assignment)
    };
    assert!(same_everywhere(fabric, rule(false), &assigned).notifications > 100);
    // Links that pause, with and without DCQCN; paths by a hash of the flow.
    let pfc = FlowControl::Pfc { xoff_bytes: 6000, xon_bytes: 3000 };
    let dcqcn = Dcqcn { kmin_bytes: 2000, kmax_bytes: 9000, pmax: 0.5, ..Dcqcn::default() };
    let marking = controlled(CongestionScheme::Dcqcn(dcqcn));
    for settings in [settings(), marking] {
        let settings = Settings {
            flow_control: pfc,
            routing: Routing::Ecmp,
            eager_bytes: 8192,
            buffer_bytes: 1 << 16,
            ..settings
        };
        let outcome = same_everywhere(fabric, rule(false), &settings);
        let notices = settings.congestion_control.is_some();
        assert!(outcome.pauses > 100 && outcome.paused_ps > 0, "{} pauses", outcome.pauses);
        assert_eq!((outcome.marked > 100, outcome.notifications > 10), (notices, notices));
    }
}

fn up_down(fabric: &Fabric) -> impl Fn(bool) -> RoutingRule {
    |_| RoutingRule::Table(Routes::up_down(fabric).unwrap())
}

#[test]
fn fat_trees_run_alike_on_any_threads() {
    let shape = fat_tree::Shape {
        hosts_per_leaf: 4,
        leaves: 3,
        aggregation: 2,
        pods: 3,
        cores: 4,
        leaf_cables: 1,
        aggregation_uplinks: 4,
        gbps: [100.0, 100.0, 200.0],
        delay_ps: [CABLE, CABLE, 4 * CABLE],
    };
    let fabric = fat_tree::build(&shape).unwrap();
    every_setting(&fabric, up_down(&fabric));
    every_extra(&fabric, up_down(&fabric));
}

#[test]
fn generalised_trees_run_alike_on_any_threads() {
    let shape = pgft::Shape {
        children: vec![4, 4, 2],
        parents: vec![1, 2, 4],
        cables: vec![1, 2, 1],
        gbps: vec![100.0; 3],
        delay_ps: vec![CABLE; 3],
        planes: 1,
    };
    let fabric = pgft::build(&shape).unwrap();
    every_setting(&fabric, up_down(&fabric));
}

#[test]
fn tori_run_alike_on_any_threads() {
    let dimension = |size, wrap, gbps| torus::Dimension {
        size,
        wrap,
        cables: 1,
        gbps: vec![gbps],
        delay_ps: CABLE,
    };
    let dims = [4, 3, 3];
    let shape = torus::Shape {
        dimensions: vec![
            dimension(4, true, 75.0),
            dimension(3, true, 37.6),
            dimension(3, false, 120.0),
        ],
        nodes_per_switch: 2,
        node_gbps: 100.0,
        node_delay_ps: 0,
    };
    let fabric = torus::build(&shape).unwrap();
    let rule = |detour| {
        let rule = DimensionOrder::new(&fabric, &dims, Tie::Parity, true, detour);
        RoutingRule::DimensionOrder(rule.unwrap())
    };
    every_setting(&fabric, rule);
    every_extra(&fabric, rule);
}

fn mesh() -> Fabric {
    let dimension = |size| hyperx::Dimension { size, cables: 1, gbps: 100.0, delay_ps: CABLE };
    let shape = hyperx::Shape {
        dimensions: vec![dimension(4), dimension(3)],
        nodes_per_switch: 3,
        node_gbps: 100.0,
        node_delay_ps: CABLE,
    };
    hyperx::build(&shape).unwrap()
}

#[test]
fn hyperx_meshes_run_alike_on_any_threads() {
    let fabric = mesh();
    every_setting(&fabric, |detour| {
        RoutingRule::HyperX(HyperXRouting::new(&fabric, &[4, 3], detour).unwrap())
    });
}

#[test]
fn dragonflies_run_alike_on_any_threads() {
    let shape = dragonfly::Shape {
        nodes_per_router: 2,
        routers: 4,
        global_ports: 2,
        groups: 5,
        arrangement: Arrangement::Palmtree,
        gbps: [100.0; 3],
        delay_ps: [CABLE, CABLE, 20 * CABLE],
    };
    let fabric = dragonfly::build(&shape).unwrap();
    every_setting(&fabric, |detour| {
        RoutingRule::Dragonfly(DragonflyRouting::new(&fabric, detour, true).unwrap())
    });
    let shape = dragonfly_plus::Shape {
        nodes_per_leaf: 2,
        leaves: 4,
        spines: 4,
        global_ports: 1,
        groups: 5,
        arrangement: Arrangement::Palmtree,
        gbps: [100.0; 3],
        delay_ps: [CABLE, CABLE, 20 * CABLE],
    };
    let fabric = dragonfly_plus::build(&shape).unwrap();
    let rule =
        |detour| RoutingRule::Dragonfly(DragonflyRouting::new(&fabric, detour, true).unwrap());
    every_setting(&fabric, rule);
    every_control(&fabric, rule);
}

/// While the watcher blocks the thread that calls it, another thread does its work.
#[test]
fn no_shard_waits_for_a_blocked_thread() {
    let fabric = mesh();
    let rule = RoutingRule::HyperX(HyperXRouting::new(&fabric, &[4, 3], false).unwrap());
    let plan = RoutePlan::new(&fabric, rule).unwrap();
    let n = fabric.n_nodes;
    let far: Vec<_> = (0..n).map(|src| (src, (src + n / 2) % n, 2_000_000)).collect();
    let settings = Settings { packet_bytes: 128, measure: false, ..settings() };
    let (program, placement) = (burst(n as usize, &far), in_order(n as usize));
    // Events processed while a thread is blocked for so long.
    let meanwhile = |away: Duration| {
        let mut seen = Vec::new();
        let mut watch = |progress: Progress| {
            if seen.is_empty() {
                std::thread::sleep(away);
            }
            seen.push(progress.events);
            ControlFlow::Continue(())
        };
        let work = Parallelism { threads: 2, shards: None };
        let run = simulate(&fabric, &plan, &settings, &program, &placement, work, &mut watch);
        seen.get(1).unwrap_or(&run.unwrap().events) - seen[0]
    };
    // It is called every 131,072 events, if it can be. On a machine that is busy with something else these
    // may take a while.
    let away = [300, 1500, 7500].map(Duration::from_millis);
    assert!(away.into_iter().any(|away| meanwhile(away) > 2 * 131_072));
}
