//! Closed-form answers: which of several paths packets take, by each routing mode.

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::{Arbitration, Detour, Outcome, Parallelism, Routing, Settings};
use tailback_fabric::rules::{HyperXRouting, PeerLinkRouting};
use tailback_fabric::{Fabric, Routes, RoutingRule, fat_tree, hyperx, modified_tree};

const PACKET: u64 = 4096;
const WIRE: u64 = PACKET * 80; // at 100 Gb/s, in picoseconds
const SWITCH: u64 = 60_000;

/// Packets that each link carried.
fn carried(fabric: &Fabric, outcome: &Outcome) -> Vec<u64> {
    let mut packets = vec![0; fabric.n_links()];
    let truth = &outcome.truth;
    truth.link.iter().zip(truth.packets.iter()).for_each(|(link, n)| packets[link as usize] += n);
    packets
}

/// Links from one switch to another.
fn between(fabric: &Fabric, from: u32, to: u32) -> Vec<usize> {
    let [from, to] = [from, to].map(|switch| fabric.n_nodes + switch);
    let links = fabric.out_links(from).map(|link| link as usize);
    links.filter(|&link| fabric.link_dst[link] == to).collect()
}

/// A tree with a routing table and with arithmetic routes, whose candidates the engine computes
/// differently.
fn both_ways(shape: &fat_tree::Shape) -> [Case; 2] {
    let fabric = || fat_tree::build(shape).unwrap();
    let by_table = RoutingRule::Table(Routes::table(&fabric()).unwrap());
    let by_arithmetic = Routes::arithmetic(&fabric()).unwrap().expect("a regular tree");
    [
        Case::new("by table", fabric(), by_table),
        Case::new("by arithmetic", fabric(), RoutingRule::Table(by_arithmetic)),
    ]
}

/// Sends so many packets from node 0, each when the network is idle.
fn one_by_one(count: u64, to: u32, nodes: u32) -> tailback_engine::Program {
    let mut ranks = vec![vec![]; nodes as usize];
    for _ in 0..count {
        ranks[0].extend([Do::Send(to, PACKET), Do::Compute(100 * WIRE)]);
        ranks[to as usize].push(Do::Receive(0, PACKET));
    }
    ranks[0].push(Do::WaitAll);
    ranks[to as usize].push(Do::WaitAll);
    program(&ranks)
}

/// `found` of `draws` that each happen with `probability` is within four standard deviations.
fn is_likely(count: u64, draws: u64, probability: f64) -> bool {
    let mean = draws as f64 * probability;
    (count as f64 - mean).abs() <= 4.0 * (mean * (1.0 - probability)).sqrt()
}

/// There are as many cables as senders of the same rate. With the shortest queue, every packet
/// finds an idle cable, so every message takes `wire + 3 cables + 2 switches`, to the picosecond.
/// With random choice, some packets share a cable.
#[test]
fn least_queue_finds_the_idle_cable() {
    for senders in [2u32, 4, 20] {
        let nodes = 2 * senders;
        let mut wires: Vec<_> = (0..nodes).map(|n| (n, nodes + n / senders, 100.0)).collect();
        wires.extend((0..senders).map(|_| (nodes, nodes + 1, 100.0)));
        let case = wired(nodes, 2, CABLE, &wires);
        let messages: Vec<_> = (0..senders).map(|n| (n, n + senders, 50 * PACKET)).collect();
        let arrivals = |routing| {
            let settings = Settings { routing, ..settings() };
            case.run(&settings, &burst(nodes as usize, &messages)).messages.arrival_ps
        };
        let alone = 50 * WIRE + 3 * CABLE + 2 * SWITCH;
        assert!(arrivals(Routing::Adaptive).into_iter().all(|arrival| arrival == alone));
        assert!(arrivals(Routing::Random).into_iter().any(|arrival| arrival > alone));
    }
}

/// The same on a tree of two leaves with as many spines as hosts. A packet that has an uplink to
/// itself has the spine's down link to itself, too.
#[test]
fn least_queue_finds_the_idle_spine() {
    for hosts in [2u32, 5, 20] {
        let shape =
            fat_tree::Shape { hosts_per_leaf: hosts, leaves: 2, aggregation: hosts, ..SMALL };
        let messages: Vec<_> = (0..hosts).map(|n| (n, n + hosts, 50 * PACKET)).collect();
        let alone = 50 * WIRE + 4 * 10_000 + 3 * SWITCH;
        for case in both_ways(&shape) {
            let arrivals = |routing| {
                let settings = Settings { routing, ..settings() };
                case.run(&settings, &burst(2 * hosts as usize, &messages)).messages.arrival_ps
            };
            let name = case.name;
            assert!(arrivals(Routing::Adaptive).into_iter().all(|at| at == alone), "{name}");
            assert!(arrivals(Routing::Random).into_iter().any(|at| at > alone), "{name}");
        }
    }
}

