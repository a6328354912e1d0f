//! The keyspace: databases of 16,384 slots, and the state of stripes.
//!
//! Must not know: commands, sessions. Access to a slot goes through a unit that holds its stripe
//! ([`crate::View`]); this file owns the memory that those stripes guard.

mod labels;
mod slots;
mod tables;

use std::{
    cell::{Cell, RefCell, UnsafeCell},
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering},
    },
};

pub(crate) use labels::LabelIndex;
pub use labels::{LabelledKey, Matcher, Wanted as WantedLabel};
pub use redline_table::hash::SLOTS;
pub(crate) use redline_table::hash::slot as slot_of;
use redline_table::{Heap, Index};
use redline_types::Limits;
pub use slots::SLOT_KEYS_MAX;
use slots::Slots;

use crate::{
    entry::{Entry, Garbage},
    journal::{Effects, Journal, Stream, Words, Writer},
    lock::{Locks, NobodyWaits, STRIPES, StripeSet, Wake},
    notify::{Classes, Events},
    opened::Opened,
    policy::{Clock, EvictionPool, Policy},
    snapshot::{self, CutState, Share, Slice, Snapshots},
    unit::Unit,
    wait::{Queue, Ready},
    watch::Watcher,
};

pub(crate) const SLOTS_PER_STRIPE: usize = SLOTS / STRIPES;

/// Place of a key: its hash, which says its slot and its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub(crate) u64);

impl Place {
    /// Returns the number of the stripe that guards the key.
    #[inline]
    pub fn stripe(self) -> u16 {
        stripe_of(self.0)
    }

    #[inline]
    pub(crate) fn hash(self) -> u64 {
        self.0
    }
}

/// Returns the stripe that guards a slot.
#[inline]
pub(crate) fn stripe_of_slot(slot: usize) -> u16 {
    (slot / SLOTS_PER_STRIPE) as u16
}

/// Returns the stripe of a key whose hash is given.
#[inline]
pub(crate) fn stripe_of(hash: u64) -> u16 {
    stripe_of_slot(slot_of(hash))
}

/// Settings that workers read at every unit and CONFIG SET may change at any time.
pub struct Settings {
    /// Limit on [`Keyspace::used_bytes`]; 0: none.
    pub maxmemory_bytes: AtomicU64,
    /// A [`Policy`], as its number.
    pub policy: AtomicU32,
    /// Number of keys that are looked at for one victim (`maxmemory-samples`).
    pub samples: AtomicU32,
    /// `lfu-log-factor`.
    pub lfu_log_factor: AtomicU32,
    /// `lfu-decay-time` in minutes.
    pub lfu_decay_minutes: AtomicU32,
    /// Wanted keyspace events: [`Classes`] bits.
    pub notify: AtomicU32,
}

/// All databases, their locks and their accounts. Shared by all workers.
pub struct Keyspace {
    pub(crate) locks: Locks,
    pub(crate) dbs: Box<[AtomicPtr<Db>]>,
    /// A bit for each database: whether there may be a table. It stays when that is taken out.
    used_dbs: Box<[AtomicU64]>,
    stripes: Box<[StripeCell]>,
    /// Tables of flushed databases, empty again. They are reused and never freed, because the lock-free prefetch of
    /// another worker may still read one.
    spare: Mutex<Vec<&'static Db>>,
    /// See [`Settings`].
    pub settings: Settings,
    /// See [`Keyspace::fixed_bytes`].
    fixed_bytes: u64,
    /// The fixed bytes, and those of entries and values, the workers' unflushed steps aside.
    bytes: OwnLine<AtomicI64>,
    /// Number of watched keys over all stripes, and of clients that track keys: at 0 no registry is searched.
    pub(crate) watched: AtomicU64,
    /// Clients that track keys.
    pub(crate) tracked: AtomicU64,
    /// Number of places in queues over all stripes: at 0 no queue is searched (`wait.rs`).
    pub(crate) waits: AtomicU64,
    /// Number of queues, over all stripes.
    pub(crate) waited_keys: AtomicU64,
    /// Number of queues with a client that wants to know when the key goes.
    pub(crate) waited_keys_gone: AtomicU64,
    pub(crate) journal: Journal,
    pub(crate) snapshots: Snapshots,
    pub(crate) slots: Slots,
}

/// A word that workers write often, apart from those that they read at every command.
#[repr(align(128))]
struct OwnLine<T>(T);

