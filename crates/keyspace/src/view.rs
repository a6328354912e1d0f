//! Operations of a unit on keys: look-ups, strings, collections, expiry; whole databases by [`View::database`].
//!
//! A [`View`] is made by the [`Unit`] that holds the stripes. Must not know:
//! commands, sessions, how the stripes came to be held.
//!
//! # How handlers use it
//!
//! - Readers take `&self`, so several values may be looked at side by side. A key that has expired is not there; it is
//!   removed when the unit ends. A small collection is copied out of its entry for them and stays open until the unit
//!   ends: a reader of its type or length alone need not have it opened, and a reader of very many keys one after the
//!   other uses [`Found::with`]. Each look-up names its [`Trace`].
//! - Writers take `&mut self`. [`View::write`] and [`View::write_or_new`] hand out a collection, keep the memory
//!   account, and remove the key when nothing is left in it.
//! - A handler that has changed a key calls [`View::changed`] once per change, with the event's name: it raises watch
//!   flags, counts the change, queues the keyspace event, and after an update that emptied the key, the `del` event.
//!   [`View::announced`] does the same and counts nothing. A handler that changes nothing calls nothing.

mod database;
mod door;
mod elements;
mod found;
mod hints;
mod store;
mod waiting;

pub use database::{Database, NoDraw};
pub(crate) use door::Change;
#[cfg(debug_assertions)]
pub(crate) use door::Witness;
pub use found::{Found, Trace};
pub use hints::Hint;

use door::Seen;
use hints::Hints;
pub(crate) use store::{entry_of, is_expired};

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
};

use redline_types::{Collection, Kind, Limits, PackedRef};

use crate::{
    ahead::Ahead,
    entry::{
        Content, Entry, INLINE_BYTES_MAX, Owned, PACKED_AGAIN_BYTES_MAX, Stored, blob_bytes,
        blob_to_edit,
    },
    journal::Words,
    lock::{Held, StripeSet},
    notify::{Classes, EXPIRED, Event},
    space::{Keyspace, Local, stripe_of},
    unit::Unit,
};

/// The key holds a value of another type: Redis's WRONGTYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// A stripe was in the way of a unit that takes its stripes as it goes (SCAN, RANDOMKEY): the unit has changed nothing
/// and may be suspended until this stripe is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy(pub u16);

/// A unit has met keys whose stripes it does not hold (SORT … BY): it has changed and answered nothing, and is to be
/// run again under these stripes as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub Box<StripeSet>);

/// The change to a key's expiry when its value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The expiry is removed: the key stays until deleted.
    Clear,
    /// It stays as it was.
    Keep,
    /// The key expires at this Unix time in milliseconds.
    AtMs(i64),
}

/// One unit's access to the keyspace. See the module's text.
pub struct View<'a> {
    space: &'a Keyspace,
    held: Held<'a>,
    /// The worker's share: limits, randomness, events.
    pub local: &'a mut Local,
    db: u32,
    now_ms: i64,
    hints: Hints<'a>,
    /// Places of the entries of the two keys that were last looked at to be changed: that was their use.
    used_ahead: Cell<[usize; 2]>,
    /// Changes so far: what Redis calls `dirty`.
    changes: u64,
    emptied: bool,
    /// The command has called [`View::propagate`].
    propagated: bool,
    /// Of the unit: it has changed something and no record has been written.
    #[cfg(debug_assertions)]
    unrecorded: &'a Cell<bool>,
}

