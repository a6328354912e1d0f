//! MIGRATE: keys go to another server.
//!
//! A key is serialised under its stripe, and a watch flag is put on it; then nothing is held until the target has answered.
//! If the flag is not raised by then, the target has what is here, and the key is deleted. If it is, the key is sent again
//! over what the target has (as DEL, if it is gone), up to three times in all; so no change is lost, and none is there twice.
//! Inside EXEC and scripts the stripes are held and the worker waits, as Redis does.
//!
//! Must not know: connections.

use std::{collections::HashSet, sync::Arc, time::Duration};

use redline_commands::{Error, Words, object_of};
use redline_engine::{
    Caller, Halt,
    caller::{EndedWatch, Suspended},
    executor::{block, units, watch},
    tracking::By,
};
use redline_keyspace::{Classes, Keyspace, Trace, Unit, WatchFlag, lock::StripeSet};
use redline_rdb::ObjectRef;
use redline_resp::{Args, ArgsBuf};
use redline_spec::CommandId;
use redline_types::number;

use crate::{
    migrate::{Answer, Failure, Job, Move, Stage, Target, push_command},
    settings::TlsSettings,
    worker::Worker,
};

/// Times that a key is sent which changes meanwhile.
const ROUNDS_MAX: u32 = 3;
/// Timeout in place of one that is not positive: milliseconds.
const TIMEOUT_MS: u64 = 1000;
const KEY_AND_KEYS: Error = Error::line(
    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
);
const NO_CONNECTION: Error = Error::line("IOERR error or timeout connecting to the client");
const NOT_WRITTEN: Error = Error::line("IOERR error or timeout writing to target instance");
const NOT_READ: Error = Error::line("IOERR error or timeout reading to target instance");

/// A call, as far as it does not depend on the data.
struct Call<'a> {
    target: Target,
    db: i64,
    timeout: Duration,
    copies: bool,
    replaces: bool,
    /// Each once.
    keys: Vec<&'a [u8]>,
}

/// The work that is left when the stripes are given back.
enum Next {
    /// Send this, and come back.
    Send(Box<(Move, Job)>),
    /// Reply that no key was there.
    NoKey,
    /// Reply that all is done.
    Done,
}

/// Keys as commands for a target.
struct Parcel {
    keys: Vec<Box<[u8]>>,
    frames: Vec<u8>,
}

impl<'a> Call<'a> {
    fn parse(args: &'a Args<'a>, tls: &TlsSettings) -> Result<Call<'a>, Error> {
        let (mut copies, mut replaces, mut auth) = (false, false, Vec::new());
        let mut keys = vec![&args[3]];
        let mut words = Words::new(CommandId::Migrate, args, 6);
        while !words.is_empty() {
            if words.flag("COPY") {
                copies = true;
            } else if words.flag("REPLACE") {
                replaces = true;
            } else if let Some(password) = words.value("AUTH") {
                auth = vec![password.into()];
            } else if let Some(user) = words.values::<2>("AUTH2") {
                auth = user.map(Box::from).to_vec();
            } else if words.flag("KEYS") {
                if !args[3].is_empty() {
                    return Err(KEY_AND_KEYS);
                }
                let mut seen = HashSet::new();
                keys = words
                    .rest()
                    .iter()
                    .filter(|key| seen.insert(*key))
                    .collect();
                break;
            } else {
                return Err(Error::Syntax);
            }
        }
        let timeout_ms = number::parse_i64(&args[5]).ok_or(Error::NotInteger)?;
        let db = number::parse_i64(&args[4]).ok_or(Error::NotInteger)?;
        let timeout_ms = u64::try_from(timeout_ms).unwrap_or(0);
        let text = |index: usize| String::from_utf8_lossy(&args[index]).into_owned();
        Ok(Call {
            target: Target {
                host: text(1),
                port: text(2),
                auth,
                // As in Redis: the target is taken for a node of the same cluster.
                tls: tls.cluster.then(|| tls.client_options()),
            },
            db,
            timeout: Duration::from_millis(match timeout_ms {
                0 => TIMEOUT_MS,
                some => some,
            }),
            copies,
            replaces,
            keys,
        })
    }

    fn job(&self, parcel: &mut Parcel) -> Job {
        Job {
            target: self.target.clone(),
            db: self.db,
            timeout: self.timeout,
            frames: std::mem::take(&mut parcel.frames),
            count: parcel.keys.len(),
        }
    }
}

/// MIGRATE host port key|"" db timeout [COPY] [REPLACE] [AUTH password | AUTH2 user password] [KEYS key …]
pub(crate) fn migrate(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let settings = worker.outlet.settings.clone();
    let call = Call::parse(&args, &settings.tls)?;
    let next = match worker.compound.is_some() {
        true => run_inside(worker, caller, &call)?,
        false => run_alone(worker, caller, &call, args)?,
    };
    match next {
        Next::Done => caller.reply().ok(),
        Next::NoKey => caller.reply().simple("NOKEY"),
        Next::Send(sent) => {
            let (moving, job) = *sent;
            let shared = worker.shared.this();
            shared.migrations.send(&shared, caller.info.id, moving, job);
            return Err(Halt::Suspended(Suspended::Target));
        }
    }
    Ok(())
}

