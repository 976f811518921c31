//! Traces of SST DUMPI: the calls of MPI with their arguments and times, one file a rank, binary or as
//! the text that dumpi2ascii makes.

mod arguments;
mod binary;
mod collectives;
mod communicators;
mod rank;
mod signatures;
mod words;

use crate::assembly::{RecordedPosts, UNKNOWN};
use crate::numbering::{Map, Numbers};
use collectives::Counts;
use communicators::Communicators;
use rank::{ANY, CANCELLED, Collective, NO_WAIT, Post, RankFile};
use signatures::{Act, Signature, signatures};

/// What a binary file begins with.
pub const MAGIC: &[u8] = b"\xff\xaa\xddDUMPI";
/// A step later than any other at its position.
const LATE: i64 = 1 << 40;

/// Where in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePosition {
    /// Nowhere in particular.
    None,
    /// Bytes before it.
    Byte(u64),
    /// Number of the line, from 1.
    Line(u64),
}

/// What is to be done about a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The file ends too early.
    Cut,
    /// The file is not as it was written.
    Damaged,
    /// A line that is no argument; the text is the line.
    Line,
    /// A version whose arguments are not right.
    Old,
    /// A call whose arguments are not known.
    Unknown,
    /// Files of other ranks are missing.
    World,
    /// More than can be numbered.
    Large,
}

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Number of the rank.
    pub file: u32,
    /// Where.
    pub place: FilePosition,
    /// What can be done.
    pub kind: FaultKind,
    /// What is wrong.
    pub text: String,
}

/// A message of a call, or a collective, as identified by labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The call of MPI; of collectives the number of the operation is in `tag`.
    pub call: String,
    /// Whether it is of a collective.
    pub collective: bool,
    /// The tag.
    pub tag: i64,
    /// The communicator.
    pub communicator: String,
}

/// Collectives of all members of a communicator, a column each.
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
    }
}

/// Computations: rank, position and picoseconds.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Computes {
    pub rank: Vec<i64>,
    pub position: Vec<i64>,
    pub ps: Vec<u64>,
}

/// The calls of all ranks.
#[derive(Debug, Default)]
pub struct DumpiCalls {
    /// Sends and receives.
    pub posts: RecordedPosts,
    /// Labels by number.
    pub labels: Vec<Label>,
    /// Time between calls.
    pub computes: Computes,
    /// Collectives.
    pub collectives: DumpiCollectives,
    /// Bytes for and from every member, of collectives with a vector of counts.
    pub counts: Vec<(Vec<u64>, Vec<u64>)>,
    /// World ranks of the members of the communicators that collectives use.
    pub members: Vec<(u32, Vec<u32>)>,
    /// Sends and receives on communicators whose members are not known.
    pub lost_posts: u64,
    /// Collectives that not all members recorded.
    pub lost_collectives: u64,
    /// Messages of types whose size is not known.
    pub of_unknown_type: u64,
    /// Messages of MPI_PROC_NULL.
    pub proc_null: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Nanoseconds in all calls of each name.
    pub inside_ns: Vec<(String, i128)>,
}

struct Name {
    text: String,
    act: Act,
    finalize: bool,
    inside_ns: i128,
    /// What its starts are called, for those that prepare a message.
    started: Option<u32>,
}

/// What the files of all ranks fill.
struct Shared {
    n_ranks: u32,
    longest_ps: u64,
    signatures: Vec<Option<Signature>>,
    names: Vec<Name>,
    numbers: Map<String, u32>,
    /// Names of the calls of binary files.
    by_number: Vec<Option<u32>>,
    communicators: Communicators,
    posts: Vec<Post>,
    /// First post of each rank.
    first: Vec<u32>,
    computes: Vec<(u32, u32, u64)>,
    collectives: Vec<Collective>,
    counts: Map<Counts, i64>,
    of_unknown_type: u64,
    proc_null: u64,
    cancelled: u64,
    /// The first fault of each kind that counts only if all files can be read.
    world: Option<Fault>,
    wrong: Option<Fault>,
    late: Option<Fault>,
}

