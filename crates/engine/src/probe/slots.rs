//! Full reservoirs of several links, which do not fit into the mark of a packet in flight.
//!
//! Hops are logged as packets pass switches. The headers that arrive are computed from the log at
//! the end, because headers never influence a run.

use tailback_telemetry::Log;
use tailback_telemetry::scheme::{FullReservoirs, Scheme as _, Visit};

/// A packet with a sample passes a switch.
#[derive(Debug, Clone, Copy)]
pub struct SlotVisit {
    /// Number of the packet in the run.
    pub packet: u64,
    /// The random number of the switch's decisions.
    pub random: u64,
    /// Link of the fabric.
    pub link: u32,
    /// Index of the hop.
    pub index: u8,
    /// Whether the port was congested.
    pub congested: bool,
}

/// Visits of a shard.
pub type VisitLog = Log<SlotVisit>;

/// Headers of `packets`, in increasing order, and the links of their reservoirs.
///
/// A header holds the two counts of hops. The links are `2 × slots` for each packet, numbered from 1: those of the
/// hop reservoir, 0 in empty slots, then those of the congested one.
pub(super) fn fill(
    packets: impl ExactSizeIterator<Item = u64>,
    logs: Vec<VisitLog>,
    slots: u32,
) -> (Vec<u64>, Vec<u32>) {
    let Some(scheme) = FullReservoirs::new(slots as u8) else { return Default::default() };
    let mut visits = Vec::with_capacity(logs.iter().map(Log::len).sum());
    for mut log in logs {
        log.drain(|chunk| visits.extend_from_slice(chunk));
    }
    visits.sort_unstable_by_key(|visit| (visit.packet, visit.index));
    let each = slots as usize;
    let mut headers = Vec::with_capacity(packets.len());
    let mut links = Vec::with_capacity(2 * each * packets.len());
    let mut remaining = &visits[..];
    for packet in packets {
        // Packets that are not in `packets` have lost their sample.
        remaining = &remaining[remaining.partition_point(|visit| visit.packet < packet)..];
        let mut mark = scheme.start();
        for visit in remaining.iter().take_while(|visit| visit.packet == packet) {
            let &SlotVisit { random, link, index, congested, .. } = visit;
            let visit =
                Visit { link: link + 1, hop: index, congested, level: 0, packet: 0, random };
            scheme.visit(&mut mark, &visit);
        }
        let (hops, met) = mark.links();
        links.extend_from_slice(&hops[..each]);
        links.extend_from_slice(&met[..each]);
        let [hops, met] = mark.counts().map(u64::from);
        headers.push(hops | met << 8);
    }
    (headers, links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_apply_hops_in_order() {
        let mut logs = vec![VisitLog::default(), VisitLog::default()];
        for (shard, packet, index) in [(0, 7, 0), (1, 7, 1), (0, 7, 2), (1, 5, 0)] {
            let link = 10 * packet as u32 + u32::from(index);
            // A word of ones takes no slot once all are filled.
            let visit = SlotVisit { packet, random: u64::MAX, link, index, congested: index == 1 };
            logs[shard].push(visit);
        }
        let (headers, links) = fill([6, 7].into_iter(), logs, 2);
        assert_eq!(links, [0, 0, 0, 0, 71, 72, 72, 0]);
        assert_eq!(headers, [0, 3 | 1 << 8]);
    }
}
