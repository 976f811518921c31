//! Combination of the probes that a run asks for.

use tailback_telemetry::Mark;

use super::slots::fill;
use super::{
    DeliveredPacket, HeaderProbe, Hop, LinkReadings, PacketRecord, PortCounters, PortProbe, Probe,
    QueueLengths, SentPacket, Transmission, WindowProbe,
};

/// Any combination of probes.
#[derive(Debug, Default)]
pub struct CombinedProbe {
    /// Samples and ground truth per window.
    pub measure: Option<WindowProbe>,
    /// Port counters and queue lengths.
    pub ports: Option<PortProbe>,
    /// Headers of single packets.
    pub carried: Option<HeaderProbe>,
}

impl CombinedProbe {
    /// Whether packets carry the full reservoirs, from which samples are made.
    fn full(&self) -> bool {
        self.carried.as_ref().is_none_or(HeaderProbe::full)
    }
}

impl Probe for CombinedProbe {
    const ON: bool = true;

    #[inline]
    fn prefetch(&self, link: u32, input: u32) {
        if let Some(ports) = &self.ports {
            ports.prefetch(link, input);
        }
    }

    #[inline]
    fn begin_window(&mut self, now: u64) {
        if let Some(ports) = &mut self.ports {
            ports.begin_window(now);
        }
        if let Some(measure) = &mut self.measure {
            measure.begin_window(now);
        }
    }

    #[inline]
    fn wants_hops(&self) -> bool {
        self.measure.is_some() || self.carried.is_some()
    }

    #[inline]
    fn wants_queue(&self) -> bool {
        self.carried.as_ref().is_some_and(HeaderProbe::wants_queue)
    }

    #[inline]
    fn wants_inputs(&self) -> bool {
        self.ports.is_some()
    }

    #[inline(always)]
    fn hop(&mut self, now: u64, hop: Hop, observed: bool, mark: &mut Mark, random: u64) {
        match &mut self.carried {
            Some(carried) if !carried.full() => {
                if observed {
                    carried.visit(now, &hop, mark, random);
                }
            }
            carried => {
                let of_headers = carried.as_ref().map(HeaderProbe::deployment);
                let other = self.measure.as_ref().map(WindowProbe::deployment);
                if of_headers.or(other).is_none_or(|deployment| deployment.stamps(hop.link)) {
                    mark.visit(hop.link, hop.congested, random);
                }
            }
        }
        if let Some(measure) = &mut self.measure {
            measure.count(now, &hop, observed);
        }
    }

    #[inline]
    fn enqueued(&mut self, now: u64, link: u32, wire: u32, input: u32) {
        if let Some(ports) = &mut self.ports {
            ports.enqueued(now, link, wire, input);
        }
    }

    #[inline]
    fn dequeued(&mut self, now: u64, link: u32, wire: u32, input: u32) {
        if let Some(ports) = &mut self.ports {
            ports.dequeued(now, link, wire, input);
        }
    }

    #[inline]
    fn blocked(&mut self, now: u64, link: u32, wire: u32) {
        if let Some(ports) = &mut self.ports {
            ports.blocked(now, link, wire);
        }
    }

    #[inline(always)]
    fn sent(&mut self, now: u64, link: u32, slot: Transmission, packet: SentPacket) {
        if let Some(ports) = &mut self.ports {
            ports.sent(now, link, slot, packet);
        }
        if let Some(measure) = &mut self.measure {
            measure.sent(now, link, slot, packet);
        }
    }

    #[inline]
    fn delivered(&mut self, time: u64, arrival: DeliveredPacket, mark: Mark) {
        if arrival.observed
            && let Some(carried) = &mut self.carried
        {
            carried.delivered(time, &arrival, mark);
        }
        if self.full()
            && let Some(measure) = &mut self.measure
        {
            measure.delivered(time, arrival, mark);
        }
    }
}

/// Samples, truth, counters and queues: the most common combination.
impl Probe for (WindowProbe, PortProbe) {
    const ON: bool = true;

    #[inline]
    fn prefetch(&self, link: u32, input: u32) {
        self.0.prefetch(link, input);
        self.1.prefetch(link, input);
    }

