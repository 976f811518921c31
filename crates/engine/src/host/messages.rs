//! The state of messages at the hosts that send and receive them.

use crate::network::link::NEVER;
use crate::program::Envelope;

/// Send state of a message: one cache line with everything its packets are made of.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct SendState {
    pub post_ps: u64,
    pub start_ps: u64,
    /// Number of its next packet in the run.
    pub next_packet: u64,
    /// Payload bytes not sent yet.
    pub bytes_unsent: u64,
    /// The receiver's node.
    pub node: u32,
    pub packets: u32,
    pub packets_unsent: u32,
    pub service: u8,
    /// Of an observed job.
    pub observed: bool,
    /// Complete when its receive is.
    pub(super) synchronous: bool,
    /// Complete.
    pub(super) complete: bool,
}

impl SendState {
    /// The state of a message to `node`.
    pub fn new(message: &Envelope, packets: u32, node: u32, service: u8, observed: bool) -> Self {
        Self {
            post_ps: 0,
            start_ps: NEVER,
            next_packet: message.first_packet,
            bytes_unsent: message.bytes,
            node,
            packets,
            packets_unsent: packets,
            service,
            observed,
            synchronous: false,
            complete: false,
        }
    }
}

/// Receive state of a message.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct ReceiveState {
    pub arrival_ps: u64,
    pub packets_left: u32,
    pub received: u32,
    pub switch_hops: u32,
    pub arrived: bool,
    pub(super) posted: bool,
    pub(super) requested: bool,
}

impl ReceiveState {
    pub fn new(packets: u32) -> Self {
        Self {
            arrival_ps: 0,
            packets_left: packets,
            received: 0,
            switch_hops: 0,
            arrived: false,
            posted: false,
            requested: false,
        }
    }
}

const _: () = assert!(size_of::<SendState>() == 64 && size_of::<ReceiveState>() == 32);
