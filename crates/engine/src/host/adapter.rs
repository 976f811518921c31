//! The adapter of a node: the messages it has to send.

use std::collections::VecDeque;

use crate::host::flows::Flows;
use crate::network::link::{NEVER, NIL};
use crate::network::packet::{Light, PacketKind};

/// Send queues of an adapter. The fields that every packet touches are on one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Adapter {
    /// Handshake packets and notifications, which go first.
    pub(super) control: VecDeque<(u32, PacketKind, Light)>,
    /// Messages by destination, with per-destination injection.
    flows: Option<Box<Flows>>,
    /// Otherwise the message at the head of the queue; the rest are in `others`.
    pub(super) first: Outgoing,
    /// Its link, shard index.
    pub(super) link: u32,
    /// An event is pending for when it may send again.
    pub pending: bool,
    /// Messages wait behind the first one: `others` need not be read to know.
    pub(super) has_others: bool,
    /// Since when it has had data but no credit for any of it, with a probe; [`NEVER`] while not.
    stalled_since: u64,
    others: VecDeque<Outgoing>,
    /// The packets that it sends one after another without contention.
    pub(super) train: Train,
}

const _: () = assert!(std::mem::offset_of!(Adapter, others) == 64);

/// Full packets of the first message of an adapter, sent one after another without contention
/// (`host/uncontended.rs`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Train {
    /// When the first starts.
    pub begin: u64,
    /// From the start of one to that of the next.
    pub interval_ps: u64,
    /// Number of packets, 0 while there is no train.
    pub packets: u32,
    /// Number of the train: events of earlier ones are void.
    pub number: u32,
}

/// A message and the index of its send state in the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub message: u32,
    pub send: u32,
}

impl Outgoing {
    pub const NONE: Self = Self { message: NIL, send: NIL };
}

impl Adapter {
    /// The adapter of a node with this injection link.
    pub fn new(link: u32) -> Self {
        let (control, others) = (VecDeque::new(), VecDeque::new());
        let (first, stalled_since) = (Outgoing::NONE, NEVER);
        let (train, flows, pending, has_others) = (Train::default(), None, false, false);
        Self { control, flows, first, link, pending, has_others, others, stalled_since, train }
    }

    /// At `now` it has data, a free link, and no credit.
    pub(super) fn stall(&mut self, now: u64) {
        self.stalled_since = self.stalled_since.min(now);
    }

    /// It sends at `now`; returns how long it had stalled.
    pub(super) fn end_stall(&mut self, now: u64) -> u64 {
        now.saturating_sub(std::mem::replace(&mut self.stalled_since, NEVER))
    }

    /// Messages by destination.
    pub fn flows(&mut self) -> &mut Flows {
        self.flows.get_or_insert_default()
    }

    /// Appends a message.
    pub(super) fn push(&mut self, message: Outgoing) {
        if self.first == Outgoing::NONE {
            self.first = message;
        } else {
            self.others.push_back(message);
            self.has_others = true;
        }
    }

    /// Removes the first message, which has been sent.
    pub(super) fn pop(&mut self) {
        self.first = self.others.pop_front().unwrap_or(Outgoing::NONE);
        self.has_others = !self.others.is_empty();
    }

    /// Moves the first message to the end.
    pub(super) fn rotate(&mut self) {
        self.others.push_back(self.first);
        self.pop();
    }

    /// Whether an event must be scheduled for when it may send again; if so, marks it as
    /// pending.
    #[inline]
    pub(super) fn needs_event(&mut self) -> bool {
        !(self.is_idle() || std::mem::replace(&mut self.pending, true))
    }

    /// Whether there is nothing to send.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        let flows = self.flows.as_ref().is_none_or(|flows| flows.is_empty());
        self.first == Outgoing::NONE && self.control.is_empty() && flows
    }
}
