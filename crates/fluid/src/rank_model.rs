//! Settings and results of a simulation of rank programs.

use serde::Deserialize;
use tailback_fabric::{Detour, Fabric};
use tailback_program::{Placement, Program};

use crate::FluidError;
use crate::error::require_positive;
use crate::link_load::WindowedLoad;
use crate::paths::{PathChoice, Router};
use crate::pool::{Policy, Work};

/// Behaviour of adapters, switches and the MPI library; names and meanings as in the packet engine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankSettings {
    /// Seed of the choice of paths.
    pub seed: u64,
    /// How rates are determined.
    pub policy: Policy,
    /// How paths are chosen.
    pub paths: PathChoice,
    /// Whether paths take detours.
    pub detour: Detour,
    /// True: one message after the other leaves an adapter; false: all at once.
    pub fifo: bool,
    /// Payload of a full packet.
    pub packet_bytes: u32,
    /// Bytes that a packet adds to its payload on the wire.
    pub header_bytes: u32,
    /// Latency of a switch.
    pub switch_delay_ps: u64,
    /// A packet is received whole before it leaves a switch.
    pub store_and_forward: bool,
    /// Software latency between the posting of a send and its first byte at the adapter.
    pub send_delay_ps: u64,
    /// Larger messages wait until their receive is posted (rendezvous).
    pub eager_bytes: u64,
    /// Sends up to the eager limit are complete at once, as their bytes are copied.
    #[serde(default)]
    pub copies_eager: bool,
    /// A rank answers the steps of a rendezvous only in calls, not while it computes.
    #[serde(default)]
    pub progress_in_calls: bool,
    /// Rate of a message between ranks of one host.
    pub local_gbps: f64,
    /// Rate that all messages within a host share; at least the rate of one message.
    pub memory_gbps: f64,
    /// Latency between ranks of one host.
    pub local_delay_ps: u64,
    /// Whether messages within a host share ports instead of memory. Each rank then has a port,
    /// with the rate of a message, to a switch in its host.
    #[serde(default)]
    pub local_ports: bool,
    /// Minimum time between two changes of rates; 0 is exact.
    pub quantum_ps: u64,
    /// Buffer of a node's switch, filled while the path beyond is slower than the node;
    /// 0 for none.
    pub buffer_bytes: u64,
    /// Minimum number of time windows for link loads; 0 for none.
    pub windows: u32,
}

/// Traffic over one link in one time window.
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

/// Traffic by window and link; that of a trunk is divided among its links. Rounding errors do not
/// accumulate: the bytes of a link add up to its total.
pub(crate) fn link_uses(
    link_load: &WindowedLoad,
    router: &Router<'_>,
    fabric: &Fabric,
) -> Vec<LinkUse> {
    let capacity = router.capacity();
    let mut rows = Vec::new();
    for (used, &joint) in capacity.iter().enumerate() {
        let bits = link_load.of(used as u32);
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

/// Results of a simulation of rank programs.
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
    /// Switches it visited; 0 if it went through memory.
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
    /// Length of a time window; 0 if link loads were not recorded.
    pub window_ps: u64,
    /// Traffic in each window over each link that had any; by window, then link.
    pub link_use: Vec<LinkUse>,
    /// Computational effort.
    pub work: Work,
}

/// Checks settings and placement before the run.
pub(crate) fn check(
    fabric: &Fabric,
    settings: &RankSettings,
    program: &Program,
    placement: &Placement,
) -> Result<(), FluidError> {
    require_positive("local_rate", || "the settings".to_owned(), settings.local_gbps)?;
    require_positive("memory_rate", || "the settings".to_owned(), settings.memory_gbps)?;
    for (rank, &gbps) in placement.local_gbps.iter().enumerate() {
        require_positive("local_rate", || format!("rank {rank}"), gbps)?;
    }
    if settings.packet_bytes == 0 {
        require_positive("packet", || "the settings".to_owned(), 0.0)?;
    }
    placement.check(program.n_ranks(), fabric.n_nodes)?;
    Ok(())
}
