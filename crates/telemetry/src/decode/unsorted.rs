//! Decodes all classes in one pass over the packets, in order of arrival.
//!
//! Sorting packets by class costs as much as decoding them. Instead, each class has its own
//! projection tables and points, all small enough to stay in the caches, and a packet is added to
//! the points of its class directly: two table look-ups and an addition for 16-bit ids. Where
//! classes have one or two independent links, parities of masked ids are faster than tables.

use super::packets::{Classes, DecodeError, Hash, Packets, check_values};
use super::transform::{Basis, Projection, sign, walsh_hadamard};

/// Packets per batch: checked, then decoded for every u while they are in the caches.
const BATCH: usize = 1 << 14;
/// Classes up to this rank are projected by parities.
const MAX_PARITY_RANK: usize = 2;
/// Largest rank of a class: table entries have 16 bits.
pub(super) const MAX_RANK: usize = 16;
/// Maximum bytes of tables and points.
const MAX_BYTES: usize = 1 << 28;

/// How every class is projected.
pub(super) struct ProjectionPlan {
    bases: Vec<Basis>,
    rank: usize,
    bytes: usize,
}

impl ProjectionPlan {
    /// The plan for a pass over `classes`; `None` if tables or points would be too large.
    pub(super) fn of(hash: Hash, classes: &Classes<'_>, links: &[u32]) -> Option<Self> {
        let mut values = Vec::new();
        let bases: Vec<Basis> = classes
            .start
            .windows(2)
            .map(|ends| {
                values.clear();
                values.extend(classes.links[ends[0]..ends[1]].iter().map(|&d| links[d as usize]));
                Basis::of(&values)
            })
            .collect();
        let rank = bases.iter().map(|basis| basis.links.len()).max().unwrap_or(0);
        if rank > MAX_RANK {
            return None;
        }
        let tables = if rank <= MAX_PARITY_RANK {
            4 * MAX_PARITY_RANK
        } else {
            hash.field.bits() as usize * 64
        };
        let each = bases.len() * (tables + (8 << rank));
        let bytes = each * ((1 << hash.bits) - 1);
        (bytes <= MAX_BYTES).then_some(Self { bases, rank, bytes })
    }

    /// Bytes of tables and points of one transform, and of all.
    pub(super) fn bytes(&self, hash: Hash) -> (usize, usize) {
        (self.bytes / ((1 << hash.bits) - 1), self.bytes)
    }

    /// Largest rank.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// Adds every link's score to `total`.
    ///
    /// # Errors
    /// A value that does not fit; `total` is then incomplete.
    pub(super) fn decode(
        &self,
        hash: Hash,
        packets: &Packets<'_>,
        classes: &Classes<'_>,
        total: &mut [i64],
    ) -> Result<(), DecodeError> {
        let mut passes: Vec<Pass> = (1..1u32 << hash.bits).map(|u| self.pass(hash, u)).collect();
        for first in (0..packets.ids.len()).step_by(BATCH) {
            let rows = first..(first + BATCH).min(packets.ids.len());
            let batch = Packets {
                ids: &packets.ids[rows.clone()],
                hashes: &packets.hashes[rows.clone()],
                weights: &packets.weights[rows.clone()],
            };
            let of_packet = &classes.of_packet[rows];
            check_values(hash, &batch, first)?;
            let last = of_packet.iter().fold(0, |a, &b| a.max(b));
            if last as usize >= self.bases.len() {
                return Err(DecodeError::Class(last));
            }
            for pass in &mut passes {
                pass.add(&batch, of_packet);
            }
        }
        for pass in &mut passes {
            for (class, points) in pass.points.chunks_exact_mut(1 << self.rank).enumerate() {
                let members = &classes.links[classes.start[class]..classes.start[class + 1]];
                walsh_hadamard(points);
                for (&link, &c) in members.iter().zip(&self.bases[class].coordinates) {
                    total[link as usize] += points[c as usize];
                }
            }
        }
        Ok(())
    }

    fn pass(&self, hash: Hash, u: u32) -> Pass {
        let mut signs = [0i64; 256];
        for (h, entry) in signs.iter_mut().enumerate() {
            *entry = sign(u, h as u32);
        }
        let points = vec![0; self.bases.len() << self.rank];
        let bytes = hash.field.bits() as usize / 8;
        let (mut tables, mut masks) = (Vec::new(), Vec::new());
        for basis in &self.bases {
            if self.rank <= MAX_PARITY_RANK {
                let mut of_class = [0; MAX_PARITY_RANK];
                for (mask, &link) in of_class.iter_mut().zip(&basis.links) {
                    *mask = Projection::mask(hash.field, link, u);
                }
                masks.push(of_class);
            } else {
                let projection = Projection::new(hash.field, &basis.links, u);
                for table in &projection.tables {
                    tables.push(table.map(|image| image as u16));
                }
            }
        }
        Pass { signs, points, rank: self.rank, bytes, tables, masks }
    }
}

/// One transform of all classes.
struct Pass {
    signs: [i64; 256],
    points: Vec<i64>,
    rank: usize,
    bytes: usize,
    /// A table for each class and each byte of an id.
    tables: Vec<[u16; 256]>,
    masks: Vec<[u32; MAX_PARITY_RANK]>,
}

impl Pass {
    fn add(&mut self, packets: &Packets<'_>, class: &[u32]) {
        match (self.rank <= MAX_PARITY_RANK, self.bytes) {
            (true, _) => {
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("popcnt") {
                    // SAFETY: the processor has the instruction.
                    return unsafe { self.parities_popcnt(packets, class) };
                }
                self.parities(packets, class);
            }
            (_, 1) => self.tables::<1>(packets, class),
            (_, 2) => self.tables::<2>(packets, class),
            (_, 3) => self.tables::<3>(packets, class),
            _ => self.tables::<4>(packets, class),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "popcnt")]
    fn parities_popcnt(&mut self, packets: &Packets<'_>, class: &[u32]) {
        self.parities(packets, class);
    }

    #[inline(always)]
    fn parities(&mut self, packets: &Packets<'_>, class: &[u32]) {
        let rows = packets.ids.iter().zip(packets.hashes).zip(packets.weights).zip(class);
        for (((&id, &h), &w), &k) in rows {
            let of_class = &self.masks[k as usize];
            let mut q = 0;
            for (j, mask) in of_class.iter().enumerate() {
                q |= ((id & mask).count_ones() as usize & 1) << j;
            }
            // Masks beyond the rank are 0, so q is below 2^rank.
            self.points[((k as usize) << self.rank) | q] +=
                self.signs[usize::from(h)] * i64::from(w);
        }
    }

    fn tables<const BYTES: usize>(&mut self, packets: &Packets<'_>, class: &[u32]) {
        let (tables, _) = self.tables.as_chunks::<BYTES>();
        let rows = packets.ids.iter().zip(packets.hashes).zip(packets.weights).zip(class);
        for (((&id, &h), &w), &k) in rows {
            let of_class = &tables[k as usize];
            let mut q = 0;
            for (byte, table) in of_class.iter().enumerate() {
                q ^= table[(id >> (8 * byte)) as usize & 255];
            }
            let at = ((k as usize) << self.rank) | usize::from(q);
            self.points[at] += self.signs[usize::from(h)] * i64::from(w);
        }
    }
}
