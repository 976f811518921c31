//! Dynamic congestion management (DCMS): a switch changes its Marking_Rate while it creates victim
//! flows.
//!
//! Alali et al. (2017), section V:
//! "dynamically adjust this parameter based on whether-or-not victim flows are being created by a
//! congestion event". The abstract of the scheme's own paper (Mizero et al., *Supercomputing
//! Frontiers and Innovations* 3(2), 2016) adds that port counters suffice, without any knowledge of
//! flows, and that without victims the flows that contribute to the congestion keep their rates.
//! Neither source specifies how victims are found or how rates are set; these parts are specific to
//! this implementation.
//!
//! A packet is a *victim* where it had to wait for credit on its last link (what PortXmitWait
//! counts) although the output it wants here is neither congested nor short of credit: other
//! packets filled the buffer it waited for. That switch then counts as creating victims for some
//! time. The cause may be further downstream. So a packet that leaves by a congested output without
//! credit carries one bit to the switch that withholds the credit. Step by step, the information
//! reaches the root of the congestion tree.
//!
//! With a *manager* nobody looks at packets: it reads the counters of all ports periodically, and
//! its decision holds until the next poll. A switch creates victims if its inputs whose senders
//! waited (PortXmitWait) received more bytes than went to its congested outputs, which waited, too,
//! or were busy for 95 % of the period: the difference left by free outputs. The information moves
//! towards the root by one switch a poll.

use std::ops::Range;

use crate::network::packet::Flags;

/// Until when each switch counts as creating victims.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    until: Vec<u64>,
    /// With a manager: the current period of each switch, and counters of inputs and outputs.
    periods: Vec<Period>,
    received: Vec<Counters>,
    sent: Vec<Counters>,
}

/// A switch between two polls.
#[derive(Debug, Clone, Copy, Default)]
struct Period {
    end: u64,
    /// A switch upstream creates victims by its output to this one.
    informed: bool,
    /// It created victims by the last poll.
    creates: bool,
}

/// A port since the last poll.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    bytes: u64,
    waited: bool,
}

/// Ports of a switch, by their link in the shard.
#[derive(Debug, Clone)]
pub(crate) struct Ports {
    pub all: Range<usize>,
    /// Those of the packet.
    pub input: usize,
    pub output: usize,
}

impl Victims {
    /// For `switches` switches with `links` links that a manager polls.
    pub fn new(switches: usize, links: usize) -> Self {
        let none = vec![Counters::default(); links];
        Self {
            until: vec![0; switches],
            periods: vec![Period::default(); if links == 0 { 0 } else { switches }],
            received: none.clone(),
            sent: none,
        }
    }

    /// Counts a packet of `wire` bytes that arrives at `switch`; `waits`: its output has no credit.
    /// Returns whether the switch created victims by the last poll, `poll` apart. `full` tells the
    /// bytes of an output that is busy for that time.
    pub fn poll(
        &mut self,
        switch: u32,
        ports: &Ports,
        (flags, wire, waits): (Flags, u32, bool),
        (now, poll): (u64, u64),
        full: impl Fn(usize) -> u64,
    ) -> bool {
        let period = &mut self.periods[switch as usize];
        if now >= period.end {
            let (received, sent) =
                (&mut self.received[ports.all.clone()], &mut self.sent[ports.all.clone()]);
            let waiting: u64 = received.iter().filter(|port| port.waited).map(|p| p.bytes).sum();
            let congested: u64 = (ports.all.clone().zip(&*sent))
                .filter(|(link, port)| port.waited || port.bytes >= full(*link) / 20 * 19)
                .map(|(_, port)| port.bytes)
                .sum();
            let last = now - period.end < poll;
            period.creates = last && (period.informed || waiting > congested);
            period.informed = false;
            period.end = (now / poll + 1) * poll;
            received.fill(Counters::default());
            sent.fill(Counters::default());
        }
        period.informed |= flags.has(Flags::VICTIMS);
        for (port, waited) in [
            (&mut self.received[ports.input], flags.has(Flags::STALLED)),
            (&mut self.sent[ports.output], waits),
        ] {
            port.bytes += u64::from(wire);
            port.waited |= waited;
        }
        period.creates
    }

    /// A packet arrives at `switch`. `over`: its output is above the threshold. `root`: the output
    /// has credit or is sending. Returns whether victims are being created; a sign of a victim
    /// counts for `hold`.
    pub fn observe(
        &mut self,
        switch: u32,
        flags: Flags,
        (over, root): (bool, bool),
        now: u64,
        hold: u64,
    ) -> bool {
        let until = &mut self.until[switch as usize];
        let victim = flags.has(Flags::STALLED) && !over && root;
        if victim || flags.has(Flags::VICTIMS) {
            *until = now + hold;
        }
        now < *until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_delayed_before_free_outputs_are_victims() {
        let mut victims = Victims::new(2, 0);
        let (free, root, branch) = ((false, true), (true, true), (true, false));
        let (mut stalled, mut marked) = (Flags::default(), Flags::default());
        stalled.set(Flags::STALLED, true);
        marked.set(Flags::VICTIMS, true);
        let mut creates_victims =
            |switch, flags, output, now| victims.observe(switch, flags, output, now, 100);
        // A packet that waited for a congested output contributes to it; one that did not
        // wait is no victim.
        assert!(!creates_victims(0, stalled, root, 10));
        assert!(!creates_victims(0, stalled, branch, 20));
        assert!(!creates_victims(0, Flags::default(), free, 30));
        assert!(creates_victims(0, stalled, free, 40));
        assert!(creates_victims(0, stalled, root, 139));
        assert!(!creates_victims(0, stalled, root, 140));
        // The other switch does not know until a packet carries the information there.
        assert!(!creates_victims(1, stalled, root, 50));
        assert!(creates_victims(1, marked, root, 60));
    }
}
