//! The append-only file in the server: it takes the journal's stream, its jobs run on a thread of their own, and its
//! wishes are met here.
//!
//! The file itself is a state machine ([`Writer`]) under one lock. Who has the pump's role gives it bytes
//! ([`write`]); what waits for the disk is a [`Job`], run by [`run_jobs`]. Wishes are met after the lock is let go
//! of, since some of them come back to it.
//!
//! Must not know: the form of the files, commands.

use std::{
    fs,
    ops::{Deref, DerefMut},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use redline_engine::refusals::Reason;
use redline_keyspace::{
    Unit,
    journal::{OnDisk, Piece},
};
use redline_net::clock;
use redline_persist::{
    Disk, Manifest, Paths, RealDisk,
    aof::writer::{self, Appended, Base, Gate, Job, Level, RETRY_MS, State, Wish, Writer},
    disk::DirLock,
    manifest,
};

use crate::{log, replication, settings::Settings, shared::Shared, stream};

/// Bytes that may wait for the file before it; more are written without waiting.
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The append-only file: see the module's text.
pub(crate) struct Append {
    /// Held while the file is written to, which a slow disk makes long.
    inner: Mutex<Inner>,
    /// The part that others look at, as of the last time that `inner` was let go of.
    shown: Mutex<Shown>,
    jobs: Mutex<mpsc::Sender<Option<Job>>>,
    /// Held while changed settings are gone by, so that the last ones are gone by last.
    adopting: Mutex<()>,
    /// Held while a job runs, and by whoever reads the files while they are in use: see [`Append::hold_jobs`].
    running: Mutex<()>,
    /// Microseconds that each sync is delayed: for tests.
    pub(crate) sync_delay_us: AtomicU64,
}

struct Inner {
    writer: Option<Writer>,
    /// `appendonly`, as it was last gone by.
    is_wanted: bool,
    /// The lock on the folder, from the first time that the file is on.
    lock: Option<DirLock>,
    /// Bytes that the file has not taken yet, and the number of their last record.
    pending: Vec<u8>,
    pending_last: u64,
    retry_at_ms: u64,
    /// A sync has been asked for and has not ended.
    is_syncing: bool,
    /// The rewrite whose cut is wanted.
    wants_cut: Option<u64>,
    /// A base is wanted while the file is off.
    wants_lone_base: bool,
    is_last_lone_base_done: bool,
    /// The rewrite whose cut is on its way through the journal, and the last record before that.
    cut_for: Option<(u64, u64)>,
    /// A base that was finished before its cut came through.
    early_base: Option<(u64, Base)>,
    /// True if replies wait at the gate.
    is_gated: bool,
    /// A client or the size of the file wants a rewrite as soon as possible.
    is_scheduled: bool,
    /// The start of the process waits for the file to be on.
    starts: bool,
    /// It was left, and is made anew when the data are others: see [`leave`].
    is_left: bool,
    /// The process ends when everything is synced: whoever waits for it.
    ends: Option<mpsc::Sender<bool>>,
    rewrite_began_ms: Option<u64>,
    rewrite_took_s: Option<u64>,
    rewrites: u64,
}

/// See [`Append::shown`].
#[derive(Default)]
struct Shown {
    figures: AppendFigures,
    /// A base is being made.
    is_making: bool,
    /// The file is on, and is not about to go off.
    stays_on: bool,
    rewrite_began_ms: Option<u64>,
    wants_cut: Option<u64>,
    wants_lone_base: bool,
}

impl Shown {
    fn of(inner: &Inner) -> Shown {
        let writer = inner.writer.as_ref();
        let on = writer.filter(|writer| writer.state() != State::Off);
        // One that goes off may be followed by a base at once, and a base may be made while it is off.
        let is_making = on.is_some_and(Writer::is_rewriting) || inner.rewrite_began_ms.is_some();
        let figures = AppendFigures {
            is_on: on.is_some(),
            // Tools look at the manifest when a rewrite is done.
            is_rewriting: is_making || on.is_some_and(Writer::is_removing),
            is_scheduled: inner.is_scheduled,
            rewrite_took_s: inner.rewrite_took_s,
            rewrite_running_s: None,
            is_last_rewrite_done: writer.is_none_or(Writer::is_last_rewrite_done)
                && (on.is_some() || inner.is_last_lone_base_done),
            rewrites_failed: writer.map_or(0, Writer::failures),
            is_last_write_done: on.is_none_or(Writer::is_last_write_done),
            rewrites: inner.rewrites,
            current_bytes: on.map_or(0, Writer::current_bytes),
            base_bytes: on.map_or(0, Writer::base_bytes),
            pending_bytes: on.map_or(0, |_| inner.pending.len() as u64),
            pending_syncs: u64::from(on.is_some() && inner.is_syncing),
        };
        Shown {
            is_making,
            stays_on: on.is_some_and(|writer| writer.state() != State::Ending),
            figures,
            rewrite_began_ms: inner.rewrite_began_ms,
            wants_cut: inner.wants_cut,
            wants_lone_base: inner.wants_lone_base,
        }
    }
}

/// The state, locked. Letting go of it shows what has become of it.
struct Held<'a> {
    inner: MutexGuard<'a, Inner>,
    shown: &'a Mutex<Shown>,
}

