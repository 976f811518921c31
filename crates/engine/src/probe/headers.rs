//! Headers of single packets: the switch side of a telemetry scheme, and a record of the headers
//! that arrive.
//!
//! A packet's header is in its [`Mark`]. The full scheme keeps its two reservoirs there; the others
//! keep their header fields there as one word, from the lowest bit (see [`HeaderScheme`]).

use std::sync::Arc;

use tailback_telemetry::hash::{GaloisField, LinkHash};
use tailback_telemetry::packet_id::ID_BITS;
use tailback_telemetry::scheme::{
    Compact, Coordinated, Csig, EdgeMark, EdgeMarking, EntropyEcn, HashSlots, NodeMark,
    NodeMarking, Scheme as _, SingleBit, SingleBitMark, SlotScheme, Visit, XorDigest, XorMark,
    band, mix,
};
use tailback_telemetry::{Mark, NO_LINK};

use super::circuits::Circuits;
use super::sender::{SenderHeaders, bits};
use super::slots::{SlotVisit, VisitLog};
use super::{Connection, DeliveredPacket, Hop};
use crate::Settings;
use crate::entropy::entropy;
use crate::rng::{RandomSource, Stream};
use crate::settings::{HeaderScheme, HeaderSettings, Randomness};

/// Bits of a link number, as many as of a packet id: those of the GF(2^24) hash.
pub const LINK_BITS: u32 = ID_BITS;
const DISTANCE_BITS: u32 = 5;

/// Record of a packet that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRecord {
    /// Number of the packet in the run.
    pub packet: u64,
    /// Packet sequence number within its queue pair.
    pub psn: u32,
    /// Queue pair.
    pub queue_pair: u32,
    /// When its tail arrived.
    pub time_ps: u64,
    /// Its header.
    pub header: u64,
    /// Node it came from.
    pub src: u32,
    /// Node it went to.
    pub dst: u32,
    /// Label of its message.
    pub label: u32,
    /// Payload.
    pub bytes: u32,
    /// Switches it visited.
    pub hops: u8,
}

/// The header word kept in a [`Mark`], for schemes without reservoirs; encoded so that a new packet
/// has 0.
fn word(mark: &Mark) -> u64 {
    u64::from(mark.hop_link ^ NO_LINK) | u64::from(mark.congested_link ^ NO_LINK) << 32
}

fn set_word(mark: &mut Mark, word: u64) {
    mark.hop_link = word as u32 ^ NO_LINK;
    mark.congested_link = (word >> 32) as u32 ^ NO_LINK;
}

/// Link (from bit 1) and congested bit (0) as a value and back.
fn link_of(word: u64) -> Option<(u32, bool)> {
    let link = bits(word, 1, LINK_BITS);
    (link > 0).then_some((link, word & 1 != 0))
}

fn link_word(link: Option<(u32, bool)>) -> u64 {
    link.map_or(0, |(link, congested)| u64::from(link) << 1 | u64::from(congested))
}

/// Which switches put samples into packets, and which samples are lost before they arrive.
#[derive(Debug, Clone, Default)]
pub struct Deployment {
    /// By link of the fabric; all when empty.
    stamping: Arc<[bool]>,
    /// A sample is lost when the packet's number draws less than this, of 2^53.
    lost_below: u64,
    source: Option<RandomSource>,
}

impl Deployment {
    /// With the given settings.
    pub fn new(settings: &Settings) -> Self {
        Self {
            stamping: settings.stamping.as_slice().into(),
            lost_below: (settings.header_loss * (1_u64 << 53) as f64) as u64,
            source: (settings.header_loss > 0.0)
                .then(|| RandomSource::new(settings.seed, Stream::HeaderLoss)),
        }
    }

    /// Whether packets get a sample where they leave by `link` of the fabric.
    #[inline]
    pub fn stamps(&self, link: u32) -> bool {
        self.stamping.is_empty() || self.stamping[link as usize]
    }

