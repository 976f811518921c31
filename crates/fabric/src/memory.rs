//! Fallible allocation of arrays whose size is quadratic in the size of the fabric.

use crate::FabricError;

/// A vector of `n` copies of `value`, for `what`.
///
/// # Errors
/// [`FabricError::OutOfMemory`], which names `what`, if the allocation fails.
pub(crate) fn filled<T: Copy>(
    what: &'static str,
    n: usize,
    value: T,
) -> Result<Vec<T>, FabricError> {
    let mut all = try_reserve(what, n)?;
    all.resize(n, value);
    Ok(all)
}

/// A vector of `n` zeros, whose pages take memory only once they are written.
///
/// # Errors
/// As [`filled`].
pub(crate) fn zeros(what: &'static str, n: usize) -> Result<Vec<u64>, FabricError> {
    // `black_box`: otherwise the compiler removes an allocation that is freed unused.
    drop(std::hint::black_box(try_reserve::<u64>(what, n)?));
    Ok(vec![0; n])
}

fn try_reserve<T>(what: &'static str, n: usize) -> Result<Vec<T>, FabricError> {
    let mut all = Vec::new();
    let bytes = n.saturating_mul(size_of::<T>()) as u64;
    all.try_reserve_exact(n).map_err(|_| FabricError::OutOfMemory { what, bytes })?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_allocation_is_an_error() {
        assert_eq!(filled("a", 3, 7u32), Ok(vec![7; 3]));
        assert_eq!(zeros("b", 2), Ok(vec![0; 2]));
        let bytes = 8 << 52;
        assert_eq!(zeros("c", 1 << 52), Err(FabricError::OutOfMemory { what: "c", bytes }));
        assert!(filled("d", usize::MAX, 0u8).is_err());
    }
}
