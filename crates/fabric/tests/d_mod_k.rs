//! Deterministic routes: D-mod-k spreads destinations over all links, up and down.

use tailback_fabric::rules::DragonflyRouting;
use tailback_fabric::{Arrangement, CableList, Fabric, RoutePlan, RouteState, Routes, RoutingRule};
use tailback_fabric::{dragonfly_plus, fat_tree, pgft, yellowstone};

/// The links of the deterministic route between two nodes.
fn route(fabric: &Fabric, plan: &RoutePlan, from: u32, to: u32) -> Vec<u32> {
    let (mut switch, mut state, mut links) =
        (plan.node_switch[from as usize], RouteState::START, vec![]);
    while switch != plan.node_switch[to as usize] {
        let step = plan.next(switch, to, u32::MAX, state);
        let link = plan.deterministic_link(switch, to, u32::MAX, state, &step);
        assert!(step.links.contains(&link), "link {link} is no candidate");
        links.push(link);
        (switch, state) = (fabric.link_dst[link as usize] - fabric.n_nodes, step.next);
    }
    links
}

/// Number of routes on each link when every node sends to the one with a number greater by `shift`.
fn load(fabric: &Fabric, plan: &RoutePlan, shift: u32) -> Vec<u32> {
    let mut load = vec![0; fabric.n_links()];
    for from in 0..fabric.n_nodes {
        for link in route(fabric, plan, from, (from + shift) % fabric.n_nodes) {
            load[link as usize] += 1;
        }
    }
    load
}

fn up_down(fabric: &Fabric) -> RoutePlan {
    RoutePlan::new(fabric, RoutingRule::Table(Routes::table(fabric).unwrap())).unwrap()
}

fn tree(children: &[u32], parents: &[u32], cables: &[u32]) -> Fabric {
    let n = children.len();
    let shape = pgft::Shape {
        children: children.to_vec(),
        parents: parents.to_vec(),
        cables: cables.to_vec(),
        gbps: vec![100.0; n],
        delay_ps: vec![0; n],
        planes: 1,
    };
    pgft::build(&shape).unwrap()
}

/// Links from tier `from` to tier `to`.
fn between(fabric: &Fabric, from: i32, to: i32) -> Vec<usize> {
    let tier = |vertex: u32| {
        vertex.checked_sub(fabric.n_nodes).map_or(-1, |s| fabric.switch_tier[s as usize])
    };
    let ends = |link: usize| (tier(fabric.link_src[link]), tier(fabric.link_dst[link]));
    (0..fabric.n_links()).filter(|&link| ends(link) == (from, to)).collect()
}

#[test]
fn no_shift_blocks_in_a_tree_of_constant_bisection() {
    // Zahavi, 2010: if every switch has as many cables up as down, D-mod-k routes any shift of all
    // nodes with at most one route per link.
    for (m, w, p) in [
        ([4, 4, 4], [1, 4, 4], [1, 1, 1]),
        ([4, 4, 4], [1, 2, 4], [1, 2, 2]),
        ([4, 4, 4], [1, 2, 2], [1, 2, 4]),
        ([6, 4, 3], [1, 3, 4], [1, 2, 2]),
    ] {
        let fabric = tree(&m, &w, &p);
        let plan = up_down(&fabric);
        for shift in 1..fabric.n_nodes {
            let most = load(&fabric, &plan, shift).into_iter().max().unwrap();
            assert_eq!(most, 1, "m {m:?}, w {w:?}, p {p:?}: shift {shift}");
        }
    }
}

#[test]
fn down_links_are_loaded_as_evenly_as_uplinks() {
    // Where a core reaches a pod through several aggregation switches, routes use all of them.
    for shape in [fat_tree::Shape::TAPERED, fat_tree::Shape::FULL] {
        let fabric = fat_tree::build(&shape).unwrap();
        let plan = up_down(&fabric);
        let pod = shape.leaves * shape.hosts_per_leaf;
        let load = load(&fabric, &plan, pod);
        for (from, to) in [(0, 1), (1, 2), (2, 1), (1, 0)] {
            let links = between(&fabric, from, to);
            let most = links.iter().map(|&link| load[link]).max().unwrap();
            let mean = f64::from(fabric.n_nodes) / links.len() as f64;
            assert!(f64::from(most) <= 1.5 * mean, "tier {from} to {to}: {most} of {mean}");
        }
    }
    let shape = yellowstone::Shape {
        hosts_per_tor: 18,
        tors_per_group: 18,
        groups: 14,
        directors: 9,
        leaves: 29,
        spines: 18,
        storage_leaves: 0,
        storage_spines: 0,
        servers_per_leaf: 0,
        storage_cables: 0,
        gbps: 54.0,
        delay_ps: 0,
    };
    let fabric = yellowstone::build(&shape).unwrap();
    let load = load(&fabric, &up_down(&fabric), 324);
    assert!(between(&fabric, 1, 0).into_iter().all(|link| load[link] <= 1));
}

