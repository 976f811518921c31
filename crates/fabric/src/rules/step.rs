//! Building blocks of routing rules: the state of a packet, the steps of its route, sets of links,
//! and coordinates of switches.

use crate::error::message;
use crate::{Fabric, FabricError};

/// Routing state of a packet: its class (the stages of the route it has completed), and whether it is
/// on the first leg of a detour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RouteState(pub u8);

impl RouteState {
    /// State of a packet on a minimal route at its first switch.
    pub const START: RouteState = RouteState(0);
    const DETOUR: u8 = 0x80;

    /// The same class, on the first leg of a detour.
    pub(crate) fn on_detour(self) -> Self {
        Self(self.0 | Self::DETOUR)
    }

    /// Whether the packet is on the first leg of a detour.
    pub fn is_on_detour(self) -> bool {
        self.0 & Self::DETOUR != 0
    }

    /// Where the packet is going: to `via` on the first leg of a detour, else to `goal`.
    pub(super) fn target(self, goal: u32, via: u32) -> u32 {
        if self.is_on_detour() { via } else { goal }
    }

    /// The class.
    pub fn class(self) -> u8 {
        self.0 & !Self::DETOUR
    }

    /// The same state with another class.
    pub(super) fn with_class(self, class: u8) -> Self {
        Self(self.0 & Self::DETOUR | class)
    }
}

/// One step of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteStep<'a> {
    /// Candidate links; empty if there is no route.
    pub links: &'a [u32],
    /// State of the packet at the next switch.
    pub next: RouteState,
    /// Virtual lane on these links.
    pub lane: u8,
    /// How many of the candidates, the last ones, are non-minimal: to be used only when they are less
    /// loaded than the minimal ones.
    pub non_minimal: u8,
}

impl<'a> RouteStep<'a> {
    /// The minimal candidates: the only ones for a choice that ignores load.
    #[inline]
    pub fn minimal(&self) -> &'a [u32] {
        &self.links[..self.links.len() - usize::from(self.non_minimal)]
    }

    /// The candidate with the least `load`. Ties go to the first minimal candidate from index `start`
    /// on, cyclically; a non-minimal candidate is chosen only if it has less load than all minimal ones.
    #[inline]
    pub fn least_loaded<T: PartialOrd>(&self, start: usize, load: impl Fn(u32) -> T) -> u32 {
        let (minimal, non_minimal) =
            self.links.split_at(self.links.len() - usize::from(self.non_minimal));
        let (before, after) = minimal.split_at(start);
        let mut in_order = after.iter().chain(before).chain(non_minimal).copied();
        let mut best = in_order.next().expect("a candidate");
        let mut least = load(best);
        for link in in_order {
            let here = load(link);
            if here < least {
                (best, least) = (link, here);
            }
        }
        best
    }
}

/// Sets of links by key.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkSets {
    start: Vec<u32>,
    links: Vec<u32>,
}

impl LinkSets {
    /// Groups (key, link) pairs into one set for each key below `keys`.
    pub fn of(keys: usize, mut pairs: Vec<(u64, u32)>) -> Self {
        pairs.sort_unstable();
        let mut start = vec![0u32; keys + 1];
        for &(key, _) in &pairs {
            start[key as usize + 1] += 1;
        }
        for key in 0..keys {
            start[key + 1] += start[key];
        }
        Self { start, links: pairs.into_iter().map(|(_, link)| link).collect() }
    }

    #[inline]
    pub fn get(&self, key: usize) -> &[u32] {
        &self.links[self.start[key] as usize..self.start[key + 1] as usize]
    }
}

/// Coordinates of every switch; the first dimension varies fastest.
pub(super) fn coordinates(
    rule: &'static str,
    fabric: &Fabric,
    dims: &[u32],
) -> Result<Vec<u16>, FabricError> {
    let product = dims.iter().fold(1u64, |a, &b| a.saturating_mul(b.into()));
    if product != u64::from(fabric.n_switches) || dims.iter().any(|&d| d > 65_535) {
        let why = message![format!(
            "dimensions {dims:?} have {product} switches, the fabric has {}",
            fabric.n_switches
        )];
        return Err(FabricError::WrongTopology { rule, why });
    }
    let mut all = Vec::with_capacity(fabric.n_switches as usize * dims.len());
    for switch in 0..fabric.n_switches {
        let mut index = switch;
        for &size in dims {
            all.push((index % size) as u16);
            index /= size;
        }
    }
    Ok(all)
}

/// The dimension in which two switches differ; `None` unless it is exactly one.
pub(super) fn differing_dimension(a: &[u16], b: &[u16]) -> Option<usize> {
    let mut differ = (0..a.len()).filter(|&d| a[d] != b[d]);
    match (differ.next(), differ.next()) {
        (Some(dimension), None) => Some(dimension),
        _ => None,
    }
}