impl Deref for Held<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Poisoned when a thread has panicked, which ends the process.
        if let Ok(mut shown) = self.shown.lock() {
            *shown = Shown::of(&self.inner);
        }
    }
}

/// Figures of the file, for INFO.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppendFigures {
    pub(crate) is_on: bool,
    pub(crate) is_rewriting: bool,
    pub(crate) is_scheduled: bool,
    pub(crate) rewrite_took_s: Option<u64>,
    pub(crate) rewrite_running_s: Option<u64>,
    pub(crate) is_last_rewrite_done: bool,
    /// Rewrites that have failed since the last that succeeded.
    pub(crate) rewrites_failed: u32,
    pub(crate) is_last_write_done: bool,
    pub(crate) rewrites: u64,
    pub(crate) current_bytes: u64,
    pub(crate) base_bytes: u64,
    pub(crate) pending_bytes: u64,
    pub(crate) pending_syncs: u64,
}

/// Returns the places of the files.
pub(crate) fn paths(settings: &Settings) -> Paths {
    Paths {
        dir: PathBuf::from("."),
        folder_name: settings.append_dir_name.clone(),
        file_name: settings.append_filename.clone(),
    }
}

/// Returns the settings of the file.
fn writer_settings(settings: &Settings) -> writer::Settings {
    writer::Settings {
        policy: settings.append_sync,
        writes_timestamps: settings.append_timestamps,
        rewrite_percentage: settings.rewrite_percentage,
        rewrite_bytes_min: settings.rewrite_bytes_min,
        keeps_history: settings.keeps_append_history,
    }
}

impl Append {
    /// Makes the state at the start: off. Jobs are run by [`run_jobs`].
    pub(crate) fn new() -> (Append, mpsc::Receiver<Option<Job>>) {
        let (jobs, todo) = mpsc::channel();
        let append = Append {
            inner: Mutex::new(Inner {
                writer: None,
                is_wanted: false,
                lock: None,
                pending: Vec::new(),
                pending_last: 0,
                retry_at_ms: 0,
                is_syncing: false,
                wants_cut: None,
                wants_lone_base: false,
                is_last_lone_base_done: true,
                cut_for: None,
                early_base: None,
                is_gated: false,
                is_scheduled: false,
                starts: false,
                is_left: false,
                ends: None,
                rewrite_began_ms: None,
                rewrite_took_s: None,
                rewrites: 0,
            }),
            shown: Mutex::new(Shown {
                figures: AppendFigures {
                    is_last_rewrite_done: true,
                    is_last_write_done: true,
                    ..AppendFigures::default()
                },
                ..Shown::default()
            }),
            jobs: Mutex::new(jobs),
            adopting: Mutex::default(),
            running: Mutex::default(),
            sync_delay_us: AtomicU64::new(0),
        };
        (append, todo)
    }

