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
}

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

    /// The last packet of `key` has passed.
    pub fn forget(&mut self, key: ChoiceKey) {
        self.of.remove(&key);
    }
}
