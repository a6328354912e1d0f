//! Commands of the group `generic`.

use redline_keyspace::{Classes, Found, Trace, View};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    Kind,
    glob::{self, Case},
    number::IntText,
};

use crate::{
    Ctx, Error, Failure,
    scan::{self, ScanOptions},
    word,
    words::{Words, int, integer},
};

/// COPY source destination [DB index] [REPLACE]
pub(crate) fn copy(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (source, destination) = (&args[1], &args[2]);
    let (mut db, mut replace) = (ctx.keys.db(), false);
    let mut words = Words::new(CommandId::Copy, &args, 3);
    while !words.is_empty() {
        if words.flag("REPLACE") {
            replace = true;
        } else if let Some(index) = words.value("DB") {
            db = db_index(ctx, index)?;
        } else {
            return Err(Error::Syntax.into());
        }
    }
    if db == ctx.keys.db() && source == destination {
        return Err(SAME_OBJECT.into());
    }
    let Some(found) = ctx.keys.find(source, Trace::Read) else {
        reply.integer(0);
        return Ok(());
    };
    let new_type = found.type_name();
    let can_copy = found.kind().is_none_or(Kind::can_copy);
    let old_type = ctx.keys.in_db(db, |keys| {
        let found = keys.find(destination, Trace::Quiet);
        found.map(Found::type_name)
    });
    if old_type.is_some() && !replace {
        reply.integer(0);
        return Ok(());
    }
    if !can_copy {
        return Err(Error::line("ERR not supported for this module key").into());
    }
    let found = ctx.keys.find(source, Trace::Quiet);
    let (value, expire_at_ms) = found.expect("the source exists").copy();
    ctx.keys.in_db(db, |keys| {
        keys.remove(destination);
        keys.put_owned(destination, value, expire_at_ms);
        keys.changed(Classes::GENERIC, "copy_to", destination);
        if let Some(old_type) = old_type {
            keys.notify_replaced(destination, old_type, new_type);
        }
    });
    reply.integer(1);
    Ok(())
}

/// DEL key [key …]
pub(crate) fn del(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Failure> {
    let mut deleted = 0;
    for key in args.from(1).iter() {
        if ctx.keys.remove(key) {
            ctx.keys.changed(Classes::GENERIC, "del", key);
            deleted += 1;
        }
    }
    reply.integer(deleted);
    Ok(())
}

/// EXISTS key [key …]
pub(crate) fn exists(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = args
        .from(1)
        .iter()
        .filter(|key| ctx.keys.find(key, Trace::Probe).is_some())
        .count();
    reply.integer(found as i64);
    Ok(())
}

/// EXPIRE key time [NX | XX | GT | LT]
pub(crate) fn expire(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let base_ms = ctx.keys.now_ms();
    let words = Words::new(CommandId::Expire, &args, 3);
    Ok(expire_at(ctx, args, words, base_ms, 1000, reply)?)
}

/// EXPIREAT key time [NX | XX | GT | LT]
pub(crate) fn expireat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let base_ms = 0;
    let words = Words::new(CommandId::Expireat, &args, 3);
    Ok(expire_at(ctx, args, words, base_ms, 1000, reply)?)
}

/// EXPIRETIME key
pub(crate) fn expiretime(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    reply_expiry(ctx, &args[1], reply, seconds);
    Ok(())
}

/// KEYS pattern
pub(crate) fn keys(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let pattern = &args[1];
    let all = pattern == b"*";
    let mark = reply.mark();
    let mut found = 0;
    ctx.keys.database().for_each(|key, _| {
        if all || glob::matches(pattern, key, Case::Sensitive) {
            reply.bulk(key);
            found += 1;
        }
    });
    reply.insert_array_header(mark, found);
    Ok(())
}

