//! Looking ahead: the memory that the next events of a window will need is asked for, and the routes of
//! their packets are worked out as far as they do not depend on load.
//!
//! Events pass through this in blocks, each block in three stages while others are served before it:
//! first what the events name is asked for (packets, adapters); then what those name (lanes, messages),
//! and routes are found; at last what the messages name. A block is parted into arrivals and adapters
//! once, without a branch on the kind of an event, which nothing can predict.

use crate::hop::Route;
use crate::probe::Probe;
use crate::queue::Class;
use crate::shard::Shard;

/// Events of a block.
const BLOCK: usize = 32;

/// Blocks that are looked at, the one that is served included.
const BLOCKS: usize = 8;

/// Events of them.
const ROOM: usize = BLOCKS * BLOCK;

/// Something that some events of each block name, in the order of the events.
#[derive(Debug)]
struct Names {
    items: [u32; ROOM],
    /// How many there have been, up to the end of each block.
    ends: [usize; BLOCKS],
    n: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self { items: [0; ROOM], ends: [0; BLOCKS], n: 0 }
    }
}

impl Names {
    fn clear(&mut self) {
        (self.ends, self.n) = ([0; BLOCKS], 0);
    }

    /// Adds `name` if it is one of those `wanted`.
    #[inline(always)]
    fn note(&mut self, name: u32, wanted: bool) {
        self.items[self.n % ROOM] = name;
        self.n += usize::from(wanted);
    }

    /// Ends a block.
    #[inline(always)]
    fn end(&mut self, block: usize) {
        self.ends[block % BLOCKS] = self.n;
    }

    /// Places of what a block names.
    #[inline(always)]
    fn of(&self, block: usize) -> std::ops::Range<usize> {
        self.ends[block.wrapping_sub(1) % BLOCKS]..self.ends[block % BLOCKS]
    }

    #[inline(always)]
    fn at(&self, place: usize) -> u32 {
        self.items[place % ROOM]
    }
}

/// What is known of the events that come next.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Packets that arrive, and nodes whose adapters go on.
    arrivals: Names,
    adapters: Names,
    /// Lanes whose credit comes back as an event.
    credits: Names,
    /// Messages whose packets come to their nodes, and those that adapters send.
    received: Names,
    sent: Names,
    /// Routes of packets in the order of their arrivals, and how many have been used.
    routes: [Route; ROOM],
    used: usize,
    /// Events of the window up to which all blocks have been begun.
    begun: usize,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            arrivals: Names::default(),
            adapters: Names::default(),
            credits: Names::default(),
            received: Names::default(),
            sent: Names::default(),
            routes: [Route::default(); ROOM],
            used: 0,
            begun: 0,
        }
    }
}

impl Ahead {
    /// What is known of the route of the next packet whose arrival has been looked at.
    #[inline(always)]
    pub fn next_route(&mut self) -> Route {
        self.used += 1;
        self.routes[(self.used - 1) % ROOM]
    }
}

impl<P: Probe> Shard<'_, P> {
    /// Begins to look ahead in a window that has been opened.
    pub fn look_ahead(&mut self) {
        let ahead = &mut self.ahead;
        let Ahead { arrivals, adapters, credits, received, sent, .. } = ahead;
        for names in [arrivals, adapters, credits, received, sent] {
            names.clear();
        }
        let ahead = &mut self.ahead;
        (ahead.begun, ahead.used) = (0, 0);
        for block in 0..4 {
            self.name(block);
        }
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

    /// First stage: what the events name.
    fn name(&mut self, block: usize) {
        let Ahead { arrivals, adapters, credits, .. } = &mut self.ahead;
        for event in self.queue.upcoming(block * BLOCK, BLOCK) {
            arrivals.note(event.packet(), event.is(Class::Arrival));
            adapters.note(event.entity(), event.is(Class::Adapter));
            credits.note(event.entity(), event.is(Class::Credit));
        }
        arrivals.end(block);
        adapters.end(block);
        credits.end(block);
        for place in self.ahead.arrivals.of(block) {
            self.packets.fetch(self.ahead.arrivals.at(place));
        }
        for place in self.ahead.adapters.of(block) {
            self.fetch_adapter(self.ahead.adapters.at(place));
        }
        for place in self.ahead.credits.of(block) {
            self.links.fetch(self.ahead.credits.at(place));
        }
    }

    /// Second stage: what packets name.
    fn meet(&self, block: usize) {
        for place in self.ahead.arrivals.of(block) {
            let packet = &self.packets[self.ahead.arrivals.at(place)];
            self.world.fetch_place(packet.node);
            if packet.from == self.number {
                self.links.fetch_lane(packet.lane);
            }
        }
    }

    /// Second stage: what those name, and routes.
    fn find(&mut self, block: usize) {
        for place in self.ahead.arrivals.of(block) {
            let packet = &self.packets[self.ahead.arrivals.at(place)];
            let (message, route) = (packet.message, self.fetch_for(packet));
            self.ahead.routes[place % ROOM] = route;
            self.ahead.received.note(message, route.home);
        }
        for place in self.ahead.adapters.of(block) {
            let message = self.first_message(self.ahead.adapters.at(place));
            self.ahead.sent.note(message.unwrap_or_default(), message.is_some());
        }
        let Ahead { received, sent, .. } = &mut self.ahead;
        received.end(block);
        sent.end(block);
        for names in [received, sent] {
            for place in names.of(block) {
                self.world.fetch_message(names.at(place));
            }
        }
    }

    /// Third stage: the sides of messages.
    fn follow(&self, block: usize) {
        let Ahead { received, sent, arrivals, routes, .. } = &self.ahead;
        if self.links.are_many() {
            for place in arrivals.of(block) {
                self.fetch_likely(routes[place % ROOM]);
            }
        }
        for place in received.of(block) {
            self.fetch_receive(received.at(place));
        }
        for place in sent.of(block) {
            self.fetch_send(sent.at(place));
        }
    }
}
