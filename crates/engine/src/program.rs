//! Rank programs in the engine's numbering.

use tailback_program::{MatchedProgram, Message, Op, ProgramError, RepeatedStep};

use crate::intrinsics::{collect_with_huge_pages, with_huge_pages};

pub(crate) use tailback_program::{Placement, Program};

/// The envelope of a message: everything that stays the same while it is sent.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Envelope {
    pub src: u32,
    pub dst: u32,
    pub label: u32,
    pub bytes: u64,
    /// Number of its first packet in the run; random numbers are drawn by packet number.
    pub first_packet: u64,
    /// Its assigned rate, 0 if it has none.
    pub pace_mbps: u32,
}

const _: () = assert!(size_of::<Envelope>() == 32);

#[derive(Debug)]
pub(crate) struct CompiledProgram {
    pub rank_start: Vec<usize>,
    pub ops: Vec<Op>,
    pub messages: Vec<Envelope>,
    /// Whether a send of it is synchronous.
    pub synchronous: bool,
    /// Whether the receiver acknowledges each message; empty if it acknowledges none.
    acknowledged: Vec<bool>,
}

/// Matches sends with receives, resolves requests, and numbers the packets.
pub(crate) fn compile(
    program: &Program,
    packet_bytes: u32,
) -> Result<CompiledProgram, ProgramError> {
    // Ranks continue, and messages arrive, in random order.
    let compiled = program.compile_into(with_huge_pages(program.kind.len()))?;
    let MatchedProgram { rank_start, ops, messages } = compiled;
    let number = messages.len();
    Ok(CompiledProgram::new(rank_start, ops, messages.into_iter(), number, packet_bytes))
}

/// The same of a program that is one step, and is repeated: it is matched once. To the labels of each
/// step its offset is added.
pub(crate) fn compile_repeated(
    program: &Program,
    packet_bytes: u32,
    label_offset: &[u32],
) -> Result<CompiledProgram, ProgramError> {
    let (compiled, times) = (program.compile()?, label_offset.len());
    let repeated = RepeatedStep::new(&compiled, times);
    let mut ops = with_huge_pages(compiled.ops.len() * times);
    repeated.push_ops(&mut ops);
    let (number, messages) = (compiled.messages.len() * times, repeated.messages(label_offset));
    Ok(CompiledProgram::new(repeated.rank_start(), ops, messages, number, packet_bytes))
}

/// See [`CompiledProgram::acknowledged`].
fn acknowledged(ops: &[Op], messages: usize) -> Vec<bool> {
    let mut out = Vec::new();
    for op in ops {
        if let Op::AcknowledgedSend(message) = op {
            out.resize(messages, false);
            out[*message as usize] = true;
        }
    }
    out
}

impl CompiledProgram {
    /// Of matched operations and their `number` messages.
    fn new(
        rank_start: Vec<usize>,
        ops: Vec<Op>,
        messages: impl Iterator<Item = Message>,
        number: usize,
        packet_bytes: u32,
    ) -> Self {
        let mut first_packet = 0;
        let envelope = |message: Message| {
            let Message { src, dst, label, bytes, pace_mbps } = message;
            let first = first_packet;
            first_packet += bytes.div_ceil(packet_bytes.into()).max(1);
            Envelope { src, dst, label, bytes, first_packet: first, pace_mbps }
        };
        let messages = collect_with_huge_pages(number, messages.map(envelope));
        let synchronous = ops.iter().any(|op| matches!(op, Op::SynchronousSend(_)));
        let acknowledged = acknowledged(&ops, number);
        Self { rank_start, ops, messages, synchronous, acknowledged }
    }

    /// Whether a node may have to react to a receive at the instant it is posted.
    pub fn replies_at_once(&self) -> bool {
        self.synchronous || !self.acknowledged.is_empty()
    }

    /// Whether the receiver acknowledges `message`.
    pub fn acknowledges(&self, message: u32) -> bool {
        self.acknowledged.get(message as usize).is_some_and(|&acknowledged| acknowledged)
    }
}

impl Envelope {
    /// The message as the program defines it.
    pub fn message(&self) -> Message {
        let Self { src, dst, label, bytes, pace_mbps, .. } = *self;
        Message { src, dst, label, bytes, pace_mbps }
    }
}
