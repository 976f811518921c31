//! Every topology is connected, has symmetric ports, uses no port twice, and has the counts of its
//! formula. With every rule on it, every route arrives within a bounded number of hops, and the channel
//! dependency graph has no cycle.

use std::collections::HashSet;

use proptest::prelude::*;
use tailback_fabric::rules::{DimensionOrder, DragonflyRouting, HyperXRouting, Tie};
use tailback_fabric::{
    Arrangement, CableList, Fabric, FabricError, RoutePlan, Routes, RoutingRule, dragonfly,
    dragonfly_plus, hyperx, pgft, torus, yellowstone,
};

/// Asserts what holds for every topology; the counts are those of its formula.
fn assert_conforms(fabric: &Fabric, nodes: u64, switches: u64, cables: u64) {
    assert_eq!(u64::from(fabric.n_nodes), nodes);
    assert_eq!(u64::from(fabric.n_switches), switches);
    assert_eq!(fabric.n_links() as u64, 2 * cables);
    let mut ports = HashSet::new();
    for link in 0..fabric.n_links() {
        let back = fabric.link_reverse[link] as usize;
        assert_eq!(fabric.link_reverse[back] as usize, link);
        assert_eq!(fabric.link_src_port[link], fabric.link_dst_port[back]);
        assert_eq!(fabric.link_gbps[link], fabric.link_gbps[back]);
        assert!(ports.insert((fabric.link_src[link], fabric.link_src_port[link])));
        assert_ne!(fabric.link_src[link], fabric.link_dst[link]);
    }
    let mut seen = vec![false; fabric.n_vertices()];
    let mut open = vec![0];
    seen[0] = true;
    while let Some(vertex) = open.pop() {
        for link in fabric.out_links(vertex) {
            let there = fabric.link_dst[link as usize];
            if !std::mem::replace(&mut seen[there as usize], true) {
                open.push(there);
            }
        }
    }
    assert!(seen.iter().all(|&s| s), "connected");
}

/// Follows routes between all nodes, with some of the detours; checks for deadlock.
fn assert_routes(fabric: &Fabric, rule: RoutingRule, most_hops: usize) {
    let plan = RoutePlan::new(fabric, rule).unwrap();
    plan.check_deadlock_free(fabric).unwrap();
    for from in 0..fabric.n_nodes {
        for to in 0..fabric.n_nodes {
            let none = plan.detours();
            for via in (0..none).step_by(1 + none as usize / 4).chain([none]) {
                for turn in 0..3 {
                    let mut draw = turn;
                    let pick = |n: usize| {
                        draw = draw * 7 + 3;
                        draw % n
                    };
                    let path = plan.path(fabric, from, to, via, pick).unwrap();
                    let bound = if via == none { most_hops } else { 2 * most_hops };
                    assert!(path.len() <= bound, "{from} to {to} by {via}: {path:?}");
                    assert!(path.iter().all(|&(_, lane)| lane < plan.lanes()));
                }
            }
        }
    }
}

/// Whether there is a cyclic channel dependency, found by exhaustive search: follows every pair, detour
/// and candidate, then repeatedly removes channels that wait for nothing.
fn has_cycle(fabric: &Fabric, plan: &RoutePlan) -> bool {
    let mut waits = HashSet::new();
    for to in 0..fabric.n_nodes {
        for via in 0..=plan.detours() {
            let mut seen = HashSet::new();
            let mut open: Vec<_> =
                plan.node_switch.iter().map(|&s| (None, s, plan.start(s, to, via))).collect();
            while let Some(place) = open.pop() {
                let (channel, switch, state) = place;
                if switch == plan.node_switch[to as usize] || !seen.insert(place) {
                    continue;
                }
                let step = plan.next(switch, to, via, state);
                for &link in step.links {
                    if let Some(channel) = channel {
                        waits.insert((channel, (link, step.lane)));
                    }
                    let there = fabric.link_dst[link as usize] - fabric.n_nodes;
                    open.push((Some((link, step.lane)), there, step.next));
                }
            }
        }
    }
    loop {
        let before = waits.len();
        let waiting: HashSet<_> = waits.iter().map(|&(from, _)| from).collect();
        waits.retain(|(_, to)| waiting.contains(to));
        if waits.len() == before {
            return before > 0;
        }
    }
}