    /// Whether the sample of a packet arrives.
    #[inline]
    pub fn arrives(&self, packet: u64) -> bool {
        self.source.is_none_or(|source| source.draw(packet, 0) >> 11 >= self.lost_below)
    }
}

/// Updates headers at switches and records them at nodes.
#[derive(Debug)]
pub struct HeaderProbe {
    carry: HeaderSettings,
    /// Of the run: what entropy values depend on.
    settings: Settings,
    /// One packet in this many carries a sample, and one in `one_kept_in` of those is recorded.
    one_in: u64,
    one_kept_in: u64,
    hash: LinkHash,
    deployment: Deployment,
    circuits: Circuits,
    /// Reservoirs of several hashes.
    slots: Option<HashSlots>,
    /// Decisions that the sending adapter draws into the header.
    sender: Option<SenderHeaders>,
    /// The connection of every message.
    connections: Arc<[Connection]>,
    records: Vec<PacketRecord>,
    /// Hops of packets whose reservoirs of several links fit into no [`Mark`].
    visits: VisitLog,
}

impl HeaderProbe {
    /// For a run of `packets` packets, of messages on these connections.
    ///
    /// # Panics
    /// Never: GF(2^24) is a field.
    pub fn new(
        carry: &HeaderSettings,
        packets: u64,
        connections: Arc<[Connection]>,
        deployment: Deployment,
        settings: &Settings,
    ) -> Self {
        let field = GaloisField::new(LINK_BITS).expect("a field the hash knows");
        let one_in = carry.one_in.max(1);
        let (one_in, one_kept_in) = if carry.summed_on_arrival() {
            // Samples are not limited to the recorded packets, so few records do not mean few
            // samples.
            (one_in, packets.div_ceil(one_in).div_ceil(carry.most).max(1))
        } else {
            (one_in.max(packets.div_ceil(carry.most)), 1)
        };
        Self {
            carry: carry.clone(),
            settings: settings.clone(),
            one_in,
            one_kept_in,
            hash: LinkHash::Gf(field),
            deployment,
            circuits: Circuits::new(carry.randomness, settings.seed),
            slots: hash_slots(carry, LinkHash::Gf(field)),
            sender: (carry.randomness == Randomness::Sender)
                .then(|| SenderHeaders::new(carry, LinkHash::Gf(field), settings.seed)),
            connections,
            records: Vec::new(),
            visits: VisitLog::default(),
        }
    }

    /// Packets of observed jobs per packet that carries a sample.
    pub fn one_in(&self) -> u64 {
        self.one_in.saturating_mul(self.one_kept_in)
    }

    /// Which switches put samples into packets.
    #[inline]
    pub(crate) fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Whether packets carry full reservoirs of one link, which this probe does not update.
    #[inline]
    pub fn full(&self) -> bool {
        self.carry.summed_on_arrival()
    }

    /// Slots of reservoirs whose hops are logged, 1 if none are.
    pub(crate) fn logged_slots(&self) -> u32 {
        if self.carry.scheme == HeaderScheme::Full { self.carry.slots } else { 1 }
    }

    /// Whether headers depend on queue lengths.
    #[inline]
    pub(crate) fn wants_queue(&self) -> bool {
        self.carry.scheme == HeaderScheme::Csig
    }

    /// One of every k consecutive packets, drawn by a hash. Taking every k-th would stay in
    /// step with the packets of a message, and with anything else that a pattern repeats.
    fn tagged(&self, packet: u64) -> bool {
        takes(packet, self.one_in) && takes(packet / self.one_in, self.one_kept_in)
    }

