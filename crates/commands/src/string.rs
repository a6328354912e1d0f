//! Commands of the group `string`.

use redline_keyspace::{Classes, Expiry, StringRef};
use redline_resp::{Args, Reply};
use redline_types::number::{IntText, parse_i64};

use crate::{
    Ctx, Error,
    parse::{integer, is},
};

pub(crate) fn append(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

/// DECR key
pub(crate) fn decr(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    add(ctx, &args[1], -1, reply)
}

/// DECRBY key decrement
pub(crate) fn decrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let by = integer(&args[2])?;
    let by = by.checked_neg().ok_or(Error::line("ERR decrement would overflow"))?;
    add(ctx, &args[1], by, reply)
}

/// GET key
#[inline]
pub(crate) fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply_string(ctx.keys.string(&args[1])?, reply);
    Ok(())
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

/// INCR key
pub(crate) fn incr(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    add(ctx, &args[1], 1, reply)
}

/// INCRBY key increment
pub(crate) fn incrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    add(ctx, &args[1], integer(&args[2])?, reply)
}

pub(crate) fn incrbyfloat(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn lcs(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

/// MGET key [key …]
pub(crate) fn mget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.array(args.len() - 1);
    for key in args.from(1).iter() {
        // A value of another type counts as none here.
        reply_string(ctx.keys.string(key).unwrap_or(None), reply);
    }
    Ok(())
}

/// MSET key value [key value …]
pub(crate) fn mset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    if args.len() % 2 == 0 {
        return Err(Error::line("ERR wrong number of arguments for 'mset' command"));
    }
    for at in (1..args.len()).step_by(2) {
        store(ctx, args, at, at + 1, Expiry::Clear);
    }
    reply.ok();
    Ok(())
}

pub(crate) fn msetnx(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

pub(crate) fn psetex(_ctx: &mut Ctx<'_>, _args: Args<'_>, _reply: &mut Reply<'_>) -> Result<(), Error> {
    Err(Error::line("ERR not built yet"))
}

/// SET key value [NX | XX] [GET] [EX seconds | PX ms | EXAT s | PXAT ms | KEEPTTL]
#[inline]
pub(crate) fn set(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    if args.len() > 3 {
        return set_with_options(ctx, args, reply);
    }
    store(ctx, args, 1, 2, Expiry::Clear);
    reply.ok();
    Ok(())
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

fn set_with_options(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let options = Options::parse(args.from(3), Options::SET)?;
    let expiry = match options.expiry {
        None => Expiry::Clear,
        Some(ExpiryOption::Keep) => Expiry::Keep,
        Some(ExpiryOption::Persist) => unreachable!("not among the options of SET"),
        Some(ExpiryOption::Time(unit, time)) => {
            Expiry::AtMs(unit.at_ms(time, ctx.keys.now_ms(), "set")?)
        }
    };
    if options.get {
        reply_string(ctx.keys.string(&args[1])?, reply);
    }
    let refused = match options.only_if {
        None => false,
        Some(OnlyIf::Missing) => ctx.keys.contains(&args[1]),
        Some(OnlyIf::Exists) => !ctx.keys.contains(&args[1]),
    };
    if refused {
        if !options.get {
            reply.null();
        }
        return Ok(());
    }
    store(ctx, args, 1, 2, expiry);
    if matches!(expiry, Expiry::AtMs(_)) {
        ctx.keys.notify(Classes::GENERIC, "expire", &args[1]);
    }
    if !options.get {
        reply.ok();
    }
    Ok(())
}

/// Stores one argument under another, and reports it.
#[inline]
fn store(ctx: &mut Ctx<'_>, args: Args<'_>, key: usize, value: usize, expiry: Expiry) {
    let key = &args[key];
    match args.blob(value) {
        None => ctx.keys.set_string(key, &args[value], expiry),
        Some(blob) => ctx.keys.set_blob(key, blob.clone(), expiry),
    }
    ctx.keys.changed(Classes::STRING, "set", key);
}

#[inline]
fn reply_string(value: Option<StringRef<'_>>, reply: &mut Reply<'_>) {
    match value {
        Some(StringRef::Inline { bytes, .. }) => reply.bulk(bytes),
        Some(StringRef::Blob(blob)) => reply.blob(blob),
        None => reply.null(),
    }
}

/// The sum of a stored integer and another takes its place.
fn add(ctx: &mut Ctx<'_>, key: &[u8], by: i64, reply: &mut Reply<'_>) -> Result<(), Error> {
    let sum = ctx.keys.map_string(key, |old| {
        let old = old.map_or(Some(0), parse_i64).ok_or(Error::NotInteger)?;
        let sum = old.checked_add(by).ok_or(Error::Overflow)?;
        Ok::<_, Error>((IntText::new(sum), sum))
    })?;
    ctx.keys.changed(Classes::STRING, "incrby", key);
    reply.integer(sum);
    Ok(())
}

/// A condition on the key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnlyIf {
    Missing,
    Exists,
}

/// How an expiry is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimeUnit {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl TimeUnit {
    /// The Unix time in milliseconds that an argument of this unit means; `command` is for the error.
    fn at_ms(self, argument: &[u8], now_ms: i64, command: &'static str) -> Result<i64, Error> {
        let number = integer(argument)?;
        let scale = match self {
            TimeUnit::Seconds | TimeUnit::UnixSeconds => 1000,
            TimeUnit::Milliseconds | TimeUnit::UnixMilliseconds => 1,
        };
        let base = match self {
            TimeUnit::Seconds | TimeUnit::Milliseconds => now_ms,
            TimeUnit::UnixSeconds | TimeUnit::UnixMilliseconds => 0,
        };
        Some(number)
            .filter(|number| *number > 0)
            .and_then(|number| number.checked_mul(scale)?.checked_add(base))
            .ok_or(Error::InvalidExpire(command))
    }
}