/// One database.
pub(crate) struct Db {
    /// A slot's keys, in the order of their hashes.
    pub(crate) slots: Box<[Index]>,
    pub(crate) stripes: Box<[DbStripe]>,
    /// No key of the stripe expires before this time; apart from the rest, since active expiry goes over all of it.
    pub(crate) next_expire_ms: Box<[AtomicI64]>,
    /// No element of a collection in the stripe expires before this time.
    pub(crate) next_element_ms: Box<[AtomicI64]>,
    /// Keys whose value is a vector set, which only late versions of files hold. Changed under the key's stripe.
    pub(crate) vector_sets: AtomicU64,
    /// Keys by the labels of their values.
    pub(crate) labels: LabelIndex,
    /// The part in a snapshot.
    pub(crate) cut: CutState,
}

/// The state of a database per stripe.
pub(crate) struct DbStripe {
    /// Keys in the stripe's slots. Written under the stripe, read by DBSIZE without it.
    pub(crate) keys: AtomicU32,
    /// The entries that have an expiry.
    pub(crate) ttl: Index,
    /// The entries whose collection has elements that expire.
    pub(crate) timed: Index,
}

/// The state of a stripe across databases.
#[derive(Default)]
struct StripeCell(UnsafeCell<StripeState>);

/// A database and a key in it.
type WatchedKey = (u32, Box<[u8]>);

#[derive(Default)]
pub(crate) struct StripeState {
    /// The watchers of the stripe's keys, by database and key.
    pub(crate) watchers: HashMap<WatchedKey, Vec<Watcher>>,
    /// The queues of clients that wait for the stripe's keys, by key; each queue belongs to one database.
    pub(crate) waiters: HashMap<Box<[u8]>, Vec<Queue>>,
}

// SAFETY: the cells are reached through `stripe_state` only, and entries through a unit, both by holders of the
// stripe that guards them; everything else is atomic or behind a mutex. `Value`s and `Blob`s are Send.
unsafe impl Sync for Keyspace {}
// SAFETY: as above; nothing in it is bound to a thread.
unsafe impl Send for Keyspace {}

impl Keyspace {
    /// Makes an empty keyspace of `databases` databases. Memory for a database comes with its first key.
    pub fn new(databases: usize, wake: Box<dyn Wake>) -> Keyspace {
        Keyspace::with_locks(databases, Locks::new(wake))
    }

    /// Makes an empty keyspace that only one thread uses; its locks are cheaper: see [`Locks::of_one_thread`].
    pub fn of_one_thread(databases: usize, wake: Box<dyn Wake>) -> Keyspace {
        Keyspace::with_locks(databases, Locks::of_one_thread(wake))
    }

    /// Makes an empty keyspace, to be filled out of reach of clients and then published: see [`Unit::publish`]. Any
    /// number of threads may fill it, also where this one is of one thread. A snapshot that is cut in between must have
    /// ended before: see [`Keyspace::may_publish`].
    pub fn unpublished(&self) -> Keyspace {
        let mut other = Keyspace::new(self.dbs.len(), Box::new(NobodyWaits));
        if self.is_of_cluster() {
            other = other.of_cluster();
        }
        other.snapshots.take_phase_of(&self.snapshots);
        other
    }

    fn with_locks(databases: usize, locks: Locks) -> Keyspace {
        let stripes: Box<[StripeCell]> = (0..STRIPES).map(|_| StripeCell::default()).collect();
        let fixed_bytes = locks.fixed_bytes() + size_of_val(&*stripes);
        Keyspace {
            locks,
            dbs: (0..databases).map(|_| AtomicPtr::default()).collect(),
            used_dbs: (0..databases.div_ceil(64))
                .map(|_| AtomicU64::default())
                .collect(),
            stripes,
            fixed_bytes: fixed_bytes as u64,
            spare: Mutex::new(Vec::new()),
            settings: Settings {
                maxmemory_bytes: AtomicU64::new(0),
                policy: AtomicU32::new(Policy::NoEviction as u32),
                samples: AtomicU32::new(5),
                lfu_log_factor: AtomicU32::new(10),
                lfu_decay_minutes: AtomicU32::new(1),
                notify: AtomicU32::new(0),
            },
            bytes: OwnLine(AtomicI64::new(fixed_bytes as i64)),
            watched: AtomicU64::new(0),
            tracked: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            waited_keys: AtomicU64::new(0),
            waited_keys_gone: AtomicU64::new(0),
            journal: Journal::default(),
            snapshots: Snapshots::default(),
            slots: Slots::none(),
        }
    }

