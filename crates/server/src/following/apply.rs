//! The stream of the primary, applied by worker 0 in slices between its clients.
//!
//! A unit runs through the executor as a client's would, but without checks and as of a time at which nothing has expired:
//! the primary says what has. A stripe that is in use ends the slice; the unit waits, and goes on when the stripe is free.
//! The bytes of applied units are the stream of this server, too. A command that fails is told to the log with its place in the
//! stream; `propagation-error-behavior` says if the process ends.
//!
//! Units are decoded in groups, so that the steps to their keys overlap as those of a client's requests do.
//!
//! Must not know: the connection, what a command does.

use std::{mem, sync::Arc, sync::atomic::Ordering};

use redline_acl::{Dialect, User, Users};
use redline_engine::{
    Caller, Halt,
    caller::{ClientInfo, Origin, Token, state},
    executor::{Planned, Replay, Replayed, block, units},
};
use redline_keyspace::Keyspace;
use redline_net::clock;
use redline_persist::load::Loaded;
use redline_replica::link::units::{Unit, Units};
use redline_resp::{Args, ArgsBuf, ReplyDecoder, Value};
use redline_spec::{self as spec, CommandId, Flags};
use redline_types::number;

use super::{
    Following, Order,
    snapshot::{Attempt, ReceivedBase},
    switch, wake,
};
use crate::{
    failover, log,
    persistence::{append, loading},
    replication,
    settings::RefusedEffects,
    shared::Shared,
    worker::Worker,
};

/// Bytes of units that are applied before other work of the worker.
const SLICE_BYTES: usize = 64 * 1024;
/// Commands and bytes of units that are decoded together: as many as a large group of clients' requests.
const GROUP_COMMANDS: usize = 256;
const GROUP_BYTES: usize = 16 * 1024;
/// Bytes that may wait to be applied before no more are read.
pub(super) const WAITING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Pause between two lines about files that cannot be written, in milliseconds; as in Redis.
const DISK_ERROR_PAUSE_MS: u64 = 10_000;
/// Capacity above which a buffer is not kept.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// State of applying.
#[derive(Default)]
pub(super) struct Applier {
    /// Number of changes of the role or the primary.
    pub(super) term: u64,
    /// Data to be published.
    pub(super) install: Option<Install>,
    /// All data is to be dropped, since a snapshot has begun to come.
    pub(super) is_to_empty: bool,
    caller: Option<Box<Caller>>,
    units: Units,
    /// The commands of the units that are decoded and not applied.
    replay: Replay,
    /// The unit that waits for a stripe.
    stalled: Option<Stalled>,
    /// True if a unit was dropped while it waited: the caller may stand in lines.
    gives_way: bool,
    /// Time of the last line about files that cannot be written.
    disk_error_told_ms: Option<u64>,
}

/// Bytes of the stream on their way to worker 0.
#[derive(Default)]
pub(super) struct Incoming {
    term: u64,
    bytes: Vec<u8>,
    /// The thread has stopped reading, and wants to hear when they are taken.
    is_full: bool,
}

/// A snapshot that was received and loaded.
pub(super) struct Install {
    /// Its keys.
    pub(super) space: Keyspace,
    /// Its other contents.
    pub(super) loaded: Loaded,
    /// Its file, if that can be the base of the append-only file.
    pub(super) base: Option<ReceivedBase>,
    /// The attempt that it came of.
    pub(super) attempt: Arc<Attempt>,
}

/// A unit whose call was suspended; that of a transaction is with the caller.
struct Stalled {
    call: ArgsBuf,
    bytes: usize,
}

/// How a slice ended.
enum Slice {
    /// Everything that has come is applied.
    Done,
    /// There is more to do.
    More,
    /// A stripe is in use; a message comes when it is free.
    Stuck,
}

impl Incoming {
    /// Begins to take the bytes of a term.
    pub(super) fn new(term: u64) -> Incoming {
        Incoming {
            term,
            ..Incoming::default()
        }
    }
}

