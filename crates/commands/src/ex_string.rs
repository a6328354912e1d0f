//! Tair's exStrings, which have a version and flags, and its CAS and CAD of plain strings.
//!
//! What a call did is told to replicas and files as the value that follows from it, with its version and the time at
//! which it expires.

use redline_keyspace::{Classes, Expiry, Found, Trace};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{ExString, number::IntText, number::parse_i64};

use crate::{
    Ctx, Error, Failure,
    ex_options::{
        Has, NOT_AN_INTEGER, NewExpiry, NewVersion, Options, expiry, float_sum_within, number,
        sum_within,
    },
    words::Words,
};

const NOT_A_FLOAT: Error = Error::line("ERR value is not a float");
/// Reply for a key that is missing.
const NO_KEY: i64 = -1;
/// The least number that is an expiry.
const EXPIRY_FROM: i64 = 1;

/// CAS key oldvalue newvalue [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL]
pub(crate) fn cas(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Failure> {
    let (key, old, new) = (&args[1], &args[2], &args[3]);
    let has = Has {
        expiry_from: Some(EXPIRY_FROM),
        ..Has::default()
    };
    let words = Words::new(CommandId::Cas, &args, 4);
    let options = Options::parse(words, has, ctx.keys.now_ms())?;
    let Some(found) = ctx.keys.string(key)? else {
        reply.integer(NO_KEY);
        return Ok(());
    };
    if found.as_bytes() != old {
        reply.integer(0);
        return Ok(());
    }
    let expiry = match options.expiry {
        NewExpiry::Clear => Expiry::Clear,
        NewExpiry::Keep => Expiry::Keep,
        NewExpiry::AtMs(at) => Expiry::AtMs(at),
    };
    ctx.keys.set_string(key, new, expiry);
    ctx.keys.changed(Classes::STRING, "set", key);
    match expiry {
        Expiry::Clear => ctx.keys.propagate(&[b"SET", key, new]),
        Expiry::Keep => ctx.keys.propagate(&[b"SET", key, new, b"KEEPTTL"]),
        Expiry::AtMs(at) => {
            ctx.keys.notify(Classes::GENERIC, "expire", key);
            let at = IntText::new(at);
            ctx.keys
                .propagate(&[b"SET", key, new, b"PXAT", at.as_ref()]);
        }
    }
    reply.integer(1);
    Ok(())
}

/// CAD key value
pub(crate) fn cad(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Failure> {
    let key = &args[1];
    let Some(found) = ctx.keys.string(key)? else {
        reply.integer(NO_KEY);
        return Ok(());
    };
    let is_equal = found.as_bytes() == &args[2];
    if is_equal {
        delete(ctx, key);
    }
    reply.integer(is_equal.into());
    Ok(())
}

fn delete(ctx: &mut Ctx<'_>, key: &[u8]) {
    ctx.keys.remove(key);
    ctx.keys.changed(Classes::GENERIC, "del", key);
    ctx.keys.propagate(&[b"DEL", key]);
}

/// Returns an exString that is about to be changed.
fn find<'v>(ctx: &'v Ctx<'_>, key: &[u8]) -> Result<Option<&'v ExString>, Error> {
    let found = ctx.keys.find(key, Trace::Write);
    Ok(found.map(Found::collection::<ExString>).transpose()?)
}

/// Changes an exString, or makes it, sets its version and expiry, and reports that; `edit` does the rest.
fn store(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    event: &'static str,
    version: u64,
    expiry: NewExpiry,
    edit: impl FnOnce(&mut ExString),
) -> Result<(), Error> {
    ctx.keys.write_or_new::<ExString, _>(key, |string, _| {
        edit(string);
        string.set_version(version);
    })?;
    set_expiry(ctx, key, expiry);
    ctx.keys.changed(Classes::MODULE, event, key);
    Ok(())
}

fn set_expiry(ctx: &mut Ctx<'_>, key: &[u8], expiry: NewExpiry) {
    match expiry {
        NewExpiry::Keep => {}
        NewExpiry::AtMs(at) => {
            ctx.keys.set_expiry(key, Some(at));
        }
        NewExpiry::Clear => {
            let found = ctx.keys.find(key, Trace::Quiet);
            if found.is_some_and(|found| found.expire_at_ms().is_some()) {
                ctx.keys.set_expiry(key, None);
            }
        }
    }
}

/// Records in the journal what an exString is now.
fn propagate(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    value: &[u8],
    version: u64,
    expiry: NewExpiry,
    flags: Option<u32>,
) {
    if !ctx.keys.is_journaled() {
        return;
    }
    let version = version.to_string();
    let mut words = vec![b"EXSET", key, value, b"ABS", version.as_bytes()];
    let at = match expiry {
        NewExpiry::AtMs(at) => Some(IntText::new(at)),
        NewExpiry::Clear | NewExpiry::Keep => None,
    };
    match &at {
        Some(at) => words.extend([b"PXAT", at.as_ref()]),
        None if expiry == NewExpiry::Keep => words.push(b"KEEPTTL"),
        None => {}
    }
    let flags = flags.map(|flags| IntText::new(flags.into()));
    if let Some(flags) = &flags {
        words.extend([b"FLAGS", flags.as_ref()]);
    }
    ctx.keys.propagate(&words[..]);
}

/// Returns true if a condition forbids a call.
fn is_refused(options: &Options<'_>, is_there: bool) -> bool {
    options.exists.is_some_and(|wanted| wanted != is_there)
}

/// EXSET key value [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL] [NX | XX] [VER version | ABS version]
/// [FLAGS flags] [WITHVERSION]
pub(crate) fn exset(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, value) = (&args[1], &args[2]);
    let has = Has {
        expiry_from: Some(EXPIRY_FROM),
        condition: true,
        version: true,
        flags: true,
        with_version: true,
        ..Has::default()
    };
    let words = Words::new(CommandId::Exset, &args, 3);
    let options = Options::parse(words, has, ctx.keys.now_ms())?;
    let found = find(ctx, key)?;
    if is_refused(&options, found.is_some()) {
        reply.null();
        return Ok(());
    }
    let version = match found {
        Some(found) => options.version.of(found.version())?,
        None => options.version.of_new(),
    };
    store(ctx, key, "exset", version, options.expiry, |string| {
        string.set(value);
        if let Some(flags) = options.flags {
            string.set_flags(flags);
        }
    })?;
    propagate(ctx, key, value, version, options.expiry, options.flags);
    match options.with_version {
        true => reply.integer(version as i64),
        false => reply.ok(),
    }
    Ok(())
}

/// EXGET key [WITHFLAGS]
pub(crate) fn exget(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::Exget, &args, 2);
    if words.len() > 1 {
        return Err(words.wrong_arity().into());
    }
    let with_flags = words.flag("WITHFLAGS");
    words.end()?;
    match ctx.keys.read::<ExString>(&args[1])? {
        None => reply.null(),
        Some(string) => write(string, with_flags, reply),
    }
    Ok(())
}

