//! Processor and system features that the language does not expose: prefetching, huge pages, and
//! SIMD comparison.
//!
//! All `unsafe` code of this crate is here. `cargo bench -p tailback-engine` and
//! docs/explanation/engine.md show the gain of each.

/// Prefetches the cache line on which an item begins, where the processor has an instruction for
/// it. An index beyond the end is harmless.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], index: u32) {
    let address = items.as_ptr().wrapping_add(index as usize);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect that the program can observe and never faults;
        // SSE is part of every x86-64.
        #[allow(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Bytes of a cache line.
const CACHE_LINE_BYTES: usize = 64;

/// Prefetches all items.
#[inline]
pub(crate) fn prefetch_all<T>(items: &[T]) {
    let per_line = (CACHE_LINE_BYTES / size_of::<T>()).max(1);
    for index in (0..items.len()).step_by(per_line) {
        prefetch(items, index as u32);
    }
}

/// Prefetches the first items of a list, as far as its capacity goes, for writing. A line that
/// another core has read must be invalidated there first; requesting ownership early hides that
/// latency.
#[inline]
pub(crate) fn prefetch_for_write<T>(list: &Vec<T>, items: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let bytes = items.min(list.capacity()) * size_of::<T>();
        for at in (0..bytes).step_by(CACHE_LINE_BYTES) {
            let address = list.as_ptr().wrapping_byte_add(at);
            // SAFETY: as with other prefetches, there is no effect that the program can
            // observe. Older processors treat it as a no-op.
            #[allow(unsafe_code)]
            unsafe {
                std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (list, items);
}

/// Lists of this many bytes or more use huge pages: two pages of 2 MiB on x86-64.
const HUGE_PAGE_THRESHOLD_BYTES: usize = 4 << 20;

/// An empty list with capacity for `items`. A long list asks the system for huge pages (`madvise`): the
/// TLB covers only a few thousand pages, and with pages of 4 KiB most accesses to a large network
/// would miss it.
pub(crate) fn with_huge_pages<T>(items: usize) -> Vec<T> {
    let list: Vec<T> = Vec::with_capacity(items);
    #[cfg(target_os = "linux")]
    if items.saturating_mul(size_of::<T>()) >= HUGE_PAGE_THRESHOLD_BYTES {
        const PAGE: usize = 1 << 12;
        let before = list.as_ptr().addr().wrapping_neg() % PAGE;
        let bytes = items * size_of::<T>() - before;
        // SAFETY: the contents of the memory do not change; this only tells the system how
        // it will be used. Systems without huge pages ignore it.
        #[allow(unsafe_code)]
        unsafe {
            let start = list.as_ptr().cast_mut().cast::<libc::c_void>().wrapping_byte_add(before);
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        }
    }
    list
}

/// Appends an item; a full list moves to one of twice the capacity, allocated by
/// [`with_huge_pages`].
#[inline]
pub(crate) fn push_with_huge_pages<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() {
        grow(list);
    }
    list.push(item);
}

#[cold]
fn grow<T>(list: &mut Vec<T>) {
    let mut larger = with_huge_pages(2 * list.len().max(32));
    larger.append(list);
    *list = larger;
}

/// Collects `n` items into a list allocated by [`with_huge_pages`].
pub(crate) fn collect_with_huge_pages<T>(n: usize, items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = with_huge_pages(n);
    list.extend(items);
    list
}

/// Numbers compared at once.
pub(crate) const SIMD_LANES: usize = 32;

/// A bit for each number that is at most `limit`, the first in the lowest bit.
#[inline(always)]
pub(crate) fn at_most_bits(numbers: &[i32; SIMD_LANES], limit: i32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            __m128i, _mm_cmpgt_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16,
            _mm_packs_epi32, _mm_set1_epi32,
        };
        let fours = numbers.as_ptr().cast::<__m128i>();
        // The loop below compiles to four times as many instructions. SAFETY: eight loads of
        // four read the numbers; SSE2 is part of every x86-64.
        #[allow(unsafe_code)]
        let beyond = |half: usize| unsafe {
            let limit = _mm_set1_epi32(limit);
            let four = |place| _mm_cmpgt_epi32(_mm_loadu_si128(fours.add(place)), limit);
            let first = _mm_packs_epi32(four(half), four(half + 1));
            let last = _mm_packs_epi32(four(half + 2), four(half + 3));
            _mm_movemask_epi8(_mm_packs_epi16(first, last)) as u32
        };
        !(beyond(0) | beyond(4) << 16)
    }
    #[cfg(not(target_arch = "x86_64"))]
    numbers.iter().rev().fold(0, |bits, &number| bits << 1 | u32::from(number <= limit))
}

/// The same of four numbers.
#[inline(always)]
pub(crate) fn at_most_bits_of_4(numbers: &[i32; 4], limit: i32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            _mm_castsi128_ps, _mm_cmpgt_epi32, _mm_loadu_si128, _mm_movemask_ps, _mm_set1_epi32,
        };
        // SAFETY: the load reads the four numbers; SSE2 is part of every x86-64.
        #[allow(unsafe_code)]
        let beyond = unsafe {
            let four = _mm_loadu_si128(numbers.as_ptr().cast());
            _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(four, _mm_set1_epi32(limit))))
        };
        !beyond as u32 & 0xf
    }
    #[cfg(not(target_arch = "x86_64"))]
    numbers.iter().rev().fold(0, |bits, &number| bits << 1 | u32::from(number <= limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_lists_keep_items_and_grow() {
        let numbers = 0..2 * HUGE_PAGE_THRESHOLD_BYTES as u32 / 4;
        let mut list = collect_with_huge_pages(numbers.len(), numbers.clone());
        assert!(list.capacity() == list.len() && with_huge_pages::<u32>(9).capacity() == 9);
        let place = list.as_ptr();
        push_with_huge_pages(&mut list, numbers.end);
        assert!(list.capacity() == 2 * numbers.end as usize && list.as_ptr() != place);
        assert!(list.into_iter().eq(0..=numbers.end));
        let mut short = Vec::new();
        (0..100).for_each(|number| push_with_huge_pages(&mut short, number));
        assert!(short.into_iter().eq(0..100));
    }

    proptest! {
        #[test]
        fn a_bit_for_each_number_that_is_at_most_the_limit(
            numbers in proptest::array::uniform32(prop_oneof![any::<i32>(), -2..3, Just(i32::MAX)]),
            limit in prop_oneof![any::<i32>(), -2..3, Just(i32::MAX), Just(i32::MIN)],
        ) {
            let bits = at_most_bits(&numbers, limit);
            for (place, number) in numbers.into_iter().enumerate() {
                prop_assert_eq!(bits >> place & 1 == 1, number <= limit);
            }

        }
    }
}
