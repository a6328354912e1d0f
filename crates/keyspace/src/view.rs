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
mod elements;
mod entries;
mod found;
mod hints;
mod waiting;

pub use database::{Database, NoDraw};
pub(crate) use entries::Change;
#[cfg(debug_assertions)]
pub(crate) use entries::Witness;
pub use found::{Found, Trace};
pub use hints::Hint;

use entries::{Entries, Seen};
pub(crate) use entries::{entry_of, is_expired};

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use redline_types::{Collection, Kind, Limits, PackedRef};

use crate::{
    ahead::Ahead,
    entry::{
        Content, INLINE_BYTES_MAX, Owned, PACKED_AGAIN_BYTES_MAX, Stored, blob_bytes, blob_to_edit,
    },
    journal::Words,
    lock::{Held, StripeSet},
    notify::Classes,
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
    /// Look-ups and changes, without the handler's reports.
    pub(crate) entries: Entries<'a>,
    /// Changes so far: what Redis calls `dirty`.
    changes: u64,
    emptied: bool,
    /// The command has called [`View::propagate`].
    propagated: bool,
}

impl<'a> Deref for View<'a> {
    type Target = Entries<'a>;

    /// Returns the entries, of which other crates see the worker's share ([`Entries::local`]) alone.
    #[inline(always)] // a field
    fn deref(&self) -> &Entries<'a> {
        &self.entries
    }
}

