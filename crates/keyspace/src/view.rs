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

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
};

use redline_table::Index;
use redline_types::{DataType, Hash, Kind, Limits, List, Set, Stream, Value, Zset};

use crate::{
    entry::{
        Blob, Entry, INLINE_BYTES_MAX, Owned, Stored, StringRef, ValueRef, blob_bytes, blob_to_edit,
    },
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

/// A key of a request and its hash. It is told from other keys by its place in memory, so that place must keep the key as
/// long as the unit runs.
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    address: usize,
    len: usize,
    hash: u64,
}

impl Hint {
    const NONE: Hint = Hint {
        address: 0,
        len: 0,
        hash: 0,
    };

    /// Of a key whose hash is known.
    #[inline]
    pub fn new(key: &[u8], hash: u64) -> Hint {
        Hint {
            address: key.as_ptr() as usize,
            len: key.len(),
            hash,
        }
    }

    /// Of a key that is hashed now.
    #[inline]
    pub fn of(key: &[u8]) -> Hint {
        Hint::new(key, redline_table::hash(key))
    }

    /// The key's hash.
    #[inline]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    fn is(&self, key: &[u8]) -> bool {
        self.address == key.as_ptr() as usize && self.len == key.len()
    }
}

/// So many keys are prefetched together, one such group before they are used.
const HINTS_AHEAD: usize = 16;

