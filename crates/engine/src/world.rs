//! What all shards read and none changes: fabric, routes, settings, program, placement, the cut.

use std::ops::Range;

use tailback_fabric::{Fabric, FabricError, Plan, RouteState, Rule};
use tailback_program::{ProgramError, Rank};

use crate::adapter::Adapter;
use crate::arbiter::Arbiter;
use crate::circuits::Circuits;
use crate::congestion::Congestion;
use crate::cut::Cut;
use crate::link::{Link, Links, NIL};
use crate::pacing::{Offset, Pacing, interval};
use crate::packet::Packets;
use crate::program::{Compiled, Envelope, Placement, Program, compile};
use crate::queue::{Class, Event, EventQueue};
use crate::ranks::{Receiving, Sending};
use crate::ring::Ring;
use crate::rng::{Stream, random};
use crate::settings::Routing;
use crate::shard::Shard;
use crate::{EngineError, Settings};

pub(crate) struct World<'a> {
    pub fabric: &'a Fabric,
    pub plan: &'a Plan,
    pub settings: &'a Settings,
    pub placement: &'a Placement,
    pub program: Compiled,
    /// Where the state of each message is.
    pub sides: Vec<Sides>,
    pub cut: Cut,
    /// Every node's place in the network.
    pub places: Vec<Place>,
    /// Group of every vertex within its shard.
    groups: Vec<u32>,
    /// Number of each rank within its shard.
    pub local_rank: Vec<u32>,
    /// Ranks of every shard, in order.
    ranks: Vec<Vec<u32>>,
    /// Shortest cable between switches.
    pub least_cable_ps: u64,
    pub total_packets: u64,
}

/// Numbers of the two sides of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sides {
    /// The sending one within the sender's shard.
    pub send: u32,
    /// The receiving one within the receiver's shard.
    pub receive: u32,
}

/// Where a node is; all in one place for a packet on its way there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Its switch.
    pub home: u32,
    /// Number of that switch among those that carry nodes, where routes are a table.
    pub column: u32,
    /// Links to and from the switch, numbered within the shard.
    pub injection: u32,
    pub ejection: u32,
}

impl<'a> World<'a> {
    /// Checks everything and numbers it for the shards.
    pub fn new(
        fabric: &'a Fabric,
        plan: &'a Plan,
        settings: &'a Settings,
        program: &'a Program,
        placement: &'a Placement,
        shards: u32,
    ) -> Result<Self, EngineError> {
        settings.check()?;
        check_sizes(fabric, plan, program, placement)?;
        let compiled = compile(program, settings.packet_bytes)?;
        let delay = settings.switch_delay_ps;
        let mut cut = Cut::new(fabric, plan, delay, shards);
        let of_rank = |cut: &Cut, rank: u32| cut.of_node[placement.node[rank as usize] as usize];
        let split = |m: &Envelope| of_rank(&cut, m.src) != of_rank(&cut, m.dst);
        let same_host =
            |m: &Envelope| placement.host[m.src as usize] == placement.host[m.dst as usize];
        if compiled.messages.iter().any(|m| same_host(m) && split(m)) {
            // A host with adapters in two shards: its ranks talk without the network.
            cut = cut.merged(fabric);
        }
        let home = |rank: u32| plan.home[placement.node[rank as usize] as usize];
        let ends =
            compiled.messages.iter().filter(|m| same_host(m)).map(|m| (home(m.src), home(m.dst)));
        cut.join(&ends.filter(|(a, b)| a != b).collect::<Vec<_>>());
        let mut ranks = vec![Vec::new(); cut.shards as usize];
        let mut local_rank = Vec::with_capacity(program.n_ranks());
        for rank in 0..program.n_ranks() as u32 {
            let here = &mut ranks[usize::from(of_rank(&cut, rank))];
            local_rank.push(here.len() as u32);
            here.push(rank);
        }
        let mut sides = vec![(0u32, 0u32); cut.shards as usize];
        let mut total_packets = 0;
        let mut of_message = Vec::with_capacity(compiled.messages.len());
        for message in &compiled.messages {
            let sends = &mut sides[usize::from(of_rank(&cut, message.src))].0;
            let send = std::mem::replace(sends, *sends + 1);
            let receives = &mut sides[usize::from(of_rank(&cut, message.dst))].1;
            let receive = std::mem::replace(receives, *receives + 1);
            of_message.push(Sides { send, receive });
            total_packets += u64::from(packets_of(message, settings));
        }
        let world = Self {
            fabric,
            plan,
            settings,
            placement,
            program: compiled,
            sides: of_message,
            least_cable_ps: cut.lookahead_ps.saturating_sub(delay).min(u64::MAX / 4),
            places: places(fabric, plan, &cut),
            groups: plan
                .home
                .iter()
                .map(|&home| cut.group[home as usize])
                .chain(cut.group.iter().copied())
                .collect(),
            cut,
            local_rank,
            ranks,
            total_packets,
        };
        world.check_paths()?;
        Ok(world)
    }

