//! Commands of the group `list`.

use redline_resp::{Args, Reply};

use crate::{Ctx, Error};

pub(crate) fn lindex(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn linsert(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn llen(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lmove(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lmpop(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lpop(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lpos(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lpush(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lpushx(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lrange(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lrem(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lset(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn ltrim(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn rpop(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn rpoplpush(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn rpush(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn rpushx(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}
