//! All interleavings of a cut, a walk and two writers, under the model checker: the phase of entries, the door and the
//! locks as they are.
//!
//! Who finds a stripe in use goes on without it: the other order is another interleaving. What is left of the walk at the
//! end is done by whoever is left.

use std::collections::BTreeMap;

use loom::thread;
use redline_types::Limits;

use super::*;
use crate::{
    Expiry, Trace, View,
    lock::{NobodyWaits, StripeSet},
};

const OLD: &[u8] = b"old";
const NEW: &[u8] = b"new";

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Entries that the savers have got. Of the standard library: it is not part of the model.
#[derive(Clone, Default)]
struct Saved(Arc<std::sync::Mutex<Vec<(Vec<u8>, Vec<u8>)>>>);

impl Saver for Saved {
    fn save(&mut self, entry: &SavedEntry<'_>) {
        let ValueRef::String(value) = &entry.value else {
            unreachable!("the model has strings");
        };
        let saved = (entry.key.to_vec(), value.as_bytes().to_vec());
        self.0.lock().unwrap().push(saved);
    }

    fn has_room(&self) -> bool {
        true
    }

    fn hand_in(&mut self) {}
}

impl Savers for Saved {
    fn saver(&self) -> Box<dyn Saver> {
        Box::new(self.clone())
    }

    fn everything_is_saved(&self) {}

    fn end(&self) {}
}

/// A keyspace with two entries, of different stripes, and a key that is not there.
struct World {
    space: Keyspace,
    a: Vec<u8>,
    b: Vec<u8>,
    born: Vec<u8>,
    saved: Saved,
    /// The data at the cut.
    expected: std::sync::Mutex<Option<Contents>>,
}

/// The deed of a writer: to all keys of its unit, whose stripes are held.
type Act = fn(&World, &mut View<'_>);

/// Parts of a model.
#[derive(Clone, Copy)]
struct Parts {
    first: Act,
    second: Act,
    /// The cut is made without the stripes: a planted fault.
    cuts_anywhere: bool,
}

impl World {
    fn new() -> World {
        let space = Keyspace::new(1, Box::new(NobodyWaits));
        // The hash has a key of its own in each process.
        let of_stripe = |stripe: u16| {
            let keys = (0..).map(|number: u32| number.to_string().into_bytes());
            keys.filter(|key| space.place(key).stripe() == stripe)
                .take(2)
                .collect::<Vec<_>>()
        };
        let [a, born] = of_stripe(0).try_into().expect("two");
        let b = of_stripe(1).swap_remove(0);
        let world = World {
            a,
            b,
            born,
            space,
            saved: Saved::default(),
            expected: std::sync::Mutex::default(),
        };
        let mut local = local();
        let set = world.stripes();
        let unit = Unit::try_set(&world.space, &set, false);
        let mut unit = unit.ok().expect("nobody else is there");
        let mut view = unit.view(&mut local, 0, 0);
        view.set_string(&world.a, OLD, Expiry::Clear);
        view.set_string(&world.b, OLD, Expiry::Clear);
        view.finish_unreported();
        unit.commit(&mut local);
        world
    }

    /// Returns the stripes of the keys.
    fn stripes(&self) -> StripeSet {
        let mut set = StripeSet::EMPTY;
        for key in [&self.a, &self.b] {
            set.insert(self.space.place(key).stripe());
        }
        set
    }

    /// Runs a unit, if both stripes are free.
    fn write(&self, local: &mut Local, act: Act) {
        if let Ok(mut unit) = Unit::try_set(&self.space, &self.stripes(), false) {
            let mut view = unit.view(local, 0, 0);
            act(self, &mut view);
            view.finish_unreported();
            unit.commit(local);
        }
    }

    /// Cuts, if every stripe is free.
    fn cut(&self, local: &mut Local, anywhere: bool) {
        if anywhere {
            let cut = counts(&self.space);
            assert!(super::cut(&self.space, &cut, Arc::new(self.saved.clone())));
            return;
        }
        let Ok(mut unit) = Unit::try_set(&self.space, &StripeSet::all(), false) else {
            return;
        };
        let view = unit.view(local, 0, 0);
        let keys = [&self.a, &self.b, &self.born];
        let there = keys.into_iter().filter_map(|key| {
            let found = view.find(key, Trace::Quiet)?;
            found.with(|value| match value {
                ValueRef::String(text) => Some((key.clone(), text.as_bytes().to_vec())),
                ValueRef::Object(_) => unreachable!("the model has strings"),
            })
        });
        *self.expected.lock().unwrap() = Some(there.collect());
        drop(view);
        let cut = unit.counts();
        assert!(unit.cut(&cut, Arc::new(self.saved.clone())));
    }

    /// Walks to the end, with the shares of all.
    fn finish(&self, locals: &mut [Local]) {
        while self.space.is_snapshot_running() {
            for local in &mut *locals {
                slice(&self.space, local, &mut || true);
            }
        }
    }
}

fn local() -> Local {
    Local::new(fastrand::Rng::with_seed(1), Limits::default())
}

/// Runs two writers beside a cut and the walk that follows it. Returns to `check` what was there at the cut, if there was
/// one that held the stripes, and what was saved.
fn run(parts: Parts, check: fn(&World, Option<Contents>, Vec<(Vec<u8>, Vec<u8>)>)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let world = loom::sync::Arc::new(World::new());
        let writers = [parts.first, parts.second].map(|act| {
            let world = world.clone();
            thread::spawn(move || {
                let mut local = local();
                world.write(&mut local, act);
                local
            })
        });
        let mut walker = local();
        world.cut(&mut walker, parts.cuts_anywhere);
        // A stripe at a time, as far as none is in the way.
        while slice(&world.space, &mut walker, &mut || false) == Slice::More {}
        let [first, second] = writers.map(|writer| writer.join().unwrap());
        world.finish(&mut [walker, first, second]);
        let expected = world.expected.lock().unwrap().take();
        let saved = std::mem::take(&mut *world.saved.0.lock().unwrap());
        check(&world, expected, saved);
    });
}

