//! Snapshots: every entry as it was at one instant, while commands go on.
//!
//! Must not know: formats, files, threads, a clock. A [`Saver`] encodes what it is given.
//!
//! # The idea
//!
//! Every entry has a *phase*, one bit of its header, and the keyspace has one. While no snapshot is taken all are equal.
//! The *cut* ([`Unit::cut`]) flips that of the keyspace, under all stripes: from then on an entry whose phase differs is
//! one that the snapshot does not have yet. Two parties save entries and bring them into the phase:
//! - whoever is about to change or remove one for the first time since the cut, at the write door
//!   (`view/entries/door.rs`), so nothing that was there at the cut is lost;
//! - the *walk* ([`Keyspace::snapshot_slice`]), which goes over all stripes of all databases in small slices, between
//!   commands, and takes the rest.
//!
//! New entries are born in the keyspace's phase, so a snapshot passes over them. The phase stands in the entry and moves
//! with it, so the growth of tables, compaction and the indexes of expiry need no thought. (A phase per bucket of the
//! table was tried on paper: a bucket's neighbours and its rebuilds would have to be saved with it.)
//!
//! # Who takes part
//!
//! Each worker has a [`Share`] in the snapshot from its first saved entry or slice on: a saver, and the stripes that it
//! is walking through. When the last stripe is through, every share is handed in, and the last one ends the snapshot.
//! Only then may the next be cut: a mixed state cannot be flipped. So a snapshot that nobody wants any more is walked to
//! its end all the same, with savers that drop what they get.
//!
//! # Large collections
//!
//! One that would take long is not saved at one go by whoever meets it: it is *frozen*, which takes no time, and then
//! given in pieces by the walk, before anything else (`snapshot/frozen.rs`). Its entry is in the phase from then on, and
//! clients go on to change it.
//!
//! # Databases that come and go
//!
//! A database is known by the number that it had at the cut: SWAPDB exchanges tables, and they keep it. A flushed one is
//! out of reach for commands; who frees it saves first what is unsaved in it ([`Snapshots::save_flushed`]).

mod frozen;

use std::sync::Arc;

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use redline_table::{frozen::FreezeId, prefetch};
use redline_types::Value;

use self::frozen::FrozenObjects;
use crate::{
    entry::{Content, Entry, Garbage, Phase, ValueRef},
    lock::STRIPES,
    opened::Opened,
    space::{Db, Keyspace, Local, SLOTS_PER_STRIPE},
    unit::Unit,
};

/// Number of entries that are met before they are read, so that their cache misses overlap; the stripe is held for them.
const ENTRIES_AHEAD: usize = 64;
/// Number of further stripes that a slice tries when those that it has begun are in use.
const BEGUN_STRIPES_MAX: usize = 8;

/// An entry as it was at the cut.
pub struct SavedEntry<'a> {
    /// The number of its database at the cut.
    pub db: u32,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: ValueRef<'a>,
    /// The time at which it expires, as Unix time in milliseconds. It may be past.
    pub expire_at_ms: Option<i64>,
    /// The record of accesses: see [`Clock`](crate::Clock).
    pub access_word: u32,
}

