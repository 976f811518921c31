//! Probes: their tables are exact, the same on any number of threads, and do not change the run.

use std::collections::HashSet;
use std::ops::ControlFlow;

use crate::common::*;
use tailback_engine::probe::{
    HeaderScheme, HeaderSettings, LinkReadings, PortCounters, ProbeTables, Probes, PsnStart,
    QueueLengths, QueuePairs, Randomness, Reading, TruthTable,
};
use tailback_engine::{
    Arbitration, CongestionControl, CongestionScheme, Detour, Injection, Outcome, Parallelism,
    Routing, Settings, simulate,
};
use tailback_fabric::rules::{DimensionOrder, Tie};
use tailback_fabric::{Fabric, RoutePlan, Routes, RoutingRule, fat_tree, torus};

/// Time of a 4 KiB packet at 100 Gb/s.
const PACKET: u64 = 327_680;

fn carry(scheme: HeaderScheme) -> Option<HeaderSettings> {
    Some(HeaderSettings {
        scheme,
        hash_bits: 4,
        count_bits: 4,
        probability: 0.3,
        most: 1 << 20,
        one_in: 1,
        queue_pairs: QueuePairs::PerPeer,
        psn_start: PsnStart::Zero,
        randomness: Randomness::Ideal,
        slots: 1,
    })
}

fn all_probes(scheme: HeaderScheme) -> Probes {
    Probes { counters_ps: 700_000, queues_ps: 450_001, carry: carry(scheme) }
}

/// A three-level tree, tapered: every link above the leaves is contended.
fn tree() -> (Fabric, RoutePlan) {
    let shape = fat_tree::Shape {
        hosts_per_leaf: 4,
        leaves: 2,
        aggregation: 2,
        pods: 3,
        cores: 2,
        leaf_cables: 1,
        aggregation_uplinks: 1,
        gbps: [100.0, 50.0, 75.0],
        delay_ps: [5_000, 5_000, 20_000],
    };
    let fabric = fat_tree::build(&shape).unwrap();
    let plan =
        RoutePlan::new(&fabric, RoutingRule::Table(Routes::up_down(&fabric).unwrap())).unwrap();
    (fabric, plan)
}

/// Two lanes, and detours.
fn ring() -> (Fabric, RoutePlan) {
    let dimension =
        torus::Dimension { size: 4, wrap: true, cables: 1, gbps: vec![40.0], delay_ps: 5_000 };
    let shape = torus::Shape {
        dimensions: vec![dimension; 2],
        nodes_per_switch: 2,
        node_gbps: 100.0,
        node_delay_ps: 0,
    };
    let fabric = torus::build(&shape).unwrap();
    let rule = DimensionOrder::new(&fabric, &[4, 4], Tie::Parity, true, true).unwrap();
    let plan = RoutePlan::new(&fabric, RoutingRule::DimensionOrder(rule)).unwrap();
    (fabric, plan)
}

/// Everybody sends far and near.
fn rush((fabric, plan): &(Fabric, RoutePlan), settings: &Settings, work: Parallelism) -> Outcome {
    let n = fabric.n_nodes;
    let to = |src: u32| [(src + 1) % n, (src + n / 2) % n, (src + n / 3) % n];
    let messages: Vec<_> =
        (0..n).flat_map(|src| to(src).map(|dst| (src, dst, 40_000 + u64::from(dst)))).collect();
    let program = burst(n as usize, &messages);
    let mut watch = |_| ControlFlow::Continue(());
    let placement = in_order(n as usize);
    simulate(fabric, plan, settings, &program, &placement, work, &mut watch).unwrap()
}

fn tight() -> Settings {
    Settings { buffer_bytes: 16384, eager_bytes: 41_000, ..settings() }
}

