//! Matches sends with receives and resolves requests.

use std::collections::HashMap;

use crate::{OpKind, Program, ProgramError};

/// What a rank can wait for; numbers are message numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// One of its sends.
    Send(u32),
    /// One of its receives.
    Receive(u32),
    /// All of its open requests.
    All,
}

/// One operation, ready to execute; numbers are message numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Computation of this many picoseconds.
    Compute(u64),
    /// Posts a send that completes when its last byte has left the adapter.
    Send(u32),
    /// Posts a send that completes with its receive: the message is delivered and the receive posted.
    SynchronousSend(u32),
    /// Posts a send that completes when the acknowledgement of its completed receive has returned.
    AcknowledgedSend(u32),
    /// Posts a receive.
    Receive(u32),
    /// Blocks until a request is complete.
    Wait(Request),
}

impl Op {
    /// The message that it sends, if it is a send.
    pub fn message(&self) -> Option<u32> {
        match *self {
            Op::Send(message) | Op::SynchronousSend(message) | Op::AcknowledgedSend(message) => {
                Some(message)
            }
            Op::Compute(_) | Op::Receive(_) | Op::Wait(_) => None,
        }
    }
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
    /// Size in bytes.
    pub bytes: u64,
    /// Rate at which to pace the send, in megabits per second; 0: no pacing.
    pub pace_mbps: u32,
}

/// A program ready to execute; messages are numbered by sending rank, then operation.
#[derive(Debug)]
pub struct MatchedProgram {
    /// First operation of each rank, and the number of operations as a last entry.
    pub rank_start: Vec<usize>,
    /// Operations of all ranks.
    pub ops: Vec<Op>,
    /// All messages.
    pub messages: Vec<Message>,
}

/// A send or a receive of messages of one sending rank; sorted, sends and receives match in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Endpoint {
    /// The receiving rank.
    dst: u32,
    tag: i64,
    op: usize,
}

impl Program {
    /// Matches sends with receives in the order in which they are posted, and resolves requests.
    ///
    /// # Errors
    /// [`ProgramError`]: an invalid operation, or a pair of ranks whose sends and receives do not match.
    pub fn compile(&self) -> Result<MatchedProgram, ProgramError> {
        self.compile_into(Vec::with_capacity(self.kind.len()))
    }

    /// Like [`Program::compile`], but puts the operations into `ops`, an empty list that the caller
    /// has allocated.
    ///
    /// # Errors
    /// As [`Program::compile`].
    pub fn compile_into(&self, ops: Vec<Op>) -> Result<MatchedProgram, ProgramError> {
        self.check_columns()?;
        let starts = self.check_peers()?;
        let mut message_of_op = vec![u32::MAX; self.kind.len()];
        let mut messages = Vec::with_capacity(starts.last().copied().unwrap_or(0));
        for rank in 0..self.n_ranks() {
            for op in self.sends(rank) {
                message_of_op[op] = messages.len() as u32;
                messages.push(Message {
                    src: rank as u32,
                    dst: self.peer[op] as u32,
                    label: self.label[op],
                    bytes: self.amount[op],
                    pace_mbps: self.pace_mbps.get(op).copied().unwrap_or(0),
                });
            }
        }
        self.match_receives(starts, &mut message_of_op)?;
        let ops = self.resolve_requests(&message_of_op, ops)?;
        let rank_start = self.rank_start.iter().map(|&s| s as usize).collect();
        Ok(MatchedProgram { rank_start, ops, messages })
    }

    /// Label of the receive that each message meets, in the order of [`MatchedProgram::messages`].
    ///
    /// # Errors
    /// As [`Program::compile`], except for requests, which are not looked at.
    pub fn receive_labels(&self) -> Result<Vec<u32>, ProgramError> {
        self.check_columns()?;
        let starts = self.check_peers()?;
        let mut message_of_op = vec![u32::MAX; self.kind.len()];
        let mut messages = 0;
        for rank in 0..self.n_ranks() {
            for op in self.sends(rank) {
                message_of_op[op] = messages;
                messages += 1;
            }
        }
        self.match_receives(starts, &mut message_of_op)?;
        let mut labels = vec![0; messages as usize];
        for rank in 0..self.n_ranks() {
            for op in self.receives(rank) {
                labels[message_of_op[op] as usize] = self.label[op];
            }
        }
        Ok(labels)
    }

