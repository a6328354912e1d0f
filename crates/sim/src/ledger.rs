//! The facts that must be true of the data: sums of counters, contents of queues, values that clients take for current.
//!
//! Must not know: how commands run.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Number of accounts between which money moves, and balance of each at the start.
pub const ACCOUNTS: usize = 6;
/// See [`ACCOUNTS`].
pub const BALANCE: i64 = 100;
/// Number of queues.
pub const QUEUES: usize = 4;

/// Facts that clients know, and violations that they found.
#[derive(Debug)]
pub struct Ledger {
    /// True while clients begin new requests.
    pub asking: bool,
    /// Sums of the increments that were acknowledged, by key.
    pub counters: BTreeMap<String, i64>,
    /// Values that each client that tracks keys takes for current.
    pub believed: HashMap<u64, BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
    /// Items that were pushed into queues and not yet taken out.
    pub queued: BTreeSet<u64>,
    /// Number of the next item.
    pub next_item: u64,
    /// Number of items that were taken out.
    pub taken: u64,
    /// Number of transactions that failed since a watched key had changed.
    pub lost_races: u64,
    /// Number of waits that ended with an item.
    pub served: u64,
    /// Number of errors that said that a script is running.
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
    /// Records a violation; only the first one counts.
    pub fn violated(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    /// Returns the first violation, if there was one.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// Adds an increment of a counter.
    pub fn raise(&mut self, key: &str, by: i64) {
        *self.counters.entry(key.into()).or_default() += by;
    }

    /// Returns a new item for a queue, and counts it as queued.
    pub fn new_item(&mut self) -> u64 {
        let item = self.next_item;
        self.next_item += 1;
        self.queued.insert(item);
        item
    }

    /// Removes an item that was not put into its queue: the call was refused.
    pub fn withdraw(&mut self, item: u64) {
        if !self.queued.remove(&item) {
            self.violated(|| format!("item {item} was refused, and taken out of a queue"));
        }
    }

    /// Removes an item that was taken out of a queue.
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
