//! Packets in flight: one cache line each, in a slab with a free list.

use tailback_fabric::RouteState;
use tailback_telemetry::Mark;

use crate::intrinsics::{prefetch, push_with_huge_pages};

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketKind {
    /// Part of a message.
    Data = 0,
    /// "I have a message for you": the first step of a rendezvous.
    RequestToSend,
    /// "Its receive is posted, go on."
    ClearToSend,
    /// "Your packets meet congestion" (BECN).
    Congestion,
}

/// What is noted on a packet with a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(u8);

impl Flags {
    /// Data of an observed job: what samples are taken of.
    pub const OBSERVED: Self = Self(1);
    /// Forward congestion notification (FECN).
    pub const NOTIFIED: Self = Self(2);
    /// It waited for credit on its last link, which was idle.
    pub const STALLED: Self = Self(4);
    /// Others wait behind its kind who want to go elsewhere (see `congestion/dcms.rs`).
    pub const VICTIMS: Self = Self(8);
    /// Of a [`PacketKind::Congestion`]: that it is over (see `congestion/rgbcc.rs`).
    pub const GREEN: Self = Self(16);

    #[inline]
    pub fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    #[inline]
    pub fn set(&mut self, flag: Self, on: bool) {
        self.0 = (self.0 & !flag.0) | (flag.0 * u8::from(on));
    }
}

/// A red light: which, and how often it had turned red by then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Light {
    /// Lane over the whole fabric.
    pub output: u32,
    pub turn: u32,
}

/// One packet: a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Packet {
    /// Number over the whole run: what random numbers are drawn by. Its two highest bits are the
    /// [`PacketKind`].
    pub id: u64,
    /// When its head is (or was) ready to leave the switch it is in.
    pub ready: u64,
    /// When its tail is.
    pub tail_ready: u64,
    pub message: u32,
    /// Destination node.
    pub node: u32,
    /// Bytes on the wire.
    pub wire: u32,
    /// Lane it came by, whose buffer it holds, numbered within the shard `from`.
    pub lane: u32,
    /// On the wire: the vertex it heads for. Afterwards: the lane it will leave by, the next in a
    /// waiting line.
    pub next: u32,
    pub mark: Mark,
    /// Switches visited, the one it heads for included.
    pub hops: u8,
    /// What it remembers of its route.
    pub state: RouteState,
    /// See [`Flags`].
    pub flags: Flags,
    /// Shard it came from.
    pub from: u8,
    /// Service level: which set of virtual lanes it uses.
    pub service: u8,
    /// Port it comes by: its number among the links of the switch.
    pub input: u16,
}

const _: () = assert!(size_of::<Packet>() == 64);

impl Packet {
    pub const EMPTY: Self = Self {
        id: 0,
        ready: 0,
        tail_ready: 0,
        message: 0,
        node: 0,
        wire: 0,
        lane: 0,
        next: 0,
        mark: Mark::EMPTY,
        hops: 0,
        state: RouteState::START,
        flags: Flags(0),
        from: 0,
        service: 0,
        input: 0,
    };

    /// A packet that is no data, about `message`, at its `node`.
    pub fn notice(content: PacketKind, message: u32, node: u32, wire: u32) -> Self {
        Self { id: content.numbered(0), message, node, wire, next: node, ..Self::EMPTY }
    }

    /// Whether it is data of an observed job.
    #[inline]
    pub fn observed(&self) -> bool {
        self.flags.has(Flags::OBSERVED)
    }

    /// What it is for.
    #[inline]
    pub fn content(&self) -> PacketKind {
        match self.id >> 62 {
            0 => PacketKind::Data,
            1 => PacketKind::RequestToSend,
            2 => PacketKind::ClearToSend,
            _ => PacketKind::Congestion,
        }
    }
}

impl PacketKind {
    /// Number of a packet of this content that belongs to data packet `number` of the run: handshakes
    /// draw their random numbers beyond all data packets.
    #[inline]
    pub fn numbered(self, number: u64) -> u64 {
        (self as u64) << 62 | number
    }
}

/// All packets in flight.
#[derive(Debug, Default)]
pub(crate) struct PacketPool {
    slots: Vec<Packet>,
    /// Slots without a packet: in a list of their own, for their memory may be far away.
    free: Vec<u32>,
}

impl PacketPool {
    #[inline]
    pub fn insert(&mut self, packet: Packet) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = packet;
            return slot;
        }
        push_with_huge_pages(&mut self.slots, packet);
        self.slots.len() as u32 - 1
    }

    /// An empty packet, to be written where it is: what is written piece by piece cannot be read at once
    /// as a whole.
    #[inline]
    pub fn make(&mut self) -> u32 {
        self.insert(Packet::EMPTY)
    }

    /// Takes a packet out; it can be read until another is inserted.
    #[inline]
    pub fn remove(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Starts to fetch a packet.
    #[inline]
    pub fn prefetch(&self, slot: u32) {
        prefetch(&self.slots, slot);
    }

    pub fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl std::ops::Index<u32> for PacketPool {
    type Output = Packet;
    #[inline]
    fn index(&self, slot: u32) -> &Packet {
        &self.slots[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for PacketPool {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut Packet {
        &mut self.slots[slot as usize]
    }
}
