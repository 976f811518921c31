//! Probabilistic node and edge marking (Savage et al., SIGCOMM 2000), for comparison.
//!
//! Each switch overwrites the mark with a fixed probability p, so late hops overwrite early ones:
//! the mark of hop i of l arrives with probability p (1 − p)^(l−1−i), and the receiver weights it by the
//! inverse. Node marking carries only the link, and the receiver derives the hop from the topology; edge
//! marking also carries the distance since the mark.

use super::{HeaderSample, LinkOrHash, Scheme, Visit};

fn marks(probability: f64, random: u64) -> bool {
    ((random >> 11) as f64) < probability * (1u64 << 53) as f64
}

/// Node marking.
#[derive(Debug, Clone, Copy)]
pub struct NodeMarking {
    /// Probability that a switch overwrites the mark, above 0.
    pub probability: f64,
    /// Bits of a link in the header.
    pub link_bits: u32,
}

/// What a packet carries: the last mark.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeMark {
    /// Link and congestion.
    pub link: Option<(u32, bool)>,
    /// Hop of the mark, which a receiver derives from the link's position in the topology.
    stage: u8,
}

impl Scheme for NodeMarking {
    type Mark = NodeMark;

    fn name(&self) -> &'static str {
        "node_marking"
    }
    fn header_bits(&self) -> u32 {
        self.link_bits + 1
    }
    fn hash_bits(&self) -> Option<u32> {
        None
    }
    fn start(&self) -> NodeMark {
        NodeMark::default()
    }
    #[inline]
    fn visit(&self, mark: &mut NodeMark, visit: &Visit) {
        if marks(self.probability, visit.random) {
            *mark = NodeMark { link: Some((visit.link, visit.congested)), stage: visit.hop };
        }
    }
    fn receive(&self, mark: &NodeMark, _: u32, hops: u8, out: &mut Vec<HeaderSample>) {
        if let Some((link, congested)) = mark.link {
            let distance = hops.saturating_sub(mark.stage + 1);
            conclude(self.probability, link, congested, distance, hops, out);
        }
    }
}

/// Edge marking.
#[derive(Debug, Clone, Copy)]
pub struct EdgeMarking {
    /// Probability that a switch overwrites the mark, above 0.
    pub probability: f64,
    /// Bits of a link in the header.
    pub link_bits: u32,
    /// Bits of the distance.
    pub distance_bits: u32,
}

/// What a packet carries: the last mark and the switches passed since.
#[derive(Debug, Clone, Copy, Default)]
pub struct EdgeMark {
    /// Link and congestion.
    pub link: Option<(u32, bool)>,
    /// Switches since.
    pub distance: u8,
}

impl Scheme for EdgeMarking {
    type Mark = EdgeMark;

    fn name(&self) -> &'static str {
        "edge_marking"
    }
    fn header_bits(&self) -> u32 {
        self.link_bits + self.distance_bits + 1
    }
    fn hash_bits(&self) -> Option<u32> {
        None
    }
    fn start(&self) -> EdgeMark {
        EdgeMark::default()
    }
    #[inline]
    fn visit(&self, mark: &mut EdgeMark, visit: &Visit) {
        if marks(self.probability, visit.random) {
            *mark = EdgeMark { link: Some((visit.link, visit.congested)), distance: 0 };
        } else {
            mark.distance = (mark.distance + 1).min(super::saturation(self.distance_bits));
        }
    }
    fn receive(&self, mark: &EdgeMark, _: u32, hops: u8, out: &mut Vec<HeaderSample>) {
        if let Some((link, congested)) = mark.link {
            conclude(self.probability, link, congested, mark.distance, hops, out);
        }
    }
}

fn conclude(
    p: f64,
    link: u32,
    congested: bool,
    distance: u8,
    hops: u8,
    out: &mut Vec<HeaderSample>,
) {
    let weight = 1.0 / (p * (1.0 - p).powi(i32::from(distance)));
    let (seen, hop) = (LinkOrHash::Link(link), hops.checked_sub(distance + 1));
    out.push(HeaderSample { congested: false, seen, hop, weight });
    if congested {
        out.push(HeaderSample { congested: true, seen, hop, weight });
    }
}
