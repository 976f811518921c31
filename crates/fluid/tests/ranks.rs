//! Rank programs in the fluid view, by closed-form answers.

use tailback_fabric::fat_tree::{Shape, build};
use tailback_fabric::{Fabric, RoutePlan, Routes, RoutingRule};
use tailback_fluid::{
    Detour, FluidError, PathChoice, Placement, Policy, Program, RankSettings, RankTimes,
    simulate_program,
};

/// Leaves of two hosts under one switch, if there are several; cables of 8 Gb/s.
fn pairs(leaves: u32, delay_ps: u64) -> (Fabric, RoutePlan) {
    let shape = Shape {
        hosts_per_leaf: 2,
        leaves,
        aggregation: 1,
        pods: 0,
        cores: 0,
        leaf_cables: 1,
        aggregation_uplinks: 0,
        gbps: [8.0; 3],
        delay_ps: [delay_ps; 3],
    };
    let fabric = build(&shape).unwrap();
    let rule = RoutingRule::Table(Routes::up_down(&fabric).unwrap());
    let plan = RoutePlan::new(&fabric, rule).unwrap();
    (fabric, plan)
}

fn settings(eager_bytes: u64) -> RankSettings {
    RankSettings {
        seed: 1,
        policy: Policy::MaxMin,
        paths: PathChoice::Deterministic,
        detour: Detour::Never,
        fifo: true,
        packet_bytes: 1000,
        header_bytes: 0,
        switch_delay_ps: 5_000,
        store_and_forward: false,
        send_delay_ps: 100_000,
        eager_bytes,
        copies_eager: false,
        progress_in_calls: false,
        local_gbps: 8.0,
        memory_gbps: 32.0,
        local_ports: false,
        local_delay_ps: 0,
        quantum_ps: 0,
        buffer_bytes: 0,
        windows: 4,
    }
}

/// Rank 0 sends 1000 bytes to rank 1, which posts its receive after `late` picoseconds.
fn one_message(late: u64) -> Program {
    Program {
        rank_start: vec![0, 2, 5],
        kind: vec![1, 4, 0, 2, 4],
        peer: vec![1, -1, -1, 0, -1],
        amount: vec![1000, 0, late, 1000, 0],
        tag: vec![7; 5],
        request: vec![0, -1, -1, 0, -1],
        label: vec![0; 5],
        pace_mbps: Vec::new(),
    }
}

fn run(program: &Program, eager_bytes: u64) -> Result<RankTimes, FluidError> {
    let (fabric, plan) = pairs(1, 10_000);
    let placement = Placement {
        node: vec![0, 1],
        host: vec![0, 1],
        start_ps: vec![0, 0],
        ..Placement::default()
    };
    simulate_program(&fabric, &plan, &settings(eager_bytes), program, &placement)
}

#[test]
fn an_eager_message_takes_software_wire_and_path() {
    let times = run(&one_message(0), 4096).unwrap();
    // 100 ns software, 1000 ns wire; the path is two cables of 10 ns and a switch of 5 ns.
    assert_eq!(times.finish_ps, [1_100_000, 1_125_000]);
    assert_eq!(times.switches, [1]);
    // Both of its links carry every byte, in the windows of 100 to 1100 ns.
    for link in [0, 1] {
        let rows = times.link_use.iter().filter(|row| row.link == times.link_use[link].link);
        assert_eq!(rows.map(|row| row.bytes).sum::<u64>(), 1000);
    }
}

#[test]
fn a_large_message_waits_for_its_receive() {
    let times = run(&one_message(500_000), 100).unwrap();
    // Cleared 25 ns after the receive is posted at 500 ns.
    assert_eq!(times.begin_ps, [525_000]);
    assert_eq!(times.finish_ps, [1_525_000, 1_550_000]);
}

#[test]
fn blocked_ranks_are_named() {
    // Both ranks wait for a large send before they post the receive.
    let program = Program {
        rank_start: vec![0, 3, 6],
        kind: vec![1, 3, 2, 1, 3, 2],
        peer: vec![1, -1, 1, 0, -1, 0],
        amount: vec![1000, 0, 1000, 1000, 0, 1000],
        tag: vec![0; 6],
        request: vec![0, 0, 1, 0, 0, 1],
        label: vec![0; 6],
        pace_mbps: Vec::new(),
    };
    let error = run(&program, 100).unwrap_err().to_string();
    assert!(error.contains("rank 0 waits for its send of 1000 B to rank 1"), "{error}");
    assert!(run(&program, 4096).is_ok());
}

