//! Packet ids: 24 bits that switches and receivers derive from fields every packet has.
//!
//! A packet sequence number (PSN) is unique only within its queue pair, so the id also depends on the
//! two endpoints and the queue pair. XOR, AND and fixed wiring suffice; there is no multiplier and no carry. Four
//! rounds, each a χ step as in Keccak (Bertoni et al. 2011) followed by two xorshifts, are bijections
//! on 24 bits; a key of the flow is XORed in before the first and before the third. Within a flow, ids
//! therefore never repeat before the PSN wraps; ids of different flows coincide as often as random numbers.
//!
//! The link hash is linear in the id, which is all that decoding by transform requires. The id itself must
//! *not* be linear in the PSN: consecutive PSNs fill subspaces, on which linear hashes of two links
//! agree always, never, or exactly half of the time.

/// Bits of an id, and of a packet sequence number.
pub const ID_BITS: u32 = 24;
const MASK: u32 = (1 << ID_BITS) - 1;

/// Round constants: the hexadecimal digits of π.
const ROUNDS: [u32; 8] =
    [0x24_3f6a, 0x88_5a30, 0x8d_3131, 0x98_a2e0, 0x37_0734, 0x4a_4093, 0x82_2299, 0xf3_1d00];

/// The endpoints of a packet and its queue pair, as its headers name them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowKey {
    /// Local id of the sender.
    pub source: u32,
    /// Local id of the receiver.
    pub destination: u32,
    /// Queue pair.
    pub queue_pair: u32,
}

const fn rotate(value: u32, by: u32) -> u32 {
    ((value << by) | (value >> (ID_BITS - by))) & MASK
}

/// One round.
#[inline]
const fn round(x: u32, constant: u32) -> u32 {
    let x = x ^ (!rotate(x, 8) & rotate(x, 16));
    let x = x ^ (x >> 7);
    (x ^ (x << 10)) & MASK ^ constant
}

/// Id of the packet with sequence number `psn` of `flow`.
#[inline]
pub const fn packet_id(psn: u32, flow: FlowKey) -> u32 {
    let (source, destination, pair) =
        (flow.source & MASK, flow.destination & MASK, flow.queue_pair & MASK);
    let x = psn & MASK ^ rotate(source, 8) ^ rotate(destination, 16) ^ rotate(pair, 12);
    let x = round(round(x, ROUNDS[0]), ROUNDS[1]);
    let x = x ^ rotate(destination, 8) ^ rotate(source, 16) ^ pair;
    round(round(x, ROUNDS[2]), ROUNDS[3])
}

/// Hash of (packet id, hop index) that switches and receivers share: 24 bits. For each hop it is a bijection on the ids, so over all ids a threshold
/// is met with exactly its probability.
#[inline]
pub const fn hop_hash(id: u32, hop: u8) -> u32 {
    let mut x = id & MASK ^ (hop as u32 * 0x01_0101);
    let mut at = 4;
    while at < ROUNDS.len() {
        x = round(x, ROUNDS[at]);
        at += 1;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Coordinated;

    const FLOW: FlowKey = FlowKey { source: 7, destination: 1042, queue_pair: 66 };

    fn bijective(of: impl Fn(u32) -> u32) -> bool {
        let mut seen = vec![false; 1 << ID_BITS];
        (0..1 << ID_BITS).all(|value| !std::mem::replace(&mut seen[of(value) as usize], true))
    }

    #[test]
    fn a_flow_uses_every_id_once() {
        assert!(bijective(|psn| packet_id(psn, FLOW)));
        assert!(bijective(|id| hop_hash(id, 3)));
    }

    #[test]
    fn ids_depend_on_every_field() {
        let ids = |flow| (0..1000).map(move |psn| packet_id(psn, flow));
        for other in [
            FlowKey { source: 8, ..FLOW },
            FlowKey { destination: 1043, ..FLOW },
            FlowKey { queue_pair: 67, ..FLOW },
            FlowKey { source: FLOW.destination, destination: FLOW.source, ..FLOW },
        ] {
            assert!(ids(FLOW).zip(ids(other)).filter(|(a, b)| a == b).count() < 2, "{other:?}");
        }
    }

    #[test]
    fn hops_survive_equally_often_over_all_ids() {
        for (hops, most) in [(5_u8, 0.001), (15, 0.005)] {
            let mut count = vec![0_u32; hops.into()];
            for id in (0..1 << ID_BITS).step_by(3) {
                count[usize::from(Coordinated::survivor(id, hops).unwrap())] += 1;
            }
            let fair = f64::from(1 << ID_BITS) / 3.0 / f64::from(hops);
            let off = |&n: &u32| (f64::from(n) / fair - 1.0).abs();
            assert!(count.iter().map(off).fold(0.0, f64::max) < most + 4.0 / fair.sqrt());
        }
    }
}
