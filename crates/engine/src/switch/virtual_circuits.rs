//! Virtual-circuit routing (Birk and Zdornov 2009, "VC routing"): adaptive, with the packets of a
//! flow in order.
//!
//! A switch has a default port for every destination and a fixed number of table entries, one per
//! flow. A flow here is a message. Its first packet takes the port with the fewest flows; if that
//! is not the default port, an entry records it and the following packets use it. The last packet
//! frees the entry. Without a free entry, or where no port is better, the flow takes the default
//! port.

/// Table entries of one switch.
#[derive(Debug, Clone, Default)]
struct Switch {
    /// (flow, link within the shard).
    entries: Vec<(u32, u32)>,
}

/// Table entries of all switches of a shard, and the number of flows on each link.
#[derive(Debug, Default)]
pub(crate) struct VirtualCircuits {
    switches: Vec<Switch>,
    flows: Vec<u32>,
    capacity: usize,
    /// Flows that needed an entry when none was free.
    pub refused: u64,
}

impl VirtualCircuits {
    /// For `switches` and `links`, with `capacity` entries per switch.
    pub fn new(switches: usize, links: usize, capacity: u32) -> Self {
        Self {
            switches: vec![Switch::default(); switches],
            flows: vec![0; links],
            capacity: capacity as usize,
            refused: 0,
        }
    }

    /// The link by which a packet of `flow` leaves `switch`: `default`, or one of `links`
    /// (shard indices). `first` and `last` say whether it is the first or last packet of its
    /// flow.
    pub fn route(
        &mut self,
        switch: u32,
        flow: u32,
        (first, last): (bool, bool),
        default: u32,
        links: impl Iterator<Item = u32>,
    ) -> u32 {
        if first {
            self.open(switch, flow, default, links);
        }
        let entries = &mut self.switches[switch as usize].entries;
        let place = entries.iter().position(|&(other, _)| other == flow);
        let link = place.map_or(default, |place| entries[place].1);
        if last {
            if let Some(place) = place {
                entries.swap_remove(place);
            }
            self.flows[link as usize] -= 1;
        }
        link
    }

    fn open(&mut self, switch: u32, flow: u32, default: u32, links: impl Iterator<Item = u32>) {
        let load = |link: u32| self.flows[link as usize];
        // The default port wins a tie, then the first.
        let best = links.min_by_key(|&link| (load(link), link != default)).unwrap_or(default);
        let mut link = default;
        if load(best) < load(default) {
            let entries = &mut self.switches[switch as usize].entries;
            if entries.len() < self.capacity {
                entries.push((flow, best));
                link = best;
            } else {
                self.refused += 1;
            }
        }
        self.flows[link as usize] += 1;
    }

    /// Whether every flow has ended.
    pub fn is_empty(&self) -> bool {
        self.flows.iter().all(|&flows| flows == 0)
            && self.switches.iter().all(|switch| switch.entries.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_spread_and_free_their_entries() {
        let mut virtual_circuits = VirtualCircuits::new(1, 4, 2);
        let open = |c: &mut VirtualCircuits, flow| c.route(0, flow, (true, false), 1, 0..4);
        let links: Vec<u32> = (0..5).map(|flow| open(&mut virtual_circuits, flow)).collect();
        // The default port, two with entries, then the default because no entry is free.
        assert_eq!(links, [1, 0, 2, 1, 1]);
        assert_eq!(virtual_circuits.refused, 2);
        assert_eq!(virtual_circuits.route(0, 1, (false, false), 1, 0..4), 0);
        assert_eq!(virtual_circuits.route(0, 1, (false, true), 1, 0..4), 0);
        assert_eq!(open(&mut virtual_circuits, 9), 0);
        for (flow, link) in [(0, 1), (2, 2), (3, 1), (4, 1), (9, 0)] {
            assert!(!virtual_circuits.is_empty());
            assert_eq!(virtual_circuits.route(0, flow, (false, true), 1, 0..4), link);
        }
        assert!(virtual_circuits.is_empty());
    }
}
