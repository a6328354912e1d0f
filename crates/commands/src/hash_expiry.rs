//! Commands of the group `hash` that are about the expiry of fields.
//!
//! An expired field exists until it is removed: by its command (those that Redis lets do so call
//! [`redline_keyspace::View::expire_fields`] first), or by active expiry. Meanwhile no command shows it; HLEN counts
//! it, HDEL and HSET still find it, and HEXPIRE restores it, all as in Redis.

use redline_keyspace::{Classes, Found, Trace, WrongType, journal::Word};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{Hash, Limits, number::IntText};

use crate::{
    Ctx, Error, Failure,
    element::bulk,
    word,
    words::{Words, integer, integer_in},
};

/// End of the range of Unix times in milliseconds at which a field may expire.
const EXPIRE_AT_MS_END: i64 = 1 << 46;

/// Reply for a field that does not exist.
const NO_FIELD: i64 = -2;
/// Reply for a field without an expiry.
const NO_EXPIRY: i64 = -1;
/// Reply for a condition that did not hold.
const NOT_MET: i64 = 0;
/// Reply for a change that was made.
const DONE: i64 = 1;
/// Reply for a time in the past: the field was deleted.
const DELETED: i64 = 2;

/// HEXPIRE key seconds [NX | XX | GT | LT] FIELDS numfields field [field …]
pub(crate) fn hexpire(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let base_ms = ctx.keys.now_ms();
    let words = Words::new(CommandId::Hexpire, &args, 2);
    Ok(expire_at(
        ctx,
        &args[1],
        words,
        TimeUnit::span(1000, base_ms),
        reply,
    )?)
}

/// HEXPIREAT key unix-time-seconds [NX | XX | GT | LT] FIELDS numfields field [field …]
pub(crate) fn hexpireat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Hexpireat, &args, 2);
    Ok(expire_at(
        ctx,
        &args[1],
        words,
        TimeUnit::time(1000),
        reply,
    )?)
}

/// HEXPIRETIME key FIELDS numfields field [field …]
pub(crate) fn hexpiretime(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Hexpiretime, &args, 2);
    Ok(reply_expiry(ctx, &args[1], words, reply, seconds)?)
}

/// HGETDEL key FIELDS numfields field [field …]
pub(crate) fn hgetdel(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    check_type(ctx, key)?;
    let fields = fields(Words::new(CommandId::Hgetdel, &args, 2))?;
    ctx.keys.expire_fields(key, fields.iter());
    reply.array(fields.len());
    let deleted = ctx.keys.write::<Hash, _>(key, |hash, _| {
        let mut deleted = 0;
        for field in fields.iter() {
            match hash.get(field) {
                Some(value) => bulk(reply, value),
                None => reply.null(),
            }
            deleted += u64::from(hash.remove(field));
        }
        deleted
    })?;
    let Some(deleted) = deleted else {
        fields.iter().for_each(|_| reply.null());
        return Ok(());
    };
    if deleted > 0 {
        ctx.keys.changed(Classes::HASH, "hdel", key);
        ctx.keys.count_changes(deleted - 1);
        propagate_deletion(ctx, key, fields.iter());
    }
    Ok(())
}

/// HGETEX key [EX seconds | PX milliseconds | EXAT time | PXAT time | PERSIST] FIELDS numfields field [field …]
pub(crate) fn hgetex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let now_ms = ctx.keys.now_ms();
    check_type(ctx, key)?;
    let mut words = Words::new(CommandId::Hgetex, &args, 2);
    let persist = words.flag("PERSIST");
    let mut at_ms = None;
    if !persist && let Some((unit, time)) = words.value_of(&TimeUnit::options(now_ms)) {
        at_ms = Some(unit.read(time, words.id())?);
        // The table's arity fits a call without an option; after a time there must be room for FIELDS and a count.
        if words.len() < 2 {
            return Err(words.wrong_arity().into());
        }
    }
    let fields = fields(words)?;
    ctx.keys.expire_fields(key, fields.iter());
    reply.array(fields.len());
    let change = at_ms.is_some() || persist;
    if !change {
        let found = ctx.keys.find(key, Trace::Write);
        let hash = found.map(Found::collection::<Hash>).transpose()?;
        for field in fields.iter() {
            match hash.and_then(|hash| hash.get(field)) {
                Some(value) => bulk(reply, value),
                None => reply.null(),
            }
        }
        return Ok(());
    }
    let mut deleted = Vec::new();
    let changed = ctx.keys.write::<Hash, _>(key, |hash, _| {
        hash.prepare_expiry();
        let mut changed = 0;
        for field in fields.iter() {
            let Some((value, old)) = hash.get_timed(field) else {
                reply.null();
                continue;
            };
            bulk(reply, value);
            changed += u64::from(match at_ms {
                Some(at) if at <= now_ms => {
                    deleted.push(field);
                    hash.remove(field)
                }
                Some(_) => hash.set_expire_at_ms(field, at_ms),
                None => old.is_some() && hash.set_expire_at_ms(field, None),
            });
        }
        changed
    })?;
    let Some(changed) = changed else {
        fields.iter().for_each(|_| reply.null());
        return Ok(());
    };
    if changed > 0 {
        let event = match at_ms {
            Some(at) if at <= now_ms => "hdel",
            Some(_) => "hexpire",
            None => "hpersist",
        };
        ctx.keys.changed(Classes::HASH, event, key);
        ctx.keys.count_changes(changed - 1);
        match at_ms {
            Some(at) if at <= now_ms => {
                ctx.keys.local.expired_elements += changed;
                propagate_deletion(ctx, key, deleted.into_iter());
            }
            _ => propagate_expiry(ctx, key, at_ms, fields.iter()),
        }
    }
    Ok(())
}

