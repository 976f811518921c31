//! Time of its processor that a rank spends on each message: the overhead `o` of LogGP.
//!
//! Messages up to the eager limit are copied as well, within a host by its memory. A send takes this
//! time before the message starts. A receive takes it when the message has arrived, in the order of
//! arrival; of messages that arrive while the rank is in no wait, at its next wait.

use crate::settings::Settings;

/// The processor of a rank.
#[derive(Debug, Clone, Copy, Default)]
pub struct Processor {
    /// When it has handled all messages that arrived in a wait.
    pub free_ps: u64,
    /// Time that messages take which have arrived, but were not handled.
    pub unhandled_ps: u64,
}

/// The processors of the ranks of a shard.
#[derive(Debug, Clone)]
pub struct Processors {
    overhead_ps: u64,
    copy_ps_per_byte: f64,
    eager_bytes: u64,
    /// By its number in the shard.
    pub of_rank: Vec<Processor>,
}

impl Processors {
    /// Those of so many ranks; `None` if messages take no time of processors.
    pub fn new(settings: &Settings, ranks: usize) -> Option<Self> {
        let &Settings { overhead_ps, eager_bytes, copy_gbps, .. } = settings;
        let copy_ps_per_byte = if copy_gbps > 0.0 { 8000.0 / copy_gbps } else { 0.0 };
        let of_rank = vec![Processor::default(); ranks];
        (overhead_ps > 0 || copy_gbps > 0.0).then_some(Self {
            overhead_ps,
            copy_ps_per_byte,
            eager_bytes,
            of_rank,
        })
    }

    /// Time that a message of so many bytes takes of either of its processors.
    pub fn message_ps(&self, bytes: u64) -> u64 {
        let copied = if bytes <= self.eager_bytes { bytes } else { 0 };
        self.overhead_ps + (copied as f64 * self.copy_ps_per_byte).round() as u64
    }
}
