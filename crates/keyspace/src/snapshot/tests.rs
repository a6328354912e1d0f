//! Snapshots: what is saved is what was there at the cut, each entry once, whatever runs meanwhile.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicUsize},
};

use redline_types::{Hash, Limits};

use super::*;
use crate::{Expiry, View, lock::NobodyWaits, upkeep};

/// A database and a key in it.
type Key = (u32, Vec<u8>);
/// A value and its expiry.
type Stored = (Vec<u8>, Option<i64>);
type Contents = BTreeMap<Key, Stored>;

const DATABASES: u32 = 3;
/// So many keys that slots and stripes have several.
const KEYS: usize = 3_000;
/// Keys of large hashes, and fields that they may have: they are saved in pieces.
const LARGE_KEYS: u32 = 2;
const LARGE_FIELDS: u32 = 4_000;

/// Entries that the savers of a test have got.
#[derive(Default)]
struct Saved {
    entries: Mutex<Vec<(Key, Stored)>>,
    savers: AtomicUsize,
    handed_in: AtomicUsize,
    /// Number of pieces that were taken.
    pieces: AtomicUsize,
    is_full: AtomicBool,
    everything: AtomicBool,
    ended: AtomicBool,
}

struct TestSaver(Arc<Saved>);

impl Saver for TestSaver {
    fn save(&mut self, entry: &SavedEntry<'_>) {
        let value = text_of(&entry.value);
        let key = (entry.db, entry.key.to_vec());
        let mut entries = self.0.entries.lock().unwrap();
        entries.push((key, (value, entry.expire_at_ms)));
    }

    fn begin(&mut self, entry: &SavedEntry<'_>) -> Option<Box<dyn PiecewiseEntry>> {
        Some(Box::new(TestEntry {
            saved: self.0.clone(),
            key: (entry.db, entry.key.to_vec()),
            expire_at_ms: entry.expire_at_ms,
            fields: Vec::new(),
        }))
    }

    fn has_room(&self) -> bool {
        !self.0.is_full.load(Ordering::Relaxed)
    }

    fn hand_in(&mut self) {
        self.0.handed_in.fetch_add(1, Ordering::Relaxed);
    }
}

/// A large hash of which some fields have come.
struct TestEntry {
    saved: Arc<Saved>,
    key: Key,
    expire_at_ms: Option<i64>,
    fields: Vec<Vec<u8>>,
}

impl PiecewiseEntry for TestEntry {
    fn take_piece(&mut self, value: &mut Value) -> bool {
        let Value::Hash(hash) = value else {
            unreachable!("the tests have no other large value")
        };
        self.saved.pieces.fetch_add(1, Ordering::Relaxed);
        let fields = &mut self.fields;
        let is_last = hash.give_piece(&mut |field, value, _| {
            fields.push(text_of_field(&field.to_vec(), &value.to_vec()));
        });
        if is_last {
            fields.sort();
            let stored = (fields.join(&b","[..]), self.expire_at_ms);
            let mut entries = self.saved.entries.lock().unwrap();
            entries.push((self.key.clone(), stored));
        }
        is_last
    }

    fn has_room(&self) -> bool {
        !self.saved.is_full.load(Ordering::Relaxed)
    }
}

fn text_of_field(field: &[u8], value: &[u8]) -> Vec<u8> {
    [field, b"=", value].concat()
}

struct TestSavers(Arc<Saved>);

impl Savers for TestSavers {
    fn saver(&self) -> Box<dyn Saver> {
        self.0.savers.fetch_add(1, Ordering::Relaxed);
        Box::new(TestSaver(self.0.clone()))
    }

    fn everything_is_saved(&self) {
        assert!(!self.0.everything.swap(true, Ordering::Relaxed), "once");
    }

    fn end(&self) {
        assert!(self.0.everything.load(Ordering::Relaxed));
        assert!(!self.0.ended.swap(true, Ordering::Relaxed), "once");
    }
}

