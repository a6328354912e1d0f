//! CONFIG.

use redline_commands::Error;
use redline_resp::Args;
use redline_types::glob::{self, Case};

use crate::{exec::Halt, session::Session, worker::Worker};

pub(crate) fn config_get(worker: &mut Worker, session: &mut Session, args: Args<'_>) -> Result<(), Halt> {
    let settings = &worker.settings;
    let all = [
        ("save", String::new()),
        ("appendonly", "no".into()),
        ("maxmemory", settings.maxmemory_bytes.to_string()),
        ("port", settings.port.unwrap_or(0).to_string()),
        ("databases", settings.databases.to_string()),
    ];
    let wanted = |name: &str| args.iter().skip(2).any(|p| glob::matches(p, name.as_bytes(), Case::Insensitive));
    let found: Vec<_> = all.iter().filter(|(name, _)| wanted(name)).collect();
    let mut reply = session.reply();
    reply.map(found.len());
    for (name, value) in found {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

pub(crate) fn config_resetstat(_: &mut Worker, session: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    session.reply().ok();
    Ok(())
}

pub(crate) fn config_rewrite(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR The server is running without a config file").into())
}

pub(crate) fn config_set(_: &mut Worker, _: &mut Session, _: Args<'_>) -> Result<(), Halt> {
    Err(Error::line("ERR not built yet").into())
}
