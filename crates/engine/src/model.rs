//! The immutable model that all shards share: fabric, routes, settings, program, placement,
//! partition.

use std::collections::HashMap;
use std::ops::Range;

use tailback_fabric::{Detour, Fabric, FabricError, RoutePlan, RouteState, RoutingRule};

use crate::entropy::{entropy, path_key};
use crate::events::queue::EventQueue;
use crate::host::pacing::interval;
use crate::intrinsics::prefetch;
use crate::limits;
use crate::network::link::NIL;
use crate::parallel::partition::Partition;
use crate::program::{CompiledProgram, Envelope, Placement, Program, compile, compile_repeated};
use crate::rng::{RandomSource, Stream, random};
use crate::settings::units::MAX_TIME_PS;
use crate::settings::{CongestionScheme, Pacing, PacingOffset, Routing};
use crate::steps::{StepGates, Steps};
use crate::{EngineError, Settings};

pub(crate) struct Model<'a> {
    pub fabric: &'a Fabric,
    pub plan: &'a RoutePlan,
    /// A copy, so that the fields read at every hop are adjacent.
    pub settings: Settings,
    /// Vertices below this are nodes, the rest are switches.
    pub n_nodes: u32,
    pub placement: &'a Placement,
    pub program: CompiledProgram,
    /// Indices of the state of each message; empty with one shard: see [`Model::send_of`].
    endpoints: Vec<EndpointIndex>,
    /// Send and receive states of each shard.
    pub endpoint_counts: Vec<EndpointIndex>,
    pub partition: Partition,
    /// Attachment of each node.
    pub attachments: Vec<NodeAttachment>,
    /// Group of every vertex within its shard.
    groups: Vec<u32>,
    /// Index of each rank within its shard; empty with one shard.
    local_ranks: Vec<u32>,
    /// Ranks of every shard, in order.
    ranks: Vec<Vec<u32>>,
    /// What switches hash the path of a packet with.
    paths: RandomSource,
    /// The same of each message; empty where all have the same.
    paths_of_messages: Vec<RandomSource>,
    /// Random numbers for the choice among candidates and for reservoirs.
    pub choice: RandomSource,
    pub reservoir: RandomSource,
    /// Shortest cable between switches.
    pub least_cable_ps: u64,
    pub total_packets: u64,
    /// Initial state of the steps, if some may be left out; then there is one shard.
    pub gates: Option<StepGates>,
}

/// Indices of a message's state at both endpoints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointIndex {
    /// Index of the send state in the sender's shard.
    pub send: u32,
    /// Index of the receive state in the receiver's shard.
    pub receive: u32,
}

/// Where a node is attached; together for a packet on its way there.
#[derive(Debug, Clone, Copy)]
#[repr(align(16))]
pub(crate) struct NodeAttachment {
    /// Its switch.
    pub switch: u32,
    /// Column of that switch in the routing table, if routes are a table.
    pub column: u32,
    /// The link to it, shard index.
    pub ejection: u32,
}

impl<'a> Model<'a> {
    /// Checks all inputs and numbers them for the shards.
    pub fn new(
        fabric: &'a Fabric,
        plan: &'a RoutePlan,
        settings: &'a Settings,
        program: &'a Program,
        placement: &'a Placement,
        shards: u32,
    ) -> Result<Self, EngineError> {
        settings.check()?;
        limits::check(fabric, plan, settings, program, placement, 1)?;
        let compiled = compile(program, settings.packet_bytes)?;
        Self::of_compiled(fabric, plan, settings, placement, compiled, shards)
    }

    /// The same of one shard, whose steps may be left out.
    pub fn in_steps(
        fabric: &'a Fabric,
        plan: &'a RoutePlan,
        settings: &'a Settings,
        program: &'a Program,
        placement: &'a Placement,
        steps: Steps,
    ) -> Result<Self, EngineError> {
        settings.check()?;
        let times = steps.label_offset.as_ref().map_or(1, Vec::len);
        limits::check(fabric, plan, settings, program, placement, times)?;
        let compiled = match &steps.label_offset {
            Some(offsets) => compile_repeated(program, settings.packet_bytes, offsets)?,
            None => compile(program, settings.packet_bytes)?,
        };
        let mut model = Self::of_compiled(fabric, plan, settings, placement, compiled, 1)?;
        model.gates = Some(StepGates::new(steps));
        Ok(model)
    }

