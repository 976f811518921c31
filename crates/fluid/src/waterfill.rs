//! Progressive filling: all rates rise together, in proportion to their weights, until a link is
//! full; its flows keep that rate and the others rise further (Bertsekas and Gallager, *Data Networks*, §6.5).
//!
//! Instead of raising rates step by step, a heap orders the links by the level at which they would be
//! full. Levels only rise as flows stop elsewhere, so a link whose level has risen since it was queued is
//! put back. A solve costs O(P log P) for P uses of links.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::FluidError;
use crate::links::ActiveFlows;
use crate::paths::FlowPaths;

/// A weight that has fallen below this fraction of its last sum is recomputed: subtraction leaves the
/// rounding errors of the large sum, which would dominate the rate of a light flow among heavy ones.
const REMAINDER: f64 = 1.0 / 1024.0;

/// A sort key of a non-negative level: such floating-point numbers order as their bits do.
fn key(level: f64) -> u64 {
    level.to_bits()
}

/// What remains of a link for the flows that still rise.
#[derive(Debug, Clone, Copy, Default)]
struct Residual {
    /// Capacity that the stopped flows leave.
    left: f64,
    /// Weight times share of the flows that still rise.
    weight: f64,
    /// `weight` when it was last recomputed.
    summed: f64,
    /// Number of flows that still rise.
    rising: u32,
}

/// Computes all rates from scratch.
#[derive(Debug)]
pub(crate) struct ProgressiveFilling<'a> {
    links: &'a ActiveFlows,
    filling: Vec<Residual>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    rising: Vec<bool>,
    rate: Vec<f64>,
}

impl<'a> ProgressiveFilling<'a> {
    /// The rates of all active flows, Gb/s; 0 of a flow that is not active.
    pub fn solve(links: &'a ActiveFlows) -> Vec<f64> {
        let flows = links.weight.len();
        let (filling, heap) = (Vec::new(), BinaryHeap::new());
        let (rising, rate) = (vec![true; flows], vec![0.0; flows]);
        let mut solver = Self { links, filling, heap, rising, rate };
        solver.prepare();
        while let Some(Reverse((bits, link))) = solver.heap.pop() {
            let Residual { left, mut weight, summed, rising } = solver.filling[link as usize];
            if rising == 0 {
                continue;
            }
            if weight < summed * REMAINDER {
                weight = solver.recompute_weight(link);
            }
            let level = (left / weight).max(0.0);
            if key(level) > bits {
                solver.heap.push(Reverse((key(level), link)));
                continue;
            }
            for user in &links.users[link as usize] {
                if std::mem::take(&mut solver.rising[user.flow as usize]) {
                    solver.stop(user.flow, level);
                }
            }
        }
        solver.rate
    }

    fn prepare(&mut self) {
        for (link, users) in self.links.users.iter().enumerate() {
            let left = self.links.capacity[link];
            self.filling.push(Residual { left, rising: users.len() as u32, ..Residual::default() });
            if !users.is_empty() {
                let level = left / self.recompute_weight(link as u32);
                self.heap.push(Reverse((key(level), link as u32)));
            }
        }
    }

    /// Recomputes the weight that still rises on a link, which removes rounding errors of subtractions.
    fn recompute_weight(&mut self, link: u32) -> f64 {
        let users = self.links.users[link as usize].iter();
        let rising = users.filter(|user| self.rising[user.flow as usize]);
        let weights =
            rising.map(|user| self.links.weight[user.flow as usize] * self.links.share(user.entry));
        let filling = &mut self.filling[link as usize];
        filling.weight = weights.sum();
        filling.summed = filling.weight;
        filling.weight
    }

    fn stop(&mut self, flow: u32, level: f64) {
        let weight = self.links.weight[flow as usize];
        let rate = level * weight;
        self.rate[flow as usize] = rate;
        for (link, share) in self.links.path(flow) {
            let filling = &mut self.filling[link as usize];
            filling.left -= rate * share;
            filling.weight -= weight * share;
            filling.rising -= 1;
        }
    }
}

/// Weighted max-min fair rates of flows that are all active, in Gb/s.
///
/// # Errors
/// A capacity or weight that is not positive, or a path that names no link or one that does not
/// exist.
pub fn max_min(
    capacity: &[f64],
    paths: &FlowPaths,
    weight: &[f64],
) -> Result<Vec<f64>, FluidError> {
    Ok(ProgressiveFilling::solve(&ActiveFlows::of_active(capacity, paths, weight)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(capacity: &[f64], flows: &[&[u32]], weight: &[f64]) -> Vec<f64> {
        max_min(capacity, &FlowPaths::single(flows), weight).unwrap()
    }

    #[test]
    fn rates_match_the_textbook() {
        // Bertsekas and Gallager, figure 6.17: five sessions over links of capacity 1, three of
        // them through one link; the long one and its two companions get 1/3, the rest 2/3 and 1.
        let rate = solve(&[1.0; 4], &[&[0, 1], &[1], &[1], &[0, 2], &[3]], &[1.0; 5]);
        let third = 1.0 / 3.0;
        for (got, want) in rate.iter().zip([third, third, third, 2.0 * third, 1.0]) {
            assert!((got - want).abs() < 1e-12, "{rate:?}");
        }
    }

    #[test]
    fn weights_divide_a_link() {
        assert_eq!(solve(&[12.0], &[&[0], &[0], &[0]], &[1.0, 2.0, 3.0]), [2.0, 4.0, 6.0]);
    }

    #[test]
    fn the_fuller_link_limits_a_split_flow() {
        // The split flow is the first there is: half of it and the other flow fill link 1.
        let paths =
            FlowPaths { start: vec![0, 2, 3], link: vec![0, 1, 1], share: vec![0.5, 0.5, 1.0] };
        let rate = max_min(&[4.0, 4.0], &paths, &[1.0, 1.0]).unwrap();
        assert!(rate.iter().all(|gbps| (gbps - 8.0 / 3.0).abs() < 1e-12), "{rate:?}");
    }

    #[test]
    fn a_light_flow_gets_the_remaining_rate() {
        // The heavy ones stop at links of their own; the light one fills the link they share.
        let n = 20_000u32;
        let part = |flow: u32| 1.0 + f64::from(flow * 7919 % 10_007) / 10_007.0;
        let mut paths: Vec<Vec<u32>> = (1..=n).map(|link| vec![0, link]).collect();
        paths.push(vec![0]);
        let paths: Vec<&[u32]> = paths.iter().map(Vec::as_slice).collect();
        let private_links = (0..n).map(|flow| 20.0 / f64::from(n) * part(flow));
        let capacity: Vec<f64> = std::iter::once(100.0).chain(private_links).collect();
        let heavy = (0..n).map(|flow| 1e6 / std::f64::consts::PI * part(flow + 5));
        let weight: Vec<f64> = heavy.chain([1.0]).collect();
        let rate = solve(&capacity, &paths, &weight);
        let load: f64 = rate.iter().sum();
        assert!((load / 100.0 - 1.0).abs() < 1e-9, "{load}");
    }

    #[test]
    fn a_path_without_links_is_refused() {
        let error = max_min(&[1.0], &FlowPaths::single(&[&[]]), &[1.0]).unwrap_err();
        assert_eq!(error.to_string(), "path of flow 0 is empty; valid: at least one link");
    }
}
