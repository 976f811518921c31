//! Sends and receives paired up, requests resolved.

use std::collections::HashMap;

use crate::{OpKind, Program, ProgramError};

/// What a rank can wait for; numbers are of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A send of its own.
    Send(u32),
    /// A receive of its own.
    Receive(u32),
    /// All of its open requests.
    All,
}

/// One operation, ready to execute; numbers are of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Occupies the rank for so many picoseconds.
    Compute(u64),
    /// Posts a send.
    Send(u32),
    /// Posts a receive.
    Receive(u32),
    /// Blocks until a request is complete.
    Wait(Request),
}

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Sending rank.
    pub src: u32,
    /// Receiving rank.
    pub dst: u32,
    /// Label of the send.
    pub label: u32,
    /// Size.
    pub bytes: u64,
    /// Its given rate, 0 if it has none.
    pub pace_mbps: u32,
}

/// A program ready to execute; messages are numbered by sending rank and operation.
#[derive(Debug)]
pub struct Compiled {
    /// First operation of each rank; one entry more than there are ranks.
    pub rank_start: Vec<usize>,
    /// Operations of all ranks.
    pub ops: Vec<Op>,
    /// All messages.
    pub messages: Vec<Message>,
}

/// Sends and receives by (source, destination, tag), in the order they are posted.
struct Endpoint {
    src: u32,
    dst: u32,
    tag: i64,
    op: usize,
}

impl Program {
    /// Pairs sends with receives in the order they are posted, and resolves requests.
    ///
    /// # Errors
    /// [`ProgramError`] names the rank and the operation, or the pair of ranks.
    pub fn compile(&self) -> Result<Compiled, ProgramError> {
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
        for (message, &i) in by_op.iter().enumerate() {
            let Endpoint { src, dst, op, .. } = sends[i];
            message_of_op[op] = message as u32;
            message_of_op[receives[i].op] = message as u32;
            let bytes = self.amount[op];
            let label = self.label[op];
            let pace_mbps = self.pace_mbps.get(op).copied().unwrap_or(0);
            messages.push(Message { src, dst, label, bytes, pace_mbps });
        }
        let ops = self.resolve(&message_of_op)?;
        let rank_start = self.rank_start.iter().map(|&s| s as usize).collect();
        Ok(Compiled { rank_start, ops, messages })
    }

    fn resolve(&self, message_of_op: &[u32]) -> Result<Vec<Op>, ProgramError> {
        let mut ops = Vec::with_capacity(self.kind.len());
        let mut requests: HashMap<i32, Request> = HashMap::new();
        for rank in 0..self.n_ranks() {
            requests.clear();
            for op in self.operations(rank) {
                let message = message_of_op[op];
                ops.push(match self.kind[op] {
                    0 => Op::Compute(self.amount[op]),
                    1 => {
                        requests.insert(self.request[op], Request::Send(message));
                        Op::Send(message)
                    }
                    2 => {
                        requests.insert(self.request[op], Request::Receive(message));
                        Op::Receive(message)
                    }
                    3 => Op::Wait(*requests.get(&self.request[op]).ok_or_else(|| {
                        let problem = format!("waits for unknown request {}", self.request[op]);
                        self.wrong(rank, op, problem)
                    })?),
                    4 => Op::Wait(Request::All),
                    kind => return Err(self.wrong(rank, op, format!("unknown kind {kind}"))),
                });
            }
        }
        Ok(ops)
    }
}

fn pair_up(sends: &[Endpoint], receives: &[Endpoint]) -> Result<(), ProgramError> {
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
            return Err(ProgramError::Unmatched { src, dst, tag, sends, receives });
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
        .compile()
        .unwrap();
        let sizes: Vec<u64> = compiled.messages.iter().map(|m| m.bytes).collect();
        assert_eq!(sizes, [10, 20, 30]);
        assert_eq!(
            compiled.ops[3..],
            [Op::Receive(2), Op::Receive(0), Op::Receive(1), Op::Wait(Request::Receive(1))]
        );
    }

    #[test]
    fn a_receive_nobody_sends_is_named() {
        let error = program(&[&[], &[(2, 0, 8, 7, 0)]]).compile().unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 0 sends 0 messages to rank 1 with tag 7, which receives 1"
        );
    }

    #[test]
    fn a_wait_for_nothing_is_named() {
        let error = program(&[&[(3, -1, 0, 0, 4)]]).compile().unwrap_err();
        assert_eq!(error.to_string(), "rank 0, operation 0: waits for unknown request 4");
    }
}
