//! Global cables of a dragonfly: which ports of which groups they connect.

use crate::FabricError;

/// Which other group each global port of a group leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// Port i leads to group i, skipping the group itself (Kim et al., ISCA 2008; "absolute").
    Consecutive,
    /// Port i of group g leads to group g + i + 1, modulo the number of groups ("palm tree",
    /// Camarero et al., 2014).
    Palmtree,
}

/// The global cables between `groups` groups of `ports` global ports each, as (group, port, group,
/// port) with the lower group first.
///
/// Every pair of groups gets the same number of cables; surplus ports stay unused.
///
/// # Errors
/// [`FabricError::Parameter`]: more groups than a group has ports for.
pub(crate) fn cables(
    groups: u32,
    ports: u32,
    arrangement: Arrangement,
) -> Result<Vec<(u32, u32, u32, u32)>, FabricError> {
    if groups < 2 {
        return Ok(Vec::new());
    }
    let others = groups - 1;
    let per_pair = ports / others;
    if per_pair == 0 {
        let enough = u64::from(ports) + 1;
        let why = format!(
            "a group has {ports} global port{}, enough for at most {enough} group{}",
            if ports == 1 { "" } else { "s" },
            if enough == 1 { "" } else { "s" },
        );
        return Err(FabricError::Parameter { field: "groups", value: groups.into(), why });
    }
    let slot = |from: u32, to: u32| match arrangement {
        Arrangement::Consecutive => {
            if to < from {
                to
            } else {
                to - 1
            }
        }
        Arrangement::Palmtree => (to + groups - from - 1) % groups,
    };
    let mut all = Vec::new();
    for a in 0..groups {
        for b in a + 1..groups {
            for copy in 0..per_pair {
                all.push((a, copy * others + slot(a, b), b, copy * others + slot(b, a)));
            }
        }
    }
    Ok(all)
}
