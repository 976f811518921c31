//! Sums of samples by context and link, and estimates from them (docs/explanation/telemetry.md).
//!
//! A sample of weight l represents l packets on a link of its hop. A candidate link whose hash agrees
//! gets x = l, every other one x = −l κ, with κ = 1/(2^b − 1): this is unbiased, with Var = κ Σ l² +
//! Σ (l − 1 − κ l) x over the packets. For a whole link κ = 0. If one in k packets carries a sample, a count is
//! k times that of the samples, and its variance k² times theirs plus k (k − 1) times the count.
//!
//! Scheme entropy-ecn has no samples: packets of a path are counted, and `marks` infers which link
//! marked them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tailback_telemetry::hash::GaloisField;
use tailback_telemetry::packet_id::takes_sample;

use crate::marks::{MarkRates, PathCount};

/// Bits of a link number, and n of the GF(2^n) hash.
const LINK_BITS: u32 = 24;
const MAX_HASH_BITS: u32 = 8;
/// Maximum number of sums: 2^22 take about half a gigabyte.
const MAX_SUMS: usize = 1 << 22;
/// Maximum number of candidate links of all sources together.
const MAX_CANDIDATES: usize = 1 << 24;
/// Maximum number of packets per sample.
const MAX_ONE_IN: u32 = 1_000_000;
/// Maximum number of hops of a path.
const MAX_HOPS: usize = 64;

/// What switches write into packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverScheme {
    /// Two whole links with their counts: 64 bits.
    Full,
    /// A congested bit, a hash and a count of hops.
    Compact {
        /// Bits of the hash, 1 to 8.
        hash_bits: u32,
        /// Bits of the count, 1 to 8.
        count_bits: u32,
    },
    /// A congested bit and a hash, of a hop that follows from the packet's id.
    Coordinated {
        /// Bits of the hash, 1 to 8.
        hash_bits: u32,
    },
    /// Hashes of a hop and of a congested hop, each with a count of hops.
    SingleBit {
        /// Bits of each hash, 1 to 8.
        hash_bits: u32,
        /// Bits of each count, 1 to 8.
        count_bits: u32,
    },
    /// A mark (ECN) on packets whose paths are known.
    EntropyEcn,
}

/// Errors of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverError {
    /// A number is out of range.
    Range,
    /// No candidate links were given for this source.
    UnknownSource,
    /// The header names a link that does not exist.
    UnknownLink,
    /// A memory limit is reached.
    LimitReached,
    /// Receivers with different schemes or numbers of links cannot be merged.
    Different,
}

/// Sums of one kind of packets (all, or congested) of a link. If l is an integer, they are exact up
/// to 2^53, in any order of the packets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sums {
    /// (2^b − 1) Σ x.
    score: f64,
    /// (2^b − 1) Σ l x.
    score_l: f64,
    /// Σ l² over packets that may have crossed the link.
    squares: f64,
    /// Packets whose sample matched the link.
    samples: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.score += other.score;
        self.score_l += other.score_l;
        self.squares += other.squares;
        self.samples += other.samples;
    }

    /// Count and standard error; one in `k` packets carried a sample.
    fn estimate(&self, scheme: ReceiverScheme, k: f64) -> (f64, f64) {
        let unit = f64::from(scheme.unit());
        let kappa = if matches!(scheme, ReceiverScheme::Full) { 0.0 } else { 1.0 / unit };
        let count = self.score / unit;
        let slope = (1.0 - kappa) * self.score_l / unit - count;
        let variance = k * k * (kappa * self.squares + slope) + k * (k - 1.0) * count;
        (k * count, variance.max(0.0).sqrt())
    }
}

impl ReceiverScheme {
    /// 2^b − 1, or 1 for whole links.
    fn unit(self) -> u32 {
        match self {
            Self::Full | Self::EntropyEcn => 1,
            Self::Compact { hash_bits, .. }
            | Self::SingleBit { hash_bits, .. }
            | Self::Coordinated { hash_bits } => (1 << hash_bits) - 1,
        }
    }

    fn checked(self) -> Result<Self, ReceiverError> {
        let valid_bits = |bits: u32| (1..=MAX_HASH_BITS).contains(&bits);
        let valid = match self {
            Self::Full | Self::EntropyEcn => true,
            Self::Compact { hash_bits, count_bits } | Self::SingleBit { hash_bits, count_bits } => {
                valid_bits(hash_bits) && valid_bits(count_bits)
            }
            Self::Coordinated { hash_bits } => valid_bits(hash_bits),
        };
        if valid { Ok(self) } else { Err(ReceiverError::Range) }
    }
}

