//! Log of refusals: the newest first, refusals of the same kind within a minute as one entry. Bounded.
//! Must not know: clients, a clock.

use std::collections::VecDeque;

use crate::Reason;

/// Refusals further apart are told apart: milliseconds.
const SAME_ENTRY_MS_MAX: u64 = 60_000;
/// Entries, the newest ones, among which one of the same kind is looked for.
const LOOK_BACK_ENTRIES: usize = 10;

/// Where a refused call came from.
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
    /// The word that ACL LOG prints.
    pub fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

impl Reason {
    /// The word that ACL LOG prints.
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
    /// Where the call came from.
    pub context: Context,
    /// The command, key or channel; the command that logs in.
    pub object: Vec<u8>,
    /// To whom.
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
    /// How many.
    pub count: u64,
    /// When the first was: Unix time in milliseconds.
    pub created_ms: u64,
    /// The last of them.
    pub last: Event,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    next_id: u64,
}

impl Log {
    /// Takes a refusal in. If it makes an entry of its own, the oldest go until there are no more than `entries_max`; as in
    /// Redis, a lowered limit holds from then on.
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

    /// The entries, the newest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}