fn write(string: &ExString, with_flags: bool, reply: &mut Reply<'_>) {
    reply.array(if with_flags { 3 } else { 2 });
    reply.bulk(string.value());
    reply.integer(string.version() as i64);
    if with_flags {
        reply.integer(string.flags().into());
    }
}

/// EXSETVER key version
pub(crate) fn exsetver(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    if find(ctx, key)?.is_none() {
        reply.integer(0);
        return Ok(());
    }
    let version = number(&args[2])?;
    if version <= 0 {
        return Err(Error::Syntax.into());
    }
    ctx.keys
        .write::<ExString, _>(key, |string, _| string.set_version(version as u64))?;
    ctx.keys.changed(Classes::MODULE, "exsetver", key);
    reply.integer(1);
    Ok(())
}

/// EXINCRBY key increment [DEF default] [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL] [NX | XX]
/// [VER version | ABS version] [MIN minimum] [MAX maximum] [NONEGATIVE] [WITHVERSION]
pub(crate) fn exincrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let has = Has {
        default: true,
        with_version: true,
        ..INCREMENT
    };
    let words = Words::new(CommandId::Exincrby, &args, 3);
    let options = Options::parse(words, has, ctx.keys.now_ms())?;
    let found = find(ctx, key)?;
    let integer = |word| parse_i64(word).ok_or(NOT_AN_INTEGER);
    let increment = integer(&args[2])?;
    let default = options.default.map(integer).transpose()?;
    let bounds = options.integer_bounds()?;
    if is_refused(&options, found.is_some()) {
        reply.null();
        return Ok(());
    }
    let (sum, version) = match (found, default) {
        (Some(found), _) => {
            let present = integer(found.value())?;
            let version = options.version.of(found.version())?;
            (sum_within(present, increment, bounds)?, version)
        }
        (None, Some(default)) => (default, options.version.of_new()),
        (None, None) => (sum_within(0, increment, bounds)?, options.version.of_new()),
    };
    let sum = match options.is_nonnegative {
        true => sum.max(0),
        false => sum,
    };
    let text = IntText::new(sum);
    let text = text.as_ref();
    store(ctx, key, "exincrby", version, options.expiry, |string| {
        string.set(text)
    })?;
    propagate(ctx, key, text, version, options.expiry, None);
    if options.with_version {
        reply.array(2);
    }
    reply.integer(sum);
    if options.with_version {
        reply.integer(version as i64);
    }
    Ok(())
}

/// Options that both commands have that add.
const INCREMENT: Has = Has {
    expiry_from: Some(EXPIRY_FROM),
    condition: true,
    version: true,
    greater: false,
    flags: false,
    bounds: true,
    default: false,
    with_version: false,
};