/// HPERSIST key FIELDS numfields field [field …]
pub(crate) fn hpersist(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let now_ms = ctx.keys.now_ms();
    check_type(ctx, key)?;
    let fields = fields(Words::new(CommandId::Hpersist, &args, 2))?;
    reply.array(fields.len());
    let changed = ctx.keys.write::<Hash, _>(key, |hash, _| {
        let mut changed = 0;
        for field in fields.iter() {
            reply.integer(match hash.live(now_ms).get_timed(field) {
                None => NO_FIELD,
                Some((_, None)) => NO_EXPIRY,
                Some((_, Some(_))) => {
                    hash.set_expire_at_ms(field, None);
                    changed += 1;
                    DONE
                }
            });
        }
        changed
    })?;
    let Some(changed) = changed else {
        fields.iter().for_each(|_| reply.integer(NO_FIELD));
        return Ok(());
    };
    if changed > 0 {
        ctx.keys.changed(Classes::HASH, "hpersist", key);
        ctx.keys.count_changes(changed - 1);
    }
    Ok(())
}

/// HPEXPIRE key milliseconds [NX | XX | GT | LT] FIELDS numfields field [field …]
pub(crate) fn hpexpire(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let base_ms = ctx.keys.now_ms();
    let words = Words::new(CommandId::Hpexpire, &args, 2);
    Ok(expire_at(
        ctx,
        &args[1],
        words,
        TimeUnit::span(1, base_ms),
        reply,
    )?)
}

/// HPEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT] FIELDS numfields field [field …]
pub(crate) fn hpexpireat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Hpexpireat, &args, 2);
    Ok(expire_at(ctx, &args[1], words, TimeUnit::time(1), reply)?)
}

/// HPEXPIRETIME key FIELDS numfields field [field …]
pub(crate) fn hpexpiretime(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Hpexpiretime, &args, 2);
    Ok(reply_expiry(ctx, &args[1], words, reply, |at_ms| at_ms)?)
}

/// HPTTL key FIELDS numfields field [field …]
pub(crate) fn hpttl(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let now_ms = ctx.keys.now_ms();
    let words = Words::new(CommandId::Hpttl, &args, 2);
    Ok(reply_expiry(ctx, &args[1], words, reply, |at_ms| {
        at_ms - now_ms
    })?)
}