    fn inner(&self) -> Held<'_> {
        let inner = self.inner.lock();
        Held {
            inner: inner.expect("no panic under the append-only file"),
            shown: &self.shown,
        }
    }

    /// Does the same if nobody holds it, be it for a slow disk.
    fn try_inner(&self) -> Option<Held<'_>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(Held {
                inner,
                shown: &self.shown,
            }),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("a panic under the append-only file"),
        }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().expect("no panic under what is shown")
    }

    /// Returns what INFO tells.
    pub(crate) fn figures(&self) -> AppendFigures {
        let shown = self.shown();
        let mut figures = shown.figures.clone();
        let now_ms = clock::monotonic_ms();
        figures.rewrite_running_s = shown
            .rewrite_began_ms
            .map(|began_ms| now_ms.saturating_sub(began_ms) / 1000);
        figures
    }

    /// Returns true if the file is on, or about to be.
    pub(crate) fn is_on(&self) -> bool {
        self.shown().figures.is_on
    }

    /// Returns true if the file is on, and is not about to go off.
    pub(crate) fn stays_on(&self) -> bool {
        self.shown().stays_on
    }

    /// Returns true while a base is being made.
    pub(crate) fn is_rewriting(&self) -> bool {
        self.shown().is_making
    }

    /// Returns true while the first base is made of a file that a process which runs has been told to keep: the data are in
    /// no file.
    pub(crate) fn is_being_turned_on(&self) -> bool {
        let inner = self.inner();
        let state = inner.writer.as_ref().map(Writer::state);
        state == Some(State::Starting) && !inner.starts
    }

    /// Returns the rewrite whose cut is wanted.
    pub(crate) fn wanted_cut(&self) -> Option<u64> {
        self.shown().wants_cut
    }

    /// Returns true while the cut of a rewrite is on its way through the journal: the next one would be taken for it.
    pub(crate) fn awaits_cut(&self) -> bool {
        self.inner().cut_for.is_some()
    }

    /// Returns true if a base is wanted while the file is off.
    pub(crate) fn wants_lone_base(&self) -> bool {
        self.shown().wants_lone_base
    }

    /// Has a base made, though the file is off.
    pub(crate) fn make_lone_base(&self) {
        let mut inner = self.inner();
        inner.wants_lone_base = true;
        inner.rewrite_began_ms = Some(clock::monotonic_ms());
    }

    /// Has a rewrite begun as soon as possible.
    pub(crate) fn schedule(&self) {
        self.inner().is_scheduled = true;
    }

    /// Ends the thread that runs the jobs.
    pub(crate) fn stop_jobs(&self) {
        self.give(None);
    }

    /// Has no file put into its place, or removed, until the result is dropped. Waits for the job that runs, so the caller must
    /// hold nothing that a job waits for; stripes are none of that.
    pub(crate) fn hold_jobs(&self) -> MutexGuard<'_, ()> {
        self.running.lock().expect("no panic while a job runs")
    }

    fn give(&self, job: Option<Job>) {
        let jobs = self.jobs.lock().expect("no panic under the jobs");
        // The thread ends last.
        let _ = jobs.send(job);
    }

    /// Takes over a file that was loaded, or is to be made, at the start of the process.
    pub(crate) fn take_over(
        &self,
        settings: &Settings,
        manifest: Manifest,
        bytes: (u64, u64),
        lock: Option<DirLock>,
    ) {
        let writer = Writer::new(paths(settings), writer_settings(settings), manifest, bytes);
        let mut inner = self.inner();
        inner.writer = Some(writer);
        inner.is_wanted = true;
        inner.lock = lock;
    }
}

/// Opens the file whose data was loaded, for what follows. The caller attaches the stream under the same unit as it
/// publishes the data.
pub(crate) fn open(shared: &Shared) -> Result<(), String> {
    let mut inner = shared.persistence.append.inner();
    let writer = inner.writer.as_mut().expect("it was taken over");
    let line = writer.open(&RealDisk).map_err(|error| error.text)?;
    log::notice(&line);
    drop(inner);
    note_gate(shared);
    Ok(())
}