/// MOVE key db
pub(crate) fn move_(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    if ctx.keys.space().is_of_cluster() {
        return Err(Error::line("ERR MOVE is not allowed in cluster mode").into());
    }
    let db = db_index(ctx, &args[2])?;
    if db == ctx.keys.db() {
        return Err(SAME_OBJECT.into());
    }
    let exists = |keys: &mut View<'_>| keys.find(key, Trace::Quiet).is_some();
    if !exists(&mut ctx.keys) || ctx.keys.in_db(db, exists) {
        reply.integer(0);
        return Ok(());
    }
    let (value, expire_at_ms) = ctx.keys.take(key).expect("the key exists");
    ctx.keys
        .in_db(db, |keys| keys.put_owned(key, value, expire_at_ms));
    ctx.keys.changed(Classes::GENERIC, "move_from", key);
    ctx.keys.in_db(db, |keys| {
        keys.touch_watchers(key);
        keys.notify(Classes::GENERIC, "move_to", key);
    });
    reply.integer(1);
    Ok(())
}

/// OBJECT ENCODING key
pub(crate) fn object_encoding(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    match ctx.keys.find(&args[2], Trace::Glance) {
        Some(found) => reply.bulk(found.encoding().as_bytes()),
        None => reply.null(),
    }
    Ok(())
}

/// OBJECT FREQ key
pub(crate) fn object_freq(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = ctx.keys.find(&args[2], Trace::Glance);
    if found.is_some() && !ctx.keys.local.clock.lfu {
        return Err(Error::line(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
             when switching between policies at runtime LRU and LFU data will take some time to adjust.",
        ).into());
    }
    reply_number(found.map(Found::frequency), reply);
    Ok(())
}

/// OBJECT IDLETIME key
pub(crate) fn object_idletime(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = ctx.keys.find(&args[2], Trace::Glance);
    if found.is_some() && ctx.keys.local.clock.lfu {
        return Err(Error::line(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when \
             switching between policies at runtime LRU and LFU data will take some time to adjust.",
        )
        .into());
    }
    reply_number(found.map(Found::idle_s), reply);
    Ok(())
}

/// OBJECT REFCOUNT key: always 1, since a value belongs to one key.
pub(crate) fn object_refcount(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = ctx.keys.find(&args[2], Trace::Glance);
    reply_number(found.map(|_| 1), reply);
    Ok(())
}

/// PERSIST key
pub(crate) fn persist(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let found = ctx.keys.find(key, Trace::Quiet);
    let expires = found.and_then(Found::expire_at_ms).is_some();
    if expires {
        ctx.keys.set_expiry(key, None);
        ctx.keys.changed(Classes::GENERIC, "persist", key);
    } else {
        ctx.keys.find(key, Trace::Write);
    }
    reply.integer(i64::from(expires));
    Ok(())
}

/// PEXPIRE key time [NX | XX | GT | LT]
pub(crate) fn pexpire(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let base_ms = ctx.keys.now_ms();
    let words = Words::new(CommandId::Pexpire, &args, 3);
    Ok(expire_at(ctx, args, words, base_ms, 1, reply)?)
}

/// PEXPIREAT key time [NX | XX | GT | LT]
pub(crate) fn pexpireat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let base_ms = 0;
    let words = Words::new(CommandId::Pexpireat, &args, 3);
    Ok(expire_at(ctx, args, words, base_ms, 1, reply)?)
}

/// PEXPIRETIME key
pub(crate) fn pexpiretime(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    reply_expiry(ctx, &args[1], reply, |at_ms| at_ms);
    Ok(())
}

/// PTTL key
pub(crate) fn pttl(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let now_ms = ctx.keys.now_ms();
    reply_expiry(ctx, &args[1], reply, |at_ms| (at_ms - now_ms).max(0));
    Ok(())
}

/// RANDOMKEY
pub(crate) fn randomkey(
    ctx: &mut Ctx<'_>,
    _args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    match ctx.keys.database().random_key()? {
        Some(key) => reply.bulk(&key),
        None => reply.null(),
    }
    Ok(())
}

/// RENAME key newkey
pub(crate) fn rename(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    rename_key(ctx, args, true)?;
    reply.ok();
    Ok(())
}

/// RENAMENX key newkey
pub(crate) fn renamenx(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let renamed = rename_key(ctx, args, false)?;
    reply.integer(i64::from(renamed));
    Ok(())
}

