//! Finding, storing and removing entries of a view, in the tables of its database and in the account of memory.
//!
//! Must not know: commands.

use std::sync::atomic::Ordering;

use redline_types::{PackedRef, Value};

use super::{Expiry, View, door::Change, waiting};
use crate::{
    entry::{Content, Entry, Garbage, Stored, fit_for_entry},
    notify::{Classes, EXPIRED},
    space::{Keyspace, stripe_of},
};

impl View<'_> {
    #[cold]
    pub(super) fn remove_met_expired(&mut self) {
        for (db, key) in std::mem::take(self.local.met_expired.get_mut()) {
            self.in_db(db, |view| {
                // Not there any more, or there again, if the unit went on to write the key.
                if let (hash, Some(entry)) = view.look(&key)
                    // SAFETY: the stripe is held.
                    && unsafe { is_expired(entry, view.now_ms) }
                {
                    view.unlink(db, hash, entry);
                }
            });
        }
    }

    /// Reports an expired key that a reader met. The reader cannot remove it, but the event is published now.
    #[cold]
    fn meet_expired(&self, key: &[u8]) {
        if self.local.keeps_expired {
            return;
        }
        let news = self
            .local
            .met_expired
            .borrow_mut()
            .insert((self.db, key.into()));
        if news {
            self.report_expired(key);
        }
    }

    fn report_expired(&self, key: &[u8]) {
        self.note_reported(key);
        self.local.expired.set(self.local.expired.get() + 1);
        if self.space.watched.load(Ordering::Relaxed) != 0 {
            self.tell_watchers(key, EXPIRED);
        }
        // Before all else in the unit: for it the key was not there any more.
        self.propagate_gone(key);
        self.notify(Classes::EXPIRED, EXPIRED, key);
    }

    /// Counts a key that a reader did not find.
    #[inline]
    pub(super) fn missed(&self, key: &[u8]) {
        self.local.misses.set(self.local.misses.get() + 1);
        self.notify(Classes::KEY_MISS, "keymiss", key);
    }

    pub(super) fn announce_replaced(&self, key: &[u8], old: Option<Entry>, new_type: &str) {
        if let Some(entry) = old {
            self.notify_replaced(key, self.content(entry).type_name(), new_type);
        }
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.hints.place(key, self.space, self.db).hash()
    }

    pub(super) fn in_table(&self, db: u32, key: &[u8]) -> bool {
        entry_of(self.space, db, key).is_some()
    }

    /// Returns true if there is such a key in that database, and it has not expired.
    pub(super) fn lives(&self, db: u32, key: &[u8]) -> bool {
        let entry = entry_of(self.space, db, key);
        // SAFETY: the unit holds the stripe, as for `in_table`.
        entry.is_some_and(|entry| unsafe { !is_expired(entry, self.now_ms) })
    }

    /// Returns the hash of a key, and its entry, which may have expired.
    #[inline]
    pub(super) fn look(&self, key: &[u8]) -> (u64, Option<Entry>) {
        let hash = self.hash(key);
        let stripe = stripe_of(hash);
        assert!(
            self.held.covers(stripe),
            "a unit touched a key whose stripe it does not hold"
        );
        let db = self.space.db(self.db);
        let entry = db.and_then(|db| db.find(hash, key, self.hints.ahead()));
        (hash, entry)
    }

    /// Returns the entry of a key that has not expired.
    #[inline]
    pub(super) fn find_entry(&self, key: &[u8]) -> Option<Entry> {
        let entry = self.look(key).1?;
        // SAFETY: the stripe is held.
        if unsafe { is_expired(entry, self.now_ms) } {
            self.meet_expired(key);
            return None;
        }
        Some(entry)
    }

    /// Returns the same with the hash, for writers: an expired entry is removed at once.
    #[inline]
    pub(super) fn find_mut(&mut self, key: &[u8]) -> (u64, Option<Entry>) {
        let (hash, entry) = self.look(key);
        // SAFETY: the stripe is held.
        if let Some(entry) = entry.filter(|entry| unsafe { is_expired(*entry, self.now_ms) }) {
            self.expire(self.db, hash, entry);
            return (hash, None);
        }
        (hash, entry)
    }

    /// Removes an expired entry and reports it, unless a reader has done so.
    #[cold]
    pub(crate) fn expire(&mut self, db: u32, hash: u64, entry: Entry) {
        // SAFETY: the stripe is held; the key is copied before the entry goes.
        let id = (db, Box::<[u8]>::from(unsafe { entry.key() }));
        self.unlink(db, hash, entry);
        let met = self.local.met_expired.get_mut();
        if met.is_empty() || !met.remove(&id) {
            self.in_db(db, |view| view.report_expired(&id.1));
        }
    }

    #[inline]
    pub(super) fn access(&self, entry: Entry) {
        // SAFETY: the stripe is held; the header is only ever accessed by value.
        unsafe {
            let before = entry.clock();
            let after = self.local.clock.touched(before, fastrand::f64);
            if after != before {
                entry.set_clock(after);
            }
        }
    }

    /// Counts an access by a handler that may go on to change the value: one use, so [`View::write`] counts no other.
    #[inline]
    pub(super) fn access_ahead(&self, entry: Entry) {
        self.access(entry);
        let [_, last] = self.used_ahead.get();
        self.used_ahead.set([last, entry.pointer().addr().get()]);
    }

    /// Stores a value under a key, whatever it was.
    pub(super) fn put(&mut self, key: &[u8], value: Stored<'_>, expiry: Expiry) {
        let (hash, old) = self.find_mut(key);
        self.replace(key, hash, old, value, expiry);
    }

    /// Stores a string in place of the key's entry, which the caller has just looked up.
    #[inline]
    pub(super) fn store_string(
        &mut self,
        key: &[u8],
        hash: u64,
        old: Option<Entry>,
        value: &[u8],
        raw: bool,
        expiry: Expiry,
    ) {
        let change = self.begin_change(old);
        if let Some(entry) = old
            // SAFETY: the stripe is held, and `&mut self` excludes readers.
            && unsafe { entry.overwrite(&change, value, raw, expiry) }
        {
            // The size class is the same: nothing to account for.
            self.note_changed(key);
            self.access(entry);
            if let Expiry::AtMs(at) = expiry {
                self.space.db_or_create(self.db).note_expiry(hash, at);
            }
            return;
        }
        self.replace(key, hash, old, Stored::Bytes { bytes: value, raw }, expiry);
    }

    /// Stores a value in place of the key's entry, which the caller has just looked up.
    pub(super) fn replace(
        &mut self,
        key: &[u8],
        hash: u64,
        old: Option<Entry>,
        value: Stored<'_>,
        expiry: Expiry,
    ) {
        let change = self.begin_change(old);
        let db = self.space.db_or_create(self.db);
        let kind = value.kind();
        // SAFETY: the stripe is held, and `&mut self` excludes readers; the old entry leaves the tables before it is
        // destroyed.
        unsafe {
            let expire_at_ms = match expiry {
                Expiry::Clear => None,
                Expiry::Keep => old.and_then(|entry| entry.expire_at_ms()),
                Expiry::AtMs(at) => Some(at),
            };
            let clock = match old {
                Some(entry) => self.local.clock.touched(entry.clock(), fastrand::f64),
                None => self.local.clock.initial(),
            };
            let freeze_id = match &value {
                Stored::Object(object) if self.space.snapshots.is_running() => object.freeze_id(),
                _ => None,
            };
            let phase = self.space.snapshots.phase();
            let fresh = Entry::create(&mut self.local.heap, key, value, expire_at_ms, clock, phase);
            let grown = db.store(hash, old, fresh);
            if old.is_none() {
                self.notify(Classes::NEW, "new", key);
            }
            if let Some(id) = freeze_id {
                self.space.snapshots.note_moved(id, db, key);
            }
            self.end_change(change, key, grown);
            if let Some(old) = old {
                self.destroy(old);
            }
        }
        waiting::appeared(self, hash, key, kind);
    }

    /// Passes a value that has been edited, or made, to `store`: as bytes, if it is small enough for an entry.
    pub(super) fn store_edited(&mut self, value: Value, store: impl FnOnce(&mut Self, Stored<'_>)) {
        match fit_for_entry(&value) {
            Some(packed) => {
                store(self, Stored::Packed(packed));
                self.local.opened.give_back(value);
            }
            // A copy, since the memory in which values are edited has more room than this one needs.
            None if value.packed().is_some() => {
                store(self, Stored::Object(value.clone()));
                self.local.opened.give_back(value);
            }
            None => store(self, Stored::Object(value)),
        }
    }

    /// Stores a value that was opened or made to be edited, under its key, which is removed with the last element (but
    /// of a stream).
    pub(super) fn close_edited(
        &mut self,
        change: &Change,
        key: &[u8],
        hash: u64,
        old: Option<Entry>,
        value: Value,
    ) {
        match old {
            Some(entry) => self.exchange_edited(change, key, hash, entry, value),
            None if value.leaves_no_key() => {
                self.local.opened.give_back(value);
            }
            None => self.store_edited(value, |view, stored| {
                view.replace(key, hash, None, stored, Expiry::Clear);
            }),
        }
    }

    /// Stores a value that has been edited in the place of the packed one that it was.
    fn exchange_edited(
        &mut self,
        change: &Change,
        key: &[u8],
        hash: u64,
        entry: Entry,
        value: Value,
    ) {
        if value.is_empty() {
            self.unlink(self.db, hash, entry);
            self.emptied = true;
            self.local.opened.give_back(value);
            return;
        }
        let packed = fit_for_entry(&value);
        if cfg!(debug_assertions) && self.differs(entry, packed, value.len()) {
            self.note_changed(key);
        }
        if let Some(packed) = packed
            // SAFETY: the stripe is held, and `&mut self` excludes readers; the value is not the entry's own.
            && unsafe { entry.overwrite_packed(change, packed) }
        {
            // The size class is the same: nothing to account for.
            self.local.opened.give_back(value);
            return;
        }
        self.store_edited(value, |view, stored| {
            // SAFETY: as above.
            unsafe {
                let fresh = entry.with_value(&mut view.local.heap, stored);
                view.exchange(hash, entry, fresh);
            }
        });
    }

    /// Returns true if an edited collection of so many elements, packed if it is small, surely differs from the entry's.
    fn differs(&self, entry: Entry, edited: Option<PackedRef<'_>>, len: usize) -> bool {
        match (self.content(entry), edited) {
            (Content::Packed(old), Some(new)) => old.bytes != new.bytes,
            (Content::Packed(old), None) => old.len() != len,
            _ => true,
        }
    }

    /// Takes a collection that has become small into its entry.
    pub(super) fn pack(&mut self, hash: u64, entry: Entry) {
        // SAFETY: the stripe is held, and `&mut self` excludes readers.
        unsafe {
            let change = self.begin_change(Some(entry));
            let Some(value) = entry.object_mut(&change) else {
                return;
            };
            let Some(packed) = fit_for_entry(value) else {
                return;
            };
            let fresh = entry.with_value(&mut self.local.heap, Stored::Packed(packed));
            self.exchange(hash, entry, fresh);
        }
    }

    /// Puts another entry of the same key and expiry in the place of one, which is destroyed. Waiting clients are not
    /// served: the value is of the type that it was.
    ///
    /// # Safety
    /// The stripe is held, the old entry is in the tables, the new one is not, and neither is being read.
    unsafe fn exchange(&mut self, hash: u64, old: Entry, fresh: Entry) {
        let db = self.space.db_or_create(self.db);
        // SAFETY: handed on from the caller; the old entry leaves the tables before it is destroyed.
        unsafe {
            let grown = db.store(hash, Some(old), fresh);
            self.local.account(self.space, grown);
            if let Some(Garbage::Object(value)) = old.destroy(&mut self.local.heap) {
                debug_assert!(value.freeze_id().is_none(), "a frozen value is not packed");
                self.local.opened.give_back(value);
            }
        }
    }

    /// Sets or clears the expiry of an entry. One that has none yet needs another place.
    pub(super) fn store_expiry(&mut self, hash: u64, entry: Entry, at: Option<i64>) {
        let change = self.begin_change(Some(entry));
        let db = self.space.db_or_create(self.db);
        // SAFETY: the stripe is held, and `&mut self` excludes readers.
        unsafe {
            match (entry.expire_at_ms(), at) {
                (None, None) => {}
                (Some(_), Some(at)) => {
                    entry.set_expire_at_ms(&change, at);
                    db.note_expiry(hash, at);
                    self.note_changed(entry.key());
                }
                (before, _) => {
                    let bytes = entry.heap_bytes();
                    let fresh = entry.rebuild(&mut self.local.heap, at);
                    let grown = db.exchange_rebuilt(hash, entry, before.is_some(), fresh);
                    let grown = grown + fresh.heap_bytes() as i64 - bytes as i64;
                    self.end_change(change, fresh.key(), grown);
                }
            }
        }
    }

    /// Removes an entry from its tables, account and TTL index, and destroys it.
    pub(crate) fn unlink(&mut self, db: u32, hash: u64, entry: Entry) {
        self.detach(db, hash, entry);
        // SAFETY: it is out of the tables.
        unsafe { self.destroy(entry) };
    }

    pub(super) fn detach(&mut self, db: u32, hash: u64, entry: Entry) {
        if self.space.anybody_waits() {
            // SAFETY: the stripe is held; the entry lives on until this function's end.
            waiting::gone(self, hash, db, unsafe { entry.key() });
        }
        let selected = std::mem::replace(&mut self.db, db);
        let change = self.begin_change(Some(entry));
        let db = self.space.db_or_create(db);
        // SAFETY: the stripe is held.
        unsafe {
            let grown = db.take_out(hash, entry);
            self.end_change(change, entry.key(), grown);
        }
        self.db = selected;
    }

    /// # Safety
    /// The entry is out of the tables, and this is its last use.
    pub(super) unsafe fn destroy(&mut self, entry: Entry) {
        // SAFETY: handed on from the caller.
        match unsafe { entry.destroy(&mut self.local.heap) } {
            Some(Garbage::Object(value))
                if self.space.snapshots.is_running() && value.freeze_id().is_some() =>
            {
                self.space.snapshots.adopt(value);
            }
            Some(garbage) if garbage.is_heavy() => self.local.garbage.push(garbage),
            _ => {}
        }
    }
}

/// Returns the entry of a key, whose stripe the caller holds; it may have expired.
pub(crate) fn entry_of(space: &Keyspace, db: u32, key: &[u8]) -> Option<Entry> {
    let hash = space.place(key).hash();
    space.db(db)?.find(hash, key, None)
}

/// # Safety
/// The stripe of the entry is held.
#[inline]
pub(crate) unsafe fn is_expired(entry: Entry, now_ms: i64) -> bool {
    // SAFETY: handed on from the caller.
    unsafe { entry.expire_at_ms() }.is_some_and(|at| now_ms > at)
}
