//! Snapshots into files: when one is taken, what it is to hold, who waits for it, and how it went.
//!
//! A snapshot begins with a cut, made by a worker under all stripes ([`begin`]). The workers walk in slices
//! ([`slices`]), a thread of its own writes the file ([`write_files`]), and reports to [`Persistence::ended`]. Wishes
//! that cannot be met at once (a snapshot is being taken, a stripe is in use) are kept, and tried again by
//! worker 0 every turn ([`drive`]).
//!
//! Must not know: how entries are encoded, commands.

pub(crate) mod append;
pub(crate) mod leftovers;
pub(crate) mod loading;
pub(crate) mod playback;
pub(crate) mod slices;
mod writing;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use redline_engine::{
    Message as Mail, REDIS_VERSION, engine::Hold, executor::figures, refusals::Reason,
};
use redline_keyspace::{
    Unit,
    lock::StripeSet,
    snapshot::{Cut, CutDatabase},
};
use redline_net::clock;
use redline_persist::{
    aof::writer::{Base, Job},
    snapshot::{
        Encoding, Stream,
        file::{self, Head, Manner, SaveError, Written},
    },
};
use redline_rdb::format::{FileVersion, Format};
use redline_replica::{
    Replid,
    primary::{Form, Part},
};

use crate::{
    ending, log, replication,
    settings::Settings,
    shared::{Message, Shared},
    worker::Worker,
};

pub(crate) use writing::write_files;

/// Seconds after a snapshot that failed before save points are looked at again.
const RETRY_S: u64 = 5;

/// The server's part in files: see the module's text.
pub(crate) struct Persistence {
    state: Mutex<State>,
    /// True if [`drive`] may have something to try. Read every turn.
    has_wishes: AtomicBool,
    jobs: Mutex<mpsc::Sender<Option<SaveJob>>>,
    /// How the loading of files goes.
    pub(crate) loading: loading::Loading,
    /// The append-only file.
    pub(crate) append: append::Append,
}

/// The receivers of what the threads for files are to do.
pub(crate) struct Todo {
    /// For [`write_files`].
    pub(crate) snapshots: mpsc::Receiver<Option<SaveJob>>,
    /// For [`append::run_jobs`].
    pub(crate) jobs: mpsc::Receiver<Option<Job>>,
}

/// Purpose of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The file of the configuration.
    Save,
    /// The base of this rewrite of the append-only file.
    Base(u64),
    /// A base without a file that follows it: BGREWRITEAOF while the append-only file is off.
    LoneBase,
    /// This walk for replicas, in a form for who reads it, of a part of the data.
    Replicas(u64, Form, Part),
}

struct State {
    /// Number of the last snapshot that was begun.
    number: u64,
    /// The last record of the journal whose effect it has.
    last_record: u64,
    /// The one that is being taken or written.
    running: Option<Running>,
    /// The one for replicas, until its place in their stream is known.
    held: Option<SaveJob>,
    /// Number of the last one that was written or has failed, and which of both.
    ended: (u64, bool),
    /// A client or a save point wants one as soon as possible.
    is_scheduled: bool,
    /// The one that is scheduled follows a FLUSHALL.
    follows_flush: bool,
    /// The end of the process waits for one.
    shutdown: Option<Shutdown>,
    /// Clients that wait for one to end.
    waiting: Vec<Waiting>,
    figures: Figures,
}

/// A snapshot that is being taken or written.
struct Running {
    number: u64,
    purpose: Purpose,
    stream: Arc<Stream>,
    began_ms: u64,
    /// Changes of the data at the cut, since the start.
    changes: u64,
    /// Keys at the cut.
    keys: u64,
    /// It is that of a FLUSHALL.
    follows_flush: bool,
}

/// A client that waits for a snapshot.
struct Waiting {
    client: u64,
    /// The snapshot; `None`: the next that is begun for its own sake.
    number: Option<u64>,
    /// How it ended.
    result: Option<bool>,
}