    /// Operations of a rank that post a send.
    fn sends(&self, rank: usize) -> impl Iterator<Item = usize> + use<'_> {
        self.operations(rank).filter(|&op| OpKind::sends(self.kind[op]))
    }

    /// Operations of a rank that post a receive.
    fn receives(&self, rank: usize) -> impl Iterator<Item = usize> + use<'_> {
        self.operations(rank).filter(|&op| self.kind[op] == OpKind::Irecv as u8)
    }

    /// Checks that all peers exist. Returns the index of the first receive from each rank in a list of
    /// all receives, sorted by sending rank.
    fn check_peers(&self) -> Result<Vec<usize>, ProgramError> {
        let ranks = self.n_ranks();
        let mut starts = vec![0; ranks + 1];
        for rank in 0..ranks {
            for op in self.operations(rank) {
                let (kind, peer) = (self.kind[op], self.peer[op]);
                if !OpKind::sends(kind) && kind != OpKind::Irecv as u8 {
                    continue;
                }
                if peer < 0 || peer as usize >= ranks {
                    let verb = if OpKind::sends(kind) { "sends to" } else { "receives from" };
                    let problem =
                        format!("{verb} rank {peer}, but the program has {ranks} ranks, from 0");
                    return Err(self.wrong(rank, op, problem));
                }
                starts[peer as usize + 1] += usize::from(kind == OpKind::Irecv as u8);
            }
        }
        for rank in 0..ranks {
            starts[rank + 1] += starts[rank];
        }
        Ok(starts)
    }

    /// Matches every receive with its send, one sending rank at a time.
    ///
    /// The receives from a rank are listed by receiving rank, then operation. With its sends in the same
    /// order they match one by one where tags agree, as they do in most programs; elsewhere both are
    /// sorted by tag.
    fn match_receives(
        &self,
        mut starts: Vec<usize>,
        message_of_op: &mut [u32],
    ) -> Result<(), ProgramError> {
        let ranks = self.n_ranks();
        let mut receives = vec![Endpoint::default(); starts[ranks]];
        for rank in 0..ranks {
            for op in self.receives(rank) {
                let next = &mut starts[self.peer[op] as usize];
                receives[*next] = Endpoint { dst: rank as u32, tag: self.tag[op], op };
                *next += 1;
            }
        }
        let mut sorted = SendsByReceiver::new(ranks);
        let mut begin = 0;
        for (rank, &end) in starts[..ranks].iter().enumerate() {
            let receives = &mut receives[std::mem::replace(&mut begin, end)..end];
            let endpoint = |op| Endpoint { dst: self.peer[op] as u32, tag: self.tag[op], op };
            let sends = sorted.of_rank(self.sends(rank).map(endpoint));
            let same = |(a, b): (&Endpoint, &Endpoint)| (a.dst, a.tag) == (b.dst, b.tag);
            if sends.len() != receives.len() || !sends.iter().zip(&*receives).all(same) {
                sends.sort_unstable();
                receives.sort_unstable();
                check_pairs(rank as u32, sends, receives)?;
            }
            for (send, receive) in sends.iter().zip(receives) {
                message_of_op[receive.op] = message_of_op[send.op];
            }
        }
        Ok(())
    }

    fn resolve_requests(
        &self,
        message_of_op: &[u32],
        mut ops: Vec<Op>,
    ) -> Result<Vec<Op>, ProgramError> {
        let mut requests: HashMap<i32, Request> = HashMap::new();
        for rank in 0..self.n_ranks() {
            requests.clear();
            // Most ranks only use Waitall: then requests need not be looked up.
            let waits_for_one = self.kind[self.operations(rank)].contains(&(OpKind::Wait as u8));
            for op in self.operations(rank) {
                let message = message_of_op[op];
                let request = match self.kind[op] {
                    1 | 5 | 6 => Some(Request::Send(message)),
                    2 => Some(Request::Receive(message)),
                    _ => None,
                };
                if let Some(request) = request.filter(|_| waits_for_one) {
                    requests.insert(self.request[op], request);
                }
                ops.push(match self.kind[op] {
                    0 => Op::Compute(self.amount[op]),
                    1 => Op::Send(message),
                    2 => Op::Receive(message),
                    3 => Op::Wait(*requests.get(&self.request[op]).ok_or_else(|| {
                        let problem = format!(
                            "waits for request {}, which no earlier operation of the rank posts",
                            self.request[op]
                        );
                        self.wrong(rank, op, problem)
                    })?),
                    4 => Op::Wait(Request::All),
                    5 => Op::SynchronousSend(message),
                    6 => Op::AcknowledgedSend(message),
                    kind => {
                        return Err(self.wrong(
                            rank,
                            op,
                            format!("unknown kind {kind}, valid: 0 to 6"),
                        ));
                    }
                });
            }
        }
        Ok(ops)
    }
}