/// The check finds every cycle. Without detours it finds no other; with detours it is conservative.
fn assert_check_is_right(fabric: &Fabric, plan: &RoutePlan) {
    let (refused, cyclic) = (plan.check_deadlock_free(fabric).is_err(), has_cycle(fabric, plan));
    assert!(refused || !cyclic);
    assert!(refused == cyclic || plan.detours() > 0);
}

fn ring(size: u32, wrap: bool) -> torus::Dimension {
    torus::Dimension { size, wrap, cables: 1, gbps: vec![100.0], delay_ps: 0 }
}

fn grid(dimensions: Vec<torus::Dimension>, nodes_per_switch: u32) -> torus::Shape {
    torus::Shape { dimensions, nodes_per_switch, node_gbps: 100.0, node_delay_ps: 0 }
}

fn arrangement(palmtree: bool) -> Arrangement {
    if palmtree { Arrangement::Palmtree } else { Arrangement::Consecutive }
}

const YELLOWSTONE: yellowstone::Shape = yellowstone::Shape {
    hosts_per_tor: 18,
    tors_per_group: 18,
    groups: 14,
    directors: 9,
    leaves: 29,
    spines: 18,
    storage_leaves: 4,
    storage_spines: 6,
    servers_per_leaf: 5,
    storage_cables: 2,
    gbps: 54.0,
    delay_ps: 0,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn tori_and_meshes(
        sizes in proptest::collection::vec((1u32..6, any::<bool>(), 1u32..3), 1..5),
        nodes in 1u32..3,
        tie in 0usize..3,
    ) {
        let switches: u32 = sizes.iter().map(|s| s.0).product();
        prop_assume!(switches <= 48);
        let dimensions: Vec<_> =
            sizes.iter().map(|&(k, wrap, cables)| torus::Dimension { cables, ..ring(k, wrap) }).collect();
        let cables: u32 = sizes
            .iter()
            .map(|&(k, wrap, c)| c * switches / k * if wrap && k > 2 { k } else { k - 1 })
            .sum();
        let diameter: u32 =
            sizes.iter().map(|&(k, wrap, _)| if wrap { k / 2 } else { k - 1 }).sum();
        let fabric = torus::build(&grid(dimensions, nodes)).unwrap();
        let (n, s, c) = (switches * nodes, switches, cables + switches * nodes);
        assert_conforms(&fabric, n.into(), s.into(), c.into());
        let dims: Vec<u32> = sizes.iter().map(|s| s.0).collect();
        let tie = [Tie::Positive, Tie::Negative, Tie::Parity][tie];
        for detour in [false, true] {
            let rule = DimensionOrder::new(&fabric, &dims, tie, true, detour).unwrap();
            assert_routes(&fabric, RoutingRule::DimensionOrder(rule), diameter as usize);
        }
        let routes = Routes::up_down(&fabric).unwrap();
        assert_routes(&fabric, RoutingRule::Table(routes), 2 * switches as usize);
    }

    #[test]
    fn dragonflies(
        p in 1u32..3, a in 1u32..5, h in 1u32..4, groups in 1u32..9, palmtree in any::<bool>(),
    ) {
        prop_assume!(groups <= a * h + 1);
        let arrangement = arrangement(palmtree);
        let shape = dragonfly::Shape {
            nodes_per_router: p, routers: a, global_ports: h, groups, arrangement,
            gbps: [100.0; 3], delay_ps: [0; 3],
        };
        let fabric = dragonfly::build(&shape).unwrap();
        let each = if groups > 1 { a * h / (groups - 1) } else { 0 };
        let cables = p * a * groups + groups * a * (a - 1) / 2 + each * groups * (groups - 1) / 2;
        assert_conforms(&fabric, (p * a * groups).into(), (a * groups).into(), cables.into());
        for switch in 0..fabric.n_switches {
            let ports = fabric.out_links(fabric.n_nodes + switch).len() as u32;
            prop_assert!(ports < p + a + h);
        }
        for detour in [false, true] {
            let rule = DragonflyRouting::new(&fabric, detour, true).unwrap();
            assert_routes(&fabric, RoutingRule::Dragonfly(rule), 3);
        }
    }

    #[test]
    fn dragonflies_plus(
        p in 1u32..3, leaves in 1u32..4, spines in 1u32..4, h in 1u32..4, groups in 1u32..7,
        palmtree in any::<bool>(),
    ) {
        prop_assume!(groups <= spines * h + 1);
        let arrangement = arrangement(palmtree);
        let shape = dragonfly_plus::Shape {
            nodes_per_leaf: p, leaves, spines, global_ports: h, groups, arrangement,
            gbps: [100.0; 3], delay_ps: [0; 3],
        };
        let fabric = dragonfly_plus::build(&shape).unwrap();
        let each = if groups > 1 { spines * h / (groups - 1) } else { 0 };
        let cables =
            groups * leaves * (p + spines) + each * groups * groups.saturating_sub(1) / 2;
        let switches = groups * (leaves + spines);
        assert_conforms(&fabric, (p * leaves * groups).into(), switches.into(), cables.into());
        for detour in [false, true] {
            let rule = DragonflyRouting::new(&fabric, detour, true).unwrap();
            assert_routes(&fabric, RoutingRule::Dragonfly(rule), 3);
        }
    }

    #[test]
    fn hyperxs(sizes in proptest::collection::vec((1u32..5, 1u32..3), 1..4), nodes in 1u32..3) {
        let switches: u32 = sizes.iter().map(|s| s.0).product();
        prop_assume!(switches <= 48);
        let dimensions = sizes
            .iter()
            .map(|&(size, cables)| hyperx::Dimension { size, cables, gbps: 100.0, delay_ps: 0 })
            .collect();
        let shape = hyperx::Shape {
            dimensions, nodes_per_switch: nodes, node_gbps: 100.0, node_delay_ps: 0,
        };
        let fabric = hyperx::build(&shape).unwrap();
        let cables: u32 = sizes.iter().map(|&(k, c)| c * switches * (k - 1) / 2).sum();
        let (n, c) = (switches * nodes, cables + switches * nodes);
        assert_conforms(&fabric, n.into(), switches.into(), c.into());
        let dims: Vec<u32> = sizes.iter().map(|s| s.0).collect();
        for detour in [false, true] {
            let rule = HyperXRouting::new(&fabric, &dims, detour).unwrap();
            assert_routes(&fabric, RoutingRule::HyperX(rule), dims.len());
        }
    }

    #[test]
    fn the_deadlock_check_agrees_with_exhaustive_search(
        sizes in proptest::collection::vec((2u32..6, any::<bool>()), 1..3),
        (a, h) in (1u32..4, 1u32..3),
        dateline in any::<bool>(),
        detour in any::<bool>(),
    ) {
        let dimensions = sizes.iter().map(|&(k, wrap)| ring(k, wrap)).collect();
        let dims: Vec<u32> = sizes.iter().map(|s| s.0).collect();
        let fabric = torus::build(&grid(dimensions, 1)).unwrap();
        let rule = DimensionOrder::new(&fabric, &dims, Tie::Parity, dateline, detour).unwrap();
        let plan = RoutePlan::new(&fabric, RoutingRule::DimensionOrder(rule)).unwrap();
        assert_check_is_right(&fabric, &plan);
        let shape = dragonfly::Shape {
            nodes_per_router: 1, routers: a, global_ports: h, groups: a * h + 1,
            arrangement: Arrangement::Palmtree, gbps: [100.0; 3], delay_ps: [0; 3],
        };
        let fabric = dragonfly::build(&shape).unwrap();
        let plan = DragonflyRouting::new(&fabric, detour, dateline).unwrap();
        let plan = RoutePlan::new(&fabric, RoutingRule::Dragonfly(plan)).unwrap();
        assert_check_is_right(&fabric, &plan);
    }

    #[test]
    fn up_down_on_any_graph_never_deadlocks(
        switches in 2u32..14,
        extra in proptest::collection::vec((0u32..14, 0u32..14), 0..24),
        tiers in proptest::collection::vec(-1i32..3, 14),
    ) {
        let mut cables = CableList::new(2 * switches as usize);
        for s in 0..switches {
            cables.add(s, switches + s, 100.0, 0);
            if s > 0 {
                cables.add(switches + s, switches + s / 2, 100.0, 0);
            }
        }
        for (a, b) in extra {
            if a % switches != b % switches {
                cables.add(switches + a % switches, switches + b % switches, 100.0, 0);
            }
        }
        let tier = tiers[..switches as usize].to_vec();
        let fabric = cables.finish(switches, tier, vec![-1; switches as usize]).unwrap();
        let routes = Routes::up_down(&fabric).unwrap();
        assert_routes(&fabric, RoutingRule::Table(routes), 2 * switches as usize);
    }

    #[test]
    fn generalised_trees(
        levels in 1usize..4,
        m in proptest::collection::vec(1u32..4, 3),
        w in proptest::collection::vec(1u32..4, 3),
        p in proptest::collection::vec(1u32..3, 3),
    ) {
        let (mut w, mut p) = (w[..levels].to_vec(), p[..levels].to_vec());
        (w[0], p[0]) = (1, 1);
        let m = m[..levels].to_vec();
        let nodes: u32 = m.iter().product();
        let shape = pgft::Shape {
            children: m.clone(), parents: w.clone(), cables: p.clone(),
            gbps: vec![100.0; levels], delay_ps: vec![0; levels], planes: 1,
        };
        let fabric = pgft::build(&shape).unwrap();
        let (mut below, mut cables, mut switches) = (nodes, 0, 0);
        for level in 0..levels {
            cables += below * w[level] * p[level];
            below = below / m[level] * w[level];
            switches += below;
        }
        // If a leaf has several parents, all trees are connected.
        assert_conforms(&fabric, nodes.into(), switches.into(), cables.into());
        let routes = Routes::up_down(&fabric).unwrap();
        assert_routes(&fabric, RoutingRule::Table(routes), 2 * levels);
    }
}

