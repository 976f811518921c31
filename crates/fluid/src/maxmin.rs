//! Max-min fair rates, updated as flows start and end by recomputing only the rates that change.
//!
//! In progressive filling every link has a *level* (rate by weight) at which it is full and stops
//! the flows that no earlier link has stopped; a flow's rate depends on the level of its
//! *bottleneck*, the link that stopped it. So a link's level depends on lower levels alone, and a
//! change spreads from low levels to higher ones (Ros-Giralt et al., *A Quantitative Theory of
//! Bottleneck Structures for Data Networks*, 2022). After flows have started or ended, the links whose
//! level may change wait in a queue by the lower of their old and their new level, and are served in
//! ascending order. A link that is served computes its level from all its flows, each no faster than
//! its other links let it, and stops at that level the flows that
//!
//! - it had stopped before: they rise or fall with it;
//! - have just started and that no other link has stopped;
//! - another link has stopped at a higher level.
//!
//! A link of a higher level may fill sooner than before. Then it stops a flow that has risen, and
//! the link that this flow leaves is served again, at its own level. Levels below the one being
//! served are final, so the process ends.
//!
//! One case breaks that order. A link whose own flows rise may overload links of a lower level.
//! Where flows use parts of many links, links may then take flows from one another forever. After
//! [`STEPS_PER_LINK`] all rates are therefore computed from scratch: then no link has flows of its
//! own that rise, and each is served about once.
//!
//! Each change of a flow's level changes the sums of the other links on its path. Most of these are
//! not full before or after. They carry no level, so the change ends there: one addition and one
//! comparison, in an array of 16 bytes a link ([`Load`]) that stays in the cache. Where very many flows
//! are stopped at one link, most are not visited at all: see [`sharing`].

mod sharing;

use std::ops::Range;

use crate::heap::IndexedHeap;
use crate::links::{ActiveFlows, User};

pub(crate) use sharing::SHARED_FROM;

/// Relative difference below which two levels are equal.
const SAME: f64 = 1e-12;

/// A sum of weights that has fallen below this fraction of its last exact value is recomputed, because
/// subtraction leaves the rounding errors of the large sum.
const REMAINDER: f64 = 1.0 / 1024.0;

/// Changes of a link's sums, or one for each of its flows if there are more, after which they are
/// recomputed.
const CHANGES: u32 = 64;

/// From this value of [`Load::changes`] on, the sums of the link are to be recomputed.
const STALE: u32 = 1 << 30;

/// Flag in [`Load::changes`]: the link is listed for requeuing.
const LISTED: u32 = 1 << 31;

const NONE: u32 = u32::MAX;

/// In [`FlowLevel::changed_in`]: the flow is shared, and its `level` is the bound.
const SHARED: u32 = u32::MAX;

/// Steps of a settlement per link after which all rates are computed from scratch. That takes about
/// one step per link, so a settlement costs at most five times as much.
const STEPS_PER_LINK: usize = 4;

/// Load of a link from flows that are stopped elsewhere.
#[derive(Debug, Clone, Copy)]
#[repr(align(16))]
struct Load {
    /// Their rate.
    fixed: f64,
    /// The link must be examined when `fixed` exceeds this: just below the capacity if no flow is
    /// stopped here or rises, else minus infinity.
    limit: f32,
    /// Counts up to [`STALE`].
    changes: u32,
}

/// The other state of a link.
#[derive(Debug, Clone, Copy)]
struct LinkFill {
    capacity: f64,
    /// Weight of the flows that are stopped here or that rise.
    free: f64,
    /// Level of the flows stopped here.
    level: f64,
    /// If there are such flows, no other flow has a higher level than this.
    top: f64,
    /// Approximate maximum of `free` since it was last recomputed.
    last_sum: f32,
    /// Number of flows in `free`.
    n_free: u32,
    /// Number of flows stopped here, which are the first of the link's users.
    n_stopped: u32,
    /// Number of shared flows, which are the first of these.
    n_shared: u32,
}

impl LinkFill {
    /// A flow of `weight` is no longer free.
    fn bind(&mut self, weight: f64) {
        self.n_free -= 1;
        self.free -= weight;
        if self.n_free == 0 {
            (self.free, self.last_sum) = (0.0, 0.0);
        }
    }

