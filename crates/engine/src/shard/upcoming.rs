//! State of the prefetch pipeline: data of upcoming events.

use crate::network::load::Chosen;
use crate::switch::route::Route;

/// Events per block.
pub(super) const BLOCK: usize = 16;

/// Blocks in the pipeline, including the one being processed.
pub(super) const BLOCKS: usize = 8;

/// Events in the pipeline.
pub(super) const LOOKAHEAD_EVENTS: usize = BLOCKS * BLOCK;

/// Entities that events of each block refer to, in event order.
#[derive(Debug)]
pub(super) struct EntityBlocks {
    items: [u32; LOOKAHEAD_EVENTS],
    /// Total number of entities up to the end of each block.
    ends: [usize; BLOCKS],
    n: usize,
}

impl Default for EntityBlocks {
    fn default() -> Self {
        Self { items: [0; LOOKAHEAD_EVENTS], ends: [0; BLOCKS], n: 0 }
    }
}

impl EntityBlocks {
    pub fn clear(&mut self) {
        (self.ends, self.n) = ([0; BLOCKS], 0);
    }

    /// Appends `entity` if it is `wanted`, without a branch.
    #[inline(always)]
    pub fn note(&mut self, entity: u32, wanted: bool) {
        self.items[self.n % LOOKAHEAD_EVENTS] = entity;
        self.n += usize::from(wanted);
    }

    /// Ends a block.
    #[inline(always)]
    pub fn end(&mut self, block: usize) {
        self.ends[block % BLOCKS] = self.n;
    }

    /// Positions of the entities of a block.
    #[inline(always)]
    pub fn of(&self, block: usize) -> std::ops::Range<usize> {
        self.ends[block.wrapping_sub(1) % BLOCKS]..self.ends[block % BLOCKS]
    }

    /// Number of entities up to the end of a block.
    #[inline(always)]
    fn known(&self, block: usize) -> usize {
        self.ends[block % BLOCKS]
    }

    #[inline(always)]
    pub fn at(&self, place: usize) -> u32 {
        self.items[place % LOOKAHEAD_EVENTS]
    }
}

/// Data of upcoming events.
#[derive(Debug)]
pub(crate) struct Upcoming {
    /// Packets that arrive, and nodes whose adapters may send.
    pub(super) arrivals: EntityBlocks,
    pub(super) adapters: EntityBlocks,
    /// Lanes whose credit returns as an event.
    pub(super) credits: EntityBlocks,
    /// Messages whose packets reach their nodes.
    pub(super) received: EntityBlocks,
    /// Routes of arriving packets in event order, and how many have been used.
    pub(super) routes: [Route; LOOKAHEAD_EVENTS],
    pub(super) routes_used: usize,
    /// The output of the next arrival, chosen ahead.
    pub(crate) chosen: Option<Chosen>,
    /// Events of the window whose blocks have started processing.
    pub(super) events_begun: usize,
}

impl Default for Upcoming {
    fn default() -> Self {
        Self {
            arrivals: EntityBlocks::default(),
            adapters: EntityBlocks::default(),
            credits: EntityBlocks::default(),
            received: EntityBlocks::default(),
            routes: [Route::default(); LOOKAHEAD_EVENTS],
            routes_used: 0,
            chosen: None,
            events_begun: 0,
        }
    }
}

impl Upcoming {
    /// Forgets the events of the last window.
    pub(super) fn clear(&mut self) {
        (self.events_begun, self.routes_used) = (0, 0);
        self.chosen = None;
        for entities in
            [&mut self.arrivals, &mut self.adapters, &mut self.credits, &mut self.received]
        {
            entities.clear();
        }
    }

    /// Computes nothing ahead in this window.
    pub(super) fn stop(&mut self) {
        self.events_begun = usize::MAX;
    }

    /// Whether routes are computed ahead in this window.
    #[inline(always)]
    pub fn has_routes(&self) -> bool {
        self.events_begun != usize::MAX
    }

    /// The precomputed route of the next arrival, and the output chosen ahead.
    #[inline(always)]
    pub fn next_route(&mut self) -> (Route, Option<Chosen>) {
        let chosen = self.chosen.take();
        self.routes_used += 1;
        (self.routes[(self.routes_used - 1) % LOOKAHEAD_EVENTS], chosen)
    }

    /// Packet and route of the next arrival after the one whose route was taken last, if computed.
    #[inline(always)]
    pub fn following(&self) -> Option<(u32, Route)> {
        let (next, routes_ready) =
            (self.routes_used, self.arrivals.known(self.events_begun / BLOCK + 1));
        (next < routes_ready)
            .then(|| (self.arrivals.at(next), self.routes[next % LOOKAHEAD_EVENTS]))
    }
}
