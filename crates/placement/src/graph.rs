//! The communication graph in compressed sparse rows, and the errors of its columns.

use thiserror::Error;

/// A mistake in the columns of a graph or a partition.
#[derive(Debug, Error, PartialEq, Eq, Clone)]
pub enum PlacementError {
    /// A column has the wrong length.
    #[error("{name} has {length} entries; {expected} are needed")]
    Length {
        /// Which column.
        name: &'static str,
        /// Its length.
        length: usize,
        /// Expected length.
        expected: usize,
    },
    /// A number that is not in its range.
    #[error("{name} {index} is {value}; valid: 0 to below {below}")]
    Range {
        /// Which column.
        name: &'static str,
        /// Which entry.
        index: usize,
        /// Its value.
        value: i64,
        /// What it must be below.
        below: usize,
    },
}

/// An undirected weighted graph; every edge is listed twice.
#[derive(Debug)]
pub struct TrafficGraph {
    start: Vec<usize>,
    neighbour: Vec<usize>,
    weight: Vec<f64>,
}

impl TrafficGraph {
    /// Checks the columns: first entry of each vertex and one more, the other end of each edge, its
    /// weight.
    pub fn new(start: &[i64], neighbour: &[i64], weight: &[f64]) -> Result<Self, PlacementError> {
        let entries = neighbour.len();
        check_length("weight", weight.len(), entries)?;
        let start = indices("start", start, entries + 1)?;
        // Otherwise some entries would belong to no vertex.
        if start.first() != Some(&0) || start.last() != Some(&entries) || !start.is_sorted() {
            let length = start.last().copied().unwrap_or(0);
            return Err(PlacementError::Length { name: "start", length, expected: entries });
        }
        let neighbour = indices("neighbour", neighbour, start.len() - 1)?;
        Ok(Self { start, neighbour, weight: weight.to_vec() })
    }

    /// Number of vertices.
    pub fn n_vertices(&self) -> usize {
        self.start.len() - 1
    }

    /// Neighbours of a vertex and the weights of the edges to them.
    pub(crate) fn edges(&self, vertex: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let row = self.start[vertex]..self.start[vertex + 1];
        self.neighbour[row.clone()].iter().copied().zip(self.weight[row].iter().copied())
    }
}

pub(crate) fn check_length(
    name: &'static str,
    length: usize,
    expected: usize,
) -> Result<(), PlacementError> {
    if length == expected {
        return Ok(());
    }
    Err(PlacementError::Length { name, length, expected })
}

/// The column as indices below `below`.
pub(crate) fn indices(
    name: &'static str,
    column: &[i64],
    below: usize,
) -> Result<Vec<usize>, PlacementError> {
    let checked = |(index, &value): (usize, &i64)| match usize::try_from(value) {
        Ok(number) if number < below => Ok(number),
        _ => Err(PlacementError::Range { name, index, value, below }),
    };
    column.iter().enumerate().map(checked).collect()
}
