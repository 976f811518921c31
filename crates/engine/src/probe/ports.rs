//! Port counters and queue lengths, exact at every instant.
//!
//! All that matters to a port are the times at which packets get in line, leave it and are taken on by
//! the transmitter. Between them its state follows by arithmetic, so nothing happens at an instant
//! itself: what a port showed is worked out when the next packet comes, or at the end. At an instant
//! counts what happened before it. So neither shards nor threads show.

use std::collections::VecDeque;

use crate::prefetch::prefetch;

use super::sampled::Sampled;
use super::{Sent, Slot};

/// What a port has counted since the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes sent, those of a packet under way included.
    pub bytes: u64,
    /// Packets sent whole.
    pub packets: u64,
    /// Time sending.
    pub busy_ps: u64,
    /// Time with data and an idle transmitter, for want of credit: PortXmitWait.
    pub stall_ps: u64,
    /// Time with data that waited while the transmitter sent other data.
    pub queue_ps: u64,
}

/// What a port has to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queued {
    /// Bytes in line.
    pub waiting_bytes: u64,
    /// Bytes the transmitter has taken on and not sent yet: they have their credit.
    pub booked_bytes: u64,
    /// Packets of both kinds, one that is being sent included.
    pub packets: u32,
}

/// A packet the transmitter has taken on.
#[derive(Debug, Default, Clone, Copy)]
struct Booking {
    start: u64,
    end: u64,
    wire: u32,
}

impl Booking {
    /// Bytes sent by `time`.
    fn sent(&self, time: u64) -> u64 {
        let wire = u64::from(self.wire);
        if time >= self.end {
            return wire;
        }
        if time <= self.start {
            return 0;
        }
        // A packet is below 2^21 bytes and takes less than 2^38 ps on the slowest link.
        wire * (time - self.start) / (self.end - self.start)
    }
}

/// A port; what every packet touches comes first, on one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Port {
    /// Next instant.
    next: u64,
    /// Everything before is counted.
    since: u64,
    /// Bytes and packets in line.
    waiting_bytes: u64,
    waiting: u32,
    /// Bookings that are not over: the first of them, and the others in order of time.
    booked: u32,
    first: Booking,
    // Boxed: a pointer fits the cache line, a queue does not.
    #[allow(clippy::box_collection)]
    more: Option<Box<VecDeque<Booking>>>,
    counted: Counted,
}

impl Port {
    /// The transmitter takes on a packet.
    #[inline]
    fn book(&mut self, booking: Booking) {
        self.booked += 1;
        if self.booked == 1 {
            self.first = booking;
        } else {
            self.more.get_or_insert_default().push_back(booking);
        }
    }

    /// The first booking is over.
    #[inline]
    fn strike(&mut self) {
        self.booked -= 1;
        if self.booked > 0
            && let Some(next) = self.more.as_mut().and_then(|more| more.pop_front())
        {
            self.first = next;
        }
    }

    /// Counts what happens before `time`.
    fn run_to(&mut self, time: u64) {
        while self.since < time {
            let idle_until = if self.booked > 0 { self.first.start } else { u64::MAX };
            if self.since < idle_until {
                let until = idle_until.min(time);
                // A transmitter that has taken on a packet waits for its tail, not for credit.
                if self.waiting > 0 && self.booked == 0 {
                    self.counted.stall_ps += until - self.since;
                }
                self.since = until;
                continue;
            }
            let booking = self.first;
            let until = booking.end.min(time);
            self.counted.busy_ps += until - self.since;
            self.counted.bytes += booking.sent(until) - booking.sent(self.since);
            if self.waiting > 0 || self.booked > 1 {
                self.counted.queue_ps += until - self.since;
            }
            self.since = until;
            if until == booking.end {
                self.counted.packets += 1;
                self.strike();
            }
        }
    }

    /// The queue at the time that is counted to.
    fn queued(&self) -> Queued {
        let left = |booking: &Booking| u64::from(booking.wire) - booking.sent(self.since);
        let more = self.more.iter().flat_map(|more| more.iter());
        let first = (self.booked > 0).then_some(&self.first);
        Queued {
            waiting_bytes: self.waiting_bytes,
            booked_bytes: first.into_iter().chain(more).map(left).sum(),
            packets: self.waiting + self.booked,
        }
    }

