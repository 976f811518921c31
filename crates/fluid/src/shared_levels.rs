//! Ends of flows that share the level of one link.
//!
//! As in processor sharing with virtual time (Parekh and Gallager, *A Generalized Processor Sharing
//! Approach to Flow Control in Integrated Services Networks*, 1993): the *service* of a link is what a
//! flow of weight 1 would have sent so far. A flow ends when the service has grown by its size over its
//! weight, however the level changes until then, so a change of the level moves no flow in the order of
//! ends; it only changes when the first of them ends.

use std::collections::{BTreeSet, HashMap};

use crate::heap::IndexedHeap;

/// Bits a picosecond at 1 Gb/s.
const BITS_PER_PS: f64 = 1e-3;

/// The flows that share the level of a link.
#[derive(Debug, Default)]
struct LevelGroup {
    /// Gb/s by weight.
    level: f64,
    /// Bits by weight until `since`.
    service: f64,
    since: u64,
    /// Service at which each flow ends (as bits, which order alike), its number of start, the flow.
    ends: BTreeSet<(u64, u32, u32)>,
}

impl LevelGroup {
    fn service_at(&self, now: u64) -> f64 {
        self.service + self.level * BITS_PER_PS * (now - self.since) as f64
    }

    /// When the first flow ends, rounded up, with its number of start.
    fn first_end(&self) -> Option<(u64, u32)> {
        let &(service, number, _) = self.ends.first()?;
        let wait = (f64::from_bits(service) - self.service).max(0.0) / (self.level * BITS_PER_PS);
        // Conversion and addition saturate.
        Some((self.since.saturating_add(wait.ceil() as u64), number))
    }
}

/// Flows by the link whose level they share.
#[derive(Debug, Default)]
pub(crate) struct SharedLevels {
    groups: HashMap<u32, LevelGroup>,
    /// Links by when the first of their flows ends.
    first: IndexedHeap,
    /// Of each flow: its link, and the entry in its group.
    member: HashMap<u32, (u32, (u64, u32, u32))>,
}

impl SharedLevels {
    /// The link whose level `flow` shares, if it does.
    pub fn link_of(&self, flow: u32) -> Option<u32> {
        self.member.get(&flow).map(|&(link, _)| link)
    }

    /// When the next flow ends: the time, its number of start, the flow.
    pub fn first(&self) -> Option<(u64, u32, u32)> {
        let (time, link) = self.first.first()?;
        let &(_, number, flow) = self.groups[&link].ends.first()?;
        Some((time, number, flow))
    }

    /// Bits by weight that `flow` has left at `now`.
    pub fn left(&self, flow: u32, now: u64) -> Option<f64> {
        let (link, (service, ..)) = self.member.get(&flow)?;
        Some(f64::from_bits(*service) - self.groups[link].service_at(now))
    }

    /// Sets the level of `link` from `now` on.
    pub fn set_level(&mut self, link: u32, now: u64, level: f64) {
        let group = self.groups.entry(link).or_default();
        if group.ends.is_empty() {
            group.service = 0.0;
        } else {
            group.service = group.service_at(now);
        }
        (group.level, group.since) = (level, now);
        self.schedule(link);
    }

    /// Adds `flow`, the `number`th to start, which has `left` bits by weight to send at `now`.
    pub fn join(&mut self, link: u32, flow: u32, number: u32, now: u64, left: f64) {
        let group = self.groups.get_mut(&link).expect("the level of the link is set");
        let entry = ((group.service_at(now) + left.max(0.0)).to_bits(), number, flow);
        group.ends.insert(entry);
        self.member.insert(flow, (link, entry));
        self.schedule(link);
    }

    /// Removes `flow`, if it is here.
    pub fn leave(&mut self, flow: u32) {
        let Some((link, entry)) = self.member.remove(&flow) else { return };
        let group = self.groups.get_mut(&link).expect("the flow is in a group");
        group.ends.remove(&entry);
        self.schedule(link);
    }

    fn schedule(&mut self, link: u32) {
        match self.groups[&link].first_end() {
            Some((time, number)) => self.first.set(link, time, number),
            None => self.first.remove(link),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_end_in_order_of_service() {
        let mut shared = SharedLevels::default();
        shared.set_level(7, 0, 1.0);
        for (flow, left) in [(0, 30.0), (1, 10.0), (2, 20.0), (3, 10.0)] {
            shared.join(7, flow, flow, 0, left);
        }
        // A bit takes 1 ns at level 1, 0.5 ns at level 2.
        assert_eq!(shared.first(), Some((10_000, 1, 1)));
        shared.leave(1);
        assert_eq!(shared.first(), Some((10_000, 3, 3)));
        shared.leave(3);
        shared.set_level(7, 10_000, 2.0);
        assert_eq!(shared.first(), Some((15_000, 2, 2)));
        assert_eq!(shared.left(0, 11_000), Some(18.0));
        shared.leave(2);
        shared.leave(0);
        assert_eq!((shared.first(), shared.link_of(0)), (None, None));
    }
}