    fn release(&mut self, weight: f64) {
        self.n_free += 1;
        self.free += weight;
        self.last_sum = self.last_sum.max(self.free as f32);
    }

    /// The level at which it is full if flows stopped elsewhere carry `fixed`.
    fn full(&self, fixed: f64, free: f64) -> f64 {
        if free > 0.0 { ((self.capacity - fixed) / free).max(0.0) } else { 0.0 }
    }

    /// The level from which on rates depend on this link.
    fn due(&self, fixed: f64) -> Option<f64> {
        if self.n_free == 0 {
            // Flows stopped elsewhere now exceed the capacity.
            return (fixed - self.capacity > SAME * self.capacity).then_some(0.0);
        }
        let level = self.full(fixed, self.free);
        Some(if self.n_stopped > 0 { level.min(self.level) } else { level })
    }

    /// [`Load::limit`].
    fn limit(&self) -> f32 {
        if self.n_free > 0 {
            return f32::NEG_INFINITY;
        }
        (self.capacity as f32).min(f32::MAX) * (1.0 - 2.0 * f32::EPSILON)
    }
}

/// State of a flow.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct FlowLevel {
    /// Rate by weight; infinite until it is stopped.
    level: f64,
    weight: f64,
    /// The link that stopped it.
    stopped_at: u32,
    /// The last settlement that changed its rate.
    changed_in: u32,
    /// Its path.
    first: u32,
    end: u32,
}

impl FlowLevel {
    const UNKNOWN: Self =
        Self { level: 0.0, weight: 0.0, stopped_at: NONE, changed_in: 0, first: 0, end: 0 };

    fn path(&self) -> Range<usize> {
        self.first as usize..self.end as usize
    }
}

/// A flow that another link stops at `level`.
#[derive(Debug, Clone, Copy)]
struct Above {
    level: f64,
    weight: f64,
    flow: u32,
    entry: u32,
}

/// The level that a link would get now, and the flows it would then stop besides its own.
#[derive(Debug, Default)]
struct NewLevel {
    /// Flows that rise, each with its entry.
    rising: Vec<(u32, u32)>,
    /// Flows that other links stop, but at a higher level than this one would.
    above: Vec<Above>,
    /// Rate of the flows stopped elsewhere, those above apart, and weight of the others.
    fixed: f64,
    free: f64,
    /// The highest level of the flows stopped elsewhere, those above apart.
    top: f64,
    /// The level at which the link is full.
    level: f64,
}

/// The state between settlements.
#[derive(Debug, Default)]
pub(crate) struct MaxMin {
    load: Vec<Load>,
    filling: Vec<LinkFill>,
    flow: Vec<FlowLevel>,
    /// Links by the level, as bits, from which on rates may depend on them.
    queue: IndexedHeap,
    /// Links whose sums have changed.
    listed: Vec<u32>,
    /// Level up to which this settlement has been served, as bits.
    risen: u64,
    round: u32,
    new: NewLevel,
    /// Flows stopped at a link from which on they are shared; 0 for never.
    share_from: u32,
    /// Number of shared flows.
    n_shared: u32,
    /// Links with shared flows whose level was set in this settlement.
    changed_links: Vec<u32>,
}

/// A sort key of a non-negative level: such floating-point numbers order as their bits do.
fn key(level: f64) -> u64 {
    level.to_bits()
}

impl MaxMin {
    /// Removes `ended` from their links and sets the rates with `started`, which have entered theirs;
    /// reports the flows whose rate was set, with their rates.
    pub fn settle(
        &mut self,
        links: &mut ActiveFlows,
        started: &[u32],
        ended: &[u32],
        changed: &mut Vec<(u32, f64)>,
    ) {
        self.begin(links);
        let first = changed.len();
        for &flow in ended {
            self.remove_flow(links, flow);
        }
        for &flow in started {
            self.add_flow(links, flow);
        }
        self.requeue(links);
        if !self.serve_all(links, changed) {
            self.restart(links);
            self.serve_all(links, changed);
        }
        for (flow, rate) in &mut changed[first..] {
            *rate = self.level_of(*flow) * self.flow[*flow as usize].weight;
        }
    }

