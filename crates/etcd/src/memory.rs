//! A store in memory, for tests. Its clock is set by its user.
//!
//! Must not know: files.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use crate::{
    Answer, Events, LeaseId, Listing, Range, Store, StoreError, Transaction, Watch, tree::Tree,
};

/// A store in memory. Clones are the same store.
#[derive(Clone)]
pub struct Memory(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    tree: Tree,
    now_ms: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Memory {
    /// Makes an empty store, at time 0.
    pub fn new() -> Memory {
        Memory::of(Tree::new())
    }

    pub(crate) fn of(tree: Tree) -> Memory {
        Memory(Arc::new(Shared {
            state: Mutex::new(State { tree, now_ms: 0 }),
            changed: Condvar::new(),
        }))
    }

    /// Lets so many milliseconds pass: leases end.
    pub fn advance(&self, ms: u64) {
        let mut state = self.state();
        state.now_ms += ms;
        let now_ms = state.now_ms;
        state.tree.end_leases(now_ms);
        self.0.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic under a store")
    }

    /// Does a transaction if `keep`, which gets the state after it, does not fail.
    pub(crate) fn transact_kept(
        &self,
        transaction: &Transaction,
        keep: impl FnOnce(&Tree) -> Result<(), StoreError>,
    ) -> Result<Answer, StoreError> {
        let mut state = self.state();
        let mut after = state.tree.clone();
        let answer = after.transact(transaction)?;
        if after.revision() == state.tree.revision() {
            return Ok(answer);
        }
        let kept = keep(&after);
        // What may be there counts as there: a reader of the file finds it.
        if matches!(kept, Ok(()) | Err(StoreError::Undecided(_))) {
            state.tree = after;
            self.0.changed.notify_all();
        }
        kept.map(|()| answer)
    }
}

impl Store for Memory {
    fn range(&self, range: &Range) -> Result<Listing, StoreError> {
        Ok(self.state().tree.range(range))
    }

    fn transact(&self, transaction: &Transaction) -> Result<Answer, StoreError> {
        self.transact_kept(transaction, |_| Ok(()))
    }

    fn grant_lease(&self, ttl_s: u64) -> Result<LeaseId, StoreError> {
        let mut state = self.state();
        let now_ms = state.now_ms;
        Ok(state.tree.grant_lease(ttl_s, now_ms))
    }

    fn keep_lease(&self, lease: LeaseId) -> Result<bool, StoreError> {
        let mut state = self.state();
        let now_ms = state.now_ms;
        Ok(state.tree.keep_lease(lease, now_ms))
    }

    fn watch(&self, from_revision: u64) -> Result<Box<dyn Watch>, StoreError> {
        self.state().tree.events_from(from_revision)?;
        Ok(Box::new(Watching {
            store: self.clone(),
            next: from_revision,
        }))
    }
}

struct Watching {
    store: Memory,
    /// First revision that was not told yet.
    next: u64,
}

impl Watch for Watching {
    fn next(&mut self, timeout: Duration) -> Result<Events, StoreError> {
        let deadline = Instant::now() + timeout;
        let mut state = self.store.state();
        loop {
            let events = state.tree.events_from(self.next)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !events.events.is_empty() || left.is_zero() {
                self.next = self.next.max(events.revision + 1);
                return Ok(events);
            }
            let waited = self.store.0.changed.wait_timeout(state, left);
            state = waited.expect("no panic under a store").0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{Event, Operation};

    fn put(key: &str) -> Transaction {
        Transaction {
            success: vec![Operation::Put {
                key: key.into(),
                value: b"v".to_vec(),
                lease: None,
            }],
            ..Transaction::default()
        }
    }

    fn names(events: &Events) -> Vec<&str> {
        fn name(event: &Event) -> &str {
            match event {
                Event::Put(pair) => &pair.key,
                Event::Delete(key, _) => key,
            }
        }
        events.events.iter().map(name).collect()
    }

    #[test]
    fn a_watch_wakes_up_with_a_change_and_tells_each_once() {
        let store = Memory::new();
        let mut watch = store.watch(2).unwrap();
        assert!(watch.next(Duration::ZERO).unwrap().events.is_empty());
        let writer = thread::spawn({
            let store = store.clone();
            move || store.transact(&put("a")).unwrap()
        });
        let events = watch.next(Duration::from_secs(60)).unwrap();
        assert_eq!((names(&events), events.revision), (vec!["a"], 2));
        assert_eq!(writer.join().unwrap().revision, 2);
        assert!(watch.next(Duration::ZERO).unwrap().events.is_empty());
        store.transact(&put("b")).unwrap();
        assert_eq!(names(&watch.next(Duration::ZERO).unwrap()), ["b"]);
    }

    #[test]
    fn time_passes_when_it_is_told_to() {
        let store = Memory::new();
        let lease = store.grant_lease(1).unwrap();
        store.advance(999);
        assert!(store.keep_lease(lease).unwrap());
        store.advance(1000);
        assert!(!store.keep_lease(lease).unwrap());
    }
}
