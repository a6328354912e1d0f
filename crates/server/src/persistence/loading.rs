//! Loading a snapshot: at the start, beside clients that are told to wait, and for DEBUG RELOAD.
//!
//! Must not know: the form of a file.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use redline_engine::{
    executor::block, refusals::Reason, session::scripting::functions::restore_libraries,
};
use redline_keyspace::{Clock, Keyspace, Unit, lock::StripeSet};
use redline_net::clock;
use redline_persist::load::{self, LoadError, LoadOptions, Loaded, Progress};
use redline_rdb::file::{FileError, Scanner, Source};

use crate::{
    log,
    settings::Settings,
    shared::{Message, Shared},
    worker::Worker,
};

/// Bytes that are read from a file at once.
const READ_BYTES: usize = 256 * 1024;

/// How the loading of files goes, and how it went.
#[derive(Default)]
pub(crate) struct Loading {
    is_on: AtomicBool,
    progress: Arc<Progress>,
    /// Unix time at which it began, in seconds.
    pub(crate) began_s: AtomicU64,
    /// Size of the file.
    pub(crate) total_bytes: AtomicU64,
    /// Keys that were loaded, and that had expired.
    pub(crate) keys_loaded: AtomicU64,
    /// See `keys_loaded`.
    pub(crate) keys_expired: AtomicU64,
}

impl Loading {
    /// Returns true while the data is being loaded.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Returns the bytes that were read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    /// Has it end.
    pub(crate) fn stop(&self) {
        self.progress.stop.store(true, Ordering::Relaxed);
    }
}

/// Reason why a file was not loaded.
#[derive(Debug)]
pub(crate) enum NotLoaded {
    /// There is none.
    NoFile,
    /// It cannot be opened.
    Open(io::Error),
    /// It is damaged.
    Load(LoadError),
}

impl std::fmt::Display for NotLoaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotLoaded::NoFile => f.write_str("there is no such file"),
            NotLoaded::Open(error) => write!(f, "it cannot be opened: {error}"),
            NotLoaded::Load(error) => write!(f, "{error}"),
        }
    }
}

/// A file as a source of bytes.
struct FileSource(File);

impl Source for FileSource {
    fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let from = buffer.len();
        buffer.resize(from + READ_BYTES, 0);
        let read = loop {
            match self.0.read(&mut buffer[from..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        buffer.truncate(from + *read.as_ref().unwrap_or(&0));
        read
    }
}

/// Loads a file into a keyspace of its own, on this thread and others.
pub(crate) fn load_file(
    path: &Path,
    shared: &Shared,
    settings: &Settings,
    clock: Clock,
    progress: &Progress,
) -> Result<(Keyspace, Loaded), NotLoaded> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NotLoaded::NoFile),
        file => file.map_err(NotLoaded::Open)?,
    };
    let failed = |error: FileError| NotLoaded::Load(error.into());
    let mut scanner = Scanner::new(FileSource(file));
    if !settings.checksums {
        scanner.ignore_checksum();
    }
    let version = scanner.header().map_err(failed)?;
    let space = shared.keyspace.unpublished();
    let options = LoadOptions {
        threads: shared.workers().len(),
        limits: settings.engine.limits.clone(),
        clock,
        now_ms: Some(clock::wall_ms() as i64),
    };
    let loaded = load::load(&mut scanner, version, &space, &options, progress);
    loaded
        .map(|loaded| (space, loaded))
        .map_err(NotLoaded::Load)
}

/// Replaces all data by what was loaded. The unit holds every stripe.
pub(crate) fn publish(
    worker: &mut Worker,
    unit: &mut Unit<'_>,
    space: &Keyspace,
    loaded: &Loaded,
) -> Result<(), String> {
    unit.publish(&mut worker.local, space);
    restore_libraries(worker.executor, &loaded.libraries)
}

