//! Tair's exHashes, whose fields have versions and expiries.
//!
//! A field that has expired is not there for any command; it is removed by active expiry, which tells of it as EXHDEL. A
//! change is told to replicas and files as what the field holds then, with its version and the time at which it expires.

use std::collections::HashMap;

use redline_keyspace::{Classes, Found, Trace};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, ExHash, Limits,
    ex_hash::{ExField, is_live},
    number::{IntText, parse_i64},
};

use crate::{
    Ctx, Error, Failure,
    element::bulk,
    ex_options::{
        Has, NOT_AN_INTEGER, NewExpiry, NewVersion, Options, STALE, at_ms, float_sum_within,
        next_version, number, sum_within, version,
    },
    scan::{self, ScanOptions},
    words::Words,
};

const NOT_A_FLOAT: Error = Error::line("ERR value is not an float");
/// The least number that is an expiry: 0 is now.
const EXPIRY_FROM: i64 = 0;

/// Replies for what is missing.
const TTL_NO_KEY: i64 = -2;
const TTL_NO_FIELD: i64 = -3;
const TTL_NONE: i64 = -1;
const VERSION_NO_KEY: i64 = -1;
const VERSION_NO_FIELD: i64 = -2;

/// Returns an exHash that is about to be changed.
fn find<'v>(ctx: &'v Ctx<'_>, key: &[u8]) -> Result<Option<&'v ExHash>, Error> {
    let found = ctx.keys.find(key, Trace::Write);
    Ok(found.map(Found::collection::<ExHash>).transpose()?)
}

/// Returns a field that is about to be changed, unless it has expired.
fn find_field(ctx: &Ctx<'_>, key: &[u8], field: &[u8]) -> Result<Option<ExField>, Error> {
    let now_ms = ctx.keys.now_ms();
    Ok(find(ctx, key)?.and_then(|hash| hash.live(field, now_ms)))
}

/// Returns a field that is read, unless it has expired.
fn read_field(ctx: &Ctx<'_>, key: &[u8], field: &[u8]) -> Result<Option<ExField>, Error> {
    let now_ms = ctx.keys.now_ms();
    let hash = ctx.keys.read::<ExHash>(key)?;
    Ok(hash.and_then(|hash| hash.live(field, now_ms)))
}

/// Returns when a field expires after a change.
fn expire_at_ms(expiry: NewExpiry, present: Option<&ExField>) -> Option<i64> {
    match expiry {
        NewExpiry::Clear => None,
        NewExpiry::Keep => present.and_then(|field| field.expire_at_ms),
        NewExpiry::AtMs(at) => Some(at),
    }
}

/// The name of a field, and what it is to hold: the value, the version, when it expires.
type NewField<'f> = (&'f [u8], &'f [u8], u64, Option<i64>);

/// Stores fields of a hash, each with its value, version and expiry; removes those that expire now. The changes are
/// reported as one event, and told as calls of EXHSET.
fn store<'f>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    event: &'static str,
    fields: &[NewField<'f>],
) -> Result<(), Error> {
    let now_ms = ctx.keys.now_ms();
    let is_over = |at: &Option<i64>| at.is_some_and(|at| at <= now_ms);
    let put = |hash: &mut ExHash, limits: &Limits| {
        for (field, value, version, at) in fields {
            match is_over(at) {
                true => {
                    hash.remove(field);
                }
                false => {
                    hash.set(field, value, *version, *at, limits);
                }
            }
        }
    };
    ctx.keys.write_or_new::<ExHash, _>(key, put)?;
    ctx.keys.changed(Classes::MODULE, event, key);
    ctx.keys.count_changes(fields.len() as u64 - 1);
    if !ctx.keys.is_journaled() {
        return Ok(());
    }
    for (field, value, version, at) in fields {
        if is_over(at) {
            ctx.keys.propagate(&[b"EXHDEL", key, field]);
            continue;
        }
        let version = version.to_string();
        let set = [b"EXHSET", key, field, value, b"ABS", version.as_bytes()];
        match at.map(IntText::new) {
            None => ctx.keys.propagate(&set[..]),
            Some(at) => {
                let more = [&b"PXAT"[..], at.as_ref()];
                ctx.keys.propagate(set.into_iter().chain(more));
            }
        }
    }
    Ok(())
}

/// Options of EXHSET; those of EXHINCRBY are less NX and XX, and have bounds.
const SET: Has = Has {
    expiry_from: Some(EXPIRY_FROM),
    condition: true,
    version: true,
    greater: true,
    flags: false,
    bounds: false,
    default: false,
    with_version: false,
};

