//! The adapter of a node: messages that wait to be sent.

use std::collections::VecDeque;

use crate::host::flows::Flows;
use crate::network::link::NIL;
use crate::network::packet::{Light, PacketKind};

/// Messages an adapter has to send; what every packet touches lies on one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Adapter {
    /// Handshake packets and notifications: they go first.
    pub(super) control: VecDeque<(u32, PacketKind, Light)>,
    /// Messages with packets left by destination, where injection is of that kind.
    flows: Option<Box<Flows>>,
    /// Otherwise: the first of them, and the others.
    pub(super) first: Outgoing,
    /// Its link, numbered within the shard.
    pub(super) link: u32,
    /// An event will come when it may send again.
    pub(super) pending: bool,
    others: VecDeque<Outgoing>,
}

/// A message and the number of its sending side within the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub message: u32,
    pub send: u32,
}

impl Outgoing {
    pub const NONE: Self = Self { message: NIL, send: NIL };
}

impl Adapter {
    /// That of a node with this link.
    pub fn new(link: u32) -> Self {
        let (control, others) = (VecDeque::new(), VecDeque::new());
        Self { control, flows: None, first: Outgoing::NONE, link, pending: false, others }
    }

    /// Messages by destination.
    pub fn flows(&mut self) -> &mut Flows {
        self.flows.get_or_insert_default()
    }

    /// Adds a message to be sent in its turn.
    pub(super) fn push(&mut self, message: Outgoing) {
        if self.first == Outgoing::NONE {
            self.first = message;
        } else {
            self.others.push_back(message);
        }
    }

    /// The first message is sent: the next one is the first.
    pub(super) fn pop(&mut self) {
        self.first = self.others.pop_front().unwrap_or(Outgoing::NONE);
    }

    /// The first message goes to the end of the line.
    pub(super) fn rotate(&mut self) {
        self.others.push_back(self.first);
        self.pop();
    }

    /// Whether an event must be made for the time when it may send again; one will come from now on.
    #[inline]
    pub(super) fn needs_event(&mut self) -> bool {
        !(self.is_idle() || std::mem::replace(&mut self.pending, true))
    }

    /// Whether nothing is to be sent.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        let flows = self.flows.as_ref().is_none_or(|flows| flows.is_empty());
        self.first == Outgoing::NONE && self.control.is_empty() && flows
    }
}