#[test]
fn routes_do_not_depend_on_ports() {
    // Four leaves of four nodes and four spines; the ports of each leaf are rotated by its number.
    let (nodes, leaves, spines) = (16, 4, 4);
    let mut cables = CableList::new((nodes + leaves + spines) as usize);
    for node in 0..nodes {
        cables.add(node, nodes + node / 4, 100.0, 0);
    }
    for leaf in 0..leaves {
        for port in 0..spines {
            let spine = nodes + leaves + (port + leaf) % spines;
            cables.add(nodes + leaf, spine, 100.0, 0);
        }
    }
    let fabric = cables.finish(nodes, vec![0, 0, 0, 0, 1, 1, 1, 1], vec![-1; 8]).unwrap();
    for routes in [Routes::table(&fabric).unwrap(), Routes::arithmetic(&fabric).unwrap().unwrap()] {
        let plan = RoutePlan::new(&fabric, RoutingRule::Table(routes)).unwrap();
        for shift in 1..nodes {
            assert_eq!(load(&fabric, &plan, shift).into_iter().max(), Some(1), "shift {shift}");
        }
    }
}

#[test]
fn routes_stay_spread_after_losing_a_cable() {
    // Tapered without the first uplink of its first leaf: routes to its nodes still use many links.
    let tree = fat_tree::build(&fat_tree::Shape::TAPERED).unwrap();
    let lost = tree.out_links(tree.n_nodes).find(|&l| !tree.is_node(tree.link_dst[l as usize]));
    let (lost, nodes) = (lost.unwrap() as usize, tree.n_nodes);
    let mut cables = CableList::new(tree.n_vertices());
    for link in 0..tree.n_links() {
        let back = tree.link_reverse[link] as usize;
        if link < back && link != lost && back != lost {
            cables.add(tree.link_src[link], tree.link_dst[link], 100.0, 0);
        }
    }
    let fabric = cables.finish(nodes, tree.switch_tier, tree.switch_pod).unwrap();
    let plan = up_down(&fabric);
    let mut used = std::collections::BTreeMap::new();
    for to in 0..32 {
        let last = *route(&fabric, &plan, nodes / 2 + to, to).last().unwrap();
        *used.entry(last).or_insert(0) += 1;
    }
    // 32 nodes over 15 links: at best, no link has more than 3.
    assert!(used.len() >= 10 && used.values().all(|&n| n <= 6), "{used:?}");
}

#[test]
fn all_global_cables_of_a_dragonfly_plus_are_used() {
    // Three groups of four spines with four global ports each: two cables from a spine to each group.
    let shape = dragonfly_plus::Shape {
        nodes_per_leaf: 4,
        leaves: 4,
        spines: 4,
        global_ports: 4,
        groups: 3,
        arrangement: Arrangement::Palmtree,
        gbps: [100.0; 3],
        delay_ps: [0; 3],
    };
    let fabric = dragonfly_plus::build(&shape).unwrap();
    let plan = RoutePlan::new(
        &fabric,
        RoutingRule::Dragonfly(DragonflyRouting::new(&fabric, false, true).unwrap()),
    )
    .unwrap();
    let load = load(&fabric, &plan, 16);
    let pod = |vertex: u32| fabric.switch_pod[(vertex - fabric.n_nodes) as usize];
    for link in between(&fabric, 0, 0) {
        let (from, to) = (pod(fabric.link_src[link]), pod(fabric.link_dst[link]));
        if to == (from + 1) % 3 {
            assert_eq!(load[link], 2, "link {link}");
        }
    }
}
