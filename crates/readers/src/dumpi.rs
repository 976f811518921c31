//! Traces of SST DUMPI: MPI calls with arguments and times, one file per rank, in binary form or as text
//! converted by dumpi2ascii.

mod arguments;
mod ascii;
mod binary;
mod calls;
mod collectives;
mod communicators;
mod rank;
mod signatures;

use crate::numbering::{Interner, Map};
use crate::post_rows::{self, NO_PEER, PostRow, RecordedRanks};
use calls::{ANY, CANCELLED, NO_WAIT, Post, Shared};
use communicators::Communicators;
use rank::RankFile;
use signatures::signatures;

pub use calls::{
    CallLabel, DumpiCalls, DumpiCollectives, Fault, FaultKind, FilePosition, MAGIC, TimedDumpiCalls,
};

/// Reads the files of all ranks one by one.
pub struct Reader {
    shared: Shared,
    files: u32,
}

impl Reader {
    /// A reader for `n_ranks` ranks that refuses computations longer than `longest_ps`.
    pub fn new(n_ranks: u32, longest_ps: u64) -> Self {
        let mut shared = Shared {
            n_ranks,
            longest_ps,
            signatures: signatures(),
            names: Vec::new(),
            numbers: Map::default(),
            by_number: Vec::new(),
            communicators: Communicators::new(n_ranks),
            posts: Vec::new(),
            first: Vec::with_capacity(n_ranks as usize + 1),
            computes: Vec::new(),
            collectives: Vec::new(),
            counts: Map::default(),
            of_unknown_type: 0,
            proc_null: 0,
            cancelled: 0,
            timed: None,
            rank_count_fault: None,
            argument_fault: None,
            gap_fault: None,
        };
        for number in 0..shared.signatures.len() {
            let name = shared.signatures[number]
                .as_ref()
                .map(|signature| format!("MPI_{}", signature.name));
            let name = name.map(|name| shared.named(&name));
            shared.by_number.push(name);
        }
        let init = Some(shared.named("MPI_Init"));
        for number in [signatures::INIT, signatures::INIT_THREAD] {
            shared.by_number[usize::from(number)] = init;
        }
        Self { shared, files: 0 }
    }

    /// Also returns every call with its times.
    pub fn with_times(mut self) -> Self {
        self.shared.timed = Some(TimedDumpiCalls::default());
        self
    }

    /// Reads the file of the next rank.
    ///
    /// # Errors
    /// [`Fault`] if the file is truncated or damaged.
    pub fn file(&mut self, data: &[u8]) -> Result<(), Fault> {
        self.shared.first.push(self.shared.posts.len() as u32);
        let mut rank = RankFile::new(&mut self.shared, self.files);
        self.files += 1;
        if data.starts_with(MAGIC) {
            binary::read(data, &mut rank)?;
        } else {
            ascii::read(data, &mut rank)?;
        }
        rank.finish()
    }

    /// The contents of all files combined.
    ///
    /// # Errors
    /// The first [`Fault`] of a call.
    pub fn finish(mut self) -> Result<DumpiCalls, Fault> {
        let shared = &mut self.shared;
        let faults =
            [shared.rank_count_fault.take(), shared.argument_fault.take(), shared.gap_fault.take()];
        if let Some(fault) = faults.into_iter().flatten().next() {
            return Err(fault);
        }
        shared.first.push(shared.posts.len() as u32);
        let (place, members) = shared.communicators.members();
        let mut out = DumpiCalls::default();
        let mut labels = CallLabels::default();
        point_to_point(shared, &place, &members, &mut labels, &mut out);
        let mut label = |shared: &Shared, operation: u8, comm| {
            let name = signatures::OPERATIONS[usize::from(operation)];
            labels.number(shared, comm, name, u32::MAX, i64::from(operation))
        };
        (out.collectives, out.lost_collectives) =
            collectives::match_collectives(shared, &place, &members, &mut label);
        out.labels = labels.all;
        let mut used = out.collectives.comm.clone();
        used.sort_unstable();
        used.dedup();
        out.members =
            used.into_iter().map(|comm| (comm as u32, members[comm as usize].clone())).collect();
        let mut counts: Vec<_> = shared.counts.drain().collect();
        counts.sort_unstable_by_key(|&(_, number)| number);
        out.counts = counts.into_iter().map(|(counts, _)| counts).collect();
        out.of_unknown_type = shared.of_unknown_type;
        out.proc_null = shared.proc_null;
        out.cancelled = shared.cancelled;
        let inside = shared.names.iter().filter(|name| name.inside_ns != 0);
        out.inside_ns = inside.map(|name| (name.text.clone(), name.inside_ns)).collect();
        out.timed = shared.timed.take();
        if let Some(timed) = &mut out.timed {
            timed.names = shared.names.iter().map(|name| name.text.clone()).collect();
            timed.communicators = shared.communicators.names(&place);
        }
        Ok(out)
    }
}

