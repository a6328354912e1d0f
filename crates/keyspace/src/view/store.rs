//! Finding, storing and removing entries of a view, with the tables, the TTL index, the counts and the account of
//! memory kept in step.
//!
//! Must not know: commands.

use std::{ptr::NonNull, sync::atomic::Ordering};

use redline_table::Index;
use redline_types::{Kind, PackedRef, Value};

use super::{Expiry, HINTS_AHEAD, View, door::Change, waiting};
use crate::{
    ahead::Ahead,
    entry::{Content, Entry, Garbage, Stored, fit_for_entry},
    notify::{Classes, EXPIRED},
    space::{Db, Keyspace, slot_of, stripe_of},
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
        let hint = self.hint.get();
        if hint.is(key) {
            hint.place.hash()
        } else {
            self.hash_of_another(key)
        }
    }

    fn hash_of_another(&self, key: &[u8]) -> u64 {
        let next = self.next_hint.get();
        // A command that goes over its keys a second time starts from the first again.
        for at in [next, 0] {
            if let Some(hint) = self.hints.get(at).filter(|hint| hint.is(key)) {
                if at % HINTS_AHEAD == 0 && at != 0 {
                    self.prefetch(at + HINTS_AHEAD);
                }
                self.hint.set(*hint);
                self.next_hint.set(at + 1);
                return hint.place.hash();
            }
        }
        self.space.place(key).hash()
    }

    /// Prefetches the entries of some of the hinted keys, from one of them on. The steps to an entry depend on each
    /// other, so each is taken for all keys before the next.
    pub(super) fn prefetch(&self, from: usize) {
        let hints = self.hints.get(from..).unwrap_or(&[]);
        let hints = &hints[..hints.len().min(HINTS_AHEAD)];
        let mut keys = hints
            .iter()
            .map(|hint| self.space.ahead(self.db, hint.place));
        let Some(first) = keys.next() else {
            return;
        };
        let mut ahead = [first; HINTS_AHEAD];
        let mut count = 1;
        for key in keys {
            ahead[count] = key;
            count += 1;
        }
        Ahead::fetch(&mut ahead[..count]);
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
        let Some(db) = self.space.db(self.db) else {
            return (hash, None);
        };
        let index = &db.slots[slot_of(hash)];
        let seen = self.ahead.and_then(|ahead| ahead.recall(index));
        // SAFETY: the stripe is held, so what the index recalls is a live entry.
        if let Some(pointer) = seen.filter(|seen| unsafe { has_key(*seen, key) }) {
            return (hash, Some(Entry::from_table(pointer)));
        }
        (hash, lookup(index, hash, key))
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
        let index = &db.slots[slot_of(hash)];
        let kind = value.kind();
        // SAFETY: the stripe is held, and `&mut self` excludes readers; the old entry leaves the tables before it is
        // destroyed.
        unsafe {
            let expire_at_ms = match expiry {
                Expiry::Clear => None,
                Expiry::Keep => old.and_then(|entry| entry.expire_at_ms()),
                Expiry::AtMs(at) => Some(at),
            };
            let earliest_ms = match &value {
                Stored::Object(object) => object.earliest_expiry_ms(),
                Stored::Bytes { .. } | Stored::Blob(_) | Stored::Packed(_) => None,
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
            let mut bytes = (fresh.heap_bytes() + fresh.value_bytes()) as i64;
            match old {
                Some(old) => {
                    index.replace(hash, old.pointer(), fresh.pointer());
                    bytes -= (old.heap_bytes() + old.value_bytes()) as i64;
                }
                None => {
                    bytes += grown_by(index, || index.insert(hash, fresh.pointer()));
                    let keys = &db.stripes[usize::from(stripe_of(hash))].keys;
                    keys.store(keys.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    self.notify(Classes::NEW, "new", key);
                }
            }
            if let Some(id) = freeze_id {
                self.space.snapshots.note_moved(id, db, key);
            }
            if kind == Some(Kind::VectorSet) {
                db.vector_sets.fetch_add(1, Ordering::Relaxed);
            }
            let expired = old.filter(|old| old.expire_at_ms().is_some());
            if expired.is_some() || expire_at_ms.is_some() {
                bytes += db.move_expiry(hash, expired, expire_at_ms.map(|at| (fresh, at)));
            }
            let timed = old.filter(|old| old.earliest_expiry_ms().is_some());
            if timed.is_some() || earliest_ms.is_some() {
                bytes += db.move_timed(hash, timed, earliest_ms.map(|at| (fresh, at)));
            }
            self.end_change(change, key, bytes);
            if let Some(old) = old {
                db.forget_kind(old);
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
            db.slots[slot_of(hash)].replace(hash, old.pointer(), fresh.pointer());
            let mut grown = 0;
            if let Some(at) = fresh.expire_at_ms() {
                grown += db.move_expiry(hash, Some(old), Some((fresh, at)));
            }
            let was_timed = old.earliest_expiry_ms().is_some();
            let earliest_ms = fresh.earliest_expiry_ms();
            if was_timed || earliest_ms.is_some() {
                let from = was_timed.then_some(old);
                grown += db.move_timed(hash, from, earliest_ms.map(|at| (fresh, at)));
            }
            grown += (fresh.heap_bytes() + fresh.value_bytes()) as i64;
            grown -= (old.heap_bytes() + old.value_bytes()) as i64;
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
                    db.slots[slot_of(hash)].replace(hash, entry.pointer(), fresh.pointer());
                    let before = before.map(|_| entry);
                    let mut grown = db.move_expiry(hash, before, at.map(|at| (fresh, at)));
                    if let Some(at) = fresh.earliest_expiry_ms() {
                        grown += db.move_timed(hash, Some(entry), Some((fresh, at)));
                    }
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
        let index = &db.slots[slot_of(hash)];
        let mut grown = grown_by(index, || {
            let was_there = index.remove(hash, entry.pointer());
            debug_assert!(
                was_there,
                "an entry is in the database out of which it is taken"
            );
        });
        let keys = &db.stripes[usize::from(stripe_of(hash))].keys;
        keys.store(keys.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        // SAFETY: the stripe is held.
        unsafe {
            if entry.expire_at_ms().is_some() {
                grown += db.move_expiry(hash, Some(entry), None);
            }
            if entry.earliest_expiry_ms().is_some() {
                grown += db.move_timed(hash, Some(entry), None);
            }
            grown -= (entry.heap_bytes() + entry.value_bytes()) as i64;
            db.forget_kind(entry);
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

impl Db {
    /// Keeps the counts of types right when an entry goes.
    ///
    /// # Safety
    /// The entry is alive, and its stripe is held.
    #[inline]
    unsafe fn forget_kind(&self, entry: Entry) {
        // SAFETY: handed on from the caller.
        if unsafe { entry.content() }.kind() == Some(Kind::VectorSet) {
            self.vector_sets.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Keeps the TTL index of a key's stripe right when its entry with an expiry is removed, added or replaced; returns
    /// the bytes by which the index has grown. The caller holds the stripe.
    pub(super) fn move_expiry(
        &self,
        hash: u64,
        from: Option<Entry>,
        to: Option<(Entry, i64)>,
    ) -> i64 {
        let ttl = &self.stripes[usize::from(stripe_of(hash))].ttl;
        let grown = move_in(ttl, hash, from, to.map(|(entry, _)| entry));
        if let Some((_, at)) = to {
            self.note_expiry(hash, at);
        }
        grown
    }

    /// Does the same for the index of entries whose collection has elements that expire, with the earliest time of one.
    pub(super) fn move_timed(
        &self,
        hash: u64,
        from: Option<Entry>,
        to: Option<(Entry, i64)>,
    ) -> i64 {
        let timed = &self.stripes[usize::from(stripe_of(hash))].timed;
        let grown = move_in(timed, hash, from, to.map(|(entry, _)| entry));
        if let Some((_, at)) = to {
            self.note_element_expiry(hash, at);
        }
        grown
    }

    /// Notes the time at which an element of a key of the stripe expires.
    pub(super) fn note_element_expiry(&self, hash: u64, at: i64) {
        let next = &self.next_element_ms[usize::from(stripe_of(hash))];
        if at < next.load(Ordering::Relaxed) {
            next.store(at, Ordering::Relaxed);
        }
    }

    /// Notes the time at which a key of the stripe expires.
    #[inline]
    pub(super) fn note_expiry(&self, hash: u64, at: i64) {
        let next = &self.next_expire_ms[usize::from(stripe_of(hash))];
        if at < next.load(Ordering::Relaxed) {
            next.store(at, Ordering::Relaxed);
        }
    }
}

/// Returns true if two keys are equal. Keys are short and nearly always equal here, since tag and order bits agree:
/// words of eight bytes, the last of them overlapping, take less than the call of a general comparison.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    const INLINE_BYTES_MAX: usize = 64;
    if a.len() != b.len() {
        return false;
    }
    let (Some(end_a), Some(end_b)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) else {
        return a == b;
    };
    if a.len() > INLINE_BYTES_MAX {
        return a == b;
    }
    let word = |chunk: &[u8; 8]| u64::from_ne_bytes(*chunk);
    let mut differ = word(end_a) ^ word(end_b);
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        differ |= word(a) ^ word(b);
    }
    differ == 0
}

/// Returns the entry of a key, whose stripe the caller holds; it may have expired.
pub(crate) fn entry_of(space: &Keyspace, db: u32, key: &[u8]) -> Option<Entry> {
    let hash = space.place(key).hash();
    lookup(&space.db(db)?.slots[slot_of(hash)], hash, key)
}

#[inline]
pub(crate) fn lookup(index: &Index, hash: u64, key: &[u8]) -> Option<Entry> {
    // SAFETY: the caller holds the stripe, so the pointers of the index are live entries.
    index
        .find(hash, |pointer| unsafe { has_key(pointer, key) })
        .map(Entry::from_table)
}

/// # Safety
/// The pointer is that of a live entry, whose stripe is held.
#[inline]
unsafe fn has_key(pointer: NonNull<u8>, key: &[u8]) -> bool {
    // SAFETY: handed on from the caller.
    is_same(unsafe { Entry::from_table(pointer).key() }, key)
}

/// # Safety
/// The stripe of the entry is held.
#[inline]
pub(crate) unsafe fn is_expired(entry: Entry, now_ms: i64) -> bool {
    // SAFETY: handed on from the caller.
    unsafe { entry.expire_at_ms() }.is_some_and(|at| now_ms > at)
}

/// Replaces an entry in an index, or adds or removes it; returns the bytes by which the index has grown.
fn move_in(index: &Index, hash: u64, from: Option<Entry>, to: Option<Entry>) -> i64 {
    grown_by(index, || match (from, to) {
        (Some(from), Some(to)) => {
            index.replace(hash, from.pointer(), to.pointer());
        }
        (Some(from), None) => {
            index.remove(hash, from.pointer());
        }
        (None, Some(to)) => index.insert(hash, to.pointer()),
        (None, None) => {}
    })
}

/// Returns the number of bytes by which a change makes an index larger.
#[inline]
fn grown_by(index: &Index, change: impl FnOnce()) -> i64 {
    let before = index.table_bytes();
    change();
    index.table_bytes() as i64 - before as i64
}
