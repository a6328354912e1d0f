//! Commands of the group `hash`.

use redline_keyspace::{Classes, Found, Trace};
use redline_resp::{Args, Proto, Reply};
use redline_spec::CommandId;
use redline_types::{DataType, Element, Hash, IntBuf, Live, number};

use crate::{
    Ctx, Error, Failure,
    element::{bulk, draw},
    scan::{self, ScanOptions},
    words::{Words, integer, signed_count},
};

/// HDEL key field [field …]
pub(crate) fn hdel(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let fields = args.from(2);
    let deleted = ctx.keys.write::<Hash, _>(&args[1], |hash, _| {
        fields.iter().filter(|field| hash.remove(field)).count()
    })?;
    let deleted = deleted.unwrap_or(0);
    if deleted > 0 {
        ctx.keys.changed(Classes::HASH, "hdel", &args[1]);
        ctx.keys.count_changes(deleted as u64 - 1);
    }
    reply.integer(deleted as i64);
    Ok(())
}

/// HEXISTS key field
pub(crate) fn hexists(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let hash = live(ctx, &args[1])?;
    let found = hash.is_some_and(|hash| hash.get(&args[2]).is_some());
    reply.integer(i64::from(found));
    if !found {
        ctx.keys.expire_fields(&args[1], args.from(2).iter());
    }
    Ok(())
}

/// HGET key field
pub(crate) fn hget(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    match live(ctx, &args[1])?.and_then(|hash| hash.get(&args[2])) {
        Some(value) => bulk(reply, value),
        None => {
            reply.null();
            ctx.keys.expire_fields(&args[1], args.from(2).iter());
        }
    }
    Ok(())
}

/// HGETALL key
pub(crate) fn hgetall(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let hash = live(ctx, &args[1])?;
    reply.map(hash.map_or(0, Live::count));
    if let Some(hash) = hash {
        hash.for_each(|field, value| {
            bulk(reply, field);
            bulk(reply, value);
        });
    }
    Ok(())
}

/// HINCRBY key field increment
pub(crate) fn hincrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let increment = integer(&args[3])?;
    ctx.keys
        .expire_fields(&args[1], args.from(2).iter().take(1));
    let sum = ctx.keys.write_or_new::<Hash, _>(&args[1], |hash, limits| {
        let value = match hash.get(&args[2]) {
            None => 0,
            Some(value) => value
                .to_i64()
                .ok_or(Error::line("ERR hash value is not an integer"))?,
        };
        let sum = value.checked_add(increment).ok_or(Error::Overflow)?;
        hash.set_keeping_expiry(&args[2], IntBuf::new().format(sum), limits);
        Ok::<i64, Error>(sum)
    })?;
    let sum = sum?;
    ctx.keys.changed(Classes::HASH, "hincrby", &args[1]);
    reply.integer(sum);
    Ok(())
}

/// HINCRBYFLOAT key field increment
pub(crate) fn hincrbyfloat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let increment = number::Extended::parse(&args[3]).ok_or(Error::NotFloat)?;
    if !increment.is_finite() {
        return Err(Error::line("ERR value is NaN or Infinity").into());
    }
    ctx.keys
        .expire_fields(&args[1], args.from(2).iter().take(1));
    let edited = ctx.keys.write_or_new::<Hash, _>(&args[1], |hash, limits| {
        let value = match hash.get(&args[2]) {
            None => number::Extended::parse(b"0"),
            Some(value) => number::Extended::parse(value.bytes(&mut IntBuf::new())),
        };
        let value = value.ok_or(Error::line("ERR hash value is not a float"))?;
        let sum = value
            .checked_add(increment)
            .ok_or(Error::line("ERR increment would produce NaN or Infinity"))?;
        let mut text = Vec::new();
        sum.format(&mut text);
        hash.set_keeping_expiry(&args[2], &text, limits);
        Ok::<_, Error>((text, hash.earliest_expiry_ms().is_some()))
    })?;
    let (text, is_timed) = edited?;
    ctx.keys.changed(Classes::HASH, "hincrbyfloat", &args[1]);
    match is_timed {
        // HSET would remove the field's expiry.
        true => ctx.keys.propagate(&[
            b"HSETEX", &args[1], b"KEEPTTL", b"FIELDS", b"1", &args[2], &text,
        ]),
        // Servers that have no HSETEX know it.
        false => ctx.keys.propagate(&[b"HSET", &args[1], &args[2], &text]),
    }
    reply.bulk(&text);
    Ok(())
}

/// HKEYS key
pub(crate) fn hkeys(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(one_side(ctx, args, |(field, _)| field, reply)?)
}

/// HVALS key
pub(crate) fn hvals(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(one_side(ctx, args, |(_, value)| value, reply)?)
}