/// A shutdown that waits for a snapshot.
struct Shutdown {
    /// The clients that asked for it.
    clients: Vec<u64>,
    /// The process ends even if the snapshot fails.
    is_forced: bool,
    /// The snapshot that it waits for, once it is cut.
    number: Option<u64>,
}

/// Figures of snapshots, for INFO.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// Unix time of the last success in seconds; at first that of the start.
    pub(crate) saved_at_s: u64,
    /// Unix time of the last attempt in seconds.
    pub(crate) tried_at_s: u64,
    /// The last one succeeded.
    pub(crate) is_ok: bool,
    /// Seconds that the last one took.
    pub(crate) took_s: Option<u64>,
    /// Seconds since the one that is being taken began.
    pub(crate) running_s: Option<u64>,
    /// One is taken as soon as possible.
    pub(crate) is_scheduled: bool,
    /// Entries that it has, and those that it is to have.
    pub(crate) entries: Option<(u64, u64)>,
    /// Changes of the data since the start that the last success has.
    pub(crate) changes_saved: u64,
    /// Number of successes.
    pub(crate) saves: u64,
    /// Bytes that wait to be written.
    pub(crate) waiting_bytes: u64,
}

/// A file to be written.
pub(crate) struct SaveJob {
    number: u64,
    purpose: Purpose,
    stream: Arc<Stream>,
    head: Head,
    manner: Manner,
    temporary: PathBuf,
    path: PathBuf,
}

/// Reason why a snapshot was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotBegun {
    /// One is being taken and written.
    InProgress,
    /// One is soon at its end: it is not wanted any more, or it is that of a FLUSHALL, of which clients know nothing.
    Ending,
}

impl Running {
    fn is_save(&self) -> bool {
        self.purpose == Purpose::Save
    }

    /// Returns true if another may be asked for, which follows it.
    fn is_ending(&self) -> bool {
        self.follows_flush || self.stream.is_unwanted()
    }
}

impl State {
    fn has_wishes(&self) -> bool {
        let awaits_cut = |shutdown: &Shutdown| shutdown.number.is_none();
        self.is_scheduled || self.shutdown.as_ref().is_some_and(awaits_cut)
    }

    /// Notes how a snapshot ended for the clients that wait for it. Returns them.
    fn settle(&mut self, number: Option<u64>, is_ok: bool) -> Vec<u64> {
        let waiting = self.waiting.iter_mut();
        let settled =
            waiting.filter(|waiting| waiting.number == number && waiting.result.is_none());
        settled
            .map(|waiting| {
                waiting.result = Some(is_ok);
                waiting.client
            })
            .collect()
    }

    /// Notes for the clients that asked for a shutdown that there is none.
    fn refuse(&mut self, clients: &[u64]) {
        self.waiting.extend(clients.iter().map(|client| Waiting {
            client: *client,
            number: None,
            result: Some(false),
        }));
    }
}

impl Persistence {
    /// Makes the state at the start. Files are written by [`write_files`], on the receiver's thread.
    pub(crate) fn new(started_s: u64) -> (Persistence, Todo) {
        let (jobs, snapshots) = mpsc::channel();
        let (append, append_jobs) = append::Append::new();
        let persistence = Persistence {
            state: Mutex::new(State {
                number: 0,
                last_record: 0,
                running: None,
                held: None,
                ended: (0, true),
                is_scheduled: false,
                follows_flush: false,
                shutdown: None,
                waiting: Vec::new(),
                figures: Figures {
                    saved_at_s: started_s,
                    tried_at_s: 0,
                    is_ok: true,
                    took_s: None,
                    running_s: None,
                    is_scheduled: false,
                    entries: None,
                    changes_saved: 0,
                    saves: 0,
                    waiting_bytes: 0,
                },
            }),
            has_wishes: AtomicBool::new(false),
            jobs: Mutex::new(jobs),
            loading: loading::Loading::default(),
            append,
        };
        let todo = Todo {
            snapshots,
            jobs: append_jobs,
        };
        (persistence, todo)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no panic under the state of files")
    }

