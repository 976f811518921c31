//! Reservoirs of several link hashes: `single-bit`, `compact` and `coordinated` with n slots in place of one
//! (Taffet 2019, §3.1 for reservoirs of n; Algorithm R, Vitter 1985).
//!
//! A packet of l hops brings min(n, l) samples, each of weight l / min(n, l). The header is one word, from the
//! least bit:
//!
//! | scheme | header |
//! |---|---|
//! | single-bit | n hashes, hops, n hashes of congested hops, congested hops |
//! | compact | n slots of a congested bit and a hash, hops |
//! | coordinated | n slots of a congested bit and a hash |

use super::{HeaderSample, LinkOrHash, MAX_SLOTS, Scheme, Visit, saturation};
use crate::hash::LinkHash;
use crate::packet_id::{ID_BITS, hop_hash};

/// Which scheme has several slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotScheme {
    /// Two reservoirs with a count each.
    SingleBit,
    /// One reservoir with congested bits, and a count.
    Compact,
    /// One reservoir with congested bits; a hash of (packet id, hop) decides.
    Coordinated,
}

/// A scheme with reservoirs of several hashes.
#[derive(Debug, Clone, Copy)]
pub struct HashSlots {
    scheme: SlotScheme,
    hash: LinkHash,
    slots: u32,
    bits: u32,
    count_bits: u32,
}

/// The slot that hop number `count` (from 0) takes by Algorithm R, where `draw` is uniform in `0..=count`.
#[inline]
fn slot_of(count: u32, slots: u32, draw: impl FnOnce() -> u32) -> Option<u32> {
    let slot = if count < slots { count } else { draw() };
    (slot < slots).then_some(slot)
}

/// A uniform integer in `0..=count` made from `random`.
#[inline]
fn uniform(random: u32, count: u32) -> u32 {
    ((u64::from(random) * (u64::from(count) + 1)) >> 32) as u32
}

impl HashSlots {
    /// `None` unless the header fits into 64 bits and its counts reach the number of slots.
    pub fn new(
        scheme: SlotScheme,
        hash: LinkHash,
        slots: u32,
        bits: u32,
        count_bits: u32,
    ) -> Option<Self> {
        let made = Self { scheme, hash, slots, bits, count_bits };
        let counted =
            scheme == SlotScheme::Coordinated || slots <= u32::from(saturation(count_bits));
        let sizes = (1..=MAX_SLOTS as u32).contains(&slots)
            && (1..=8).contains(&bits)
            && (1..=8).contains(&count_bits);
        (sizes && counted && made.header_bits() <= u64::BITS).then_some(made)
    }

    /// Bits of a slot.
    fn width(&self) -> u32 {
        self.bits + u32::from(self.scheme != SlotScheme::SingleBit)
    }

    /// Bits of a reservoir and its count.
    fn reservoir_bits(&self) -> u32 {
        let counted = self.scheme != SlotScheme::Coordinated;
        self.slots * self.width() + u32::from(counted) * self.count_bits
    }

    /// Hops and congested hops that a header has counted, in schemes that count.
    pub fn counts(&self, word: u64) -> [u8; 2] {
        let count = |first| part(word, first + self.slots * self.width(), self.count_bits) as u8;
        match self.scheme {
            SlotScheme::SingleBit => [count(0), count(self.reservoir_bits())],
            SlotScheme::Compact => [count(0), 0],
            SlotScheme::Coordinated => [0, 0],
        }
    }

    /// Offers a hop to the counted reservoir whose bits begin at `first`.
    fn offer(&self, word: &mut u64, first: u32, value: u64, random: u32) {
        let at = first + self.slots * self.width();
        let count = part(*word, at, self.count_bits) as u32;
        if let Some(slot) = slot_of(count, self.slots, || uniform(random, count)) {
            put(word, first + slot * self.width(), self.width(), value);
        }
        let more = (count + 1).min(saturation(self.count_bits).into());
        put(word, at, self.count_bits, more.into());
    }

    /// Appends the samples of the reservoir whose bits begin at `first`, of `count` hops.
    fn conclude(
        &self,
        word: u64,
        (first, count): (u32, u32),
        hop: impl Fn(u32) -> Option<u8>,
        congested: bool,
        out: &mut Vec<HeaderSample>,
    ) {
        let held = count.min(self.slots);
        let weight = f64::from(count) / f64::from(held.max(1));
        for slot in 0..held {
            let value = part(word, first + slot * self.width(), self.width());
            let (flag, hash) = match self.scheme {
                SlotScheme::SingleBit => (false, value),
                _ => (value & 1 != 0, value >> 1),
            };
            let (seen, hop) = (LinkOrHash::Hash(hash as u32), hop(slot));
            out.push(HeaderSample { congested, seen, hop, weight });
            if flag {
                out.push(HeaderSample { congested: true, seen, hop, weight });
            }
        }
    }
}

/// The slot that a hop (from 0) of a packet takes in scheme coordinated with several slots.
#[inline]
pub(crate) fn coordinated_slot(packet: u32, hop: u8, slots: u32) -> Option<u32> {
    slot_of(hop.into(), slots, || {
        ((u64::from(hop_hash(packet, hop)) * (u64::from(hop) + 1)) >> ID_BITS) as u32
    })
}

