//! Limits of times, and the notation of times and sizes in error messages, as in a scenario.

/// The latest time that the engine can represent, in picoseconds: 53 days. No duration is longer
/// and no window begins later, so the sum of two never overflows.
pub(crate) const MAX_TIME_PS: u64 = 1 << 62;

/// Longest delay of a setting, 75 minutes: the delays of the longest path still add up to less
/// than [`MAX_TIME_PS`].
pub(crate) const MAX_DELAY_PS: u64 = MAX_TIME_PS >> 10;

/// A time in the largest unit of which it is a whole number: `5 ms`, `1500 ns`.
pub(crate) fn time(ps: u64) -> String {
    in_units(
        ps,
        &[("s", 1_000_000_000_000), ("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1000)],
    )
    .unwrap_or_else(|| format!("{ps} ps"))
}

/// A size in the largest unit of which it is a whole number: `64 KiB`, `4112 B`.
pub(crate) fn size(bytes: u64) -> String {
    in_units(bytes, &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)])
        .unwrap_or_else(|| format!("{bytes} B"))
}

fn in_units(amount: u64, units: &[(&str, u64)]) -> Option<String> {
    let fits = |&&(_, unit): &&(&str, u64)| amount > 0 && amount.is_multiple_of(unit);
    units.iter().find(fits).map(|(name, unit)| format!("{} {name}", amount / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        assert_eq!(
            [time(5_000_000_000), time(1_500_000), time(7), time(0)].join(", "),
            "5 ms, 1500 ns, 7 ps, 0 ps"
        );
        assert_eq!(
            [size(65_536), size(4112), size(3 << 30), size(0)].join(", "),
            "64 KiB, 4112 B, 3 GiB, 0 B"
        );
    }
}