    fn of_compiled(
        fabric: &'a Fabric,
        plan: &'a RoutePlan,
        settings: &'a Settings,
        placement: &'a Placement,
        compiled: CompiledProgram,
        shards: u32,
    ) -> Result<Self, EngineError> {
        let partition = partition_for(fabric, plan, placement, &compiled, settings, shards);
        let n_ranks = compiled.rank_start.len() - 1;
        let (ranks, local_ranks) = number_ranks(placement, &partition, n_ranks as u32);
        let (endpoints, endpoint_counts) =
            number_endpoints(placement, &partition, &compiled.messages);
        let of_packets = |m: &Envelope| u64::from(packets_of(m, settings));
        let model = Self {
            fabric,
            plan,
            settings: settings.clone(),
            n_nodes: fabric.n_nodes,
            placement,
            endpoints,
            endpoint_counts,
            least_cable_ps: (partition.lookahead_ps - settings.switch_delay_ps).min(u64::MAX / 4),
            attachments: attachments(fabric, plan, &partition),
            groups: groups(plan, &partition),
            total_packets: compiled.messages.iter().map(of_packets).sum(),
            paths: path_source(settings, None),
            paths_of_messages: paths_of_messages(settings, &compiled.messages),
            choice: RandomSource::new(settings.seed, Stream::Route),
            reservoir: RandomSource::new(settings.seed, Stream::Reservoir),
            program: compiled,
            gates: None,
            partition,
            local_ranks,
            ranks,
        };
        model.check_paths()?;
        Ok(model)
    }

    /// An event queue for `groups` groups.
    pub fn queue(&self, groups: usize) -> EventQueue {
        EventQueue::new(window_ps(self.fabric, &self.settings, &self.partition), groups)
    }

    /// The first window beyond [`MAX_TIME_PS`].
    pub fn last_window(&self) -> u64 {
        self.queue(0).window_of(MAX_TIME_PS).0
    }

    /// Shard index of the first link that leaves a vertex.
    #[inline]
    pub fn first_port(&self, vertex: u32) -> u32 {
        self.partition.first_link[vertex as usize]
    }

    /// Group of a vertex within its shard.
    #[inline]
    pub fn group(&self, vertex: u32) -> u32 {
        self.groups[vertex as usize]
    }

    /// Virtual lanes of each link: those of the routing rule times the service levels.
    pub fn lanes(&self) -> u8 {
        self.plan.lanes().saturating_mul(self.settings.services)
    }

    /// Service level of a message.
    #[inline]
    pub fn service(&self, message: &Envelope) -> u8 {
        let service = self.placement.label_service.get(message.label as usize);
        service.copied().unwrap_or(0).min(self.settings.services - 1)
    }

    /// The scheme of congestion control, if there is any.
    pub fn congestion_scheme(&self) -> Option<&CongestionScheme> {
        self.settings.congestion_control.as_ref().map(|control| &control.scheme)
    }

    /// What switches hash to choose the path of a packet: the ranks of its message and its queue pair,
    /// or what it carries
    /// ([`crate::entropy`]).
    #[inline]
    fn path_key(&self, message: u32, packet: u64) -> u64 {
        let Envelope { src, dst, first_packet, .. } = self.program.messages[message as usize];
        if self.settings.routing == Routing::Ecmp {
            let pair = packet.wrapping_sub(first_packet) % u64::from(self.settings.queue_pairs);
            return pair << PAIR_SHIFT | u64::from(src) << 32 | u64::from(dst);
        }
        let node = |rank: u32| self.placement.node[rank as usize];
        path_key([node(src), node(dst)], entropy(&self.settings, packet))
    }

    /// Random bits with which switches choose the path of a packet of a message, at one hop.
    #[inline]
    pub fn path_bits(&self, message: u32, packet: u64, hop: u64) -> u64 {
        let paths = self.paths_of_messages.get(message as usize).unwrap_or(&self.paths);
        paths.draw(self.path_key(message, packet), hop)
    }

