//! The barrier between two windows: threads wait until all shards have published what they have for
//! others.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Spins, some 30 ns each, after which a waiting thread searches for shards to help with: by then
/// all
/// threads that are running have begun.
const SPINS_BEFORE_HELP: u32 = 1 << 7;

/// Spins after which a thread parks and frees its core: windows last microseconds, and a thread
/// that was preempted stays away for milliseconds.
const SPIN_LIMIT: u32 = 1 << 11;

/// Longest time a thread parks. Notifiers do not wait for their own store to become visible before
/// they check for parked threads, so a notification may be missed.
const PARK_TIMEOUT: Duration = Duration::from_micros(500);

/// A barrier at which each thread checks for itself whether the round is over.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Barrier {
    parked: AtomicU32,
    poisoned: AtomicBool,
    mutex: Mutex<()>,
    condvar: Condvar,
}

impl Barrier {
    /// Wakes parked threads after a change that may end the round.
    pub fn notify(&self) {
        if self.parked.load(Relaxed) > 0 {
            self.wake_all();
        }
    }

    /// Waits until the round `is_over`; calls `help` once if that takes a while.
    ///
    /// # Panics
    /// If another thread has panicked, because the round will then never end.
    pub fn wait(&self, is_over: impl Fn() -> bool, help: impl FnOnce()) {
        let mut help = Some(help);
        for turn in 0..SPIN_LIMIT {
            if self.is_open(&is_over) {
                return;
            }
            std::hint::spin_loop();
            if turn == SPINS_BEFORE_HELP
                && let Some(help) = help.take()
            {
                help();
            }
        }
        self.parked.fetch_add(1, Relaxed);
        let mut mutex = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_open(&is_over) {
            (mutex, _) = self
                .condvar
                .wait_timeout(mutex, PARK_TIMEOUT)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(mutex);
        self.parked.fetch_sub(1, Relaxed);
    }

    fn is_open(&self, is_over: impl Fn() -> bool) -> bool {
        assert!(!self.poisoned.load(Relaxed), "another thread has panicked");
        is_over()
    }

    fn wake_all(&self) {
        drop(self.mutex.lock().unwrap_or_else(PoisonError::into_inner));
        self.condvar.notify_all();
    }
}

/// Poisons the barrier when a thread panics, so that the other threads end too.
pub(crate) struct PanicGuard<'a>(pub &'a Barrier);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poisoned.store(true, Relaxed);
            self.0.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// Runs `then` while two threads are parked at the barrier.
    fn with_sleepers(then: impl FnOnce(&Barrier, &AtomicBool)) -> (u32, Vec<bool>) {
        let (barrier, helped, over) =
            (Barrier::default(), AtomicU32::new(0), AtomicBool::new(false));
        let help = || {
            helped.fetch_add(1, Relaxed);
        };
        let wait = || barrier.wait(|| over.load(Relaxed), help);
        let through = std::thread::scope(|scope| {
            let waiting = [scope.spawn(wait), scope.spawn(wait)];
            while barrier.parked.load(Relaxed) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            then(&barrier, &over);
            waiting.map(|thread| thread.join().is_ok()).to_vec()
        });
        assert_eq!(barrier.parked.into_inner() == 0, through == [true; 2]);
        (helped.into_inner(), through)
    }

    #[test]
    fn a_waiting_thread_helps_then_parks() {
        let end = |barrier: &Barrier, over: &AtomicBool| {
            over.store(true, Relaxed);
            barrier.notify();
            barrier.wait(|| true, || panic!("that round is over"));
        };
        assert_eq!(with_sleepers(end), (2, vec![true; 2]));
    }

    #[test]
    fn a_missed_notification_is_harmless() {
        let end = |_: &Barrier, over: &AtomicBool| over.store(true, Relaxed);
        assert_eq!(with_sleepers(end), (2, vec![true; 2]));
    }

    #[test]
    fn a_panic_ends_waiting_threads() {
        let panic = |barrier: &Barrier, _: &AtomicBool| {
            let alarm = || {
                let _alarm = PanicGuard(barrier);
                panic!("on purpose");
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(alarm)).is_err());
        };
        assert_eq!(with_sleepers(panic), (2, vec![false; 2]));
    }
}