    /// Serves links until no rate changes; false if that takes more than [`STEPS_PER_LINK`].
    fn serve_all(&mut self, links: &mut ActiveFlows, changed: &mut Vec<(u32, f64)>) -> bool {
        let mut steps = STEPS_PER_LINK * self.filling.len() + 64;
        while let Some((due, link)) = self.queue.first() {
            if steps == 0 {
                return false;
            }
            steps -= 1;
            self.queue.remove(link);
            if !self.count_exactly(links, link, changed) {
                self.serve(links, link, due, changed);
            }
            self.requeue(links);
        }
        true
    }

    /// Discards all rates, as if every active flow had just started.
    fn restart(&mut self, links: &ActiveFlows) {
        self.queue = IndexedHeap::default();
        self.listed.clear();
        self.filling.clear();
        self.load.clear();
        self.fill(links);
        (self.risen, self.n_shared) = (0, 0);
        for link in 0..links.users.len() {
            for user in &links.users[link] {
                let state = &mut self.flow[user.flow as usize];
                (state.level, state.stopped_at) = (f64::INFINITY, NONE);
                if state.changed_in == SHARED {
                    // The flow no longer shares a level, which must be reported.
                    state.changed_in = 0;
                }
                self.filling[link].release(state.weight * links.share(user.entry));
            }
            self.mark_changed(link as u32);
        }
        self.requeue(links);
    }

    /// Initialises the links without flows.
    fn fill(&mut self, links: &ActiveFlows) {
        self.filling.extend(links.capacity.iter().map(|&capacity| LinkFill {
            capacity,
            free: 0.0,
            level: f64::INFINITY,
            top: f64::INFINITY,
            last_sum: 0.0,
            n_free: 0,
            n_stopped: 0,
            n_shared: 0,
        }));
        self.load.extend(self.filling.iter().map(|filling| Load {
            fixed: 0.0,
            limit: filling.limit(),
            changes: STALE - CHANGES,
        }));
    }

    fn begin(&mut self, links: &ActiveFlows) {
        if self.filling.is_empty() {
            self.fill(links);
        }
        self.flow.resize(links.weight.len(), FlowLevel::UNKNOWN);
        self.round += 1;
        self.risen = 0;
        self.changed_links.clear();
    }

    fn remove_flow(&mut self, links: &mut ActiveFlows, flow: u32) {
        let FlowLevel { weight, level, stopped_at, .. } = self.flow[flow as usize];
        for entry in self.flow[flow as usize].path() {
            let (link, weight) = (links.link[entry], weight * links.share(entry as u32));
            if stopped_at == link {
                self.unstop(links, entry, weight);
            } else {
                self.add(link, -weight * level, 0.0);
            }
        }
        links.leave(flow);
    }

    fn add_flow(&mut self, links: &ActiveFlows, flow: u32) {
        let (weight, path) = (links.weight[flow as usize], links.entries(flow));
        let (first, end) = (path.start as u32, path.end as u32);
        let level = f64::INFINITY;
        self.flow[flow as usize] =
            FlowLevel { level, weight, stopped_at: NONE, changed_in: 0, first, end };
        for (link, share) in links.path(flow) {
            self.filling[link as usize].release(share * weight);
            self.mark_changed(link);
        }
    }

    /// Adds `rate` to the load of `link` from flows stopped elsewhere; the flow now has `level`.
    #[inline]
    fn add(&mut self, link: u32, rate: f64, level: f64) {
        let load = &mut self.load[link as usize];
        load.fixed += rate;
        load.changes += 1;
        if (load.fixed > f64::from(load.limit)) | (load.changes >= STALE) {
            let filling = &mut self.filling[link as usize];
            filling.top = filling.top.max(level);
            self.list(link);
        }
    }

    fn list(&mut self, link: u32) {
        let load = &mut self.load[link as usize];
        if load.changes < LISTED {
            load.changes |= LISTED;
            self.listed.push(link);
        }
    }

    /// Notes that the free flows of `link` have changed.
    fn mark_changed(&mut self, link: u32) {
        self.load[link as usize].limit = self.filling[link as usize].limit();
        self.list(link);
    }

