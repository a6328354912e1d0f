//! INFO, TIME, LOLWUT, DEBUG, SHUTDOWN.

use redline_commands::Error;
use redline_net::clock;
use redline_resp::Args;

use crate::{exec::Halt, info, session::Session, worker::Worker};

pub(crate) fn debug(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn info(worker: &mut Worker, session: &mut Session, args: Args<'_>) -> Result<(), Halt> {
    let text = info::render(worker, args.from(1));
    session.reply().verbatim("txt", text.as_bytes());
    Ok(())
}

pub(crate) fn lolwut(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn shutdown(worker: &mut Worker, session: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    session.closing = true;
    crate::shutdown(&worker.shared);
    Ok(())
}

pub(crate) fn time(_: &mut Worker, session: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    let now_us = clock::wall_us();
    let mut reply = session.reply();
    reply.array(2);
    reply.bulk_integer((now_us / 1_000_000) as i64);
    reply.bulk_integer((now_us % 1_000_000) as i64);
    Ok(())
}