/// Returns the version that follows, at a field or without one.
fn version_after(version: NewVersion, present: Option<&ExField>) -> Result<u64, Error> {
    match present {
        Some(field) => version.of(field.version),
        None => Ok(version.of_new()),
    }
}

/// EXHSET key field value [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL] [NX | XX]
/// [VER version | ABS version | GT version]
pub(crate) fn exhset(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, field, value) = (&args[1], &args[2], &args[3]);
    let words = Words::new(CommandId::Exhset, &args, 4);
    let options = Options::parse(words, SET, ctx.keys.now_ms());
    let present = find_field(ctx, key, field)?;
    let options = options?;
    if options
        .exists
        .is_some_and(|wanted| wanted != present.is_some())
    {
        reply.integer(-1);
        return Ok(());
    }
    let version = version_after(options.version, present.as_ref())?;
    let at = expire_at_ms(options.expiry, present.as_ref());
    store(ctx, key, "exhset", &[(field, value, version, at)])?;
    reply.integer(present.is_none().into());
    Ok(())
}

/// EXHSETNX key field value
pub(crate) fn exhsetnx(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, field, value) = (&args[1], &args[2], &args[3]);
    let is_there = find_field(ctx, key, field)?.is_some();
    if !is_there {
        store(ctx, key, "exhset", &[(field, value, 1, None)])?;
    }
    reply.integer((!is_there).into());
    Ok(())
}

/// EXHMSET key field value [field value …]
pub(crate) fn exhmset(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exhmset, &args, 2);
    if !words.len().is_multiple_of(2) {
        return Err(words.wrong_arity().into());
    }
    let key = &args[1];
    let mut fields: Vec<NewField<'_>> = Vec::new();
    // A field may be given twice.
    let mut versions: HashMap<&[u8], u64> = HashMap::new();
    let mut at = 2;
    while at < args.len() {
        let (field, value) = (&args[at], &args[at + 1]);
        let present = match versions.get(field) {
            Some(version) => Some(*version),
            None => find_field(ctx, key, field)?.map(|field| field.version),
        };
        let version = next_version(present.unwrap_or(0))?;
        versions.insert(field, version);
        fields.push((field, value, version, None));
        at += 2;
    }
    store(ctx, key, "exhmset", &fields)?;
    reply.ok();
    Ok(())
}

/// EXHMSETWITHOPTS key field value version seconds [field value version seconds …]
pub(crate) fn exhmsetwithopts(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exhmsetwithopts, &args, 2);
    if !words.len().is_multiple_of(4) {
        return Err(words.wrong_arity().into());
    }
    let key = &args[1];
    let now_ms = ctx.keys.now_ms();
    find(ctx, key)?;
    let mut fields: Vec<NewField<'_>> = Vec::new();
    let mut versions: HashMap<&[u8], u64> = HashMap::new();
    let mut at = 2;
    while at < args.len() {
        let (field, value) = (&args[at], &args[at + 1]);
        let seconds = number(&args[at + 3])?;
        let wanted = version(&args[at + 2])?;
        if seconds < 0 {
            return Err(Error::Syntax.into());
        }
        let present = find_field(ctx, key, field)?.map(|field| field.version);
        if present.is_some_and(|present| wanted != 0 && wanted != present) {
            return Err(STALE.into());
        }
        let present = versions.get(field).copied().or(present);
        let version = next_version(present.unwrap_or(0))?;
        versions.insert(field, version);
        fields.push((field, value, version, Some(at_ms(seconds, 1000, now_ms)?)));
        at += 4;
    }
    store(ctx, key, "exhmset", &fields)?;
    reply.ok();
    Ok(())
}

fn write_value(field: Option<ExField>, reply: &mut Reply<'_>) {
    match field {
        Some(field) => reply.bulk(field.value()),
        None => reply.null(),
    }
}

fn write_with_version(field: Option<ExField>, reply: &mut Reply<'_>) {
    match field {
        Some(field) => {
            reply.array(2);
            reply.bulk(field.value());
            reply.integer(field.version as i64);
        }
        None => reply.null(),
    }
}

/// EXHGET key field
pub(crate) fn exhget(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    write_value(read_field(ctx, &args[1], &args[2])?, reply);
    Ok(())
}

/// EXHGETWITHVER key field
pub(crate) fn exhgetwithver(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    write_with_version(read_field(ctx, &args[1], &args[2])?, reply);
    Ok(())
}

