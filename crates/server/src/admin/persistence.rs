//! SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE, SHUTDOWN.
//!
//! Must not know: how a snapshot is taken.

use redline_commands::{Error, Words};
use redline_engine::{
    Caller, Halt,
    caller::{Suspended, flag},
    executor::{block, units},
};
use redline_keyspace::lock::StripeSet;
use redline_resp::Args;
use redline_spec::CommandId;

use crate::{
    ending::{self, Manner},
    log,
    persistence::{self, Begun, NotBegun, Purpose, append},
    worker::Worker,
};

const IN_PROGRESS: Error = Error::line("ERR Background save already in progress");
const FAILED: Error = Error::line("ERR");
const REWRITING: Error =
    Error::line("ERR Background append only file rewriting already in progress");
const BUSY_WITH_BASE: Error = Error::line(
    "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a BGSAVE whenever possible.",
);
const NOT_SAVING: Error =
    Error::line("ERR Background saving is currently not in progress or scheduled");
const NOT_ENDED: Error = Error::line("ERR Errors trying to SHUTDOWN. Check logs.");
const NO_SHUTDOWN: Error = Error::line("ERR No shutdown in progress.");

/// Replies with the time of the last save; at first, as Redis does, with that of the start.
pub(crate) fn lastsave(worker: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    let saved_at_s = worker.shared.persistence.figures().saved_at_s;
    caller.reply().integer(saved_at_s as i64);
    Ok(())
}

/// Begins a snapshot for a client, which is suspended while a stripe is in use.
pub(super) fn begin_for(
    worker: &mut Worker,
    caller: &mut Caller,
) -> Result<Result<u64, NotBegun>, Halt> {
    let mut unit = units::take_set(worker.executor, caller, &StripeSet::all())?;
    worker.shared.persistence.know_of_next();
    let begun = persistence::begin(worker, &mut unit, Purpose::Save);
    block::commit(worker.executor, unit);
    Ok(begun)
}

/// Saves for a client, which is suspended until the file is there. Returns false if it failed; the call runs again
/// from its start whenever the client is woken.
pub(super) fn save_for(worker: &mut Worker, caller: &mut Caller) -> Result<bool, Halt> {
    let client = caller.info.id;
    let persistence = &worker.shared.persistence;
    let mut outcome = persistence.outcome_for(client);
    if outcome.is_none() {
        match begin_for(worker, caller)? {
            Ok(number) => persistence.wait_for(client, number),
            // The file is given up already, and the walk is nearly through.
            Err(NotBegun::Ending) => persistence.schedule_for(client),
            // As in Redis a base that is being written is no save.
            Err(NotBegun::InProgress) if persistence.is_making_base() => {
                persistence.schedule_for(client);
            }
            Err(NotBegun::InProgress) => return Err(IN_PROGRESS.into()),
        }
        outcome = persistence.outcome_for(client);
    }
    let ended = outcome.expect("it waits");
    ended.ok_or(Halt::Suspended(Suspended::File))
}

pub(crate) fn save(worker: &mut Worker, caller: &mut Caller, _: Args<'_>) -> Result<(), Halt> {
    match save_for(worker, caller)? {
        true => caller.reply().ok(),
        false => return Err(FAILED.into()),
    }
    Ok(())
}

pub(crate) fn bgsave(worker: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    let mut words = Words::new(CommandId::Bgsave, &args, 1);
    let schedules = words.flag("SCHEDULE");
    // Valkey has it.
    let cancels = !schedules && words.undocumented("CANCEL");
    if !words.is_empty() {
        return Err(Error::Syntax.into());
    }
    let persistence = &worker.shared.persistence;
    if cancels {
        let text = match persistence.cancel(worker.shared) {
            (true, _) => "Background saving cancelled",
            (false, true) => "Scheduled background saving cancelled",
            (false, false) => return Err(NOT_SAVING.into()),
        };
        log::notice(text);
        caller.reply().simple(text);
        return Ok(());
    }
    if persistence.is_saving() {
        return Err(IN_PROGRESS.into());
    }
    let waits = persistence.is_making_base();
    if waits && !schedules && worker.compound.is_none() {
        return Err(BUSY_WITH_BASE.into());
    }
    // Inside EXEC the snapshot comes after the transaction.
    let begun = match waits || worker.compound.is_some() {
        true => None,
        false => Some(begin_for(worker, caller)?),
    };
    let text = match begun {
        Some(Ok(_)) => "Background saving started",
        Some(Err(NotBegun::InProgress)) => return Err(IN_PROGRESS.into()),
        // The end of one that was called off is not waited for.
        Some(Err(NotBegun::Ending)) => {
            worker.shared.persistence.schedule();
            "Background saving started"
        }
        None => {
            worker.shared.persistence.schedule();
            "Background saving scheduled"
        }
    };
    log::notice(text);
    caller.reply().simple(text);
    Ok(())
}

pub(crate) fn bgrewriteaof(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let persistence = &worker.shared.persistence;
    if persistence.append.is_rewriting() || persistence.is_making_base() {
        return Err(REWRITING.into());
    }
    let is_on = persistence.append.stays_on();
    let text = if persistence.is_save_ahead() || is_on && !append::rewrite(worker.shared) {
        persistence.append.schedule();
        "Background append only file rewriting scheduled"
    } else {
        if !is_on {
            persistence.append.make_lone_base();
            persistence::wish(worker.shared);
        }
        "Background append only file rewriting started"
    };
    caller.reply().simple(text);
    Ok(())
}

pub(crate) fn shutdown(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let (mut save, mut nosave, mut abort, mut now, mut force) = (false, false, false, false, false);
    let mut words = Words::new(CommandId::Shutdown, &args, 1);
    while !words.is_empty() {
        let known = [
            ("SAVE", &mut save),
            ("NOSAVE", &mut nosave),
            ("NOW", &mut now),
            ("FORCE", &mut force),
            ("ABORT", &mut abort),
        ];
        let found = known.into_iter().find(|(word, _)| words.flag(word));
        match found {
            Some((_, given)) => *given = true,
            None => return Err(Error::Syntax.into()),
        }
    }
    if (save && nosave) || (abort && (save || nosave || now || force)) {
        return Err(Error::Syntax.into());
    }
    if abort {
        return match ending::abort(worker.shared) {
            true => {
                caller.reply().ok();
                Ok(())
            }
            false => Err(NO_SHUTDOWN.into()),
        };
    }
    if !nosave && worker.refuses_all() {
        return Err(worker.shared.running_script.busy_error().into());
    }
    let client = caller.info.id;
    if ending::awaits(worker.shared, client) {
        return Err(Halt::Suspended(Suspended::File));
    }
    caller.info.set_flag(flag::BLOCKED, false);
    if worker.shared.persistence.outcome_for(client).is_some() {
        // The files could not be seen to, or the shutdown was called off.
        return Err(NOT_ENDED.into());
    }
    let manner = Manner {
        saves: (save || nosave).then_some(save),
        is_now: now,
        is_forced: force,
    };
    match ending::begin(worker.shared, manner, Some(client)) {
        Begun::Ends => caller.closing = true,
        Begun::Waits => {
            caller.info.set_flag(flag::BLOCKED, true);
            return Err(Halt::Suspended(Suspended::File));
        }
        Begun::Refused => return Err(NOT_ENDED.into()),
    }
    Ok(())
}