/// A candidate link with its masks: bit k of the hash is the parity of the id under mask k.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    link: u32,
    masks: [u32; MAX_HASH_BITS as usize],
}

impl Candidate {
    fn hash(&self, id: u32, bits: u32) -> u32 {
        let bit = |k: u32| (id & self.masks[k as usize]).count_ones() & 1;
        (0..bits).fold(0, |hash, k| hash | bit(k) << k)
    }
}

/// An estimate of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkEstimate {
    /// Number of the link.
    pub link: u32,
    /// Packets whose sample matched it.
    pub samples: u64,
    /// Packets that crossed it, and standard error.
    pub packets: (f64, f64),
    /// Packets that met congestion there, and standard error.
    pub congested: (f64, f64),
}

/// Sums the samples of received packets.
#[derive(Debug)]
pub struct Receiver {
    scheme: ReceiverScheme,
    links: u32,
    one_in: u32,
    field: GaloisField,
    /// Candidate links of every hop, by source. Empty at a hop whose switches write nothing.
    sources: BTreeMap<u32, Vec<Vec<Candidate>>>,
    candidates: usize,
    /// All packets and congested ones, by context and link.
    sums: BTreeMap<(u32, u32), [Sums; 2]>,
    /// Packets and marked ones of scheme entropy-ecn, by context and source, which is a path.
    marked: BTreeMap<(u32, u32), [u64; 2]>,
    received: u64,
    empty: u64,
}

impl Receiver {
    /// For a network of `links` directed links, numbered from 0, where one in `one_in` packets carries a
    /// sample.
    ///
    /// # Errors
    /// Numbers of bits, of links or of packets are out of range.
    pub fn new(scheme: ReceiverScheme, links: u32, one_in: u32) -> Result<Self, ReceiverError> {
        let field = GaloisField::new(LINK_BITS).map_err(|_| ReceiverError::Range)?;
        if !(1..1 << LINK_BITS).contains(&links) || !(1..=MAX_ONE_IN).contains(&one_in) {
            return Err(ReceiverError::Range);
        }
        Ok(Self {
            scheme: scheme.checked()?,
            links,
            one_in,
            field,
            sources: BTreeMap::new(),
            candidates: 0,
            sums: BTreeMap::new(),
            marked: BTreeMap::new(),
            received: 0,
            empty: 0,
        })
    }

    /// Adds the links that packets of a source may cross at a hop: to be called for hop 0, 1 … of each
    /// source, the ejection link last. Links of switches that write nothing are left out; there are
    /// none at a hop where no switch does.
    ///
    /// # Errors
    /// Hops are out of order, a link does not exist, the hop count has too few bits, or a path of
    /// scheme entropy-ecn has several links at a hop.
    pub fn add_hop(&mut self, source: u32, hop: usize, links: &[u32]) -> Result<(), ReceiverError> {
        let before = self.sources.get(&source).map_or(&[][..], Vec::as_slice);
        let writing = before.iter().filter(|links| !links.is_empty()).count();
        let saturates = match self.scheme {
            ReceiverScheme::Compact { count_bits, .. }
            | ReceiverScheme::SingleBit { count_bits, .. } => {
                !links.is_empty() && writing + 1 >= 1 << count_bits
            }
            _ => false,
        };
        let several = self.scheme == ReceiverScheme::EntropyEcn && links.len() > 1;
        if hop != before.len() || hop >= MAX_HOPS || saturates || several {
            return Err(ReceiverError::Range);
        }
        if links.iter().any(|&link| link >= self.links) {
            return Err(ReceiverError::UnknownLink);
        }
        if self.candidates + links.len() > MAX_CANDIDATES {
            return Err(ReceiverError::LimitReached);
        }
        let field = self.field;
        let candidate = |&link: &u32| Candidate {
            link,
            masks: std::array::from_fn(|k| field.mask(link + 1, k as u32)),
        };
        self.candidates += links.len();
        self.sources.entry(source).or_default().push(links.iter().map(candidate).collect());
        Ok(())
    }

