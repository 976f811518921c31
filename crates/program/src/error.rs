//! Errors of rank programs.

use thiserror::Error;

use crate::{Message, Rank};

/// A program that cannot start or cannot end.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ProgramError {
    /// A column has the wrong length.
    #[error("{name} has {length} entries, {expected} are needed")]
    Length {
        /// Which column.
        name: &'static str,
        /// Its length.
        length: usize,
        /// Expected length.
        expected: usize,
    },
    /// A rank on a node that the fabric does not have.
    #[error("node of rank {rank} is {node}; valid: below {nodes}")]
    Node {
        /// Rank.
        rank: u32,
        /// Its node.
        node: u32,
        /// How many there are.
        nodes: u32,
    },
    /// An operation that cannot be.
    #[error("rank {rank}, operation {operation}: {problem}")]
    Operation {
        /// Rank.
        rank: u32,
        /// Operation within the rank.
        operation: u64,
        /// The problem.
        problem: String,
    },
    /// Sends and receives of a pair of ranks do not match.
    #[error(
        "rank {src} sends {sends} messages to rank {dst} with tag {tag}, which receives {receives}"
    )]
    Unmatched {
        /// Sending rank.
        src: u32,
        /// Receiving rank.
        dst: u32,
        /// Tag.
        tag: i64,
        /// Sends posted over the whole program.
        sends: usize,
        /// Receives posted over the whole program.
        receives: usize,
    },
    /// Ranks wait on one another for ever.
    #[error("{blocked} ranks are blocked for ever at {time_ps} ps: {examples}")]
    Stuck {
        /// Ranks that have not finished.
        blocked: usize,
        /// When the last event happened.
        time_ps: u64,
        /// The first few ranks and what each waits for.
        examples: String,
    },
}

impl ProgramError {
    /// [`Self::Stuck`] of `ranks` in order; `rank_start` as compiled, `message` gives one by number.
    pub fn stuck<'r>(
        time_ps: u64,
        rank_start: &[usize],
        ranks: impl Iterator<Item = &'r Rank>,
        message: impl Fn(u32) -> Message,
    ) -> Self {
        let mut blocked = 0;
        let mut examples = Vec::new();
        for (rank, state) in ranks.enumerate() {
            if state.unfinished(rank_start[rank + 1]) {
                blocked += 1;
                if examples.len() < 4 {
                    examples.push(format!("rank {rank} waits for {}", state.awaits(&message)));
                }
            }
        }
        Self::Stuck { blocked, time_ps, examples: examples.join("; ") }
    }
}
