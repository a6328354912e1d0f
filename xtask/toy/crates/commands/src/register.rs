//! Registers: bytes that are set and read as a whole.

use redline_keyspace::Classes;
use redline_resp::{Args, Reply};
use redline_types::Register;

use crate::{Ctx, Failure};

/// REGISTER.GET key
pub(crate) fn register_get(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    match ctx.keys.read::<Register>(&args[1])? {
        Some(register) => reply.bulk(register.get()),
        None => reply.null(),
    }
    Ok(())
}

/// REGISTER.SET key value
pub(crate) fn register_set(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    ctx.keys
        .write_or_new::<Register, _>(key, |register, _| register.set(&args[2]))?;
    ctx.keys.changed(Classes::MODULE, "register.set", key);
    reply.ok();
    Ok(())
}
