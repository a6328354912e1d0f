//! The unit: holds stripes, gives access to their keys, and writes the journal's record before it releases them.
//!
//! One command, one EXEC, one script, one expiry, one eviction is a unit. A [`Unit`] takes its stripes when it is made
//! and releases them when it is dropped; a [`View`] can be had from a unit only, so code that can touch a key holds its
//! stripe. The protocol by which stripes are taken is [`lock`](crate::lock).
//!
//! Must not know: commands, connections, the service of waiting clients.

#[cfg(debug_assertions)]
use std::cell::Cell;
use std::sync::Arc;

use crate::{
    entry::Entry,
    journal::{Stream, Words},
    lock::{Guard, Held, StripeSet, WakeToken},
    snapshot::{self, Cut, Savers},
    space::{Keyspace, Local, Place},
    view::{Busy, View, entry_of, is_expired},
    wait::Waiter,
    watch::WatchFlag,
};

/// Stripes of a keyspace, held from the unit's making until it is dropped.
///
/// A unit that has changed something is ended by [`Unit::commit`], or by [`Unit::record`] and then a drop; one that has
/// changed nothing may be dropped at any time. A debug build asserts it.
pub struct Unit<'k> {
    space: &'k Keyspace,
    guard: Guard<'k>,
    /// True if a change has no record yet.
    #[cfg(debug_assertions)]
    unrecorded: Cell<bool>,
}

