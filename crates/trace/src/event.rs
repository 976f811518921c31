//! The OTF2 events that are read, and the trait of their receiver.

/// One event, with the fields that the library passes to the callback.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TraceEvent {
    Enter {
        region: u32,
        /// Processor time since the previous call, ns; `NO_ID` if it was not recorded.
        processor: u64,
    },
    Leave {
        region: u32,
    },
    ContextEnter {
        context: u32,
        /// As of an enter.
        processor: u64,
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
        /// String with the bytes to each partner; `NONE` if there is none.
        sizes: u32,
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
        /// As of a blocking collective.
        sizes: u32,
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
    OneSided {
        window: u32,
        peer: u32,
        sent: u64,
        received: u64,
        id: u64,
    },
    OneSidedComplete {
        id: u64,
    },
    /// A call opens or closes an epoch of this window.
    OneSidedSync {
        window: u32,
    },
}

/// Receives the events of one location in order.
pub(crate) trait EventSink {
    /// Receives record number `position` of the location, counted from 1, at `time` ticks; returns
    /// `false` to stop reading.
    fn event(&mut self, position: u64, time: u64, event: TraceEvent) -> bool;
}
