//! What ports show at an instant.

use super::series::Reading;

/// What a port has counted since the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Bytes sent, those of a packet under way included.
    pub bytes: u64,
    /// Packets sent whole.
    pub packets: u64,
    /// Time sending.
    pub busy_ps: u64,
    /// Time with data and an idle transmitter, for want of credit: PortXmitWait.
    pub stall_ps: u64,
    /// Time with data that waited while the transmitter sent other data.
    pub queue_ps: u64,
    /// Time the input buffer at the far end, if that is a switch, held a packet that could have left and
    /// had not begun to: what Cray's routers call an inq stall.
    pub inq_ps: u64,
}

/// What a port has to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueLengths {
    /// Bytes in line.
    pub waiting_bytes: u64,
    /// Bytes the transmitter has taken on and not sent yet: they have their credit.
    pub booked_bytes: u64,
    /// Packets of both kinds, one that is being sent included.
    pub packets: u32,
}

/// The place of [`PortCounters::inq_ps`] among the numbers.
pub(super) const INQ_PS: usize = 5;

impl PortCounters {
    /// Its numbers, in the order of the table.
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
    /// Its numbers, in the order of the table.
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
