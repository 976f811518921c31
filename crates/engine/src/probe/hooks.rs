//! The hooks that the engine calls, and what it hands them.

use tailback_telemetry::Mark;

/// Hooks into the life of a packet. They must not change anything the engine decides by.
///
/// `now` is the time of the shard and never goes back; links are numbered within the shard. What
/// [`enqueued`](Probe::enqueued) a line [`dequeued`](Probe::dequeued) it as it is [`sent`](Probe::sent); a packet
/// that need not wait is sent at once.
pub trait Probe {
    /// Whether the engine should work out what the hooks are told.
    const ON: bool;

    /// Whether [`hop`](Probe::hop) is wanted.
    #[inline]
    fn wants_hops(&self) -> bool {
        true
    }

    /// Whether [`Hop::queue`] is wanted.
    #[inline]
    fn wants_queue(&self) -> bool {
        false
    }

    /// Whether [`SentPacket::input`] is wanted.
    #[inline]
    fn wants_inputs(&self) -> bool {
        false
    }

    /// A packet that came in by `input`, as of [`SentPacket`], is likely to go on by `link`: starts to fetch what that
    /// needs.
    #[inline]
    fn prefetch(&self, _link: u32, _input: u32) {}

    /// Nothing happens before `now` any more.
    #[inline]
    fn begin_window(&mut self, _now: u64) {}

    /// A packet goes through a link.
    fn hop(&mut self, now: u64, hop: Hop, observed: bool, mark: &mut Mark, random: u64);

    /// A packet of `wire` bytes that is ready for a link gets in line for it; `input` as of [`SentPacket`].
    #[inline]
    fn enqueued(&mut self, _now: u64, _link: u32, _wire: u32, _input: u32) {}

    /// A packet of `wire` bytes gets out of the line; it is sent next.
    #[inline]
    fn dequeued(&mut self, _now: u64, _link: u32, _wire: u32, _input: u32) {}

    /// The adapter behind an injection link has a packet of `wire` bytes and no credit for it, until it sends
    /// one. May be told more than once.
    #[inline]
    fn blocked(&mut self, _now: u64, _link: u32, _wire: u32) {}

    /// A link takes on a packet.
    fn sent(&mut self, now: u64, link: u32, slot: Transmission, packet: SentPacket);

    /// A packet arrives at its node at `time`, which may lie ahead.
    fn delivered(&mut self, time: u64, arrival: DeliveredPacket, mark: Mark);
}

/// A link on a packet's way.
#[derive(Debug, Clone, Copy)]
pub struct Hop {
    /// Its number within the shard.
    pub local: u32,
    /// Its number over the whole fabric: what a packet carries.
    pub link: u32,
    /// Whether it was congested for this packet.
    pub congested: bool,
    /// Bytes queued for it, 0 unless the probe wants to know.
    pub queue: u64,
    /// Number of the packet over the whole run.
    pub packet: u64,
    /// Hops before this one.
    pub index: u8,
}

/// When a link sends a packet.
#[derive(Debug, Clone, Copy)]
pub struct Transmission {
    /// Its first byte.
    pub start: u64,
    /// How long.
    pub busy_ps: u64,
    /// How long it had waited at the idle link, without credit.
    pub stall_ps: u64,
}

/// What a link sends, as far as probes need to know.
#[derive(Debug, Clone, Copy)]
pub struct SentPacket {
    /// Bytes on the wire.
    pub wire: u32,
    /// Of an observed job.
    pub observed: bool,
    /// The link that runs back along the port it came by, by its number within the shard; beyond all
    /// links for what an adapter sends, or unless the probe wants to know.
    pub input: u32,
}

/// A data packet at its node.
#[derive(Debug, Clone, Copy)]
pub struct DeliveredPacket {
    /// Number of the packet over the whole run.
    pub packet: u64,
    /// Label of its message.
    pub label: u32,
    /// Payload.
    pub bytes: u32,
    /// Node it came from.
    pub src: u32,
    /// Node it is at.
    pub dst: u32,
    /// Switches visited.
    pub hops: u8,
    /// Of an observed job.
    pub observed: bool,
}

/// Measures nothing and costs nothing.
#[derive(Debug, Default)]
pub struct NullProbe;

impl Probe for NullProbe {
    const ON: bool = false;
    #[inline]
    fn hop(&mut self, _: u64, _: Hop, _: bool, _: &mut Mark, _: u64) {}
    #[inline]
    fn sent(&mut self, _: u64, _: u32, _: Transmission, _: SentPacket) {}
    #[inline]
    fn delivered(&mut self, _: u64, _: DeliveredPacket, _: Mark) {}
}