    /// Returns the place of a key. The only function that decides on it.
    #[inline]
    pub fn place(&self, key: &[u8]) -> Place {
        let hash = redline_table::hash(key);
        if self.slots.by_key() {
            return self.place_by_slot(key, hash);
        }
        Place(hash)
    }

    /// Returns the locks, for sessions that wait for them.
    #[inline]
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Returns the journal of effects.
    #[inline]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Attaches a stream to the journal, between two units; returns the number after which it begins. Gives the stream back
    /// if a stripe is in use. (A holder of all stripes calls [`Unit::attach_stream`].)
    pub fn try_attach_stream(&self, stream: Box<dyn Stream>) -> Result<u64, Box<dyn Stream>> {
        match Unit::try_set(self, &StripeSet::all(), false) {
            Ok(mut unit) => Ok(unit.attach_stream(stream)),
            Err(_) => Err(stream),
        }
    }

    /// Writes a unit's record: see [`Unit::record`].
    #[inline]
    pub(crate) fn record(&self, local: &mut Local) -> Option<u64> {
        if local.effects.get_mut().is_empty() {
            return None;
        }
        self.write_record(local)
    }

    #[inline(never)]
    fn write_record(&self, local: &mut Local) -> Option<u64> {
        let effects = local.effects.get_mut();
        if !self.journal.is_attached() {
            effects.give_up(); // the stream ended while the unit ran
            return None;
        }
        Some(effects.commit(&self.journal))
    }

    /// Returns true while a snapshot is being taken: until its last share is handed in.
    pub fn is_snapshot_running(&self) -> bool {
        self.snapshots.is_running()
    }

    /// Does a worker's part of a snapshot's walk until `go_on`, asked after every few entries, returns false. Called between
    /// units.
    pub fn snapshot_slice(&self, local: &mut Local, mut go_on: impl FnMut() -> bool) -> Slice {
        snapshot::slice(self, local, &mut go_on)
    }

    /// Returns the number of databases.
    pub fn databases(&self) -> u32 {
        self.dbs.len() as u32
    }

