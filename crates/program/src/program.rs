//! Rank programs as columns of operations, and the placement of ranks.

use crate::ProgramError;

/// Kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// Computes.
    Compute = 0,
    /// Posts a send that completes when its last byte has left the adapter.
    Isend = 1,
    /// Posts a receive.
    Irecv = 2,
    /// Blocks until one request is complete.
    Wait = 3,
    /// Blocks until all open requests are complete.
    Waitall = 4,
    /// Posts a synchronous send, which completes with its receive.
    Issend = 5,
    /// Posts a send that completes when the acknowledgement of its completed receive has returned.
    AcknowledgedSend = 6,
}

impl OpKind {
    /// Whether operations of the kind with this number post a send.
    pub(crate) fn sends(kind: u8) -> bool {
        [Self::Isend, Self::Issend, Self::AcknowledgedSend].iter().any(|&send| kind == send as u8)
    }
}

/// Operations of all ranks in columns, rank by rank; in Python `tailback.traffic.program.Program`.
#[derive(Debug, Default, Clone)]
pub struct Program {
    /// First operation of each rank, and the number of operations as a last entry.
    pub rank_start: Vec<u64>,
    /// [`OpKind`] as a number.
    pub kind: Vec<u8>,
    /// Peer rank of sends and receives.
    pub peer: Vec<i32>,
    /// Bytes of sends and receives, picoseconds of computations.
    pub amount: Vec<u64>,
    /// Matching tag.
    pub tag: Vec<i64>,
    /// Request number within the rank.
    pub request: Vec<i32>,
    /// Label of sends and receives.
    pub label: Vec<u32>,
    /// Rate at which to pace each send, in megabits per second; 0 for no pacing, empty if no send is
    /// paced.
    pub pace_mbps: Vec<u32>,
}

impl Program {
    /// An empty program with capacity for the given numbers of ranks and operations.
    pub fn with_capacity(ranks: usize, operations: usize) -> Self {
        let mut rank_start = Vec::with_capacity(ranks + 1);
        rank_start.push(0);
        Self {
            rank_start,
            kind: Vec::with_capacity(operations),
            peer: Vec::with_capacity(operations),
            amount: Vec::with_capacity(operations),
            tag: Vec::with_capacity(operations),
            request: Vec::with_capacity(operations),
            label: Vec::with_capacity(operations),
            pace_mbps: Vec::new(),
        }
    }

    /// Appends an operation to the current rank.
    #[inline]
    pub fn push(
        &mut self,
        kind: OpKind,
        peer: i32,
        amount: u64,
        tag: i64,
        request: i32,
        label: u32,
    ) {
        self.kind.push(kind as u8);
        self.peer.push(peer);
        self.amount.push(amount);
        self.tag.push(tag);
        self.request.push(request);
        self.label.push(label);
    }

    /// Ends the current rank: subsequent operations belong to the next one.
    pub fn close_rank(&mut self) {
        self.rank_start.push(self.kind.len() as u64);
    }

    /// Number of ranks.
    pub fn n_ranks(&self) -> usize {
        self.rank_start.len().saturating_sub(1)
    }

    /// Operations of a rank.
    pub(crate) fn operations(&self, rank: usize) -> std::ops::Range<usize> {
        self.rank_start[rank] as usize..self.rank_start[rank + 1] as usize
    }

    /// Checks that the columns have consistent lengths and ranks do not overlap.
    pub(crate) fn check_columns(&self) -> Result<(), ProgramError> {
        let expected = self.kind.len();
        for (name, length) in [
            ("peer", self.peer.len()),
            ("amount", self.amount.len()),
            ("tag", self.tag.len()),
            ("request", self.request.len()),
            ("label", self.label.len()),
            (
                "the last entry of rank_start",
                self.rank_start.last().map_or(0, |&last| last as usize),
            ),
        ] {
            if length != expected {
                return Err(ProgramError::Length { name, length, expected });
            }
        }
        let begin = |rank: usize| self.rank_start[rank] as usize;
        if expected > 0 && begin(0) != 0 {
            let problem = format!("rank_start begins at {}, not at 0", begin(0));
            return Err(self.wrong(0, begin(0), problem));
        }
        match (0..self.n_ranks()).find(|&rank| begin(rank) > begin(rank + 1)) {
            Some(rank) => {
                let problem = "rank_start decreases: the rank ends before it begins".to_owned();
                Err(self.wrong(rank, begin(rank), problem))
            }
            None => Ok(()),
        }
    }

