//! The receiver: weighted counts per window, label and link (thesis §3.2, algorithm 4).
//!
//! Packets are logged as they arrive and summed in batches, so the simulator's loop neither hashes
//! nor allocates. Windows double in length when there are too many of them: the length of a run need
//! not be known beforehand.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::{Mark, NO_LINK};

/// One received packet.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Window of its arrival.
    pub window: u32,
    /// Label of its message.
    pub label: u32,
    /// Payload bytes.
    pub bytes: u32,
    /// What it carried.
    pub mark: Mark,
}

/// What a row of sums is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Window.
    pub window: u32,
    /// Label.
    pub label: u32,
    /// Link.
    pub link: u32,
}

impl Key {
    /// The key and a number as one number, in the order of keys.
    fn packed(&self, number: u32) -> u128 {
        let high = u128::from(self.window) << 32 | u128::from(self.label);
        high << 64 | u128::from(self.link) << 32 | u128::from(number)
    }
}

/// Weighted counts of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Packets with the link in the hop reservoir.
    pub hop_samples: u64,
    /// Σ l: estimates packets through the link.
    pub hop_weight: u64,
    /// Σ l(l−1): estimates the variance of `hop_weight` without bias, since Var = Σ N_i (l_i − 1)
    /// and a packet of path length l is sampled here with probability 1/l (thesis §3.3).
    pub hop_variance: u64,
    /// Σ l × bytes: estimates bytes through the link.
    pub hop_bytes: u64,
    /// Packets with the link in the congested reservoir.
    pub congested_samples: u64,
    /// Σ g: estimates congested packets.
    pub congested_weight: u64,
    /// Σ g(g−1).
    pub congested_variance: u64,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.hop_samples += other.hop_samples;
        self.hop_weight += other.hop_weight;
        self.hop_variance += other.hop_variance;
        self.hop_bytes += other.hop_bytes;
        self.congested_samples += other.congested_samples;
        self.congested_weight += other.congested_weight;
        self.congested_variance += other.congested_variance;
    }
}

const BATCH: usize = 1 << 16;

/// Collects samples and sums them by (window, label, link).
#[derive(Debug)]
pub struct SampleLog {
    batch: Vec<Sample>,
    /// Sums of the keys met so far, in the order in which they were met.
    rows: Vec<(Key, Sums)>,
    /// Where each key's row is: what grows by being copied is small so.
    places: HashMap<Key, u32, Mix>,
}

/// Hashes a key's few words well and fast; nobody hostile chooses them.
type Mix = BuildHasherDefault<Mixer>;

#[derive(Debug, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Default for SampleLog {
    fn default() -> Self {
        Self { batch: Vec::with_capacity(BATCH), rows: Vec::new(), places: HashMap::default() }
    }
}

impl SampleLog {
    /// Joins the sums of several logs, each sorted by key.
    pub fn merge(mut logs: Vec<Vec<(Key, Sums)>>) -> Vec<(Key, Sums)> {
        if logs.len() == 1 {
            return logs.swap_remove(0);
        }
        let mut rows: Vec<(Key, Sums)> = logs.into_iter().flatten().collect();
        // Stable: made of sorted runs, which it finds.
        rows.sort_by_key(|&(key, _)| key);
        rows.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1.add(&later.1);
            }
            same
        });
        rows
    }

    /// Logs a received packet.
    #[inline]
    pub fn push(&mut self, sample: Sample) {
        self.batch.push(sample);
        if self.batch.len() == BATCH {
            self.sum_batch();
        }
    }

    /// Merges windows in pairs.
    pub fn double_windows(&mut self) {
        self.sum_batch();
        self.places.clear();
        for (key, sums) in std::mem::take(&mut self.rows) {
            self.sums(Key { window: key.window / 2, ..key }).add(&sums);
        }
    }

    /// The sums of a key.
    #[inline]
    fn sums(&mut self, key: Key) -> &mut Sums {
        let place = *self.places.entry(key).or_insert_with(|| {
            self.rows.push((key, Sums::default()));
            self.rows.len() as u32 - 1
        });
        &mut self.rows[place as usize].1
    }

    /// All sums, sorted by key.
    pub fn finish(mut self) -> Vec<(Key, Sums)> {
        self.sum_batch();
        let rows = self.rows;
        // A row is seven times as long as its key with its place: sorted are these.
        let mut order: Vec<u128> =
            rows.iter().zip(0u32..).map(|((k, _), at)| k.packed(at)).collect();
        order.sort_unstable();
        order.iter().map(|&key| rows[key as u32 as usize]).collect()
    }

    fn sum_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        for sample in &batch {
            let Sample { window, label, bytes, mark } = *sample;
            if mark.hop_link != NO_LINK {
                let l = u64::from(mark.hop_count);
                let sums = self.sums(Key { window, label, link: mark.hop_link });
                sums.hop_samples += 1;
                sums.hop_weight += l;
                sums.hop_variance += l * (l - 1);
                sums.hop_bytes += l * u64::from(bytes);
            }
            if mark.congested_link != NO_LINK {
                let g = u64::from(mark.congested_count);
                let sums = self.sums(Key { window, label, link: mark.congested_link });
                sums.congested_samples += 1;
                sums.congested_weight += g;
                sums.congested_variance += g * (g - 1);
            }
        }
        self.batch = batch;
        self.batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_charges_its_whole_path_to_the_sampled_link() {
        let mut log = SampleLog::default();
        let mark = Mark { hop_link: 3, congested_link: 4, hop_count: 5, congested_count: 2 };
        for window in [0, 1] {
            log.push(Sample { window, label: 0, bytes: 100, mark });
        }
        log.double_windows();
        let rows = log.finish();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].0, Key { window: 0, label: 0, link: 3 });
        let hop = rows[0].1;
        assert_eq!((hop.hop_samples, hop.hop_weight, hop.hop_variance), (2, 10, 40));
        assert_eq!(hop.hop_bytes, 1000);
        assert_eq!((rows[1].1.congested_weight, rows[1].1.congested_variance), (4, 4));
    }
}
