//! The append-only files at a load: snapshots are handed on, commands run in batches, and in a batch in groups whose steps to
//! their keys overlap.
//!
//! Must not know: when there is a load, and what clients are told meanwhile.

mod batch;

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use redline_commands::Error;
use redline_engine::{
    Caller, Halt,
    caller::{ClientInfo, Origin, Suspended, Token},
    executor::{
        Replay, Replayed, block,
        units::{self, Compound},
    },
    refusals::Reason,
};
use redline_keyspace::lock::StripeSet;
use redline_persist::{
    Disk, Manifest, RealDisk,
    aof::scan::{self, Course, Item},
    load::{Loaded, Progress},
    manifest,
};
use redline_resp::{Args, Name};
use redline_spec::gate;

use super::{
    append,
    loading::{self, Expired},
};
use crate::{
    log, replication,
    settings::{RefusedEffects, Settings},
    shared::Shared,
    worker::Worker,
};
pub(super) use batch::Batch;
use batch::Call;

const NOT_LOADED: Error = Error::line("ERR Error trying to load the AOF files, check server logs");
/// Bytes of commands that are run at once: other work of the worker waits for them.
const BATCH_BYTES: usize = 64 * 1024;
/// Commands whose steps to their keys overlap.
const GROUP_COMMANDS: usize = 256;
/// Commands that fail at one load and are told of, each for itself.
const FAILURES_LOGGED_MAX: u64 = 20;

/// Text about a command that fails, if that ends the load.
const REFUSED: &str =
    "propagation-error-behavior is panic, and an error was answered to the command";

/// Surroundings of a load.
pub(crate) trait Stage {
    /// Loads and publishes a snapshot; returns its size. The error is a line for the log.
    fn load_snapshot(&mut self, path: &Path, settings: &Settings) -> Result<u64, String>;

    /// Has commands of the file of this name run behind those that it was given before. Returns a batch to be used again. An
    /// error may be about earlier ones.
    fn run(&mut self, batch: Batch, name: &str) -> Result<Batch, String>;

    /// Waits until all commands have run.
    fn settle(&mut self) -> Result<(), String>;

    /// Cuts the end of a file off that is not whole.
    fn cut(&mut self, path: &Path, bytes: u64) -> io::Result<()>;

    /// Counts the commands that have failed.
    fn failed(&self) -> &AtomicU64;

    /// Returns true if the load is to end.
    fn is_stopped(&self) -> bool;
}

/// A worker that holds every stripe and loads in place: DEBUG LOADAOF.
struct InPlace<'w, 'a, 'e, 's> {
    worker: &'w mut Worker<'a, 'e, 's>,
    playback: Playback,
}

impl InPlace<'_, '_, '_, '_> {
    /// Empties all databases and removes the libraries.
    fn empty(&mut self) {
        let worker = &mut *self.worker;
        let mut compound = worker.compound.take().expect("the unit of the load");
        let nothing = worker.shared.keyspace.unpublished();
        // Without libraries nothing can fail.
        let _ = loading::publish(worker, &mut compound.unit, &nothing, &Loaded::default());
        worker.compound = Some(compound);
    }
}

impl Stage for InPlace<'_, '_, '_, '_> {
    fn load_snapshot(&mut self, path: &Path, settings: &Settings) -> Result<u64, String> {
        let worker = &mut *self.worker;
        let (clock, progress) = (worker.local.clock, Progress::default());
        let expired = Expired::Kept;
        let file = loading::load_file(path, worker.shared, settings, clock, &progress, expired)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let mut compound = worker.compound.take().expect("the unit of the load");
        let published = loading::publish(worker, &mut compound.unit, &file.space, &file.loaded);
        worker.compound = Some(compound);
        published.map(|()| file.bytes)
    }

    fn run(&mut self, batch: Batch, name: &str) -> Result<Batch, String> {
        self.playback.run(self.worker, &batch, name)?;
        Ok(batch)
    }

