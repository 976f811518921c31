//! Interprets the calls of one rank.

use super::arguments::{Arguments, CallError, Field};
use super::calls::{
    ANY, CANCELLED, Collective, DumpiCall, Fault, FaultKind, FilePosition, NO_WAIT, Post, Shared,
};
use super::communicators::{Comm, RankCommunicators};
use super::signatures::{CallKind, OPERATIONS};
use crate::numbering::Map;
use crate::post_rows::ComputeRow;

/// Limit of the calls of a rank: their positions, two for each, must be below the values above.
const MAX_CALLS: u32 = 1 << 30;
const MAX_BYTES: i128 = 1 << 53;

/// A persistent send or receive, posted by each start.
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

/// Sizes of datatypes in bytes, by number.
pub(super) struct Sizes {
    small: [Option<i64>; 64],
    others: Map<i64, i64>,
}

impl Sizes {
    /// Sizes of the predefined types, in case a trace does not record them.
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

/// Interprets the calls of one rank in order.
pub(super) struct RankFile<'a> {
    pub shared: &'a mut Shared,
    pub sizes: Sizes,
    number: u32,
    communicators: RankCommunicators,
    /// Post of each open request.
    open: Map<i64, u32>,
    persistent: Map<i64, Persistent>,
    /// Number of calls so far.
    n_calls: u32,
    last: Option<DumpiCall>,
    last_leave_ns: i64,
    time_fault: Option<Fault>,
}

impl<'a> RankFile<'a> {
    pub fn new(shared: &'a mut Shared, number: u32) -> Self {
        let communicators = RankCommunicators::new(&mut shared.communicators, number);
        Self {
            shared,
            sizes: Sizes::predefined(),
            number,
            communicators,
            open: Map::default(),
            persistent: Map::default(),
            n_calls: 0,
            last: None,
            last_leave_ns: 0,
            time_fault: None,
        }
    }

    /// A fault in the file of this rank.
    pub fn fault(&self, kind: FaultKind, place: FilePosition, text: &str) -> Fault {
        Fault { file: self.number, place, kind, text: text.to_owned() }
    }

    /// Checks that the calls end with MPI_Finalize and were in order of time.
    pub fn finish(self) -> Result<(), Fault> {
        let finalize = self.last.filter(|last| self.shared.names[last.name as usize].finalize);
        if finalize.is_none() {
            let place = self.last.map_or(FilePosition::None, |last| last.place);
            return Err(self.fault(FaultKind::Truncated, place, "does not end with MPI_Finalize"));
        }
        self.time_fault.map_or(Ok(()), Err)
    }

    /// Interprets the next call.
    #[inline]
    pub fn call(&mut self, call: DumpiCall, arguments: &Arguments) -> Result<(), Fault> {
        self.time(&call);
        let at = self.n_calls;
        if at >= MAX_CALLS || self.shared.posts.len() >= (1 << 31) - 2 {
            let text = "has more calls than Tailback can number";
            return Err(self.fault(FaultKind::TooLarge, call.place, text));
        }
        self.n_calls += 1;
        self.last = Some(call);
        if let Some(timed) = &mut self.shared.timed {
            timed.push(self.number, &call);
        }
        if self.shared.argument_fault.is_some() {
            return Ok(());
        }
        if let Err(trouble) = self.apply(&call, 2 * at, arguments) {
            let name = &self.shared.names[call.name as usize].text;
            let text = match trouble {
                CallError::MissingArgument(what) => {
                    format!("{name} has no valid argument '{what}'")
                }
                CallError::Invalid(message) => format!("{name}: {message}"),
            };
            self.shared.argument_fault = Some(self.fault(FaultKind::Damaged, call.place, &text));
        }
        Ok(())
    }

