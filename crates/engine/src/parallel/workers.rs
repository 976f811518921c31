//! The main loop: threads run the shards through windows of time in parallel and exchange packets and
//! credit in between.
//!
//! A window is at most as long as the lookahead of the partition, so nothing a shard does within it can
//! affect another shard before its end. Windows without events are skipped. A round of the loop is one
//! window. Each shard processes its boundary groups first: groups further inside cannot affect another
//! shard before they have affected the boundary, in a later window. So the shard publishes its handoffs
//! and processes the rest while others catch up; a slightly slower shard delays no other.
//!
//! Every thread runs its own shards, and then those of threads that have not started on theirs: if
//! a core is busy with other work, its shards do not delay the others. A shard depends only on its
//! own events, and events of a group have a fixed order, so the results are the same on any number
//! of threads.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use crate::model::Model;
use crate::network::link::Link;
use crate::outcome::MessageLog;
use crate::parallel::barrier::{Barrier, PanicGuard};
use crate::parallel::exchange::Exchange;
use crate::probe::Probe;
use crate::progress::{Decide, Progress, StepReport, Watch};
use crate::shard::Shard;

const EVENTS_BETWEEN_REPORTS: u64 = 1 << 17;

/// Progress is not read in every round: reading makes the next write of the owner slower.
const ROUNDS_BETWEEN_REPORTS: u64 = 1 << 4;

/// After all windows: nothing is pending.
const NEVER: u64 = u64::MAX;

/// In place of a next window: the progress callback asked to stop.
const STOP: u64 = 0;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// Nothing is pending.
    Complete,
    /// Interrupted by the progress callback.
    BrokenOff,
    /// The remaining events exceed the representable time.
    TooLong,
}

