//! Runs of equal packets that are booked on a transmitter.

use crate::network::cable::Cable;
use crate::settings::MAX_WIRE_BYTES;

// The share of a packet that has been sent is computed in 64 bits: its bytes times its time must fit.
const _: () = {
    const PS_PER_BYTE: u64 = (8000.0 / Cable::MIN_GBPS) as u64;
    const WIRE: u64 = MAX_WIRE_BYTES as u64;
    assert!((WIRE * PS_PER_BYTE).checked_mul(WIRE).is_some());
};

/// Consecutive packets of one size that are booked on the transmitter.
#[derive(Debug, Clone, Copy)]
pub(super) struct PacketRun {
    pub packets: u64,
    /// Transmission time and bytes of each.
    pub packet_ps: u64,
    pub wire: u32,
}

impl PacketRun {
    pub fn bytes(&self) -> u64 {
        self.packets * u64::from(self.wire)
    }

    /// Bytes and packets that are not sent `ps` before its end.
    pub fn left(&self, ps: u64) -> (u64, u64) {
        let packets = ps / self.packet_ps;
        if packets >= self.packets {
            return (self.bytes(), self.packets);
        }
        let (wire, rest_ps) = (u64::from(self.wire), ps % self.packet_ps);
        let sent = wire * (self.packet_ps - rest_ps) / self.packet_ps;
        (packets * wire + wire - sent, packets + u64::from(rest_ps > 0))
    }
}
