//! What is known of the events that come next in a window.

use crate::switch::route::Route;

/// Events of a block.
pub(super) const BLOCK: usize = 16;

/// Blocks that are looked at, the one that is served included.
pub(super) const BLOCKS: usize = 8;

/// Events of them.
pub(super) const LOOKAHEAD_EVENTS: usize = BLOCKS * BLOCK;

/// Something that some events of each block name, in the order of the events.
#[derive(Debug)]
pub(super) struct EntityBlocks {
    items: [u32; LOOKAHEAD_EVENTS],
    /// How many there have been, up to the end of each block.
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

    /// Adds `name` if it is one of those `wanted`.
    #[inline(always)]
    pub fn note(&mut self, name: u32, wanted: bool) {
        self.items[self.n % LOOKAHEAD_EVENTS] = name;
        self.n += usize::from(wanted);
    }

    /// Ends a block.
    #[inline(always)]
    pub fn end(&mut self, block: usize) {
        self.ends[block % BLOCKS] = self.n;
    }

    /// Places of what a block names.
    #[inline(always)]
    pub fn of(&self, block: usize) -> std::ops::Range<usize> {
        self.ends[block.wrapping_sub(1) % BLOCKS]..self.ends[block % BLOCKS]
    }

    #[inline(always)]
    pub fn at(&self, place: usize) -> u32 {
        self.items[place % LOOKAHEAD_EVENTS]
    }
}

/// What is known of the events that come next.
#[derive(Debug)]
pub(crate) struct Upcoming {
    /// Packets that arrive, and nodes whose adapters go on.
    pub(super) arrivals: EntityBlocks,
    pub(super) adapters: EntityBlocks,
    /// Lanes whose credit comes back as an event.
    pub(super) credits: EntityBlocks,
    /// Messages whose packets come to their nodes.
    pub(super) received: EntityBlocks,
    /// Routes of packets in the order of their arrivals, and how many have been used.
    pub(super) routes: [Route; LOOKAHEAD_EVENTS],
    pub(super) routes_used: usize,
    /// Events of the window up to which all blocks have been begun.
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
            events_begun: 0,
        }
    }
}

impl Upcoming {
    /// What is known of the route of the next packet whose arrival has been looked at.
    #[inline(always)]
    pub fn next_route(&mut self) -> Route {
        self.routes_used += 1;
        self.routes[(self.routes_used - 1) % LOOKAHEAD_EVENTS]
    }
}