/// Takes the entries of one worker's share.
pub trait Saver: Send {
    /// Takes an entry. The caller holds its stripe.
    fn save(&mut self, entry: &SavedEntry<'_>);
    /// Begins an entry whose value is large and is frozen right after the call. `None`: it is to be saved whole.
    fn begin(&mut self, _entry: &SavedEntry<'_>) -> Option<Box<dyn PiecewiseEntry>> {
        None
    }
    /// Returns true if the walk may go on: what was saved so far is not too far ahead of where it goes.
    fn has_room(&self) -> bool;
    /// Ends the share: nothing more will be saved by it.
    fn hand_in(&mut self);
}

/// An entry that is saved in pieces.
pub trait PiecewiseEntry: Send {
    /// Takes the next piece of the value, which is frozen. Returns true after the last one, or if no further one is
    /// wanted; either way the freeze has ended then.
    fn take_piece(&mut self, value: &mut Value) -> bool;
    /// Returns true if a piece may be taken: those before are not too far ahead of where they go.
    fn has_room(&self) -> bool;
}

/// Makes the savers of a snapshot.
pub trait Savers: Send + Sync {
    /// Makes one for a further share.
    fn saver(&self) -> Box<dyn Saver>;
    /// Called once, when everything is saved, by whoever saved the last of it and perhaps under a stripe: every worker
    /// is to call [`Keyspace::snapshot_slice`], which hands its share in.
    fn everything_is_saved(&self);
    /// Called once, after the last share was handed in.
    fn end(&self);
}

/// The snapshot that is being taken, if any, and the phase of the keyspace.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// Number of the snapshot that is being taken; 0: none. Read at every change.
    running: AtomicU32,
    /// The phase, as its parity.
    phase: AtomicU32,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// Number of the last snapshot.
    number: u32,
    snapshot: Option<Arc<Snapshot>>,
    /// Shares that have not been handed in.
    shares: usize,
}

/// A snapshot that is being taken.
struct Snapshot {
    number: u32,
    phase: Phase,
    savers: Arc<dyn Savers>,
    tables: Box<[&'static Db]>,
    /// The next stripe that nobody has begun: `table * STRIPES + stripe`.
    next: AtomicUsize,
    /// Stripes and frozen objects that are not saved.
    left: AtomicUsize,
    frozen: FrozenObjects,
}

/// A database's part in a snapshot. All is written under every stripe or by the holder of the stripe concerned.
#[derive(Default)]
pub(crate) struct CutState {
    /// The last snapshot that has this database.
    snapshot: AtomicU32,
    /// The number of the database then.
    number: AtomicU32,
    /// A bit for each stripe: it is saved.
    saved: [AtomicU64; STRIPES.div_ceil(64)],
    /// True if the database is flushed and not yet freed.
    pub(crate) is_flushed: AtomicBool,
}

/// One worker's part in a snapshot: see the module's text.
pub(crate) struct Share {
    snapshot: Arc<Snapshot>,
    saver: Box<dyn Saver>,
    opened: Opened,
    begun: Vec<Begun>,
    met: Vec<Entry>,
}

/// A stripe that the walk has begun.
#[derive(Clone, Copy)]
struct Begun {
    table: &'static Db,
    stripe: u16,
    /// The slot, counted from the stripe's first, and the hash prefix to go on at.
    slot: usize,
    from: u32,
}

/// Facts that a cut fixes, beside the entries.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// The last record of the journal whose effect the snapshot has.
    pub last_record: u64,
    /// The databases that have keys, in order.
    pub databases: Vec<CutDatabase>,
}

/// The counts of a database at a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutDatabase {
    /// Number of the database.
    pub number: u32,
    /// Number of keys.
    pub keys: u64,
    /// Number of keys that have an expiry.
    pub expiring: u64,
    /// Number of keys whose collection has elements that expire.
    pub timed: u64,
    /// Number of keys whose value is a vector set.
    pub vector_sets: u64,
}

/// Result of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// There is nothing to do for this worker, or no snapshot.
    Idle,
    /// The caller wanted to stop, and there is more.
    More,
    /// Everything that is left here is under stripes in use.
    InTheWay,
    /// The savers have no room.
    Full,
}

