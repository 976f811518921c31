//! Simulation of flows with start times and sizes; an event is the start or end of a flow.

use crate::FluidError;
use crate::error::{check_time, require_positive};
use crate::paths::FlowPaths;
use crate::pool::{Policy, Pool, Work};

/// Flows in columns.
#[derive(Debug, Default, Clone)]
pub struct FlowSet {
    /// When each flow starts.
    pub start_ps: Vec<u64>,
    /// Bytes each flow carries.
    pub bytes: Vec<u64>,
    /// Weight of each flow under max-min; empty means 1.
    pub weight: Vec<f64>,
    /// Links of each flow.
    pub paths: FlowPaths,
}

impl FlowSet {
    fn check(&self, links: usize) -> Result<(), FluidError> {
        let flows = self.start_ps.len();
        if self.bytes.len() != flows {
            let (name, length) = ("bytes", self.bytes.len());
            return Err(FluidError::Length { name, length, expected: flows });
        }
        if !self.weight.is_empty() && self.weight.len() != flows {
            let (name, length) = ("weight", self.weight.len());
            return Err(FluidError::Length { name, length, expected: flows });
        }
        for (flow, &weight) in self.weight.iter().enumerate() {
            require_positive("weight", || format!("flow {flow}"), weight)?;
        }
        if let Some(flow) = self.bytes.iter().position(|&bytes| bytes == 0) {
            let (name, place) = ("bytes", format!("flow {flow}"));
            let (value, valid) = ("0".to_owned(), "at least 1");
            return Err(FluidError::Value { name, place, value, valid });
        }
        self.paths.check(links, flows)
    }
}

/// When flows end.
#[derive(Debug, Default, Clone)]
pub struct FlowTimes {
    /// When the last bit of each flow has left.
    pub end_ps: Vec<u64>,
    /// Computational effort.
    pub work: Work,
}

/// Simulates flows to the end of the last.
///
/// # Errors
/// As [`FlowPaths::check`], a size, weight or capacity out of range, or an end beyond 53 days.
pub fn simulate_flows(
    capacity: Vec<f64>,
    flows: &FlowSet,
    policy: Policy,
) -> Result<FlowTimes, FluidError> {
    flows.check(capacity.len())?;
    let mut pool = Pool::new(capacity, policy, 0)?;
    let n = flows.start_ps.len();
    let mut order: Vec<u32> = (0..n as u32).collect();
    order.sort_by_key(|&flow| flows.start_ps[flow as usize]);
    let mut out = FlowTimes { end_ps: vec![0; n], work: Work::default() };
    let (mut next, mut last) = (0, 0);
    // Flow that currently has each number of the pool.
    let mut flow_of: Vec<u32> = Vec::new();
    let mut path = Vec::new();
    loop {
        let start = order.get(next).map(|&flow| flows.start_ps[flow as usize]);
        let Some(now) = [start, pool.next_event()].into_iter().flatten().min() else { break };
        check_time(last, now)?;
        last = now;
        while let Some(number) = pool.pop_end(now) {
            out.end_ps[flow_of[number as usize] as usize] = now;
        }
        while let Some(&flow) = order.get(next) {
            let f = flow as usize;
            if flows.start_ps[f] != now {
                break;
            }
            let weight = flows.weight.get(f).copied().unwrap_or(1.0);
            path.clear();
            path.extend(flows.paths.of(f));
            let number = pool.start(now, &path, flows.bytes[f] as f64, weight) as usize;
            flow_of.resize(flow_of.len().max(number + 1), flow);
            flow_of[number] = flow;
            next += 1;
        }
        pool.settle(now);
    }
    out.work = pool.work();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(rows: &[(u64, u64, &[u32])]) -> FlowSet {
        let paths: Vec<&[u32]> = rows.iter().map(|row| row.2).collect();
        FlowSet {
            start_ps: rows.iter().map(|row| row.0).collect(),
            bytes: rows.iter().map(|row| row.1).collect(),
            weight: Vec::new(),
            paths: FlowPaths::single(&paths),
        }
    }

    #[test]
    fn a_late_flow_halves_an_early_one() {
        // 8 Gb/s is a byte per nanosecond. The first flow is alone for 1 us, then both share the
        // link.
        let set = flows(&[(0, 2000, &[0]), (1_000_000, 2000, &[0])]);
        let times = simulate_flows(vec![8.0], &set, Policy::MaxMin).unwrap();
        assert_eq!(times.end_ps, [3_000_000, 4_000_000]);
    }

    /// Each flow has its own link and the shared link. When the k-th smallest flow ends, all others
    /// have sent as much.
    #[test]
    fn flows_on_one_link_share_the_processor() {
        let n = 5000u64;
        let bytes: Vec<u64> = (0..n).map(|flow| 1000 + flow * 7919 % 100_003).collect();
        let paths: Vec<[u32; 2]> = (1..=n as u32).map(|link| [link, 0]).collect();
        let rows: Vec<_> = bytes.iter().zip(&paths).map(|(&b, path)| (0, b, &path[..])).collect();
        let times =
            simulate_flows(vec![100.0; n as usize + 1], &flows(&rows), Policy::MaxMin).unwrap();
        let mut order: Vec<usize> = (0..n as usize).collect();
        order.sort_by_key(|&flow| bytes[flow]);
        let (mut end_ps, mut sent) = (0.0, 0);
        for (ended, flow) in order.into_iter().enumerate() {
            // A byte takes 80 ps at 100 Gb/s.
            end_ps += ((bytes[flow] - sent) * (n - ended as u64) * 80) as f64;
            sent = bytes[flow];
            let late = times.end_ps[flow] as f64 - end_ps;
            assert!(late.abs() <= 1e-9 * end_ps + 20.0, "flow {flow}: {late} ps after {end_ps}");
        }
        assert!(times.work.rates_set < 20 * n, "{}", times.work.rates_set);
    }

    #[test]
    fn unrepresentable_ends_are_errors() {
        let set = flows(&[(5, 2000, &[0])]);
        let error = simulate_flows(vec![1e-300], &set, Policy::MaxMin).unwrap_err();
        assert!(
            error.to_string().starts_with("the run lasts longer than the fluid model's limit"),
            "{error}"
        );
    }

    #[test]
    fn assignment_ends_all_flows_of_a_link_together() {
        let set = flows(&[(0, 1000, &[0]), (0, 3000, &[0]), (0, 500, &[1])]);
        let times = simulate_flows(vec![8.0; 2], &set, Policy::Assignment).unwrap();
        assert_eq!(times.end_ps, [4_000_000, 4_000_000, 500_000]);
    }
}
