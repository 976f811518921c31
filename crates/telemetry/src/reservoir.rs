//! Full reservoirs of size one: a hop and a congested hop (Taffet 2019, §3.2, algorithms 2 and 3).

use std::hint::select_unpredictable;

use crate::scheme::draw;

/// The empty reservoir: "(no switch ID, no port ID)".
pub const NO_LINK: u32 = u32::MAX;

/// What a packet carries: two reservoirs and their counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Link in the hop reservoir.
    pub hop_link: u32,
    /// Link in the congested reservoir.
    pub congested_link: u32,
    /// Hops so far.
    pub hop_count: u8,
    /// Congested hops so far.
    pub congested_count: u8,
}

impl Default for Mark {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Mark {
    /// Algorithm 2: what the sending adapter writes.
    pub const EMPTY: Mark =
        Mark { hop_link: NO_LINK, congested_link: NO_LINK, hop_count: 0, congested_count: 0 };

    /// Algorithm 3: what a switch does. `random` is 64 fresh bits; each decision uses one half.
    #[inline]
    pub fn visit(&mut self, link: u32, congested: bool, random: u64) {
        // The outcomes are unpredictable, so there are no branches on them.
        let hop = draw(random as u32, self.hop_count);
        let met = congested & draw((random >> 32) as u32, self.congested_count);
        self.hop_link = select_unpredictable(hop, link, self.hop_link);
        self.congested_link = select_unpredictable(met, link, self.congested_link);
        self.hop_count = self.hop_count.saturating_add(1);
        self.congested_count = self.congested_count.saturating_add(congested.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::mix;

    #[test]
    fn every_hop_is_equally_likely_to_be_carried() {
        let (packets, hops) = (200_000u64, 5u64);
        let (mut hop, mut congested) = ([0u64; 5], [0u64; 5]);
        for packet in 0..packets {
            let mut mark = Mark::EMPTY;
            for h in 0..hops {
                mark.visit(h as u32, h % 2 == 0, mix(packet * hops + h + 1));
            }
            hop[mark.hop_link as usize] += 1;
            congested[mark.congested_link as usize] += 1;
            assert_eq!((mark.hop_count, mark.congested_count), (5, 3));
        }
        // Binomial(N, 1/5) and (N, 1/3): six standard deviations.
        for count in hop {
            let sigma = (packets as f64 * 0.2 * 0.8).sqrt();
            assert!((count as f64 - packets as f64 / 5.0).abs() < 6.0 * sigma, "{hop:?}");
        }
        for (h, count) in congested.into_iter().enumerate() {
            let expected = if h % 2 == 0 { packets as f64 / 3.0 } else { 0.0 };
            assert!((count as f64 - expected).abs() < 6.0 * 220.0, "{congested:?}");
        }
    }

    #[test]
    fn the_first_congested_hop_always_fills_the_reservoir() {
        let mut mark = Mark::EMPTY;
        mark.visit(7, false, u64::MAX);
        assert_eq!((mark.hop_link, mark.congested_link), (7, NO_LINK));
        mark.visit(8, true, u64::MAX);
        assert_eq!((mark.hop_link, mark.congested_link), (7, 8));
    }
}
