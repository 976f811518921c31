//! What the calls of one rank do.

use super::arguments::{Arguments, Field, Trouble};
use super::communicators::{Comm, OfRank};
use super::signatures::Act;
use super::{Fault, FaultKind, FilePosition, Shared};
use crate::numbering::Map;

/// MPI_ANY_SOURCE and MPI_ANY_TAG.
pub(super) const ANY: i64 = -1;
/// A wait that the trace does not record, and a cancelled post.
pub(super) const NO_WAIT: u32 = u32::MAX;
pub(super) const CANCELLED: u32 = u32::MAX - 1;
/// Calls of a rank: twice as many places must fit below these.
const MOST_CALLS: u32 = 1 << 30;
const MOST_BYTES: i128 = 1 << 53;

/// A call: number of its name, nanoseconds of entry and exit.
#[derive(Clone, Copy)]
pub(super) struct DumpiCall {
    pub name: u32,
    pub enter_ns: i64,
    pub leave_ns: i64,
    pub place: FilePosition,
}

/// A send or receive; as small as it can be: there are many.
#[derive(Clone, Copy)]
pub(super) struct Post {
    pub size: u64,
    pub position: u32,
    /// Where it is waited for, or [`NO_WAIT`] or [`CANCELLED`].
    pub wait: u32,
    pub peer: i32,
    pub tag: i32,
    pub comm: Comm,
    /// Number of the name of the call, and whether it sends.
    pub name: u32,
    pub is_send: bool,
}

/// A collective call.
pub(super) struct Collective {
    pub position: u32,
    pub rank: u32,
    pub comm: Comm,
    pub operation: u8,
    pub root: i64,
    pub sent: u64,
    pub received: u64,
    /// Index of the vectors of counts, -1 without.
    pub counts: i64,
}

/// A call that prepares a message: what is posted at each start.
#[derive(Clone, Copy)]
struct Persistent {
    name: u32,
    is_send: bool,
    peer: Option<i64>,
    count: Option<i64>,
    datatype: Option<i64>,
    comm: Option<i64>,
    tag: Option<i64>,
}

/// Bytes of the types, by their numbers.
pub(super) struct Sizes {
    small: [Option<i64>; 64],
    others: Map<i64, i64>,
}

impl Sizes {
    /// Those of the predefined types, in case a trace does not record them.
    pub fn predefined() -> Self {
        const BYTES: [i64; 28] = [
            0, 0, 1, 1, 1, 1, 4, 2, 2, 4, 4, 8, 8, 4, 8, 16, 8, 8, 8, 1, 0, 0, 8, 16, 16, 8, 8, 32,
        ];
        let mut small = [None; 64];
        for (slot, bytes) in small.iter_mut().zip(BYTES) {
            *slot = Some(bytes);
        }
        Self { small, others: Map::default() }
    }

    pub fn set(&mut self, kind: i64, bytes: i64) {
        match usize::try_from(kind).ok().and_then(|at| self.small.get_mut(at)) {
            Some(slot) => *slot = Some(bytes),
            None => drop(self.others.insert(kind, bytes)),
        }
    }

    #[inline]
    fn get(&self, kind: i64) -> Option<i64> {
        match usize::try_from(kind).ok().and_then(|at| self.small.get(at)) {
            Some(slot) => *slot,
            None => self.others.get(&kind).copied(),
        }
    }
}

/// Takes the calls of one rank.
pub(super) struct RankFile<'a> {
    pub shared: &'a mut Shared,
    pub sizes: Sizes,
    number: u32,
    of: OfRank,
    /// Requests that are open: places among the posts.
    open: Map<i64, u32>,
    persistent: Map<i64, Persistent>,
    /// How many calls there were.
    at: u32,
    last: Option<DumpiCall>,
    free_since_ns: i64,
    disorder: Option<Fault>,
}

impl<'a> RankFile<'a> {
    pub fn new(shared: &'a mut Shared, number: u32) -> Self {
        let of = OfRank::new(&mut shared.communicators, number);
        Self {
            shared,
            sizes: Sizes::predefined(),
            number,
            of,
            open: Map::default(),
            persistent: Map::default(),
            at: 0,
            last: None,
            free_since_ns: 0,
            disorder: None,
        }
    }

    /// What is wrong in the file of this rank.
    pub fn fault(&self, kind: FaultKind, place: FilePosition, text: &str) -> Fault {
        Fault { file: self.number, place, kind, text: text.to_owned() }
    }

    /// Ends the file: calls must come to an end and be in order.
    pub fn finish(self) -> Result<(), Fault> {
        let finalize = self.last.filter(|last| self.shared.names[last.name as usize].finalize);
        if finalize.is_none() {
            let place = self.last.map_or(FilePosition::None, |last| last.place);
            return Err(self.fault(FaultKind::Cut, place, "does not end with MPI_Finalize"));
        }
        self.disorder.map_or(Ok(()), Err)
    }