fn part(word: u64, from: u32, count: u32) -> u64 {
    (word >> from) & ((1 << count) - 1)
}

fn put(word: &mut u64, from: u32, count: u32, value: u64) {
    *word = (*word & !(((1 << count) - 1) << from)) | value << from;
}

impl Scheme for HashSlots {
    type Mark = u64;

    fn name(&self) -> &'static str {
        match self.scheme {
            SlotScheme::SingleBit => "single_bit_slots",
            SlotScheme::Compact => "compact_slots",
            SlotScheme::Coordinated => "coordinated_slots",
        }
    }
    fn header_bits(&self) -> u32 {
        self.reservoir_bits() * (1 + u32::from(self.scheme == SlotScheme::SingleBit))
    }
    fn hash_bits(&self) -> Option<u32> {
        Some(self.bits)
    }
    fn start(&self) -> u64 {
        0
    }
    fn visit(&self, word: &mut u64, visit: &Visit) {
        let hash = u64::from(self.hash.value(visit.packet, visit.link, self.bits));
        let flagged = hash << 1 | u64::from(visit.congested);
        let [hop, met] = [visit.random as u32, (visit.random >> 32) as u32];
        match self.scheme {
            SlotScheme::SingleBit => {
                self.offer(word, 0, hash, hop);
                if visit.congested {
                    self.offer(word, self.reservoir_bits(), hash, met);
                }
            }
            SlotScheme::Compact => self.offer(word, 0, flagged, hop),
            SlotScheme::Coordinated => {
                if let Some(slot) = coordinated_slot(visit.packet, visit.hop, self.slots) {
                    put(word, slot * self.width(), self.width(), flagged);
                }
            }
        }
    }
    fn receive(&self, word: &u64, packet: u32, hops: u8, out: &mut Vec<HeaderSample>) {
        let [count, met] = self.counts(*word).map(u32::from);
        match self.scheme {
            SlotScheme::SingleBit => {
                self.conclude(*word, (0, count), |_| None, false, out);
                self.conclude(*word, (self.reservoir_bits(), met), |_| None, true, out);
            }
            SlotScheme::Compact => self.conclude(*word, (0, count), |_| None, false, out),
            SlotScheme::Coordinated => {
                let last = |slot: u32| {
                    let taken = |hop: &u8| coordinated_slot(packet, *hop, self.slots) == Some(slot);
                    (0..hops).rev().find(taken)
                };
                self.conclude(*word, (0, hops.into()), last, false, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::{FullReservoirs, mix};

    #[test]
    fn headers_have_the_stated_bits_and_no_more() {
        let made = |scheme, slots, bits, count_bits| {
            HashSlots::new(scheme, LinkHash::Mult, slots, bits, count_bits)
        };
        let bits =
            |scheme, slots, bits, count| made(scheme, slots, bits, count).unwrap().header_bits();
        assert_eq!(bits(SlotScheme::Compact, 2, 1, 3), 7);
        assert_eq!(bits(SlotScheme::Coordinated, 2, 2, 4), 6);
        assert_eq!(bits(SlotScheme::SingleBit, 3, 4, 4), 32);
        assert!(made(SlotScheme::SingleBit, 8, 4, 4).is_none(), "72 bits");
        assert!(made(SlotScheme::Compact, 8, 1, 3).is_none(), "counts to 7");
        assert!(made(SlotScheme::Compact, 9, 1, 4).is_none());
    }

    /// Whole links fill the slots of [`FullReservoirs`] by the same random numbers.
    #[test]
    fn slots_equal_those_of_full_reservoirs() {
        let field = crate::hash::GaloisField::new(24).unwrap();
        let hash = LinkHash::Gf(field);
        for slots in 1..=4 {
            let scheme = HashSlots::new(SlotScheme::SingleBit, hash, slots, 4, 4).unwrap();
            let full = FullReservoirs::new(slots as u8).unwrap();
            for packet in 1..200 {
                let (mut word, mut mark) = (scheme.start(), full.start());
                for hop in 0..6u8 {
                    let random = mix(u64::from(packet * 8 + u32::from(hop)));
                    let (link, congested) = (u32::from(hop) + 1, hop % 2 == 1);
                    let visit = Visit { link, hop, congested, level: 0, packet, random };
                    scheme.visit(&mut word, &visit);
                    full.visit(&mut mark, &visit);
                }
                let (mut hashes, mut links) = (Vec::new(), Vec::new());
                scheme.receive(&word, packet, 6, &mut hashes);
                full.receive(&mark, packet, 6, &mut links);
                assert_eq!(hashes.len(), links.len());
                for (hashed, full_link) in hashes.iter().zip(&links) {
                    let LinkOrHash::Link(link) = full_link.seen else { panic!("a whole link") };
                    assert_eq!(hashed.seen, LinkOrHash::Hash(hash.value(packet, link, 4)));
                    assert_eq!(
                        (hashed.weight, hashed.congested),
                        (full_link.weight, full_link.congested)
                    );
                }
            }
        }
    }
}