impl Snapshots {
    /// Returns true if a snapshot is being taken.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        // Relaxed: it is set under all stripes, so who holds one sees it.
        self.running.load(Ordering::Relaxed) != 0
    }

    /// Returns the phase in which entries are born.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        Phase::of(self.phase.load(Ordering::Relaxed)) // as above
    }

    /// Takes over the phase of another keyspace. Nobody uses this one yet.
    pub(crate) fn take_phase_of(&self, other: &Snapshots) {
        let parity = other.phase.load(Ordering::Relaxed);
        self.phase.store(parity, Ordering::Relaxed);
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current
            .lock()
            .expect("no panic under the list of shares")
    }

    /// Makes another share in the snapshot that is being taken.
    fn join(&self) -> Option<Share> {
        let mut current = self.current();
        let snapshot = current.snapshot.clone()?;
        current.shares += 1;
        drop(current);
        Some(Share {
            saver: snapshot.savers.saver(),
            snapshot,
            opened: Opened::default(),
            begun: Vec::new(),
            met: Vec::new(),
        })
    }

    /// Takes a share back. The last one ends the snapshot, if everything is saved.
    fn hand_in(&self, mut share: Share) {
        share.saver.hand_in();
        let mut current = self.current();
        current.shares -= 1;
        if current.shares == 0 && share.snapshot.is_saved() {
            current.snapshot = None;
            self.running.store(0, Ordering::Relaxed);
            drop(current);
            share.snapshot.savers.end();
        }
    }

    /// Saves what is unsaved in a flushed database that the snapshot has. The caller is the only one to reach it. Returns
    /// the number of bytes that were taken out of its account: those of frozen values, which are given in pieces later.
    pub(crate) fn save_flushed(&self, space: &Keyspace, db: &'static Db) -> usize {
        if !self.is_running() {
            return 0;
        }
        let snapshot = self.current().snapshot.clone();
        // SAFETY: handed on from the caller.
        let adopted = snapshot.map_or(0, |snapshot| unsafe {
            snapshot.frozen.adopt_all_of(space, db)
        });
        if db.cut.is_in(self.running.load(Ordering::Relaxed)) {
            self.save_unsaved_of(db);
        }
        adopted
    }

    /// Takes a frozen value that was taken out of its database for good.
    #[cold]
    pub(crate) fn adopt(&self, value: Value) {
        let snapshot = self.current().snapshot.clone();
        let snapshot = snapshot.expect("a frozen object keeps the snapshot from its end");
        snapshot.frozen.adopt(value);
    }

    /// Notes that a frozen value is under another key now, whose stripe the caller holds.
    #[cold]
    pub(crate) fn note_moved(&self, id: FreezeId, db: &'static Db, key: &[u8]) {
        let snapshot = self.current().snapshot.clone();
        let snapshot = snapshot.expect("a frozen object keeps the snapshot from its end");
        snapshot.frozen.note_moved(id, db, key);
    }

    fn save_unsaved_of(&self, db: &'static Db) {
        let Some(mut share) = self.join() else {
            return;
        };
        let snapshot = share.snapshot.clone();
        for stripe in 0..STRIPES {
            if db.cut.is_saved(stripe) {
                continue;
            }
            for index in &db.slots[stripe * SLOTS_PER_STRIPE..][..SLOTS_PER_STRIPE] {
                index.for_each(|pointer| {
                    let entry = Entry::from_table(pointer);
                    // SAFETY: no unit reaches the entries of a flushed database; the caller owns it.
                    unsafe {
                        if entry.phase() != snapshot.phase {
                            share.save_whole(db, entry);
                        }
                    }
                });
            }
            snapshot.note_saved(db, stripe);
        }
        self.hand_in(share);
    }
}

impl Snapshot {
    fn is_saved(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Notes that a stripe of a database is saved.
    fn note_saved(&self, db: &Db, stripe: usize) {
        let bit = 1 << (stripe % 64);
        let before = db.cut.saved[stripe / 64].fetch_or(bit, Ordering::Relaxed);
        debug_assert_eq!(before & bit, 0, "a stripe is walked through once");
        self.note_one_saved();
    }

    /// Notes that a stripe or a frozen object is saved.
    fn note_one_saved(&self) {
        // Acquire and release: who finds nothing left finds everything handed to the savers.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.savers.everything_is_saved();
        }
    }

