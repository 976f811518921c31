//! Closed-form answers: what a link carries when nothing else limits it, and when its credit does.

use std::collections::BTreeSet;

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::{Outcome, Parallelism, Routing, Settings};
use tailback_fabric::{Fabric, RoutePlan};

const PACKET: u64 = 4096;
const SWITCH: u64 = 60_000;

fn deterministic() -> Settings {
    Settings { routing: Routing::Deterministic, ..settings() }
}

/// Time `bytes` take at `gbps`, in picoseconds.
fn wire(bytes: u64, gbps: f64) -> f64 {
    bytes as f64 * 8000.0 / gbps
}

fn last(outcome: &Outcome) -> u64 {
    *outcome.messages.arrival_ps.iter().max().unwrap()
}

/// What kind a link is: tiers of its ends (-1 for a node) and its rate.
fn kind(fabric: &Fabric, link: u32) -> (i32, i32, u64) {
    let tier = |vertex: u32| match vertex.checked_sub(fabric.n_nodes) {
        Some(switch) => fabric.switch_tier[switch as usize],
        None => -1,
    };
    let link = link as usize;
    let rate = fabric.link_gbps[link];
    (tier(fabric.link_src[link]), tier(fabric.link_dst[link]), rate.to_bits())
}

/// Links from node to node with the first candidate everywhere.
fn route(plan: &RoutePlan, fabric: &Fabric, from: u32, to: u32) -> Vec<u32> {
    let inner = plan.path(fabric, from, to, u32::MAX, |_| 0).unwrap();
    let mut links = vec![plan.injection[from as usize]];
    links.extend(inner.iter().map(|&(link, _)| link));
    links.push(plan.ejection[to as usize]);
    links
}

/// Line rate on every kind of link of every topology: `T(2n) - T(n) = n x packet / min rate`, with
/// T(n) the arrival of a message of n packets on an empty network. The difference leaves neither
/// latency nor filling of the pipeline in, so the rate is exact to a picosecond a packet. Every
/// kind of link (tiers of its ends, rate) must be crossed, and every rate must once be the least.
#[test]
fn every_kind_of_link_runs_at_its_own_rate() {
    for case in every_topology() {
        let Case { name, fabric, plan } = &case;
        let mut crossed = BTreeSet::new();
        let mut slowest = BTreeSet::new();
        let pairs = (1..fabric.n_nodes).flat_map(|to| [(0, to), (to, 0), (to / 2, to)]);
        for (from, to) in pairs {
            let links = route(plan, fabric, from, to);
            let fresh = links.iter().map(|&l| kind(fabric, l)).any(|kind| crossed.insert(kind));
            let least =
                links.iter().map(|&l| fabric.link_gbps[l as usize]).fold(f64::MAX, f64::min);
            if from == to || !(slowest.insert(least.to_bits()) || fresh) {
                continue;
            }
            let arrival = |packets: u64| {
                let program = burst(2, &[(0, 1, packets * PACKET)]);
                last(&case.run_at(&deterministic(), &program, &[from, to]))
            };
            let n = 200;
            let measured = (arrival(2 * n) - arrival(n)) as f64;
            let expected = wire(n * PACKET, least);
            assert!(
                (measured - expected).abs() <= n as f64,
                "{name}, node {from} to {to}: {measured} ps against {expected} ps at {least} Gb/s"
            );
        }
        let links = 0..fabric.n_links() as u32;
        let sideways = *name == "modified tree";
        for link in links {
            // Horizontal links are taken under load only: they have a test of their own.
            let kind = kind(fabric, link);
            assert!(
                crossed.contains(&kind) || (sideways && kind.0 == kind.1),
                "{name}: no message crossed a link of kind {kind:?}"
            );
        }
        let rates: BTreeSet<u64> = fabric.link_gbps.iter().map(|rate| rate.to_bits()).collect();
        let left: Vec<f64> = rates.difference(&slowest).map(|&r| f64::from_bits(r)).collect();
        assert!(left.is_empty() || (sideways && left == [50.0]), "{name}: untried rates {left:?}");
    }
}