/// EXHMGET key field [field …]
pub(crate) fn exhmget(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(read_many(ctx, args, write_value, reply)?)
}

/// EXHMGETWITHVER key field [field …]
pub(crate) fn exhmgetwithver(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(read_many(ctx, args, write_with_version, reply)?)
}

fn read_many(
    ctx: &Ctx<'_>,
    args: Args<'_>,
    write: impl Fn(Option<ExField>, &mut Reply<'_>),
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let now_ms = ctx.keys.now_ms();
    let hash = ctx.keys.read::<ExHash>(&args[1])?;
    let fields = args.from(2);
    reply.array(fields.len());
    for field in fields.iter() {
        write(hash.and_then(|hash| hash.live(field, now_ms)), reply);
    }
    Ok(())
}

/// Writes all fields that have not expired, as `parts` things each.
fn read_all(
    ctx: &Ctx<'_>,
    key: &[u8],
    parts: usize,
    reply: &mut Reply<'_>,
    write: impl Fn(redline_types::Element<'_>, &ExField, &mut Reply<'_>),
) -> Result<(), Error> {
    let now_ms = ctx.keys.now_ms();
    let Some(hash) = ctx.keys.read::<ExHash>(key)? else {
        reply.array(0);
        return Ok(());
    };
    let mark = reply.mark();
    let mut count = 0;
    for (name, field) in hash.iter().filter(|(_, field)| is_live(field, now_ms)) {
        write(name, &field, reply);
        count += parts;
    }
    reply.insert_array_header(mark, count);
    Ok(())
}

/// EXHGETALL key
pub(crate) fn exhgetall(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(read_all(ctx, &args[1], 2, reply, |name, field, reply| {
        bulk(reply, name);
        reply.bulk(field.value());
    })?)
}

/// EXHGETALLWITHVER key
pub(crate) fn exhgetallwithver(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(read_all(ctx, &args[1], 3, reply, |name, field, reply| {
        bulk(reply, name);
        reply.bulk(field.value());
        reply.integer(field.version as i64);
    })?)
}

/// EXHKEYS key
pub(crate) fn exhkeys(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(read_all(ctx, &args[1], 1, reply, |name, _, reply| {
        bulk(reply, name);
    })?)
}

/// EXHVALS key
pub(crate) fn exhvals(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(read_all(ctx, &args[1], 1, reply, |_, field, reply| {
        reply.bulk(field.value());
    })?)
}

/// Removes fields, each if its version is the one that is wanted; 0: whatever it is. Returns those that are gone.
fn remove<'f>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    fields: impl Iterator<Item = (&'f [u8], u64)>,
) -> Result<Vec<&'f [u8]>, Error> {
    let now_ms = ctx.keys.now_ms();
    let gone = ctx.keys.write::<ExHash, _>(key, |hash, _| {
        let mut gone = Vec::new();
        for (field, wanted) in fields {
            let present = hash.live(field, now_ms).map(|field| field.version);
            if present.is_some_and(|present| wanted == 0 || wanted == present) {
                hash.remove(field);
                gone.push(field);
            }
        }
        gone
    })?;
    let gone = gone.unwrap_or_default();
    if !gone.is_empty() {
        ctx.keys.changed(Classes::MODULE, "exhdel", key);
        ctx.keys.count_changes(gone.len() as u64 - 1);
    }
    Ok(gone)
}

/// EXHDEL key field [field …]
pub(crate) fn exhdel(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let fields = args.from(2);
    let gone = remove(ctx, &args[1], fields.iter().map(|field| (field, 0)))?;
    reply.integer(gone.len() as i64);
    Ok(())
}

/// EXHDELWITHVER key field version [field version …]
pub(crate) fn exhdelwithver(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exhdelwithver, &args, 2);
    if !words.len().is_multiple_of(2) {
        return Err(words.wrong_arity().into());
    }
    let mut fields: Vec<(&[u8], u64)> = Vec::new();
    let mut at = 2;
    while at < args.len() {
        fields.push((&args[at], version(&args[at + 1])?));
        at += 2;
    }
    let key = &args[1];
    let gone = remove(ctx, key, fields.into_iter())?;
    if !gone.is_empty() {
        let names = gone.iter().copied();
        let call = [&b"EXHDEL"[..], key];
        ctx.keys.propagate(call.into_iter().chain(names));
    }
    reply.integer(gone.len() as i64);
    Ok(())
}