fn one_side(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    side: impl for<'a> Fn((Element<'a>, Element<'a>)) -> Element<'a>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let hash = live(ctx, &args[1])?;
    reply.array(hash.map_or(0, Live::count));
    if let Some(hash) = hash {
        hash.for_each(|field, value| bulk(reply, side((field, value))));
    }
    Ok(())
}

/// HLEN key: expired fields that are not deleted yet count, as in Redis.
pub(crate) fn hlen(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = ctx.keys.find(&args[1], Trace::Read);
    let len = found.map(Found::len::<Hash>).transpose()?;
    reply.integer(len.unwrap_or(0) as i64);
    Ok(())
}

/// HMGET key field [field …]
pub(crate) fn hmget(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let hash = live(ctx, &args[1])?;
    let fields = args.from(2);
    reply.array(fields.len());
    for field in fields.iter() {
        match hash.and_then(|hash| hash.get(field)) {
            Some(value) => bulk(reply, value),
            None => reply.null(),
        }
    }
    ctx.keys.expire_fields(&args[1], fields.iter());
    Ok(())
}

/// HMSET key field value [field value …]
pub(crate) fn hmset(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    set_all(ctx, args, "hmset")?;
    reply.ok();
    Ok(())
}

/// HSET key field value [field value …]
pub(crate) fn hset(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let new = set_all(ctx, args, "hset")?;
    reply.integer(new as i64);
    Ok(())
}

fn set_all(ctx: &mut Ctx<'_>, args: Args<'_>, name: &'static str) -> Result<usize, Error> {
    let pairs = args.from(2);
    if !pairs.len().is_multiple_of(2) {
        return Err(Error::wrong_arity(name));
    }
    let new = ctx
        .keys
        .write_or_new::<Hash, _>(&args[1], |hash, limits| hash.set_all(pairs.iter(), limits))?;
    ctx.keys.changed(Classes::HASH, "hset", &args[1]);
    ctx.keys.count_changes(pairs.len() as u64 / 2 - 1);
    Ok(new)
}

/// HRANDFIELD key [count [WITHVALUES]]
pub(crate) fn hrandfield(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let Some(count) = args.get(2) else {
        let mut rng = ctx.keys.local.rng.clone();
        let hash = live(ctx, &args[1])?;
        match hash.and_then(|hash| hash.random_entry(&mut || rng.u64(..))) {
            Some((field, _)) => bulk(reply, field),
            None => reply.null(),
        }
        ctx.keys.local.rng = rng;
        return Ok(());
    };
    let count = signed_count(count)?;
    let mut words = Words::new(CommandId::Hrandfield, &args, 3);
    let with_values = words.flag("WITHVALUES");
    words.end()?;
    let most = if with_values { i64::MAX / 2 } else { i64::MAX };
    if count < -most || count > most {
        return Err(Error::OutOfRange.into());
    }
    let bytes_max = ctx.bulk_bytes_max;
    let mut rng = ctx.keys.local.rng.clone();
    let Some(hash) = live(ctx, &args[1])? else {
        reply.array(0);
        return Ok(());
    };
    let nested = with_values && reply.proto() == Proto::Resp3;
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let given = match hash.count() {
        0 => 0,
        _ if count < 0 => wanted,
        all => wanted.min(all),
    };
    reply.array(if with_values && !nested {
        given * 2
    } else {
        given
    });
    let random = &mut || rng.u64(..);
    let write = |reply: &mut Reply<'_>, field: Element<'_>, value: Element<'_>| {
        if nested {
            reply.array(2);
        }
        bulk(reply, field);
        if with_values {
            bulk(reply, value);
        }
    };
    if count < 0 {
        draw(reply, given, bytes_max, |reply, portion, bound| {
            hash.random_entries(portion, random, |field, value| {
                if bound.leaves_room(reply) {
                    write(reply, field, value);
                }
            });
        })?;
    } else {
        hash.random_distinct_entries(given, random, |field, value| write(reply, field, value));
    }
    ctx.keys.local.rng = rng;
    Ok(())
}

/// HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]
pub(crate) fn hscan(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let cursor = scan::cursor(&args[2])?;
    let Some(hash) = live(ctx, &args[1])? else {
        return scan::framed(reply, |_| Ok((0, 0)));
    };
    let options = ScanOptions::parse(Words::new(CommandId::Hscan, &args, 3))?;
    scan::framed(reply, |reply| {
        let mut elements = 0;
        let next = hash.scan(cursor, options.count as usize, |field, value| {
            if options.matches(field.bytes(&mut IntBuf::new())) {
                bulk(reply, field);
                elements += 1;
                if !options.no_values {
                    bulk(reply, value);
                    elements += 1;
                }
            }
        });
        Ok((next, elements))
    })
}

/// HSETNX key field value
pub(crate) fn hsetnx(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    ctx.keys
        .expire_fields(&args[1], args.from(2).iter().take(1));
    let set = ctx.keys.write_or_new::<Hash, _>(&args[1], |hash, limits| {
        hash.set_if_absent(&args[2], &args[3], limits)
    })?;
    if set {
        ctx.keys.changed(Classes::HASH, "hset", &args[1]);
    }
    reply.integer(i64::from(set));
    Ok(())
}

