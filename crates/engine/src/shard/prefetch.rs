//! Looking ahead: the memory that the next events of a window will need is asked for, and the routes of
//! their packets are worked out as far as they do not depend on load.
//!
//! Events pass through this in blocks, each block in stages while others are served before it: every stage
//! reads what the one before has asked for, and asks for what that names. A block is parted by the kind of
//! its events once, without a branch on what nothing can predict.

use crate::events::queue::Class;
use crate::network::link::Lane;
use crate::probe::Probe;
use crate::shard::Shard;
use crate::shard::upcoming::{Ahead, BLOCK, ROOM};

impl<P: Probe> Shard<'_, P> {
    /// Begins to look ahead in a window that has been opened.
    pub fn look_ahead(&mut self) {
        let ahead = &mut self.ahead;
        (ahead.begun, ahead.used) = (0, 0);
        let Ahead { arrivals, adapters, credits, received, .. } = ahead;
        for names in [arrivals, adapters, credits, received] {
            names.clear();
        }
        (0..4).for_each(|block| self.name(block));
        (0..3).for_each(|block| self.meet(block));
        (0..2).for_each(|block| self.find(block));
        self.follow(0);
    }

    /// Looks further ahead where a block has been served.
    #[inline(always)]
    pub fn look_on(&mut self) {
        if self.queue.taken() == self.ahead.begun {
            let block = self.ahead.begun / BLOCK;
            self.ahead.begun += BLOCK;
            self.name(block + 4);
            self.meet(block + 3);
            self.find(block + 2);
            self.follow(block + 1);
        }
    }

    /// The packets that wait first for the credit that comes back.
    #[inline]
    fn waiting(&self, block: usize) -> impl Iterator<Item = u32> {
        let credits = &self.ahead.credits;
        let lanes = credits.of(block).map(|place| self.links.lane(credits.at(place)));
        lanes.filter_map(Lane::line).map(|(first, _)| first)
    }

    /// Messages that begin, have been sent or have arrived; and ranks that go on.
    #[inline]
    fn others(&self, block: usize, message: impl Fn(u32), rank: impl Fn(u32)) {
        for event in self.queue.upcoming(block * BLOCK, BLOCK) {
            if event.is(Class::Message) || event.is(Class::Sent) {
                message(event.entity());
            } else if event.is(Class::Rank) {
                rank(event.entity());
            }
        }
    }

    /// First stage: asks for what the events name.
    fn name(&mut self, block: usize) {
        let Ahead { arrivals, adapters, credits, .. } = &mut self.ahead;
        for event in self.queue.upcoming(block * BLOCK, BLOCK) {
            // What is no arrival names no packet, and this asks for something in vain.
            self.packets.fetch(event.packet());
            arrivals.note(event.packet(), event.is(Class::Arrival));
            adapters.note(event.entity(), event.is(Class::Adapter));
            credits.note(event.entity(), event.is(Class::Credit));
        }
        arrivals.end(block);
        adapters.end(block);
        credits.end(block);
        for place in self.ahead.adapters.of(block) {
            self.fetch_adapter(self.ahead.adapters.at(place));
        }
        for place in self.ahead.credits.of(block) {
            self.links.fetch_whole(self.ahead.credits.at(place));
        }
    }

    /// Second stage, where the network does not fit the cache: asks for what the packets name, and for those
    /// who wait for credit.
    fn meet(&self, block: usize) {
        if !self.links.are_many() {
            return;
        }
        for place in self.ahead.arrivals.of(block) {
            let packet = &self.packets[self.ahead.arrivals.at(place)];
            self.world.fetch_place(packet.node);
            self.links.fetch_lane(packet.lane);
        }
        self.waiting(block).for_each(|slot| self.packets.fetch(slot));
        self.others(
            block,
            |message| self.world.fetch_message(message),
            |rank| self.fetch_rank(rank),
        );
    }

    /// Third stage: finds the routes; asks for lanes and messages.
    fn find(&mut self, block: usize) {
        for place in self.ahead.arrivals.of(block) {
            let packet = &self.packets[self.ahead.arrivals.at(place)];
            if !self.links.are_many() {
                self.links.fetch_lane(packet.lane);
            }
            let (message, (route, home)) = (packet.message, self.fetch_for(packet));
            self.ahead.routes[place % ROOM] = route;
            self.ahead.received.note(message, home);
        }
        for place in self.ahead.adapters.of(block) {
            self.fetch_next(self.ahead.adapters.at(place));
        }
        for slot in self.waiting(block) {
            if self.links.are_many() {
                let packet = &self.packets[slot];
                self.links.fetch_lane(packet.lane);
                self.world.fetch_message(packet.message);
            } else {
                self.packets.fetch(slot);
            }
        }
        self.ahead.received.end(block);
        for place in self.ahead.received.of(block) {
            let message = self.ahead.received.at(place);
            if P::ON {
                self.world.fetch_message(message);
            } else {
                self.world.fetch_sides(message);
            }
        }
    }

    /// Last stage: asks for the sides of messages; where the network does not fit the cache, for the lanes that
    /// packets would take if nothing happened before, otherwise for those by which those came who wait.
    fn follow(&self, block: usize) {
        let Ahead { received, arrivals, routes, .. } = &self.ahead;
        for packet in self.waiting(block).map(|slot| &self.packets[slot]) {
            if self.links.are_many() {
                self.fetch_receive(packet.message);
            } else {
                self.links.fetch_lane(packet.lane);
            }
        }
        if self.links.are_many() {
            self.others(block, |message| self.fetch_ends(message), |rank| self.fetch_op(rank));
            for place in arrivals.of(block) {
                self.fetch_likely(&self.packets[arrivals.at(place)], routes[place % ROOM]);
            }
        }
        for place in received.of(block) {
            self.fetch_receive(received.at(place));
        }
    }
}
