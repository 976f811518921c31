//! State of congestion control in switches and senders, for five schemes.
//!
//! A switch marks packets (FECN) that join a queue above a threshold; the receiver returns a
//! notification (BECN) for each. What follows depends on the scheme:
//!
//! * [`infiniband`]: the sender pauses after each packet to that destination, according to a table;
//! * [`dcms`]: the same, and a switch marks more packets while it creates victims;
//! * [`rgbcc`]: the sender stops until the switch reports that its queue has drained;
//! * [`dcqcn`]: packets are marked with a probability (ECN), notifications (CNPs) are limited in
//!   frequency, and the sender has a rate that notifications lower and time raises;
//! * [`assignment`]: packets collect the weight of links, and the sender gets its share of the
//!   heaviest.

mod assignment;
mod dcms;
mod dcqcn;
mod infiniband;
mod rgbcc;

pub(crate) use assignment::{FlowWeights, assigned_mbps};
pub(crate) use dcms::Ports;
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
    /// Lights; with an assignment, the time that packets have collected.
    pub lights: LightTable,
    pub weights: FlowWeights,
    /// Packets marked.
    pub marked: u64,
    /// Notifications that receivers have sent.
    pub notifications: u64,
}

impl CongestionState {
    /// For `lanes` lanes of `links` links, and `switches` switches.
    pub fn new(
        control: Option<&CongestionControl>,
        lanes: usize,
        links: usize,
        switches: usize,
    ) -> Self {
        let Some(control) = control else { return Self::default() };
        Self {
            marking: MarkingCounters::new(lanes),
            victims: match control.scheme {
                CongestionScheme::Dcms { poll_ps: 0, .. } => Victims::new(switches, 0),
                CongestionScheme::Dcms { .. } => Victims::new(switches, links),
                _ => Victims::default(),
            },
            lights: match control.scheme {
                CongestionScheme::Rgbcc { .. } | CongestionScheme::Assignment => {
                    LightTable::new(lanes)
                }
                _ => LightTable::default(),
            },
            weights: match control.scheme {
                CongestionScheme::Assignment => FlowWeights::new(lanes),
                _ => FlowWeights::default(),
            },
            marked: 0,
            notifications: 0,
        }
    }
}
