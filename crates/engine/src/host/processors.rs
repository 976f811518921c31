//! Time of its processor that a rank spends on each message: the overhead `o` of LogGP.
//!
//! Messages up to the eager limit are copied as well, within a host by its memory. A send takes this
//! time before the message starts. A receive takes it when the message has arrived, in the order of
//! arrival; of messages that arrive while the rank is in no wait, at its next wait.

use crate::events::queue::{Event, EventKind};
use crate::host::ranks::HANDLED;
use crate::probe::Probe;
use crate::settings::Settings;
use crate::shard::Shard;

/// The processor of a rank.
#[derive(Debug, Clone, Copy, Default)]
struct Processor {
    /// When it has handled all messages that arrived in a wait.
    free_ps: u64,
    /// Time that messages take which have arrived, but were not handled.
    unhandled_ps: u64,
}

/// The processors of the ranks of a shard.
#[derive(Debug, Clone)]
pub struct Processors {
    overhead_ps: u64,
    copy_ps_per_byte: f64,
    eager_bytes: u64,
    of_rank: Vec<Processor>,
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
    fn message_ps(&self, bytes: u64) -> u64 {
        let copied = if bytes <= self.eager_bytes { bytes } else { 0 };
        self.overhead_ps + (copied as f64 * self.copy_ps_per_byte).round() as u64
    }
}

impl<P: Probe> Shard<'_, P> {
    /// Time of its processor that the send, or the receive, of a message takes.
    #[inline]
    pub(super) fn processor_ps(&self, message: u32) -> u64 {
        let Some(processors) = &self.processors else { return 0 };
        let envelope = &self.model.program.messages[message as usize];
        processors.message_ps(if self.model.same_host(envelope) { 0 } else { envelope.bytes })
    }

    /// All packets of a message have arrived, and its receiver may have to handle it first.
    pub(super) fn on_arrived(&mut self, message: u32) {
        let message_ps = self.processor_ps(message);
        if let Some(processors) = &mut self.processors {
            let dst = self.model.program.messages[message as usize].dst;
            let r = self.model.local_rank(dst) as usize;
            let processor = &mut processors.of_rank[r];
            let posted = self.receives[self.model.receive_of(message) as usize].posted;
            if posted && self.ranks[r].is_blocked() {
                processor.free_ps = processor.free_ps.max(self.now) + message_ps;
                let handled = Event::new(processor.free_ps, EventKind::Message, message, HANDLED);
                return self.queue.push(handled);
            }
            processor.unhandled_ps += message_ps;
        }
        self.message_arrived(message);
    }

    /// A rank in a wait handles what has arrived; returns when it is done.
    #[inline]
    pub(super) fn handle_arrived(&mut self, rank: u32) -> u64 {
        let Some(processors) = &mut self.processors else { return self.now };
        let processor = &mut processors.of_rank[self.model.local_rank(rank) as usize];
        processor.free_ps = processor.free_ps.max(self.now) + processor.unhandled_ps;
        processor.unhandled_ps = 0;
        processor.free_ps
    }

    /// Continues a rank now, or when its processor is free.
    #[inline]
    pub(super) fn continue_rank(&mut self, rank: u32) {
        let free = match &self.processors {
            Some(processors) => processors.of_rank[self.model.local_rank(rank) as usize].free_ps,
            None => 0,
        };
        if free <= self.now {
            return self.advance_rank(rank);
        }
        self.queue.push(Event::new(free, EventKind::Rank, rank, 0));
    }
}
