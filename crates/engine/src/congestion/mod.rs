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
pub(crate) use rgbcc::{Light, Stops};

use serde::Deserialize;

use crate::network::packet::{Content, Flags};
use crate::probe::Probe;
use crate::shard::Shard;
use dcms::Victims;
use infiniband::Marking;
use rgbcc::Lights;

/// What is done about congestion, and what the scheme needs besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Scheme {
    /// As the specification has it.
    #[default]
    Infiniband,
    /// The Marking_Rate changes while victims are created.
    Dcms {
        /// The Marking_Rate while there are none.
        calm_marking_rate: u32,
        /// For how long after the last sign of them there are victims.
        hold_ps: u64,
    },
    /// Senders stop at a notification and go on when the switch says so.
    Rgbcc {
        /// Queue at which it does.
        green_bytes: u64,
    },
}

/// Parameters of congestion control, by the names of the specification.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CongestionControl {
    /// See [`Scheme`].
    #[serde(default)]
    pub scheme: Scheme,
    /// Queue of an output lane above which packets are marked.
    pub threshold_bytes: u64,
    /// Packets that pass unmarked between two marked ones (Marking_Rate).
    pub marking_rate: u32,
    /// Smaller packets are not marked (Packet_Size).
    pub packet_bytes: u32,
    /// Mark also where the lane has no credit: it suffers from congestion further on (Victim_Mask).
    pub victims: bool,
    /// What a notification adds to the index (CCTI_Increase).
    pub increase: u32,
    /// Highest index (CCTI_Limit).
    pub limit: u32,
    /// Time after which the index falls by one (CCTI_Timer).
    pub timer_ps: u64,
    /// The table: entry `shift << 14 | multiplier` pauses `(packet time >> shift) × multiplier`.
    pub table: Vec<u32>,
}

impl CongestionControl {
    /// What is wrong with the values, if anything: the value and what would be right.
    pub(crate) fn problem(&self) -> Option<(String, &'static str)> {
        let wrong = |value: &str, valid| Some((value.to_owned(), valid));
        match self.scheme {
            Scheme::Rgbcc { green_bytes } if green_bytes >= self.threshold_bytes => {
                wrong("green is not below threshold", "green < threshold")
            }
            Scheme::Rgbcc { .. } => None,
            Scheme::Dcms { hold_ps: 0, .. } => wrong("hold is 0", "a hold above 0"),
            _ if self.table.is_empty() || self.timer_ps == 0 => {
                wrong("an empty table or timer 0", "a table with entries and a timer above 0")
            }
            _ => None,
        }
    }
}

/// What the switches of a shard remember.
#[derive(Debug, Default)]
pub(crate) struct Congestion {
    marking: Marking,
    victims: Victims,
    pub lights: Lights,
    /// Packets marked.
    pub marked: u64,
}

impl Congestion {
    /// For so many lanes and switches.
    pub fn new(control: Option<&CongestionControl>, lanes: usize, switches: usize) -> Self {
        let Some(control) = control else { return Self::default() };
        Self {
            marking: Marking::new(lanes),
            victims: match control.scheme {
                Scheme::Dcms { .. } => Victims::new(switches),
                _ => Victims::default(),
            },
            lights: match control.scheme {
                Scheme::Rgbcc { .. } => Lights::new(lanes),
                _ => Lights::default(),
            },
            marked: 0,
        }
    }
}

impl<P: Probe> Shard<'_, P> {
    /// A packet that came to `switch` (numbered within the shard) is to leave by `lane`: marks it
    /// where the queue is longer than congestion control allows.
    pub fn notify(&mut self, control: &CongestionControl, switch: u32, lane: u32, slot: u32) {
        let packet = &self.packets[slot];
        let (wire, mut flags) = (packet.wire, packet.flags);
        if packet.content() != Content::Data {
            return;
        }
        // Where outputs are booked ahead the credit is spent on what is being sent: a root too.
        let sending = self.links.free_at(self.links.link_of(lane)) > self.now;
        let now = self.now;
        let root = sending || self.links.has(lane, wire, now);
        let over = self.queued(lane) + u64::from(wire) > control.threshold_bytes;
        let mut rate = control.marking_rate;
        if let Scheme::Dcms { calm_marking_rate, hold_ps } = control.scheme {
            let created =
                self.congestion.victims.look(switch, flags, (over, root), self.now, hold_ps);
            flags.set(Flags::VICTIMS, created && over && !root);
            rate = if created { rate } else { calm_marking_rate };
        }
        let lit = matches!(control.scheme, Scheme::Rgbcc { .. });
        let eligible = over && (root || control.victims) && wire >= control.packet_bytes;
        // A packet has room for one light.
        let taken = lit && flags.has(Flags::NOTIFIED);
        if eligible && !taken && self.congestion.marking.due(lane, rate) {
            flags.set(Flags::NOTIFIED, true);
            self.congestion.marked += 1;
            if let Scheme::Rgbcc { green_bytes } = control.scheme {
                self.red(lane, slot, green_bytes);
            }
        }
        self.packets[slot].flags = flags;
    }
}