/// EXINCRBYFLOAT key increment [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL] [NX | XX]
/// [VER version | ABS version] [MIN minimum] [MAX maximum]
pub(crate) fn exincrbyfloat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let found = find(ctx, key)?;
    let words = Words::new(CommandId::Exincrbyfloat, &args, 3);
    let options = Options::parse(words, INCREMENT, ctx.keys.now_ms())?;
    let bounds = options.float_bounds()?;
    if is_refused(&options, found.is_some()) {
        reply.null();
        return Ok(());
    }
    let present = found.map_or(&b"0"[..], ExString::value);
    let sum = float_sum_within(present, &args[2], bounds, NOT_A_FLOAT);
    // A version that is stale is told before a sum that is out of bounds, but not before a text that is no number.
    let version = match (found, &sum) {
        (Some(found), Ok(_) | Err(Error::Overflow)) => options.version.of(found.version())?,
        _ => options.version.of_new(),
    };
    let sum = sum?;
    store(
        ctx,
        key,
        "exincrbyfloat",
        version,
        options.expiry,
        |string| string.set(&sum),
    )?;
    propagate(ctx, key, &sum, version, options.expiry, None);
    reply.bulk(&sum);
    Ok(())
}

/// EXCAS key newvalue version [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL]
pub(crate) fn excas(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, value) = (&args[1], &args[2]);
    let has = Has {
        expiry_from: Some(EXPIRY_FROM),
        ..Has::default()
    };
    let words = Words::new(CommandId::Excas, &args, 4);
    let options = Options::parse(words, has, ctx.keys.now_ms())?;
    let wanted = parse_i64(&args[3]).ok_or(Error::line("ERR version should be integer"))?;
    let wanted = u64::try_from(wanted).map_err(|_| Error::Syntax)?;
    let Some(found) = find(ctx, key)? else {
        reply.integer(NO_KEY);
        return Ok(());
    };
    reply.array(3);
    if found.version() != wanted {
        reply.simple("CAS_FAILED");
        reply.bulk(found.value());
        reply.integer(found.version() as i64);
        return Ok(());
    }
    let version = NewVersion::Next.of(wanted)?;
    store(ctx, key, "excas", version, options.expiry, |string| {
        string.set(value)
    })?;
    propagate(ctx, key, value, version, options.expiry, None);
    reply.simple("OK");
    reply.simple("");
    reply.integer(version as i64);
    Ok(())
}

/// EXCAD key version
pub(crate) fn excad(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let found = find(ctx, key)?;
    let wanted = number(&args[2])?;
    let Some(found) = found else {
        reply.integer(NO_KEY);
        return Ok(());
    };
    let is_equal = u64::try_from(wanted) == Ok(found.version());
    if is_equal {
        delete(ctx, key);
    }
    reply.integer(is_equal.into());
    Ok(())
}

/// EXAPPEND key value [NX | XX] [VER version | ABS version]
pub(crate) fn exappend(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exappend, &args, 3);
    extend(ctx, args, words, "exappend", ExString::append, reply)
}

/// EXPREPEND key value [NX | XX] [VER version | ABS version]
pub(crate) fn exprepend(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exprepend, &args, 3);
    extend(ctx, args, words, "exprepend", ExString::prepend, reply)
}

fn extend(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    words: Words<'_>,
    event: &'static str,
    add: impl FnOnce(&mut ExString, &[u8]),
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, more) = (&args[1], &args[2]);
    let has = Has {
        condition: true,
        version: true,
        ..Has::default()
    };
    let options = Options::parse(words, has, ctx.keys.now_ms())?;
    let found = find(ctx, key)?;
    if is_refused(&options, found.is_some()) {
        reply.null();
        return Ok(());
    }
    let (bytes, version) = match found {
        Some(found) => (found.value().len(), options.version.of(found.version())?),
        None => (0, options.version.of_new()),
    };
    if (bytes + more.len()) as u64 > ctx.bulk_bytes_max {
        return Err(Error::StringTooLong.into());
    }
    store(ctx, key, event, version, NewExpiry::Keep, |string| {
        add(string, more)
    })?;
    reply.integer(version as i64);
    Ok(())
}

/// EXGAE key EX seconds | PX milliseconds | EXAT time | PXAT time
pub(crate) fn exgae(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let mut words = Words::new(CommandId::Exgae, &args, 2);
    let at = expiry(&mut words, ctx.keys.now_ms(), EXPIRY_FROM)?;
    let at = at.ok_or(Error::Syntax)?;
    words.end()?;
    let Some(found) = find(ctx, key)? else {
        reply.null();
        return Ok(());
    };
    write(found, true, reply);
    ctx.keys.set_expiry(key, Some(at));
    ctx.keys.changed(Classes::GENERIC, "expire", key);
    let at = IntText::new(at);
    ctx.keys.propagate(&[b"PEXPIREAT", key, at.as_ref()]);
    Ok(())
}