#[test]
fn yellowstone_has_the_counts_of_figure_2() {
    let fabric = yellowstone::build(&YELLOWSTONE).unwrap();
    let directors = 9 * 29 * 18;
    let cables = 4536 + 252 * 18 + directors + 20 + 4 * 9 * 2 + 4 * 6;
    assert_conforms(&fabric, 4536 + 20, 252 + 9 * (29 + 18) + 10, cables);
    let ports = |switch: u32| fabric.out_links(fabric.n_nodes + switch).len();
    assert!((0..252).all(|tor| ports(tor) == 36));
    // ToR 19 is of B-group 2: its cables go to leaves 3 and 4 of every director.
    let leaves: Vec<u32> = fabric
        .out_links(fabric.n_nodes + 18)
        .map(|link| fabric.link_dst[link as usize])
        .filter(|&v| !fabric.is_node(v))
        .map(|v| v - fabric.n_nodes - 252 - 4)
        .collect();
    let expected: Vec<u32> = (0..9).flat_map(|d| [29 * d + 2, 29 * d + 3]).collect();
    assert_eq!(leaves, expected);
    // A used leaf has 18 cables down and 18 up; every spine one to each of the 29 leaves.
    assert!((0..28).all(|leaf| ports(256 + leaf) == 36));
    assert_eq!(ports(256 + 28), 18 + 8);
    assert!((0..18).all(|spine| ports(256 + 261 + 6 + spine) == 29));
    let routes = Routes::up_down(&fabric).unwrap();
    let plan = RoutePlan::new(&fabric, RoutingRule::Table(routes)).unwrap();
    plan.check_deadlock_free(&fabric).unwrap();
    // From a compute host to a storage server: ToR, leaf, spine, leaf 29, storage leaf.
    assert_eq!(plan.path(&fabric, 0, 4536, 0, |_| 0).unwrap().len(), 4);
}

