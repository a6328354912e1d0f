//! The write door: every change of a key's entry, or of its place in the tables, begins here.
//!
//! # The two halves of a change
//!
//! Access to an entry's contents for a change needs a [`Change`] of that entry, which [`Entries::begin_change`] alone makes.
//! So everything that must happen before an entry is first changed belongs there: a snapshot that is being taken saves
//! it as it was (see [`snapshot`](crate::snapshot)). Everything that must happen after a key has changed (the account of
//! memory, an index of its contents) belongs to [`Entries::end_change`].
//!
//! The handler reports a change, by [`View::changed`] and [`View::announced`]: watchers, clients that track the key,
//! keyspace events, and the count that puts the command into the journal depend on these alone. It is the handler's to
//! do, since one command may report one key under several events, and reports two keys in an order of its own.
//!
//! # The proof
//!
//! In a debug build a [`Witness`] notes each key that was changed and each that was reported, and [`View::finish`] asserts
//! that the first are among the second. A handler that forgets to report, or a mutator that bypasses the door, fails
//! the first test that runs it.
//!
//! Must not know: commands, the receivers of reports.

use super::Entries;
use crate::{View, entry::Entry, snapshot};

/// Permission to change one entry, or to add or replace it. Made by [`Entries::begin_change`] only; functions that change an
/// entry ask for it.
pub(crate) struct Change {
    /// The entry that was there before; `None` if there was none.
    #[cfg(debug_assertions)]
    entry: Option<Entry>,
    /// True if the entry is in no keyspace.
    #[cfg(all(debug_assertions, test))]
    is_loose: bool,
}

impl Change {
    #[inline(always)] // nothing in a release build
    fn of(_entry: Option<Entry>) -> Change {
        Change {
            #[cfg(debug_assertions)]
            entry: _entry,
            #[cfg(all(debug_assertions, test))]
            is_loose: false,
        }
    }

    /// Makes one for an entry that is in no keyspace.
    #[cfg(test)]
    pub(crate) fn of_loose_entry() -> Change {
        Change {
            #[cfg(debug_assertions)]
            entry: None,
            #[cfg(debug_assertions)]
            is_loose: true,
        }
    }

    /// Asserts in a debug build that this is the permission to change that entry: what has to be done before its first
    /// change has been done.
    #[inline(always)] // nothing in a release build
    pub(crate) fn assert_covers(&self, _entry: Entry) {
        #[cfg(debug_assertions)]
        {
            #[cfg(test)]
            if self.is_loose {
                return;
            }
            assert!(
                self.entry == Some(_entry),
                "an entry is changed that went not through the door"
            );
        }
    }
}

impl Entries<'_> {
    /// Begins a change of a key of the selected database, before anything of its entry, if it has one, is changed: a
    /// snapshot that is being taken saves it first.
    #[inline(always)] // a load and a branch
    pub(in crate::view) fn begin_change(&mut self, entry: Option<Entry>) -> Change {
        self.note_unrecorded();
        if self.space.snapshots.is_running()
            && let Some(entry) = entry
        {
            self.save_first(entry);
        }
        Change::of(entry)
    }

    /// Saves an entry that is about to be changed, unless the snapshot has it.
    #[cold]
    fn save_first(&mut self, entry: Entry) {
        let db = self.space.db_or_create(self.db);
        // SAFETY: the stripe is held, and `&mut self` excludes readers.
        unsafe { snapshot::save_first(self.space, self.local, db, entry) };
    }

    /// Ends a change by which the key takes so many bytes more.
    #[inline(always)] // one addition
    pub(in crate::view) fn end_change(&mut self, _change: Change, key: &[u8], grown: i64) {
        self.note_changed(key);
        self.local.account(self.space, grown);
    }

    /// Ends an edit, which need not have changed anything.
    #[inline(always)] // as `end_change`
    pub(in crate::view) fn end_edit(
        &mut self,
        change: Change,
        key: &[u8],
        grown: i64,
        differs: bool,
    ) {
        self.end_change(change, key, grown);
        if !differs {
            self.note_reported(key);
        }
    }

    /// Notes that a key has changed, for who follows its slot; before the unit ends it must be reported.
    #[inline(always)] // in a release build a load and a branch
    pub(in crate::view) fn note_changed(&self, key: &[u8]) {
        if self.space.slots.follows_any() {
            self.space.slots.note_changed(key);
        }
        #[cfg(debug_assertions)]
        self.local.witness.borrow_mut().changed(self.db, key);
    }

    /// Notes that a change of a key has been reported.
    #[inline(always)] // nothing in a release build
    pub(in crate::view) fn note_reported(&self, _key: &[u8]) {
        #[cfg(debug_assertions)]
        self.local.witness.borrow_mut().reported(self.db, _key);
    }
}

impl View<'_> {
    /// Ends a view whose changes are not to be reported.
    #[cfg(test)]
    pub(crate) fn finish_unreported(&mut self) {
        self.end();
        #[cfg(debug_assertions)]
        self.entries.local.witness.get_mut().begin();
    }

    /// A planted fault: changes a short string with the permission to change another key.
    #[cfg(test)]
    pub(crate) fn change_past_the_door(&mut self, key: &[u8], other: &[u8]) {
        let (entry, other) = (self.entries.find_mut(key).1, self.entries.find_mut(other).1);
        let change = self.entries.begin_change(other);
        // SAFETY: the stripe is held, and `&mut self` excludes readers.
        let bytes = unsafe { entry.expect("it is there").inline_mut(&change) };
        bytes.expect("a short string").fill(b'!');
    }

    /// Notes that a change of a key is deliberately not reported: clients see no difference.
    #[inline(always)] // nothing in a release build
    pub fn unreported(&self, key: &[u8]) {
        self.entries.note_reported(key);
    }
}

