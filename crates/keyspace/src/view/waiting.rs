//! The queues of clients that wait for keys, kept by a view when a key appears or goes.
//!
//! Must not know: commands, the service of a waiter.

use redline_types::Kind;

use super::entries::{Entries, entry_of, is_expired};
use crate::{lock::STRIPES, space::stripe_of, wait::Ready};

/// Reports that a key holds a new value: clients that wait for it are served at the end of the unit.
#[inline]
pub(super) fn appeared(entries: &mut Entries<'_>, hash: u64, key: &[u8], kind: Option<Kind>) {
    if entries.space.anybody_waits() {
        make_ready(entries, hash, key, kind);
    }
}

/// Reports that a key has gone, or holds a value of another type.
#[inline]
pub(super) fn gone(entries: &mut Entries<'_>, hash: u64, db: u32, key: &[u8]) {
    if entries.space.anybody_waits() {
        let before = std::mem::replace(&mut entries.db, db);
        make_ready(entries, hash, key, None);
        entries.db = before;
    }
}

/// Makes a key ready. `kind`: the type that it has now; without one, for clients that want to know that it has gone.
#[cold]
fn make_ready(entries: &mut Entries<'_>, hash: u64, key: &[u8], kind: Option<Kind>) {
    // SAFETY: the stripe of the key is held; the reference ends with this function.
    let state = unsafe { entries.space.stripe_state(stripe_of(hash)) };
    let db = entries.db;
    let queues = state.waiters.get_mut(key).into_iter().flatten();
    for queue in queues.filter(|queue| queue.db == db && !queue.ready) {
        let concerned =
            queue.when_gone > 0 || queue.waiters.iter().any(|waiter| Some(waiter.kind) == kind);
        if concerned {
            queue.ready = true;
            entries.local.ready.push_back(Ready {
                db,
                key: key.into(),
            });
        }
    }
}

/// Makes the waited-for keys of `db` ready that exist now, and those with a client that wants to know when they go,
/// after two databases have changed places, or one was emptied. The unit holds all stripes.
pub(super) fn make_all_ready(entries: &mut Entries<'_>, db: u32) {
    if !entries.space.anybody_waits() {
        return;
    }
    let mut found = Vec::new();
    for stripe in 0..STRIPES {
        // SAFETY: all stripes are held; the reference ends with this turn.
        let state = unsafe { entries.space.stripe_state(stripe as u16) };
        let keys = state.waiters.iter();
        let own = keys.filter(|(_, queues)| queues.iter().any(|queue| queue.db == db));
        found.extend(own.map(|(key, _)| key.clone()));
    }
    // The order of a table is arbitrary: this one is at least always the same.
    found.sort_unstable();
    for key in found {
        // Not by `find`: the deletion of a key that has expired would stand in the record before the swap, where the key is
        // another one. Whoever meets it next deletes it.
        let kind = match entry_of(entries.space, db, &key) {
            // SAFETY: all stripes are held.
            Some(entry) if unsafe { !is_expired(entry, entries.now_ms) } => {
                entries.content(entry).kind()
            }
            _ => None,
        };
        let hash = entries.space.place(&key).hash();
        entries.in_db(db, |entries| make_ready(entries, hash, &key, kind));
    }
}