#[test]
fn tables_are_the_same_on_any_number_of_threads() {
    let schemes = [
        HeaderScheme::Full,
        HeaderScheme::SingleBit,
        HeaderScheme::Compact,
        HeaderScheme::Coordinated,
        HeaderScheme::XorDigest,
        HeaderScheme::Csig,
        HeaderScheme::NodeMarking,
        HeaderScheme::EdgeMarking,
    ];
    let networks = [tree(), ring()];
    for (number, scheme) in schemes.into_iter().enumerate() {
        let settings = Settings {
            detour: if number % 4 == 3 { Detour::Ugal } else { Detour::Never },
            arbitration: [Arbitration::Fcfs, Arbitration::RoundRobin][number / 2 % 2],
            probes: all_probes(scheme),
            ..tight()
        };
        let network = &networks[number % 2];
        let single = rush(network, &settings, Parallelism { threads: 1, shards: Some(5) });
        let ProbeTables { counters, queues, packets, .. } = &single.probed;
        assert!(counters.len() > 500 && queues.len() > 500, "{} {}", counters.len(), queues.len());
        assert_eq!(packets.len() as u64, single.packets);
        for threads in 2..=4 {
            let again = rush(network, &settings, Parallelism { threads, shards: Some(5) });
            assert!(again == single, "{scheme:?}, {threads} threads");
        }
        for shards in [1, 3] {
            let again = rush(network, &settings, Parallelism { threads: 2, shards: Some(shards) });
            assert!(again.probed == single.probed, "{scheme:?}, {shards} shards");
        }
    }
}

#[test]
fn probes_do_not_change_runs() {
    for network in [tree(), ring()] {
        for arbitration in [Arbitration::Fcfs, Arbitration::RoundRobin] {
            let settings = Settings { arbitration, ..tight() };
            let plain = rush(&network, &settings, Parallelism::default());
            let probes = all_probes(HeaderScheme::Full);
            let probed =
                rush(&network, &Settings { probes, ..settings.clone() }, Parallelism::default());
            assert!(probed.probed.counters.len() > 500);
            assert!(Outcome { probed: ProbeTables::default(), ..probed } == plain);
            // Hashed headers replace the samples and change nothing else.
            let probes = all_probes(HeaderScheme::Compact);
            let hashed = rush(&network, &Settings { probes, ..settings }, Parallelism::default());
            assert!(hashed.samples.window.is_empty());
            let (probed, samples) = (ProbeTables::default(), plain.samples.clone());
            assert!(Outcome { probed, samples, ..hashed } == plain);
        }
    }
}

/// Lights and marking rates do not depend on the probes.
#[test]
fn probes_do_not_change_congestion_control() {
    let dcms = CongestionScheme::Dcms { calm_marking_rate: 9, hold_ps: 1_000_000, poll_ps: 0 };
    for scheme in
        [CongestionScheme::Infiniband, dcms, CongestionScheme::Rgbcc { green_bytes: 1000 }]
    {
        let control = CongestionControl { victims: true, ..control(scheme, 5000, 1_000_000) };
        let injection = Injection::PerDestination;
        let settings = Settings { congestion_control: Some(control), injection, ..tight() };
        let probes = all_probes(HeaderScheme::Full);
        let silent = Settings { measure: false, ..settings.clone() };
        let silent = rush(&tree(), &silent, Parallelism::default());
        let probed = rush(&tree(), &Settings { probes, ..settings }, Parallelism::default());
        assert!(silent.marked > 100 && probed.marked == silent.marked);
        assert!(probed.messages == silent.messages && probed.end_ps == silent.end_ps);
    }
}

fn last_of<T: Reading>(rows: &LinkReadings<T>, links: usize) -> Vec<Option<T>> {
    let mut last = vec![None; links];
    rows.iter().for_each(|row| last[row.link as usize] = Some(row.value));
    last
}

