//! Inputs beyond the engine's limits are refused, and unusual inputs give correct results.

use std::ops::ControlFlow;

use crate::common::*;
use tailback_engine::{
    Detour, EngineError, Outcome, Parallelism, Placement, Program, Settings, simulate,
};
use tailback_fabric::rules::{DimensionOrder, Tie};
use tailback_fabric::{CableList, Fabric, RoutePlan, Routes, RoutingRule, fat_tree, torus};

fn run_placed(
    fabric: &Fabric,
    rule: RoutingRule,
    settings: &Settings,
    program: &Program,
    placement: &Placement,
) -> Result<Outcome, EngineError> {
    let plan = RoutePlan::new(fabric, rule)?;
    let mut watch = |_| ControlFlow::Continue(());
    simulate(fabric, &plan, settings, program, placement, Parallelism::default(), &mut watch)
}

/// A row or a ring of switches with a node each.
fn line(size: u32, wrap: bool) -> Fabric {
    let dimension = torus::Dimension { size, wrap, cables: 1, gbps: vec![100.0], delay_ps: 10_000 };
    let shape = torus::Shape {
        dimensions: vec![dimension],
        nodes_per_switch: 1,
        node_gbps: 100.0,
        node_delay_ps: 10_000,
    };
    torus::build(&shape).unwrap()
}

/// From the first node of a line to the last.
fn end_to_end(size: u32, wrap: bool, detour: Detour) -> Result<Outcome, EngineError> {
    let fabric = line(size, wrap);
    let detours = detour != Detour::Never;
    let rule = DimensionOrder::new(&fabric, &[size], Tie::Parity, true, detours).unwrap();
    let settings = Settings { detour, ..settings() };
    let program = burst(size as usize, &[(0, size - 1, 5000)]);
    run_placed(
        &fabric,
        RoutingRule::DimensionOrder(rule),
        &settings,
        &program,
        &in_order(size as usize),
    )
}

#[test]
fn overlong_paths_are_refused() {
    assert_eq!(end_to_end(254, false, Detour::Never).unwrap().packet_hops, 2 * 254);
    for (size, wrap, detour, value) in
        [(255, false, Detour::Never, 255), (300, true, Detour::Valiant, 301)]
    {
        let refused = end_to_end(size, wrap, detour).unwrap_err();
        let limit = 254;
        assert_eq!(counts(refused), ("switches on a path", value, limit));
    }
}

fn counts(error: EngineError) -> (&'static str, u64, u64) {
    match error {
        EngineError::TooMany { what, value, limit, .. } => (what, value, limit),
        other => panic!("{other}"),
    }
}

#[test]
fn messages_of_too_many_packets_are_refused() {
    let settings = Settings { packet_bytes: 2, ..settings() };
    let value = 1 << 32;
    let refused =
        run_on(&fat_tree::build(&SMALL).unwrap(), &settings, &burst(2, &[(0, 1, 2 * value)]));
    let limit = u64::from(u32::MAX);
    assert_eq!(counts(refused.unwrap_err()), ("packets of a message", value, limit));
}

/// Two ranks on each of the first two hosts, one on each other host. Sends so many messages within
/// the first host, one after the other, and some between hosts.
fn beside(within: usize, bytes: u64, settings: &Settings) -> Outcome {
    let fabric = fat_tree::build(&SMALL).unwrap();
    let mut ops = vec![Vec::new(); 6];
    for _ in 0..within {
        ops[0].extend([Do::Send(1, bytes), Do::WaitAll]);
        ops[1].extend([Do::Receive(0, bytes), Do::WaitAll]);
    }
    for (src, dst) in [(2, 4), (3, 5), (4, 2)] {
        ops[src as usize].push(Do::Send(dst, 1 << 20));
        ops[dst as usize].push(Do::Receive(src, 1 << 20));
    }
    (2..6).for_each(|rank: usize| ops[rank].push(Do::WaitAll));
    let host = vec![0, 0, 1, 1, 2, 3];
    let placement = Placement { node: vec![0, 0, 4, 4, 8, 12], host, ..in_order(6) };
    let rule = RoutingRule::Table(Routes::up_down(&fabric).unwrap());
    run_placed(&fabric, rule, settings, &program(&ops), &placement).unwrap()
}

#[test]
fn traffic_within_hosts_keeps_the_window_count() {
    let settings = Settings { local_delay_ps: 1_000_000, ..settings() };
    // A thousand messages of a microsecond each, long after the network is quiet.
    let late = beside(1000, 8, &settings);
    let windows = late.end_ps / late.window_ps + 1;
    assert!((16..=32).contains(&windows), "{windows} windows");
    // A gigabyte at a rate that makes it free must not lengthen the expected run.
    let quick = Settings { local_gbps: 1e9, local_delay_ps: 0, ..settings };
    let large = beside(1, 1 << 30, &quick);
    let windows = large.end_ps / large.window_ps + 1;
    assert!((16..=32).contains(&windows), "{windows} windows");
}

