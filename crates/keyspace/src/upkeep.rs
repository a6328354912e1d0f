//! Maintenance of keys behind the commands: active expiry and compaction.
//!
//! Each step is a unit of its own: it takes one stripe, does a bounded amount of work, and releases it. A worker calls
//! the steps from its timer and decides from their results whether to go on; there is no clock in here. Must not know:
//! commands, threads, time.

use std::sync::atomic::{AtomicI64, Ordering};

use redline_table::{Index, heap};

use crate::{
    ahead::Ahead,
    entry::Entry,
    eviction::{Evicted, Eviction},
    lock::STRIPES,
    space::{Db, Keyspace, Local, Place, SLOTS_PER_STRIPE, slot_of},
    unit::Unit,
    view::View,
};

/// Number of entries that one expiry step looks at before it releases the stripe.
const EXPIRY_STEP_ENTRIES: usize = 128;

/// Number of elements of collections that one step removes before it releases the stripe.
const EXPIRY_STEP_ELEMENTS: usize = 256;

/// The kind of data that a cursor looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiring {
    /// Keys.
    Keys,
    /// Elements of collections: fields of hashes.
    Elements,
}

/// Position of active expiry: one per worker for keys and one for elements, each with stripes of its own.
#[derive(Debug)]
pub struct ExpiryCursor {
    what: Expiring,
    /// The first stripe that it visits, and how many further on the next one is.
    first: u16,
    step: u16,
    /// The current stripe and database.
    stripe: u16,
    db: u32,
    /// Place in the stripe's index where a walk that was too long for one step goes on; 0: at its begin.
    from: u32,
    /// The table that is being walked, if `from` is not 0.
    table: *const Db,
    /// The earliest time that this walk has met and that is not due yet: Unix time in milliseconds.
    next_expire_ms: i64,
    /// The earliest time that was met since [`ExpiryCursor::take_soonest_ms`].
    soonest_ms: i64,
    /// Walks that were given up, because the stripe was in use when they were to go on: the table and the stripe. Until
    /// they are walked again it is unknown what is due there.
    unfinished: Vec<(*const Db, u16)>,
}

// SAFETY: the pointers are compared, never followed.
unsafe impl Send for ExpiryCursor {}

/// Result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Entries looked at.
    pub checked: usize,
    /// Entries removed or moved.
    pub done: usize,
    /// The cursor has come round: all stripes have been visited since the last time this was set.
    pub round: bool,
}

impl ExpiryCursor {
    /// Makes the cursor of worker `index` of `workers`: it visits every `workers`-th stripe.
    pub fn new(what: Expiring, index: usize, workers: usize) -> ExpiryCursor {
        ExpiryCursor {
            what,
            first: (index % STRIPES) as u16,
            step: workers.clamp(1, STRIPES) as u16,
            stripe: (index % STRIPES) as u16,
            db: 0,
            from: 0,
            table: std::ptr::null(),
            next_expire_ms: i64::MAX,
            soonest_ms: i64::MAX,
            unfinished: Vec::new(),
        }
    }

    /// Returns the time before which nothing is due in the stripes that were visited since the last call, except what
    /// was added to them afterwards; `i64::MAX` if nothing has an expiry.
    pub fn take_soonest_ms(&mut self) -> i64 {
        std::mem::replace(&mut self.soonest_ms, i64::MAX)
    }

