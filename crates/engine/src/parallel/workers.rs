//! The loop: shards go through a window of time side by side, hand over what they have for one another,
//! and go on.
//!
//! A window is at most as long as the lookahead of the cut, so nothing a shard does within it can matter
//! to another before its end; windows without any event are left out. A round of the loop is one window.
//! Each shard serves its border first: what happens further inside cannot reach another shard before it has
//! reached the border, in a later window. So it hands over what it has, and does the rest while others get
//! that far: who is a little slower in one window holds nobody up.
//!
//! Every thread serves its own shards, and then those of threads that have not come to it: where other
//! work takes a core away, nobody waits for the thread that had it. What a shard does depends on its own
//! events alone and those of a group have a fixed order, so the outcome is the same on any number of
//! threads.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::Model;
use crate::network::link::Link;
use crate::parallel::barrier::{Barrier, PanicGuard};
use crate::parallel::exchange::Exchange;
use crate::probe::Probe;
use crate::progress::{Progress, Watch};
use crate::shard::Shard;

const EVENTS_BETWEEN_REPORTS: u64 = 1 << 17;

/// What others tell is not looked at each round: who tells must wait then until it may write there again.
const ROUNDS_BETWEEN_REPORTS: u64 = 1 << 4;

/// After all windows: nothing is pending.
const NEVER: u64 = u64::MAX;

/// In place of a next window: the watcher has asked to stop.
const STOP: u64 = 0;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing is pending.
    Complete,
    /// The watcher has broken it off.
    BrokenOff,
    /// There are no times for what is left.
    TooLong,
}

/// Makes the shards of `model`, each with the probe that `probe` makes for so many links, and runs them.
pub(crate) fn run_windows<'w, P: Probe + Send>(
    model: &'w Model<'w>,
    probe: impl Fn(&[Link]) -> P + Sync,
    threads: usize,
    watch: Watch<'_>,
) -> (Vec<Shard<'w, P>>, End) {
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
        let work = |thread| scope.spawn(move || pool.run_thread(thread, None));
        let others: Vec<_> = (1..pool.threads).map(work).collect();
        pool.run_thread(0, Some(watch));
        for other in others {
            if let Err(panic) = other.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let end = match (pool.too_long.into_inner(), pool.stop.into_inner()) {
        (true, _) => End::TooLong,
        (_, true) => End::BrokenOff,
        _ => End::Complete,
    };
    let shard =
        |slot: ShardSlot<_>| slot.shard.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    (pool.slots.into_iter().filter_map(shard).collect(), end)
}

type Guard<'g, S> = MutexGuard<'g, Option<S>>;

/// A shard, and what it tells of itself.
struct ShardSlot<S> {
    /// Rounds in which a thread has taken the shard: each round one.
    claimed: CachePadded<AtomicU64>,
    progress: CachePadded<ShardProgress>,
    /// Made in the first round.
    shard: CachePadded<Mutex<Option<S>>>,
}

/// Something on cache lines of its own: written by one thread without waiting for those who read its neighbours.
#[derive(Default)]
#[repr(align(128))]
struct CachePadded<T>(T);

/// What a shard tells when it has handed over what it has for others.
#[derive(Default)]
struct ShardProgress {
    /// Rounds in which it has.
    rounds: AtomicU64,
    /// One more than the first window in which something happens after this one, [`STOP`] or [`NEVER`]; of even
    /// and of odd rounds, for who is ahead tells of the next round while others read what is told of this one.
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
            shard: CachePadded(Mutex::new(None)),
        }
    }
}

impl<S> ShardSlot<S> {
    /// Whether nobody has taken the shard in `round`.
    fn is_free(&self, round: u64) -> bool {
        self.claimed.0.load(Relaxed) == round
    }

    /// Whether the shard is the caller's in `round`.
    fn claim(&self, round: u64) -> bool {
        let claimed = &self.claimed.0;
        self.is_free(round) && claimed.compare_exchange(round, round + 1, Relaxed, Relaxed).is_ok()
    }
}

/// Lets the only shard go on, not into the `end_window` window: through many windows at once, for there may be but one event
/// in each.
fn run_single_shard<P: Probe>(shard: &mut Shard<'_, P>, end_window: u64) {
    let until = shard.events + EVENTS_BETWEEN_REPORTS / 32;
    while shard.events < until && shard.next_window() < end_window {
        shard.run_window(shard.next_window());
    }
}

/// What threads share.
struct WorkerPool<'w, P, F> {
    model: &'w Model<'w>,
    probe: F,
    threads: usize,
    slots: Vec<ShardSlot<Shard<'w, P>>>,
    /// Written in one round and read in the next, by turns.
    exchanges: [Exchange; 2],
    barrier: Barrier,
    /// The first window that there are no times for; whether all that is left is there or later.
    end_window: u64,
    too_long: AtomicBool,
    /// The watcher has asked to stop.
    stop: AtomicBool,
}

impl<'w, P: Probe, F: Fn(&[Link]) -> P> WorkerPool<'w, P, F> {
    /// The life of a thread.
    fn run_thread(&self, thread: usize, mut watch: Option<Watch<'_>>) {
        let _alarm = PanicGuard(&self.barrier);
        let (mut watched, mut window) = (0, 0);
        for round in 0.. {
            for shard in (thread..self.slots.len()).step_by(self.threads) {
                self.run_shard(shard, (round, window));
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
            // Where others have done this thread's part of the next round already, that may be of a later one;
            // and there is nothing to do for it in the next.
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

    /// Whether all shards have handed over what they have for others in `round`.
    fn is_over(&self, round: u64) -> bool {
        self.slots.iter().all(|slot| slot.progress.0.rounds.load(Acquire) > round)
    }

    /// The least of what shards have told of what comes after `round`, which is over: the same for all threads.
    fn next_window(&self, round: u64) -> u64 {
        self.progress(|progress| &progress.next[round as usize % 2]).min().unwrap_or(NEVER)
    }

    /// Does what a shard has to do in a round and its window, unless another thread has taken it.
    fn run_shard(&self, number: usize, (round, window): (u64, u64)) {
        let slot = &self.slots[number];
        if self.threads == 1 || slot.claim(round) {
            let shard = slot.shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            self.run_claimed(number, shard, (round, window));
        }
    }

    /// The same for a shard that nobody is busy with.
    fn try_run_shard(&self, number: usize, (round, window): (u64, u64)) {
        let slot = &self.slots[number];
        if slot.is_free(round)
            && let Ok(shard) = slot.shard.0.try_lock()
            && slot.claim(round)
        {
            self.run_claimed(number, shard, (round, window));
        }
    }

    /// The same for one that is the caller's.
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
        let progress = &self.slots[number].progress.0;
        let stop = number == 0 && self.stop.load(Relaxed);
        progress.next[round as usize % 2].store(if stop { STOP } else { next }, Relaxed);
        progress.events.store(served.events, Relaxed);
        progress.delivered.store(served.delivered, Relaxed);
        progress.time.store(served.end, Relaxed);
        progress.rounds.store(round + 1, Release);
        self.barrier.notify();
        served.run_interior();
    }

    /// Calls the watcher if enough has happened since.
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

    /// What each shard has told last.
    fn progress<'o>(
        &'o self,
        what: impl Fn(&'o ShardProgress) -> &'o AtomicU64,
    ) -> impl Iterator<Item = u64> {
        self.slots.iter().map(move |slot| what(&slot.progress.0).load(Relaxed))
    }
}
