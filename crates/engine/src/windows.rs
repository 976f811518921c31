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
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::gate::{Alarm, Gate};
use crate::link::Link;
use crate::mail::PostOffice;
use crate::probe::Probe;
use crate::shard::Shard;
use crate::sim::{Progress, Watch};
use crate::world::World;

const EVENTS_BETWEEN_WATCHES: u64 = 1 << 17;

/// After all windows: nothing is pending.
const NEVER: u64 = u64::MAX;

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
        unserved: AtomicUsize::new(n),
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
    let shard = |desk: Desk<_>| desk.shard.into_inner().unwrap_or_else(PoisonError::into_inner);
    (office.desks.into_iter().filter_map(shard).collect(), end)
}

type Guard<'g, S> = MutexGuard<'g, Option<S>>;

/// A shard, and what it tells of itself after each round; on cache lines of its own.
#[repr(align(128))]
struct Desk<S> {
    /// Rounds in which a thread has taken the shard: each round one.
    taken: AtomicU64,
    /// The first window in which something happens after this one.
    next: AtomicU64,
    events: AtomicU64,
    delivered: AtomicU64,
    time: AtomicU64,
    /// Made in the first round.
    shard: Mutex<Option<S>>,
}

impl<S> Default for Desk<S> {
    fn default() -> Self {
        let [taken, next, events, delivered, time] = [(); 5].map(|()| AtomicU64::new(0));
        Self { taken, next, events, delivered, time, shard: Mutex::new(None) }
    }
}

impl<S> Desk<S> {
    /// Whether the shard is the caller's in `round`.
    fn take(&self, round: u64) -> bool {
        // Mostly it is clear without a write, which would cost others their copy of the line.
        self.taken.load(Relaxed) == round
            && self.taken.compare_exchange(round, round + 1, Relaxed, Relaxed).is_ok()
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
    /// Shards whose border is not served yet in this round.
    unserved: AtomicUsize,
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
        let mut watched = 0;
        for round in 0.. {
            for shard in (thread..self.desks.len()).step_by(self.threads) {
                self.serve(shard, round);
            }
            if let Some(watch) = &mut watch
                && self.look(&mut watched, watch).is_break()
            {
                self.stop.store(true, Relaxed);
            }
            self.gate.wait(round, || {
                (0..self.desks.len()).for_each(|shard| self.help(shard, round));
            });
            if self.gate.window() == NEVER {
                break;
            }
        }
    }

    /// Does what a shard has to do in `round`, unless another thread has taken it.
    fn serve(&self, number: usize, round: u64) {
        let desk = &self.desks[number];
        if self.threads == 1 || desk.take(round) {
            let shard = desk.shard.lock().unwrap_or_else(PoisonError::into_inner);
            self.serve_taken(number, shard, round);
        }
    }

    /// The same for a shard that nobody is busy with.
    fn help(&self, number: usize, round: u64) {
        let desk = &self.desks[number];
        if let Ok(shard) = desk.shard.try_lock()
            && desk.take(round)
        {
            self.serve_taken(number, shard, round);
        }
    }

    /// The same for one that is the caller's.
    fn serve_taken(&self, number: usize, mut shard: Guard<'_, Shard<'w, P>>, round: u64) {
        let post = |round: u64| &self.post[round as usize % 2];
        if let Some(shard) = &mut *shard {
            if self.desks.len() == 1 {
                run_on(shard, self.last);
            } else {
                shard.collect(post(round + 1));
                shard.run_border(self.gate.window());
            }
        }
        let served = shard.get_or_insert_with(|| self.world.shard(number as u8, &self.probe));
        let desk = &self.desks[number];
        desk.next.store(served.next_window(), Relaxed);
        desk.events.store(served.events, Relaxed);
        desk.delivered.store(served.delivered, Relaxed);
        desk.time.store(served.end, Relaxed);
        served.post(post(round));
        if self.unserved.fetch_sub(1, AcqRel) == 1 {
            self.open_next();
        }
        served.run_rest();
    }

    /// All shards have handed over what they have: begins the next round.
    fn open_next(&self) {
        let next = self.told(|desk| &desk.next).min().unwrap_or(NEVER);
        let too_long = (self.last..NEVER).contains(&next);
        self.too_long.store(too_long, Relaxed);
        self.unserved.store(self.desks.len(), Relaxed);
        self.gate.open(if too_long || self.stop.load(Relaxed) { NEVER } else { next });
    }

    /// Calls the watcher if enough has happened since.
    fn look(&self, watched: &mut u64, watch: &mut Watch<'_>) -> ControlFlow<()> {
        let events = self.told(|desk| &desk.events).sum();
        if events - *watched < EVENTS_BETWEEN_WATCHES {
            return ControlFlow::Continue(());
        }
        *watched = events;
        let delivered = self.told(|desk| &desk.delivered).sum();
        let time_ps = self.told(|desk| &desk.time).max().unwrap_or(0);
        watch(Progress { time_ps, delivered, packets: self.world.total_packets, events })
    }

    /// What each shard has told last.
    fn told<'o>(
        &'o self,
        what: impl Fn(&'o Desk<Shard<'w, P>>) -> &'o AtomicU64,
    ) -> impl Iterator<Item = u64> {
        self.desks.iter().map(move |desk| what(desk).load(Relaxed))
    }
}
