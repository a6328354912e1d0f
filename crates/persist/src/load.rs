//! Loading a snapshot: a file's records into a keyspace that nobody uses yet.
//!
//! One thread finds the borders of records and hashes the keys; each record goes in batches to the thread that owns its
//! stripe, which decodes and inserts it. Tables that are being filled have one user for each stripe, so nobody waits.
//!
//! Must not know: clients, where the bytes come from, what is done with the facts and the libraries of a file.

use std::{
    borrow::Cow,
    fmt,
    ops::Range,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use redline_keyspace::{Ahead, Clock, Expiry, Keyspace, Local, Owned, Place, Trace, Unit, View};
use redline_rdb::{
    Object,
    file::{self, EntryMeta, FileError, RawEntry, Recency, Record, Scanner, Source},
    format::FileVersion,
    object::EMPTY,
};
use redline_types::Limits;

/// Size of a batch of records for one thread: bytes. The last record may exceed it.
const BATCH_BYTES: usize = 64 * 1024;
/// Number of batches that may wait for one thread.
const BATCHES_WAITING_MAX: usize = 16;
/// Bytes of batches that may be on their way to all threads. One that is larger goes alone.
const TRANSIT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Number of keys whose cache misses overlap.
const AHEAD: usize = 16;

/// How a file is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Number of threads, this one included; at least 1.
    pub threads: usize,
    /// Thresholds of compact encodings.
    pub limits: Limits,
    /// Rules by which records of accesses are kept.
    pub clock: Clock,
    /// Keys that have expired by this Unix time in milliseconds are left out, as on a primary.
    pub now_ms: Option<i64>,
    /// A file that tells its place in a stream keeps them: whoever goes on in that stream has them, and is to be told when
    /// they go.
    pub keeps_history: bool,
}

/// How far a load has come; read by other threads.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of the file that were scanned.
    pub bytes: AtomicU64,
    /// Keys that were inserted.
    pub keys: AtomicU64,
    /// Keys that had expired.
    pub expired: AtomicU64,
    /// Those of them that were kept all the same.
    pub kept: AtomicU64,
    /// Keys of empty collections, which were left out.
    pub empty: AtomicU64,
    /// Set by others: the load is to end.
    pub stop: AtomicBool,
    /// Set by others: microseconds that each key takes at least (`key-load-delay`), for tests.
    pub key_delay_us: AtomicU64,
}

impl Progress {
    /// Waits as long as so many keys take at least, or until the load is to end.
    pub fn rest(&self, keys: u64) {
        const STEP: Duration = Duration::from_millis(10);
        let began = Instant::now();
        // It may change meanwhile.
        let left = || {
            let span_us = self
                .key_delay_us
                .load(Ordering::Relaxed)
                .saturating_mul(keys);
            Duration::from_micros(span_us).saturating_sub(began.elapsed())
        };
        while !left().is_zero() && !self.stop.load(Ordering::Relaxed) {
            thread::sleep(left().min(STEP));
        }
    }
}

/// Contents of a file beside its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Facts about the file: name and value, in order.
    pub facts: Vec<(Vec<u8>, Vec<u8>)>,
    /// Sources of the libraries of functions.
    pub libraries: Vec<Vec<u8>>,
    /// Keys of empty collections that were left out, at most [`EMPTY_KEYS_NAMED_MAX`].
    pub empty_keys: Vec<Box<[u8]>>,
}

/// Number of keys of empty collections that are named; as in Redis.
pub const EMPTY_KEYS_NAMED_MAX: usize = 10;

/// Reason why a file was not loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The file is damaged, or of another kind.
    File(FileError),
    /// It has a database of this number, and there are fewer.
    Database {
        /// Number of the database.
        number: u64,
        /// Number of databases that there are.
        databases: u32,
    },
    /// A key is in it twice.
    Duplicate {
        /// Number of its database.
        db: u32,
        /// The key.
        key: Box<[u8]>,
        /// Where the second record begins.
        offset: u64,
    },
    /// It was told to end.
    Stopped,
}

