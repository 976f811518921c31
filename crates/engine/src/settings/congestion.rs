//! Congestion control: the scheme and its parameters.

use serde::Deserialize;

use super::dcqcn::Dcqcn;
use super::units::size;
use crate::error::{CONGESTION_CONTROL, EngineError};

/// The congestion control scheme and its own parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum CongestionScheme {
    /// As specified by InfiniBand.
    #[default]
    Infiniband,
    /// DCMS: the Marking_Rate changes while victim flows are created.
    Dcms {
        /// Marking_Rate while no victims are created.
        calm_marking_rate: u32,
        /// How long after the last sign of a victim the switch still counts as creating
        /// them.
        hold_ps: u64,
        /// Period at which a manager reads port counters; 0: a switch sees packets and acts
        /// at once.
        #[serde(default)]
        poll_ps: u64,
    },
    /// RGBCC: senders stop at a notification and resume at a second one from the switch.
    Rgbcc {
        /// Queue length at which the switch lets them resume.
        green_bytes: u64,
    },
    /// DCQCN: a rate for each flow, which follows ECN marks.
    Dcqcn(Dcqcn),
    /// Distributed single application assignment: a rate for each flow, by the weight of the links
    /// of its path.
    Assignment,
}

/// Parameters of congestion control, by the names of the specification.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CongestionControl {
    /// See [`CongestionScheme`].
    #[serde(default)]
    pub scheme: CongestionScheme,
    /// Queue of an output lane above which packets are marked.
    pub threshold_bytes: u64,
    /// Packets that pass unmarked between two marked ones (Marking_Rate).
    pub marking_rate: u32,
    /// Smaller packets are not marked (Packet_Size).
    pub packet_bytes: u32,
    /// Also mark at lanes without credit, which are victims of congestion downstream
    /// (Victim_Mask).
    pub victims: bool,
    /// Increase of the index by a notification (CCTI_Increase).
    pub increase: u32,
    /// Highest index (CCTI_Limit).
    pub limit: u32,
    /// Time after which the index falls by one (CCTI_Timer).
    pub timer_ps: u64,
    /// The table: entry `shift << 14 | multiplier` pauses `(packet time >> shift) × multiplier`.
    pub table: Vec<u32>,
}

impl CongestionControl {
    /// Checks the values of the scheme.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        match self.scheme {
            CongestionScheme::Rgbcc { green_bytes } if green_bytes >= self.threshold_bytes => {
                let threshold = size(self.threshold_bytes);
                let problem = format!("is not below threshold = {threshold}");
                let remedy = format!("give less than {threshold}, or raise threshold");
                CONGESTION_CONTROL.refuse("green", size(green_bytes), problem, remedy)
            }
            CongestionScheme::Rgbcc { .. } => Ok(()),
            CongestionScheme::Dcqcn(dcqcn) => dcqcn.check(),
            CongestionScheme::Dcms { hold_ps: 0, .. } => {
                CONGESTION_CONTROL.range("hold", "0 ps", "give a time above 0, like 100 us")
            }
            _ if self.table.is_empty() => {
                let remedy = "give at least one entry, or leave table out for 0, 1, 2 … limit";
                CONGESTION_CONTROL.range("table", "[]", remedy)
            }
            _ if self.timer_ps == 0 => {
                CONGESTION_CONTROL.range("timer", "0 ps", "give a time above 0, like 153.6 us")
            }
            _ => Ok(()),
        }
    }
}
