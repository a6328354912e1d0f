//! The frozen objects of a snapshot: where each is, and how far it was saved.
//!
//! An object stays under its key, which may change (RENAME, MOVE), until the key goes or has another value; then it is
//! kept here. One worker at a time takes pieces, of the oldest object: a file has the pieces of each side by side.
//!
//! Must not know: formats, files, types of values.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use redline_table::frozen::FreezeId;
use redline_types::{List, Value};

use super::PiecewiseEntry;
use crate::{
    entry::Entry,
    space::{Db, Keyspace},
    unit::Unit,
};

/// The frozen objects, by age. The lock is taken while stripes are held, and nothing is waited for under it.
#[derive(Default)]
pub(super) struct FrozenObjects {
    objects: Mutex<BTreeMap<FreezeId, Object>>,
    last_id: AtomicU64,
}

struct Object {
    place: Place,
    /// `None`: it is lent.
    begun: Option<Box<dyn PiecewiseEntry>>,
}

enum Place {
    /// Under a key. Changed by whoever holds its stripe.
    Key(Location),
    /// In no database; `None`: it is lent.
    Out(Option<Value>),
}

#[derive(Clone, PartialEq, Eq)]
struct Location {
    db: Table,
    key: Box<[u8]>,
}

/// A database's table, told apart from others by its place.
#[derive(Clone, Copy)]
struct Table(&'static Db);

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Table {}

/// An object in the hands of a worker that takes pieces.
pub(super) struct Lent {
    id: FreezeId,
    pub(super) begun: Box<dyn PiecewiseEntry>,
    /// The value, if it is in no database.
    pub(super) value: Option<Value>,
    location: Option<Location>,
}

impl FrozenObjects {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<FreezeId, Object>> {
        let objects = self.objects.lock();
        objects.expect("no panic under the list of frozen objects")
    }

    /// Returns true if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.objects().is_empty()
    }

    /// Adds an object under a key, whose stripe the caller holds until it is frozen under the name that is returned.
    pub(super) fn add(
        &self,
        begun: Box<dyn PiecewiseEntry>,
        db: &'static Db,
        key: &[u8],
    ) -> FreezeId {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let id = FreezeId::new(id).expect("they are counted from 1");
        let object = Object {
            place: Place::Key(Location {
                db: Table(db),
                key: key.into(),
            }),
            begun: Some(begun),
        };
        self.objects().insert(id, object);
        id
    }

    /// Notes another key of an object. The caller holds its stripe, and that of the old one.
    pub(super) fn note_moved(&self, id: FreezeId, db: &'static Db, key: &[u8]) {
        if let Some(object) = self.objects().get_mut(&id) {
            object.place = Place::Key(Location {
                db: Table(db),
                key: key.into(),
            });
        }
    }

    /// Takes an object that is in no database any more.
    pub(super) fn adopt(&self, value: Value) {
        let mut objects = self.objects();
        let object = value.freeze_id().and_then(|id| objects.get_mut(&id));
        let object = object.expect("what is frozen is on the list");
        object.place = Place::Out(Some(value));
    }

    /// Takes the objects out of a flushed database, and returns the bytes that they take in its account.
    ///
    /// # Safety
    /// No unit reaches the database's entries; the caller owns it.
    pub(super) unsafe fn adopt_all_of(&self, space: &Keyspace, db: &'static Db) -> usize {
        let mut bytes = 0;
        for object in self.objects().values_mut() {
            let Place::Key(location) = &object.place else {
                continue;
            };
            if location.db != Table(db) {
                continue;
            }
            let entry = entry_at(space, location).expect("what is frozen is there");
            // SAFETY: handed on from the caller.
            let value = unsafe { entry.object_to_freeze() };
            let value = value.expect("what is frozen is an object");
            let empty = Value::from(List::new());
            bytes += value.heap_bytes() - empty.heap_bytes();
            object.place = Place::Out(Some(mem::replace(value, empty)));
        }
        bytes
    }

    /// Lends the oldest object, unless it is lent already.
    pub(super) fn lend(&self) -> Option<Lent> {
        let mut objects = self.objects();
        let (id, object) = objects.iter_mut().next()?;
        let begun = object.begun.take()?;
        let (value, location) = match &mut object.place {
            Place::Key(location) => (None, Some(location.clone())),
            Place::Out(value) => (value.take(), None),
        };
        Some(Lent {
            id: *id,
            begun,
            value,
            location,
        })
    }

    /// Takes an object back of which there are further pieces.
    pub(super) fn take_back(&self, lent: Lent) {
        let mut objects = self.objects();
        let object = objects.get_mut(&lent.id).expect("a lent one stays");
        object.begun = Some(lent.begun);
        if let Some(value) = lent.value {
            object.place = Place::Out(Some(value));
        }
    }

    /// Removes an object that is saved; returns its value if that is in no database.
    pub(super) fn remove(&self, lent: Lent) -> Option<Value> {
        self.objects().remove(&lent.id);
        lent.value
    }

    /// Takes the stripe of a lent object's key, and returns its entry. `None` if the stripe is in use, the object is
    /// somewhere else now, or its database is flushed, so that somebody will take it out.
    pub(super) fn find<'a>(&self, space: &'a Keyspace, lent: &Lent) -> Option<(Unit<'a>, Entry)> {
        let location = lent.location.as_ref()?;
        let unit = Unit::try_one(space, space.place(&location.key).stripe())?;
        let is_there = {
            // Both under the lock, under which an object is taken out of a flushed database.
            let objects = self.objects();
            let is_flushed = location.db.0.cut.is_flushed.load(Ordering::Relaxed);
            let place = objects.get(&lent.id).map(|object| &object.place);
            !is_flushed && matches!(place, Some(Place::Key(now)) if now == location)
        };
        if !is_there {
            return None;
        }
        let entry = entry_at(space, location).expect("what is frozen is there");
        Some((unit, entry))
    }
}

/// Returns the entry of a key, whose stripe the caller holds, or which nobody else reaches.
fn entry_at(space: &Keyspace, location: &Location) -> Option<Entry> {
    let hash = space.place(&location.key).hash();
    location.db.0.find(hash, &location.key, None)
}
