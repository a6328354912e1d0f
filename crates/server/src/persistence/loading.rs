//! Loading a snapshot: at the start, beside clients that are told to wait, and for DEBUG RELOAD.
//!
//! Must not know: the form of a file.

use std::{
    fs,
    io::{self, Read},
    path::Path,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
};

use redline_engine::{
    executor::{block, figures},
    refusals::Reason,
    session::scripting::functions::restore_libraries,
};
use redline_keyspace::{Clock, Keyspace, Unit, lock::StripeSet};
use redline_net::clock;
use redline_persist::{
    Disk, Manifest, RealDisk,
    load::{self, LoadError, LoadOptions, Loaded, Progress},
    manifest, snapshot,
};
use redline_rdb::file::{FileError, Scanner, Source};

use super::{
    append, leftovers,
    playback::{self, Batch, Playback, Stage},
};
use crate::{
    StartError, log,
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
    /// For [`Loading::wait`]: the same as `is_on`, or the server ends.
    waits: (Mutex<bool>, Condvar),
    progress: Arc<Progress>,
    /// Unix time at which it began, in seconds.
    pub(crate) began_s: AtomicU64,
    /// Size of the file.
    pub(crate) total_bytes: AtomicU64,
    /// Keys that were loaded, and that had expired.
    pub(crate) keys_loaded: AtomicU64,
    /// See `keys_loaded`.
    pub(crate) keys_expired: AtomicU64,
    /// Commands of files that have failed at the last load.
    pub(super) commands_failed: AtomicU64,
}

impl Loading {
    /// Goes by changed settings.
    pub(super) fn adopt(&self, settings: &Settings) {
        let delay_us = &self.progress.key_delay_us;
        delay_us.store(settings.key_load_delay_us, Ordering::Relaxed);
    }

    /// Returns true while the data is being loaded.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Returns true if keys were left out since they had expired.
    pub(crate) fn lacks_expired_keys(&self) -> bool {
        let kept = self.progress.kept.load(Ordering::Relaxed);
        self.progress.expired.load(Ordering::Relaxed) > kept
    }

    /// Returns the bytes that were read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    /// Has it end.
    pub(crate) fn stop(&self) {
        self.progress.stop.store(true, Ordering::Relaxed);
        self.set_waiting(false);
    }

    /// Waits until everything is loaded, and returns true; false: the server ends before.
    pub(crate) fn wait(&self) -> bool {
        let (waits, changed) = &self.waits;
        let waits = waits.lock().expect("no panic under the wait");
        let waited = changed.wait_while(waits, |waits| *waits);
        drop(waited.expect("no panic under the wait"));
        !self.is_on()
    }

    fn set_waiting(&self, is_waiting: bool) {
        let (waits, changed) = &self.waits;
        *waits.lock().expect("no panic under the wait") = is_waiting;
        changed.notify_all();
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
struct FileSource(fs::File);

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

/// A snapshot that was loaded and is not published.
pub(crate) struct File {
    /// Its keys.
    pub(crate) space: Keyspace,
    /// Its other contents.
    pub(crate) loaded: Loaded,
    /// Its size; what follows in the file is something else.
    pub(crate) bytes: u64,
}

/// Treatment of keys that have expired, by a server that follows nobody. One that follows a primary keeps them, until that
/// one says that they are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// They are left out.
    LeftOut,
    /// They are left out, unless the file tells its place in a stream: who goes on there tells that they are gone.
    KeptForReplicas,
    /// They are kept: commands follow that were run while they were there.
    Kept,
}

/// Loads a file into a keyspace of its own, on this thread and others.
pub(crate) fn load_file(
    path: &Path,
    shared: &Shared,
    settings: &Settings,
    clock: Clock,
    progress: &Progress,
    expired: Expired,
) -> Result<File, NotLoaded> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(NotLoaded::NoFile),
        file => file.map_err(NotLoaded::Open)?,
    };
    let mut scanner = Scanner::new(FileSource(file));
    let mut options = options(shared, settings, clock);
    options.keeps_history = expired == Expired::KeptForReplicas;
    options.now_ms.take_if(|_| expired == Expired::Kept);
    load_scanned(&mut scanner, shared, settings, &options, progress, || ())
}

/// Returns the way to load a snapshot on this thread and as many others as there are workers.
pub(crate) fn options(shared: &Shared, settings: &Settings, clock: Clock) -> LoadOptions {
    LoadOptions {
        threads: shared.workers().len(),
        limits: settings.engine.limits.clone(),
        clock,
        now_ms: settings.primary.is_none().then(|| clock::wall_ms() as i64),
        keeps_history: false,
    }
}

