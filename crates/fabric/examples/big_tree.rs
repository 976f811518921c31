//! Builds a three-level tree of 1,048,576 hosts and its routes, and prints the time and memory it takes.
//!
//! `cargo run --release -p tailback-fabric --example big_tree`

use std::time::Instant;

use tailback_fabric::{Fabric, Routes, fat_tree, pgft};

/// A value of this process's status in megabytes; 0 on systems without `/proc`.
fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shape = pgft::Shape {
        children: vec![64, 128, 128],
        parents: vec![1, 64, 128],
        cables: vec![1; 3],
        gbps: vec![100.0; 3],
        delay_ps: vec![0; 3],
        planes: 1,
    };
    let start = Instant::now();
    let fabric = pgft::build(&shape)?;
    let (nodes, switches, links) = (fabric.n_nodes, fabric.n_switches, fabric.n_links());
    println!("{nodes} nodes, {switches} switches, {links} links");
    println!("fabric: {:.2} s, {} MB resident", start.elapsed().as_secs_f64(), status("VmRSS"));
    let start = Instant::now();
    let routes = Routes::up_down(&fabric)?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "routes: {seconds:.3} s, {} MB, arithmetic {}",
        routes.bytes() >> 20,
        routes.is_arithmetic()
    );
    let table = u64::from(switches) * u64::from(routes.columns) * 4;
    println!("a table would take {} MB", table >> 20);
    follow("a permutation", &fabric, &routes);
    println!("peak {} MB", status("VmHWM"));
    let tapered = fat_tree::build(&fat_tree::Shape::TAPERED)?;
    follow("Tapered by table", &tapered, &Routes::table(&tapered)?);
    if let Some(routes) = Routes::arithmetic(&tapered)? {
        follow("Tapered by arithmetic", &tapered, &routes);
    }
    Ok(())
}

/// Follows a D-mod-k route from every node; prints the time per hop.
fn follow(what: &str, fabric: &Fabric, routes: &Routes) {
    let (start, mut hops) = (Instant::now(), 0u64);
    let nodes = fabric.n_nodes;
    for node in 0..nodes {
        let to = node.wrapping_mul(0x9E37_79B1) % nodes;
        let target = fabric.link_dst[routes.injection[to as usize] as usize];
        let mut at = fabric.link_dst[routes.injection[node as usize] as usize];
        while at != target {
            at = fabric.link_dst[routes.deterministic_link(at - nodes, to) as usize];
            hops += 1;
        }
    }
    let each = start.elapsed().as_secs_f64() * 1e9 / hops as f64;
    println!("{what}: {hops} hops followed, {each:.0} ns each");
}
