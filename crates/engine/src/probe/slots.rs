//! Full reservoirs of several links, which do not fit into the mark of a packet in flight.
//!
//! Their hops are logged as packets pass switches, and the headers that arrive are computed from the log at the
//! end: what a header holds never influences a run.

use tailback_telemetry::Log;
use tailback_telemetry::scheme::{FullReservoirs, Scheme as _, Visit};

use super::PacketRecord;

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

/// Fills in the headers of `records`, sorted by packet: the two counts of hops. Returns the links of every
/// packet's reservoirs, `2 × slots` each and numbered from 1: those of the hop reservoir, 0 in empty slots, then those
/// of the congested one.
pub(super) fn fill(records: &mut [PacketRecord], logs: Vec<VisitLog>, slots: u32) -> Vec<u32> {
    let Some(scheme) = FullReservoirs::new(slots as u8) else { return Vec::new() };
    let mut visits = Vec::with_capacity(logs.iter().map(Log::len).sum());
    for mut log in logs {
        log.drain(|chunk| visits.extend_from_slice(chunk));
    }
    visits.sort_unstable_by_key(|visit| (visit.packet, visit.index));
    let each = slots as usize;
    let mut links = vec![0; 2 * each * records.len()];
    let mut rest = &visits[..];
    for (record, links) in records.iter_mut().zip(links.chunks_exact_mut(2 * each)) {
        // Packets without a record have lost their sample.
        rest = &rest[rest.partition_point(|visit| visit.packet < record.packet)..];
        let own = rest.iter().take_while(|visit| visit.packet == record.packet);
        let mut mark = scheme.start();
        for &SlotVisit { random, link, index, congested, .. } in own {
            let visit =
                Visit { link: link + 1, hop: index, congested, level: 0, packet: 0, random };
            scheme.visit(&mut mark, &visit);
        }
        let (hops, met) = mark.links();
        links[..each].copy_from_slice(&hops[..each]);
        links[each..].copy_from_slice(&met[..each]);
        record.header = mark.counts().map(u64::from).iter().rev().fold(0, |word, n| word << 8 | n);
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_hops_in_order() {
        let record = |packet| PacketRecord {
            packet,
            psn: 0,
            queue_pair: 0,
            time_ps: 0,
            header: 0,
            src: 0,
            dst: 0,
            label: 0,
            bytes: 0,
            hops: 3,
        };
        let mut logs = vec![VisitLog::default(), VisitLog::default()];
        for (shard, packet, index) in [(0, 7, 0), (1, 7, 1), (0, 7, 2), (1, 5, 0)] {
            let link = 10 * packet as u32 + u32::from(index);
            // A word of ones takes no slot once all are filled.
            let visit = SlotVisit { packet, random: u64::MAX, link, index, congested: index == 1 };
            logs[shard].push(visit);
        }
        let mut records = [record(6), record(7)];
        let links = fill(&mut records, logs, 2);
        assert_eq!(links, [0, 0, 0, 0, 71, 72, 72, 0]);
        assert_eq!(records.map(|record| record.header), [0, 3 | 1 << 8]);
    }
}
