//! The loop: shards run side by side for a window of time, hand over what they have for one another,
//! and go on.
//!
//! A window is at most as long as the lookahead of the cut, so nothing a shard does within it can matter
//! to another before its end; windows without any event are left out. Every thread works on its own
//! shards; a window costs one barrier. What a shard does depends on its own events alone and those of a
//! group have a fixed order, so the outcome is the same on any number of threads.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::mail::PostOffice;
use crate::probe::Probe;
use crate::shard::Shard;
use crate::sim::{Progress, Watch};
use crate::world::World;

const EVENTS_BETWEEN_WATCHES: u64 = 1 << 17;

/// Runs until nothing is pending (true) or `watch` breaks off (false).
pub(crate) fn run_windows<'w, P: Probe + Send>(
    world: &World<'_>,
    shards: Vec<Shard<'w, P>>,
    threads: usize,
    watch: Watch<'_>,
) -> (Vec<Shard<'w, P>>, bool) {
    let threads = threads.clamp(1, shards.len());
    let office = Office {
        post: [PostOffice::new(world.cut.shards), PostOffice::new(world.cut.shards)],
        first: [Slots::new(threads), Slots::new(threads)],
        delivered: Slots::new(threads),
        events: Slots::new(threads),
        barrier: Barrier::new(threads),
        last_round: AtomicU64::new(u64::MAX),
        packets: world.total_packets,
    };
    // Shard k goes to thread k mod threads.
    let mut teams: Vec<Vec<Shard<'w, P>>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, shard) in shards.into_iter().enumerate() {
        teams[number % threads].push(shard);
    }
    let mut done: Vec<Shard<'w, P>> = std::thread::scope(|scope| {
        let office = &office;
        let mut teams = teams.into_iter().enumerate();
        let first = teams.next();
        let others: Vec<_> =
            teams.map(|(t, team)| scope.spawn(move || office.work(t, team, None))).collect();
        let mut done = first.map_or_else(Vec::new, |(t, team)| office.work(t, team, Some(watch)));
        for other in others {
            match other.join() {
                Ok(team) => done.extend(team),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|shard| shard.number);
    (done, office.last_round.into_inner() == u64::MAX)
}

/// One value a thread, each on its own cache line.
struct Slots(Vec<Slot>);

#[repr(align(128))]
struct Slot(AtomicU64);

impl Slots {
    fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Slot(AtomicU64::new(0))).collect())
    }

    fn set(&self, thread: usize, value: u64) {
        self.0[thread].0.store(value, Ordering::Release);
    }

    fn values(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|slot| slot.0.load(Ordering::Acquire))
    }
}

/// What threads share. Things that are written in one round and read in the next exist twice.
struct Office {
    post: [PostOffice; 2],
    first: [Slots; 2],
    delivered: Slots,
    events: Slots,
    barrier: Barrier,
    /// The round after which to stop, [`u64::MAX`] if the watcher has not asked to.
    last_round: AtomicU64,
    packets: u64,
}

impl Office {
    /// The life of a thread.
    fn work<'w, P: Probe>(
        &self,
        thread: usize,
        mut team: Vec<Shard<'w, P>>,
        mut watch: Option<Watch<'_>>,
    ) -> Vec<Shard<'w, P>> {
        let _alarm = Alarm(&self.barrier);
        let (mut time, mut watched) = (0u64, 0u64);
        for round in 0.. {
            let now = (round & 1) as usize;
            let first = team.iter().map(Shard::next_window).min().unwrap_or(u64::MAX);
            team.iter_mut().for_each(|shard| shard.post(&self.post[now]));
            self.first[now].set(thread, first);
            self.delivered.set(thread, team.iter().map(|shard| shard.delivered).sum());
            self.events.set(thread, team.iter().map(|shard| shard.events).sum());
            if let Some(watch) = &mut watch
                && self.look(time, &mut watched, watch).is_break()
            {
                self.last_round.store(round, Ordering::Release);
            }
            self.barrier.wait();
            let first = self.first[now].values().min().unwrap_or(u64::MAX);
            if first == u64::MAX || self.last_round.load(Ordering::Acquire) <= round {
                break;
            }
            for shard in &mut team {
                shard.collect(&self.post[now]);
                shard.run(first);
                time = time.max(shard.end);
            }
        }
        team
    }

    /// Calls the watcher if enough has happened since.
    fn look(&self, now: u64, watched: &mut u64, watch: &mut Watch<'_>) -> ControlFlow<()> {
        let events = self.events.values().sum();
        if events - *watched < EVENTS_BETWEEN_WATCHES {
            return ControlFlow::Continue(());
        }
        *watched = events;
        let delivered = self.delivered.values().sum();
        watch(Progress { time_ps: now, delivered, packets: self.packets, events })
    }
}

/// A barrier that spins: windows are microseconds long.
struct Barrier {
    threads: u32,
    arrived: AtomicU32,
    round: AtomicU32,
    broken: AtomicBool,
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Self {
            threads: threads as u32,
            arrived: AtomicU32::new(0),
            round: AtomicU32::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Waits until every thread is here.
    ///
    /// # Panics
    /// If another thread has panicked: it will never come.
    fn wait(&self) {
        /// Beyond so many turns there are fewer cores than threads.
        const PATIENCE: u32 = 1 << 12;
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut turns = 0u32;
        while self.round.load(Ordering::Acquire) == round {
            assert!(!self.broken.load(Ordering::Relaxed), "another thread has panicked");
            turns += 1;
            if turns < PATIENCE {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// Breaks the barrier when a thread panics, so that the others end too.
struct Alarm<'a>(&'a Barrier);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broken.store(true, Ordering::Relaxed);
        }
    }
}