impl Following {
    /// Takes bytes of the stream. Returns false if no more are to be read for now.
    pub(super) fn take(&self, shared: &Shared, term: u64, bytes: &[u8]) -> bool {
        let mut incoming = self.incoming();
        if incoming.term != term {
            return true;
        }
        incoming.bytes.extend_from_slice(bytes);
        incoming.is_full = incoming.bytes.len() >= WAITING_BYTES_MAX;
        let goes_on = !incoming.is_full;
        drop(incoming);
        wake(shared);
        goes_on
    }

    /// Drops what has come and is not applied, after the link was lost. Returns the number of bytes that were applied.
    pub(super) fn drop_unapplied(&self, shared: &Shared, term: u64) {
        let mut applier = self.applier();
        if applier.term == term {
            applier.forget();
            *self.incoming() = Incoming::new(term);
        }
        drop(applier);
        wake(shared);
    }
}

impl Applier {
    /// Drops what has come and is not applied.
    pub(super) fn forget(&mut self) {
        self.forget_units();
        self.install = None;
        self.is_to_empty = false;
        self.gives_way = true;
        self.stalled = None;
    }

    fn forget_units(&mut self) {
        self.units = Units::default();
        self.replay.clear();
    }

    fn run(&mut self, worker: &mut Worker, caller: &mut Caller) -> Slice {
        let shared = worker.shared;
        if mem::take(&mut self.gives_way) {
            units::give_way(worker.executor, caller);
            caller.set_state(state::MULTI, false);
            caller.multi = Default::default();
        }
        if self.is_to_empty && !self.empty(worker, caller)
            || self.install.is_some() && !self.publish(worker, caller)
        {
            return Slice::Stuck;
        }
        let mut wants_ack = false;
        let before = replication::identity(shared).offset();
        let slice = self.apply(worker, caller, &mut wants_ack);
        let etcd = shared.etcd();
        wants_ack |= etcd.is_some_and(|etcd| etcd.deciding.primary_waits())
            && replication::identity(shared).offset() != before;
        shared.following.db.store(caller.db, Ordering::Release);
        worker.read_clock();
        worker.sweep();
        if wants_ack {
            shared
                .following
                .send(Order::Acknowledge { term: self.term });
        }
        slice
    }

    /// Applies units until there are no more, or the slice is over.
    fn apply(&mut self, worker: &mut Worker, caller: &mut Caller, wants_ack: &mut bool) -> Slice {
        let shared = worker.shared;
        // While the clock is that of the stream, settings are not taken over.
        worker.refresh_if_changed();
        if let Some(stalled) = self.stalled.take() {
            let begin = replication::identity(shared).offset();
            if !call(worker, caller, stalled.call.as_args(), begin) {
                self.stalled = Some(stalled);
                return Slice::Stuck;
            }
            self.note_applied(shared, stalled.bytes);
        }
        self.fetch(shared);
        let begin = replication::identity(shared).offset();
        let mut applied = 0;
        let refusals = &shared.engine.refusals;
        let is_disk_failing = refusals.of_files(refusals.now()).is_some();
        let ended = loop {
            if !self.units.has_decoded() {
                if applied >= SLICE_BYTES {
                    break Ok(Slice::More);
                }
                self.look_ahead(worker, caller.db);
            }
            match self.units.next_unit() {
                Ok(None) => break Ok(Slice::Done),
                Ok(Some(unit)) => {
                    let bytes = unit.bytes.len();
                    let offset = begin + applied as u64;
                    if is_disk_failing && unit.commands().any(|args| !is_word(args)) {
                        note_disk_error(shared, &mut self.disk_error_told_ms);
                    }
                    match apply_unit(worker, caller, &unit, offset, &mut self.replay) {
                        Applied::Yes => applied += bytes,
                        Applied::WantsAck => {
                            applied += bytes;
                            *wants_ack = true;
                        }
                        Applied::Stalled(call) => {
                            self.stalled = Some(Stalled { call, bytes });
                            worker.executor.end_replay(&mut self.replay);
                            self.replay.forget_steps();
                            // Its bytes have been read, but are not applied.
                            self.note_applied_before(shared, applied, bytes);
                            return Slice::Stuck;
                        }
                    }
                }
                Err(broken) => break Err(broken),
            }
        };
        worker.executor.end_replay(&mut self.replay);
        // Those before a damaged part are not asked for again.
        self.note_applied(shared, applied);
        ended.unwrap_or_else(|broken| {
            self.forget_units();
            let offset = begin + applied as u64;
            let why = format!("Link with MASTER given up at offset {offset}: {broken}");
            let term = self.term;
            shared.following.send(Order::Broken { term, why });
            Slice::Done
        })
    }

