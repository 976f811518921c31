//! What a rank program runs with, and what comes out.

use serde::Deserialize;
use tailback_fabric::{Detour, Fabric};
use tailback_program::{Placement, Program};

use crate::FluidError;
use crate::error::positive;
use crate::ledger::Ledger;
use crate::paths::{PathChoice, Router};
use crate::pool::{Policy, Work};

/// How adapters, switches and the MPI library behave: the packet engine's names and meanings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankSettings {
    /// Seed of the choice of paths.
    pub seed: u64,
    /// Who decides the rates.
    pub policy: Policy,
    /// How paths are chosen.
    pub paths: PathChoice,
    /// Whether they leave the shortest path.
    pub detour: Detour,
    /// True: one message after the other leaves an adapter; false: all at once.
    pub fifo: bool,
    /// Payload of a full packet.
    pub packet_bytes: u32,
    /// What a packet costs on the wire on top.
    pub header_bytes: u32,
    /// Latency of a switch.
    pub switch_delay_ps: u64,
    /// A packet is received whole before it leaves a switch.
    pub store_and_forward: bool,
    /// Software latency before a message.
    pub send_delay_ps: u64,
    /// Messages above this wait for their receive.
    pub eager_bytes: u64,
    /// Rate between ranks of one host.
    pub local_gbps: f64,
    /// Latency between ranks of one host.
    pub local_delay_ps: u64,
    /// Least time between two changes of rates; 0 is exact.
    pub quantum_ps: u64,
    /// Buffer of a node's switch, filled while the path beyond is slower than the node;
    /// 0 for none.
    pub buffer_bytes: u64,
    /// Minimum number of time windows for link loads; 0 for none.
    pub windows: u32,
}

/// What crossed one link in one time window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkUse {
    /// The window.
    pub window: u32,
    /// The link.
    pub link: u32,
    /// Wire bytes.
    pub bytes: u64,
    /// Time the link needs for them.
    pub busy_ps: u64,
}

/// The rows of an account, trunks divided among their links; bytes of a link sum up to the byte.
pub(crate) fn link_uses(ledger: &Ledger, router: &Router<'_>, fabric: &Fabric) -> Vec<LinkUse> {
    let capacity = router.capacity();
    let mut rows = Vec::new();
    for (used, &joint) in capacity.iter().enumerate() {
        let bits = ledger.of(used as u32);
        if bits.is_empty() {
            continue;
        }
        for &link in router.members(used as u32).iter() {
            let gbps = fabric.link_gbps[link as usize];
            let (mut sum, mut assigned) = (0.0, 0u64);
            for (window, &bits) in bits.iter().enumerate() {
                sum += bits / 8.0 * gbps / joint;
                let bytes = (sum.round() as u64).saturating_sub(assigned);
                assigned += bytes;
                if bytes > 0 {
                    let busy_ps = (bytes as f64 * 8000.0 / gbps).round() as u64;
                    rows.push(LinkUse { window: window as u32, link, bytes, busy_ps });
                }
            }
        }
    }
    rows.sort_unstable_by_key(|row| (row.window, row.link));
    rows
}

/// What came out.
#[derive(Debug, Default, Clone)]
pub struct RankTimes {
    /// Messages: source rank, destination rank, bytes, label.
    pub messages: Vec<(u32, u32, u64, u32)>,
    /// When each message was posted.
    pub post_ps: Vec<u64>,
    /// When its first byte left.
    pub begin_ps: Vec<u64>,
    /// When its last byte arrived.
    pub arrival_ps: Vec<u64>,
    /// Switches it visited, 0 through memory.
    pub switches: Vec<u32>,
    /// When each rank finished.
    pub finish_ps: Vec<u64>,
    /// Time each rank computed.
    pub compute_ps: Vec<u64>,
    /// Time each rank was blocked.
    pub wait_ps: Vec<u64>,
    /// Wire bytes over each link.
    pub link_bytes: Vec<f64>,
    /// When the last event happened.
    pub end_ps: u64,
    /// Length of a time window; 0 when links were not accounted for.
    pub window_ps: u64,
    /// What crossed the links in each window, where something did; by window, then link.
    pub link_use: Vec<LinkUse>,
    /// What it took.
    pub work: Work,
}

/// Checks what belongs together before anything runs.
pub(crate) fn check(
    fabric: &Fabric,
    settings: &RankSettings,
    program: &Program,
    placement: &Placement,
) -> Result<(), FluidError> {
    positive("local_rate", || "the settings".to_owned(), settings.local_gbps)?;
    if settings.packet_bytes == 0 {
        positive("packet", || "the settings".to_owned(), 0.0)?;
    }
    placement.check(program.n_ranks(), fabric.n_nodes)?;
    Ok(())
}