#[test]
fn counters_add_up_to_the_truth() {
    let network = tree();
    let (fabric, _) = &network;
    for interval in [100_000, 3_333_333, 1 << 40] {
        let probes = Probes { counters_ps: interval, queues_ps: interval, ..Probes::default() };
        let settings = Settings { probes, routing: Routing::Random, ..tight() };
        let outcome = rush(&network, &settings, Parallelism { threads: 2, shards: Some(3) });
        let mut truth = vec![PortCounters::default(); fabric.n_links()];
        let TruthTable { link, bytes, busy_ps, stall_ps, packets, .. } = &outcome.truth;
        let sent = bytes.iter().zip(packets.iter());
        let times = busy_ps.iter().zip(stall_ps.iter());
        for ((link, (bytes, packets)), (busy_ps, stall_ps)) in link.iter().zip(sent).zip(times) {
            let sum = &mut truth[link as usize];
            sum.bytes += bytes;
            sum.busy_ps += busy_ps;
            sum.stall_ps += stall_ps;
            sum.packets += packets;
        }
        let counted = last_of(&outcome.probed.counters, fabric.n_links());
        let (mut stall, mut queue, mut adapters, mut inq) = (0, 0, 0, 0);
        for (link, truth) in truth.iter().enumerate() {
            let counted = counted[link].unwrap_or_default();
            assert_eq!(counted.bytes, truth.bytes);
            assert_eq!((counted.packets, counted.busy_ps), (truth.packets, truth.busy_ps));
            assert_eq!(counted.stall_ps, truth.stall_ps, "link {link}");
            if fabric.is_node(fabric.link_src[link]) {
                adapters += counted.stall_ps;
                continue;
            }
            assert!(counted.stall_ps + counted.busy_ps <= outcome.end_ps);
            assert!(counted.queue_ps <= counted.busy_ps);
            stall += counted.stall_ps;
            queue += counted.queue_ps;
        }
        // A packet that waits for an output waits in an input of the same switch.
        for switch in fabric.n_nodes..fabric.n_vertices() as u32 {
            let links = fabric.out_links(switch).map(|link| link as usize);
            let of = |link: usize| counted[link].unwrap_or_default();
            let waits = links.clone().map(|link| of(link).stall_ps + of(link).queue_ps).max();
            let inputs = links.map(|link| of(fabric.link_reverse[link] as usize).inq_ps);
            let (sum, longest) = (inputs.clone().sum::<u64>(), inputs.max().unwrap_or(0));
            assert!(waits <= Some(sum) && longest <= outcome.end_ps, "switch {switch}");
            inq = inq.max(longest);
        }
        assert!(inq > 0 && counted.iter().flatten().any(|counted| counted.inq_ps == 0));
        // Here congestion reaches back to the adapters.
        assert!(stall > 0 && queue > 0 && adapters > 0);
        // In the end nothing is left anywhere.
        let queued = last_of(&outcome.probed.queues, fabric.n_links());
        assert!(queued.into_iter().flatten().all(|queued| queued == QueueLengths::default()));
    }
}

/// The row of a link that holds at an instant.
fn at<T: Reading>(rows: &LinkReadings<T>, link: u32, instant: u32) -> T {
    let of_link = rows.iter().filter(|row| row.link == link && row.instant <= instant);
    of_link.last().map_or(T::default(), |row| row.value)
}

#[test]
fn a_lone_packet_is_counted_byte_by_byte() {
    let probes = Probes { counters_ps: 100_000, queues_ps: 100_000, ..Probes::default() };
    let outcome = run(&Settings { probes, ..settings() }, &burst(16, &[(0, 15, 4096)]));
    let ProbeTables { counters, queues, .. } = &outcome.probed;
    // The injection link of node 0 sends 12.5 bytes a nanosecond from time 0.
    for (instant, bytes, packets) in [(1, 1250, 0), (2, 2500, 0), (3, 3750, 0), (4, 4096, 1)] {
        let busy_ps = PACKET.min(100_000 * u64::from(instant));
        let expected = PortCounters { bytes, packets, busy_ps, ..PortCounters::default() };
        assert_eq!(at(counters, 0, instant), expected);
        let queued = at(queues, 0, instant);
        assert_eq!((queued.booked_bytes, queued.packets), (4096 - bytes, u32::from(packets == 0)));
    }
    assert_eq!(outcome.probed.counters_ps, 100_000);
}

