//! The gate between two windows: opened when all shards have handed over what they have for others, by
//! whoever served the last one.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Turns of waiting, some 30 ns each, after which a thread looks for something to do: by now all threads
/// that run have begun.
const GRACE: u32 = 1 << 7;

/// Turns after which it sleeps, so that a thread that does not run may have its core: windows are
/// microseconds long, and a thread that was taken off its core stays away for milliseconds.
const PATIENCE: u32 = 1 << 11;

/// Counts rounds; in each of them all shards do what happens in one window.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Gate {
    round: AtomicU64,
    window: AtomicU64,
    sleepers: AtomicU32,
    broken: AtomicBool,
    bed: Mutex<()>,
    bell: Condvar,
}

impl Gate {
    /// The window of the round that goes on.
    pub fn window(&self) -> u64 {
        self.window.load(Ordering::Relaxed)
    }

    /// Ends a round and begins the next one, in `window`.
    pub fn open(&self, window: u64) {
        self.window.store(window, Ordering::Relaxed);
        self.round.fetch_add(1, Ordering::SeqCst);
        // Who wants to sleep says so before it looks at the round for the last time.
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    /// Waits until `round` is over; calls `help` once if that takes a while.
    ///
    /// # Panics
    /// If another thread has panicked: the round will never end.
    pub fn wait(&self, round: u64, help: impl FnOnce()) {
        let mut help = Some(help);
        for turn in 0..PATIENCE {
            if self.is_over(round) {
                return;
            }
            std::hint::spin_loop();
            if turn == GRACE
                && let Some(help) = help.take()
            {
                help();
            }
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_over(round) {
            bed = self.bell.wait(bed).unwrap_or_else(PoisonError::into_inner);
        }
        drop(bed);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_over(&self, round: u64) -> bool {
        assert!(!self.broken.load(Ordering::Relaxed), "another thread has panicked");
        self.round.load(Ordering::SeqCst) != round
    }

    fn wake(&self) {
        drop(self.bed.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.notify_all();
    }
}

/// Breaks the gate when a thread panics, so that the others end too.
pub(crate) struct Alarm<'a>(pub &'a Gate);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broken.store(true, Ordering::SeqCst);
            self.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// Two threads wait for the first round's end until long after they have gone to sleep.
    fn with_sleepers(then: impl FnOnce(&Gate)) -> (u32, Vec<bool>) {
        let (gate, helped) = (Gate::default(), AtomicU32::new(0));
        let help = || {
            helped.fetch_add(1, Ordering::Relaxed);
        };
        let wait = || gate.wait(0, help);
        let over = std::thread::scope(|scope| {
            let waiting = [scope.spawn(wait), scope.spawn(wait)];
            while gate.sleepers.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            then(&gate);
            waiting.map(|thread| thread.join().is_ok()).to_vec()
        });
        assert_eq!(gate.sleepers.into_inner() == 0, over == [true; 2]);
        (helped.into_inner(), over)
    }

    #[test]
    fn who_waits_helps_once_then_sleeps_and_is_woken() {
        let end = |gate: &Gate| {
            gate.open(7);
            assert_eq!(gate.window(), 7);
            gate.wait(0, || panic!("that round is over"));
        };
        assert_eq!(with_sleepers(end), (2, vec![true; 2]));
    }

    #[test]
    fn who_waits_for_one_that_has_panicked_panics_too() {
        let panic = |gate: &Gate| {
            let alarm = || {
                let _alarm = Alarm(gate);
                panic!("on purpose");
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(alarm)).is_err());
        };
        assert_eq!(with_sleepers(panic), (2, vec![false; 2]));
    }
}
