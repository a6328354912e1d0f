//! The script that runs, seen from outside: its state, its description, and how it is killed.
//!
//! Must not know: interpreters, and the callers.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use redline_commands::Error;

use crate::errors;

/// The script that holds the script mutex and runs, seen from outside.
#[derive(Default)]
pub struct RunningScript {
    /// True if it has passed the busy threshold. Changes are published with an epoch of the settings.
    pub busy: AtomicBool,
    /// The run's number and the bits below in one word, so that only the run that was looked at can be killed.
    word: AtomicU64,
    /// True if it has run for a while, and `slow` describes it.
    noticed: AtomicBool,
    /// See `noticed`.
    slow: Mutex<Option<Slow>>,
}

/// A script or function that has run for a while.
#[derive(Clone, Debug)]
pub struct Slow {
    /// True for a function, false for a script.
    pub is_function: bool,
    /// The function's name.
    pub name: Vec<u8>,
    /// The call.
    pub command: Vec<Vec<u8>>,
    /// Time at which it began, by the monotonic clock.
    pub began_ms: u64,
}

/// A snapshot of [`RunningScript`]: identifies one run.
#[derive(Clone, Copy)]
pub struct ScriptRun(u64);

impl ScriptRun {
    /// Returns true if it has written.
    pub fn has_written(self) -> bool {
        self.0 & RunningScript::WROTE != 0
    }
}

/// Reason why a script is not killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkillable {
    /// That run has ended, or there was none.
    Over,
    /// It has written.
    Wrote,
}

impl RunningScript {
    const RUNNING: u64 = 1;
    const KILLED: u64 = 2;
    const WROTE: u64 = 4;
    const ONE_RUN: u64 = 8;

    /// Begins a run; the caller holds the script mutex. `wrote`: the transaction around it has changed something.
    pub fn begin(&self, wrote: bool) {
        let number = self.word.load(Ordering::Relaxed) & !(Self::ONE_RUN - 1);
        let wrote = if wrote { Self::WROTE } else { 0 };
        self.word.store(
            number.wrapping_add(Self::ONE_RUN) | Self::RUNNING | wrote,
            Ordering::Release,
        );
    }

    /// Ends the run; the script mutex is still held.
    pub fn end(&self) {
        self.word.fetch_and(!Self::RUNNING, Ordering::AcqRel);
    }

    /// Notes that the script has written: from now on it cannot be killed.
    pub fn note_write(&self) {
        self.word.fetch_or(Self::WROTE, Ordering::AcqRel);
    }

    /// Returns true if the running script is to end. False if it has written since the reply to SCRIPT KILL.
    pub fn is_killed(&self) -> bool {
        self.word.load(Ordering::Acquire) & (Self::KILLED | Self::WROTE) == Self::KILLED
    }

    /// Notes that it has run for a while, and its description for other clients. Only the first call in a run counts.
    pub fn notice(&self, slow: impl FnOnce() -> Slow) {
        if !self.noticed.swap(true, Ordering::AcqRel) {
            *self.slow.lock().unwrap_or_else(PoisonError::into_inner) = Some(slow());
        }
    }

    /// Notes that it has passed the threshold: other clients get its error.
    pub fn set_busy(&self) {
        self.busy.store(true, Ordering::Release);
    }

    /// Notes that it has ended: clients are not refused any more. Returns true if they were.
    pub fn end_slow(&self) -> bool {
        let busy = self.busy.load(Ordering::Relaxed);
        if busy {
            self.busy.store(false, Ordering::Release);
        }
        if self.noticed.swap(false, Ordering::AcqRel) {
            *self.slow.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        busy
    }

    /// Returns the script or function that has run for a while and still runs, if there is one.
    pub fn slow(&self) -> Option<Slow> {
        let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        slow.clone()
    }

    /// Returns the error that other clients get while it runs.
    pub fn busy_error(&self) -> Error {
        let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        match slow.as_ref().is_some_and(|slow| slow.is_function) {
            true => errors::BUSY_FUNCTION,
            false => errors::BUSY,
        }
    }

    /// Returns the current state of the script run.
    pub fn look(&self) -> ScriptRun {
        ScriptRun(self.word.load(Ordering::Acquire))
    }

    /// Kills this run, and no other that may have begun since.
    pub fn kill(&self, run: ScriptRun) -> Result<(), Unkillable> {
        let mut seen = run.0;
        loop {
            if seen & Self::RUNNING == 0 || (seen ^ run.0) >= Self::ONE_RUN {
                return Err(Unkillable::Over);
            }
            if seen & Self::WROTE != 0 {
                return Err(Unkillable::Wrote);
            }
            match self.word.compare_exchange(
                seen,
                seen | Self::KILLED,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_meant_for_one_script_does_not_hit_the_next() {
        let running = RunningScript::default();
        assert_eq!(running.kill(running.look()), Err(Unkillable::Over));
        running.begin(false);
        let first = running.look();
        running.end();
        assert_eq!(running.kill(first), Err(Unkillable::Over));
        running.begin(false);
        assert_eq!(running.kill(first), Err(Unkillable::Over));
        assert!(!running.is_killed(), "the second was hit");
        assert_eq!(running.kill(running.look()), Ok(()));
        assert!(running.is_killed());
        running.end();
        running.begin(false);
        assert!(!running.is_killed(), "nor does the third inherit it");
        let third = running.look();
        running.note_write();
        assert_eq!(running.kill(third), Err(Unkillable::Wrote));
    }
}
