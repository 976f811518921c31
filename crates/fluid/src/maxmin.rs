//! Max-min fair rates kept as flows come and go, by filling again only what a change reaches.
//!
//! In progressive filling every link has a *level* (rate by weight) at which it is full and stops
//! the flows that no earlier link has stopped; a flow's rate depends on the level of its
//! *bottleneck*, the link that stopped it. So a link's level depends on lower levels alone, and a
//! change spreads from low levels to higher ones (Ros-Giralt et al., *A Quantitative Theory of
//! Bottleneck Structures for Data Networks*, 2022). After flows have come or gone, the links they
//! touch wait in a heap by the level at which something may happen there, and are served in
//! ascending order:
//!
//! - A link that would now be full later than before *opens* at its old level: the flows it had
//!   stopped rise on.
//! - A link that is full sooner than before, or that a rising flow fills, *closes*: it stops every
//!   flow that has a higher level.
//!
//! Whatever changes the level of a flow touches the other links of that flow. Until a flow stops, it
//! counts with an unlimited level; one that is stopped elsewhere counts with the level it has. So the
//! level computed for a link is a lower bound that is exact once the links below it have been served,
//! and every link is served at its final level. The cost is in proportion to the flows whose rate
//! changes and the links they use, not to the flows there are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::links::{Links, User};

/// Relative difference below which two levels are one.
const SAME: f64 = 1e-12;

/// A sum of weights that has fallen below this part of what it was is summed up again: what is left
/// of a large sum has its rounding errors.
const REMAINDER: f64 = 1.0 / 1024.0;

/// Changes of a link's sums, beyond one for each of its flows, before they are summed up again.
const CHANGES: u32 = 64;

const NONE: u32 = u32::MAX;

/// What a link carries.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Filling {
    capacity: f64,
    /// Rate of the flows that are stopped elsewhere.
    fixed: f64,
    /// Weight of the others: those stopped here and those that rise.
    free: f64,
    /// The most `free` has been since it was last summed up, roughly.
    summed: f32,
    /// How many others there are, and how many of them are stopped here.
    n_free: u32,
    n_own: u32,
    /// Level of the flows stopped here.
    level: f64,
    /// Place in the heap; infinite when it is not there.
    due: f64,
    /// The level found by looking at every flow, while nothing has changed since; otherwise NaN.
    exact: f64,
    /// Changes since the last sum.
    changes: u32,
}

impl Filling {
    fn empty(capacity: f64) -> Self {
        Self {
            capacity,
            fixed: 0.0,
            free: 0.0,
            summed: 0.0,
            n_free: 0,
            n_own: 0,
            level: f64::INFINITY,
            due: f64::INFINITY,
            exact: f64::NAN,
            changes: 0,
        }
    }

    /// A flow of `weight` is no longer free.
    fn bind(&mut self, weight: f64) {
        self.n_free -= 1;
        self.free -= weight;
        if self.n_free == 0 {
            (self.free, self.summed) = (0.0, 0.0);
        }
    }

    fn release(&mut self, weight: f64) {
        self.n_free += 1;
        self.free += weight;
        self.summed = self.summed.max(self.free as f32);
    }

    /// What is to happen next, and at which level, once levels have been served up to `risen`.
    fn next(&self, risen: f64) -> Option<(f64, Turn)> {
        if self.n_free == 0 && self.fixed <= self.capacity * (1.0 + SAME) {
            return None;
        }
        let level = match self.n_free {
            _ if !self.exact.is_nan() => self.exact,
            // Too much comes from elsewhere: a flow has stopped that was not counted on.
            0 => 0.0,
            _ => (self.capacity - self.fixed) / self.free,
        };
        if self.n_own > 0 {
            let rising = self.n_free > self.n_own;
            if !rising && (level - self.level).abs() <= SAME * self.level {
                return None;
            }
            if level > self.level {
                return Some((self.level.max(risen), Turn::Opens));
            }
        }
        Some((level.max(risen), Turn::Closes))
    }
}

