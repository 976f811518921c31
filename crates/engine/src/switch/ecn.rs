//! ECN marks of switches under DCQCN.

use crate::network::packet::Flags;
use crate::probe::Probe;
use crate::rng::{Stream, random};
use crate::settings::Dcqcn;
use crate::shard::Shard;

impl<P: Probe> Shard<'_, P> {
    /// The data packet in `slot` joins the queue of `lane`: marks it with the probability that the
    /// length of the queue gives, the packet included. Whether the output is paused does not matter.
    pub(super) fn mark_ecn(&mut self, dcqcn: &Dcqcn, lane: u32, slot: u32) {
        let queued = self.queued(lane) + u64::from(self.packets[slot].wire);
        let packet = &mut self.packets[slot];
        if queued <= dcqcn.kmin_bytes || packet.flags.has(Flags::NOTIFIED) {
            return;
        }
        let bits = random(self.model.settings.seed, Stream::Ecn, packet.id, packet.hops.into());
        if dcqcn.marks(queued, bits) {
            packet.flags.set(Flags::NOTIFIED, true);
            self.congestion.marked += 1;
        }
    }
}