    /// Returns for each stripe the time before which nothing is due.
    fn next_ms<'a>(&self, db: &'a Db) -> &'a [AtomicI64] {
        match self.what {
            Expiring::Keys => &db.next_expire_ms,
            Expiring::Elements => &db.next_element_ms,
        }
    }

    /// Returns the entries of a stripe to search, and the time before which none is due.
    fn index<'a>(&self, db: &'a Db, stripe: u16) -> (&'a Index, &'a AtomicI64) {
        let state = &db.stripes[usize::from(stripe)];
        let index = match self.what {
            Expiring::Keys => &state.ttl,
            Expiring::Elements => &state.timed,
        };
        (index, &self.next_ms(db)[usize::from(stripe)])
    }

    /// Returns the time when an entry of that index is due. Safety: its stripe is held.
    unsafe fn due_ms(&self, entry: Entry) -> Option<i64> {
        // SAFETY: handed on from the caller.
        unsafe {
            match self.what {
                Expiring::Keys => entry.expire_at_ms(),
                Expiring::Elements => entry.earliest_expiry_ms(),
            }
        }
    }

    /// Gives up the walk of a stripe, if it has begun: it is repeated when the cursor comes to the table again.
    fn give_up(&mut self) {
        if self.from != 0 {
            self.unfinished.push((self.table, self.stripe));
            self.from = 0;
            self.next_expire_ms = i64::MAX;
        }
    }

    /// Returns true if a walk of this table's stripe was given up and is to be repeated.
    fn owes(&mut self, db: &Db) -> bool {
        let owed = (std::ptr::from_ref(db), self.stripe);
        !self.unfinished.is_empty() && self.unfinished.contains(&owed)
    }

    /// Goes on to the next stripe of the database, or to the next database. Returns true if it came round.
    #[inline]
    fn advance(&mut self, space: &Keyspace) -> bool {
        self.from = 0;
        self.next_expire_ms = i64::MAX;
        self.stripe = self.stripe.saturating_add(self.step);
        usize::from(self.stripe) >= STRIPES && self.leave_db(space)
    }

    /// Goes on to the next database that has been used. Returns true if it came round.
    fn leave_db(&mut self, space: &Keyspace) -> bool {
        self.stripe = self.first;
        let next = space.next_used_db(self.db + 1);
        self.db = next.unwrap_or(0);
        next.is_none()
    }
}