/// EXHLEN key [NOEXP]
pub(crate) fn exhlen(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::Exhlen, &args, 2);
    let is_exact = words.flag("NOEXP");
    words.end()?;
    let now_ms = ctx.keys.now_ms();
    let count = match ctx.keys.read::<ExHash>(&args[1])? {
        None => 0,
        Some(hash) if is_exact && hash.earliest_expiry_ms().is_some() => {
            let fields = hash.iter();
            fields.filter(|(_, field)| is_live(field, now_ms)).count()
        }
        Some(hash) => hash.len(),
    };
    reply.integer(count as i64);
    Ok(())
}

/// EXHEXISTS key field
pub(crate) fn exhexists(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let is_there = read_field(ctx, &args[1], &args[2])?.is_some();
    reply.integer(is_there.into());
    Ok(())
}

/// EXHSTRLEN key field
pub(crate) fn exhstrlen(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let field = read_field(ctx, &args[1], &args[2])?;
    reply.integer(field.map_or(0, |field| field.value().len()) as i64);
    Ok(())
}

/// Options of both commands that add.
const INCREMENT: Has = Has {
    condition: false,
    bounds: true,
    ..SET
};

/// EXHINCRBY key field increment [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL]
/// [VER version | ABS version | GT version] [MIN minimum] [MAX maximum]
pub(crate) fn exhincrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, field) = (&args[1], &args[2]);
    let present = find_field(ctx, key, field)?;
    let integer = |word| parse_i64(word).ok_or(NOT_AN_INTEGER);
    let increment = integer(&args[3])?;
    let words = Words::new(CommandId::Exhincrby, &args, 4);
    let options = Options::parse(words, INCREMENT, ctx.keys.now_ms())?;
    let bounds = options.integer_bounds()?;
    let value = present.as_ref().map_or(&b"0"[..], ExField::value);
    let value = integer(value)?;
    let version = version_after(options.version, present.as_ref())?;
    let sum = sum_within(value, increment, bounds)?;
    let at = expire_at_ms(options.expiry, present.as_ref());
    let text = IntText::new(sum);
    store(
        ctx,
        key,
        "exhincrby",
        &[(field, text.as_ref(), version, at)],
    )?;
    reply.integer(sum);
    Ok(())
}

/// EXHINCRBYFLOAT key field increment [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL]
/// [VER version | ABS version | GT version] [MIN minimum] [MAX maximum]
pub(crate) fn exhincrbyfloat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, field) = (&args[1], &args[2]);
    let present = find_field(ctx, key, field)?;
    let words = Words::new(CommandId::Exhincrbyfloat, &args, 4);
    let options = Options::parse(words, INCREMENT, ctx.keys.now_ms())?;
    let bounds = options.float_bounds()?;
    let value = present.as_ref().map_or(&b"0"[..], ExField::value);
    let sum = float_sum_within(value, &args[3], bounds, NOT_A_FLOAT);
    // As of exStrings: a text that is no number is told before a version that is stale.
    let version = match &sum {
        Ok(_) | Err(Error::Overflow) => version_after(options.version, present.as_ref())?,
        Err(_) => 0,
    };
    let sum = sum?;
    let at = expire_at_ms(options.expiry, present.as_ref());
    store(ctx, key, "exhincrbyfloat", &[(field, &sum, version, at)])?;
    reply.bulk(&sum);
    Ok(())
}

/// Sets when a field expires: a number of units of this many milliseconds after `base_ms`.
fn expire(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    id: CommandId,
    unit_ms: i64,
    base_ms: i64,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let (key, field) = (&args[1], &args[2]);
    let time = number(&args[3])?;
    if time < EXPIRY_FROM {
        return Err(Error::Syntax);
    }
    let at = at_ms(time, unit_ms, base_ms)?;
    let has = Has {
        version: true,
        greater: true,
        ..Has::default()
    };
    let options = Options::parse(Words::new(id, &args, 4), has, ctx.keys.now_ms())?;
    let Some(present) = find_field(ctx, key, field)? else {
        reply.integer(0);
        return Ok(());
    };
    let version = options.version.of(present.version)?;
    let fields = [(field, present.value(), version, Some(at))];
    store(ctx, key, "exhexpire", &fields)?;
    reply.integer(1);
    Ok(())
}

/// EXHEXPIRE key field seconds [VER version | ABS version | GT version]
pub(crate) fn exhexpire(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let now_ms = ctx.keys.now_ms();
    Ok(expire(
        ctx,
        args,
        CommandId::Exhexpire,
        1000,
        now_ms,
        reply,
    )?)
}