    fn settle(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn cut(&mut self, _: &Path, _: u64) -> io::Result<()> {
        Err(io::Error::other("it is in use and is not cut"))
    }

    fn failed(&self) -> &AtomicU64 {
        &self.worker.shared.persistence.loading.commands_failed
    }

    fn is_stopped(&self) -> bool {
        false
    }
}

/// Replaces all data by that of the append-only files, in one unit (DEBUG LOADAOF).
pub(crate) fn load_in_place(worker: &mut Worker, caller: &mut Caller) -> Result<(), Halt> {
    let shared = worker.shared.this();
    let unit = units::take_set(worker.executor, caller, &StripeSet::all())?;
    // What is in the lanes goes to the file before that is read; what the load does must not.
    if !append::write_out(&shared) {
        block::commit(worker.executor, unit);
        log::warning(
            "DEBUG LOADAOF: the data are not in the file, which is being made or cannot be written",
        );
        return Err(NOT_LOADED.into());
    }
    // A rewrite that ends meanwhile would remove files that the manifest names which is read below.
    let _no_jobs = shared.persistence.append.hold_jobs();
    let was_attached = shared.keyspace.journal().is_attached();
    shared.keyspace.journal().detach();
    worker.compound = Some(Box::new(Compound::new(unit)));
    // As in Redis: clients are told, and not that a script of the file is slow.
    let refusals = &shared.engine.refusals;
    refusals.set(Reason::Loading, true, &shared.engine.settings);
    let settings = worker.outlet.settings.clone();
    let mut stage = InPlace {
        playback: Playback::new(&shared),
        worker,
    };
    let paths = append::paths(&settings);
    let manifest = manifest::load(&RealDisk, &paths).map_err(|error| error.text);
    let result = manifest.and_then(|manifest| {
        stage.empty();
        load(&mut stage, &settings, &manifest.unwrap_or_default())
    });
    replication::restart_history(&shared);
    let compound = worker.compound.take().expect("the unit of the load");
    let mut unit = compound.unit;
    if was_attached {
        append::attach(&shared, &mut unit);
    }
    refusals.set(Reason::Loading, false, &shared.engine.settings);
    block::commit(worker.executor, unit);
    result.map_err(|why| {
        log::warning(&format!("DEBUG LOADAOF: {why}"));
        NOT_LOADED.into()
    })
}

/// Loads the files of a manifest, in order. The error is a line for the log.
pub(crate) fn load(
    stage: &mut dyn Stage,
    settings: &Settings,
    manifest: &Manifest,
) -> Result<(), String> {
    let paths = append::paths(settings);
    let sizes: Result<Vec<u64>, io::Error> = manifest
        .files()
        .map(|entry| RealDisk.len(&paths.file(&entry.name)))
        .collect();
    let sizes = sizes.map_err(|error| error.to_string())?;
    let mut player = Player {
        stage,
        batch: Batch::default(),
    };
    player.stage.failed().store(0, Ordering::Relaxed);
    for (at, entry) in manifest.files().enumerate() {
        let is_last = sizes[at + 1..].iter().all(|bytes| *bytes == 0);
        let path = paths.file(&entry.name);
        let name = entry.name.display().to_string();
        log::notice(&format!("Reading the AOF file {name}"));
        let failed = |error: io::Error| format!("the AOF file {name}: {error}");
        let file = File::open(&path).map_err(failed)?;
        let mut first = [0; 9];
        let read = (&file).read(&mut first).map_err(failed)?;
        if scan::starts_with_snapshot(&first[..read]) {
            // Commands may follow a snapshot in the file of a Redis before version 7.
            let from = player.stage.load_snapshot(&path, settings)?;
            player.play(&path, &name, from, sizes[at], is_last, settings)?;
        } else {
            player.play(&path, &name, 0, sizes[at], is_last, settings)?;
        }
    }
    let failed = player.stage.failed().load(Ordering::Relaxed);
    if failed > 0 {
        log::warning(&format!(
            "{failed} commands of the append-only files have failed: the data may be incomplete"
        ));
    }
    Ok(())
}

/// Plays the commands of files back.
struct Player<'a> {
    stage: &'a mut dyn Stage,
    batch: Batch,
}