    /// Begins the next stripe.
    fn begin(&self) -> Option<Begun> {
        if self.next.load(Ordering::Relaxed) >= self.tables.len() * STRIPES {
            return None;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let table = *self.tables.get(next / STRIPES)?;
        Some(Begun {
            table,
            stripe: (next % STRIPES) as u16,
            slot: 0,
            from: 0,
        })
    }
}

impl CutState {
    fn is_in(&self, snapshot: u32) -> bool {
        self.snapshot.load(Ordering::Relaxed) == snapshot
    }

    fn is_saved(&self, stripe: usize) -> bool {
        self.saved[stripe / 64].load(Ordering::Relaxed) & 1 << (stripe % 64) != 0
    }
}

impl Share {
    /// Saves an entry and brings it into the phase; a large one is frozen, and saved later.
    ///
    /// # Safety
    /// The stripe of the entry is held, nobody refers to its value, and it is of this database.
    unsafe fn save(&mut self, db: &'static Db, entry: Entry) {
        // SAFETY: handed on from the caller.
        unsafe {
            match entry.content() {
                Content::Object(value) if value.is_for_pieces() && self.freeze(db, entry) => {}
                _ => self.save_whole(db, entry),
            }
        }
    }

    /// Freezes the value of an entry, and brings that into the phase; returns false if it is to be saved whole.
    ///
    /// # Safety
    /// As for [`Share::save`].
    #[cold]
    unsafe fn freeze(&mut self, db: &'static Db, entry: Entry) -> bool {
        debug_assert!(
            db.cut.is_in(self.snapshot.number),
            "it was there at the cut"
        );
        // SAFETY: handed on from the caller; the value is changed when no reference to it is used any more.
        unsafe {
            let Content::Object(value) = entry.content() else {
                return false;
            };
            let begun = self.saver.begin(&SavedEntry {
                db: db.cut.number.load(Ordering::Relaxed),
                key: entry.key(),
                value: ValueRef::Object(value),
                expire_at_ms: entry.expire_at_ms(),
                access_word: entry.clock(),
            });
            let (Some(begun), Some(value)) = (begun, entry.object_to_freeze()) else {
                return false;
            };
            // Relaxed: the stripe, which is not saved, keeps it above 0.
            self.snapshot.left.fetch_add(1, Ordering::Relaxed);
            value.freeze(self.snapshot.frozen.add(begun, db, entry.key()));
            entry.set_phase(self.snapshot.phase);
        }
        true
    }

    /// Saves an entry at one go and brings it into the phase.
    ///
    /// # Safety
    /// The stripe of the entry is held, or nobody else reaches it, and it is of this database.
    unsafe fn save_whole(&mut self, db: &Db, entry: Entry) {
        debug_assert!(
            db.cut.is_in(self.snapshot.number),
            "it was there at the cut"
        );
        // SAFETY: handed on from the caller; nothing changes the entry meanwhile but its phase.
        unsafe {
            let content = entry.content();
            let opened = match content {
                Content::Packed(packed) => Some(self.opened.take(packed)),
                Content::String(_) | Content::Object(_) => None,
            };
            let value = match (content, &opened) {
                (Content::String(string), _) => ValueRef::String(string),
                (Content::Object(value), _) | (Content::Packed(_), Some(value)) => {
                    ValueRef::Object(value)
                }
                (Content::Packed(_), None) => unreachable!("it was opened"),
            };
            self.saver.save(&SavedEntry {
                db: db.cut.number.load(Ordering::Relaxed),
                key: entry.key(),
                value,
                expire_at_ms: entry.expire_at_ms(),
                access_word: entry.clock(),
            });
            if let Some(value) = opened {
                self.opened.give_back(value);
            }
            entry.set_phase(self.snapshot.phase);
        }
    }

