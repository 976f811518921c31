//! Distributed single application assignment (Birk and Zdornov, 2009, slides): each link stores the
//! weight of its flows, W; a flow of weight w gets the rate w / W of the heaviest link of its path.
//!
//! A flow is a message, and its weight its bytes, so W over the rate of the link is the time that
//! the link needs for its flows. The slides have control packets, "piggy-backed on data packets",
//! which is what happens here: the first packet of a flow adds its weight to every link that it
//! crosses, the last one takes it away. All packets collect the longest time of their path. One in
//! several is a probe: its receiver returns the time to the sender in a notification.

/// Bytes of the flows of each lane.
#[derive(Debug, Default)]
pub(crate) struct FlowWeights {
    bytes: Vec<u64>,
}

impl FlowWeights {
    /// For the given number of lanes.
    pub fn new(lanes: usize) -> Self {
        Self { bytes: vec![0; lanes] }
    }

    /// A packet of a flow of `weight` bytes crosses `lane`, the `first` or `last` one of the flow.
    /// Returns the weight of the lane, this flow included.
    pub fn cross(&mut self, lane: u32, weight: u64, (first, last): (bool, bool)) -> u64 {
        let bytes = &mut self.bytes[lane as usize];
        if first {
            *bytes += weight;
        }
        let all = *bytes;
        if last {
            *bytes = all.saturating_sub(weight);
        }
        all
    }
}

/// Rate in Mb/s of a flow of `bytes` whose heaviest link needs `ns` for its flows.
pub(crate) fn assigned_mbps(bytes: u64, ns: u32) -> u32 {
    let mbps = u128::from(bytes) * 8000 / u128::from(ns.max(1));
    u32::try_from(mbps).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_hold_the_weight_of_flows_that_have_begun_and_not_ended() {
        let mut weights = FlowWeights::new(2);
        assert_eq!(weights.cross(1, 700, (true, false)), 700);
        assert_eq!(weights.cross(1, 300, (true, false)), 1000);
        assert_eq!(weights.cross(1, 700, (false, true)), 1000);
        assert_eq!(weights.cross(1, 300, (false, false)), 300);
        assert_eq!(weights.cross(0, 50, (true, true)), 50);
        assert_eq!(weights.cross(0, 60, (true, true)), 60);
    }

    #[test]
    fn a_flow_gets_its_part_of_the_heaviest_link() {
        // 1 MB of 4 MB that take 320 µs at 100 Gb/s.
        assert_eq!(assigned_mbps(1_000_000, 320_000), 25_000);
        assert_eq!(assigned_mbps(0, 0), 1);
    }
}
