//! Ranks handle messages with their processors: see [`crate::host::processors`].

use crate::events::queue::{Event, EventKind};
use crate::host::ranks::HANDLED;
use crate::probe::Probe;
use crate::shard::Shard;

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
