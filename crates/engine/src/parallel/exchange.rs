//! What one shard sends another: packets and credit, handed over between windows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::intrinsics::{prefetch_all, prefetch_for_write};
use crate::network::packet::{Light, Packet};

/// Buffer space given back to a link of another shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Credit {
    /// When the space is free; the cable comes on top.
    pub freed: u64,
    /// Lane, numbered within the shard it goes to.
    pub lane: u32,
    pub bytes: u32,
}

/// All that one shard has for another.
#[derive(Debug, Default)]
pub(crate) struct Handoff {
    /// Packets on their way, each to the vertex `next`, where it is ready at `ready`; and room for more.
    packets: Vec<Packet>,
    /// The link that each comes by, numbered over the whole fabric: apart from the packets, which fill a cache
    /// line.
    links: Vec<u32>,
    /// What is on each, up to the last that is marked.
    lights: Vec<Light>,
    pub credits: Vec<Credit>,
}

impl Handoff {
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.credits.is_empty()
    }

    /// Adds a packet that comes by `link`: the one returned, which is to be written there. On its way into a
    /// list it would be written piece by piece and then read as a whole, and wait for that.
    #[inline(always)]
    pub fn add_packet(&mut self, link: u32, light: Light) -> &mut Packet {
        let place = self.links.len();
        if place == self.packets.len() {
            self.grow();
        }
        self.links.push(link);
        if light != Light::default() {
            self.lights.resize(place, Light::default());
            self.lights.push(light);
        }
        &mut self.packets[place]
    }

    #[cold]
    fn grow(&mut self) {
        self.packets.resize(2 * self.packets.len().max(16), Packet::EMPTY);
    }

    /// Takes out all packets, with the links they come by and what is on them.
    pub fn drain_packets(&mut self) -> impl Iterator<Item = (&Packet, (u32, Light))> {
        let lights = self.lights.drain(..).chain(std::iter::repeat(Light::default()));
        self.packets.iter().zip(self.links.drain(..).zip(lights))
    }

    /// Starts to fetch all that is there.
    pub fn prefetch(&self) {
        prefetch_all(&self.packets[..self.links.len()]);
        prefetch_all(&self.links);
        prefetch_all(&self.credits);
    }

    /// Asks for the memory of about as many packets and credits.
    fn prefetch_capacity(&self, packets: usize, credits: usize) {
        let some_more = |n: usize| n + n / 4;
        prefetch_for_write(&self.packets, some_more(packets));
        prefetch_for_write(&self.links, some_more(packets));
        prefetch_for_write(&self.credits, some_more(credits));
    }
}

/// Boxes from every shard to every other.
#[derive(Debug)]
pub(crate) struct Exchange {
    handoffs: Vec<Mutex<Handoff>>,
    shards: usize,
}

impl Exchange {
    pub fn new(shards: usize) -> Self {
        let handoffs = (0..shards * shards).map(|_| Mutex::default()).collect();
        Self { handoffs, shards }
    }

    /// Puts what `from` has for `to` into its box, which is empty, and takes the empty lists out. They have been
    /// read on another core, which must hear that they are written again.
    pub fn swap(&self, from: usize, to: usize, handoff: &mut Handoff) {
        let (packets, credits) = (handoff.links.len(), handoff.credits.len());
        std::mem::swap(&mut *self.lock(from, to), handoff);
        handoff.prefetch_capacity(packets, credits);
    }

    /// Opens the box from one shard to another; nobody else has it open between windows.
    pub fn lock(&self, from: usize, to: usize) -> MutexGuard<'_, Handoff> {
        // A thread that panicked while it held a box ends the run; what it left is not looked at.
        self.handoffs[from * self.shards + to].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
