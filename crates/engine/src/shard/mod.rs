//! A shard: a set of switches with their nodes, and the simulation of all events there.

mod prefetch;
mod setup;
mod upcoming;

use tailback_program::{LocalPorts, Rank, SharedMemory};

use self::upcoming::Upcoming;
use crate::congestion::CongestionState;
use crate::events::queue::{Event, EventKind, EventQueue};
use crate::host::adapter::Adapter;
use crate::host::messages::{ReceiveState, SendState};
use crate::host::processors::Processors;
use crate::model::Model;
use crate::network::link::Links;
use crate::network::packet::{Light, Packet, PacketPool};
use crate::network::pause::PausedLanes;
use crate::parallel::exchange::{Exchange, Handoff};
use crate::probe::Probe;
use crate::steps::StepGates;
use crate::switch::adaptive_choices::AdaptiveChoices;
use crate::switch::arbiter::Arbiter;
use crate::switch::virtual_circuits::VirtualCircuits;

pub(crate) struct Shard<'a, P> {
    pub model: &'a Model<'a>,
    pub number: u8,
    /// Current time. Goes back when the next group of a window begins.
    pub now: u64,
    /// The latest event time.
    pub end: u64,
    pub queue: EventQueue,
    /// Groups on the boundary: see [`crate::parallel::partition::Partition`].
    pub boundary: u32,
    pub links: Links,
    pub packets: PacketPool,
    pub upcoming: Upcoming,
    pub arbiter: Arbiter,
    /// Outputs are arbitrated one packet at a time.
    pub arbitrated: bool,
    /// Adaptive routing by the default rule with one lane per link: load alone selects among consecutive
    /// candidates.
    pub adaptive_single_lane: bool,
    /// Adaptive routing by another rule than the default.
    pub adaptive_by_rule: bool,
    /// See [`crate::Settings::marks_on_grant`].
    pub marks_on_grant: bool,
    /// Congestion control is on.
    pub has_congestion_control: bool,
    pub congestion: CongestionState,
    /// Lanes under priority flow control.
    pub pauses: PausedLanes,
    pub virtual_circuits: VirtualCircuits,
    pub adaptive_choices: AdaptiveChoices,
    pub adapters: Vec<Adapter>,
    pub sends: Vec<SendState>,
    pub receives: Vec<ReceiveState>,
    pub ranks: Vec<Rank>,
    /// Shared by messages within a host: ports, if the ranks have any, or memory.
    pub local_ports: Option<LocalPorts>,
    /// Hosts keep their numbers in every shard.
    pub memory: SharedMemory,
    /// Progress of ranks through steps, if steps may be left out.
    pub gates: Option<Box<StepGates>>,
    /// Messages of each rank with a step of their rendezvous to answer when it is in a call again;
    /// None unless ranks answer only in calls.
    pub unanswered: Option<Vec<Vec<u32>>>,
    /// None if messages take no time of processors.
    pub processors: Option<Processors>,
    /// Each rank that began to compute and when, in order of time; None unless asked for.
    pub computations: Option<Vec<(u32, u64)>>,
    pub probe: P,
    /// Handoffs to every other shard at the end of the window.
    pub outbox: Vec<Handoff>,
    /// The event that is being processed is that of a rank.
    pub rank_resumes: bool,
    /// Nothing in the outboxes takes effect before this time.
    pub first_handoff_ps: u64,
    pub events: u64,
    /// Packets transmitted.
    pub transmissions: u64,
    /// See [`crate::Outcome::adapters_shared`].
    pub adapters_shared: bool,
    pub delivered: u64,
    pub packet_hops: u64,
}