/// Forgets the keys that a client has sent, which stay: it has gone, or its call was refused while they were on their way.
pub(crate) fn forget(worker: &mut Worker, client: u64) {
    if let Some(moving) = worker.shared.migrations.take(client) {
        watch::end(worker.executor, moving.sent.into_iter());
    }
}

/// Runs a part of a call that stands alone: it sends its keys, or takes up what the target has answered.
fn run_alone(
    worker: &mut Worker,
    caller: &mut Caller,
    call: &Call<'_>,
    args: Args<'_>,
) -> Result<Next, Halt> {
    let client = caller.info.id;
    match worker.shared.migrations.stage(client, args) {
        Stage::Sent => return Err(Halt::Suspended(Suspended::Target)),
        Stage::Stale => forget(worker, client),
        Stage::None | Stage::Answered => {}
    }
    let mut set = stripes(worker, call);
    if let Some(reserved) = &caller.ticket {
        // Found by an earlier round.
        set.extend(reserved);
    }
    // The role may have changed since the call was let in, while the keys were on their way above all: a replica deletes none.
    let mut unit = match units::take_set_for_call(worker.executor, caller, args, &set) {
        Err(Halt::Error(error)) => {
            forget(worker, client);
            return Err(Halt::Error(error));
        }
        other => other?,
    };
    let next = match worker.shared.migrations.take(client) {
        Some(moving) => take_up(worker, caller, call, &mut unit, moving),
        None => {
            let parcel = serialise(worker, caller.db, call, &mut unit, &call.keys, 0);
            Ok(match parcel.keys.is_empty() {
                true => Next::NoKey,
                false => {
                    let args = ArgsBuf::from(args);
                    send(worker, caller.db, call, &mut unit, parcel, |sent| Move {
                        args,
                        sent,
                        rounds: 1,
                        error: None,
                        answer: None,
                    })
                }
            })
        }
    };
    worker.publish_events(By::Client(&caller.info));
    if let Some(number) = block::commit(worker.executor, unit) {
        caller.own_record = number;
    }
    Ok(next?)
}

/// Runs a call inside EXEC or a script, whose unit holds the keys until the target has answered.
fn run_inside(worker: &mut Worker, caller: &mut Caller, call: &Call<'_>) -> Result<Next, Error> {
    let set = stripes(worker, call);
    let mut compound = worker.compound.take().expect("checked by the caller");
    let unit = &mut compound.unit;
    unit.add_set(&set);
    let mut parcel = serialise(worker, caller.db, call, unit, &call.keys, 0);
    let next = if parcel.keys.is_empty() {
        Ok(Next::NoKey)
    } else {
        let job = call.job(&mut parcel);
        let shared = worker.shared.this();
        let answer = shared.migrations.send_and_wait(&shared, &job);
        if !call.copies {
            let taken = taken(&answer, &parcel.keys);
            compound.changes += delete(worker, caller.db, unit, taken);
        }
        outcome(answer, None)
    };
    let in_script = compound.in_script;
    worker.compound = Some(compound);
    worker.publish_events(match in_script {
        true => By::Script(&caller.info),
        false => By::Client(&caller.info),
    });
    next
}

fn stripes(worker: &Worker, call: &Call<'_>) -> StripeSet {
    let mut set = StripeSet::EMPTY;
    for key in &call.keys {
        set.insert(worker.shared.keyspace.place(key).stripe());
    }
    set
}

/// Returns the keys that are there, as commands for the target; in later rounds also those that are gone.
fn serialise(
    worker: &mut Worker,
    db: u32,
    call: &Call<'_>,
    unit: &mut Unit<'_>,
    keys: &[impl AsRef<[u8]>],
    rounds: u32,
) -> Parcel {
    let mut parcel = Parcel {
        keys: Vec::new(),
        frames: Vec::new(),
    };
    let now_ms = worker.now_ms;
    let compresses = worker.local.limits.payload_compressed;
    let restore = restore_word(&worker.shared.keyspace);
    let empty = redline_rdb::dump_for_any(ObjectRef::String(b""), false);
    let mut view = unit.view(&mut worker.local, db, now_ms);
    for key in keys.iter().map(AsRef::as_ref) {
        match view.find(key, Trace::Read) {
            Some(found) => {
                let ttl_ms = found
                    .expire_at_ms()
                    .map_or(0, |at_ms| (at_ms - now_ms).max(1));
                let ttl_ms = ttl_ms.to_string();
                let payload = redline_rdb::dump_for_any(object_of(found.value()), compresses);
                let mut words = vec![restore, key, ttl_ms.as_bytes(), &payload];
                words.extend((call.replaces || rounds > 0).then_some(&b"REPLACE"[..]));
                push_command(&mut parcel.frames, &words);
            }
            None if rounds > 0 => push_command(&mut parcel.frames, &removal(restore, key, &empty)),
            None => continue,
        }
        parcel.keys.push(key.into());
    }
    view.finish();
    parcel
}

