//! Uniform random traffic on Tapered, for profilers: `cargo run --release --example uniform [all]
//! [ports] [packets] [ports_up K pods P] [threads N] [shards N] [runs N]`: `all` takes samples and truth, `ports` counters
//! and queues every 10 µs, `packets` keeps what every packet carries. The processor time is that of the main thread.

use std::ops::ControlFlow;
use std::time::Instant;

use tailback_engine::probe::{
    HeaderScheme, HeaderSettings, Probes, PsnStart, QueuePairs, Randomness,
};
use tailback_engine::{Parallelism, Placement, Program, Settings, simulate};
use tailback_fabric::fat_tree::{Shape, build};
use tailback_fabric::{RoutePlan, Routes, RoutingRule};

const MESSAGE: u64 = 131_072;
const GAP_PS: u64 = MESSAGE * 80 * 10 / 4; // load 0.4
const MESSAGES: u64 = 4;

/// A hash good enough to choose destinations by.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn program(ranks: u32) -> Program {
    let target = |src: u32, k: u64| {
        let draw = mix(u64::from(src) * MESSAGES + k + 1) % u64::from(ranks - 1);
        (src + 1 + draw as u32) % ranks
    };
    let mut from = vec![Vec::new(); ranks as usize];
    for src in 0..ranks {
        for k in 0..MESSAGES {
            from[target(src, k) as usize].push((src, k));
        }
    }
    let mut p = Program { rank_start: vec![0], ..Program::default() };
    for rank in 0..ranks {
        let begin = p.kind.len();
        let mut op = |kind: u8, peer: i32, amount: u64, tag: u64| {
            p.kind.push(kind);
            p.peer.push(peer);
            p.amount.push(amount);
            p.tag.push(tag as i64);
            p.request.push((p.request.len() - begin) as i32);
            p.label.push(0);
        };
        for &(src, k) in &from[rank as usize] {
            op(2, src as i32, MESSAGE, k);
        }
        for k in 0..MESSAGES {
            let wait = if k == 0 { mix(rank.into()) % GAP_PS } else { GAP_PS };
            op(0, -1, wait, 0);
            op(1, target(rank, k) as i32, MESSAGE, k);
        }
        op(4, -1, 0, 0);
        p.rank_start.push(p.kind.len() as u64);
    }
    p
}

/// Whether `name` is among the arguments.
fn asked(name: &str) -> bool {
    std::env::args().any(|a| a == name)
}

/// The number after `name` among the arguments.
fn number(name: &str) -> Option<usize> {
    let mut args = std::env::args();
    args.find(|a| a == name).and_then(|_| args.next()).and_then(|value| value.parse().ok())
}

/// Tapered, or a tree of full bisection.
fn shape() -> Shape {
    match (number("ports_up"), number("pods")) {
        (Some(k), Some(pods)) => {
            let (k, pods) = (k as u32, pods as u32);
            Shape {
                hosts_per_leaf: k,
                leaves: k,
                aggregation: k,
                pods,
                cores: k * pods / 2,
                aggregation_uplinks: k,
                ..Shape::TAPERED
            }
        }
        _ => Shape::TAPERED,
    }
}

fn settings() -> Settings {
    let carry = HeaderSettings {
        scheme: HeaderScheme::Coordinated,
        hash_bits: 5,
        count_bits: 4,
        probability: 0.2,
        most: 1 << 30,
        one_in: 1,
        queue_pairs: QueuePairs::PerPeer,
        psn_start: PsnStart::Zero,
        randomness: Randomness::Ideal,
        slots: 1,
    };
    let every_ps = if asked("ports") { 10_000_000 } else { 0 };
    let probes = Probes {
        counters_ps: every_ps,
        queues_ps: every_ps,
        carry: if asked("packets") { Some(carry) } else { None },
    };
    Settings { measure: asked("all"), probes, ..Settings::default() }
}

/// Nanoseconds for which a processor has worked on this thread; `None` where the system does not tell.
fn processor_ns() -> Option<u64> {
    let scheduled = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    scheduled.split_whitespace().next()?.parse().ok()
}

fn main() {
    let fabric = build(&shape()).expect("a tree");
    let routes = Routes::up_down(&fabric).expect("a tree");
    let plan = RoutePlan::new(&fabric, RoutingRule::Table(routes)).expect("a tree");
    let ranks = fabric.n_nodes;
    let program = program(ranks);
    let placement = Placement {
        node: (0..ranks).collect(),
        host: (0..ranks).collect(),
        start_ps: vec![0; ranks as usize],
        label_observed: vec![true],
        ..Placement::default()
    };
    let settings = settings();
    let threads = number("threads").unwrap_or(1);
    let shards = number("shards").map(|n| n as u32);
    for _ in 0..number("runs").unwrap_or(3) {
        let (began, processor) = (Instant::now(), processor_ns());
        let mut watch = |_| ControlFlow::Continue(());
        let work = Parallelism { threads, shards };
        let outcome = simulate(&fabric, &plan, &settings, &program, &placement, work, &mut watch)
            .expect("traffic that ends");
        let seconds = began.elapsed().as_secs_f64();
        print!(
            "{:.2} M packet-hops/s, {} hops, {} events, {:.3} s",
            outcome.packet_hops as f64 / seconds / 1e6,
            outcome.packet_hops,
            outcome.events,
            seconds
        );
        let busy = processor.zip(processor_ns()).map(|(began, ended)| (ended - began) as f64);
        let of_hop = busy.map(|ns| ns / outcome.packet_hops as f64);
        println!("{}", of_hop.map_or(String::new(), |ns| format!(", {ns:.1} CPU ns a packet-hop")));
    }
}
