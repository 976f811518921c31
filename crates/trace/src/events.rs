//! Builds the tables of MPI calls and message records from the events of one location.

use std::collections::HashMap;

use crate::definitions::{Context, RegionClass};
use crate::event::{EventSink, TraceEvent};
use crate::lookup::{ById, OpenIds};
use crate::posts::{LocationPosts, PostBuilder, RecordPlace, Unusual};
use crate::tables::{LocationEvents, NO_ID, NONE, RecordKind};

/// Columns of a row that refer to other rows.
#[derive(Clone, Copy)]
struct Ids {
    request: u64,
    message: u64,
    posted: u32,
    probed: u32,
}

impl Ids {
    const NONE: Self = Self { request: NO_ID, message: NO_ID, posted: NONE, probed: NONE };

    /// Ids of a collective whose sizes are in a string.
    fn sizes(string: u32) -> Self {
        let message = if string == NONE { NO_ID } else { u64::from(string) };
        Self { message, ..Self::NONE }
    }
}

/// Builds [`LocationEvents`] from the events of one location.
pub(crate) struct Collector<'a> {
    classes: &'a ById<RegionClass>,
    contexts: &'a HashMap<u32, Context>,
    /// Upper bound of the number of events: the library must not read a damaged file in a loop.
    limit: u64,
    /// Number of intact records so far.
    seen: u64,
    last_time: u64,
    /// Why reading stopped, if an event was invalid.
    pub fault: Option<String>,
    /// Number of open MPI regions; the outermost is the call.
    mpi_depth: u32,
    paused: bool,
    /// Open phases of the application and the call path of each.
    phases: Vec<(u32, u32)>,
    /// Call path of the open MPI call.
    call_path: u32,
    known_paths: HashMap<(u32, u32, u32), u32>,
    path_of_context: HashMap<u32, u32>,
    /// Row that posted each open request.
    posted: OpenIds<u32>,
    /// Row that found each message of a matched probe.
    probed: OpenIds<u32>,
    /// Row of each one-sided operation that is not complete.
    one_sided: OpenIds<u32>,
    /// Communicator of each window.
    pub windows: Option<&'a HashMap<u32, u32>>,
    /// Takes the messages between two ranks, instead of the table of records.
    pub posts: Option<PostBuilder<'a>>,
    /// Whether the trace has processor times of the intervals between calls.
    pub has_processor: bool,
    /// Whether `posts` cannot take them, so that reading stopped.
    pub unusual: bool,
    out: LocationEvents,
}

impl<'a> Collector<'a> {
    /// A collector for `location` that refuses more than `limit` events.
    pub fn new(
        location: u64,
        classes: &'a ById<RegionClass>,
        contexts: &'a HashMap<u32, Context>,
        limit: u64,
    ) -> Self {
        Self {
            classes,
            contexts,
            limit,
            seen: 0,
            last_time: 0,
            fault: None,
            mpi_depth: 0,
            paused: false,
            phases: Vec::new(),
            call_path: NONE,
            known_paths: HashMap::new(),
            path_of_context: HashMap::new(),
            posted: OpenIds::default(),
            probed: OpenIds::default(),
            one_sided: OpenIds::default(),
            windows: None,
            posts: None,
            has_processor: false,
            unusual: false,
            out: LocationEvents { location, ..LocationEvents::default() },
        }
    }

    /// Number of records up to the last intact one.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the tables; a call that is still open ends at the last event.
    pub fn finish(mut self, records: u64) -> LocationEvents {
        if self.mpi_depth > 0 {
            self.close_call(self.last_time);
        }
        self.out.records = records;
        self.out
    }

    /// Returns the tables and the posts.
    pub fn finish_posts(mut self, records: u64) -> Result<LocationPosts, Unusual> {
        if self.mpi_depth > 0 {
            self.close_call(self.last_time);
            self.mpi_depth = 0;
        }
        let posts = self.posts.take().ok_or(Unusual)?;
        posts.finish(self.finish(records))
    }

    fn close_call(&mut self, time: u64) {
        let kept = self.posts.as_mut().is_none_or(|posts| posts.end_call(time, self.seen));
        self.end_row(kept.then_some(time));
    }

    /// Completes the row of the open call, or removes it if it is not kept.
    fn end_row(&mut self, left: Option<u64>) {
        let calls = &mut self.out.calls;
        if let Some(time) = left {
            calls.leave.push(time);
            calls.leave_event.push(self.seen);
        } else {
            calls.region.pop();
            calls.enter.pop();
            calls.paused.pop();
            calls.processor.pop();
            calls.enter_event.pop();
            calls.path.pop();
        }
    }

