//! Sends and receives of one location as rows of a program, built while its events are read.
//!
//! Most traces record the partner and the completion of every message, and one thread of each rank
//! calls MPI. Their events become posts at once, so that neither events nor calls need to be kept:
//! a post takes 40 bytes, where the records of a message and of the calls around it take several
//! hundred. Any other trace is *unusual*. The caller then reads it into columns for the general
//! compiler.

use std::collections::HashMap;

use tailback_readers::numbering::{Interner, Map};
use tailback_readers::post_rows::{ComputeRow, NO_PEER, NO_WAIT, PostRow};

use crate::definitions::Communicator;
use crate::event::TraceEvent;
use crate::lookup::{ById, OpenIds};
use crate::tables::{LocationEvents, NO_ID, NONE, RecordKind};

/// MPI_PROC_NULL of Open MPI as value of a rank column; that of MPICH is [`NONE`].
const OPEN_MPI_PROC_NULL: u32 = u32::MAX - 1;
/// The peer of a receive that turned out to be of MPI_PROC_NULL.
const NOBODY: u32 = NO_PEER;

/// Calls of one region by a location.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RegionCalls {
    /// Number of calls.
    pub calls: u64,
    /// Number of calls with a message record.
    pub recorded: u64,
    /// Number of calls that the tables of the location leave out.
    pub left_out: u64,
    /// Ticks in all calls together.
    pub ticks: i64,
}

/// What the label of a message is made from; equal for many messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PostLabel {
    /// Region of the application around it, [`NONE`] if none.
    pub phase: u32,
    /// Row of the location's call paths, [`NONE`] if none.
    pub path: u32,
    /// Region of the call, or -1 less the kind of the record outside of calls.
    pub call: i64,
    /// Index into [`LocationPosts::channels`].
    pub channel: u32,
}

/// What one location contributes to a program.
#[derive(Debug, Default, Clone)]
pub struct LocationPosts {
    /// Collectives, the calls that contain them, and call paths; counts of all events.
    pub events: LocationEvents,
    /// Sends and receives; channels and labels are indices into the two tables.
    pub posts: Vec<PostRow>,
    /// Computations between calls.
    pub computes: Vec<ComputeRow>,
    /// Communicator and tag of each channel.
    pub channels: Vec<(u32, u32)>,
    /// Labels.
    pub labels: Vec<PostLabel>,
    /// Calls by region.
    pub regions: HashMap<u32, RegionCalls>,
    /// Sends and receives of MPI_PROC_NULL, which are left out.
    pub proc_null: u64,
}

/// Where in the program a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RecordPlace {
    pub phase: u32,
    pub path: u32,
    /// Region of the call, [`NONE`] outside of calls.
    pub call: u32,
}

/// What a request waits for.
#[derive(Debug, Clone, Copy)]
enum Open {
    /// A send: its post.
    Send(u32),
    /// A send to MPI_PROC_NULL.
    Nothing,
    /// A receive: its post and its place.
    Receive(u32, u32),
}

/// An open call.
#[derive(Debug, Default, Clone, Copy)]
struct OpenCall {
    region: u32,
    enter: u64,
    recorded: bool,
    collective: bool,
    /// First post of the call that is complete when it returns.
    blocking: Option<u32>,
}

/// Values shared by all locations.
pub(crate) struct PostContext<'a> {
    pub communicators: &'a ById<&'a Communicator>,
    pub ps_per_tick: f64,
    pub rank: u32,
}

/// The trace needs the general compiler.
#[derive(Debug)]
pub(crate) struct Unusual;

/// Builds [`LocationPosts`].
pub(crate) struct PostBuilder<'a> {
    of: PostContext<'a>,
    call: OpenCall,
    /// Ticks when the latest call was left.
    left: Option<u64>,
    open: OpenIds<Open>,
    channel_numbers: Interner,
    places: Vec<(RecordPlace, u8)>,
    place_numbers: Map<(RecordPlace, u8), u32>,
    label_numbers: Interner,
    dropped: bool,
    pub out: LocationPosts,
}

