//! Global cables of a dragonfly: which ports of which groups are joined.

use crate::FabricError;

/// Which global port of a group leads to which other group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// Port i leads to group i, the group itself left out (Kim et al., ISCA 2008; "absolute").
    Consecutive,
    /// Port i leads to the group i + 1 further on ("palm tree", Camarero et al., 2014).
    Palmtree,
}

/// The global cables between `groups` groups of `ports` global ports each.
///
/// Every pair gets equally many; ports left over stay empty. Items are (group, port, group, port),
/// the lower group first.
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
    let each = ports / others;
    if each == 0 {
        let enough = u64::from(ports) + 1;
        let why = format!(
            "a group has {ports} global port{}, enough for {enough} group{} at most",
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
            for copy in 0..each {
                all.push((a, copy * others + slot(a, b), b, copy * others + slot(b, a)));
            }
        }
    }
    Ok(all)
}