/// A synchronous send is complete when its receive is, however early its bytes have left.
#[test]
fn a_synchronous_send_is_complete_when_its_receive_is() {
    for (late, complete) in [(0, 1_125_000), (5_000_000, 5_000_000)] {
        let local = one_message(late);
        let mut synchronous = local.clone();
        synchronous.kind[0] = 5;
        assert_eq!(run(&local, 4096).unwrap().finish_ps, [1_100_000, complete]);
        assert_eq!(run(&synchronous, 4096).unwrap().finish_ps, [complete, complete]);
    }
}

/// Ranks 0 and 1 on one leaf send 2000 bytes each to ranks 2 and 3 on another, over one link.
fn two_over_one_link(paths: PathChoice, buffer_bytes: u64) -> RankTimes {
    let (fabric, plan) = pairs(2, 0);
    let program = Program {
        rank_start: vec![0, 2, 4, 6, 8],
        kind: vec![1, 4, 1, 4, 2, 4, 2, 4],
        peer: vec![2, -1, 3, -1, 0, -1, 1, -1],
        amount: vec![2000, 0, 2000, 0, 2000, 0, 2000, 0],
        tag: vec![0; 8],
        request: vec![0, -1, 0, -1, 0, -1, 0, -1],
        label: vec![0; 8],
        pace_mbps: Vec::new(),
    };
    let nodes = vec![0, 1, 2, 3];
    let placement = Placement {
        node: nodes.clone(),
        host: nodes,
        start_ps: vec![0; 4],
        ..Placement::default()
    };
    let settings = RankSettings { paths, buffer_bytes, switch_delay_ps: 0, ..settings(4096) };
    simulate_program(&fabric, &plan, &settings, &program, &placement).unwrap()
}

#[test]
fn the_first_buffer_frees_the_adapter_at_line_rate() {
    for paths in [PathChoice::Deterministic, PathChoice::Pooled, PathChoice::Spread] {
        // Half the link each: 4 us, for the sender as for the receiver.
        let bare = two_over_one_link(paths, 0);
        assert_eq!(bare.finish_ps, [4_100_000; 4], "{paths:?}");
        // Half of the message fits: the adapter sends at line rate, the receiver gains nothing.
        let ahead = two_over_one_link(paths, 1000);
        assert_eq!(ahead.finish_ps, [2_100_000, 2_100_000, 4_100_000, 4_100_000], "{paths:?}");
        // A quarter fits: the last byte leaves the adapter when a quarter is left to deliver, at 3
        // us.
        let some = two_over_one_link(paths, 500);
        assert_eq!(some.finish_ps, [3_100_000, 3_100_000, 4_100_000, 4_100_000], "{paths:?}");
        for times in [bare, ahead, some] {
            let busiest = times.link_bytes.iter().copied().fold(0.0, f64::max);
            assert_eq!(busiest, 4000.0, "the link both use carries both");
            let accounted: u64 = times.link_use.iter().map(|row| row.bytes).sum();
            assert_eq!(accounted, 4 * 4000, "four links of each message, every byte");
        }
    }
}

#[test]
fn unrepresentable_times_are_errors() {
    let error = run(&one_message(1 << 63), u64::MAX).unwrap_err().to_string();
    assert!(error.contains("limit of 53 days"), "{error}");
}

#[test]
fn rates_that_never_end_are_errors() {
    let (mut fabric, plan) = pairs(1, 10_000);
    fabric.link_gbps.fill(1e-300);
    let placement = Placement {
        node: vec![0, 1],
        host: vec![0, 1],
        start_ps: vec![0, 0],
        ..Placement::default()
    };
    for (buffer_bytes, quantum_ps) in [(0, 100_000), (1 << 16, 100_000), (500, 0)] {
        let settings = RankSettings { buffer_bytes, quantum_ps, ..settings(u64::MAX) };
        let error = simulate_program(&fabric, &plan, &settings, &one_message(0), &placement);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("check the unit of compute times, sizes and link rates"), "{error}");
    }
}