impl Player<'_> {
    /// Plays a file back from an offset on; its end may be cut off, as the settings say.
    fn play(
        &mut self,
        path: &Path,
        name: &str,
        from: u64,
        size: u64,
        is_last: bool,
        settings: &Settings,
    ) -> Result<(), String> {
        let failed = |error: io::Error| format!("the AOF file {name}: {error}");
        let mut file = File::open(path).map_err(failed)?;
        file.seek(io::SeekFrom::Start(from)).map_err(failed)?;
        let mut scanner = scan::Scanner::new(file, from, size);
        // A transaction that is not complete is not played back.
        let mut unit = Batch::default();
        let end = loop {
            if self.stage.is_stopped() {
                return Err(String::new());
            }
            match scanner.next().map_err(failed)? {
                Item::Command(command) => {
                    let args = command.args;
                    let is = |word: &[u8]| args[0].eq_ignore_ascii_case(word);
                    if is(b"multi") {
                        continue;
                    }
                    if is(b"exec") {
                        for call in unit.calls() {
                            self.add(unit.args(call), name)?;
                        }
                        unit.clear();
                        continue;
                    }
                    match command.is_in_transaction {
                        true => unit.push(args),
                        false => self.add(args, name)?,
                    }
                }
                Item::Annotation(_) => {}
                Item::End(end) => break end,
            }
        };
        self.run(name)?;
        self.stage.settle()?;
        let tolerance = scan::Tolerance {
            takes_truncated: settings.loads_truncated,
            corrupt_tail_bytes_max: settings.corrupt_tail_bytes_max,
        };
        match scan::course(&end, name, is_last, tolerance) {
            Course::Load => Ok(()),
            Course::Cut { at, lines } => {
                lines.iter().for_each(|line| log::warning(line));
                self.stage.cut(path, at).map_err(failed)
            }
            Course::Refuse(mut lines) => {
                let last = lines.pop().unwrap_or_default();
                lines.iter().for_each(|line| log::warning(line));
                Err(last)
            }
        }
    }

    fn add(&mut self, args: Args<'_>, name: &str) -> Result<(), String> {
        self.batch.push(args);
        match self.batch.file_bytes() >= BATCH_BYTES {
            true => self.run(name),
            false => Ok(()),
        }
    }

    fn run(&mut self, name: &str) -> Result<(), String> {
        if self.batch.calls().is_empty() {
            return Ok(());
        }
        self.batch = self.stage.run(std::mem::take(&mut self.batch), name)?;
        self.batch.clear();
        Ok(())
    }
}

/// The caller and the replay with which a worker runs commands of files.
pub(super) struct Playback {
    caller: Caller,
    replay: Replay,
}

impl Playback {
    pub(super) fn new(shared: &Shared) -> Playback {
        Playback {
            caller: silent_caller(shared),
            replay: Replay::default(),
        }
    }

    /// Runs commands of a file, as of a time at which nothing has expired: a DEL in the file says so.
    pub(super) fn run(
        &mut self,
        worker: &mut Worker,
        batch: &Batch,
        name: &str,
    ) -> Result<(), String> {
        worker.refresh_if_changed();
        worker.read_clock();
        worker.local.played_back_at_ms = Some(worker.now_ms);
        let mut groups = batch.calls().chunks(GROUP_COMMANDS);
        let result = groups.try_for_each(|calls| self.run_group(worker, batch, calls, name));
        worker.local.played_back_at_ms = None;
        worker.read_clock();
        worker.sweep();
        result
    }

    fn run_group(
        &mut self,
        worker: &mut Worker,
        batch: &Batch,
        calls: &[Call],
        name: &str,
    ) -> Result<(), String> {
        // Who holds every stripe has no use for the straight path, which takes one.
        self.replay.clear();
        if worker.compound.is_none() {
            let all = calls
                .iter()
                .map(|call| (Name::Unnumbered, batch.args(call)));
            let db = self.caller.db;
            worker.executor.begin_replay(&mut self.replay, db, all);
        }
        let result = calls.iter().try_for_each(|call| {
            let args = batch.args(call);
            self.run_one(worker, args, call.file_bytes, name)
                .map_err(|why| {
                    let command = args[0].escape_ascii();
                    format!("{why} '{command}' reading the append only file {name}")
                })
        });
        worker.executor.end_replay(&mut self.replay);
        result
    }

