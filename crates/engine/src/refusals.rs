//! Reasons for which the server refuses calls, whatever they are on: one word that executors read with the settings.
//!
//! Must not know: how a reason comes about.

use std::{
    borrow::Cow,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

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
    /// Too few replicas are there and up to date: nothing is changed.
    NoReplicas = 8,
    /// The server follows a primary: nothing expires or changes by itself.
    Follows = 16,
    /// It follows one, and clients may not write.
    ReadOnly = 32,
    /// It follows one, which is away, and clients are not to see old data.
    Stale = 64,
    /// It follows one, which alone decides what is evicted.
    KeepsAll = 128,
    /// A primary's snapshot is being loaded, and the data until then, if there are any, are not to be seen.
    Emptied = 256,
    /// A primary's snapshot is being loaded beside the data: what would get in its way is not run.
    LoadsBeside = 512,
    /// The cluster is not complete: see `executor/slots.rs`.
    ClusterDown = 1024,
    /// This node is the primary of its shard, and has no right to serve now: see `executor/slots.rs`.
    NoRight = 2048,
    /// No other node of the shard would have what is written: nothing is changed, and nothing expires.
    Unconfirmed = 4096,
}

/// The reasons that hold now.
#[derive(Debug, Default)]
pub struct Refusals {
    reasons: AtomicU32,
    /// The error of the append-only file.
    append_error: Mutex<String>,
}

/// The reasons that held when an executor last looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held(u32);

impl Refusals {
    /// Returns the reasons.
    pub fn now(&self) -> Held {
        Held(self.reasons.load(Ordering::Acquire))
    }

    /// Sets the error line of calls that change data, for [`Reason::AppendFailed`].
    pub fn set_append_error(&self, text: &str) {
        let mut error = self.append_error.lock().expect("no panic under a text");
        text.clone_into(&mut error);
    }

    /// Returns the refusal of calls that change data, if one of these reasons asks for it.
    pub fn of_changes(&self, held: Held) -> Option<Error> {
        let has_too_few = held.has(Reason::NoReplicas) || held.has(Reason::Unconfirmed);
        let too_few = || has_too_few.then_some(errors::NO_REPLICAS);
        self.of_files(held).or_else(too_few)
    }

    /// Returns the refusal of calls that change data, if what they change cannot be kept in files.
    pub fn of_files(&self, held: Held) -> Option<Error> {
        if held.has(Reason::SaveFailed) {
            return Some(errors::SAVE_FAILED);
        }
        held.has(Reason::AppendFailed).then(|| {
            let error = self.append_error.lock().expect("no panic under a text");
            Error::Line(Cow::Owned(error.clone()))
        })
    }

    /// Sets or clears a reason. When this returns, every command that begins later on any executor goes by it.
    pub fn set(&self, reason: Reason, holds: bool, settings: &Published) {
        let before = match holds {
            true => self.reasons.fetch_or(reason as u32, Ordering::AcqRel),
            false => self.reasons.fetch_and(!(reason as u32), Ordering::AcqRel),
        };
        if holds != (before & reason as u32 != 0) {
            settings.move_epoch();
        }
    }
}

impl Held {
    /// Returns true if calls have to be checked for a reason. What concerns writes alone is not one: see
    /// [`Reason::ReadOnly`].
    #[inline]
    pub fn any(self) -> bool {
        const UNCHECKED: u32 =
            Reason::Follows as u32 | Reason::ReadOnly as u32 | Reason::KeepsAll as u32;
        self.0 & !UNCHECKED != 0
    }

    /// Returns true if this reason holds.
    #[inline]
    pub fn has(self, reason: Reason) -> bool {
        self.0 & reason as u32 != 0
    }
}
