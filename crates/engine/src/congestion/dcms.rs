//! Dynamic congestion management (DCMS): the Marking_Rate of a switch changes while it creates victims.
//!
//! Document 002, section V: "dynamically adjust this parameter based on whether-or-not victim flows
//! are being created by a congestion event". The abstract of the scheme's own paper (Mizero et al.,
//! *Supercomputing Frontiers and Innovations* 3(2), 2016) adds that port counters tell, without any
//! knowledge of flows, and that without victims those who contribute to the congestion keep their
//! rates. How victims are found and what sets which rate is not said there; the rest is ours.
//!
//! A packet is a *victim* where it had to wait for credit on its last link (what PortXmitWait counts)
//! although the output it wants here is neither congested nor short of credit: others filled the
//! buffer it had to wait for. That switch creates victims, and for a time after. Who causes it may sit
//! further on: a packet that leaves by a congested output without credit takes the news along to the
//! switch that withholds the credit, one bit, until the news is where the tree has its root.

use crate::network::packet::Flags;

/// Until when each switch counts as one that creates victims.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    until: Vec<u64>,
}

impl Victims {
    /// For so many switches.
    pub fn new(switches: usize) -> Self {
        Self { until: vec![0; switches] }
    }

    /// A packet arrives at `switch` whose output is above the threshold (`over`), and has credit or is
    /// sending (`root`): whether victims are being created, for `hold` after the last sign of one.
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
    fn who_waited_for_a_free_output_is_a_victim_for_a_while() {
        let mut victims = Victims::new(2);
        let (free, root, branch) = ((false, true), (true, true), (true, false));
        let (mut stalled, mut told) = (Flags::default(), Flags::default());
        stalled.set(Flags::STALLED, true);
        told.set(Flags::VICTIMS, true);
        let mut look =
            |switch, flags, output, now| victims.observe(switch, flags, output, now, 100);
        // Who waited for a congested output contributes; who did not wait is fine.
        assert!(!look(0, stalled, root, 10));
        assert!(!look(0, stalled, branch, 20));
        assert!(!look(0, Flags::default(), free, 30));
        assert!(look(0, stalled, free, 40));
        assert!(look(0, stalled, root, 139));
        assert!(!look(0, stalled, root, 140));
        // The other switch knows nothing of it until it is told.
        assert!(!look(1, stalled, root, 50));
        assert!(look(1, told, root, 60));
    }
}
