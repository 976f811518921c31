//! Prefetching: requests the memory that the next events of a window need, and computes the routes
//! of their packets as far as they do not depend on load.
//!
//! Upcoming events pass through a pipeline in blocks; each time a block has been processed, every
//! stage advances by one block. A stage reads the memory that the one before has requested, and requests what its contents
//! refer to. A block is split by event kind once, without unpredictable branches.

use crate::events::queue::EventKind;
use crate::network::link::Lane;
use crate::probe::Probe;
use crate::shard::Shard;
use crate::shard::upcoming::{BLOCK, LOOKAHEAD_EVENTS, Upcoming};

/// Events of a window for which the pipeline would take longer than it saves.
const TOO_FEW_EVENTS: usize = 2;

impl<P: Probe> Shard<'_, P> {
    /// Starts the pipeline in a window that has just been opened, unless it has hardly any events.
    pub fn begin_prefetch(&mut self) {
        if self.queue.upcoming(TOO_FEW_EVENTS, 1).next().is_none() {
            return self.upcoming.stop();
        }
        self.upcoming.clear();
        (0..4).for_each(|block| self.prefetch_entities(block));
        (0..3).for_each(|block| self.prefetch_packets(block));
        (0..2).for_each(|block| self.find_routes(block));
        (0..2).for_each(|block| self.prefetch_ranks(block));
        self.prefetch_operations(0);
        self.prefetch_destinations(0);
    }

    /// Advances the pipeline when a block has been processed.
    #[inline(always)]
    pub fn continue_prefetch(&mut self) {
        if self.queue.taken() == self.upcoming.events_begun {
            let block = self.upcoming.events_begun / BLOCK;
            self.upcoming.events_begun += BLOCK;
            self.prefetch_entities(block + 4);
            self.prefetch_packets(block + 3);
            self.find_routes(block + 2);
            self.prefetch_ranks(block + 2);
            self.prefetch_operations(block + 1);
            self.prefetch_destinations(block + 1);
        }
    }

    /// The first packets that wait for the credit that returns.
    #[inline]
    fn first_waiting(&self, block: usize) -> impl Iterator<Item = u32> {
        let credits = &self.upcoming.credits;
        let lanes = credits.of(block).map(|attachment| self.links.lane(credits.at(attachment)));
        lanes.filter_map(Lane::waiting_ends).map(|(first, _)| first)
    }

    /// Calls `message` for messages that begin, were sent or arrived, and `rank` for ranks that
    /// continue.
    #[inline]
    fn for_messages_and_ranks(&self, block: usize, message: impl Fn(u32), rank: impl Fn(u32)) {
        for event in self.queue.upcoming(block * BLOCK, BLOCK) {
            if event.is(EventKind::Message) || event.is(EventKind::MessageSent) {
                message(event.entity());
            } else if event.is(EventKind::Rank) {
                rank(event.entity());
            }
        }
    }

    /// First stage: prefetches what the events refer to.
    fn prefetch_entities(&mut self, block: usize) {
        let Upcoming { arrivals, adapters, credits, .. } = &mut self.upcoming;
        for event in self.queue.upcoming(block * BLOCK, BLOCK) {
            // Other events have no packet; the prefetch is then wasted but harmless.
            self.packets.prefetch(event.packet());
            arrivals.note(event.packet(), event.is(EventKind::Arrival));
            adapters.note(event.entity(), event.is(EventKind::Adapter));
            credits.note(event.entity(), event.is(EventKind::Credit));
        }
        arrivals.end(block);
        adapters.end(block);
        credits.end(block);
        for attachment in self.upcoming.adapters.of(block) {
            self.prefetch_adapter(self.upcoming.adapters.at(attachment));
        }
        for attachment in self.upcoming.credits.of(block) {
            self.links.prefetch_lane_and_load(self.upcoming.credits.at(attachment));
        }
    }

    /// Second stage: prefetches what the packets refer to and the packets that wait for credit, if
    /// the network does not fit in the cache, and the messages and ranks of events, if they do not.
    fn prefetch_packets(&self, block: usize) {
        if self.messages_exceed_cache() {
            self.for_messages_and_ranks(
                block,
                |message| self.model.prefetch_message(message),
                |rank| self.prefetch_rank(rank),
            );
        }
        if !self.links.exceed_cache() {
            return;
        }
        for attachment in self.upcoming.arrivals.of(block) {
            let packet = &self.packets[self.upcoming.arrivals.at(attachment)];
            self.model.prefetch_attachment(packet.node);
            self.links.prefetch_lane(packet.lane);
        }
        self.first_waiting(block).for_each(|slot| self.packets.prefetch(slot));
    }

    /// Third stage: computes routes; prefetches the lanes that packets came by, and messages.
    fn find_routes(&mut self, block: usize) {
        for attachment in self.upcoming.arrivals.of(block) {
            let packet = &self.packets[self.upcoming.arrivals.at(attachment)];
            if !self.links.exceed_cache() {
                self.links.prefetch_lane(packet.lane);
            }
            let (message, (route, ejects)) = (packet.message, self.prefetch_arrival(packet));
            self.upcoming.routes[attachment % LOOKAHEAD_EVENTS] = route;
            self.upcoming.received.note(message, ejects);
        }
        for attachment in self.upcoming.adapters.of(block) {
            self.prefetch_next_send(self.upcoming.adapters.at(attachment));
        }
        for slot in self.first_waiting(block) {
            if self.links.exceed_cache() {
                let packet = &self.packets[slot];
                self.links.prefetch_lane(packet.lane);
                self.model.prefetch_message(packet.message);
            } else {
                self.packets.prefetch(slot);
            }
        }
        self.upcoming.received.end(block);
        for attachment in self.upcoming.received.of(block) {
            let message = self.upcoming.received.at(attachment);
            if P::ON {
                self.model.prefetch_message(message);
            } else {
                self.model.prefetch_endpoints(message);
            }
        }
    }

    /// Third stage of messages that begin or end, if messages do not fit in the cache: prefetches the
    /// states of their endpoints and the ranks there, and the operations of ranks that continue.
    fn prefetch_ranks(&self, block: usize) {
        if self.messages_exceed_cache() {
            self.for_messages_and_ranks(
                block,
                |message| self.prefetch_endpoints_and_ranks(message),
                |rank| self.prefetch_operation(rank),
            );
        }
    }

    /// Last stage of messages that end, likewise: prefetches what the ranks that may continue do next.
    fn prefetch_operations(&self, block: usize) {
        if !self.messages_exceed_cache() {
            return;
        }
        for event in self.queue.upcoming(block * BLOCK, BLOCK) {
            let sent = event.is(EventKind::MessageSent);
            if sent || (event.is(EventKind::Message) && Self::ends_message(event.packet())) {
                self.prefetch_next_operation(event.entity(), sent);
            }
        }
    }

    /// Last stage: prefetches endpoint states of messages. If the network does not fit in it, also the lanes that packets would take if nothing happened before; otherwise the
    /// lanes that waiting packets came by.
    fn prefetch_destinations(&self, block: usize) {
        let Upcoming { received, arrivals, routes, .. } = &self.upcoming;
        for packet in self.first_waiting(block).map(|slot| &self.packets[slot]) {
            if self.links.exceed_cache() {
                self.prefetch_receive(packet.message);
            } else {
                self.links.prefetch_lane(packet.lane);
            }
        }
        if self.links.exceed_cache() {
            for attachment in arrivals.of(block) {
                self.prefetch_likely_output(
                    &self.packets[arrivals.at(attachment)],
                    routes[attachment % LOOKAHEAD_EVENTS],
                );
            }
        }
        for attachment in received.of(block) {
            self.prefetch_receive(received.at(attachment));
        }
    }
}
