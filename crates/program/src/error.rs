//! Errors of rank programs.

use thiserror::Error;

/// A program that is malformed or cannot complete.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ProgramError {
    /// A column has the wrong length.
    #[error("{name} has {length} entries, expected {expected}")]
    Length {
        /// Which column.
        name: &'static str,
        /// Its length.
        length: usize,
        /// Expected length.
        expected: usize,
    },
    /// A rank on a node that the fabric does not have.
    #[error("rank {rank} is placed on node {node}, but the fabric has {nodes} nodes, from 0")]
    Node {
        /// Rank.
        rank: u32,
        /// Its node.
        node: u32,
        /// Number of nodes.
        nodes: u32,
    },
    /// An invalid operation.
    #[error("rank {rank}, operation {operation}: {problem}")]
    Operation {
        /// Rank.
        rank: u32,
        /// Index of the operation within the rank.
        operation: u64,
        /// The problem.
        problem: String,
    },
    /// Sends and receives of a pair of ranks do not match.
    #[error(
        "rank {src} sends {sends} messages to rank {dst} with tag {tag}, but rank {dst} receives \
         {receives}"
    )]
    Unmatched {
        /// Sending rank.
        src: u32,
        /// Receiving rank.
        dst: u32,
        /// Tag.
        tag: i64,
        /// Sends posted in the whole program.
        sends: usize,
        /// Receives posted in the whole program.
        receives: usize,
    },
    /// Ranks wait for one another forever.
    #[error("{blocked} ranks are blocked forever at {}: {examples}", time_text(*time_ps))]
    Stuck {
        /// Number of ranks that have not finished.
        blocked: usize,
        /// When the last event happened.
        time_ps: u64,
        /// The first few of these ranks, and what each waits for.
        examples: String,
    },
}

/// A time in its largest unit, with up to four significant digits: `44 us`, `1.25 ms`.
pub fn time_text(ps: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "s"), (1_000_000_000, "ms"), (1_000_000, "us"), (1_000, "ns")];
    let Some(&(size, unit)) = UNITS.iter().find(|&&(size, _)| ps >= size) else {
        return format!("{ps} ps");
    };
    let value = ps as f64 / size as f64;
    let decimals = if value < 10.0 {
        3
    } else if value < 100.0 {
        2
    } else {
        usize::from(value < 1e3)
    };
    let digits = format!("{value:.decimals$}");
    let digits =
        if decimals > 0 { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    format!("{digits} {unit}")
}

#[cfg(test)]
mod tests {
    use super::time_text;

    #[test]
    fn times_are_written_in_their_largest_unit() {
        let cases =
            [(0, "0 ps"), (999, "999 ps"), (44_000_000, "44 us"), (1_250_000_000, "1.25 ms")];
        for (ps, text) in cases.into_iter().chain([(123_456_789_000_000, "123.5 s")]) {
            assert_eq!(time_text(ps), text);
        }
    }
}
