//! SLOWLOG and COMMANDLOG.
//!
//! Must not know: the conditions of an entry.

use redline_commands::Error;
use redline_observe::slowlog;
use redline_resp::Args;
use redline_spec::CommandId;
use redline_types::number;

use crate::worker::Worker;
use redline_engine::{Caller, Halt, commandlog::Kind, errors};

/// Default number of entries that SLOWLOG GET shows.
const ENTRIES_SHOWN: usize = 10;

pub(crate) fn slowlog_get(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let count = match args.len() {
        2 => ENTRIES_SHOWN,
        3 => count(&args[2])?,
        _ => return Err(errors::wrong_subcommand_arity(CommandId::Slowlog, args).into()),
    };
    write_entries(worker, caller, Kind::Slow, count);
    Ok(())
}

pub(crate) fn slowlog_len(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    write_len(worker, caller, Kind::Slow);
    Ok(())
}

pub(crate) fn slowlog_reset(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    worker.shared.command_logs.clear(Kind::Slow);
    caller.reply().ok();
    Ok(())
}

pub(crate) fn commandlog_get(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let count = count(&args[2])?;
    write_entries(worker, caller, kind(&args[3])?, count);
    Ok(())
}

pub(crate) fn commandlog_len(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    write_len(worker, caller, kind(&args[2])?);
    Ok(())
}

pub(crate) fn commandlog_reset(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    worker.shared.command_logs.clear(kind(&args[2])?);
    caller.reply().ok();
    Ok(())
}

/// Parses the number of entries; -1: all.
fn count(word: &[u8]) -> Result<usize, Error> {
    const WRONG: Error = Error::line("ERR count should be greater than or equal to -1");
    match number::parse_i64(word) {
        Some(-1) => Ok(usize::MAX),
        Some(count) => usize::try_from(count).map_err(|_| WRONG),
        None => Err(WRONG),
    }
}

fn kind(word: &[u8]) -> Result<Kind, Error> {
    let named = Kind::NAMES
        .iter()
        .find(|(_, name)| word.eq_ignore_ascii_case(name.as_bytes()));
    named.map(|(kind, _)| *kind).ok_or(Error::line(
        "ERR type should be one of the following: slow, large-request, large-reply",
    ))
}

fn write_len(worker: &Worker, caller: &mut Caller, kind: Kind) {
    let len = worker.shared.command_logs.len(kind);
    caller.reply().integer(len as i64);
}

fn write_entries(worker: &Worker, caller: &mut Caller, kind: Kind, count: usize) {
    let entries = worker.shared.command_logs.newest(kind, count);
    slowlog::write(&entries, &mut caller.reply());
}