/// Sorts the sends of one rank after another by receiving rank, then operation.
struct SendsByReceiver {
    /// Next place of a send to each rank; zero between calls.
    next: Vec<usize>,
    receivers: Vec<u32>,
    endpoints: Vec<Endpoint>,
    sorted: Vec<Endpoint>,
}

impl SendsByReceiver {
    fn new(ranks: usize) -> Self {
        Self {
            next: vec![0; ranks],
            receivers: Vec::new(),
            endpoints: Vec::new(),
            sorted: Vec::new(),
        }
    }

    /// The sends of a rank, given by operation, sorted.
    fn of_rank(&mut self, sends: impl Iterator<Item = Endpoint>) -> &mut [Endpoint] {
        let Self { next, receivers, endpoints, sorted } = self;
        receivers.clear();
        endpoints.clear();
        endpoints.extend(sends);
        for send in &*endpoints {
            let count = &mut next[send.dst as usize];
            if *count == 0 {
                receivers.push(send.dst);
            }
            *count += 1;
        }
        receivers.sort_unstable();
        let mut end = 0;
        for &receiver in &*receivers {
            let count = std::mem::replace(&mut next[receiver as usize], end);
            end += count;
        }
        sorted.resize(endpoints.len(), Endpoint::default());
        for &send in &*endpoints {
            let place = &mut next[send.dst as usize];
            sorted[*place] = send;
            *place += 1;
        }
        receivers.iter().for_each(|&receiver| next[receiver as usize] = 0);
        sorted
    }
}

/// Checks that every send of rank `src` has a receive and every receive from it has a send.
fn check_pairs(src: u32, sends: &[Endpoint], receives: &[Endpoint]) -> Result<(), ProgramError> {
    let key = |e: &Endpoint| (e.dst, e.tag);
    if sends.iter().map(key).eq(receives.iter().map(key)) {
        return Ok(());
    }
    let unequal = |at: &usize| sends.get(*at).map(key) != receives.get(*at).map(key);
    let at = (0..sends.len().max(receives.len())).find(unequal).unwrap_or(0);
    let first = [sends.get(at), receives.get(at)].into_iter().flatten().map(key).min();
    let (dst, tag) = first.unwrap_or_default();
    let count = |side: &[Endpoint]| side.iter().filter(|e| key(e) == (dst, tag)).count();
    let (sends, receives) = (count(sends), count(receives));
    Err(ProgramError::Unmatched { src, dst, tag, sends, receives })
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
    fn synchronous_sends_match_in_order_with_others() {
        let ops = program(&[
            &[(5, 1, 10, 5, 0), (1, 1, 20, 5, 1), (3, -1, 0, 0, 0)],
            &[(2, 0, 10, 5, 0), (2, 0, 20, 5, 1)],
        ])
        .compile()
        .unwrap()
        .ops;
        let sender = [Op::SynchronousSend(0), Op::Send(1), Op::Wait(Request::Send(0))];
        assert_eq!(ops, [&sender[..], &[Op::Receive(0), Op::Receive(1)]].concat());
    }

    #[test]
    fn receives_find_the_sends_of_several_ranks() {
        let sends: [&[Row]; 2] = [&[(1, 2, 8, 1, 0)], &[(1, 2, 8, 1, 0), (1, 2, 8, 0, 1)]];
        let receives: &[Row] = &[(2, 1, 8, 1, 0), (2, 0, 8, 1, 1), (2, 1, 8, 0, 2)];
        let ops = program(&[sends[0], sends[1], receives]).compile().unwrap().ops;
        assert_eq!(ops[3..], [Op::Receive(1), Op::Receive(0), Op::Receive(2)]);
        let error = program(&[sends[0], sends[1], &receives[..2]]).compile().unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 1 sends 1 messages to rank 2 with tag 0, but rank 2 receives 0"
        );
    }

    #[test]
    fn a_receive_without_a_send_is_named() {
        let error = program(&[&[], &[(2, 0, 8, 7, 0)]]).compile().unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 0 sends 0 messages to rank 1 with tag 7, but rank 1 receives 1"
        );
    }

    #[test]
    fn a_wait_for_an_unposted_request_is_named() {
        let error = program(&[&[(3, -1, 0, 0, 4)]]).compile().unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 0, operation 0: waits for request 4, which no earlier operation of the rank posts"
        );
    }

    #[test]
    fn a_peer_that_does_not_exist_is_named() {
        let error = program(&[&[(1, 7, 8, 0, 0)]]).compile().unwrap_err().to_string();
        assert_eq!(
            error,
            "rank 0, operation 0: sends to rank 7, but the program has 1 ranks, from 0"
        );
    }
}
