//! Port counters and queue lengths, exact at every instant.
//!
//! A port's counters depend only on the times at which packets start waiting, stop waiting and are
//! booked on the transmitter. A booked packet is counted at once, whole, with its transmission
//! time; the reading at an instant is that minus what lay in its future. Readings are computed for
//! all ports in order when the next window opens, or earlier for a port whose next packet comes
//! sooner. A reading covers what happened before its instant, so it does not depend on shards or
//! threads.

use std::collections::VecDeque;

use tailback_telemetry::{Mark, in_shares, side_by_side};

use crate::intrinsics::{collect_with_huge_pages, prefetch};
use crate::network::cable::Cable;
use crate::network::link::NIL;
use crate::settings::{MAX_WIRE_BYTES, Probes};

use super::input_buffer::InputBuffer;
use super::readings::{INQ_PS, PortCounters, QueueLengths};
use super::series::{LinkReadings, Reading, SampledSeries, ShardSeries, Table};
use super::{DeliveredPacket, Hop, Probe, SentPacket, Transmission};

// The share of a packet that has been sent is computed in 64 bits: its bytes times its time must fit.
const _: () = {
    const PS_PER_BYTE: u64 = (8000.0 / Cable::MIN_GBPS) as u64;
    const WIRE: u64 = MAX_WIRE_BYTES as u64;
    assert!((WIRE * PS_PER_BYTE).checked_mul(WIRE).is_some());
};

/// Consecutive packets of one size that are booked on the transmitter.
#[derive(Debug, Clone, Copy)]
struct PacketRun {
    pub packets: u64,
    /// Transmission time and bytes of each.
    pub packet_ps: u64,
    pub wire: u32,
}

impl PacketRun {
    pub fn bytes(&self) -> u64 {
        self.packets * u64::from(self.wire)
    }

    /// Bytes and packets that are not sent `ps` before its end.
    pub fn left(&self, ps: u64) -> (u64, u64) {
        let packets = ps / self.packet_ps;
        if packets >= self.packets {
            return (self.bytes(), self.packets);
        }
        let (wire, rest_ps) = (u64::from(self.wire), ps % self.packet_ps);
        let sent = wire * (self.packet_ps - rest_ps) / self.packet_ps;
        (packets * wire + wire - sent, packets + u64::from(rest_ps > 0))
    }
}

/// The state of a port that packets change; one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Port {
    /// When the transmitter is free.
    until: u64,
    /// Time it sends while other packets wait behind. Counted up to `counted_until` while
    /// packets wait.
    queue_ps: u64,
    /// The current run of packets of one size: see [`PacketRun`].
    packets: u64,
    packet_ps: u64,
    wire: u32,
    /// Packets waiting, and their bytes.
    waiting: u32,
    waiting_bytes: u64,
    /// While packets wait: everything up to here is counted; it may lie in the future.
    counted_until: u64,
    stall_ps: u64,
}

const _: () = assert!(size_of::<Port>() == 64);

/// The history of a port before the current run.
#[derive(Debug, Default)]
struct PortHistory {
    /// Bytes, packets and time before the current run.
    bytes: u64,
    packets: u64,
    busy_ps: u64,
    /// Earlier runs that may not be over, with their ends.
    runs: VecDeque<(u64, PacketRun)>,
}

/// Values of a port that have been reported.
#[derive(Debug, Default)]
struct Reported {
    /// All instants before this one.
    next: u64,
    /// Its last rows; [`PortCounters::inq_ps`] is that of its own input.
    counted: [u64; PortCounters::NUMBERS],
    queued: [u64; QueueLengths::NUMBERS],
}

impl Port {
    const UNUSED: Self = Self {
        until: 0,
        queue_ps: 0,
        packets: 0,
        packet_ps: 1,
        wire: 0,
        waiting: 0,
        waiting_bytes: 0,
        counted_until: 0,
        stall_ps: 0,
    };

    fn run(&self) -> PacketRun {
        PacketRun { packets: self.packets, packet_ps: self.packet_ps, wire: self.wire }
    }

    /// Start of the last booked packet: time with others waiting behind ends there.
    fn last_start(&self) -> u64 {
        self.until.saturating_sub(self.packet_ps)
    }

    /// Counts the time until `now` for the waiting packets.
    fn settle(&mut self, now: u64) {
        if self.waiting > 0 {
            let (since, free) = (self.counted_until, self.until);
            self.queue_ps += now.min(free).saturating_sub(since);
            self.stall_ps += now.saturating_sub(since.max(free));
            self.counted_until = since.max(now);
        }
    }

