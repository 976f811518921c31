//! Forwarding tables with cyclic channel dependencies get lanes without cycles.

use proptest::prelude::*;
use tailback_fabric::{
    Arrangement, DATA_LANES, Fabric, FabricError, RoutePlan, Routes, RoutingRule, dragonfly, torus,
};

fn ring(size: u32) -> torus::Dimension {
    torus::Dimension { size, wrap: true, cables: 1, gbps: vec![100.0], delay_ps: 0 }
}

fn torus_of(sizes: &[u32], nodes_per_switch: u32) -> Fabric {
    let dimensions = sizes.iter().map(|&size| ring(size)).collect();
    let shape = torus::Shape { dimensions, nodes_per_switch, node_gbps: 100.0, node_delay_ps: 0 };
    torus::build(&shape).unwrap()
}

fn dragonfly_of(routers: u32, global_ports: u32) -> Fabric {
    let shape = dragonfly::Shape {
        nodes_per_router: 2,
        routers,
        global_ports,
        groups: routers * global_ports + 1,
        arrangement: Arrangement::Palmtree,
        gbps: [100.0; 3],
        delay_ps: [0; 3],
    };
    dragonfly::build(&shape).unwrap()
}

/// Tables with one of the shortest paths to each node, as `pick` chooses among n links.
fn shortest(fabric: &Fabric, mut pick: impl FnMut(usize) -> usize) -> Vec<u32> {
    let (nodes, switches) = (fabric.n_nodes, fabric.n_switches);
    let mut forward = vec![u32::MAX; (nodes * switches) as usize];
    for node in 0..nodes {
        let mut distance = vec![u32::MAX; fabric.n_vertices()];
        distance[node as usize] = 0;
        let mut reached = vec![node];
        let mut head = 0;
        while head < reached.len() {
            let here = reached[head];
            for link in fabric.out_links(here) {
                let there = fabric.link_dst[link as usize];
                if !fabric.is_node(there) && distance[there as usize] == u32::MAX {
                    distance[there as usize] = distance[here as usize] + 1;
                    reached.push(there);
                }
            }
            head += 1;
        }
        for switch in 0..switches {
            let closer = distance[(nodes + switch) as usize] - 1;
            let links: Vec<u32> = fabric
                .out_links(nodes + switch)
                .filter(|&link| distance[fabric.link_dst[link as usize] as usize] == closer)
                .collect();
            forward[(switch * nodes + node) as usize] = links[pick(links.len())];
        }
    }
    forward
}

/// Tables with long paths: to each node along a depth-first tree, whose branches `pick` orders.
fn winding(fabric: &Fabric, mut pick: impl FnMut(usize) -> usize) -> Vec<u32> {
    let (nodes, switches) = (fabric.n_nodes, fabric.n_switches as usize);
    let mut forward = vec![u32::MAX; nodes as usize * switches];
    for node in 0..nodes {
        let first = fabric.link_dst[fabric.out_links(node).start as usize];
        let mut seen = vec![false; switches];
        seen[(first - nodes) as usize] = true;
        let mut open = vec![first];
        while let Some(&here) = open.last() {
            let away: Vec<u32> = fabric
                .out_links(here)
                .filter(|&link| !fabric.is_node(fabric.link_dst[link as usize]))
                .filter(|&link| !seen[(fabric.link_dst[link as usize] - nodes) as usize])
                .collect();
            if away.is_empty() {
                open.pop();
                continue;
            }
            let link = away[pick(away.len())];
            let there = fabric.link_dst[link as usize];
            seen[(there - nodes) as usize] = true;
            forward[((there - nodes) * nodes + node) as usize] = fabric.link_reverse[link as usize];
            open.push(there);
        }
    }
    forward
}

fn plan_of(fabric: &Fabric, forward: &[u32]) -> RoutePlan {
    let routes = Routes::forwarding(fabric, forward).unwrap();
    RoutePlan::new(fabric, RoutingRule::Table(routes)).unwrap()
}