    /// The shards as they are before anything happens; `probe` makes the probe for so many links.
    pub fn shards<P>(&self, mut probe: impl FnMut(usize) -> P) -> Vec<Shard<'_, P>> {
        let shards = self.cut.shards as usize;
        let mut links: Vec<Vec<(u32, Link)>> = vec![Vec::new(); shards];
        for link in 0..self.fabric.n_links() {
            let src = self.fabric.link_src[link];
            let home = usize::from(self.cut.of_vertex(src));
            links[home].push((link as u32, self.link(link)));
        }
        let mut nodes = vec![0usize; shards];
        self.cut.of_node.iter().for_each(|&shard| nodes[usize::from(shard)] += 1);
        let mut switches = vec![0usize; shards];
        self.cut.of_switch.iter().for_each(|&shard| switches[usize::from(shard)] += 1);
        let mut sends: Vec<Vec<Sending>> = vec![Vec::new(); shards];
        let mut receives: Vec<Vec<Receiving>> = vec![Vec::new(); shards];
        for message in &self.program.messages {
            let packets = packets_of(message, self.settings);
            sends[self.shard_of_rank(message.src)].push(Sending::new(packets));
            receives[self.shard_of_rank(message.dst)].push(Receiving::new(packets));
        }
        let width = window_ps(self.fabric, self.settings, &self.cut);
        let mut all = Vec::with_capacity(shards);
        for (number, links) in links.into_iter().enumerate() {
            let arbitrated = self.settings.arbitrated();
            let control = self.settings.congestion_control.as_ref();
            let n_lanes = self.lanes() as usize;
            let mut shard = Shard {
                world: self,
                number: number as u8,
                arbitrated,
                extras: arbitrated || control.is_some(),
                arbiter: if arbitrated {
                    Arbiter::new(links.len(), n_lanes)
                } else {
                    Arbiter::default()
                },
                circuits: if self.settings.routing == Routing::Vc {
                    Circuits::new(switches[number], links.len(), self.settings.vc_entries)
                } else {
                    Circuits::default()
                },
                congestion: Congestion::new(control, links.len() * n_lanes, switches[number]),
                now: 0,
                end: 0,
                due: Ring::new(),
                coming: Vec::new(),
                queue: EventQueue::new(width, self.cut.groups[number] as usize),
                probe: probe(links.len()),
                links: Links::new(&links, self.lanes(), self.settings.buffer_bytes),
                packets: Packets::new(),
                routes: Default::default(),
                adapters: (0..nodes[number]).map(|_| Adapter::default()).collect(),
                sends: std::mem::take(&mut sends[number]),
                receives: std::mem::take(&mut receives[number]),
                ranks: Vec::with_capacity(self.ranks[number].len()),
                outbox: (0..shards).map(|_| Default::default()).collect(),
                first_mail: u64::MAX,
                events: 0,
                moves: 0,
                delivered: 0,
                packet_hops: 0,
            };
            for &rank in &self.ranks[number] {
                shard.ranks.push(Rank::new(self.program.rank_start[rank as usize]));
                let start = self.placement.start_ps[rank as usize];
                let node = self.placement.node[rank as usize];
                let group = self.group(node);
                shard.queue.push_for(group, Event::new(start, Class::Rank, rank, 0));
            }
            all.push(shard);
        }
        all
    }

    fn link(&self, link: usize) -> Link {
        let dst = self.fabric.link_dst[link];
        Link {
            shard: self.cut.of_vertex(dst),
            dst,
            to_node: self.fabric.is_node(dst),
            ..Link::new(self.fabric.link_gbps[link], self.fabric.link_delay_ps[link])
        }
    }

    /// Group of a vertex within its shard.
    #[inline]
    pub fn group(&self, vertex: u32) -> u32 {
        self.groups[vertex as usize]
    }

    /// Virtual lanes of every link: what the routing rule needs, for each service level.
    pub fn lanes(&self) -> u8 {
        self.plan.lanes().saturating_mul(self.settings.services)
    }

    /// Service level of a message.
    #[inline]
    pub fn service(&self, message: &Envelope) -> u8 {
        let service = self.placement.label_service.get(message.label as usize);
        service.copied().unwrap_or(0).min(self.settings.services - 1)
    }

    /// How long a paced message waits before its first packet.
    pub fn pacing_offset(&self, message: u32) -> u64 {
        let settings = self.settings;
        let Envelope { src, dst, bytes, first_packet, pace_mbps, .. } =
            self.program.messages[message as usize];
        if settings.pacing == Pacing::Off || pace_mbps == 0 {
            return 0;
        }
        let part = match settings.pacing_offset {
            Offset::None => return 0,
            Offset::Random => random(settings.seed, Stream::Pace, first_packet, 0),
            Offset::Shift => {
                let node = |rank: u32| u64::from(self.placement.node[rank as usize]);
                let nodes = u64::from(self.fabric.n_nodes);
                (nodes + node(dst) - node(src)) % nodes * (u64::MAX / nodes)
            }
        };
        let payload = bytes.min(settings.packet_bytes.into()) as u32;
        let interval = interval(settings.wire_bytes(payload), pace_mbps);
        ((u128::from(part) * u128::from(interval)) >> 64) as u64
    }

    /// Ranks of a shard, in order.
    pub fn ranks_of(&self, shard: u8) -> &[u32] {
        &self.ranks[usize::from(shard)]
    }

    /// Shard of a rank.
    pub fn shard_of_rank(&self, rank: u32) -> usize {
        self.cut.of_node[self.placement.node[rank as usize] as usize].into()
    }

    /// Injection link of a node, numbered within its shard.
    #[inline]
    pub fn injection(&self, node: u32) -> u32 {
        self.places[node as usize].injection
    }

    /// Candidates at `switch` towards a node elsewhere, numbered over the fabric, where they are
    /// neighbours by the rule of the routes.
    #[inline]
    pub fn side_by_side(&self, switch: u32, place: Place) -> Option<Range<u32>> {
        match &self.plan.rule {
            Rule::Table(routes) => routes.range(switch, place.column),
            _ => None,
        }
    }

    /// Whether both ends of a message are on one host.
    pub fn same_host(&self, message: &Envelope) -> bool {
        let host = &self.placement.host;
        host[message.src as usize] == host[message.dst as usize]
    }

    /// D-mod-k's dividend (Zahavi et al., 2010): what the switches below leave undistinguished.
    pub fn modulus(&self, switch: u32, node: u32) -> usize {
        (node / self.plan.divisor(switch)) as usize
    }

    /// Latency beyond the first cable, and switches visited, of a path nobody else is on.
    pub fn uncontended(&self, injection: u32, node: u32) -> (u64, u8) {
        let switch = self.fabric.link_dst[injection as usize] - self.fabric.n_nodes;
        let (latency, hops) = self.way(switch, node);
        (latency + self.settings.switch_delay_ps, hops + 1)
    }

    /// Latency from the outputs of `switch` to `node`, and switches visited after it.
    fn way(&self, mut switch: u32, node: u32) -> (u64, u8) {
        let ejection = self.plan.ejection[node as usize];
        let goal = self.plan.home[node as usize];
        let (mut latency, mut hops) = (0, 0);
        let mut state = RouteState::START;
        while switch != goal {
            let step = self.plan.next(switch, node, u32::MAX, state);
            let link = step.links[0] as usize;
            latency += self.fabric.link_delay_ps[link] + self.settings.switch_delay_ps;
            switch = self.fabric.link_dst[link] - self.fabric.n_nodes;
            state = step.next;
            hops += 1;
        }
        (latency + self.fabric.link_delay_ps[ejection as usize], hops)
    }

    /// Latency of a notice from `switch` to a `node` that has sent something through it; at least
    /// what the cut needs. Tables that lead only there and not back are taken for one cable's.
    pub fn way_back(&self, switch: u32, node: u32) -> u64 {
        let leads = self.plan.leads(self.fabric, switch, node);
        let home = self.plan.home[node as usize] == switch;
        let latency = if home || leads { self.way(switch, node).0 } else { 0 };
        if home { latency } else { latency.max(self.cut.lookahead_ps) }
    }

    /// Every pair of ranks that communicates needs a path.
    fn check_paths(&self) -> Result<(), EngineError> {
        let node = &self.placement.node;
        let ends = |m: &Envelope| (node[m.src as usize], node[m.dst as usize]);
        let mut pairs: Vec<(u32, u32)> = self.program.messages.iter().map(ends).collect();
        pairs.sort_unstable();
        pairs.dedup();
        for (from, to) in pairs {
            if from != to {
                self.require(from, to)?;
            }
        }
        Ok(())
    }

    fn require(&self, from: u32, to: u32) -> Result<(), FabricError> {
        let (here, goal) = (self.plan.home[from as usize], self.plan.home[to as usize]);
        if here == goal || self.plan.leads(self.fabric, here, to) {
            return Ok(());
        }
        Err(FabricError::Unconnected { from: here, to: goal })
    }
}

