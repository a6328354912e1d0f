//! Log of refusals: the newest first, refusals of the same kind within a minute as one entry. Bounded.
//! Must not know: clients, a clock.

use std::collections::VecDeque;

use crate::Reason;

/// Age in milliseconds from which a refusal of the same kind is an entry of its own.
const SAME_ENTRY_MS_MAX: u64 = 60_000;
/// Number of the newest entries among which one of the same kind is looked for.
const LOOK_BACK_ENTRIES: usize = 10;

/// Origin of a refused call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// A client called.
    TopLevel,
    /// Inside MULTI and EXEC.
    Multi,
    /// A script called.
    Script,
}

impl Context {
    /// Returns the word that ACL LOG prints.
    pub fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

impl Reason {
    /// Returns the word that ACL LOG prints.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Auth => "auth",
            Reason::Channel => "channel",
        }
    }
}

/// A refusal.
#[derive(Clone, Debug)]
pub struct Event {
    /// Part of the call that was refused.
    pub reason: Reason,
    /// Origin of the call.
    pub context: Context,
    /// The command, key or channel; for a login, the command that logs in.
    pub object: Vec<u8>,
    /// Name of the user that was refused.
    pub user: Vec<u8>,
    /// The client, described as CLIENT LIST does.
    pub client: String,
    /// Unix time in milliseconds.
    pub at_ms: u64,
}

/// Refusals of the same kind.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Unique for the life of the process, ascending from 0.
    pub id: u64,
    /// Number of refusals.
    pub count: u64,
    /// Time of the first one: Unix time in milliseconds.
    pub created_ms: u64,
    /// The last of them.
    pub last: Event,
}

/// The log of refusals: see the module's text.
#[derive(Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    next_id: u64,
}

impl Log {
    /// Adds a refusal. If it makes an entry of its own, the oldest are removed until there are no more than
    /// `entries_max`: as in Redis, a lowered limit takes effect then.
    pub fn add(&mut self, event: Event, entries_max: usize) {
        let recent = self.entries.iter().take(LOOK_BACK_ENTRIES);
        let same = recent.map(|entry| &entry.last).position(|known| {
            known.reason == event.reason
                && known.context == event.context
                && known.at_ms.abs_diff(event.at_ms) <= SAME_ENTRY_MS_MAX
                && known.object == event.object
                && known.user == event.user
        });
        match same.and_then(|at| self.entries.remove(at)) {
            Some(mut entry) => {
                entry.count += 1;
                entry.last = event;
                self.entries.push_front(entry);
            }
            None => {
                self.entries.push_front(Entry {
                    id: self.next_id,
                    count: 1,
                    created_ms: event.at_ms,
                    last: event,
                });
                self.next_id += 1;
                self.entries.truncate(entries_max);
            }
        }
    }

    /// Returns the entries, the newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