/// One unit's access to the keyspace. See the module's text.
pub struct View<'a> {
    space: &'a Keyspace,
    held: Held<'a>,
    /// The worker's share: limits, randomness, events.
    pub local: &'a mut Local,
    db: u32,
    now_ms: i64,
    /// The key that was looked for last, if it is one of the hinted.
    hint: Cell<Hint>,
    /// The keys that the unit will look for, mostly in this order.
    hints: &'a [Hint],
    next_hint: Cell<usize>,
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
        View {
            space,
            held,
            local,
            db,
            now_ms,
            hint: Cell::new(Hint::NONE),
            hints: &[],
            next_hint: Cell::new(0),
            changes: 0,
            emptied: false,
        }
    }

    /// Tells the hash of the key that the unit will ask for: saves computing it again.
    #[inline]
    pub fn hint(&mut self, key: &[u8], hash: u64) {
        self.hint.set(Hint::new(key, hash));
    }

    /// The same for many keys, in the order in which the unit will ask for them. Their entries are asked for
    /// a few keys ahead.
    pub fn hints(&mut self, hints: &'a [Hint]) {
        self.hints = hints;
        self.prefetch(0);
        self.prefetch(HINTS_AHEAD);
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
        let Some(entry) = self.find(key) else {
            self.missed(key);
            return None;
        };
        self.local.hits.set(self.local.hits.get() + 1);
        self.access(entry);
        // SAFETY: the stripe is held, and writers need `&mut self`.
        Some(unsafe { entry.value() })
    }

    /// The value of a key. Counts as a hit or a miss, but not as an access (EXISTS, TTL, TYPE).
    pub fn probe(&self, key: &[u8]) -> Option<ValueRef<'_>> {
        let found = self.peek(key);
        match found {
            Some(_) => self.local.hits.set(self.local.hits.get() + 1),
            None => self.missed(key),
        }
        found
    }

    /// The value of a key, without any trace of the look (OBJECT, writers' checks).
    #[inline]
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

    /// A collection, without any trace of the look (writers' checks).
    pub fn collection_quiet<T: Collection>(&self, key: &[u8]) -> Result<Option<&T>, WrongType> {
        match self.peek(key) {
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

    /// How the value is stored, under Redis's names (OBJECT ENCODING). Leaves no trace.
    pub fn encoding(&self, key: &[u8]) -> Option<&'static str> {
        let entry = self.find(key)?;
        // SAFETY: the stripe is held.
        let (value, expires) = unsafe { (entry.value(), entry.expire_at_ms().is_some()) };
        Some(match value {
            ValueRef::String(string) => string.encoding(key.len(), expires),
            ValueRef::Object(object) => object.encoding(),
        })
    }

    /// Seconds since the last access (OBJECT IDLETIME). Leaves no trace.
    pub fn idle_s(&self, key: &[u8]) -> Option<u32> {
        // SAFETY: the stripe is held.
        self.find(key)
            .map(|entry| self.local.clock.idle_s(unsafe { entry.clock() }))
    }

    /// The access counter (OBJECT FREQ); meaningful under an LFU policy. Leaves no trace.
    pub fn frequency(&self, key: &[u8]) -> Option<u32> {
        // SAFETY: the stripe is held.
        self.find(key)
            .map(|entry| self.local.clock.frequency(unsafe { entry.clock() }))
    }

    /// Bytes that the key takes, its share of the table not included (MEMORY USAGE). Leaves no trace.
    pub fn memory_bytes(&self, key: &[u8]) -> Option<usize> {
        // SAFETY: the stripe is held.
        self.find(key)
            .map(|entry| unsafe { entry.heap_bytes() + entry.value_bytes() })
    }

    // ---- strings ------------------------------------------------------------------------------

    /// Makes the key a string of this value, whatever it was.
    #[inline]
    pub fn set_string(&mut self, key: &[u8], value: &[u8], expiry: Expiry) {
        let (hash, old) = self.find_mut(key);
        if self.local.notify.intersects(Classes::REPLACED) {
            self.announce_replaced(key, old, "string");
        }
        self.store_string(key, hash, old, value, false, expiry);
    }

    /// Makes the key a large string that is already reference-counted.
    pub fn set_blob(&mut self, key: &[u8], value: Blob, expiry: Expiry) {
        if value.len() <= INLINE_BYTES_MAX {
            return self.set_string(key, &value, expiry);
        }
        let (hash, old) = self.find_mut(key);
        self.announce_replaced(key, old, "string");
        self.replace(key, hash, old, Stored::Blob(value), expiry);
    }

    /// Replaces a string by what `map` makes of it, with one lookup; its expiry stays. `map` gets the
    /// value, or `None` without the key, and gives the new one and a result, or refuses. For values that
    /// are made anew (INCR); see [`View::edit_string`] for those that are changed.
    #[inline]
    pub fn map_string<B: AsRef<[u8]>, R, E: From<WrongType>>(
        &mut self,
        key: &[u8],
        map: impl FnOnce(Option<&[u8]>) -> Result<(B, R), E>,
    ) -> Result<R, E> {
        let (hash, old) = self.find_mut(key);
        // SAFETY: the stripe is held; the reference ends with the call of `map`.
        let (value, result) = match old.map(|entry| unsafe { entry.value() }) {
            None => map(None)?,
            Some(ValueRef::String(string)) => map(Some(string.as_bytes()))?,
            Some(ValueRef::Object(_)) => return Err(WrongType.into()),
        };
        self.store_string(key, hash, old, value.as_ref(), false, Expiry::Keep);
        Ok(result)
    }

    /// Edits a string, creating an empty one first if there is none; its expiry stays. The edit sees the
    /// value as a buffer with room for `more` bytes, or refuses before it has changed any. OBJECT
    /// ENCODING calls such a string `raw` from then on. A large string is edited where it stands, unless
    /// a reply still refers to it.
    pub fn edit_string<R, E: From<WrongType>>(
        &mut self,
        key: &[u8],
        more: usize,
        edit: impl FnOnce(&mut Vec<u8>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (hash, old) = self.find_mut(key);
        self.local.scratch.clear();
        if let Some(entry) = old {
            // SAFETY: the stripe is held, and `&mut self` says that nobody looks; the references end here.
            unsafe {
                if let Some(blob) = entry.blob_mut() {
                    let before = blob_bytes(blob);
                    let result = edit(blob_to_edit(blob, more));
                    let grown = blob_bytes(blob) as i64 - before as i64;
                    self.access(entry);
                    self.local.account(self.space, grown);
                    return result;
                }
                let ValueRef::String(string) = entry.value() else {
                    return Err(WrongType.into());
                };
                self.local.scratch.extend_from_slice(string.as_bytes());
            }
        }
        let mut value = std::mem::take(&mut self.local.scratch);
        let result = edit(&mut value);
        if result.is_ok() {
            if value.len() > INLINE_BYTES_MAX {
                let value = Stored::Blob(Arc::new(std::mem::take(&mut value)));
                self.replace(key, hash, old, value, Expiry::Keep);
            } else {
                self.store_string(key, hash, old, &value, true, Expiry::Keep);
            }
        }
        self.local.scratch = value;
        result
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
        let (hash, Some(entry)) = self.find_mut(key) else {
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
        let (after, empty) = (
            found.heap_bytes(),
            found.is_empty() && T::KIND != Kind::Stream,
        );
        self.local.account(self.space, after as i64 - before as i64);
        if empty {
            self.unlink(self.db, hash, entry);
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
        let (hash, old) = self.find_mut(key);
        self.announce_replaced(key, old, value.kind().name());
        self.replace(key, hash, old, Stored::Object(value), expiry);
        true
    }

    // ---- keys ---------------------------------------------------------------------------------

    /// Removes a key; says whether it was there. Reports nothing: see [`View::changed`].
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let (hash, found) = self.find_mut(key);
        if let Some(entry) = found {
            self.unlink(self.db, hash, entry);
        }
        found.is_some()
    }

    /// Takes a key's value and expiry out of the database (RENAME, MOVE).
    pub fn take(&mut self, key: &[u8]) -> Option<(Owned, Option<i64>)> {
        let (hash, found) = self.find_mut(key);
        let entry = found?;
        // SAFETY: the stripe is held; after `detach` the entry is ours alone.
        unsafe {
            let expire_at_ms = entry.expire_at_ms();
            self.detach(self.db, hash, entry);
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
            ValueRef::String(StringRef::Inline { bytes, raw }) => Owned::Bytes {
                bytes: bytes.to_vec(),
                raw,
            },
            ValueRef::String(StringRef::Blob(blob)) => Owned::Blob(blob.clone()),
            ValueRef::Object(object) => Owned::Object(object.clone()),
        };
        Some((owned, expire_at_ms))
    }

    /// Sets or clears a key's expiry; says whether the key exists. A time in the past is stored as it
    /// is: the handler decides to delete instead.
    pub fn set_expire_at_ms(&mut self, key: &[u8], at: Option<i64>) -> bool {
        let (hash, Some(entry)) = self.find_mut(key) else {
            return false;
        };
        self.access(entry);
        let db = self.space.db_or_create(self.db);
        // SAFETY: the stripe is held, and `&mut self` says that nobody looks.
        unsafe {
            match (entry.expire_at_ms(), at) {
                (None, None) => {}
                (Some(_), Some(at)) => {
                    entry.set_expire_at_ms(at);
                    db.note_expiry(hash, at);
                }
                (before, _) => {
                    let bytes = entry.heap_bytes();
                    let fresh = entry.rebuild(&mut self.local.heap, at);
                    db.slots[slot_of(hash)].replace(hash, entry.pointer(), fresh.pointer());
                    let grown = fresh.heap_bytes() as i64 - bytes as i64;
                    let before = before.map(|_| entry);
                    let grown = grown + db.move_expiry(hash, before, at.map(|at| (fresh, at)));
                    self.local.account(self.space, grown);
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
    pub fn notify(&self, class: Classes, event: &'static str, key: &[u8]) {
        if self.local.notify.intersects(class) {
            self.local.events.push(Event {
                class,
                name: event,
                db: self.db,
                key: key.into(),
            });
        }
    }

    /// Queues the events of a value that another takes the place of. Setting a value does this by itself; RENAME
    /// and COPY remove the old value first and tell later.
    pub fn notify_replaced(&self, key: &[u8], old_type: &str, new_type: &str) {
        self.notify(Classes::OVERWRITTEN, "overwritten", key);
        if old_type != new_type {
            self.notify(Classes::TYPE_CHANGED, "type_changed", key);
        }
    }

    // ---- watching -----------------------------------------------------------------------------

    /// Begins to watch a key (WATCH).
    pub fn watch(&self, key: &[u8], flag: &Arc<WatchFlag>) {
        // That a key which has expired already will be removed is no change for this watcher.
        let _ = self.find(key);
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
        let Some(db) = self.space.db(self.db) else {
            return Ok(0);
        };
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
        Ok(if end {
            0
        } else {
            (slot as u64) << H16_BITS | u64::from(from)
        })
    }

    /// Visits every key; the unit holds all stripes (KEYS).
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], ValueRef<'_>)) {
        assert!(matches!(self.held, Held::All), "every stripe is held");
        let Some(db) = self.space.db(self.db) else {
            return;
        };
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
        let Some(db) = self.space.db(self.db) else {
            return Ok(None);
        };
        for _ in 0..TRIES_MAX {
            let Some(stripe) = db.stripe_by_size(&mut self.local.rng) else {
                return Ok(None);
            };
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
        let Some(flushed) = self.space.take_db(db) else {
            return 0;
        };
        let keys = flushed.len();
        self.local.flushed.push(flushed);
        keys
    }

    /// Swaps two databases (SWAPDB); the unit holds all stripes.
    pub fn swap(&mut self, a: u32, b: u32) {
        assert!(matches!(self.held, Held::All), "every stripe is held");
        for db in [a, b] {
            self.space
                .touch_all(db, |key| self.in_table(a, key) || self.in_table(b, key));
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

    /// A reader met a key that has expired. It cannot remove it, but everybody hears of it now.
    #[cold]
    fn meet_expired(&self, key: &[u8]) {
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
        self.local.expired.set(self.local.expired.get() + 1);
        self.touch_watchers(key);
        self.notify(Classes::EXPIRED, "expired", key);
    }

    /// A reader found no such key.
    #[inline]
    fn missed(&self, key: &[u8]) {
        self.local.misses.set(self.local.misses.get() + 1);
        self.notify(Classes::KEY_MISS, "keymiss", key);
    }

    fn announce_replaced(&self, key: &[u8], old: Option<Entry>, new_type: &str) {
        if let Some(entry) = old {
            // SAFETY: the stripe is held; the reference ends here.
            self.notify_replaced(key, unsafe { entry.value() }.type_name(), new_type);
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        let hint = self.hint.get();
        if hint.is(key) {
            hint.hash
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
                return hint.hash;
            }
        }
        redline_table::hash(key)
    }

    /// Asks for the entries of some of the hinted keys, from one of them on. The steps to an entry depend on each
    /// other, so each is taken for all keys before the next.
    fn prefetch(&self, from: usize) {
        let hints = self.hints.get(from..).unwrap_or(&[]);
        let hints = &hints[..hints.len().min(HINTS_AHEAD)];
        hints
            .iter()
            .for_each(|hint| self.space.prefetch_slot(self.db, hint.hash));
        hints
            .iter()
            .for_each(|hint| self.space.prefetch_directory(self.db, hint.hash));
        hints
            .iter()
            .for_each(|hint| self.space.prefetch_buckets(self.db, hint.hash));
        hints
            .iter()
            .for_each(|hint| self.space.prefetch_entries(self.db, hint.hash));
    }

    #[inline]
    fn stripe(&self, key: &[u8]) -> u16 {
        let stripe = stripe_of(self.hash(key));
        assert!(
            self.held.covers(stripe),
            "a unit touched a key whose stripe it does not hold"
        );
        stripe
    }

    fn in_table(&self, db: u32, key: &[u8]) -> bool {
        let hash = redline_table::hash(key);
        self.space
            .db(db)
            .is_some_and(|db| lookup(&db.slots[slot_of(hash)], hash, key).is_some())
    }

    /// The hash of a key, and its entry, which may have expired.
    #[inline]
    fn look(&self, key: &[u8]) -> (u64, Option<Entry>) {
        let hash = self.hash(key);
        let stripe = stripe_of(hash);
        assert!(
            self.held.covers(stripe),
            "a unit touched a key whose stripe it does not hold"
        );
        let db = self.space.db(self.db);
        (
            hash,
            db.and_then(|db| lookup(&db.slots[slot_of(hash)], hash, key)),
        )
    }

    /// The entry of a key that has not expired.
    #[inline]
    fn find(&self, key: &[u8]) -> Option<Entry> {
        let entry = self.look(key).1?;
        // SAFETY: the stripe is held.
        if unsafe { is_expired(entry, self.now_ms) } {
            self.meet_expired(key);
            return None;
        }
        Some(entry)
    }

    /// The same with the hash, for writers: an expired entry is removed at once.
    #[inline]
    fn find_mut(&mut self, key: &[u8]) -> (u64, Option<Entry>) {
        let (hash, entry) = self.look(key);
        // SAFETY: the stripe is held.
        if let Some(entry) = entry.filter(|entry| unsafe { is_expired(*entry, self.now_ms) }) {
            self.expire(self.db, hash, entry);
            return (hash, None);
        }
        (hash, entry)
    }

    /// Removes an expired entry and tells who is concerned, unless a reader has done so.
    #[cold]
    pub(crate) fn expire(&mut self, db: u32, hash: u64, entry: Entry) {
        // SAFETY: the stripe is held; the key is copied before the entry goes.
        let id = (db, Box::<[u8]>::from(unsafe { entry.key() }));
        self.unlink(db, hash, entry);
        if !self.local.met_expired.get_mut().remove(&id) {
            self.in_db(db, |view| view.report_expired(&id.1));
        }
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
        let (hash, old) = self.find_mut(key);
        self.replace(key, hash, old, value, expiry);
    }

    /// Stores a string in place of the key's entry, which the caller has just looked up.
    #[inline]
    fn store_string(
        &mut self,
        key: &[u8],
        hash: u64,
        old: Option<Entry>,
        value: &[u8],
        raw: bool,
        expiry: Expiry,
    ) {
        if let Some(entry) = old
            // SAFETY: the stripe is held, and `&mut self` says that nobody looks.
            && unsafe { entry.overwrite(value, raw, expiry) }
        {
            // The size class is the same: nothing to account for.
            self.access(entry);
            if let Expiry::AtMs(at) = expiry {
                self.space.db_or_create(self.db).note_expiry(hash, at);
            }
            return;
        }
        self.replace(key, hash, old, Stored::Bytes { bytes: value, raw }, expiry);
    }

    /// Stores a value in place of the key's entry, which the caller has just looked up.
    fn replace(
        &mut self,
        key: &[u8],
        hash: u64,
        old: Option<Entry>,
        value: Stored<'_>,
        expiry: Expiry,
    ) {
        let db = self.space.db_or_create(self.db);
        let index = &db.slots[slot_of(hash)];
        // SAFETY: the stripe is held, and `&mut self` says that nobody looks; the old entry leaves the
        // tables before it is destroyed.
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
                    bytes -= (old.heap_bytes() + old.value_bytes()) as i64;
                }
                None => {
                    bytes += grown_by(index, || index.insert(hash, fresh.pointer()));
                    let keys = &db.stripes[usize::from(stripe_of(hash))].keys;
                    keys.store(keys.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    self.notify(Classes::NEW, "new", key);
                }
            }
            let expired = old.filter(|old| old.expire_at_ms().is_some());
            if expired.is_some() || expire_at_ms.is_some() {
                bytes += db.move_expiry(hash, expired, expire_at_ms.map(|at| (fresh, at)));
            }
            self.local.account(self.space, bytes);
            if let Some(old) = old {
                self.destroy(old);
            }
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
        let index = &db.slots[slot_of(hash)];
        let mut grown = grown_by(index, || {
            index.remove(hash, entry.pointer());
        });
        let keys = &db.stripes[usize::from(stripe_of(hash))].keys;
        keys.store(keys.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        // SAFETY: the stripe is held.
        unsafe {
            if entry.expire_at_ms().is_some() {
                grown += db.move_expiry(hash, Some(entry), None);
            }
            grown -= (entry.heap_bytes() + entry.value_bytes()) as i64;
        }
        self.local.account(self.space, grown);
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
    /// Keeps the TTL index of a key's stripe right when its entry with an expiry goes, comes or is replaced;
    /// says by how many bytes the index has grown. The caller holds the stripe.
    fn move_expiry(&self, hash: u64, from: Option<Entry>, to: Option<(Entry, i64)>) -> i64 {
        let ttl = &self.stripes[usize::from(stripe_of(hash))].ttl;
        let grown = grown_by(ttl, || match (from, to) {
            (Some(from), Some((to, _))) => {
                ttl.replace(hash, from.pointer(), to.pointer());
            }
            (Some(from), None) => {
                ttl.remove(hash, from.pointer());
            }
            (None, Some((to, _))) => ttl.insert(hash, to.pointer()),
            (None, None) => {}
        });
        if let Some((_, at)) = to {
            self.note_expiry(hash, at);
        }
        grown
    }

    /// A key of the stripe expires at that time.
    #[inline]
    fn note_expiry(&self, hash: u64, at: i64) {
        let next = &self.stripes[usize::from(stripe_of(hash))].next_expire_ms;
        if at < next.load(Ordering::Relaxed) {
            next.store(at, Ordering::Relaxed);
        }
    }

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
        .find(hash, |pointer| unsafe {
            Entry::from_table(pointer).key() == key
        })
        .map(Entry::from_table)
}

/// # Safety
/// The stripe of the entry is held.
#[inline]
pub(crate) unsafe fn is_expired(entry: Entry, now_ms: i64) -> bool {
    // SAFETY: handed on from the caller.
    unsafe { entry.expire_at_ms() }.is_some_and(|at| now_ms > at)
}

/// By how many bytes a change makes an index larger.
#[inline]
fn grown_by(index: &Index, change: impl FnOnce()) -> i64 {
    let before = index.table_bytes();
    change();
    index.table_bytes() as i64 - before as i64
}
