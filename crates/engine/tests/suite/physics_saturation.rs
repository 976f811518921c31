//! Closed-form answers: how long packets wait below saturation, and where saturation lies.

use crate::common::fabrics::*;
use crate::common::*;
use tailback_engine::{Arbitration, Outcome, Program, Routing, Settings};
use tailback_fabric::fat_tree;

const PACKET: u64 = 4096;
const WIRE: u64 = PACKET * 80; // at 100 Gb/s, in picoseconds

/// A small generator (SplitMix64; Steele, Lea and Flood, 2014): the same draws on every machine.
struct Draws(u64);

impl Draws {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// One-packet messages to uniformly random other nodes. In each of `slots` packet times a node sends
/// with probability `load`, at the start of the slot.
fn uniform(nodes: u32, slots: u64, load: f64, seed: u64) -> Program {
    let mut draws = Draws(seed);
    let mut sends = vec![Vec::new(); nodes as usize];
    let mut receives = vec![Vec::new(); nodes as usize];
    for src in 0..nodes {
        let mut idle = 0;
        for _ in 0..slots {
            if draws.unit() >= load {
                idle += 1;
                continue;
            }
            let dst = (src + 1 + draws.below(u64::from(nodes) - 1) as u32) % nodes;
            sends[src as usize].push(Do::Compute(idle * WIRE));
            sends[src as usize].push(Do::Send(dst, PACKET));
            receives[dst as usize].push(Do::Receive(src, PACKET));
            idle = 1;
        }
    }
    let ranks: Vec<Vec<Do>> = receives
        .into_iter()
        .zip(sends)
        .map(|(receives, sends)| receives.into_iter().chain(sends).chain([Do::WaitAll]).collect())
        .collect();
    program(&ranks)
}

/// Share of the nodes' line rate that arrives, from a third of the time at which the first node has
/// sent everything to that time. Then buffers have filled, and every node still sends.
fn accepted(outcome: &Outcome, nodes: u32) -> f64 {
    let log = &outcome.messages;
    let mut last_start = vec![0u64; nodes as usize];
    for (&src, &start) in log.src.iter().zip(&log.start_ps) {
        let last = &mut last_start[src as usize];
        *last = start.max(*last);
    }
    let end = last_start.into_iter().min().unwrap();
    let from = end / 3;
    let arrived = log.arrival_ps.iter().filter(|&&time| from < time && time <= end).count();
    arrived as f64 * WIRE as f64 / ((end - from) as f64 * f64::from(nodes))
}

fn settings_with(packets: u64, arbitration: Arbitration) -> Settings {
    let buffer_bytes = (packets * PACKET) as u32;
    Settings { measure: false, buffer_bytes, arbitration, ..settings() }
}

/// Waiting in an output-queued switch (Karol, Hluchyj and Morgan, 1987): N nodes send at random to
/// one another, in each packet time with probability p: the mean wait at the output is `(n - 1)/n x
/// p / (2 (1 - p))` packet times with n the inputs that may send to an output, here N - 1. The
/// remaining latency of a packet is fixed: two cables, the switch, its own time on the wire.
#[test]
fn output_queueing_delays_follow_karol() {
    let nodes = 16u32;
    let wires: Vec<_> = (0..nodes).map(|node| (node, nodes, 100.0)).collect();
    let case = wired(nodes, 1, CABLE, &wires);
    for arbitration in [Arbitration::Fcfs, Arbitration::RoundRobin] {
        for load in [0.2, 0.5, 0.8] {
            let outcome = case.run(&settings_with(64, arbitration), &uniform(nodes, 8000, load, 7));
            let log = &outcome.messages;
            let fixed = 2 * CABLE + 60_000 + WIRE;
            let waits =
                log.arrival_ps.iter().zip(&log.start_ps).map(|(end, start)| end - start - fixed);
            let mean = waits.sum::<u64>() as f64 / log.src.len() as f64 / WIRE as f64;
            let inputs = f64::from(nodes - 1);
            let closed = (inputs - 1.0) / inputs * load / (2.0 * (1.0 - load));
            assert!(
                (mean / closed - 1.0).abs() < 0.05,
                "{arbitration:?}, load {load}: waits {mean:.4} packet times, not {closed:.4}"
            );
        }
    }
}

/// A k-ary n-tree has full bisection: with outputs that serve whatever has arrived for them (output
/// queueing) and adaptive up-routes its limit under uniform traffic is the node's own link, so what is
/// offered is accepted as long as `load < 1` and buffers are deep. (Karol et al. prove 1 for one
/// switch; 2 - sqrt 2 = 0.586 is the limit of FIFO inputs, which this is not.)
#[test]
fn a_k_ary_n_tree_accepts_loads_below_one() {
    for (k, n) in [(4, 2), (4, 3), (2, 5)] {
        let case = k_ary_n_tree(k, n, 100.0);
        let nodes = case.fabric.n_nodes;
        for load in [0.5, 0.9] {
            let outcome =
                case.run(&settings_with(64, Arbitration::Fcfs), &uniform(nodes, 1500, load, 3));
            let share = accepted(&outcome, nodes);
            assert!((share / load - 1.0).abs() < 0.02, "{k}-ary {n}-tree at {load}: {share:.3}");
        }
    }
}

/// Saturation of the same trees (load 1, every node always has a packet for some other): the limit is
/// 1, approached as the buffers deepen, and never below the 0.586 of FIFO inputs with 8 packets of
/// buffer.
#[test]
fn deep_buffers_let_trees_approach_saturation_one() {
    for (k, n) in [(4, 2), (4, 3)] {
        let case = k_ary_n_tree(k, n, 100.0);
        let nodes = case.fabric.n_nodes;
        let program = uniform(nodes, 2000, 1.0, 11);
        let at = |packets| {
            accepted(&case.run(&settings_with(packets, Arbitration::Fcfs), &program), nodes)
        };
        let shares = [4, 8, 16, 64].map(at);
        assert!(shares.is_sorted(), "{k}-ary {n}-tree: {shares:?}");
        assert!(shares[1] > 2.0 - f64::sqrt(2.0), "{k}-ary {n}-tree: {shares:?}");
        assert!((0.9..=1.0).contains(&shares[3]), "{k}-ary {n}-tree: {shares:?}");
    }
}

/// A tapered tree saturates at its cut: with u up links for h nodes on a leaf of N nodes in all, uniform
/// traffic leaves the leaf with probability (N - h)/(N - 1), so
/// `limit = (u / h) / ((N - h) / (N - 1))` of the nodes' line rate, if that is less than 1.
#[test]
fn a_tapered_tree_saturates_at_its_up_links() {
    for (hosts, spines) in [(8, 4), (8, 2), (6, 4)] {
        let shape =
            fat_tree::Shape { hosts_per_leaf: hosts, leaves: 6, aggregation: spines, ..SMALL };
        let case = up_down("tapered", fat_tree::build(&shape).unwrap());
        let nodes = case.fabric.n_nodes;
        let program = uniform(nodes, 1200, 1.0, 5);
        let leaves_home = f64::from(nodes - hosts) / f64::from(nodes - 1);
        let limit = f64::from(spines) / f64::from(hosts) / leaves_home;
        for routing in [Routing::Adaptive, Routing::Random] {
            let settings = Settings { routing, ..settings_with(64, Arbitration::Fcfs) };
            let share = accepted(&case.run(&settings, &program), nodes);
            assert!(
                (share / limit - 1.0).abs() < 0.03,
                "{hosts} nodes, {spines} up links, {routing:?}: {share:.4}, not {limit:.4}"
            );
        }
    }
}
