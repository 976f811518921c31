//! Max-min fair rates kept as flows come and go, by solving again only where something changes.
//!
//! Rates are weighted max-min fair exactly when every flow has a *bottleneck*: a full link on which
//! no flow has a higher level (rate by weight). After flows have come or gone, a set of flows is
//! solved with all others held; then every flow that shares a link with the set is asked for its
//! bottleneck. Who has none joins the set, and so do held flows with a higher level than a flow they
//! hold down. When nobody joins, every flow has a bottleneck and the rates are *the* max-min fair
//! rates. The set only grows, so the worst case is one solve of everything; where the last change
//! changed half of all rates, the next is solved so from the start.

use crate::links::Links;
use crate::waterfill::Filler;

/// Relative error within which a link counts as full and two levels as equal. Rates agree with a
/// solve from nothing to about this, for weights within a factor of a million.
pub const TOLERANCE: f64 = 1e-9;

/// Solves that grow by who lost its bottleneck, before whole neighbourhoods join.
const PATIENCE: u32 = 6;

/// The state between settlements.
#[derive(Debug, Default)]
pub(crate) struct MaxMin {
    filler: Filler,
    /// Sum of rates on each link.
    load: Vec<f64>,
    /// Highest level on each link.
    top: Vec<f64>,
    set: Vec<u32>,
    in_set: Vec<u32>,
    dirty: Vec<u32>,
    is_dirty: Vec<u32>,
    is_asked: Vec<u32>,
    round: u32,
    step: u32,
    joining: Vec<u32>,
    /// All active flows, and the place of each among them.
    active: Vec<u32>,
    place: Vec<u32>,
    /// How many rates of flows under way the last settlement changed.
    reach: usize,
    /// Solves so far, and flows solved in all of them.
    pub solves: u64,
    pub solved_flows: u64,
}

impl MaxMin {
    /// Sets the rates after `ended` have left and `started` have entered; reports who was solved.
    pub fn settle(
        &mut self,
        links: &mut Links,
        started: &[u32],
        ended: &[u32],
        changed: &mut Vec<u32>,
    ) {
        self.begin(links);
        self.keep_track(started, ended);
        if 2 * self.reach > self.active.len() {
            return self.settle_all(links, changed);
        }
        self.mark(links, ended);
        self.set.extend_from_slice(started);
        for &flow in started {
            self.in_set[flow as usize] = self.round;
        }
        self.mark(links, started);
        self.refresh(links);
        self.ask_neighbours(links);
        self.join();
        let mut patience = PATIENCE;
        while !self.set.is_empty() {
            self.filler.solve(links, &self.set);
            self.solves += 1;
            self.solved_flows += self.set.len() as u64;
            self.step += 1;
            self.dirty.clear();
            let set = std::mem::take(&mut self.set);
            self.mark(links, &set);
            self.set = set;
            self.refresh(links);
            self.ask_neighbours(links);
            self.ask_set(links);
            if self.joining.is_empty() {
                break;
            }
            patience = patience.saturating_sub(1);
            if patience == 0 {
                self.invite_neighbours(links);
            }
            self.join();
        }
        self.reach = self.set.len().saturating_sub(started.len());
        changed.extend_from_slice(&self.set);
    }

    /// Solves everything at once.
    fn settle_all(&mut self, links: &mut Links, changed: &mut Vec<u32>) {
        let all = std::mem::take(&mut self.active);
        self.filler.solve(links, &all);
        self.solves += 1;
        self.solved_flows += all.len() as u64;
        self.mark(links, &all);
        self.refresh(links);
        let other = |&&flow: &&u32| {
            let (rate, held) = (links.rate[flow as usize], links.held[flow as usize]);
            held > 0.0 && (rate - held).abs() > TOLERANCE * rate
        };
        self.reach = all.iter().filter(other).count();
        changed.extend_from_slice(&all);
        self.active = all;
    }

    fn keep_track(&mut self, started: &[u32], ended: &[u32]) {
        for &flow in started {
            self.place[flow as usize] = self.active.len() as u32;
            self.active.push(flow);
        }
        for &flow in ended {
            let place = self.place[flow as usize] as usize;
            self.active.swap_remove(place);
            if let Some(&moved) = self.active.get(place) {
                self.place[moved as usize] = place as u32;
            }
        }
    }

