//! Scores of all links at once by Walsh–Hadamard transforms.
//!
//! `2^b [h = H] − 1 = Σ_{u ≠ 0} (−1)^{u·h} (−1)^{u·H(p, d)}`, and for the GF(2^n) hash `u·H(p, d)` is
//! linear in d: over a basis e_1 … e_r of the links, d = Σ c_j e_j, it is the parity of c and the
//! *projected id* q(p), whose bit j is `u·H(p, e_j)`. So for each u the sum over packets is the
//! transform, at c, of the signed histogram of q: 2^b − 1 transforms of 2^r points, however many
//! packets and links there are. With dense link indices r = ⌈log2 links⌉.

use super::packets::{Hash, Packets};
use crate::hash::GaloisField;

/// Coordinates of links over a basis of them.
#[derive(Debug)]
pub struct Basis {
    /// Links that are independent over GF(2).
    pub links: Vec<u32>,
    /// Which of them sum to each link, as a bit mask.
    pub coordinates: Vec<u32>,
}

impl Basis {
    /// Finds a basis by Gaussian elimination.
    pub fn of(links: &[u32]) -> Self {
        let mut basis = Vec::new();
        // Pivot by highest bit: the reduced value, and the basis links whose sum it is.
        let mut pivots = [(0u32, 0u32); 32];
        let coordinates = links
            .iter()
            .map(|&link| {
                let (mut value, mut sum) = (link, 0u32);
                while value != 0 {
                    let bit = value.ilog2() as usize;
                    if pivots[bit].0 == 0 {
                        let bit_of_link = 1 << basis.len();
                        basis.push(link);
                        pivots[bit] = (value, sum | bit_of_link);
                        return bit_of_link;
                    }
                    value ^= pivots[bit].0;
                    sum ^= pivots[bit].1;
                }
                sum
            })
            .collect();
        Self { links: basis, coordinates }
    }
}

/// A linear map of ids, with a table for each byte.
pub(super) struct Projection {
    pub(super) tables: Vec<[u32; 256]>,
}

impl Projection {
    /// The parity of u and the hash of an id and a link is the parity of the id under this mask.
    pub(super) fn mask(field: GaloisField, link: u32, u: u32) -> u32 {
        (0..8).filter(|k| (u >> k) & 1 == 1).fold(0, |m, k| m ^ field.mask(link, k))
    }

    /// Bit j of the image is the parity of u and the hash of the id and basis link j.
    pub(super) fn new(field: GaloisField, basis: &[u32], u: u32) -> Self {
        let mut column = vec![0u32; field.bits() as usize];
        for (j, &link) in basis.iter().enumerate() {
            let mask = Self::mask(field, link, u);
            for (bit, image) in column.iter_mut().enumerate() {
                *image |= ((mask >> bit) & 1) << j;
            }
        }
        let table = |columns: &[u32]| {
            let mut out = [0u32; 256];
            for byte in 1..256usize {
                out[byte] = out[byte & (byte - 1)] ^ columns[byte.trailing_zeros() as usize];
            }
            out
        };
        Self { tables: column.chunks(8).map(table).collect() }
    }

    #[inline]
    fn image(&self, id: u32) -> usize {
        let image = |(k, table): (usize, &[u32; 256])| table[(id >> (8 * k)) as usize & 255];
        self.tables.iter().enumerate().fold(0, |q, entry| q ^ image(entry)) as usize
    }
}

/// Whether a histogram over (id, hash) has fewer bins than packets, so that building it saves time.
pub(super) fn histogram_pays(hash: Hash, packets: usize) -> bool {
    let size = hash.field.bits() + hash.bits;
    size < 23 && (1usize << size) <= packets
}

/// Scores of `links` over their `basis`; the input must have passed [`check`](super::check).
///
/// Takes 8 × 2^rank bytes: [`cost::choose`](super::cost::choose) avoids it if that is too much.
pub fn scores(hash: Hash, packets: &Packets<'_>, links: &[u32], basis: &Basis) -> Vec<i64> {
    let histogram = histogram_pays(hash, packets.ids.len()).then(|| histogram_of(hash, packets));
    let mut scores = vec![0i64; links.len()];
    let mut points = vec![0i64; 1 << basis.links.len()];
    for u in 1..1u32 << hash.bits {
        let projection = Projection::new(hash.field, &basis.links, u);
        points.fill(0);
        match &histogram {
            Some(histogram) => project_folded(hash, histogram, u, &projection, &mut points),
            None => project(packets, u, &projection, &mut points),
        }
        walsh_hadamard(&mut points);
        for (score, &c) in scores.iter_mut().zip(&basis.coordinates) {
            *score += points[c as usize];
        }
    }
    scores
}

/// Weights by (id, hash).
fn histogram_of(hash: Hash, packets: &Packets<'_>) -> Vec<u64> {
    let mut histogram = vec![0u64; 1 << (hash.field.bits() + hash.bits)];
    let mask = histogram.len() - 1;
    for ((&id, &h), &w) in packets.ids.iter().zip(packets.hashes).zip(packets.weights) {
        let at = ((id as usize) << hash.bits) | usize::from(h);
        histogram[at & mask] += u64::from(w);
    }
    histogram
}

fn project_folded(hash: Hash, histogram: &[u64], u: u32, projection: &Projection, out: &mut [i64]) {
    let values = 1usize << hash.bits;
    for (id, weights) in histogram.chunks_exact(values).enumerate() {
        let mut sum = 0i64;
        for (h, &weight) in weights.iter().enumerate() {
            sum += sign(u, h as u32) * weight as i64;
        }
        out[projection.image(id as u32)] += sum;
    }
}

fn project(packets: &Packets<'_>, u: u32, projection: &Projection, out: &mut [i64]) {
    for ((&id, &h), &w) in packets.ids.iter().zip(packets.hashes).zip(packets.weights) {
        out[projection.image(id)] += sign(u, h.into()) * i64::from(w);
    }
}

#[inline]
pub(super) fn sign(u: u32, h: u32) -> i64 {
    1 - 2 * i64::from((u & h).count_ones() & 1)
}

/// In place: `out[m] = Σ_q in[q] (−1)^parity(q & m)`; the length is a power of two.
pub(crate) fn walsh_hadamard(points: &mut [i64]) {
    let mut half = 1;
    while half < points.len() {
        for block in points.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_links_need_as_many_points_as_their_index_has_bits() {
        let links: Vec<u32> = (1..=20_000).collect();
        assert_eq!(Basis::of(&links).links.len(), 15);
        let few = Basis::of(&[0b1100, 0b1010, 0b0110, 0, 0b0001]);
        assert_eq!((few.links.len(), few.coordinates), (3, vec![1, 2, 3, 0, 4]));
    }

    #[test]
    fn the_transform_is_its_own_inverse() {
        let start: Vec<i64> = (0..16).map(|i| i * i - 7).collect();
        let mut points = start.clone();
        walsh_hadamard(&mut points);
        assert_eq!(points[0], start.iter().sum::<i64>());
        walsh_hadamard(&mut points);
        assert_eq!(points, start.iter().map(|x| 16 * x).collect::<Vec<_>>());
    }
}