impl<'a> View<'a> {
    /// Makes a view: see [`Unit::view`].
    #[inline(always)] // as that
    pub(crate) fn new(
        unit: &'a mut Unit<'_>,
        local: &'a mut Local,
        db: u32,
        now_ms: i64,
    ) -> View<'a> {
        let unit = &*unit;
        local.opened.close_all();
        #[cfg(debug_assertions)]
        local.witness.get_mut().begin();
        View {
            space: unit.space(),
            held: unit.held(),
            local,
            db,
            now_ms,
            hints: Hints::none(),
            used_ahead: Cell::new([0; 2]),
            changes: 0,
            emptied: false,
            propagated: false,
            #[cfg(debug_assertions)]
            unrecorded: unit.unrecorded(),
        }
    }

    /// Notes for the unit that something has changed.
    #[inline(always)] // nothing in a release build
    fn note_unrecorded(&self) {
        #[cfg(debug_assertions)]
        self.unrecorded.set(true);
    }

    /// Passes on the prefetched state of the key that the unit will look up: saves a second hash, and mostly the search.
    #[inline]
    pub fn hint(&mut self, key: &[u8], ahead: &'a Ahead) {
        self.hints.take_one(key, ahead);
    }

    /// Does the same for many keys, in the order in which the unit will ask for them. Their entries are prefetched a
    /// few keys ahead.
    pub fn hints(&mut self, hints: &'a [Hint]) {
        self.hints.take_many(hints, self.space, self.db);
    }

    /// Returns the unit's time: Unix time in milliseconds.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Returns the selected database.
    pub fn db(&self) -> u32 {
        self.db
    }

    /// Returns the keyspace.
    pub fn space(&self) -> &'a Keyspace {
        self.space
    }

    /// Works on another database for a moment (MOVE, COPY … DB).
    pub fn in_db<R>(&mut self, db: u32, run: impl FnOnce(&mut View<'a>) -> R) -> R {
        let selected = std::mem::replace(&mut self.db, db);
        let result = run(self);
        self.db = selected;
        result
    }

    /// Returns the number of changes that the unit has reported so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Makes sure that keys which are known only once the command runs may be touched. On an error the handler gives
    /// up, before it has changed, answered or counted anything, and is called again under a wider set of stripes. The
    /// keys it finds then may be others; so it asks again.
    pub fn require<K: AsRef<[u8]>>(&self, keys: impl Iterator<Item = K>) -> Result<(), Missing> {
        if matches!(self.held, Held::All) {
            return Ok(());
        }
        let mut missing: Option<Box<StripeSet>> = None;
        for key in keys {
            let stripe = stripe_of(self.hash(key.as_ref()));
            if !self.held.covers(stripe) {
                let missing = missing.get_or_insert_with(|| Box::new(StripeSet::EMPTY));
                missing.insert(stripe);
            }
        }
        missing.map_or(Ok(()), |stripes| Err(Missing(stripes)))
    }

    /// Returns the contents of an entry of this unit, unopened.
    #[inline]
    fn content(&self, entry: Entry) -> Content<'_> {
        // SAFETY: the stripe is held, and writers need `&mut self`.
        unsafe { entry.content() }
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

    /// Replaces a string by the result of `map`, with one lookup; its expiry stays. `map` gets the value, or `None`
    /// without the key, and returns the new one and a result, or an error. For values that are made anew (INCR); see
    /// [`View::edit_string`] for those that are changed.
    #[inline]
    pub fn map_string<B: AsRef<[u8]>, R, E: From<WrongType>>(
        &mut self,
        key: &[u8],
        map: impl FnOnce(Option<&[u8]>) -> Result<(B, R), E>,
    ) -> Result<R, E> {
        let (hash, old) = self.find_mut(key);
        // SAFETY: the stripe is held; the reference ends with the call of `map`.
        let (value, result) = match old.map(|entry| unsafe { entry.content() }) {
            None => map(None)?,
            Some(Content::String(string)) => map(Some(string.as_bytes()))?,
            Some(Content::Object(_) | Content::Packed(_)) => return Err(WrongType.into()),
        };
        self.store_string(key, hash, old, value.as_ref(), false, Expiry::Keep);
        Ok(result)
    }

    /// Edits a string, creating an empty one first if there is none; its expiry stays. The edit sees the value as a
    /// buffer with room for `more` bytes, or returns an error before it has changed any. OBJECT ENCODING calls such a
    /// string `raw` from then on. A large string is edited in place, unless a reply still refers to it.
    pub fn edit_string<R, E: From<WrongType>>(
        &mut self,
        key: &[u8],
        more: usize,
        edit: impl FnOnce(&mut Vec<u8>) -> Result<R, E>,
    ) -> Result<R, E> {
        let (hash, old) = self.find_mut(key);
        self.local.scratch.clear();
        if let Some(entry) = old {
            let change = self.begin_change(old);
            // SAFETY: the stripe is held, and `&mut self` excludes readers; the references end here.
            unsafe {
                if let Some(blob) = entry.blob_mut(&change) {
                    let before = (blob_bytes(blob), Seen::of(blob));
                    let result = edit(blob_to_edit(blob, more));
                    let grown = blob_bytes(blob) as i64 - before.0 as i64;
                    let differs = before.1.differs_from(blob);
                    self.access(entry);
                    self.end_edit(change, key, grown, differs);
                    return result;
                }
                let Content::String(string) = entry.content() else {
                    return Err(WrongType.into());
                };
                self.local.scratch.extend_from_slice(string.as_bytes());
            }
        }
        let mut value = std::mem::take(&mut self.local.scratch);
        let before = Seen::of(&value);
        let result = edit(&mut value);
        if result.is_ok() {
            let is_same = old.is_some() && !before.differs_from(&value);
            if value.len() > INLINE_BYTES_MAX {
                let value = Stored::Blob(Arc::new(std::mem::take(&mut value)));
                self.replace(key, hash, old, value, Expiry::Keep);
            } else {
                self.store_string(key, hash, old, &value, true, Expiry::Keep);
            }
            if is_same {
                self.unreported(key);
            }
        }
        self.local.scratch = value;
        result
    }

    /// Edits a string that keeps its length, in place; see [`View::edit_string`]. `None` without the key.
    pub fn edit_bytes<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<Option<R>, WrongType> {
        let (_, Some(entry)) = self.find_mut(key) else {
            return Ok(None);
        };
        let change = self.begin_change(Some(entry));
        // SAFETY: the stripe is held, and `&mut self` excludes readers; the references end here.
        let (result, grown, differs) = unsafe {
            if let Some(blob) = entry.blob_mut(&change) {
                let before = (blob_bytes(blob), Seen::of(blob));
                let result = edit(blob_to_edit(blob, 0));
                let grown = blob_bytes(blob) as i64 - before.0 as i64;
                (result, grown, before.1.differs_from(blob))
            } else if let Some(bytes) = entry.inline_mut(&change) {
                let before = Seen::of(bytes);
                (edit(bytes), 0, before.differs_from(bytes))
            } else {
                return Err(WrongType);
            }
        };
        self.access(entry);
        self.end_edit(change, key, grown, differs);
        Ok(Some(result))
    }

    // ---- collections --------------------------------------------------------------------------

    /// Hands a collection to `edit`; `Ok(None)` without the key. A collection that the edit leaves empty goes with its key
    /// (but a stream stays). The account is kept; report changes with [`View::changed`].
    pub fn write<T: Collection, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T, &Limits) -> R,
    ) -> Result<Option<R>, WrongType> {
        self.write_or_new_if(key, false, edit)
    }

    /// Does the same for a key that is made if it is missing: it stays if the edit puts something into it.
    pub fn write_or_new<T: Collection, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T, &Limits) -> R,
    ) -> Result<R, WrongType> {
        let result = self.write_or_new_if(key, true, edit)?;
        Ok(result.expect("there is a collection to edit"))
    }

    /// Does one or the other, as `create` says.
    pub fn write_or_new_if<T: Collection, R>(
        &mut self,
        key: &[u8],
        create: bool,
        edit: impl FnOnce(&mut T, &Limits) -> R,
    ) -> Result<Option<R>, WrongType> {
        self.emptied = false;
        let (hash, found) = self.find_mut(key);
        // A packed collection is edited in a structure of the worker's.
        let mut opened = match found {
            None if !create => return Ok(None),
            None => Some(match PackedRef::empty(T::KIND) {
                Some(empty) => self.local.opened.take(empty),
                None => T::default().into(),
            }),
            Some(entry) => {
                if !self
                    .used_ahead
                    .get()
                    .contains(&entry.pointer().addr().get())
                {
                    self.access(entry);
                }
                match self.content(entry) {
                    Content::Packed(packed) if packed.form.kind() == T::KIND => {
                        Some(self.local.opened.take(packed))
                    }
                    _ => None,
                }
            }
        };
        let is_opened = opened.is_some();
        let change = self.begin_change(found);
        let value = match (&mut opened, found) {
            (Some(value), _) => value,
            // SAFETY: the stripe is held, and `&mut self` excludes readers.
            (None, Some(entry)) => unsafe { entry.object_mut(&change) }.ok_or(WrongType)?,
            (None, None) => unreachable!("one is made for a key that is missing"),
        };
        let edited = T::of_mut(value).ok_or(WrongType)?;
        let (before, was_timed) = (edited.heap_bytes(), edited.earliest_expiry_ms().is_some());
        let len_before = edited.len();
        #[cfg(debug_assertions)]
        let freeze_id = edited.freeze_id();
        // The only call: what handlers do is compiled into it.
        let result = edit(edited, &self.local.limits);
        #[cfg(debug_assertions)]
        assert_eq!(
            edited.freeze_id(),
            freeze_id,
            "an edit replaced a frozen value"
        );
        let Some(entry) = found.filter(|_| !is_opened) else {
            if let Some(value) = opened {
                self.close_edited(&change, key, hash, found, value);
            }
            return Ok(Some(result));
        };
        let (after, earliest_ms, empty) = (
            edited.heap_bytes(),
            edited.earliest_expiry_ms(),
            edited.leaves_no_key(),
        );
        let differs = edited.len() != len_before;
        let packs = edited
            .packed()
            .is_some_and(|packed| packed.bytes.len() <= PACKED_AGAIN_BYTES_MAX);
        let mut grown = after as i64 - before as i64;
        if was_timed || earliest_ms.is_some() {
            grown += self.note_timed(hash, entry, was_timed, earliest_ms);
        }
        // Whether an element has another value only the handler knows.
        self.end_edit(change, key, grown, differs);
        if empty {
            self.unlink(self.db, hash, entry);
            self.emptied = true;
        } else if packs {
            self.pack(hash, entry);
        }
        Ok(Some(result))
    }

    // ---- keys ---------------------------------------------------------------------------------

    /// Sets the key to this value, whatever it was; see [`View::set_string`] for a string that is copied. An empty
    /// collection is not stored (but a stream is): the key is removed. Returns true if the key exists now.
    pub fn insert(&mut self, key: &[u8], value: impl Into<Owned>, expiry: Expiry) -> bool {
        let value = match value.into() {
            Owned::Object(value) if value.leaves_no_key() => {
                self.remove(key);
                return false;
            }
            // A large string that is not shared yet need not be copied.
            Owned::Bytes { bytes, .. } if bytes.len() > INLINE_BYTES_MAX => {
                Owned::Blob(Arc::new(bytes))
            }
            Owned::Blob(blob) if blob.len() <= INLINE_BYTES_MAX => {
                self.set_string(key, &blob, expiry);
                return true;
            }
            value => value,
        };
        let (hash, old) = self.find_mut(key);
        self.announce_replaced(key, old, value.type_name());
        match value {
            Owned::Bytes { bytes, raw } => self.store_string(key, hash, old, &bytes, raw, expiry),
            Owned::Object(value) => self.store_edited(value, |view, stored| {
                view.replace(key, hash, old, stored, expiry);
            }),
            value => value.with_stored(|stored| self.replace(key, hash, old, stored, expiry)),
        }
        true
    }

    /// Removes a key; returns true if it was there. Reports nothing: see [`View::changed`].
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let (hash, found) = self.find_mut(key);
        if let Some(entry) = found {
            self.unlink(self.db, hash, entry);
        }
        found.is_some()
    }

    /// Does the same for a command whose result is nothing to store: a key that has expired, and that no reader has met
    /// yet, is deleted like any other one.
    pub fn remove_for_nothing(&mut self, key: &[u8]) -> bool {
        let (hash, found) = self.look(key);
        let met = self.local.met_expired.get_mut();
        // Its expiry is reported already, so it only has to be removed.
        if !met.is_empty() && met.contains(&(self.db, key.into())) {
            return self.remove(key);
        }
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

    /// Stores a value that [`View::take`] or [`Found::copy`] returned, whatever the key was.
    pub fn put_owned(&mut self, key: &[u8], value: Owned, expire_at_ms: Option<i64>) {
        let expiry = expire_at_ms.map_or(Expiry::Clear, Expiry::AtMs);
        value.with_stored(|stored| self.put(key, stored, expiry));
    }

    /// Sets or clears a key's expiry; returns true if the key exists. A time in the past is stored as it is: the
    /// handler decides to delete instead.
    pub fn set_expiry(&mut self, key: &[u8], at: Option<i64>) -> bool {
        let (hash, Some(entry)) = self.find_mut(key) else {
            return false;
        };
        self.access(entry);
        self.store_expiry(hash, entry, at);
        true
    }

    // ---- reports ------------------------------------------------------------------------------

    /// Reports one change of a key: see the module's text.
    #[inline]
    pub fn changed(&mut self, class: Classes, event: &'static str, key: &[u8]) {
        self.changes += 1;
        self.announced(class, event, key);
    }

    /// Reports a change to watchers and in events that is no change of its own in the counts: the second half of a
    /// move, or nothing at all.
    #[inline]
    pub fn announced(&mut self, class: Classes, event: &'static str, key: &[u8]) {
        self.note_unrecorded();
        self.touch_watchers(key);
        self.notify(class, event, key);
        if class == Classes::STREAM {
            // A stream that was there already has more for its readers, or a group less.
            let hash = self.hash(key);
            waiting::appeared(self, hash, key, Some(Kind::Stream));
        }
        if self.emptied {
            self.emptied = false;
            self.notify(Classes::GENERIC, "del", key);
        }
    }

    /// Exchanges the note that the last [`View::write`] emptied its key, for commands that write a second key before they
    /// report the first.
    pub fn swap_emptied(&mut self, emptied: bool) -> bool {
        std::mem::replace(&mut self.emptied, emptied)
    }

    /// Adds to the number of changes without an event (a command that counts elements).
    pub fn count_changes(&mut self, more: u64) {
        self.changes += more;
    }

    /// Raises the flags of a key's watchers, where a change has no event.
    #[inline]
    pub fn touch_watchers(&self, key: &[u8]) {
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

    /// Queues the events of a value that replaces another one. Setting a value does this by itself; RENAME and COPY
    /// remove the old value first and report later.
    pub fn notify_replaced(&self, key: &[u8], old_type: &str, new_type: &str) {
        self.notify(Classes::OVERWRITTEN, "overwritten", key);
        if old_type != new_type {
            self.notify(Classes::TYPE_CHANGED, "type_changed", key);
        }
    }

    // ---- the journal --------------------------------------------------------------------------

    /// Returns true if the journal has a stream: without one, [`View::propagate`] drops its command.
    #[inline]
    pub fn is_journaled(&self) -> bool {
        self.space.journal.is_attached()
    }

    /// Adds a command that the journal gets in place of the call itself, where its words depend on chance or on a span of
    /// time, or where a simpler command does the same. Added in the order of doing; without one, the call is recorded.
    pub fn propagate<'w>(&mut self, words: impl Words<'w>) {
        self.propagated = true;
        if self.is_journaled() {
            self.note_unrecorded();
            self.local.push_effect(self.space, self.db, words);
        }
    }

    /// Adds the call itself; if its effect `replaces` it, only where the command has added none. `frame`: the call, if it is in
    /// the journal's form already: an array of bulk strings, each length without a leading zero.
    pub fn propagate_call<'w>(
        &mut self,
        replaces: bool,
        frame: Option<&[u8]>,
        words: impl Words<'w>,
    ) {
        if replaces && self.propagated {
            return;
        }
        match frame {
            Some(frame) if self.is_journaled() => {
                self.note_unrecorded();
                self.local.push_frame(self.space, self.db, frame);
            }
            _ => self.propagate(words),
        }
    }

    /// Reports that a key was removed, but not by a command.
    pub(crate) fn propagate_gone(&self, key: &[u8]) {
        self.note_unrecorded();
        // Not the command's own effect: the call may still be recorded.
        let words = [&b"DEL"[..], key];
        self.local.push_effect(self.space, self.db, words);
    }

    /// Reports that fields of a hash were removed, but not by a command.
    pub(crate) fn propagate_fields_gone(&self, key: &[u8], fields: &[Box<[u8]>]) {
        self.note_unrecorded();
        if self.is_journaled() {
            let fields = fields.iter().map(|field| &**field);
            self.local.push_effect(
                self.space,
                self.db,
                [&b"HDEL"[..], key].into_iter().chain(fields),
            );
        }
    }

    /// Writes a separate record of the changes so far: the next change in the same unit gets another number.
    pub(crate) fn record(&mut self) {
        #[cfg(debug_assertions)]
        self.unrecorded.set(false);
        self.space.record(self.local);
    }

    // ---- its end ------------------------------------------------------------------------------

    /// Ends the unit, once: adds its changes to the worker's, and removes the expired keys that its readers met. Called
    /// before the stripes are released.
    #[inline]
    pub fn finish(&mut self) {
        self.end();
        #[cfg(debug_assertions)]
        self.local.witness.get_mut().check();
    }

    #[inline]
    fn end(&mut self) {
        self.local.changes += self.changes;
        if !self.local.met_expired.get_mut().is_empty() {
            self.remove_met_expired();
        }
    }
}

#[cfg(test)]
mod tests;
