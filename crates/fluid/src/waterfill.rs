//! Progressive filling: all rates rise together, in proportion to their weights, until a link is
//! full; its flows stop there and the others go on (Bertsekas and Gallager, *Data Networks*, §6.5).
//!
//! Rather than raise rates step by step, the links wait in a heap by the level at which they would
//! be full. Levels only rise as flows stop elsewhere, so a link whose level turns out higher when it
//! comes up is put back. A solve costs O(P log P) for P uses of links.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::FluidError;
use crate::links::Links;
use crate::paths::Paths;

const NONE: u32 = u32::MAX;

/// A weight that has fallen below this part of its sum is summed up again: what is left of a large
/// sum has its rounding errors, and where heavy flows stop before a light one they would be its rate.
const REMAINDER: f64 = 1.0 / 1024.0;

/// A non-negative level that sorts: such numbers order as their bits do.
fn key(level: f64) -> u64 {
    level.to_bits()
}

/// What one link has left for the flows that are being filled.
#[derive(Debug, Clone, Copy, Default)]
struct Filling {
    link: u32,
    /// Capacity the stopped flows leave.
    left: f64,
    /// Weight times share of the flows that still rise.
    weight: f64,
    /// What it was when it was last summed up.
    summed: f64,
    /// How many still rise.
    rising: u32,
}

/// Working memory of a solve, kept between solves.
#[derive(Debug, Default)]
pub(crate) struct Filler {
    filling: Vec<Filling>,
    /// Place of each link in `filling`.
    slot: Vec<u32>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    rising: Vec<bool>,
}

impl Filler {
    /// Makes room for all links and flows.
    pub fn reserve(&mut self, links: &Links) {
        self.slot.resize(links.capacity.len(), NONE);
        self.rising.resize(links.weight.len(), false);
    }

    /// Fills the rates of `chosen`, all other active flows as they are.
    pub fn solve(&mut self, links: &mut Links, chosen: &[u32]) {
        self.prepare(links, chosen);
        while let Some(Reverse((bits, slot))) = self.heap.pop() {
            let Filling { link, left, mut weight, summed, rising } = self.filling[slot as usize];
            if rising == 0 {
                continue;
            }
            if weight < summed * REMAINDER {
                weight = self.sum_up(links, slot);
            }
            let level = (left / weight).max(0.0);
            if key(level) > bits {
                self.heap.push(Reverse((key(level), slot)));
                continue;
            }
            for at in 0..links.users[link as usize].len() {
                let flow = links.users[link as usize][at].flow;
                if std::mem::take(&mut self.rising[flow as usize]) {
                    self.stop(links, flow, level);
                }
            }
        }
        for filling in self.filling.drain(..) {
            self.slot[filling.link as usize] = NONE;
        }
    }

    fn prepare(&mut self, links: &Links, chosen: &[u32]) {
        for &flow in chosen {
            self.rising[flow as usize] = true;
        }
        for &flow in chosen {
            for used in links.path(flow) {
                let slot = &mut self.slot[used.link as usize];
                if *slot == NONE {
                    *slot = self.filling.len() as u32;
                    let left = links.capacity[used.link as usize];
                    self.filling.push(Filling { link: used.link, left, ..Filling::default() });
                }
            }
        }
        self.heap.clear();
        for (slot, filling) in self.filling.iter_mut().enumerate() {
            for user in &links.users[filling.link as usize] {
                if self.rising[user.flow as usize] {
                    filling.weight += links.weight[user.flow as usize] * user.share;
                    filling.rising += 1;
                } else {
                    filling.left -= links.rate[user.flow as usize] * user.share;
                }
            }
            filling.summed = filling.weight;
            let level = (filling.left / filling.weight).max(0.0);
            self.heap.push(Reverse((key(level), slot as u32)));
        }
    }

    /// Sums up the weight that still rises on a link, without what its subtractions have lost.
    fn sum_up(&mut self, links: &Links, slot: u32) -> f64 {
        let filling = &mut self.filling[slot as usize];
        let users = links.users[filling.link as usize].iter();
        let rising = users.filter(|user| self.rising[user.flow as usize]);
        let weights = rising.map(|user| links.weight[user.flow as usize] * user.share);
        filling.weight = weights.sum();
        filling.summed = filling.weight;
        filling.weight
    }

    fn stop(&mut self, links: &mut Links, flow: u32, level: f64) {
        let f = flow as usize;
        links.rate[f] = level * links.weight[f];
        for used in links.path(flow) {
            let filling = &mut self.filling[self.slot[used.link as usize] as usize];
            filling.left -= links.rate[f] * used.share;
            filling.weight -= links.weight[f] * used.share;
            filling.rising -= 1;
        }
    }
}

/// Weighted max-min fair rates of flows that are all active, in Gb/s.
///
/// # Errors
/// A capacity or weight that is not positive, or a path that names no link or one that does not
/// exist.
pub fn max_min(capacity: &[f64], paths: &Paths, weight: &[f64]) -> Result<Vec<f64>, FluidError> {
    let mut links = Links::of_active(capacity, paths, weight)?;
    let mut filler = Filler::default();
    filler.reserve(&links);
    let all: Vec<u32> = (0..weight.len() as u32).collect();
    filler.solve(&mut links, &all);
    Ok(links.rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(capacity: &[f64], flows: &[&[u32]], weight: &[f64]) -> Vec<f64> {
        max_min(capacity, &Paths::single(flows), weight).unwrap()
    }

    #[test]
    fn the_textbook_example() {
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
    fn a_light_flow_gets_what_many_heavy_ones_leave() {
        // The heavy ones stop at links of their own; the light one fills the link they share.
        let n = 20_000u32;
        let part = |flow: u32| 1.0 + f64::from(flow * 7919 % 10_007) / 10_007.0;
        let mut paths: Vec<Vec<u32>> = (1..=n).map(|link| vec![0, link]).collect();
        paths.push(vec![0]);
        let paths: Vec<&[u32]> = paths.iter().map(Vec::as_slice).collect();
        let own = (0..n).map(|flow| 20.0 / f64::from(n) * part(flow));
        let capacity: Vec<f64> = std::iter::once(100.0).chain(own).collect();
        let heavy = (0..n).map(|flow| 1e6 / std::f64::consts::PI * part(flow + 5));
        let weight: Vec<f64> = heavy.chain([1.0]).collect();
        let rate = solve(&capacity, &paths, &weight);
        let load: f64 = rate.iter().sum();
        assert!((load / 100.0 - 1.0).abs() < 1e-9, "{load}");
    }

    #[test]
    fn a_path_without_links_is_refused() {
        let error = max_min(&[1.0], &Paths::single(&[&[]]), &[1.0]).unwrap_err();
        assert_eq!(error.to_string(), "path of flow 0 is empty; valid: at least one link");
    }
}