impl<P: Probe> Shard<'_, P> {
    /// Processes all events of `window`.
    pub fn run_window(&mut self, window: u64) {
        self.run_boundary(window);
        self.run_interior();
    }

    /// Processes the events of `window` in the boundary groups. Everything for other shards is
    /// known then.
    pub fn run_boundary(&mut self, window: u64) {
        if self.queue.next_window() > window {
            return;
        }
        self.queue.open_window(window);
        self.queue.pause_before(self.boundary);
        self.links.begin_window(self.queue.start());
        self.probe.begin_window(self.queue.start());
        self.begin_prefetch();
        self.process_events();
    }

    /// Processes the other events of the open window.
    pub fn run_interior(&mut self) {
        if self.queue.is_paused() {
            self.queue.resume();
            self.process_events();
            assert_eq!(self.first_handoff_ps, u64::MAX, "a shard off the border has handoffs");
        }
    }

    /// Processes events of the open window up to its pause.
    fn process_events(&mut self) {
        let has_routes = self.upcoming.has_routes();
        loop {
            self.continue_prefetch();
            let Some((event, late)) = self.queue.pop() else { break };
            self.now = event.time();
            self.events += 1;
            if event.is(EventKind::Arrival) {
                let route = (has_routes && !late).then(|| self.upcoming.next_route());
                if !P::ON && route.is_some() {
                    self.choose_ahead();
                }
                self.on_arrival(event.entity(), event.packet(), route);
            } else if event.is(EventKind::Credit) {
                self.on_credit(event.entity(), event.packet());
                continue;
            } else {
                self.handle_event(event);
            }
            // The last credit returns later, but has no effect.
            self.end = self.end.max(self.now);
        }
    }

    /// Processes an event other than an arrival or credit.
    fn handle_event(&mut self, event: Event) {
        match event.class() {
            EventKind::Departure => self.on_departure(event.entity(), event.packet()),
            EventKind::MessageSent => self.on_sent(event.entity()),
            EventKind::Message => self.on_message(event.entity(), event.packet()),
            EventKind::Adapter => self.on_adapter(event.entity(), event.packet()),
            EventKind::Rank => {
                self.rank_resumes = true;
                self.advance_rank(event.entity());
                self.rank_resumes = false;
            }
            EventKind::OutputFree => self.on_free(event.entity()),
            EventKind::HeadReady => self.on_held_back(event.packet()),
            EventKind::Light => self.on_light(event.entity()),
            EventKind::Arrival | EventKind::Credit | EventKind::None => {}
        }
    }

    /// Sends a packet to `shard`, which may be this one. It comes by `link` (fabric number) and
    /// is ready at its next vertex at `packet.ready`.
    #[inline]
    pub fn send_packet(&mut self, shard: u8, link: u32, packet: &Packet, light: Light) {
        if shard == self.number {
            self.receive_packet(link, packet, light);
        } else {
            self.first_handoff_ps = self.first_handoff_ps.min(packet.ready);
            *self.outbox[usize::from(shard)].add_packet(link, light) = *packet;
        }
    }

    #[inline]
    fn receive_packet(&mut self, link: u32, packet: &Packet, light: Light) {
        let slot = self.packets.insert(*packet);
        self.congestion.lights.attach(slot, light);
        let group = self.model.group(packet.next);
        self.queue.push_for(group, Event::new(packet.ready, EventKind::Arrival, link, slot));
    }

    /// Publishes the outboxes for the other shards.
    pub fn publish_handoffs(&mut self, exchange: &Exchange) {
        let from = usize::from(self.number);
        for (to, handoff) in self.outbox.iter_mut().enumerate() {
            if !handoff.is_empty() {
                exchange.swap(from, to, handoff);
            }
        }
        self.first_handoff_ps = u64::MAX;
    }

    /// Receives what other shards have published for this one.
    pub fn receive_handoffs(&mut self, exchange: &Exchange) {
        let to = usize::from(self.number);
        let all = 0..self.outbox.len();
        let others = || all.clone().filter(move |&from| from != to);
        others().for_each(|from| exchange.lock(from, to).prefetch());
        for from in others() {
            let mut handoff = exchange.lock(from, to);
            for credit in handoff.credits.drain(..) {
                self.return_credit(credit.lane, credit.freed, credit.bytes);
            }
            for (packet, (link, light)) in handoff.drain_packets() {
                self.receive_packet(link, packet, light);
            }
        }
    }

    /// The first window in which an event is pending, here or in the outboxes.
    pub fn next_window(&self) -> u64 {
        if self.queue.is_paused() {
            return self.queue.window() + 1;
        }
        let handoff = match self.first_handoff_ps {
            u64::MAX => u64::MAX,
            time => self.queue.window_of(time).0,
        };
        self.queue.next_window().min(handoff)
    }

    /// Whether all ranks have begun the step at which the caller is asked what to leave out.
    pub fn check_is_due(&self) -> bool {
        self.gates.as_ref().is_some_and(|gates| gates.due().is_some())
    }

    /// Number of ranks that have not finished their programs.
    pub fn unfinished(&self) -> usize {
        let ends = &self.model.program.rank_start;
        let ranks = self.model.ranks_of(self.number).iter().zip(&self.ranks);
        ranks.filter(|&(&rank, state)| state.unfinished(ends[rank as usize + 1])).count()
    }
}