/// Returns all of a value as bytes.
fn text_of(value: &ValueRef<'_>) -> Vec<u8> {
    match value {
        ValueRef::String(string) => string.as_bytes().to_vec(),
        ValueRef::Object(value) => {
            let mut fields: Vec<Vec<u8>> = match value {
                redline_types::Value::Hash(hash) => hash
                    .iter()
                    .map(|(field, value)| text_of_field(&field.to_vec(), &value.to_vec()))
                    .collect(),
                _ => unreachable!("the tests have strings and hashes"),
            };
            fields.sort();
            fields.join(&b","[..])
        }
    }
}

struct World {
    space: Keyspace,
    local: Local,
    other: Local,
    rng: fastrand::Rng,
    now_ms: i64,
}

impl World {
    fn new(seed: u64) -> World {
        let local = || Local::new(fastrand::Rng::with_seed(seed), Limits::default());
        World {
            space: Keyspace::new(DATABASES as usize, Box::new(NobodyWaits)),
            local: local(),
            other: local(),
            rng: fastrand::Rng::with_seed(seed),
            now_ms: 1_000,
        }
    }

    fn with_all<R>(&mut self, db: u32, run: impl FnOnce(&mut View<'_>) -> R) -> R {
        let mut unit = Unit::exclusive(&mut self.space);
        let mut view = unit.view(&mut self.local, db, self.now_ms);
        let result = run(&mut view);
        view.finish_unreported();
        unit.commit(&mut self.local);
        result
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key:{}", self.rng.usize(..KEYS)).into_bytes()
    }

    /// Changes something.
    fn change(&mut self) {
        let (mut key, mut other, db) = (self.key(), self.key(), self.rng.u32(..DATABASES));
        let number = self.rng.u32(..);
        // Large ones go seldom, and go to each other.
        if number.is_multiple_of(20) {
            let mut large = || format!("large:{}", self.rng.u32(..LARGE_KEYS)).into_bytes();
            (key, other) = (large(), large());
        }
        let expire_at_ms = self.now_ms + i64::from(self.rng.u32(1..400));
        match self.rng.u32(..100) {
            40..60 if key.starts_with(b"large") => self.with_all(db, |view| {
                let _ = view.write_or_new(&key, |hash: &mut Hash, limits| {
                    for n in 0..400 {
                        let field = number.wrapping_add(7 * n) % LARGE_FIELDS;
                        match n.is_multiple_of(9) {
                            true => hash.remove(field.to_string().as_bytes()),
                            false => hash.set(
                                field.to_string().as_bytes(),
                                &number.to_le_bytes(),
                                limits,
                            ),
                        };
                    }
                });
            }),
            // A string in the place of a large hash is a way in which that goes.
            0..86 if key.starts_with(b"large") && !number.is_multiple_of(640) => {}
            0..40 => self.with_all(db, |view| {
                let text = vec![b'x'; (number % 60) as usize];
                view.set_string(&key, &text, Expiry::Keep);
            }),
            40..45 => self.with_all(db, |view| {
                view.set_string(&key, &[b'l'; 20_000], Expiry::AtMs(expire_at_ms));
            }),
            45..60 => self.with_all(db, |view| {
                let _ = view.write_or_new(&key, |hash: &mut Hash, limits| {
                    let field = (number % 200).to_string();
                    hash.set(field.as_bytes(), &number.to_le_bytes(), limits);
                });
            }),
            60..65 => self.with_all(db, |view| {
                let _ = view.edit_bytes(&key, |bytes| bytes.fill(b'e'));
            }),
            65..72 => self.with_all(db, |view| {
                view.set_expiry(&key, number.is_multiple_of(2).then_some(expire_at_ms));
            }),
            72..80 => self.with_all(db, |view| {
                view.remove(&key);
            }),
            80..86 => self.with_all(db, |view| {
                if let Some((value, expire_at_ms)) = view.take(&key) {
                    view.in_db((db + 1) % DATABASES, |view| {
                        view.put_owned(&other, value, expire_at_ms);
                    });
                }
            }),
            86..92 => self.now_ms += 3,
            92..97 => self.expire_and_compact(),
            97 if number.is_multiple_of(8) => {
                self.with_all(db, |view| {
                    view.database().flush();
                });
            }
            98 => self.with_all(db, |view| view.database().swap((db + 1) % DATABASES)),
            _ => self.free_flushed(),
        }
    }

    fn expire_and_compact(&mut self) {
        let mut cursor = upkeep::ExpiryCursor::new(upkeep::Expiring::Keys, 0, 1);
        loop {
            let step =
                self.space
                    .expire_step(&mut self.local, self.now_ms, &mut cursor, &mut |_, _| ());
            if step.round {
                break;
            }
        }
    }

    fn free_flushed(&mut self) {
        for flushed in std::mem::take(&mut self.local.flushed) {
            flushed.free(&self.space, &mut self.local.heap);
        }
    }

    /// Returns everything that there is, expired keys included.
    fn contents(&mut self) -> Contents {
        let mut contents = Contents::new();
        let now_ms = std::mem::take(&mut self.now_ms);
        for db in 0..DATABASES {
            self.with_all(db, |view| {
                view.database().for_each(|key, found| {
                    let value = found.with(|value| text_of(&value));
                    contents.insert((db, key.to_vec()), (value, found.expire_at_ms()));
                });
            });
        }
        self.now_ms = now_ms;
        contents
    }

    fn cut(&mut self) -> (Arc<Saved>, Option<Cut>) {
        let saved = Arc::<Saved>::default();
        let all = crate::lock::StripeSet::all();
        let mut unit = Unit::try_set(&self.space, &all, false).expect("free");
        let cut = unit.counts();
        let is_cut = unit.cut(&cut, Arc::new(TestSavers(saved.clone())));
        (saved, is_cut.then_some(cut))
    }

    fn slice(&mut self, steps: usize) -> Slice {
        let local = match self.rng.bool() {
            true => &mut self.local,
            false => &mut self.other,
        };
        let mut left = steps;
        self.space.snapshot_slice(local, || {
            left = left.saturating_sub(1);
            left > 0
        })
    }

    /// Walks to the end of the running snapshot.
    fn finish(&mut self) {
        self.free_flushed();
        while self.space.is_snapshot_running() {
            self.slice(100);
        }
    }
}

/// Asserts that a snapshot has got exactly these entries, each once.
fn assert_saved(saved: &Saved, expected: &Contents) {
    assert!(saved.ended.load(Ordering::Relaxed));
    let (savers, handed_in) = (&saved.savers, &saved.handed_in);
    assert_eq!(
        savers.load(Ordering::Relaxed),
        handed_in.load(Ordering::Relaxed)
    );
    let entries = saved.entries.lock().unwrap();
    let found: Contents = entries.iter().cloned().collect();
    assert_eq!(found.len(), entries.len(), "no entry is saved twice");
    for (key, value) in expected {
        assert_eq!(found.get(key), Some(value), "{key:?}");
    }
    assert_eq!(found.len(), expected.len(), "nothing else is saved");
}

#[test]
fn what_was_there_at_the_cut_is_saved_whatever_runs() {
    let mut pieces = 0;
    for seed in 0..6 {
        let mut world = World::new(seed);
        (0..6_000).for_each(|_| world.change());
        for _ in 0..5 {
            let expected = world.contents();
            let (saved, cut) = world.cut();
            let cut = cut.expect("no snapshot is running");
            let keys: u64 = cut.databases.iter().map(|database| database.keys).sum();
            assert_eq!(keys, expected.len() as u64);
            let calm = world.rng.u32(1..40);
            while world.space.is_snapshot_running() && world.rng.u32(..2_000) != 0 {
                world.change();
                if world.rng.u32(..calm) == 0 {
                    world.slice(4);
                }
            }
            world.finish();
            assert_saved(&saved, &expected);
            pieces += saved.pieces.load(Ordering::Relaxed);
            (0..500).for_each(|_| world.change());
        }
    }
    assert!(pieces > 1_000, "only {pieces} pieces of large hashes");
}

/// Fills a large hash, cuts, and takes a piece or two of it.
fn begun(seed: u64) -> (World, Arc<Saved>, Contents) {
    let mut world = World::new(seed);
    world.with_all(0, |view| {
        view.write_or_new(b"large:0", |hash: &mut Hash, limits| {
            for n in 0..LARGE_FIELDS {
                hash.set(n.to_string().as_bytes(), b"value", limits);
            }
        })
        .expect("no other type");
    });
    let expected = world.contents();
    let (saved, _) = world.cut();
    while saved.pieces.load(Ordering::Relaxed) == 0 {
        world.slice(2);
    }
    assert!(saved.entries.lock().unwrap().is_empty(), "there is more");
    (world, saved, expected)
}

#[test]
fn a_large_collection_that_goes_is_saved_all_the_same() {
    let ways: [fn(&mut World); 7] = [
        |world| world.with_all(0, |view| assert!(view.remove(b"large:0"))),
        |world| {
            world.with_all(0, |view| {
                view.set_string(b"large:0", b"text", Expiry::Clear)
            })
        },
        |world| {
            world.with_all(0, |view| {
                let taken = view.take(b"large:0").expect("it is there");
                view.in_db(2, |view| view.put_owned(b"elsewhere", taken.0, taken.1));
            });
        },
        |world| {
            world.with_all(0, |view| {
                view.write(b"large:0", |hash: &mut Hash, _| {
                    (0..LARGE_FIELDS).for_each(|n| {
                        hash.remove(n.to_string().as_bytes());
                    });
                })
                .expect("a hash");
            });
            assert_eq!(world.space.key_count(0), 0);
        },
        |world| {
            world.with_all(0, |view| assert_eq!(view.database().flush(), 1));
            world.free_flushed();
        },
        |world| {
            // To a database that was not there at the cut, which is flushed and used again.
            world.with_all(0, |view| {
                let taken = view.take(b"large:0").expect("it is there");
                view.in_db(2, |view| view.put_owned(b"elsewhere", taken.0, taken.1));
            });
            world.slice(2);
            world.with_all(2, |view| assert_eq!(view.database().flush(), 1));
            world.slice(2);
            world.free_flushed();
            world.with_all(2, |view| {
                view.set_string(b"elsewhere", b"text", Expiry::Clear);
            });
        },
        |world| world.with_all(0, |view| view.database().swap(1)),
    ];
    for (way, go) in ways.iter().enumerate() {
        let (mut world, saved, expected) = begun(way as u64);
        go(&mut world);
        let used = world.space.used_bytes();
        world.finish();
        assert_saved(&saved, &expected);
        world.local.garbage.clear();
        assert_eq!(world.space.used_bytes(), used, "way {way}");
    }
}

/// A copy of a frozen hash is a hash as others are, and the end of the snapshot does not depend on it.
#[test]
fn a_copy_of_a_large_collection_that_is_being_saved_is_not_part_of_it() {
    let (mut world, saved, expected) = begun(3);
    world.with_all(0, |view| {
        let found = view
            .find(b"large:0", crate::Trace::Quiet)
            .expect("it is there");
        let (copy, expire_at_ms) = found.copy();
        view.put_owned(b"copy", copy, expire_at_ms);
        assert!(view.remove(b"large:0"));
        assert!(view.remove(b"copy"));
    });
    world.finish();
    assert_saved(&saved, &expected);
}

#[test]
fn a_key_in_use_keeps_its_large_collection_waiting() {
    let (mut world, saved, expected) = begun(4);
    let stripe = world.space.place(b"large:0").stripe();
    let unit = Unit::try_one(&world.space, stripe).expect("free");
    let before = saved.pieces.load(Ordering::Relaxed);
    let slice = world.space.snapshot_slice(&mut world.local, || true);
    assert_eq!(slice, Slice::InTheWay);
    assert_eq!(saved.pieces.load(Ordering::Relaxed), before);
    drop(unit);
    saved.is_full.store(true, Ordering::Relaxed);
    assert_eq!(world.slice(100), Slice::Full);
    assert!(saved.pieces.load(Ordering::Relaxed) <= before + 1);
    saved.is_full.store(false, Ordering::Relaxed);
    world.finish();
    assert_saved(&saved, &expected);
}

#[test]
fn one_snapshot_is_taken_at_a_time() {
    let mut world = World::new(7);
    (0..500).for_each(|_| world.change());
    let expected = world.contents();
    let (saved, cut) = world.cut();
    assert!(cut.is_some() && world.cut().1.is_none());
    world.finish();
    assert_saved(&saved, &expected);
    assert!(world.cut().1.is_some());
    world.finish();
}

#[test]
fn what_is_published_after_another_snapshot_has_ended_is_saved_whole() {
    for snapshots_between in 0..3 {
        let mut world = World::new(9);
        (0..500).for_each(|_| world.change());
        let mut loaded = world.space.unpublished();
        let mut loader = Local::new(fastrand::Rng::with_seed(2), Limits::default());
        let mut unit = Unit::exclusive(&mut loaded);
        let mut view = unit.view(&mut loader, 0, 0);
        for number in 0..500 {
            let key = format!("loaded:{number}");
            view.set_string(key.as_bytes(), b"value", Expiry::Clear);
        }
        view.finish_unreported();
        drop(unit);
        loader.flush_account(&loaded);
        for number in 0..snapshots_between {
            world.cut();
            // Every other snapshot has the phase of the first.
            assert_eq!(world.space.may_publish(&loaded), number % 2 == 1);
            world.finish();
        }
        let mut unit =
            Unit::try_set(&world.space, &crate::lock::StripeSet::all(), false).expect("free");
        assert!(world.space.may_publish(&loaded));
        unit.publish(&mut world.local, &loaded);
        drop(unit);
        let expected = world.contents();
        assert_eq!(expected.len(), 500);
        let (saved, _) = world.cut();
        world.finish();
        assert_saved(&saved, &expected);
    }
}

#[test]
fn an_empty_keyspace_is_saved_at_once() {
    let mut world = World::new(8);
    let (saved, cut) = world.cut();
    assert_eq!(cut.expect("none is running").databases, []);
    world.finish();
    assert_saved(&saved, &Contents::new());
}

#[test]
fn the_walk_rests_while_the_savers_have_no_room_and_early_saves_go_on() {
    let mut world = World::new(9);
    (0..3_000).for_each(|_| world.change());
    let expected = world.contents();
    let (saved, _) = world.cut();
    saved.is_full.store(true, Ordering::Relaxed);
    assert_eq!(world.slice(10), Slice::Full);
    (0..200).for_each(|_| world.change());
    assert!(!saved.entries.lock().unwrap().is_empty());
    saved.is_full.store(false, Ordering::Relaxed);
    world.finish();
    assert_saved(&saved, &expected);
}

#[test]
fn stripes_in_use_are_walked_later() {
    let mut world = World::new(10);
    (0..2_000).for_each(|_| world.change());
    let expected = world.contents();
    let (saved, _) = world.cut();
    let set = |stripes: std::ops::Range<u16>| {
        let mut set = crate::lock::StripeSet::EMPTY;
        stripes.for_each(|stripe| set.insert(stripe));
        set
    };
    let unit = Unit::try_set(&world.space, &set(5..40), false).expect("free");
    let slice = world.space.snapshot_slice(&mut world.local, || true);
    assert_eq!(slice, Slice::InTheWay);
    drop(unit);
    world.finish();
    assert_saved(&saved, &expected);
}
