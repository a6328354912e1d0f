//! Keyspaces for the tests of snapshots: filled, changed, cut, walked, and told as text; and files told in the same way.

use std::{collections::BTreeMap, mem, sync::Arc};

use redline_keyspace::{
    Clock, Expiry, Keyspace, Local, Owned, Trace, Unit, ValueRef, View,
    lock::{Wake, WakeToken},
    snapshot::Slice,
};
use redline_rdb::{
    FileVersion, Format, Object, ObjectRef,
    file::{FileError, Recency, Record, Scanner, decode},
    object,
    primitive::Writer,
};
use redline_types::{
    DataType, Hash, Limits, List, Set, Value, VectorSet, Zset,
    stream::{NewId, References, StreamId},
    vector::Shape,
    zset::AddFlags,
};

use crate::snapshot::{Encoding, Stream, file::Head};

pub(crate) const DATABASES: u32 = 4;
/// Number of kinds of values that [`value`] makes.
const KINDS: usize = 10;
/// So many keys that a database has of each kind.
const KEYS_OF_A_KIND: usize = 4;
/// A time at which everything was made, in seconds: some minutes.
const MADE_S: u32 = 60 * 1_000;

/// A key, told as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The type, then the elements in an order of their own.
    value: Vec<String>,
    expire_at_ms: Option<i64>,
    /// The idle time or the frequency, if accesses are told.
    access: Option<u64>,
}

/// The keys of a keyspace or a file, by database and key.
pub(crate) type Contents = BTreeMap<(u32, Vec<u8>), Told>;

struct NobodyWaits;

impl Wake for NobodyWaits {
    fn wake(&self, _token: WakeToken) {}
}

/// A keyspace, and two workers.
pub(crate) struct World {
    pub(crate) space: Keyspace,
    local: Local,
    other: Local,
    pub(crate) rng: fastrand::Rng,
}

/// Returns a format of this version that does what can be done.
pub(crate) fn format(version: u16) -> Format {
    Format {
        version: FileVersion::Redis(version),
        compresses: true,
        checksums: true,
    }
}

/// Returns the rules of a policy, some time after everything was made.
pub(crate) fn clock(lfu: bool) -> Clock {
    Clock {
        lfu,
        now_s: MADE_S + 120,
        ..Clock::default()
    }
}

impl World {
    /// Returns an empty one.
    pub(crate) fn new(clock: Clock) -> World {
        World::of(
            Keyspace::new(DATABASES as usize, Box::new(NobodyWaits)),
            clock,
        )
    }

    /// Returns one of this keyspace.
    pub(crate) fn of(space: Keyspace, clock: Clock) -> World {
        let local = || {
            let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
            local.clock = clock;
            local
        };
        World {
            space,
            local: local(),
            other: local(),
            rng: fastrand::Rng::with_seed(2),
        }
    }

    /// Returns one with values of all types in databases 0 and 3, whose keys were used at several times.
    pub(crate) fn filled(clock: Clock) -> World {
        let mut world = World::new(clock);
        for (db, number) in [(0, 0..KINDS * KEYS_OF_A_KIND), (3, 0..KINDS)] {
            for number in number {
                world.put(db, number);
            }
        }
        world
    }

    /// Sets a key to a value of its kind.
    fn put(&mut self, db: u32, number: usize) {
        let key = format!("key:{number}").into_bytes();
        let value = value(&mut self.rng, number % KINDS);
        let expiry = match self.rng.u8(..3) {
            0 => Expiry::AtMs(self.rng.i64(1..1 << 42)),
            _ => Expiry::Clear,
        };
        let (idle_s, frequency) = (self.rng.u64(..1_000), self.rng.u8(..));
        let now = self.local.clock;
        self.local.clock.now_s = MADE_S;
        self.in_db(db, |view| {
            view.insert(&key, value, expiry);
            view.unreported(&key);
            let found = view.find(&key, Trace::Quiet);
            let found = found.expect("it was inserted");
            found.set_access(Some(idle_s), Some(frequency));
        });
        self.local.clock = now;
    }

    /// Sets or removes one of the keys.
    pub(crate) fn change(&mut self) {
        let (db, number) = (
            self.rng.u32(..DATABASES),
            self.rng.usize(..KINDS * KEYS_OF_A_KIND),
        );
        match self.rng.bool() {
            true => self.put(db, number),
            false => self.remove(db, format!("key:{number}").as_bytes()),
        }
    }