/// Takes the folder for this process, before the file is turned on in a process that runs. The error is a line for the
/// log.
pub(crate) fn prepare(shared: &Shared, settings: &Settings) -> Result<(), String> {
    let mut inner = shared.persistence.append.inner();
    if inner.lock.is_some() {
        return Ok(());
    }
    let paths = paths(settings);
    let text = |error: manifest::FileError| error.text;
    manifest::create_folder(&RealDisk, &paths).map_err(text)?;
    let locked = RealDisk.lock_dir(&paths.folder());
    let locked = locked.map_err(|error| format!("{}: {error}", paths.folder_name))?;
    let in_use = || {
        format!(
            "{}: another process keeps its append-only file there",
            paths.folder_name
        )
    };
    let locked = locked.ok_or_else(in_use)?;
    if inner.writer.is_none() {
        // Files of an earlier process become history, and their names are not used again.
        let manifest = manifest::load(&RealDisk, &paths).map_err(text)?;
        let manifest = manifest.unwrap_or_default();
        inner.writer = Some(Writer::new(
            paths,
            writer_settings(settings),
            manifest,
            (0, 0),
        ));
    }
    inner.lock = Some(locked);
    Ok(())
}

/// Begins to make a file of what is there (CONFIG SET appendonly yes; at the start where there is none). `starts`: the
/// start of the process waits for it.
pub(crate) fn start(shared: &Shared, starts: bool) {
    let append = &shared.persistence.append;
    // Before the lock: a change of the settings may wait for it (`prepare`).
    let settings = shared.settings.current();
    let mut inner = append.inner();
    if inner.is_left {
        return;
    }
    let writer = inner.writer.get_or_insert_with(|| {
        let manifest = Manifest::default();
        Writer::new(
            paths(&settings),
            writer_settings(&settings),
            manifest,
            (0, 0),
        )
    });
    writer.set(writer_settings(&settings));
    let wishes = writer.start();
    inner.starts = starts;
    inner.rewrite_began_ms = Some(clock::monotonic_ms());
    drop(inner);
    meet(shared, wishes);
}

/// Has all that units have recorded so far written, before the files are read while they are in use. The caller holds every
/// stripe, so that nothing comes meanwhile but messages to the nodes. Returns false if the disk refuses it, or if the file is
/// only being made: then the data are in none.
pub(crate) fn write_out(shared: &Shared) -> bool {
    let last = shared.keyspace.journal().last();
    loop {
        let _ = shared.keyspace.journal().pump(&mut || false);
        let inner = shared.persistence.append.inner();
        match inner.writer.as_ref() {
            Some(writer) if matches!(writer.state(), State::Refusing | State::Starting) => {
                return false;
            }
            Some(writer) if matches!(writer.state(), State::On | State::Rewriting) => {
                if inner.pending.is_empty() && writer.written() >= last {
                    return true;
                }
            }
            _ => return true,
        }
        drop(inner);
        // Another thread has the role, or syncs.
        std::thread::yield_now();
    }
}

/// Turns the file off (CONFIG SET appendonly no).
fn stop(shared: &Shared) {
    let mut inner = shared.persistence.append.inner();
    let wishes = match &mut inner.writer {
        Some(writer) => writer.stop(now_s()),
        None => Vec::new(),
    };
    drop(inner);
    meet(shared, wishes);
}

/// Leaves the files as they are, since all data are about to be others, of which nothing belongs behind what they have: whoever
/// loads them has the data from before. The caller holds every stripe, and sees to [`make_anew`].
pub(crate) fn leave(shared: &Shared) {
    let mut inner = shared.persistence.append.inner();
    inner.is_left = true;
    // A rewrite would be one of the data that go.
    inner.is_scheduled = false;
    let wishes = match &mut inner.writer {
        Some(writer) => writer.leave(now_s()),
        None => Vec::new(),
    };
    drop(inner);
    meet(shared, wishes);
}

/// Returns true if a snapshot in this file can become the base of the append-only file: that is wanted, and both are on one
/// file system.
pub(crate) fn takes_base_of(shared: &Shared, path: &Path) -> bool {
    let settings = shared.settings.current();
    if !settings.appends || !settings.base_is_snapshot {
        return false;
    }
    let paths = paths(&settings);
    let device = |path: &Path| path.metadata().map(|facts| facts.dev());
    let folder = device(&paths.folder()).or_else(|_| device(&paths.dir));
    matches!((device(path), folder), (Ok(file), Ok(folder)) if file == folder)
}