    /// From `now` on, `packets` packets wait.
    fn wait(&mut self, now: u64, packets: u32) {
        self.settle(now);
        if self.waiting == 0 {
            self.counted_until = self.last_start().max(now);
        }
        self.waiting = packets;
    }

    /// A packet is booked to begin at `start`, while others wait or with another size than the
    /// last one.
    fn take_on(
        &mut self,
        past: &mut PortHistory,
        now: u64,
        start: u64,
        (wire, packet_ps): (u32, u64),
    ) {
        self.settle(now);
        let counted = if self.waiting > 0 { self.counted_until } else { self.last_start() };
        self.queue_ps += start.saturating_sub(counted.max(now));
        self.counted_until = self.counted_until.max(start);
        if self.wire != wire {
            self.change(past, now);
            (self.packets, self.packet_ps, self.wire) = (0, packet_ps, wire);
        }
    }

    /// Ends the current run at `now`.
    fn change(&mut self, past: &mut PortHistory, now: u64) {
        let run = self.run();
        past.bytes += run.bytes();
        past.packets += run.packets;
        past.busy_ps += run.packets * run.packet_ps;
        if self.until > now {
            let runs = &mut past.runs;
            while runs.front().is_some_and(|&(end, _)| end <= now) {
                runs.pop_front();
            }
            runs.push_back((self.until, run));
        }
    }

    /// Bytes and packets booked but not sent at `time`.
    fn left(&self, past: &PortHistory, time: u64) -> (u64, u64) {
        let mut left = (0, 0);
        let runs = past.runs.iter().rev().copied();
        for (end, run) in std::iter::once((self.until, self.run())).chain(runs) {
            if end <= time {
                break;
            }
            let (bytes, packets) = run.left(end - time);
            left = (left.0 + bytes, left.1 + packets);
        }
        left
    }

    /// The reading at `time`, if nothing has happened since.
    fn at(
        &mut self,
        past: &PortHistory,
        input: &InputBuffer,
        time: u64,
    ) -> (PortCounters, QueueLengths) {
        self.settle(time);
        let (bytes, packets) = self.left(past, time);
        let run = self.run();
        // The part in the future is one interval.
        let ahead = |until: u64| until.saturating_sub(time);
        let queued_until = if self.waiting > 0 { self.counted_until } else { self.last_start() };
        let counted = PortCounters {
            bytes: past.bytes + run.bytes() - bytes,
            packets: past.packets + run.packets - packets,
            busy_ps: past.busy_ps + run.packets * run.packet_ps - ahead(self.until),
            stall_ps: self.stall_ps,
            queue_ps: self.queue_ps.saturating_sub(ahead(queued_until)),
            inq_ps: input.at(time),
        };
        let queued = QueueLengths {
            waiting_bytes: self.waiting_bytes,
            booked_bytes: bytes,
            packets: self.waiting + packets as u32,
        };
        (counted, queued)
    }

    /// Whether nothing changes after `time` before the next packet comes.
    #[inline]
    fn quiet(&self, time: u64) -> bool {
        self.waiting == 0 && self.until <= time
    }
}

/// Readings of the ports of a shard.
#[derive(Debug)]
struct PortSeries {
    /// The last counter, [`PortCounters::inq_ps`], is that of the reverse link.
    counters: SampledSeries<{ PortCounters::NUMBERS }>,
    queues: SampledSeries<{ QueueLengths::NUMBERS }>,
}

impl PortSeries {
    /// The first instant after `time`.
    fn after(&mut self, time: u64) -> u64 {
        self.counters.position(time).after.min(self.queues.position(time).after)
    }

    /// The last instant of the coarser series not after `time`, if it is an instant of both.
    fn all_at(&mut self, time: u64) -> Option<u64> {
        let (counters, queues) = (self.counters.interval(), self.queues.interval());
        let instant = time - time % counters.max(queues);
        [counters, queues]
            .into_iter()
            .all(|every| every == 0 || instant.is_multiple_of(every))
            .then_some(instant)
    }
}

/// Readings of the ports of all shards, and the final intervals.
pub(super) struct PortTables {
    pub counters_ps: u64,
    pub counters: LinkReadings<PortCounters>,
    pub queues_ps: u64,
    pub queues: LinkReadings<QueueLengths>,
}

/// Records counters and queue lengths of all ports of a shard.
#[derive(Debug)]
pub struct PortProbe {
    /// The first instant that has not been recorded for all ports.
    next: u64,
    /// Ports that have been quiet since then are up to date.
    quiet: u64,
    ports: Vec<Port>,
    /// The input buffers of the same ports.
    inputs: Vec<InputBuffer>,
    pasts: Vec<PortHistory>,
    reported: Vec<Reported>,
    series: PortSeries,
}

