use super::*;
use crate::posts::PostContext;

const MPI_SEND: u32 = 1;
const SOLVE: u32 = 2;
const MAIN: u32 = 3;

const INNER: u32 = 4;

fn enter(region: u32) -> TraceEvent {
    TraceEvent::Enter { region, processor: NO_ID }
}

fn classes() -> ById<RegionClass> {
    ById::new(&HashMap::from([
        (MPI_SEND, RegionClass::Mpi),
        (SOLVE, RegionClass::Phase),
        (INNER, RegionClass::Phase),
        (MAIN, RegionClass::Outer),
    ]))
}

#[test]
fn a_record_has_its_call_and_its_phase() {
    let (classes, none) = (classes(), HashMap::new());
    let mut collector = Collector::new(7, &classes, &none, 100);
    for (time, event) in [
        (0, enter(MAIN)),
        (1, enter(SOLVE)),
        (2, enter(MPI_SEND)),
        (3, TraceEvent::Send { peer: 4, comm: 0, tag: 9, bytes: 8 }),
        (4, TraceEvent::Leave { region: MPI_SEND }),
        (5, TraceEvent::Leave { region: SOLVE }),
        (6, enter(MPI_SEND)),
        (7, TraceEvent::Send { peer: 4, comm: 0, tag: 9, bytes: 8 }),
    ] {
        assert!(collector.event(time + 1, time, event));
    }
    let out = collector.finish(8);
    assert_eq!(out.messages.call, [0, 1]);
    assert_eq!(out.messages.phase, [SOLVE, NONE]);
    assert_eq!(out.messages.path, [0, NONE]);
    assert_eq!(out.paths.region, [SOLVE]);
    assert_eq!(out.calls.enter, [2, 6]);
    assert_eq!(out.calls.path, [0, NONE]);
    // The trace ends within the second call.
    assert_eq!(out.calls.leave, [4, 7]);
}

#[test]
fn equal_paths_share_a_row_and_contexts_supply_sites() {
    let classes = classes();
    let context = |region, site, parent| Context { region, site, parent };
    let contexts = HashMap::from([
        (0, context(MAIN, NONE, NONE)),
        (1, context(SOLVE, 70, 0)),
        (2, context(MPI_SEND, 71, 1)),
        (3, context(MPI_SEND, 71, 3)),
    ]);
    let mut collector = Collector::new(7, &classes, &contexts, 100);
    let send = TraceEvent::Send { peer: 4, comm: 0, tag: 9, bytes: 8 };
    for (time, event) in [
        (0, enter(SOLVE)),
        (1, enter(INNER)),
        (2, send),
        (3, TraceEvent::Leave { region: INNER }),
        (4, enter(INNER)),
        (5, send),
        (6, TraceEvent::Leave { region: SOLVE }),
        (7, TraceEvent::ContextEnter { context: 2, processor: NO_ID }),
        (8, send),
        (9, TraceEvent::ContextLeave { context: 2 }),
    ] {
        assert!(collector.event(time + 1, time, event), "{time}");
    }
    assert!(!collector.event(11, 10, TraceEvent::ContextEnter { context: 3, processor: NO_ID }));
    let out = collector.finish(10);
    assert_eq!(out.messages.path, [1, 1, 2]);
    assert_eq!(out.messages.phase, [INNER, INNER, SOLVE]);
    assert_eq!(out.paths.parent, [NONE, 0, NONE]);
    assert_eq!(out.paths.region, [SOLVE, INNER, SOLVE]);
    assert_eq!(out.paths.site, [NONE, NONE, 70]);
}

#[test]
fn a_reused_request_completes_its_latest_post() {
    let (classes, none) = (classes(), HashMap::new());
    let mut collector = Collector::new(0, &classes, &none, 100);
    let mut position = 0;
    let irecv = TraceEvent::Irecv { peer: 0, comm: 0, tag: 0, bytes: 1, request: 5 };
    for event in [
        TraceEvent::IrecvRequest { request: 5 },
        irecv,
        TraceEvent::IrecvRequest { request: 5 },
        TraceEvent::Isend { peer: 0, comm: 0, tag: 0, bytes: 1, request: 6 },
        irecv,
        TraceEvent::RequestCancelled { request: 6 },
        TraceEvent::IsendComplete { request: 6 },
    ] {
        position += 1;
        assert!(collector.event(position, 1, event));
    }
    let posted = collector.finish(7).messages.posted;
    assert_eq!(posted, [NONE, 0, NONE, NONE, 2, 3, NONE]);
}

#[test]
fn a_probed_message_is_received_once() {
    let (classes, none) = (classes(), HashMap::new());
    let mut collector = Collector::new(0, &classes, &none, 100);
    let probe = |message| TraceEvent::Probe { peer: 3, comm: 0, tag: 9, message };
    let mut position = 0;
    for event in [
        probe(NO_ID),
        probe(7),
        probe(8),
        TraceEvent::Mrecv { message: 8, bytes: 20 },
        TraceEvent::ImrecvRequest { message: 7, request: 5 },
        TraceEvent::Imrecv { request: 5, bytes: 10 },
        TraceEvent::Mrecv { message: 8, bytes: 30 },
    ] {
        position += 1;
        assert!(collector.event(position, 1, event));
    }
    let out = collector.finish(7).messages;
    assert_eq!(out.kind, [11, 11, 12, 13, 14, 12]);
    assert_eq!(out.probed, [NONE, NONE, 1, 0, NONE, NONE]);
    assert_eq!(out.posted, [NONE, NONE, NONE, NONE, 3, NONE]);
    assert_eq!(out.bytes, [0, 0, 20, 0, 10, 30]);
}