/// What is known of a flow.
#[derive(Debug, Clone, Copy)]
struct Flow {
    weight: f64,
    /// Rate by weight; infinite while it rises.
    level: f64,
    /// The link that stopped it.
    stopped_at: u32,
    /// The last settlement that changed its rate.
    changed_in: u32,
}

/// What is to happen at a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Opens,
    Closes,
}

/// A flow that another link stops at `level`.
#[derive(Debug, Clone, Copy)]
struct Above {
    level: f64,
    flow: u32,
    weight: f64,
}

/// The state between settlements.
#[derive(Debug, Default)]
pub(crate) struct MaxMin {
    filling: Vec<Filling>,
    flow: Vec<Flow>,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Level up to which this settlement has been served.
    risen: f64,
    round: u32,
    stopped: Vec<u32>,
    above: Vec<Above>,
}

impl MaxMin {
    /// Sets the rates after `ended` have left and `started` have entered; reports whose rate was set.
    pub fn settle(
        &mut self,
        links: &mut Links,
        started: &[u32],
        ended: &[u32],
        changed: &mut Vec<u32>,
    ) {
        self.begin(links);
        let first = changed.len();
        for &flow in ended {
            self.take_off(links, flow);
        }
        for &flow in started {
            self.put_on(links, flow, changed);
        }
        for flow in ended.iter().chain(started) {
            for used in links.path(*flow) {
                self.touch(links, used.link);
            }
        }
        while let Some(Reverse((bits, link))) = self.heap.pop() {
            let filling = &mut self.filling[link as usize];
            if filling.due.to_bits() != bits {
                continue;
            }
            filling.due = f64::INFINITY;
            match filling.next(self.risen) {
                Some((due, _)) if due.to_bits() > bits => self.wait(link, due),
                Some((_, Turn::Opens)) => self.open(links, link, changed),
                Some((due, Turn::Closes)) => self.close(links, link, due, changed),
                None => {}
            }
        }
        for &flow in &changed[first..] {
            let Flow { weight, level, .. } = self.flow[flow as usize];
            links.rate[flow as usize] = level * weight;
        }
    }

    fn begin(&mut self, links: &Links) {
        if self.filling.is_empty() {
            self.filling = links.capacity.iter().map(|&gbps| Filling::empty(gbps)).collect();
        }
        let new = links.weight[self.flow.len()..].iter();
        self.flow.extend(new.map(|&weight| Flow {
            weight,
            level: f64::INFINITY,
            stopped_at: NONE,
            changed_in: 0,
        }));
        self.round += 1;
        self.risen = 0.0;
    }

    fn take_off(&mut self, links: &Links, flow: u32) {
        let Flow { weight, level, stopped_at, .. } = self.flow[flow as usize];
        for used in links.path(flow) {
            let filling = &mut self.filling[used.link as usize];
            if stopped_at == used.link {
                filling.bind(used.share * weight);
                filling.n_own -= 1;
            } else {
                filling.fixed -= used.share * weight * level;
            }
        }
    }

    fn put_on(&mut self, links: &Links, flow: u32, changed: &mut Vec<u32>) {
        let Flow { weight, ref mut changed_in, .. } = self.flow[flow as usize];
        *changed_in = self.round;
        changed.push(flow);
        for used in links.path(flow) {
            self.filling[used.link as usize].release(used.share * weight);
        }
    }

    /// The sums of `link` have changed.
    fn touch(&mut self, links: &Links, link: u32) {
        let filling = &mut self.filling[link as usize];
        filling.exact = f64::NAN;
        filling.changes += 1;
        if filling.free < f64::from(filling.summed) * REMAINDER
            || (filling.changes > CHANGES
                && filling.changes as usize > links.users[link as usize].len())
        {
            self.sum_up(links, link);
        }
        let filling = &self.filling[link as usize];
        if let Some((due, _)) = filling.next(self.risen)
            && due < filling.due
        {
            self.wait(link, due);
        }
    }