/// HSTRLEN key field
pub(crate) fn hstrlen(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let value = live(ctx, &args[1])?.and_then(|hash| hash.get(&args[2]));
    reply.integer(value.map_or(0, |value| value.len() as i64));
    if value.is_none() {
        ctx.keys.expire_fields(&args[1], args.from(2).iter());
    }
    Ok(())
}

/// Returns the hash without the fields that have expired. Counts as an access.
fn live<'a>(ctx: &'a Ctx<'_>, key: &[u8]) -> Result<Option<Live<'a>>, Error> {
    let now_ms = ctx.keys.now_ms();
    let hash = ctx.keys.read::<Hash>(key)?;
    Ok(hash.map(|hash| hash.live(now_ms)))
}

#[cfg(test)]
mod tests {
    use redline_resp::Proto;

    use crate::testing::TestDb;

    #[test]
    fn fields_and_values() {
        let mut db = TestDb::new();
        db.script(&[
            ("HSET h a 1 b 2", ":2"),
            (
                "HSET h a 3 c",
                "-ERR wrong number of arguments for 'hset' command",
            ),
            ("HSET h a 3 c 4", ":1"),
            ("HGET h a", "$1|3"),
            ("HGET h x", "$-1"),
            ("HMGET h a x c", "*3|$1|3|$-1|$1|4"),
            ("HGETALL h", "*6|$1|a|$1|3|$1|b|$1|2|$1|c|$1|4"),
            ("HKEYS h", "*3|$1|a|$1|b|$1|c"),
            ("HVALS h", "*3|$1|3|$1|2|$1|4"),
            ("HSETNX h a 9", ":0"),
            ("HSETNX h d 9", ":1"),
            ("HSTRLEN h d", ":1"),
            ("HLEN h", ":4"),
            ("HEXISTS h d", ":1"),
            ("HMSET h e 5", "+OK"),
            ("HDEL h a b c d e x", ":5"),
            ("HLEN h", ":0"),
            ("HGETALL none", "*0"),
        ]);
        assert_eq!(
            db.events(),
            ["hset h", "hset h", "hset h", "hset h", "hdel h", "del h"]
        );
    }

    #[test]
    fn sums() {
        let mut db = TestDb::new();
        db.script(&[
            ("HINCRBY h n 5", ":5"),
            ("HINCRBY h n -7", ":-2"),
            ("HINCRBY h n 9223372036854775807", ":9223372036854775805"),
            (
                "HINCRBY h n 9",
                "-ERR increment or decrement would overflow",
            ),
            ("HSET h t text", ":1"),
            ("HINCRBY h t 1", "-ERR hash value is not an integer"),
            ("HINCRBYFLOAT h t 1", "-ERR hash value is not a float"),
            ("HINCRBYFLOAT h f 10.5", "$4|10.5"),
            ("HINCRBYFLOAT h f 0.1", "$4|10.6"),
            ("HINCRBYFLOAT h f inf", "-ERR value is NaN or Infinity"),
            ("HINCRBYFLOAT h f x", "-ERR value is not a valid float"),
            (
                "HINCRBY none t x",
                "-ERR value is not an integer or out of range",
            ),
            ("EXISTS none", ":0"),
        ]);
    }

    #[test]
    fn random_fields() {
        let mut db = TestDb::new();
        db.script(&[
            ("HRANDFIELD none", "$-1"),
            ("HRANDFIELD none 3", "*0"),
            ("HSET h a 1", ":1"),
            ("HRANDFIELD h", "$1|a"),
            ("HRANDFIELD h 5 WITHVALUES", "*2|$1|a|$1|1"),
            ("HRANDFIELD h -2", "*2|$1|a|$1|a"),
            ("HRANDFIELD h 2 VALUES", "-ERR syntax error"),
            (
                "HRANDFIELD h -9223372036854775808 WITHVALUES",
                "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
            ),
        ]);
        db.proto = Proto::Resp3;
        db.script(&[
            ("HRANDFIELD h 1 WITHVALUES", "*1|*2|$1|a|$1|1"),
            ("HGETALL h", "%1|$1|a|$1|1"),
            ("HRANDFIELD none", "_"),
        ]);
    }

    #[test]
    fn scans() {
        let mut db = TestDb::new();
        db.script(&[
            ("HSET h a1 1 b1 2", ":2"),
            ("HSCAN h 0 MATCH a*", "*2|$1|0|*2|$2|a1|$1|1"),
            ("HSCAN h 0 NOVALUES", "*2|$1|0|*2|$2|a1|$2|b1"),
            ("HSCAN none 0", "*2|$1|0|*0"),
            ("HSCAN h x", "-ERR invalid cursor"),
        ]);
    }
}