    /// Takes the next call.
    #[inline]
    pub fn call(&mut self, call: DumpiCall, given: &Arguments) -> Result<(), Fault> {
        self.time(&call);
        let at = self.at;
        if at >= MOST_CALLS || self.shared.posts.len() >= (1 << 31) - 2 {
            let text = "holds more calls than Tailback can number";
            return Err(self.fault(FaultKind::Large, call.place, text));
        }
        self.at += 1;
        self.last = Some(call);
        if self.shared.wrong.is_some() {
            return Ok(());
        }
        if let Err(trouble) = self.take(&call, 2 * at, given) {
            let name = &self.shared.names[call.name as usize].text;
            let text = match trouble {
                Trouble::Lacks(what) => format!("{name} lacks an argument ('{what}')"),
                Trouble::Wrong(message) => format!("{name}: {message}"),
            };
            self.shared.wrong = Some(self.fault(FaultKind::Damaged, call.place, &text));
        }
        Ok(())
    }

    /// Notes the computation before a call and the time in it; faults count once the file is read.
    #[inline]
    fn time(&mut self, call: &DumpiCall) {
        let before = self.last.map_or(0, |last| last.enter_ns);
        if call.enter_ns < before || call.leave_ns < call.enter_ns {
            if self.disorder.is_none() {
                let name = &self.shared.names[call.name as usize].text;
                let text = format!("{name} begins or ends before the previous record");
                self.disorder = Some(self.fault(FaultKind::Damaged, call.place, &text));
            }
            return;
        }
        let name = &mut self.shared.names[call.name as usize];
        name.inside_ns += i128::from(call.leave_ns - call.enter_ns);
        if self.last.is_some() && call.enter_ns > self.free_since_ns {
            let gap = (call.enter_ns - self.free_since_ns) as u64;
            if gap > self.shared.longest_ps / 1000 {
                let text = format!("{} begins {gap} ns later", name.text);
                let fault = self.fault(FaultKind::Damaged, call.place, &text);
                self.shared.late.get_or_insert(fault);
            } else {
                self.shared.computes.push((self.number, 2 * self.at, 1000 * gap));
            }
        }
        self.free_since_ns = call.leave_ns.max(self.free_since_ns);
    }

    fn take(&mut self, call: &DumpiCall, position: u32, given: &Arguments) -> Result<(), Trouble> {
        let act = self.shared.names[call.name as usize].act;
        match act {
            Act::Nothing => Ok(()),
            Act::Blocking => self.blocking(call, position, given),
            Act::Nonblocking => {
                let post = self.posted(call.name, position, given)?;
                let request = given.first(Field::Request)?;
                self.begin(request, post);
                Ok(())
            }
            Act::Sendrecv | Act::SendrecvReplace => {
                self.exchange(call, position, given, act == Act::SendrecvReplace)
            }
            Act::Persistent => self.prepare(call, given),
            Act::Start => self.start(given.first(Field::Request)?, position),
            Act::Startall => {
                let all = given.many(Field::Requests)?;
                all.iter().try_for_each(|&request| self.start(request, position))
            }
            Act::Wait | Act::Test => {
                if act == Act::Test && !given.flag()? {
                    return Ok(());
                }
                self.complete(given.first(Field::Request)?, position, given, 0)
            }
            Act::Waitall | Act::Testall => {
                if act == Act::Testall && !given.flag()? {
                    return Ok(());
                }
                self.complete_all(given.many(Field::Requests)?.iter().copied(), position, given)
            }
            Act::Waitany | Act::Testany => {
                let index = given.one(Field::Index)?;
                if index < 0 || act == Act::Testany && !given.flag()? {
                    return Ok(());
                }
                let request = given.many(Field::Requests)?.get(index as usize);
                let request = *request.ok_or(Trouble::Lacks("requests"))?;
                self.complete(request, position, given, 0)
            }
            Act::Some => self.complete_some(position, given),
            Act::Cancel => {
                if let Some(post) = self.open.remove(&given.first(Field::Request)?) {
                    self.shared.cancelled += 1;
                    self.shared.posts[post as usize].wait = CANCELLED;
                }
                Ok(())
            }
            Act::Collective(operation) => self.collective(operation, position, given),
            _ => self.communicator(act, given),
        }
    }

    fn blocking(
        &mut self,
        call: &DumpiCall,
        position: u32,
        given: &Arguments,
    ) -> Result<(), Trouble> {
        let mut post = self.posted(call.name, position, given)?;
        post.wait = position + 1;
        fill(&mut post, given.status(Field::Status, 0)?);
        self.add(post);
        Ok(())
    }