    /// The error for `problem` of operation `op`, which belongs to `rank`.
    pub(crate) fn wrong(&self, rank: usize, op: usize, problem: String) -> ProgramError {
        let operation = op as u64 - self.rank_start[rank];
        ProgramError::Operation { rank: rank as u32, operation, problem }
    }
}

/// Where and when ranks run, and how their traffic is classified.
#[derive(Debug, Default, Clone)]
pub struct Placement {
    /// Node of each rank.
    pub node: Vec<u32>,
    /// Host of each rank: ranks of one host do not use the network between them.
    pub host: Vec<u32>,
    /// Rate at which each rank exchanges messages within its host, Gb/s; empty: that of the settings.
    pub local_gbps: Vec<f64>,
    /// When each rank starts, in picoseconds.
    pub start_ps: Vec<u64>,
    /// Whether each label's traffic belongs to an observed job; used only by the packet engine.
    pub label_observed: Vec<bool>,
    /// Service level of each label's traffic, empty for 0 everywhere; used only by the packet engine.
    pub label_service: Vec<u8>,
    /// Step of a repeated program that messages of each label belong to: from 1 on, 0 for none,
    /// empty if there are no steps. Only the packet engine uses it. The n labels of no step come
    /// first, then n labels for each step. Messages of all steps are sampled by their label modulo
    /// n.
    pub label_step: Vec<u32>,
}

impl Placement {
    /// One more than the largest number of a host.
    pub fn n_hosts(&self) -> usize {
        self.host.iter().max().map_or(0, |&host| host as usize + 1)
    }

    /// Rate at which a rank exchanges messages within its host, Gb/s.
    pub fn local_rate(&self, rank: u32, usual: f64) -> f64 {
        self.local_gbps.get(rank as usize).copied().unwrap_or(usual)
    }

    /// The slowest of these rates.
    pub fn slowest_local_rate(&self, usual: f64) -> f64 {
        self.local_gbps.iter().copied().min_by(f64::total_cmp).unwrap_or(usual)
    }

    /// Checks that this is a placement of `ranks` ranks on nodes below `nodes`.
    ///
    /// # Errors
    /// [`ProgramError::Length`] and [`ProgramError::Node`].
    pub fn check(&self, ranks: usize, nodes: u32) -> Result<(), ProgramError> {
        for (name, length) in [
            ("placement", self.node.len()),
            ("hosts", self.host.len()),
            ("start times", self.start_ps.len()),
        ] {
            if length != ranks {
                return Err(ProgramError::Length { name, length, expected: ranks });
            }
        }
        let rates = self.local_gbps.len();
        if rates != 0 && rates != ranks {
            let name = "rates within hosts";
            return Err(ProgramError::Length { name, length: rates, expected: ranks });
        }
        match self.node.iter().position(|&node| node >= nodes) {
            Some(rank) => {
                let node = self.node[rank];
                Err(ProgramError::Node { rank: rank as u32, node, nodes })
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_checked_against_its_ranks_and_its_fabric() {
        let placement = Placement {
            node: vec![0, 4],
            host: vec![0, 1],
            start_ps: vec![0, 0],
            ..Placement::default()
        };
        assert_eq!(placement.check(2, 5), Ok(()));
        let message = |ranks, nodes| placement.check(ranks, nodes).unwrap_err().to_string();
        assert_eq!(message(2, 4), "rank 1 is placed on node 4, but the fabric has 4 nodes, from 0");
        assert_eq!(message(3, 5), "placement has 2 entries, expected 3");
        let rates = Placement { local_gbps: vec![9.0], ..placement.clone() };
        let error = rates.check(2, 5).unwrap_err().to_string();
        assert_eq!(error, "rates within hosts has 1 entries, expected 2");
    }
}