/// HSETEX key [NX | XX] [FNX | FXX] [EX seconds | PX milliseconds | EXAT time | PXAT time | KEEPTTL] FIELDS numfields field value
/// [field value …]
pub(crate) fn hsetex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let now_ms = ctx.keys.now_ms();
    let call = SetCall::parse(Words::new(CommandId::Hsetex, &args, 2), now_ms)?;
    let found = ctx.keys.find(key, Trace::Write);
    let is_there = found.map(Found::len::<Hash>).transpose()?.is_some();
    if call.key_exists.is_some_and(|wanted| wanted != is_there) {
        reply.integer(0);
        return Ok(());
    }
    let pairs = call.pairs;
    let names = || pairs.iter().step_by(2);
    // Fields that count as missing because they have expired.
    let mut due: Vec<&[u8]> = Vec::new();
    if let Some(wanted) = call.fields_exist {
        let found = ctx.keys.find(key, Trace::Quiet);
        let hash = found.map(Found::collection::<Hash>).transpose()?;
        let is_there =
            |field: &[u8]| hash.is_some_and(|hash| hash.live(now_ms).get(field).is_some());
        let refused_at = names().position(|field| is_there(field) != wanted);
        if let Some(at) = refused_at {
            // No field after that one is looked at.
            ctx.keys.expire_fields(key, names().take(at + 1));
            reply.integer(0);
            return Ok(());
        }
        let is_due =
            |field: &&[u8]| !is_there(field) && hash.is_some_and(|hash| hash.contains(field));
        due = names().filter(is_due).collect();
        due.sort_unstable();
        due.dedup();
    }
    let past = call.at_ms.is_some_and(|at| at <= now_ms);
    let each = || names().zip(pairs.iter().skip(1).step_by(2));
    let set = |hash: &mut Hash, limits: &Limits| {
        // In the same write, so that the key stays if nothing else is in it.
        for field in &due {
            hash.remove(field);
        }
        hash.make_room(pairs.iter(), limits);
        if call.at_ms.is_some() {
            hash.prepare_expiry();
        }
        let unlimited = past.then(|| {
            // Each passes through in turn: a listpack must hold its present fields and one more.
            for (field, value) in each() {
                hash.set(field, value, limits);
                hash.remove(field);
            }
            Limits {
                hash_max_listpack_entries: usize::MAX,
                ..limits.clone()
            }
        });
        let limits = unlimited.as_ref().unwrap_or(limits);
        for (field, value) in each() {
            if call.keep_expiry {
                hash.set_keeping_expiry(field, value, limits);
            } else {
                hash.set(field, value, limits);
            }
            // A field that has expired is deleted below, after the events of the key and its new value.
            if call.at_ms.is_some() && !past {
                hash.set_expire_at_ms(field, call.at_ms);
            }
        }
    };
    ctx.keys.write_or_new::<Hash, _>(key, set)?;
    if !due.is_empty() {
        ctx.keys.fields_expired(key, &due);
    }
    ctx.keys.changed(Classes::HASH, "hset", key);
    ctx.keys.count_changes(pairs.len() as u64 / 2 - 1);
    if past {
        let gone = ctx.keys.write::<Hash, _>(key, |hash, _| {
            names().filter(|field| hash.remove(field)).count()
        })?;
        ctx.keys.announced(Classes::HASH, "hdel", key);
        ctx.keys.local.expired_elements += gone.unwrap_or(0) as u64;
        propagate_deletion(ctx, key, names());
    } else if call.at_ms.is_some() {
        ctx.keys.announced(Classes::HASH, "hexpire", key);
    }
    if !past && ctx.keys.is_journaled() {
        let at_ms = call.at_ms.map(IntText::new);
        let when: &[&[u8]] = match &at_ms {
            Some(at_ms) => &[b"PXAT", at_ms.as_ref()],
            None if call.keep_expiry => &[b"KEEPTTL"],
            None => &[],
        };
        let count = IntText::new(pairs.len() as i64 / 2);
        let head = [&b"HSETEX"[..], key]
            .into_iter()
            .chain(when.iter().copied());
        let head = head.chain([&b"FIELDS"[..], count.as_ref()]);
        let values = (args.len() - pairs.len()..args.len()).map(|index| word(args, index));
        ctx.keys.propagate(head.map(Word::Bytes).chain(values));
    }
    reply.integer(1);
    Ok(())
}

/// HTTL key FIELDS numfields field [field …]
pub(crate) fn httl(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let now_ms = ctx.keys.now_ms();
    let words = Words::new(CommandId::Httl, &args, 2);
    Ok(reply_expiry(ctx, &args[1], words, reply, |at_ms| {
        seconds(at_ms - now_ms)
    })?)
}

/// Notation of a time in an argument.
#[derive(Clone, Copy)]
struct TimeUnit {
    unit_ms: i64,
    base_ms: i64,
}

impl TimeUnit {
    /// Returns the notation of a span from now on.
    fn span(unit_ms: i64, now_ms: i64) -> TimeUnit {
        TimeUnit {
            unit_ms,
            base_ms: now_ms,
        }
    }

    /// Returns the notation of a Unix time.
    fn time(unit_ms: i64) -> TimeUnit {
        TimeUnit::span(unit_ms, 0)
    }

