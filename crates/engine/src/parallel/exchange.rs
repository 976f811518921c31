//! Exchange between shards: packets and credit, handed over between windows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::intrinsics::{prefetch_all, prefetch_for_write};
use crate::network::packet::{Light, Packet};

/// Buffer space returned to a link of another shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Credit {
    /// When the space is free; the cable delay is added by the receiver.
    pub freed: u64,
    /// Lane, index in the receiving shard.
    pub lane: u32,
    pub bytes: u32,
}

/// Everything that one shard hands over to another.
#[derive(Debug, Default)]
pub(crate) struct Handoff {
    /// Packets, each for vertex `next`, where it is ready at `ready`; longer than `links`, so
    /// that slots can be reused.
    packets: Vec<Packet>,
    /// The link (fabric number) that each comes by; kept apart because a packet fills a cache
    /// line.
    links: Vec<u32>,
    /// The light that each carries, up to the last one that carries any.
    lights: Vec<Light>,
    pub credits: Vec<Credit>,
}

impl Handoff {
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.credits.is_empty()
    }

    /// Adds a packet that comes by `link`; the caller fills in the returned slot. Copying a
    /// packet that was just written field by field would stall on store forwarding.
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

    /// Removes all packets, with the links they come by and the lights they carry.
    pub fn drain_packets(&mut self) -> impl Iterator<Item = (&Packet, (u32, Light))> {
        let lights = self.lights.drain(..).chain(std::iter::repeat(Light::default()));
        self.packets.iter().zip(self.links.drain(..).zip(lights))
    }

    /// Prefetches the contents.
    pub fn prefetch(&self) {
        prefetch_all(&self.packets[..self.links.len()]);
        prefetch_all(&self.links);
        prefetch_all(&self.credits);
    }

    /// Prefetches, for writing, the memory for about as many packets and credits.
    fn prefetch_capacity(&self, packets: usize, credits: usize) {
        let some_more = |n: usize| n + n / 4;
        prefetch_for_write(&self.packets, some_more(packets));
        prefetch_for_write(&self.links, some_more(packets));
        prefetch_for_write(&self.credits, some_more(credits));
    }
}

/// One handoff from every shard to every other.
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

    /// Swaps what `from` has for `to` with the emptied lists of an earlier round. Those were
    /// read on another core, so they are prefetched for writing.
    pub fn swap(&self, from: usize, to: usize, handoff: &mut Handoff) {
        let (packets, credits) = (handoff.links.len(), handoff.credits.len());
        std::mem::swap(&mut *self.lock(from, to), handoff);
        handoff.prefetch_capacity(packets, credits);
    }

    /// Locks the handoff from one shard to another; it is never contended between windows.
    pub fn lock(&self, from: usize, to: usize) -> MutexGuard<'_, Handoff> {
        // A thread that panicked with the lock held ends the run; its data are not used.
        self.handoffs[from * self.shards + to].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
