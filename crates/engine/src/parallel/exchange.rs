//! What one shard sends another: packets and credit, handed over between windows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::intrinsics::{own, prefetch_all};
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
pub(crate) struct Mail {
    /// Packets on their way, each to the vertex `next`, where it is ready at `ready`; and room for more.
    packets: Vec<Packet>,
    /// The link that each comes by, numbered over the whole fabric: apart from the packets, which fill a cache
    /// line.
    links: Vec<u32>,
    /// What is on each, up to the last that is marked.
    lights: Vec<Light>,
    pub credits: Vec<Credit>,
}

impl Mail {
    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.credits.is_empty()
    }

    /// Adds a packet that comes by `link`: the one returned, which is to be written there. On its way into a
    /// list it would be written piece by piece and then read as a whole, and wait for that.
    #[inline(always)]
    pub fn packet(&mut self, link: u32, light: Light) -> &mut Packet {
        let place = self.links.len();
        if place == self.packets.len() {
            self.make_room();
        }
        self.links.push(link);
        if light != Light::default() {
            self.lights.resize(place, Light::default());
            self.lights.push(light);
        }
        &mut self.packets[place]
    }

    #[cold]
    fn make_room(&mut self) {
        self.packets.resize(2 * self.packets.len().max(16), Packet::EMPTY);
    }

    /// Takes out all packets, with the links they come by and what is on them.
    pub fn packets(&mut self) -> impl Iterator<Item = (&Packet, (u32, Light))> {
        let lights = self.lights.drain(..).chain(std::iter::repeat(Light::default()));
        self.packets.iter().zip(self.links.drain(..).zip(lights))
    }

    /// Starts to fetch all that is there.
    pub fn fetch(&self) {
        prefetch_all(&self.packets[..self.links.len()]);
        prefetch_all(&self.links);
        prefetch_all(&self.credits);
    }

    /// Asks for the memory of about as many packets and credits.
    fn expect(&self, packets: usize, credits: usize) {
        let some_more = |n: usize| n + n / 4;
        own(&self.packets, some_more(packets));
        own(&self.links, some_more(packets));
        own(&self.credits, some_more(credits));
    }
}

/// Boxes from every shard to every other.
#[derive(Debug)]
pub(crate) struct PostOffice {
    boxes: Vec<Mutex<Mail>>,
    shards: usize,
}

impl PostOffice {
    pub fn new(shards: usize) -> Self {
        let boxes = (0..shards * shards).map(|_| Mutex::default()).collect();
        Self { boxes, shards }
    }

    /// Puts what `from` has for `to` into its box, which is empty, and takes the empty lists out. They have been
    /// read on another core, which must hear that they are written again.
    pub fn post(&self, from: usize, to: usize, mail: &mut Mail) {
        let (packets, credits) = (mail.links.len(), mail.credits.len());
        std::mem::swap(&mut *self.open(from, to), mail);
        mail.expect(packets, credits);
    }

    /// Opens the box from one shard to another; nobody else has it open between windows.
    pub fn open(&self, from: usize, to: usize) -> MutexGuard<'_, Mail> {
        // A thread that panicked while it held a box ends the run; what it left is not looked at.
        self.boxes[from * self.shards + to].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