impl<'a> PostBuilder<'a> {
    /// A builder for the posts of a rank.
    pub fn new(of: PostContext<'a>) -> Self {
        Self {
            of,
            call: OpenCall::default(),
            left: None,
            open: OpenIds::default(),
            channel_numbers: Interner::default(),
            places: Vec::new(),
            place_numbers: Map::default(),
            label_numbers: Interner::default(),
            dropped: false,
            out: LocationPosts::default(),
        }
    }

    /// Begins a call; the time since the previous one is a computation. It takes its processor time
    /// (ns) where that was recorded, and no time if recording was paused.
    pub(crate) fn begin_call(
        &mut self,
        region: u32,
        time: u64,
        event: u64,
        (paused, processor): (bool, u64),
    ) {
        self.call = OpenCall { region, enter: time, ..OpenCall::default() };
        let gap = self.left.map_or(0, |left| time.saturating_sub(left));
        let timed = processor != NO_ID;
        if gap > 0 && (timed || !paused) {
            let wall = (gap as f64 * self.of.ps_per_tick).round_ties_even() as u64;
            let ps = if timed { wall.min(processor.saturating_mul(1000)) } else { wall };
            if ps > 0 {
                let (rank, position) = (self.of.rank, event as u32);
                self.out.computes.push(ComputeRow { rank, position, ps });
            }
        }
    }

    /// Ends a call; returns whether its row must be kept.
    pub(crate) fn end_call(&mut self, time: u64, event: u64) -> bool {
        let call = self.call;
        self.left = Some(time);
        if let Some(first) = call.blocking {
            for post in &mut self.out.posts[first as usize..] {
                if post.wait == post.position {
                    post.wait = event as u32;
                }
            }
        }
        let region = self.out.regions.entry(call.region).or_default();
        region.calls += 1;
        region.recorded += u64::from(call.recorded);
        region.left_out += u64::from(!call.collective);
        region.ticks += time.wrapping_sub(call.enter) as i64;
        call.collective
    }

    /// Notes a collective in the current call.
    pub fn collective(&mut self) {
        (self.call.recorded, self.call.collective) = (true, true);
    }

    /// Takes a record of a message between two ranks.
    pub fn record(&mut self, event: u64, what: TraceEvent, at: RecordPlace) -> Result<(), Unusual> {
        self.call.recorded = true;
        let now = event as u32;
        match what {
            TraceEvent::Send { peer, comm, tag, bytes } => {
                self.blocking(now, (peer, comm, tag, bytes), (at, RecordKind::Send), true)
            }
            TraceEvent::Recv { peer, comm, tag, bytes } => {
                self.blocking(now, (peer, comm, tag, bytes), (at, RecordKind::Recv), false)
            }
            TraceEvent::Isend { peer, comm, tag, bytes, request } => {
                if is_nobody(peer) {
                    self.out.proc_null += 1;
                    return self.insert(request, Open::Nothing);
                }
                let (peer, channel) = (self.peer(peer, comm)?, self.channel(comm, tag));
                let label = self.label((at, RecordKind::Isend), channel);
                let row = PostRow::new(bytes, (now, NO_WAIT), peer, channel);
                let post = self.push(row.marked(label, true));
                self.insert(request, Open::Send(post))
            }
            TraceEvent::IsendComplete { request } => match self.open.remove(request) {
                Some(Open::Send(post)) => {
                    self.out.posts[post as usize].wait = now;
                    Ok(())
                }
                Some(Open::Nothing) => Ok(()),
                _ => Err(Unusual),
            },
            TraceEvent::IrecvRequest { request } => {
                let place = self.place((at, RecordKind::IrecvRequest));
                let post = self.push(PostRow::new(0, (now, NO_WAIT), NOBODY, 0));
                self.insert(request, Open::Receive(post, place))
            }
            TraceEvent::Irecv { peer, comm, tag, bytes, request } => {
                let Some(Open::Receive(post, place)) = self.open.remove(request) else {
                    return Err(Unusual);
                };
                self.received(now, (peer, comm, tag, bytes), (post, place))
            }
            TraceEvent::RequestTest { .. } => Ok(()),
            _ => Err(Unusual),
        }
    }

