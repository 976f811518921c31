//! Construction of shards from the model.

use tailback_program::{LocalPorts, Rank, SharedMemory};

use super::Shard;
use super::upcoming::Upcoming;
use crate::congestion::CongestionState;
use crate::events::queue::{Event, EventKind};
use crate::host::adapter::Adapter;
use crate::host::messages::{ReceiveState, SendState};
use crate::host::processors::Processors;
use crate::intrinsics::{collect_with_huge_pages, with_huge_pages};
use crate::model::{EndpointIndex, Model, packets_of};
use crate::network::cable::Cable;
use crate::network::link::{Link, Links};
use crate::network::packet::PacketPool;
use crate::network::pause::PausedLanes;
use crate::settings::{AdaptiveRule, RendezvousProgress, Routing};
use crate::switch::adaptive_choices::AdaptiveChoices;
use crate::switch::arbiter::Arbiter;
use crate::switch::virtual_circuits::VirtualCircuits;

impl Model<'_> {
    /// Shard `number` in its initial state; `probe` makes its probe for its links.
    pub fn shard<P>(&self, number: u8, probe: impl Fn(&[Link]) -> P) -> Shard<'_, P> {
        let mut shard = self.idle(number, probe);
        for &rank in self.ranks_of(number) {
            shard.ranks.push(Rank::new(self.program.rank_start[rank as usize]));
            let start = self.placement.start_ps[rank as usize];
            let group = self.group(self.placement.node[rank as usize]);
            shard.queue.push_for(group, Event::new(start, EventKind::Rank, rank, 0));
        }
        for message in &self.program.messages {
            let packets = packets_of(message, &self.settings);
            if self.shard_of_rank(message.src) == usize::from(number) {
                let node = self.placement.node[message.dst as usize];
                let observed = self.placement.label_observed[message.label as usize];
                let service = self.service(message);
                shard.sends.push(SendState::new(message, packets, node, service, observed));
            }
            if self.shard_of_rank(message.dst) == usize::from(number) {
                shard.receives.push(ReceiveState::new(packets));
            }
        }
        shard
    }

    /// The links of a shard, in order.
    fn links_of(&self, shard: u8) -> Vec<Link> {
        let vertices = 0..self.fabric.n_vertices() as u32;
        let prefetch_for_write =
            vertices.filter(|&vertex| self.partition.of_vertex(vertex) == shard);
        let links = prefetch_for_write.flat_map(|vertex| self.fabric.out_links(vertex));
        links.map(|link| self.link(link as usize)).collect()
    }

    /// Shard `number` without ranks and messages.
    fn idle<P>(&self, number: u8, probe: impl Fn(&[Link]) -> P) -> Shard<'_, P> {
        let settings = &self.settings;
        let (arbitrated, control) = (settings.arbitrated(), settings.congestion_control.as_ref());
        let n_lanes = self.lanes() as usize;
        let nodes = (0..).zip(&self.partition.of_node).filter(|&(_, &shard)| shard == number);
        let n_nodes = nodes.clone().count();
        let adapters = nodes.map(|(node, _)| Adapter::new(self.injection(node)));
        let switches = self.partition.of_switch.iter().filter(|&&shard| shard == number).count();
        let links = self.links_of(number);
        let EndpointIndex { send, receive } = self.endpoint_counts[usize::from(number)];
        let ranks = self.ranks_of(number).len();
        Shard {
            model: self,
            number,
            boundary: self.partition.boundary[usize::from(number)],
            arbitrated,
            marks_on_grant: settings.marks_on_grant(),
            adaptive_single_lane: self.adaptive_single_lane(),
            adaptive_by_rule: settings.adaptive != AdaptiveRule::default(),
            has_congestion_control: control.is_some(),
            arbiter: if arbitrated {
                let back = |link: &Link| self.fabric.link_reverse[link.global as usize] as usize;
                let wire = |link| Cable::new(self.fabric.link_gbps[link], 0);
                Arbiter::new(links.iter().map(|link| wire(back(link))).collect(), n_lanes)
            } else {
                Arbiter::default()
            },
            virtual_circuits: if settings.routing == Routing::VirtualCircuit {
                VirtualCircuits::new(switches, links.len(), settings.vc_entries)
            } else {
                VirtualCircuits::default()
            },
            adaptive_choices: AdaptiveChoices::default(),
            congestion: CongestionState::new(control, links.len() * n_lanes, links.len(), switches),
            pauses: PausedLanes::new(settings.flow_control, links.len() * n_lanes),
            now: 0,
            end: 0,
            queue: self.queue(self.partition.groups[usize::from(number)] as usize),
            probe: probe(&links),
            links: Links::new(&links, self.lanes(), settings.buffer_bytes),
            packets: PacketPool::default(),
            upcoming: Upcoming::default(),
            adapters: collect_with_huge_pages(n_nodes, adapters),
            sends: with_huge_pages(send as usize),
            receives: with_huge_pages(receive as usize),
            ranks: with_huge_pages(ranks),
            local_ports: settings.local_ports.then(|| LocalPorts::new(ranks)),
            memory: SharedMemory::new(self.placement.n_hosts(), settings.memory_gbps),
            gates: self.gates.clone().map(Box::new),
            unanswered: self.unanswered(ranks),
            processors: Processors::new(settings, ranks),
            computations: self.settings.record_computation.then(Vec::new),
            outbox: (0..self.partition.shards).map(|_| Default::default()).collect(),
            rank_resumes: false,
            first_handoff_ps: u64::MAX,
            events: 0,
            transmissions: 0,
            adapters_shared: false,
            delivered: 0,
            packet_hops: 0,
        }
    }

    /// Adaptive routing by the default rule with one lane per link.
    fn adaptive_single_lane(&self) -> bool {
        self.settings.routing == Routing::Adaptive
            && self.settings.adaptive == AdaptiveRule::default()
            && self.lanes() == 1
    }

    /// Rendezvous that no rank has to answer yet; None if they answer at once.
    fn unanswered(&self, ranks: usize) -> Option<Vec<Vec<u32>>> {
        (self.settings.progress == RendezvousProgress::Calls).then(|| vec![Vec::new(); ranks])
    }

    fn link(&self, link: usize) -> Link {
        let (src, dst) = (self.fabric.link_src[link], self.fabric.link_dst[link]);
        let back = self.fabric.link_reverse[link] - self.fabric.out_links(dst).start;
        Link {
            cable: Cable::new(self.fabric.link_gbps[link], self.fabric.link_delay_ps[link]),
            global: link as u32,
            dst,
            shard: self.partition.of_vertex(dst),
            // The ports of switches are checked before the run; ports of nodes are not
            // used.
            port: back as u16,
            src_group: self.group(src),
            to_node: self.fabric.is_node(dst),
            from_node: self.fabric.is_node(src),
        }
    }
}
