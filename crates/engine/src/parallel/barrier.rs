//! The gate between two windows: who comes there waits until all shards have handed over what they have for
//! others.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Turns of waiting, some 30 ns each, after which a thread looks for something to do: by now all threads
/// that run have begun.
const GRACE: u32 = 1 << 7;

/// Turns after which it sleeps, so that a thread that does not run may have its core: windows are
/// microseconds long, and a thread that was taken off its core stays away for milliseconds.
const PATIENCE: u32 = 1 << 11;

/// How long it sleeps at most: nobody waits for its own message to be seen before it looks who sleeps, so a bell
/// may be missed.
const NAP: Duration = Duration::from_micros(500);

/// Where threads wait until a round is over, which all of them can see for themselves.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Gate {
    sleepers: AtomicU32,
    broken: AtomicBool,
    bed: Mutex<()>,
    bell: Condvar,
}

impl Gate {
    /// Wakes those who sleep, after something that may end the round.
    pub fn ring(&self) {
        if self.sleepers.load(Relaxed) > 0 {
            self.wake();
        }
    }

    /// Waits until the round `is_over`; calls `help` once if that takes a while.
    ///
    /// # Panics
    /// If another thread has panicked: the round will never end.
    pub fn wait(&self, is_over: impl Fn() -> bool, help: impl FnOnce()) {
        let mut help = Some(help);
        for turn in 0..PATIENCE {
            if self.lets_through(&is_over) {
                return;
            }
            std::hint::spin_loop();
            if turn == GRACE
                && let Some(help) = help.take()
            {
                help();
            }
        }
        self.sleepers.fetch_add(1, Relaxed);
        let mut bed = self.bed.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.lets_through(&is_over) {
            (bed, _) = self.bell.wait_timeout(bed, NAP).unwrap_or_else(PoisonError::into_inner);
        }
        drop(bed);
        self.sleepers.fetch_sub(1, Relaxed);
    }

    fn lets_through(&self, is_over: impl Fn() -> bool) -> bool {
        assert!(!self.broken.load(Relaxed), "another thread has panicked");
        is_over()
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
            self.0.broken.store(true, Relaxed);
            self.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    /// Two threads wait until long after they have gone to sleep.
    fn with_sleepers(then: impl FnOnce(&Gate, &AtomicBool)) -> (u32, Vec<bool>) {
        let (gate, helped, over) = (Gate::default(), AtomicU32::new(0), AtomicBool::new(false));
        let help = || {
            helped.fetch_add(1, Relaxed);
        };
        let wait = || gate.wait(|| over.load(Relaxed), help);
        let through = std::thread::scope(|scope| {
            let waiting = [scope.spawn(wait), scope.spawn(wait)];
            while gate.sleepers.load(Relaxed) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            then(&gate, &over);
            waiting.map(|thread| thread.join().is_ok()).to_vec()
        });
        assert_eq!(gate.sleepers.into_inner() == 0, through == [true; 2]);
        (helped.into_inner(), through)
    }

    #[test]
    fn who_waits_helps_once_then_sleeps_and_is_woken() {
        let end = |gate: &Gate, over: &AtomicBool| {
            over.store(true, Relaxed);
            gate.ring();
            gate.wait(|| true, || panic!("that round is over"));
        };
        assert_eq!(with_sleepers(end), (2, vec![true; 2]));
    }

    #[test]
    fn a_missed_bell_is_no_matter() {
        let end = |_: &Gate, over: &AtomicBool| over.store(true, Relaxed);
        assert_eq!(with_sleepers(end), (2, vec![true; 2]));
    }

    #[test]
    fn who_waits_for_one_that_has_panicked_panics_too() {
        let panic = |gate: &Gate, _: &AtomicBool| {
            let alarm = || {
                let _alarm = Alarm(gate);
                panic!("on purpose");
            };
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(alarm)).is_err());
        };
        assert_eq!(with_sleepers(panic), (2, vec![false; 2]));
    }
}