/// Adaptive routing among idle uplinks, and random routing, take every uplink equally often.
#[test]
fn ties_and_random_choices_are_even() {
    let draws = 2000;
    let shape = fat_tree::Shape { leaves: 2, aggregation: 5, ..SMALL };
    for case in both_ways(&shape) {
        for routing in [Routing::Adaptive, Routing::Random] {
            let settings = Settings { routing, ..settings() };
            let outcome = case.run(&settings, &one_by_one(draws, 4, 8));
            let packets = carried(&case.fabric, &outcome);
            for spine in 2..7 {
                let count = packets[between(&case.fabric, 0, spine)[0]];
                assert!(is_likely(count, draws, 0.2), "{}, {routing:?}: {count}", case.name);
            }
        }
    }
}

/// D-mod-k on a tree of two levels: node d is reached by spine d modulo the number of spines.
#[test]
fn deterministic_routes_take_the_spine_of_the_destination() {
    let shape = fat_tree::Shape { aggregation: 3, ..SMALL };
    let settings = Settings { routing: Routing::Deterministic, ..settings() };
    for case in both_ways(&shape) {
        for to in 4..16 {
            let outcome = case.run(&settings, &burst(16, &[(0, to, 9 * PACKET)]));
            let packets = carried(&case.fabric, &outcome);
            for spine in 0..3 {
                let expected = if to % 3 == spine { 9 } else { 0 };
                for (from, next) in [(0, 4 + spine), (4 + spine, to / 4)] {
                    let link = between(&case.fabric, from, next)[0];
                    let name = case.name;
                    assert_eq!(packets[link], expected, "{name}, to {to} by spine {spine}");
                }
            }
        }
    }
}

/// A congested tree runs alike, bit for bit, with either kind of routes, in one shard or several.
#[test]
fn arithmetic_routes_run_like_a_table() {
    let shape = fat_tree::Shape {
        hosts_per_leaf: 4,
        leaves: 3,
        aggregation: 3,
        pods: 3,
        cores: 6,
        leaf_cables: 2,
        aggregation_uplinks: 4,
        gbps: [100.0, 54.545_454, 100.0],
        delay_ps: [CABLE, CABLE, 4 * CABLE],
    };
    let [table, arithmetic] = both_ways(&shape);
    let crowd: Vec<_> =
        (0..36).flat_map(|n| [1, 5, 17, 30].map(|k| (n, (n + k) % 36, 60_000))).collect();
    let crowd = burst(36, &crowd);
    for routing in
        [Routing::Adaptive, Routing::Random, Routing::Deterministic, Routing::VirtualCircuit]
    {
        for (arbitration, services) in [(Arbitration::Fcfs, 1), (Arbitration::RoundRobin, 2)] {
            let buffer_bytes = 3 * PACKET as u32;
            let more = settings();
            let settings =
                Settings { routing, arbitration, services, buffer_bytes, vc_entries: 3, ..more };
            let nodes: Vec<u32> = (0..36).collect();
            let run = |case: &Case, threads| {
                let work = Parallelism { threads, shards: Some(2 * threads as u32 - 1) };
                case.try_run(&settings, &crowd, &nodes, work).unwrap()
            };
            let outcome = run(&table, 1);
            let same = outcome == run(&arithmetic, 1) && outcome == run(&arithmetic, 2);
            assert!(same, "{routing:?}, {arbitration:?}");
        }
    }
}

/// Switches each joined with all others by `cables` cables, with `nodes` nodes each.
fn full_mesh(switches: u32, nodes_per_switch: u32, cables: u32) -> Case {
    let dimensions =
        vec![hyperx::Dimension { size: switches, cables, gbps: 100.0, delay_ps: CABLE }];
    let shape =
        hyperx::Shape { dimensions, nodes_per_switch, node_gbps: 100.0, node_delay_ps: CABLE };
    let fabric = hyperx::build(&shape).unwrap();
    let rule = HyperXRouting::new(&fabric, &[switches], true).unwrap();
    Case::new("full mesh", fabric, RoutingRule::HyperX(rule))
}

/// Valiant routing draws every switch with equal probability; the two end switches are no detours.
/// UGAL stays on the shortest path of an idle network, however long the message.
#[test]
fn valiant_detours_always_and_ugal_around_queues() {
    let case = full_mesh(6, 1, 1);
    let valiant = Settings { detour: Detour::Valiant, ..settings() };
    let draws = 3000;
    let outcome = case.run(&valiant, &one_by_one(draws, 4, 6));
    let packets = carried(&case.fabric, &outcome);
    let first = |to: u32| packets[between(&case.fabric, 0, to)[0]];
    assert!(is_likely(first(4), draws, 2.0 / 6.0), "{}", first(4));
    for via in [1, 2, 3, 5] {
        assert!(is_likely(first(via), draws, 1.0 / 6.0), "by {via}: {}", first(via));
        assert_eq!(packets[between(&case.fabric, via, 4)[0]], first(via));
    }
    let ugal = Settings { detour: Detour::Ugal, ..settings() };
    let outcome = case.run(&ugal, &burst(6, &[(0, 4, 500 * PACKET)]));
    assert_eq!(outcome.messages.switch_hops, [2 * 500]);
}