/// Begins to load the data, if there is a file. Called before the workers begin.
pub(crate) fn begin(shared: &Arc<Shared>) -> Result<(), crate::StartError> {
    let settings = shared.settings.current();
    let path = Path::new(&settings.db_filename);
    let bytes = match path.metadata() {
        Ok(facts) => facts.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            log::warning(&format!(
                "Fatal error loading the DB, check server logs. Exiting: {}: {error}",
                path.display()
            ));
            return Err(crate::StartError::System("the DB file", error));
        }
    };
    let loading = &shared.persistence.loading;
    loading.is_on.store(true, Ordering::Release);
    loading.total_bytes.store(bytes, Ordering::Relaxed);
    loading
        .began_s
        .store(clock::wall_ms() / 1000, Ordering::Relaxed);
    let refusals = &shared.engine.refusals;
    refusals.set(Reason::Loading, true, &shared.engine.settings);
    let shared = shared.clone();
    crate::start::spawn("load", move || load_at_start(&shared)).map(drop)
}

fn load_at_start(shared: &Shared) {
    let began_ms = clock::monotonic_ms();
    let settings = shared.settings.current();
    let path = Path::new(&settings.db_filename);
    let loading = &shared.persistence.loading;
    let mut clock = Clock::default();
    clock.lfu = settings.maxmemory_policy.is_lfu();
    clock.now_s = (clock::wall_ms() / 1000) as u32;
    let progress = loading.progress.clone();
    match load_file(path, shared, &settings, clock, &progress) {
        Ok((space, loaded)) => {
            note_facts(&loaded);
            publish_on_worker(shared, Box::new(Loadable { space, loaded, began_ms }));
        }
        Err(NotLoaded::Load(LoadError::Stopped)) => {}
        Err(error) => {
            log::warning(&format!(
                "Fatal error loading the DB '{}': {error}. Exiting.",
                path.display()
            ));
            std::process::exit(1);
        }
    }
}

/// Logs where a file is from.
fn note_facts(loaded: &Loaded) {
    for (name, value) in &loaded.facts {
        let value = String::from_utf8_lossy(value);
        match name.as_slice() {
            b"redis-ver" => log::notice(&format!("Loading RDB produced by version {value}")),
            b"valkey-ver" => log::notice(&format!("Loading RDB produced by Valkey version {value}")),
            b"ctime" => {
                let made_s = value.parse().unwrap_or(0);
                let age_s = (clock::wall_ms() / 1000).saturating_sub(made_s);
                log::notice(&format!("RDB age {age_s} seconds"));
            }
            b"used-mem" => {
                let bytes: f64 = value.parse().unwrap_or(0.0);
                let megabytes = bytes / (1 << 20) as f64;
                log::notice(&format!("RDB memory usage when created {megabytes:.2} Mb"));
            }
            _ => {}
        }
    }
}

/// What was loaded and is to be published.
struct Loadable {
    space: Keyspace,
    loaded: Loaded,
    began_ms: u64,
}

/// Has the first worker publish what was loaded, as soon as no stripe is in use.
fn publish_on_worker(shared: &Shared, loadable: Box<Loadable>) {
    let publish = move |worker: &mut Worker| {
        let shared = worker.shared;
        let Ok(mut unit) = Unit::try_set(&shared.keyspace, &StripeSet::all(), false) else {
            return publish_on_worker(shared, loadable);
        };
        let Loadable { space, loaded, began_ms } = *loadable;
        let keys: u64 = (space.used_databases()).map(|db| space.key_count(db)).sum();
        if let Err(error) = publish(worker, &mut unit, &space, &loaded) {
            log::warning(&format!("Fatal error loading the DB: {error}. Exiting."));
            std::process::exit(1);
        }
        block::commit(worker.executor, unit);
        let loading = &shared.persistence.loading;
        let expired = loading.progress.expired.load(Ordering::Relaxed);
        loading.keys_loaded.store(keys, Ordering::Relaxed);
        loading.keys_expired.store(expired, Ordering::Relaxed);
        loading.is_on.store(false, Ordering::Release);
        let refusals = &shared.engine.refusals;
        refusals.set(Reason::Loading, false, &shared.engine.settings);
        let took_ms = clock::monotonic_ms().saturating_sub(began_ms);
        log::notice(&format!(
            "Done loading RDB, keys loaded: {keys}, keys expired: {expired}."
        ));
        log::notice(&format!(
            "DB loaded from disk: {}.{:03} seconds",
            took_ms / 1000,
            took_ms % 1000
        ));
    };
    shared.workers()[0]
        .mailbox
        .send(Message::Run(Box::new(publish)));
}

