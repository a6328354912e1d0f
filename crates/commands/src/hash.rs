//! Commands of the group `hash`.

use redline_resp::{Args, Reply};

use crate::{Ctx, Error};

pub(crate) fn hdel(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hexists(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hget(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hgetall(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hincrby(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hincrbyfloat(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hkeys(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hlen(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hmget(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hmset(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hrandfield(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hscan(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hset(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hsetnx(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hstrlen(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn hvals(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}
