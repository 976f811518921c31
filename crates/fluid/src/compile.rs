//! Rank programs in columns, and the messages their sends and receives pair up to.

use std::collections::HashMap;

use crate::FluidError;

/// Operations of all ranks in columns, rank after rank: `tailback.traffic.program.Program`.
#[derive(Debug, Default, Clone)]
pub struct Program {
    /// First operation of each rank; one entry more than there are ranks.
    pub rank_start: Vec<u64>,
    /// 0 compute, 1 send, 2 receive, 3 wait, 4 wait for all.
    pub kind: Vec<u8>,
    /// Peer rank of sends and receives.
    pub peer: Vec<i32>,
    /// Bytes or picoseconds.
    pub amount: Vec<u64>,
    /// Matching tag.
    pub tag: Vec<i64>,
    /// Request number within the rank.
    pub request: Vec<i32>,
    /// Label of sends and receives.
    pub label: Vec<u32>,
}

/// One operation, ready to execute; numbers are of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Compute(u64),
    Send(u32),
    Receive(u32),
    WaitSend(u32),
    WaitReceive(u32),
    WaitAll,
}

/// One message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope {
    pub src: u32,
    pub dst: u32,
    pub bytes: u64,
    pub label: u32,
}

#[derive(Debug)]
pub(crate) struct Compiled {
    pub rank_start: Vec<usize>,
    pub ops: Vec<Op>,
    pub messages: Vec<Envelope>,
}

/// (source, destination, tag): what must agree for a send and a receive to match.
type Key = (u32, u32, i64);

impl Program {
    /// Number of ranks.
    pub fn n_ranks(&self) -> usize {
        self.rank_start.len().saturating_sub(1)
    }

    /// Pairs sends with receives in the order they are posted; messages are numbered by sending
    /// rank and operation.
    pub(crate) fn compile(&self) -> Result<Compiled, FluidError> {
        self.check()?;
        let mut messages = Vec::new();
        let mut of_op = vec![u32::MAX; self.kind.len()];
        let mut sent: HashMap<Key, Vec<u32>> = HashMap::new();
        self.each(1, |rank, peer, op| {
            of_op[op] = messages.len() as u32;
            sent.entry((rank, peer, self.tag[op])).or_default().push(of_op[op]);
            let (bytes, label) = (self.amount[op], self.label[op]);
            messages.push(Envelope { src: rank, dst: peer, bytes, label });
        })?;
        let mut received: HashMap<Key, usize> = HashMap::new();
        self.each(2, |rank, peer, op| {
            let key = (peer, rank, self.tag[op]);
            let nth = received.entry(key).or_default();
            if let Some(&message) = sent.get(&key).and_then(|list| list.get(*nth)) {
                of_op[op] = message;
            }
            *nth += 1;
        })?;
        let mut wrong: Vec<Key> = received.keys().chain(sent.keys()).copied().collect();
        wrong.retain(|key| {
            sent.get(key).map_or(0, Vec::len) != received.get(key).copied().unwrap_or(0)
        });
        if let Some(&(src, dst, tag)) = wrong.iter().min() {
            let sends = sent.get(&(src, dst, tag)).map_or(0, Vec::len);
            let receives = received.get(&(src, dst, tag)).copied().unwrap_or(0);
            return Err(FluidError::Unmatched { src, dst, tag, sends, receives });
        }
        let ops = self.resolve(&of_op)?;
        let rank_start = self.rank_start.iter().map(|&s| s as usize).collect();
        Ok(Compiled { rank_start, ops, messages })
    }

    /// Calls `visit(rank, peer, operation)` for every operation of `kind`.
    fn each(&self, kind: u8, mut visit: impl FnMut(u32, u32, usize)) -> Result<(), FluidError> {
        let ranks = self.n_ranks();
        for rank in 0..ranks {
            for op in self.rank_start[rank] as usize..self.rank_start[rank + 1] as usize {
                if self.kind[op] != kind {
                    continue;
                }
                let peer = self.peer[op];
                if peer < 0 || peer as usize >= ranks {
                    let problem = format!("peer {peer} does not exist among {ranks} ranks");
                    return Err(self.wrong(rank, op, problem));
                }
                visit(rank as u32, peer as u32, op);
            }
        }
        Ok(())
    }

    fn resolve(&self, of_op: &[u32]) -> Result<Vec<Op>, FluidError> {
        let mut ops = Vec::with_capacity(self.kind.len());
        let mut requests: HashMap<i32, Op> = HashMap::new();
        for rank in 0..self.n_ranks() {
            requests.clear();
            let first = self.rank_start[rank] as usize;
            let end = self.rank_start[rank + 1] as usize;
            for (op, &message) in of_op.iter().enumerate().take(end).skip(first) {
                ops.push(match self.kind[op] {
                    0 => Op::Compute(self.amount[op]),
                    1 => {
                        requests.insert(self.request[op], Op::WaitSend(message));
                        Op::Send(message)
                    }
                    2 => {
                        requests.insert(self.request[op], Op::WaitReceive(message));
                        Op::Receive(message)
                    }
                    3 => *requests.get(&self.request[op]).ok_or_else(|| {
                        let problem = format!("waits for unknown request {}", self.request[op]);
                        self.wrong(rank, op, problem)
                    })?,
                    4 => Op::WaitAll,
                    kind => return Err(self.wrong(rank, op, format!("unknown kind {kind}"))),
                });
            }
        }
        Ok(ops)
    }

    fn check(&self) -> Result<(), FluidError> {
        let expected = self.kind.len();
        for (name, length) in [
            ("peer", self.peer.len()),
            ("amount", self.amount.len()),
            ("tag", self.tag.len()),
            ("request", self.request.len()),
            ("label", self.label.len()),
            ("rank_start's last rank", self.rank_start.last().map_or(0, |&last| last as usize)),
        ] {
            if length != expected {
                return Err(FluidError::Length { name, length, expected });
            }
        }
        if !self.rank_start.is_sorted() {
            let (name, place) = ("rank_start", "the program".to_owned());
            let (value, valid) = ("not ascending".to_owned(), "ascending");
            return Err(FluidError::Value { name, place, value, valid });
        }
        Ok(())
    }

    fn wrong(&self, rank: usize, op: usize, problem: String) -> FluidError {
        let operation = op as u64 - self.rank_start[rank];
        FluidError::Program { rank: rank as u32, operation, problem }
    }
}