#[test]
fn a_queue_grows_and_drains_at_line_rate() {
    // Two hosts send 8 packets each to a third host of their leaf. Packets arrive in pairs, one
    // packet time apart, and leave one by one.
    let switch_delay_ps = PACKET - 10_000;
    let probes = Probes { counters_ps: PACKET, queues_ps: PACKET, ..Probes::default() };
    let settings = Settings { switch_delay_ps, probes, ..settings() };
    let outcome = run(&settings, &burst(16, &[(0, 2, 8 * 4096), (1, 2, 8 * 4096)]));
    let fabric = fat_tree::build(&SMALL).unwrap();
    let ejection = (0..fabric.n_links() as u32).find(|&link| fabric.link_dst[link as usize] == 2);
    let ejection = ejection.unwrap();
    for instant in 1..=18u32 {
        // Before the instant m − 1 pairs have come and m − 1 packets left, up to 8 and 16.
        let (come, left) = (2 * (instant - 1).min(8), (instant - 1).min(16));
        let queued = at(&outcome.probed.queues, ejection, instant);
        assert_eq!(queued.waiting_bytes, 0);
        assert_eq!(queued.booked_bytes, 4096 * u64::from(come - left), "instant {instant}");
        assert_eq!(queued.packets, come - left);
        let counted = at(&outcome.probed.counters, ejection, instant);
        // All but the last packet had another one behind it.
        let queue_ps = PACKET * u64::from(left.min(15));
        assert_eq!((counted.packets, counted.queue_ps), (left.into(), queue_ps));
        assert_eq!(counted.stall_ps, 0);
    }
}

/// Inq stall of the injection links of the first four nodes, all of one leaf, at every packet time from
/// the first on. What is injected at time 0 is ready to leave the leaf after one packet time.
fn inq_stall(arbitration: Arbitration, ranks: &[Vec<Do>]) -> [[u64; 7]; 4] {
    let probes = Probes { counters_ps: PACKET, ..Probes::default() };
    let switch_delay_ps = PACKET - 10_000;
    let outcome =
        run(&Settings { switch_delay_ps, probes, arbitration, ..settings() }, &program(ranks));
    let fabric = fat_tree::build(&SMALL).unwrap();
    let injection = |node| fabric.out_links(node).start;
    let counters = &outcome.probed.counters;
    for row in counters.iter().filter(|row| row.value.inq_ps > 0) {
        assert!((0..4).any(|node| injection(node) == row.link), "link {}", row.link);
    }
    [0, 1, 2, 3].map(|node| {
        [1, 2, 3, 4, 5, 6, 7].map(|instant| at(counters, injection(node), instant).inq_ps)
    })
}

#[test]
fn an_input_stalls_until_its_packet_leaves() {
    // Nodes 0 and 1 send to node 2, whose link takes the packet of node 0 first. The first of node 1
    // is ready as well, leaves one packet time later, and then the second waits as long.
    let ranks = [
        vec![Do::Send(2, 4096), Do::WaitAll],
        vec![Do::Send(2, 8192), Do::WaitAll],
        vec![Do::Receive(0, 4096), Do::Receive(1, 8192), Do::WaitAll],
    ];
    let [first, second, third, _] = inq_stall(Arbitration::Fcfs, &ranks);
    assert!(first.iter().chain(&third).all(|&ps| ps == 0));
    assert_eq!(second, [0, 1, 2, 2, 2, 2, 2].map(|packets| packets * PACKET));
}

#[test]
fn round_robin_shortens_stalls_of_late_inputs() {
    let pair = vec![Do::Send(2, 8192), Do::WaitAll];
    let late = vec![Do::Compute(3 * PACKET / 2), Do::Send(2, 4096), Do::WaitAll];
    let receives =
        vec![Do::Receive(0, 8192), Do::Receive(1, 8192), Do::Receive(3, 4096), Do::WaitAll];
    let ranks = [pair.clone(), pair, receives, late];
    let halves =
        |arbitration| inq_stall(arbitration, &ranks).map(|of| of.map(|ps| 2 * ps / PACKET));
    // Ready after 1, 2 packet times (nodes 0 and 1) and 2.5 (node 3); they leave after
    // 1, 3 | 2, 4 | 5 in order of arrival, and after 1, 4 | 2, 5 | 3 in turn.
    let [first, second, _, fourth] = halves(Arbitration::Fcfs);
    assert_eq!(first, [0, 0, 2, 2, 2, 2, 2]);
    assert_eq!(second, [0, 2, 4, 6, 6, 6, 6]);
    assert_eq!(fourth, [0, 0, 1, 3, 5, 5, 5]);
    let [first, second, _, fourth] = halves(Arbitration::RoundRobin);
    assert_eq!(first, [0, 0, 2, 4, 4, 4, 4]);
    assert_eq!(second, [0, 2, 4, 6, 8, 8, 8]);
    assert_eq!(fourth, [0, 0, 1, 1, 1, 1, 1]);
}