    /// Adds a received packet.
    ///
    /// # Errors
    /// No candidates are known for its source, its header names no link of the network, or there are
    /// too many contexts. The packet is then not counted.
    pub fn take(
        &mut self,
        id: u32,
        header: u64,
        source: u32,
        context: u32,
    ) -> Result<(), ReceiverError> {
        let bits_from = |from: u32, bits: u32| (header >> from) as u32 & ((1 << bits) - 1);
        match self.scheme {
            ReceiverScheme::Full => {
                let seen =
                    [(bits_from(0, 24), bits_from(24, 8)), (bits_from(32, 24), bits_from(56, 8))];
                if seen.iter().any(|&(link, count)| count > 0 && !(1..=self.links).contains(&link))
                {
                    return Err(ReceiverError::UnknownLink);
                }
                let any = seen.iter().any(|&(_, count)| count > 0);
                for (congested, (link, count)) in seen.into_iter().enumerate() {
                    if count > 0 {
                        let sums = self.entry(context, link - 1)?;
                        charge(&mut sums[congested], f64::from(count), f64::from(count), true);
                    }
                }
                self.count(any);
            }
            ReceiverScheme::Coordinated { hash_bits } => {
                let hops = self.sources.get(&source).ok_or(ReceiverError::UnknownSource)?;
                let survivor = sampled(id, hops);
                if let Some((hop, weight)) = survivor {
                    let seen = (bits_from(1, hash_bits), hash_bits);
                    let into = if header & 1 > 0 { 0..2 } else { 0..1 };
                    self.add_hashed(id, seen, (source, hop..hop + 1), (context, into), weight)?;
                }
                self.count(survivor.is_some());
            }
            ReceiverScheme::Compact { hash_bits, count_bits } => {
                let hops = self.sources.get(&source).ok_or(ReceiverError::UnknownSource)?.len();
                let count = bits_from(1 + hash_bits, count_bits);
                if count > 0 {
                    let seen = (bits_from(1, hash_bits), hash_bits);
                    let into = if header & 1 > 0 { 0..2 } else { 0..1 };
                    self.add_hashed(id, seen, (source, 0..hops), (context, into), count.into())?;
                }
                self.count(count > 0);
            }
            ReceiverScheme::SingleBit { hash_bits, count_bits } => {
                self.take_reservoirs(id, header, (hash_bits, count_bits), source, context)?;
            }
            ReceiverScheme::EntropyEcn => self.take_mark(header & 1, source, context)?,
        }
        Ok(())
    }

    /// Adds the two reservoirs of scheme single-bit.
    fn take_reservoirs(
        &mut self,
        id: u32,
        header: u64,
        (hash_bits, count_bits): (u32, u32),
        source: u32,
        context: u32,
    ) -> Result<(), ReceiverError> {
        let hops = self.sources.get(&source).ok_or(ReceiverError::UnknownSource)?.len();
        let bits_from = |from: u32, bits: u32| (header >> from) as u32 & ((1 << bits) - 1);
        let width = hash_bits + count_bits;
        let counts = [0, 1].map(|kind| bits_from(kind * width + hash_bits, count_bits));
        for (kind, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let seen = (bits_from(kind as u32 * width, hash_bits), hash_bits);
            let into = (context, kind..kind + 1);
            self.add_hashed(id, seen, (source, 0..hops), into, count.into())?;
        }
        self.count(counts[0] > 0);
        Ok(())
    }

    /// Adds a packet of scheme entropy-ecn, marked (1) or not (0).
    fn take_mark(&mut self, mark: u64, source: u32, context: u32) -> Result<(), ReceiverError> {
        if !self.sources.contains_key(&source) {
            return Err(ReceiverError::UnknownSource);
        }
        let key = (context, source);
        if self.marked.len() >= MAX_SUMS && !self.marked.contains_key(&key) {
            return Err(ReceiverError::LimitReached);
        }
        let [packets, marked] = self.marked.entry(key).or_default();
        *packets += 1;
        *marked += mark;
        self.count(true);
        Ok(())
    }

    fn count(&mut self, sample: bool) {
        self.received += 1;
        self.empty += u64::from(!sample);
    }

    fn entry(&mut self, context: u32, link: u32) -> Result<&mut [Sums; 2], ReceiverError> {
        if self.sums.len() >= MAX_SUMS && !self.sums.contains_key(&(context, link)) {
            return Err(ReceiverError::LimitReached);
        }
        Ok(self.sums.entry((context, link)).or_default())
    }