    /// Decodes the next group, and begins the steps to its keys.
    fn look_ahead(&mut self, worker: &mut Worker, db: u32) {
        worker.executor.end_replay(&mut self.replay);
        if let Some(commands) = self.units.look_ahead(GROUP_COMMANDS, GROUP_BYTES) {
            worker.executor.begin_replay(&mut self.replay, db, commands);
        }
    }

    fn note_applied(&self, shared: &Shared, bytes: usize) {
        self.note_applied_before(shared, bytes, 0);
    }

    /// Adds the bytes of units to the stream, behind which so many were read.
    fn note_applied_before(&self, shared: &Shared, bytes: usize, behind: usize) {
        if bytes > 0 {
            let read = self.units.read_bytes(bytes + behind);
            replication::append_applied(shared, &read[..bytes]);
        }
    }

    /// Takes the bytes that have come.
    fn fetch(&mut self, shared: &Shared) {
        let mut incoming = shared.following.incoming();
        if incoming.bytes.is_empty() {
            return;
        }
        let mut bytes = mem::take(&mut incoming.bytes);
        let was_full = mem::take(&mut incoming.is_full);
        drop(incoming);
        self.units.push(&bytes);
        if bytes.capacity() <= KEPT_BYTES_MAX {
            bytes.clear();
            let mut incoming = shared.following.incoming();
            if incoming.bytes.capacity() == 0 {
                incoming.bytes = bytes;
            }
        }
        if was_full {
            shared.following.send(Order::Drained);
        }
    }

    /// Replaces all data by that of a snapshot. Returns false if something else runs: it is tried again.
    fn publish(&mut self, worker: &mut Worker, caller: &mut Caller) -> bool {
        let shared = worker.shared;
        let Ok(mut unit) = units::take_everything(worker.executor, caller) else {
            return false;
        };
        let install = self.install.take().expect("seen by the caller");
        if !shared.keyspace.may_publish(&install.space) {
            self.install = Some(install);
            block::commit(worker.executor, unit);
            units::give_way(worker.executor, caller);
            return false;
        }
        let published = loading::publish(worker, &mut unit, &install.space, &install.loaded);
        if published.is_ok() {
            // Before the history: what the file has on disk is of the one before.
            append::leave(shared);
            let history = install.attempt.history;
            let (replid, offset) = history.unwrap_or_else(|| (replication::fresh_id(), 0));
            replication::take_history(shared, replid, offset);
            let resumes = &shared.following.resumes;
            resumes.store(history.is_some(), Ordering::Release);
            self.forget_units();
            caller.db = stream_db(&install.loaded, shared.keyspace.databases());
            if let Some(base) = install.base {
                append::make_of(&shared.this(), &mut unit, || base.keep());
            }
        }
        block::commit(worker.executor, unit);
        units::give_way(worker.executor, caller);
        if published.is_ok() {
            append::make_anew(shared);
            // The file hears of the cut of its base.
            worker.pump_now();
        }
        let result = published.map(|()| replication::identity(shared).offset());
        let attempt = install.attempt;
        shared.following.send(Order::Loaded { attempt, result });
        true
    }