    fn begin(&mut self, links: &Links) {
        self.filler.reserve(links);
        self.load.resize(links.capacity.len(), 0.0);
        self.top.resize(links.capacity.len(), 0.0);
        self.is_dirty.resize(links.capacity.len(), 0);
        self.is_asked.resize(links.capacity.len(), 0);
        self.in_set.resize(links.weight.len(), 0);
        self.place.resize(links.weight.len(), 0);
        self.round += 1;
        self.step += 1;
        self.set.clear();
        self.dirty.clear();
    }

    /// Notes the links of `flows` as ones whose load may have changed.
    fn mark(&mut self, links: &Links, flows: &[u32]) {
        for &flow in flows {
            for used in links.path(flow) {
                let mark = &mut self.is_dirty[used.link as usize];
                if std::mem::replace(mark, self.step) != self.step {
                    self.dirty.push(used.link);
                }
            }
        }
    }

    /// Sums up the links that were marked; always from their flows, so that errors cannot add up.
    fn refresh(&mut self, links: &Links) {
        for &link in &self.dirty {
            let (mut load, mut top) = (0.0, 0.0f64);
            for user in &links.users[link as usize] {
                load += links.rate[user.flow as usize] * links.uses[user.entry as usize].share;
                top = top.max(self.level(links, user.flow));
            }
            self.load[link as usize] = load;
            self.top[link as usize] = top;
        }
    }

    fn level(&self, links: &Links, flow: u32) -> f64 {
        if links.rate[flow as usize] == 0.0 { 0.0 } else { self.filler.level[flow as usize] }
    }

    fn holds(&self, links: &Links, link: u32, level: f64) -> bool {
        let l = link as usize;
        self.load[l] >= links.capacity[l] * (1.0 - TOLERANCE)
            && level >= self.top[l] * (1.0 - TOLERANCE)
    }

    fn has_bottleneck(&self, links: &Links, flow: u32) -> bool {
        let level = self.level(links, flow);
        links.path(flow).iter().any(|used| self.holds(links, used.link, level))
    }

    /// Everybody on the set's links joins: where one change leads to another all over, one large
    /// solve is cheaper than many that grow a little each.
    fn invite_neighbours(&mut self, links: &Links) {
        for &link in &self.dirty {
            for user in &links.users[link as usize] {
                let mark = &mut self.in_set[user.flow as usize];
                if std::mem::replace(mark, self.round) != self.round {
                    self.joining.push(user.flow);
                }
            }
        }
    }

    /// Held flows on changed links that have lost their bottleneck join.
    fn ask_neighbours(&mut self, links: &Links) {
        for at in 0..self.dirty.len() {
            let link = self.dirty[at];
            for user in &links.users[link as usize] {
                if self.in_set[user.flow as usize] == self.round
                    || self.holds(links, link, self.level(links, user.flow))
                    || self.has_bottleneck(links, user.flow)
                {
                    continue;
                }
                self.in_set[user.flow as usize] = self.round;
                self.joining.push(user.flow);
            }
        }
    }

    /// Held flows that take more than their part where a flow of the set was stopped join.
    fn ask_set(&mut self, links: &Links) {
        for at in 0..self.set.len() {
            let flow = self.set[at];
            if !self.has_bottleneck(links, flow) {
                // Once a link and step: who joins is the same whoever asks.
                let link = self.filler.stopped_at[flow as usize];
                let asked = &mut self.is_asked[link as usize];
                if std::mem::replace(asked, self.step) != self.step {
                    self.ask_link(links, link);
                }
            }
        }
    }

    /// Finds the level of `link` by itself; held flows above it join.
    fn ask_link(&mut self, links: &Links, link: u32) {
        let mut left = links.capacity[link as usize];
        let mut weight = 0.0;
        let mut held: Vec<(f64, u32, f64)> = Vec::new();
        for user in &links.users[link as usize] {
            let f = user.flow as usize;
            let share = links.uses[user.entry as usize].share;
            let in_set = self.in_set[f] == self.round;
            if in_set && self.filler.stopped_at[f] == link {
                weight += links.weight[f] * share;
                continue;
            }
            left -= links.rate[f] * share;
            if !in_set {
                held.push((self.level(links, user.flow), user.flow, share));
            }
        }
        held.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for (level, flow, share) in held {
            if weight > 0.0 && level <= (left / weight).max(0.0) * (1.0 + TOLERANCE) {
                break;
            }
            left += links.rate[flow as usize] * share;
            weight += links.weight[flow as usize] * share;
            self.in_set[flow as usize] = self.round;
            self.joining.push(flow);
        }
    }

    /// Lets those join who were found.
    fn join(&mut self) {
        self.set.append(&mut self.joining);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{below, random};

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
                    (a - b).abs() <= 1e-8 * b,
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
