//! Micro-benchmarks: the event queue, a routing choice by every rule, one hop.
//!
//!     cargo bench -p tailback-engine

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tailback_engine::events::queue::{Event, EventKind, EventQueue};
use tailback_engine::{Arbitration, Routing, Settings};
use tailback_fabric::{RouteState, Routes, RoutingRule, fat_tree};

#[allow(dead_code)] // what only the tests use
#[path = "../tests/suite/common/mod.rs"]
mod common;

use common::burst;
use common::fabrics::{CABLE, Case, every_topology, up_down, wired};

/// The hold model (Jones, 1986): a queue of constant size; the first event is taken and one put back
/// a random time later.
fn event_queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("event queue, take one and put one back");
    group.throughput(Throughput::Elements(1));
    for pending in [100u32, 1_000, 10_000] {
        // All within the horizon, as in a shard that is not starved: some sixty windows, in each a few
        // events for every tenth entity.
        let horizon = 4_000_000u64;
        let groups = pending / 10;
        let mut queue = EventQueue::new(horizon / 64, groups as usize);
        let mut bits = 1u64;
        let mut later = move || {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (bits >> 33) % horizon
        };
        for entity in 0..pending {
            queue.push_for(entity % groups, Event::new(later(), EventKind::Arrival, entity, 0));
        }
        group.bench_function(format!("{pending} pending"), |b| {
            b.iter(|| {
                let event = loop {
                    match queue.pop() {
                        Some((event, _)) => break event,
                        None => queue.open_window(queue.next_window()),
                    }
                };
                let time = event.time() + later();
                queue.push(Event::new(time, EventKind::Arrival, event.entity(), 0));
                black_box(event)
            });
        });
    }
    group.finish();
}

/// Candidates, lane and state of one step, over all pairs of a switch and a node.
fn routing_rules(c: &mut Criterion) {
    let mut group = c.benchmark_group("routing step");
    group.throughput(Throughput::Elements(1));
    let mut cases = every_topology();
    let tapered = fat_tree::build(&fat_tree::Shape::TAPERED).expect("a preset");
    let by_arithmetic = Routes::arithmetic(&tapered).expect("attached").expect("a regular tree");
    cases.push(Case::new(
        "tapered by arithmetic",
        tapered.clone(),
        RoutingRule::Table(by_arithmetic),
    ));
    cases.push(up_down("tapered by table", tapered));
    for Case { name, fabric, plan } in &cases {
        let nodes = 0..fabric.n_nodes;
        let pairs: Vec<(u32, u32)> = (0..fabric.n_switches)
            .flat_map(|switch| nodes.clone().map(move |node| (switch, node)))
            .filter(|&(switch, node)| plan.node_switch[node as usize] != switch)
            .filter(|&(switch, node)| plan.has_route(fabric, switch, node))
            .collect();
        // In no order, as packets come.
        let stride = pairs.len() / 2 + usize::from(pairs.len().is_multiple_of(2));
        let mut at = 0;
        group.bench_function(format!("{name}, {} rule", plan.name()), |b| {
            b.iter(|| {
                at = (at + stride + 17) % pairs.len();
                let (switch, node) = pairs[at];
                black_box(plan.next(switch, node, u32::MAX, RouteState::START))
            });
        });
    }
    group.finish();
}

/// Full cost of a packet at a switch: a long message through one switch, and heavy traffic through
/// a small tree by each routing mode.
fn one_hop(c: &mut Criterion) {
    let mut group = c.benchmark_group("one hop");
    let quiet = Settings { measure: false, ..common::settings() };
    let star = wired(2, 1, CABLE, &[(0, 2, 100.0), (1, 2, 100.0)]);
    let message = burst(2, &[(0, 1, 20_000 * 4096)]);
    group.throughput(Throughput::Elements(star.run(&quiet, &message).packet_hops));
    group.bench_function("one switch, nobody else", |b| b.iter(|| star.run(&quiet, &message)));

    let tree = up_down("small tree", fat_tree::build(&common::SMALL).expect("a tree"));
    let message = burst(16, &[(0, 15, 20_000 * 4096)]);
    group.throughput(Throughput::Elements(tree.run(&quiet, &message).packet_hops));
    group.bench_function("small tree, nobody else", |b| b.iter(|| tree.run(&quiet, &message)));

    let crowd: Vec<_> =
        (0..16).flat_map(|src| (1..16).map(move |k| (src, (src + k) % 16, 40 * 4096))).collect();
    let crowd = burst(16, &crowd);
    for routing in [Routing::Deterministic, Routing::Random, Routing::Adaptive] {
        for arbitration in [Arbitration::Fcfs, Arbitration::RoundRobin] {
            let settings = Settings { routing, arbitration, ..quiet.clone() };
            group.throughput(Throughput::Elements(tree.run(&settings, &crowd).packet_hops));
            group.bench_function(format!("full tree, {routing:?}, {arbitration:?}"), |b| {
                b.iter(|| tree.run(&settings, &crowd));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, event_queue, routing_rules, one_hop);
criterion_main!(benches);
