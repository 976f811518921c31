//! Checks for memory that grows as the square of a fabric, before it is allocated.

use crate::FabricError;

/// `n` times `value`.
///
/// # Errors
/// [`FabricError::OutOfMemory`] if the machine does not grant it; `what` it is for.
pub(crate) fn filled<T: Copy>(
    what: &'static str,
    n: usize,
    value: T,
) -> Result<Vec<T>, FabricError> {
    let mut all = try_reserve(what, n)?;
    all.resize(n, value);
    Ok(all)
}

/// `n` zeros, which take memory only where they are changed.
///
/// # Errors
/// As of [`filled`].
pub(crate) fn zeros(what: &'static str, n: usize) -> Result<Vec<u64>, FabricError> {
    // What is given back unused is not asked for at all by a compiler that sees it.
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
    fn what_no_machine_has_is_refused() {
        assert_eq!(filled("a", 3, 7u32), Ok(vec![7; 3]));
        assert_eq!(zeros("b", 2), Ok(vec![0; 2]));
        let bytes = 8 << 52;
        assert_eq!(zeros("c", 1 << 52), Err(FabricError::OutOfMemory { what: "c", bytes }));
        assert!(filled("d", usize::MAX, 0u8).is_err());
    }
}