    /// Delay of the first packet of a paced message.
    pub fn pacing_offset(&self, message: u32) -> u64 {
        let settings = &self.settings;
        let Envelope { src, dst, bytes, first_packet, pace_mbps, .. } =
            self.program.messages[message as usize];
        if settings.pacing == Pacing::Off || pace_mbps == 0 {
            return 0;
        }
        let part = match settings.pacing_offset {
            PacingOffset::None => return 0,
            PacingOffset::Random => random(settings.seed, Stream::Pace, first_packet, 0),
            PacingOffset::Shift => {
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
        self.partition.of_node[self.placement.node[rank as usize] as usize].into()
    }

    /// Injection link of a node, shard index.
    pub fn injection(&self, node: u32) -> u32 {
        let shift = self.partition.link_shift[node as usize];
        self.plan.injection[node as usize].wrapping_sub(shift)
    }

    /// Index of a message's send state in the sender's shard.
    #[inline]
    pub fn send_of(&self, message: u32) -> u32 {
        self.endpoints.get(message as usize).map_or(message, |endpoints| endpoints.send)
    }

    /// Index of a message's receive state in the receiver's shard.
    #[inline]
    pub fn receive_of(&self, message: u32) -> u32 {
        self.endpoints.get(message as usize).map_or(message, |endpoints| endpoints.receive)
    }

    /// Index of a rank in its shard.
    #[inline]
    pub fn local_rank(&self, rank: u32) -> u32 {
        self.local_ranks.get(rank as usize).copied().unwrap_or(rank)
    }

    /// Candidates at `switch` towards a node at another switch as a range of fabric links, if
    /// the routing table has them consecutive.
    #[inline]
    pub fn candidate_range(&self, switch: u32, attachment: NodeAttachment) -> Option<Range<u32>> {
        match &self.plan.rule {
            RoutingRule::Table(routes) => routes.candidate_range(switch, attachment.column),
            _ => None,
        }
    }

    /// The link that a deterministic route from `switch` to `node` takes, where
    /// [`Model::candidate_range`] has candidates.
    #[inline]
    pub fn fixed(&self, switch: u32, node: u32) -> u32 {
        match &self.plan.rule {
            RoutingRule::Table(routes) => routes.deterministic_link(switch, node),
            _ => NIL,
        }
    }

    /// Whether a vertex is a node.
    #[inline]
    pub fn is_node(&self, vertex: u32) -> bool {
        vertex < self.n_nodes
    }

    /// Prefetches the attachment of a node.
    #[inline]
    pub fn prefetch_attachment(&self, node: u32) {
        prefetch(&self.attachments, node);
    }

    /// Prefetches a message and the indices of its endpoints.
    #[inline]
    pub fn prefetch_message(&self, message: u32) {
        prefetch(&self.program.messages, message);
        self.prefetch_endpoints(message);
    }

    /// Prefetches the indices of a message's endpoints.
    #[inline]
    pub fn prefetch_endpoints(&self, message: u32) {
        if !self.endpoints.is_empty() {
            prefetch(&self.endpoints, message);
        }
    }

    /// Whether both endpoints of a message are on one host.
    pub fn same_host(&self, message: &Envelope) -> bool {
        let host = &self.placement.host;
        host[message.src as usize] == host[message.dst as usize]
    }

    /// Latency beyond the first cable, and switches visited, of a path without contention.
    pub fn uncontended(&self, injection: u32, node: u32) -> (u64, u8) {
        let switch = self.fabric.link_dst[injection as usize] - self.fabric.n_nodes;
        let (latency, hops) = self.shortest_latency(switch, node);
        (latency + self.settings.switch_delay_ps, hops + 1)
    }

    /// Latency from the outputs of `switch` to `node` on a minimal path, and switches visited
    /// after it.
    fn shortest_latency(&self, mut switch: u32, node: u32) -> (u64, u8) {
        let ejection = self.plan.ejection[node as usize];
        let goal = self.plan.node_switch[node as usize];
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

    /// Latency of a notice from `switch` to a `node` that has sent through it; at least the
    /// lookahead of the partition. Where the routing tables do not lead back, one lookahead is
    /// assumed.
    pub fn notice_latency(&self, switch: u32, node: u32) -> u64 {
        let leads = self.plan.has_route(self.fabric, switch, node);
        let attached = self.plan.node_switch[node as usize] == switch;
        let latency = if attached || leads { self.shortest_latency(switch, node).0 } else { 0 };
        if attached { latency } else { latency.max(self.partition.lookahead_ps) }
    }

    /// Checks that every pair of ranks that communicates has a path no longer than
    /// [`MAX_SWITCHES`].
    fn check_paths(&self) -> Result<(), EngineError> {
        let node = |rank: u32| self.placement.node[rank as usize];
        let (mut before, mut longest) = ((NIL, NIL), 0);
        for message in self.program.messages.iter().filter(|message| !self.same_host(message)) {
            let pair = (node(message.src), node(message.dst));
            // Messages between the same ranks are often adjacent.
            if pair != std::mem::replace(&mut before, pair) {
                longest = longest.max(self.switches_between(pair.0, pair.1)?);
            }
        }
        if self.settings.detour != Detour::Never && self.plan.detours() > 0 {
            // A detour may lead to the far end of the network and back.
            let corner = self.plan.node_switch[0];
            let to = |node| self.plan.hops(self.fabric, corner, node, NIL);
            longest = 2 * (0..self.n_nodes).map(to).max().unwrap_or(0) + 1;
        }
        if longest > MAX_SWITCHES {
            let (what, value, limit) = ("switches on a path", longest.into(), MAX_SWITCHES.into());
            let remedy = "use a smaller fabric, or routes without detours";
            return Err(EngineError::TooMany { what, value, limit, remedy });
        }
        Ok(())
    }

    /// Switches on a minimal path between two nodes.
    fn switches_between(&self, from: u32, to: u32) -> Result<u32, FabricError> {
        let (here, goal) =
            (self.plan.node_switch[from as usize], self.plan.node_switch[to as usize]);
        match self.plan.hops(self.fabric, here, to, NIL) {
            u32::MAX => Err(FabricError::Unconnected { from: here, to: goal }),
            hops => Ok(hops + 1),
        }
    }
}

/// First bit of the queue pair among what switches hash: above the ranks.
const PAIR_SHIFT: u32 = 56;

/// Packets count the switches they visit in 8 bits.
const MAX_SWITCHES: u32 = u8::MAX as u32 - 1;

/// Partitions the fabric into `shards`. The switches of a host with several adapters stay together,
/// because ranks of a host communicate without the network.
fn partition_for(
    fabric: &Fabric,
    plan: &RoutePlan,
    placement: &Placement,
    program: &CompiledProgram,
    settings: &Settings,
    shards: u32,
) -> Partition {
    let mut partition = if program.synchronous {
        Partition::in_one_group(fabric, settings.switch_delay_ps)
    } else {
        Partition::new(fabric, plan, settings.switch_delay_ps, shards)
    };
    let switch_of = |rank: u32| plan.node_switch[placement.node[rank as usize] as usize];
    let host = |rank: u32| placement.host[rank as usize];
    let within = program.messages.iter().filter(|m| host(m.src) == host(m.dst));
    let pairs = within.map(|m| (switch_of(m.src), switch_of(m.dst))).filter(|(a, b)| a != b);
    let pairs: Vec<(u32, u32)> = pairs.collect();
    if pairs
        .iter()
        .any(|&(a, b)| partition.of_switch[a as usize] != partition.of_switch[b as usize])
    {
        partition = partition.into_single_shard(fabric);
    }
    partition.merge_groups(&pairs);
    if partition.shards > 1 {
        partition.number_boundary_first(fabric, plan, settings.reaches_far());
    }
    partition
}

/// Ranks of each shard, and the index of each rank in its shard; a single shard needs no index
/// table.
fn number_ranks(placement: &Placement, partition: &Partition, n: u32) -> (Vec<Vec<u32>>, Vec<u32>) {
    let mut ranks = vec![Vec::new(); partition.shards as usize];
    let mut local = Vec::with_capacity(n as usize);
    for rank in 0..n {
        let here =
            &mut ranks[usize::from(partition.of_node[placement.node[rank as usize] as usize])];
        local.push(here.len() as u32);
        here.push(rank);
    }
    (ranks, if partition.shards == 1 { Vec::new() } else { local })
}

/// Endpoint indices of every message, and the number of endpoints in each shard; a single shard
/// needs no index table.
fn number_endpoints(
    placement: &Placement,
    partition: &Partition,
    messages: &[Envelope],
) -> (Vec<EndpointIndex>, Vec<EndpointIndex>) {
    if partition.shards == 1 {
        let all = messages.len() as u32;
        return (Vec::new(), vec![EndpointIndex { send: all, receive: all }]);
    }
    let shard = |rank: u32| usize::from(partition.of_node[placement.node[rank as usize] as usize]);
    let mut next = vec![EndpointIndex { send: 0, receive: 0 }; partition.shards as usize];
    let mut number = |message: &Envelope| {
        let send = &mut next[shard(message.src)].send;
        let send = std::mem::replace(send, *send + 1);
        let receive = &mut next[shard(message.dst)].receive;
        EndpointIndex { send, receive: std::mem::replace(receive, *receive + 1) }
    };
    (messages.iter().map(&mut number).collect(), next)
}

/// Group of each vertex within its shard; a node has that of its switch.
fn groups(plan: &RoutePlan, partition: &Partition) -> Vec<u32> {
    let of_nodes = plan.node_switch.iter().map(|&switch| partition.group[switch as usize]);
    of_nodes.chain(partition.group.iter().copied()).collect()
}

fn attachments(fabric: &Fabric, plan: &RoutePlan, partition: &Partition) -> Vec<NodeAttachment> {
    let local = |link: u32| {
        let src = fabric.link_src[link as usize];
        link.wrapping_sub(partition.link_shift[src as usize])
    };
    let attachment = |node: usize| NodeAttachment {
        switch: plan.node_switch[node],
        column: if let RoutingRule::Table(routes) = &plan.rule { routes.column[node] } else { 0 },
        ejection: local(plan.ejection[node]),
    };
    (0..fabric.n_nodes as usize).map(attachment).collect()
}

/// Random numbers with which switches choose paths; `seed` is that of a single flow.
fn path_source(settings: &Settings, seed: Option<u64>) -> RandomSource {
    let all = settings.path_seed.unwrap_or(settings.seed);
    RandomSource::new(seed.unwrap_or(all), Stream::Route)
}

/// The same for each message; empty where no flow has a seed of its own.
fn paths_of_messages(settings: &Settings, messages: &[Envelope]) -> Vec<RandomSource> {
    if settings.flow_seeds.is_empty() {
        return Vec::new();
    }
    let seeds: HashMap<(u32, u32), u64> =
        settings.flow_seeds.iter().map(|&(src, dst, seed)| ((src, dst), seed)).collect();
    messages
        .iter()
        .map(|message| path_source(settings, seeds.get(&(message.src, message.dst)).copied()))
        .collect()
}

pub(crate) fn packets_of(message: &Envelope, settings: &Settings) -> u32 {
    message.bytes.div_ceil(settings.packet_bytes.into()).max(1) as u32
}

/// Length of a window: the lookahead between groups, but not much more than the time of a packet; a
/// small part of that with only one group.
fn window_ps(fabric: &Fabric, settings: &Settings, partition: &Partition) -> u64 {
    // Enough that events are prefetched, and that few lie beyond the horizon of the event queue.
    const EVENTS: f64 = 64.0;
    let fastest = fabric.link_gbps.iter().copied().fold(1.0, f64::max);
    let packet_ps = f64::from(settings.wire_bytes(settings.packet_bytes)) * 8000.0 / fastest;
    if partition.groups.iter().any(|&groups| groups > 1) || partition.shards > 1 {
        return partition.lookahead_ps.min(4 * packet_ps as u64).max(2);
    }
    let few = packet_ps * EVENTS / f64::from(fabric.n_nodes.max(1));
    few.clamp(16.0, 4.0 * packet_ps) as u64
}
