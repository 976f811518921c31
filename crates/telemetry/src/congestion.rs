//! When a port is congested (Taffet 2019, §5.10): rules for the congestion bit.

/// A rule; all quantities are bytes of one output port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CongestionRule {
    /// The queue exceeds the available credit: the published rule.
    QueueExceedsCredit,
    /// The queue exceeds a threshold.
    QueueAbove(u64),
    /// The available credit is below a threshold.
    CreditBelow(u64),
    /// With a probability that grows in proportion to the queue and is 1 at this length.
    InProportion(u64),
}

impl CongestionRule {
    /// Whether to mark a packet. `random` is 32 fresh bits.
    #[inline]
    pub fn marks(self, queue: u64, credit: u64, random: u32) -> bool {
        match self {
            Self::QueueExceedsCredit => queue > credit,
            Self::QueueAbove(bytes) => queue > bytes,
            Self::CreditBelow(bytes) => credit < bytes,
            Self::InProportion(full) => {
                u128::from(random) * u128::from(full) < u128::from(queue) << 32
            }
        }
    }
}

/// Level of 0 to 255 in proportion to the queue, at least 1 when there is one: for worst-hop marks.
#[inline]
pub fn level(queue: u64, full: u64) -> u8 {
    let scaled = u128::from(queue) * 255 / u128::from(full.max(1));
    scaled.min(255).max(u128::from(queue > 0)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds() {
        assert!(CongestionRule::QueueExceedsCredit.marks(11, 10, 0));
        assert!(!CongestionRule::QueueExceedsCredit.marks(10, 10, 0));
        assert!(CongestionRule::QueueAbove(5).marks(6, 100, 0));
        assert!(!CongestionRule::CreditBelow(5).marks(6, 5, 0));
        assert_eq!(
            [level(0, 100), level(1, 1000), level(50, 100), level(900, 100)],
            [0, 1, 127, 255]
        );
    }

    #[test]
    fn marks_in_proportion_to_the_queue() {
        let rule = CongestionRule::InProportion(1000);
        for queue in [0, 250, 900, 1000, 5000] {
            let marked = (0..4096u32).filter(|i| rule.marks(queue, 0, i << 20)).count();
            assert!(marked.abs_diff((queue.min(1000) * 4096 / 1000) as usize) <= 1, "{queue}");
        }
    }
}
