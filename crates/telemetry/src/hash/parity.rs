//! H_parity (Taffet 2019, §5.4): the example of an unsuitable link hash.

/// parity(id) ∧ parity(d) as the thesis reads it, `(id & d) & 1` in its C: 1 only when both are odd.
#[inline]
pub fn parity(id: u32, d: u32) -> u32 {
    id & d & 1
}
