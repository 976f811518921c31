//! The hooks that the engine calls, and their arguments.

use tailback_telemetry::Mark;

use super::TruthTable;

/// Hooks called as packets move through the network. They must not influence the engine's
/// decisions.
///
/// `now` is the time of the shard and never goes back; links are shard indices. A packet that is
/// [`enqueued`](Probe::enqueued) is later [`dequeued`](Probe::dequeued) and then
/// [`sent`](Probe::sent); a packet that need not wait is sent at once.
pub trait Probe {
    /// Whether the engine should compute the hooks' arguments.
    const ON: bool;

    /// Whether [`hop`](Probe::hop) should be called.
    #[inline]
    fn wants_hops(&self) -> bool {
        true
    }

    /// Whether [`Hop::queue`] should be filled in.
    #[inline]
    fn wants_queue(&self) -> bool {
        false
    }

    /// Whether [`SentPacket::input`] should be filled in.
    #[inline]
    fn wants_inputs(&self) -> bool {
        false
    }

    /// Traffic of each link so far, per step that labels state; empty where it is not counted.
    fn step_traffic(&self) -> TruthTable {
        TruthTable::default()
    }

    /// A packet that came by `input` (see [`SentPacket`]) is likely to leave by `link`:
    /// prefetches the state of both.
    #[inline]
    fn prefetch(&self, _link: u32, _input: u32) {}

    /// A window begins at `now`; nothing happens earlier any more.
    #[inline]
    fn begin_window(&mut self, _now: u64) {}

    /// A packet chooses a link.
    fn hop(&mut self, now: u64, hop: Hop, observed: bool, mark: &mut Mark, random: u64);

    /// A packet of `wire` bytes has to wait for a link; `input` as in [`SentPacket`].
    #[inline]
    fn enqueued(&mut self, _now: u64, _link: u32, _wire: u32, _input: u32) {}

    /// A packet of `wire` bytes stops waiting; it is sent next.
    #[inline]
    fn dequeued(&mut self, _now: u64, _link: u32, _wire: u32, _input: u32) {}

    /// The adapter at an injection link has a packet of `wire` bytes and no credit for it,
    /// until it sends one. May be called repeatedly.
    #[inline]
    fn blocked(&mut self, _now: u64, _link: u32, _wire: u32) {}

    /// A link is booked for a packet.
    fn sent(&mut self, now: u64, link: u32, slot: Transmission, packet: SentPacket);

    /// A packet arrives at its node at `time`, which may lie in the future.
    fn delivered(&mut self, time: u64, arrival: DeliveredPacket, mark: Mark);
}

/// A hop of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Hop {
    /// The link, shard index.
    pub local: u32,
    /// The link, fabric number, as packets carry it.
    pub link: u32,
    /// Whether the link was congested for this packet.
    pub congested: bool,
    /// Time that the link needs for what is queued; 0 unless the probe requests it.
    pub drain_ps: u64,
    /// Number of the packet in the run.
    pub packet: u64,
    /// Its message.
    pub message: u32,
    /// Hops before this one.
    pub index: u8,
}

/// The transmission of a packet on a link.
#[derive(Debug, Clone, Copy)]
pub struct Transmission {
    /// Start of the first byte.
    pub start: u64,
    /// Duration.
    pub busy_ps: u64,
    /// How long the packet waited for credit while the link was idle.
    pub stall_ps: u64,
}

/// A packet that a link sends.
#[derive(Debug, Clone, Copy)]
pub struct SentPacket {
    /// Bytes on the wire.
    pub wire: u32,
    /// Of an observed job.
    pub observed: bool,
    /// The message it is of, or about.
    pub message: u32,
    /// The reverse link of the port it came by, shard index. Beyond all links for packets from
    /// an adapter, or unless the probe requests it.
    pub input: u32,
}

/// A data packet that has reached its node.
#[derive(Debug, Clone, Copy)]
pub struct DeliveredPacket {
    /// Number of the packet in the run.
    pub packet: u64,
    /// Its message.
    pub message: u32,
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

/// Observes nothing and costs nothing.
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