    /// Records the computation before a call and the time in it; faults are reported after the file.
    #[inline]
    fn time(&mut self, call: &DumpiCall) {
        let before = self.last.map_or(0, |last| last.enter_ns);
        if call.enter_ns < before || call.leave_ns < call.enter_ns {
            if self.time_fault.is_none() {
                let name = &self.shared.names[call.name as usize].text;
                let text = format!("{name} begins or ends before the previous record");
                self.time_fault = Some(self.fault(FaultKind::Damaged, call.place, &text));
            }
            return;
        }
        let name = &mut self.shared.names[call.name as usize];
        name.inside_ns += i128::from(call.leave_ns - call.enter_ns);
        if self.last.is_some() && call.enter_ns > self.last_leave_ns {
            let gap = (call.enter_ns - self.last_leave_ns) as u64;
            if gap > self.shared.longest_ps / 1000 {
                let text =
                    format!("{} begins {gap} ns after the previous call, too late", name.text);
                let fault = self.fault(FaultKind::Damaged, call.place, &text);
                self.shared.gap_fault.get_or_insert(fault);
            } else {
                let position = 2 * self.n_calls;
                let compute = ComputeRow { rank: self.number, position, ps: 1000 * gap };
                self.shared.computes.push(compute);
            }
        }
        self.last_leave_ns = call.leave_ns.max(self.last_leave_ns);
    }

    fn apply(
        &mut self,
        call: &DumpiCall,
        position: u32,
        arguments: &Arguments,
    ) -> Result<(), CallError> {
        let kind = self.shared.names[call.name as usize].kind;
        match kind {
            CallKind::Nothing => Ok(()),
            CallKind::Blocking => self.blocking(call, position, arguments),
            CallKind::Nonblocking => {
                let post = self.new_post(call.name, position, arguments)?;
                let request = arguments.first(Field::Request)?;
                self.add_open(request, post);
                Ok(())
            }
            CallKind::Sendrecv | CallKind::SendrecvReplace => {
                self.sendrecv(call, position, arguments, kind == CallKind::SendrecvReplace)
            }
            CallKind::Persistent => self.init_persistent(call, arguments),
            CallKind::Start => self.start(arguments.first(Field::Request)?, position),
            CallKind::Startall => {
                let all = arguments.many(Field::Requests)?;
                all.iter().try_for_each(|&request| self.start(request, position))
            }
            CallKind::Wait | CallKind::Test => {
                if kind == CallKind::Test && !arguments.flag()? {
                    return Ok(());
                }
                self.complete(arguments.first(Field::Request)?, position, arguments, 0)
            }
            CallKind::Waitall | CallKind::Testall => {
                if kind == CallKind::Testall && !arguments.flag()? {
                    return Ok(());
                }
                self.complete_all(
                    arguments.many(Field::Requests)?.iter().copied(),
                    position,
                    arguments,
                )
            }
            CallKind::Waitany | CallKind::Testany => {
                let index = arguments.one(Field::Index)?;
                if index < 0 || kind == CallKind::Testany && !arguments.flag()? {
                    return Ok(());
                }
                let request = arguments.many(Field::Requests)?.get(index as usize);
                let request = *request.ok_or(CallError::MissingArgument("requests"))?;
                self.complete(request, position, arguments, 0)
            }
            CallKind::Waitsome => self.complete_some(position, arguments),
            CallKind::Cancel => {
                if let Some(post) = self.open.remove(&arguments.first(Field::Request)?) {
                    self.shared.cancelled += 1;
                    self.shared.posts[post as usize].wait = CANCELLED;
                }
                Ok(())
            }
            CallKind::Collective(operation) => {
                let stay_ns = (call.leave_ns - call.enter_ns).max(0);
                self.collective(operation, position, stay_ns, arguments)
            }
            _ => self.communicator(kind, arguments),
        }
    }

    fn blocking(
        &mut self,
        call: &DumpiCall,
        position: u32,
        arguments: &Arguments,
    ) -> Result<(), CallError> {
        let mut post = self.new_post(call.name, position, arguments)?;
        post.wait = position + 1;
        fill_from_status(&mut post, arguments.status(Field::Status, 0)?);
        self.add(post);
        Ok(())
    }

