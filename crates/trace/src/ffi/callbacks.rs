//! Functions that the OTF2 library calls for each event.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use crate::definitions::Attributes;
use crate::event::{EventSink, TraceEvent};
use crate::tables::{NO_ID, NONE};

pub(super) type Handle = *mut c_void;
pub(super) type Code = c_int;

pub(super) const CONTINUE: Code = 0;
pub(super) const INTERRUPT: Code = 1;

type HasAttribute = unsafe extern "C" fn(Handle, u32) -> bool;
type ValueOf<T> = unsafe extern "C" fn(Handle, u32, *mut T) -> Code;

/// The library's functions that read attributes of an event.
#[derive(Clone, Copy)]
pub(super) struct AttributeReader {
    pub has: HasAttribute,
    pub string: ValueOf<u32>,
    pub number: ValueOf<u64>,
}

thread_local! {
    /// The attributes of the archive that this thread reads, and the functions that read them.
    static WANTED: Cell<Option<(Attributes, AttributeReader)>> = const { Cell::new(None) };
}

/// Sets the attributes of the archive that this thread is about to read, and the library's
/// functions.
pub(super) fn look_for(attributes: Attributes, reader: AttributeReader) {
    WANTED.set(Some((attributes, reader)));
}

/// Value of an attribute of an event; `none` if the event does not have it.
#[inline]
fn attribute<T>(
    list: Handle,
    none: T,
    of: impl Fn(&Attributes, &AttributeReader) -> (Option<u32>, ValueOf<T>),
) -> T {
    let mut value = none;
    if let Some((wanted, reader)) = WANTED.get().filter(|_| !list.is_null())
        && let (Some(id), read) = of(&wanted, &reader)
    {
        // SAFETY: the functions belong to the library that calls, and take its list of attributes,
        // which is valid during the call; `value` is written if there is such an attribute of this
        // type.
        unsafe {
            if (reader.has)(list, id) {
                read(list, id, &mut value);
            }
        }
    }
    value
}

/// String that the attributes of a collective name; [`NONE`] if there is none.
fn sizes_of(list: Handle) -> u32 {
    attribute(list, NONE, |wanted, reader| (wanted.sizes, reader.string))
}

/// Processor time that the attributes of an enter event state; [`NO_ID`] if they do not.
fn processor_of(list: Handle) -> u64 {
    attribute(list, NO_ID, |wanted, reader| (wanted.processor, reader.number))
}

/// Passes an event to the sink behind `data`; stops the library if the sink returns `false`.
///
/// # Safety
/// `data` is the pointer that `Archive::events` registered for the same `S`.
#[inline]
unsafe fn emit<S: EventSink>(data: Handle, position: u64, time: u64, event: TraceEvent) -> Code {
    // SAFETY: see above; no other reference to the sink is alive while the library reads.
    if unsafe { (*data.cast::<S>()).event(position, time, event) } { CONTINUE } else { INTERRUPT }
}

macro_rules! event_callbacks {
    ($list:ident; $($name:ident($($arg:ident: $type:ty),*) => $event:expr;)*) => {$(
        #[allow(unused_variables)]
        pub(super) unsafe extern "C" fn $name<S: EventSink>(
            _location: u64, time: u64, position: u64, data: Handle, $list: Handle $(, $arg: $type)*
        ) -> Code {
            unsafe { emit::<S>(data, position, time, $event) }
        }
    )*};
}

event_callbacks! {
    list;
    enter(region: u32) => TraceEvent::Enter { region, processor: processor_of(list) };
    leave(region: u32) => TraceEvent::Leave { region };
    context_enter(context: u32) =>
        TraceEvent::ContextEnter { context, processor: processor_of(list) };
    context_leave(context: u32) => TraceEvent::ContextLeave { context };
    measurement(_mode: u8) => TraceEvent::MeasurementOnOff;
    send(peer: u32, comm: u32, tag: u32, bytes: u64) => TraceEvent::Send { peer, comm, tag, bytes };
    recv(peer: u32, comm: u32, tag: u32, bytes: u64) => TraceEvent::Recv { peer, comm, tag, bytes };
    isend(peer: u32, comm: u32, tag: u32, bytes: u64, request: u64) =>
        TraceEvent::Isend { peer, comm, tag, bytes, request };
    isend_complete(request: u64) => TraceEvent::IsendComplete { request };
    irecv_request(request: u64) => TraceEvent::IrecvRequest { request };
    irecv(peer: u32, comm: u32, tag: u32, bytes: u64, request: u64) =>
        TraceEvent::Irecv { peer, comm, tag, bytes, request };
    test(request: u64) => TraceEvent::RequestTest { request };
    cancelled(request: u64) => TraceEvent::RequestCancelled { request };
    collective_begin() => TraceEvent::CollectiveBegin;
    collective_end(operation: u8, comm: u32, root: u32, sent: u64, received: u64) =>
        TraceEvent::CollectiveEnd { operation, comm, root, sent, received, sizes: sizes_of(list) };
    icollective(request: u64) => TraceEvent::IcollectiveRequest { request };
    icollective_complete(operation: u8, comm: u32, root: u32, sent: u64, received: u64, request: u64) =>
        TraceEvent::IcollectiveComplete {
            operation, comm, root, sent, received, request, sizes: sizes_of(list)
        };
    probe(peer: u32, comm: u32, tag: u32, message: u64) => TraceEvent::Probe { peer, comm, tag, message };
    mrecv(message: u64, bytes: u64) => TraceEvent::Mrecv { message, bytes };
    imrecv_request(message: u64, request: u64) => TraceEvent::ImrecvRequest { message, request };
    imrecv(request: u64, bytes: u64) => TraceEvent::Imrecv { request, bytes };
    put(window: u32, peer: u32, sent: u64, id: u64) => TraceEvent::OneSided { window, peer, sent, received: 0, id };
    get(window: u32, peer: u32, received: u64, id: u64) => TraceEvent::OneSided { window, peer, sent: 0, received, id };
    atomic(window: u32, peer: u32, _kind: u8, sent: u64, received: u64, id: u64) =>
        TraceEvent::OneSided { window, peer, sent, received, id };
    rma_complete(_window: u32, id: u64) => TraceEvent::OneSidedComplete { id };
    rma_collective(_kind: u8, _level: u32, window: u32, _root: u32, _sent: u64, _received: u64) =>
        TraceEvent::OneSidedSync { window };
    rma_group(_level: u32, window: u32, _group: u32) => TraceEvent::OneSidedSync { window };
    rma_sync(window: u32, _peer: u32, _kind: u8) => TraceEvent::OneSidedSync { window };
    rma_release(window: u32, _peer: u32, _lock: u64) => TraceEvent::OneSidedSync { window };
}
