//! Commands of the group command.

use redline_commands::Error;
use redline_resp::Args;

use crate::{exec::Halt, session::Session, worker::Worker};

pub(crate) fn help(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn command(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn command_count(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn command_docs(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn command_getkeys(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn command_getkeysandflags(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn command_info(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn command_list(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}
