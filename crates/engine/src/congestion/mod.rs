//! Congestion control: what switches mark and what senders do about it, by one of three schemes.
//!
//! A switch marks packets (FECN) that join a queue above a threshold; the receiver returns a
//! notification (BECN) for each; what follows depends on the scheme:
//!
//! * [`infiniband`]: the sender pauses after each packet to that destination, by a table;
//! * [`dcms`]: the same, and a switch marks more while it creates victims;
//! * [`rgbcc`]: the sender stops until the switch says that its queue has subsided.

mod dcms;
mod infiniband;
mod rgbcc;

pub(crate) use infiniband::Throttle;
pub(crate) use rgbcc::KnownLights;

use crate::settings::{CongestionControl, CongestionScheme};
use dcms::Victims;
use infiniband::MarkingCounters;
use rgbcc::LightTable;

/// What the switches of a shard remember.
#[derive(Debug, Default)]
pub(crate) struct CongestionState {
    pub marking: MarkingCounters,
    pub victims: Victims,
    pub lights: LightTable,
    /// Packets marked.
    pub marked: u64,
}

impl CongestionState {
    /// For so many lanes and switches.
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
        }
    }
}
