//! The search: each part exchanges vertices with those it has most edges to, until no swap helps.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::exchange::{Pair, best_swaps};
use crate::graph::{PlacementError, TrafficGraph, check_length, indices};

/// Number of most promising vertices of a part that are examined; bounds the cost for very large
/// parts.
const CANDIDATES: usize = 96;

/// Limits of the effort.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Swaps chained between two parts before the best prefix is kept.
    pub depth: usize,
    /// Parts that are tried as partners, those with most edges first.
    pub partners: usize,
    /// How often each part may be examined.
    pub rounds: usize,
}

/// A partition and what restricts swaps.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// Part of each vertex.
    pub part: &'a [i64],
    /// Number of parts.
    pub n_parts: usize,
    /// Group of each part: vertices move only within a group.
    pub group: Option<&'a [i64]>,
    /// Kind of each vertex: only vertices of one kind are swapped.
    pub kind: Option<&'a [i64]>,
}

/// The result of a search.
#[derive(Debug)]
pub struct ImprovedPartition {
    /// Part of each vertex.
    pub part: Vec<i64>,
    /// Swaps that were made.
    pub swaps: u64,
}

/// Swaps vertices until no swap helps or the limits are reached; part sizes do not change.
pub fn improve(
    graph: &TrafficGraph,
    parts: Parts<'_>,
    limits: Limits,
) -> Result<ImprovedPartition, PlacementError> {
    let mut search = Search::new(graph, parts)?;
    search.run(limits);
    let part = search.part.iter().map(|&part| part as i64).collect();
    Ok(ImprovedPartition { part, swaps: search.swaps })
}

struct Search<'a> {
    graph: &'a TrafficGraph,
    part: Vec<usize>,
    group: Option<&'a [i64]>,
    kind: Option<&'a [i64]>,
    members: Vec<Vec<usize>>,
    /// Swaps in each part, and those of two parts when they were last tried without success: the
    /// gain of an exchange depends only on the members of its two parts.
    changes: Vec<u64>,
    unsuccessful: HashMap<(usize, usize), (u64, u64)>,
    swaps: u64,
    /// Index of a vertex in the dense matrix; `None` outside of [`Self::weight_matrix`].
    position: Vec<Option<usize>>,
    /// Weight to each part; 0 outside of [`Self::partners`].
    weight_to: Vec<f64>,
}

impl<'a> Search<'a> {
    fn new(graph: &'a TrafficGraph, parts: Parts<'a>) -> Result<Self, PlacementError> {
        let (n_vertices, n_parts) = (graph.n_vertices(), parts.n_parts);
        check_length("part", parts.part.len(), n_vertices)?;
        check_length("group", parts.group.map_or(n_parts, <[i64]>::len), n_parts)?;
        check_length("kind", parts.kind.map_or(n_vertices, <[i64]>::len), n_vertices)?;
        let part = indices("part", parts.part, n_parts)?;
        let mut members = vec![Vec::new(); n_parts];
        part.iter().enumerate().for_each(|(vertex, &part)| members[part].push(vertex));
        Ok(Self {
            graph,
            part,
            group: parts.group,
            kind: parts.kind,
            members,
            changes: vec![0; n_parts],
            unsuccessful: HashMap::new(),
            swaps: 0,
            position: vec![None; n_vertices],
            weight_to: vec![0.0; n_parts],
        })
    }

    fn run(&mut self, limits: Limits) {
        let n_parts = self.members.len();
        let mut waiting: VecDeque<usize> = (0..n_parts).collect();
        let mut queued = vec![true; n_parts];
        let mut visits = vec![0; n_parts];
        while let Some(part) = waiting.pop_front() {
            queued[part] = false;
            visits[part] += 1;
            let Some(partner) = self.improve(part, limits) else { continue };
            let mut affected: BTreeSet<usize> = [part, partner].into();
            affected.extend(self.partners(part));
            affected.extend(self.partners(partner));
            for other in affected {
                if !queued[other] && visits[other] < limits.rounds {
                    queued[other] = true;
                    waiting.push_back(other);
                }
            }
        }
    }

    /// Swaps with the first partner that helps, and returns it.
    fn improve(&mut self, part: usize, limits: Limits) -> Option<usize> {
        for partner in self.partners(part).into_iter().take(limits.partners) {
            let now = (self.changes[part], self.changes[partner]);
            if self.unsuccessful.get(&(part, partner)) == Some(&now) {
                continue;
            }
            if self.exchange(part, partner, limits.depth) {
                return Some(partner);
            }
            self.unsuccessful.insert((part, partner), now);
        }
        None
    }

    /// Parts that `part` has edges with, most weight first.
    fn partners(&mut self, part: usize) -> Vec<usize> {
        let mut candidates = Vec::new();
        for &vertex in &self.members[part] {
            for (other, weight) in self.graph.edges(vertex) {
                let other = self.part[other];
                // Weights are above 0, so a part with 0 has not been seen yet.
                if self.weight_to[other] == 0.0 {
                    candidates.push(other);
                }
                self.weight_to[other] += weight;
            }
        }
        let mut partners: Vec<(usize, f64)> = candidates
            .into_iter()
            .map(|other| (other, std::mem::take(&mut self.weight_to[other])))
            .filter(|&(other, _)| other != part)
            .filter(|&(other, _)| self.group.is_none_or(|group| group[other] == group[part]))
            .collect();
        partners.sort_by(|a, b| descending(a.1, b.1).then(a.0.cmp(&b.0)));
        partners.into_iter().map(|(other, _)| other).collect()
    }