    /// Nothing changes before the next packet comes.
    fn quiet(&self) -> bool {
        self.waiting == 0 && self.booked == 0
    }
}

/// Counters and queues of all links of a shard.
#[derive(Debug)]
pub struct Ports {
    ports: Vec<Port>,
    /// What the last rows of each port said.
    told: Vec<(Counted, Queued)>,
    counters: Sampled<Counted>,
    queues: Sampled<Queued>,
}

impl Ports {
    /// For `links` links: counters every `counters_ps`, queues every `queues_ps` (0 for never), at `most`
    /// instants each.
    pub fn new(links: usize, counters_ps: u64, queues_ps: u64, most: u32) -> Self {
        let (counters, queues) = (Sampled::new(counters_ps, most), Sampled::new(queues_ps, most));
        // Nothing is sent before the first instant is over: time 0 shows nothing.
        let first = counters.after(0).min(queues.after(0));
        Self {
            ports: (0..links).map(|_| Port { next: first, ..Port::default() }).collect(),
            told: vec![Default::default(); links],
            counters,
            queues,
        }
    }

    /// Starts to fetch what a packet changes at a port.
    #[inline]
    pub fn fetch(&self, link: u32) {
        let port = &self.ports[link as usize];
        prefetch(port);
        prefetch(&port.counted);
    }

    /// A packet gets in line.
    #[inline]
    pub fn joins(&mut self, now: u64, link: u32, wire: u32) {
        let port = self.at(now, link);
        port.waiting += 1;
        port.waiting_bytes += u64::from(wire);
    }

    /// A packet gets out of the line.
    #[inline]
    pub fn leaves(&mut self, now: u64, link: u32, wire: u32) {
        let port = self.at(now, link);
        port.waiting -= 1;
        port.waiting_bytes -= u64::from(wire);
    }

    /// An adapter has a packet and no credit, or (0 bytes) has not.
    #[inline]
    pub fn holds(&mut self, now: u64, link: u32, wire: u32) {
        if wire == 0 && self.ports[link as usize].waiting == 0 {
            return;
        }
        let port = self.at(now, link);
        port.waiting = u32::from(wire > 0);
        port.waiting_bytes = wire.into();
    }

    /// The transmitter takes on a packet.
    #[inline]
    pub fn sent(&mut self, now: u64, link: u32, slot: Slot, packet: Sent) {
        let Slot { start, busy_ps, .. } = slot;
        let booking = Booking { start, end: start + busy_ps, wire: packet.wire };
        self.at(now, link).book(booking);
    }

    /// The port, counted to `now`.
    #[inline]
    fn at(&mut self, now: u64, link: u32) -> &mut Port {
        if now >= self.ports[link as usize].next {
            self.sample(link, now);
        }
        let port = &mut self.ports[link as usize];
        port.run_to(now);
        port
    }

    /// Works out what a port showed at every instant up to `now`.
    #[cold]
    fn sample(&mut self, link: u32, now: u64) {
        let (port, told) = (&mut self.ports[link as usize], &mut self.told[link as usize]);
        let mut time = port.next;
        while time <= now {
            port.run_to(time);
            if self.counters.due(time) && port.counted != told.0 {
                told.0 = port.counted;
                self.counters.push(time, link, port.counted);
            }
            if self.queues.due(time) && port.queued() != told.1 {
                told.1 = port.queued();
                self.queues.push(time, link, told.1);
            }
            let counters_told = self.counters.interval() == 0 || told.0 == port.counted;
            let queue_told = self.queues.interval() == 0 || told.1 == Queued::default();
            if port.quiet() && counters_told && queue_told {
                time = now;
            }
            time = self.counters.after(time).min(self.queues.after(time));
        }
        port.next = time;
    }

    /// What a run that ends at `end` leaves behind, its end being the last instant; links are numbered
    /// within the shard.
    pub(super) fn finish(mut self, end: u64) -> (Sampled<Counted>, Sampled<Queued>) {
        for link in 0..self.ports.len() as u32 {
            let port = self.at(end, link);
            let (counted, queued) = (port.counted, port.queued());
            let told = self.told[link as usize];
            if self.counters.interval() > 0 && counted != told.0 {
                self.counters.push(end, link, counted);
            }
            if self.queues.interval() > 0 && queued != told.1 {
                self.queues.push(end, link, queued);
            }
        }
        (self.counters, self.queues)
    }
}