    /// Returns what INFO tells.
    pub(crate) fn figures(&self) -> Figures {
        let state = self.state();
        let mut figures = state.figures.clone();
        figures.is_scheduled = state.is_scheduled;
        if let Some(running) = state.running.as_ref().filter(|running| running.is_save()) {
            let span_ms = clock::monotonic_ms().saturating_sub(running.began_ms);
            figures.running_s = Some(span_ms / 1000);
            figures.entries = Some((running.stream.entries(), running.keys));
            figures.waiting_bytes = running.stream.waiting_bytes();
        }
        figures
    }

    /// Returns the last record of the journal whose effect the newest snapshot has; 0 before the first.
    pub(crate) fn last_record(&self) -> u64 {
        self.state().last_record
    }

    /// Returns true while a snapshot is being taken or written that clients have to wait for.
    pub(crate) fn is_saving(&self) -> bool {
        let is_one = |running: &Running| running.is_save() && !running.is_ending();
        self.state().running.as_ref().is_some_and(is_one)
    }

    /// Returns true if a rewrite of the append-only file has to wait for a snapshot that clients know of.
    pub(crate) fn is_save_ahead(&self) -> bool {
        let state = self.state();
        let is_scheduled = state.is_scheduled && !state.follows_flush;
        drop(state);
        is_scheduled || self.is_saving()
    }

    /// Takes so many changes since the start, which loading has made, as saved.
    fn forget_changes(&self, changes: u64) {
        self.state().figures.changes_saved = changes;
    }

    /// Returns true while a snapshot for any purpose is being taken or written.
    pub(crate) fn is_busy(&self) -> bool {
        self.state().running.is_some()
    }

    /// Returns true while a snapshot for another purpose than a file of its own is being taken or written.
    pub(crate) fn is_making_base(&self) -> bool {
        self.state()
            .running
            .as_ref()
            .is_some_and(|running| !running.is_save() && !running.is_ending())
    }

    /// Has a snapshot taken as soon as possible.
    pub(crate) fn schedule(&self) {
        let mut state = self.state();
        state.is_scheduled = true;
        state.follows_flush = false;
        drop(state);
        self.has_wishes.store(true, Ordering::Release);
    }

    fn write(&self, job: SaveJob) {
        let jobs = self.jobs.lock().expect("no panic under the jobs");
        // The thread ends after the workers.
        let _ = jobs.send(Some(job));
    }

    /// Ends the thread that writes files. A file that is being written is given up: no worker runs any more that could save
    /// the rest.
    pub(crate) fn stop_writing(&self) {
        if let Some(running) = &self.state().running {
            if !running.is_save() {
                log::warning("Aborting the AOF rewrite in progress.");
            }
            running.stream.give_up();
        }
        let jobs = self.jobs.lock().expect("no panic under the jobs");
        let _ = jobs.send(None);
    }

    /// Notes that a client asks for the snapshot that would have followed a FLUSHALL.
    pub(crate) fn know_of_next(&self) {
        self.state().follows_flush = false;
    }

    /// Gives up the snapshot that is being taken, and the one that is scheduled. Returns which there was: (running,
    /// scheduled).
    pub(crate) fn cancel(&self, shared: &Shared) -> (bool, bool) {
        let mut state = self.state();
        let was_scheduled = std::mem::take(&mut state.is_scheduled);
        state.follows_flush = false;
        let running = state.running.as_ref().filter(|running| running.is_save());
        running.inspect(|running| running.stream.give_up());
        let was_running = running.is_some();
        // Who waits for the next one waits for nothing now.
        let woken = state.settle(None, false);
        drop(state);
        wake(shared, &woken);
        (was_running, was_scheduled)
    }

    /// Registers a client that waits for a snapshot to end. It may have ended already.
    pub(crate) fn wait_for(&self, client: u64, number: u64) {
        let mut state = self.state();
        let (ended, is_ok) = state.ended;
        state.waiting.push(Waiting {
            client,
            number: Some(number),
            result: (ended >= number).then_some(is_ok),
        });
    }