impl<'k> Unit<'k> {
    /// Makes a unit that holds nothing: the view takes one stripe at a time by itself (SCAN, RANDOMKEY).
    pub fn none(space: &'k Keyspace) -> Unit<'k> {
        Unit::of(space, Guard::none(space.locks()))
    }

    /// Makes a unit that holds everything, without a lock: no other unit can use the keyspace meanwhile.
    pub fn exclusive(space: &'k mut Keyspace) -> Unit<'k> {
        Unit::of(space, Guard::exclusive(space.locks()))
    }

    /// Tries for one stripe. `None`: another unit holds it, or has it reserved.
    #[inline]
    pub fn try_one(space: &'k Keyspace, stripe: u16) -> Option<Unit<'k>> {
        let guard = space.locks().try_one(stripe)?;
        Some(Unit::of(space, guard))
    }

    /// Tries for all stripes of a set. On failure none is held, and the error names the one that was in the way. `ticket`:
    /// the caller owns the ticket, so the reservations are its own (see [`lock`](crate::lock)).
    pub fn try_set(space: &'k Keyspace, set: &StripeSet, ticket: bool) -> Result<Unit<'k>, Busy> {
        let guard = space.locks().try_set(set, ticket).map_err(Busy)?;
        Ok(Unit::of(space, guard))
    }

    /// Tries for the script mutex, and holds no stripe yet: see [`Unit::add`]. `None`: the session of this token stands
    /// in the queue now, and is woken when it is its turn.
    pub fn try_script(space: &'k Keyspace, token: WakeToken) -> Option<Unit<'k>> {
        let guard = space.locks().try_script(token)?;
        Some(Unit::of(space, guard))
    }

    #[inline]
    fn of(space: &'k Keyspace, guard: Guard<'k>) -> Unit<'k> {
        Unit {
            space,
            guard,
            #[cfg(debug_assertions)]
            unrecorded: Cell::new(false),
        }
    }

    /// Returns the keyspace.
    pub fn space(&self) -> &'k Keyspace {
        self.space
    }

    #[inline]
    pub(crate) fn held(&self) -> Held<'_> {
        self.guard.held()
    }

    #[cfg(debug_assertions)]
    pub(crate) fn unrecorded(&self) -> &Cell<bool> {
        &self.unrecorded
    }

    /// Returns true if this stripe is held.
    #[inline]
    pub fn covers(&self, stripe: u16) -> bool {
        self.held().covers(stripe)
    }

    /// Returns true if every stripe is held.
    pub fn holds_all(&self) -> bool {
        matches!(self.held(), Held::All)
    }

    /// Returns true if the script mutex is held, so that further stripes may be added.
    pub fn holds_script(&self) -> bool {
        self.guard.holds_script()
    }

    /// Takes another stripe, unless it is held already. Waits for it.
    ///
    /// # Panics
    /// If the stripe is missing and the unit does not hold the script mutex.
    #[inline]
    pub fn add(&mut self, stripe: u16) {
        self.guard.add(stripe);
    }

    /// Does the same for every stripe of a set.
    pub fn add_set(&mut self, wanted: &StripeSet) {
        self.guard.add_set(wanted);
    }

    /// Gives access to the keys of database `db` whose stripes are held. `now_ms`, Unix time in milliseconds, stands still
    /// for the view.
    #[inline(always)] // a call less of the few that a GET makes
    pub fn view<'a>(&'a mut self, local: &'a mut Local, db: u32, now_ms: i64) -> View<'a> {
        View::new(self, local, db, now_ms)
    }

    /// Writes the journal's record of what the unit has changed so far, if there is a reader and any change, and
    /// returns its number. Called after the last command, while others may not yet see the changes.
    #[inline]
    pub fn record(&mut self, local: &mut Local) -> Option<u64> {
        #[cfg(debug_assertions)]
        self.unrecorded.set(false);
        let number = self.space.record(local);
        if let Some(number) = number
            && self.space.is_of_cluster()
        {
            self.space.slots.note_record(self.held(), number);
        }
        number
    }

    /// Returns the last record of which a reply may tell that was made with these stripes held; 0 if no reply waits for other
    /// servers. Only in a keyspace of a cluster.
    pub fn last_record(&self) -> u64 {
        self.space.last_record(self.held())
    }

    /// Writes the record and releases the stripes: see [`Unit::record`].
    #[inline]
    pub fn commit(mut self, local: &mut Local) -> Option<u64> {
        let number = self.record(local);
        self.release();
        number
    }

    /// Releases the stripes, as a drop does, without a call where one stripe is held.
    #[inline(always)]
    pub fn release(self) {
        #[cfg(debug_assertions)]
        self.assert_recorded();
        if self.guard.let_go_of_one() {
            std::mem::forget(self);
        }
    }

    #[cfg(debug_assertions)]
    fn assert_recorded(&self) {
        assert!(
            !self.unrecorded.get() || self.guard.is_exclusive() || std::thread::panicking(),
            "a unit that has changed something let go without a record of it"
        );
    }

    /// Adds to the unit's effect a message to the nodes (PUBLISH), which changes no data: no file gets it. Without a stream it
    /// is dropped.
    pub fn propagate_message<'w>(&mut self, local: &mut Local, words: impl Words<'w>) {
        let journal = self.space.journal();
        if journal.is_attached() {
            #[cfg(debug_assertions)]
            self.unrecorded.set(true);
            let words = words.into_iter().map(Into::into);
            local.effects.get_mut().push(journal, None, words);
        }
    }

    /// Attaches a stream to the journal, which gets the record of every later unit; returns the number after which it
    /// begins. The stream hears of its begin ([`Stream::cut`]) from whoever pumps next. Libraries of functions change under the
    /// script mutex alone: who copies them at this instant holds that, too.
    ///
    /// # Panics
    /// Unless every stripe is held, or if there is a stream already.
    pub fn attach_stream(&mut self, stream: Box<dyn Stream>) -> u64 {
        assert!(self.holds_all(), "every stripe is held");
        self.space.journal().attach(stream)
    }

    /// Cuts the journal's stream: returns the number of the last record of a unit before this one. The stream hears of it
    /// ([`Stream::cut`]) between that record and the next, from whoever pumps; a message to the nodes, which needs no stripe, may
    /// still come between.
    ///
    /// # Panics
    /// Unless every stripe is held.
    pub fn cut_journal(&mut self) -> u64 {
        assert!(self.holds_all(), "every stripe is held");
        self.space.journal().cut()
    }

    /// Replaces all databases by those of a keyspace that [`Keyspace::unpublished`] made, whose users have ended and
    /// flushed their accounts. What was there before is flushed, and freed behind the unit.
    ///
    /// # Panics
    /// Unless every stripe is held, and unless [`Keyspace::may_publish`] says that they may be.
    pub fn publish(&mut self, local: &mut Local, loaded: &Keyspace) {
        assert!(self.holds_all(), "every stripe is held");
        let space = self.space;
        for db in space.used_databases() {
            let mut view = self.view(local, db, 0);
            view.database().flush();
            view.finish();
        }
        space.take_all_of(loaded);
    }

    /// Says whether a slot is served from now on. Units under its stripe have ended, or begin after it.
    ///
    /// # Panics
    /// Unless its stripe is held, or if the keyspace is not that of a cluster's node.
    pub fn set_served(&mut self, slot: u16, is_served: bool) {
        assert!(
            self.covers(Keyspace::stripe_of_slot(slot)),
            "the stripe of the slot is held"
        );
        self.space.slots.set_served(slot, is_served);
    }

    /// Hides the keys of a slot from whoever looks at all keys, or shows them.
    ///
    /// # Panics
    /// Unless its stripe is held, or if the keyspace is not that of a cluster's node.
    pub fn set_hidden(&mut self, slot: u16, is_hidden: bool) {
        assert!(
            self.covers(Keyspace::stripe_of_slot(slot)),
            "the stripe of the slot is held"
        );
        self.space.slots.set_hidden(slot, is_hidden);
    }

    /// Has the keys of a slot noted from now on that change, or no more: see [`Keyspace::take_changed_keys`].
    ///
    /// # Panics
    /// Unless its stripe is held, or if the keyspace is not that of a cluster's node.
    pub fn set_followed(&mut self, slot: u16, is_followed: bool) {
        assert!(
            self.covers(Keyspace::stripe_of_slot(slot)),
            "the stripe of the slot is held"
        );
        self.space.slots.set_followed(slot, is_followed);
    }

    /// Visits some keys of a slot from a place on, those that have expired and are still there included; returns the place
    /// behind them, or `None` at the end. Every key that is there from the first call to the last is visited.
    ///
    /// # Panics
    /// Unless the slot's stripe is held.
    pub fn visit_slot_from(
        &self,
        db: u32,
        slot: u16,
        from: u32,
        visit: &mut impl FnMut(&[u8]),
    ) -> Option<u32> {
        assert!(
            self.covers(Keyspace::stripe_of_slot(slot)),
            "the stripe of the slot is held"
        );
        let index = self.space.db(db)?.index_of(slot);
        index.scan(from, |pointer| {
            // SAFETY: the stripe is held, so the entry stays as it is during the visit.
            visit(unsafe { Entry::from_table(pointer).key() });
        })
    }

    /// Visits at most `count` keys of a slot, those that have expired and are still there included: it takes as long as
    /// the visits.
    ///
    /// # Panics
    /// Unless the slot's stripe is held.
    pub fn visit_slot(&self, db: u32, slot: u16, count: u64, mut visit: impl FnMut(&[u8])) {
        assert!(
            self.covers(Keyspace::stripe_of_slot(slot)),
            "the stripe of the slot is held"
        );
        let Some(db) = self.space.db(db) else {
            return;
        };
        let (mut left, mut from) = (count, Some(0));
        while left > 0
            && let Some(begin) = from
        {
            from = db.index_of(slot).scan(begin, |pointer| {
                if left > 0 {
                    left -= 1;
                    // SAFETY: the stripe is held, so the entry stays as it is during the visit.
                    visit(unsafe { Entry::from_table(pointer).key() });
                }
            });
        }
    }

    /// Returns the facts that a cut would fix now.
    ///
    /// # Panics
    /// Unless every stripe is held.
    pub fn counts(&self) -> Cut {
        assert!(self.holds_all(), "every stripe is held");
        snapshot::counts(self.space)
    }

    /// Cuts: begins a snapshot of everything as it is now, of which the caller has the [`Unit::counts`]. Returns false if
    /// one is being taken already.
    ///
    /// # Panics
    /// Unless every stripe is held.
    pub fn cut(&mut self, counts: &Cut, savers: Arc<dyn Savers>) -> bool {
        assert!(self.holds_all(), "every stripe is held");
        snapshot::cut(self.space, counts, savers)
    }

    /// Returns true if a client waits for this key, in any database.
    ///
    /// # Panics
    /// Unless its stripe is held.
    #[inline]
    pub fn is_waited_for(&self, key: &[u8], place: Place) -> bool {
        self.space.is_waited_for(self.held(), key, place)
    }

    /// Adds to `set` the stripes that the unit needs if it makes a key appear, to serve the clients that wait for it,
    /// and those that wait for keys that are written in serving them. Keys whose stripes are not held are not looked
    /// at, so the caller takes the wider set and asks again until it grows no more.
    pub fn widen(&self, key: &[u8], set: &mut StripeSet) {
        self.space.widen(self.held(), key, set);
    }

    /// Begins to watch a key of database `db` (WATCH), and returns whether the key exists. If it is stale, its removal
    /// is no change for this watcher. `None`: this flag's owner watches it already.
    pub fn watch(
        &mut self,
        db: u32,
        key: &[u8],
        flag: &Arc<WatchFlag>,
        now_ms: i64,
    ) -> Option<bool> {
        let stripe = self.held_stripe(key);
        let is_stale = self.is_stale(db, key, now_ms);
        let is_new = self.space.watch(stripe, db, key, flag, is_stale);
        is_new.then(|| !is_stale && entry_of(self.space, db, key).is_some())
    }

    /// Returns true if the key has expired by `now_ms` and has not been taken out. It stays.
    pub fn is_stale(&self, db: u32, key: &[u8], now_ms: i64) -> bool {
        self.held_stripe(key);
        let entry = entry_of(self.space, db, key);
        // SAFETY: the stripe is held.
        entry.is_some_and(|entry| unsafe { is_expired(entry, now_ms) })
    }

    /// Ends a watch.
    pub fn unwatch(&mut self, db: u32, key: &[u8], flag: &Arc<WatchFlag>) {
        let stripe = self.held_stripe(key);
        self.space.unwatch(stripe, db, key, flag);
    }

    fn held_stripe(&self, key: &[u8]) -> u16 {
        let stripe = self.space.place(key).stripe();
        assert!(
            self.covers(stripe),
            "a unit touched a key whose stripe it does not hold"
        );
        stripe
    }

    /// Puts a waiter into the queues of all its keys; the unit holds their stripes and has found nothing to serve it.
    pub fn wait(&mut self, waiter: &Arc<Waiter>) {
        for key in &waiter.keys {
            let stripe = self.held_stripe(key);
            self.space.join(stripe, key, waiter);
        }
    }

    /// Removes a waiter that has ended from the queue of one of its keys, whose stripe the unit holds.
    pub fn leave_queue(&mut self, waiter: &Arc<Waiter>, key: &[u8]) {
        let stripe = self.held_stripe(key);
        // SAFETY: the stripe is held; the reference ends with this function.
        let state = unsafe { self.space.stripe_state(stripe) };
        let queues = state.waiters.get(key).into_iter().flatten();
        let mut own = queues.filter(|queue| queue.db == waiter.db);
        let at = own.next().and_then(|queue| {
            queue
                .waiters
                .iter()
                .position(|other| Arc::ptr_eq(other, waiter))
        });
        if let Some(at) = at {
            self.space.remove_at(state, waiter.db, key, at);
        }
    }

    /// Returns the waiter at a place in a key's queue; those that have ended are removed on the way.
    pub fn waiter_at(&mut self, db: u32, key: &[u8], at: usize) -> Option<Arc<Waiter>> {
        let stripe = self.held_stripe(key);
        loop {
            // SAFETY: the stripe is held; the reference ends with this turn.
            let state = unsafe { self.space.stripe_state(stripe) };
            let queue = state
                .waiters
                .get(key)?
                .iter()
                .find(|queue| queue.db == db)?;
            let waiter = queue.waiters.get(at)?;
            if waiter.ended().is_none() {
                return Some(waiter.clone());
            }
            self.space.remove_at(state, db, key, at);
        }
    }

    /// Returns how many stand in a key's queue, and whether one of them is to know when the key goes. The key counts as
    /// looked after: the next change makes it ready again.
    pub fn begin_serving(&mut self, db: u32, key: &[u8]) -> (usize, bool) {
        let stripe = self.held_stripe(key);
        // SAFETY: the stripe is held; the reference ends with this function.
        let state = unsafe { self.space.stripe_state(stripe) };
        let mut queues = state.waiters.get_mut(key).into_iter().flatten();
        match queues.find(|queue| queue.db == db) {
            None => (0, false),
            Some(queue) => {
                queue.ready = false;
                (queue.waiters.len(), queue.when_gone > 0)
            }
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for Unit<'_> {
    fn drop(&mut self) {
        self.assert_recorded();
    }
}

#[cfg(test)]
mod tests {
    use redline_types::Limits;

    use super::*;
    use crate::{Classes, Expiry, journal::RecordReader, lock::NobodyWaits};

    fn keyspace() -> (Keyspace, Local) {
        let local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        (Keyspace::new(2, Box::new(NobodyWaits)), local)
    }

    fn set(unit: &mut Unit<'_>, local: &mut Local) {
        let mut view = unit.view(local, 0, 0);
        view.set_string(b"key", b"value", Expiry::Clear);
        view.changed(Classes::STRING, "set", b"key");
        view.finish_unreported();
    }

    #[test]
    fn a_unit_lets_go_by_commit_release_and_drop() {
        let (space, mut local) = keyspace();
        let stripe = space.place(b"key").stripe();
        let ends: [fn(Unit<'_>, &mut Local); 3] = [
            |unit, local| assert!(unit.commit(local).is_none()),
            |unit, _| unit.release(),
            |unit, _| drop(unit),
        ];
        for end in ends {
            let unit = Unit::try_one(&space, stripe).expect("free");
            assert!(Unit::try_one(&space, stripe).is_none());
            end(unit, &mut local);
            let all = Unit::try_set(&space, &StripeSet::all(), false).expect("free");
            assert!(Unit::try_one(&space, stripe).is_none());
            end(all, &mut local);
            let mut script = Unit::try_script(&space, 1).expect("free");
            script.add(stripe);
            assert!(script.covers(stripe) && !script.holds_all());
            assert!(Unit::try_one(&space, stripe).is_none());
            end(script, &mut local);
        }
        assert!(Unit::try_script(&space, 1).is_some());
        assert!(Unit::try_one(&space, stripe).is_some());
    }

    #[test]
    fn a_change_has_a_record_before_the_stripes_are_free() {
        let (space, mut local) = keyspace();
        let stream = RecordReader::new(|_| ());
        let from = space.try_attach_stream(Box::new(stream));
        let from = from.ok().expect("no stripe is in use");
        let mut unit = Unit::try_one(&space, space.place(b"key").stripe()).expect("free");
        let mut view = unit.view(&mut local, 0, 0);
        view.propagate(&[&b"SET"[..], b"key", b"value"]);
        assert_eq!(space.journal().last(), from);
        assert_eq!(unit.commit(&mut local), Some(from + 1));
        space.journal().detach();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "without a record")]
    fn a_change_that_is_dropped_without_a_record_is_found() {
        let (space, mut local) = keyspace();
        let mut unit = Unit::try_one(&space, space.place(b"key").stripe()).expect("free");
        set(&mut unit, &mut local);
    }

    #[test]
    fn what_was_loaded_replaces_what_was_there() {
        let (space, mut local) = keyspace();
        let all = || Unit::try_set(&space, &StripeSet::all(), false).expect("free");
        let mut unit = all();
        set(&mut unit, &mut local);
        unit.commit(&mut local);
        local.flush_account(&space);
        let before = space.used_bytes();
        let mut loaded = space.unpublished();
        let mut loader = Local::new(fastrand::Rng::with_seed(2), Limits::default());
        let mut unit = Unit::exclusive(&mut loaded);
        for (db, key) in [(0, b"a"), (1, b"b"), (1, b"c")] {
            let mut view = unit.view(&mut loader, db, 0);
            view.set_string(key, b"loaded", Expiry::Clear);
            view.finish_unreported();
        }
        drop(unit);
        loader.flush_account(&loaded);
        let mut unit = all();
        unit.publish(&mut local, &loaded);
        drop(unit);
        assert_eq!((space.key_count(0), space.key_count(1)), (1, 2));
        assert_eq!((loaded.key_count(0), loaded.key_count(1)), (0, 0));
        for flushed in std::mem::take(&mut local.flushed) {
            flushed.free(&space, &mut local.heap);
        }
        assert!(space.used_bytes() > before);
        assert_eq!(loaded.used_bytes(), loaded.fixed_bytes());
        let unit = Unit::try_one(&space, space.place(b"c").stripe()).expect("free");
        assert!(!unit.is_stale(1, b"c", 0) && entry_of(&space, 1, b"c").is_some());
    }

    #[test]
    fn whoever_has_the_keyspace_alone_needs_no_lock() {
        let (mut space, mut local) = keyspace();
        let mut unit = Unit::exclusive(&mut space);
        assert!(unit.holds_all());
        set(&mut unit, &mut local);
        drop(unit);
        assert_eq!(space.key_count(0), 1);
    }
}
