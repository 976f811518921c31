//! Full reservoirs of up to [`MAX_SLOTS`] links (Taffet 2019, §3.2, algorithms 2 to 4).

use super::{HeaderSample, LinkOrHash, Scheme, Visit};

/// Largest reservoir.
pub const MAX_SLOTS: usize = 8;

/// Two reservoirs, of hops and of congested hops.
#[derive(Debug, Clone, Copy)]
pub struct FullReservoirs {
    slots: u8,
    /// Bits of a link in the header.
    pub link_bits: u32,
    /// Bits of a hop count.
    pub count_bits: u32,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy)]
pub struct FullMark {
    hop: [u32; MAX_SLOTS],
    congested: [u32; MAX_SLOTS],
    hops: u8,
    congested_hops: u8,
}

impl FullMark {
    /// Links of the two reservoirs; only as many as there are slots, and hops, mean something.
    pub fn links(&self) -> (&[u32; MAX_SLOTS], &[u32; MAX_SLOTS]) {
        (&self.hop, &self.congested)
    }

    /// Hops and congested hops.
    pub fn counts(&self) -> [u8; 2] {
        [self.hops, self.congested_hops]
    }
}

impl FullReservoirs {
    /// Of `slots` links each, 1 to [`MAX_SLOTS`], with the published field sizes (§5.1).
    pub fn new(slots: u8) -> Option<Self> {
        let fits = (1..=MAX_SLOTS).contains(&usize::from(slots));
        fits.then_some(Self { slots, link_bits: 24, count_bits: 8 })
    }

    /// Algorithm R (Vitter, 1985): fill the slots, then replace one with probability n/(count + 1).
    fn offer(&self, kept: &mut [u32; MAX_SLOTS], count: &mut u8, link: u32, random: u32) {
        let slot = if *count < self.slots {
            *count
        } else {
            ((u64::from(random) * (u64::from(*count) + 1)) >> 32) as u8
        };
        if slot < self.slots {
            kept[usize::from(slot)] = link;
        }
        *count = count.saturating_add(1);
    }

    fn conclude(&self, kept: &[u32], count: u8, congested: bool, out: &mut Vec<HeaderSample>) {
        let held = count.min(self.slots);
        let weight = f64::from(count) / f64::from(held.max(1));
        out.extend(kept[..usize::from(held)].iter().map(|&link| HeaderSample {
            congested,
            seen: LinkOrHash::Link(link),
            hop: None,
            weight,
        }));
    }
}

impl Scheme for FullReservoirs {
    type Mark = FullMark;

    fn name(&self) -> &'static str {
        "full"
    }
    fn header_bits(&self) -> u32 {
        2 * (u32::from(self.slots) * self.link_bits + self.count_bits)
    }
    fn hash_bits(&self) -> Option<u32> {
        None
    }
    fn start(&self) -> FullMark {
        FullMark { hop: [0; MAX_SLOTS], congested: [0; MAX_SLOTS], hops: 0, congested_hops: 0 }
    }
    #[inline]
    fn visit(&self, mark: &mut FullMark, visit: &Visit) {
        self.offer(&mut mark.hop, &mut mark.hops, visit.link, visit.random as u32);
        if visit.congested {
            let random = (visit.random >> 32) as u32;
            self.offer(&mut mark.congested, &mut mark.congested_hops, visit.link, random);
        }
    }
    fn receive(&self, mark: &FullMark, _: u32, _: u8, out: &mut Vec<HeaderSample>) {
        self.conclude(&mark.hop, mark.hops, false, out);
        self.conclude(&mark.congested, mark.congested_hops, true, out);
    }
}