    /// Charges the candidates of some hops of a source with a hash of `bits` bits, in the sums `kinds`
    /// of the context.
    fn add_hashed(
        &mut self,
        id: u32,
        (seen, bits): (u32, u32),
        (source, hops): (u32, Range<usize>),
        (context, kinds): (u32, Range<usize>),
        l: f64,
    ) -> Result<(), ReceiverError> {
        let unit = f64::from(self.scheme.unit());
        let lists = self.sources.get(&source).ok_or(ReceiverError::UnknownSource)?;
        // A link that is a candidate of several hops counts once.
        let mut chosen: Vec<Candidate> = lists[hops].iter().flatten().copied().collect();
        chosen.sort_unstable_by_key(|candidate| candidate.link);
        chosen.dedup_by_key(|candidate| candidate.link);
        let new = |c: &&Candidate| !self.sums.contains_key(&(context, c.link));
        if self.sums.len() + chosen.iter().filter(new).count() > MAX_SUMS {
            return Err(ReceiverError::LimitReached);
        }
        for candidate in chosen {
            let agrees = candidate.hash(id, bits) == seen;
            let score = if agrees { l * unit } else { -l };
            let sums = self.sums.entry((context, candidate.link)).or_default();
            sums[kinds.clone()].iter_mut().for_each(|sums| charge(sums, score, l, agrees));
        }
        Ok(())
    }

    /// Adds the packets of another receiver.
    ///
    /// # Errors
    /// Schemes, numbers of links, shares of packets with a sample or paths of one number (entropy-ecn) differ,
    /// or there are too many contexts together; nothing is added.
    pub fn merge(&mut self, other: &Self) -> Result<(), ReceiverError> {
        let network = |of: &Self| (of.scheme, of.links, of.one_in);
        if network(self) != network(other) {
            return Err(ReceiverError::Different);
        }
        let new = other.sums.keys().filter(|key| !self.sums.contains_key(key)).count();
        let paths = other.marked.keys().filter(|key| !self.marked.contains_key(key)).count();
        if self.sums.len() + new > MAX_SUMS || self.marked.len() + paths > MAX_SUMS {
            return Err(ReceiverError::LimitReached);
        }
        if self.scheme == ReceiverScheme::EntropyEcn {
            self.take_paths(other)?;
        }
        for (key, [packets, marked]) in &other.marked {
            let mine = self.marked.entry(*key).or_default();
            *mine = [mine[0] + packets, mine[1] + marked];
        }
        for (key, sums) in &other.sums {
            let mine = self.sums.entry(*key).or_default();
            mine.iter_mut().zip(sums).for_each(|(mine, theirs)| mine.add(theirs));
        }
        self.received += other.received;
        self.empty += other.empty;
        Ok(())
    }

    /// Adds the paths of another receiver of scheme entropy-ecn; none if a number has two paths.
    fn take_paths(&mut self, other: &Self) -> Result<(), ReceiverError> {
        let links = |of: &Self, source| of.sources.get(source).map(|hops| links_of(hops));
        let same =
            |source| links(self, source).is_none_or(|mine| Some(mine) == links(other, source));
        if !other.sources.keys().all(same) {
            return Err(ReceiverError::Different);
        }
        for (source, hops) in &other.sources {
            self.sources.entry(*source).or_insert_with(|| hops.clone());
        }
        self.candidates = self.sources.values().flatten().map(Vec::len).sum();
        Ok(())
    }