/// Begins a file whose base is the snapshot that the data were just loaded from, if it was left and is wanted: what follows here
/// in the journal belongs behind it. The unit holds every stripe. Without a snapshot that can be one, see [`make_anew`].
pub(crate) fn make_of(shared: &Arc<Shared>, unit: &mut Unit<'_>, base: impl FnOnce() -> Base) {
    let append = &shared.persistence.append;
    let settings = shared.settings.current();
    let mut inner = append.inner();
    let is_wanted = inner.is_left && settings.appends && settings.base_is_snapshot;
    let writer = inner.writer.as_mut().filter(|_| is_wanted);
    let begun = writer.and_then(|writer| {
        writer.set(writer_settings(&settings));
        writer.start_with(base)
    });
    let Some((rewrite, wishes)) = begun else {
        return;
    };
    inner.is_left = false;
    inner.rewrite_began_ms = Some(clock::monotonic_ms());
    drop(inner);
    log::notice("The snapshot of the primary becomes the base of the append-only file.");
    cut_journal(shared, unit, rewrite);
    meet(shared, wishes);
}

/// Begins to make a file of the data that there are now, if it was left and is wanted.
pub(crate) fn make_anew(shared: &Shared) {
    let was_left = std::mem::take(&mut shared.persistence.append.inner().is_left);
    if was_left && shared.settings.current().appends {
        start(shared, false);
    }
}

/// Goes by changed settings.
pub(crate) fn adopt(shared: &Shared) {
    let append = &shared.persistence.append;
    let adopting = append.adopting.lock();
    let _adopting = adopting.expect("no panic while settings are gone by");
    let settings = shared.settings.current();
    shared.persistence.loading.adopt(&settings);
    let mut inner = append.inner();
    inner.is_wanted = settings.appends;
    let mut history = None;
    if let Some(writer) = &mut inner.writer {
        writer.set(writer_settings(&settings));
        let is_on = writer.state() == State::On;
        history = is_on.then(|| writer.remove_history()).flatten();
    }
    drop(inner);
    history.into_iter().for_each(|job| append.give(Some(job)));
    if !shared.persistence.loading.is_on() {
        match (settings.appends, append.is_on()) {
            (true, false) => start(shared, false),
            (false, true) => stop(shared),
            _ => {}
        }
    }
    note_gate(shared);
}

/// Begins a rewrite. Returns false if that is not possible now.
pub(crate) fn rewrite(shared: &Shared) -> bool {
    let mut inner = shared.persistence.append.inner();
    let Some(wishes) = inner.writer.as_mut().and_then(Writer::rewrite) else {
        return false;
    };
    inner.is_scheduled = false;
    inner.rewrite_began_ms = Some(clock::monotonic_ms());
    drop(inner);
    meet(shared, wishes);
    true
}

/// Directs the journal to the file, or its new one, at the cut that a rewrite wants. The unit holds every stripe.
pub(crate) fn cut_journal(shared: &Arc<Shared>, unit: &mut Unit<'_>, rewrite: u64) {
    let mut inner = shared.persistence.append.inner();
    inner.wants_cut = None;
    // Under the lock, so that the cut does not come through before it is known whose it is.
    let number = stream::begin_part(shared, unit);
    inner.cut_for = Some((rewrite, number));
}

/// Attaches the file to the journal. The unit holds every stripe.
pub(crate) fn attach(shared: &Arc<Shared>, unit: &mut Unit<'_>) {
    stream::begin_part(shared, unit);
}

/// Takes the base that a rewrite wanted.
pub(crate) fn base_done(shared: &Shared, rewrite: u64, result: Result<Base, String>) {
    let mut inner = shared.persistence.append.inner();
    let is_cut = inner.cut_for.is_none_or(|(other, _)| other != rewrite);
    let wishes = match (result, &mut inner.writer) {
        (Ok(base), Some(writer)) if is_cut => writer.base_written(rewrite, base),
        (Ok(base), _) => {
            inner.early_base = Some((rewrite, base));
            Vec::new()
        }
        (Err(why), Some(writer)) => writer.base_failed(rewrite, &why, now_s()),
        (Err(_), None) => Vec::new(),
    };
    drop(inner);
    meet(shared, wishes);
    // The cut is in the journal, if nobody has pumped since.
    let _ = shared.keyspace.journal().pump(&mut || false);
}

