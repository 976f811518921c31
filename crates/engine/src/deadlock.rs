//! Diagnosis of a run that stopped before all ranks finished.

use tailback_program::ProgramError;

use crate::EngineError;
use crate::model::Model;
use crate::network::link::NIL;
use crate::shard::Shard;

/// Reports a cycle of buffers if there is one; otherwise what each rank waits for.
pub(crate) fn explain<P>(model: &Model<'_>, shards: &[Shard<'_, P>]) -> EngineError {
    let time_ps = shards.iter().map(|shard| shard.end).max().unwrap_or(0);
    find_cycle(model, shards, time_ps).unwrap_or_else(|| blocked_ranks(model, shards, time_ps))
}

/// Lane A waits for lane B if packets in the buffer of A wait for credit of B.
fn find_cycle<P>(model: &Model<'_>, shards: &[Shard<'_, P>], time_ps: u64) -> Option<EngineError> {
    let per_link = u32::from(model.lanes());
    let number = |shard: &Shard<'_, P>, lane: u32| {
        let (link, lane) = shard.links.link_and_lane(lane);
        link * per_link + u32::from(lane)
    };
    let lanes = model.fabric.n_links() * per_link as usize;
    let mut waits_for = vec![NIL; lanes];
    for shard in shards {
        for lane in 0..shard.links.n_lanes() {
            let Some((mut slot, last)) = shard.links.lane(lane).waiting_ends() else { continue };
            loop {
                let packet = &shard.packets[slot];
                let held = number(&shards[usize::from(packet.from)], packet.lane);
                waits_for[held as usize] = number(shard, lane);
                if slot == last {
                    break;
                }
                slot = packet.next;
            }
        }
    }
    for shard in shards {
        for (lane, slot) in shard.arbiter.heads() {
            let packet = &shard.packets[slot];
            let held = number(&shards[usize::from(packet.from)], packet.lane);
            waits_for[held as usize] = number(shard, lane);
        }
    }
    let mut seen = vec![NIL; lanes];
    for start in 0..lanes as u32 {
        let mut at = start;
        while at != NIL && seen[at as usize] == NIL {
            seen[at as usize] = start;
            at = waits_for[at as usize];
        }
        if at != NIL && seen[at as usize] == start {
            let link_and_lane = |lane: u32| (lane / per_link, (lane % per_link) as u8);
            let mut cycle = vec![link_and_lane(at)];
            let mut next = waits_for[at as usize];
            while next != at {
                cycle.push(link_and_lane(next));
                next = waits_for[next as usize];
            }
            return Some(EngineError::Deadlock { time_ps, cycle });
        }
    }
    None
}

/// The first few ranks that have not finished and what each waits for.
fn blocked_ranks<P>(model: &Model<'_>, shards: &[Shard<'_, P>], time_ps: u64) -> EngineError {
    let program = &model.program;
    let ranks = (0..model.placement.node.len() as u32).map(|rank| {
        let shard = &shards[model.shard_of_rank(rank)];
        &shard.ranks[model.local_rank(rank) as usize]
    });
    let message = |number: u32| program.messages[number as usize].message();
    ProgramError::stuck(time_ps, &program.rank_start, ranks, message).into()
}