/// SCAN cursor [MATCH pattern] [COUNT keys] [TYPE name]
pub(crate) fn scan(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let cursor = scan::cursor(&args[1])?;
    let options = ScanOptions::parse(Words::new(CommandId::Scan, &args, 2))?;
    scan::framed(reply, |reply| {
        let mut found = 0;
        let next = ctx
            .keys
            .database()
            .scan(cursor, options.count, |key, value| {
                let right_type = options
                    .type_name
                    .is_none_or(|name| name.eq_ignore_ascii_case(value.type_name().as_bytes()));
                if right_type && options.matches(key) {
                    reply.bulk(key);
                    found += 1;
                }
            })?;
        Ok((next, found))
    })
}

/// TOUCH key [key …]
pub(crate) fn touch(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = args
        .from(1)
        .iter()
        .filter(|key| ctx.keys.find(key, Trace::Read).is_some())
        .count();
    reply.integer(found as i64);
    Ok(())
}

/// TTL key
pub(crate) fn ttl(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Failure> {
    let now_ms = ctx.keys.now_ms();
    reply_expiry(ctx, &args[1], reply, |at_ms| {
        seconds((at_ms - now_ms).max(0))
    });
    Ok(())
}

/// TYPE key
pub(crate) fn type_(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = ctx.keys.find(&args[1], Trace::Probe);
    reply.simple(found.map_or("none", Found::type_name));
    Ok(())
}

/// UNLINK key [key …]: values that take long to free are always freed in the background, so this is DEL.
pub(crate) fn unlink(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    del(ctx, args, reply)
}

/// DBSIZE
pub(crate) fn dbsize(
    ctx: &mut Ctx<'_>,
    _args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    reply.integer(ctx.keys.database().key_count() as i64);
    Ok(())
}

/// FLUSHALL [ASYNC | SYNC]
pub(crate) fn flushall(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    check_flush_mode(Words::new(CommandId::Flushall, &args, 1))?;
    for db in 0..ctx.keys.space().databases() {
        let keys = ctx.keys.in_db(db, |keys| keys.database().flush());
        ctx.keys.count_changes(keys);
    }
    propagate_flush(ctx, args);
    reply.ok();
    Ok(())
}

/// FLUSHDB [ASYNC | SYNC]
pub(crate) fn flushdb(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    check_flush_mode(Words::new(CommandId::Flushdb, &args, 1))?;
    let keys = ctx.keys.database().flush();
    ctx.keys.count_changes(keys);
    propagate_flush(ctx, args);
    reply.ok();
    Ok(())
}

/// Records a flush in the journal, also one that has found nothing, as Redis does: who copies the data may have more.
fn propagate_flush(ctx: &mut Ctx<'_>, args: Args<'_>) {
    ctx.keys
        .propagate((0..args.len()).map(|index| word(args, index)));
}

/// MEMORY USAGE key [SAMPLES count]: the size of a value is exact, nothing is sampled.
pub(crate) fn memory_usage(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::MemoryUsage, &args, 3);
    while !words.is_empty() {
        let samples = words.pair::<i64>("SAMPLES")?;
        samples.filter(|count| *count >= 0).ok_or(Error::Syntax)?;
    }
    match ctx.keys.find(&args[2], Trace::Quiet) {
        Some(found) => reply.integer(found.memory_bytes() as i64),
        None => reply.null(),
    }
    Ok(())
}

/// SWAPDB index1 index2
pub(crate) fn swapdb(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if ctx.keys.space().is_of_cluster() {
        return Err(Error::line("ERR SWAPDB is not allowed in cluster mode").into());
    }
    let index = |argument: &[u8], error| {
        int(argument)
            .map_err(|_| Error::line(error))
            .map(|index| u32::try_from(index).ok())
    };
    let first = index(&args[1], "ERR invalid first DB index")?;
    let second = index(&args[2], "ERR invalid second DB index")?;
    let exists = |db: Option<u32>| {
        db.filter(|db| *db < ctx.keys.space().databases())
            .ok_or(NO_SUCH_DB)
    };
    let (first, second) = (exists(first)?, exists(second)?);
    if first != second {
        ctx.keys.in_db(first, |keys| keys.database().swap(second));
    }
    ctx.keys.count_changes(1);
    reply.ok();
    Ok(())
}

const SAME_OBJECT: Error = Error::line("ERR source and destination objects are the same");
const NO_SUCH_DB: Error = Error::line("ERR DB index is out of range");