impl Shared {
    /// Number of a name.
    fn named(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(Name {
            text: name.to_owned(),
            act: Act::of(name),
            finalize: name == "MPI_Finalize",
            inside_ns: 0,
            started: None,
        });
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Name of a call of a binary file; none where its arguments are not known.
    #[inline]
    fn numbered(&self, number: u16) -> Option<u32> {
        self.by_number.get(usize::from(number)).copied().flatten()
    }

    /// What the messages of a call that prepares them are of.
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

/// Reads the files of all ranks, one after the other.
pub struct Reader {
    shared: Shared,
    files: u32,
}

impl Reader {
    /// For the given number of ranks, and computations up to the given length in picoseconds.
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
            world: None,
            wrong: None,
            late: None,
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

    /// Reads the file of the next rank.
    ///
    /// # Errors
    /// What is wrong with the file as such.
    pub fn file(&mut self, data: &[u8]) -> Result<(), Fault> {
        self.shared.first.push(self.shared.posts.len() as u32);
        let mut rank = RankFile::new(&mut self.shared, self.files);
        self.files += 1;
        if data.starts_with(MAGIC) {
            binary::read(data, &mut rank)?;
        } else {
            words::read(data, &mut rank)?;
        }
        rank.finish()
    }

    /// The contents of all files combined.
    ///
    /// # Errors
    /// What is wrong with a call.
    pub fn finish(mut self) -> Result<DumpiCalls, Fault> {
        let shared = &mut self.shared;
        let faults = [shared.world.take(), shared.wrong.take(), shared.late.take()];
        if let Some(fault) = faults.into_iter().flatten().next() {
            return Err(fault);
        }
        shared.first.push(shared.posts.len() as u32);
        let (place, members) = shared.communicators.members();
        let mut out = DumpiCalls::default();
        let mut labels = Labels::default();
        point_to_point(shared, &place, &members, &mut labels, &mut out);
        let mut label = |shared: &Shared, operation: u8, comm| {
            let name = signatures::OPERATIONS[usize::from(operation)];
            labels.number(shared, comm, name, u32::MAX, i64::from(operation))
        };
        (out.collectives, out.lost_collectives) =
            collectives::joined(shared, &place, &members, &mut label);
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
        let computes = std::mem::take(&mut shared.computes);
        out.computes = Computes {
            rank: computes.iter().map(|one| one.0.into()).collect(),
            position: computes.iter().map(|one| one.1.into()).collect(),
            ps: computes.iter().map(|one| one.2).collect(),
        };
        Ok(out)
    }
}

/// Labels by name of the communicator, call and tag.
#[derive(Default)]
struct Labels {
    all: Vec<Label>,
    /// Numbers of the names of communicators, which several may share.
    names: Map<String, u32>,
    of_comm: Map<u32, u32>,
    /// Kinds of labels by name of the communicator and call.
    kinds: Map<(u32, u32), u32>,
    /// Communicator and kind of the last label of each call.
    last: Vec<Option<(u32, u32)>>,
    numbers: Numbers,
}

impl Labels {
    /// Number of a label; collectives have the highest number of a call.
    fn number(&mut self, shared: &Shared, comm: u32, call: &str, name: u32, tag: i64) -> u32 {
        let last = self.last.get(name as usize).copied().flatten().filter(|last| last.0 == comm);
        let kind = last.map_or_else(|| self.kind(shared, comm, name), |last| last.1);
        let (number, new) = self.numbers.of(kind, tag);
        if new {
            self.all.push(Label {
                call: call.to_owned(),
                collective: name == u32::MAX,
                tag,
                communicator: shared.communicators.name(comm),
            });
        }
        number
    }
}

impl Labels {
    /// FaultKind of the labels of a communicator and call.
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

/// Sends and receives of all ranks, with world ranks.
fn point_to_point(
    shared: &mut Shared,
    place: &[Option<u32>],
    members: &[Vec<u32>],
    labels: &mut Labels,
    calls: &mut DumpiCalls,
) {
    let posts = std::mem::take(&mut shared.posts);
    let out = &mut calls.posts;
    let first = std::mem::take(&mut shared.first);
    out.reserve(posts.len());
    for (rank, ends) in first.windows(2).enumerate() {
        for post in &posts[ends[0] as usize..ends[1] as usize] {
            if post.wait == CANCELLED {
                continue;
            }
            let (peer, tag) = (i64::from(post.peer), i64::from(post.tag));
            let comm = place[post.comm as usize];
            let group = comm.map_or(&[][..], |comm| &members[comm as usize]);
            let world = if peer == ANY { Some(&0) } else { group.get(post.peer as usize) };
            let (Some(comm), Some(&world)) = (comm, world) else {
                calls.lost_posts += 1;
                continue;
            };
            let anyone = !post.is_send && (peer == ANY || tag == ANY);
            let call = &shared.names[post.name as usize].text;
            let label = labels.number(shared, post.comm, call, post.name, tag);
            out.rank.push(rank as i64);
            out.position.push(post.position.into());
            out.step.push(post.is_send.into());
            out.is_send.push(post.is_send);
            out.peer.push(if anyone { UNKNOWN } else { world.into() });
            out.channel.push(i64::from(comm) << 32 | (tag & 0xFFFF_FFFF));
            out.size.push(post.size);
            out.label.push(label.into());
            let waited = post.wait != NO_WAIT;
            out.wait_position.push(if waited { post.wait.into() } else { UNKNOWN });
            out.wait_step.push(LATE);
            out.peer_known.push(!anyone);
        }
    }
}
