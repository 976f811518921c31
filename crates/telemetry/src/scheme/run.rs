//! Runs a scheme over given paths and returns the samples of the receivers as columns.

use super::{LinkOrHash, Scheme, Visit, mix};

/// Paths of packets.
#[derive(Debug, Clone, Copy)]
pub struct PacketPaths<'a> {
    /// Packet ids.
    pub ids: &'a [u32],
    /// Number of hops of each packet.
    pub hops: &'a [u8],
    /// Link value of each hop, `stride` per packet.
    pub links: &'a [u32],
    /// Congestion level of each hop, 0 = not congested, `stride` per packet.
    pub levels: &'a [u8],
    /// Entries per packet.
    pub stride: usize,
}

/// Header samples of all packets.
#[derive(Debug, Default)]
pub struct SchemeColumns {
    /// Packet index.
    pub packet: Vec<u32>,
    /// Whether the sample counts congested packets.
    pub congested: Vec<bool>,
    /// Link or hash value.
    pub seen: Vec<u32>,
    /// Hop, 255 if unknown.
    pub hop: Vec<u8>,
    /// Weight.
    pub weight: Vec<f64>,
}

/// Sends every packet along its path. Randomness is a function of `seed`, packet and hop.
pub fn run<S: Scheme>(scheme: &S, paths: &PacketPaths<'_>, seed: u64) -> SchemeColumns {
    let mut columns = SchemeColumns::default();
    let mut samples = Vec::new();
    for (packet, (&id, &hops)) in paths.ids.iter().zip(paths.hops).enumerate() {
        let mut mark = scheme.start();
        for hop in 0..hops {
            let at = packet * paths.stride + usize::from(hop);
            let level = paths.levels[at];
            scheme.visit(
                &mut mark,
                &Visit {
                    link: paths.links[at],
                    hop,
                    congested: level > 0,
                    level,
                    packet: id,
                    random: mix(mix(seed) ^ ((packet as u64) << 8) ^ u64::from(hop)),
                },
            );
        }
        samples.clear();
        scheme.receive(&mark, id, hops, &mut samples);
        for sample in &samples {
            let (LinkOrHash::Link(seen) | LinkOrHash::Hash(seen)) = sample.seen;
            columns.packet.push(packet as u32);
            columns.congested.push(sample.congested);
            columns.seen.push(seen);
            columns.hop.push(sample.hop.unwrap_or(u8::MAX));
            columns.weight.push(sample.weight);
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::hash::{GaloisField, LinkHash};

    const HOPS: usize = 5;
    const PACKETS: u32 = 60_000;

    /// Sum of samples about each link of a path all packets take, over the truth.
    fn ratios<S: Scheme>(scheme: &S, congested: bool) -> [f64; HOPS] {
        let ids: Vec<u32> = (1..=PACKETS).collect();
        let hops = vec![HOPS as u8; ids.len()];
        let links: Vec<u32> = ids.iter().flat_map(|_| 1..=HOPS as u32).collect();
        let levels: Vec<u8> = ids.iter().flat_map(|_| [0, 9, 0, 9, 0]).collect();
        let paths =
            PacketPaths { ids: &ids, hops: &hops, links: &links, levels: &levels, stride: HOPS };
        let samples = run(scheme, &paths, 42);
        let mut sums = [0.0; HOPS];
        for (row, &seen) in samples.seen.iter().enumerate() {
            if samples.congested[row] != congested {
                continue;
            }
            for (hop, sum) in sums.iter_mut().enumerate() {
                let link = hop as u32 + 1;
                let weight = samples.weight[row];
                *sum += match scheme.hash_bits() {
                    None => weight * f64::from(u8::from(seen == link)),
                    Some(_) if ![hop as u8, 255].contains(&samples.hop[row]) => 0.0,
                    Some(bits) => {
                        let c = 0.5f64.powi(bits as i32);
                        let id = ids[samples.packet[row] as usize];
                        let same = hash().value(id, link, bits) == seen;
                        weight * (f64::from(u8::from(same)) - c) / (1.0 - c)
                    }
                };
            }
        }
        sums.map(|sum| sum / f64::from(PACKETS))
    }

    fn hash() -> LinkHash {
        LinkHash::Gf(GaloisField::new(16).unwrap())
    }

    fn unbiased<S: Scheme>(scheme: &S) {
        assert!(scheme.unbiased() && scheme.header_bits() > 0);
        // Five standard deviations of the noisiest: l √(1/N) for one bit, and edge marking.
        for (hop, ratio) in ratios(scheme, false).into_iter().enumerate() {
            assert!((ratio - 1.0).abs() < 0.12, "{} hop {hop}: {ratio}", scheme.name());
        }
        for (hop, ratio) in ratios(scheme, true).into_iter().enumerate() {
            let truth = if hop % 2 == 1 { 1.0 } else { 0.0 };
            assert!((ratio - truth).abs() < 0.12, "{} congested {hop}: {ratio}", scheme.name());
        }
    }

    #[test]
    fn schemes_marked_unbiased_are_unbiased() {
        for slots in [1, 2, 3, 8] {
            unbiased(&FullReservoirs::new(slots).unwrap());
        }
        for bits in [1, 4] {
            unbiased(&SingleBit { hash: hash(), bits, count_bits: 3 });
            unbiased(&Compact { hash: hash(), bits, count_bits: 3 });
            unbiased(&Coordinated { hash: hash(), bits });
        }
        for slots in [2, 3, 6] {
            for scheme in [SlotScheme::SingleBit, SlotScheme::Compact, SlotScheme::Coordinated] {
                unbiased(&HashSlots::new(scheme, hash(), slots, 2, 3).unwrap());
            }
        }
        unbiased(&NodeMarking { probability: 0.25, link_bits: 24 });
        unbiased(&EdgeMarking { probability: 0.25, link_bits: 24, distance_bits: 5 });
        unbiased(&XorDigest { hash: hash(), bits: 4, probability: 0.2 });
        unbiased(&FullInt { max_hops: 5, link_bits: 24 });
    }

    #[test]
    fn reservoirs_as_long_as_the_path_are_exact() {
        assert_eq!(ratios(&FullReservoirs::new(5).unwrap(), false), [1.0; HOPS]);
        assert!(FullReservoirs::new(0).is_none() && FullReservoirs::new(9).is_none());
    }

    #[test]
    fn a_saturating_count_is_biased() {
        let short = ratios(&Compact { hash: hash(), bits: 4, count_bits: 2 }, false);
        assert!((short[0] - 9.0 / 16.0).abs() < 0.05 && (short[4] - 0.75).abs() < 0.05);
    }

    #[test]
    fn csig_names_one_bottleneck_per_packet() {
        assert!(!Csig.unbiased());
        assert_eq!(ratios(&Csig, true), [0.0, 1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn an_ecn_mark_names_no_link() {
        assert!(!EntropyEcn.unbiased() && EntropyEcn.header_bits() == 0);
        assert_eq!(ratios(&EntropyEcn, true), [0.0; HOPS]);
    }
}
