//! Slots of a cluster: the place of a key by its slot, the slots that are served now, and the keys of one.
//!
//! With a single server the place of a key is its hash, whose top bits choose where it stands. In a cluster these 14 bits
//! are the *position* of the key's slot, and the rest is the hash as before: all that follows (order, tags, cursors,
//! stripes) goes by the place alone. A position is its slot rotated by four bits: a stripe, which has 16 positions in a
//! row, guards 16 slots that are 1,024 apart, so a node that owns a run of slots uses every stripe. SipHash stays inside,
//! since anybody can find keys of one slot, but not of one bucket in it.
//!
//! A slot on its way between nodes is *followed* at the one side, where the keys that change are noted, and *hidden* at the
//! other, where its keys are not shown to whoever looks at all keys.
//!
//! Must not know: who owns a slot that is not served, and why.

use std::{
    collections::HashSet,
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use redline_slot::slot_of;
use redline_table::{Index, hash::SLOT_BITS};

use super::{Db, Keyspace, Place, SLOTS, stripe_of_slot};
use crate::lock::{Held, STRIPES};

/// Number of keys up to which a slot of a cluster takes more: all may have one tag, and an index has a bound.
pub const SLOT_KEYS_MAX: u64 = 3_000_000;

/// Bits that the rotation moves: those of a stripe's positions.
const ROTATION: u32 = 4;

/// State of a keyspace's slots.
pub(crate) struct Slots {
    /// True in a cluster.
    by_key: bool,
    /// A bit for each position: the slot is served now. Changed under its stripe.
    served: Box<[AtomicU64]>,
    /// Number of changes of those bits.
    changes: AtomicU64,
    hidden: Marks,
    followed: Marks,
    /// Keys of followed slots that have changed.
    changed: Mutex<HashSet<Box<[u8]>>>,
    /// Number of times that a database was emptied.
    flushes: AtomicU64,
    records: Records,
}

/// The last record of each stripe, changed under it, and the last of a unit that held all stripes, or none.
#[derive(Default)]
struct Records {
    of_stripes: Box<[AtomicU64]>,
    of_all: AtomicU64,
}

impl Records {
    fn new() -> Records {
        Records {
            of_stripes: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
            of_all: AtomicU64::new(0),
        }
    }

    fn note(&self, held: Held<'_>, record: u64) {
        let note = |stripe: u16| {
            self.of_stripes[usize::from(stripe)].store(record, Ordering::Relaxed);
        };
        match held {
            Held::One(stripe) => note(stripe),
            Held::Set(set) => set.iter().for_each(note),
            Held::None | Held::All => {
                self.of_all.fetch_max(record, Ordering::Relaxed);
            }
        }
    }

    /// Returns the last record of these stripes. `None`: that of any stripe.
    fn last(&self, held: Held<'_>) -> Option<u64> {
        let of = |stripe: u16| self.of_stripes[usize::from(stripe)].load(Ordering::Relaxed);
        let last = match held {
            Held::One(stripe) => of(stripe),
            Held::Set(set) => set.iter().map(of).max().unwrap_or(0),
            Held::None | Held::All => return None,
        };
        Some(last.max(self.of_all.load(Ordering::Relaxed)))
    }
}

/// A bit for each position, and the number of those that are set: mostly 0. Changed under the slot's stripe.
#[derive(Default)]
struct Marks {
    words: Box<[AtomicU64]>,
    count: AtomicUsize,
}

impl Marks {
    fn new() -> Marks {
        Marks {
            words: (0..SLOTS / 64).map(|_| AtomicU64::new(0)).collect(),
            count: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    fn has(&self, position: usize) -> bool {
        let word = self.words.get(position / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (position % 64)) != 0)
    }

    fn set(&self, position: usize, is_set: bool) {
        let (word, bit) = (&self.words[position / 64], 1 << (position % 64));
        let was_set = match is_set {
            true => word.fetch_or(bit, Ordering::Relaxed) & bit != 0,
            false => word.fetch_and(!bit, Ordering::Relaxed) & bit != 0,
        };
        match (was_set, is_set) {
            (false, true) => self.count.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.count.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

impl Slots {
    /// Returns the slots of a single server, which has none.
    pub(crate) fn none() -> Slots {
        Slots {
            by_key: false,
            served: Box::default(),
            changes: AtomicU64::new(0),
            hidden: Marks::default(),
            followed: Marks::default(),
            changed: Mutex::default(),
            flushes: AtomicU64::new(0),
            records: Records::default(),
        }
    }

    /// Returns those of a node, of which none is served yet.
    fn of_cluster() -> Slots {
        Slots {
            by_key: true,
            served: (0..SLOTS / 64).map(|_| AtomicU64::new(0)).collect(),
            changes: AtomicU64::new(0),
            hidden: Marks::new(),
            followed: Marks::new(),
            changed: Mutex::default(),
            flushes: AtomicU64::new(0),
            records: Records::new(),
        }
    }

    #[inline]
    pub(super) fn by_key(&self) -> bool {
        self.by_key
    }

    /// Sets the bit of a slot, whose stripe the caller holds.
    pub(crate) fn set_served(&self, slot: u16, is_served: bool) {
        let position = position_of(slot);
        let (word, bit) = (&self.served[position / 64], 1 << (position % 64));
        let before = match is_served {
            true => word.fetch_or(bit, Ordering::Relaxed),
            false => word.fetch_and(!bit, Ordering::Relaxed),
        };
        if (before & bit != 0) != is_served {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

/// Records of a cluster's node, for replies that wait until other nodes have them.
impl Slots {
    /// Notes the record of a unit that holds these stripes. Only in a cluster.
    #[inline(never)]
    pub(crate) fn note_record(&self, held: Held<'_>, record: u64) {
        self.records.note(held, record);
    }
}

/// Slots on their way.
impl Slots {
    /// Hides a slot, or shows it; the caller holds its stripe.
    pub(crate) fn set_hidden(&self, slot: u16, is_hidden: bool) {
        self.hidden.set(position_of(slot), is_hidden);
    }

    /// Follows a slot, or ceases to; the caller holds its stripe.
    pub(crate) fn set_followed(&self, slot: u16, is_followed: bool) {
        self.followed.set(position_of(slot), is_followed);
    }

    /// Returns true if a slot is followed.
    #[inline]
    pub(crate) fn follows_any(&self) -> bool {
        self.followed.any()
    }

    /// Notes that a key has changed, whose stripe the caller holds.
    #[cold]
    pub(crate) fn note_changed(&self, key: &[u8]) {
        if self.followed.has(position_of(slot_of(key))) {
            let mut changed = self
                .changed
                .lock()
                .expect("no panic under the changed keys");
            if !changed.contains(key) {
                changed.insert(key.into());
            }
        }
    }

    /// Notes that a database is emptied.
    pub(crate) fn note_flush(&self) {
        self.flushes.fetch_add(1, Ordering::Release);
    }
}

/// Returns the position of a slot.
#[inline]
fn position_of(slot: u16) -> usize {
    let slot = usize::from(slot);
    (slot << ROTATION | slot >> (SLOT_BITS - ROTATION)) & (SLOTS - 1)
}

/// Returns the slot at a position.
#[inline]
fn slot_at(position: usize) -> u16 {
    ((position >> ROTATION | position << (SLOT_BITS - ROTATION)) & (SLOTS - 1)) as u16
}

impl Place {
    /// Returns the slot, in a keyspace of a cluster.
    #[inline]
    pub fn slot(self) -> u16 {
        slot_at(redline_table::hash::slot(self.hash()))
    }
}

impl Db {
    /// Returns the keys of a slot, in a keyspace of a cluster.
    pub(crate) fn index_of(&self, slot: u16) -> &Index {
        &self.slots[position_of(slot)]
    }
}

impl Keyspace {
    /// Makes it the keyspace of a cluster's node: keys stand by their slots, of which none is served yet.
    ///
    /// # Panics
    /// If it has been used.
    #[must_use]
    pub fn of_cluster(mut self) -> Keyspace {
        assert!(self.used_databases().next().is_none(), "it is empty");
        self.slots = Slots::of_cluster();
        self
    }

    /// Returns true if it is that of a cluster's node.
    #[inline]
    pub fn is_of_cluster(&self) -> bool {
        self.slots.by_key
    }

    /// Returns the place of a key by its slot. Apart from [`Keyspace::place`], whose callers have it inlined.
    #[inline(never)]
    pub(crate) fn place_by_slot(&self, key: &[u8], hash: u64) -> Place {
        Place((position_of(slot_of(key)) as u64) << (64 - SLOT_BITS) | hash >> SLOT_BITS)
    }

    /// Returns the last record of which a reply may tell that was made with these stripes held: see
    /// [`Unit::last_record`](crate::Unit::last_record).
    pub(crate) fn last_record(&self, held: Held<'_>) -> u64 {
        let journal = self.journal();
        if !journal.gate.awaits_confirmation() {
            return 0;
        }
        let of_stripes = self.slots.records.last(held);
        of_stripes.unwrap_or_else(|| journal.last())
    }

    /// Returns that of a unit that holds this stripe.
    pub fn last_record_of(&self, stripe: u16) -> u64 {
        self.last_record(Held::One(stripe))
    }

    /// Returns true if the slot of a key is served now. Where its stripe is not held, that may change at any time.
    #[inline]
    pub fn serves(&self, place: Place) -> bool {
        let position = redline_table::hash::slot(place.hash());
        let word = self.slots.served.get(position / 64);
        word.is_none_or(|word| word.load(Ordering::Relaxed) & (1 << (position % 64)) != 0)
    }

    /// Returns true if the slot of a key takes no further keys in a database.
    #[inline]
    pub fn is_full(&self, db: u32, place: Place) -> bool {
        let index = redline_table::hash::slot(place.hash());
        self.db(db)
            .is_some_and(|db| db.slots[index].len() as u64 >= SLOT_KEYS_MAX)
    }

    /// Returns true if a slot is served now: see [`Keyspace::serves`].
    pub fn serves_slot(&self, slot: u16) -> bool {
        self.serves(Place((position_of(slot) as u64) << (64 - SLOT_BITS)))
    }

    /// Returns the number of times that a slot has begun or ceased to be served. What was asked before it has changed
    /// has to be asked again by the holder of the stripes.
    #[inline]
    pub fn served_changes(&self) -> u64 {
        self.slots.changes.load(Ordering::Acquire)
    }

    /// Returns the number of keys of a slot in a database, those that have expired and are still there included. Exact for
    /// the holder of its stripe.
    pub fn slot_key_count(&self, db: u32, slot: u16) -> u64 {
        let db = self.db(db);
        db.map_or(0, |db| db.index_of(slot).len() as u64)
    }

    /// Returns true if a key is of a hidden slot.
    #[inline]
    pub fn hides(&self, key: &[u8]) -> bool {
        self.slots.hidden.any() && self.slots.hidden.has(position_of(slot_of(key)))
    }

    /// Returns true if a slot is hidden.
    pub fn hides_slot(&self, slot: u16) -> bool {
        self.slots.hidden.has(position_of(slot))
    }

    /// Returns the number of keys of hidden slots in a database.
    pub(crate) fn hidden_key_count(&self, db: u32) -> u64 {
        if !self.slots.hidden.any() {
            return 0;
        }
        let hidden = (0..SLOTS as u16).filter(|slot| self.hides_slot(*slot));
        hidden.map(|slot| self.slot_key_count(db, slot)).sum()
    }

    /// Takes the keys of followed slots that have changed since the last time, each once.
    pub fn take_changed_keys(&self) -> HashSet<Box<[u8]>> {
        let mut changed = self
            .slots
            .changed
            .lock()
            .expect("no panic under the changed keys");
        std::mem::take(&mut *changed)
    }

    /// Returns the number of times that a database was emptied.
    pub fn flushes(&self) -> u64 {
        self.slots.flushes.load(Ordering::Acquire)
    }

    /// Returns the number of the stripe that guards a slot.
    pub fn stripe_of_slot(slot: u16) -> u16 {
        stripe_of_slot(position_of(slot))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use redline_types::Limits;

    use super::*;
    use crate::{
        Classes, Expiry, Local, Unit,
        lock::{NobodyWaits, STRIPES, StripeSet},
    };

    fn node() -> Keyspace {
        Keyspace::new(1, Box::new(NobodyWaits)).of_cluster()
    }

    #[test]
    fn positions_and_slots_are_each_others_inverse() {
        let positions: BTreeSet<usize> = (0..SLOTS as u16).map(position_of).collect();
        assert_eq!(positions.len(), SLOTS);
        assert!((0..SLOTS as u16).all(|slot| slot_at(position_of(slot)) == slot));
    }

    #[test]
    fn a_run_of_slots_uses_every_stripe() {
        for first in [0, 5461, 10922] {
            let run = first..first + STRIPES as u16;
            let stripes: BTreeSet<u16> = run.map(Keyspace::stripe_of_slot).collect();
            assert_eq!(stripes.len(), STRIPES, "from {first}");
        }
    }

    #[test]
    fn a_place_has_the_slot_of_its_key_and_nothing_else_of_it() {
        let (single, node) = (Keyspace::new(1, Box::new(NobodyWaits)), node());
        let mut rests = BTreeSet::new();
        for number in 0..1000 {
            let key = format!("{{tag}}{number}").into_bytes();
            let place = node.place(&key);
            assert_eq!(place.slot(), slot_of(b"tag"));
            assert_eq!(place.stripe(), Keyspace::stripe_of_slot(slot_of(b"tag")));
            assert_eq!(single.place(&key).hash(), redline_table::hash(&key));
            rests.insert(place.hash() << SLOT_BITS);
        }
        assert_eq!(rests.len(), 1000, "the keys of one slot are spread in it");
    }

    #[test]
    fn what_is_loaded_stands_where_it_will_be_looked_for() {
        let node = node();
        assert_eq!(node.unpublished().place(b"k"), node.place(b"k"));
    }

    #[test]
    fn a_single_server_serves_all_and_a_node_what_it_was_told() {
        let single = Keyspace::new(1, Box::new(NobodyWaits));
        assert!(!single.is_of_cluster() && single.serves(single.place(b"k")));
        let mut node = node();
        let place = node.place(b"foo");
        assert!(node.is_of_cluster() && !node.serves(place));
        let mut unit = Unit::exclusive(&mut node);
        unit.set_served(12182, true);
        unit.set_served(12182, true);
        drop(unit);
        assert!(node.serves(place) && node.serves_slot(12182));
        assert_eq!(
            (0..SLOTS as u16)
                .filter(|slot| node.serves_slot(*slot))
                .count(),
            1
        );
        assert_eq!(node.served_changes(), 1);
        let mut unit = Unit::try_one(&node, place.stripe()).expect("it is free");
        unit.set_served(12182, false);
        drop(unit);
        assert!(!node.serves(place) && node.served_changes() == 2);
    }

    #[test]
    fn keys_of_a_hidden_slot_are_shown_to_nobody_who_looks_at_all() {
        let mut node = node();
        let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        let mut unit = Unit::exclusive(&mut node);
        let mut view = unit.view(&mut local, 0, 0);
        for key in [&b"{a}1"[..], b"{a}2", b"{b}1"] {
            view.set_string(key, b"value", Expiry::Clear);
        }
        view.finish_unreported();
        unit.set_hidden(slot_of(b"a"), true);
        let mut view = unit.view(&mut local, 0, 0);
        let mut keys = Vec::new();
        view.database().for_each(|key, _| keys.push(key.to_vec()));
        let counted = view.database().key_count();
        let mut scanned = Vec::new();
        let end = view
            .database()
            .scan(0, 100, |key, _| scanned.push(key.to_vec()));
        let drawn = view.database().random_key().ok().flatten();
        view.finish();
        assert_eq!(
            (keys, counted, end.ok()),
            (vec![b"{b}1".to_vec()], 1, Some(0))
        );
        assert_eq!(
            (scanned, drawn.as_deref()),
            (vec![b"{b}1".to_vec()], Some(&b"{b}1"[..]))
        );
        unit.set_hidden(slot_of(b"a"), false);
        drop(unit);
        assert_eq!((node.key_count(0), node.hides(b"{a}1")), (3, false));
    }

    #[test]
    fn changes_of_a_followed_slot_are_noted_once_each() {
        let mut node = node();
        let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        let mut unit = Unit::exclusive(&mut node);
        unit.set_followed(slot_of(b"a"), true);
        for _ in 0..2 {
            let mut view = unit.view(&mut local, 0, 0);
            view.set_string(b"{a}1", b"value", Expiry::Clear);
            view.set_string(b"{b}1", b"value", Expiry::Clear);
            view.finish_unreported();
        }
        let changed = unit.space().take_changed_keys();
        assert_eq!(
            changed.into_iter().collect::<Vec<_>>(),
            [Box::from(&b"{a}1"[..])]
        );
        // In the place of one that is as long.
        let mut view = unit.view(&mut local, 0, 0);
        view.set_string(b"{a}1", b"other", Expiry::Clear);
        view.finish_unreported();
        assert_eq!(unit.space().take_changed_keys().len(), 1);
        let mut view = unit.view(&mut local, 0, 0);
        assert!(view.remove(b"{a}1"));
        view.finish_unreported();
        assert_eq!(unit.space().take_changed_keys().len(), 1);
        unit.set_followed(slot_of(b"a"), false);
        let mut view = unit.view(&mut local, 0, 0);
        view.set_string(b"{a}1", b"value", Expiry::Clear);
        view.finish_unreported();
        assert!(unit.space().take_changed_keys().is_empty());
    }

    #[test]
    fn a_unit_knows_the_last_record_that_its_stripes_may_tell_of() {
        let node = node();
        let (a, b) = (node.place(b"a").stripe(), node.place(b"b").stripe());
        let one = |stripe| Unit::try_one(&node, stripe).expect("it is free");
        let set = |stripes: &[u16]| {
            let mut set = StripeSet::EMPTY;
            stripes.iter().for_each(|stripe| set.insert(*stripe));
            Unit::try_set(&node, &set, false).unwrap_or_else(|_| panic!("they are free"))
        };
        node.slots.note_record(Held::One(a), 5);
        node.slots.note_record(set(&[b, b + 1]).held(), 4);
        assert_eq!(one(a).last_record(), 0, "no reply waits");
        node.journal().gate.hold_behind(0);
        assert_eq!((one(a).last_record(), one(b).last_record()), (5, 4));
        assert_eq!((one(b + 1).last_record(), one(b + 2).last_record()), (4, 0));
        assert_eq!(set(&[a, b, b + 2]).last_record(), 5);
        // Of all stripes it is the last that there is: none, here.
        assert_eq!(Unit::none(&node).last_record(), 0);
        node.slots.note_record(Held::All, 6);
        assert_eq!((one(a).last_record(), one(b + 2).last_record()), (6, 6));
        assert_eq!(node.last_record_of(a), 6);
    }

    #[test]
    #[should_panic(expected = "the stripe of the slot is held")]
    fn a_slot_is_not_taken_from_under_a_unit() {
        let node = node();
        let other = Keyspace::stripe_of_slot(1) + 1;
        let mut unit = Unit::try_one(&node, other).expect("it is free");
        unit.set_served(1, false);
    }

    #[test]
    fn the_keys_of_a_slot_are_visited_and_no_more_than_asked_for() {
        let mut node = node();
        let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        let mut unit = Unit::exclusive(&mut node);
        let mut view = unit.view(&mut local, 0, 1_700_000_000_000);
        let key = |tag: &str, number: usize| format!("{{{tag}}}{number}").into_bytes();
        for (tag, keys) in [("a", 1000), ("b", 1)] {
            for number in 0..keys {
                let key = key(tag, number);
                view.set_string(&key, b"value", Expiry::Clear);
                view.changed(Classes::STRING, "set", &key);
            }
        }
        view.finish_unreported();
        let visited = |slot: u16, count: u64| {
            let mut keys = BTreeSet::new();
            unit.visit_slot(0, slot, count, |key| assert!(keys.insert(key.to_vec())));
            keys
        };
        let slot = slot_of(b"a");
        let all: BTreeSet<Vec<u8>> = (0..1000).map(|number| key("a", number)).collect();
        assert_eq!(visited(slot, u64::MAX), all);
        for count in [0, 1, 7, 999, 1000] {
            let keys = visited(slot, count);
            assert!(
                keys.len() as u64 == count && keys.is_subset(&all),
                "{count}"
            );
        }
        assert!(visited(slot + 1, 5).is_empty());
        drop(unit);
        let counts = [slot, slot_of(b"b"), slot + 1].map(|slot| node.slot_key_count(0, slot));
        assert_eq!(counts, [1000, 1, 0]);
    }
}