    fn wait(&mut self, link: u32, due: f64) {
        self.filling[link as usize].due = due;
        // Levels are not negative, and such numbers order as their bits do.
        self.heap.push(Reverse((due.to_bits(), link)));
    }

    /// Sums up what `link` carries, without what additions and subtractions have lost.
    fn sum_up(&mut self, links: &Links, link: u32) {
        let (mut fixed, mut free) = (0.0, 0.0);
        for user in &links.users[link as usize] {
            let Flow { weight, level, stopped_at, .. } = self.flow[user.flow as usize];
            if stopped_at == link || level == f64::INFINITY {
                free += weight * user.share;
            } else {
                fixed += weight * user.share * level;
            }
        }
        let filling = &mut self.filling[link as usize];
        (filling.fixed, filling.free, filling.summed, filling.changes) =
            (fixed, free, free as f32, 0);
    }

    /// The flows that `link` had stopped rise on.
    fn open(&mut self, links: &Links, link: u32, changed: &mut Vec<u32>) {
        let filling = &mut self.filling[link as usize];
        self.risen = self.risen.max(filling.level);
        (filling.n_own, filling.level) = (0, f64::INFINITY);
        for user in &links.users[link as usize] {
            let flow = &mut self.flow[user.flow as usize];
            if flow.stopped_at != link {
                continue;
            }
            if std::mem::replace(&mut flow.changed_in, self.round) != self.round {
                changed.push(user.flow);
            }
            let Flow { weight, level, .. } = *flow;
            (flow.level, flow.stopped_at) = (f64::INFINITY, NONE);
            for used in links.path(user.flow) {
                if used.link == link {
                    continue;
                }
                let other = &mut self.filling[used.link as usize];
                other.fixed -= weight * used.share * level;
                other.release(weight * used.share);
                self.touch(links, used.link);
            }
        }
        self.touch(links, link);
    }

    /// `link` stops all flows with a higher level, unless it turns out that it has to wait.
    fn close(&mut self, links: &Links, link: u32, level: f64, changed: &mut Vec<u32>) {
        self.filling[link as usize].exact = self.look(links, link);
        match self.filling[link as usize].next(self.risen) {
            None => return,
            Some((due, Turn::Closes)) if due <= level => {}
            Some((later, _)) => return self.wait(link, later),
        }
        self.risen = level;
        let mut stopped = std::mem::take(&mut self.stopped);
        for &flow in &stopped {
            self.stop(links, link, level, flow, changed);
        }
        stopped.clear();
        self.stopped = stopped;
        let filling = &mut self.filling[link as usize];
        (filling.n_own, filling.level) = (filling.n_free, level);
    }

    /// The level at which `link` is full if nothing else changes, from all its flows; whom it stops
    /// there goes to `stopped`.
    fn look(&mut self, links: &Links, link: u32) -> f64 {
        self.sum_up(links, link);
        let filling = &self.filling[link as usize];
        let (mut left, mut weight) = (filling.capacity - filling.fixed, filling.free);
        self.stopped.clear();
        self.above.clear();
        let full = |left: f64, weight: f64| if weight > 0.0 { left / weight } else { 0.0 };
        let least = full(left, weight) * (1.0 + SAME);
        for &User { flow, share, .. } in &links.users[link as usize] {
            let Flow { weight, level, stopped_at, .. } = self.flow[flow as usize];
            if stopped_at == link || level == f64::INFINITY {
                self.stopped.push(flow);
            } else if level > least {
                self.above.push(Above { level, flow, weight: weight * share });
            }
        }
        self.above.sort_unstable_by(|a, b| b.level.total_cmp(&a.level).then(a.flow.cmp(&b.flow)));
        for user in &self.above {
            if user.level <= full(left, weight) * (1.0 + SAME) {
                break;
            }
            left += user.weight * user.level;
            weight += user.weight;
            self.stopped.push(user.flow);
        }
        full(left, weight)
    }

