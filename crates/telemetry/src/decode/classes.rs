//! Decoding by class: packets with the same candidate links are decoded together, over those only.
//!
//! A receiver knows from source, destination and routing which links a packet may have used (§5.2),
//! for instance per stage of a fat tree: all packets of a pod share the pod's up links. A class has
//! few links, so its transform is tiny.

use std::ops::Range;

use super::cost::{self, Choice};
use super::packets::{Classes, DecodeError, Hash, Packets, check, check_fit};
use super::scores as decode;
use super::unsorted::ProjectionPlan;

/// Scores of all `links`, by the faster or the given method, each over the packets of the classes
/// in which it is a candidate.
///
/// # Errors
/// Those of [`check`], and a class or candidate that does not exist.
pub fn scores(
    hash: Hash,
    packets: &Packets<'_>,
    classes: &Classes<'_>,
    links: &[u32],
    how: Option<Choice>,
) -> Result<Vec<i64>, DecodeError> {
    check_table(hash, packets, classes, links)?;
    let mut total = vec![0i64; links.len()];
    let (ids, n_classes) = (packets.ids.len(), classes.start.len().saturating_sub(1));
    if how != Some(Choice::Direct)
        && let Some(plan) = ProjectionPlan::of(hash, classes, links)
        && (how.is_some() || {
            let (each, all) = plan.bytes(hash);
            let mean = classes.links.len().div_ceil(n_classes.max(1));
            cost::unsorted(hash, ids, each, all)
                < cost::sorted(hash, ids, n_classes, mean, plan.rank())
        })
    {
        plan.decode(hash, packets, classes, &mut total)?;
        return Ok(total);
    }
    check(hash, packets, links)?;
    if let Some(&class) = classes.of_packet.iter().find(|&&class| class as usize >= n_classes) {
        return Err(DecodeError::Class(class));
    }
    let mut sorted = SortedPackets::default();
    // In batches that fit the caches, yet with enough packets per class to be worth its set-up.
    let batch = (MIN_PER_CLASS * n_classes).max(MIN_BATCH);
    for first in (0..ids).step_by(batch) {
        let rows = first..(first + batch).min(ids);
        sorted.fill(packets, classes.of_packet, rows, n_classes);
        sorted.decode(hash, classes, links, how, &mut total);
    }
    Ok(total)
}

/// Checks what can be checked without a pass over the packets.
fn check_table(
    hash: Hash,
    packets: &Packets<'_>,
    classes: &Classes<'_>,
    links: &[u32],
) -> Result<(), DecodeError> {
    if !(1..=8).contains(&hash.bits) {
        return Err(DecodeError::Bits(hash.bits));
    }
    let (ids, hashes, weights) = (packets.ids.len(), packets.hashes.len(), packets.weights.len());
    for other in [hashes, weights, classes.of_packet.len()] {
        if other != ids {
            return Err(DecodeError::Lengths { ids, hashes, weights: weights.min(other) });
        }
    }
    check_fit("link", links, hash.field, 0)?;
    let ascends = classes.start.windows(2).all(|pair| pair[0] <= pair[1]);
    let ends =
        classes.start.first() == Some(&0) && classes.start.last() == Some(&classes.links.len());
    let exist = classes.links.iter().all(|&link| (link as usize) < links.len());
    if ascends && ends && exist { Ok(()) } else { Err(DecodeError::Table) }
}

/// Minimum number of packets decoded at a time.
const MIN_BATCH: usize = 1 << 18;
/// The same per class, on average.
const MIN_PER_CLASS: usize = 1 << 9;

/// Packets in order of their class.
#[derive(Default)]
struct SortedPackets {
    start: Vec<usize>,
    next: Vec<usize>,
    ids: Vec<u32>,
    hashes: Vec<u8>,
    weights: Vec<u8>,
}

impl SortedPackets {
    fn fill(&mut self, packets: &Packets<'_>, class: &[u32], rows: Range<usize>, n_classes: usize) {
        self.start.clear();
        self.start.resize(n_classes + 1, 0);
        for &k in &class[rows.clone()] {
            self.start[k as usize + 1] += 1;
        }
        for k in 0..n_classes {
            self.start[k + 1] += self.start[k];
        }
        self.next.clone_from(&self.start);
        self.ids.resize(rows.len(), 0);
        self.hashes.resize(rows.len(), 0);
        self.weights.resize(rows.len(), 0);
        for p in rows {
            let next = &mut self.next[class[p] as usize];
            self.ids[*next] = packets.ids[p];
            self.hashes[*next] = packets.hashes[p];
            self.weights[*next] = packets.weights[p];
            *next += 1;
        }
    }

    fn decode(
        &self,
        hash: Hash,
        classes: &Classes<'_>,
        links: &[u32],
        how: Option<Choice>,
        total: &mut [i64],
    ) {
        let mut values = Vec::new();
        for (class, range) in self.start.windows(2).enumerate() {
            let members = &classes.links[classes.start[class]..classes.start[class + 1]];
            let rows = range[0]..range[1];
            if rows.is_empty() || members.is_empty() {
                continue;
            }
            values.clear();
            values.extend(members.iter().map(|&link| links[link as usize]));
            let of_class = Packets {
                ids: &self.ids[rows.clone()],
                hashes: &self.hashes[rows.clone()],
                weights: &self.weights[rows],
            };
            for (&link, score) in members.iter().zip(decode(hash, &of_class, &values, how)) {
                total[link as usize] += score;
            }
        }
    }
}