/// Returns true if a base is wanted while the file is off: it is begun now.
pub(crate) fn takes_lone_base(shared: &Shared) -> bool {
    std::mem::take(&mut shared.persistence.append.inner().wants_lone_base)
}

/// Puts a base into its place, of which no file of commands follows.
pub(crate) fn lone_base_done(shared: &Shared, result: Result<Base, String>) {
    let paths = paths(&shared.settings.current());
    let result = result.and_then(|base| {
        let put = manifest::put_lone_base(&RealDisk, &paths, &base.path, base.is_snapshot);
        put.map_err(|error| error.text)
    });
    let mut inner = shared.persistence.append.inner();
    let began_ms = inner.rewrite_began_ms.take();
    inner.rewrite_took_s =
        began_ms.map(|began_ms| clock::monotonic_ms().saturating_sub(began_ms) / 1000);
    inner.is_last_lone_base_done = result.is_ok();
    inner.rewrites += u64::from(result.is_ok());
    if let (Ok(manifest), Some(writer)) = (&result, &mut inner.writer) {
        // Its next file must not have the name of this one.
        writer.set_manifest(manifest.clone());
    }
    drop(inner);
    match result {
        Ok(_) => log::notice("Background AOF rewrite finished successfully"),
        Err(why) => log::warning(&format!(
            "Background AOF rewrite terminated with error: {why}"
        )),
    }
}

/// Looks after what is due by time; called by worker 0 every tick.
pub(crate) fn tick(shared: &Shared) {
    // Before the lock, which comes last.
    let is_save_ahead = shared.persistence.is_save_ahead();
    // While the disk is slow, the next tick will do.
    let Some(mut guard) = shared.persistence.append.try_inner() else {
        return;
    };
    let inner = &mut *guard;
    let is_on = inner
        .writer
        .as_ref()
        .is_some_and(|writer| writer.state() != State::Off);
    if !is_on && inner.is_scheduled && !is_save_ahead {
        inner.is_scheduled = false;
        inner.wants_lone_base = true;
        inner.rewrite_began_ms = Some(clock::monotonic_ms());
        super::wish(shared);
    }
    let Some(writer) = &mut inner.writer else {
        return;
    };
    let mut wishes = Vec::new();
    // A sync that takes long is not followed by another before it has ended.
    if !inner.is_syncing || writer.state() != State::On {
        wishes = writer.tick(now_s());
        inner.is_syncing |= wishes
            .iter()
            .any(|wish| matches!(wish, Wish::Run(job) if job.is_sync()));
    }
    let grows = writer.wants_rewrite(now_s());
    let base = u128::from(writer.base_bytes().max(1));
    let growth = (u128::from(writer.current_bytes()) * 100 / base).saturating_sub(100);
    let is_wanted = (grows || inner.is_scheduled) && !writer.is_rewriting();
    if !inner.pending.is_empty() && clock::monotonic_ms() >= inner.retry_at_ms {
        wishes.extend(inner.append_pending(true));
    }
    drop(guard);
    meet(shared, wishes);
    if is_wanted && !is_save_ahead {
        if grows {
            log::notice(&format!(
                "Starting automatic rewriting of AOF on {growth}% growth"
            ));
        }
        rewrite(shared);
    }
}

/// Brings everything to disk at the end of the process, when no worker runs any more.
pub(crate) fn end(shared: &Shared) {
    if !shared.persistence.append.is_on() {
        return;
    }
    let _ = shared.keyspace.journal().pump(&mut || false);
    let (tell, told) = mpsc::channel();
    let mut inner = shared.persistence.append.inner();
    let mut wishes = inner.append_pending(false);
    inner.ends = Some(tell);
    if let Some(writer) = &mut inner.writer {
        log::notice("Calling fsync() on the AOF file.");
        wishes.extend(writer.end(now_s()));
    }
    drop(inner);
    meet(shared, wishes);
    if !told.recv().unwrap_or(false) {
        log::warning("Failed to fsync() the AOF file.");
    }
}