    fn options(now_ms: i64) -> [(&'static str, TimeUnit); 4] {
        [
            ("EX", TimeUnit::span(1000, now_ms)),
            ("PX", TimeUnit::span(1, now_ms)),
            ("EXAT", TimeUnit::time(1000)),
            ("PXAT", TimeUnit::time(1)),
        ]
    }

    /// Returns the Unix time in milliseconds that an argument in this unit means; `id` is for the error.
    fn read(self, argument: &[u8], id: CommandId) -> Result<i64, Error> {
        let number = integer(argument)?;
        if number < 0 {
            return Err(Error::line("ERR invalid expire time, must be >= 0"));
        }
        number
            .checked_mul(self.unit_ms)
            .and_then(|ms| ms.checked_add(self.base_ms))
            .filter(|at| *at < EXPIRE_AT_MS_END)
            .ok_or(Error::InvalidExpire(id))
    }
}

/// Condition on a field's present expiry under which HEXPIRE sets another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    NoExpiry,
    SomeExpiry,
    Later,
    Earlier,
}

impl Condition {
    const WORDS: &[(&str, Condition)] = &[
        ("NX", Condition::NoExpiry),
        ("XX", Condition::SomeExpiry),
        ("GT", Condition::Later),
        ("LT", Condition::Earlier),
    ];

    /// Returns true if the condition holds. A field without an expiry counts as one that expires after all others.
    fn holds(self, old: Option<i64>, new: i64) -> bool {
        match self {
            Condition::None => true,
            Condition::NoExpiry => old.is_none(),
            Condition::SomeExpiry => old.is_some(),
            Condition::Later => old.is_some_and(|old| new > old),
            Condition::Earlier => old.is_none_or(|old| new < old),
        }
    }
}

/// Parsed arguments of HSETEX.
struct SetCall<'a> {
    /// Required existence of the key: `XX` and `NX`, as in Valkey.
    key_exists: Option<bool>,
    /// Required existence of all fields: all or none.
    fields_exist: Option<bool>,
    keep_expiry: bool,
    at_ms: Option<i64>,
    pairs: Args<'a>,
}

