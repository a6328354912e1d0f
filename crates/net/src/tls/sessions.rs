//! The store of sessions that clients may resume: bounded in number and in time.
//!
//! It must not know what a session holds.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::server::StoresServerSessions;

/// The store of sessions: see the module's text. A session is made or resumed once a connection, so that one lock
/// suffices.
pub(super) struct Sessions {
    entries_max: usize,
    lifetime: Duration,
    store: Mutex<Store>,
}

#[derive(Default)]
struct Store {
    sessions: HashMap<Vec<u8>, (Instant, Vec<u8>)>,
    /// Keys in the order of their arrival; some may have been taken since.
    order: VecDeque<Vec<u8>>,
}

impl Sessions {
    pub(super) fn new(entries_max: usize, lifetime: Duration) -> Self {
        Sessions {
            entries_max,
            lifetime,
            store: Mutex::default(),
        }
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self, entry: &(Instant, Vec<u8>)) -> bool {
        entry.0.elapsed() < self.lifetime
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut store = self.store();
        store.order.push_back(key.clone());
        store.sessions.insert(key, (Instant::now(), value));
        while store.order.len() > self.entries_max {
            if let Some(oldest) = store.order.pop_front() {
                store.sessions.remove(&oldest);
            }
        }
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let store = self.store();
        let entry = store.sessions.get(key).filter(|entry| self.fresh(entry))?;
        Some(entry.1.clone())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let entry = self.store().sessions.remove(key)?;
        self.fresh(&entry).then_some(entry.1)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What is inside would decrypt connections.
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_session_goes_when_the_store_is_full() {
        let sessions = Sessions::new(2, Duration::from_secs(60));
        for key in [b"a", b"b", b"c"] {
            assert!(sessions.put(key.to_vec(), b"session".to_vec()));
        }
        assert_eq!(sessions.get(b"a"), None);
        assert_eq!(sessions.take(b"b"), Some(b"session".to_vec()));
        assert_eq!(sessions.take(b"b"), None, "taken once");
        assert_eq!(sessions.get(b"c"), Some(b"session".to_vec()));
    }

    #[test]
    fn a_session_that_is_too_old_is_not_resumed() {
        let sessions = Sessions::new(2, Duration::ZERO);
        sessions.put(b"a".to_vec(), b"session".to_vec());
        assert_eq!(sessions.get(b"a"), None);
        assert_eq!(sessions.take(b"a"), None);
    }
}
