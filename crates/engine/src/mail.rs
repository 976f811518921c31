//! What one shard sends another: packets and credit, handed over between windows.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::congestion::Light;
use crate::packet::Packet;

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
    /// Packets on their way, each to the vertex `next`, where it is ready at `ready`.
    pub packets: Vec<Packet>,
    /// The link that each comes by, numbered over the whole fabric, and what is on it if it is marked:
    /// apart from the packets, which fill a cache line.
    pub links: Vec<(u32, Light)>,
    pub credits: Vec<Credit>,
}

impl Mail {
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.credits.is_empty()
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

    /// Puts what `from` has for `to` into its box, which is empty, and takes the empty lists out.
    pub fn post(&self, from: usize, to: usize, mail: &mut Mail) {
        std::mem::swap(&mut *self.open(from, to), mail);
    }

    /// Opens the box from one shard to another; nobody else has it open between windows.
    pub fn open(&self, from: usize, to: usize) -> MutexGuard<'_, Mail> {
        // A thread that panicked while it held a box ends the run; what it left is not looked at.
        self.boxes[from * self.shards + to].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