    /// The link of `entry` no longer stops the flow.
    fn unstop(&mut self, links: &mut ActiveFlows, entry: usize, weight: f64) {
        let link = links.link[entry];
        self.unshare(links, entry);
        let filling = &mut self.filling[link as usize];
        filling.bind(weight);
        filling.n_stopped -= 1;
        links.swap_user(entry, filling.n_stopped);
        self.mark_changed(link);
    }

    /// Updates the places in the queue of links whose sums have changed.
    fn requeue(&mut self, links: &ActiveFlows) {
        for at in 0..self.listed.len() {
            let link = self.listed[at];
            let load = &mut self.load[link as usize];
            load.changes &= !LISTED;
            let filling = &self.filling[link as usize];
            if load.changes >= STALE || filling.free < f64::from(filling.last_sum) * REMAINDER {
                self.recompute_sums(links, link);
            }
            match self.filling[link as usize].due(self.load[link as usize].fixed) {
                Some(due) => self.queue.set(link, key(due).max(self.risen), link),
                None => self.queue.remove(link),
            }
        }
        self.listed.clear();
    }

    /// Recomputes the sums of `link`, which removes rounding errors of additions and subtractions.
    fn recompute_sums(&mut self, links: &ActiveFlows, link: u32) {
        let (mut fixed, mut free) = (0.0, 0.0);
        for user in &links.users[link as usize] {
            let FlowLevel { weight, level, stopped_at, .. } = self.flow[user.flow as usize];
            if stopped_at == link || level == f64::INFINITY {
                free += weight * links.share(user.entry);
            } else {
                fixed += weight * links.share(user.entry) * level;
            }
        }
        self.store_sums(links, link, fixed, free);
    }

    /// Stores recomputed sums of `link`.
    fn store_sums(&mut self, links: &ActiveFlows, link: u32, fixed: f64, free: f64) {
        let load = &mut self.load[link as usize];
        load.fixed = fixed;
        load.changes = STALE - CHANGES.max(links.users[link as usize].len() as u32);
        let filling = &mut self.filling[link as usize];
        (filling.free, filling.last_sum) = (free, free as f32);
    }

    /// Sets the level of `link`, unless it has to wait or has not changed.
    fn serve(
        &mut self,
        links: &mut ActiveFlows,
        link: u32,
        now: u64,
        changed: &mut Vec<(u32, f64)>,
    ) {
        let mut new = std::mem::take(&mut self.new);
        self.find_level(links, link, &mut new);
        let LinkFill { level: before, n_stopped, n_free, .. } = self.filling[link as usize];
        let level = new.level;
        let alone = new.above.is_empty() && n_free == n_stopped;
        let same = alone && (n_stopped == 0 || (level - before).abs() <= SAME * before);
        let due = if n_stopped > 0 { level.min(before) } else { level };
        if !same && key(due) > now {
            self.queue.set(link, key(due), link);
        } else if !same {
            self.risen = now;
            self.stop(links, link, &new, changed);
        }
        self.new = new;
    }

    /// Finds the level at which `link` is full if nothing else changes, and the flows it would stop.
    fn find_level(&mut self, links: &ActiveFlows, link: u32, new: &mut NewLevel) {
        let filling = &self.filling[link as usize];
        let fixed = self.load[link as usize].fixed;
        new.rising.clear();
        new.above.clear();
        (new.fixed, new.free, new.top) = (fixed, filling.free, filling.top);
        new.level = filling.full(fixed, filling.free);
        if filling.n_stopped == filling.n_free && filling.n_stopped > 0 && filling.top <= new.level
        {
            return;
        }
        let least = new.level * (1.0 - 1e-3);
        let (mut fixed, mut free) = (0.0, 0.0);
        let mut top = 0.0;
        let (stopped, others) = links.users[link as usize].split_at(filling.n_stopped as usize);
        let shared = filling.n_shared > 0;
        if shared {
            // Adding up so many flows would cost more than the start that is being served.
            free = filling.free;
        } else {
            for user in stopped {
                free += self.flow[user.flow as usize].weight * links.share(user.entry);
            }
        }
        for &User { flow, entry } in others {
            let FlowLevel { weight, level, .. } = self.flow[flow as usize];
            let weight = weight * links.share(entry);
            if level == f64::INFINITY {
                free += if shared { 0.0 } else { weight };
                new.rising.push((flow, entry));
            } else {
                fixed += weight * level;
                // Rounding errors do not matter for telling which flows may be above.
                if level > least {
                    new.above.push(Above { level, weight, flow, entry });
                } else {
                    top = level.max(top);
                }
            }
        }
        if shared {
            let load = &mut self.load[link as usize];
            load.fixed = fixed;
            load.changes += 1;
        } else {
            self.store_sums(links, link, fixed, free);
        }
        let filling = &mut self.filling[link as usize];
        new.above.sort_unstable_by(|a, b| b.level.total_cmp(&a.level).then(a.flow.cmp(&b.flow)));
        let mut n = 0;
        for user in &new.above {
            if user.level <= filling.full(fixed, free) * (1.0 + SAME) {
                break;
            }
            fixed -= user.weight * user.level;
            free += user.weight;
            n += 1;
        }
        new.top = new.above.get(n).map_or(top, |user| user.level);
        filling.top = new.above.first().map_or(top, |user| user.level);
        new.above.truncate(n);
        (new.fixed, new.free) = (fixed, free);
        new.level = filling.full(fixed, free);
    }

