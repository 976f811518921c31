//! Rank programs: operations in columns, and the messages they pair up to.

use std::collections::HashMap;

use crate::EngineError;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// Occupies the rank.
    Compute = 0,
    /// Posts a send.
    Isend = 1,
    /// Posts a receive.
    Irecv = 2,
    /// Blocks until one request is complete.
    Wait = 3,
    /// Blocks until all open requests are complete.
    Waitall = 4,
}

/// Operations of all ranks in columns, rank after rank, as they come from outside.
#[derive(Debug, Default, Clone)]
pub struct Program {
    /// First operation of each rank; one entry more than there are ranks.
    pub rank_start: Vec<u64>,
    /// [`OpKind`] as a number.
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
    /// Rate of each send in megabits per second, 0 where it has none; empty: no send has one.
    pub pace_mbps: Vec<u32>,
}

/// Where ranks run and what their traffic belongs to.
#[derive(Debug, Default, Clone)]
pub struct Placement {
    /// Node of each rank.
    pub node: Vec<u32>,
    /// Host of each rank: ranks of one host do not use the network between them.
    pub host: Vec<u32>,
    /// When each rank starts.
    pub start_ps: Vec<u64>,
    /// Whether traffic of each label is of an observed job.
    pub label_observed: Vec<bool>,
    /// Service level of each label's traffic; empty: 0 for all.
    pub label_service: Vec<u8>,
}

/// One operation, ready to execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Compute(u64),
    Send(u32),
    Receive(u32),
    WaitSend(u32),
    WaitReceive(u32),
    WaitAll,
}

/// One message: what does not change while it travels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Envelope {
    pub src: u32,
    pub dst: u32,
    pub label: u32,
    pub bytes: u64,
    /// Number of its first packet over the whole run: what random numbers are drawn by.
    pub first_packet: u64,
    /// Its given rate, 0 if it has none.
    pub pace_mbps: u32,
}

#[derive(Debug)]
pub(crate) struct Compiled {
    pub rank_start: Vec<usize>,
    pub ops: Vec<Op>,
    pub messages: Vec<Envelope>,
}

/// Sends and receives by (source, destination, tag), in the order they are posted.
struct Endpoint {
    src: u32,
    dst: u32,
    tag: i64,
    op: usize,
}

impl Program {
    /// Number of ranks.
    pub fn n_ranks(&self) -> usize {
        self.rank_start.len().saturating_sub(1)
    }

    fn operations(&self, rank: usize) -> std::ops::Range<usize> {
        self.rank_start[rank] as usize..self.rank_start[rank + 1] as usize
    }

    /// Pairs sends with receives and resolves requests.
    pub(crate) fn compile(&self, packet_bytes: u32) -> Result<Compiled, EngineError> {
        self.check_columns()?;
        let ranks = self.n_ranks();
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for rank in 0..ranks {
            for op in self.operations(rank) {
                let kind = self.kind[op];
                if kind != OpKind::Isend as u8 && kind != OpKind::Irecv as u8 {
                    continue;
                }
                let peer = self.peer[op];
                if peer < 0 || peer as usize >= ranks {
                    let problem = format!("peer {peer} does not exist among {ranks} ranks");
                    return Err(self.wrong(rank, op, problem));
                }
                let (me, peer, tag) = (rank as u32, peer as u32, self.tag[op]);
                if kind == OpKind::Isend as u8 {
                    sends.push(Endpoint { src: me, dst: peer, tag, op });
                } else {
                    receives.push(Endpoint { src: peer, dst: me, tag, op });
                }
            }
        }
        let order = |e: &Endpoint| (e.src, e.dst, e.tag, e.op);
        sends.sort_unstable_by_key(order);
        receives.sort_unstable_by_key(order);
        pair_up(&sends, &receives)?;
        // Messages are numbered by sending rank and operation.
        let mut by_op: Vec<usize> = (0..sends.len()).collect();
        by_op.sort_unstable_by_key(|&i| sends[i].op);
        let mut message_of_op = vec![u32::MAX; self.kind.len()];
        let mut messages = Vec::with_capacity(sends.len());
        let mut first_packet = 0;
        for (message, &i) in by_op.iter().enumerate() {
            let Endpoint { src, dst, op, .. } = sends[i];
            message_of_op[op] = message as u32;
            message_of_op[receives[i].op] = message as u32;
            let bytes = self.amount[op];
            let label = self.label[op];
            let pace_mbps = self.pace_mbps.get(op).copied().unwrap_or(0);
            messages.push(Envelope { src, dst, label, bytes, first_packet, pace_mbps });
            first_packet += bytes.div_ceil(packet_bytes.into()).max(1);
        }
        let ops = self.resolve(&message_of_op)?;
        let rank_start = self.rank_start.iter().map(|&s| s as usize).collect();
        Ok(Compiled { rank_start, ops, messages })
    }