/// Asserts that each entry was saved exactly once, as it was at the cut.
fn is_exact(_: &World, expected: Option<Contents>, saved: Vec<(Vec<u8>, Vec<u8>)>) {
    let found: Contents = saved.iter().cloned().collect();
    assert_eq!(found.len(), saved.len(), "an entry is saved twice");
    assert_eq!(
        found,
        expected.unwrap_or_default(),
        "not what was there at the cut"
    );
}

/// Asserts that both entries were saved as they were before a unit, or both as they were after it.
fn is_whole(world: &World, _: Option<Contents>, saved: Vec<(Vec<u8>, Vec<u8>)>) {
    let saved: Contents = saved.into_iter().collect();
    assert_eq!(saved.get(&world.a), saved.get(&world.b), "a unit is torn");
}

fn set_both(world: &World, view: &mut View<'_>) {
    view.set_string(&world.a, NEW, Expiry::Clear);
    view.set_string(&world.b, NEW, Expiry::Clear);
}

/// Changes an entry, twice, and makes another.
fn set_and_bear(world: &World, view: &mut View<'_>) {
    view.set_string(&world.a, NEW, Expiry::Clear);
    view.set_string(&world.born, NEW, Expiry::Clear);
    view.set_string(&world.a, OLD, Expiry::Clear);
}

/// Rebuilds an entry, with room for a time.
fn rebuild(world: &World, view: &mut View<'_>) {
    view.set_expiry(&world.b, Some(7));
}

/// Takes an entry out and makes another of the same key.
fn replace(world: &World, view: &mut View<'_>) {
    view.remove(&world.a);
    view.set_string(&world.a, NEW, Expiry::Clear);
    view.remove(&world.b);
}

fn change_past_the_door(world: &World, view: &mut View<'_>) {
    view.change_past_the_door(&world.a, &world.born);
}

const HONEST: Parts = Parts {
    first: set_both,
    second: set_and_bear,
    cuts_anywhere: false,
};

#[test]
fn phase_each_entry_is_saved_once_as_it_was_at_the_cut_and_a_born_one_never() {
    run(HONEST, is_exact);
}

#[test]
fn phase_entries_that_are_taken_out_or_rebuilt_are_saved_once() {
    let parts = Parts {
        first: replace,
        second: rebuild,
        ..HONEST
    };
    run(parts, is_exact);
}

#[test]
#[should_panic(expected = "not what was there at the cut")]
fn phase_a_change_past_the_door_is_found() {
    let parts = Parts {
        second: change_past_the_door,
        ..HONEST
    };
    run(parts, is_exact);
}

#[test]
#[should_panic(expected = "a unit is torn")]
fn phase_a_cut_in_the_middle_of_a_unit_is_found() {
    let parts = Parts {
        second: set_both,
        cuts_anywhere: true,
        ..HONEST
    };
    run(parts, is_whole);
}
