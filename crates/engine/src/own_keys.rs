//! Keys to which clients of a writable replica have given an expiry. Its primary does not know of them, so the replica itself
//! removes them when they are due.
//!
//! Must not know: how a key is removed, who follows whom.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use redline_keyspace::{Trace, View};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId};

/// See the module's text.
#[derive(Debug, Default)]
pub struct OwnKeys {
    known: Mutex<Known>,
    is_used: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    due: BTreeSet<(i64, u32, Box<[u8]>)>,
    /// When each of them is due: Unix time in milliseconds.
    at_ms: HashMap<(u32, Box<[u8]>), i64>,
}

impl OwnKeys {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic under the own keys")
    }

    /// Takes note of the keys of a call that have an expiry now; their stripes are held.
    pub(crate) fn note_call(&self, view: &View<'_>, db: u32, id: CommandId, args: Args<'_>) {
        for key in spec::reachable_keys(id, args.len(), |at| &args[at]) {
            let key = &args[key.position];
            let found = view.find(key, Trace::Quiet);
            if let Some(at_ms) = found.and_then(|found| found.expire_at_ms()) {
                self.note(db, key, at_ms);
            }
        }
    }

    /// Takes note of a key that is due at this Unix time in milliseconds.
    pub fn note(&self, db: u32, key: &[u8], at_ms: i64) {
        let mut known = self.known();
        if let Some(before_ms) = known.at_ms.insert((db, key.into()), at_ms) {
            known.due.remove(&(before_ms, db, key.into()));
        }
        known.due.insert((at_ms, db, key.into()));
        self.is_used.store(true, Ordering::Release);
    }

    /// Takes keys out that are due at this time, the longest due first, but no more than so many.
    pub fn take_due(&self, now_ms: i64, most: usize) -> Vec<(u32, Box<[u8]>)> {
        let mut taken = Vec::new();
        if !self.is_used.load(Ordering::Acquire) {
            return taken;
        }
        let mut known = self.known();
        while taken.len() < most
            && known.due.first().is_some_and(|(at_ms, ..)| *at_ms < now_ms)
            && let Some((_, db, key)) = known.due.pop_first()
        {
            known.at_ms.remove(&(db, key.clone()));
            taken.push((db, key));
        }
        taken
    }

    /// Forgets all keys.
    pub fn clear(&self) {
        if self.is_used.swap(false, Ordering::AcqRel) {
            *self.known() = Known::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_due_once_and_at_its_last_time() {
        let own = OwnKeys::default();
        own.note(0, b"a", 10);
        own.note(1, b"a", 5);
        own.note(0, b"b", 7);
        own.note(0, b"b", 20);
        assert!(own.take_due(5, 9).is_empty());
        let due = own.take_due(11, 9);
        assert_eq!(due, [(1, b"a"[..].into()), (0, b"a"[..].into())]);
        assert_eq!(own.take_due(21, 9), [(0, b"b"[..].into())]);
        assert!(own.take_due(i64::MAX, 9).is_empty());
        own.note(0, b"a", 1);
        own.note(0, b"b", 2);
        assert_eq!(own.take_due(9, 1), [(0, b"a"[..].into())]);
        own.clear();
        assert!(own.take_due(9, 1).is_empty());
    }
}