    /// Has a snapshot taken as soon as possible, and registers a client that waits for it to end.
    pub(crate) fn schedule_for(&self, client: u64) {
        let mut state = self.state();
        state.is_scheduled = true;
        state.follows_flush = false;
        state.waiting.push(Waiting {
            client,
            number: None,
            result: None,
        });
        self.has_wishes.store(true, Ordering::Release);
    }

    /// Returns how the snapshot ended that a client waits for: `None`: it waits for none; `Some(None)`: it has not ended.
    pub(crate) fn outcome_for(&self, client: u64) -> Option<Option<bool>> {
        let mut state = self.state();
        let at = state
            .waiting
            .iter()
            .position(|waiting| waiting.client == client)?;
        let result = state.waiting[at].result;
        if result.is_some() {
            state.waiting.swap_remove(at);
        }
        Some(result)
    }

    /// Notes that a snapshot has ended, and acts on it.
    fn ended(&self, shared: &Shared, job: &SaveJob, result: &Result<Written, SaveError>) {
        let mut state = self.state();
        let running = state.running.take().expect("it was running");
        if job.purpose != Purpose::Save {
            drop(state);
            if let Purpose::Replicas(walk, ..) = job.purpose {
                replication::walk_ended(shared, walk, result);
                return;
            }
            let base = match result {
                Ok(written) => Ok(Base {
                    path: job.path.clone(),
                    is_synced: true,
                    bytes: written.bytes,
                    is_snapshot: !job.stream.writes_commands(),
                }),
                Err(error) => Err(error.to_string()),
            };
            match job.purpose {
                Purpose::Base(rewrite) => append::base_done(shared, rewrite, base),
                _ => append::lone_base_done(shared, base),
            }
            return;
        }
        let now_s = clock::wall_ms() / 1000;
        let is_ok = result.is_ok();
        let figures = &mut state.figures;
        figures.took_s = Some(clock::monotonic_ms().saturating_sub(running.began_ms) / 1000);
        // As in Redis a snapshot that was called off is no failure.
        if !matches!(result, Err(SaveError::Unwanted)) {
            figures.is_ok = is_ok;
        }
        match result {
            Ok(written) => {
                figures.saved_at_s = now_s;
                figures.changes_saved = running.changes;
                figures.saves += 1;
                log::notice(&format!(
                    "DB saved on disk: {} keys, {} bytes",
                    written.entries, written.bytes
                ));
            }
            Err(SaveError::Unwanted) => log::notice("Snapshot aborted"),
            Err(error) => log::warning(&format!("Error saving DB on disk: {error}")),
        }
        state.ended = (job.number, is_ok);
        // Some have left meanwhile.
        state
            .waiting
            .retain(|waiting| shared.token_of(waiting.client).is_some());
        let (mut woken, mut ends) = (state.settle(Some(job.number), is_ok), None);
        let is_awaited = |shutdown: &mut Shutdown| shutdown.number == Some(job.number);
        if let Some(shutdown) = state.shutdown.take_if(is_awaited) {
            ends = Some(is_ok || shutdown.is_forced);
            woken.extend(&shutdown.clients);
            state.refuse(&shutdown.clients);
        }
        drop(state);
        note_refusal(shared);
        match ends {
            Some(true) => {
                crate::stop_workers(shared);
                return;
            }
            Some(false) => {
                log::warning("Error trying to save the DB, can't exit.");
                ending::failed(shared);
            }
            None => {}
        }
        wake(shared, &woken);
    }

    /// Notes for clients that asked for a shutdown that there is none.
    pub(crate) fn refuse_end(&self, clients: &[u64]) {
        self.state().refuse(clients);
    }

    /// Returns true if the end of the process, for which this client asked, waits for a snapshot.
    pub(crate) fn is_ending_for(&self, client: u64) -> bool {
        let state = self.state();
        let shutdown = state.shutdown.as_ref();
        shutdown.is_some_and(|shutdown| shutdown.clients.contains(&client))
    }
}