/// A string as it was before an edit: in a debug build, to see whether the edit has changed it.
pub(in crate::view) struct Seen(#[cfg(debug_assertions)] u64);

impl Seen {
    #[inline(always)] // nothing in a release build
    pub(in crate::view) fn of(_bytes: &[u8]) -> Seen {
        Seen(
            #[cfg(debug_assertions)]
            redline_table::hash(_bytes),
        )
    }

    #[inline(always)] // nothing in a release build
    pub(in crate::view) fn differs_from(&self, _bytes: &[u8]) -> bool {
        #[cfg(debug_assertions)]
        return self.0 != redline_table::hash(_bytes);
        #[cfg(not(debug_assertions))]
        true
    }
}

#[cfg(debug_assertions)]
pub(crate) use witness::Witness;

#[cfg(debug_assertions)]
mod witness {
    use std::collections::HashSet;

    type Keys = HashSet<(u32, Box<[u8]>)>;

    /// The keys that a view has changed, and those that it has reported: see the module's text.
    #[derive(Default)]
    pub(crate) struct Witness {
        changed: Keys,
        reported: Keys,
    }

    impl Witness {
        pub(super) fn changed(&mut self, db: u32, key: &[u8]) {
            self.changed.insert((db, key.into()));
        }

        pub(super) fn reported(&mut self, db: u32, key: &[u8]) {
            self.reported.insert((db, key.into()));
        }

        /// Clears both sets: a view begins.
        pub(crate) fn begin(&mut self) {
            self.changed.clear();
            self.reported.clear();
        }

        /// Asserts that all changes were reported: a view ends.
        pub(crate) fn check(&mut self) {
            if let Some((db, key)) = self.changed.difference(&self.reported).next() {
                let key = key.escape_ascii();
                panic!("key `{key}` of database {db} was changed, and nobody was told");
            }
            self.begin();
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(debug_assertions)]
    use redline_types::Hash;
    use redline_types::Limits;

    use super::*;
    use crate::{Classes, Expiry, Keyspace, Local, Unit, lock::NobodyWaits};

    /// Runs a change of a key that is a string, a list or a hash, and its reports, in one view.
    fn run(change: impl FnOnce(&mut View<'_>)) {
        let mut space = Keyspace::new(2, Box::new(NobodyWaits));
        let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        let mut unit = Unit::exclusive(&mut space);
        let mut view = unit.view(&mut local, 0, 0);
        view.set_string(b"key", b"value", Expiry::Clear);
        view.finish_unreported();
        let mut view = unit.view(&mut local, 0, 0);
        change(&mut view);
        view.finish();
    }

    #[cfg(debug_assertions)]
    fn is_found(change: fn(&mut View<'_>)) {
        let found = std::panic::catch_unwind(|| run(change)).expect_err("nobody was told");
        let text = found.downcast::<String>().expect("a message");
        assert!(text.ends_with("was changed, and nobody was told"), "{text}");
    }

    #[test]
    #[cfg(debug_assertions)]
    fn every_mutator_whose_change_is_not_reported_is_found() {
        is_found(|view| view.set_string(b"key", b"other", Expiry::Clear));
        is_found(|view| view.set_string(b"key", &[b'x'; 20_000], Expiry::Clear));
        is_found(|view| view.set_string(b"new", b"value", Expiry::Clear));
        is_found(|view| assert!(view.remove(b"key")));
        is_found(|view| assert!(view.set_expiry(b"key", Some(7))));
        is_found(|view| {
            let edited = view.edit_bytes(b"key", |bytes| bytes[0] = b'V');
            assert_eq!(edited, Ok(Some(())));
        });
        is_found(|view| {
            let made = view.write_or_new::<Hash, _>(b"hash", |hash, limits| {
                hash.set(b"field", b"value", limits);
            });
            assert_eq!(made, Ok(()));
        });
        is_found(|view| drop(view.take(b"key")));
        is_found(|view| view.in_db(1, |view| view.set_string(b"key", b"v", Expiry::Clear)));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "not through the door")]
    fn a_mutator_that_bypasses_the_door_is_found() {
        run(|view| {
            view.set_string(b"another", b"value", Expiry::Clear);
            view.change_past_the_door(b"key", b"another");
        });
    }

    #[test]
    fn a_reported_change_passes_and_so_does_one_that_is_none() {
        run(|view| {
            view.set_string(b"key", b"other", Expiry::Clear);
            view.changed(Classes::STRING, "set", b"key");
        });
        run(|view| {
            view.set_string(b"key", b"other", Expiry::Clear);
            view.unreported(b"key");
        });
        run(|view| assert!(!view.remove(b"no key")));
        run(|view| {
            assert!(!view.set_expiry(b"no key", Some(7)));
            assert!(view.string(b"key").is_ok());
        });
    }
}