/// Returns the command that makes a key at the target: a node of a cluster takes keys of a slot that it does not have yet.
fn restore_word(space: &Keyspace) -> &'static [u8] {
    match space.is_of_cluster() {
        true => b"RESTORE-ASKING",
        false => b"RESTORE",
    }
}

/// Returns the words of one command that removes a key at the target. A node of a cluster is sent a value that has
/// expired, since it takes no DEL without ASKING, which would have a reply of its own.
fn removal<'a>(restore: &'a [u8], key: &'a [u8], empty: &'a [u8]) -> Vec<&'a [u8]> {
    match restore {
        b"RESTORE-ASKING" => vec![restore, key, b"1", empty, b"REPLACE", b"ABSTTL"],
        _ => vec![b"DEL", key],
    }
}

/// Watches the keys of a parcel, unless they stay, and has it sent.
fn send(
    worker: &Worker,
    db: u32,
    call: &Call<'_>,
    unit: &mut Unit<'_>,
    mut parcel: Parcel,
    make: impl FnOnce(Vec<EndedWatch>) -> Move,
) -> Next {
    let job = call.job(&mut parcel);
    let mut sent = Vec::new();
    for key in parcel.keys {
        let flag = Arc::<WatchFlag>::default();
        if !call.copies {
            unit.watch(db, &key, &flag, worker.now_ms);
        }
        sent.push(EndedWatch {
            db,
            key,
            flag,
            waits: false,
        });
    }
    Next::Send(Box::new((make(sent), job)))
}

/// Takes up the target's answer: keys that it has as they are here are deleted, and others sent again.
fn take_up(
    worker: &mut Worker,
    caller: &Caller,
    call: &Call<'_>,
    unit: &mut Unit<'_>,
    moving: Move,
) -> Result<Next, Error> {
    let Move {
        args,
        sent,
        rounds,
        mut error,
        answer,
    } = moving;
    let answer = answer.unwrap_or_default();
    let (mut gone, mut again) = (Vec::new(), Vec::new());
    for (index, watched) in sent.iter().enumerate() {
        unit.unwatch(watched.db, &watched.key, &watched.flag);
        if call.copies || !matches!(answer.replies.get(index), Some(Ok(()))) {
            continue;
        }
        match watched.flag.is_raised() {
            true => again.push(&watched.key),
            false => gone.push(&*watched.key),
        }
    }
    delete(worker, caller.db, unit, gone.into_iter());
    if again.is_empty() || answer.failure.is_some() {
        return outcome(answer, error);
    }
    if rounds == ROUNDS_MAX {
        return Err(NOT_WRITTEN);
    }
    error = error.or_else(|| first_error(&answer));
    let parcel = serialise(worker, caller.db, call, unit, &again, rounds);
    Ok(send(worker, caller.db, call, unit, parcel, |sent| Move {
        args,
        sent,
        rounds: rounds + 1,
        error,
        answer: None,
    }))
}

/// Returns the keys that the target has taken.
fn taken<'a>(answer: &'a Answer, keys: &'a [Box<[u8]>]) -> impl Iterator<Item = &'a [u8]> {
    let replies = answer.replies.iter().zip(keys);
    replies.filter_map(|(reply, key)| reply.is_ok().then_some(&**key))
}

/// Deletes keys; returns the number of changes.
fn delete<'a>(
    worker: &mut Worker,
    db: u32,
    unit: &mut Unit<'_>,
    keys: impl Iterator<Item = &'a [u8]>,
) -> u64 {
    let now_ms = worker.now_ms;
    let mut view = unit.view(&mut worker.local, db, now_ms);
    for key in keys {
        if view.remove(key) {
            view.changed(Classes::GENERIC, "del", key);
            view.propagate(&[&b"DEL"[..], key]);
        }
    }
    let changes = view.changes();
    view.finish();
    changes
}

fn first_error(answer: &Answer) -> Option<Vec<u8>> {
    let mut errors = answer
        .replies
        .iter()
        .filter_map(|reply| reply.as_ref().err());
    answer.refused.clone().or_else(|| errors.next().cloned())
}

/// Returns what the client is told when nothing is left to be sent. `earlier`: an error of the target from before.
fn outcome(answer: Answer, earlier: Option<Vec<u8>>) -> Result<Next, Error> {
    match answer.failure {
        Some(Failure::Connecting) => return Err(NO_CONNECTION),
        Some(Failure::Writing) => return Err(NOT_WRITTEN),
        Some(Failure::Reading) => return Err(NOT_READ),
        None => {}
    }
    match earlier.or_else(|| first_error(&answer)) {
        Some(text) => Err(Error::quoting(
            "ERR Target instance replied with error: ",
            &text,
            "",
        )),
        None => Ok(Next::Done),
    }
}