#[test]
fn invalid_events_stop_the_reading() {
    let (classes, none) = (classes(), HashMap::new());
    let mut endless = Collector::new(0, &classes, &none, 1);
    assert!(endless.event(1, 0, TraceEvent::CollectiveBegin));
    assert!(!endless.event(2, 0, TraceEvent::CollectiveBegin));
    assert!(endless.fault.is_some_and(|fault| fault.contains("more events than bytes")));

    let mut unknown = Collector::new(0, &classes, &none, 9);
    assert!(!unknown.event(1, 0, enter(99)));
    assert_eq!(unknown.fault.as_deref(), Some("region 99 is not defined"));

    let mut backwards = Collector::new(0, &classes, &none, 9);
    assert!(backwards.event(1, 5, TraceEvent::CollectiveBegin));
    assert!(!backwards.event(2, 4, TraceEvent::CollectiveBegin));
    assert!(backwards.fault.is_some());
}

#[test]
fn one_sided_operations_have_communicator_and_completion() {
    let (classes, none, windows) = (classes(), HashMap::new(), HashMap::from([(4, 9)]));
    let mut collector = Collector::new(0, &classes, &none, 100);
    collector.windows = Some(&windows);
    let operation = |window, id| TraceEvent::OneSided { window, peer: 3, sent: 8, received: 2, id };
    let mut position = 0;
    for event in [
        operation(4, 70),
        operation(5, 71),
        TraceEvent::OneSidedComplete { id: 71 },
        TraceEvent::OneSidedComplete { id: 70 },
        TraceEvent::OneSidedComplete { id: 70 },
        TraceEvent::OneSidedSync { window: 4 },
    ] {
        position += 1;
        assert!(collector.event(position, 1, event));
    }
    let out = collector.finish(5).messages;
    assert_eq!(out.kind, [15, 15, 16, 16, 16, 17]);
    assert_eq!(out.comm, [9, NONE, NONE, NONE, NONE, 9]);
    assert_eq!((out.tag[0], out.tag[1], out.tag[5]), (4, 5, 4));
    assert_eq!((out.bytes[0], out.received[0]), (8, 2));
    assert_eq!(out.posted[2..5], [1, 0, NONE]);
}

#[test]
fn a_collective_names_the_string_with_its_sizes() {
    let (classes, none) = (classes(), HashMap::new());
    let mut collector = Collector::new(7, &classes, &none, 100);
    let of = |sizes| TraceEvent::CollectiveEnd {
        operation: 9,
        comm: 0,
        root: NONE,
        sent: 8,
        received: 2,
        sizes,
    };
    let started = TraceEvent::IcollectiveComplete {
        operation: 9,
        comm: 0,
        root: NONE,
        sent: 8,
        received: 2,
        request: 5,
        sizes: 4,
    };
    let events = [of(3), of(NONE), TraceEvent::IcollectiveRequest { request: 5 }, started];
    for (time, event) in (0..).zip(events) {
        assert!(collector.event(time + 1, time, event));
    }
    let out = collector.finish(4).messages;
    assert_eq!(out.message, [3, NO_ID, NO_ID, 4]);
    assert_eq!((out.request[3], out.posted[3]), (5, 2));
}

#[test]
fn a_computation_takes_its_processor_time() {
    // Wall time between the calls, whether it was paused, processor time; the computation.
    for (wall, paused, processor, expected) in [
        (100, false, NO_ID, Some(100_000)),
        (100, true, NO_ID, None),
        (100, false, 30, Some(30_000)),
        (100, true, 30, Some(30_000)),
        (100, false, 0, None),
        // A clock that says more than passed is wrong.
        (100, false, u64::MAX - 1, Some(100_000)),
    ] {
        let (classes, none, communicators) =
            (classes(), HashMap::new(), ById::new(&HashMap::new()));
        let mut collector = Collector::new(0, &classes, &none, 100);
        let context = PostContext { communicators: &communicators, ps_per_tick: 1e3, rank: 0 };
        collector.posts = Some(PostBuilder::new(context));
        collector.has_processor = true;
        collector.paused = paused;
        collector.posts.as_mut().unwrap().begin_call(MPI_SEND, 5, 1, (false, NO_ID));
        collector.posts.as_mut().unwrap().end_call(5, 2);
        let call = TraceEvent::Enter { region: MPI_SEND, processor };
        assert!(collector.event(3, 5 + wall, call));
        let computes = collector.finish_posts(3).unwrap().computes;
        assert_eq!(computes.first().map(|row| row.ps), expected, "{wall} {paused} {processor}");
    }
}