    /// Drops all data. Returns false if something else runs: it is tried again.
    fn empty(&mut self, worker: &mut Worker, caller: &mut Caller) -> bool {
        let shared = worker.shared;
        let Ok(mut unit) = units::take_everything(worker.executor, caller) else {
            return false;
        };
        self.is_to_empty = false;
        let nothing = shared.keyspace.unpublished();
        let emptied = loading::publish(worker, &mut unit, &nothing, &Loaded::default());
        emptied.expect("no library is loaded");
        // The file keeps the data until those of the primary are there.
        append::leave(shared);
        // Nothing of the history is left, and nobody may go on in it.
        replication::restart_history(shared);
        shared.following.resumes.store(false, Ordering::Release);
        block::commit(worker.executor, unit);
        units::give_way(worker.executor, caller);
        true
    }
}

/// Applies what has come, for a slice. Called by worker 0, which holds nothing.
pub(crate) fn drive(worker: &mut Worker) {
    let shared = worker.shared;
    let following = &shared.following;
    following.has_work.store(false, Ordering::Release);
    let mut applier = following.applier();
    let caller = applier.caller.take();
    let mut caller = caller.unwrap_or_else(|| {
        let mut caller = Box::new(link_caller());
        caller.db = following.db();
        caller
    });
    if following.wanted().is_some() {
        let unit = units::take_everything(worker.executor, &mut caller);
        applier.caller = Some(caller);
        drop(applier);
        let Ok(mut unit) = unit else {
            following.has_work.store(true, Ordering::Release);
            return;
        };
        let wanted = following.wanted().take();
        if let Some(primary) = wanted.filter(|_| failover::may_switch(shared)) {
            switch(shared, &mut unit, primary);
        }
        block::commit(worker.executor, unit);
        failover::switched(shared);
        return;
    }
    // Own replicas are to come to the end of the stream.
    if shared.ending.is_on() {
        applier.caller = Some(caller);
        drop(applier);
        following.has_work.store(true, Ordering::Release);
        return;
    }
    // Deliveries of streams get the time at which they are repeated here.
    worker.local.played_back_at_ms = Some(worker.now_ms);
    let slice = applier.run(worker, &mut caller);
    worker.local.played_back_at_ms = None;
    applier.caller = Some(caller);
    drop(applier);
    match slice {
        Slice::Done => {}
        Slice::More => wake(shared),
        Slice::Stuck => following.has_work.store(true, Ordering::Release),
    }
}

/// Returns the database that is selected where the stream behind a snapshot begins.
pub(super) fn stream_db(loaded: &Loaded, databases: u32) -> u32 {
    let mut facts = loaded.facts.iter();
    let told = facts.find(|(name, _)| name == b"repl-stream-db");
    let number = told.and_then(|(_, value)| number::parse_i64(value));
    let db = number.and_then(|db| u32::try_from(db).ok());
    db.filter(|db| *db < databases).unwrap_or(0)
}

/// Result of applying a unit.
enum Applied {
    Yes,
    /// It is applied, or asks for nothing else, and the primary wants to hear so.
    WantsAck,
    /// This call of it has to wait; nothing of the unit was applied.
    Stalled(ArgsBuf),
}

