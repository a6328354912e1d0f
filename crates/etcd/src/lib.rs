//! A linearizable store of keys and values with transactions, leases and watches, as etcd is one: [`Store`].
//!
//! [`Gateway`] is etcd itself. [`File`] keeps the keys of a single process in one file, and [`Memory`] in memory alone, for
//! tests; both are the state machine in `tree.rs`, so their transactions give the same answers. Keys are relative to the store: where several share
//! an etcd, a prefix before them is the store's affair.
//!
//! Must not know: what the keys and values mean.

#![forbid(unsafe_code)]

#[cfg(test)]
mod conformance;
mod file;
mod gateway;
mod memory;
#[cfg(test)]
mod real;
mod tree;

use std::{fmt, time::Duration};

pub use file::File;
#[doc(hidden)]
pub use gateway::form::{Anything, read_anything};
pub use gateway::{Gateway, GatewayOptions};
pub use memory::Memory;

/// Largest number of operations of one branch of a transaction, and of its conditions; etcd's default.
pub const OPERATIONS_MAX: usize = 128;
/// Length of the longest value: bytes. Below etcd's limit on a request, 1.5 MiB.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// Length of the longest key: bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// A key with its value, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// Revision in which it was created.
    pub create_revision: u64,
    /// Revision in which it was last written.
    pub mod_revision: u64,
    /// Lease with which it ends; `None`: it stays.
    pub lease: Option<LeaseId>,
}

/// Number of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// One key, or all keys with the same beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// This key.
    Key(String),
    /// The keys that begin with this text; all, if it is empty.
    Prefix(String),
}

/// Keys of a range, in their order, and the revision in which they were so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Revision of the store.
    pub revision: u64,
    /// The pairs.
    pub pairs: Vec<Pair>,
}

/// Condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no such key.
    Absent(String),
    /// The key was last written in this revision.
    Unchanged(String, u64),
}

/// Operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Writes a key. One transaction writes a key once.
    Put {
        /// The key.
        key: String,
        /// Its new value.
        value: Vec<u8>,
        /// Lease with which it ends.
        lease: Option<LeaseId>,
    },
    /// Removes the keys of a range.
    Delete(Range),
    /// Reads a range, after the operations before this one.
    Get(Range),
}

/// A transaction: if all conditions hold, one list of operations is done, else the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions.
    pub conditions: Vec<Condition>,
    /// Operations if they hold.
    pub success: Vec<Operation>,
    /// Operations if one does not.
    pub failure: Vec<Operation>,
}

/// Result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Revision of the store after it.
    pub revision: u64,
    /// True if the conditions held.
    pub succeeded: bool,
    /// Results of [`Operation::Get`], in order.
    pub ranges: Vec<Vec<Pair>>,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was written.
    Put(Pair),
    /// It was removed, or its lease has ended, in this revision.
    Delete(String, u64),
}

/// Events of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// Revision up to which the watch has told everything.
    pub revision: u64,
    /// The changes, in order; none if the time was over.
    pub events: Vec<Event>,
}

/// Reason why a store did not do a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// It was not done: the store cannot be reached, or not written. With the cause.
    Unavailable(String),
    /// It may have been done or not: a read has to decide. With the cause.
    Undecided(String),
    /// It is not allowed: a limit, a key that is written twice, a lease that is not there. With the reason.
    Refused(String),
    /// A watch from a revision whose events are gone; the oldest that is left.
    Compacted(u64),
    /// The contents are not those of a store. With the place and the reason.
    Damaged(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Unavailable(why) | StoreError::Refused(why) | StoreError::Damaged(why) => {
                f.write_str(why)
            }
            StoreError::Undecided(why) => write!(f, "it is not known whether it was done: {why}"),
            StoreError::Compacted(oldest) => {
                write!(f, "the events before revision {oldest} are gone")
            }
        }
    }
}

impl std::error::Error for StoreError {}

/// See the head of the crate. All calls may block, for file or network.
pub trait Store: Send + Sync {
    /// Returns the keys of a range.
    fn range(&self, range: &Range) -> Result<Listing, StoreError>;

    /// Does a transaction, whole or not at all. All its changes have one revision.
    fn transact(&self, transaction: &Transaction) -> Result<Answer, StoreError>;

    /// Makes a lease of so many seconds, at least 1. It ends, and its keys with it, unless it is kept.
    fn grant_lease(&self, ttl_s: u64) -> Result<LeaseId, StoreError>;

    /// Keeps a lease for its time from now on. Returns false if it has ended.
    fn keep_lease(&self, lease: LeaseId) -> Result<bool, StoreError>;

    /// Watches all keys, from the changes of this revision on.
    fn watch(&self, from_revision: u64) -> Result<Box<dyn Watch>, StoreError>;
}

/// Changes of a store, in order and without gaps.
pub trait Watch: Send {
    /// Waits for changes, at most so long, and returns all that are there.
    fn next(&mut self, timeout: Duration) -> Result<Events, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_if_it_may_have_been_done() {
        let why = || "the folder: no space".to_owned();
        assert_eq!(StoreError::Unavailable(why()).to_string(), why());
        assert_eq!(
            StoreError::Undecided(why()).to_string(),
            "it is not known whether it was done: the folder: no space"
        );
        let compacted = StoreError::Compacted(7).to_string();
        assert_eq!(compacted, "the events before revision 7 are gone");
    }
}