    /// Fills a large collection of each type that is saved in pieces; `is_new`: also such as old versions do not hold.
    pub(crate) fn fill_large(&mut self, round: usize, is_new: bool) {
        for number in 0..1_200 {
            self.edit_large(round, number, is_new);
        }
    }

    /// Changes large collections, and removes one now and then.
    pub(crate) fn change_large(&mut self) {
        for _ in 0..4 {
            let (round, number) = (self.rng.usize(..6), self.rng.usize(..2_400));
            match self.rng.u16(..2_000) {
                0 => self.remove(0, format!("large:{}:{round}", number % 4).as_bytes()),
                1..400 => self.shrink_large(round, number),
                _ => self.edit_large(round, number, true),
            }
        }
    }

    /// Adds or changes one element of one of the large collections of a round.
    fn edit_large(&mut self, round: usize, number: usize, is_new: bool) {
        let element = format!("{number}:{round}").into_bytes();
        let score = self.rng.f64();
        let long = vec![b'x'; self.rng.usize(..200)];
        let at_ms = (is_new && self.rng.bool()).then(|| self.rng.i64(1..1 << 42));
        self.in_db(0, |view| {
            let keys = (0..4).map(|kind| format!("large:{kind}:{round}").into_bytes());
            let [list, set, hash, zset] = &keys.collect::<Vec<_>>()[..] else {
                unreachable!("there are four")
            };
            let edited = view.write_or_new(list, |list: &mut List, limits| {
                list.push_back(&long, limits);
                list.push_front(&element, limits);
                list.set(number as i64, &long, limits);
            });
            edited.expect("a list");
            let edited = view.write_or_new(set, |set: &mut Set, limits| set.add(&element, limits));
            edited.expect("a set");
            let edited = view.write_or_new(hash, |hash: &mut Hash, limits| {
                hash.set(&element, &long, limits);
                hash.set_expire_at_ms(&element, at_ms);
            });
            edited.expect("a hash");
            let edited = view.write_or_new(zset, |zset: &mut Zset, limits| {
                zset.add(&element, score, AddFlags::default(), limits)
            });
            edited.expect("a sorted set").expect("a number");
            [list, set, hash, zset]
                .iter()
                .for_each(|key| view.unreported(key));
            if !is_new {
                return;
            }
            let stream = format!("large:s:{round}").into_bytes();
            let edited =
                view.write_or_new(&stream, |stream: &mut redline_types::Stream, limits| {
                    let fields = [&b"field"[..], &long[..]].into_iter();
                    let last = stream.last_id();
                    let id = NewId::Exact(StreamId::new(last.ms + 1, number as u64));
                    let added = stream.add(id, 0, fields, limits);
                    assert!(added.is_ok());
                    if number.is_multiple_of(3) {
                        let id = StreamId::new(last.ms / 2, number as u64);
                        let found = stream.range(id, StreamId::MAX).next().map(|entry| entry.id);
                        found.map(|id| stream.delete(id, References::Keep));
                    }
                    if number == 7 {
                        stream.create_group(b"group", last, Some(number as u64));
                    }
                });
            edited.expect("a stream");
            view.unreported(&stream);
        });
    }

    /// Removes an element of one of the large collections.
    fn shrink_large(&mut self, round: usize, number: usize) {
        let element = format!("{number}:{round}").into_bytes();
        let key = format!("large:{}:{round}", number % 4).into_bytes();
        self.in_db(0, |view| {
            let edited = match number % 4 {
                0 => view.write(&key, |list: &mut List, limits| {
                    list.trim(number % 3..list.len(), limits);
                }),
                1 => view.write(&key, |set: &mut Set, _| {
                    set.remove(&element);
                }),
                2 => view.write(&key, |hash: &mut Hash, _| {
                    hash.remove(&element);
                }),
                _ => view.write(&key, |zset: &mut Zset, _| {
                    zset.remove(&element);
                }),
            };
            edited.expect("of this type");
            view.unreported(&key);
        });
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, db: u32, key: &[u8]) {
        self.in_db(db, |view| {
            view.remove(key);
            view.unreported(key);
        });
    }

