//! Which active flow uses which link, and with what share of its rate.

use crate::error::positive;
use crate::{FluidError, Paths};

/// One flow's use of one link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Use {
    pub link: u32,
    /// Place among the link's users, while the flow is active.
    pub place: u32,
    /// Fraction of the flow's rate that crosses the link: 1 on a single path.
    pub share: f64,
}

/// A flow on a link: the flow, where in `uses` it says so, and its share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    pub flow: u32,
    pub entry: u32,
    pub share: f64,
}

/// Links with their capacities, flows with their weights, paths and rates.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// Capacity of each link in Gb/s.
    pub capacity: Vec<f64>,
    /// Active flows of each link.
    pub users: Vec<Vec<User>>,
    /// Uses of flow `f`: `uses[first[f]..first[f + 1]]`.
    pub first: Vec<u32>,
    pub uses: Vec<Use>,
    pub weight: Vec<f64>,
    /// Rate by which the bits left were last counted, Gb/s.
    pub held: Vec<f64>,
    /// Gb/s; 0 before the first settlement.
    pub rate: Vec<f64>,
}

impl Links {
    pub fn new(capacity: Vec<f64>) -> Result<Self, FluidError> {
        for (link, &gbps) in capacity.iter().enumerate() {
            positive("capacity", || format!("link {link}"), gbps)?;
        }
        let users = vec![Vec::new(); capacity.len()];
        Ok(Self { capacity, users, first: vec![0], ..Self::default() })
    }

    /// Links on which all flows of `paths` are active.
    ///
    /// # Errors
    /// A capacity or weight that is not positive, or a path that names no link or one that does not
    /// exist.
    pub fn of_active(capacity: &[f64], paths: &Paths, weight: &[f64]) -> Result<Self, FluidError> {
        let mut links = Self::new(capacity.to_vec())?;
        paths.check(capacity.len(), weight.len())?;
        for (flow, &w) in weight.iter().enumerate() {
            positive("weight", || format!("flow {flow}"), w)?;
            let number = links.add(paths.of(flow), w);
            links.enter(number);
        }
        Ok(links)
    }

    /// Adds a flow, not yet active, and returns its number.
    pub fn add(&mut self, path: impl Iterator<Item = (u32, f64)>, weight: f64) -> u32 {
        self.uses.extend(path.map(|(link, share)| Use { link, place: 0, share }));
        self.first.push(self.uses.len() as u32);
        self.weight.push(weight);
        self.rate.push(0.0);
        self.held.push(0.0);
        self.weight.len() as u32 - 1
    }

    /// The entries of `flow` in `uses`.
    #[inline]
    pub fn entries(&self, flow: u32) -> std::ops::Range<usize> {
        self.first[flow as usize] as usize..self.first[flow as usize + 1] as usize
    }

    /// What `flow` uses.
    #[inline]
    pub fn path(&self, flow: u32) -> &[Use] {
        &self.uses[self.entries(flow)]
    }

    /// Puts `flow` on its links.
    pub fn enter(&mut self, flow: u32) {
        for entry in self.entries(flow) {
            let Use { link, share, .. } = self.uses[entry];
            let users = &mut self.users[link as usize];
            self.uses[entry].place = users.len() as u32;
            users.push(User { flow, entry: entry as u32, share });
        }
    }

    /// Takes `flow` off its links.
    pub fn leave(&mut self, flow: u32) {
        for entry in self.entries(flow) {
            let Use { link, place, .. } = self.uses[entry];
            let users = &mut self.users[link as usize];
            users.swap_remove(place as usize);
            if let Some(moved) = users.get(place as usize) {
                self.uses[moved.entry as usize].place = place;
            }
        }
        self.rate[flow as usize] = 0.0;
    }
}