/// EXHPEXPIRE key field milliseconds [VER version | ABS version | GT version]
pub(crate) fn exhpexpire(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let now_ms = ctx.keys.now_ms();
    Ok(expire(ctx, args, CommandId::Exhpexpire, 1, now_ms, reply)?)
}

/// EXHEXPIREAT key field unix-time-seconds [VER version | ABS version | GT version]
pub(crate) fn exhexpireat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(expire(ctx, args, CommandId::Exhexpireat, 1000, 0, reply)?)
}

/// EXHPEXPIREAT key field unix-time-milliseconds [VER version | ABS version | GT version]
pub(crate) fn exhpexpireat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(expire(ctx, args, CommandId::Exhpexpireat, 1, 0, reply)?)
}

/// EXHPERSIST key field
pub(crate) fn exhpersist(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, field) = (&args[1], &args[2]);
    let present = find_field(ctx, key, field)?;
    let present = present.filter(|field| field.expire_at_ms.is_some());
    if let Some(present) = &present {
        ctx.keys.write::<ExHash, _>(key, |hash, limits| {
            hash.set(field, present.value(), present.version, None, limits)
        })?;
        ctx.keys.changed(Classes::MODULE, "exhpersist", key);
    }
    reply.integer(present.is_some().into());
    Ok(())
}

/// Returns the milliseconds until a field expires, or the reply for a field that does not or is missing.
fn ttl_ms(ctx: &Ctx<'_>, key: &[u8], field: &[u8]) -> Result<Result<i64, i64>, Error> {
    let now_ms = ctx.keys.now_ms();
    let Some(hash) = ctx.keys.read::<ExHash>(key)? else {
        return Ok(Err(TTL_NO_KEY));
    };
    Ok(match hash.live(field, now_ms) {
        None => Err(TTL_NO_FIELD),
        Some(field) => match field.expire_at_ms {
            None => Err(TTL_NONE),
            Some(at) => Ok((at - now_ms).max(0)),
        },
    })
}

/// EXHTTL key field
pub(crate) fn exhttl(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let ttl = ttl_ms(ctx, &args[1], &args[2])?;
    let ttl = ttl.map(|ttl| ttl.saturating_add(500) / 1000);
    reply.integer(ttl.unwrap_or_else(|none| none));
    Ok(())
}

/// EXHPTTL key field
pub(crate) fn exhpttl(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let ttl = ttl_ms(ctx, &args[1], &args[2])?;
    reply.integer(ttl.unwrap_or_else(|none| none));
    Ok(())
}

/// EXHVER key field
pub(crate) fn exhver(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let now_ms = ctx.keys.now_ms();
    reply.integer(match ctx.keys.read::<ExHash>(&args[1])? {
        None => VERSION_NO_KEY,
        Some(hash) => match hash.live(&args[2], now_ms) {
            None => VERSION_NO_FIELD,
            Some(field) => field.version as i64,
        },
    });
    Ok(())
}

/// EXHSETVER key field version
pub(crate) fn exhsetver(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, field) = (&args[1], &args[2]);
    let version = version(&args[3])?;
    if version == 0 {
        return Err(Error::Syntax.into());
    }
    let present = find_field(ctx, key, field)?;
    if let Some(present) = &present {
        ctx.keys.write::<ExHash, _>(key, |hash, limits| {
            hash.set(
                field,
                present.value(),
                version,
                present.expire_at_ms,
                limits,
            )
        })?;
        ctx.keys.changed(Classes::MODULE, "exhsetver", key);
    }
    reply.integer(present.is_some().into());
    Ok(())
}

/// EXHSCAN key cursor [MATCH pattern] [COUNT count]
pub(crate) fn exhscan(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let now_ms = ctx.keys.now_ms();
    let Some(hash) = ctx.keys.read::<ExHash>(&args[1])? else {
        reply.array(2);
        reply.simple("0");
        reply.array(0);
        return Ok(());
    };
    let words = Words::new(CommandId::Exhscan, &args, 3);
    let options = ScanOptions::parse(words)?;
    let cursor = scan::cursor(&args[2])?;
    scan::framed(reply, |reply| {
        let mut elements = 0;
        let next = hash.scan(cursor, options.count as usize, now_ms, |name, field| {
            if options.matches(name.bytes(&mut redline_types::IntBuf::new())) {
                bulk(reply, name);
                reply.bulk(field.value());
                elements += 2;
            }
        });
        Ok((next, elements))
    })
}