fn places(fabric: &Fabric, plan: &Plan, cut: &Cut) -> Vec<Place> {
    let local = |link: u32| {
        let src = fabric.link_src[link as usize];
        link.wrapping_sub(cut.link_shift[src as usize])
    };
    let place = |node: usize| Place {
        home: plan.home[node],
        column: if let Rule::Table(routes) = &plan.rule { routes.column[node] } else { 0 },
        injection: local(plan.injection[node]),
        ejection: local(plan.ejection[node]),
    };
    (0..fabric.n_nodes as usize).map(place).collect()
}

fn packets_of(message: &Envelope, settings: &Settings) -> u32 {
    message.bytes.div_ceil(settings.packet_bytes.into()).max(1) as u32
}

/// Length of a window: what groups may be apart, though not much more than a packet needs; a small part
/// of that where all is one group.
fn window_ps(fabric: &Fabric, settings: &Settings, cut: &Cut) -> u64 {
    const EVENTS: f64 = 4.0;
    let fastest = fabric.link_gbps.iter().copied().fold(1.0, f64::max);
    let packet_ps = f64::from(settings.wire_bytes(settings.packet_bytes)) * 8000.0 / fastest;
    if cut.groups.iter().any(|&groups| groups > 1) || cut.shards > 1 {
        return cut.lookahead_ps.min(4 * packet_ps as u64).max(2);
    }
    let few = packet_ps * EVENTS / f64::from(fabric.n_nodes.max(1));
    few.max(16.0) as u64
}