impl From<FileError> for LoadError {
    fn from(error: FileError) -> LoadError {
        LoadError::File(error)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::File(error) => write!(f, "{error}"),
            LoadError::Database { databases, .. } => write!(
                f,
                "FATAL: Data file was created with a Redis server configured to handle more than {databases} databases. Exiting"
            ),
            LoadError::Duplicate { db, key, offset } => write!(
                f,
                "RDB has duplicated key '{}' in DB {db}, at offset {offset}",
                key.escape_ascii()
            ),
            LoadError::Stopped => f.write_str("the load was told to end"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Loads the records of a file whose header has been read and is of this version. The keyspace is
/// [unpublished](Keyspace::unpublished), and holds a part of the file after an error.
pub fn load<S: Source>(
    scanner: &mut Scanner<S>,
    version: FileVersion,
    space: &Keyspace,
    options: &LoadOptions,
    progress: &Progress,
) -> Result<Loaded, LoadError> {
    let common = Common {
        space,
        version,
        options,
        progress,
        failed: Mutex::new(None),
        keeps_expired: AtomicBool::new(false),
        transit: Transit::default(),
        empty_keys: Mutex::default(),
    };
    let others = options.threads.max(1) - 1;
    let result = thread::scope(|scope| {
        let senders: Vec<mpsc::SyncSender<Batch>> = (0..others)
            .map(|_| {
                let (sender, batches) = mpsc::sync_channel(BATCHES_WAITING_MAX);
                let common = &common;
                scope.spawn(move || {
                    let mut inserter = Inserter::new(common);
                    while let Ok(batch) = batches.recv() {
                        inserter.insert(&batch);
                        let bytes = batch.bytes.len();
                        drop(batch);
                        common.transit.leave(bytes);
                    }
                    inserter.finish();
                });
                sender
            })
            .collect();
        let mut own = Inserter::new(&common);
        let result = scan(scanner, &common, &senders, &mut own);
        own.finish();
        result
    });
    let is_stopped = common.is_stopped();
    let failed = common.failed.into_inner();
    match failed.expect("no panic under the error") {
        Some(error) => Err(error),
        // Batches that were handed out before may have been left out.
        None if is_stopped => result.and(Err(LoadError::Stopped)),
        None => result.map(|loaded| Loaded {
            empty_keys: common
                .empty_keys
                .into_inner()
                .expect("no panic under the keys"),
            ..loaded
        }),
    }
}

/// State that all threads of a load share.
struct Common<'a> {
    space: &'a Keyspace,
    version: FileVersion,
    options: &'a LoadOptions,
    progress: &'a Progress,
    /// The first error of a thread.
    failed: Mutex<Option<LoadError>>,
    /// See [`LoadOptions::keeps_history`]. The fact comes before all keys.
    keeps_expired: AtomicBool,
    transit: Transit,
    /// See [`Loaded::empty_keys`].
    empty_keys: Mutex<Vec<Box<[u8]>>>,
}

/// The bytes of batches that were handed out and are not through: a file of large values is read faster than it is inserted.
#[derive(Default)]
struct Transit {
    bytes: Mutex<usize>,
    left: Condvar,
}

impl Transit {
    /// Returns true if a batch of this size may go where so many bytes are on their way.
    fn has_room(on_their_way: usize, bytes: usize) -> bool {
        on_their_way == 0 || on_their_way.saturating_add(bytes) <= TRANSIT_BYTES_MAX
    }

    /// Takes a batch of this size up. Waits for room.
    fn enter(&self, bytes: usize) {
        let on_their_way = self.bytes.lock().expect("no panic under a count");
        let waited = self
            .left
            .wait_while(on_their_way, |there| !Transit::has_room(*there, bytes));
        *waited.expect("no panic under a count") += bytes;
    }

    fn leave(&self, bytes: usize) {
        *self.bytes.lock().expect("no panic under a count") -= bytes;
        self.left.notify_one();
    }
}

impl Common<'_> {
    fn fail(&self, error: LoadError) {
        let mut failed = self.failed.lock().expect("no panic under the error");
        failed.get_or_insert(error);
        self.progress.stop.store(true, Ordering::Relaxed);
    }

    fn skip_empty(&self, key: &[u8]) {
        self.progress.empty.fetch_add(1, Ordering::Relaxed);
        let mut keys = self.empty_keys.lock().expect("no panic under the keys");
        if keys.len() < EMPTY_KEYS_NAMED_MAX {
            keys.push(key.into());
        }
    }

    fn is_stopped(&self) -> bool {
        self.progress.stop.load(Ordering::Relaxed)
    }
}

/// Records for one thread.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// A record; its key and its value are in the batch's bytes.
struct Entry {
    db: u32,
    place: Place,
    key: Range<usize>,
    value: Range<usize>,
    rdb_type: u8,
    meta: EntryMeta,
    offset: u64,
}

impl Batch {
    fn push(&mut self, db: u32, place: Place, raw: &RawEntry<'_>) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(&raw.key);
        let key = from..self.bytes.len();
        self.bytes.extend_from_slice(raw.value);
        self.entries.push(Entry {
            db,
            place,
            value: key.end..self.bytes.len(),
            key,
            rdb_type: raw.rdb_type,
            meta: raw.meta,
            offset: raw.offset,
        });
    }
}

/// Reads the file to its end and hands the records out.
fn scan<S: Source>(
    scanner: &mut Scanner<S>,
    common: &Common<'_>,
    senders: &[mpsc::SyncSender<Batch>],
    own: &mut Inserter<'_>,
) -> Result<Loaded, LoadError> {
    let databases = common.space.databases();
    let owners = senders.len() + 1;
    let mut batches: Vec<Batch> = (0..owners).map(|_| Batch::default()).collect();
    let mut loaded = Loaded::default();
    let mut db = 0;
    let mut hand_out = |batches: &mut Vec<Batch>, owner: usize| {
        let full = std::mem::take(&mut batches[owner]);
        match owner.checked_sub(1) {
            None => own.insert(&full),
            Some(other) => {
                common.transit.enter(full.bytes.len());
                // A thread that has panicked has ended the process.
                drop(senders[other].send(full));
            }
        }
    };
    loop {
        let record = scanner.next()?;
        match record {
            Record::Entry(raw) => {
                let place = common.space.place(&raw.key);
                let owner = usize::from(place.stripe()) % owners;
                batches[owner].push(db, place, &raw);
                if common.progress.key_delay_us.load(Ordering::Relaxed) > 0 {
                    common.progress.rest(1);
                    if common.is_stopped() {
                        return Err(LoadError::Stopped);
                    }
                }
                if batches[owner].bytes.len() >= BATCH_BYTES {
                    hand_out(&mut batches, owner);
                    let offset = scanner.offset();
                    common.progress.bytes.store(offset, Ordering::Relaxed);
                    if common.is_stopped() {
                        return Err(LoadError::Stopped);
                    }
                }
            }
            Record::SelectDb(number) => {
                db = u32::try_from(number)
                    .ok()
                    .filter(|number| *number < databases)
                    .ok_or(LoadError::Database { number, databases })?;
            }
            Record::ResizeDb { .. } => {}
            Record::Aux { name, value } => {
                if common.options.keeps_history && &*name == b"repl-id" {
                    common.keeps_expired.store(true, Ordering::Relaxed);
                }
                let fact = (name.to_vec(), value.to_vec());
                loaded.facts.push(fact);
            }
            Record::Function(text) => loaded.libraries.push(Cow::into_owned(text)),
            Record::End => break,
        }
    }
    (0..owners).for_each(|owner| hand_out(&mut batches, owner));
    let offset = scanner.offset();
    common.progress.bytes.store(offset, Ordering::Relaxed);
    Ok(loaded)
}

/// Decodes and inserts, for the stripes of one thread.
struct Inserter<'a> {
    common: &'a Common<'a>,
    local: Local,
    /// The keys of the group that is being inserted.
    ahead: Vec<Ahead>,
}

