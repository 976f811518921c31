//! Asking the memory for what will be needed soon.
//!
//! The only `unsafe` of this crate. What it is worth: `cargo bench -p tailback-engine` and docs/engine.md.

/// Starts to fetch the cache line on which an item begins, where the machine has an instruction for it; that
/// of an index beyond the end is asked for in vain.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], index: u32) {
    let address = items.as_ptr().wrapping_add(index as usize);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch neither reads nor writes memory as far as the program can tell, and faults at
        // no address; SSE is part of every x86-64.
        #[allow(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address.cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