fn check_sizes(
    fabric: &Fabric,
    plan: &Plan,
    program: &Program,
    placement: &Placement,
) -> Result<(), EngineError> {
    const LIMIT: u64 = 1 << 28;
    let ranks = program.n_ranks();
    for (what, value) in [
        ("lanes of links", fabric.n_links() as u64 * u64::from(plan.lanes())),
        ("ranks", ranks as u64),
        ("messages", program.kind.len() as u64),
    ] {
        if value >= LIMIT {
            return Err(EngineError::TooLarge { what, value, limit: LIMIT });
        }
    }
    placement.check(ranks, fabric.n_nodes)?;
    if let Some(link) = fabric.link_gbps.iter().position(|&gbps| gbps < Link::MIN_GBPS) {
        return Err(EngineError::Setting {
            field: "link rate",
            value: format!("{} Gb/s at link {link}", fabric.link_gbps[link]),
            valid: format!("at least {} Gb/s", Link::MIN_GBPS),
        });
    }
    if let Some(link) = fabric.link_delay_ps.iter().position(|&ps| ps > Link::MOST_DELAY_PS) {
        return Err(EngineError::Setting {
            field: "link delay",
            value: format!("{} ps at link {link}", fabric.link_delay_ps[link]),
            valid: format!("at most {} ps", Link::MOST_DELAY_PS),
        });
    }
    if let Some(&label) = program.label.iter().max()
        && (label as usize >= placement.label_observed.len().max(1) || label == NIL)
    {
        let problem = format!("label {label} does not exist");
        return Err(ProgramError::Operation { rank: 0, operation: 0, problem }.into());
    }
    Ok(())
}
