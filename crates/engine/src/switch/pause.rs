//! Priority flow control at the sending end of links: PAUSE and RESUME (see `network/pause.rs`).

use crate::events::queue::{Event, EventKind};
use crate::network::link::NEVER;
use crate::network::pause::{ARRIVED, PausedLane};
use crate::probe::Probe;
use crate::shard::Shard;

impl<P: Probe> Shard<'_, P> {
    /// A packet of `wire` bytes leaves by `lane`, its tail at `end`. Schedules the report to the
    /// sender that the buffer holds it. Nodes receive at line rate and never pause.
    pub fn expect_arrival(&mut self, lane: u32, wire: u32, end: u64) {
        let state = self.links.lane(lane);
        if state.leads_to_node() {
            return;
        }
        let reported = end + 2 * u64::from(self.links.cable(state).delay);
        self.pauses.lane(lane).unreported += wire;
        self.queue.push(Event::new(reported, EventKind::Credit, lane, ARRIVED | wire));
    }

    /// Bytes have arrived in the buffer at the far end of `lane`, or have left it.
    #[inline(never)]
    pub fn on_buffer_report(&mut self, lane: u32, report: u32) {
        let (arrived, bytes) = (report & ARRIVED != 0, report & !ARRIVED);
        let state = self.pauses.lane(lane);
        let paused = state.is_paused();
        if arrived {
            state.unreported -= bytes;
            if !paused && self.held(lane) > i64::from(self.pauses.xoff) {
                self.pause(lane);
            }
        } else if paused {
            state.withheld += bytes;
            if self.held(lane) <= i64::from(self.pauses.xon) {
                self.resume(lane);
            }
        } else {
            self.links.lane_mut(lane).add(bytes);
        }
    }

    /// Bytes in the buffer at the far end when it sent the report that arrives now. Negative for an
    /// instant if bytes leave as they arrive.
    fn held(&mut self, lane: u32) -> i64 {
        let PausedLane { unreported, withheld, .. } = *self.pauses.lane(lane);
        self.outstanding(lane) as i64 - i64::from(withheld) - i64::from(unreported)
    }

    /// Bytes of the buffer at the far end of `lane` for which there is no credit now.
    fn outstanding(&self, lane: u32) -> u64 {
        let buffer = self.model.settings.buffer_bytes;
        self.links.unreturned(lane, buffer, self.now) - self.links.loads.waiting(lane)
    }

    /// PAUSE arrives: withholds the credit, and turns returning credit into events.
    fn pause(&mut self, lane: u32) {
        let credit = self.model.settings.buffer_bytes - self.outstanding(lane) as u32;
        let taken = self.links.take_credit(lane, credit, self.now);
        debug_assert!(taken, "{credit} B were there");
        self.starve(lane);
        let state = self.pauses.lane(lane);
        (state.withheld, state.since) = (credit, self.now);
        self.pauses.pauses += 1;
    }

    /// RESUME arrives.
    fn resume(&mut self, lane: u32) {
        let now = self.now;
        let state = self.pauses.lane(lane);
        let withheld = std::mem::take(&mut state.withheld);
        let since = std::mem::replace(&mut state.since, NEVER);
        self.pauses.paused_ps += now - since;
        let state = self.links.lane_mut(lane);
        state.add(withheld);
        state.clear_starving();
        if !state.starts_at_node() {
            return self.schedule_arbitration(self.links.link_of(lane));
        }
        let node = self.model.fabric.link_src[state.global as usize];
        if !self.adapter(node).pending {
            self.send_next(node);
        }
    }
}