    fn blocking(
        &mut self,
        now: u32,
        (peer, comm, tag, bytes): (u32, u32, u32, u64),
        place: (RecordPlace, RecordKind),
        is_send: bool,
    ) -> Result<(), Unusual> {
        if is_nobody(peer) {
            self.out.proc_null += 1;
            return Ok(());
        }
        let (peer, channel) = (self.peer(peer, comm)?, self.channel(comm, tag));
        let label = self.label(place, channel);
        // Waited for where the call returns, if it is in a call; set then.
        let row = PostRow::new(bytes, (now, now), peer, channel).marked(label, is_send);
        let post = self.push(row);
        if place.0.call != NONE {
            self.call.blocking.get_or_insert(post);
        }
        Ok(())
    }

    fn received(
        &mut self,
        now: u32,
        (peer, comm, tag, bytes): (u32, u32, u32, u64),
        (post, place): (u32, u32),
    ) -> Result<(), Unusual> {
        if is_nobody(peer) {
            self.out.proc_null += 1;
            self.dropped = true;
            return Ok(());
        }
        let (peer, channel) = (self.peer(peer, comm)?, self.channel(comm, tag));
        let label = self.label_of(place, channel);
        let row = &mut self.out.posts[post as usize];
        *row = PostRow::new(bytes, (row.position, now), peer, channel).marked(label, false);
        Ok(())
    }

    /// The tables; an error if a request is still open.
    pub fn finish(mut self, events: LocationEvents) -> Result<LocationPosts, Unusual> {
        if !self.open.is_empty() {
            return Err(Unusual);
        }
        if self.dropped {
            self.out.posts.retain(|post| post.peer != NOBODY);
        }
        self.out.posts.shrink_to_fit();
        self.out.computes.shrink_to_fit();
        Ok(LocationPosts { events, ..self.out })
    }

    fn push(&mut self, row: PostRow) -> u32 {
        self.out.posts.push(row);
        self.out.posts.len() as u32 - 1
    }

    /// World rank of a member of a communicator.
    #[inline]
    fn peer(&self, peer: u32, comm: u32) -> Result<u32, Unusual> {
        match self.of.communicators.get(comm) {
            Some(communicator) if communicator.is_self => Ok(self.of.rank),
            Some(communicator) if communicator.remote.is_none() => {
                communicator.members.get(peer as usize).copied().ok_or(Unusual)
            }
            _ => Err(Unusual),
        }
    }

    #[inline]
    fn channel(&mut self, comm: u32, tag: u32) -> u32 {
        let (number, is_new) = self.channel_numbers.number(comm, tag.into());
        if is_new {
            self.out.channels.push((comm, tag));
        }
        number
    }

    #[inline]
    fn place(&mut self, (at, kind): (RecordPlace, RecordKind)) -> u32 {
        let kind = if at.call == NONE { kind as u8 } else { 0 };
        if let Some(index) = self.places.iter().take(8).position(|place| *place == (at, kind)) {
            return index as u32;
        }
        let places = &mut self.places;
        *self.place_numbers.entry((at, kind)).or_insert_with(|| {
            places.push((at, kind));
            places.len() as u32 - 1
        })
    }

    #[inline]
    fn label(&mut self, place: (RecordPlace, RecordKind), channel: u32) -> u32 {
        let place = self.place(place);
        self.label_of(place, channel)
    }

    #[inline]
    fn label_of(&mut self, place: u32, channel: u32) -> u32 {
        let (number, is_new) = self.label_numbers.number(place, channel.into());
        if is_new {
            let (at, kind) = self.places[place as usize];
            let call = if at.call == NONE { -1 - i64::from(kind) } else { at.call.into() };
            let (phase, path) = (at.phase, at.path);
            self.out.labels.push(PostLabel { phase, path, call, channel });
        }
        number
    }

    /// Opens a request. If it is open already, it was never completed.
    #[inline]
    fn insert(&mut self, request: u64, what: Open) -> Result<(), Unusual> {
        self.open.insert(request, what).map_or(Ok(()), |_| Err(Unusual))
    }
}

fn is_nobody(peer: u32) -> bool {
    peer == NONE || peer == OPEN_MPI_PROC_NULL
}
