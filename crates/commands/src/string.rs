//! Commands of the group `string`.

use redline_resp::{Args, Reply};

use crate::{Ctx, Error};

pub(crate) fn append(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn decr(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn decrby(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn get(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn getdel(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn getex(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn getrange(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn getset(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn incr(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn incrby(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn incrbyfloat(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lcs(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn mget(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn mset(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn msetnx(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn psetex(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn set(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn setex(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn setnx(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn setrange(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn strlen(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn substr(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}