/// Applies a unit that begins behind `offset`.
fn apply_unit(
    worker: &mut Worker,
    caller: &mut Caller,
    unit: &Unit<'_>,
    offset: u64,
    replay: &mut Replay,
) -> Applied {
    let commands = unit.commands();
    if !unit.is_transaction {
        let Some(args) = commands.clone().next() else {
            return Applied::Yes;
        };
        let planned = replay.take();
        if planned.is_some_and(|it| run_plain(worker, caller, unit, offset, replay, it)) {
            return Applied::Yes;
        }
        if is_word(args) {
            let asks = args
                .get(1)
                .is_some_and(|word| word.eq_ignore_ascii_case(b"getack"));
            return if asks {
                Applied::WantsAck
            } else {
                Applied::Yes
            };
        }
        let Some(id) = resolve(worker, args, offset) else {
            return Applied::Yes;
        };
        // Inside EXEC nothing waits for keys.
        if !spec::gate(id).flags.has(Flags::BLOCKING) {
            return match call(worker, caller, args, offset) {
                true => Applied::Yes,
                false => Applied::Stalled(args.into()),
            };
        }
    }
    for args in commands {
        if unit.is_transaction {
            replay.take();
        }
        if let Some(id) = resolve(worker, args, offset) {
            caller.multi.queue.push((id, args.into()));
        }
    }
    caller.set_state(state::MULTI, true);
    caller.rules = worker.rules;
    let exec: ArgsBuf = [b"EXEC".as_slice()].into_iter().collect();
    match call(worker, caller, exec.as_args(), offset) {
        true => Applied::Yes,
        false => Applied::Stalled(exec),
    }
}

/// Returns true if a command is the primary's own word, which changes nothing.
fn is_word(args: Args<'_>) -> bool {
    args[0].eq_ignore_ascii_case(b"ping") || args[0].eq_ignore_ascii_case(b"replconf")
}

/// Tells the log now and then that the files lack what is applied. Ends the process unless that is wanted.
fn note_disk_error(shared: &Shared, told_ms: &mut Option<u64>) {
    if !shared.settings.current().replica_ignores_disk_errors {
        log::warning(
            "Replica was unable to write command to disk. The process ends, since replica-ignore-disk-write-errors is no.",
        );
        std::process::exit(1);
    }
    let now_ms = clock::monotonic_ms();
    if told_ms.is_none_or(|told_ms| now_ms - told_ms > DISK_ERROR_PAUSE_MS) {
        *told_ms = Some(now_ms);
        log::warning("Replica is applying a command even though it is unable to write to disk.");
    }
}

/// Runs the command of a unit behind `offset` that is plain and alone. Returns false if it is not plain, or has to wait:
/// nothing has happened then.
#[inline]
fn run_plain(
    worker: &mut Worker,
    caller: &mut Caller,
    unit: &Unit<'_>,
    offset: u64,
    replay: &mut Replay,
    planned: Planned,
) -> bool {
    let Some(args) = unit.commands().next() else {
        return false;
    };
    worker.now_ms = 0;
    let executor = &mut *worker.executor;
    let replayed = executor.replay(caller, replay, planned, args, unit.bytes.len());
    if replayed == Replayed::Failed {
        let line = caller.out.bytes().trim_ascii_end();
        let error = line.strip_prefix(b"-").unwrap_or(line);
        note_refused(worker.shared, error, &args[0], offset);
    }
    caller.out.clear();
    replayed != Replayed::NotPlain
}

/// Makes a call of the unit behind `offset`. Returns false if it has to wait, and nothing has happened yet.
fn call(worker: &mut Worker, caller: &mut Caller, args: Args<'_>, offset: u64) -> bool {
    let Some(id) = resolve(worker, args, offset) else {
        return true;
    };
    let queue = caller.multi.queue.iter();
    let queued: Vec<CommandId> = queue.map(|(id, _)| *id).collect();
    let errors = worker.stats.errors.get();
    // A call that takes long has the clock read.
    worker.now_ms = 0;
    match worker.executor.call(caller, id, args) {
        Ok(()) if id == CommandId::Exec && worker.stats.errors.get() != errors => {
            for (id, error) in errors_of(caller, &queued) {
                let command = spec::row(id).full_name;
                note_refused(worker.shared, &error, command.as_bytes(), offset);
            }
        }
        Ok(()) => {}
        Err(Halt::Suspended(_)) => return false,
        Err(Halt::Error(error)) => {
            let text = error.text();
            // A script holds its keys, and is over its threshold.
            if text.starts_with(b"BUSY") {
                return false;
            }
            note_refused(worker.shared, &text, &args[0], offset);
        }
    }
    caller.rounds = 0;
    units::give_way(worker.executor, caller);
    caller.out.clear();
    true
}

