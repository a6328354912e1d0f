//! Watched keys: a flag per watching session, raised when a watched key changes.
//!
//! The registry of a stripe is guarded by that stripe; the flag itself is atomic, so that EXEC and the
//! session may look at it at any time. Must not know: sessions, commands.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

#[cfg(doc)]
use crate::notify::Classes;
use crate::space::Keyspace;

/// Flag that is raised when a key that a session watches changes after it began to watch.
#[derive(Debug, Default)]
pub struct WatchFlag(AtomicBool);

impl WatchFlag {
    /// Returns true if a watched key has changed.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Raises the flag: a key has changed, or may have.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A watcher of a key.
#[derive(Debug)]
pub(crate) struct Watcher {
    flag: Arc<WatchFlag>,
    /// The key had expired when the watch began, and was still there: its removal is no change.
    saw_stale: bool,
}

impl Keyspace {
    /// Registers a watcher; the caller holds the stripe of the key. Returns false if it watches the key already.
    pub(crate) fn watch(
        &self,
        stripe: u16,
        db: u32,
        key: &[u8],
        flag: &Arc<WatchFlag>,
        saw_stale: bool,
    ) -> bool {
        // SAFETY: the caller holds the stripe; the reference ends with this function.
        let state = unsafe { self.stripe_state(stripe) };
        let watchers = state.watchers.entry((db, key.into())).or_default();
        // From the end: a session that watches a key again has mostly come last.
        let mut known = watchers.iter().rev().map(|watcher| &watcher.flag);
        if known.any(|known| Arc::ptr_eq(known, flag)) {
            return false;
        }
        watchers.push(Watcher {
            flag: flag.clone(),
            saw_stale,
        });
        self.watched.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Removes a watcher; the caller holds the stripe of the key.
    pub(crate) fn unwatch(&self, stripe: u16, db: u32, key: &[u8], flag: &Arc<WatchFlag>) {
        // SAFETY: as above.
        let state = unsafe { self.stripe_state(stripe) };
        let id = (db, Box::<[u8]>::from(key));
        if let Some(watchers) = state.watchers.get_mut(&id) {
            let mut flags = watchers.iter().map(|watcher| &watcher.flag);
            if let Some(at) = flags.position(|other| Arc::ptr_eq(other, flag)) {
                watchers.swap_remove(at);
                self.watched.fetch_sub(1, Ordering::Relaxed);
            }
            if watchers.is_empty() {
                state.watchers.remove(&id);
            }
        }
    }

    /// Counts one more client that tracks changed keys (CLIENT TRACKING): until as many calls of
    /// [`Keyspace::end_tracking`], every changed key is an event of [`Classes::CHANGED`].
    pub fn begin_tracking(&self) {
        self.tracked.fetch_add(1, Ordering::SeqCst);
        self.watched.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends what [`Keyspace::begin_tracking`] began.
    pub fn end_tracking(&self) {
        self.watched.fetch_sub(1, Ordering::SeqCst);
        self.tracked.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns true if a client tracks changed keys.
    pub fn is_tracked(&self) -> bool {
        self.tracked.load(Ordering::Relaxed) != 0
    }

    /// Raises the flags of the watchers of a key that has changed. The caller holds the stripe. `lives`: it is there
    /// now.
    pub(crate) fn touch(&self, stripe: u16, db: u32, key: &[u8], lives: impl Fn() -> bool) {
        // SAFETY: the caller holds the stripe.
        let state = unsafe { self.stripe_state(stripe) };
        let watchers = state.watchers.get(&(db, Box::from(key)));
        for watcher in watchers.into_iter().flatten() {
            if !watcher.saw_stale || lives() {
                watcher.flag.raise();
            }
        }
    }

    /// Raises the flags of all watchers of `db` where `concerns` returns true for the key, and for whether its watcher
    /// saw it stale. The caller holds all stripes.
    pub(crate) fn touch_all(&self, db: u32, mut concerns: impl FnMut(&[u8], bool) -> bool) {
        if self.watched.load(Ordering::Relaxed) == 0 {
            return;
        }
        for stripe in 0..crate::lock::STRIPES {
            // SAFETY: the caller holds all stripes.
            let state = unsafe { self.stripe_state(stripe as u16) };
            for ((watched_db, key), watchers) in &state.watchers {
                for watcher in watchers.iter().filter(|_| *watched_db == db) {
                    if concerns(key, watcher.saw_stale) {
                        watcher.flag.raise();
                    }
                }
            }
        }
    }
}