    /// `link` stops `flow` at `level`.
    fn stop(&mut self, links: &Links, link: u32, level: f64, flow: u32, changed: &mut Vec<u32>) {
        let state = &mut self.flow[flow as usize];
        let Flow { weight, level: before, stopped_at: from, .. } = *state;
        if from == link && before == level {
            return;
        }
        (state.level, state.stopped_at) = (level, link);
        if std::mem::replace(&mut state.changed_in, self.round) != self.round {
            changed.push(flow);
        }
        let rose = before == f64::INFINITY;
        for used in links.path(flow) {
            let filling = &mut self.filling[used.link as usize];
            let weight = weight * used.share;
            if used.link == link {
                if !rose && from != link {
                    filling.fixed -= weight * before;
                    filling.release(weight);
                }
                continue;
            }
            if rose || used.link == from {
                filling.bind(weight);
                filling.n_own -= u32::from(!rose);
                filling.fixed += weight * level;
            } else {
                filling.fixed += weight * (level - before);
            }
            self.touch(links, used.link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{below, random};
    use crate::waterfill::Filler;

    /// Flows come and go at random; after every step the rates are those of a solve from nothing.
    fn churn(seed: u64, n_links: u32, steps: u64, spread: bool) {
        let capacity: Vec<f64> =
            (0..n_links).map(|l| 1.0 + below(random(seed, 9, l.into()), 4) as f64).collect();
        let mut links = Links::new(capacity).unwrap();
        let mut kept = MaxMin::default();
        let mut active: Vec<u32> = Vec::new();
        for step in 0..steps {
            let draw = |stream, n| below(random(seed, stream, step), n);
            let (mut started, mut ended) = (Vec::new(), Vec::new());
            if active.len() > 3 && draw(1, 5) < 2 {
                for _ in 0..=draw(2, 2) {
                    let flow = active.swap_remove(draw(3, active.len() as u32) as usize);
                    links.leave(flow);
                    ended.push(flow);
                }
            } else {
                let hops = 1 + draw(4, 4.min(n_links));
                let path: Vec<(u32, f64)> = (0..n_links)
                    .filter(|&l| below(random(seed, 5 + step, l.into()), n_links) < hops)
                    .map(|l| (l, if spread { 0.5 } else { 1.0 }))
                    .collect();
                if path.is_empty() {
                    continue;
                }
                let flow = links.add(path.into_iter(), 1.0 + f64::from(draw(6, 5)));
                links.enter(flow);
                active.push(flow);
                started.push(flow);
            }
            kept.settle(&mut links, &started, &ended, &mut Vec::new());
            let incremental = links.rate.clone();
            let mut filler = Filler::default();
            filler.reserve(&links);
            filler.solve(&mut links, &active);
            for &flow in &active {
                let (a, b) = (incremental[flow as usize], links.rate[flow as usize]);
                assert!(
                    (a - b).abs() <= 1e-9 * b,
                    "seed {seed}, step {step}, flow {flow}: {a} {b}"
                );
            }
            links.rate.clone_from(&incremental);
        }
    }

    #[test]
    fn incremental_equals_from_nothing() {
        for seed in 0..40 {
            churn(seed, 3 + (seed % 10) as u32, 120, seed % 3 == 0);
        }
        for seed in 0..6 {
            churn(seed, 60, 600, seed % 2 == 0);
        }
    }

    #[test]
    fn a_change_far_away_is_not_looked_at() {
        let mut links = Links::new(vec![1.0; 10]).unwrap();
        let flows: Vec<u32> = (0..10).map(|l| links.add([(l, 1.0)].into_iter(), 1.0)).collect();
        flows.iter().for_each(|&flow| links.enter(flow));
        let mut kept = MaxMin::default();
        kept.settle(&mut links, &flows, &[], &mut Vec::new());
        let another = links.add([(4, 1.0)].into_iter(), 1.0);
        links.enter(another);
        let mut changed = Vec::new();
        kept.settle(&mut links, &[another], &[], &mut changed);
        assert_eq!(changed, [another, 4]);
    }
}