    /// Stops at the new level of `link` the flows found by [`Self::find_level`].
    fn stop(
        &mut self,
        links: &mut ActiveFlows,
        link: u32,
        new: &NewLevel,
        changed: &mut Vec<(u32, f64)>,
    ) {
        let LinkFill { n_stopped, level: before, .. } = self.filling[link as usize];
        let level = new.level;
        // Changes to the link itself on the way are overwritten at the end.
        self.load[link as usize].changes |= LISTED;
        self.move_stopped(links, link, level, changed);
        let mut n_stopped = n_stopped;
        // While the flows stopped here rise, so do the rising ones: other links come first.
        let wait = n_stopped > 0 && level > before;
        if !wait {
            for &(flow, entry) in &new.rising {
                self.set_level(flow, link, level, changed);
                self.stop_rising(links, link, flow);
                links.swap_user(entry as usize, n_stopped);
                n_stopped += 1;
            }
        }
        for above in &new.above {
            let before = self.set_level(above.flow, link, level, changed);
            self.stop_above(links, link, level, before);
            links.swap_user(above.entry as usize, n_stopped);
            n_stopped += 1;
        }
        let filling = &mut self.filling[link as usize];
        filling.n_stopped = n_stopped;
        filling.n_free = n_stopped + if wait { new.rising.len() as u32 } else { 0 };
        (filling.level, filling.top) = (level, new.top);
        filling.free = new.free;
        filling.last_sum = filling.last_sum.max(new.free as f32);
        let load = &mut self.load[link as usize];
        (load.fixed, load.limit) = (new.fixed, f32::NEG_INFINITY);
        load.changes &= !LISTED;
        if filling.n_free > n_stopped {
            self.list(link);
        }
    }

    /// Returns the previous state of the flow.
    fn set_level(
        &mut self,
        flow: u32,
        link: u32,
        level: f64,
        changed: &mut Vec<(u32, f64)>,
    ) -> FlowLevel {
        let state = &mut self.flow[flow as usize];
        let before = *state;
        (state.level, state.stopped_at) = (level, link);
        if std::mem::replace(&mut state.changed_in, self.round) != self.round {
            changed.push((flow, 0.0));
        }
        before
    }

    /// A flow that has just started is stopped at `link`.
    fn stop_rising(&mut self, links: &ActiveFlows, link: u32, flow: u32) {
        let FlowLevel { weight, level, .. } = self.flow[flow as usize];
        let path = self.flow[flow as usize].path();
        for (used, share) in links.uses(path) {
            if used != link {
                self.filling[used as usize].bind(weight * share);
                self.mark_changed(used);
                self.add(used, weight * share * level, level);
            }
        }
    }

    /// A flow that another link had stopped is stopped at `link`, at a lower `level`.
    fn stop_above(&mut self, links: &mut ActiveFlows, link: u32, level: f64, before: FlowLevel) {
        for entry in before.path() {
            let (used, weight) = (links.link[entry], before.weight * links.share(entry as u32));
            if used == before.stopped_at {
                self.unstop(links, entry, weight);
                self.add(used, weight * level, level);
            } else if used != link {
                self.add(used, weight * (level - before.level), level);
            }
        }
    }
}

#[cfg(test)]
mod tests;