impl Keyspace {
    /// Makes one step of active expiry: goes on to the next stripe where something is due, walks some of its entries
    /// with an expiry (or with elements that have one), and removes those that are due. `publish` gets the events, and
    /// the unit that still holds the stripe.
    ///
    /// A worker does this ten times a second also where nothing expires, so the data that it reads lies close together:
    /// one time for each stripe, and nothing for databases that were never used.
    pub fn expire_step(
        &self,
        local: &mut Local,
        now_ms: i64,
        cursor: &mut ExpiryCursor,
        publish: &mut dyn FnMut(&mut Unit<'_>, &mut Local),
    ) -> Step {
        let mut step = Step::default();
        if !self.go_to_due(cursor, now_ms) {
            step.round = true;
            return step;
        }
        match Unit::try_one(self, cursor.stripe) {
            Some(unit) => self.expire_here(unit, local, now_ms, cursor, publish),
            None => {
                cursor.give_up();
                cursor.soonest_ms = cursor.soonest_ms.min(now_ms);
                step.round = cursor.advance(self);
                step
            }
        }
    }

    /// Does the step where the cursor is; the unit holds that stripe.
    fn expire_here(
        &self,
        mut unit: Unit<'_>,
        local: &mut Local,
        now_ms: i64,
        cursor: &mut ExpiryCursor,
        publish: &mut dyn FnMut(&mut Unit<'_>, &mut Local),
    ) -> Step {
        let mut step = Step::default();
        let stripe = cursor.stripe;
        // Looked up only now: before the stripe was taken the database may have been swapped, or flushed and its entries freed.
        let Some(db) = self.db(cursor.db) else {
            cursor.give_up();
            step.round = cursor.advance(self);
            return step;
        };
        if !std::ptr::eq(cursor.table, db) {
            cursor.give_up();
        }
        cursor.table = db;
        if cursor.from == 0 && !cursor.unfinished.is_empty() {
            cursor
                .unfinished
                .retain(|owed| *owed != (std::ptr::from_ref(db), stripe));
        }
        let (index, next_ms) = cursor.index(db, stripe);
        if cursor.from == 0 {
            // A change that sets an earlier expiry during the walk lowers this again.
            next_ms.store(i64::MAX, Ordering::Relaxed);
        }
        let mut due = Vec::new();
        let mut later_ms = i64::MAX;
        let mut from = Some(cursor.from);
        while let Some(at) = from.filter(|_| step.checked < EXPIRY_STEP_ENTRIES) {
            from = index.scan(at, |pointer| {
                let entry = Entry::from_table(pointer);
                step.checked += 1;
                // SAFETY: the stripe is held.
                match unsafe { cursor.due_ms(entry) } {
                    Some(at_ms) if at_ms < now_ms => due.push((entry, at)),
                    Some(at_ms) => later_ms = later_ms.min(at_ms),
                    None => {}
                }
            });
        }
        cursor.next_expire_ms = cursor.next_expire_ms.min(later_ms);
        let mut view = unit.view(local, cursor.db, now_ms);
        match cursor.what {
            Expiring::Keys => {
                step.done = due.len();
                self.remove_keys(&mut view, cursor.db, due.iter().map(|(entry, _)| *entry));
            }
            Expiring::Elements => {
                for (entry, at) in due {
                    step.done += view.expire_elements(entry, EXPIRY_STEP_ELEMENTS - step.done);
                    view.record();
                    if step.done >= EXPIRY_STEP_ELEMENTS {
                        // There may be more: the next step looks here again, also if that is where the walk began.
                        from = Some(at);
                        if at == 0 {
                            next_ms.store(i64::MIN, Ordering::Relaxed);
                        }
                        break;
                    }
                }
            }
        }
        if !local.events.is_empty() || !local.ready.is_empty() {
            publish(&mut unit, local);
        }
        match from {
            Some(next) => cursor.from = next,
            None => {
                let lowered = next_ms.load(Ordering::Relaxed);
                let next = lowered.min(cursor.next_expire_ms);
                next_ms.store(next, Ordering::Relaxed);
                cursor.soonest_ms = cursor.soonest_ms.min(next);
                step.round = cursor.advance(self);
            }
        }
        step
    }

    /// Goes on to the next stripe where something is due. Returns false if it came round, or had no further to go. Holds no
    /// stripe, so the next moment another table may be there.
    fn go_to_due(&self, cursor: &mut ExpiryCursor, now_ms: i64) -> bool {
        loop {
            let came_round = match self.db(cursor.db) {
                None => {
                    cursor.give_up();
                    cursor.leave_db(self)
                }
                Some(db) => {
                    let next = &cursor.next_ms(db)[usize::from(cursor.stripe)];
                    let next = next.load(Ordering::Relaxed);
                    if cursor.from != 0 || next < now_ms || cursor.owes(db) {
                        return true;
                    }
                    cursor.soonest_ms = cursor.soonest_ms.min(next);
                    cursor.advance(self)
                }
            };
            if came_round {
                return false;
            }
        }
    }

    /// Removes keys that are due, of a stripe that the view holds.
    fn remove_keys(&self, view: &mut View<'_>, db: u32, due: impl Iterator<Item = Entry>) {
        let due: Vec<(Place, Entry)> = due
            // SAFETY: the stripe is held.
            .map(|entry| (self.place(unsafe { entry.key() }), entry))
            .collect();
        // As a batch of requests does: a step towards all entries before the next.
        let ahead = due.iter().map(|(place, _)| self.ahead(db, *place));
        let mut ahead: Vec<Ahead> = ahead.collect();
        Ahead::fetch(&mut ahead);
        for (place, entry) in due {
            // Each is removed once.
            view.entries.expire(db, place.hash(), entry);
            view.record();
        }
    }

    /// Returns true if more memory is used than `maxmemory` allows.
    #[inline]
    pub fn over_limit(&self) -> bool {
        let limit = self.settings.maxmemory_bytes.load(Ordering::Relaxed);
        limit != 0 && self.used_bytes() > limit
    }

    /// Evicts one key by the policy; holds nothing before and after. `publish`: as for [`Keyspace::expire_step`].
    pub fn evict_one(
        &self,
        local: &mut Local,
        now_ms: i64,
        publish: &mut dyn FnMut(&mut Unit<'_>, &mut Local),
    ) -> Evicted {
        Eviction::new(self).run(local, now_ms, publish)
    }

    /// Makes one step of a running compaction ([`heap::Compaction`]): moves the entries of one stripe that lie in
    /// memory to be vacated. `stripe` is the walk's cursor; the walk is over when it reaches [`STRIPES`]. A stripe in
    /// use is tried again at the next call.
    pub fn compact_step(&self, local: &mut Local, stripe: &mut usize) -> Step {
        let mut step = Step::default();
        let here = *stripe as u16;
        let Some(_held) = self.locks.try_one(here) else {
            return step;
        };
        for db in self.used_databases().filter_map(|db| self.db(db)) {
            self.compact_stripe(db, local, here, &mut step);
        }
        *stripe += 1;
        step.round = *stripe >= STRIPES;
        step
    }

    fn compact_stripe(&self, db: &Db, local: &mut Local, stripe: u16, step: &mut Step) {
        let first = usize::from(stripe) * SLOTS_PER_STRIPE;
        let mut moving = Vec::new();
        for index in &db.slots[first..first + SLOTS_PER_STRIPE] {
            step.checked += index.len();
            index.for_each(|pointer| {
                if heap::is_evacuating(pointer) {
                    moving.push(Entry::from_table(pointer));
                }
            });
            index.compact();
        }
        db.stripes[usize::from(stripe)].ttl.compact();
        db.stripes[usize::from(stripe)].timed.compact();
        step.done += moving.len();
        for entry in moving {
            // SAFETY: the stripe is held; the old entry leaves the tables with `rebuild`.
            unsafe {
                let hash = self.place(entry.key()).hash();
                let expire_at_ms = entry.expire_at_ms();
                let is_timed = entry.earliest_expiry_ms().is_some();
                let fresh = entry.rebuild(&mut local.heap, expire_at_ms);
                db.slots[slot_of(hash)].replace(hash, entry.pointer(), fresh.pointer());
                if expire_at_ms.is_some() {
                    let ttl = &db.stripes[usize::from(stripe)].ttl;
                    ttl.replace(hash, entry.pointer(), fresh.pointer());
                }
                if is_timed {
                    let timed = &db.stripes[usize::from(stripe)].timed;
                    timed.replace(hash, entry.pointer(), fresh.pointer());
                }
            }
        }
    }
}

/// Keyspaces of tests of expiry and eviction.
#[cfg(test)]
pub(crate) mod testing {
    use redline_types::Limits;

    use crate::{
        lock::NobodyWaits,
        space::{Keyspace, Local},
        unit::Unit,
        view::Expiry,
    };

    pub(crate) const NOW_MS: i64 = 1_000_000;

    pub(crate) fn keyspace() -> (Keyspace, Local) {
        let local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        (Keyspace::new(2, Box::new(NobodyWaits)), local)
    }

    /// Takes the stripe of a key.
    pub(crate) fn take<'k>(space: &'k Keyspace, key: &[u8]) -> Option<Unit<'k>> {
        Unit::try_one(space, space.place(key).stripe())
    }

    pub(crate) fn set(space: &Keyspace, local: &mut Local, key: &[u8], expiry: Expiry) {
        let mut unit = take(space, key).expect("nobody else is here");
        let mut view = unit.view(local, 0, NOW_MS);
        view.set_string(key, b"value", expiry);
        view.finish_unreported();
        unit.commit(local);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        testing::{NOW_MS, keyspace, set, take},
        *,
    };
    use crate::{
        lock::{NobodyWaits, StripeSet},
        notify::Classes,
        view::{Expiry, entry_of},
    };
    use redline_types::{Hash, Limits};

    /// With a million databases a server without a request took 5 % of a CPU to look for tables ten times a second.
    #[test]
    fn only_databases_that_were_used_are_gone_over() {
        let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        let space = Keyspace::new(300, Box::new(NobodyWaits));
        let used = || space.used_databases().collect::<Vec<_>>();
        assert!(used().is_empty());
        let key = b"k";
        for db in [299, 63, 64, 128] {
            let mut unit = take(&space, key).expect("nobody else is here");
            let mut view = unit.view(&mut local, db, NOW_MS);
            view.set_string(key, b"value", Expiry::AtMs(NOW_MS + 1));
            view.finish_unreported();
            unit.commit(&mut local);
        }
        assert_eq!(used(), [63, 64, 128, 299]);
        let mut cursor = ExpiryCursor::new(Expiring::Keys, 0, 1);
        while !space
            .expire_step(&mut local, NOW_MS + 9, &mut cursor, &mut |_, _| ())
            .round
        {}
        assert!(used().iter().all(|db| space.key_count(*db) == 0));
        space.swap_dbs(64, 0);
        assert_eq!(used(), [0, 63, 64, 128, 299]);
    }

    #[test]
    fn fields_expire_by_themselves_and_the_last_takes_its_key_along() {
        const FIELDS: usize = 3 * EXPIRY_STEP_ELEMENTS;
        const START_MS: i64 = 1_700_000_000_000;
        let (space, mut local) = keyspace();
        local.notify = Classes::ALL;
        // A table whose fields all go, another of which one stays, and packed ones by the hundred.
        let field = |n: usize| format!("f{n}").into_bytes();
        let make = |local: &mut Local, key: &[u8], fields: usize, stays: bool| {
            let mut unit = take(&space, key).expect("nobody else is here");
            let mut view = unit.view(local, 0, START_MS);
            view.write_or_new::<Hash, _>(key, |hash, limits| {
                for n in 0..fields {
                    hash.set(&field(n), b"v", limits);
                    hash.set_expire_at_ms(&field(n), Some(START_MS + 1 + n as i64 % 50));
                }
                if stays {
                    hash.set(b"stays", b"v", limits);
                }
            })
            .unwrap();
            view.finish_unreported();
            unit.commit(local);
        };
        make(&mut local, b"goes", FIELDS, false);
        make(&mut local, b"stays", FIELDS, true);
        for n in 0..500usize {
            make(&mut local, &field(n), 3, n % 2 == 0);
        }
        assert_eq!(space.timed_key_count(0), 502);
        let mut cursor = ExpiryCursor::new(Expiring::Elements, 0, 1);
        let mut round = |local: &mut Local, now_ms| {
            let mut done = 0;
            loop {
                let step = space.expire_step(local, now_ms, &mut cursor, &mut |_, _| ());
                assert!(step.done <= EXPIRY_STEP_ELEMENTS + 1);
                done += step.done;
                if step.round {
                    return done;
                }
            }
        };
        assert_eq!(round(&mut local, START_MS + 1), 0, "not yet");
        assert_eq!(round(&mut local, START_MS + 1_000), 2 * FIELDS + 1_500);
        assert_eq!(round(&mut local, START_MS + 2_000), 0);
        assert_eq!(space.key_count(0), 251);
        assert_eq!(space.timed_key_count(0), 0);
        let events: Vec<_> = local.events.drain(..).map(|event| event.name).collect();
        let count = |name| events.iter().filter(|event| **event == name).count();
        assert_eq!(count("del"), 251);
        assert!(count("hexpired") >= 502);
        assert_eq!(local.expired_elements, (2 * FIELDS + 1_500) as u64);
    }

    #[test]
    fn a_walk_given_up_for_a_stripe_in_use_is_made_up_for() {
        let (space, mut local) = keyspace();
        let keys = (0u32..)
            .map(u32::to_le_bytes)
            .filter(|key| space.place(key).stripe() == 3);
        for key in keys.take(3 * EXPIRY_STEP_ENTRIES) {
            set(&space, &mut local, &key, Expiry::AtMs(NOW_MS + 1));
        }
        let later = NOW_MS + 100;
        let mut cursor = ExpiryCursor::new(Expiring::Keys, 0, 1);
        let mut steps = |cursor: &mut ExpiryCursor, enough: fn(Step) -> bool| {
            while !enough(space.expire_step(&mut local, later, cursor, &mut |_, _| ())) {}
        };
        steps(&mut cursor, |step| step.done > 0);
        let left = space.key_count(0);
        assert!(left > 0, "the walk stands in the middle of the stripe");
        let held = Unit::try_one(&space, 3).expect("nobody else is here");
        steps(&mut cursor, |step| step.round);
        assert_eq!(space.key_count(0), left);
        drop(held);
        steps(&mut cursor, |step| step.round);
        steps(&mut cursor, |step| step.round);
        assert_eq!(space.key_count(0), 0);
    }

    /// Does something to database 0 as SWAPDB and FLUSHDB do.
    fn with_all(space: &Keyspace, local: &mut Local, act: impl FnOnce(&mut View<'_>)) {
        let all = Unit::try_set(space, &StripeSet::all(), false);
        let mut unit = all.expect("nobody else is here");
        let mut view = unit.view(local, 0, NOW_MS);
        act(&mut view);
        view.finish();
        unit.commit(local);
    }

    /// Active expiry then took the entry out of neither table, counted a key less in the wrong one, and freed what the other
    /// still referred to.
    #[test]
    fn a_database_swapped_or_flushed_before_its_stripe_is_taken_is_not_expired_as_it_was() {
        let is_there = |space: &Keyspace, db| entry_of(space, db, b"key").is_some();
        for flushes in [false, true] {
            let (space, mut local) = keyspace();
            set(&space, &mut local, b"key", Expiry::AtMs(NOW_MS + 1));
            with_all(&space, &mut local, |view| {
                let set = |view: &mut View<'_>| view.set_string(b"key", b"value", Expiry::Clear);
                view.in_db(1, set);
                view.in_db(1, |view| view.unreported(b"key"));
            });
            let mut cursor = ExpiryCursor::new(Expiring::Keys, 0, 1);
            assert!(space.go_to_due(&mut cursor, NOW_MS + 9));
            assert_eq!(cursor.stripe, space.place(b"key").stripe());
            with_all(&space, &mut local, |view| match flushes {
                true => assert_eq!(view.database().flush(), 1),
                false => view.database().swap(1),
            });
            let unit = take(&space, b"key").expect("nobody else is here");
            let step = space.expire_here(unit, &mut local, NOW_MS + 9, &mut cursor, &mut |_, _| ());
            assert_eq!(step.done, 0);
            let there = [0, 1].map(|db| is_there(&space, db));
            assert_eq!(there, [!flushes, true]);
            let mut steps =
                || space.expire_step(&mut local, NOW_MS + 9, &mut cursor, &mut |_, _| ());
            while !steps().round {}
            while !steps().round {}
            let left = u64::from(flushes);
            assert_eq!(
                [0, 1].map(|db| is_there(&space, db)),
                [left == 0, left == 1]
            );
            assert_eq!([space.key_count(0), space.key_count(1)], [1 - left, left]);
            for flushed in std::mem::take(&mut local.flushed) {
                flushed.free(&space, &mut local.heap);
            }
        }
    }

    /// The part that the walk had not come to was looked for only when something else in that stripe was due.
    #[test]
    fn a_walk_whose_database_is_swapped_in_its_middle_is_made_up_for() {
        let (space, mut local) = keyspace();
        let keys = (0u32..)
            .map(u32::to_le_bytes)
            .filter(|key| space.place(key).stripe() == 3);
        for key in keys.take(3 * EXPIRY_STEP_ENTRIES) {
            set(&space, &mut local, &key, Expiry::AtMs(NOW_MS + 1));
        }
        let mut cursor = ExpiryCursor::new(Expiring::Keys, 0, 1);
        let step = |local: &mut Local, cursor: &mut ExpiryCursor| {
            space.expire_step(local, NOW_MS + 100, cursor, &mut |_, _| ())
        };
        while step(&mut local, &mut cursor).done == 0 {}
        assert!(
            space.key_count(0) > 0,
            "the walk stands in the middle of the stripe"
        );
        with_all(&space, &mut local, |view| view.database().swap(1));
        assert!(space.key_count(0) == 0 && space.key_count(1) > 0);
        while !step(&mut local, &mut cursor).round {}
        while !step(&mut local, &mut cursor).round {}
        assert_eq!(space.key_count(1), 0);
    }

    #[test]
    fn a_round_says_when_the_next_thing_is_due() {
        let (space, mut local) = keyspace();
        for (key, expiry) in [
            (b"never", Expiry::Clear),
            (b"later", Expiry::AtMs(NOW_MS + 50)),
            (b"soon!", Expiry::AtMs(NOW_MS + 5)),
        ] {
            set(&space, &mut local, key, expiry);
        }
        let mut cursor = ExpiryCursor::new(Expiring::Keys, 0, 1);
        let mut round = |now_ms| {
            let mut step = || space.expire_step(&mut local, now_ms, &mut cursor, &mut |_, _| ());
            while !step().round {}
            cursor.take_soonest_ms()
        };
        assert_eq!(round(NOW_MS), NOW_MS + 5);
        assert_eq!(round(NOW_MS + 10), NOW_MS + 50);
        let held = take(&space, b"later").expect("nobody else is here");
        assert_eq!(round(NOW_MS + 60), NOW_MS + 60, "the stripe is in use");
        drop(held);
        assert_eq!(round(NOW_MS + 70), i64::MAX);
        assert_eq!(space.key_count(0), 1);
    }
}