/// UGAL-L's comparison, packet by packet. The nodes of one switch send a packet each, at the same
/// time, to those of another; they reach the switch one after the other. After m minimal packets
/// and d detours by the only third switch, a packet may take a detour only if `minimal queue x 1 >
/// detour queue x 2`. This is `m > 2 d`; with c cables each, `m / c > 2 (d / c)` rounded down. It
/// then takes the detour if it draws that switch, with probability 1/3.
#[test]
fn ugal_compares_queue_times_hops() {
    let senders = 24;
    for cables in [1, 2] {
        let case = full_mesh(3, senders, cables);
        let messages: Vec<_> = (0..senders).map(|node| (node, senders + node, PACKET)).collect();
        let (mut could, mut did) = (0, 0);
        for seed in 0..60 {
            let settings = Settings { seed, detour: Detour::Ugal, ..settings() };
            let outcome = case.run(&settings, &burst(3 * senders as usize, &messages));
            let (mut straight, mut aside) = (0, 0);
            for hops in outcome.messages.switch_hops {
                let pays = straight / cables > 2 * (aside / cables);
                assert!(pays || hops == 2, "{cables}, {seed}: {straight} straight, {aside} aside");
                could += u64::from(pays);
                did += u64::from(hops == 3);
                (straight, aside) = (straight + u32::from(hops == 2), aside + u32::from(hops == 3));
            }
        }
        assert!(is_likely(did, could, 1.0 / 3.0), "{cables}: {did} of {could}");
    }
}

/// A horizontal link is taken only if it saves the time that a full buffer takes to be sent. Two
/// leaves send to a third by the first top switch, whose link to that leaf has a quarter of line
/// rate. In packet times, pair j finds a queue of `8 j - j`, and its second packet finds 4 more.
/// With a buffer of b packets, the first packet that finds more than 4 b takes the horizontal link,
/// and no other does so soon after.
#[test]
fn sideways_hops_must_save_a_full_buffer() {
    let shape = modified_tree::Shape {
        arity: 3,
        levels: 2,
        width: 1,
        gbps: [100.0; 3],
        delay_ps: [CABLE; 3],
    };
    let mut fabric = modified_tree::build(&shape).unwrap();
    // No packet takes the other top switches while the links to them are busy with a first packet.
    let slow: Vec<usize> = [(0, 4), (0, 5), (1, 4), (1, 5)]
        .into_iter()
        .flat_map(|(leaf, top)| between(&fabric, leaf, top))
        .collect();
    slow.iter().for_each(|&link| fabric.link_gbps[link] = 0.125);
    let down = between(&fabric, 3, 2)[0];
    fabric.link_gbps[down] = 25.0;
    let rule = PeerLinkRouting::new(&fabric, 3, 2, 1).unwrap();
    let case = Case::new("modified tree", fabric, RoutingRule::PeerLinks(rule));
    let aside = between(&case.fabric, 3, 4)[0];
    for buffer in [12, 16] {
        let queued = |packet: u64| 7 * (packet / 2) + 4 * (packet % 2);
        let pairs = (0..).find(|&packet| queued(packet) > 4 * buffer).unwrap() / 2;
        for (packets, expected) in [(pairs, 0), (pairs + 1, 1)] {
            let mut ranks = vec![vec![]; 9];
            for (first, second, to) in [(0, 1, 6), (3, 4, 7)] {
                // The second node of a leaf keeps the slow links busy. Its other packets have
                // arrived long before the first node begins.
                for _ in 0..12 {
                    ranks[second].extend([Do::Send(to, PACKET), Do::Compute(8 * WIRE)]);
                    ranks[to as usize].push(Do::Receive(second as u32, PACKET));
                }
                let bytes = packets * PACKET;
                ranks[first].extend([Do::Compute(200 * WIRE), Do::Send(to, bytes)]);
                ranks[to as usize].push(Do::Receive(first as u32, bytes));
            }
            ranks.iter_mut().for_each(|rank| rank.push(Do::WaitAll));
            let settings = Settings { buffer_bytes: (buffer * PACKET) as u32, ..settings() };
            let counted = carried(&case.fabric, &case.run(&settings, &program(&ranks)));
            assert!(slow.iter().all(|&link| counted[link] == 1));
            assert_eq!(counted[aside], expected, "{packets} pairs, {buffer} packets of buffer");
            // A rule that ignores queues takes no detour.
            for routing in [Routing::Random, Routing::Deterministic] {
                let settings = Settings { routing, ..settings.clone() };
                let counted = carried(&case.fabric, &case.run(&settings, &program(&ranks)));
                assert_eq!(counted[aside], 0, "{routing:?}");
            }
        }
    }
}