    /// Interprets a call that creates a communicator or group, or queries a size.
    fn communicator(&mut self, kind: CallKind, arguments: &Arguments) -> Result<(), CallError> {
        let all = &mut self.shared.communicators;
        let old = arguments.maybe(Field::Oldcomm).or_else(|| arguments.maybe(Field::Comm));
        let new = arguments.maybe(Field::Newcomm);
        match kind {
            CallKind::CommSize => {
                // The size of MPI_COMM_WORLD must be the number of files.
                if arguments.maybe(Field::Comm) == Some(2) {
                    let size = arguments.one(Field::Size)?;
                    if size != i64::from(self.shared.n_ranks)
                        && self.shared.rank_count_fault.is_none()
                    {
                        let (n, place) = (self.shared.n_ranks, self.last.map(|last| last.place));
                        let text = format!("the run had {size} ranks, but there are files of {n}");
                        let fault = self.fault(
                            FaultKind::WrongRankCount,
                            place.unwrap_or(FilePosition::None),
                            &text,
                        );
                        self.shared.rank_count_fault = Some(fault);
                    }
                }
                Ok(())
            }
            CallKind::Split => {
                let (color, key) = (arguments.one(Field::Color)?, arguments.one(Field::Key)?);
                self.communicators.split(all, old, new, color, key)
            }
            CallKind::Dup => self.communicators.dup(all, old, new),
            CallKind::CartCreate => {
                let dims = arguments.many(Field::Dims);
                let dims = if new == Some(1) { dims.unwrap_or_default() } else { dims? };
                self.communicators.cart_create(all, old, new, dims)
            }
            CallKind::CartSub => {
                let remain = arguments.many(Field::RemainDims)?;
                self.communicators.cart_sub(all, old, new, remain)
            }
            CallKind::Create => {
                self.communicators.create(all, old, new, arguments.one(Field::Group)?)
            }
            CallKind::Group => match old {
                Some(old) => self.communicators.group(old, arguments.one(Field::Group)?),
                None => Ok(()),
            },
            CallKind::Include | CallKind::Exclude => {
                let (group, new) = (arguments.one(Field::Group)?, arguments.one(Field::Newgroup)?);
                let ranks = arguments.many(Field::Ranks)?;
                self.communicators.subgroup(all, group, new, ranks, kind == CallKind::Include)
            }
            _ => Ok(()),
        }
    }

    /// Bytes of `count` elements of a type.
    #[inline]
    pub(super) fn bytes_of(&mut self, count: i128, kind: i64) -> Result<u64, CallError> {
        let Some(size) = self.sizes.get(kind) else {
            self.shared.of_unknown_type += 1;
            return Ok(0);
        };
        let bytes = count.checked_mul(i128::from(size)).unwrap_or(-1);
        if !(0..=MAX_BYTES).contains(&bytes) {
            return Err(CallError::Invalid(format!("{count} elements of {size} B")));
        }
        Ok(bytes as u64)
    }

    fn new_post(
        &mut self,
        name: u32,
        position: u32,
        arguments: &Arguments,
    ) -> Result<Post, CallError> {
        let is_send = arguments.has(Field::Dest);
        let size =
            self.bytes_of(arguments.one(Field::Count)?.into(), arguments.one(Field::Datatype)?)?;
        let peer = arguments.one(if is_send { Field::Dest } else { Field::Source })?;
        let comm = self.communicators.comm(arguments.one(Field::Comm)?)?;
        post(size, position, peer, arguments.one(Field::Tag)?, comm, name, is_send)
    }

    /// Adds a post and returns its index; `None` for MPI_PROC_NULL.
    fn add(&mut self, post: Post) -> Option<u32> {
        if i64::from(post.peer) < ANY || (post.is_send && post.peer < 0) {
            self.shared.proc_null += 1;
            return None;
        }
        self.shared.posts.push(post);
        Some(self.shared.posts.len() as u32 - 1)
    }

    fn add_open(&mut self, request: i64, post: Post) {
        match self.add(post) {
            Some(at) => drop(self.open.insert(request, at)),
            None => drop(self.open.remove(&request)),
        }
    }

