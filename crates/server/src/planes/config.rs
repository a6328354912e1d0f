//! Commands of the group config.

use redline_commands::Error;
use redline_resp::Args;

use crate::{exec::Halt, session::Session, worker::Worker};

pub(crate) fn config_get(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn config_resetstat(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn config_rewrite(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn config_set(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}
