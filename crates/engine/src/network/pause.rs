//! Priority flow control (IEEE 802.1Qbb): the sender's view of the buffer at the far end of each
//! lane, and whether that buffer has paused it.
//!
//! A buffer that holds more than `xoff` bytes pauses its sender; at no more than `xon` bytes it
//! lets it resume. Both frames take a cable delay, and the packet that is being sent is not
//! interrupted. The sender computes these frames itself. Its bytes reach the buffer a cable delay
//! after they were sent, and the answer takes another cable delay. Bytes that leave the buffer are
//! reported a cable delay later, as InfiniBand's credit is. So no frames cross the network, and
//! PAUSE has its exact time in any partition. The buffer has room for everything sent until then
//! (its *headroom*, checked before the run), so nothing is lost.
//!
//! While a lane is paused its credit is withheld.

use crate::network::link::NEVER;
use crate::settings::FlowControl;

/// Marks a report that bytes have arrived; without it, that bytes have left.
pub(crate) const ARRIVED: u32 = 1 << 31;

/// A lane under priority flow control.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PausedLane {
    /// Bytes sent whose arrival has not been reported to the sender.
    pub unreported: u32,
    /// Credit that it may not use while it is paused.
    pub withheld: u32,
    /// Since when it is paused; [`NEVER`] while it is not.
    pub since: u64,
}

impl PausedLane {
    const OPEN: Self = Self { unreported: 0, withheld: 0, since: NEVER };

    pub fn is_paused(&self) -> bool {
        self.since != NEVER
    }
}

/// The lanes of a shard, if links are under priority flow control.
#[derive(Debug, Default)]
pub(crate) struct PausedLanes {
    lanes: Vec<PausedLane>,
    pub xoff: u32,
    pub xon: u32,
    /// How often lanes were paused, and for how long together.
    pub pauses: u64,
    pub paused_ps: u64,
}

impl PausedLanes {
    /// For `lanes` lanes.
    pub fn new(flow_control: FlowControl, lanes: usize) -> Self {
        match flow_control {
            FlowControl::Credits => Self::default(),
            FlowControl::Pfc { xoff_bytes: xoff, xon_bytes: xon } => {
                Self { lanes: vec![PausedLane::OPEN; lanes], xoff, xon, ..Self::default() }
            }
        }
    }

    /// Whether links are under priority flow control.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// The state of a lane.
    pub fn lane(&mut self, lane: u32) -> &mut PausedLane {
        &mut self.lanes[lane as usize]
    }

    /// Whether no lane is paused and every arrival has been reported.
    pub fn all_open(&self) -> bool {
        self.lanes.iter().all(|lane| !lane.is_paused() && lane.unreported == 0)
    }
}
