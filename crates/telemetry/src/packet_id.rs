//! Packet ids: 24 bits that switches and receivers derive from fields every packet has.
//!
//! A packet sequence number (PSN) is unique only within its queue pair, so the id also depends on the
//! two ends and the queue pair. XOR, AND and fixed wiring suffice; there is no multiplier and no carry. A
//! state of 24 bits absorbs one field a round, as a sponge does, so that one round circuit suffices in
//! hardware; a round is a χ step as in Keccak (Bertoni et al. 2011) followed by two xorshifts, a bijection of
//! 24 bits. The state before the PSN, the key of the flow, is added once more behind it. Within a flow,
//! ids therefore never repeat before the PSN wraps; between flows they coincide as random numbers do.
//!
//! The link hash is linear in the id, which is all that decoding by transform requires. The id
//! itself must *not* be linear in the PSN. Consecutive PSNs fill subspaces, on which linear hashes
//! of two links agree always, never, or exactly half of the time.

/// Bits of an id, and of a packet sequence number.
pub const ID_BITS: u32 = 24;
const MASK: u32 = (1 << ID_BITS) - 1;

/// Round constants: the hexadecimal digits of π. The first is that of the id, the others those of [`hop_hash`].
const ID_ROUND: u32 = 0x24_3f6a;
const HOP_ROUNDS: [u32; 4] = [0x37_0734, 0x4a_4093, 0x82_2299, 0xf3_1d00];

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

/// A round backwards.
#[inline]
const fn round_back(y: u32, constant: u32) -> u32 {
    let y = y ^ constant;
    let y = (y ^ (y << 10) ^ (y << 20)) & MASK;
    let y = y ^ (y >> 7) ^ (y >> 14) ^ (y >> 21);
    let (p, q) = (rotate(y, 8), rotate(y, 16));
    y ^ (!(p ^ (!q & y)) & q)
}

/// Id of the packet with sequence number `psn` of `flow`.
#[inline]
pub const fn packet_id(psn: u32, flow: FlowKey) -> u32 {
    let ends = round(round(flow.destination & MASK, ID_ROUND) ^ flow.source & MASK, ID_ROUND);
    let key = round(round(ends ^ flow.queue_pair & MASK, ID_ROUND), ID_ROUND);
    let midway = round(round(key ^ psn & MASK, ID_ROUND) ^ key, ID_ROUND);
    round(round(midway, ID_ROUND), ID_ROUND)
}

/// Whether hop number `hop` (from 0) of the packet with this id replaces the sample: with probability 1/(hop + 1) over
/// all ids, within 2 × 10^-5 of it, and independently of the other hops.
///
/// The switch computes the id anyway, and the state two rounds before the end is as random as the id. Its 24 bits,
/// spread by two xorshifts so that no decision is correlated with a link hash, are cut into a word for each hop:
/// one bit for 1/2, two for 1/4, 16 compared with 2^16/3 and with 2^16/5. The last two share eleven bits, those
/// that matter most for one and least for the other. Hops beyond the fifth need [`hop_hash`].
#[inline]
pub const fn takes_sample(id: u32, hop: u8) -> bool {
    let before = round_back(round_back(id & MASK, ID_ROUND), ID_ROUND);
    let x = before ^ (before >> 3);
    let word = (x ^ (x << 11)) & MASK;
    match hop {
        0 => true,
        1 => word >> 23 == 0,
        2 => (word >> 5) & 0xffff < 0xffff / 3,
        3 => (word >> 21) & 3 == 0,
        4 => (word as u16).reverse_bits() < 0xffff / 5,
        _ => (hop_hash(id, hop) as u64) * (hop as u64 + 1) < 1 << ID_BITS,
    }
}

/// Hash of (packet id, hop index) that switches and receivers share: 24 bits. For each hop it is a bijection on the ids, so over all ids a threshold
/// is met with exactly its probability.
#[inline]
pub(crate) const fn hop_hash(id: u32, hop: u8) -> u32 {
    let mut x = id & MASK ^ (hop as u32 * 0x01_0101);
    let mut at = 0;
    while at < HOP_ROUNDS.len() {
        x = round(x, HOP_ROUNDS[at]);
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
        for (hops, most) in [(2_u8, 1e-9), (3, 2e-5), (4, 2e-5), (5, 2e-5), (15, 0.005)] {
            let mut count = vec![0_u32; hops.into()];
            for id in 0..1 << ID_BITS {
                count[usize::from(Coordinated::survivor(id, hops).unwrap())] += 1;
            }
            let fair = f64::from(1 << ID_BITS) / f64::from(hops);
            let off = |&n: &u32| (f64::from(n) / fair - 1.0).abs();
            let worst = count.iter().map(off).fold(0.0, f64::max);
            assert!(worst < most, "{hops} hops: {worst}");
        }
    }

    #[test]
    fn decisions_are_independent_of_the_link_hash() {
        // Correlation of a hop's decision with every parity of the id, by a Walsh-Hadamard transform of the ids
        // that take the sample. Parities of 2^24 ids at random would reach 0.3 %.
        for hop in 1..5 {
            let mut sums: Vec<i32> =
                (0..1 << ID_BITS).map(|id| takes_sample(id, hop).into()).collect();
            let mut stride = 1;
            while stride < sums.len() {
                for block in sums.chunks_exact_mut(2 * stride) {
                    let (low, high) = block.split_at_mut(stride);
                    for (a, b) in low.iter_mut().zip(high) {
                        (*a, *b) = (*a + *b, *a - *b);
                    }
                }
                stride *= 2;
            }
            let taken = f64::from(sums[0]);
            let worst = sums[1..].iter().map(|s| s.unsigned_abs()).max().unwrap();
            assert!(f64::from(worst) / taken < 0.02, "hop {hop}: {}", f64::from(worst) / taken);
        }
    }

    #[test]
    fn a_round_has_an_inverse() {
        for x in (0..1 << ID_BITS).step_by(101) {
            assert_eq!(round_back(round(x, ID_ROUND), ID_ROUND), x);
        }
    }
}
