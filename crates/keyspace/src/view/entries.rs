//! The entries of a unit: found, stored and removed in the tables of a database and in the account of memory. What an
//! entry's expiry, arrival or going causes by itself is reported from here; the reports of a handler are [`View`](super::View)'s.
//!
//! Must not know: commands, the number of changes that a handler reports.

mod door;

pub(crate) use door::Change;
pub(super) use door::Seen;
#[cfg(debug_assertions)]
pub(crate) use door::Witness;

use std::{cell::Cell, sync::atomic::Ordering};

use redline_types::{PackedRef, Value};

use super::{Expiry, hints::Hints, waiting};
use crate::{
    entry::{Content, Entry, Garbage, Stored, fit_for_entry},
    lock::Held,
    notify::{Classes, EXPIRED, Event},
    space::{Keyspace, Local, stripe_of},
    unit::Unit,
};

/// The entries of the stripes that a unit holds, in the selected database.
pub struct Entries<'a> {
    pub(super) space: &'a Keyspace,
    pub(super) held: Held<'a>,
    /// The worker's share: limits, randomness, events.
    pub local: &'a mut Local,
    /// The selected database.
    pub(super) db: u32,
    pub(super) now_ms: i64,
    pub(super) hints: Hints<'a>,
    /// Places of the entries of the two keys that were last looked at to be changed: that was their use.
    pub(super) used_ahead: Cell<[usize; 2]>,
    /// Of the unit: it has changed something and no record has been written.
    #[cfg(debug_assertions)]
    pub(super) unrecorded: &'a Cell<bool>,
}

impl<'a> Entries<'a> {
    /// Makes those of a unit, for a view of it.
    #[inline(always)] // as `View::new`
    pub(super) fn new(
        unit: &'a mut Unit<'_>,
        local: &'a mut Local,
        db: u32,
        now_ms: i64,
    ) -> Entries<'a> {
        let unit = &*unit;
        local.opened.close_all();
        #[cfg(debug_assertions)]
        local.witness.get_mut().begin();
        Entries {
            space: unit.space(),
            held: unit.held(),
            local,
            db,
            now_ms,
            hints: Hints::none(),
            used_ahead: Cell::new([0; 2]),
            #[cfg(debug_assertions)]
            unrecorded: unit.unrecorded(),
        }
    }

    /// Notes for the unit that something has changed.
    #[inline(always)] // nothing in a release build
    pub(super) fn note_unrecorded(&self) {
        #[cfg(debug_assertions)]
        self.unrecorded.set(true);
    }

    /// Works on another database for a moment.
    pub(super) fn in_db<R>(&mut self, db: u32, run: impl FnOnce(&mut Self) -> R) -> R {
        let selected = std::mem::replace(&mut self.db, db);
        let result = run(self);
        self.db = selected;
        result
    }

    /// Returns the contents of an entry of this unit, unopened.
    #[inline]
    pub(super) fn content(&self, entry: Entry) -> Content<'_> {
        // SAFETY: the stripe is held, and writers need `&mut self`.
        unsafe { entry.content() }
    }

    #[cold]
    pub(super) fn remove_met_expired(&mut self) {
        for (db, key) in std::mem::take(self.local.met_expired.get_mut()) {
            self.in_db(db, |entries| {
                // Not there any more, or there again, if the unit went on to write the key.
                if let (hash, Some(entry)) = entries.look(&key)
                    // SAFETY: the stripe is held.
                    && unsafe { is_expired(entry, entries.now_ms) }
                {
                    entries.unlink(db, hash, entry);
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

    /// Raises the flags of a key's watchers, where a change has no event.
    #[inline]
    pub(super) fn touch_watchers(&self, key: &[u8]) {
        self.note_reported(key);
        if self.space.watched.load(Ordering::Relaxed) != 0 {
            self.tell_watchers(key, "");
        }
    }

    /// Raises the flags, and queues the change for clients that track keys; see [`Classes::CHANGED`] for its name.
    #[cold]
    fn tell_watchers(&self, key: &[u8], name: &'static str) {
        let lives = || name != EXPIRED && self.lives(self.db, key);
        let stripe = stripe_of(self.hash(key));
        self.space.touch(stripe, self.db, key, lives);
        if self.space.is_tracked() {
            self.local.events.push(Event {
                class: Classes::CHANGED,
                name,
                db: self.db,
                key: key.into(),
            });
        }
    }

    /// Queues a keyspace event, if its class is wanted.
    #[inline]
    pub(super) fn notify(&self, class: Classes, event: &'static str, key: &[u8]) {
        if self.local.notify.intersects(class) {
            self.local.events.push(Event {
                class,
                name: event,
                db: self.db,
                key: key.into(),
            });
        }
    }

    /// Queues the events of a value that replaces another one. Setting a value does this by itself; RENAME and COPY
    /// remove the old value first and report later.
    pub(super) fn notify_replaced(&self, key: &[u8], old_type: &str, new_type: &str) {
        self.notify(Classes::OVERWRITTEN, "overwritten", key);
        if old_type != new_type {
            self.notify(Classes::TYPE_CHANGED, "type_changed", key);
        }
    }

    /// Reports that a key was removed, but not by a command.
    pub(crate) fn propagate_gone(&self, key: &[u8]) {
        self.note_unrecorded();
        // Not the command's own effect: the call may still be recorded.
        let words = [&b"DEL"[..], key];
        self.local.push_effect(self.space, self.db, words);
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
            self.in_db(db, |entries| entries.report_expired(&id.1));
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

    /// Stores a value that was opened or made to be edited, under its key. Returns true if that is removed, since the last
    /// element has gone (but a stream stays).
    pub(super) fn close_edited(
        &mut self,
        change: &Change,
        key: &[u8],
        hash: u64,
        old: Option<Entry>,
        value: Value,
    ) -> bool {
        match old {
            Some(entry) => self.exchange_edited(change, key, hash, entry, value),
            None if value.leaves_no_key() => {
                self.local.opened.give_back(value);
                false
            }
            None => {
                self.store_edited(value, |entries, stored| {
                    entries.replace(key, hash, None, stored, Expiry::Clear);
                });
                false
            }
        }
    }

    /// Stores a value that has been edited in the place of the packed one that it was. Returns true if it is empty, so
    /// that its key is removed.
    fn exchange_edited(
        &mut self,
        change: &Change,
        key: &[u8],
        hash: u64,
        entry: Entry,
        value: Value,
    ) -> bool {
        if value.is_empty() {
            self.unlink(self.db, hash, entry);
            self.local.opened.give_back(value);
            return true;
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
            return false;
        }
        self.store_edited(value, |entries, stored| {
            // SAFETY: as above.
            unsafe {
                let fresh = entry.with_value(&mut entries.local.heap, stored);
                entries.exchange(hash, entry, fresh);
            }
        });
        false
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
