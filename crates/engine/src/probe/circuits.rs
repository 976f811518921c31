//! Random-number circuits of switch ports (Taffet 2019, §5.9), as sources of reservoir decisions.
//!
//! Circuits have state or depend on time, so their decisions are no function of (seed, purpose,
//! packet, hop). They are deterministic nevertheless: packets pass a port in the same order with
//! any number of threads.

use tailback_telemetry::randomness::{DecisionSource, Lfsr};
use tailback_telemetry::scheme::mix;

use crate::settings::Randomness;

/// Period of a ring's clock, and its tolerance: InfiniBand and Ethernet allow 100 ppm.
const TICK_FS: u64 = 1_000_000;
const TOLERANCE_FS: u64 = TICK_FS / 10_000;

/// The circuits of all ports.
#[derive(Debug)]
pub(super) enum Circuits {
    /// Independent random words.
    Ideal,
    /// By link of the fabric: two registers, for hops and for congested hops.
    Lfsr { ports: Vec<Option<[Lfsr; 2]>>, seed: u64 },
    /// Rings: the port's clock determines for which lengths the zero is at the end.
    Ring { seed: u64 },
}

impl Circuits {
    pub fn new(randomness: Randomness, seed: u64) -> Self {
        match randomness {
            // The sender's bits are in the header.
            Randomness::Ideal | Randomness::Sender => Self::Ideal,
            Randomness::Lfsr => Self::Lfsr { ports: Vec::new(), seed },
            Randomness::Ring => Self::Ring { seed },
        }
    }

    /// A word whose halves give the decisions of the port's circuit, after `counts` hops and
    /// congested hops. The ideal circuit returns `random`.
    pub fn word(&mut self, now_ps: u64, link: u32, counts: [u8; 2], random: u64) -> u64 {
        let taken = match self {
            Self::Ideal => return random,
            Self::Lfsr { ports, seed } => {
                let port = link as usize;
                if ports.len() <= port {
                    ports.resize(port + 1, None);
                }
                let registers = ports[port].get_or_insert_with(|| {
                    let start = mix(*seed ^ mix(link.into()));
                    [start as u32, (start >> 32) as u32]
                        .map(|seed| Lfsr::new(16, 16, seed).expect("16 bits are supported"))
                });
                let mut decide =
                    |which: usize| registers[which].decide(u32::from(counts[which]) + 1);
                [decide(0), decide(1)]
            }
            Self::Ring { seed } => {
                let link_random = mix(*seed ^ mix(link.into()));
                let tick_fs = TICK_FS - TOLERANCE_FS + link_random % (2 * TOLERANCE_FS + 1);
                let phase = (link_random >> 32) % 720_720; // a multiple of all lengths to 16
                let ticks = (u128::from(now_ps) * 1000 / u128::from(tick_fs)) as u64 + phase;
                counts.map(|count| ticks.is_multiple_of(u64::from(count) + 1))
            }
        };
        // A word of 0 always decides for the hop. A word of all ones does so only for the first
        // hop, which is always taken.
        let half = |yes: bool| if yes { 0 } else { u64::from(u32::MAX) };
        half(taken[0]) | half(taken[1]) << 32
    }
}

#[cfg(test)]
mod tests {
    use tailback_telemetry::scheme::draw;

    use super::*;

    /// Share of each of five hops that survives, where every switch has ports of its own.
    fn shares(randomness: Randomness) -> [f64; 5] {
        let (mut circuits, mut count, packets) = (Circuits::new(randomness, 7), [0; 5], 100_000);
        for packet in 0..packets {
            let mut survivor = 0;
            for hop in 0..5_u8 {
                let now = packet * 41_300 + u64::from(hop) * 150_000;
                let word =
                    circuits.word(now, hop.into(), [hop, 0], mix(packet << 8 | u64::from(hop)));
                if draw(word as u32, hop) {
                    survivor = hop.into();
                }
                assert!(
                    draw((word >> 32) as u32, 0),
                    "the first congested hop fills the reservoir"
                );
            }
            count[survivor] += 1;
        }
        count.map(|n| f64::from(n) / packets as f64)
    }

    #[test]
    fn every_hop_survives_about_equally_often() {
        for (randomness, most) in
            [(Randomness::Ideal, 0.005), (Randomness::Lfsr, 0.005), (Randomness::Ring, 0.02)]
        {
            let off = shares(randomness).map(|share| (share - 0.2).abs());
            assert!(off.iter().all(|&off| off < most), "{randomness:?}: {off:?}");
        }
    }
}
