//! Collective calls: sizes, and which calls of different ranks belong together.

use super::arguments::{Arguments, CallError, Field};
use super::rank::{Collective, RankFile};
use super::signatures::OPERATIONS;
use super::{DumpiCollectives, Shared};
use crate::numbering::Map;

/// Bytes sent to and received from every member.
pub(super) type Counts = (Vec<u64>, Vec<u64>);

impl RankFile<'_> {
    /// Sets root and bytes.
    pub(super) fn set_root_and_bytes(
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
                    arguments.many(Field::Recvcounts)?.iter().map(|&one| i128::from(one)).sum();
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

/// The calls of one collective operation of a communicator.
struct Instance {
    comm: u32,
    /// Number of calls.
    calls: u32,
    /// Whether all calls have the same operation and root.
    alike: bool,
    /// Index of the first call.
    first: u32,
}

/// Matches the calls of all members of a communicator. Returns the complete collectives, in the order of
/// their first calls, and the number of incomplete ones; `label` returns the label for an operation and
/// communicator.
pub(super) fn match_collectives(
    shared: &mut Shared,
    place: &[Option<u32>],
    members: &[Vec<u32>],
    mut label: impl FnMut(&Shared, u8, u32) -> u32,
) -> (DumpiCollectives, u64) {
    let calls = std::mem::take(&mut shared.collectives);
    let mut turns: Map<(u32, u32), u32> = Map::default();
    let mut seen: Map<u32, u32> = Map::default();
    let mut all: Vec<Instance> = Vec::new();
    let mut of = Vec::with_capacity(calls.len());
    let mut rank = u32::MAX;
    for (at, call) in calls.iter().enumerate() {
        if call.rank != rank {
            rank = call.rank;
            seen.clear();
        }
        let turn = seen.entry(call.comm).or_default();
        *turn += 1;
        let next = all.len() as u32;
        let number = *turns.entry((call.comm, *turn)).or_insert(next);
        if number == next {
            all.push(Instance { comm: call.comm, calls: 0, alike: true, first: at as u32 });
        }
        let turn = &mut all[number as usize];
        let first = &calls[turn.first as usize];
        turn.calls += 1;
        turn.alike &= (first.operation, first.root) == (call.operation, call.root);
        of.push(number);
    }
    let mut order: Vec<u32> = (0..calls.len() as u32).collect();
    order.sort_by_key(|&at| of[at as usize]);
    let mut out = DumpiCollectives::default();
    let mut lost = 0;
    let (mut last, mut keep, mut number) = (u32::MAX, false, 0);
    // Ranks of world ranks in each communicator, computed when needed.
    let mut places: Map<u32, Map<u32, u32>> = Map::default();
    for at in order {
        let (instance, call) = (of[at as usize], &calls[at as usize]);
        let comm = place[call.comm as usize];
        let group = comm.map_or(&[][..], |comm| &members[comm as usize]);
        if instance != last {
            let turn = &all[instance as usize];
            let whole = turn.calls as usize == group.len() && turn.alike;
            lost += u64::from(!whole);
            keep = whole && group.len() > 1;
            last = instance;
            if keep {
                number = label(shared, call.operation, turn.comm);
            }
        }
        if let (true, Some(comm)) = (keep, comm) {
            let me = places.entry(comm).or_insert_with(|| {
                group.iter().enumerate().map(|(local, &world)| (world, local as u32)).collect()
            });
            let me = me.get(&call.rank).copied().unwrap_or_default();
            out.push(call, comm, instance, number, group.len(), me);
        }
    }
    (out, lost)
}