/// Runs the jobs of the file, one after the other, until it is told to end.
pub(crate) fn run_jobs(shared: &Shared, todo: &mpsc::Receiver<Option<Job>>) {
    while let Ok(Some(job)) = todo.recv() {
        let is_sync = job.is_sync();
        let delay_us = shared
            .persistence
            .append
            .sync_delay_us
            .load(Ordering::Relaxed);
        if is_sync && delay_us > 0 {
            thread::sleep(Duration::from_micros(delay_us));
        }
        let running = shared.persistence.append.hold_jobs();
        let done = job.run(&RealDisk);
        drop(running);
        let mut inner = shared.persistence.append.inner();
        if is_sync {
            inner.is_syncing = false;
        }
        let mut wishes = match &mut inner.writer {
            Some(writer) => writer.done(done, now_s()),
            None => Vec::new(),
        };
        wishes.extend(inner.append_pending(true));
        wishes.extend(inner.sync_if_always());
        drop(inner);
        meet(shared, wishes);
    }
}

impl Inner {
    /// Forgets what was on its way to a file that is off now, and to a rewrite that has ended with it.
    fn forget_rewrite(&mut self) {
        self.pending.clear();
        self.cut_for = None;
        if let Some((_, base)) = self.early_base.take() {
            // It may be gone, and whoever starts next removes it.
            let _ = fs::remove_file(base.path);
        }
    }

    /// Gives the writer what it has not taken yet.
    fn append_pending(&mut self, may_wait: bool) -> Vec<Wish> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let pending = std::mem::take(&mut self.pending);
        let wishes = self.append(&[&pending], self.pending_last, may_wait);
        if pending.capacity() <= 1024 * 1024 && self.pending.is_empty() {
            self.pending = pending;
            self.pending.clear();
        }
        wishes
    }

    /// Gives the writer whole units; what it does not take is kept.
    fn append(&mut self, units: &[&[u8]], last: u64, may_wait: bool) -> Vec<Wish> {
        let Some(writer) = &mut self.writer else {
            return Vec::new();
        };
        let (appended, wishes) = writer.append(units, last, now_s(), may_wait);
        if appended != Appended::Written {
            if appended == Appended::Refused {
                self.retry_at_ms = clock::monotonic_ms() + RETRY_MS;
            }
            for unit in units {
                self.pending.extend_from_slice(unit);
            }
            self.pending_last = last;
        }
        wishes
    }

    /// Asks for a sync, if replies wait for one and none is under way.
    fn sync_if_always(&mut self) -> Option<Wish> {
        if self.is_syncing || !self.is_gated {
            return None;
        }
        let job = self.writer.as_mut()?.sync()?;
        self.is_syncing = true;
        Some(Wish::Run(job))
    }
}