    /// Row of the path that extends `parent` by a frame.
    fn path(&mut self, parent: u32, region: u32, site: u32) -> u32 {
        let paths = &mut self.out.paths;
        *self.known_paths.entry((parent, region, site)).or_insert_with(|| {
            paths.parent.push(parent);
            paths.region.push(region);
            paths.site.push(site);
            paths.region.len() as u32 - 1
        })
    }

    /// Row of the path of a calling context; only phases of the application are frames of it.
    fn context_path(&mut self, context: u32) -> Result<u32, String> {
        let mut frames = Vec::new();
        let mut at = context;
        let mut path = NONE;
        while at != NONE {
            if let Some(&row) = self.path_of_context.get(&at) {
                path = row;
                break;
            }
            let frame = *self
                .contexts
                .get(&at)
                .ok_or_else(|| format!("calling context {at} is not defined"))?;
            if frames.len() > self.contexts.len() {
                return Err(format!("calling context {context} is its own ancestor"));
            }
            frames.push((at, frame));
            at = frame.parent;
        }
        for (id, frame) in frames.into_iter().rev() {
            if self.classes.get(frame.region) == Some(RegionClass::Phase) {
                path = self.path(path, frame.region, frame.site);
            }
            self.path_of_context.insert(id, path);
        }
        Ok(path)
    }

    /// The path of the innermost open phase.
    fn innermost_path(&self) -> u32 {
        self.phases.last().map_or(NONE, |&(_, path)| path)
    }

    fn enter(
        &mut self,
        time: u64,
        region: u32,
        inside: Option<u32>,
        processor: u64,
    ) -> Result<(), String> {
        self.out.enters += 1;
        match self.classes.get(region) {
            Some(RegionClass::Mpi) => {
                if self.mpi_depth == 0 {
                    let paused = std::mem::take(&mut self.paused);
                    if let Some(posts) = &mut self.posts {
                        posts.begin_call(region, time, self.seen, (paused, processor));
                    }
                    self.out.calls.region.push(region);
                    self.out.calls.enter.push(time);
                    self.out.calls.paused.push(paused);
                    if self.has_processor {
                        self.out.calls.processor.push(processor);
                    }
                    self.out.calls.enter_event.push(self.seen);
                    self.call_path = inside.unwrap_or_else(|| self.innermost_path());
                    self.out.calls.path.push(self.call_path);
                }
                self.mpi_depth += 1;
            }
            Some(RegionClass::Phase) => {
                let path = match inside {
                    Some(path) => path,
                    None => self.path(self.innermost_path(), region, NONE),
                };
                self.phases.push((region, path));
            }
            Some(RegionClass::Outer) => {}
            None => return Err(format!("region {region} is not defined")),
        }
        Ok(())
    }

    fn leave(&mut self, time: u64, region: u32) -> Result<(), String> {
        self.out.leaves += 1;
        match self.classes.get(region) {
            Some(RegionClass::Mpi) => {
                // If recording was switched on within a call, the call has a leave event but no
                // enter event.
                if self.mpi_depth > 0 {
                    self.mpi_depth -= 1;
                    if self.mpi_depth == 0 {
                        self.close_call(time);
                    }
                }
            }
            Some(RegionClass::Phase) => {
                if let Some(at) = self.phases.iter().rposition(|&(open, _)| open == region) {
                    self.phases.truncate(at);
                }
            }
            Some(RegionClass::Outer) => {}
            None => return Err(format!("region {region} is not defined")),
        }
        Ok(())
    }

    /// Region and call path of the application around the next record.
    #[inline]
    fn phase_and_path(&self) -> (u32, u32) {
        let path = if self.mpi_depth > 0 { self.call_path } else { self.innermost_path() };
        let phase = self.phases.last().map(|&(region, _)| region);
        // Unwinding also finds functions around the call that have no enter event.
        let phase = phase.or_else(|| self.out.paths.region.get(path as usize).copied());
        (phase.unwrap_or(NONE), path)
    }