    /// Runs a unit that holds everything, at a time at which nothing has expired.
    pub(crate) fn in_db<R>(&mut self, db: u32, run: impl FnOnce(&mut View<'_>) -> R) -> R {
        let mut unit = Unit::exclusive(&mut self.space);
        let mut view = unit.view(&mut self.local, db, 0);
        let result = run(&mut view);
        view.finish();
        unit.commit(&mut self.local);
        self.local.garbage.clear();
        result
    }

    /// Puts the databases of another keyspace in the place of these.
    pub(crate) fn publish(&mut self, loaded: &Keyspace) {
        let mut unit = Unit::exclusive(&mut self.space);
        unit.publish(&mut self.local, loaded);
        unit.commit(&mut self.local);
        self.free_flushed();
    }

    /// Flushes every database and frees it.
    pub(crate) fn flush(&mut self) {
        for db in 0..DATABASES {
            self.in_db(db, |view| view.database().flush());
        }
        self.free_flushed();
    }

    fn free_flushed(&mut self) {
        for flushed in mem::take(&mut self.local.flushed) {
            flushed.free(&self.space, &mut self.local.heap);
        }
        self.local.flush_account(&self.space);
    }

    /// Begins a snapshot.
    pub(crate) fn cut(&mut self, format: Format, tells_accesses: bool) -> (Arc<Stream>, Head) {
        let stream = Stream::new(Encoding {
            format,
            accesses: tells_accesses.then_some(self.local.clock),
        });
        let mut unit = Unit::exclusive(&mut self.space);
        let cut = unit.counts();
        let is_cut = unit.cut(&cut, stream.savers(Box::new(|| ())));
        assert!(is_cut, "no snapshot is being taken");
        let head = Head {
            facts: vec![
                ("redis-ver", b"8.2.3".to_vec()),
                ("aof-base", b"0".to_vec()),
            ],
            libraries: vec![b"#!lua name=one\n".to_vec(), vec![b'-'; 100_000]],
            databases: cut.databases,
            timestamp_s: None,
        };
        (stream, head)
    }

    /// Takes one small step of the walk, as one of the two workers.
    pub(crate) fn slice(&mut self) -> Slice {
        mem::swap(&mut self.local, &mut self.other);
        self.space.snapshot_slice(&mut self.local, || false)
    }

    /// Walks to the end of the snapshot, with something else after each step.
    pub(crate) fn walk(&mut self, mut between: impl FnMut(&mut World)) {
        while self.space.is_snapshot_running() {
            if self.slice() == Slice::Full {
                std::thread::yield_now();
            }
            between(self);
        }
    }

    /// Tells what there is, what has expired included.
    pub(crate) fn contents(&mut self, tells_accesses: bool) -> Contents {
        let mut contents = Contents::new();
        for db in 0..DATABASES {
            self.in_db(db, |view| {
                let lfu = view.local.clock.lfu;
                view.database().for_each(|key, found| {
                    let access = match lfu {
                        true => found.frequency(),
                        false => found.idle_s(),
                    };
                    let told = Told {
                        value: found.with(|value| match value {
                            ValueRef::String(text) => lines(ObjectRef::String(text.as_bytes())),
                            ValueRef::Object(value) => lines(ObjectRef::Value(value)),
                        }),
                        expire_at_ms: found.expire_at_ms(),
                        access: tells_accesses.then_some(access.into()),
                    };
                    contents.insert((db, key.to_vec()), told);
                });
            });
        }
        contents
    }

    /// Returns the encoding of each value.
    pub(crate) fn encodings(&mut self) -> BTreeMap<(u32, Vec<u8>), &'static str> {
        let mut encodings = BTreeMap::new();
        for db in 0..DATABASES {
            self.in_db(db, |view| {
                view.database().for_each(|key, found| {
                    encodings.insert((db, key.to_vec()), found.encoding());
                });
            });
        }
        encodings
    }
}

/// Tells what is in a file, whose checksum and end are right.
pub(crate) fn contents_of_file(bytes: &[u8]) -> Result<Contents, FileError> {
    let mut scanner = Scanner::new(bytes);
    let version = scanner.header()?;
    let mut contents = Contents::new();
    let mut db = None;
    loop {
        match scanner.next()? {
            Record::SelectDb(number) => db = Some(number as u32),
            Record::Entry(entry) => {
                let limits = Limits::default();
                let object = decode(version, entry.rdb_type, entry.value, &limits);
                let object = object.map_err(|corrupt| entry.error(corrupt))?;
                let told = Told {
                    value: match &object {
                        Object::String(text) => lines(ObjectRef::String(text)),
                        Object::Value(value) => lines(ObjectRef::Value(value)),
                    },
                    expire_at_ms: entry.meta.expire_at_ms,
                    access: entry.meta.recency.map(|recency| match recency {
                        Recency::IdleSeconds(seconds) => seconds,
                        Recency::Frequency(frequency) => frequency.into(),
                    }),
                };
                let db = db.expect("a database was selected");
                let before = contents.insert((db, entry.key.to_vec()), told);
                assert!(before.is_none(), "no key is saved twice");
            }
            Record::End => return Ok(contents),
            Record::Aux { .. } | Record::ResizeDb { .. } | Record::Function(_) => {}
        }
    }
}