impl DerefMut for View<'_> {
    #[inline(always)] // a field
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.entries
    }
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
        View {
            entries: Entries::new(unit, local, db, now_ms),
            changes: 0,
            emptied: false,
            propagated: false,
        }
    }

    /// Passes on the prefetched state of the key that the unit will look up: saves a second hash, and mostly the search.
    #[inline]
    pub fn hint(&mut self, key: &[u8], ahead: &'a Ahead) {
        self.entries.hints.take_one(key, ahead);
    }

    /// Does the same for many keys, in the order in which the unit will ask for them. Their entries are prefetched a
    /// few keys ahead.
    pub fn hints(&mut self, hints: &'a [Hint]) {
        self.entries
            .hints
            .take_many(hints, self.entries.space, self.entries.db);
    }

    /// Returns the unit's time: Unix time in milliseconds.
    #[inline]
    pub fn now_ms(&self) -> i64 {
        self.entries.now_ms
    }

    /// Returns the selected database.
    pub fn db(&self) -> u32 {
        self.entries.db
    }

    /// Returns the keyspace.
    pub fn space(&self) -> &'a Keyspace {
        self.entries.space
    }

    /// Works on another database for a moment (MOVE, COPY … DB).
    pub fn in_db<R>(&mut self, db: u32, run: impl FnOnce(&mut View<'a>) -> R) -> R {
        let selected = std::mem::replace(&mut self.entries.db, db);
        let result = run(self);
        self.entries.db = selected;
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
        if matches!(self.entries.held, Held::All) {
            return Ok(());
        }
        let mut missing: Option<Box<StripeSet>> = None;
        for key in keys {
            let stripe = stripe_of(self.entries.hash(key.as_ref()));
            if !self.entries.held.covers(stripe) {
                let missing = missing.get_or_insert_with(|| Box::new(StripeSet::EMPTY));
                missing.insert(stripe);
            }
        }
        missing.map_or(Ok(()), |stripes| Err(Missing(stripes)))
    }

    // ---- strings ------------------------------------------------------------------------------

    /// Makes the key a string of this value, whatever it was.
    #[inline]
    pub fn set_string(&mut self, key: &[u8], value: &[u8], expiry: Expiry) {
        let (hash, old) = self.entries.find_mut(key);
        if self.entries.local.notify.intersects(Classes::REPLACED) {
            self.entries.announce_replaced(key, old, "string");
        }
        self.entries
            .store_string(key, hash, old, value, false, expiry);
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
        let (hash, old) = self.entries.find_mut(key);
        // SAFETY: the stripe is held; the reference ends with the call of `map`.
        let (value, result) = match old.map(|entry| unsafe { entry.content() }) {
            None => map(None)?,
            Some(Content::String(string)) => map(Some(string.as_bytes()))?,
            Some(Content::Object(_) | Content::Packed(_)) => return Err(WrongType.into()),
        };
        self.entries
            .store_string(key, hash, old, value.as_ref(), false, Expiry::Keep);
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
        let (hash, old) = self.entries.find_mut(key);
        self.entries.local.scratch.clear();
        if let Some(entry) = old {
            let change = self.entries.begin_change(old);
            // SAFETY: the stripe is held, and `&mut self` excludes readers; the references end here.
            unsafe {
                if let Some(blob) = entry.blob_mut(&change) {
                    let before = (blob_bytes(blob), Seen::of(blob));
                    let result = edit(blob_to_edit(blob, more));
                    let grown = blob_bytes(blob) as i64 - before.0 as i64;
                    let differs = before.1.differs_from(blob);
                    self.entries.access(entry);
                    self.entries.end_edit(change, key, grown, differs);
                    return result;
                }
                let Content::String(string) = entry.content() else {
                    return Err(WrongType.into());
                };
                self.entries
                    .local
                    .scratch
                    .extend_from_slice(string.as_bytes());
            }
        }
        let mut value = std::mem::take(&mut self.entries.local.scratch);
        let before = Seen::of(&value);
        let result = edit(&mut value);
        if result.is_ok() {
            let is_same = old.is_some() && !before.differs_from(&value);
            if value.len() > INLINE_BYTES_MAX {
                let value = Stored::Blob(Arc::new(std::mem::take(&mut value)));
                self.entries.replace(key, hash, old, value, Expiry::Keep);
            } else {
                self.entries
                    .store_string(key, hash, old, &value, true, Expiry::Keep);
            }
            if is_same {
                self.unreported(key);
            }
        }
        self.entries.local.scratch = value;
        result
    }

    /// Edits a string that keeps its length, in place; see [`View::edit_string`]. `None` without the key.
    pub fn edit_bytes<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<Option<R>, WrongType> {
        let (_, Some(entry)) = self.entries.find_mut(key) else {
            return Ok(None);
        };
        let change = self.entries.begin_change(Some(entry));
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
        self.entries.access(entry);
        self.entries.end_edit(change, key, grown, differs);
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
        let (hash, found) = self.entries.find_mut(key);
        // A packed collection is edited in a structure of the worker's.
        let mut opened = match found {
            None if !create => return Ok(None),
            None => Some(match PackedRef::empty(T::KIND) {
                Some(empty) => self.entries.local.opened.take(empty),
                None => T::default().into(),
            }),
            Some(entry) => {
                if !self
                    .entries
                    .used_ahead
                    .get()
                    .contains(&entry.pointer().addr().get())
                {
                    self.entries.access(entry);
                }
                match self.entries.content(entry) {
                    Content::Packed(packed) if packed.form.kind() == T::KIND => {
                        Some(self.entries.local.opened.take(packed))
                    }
                    _ => None,
                }
            }
        };
        let is_opened = opened.is_some();
        let change = self.entries.begin_change(found);
        let value = match (&mut opened, found) {
            (Some(value), _) => value,
            // SAFETY: the stripe is held, and `&mut self` excludes readers.
            (None, Some(entry)) => unsafe { entry.object_mut(&change) }.ok_or(WrongType)?,
            (None, None) => unreachable!("one is made for a key that is missing"),
        };
        let edited = T::of_mut(value).ok_or(WrongType)?;
        let (before, was_timed) = (edited.heap_bytes(), edited.earliest_expiry_ms().is_some());
        // The witness of a debug build asks, and for some types it is no constant time.
        let len = |value: &T| match cfg!(debug_assertions) {
            true => value.len(),
            false => 0,
        };
        let len_before = len(edited);
        let labels = edited.labels().cloned();
        #[cfg(debug_assertions)]
        let freeze_id = edited.freeze_id();
        // The only call: what handlers do is compiled into it.
        let result = edit(edited, &self.entries.local.limits);
        #[cfg(debug_assertions)]
        assert_eq!(
            edited.freeze_id(),
            freeze_id,
            "an edit replaced a frozen value"
        );
        let Some(entry) = found.filter(|_| !is_opened) else {
            if let Some(value) = opened {
                self.emptied = self.entries.close_edited(&change, key, hash, found, value);
            }
            return Ok(Some(result));
        };
        let (after, earliest_ms, empty) = (
            edited.heap_bytes(),
            edited.earliest_expiry_ms(),
            edited.leaves_no_key(),
        );
        let differs = len(edited) != len_before;
        let packs = edited
            .packed()
            .is_some_and(|packed| packed.bytes.len() <= PACKED_AGAIN_BYTES_MAX);
        let mut grown = after as i64 - before as i64;
        if let (Some(before), Some(after)) = (&labels, edited.labels())
            && !Arc::ptr_eq(before, after)
        {
            let db = self.entries.space.db_or_create(self.entries.db);
            grown += db.labels.exchange(key, before, after);
        }
        if was_timed || earliest_ms.is_some() {
            grown += self.note_timed(hash, entry, was_timed, earliest_ms);
        }
        // Whether an element has another value only the handler knows.
        self.entries.end_edit(change, key, grown, differs);
        if empty {
            self.entries.unlink(self.entries.db, hash, entry);
            self.emptied = true;
        } else if packs {
            self.entries.pack(hash, entry);
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
        let (hash, old) = self.entries.find_mut(key);
        self.entries.announce_replaced(key, old, value.type_name());
        match value {
            Owned::Bytes { bytes, raw } => self
                .entries
                .store_string(key, hash, old, &bytes, raw, expiry),
            Owned::Object(value) => self.entries.store_edited(value, |entries, stored| {
                entries.replace(key, hash, old, stored, expiry);
            }),
            value => {
                value.with_stored(|stored| self.entries.replace(key, hash, old, stored, expiry))
            }
        }
        true
    }

    /// Removes a key; returns true if it was there. Reports nothing: see [`View::changed`].
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let (hash, found) = self.entries.find_mut(key);
        if let Some(entry) = found {
            self.entries.unlink(self.entries.db, hash, entry);
        }
        found.is_some()
    }

    /// Does the same for a command whose result is nothing to store: a key that has expired, and that no reader has met
    /// yet, is deleted like any other one.
    pub fn remove_for_nothing(&mut self, key: &[u8]) -> bool {
        let (hash, found) = self.entries.look(key);
        let met = self.entries.local.met_expired.get_mut();
        // Its expiry is reported already, so it only has to be removed.
        if !met.is_empty() && met.contains(&(self.entries.db, key.into())) {
            return self.remove(key);
        }
        if let Some(entry) = found {
            self.entries.unlink(self.entries.db, hash, entry);
        }
        found.is_some()
    }

    /// Takes a key's value and expiry out of the database (RENAME, MOVE).
    pub fn take(&mut self, key: &[u8]) -> Option<(Owned, Option<i64>)> {
        let (hash, found) = self.entries.find_mut(key);
        let entry = found?;
        // SAFETY: the stripe is held; after `detach` the entry is ours alone.
        unsafe {
            let expire_at_ms = entry.expire_at_ms();
            self.entries.detach(self.entries.db, hash, entry);
            Some((entry.into_owned(&mut self.entries.local.heap), expire_at_ms))
        }
    }

    /// Stores a value that [`View::take`] or [`Found::copy`] returned, whatever the key was.
    pub fn put_owned(&mut self, key: &[u8], value: Owned, expire_at_ms: Option<i64>) {
        let expiry = expire_at_ms.map_or(Expiry::Clear, Expiry::AtMs);
        value.with_stored(|stored| self.entries.put(key, stored, expiry));
    }

    /// Sets or clears a key's expiry; returns true if the key exists. A time in the past is stored as it is: the
    /// handler decides to delete instead.
    pub fn set_expiry(&mut self, key: &[u8], at: Option<i64>) -> bool {
        let (hash, Some(entry)) = self.entries.find_mut(key) else {
            return false;
        };
        self.entries.access(entry);
        self.entries.store_expiry(hash, entry, at);
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
        self.entries.note_unrecorded();
        self.touch_watchers(key);
        self.notify(class, event, key);
        if class == Classes::STREAM {
            // A stream that was there already has more for its readers, or a group less.
            let hash = self.entries.hash(key);
            waiting::appeared(&mut self.entries, hash, key, Some(Kind::Stream));
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
        self.entries.touch_watchers(key);
    }

    /// Reports that a stream has lost a group, to the clients that wait to read it.
    pub fn group_gone(&mut self, key: &[u8]) {
        let hash = self.entries.hash(key);
        waiting::appeared(&mut self.entries, hash, key, Some(Kind::Stream));
    }

    /// Queues a keyspace event, if its class is wanted.
    #[inline]
    pub fn notify(&self, class: Classes, event: &'static str, key: &[u8]) {
        self.entries.notify(class, event, key);
    }

    /// Queues the events of a value that replaces another one. Setting a value does this by itself; RENAME and COPY
    /// remove the old value first and report later.
    pub fn notify_replaced(&self, key: &[u8], old_type: &str, new_type: &str) {
        self.entries.notify_replaced(key, old_type, new_type);
    }

    // ---- the journal --------------------------------------------------------------------------

    /// Returns true if the journal has a stream: without one, [`View::propagate`] drops its command.
    #[inline]
    pub fn is_journaled(&self) -> bool {
        self.entries.space.journal.is_attached()
    }

    /// Adds a command that the journal gets in place of the call itself, where its words depend on chance or on a span of
    /// time, or where a simpler command does the same. Added in the order of doing; without one, the call is recorded.
    pub fn propagate<'w>(&mut self, words: impl Words<'w>) {
        self.propagated = true;
        if self.is_journaled() {
            self.entries.note_unrecorded();
            self.entries
                .local
                .push_effect(self.entries.space, self.entries.db, words);
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
                self.entries.note_unrecorded();
                self.entries
                    .local
                    .push_frame(self.entries.space, self.entries.db, frame);
            }
            _ => self.propagate(words),
        }
    }

    /// Reports that elements of a collection were removed, but not by a command: this one removes them elsewhere.
    pub(crate) fn propagate_elements_gone(
        &self,
        removal: &'static str,
        key: &[u8],
        elements: &[Box<[u8]>],
    ) {
        self.entries.note_unrecorded();
        if self.is_journaled() {
            let elements = elements.iter().map(|element| &**element);
            self.entries.local.push_effect(
                self.entries.space,
                self.entries.db,
                [removal.as_bytes(), key].into_iter().chain(elements),
            );
        }
    }

    /// Writes a separate record of the changes so far: the next change in the same unit gets another number.
    pub(crate) fn record(&mut self) {
        #[cfg(debug_assertions)]
        self.entries.unrecorded.set(false);
        self.entries.space.record(self.entries.local);
    }

    // ---- its end ------------------------------------------------------------------------------

    /// Ends the unit, once: adds its changes to the worker's, and removes the expired keys that its readers met. Called
    /// before the stripes are released.
    #[inline]
    pub fn finish(&mut self) {
        self.end();
        #[cfg(debug_assertions)]
        self.entries.local.witness.get_mut().check();
    }

    #[inline]
    fn end(&mut self) {
        self.entries.local.changes += self.changes;
        if !self.entries.local.met_expired.get_mut().is_empty() {
            self.entries.remove_met_expired();
        }
    }
}

#[cfg(test)]
mod tests;