    /// One pass between two parts; true when the cut became smaller.
    fn exchange(&mut self, first: usize, second: usize, depth: usize) -> bool {
        let (a, gain_a) = self.candidates(first, second);
        let (b, gain_b) = self.candidates(second, first);
        if a.is_empty() || b.is_empty() {
            return false;
        }
        let between = self.weight_matrix(&a, &b);
        let kind = self.kind;
        let may_swap = |i: usize, j: usize| kind.is_none_or(|kind| kind[a[i]] == kind[b[j]]);
        let swaps = best_swaps(Pair { gain_a, gain_b, between: &between }, depth, may_swap);
        swaps.iter().for_each(|&(i, j)| self.swap(a[i], b[j]));
        !swaps.is_empty()
    }

    /// Vertices of `part`, and the reduction of the cut if each alone moved to `partner`.
    fn candidates(&self, part: usize, partner: usize) -> (Vec<usize>, Vec<f64>) {
        let gain_of = |&vertex: &usize| {
            self.graph.edges(vertex).fold(0.0, |gain, (other, weight)| match self.part[other] {
                other if other == partner => gain + weight,
                other if other == part => gain - weight,
                _ => gain,
            })
        };
        let vertices = &self.members[part];
        let gain: Vec<f64> = vertices.iter().map(gain_of).collect();
        if vertices.len() <= CANDIDATES {
            return (vertices.clone(), gain);
        }
        let mut top: Vec<usize> = (0..vertices.len()).collect();
        top.sort_by(|&x, &y| descending(gain[x], gain[y]));
        top.truncate(CANDIDATES);
        top.sort_unstable();
        top.into_iter().map(|at| (vertices[at], gain[at])).unzip()
    }

    /// Weights among the vertices of `a` and `b`, row by row.
    fn weight_matrix(&mut self, a: &[usize], b: &[usize]) -> Vec<f64> {
        let width = a.len() + b.len();
        let both = || a.iter().chain(b).copied().enumerate();
        both().for_each(|(at, vertex)| self.position[vertex] = Some(at));
        let mut dense = vec![0.0; width * width];
        for (at, vertex) in both() {
            for (other, weight) in self.graph.edges(vertex) {
                if let Some(column) = self.position[other] {
                    dense[at * width + column] = weight;
                }
            }
        }
        both().for_each(|(_, vertex)| self.position[vertex] = None);
        dense
    }

    fn swap(&mut self, u: usize, v: usize) {
        let (p, q) = (self.part[u], self.part[v]);
        for (part, leaving, entering) in [(p, u, v), (q, v, u)] {
            if let Some(place) = self.members[part].iter_mut().find(|member| **member == leaving) {
                *place = entering;
            }
            self.changes[part] += 1;
        }
        (self.part[u], self.part[v]) = (q, p);
        self.swaps += 1;
    }
}

/// Descending order; equal and incomparable values keep their order.
fn descending(a: f64, b: f64) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { depth: 32, partners: 8, rounds: 40 };

    /// Two pairs that belong together, and a partition that separates both.
    fn pairs() -> TrafficGraph {
        TrafficGraph::new(&[0, 1, 2, 3, 4], &[1, 0, 3, 2], &[1.0; 4]).expect("a graph")
    }

    fn parts(part: &[i64]) -> Parts<'_> {
        Parts { part, n_parts: 2, group: None, kind: None }
    }

    #[test]
    fn the_search_joins_pairs() {
        let better = improve(&pairs(), parts(&[0, 1, 0, 1]), LIMITS).expect("valid");
        assert_eq!(better.part[0], better.part[1]);
        assert_eq!(better.part[2], better.part[3]);
        assert_eq!(better.swaps, 1);
    }

    #[test]
    fn groups_and_kinds_restrict_swaps() {
        let start = [0, 1, 0, 1];
        let groups = Parts { group: Some(&[0, 1]), ..parts(&start) };
        assert_eq!(improve(&pairs(), groups, LIMITS).expect("valid").part, start);
        let kinds = Parts { kind: Some(&[0, 1, 0, 1]), ..parts(&start) };
        assert_eq!(improve(&pairs(), kinds, LIMITS).expect("valid").part, start);
    }

    #[test]
    fn inconsistent_columns_are_refused() {
        let short = improve(&pairs(), parts(&[0, 1]), LIMITS).unwrap_err();
        assert_eq!(short.to_string(), "part has 2 entries; 4 are needed");
        let beyond = improve(&pairs(), parts(&[0, 1, 2, 1]), LIMITS).unwrap_err();
        assert_eq!(beyond.to_string(), "part 2 is 2; valid: 0 to below 2");
        assert!(TrafficGraph::new(&[0, 2, 1], &[1], &[1.0]).is_err());
        assert!(TrafficGraph::new(&[0, 1], &[-1], &[1.0]).is_err());
        assert!(TrafficGraph::new(&[], &[], &[]).is_err());
    }
}
