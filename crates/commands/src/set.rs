//! Commands of the group `set`.

use redline_resp::{Args, Reply};

use crate::{Ctx, Error};

pub(crate) fn sadd(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn scard(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn sdiff(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn sdiffstore(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn sinter(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn sintercard(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn sinterstore(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn sismember(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn smembers(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn smismember(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn smove(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn spop(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn srandmember(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn srem(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn sscan(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn sunion(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn sunionstore(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}
