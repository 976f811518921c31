//! The modified k-ary n-tree of Birk and Zdornov (2009): a k-ary n-tree with peer links, which the
//! authors call horizontal links.
//!
//! A k-ary n-tree (Petrini and Vanneschi, 1997) has `k^n` nodes and n levels of `k^(n-1)` switches.
//! A switch is identified by its level and n-1 digits to base k; up port j at level h leads to the
//! switch of level h+1 whose digit h is j. The `k^h` switches of level h that differ only in digits
//! below h reach the same leaves: together they are one switch of the ideal fat tree. They form a
//! line, in which `width` parallel cables connect each switch to the next (a ring would add a cyclic
//! channel dependency). [`crate::rules::PeerLinkRouting`] is their routing rule.

use crate::{CableList, Fabric, FabricError};

/// Shape of a modified k-ary n-tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// k: down ports of a switch, and also its up ports; at least 2.
    pub arity: u32,
    /// n: levels of switches, at least 1.
    pub levels: u32,
    /// Parallel peer cables from a switch to the next in its line, 0 for the plain tree.
    pub width: u32,
    /// Rates in Gb/s: node, up, peer.
    pub gbps: [f64; 3],
    /// Cable delays in picoseconds, same order.
    pub delay_ps: [u64; 3],
}

/// Switches in a line at `level`: those that form one switch of the ideal fat tree.
#[inline]
pub fn line_length(arity: u32, level: u32) -> u32 {
    arity.pow(level)
}

/// `switch` with the digit at `position` replaced.
#[inline]
pub fn with_digit(arity: u32, switch: u32, position: u32, digit: u32) -> u32 {
    let unit = line_length(arity, position);
    switch - switch / unit % arity * unit + digit * unit
}

/// Builds the fabric of `shape`: cables of nodes first, then uplinks by level, then peer links.
///
/// Switches are numbered level by level from the leaves; levels are tiers.
///
/// # Errors
/// [`FabricError::Parameter`] names the field, the value and what is wrong with it.
pub fn build(shape: &Shape) -> Result<Fabric, FabricError> {
    let &Shape { arity, levels, width, gbps, delay_ps } = shape;
    let wrong = |field, value: u32, why: &str| {
        Err(FabricError::Parameter { field, value: value.into(), why: why.to_owned() })
    };
    if arity < 2 {
        return wrong("k", arity, "must be at least 2");
    }
    if levels < 1 {
        return wrong("n", levels, "must be at least 1");
    }
    if width > 64 {
        return wrong("width", width, "must be at most 64");
    }
    let nodes = arity.checked_pow(levels).filter(|&nodes| {
        let switches = u64::from(levels) * u64::from(nodes / arity);
        u64::from(nodes) + switches < u64::from(u32::MAX)
    });
    let Some(nodes) = nodes else {
        return wrong("n", levels, "the tree has more than 2^32 nodes and switches");
    };
    let per_level = nodes / arity;
    let switch = |level: u32, number: u32| nodes + level * per_level + number;
    let switches = levels * per_level;
    let mut cables = CableList::new((nodes + switches) as usize);
    for node in 0..nodes {
        cables.add(node, switch(0, node / arity), gbps[0], delay_ps[0]);
    }
    for level in 0..levels - 1 {
        for low in 0..per_level {
            for port in 0..arity {
                let high = with_digit(arity, low, level, port);
                cables.add(switch(level, low), switch(level + 1, high), gbps[1], delay_ps[1]);
            }
        }
    }
    for level in 1..levels {
        for number in (0..per_level).filter(|n| (n + 1) % line_length(arity, level) != 0) {
            for _ in 0..width {
                let next = switch(level, number + 1);
                cables.add(switch(level, number), next, gbps[2], delay_ps[2]);
            }
        }
    }
    let tier = (0..switches).map(|s| (s / per_level) as i32).collect();
    cables.finish(nodes, tier, vec![-1; switches as usize])
}