/// Loads what a scanner is about to find into a keyspace of its own. `begins` is called when its header is one that is read here.
pub(crate) fn load_scanned<S: Source>(
    scanner: &mut Scanner<S>,
    shared: &Shared,
    settings: &Settings,
    options: &LoadOptions,
    progress: &Progress,
    begins: impl FnOnce(),
) -> Result<File, NotLoaded> {
    let failed = |error: FileError| NotLoaded::Load(error.into());
    if !settings.checksums {
        scanner.ignore_checksum();
    }
    if settings.skips_unknown_modules {
        scanner.skip_unknown_modules();
    }
    let version = scanner.header().map_err(failed)?;
    begins();
    let space = shared.keyspace.unpublished();
    let loaded = load::load(scanner, version, &space, options, progress);
    let loaded = loaded.map_err(NotLoaded::Load)?;
    if let (skipped @ 1.., Some(name)) = (scanner.skipped_values(), scanner.skipped_module()) {
        log::warning(&format!(
            "{skipped} keys were left out: their values are of modules that are not here, {name} first"
        ));
    }
    Ok(File {
        space,
        loaded,
        bytes: scanner.offset(),
    })
}

/// Returns the clock of accesses for a load.
pub(crate) fn clock_of(settings: &Settings) -> Clock {
    let mut clock = Clock::default();
    clock.lfu = settings.maxmemory_policy.is_lfu();
    clock.now_s = (clock::wall_ms() / 1000) as u32;
    clock
}

/// Replaces all data by what was loaded. On an error, which is described, all is as it was. The unit holds every stripe.
pub(crate) fn publish(
    worker: &mut Worker,
    unit: &mut Unit<'_>,
    space: &Keyspace,
    loaded: &Loaded,
) -> Result<(), String> {
    // First, since a library may be one that is none here.
    restore_libraries(worker.executor, &loaded.libraries)?;
    unit.publish(&mut worker.local, space);
    Ok(())
}

/// Data that there is to load at the start.
enum Found {
    Nothing,
    Snapshot,
    Appended(Manifest),
}

/// Removes what a process before has left behind. A server inside of another program has no files of its own there.
fn remove_leftovers(shared: &Shared, settings: &Settings) {
    if shared.origin.service.is_none() {
        return;
    }
    let folder = snapshot::file::folder_of(Path::new(&settings.db_filename));
    if !folder.as_os_str().is_empty() {
        leftovers::remove(&folder);
    }
    leftovers::remove(Path::new(""));
}

