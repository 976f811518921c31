//! Queue pairs and packet sequence numbers (PSNs), as InfiniBand adapters assign them.
//!
//! The engine numbers packets over the whole run; a network does not. Here every message gets the
//! queue pair it is sent on and the PSN of its first packet. Messages of a queue pair are numbered in
//! program order. Packets that the engine does not simulate (acknowledgements) or counts apart (requests and
//! clears to send) take no PSN; a lossless network retransmits nothing.

use std::collections::HashMap;

use tailback_telemetry::packet_id::{FlowKey, ID_BITS, packet_id};

use crate::model::{Model, packets_of};
use crate::rng::{Stream, random};
use crate::settings::{HeaderSettings, PsnStart, QueuePairs};

/// The first queue pair that is not reserved for management (InfiniBand, volume 1, section 3.5.10).
const FIRST_QUEUE_PAIR: u32 = 2;
const MASK: u32 = (1 << ID_BITS) - 1;

/// Values that all packets of a message share.
#[derive(Debug, Clone, Copy, Default)]
pub struct Connection {
    flow: FlowKey,
    /// PSN of its first packet less that packet's number in the run.
    offset: u32,
}

impl Connection {
    /// PSN of packet `number` of the run.
    #[inline]
    pub fn psn(&self, number: u64) -> u32 {
        (number as u32).wrapping_add(self.offset) & MASK
    }

    /// Id of packet `number` of the run.
    #[inline]
    pub fn packet_id(&self, number: u64) -> u32 {
        packet_id(self.psn(number), self.flow)
    }

    /// Queue pair.
    pub fn queue_pair(&self) -> u32 {
        self.flow.queue_pair
    }
}

/// The connection of every message, by its number. Local ids of nodes are their numbers + 1.
pub(crate) fn connections(model: &Model<'_>, carry: &HeaderSettings) -> Vec<Connection> {
    let node = |rank: u32| model.placement.node[rank as usize];
    // Of every queue pair: its number, and the PSN of its next packet.
    let mut pairs = HashMap::<(u32, u32), (u32, u32)>::new();
    let mut allocated = vec![FIRST_QUEUE_PAIR; model.n_nodes as usize];
    let mut connection = |number: usize| {
        let message = &model.program.messages[number];
        if model.same_host(message) {
            return Connection::default();
        }
        let (source, destination) = (node(message.src), node(message.dst));
        // A number is unique at the node that allocates it: the receiver of a connected queue pair,
        // the sender of one that serves all peers.
        let (key, owner) = match carry.queue_pairs {
            QueuePairs::PerPeer => ((message.src, message.dst), destination),
            QueuePairs::Shared => ((message.src, u32::MAX), source),
        };
        let (queue_pair, next) = pairs.entry(key).or_insert_with(|| {
            let free = &mut allocated[owner as usize];
            *free += 1;
            let start = match carry.psn_start {
                PsnStart::Zero => 0,
                PsnStart::Random => {
                    let (seed, stream) = (model.settings.seed, Stream::SequenceNumber);
                    random(seed, stream, u64::from(key.0) << 32 | u64::from(key.1), 0) as u32
                }
            };
            (*free - 1, start)
        });
        let offset = next.wrapping_sub(message.first_packet as u32);
        *next = next.wrapping_add(packets_of(message, &model.settings));
        let flow =
            FlowKey { source: source + 1, destination: destination + 1, queue_pair: *queue_pair };
        Connection { flow, offset }
    };
    (0..model.program.messages.len()).map(&mut connection).collect()
}