/// Maximum rows of a table; instants are thinned out to stay below.
const MAX_ROWS: usize = 1 << 26;

impl PortProbe {
    /// The probe that `probes` asks for, of a shard with `links` of `all` links.
    pub(crate) fn of_shard(probes: &Probes, links: usize, all: usize) -> Self {
        let most = (MAX_ROWS / all.max(1)).clamp(64, 1 << 24) as u32;
        Self::new(links, probes.counters_ps, probes.queues_ps, most)
    }

    /// For `links` links: counters every `counters_ps` and queues every `queues_ps` (0 for
    /// never), with at most `most` instants each.
    pub fn new(links: usize, counters_ps: u64, queues_ps: u64, most: u32) -> Self {
        let mut series = PortSeries {
            counters: SampledSeries::new(counters_ps, most),
            queues: SampledSeries::new(queues_ps, most),
        };
        Self {
            // Nothing is sent before time 0: the first instant is later.
            next: series.after(0),
            quiet: 0,
            ports: collect_with_huge_pages(links, (0..links).map(|_| Port::UNUSED)),
            inputs: collect_with_huge_pages(links, (0..links).map(|_| InputBuffer::EMPTY)),
            pasts: collect_with_huge_pages(links, (0..links).map(|_| PortHistory::default())),
            reported: collect_with_huge_pages(links, (0..links).map(|_| Reported::default())),
            series,
        }
    }

    /// Records the readings of a packet's two ports up to now.
    #[cold]
    fn catch_up(&mut self, now: u64, link: u32, input: u32) {
        self.sample(link, now);
        if input != NIL {
            self.sample(input, now);
        }
    }

    /// The port at `now`, with all earlier readings recorded.
    #[inline]
    fn port(&mut self, now: u64, link: u32) -> &mut Port {
        if now >= self.next {
            self.sample(link, now);
        }
        &mut self.ports[link as usize]
    }

    /// Its input buffer at `now`, with all earlier readings recorded.
    #[inline]
    fn input(&mut self, now: u64, link: u32) -> &mut InputBuffer {
        if now >= self.next {
            self.sample(link, now);
        }
        &mut self.inputs[link as usize]
    }

    /// Nothing changes at a port after `time` before the next packet comes.
    #[inline]
    fn quiet(&self, link: usize, time: u64) -> bool {
        self.ports[link].quiet(time) && self.inputs[link].quiet(time)
    }

    /// Records the readings of all ports up to `now`, in memory order.
    #[cold]
    fn sample_all(&mut self, now: u64) {
        for link in 0..self.ports.len() {
            if !self.quiet(link, self.quiet) {
                self.sample(link as u32, now);
            }
        }
        self.next = self.series.after(now);
        self.quiet = self.series.all_at(now).unwrap_or(self.quiet);
    }

    /// Records the readings of a port up to `now`.
    fn sample(&mut self, link: u32, now: u64) {
        let (port, past) = (&mut self.ports[link as usize], &self.pasts[link as usize]);
        let input = &self.inputs[link as usize];
        let (reported, series) = (&mut self.reported[link as usize], &mut self.series);
        let mut time = reported.next.max(self.next);
        while time <= now {
            let (counted, queued) = port.at(past, input, time);
            let (count, queue) = (series.counters.position(time), series.queues.position(time));
            if count.due {
                series.counters.record(count, link, counted.numbers(), &mut reported.counted);
            }
            if queue.due {
                series.queues.record(queue, link, queued.numbers(), &mut reported.queued);
            }
            let (count, queue) = (count.due, queue.due);
            let all = (count || series.counters.interval() == 0)
                && (queue || series.queues.interval() == 0);
            time =
                series.after(if all && port.quiet(time) && input.quiet(time) { now } else { time });
        }
        reported.next = time;
    }

