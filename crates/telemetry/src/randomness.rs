//! Random decisions as hardware makes them (Taffet 2019, §5.9): whether hop l replaces the sample, with
//! probability 1/l.

use crate::scheme::mix;

/// A source of decisions; each call answers with probability close to 1/l.
pub trait DecisionSource {
    /// Whether the packet's hop number `l` (from 1) takes the reservoir.
    fn decide(&mut self, l: u32) -> bool;
}

/// Independent and uniform: thermal noise, conditioned.
#[derive(Debug, Clone)]
pub struct Ideal {
    seed: u64,
    drawn: u64,
}

impl Ideal {
    /// A separate stream for every seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }
}

impl DecisionSource for Ideal {
    fn decide(&mut self, l: u32) -> bool {
        self.drawn += 1;
        let random = mix(mix(self.seed) ^ self.drawn) >> 32;
        (random * u64::from(l)) >> 32 == 0
    }
}

/// For each l, a free-running l-bit ring with a single zero, read once a packet (Figure 5.6).
///
/// Only the time of reading is random. `ticks` is the mean number of clock ticks between
/// packets, `jitter` the range it varies over (both in 2^-16 ticks).
#[derive(Debug, Clone)]
pub struct ShiftRegister {
    ticks: u64,
    jitter: u64,
    now: u64,
    noise: Ideal,
}

impl ShiftRegister {
    /// A ring read every `ticks` ± `jitter`/2 ticks.
    pub fn new(ticks: f64, jitter: f64, seed: u64) -> Self {
        let fixed = |x: f64| (x.max(0.0) * 65536.0) as u64;
        Self { ticks: fixed(ticks), jitter: fixed(jitter), now: 0, noise: Ideal::new(seed) }
    }
}

impl DecisionSource for ShiftRegister {
    fn decide(&mut self, l: u32) -> bool {
        self.noise.drawn += 1;
        let random = mix(mix(self.noise.seed) ^ self.noise.drawn) >> 32;
        self.now += self.ticks + ((random * (self.jitter + 1)) >> 32);
        (self.now >> 16).is_multiple_of(u64::from(l))
    }
}

/// A linear feedback shift register of b bits and a table of thresholds near (2^b − 1)/l (Figure 5.7).
///
/// The register takes every value but 0, so the probability is exact to 1/(2 (2^b − 1)).
#[derive(Debug, Clone)]
pub struct Lfsr {
    bits: u32,
    taps: u32,
    state: u32,
    steps: u32,
}

impl Lfsr {
    /// A maximal register of 8 or 16 bits, stepped `steps` times a decision.
    pub fn new(bits: u32, steps: u32, seed: u32) -> Option<Self> {
        // Galois form of x^8+x^6+x^5+x^4+1 and x^16+x^14+x^13+x^11+1.
        let taps = match bits {
            8 => 0xb8,
            16 => 0xb400,
            _ => return None,
        };
        Some(Self { bits, taps, state: (seed % ((1 << bits) - 1)) + 1, steps })
    }

    /// Values that mean "yes" for l: the table, (2^b − 1)/l rounded.
    pub fn threshold(&self, l: u32) -> u32 {
        let period = (1u32 << self.bits) - 1;
        (period + l / 2) / l
    }
}

impl DecisionSource for Lfsr {
    fn decide(&mut self, l: u32) -> bool {
        for _ in 0..self.steps {
            self.state = (self.state >> 1) ^ (self.taps & (self.state & 1).wrapping_neg());
        }
        self.state <= self.threshold(l)
    }
}

/// Decisions that the sender draws into a field of L + 1 bits; each switch shifts one out.
///
/// The last bit is a sentinel: its position gives the receiver the hop count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderBits {
    field: u32,
    width: u32,
}

impl SenderBits {
    /// For paths of up to `most` hops, at most 31.
    pub fn draw(source: &mut impl DecisionSource, most: u32) -> Self {
        let width = most.min(31) + 1;
        let field = (1..width).fold(0, |field, l| (field << 1) | u32::from(source.decide(l)));
        Self { field: (field << 1) | 1, width }
    }

    /// Of a header field of `width` bits.
    pub fn from_field(field: u32, width: u32) -> Self {
        Self { field, width }
    }

    /// The header field.
    pub fn field(&self) -> u32 {
        self.field
    }

