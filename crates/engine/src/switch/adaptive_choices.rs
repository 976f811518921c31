//! The ports that adaptive routing has chosen, for the rules by which a choice holds.

use std::collections::HashMap;

/// What chooses: switch, message and chunk.
type ChoiceKey = (u32, u32, u64);

/// Ports that messages have chosen, where choices hold for more than one packet.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveChoices {
    /// By switch, message and chunk (0 unless chosen per chunk): the link, and when its last packet
    /// passed.
    of: HashMap<ChoiceKey, (u32, u64)>,
    /// Number of entries above which expired ones are dropped.
    limit: usize,
    /// Flows that have chosen each link.
    flows: HashMap<u32, u32>,
}

/// In place of a message, for what all messages from one rank to another share.
const ANY_MESSAGE: u32 = u32::MAX;

/// Number of entries kept before expired ones are dropped.
const FEW_ENTRIES: usize = 1 << 10;

impl AdaptiveChoices {
    /// The link that `key` chose, if its last packet passed less than `gap_ps` before `now`.
    pub fn known(&self, key: ChoiceKey, now: u64, gap_ps: u64) -> Option<u32> {
        self.of.get(&key).filter(|&&(_, seen)| now - seen < gap_ps).map(|&(link, _)| link)
    }

    /// A packet of `key` takes `link`.
    pub fn note(&mut self, key: ChoiceKey, link: u32, now: u64, gap_ps: u64) {
        if self.of.len() >= self.limit.max(FEW_ENTRIES) {
            // Groups of a window take turns, so that the last packet may lie in the future.
            self.of.retain(|_, &mut (_, seen)| now.saturating_sub(seen) < gap_ps);
            self.limit = 2 * self.of.len();
        }
        self.of.insert(key, (link, now));
    }

    /// The link of the flow from `src` to `dst` at `switch`: that which it chose, or that of `links`
    /// which the fewest flows chose; `usual` wins a tie, then the first.
    pub fn of_flow(
        &mut self,
        switch: u32,
        (src, dst): (u32, u32),
        usual: u32,
        links: impl Iterator<Item = u32>,
    ) -> u32 {
        let key = (switch, ANY_MESSAGE, u64::from(src) << 32 | u64::from(dst));
        if let Some(&(link, _)) = self.of.get(&key) {
            return link;
        }
        let flows = |link: u32| self.flows.get(&link).copied().unwrap_or(0);
        let link = links.min_by_key(|&link| (flows(link), link != usual)).unwrap_or(usual);
        *self.flows.entry(link).or_default() += 1;
        self.of.insert(key, (link, 0));
        link
    }

    /// The last packet of `key` has passed.
    pub fn forget(&mut self, key: ChoiceKey) {
        self.of.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::AdaptiveChoices;

    #[test]
    fn flows_spread_over_ports_and_keep_them() {
        let mut choices = AdaptiveChoices::default();
        let mut link = |dst, usual| choices.of_flow(0, (7, dst), usual, 0..3);
        // The usual port if no other has fewer flows, then the first of those with the fewest.
        assert_eq!([link(1, 2), link(2, 2), link(3, 2), link(4, 1)], [2, 0, 1, 1]);
        assert_eq!([link(4, 0), link(1, 0)], [1, 2]);
    }
}