    /// Merges the readings of all shards of a run that ended at `end`; each comes with the
    /// fabric numbers of its links, and `reverse` is the reverse link of each link of the
    /// fabric. Uses `threads` threads.
    pub(super) fn join(
        shards: Vec<(Self, Vec<u32>)>,
        end: u64,
        reverse: &[u32],
        threads: usize,
    ) -> PortTables {
        let finish = |_, share: Vec<(Self, Vec<u32>)>| -> Vec<_> {
            share.into_iter().map(|(ports, global)| (ports.finish(end), global)).collect()
        };
        let series = in_shares(shards, threads, |_| 1, finish).into_iter().flatten();
        let (mut counters, mut queues) = (Vec::new(), Vec::new());
        for (series, global) in series {
            queues.push((series.queues, global.clone()));
            counters.push((series.counters, global));
        }
        let links = reverse.len();
        let queues = move || {
            let change = |link, change, table: &mut Table<_>| table.change(link, change);
            ShardSeries(queues).in_order(links, 1, change)
        };
        // The counter of an input belongs to the reverse link.
        let counters = move || {
            ShardSeries(counters).in_order(links, 2, |link, mut change, table| {
                let inq_ps = std::mem::take(&mut change[INQ_PS]);
                table.change(link, change);
                // Changes wrap: where a run was interrupted, the last reading may be lower.
                let total = &mut table.values_mut(reverse[link as usize])[INQ_PS];
                *total = total.wrapping_add(inq_ps);
            })
        };
        let ((queues_ps, queues), (counters_ps, counters)) =
            side_by_side(threads, queues, counters);
        PortTables { counters_ps, counters, queues_ps, queues }
    }

    /// The readings of a shard of a run that ends at `end`, which is the last instant.
    fn finish(mut self, end: u64) -> PortSeries {
        Probe::begin_window(&mut self, end);
        for link in 0..self.ports.len() {
            let (port, past, reported) =
                (&mut self.ports[link], &self.pasts[link], &mut self.reported[link]);
            let input = &self.inputs[link];
            // In an interrupted run, credit that came after its end may have released
            // the last packets.
            let (counted, queued) = port.at(past, input, end.max(input.output_left_at));
            let counted = PortCounters { inq_ps: input.at(end), ..counted };
            let PortSeries { counters, queues } = &mut self.series;
            if counters.interval() > 0 {
                let last = counters.position(end);
                counters.record(last, link as u32, counted.numbers(), &mut reported.counted);
            }
            if queues.interval() > 0 {
                let last = queues.position(end);
                queues.record(last, link as u32, queued.numbers(), &mut reported.queued);
            }
        }
        self.series
    }
}

impl Probe for PortProbe {
    const ON: bool = true;

    #[inline]
    fn wants_hops(&self) -> bool {
        false
    }

    #[inline]
    fn wants_inputs(&self) -> bool {
        true
    }

    /// Prefetches what a packet changes at a port. The inputs of a switch are adjacent.
    #[inline]
    fn prefetch(&self, link: u32, input: u32) {
        prefetch(&self.ports, link);
        // A prefetch beyond the end is harmless but costs a page lookup.
        if input != NIL {
            prefetch(&self.inputs, input);
        }
    }

    #[inline]
    fn begin_window(&mut self, now: u64) {
        if now >= self.next {
            self.sample_all(now);
        }
    }

    fn enqueued(&mut self, now: u64, link: u32, wire: u32, input: u32) {
        let input = self.input(now, input);
        input.wait(now, input.waiting + 1);
        let port = self.port(now, link);
        port.wait(now, port.waiting + 1);
        port.waiting_bytes += u64::from(wire);
    }

    fn dequeued(&mut self, now: u64, link: u32, wire: u32, input: u32) {
        let input = self.input(now, input);
        input.wait(now, input.waiting - 1);
        let port = self.port(now, link);
        port.wait(now, port.waiting - 1);
        port.waiting_bytes -= u64::from(wire);
        self.inputs[link as usize].output_left_at = now;
    }

    #[inline]
    fn blocked(&mut self, now: u64, link: u32, wire: u32) {
        let port = self.port(now, link);
        port.wait(now, u32::from(wire > 0));
        port.waiting_bytes = wire.into();
        self.inputs[link as usize].output_left_at = now;
    }

    /// The transmitter is booked for a packet, which begins now or when the last one ends.
    #[inline(always)]
    fn sent(&mut self, now: u64, link: u32, slot: Transmission, packet: SentPacket) {
        let Transmission { start, busy_ps, .. } = slot;
        if now >= self.next {
            self.catch_up(now, link, packet.input);
        }
        if packet.input == NIL && self.ports[link as usize].waiting > 0 {
            // An adapter that lacked credit has it now.
            self.blocked(now, link, 0);
        }
        let port = &mut self.ports[link as usize];
        debug_assert_eq!(start, port.until.max(now));
        if port.waiting == 0 && port.wire == packet.wire {
            // The previous packet began one packet time earlier, or before now.
            port.queue_ps += (start - now).min(port.packet_ps);
        } else {
            port.take_on(&mut self.pasts[link as usize], now, start, (packet.wire, busy_ps));
        }
        port.packets += 1;
        port.until = start + busy_ps;
        if let Some(input) = self.inputs.get_mut(packet.input as usize) {
            input.leaves(now, start);
        }
    }