/// Gives the tables lanes; asserts that there is no cycle left and that all paths are as before.
fn assert_spread(fabric: &Fabric, forward: &[u32]) -> RoutePlan {
    let before = plan_of(fabric, forward);
    let mut plan = before.clone();
    plan.spread_over_lanes(fabric).unwrap();
    plan.check_deadlock_free(fabric).unwrap();
    assert_eq!(plan.lanes() > 1, before.check_deadlock_free(fabric).is_err());
    for from in 0..fabric.n_nodes {
        for to in 0..fabric.n_nodes {
            let path = |plan: &RoutePlan| plan.path(fabric, from, to, 0, |_| 0).unwrap();
            let (old, new) = (path(&before), path(&plan));
            assert!(old.iter().map(|&(link, _)| link).eq(new.iter().map(|&(link, _)| link)));
            assert!(new.iter().all(|&(_, lane)| lane == new[0].1 && lane < plan.lanes()));
        }
    }
    plan
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn random_shortest_paths_on_tori_and_dragonflies(
        sizes in proptest::collection::vec(2u32..7, 1..4),
        (routers, global_ports) in (2u32..5, 1u32..3),
        draws in proptest::collection::vec(any::<u8>(), 1..100),
    ) {
        prop_assume!(sizes.iter().product::<u32>() <= 64);
        for fabric in [torus_of(&sizes, 1), dragonfly_of(routers, global_ports)] {
            let mut next = draws.iter().cycle();
            let forward = shortest(&fabric, |n| usize::from(*next.next().unwrap()) % n);
            assert_spread(&fabric, &forward);
        }
    }
}

#[test]
fn minimal_tables_of_a_dragonfly_take_two_lanes() {
    let fabric = dragonfly_of(4, 2);
    let forward = shortest(&fabric, |_| 0);
    let plan = plan_of(&fabric, &forward);
    assert!(matches!(plan.check_deadlock_free(&fabric), Err(FabricError::Deadlock { .. })));
    assert_eq!(assert_spread(&fabric, &forward).lanes(), 2);
}

#[test]
fn lanes_are_reused_for_equal_tables_only() {
    let fabric = dragonfly_of(4, 2);
    let forward = shortest(&fabric, |_| 0);
    let routed = assert_spread(&fabric, &forward);
    let mut slower = fabric.clone();
    slower.link_gbps[7] = 1.0;
    let mut same = plan_of(&slower, &forward);
    assert!(same.take_lanes_of(&slower, &routed, &fabric));
    assert_eq!(same.lanes(), routed.lanes());
    same.check_deadlock_free(&slower).unwrap();
    let mut other = plan_of(&fabric, &shortest(&fabric, |n| n - 1));
    assert!(!other.take_lanes_of(&fabric, &routed, &fabric));
    assert_eq!(other.lanes(), 1);
}

#[test]
fn tables_without_a_cycle_keep_to_lane_0() {
    let mesh = torus::Dimension { wrap: false, ..ring(6) };
    let shape = torus::Shape {
        dimensions: vec![mesh],
        nodes_per_switch: 2,
        node_gbps: 100.0,
        node_delay_ps: 0,
    };
    let fabric = torus::build(&shape).unwrap();
    let plan = assert_spread(&fabric, &shortest(&fabric, |_| 0));
    let RoutingRule::Table(routes) = &plan.rule else { panic!("no table") };
    assert!(routes.lane.is_empty() && plan.lanes() == 1);
}

#[test]
fn tables_that_need_too_many_lanes_are_refused() {
    let fabric = torus_of(&[7, 7], 1);
    let mut random = 1u32;
    let forward = winding(&fabric, |n| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) as usize % n
    });
    let mut plan = plan_of(&fabric, &forward);
    let error = plan.spread_over_lanes(&fabric).unwrap_err();
    let FabricError::TooFewLanes { lanes: DATA_LANES, from, node } = error else {
        panic!("{error}")
    };
    let text = format!("on 15 virtual lanes: packets from switch {from} to node {node} would");
    assert!(error.to_string().contains(&text), "{error}");
    assert_eq!(plan.lanes(), 1);
}
