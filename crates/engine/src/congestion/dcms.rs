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

use crate::network::packet::Flags;

/// Until when each switch counts as creating victims.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    until: Vec<u64>,
}

impl Victims {
    /// For `switches` switches.
    pub fn new(switches: usize) -> Self {
        Self { until: vec![0; switches] }
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
        let mut victims = Victims::new(2);
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