#[derive(Clone, Copy)]
enum ExpiryOption<'a> {
    Keep,
    Persist,
    Time(TimeUnit, &'a [u8]),
}

/// The options of SET and GETEX.
#[derive(Default)]
struct Options<'a> {
    only_if: Option<OnlyIf>,
    get: bool,
    expiry: Option<ExpiryOption<'a>>,
}

impl<'a> Options<'a> {
    const SET: bool = true;
    const GETEX: bool = false;

    fn parse(args: Args<'a>, set: bool) -> Result<Options<'a>, Error> {
        use {ExpiryOption::*, TimeUnit::*};
        const TIMES: [(&str, TimeUnit); 4] = [
            ("EX", Seconds),
            ("PX", Milliseconds),
            ("EXAT", UnixSeconds),
            ("PXAT", UnixMilliseconds),
        ];
        let mut options = Options::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let unit = TIMES.iter().find(|(name, _)| is(word, name)).map(|(_, unit)| *unit);
            match options {
                _ if set && is(word, "NX") && options.only_if != Some(OnlyIf::Exists) => {
                    options.only_if = Some(OnlyIf::Missing);
                }
                _ if set && is(word, "XX") && options.only_if != Some(OnlyIf::Missing) => {
                    options.only_if = Some(OnlyIf::Exists);
                }
                _ if set && is(word, "GET") => options.get = true,
                Options { expiry: None | Some(Keep), .. } if set && is(word, "KEEPTTL") => {
                    options.expiry = Some(Keep);
                }
                Options { expiry: None | Some(Persist), .. } if !set && is(word, "PERSIST") => {
                    options.expiry = Some(Persist);
                }
                _ => {
                    let unit = unit.ok_or(Error::Syntax)?;
                    let time = words.next().ok_or(Error::Syntax)?;
                    match options.expiry {
                        None => {}
                        Some(Time(before, _)) if before == unit => {}
                        Some(_) => return Err(Error::Syntax),
                    }
                    options.expiry = Some(Time(unit, time));
                }
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn set_and_get() {
        let mut db = TestDb::new();
        db.script(&[
            ("GET k", "$-1"),
            ("SET k v", "+OK"),
            ("GET k", "$1|v"),
            ("SET k w NX", "$-1"),
            ("SET k w XX GET", "$1|v"),
            ("SET k x NX GET", "$1|w"),
            ("SET k v EX 10", "+OK"),
            ("TTL k", ":10"),
            ("SET k w KEEPTTL", "+OK"),
            ("PTTL k", ":10000"),
            ("SET k w", "+OK"),
            ("TTL k", ":-1"),
            ("SET k v EX 10 EX 20", "+OK"),
            ("TTL k", ":20"),
            ("SET k v EX 10 PX 20", "-ERR syntax error"),
            ("SET k v EX 0", "-ERR invalid expire time in 'set' command"),
            ("SET k v KEEPTTL EX 1", "-ERR syntax error"),
        ]);
        let large = "x".repeat(100_000);
        assert_eq!(db.run(&["SET", "large", &large]), "+OK");
        assert_eq!(db.words("GET large"), format!("$100000|{large}"));
        db.pass_ms(20_001);
        assert_eq!(db.words("GET k"), "$-1");
    }

    #[test]
    fn integers() {
        let mut db = TestDb::new();
        db.script(&[
            ("INCR n", ":1"),
            ("INCRBY n 9223372036854775806", ":9223372036854775807"),
            ("INCR n", "-ERR increment or decrement would overflow"),
            ("DECRBY n -9223372036854775808", "-ERR decrement would overflow"),
            ("DECRBY n 9223372036854775807", ":0"),
            ("DECR n", ":-1"),
            ("MSET a 1 b x", "+OK"),
            ("MGET a b c", "*3|$1|1|$1|x|$-1"),
            ("INCR b", "-ERR value is not an integer or out of range"),
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
        ]);
    }
}
