//! Asking the memory for what will be needed soon.
//!
//! The only `unsafe` of this crate. What it is worth: `cargo bench -p tailback-engine` and docs/engine.md.

/// Starts to fetch the cache line `value` begins on, where the machine has an instruction for it.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of a live value, and a prefetch neither reads nor writes it as far
        // as the program can tell; SSE is part of every x86-64.
        #[allow(unsafe_code)]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