#[test]
fn a_ring_without_lanes_names_its_cycle() {
    let fabric = torus::build(&grid(vec![ring(5, true)], 1)).unwrap();
    let one_lane = DimensionOrder::new(&fabric, &[5], Tie::Positive, false, false).unwrap();
    let plan = RoutePlan::new(&fabric, RoutingRule::DimensionOrder(one_lane)).unwrap();
    let Err(FabricError::Deadlock { cycle }) = plan.check_deadlock_free(&fabric) else {
        panic!("no cycle")
    };
    assert_eq!(cycle.len(), 5);
    for (index, &(link, _)) in cycle.iter().enumerate() {
        let (next, _) = cycle[(index + 1) % cycle.len()];
        assert_eq!(fabric.link_dst[link as usize], fabric.link_src[next as usize]);
    }
    let text = plan.check_deadlock_free(&fabric).unwrap_err().to_string();
    assert!(text.starts_with("the routes can deadlock: link "), "{text}");
    // No route on a ring of three has two links, and a second lane breaks the cycle on a ring of five.
    let three = torus::build(&grid(vec![ring(3, true)], 1)).unwrap();
    let rule = DimensionOrder::new(&three, &[3], Tie::Positive, false, false).unwrap();
    RoutePlan::new(&three, RoutingRule::DimensionOrder(rule))
        .unwrap()
        .check_deadlock_free(&three)
        .unwrap();
    let lanes = DimensionOrder::new(&fabric, &[5], Tie::Positive, true, false).unwrap();
    RoutePlan::new(&fabric, RoutingRule::DimensionOrder(lanes))
        .unwrap()
        .check_deadlock_free(&fabric)
        .unwrap();
}