/// Begins to load the data, if there is any. Called before the workers begin.
pub(crate) fn begin(shared: &Arc<Shared>) -> Result<(), StartError> {
    let settings = shared.settings.current();
    remove_leftovers(shared, &settings);
    shared.persistence.loading.adopt(&settings);
    // Whoever starts the server logs it.
    let fatal = |what: &str, why: String| {
        StartError::Files(format!("Fatal error loading the DB: {what}: {why}"))
    };
    let size = |path: &Path| match path.metadata() {
        Ok(facts) => Ok(Some(facts.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fatal(&path.display().to_string(), error.to_string())),
    };
    let paths = append::paths(&settings);
    let mut manifest = Manifest::default();
    let mut lock = None;
    if settings.appends {
        let failed = |error: manifest::FileError| fatal("the append-only file", error.text);
        manifest::create_folder(&RealDisk, &paths).map_err(failed)?;
        let locked = RealDisk.lock_dir(&paths.folder());
        let locked = locked.map_err(|error| fatal(&paths.folder_name, error.to_string()))?;
        let in_use = || "another process keeps its append-only file there".to_owned();
        lock = Some(locked.ok_or_else(|| fatal(&paths.folder_name, in_use()))?);
        manifest = manifest::load(&RealDisk, &paths)
            .map_err(failed)?
            .unwrap_or_default();
        if let Some(line) = manifest::take_over(&RealDisk, &paths, &mut manifest).map_err(failed)? {
            log::notice(&line);
        }
    }
    let (mut total_bytes, mut base_bytes) = (0, 0);
    for entry in manifest.files() {
        let path = paths.file(&entry.name);
        let bytes = size(&path)?;
        let bytes = bytes.ok_or_else(|| {
            let name = entry.name.display();
            let what = format!("Unable to obtain the AOF file {name} length");
            fatal(&what, "No such file or directory".into())
        })?;
        total_bytes += bytes;
        if manifest.base.as_ref() == Some(entry) {
            base_bytes = bytes;
        }
    }
    let snapshot = match settings.db_filename.as_str() {
        "" => None,
        name => size(Path::new(name))?,
    };
    let found = match (manifest.is_empty(), snapshot) {
        (false, _) => Found::Appended(manifest.clone()),
        (true, Some(bytes)) => {
            total_bytes = bytes;
            Found::Snapshot
        }
        (true, None) => Found::Nothing,
    };
    if settings.appends {
        let append = &shared.persistence.append;
        append.take_over(&settings, manifest, (base_bytes, total_bytes), lock);
    } else if matches!(found, Found::Nothing) {
        crate::following::begin(shared);
        return Ok(());
    }
    let loading = &shared.persistence.loading;
    loading.is_on.store(true, Ordering::Release);
    loading.set_waiting(true);
    loading.total_bytes.store(total_bytes, Ordering::Relaxed);
    loading
        .began_s
        .store(clock::wall_ms() / 1000, Ordering::Relaxed);
    let refusals = &shared.engine.refusals;
    refusals.set(Reason::Loading, true, &shared.engine.settings);
    let shared = shared.clone();
    crate::start::spawn("load", move || match load_at_start(&shared, found) {
        Ok(()) => {}
        Err(why) if why.is_empty() => {}
        Err(why) => {
            log::warning(&format!("Fatal error loading the DB: {why}. Exiting."));
            std::process::exit(1);
        }
    })
    .map(drop)
}

/// Loads what there is, and has the server serve it. The error is a line for the log; an empty one: it was told to end.
fn load_at_start(shared: &Arc<Shared>, found: Found) -> Result<(), String> {
    let began_ms = clock::monotonic_ms();
    let settings = shared.settings.current();
    match found {
        Found::Nothing => {}
        Found::Snapshot => {
            let mut stage = AtStart::new(shared);
            stage.is_snapshot = true;
            stage.load_snapshot(Path::new(&settings.db_filename), &settings)?;
            note_loaded(shared, began_ms);
        }
        Found::Appended(manifest) => {
            let mut stage = AtStart::new(shared);
            playback::load(&mut stage, &settings, &manifest)?;
            let took_ms = clock::monotonic_ms().saturating_sub(began_ms);
            log::notice(&format!(
                "DB loaded from append only file: {}.{:03} seconds",
                took_ms / 1000,
                took_ms % 1000
            ));
            on_worker(shared, |worker| {
                let shared = worker.shared.this();
                append::open(&shared)?;
                figures::copy_counts(worker.executor);
                shared.persistence.forget_changes(shared.changes());
                with_all_stripes(worker, |worker, unit| {
                    append::attach(&worker.shared.this(), unit)
                })
            })?;
            end(shared);
            return Ok(());
        }
    }
    // With a file of commands, the server is ready when that is.
    match settings.appends {
        true => append::start(shared, true),
        false => end(shared),
    }
    Ok(())
}

/// Ends the loading: clients are served.
pub(crate) fn end(shared: &Shared) {
    crate::following::begin(shared);
    // Whoever reads in INFO that it has ended is not refused any more.
    let refusals = &shared.engine.refusals;
    refusals.set(Reason::Loading, false, &shared.engine.settings);
    shared
        .persistence
        .loading
        .is_on
        .store(false, Ordering::Release);
    shared.persistence.loading.set_waiting(false);
    // The file may have been turned on or off meanwhile.
    append::adopt(shared);
}

/// The start of the process: a thread of its own reads, and the first worker publishes and runs commands, while more are read.
struct AtStart<'a> {
    shared: &'a Arc<Shared>,
    /// The things that the worker needs, when they are not there.
    playing: Option<Box<Playing>>,
    /// The worker's answer, with which they come back.
    running: Option<mpsc::Receiver<Result<Box<Playing>, String>>>,
    /// True if what is loaded is a snapshot, not the base of an append-only file.
    is_snapshot: bool,
}

/// Commands and what they are run with.
struct Playing {
    playback: Playback,
    batch: Batch,
}