impl<'a> Inserter<'a> {
    fn new(common: &'a Common<'a>) -> Inserter<'a> {
        let mut local = Local::new(fastrand::Rng::new(), common.options.limits.clone());
        local.clock = common.options.clock;
        Inserter {
            common,
            local,
            ahead: Vec::with_capacity(AHEAD),
        }
    }

    fn insert(&mut self, batch: &Batch) {
        for group in batch.entries.chunks(AHEAD) {
            if self.common.is_stopped() {
                return;
            }
            self.ahead.clear();
            let ahead = group
                .iter()
                .map(|entry| self.common.space.ahead(entry.db, entry.place));
            self.ahead.extend(ahead);
            Ahead::fetch(&mut self.ahead);
            for (at, entry) in group.iter().enumerate() {
                if let Err(error) = self.insert_one(batch, entry, at) {
                    self.common.fail(error);
                    return;
                }
            }
        }
    }

    fn insert_one(&mut self, batch: &Batch, entry: &Entry, at: usize) -> Result<(), LoadError> {
        let common = self.common;
        let (key, value) = (
            &batch.bytes[entry.key.clone()],
            &batch.bytes[entry.value.clone()],
        );
        let is_expired = |at_ms: i64| common.options.now_ms.is_some_and(|now_ms| now_ms > at_ms);
        let expiry = match entry.meta.expire_at_ms {
            Some(at_ms) if is_expired(at_ms) => {
                common.progress.expired.fetch_add(1, Ordering::Relaxed);
                if !common.keeps_expired.load(Ordering::Relaxed) {
                    return Ok(());
                }
                common.progress.kept.fetch_add(1, Ordering::Relaxed);
                Expiry::AtMs(at_ms)
            }
            Some(at_ms) => Expiry::AtMs(at_ms),
            None => Expiry::Clear,
        };
        let limits = &common.options.limits;
        let object = file::decode(common.version, entry.rdb_type, value, limits);
        let object = match object {
            Ok(object) => object,
            // As in Redis: a file with one holds everything else, too.
            Err(EMPTY) => {
                common.skip_empty(key);
                return Ok(());
            }
            Err(corrupt) => {
                return Err(FileError {
                    offset: entry.offset,
                    kind: corrupt.into(),
                }
                .into());
            }
        };
        let unit = Unit::try_one(common.space, entry.place.stripe());
        let mut unit = unit.expect("a stripe has one thread");
        let mut view = unit.view(&mut self.local, entry.db, 0);
        view.hint(key, &self.ahead[at]);
        if view.find(key, Trace::Quiet).is_some() {
            return Err(LoadError::Duplicate {
                db: entry.db,
                key: key.into(),
                offset: entry.offset,
            });
        }
        match object {
            Object::String(text) => view.set_string(key, &text, expiry),
            Object::Value(value) => {
                view.insert(key, Owned::from(value), expiry);
            }
        }
        set_access(&view, key, entry.meta.recency);
        view.unreported(key);
        view.finish();
        unit.commit(&mut self.local);
        common.progress.keys.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn finish(mut self) {
        self.local.flush_account(self.common.space);
        self.local.heap.flush();
    }
}

fn set_access(view: &View<'_>, key: &[u8], recency: Option<Recency>) {
    let (idle_s, frequency) = match recency {
        None => return,
        Some(Recency::IdleSeconds(seconds)) => (Some(seconds), None),
        Some(Recency::Frequency(frequency)) => (None, Some(frequency)),
    };
    if let Some(found) = view.find(key, Trace::Quiet) {
        found.set_access(idle_s, frequency);
    }
}

#[cfg(test)]
mod tests;