#[test]
fn a_dragonfly_on_one_lane_deadlocks() {
    let shape = dragonfly::Shape {
        nodes_per_router: 1,
        routers: 4,
        global_ports: 2,
        groups: 9,
        arrangement: Arrangement::Palmtree,
        gbps: [100.0; 3],
        delay_ps: [0; 3],
    };
    let fabric = dragonfly::build(&shape).unwrap();
    for detour in [false, true] {
        let rule = DragonflyRouting::new(&fabric, detour, false).unwrap();
        let plan = RoutePlan::new(&fabric, RoutingRule::Dragonfly(rule)).unwrap();
        assert!(matches!(plan.check_deadlock_free(&fabric), Err(FabricError::Deadlock { .. })));
    }
}

#[test]
fn the_tie_rule_decides_between_equally_long_directions() {
    let fabric = torus::build(&grid(vec![ring(4, true)], 1)).unwrap();
    let first = |tie, from: u32, to: u32| {
        let rule = DimensionOrder::new(&fabric, &[4], tie, true, false).unwrap();
        let plan = RoutePlan::new(&fabric, RoutingRule::DimensionOrder(rule)).unwrap();
        let path = plan.path(&fabric, from, to, u32::MAX, |_| 0).unwrap();
        assert_eq!(path.len(), 2);
        fabric.link_dst[path[0].0 as usize] - fabric.n_nodes
    };
    assert_eq!((first(Tie::Positive, 0, 2), first(Tie::Positive, 1, 3)), (1, 2));
    assert_eq!((first(Tie::Negative, 0, 2), first(Tie::Negative, 1, 3)), (3, 0));
    assert_eq!((first(Tie::Parity, 0, 2), first(Tie::Parity, 1, 3)), (1, 0));
}