/// Returns everything in a value, in an order that does not depend on its encoding.
fn lines(value: ObjectRef<'_>) -> Vec<String> {
    let value = match value {
        ObjectRef::String(text) => return vec!["string".into(), text.escape_ascii().to_string()],
        ObjectRef::Value(value) => value,
    };
    let text = |element: redline_types::Element<'_>| element.to_vec().escape_ascii().to_string();
    let mut lines: Vec<String> = match value {
        Value::List(list) => list.iter().map(text).collect(),
        Value::Set(set) => set.iter().map(text).collect(),
        Value::Hash(hash) => hash
            .iter_timed()
            .map(|(field, value, at)| format!("{} {} {at:?}", text(field), text(value)))
            .collect(),
        Value::Zset(zset) => zset
            .iter()
            .map(|(member, score)| format!("{} {score:?}", text(member)))
            .collect(),
        Value::VectorSet(set) => set
            .iter()
            .map(|element| {
                let (name, level) = (element.name(), element.level());
                format!(
                    "{name:?} {level} {:?} {:?}",
                    element.stored(),
                    element.attributes()
                )
            })
            .collect(),
        // The form of a stream has all that is in it, in one order.
        _ => {
            let mut out = Writer::new(false);
            object::write(&mut out, ObjectRef::Value(value));
            vec![out.escape_ascii().to_string()]
        }
    };
    if matches!(value, Value::Set(_) | Value::Hash(_) | Value::VectorSet(_)) {
        lines.sort_unstable();
    }
    lines.insert(0, value.kind().name().into());
    lines
}

fn text(rng: &mut fastrand::Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.u8(..)).collect()
}

/// Returns a value of one of the kinds: a type, small or large.
fn value(rng: &mut fastrand::Rng, kind: usize) -> Owned {
    let limits = Limits::default();
    let size = [1, 5, 200][rng.usize(..3)];
    let short = |rng: &mut fastrand::Rng| {
        let bytes = rng.usize(1..20);
        text(rng, bytes)
    };
    match kind {
        0 => Owned::Bytes {
            bytes: rng.i64(..).to_string().into_bytes(),
            raw: false,
        },
        1 => Owned::Bytes {
            bytes: short(rng),
            raw: false,
        },
        2 => Owned::Bytes {
            bytes: text(rng, 20_000),
            raw: false,
        },
        3 => {
            let mut list = List::new();
            (0..size).for_each(|_| list.push_back(&short(rng), &limits));
            list.into()
        }
        4 => {
            let mut set = Set::new();
            for _ in 0..size {
                set.add(&short(rng), &limits);
            }
            set.into()
        }
        5 | 6 => {
            let mut hash = Hash::new();
            for number in 0..size {
                let field = number.to_string();
                hash.set(field.as_bytes(), &short(rng), &limits);
                if kind == 6 && rng.bool() {
                    hash.set_expire_at_ms(field.as_bytes(), Some(rng.i64(1..1 << 42)));
                }
            }
            hash.into()
        }
        7 => {
            let mut zset = Zset::new();
            for _ in 0..size {
                let added = zset.add(&short(rng), rng.f64(), AddFlags::default(), &limits);
                assert!(added.is_ok());
            }
            zset.into()
        }
        8 => {
            let mut stream = redline_types::Stream::new();
            let mut id = StreamId::new(1, 1);
            for _ in 0..size {
                id = StreamId::new(id.ms + rng.u64(1..9), rng.u64(..9));
                let fields = [short(rng), short(rng)];
                let fields = fields.iter().map(|field| &field[..]);
                let added = stream.add(NewId::Exact(id), 0, fields, &limits);
                assert!(added.is_ok());
            }
            stream.create_group(b"group", id, Some(1));
            stream.into()
        }
        _ => {
            let mut set = VectorSet::new(Shape {
                dimensions: 3,
                ..Shape::default()
            });
            for number in 0..size.min(20) {
                let vector = [rng.f32(), rng.f32(), rng.f32()];
                let name = number.to_string();
                set.add(name.as_bytes(), &vector, Some(b"{}"), 10, &mut || {
                    rng.u64(..)
                });
            }
            assert!(!set.is_empty());
            set.into()
        }
    }
}
