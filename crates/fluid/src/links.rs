//! Which active flow uses which link, and with what share of its rate.

use std::ops::Range;

use crate::error::require_positive;
use crate::{FlowPaths, FluidError};

/// A flow on a link: the flow, and the position of the link in its path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    pub flow: u32,
    pub entry: u32,
}

/// Links with their capacities, flows with their weights and paths.
///
/// Numbers of ended flows are reused by flows with equally many links, so the data of active flows
/// stay compact however many flows have ended.
#[derive(Debug, Default)]
pub(crate) struct ActiveFlows {
    /// Capacity of each link in Gb/s.
    pub capacity: Vec<f64>,
    /// Active flows of each link.
    pub users: Vec<Vec<User>>,
    /// Path of flow `f`: entries `first[f]..first[f + 1]` of the columns below.
    first: Vec<u32>,
    /// The links of all paths.
    pub link: Vec<u32>,
    /// Index among the users of the link, while the flow is active.
    place: Vec<u32>,
    /// Fraction of the flow's rate that crosses the link; empty while every path is single.
    share: Vec<f64>,
    /// Whether some path is split.
    split: bool,
    pub weight: Vec<f64>,
    /// Numbers to reuse, by length of path.
    unused: Vec<Vec<u32>>,
}

impl ActiveFlows {
    pub fn new(capacity: Vec<f64>) -> Result<Self, FluidError> {
        for (link, &gbps) in capacity.iter().enumerate() {
            require_positive("capacity", || format!("link {link}"), gbps)?;
        }
        let users = vec![Vec::new(); capacity.len()];
        Ok(Self { capacity, users, first: vec![0], ..Self::default() })
    }

    /// The links with all flows of `paths` active.
    ///
    /// # Errors
    /// A capacity or weight that is not positive, or a path that names no link or one that does not
    /// exist.
    pub fn of_active(
        capacity: &[f64],
        paths: &FlowPaths,
        weight: &[f64],
    ) -> Result<Self, FluidError> {
        let mut links = Self::new(capacity.to_vec())?;
        paths.check(capacity.len(), weight.len())?;
        for (flow, &w) in weight.iter().enumerate() {
            require_positive("weight", || format!("flow {flow}"), w)?;
            let path: Vec<_> = paths.of(flow).collect();
            let number = links.add(&path, w);
            links.enter(number);
        }
        Ok(links)
    }

    /// Adds a flow, not yet active, and returns its number.
    pub fn add(&mut self, path: &[(u32, f64)], weight: f64) -> u32 {
        if !self.split && path.iter().any(|&(_, share)| share != 1.0) {
            self.split = true;
            self.share.resize(self.link.len(), 1.0);
        }
        let flow = match self.unused.get_mut(path.len()).and_then(Vec::pop) {
            Some(flow) => flow,
            None => {
                let entries = self.link.len() + path.len();
                self.link.resize(entries, 0);
                self.place.resize(entries, 0);
                if self.split {
                    self.share.resize(entries, 1.0);
                }
                self.first.push(entries as u32);
                self.weight.push(0.0);
                self.weight.len() as u32 - 1
            }
        };
        self.weight[flow as usize] = weight;
        for (entry, &(link, share)) in self.entries(flow).zip(path) {
            self.link[entry] = link;
            if let Some(stored) = self.share.get_mut(entry) {
                *stored = share;
            }
        }
        flow
    }

    /// Frees the number of an inactive flow for reuse.
    pub fn recycle(&mut self, flow: u32) {
        let length = self.entries(flow).len();
        if self.unused.len() <= length {
            self.unused.resize(length + 1, Vec::new());
        }
        self.unused[length].push(flow);
    }

    /// The entries of `flow` in the columns of paths.
    #[inline]
    pub fn entries(&self, flow: u32) -> Range<usize> {
        self.first[flow as usize] as usize..self.first[flow as usize + 1] as usize
    }

    /// The share of an entry.
    #[inline]
    pub fn share(&self, entry: u32) -> f64 {
        self.share.get(entry as usize).copied().unwrap_or(1.0)
    }

    /// The links of `entries`, each with its share.
    #[inline]
    pub fn uses(&self, entries: Range<usize>) -> impl ExactSizeIterator<Item = (u32, f64)> + '_ {
        entries.map(|entry| (self.link[entry], self.share(entry as u32)))
    }

    /// The links of `flow`, each with its share.
    #[inline]
    pub fn path(&self, flow: u32) -> impl ExactSizeIterator<Item = (u32, f64)> + '_ {
        self.uses(self.entries(flow))
    }

    /// Makes `flow` a user of its links.
    pub fn enter(&mut self, flow: u32) {
        for entry in self.entries(flow) {
            let users = &mut self.users[self.link[entry] as usize];
            self.place[entry] = users.len() as u32;
            users.push(User { flow, entry: entry as u32 });
        }
    }

    /// Index of the flow of `entry` among the users of its link.
    pub fn place(&self, entry: usize) -> u32 {
        self.place[entry]
    }

    /// Swaps the flow of `entry` with the one at `place` among the users of its link.
    pub fn swap_user(&mut self, entry: usize, place: u32) {
        let from = std::mem::replace(&mut self.place[entry], place);
        let users = &mut self.users[self.link[entry] as usize];
        self.place[users[place as usize].entry as usize] = from;
        self.place[entry] = place;
        users.swap(from as usize, place as usize);
    }

    /// Removes `flow` from the users of its links.
    pub fn leave(&mut self, flow: u32) {
        for entry in self.entries(flow) {
            let place = self.place[entry];
            let users = &mut self.users[self.link[entry] as usize];
            users.swap_remove(place as usize);
            if let Some(moved) = users.get(place as usize) {
                self.place[moved.entry as usize] = place;
            }
        }
    }
}