/// Has suspended clients run their calls again.
fn wake(shared: &Shared, clients: &[u64]) {
    for client in clients {
        if let Some(token) = shared.token_of(*client) {
            shared.send(token, Mail::Wake(token));
        }
    }
}

/// Sets or clears the refusal of writes that a failed snapshot brings.
pub(crate) fn note_refusal(shared: &Shared) {
    let settings = shared.settings.current();
    let failed = !shared.persistence.state().figures.is_ok;
    let refuses = failed && settings.stop_writes_on_save_error && !settings.save_points.is_empty();
    let refusals = &shared.engine.refusals;
    refusals.set(Reason::SaveFailed, refuses, &shared.engine.settings);
}

/// Begins a snapshot. The unit holds every stripe. Returns its number.
pub(crate) fn begin(
    worker: &mut Worker,
    unit: &mut Unit<'_>,
    purpose: Purpose,
) -> Result<u64, NotBegun> {
    let shared = worker.shared;
    // A worker that nobody has called since may not have seen the last ones.
    let settings = shared.settings.current();
    let settings = &*settings;
    let mut state = shared.persistence.state();
    if let Some(running) = &state.running {
        return Err(match running.is_ending() {
            true => NotBegun::Ending,
            false => NotBegun::InProgress,
        });
    }
    if shared.keyspace.is_snapshot_running() {
        return Err(NotBegun::Ending);
    }
    let pid = std::process::id();
    let (temporary, path) = match purpose {
        Purpose::Save => {
            let path = PathBuf::from(&settings.db_filename);
            (leftovers::snapshot_path(&file::folder_of(&path), pid), path)
        }
        Purpose::Base(_) | Purpose::LoneBase => leftovers::base_paths(pid),
        Purpose::Replicas(walk, ..) => {
            let path = PathBuf::from(format!("temp-replicas-{pid}-{walk}.rdb"));
            (path.clone(), path)
        }
    };
    figures::copy_counts(worker.executor);
    let cut = unit.counts();
    let format = Format {
        version: match purpose {
            Purpose::Replicas(_, form, _) => {
                let own = || version_for_replicas(form, &cut);
                settings.repl_format.unwrap_or_else(own)
            }
            _ => version_for(settings, &cut),
        },
        compresses: settings.engine.limits.payload_compressed,
        checksums: settings.checksums,
    };
    let policy = settings.maxmemory_policy;
    let encoding = Encoding {
        format,
        accesses: (policy.is_lru() || policy.is_lfu()).then_some(worker.local.clock),
    };
    let stream = match purpose {
        Purpose::Replicas(_, _, Part::Functions | Part::Nothing) => Stream::of_head_alone(encoding),
        Purpose::Save | Purpose::Replicas(..) => Stream::new(encoding),
        _ if settings.base_is_snapshot => Stream::new(encoding),
        Purpose::Base(_) | Purpose::LoneBase => Stream::of_commands(format),
    };
    let mailboxes: Vec<_> = (shared.workers().iter())
        .map(|worker| worker.mailbox.clone())
        .collect();
    let wake_all = move || {
        for mailbox in &mailboxes {
            mailbox.send(Message::Run(Box::new(|_| ())));
        }
    };
    let is_cut = unit.cut(&cut, stream.savers(Box::new(wake_all.clone())));
    wake_all();
    assert!(is_cut, "no snapshot is being taken");
    state.number += 1;
    state.last_record = cut.last_record;
    let job = SaveJob {
        number: state.number,
        purpose,
        stream: stream.clone(),
        head: head(worker, settings, &cut, purpose),
        manner: Manner {
            in_steps: settings.saves_in_steps,
            key_delay: Duration::from_micros(settings.key_save_delay_us),
        },
        temporary,
        path,
    };
    let mut follows_flush = false;
    if purpose == Purpose::Save {
        follows_flush = std::mem::take(&mut state.follows_flush);
        note_save(shared, &mut state);
    }
    state.running = Some(Running {
        number: state.number,
        purpose,
        stream,
        began_ms: clock::monotonic_ms(),
        changes: shared.changes(),
        keys: cut.databases.iter().map(|database| database.keys).sum(),
        follows_flush,
    });
    match purpose {
        Purpose::Replicas(..) => state.held = Some(job),
        _ => shared.persistence.write(job),
    }
    Ok(state.number)
}

