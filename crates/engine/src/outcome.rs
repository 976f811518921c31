//! The results of a run, in columns.

use tailback_program::Rank;
use tailback_telemetry::Samples;

use crate::model::Model;
use crate::network::link::NEVER;
use crate::probe::{PassTable, ProbeTables, TruthTable};
use crate::shard::Shard;

/// Everything a run produced.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Outcome {
    /// One entry per message, in order of sending rank and operation.
    pub messages: MessageLog,
    /// One entry per rank.
    pub ranks: Vec<RankLog>,
    /// When each rank began each of its computations, by rank and time; empty unless asked for.
    pub computations: Vec<(u32, u64)>,
    /// Data packets delivered.
    pub packets: u64,
    /// Switches visited by all packets, handshakes included.
    pub packet_hops: u64,
    /// With routing `vc`: flows that found no free table entry, counted once per switch.
    pub refused: u64,
    /// Packets that congestion control marked.
    pub marked: u64,
    /// Notifications (BECN, CNP) that receivers sent.
    pub notifications: u64,
    /// With priority flow control: how often lanes were paused, and for how long together.
    pub pauses: u64,
    /// See `pauses`.
    pub paused_ps: u64,
    /// Events processed.
    pub events: u64,
    /// Whether an adapter that had sent part of a message had others to send. If none had, adapters
    /// that take turns and those that send one message after another give the same run (with
    /// contention, and without queues per destination).
    pub adapters_shared: bool,
    /// When the last event happened.
    pub end_ps: u64,
    /// Whether the run completed; otherwise the results cover the time until it was
    /// interrupted.
    pub complete: bool,
    /// Length of a time window; 0 when nothing was measured.
    pub window_ps: u64,
    /// Samples that receivers collected, summed per window, label and link.
    pub samples: Samples,
    /// Ground truth: traffic of each link per window.
    pub truth: TruthTable,
    /// Traffic of each link per step that labels state; the window is the step minus 1.
    pub step_truth: TruthTable,
    /// Packets of those steps per label and link that could sample them, and of them those that
    /// met congestion; the window is the step minus 1.
    pub step_passes: PassTable,
    /// Tables of the other probes.
    pub probed: ProbeTables,
}

/// Finishing time of a rank, and how it spent its time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RankLog {
    /// When its last operation completed.
    pub finish_ps: u64,
    /// Time computing.
    pub compute_ps: u64,
    /// Time blocked in a wait.
    pub wait_ps: u64,
}

impl RankLog {
    /// The log of a rank in a run that ended, or was interrupted, at `end_ps`.
    pub(crate) fn new(state: &Rank, end_ps: u64) -> Self {
        let &Rank { finish_ps, compute_ps, .. } = state;
        Self { finish_ps, compute_ps, wait_ps: state.waited_ps(end_ps) }
    }
}

/// The message log, column by column.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MessageLog {
    /// Sending rank.
    pub src: Vec<u32>,
    /// Receiving rank.
    pub dst: Vec<u32>,
    /// Size.
    pub bytes: Vec<u64>,
    /// Label.
    pub label: Vec<u32>,
    /// When its send was posted.
    pub post_ps: Vec<u64>,
    /// When its first byte left; [`u64::MAX`] if it has not.
    pub start_ps: Vec<u64>,
    /// When its last byte arrived; [`u64::MAX`] if it had not when the run was interrupted.
    pub arrival_ps: Vec<u64>,
    /// Data packets.
    pub packets: Vec<u32>,
    /// Data packets that arrived: all of them unless the run was interrupted.
    pub arrived: Vec<u32>,
    /// Switches visited by the packets that arrived.
    pub switch_hops: Vec<u32>,
}

impl MessageLog {
    fn with_capacity(n: usize) -> Self {
        Self {
            src: Vec::with_capacity(n),
            dst: Vec::with_capacity(n),
            bytes: Vec::with_capacity(n),
            label: Vec::with_capacity(n),
            post_ps: Vec::with_capacity(n),
            start_ps: Vec::with_capacity(n),
            arrival_ps: Vec::with_capacity(n),
            packets: Vec::with_capacity(n),
            arrived: Vec::with_capacity(n),
            switch_hops: Vec::with_capacity(n),
        }
    }

    /// All messages of a run, except those of steps that were left out.
    pub(crate) fn new<P>(model: &Model<'_>, shards: &[Shard<'_, P>], left_out: &[bool]) -> Self {
        let all = 0..model.program.messages.len() as u32;
        let kept = |&number: &u32| !left_out.get(number as usize).is_some_and(|&out| out);
        Self::of(model, shards, all.filter(kept))
    }

    /// Messages by their numbers.
    pub(crate) fn of<P>(
        model: &Model<'_>,
        shards: &[Shard<'_, P>],
        numbers: impl Iterator<Item = u32>,
    ) -> Self {
        let mut log = Self::with_capacity(numbers.size_hint().1.unwrap_or(0));
        for number in numbers {
            let message = &model.program.messages[number as usize];
            let sender = &shards[model.shard_of_rank(message.src)];
            let sending = &sender.sends[model.send_of(number) as usize];
            let receiver = &shards[model.shard_of_rank(message.dst)];
            let receiving = &receiver.receives[model.receive_of(number) as usize];
            log.src.push(message.src);
            log.dst.push(message.dst);
            log.bytes.push(message.bytes);
            log.label.push(message.label);
            log.post_ps.push(sending.post_ps);
            log.start_ps.push(sending.start_ps);
            log.arrival_ps.push(if receiving.arrived { receiving.arrival_ps } else { NEVER });
            log.packets.push(sending.packets);
            // Messages within a host are not split into packets.
            log.arrived.push(if receiving.arrived { sending.packets } else { receiving.received });
            log.switch_hops.push(receiving.switch_hops);
        }
        log
    }
}