#[test]
fn overlong_local_messages_name_their_setting() {
    let fabric = fat_tree::build(&SMALL).unwrap();
    let placement = Placement { host: vec![0, 0], node: vec![0, 0], ..in_order(2) };
    let refused = |changed: &Settings| {
        let rule = RoutingRule::Table(Routes::up_down(&fabric).unwrap());
        match run_placed(&fabric, rule, changed, &burst(2, &[(0, 1, 8192)]), &placement) {
            Err(EngineError::Setting { key, .. }) => key,
            other => panic!("{:?}", other.map(|outcome| outcome.end_ps)),
        }
    };
    // The last byte would arrive after 2^64 ps, which wrapped to 1.5 us; 8 KiB take two years.
    assert_eq!(refused(&Settings { local_gbps: 1e-13, ..settings() }), "local_rate");
    assert_eq!(refused(&Settings { local_gbps: 1e-12, ..settings() }), "local_rate");
    let long = u64::MAX;
    assert_eq!(refused(&Settings { local_delay_ps: long, ..settings() }), "local_delay");
    assert_eq!(refused(&Settings { send_delay_ps: long, ..settings() }), "send_delay");
    assert_eq!(refused(&Settings { switch_delay_ps: long, ..settings() }), "switch_delay");
    assert_eq!(refused(&Settings { overhead_ps: long, ..settings() }), "overhead");
    for copy_gbps in [1e-12, -1.0, f64::INFINITY] {
        assert_eq!(refused(&Settings { copy_gbps, ..settings() }), "copy_rate");
    }
}

#[test]
fn ranks_of_a_host_need_no_path_between_its_adapters() {
    // Two planes without a cable between them: nodes 0 and 2 of one, 1 and 3 of the other.
    let mut cables = CableList::new(6);
    for node in 0..4 {
        cables.add(node, 4 + node % 2, 100.0, 10_000);
    }
    let fabric = cables.finish(4, vec![0, 0], vec![0, 0]).unwrap();
    let placement = Placement { host: vec![0, 0, 1, 1], ..in_order(4) };
    let rule = || RoutingRule::Table(Routes::up_down(&fabric).unwrap());
    let within = burst(4, &[(0, 1, 8192), (0, 2, 8192), (1, 3, 8192)]);
    let outcome = run_placed(&fabric, rule(), &settings(), &within, &placement).unwrap();
    assert_eq!(outcome.packets, 6);
    let across = run_placed(&fabric, rule(), &settings(), &burst(4, &[(0, 3, 8)]), &placement);
    assert!(matches!(across, Err(EngineError::Fabric(_))));
}

#[test]
fn unrepresentable_times_are_refused() {
    const DAYS_40: u64 = 40 * 24 * 3600 * 1_000_000_000_000;
    let fabric = fat_tree::build(&SMALL).unwrap();
    let plan =
        RoutePlan::new(&fabric, RoutingRule::Table(Routes::up_down(&fabric).unwrap())).unwrap();
    let run = |first: u64, second: u64, threads: usize| {
        let ops = [
            vec![Do::Compute(first), Do::Send(1, 8), Do::WaitAll],
            vec![Do::Receive(0, 8), Do::WaitAll, Do::Compute(second), Do::Send(2, 8), Do::WaitAll],
            vec![Do::Receive(1, 8), Do::WaitAll],
        ];
        let work = Parallelism { threads, shards: None };
        let placement = Placement { node: vec![0, 5, 11], ..in_order(3) };
        let mut watch = |_| ControlFlow::Continue(());
        simulate(&fabric, &plan, &settings(), &program(&ops), &placement, work, &mut watch)
    };
    for threads in [1, 3] {
        assert!(
            (DAYS_40..DAYS_40 + 100_000_000).contains(&run(DAYS_40, 1, threads).unwrap().end_ps)
        );
        let refused = run(DAYS_40, DAYS_40, threads).unwrap_err();
        let EngineError::TooLong { time_ps, limit_ps } = refused else { panic!("{refused}") };
        assert_eq!(limit_ps, 1 << 62);
        assert!((DAYS_40..DAYS_40 + 100_000_000).contains(&time_ps), "{time_ps}");
        let value = u64::MAX - 5;
        let expected = EngineError::LongTime { what: "computes for", rank: 0, ps: value };
        assert_eq!(run(value, 1, threads).unwrap_err(), expected);
    }
}

#[test]
fn a_label_that_does_not_exist_is_refused() {
    let placement = Placement { label_observed: Vec::new(), ..in_order(2) };
    let fabric = fat_tree::build(&SMALL).unwrap();
    let rule = RoutingRule::Table(Routes::up_down(&fabric).unwrap());
    let program = burst(2, &[(0, 1, 8)]);
    let refused = run_placed(&fabric, rule, &settings(), &program, &placement).unwrap_err();
    assert!(refused.to_string().contains("label 0 does not exist"), "{refused}");
}

/// One packet across a leaf switch whose links have a rate.
fn across_a_leaf(gbps: f64) -> Result<Outcome, EngineError> {
    let fabric = fat_tree::build(&fat_tree::Shape { gbps: [gbps; 3], leaves: 1, ..SMALL }).unwrap();
    run_on(&fabric, &settings(), &burst(4, &[(0, 1, 4096)]))
}

#[test]
fn rates_below_a_megabit_are_refused() {
    for (gbps, wire_ps) in [(0.1, 327_680_000), (0.01, 3_276_800_000), (0.001, 32_768_000_000)] {
        let outcome = across_a_leaf(gbps).unwrap();
        assert_eq!(outcome.messages.arrival_ps[0], wire_ps + 2 * 10_000 + 60_000, "{gbps} Gb/s");
    }
    let refused = across_a_leaf(0.000_999).unwrap_err().to_string();
    assert!(
        refused.contains("0.000999 Gb/s") && refused.contains("at least 0.001 Gb/s"),
        "{refused}"
    );
}
