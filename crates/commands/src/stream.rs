//! Commands of the group `stream`.

use redline_resp::{Args, Reply};

use crate::{Ctx, Error};

pub(crate) fn xadd(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn xdel(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn xlen(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn xrange(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn xrevrange(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn xtrim(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}
