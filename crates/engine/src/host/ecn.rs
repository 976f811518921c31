//! DCQCN in adapters: which marks a receiver answers, and the rate of a sender's flow.

use crate::congestion::ReactionPoint;
use crate::host::flows::DestinationQueue;
use crate::network::cable::Cable;
use crate::probe::Probe;
use crate::settings::{CongestionControl, CongestionScheme, Dcqcn};
use crate::shard::Shard;

impl<P: Probe> Shard<'_, P> {
    /// Whether `node` answers the mark of a packet of `message` by a notification. DCQCN limits how
    /// often; other schemes answer each.
    pub(super) fn answers_mark(&mut self, node: u32, message: u32) -> bool {
        let (model, now) = (self.model, self.now);
        let Some(CongestionScheme::Dcqcn(dcqcn)) = model.congestion_scheme() else { return true };
        let src = model.program.messages[message as usize].src;
        let sender = model.placement.node[src as usize];
        self.adapter(node).flows().notification_point.answers(sender, now, dcqcn)
    }

    /// `node` is notified that its packets to the node `to` meet congestion: their rate falls.
    pub(super) fn lower_rate(&mut self, node: u32, to: u32, dcqcn: &Dcqcn) {
        let now = self.now;
        let link = self.adapter(node).link;
        let line = self.links.cable_of(link).mbps();
        let flow = self.adapter(node).flows().flow(to);
        flow.reaction.get_or_insert_with(ReactionPoint::new).notified(now, dcqcn, line);
    }
}

impl DestinationQueue {
    /// A packet of `wire` bytes starts at `now`, which takes `busy_ps` on `cable`: time until
    /// congestion control lets the next one start.
    pub(super) fn rest(
        &mut self,
        control: &CongestionControl,
        now: u64,
        (wire, busy_ps): (u32, u64),
        cable: Cable,
    ) -> u64 {
        match &control.scheme {
            CongestionScheme::Dcqcn(dcqcn) => self
                .reaction
                .as_mut()
                .map_or(busy_ps, |point| point.sent(now, dcqcn, cable.mbps(), (wire, busy_ps))),
            _ => control.pause(self.throttle.index(now, control), busy_ps) + busy_ps,
        }
    }
}