    /// Takes some entries of a stripe that is held, and returns true if that was all of it.
    fn step(&mut self, begun: &mut Begun) -> bool {
        let first = usize::from(begun.stripe) * SLOTS_PER_STRIPE;
        let slots = &begun.table.slots[first..][..SLOTS_PER_STRIPE];
        while let Some(index) = slots.get(begun.slot)
            && self.met.len() < ENTRIES_AHEAD
        {
            let next = index.scan(begun.from, |pointer| {
                prefetch(pointer.addr().get());
                self.met.push(Entry::from_table(pointer));
            });
            (begun.slot, begun.from) = match next {
                Some(next) => (begun.slot, next),
                None => (begun.slot + 1, 0),
            };
        }
        let mut met = std::mem::take(&mut self.met);
        for entry in met.drain(..) {
            // SAFETY: the stripe is held.
            unsafe {
                if entry.phase() != self.snapshot.phase {
                    self.save(begun.table, entry);
                }
            }
        }
        self.met = met;
        begun.slot == SLOTS_PER_STRIPE
    }
}

/// Saves an entry that is about to be changed, unless the snapshot has it.
///
/// # Safety
/// The stripe of the entry is held, nobody refers to its value, and it is of this database.
pub(crate) unsafe fn save_first(
    space: &Keyspace,
    local: &mut Local,
    db: &'static Db,
    entry: Entry,
) {
    // SAFETY: handed on from the caller.
    unsafe {
        if entry.phase() == space.snapshots.phase() {
            return;
        }
        if local.share.is_none() {
            local.share = space.snapshots.join();
        }
        let share = local.share.as_mut();
        let share = share.expect("an entry of another phase keeps the snapshot from its end");
        share.save(db, entry);
    }
}

/// Does a worker's part of the walk: see [`Keyspace::snapshot_slice`].
pub(crate) fn slice(space: &Keyspace, local: &mut Local, go_on: &mut dyn FnMut() -> bool) -> Slice {
    if !space.snapshots.is_running() {
        return Slice::Idle;
    }
    let Some(mut share) = local.share.take().or_else(|| space.snapshots.join()) else {
        return Slice::Idle;
    };
    let slice = walk(space, &mut share, &mut local.garbage, go_on);
    if share.snapshot.is_saved() {
        space.snapshots.hand_in(share);
        return Slice::Idle;
    }
    local.share = Some(share);
    slice
}

fn walk(
    space: &Keyspace,
    share: &mut Share,
    garbage: &mut Vec<Garbage>,
    go_on: &mut dyn FnMut() -> bool,
) -> Slice {
    let mut in_the_way = 0;
    loop {
        if take_pieces(space, &share.snapshot, garbage, go_on) {
            match go_on() {
                true => continue,
                false => return Slice::More,
            }
        }
        if !share.saver.has_room() {
            return Slice::Full;
        }
        let at = in_the_way;
        if at == share.begun.len() {
            let begun = (at < BEGUN_STRIPES_MAX).then(|| share.snapshot.begin());
            match begun.flatten() {
                Some(begun) => share.begun.push(begun),
                None if at == 0 && share.snapshot.frozen.is_empty() => return Slice::Idle,
                None => return Slice::InTheWay,
            }
        }
        let mut begun = share.begun[at];
        let Some(unit) = Unit::try_one(space, begun.stripe) else {
            in_the_way += 1;
            continue;
        };
        let cut = &begun.table.cut;
        // What was flushed is saved by who frees it.
        let is_gone =
            cut.is_flushed.load(Ordering::Relaxed) || cut.is_saved(usize::from(begun.stripe));
        let is_through = is_gone || share.step(&mut begun);
        if is_through {
            share.begun.swap_remove(at);
            if !is_gone {
                let snapshot = share.snapshot.clone();
                snapshot.note_saved(begun.table, usize::from(begun.stripe));
            }
        } else {
            share.begun[at] = begun;
        }
        drop(unit);
        if !go_on() {
            return Slice::More;
        }
    }
}

/// Takes pieces of the frozen object that is due, if nothing is in the way, and returns true if it did. `garbage` gets a
/// value that nobody needs any more.
fn take_pieces(
    space: &Keyspace,
    snapshot: &Snapshot,
    garbage: &mut Vec<Garbage>,
    go_on: &mut dyn FnMut() -> bool,
) -> bool {
    let Some(mut lent) = snapshot.frozen.lend() else {
        return false;
    };
    if !lent.begun.has_room() {
        snapshot.frozen.take_back(lent);
        return false;
    }
    let mut take = |begun: &mut dyn PiecewiseEntry, value: &mut Value| loop {
        if begun.take_piece(value) {
            debug_assert!(value.freeze_id().is_none(), "the freeze has ended");
            return true;
        }
        if !begun.has_room() || !go_on() {
            return false;
        }
    };
    let mut held = None;
    let is_done = match &mut lent.value {
        Some(value) => take(&mut *lent.begun, value),
        None => {
            let Some((unit, entry)) = snapshot.frozen.find(space, &lent) else {
                snapshot.frozen.take_back(lent);
                return false;
            };
            held = Some(unit);
            // SAFETY: the stripe is held, by this unit alone, which has no view.
            let value = unsafe { entry.object_to_freeze() };
            let value = value.expect("what is frozen is an object");
            take(&mut *lent.begun, value)
        }
    };
    if !is_done {
        snapshot.frozen.take_back(lent);
        return true;
    }
    // Before its stripe is free: the list has no key of an object that is not frozen.
    if let Some(value) = snapshot.frozen.remove(lent) {
        garbage.push(Garbage::Object(value));
    }
    drop(held);
    snapshot.note_one_saved();
    true
}

/// Returns what a cut would fix now; every stripe is held.
pub(crate) fn counts(space: &Keyspace) -> Cut {
    let counts = space.used_databases().filter_map(|number| {
        let counts = counts_of(space.db(number)?, number);
        (counts.keys > 0).then_some(counts)
    });
    Cut {
        last_record: space.journal().last(),
        databases: counts.collect(),
    }
}

/// Begins a snapshot: see [`Unit::cut`].
pub(crate) fn cut(space: &Keyspace, cut: &Cut, savers: Arc<dyn Savers>) -> bool {
    let mut current = space.snapshots.current();
    if current.snapshot.is_some() {
        return false;
    }
    // 0 is none.
    current.number = current.number.checked_add(1).unwrap_or(1);
    let mut tables = Vec::new();
    for number in cut.databases.iter().map(|database| database.number) {
        let Some(db) = space.db(number) else {
            continue;
        };
        db.cut.snapshot.store(current.number, Ordering::Relaxed);
        db.cut.number.store(number, Ordering::Relaxed);
        for saved in &db.cut.saved {
            saved.store(0, Ordering::Relaxed);
        }
        tables.push(db);
    }
    let snapshots = &space.snapshots;
    let parity = snapshots.phase.load(Ordering::Relaxed) ^ 1;
    // Relaxed: who will hold a stripe sees what was written under all of them.
    snapshots.phase.store(parity, Ordering::Relaxed);
    snapshots.running.store(current.number, Ordering::Relaxed);
    let is_empty = tables.is_empty();
    current.shares = 0;
    current.snapshot = Some(Arc::new(Snapshot {
        number: current.number,
        phase: Phase::of(parity),
        savers: savers.clone(),
        left: AtomicUsize::new(tables.len() * STRIPES),
        tables: tables.into(),
        next: AtomicUsize::new(0),
        frozen: FrozenObjects::default(),
    }));
    drop(current);
    if is_empty {
        savers.everything_is_saved();
    }
    true
}

/// Returns the counts of a database, whose number is given.
fn counts_of(db: &Db, number: u32) -> CutDatabase {
    let mut counts = CutDatabase {
        number,
        keys: 0,
        expiring: 0,
        timed: 0,
        vector_sets: db.vector_sets.load(Ordering::Relaxed),
    };
    for stripe in &db.stripes {
        counts.keys += u64::from(stripe.keys.load(Ordering::Relaxed));
        counts.expiring += stripe.ttl.len() as u64;
        counts.timed += stripe.timed.len() as u64;
    }
    counts
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