    /// Appends a row; `what` is (peer, comm, tag, bytes).
    fn push(
        &mut self,
        kind: RecordKind,
        time: u64,
        what: (u32, u32, u32, u64),
        received: u64,
        ids: Ids,
    ) {
        let call = if self.mpi_depth > 0 { self.out.calls.region.len() as u32 - 1 } else { NONE };
        let (phase, path) = self.phase_and_path();
        let m = &mut self.out.messages;
        m.kind.push(kind as u8);
        m.time.push(time);
        m.event.push(self.seen);
        m.call.push(call);
        m.phase.push(phase);
        m.path.push(path);
        m.peer.push(what.0);
        m.comm.push(what.1);
        m.tag.push(what.2);
        m.bytes.push(what.3);
        m.received.push(received);
        m.request.push(ids.request);
        m.message.push(ids.message);
        m.posted.push(ids.posted);
        m.probed.push(ids.probed);
    }

    fn rows(&self) -> u32 {
        self.out.messages.kind.len() as u32
    }

    /// Ids of the next row, which posts a request.
    fn post(&mut self, request: u64) -> Ids {
        self.posted.insert(request, self.rows());
        Ids { request, ..Ids::NONE }
    }

    /// Ids of the next row, which completes or cancels a request.
    fn complete(&mut self, request: u64) -> Ids {
        let posted = self.posted.remove(request).unwrap_or(NONE);
        Ids { request, posted, ..Ids::NONE }
    }

    fn take(&mut self, time: u64, event: TraceEvent) -> Result<(), String> {
        match event {
            TraceEvent::Enter { region, processor } => {
                return self.enter(time, region, None, processor);
            }
            TraceEvent::ContextEnter { context, processor } => {
                let path = self.context_path(context)?;
                let region = self.contexts[&context].region;
                return self.enter(time, region, Some(path), processor);
            }
            TraceEvent::ContextLeave { context } => {
                let region = self
                    .contexts
                    .get(&context)
                    .ok_or_else(|| format!("calling context {context} is not defined"))?
                    .region;
                return self.leave(time, region);
            }
            TraceEvent::Leave { region } => return self.leave(time, region),
            TraceEvent::MeasurementOnOff => self.paused = true,
            TraceEvent::CollectiveBegin => {}
            TraceEvent::CollectiveEnd { .. }
            | TraceEvent::IcollectiveRequest { .. }
            | TraceEvent::IcollectiveComplete { .. } => self.collective(time, event),
            _ => self.message(time, event),
        }
        Ok(())
    }

    /// A record of a message between two ranks.
    fn message(&mut self, time: u64, event: TraceEvent) {
        // A probe without a message id does not remove the message from matching.
        if matches!(event, TraceEvent::Probe { message: NO_ID, .. }) {
            return;
        }
        let (phase, path) = self.phase_and_path();
        let one_sided = matches!(
            event,
            TraceEvent::OneSided { .. }
                | TraceEvent::OneSidedComplete { .. }
                | TraceEvent::OneSidedSync { .. }
        );
        let Some(posts) = &mut self.posts else {
            return if one_sided {
                self.one_sided(time, event)
            } else {
                self.point_to_point(time, event)
            };
        };
        let region = self.out.calls.region.last().filter(|_| self.mpi_depth > 0);
        let at = RecordPlace { phase, path, call: region.copied().unwrap_or(NONE) };
        self.unusual |= posts.record(self.seen, event, at).is_err();
    }

    fn point_to_point(&mut self, time: u64, event: TraceEvent) {
        match event {
            TraceEvent::Send { peer, comm, tag, bytes } => {
                self.push(RecordKind::Send, time, (peer, comm, tag, bytes), 0, Ids::NONE);
            }
            TraceEvent::Isend { peer, comm, tag, bytes, request } => {
                let ids = self.post(request);
                self.push(RecordKind::Isend, time, (peer, comm, tag, bytes), 0, ids);
            }
            TraceEvent::IsendComplete { request } => {
                let ids = self.complete(request);
                self.push(RecordKind::IsendComplete, time, NOTHING, 0, ids);
            }
            TraceEvent::IrecvRequest { request } => {
                let ids = self.post(request);
                self.push(RecordKind::IrecvRequest, time, NOTHING, 0, ids);
            }
            TraceEvent::Recv { peer, comm, tag, bytes } => {
                self.push(RecordKind::Recv, time, (peer, comm, tag, bytes), 0, Ids::NONE);
            }
            TraceEvent::Irecv { peer, comm, tag, bytes, request } => {
                let ids = self.complete(request);
                self.push(RecordKind::Irecv, time, (peer, comm, tag, bytes), 0, ids);
            }
            TraceEvent::RequestTest { request } => {
                let posted = self.posted.get(request).unwrap_or(NONE);
                let ids = Ids { request, posted, ..Ids::NONE };
                self.push(RecordKind::RequestTest, time, NOTHING, 0, ids);
            }
            TraceEvent::RequestCancelled { request } => {
                let ids = self.complete(request);
                self.push(RecordKind::RequestCancelled, time, NOTHING, 0, ids);
            }
            TraceEvent::Probe { peer, comm, tag, message } => {
                self.probed.insert(message, self.rows());
                let ids = Ids { message, ..Ids::NONE };
                self.push(RecordKind::MatchedProbe, time, (peer, comm, tag, 0), 0, ids);
            }
            TraceEvent::Mrecv { message, bytes } => {
                let probed = self.probed.remove(message).unwrap_or(NONE);
                let ids = Ids { message, probed, ..Ids::NONE };
                self.push(RecordKind::Mrecv, time, (NONE, NONE, 0, bytes), 0, ids);
            }
            TraceEvent::ImrecvRequest { message, request } => {
                let probed = self.probed.remove(message).unwrap_or(NONE);
                let ids = Ids { message, probed, ..self.post(request) };
                self.push(RecordKind::ImrecvRequest, time, NOTHING, 0, ids);
            }
            TraceEvent::Imrecv { request, bytes } => {
                let ids = self.complete(request);
                self.push(RecordKind::Imrecv, time, (NONE, NONE, 0, bytes), 0, ids);
            }
            _ => {}
        }
    }

