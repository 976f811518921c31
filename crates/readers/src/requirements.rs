//! What operations of a schedule require, as lists.

use crate::graph::AT_START;
use crate::numbering::Map;
use crate::op;

/// A dependency between two operations of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependency {
    /// The operation depended on.
    pub before: u32,
    /// The dependent operation.
    pub after: u32,
    /// Whether it suffices that `before` has begun.
    pub begun: bool,
}

/// What each operation requires, as lists of operations with [`AT_START`].
#[derive(Debug, Default)]
pub struct Requirements {
    /// End of the list of each operation.
    pub end: Vec<u32>,
    /// The lists.
    pub source: Vec<u32>,
}

impl Requirements {
    /// What an operation requires.
    pub(crate) fn of(&self, at: usize) -> &[u32] {
        let begin = if at == 0 { 0 } else { self.end[at - 1] };
        &self.source[begin as usize..self.end[at] as usize]
    }

    /// Adds the lists of the operations of a rank: those of `kinds` from `end.len()` on. Clears
    /// `dependencies`, which keep their order within each list.
    pub(crate) fn add_rank(&mut self, kinds: &[u8], dependencies: &mut Vec<Dependency>) {
        inherit(kinds, dependencies);
        let first = self.end.len();
        self.end.resize(kinds.len(), 0);
        let end = &mut self.end[first..];
        for dependency in &*dependencies {
            end[dependency.after as usize - first] += 1;
        }
        let mut total = self.source.len() as u32;
        for dependency in &mut *end {
            // Begin of the list; becomes its end as the list is filled.
            total += std::mem::replace(dependency, total);
        }
        self.source.resize(total as usize, 0);
        for dependency in dependencies.drain(..) {
            let at = &mut end[dependency.after as usize - first];
            self.source[*at as usize] =
                dependency.before | if dependency.begun { AT_START } else { 0 };
            *at += 1;
        }
    }
}

/// Adds implied dependencies: an operation that may begin with a computation inherits those of the
/// computation.
///
/// It precedes the computation in the sequence, because a rank does nothing else while it computes.
fn inherit(kinds: &[u8], dependencies: &mut Vec<Dependency>) {
    let computes = |at: u32| kinds[at as usize] == op::COMPUTE;
    let early: Vec<Dependency> = dependencies
        .iter()
        .filter(|dependency| dependency.begun && computes(dependency.before))
        .copied()
        .collect();
    if early.is_empty() {
        return;
    }
    let mut required: Map<u32, Vec<u32>> =
        early.iter().map(|dependency| (dependency.before, Vec::new())).collect();
    for dependency in dependencies.iter().filter(|dependency| !dependency.begun) {
        if let Some(of) = required.get_mut(&dependency.after) {
            of.push(dependency.before);
        }
    }
    let inherited = early.iter().flat_map(|dependency| {
        required[&dependency.before].iter().map(|&before| Dependency {
            before,
            after: dependency.after,
            begun: false,
        })
    });
    dependencies.extend(inherited);
}

#[cfg(test)]
mod tests {
    use super::{Dependency, Requirements};
    use crate::graph::AT_START;
    use crate::op;

    #[test]
    fn lists_inherit_requirements_of_computations() {
        let depend = |before, after, begun| Dependency { before, after, begun };
        let mut lists = Requirements::default();
        lists.add_rank(&[op::ISEND, op::ISEND], &mut vec![depend(0, 1, false)]);
        let kinds = [op::ISEND, op::ISEND, op::IRECV, op::COMPUTE, op::ISEND];
        let mut dependencies = vec![depend(3, 4, true), depend(2, 4, false), depend(2, 3, false)];
        lists.add_rank(&kinds, &mut dependencies);
        assert_eq!(lists.end, [0, 1, 1, 2, 5]);
        assert_eq!(lists.source, [0, 2, 3 | AT_START, 2, 2]);
    }
}
