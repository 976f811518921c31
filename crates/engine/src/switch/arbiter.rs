//! State of outputs that are arbitrated one packet at a time: waiting packets and turns.

use crate::network::cable::Cable;
use crate::network::link::NEVER;

/// Queue of packets from one input that wait for one lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputQueue {
    pub(super) input: u16,
    pub(super) head: u32,
    pub(super) tail: u32,
}

/// Queues of packets that wait for one lane.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneQueues {
    /// Inputs with waiting packets, in order of port number.
    pub(super) lines: Vec<InputQueue>,
    /// Input served last.
    pub(super) last: u16,
}

/// State of the turns at an output.
#[derive(Debug, Clone, Default)]
pub(super) struct OutputTurn {
    /// Lane served last, and the remaining bytes of its weight.
    pub(super) lane: u8,
    pub(super) left: u32,
    /// Packets waiting for any lane.
    pub(super) waiting: u32,
    /// When the next arbitration event is due, [`NEVER`] if none is.
    pub(super) due: u64,
}

/// Arbitration state of all outputs of a shard.
#[derive(Debug, Default)]
pub(crate) struct Arbiter {
    pub(super) waiting: Vec<LaneQueues>,
    pub(super) turns: Vec<OutputTurn>,
    /// When the crossbar has read the current packet of each input, and the cable of the link
    /// that leads there.
    pub(super) input_free: Vec<u64>,
    pub(super) inputs: Vec<Cable>,
}

impl Arbiter {
    /// For links with `lanes` lanes each; `inputs` are the cables of the reverse links.
    pub fn new(inputs: Vec<Cable>, lanes: usize) -> Self {
        let links = inputs.len();
        Self {
            waiting: vec![LaneQueues::default(); links * lanes],
            turns: vec![OutputTurn { due: NEVER, ..OutputTurn::default() }; links],
            input_free: vec![0; links],
            inputs,
        }
    }

    /// First packet of every queue, with the lane it waits for.
    pub fn heads(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let lanes = self.waiting.iter().enumerate();
        lanes.flat_map(|(lane, w)| w.lines.iter().map(move |line| (lane as u32, line.head)))
    }
}
