//! What each cable connects, at which rate and delay, from the definition of each topology and not from
//! its builder; and in which order and on which lanes the rules cross dimensions and groups.

use std::collections::BTreeMap;

use tailback_fabric::rules::{DimensionOrder, DragonflyRouting, HyperXRouting, Tie};
use tailback_fabric::{
    Arrangement, Fabric, RoutePlan, Routes, RoutingRule, dragonfly, dragonfly_plus, fat_tree,
    hyperx, modified_tree, pgft, torus,
};

const GBPS: [f64; 3] = [400.0, 200.0, 100.0];
const DELAY: [u64; 3] = [1_000, 20_000, 300_000];

/// Tier of a vertex, -1 for a node.
fn tier(fabric: &Fabric, vertex: u32) -> i32 {
    vertex.checked_sub(fabric.n_nodes).map_or(-1, |s| fabric.switch_tier[s as usize])
}

/// Group of a vertex that is a switch.
fn pod(fabric: &Fabric, vertex: u32) -> i32 {
    fabric.switch_pod[(vertex - fabric.n_nodes) as usize]
}

/// Asserts that every link has the rate and delay of its `kind`, and that there are `kinds` kinds.
fn assert_cables(fabric: &Fabric, kinds: usize, kind: impl Fn(u32, u32) -> (f64, u64)) {
    let mut seen = BTreeMap::new();
    for link in 0..fabric.n_links() {
        let (from, to) = (fabric.link_src[link], fabric.link_dst[link]);
        let cable = (fabric.link_gbps[link], fabric.link_delay_ps[link]);
        assert_eq!(cable, kind(from, to), "link {link}, {from} to {to}");
        *seen.entry(cable.1).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), kinds, "{seen:?}");
}

#[test]
fn tree_cables_have_the_rate_of_their_level() {
    let higher = |fabric: &Fabric, a, b| tier(fabric, a).max(tier(fabric, b)) as usize;
    let shape = fat_tree::Shape {
        hosts_per_leaf: 2,
        leaves: 3,
        aggregation: 4,
        pods: 2,
        cores: 6,
        leaf_cables: 1,
        aggregation_uplinks: 3,
        gbps: GBPS,
        delay_ps: DELAY,
    };
    let fabric = fat_tree::build(&shape).unwrap();
    let of = |level: usize| (GBPS[level], DELAY[level]);
    assert_cables(&fabric, 3, |a, b| of(higher(&fabric, a, b)));
    // Uplink u of aggregation switch a leads to core (3 a + u) mod 6.
    let (first, cores) = (fabric.n_nodes + 6, fabric.n_nodes + 6 + 8);
    for switch in 0..8 {
        let up: Vec<u32> = fabric
            .out_links(first + switch)
            .map(|link| fabric.link_dst[link as usize])
            .filter(|&to| to >= cores)
            .map(|to| to - cores)
            .collect();
        assert_eq!(up, [0, 1, 2].map(|u| (3 * (switch % 4) + u) % 6), "switch {switch}");
    }

    let shape = pgft::Shape {
        children: vec![2, 3, 2],
        parents: vec![1, 2, 3],
        cables: vec![1, 2, 1],
        gbps: GBPS.to_vec(),
        delay_ps: DELAY.to_vec(),
        planes: 2,
    };
    let fabric = pgft::build(&shape).unwrap();
    assert_cables(&fabric, 3, |a, b| of(higher(&fabric, a, b)));

    let shape = modified_tree::Shape { arity: 3, levels: 3, width: 2, gbps: GBPS, delay_ps: DELAY };
    let fabric = modified_tree::build(&shape).unwrap();
    assert_cables(&fabric, 3, |a, b| match (tier(&fabric, a), tier(&fabric, b)) {
        (-1, _) | (_, -1) => of(0),
        (x, y) if x == y => of(2),
        _ => of(1),
    });
}

fn dragonflies(arrangement: Arrangement) -> [(Fabric, u32); 2] {
    let shape = dragonfly::Shape {
        nodes_per_router: 2,
        routers: 4,
        global_ports: 1,
        groups: 5,
        arrangement,
        gbps: GBPS,
        delay_ps: DELAY,
    };
    let plus = dragonfly_plus::Shape {
        nodes_per_leaf: 2,
        leaves: 3,
        spines: 4,
        global_ports: 1,
        groups: 5,
        arrangement,
        gbps: GBPS,
        delay_ps: DELAY,
    };
    // The offset of the first switch with a global port within its group; each has one such port.
    [(dragonfly::build(&shape).unwrap(), 0), (dragonfly_plus::build(&plus).unwrap(), 3)]
}