    /// MPI_Sendrecv: posts a receive and a send, then waits for both.
    fn sendrecv(
        &mut self,
        call: &DumpiCall,
        position: u32,
        arguments: &Arguments,
        replaced: bool,
    ) -> Result<(), CallError> {
        use Field::{Count, Datatype, Dest, Recvcount, Recvtag, Recvtype, Sendcount, Sendtag};
        use Field::{Sendtype, Source};
        let sides = [
            (Source, Recvtag, Recvcount, Recvtype, false),
            (Dest, Sendtag, Sendcount, Sendtype, true),
        ];
        for (peer, tag, count, kind, is_send) in sides {
            let (count, kind) = if replaced { (Count, Datatype) } else { (count, kind) };
            let (peer, tag) = (arguments.one(peer)?, arguments.one(tag)?);
            let comm = self.communicators.comm(arguments.one(Field::Comm)?)?;
            let size = self.bytes_of(arguments.one(count)?.into(), arguments.one(kind)?)?;
            let mut half = post(size, position, peer, tag, comm, call.name, is_send)?;
            half.wait = position + 1;
            fill_from_status(&mut half, arguments.status(Field::Status, 0)?);
            self.add(half);
        }
        Ok(())
    }

    fn init_persistent(
        &mut self,
        call: &DumpiCall,
        arguments: &Arguments,
    ) -> Result<(), CallError> {
        let request = arguments.first(Field::Request)?;
        let comm = arguments.one(Field::Comm)?;
        self.communicators.comm(comm)?;
        let is_send = arguments.has(Field::Dest);
        let of = Persistent {
            name: self.shared.started(call.name),
            is_send,
            peer: arguments.maybe(if is_send { Field::Dest } else { Field::Source }),
            count: arguments.maybe(Field::Count),
            datatype: arguments.maybe(Field::Datatype),
            comm: Some(comm),
            tag: arguments.maybe(Field::Tag),
        };
        self.persistent.insert(request, of);
        Ok(())
    }

    fn start(&mut self, request: i64, position: u32) -> Result<(), CallError> {
        let wrong =
            || CallError::Invalid(format!("request {request} is started before it is created"));
        let of = *self.persistent.get(&request).ok_or_else(wrong)?;
        let lacks = |value: Option<i64>, name| value.ok_or(CallError::MissingArgument(name));
        let size =
            self.bytes_of(lacks(of.count, "count")?.into(), lacks(of.datatype, "datatype")?)?;
        let peer = lacks(of.peer, if of.is_send { "dest" } else { "source" })?;
        let comm = self.communicators.comm(lacks(of.comm, "comm")?)?;
        let tag = lacks(of.tag, "tag")?;
        self.add_open(request, post(size, position, peer, tag, comm, of.name, of.is_send)?);
        Ok(())
    }

    /// Completes the requests with indices that are not negative.
    fn complete_some(&mut self, position: u32, arguments: &Arguments) -> Result<(), CallError> {
        let indices = arguments.many(Field::Indices)?;
        if indices.is_empty() {
            return Ok(());
        }
        let all = arguments.many(Field::Requests)?;
        let done = indices.iter().filter(|&&index| index >= 0);
        let done: Option<Vec<i64>> = done.map(|&at| all.get(at as usize).copied()).collect();
        let done = done.ok_or(CallError::MissingArgument("requests"))?;
        self.complete_all(done.into_iter(), position, arguments)
    }

    fn complete_all(
        &mut self,
        requests: impl Iterator<Item = i64>,
        position: u32,
        arguments: &Arguments,
    ) -> Result<(), CallError> {
        for (at, request) in requests.enumerate() {
            self.complete(request, position, arguments, at)?;
        }
        Ok(())
    }

    /// Completes a request when the call returns.
    fn complete(
        &mut self,
        request: i64,
        position: u32,
        arguments: &Arguments,
        at: usize,
    ) -> Result<(), CallError> {
        if let Some(post) = self.open.remove(&request) {
            let post = &mut self.shared.posts[post as usize];
            post.wait = position + 1;
            if !post.is_send {
                let many = arguments.has(Field::Statuses);
                let field = if many { Field::Statuses } else { Field::Status };
                fill_from_status(post, arguments.status(field, at)?);
            }
        }
        Ok(())
    }

