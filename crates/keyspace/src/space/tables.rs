//! The tables of a database: the slots, the indexes of what expires, and the counts, kept in step when an entry is added,
//! replaced or removed. Entries themselves are made and destroyed by the caller, who holds the key's stripe.
//!
//! Must not know: views, reports, the account of memory.

use std::{ptr::NonNull, sync::atomic::Ordering};

use redline_table::Index;
use redline_types::{Kind, Value};

use super::{Db, DbStripe, slot_of, stripe_of};
use crate::{
    ahead::Ahead,
    entry::{Content, Entry},
};

impl Db {
    /// Returns the entry of a key, whose stripe the caller holds; it may have expired. `ahead`: its prefetched state, or
    /// that of another key.
    #[inline]
    pub(crate) fn find(&self, hash: u64, key: &[u8], ahead: Option<&Ahead>) -> Option<Entry> {
        let index = &self.slots[slot_of(hash)];
        let seen = ahead.and_then(|ahead| ahead.recall(index));
        // SAFETY: the stripe is held, so what the index recalls is a live entry.
        if let Some(pointer) = seen.filter(|seen| unsafe { has_key(*seen, key) }) {
            return Some(Entry::from_table(pointer));
        }
        index
            // SAFETY: likewise the pointers of the index.
            .find(hash, |pointer| unsafe { has_key(pointer, key) })
            .map(Entry::from_table)
    }

