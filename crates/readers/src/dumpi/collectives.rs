//! Which collective calls of different ranks belong together.

use super::calls::{DumpiCollectives, Shared};
use crate::numbering::Map;

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
            let complete = turn.calls as usize == group.len() && turn.alike;
            lost += u64::from(!complete);
            keep = complete && group.len() > 1;
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
