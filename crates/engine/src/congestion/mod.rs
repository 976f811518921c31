//! State of congestion control in switches and senders, for four schemes.
//!
//! A switch marks packets (FECN) that join a queue above a threshold; the receiver returns a
//! notification (BECN) for each. What follows depends on the scheme:
//!
//! * [`infiniband`]: the sender pauses after each packet to that destination, according to a table;
//! * [`dcms`]: the same, and a switch marks more packets while it creates victims;
//! * [`rgbcc`]: the sender stops until the switch reports that its queue has drained;
//! * [`dcqcn`]: packets are marked with a probability (ECN), notifications (CNPs) are limited in
//!   frequency, and the sender has a rate that notifications lower and time raises.

mod dcms;
mod dcqcn;
mod infiniband;
mod rgbcc;

pub(crate) use dcqcn::{NotificationPoint, ReactionPoint};
pub(crate) use infiniband::Throttle;
pub(crate) use rgbcc::KnownLights;

use crate::settings::{CongestionControl, CongestionScheme};
use dcms::Victims;
use infiniband::MarkingCounters;
use rgbcc::LightTable;

/// Congestion control state of the switches of a shard.
#[derive(Debug, Default)]
pub(crate) struct CongestionState {
    pub marking: MarkingCounters,
    pub victims: Victims,
    pub lights: LightTable,
    /// Packets marked.
    pub marked: u64,
    /// Notifications that receivers have sent.
    pub notifications: u64,
}

impl CongestionState {
    /// For `lanes` lanes and `switches` switches.
    pub fn new(control: Option<&CongestionControl>, lanes: usize, switches: usize) -> Self {
        let Some(control) = control else { return Self::default() };
        Self {
            marking: MarkingCounters::new(lanes),
            victims: match control.scheme {
                CongestionScheme::Dcms { .. } => Victims::new(switches),
                _ => Victims::default(),
            },
            lights: match control.scheme {
                CongestionScheme::Rgbcc { .. } => LightTable::new(lanes),
                _ => LightTable::default(),
            },
            marked: 0,
            notifications: 0,
        }
    }
}
