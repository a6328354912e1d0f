//! Commands of the group `generic`.

use redline_keyspace::Classes;
use redline_resp::{Args, Reply};

use crate::{
    Ctx, Error,
    parse::{integer, is},
};

pub(crate) fn copy(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

/// DEL key [key …]
pub(crate) fn del(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut deleted = 0;
    for key in args.from(1).iter() {
        if ctx.keys.delete(key) {
            ctx.keys.changed(Classes::GENERIC, "del", key);
            deleted += 1;
        }
    }
    reply.integer(deleted);
    Ok(())
}

/// EXISTS key [key …]
pub(crate) fn exists(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let found = args.from(1).iter().filter(|key| ctx.keys.probe(key).is_some()).count();
    reply.integer(found as i64);
    Ok(())
}

/// EXPIRE key time [NX | XX | GT | LT]
pub(crate) fn expire(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let base_ms = ctx.keys.now_ms();
    expire_at(ctx, args, base_ms, 1000, "expire", reply)
}

/// EXPIREAT key time [NX | XX | GT | LT]
pub(crate) fn expireat(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let base_ms = 0;
    expire_at(ctx, args, base_ms, 1000, "expireat", reply)
}

/// EXPIRETIME key
pub(crate) fn expiretime(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let at_ms = expiry_of(ctx, &args[1]);
    reply.integer(at_ms.map_or_else(|missing| missing, |at_ms| seconds(at_ms)));
    Ok(())
}

pub(crate) fn keys(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn move_(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn object_encoding(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn object_freq(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn object_idletime(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn object_refcount(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn persist(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

/// PEXPIRE key time [NX | XX | GT | LT]
pub(crate) fn pexpire(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let base_ms = ctx.keys.now_ms();
    expire_at(ctx, args, base_ms, 1, "pexpire", reply)
}

/// PEXPIREAT key time [NX | XX | GT | LT]
pub(crate) fn pexpireat(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let base_ms = 0;
    expire_at(ctx, args, base_ms, 1, "pexpireat", reply)
}

/// PEXPIRETIME key
pub(crate) fn pexpiretime(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let at_ms = expiry_of(ctx, &args[1]);
    reply.integer(at_ms.map_or_else(|missing| missing, |at_ms| at_ms));
    Ok(())
}

/// PTTL key
pub(crate) fn pttl(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let at_ms = expiry_of(ctx, &args[1]);
    reply.integer(at_ms.map_or_else(|missing| missing, |at_ms| (at_ms - ctx.keys.now_ms()).max(0)));
    Ok(())
}

pub(crate) fn randomkey(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn rename(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn renamenx(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn scan(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn touch(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

/// TTL key
pub(crate) fn ttl(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let at_ms = expiry_of(ctx, &args[1]);
    reply.integer(at_ms.map_or_else(|missing| missing, |at_ms| seconds((at_ms - ctx.keys.now_ms()).max(0))));
    Ok(())
}

pub(crate) fn type_(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

/// UNLINK key [key …]: values that take long to free are always freed behind the command, so this is DEL.
pub(crate) fn unlink(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    del(ctx, args, reply)
}

pub(crate) fn dbsize(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn flushall(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn flushdb(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn memory_usage(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn swapdb(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

/// The expiry of a key as a Unix time in milliseconds, or what TTL and its kin answer without one: -2
/// without the key, -1 without an expiry.
fn expiry_of(ctx: &Ctx<'_>, key: &[u8]) -> Result<i64, i64> {
    ctx.keys.probe(key).ok_or(-2)?;
    ctx.keys.expire_at_ms(key).flatten().ok_or(-1)
}

fn seconds(ms: i64) -> i64 {
    (ms.saturating_add(500)) / 1000
}

/// Sets the expiry to the time in the second argument, in units of `unit_ms`, counted from `base_ms`.
fn expire_at(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    base_ms: i64,
    unit_ms: i64,
    command: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let key = &args[1];
    let conditions = ExpireConditions::parse(args.from(3))?;
    let at_ms = integer(&args[2])?
        .checked_mul(unit_ms)
        .and_then(|ms| ms.checked_add(base_ms))
        .ok_or(Error::InvalidExpire(command))?;
    match ctx.keys.expire_at_ms(key) {
        Some(current) if conditions.hold(current, at_ms) => {}
        _ => {
            reply.integer(0);
            return Ok(());
        }
    }
    if at_ms <= ctx.keys.now_ms() {
        ctx.keys.delete(key);
        ctx.keys.changed(Classes::GENERIC, "del", key);
    } else {
        ctx.keys.set_expire_at_ms(key, Some(at_ms));
        ctx.keys.changed(Classes::GENERIC, "expire", key);
    }
    reply.integer(1);
    Ok(())
}

/// What must be true of the current expiry for EXPIRE to set another.
#[derive(Default)]
struct ExpireConditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl ExpireConditions {
    fn parse(words: Args<'_>) -> Result<ExpireConditions, Error> {
        let mut conditions = ExpireConditions::default();
        for word in words.iter() {
            let condition = match word {
                _ if is(word, "NX") => &mut conditions.nx,
                _ if is(word, "XX") => &mut conditions.xx,
                _ if is(word, "GT") => &mut conditions.gt,
                _ if is(word, "LT") => &mut conditions.lt,
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(Error::Line(format!("ERR Unsupported option {word}").into()));
                }
            };
            *condition = true;
        }
        let ExpireConditions { nx, xx, gt, lt } = conditions;
        if nx && (xx || gt || lt) {
            return Err(Error::line(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if gt && lt {
            return Err(Error::line("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// Without an expiry a key counts as one that expires after all others.
    fn hold(&self, current: Option<i64>, new: i64) -> bool {
        !(self.nx && current.is_some()
            || self.xx && current.is_none()
            || self.gt && current.is_none_or(|current| new <= current)
            || self.lt && current.is_some_and(|current| new >= current))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn expiry() {
        let mut db = TestDb::new();
        db.script(&[
            ("EXPIRE k 10", ":0"),
            ("TTL k", ":-2"),
            ("SET k v", "+OK"),
            ("TTL k", ":-1"),
            ("EXPIRE k 10 XX", ":0"),
            ("EXPIRE k 10 GT", ":0"),
            ("EXPIRE k 10 NX", ":1"),
            ("EXPIRE k 5 GT", ":0"),
            ("EXPIRE k 5 LT", ":1"),
            ("PTTL k", ":5000"),
            ("EXPIRETIME k", ":1700000005"),
            ("PEXPIRETIME k", ":1700000005000"),
            ("EXISTS k k x", ":2"),
        ]);
        db.pass_ms(5001);
        db.script(&[("EXISTS k", ":0"), ("SET k v", "+OK"), ("EXPIRE k -1", ":1"), ("DEL k", ":0")]);
    }
}