fn db_index(ctx: &Ctx<'_>, argument: &[u8]) -> Result<u32, Error> {
    let index = u32::try_from(int(argument)?).ok();
    index
        .filter(|db| *db < ctx.keys.space().databases())
        .ok_or(NO_SUCH_DB)
}

fn check_flush_mode(mut words: Words<'_>) -> Result<(), Error> {
    // The contents of a database are always freed in the background.
    let _ = words.flag("ASYNC") || words.flag("SYNC");
    words.end()
}

fn reply_number(number: Option<u32>, reply: &mut Reply<'_>) {
    match number {
        Some(number) => reply.integer(i64::from(number)),
        None => reply.null(),
    }
}

/// Moves the value of one key to another; returns true if it did. The new name must be free unless it may be replaced.
fn rename_key(ctx: &mut Ctx<'_>, args: Args<'_>, replace: bool) -> Result<bool, Error> {
    let (from, to) = (&args[1], &args[2]);
    let type_of = |key| ctx.keys.find(key, Trace::Quiet).map(Found::type_name);
    let new_type = type_of(from).ok_or(Error::NoSuchKey)?;
    let old_type = type_of(to);
    if from == to || old_type.is_some() && !replace {
        // The key counts as used all the same.
        ctx.keys.find(from, Trace::Write);
        if from != to {
            ctx.keys.find(to, Trace::Write);
        }
        return Ok(false);
    }
    ctx.keys.remove(to);
    let (value, expire_at_ms) = ctx.keys.take(from).expect("the key exists");
    ctx.keys.put_owned(to, value, expire_at_ms);
    ctx.keys.changed(Classes::GENERIC, "rename_from", from);
    ctx.keys.touch_watchers(to);
    ctx.keys.notify(Classes::GENERIC, "rename_to", to);
    if let Some(old_type) = old_type {
        ctx.keys.notify_replaced(to, old_type, new_type);
    }
    Ok(true)
}

/// Replies with the result of `show` for a key's expiry, a Unix time in milliseconds; with -2 if there is no such key,
/// and with -1 if it has no expiry.
fn reply_expiry(ctx: &Ctx<'_>, key: &[u8], reply: &mut Reply<'_>, show: impl FnOnce(i64) -> i64) {
    let found = ctx.keys.find(key, Trace::Probe);
    reply.integer(match found.map(Found::expire_at_ms) {
        None => -2,
        Some(None) => -1,
        Some(Some(at_ms)) => show(at_ms),
    });
}

/// Rounds a span or time that is not negative to the nearest second.
fn seconds(ms: i64) -> i64 {
    ((ms as u64 + 500) / 1000) as i64
}

/// Sets the expiry to the time in the second argument, in units of `unit_ms`, counted from `base_ms`, if the conditions in
/// `words` hold.
fn expire_at(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    words: Words<'_>,
    base_ms: i64,
    unit_ms: i64,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let key = &args[1];
    let conditions = ExpireConditions::parse(words)?;
    let at_ms = integer(&args[2])?
        .checked_mul(unit_ms)
        .and_then(|ms| ms.checked_add(base_ms))
        .ok_or(Error::InvalidExpire(words.id()))?;
    match ctx.keys.find(key, Trace::Quiet).map(Found::expire_at_ms) {
        Some(current) if conditions.hold(current, at_ms) => {}
        _ => {
            // The key counts as used all the same.
            ctx.keys.find(key, Trace::Write);
            reply.integer(0);
            return Ok(());
        }
    }
    if at_ms <= ctx.keys.now_ms() {
        ctx.keys.remove(key);
        ctx.keys.changed(Classes::GENERIC, "del", key);
        ctx.keys.propagate(&[b"DEL", key]);
    } else {
        ctx.keys.set_expiry(key, Some(at_ms));
        ctx.keys.changed(Classes::GENERIC, "expire", key);
        propagate_expiry(ctx, key, at_ms);
    }
    reply.integer(1);
    Ok(())
}

/// Records in the journal that a key expires at that Unix time in milliseconds.
pub(crate) fn propagate_expiry(ctx: &mut Ctx<'_>, key: &[u8], at_ms: i64) {
    if ctx.keys.is_journaled() {
        let at_ms = IntText::new(at_ms);
        ctx.keys.propagate(&[b"PEXPIREAT", key, at_ms.as_ref()]);
    }
}

