//! Compares incremental rates with a solve of all rates from scratch.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::waterfill::ProgressiveFilling;

/// A flow: the links it uses, each with its share, and its weight.
type NewFlow = (Vec<(u32, f64)>, f64);

/// Flows that end, by position among the active ones, and flows that start at the same time.
type FlowChanges = (Vec<Index>, Vec<NewFlow>);

/// Distinct links; in half of the cases with equal capacities, so that levels coincide.
fn new_flow(links: u32) -> impl Strategy<Value = NewFlow> {
    let single = prop::collection::btree_set(0..links, 1..=links.min(6) as usize);
    let share = prop_oneof![Just(1.0), Just(0.125), 0.01..1.0];
    let weight = prop_oneof![Just(1.0), Just(3.0), 0.01..100.0];
    (single, share, any::<bool>(), weight).prop_map(|(path, share, split, weight)| {
        let uneven = |at: usize| if split && at % 2 == 1 { share } else { 1.0 };
        let path = path.into_iter().enumerate().map(|(at, link)| (link, uneven(at)));
        (path.collect(), weight)
    })
}

fn steps(links: u32) -> impl Strategy<Value = Vec<FlowChanges>> {
    vec((vec(any::<Index>(), 0..3), vec(new_flow(links), 0..4)), 1..60)
}

fn network() -> impl Strategy<Value = (Vec<f64>, Vec<FlowChanges>)> {
    (2u32..40).prop_flat_map(|links| {
        let gbps = prop_oneof![Just(100.0), Just(25.0), 1e-3..1e4];
        (vec(gbps, links as usize), steps(links))
    })
}

/// Active flows with the rates that are kept.
struct CheckedRates {
    links: ActiveFlows,
    kept: MaxMin,
    active: Vec<u32>,
    rate: Vec<f64>,
}

impl CheckedRates {
    /// Flows share the level of their link if at least `share_from` are stopped there.
    fn new(capacity: Vec<f64>, share_from: u32) -> Self {
        let links = ActiveFlows::new(capacity).unwrap();
        let mut kept = MaxMin::default();
        kept.share_levels(share_from);
        Self { links, kept, active: Vec::new(), rate: Vec::new() }
    }

