//! Reasons for which the server refuses calls, whatever they are on: one word that executors read with the settings.
//!
//! Must not know: how a reason comes about.

use std::sync::atomic::{AtomicU32, Ordering};

use redline_commands::Error;

use crate::{errors, settings::Published};

/// A reason to refuse calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// The data is being loaded: only commands that need none are run.
    Loading = 1,
    /// The last snapshot could not be written: nothing is changed.
    SaveFailed = 2,
    /// The append-only file could not be written: nothing is changed.
    AppendFailed = 4,
}

/// The reasons that hold now.
#[derive(Debug, Default)]
pub struct Refusals(AtomicU32);

/// The reasons that held when an executor last looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held(u32);

impl Refusals {
    /// Returns the reasons.
    pub fn now(&self) -> Held {
        Held(self.0.load(Ordering::Acquire))
    }

    /// Sets or clears a reason. When this returns, every command that begins later on any executor goes by it.
    pub fn set(&self, reason: Reason, holds: bool, settings: &Published) {
        let before = match holds {
            true => self.0.fetch_or(reason as u32, Ordering::AcqRel),
            false => self.0.fetch_and(!(reason as u32), Ordering::AcqRel),
        };
        if holds != (before & reason as u32 != 0) {
            settings.move_epoch();
        }
    }
}

impl Held {
    /// Returns true if there is a reason.
    #[inline]
    pub fn any(self) -> bool {
        self.0 != 0
    }

    /// Returns true if this reason holds.
    #[inline]
    pub fn has(self, reason: Reason) -> bool {
        self.0 & reason as u32 != 0
    }

    /// Returns the refusal of calls that change data, if there is a reason.
    pub fn of_writes(self) -> Option<Error> {
        match self {
            held if held.has(Reason::SaveFailed) => Some(errors::SAVE_FAILED),
            held if held.has(Reason::AppendFailed) => Some(errors::APPEND_FAILED),
            _ => None,
        }
    }
}