impl<'a> SetCall<'a> {
    fn parse(mut words: Words<'a>, now_ms: i64) -> Result<SetCall<'a>, Error> {
        const EXPIRY_TWICE: Error =
            Error::line("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified");
        const FIELDS_TWICE: Error =
            Error::line("ERR Only one of FXX or FNX arguments can be specified");
        let units = TimeUnit::options(now_ms);
        let (mut key_exists, mut fields_exist) = (None, None);
        let (mut keep_expiry, mut at_ms) = (false, None);
        while let Some(word) = words.peek() {
            if words.flag("FIELDS") {
                return Ok(SetCall {
                    key_exists,
                    fields_exist,
                    keep_expiry,
                    at_ms,
                    pairs: SetCall::pairs(words)?,
                });
            } else if let Some(wanted) = words.one_of(&[("FNX", false), ("FXX", true)]) {
                if fields_exist.replace(wanted).is_some() {
                    return Err(FIELDS_TWICE);
                }
            } else if let Some(wanted) = words.one_of(&[("NX", false), ("XX", true)]) {
                if key_exists.replace(wanted) == Some(!wanted) {
                    return Err(Error::Syntax);
                }
            } else if words.flag("KEEPTTL") {
                if keep_expiry || at_ms.is_some() {
                    return Err(EXPIRY_TWICE);
                }
                keep_expiry = true;
            } else if let Some(unit) = words.one_of(&units) {
                if keep_expiry || at_ms.is_some() {
                    return Err(EXPIRY_TWICE);
                }
                let time = words.next().ok_or_else(|| words.wrong_arity())?;
                at_ms = Some(unit.read(time, words.id())?);
            } else {
                return Err(Error::quoting("ERR unknown argument: ", word, ""));
            }
        }
        Err(words.wrong_arity())
    }

    /// Reads the fields and values after `FIELDS`: their number, and all remaining arguments.
    fn pairs(mut words: Words<'a>) -> Result<Args<'a>, Error> {
        const BAD_COUNT: Error = Error::line("ERR invalid number of fields");
        // After the count there is at least one pair, or the count is not checked.
        if words.len() < 3 {
            return Err(words.wrong_arity());
        }
        let count = integer_in(words.read()?, 1..=i64::from(i32::MAX), BAD_COUNT)?;
        let pairs = words.rest();
        if pairs.len() as i64 != 2 * count {
            return Err(words.wrong_arity());
        }
        Ok(pairs)
    }
}

/// Refuses a key of another type; as in Redis this check precedes errors in the arguments.
fn check_type(ctx: &Ctx<'_>, key: &[u8]) -> Result<(), WrongType> {
    let found = ctx.keys.find(key, Trace::Quiet);
    found.map(Found::len::<Hash>).transpose().map(drop)
}

/// Reads `FIELDS numfields field [field …]`, which must be all remaining arguments.
fn fields(words: Words<'_>) -> Result<Args<'_>, Error> {
    let bad_count = Error::line("ERR Number of fields must be a positive integer");
    counted_fields(words, bad_count)
}

fn counted_fields(mut words: Words<'_>, bad_count: Error) -> Result<Args<'_>, Error> {
    if !words.flag("FIELDS") {
        return Err(Error::line(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = integer_in(words.next().unwrap_or_default(), 1.., bad_count)?;
    let fields = words.rest();
    if fields.len() as i64 != count {
        return Err(Error::line(
            "ERR The `numfields` parameter must match the number of arguments",
        ));
    }
    Ok(fields)
}

/// Returns a span or time in seconds, rounded up.
fn seconds(ms: i64) -> i64 {
    ms.saturating_add(999) / 1000
}

/// Replies with the result of `show` for each field's expiry, a Unix time in milliseconds.
fn reply_expiry(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    words: Words<'_>,
    reply: &mut Reply<'_>,
    show: impl Fn(i64) -> i64,
) -> Result<(), Error> {
    let now_ms = ctx.keys.now_ms();
    let hash = ctx.keys.read::<Hash>(key)?;
    let fields = fields(words)?;
    reply.array(fields.len());
    for field in fields.iter() {
        let found = hash.and_then(|hash| hash.live(now_ms).get_timed(field));
        reply.integer(match found {
            None => NO_FIELD,
            Some((_, None)) => NO_EXPIRY,
            Some((_, Some(at_ms))) => show(at_ms),
        });
    }
    Ok(())
}

/// Sets the expiry of fields to the time in the first of the arguments.
fn expire_at(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    mut words: Words<'_>,
    unit: TimeUnit,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let bad_count = Error::line("ERR Parameter `numFields` should be greater than 0");
    let now_ms = ctx.keys.now_ms();
    check_type(ctx, key)?;
    let at_ms = unit.read(words.read()?, words.id())?;
    let condition = words.one_of(Condition::WORDS).unwrap_or(Condition::None);
    let fields = counted_fields(words, bad_count)?;
    reply.array(fields.len());
    let done = ctx.keys.write::<Hash, _>(key, |hash, _| {
        hash.prepare_expiry();
        let (mut set, mut deleted) = (Vec::new(), Vec::new());
        for field in fields.iter() {
            reply.integer(match hash.get_timed(field) {
                None => NO_FIELD,
                Some((_, old)) if !condition.holds(old, at_ms) => NOT_MET,
                Some(_) if at_ms <= now_ms => {
                    hash.remove(field);
                    deleted.push(field);
                    DELETED
                }
                Some(_) => {
                    hash.set_expire_at_ms(field, Some(at_ms));
                    set.push(field);
                    DONE
                }
            });
        }
        (set, deleted)
    })?;
    let Some((set, deleted)) = done else {
        fields.iter().for_each(|_| reply.integer(NO_FIELD));
        return Ok(());
    };
    let changes = set.len() + deleted.len();
    if changes > 0 {
        let past = !deleted.is_empty();
        let event = if past { "hdel" } else { "hexpire" };
        ctx.keys.changed(Classes::HASH, event, key);
        ctx.keys.count_changes(changes as u64 - 1);
        if past {
            ctx.keys.local.expired_elements += deleted.len() as u64;
            propagate_deletion(ctx, key, deleted.into_iter());
        } else {
            propagate_expiry(ctx, key, Some(at_ms), set.into_iter());
        }
    }
    Ok(())
}

/// Records in the journal that fields were deleted.
fn propagate_deletion<'f>(
    ctx: &mut Ctx<'_>,
    key: &'f [u8],
    fields: impl Iterator<Item = &'f [u8]>,
) {
    if ctx.keys.is_journaled() {
        let mut call: Vec<&[u8]> = vec![b"HDEL", key];
        call.extend(fields);
        ctx.keys.propagate(&call);
    }
}

/// Records in the journal that fields expire at a Unix time in milliseconds, or no longer expire.
fn propagate_expiry<'f>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    at_ms: Option<i64>,
    fields: impl Iterator<Item = &'f [u8]>,
) {
    if !ctx.keys.is_journaled() {
        return;
    }
    let fields: Vec<&[u8]> = fields.collect();
    let (at_ms, count) = (at_ms.map(IntText::new), IntText::new(fields.len() as i64));
    let mut call: Vec<&[u8]> = match &at_ms {
        Some(at_ms) => vec![b"HPEXPIREAT", key, at_ms.as_ref()],
        None => vec![b"HPERSIST", key],
    };
    call.extend([&b"FIELDS"[..], count.as_ref()]);
    call.extend(fields);
    ctx.keys.propagate(&call);
}

#[cfg(test)]
mod tests;