#[test]
fn an_interrupted_run_equals_the_complete_one() {
    let (fabric, plan) = tree();
    let n = fabric.n_nodes;
    let messages: Vec<_> = (0..n).map(|src| (src, (src + n / 2) % n, 8 << 20)).collect();
    let (program, placement) = (burst(n as usize, &messages), in_order(n as usize));
    let probes = Probes { carry: None, ..all_probes(HeaderScheme::Full) };
    let settings = Settings { probes, ..tight() };
    let work = Parallelism { threads: 2, shards: Some(3) };
    let run = |stop: bool| {
        let mut watch = |_| if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        simulate(&fabric, &plan, &settings, &program, &placement, work, &mut watch).unwrap()
    };
    let (part, complete) = (run(true), run(false));
    assert!(complete.complete && !part.complete && part.end_ps < complete.end_ps);
    let until = |interval: u64| {
        let end = part.end_ps;
        move |instant: u32| u64::from(instant) * interval <= end
    };
    let (counted, queued) = (until(part.probed.counters_ps), until(part.probed.queues_ps));
    let rows = |run: &Outcome| {
        let counters = run.probed.counters.iter().filter(|row| counted(row.instant));
        let queues = run.probed.queues.iter().filter(|row| queued(row.instant));
        let (counters, queues): (Vec<_>, Vec<_>) = (counters.collect(), queues.collect());
        (counters, queues)
    };
    assert!(rows(&part).0.len() > 1000 && rows(&part).1.len() > 1000);
    assert!(rows(&part) == rows(&complete));
}

#[test]
fn full_reservoirs_sample_one_in_k_packets() {
    let network = tree();
    let run = |one_in, carry| {
        let probes = Probes { carry, ..Probes::default() };
        rush(
            &network,
            &Settings { one_in, probes, measure: true, ..tight() },
            Parallelism::default(),
        )
    };
    let sampled = |run: &Outcome| run.samples.hop_samples.iter().sum::<u64>();
    let (all, some) = (run(1, None), run(16, None));
    assert!(all.truth == some.truth);
    assert!(sampled(&all) > 500, "{}", sampled(&all));
    assert!(sampled(&all).div_ceil(16) - sampled(&some) <= 1);
    // Recording few packets does not change the samples.
    let carry = HeaderSettings { most: 10, one_in: 16, ..carry(HeaderScheme::Full).unwrap() };
    let few = run(16, Some(carry));
    assert!(few.samples == some.samples && few.probed.packets.len() <= 10);
    assert_eq!(few.probed.one_in % 16, 0);
}

#[test]
fn one_in_k_packets_is_kept() {
    let probes = |most, one_in| Probes {
        carry: Some(HeaderSettings { most, one_in, ..carry(HeaderScheme::Compact).unwrap() }),
        ..Probes::default()
    };
    let network = tree();
    let kept =
        |probes| rush(&network, &Settings { probes, ..tight() }, Parallelism::default()).probed;
    let all = kept(probes(1 << 20, 1));
    let some = kept(probes(1 << 20, 7));
    let few = kept(probes(all.packets.len() as u64 / 7, 1));
    assert_eq!((all.one_in, some.one_in, few.one_in), (1, 7, 8));
    let kept: HashSet<u64> = some.packets.iter().map(|record| record.packet).collect();
    let chosen = all.packets.iter().filter(|record| kept.contains(&record.packet));
    assert!(chosen.eq(&some.packets), "what is kept does not depend on what else is");
    let blocks: HashSet<u64> = kept.iter().map(|packet| packet / 7).collect();
    assert_eq!((blocks.len(), kept.len()), (some.packets.len(), some.packets.len()));
    assert!(all.packets.len().div_ceil(7) - kept.len() <= 1, "the last seven may not be whole");
    // A record contains the end nodes; the header contains the length of the path.
    for record in &all.packets {
        assert_eq!(record.header >> 5 & 15, u64::from(record.hops));
        assert!(record.src != record.dst && [1, 3, 5].contains(&record.hops));
    }
}
