//! Settings of the flow control of links.

use serde::Deserialize;
use tailback_fabric::Fabric;

use super::units::size;
use super::{FLOW_CONTROL, Settings};
use crate::EngineError;
use crate::network::cable::Cable;

/// How a buffer keeps its sender from overrunning it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum FlowControl {
    /// InfiniBand: a sender has credit for the free bytes of the buffer.
    #[default]
    Credits,
    /// Priority flow control of Ethernet (IEEE 802.1Qbb): a buffer pauses its sender.
    Pfc {
        /// The buffer sends PAUSE when it holds more.
        xoff_bytes: u32,
        /// And RESUME when it holds no more than this.
        xon_bytes: u32,
    },
}

impl Settings {
    /// Bytes that arrive after a buffer has decided to pause its sender, at most: what the cable
    /// holds in both directions, and a packet each that crosses the threshold, that has just begun,
    /// and that had just begun when the PAUSE arrives.
    pub fn headroom_bytes(&self, gbps: f64, delay_ps: u64) -> u64 {
        let cable = Cable::new(gbps, delay_ps);
        let packet = u64::from(self.wire_bytes(self.packet_bytes));
        cable.bytes_in(2 * u64::from(cable.delay)) + 3 * packet + 1
    }

    /// Checks the thresholds of priority flow control, and that no cable of `fabric` needs more
    /// headroom than the buffer has above them.
    pub(crate) fn check_flow_control(&self, fabric: &Fabric) -> Result<(), EngineError> {
        let FlowControl::Pfc { xoff_bytes, xon_bytes } = self.flow_control else { return Ok(()) };
        if xon_bytes > xoff_bytes {
            let problem = format!("is above xoff = {}", size(xoff_bytes.into()));
            let remedy = "give at most xoff, or leave xon out";
            return FLOW_CONTROL.refuse("xon", size(xon_bytes.into()), problem, remedy);
        }
        let of_link =
            |link: usize| self.headroom_bytes(fabric.link_gbps[link], fabric.link_delay_ps[link]);
        let headroom = (0..fabric.n_links()).map(of_link).max().unwrap_or(0);
        let least = u64::from(xoff_bytes) + headroom;
        if u64::from(self.buffer_bytes) < least {
            let problem = format!(
                "leaves less than the {} of headroom that priority flow control needs above xoff = {}",
                size(headroom),
                size(xoff_bytes.into())
            );
            let remedy = format!("give [engine] buffer at least {}, or lower xoff", size(least));
            return FLOW_CONTROL.refuse("xoff", size(self.buffer_bytes.into()), problem, remedy);
        }
        Ok(())
    }
}