    #[inline]
    fn begin_window(&mut self, now: u64) {
        self.0.begin_window(now);
        self.1.begin_window(now);
    }

    #[inline]
    fn wants_inputs(&self) -> bool {
        true
    }

    #[inline(always)]
    fn hop(&mut self, now: u64, hop: Hop, observed: bool, mark: &mut Mark, random: u64) {
        self.0.hop(now, hop, observed, mark, random);
    }

    #[inline]
    fn enqueued(&mut self, now: u64, link: u32, wire: u32, input: u32) {
        self.1.enqueued(now, link, wire, input);
    }

    #[inline]
    fn dequeued(&mut self, now: u64, link: u32, wire: u32, input: u32) {
        self.1.dequeued(now, link, wire, input);
    }

    #[inline]
    fn blocked(&mut self, now: u64, link: u32, wire: u32) {
        self.1.blocked(now, link, wire);
    }

    #[inline(always)]
    fn sent(&mut self, now: u64, link: u32, slot: Transmission, packet: SentPacket) {
        self.0.sent(now, link, slot, packet);
        self.1.sent(now, link, slot, packet);
    }

    #[inline(always)]
    fn delivered(&mut self, time: u64, arrival: DeliveredPacket, mark: Mark) {
        self.0.delivered(time, arrival, mark);
    }
}

impl From<(WindowProbe, PortProbe)> for CombinedProbe {
    fn from((measure, ports): (WindowProbe, PortProbe)) -> Self {
        Self { measure: Some(measure), ports: Some(ports), carried: None }
    }
}

/// Tables of the optional probes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProbeTables {
    /// Final time between readings: doubled whenever there would have been too many.
    pub counters_ps: u64,
    /// Port counters, by instant and link; a link without a row is unchanged since its last
    /// one.
    pub counters: LinkReadings<PortCounters>,
    /// Final time between readings of queue lengths.
    pub queues_ps: u64,
    /// Queue lengths, by instant and link; a link without a row is unchanged since its last
    /// one.
    pub queues: LinkReadings<QueueLengths>,
    /// One in this many packets of observed jobs is recorded, 0 for none.
    pub one_in: u64,
    /// Recorded packets, by number.
    pub packets: Vec<PacketRecord>,
    /// Links in their reservoirs if these have several slots: `2 × slots` for each packet, see
    /// `probe/slots.rs`; else empty.
    pub reservoirs: Vec<u32>,
}

/// The probes of a shard, and the fabric numbers of its links.
pub(crate) struct ShardProbes {
    pub ports: Option<PortProbe>,
    pub carried: Option<HeaderProbe>,
    pub global: Vec<u32>,
}

impl ProbeTables {
    /// Merges the tables of all shards of a run that ended at `end`; `reverse` is the reverse
    /// link of each link of the fabric. Uses `threads` threads.
    pub(crate) fn join(parts: Vec<ShardProbes>, end: u64, reverse: &[u32], threads: usize) -> Self {
        let mut all = Self::default();
        let (mut shards, mut visits, mut slots) = (Vec::new(), Vec::new(), 1);
        for ShardProbes { ports, carried, global } in parts {
            shards.extend(ports.map(|ports| (ports, global)));
            if let Some(carried) = carried {
                all.one_in = carried.one_in();
                slots = carried.logged_slots();
                let (records, log) = carried.finish();
                all.packets.extend(records);
                visits.push(log);
            }
        }
        let ports = PortProbe::join(shards, end, reverse, threads);
        (all.counters_ps, all.counters) = (ports.counters_ps, ports.counters);
        (all.queues_ps, all.queues) = (ports.queues_ps, ports.queues);
        all.packets.sort_unstable_by_key(|record| record.packet);
        if slots > 1 {
            let packets = all.packets.iter().map(|record| record.packet);
            let (headers, links) = fill(packets, visits, slots);
            all.packets.iter_mut().zip(headers).for_each(|(record, header)| record.header = header);
            all.reservoirs = links;
        }
        all
    }
}
