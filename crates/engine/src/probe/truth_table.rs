//! The table of ground truth.

use tailback_telemetry::{BLOCK, EntrySums, append, table};

table! {
    /// The table of ground truth, with one row per window and link with traffic, in this order:
    /// bytes sent, time sending, time with data but no credit, packets sent, those of observed
    /// jobs, packets that met congestion, those of observed jobs.
    TruthTable: window, link, bytes, busy_ps, stall_ps, packets, observed_packets, congested_packets,
    observed_congested_packets,
}

/// Number of sums per link.
pub(super) const SUMS: usize = 7;

impl TruthTable {
    /// An empty table with room for `rows`.
    pub(super) fn with_room(rows: usize) -> Self {
        Self::with_capacity(rows)
    }

    /// The rows of several tables, one after the other.
    pub(super) fn joined(tables: impl Iterator<Item = Self>) -> Self {
        Self::default().append(tables)
    }

    /// Appends the sums of a window for the links `first` + each of `places`.
    pub(super) fn extend(
        &mut self,
        window: u32,
        first: u32,
        places: &[u8],
        sums: &[EntrySums<SUMS>; BLOCK],
    ) {
        self.window.extend(std::iter::repeat_n(window.into(), places.len()));
        self.link.extend(places.iter().map(|&place| u64::from(first) + u64::from(place)));
        let columns = [
            &mut self.bytes,
            &mut self.busy_ps,
            &mut self.stall_ps,
            &mut self.packets,
            &mut self.observed_packets,
            &mut self.congested_packets,
            &mut self.observed_congested_packets,
        ];
        append(columns, places, sums);
    }
}
