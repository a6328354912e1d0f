//! What a unit may do to keys: lookups, strings, collections, expiry, whole databases.
//!
//! A [`View`] is made by whoever holds the stripes and lives as long as the unit. Must not know:
//! commands, sessions, how the stripes came to be held.
//!
//! # How handlers use it
//!
//! - Readers take `&self`, so several values may be looked at side by side. A key that has expired is
//!   not there; it is removed when the unit ends.
//! - Writers take `&mut self`. [`View::update`] hands out a collection, creates it if asked to, keeps
//!   the memory account, and removes the key when nothing is left in it.
//! - Whoever changed a key calls [`View::changed`] once per change, with the event's name: it raises
//!   watch flags, counts the change, queues the keyspace event, and after an update that emptied the
//!   key, the `del` event. A handler that changes nothing calls nothing.

use std::sync::{Arc, atomic::Ordering};

use redline_table::Index;
use redline_types::{DataType, Hash, Kind, Limits, List, Set, Stream, Value, Zset};

use crate::{
    entry::{Blob, Entry, Owned, Stored, StringRef, ValueRef, blob_bytes},
    lock::StripeSet,
    notify::{Classes, Event},
    space::{Db, Keyspace, Local, SLOTS, SLOTS_PER_STRIPE, slot_of, stripe_of, stripe_of_slot},
    watch::WatchFlag,
};

/// The key holds a value of another type: Redis's WRONGTYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// A stripe was in the way of a unit that takes its stripes as it goes (SCAN, RANDOMKEY): the unit has
/// changed nothing and may be put aside until this stripe is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy(pub u16);

/// The stripes that a unit holds: the proof that a [`View`] may touch their keys.
#[derive(Clone, Copy)]
pub enum Held<'a> {
    /// None. The unit takes one stripe at a time by itself (SCAN, RANDOMKEY).
    None,
    /// One: the common case.
    One(u16),
    /// Several.
    Set(&'a StripeSet),
    /// Every one.
    All,
}

impl Held<'_> {
    #[inline]
    fn covers(&self, stripe: u16) -> bool {
        match self {
            Held::None => false,
            Held::One(held) => *held == stripe,
            Held::Set(set) => set.contains(stripe),
            Held::All => true,
        }
    }
}

/// What becomes of a key's expiry when its value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It goes: the key stays until deleted.
    Clear,
    /// It stays as it was.
    Keep,
    /// The key expires at this Unix time in milliseconds.
    AtMs(i64),
}

/// A collection type that [`View::update`] can hand out.
pub trait Collection: DataType + Into<Value> {
    /// Its type.
    const KIND: Kind;
    /// A fresh one, as small as its encodings allow.
    fn empty(limits: &Limits) -> Self;
    /// The collection in a value, if it is of this type.
    fn of(value: &Value) -> Option<&Self>;
    /// The same, to be changed.
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
}

macro_rules! collections {
    ($($name:ident),*) => {$(
        impl Collection for $name {
            const KIND: Kind = Kind::$name;
            fn empty(_limits: &Limits) -> Self { $name::default() }
            fn of(value: &Value) -> Option<&Self> {
                match value { Value::$name(found) => Some(found), _ => None }
            }
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value { Value::$name(found) => Some(found), _ => None }
            }
        }
    )*};
}
collections!(List, Hash, Set, Zset, Stream);

/// One unit's access to the keyspace. See the module's text.
pub struct View<'a> {
    space: &'a Keyspace,
    held: Held<'a>,
    /// The worker's share: limits, randomness, events.
    pub local: &'a mut Local,
    db: u32,
    now_ms: i64,
    /// A key whose hash the worker has already: its address and length, and the hash.
    hint: (usize, usize, u64),
    /// Changes so far: what Redis calls `dirty`.
    changes: u64,
    emptied: bool,
}