/// Port i of group g leads to group g + i + 1 (palm tree), or to group i, skipping the group itself
/// (consecutive); local and global cables have separate rates and delays.
#[test]
fn global_ports_follow_the_arrangement() {
    for arrangement in [Arrangement::Palmtree, Arrangement::Consecutive] {
        for (fabric, first) in dragonflies(arrangement) {
            assert_cables(&fabric, 3, |a, b| {
                let node = fabric.is_node(a) || fabric.is_node(b);
                let kind =
                    if node { 0 } else { 1 + usize::from(pod(&fabric, a) != pod(&fabric, b)) };
                (GBPS[kind], DELAY[kind])
            });
            let size = fabric.n_switches / 5;
            for group in 0..5u32 {
                for port in 0..4u32 {
                    let switch = fabric.n_nodes + group * size + first + port;
                    let links = fabric.out_links(switch).map(|l| fabric.link_dst[l as usize]);
                    let others = links.filter(|&to| !fabric.is_node(to));
                    let others = others.map(|to| pod(&fabric, to) as u32);
                    let neighbours: Vec<u32> = others.filter(|&other| other != group).collect();
                    let expected = match arrangement {
                        Arrangement::Palmtree => (group + port + 1) % 5,
                        Arrangement::Consecutive => port + u32::from(port >= group),
                    };
                    assert_eq!(
                        neighbours,
                        [expected],
                        "{arrangement:?}, group {group}, port {port}"
                    );
                }
            }
        }
    }
}

/// The dimension in which the ends of a link between switches differ, and their coordinates in it.
fn crossed(fabric: &Fabric, dims: &[u32], a: u32, b: u32) -> (usize, u32, u32) {
    let (mut a, mut b) = (a - fabric.n_nodes, b - fabric.n_nodes);
    for (dimension, &size) in dims.iter().enumerate() {
        if a % size != b % size {
            return (dimension, a % size, b % size);
        }
        (a, b) = (a / size, b / size);
    }
    panic!("a link from a switch to itself");
}

const DIMS: [u32; 3] = [4, 5, 3];

fn a_torus() -> Fabric {
    let dimensions = (0..3)
        .map(|d| torus::Dimension {
            size: DIMS[d],
            wrap: d < 2,
            cables: 1,
            gbps: vec![10.0 + d as f64, 20.0 + d as f64, 30.0 + d as f64],
            delay_ps: DELAY[d],
        })
        .collect();
    let shape =
        torus::Shape { dimensions, nodes_per_switch: 2, node_gbps: 50.0, node_delay_ps: 77 };
    torus::build(&shape).unwrap()
}

fn a_hyperx() -> Fabric {
    let dimensions = (0..3)
        .map(|d| hyperx::Dimension { size: DIMS[d], cables: 1, gbps: GBPS[d], delay_ps: DELAY[d] })
        .collect();
    let shape =
        hyperx::Shape { dimensions, nodes_per_switch: 2, node_gbps: 50.0, node_delay_ps: 77 };
    hyperx::build(&shape).unwrap()
}

#[test]
fn grid_cables_have_the_rate_of_their_dimension() {
    let fabric = a_torus();
    assert_cables(&fabric, 4, |a, b| {
        if fabric.is_node(a) || fabric.is_node(b) {
            return (50.0, 77);
        }
        let (d, x, y) = crossed(&fabric, &DIMS, a, b);
        // Rates are listed by the position where a cable begins, cyclically; the wrap-around cable
        // begins at the last position.
        let wrapped = x.abs_diff(y) > 1;
        let position = if wrapped { x.max(y) } else { x.min(y) };
        (f64::from(10 * (position % 3 + 1)) + d as f64, DELAY[d])
    });
    let fabric = a_hyperx();
    assert_cables(&fabric, 4, |a, b| {
        if fabric.is_node(a) || fabric.is_node(b) {
            return (50.0, 77);
        }
        let d = crossed(&fabric, &DIMS, a, b).0;
        (GBPS[d], DELAY[d])
    });
}