    /// Returns the databases that have been used, in order; the others have no keys. There may be a million, and some
    /// callers go over all of them many times a second.
    pub fn used_databases(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.next_used_db(0), |db| self.next_used_db(db + 1))
    }

    /// Returns the first database from `first` on that has been used.
    pub(crate) fn next_used_db(&self, first: u32) -> Option<u32> {
        let mut wanted = !0u64 << (first % 64);
        for (place, word) in (self.used_dbs.iter().enumerate()).skip(first as usize / 64) {
            let used = word.load(Ordering::Relaxed) & wanted;
            if used != 0 {
                return Some(place as u32 * 64 + used.trailing_zeros());
            }
            wanted = !0;
        }
        None
    }

    fn note_used(&self, db: u32) {
        self.used_dbs[db as usize / 64].fetch_or(1 << (db % 64), Ordering::Relaxed);
    }

    /// Returns the number of keys of a database, without those of hidden slots. Exact when no unit is running, and inside one that holds all stripes.
    pub fn key_count(&self, db: u32) -> u64 {
        let all: u64 = self.db(db).map_or(0, |db| {
            db.stripes
                .iter()
                .map(|stripe| u64::from(stripe.keys.load(Ordering::Relaxed)))
                .sum()
        });
        all.saturating_sub(self.hidden_key_count(db))
    }

    /// Returns the number of keys of a database that have an expiry.
    pub fn expiring_key_count(&self, db: u32) -> u64 {
        self.db(db).map_or(0, |db| {
            db.stripes
                .iter()
                .map(|stripe| stripe.ttl.len() as u64)
                .sum()
        })
    }

    /// Returns the number of keys of a database whose collection has elements that expire.
    pub fn timed_key_count(&self, db: u32) -> u64 {
        self.db(db).map_or(0, |db| {
            db.stripes
                .iter()
                .map(|stripe| stripe.timed.len() as u64)
                .sum()
        })
    }

    /// Returns the bytes of a database's tables: of that of its keys, and of those of what expires. They are part of
    /// [`Keyspace::used_bytes`], but for the fixed part that a database takes with its first key. Goes over all slots.
    pub fn table_bytes(&self, db: u32) -> (u64, u64) {
        let Some(db) = self.db(db) else {
            return (0, 0);
        };
        let keys = db.slots.iter().map(|index| index.table_bytes() as u64);
        let expiring = db.stripes.iter().map(|stripe| {
            let bytes = stripe.ttl.table_bytes() + stripe.timed.table_bytes();
            bytes as u64
        });
        (keys.sum(), expiring.sum())
    }

    /// Returns the number of bytes that an empty keyspace takes: its locks, and the state of stripes across databases.
    /// They are part of [`Keyspace::used_bytes`].
    pub fn fixed_bytes(&self) -> u64 {
        self.fixed_bytes
    }

    /// Returns the number of bytes that the keyspace takes, with keys, values and their tables: `maxmemory` limits
    /// them. Each worker may hold back up to [`MEMORY_STEP_BYTES`].
    pub fn used_bytes(&self) -> u64 {
        self.bytes.0.load(Ordering::Relaxed).max(0) as u64
    }

    #[inline]
    pub(crate) fn db(&self, db: u32) -> Option<&'static Db> {
        // SAFETY: a table, once published, is never freed (see `spare`).
        unsafe { self.dbs[db as usize].load(Ordering::Acquire).as_ref() }
    }

    /// Returns the database's table, made if it does not exist yet.
    #[inline]
    pub(crate) fn db_or_create(&self, db: u32) -> &'static Db {
        match self.db(db) {
            Some(table) => table,
            None => self.create_db(db),
        }
    }

    #[cold]
    fn create_db(&self, db: u32) -> &'static Db {
        let mut spare = self
            .spare
            .lock()
            .expect("no panic under the list of spare tables");
        if let Some(table) = self.db(db) {
            return table; // another worker was faster
        }
        let table = spare
            .pop()
            .unwrap_or_else(|| Box::leak(Box::new(Db::new())));
        self.note_used(db);
        self.dbs[db as usize].store(std::ptr::from_ref(table).cast_mut(), Ordering::Release);
        table
    }

    /// Removes and returns a database's table; the caller holds all stripes. Its contents are freed by
    /// [`Flushed::free`], behind the command.
    pub(crate) fn take_db(&self, db: u32) -> Option<Flushed> {
        let pointer = self.dbs[db as usize].swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: a table, once published, is never freed.
        let db = unsafe { pointer.as_ref() }?;
        db.cut.is_flushed.store(true, Ordering::Relaxed);
        Some(Flushed(db))
    }

    /// Returns true if the databases may be replaced by those of a keyspace that [`Keyspace::unpublished`] made: a snapshot
    /// that was cut since then has ended. The caller holds all stripes.
    pub fn may_publish(&self, loaded: &Keyspace) -> bool {
        self.snapshots.phase() == loaded.snapshots.phase() || !self.is_snapshot_running()
    }

    /// Puts the tables of another keyspace in the place of its own, which are none; the caller holds all stripes.
    pub(crate) fn take_all_of(&self, other: &Keyspace) {
        assert!(
            self.may_publish(other),
            "no snapshot is taken that was cut since the keyspace was made"
        );
        // Nothing is left that has the own phase.
        self.snapshots.take_phase_of(&other.snapshots);
        for db in other.used_databases() {
            let table = other.dbs[db as usize].swap(std::ptr::null_mut(), Ordering::AcqRel);
            if !table.is_null() {
                self.note_used(db);
                let before = self.dbs[db as usize].swap(table, Ordering::AcqRel);
                assert!(before.is_null(), "the database was emptied");
            }
        }
        self.account(other.bytes.0.load(Ordering::Relaxed) - other.fixed_bytes as i64);
        other
            .bytes
            .0
            .store(other.fixed_bytes as i64, Ordering::Relaxed);
    }

    pub(crate) fn swap_dbs(&self, a: u32, b: u32) {
        self.note_used(a);
        self.note_used(b);
        let first = self.dbs[a as usize].load(Ordering::Acquire);
        let second = self.dbs[b as usize].swap(first, Ordering::AcqRel);
        self.dbs[a as usize].store(second, Ordering::Release);
    }

    /// # Safety
    /// The caller holds the stripe and lets no other reference to its state live.
    #[expect(
        clippy::mut_from_ref,
        reason = "the stripe lock is what makes it exclusive"
    )]
    pub(crate) unsafe fn stripe_state(&self, stripe: u16) -> &mut StripeState {
        // SAFETY: the caller is the only one to use it.
        unsafe { &mut *self.stripes[usize::from(stripe)].0.get() }
    }

    pub(crate) fn account(&self, bytes: i64) {
        self.bytes.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Db {
    fn new() -> Db {
        Db {
            // SAFETY: views use a slot only while they hold its stripe (prefetches and lengths apart), and a
            // flushed database has one owner.
            slots: unsafe { Index::slots(SLOTS) },
            stripes: (0..STRIPES)
                .map(|_| DbStripe {
                    keys: AtomicU32::new(0),
                    // SAFETY: as the slots.
                    ttl: unsafe { Index::new() },
                    // SAFETY: as the slots.
                    timed: unsafe { Index::new() },
                })
                .collect(),
            next_expire_ms: (0..STRIPES).map(|_| AtomicI64::new(i64::MAX)).collect(),
            next_element_ms: (0..STRIPES).map(|_| AtomicI64::new(i64::MAX)).collect(),
            vector_sets: AtomicU64::new(0),
            labels: LabelIndex::default(),
            cut: CutState::default(),
        }
    }
}

/// The table of a flushed database: no command reaches it, and its memory is not yet given back.
pub struct Flushed(pub(crate) &'static Db);

impl Flushed {
    /// Returns the number of keys that it still holds.
    pub fn len(&self) -> u64 {
        self.0
            .stripes
            .iter()
            .map(|stripe| u64::from(stripe.keys.load(Ordering::Relaxed)))
            .sum()
    }

    /// Returns true if it held nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frees its entries; a snapshot that is being taken gets those that it does not have yet. Long: run it behind the
    /// command, on a thread of its own.
    pub fn free(self, space: &Keyspace, heap: &mut Heap) {
        let mut freed = space.snapshots.save_flushed(space, self.0);
        for (slot, index) in self.0.slots.iter().enumerate() {
            let stripe = usize::from(stripe_of_slot(slot));
            if slot % SLOTS_PER_STRIPE == 0 {
                let state = &self.0.stripes[stripe];
                freed += state.ttl.table_bytes() + state.timed.table_bytes();
                state.ttl.clear(|_| ());
                state.timed.clear(|_| ());
                state.keys.store(0, Ordering::Relaxed);
                self.0.next_expire_ms[stripe].store(i64::MAX, Ordering::Relaxed);
                self.0.next_element_ms[stripe].store(i64::MAX, Ordering::Relaxed);
            }
            freed += index.table_bytes();
            index.clear(|pointer| {
                let entry = Entry::from_table(pointer);
                // SAFETY: the table is out of the list of databases since all stripes were held, so no unit
                // reaches its entries any more; prefetches read no entry.
                unsafe {
                    freed += entry.heap_bytes() + entry.value_bytes();
                    drop(entry.destroy(heap));
                }
            });
        }
        freed += self.0.labels.clear();
        space.account(-(freed as i64));
        self.0.vector_sets.store(0, Ordering::Relaxed);
        self.0.cut.is_flushed.store(false, Ordering::Relaxed);
        space
            .spare
            .lock()
            .expect("no panic under the list of spare tables")
            .push(self.0);
    }
}

/// A worker's unflushed share of the memory account is at most this.
pub const MEMORY_STEP_BYTES: i64 = 64 * 1024;

/// The state of one worker: its allocator, its counters, the results of its units.
pub struct Local {
    /// Allocates and frees entries.
    pub heap: Heap,
    /// Randomness for sampling and for random commands.
    pub rng: fastrand::Rng,
    /// Thresholds of the compact encodings; the worker refreshes them when the configuration changes.
    pub limits: Limits,
    /// Rules by which accesses are recorded; refreshed likewise.
    pub clock: Clock,
    /// Which keyspace events are wanted; refreshed likewise.
    pub notify: Classes,
    /// Expired keys stay in their place, though no command sees them: a pause is on. Refreshed likewise.
    pub keeps_expired: bool,
    /// The present as Unix time in milliseconds, while commands are played back whose units have a time at which nothing
    /// has expired.
    pub played_back_at_ms: Option<i64>,
    /// Keyspace events of the running unit, in order.
    pub events: Events,
    /// Keys that a client waits for and that the running unit has changed: they are served before it releases its
    /// stripes.
    pub ready: VecDeque<Ready>,
    /// The effects of the running unit so far, at the end of this worker's lane of the journal; empty without a stream.
    pub(crate) effects: RefCell<Writer>,
    /// The garbage to drop behind the command.
    pub garbage: Vec<Garbage>,
    /// Tables to free behind the command.
    pub flushed: Vec<Flushed>,
    /// Lookups that found a key (`keyspace_hits`).
    pub hits: Cell<u64>,
    /// Lookups that found none (`keyspace_misses`).
    pub misses: Cell<u64>,
    /// Keys that expired here.
    pub expired: Cell<u64>,
    /// Elements of collections that expired here.
    pub expired_elements: u64,
    /// Keys that were evicted here.
    pub evicted: u64,
    /// Changes that commands have made here, as [`View::changes`](crate::View::changes) counts them.
    pub changes: u64,
    /// Candidates for eviction.
    pub(crate) pool: EvictionPool,
    /// Expired keys that readers met and reported; removed at the end of the unit.
    pub(crate) met_expired: RefCell<HashSet<(u32, Box<[u8]>)>>,
    /// The changes of the running view, and the reports of them.
    #[cfg(debug_assertions)]
    pub(crate) witness: RefCell<crate::view::Witness>,
    /// Buffer in which a string is edited that is too long for its place.
    pub(crate) scratch: Vec<u8>,
    /// Values in which packed collections are read and changed.
    pub(crate) opened: Opened,
    /// The share in the snapshot that is being taken.
    pub(crate) share: Option<Share>,
    pub(crate) bytes: i64,
}

impl Local {
    /// Makes the state of a new worker.
    pub fn new(rng: fastrand::Rng, limits: Limits) -> Local {
        Local {
            heap: Heap::new(),
            rng,
            limits,
            clock: Clock::default(),
            notify: Classes::NONE,
            events: Events::default(),
            ready: VecDeque::new(),
            effects: RefCell::default(),
            garbage: Vec::new(),
            flushed: Vec::new(),
            hits: Cell::new(0),
            misses: Cell::new(0),
            expired: Cell::new(0),
            expired_elements: 0,
            evicted: 0,
            keeps_expired: false,
            played_back_at_ms: None,
            changes: 0,
            pool: EvictionPool::default(),
            met_expired: RefCell::default(),
            #[cfg(debug_assertions)]
            witness: RefCell::default(),
            scratch: Vec::new(),
            opened: Opened::default(),
            share: None,
            bytes: 0,
        }
    }

    #[inline]
    pub(crate) fn account(&mut self, space: &Keyspace, bytes: i64) {
        self.bytes += bytes;
        if self.bytes.abs() >= MEMORY_STEP_BYTES {
            self.flush_account(space);
        }
    }

    /// Adds a command to the effects of the running unit, if the journal has a stream.
    pub(crate) fn push_effect<'w>(&self, space: &Keyspace, db: u32, words: impl Words<'w>) {
        if space.journal.is_attached() {
            let words = words.into_iter().map(Into::into);
            let mut effects = self.effects.borrow_mut();
            effects.push(&space.journal, Some(db), words);
        }
    }

    /// Does the same with a command that is in the journal's form already, once the caller has seen that there is a stream.
    pub(crate) fn push_frame(&self, space: &Keyspace, db: u32, frame: &[u8]) {
        self.effects
            .borrow_mut()
            .push_frame(&space.journal, db, frame);
    }

    /// Takes out the effects of the running unit so far, before units of others run in the middle of it (a script that
    /// runs its worker's loop).
    pub fn take_effects(&mut self) -> Effects {
        self.effects.get_mut().take()
    }

    /// Puts back the effects that [`Local::take_effects`] took out.
    pub fn restore_effects(&mut self, effects: Effects) {
        self.effects.get_mut().put_back(effects);
    }

    /// Returns true if units of this worker have written records for which it has not offered itself to the pump yet
    /// ([`Journal::pump`]), which it does when it holds no stripe.
    #[inline]
    pub fn has_journal_news(&mut self) -> bool {
        self.effects.get_mut().has_news
    }

    /// Returns the number of bytes of this worker's records that wait for the pump.
    pub fn journal_waiting_bytes(&mut self) -> u64 {
        self.effects.get_mut().waiting_bytes()
    }

    /// Notes that this worker has offered itself, or has asked another to.
    pub fn forget_journal_news(&mut self) {
        self.effects.get_mut().has_news = false;
    }

    /// Hands the unflushed share of the memory account over.
    pub fn flush_account(&mut self, space: &Keyspace) {
        if self.bytes != 0 {
            space.account(std::mem::take(&mut self.bytes));
        }
    }
}