    /// Follows a call that makes or ends a communicator or group.
    fn communicator(&mut self, act: Act, given: &Arguments) -> Result<(), Trouble> {
        let all = &mut self.shared.communicators;
        let old = given.maybe(Field::Oldcomm).or_else(|| given.maybe(Field::Comm));
        let new = given.maybe(Field::Newcomm);
        match act {
            Act::CommSize => {
                // A run of another number of ranks than there are files.
                if given.maybe(Field::Comm) == Some(2) {
                    let size = given.one(Field::Size)?;
                    if size != i64::from(self.shared.n_ranks) && self.shared.world.is_none() {
                        let (n, place) = (self.shared.n_ranks, self.last.map(|last| last.place));
                        let text =
                            format!("is of a run of {size} ranks, and there are files of {n}");
                        let fault = self.fault(
                            FaultKind::World,
                            place.unwrap_or(FilePosition::None),
                            &text,
                        );
                        self.shared.world = Some(fault);
                    }
                }
                Ok(())
            }
            Act::Split => {
                let (color, key) = (given.one(Field::Color)?, given.one(Field::Key)?);
                self.of.split(all, old, new, color, key)
            }
            Act::Dup => self.of.dup(all, old, new),
            Act::CartCreate => {
                let dims = given.many(Field::Dims);
                let dims = if new == Some(1) { dims.unwrap_or_default() } else { dims? };
                self.of.grid(all, old, new, dims)
            }
            Act::CartSub => {
                let remain = given.many(Field::RemainDims)?;
                self.of.part_of_grid(all, old, new, remain)
            }
            Act::Create => self.of.create(all, old, new, given.one(Field::Group)?),
            Act::Group => match old {
                Some(old) => self.of.group(old, given.one(Field::Group)?),
                None => Ok(()),
            },
            Act::Include | Act::Exclude => {
                let (group, new) = (given.one(Field::Group)?, given.one(Field::Newgroup)?);
                let ranks = given.many(Field::Ranks)?;
                self.of.part_of_group(all, group, new, ranks, act == Act::Include)
            }
            _ => Ok(()),
        }
    }

    /// Bytes of elements of a type.
    #[inline]
    pub(super) fn bytes_of(&mut self, count: i128, kind: i64) -> Result<u64, Trouble> {
        let Some(size) = self.sizes.get(kind) else {
            self.shared.of_unknown_type += 1;
            return Ok(0);
        };
        let bytes = count.checked_mul(i128::from(size)).unwrap_or(-1);
        if !(0..=MOST_BYTES).contains(&bytes) {
            return Err(Trouble::Wrong(format!("{count} elements of {size} B")));
        }
        Ok(bytes as u64)
    }

    fn posted(&mut self, name: u32, position: u32, given: &Arguments) -> Result<Post, Trouble> {
        let is_send = given.has(Field::Dest);
        let size = self.bytes_of(given.one(Field::Count)?.into(), given.one(Field::Datatype)?)?;
        let peer = given.one(if is_send { Field::Dest } else { Field::Source })?;
        let comm = self.of.key(given.one(Field::Comm)?)?;
        post(size, position, peer, given.one(Field::Tag)?, comm, name, is_send)
    }

    /// Adds a post and returns its position; none for those of MPI_PROC_NULL.
    fn add(&mut self, post: Post) -> Option<u32> {
        if i64::from(post.peer) < ANY || (post.is_send && post.peer < 0) {
            self.shared.proc_null += 1;
            return None;
        }
        self.shared.posts.push(post);
        Some(self.shared.posts.len() as u32 - 1)
    }

    fn begin(&mut self, request: i64, post: Post) {
        match self.add(post) {
            Some(at) => drop(self.open.insert(request, at)),
            None => drop(self.open.remove(&request)),
        }
    }

    /// A receive and a send that are both posted before either is waited for.
    fn exchange(
        &mut self,
        call: &DumpiCall,
        position: u32,
        given: &Arguments,
        replaced: bool,
    ) -> Result<(), Trouble> {
        use Field::{Count, Datatype, Dest, Recvcount, Recvtag, Recvtype, Sendcount, Sendtag};
        use Field::{Sendtype, Source};
        let sides = [
            (Source, Recvtag, Recvcount, Recvtype, false),
            (Dest, Sendtag, Sendcount, Sendtype, true),
        ];
        for (peer, tag, count, kind, is_send) in sides {
            let (count, kind) = if replaced { (Count, Datatype) } else { (count, kind) };
            let (peer, tag) = (given.one(peer)?, given.one(tag)?);
            let comm = self.of.key(given.one(Field::Comm)?)?;
            let size = self.bytes_of(given.one(count)?.into(), given.one(kind)?)?;
            let mut one = post(size, position, peer, tag, comm, call.name, is_send)?;
            one.wait = position + 1;
            fill(&mut one, given.status(Field::Status, 0)?);
            self.add(one);
        }
        Ok(())
    }

