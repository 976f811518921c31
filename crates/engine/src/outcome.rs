//! What a run leaves behind, in columns.

use tailback_telemetry::{Key, Sums};

use crate::probe::Truth;
use crate::program::Envelope;
use crate::ranks::{MessageState, RankState};

/// Everything a run produced.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Outcome {
    /// One entry a message, in order of sending rank and operation.
    pub messages: MessageLog,
    /// One entry a rank.
    pub ranks: Vec<RankLog>,
    /// Data packets delivered.
    pub packets: u64,
    /// Switches visited by all packets, handshakes included.
    pub packet_hops: u64,
    /// Events processed.
    pub events: u64,
    /// When the last event happened.
    pub end_ps: u64,
    /// Length of a time window; 0 when nothing was measured.
    pub window_ps: u64,
    /// Sums of the receivers, sorted by key.
    pub samples: Vec<(Key, Sums)>,
    /// (window, link, what really crossed it), sorted.
    pub truth: Vec<(u32, u32, Truth)>,
}

/// When a rank finished and what it did until then.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RankLog {
    /// When its last operation completed.
    pub finish_ps: u64,
    /// Time computing.
    pub compute_ps: u64,
    /// Time blocked in a wait.
    pub wait_ps: u64,
}

impl From<&RankState> for RankLog {
    fn from(state: &RankState) -> Self {
        Self { finish_ps: state.finish_ps, compute_ps: state.compute_ps, wait_ps: state.wait_ps }
    }
}

/// The message log, column by column.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MessageLog {
    /// Sending rank.
    pub src: Vec<u32>,
    /// Receiving rank.
    pub dst: Vec<u32>,
    /// Size.
    pub bytes: Vec<u64>,
    /// Label.
    pub label: Vec<u32>,
    /// When its send was posted.
    pub post_ps: Vec<u64>,
    /// When its first byte left.
    pub start_ps: Vec<u64>,
    /// When its last byte arrived.
    pub arrival_ps: Vec<u64>,
    /// Data packets.
    pub packets: Vec<u32>,
    /// Switches visited by them.
    pub switch_hops: Vec<u32>,
}

impl MessageLog {
    pub(crate) fn new(envelopes: &[Envelope], states: &[MessageState]) -> Self {
        Self {
            src: envelopes.iter().map(|m| m.src).collect(),
            dst: envelopes.iter().map(|m| m.dst).collect(),
            bytes: envelopes.iter().map(|m| m.bytes).collect(),
            label: envelopes.iter().map(|m| m.label).collect(),
            post_ps: states.iter().map(|m| m.post_ps).collect(),
            start_ps: states.iter().map(|m| m.start_ps).collect(),
            arrival_ps: states.iter().map(|m| m.arrival_ps).collect(),
            packets: states.iter().map(|m| m.packets).collect(),
            switch_hops: states.iter().map(|m| m.switch_hops).collect(),
        }
    }
}
