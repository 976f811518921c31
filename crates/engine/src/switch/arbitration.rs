//! Arbitration of outputs one packet at a time: round-robin over inputs, weights between virtual
//! lanes, and a crossbar of finite speed.
//!
//! First come, first served does not need this: outputs are booked ahead as packets arrive
//! (`forwarding.rs`). Here a packet waits in a queue for its lane, one queue per input port, until
//! the output is idle. Then the lanes are served in turn, and within a lane the inputs in turn.
//! This costs an event for each packet that had to wait.

use crate::events::queue::{Event, EventKind};
use crate::network::link::{NEVER, NIL};
use crate::probe::Probe;
use crate::settings::Arbitration;
use crate::shard::Shard;
use crate::switch::arbiter::InputQueue;
use crate::switch::route::Output;

impl<P: Probe> Shard<'_, P> {
    /// A packet requests `lane`.
    pub fn request(&mut self, lane: u32, slot: u32) {
        let link = self.links.link_of(lane);
        let (input, wire) = (self.packets[slot].input, self.packets[slot].wire);
        self.packets[slot].next = NIL;
        let by_input = self.model.settings.arbitration == Arbitration::RoundRobin;
        let key = if by_input { input } else { 0 };
        let lines = &mut self.arbiter.waiting[lane as usize].lines;
        match lines.binary_search_by_key(&key, |line| line.input) {
            Ok(at) => {
                let tail = std::mem::replace(&mut lines[at].tail, slot);
                self.packets[tail].next = slot;
            }
            Err(at) => lines.insert(at, InputQueue { input: key, head: slot, tail: slot }),
        }
        self.arbiter.turns[link as usize].waiting += 1;
        self.links.enqueue(lane, wire);
        if P::ON {
            self.probe.enqueued(self.now, link, wire, self.input_link_of_waiting(link, slot));
        }
        self.grant_output(link);
    }

    /// An output may be idle.
    pub fn on_free(&mut self, link: u32) {
        let turn = &mut self.arbiter.turns[link as usize];
        if turn.due == self.now {
            turn.due = NEVER;
            self.grant_output(link);
        }
    }

    /// Grants the output to the next packet if it is idle, and schedules the next attempt.
    pub fn grant_output(&mut self, link: u32) {
        if self.arbiter.turns[link as usize].waiting == 0 {
            return;
        }
        let mut again = self.links.free_at(link);
        if again <= self.now {
            again = self.serve(link);
        }
        self.schedule_next(link, again);
    }

    /// Schedules an arbitration for when the output is idle.
    ///
    /// Called when credit returns. Other lanes may receive credit at the same time, and all of it
    /// must arrive before a lane is chosen. Whether credit comes as an event or as a note depends
    /// on the partition.
    pub fn schedule_arbitration(&mut self, link: u32) {
        self.schedule_next(link, self.links.free_at(link).max(self.now));
    }

    /// Schedules the next attempt for `time`, unless an earlier one is due or nothing waits.
    fn schedule_next(&mut self, link: u32, time: u64) {
        let turn = &mut self.arbiter.turns[link as usize];
        if turn.waiting > 0 && time < turn.due {
            turn.due = time;
            self.queue.push(Event::new(time, EventKind::OutputFree, link, 0));
        }
    }

    /// Serves one packet of the first lane in turn that can send. Returns when to try again,
    /// [`NEVER`] if returning credit will trigger it.
    fn serve(&mut self, link: u32) -> u64 {
        let lanes = self.links.lanes_of(link);
        let n = (lanes.end - lanes.start) as u8;
        let mut again = NEVER;
        for step in 0..=n {
            let turn = &self.arbiter.turns[link as usize];
            // The lane served last continues while its weight lasts; then the others in
            // turn, then itself.
            if step == 0 && turn.left == 0 {
                continue;
            }
            let which = if step == 0 { turn.lane } else { (turn.lane + step) % n };
            let lane = lanes.start + u32::from(which);
            match self.next_in(lane) {
                Ok(slot) => {
                    let wire = self.packets[slot].wire;
                    let weight = self.model.settings.weight_bytes(which);
                    let turn = &mut self.arbiter.turns[link as usize];
                    let left = if step == 0 { turn.left } else { weight };
                    (turn.lane, turn.left) = (which, left.saturating_sub(wire));
                    turn.waiting -= 1;
                    let ready = self.packets[slot].ready;
                    let since = ready.max(self.links.free_at(link));
                    self.take_input(link, slot);
                    let input = self.input_link_of_waiting(link, slot);
                    let cable = self.links.cable(self.links.lane(lane));
                    let sending = (cable, cable.serialization_ps(wire));
                    let stall_ps = self.now.saturating_sub(since);
                    self.depart(Output { link, lane }, slot, sending, stall_ps, input);
                    let end = self.links.free_at(link);
                    if self.pauses.is_on() {
                        self.expect_arrival(lane, wire, end);
                    }
                    return end;
                }
                Err(time) => again = again.min(time),
            }
        }
        again
    }

    /// Dequeues the next packet of a lane and takes its credit; or returns when to try again.
    fn next_in(&mut self, lane: u32) -> Result<u32, u64> {
        let waiting = &self.arbiter.waiting[lane as usize];
        let n = waiting.lines.len();
        let first = waiting.lines.partition_point(|line| line.input <= waiting.last);
        let mut again = NEVER;
        for place in (0..n).map(|k| (first + k) % n) {
            let line = self.arbiter.waiting[lane as usize].lines[place];
            let packet = &self.packets[line.head];
            let (wire, next) = (packet.wire, packet.next);
            let busy_until = self.input_free(lane, line.head);
            if busy_until > self.now {
                again = again.min(busy_until);
                continue;
            }
            let now = self.now;
            if !self.links.take_credit(lane, wire, now) {
                self.starve(lane);
                return Err(again);
            }
            let waiting = &mut self.arbiter.waiting[lane as usize];
            waiting.last = line.input;
            match next {
                NIL => drop(waiting.lines.remove(place)),
                next => waiting.lines[place].head = next,
            }
            self.links.dequeue(lane, wire);
            if P::ON {
                let link = self.links.link_of(lane);
                let input = self.input_link_of_waiting(link, line.head);
                self.probe.dequeued(self.now, link, wire, input);
            }
            return Ok(line.head);
        }
        Err(again)
    }

    /// The reverse link of the packet's input port, shard index.
    pub fn input_link_of(&self, link: u32, slot: u32) -> u32 {
        self.first_port(link) + u32::from(self.packets[slot].input)
    }

    /// The first link of the switch that `link` leaves, shard index.
    pub fn first_port(&self, link: u32) -> u32 {
        self.model.first_port(self.model.fabric.link_src[self.links.global(link) as usize])
    }

    fn input_free(&self, lane: u32, slot: u32) -> u64 {
        if self.model.settings.crossbar_speedup == 0.0 {
            return 0;
        }
        self.arbiter.input_free[self.input_link_of(self.links.link_of(lane), slot) as usize]
    }

    /// Occupies the packet's input port while the crossbar reads it.
    fn take_input(&mut self, link: u32, slot: u32) {
        let speedup = self.model.settings.crossbar_speedup;
        if speedup == 0.0 {
            return;
        }
        let input = self.input_link_of(link, slot);
        let wire = f64::from(self.packets[slot].wire) / speedup;
        let busy = self.arbiter.inputs[input as usize].drain_ps(wire.ceil() as u64);
        self.arbiter.input_free[input as usize] = self.now + busy;
    }
}