#[test]
fn forwarding_tables_drop_dead_ends_and_refuse_loops() {
    // Three switches in a ring, a node each.
    let fabric = torus::build(&grid(vec![ring(3, true)], 1)).unwrap();
    let link = |from: u32, to: u32| {
        fabric.out_links(3 + from).find(|&l| fabric.link_dst[l as usize] == 3 + to).unwrap()
    };
    let none = u32::MAX;
    let mut forward = vec![
        none,
        link(0, 1),
        link(0, 1), // node 2 through switch 1
        link(1, 0),
        none,
        link(1, 2),
        none,
        none,
        none, // a switch whose table is missing
    ];
    let routes = Routes::forwarding(&fabric, &forward).unwrap();
    assert_eq!(routes.candidates(0, 2), [link(0, 1)]);
    routes.require(&fabric, 0, 2).unwrap();
    assert!(routes.require(&fabric, 2, 0).is_err());
    let plan = RoutePlan::new(&fabric, RoutingRule::Table(routes)).unwrap();
    plan.check_deadlock_free(&fabric).unwrap();
    forward[5] = link(1, 0);
    let looping = Routes::forwarding(&fabric, &forward).unwrap_err();
    assert!(matches!(looping, FabricError::ForwardingLoop { node: 2, .. }), "{looping}");
    assert!(
        looping.to_string().contains("packets for node 2 in a loop through switch"),
        "{looping}"
    );
    forward[5] = link(0, 2);
    let foreign = Routes::forwarding(&fabric, &forward).unwrap_err();
    assert_eq!(foreign, FabricError::ForeignLink { switch: 1, node: 2, link: link(0, 2) });
}

#[test]
fn forwarding_tables_that_follow_a_ring_can_deadlock() {
    let fabric = torus::build(&grid(vec![ring(4, true)], 1)).unwrap();
    let mut forward = vec![u32::MAX; 16];
    for switch in 0..4u32 {
        let next = fabric.n_nodes + (switch + 1) % 4;
        let mut links = fabric.out_links(fabric.n_nodes + switch);
        let link = links.find(|&l| fabric.link_dst[l as usize] == next).unwrap();
        for node in (0..4).filter(|&node| node != switch) {
            forward[(switch * 4 + node) as usize] = link;
        }
    }
    let routes = Routes::forwarding(&fabric, &forward).unwrap();
    let plan = RoutePlan::new(&fabric, RoutingRule::Table(routes)).unwrap();
    assert_eq!(plan.path(&fabric, 1, 0, 0, |_| 0).unwrap().len(), 3);
    let Err(FabricError::Deadlock { cycle }) = plan.check_deadlock_free(&fabric) else {
        panic!("no cycle")
    };
    assert_eq!(cycle.len(), 4);
}

#[test]
fn rules_refuse_fabrics_they_do_not_fit() {
    let ring = torus::build(&grid(vec![ring(5, true)], 1)).unwrap();
    for error in [
        DimensionOrder::new(&ring, &[6], Tie::Positive, true, false).map(|_| ()),
        HyperXRouting::new(&ring, &[5], false).map(|_| ()),
        DragonflyRouting::new(&ring, false, true).map(|_| ()),
    ] {
        assert!(matches!(error, Err(FabricError::WrongTopology { .. })), "{error:?}");
    }
}

#[test]
fn impossible_shapes_name_the_field() {
    let shape = dragonfly::Shape {
        nodes_per_router: 1,
        routers: 2,
        global_ports: 1,
        groups: 4,
        arrangement: Arrangement::Consecutive,
        gbps: [1.0; 3],
        delay_ps: [0; 3],
    };
    assert!(dragonfly::build(&shape).unwrap_err().to_string().starts_with("groups = 4:"));
    let few = yellowstone::Shape { leaves: 28, ..YELLOWSTONE };
    assert!(yellowstone::build(&few).unwrap_err().to_string().starts_with("leaves = 28:"));
    let empty = grid(vec![ring(0, true)], 1);
    assert!(torus::build(&empty).unwrap_err().to_string().starts_with("dims = 0:"));
}
