//! Per-destination send queues of an adapter, and the pace of each.
//!
//! With injection `per-destination` an adapter has a queue of messages for every node (InfiniBand:
//! a queue pair each) and serves the queues round-robin, one packet each. A queue may have to wait
//! between packets because of congestion control, or because its rate is assigned.

use std::collections::{BTreeMap, VecDeque};

use crate::congestion::{KnownLights, NotificationPoint, ReactionPoint, Throttle};
use crate::host::pacing::Timetable;
use crate::network::cable::Cable;
use crate::network::link::NEVER;
use crate::network::packet::Light;
use crate::settings::{CongestionControl, CongestionScheme};

/// The queue for one destination.
#[derive(Debug, Default)]
pub(crate) struct DestinationQueue {
    pub messages: VecDeque<u32>,
    /// Earliest time of its next packet.
    pub next_at: u64,
    pub throttle: Throttle,
    /// Its rate under DCQCN; none before its first notification.
    pub reaction: Option<ReactionPoint>,
    /// The message that last got a rate by a distributed assignment, and the rate in Mb/s.
    pub assigned: Option<(u32, u32)>,
    /// Red lights it is stopped by.
    red: Vec<Light>,
    pub timetable: Timetable,
    /// It is in the round-robin order.
    waiting: bool,
}

/// All queues of an adapter.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    of_node: BTreeMap<u32, u32>,
    flows: Vec<DestinationQueue>,
    /// Queues with messages in round-robin order, the next one first.
    order: VecDeque<u32>,
    known_lights: KnownLights,
    /// Which marks it answers under DCQCN.
    pub notification_point: NotificationPoint,
    /// When the earliest wake-up event for a waiting queue is due.
    pub wake_at: u64,
}

impl Flows {
    /// Adds a message for `node`, to be sent from `begin` on.
    pub fn push(&mut self, node: u32, message: u32, begin: u64) {
        let number = self.number(node);
        let flow = &mut self.flows[number as usize];
        flow.messages.push_back(message);
        if !flow.waiting {
            flow.waiting = true;
            flow.timetable.begin(begin);
            flow.next_at = flow.next_at.max(begin);
            self.order.push_back(number);
        }
    }

    fn number(&mut self, node: u32) -> u32 {
        *self.of_node.entry(node).or_insert_with(|| {
            self.flows.push(DestinationQueue::default());
            self.flows.len() as u32 - 1
        })
    }

    /// The queue for `node`.
    pub fn flow(&mut self, node: u32) -> &mut DestinationQueue {
        let number = self.number(node);
        &mut self.flows[number as usize]
    }

    /// Whether no queue has a message.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Position, from `from` on, of the first queue that may send at `now`, and its message.
    pub fn ready(&self, from: usize, now: u64) -> Option<(usize, u32)> {
        let ready = |&number: &u32| {
            let flow = &self.flows[number as usize];
            flow.next_at <= now && flow.red.is_empty()
        };
        let place = from + self.order.iter().skip(from).position(ready)?;
        let message = self.flows[self.order[place] as usize].messages.front()?;
        Some((place, *message))
    }

    /// When the next of the queues that wait for their time may send.
    pub fn next_at(&self, now: u64) -> u64 {
        let moving = self.order.iter().map(|&number| &self.flows[number as usize]);
        let times = moving.filter(|flow| flow.red.is_empty()).map(|flow| flow.next_at);
        times.filter(|&time| time > now).min().unwrap_or(NEVER)
    }

    /// Stops the queue for `node` until `light` is green.
    pub fn stop(&mut self, node: u32, light: Light) {
        let number = self.number(node);
        self.known_lights.add(&mut self.flows[number as usize].red, light);
    }

    /// A light has turned green: whether a queue may resume.
    pub fn turn_green(&mut self, light: Light) -> bool {
        self.known_lights.turn_green(light);
        let mut any = false;
        for flow in self.flows.iter_mut().filter(|flow| !flow.red.is_empty()) {
            self.known_lights.remove_green(&mut flow.red);
            any |= flow.red.is_empty();
        }
        any
    }

    /// The queue at position `place` has sent a packet, the `last` one of its message or not;
    /// `pause` says when it may send the next. It moves to the end of the round-robin order.
    pub fn packet_sent(
        &mut self,
        place: usize,
        last: bool,
        pause: impl FnOnce(&mut DestinationQueue) -> u64,
    ) {
        let Some(number) = self.order.remove(place) else { return };
        let flow = &mut self.flows[number as usize];
        flow.next_at = pause(flow);
        if last {
            flow.messages.pop_front();
        }
        flow.waiting = !flow.messages.is_empty();
        if flow.waiting {
            self.order.push_back(number);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_take_turns_and_wait() {
        let mut flows = Flows::default();
        for (node, message) in [(7, 0), (7, 1), (9, 2)] {
            flows.push(node, message, 0);
        }
        assert_eq!(flows.ready(0, 0), Some((0, 0)));
        flows.packet_sent(0, true, |_| 50);
        assert_eq!(flows.ready(0, 0), Some((0, 2)));
        flows.packet_sent(0, false, |_| 30);
        assert_eq!((flows.ready(0, 10), flows.next_at(10)), (None, 30));
        assert_eq!(flows.ready(0, 40), Some((1, 2)));
        assert_eq!(flows.ready(0, 60), Some((0, 1)));
        flows.packet_sent(0, true, |_| 0);
        flows.packet_sent(0, true, |_| 0);
        assert!(flows.is_empty());
    }
}
