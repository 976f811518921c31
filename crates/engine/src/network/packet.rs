//! Packets in flight: one cache line each, in a slab with a free list.

use tailback_fabric::RouteState;
use tailback_telemetry::Mark;

use crate::intrinsics::{prefetch, push_with_huge_pages};

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketKind {
    /// Part of a message.
    Data = 0,
    /// Request to send: the first step of a rendezvous.
    RequestToSend,
    /// From the receiver back to the sender. Before the message: clear to send, the receive is
    /// posted. After it: an acknowledgement, the receive is complete.
    ClearToSend,
    /// Backward congestion notification (BECN).
    Congestion,
}

/// Flags of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(u8);

impl Flags {
    /// Data of an observed job: it carries samples.
    pub const OBSERVED: Self = Self(1);
    /// Forward congestion notification (FECN).
    pub const NOTIFIED: Self = Self(2);
    /// It waited for credit while its last link was idle.
    pub const STALLED: Self = Self(4);
    /// It leads to congestion that creates victims (see `congestion/dcms.rs`).
    pub const VICTIMS: Self = Self(8);
    /// For [`PacketKind::Congestion`]: the congestion is over (see `congestion/rgbcc.rs`).
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

/// A red light: its output, and how often it had turned red by then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Light {
    /// Lane number in the fabric.
    pub output: u32,
    pub turn: u32,
}

/// A packet; one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Packet {
    /// Number in the run, by which random numbers are drawn. The two highest bits are the
    /// [`PacketKind`].
    pub id: u64,
    /// When its head is (or was) ready to leave the switch it is in.
    pub ready: u64,
    /// When its tail is ready to leave.
    pub tail_ready: u64,
    pub message: u32,
    /// Destination node.
    pub node: u32,
    /// Bytes on the wire.
    pub wire: u32,
    /// Lane it came by, whose buffer it holds; numbered within shard `from`.
    pub lane: u32,
    /// On the wire: the vertex it heads for. Later: the lane it will leave by, or the next
    /// packet of a queue.
    pub next: u32,
    pub mark: Mark,
    /// Switches visited, the one it heads for included.
    pub hops: u8,
    /// Routing state.
    pub state: RouteState,
    /// See [`Flags`].
    pub flags: Flags,
    /// Shard it came from.
    pub from: u8,
    /// Service level: which set of virtual lanes it uses.
    pub service: u8,
    /// Input port: index among the links of the switch.
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

    /// A control packet about `message` that has arrived at `node`.
    pub fn notice(content: PacketKind, message: u32, node: u32, wire: u32) -> Self {
        Self { id: content.numbered(0), message, node, wire, next: node, ..Self::EMPTY }
    }

    /// Whether it carries data of an observed job.
    #[inline]
    pub fn observed(&self) -> bool {
        self.flags.has(Flags::OBSERVED)
    }

    /// Its kind.
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
    /// Packet id for a packet of this kind that belongs to data packet `number`. Control
    /// packets draw random numbers apart from all data packets.
    #[inline]
    pub fn numbered(self, number: u64) -> u64 {
        (self as u64) << 62 | number
    }
}

/// All packets in flight.
#[derive(Debug, Default)]
pub(crate) struct PacketPool {
    slots: Vec<Packet>,
    /// Free slots, in a list of their own so that allocating one does not touch the packets.
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

    /// Inserts an empty packet that is filled in place: copying a packet that was just written
    /// field by field would stall on store forwarding.
    #[inline]
    pub fn make(&mut self) -> u32 {
        self.insert(Packet::EMPTY)
    }

    /// Frees a slot; the packet can be read until another is inserted.
    #[inline]
    pub fn remove(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Prefetches a packet.
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
