//! Commands of the group server.

use redline_commands::Error;
use redline_resp::Args;

use crate::{exec::Halt, session::Session, worker::Worker};

pub(crate) fn debug(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn info(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn lolwut(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn shutdown(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn time(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}