    /// Estimates of scheme entropy-ecn: marks of all contexts tell the rates of links, and those of a
    /// context are divided by them.
    fn of_marks(&self, context: Option<u32>) -> Vec<LinkEstimate> {
        let crossed: BTreeSet<usize> =
            self.sources.values().flat_map(|hops| links_of(hops)).collect();
        let number: Vec<usize> = crossed.into_iter().collect();
        let at = |link: usize| number.binary_search(&link).unwrap_or_default();
        let mut counts: BTreeMap<u32, PathCount> = BTreeMap::new();
        for ((_, source), [packets, marked]) in &self.marked {
            let links = || links_of(&self.sources[source]).into_iter().map(at).collect();
            let path = counts.entry(*source).or_insert_with(|| PathCount {
                links: links(),
                packets: 0.0,
                marked: 0.0,
            });
            path.packets += *packets as f64;
            path.marked += *marked as f64;
        }
        let paths: Vec<PathCount> = counts.values().cloned().collect();
        let inferred = MarkRates::infer(&paths, number.len());
        let mut rows = vec![(0u64, 0.0); number.len()];
        for ((of, source), [packets, marked]) in &self.marked {
            if context.is_none_or(|context| context == *of) {
                let links = &counts[source].links;
                for &link in links {
                    rows[link].0 += packets;
                    rows[link].1 += *marked as f64 * inferred.share(links, link);
                }
            }
        }
        let k = f64::from(self.one_in);
        let estimate = |(link, (samples, met)): (usize, (u64, f64))| {
            // The error of a link is divided in proportion among the contexts.
            let part = met / inferred.congested[link].max(1e-9) * inferred.variance[link];
            let count = samples as f64;
            LinkEstimate {
                link: number[link] as u32,
                samples,
                packets: (k * count, (k * (k - 1.0) * count).sqrt()),
                congested: (k * met, (k * k * part + k * (k - 1.0) * met).sqrt()),
            }
        };
        rows.into_iter().enumerate().filter(|(_, row)| row.0 > 0).map(estimate).collect()
    }

    /// Estimates for every link that packets of the context may have crossed, in order of link number;
    /// for all contexts together if `context` is `None`.
    pub fn estimates(&self, context: Option<u32>) -> Vec<LinkEstimate> {
        if self.scheme == ReceiverScheme::EntropyEcn {
            return self.of_marks(context);
        }
        let mut total: BTreeMap<u32, [Sums; 2]> = BTreeMap::new();
        for ((of, link), sums) in &self.sums {
            if context.is_none_or(|context| context == *of) {
                let mine = total.entry(*link).or_default();
                mine.iter_mut().zip(sums).for_each(|(mine, more)| mine.add(more));
            }
        }
        let estimate = |(link, [all, met]): (u32, [Sums; 2])| LinkEstimate {
            link,
            samples: all.samples,
            packets: all.estimate(self.scheme, self.one_in.into()),
            congested: met.estimate(self.scheme, self.one_in.into()),
        };
        total.into_iter().map(estimate).collect()
    }

    /// Number of packets added, and of those among them without a sample.
    pub fn received(&self) -> (u64, u64) {
        (self.received, self.empty)
    }
}

/// Hop whose sample a packet carries in scheme coordinated, and the inverse of its probability: hop h
/// replaces the sample with probability 1/(h + 1), and each later hop j keeps it with j/(j + 1).
fn sampled(id: u32, hops: &[Vec<Candidate>]) -> Option<(usize, f64)> {
    let writes = |&hop: &usize| !hops[hop].is_empty();
    let last = (0..hops.len()).filter(writes).rfind(|&hop| takes_sample(id, hop as u8))?;
    if hops.iter().all(|links| !links.is_empty()) {
        return Some((last, hops.len() as f64));
    }
    let later = (last + 1..hops.len()).filter(writes).map(|hop| (hop + 1) as f64 / hop as f64);
    Some((last, (last + 1) as f64 * later.product::<f64>()))
}

/// Links of the path of scheme entropy-ecn.
fn links_of(hops: &[Vec<Candidate>]) -> Vec<usize> {
    hops.iter().flatten().map(|candidate| candidate.link as usize).collect()
}