    /// What a switch does: reads the leading bit and shifts it out. False beyond the last one.
    pub fn take(&mut self) -> bool {
        let sentinel_only = self.hops() + 1 == self.width;
        let leading = (self.field >> (self.width - 1)) & 1 == 1;
        if !sentinel_only {
            self.field = (self.field << 1) & (u32::MAX >> (32 - self.width));
        }
        leading && !sentinel_only
    }

    /// Switches passed.
    pub fn hops(&self) -> u32 {
        self.field.trailing_zeros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u32 = 100_000;

    /// Largest distance of a hop's share from 1/5, and the correlation of a packet's first-hop
    /// survival with the next packet's.
    fn bias(mut path: impl FnMut() -> [bool; 5]) -> (f64, f64) {
        let (mut counts, mut pairs, mut before) = ([0u32; 5], 0u32, false);
        for _ in 0..PACKETS {
            let taken = path();
            let survivor = taken.iter().rposition(|&yes| yes).unwrap_or(0);
            counts[survivor] += 1;
            let last = survivor == 4;
            pairs += u32::from(last && before);
            before = last;
        }
        let n = f64::from(PACKETS);
        let worst = counts.iter().map(|&c| (f64::from(c) / n - 0.2).abs()).fold(0.0, f64::max);
        let p = f64::from(counts[4]) / n;
        (worst, (f64::from(pairs) / n - p * p) / (p * (1.0 - p)))
    }

    fn five(mut source: impl DecisionSource) -> (f64, f64) {
        bias(|| std::array::from_fn(|hop| source.decide(hop as u32 + 1)))
    }

    /// Switches have sources of their own.
    fn five_switches<D: DecisionSource>(mut sources: [D; 5]) -> (f64, f64) {
        bias(|| std::array::from_fn(|hop| sources[hop].decide(hop as u32 + 1)))
    }

    #[test]
    fn ideal_and_sender_drawn_bits_have_no_bias() {
        let (worst, correlation) = five(Ideal::new(1));
        assert!(worst < 0.007 && correlation.abs() < 0.015, "{worst} {correlation}");
        let mut source = Ideal::new(2);
        let (worst, _) = bias(|| {
            let mut bits = SenderBits::draw(&mut source, 5);
            std::array::from_fn(|hop| {
                let taken = bits.take();
                assert_eq!(bits.hops(), hop as u32 + 1);
                taken
            })
        });
        assert!(worst < 0.007, "{worst}");
    }

    #[test]
    fn sender_bits_end_at_the_longest_path() {
        let mut bits = SenderBits::draw(&mut Ideal::new(3), 2);
        assert!(bits.take());
        bits.take();
        assert!(!bits.take() && !bits.take());
        assert_eq!(bits.hops(), 2);
    }

    #[test]
    fn a_free_running_ring_is_fair_with_jitter_and_wrong_in_lockstep() {
        // Gigahertz clock, packets every 41.3 ns ± 8: a few per mille.
        let ring = |k: u64| ShiftRegister::new(41.3 + k as f64 * 0.17, 8.0, k);
        let (worst, _) = five_switches(std::array::from_fn(|k| ring(k as u64 + 1)));
        assert!(worst < 0.01, "{worst}");
        // Packets every 60 ticks exactly, and 60 is a multiple of every l: always yes.
        let lockstep = |_| ShiftRegister::new(60.0, 0.0, 0);
        let (worst, _) = five_switches(std::array::from_fn(lockstep));
        assert_eq!(worst, 0.8);
    }

    #[test]
    fn lfsr_probabilities_are_exact_to_the_table() {
        for bits in [8, 16] {
            let period = (1u32 << bits) - 1;
            for l in 1..=9 {
                let mut source = Lfsr::new(bits, 1, 12).unwrap();
                let yes = (0..period).filter(|_| source.decide(l)).count() as u32;
                assert_eq!(yes, source.threshold(l), "a whole period, l = {l}");
                let off = (f64::from(yes) / f64::from(period) - 1.0 / f64::from(l)).abs();
                assert!(off <= 0.5 / f64::from(period) + 1e-12);
            }
        }
        assert!(Lfsr::new(12, 1, 0).is_none());
    }

    #[test]
    fn an_lfsr_stepped_once_per_packet_repeats() {
        let sources =
            |steps| std::array::from_fn(|k| Lfsr::new(16, steps, 977 * k as u32).unwrap());
        let (_, once) = five_switches(sources(1));
        let (_, often) = five_switches(sources(16));
        // A shift halves the value: small ones stay small. A full refresh removes it.
        assert!(once > 0.2 && often.abs() < 0.05, "{once} {often}");
    }
}
