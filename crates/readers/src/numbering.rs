//! Replaces arbitrary values with consecutive numbers.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Hashes integers and bytes with random seeds, so that no file can provoke collisions.
#[derive(Clone)]
pub struct SeededHash(u64, u64);

impl Default for SeededHash {
    fn default() -> Self {
        let state = RandomState::new();
        Self(state.hash_one(1u8), state.hash_one(2u8) | 1)
    }
}

impl BuildHasher for SeededHash {
    type Hasher = FoldedHasher;

    fn build_hasher(&self) -> FoldedHasher {
        FoldedHasher { state: self.0, key: self.1 }
    }
}

/// The hasher of [`SeededHash`]: 128-bit products, folded.
pub struct FoldedHasher {
    state: u64,
    key: u64,
}

impl FoldedHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.key);
        self.state = (product as u64) ^ ((product >> 64) as u64).rotate_left(23);
    }
}

impl Hasher for FoldedHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.mix(u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
        }
        let tail = chunks.remainder();
        if !tail.is_empty() {
            let mut last = [0; 8];
            last[..tail.len()].copy_from_slice(tail);
            self.mix(u64::from_le_bytes(last));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }

    fn finish(&self) -> u64 {
        self.state.wrapping_mul(self.key) ^ self.state
    }
}

/// A map whose keys come from a file.
pub type Map<K, V> = HashMap<K, V, SeededHash>;

/// Numbers pairs of kind and value in the order of their first occurrence; small values need no hashing.
#[derive(Default)]
pub struct Interner {
    small: Vec<Vec<u32>>,
    others: Map<(u32, i64), u32>,
    next: u32,
}

impl Interner {
    const NONE: u32 = u32::MAX;
    /// Number of kinds with a table.
    const KINDS: u32 = 64;

    /// Number of a pair, and whether it is new.
    #[inline]
    pub fn number(&mut self, kind: u32, value: i64) -> (u32, bool) {
        if let Some(table) = self.small.get(kind as usize)
            && let Some(&number) = usize::try_from(value).ok().and_then(|at| table.get(at))
            && number != Self::NONE
        {
            return (number, false);
        }
        self.add(kind, value)
    }

    fn add(&mut self, kind: u32, value: i64) -> (u32, bool) {
        if let Some(&number) = self.others.get(&(kind, value)) {
            return (number, false);
        }
        let number = self.next;
        self.next += 1;
        if kind < Self::KINDS && value >= 0 {
            let (kind, at) = (kind as usize, value as usize);
            if kind >= self.small.len() {
                self.small.resize_with(kind + 1, Vec::new);
            }
            let table = &mut self.small[kind];
            // A table with large gaps would waste memory.
            if at < 2 * table.len() + 64 {
                if at >= table.len() {
                    table.resize(at + 1, Self::NONE);
                }
                table[at] = number;
                return (number, true);
            }
        }
        self.others.insert((kind, value), number);
        (number, true)
    }
}

/// Rows of nodes by number; numbers mostly increase from a small one.
#[derive(Default)]
pub(crate) struct NodeRows {
    small: Vec<u32>,
    others: Map<u64, u32>,
}

impl NodeRows {
    const NONE: u32 = u32::MAX;

    /// Row of a node.
    pub fn get(&self, number: u64) -> Option<u32> {
        let place = usize::try_from(number).ok().and_then(|at| self.small.get(at)).copied();
        place.filter(|&row| row != Self::NONE).or_else(|| {
            if self.others.is_empty() { None } else { self.others.get(&number).copied() }
        })
    }

    /// Adds a node; returns whether its number is new.
    pub fn insert(&mut self, number: u64, row: u32) -> bool {
        if self.get(number).is_some() {
            return false;
        }
        // A table with large gaps would waste memory.
        if number < 2 * self.small.len() as u64 + 64 {
            let at = number as usize;
            if at >= self.small.len() {
                self.small.resize(at + 1, Self::NONE);
            }
            self.small[at] = row;
        } else {
            self.others.insert(number, row);
        }
        true
    }

    /// Forgets all nodes.
    pub fn clear(&mut self) {
        self.small.clear();
        self.others.clear();
    }
}

/// The distinct values in ascending order, and for each value its index among them.
pub fn dense(values: &[i64]) -> (Vec<i64>, Vec<i64>) {
    let (Some(&low), Some(&high)) = (values.iter().min(), values.iter().max()) else {
        return (Vec::new(), Vec::new());
    };
    let span = high.wrapping_sub(low) as u64;
    if span < 4 * values.len() as u64 + 4096 {
        let mut number = vec![-1i64; span as usize + 1];
        for &value in values {
            number[(value - low) as usize] = 0;
        }
        let mut different = Vec::new();
        for (at, slot) in number.iter_mut().enumerate() {
            if *slot == 0 {
                *slot = different.len() as i64;
                different.push(low + at as i64);
            }
        }
        return (different, values.iter().map(|&value| number[(value - low) as usize]).collect());
    }
    let mut seen: Map<i64, u32> = Map::default();
    let mut different = Vec::new();
    let first: Vec<u32> = values
        .iter()
        .map(|&value| {
            *seen.entry(value).or_insert_with(|| {
                different.push(value);
                different.len() as u32 - 1
            })
        })
        .collect();
    let mut order: Vec<u32> = (0..different.len() as u32).collect();
    order.sort_unstable_by_key(|&at| different[at as usize]);
    let mut place = vec![0i64; order.len()];
    for (rank, &at) in order.iter().enumerate() {
        place[at as usize] = rank as i64;
    }
    different.sort_unstable();
    (different, first.iter().map(|&at| place[at as usize]).collect())
}

/// For each value, how many earlier values are equal to it.
pub fn earlier_occurrences(values: &[i64]) -> Vec<i64> {
    let (different, places) = dense(values);
    let mut next = vec![0; different.len()];
    let count = |&place: &i64| {
        let slot: &mut i64 = &mut next[place as usize];
        *slot += 1;
        *slot - 1
    };
    places.iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::{Interner, dense, earlier_occurrences};

    #[test]
    fn pairs_are_numbered_in_order_of_first_occurrence() {
        let mut numbers = Interner::default();
        let keys = [(1, 0), (1, -4), (0, 0), (1, 900), (70, 3), (1, 0), (1, -4), (70, 3)];
        let assigned: Vec<u32> =
            keys.iter().map(|&(kind, value)| numbers.number(kind, value).0).collect();
        assert_eq!(assigned, [0, 1, 2, 3, 4, 0, 1, 4]);
        // A large value is still found after the table has grown beyond it.
        (1..1000).for_each(|value| assert!(numbers.number(1, value).0 > 0));
        assert_eq!(numbers.number(1, 900), (3, false));
    }

    #[test]
    fn earlier_equal_values_are_counted() {
        assert_eq!(earlier_occurrences(&[5, 9, 5, 5, 9]), [0, 0, 1, 2, 1]);
    }

    #[test]
    fn values_are_numbered_in_ascending_order() {
        assert_eq!(dense(&[7, -2, 7, 3]), (vec![-2, 3, 7], vec![2, 0, 2, 1]));
        let wide = [i64::MAX, i64::MIN, 0, i64::MAX];
        assert_eq!(dense(&wide), (vec![i64::MIN, 0, i64::MAX], vec![2, 0, 1, 2]));
        assert_eq!(dense(&[]), (vec![], vec![]));
    }
}
