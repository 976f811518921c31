//! Packets that wait at outputs that are given out one packet at a time, and whose turn it is.

use crate::network::cable::Cable;
use crate::network::link::NEVER;

/// Packets from one input that wait for one lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputQueue {
    pub(super) input: u16,
    pub(super) head: u32,
    pub(super) tail: u32,
}

/// Packets that wait for one lane.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneQueues {
    /// Inputs with packets, in order of their number.
    pub(super) lines: Vec<InputQueue>,
    /// Input served last.
    pub(super) last: u16,
}

/// Whose turn it is at one output.
#[derive(Debug, Clone, Default)]
pub(super) struct OutputTurn {
    /// Lane served last, and what is left of its weight in bytes.
    pub(super) lane: u8,
    pub(super) left: u32,
    /// Packets that wait for any lane.
    pub(super) waiting: u32,
    /// When an event is due that gives the output out again, [`NEVER`] if none is.
    pub(super) due: u64,
}

/// All lines of a shard.
#[derive(Debug, Default)]
pub(crate) struct Arbiter {
    pub(super) waiting: Vec<LaneQueues>,
    pub(super) turns: Vec<OutputTurn>,
    /// When the crossbar has taken what it is taking from each input, and the link that leads there.
    pub(super) input_free: Vec<u64>,
    pub(super) inputs: Vec<Cable>,
}

impl Arbiter {
    /// For links with so many lanes each; `inputs` are those that run back.
    pub fn new(inputs: Vec<Cable>, lanes: usize) -> Self {
        let links = inputs.len();
        Self {
            waiting: vec![LaneQueues::default(); links * lanes],
            turns: vec![OutputTurn { due: NEVER, ..OutputTurn::default() }; links],
            input_free: vec![0; links],
            inputs,
        }
    }

    /// First packet of every line, with the lane waited for.
    pub fn heads(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let lanes = self.waiting.iter().enumerate();
        lanes.flat_map(|(lane, w)| w.lines.iter().map(move |line| (lane as u32, line.head)))
    }
}