/// Labels by name of the communicator, call and tag.
#[derive(Default)]
struct CallLabels {
    all: Vec<CallLabel>,
    /// Number of each communicator name, which several communicators may share.
    names: Map<String, u32>,
    of_comm: Map<u32, u32>,
    /// Kinds of labels by name of the communicator and call.
    kinds: Map<(u32, u32), u32>,
    /// Communicator and kind of the last label of each call.
    last: Vec<Option<(u32, u32)>>,
    numbers: Interner,
}

impl CallLabels {
    /// Number of a label; for collectives `name` is `u32::MAX`.
    fn number(&mut self, shared: &Shared, comm: u32, call: &str, name: u32, tag: i64) -> u32 {
        let last = self.last.get(name as usize).copied().flatten().filter(|last| last.0 == comm);
        let kind = last.map_or_else(|| self.kind(shared, comm, name), |last| last.1);
        let (number, new) = self.numbers.number(kind, tag);
        if new {
            self.all.push(CallLabel {
                call: call.to_owned(),
                collective: name == u32::MAX,
                tag,
                communicator: shared.communicators.name(comm),
            });
        }
        number
    }
}

impl CallLabels {
    /// Number for a pair of communicator name and call.
    fn kind(&mut self, shared: &Shared, comm: u32, name: u32) -> u32 {
        let next = self.names.len() as u32;
        let names = &mut self.names;
        let of = *self
            .of_comm
            .entry(comm)
            .or_insert_with(|| *names.entry(shared.communicators.name(comm)).or_insert(next));
        let next = self.kinds.len() as u32;
        let kind = *self.kinds.entry((of, name)).or_insert(next);
        if let Some(at) = usize::try_from(name).ok().filter(|&at| at < shared.names.len()) {
            self.last.resize(self.last.len().max(at + 1), None);
            self.last[at] = Some((comm, kind));
        }
        kind
    }
}

/// Adds the sends and receives of all ranks, with world ranks.
fn point_to_point(
    shared: &mut Shared,
    place: &[Option<u32>],
    members: &[Vec<u32>],
    labels: &mut CallLabels,
    calls: &mut DumpiCalls,
) {
    let posts = std::mem::take(&mut shared.posts);
    let ends = std::mem::take(&mut shared.first);
    let (mut channels, mut keys) = (Interner::default(), Vec::new());
    let mut first = Vec::with_capacity(ends.len());
    let (mut kept, mut lost, mut unknown) = (0, 0, 0);
    let row = |(at, post): (usize, Post)| {
        while ends.get(first.len()).is_some_and(|&begin| begin as usize <= at) {
            first.push(kept);
        }
        if post.wait == CANCELLED {
            return None;
        }
        let (peer, tag) = (i64::from(post.peer), i64::from(post.tag));
        let comm = place[post.comm as usize];
        let group = comm.map_or(&[][..], |comm| &members[comm as usize]);
        let world = if peer == ANY { Some(&0) } else { group.get(post.peer as usize) };
        let (Some(comm), Some(&world)) = (comm, world) else {
            lost += 1;
            return None;
        };
        let wildcard = !post.is_send && (peer == ANY || tag == ANY);
        unknown += u64::from(wildcard);
        let call = &shared.names[post.name as usize].text;
        let label = labels.number(shared, post.comm, call, post.name, tag);
        let (channel, new) = channels.number(comm, tag);
        if new {
            keys.push((comm, post.tag as u32));
        }
        kept += 1;
        let world = if wildcard { NO_PEER } else { world };
        let times = (post.position, post.wait);
        Some(PostRow::new(post.size, times, world, channel).labelled(label, post.is_send))
    };
    // Rows are as large as posts and reuse their memory.
    let posts: Vec<PostRow> = posts.into_iter().enumerate().filter_map(row).collect();
    first.resize(ends.len(), kept);
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    order.sort_unstable_by_key(|&at| keys[at as usize]);
    let mut tags = vec![0; order.len()];
    order.iter().zip(0..).for_each(|(&at, tag)| tags[at as usize] = tag);
    if let Some(timed) = &mut shared.timed {
        timed.channels = order.iter().map(|&at| keys[at as usize]).collect();
    }
    let computes = std::mem::take(&mut shared.computes);
    calls.ranks = RecordedRanks { posts, first, computes, tags };
    (calls.lost_posts, calls.unknown_sources) = (lost, unknown);
}

// Posts become rows in place.
const _: () = assert!(size_of::<Post>() == size_of::<PostRow>());
const _: () = assert!(NO_WAIT == post_rows::NO_WAIT);
