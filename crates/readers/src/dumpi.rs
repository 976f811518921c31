//! Traces of SST DUMPI: MPI calls with arguments and times, one file per rank, in binary form or as text
//! converted by dumpi2ascii.

mod arguments;
mod ascii;
mod binary;
mod collectives;
mod communicators;
mod rank;
mod signatures;
mod timed;

use crate::numbering::{Interner, Map};
use crate::post_rows::{self, ComputeRow, NO_PEER, PostRow, RecordedRanks};
use collectives::Counts;
use communicators::Communicators;
use rank::{ANY, CANCELLED, Collective, NO_WAIT, Post, RankFile};
use signatures::{CallKind, Signature, signatures};
pub use timed::TimedDumpiCalls;

/// First bytes of a binary file.
pub const MAGIC: &[u8] = b"\xff\xaa\xddDUMPI";

/// A position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePosition {
    /// Unknown.
    None,
    /// Byte offset.
    Byte(u64),
    /// Line number, counted from 1.
    Line(u64),
}

/// The kind of a fault, which decides on the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The file is truncated.
    Truncated,
    /// The file is damaged.
    Damaged,
    /// A line that is not an argument; the text is the line.
    UnknownLine,
    /// A format version that records some arguments wrongly.
    OldVersion,
    /// A call whose arguments are not known.
    UnknownCall,
    /// The run had another number of ranks than there are files.
    WrongRankCount,
    /// More calls than can be numbered.
    TooLarge,
}

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Number of the rank.
    pub file: u32,
    /// Position in the file.
    pub place: FilePosition,
    /// Its kind.
    pub kind: FaultKind,
    /// What is wrong.
    pub text: String,
}

/// Label of messages or collectives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallLabel {
    /// The MPI call; for collectives, `tag` is the number of the operation.
    pub call: String,
    /// Whether it is a collective.
    pub collective: bool,
    /// The tag.
    pub tag: i64,
    /// The communicator.
    pub communicator: String,
}

/// Collectives in which all members of the communicator take part, as columns.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct DumpiCollectives {
    pub rank: Vec<i64>,
    pub position: Vec<i64>,
    pub comm: Vec<i64>,
    pub instance: Vec<i64>,
    pub label: Vec<i64>,
    pub operation: Vec<i64>,
    pub size: Vec<i64>,
    pub me: Vec<i64>,
    pub root: Vec<i64>,
    pub sent: Vec<i64>,
    pub received: Vec<i64>,
    pub counts: Vec<i64>,
    pub stay_ns: Vec<i64>,
}

impl DumpiCollectives {
    fn push(
        &mut self,
        call: &Collective,
        comm: u32,
        instance: u32,
        label: u32,
        size: usize,
        me: u32,
    ) {
        self.rank.push(call.rank.into());
        self.position.push(call.position.into());
        self.comm.push(comm.into());
        self.instance.push(instance.into());
        self.label.push(label.into());
        self.operation.push(call.operation.into());
        self.size.push(size as i64);
        self.me.push(me.into());
        self.root.push(call.root);
        self.sent.push(call.sent as i64);
        self.received.push(call.received as i64);
        self.counts.push(call.counts);
        self.stay_ns.push(call.stay_ns);
    }
}

/// The calls of all ranks.
#[derive(Debug, Default)]
pub struct DumpiCalls {
    /// Sends and receives, and the time between calls.
    pub ranks: RecordedRanks,
    /// Number of receives of which the trace does not record the message: they have no peer.
    pub unknown_sources: u64,
    /// Labels by number.
    pub labels: Vec<CallLabel>,
    /// Collectives.
    pub collectives: DumpiCollectives,
    /// Bytes sent to and received from every member, for collectives with a vector of counts.
    pub counts: Vec<(Vec<u64>, Vec<u64>)>,
    /// World ranks of the members of each communicator that collectives use.
    pub members: Vec<(u32, Vec<u32>)>,
    /// Number of sends and receives on communicators with unknown members, which are left out.
    pub lost_posts: u64,
    /// Number of collectives that some members did not record, which are left out.
    pub lost_collectives: u64,
    /// Number of messages of types of unknown size.
    pub of_unknown_type: u64,
    /// Number of sends and receives with MPI_PROC_NULL.
    pub proc_null: u64,
    /// Number of cancelled requests.
    pub cancelled: u64,
    /// Nanoseconds spent in all calls of each name.
    pub inside_ns: Vec<(String, i128)>,
    /// All calls with their times, if the reader was asked for them.
    pub timed: Option<TimedDumpiCalls>,
}

struct Name {
    text: String,
    kind: CallKind,
    finalize: bool,
    inside_ns: i128,
    /// For persistent calls such as MPI_Send_init, the name of the started call.
    started: Option<u32>,
}

/// State shared by the readers of all ranks.
struct Shared {
    n_ranks: u32,
    longest_ps: u64,
    signatures: Vec<Option<Signature>>,
    names: Vec<Name>,
    numbers: Map<String, u32>,
    /// Name of each call number of binary files.
    by_number: Vec<Option<u32>>,
    communicators: Communicators,
    posts: Vec<Post>,
    /// First post of each rank.
    first: Vec<u32>,
    computes: Vec<ComputeRow>,
    collectives: Vec<Collective>,
    counts: Map<Counts, i64>,
    of_unknown_type: u64,
    proc_null: u64,
    cancelled: u64,
    timed: Option<TimedDumpiCalls>,
    /// The first fault of each kind, reported only if all files can be read.
    rank_count_fault: Option<Fault>,
    argument_fault: Option<Fault>,
    gap_fault: Option<Fault>,
}

impl Shared {
    /// Number of a name; adds unknown names.
    fn named(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(Name {
            text: name.to_owned(),
            kind: CallKind::of(name),
            finalize: name == "MPI_Finalize",
            inside_ns: 0,
            started: None,
        });
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Name of a call of a binary file; `None` if its arguments are not known.
    #[inline]
    fn numbered(&self, number: u16) -> Option<u32> {
        self.by_number.get(usize::from(number)).copied().flatten()
    }

    /// Name of the call that a persistent call prepares: MPI_Send for MPI_Send_init.
    fn started(&mut self, name: u32) -> u32 {
        if let Some(found) = self.names[name as usize].started {
            return found;
        }
        let text = self.names[name as usize].text.replace("_init", "");
        let found = self.named(&text);
        self.names[name as usize].started = Some(found);
        found
    }
}

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
            let name = shared.signatures[number].as_ref().map(|one| format!("MPI_{}", one.name));
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
            used.into_iter().map(|one| (one as u32, members[one as usize].clone())).collect();
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
    // Rows are as large as posts, and take their place in memory.
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