    fn resolve(&self, message_of_op: &[u32]) -> Result<Vec<Op>, EngineError> {
        let mut ops = Vec::with_capacity(self.kind.len());
        let mut requests: HashMap<i32, Op> = HashMap::new();
        for rank in 0..self.n_ranks() {
            requests.clear();
            for op in self.operations(rank) {
                let message = message_of_op[op];
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

    fn check_columns(&self) -> Result<(), EngineError> {
        let n = self.kind.len();
        let fits = [
            self.peer.len(),
            self.amount.len(),
            self.tag.len(),
            self.request.len(),
            self.label.len(),
            self.rank_start.last().copied().unwrap_or(0) as usize,
        ];
        if fits.iter().any(|&length| length != n) || !self.rank_start.is_sorted() {
            let problem = "columns of different length".to_owned();
            return Err(EngineError::Program { rank: 0, operation: 0, problem });
        }
        Ok(())
    }

    fn wrong(&self, rank: usize, op: usize, problem: String) -> EngineError {
        let operation = op as u64 - self.rank_start[rank];
        EngineError::Program { rank: rank as u32, operation, problem }
    }
}

fn pair_up(sends: &[Endpoint], receives: &[Endpoint]) -> Result<(), EngineError> {
    let key = |e: &Endpoint| (e.src, e.dst, e.tag);
    let mut at = 0;
    while at < sends.len().max(receives.len()) {
        let same = match (sends.get(at), receives.get(at)) {
            (Some(send), Some(receive)) => key(send) == key(receive),
            _ => false,
        };
        if !same {
            let first = [sends.get(at), receives.get(at)].into_iter().flatten().map(key).min();
            let Some((src, dst, tag)) = first else { break };
            let count =
                |side: &[Endpoint]| side.iter().filter(|e| key(e) == (src, dst, tag)).count();
            let (sends, receives) = (count(sends), count(receives));
            return Err(EngineError::Unmatched { src, dst, tag, sends, receives });
        }
        at += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, peer, amount, tag, request.
    type Row = (u8, i32, u64, i64, i32);

    fn program(ops: &[&[Row]]) -> Program {
        let mut program = Program { rank_start: vec![0], ..Program::default() };
        for rank in ops {
            for &(kind, peer, amount, tag, request) in *rank {
                program.kind.push(kind);
                program.peer.push(peer);
                program.amount.push(amount);
                program.tag.push(tag);
                program.request.push(request);
                program.label.push(0);
            }
            program.rank_start.push(program.kind.len() as u64);
        }
        program
    }

    #[test]
    fn messages_of_one_tag_match_in_order() {
        let compiled = program(&[
            &[(1, 1, 10, 5, 0), (1, 1, 20, 5, 1), (1, 1, 30, 6, 2)],
            &[(2, 0, 30, 6, 0), (2, 0, 10, 5, 1), (2, 0, 20, 5, 2), (3, -1, 0, 0, 2)],
        ])
        .compile(4096)
        .unwrap();
        let sizes: Vec<u64> = compiled.messages.iter().map(|m| m.bytes).collect();
        assert_eq!(sizes, [10, 20, 30]);
        assert_eq!(
            compiled.ops[3..],
            [Op::Receive(2), Op::Receive(0), Op::Receive(1), Op::WaitReceive(1)]
        );
    }

    #[test]
    fn a_receive_nobody_sends_is_named() {
        let error = program(&[&[], &[(2, 0, 8, 7, 0)]]).compile(4096).unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 0 sends 0 messages to rank 1 with tag 7, which receives 1"
        );
    }

    #[test]
    fn a_wait_for_nothing_is_named() {
        let error = program(&[&[(3, -1, 0, 0, 4)]]).compile(4096).unwrap_err();
        assert_eq!(error.to_string(), "rank 0, operation 0: waits for unknown request 4");
    }
}