/// Takes a round of the journal's stream, up to this record.
pub(crate) fn write(shared: &Shared, pieces: &[Piece<'_>], last: u64) {
    let mut inner = shared.persistence.append.inner();
    if inner.writer.is_none() {
        return;
    }
    let files = pieces.iter().filter(|piece| piece.is_for_files());
    let mut wishes;
    if inner.pending.is_empty() {
        let units: Vec<&[u8]> = files.map(Piece::bytes).collect();
        wishes = inner.append(&units, last, true);
    } else {
        files.for_each(|piece| inner.pending.extend_from_slice(piece.bytes()));
        inner.pending_last = last;
        let is_too_much = inner.pending.len() > WAITING_BYTES_MAX;
        let is_due = is_too_much || clock::monotonic_ms() >= inner.retry_at_ms;
        wishes = match is_due {
            true => inner.append_pending(!is_too_much),
            false => Vec::new(),
        };
    }
    wishes.extend(inner.sync_if_always());
    drop(inner);
    if !wishes.is_empty() {
        meet(shared, wishes);
    }
}

/// Hears that a part of the stream begins behind this record.
pub(crate) fn cut(shared: &Shared, number: u64) {
    let mut inner = shared.persistence.append.inner();
    let Some((rewrite, _)) = inner.cut_for.take_if(|(_, of)| *of == number) else {
        return;
    };
    let mut wishes = inner.append_pending(false);
    if let Some(writer) = &mut inner.writer {
        wishes.extend(writer.switch(rewrite, number, now_s()));
        if writer.has_switched(rewrite) {
            // What could not be written is in the base.
            inner.pending.clear();
        }
        if let Some((rewrite, base)) = inner.early_base.take() {
            let writer = inner.writer.as_mut().expect("as above");
            wishes.extend(writer.base_written(rewrite, base));
        }
    }
    drop(inner);
    meet(shared, wishes);
}

/// Meets the wishes of the writer. The caller holds no lock.
fn meet(shared: &Shared, wishes: Vec<Wish>) {
    let append = &shared.persistence.append;
    for wish in wishes {
        match wish {
            Wish::Run(job) => append.give(Some(job)),
            Wish::Log(Level::Notice, line) => log::notice(&line),
            Wish::Log(Level::Warning, line) => log::warning(&line),
            Wish::Refuse(text) => {
                let refusals = &shared.engine.refusals;
                refusals.set_append_error(&text);
                refusals.set(Reason::AppendFailed, true, &shared.engine.settings);
            }
            Wish::Accept => {
                let refusals = &shared.engine.refusals;
                refusals.set(Reason::AppendFailed, false, &shared.engine.settings);
            }
            Wish::Exit(code) => std::process::exit(code.into()),
            Wish::Cut { rewrite } => {
                append.inner().wants_cut = Some(rewrite);
                super::wish(shared);
            }
            Wish::Synced(number) => shared.engine.release_replies(number),
            Wish::RewriteEnded { rewrite, is_done } => rewrite_ended(shared, rewrite, is_done),
            Wish::Stopped => {
                replication::wish(shared);
                append.inner().forget_rewrite();
                // It may have been turned on again meanwhile.
                if shared.settings.current().appends {
                    start(shared, false);
                }
            }
            Wish::Ended { is_synced } => {
                if let Some(ends) = append.inner().ends.take() {
                    let _ = ends.send(is_synced);
                }
            }
        }
    }
    note_gate(shared);
}

fn rewrite_ended(shared: &Shared, rewrite: u64, is_done: bool) {
    let mut inner = shared.persistence.append.inner();
    let began_ms = inner.rewrite_began_ms.take();
    let took = began_ms.map(|began_ms| clock::monotonic_ms().saturating_sub(began_ms) / 1000);
    inner.wants_cut.take_if(|wanted| *wanted == rewrite);
    let starts = std::mem::take(&mut inner.starts);
    // That the first file is made is no rewrite in Redis.
    inner.rewrite_took_s = took.filter(|_| !starts);
    inner.rewrites += u64::from(is_done && !starts);
    inner.is_last_lone_base_done |= is_done;
    let is_off = inner
        .writer
        .as_ref()
        .is_none_or(|writer| writer.state() == State::Off);
    drop(inner);
    if !is_done {
        super::give_up_base(shared);
        if is_off {
            replication::wish(shared);
        }
    }
    // Who ends the process does not wait for its start.
    if starts && !shared.stopping.load(Ordering::Acquire) {
        match is_done {
            true => super::loading::end(shared),
            false => {
                log::warning("Failed to create the append-only file. Exiting.");
                std::process::exit(1);
            }
        }
    }
}

/// Lets replies wait for the file, or not, as its state and the policy demand, and tells those who wait in a call how far
/// it is.
fn note_gate(shared: &Shared) {
    let mut inner = shared.persistence.append.inner();
    // Under the lock, so that reports come in their order.
    let on_disk = inner.writer.as_ref().and_then(Writer::on_disk);
    shared.engine.report_disk(match inner.is_wanted {
        true => on_disk.map_or(OnDisk::NotYet, OnDisk::UpTo),
        false => OnDisk::NoFile,
    });
    let wanted = inner.writer.as_ref().map_or(Gate::Open, Writer::gate);
    let was_gated = inner.is_gated;
    let mut wishes = Vec::new();
    match wanted {
        Gate::UpTo(synced) if !was_gated => {
            inner.is_gated = true;
            shared.keyspace.journal().gate.close(synced);
            wishes.extend(inner.sync_if_always());
        }
        Gate::Open if was_gated => {
            inner.is_gated = false;
            shared.engine.release_all_replies();
        }
        _ => {}
    }
    drop(inner);
    for wish in wishes {
        if let Wish::Run(job) = wish {
            shared.persistence.append.give(Some(job));
        }
    }
    shared.following.note_on_disk();
}

fn now_s() -> i64 {
    (clock::wall_ms() / 1000) as i64
}
