//! The events of a trace, as far as they are read, and who takes them.

/// One event, as the library hands it over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TraceEvent {
    Enter {
        region: u32,
    },
    Leave {
        region: u32,
    },
    ContextEnter {
        context: u32,
    },
    ContextLeave {
        context: u32,
    },
    MeasurementOnOff,
    Send {
        peer: u32,
        comm: u32,
        tag: u32,
        bytes: u64,
    },
    Isend {
        peer: u32,
        comm: u32,
        tag: u32,
        bytes: u64,
        request: u64,
    },
    IsendComplete {
        request: u64,
    },
    IrecvRequest {
        request: u64,
    },
    Recv {
        peer: u32,
        comm: u32,
        tag: u32,
        bytes: u64,
    },
    Irecv {
        peer: u32,
        comm: u32,
        tag: u32,
        bytes: u64,
        request: u64,
    },
    RequestTest {
        request: u64,
    },
    RequestCancelled {
        request: u64,
    },
    CollectiveBegin,
    CollectiveEnd {
        operation: u8,
        comm: u32,
        root: u32,
        sent: u64,
        received: u64,
    },
    IcollectiveRequest {
        request: u64,
    },
    IcollectiveComplete {
        operation: u8,
        comm: u32,
        root: u32,
        sent: u64,
        received: u64,
        request: u64,
    },
    Probe {
        peer: u32,
        comm: u32,
        tag: u32,
        message: u64,
    },
    Mrecv {
        message: u64,
        bytes: u64,
    },
    ImrecvRequest {
        message: u64,
        request: u64,
    },
    Imrecv {
        request: u64,
        bytes: u64,
    },
}

/// Takes the events of one location in order.
pub(crate) trait EventSink {
    /// Takes the `position`-th record of the location, counted from 1, at `time` ticks; `false`
    /// stops the reading.
    fn event(&mut self, position: u64, time: u64, event: TraceEvent) -> bool;
}