/// Blue Waters' torus, 24 x 24 x 24 with two nodes per router. The two nodes of a router send to
/// those of the next one along a dimension, which fills that link: `T(2n) - T(n) = 2n x packet /
/// rate`, with the rate of the dimension: X 9.4, Y 4.7, Z 15 GB/s, every eighth Z link 9.4 GB/s.
#[test]
fn blue_waters_has_a_rate_for_every_dimension() {
    let fast_z = 15.0 * 8.0;
    let z = [fast_z, fast_z, fast_z, fast_z, fast_z, fast_z, fast_z, 75.2];
    let case = grid(&[(24, true, &[75.2]), (24, true, &[37.6]), (24, true, &z)], 2, 83.2);
    assert_eq!((case.fabric.n_nodes, case.fabric.n_switches), (27_648, 13_824));
    for (dimension, position, gbps) in [
        (0, 0, 75.2),
        (0, 23, 75.2),
        (1, 5, 37.6),
        (1, 23, 37.6),
        (2, 0, 120.0),
        (2, 7, 75.2),
        (2, 12, 120.0),
        (2, 15, 75.2),
        (2, 23, 75.2),
    ] {
        let router = |at: u32| {
            let mut place = [3u32, 11, 17];
            place[dimension] = at % 24;
            place[0] + 24 * (place[1] + 24 * place[2])
        };
        let (here, next) = (router(position), router(position + 1));
        let nodes = [2 * here, 2 * here + 1, 2 * next, 2 * next + 1];
        for nodes in [nodes, [nodes[2], nodes[3], nodes[0], nodes[1]]] {
            let arrival = |packets: u64| {
                let bytes = packets * PACKET;
                let program = burst(4, &[(0, 2, bytes), (1, 3, bytes)]);
                let settings = Settings { measure: false, ..deterministic() };
                // Little happens on a large fabric: one shard costs the least to set up.
                let work = Parallelism { threads: 1, shards: Some(1) };
                last(&case.try_run(&settings, &program, &nodes, work).unwrap())
            };
            let n = 150;
            let measured = (arrival(2 * n) - arrival(n)) as f64;
            let expected = wire(2 * n * PACKET, gbps);
            assert!(
                (measured / expected - 1.0).abs() < 1e-3,
                "dimension {dimension} from {position}: {measured} ps against {expected} ps"
            );
        }
    }
}

/// Parallel cables between two switches add up: `rate = cables x rate of one`, with adaptive routing
/// and enough senders.
#[test]
fn parallel_cables_add_up() {
    for cables in 1..=4u32 {
        let mut wires: Vec<_> = (0..8).map(|n| (n, 8 + n / 4, 100.0)).collect();
        wires.extend((0..cables).map(|_| (8, 9, 25.0)));
        let case = wired(8, 2, CABLE, &wires);
        let arrival = |packets: u64| {
            let messages: Vec<_> = (0..4).map(|n| (n, n + 4, packets * PACKET)).collect();
            last(&case.run(&settings(), &burst(8, &messages)))
        };
        let n = 100;
        let measured = (arrival(2 * n) - arrival(n)) as f64;
        let expected = wire(4 * n * PACKET, 25.0 * f64::from(cables));
        assert!((measured / expected - 1.0).abs() < 0.01, "{cables}: {measured} {expected}");
    }
}

/// Credit-limited throughput of a link between two switches, with a buffer of m packets:
/// `rate = min(line rate, m x packet / (2 x cable + switch + packet time))`. The round trip is that of
/// a packet's buffer space: over the cable, through the switch, out (its tail), credit back.
#[test]
fn credit_limits_a_link_to_buffer_over_round_trip() {
    let long = 2_000_000;
    let packet = wire(PACKET, 100.0) as u64;
    for buffers in 1..=16 {
        let shape = [(0, 2, 100.0), (1, 3, 100.0), (2, 3, 100.0)];
        let case = wired(2, 2, long, &shape);
        let settings = Settings { buffer_bytes: (buffers * PACKET) as u32, ..settings() };
        let arrival =
            |packets: u64| last(&case.run(&settings, &burst(2, &[(0, 1, packets * PACKET)])));
        // A multiple of the buffer: packets go in groups of one buffer a round trip.
        let n = 20 * buffers;
        let measured = arrival(2 * n) - arrival(n);
        let round_trip = 2 * long + SWITCH + packet;
        let expected = (n * packet).max(n / buffers * round_trip);
        assert_eq!(measured, expected, "{buffers} packets of buffer");
    }
}

