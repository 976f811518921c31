//! Packets of a flow stay in order wherever a flow has one path and one lane.

use std::collections::HashMap;

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::{Arbitration, Buffering, Outcome, Routing, Settings, Switching};

/// Every node sends `count` one-packet messages to each of five others, near and far: links are
/// full and queues long.
fn crowd(nodes: u32, count: u32) -> Vec<(u32, u32, u64)> {
    let steps = [1, 2, nodes / 3 + 1, nodes / 2, nodes - 1];
    let mut messages = Vec::new();
    for src in 0..nodes {
        for _ in 0..count {
            messages.extend(steps.map(|step| (src, (src + step) % nodes, 4096u64)));
        }
        // A node that everybody wants.
        messages.extend((0..count).map(|_| (src, 0, 4096)));
    }
    messages.retain(|&(src, dst, _)| src != dst);
    messages
}

/// Pairs of neighbouring packets of a flow of which the later one arrives first.
fn overtakings(outcome: &Outcome) -> usize {
    let log = &outcome.messages;
    let mut last: HashMap<(u32, u32), u64> = HashMap::new();
    let mut count = 0;
    for message in 0..log.src.len() {
        let arrival = log.arrival_ps[message];
        if let Some(before) = last.insert((log.src[message], log.dst[message]), arrival) {
            count += usize::from(arrival <= before);
        }
    }
    count
}

/// Deterministic routing: one path a flow, every link first in first out a lane, so
/// `arrival(k) < arrival(k + 1)` for the packets k of every flow, on every topology, however buffers,
/// switching and arbitration work. (An arbitration between inputs keeps each input's order.)
#[test]
fn deterministic_routing_keeps_every_flow_in_order() {
    for case in every_topology() {
        let nodes = case.fabric.n_nodes;
        let program = burst(nodes as usize, &crowd(nodes, 6));
        for arbitration in [Arbitration::Fcfs, Arbitration::RoundRobin] {
            for (buffering, switching) in [
                (Buffering::Input, Switching::CutThrough),
                (Buffering::Input, Switching::StoreAndForward),
                (Buffering::Output, Switching::CutThrough),
            ] {
                let settings = Settings {
                    routing: Routing::Deterministic,
                    buffer_bytes: 3 * 4096,
                    arbitration,
                    buffering,
                    switching,
                    ..settings()
                };
                let outcome = case.run(&settings, &program);
                let count = overtakings(&outcome);
                assert_eq!(
                    count, 0,
                    "{}, {arbitration:?}, {buffering:?}, {switching:?}: packets overtook",
                    case.name
                );
            }
        }
    }
}

/// The test above can fail: with adaptive routing over several paths, packets overtake.
#[test]
fn adaptive_routing_reorders_flows() {
    let cases = every_topology();
    let several =
        cases.iter().filter(|case| ["fat tree", "pgft", "yellowstone"].contains(&case.name));
    for case in several {
        let nodes = case.fabric.n_nodes;
        let settings = Settings { buffer_bytes: 3 * 4096, ..settings() };
        let outcome = case.run(&settings, &burst(nodes as usize, &crowd(nodes, 6)));
        assert!(overtakings(&outcome) > 0, "{}", case.name);
    }
}
