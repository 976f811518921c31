//! What ports show at an instant.

use tailback_telemetry::Column;

use super::sampled::Reading;

/// What a port has counted since the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
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
pub struct Queued {
    /// Bytes in line.
    pub waiting_bytes: u64,
    /// Bytes the transmitter has taken on and not sent yet: they have their credit.
    pub booked_bytes: u64,
    /// Packets of both kinds, one that is being sent included.
    pub packets: u32,
}

impl Reading for Counted {
    const NUMBERS: usize = 6;

    fn extend(columns: &mut [Column], rows: &[(u32, Self)]) {
        columns[0].extend(rows.iter().map(|(_, counted)| counted.bytes));
        columns[1].extend(rows.iter().map(|(_, counted)| counted.packets));
        columns[2].extend(rows.iter().map(|(_, counted)| counted.busy_ps));
        columns[3].extend(rows.iter().map(|(_, counted)| counted.stall_ps));
        columns[4].extend(rows.iter().map(|(_, counted)| counted.queue_ps));
        columns[5].extend(rows.iter().map(|(_, counted)| counted.inq_ps));
    }

    fn at(columns: &[Column], place: usize) -> Self {
        let number = |column: usize| columns[column].at(place);
        Self {
            bytes: number(0),
            packets: number(1),
            busy_ps: number(2),
            stall_ps: number(3),
            queue_ps: number(4),
            inq_ps: number(5),
        }
    }
}

impl Reading for Queued {
    const NUMBERS: usize = 3;

    fn extend(columns: &mut [Column], rows: &[(u32, Self)]) {
        columns[0].extend(rows.iter().map(|(_, queued)| queued.waiting_bytes));
        columns[1].extend(rows.iter().map(|(_, queued)| queued.booked_bytes));
        columns[2].extend(rows.iter().map(|(_, queued)| queued.packets.into()));
    }

    fn at(columns: &[Column], place: usize) -> Self {
        let number = |column: usize| columns[column].at(place);
        Self { waiting_bytes: number(0), booked_bytes: number(1), packets: number(2) as u32 }
    }
}