impl<'a> AtStart<'a> {
    fn new(shared: &'a Arc<Shared>) -> AtStart<'a> {
        AtStart {
            shared,
            playing: Some(Box::new(Playing {
                playback: Playback::new(shared),
                batch: Batch::default(),
            })),
            running: None,
            is_snapshot: false,
        }
    }
}

impl Stage for AtStart<'_> {
    fn load_snapshot(&mut self, path: &Path, settings: &Settings) -> Result<u64, String> {
        let shared = self.shared;
        let clock = clock_of(settings);
        let loading = &shared.persistence.loading;
        let progress = &loading.progress;
        let expired = match self.is_snapshot {
            true => Expired::KeptForReplicas,
            false => Expired::Kept,
        };
        let loaded = load_file(path, shared, settings, clock, progress, expired);
        let File {
            space,
            loaded,
            bytes,
        } = match loaded {
            Ok(loaded) => loaded,
            Err(NotLoaded::Load(LoadError::Stopped)) => return Err(String::new()),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        note_facts(&loaded);
        if self.is_snapshot {
            crate::following::take_place(shared, &loaded);
        }
        let is_snapshot = self.is_snapshot;
        on_worker(shared, move |worker| {
            with_all_stripes(worker, |worker, unit| {
                publish(worker, unit, &space, &loaded)?;
                if is_snapshot {
                    crate::following::take_up(worker.shared, unit, &loaded);
                }
                Ok(())
            })?
        })?;
        Ok(bytes)
    }

    fn run(&mut self, batch: Batch, name: &str) -> Result<Batch, String> {
        let progress = &self.shared.persistence.loading.progress;
        progress.rest(batch.calls().len() as u64);
        self.settle()?;
        let bytes = batch.file_bytes() as u64;
        progress.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut playing = self.playing.take().expect("it has come back");
        let free = std::mem::replace(&mut playing.batch, batch);
        let name = name.to_owned();
        let running = begin_on_worker(self.shared, move |worker| {
            let Playing { playback, batch } = &mut *playing;
            let result = playback.run(worker, batch, &name);
            result.map(|()| playing)
        });
        self.running = Some(running);
        Ok(free)
    }

    fn settle(&mut self) -> Result<(), String> {
        if let Some(running) = self.running.take() {
            self.playing = Some(ended(running)?);
        }
        Ok(())
    }

    fn cut(&mut self, path: &Path, bytes: u64) -> io::Result<()> {
        RealDisk.truncate(path, bytes)
    }

    fn failed(&self) -> &AtomicU64 {
        &self.shared.persistence.loading.commands_failed
    }

    fn is_stopped(&self) -> bool {
        let progress = &self.shared.persistence.loading.progress;
        progress.stop.load(Ordering::Relaxed)
    }
}

fn note_loaded(shared: &Shared, began_ms: u64) {
    let loading = &shared.persistence.loading;
    let keys = loading.progress.keys.load(Ordering::Relaxed);
    let expired = loading.progress.expired.load(Ordering::Relaxed);
    loading.keys_loaded.store(keys, Ordering::Relaxed);
    loading.keys_expired.store(expired, Ordering::Relaxed);
    let took_ms = clock::monotonic_ms().saturating_sub(began_ms);
    let empty = loading.progress.empty.load(Ordering::Relaxed);
    log::notice(&format!(
        "Done loading RDB, keys loaded: {keys}, keys expired: {expired}, empty keys skipped: {empty}."
    ));
    log::notice(&format!(
        "DB loaded from disk: {}.{:03} seconds",
        took_ms / 1000,
        took_ms % 1000
    ));
}

/// Runs something on the first worker and waits for it.
fn on_worker<R: Send + 'static>(
    shared: &Shared,
    run: impl FnOnce(&mut Worker) -> Result<R, String> + Send + 'static,
) -> Result<R, String> {
    ended(begin_on_worker(shared, run))
}

/// Has something run on the first worker: [`ended`] waits for it.
fn begin_on_worker<R: Send + 'static>(
    shared: &Shared,
    run: impl FnOnce(&mut Worker) -> Result<R, String> + Send + 'static,
) -> mpsc::Receiver<Result<R, String>> {
    let (tell, told) = mpsc::channel();
    let run = move |worker: &mut Worker| {
        // Whoever has asked may have given up.
        let _ = tell.send(run(worker));
    };
    shared.workers()[0]
        .mailbox
        .send(Message::Run(Box::new(run)));
    told
}

/// Waits for what runs on the first worker.
fn ended<R>(running: mpsc::Receiver<Result<R, String>>) -> Result<R, String> {
    // The worker has ended: the process does.
    running.recv().unwrap_or_else(|_| Err(String::new()))
}

/// Runs something with every stripe held. No commands on data run yet, so they are free at once, or soon.
fn with_all_stripes<R>(
    worker: &mut Worker,
    run: impl FnOnce(&mut Worker, &mut Unit<'_>) -> R,
) -> Result<R, String> {
    let shared = worker.shared;
    loop {
        let taken = Unit::try_set(&shared.keyspace, &StripeSet::all(), false);
        if let Ok(mut unit) = taken {
            let result = run(worker, &mut unit);
            block::commit(worker.executor, unit);
            return Ok(result);
        }
        std::thread::yield_now();
    }
}

/// Logs where a file is from, and what of it was left out.
fn note_facts(loaded: &Loaded) {
    for key in &loaded.empty_keys {
        log::notice(&format!(
            "Loading RDB, skipping empty key: {}",
            key.escape_ascii()
        ));
    }
    for (name, value) in &loaded.facts {
        let value = String::from_utf8_lossy(value);
        match name.as_slice() {
            b"redis-ver" => log::notice(&format!("Loading RDB produced by version {value}")),
            b"valkey-ver" => {
                log::notice(&format!("Loading RDB produced by Valkey version {value}"))
            }
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