impl<'a> View<'a> {
    /// A unit's view of database `db`. `now_ms` stands still for the unit.
    #[inline]
    pub fn new(
        space: &'a Keyspace,
        held: Held<'a>,
        local: &'a mut Local,
        db: u32,
        now_ms: i64,
    ) -> View<'a> {
        View { space, held, local, db, now_ms, hint: (0, 0, 0), changes: 0, emptied: false }
    }

    /// Tells the hash of a key that the unit will ask for: saves computing it again.
    #[inline]
    pub fn hint(&mut self, key: &[u8], hash: u64) {
        self.hint = (key.as_ptr() as usize, key.len(), hash);
    }

    /// The unit's time: Unix time in milliseconds.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// The selected database.
    pub fn db(&self) -> u32 {
        self.db
    }

    /// Number of databases.
    pub fn databases(&self) -> u32 {
        self.space.databases()
    }

    /// Works on another database for a moment (MOVE, COPY … DB).
    pub fn in_db<R>(&mut self, db: u32, run: impl FnOnce(&mut View<'a>) -> R) -> R {
        let selected = std::mem::replace(&mut self.db, db);
        let result = run(self);
        self.db = selected;
        result
    }

    /// Thresholds of the compact encodings.
    pub fn limits(&self) -> &Limits {
        &self.local.limits
    }

    /// A random word for commands that draw by lot.
    pub fn random(&mut self) -> u64 {
        self.local.rng.u64(..)
    }

    /// Changes that the unit has reported so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    // ---- readers ------------------------------------------------------------------------------

    /// The value of a key. Counts as an access, and as a hit or a miss.
    #[inline]
    pub fn value(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        match self.find(key) {
            Some(entry) => {
                self.local.hits.set(self.local.hits.get() + 1);
                self.access(entry);
                // SAFETY: the stripe is held, and writers need `&mut self`.
                Some(unsafe { entry.value() })
            }
            None => {
                self.local.misses.set(self.local.misses.get() + 1);
                None
            }
        }
    }

    /// The value of a key. Counts as a hit or a miss, but not as an access (EXISTS, TTL, TYPE).
    pub fn probe(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        let found = self.peek(key);
        let counter = if found.is_some() { &self.local.hits } else { &self.local.misses };
        counter.set(counter.get() + 1);
        found
    }

    /// The value of a key, without any trace of the look (writers' checks).
    pub fn peek(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        // SAFETY: the stripe is held, and writers need `&mut self`.
        self.find(key).map(|entry| unsafe { entry.value() })
    }

    /// A string's value. Counts as an access.
    #[inline]
    pub fn string(&self, key: &[u8]) -> Result<Option<StringRef<'_>>, WrongType> {
        match self.value(key) {
            None => Ok(None),
            Some(ValueRef::String(string)) => Ok(Some(string)),
            Some(ValueRef::Object(_)) => Err(WrongType),
        }
    }

    /// A collection. Counts as an access: `view.collection::<List>(key)?`.
    pub fn collection<T: Collection>(&self, key: &[u8]) -> Result<Option<&T>, WrongType> {
        match self.value(key) {
            None => Ok(None),
            Some(ValueRef::Object(value)) => T::of(value).map(Some).ok_or(WrongType),
            Some(ValueRef::String(_)) => Err(WrongType),
        }
    }

    /// Is there such a key? Leaves no trace.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// When the key expires: `None` without a key, `Some(None)` without an expiry. Leaves no trace.
    pub fn expire_at_ms(&self, key: &[u8]) -> Option<Option<i64>> {
        // SAFETY: the stripe is held.
        self.find(key).map(|entry| unsafe { entry.expire_at_ms() })
    }

    /// Seconds since the last access (OBJECT IDLETIME). Leaves no trace.
    pub fn idle_s(&self, key: &[u8]) -> Option<u32> {
        // SAFETY: the stripe is held.
        self.find(key).map(|entry| self.local.clock.idle_s(unsafe { entry.clock() }))
    }

    /// The access counter (OBJECT FREQ); meaningful under an LFU policy. Leaves no trace.
    pub fn frequency(&self, key: &[u8]) -> Option<u32> {
        // SAFETY: the stripe is held.
        self.find(key).map(|entry| self.local.clock.frequency(unsafe { entry.clock() }))
    }

    /// Bytes that the key takes, its share of the table not included (MEMORY USAGE). Leaves no trace.
    pub fn memory_bytes(&self, key: &[u8]) -> Option<usize> {
        // SAFETY: the stripe is held.
        self.find(key).map(|entry| unsafe { entry.heap_bytes() + entry.value_bytes() })
    }

    // ---- strings ------------------------------------------------------------------------------

    /// Makes the key a string of this value, whatever it was.
    #[inline]
    pub fn set_string(&mut self, key: &[u8], value: &[u8], expiry: Expiry) {
        let old = self.find_mut(key);
        self.store_string(key, old, value, expiry);
    }

    #[inline]
    fn store_string(&mut self, key: &[u8], old: Option<Entry>, value: &[u8], expiry: Expiry) {
        let keep = expiry == Expiry::Keep;
        if let Some(entry) = old
            && !matches!(expiry, Expiry::AtMs(_))
            // SAFETY: the stripe is held, and `&mut self` says that nobody looks.
            && unsafe { entry.overwrite(value, false, keep) }
        {
            // The size class is the same: nothing to account for.
            self.access(entry);
            return;
        }
        self.replace(key, old, Stored::Bytes { bytes: value, raw: false }, expiry);
    }

    /// Makes the key a large string that is already reference-counted.
    pub fn set_blob(&mut self, key: &[u8], value: Blob, expiry: Expiry) {
        if value.len() <= crate::entry::INLINE_BYTES_MAX {
            return self.set_string(key, &value, expiry);
        }
        self.put(key, Stored::Blob(value), expiry);
    }

    /// Edits a string where it stands, creating an empty one first if there is none; its expiry stays.
    /// Returns the edit's result. The edit sees the value as a growable buffer; `raw` strings tell
    /// OBJECT ENCODING so (APPEND, SETRANGE, SETBIT do; INCR does not).
    pub fn edit_string<R>(
        &mut self,
        key: &[u8],
        raw: bool,
        edit: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<R, WrongType> {
        let Some(entry) = self.find_mut(key) else {
            let mut value = Vec::new();
            let result = edit(&mut value);
            self.put(key, Stored::Bytes { bytes: &value, raw }, Expiry::Clear);
            return Ok(result);
        };
        // SAFETY: the stripe is held, and `&mut self` says that nobody looks.
        unsafe {
            self.access(entry);
            if let Some(blob) = entry.blob_mut() {
                let before = blob_bytes(blob);
                // A reply may still refer to it: then the edit gets a copy of its own.
                let result = edit(Arc::make_mut(blob));
                let after = blob_bytes(blob);
                self.local.account(self.space, after as i64 - before as i64);
                return Ok(result);
            }
            let Some(inline) = entry.inline_mut() else { return Err(WrongType) };
            let mut value = inline.to_vec();
            let result = edit(&mut value);
            if !entry.overwrite(&value, raw, true) {
                self.put(key, Stored::Bytes { bytes: &value, raw }, Expiry::Keep);
            }
            Ok(result)
        }
    }

    /// Replaces a string by what `map` makes of it, with one lookup; its expiry stays. `map` gets the
    /// value, or `None` without the key, and gives the new one and a result, or refuses.
    #[inline]
    pub fn map_string<B: AsRef<[u8]>, R, E: From<WrongType>>(
        &mut self,
        key: &[u8],
        map: impl FnOnce(Option<&[u8]>) -> Result<(B, R), E>,
    ) -> Result<R, E> {
        let old = self.find_mut(key);
        // SAFETY: the stripe is held; the reference ends with the call of `map`.
        let (value, result) = match old.map(|entry| unsafe { entry.value() }) {
            None => map(None)?,
            Some(ValueRef::String(string)) => map(Some(string.as_bytes()))?,
            Some(ValueRef::Object(_)) => return Err(WrongType.into()),
        };
        self.store_string(key, old, value.as_ref(), Expiry::Keep);
        Ok(result)
    }

    // ---- collections --------------------------------------------------------------------------

    /// Hands a collection to `edit`. Without the key: `Ok(None)`, or with `create` a fresh one, which
    /// stays only if the edit puts something into it (a stream stays in any case). A collection that
    /// the edit leaves empty goes with its key. The account is kept; report changes with
    /// [`View::changed`].
    pub fn update<T: Collection, R>(
        &mut self,
        key: &[u8],
        create: bool,
        edit: impl FnOnce(&mut T, &Limits) -> R,
    ) -> Result<Option<R>, WrongType> {
        self.emptied = false;
        let Some(entry) = self.find_mut(key) else {
            if !create {
                return Ok(None);
            }
            let mut fresh = T::empty(&self.local.limits);
            let result = edit(&mut fresh, &self.local.limits);
            if !fresh.is_empty() || T::KIND == Kind::Stream {
                self.put(key, Stored::Object(fresh.into()), Expiry::Clear);
            }
            return Ok(Some(result));
        };
        self.access(entry);
        // SAFETY: the stripe is held, and `&mut self` says that nobody looks.
        let value = unsafe { entry.object_mut() }.ok_or(WrongType)?;
        let found = T::of_mut(value).ok_or(WrongType)?;
        let before = found.heap_bytes();
        let result = edit(found, &self.local.limits);
        let (after, empty) = (found.heap_bytes(), found.is_empty() && T::KIND != Kind::Stream);
        self.local.account(self.space, after as i64 - before as i64);
        if empty {
            self.delete(key);
            self.emptied = true;
        }
        Ok(Some(result))
    }

    /// Makes the key this collection, whatever it was. An empty one is not stored (but a stream is):
    /// the key goes. Says whether the key exists now.
    pub fn set_collection(&mut self, key: &[u8], value: impl Into<Value>, expiry: Expiry) -> bool {
        let value = value.into();
        if value.is_empty() && value.kind() != Kind::Stream {
            self.delete(key);
            return false;
        }
        self.put(key, Stored::Object(value), expiry);
        true
    }

    // ---- keys ---------------------------------------------------------------------------------

    /// Removes a key; says whether it was there. Reports nothing: see [`View::changed`].
    pub fn delete(&mut self, key: &[u8]) -> bool {
        match self.find_mut(key) {
            Some(entry) => {
                self.unlink(self.db, self.hash(key), entry);
                true
            }
            None => false,
        }
    }

    /// Takes a key's value and expiry out of the database (RENAME, MOVE).
    pub fn take(&mut self, key: &[u8]) -> Option<(Owned, Option<i64>)> {
        let entry = self.find_mut(key)?;
        // SAFETY: the stripe is held; after `detach` the entry is ours alone.
        unsafe {
            let expire_at_ms = entry.expire_at_ms();
            self.detach(self.db, self.hash(key), entry);
            Some((entry.into_owned(&mut self.local.heap), expire_at_ms))
        }
    }

    /// Stores a value that [`View::take`] or [`View::copy_of`] gave, whatever the key was.
    pub fn put_owned(&mut self, key: &[u8], value: Owned, expire_at_ms: Option<i64>) {
        let expiry = expire_at_ms.map_or(Expiry::Clear, Expiry::AtMs);
        value.with_stored(|stored| self.put(key, stored, expiry));
    }

    /// A deep copy of a key's value, and its expiry (COPY).
    pub fn copy_of(&self, key: &[u8]) -> Option<(Owned, Option<i64>)> {
        let entry = self.find(key)?;
        // SAFETY: the stripe is held.
        let (value, expire_at_ms) = unsafe { (entry.value(), entry.expire_at_ms()) };
        let owned = match value {
            ValueRef::String(StringRef::Inline { bytes, raw }) => {
                Owned::Bytes { bytes: bytes.to_vec(), raw }
            }
            ValueRef::String(StringRef::Blob(blob)) => Owned::Blob(blob.clone()),
            ValueRef::Object(object) => Owned::Object(object.clone()),
        };
        Some((owned, expire_at_ms))
    }

    /// Sets or clears a key's expiry; says whether the key exists. A time in the past is stored as it
    /// is: the handler decides to delete instead.
    pub fn set_expire_at_ms(&mut self, key: &[u8], at: Option<i64>) -> bool {
        let Some(entry) = self.find_mut(key) else { return false };
        let hash = self.hash(key);
        let db = self.space.db_or_create(self.db);
        // SAFETY: the stripe is held, and `&mut self` says that nobody looks.
        unsafe {
            match (entry.expire_at_ms(), at) {
                (None, None) => {}
                (Some(_), Some(at)) => {
                    entry.set_expire_at_ms(at);
                    note_expiry(db, hash, at);
                }
                (before, _) => {
                    if before.is_some() {
                        db.stripes[usize::from(stripe_of(hash))].ttl.remove(hash, entry.pointer());
                    }
                    let bytes = entry.heap_bytes();
                    let fresh = entry.rebuild(&mut self.local.heap, at);
                    db.slots[slot_of(hash)].replace(hash, entry.pointer(), fresh.pointer());
                    let grown = fresh.heap_bytes() as i64 - bytes as i64;
                    self.local.account(self.space, grown);
                    if let Some(at) = at {
                        add_expiry(db, hash, fresh, at);
                    }
                }
            }
        }
        true
    }

    /// Marks an access without reading (TOUCH); says whether the key exists.
    pub fn touch(&self, key: &[u8]) -> bool {
        self.value(key).is_some()
    }

    // ---- reports ------------------------------------------------------------------------------

    /// Reports one change of a key: see the module's text.
    #[inline]
    pub fn changed(&mut self, class: Classes, event: &'static str, key: &[u8]) {
        self.changes += 1;
        self.touch_watchers(key);
        self.notify(class, event, key);
        if self.emptied {
            self.emptied = false;
            self.notify(Classes::GENERIC, "del", key);
        }
    }

    /// Takes the note that the last [`View::update`] emptied its key, for commands that update a second key before
    /// they report the first; [`View::set_emptied`] puts it back.
    pub fn take_emptied(&mut self) -> bool {
        std::mem::take(&mut self.emptied)
    }

    /// See [`View::take_emptied`].
    pub fn set_emptied(&mut self, emptied: bool) {
        self.emptied = emptied;
    }

    /// Adds to the number of changes without an event (a command that counts elements).
    pub fn count_changes(&mut self, more: u64) {
        self.changes += more;
    }

    /// Raises the flags of a key's watchers, where a change has no event.
    #[inline]
    pub fn touch_watchers(&self, key: &[u8]) {
        if self.space.watched.load(Ordering::Relaxed) != 0 {
            self.space.touch(stripe_of(self.hash(key)), self.db, key);
        }
    }

    /// Queues a keyspace event, if anybody wants its class.
    #[inline]
    pub fn notify(&mut self, class: Classes, event: &'static str, key: &[u8]) {
        if self.local.notify.intersects(class) {
            self.local.events.push(Event { class, name: event, db: self.db, key: key.into() });
        }
    }

    // ---- watching -----------------------------------------------------------------------------

    /// Begins to watch a key (WATCH).
    pub fn watch(&self, key: &[u8], flag: &Arc<WatchFlag>) {
        let stripe = self.stripe(key);
        self.space.watch(stripe, self.db, key, flag);
    }

    /// Ends it.
    pub fn unwatch(&self, key: &[u8], flag: &Arc<WatchFlag>) {
        let stripe = self.stripe(key);
        self.space.unwatch(stripe, self.db, key, flag);
    }

    // ---- whole databases ----------------------------------------------------------------------

    /// Keys of the selected database.
    pub fn key_count(&self) -> u64 {
        self.space.key_count(self.db)
    }

    /// One step of SCAN: visits the keys of at least `count` (if there are as many) under this cursor and
    /// returns the next one, 0 at the end. A cursor is a prefix of the hash, so it stays good while the
    /// tables grow and shrink: every key present from the first call to the last is visited.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: u64,
        mut visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> Result<u64, Busy> {
        const H16_BITS: u32 = 16;
        let Some(db) = self.space.db(self.db) else { return Ok(0) };
        let mut slot = (cursor >> H16_BITS) as usize;
        let mut from = (cursor & 0xffff) as u32;
        let mut visited = 0;
        let began = (slot, from);
        while slot < SLOTS && visited < count {
            let stripe = stripe_of_slot(slot);
            if db.stripes[usize::from(stripe)].keys.load(Ordering::Relaxed) == 0 {
                (slot, from) = ((usize::from(stripe) + 1) * SLOTS_PER_STRIPE, 0);
                continue;
            }
            let own = !self.held.covers(stripe);
            if own && !self.space.locks.try_one(stripe) {
                if (slot, from) == began {
                    return Err(Busy(stripe));
                }
                break;
            }
            let end = (usize::from(stripe) + 1) * SLOTS_PER_STRIPE;
            while slot < end && visited < count {
                let next = db.slots[slot].scan(from, |pointer| {
                    let entry = Entry::from_table(pointer);
                    // SAFETY: the stripe is held.
                    unsafe {
                        if !is_expired(entry, self.now_ms) {
                            visit(entry.key(), entry.value());
                        }
                    }
                    visited += 1;
                });
                match next {
                    Some(next) => from = next,
                    None => (slot, from) = (slot + 1, 0),
                }
            }
            if own {
                self.space.locks.unlock_one(stripe);
            }
        }
        let end = slot >= SLOTS;
        Ok(if end { 0 } else { (slot as u64) << H16_BITS | u64::from(from) })
    }

    /// Visits every key; the unit holds all stripes (KEYS).
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], ValueRef<'_>)) {
        assert!(matches!(self.held, Held::All), "every stripe is held");
        let Some(db) = self.space.db(self.db) else { return };
        for index in &db.slots {
            index.for_each(|pointer| {
                let entry = Entry::from_table(pointer);
                // SAFETY: all stripes are held.
                unsafe {
                    if !is_expired(entry, self.now_ms) {
                        visit(entry.key(), entry.value());
                    }
                }
            });
        }
    }

    /// A key drawn by lot, slots weighted by their size (RANDOMKEY).
    pub fn random_key(&mut self) -> Result<Option<Box<[u8]>>, Busy> {
        const TRIES_MAX: u32 = 100;
        let Some(db) = self.space.db(self.db) else { return Ok(None) };
        for _ in 0..TRIES_MAX {
            let Some(stripe) = db.stripe_by_size(&mut self.local.rng) else { return Ok(None) };
            let own = !self.held.covers(stripe);
            if own && !self.space.locks.try_one(stripe) {
                return Err(Busy(stripe));
            }
            let entry = db.random_entry(stripe, &mut self.local.rng);
            // SAFETY: the stripe is held.
            let key = entry.and_then(|entry| unsafe {
                (!is_expired(entry, self.now_ms)).then(|| Box::from(entry.key()))
            });
            if own {
                self.space.locks.unlock_one(stripe);
            }
            if key.is_some() {
                return Ok(key);
            }
        }
        Ok(None)
    }

    /// Empties a database (FLUSHDB); the unit holds all stripes. What was in it is freed behind the
    /// command. Returns the number of keys.
    pub fn flush(&mut self, db: u32) -> u64 {
        assert!(matches!(self.held, Held::All), "every stripe is held");
        self.space.touch_all(db, |key| self.in_table(db, key));
        let Some(flushed) = self.space.take_db(db) else { return 0 };
        let keys = flushed.len();
        self.local.flushed.push(flushed);
        keys
    }

    /// Swaps two databases (SWAPDB); the unit holds all stripes.
    pub fn swap(&mut self, a: u32, b: u32) {
        assert!(matches!(self.held, Held::All), "every stripe is held");
        for db in [a, b] {
            self.space.touch_all(db, |key| self.in_table(a, key) || self.in_table(b, key));
        }
        self.space.swap_dbs(a, b);
    }

    /// Ends the unit: removes the expired keys that its readers met. To be called before the stripes are
    /// let go of.
    #[inline]
    pub fn finish(&mut self) {
        if !self.local.met_expired.get_mut().is_empty() {
            self.remove_met_expired();
        }
    }

    // ---- inside -------------------------------------------------------------------------------

    #[cold]
    fn remove_met_expired(&mut self) {
        for (db, key) in std::mem::take(self.local.met_expired.get_mut()) {
            self.in_db(db, |view| view.find_mut(&key));
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        let (address, len, hash) = self.hint;
        if address == key.as_ptr() as usize && len == key.len() {
            hash
        } else {
            redline_table::hash(key)
        }
    }

    #[inline]
    fn stripe(&self, key: &[u8]) -> u16 {
        let stripe = stripe_of(self.hash(key));
        assert!(self.held.covers(stripe), "a unit touched a key whose stripe it does not hold");
        stripe
    }

    fn in_table(&self, db: u32, key: &[u8]) -> bool {
        let hash = redline_table::hash(key);
        self.space.db(db).is_some_and(|db| lookup(&db.slots[slot_of(hash)], hash, key).is_some())
    }

    /// The entry of a key that has not expired.
    #[inline]
    fn find(&self, key: &[u8]) -> Option<Entry> {
        let hash = self.hash(key);
        let stripe = stripe_of(hash);
        assert!(self.held.covers(stripe), "a unit touched a key whose stripe it does not hold");
        let db = self.space.db(self.db)?;
        let entry = lookup(&db.slots[slot_of(hash)], hash, key)?;
        // SAFETY: the stripe is held.
        if unsafe { is_expired(entry, self.now_ms) } {
            self.local.met_expired.borrow_mut().push((self.db, key.into()));
            return None;
        }
        Some(entry)
    }

    /// The same, and an expired one is removed at once.
    #[inline]
    fn find_mut(&mut self, key: &[u8]) -> Option<Entry> {
        let hash = self.hash(key);
        let stripe = stripe_of(hash);
        assert!(self.held.covers(stripe), "a unit touched a key whose stripe it does not hold");
        let db = self.space.db(self.db)?;
        let entry = lookup(&db.slots[slot_of(hash)], hash, key)?;
        // SAFETY: the stripe is held.
        if unsafe { is_expired(entry, self.now_ms) } {
            self.expire(self.db, hash, entry);
            return None;
        }
        Some(entry)
    }

    /// Removes an expired entry and tells who is concerned.
    #[cold]
    pub(crate) fn expire(&mut self, db: u32, hash: u64, entry: Entry) {
        // SAFETY: the stripe is held; the key is copied before the entry goes.
        let key: Box<[u8]> = unsafe { entry.key() }.into();
        self.unlink(db, hash, entry);
        self.local.expired.set(self.local.expired.get() + 1);
        self.in_db(db, |view| {
            view.touch_watchers(&key);
            view.notify(Classes::EXPIRED, "expired", &key);
        });
    }

    #[inline]
    fn access(&self, entry: Entry) {
        // SAFETY: the stripe is held; the header is only ever accessed by value.
        unsafe {
            let before = entry.clock();
            let after = self.local.clock.touched(before, fastrand::f64);
            if after != before {
                entry.set_clock(after);
            }
        }
    }

    /// Stores a value under a key, whatever it was.
    fn put(&mut self, key: &[u8], value: Stored<'_>, expiry: Expiry) {
        let old = self.find_mut(key);
        self.replace(key, old, value, expiry);
    }

    /// Stores a value in place of the key's entry, which the caller has just looked up.
    fn replace(&mut self, key: &[u8], old: Option<Entry>, value: Stored<'_>, expiry: Expiry) {
        let hash = self.hash(key);
        let db = self.space.db_or_create(self.db);
        let index = &db.slots[slot_of(hash)];
        // SAFETY: the stripe is held, and `&mut self` says that nobody looks; the old entry leaves the
        // table before it is destroyed.
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
            let fresh = Entry::create(&mut self.local.heap, key, value, expire_at_ms, clock);
            let mut bytes = (fresh.heap_bytes() + fresh.value_bytes()) as i64;
            match old {
                Some(old) => {
                    index.replace(hash, old.pointer(), fresh.pointer());
                    if old.expire_at_ms().is_some() {
                        db.stripes[usize::from(stripe_of(hash))].ttl.remove(hash, old.pointer());
                    }
                    bytes -= (old.heap_bytes() + old.value_bytes()) as i64;
                    self.destroy(old);
                }
                None => {
                    index.insert(hash, fresh.pointer());
                    let keys = &db.stripes[usize::from(stripe_of(hash))].keys;
                    keys.store(keys.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    self.notify(Classes::NEW, "new", key);
                }
            }
            if let Some(at) = expire_at_ms {
                add_expiry(db, hash, fresh, at);
            }
            self.local.account(self.space, bytes);
        }
    }

    /// Removes an entry from its tables, account and TTL index, and destroys it.
    pub(crate) fn unlink(&mut self, db: u32, hash: u64, entry: Entry) {
        self.detach(db, hash, entry);
        // SAFETY: it is out of the tables.
        unsafe { self.destroy(entry) };
    }

    fn detach(&mut self, db: u32, hash: u64, entry: Entry) {
        let db = self.space.db_or_create(db);
        let stripe = &db.stripes[usize::from(stripe_of(hash))];
        db.slots[slot_of(hash)].remove(hash, entry.pointer());
        stripe.keys.store(stripe.keys.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        // SAFETY: the stripe is held.
        unsafe {
            if entry.expire_at_ms().is_some() {
                stripe.ttl.remove(hash, entry.pointer());
            }
            let bytes = entry.heap_bytes() + entry.value_bytes();
            self.local.account(self.space, -(bytes as i64));
        }
    }

    /// # Safety
    /// The entry is out of the tables, and this is its last use.
    unsafe fn destroy(&mut self, entry: Entry) {
        // SAFETY: handed on from the caller.
        if let Some(garbage) = unsafe { entry.destroy(&mut self.local.heap) }
            && garbage.is_heavy()
        {
            self.local.garbage.push(garbage);
        }
    }
}

impl Db {
    /// A stripe drawn by lot, weighted by its keys; `None` when there are none.
    pub(crate) fn stripe_by_size(&self, rng: &mut fastrand::Rng) -> Option<u16> {
        let keys = |stripe: &crate::space::DbStripe| u64::from(stripe.keys.load(Ordering::Relaxed));
        let total: u64 = self.stripes.iter().map(keys).sum();
        if total == 0 {
            return None;
        }
        let mut left = rng.u64(..total);
        // Counts may move meanwhile: the last non-empty stripe is as good an answer then.
        let mut last = None;
        for (stripe, state) in self.stripes.iter().enumerate() {
            let here = keys(state);
            if here > 0 {
                last = Some(stripe as u16);
            }
            if left < here {
                return last;
            }
            left -= here;
        }
        last
    }

    /// An entry of a stripe drawn by lot; the caller holds the stripe.
    pub(crate) fn random_entry(&self, stripe: u16, rng: &mut fastrand::Rng) -> Option<Entry> {
        let first = usize::from(stripe) * SLOTS_PER_STRIPE;
        let slots = &self.slots[first..first + SLOTS_PER_STRIPE];
        let total: usize = slots.iter().map(Index::len).sum();
        if total == 0 {
            return None;
        }
        let mut left = rng.usize(..total);
        for index in slots {
            if left < index.len() {
                return index.random(rng.u64(..)).map(Entry::from_table);
            }
            left -= index.len();
        }
        None
    }
}

#[inline]
fn lookup(index: &Index, hash: u64, key: &[u8]) -> Option<Entry> {
    // SAFETY: the caller holds the stripe, so the pointers of the index are live entries.
    index
        .find(hash, |pointer| unsafe { Entry::from_table(pointer).key() == key })
        .map(Entry::from_table)
}

/// # Safety
/// The stripe of the entry is held.
#[inline]
pub(crate) unsafe fn is_expired(entry: Entry, now_ms: i64) -> bool {
    // SAFETY: handed on from the caller.
    unsafe { entry.expire_at_ms() }.is_some_and(|at| now_ms > at)
}

/// Enters an entry into the TTL index of its stripe; the caller holds the stripe.
fn add_expiry(db: &Db, hash: u64, entry: Entry, at: i64) {
    db.stripes[usize::from(stripe_of(hash))].ttl.insert(hash, entry.pointer());
    note_expiry(db, hash, at);
}

fn note_expiry(db: &Db, hash: u64, at: i64) {
    let next = &db.stripes[usize::from(stripe_of(hash))].next_expire_ms;
    next.store(next.load(Ordering::Relaxed).min(at), Ordering::Relaxed);
}
