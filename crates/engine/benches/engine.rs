//! Micro-benchmarks: the event queue, a routing choice by every rule, one hop.
//!
//!     cargo bench -p tailback-engine

use std::hint::black_box;
use std::time::{Duration, Instant};

use tailback_engine::events::queue::{Event, EventKind, EventQueue};
use tailback_engine::{Arbitration, Routing, Settings};
use tailback_fabric::{RouteState, Routes, RoutingRule, fat_tree};
use tailback_program::Program;

#[allow(dead_code)] // what only the tests use
#[path = "../tests/suite/common/mod.rs"]
mod common;

use common::burst;
use common::fabrics::{CABLE, Case, every_topology, up_down, wired};

/// Prints the median time of an element over 25 samples, and its quartiles.
///
/// One sample repeats `call` for at least 10 ms, so that the clock's resolution does not count.
fn measure(name: &str, elements: u64, mut call: impl FnMut()) {
    let mut repeats = 1u32;
    let mut sample = |repeats: u32| {
        let start = Instant::now();
        (0..repeats).for_each(|_| call());
        start.elapsed()
    };
    while sample(repeats) < Duration::from_millis(10) {
        repeats *= 2;
    }
    let mut times: Vec<f64> = (0..25)
        .map(|_| sample(repeats).as_secs_f64() * 1e9 / f64::from(repeats) / elements as f64)
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:60} {:10.1} ns ({:.1} to {:.1})", times[12], times[6], times[18]);
}

/// The hold model (Jones, 1986): a queue of constant size; the first event is taken and one put back
/// a random time later.
fn event_queue() {
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
        measure(&format!("event queue, one out and one in, {pending} pending"), 1, || {
            let event = loop {
                match queue.pop() {
                    Some((event, _)) => break event,
                    None => queue.open_window(queue.next_window()),
                }
            };
            let time = event.time() + later();
            queue.push(Event::new(time, EventKind::Arrival, event.entity(), 0));
            black_box(event);
        });
    }
}

/// Candidates, lane and state of one step, over all pairs of a switch and a node.
fn routing_rules() {
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
        measure(&format!("routing step, {name}, {} rule", plan.name()), 1, || {
            at = (at + stride + 17) % pairs.len();
            let (switch, node) = pairs[at];
            black_box(plan.next(switch, node, u32::MAX, RouteState::START));
        });
    }
}

/// Full cost of a packet at a switch: a long message through one switch, and heavy traffic through
/// a small tree by each routing mode.
fn one_hop() {
    let hop = |name: &str, case: &Case, settings: &Settings, program: &Program| {
        let hops = case.run(settings, program).packet_hops;
        measure(&format!("one hop, {name}"), hops, || {
            black_box(case.run(settings, program));
        });
    };
    let quiet = Settings { measure: false, ..common::settings() };
    let star = wired(2, 1, CABLE, &[(0, 2, 100.0), (1, 2, 100.0)]);
    hop("one switch, nobody else", &star, &quiet, &burst(2, &[(0, 1, 20_000 * 4096)]));

    let tree = up_down("small tree", fat_tree::build(&common::SMALL).expect("a tree"));
    hop("small tree, nobody else", &tree, &quiet, &burst(16, &[(0, 15, 20_000 * 4096)]));

    let crowd: Vec<_> =
        (0..16).flat_map(|src| (1..16).map(move |k| (src, (src + k) % 16, 40 * 4096))).collect();
    let crowd = burst(16, &crowd);
    for routing in [Routing::Deterministic, Routing::Random, Routing::Adaptive] {
        for arbitration in [Arbitration::Fcfs, Arbitration::RoundRobin] {
            let settings = Settings { routing, arbitration, ..quiet.clone() };
            hop(&format!("full tree, {routing:?}, {arbitration:?}"), &tree, &settings, &crowd);
        }
    }
}

fn main() {
    event_queue();
    routing_rules();
    one_hop();
}