    /// Updates the header of a packet of an observed job at a switch.
    #[inline]
    pub fn visit(&mut self, now_ps: u64, hop: &Hop, mark: &mut Mark, random: u64) {
        if !self.tagged(hop.packet) || !self.deployment.stamps(hop.link) {
            return;
        }
        if self.carry.scheme == HeaderScheme::Full {
            let Hop { packet, link, index, congested, .. } = *hop;
            self.visits.push(SlotVisit { packet, random, link, index, congested });
            return;
        }
        let random = self.circuits.word(now_ps, hop.link, self.counts(word(mark)), random);
        let visit = Visit {
            link: hop.link + 1,
            hop: hop.index,
            congested: hop.congested,
            level: if hop.congested { band(hop.drain_ps) } else { 0 },
            packet: self.connections[hop.message as usize].packet_id(hop.packet),
            random,
        };
        let before = word(mark);
        let after = match (&self.slots, &self.sender) {
            (Some(slots), _) => {
                let mut after = before;
                slots.visit(&mut after, &visit);
                after
            }
            (None, Some(sender)) => sender.after(before, &visit, hop.packet),
            (None, None) => self.after(before, &visit),
        };
        set_word(mark, after);
    }

    /// Hops and congested hops that a header has counted, in schemes that count.
    fn counts(&self, word: u64) -> [u8; 2] {
        let HeaderSettings { hash_bits: b, count_bits: c, .. } = self.carry;
        if let Some(slots) = &self.slots {
            return slots.counts(word);
        }
        match self.carry.scheme {
            HeaderScheme::Compact => [bits(word, 1 + b, c) as u8, 0],
            HeaderScheme::SingleBit => [bits(word, b, c) as u8, bits(word, 2 * b + c, c) as u8],
            _ => [0, 0],
        }
    }

    /// The header behind a switch.
    fn after(&self, word: u64, visit: &Visit) -> u64 {
        let HeaderSettings { hash_bits: b, count_bits: c, probability, .. } = self.carry;
        let hash = self.hash;
        match self.carry.scheme {
            HeaderScheme::Full => word,
            HeaderScheme::Compact => {
                let scheme = Compact { hash, bits: b, count_bits: c };
                let mut mark = scheme.from_wire(word as u32);
                scheme.visit(&mut mark, visit);
                scheme.to_wire(mark).into()
            }
            HeaderScheme::Coordinated => {
                let scheme = Coordinated { hash, bits: b };
                let mut mark = scheme.from_wire(word as u32);
                scheme.visit(&mut mark, visit);
                scheme.to_wire(mark).into()
            }
            HeaderScheme::SingleBit => {
                let part = |from, count| bits(word, from, count) as u8;
                let mut mark = SingleBitMark {
                    hop: part(0, b),
                    hops: part(b, c),
                    congested: part(b + c, b),
                    congested_hops: part(2 * b + c, c),
                };
                SingleBit { hash, bits: b, count_bits: c }.visit(&mut mark, visit);
                u64::from(mark.hop)
                    | u64::from(mark.hops) << b
                    | u64::from(mark.congested) << (b + c)
                    | u64::from(mark.congested_hops) << (2 * b + c)
            }
            HeaderScheme::XorDigest => {
                let digest = bits(word, 1, b) as u8;
                let mut mark = XorMark { digest, congested: word & 1 != 0 };
                XorDigest { hash, bits: b, probability }.visit(&mut mark, visit);
                u64::from(mark.digest) << 1 | u64::from(mark.congested)
            }
            HeaderScheme::Csig => {
                let mut mark = Csig.from_wire(word as u32);
                Csig.visit(&mut mark, visit);
                Csig.to_wire(mark).into()
            }
            HeaderScheme::EntropyEcn => {
                let mut marked = word != 0;
                EntropyEcn.visit(&mut marked, visit);
                marked.into()
            }
            HeaderScheme::NodeMarking => {
                let mut mark = NodeMark::default();
                NodeMarking { probability, link_bits: LINK_BITS }.visit(&mut mark, visit);
                if mark.link.is_some() { link_word(mark.link) } else { word }
            }
            HeaderScheme::EdgeMarking => {
                let distance = bits(word, 1 + LINK_BITS, DISTANCE_BITS) as u8;
                let mut mark = EdgeMark { link: link_of(word), distance };
                let (link_bits, distance_bits) = (LINK_BITS, DISTANCE_BITS);
                EdgeMarking { probability, link_bits, distance_bits }.visit(&mut mark, visit);
                link_word(mark.link) | u64::from(mark.distance) << (1 + LINK_BITS)
            }
        }
    }