/// Tori and HyperX cross X first, then Y, then Z. On a ring, packets use lane 0 while the wrap-around
/// link is ahead of them, else lane 1; without a ring, they use lane 0.
#[test]
fn dimensions_are_crossed_in_their_order() {
    for (fabric, wrapped) in [(a_torus(), true), (a_hyperx(), false)] {
        let rule = if wrapped {
            let rule = DimensionOrder::new(&fabric, &DIMS, Tie::Positive, true, false);
            RoutingRule::DimensionOrder(rule.unwrap())
        } else {
            RoutingRule::HyperX(HyperXRouting::new(&fabric, &DIMS, false).unwrap())
        };
        let plan = RoutePlan::new(&fabric, rule).unwrap();
        for from in 0..fabric.n_nodes {
            for to in 0..fabric.n_nodes {
                let path = plan.path(&fabric, from, to, u32::MAX, |_| 0).unwrap();
                let hops: Vec<_> = path
                    .iter()
                    .map(|&(link, lane)| {
                        let link = link as usize;
                        let ends = (fabric.link_src[link], fabric.link_dst[link]);
                        (crossed(&fabric, &DIMS, ends.0, ends.1), lane)
                    })
                    .collect();
                assert!(hops.is_sorted_by_key(|hop| hop.0.0), "{from} to {to}: {hops:?}");
                for (at, &((d, ..), lane)) in hops.iter().enumerate() {
                    let ahead = hops[at..].iter().filter(|hop| hop.0.0 == d);
                    let wraps = ahead.clone().any(|&((_, x, y), _)| x.abs_diff(y) > 1);
                    let ring = wrapped && d < 2;
                    assert_eq!(lane, u8::from(ring && !wraps), "{from} to {to}: {hops:?}");
                }
            }
        }
    }
}

/// A detour on a dragonfly goes through a third group: there is none within a group, nor through the
/// group of either end.
#[test]
fn dragonfly_detours_go_through_a_third_group() {
    let [(fabric, _), _] = dragonflies(Arrangement::Palmtree);
    let plan = RoutePlan::new(
        &fabric,
        RoutingRule::Dragonfly(DragonflyRouting::new(&fabric, true, true).unwrap()),
    )
    .unwrap();
    for to in 0..fabric.n_nodes {
        for via in 0..plan.detours() {
            let path = plan.path(&fabric, 0, to, via, |_| 0).unwrap();
            let ends = path.iter().map(|&(link, _)| fabric.link_dst[link as usize]);
            let visited: Vec<u32> = ends.map(|end| pod(&fabric, end) as u32).collect();
            let (source, destination) = (0, to / 8);
            let useful = source != destination && via != source && via != destination;
            let third = visited.iter().any(|&group| group != source && group != destination);
            assert_eq!(third, useful, "to {to} by group {via}: {visited:?}");
            assert!(!useful || visited.contains(&via));
        }
    }
}

/// A forwarding table entry that leads to a switch without an entry is not a route.
#[test]
fn entries_that_dead_end_are_not_routes() {
    let shape = torus::Shape {
        dimensions: vec![torus::Dimension {
            size: 4,
            wrap: false,
            cables: 1,
            gbps: vec![1.0],
            delay_ps: 0,
        }],
        nodes_per_switch: 1,
        node_gbps: 1.0,
        node_delay_ps: 0,
    };
    let fabric = torus::build(&shape).unwrap();
    let mut forward = vec![u32::MAX; 16];
    let link = |from: u32, to: u32| {
        fabric.out_links(4 + from).find(|&l| fabric.link_dst[l as usize] == 4 + to).unwrap()
    };
    // All switches forward to node 3, but the last one before it has no entry.
    (forward[3], forward[4 + 3]) = (link(0, 1), link(1, 2));
    let routes = Routes::forwarding(&fabric, &forward).unwrap();
    for switch in 0..3 {
        assert!(routes.require(&fabric, switch, 3).is_err(), "switch {switch}");
    }
    forward[2 * 4 + 3] = link(2, 3);
    let routes = Routes::forwarding(&fabric, &forward).unwrap();
    assert!((0..3).all(|switch| routes.require(&fabric, switch, 3).is_ok()));
}