    fn prepare(&mut self, call: &DumpiCall, given: &Arguments) -> Result<(), Trouble> {
        let request = given.first(Field::Request)?;
        let comm = given.one(Field::Comm)?;
        self.of.key(comm)?;
        let is_send = given.has(Field::Dest);
        let of = Persistent {
            name: self.shared.started(call.name),
            is_send,
            peer: given.maybe(if is_send { Field::Dest } else { Field::Source }),
            count: given.maybe(Field::Count),
            datatype: given.maybe(Field::Datatype),
            comm: Some(comm),
            tag: given.maybe(Field::Tag),
        };
        self.persistent.insert(request, of);
        Ok(())
    }

    fn start(&mut self, request: i64, position: u32) -> Result<(), Trouble> {
        let wrong = || Trouble::Wrong(format!("request {request} was not made before"));
        let of = *self.persistent.get(&request).ok_or_else(wrong)?;
        let lacks = |value: Option<i64>, name| value.ok_or(Trouble::Lacks(name));
        let size =
            self.bytes_of(lacks(of.count, "count")?.into(), lacks(of.datatype, "datatype")?)?;
        let peer = lacks(of.peer, if of.is_send { "dest" } else { "source" })?;
        let comm = self.of.key(lacks(of.comm, "comm")?)?;
        let tag = lacks(of.tag, "tag")?;
        self.begin(request, post(size, position, peer, tag, comm, of.name, of.is_send)?);
        Ok(())
    }

    /// Ends the requests of all indices that are not negative.
    fn complete_some(&mut self, position: u32, given: &Arguments) -> Result<(), Trouble> {
        let indices = given.many(Field::Indices)?;
        if indices.is_empty() {
            return Ok(());
        }
        let all = given.many(Field::Requests)?;
        let done = indices.iter().filter(|&&index| index >= 0);
        let done: Option<Vec<i64>> = done.map(|&at| all.get(at as usize).copied()).collect();
        let done = done.ok_or(Trouble::Lacks("requests"))?;
        self.complete_all(done.into_iter(), position, given)
    }

    fn complete_all(
        &mut self,
        requests: impl Iterator<Item = i64>,
        position: u32,
        given: &Arguments,
    ) -> Result<(), Trouble> {
        for (at, request) in requests.enumerate() {
            self.complete(request, position, given, at)?;
        }
        Ok(())
    }

    /// Ends a request where a call is left.
    fn complete(
        &mut self,
        request: i64,
        position: u32,
        given: &Arguments,
        at: usize,
    ) -> Result<(), Trouble> {
        if let Some(post) = self.open.remove(&request) {
            let post = &mut self.shared.posts[post as usize];
            post.wait = position + 1;
            if !post.is_send {
                let many = given.has(Field::Statuses);
                let field = if many { Field::Statuses } else { Field::Status };
                fill(post, given.status(field, at)?);
            }
        }
        Ok(())
    }

    /// Root and bytes of a collective.
    fn collective(
        &mut self,
        operation: u8,
        position: u32,
        given: &Arguments,
    ) -> Result<(), Trouble> {
        let comm = self.of.key(given.one(Field::Comm)?)?;
        let rank = self.number;
        let mut out = Collective {
            position,
            rank,
            comm,
            operation,
            root: 0,
            sent: 0,
            received: 0,
            counts: -1,
        };
        self.amounts(&mut out, given)?;
        self.shared.collectives.push(out);
        Ok(())
    }
}

fn post(
    size: u64,
    position: u32,
    peer: i64,
    tag: i64,
    comm: Comm,
    name: u32,
    is_send: bool,
) -> Result<Post, Trouble> {
    let narrow = |what: &str, value: i64| {
        i32::try_from(value).map_err(|_| Trouble::Wrong(format!("{value} is not a {what}")))
    };
    let (peer, tag) = (narrow("rank", peer)?, narrow("tag", tag)?);
    Ok(Post { size, position, wait: NO_WAIT, peer, tag, comm, name, is_send })
}

/// Fills in the senders of receives from any source, if the trace records them.
fn fill(post: &mut Post, status: Option<(i64, i64)>) {
    let Some((source, tag)) = status.filter(|_| !post.is_send) else { return };
    let narrow = |value: i64| i32::try_from(value).ok().filter(|&value| value >= 0);
    if i64::from(post.peer) == ANY {
        post.peer = narrow(source).unwrap_or(post.peer);
    }
    if i64::from(post.tag) == ANY {
        post.tag = narrow(tag).unwrap_or(post.tag);
    }
}
