//! A matched step executed several times, without matching it again.

use crate::{MatchedProgram, Message, Op, Request};

/// A matched program as one step that all ranks execute several times.
///
/// Both ends of every message lie in the same step, so sends and receives match step by step.
/// Messages of all steps are numbered as in the full program: by sending rank, then operation.
#[derive(Debug)]
pub struct RepeatedStep<'p> {
    step: &'p MatchedProgram,
    times: usize,
    /// First message that each rank sends in a step, and the number of messages as a last entry.
    sent: Vec<usize>,
}

impl<'p> RepeatedStep<'p> {
    /// Executes `step` so often.
    pub fn new(step: &'p MatchedProgram, times: usize) -> Self {
        let ranks = step.rank_start.len().saturating_sub(1);
        let before = |rank: usize| step.messages.partition_point(|m| (m.src as usize) < rank);
        Self { step, times, sent: (0..=ranks).map(before).collect() }
    }

    /// First operation of each rank, and the number of operations as a last entry.
    pub fn rank_start(&self) -> Vec<usize> {
        self.step.rank_start.iter().map(|&start| start * self.times).collect()
    }

    /// Appends the operations of all ranks to `ops`.
    pub fn push_ops(&self, ops: &mut Vec<Op>) {
        // Number of each message of the step in its first execution, and its increment per
        // execution.
        let place = |(number, message): (usize, &Message)| {
            let (first, end) =
                (self.sent[message.src as usize], self.sent[message.src as usize + 1]);
            ((first * (self.times - 1) + number) as u32, (end - first) as u32)
        };
        let places: Vec<_> = self.step.messages.iter().enumerate().map(place).collect();
        for bounds in self.step.rank_start.windows(2) {
            let ops_of_rank = &self.step.ops[bounds[0]..bounds[1]];
            for time in 0..self.times as u32 {
                let moved = |message: u32| {
                    let (first, stride) = places[message as usize];
                    first + stride * time
                };
                ops.extend(ops_of_rank.iter().map(|op| op.with_message(moved)));
            }
        }
    }

    /// The messages; `label_offset` is added to the labels of each step.
    pub fn messages<'s>(&'s self, label_offset: &'s [u32]) -> impl Iterator<Item = Message> + 's {
        assert_eq!(label_offset.len(), self.times, "one offset for each time");
        self.sent.windows(2).flat_map(move |bounds| {
            let messages_of_rank = &self.step.messages[bounds[0]..bounds[1]];
            label_offset.iter().flat_map(move |offset| {
                messages_of_rank
                    .iter()
                    .map(move |&message| Message { label: message.label + offset, ..message })
            })
        })
    }
}

impl Op {
    /// The same operation with another message.
    fn with_message(&self, other: impl Fn(u32) -> u32) -> Self {
        match *self {
            Self::Compute(_) | Self::Wait(Request::All) => *self,
            Self::Send(message) => Self::Send(other(message)),
            Self::SynchronousSend(message) => Self::SynchronousSend(other(message)),
            Self::AcknowledgedSend(message) => Self::AcknowledgedSend(other(message)),
            Self::Receive(message) => Self::Receive(other(message)),
            Self::Wait(Request::Send(message)) => Self::Wait(Request::Send(other(message))),
            Self::Wait(Request::Receive(message)) => Self::Wait(Request::Receive(other(message))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RepeatedStep;
    use crate::Program;

    /// Kind, peer, amount, tag, request.
    type Row = (u8, i32, u64, i64, i32);

    /// Three ranks; a step has all kinds of operations, and rank 1 sends two messages in it.
    fn program(times: u32) -> Program {
        let step: [&[Row]; 3] = [
            &[
                (0, -1, 50, 0, -1),
                (2, 1, 8, 3, 0),
                (1, 1, 9, 4, 1),
                (3, -1, 0, 0, 0),
                (4, -1, 0, 0, -1),
            ],
            &[
                (5, 2, 7, 0, 0),
                (1, 0, 8, 3, 1),
                (2, 0, 9, 4, 2),
                (3, -1, 0, 0, 0),
                (3, -1, 0, 0, 2),
            ],
            &[(2, 1, 7, 0, 0), (6, 2, 5, 1, 1), (2, 2, 5, 1, 2), (4, -1, 0, 0, -1)],
        ];
        let mut out = Program { rank_start: vec![0], ..Program::default() };
        for rank in step {
            for time in 0..times {
                for &(kind, peer, amount, tag, request) in rank {
                    out.kind.push(kind);
                    out.peer.push(peer);
                    out.amount.push(amount);
                    out.tag.push(tag);
                    out.request.push(request);
                    out.label.push(time * 10 + kind as u32);
                }
            }
            out.rank_start.push(out.kind.len() as u64);
        }
        out
    }

    #[test]
    fn repetition_equals_matching_every_step() {
        let step = program(1).compile().unwrap();
        let full = program(4).compile().unwrap();
        let repeated = RepeatedStep::new(&step, 4);
        assert_eq!(repeated.rank_start(), full.rank_start);
        let mut ops = Vec::new();
        repeated.push_ops(&mut ops);
        assert_eq!(ops, full.ops);
        let messages: Vec<_> = repeated.messages(&[0, 10, 20, 30]).collect();
        assert_eq!(messages, full.messages);
    }
}
