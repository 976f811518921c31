//! Readings of a port at an instant.

use super::series::Reading;

/// Counters of a port since the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Bytes sent, including those of a packet being sent.
    pub bytes: u64,
    /// Packets sent completely.
    pub packets: u64,
    /// Time sending.
    pub busy_ps: u64,
    /// Time with data but no credit, the transmitter being idle: PortXmitWait.
    pub stall_ps: u64,
    /// Time in which data waited while the transmitter sent other data.
    pub queue_ps: u64,
    /// Time in which the input buffer at the far end, if that is a switch, held a packet that
    /// could have left and had not begun to: what Cray's routers call an inq stall.
    pub inq_ps: u64,
}

/// Queue lengths of a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueLengths {
    /// Bytes waiting for credit.
    pub waiting_bytes: u64,
    /// Bytes booked on the transmitter and not sent yet; they have credit.
    pub booked_bytes: u64,
    /// Packets of both kinds, including one that is being sent.
    pub packets: u32,
}

/// Index of [`PortCounters::inq_ps`] among the numbers.
pub(super) const INQ_PS: usize = 5;

impl PortCounters {
    /// Its numbers, in column order.
    pub(super) fn numbers(&self) -> [u64; Self::NUMBERS] {
        let Self { bytes, packets, busy_ps, stall_ps, queue_ps, inq_ps } = *self;
        [bytes, packets, busy_ps, stall_ps, queue_ps, inq_ps]
    }
}

impl Reading for PortCounters {
    const NUMBERS: usize = 6;

    fn of(number: impl Fn(usize) -> u64) -> Self {
        Self {
            bytes: number(0),
            packets: number(1),
            busy_ps: number(2),
            stall_ps: number(3),
            queue_ps: number(4),
            inq_ps: number(INQ_PS),
        }
    }
}

impl QueueLengths {
    /// Its numbers, in column order.
    pub(super) fn numbers(&self) -> [u64; Self::NUMBERS] {
        let Self { waiting_bytes, booked_bytes, packets } = *self;
        [waiting_bytes, booked_bytes, packets.into()]
    }
}

impl Reading for QueueLengths {
    const NUMBERS: usize = 3;

    fn of(number: impl Fn(usize) -> u64) -> Self {
        Self { waiting_bytes: number(0), booked_bytes: number(1), packets: number(2) as u32 }
    }
}