    #[inline]
    fn hop(&mut self, _: u64, _: Hop, _: bool, _: &mut Mark, _: u64) {}

    #[inline]
    fn delivered(&mut self, _: u64, _: DeliveredPacket, _: Mark) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of a port and the input that all its packets come by, stepped one picosecond at
    /// a time.
    #[derive(Default)]
    struct Stepped {
        /// First and last picosecond, and bytes, of each booking.
        bookings: Vec<(u64, u64, u64)>,
        waiting: u64,
        counted: PortCounters,
    }

    impl Stepped {
        fn step(&mut self, time: u64) {
            let behind = self.bookings.iter().filter(|booking| booking.1 > time).count();
            self.counted.busy_ps += u64::from(behind > 0);
            self.counted.stall_ps += u64::from(behind == 0 && self.waiting > 0);
            self.counted.queue_ps += u64::from(behind > 1 || behind > 0 && self.waiting > 0);
            let booked = self.bookings.iter().any(|booking| booking.0 > time);
            self.counted.inq_ps += u64::from(booked || self.waiting > 0);
        }

        fn show(&mut self, time: u64) -> (PortCounters, QueueLengths) {
            let part = |&(start, end, wire): &(u64, u64, u64)| {
                wire * (time.clamp(start, end) - start) / (end - start)
            };
            let sent = self.bookings.iter().map(part).sum();
            let over = self.bookings.iter().filter(|booking| booking.1 <= time).count();
            let taken: u64 = self.bookings.iter().map(|booking| booking.2).sum();
            let queued = QueueLengths {
                waiting_bytes: 7 * self.waiting,
                booked_bytes: taken - sent,
                packets: (self.bookings.len() - over) as u32 + self.waiting as u32,
            };
            (PortCounters { bytes: sent, packets: over as u64, ..self.counted }, queued)
        }
    }

    #[test]
    fn counters_equal_a_stepped_model() {
        const EVERY: [u64; 2] = [13, 8];
        let (mut ports, mut stepped) =
            (PortProbe::new(1, EVERY[0], EVERY[1], 9999), Stepped::default());
        let (mut expected, mut queued) = (Vec::new(), Vec::new());
        let (mut free, mut draw) = (0, 1u64);
        for time in 0..20_000u64 {
            let series = stepped.show(time);
            expected.extend(time.is_multiple_of(EVERY[0]).then_some((time / EVERY[0], series.0)));
            queued.extend(time.is_multiple_of(EVERY[1]).then_some((time / EVERY[1], series.1)));
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let dice = draw >> 40;
            // Quiet times, busy times, and a window now and then.
            if dice % 5 == 0 {
                ports.begin_window(time);
            }
            if time / 500 % 3 > 0 && dice % 11 == 0 {
                stepped.waiting += 1;
                ports.enqueued(time, 0, 7, 0);
            } else if stepped.waiting > 0 && dice % 7 == 0 {
                stepped.waiting -= 1;
                ports.dequeued(time, 0, 7, 0);
            }
            if time / 500 % 3 > 0 && dice % 13 < 2 {
                // Mostly of one size, which always takes the same time.
                let (wire, busy_ps) =
                    [(50, 9), (50, 9), (50, 9), (3, 1), (31, 6)][dice as usize % 5];
                let start = time.max(free);
                free = start + busy_ps;
                stepped.bookings.push((start, free, wire.into()));
                let slot = Transmission { start, busy_ps, stall_ps: 0 };
                ports.sent(
                    time,
                    0,
                    slot,
                    SentPacket { wire, observed: true, message: 0, input: 0 },
                );
            }
            stepped.step(time);
        }
        let end = 20_000u64;
        expected.push((end.div_ceil(EVERY[0]), stepped.show(end).0));
        queued.push((end.div_ceil(EVERY[1]), stepped.show(end).1));
        expected.dedup_by_key(|row| row.1);
        queued.dedup_by_key(|row| row.1);
        let PortCounters { stall_ps, queue_ps, inq_ps, .. } = stepped.counted;
        assert!(stall_ps > 500 && queue_ps > 500 && inq_ps > stall_ps + 500);
        let all = PortProbe::join(vec![(ports, vec![0])], end, &[0], 2);
        let rows = all.counters.iter().map(|row| (row.instant.into(), row.value));
        assert_eq!(rows.collect::<Vec<_>>(), expected[1..]);
        let rows = all.queues.iter().map(|row| (row.instant.into(), row.value));
        assert_eq!(rows.collect::<Vec<_>>(), queued[1..]);
    }
}