    /// Records the header of a packet of an observed job.
    #[inline]
    pub fn delivered(&mut self, time_ps: u64, arrival: &DeliveredPacket, mark: Mark) {
        let DeliveredPacket { packet, message, label, bytes, src, dst, hops, .. } = *arrival;
        if !self.tagged(packet) || !self.deployment.arrives(packet) {
            return;
        }
        let header = match self.carry.scheme {
            HeaderScheme::Full => full_header(&mark),
            HeaderScheme::EntropyEcn => {
                word(&mark) | u64::from(entropy(&self.settings, packet)) << 1
            }
            // The sender chose the type of signal, whether or not a switch replaced the tag.
            HeaderScheme::Csig => Csig.to_wire(Csig.from_wire(word(&mark) as u32)).into(),
            _ => word(&mark),
        };
        let connection = &self.connections[message as usize];
        let (psn, queue_pair) = (connection.psn(packet), connection.queue_pair());
        let record =
            PacketRecord { packet, psn, queue_pair, time_ps, header, src, dst, label, bytes, hops };
        self.records.push(record);
    }

    /// All records, and the hops of packets with reservoirs of several links.
    pub fn finish(self) -> (Vec<PacketRecord>, VisitLog) {
        (self.records, self.visits)
    }
}

/// The scheme of a header with several hashes.
fn hash_slots(carry: &HeaderSettings, hash: LinkHash) -> Option<HashSlots> {
    let scheme = match carry.scheme {
        HeaderScheme::SingleBit => SlotScheme::SingleBit,
        HeaderScheme::Compact => SlotScheme::Compact,
        HeaderScheme::Coordinated => SlotScheme::Coordinated,
        _ => return None,
    };
    let several = carry.slots > 1;
    several.then(|| HashSlots::new(scheme, hash, carry.slots, carry.hash_bits, carry.count_bits))?
}

/// One of every `k` packets in sequence, drawn by a hash. Taking every k-th could stay in step with the packets
/// of a message, or with anything else that a pattern repeats.
#[inline]
pub(super) fn takes(packet: u64, k: u64) -> bool {
    k == 1 || packet % k == mix(packet / k) % k
}