/// Makes the shards of `model`, each with the probe that `probe` makes for its links, and runs
/// them.
pub(crate) fn run_windows<'w, P: Probe + Send>(
    model: &'w Model<'w>,
    probe: impl Fn(&[Link]) -> P + Sync,
    threads: usize,
    watch: Watch<'_>,
    decide: Option<Decide<'_>>,
) -> (Vec<Shard<'w, P>>, RunEnd) {
    let n = model.partition.shards as usize;
    let pool = WorkerPool {
        model,
        probe,
        threads: threads.clamp(1, n),
        slots: (0..n).map(|_| ShardSlot::default()).collect(),
        exchanges: [Exchange::new(n), Exchange::new(n)],
        barrier: Barrier::default(),
        end_window: model.last_window(),
        too_long: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let pool = &pool;
        let work = |thread| scope.spawn(move || pool.run_thread(thread, None, None));
        let others: Vec<_> = (1..pool.threads).map(work).collect();
        pool.run_thread(0, Some(watch), decide);
        for other in others {
            if let Err(panic) = other.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let end = match (pool.too_long.into_inner(), pool.stop.into_inner()) {
        (true, _) => RunEnd::TooLong,
        (_, true) => RunEnd::BrokenOff,
        _ => RunEnd::Complete,
    };
    let shard = |slot: ShardSlot<_>| {
        slot.shard.into_inner().into_inner().unwrap_or_else(PoisonError::into_inner)
    };
    (pool.slots.into_iter().filter_map(shard).collect(), end)
}

type Guard<'g, S> = MutexGuard<'g, Option<S>>;

/// A shard and its published progress.
struct ShardSlot<S> {
    /// Number of rounds for which a thread has claimed the shard: one thread per round.
    claimed: CachePadded<AtomicU64>,
    progress: CachePadded<ShardProgress>,
    /// Created in the first round.
    shard: CachePadded<Mutex<Option<S>>>,
}

/// State that a shard publishes after it has handed over everything for other shards.
#[derive(Default)]
struct ShardProgress {
    /// Completed rounds.
    rounds: AtomicU64,
    /// One more than the first window with events after this one, [`STOP`] or [`NEVER`]; for
    /// even and odd rounds, because a shard that is ahead publishes the next round while others
    /// still read this one.
    next: [AtomicU64; 2],
    events: AtomicU64,
    delivered: AtomicU64,
    time: AtomicU64,
}

impl<S> Default for ShardSlot<S> {
    fn default() -> Self {
        Self {
            claimed: CachePadded::default(),
            progress: CachePadded::default(),
            shard: CachePadded::new(Mutex::new(None)),
        }
    }
}

impl<S> ShardSlot<S> {
    /// Whether no thread has claimed the shard for `round`.
    fn is_free(&self, round: u64) -> bool {
        self.claimed.load(Relaxed) == round
    }

    /// Claims the shard for `round`; returns whether the caller has it.
    fn claim(&self, round: u64) -> bool {
        let claimed = &self.claimed;
        self.is_free(round) && claimed.compare_exchange(round, round + 1, Relaxed, Relaxed).is_ok()
    }
}

/// Runs a single shard, up to `end_window`: through many windows at once, because each may hold
/// only one event.
fn run_single_shard<P: Probe>(shard: &mut Shard<'_, P>, end_window: u64) {
    let until = shard.events + EVENTS_BETWEEN_REPORTS / 32;
    while shard.events < until && shard.next_window() < end_window && !shard.check_is_due() {
        shard.run_window(shard.next_window());
    }
}

/// What threads share.
struct WorkerPool<'w, P, F> {
    model: &'w Model<'w>,
    probe: F,
    threads: usize,
    slots: Vec<ShardSlot<Shard<'w, P>>>,
    /// Written in one round and read in the next, alternating.
    exchanges: [Exchange; 2],
    barrier: Barrier,
    /// The first window beyond the representable time; whether the run has reached it.
    end_window: u64,
    too_long: AtomicBool,
    /// The progress callback asked to stop.
    stop: AtomicBool,
}

impl<'w, P: Probe, F: Fn(&[Link]) -> P> WorkerPool<'w, P, F> {
    /// Body of a worker thread.
    fn run_thread(
        &self,
        thread: usize,
        mut watch: Option<Watch<'_>>,
        mut decide: Option<Decide<'_>>,
    ) {
        let _alarm = PanicGuard(&self.barrier);
        let (mut watched, mut window) = (0, 0);
        for round in 0.. {
            for shard in (thread..self.slots.len()).step_by(self.threads) {
                self.run_shard(shard, (round, window));
            }
            if let Some(decide) = &mut decide
                && self.consult(decide).is_break()
            {
                self.stop.store(true, Relaxed);
            }
            if let Some(watch) = &mut watch
                && (self.threads == 1 || round % ROUNDS_BETWEEN_REPORTS == 0)
                && self.report_progress(&mut watched, watch).is_break()
            {
                self.stop.store(true, Relaxed);
            }
            let try_run_shard = || {
                (0..self.slots.len()).for_each(|shard| self.try_run_shard(shard, (round, window)))
            };
            self.barrier.wait(|| self.is_over(round), try_run_shard);
            let next = self.next_window(round);
            // If other threads have completed the next round meanwhile, `next` may belong to a
            // later one. There is nothing left to do in the round then.
            fence(Acquire);
            if self.is_over(round + 1) {
                continue;
            }
            if next == STOP || next == NEVER {
                break;
            }
            window = next - 1;
            if window >= self.end_window {
                self.too_long.store(true, Relaxed);
                break;
            }
        }
    }

    /// Whether all shards have published their handoffs of `round`.
    fn is_over(&self, round: u64) -> bool {
        self.slots.iter().all(|slot| slot.progress.rounds.load(Acquire) > round)
    }

    /// The first window with events after `round`, which is over; the same for all threads.
    fn next_window(&self, round: u64) -> u64 {
        self.progress(|progress| &progress.next[round as usize % 2]).min().unwrap_or(NEVER)
    }

    /// Runs a shard for a round and its window, unless another thread has claimed it.
    fn run_shard(&self, number: usize, (round, window): (u64, u64)) {
        let slot = &self.slots[number];
        if self.threads == 1 || slot.claim(round) {
            let shard = slot.shard.lock().unwrap_or_else(PoisonError::into_inner);
            self.run_claimed(number, shard, (round, window));
        }
    }

    /// Runs a shard for a round if it is free and unlocked.
    fn try_run_shard(&self, number: usize, (round, window): (u64, u64)) {
        let slot = &self.slots[number];
        if slot.is_free(round)
            && let Ok(shard) = slot.shard.try_lock()
            && slot.claim(round)
        {
            self.run_claimed(number, shard, (round, window));
        }
    }

    /// Runs a shard that the caller has claimed.
    fn run_claimed(
        &self,
        number: usize,
        mut shard: Guard<'_, Shard<'w, P>>,
        (round, window): (u64, u64),
    ) {
        let exchange = |round: u64| &self.exchanges[round as usize % 2];
        if let Some(shard) = &mut *shard {
            if self.slots.len() == 1 {
                run_single_shard(shard, self.end_window);
            } else {
                shard.receive_handoffs(exchange(round + 1));
                shard.run_boundary(window);
            }
        }
        let served = shard.get_or_insert_with(|| self.model.shard(number as u8, &self.probe));
        let next = served.next_window().saturating_add(1);
        served.publish_handoffs(exchange(round));
        let progress = &self.slots[number].progress;
        let stop = number == 0 && self.stop.load(Relaxed);
        // A thread that reads the value of a later round must then also see that the round before
        // it is over.
        progress.next[round as usize % 2].store(if stop { STOP } else { next }, Release);
        progress.events.store(served.events, Relaxed);
        progress.delivered.store(served.delivered, Relaxed);
        progress.time.store(served.end, Relaxed);
        progress.rounds.store(round + 1, Release);
        self.barrier.notify();
        served.run_interior();
    }

    /// Asks which steps to leave out, if a check of the only shard is due.
    fn consult(&self, decide: &mut Decide<'_>) -> ControlFlow<()> {
        let mut slot = self.slots[0].shard.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(shard) = &mut *slot else { return ControlFlow::Continue(()) };
        let Some(gates) = &shard.gates else { return ControlFlow::Continue(()) };
        let Some(check) = gates.due() else { return ControlFlow::Continue(()) };
        let numbers = gates.messages(&self.model.program, check.from..check.at);
        let report = StepReport {
            rank_step: gates.rank_steps().to_vec(),
            messages: MessageLog::of(self.model, std::slice::from_ref(&*shard), numbers),
            traffic: shard.probe.step_traffic(),
        };
        let decision = decide(report)?;
        if let Some(gates) = &mut shard.gates {
            gates.apply(decision);
        }
        ControlFlow::Continue(())
    }

    /// Calls the progress callback if enough events have been processed since.
    fn report_progress(&self, watched: &mut u64, watch: &mut Watch<'_>) -> ControlFlow<()> {
        let events = self.progress(|progress| &progress.events).sum();
        if events - *watched < EVENTS_BETWEEN_REPORTS {
            return ControlFlow::Continue(());
        }
        *watched = events;
        let delivered = self.progress(|progress| &progress.delivered).sum();
        let time_ps = self.progress(|progress| &progress.time).max().unwrap_or(0);
        watch(Progress { time_ps, delivered, packets: self.model.total_packets, events })
    }

    /// A value that each shard has published last.
    fn progress<'o>(
        &'o self,
        what: impl Fn(&'o ShardProgress) -> &'o AtomicU64,
    ) -> impl Iterator<Item = u64> {
        self.slots.iter().map(move |slot| what(&slot.progress).load(Relaxed))
    }
}