/// Has the snapshot for replicas written, which begins at this place of their stream, where this database is selected.
pub(crate) fn release_held(shared: &Shared, replid: Replid, offset: u64, db: u32) {
    let Some(mut job) = shared.persistence.state().held.take() else {
        return;
    };
    job.head.facts.extend(history_facts(replid, offset, db));
    shared.persistence.write(job);
}

/// Returns the facts by which who loads a file knows its place in a stream.
fn history_facts(replid: Replid, offset: u64, db: u32) -> [(&'static str, Vec<u8>); 3] {
    [
        ("repl-stream-db", db.to_string().into_bytes()),
        ("repl-id", replid.as_bytes().to_vec()),
        ("repl-offset", offset.to_string().into_bytes()),
    ]
}

/// Notes that the snapshot of the present number is begun for its own sake, for those who wait for one. Called before its
/// writer hears of it, since that may be done at once.
fn note_save(shared: &Shared, state: &mut State) {
    state.is_scheduled = false;
    state.figures.tried_at_s = clock::wall_ms() / 1000;
    let number = Some(state.number);
    let next = state
        .waiting
        .iter_mut()
        .filter(|waiting| waiting.number.is_none() && waiting.result.is_none());
    next.for_each(|waiting| waiting.number = number);
    if let Some(shutdown) = &mut state.shutdown
        && shutdown.number.is_none()
    {
        shutdown.number = number;
        // What is written from here on would not be in the file.
        shared.engine.hold_writes(Hold::Shutdown, true);
    }
}

/// Returns the version of the file: as configured, or the lowest that holds the data.
fn version_for(settings: &Settings, cut: &Cut) -> FileVersion {
    match settings.rdb_format {
        Some(version) => version,
        None => {
            let is_late = |database: &CutDatabase| database.timed > 0 || database.vector_sets > 0;
            match cut.databases.iter().any(is_late) {
                true => FileVersion::LATEST,
                false => FileVersion::Redis(11),
            }
        }
    }
}

/// Returns the version of a snapshot for replicas: the one that they read, as far as it holds the data.
fn version_for_replicas(form: Form, cut: &Cut) -> FileVersion {
    let any = |is: fn(&CutDatabase) -> bool| cut.databases.iter().any(is);
    let (has_timed, has_vectors) = (
        any(|database| database.timed > 0),
        any(|database| database.vector_sets > 0),
    );
    match form {
        Form::Redis8 => FileVersion::LATEST,
        Form::Valkey9 if has_timed => FileVersion::VALKEY,
        // What they do not have cannot be told in it, and is refused.
        Form::Valkey9 | Form::Valkey8 => FileVersion::Redis(11),
        // No earlier version holds it, so they read this one or nothing.
        Form::Unknown | Form::Old if has_timed || has_vectors => FileVersion::LATEST,
        Form::Unknown => FileVersion::Redis(10),
        Form::Old => FileVersion::Redis(9),
    }
}

fn head(worker: &Worker, settings: &Settings, cut: &Cut, purpose: Purpose) -> Head {
    let shared = worker.shared;
    let is_base = matches!(purpose, Purpose::Base(_) | Purpose::LoneBase);
    let mut facts = vec![
        ("redis-ver", REDIS_VERSION.as_bytes().to_vec()),
        ("redis-bits", b"64".to_vec()),
        ("ctime", (clock::wall_ms() / 1000).to_string().into_bytes()),
        (
            "used-mem",
            shared.keyspace.used_bytes().to_string().into_bytes(),
        ),
        ("aof-base", u8::from(is_base).to_string().into_bytes()),
    ];
    if purpose == Purpose::Save
        && let Some((identity, db)) = replication::history_at_cut(worker, cut.last_record)
    {
        facts.extend(history_facts(identity.replid(), identity.offset(), db));
    }
    let part = match purpose {
        Purpose::Replicas(_, _, part) => part,
        _ => Part::All,
    };
    let libraries = shared.engine.libraries.all();
    let wanted = libraries.iter().filter(|_| part != Part::Nothing);
    Head {
        facts,
        libraries: wanted.map(|library| library.code.to_vec()).collect(),
        databases: match part {
            Part::All => cut.databases.clone(),
            Part::Functions | Part::Nothing => Vec::new(),
        },
        timestamp_s: (settings.append_timestamps).then(|| (clock::wall_ms() / 1000) as i64),
    }
}

/// Looks at the save points; called by worker 0 every tick.
pub(crate) fn look_at_save_points(worker: &Worker) {
    let shared = worker.shared;
    let mut state = shared.persistence.state();
    if state.running.is_some() || state.is_scheduled || shared.persistence.loading.is_on() {
        return;
    }
    let now_s = clock::wall_ms() / 1000;
    let changes = shared.changes().saturating_sub(state.figures.changes_saved);
    let since_s = now_s.saturating_sub(state.figures.saved_at_s);
    let rested_s = now_s.saturating_sub(state.figures.tried_at_s);
    if !state.figures.is_ok && rested_s <= RETRY_S {
        return;
    }
    let points = &worker.outlet.settings.save_points;
    let due = points
        .iter()
        .find(|(seconds, least)| changes >= *least && since_s > *seconds);
    if let Some((seconds, least)) = due {
        log::notice(&format!("{least} changes in {seconds} seconds. Saving..."));
        state.is_scheduled = true;
        let persistence = &shared.persistence;
        persistence.has_wishes.store(true, Ordering::Release);
    }
}

/// Tries to begin what is wanted and could not begin before; called by worker 0 every turn.
pub(crate) fn drive(worker: &mut Worker) {
    let shared = worker.shared;
    let persistence = &shared.persistence;
    // Before the wishes are looked at, so that one that comes meanwhile is seen next time.
    persistence.has_wishes.swap(false, Ordering::AcqRel);
    let rewrite = persistence.append.wanted_cut();
    let wants_lone_base = persistence.append.wants_lone_base();
    if !persistence.state().has_wishes() && rewrite.is_none() && !wants_lone_base {
        return;
    }
    persistence.has_wishes.store(true, Ordering::Release);
    if is_busy(shared) || worker.compound.is_some() {
        return;
    }
    let Ok(mut unit) = Unit::try_set(&shared.keyspace, &StripeSet::all(), false) else {
        return;
    };
    // Nobody begins one while these stripes are held.
    if is_busy(shared) {
        return;
    }
    if let Some(rewrite) = rewrite {
        // Libraries change without a stripe. What changes them after this is in the new file; what did before, in the base,
        // for which they are read below.
        append::cut_journal(&shared.this(), &mut unit, rewrite);
    }
    // The file that grows waits for its base; a snapshot comes after it.
    let purpose = match (rewrite, append::takes_lone_base(shared)) {
        (Some(rewrite), _) => Purpose::Base(rewrite),
        (None, true) => Purpose::LoneBase,
        (None, false) => Purpose::Save,
    };
    let begun = begin(worker, &mut unit, purpose);
    debug_assert!(begun.is_ok(), "none is being taken");
    drop(unit);
    match purpose {
        Purpose::Base(_) => worker.pump_now(),
        // Replicas have a beginning of their own.
        Purpose::LoneBase | Purpose::Replicas(..) => {}
        Purpose::Save => log::notice("Background saving started"),
    }
}

/// Returns true while no snapshot can be begun.
fn is_busy(shared: &Shared) -> bool {
    let is_running = shared.persistence.state().running.is_some();
    is_running || shared.keyspace.is_snapshot_running() || shared.persistence.append.awaits_cut()
}

/// Has [`drive`] look at what is wanted.
pub(crate) fn wish(shared: &Shared) {
    shared.persistence.has_wishes.store(true, Ordering::Release);
    shared.workers()[0]
        .mailbox
        .send(Message::Run(Box::new(|_| ())));
}

/// Gives up the base that is being written for the append-only file, if there is one.
fn give_up_base(shared: &Shared) {
    let state = shared.persistence.state();
    let is_base = |running: &&Running| matches!(running.purpose, Purpose::Base(_));
    let running = state.running.as_ref().filter(is_base);
    running.inspect(|running| running.stream.give_up());
}

/// Returns true if [`drive`] has something to try.
pub(crate) fn has_wishes(shared: &Shared) -> bool {
    shared.persistence.has_wishes.load(Ordering::Acquire)
}

/// Ends the snapshot that is being saved, since its data is gone, and saves that there is none, if there are save points.
pub(crate) fn flushed_all(shared: &Shared) {
    // Before the lock: a change of the settings may wait for the append-only file, and that for the lock.
    let saves = !shared.settings.current().save_points.is_empty();
    let mut state = shared.persistence.state();
    if let Some(running) = state.running.as_ref().filter(|running| running.is_save()) {
        running.stream.give_up();
    }
    if saves && !shared.persistence.loading.is_on() {
        state.follows_flush |= !state.is_scheduled;
        state.is_scheduled = true;
        drop(state);
        wish(shared);
    }
}

/// A wish for the files at the end of the server.
#[derive(Debug)]
pub(crate) struct Files<'a> {
    /// A snapshot is saved before; `None`: if there are save points.
    pub(crate) saves: Option<bool>,
    /// The process ends even if that fails.
    pub(crate) is_forced: bool,
    /// The clients that ask, which are taken out if they are to wait for the snapshot.
    pub(crate) clients: &'a mut Vec<u64>,
}

