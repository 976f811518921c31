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

use crate::network::link::Link;
use crate::parallel::barrier::{Alarm, Gate};
use crate::parallel::exchange::PostOffice;
use crate::probe::Probe;
use crate::progress::{Progress, Watch};
use crate::shard::Shard;
use crate::world::World;

const EVENTS_BETWEEN_WATCHES: u64 = 1 << 17;

/// What others tell is not looked at each round: who tells must wait then until it may write there again.
const ROUNDS_BETWEEN_LOOKS: u64 = 1 << 4;

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

/// Makes the shards of `world`, each with the probe that `probe` makes for so many links, and runs them.
pub(crate) fn run_windows<'w, P: Probe + Send>(
    world: &'w World<'w>,
    probe: impl Fn(&[Link]) -> P + Sync,
    threads: usize,
    watch: Watch<'_>,
) -> (Vec<Shard<'w, P>>, End) {
    let n = world.cut.shards as usize;
    let office = Office {
        world,
        probe,
        threads: threads.clamp(1, n),
        desks: (0..n).map(|_| Desk::default()).collect(),
        post: [PostOffice::new(n), PostOffice::new(n)],
        gate: Gate::default(),
        last: world.last_window(),
        too_long: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let office = &office;
        let work = |thread| scope.spawn(move || office.work(thread, None));
        let others: Vec<_> = (1..office.threads).map(work).collect();
        office.work(0, Some(watch));
        for other in others {
            if let Err(panic) = other.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let end = match (office.too_long.into_inner(), office.stop.into_inner()) {
        (true, _) => End::TooLong,
        (_, true) => End::BrokenOff,
        _ => End::Complete,
    };
    let shard = |desk: Desk<_>| desk.shard.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    (office.desks.into_iter().filter_map(shard).collect(), end)
}

type Guard<'g, S> = MutexGuard<'g, Option<S>>;

/// A shard, and what it tells of itself.
struct Desk<S> {
    /// Rounds in which a thread has taken the shard: each round one.
    taken: Line<AtomicU64>,
    told: Line<Told>,
    /// Made in the first round.
    shard: Line<Mutex<Option<S>>>,
}

/// Something on cache lines of its own: written by one thread without waiting for those who read its neighbours.
#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

/// What a shard tells when it has handed over what it has for others.
#[derive(Default)]
struct Told {
    /// Rounds in which it has.
    rounds: AtomicU64,
    /// One more than the first window in which something happens after this one, [`STOP`] or [`NEVER`]; of even
    /// and of odd rounds, for who is ahead tells of the next round while others read what is told of this one.
    next: [AtomicU64; 2],
    events: AtomicU64,
    delivered: AtomicU64,
    time: AtomicU64,
}

impl<S> Default for Desk<S> {
    fn default() -> Self {
        Self { taken: Line::default(), told: Line::default(), shard: Line(Mutex::new(None)) }
    }
}

impl<S> Desk<S> {
    /// Whether nobody has taken the shard in `round`.
    fn is_free(&self, round: u64) -> bool {
        self.taken.0.load(Relaxed) == round
    }

    /// Whether the shard is the caller's in `round`.
    fn take(&self, round: u64) -> bool {
        let taken = &self.taken.0;
        self.is_free(round) && taken.compare_exchange(round, round + 1, Relaxed, Relaxed).is_ok()
    }
}

/// Lets the only shard go on, not into the `last` window: through many windows at once, for there may be but one event
/// in each.
fn run_on<P: Probe>(shard: &mut Shard<'_, P>, last: u64) {
    let until = shard.events + EVENTS_BETWEEN_WATCHES / 32;
    while shard.events < until && shard.next_window() < last {
        shard.run(shard.next_window());
    }
}

/// What threads share.
struct Office<'w, P, F> {
    world: &'w World<'w>,
    probe: F,
    threads: usize,
    desks: Vec<Desk<Shard<'w, P>>>,
    /// Written in one round and read in the next, by turns.
    post: [PostOffice; 2],
    gate: Gate,
    /// The first window that there are no times for; whether all that is left is there or later.
    last: u64,
    too_long: AtomicBool,
    /// The watcher has asked to stop.
    stop: AtomicBool,
}

impl<'w, P: Probe, F: Fn(&[Link]) -> P> Office<'w, P, F> {
    /// The life of a thread.
    fn work(&self, thread: usize, mut watch: Option<Watch<'_>>) {
        let _alarm = Alarm(&self.gate);
        let (mut watched, mut window) = (0, 0);
        for round in 0.. {
            for shard in (thread..self.desks.len()).step_by(self.threads) {
                self.serve(shard, (round, window));
            }
            if let Some(watch) = &mut watch
                && (self.threads == 1 || round % ROUNDS_BETWEEN_LOOKS == 0)
                && self.look(&mut watched, watch).is_break()
            {
                self.stop.store(true, Relaxed);
            }
            let help = || (0..self.desks.len()).for_each(|shard| self.help(shard, (round, window)));
            self.gate.wait(|| self.is_over(round), help);
            let next = self.next(round);
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
            if window >= self.last {
                self.too_long.store(true, Relaxed);
                break;
            }
        }
    }

    /// Whether all shards have handed over what they have for others in `round`.
    fn is_over(&self, round: u64) -> bool {
        self.desks.iter().all(|desk| desk.told.0.rounds.load(Acquire) > round)
    }

    /// The least of what shards have told of what comes after `round`, which is over: the same for all threads.
    fn next(&self, round: u64) -> u64 {
        self.told(|told| &told.next[round as usize % 2]).min().unwrap_or(NEVER)
    }

    /// Does what a shard has to do in a round and its window, unless another thread has taken it.
    fn serve(&self, number: usize, (round, window): (u64, u64)) {
        let desk = &self.desks[number];
        if self.threads == 1 || desk.take(round) {
            let shard = desk.shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            self.serve_taken(number, shard, (round, window));
        }
    }

    /// The same for a shard that nobody is busy with.
    fn help(&self, number: usize, (round, window): (u64, u64)) {
        let desk = &self.desks[number];
        if desk.is_free(round)
            && let Ok(shard) = desk.shard.0.try_lock()
            && desk.take(round)
        {
            self.serve_taken(number, shard, (round, window));
        }
    }

    /// The same for one that is the caller's.
    fn serve_taken(
        &self,
        number: usize,
        mut shard: Guard<'_, Shard<'w, P>>,
        (round, window): (u64, u64),
    ) {
        let post = |round: u64| &self.post[round as usize % 2];
        if let Some(shard) = &mut *shard {
            if self.desks.len() == 1 {
                run_on(shard, self.last);
            } else {
                shard.collect(post(round + 1));
                shard.run_border(window);
            }
        }
        let served = shard.get_or_insert_with(|| self.world.shard(number as u8, &self.probe));
        let next = served.next_window().saturating_add(1);
        served.post(post(round));
        let told = &self.desks[number].told.0;
        let stop = number == 0 && self.stop.load(Relaxed);
        told.next[round as usize % 2].store(if stop { STOP } else { next }, Relaxed);
        told.events.store(served.events, Relaxed);
        told.delivered.store(served.delivered, Relaxed);
        told.time.store(served.end, Relaxed);
        told.rounds.store(round + 1, Release);
        self.gate.ring();
        served.run_rest();
    }

    /// Calls the watcher if enough has happened since.
    fn look(&self, watched: &mut u64, watch: &mut Watch<'_>) -> ControlFlow<()> {
        let events = self.told(|told| &told.events).sum();
        if events - *watched < EVENTS_BETWEEN_WATCHES {
            return ControlFlow::Continue(());
        }
        *watched = events;
        let delivered = self.told(|told| &told.delivered).sum();
        let time_ps = self.told(|told| &told.time).max().unwrap_or(0);
        watch(Progress { time_ps, delivered, packets: self.world.total_packets, events })
    }

    /// What each shard has told last.
    fn told<'o>(&'o self, what: impl Fn(&'o Told) -> &'o AtomicU64) -> impl Iterator<Item = u64> {
        self.desks.iter().map(move |desk| what(&desk.told.0).load(Relaxed))
    }
}
