//! Commands of the group client.

use redline_commands::Error;
use redline_resp::Args;

use crate::{exec::Halt, session::Session, worker::Worker};

pub(crate) fn client_getname(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn client_id(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn client_info(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn client_kill(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn client_list(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn client_no_evict(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn client_no_touch(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn client_reply(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn client_setinfo(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

pub(crate) fn client_setname(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}

/// Gives the connection a name (CLIENT SETNAME, HELLO SETNAME).
pub fn set_name(session: &mut Session, name: &[u8]) -> Result<(), Error> {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err(Error::line(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    session.card.names.lock().expect("no panic under the names").name = name.to_vec();
    Ok(())
}