fn full_header(mark: &Mark) -> u64 {
    let number = |link: u32| u64::from(link.wrapping_add(1));
    number(mark.hop_link)
        | u64::from(mark.hop_count) << LINK_BITS
        | number(mark.congested_link) << (LINK_BITS + 8)
        | u64::from(mark.congested_count) << (2 * LINK_BITS + 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{PsnStart, QueuePairs};

    /// Every packet belongs to one message.
    fn one() -> Arc<[Connection]> {
        Arc::from([Connection::default()])
    }

    fn carried(scheme: HeaderScheme) -> HeaderProbe {
        let carry = HeaderSettings {
            scheme,
            hash_bits: 4,
            count_bits: 3,
            probability: 0.5,
            most: 1 << 20,
            one_in: 1,
            queue_pairs: QueuePairs::PerPeer,
            psn_start: PsnStart::Zero,
            randomness: Randomness::Ideal,
            slots: 1,
        };
        carry.check().unwrap();
        carried_by(&carry, 1000)
    }

    fn carried_by(carry: &HeaderSettings, packets: u64) -> HeaderProbe {
        HeaderProbe::new(carry, packets, one(), Deployment::default(), &Settings::default())
    }

    fn thinned(scheme: HeaderScheme, one_in: u64) -> HeaderProbe {
        carried_by(&HeaderSettings { one_in, ..carried(scheme).carry }, 1000)
    }

    /// A packet through links 1 to 5, the second of them congested.
    fn send(probe: &mut HeaderProbe, packet: u64) -> Mark {
        let mut mark = Mark::EMPTY;
        for index in 0..5u8 {
            let (link, congested) = (u32::from(index) + 1, index == 1);
            let message = 0;
            let hop =
                Hop { local: link, link, congested, drain_ps: 1 << 16, packet, message, index };
            let random = tailback_telemetry::scheme::mix(packet * 16 + u64::from(index));
            probe.visit(0, &hop, &mut mark, random);
        }
        mark
    }

    #[test]
    fn headers_follow_the_scheme() {
        let field = GaloisField::new(LINK_BITS).unwrap();
        let hash = |packet: u64, link: u32| field.hash(one()[0].packet_id(packet), link + 1, 4);
        for packet in 0..200 {
            let id = one()[0].packet_id(packet);
            let survivor = u32::from(Coordinated::survivor(id, 5).unwrap()) + 1;
            let header = word(&send(&mut carried(HeaderScheme::Coordinated), packet));
            assert_eq!(bits(header, 1, 4), hash(packet, survivor));
            assert_eq!(header & 1 != 0, survivor == 2);
            let header = word(&send(&mut carried(HeaderScheme::Compact), packet));
            assert_eq!(bits(header, 5, 3), 5);
            assert!((1..=5).any(|link| hash(packet, link) == bits(header, 1, 4)));
            let header = word(&send(&mut carried(HeaderScheme::SingleBit), packet));
            assert_eq!((bits(header, 4, 3), bits(header, 11, 3)), (5, 1));
            assert_eq!(bits(header, 7, 4), hash(packet, 2));
            let header = word(&send(&mut carried(HeaderScheme::Csig), packet));
            assert_eq!((bits(header, 7, 5), bits(header, 0, 7)), (3, 3));
            let header = word(&send(&mut carried(HeaderScheme::EdgeMarking), packet));
            let since = bits(header, 25, 5);
            match link_of(header) {
                Some((link, congested)) => {
                    assert_eq!((link + since, congested), (6, link == 3));
                }
                None => assert_eq!(since, 5),
            }
        }
    }

    #[test]
    fn unchosen_packets_carry_nothing() {
        for scheme in [HeaderScheme::Compact, HeaderScheme::SingleBit, HeaderScheme::NodeMarking] {
            let mut probe = thinned(scheme, 2);
            let untagged: Vec<u64> = (0..1000).filter(|&packet| !probe.tagged(packet)).collect();
            for packet in untagged {
                assert_eq!(send(&mut probe, packet), Mark::EMPTY);
            }
        }
    }

    #[test]
    fn draws_are_uniform_within_each_group() {
        for k in [2, 4, 7, 16] {
            let probe = thinned(HeaderScheme::Compact, k);
            let mut chosen = vec![0_u32; k as usize];
            for block in 0..4000 {
                let drawn: Vec<_> =
                    (0..k).filter(|place| probe.tagged(block * k + place)).collect();
                assert_eq!(drawn.len(), 1);
                chosen[drawn[0] as usize] += 1;
            }
            // Chi-square over k positions: mean k - 1, variance 2 (k - 1).
            let expected = 4000.0 / k as f64;
            let off: f64 =
                chosen.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
            let free = (k - 1) as f64;
            assert!(off < free + 4.0 * (2.0 * free).sqrt(), "one in {k}: {chosen:?}");
        }
    }

    #[test]
    fn probabilities_of_one_are_refused() {
        for probability in [0.0, 1.0, f64::NAN] {
            let carry = HeaderSettings { probability, ..carried(HeaderScheme::NodeMarking).carry };
            let refused = carry.check().unwrap_err().to_string();
            assert!(refused.contains("probability"), "{refused}");
        }
    }

    #[test]
    fn records_stay_below_their_maximum() {
        let carry = HeaderSettings { most: 30, one_in: 1, ..carried(HeaderScheme::Full).carry };
        assert_eq!(carried_by(&carry, 1000).one_in(), 34);
        assert_eq!(carried_by(&carry, 20).one_in(), 1);
    }
}