/// Returns the errors that a transaction has answered, each with its command.
fn errors_of(caller: &Caller, queued: &[CommandId]) -> Vec<(CommandId, Vec<u8>)> {
    let reply = caller.out.chunks().collect::<Vec<_>>().concat();
    let decoded = ReplyDecoder::new().decode(&reply);
    let Ok(Some(Value::Array(replies))) = decoded.map(|decoded| decoded.value) else {
        return Vec::new();
    };
    let errors = queued.iter().zip(replies).filter_map(|(id, reply)| {
        let is_error = reply.is_error();
        is_error.then(|| (*id, reply.as_bytes().unwrap_or_default().to_vec()))
    });
    errors.collect()
}

/// Tells the log of a command in the unit behind `offset` that has answered an error: the data may be other than the
/// primary's. Ends the process if that is wanted.
fn note_refused(shared: &Shared, error: &[u8], command: &[u8], offset: u64) {
    shared.refused_effects.fetch_add(1, Ordering::Relaxed);
    let (error, command) = (error.escape_ascii(), command.escape_ascii());
    log::warning(&format!(
        "== CRITICAL == This replica is sending an error to its master: '{error}' after processing the command '{command}' in the unit behind offset {offset}"
    ));
    let settings = shared.settings.current();
    let ends = match settings.refused_effects {
        RefusedEffects::Ignore => false,
        RefusedEffects::End | RefusedEffects::EndReplicas => settings.replica_read_only,
    };
    if ends {
        log::warning(
            "The process ends, since propagation-error-behavior says so: the data may be other than the primary's.",
        );
        std::process::exit(1);
    }
}

/// Returns the command, if it is one of those that change data; others are left out.
fn resolve(worker: &Worker, args: Args<'_>, offset: u64) -> Option<CommandId> {
    let names = &worker.shared.engine.names;
    let Ok(id) = names.resolve(&args[0], args.get(1)) else {
        note_refused(worker.shared, b"ERR unknown command", &args[0], offset);
        return None;
    };
    let changes = Flags::WRITE.with(Flags::MAY_REPLICATE);
    let is_for_replicas =
        matches!(id, CommandId::Select | CommandId::Exec) || spec::gate(id).flags.has_any(changes);
    if !is_for_replicas {
        log::warning(&format!(
            "The primary has sent a command that is left out, since it changes no data: '{}'",
            args[0].escape_ascii()
        ));
    }
    is_for_replicas.then_some(id)
}

/// Makes the user who may do everything.
pub(super) fn link_user() -> Arc<User> {
    let users = Users::new(&Dialect {
        open_channels: true,
        split: redline_resp::split_words,
    });
    users.default_user().clone()
}

/// Makes the caller of the primary's commands: it may do everything, and nobody listens to it.
pub(crate) fn link_caller() -> Caller {
    let user = link_user();
    let origin = Origin {
        id: u64::MAX - 1,
        addr: String::new(),
        laddr: String::new(),
        is_local: true,
        is_unix: false,
        fd: -1,
        created_ms: 0,
    };
    let info = ClientInfo::new(origin, Token::LINK, &user);
    Caller::new(Arc::new(info), user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_that_a_snapshot_tells_is_one_that_there_is() {
        let told = |text: &str| {
            let facts = vec![
                (b"repl-offset".to_vec(), b"7".to_vec()),
                (b"repl-stream-db".to_vec(), text.as_bytes().to_vec()),
            ];
            let loaded = Loaded {
                facts,
                ..Loaded::default()
            };
            stream_db(&loaded, 16)
        };
        let databases = ["3", "15", "16", "-1", "x", "", "99999999999"].map(told);
        assert_eq!(databases, [3, 15, 0, 0, 0, 0, 0]);
        assert_eq!(stream_db(&Loaded::default(), 16), 0);
    }
}
