//! A shard: some switches with the nodes on them, and all that happens there.

mod prefetch;
mod setup;
mod upcoming;

use tailback_program::Rank;

use self::upcoming::Ahead;
use crate::congestion::Congestion;
use crate::events::queue::{Class, Event, EventQueue};
use crate::host::adapter::Adapter;
use crate::host::messages::{Receiving, Sending};
use crate::network::link::Links;
use crate::network::packet::{Light, Packet, Packets};
use crate::parallel::exchange::{Mail, PostOffice};
use crate::probe::Probe;
use crate::switch::arbiter::Arbiter;
use crate::switch::virtual_circuits::Circuits;
use crate::world::World;

pub(crate) struct Shard<'a, P> {
    pub world: &'a World<'a>,
    pub number: u8,
    /// When what happens happens. Goes back where another group is next.
    pub now: u64,
    /// The latest of those times.
    pub end: u64,
    pub queue: EventQueue,
    /// As of [`crate::parallel::partition::Cut`].
    pub border: u32,
    pub links: Links,
    pub packets: Packets,
    pub ahead: Ahead,
    pub arbiter: Arbiter,
    /// Outputs are given out one packet at a time.
    pub arbitrated: bool,
    /// Load alone decides among candidates side by side: adaptive routing, one lane a link.
    pub by_load: bool,
    /// See [`crate::Settings::marks_as_taken`].
    pub marks_as_taken: bool,
    /// There is congestion control.
    pub controlled: bool,
    pub congestion: Congestion,
    pub circuits: Circuits,
    pub adapters: Vec<Adapter>,
    pub sends: Vec<Sending>,
    pub receives: Vec<Receiving>,
    pub ranks: Vec<Rank>,
    pub probe: P,
    /// What goes to each other shard at the end of the window.
    pub outbox: Vec<Mail>,
    /// Nothing in the outboxes matters before this time.
    pub first_mail: u64,
    pub events: u64,
    /// Packets put on a wire.
    pub moves: u64,
    pub delivered: u64,
    pub packet_hops: u64,
}

impl<P: Probe> Shard<'_, P> {
    /// Does all that happens in `window`.
    pub fn run(&mut self, window: u64) {
        self.run_border(window);
        self.run_rest();
    }

    /// Does what happens in `window` on the border of the shard. All that it has for others is known then.
    pub fn run_border(&mut self, window: u64) {
        if self.queue.next_window() > window {
            return;
        }
        self.queue.open(window);
        self.queue.stop_before(self.border);
        self.links.opens(self.queue.start());
        self.probe.opens(self.queue.start());
        self.look_ahead();
        self.go_through();
    }

    /// Does the rest of what happens in the open window.
    pub fn run_rest(&mut self) {
        if self.queue.stops_early() {
            self.queue.go_on();
            self.go_through();
            assert_eq!(self.first_mail, u64::MAX, "what is not on the border has mail");
        }
    }

    /// Serves events of the open window up to where it stops.
    fn go_through(&mut self) {
        loop {
            self.look_on();
            let Some((event, late)) = self.queue.pop() else { break };
            self.now = event.time();
            self.events += 1;
            if event.is(Class::Arrival) {
                let route = (!late).then(|| self.ahead.next_route());
                self.on_arrival(event.entity(), event.packet(), route);
            } else if event.is(Class::Credit) {
                self.on_credit(event.entity(), event.packet());
                continue;
            } else {
                self.handle(event);
            }
            // The last credit comes back later, but nothing happens by it.
            self.end = self.end.max(self.now);
        }
    }

    /// What is neither an arrival nor credit.
    fn handle(&mut self, event: Event) {
        match event.class() {
            Class::Departure => self.on_departure(event.entity(), event.packet()),
            Class::Sent => self.on_sent(event.entity()),
            Class::Message => self.on_message(event.entity(), event.packet()),
            Class::Adapter => self.on_adapter(event.entity()),
            Class::Rank => self.go_on(event.entity()),
            Class::Free => self.on_free(event.entity()),
            Class::Ready => self.on_held_back(event.packet()),
            Class::Light => self.on_light(event.entity()),
            Class::Arrival | Class::Credit | Class::None => {}
        }
    }

    /// Puts a packet into the hands of `shard`, which may be this one: it comes by `link`, numbered over
    /// the whole fabric, and is ready at its next vertex when it says.
    #[inline]
    pub fn hand_over(&mut self, shard: u8, link: u32, packet: &Packet, light: Light) {
        if shard == self.number {
            self.accept(link, packet, light);
        } else {
            self.first_mail = self.first_mail.min(packet.ready);
            *self.outbox[usize::from(shard)].packet(link, light) = *packet;
        }
    }

    #[inline]
    fn accept(&mut self, link: u32, packet: &Packet, light: Light) {
        let slot = self.packets.insert(*packet);
        self.congestion.lights.carry(slot, light);
        let group = self.world.group(packet.next);
        self.queue.push_for(group, Event::new(packet.ready, Class::Arrival, link, slot));
    }

    /// Puts the outboxes into the post.
    pub fn post(&mut self, post: &PostOffice) {
        let from = usize::from(self.number);
        for (to, mail) in self.outbox.iter_mut().enumerate() {
            if !mail.is_empty() {
                post.post(from, to, mail);
            }
        }
        self.first_mail = u64::MAX;
    }

    /// Takes from the post what is for this shard.
    pub fn collect(&mut self, post: &PostOffice) {
        let to = usize::from(self.number);
        let all = 0..self.outbox.len();
        let others = || all.clone().filter(move |&from| from != to);
        others().for_each(|from| post.open(from, to).fetch());
        for from in others() {
            let mut mail = post.open(from, to);
            for credit in mail.credits.drain(..) {
                self.return_credit(credit.lane, credit.freed, credit.bytes);
            }
            for (packet, (link, light)) in mail.packets() {
                self.accept(link, packet, light);
            }
        }
    }

    /// Nothing, here or in the post, happens before this window.
    pub fn next_window(&self) -> u64 {
        if self.queue.stops_early() {
            return self.queue.window() + 1;
        }
        let mail = match self.first_mail {
            u64::MAX => u64::MAX,
            time => self.queue.window_of(time).0,
        };
        self.queue.next_window().min(mail)
    }

    /// Ranks that have not finished their programs.
    pub fn unfinished(&self) -> usize {
        let ends = &self.world.program.rank_start;
        let ranks = self.world.ranks_of(self.number).iter().zip(&self.ranks);
        ranks.filter(|&(&rank, state)| state.unfinished(ends[rank as usize + 1])).count()
    }
}
