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

/// Entries that the savers of a test have got.
#[derive(Default)]
struct Saved {
    entries: Mutex<Vec<(Key, Stored)>>,
    savers: AtomicUsize,
    handed_in: AtomicUsize,
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

    fn has_room(&self) -> bool {
        !self.0.is_full.load(Ordering::Relaxed)
    }

    fn hand_in(&mut self) {
        self.0.handed_in.fetch_add(1, Ordering::Relaxed);
    }
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
                    .map(|(field, value)| [&field.to_vec()[..], b"=", &value.to_vec()].concat())
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
        let (key, other, db) = (self.key(), self.key(), self.rng.u32(..DATABASES));
        let number = self.rng.u32(..);
        let expire_at_ms = self.now_ms + i64::from(self.rng.u32(1..400));
        match self.rng.u32(..100) {
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
            (0..500).for_each(|_| world.change());
        }
    }
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