    /// Runs a command, the next of the replay if that has any. The error is what is wrong with it.
    fn run_one(
        &mut self,
        worker: &mut Worker,
        args: Args<'_>,
        bytes: usize,
        name: &str,
    ) -> Result<(), &'static str> {
        // A call that takes long has the clock read.
        worker.now_ms = 0;
        let (caller, replay) = (&mut self.caller, &mut self.replay);
        let executor = &mut *worker.executor;
        let planned = replay.take();
        let replayed = planned.map(|it| executor.replay(caller, replay, it, args, bytes));
        let result = match replayed {
            Some(Replayed::Done) => Ok(()),
            Some(Replayed::Failed) => {
                let line = caller.out.bytes().trim_ascii_end();
                let error = line.strip_prefix(b"-").unwrap_or(line);
                note_failure(worker.shared, error, &args[0], name)
            }
            Some(Replayed::NotPlain) | None => {
                let result = call_until_it_runs(worker, caller, replay, args, name);
                // Stripes that were reserved for it would stay so: nobody could ever take all of them.
                caller.rounds = 0;
                units::give_way(worker.executor, caller);
                result
            }
        };
        caller.out.clear();
        result
    }
}

fn call_until_it_runs(
    worker: &mut Worker,
    caller: &mut Caller,
    replay: &mut Replay,
    args: Args<'_>,
    name: &str,
) -> Result<(), &'static str> {
    let id = worker.shared.engine.names.resolve(&args[0], args.get(1));
    let id = id.map_err(|_| "Unknown command")?;
    if !gate(id).arity_allows(args.len()) {
        return Err("Wrong number of arguments of the command");
    }
    loop {
        match worker.executor.call(caller, id, args) {
            // Nobody else runs commands on data, so a stripe in use is free soon.
            Err(Halt::Suspended(
                Suspended::Stripe(_) | Suspended::Ticket | Suspended::Script | Suspended::Transit,
            )) => {
                // What was seen on the way to the keys may be used for something else from then on.
                replay.forget_steps();
                worker.local.heap.tick();
            }
            // Nobody would ever serve it, and none that waits is written.
            Err(Halt::Suspended(_)) => {
                block::drop_wait(worker.executor, caller);
                return Err("Nothing to wait for in the command");
            }
            Err(Halt::Error(error)) => {
                return note_failure(worker.shared, &error.text(), &args[0], name);
            }
            Ok(()) => return Ok(()),
        }
    }
}

/// Tells the log of a command that answered an error, as Redis does: the data may be incomplete. The error says
/// that this ends the load.
fn note_failure(
    shared: &Shared,
    error: &[u8],
    command: &[u8],
    name: &str,
) -> Result<(), &'static str> {
    shared.refused_effects.fetch_add(1, Ordering::Relaxed);
    let failed = &shared.persistence.loading.commands_failed;
    if failed.fetch_add(1, Ordering::Relaxed) < FAILURES_LOGGED_MAX {
        let (error, command) = (error.escape_ascii(), command.escape_ascii());
        log::warning(&format!(
            "== CRITICAL == This server is sending an error to its AOF-loading-client: '{error}' after processing the command '{command}' of {name}"
        ));
    }
    match shared.settings.current().refused_effects {
        RefusedEffects::End => Err(REFUSED),
        RefusedEffects::Ignore | RefusedEffects::EndReplicas => Ok(()),
    }
}

/// Makes a caller for commands of files, which may do everything and to whom nobody listens.
pub(crate) fn silent_caller(shared: &Shared) -> Caller {
    let settings = shared.settings.current();
    let user = settings.engine.acl.default_user().clone();
    let origin = Origin {
        id: u64::MAX,
        addr: String::new(),
        laddr: String::new(),
        is_local: true,
        is_unix: false,
        fd: -1,
        created_ms: 0,
    };
    let token = Token::new(0, 0, 0);
    let info = Arc::new(ClientInfo::new(origin, token, &user));
    Caller::new(info, user)
}