/// Conditions on the current expiry under which EXPIRE sets another.
#[derive(Default)]
struct ExpireConditions {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
}

impl ExpireConditions {
    fn parse(mut words: Words<'_>) -> Result<ExpireConditions, Error> {
        let mut conditions = ExpireConditions::default();
        while let Some(word) = words.peek() {
            if words.flag("NX") {
                conditions.nx = true;
            } else if words.flag("XX") {
                conditions.xx = true;
            } else if words.flag("GT") {
                conditions.gt = true;
            } else if words.flag("LT") {
                conditions.lt = true;
            } else {
                return Err(Error::quoting("ERR Unsupported option ", word, ""));
            }
        }
        let ExpireConditions { nx, xx, gt, lt } = conditions;
        if nx && (xx || gt || lt) {
            return Err(Error::line(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if gt && lt {
            return Err(Error::line(
                "ERR GT and LT options at the same time are not compatible",
            ));
        }
        Ok(conditions)
    }

    /// Returns true if the conditions hold. A key without an expiry counts as one that expires after all others.
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

    /// Ensures that each use counts one with these settings. Recorded from Redis 8.2.3.
    #[test]
    fn a_command_uses_each_key_once() {
        let mut db = TestDb::new();
        db.local.clock.lfu = true;
        db.local.clock.log_factor = 0;
        db.local.clock.decay_minutes = 0;
        for (calls, uses) in [
            ("SET a 1/GETEX a EX 100", "a 6"),
            ("SET a 1/SET b 1/RENAMENX a b", "a 6/b 6"),
            ("SET a 1/RENAMENX a a", "a 6"),
            ("HSET a f v/HSETEX a FXX FIELDS 1 g w", "a 6"),
            ("HSET a f v/HSETEX a FIELDS 1 f w", "a 6"),
            ("RPUSH a x y/RPUSH b z/LMOVE a b LEFT LEFT", "a 6/b 6"),
            ("RPUSH a x y/LMOVE a a LEFT RIGHT", "a 7"),
            ("RPUSH a x y/BLPOP a 1", "a 6"),
            ("RPUSH a x y/LSET a 0 z", "a 6"),
            ("RPUSH a x y/LPUSHX a z", "a 6"),
            ("SADD a x y/SADD b z/SMOVE a b x", "a 6/b 6"),
            ("SADD a x y/SADD b z/SMOVE a b none", "a 6/b 6"),
            ("SADD a x y/SPOP a", "a 6"),
            ("ZADD a 1 x 2 y/ZMPOP 1 a MIN", "a 6"),
            ("ZADD a 1 x 2 y/ZPOPMIN a", "a 6"),
            ("XADD a 1-1 f v/XDEL a 1-1", "a 6"),
        ] {
            db.words("FLUSHALL");
            calls.split('/').for_each(|call| drop(db.words(call)));
            for used in uses.split('/') {
                let (key, count) = used.split_once(' ').unwrap();
                let found = db.words(&format!("OBJECT FREQ {key}"));
                assert_eq!(found, format!(":{count}"), "{calls}: {key}");
            }
        }
    }

    #[test]
    fn an_expiry_that_is_not_changed_is_an_access_to_the_key() {
        let mut db = TestDb::new();
        db.local.clock.lfu = true;
        (db.local.clock.log_factor, db.local.clock.decay_minutes) = (0, 0);
        db.script(&[
            ("SET k v", "+OK"),
            ("PERSIST k", ":0"),
            ("EXPIRE k 100 XX", ":0"),
            ("OBJECT FREQ k", ":7"),
            ("EXPIRE k 100", ":1"),
            ("OBJECT FREQ k", ":8"),
            ("PEXPIRE k 100 GT", ":0"),
            ("PERSIST k", ":1"),
            ("OBJECT FREQ k", ":10"),
            ("PERSIST none", ":0"),
        ]);
    }

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
        db.script(&[
            ("EXISTS k", ":0"),
            ("SET k v", "+OK"),
            ("EXPIRE k -1", ":1"),
            ("DEL k", ":0"),
        ]);
    }
}
