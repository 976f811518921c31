//! Cables: rate and delay.

use std::collections::HashMap;

use crate::settings::MAX_WIRE_BYTES;

const RATE_BITS: u32 = 16;

/// Rate and delay of a link; many links share the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cable {
    /// Picoseconds per byte, in units of 2^-16; below 2^39 at the slowest rate.
    rate: u64,
    /// Cable delay.
    pub delay: u32,
}

impl Cable {
    pub fn new(gbps: f64, delay: u64) -> Self {
        let rate = ((8000.0 / gbps) * f64::from(1 << RATE_BITS)).round();
        // The cast saturates; slower rates than the slowest are refused before the run.
        let rate = rate.max(1.0) as u64;
        Self { rate, delay: delay.min(Self::MAX_DELAY_PS) as u32 }
    }

    /// Longest delay a cable can have, in picoseconds.
    pub const MAX_DELAY_PS: u64 = u32::MAX as u64;

    /// Slowest rate a link can have, in gigabits per second.
    pub const MIN_GBPS: f64 = 0.001;

    /// Rate in megabits per second.
    pub fn mbps(&self) -> f64 {
        8e6 * f64::from(1 << RATE_BITS) / self.rate as f64
    }

    /// Time that a packet of `bytes` takes on the wire, at least one picosecond.
    #[inline]
    pub fn serialization_ps(&self, bytes: u32) -> u64 {
        debug_assert!(bytes <= MAX_WIRE_BYTES, "{bytes} B are no packet");
        ((u64::from(bytes) * self.rate) >> RATE_BITS).max(1)
    }

    /// Time that any number of bytes take on the wire, at least one picosecond.
    pub fn drain_ps(&self, bytes: u64) -> u64 {
        let ps = (u128::from(bytes) * u128::from(self.rate)) >> RATE_BITS;
        u64::try_from(ps).unwrap_or(u64::MAX).max(1)
    }

    /// Bytes sent in `ps`.
    #[inline]
    pub fn bytes_in(&self, ps: u64) -> u64 {
        if ps >> (u64::BITS - RATE_BITS) == 0 {
            return (ps << RATE_BITS) / self.rate;
        }
        // For durations of minutes, the shift would lose the upper bits.
        let bytes = (u128::from(ps) << RATE_BITS) / u128::from(self.rate);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// The distinct cables, and the index of each given cable among them.
pub(crate) fn distinct(wires: impl Iterator<Item = Cable>) -> (Vec<Cable>, Vec<u32>) {
    let mut numbers = HashMap::new();
    let (mut all, mut last) = (Vec::new(), None);
    // Most links equal the previous one.
    let mut number = |wire: Cable| match last {
        Some((before, number)) if before == wire => number,
        _ => {
            let number = *numbers.entry(wire).or_insert_with(|| {
                all.push(wire);
                all.len() as u32 - 1
            });
            last = Some((wire, number));
            number
        }
    };
    let of_links = wires.map(&mut number).collect();
    (all, of_links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact_to_a_byte() {
        for (gbps, ps) in [(100.0, 327_680), (200.0, 163_840), (25.0, 1_310_720)] {
            assert_eq!(Cable::new(gbps, 0).serialization_ps(4096), ps);
        }
        let rate = 54.545_454_545_454_55;
        let fdr = Cable::new(rate, 0);
        assert!((fdr.serialization_ps(4096) as f64 - 4096.0 * 8000.0 / rate).abs() < 1.0);
        assert_eq!(fdr.bytes_in(fdr.serialization_ps(4096)), 4095);
    }

    #[test]
    fn slow_rates_are_exact_and_do_not_wrap() {
        for (gbps, ps) in [(0.1, 327_680_000), (0.01, 3_276_800_000), (0.001, 32_768_000_000)] {
            let cable = Cable::new(gbps, 0);
            assert_eq!(cable.serialization_ps(4096), ps);
            assert_eq!(cable.bytes_in(ps), 4096);
            let packet = MAX_WIRE_BYTES;
            assert_eq!(cable.serialization_ps(packet), u64::from(packet) * (ps / 4096));
            assert_eq!(cable.drain_ps(1 << 40), (1 << 40) * (ps / 4096));
        }
    }

    #[test]
    fn long_durations_do_not_wrap() {
        let day_ps = 24 * 3600 * 1_000_000_000_000;
        assert_eq!(Cable::new(100.0, 0).bytes_in(day_ps), 24 * 3600 * 12_500_000_000);
        assert_eq!(Cable::new(1e9, 0).bytes_in(u64::MAX), u64::MAX);
    }
}