    /// Adds a collective call.
    fn collective(
        &mut self,
        operation: u8,
        position: u32,
        stay_ns: i64,
        arguments: &Arguments,
    ) -> Result<(), CallError> {
        let comm = self.communicators.comm(arguments.one(Field::Comm)?)?;
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
            stay_ns,
        };
        self.set_root_and_bytes(&mut out, arguments)?;
        self.shared.collectives.push(out);
        Ok(())
    }

    /// Sets root and bytes.
    fn set_root_and_bytes(
        &mut self,
        out: &mut Collective,
        arguments: &Arguments,
    ) -> Result<(), CallError> {
        use Field::{Count, Datatype, Recvcount, Recvtype, Sendcount, Sendtype};
        let name = OPERATIONS[usize::from(out.operation)];
        let rooted =
            ["Bcast", "Gather", "Gatherv", "Scatter", "Scatterv", "Reduce"].contains(&&name[4..]);
        if rooted {
            out.root = arguments.one(Field::Root)?;
        }
        let mut size = |count: Field, kind: Field| {
            self.bytes_of(arguments.one(count)?.into(), arguments.one(kind)?)
        };
        match &name[4..] {
            "Barrier" => {}
            "Bcast" => out.received = size(Count, Datatype)?,
            "Reduce" | "Allreduce" | "Scan" | "Exscan" => out.sent = size(Count, Datatype)?,
            "Gather" => out.sent = size(Sendcount, Sendtype)?,
            "Allgather" | "Alltoall" => {
                out.sent = size(Sendcount, Sendtype)?;
                out.received = size(Recvcount, Recvtype)?;
            }
            "Scatter" => out.received = size(Recvcount, Recvtype)?,
            "Reduce_scatter" => {
                let all =
                    arguments.many(Field::Recvcounts)?.iter().map(|&count| i128::from(count)).sum();
                out.sent = self.bytes_of(all, arguments.one(Datatype)?)?;
            }
            name => {
                let counts = match name {
                    "Gatherv" => {
                        (vec![size(Sendcount, Sendtype)?], self.sizes_of(false, arguments)?)
                    }
                    "Scatterv" => {
                        let receive_sizes = vec![size(Recvcount, Recvtype)?];
                        (self.sizes_of(true, arguments)?, receive_sizes)
                    }
                    "Allgatherv" => (Vec::new(), self.sizes_of(false, arguments)?),
                    _ => (self.sizes_of(true, arguments)?, self.sizes_of(false, arguments)?),
                };
                let next = self.shared.counts.len() as i64;
                out.counts = *self.shared.counts.entry(counts).or_insert(next);
            }
        }
        Ok(())
    }

    /// Bytes of a vector of counts.
    fn sizes_of(&mut self, sends: bool, arguments: &Arguments) -> Result<Vec<u64>, CallError> {
        use Field::{Recvcounts, Recvtype, Recvtypes, Sendcounts, Sendtype, Sendtypes};
        let (counts, kinds, kind) = if sends {
            (Sendcounts, Sendtypes, Sendtype)
        } else {
            (Recvcounts, Recvtypes, Recvtype)
        };
        let counts = if arguments.has(counts) { arguments.many(counts)? } else { &[] };
        if arguments.has(kinds) {
            let kinds = arguments.many(kinds)?;
            if counts.len() != kinds.len() {
                let message = format!("{} counts and {} types", counts.len(), kinds.len());
                return Err(CallError::Invalid(message));
            }
            return counts
                .iter()
                .zip(kinds)
                .map(|(&count, &kind)| self.bytes_of(count.into(), kind))
                .collect();
        }
        let kind = arguments.one(kind)?;
        counts.iter().map(|&count| self.bytes_of(count.into(), kind)).collect()
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
) -> Result<Post, CallError> {
    let narrow = |what: &str, value: i64| {
        i32::try_from(value).map_err(|_| CallError::Invalid(format!("{value} is not a {what}")))
    };
    let (peer, tag) = (narrow("rank", peer)?, narrow("tag", tag)?);
    Ok(Post { size, position, wait: NO_WAIT, peer, tag, comm, name, is_send })
}

/// Sets source and tag of a receive from any source or with any tag, if the trace records them.
fn fill_from_status(post: &mut Post, status: Option<(i64, i64)>) {
    let Some((source, tag)) = status.filter(|_| !post.is_send) else { return };
    let narrow = |value: i64| i32::try_from(value).ok().filter(|&value| value >= 0);
    if i64::from(post.peer) == ANY {
        post.peer = narrow(source).unwrap_or(post.peer);
    }
    if i64::from(post.tag) == ANY {
        post.tag = narrow(tag).unwrap_or(post.tag);
    }
}
