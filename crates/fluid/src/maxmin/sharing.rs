//! Flows whose level is kept with the link that stops them, not with each flow.
//!
//! Where very many flows are stopped at one link, each start or end changes the rates of all of
//! them. A flow whose other links have room need not be visited, as long as they still have room.
//! Such a flow is *shared*: its level is that of the link that stops it, and on its other links it
//! counts with a *bound*, which is somewhat above its level. All shared flows of a link have the
//! same bound. They are visited only when
//!
//! - the level of their link exceeds the bound or falls far below it: then they get a new bound;
//! - one of their other links is to be served, because by the bounds it may be full or because other
//!   flows are stopped there: its shared flows are then counted exactly again.
//!
//! While flows end, the level of a link exceeds the bound only after a fixed share of the flows has
//! ended. So the number of visits is proportional to the number of flows that end, not to its
//! square.

use super::{FlowLevel, LinkFill, MaxMin, SHARED};
use crate::links::{ActiveFlows, User};

/// Flows are shared if at least this many are stopped at their link. Visiting fewer flows costs
/// less.
pub(crate) const SHARED_FROM: u32 = 256;

/// Bound of a flow's level by its level when the bound is set.
const MARGIN: f64 = 1.25;

/// A level below this part of the bound gets a new bound.
const FAR_BELOW: f64 = 0.5;

impl MaxMin {
    /// From now on, flows are shared if at least `from` are stopped at their link, or never if 0. A
    /// settlement reports a flow when that begins or ends, and its link when their level changes.
    pub fn share_levels(&mut self, from: u32) {
        self.share_from = from;
    }

    /// The link whose level `flow` shares, if it does.
    #[inline]
    pub fn shared_at(&self, flow: u32) -> Option<u32> {
        let state = self.flow.get(flow as usize)?;
        (state.changed_in == SHARED).then_some(state.stopped_at)
    }

    /// Links with shared flows whose level was set in the last settlement, perhaps repeatedly.
    pub fn changed_links(&self) -> &[u32] {
        &self.changed_links
    }

    /// Level of the flows stopped at `link`.
    pub fn level(&self, link: u32) -> f64 {
        self.filling[link as usize].level
    }

    /// The present level of `flow`.
    pub(super) fn level_of(&self, flow: u32) -> f64 {
        self.shared_at(flow).map_or(self.flow[flow as usize].level, |link| self.level(link))
    }

    /// Moves the flows stopped at `link` to its new `level`.
    pub(super) fn move_stopped(
        &mut self,
        links: &mut ActiveFlows,
        link: u32,
        level: f64,
        changed: &mut Vec<(u32, f64)>,
    ) {
        let LinkFill { n_stopped, n_shared, .. } = self.filling[link as usize];
        let share = self.share_from > 0 && n_stopped >= self.share_from;
        let mut bound = level * MARGIN;
        if n_shared > 0 {
            let first = links.users[link as usize][0].flow;
            let old_bound = self.flow[first as usize].level;
            if share && level <= old_bound && level >= FAR_BELOW * old_bound {
                bound = old_bound;
            } else {
                self.set_shared(link, 0);
            }
        }
        for at in self.filling[link as usize].n_shared..n_stopped {
            let User { flow, entry } = links.users[link as usize][at as usize];
            let shared = share && self.has_room(links, link, flow, bound);
            let to = if shared { bound } else { level };
            let before = self.set_level(flow, link, to, changed);
            for (used, part) in links.uses(before.path()) {
                self.add(used, before.weight * part * (to - before.level), to);
            }
            if shared {
                self.flow[flow as usize].changed_in = SHARED;
                let n_shared = self.filling[link as usize].n_shared;
                links.swap_user(entry as usize, n_shared);
                self.set_shared(link, n_shared + 1);
            }
        }
        if self.filling[link as usize].n_shared > 0 {
            self.changed_links.push(link);
        }
    }

    /// Whether the other links of `flow` have room if it counts with `bound`.
    fn has_room(&self, links: &ActiveFlows, link: u32, flow: u32, bound: f64) -> bool {
        let FlowLevel { weight, level, .. } = self.flow[flow as usize];
        links.uses(self.flow[flow as usize].path()).all(|(used, share)| {
            let load = &self.load[used as usize];
            used == link || load.fixed + weight * share * (bound - level) <= f64::from(load.limit)
        })
    }

    pub(super) fn set_shared(&mut self, link: u32, n_shared: u32) {
        let before = std::mem::replace(&mut self.filling[link as usize].n_shared, n_shared);
        self.n_shared = self.n_shared + n_shared - before;
    }

    /// Moves the flow of `entry` behind the shared flows of its link, if it is one of them.
    pub(super) fn unshare(&mut self, links: &mut ActiveFlows, entry: usize) {
        let link = links.link[entry];
        let n_shared = self.filling[link as usize].n_shared;
        if links.place(entry) < n_shared {
            self.set_shared(link, n_shared - 1);
            links.swap_user(entry, n_shared - 1);
        }
    }

    /// Counts the shared flows of other links exactly that use `link`; false if there are none. A link
    /// that stops flows has none: flows are shared only while their other links stop none.
    pub(super) fn count_exactly(
        &mut self,
        links: &mut ActiveFlows,
        link: u32,
        changed: &mut Vec<(u32, f64)>,
    ) -> bool {
        if self.n_shared == 0 || self.filling[link as usize].n_stopped > 0 {
            return false;
        }
        let mut any_shared = false;
        for at in 0..links.users[link as usize].len() {
            let flow = links.users[link as usize][at].flow;
            let Some(stopped_at) = self.shared_at(flow) else { continue };
            any_shared = true;
            let level = self.level(stopped_at);
            let before = self.set_level(flow, stopped_at, level, changed);
            for entry in before.path() {
                let (used, share) = (links.link[entry], links.share(entry as u32));
                if used == stopped_at {
                    self.unshare(links, entry);
                } else {
                    self.add(used, before.weight * share * (level - before.level), level);
                }
            }
        }
        if any_shared {
            self.list(link);
        }
        any_shared
    }
}
