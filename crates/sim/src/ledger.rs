//! The facts that must be true of the data: sums of counters, contents of queues, values that clients believe.
//!
//! Must not know: how commands run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Accounts between which money moves, and how much each has at the start.
pub const ACCOUNTS: usize = 6;
/// See [`ACCOUNTS`].
pub const BALANCE: i64 = 100;
/// Queues.
pub const QUEUES: usize = 4;

/// Facts that clients know, and what they found wrong.
#[derive(Debug)]
pub struct Ledger {
    /// Clients begin something new.
    pub asking: bool,
    /// Sums of the increments that were acknowledged, by key.
    pub counters: BTreeMap<String, i64>,
    /// Values that each client that tracks keys believes to be current.
    pub believed: HashMap<u64, BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
    /// Items that were pushed into queues and not yet taken out.
    pub queued: BTreeSet<u64>,
    /// The next item.
    pub next_item: u64,
    /// Items that were taken out.
    pub taken: u64,
    /// Transactions that were given up since a watched key had changed.
    pub lost_races: u64,
    /// Waits that ended with an item.
    pub served: u64,
    /// Errors that said that a script is running.
    pub busy: u64,
    violation: Option<String>,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger {
            asking: true,
            counters: BTreeMap::new(),
            believed: HashMap::new(),
            queued: BTreeSet::new(),
            next_item: 0,
            taken: 0,
            lost_races: 0,
            served: 0,
            busy: 0,
            violation: None,
        }
    }
}

impl Ledger {
    /// Something is not as it must be; the first such thing counts.
    pub fn violated(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    /// The first violation, if there was one.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// A counter was raised.
    pub fn raise(&mut self, key: &str, by: i64) {
        *self.counters.entry(key.into()).or_default() += by;
    }

    /// An item for a queue, which it will be in.
    pub fn new_item(&mut self) -> u64 {
        let item = self.next_item;
        self.next_item += 1;
        self.queued.insert(item);
        item
    }

    /// An item was not put into its queue: the call was refused.
    pub fn withdraw(&mut self, item: u64) {
        if !self.queued.remove(&item) {
            self.violated(|| format!("item {item} was refused, and taken out of a queue"));
        }
    }

    /// An item was taken out of a queue.
    pub fn take(&mut self, item: &[u8]) {
        let number = std::str::from_utf8(item)
            .ok()
            .and_then(|text| text.parse().ok());
        match number {
            Some(number) if self.queued.remove(&number) => self.taken += 1,
            _ => self.violated(|| {
                format!(
                    "item {} was taken out of a queue twice, or never put into it",
                    item.escape_ascii()
                )
            }),
        }
    }
}