/// The answer to the wish to end the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It ends.
    Ends,
    /// It waits for replicas or a snapshot.
    Waits,
    /// It goes on: the data would be lost.
    Refused,
}

/// Begins to end the server, which replicas have had time for.
pub(crate) fn begin_to_end(shared: &Shared, ending: Files<'_>) -> Begun {
    let settings = shared.settings.current();
    // No file holds yet what the append-only file is to hold.
    if shared.persistence.append.is_being_turned_on() {
        if !ending.is_forced {
            log::warning("Writing initial AOF, can't exit.");
            return Begun::Refused;
        }
        log::warning("Writing initial AOF. Exiting anyway.");
    }
    let saves = ending.saves.unwrap_or(!settings.save_points.is_empty());
    let persistence = &shared.persistence;
    // What is loaded is in the file already, and what is not cannot be saved.
    if !saves || persistence.loading.is_on() {
        persistence.cancel(shared);
        persistence.loading.stop();
        crate::stop_workers(shared);
        return Begun::Ends;
    }
    let mut state = persistence.state();
    // A second signal does not begin anew.
    if state.shutdown.is_none() {
        // As in Redis one that is under way is not waited for.
        if let Some(running) = &state.running {
            running.stream.give_up();
        }
        log::notice("Saving the final RDB snapshot before exiting.");
    }
    let shutdown = state.shutdown.get_or_insert(Shutdown {
        clients: Vec::new(),
        is_forced: false,
        number: None,
    });
    shutdown.clients.append(ending.clients);
    shutdown.is_forced |= ending.is_forced;
    persistence.has_wishes.store(true, Ordering::Release);
    drop(state);
    shared.workers()[0]
        .mailbox
        .send(Message::Run(Box::new(|_| ())));
    Begun::Waits
}

/// Calls off a shutdown that waits for a snapshot. Returns false if there is none.
pub(crate) fn abort_shutdown(shared: &Shared) -> bool {
    let mut state = shared.persistence.state();
    let Some(shutdown) = state.shutdown.take() else {
        return false;
    };
    let own = |running: &&Running| shutdown.number == Some(running.number);
    if let Some(running) = state.running.as_ref().filter(own) {
        running.stream.give_up();
    }
    state.refuse(&shutdown.clients);
    drop(state);
    wake(shared, &shutdown.clients);
    true
}