/// The same per virtual lane. On a ring with a dateline (Dally and Seitz, 1987), packets ahead of
/// the dateline travel on lane 0, others on lane 1. Two flows on one link get `buffer / round trip`
/// each on two lanes, and half of that each on one lane.
#[test]
fn every_lane_has_credit_of_its_own() {
    use tailback_fabric::rules::{DimensionOrder, Tie};
    use tailback_fabric::{RoutingRule, torus};
    let long = 2_000_000;
    let dimension =
        torus::Dimension { size: 6, wrap: true, cables: 1, gbps: vec![100.0], delay_ps: long };
    let shape = torus::Shape {
        dimensions: vec![dimension],
        nodes_per_switch: 2,
        node_gbps: 100.0,
        node_delay_ps: 0,
    };
    let fabric = torus::build(&shape).unwrap();
    let rule = DimensionOrder::new(&fabric, &[6], Tie::Positive, true, false).unwrap();
    let case = Case::new("ring", fabric, RoutingRule::DimensionOrder(rule));
    let settings = Settings { buffer_bytes: 2 * PACKET as u32, ..settings() };
    let period = 2 * long + SWITCH + wire(PACKET, 100.0) as u64;
    let time = |nodes: &[u32; 4]| {
        let arrival = |packets: u64| {
            let bytes = packets * PACKET;
            last(&case.run_at(&settings, &burst(4, &[(0, 2, bytes), (1, 3, bytes)]), nodes))
        };
        (arrival(80) - arrival(40)) as f64
    };
    // Both from switch 4 to switch 5: 2 x 40 packets by one lane, two a period.
    let one_lane = time(&[8, 9, 10, 11]);
    assert!((one_lane / (40 * period) as f64 - 1.0).abs() < 0.01, "one lane: {one_lane}");
    // One of them on to switch 0, beyond the dateline: 40 packets a lane.
    let two = time(&[8, 9, 0, 11]);
    assert!((two / (20 * period) as f64 - 1.0).abs() < 0.01, "two lanes: {two}");
}

/// A lane refers to its kind of cable by a 16-bit number, which limits how many kinds there are.
#[test]
fn the_number_of_cable_kinds_is_limited() {
    let half = 1 << 15;
    let star = |kinds: u32| {
        // Every cable a 2^-16 of a picosecond a byte slower than the one before; that between the two
        // switches like the first.
        let rate = |node: u32| 8000.0 * 65536.0 / f64::from(5_000_000 + node);
        let cables = (0..kinds).map(|node| (node, kinds + u32::from(node >= half), rate(node)));
        let cables: Vec<_> = cables.chain([(kinds, kinds + 1, rate(0))]).collect();
        let (case, last) = (wired(kinds, 2, 0, &cables), kinds - 1);
        case.try_run(&settings(), &burst(2, &[(0, 1, PACKET)]), &[0, last], Parallelism::default())
    };
    let outcome = star(1 << 16).expect("a number for every cable");
    let slowest = wire(PACKET, 8000.0 * 65536.0 / 5_065_535.0);
    assert!((outcome.end_ps as f64 - slowest).abs() < 3.0 * SWITCH as f64, "{}", outcome.end_ps);
    let Err(error) = star((1 << 16) + 1) else { panic!("one cable too many") };
    assert!(
        error.to_string().contains("65537 is more than the engine's limit of 65536"),
        "{error}"
    );
}

/// A switch numbers its ports by 16 bits.
#[test]
fn the_number_of_ports_is_limited() {
    let star = |nodes: u32| {
        let cables: Vec<_> = (0..nodes).map(|node| (node, nodes, 100.0)).collect();
        let program = burst(2, &[(0, 1, PACKET)]);
        wired(nodes, 1, 0, &cables).try_run(
            &settings(),
            &program,
            &[0, nodes - 1],
            Parallelism::default(),
        )
    };
    assert_eq!(star(65_536).expect("a number for every port").packets, 1);
    let Err(error) = star(65_537) else { panic!("one port too many") };
    let expected = "ports of a switch: 65537 is more than the engine's limit of 65536";
    assert!(error.to_string().contains(expected), "{error}");
}
