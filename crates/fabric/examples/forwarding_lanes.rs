//! Prints the virtual lanes that forwarding tables of large networks need, and the time that the
//! assignment takes.
//!
//! ```console
//! $ cargo run --release -p tailback-fabric --example forwarding_lanes
//! ```

use std::time::Instant;

use tailback_fabric::rules::{DimensionOrder, Tie};
use tailback_fabric::{
    Arrangement, Fabric, FabricError, RoutePlan, RouteState, Routes, RoutingRule, dragonfly, torus,
};

fn main() -> Result<(), FabricError> {
    for (groups, routers, global_ports) in [(9, 56, 1), (33, 16, 2), (65, 8, 8)] {
        let fabric = dragonfly::build(&dragonfly::Shape {
            nodes_per_router: 9,
            routers,
            global_ports,
            groups,
            arrangement: Arrangement::Palmtree,
            gbps: [100.0; 3],
            delay_ps: [0; 3],
        })?;
        print(&format!("dragonfly of {groups} groups"), &fabric, &shortest(&fabric))?;
    }
    for dims in [[8, 8, 8], [16, 6, 6]] {
        let fabric = torus_of(&dims)?;
        print(&format!("torus {dims:?}"), &fabric, &dimension_order(&fabric, &dims)?)?;
    }
    Ok(())
}

fn torus_of(dims: &[u32]) -> Result<Fabric, FabricError> {
    let dimension = |&size: &u32| torus::Dimension {
        size,
        wrap: true,
        cables: 1,
        gbps: vec![100.0],
        delay_ps: 0,
    };
    let dimensions = dims.iter().map(dimension).collect();
    torus::build(&torus::Shape {
        dimensions,
        nodes_per_switch: 9,
        node_gbps: 100.0,
        node_delay_ps: 0,
    })
}

/// Tables in dimension order.
fn dimension_order(fabric: &Fabric, dims: &[u32]) -> Result<Vec<u32>, FabricError> {
    let rule = DimensionOrder::new(fabric, dims, Tie::Positive, false, false)?;
    let plan = RoutePlan::new(fabric, RoutingRule::DimensionOrder(rule))?;
    let link = |switch: u32, node: u32| {
        if plan.node_switch[node as usize] == switch {
            return plan.ejection[node as usize];
        }
        plan.next(switch, node, u32::MAX, RouteState::START).links[0]
    };
    let nodes = |switch| (0..fabric.n_nodes).map(move |node| (switch, node));
    let entries = (0..fabric.n_switches).flat_map(nodes);
    Ok(entries.map(|(switch, node)| link(switch, node)).collect())
}

/// Tables with a shortest path to each node; nodes of one switch spread over equal ones.
fn shortest(fabric: &Fabric) -> Vec<u32> {
    let (nodes, switches) = (fabric.n_nodes, fabric.n_switches);
    let mut forward = vec![u32::MAX; nodes as usize * switches as usize];
    for node in 0..nodes {
        let mut distance = vec![u32::MAX; fabric.n_vertices()];
        distance[node as usize] = 0;
        let (mut reached, mut head) = (vec![node], 0);
        while head < reached.len() {
            let here = reached[head];
            head += 1;
            for link in fabric.out_links(here) {
                let there = fabric.link_dst[link as usize];
                if !fabric.is_node(there) && distance[there as usize] == u32::MAX {
                    distance[there as usize] = distance[here as usize] + 1;
                    reached.push(there);
                }
            }
        }
        for switch in 0..switches {
            let closer = distance[(nodes + switch) as usize] - 1;
            let out = fabric.out_links(nodes + switch);
            let links: Vec<u32> = out
                .filter(|&link| distance[fabric.link_dst[link as usize] as usize] == closer)
                .collect();
            forward[switch as usize * nodes as usize + node as usize] =
                links[node as usize % links.len()];
        }
    }
    forward
}

fn print(name: &str, fabric: &Fabric, forward: &[u32]) -> Result<(), FabricError> {
    let mut plan =
        RoutePlan::new(fabric, RoutingRule::Table(Routes::forwarding(fabric, forward)?))?;
    let begun = Instant::now();
    let deadlock_free = plan.check_deadlock_free(fabric).is_ok();
    let check = begun.elapsed();
    plan.spread_over_lanes(fabric)?;
    let all = begun.elapsed() - check;
    let (nodes, switches, lanes) = (fabric.n_nodes, fabric.n_switches, plan.lanes());
    println!("{name}: {nodes} nodes, {switches} switches");
    println!("  one lane suffices: {deadlock_free}, in {check:.2?}; lanes: {lanes}, in {all:.2?}");
    Ok(())
}