    /// Stores an entry, in place of the old one of the same key if there is one; returns the bytes by which tables and
    /// entries have grown.
    ///
    /// # Safety
    /// The stripe is held; the old entry is in the tables and is destroyed by the caller, the new one is not in them.
    #[inline]
    pub(crate) unsafe fn store(&self, hash: u64, old: Option<Entry>, fresh: Entry) -> i64 {
        let index = &self.slots[slot_of(hash)];
        // SAFETY: both are alive, and nobody changes them meanwhile.
        unsafe {
            let mut grown = bytes(fresh);
            let mut before = Indexed::default();
            match old {
                Some(old) => {
                    index.replace(hash, old.pointer(), fresh.pointer());
                    grown -= bytes(old);
                    before = Indexed::of(old);
                }
                None => {
                    grown += grown_by(index, || index.insert(hash, fresh.pointer()));
                    let keys = &self.stripe(hash).keys;
                    keys.store(keys.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
            }
            let after = Indexed::of(fresh);
            if before.is_labelled() || after.is_labelled() {
                grown += self.relabel(old, Some(fresh));
            }
            grown + self.reindex(hash, old, before, Some(fresh), after)
        }
    }

    /// Takes an entry out of the tables; returns the bytes by which tables and entries have grown: less than zero.
    ///
    /// # Safety
    /// The stripe is held; the entry is in the tables, and is destroyed by the caller.
    pub(crate) unsafe fn take_out(&self, hash: u64, entry: Entry) -> i64 {
        let index = &self.slots[slot_of(hash)];
        let grown = grown_by(index, || {
            let was_there = index.remove(hash, entry.pointer());
            debug_assert!(
                was_there,
                "an entry is in the database out of which it is taken"
            );
        });
        let keys = &self.stripe(hash).keys;
        keys.store(keys.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
        // SAFETY: it is alive, and nobody changes it meanwhile.
        unsafe {
            let (before, after) = (Indexed::of(entry), Indexed::default());
            let relabelled = match before.is_labelled() {
                true => self.relabel(Some(entry), None),
                false => 0,
            };
            grown + relabelled + self.reindex(hash, Some(entry), before, None, after) - bytes(entry)
        }
    }

    /// Puts an entry that was rebuilt, with the same value and another expiry, in the place of the old one, which is freed
    /// already; `had_expiry`: the old one had an expiry. Returns the bytes by which the tables have grown.
    ///
    /// # Safety
    /// The stripe is held; the old entry is in the tables, the new one is not.
    pub(crate) unsafe fn exchange_rebuilt(
        &self,
        hash: u64,
        old: Entry,
        had_expiry: bool,
        fresh: Entry,
    ) -> i64 {
        self.slots[slot_of(hash)].replace(hash, old.pointer(), fresh.pointer());
        // SAFETY: it is alive, and nobody changes it meanwhile; of the old one only the address is used.
        let after = unsafe { Indexed::of(fresh) };
        let before = Indexed {
            expire_at_ms: had_expiry.then_some(0),
            ..after
        };
        self.reindex(hash, Some(old), before, Some(fresh), after)
    }

    /// Keeps the indexes of what expires and the counts of types right; returns the bytes by which the indexes have grown.
    #[inline]
    fn reindex(
        &self,
        hash: u64,
        from: Option<Entry>,
        before: Indexed,
        to: Option<Entry>,
        after: Indexed,
    ) -> i64 {
        let mut grown = 0;
        let if_any = |entry: Option<Entry>, time: Option<i64>| entry.filter(|_| time.is_some());
        if before.expire_at_ms.is_some() || after.expire_at_ms.is_some() {
            let from = if_any(from, before.expire_at_ms);
            let to = if_any(to, after.expire_at_ms);
            grown += move_in(&self.stripe(hash).ttl, hash, from, to);
            if let Some(at) = after.expire_at_ms {
                self.note_expiry(hash, at);
            }
        }
        if before.object.is_some() || after.object.is_some() {
            let (before, after) = (before.object, after.object);
            grown += self.reindex_objects(hash, from.zip(before), to.zip(after));
        }
        grown
    }

    /// Does so for what only objects have. Strings, which are most values, do not come here.
    #[inline(never)]
    fn reindex_objects(
        &self,
        hash: u64,
        from: Option<(Entry, ObjectFacts)>,
        to: Option<(Entry, ObjectFacts)>,
    ) -> i64 {
        let timed = |one: Option<(Entry, ObjectFacts)>| {
            one.and_then(|(entry, facts)| Some((entry, facts.earliest_ms?)))
        };
        let mut grown = 0;
        if timed(from).is_some() || timed(to).is_some() {
            grown += self.move_timed(hash, timed(from).map(|(entry, _)| entry), timed(to));
        }
        let is_vector_set =
            |one: Option<(Entry, ObjectFacts)>| one.is_some_and(|(_, facts)| facts.is_vector_set);
        match (is_vector_set(from), is_vector_set(to)) {
            (false, true) => drop(self.vector_sets.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.vector_sets.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        grown
    }

    /// Keeps the index of labels right, where one of two entries of a key takes the place of the other; returns the bytes by
    /// which it has grown.
    ///
    /// # Safety
    /// Both are alive, and nobody changes them meanwhile.
    #[cold]
    unsafe fn relabel(&self, from: Option<Entry>, to: Option<Entry>) -> i64 {
        // SAFETY: handed on from the caller.
        let labels = |entry: Option<Entry>| match entry.map(|entry| unsafe { entry.content() }) {
            Some(Content::Object(value)) => value.labels().cloned(),
            _ => None,
        };
        let (before, after) = (labels(from), labels(to));
        let Some(entry) = to.or(from) else {
            return 0;
        };
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        // SAFETY: as above.
        self.labels
            .exchange(unsafe { entry.key() }, &before, &after)
    }

    /// Keeps the index of entries whose collection has elements that expire right: one is removed, added or replaced, with
    /// the earliest time of an element. Returns the bytes by which the index has grown. The caller holds the stripe.
    pub(crate) fn move_timed(
        &self,
        hash: u64,
        from: Option<Entry>,
        to: Option<(Entry, i64)>,
    ) -> i64 {
        let timed = &self.stripe(hash).timed;
        let grown = move_in(timed, hash, from, to.map(|(entry, _)| entry));
        if let Some((_, at)) = to {
            self.note_element_expiry(hash, at);
        }
        grown
    }

    /// Notes the time at which an element of a key of the stripe expires.
    pub(crate) fn note_element_expiry(&self, hash: u64, at: i64) {
        let next = &self.next_element_ms[usize::from(stripe_of(hash))];
        if at < next.load(Ordering::Relaxed) {
            next.store(at, Ordering::Relaxed);
        }
    }

    /// Notes the time at which a key of the stripe expires.
    #[inline]
    pub(crate) fn note_expiry(&self, hash: u64, at: i64) {
        let next = &self.next_expire_ms[usize::from(stripe_of(hash))];
        if at < next.load(Ordering::Relaxed) {
            next.store(at, Ordering::Relaxed);
        }
    }

    #[inline]
    fn stripe(&self, hash: u64) -> &DbStripe {
        &self.stripes[usize::from(stripe_of(hash))]
    }
}

/// Facts by which indexes and counts know an entry.
#[derive(Clone, Copy, Default)]
struct Indexed {
    expire_at_ms: Option<i64>,
    /// Facts of its value; none of a string, or of one that is packed in the entry.
    object: Option<ObjectFacts>,
}

/// Facts by which they know a value that is an object.
#[derive(Clone, Copy)]
struct ObjectFacts {
    /// Time before which no element of its collection expires.
    earliest_ms: Option<i64>,
    is_vector_set: bool,
    /// The value has labels.
    is_labelled: bool,
}

impl Indexed {
    /// # Safety
    /// See [`Entry::key`].
    #[inline]
    unsafe fn of(entry: Entry) -> Indexed {
        // SAFETY: handed on from the caller.
        let (expire_at_ms, content) = unsafe { (entry.expire_at_ms(), entry.content()) };
        let object = match content {
            Content::Object(value) => Some(ObjectFacts::of(value)),
            Content::String(_) | Content::Packed(_) => None,
        };
        Indexed {
            expire_at_ms,
            object,
        }
    }

    #[inline]
    fn is_labelled(&self) -> bool {
        self.object.is_some_and(|facts| facts.is_labelled)
    }
}

impl ObjectFacts {
    #[inline(never)]
    fn of(value: &Value) -> ObjectFacts {
        ObjectFacts {
            earliest_ms: value.earliest_expiry_ms(),
            is_vector_set: value.kind() == Kind::VectorSet,
            is_labelled: value.labels().is_some(),
        }
    }
}

/// Returns the bytes of an entry and its value.
///
/// # Safety
/// See [`Entry::key`].
#[inline]
unsafe fn bytes(entry: Entry) -> i64 {
    // SAFETY: handed on from the caller.
    unsafe { (entry.heap_bytes() + entry.value_bytes()) as i64 }
}

/// Returns true if two keys are equal. Keys are short and nearly always equal here, since tag and order bits agree:
/// words of eight bytes, the last of them overlapping, take less than the call of a general comparison.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    const INLINE_BYTES_MAX: usize = 64;
    if a.len() != b.len() {
        return false;
    }
    let (Some(end_a), Some(end_b)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) else {
        return a == b;
    };
    if a.len() > INLINE_BYTES_MAX {
        return a == b;
    }
    let word = |chunk: &[u8; 8]| u64::from_ne_bytes(*chunk);
    let mut differ = word(end_a) ^ word(end_b);
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        differ |= word(a) ^ word(b);
    }
    differ == 0
}

/// # Safety
/// The pointer is that of a live entry, whose stripe is held.
#[inline]
unsafe fn has_key(pointer: NonNull<u8>, key: &[u8]) -> bool {
    // SAFETY: handed on from the caller.
    is_same(unsafe { Entry::from_table(pointer).key() }, key)
}

/// Replaces an entry in an index, or adds or removes it; returns the bytes by which the index has grown.
fn move_in(index: &Index, hash: u64, from: Option<Entry>, to: Option<Entry>) -> i64 {
    grown_by(index, || match (from, to) {
        (Some(from), Some(to)) => {
            index.replace(hash, from.pointer(), to.pointer());
        }
        (Some(from), None) => {
            index.remove(hash, from.pointer());
        }
        (None, Some(to)) => index.insert(hash, to.pointer()),
        (None, None) => {}
    })
}

/// Returns the number of bytes by which a change makes an index larger.
#[inline]
fn grown_by(index: &Index, change: impl FnOnce()) -> i64 {
    let before = index.table_bytes();
    change();
    index.table_bytes() as i64 - before as i64
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use redline_table::Heap;
    use redline_types::{Hash, Limits, Value};

    use super::*;
    use crate::{Keyspace, entry::Stored, lock::NobodyWaits};

    /// The tables of a database, and the entries that ought to be in them.
    struct Model {
        space: Keyspace,
        heap: Heap,
        entries: HashMap<Vec<u8>, Entry>,
        grown: i64,
    }

    impl Model {
        fn db(&self) -> &'static Db {
            self.space.db_or_create(0)
        }

        fn hash(&self, key: &[u8]) -> u64 {
            self.space.place(key).hash()
        }

        fn store(&mut self, key: &[u8], value: Stored<'_>, expire_at_ms: Option<i64>) {
            let phase = self.space.snapshots.phase();
            let fresh = Entry::create(&mut self.heap, key, value, expire_at_ms, 0, phase);
            let old = self.entries.insert(key.to_vec(), fresh);
            // SAFETY: the test is alone, and destroys what was there.
            unsafe {
                self.grown += self.db().store(self.hash(key), old, fresh);
                drop(old.map(|old| old.destroy(&mut self.heap)));
            }
        }

        fn remove(&mut self, key: &[u8]) {
            let hash = self.hash(key);
            if let Some(entry) = self.entries.remove(key) {
                // SAFETY: as above.
                unsafe {
                    self.grown += self.db().take_out(hash, entry);
                    drop(entry.destroy(&mut self.heap));
                }
            }
        }

        fn check(&self) {
            let db = self.db();
            for (key, entry) in &self.entries {
                assert!(
                    db.find(self.hash(key), key, None) == Some(*entry),
                    "{key:?}"
                );
            }
            // SAFETY: they are alive.
            let indexed = |entry: &Entry| unsafe { Indexed::of(*entry) };
            let indexed: Vec<Indexed> = self.entries.values().map(indexed).collect();
            let sum = |count: fn(&DbStripe) -> usize| db.stripes.iter().map(count).sum::<usize>();
            let keys = sum(|stripe| stripe.keys.load(Ordering::Relaxed) as usize);
            assert_eq!(keys, self.entries.len());
            let expiring = indexed.iter().filter(|it| it.expire_at_ms.is_some());
            assert_eq!(sum(|stripe| stripe.ttl.len()), expiring.count());
            let timed = indexed
                .iter()
                .filter(|it| it.object.is_some_and(|facts| facts.earliest_ms.is_some()));
            assert_eq!(sum(|stripe| stripe.timed.len()), timed.count());
            let tables = db.slots.iter().map(Index::table_bytes).sum::<usize>()
                + sum(|stripe| stripe.ttl.table_bytes() + stripe.timed.table_bytes());
            // SAFETY: as above.
            let entries = self.entries.values().map(|entry| unsafe { bytes(*entry) });
            assert_eq!(self.grown, tables as i64 + entries.sum::<i64>());
        }
    }

    fn hash(expire_at_ms: Option<i64>) -> Value {
        let mut hash = Hash::new();
        hash.set(b"field", b"value", &Limits::default());
        if expire_at_ms.is_some() {
            hash.set_expire_at_ms(b"field", expire_at_ms);
        }
        hash.into()
    }

    #[test]
    fn tables_indexes_and_counts_stay_in_step() {
        let mut model = Model {
            space: Keyspace::new(1, Box::new(NobodyWaits)),
            heap: Heap::new(),
            entries: HashMap::new(),
            grown: 0,
        };
        let mut random = fastrand::Rng::with_seed(11);
        for round in 0..3_000 {
            let key = format!("key {}", random.u32(..200)).into_bytes();
            let at = random.bool().then(|| random.i64(1..1_000_000));
            match random.u32(..4) {
                0 => model.remove(&key),
                1 => {
                    let bytes = vec![b'x'; random.usize(..200)];
                    let stored = Stored::Bytes {
                        bytes: &bytes,
                        raw: false,
                    };
                    model.store(&key, stored, at);
                }
                _ => model.store(&key, Stored::Object(hash(at)), at.filter(|at| at % 2 == 0)),
            }
            if round % 100 == 0 {
                model.check();
            }
        }
        let keys: Vec<Vec<u8>> = model.entries.keys().cloned().collect();
        keys.iter().for_each(|key| model.remove(key));
        model.check();
        let found = model.db().find(model.hash(&keys[0]), &keys[0], None);
        assert!(found.is_none());
    }

    #[test]
    fn the_earliest_time_of_a_stripe_is_known() {
        let mut model = Model {
            space: Keyspace::new(1, Box::new(NobodyWaits)),
            heap: Heap::new(),
            entries: HashMap::new(),
            grown: 0,
        };
        model.store(b"key", Stored::Object(hash(Some(70))), Some(90));
        model.store(b"key", Stored::Object(hash(Some(80))), Some(60));
        let stripe = usize::from(stripe_of(model.hash(b"key")));
        let time = |times: &[std::sync::atomic::AtomicI64]| times[stripe].load(Ordering::Relaxed);
        assert_eq!(time(&model.db().next_expire_ms), 60);
        assert_eq!(time(&model.db().next_element_ms), 70);
        model.remove(b"key");
    }
}