    /// Settles flows that end, which are no longer in `active`, and flows that start, and compares
    /// all rates with those computed from nothing.
    fn step(&mut self, ended: &[u32], starts: &[NewFlow]) {
        let Self { links, kept, active, rate } = self;
        let started: Vec<u32> =
            starts.iter().map(|(path, weight)| links.add(path, *weight)).collect();
        started.iter().for_each(|&flow| links.enter(flow));
        active.extend(&started);
        let mut changed = Vec::new();
        kept.settle(links, &started, ended, &mut changed);
        ended.iter().for_each(|&flow| links.recycle(flow));
        rate.resize(links.weight.len(), 0.0);
        changed.iter().for_each(|&(flow, gbps)| rate[flow as usize] = gbps);
        let exact = ProgressiveFilling::solve(links);
        for &flow in &*active {
            if let Some(link) = kept.shared_at(flow) {
                rate[flow as usize] = kept.level(link) * links.weight[flow as usize];
            }
            let (got, want) = (rate[flow as usize], exact[flow as usize]);
            assert!((got - want).abs() <= 1e-9 * want, "flow {flow}: {got} {want}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn rates_kept_equal_rates_from_nothing(
        (capacity, steps) in network(),
        share_from in prop_oneof![Just(0u32), Just(1), Just(2), Just(5)],
    ) {
        let mut network = CheckedRates::new(capacity, share_from);
        for (ends, starts) in steps {
            let mut ended = Vec::new();
            for end in ends {
                if !network.active.is_empty() {
                    ended.push(network.active.swap_remove(end.index(network.active.len())));
                }
            }
            network.step(&ended, &starts);
        }
    }
}

/// Hundreds of flows to one receiver, over links that they share with flows to others, which come and
/// go. Without bounds that follow the level, or links that count their flows exactly before they are
/// served, the rates differ.
#[test]
fn shared_levels_equal_a_full_solve() {
    const SENDERS: u64 = 30;
    let mut draw = draws();
    for share_from in [1, 20, SHARED_FROM] {
        let mut network = CheckedRates::new(vec![100.0; SENDERS as usize + 3], share_from);
        let mut most = 0;
        for step in 0..300 {
            let ends = if step < 100 { 1 } else { 5 }.min(network.active.len() as u64);
            let ended: Vec<u32> = (0..ends)
                .map(|_| network.active.swap_remove(draw(network.active.len() as u64) as usize))
                .collect();
            let starts: Vec<NewFlow> = (0..if step < 100 { 8 } else { draw(3) })
                .map(|_| {
                    let receiver = SENDERS + if draw(8) > 0 { 0 } else { 1 + draw(2) };
                    let path = vec![(draw(SENDERS) as u32, 1.0), (receiver as u32, 1.0)];
                    (path, if draw(20) > 0 { 1.0 } else { 30.0 })
                })
                .collect();
            network.step(&ended, &starts);
            most = most.max(network.kept.n_shared);
        }
        assert!(most > 200, "{most} of 700 flows shared a level at a time");
    }
}

#[test]
fn ends_on_crowded_links_visit_few_flows() {
    let n = 1000;
    let capacity: Vec<f64> = (0..=n).map(|link| if link == n { 1.0 } else { 2.0 }).collect();
    let mut network = CheckedRates::new(capacity, SHARED_FROM);
    let starts: Vec<NewFlow> = (0..n).map(|link| (vec![(link, 1.0), (n, 1.0)], 1.0)).collect();
    network.step(&[], &starts);
    let mut visits = 0;
    let CheckedRates { links, kept, active, .. } = &mut network;
    while let Some(flow) = active.pop() {
        let mut changed = Vec::new();
        kept.settle(links, &[], &[flow], &mut changed);
        visits += changed.len();
    }
    // About 500,000 if each end visited all flows.
    assert!(visits < 40_000, "{visits}");
}

/// Random numbers below the argument.
fn draws() -> impl FnMut(u64) -> u64 {
    let mut state = 1u64;
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Flows over single links of 1 Gb/s, all active.
fn one_a_link(n: u32) -> (ActiveFlows, MaxMin) {
    let mut links = ActiveFlows::new(vec![1.0; n as usize]).unwrap();
    let flows: Vec<u32> = (0..n).map(|link| links.add(&[(link, 1.0)], 1.0)).collect();
    flows.iter().for_each(|&flow| links.enter(flow));
    let mut kept = MaxMin::default();
    kept.settle(&mut links, &flows, &[], &mut Vec::new());
    (links, kept)
}

#[test]
fn distant_changes_are_not_visited() {
    let (mut links, mut kept) = one_a_link(10);
    let another = links.add(&[(4, 1.0)], 1.0);
    links.enter(another);
    let mut changed = Vec::new();
    kept.settle(&mut links, &[another], &[], &mut changed);
    assert_eq!(changed, [(4, 0.5), (another, 0.5)]);
}

#[test]
fn a_change_ends_where_a_link_has_room() {
    // Flow 0 rises on link 0 and meets flow 1 on link 2, which has room for both.
    let mut links = ActiveFlows::new(vec![1.0, 1.0, 10.0]).unwrap();
    let paths: [&[(u32, f64)]; 3] = [&[(0, 1.0), (2, 1.0)], &[(1, 1.0), (2, 1.0)], &[(0, 1.0)]];
    let flows: Vec<u32> = paths.iter().map(|path| links.add(path, 1.0)).collect();
    flows.iter().for_each(|&flow| links.enter(flow));
    let mut kept = MaxMin::default();
    kept.settle(&mut links, &flows, &[], &mut Vec::new());
    let mut changed = Vec::new();
    kept.settle(&mut links, &[], &[2], &mut changed);
    assert_eq!(changed, [(0, 1.0)]);
}

#[test]
fn memory_follows_the_active_flows() {
    let (mut links, mut kept) = one_a_link(3);
    for _ in 0..1000 {
        kept.settle(&mut links, &[], &[1], &mut Vec::new());
        links.recycle(1);
        assert_eq!(links.add(&[(1, 1.0)], 1.0), 1);
        links.enter(1);
        let mut changed = Vec::new();
        kept.settle(&mut links, &[1], &[], &mut changed);
        assert_eq!(changed, [(1, 1.0)]);
    }
    assert_eq!((links.weight.len(), kept.flow.len()), (3, 3));
}

/// Flows over eight detours each, as by Valiant's rule on a torus. Dozens end and start at once.
/// Without a limit on the steps, some settlements never end.
#[test]
fn flows_of_many_parts_settle() {
    const NODES: u64 = 60;
    const INNER: u64 = 200;
    let mut draw = draws();
    for _ in 0..20 {
        let mut network = CheckedRates::new(vec![100.0; (NODES + INNER) as usize], 0);
        for _ in 0..60 {
            let ends = draw(60).min(network.active.len() as u64);
            let ended: Vec<u32> = (0..ends)
                .map(|_| {
                    let at = draw(network.active.len() as u64) as usize;
                    network.active.swap_remove(at)
                })
                .collect();
            let starts: Vec<NewFlow> = (0..draw(60))
                .map(|_| {
                    let mut path = std::collections::BTreeMap::from([(draw(NODES) as u32, 1.0)]);
                    for _ in 0..8 * 4 {
                        let link = (NODES + draw(INNER)) as u32;
                        *path.entry(link).or_insert(0.0) += 0.125;
                    }
                    (path.into_iter().collect(), 1.0)
                })
                .collect();
            network.step(&ended, &starts);
        }
    }
}