    /// The communicator of a window, [`NONE`] if the trace does not define it.
    fn comm_of(&self, window: u32) -> u32 {
        self.windows.and_then(|all| all.get(&window)).copied().unwrap_or(NONE)
    }

    fn one_sided(&mut self, time: u64, event: TraceEvent) {
        match event {
            TraceEvent::OneSided { window, peer, sent, received, id } => {
                self.one_sided.insert(id, self.rows());
                let of = (peer, self.comm_of(window), window, sent);
                self.push(RecordKind::OneSided, time, of, received, Ids::NONE);
            }
            TraceEvent::OneSidedComplete { id } => {
                let posted = self.one_sided.remove(id).unwrap_or(NONE);
                let ids = Ids { posted, ..Ids::NONE };
                self.push(RecordKind::OneSidedComplete, time, NOTHING, 0, ids);
            }
            TraceEvent::OneSidedSync { window } => {
                let of = (NONE, self.comm_of(window), window, 0);
                self.push(RecordKind::OneSidedSync, time, of, 0, Ids::NONE);
            }
            _ => {}
        }
    }

    fn collective(&mut self, time: u64, event: TraceEvent) {
        if let Some(posts) = &mut self.posts {
            posts.collective();
            self.unusual |= !matches!(event, TraceEvent::CollectiveEnd { .. });
        }
        match event {
            TraceEvent::CollectiveEnd { operation, comm, root, sent, received, sizes } => {
                let what = (root, comm, u32::from(operation), sent);
                self.push(RecordKind::CollectiveEnd, time, what, received, Ids::sizes(sizes));
            }
            TraceEvent::IcollectiveRequest { request } => {
                let ids = self.post(request);
                self.push(RecordKind::IcollectiveRequest, time, NOTHING, 0, ids);
            }
            TraceEvent::IcollectiveComplete {
                operation,
                comm,
                root,
                sent,
                received,
                request,
                sizes,
            } => {
                let ids = Ids { message: Ids::sizes(sizes).message, ..self.complete(request) };
                let what = (root, comm, u32::from(operation), sent);
                self.push(RecordKind::IcollectiveComplete, time, what, received, ids);
            }
            _ => {}
        }
    }
}

/// Peer, communicator, tag and bytes of a record without them.
const NOTHING: (u32, u32, u32, u64) = (NONE, NONE, 0, 0);

impl EventSink for Collector<'_> {
    #[inline]
    fn event(&mut self, position: u64, time: u64, event: TraceEvent) -> bool {
        self.seen = position.saturating_sub(1);
        if self.seen >= self.limit {
            self.fault = Some("the file holds more events than bytes: it is damaged".to_owned());
            return false;
        }
        if time < self.last_time {
            self.fault =
                Some(format!("time runs backwards, from tick {} to {time}", self.last_time));
            return false;
        }
        self.last_time = time;
        let taken = self.take(time, event);
        if let Err(fault) = taken {
            self.fault = Some(fault);
            return false;
        }
        self.seen = position;
        self.unusual |= self.posts.is_some() && position >= u64::from(u32::MAX);
        !self.unusual
    }
}

#[cfg(test)]
mod tests;
