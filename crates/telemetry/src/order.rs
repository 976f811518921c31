//! Radix sorting and summing without unpredictable branches.

use crate::{Column, Log};

/// Sorts the items of logs; its buffers are reused.
#[derive(Debug)]
pub struct RadixSorter<T> {
    items: Vec<T>,
    sorted: Vec<T>,
}

impl<T> Default for RadixSorter<T> {
    fn default() -> Self {
        Self { items: Vec::new(), sorted: Vec::new() }
    }
}

impl<T: Copy> RadixSorter<T> {
    /// All items of a log sorted by `key`, stable; the log is empty afterwards. One counting
    /// pass per byte of the key that differs.
    pub fn drain(&mut self, log: &mut Log<T>, key: impl Fn(&T) -> u64) -> &[T] {
        let Self { items, sorted } = self;
        items.clear();
        log.drain(|chunk| items.extend_from_slice(chunk));
        let Some(&first) = items.first() else { return &[] };
        let (length, first_key) = (items.len(), key(&first));
        sorted.resize(length.max(sorted.len()), first);
        let differ = items.iter().fold(0, |bits, item| bits | (key(item) ^ first_key));
        for shift in (0..u64::BITS).step_by(8).filter(|shift| differ >> shift & 0xff != 0) {
            let byte = |item: &T| usize::from((key(item) >> shift) as u8);
            let mut place = [0; 256];
            items[..length].iter().for_each(|item| place[byte(item)] += 1);
            let mut before = 0;
            for place in &mut place {
                before += std::mem::replace(place, before);
            }
            for item in &items[..length] {
                let at = &mut place[byte(item)];
                sorted[*at] = *item;
                *at += 1;
            }
            std::mem::swap(items, sorted);
        }
        &items[..length]
    }
}

/// Entries that are summed together: few enough for the L1 cache.
pub const BLOCK: usize = 256;

/// Sums of `N` kinds for an entry of a block; on one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct EntrySums<const N: usize>(pub [u64; N]);

impl<const N: usize> EntrySums<N> {
    const ZERO: Self = Self([0; N]);
}

/// Sums of `N` kinds for each entry of a block.
#[derive(Debug)]
pub struct Block<const N: usize> {
    sums: [EntrySums<N>; BLOCK],
    /// A bit for each entry that has sums.
    occupied: [u64; BLOCK / 64],
}

impl<const N: usize> Default for Block<N> {
    fn default() -> Self {
        Self { sums: [EntrySums::ZERO; BLOCK], occupied: [0; BLOCK / 64] }
    }
}

impl<const N: usize> Block<N> {
    /// The sums of the entry at `place`, which is present from now on.
    #[inline]
    pub fn sums(&mut self, place: u8) -> &mut [u64; N] {
        self.occupied[usize::from(place / 64)] |= 1 << (place % 64);
        &mut self.sums[usize::from(place)].0
    }

    /// Adds sums of each kind to an entry.
    pub fn add(&mut self, place: u8, more: [u64; N]) {
        self.sums(place).iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }

    /// Calls `each` with the places of present entries, in order, and all sums; then resets
    /// them to zero.
    pub fn drain(&mut self, each: impl FnOnce(&[u8], &[EntrySums<N>; BLOCK])) {
        let mut places = [0; BLOCK];
        let places = places_of(&mut self.occupied, &mut places, |_| true);
        each(places, &self.sums);
        places.iter().for_each(|&place| self.sums[usize::from(place)] = EntrySums::ZERO);
    }
}

/// Appends the sums at `places`, one column per kind.
pub fn append<const N: usize>(
    columns: [&mut Column; N],
    places: &[u8],
    sums: &[EntrySums<N>; BLOCK],
) {
    for (kind, column) in columns.into_iter().enumerate() {
        column.extend(places.iter().map(|&place| sums[usize::from(place)].0[kind]));
    }
}

/// Clears the bits of a block; returns the places of those that are `kept`, in order.
#[inline]
pub fn places_of<'a>(
    bits: &mut [u64],
    places: &'a mut [u8; BLOCK],
    mut kept: impl FnMut(u8) -> bool,
) -> &'a [u8] {
    let mut length = 0;
    for (word, bits) in bits.iter_mut().enumerate() {
        while *bits != 0 {
            let place = (64 * word) as u8 + bits.trailing_zeros() as u8;
            places[length] = place;
            length += usize::from(kept(place));
            *bits &= *bits - 1;
        }
    }
    &places[..length]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::mix;

    #[test]
    fn sorting_is_stable() {
        let mut sorting = RadixSorter::default();
        for (items, bits) in [(3000, 20), (0, 8), (1, 64), (700, 3), (9000, 64)] {
            let mut log = Log::default();
            let keys = (0..items).map(|at| (mix(at + 1) >> (64 - bits), at));
            keys.clone().for_each(|item| log.push(item));
            let mut expected: Vec<_> = keys.collect();
            expected.sort();
            assert_eq!(sorting.drain(&mut log, |item| item.0), expected);
            assert!(log.is_empty());
        }
    }

    #[test]
    fn sums_come_in_order_and_are_reset() {
        let mut block = Block::<2>::default();
        for _ in 0..2 {
            for place in [255, 3, 64, 3] {
                block.add(place, [1, place.into()]);
            }
            block.drain(|places, sums| {
                let [mut ones, mut numbers] = [Column::default(), Column::default()];
                append([&mut ones, &mut numbers], places, sums);
                assert_eq!(places, [3, 64, 255]);
                assert!(ones.iter().eq([2, 1, 1]) && numbers.iter().eq([6, 64, 255]));
            });
        }
    }
}