fn charge(sums: &mut Sums, score: f64, l: f64, agrees: bool) {
    sums.score += score;
    sums.score_l += l * score;
    sums.squares += l * l;
    sums.samples += u64::from(agrees);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailback_telemetry::hash::LinkHash;
    use tailback_telemetry::packet_id::{FlowKey, packet_id};
    use tailback_telemetry::scheme::{Compact, Coordinated, Scheme as _, SingleBit, Visit, mix};

    const HOPS: [&[u32]; 3] = [&[10, 11, 12, 13], &[20, 21, 22, 23], &[30]];
    const PACKETS: u32 = 800;

    /// Packets that cross the first candidate of each hop, but every fourth one the second; the second
    /// hop of even packets is congested.
    fn sent(scheme: ReceiverScheme, seed: u32) -> Receiver {
        sent_in_part(scheme, seed, 1, &[0, 1, 2])
    }

    /// The same with a sample in one of `one_in` packets, written at some hops only.
    fn sent_in_part(scheme: ReceiverScheme, seed: u32, one_in: u32, writing: &[usize]) -> Receiver {
        let mut receiver = Receiver::new(scheme, 40, one_in).unwrap();
        for (hop, links) in HOPS.into_iter().enumerate() {
            let links = if writing.contains(&hop) { links } else { &[] };
            receiver.add_hop(5, hop, links).unwrap();
        }
        let hash = LinkHash::Gf(GaloisField::new(LINK_BITS).unwrap());
        let chosen =
            |psn: &u32| mix(u64::from(seed) << 40 | u64::from(*psn)).is_multiple_of(one_in.into());
        for psn in (0..PACKETS).filter(chosen) {
            let id = packet_id(psn, FlowKey { source: 6, destination: 9, queue_pair: seed });
            let visit = |hop: usize| Visit {
                link: HOPS[hop][usize::from(psn % 4 == 0 && hop < 2)] + 1,
                hop: hop as u8,
                congested: hop == 1 && psn % 2 == 0,
                level: 0,
                packet: id,
                random: mix(u64::from(seed) << 32 | u64::from(psn) << 8 | hop as u64),
            };
            let header = match scheme {
                ReceiverScheme::Coordinated { hash_bits } => {
                    let scheme = Coordinated { hash, bits: hash_bits };
                    let mut mark = scheme.start();
                    writing.iter().for_each(|&hop| scheme.visit(&mut mark, &visit(hop)));
                    scheme.to_wire(mark).into()
                }
                ReceiverScheme::Compact { hash_bits, count_bits } => {
                    let scheme = Compact { hash, bits: hash_bits, count_bits };
                    let mut mark = scheme.start();
                    writing.iter().for_each(|&hop| scheme.visit(&mut mark, &visit(hop)));
                    scheme.to_wire(mark).into()
                }
                ReceiverScheme::SingleBit { hash_bits, count_bits } => {
                    let scheme = SingleBit { hash, bits: hash_bits, count_bits };
                    let mut mark = scheme.start();
                    writing.iter().for_each(|&hop| scheme.visit(&mut mark, &visit(hop)));
                    let part =
                        |hash: u8, count: u8| u64::from(hash) | u64::from(count) << hash_bits;
                    part(mark.hop, mark.hops)
                        | part(mark.congested, mark.congested_hops) << (hash_bits + count_bits)
                }
                ReceiverScheme::EntropyEcn => unreachable!("has no candidates to choose from"),
                ReceiverScheme::Full => {
                    let hop = (mix(u64::from(seed * PACKETS + psn)) % 3) as usize;
                    let met = u64::from(psn % 2 == 0);
                    u64::from(visit(hop).link)
                        | 3 << 24
                        | (u64::from(visit(1).link) * met) << 32
                        | met << 56
                }
            };
            receiver.take(id, header, 5, psn % 2).unwrap();
        }
        receiver
    }

    #[test]
    fn estimates_are_unbiased_with_correct_errors() {
        for scheme in [
            ReceiverScheme::Coordinated { hash_bits: 5 },
            ReceiverScheme::Coordinated { hash_bits: 1 },
            ReceiverScheme::Compact { hash_bits: 2, count_bits: 3 },
            ReceiverScheme::SingleBit { hash_bits: 1, count_bits: 2 },
            ReceiverScheme::SingleBit { hash_bits: 4, count_bits: 3 },
            ReceiverScheme::Full,
        ] {
            let runs = 200;
            let every: Vec<_> = (0..runs).map(|seed| sent(scheme, seed).estimates(None)).collect();
            for (link, truth) in [(10, 600.0), (11, 200.0), (30, 800.0)] {
                let draws: Vec<(f64, f64)> = every
                    .iter()
                    .filter_map(|all| all.iter().find(|row| row.link == link))
                    .map(|row| row.packets)
                    .collect();
                assert_eq!(draws.len(), runs as usize);
                let n = f64::from(runs);
                let off: f64 = draws.iter().map(|(count, _)| count - truth).sum::<f64>() / n;
                let stated = (draws.iter().map(|(_, error)| error * error).sum::<f64>() / n).sqrt();
                let real = (draws.iter().map(|(count, _)| (count - truth).powi(2)).sum::<f64>()
                    / n)
                    .sqrt();
                assert!(off.abs() < 4.0 * stated / n.sqrt() + 1e-9, "{scheme:?} {link}: {off}");
                // The standard deviation of 200 draws is known to 5 %.
                let ratio = real / stated;
                assert!((0.8..1.25).contains(&ratio), "{scheme:?} {link}: {real} {stated}");
            }
        }
    }

    #[test]
    fn partial_sampling_stays_unbiased() {
        let runs = 300;
        for (scheme, one_in, writing) in [
            (ReceiverScheme::Coordinated { hash_bits: 5 }, 1, [0, 2]),
            (ReceiverScheme::Coordinated { hash_bits: 5 }, 3, [0, 1]),
            (ReceiverScheme::Coordinated { hash_bits: 5 }, 1, [1, 2]),
            (ReceiverScheme::Compact { hash_bits: 3, count_bits: 2 }, 4, [0, 2]),
        ] {
            let every: Vec<_> = (0..runs)
                .map(|seed| sent_in_part(scheme, seed, one_in, &writing).estimates(None))
                .collect();
            for (hop, link, truth) in [(0, 10, 600.0), (1, 21, 200.0), (2, 30, 800.0)] {
                let draws: Vec<(f64, f64)> = every
                    .iter()
                    .filter_map(|all| all.iter().find(|row| row.link == link))
                    .map(|row| row.packets)
                    .collect();
                if !writing.contains(&hop) {
                    assert!(draws.is_empty(), "{scheme:?}: nothing is known of link {link}");
                    continue;
                }
                let n = f64::from(runs);
                let mean = |of: &dyn Fn(&(f64, f64)) -> f64| draws.iter().map(of).sum::<f64>() / n;
                let (off, stated) = (mean(&|x| x.0 - truth), mean(&|x| x.1 * x.1).sqrt());
                let real = mean(&|x| (x.0 - truth).powi(2)).sqrt();
                assert!(off.abs() < 4.0 * stated / n.sqrt() + 1e-9, "{scheme:?} {link}: {off}");
                // Which packets carry a sample is the same at a link of all packets: no error there.
                let exact = link == 30 && one_in == 1 && stated < 1e-9;
                assert!(
                    exact || (0.8..1.25).contains(&(real / stated)),
                    "{scheme:?} {link}: {real} {stated}"
                );
            }
        }
        let row = Receiver::new(ReceiverScheme::Full, 4, 2).unwrap();
        let mut other = Receiver::new(ReceiverScheme::Full, 4, 3).unwrap();
        assert_eq!(other.merge(&row), Err(ReceiverError::Different));
        assert!(Receiver::new(ReceiverScheme::Full, 4, 0).is_err());
    }

    #[test]
    fn congested_packets_and_contexts_are_separate() {
        for scheme in [
            ReceiverScheme::Coordinated { hash_bits: 5 },
            ReceiverScheme::SingleBit { hash_bits: 5, count_bits: 2 },
        ] {
            congested_and_contexts(&sent(scheme, 1));
        }
    }

    fn congested_and_contexts(receiver: &Receiver) {
        let near =
            |(value, error): (f64, f64), truth: f64| (value - truth).abs() < 5.0 * error + 1.0;
        let of = |context, link| {
            let all = receiver.estimates(context);
            *all.iter().find(|row| row.link == link).unwrap()
        };
        assert!(near(of(None, 20).congested, 200.0) && near(of(None, 10).congested, 0.0));
        // Even packets: every second of them takes the second candidate.
        assert!(near(of(Some(0), 20).packets, 200.0) && near(of(Some(1), 20).packets, 400.0));
        assert!(receiver.estimates(Some(7)).is_empty());
        assert_eq!(receiver.received(), (u64::from(PACKETS), 0));
    }

    /// Paths 0 to 3 of four links: one of two up, one of two down, and the same last one. Link 2 marks
    /// a third of its packets, in all contexts.
    fn marked(seed: u64) -> Receiver {
        let mut receiver = Receiver::new(ReceiverScheme::EntropyEcn, 8, 1).unwrap();
        for path in 0..4 {
            for (hop, link) in [0, 1 + path / 2, 3 + path % 2, 5].into_iter().enumerate() {
                receiver.add_hop(path, hop, &[link]).unwrap();
            }
        }
        for packet in 0..2000u32 {
            let path = packet % 4;
            let met = path / 2 == 1 && mix(seed << 32 | u64::from(packet)).is_multiple_of(3);
            receiver.take(0, met.into(), path, packet / 4 % 2).unwrap();
        }
        receiver
    }

    #[test]
    fn marks_are_charged_to_the_link_that_their_paths_share() {
        for seed in 0..20 {
            let receiver = marked(seed);
            for context in [None, Some(1)] {
                let rows = receiver.estimates(context);
                assert_eq!(rows.iter().map(|row| row.link).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
                let share = if context.is_some() { 1.0 } else { 2.0 };
                let (near, far) = (&rows[2], &rows[0]);
                assert_eq!((near.packets.0, far.packets.0), (500.0 * share, 1000.0 * share));
                let of = |key: &(u32, u32)| context.is_none_or(|context| key.0 == context);
                let met: u64 = receiver
                    .marked
                    .iter()
                    .filter(|(key, _)| of(key))
                    .map(|(_, [_, marked])| marked)
                    .sum();
                // No other link explains its marks: those have paths without a mark.
                assert!((near.congested.0 - met as f64).abs() < 1.0, "{near:?} of {met}");
                assert!(near.congested.1 < 0.05 * met as f64, "{near:?}");
                for row in rows.iter().filter(|row| row.link != 2) {
                    assert!(row.congested.0 < 1.0, "{row:?}");
                }
            }
        }
        assert!(marked(0).estimates(Some(7)).is_empty());
    }

    #[test]
    fn merged_marks_need_the_same_paths() {
        let (mut first, second) = (marked(1), marked(2));
        first.merge(&second).unwrap();
        assert_eq!(first.estimates(None)[0].packets.0, 4000.0);
        let mut other = Receiver::new(ReceiverScheme::EntropyEcn, 8, 1).unwrap();
        other.add_hop(0, 0, &[7]).unwrap();
        assert_eq!(first.merge(&other), Err(ReceiverError::Different));
        assert_eq!(other.add_hop(1, 0, &[1, 2]), Err(ReceiverError::Range));
        assert_eq!(other.take(0, 1, 9, 0), Err(ReceiverError::UnknownSource));
    }

    #[test]
    fn merged_receivers_equal_one() {
        let scheme = ReceiverScheme::Compact { hash_bits: 2, count_bits: 3 };
        let (mut first, second) = (sent(scheme, 1), sent(scheme, 2));
        let both = first.estimates(None)[0].packets.0 + second.estimates(None)[0].packets.0;
        first.merge(&second).unwrap();
        assert!((first.estimates(None)[0].packets.0 - both).abs() < 1e-9);
        assert_eq!(first.merge(&sent(ReceiverScheme::Full, 1)), Err(ReceiverError::Different));
    }

    #[test]
    fn invalid_input_is_refused_and_not_counted() {
        let mut receiver = Receiver::new(ReceiverScheme::Full, 4, 1).unwrap();
        assert_eq!(receiver.take(0, 9 | 1 << 24, 0, 0), Err(ReceiverError::UnknownLink));
        assert_eq!(receiver.take(0, 1 << 24, 0, 0), Err(ReceiverError::UnknownLink));
        assert_eq!(receiver.received(), (0, 0));
        let mut receiver =
            Receiver::new(ReceiverScheme::Coordinated { hash_bits: 5 }, 4, 1).unwrap();
        assert_eq!(receiver.take(0, 0, 0, 0), Err(ReceiverError::UnknownSource));
        assert_eq!(receiver.add_hop(0, 1, &[1]), Err(ReceiverError::Range));
        assert_eq!(receiver.add_hop(0, 0, &[4]), Err(ReceiverError::UnknownLink));
        assert_eq!(Receiver::new(ReceiverScheme::Full, 0, 1).err(), Some(ReceiverError::Range));
        assert!(Receiver::new(ReceiverScheme::Coordinated { hash_bits: 9 }, 4, 1).is_err());
        // Two bits count three hops, and a count of three may have been four.
        let mut receiver =
            Receiver::new(ReceiverScheme::Compact { hash_bits: 3, count_bits: 2 }, 4, 1).unwrap();
        assert!(receiver.add_hop(0, 0, &[1]).is_ok() && receiver.add_hop(0, 1, &[2]).is_ok());
        assert!(receiver.add_hop(0, 2, &[3]).is_ok());
        assert_eq!(receiver.add_hop(0, 3, &[3]), Err(ReceiverError::Range));
    }
}
