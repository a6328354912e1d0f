//! Commands of the group `zset`: single members, random members and scans; and common parts of the files below.

use redline_keyspace::{Classes, Expiry, Found, Trace};
use redline_resp::{Args, Proto, Reply, format_double};
use redline_spec::CommandId;
use redline_types::{
    DataType, Element, IntBuf, Zset,
    zset::{AddError, AddFlags, Added},
};

use crate::{
    Ctx, Error, Failure,
    element::{bulk, draw},
    scan::{self, ScanOptions},
    words::{Words, float, signed_count},
};

pub(crate) use {combine::*, pop::*, range::*};

mod combine;
mod pop;
mod range;

const NOT_A_SCORE_RANGE: Error = Error::line("ERR min or max is not a float");
const NOT_A_LEX_RANGE: Error = Error::line("ERR min or max not valid string range item");

// ---- single members -----------------------------------------------------------------------------

/// ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member …]
pub(crate) fn zadd(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut flags = AddFlags::default();
    let mut count_changed = false;
    let mut words = Words::new(CommandId::Zadd, &args, 2);
    loop {
        if words.flag("NX") {
            flags.nx = true;
        } else if words.flag("XX") {
            flags.xx = true;
        } else if words.flag("CH") {
            count_changed = true;
        } else if words.flag("INCR") {
            flags.incr = true;
        } else if words.flag("GT") {
            flags.gt = true;
        } else if words.flag("LT") {
            flags.lt = true;
        } else {
            break;
        }
    }
    let pairs = words.rest();
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Error::Syntax.into());
    }
    if flags.nx && flags.xx {
        return Err(
            Error::line("ERR XX and NX options at the same time are not compatible").into(),
        );
    }
    if u8::from(flags.nx) + u8::from(flags.gt) + u8::from(flags.lt) > 1 {
        return Err(Error::line(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        )
        .into());
    }
    if flags.incr && pairs.len() > 2 {
        return Err(Error::line("ERR INCR option supports a single increment-element pair").into());
    }
    let tally = add(ctx, &args[1], pairs, flags)?;
    if flags.incr {
        match tally.score {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    } else {
        let changed = if count_changed { tally.changed } else { 0 };
        reply.integer((tally.new + changed) as i64);
    }
    Ok(())
}

/// ZINCRBY key increment member
pub(crate) fn zincrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    // An option of ZADD is read as one here, too, and leaves an incomplete pair.
    let mut words = Words::new(CommandId::Zadd, &args, 2);
    let options = ["NX", "XX", "GT", "LT", "CH", "INCR"];
    if options.iter().any(|option| words.flag(option)) {
        return Err(Error::Syntax.into());
    }
    let flags = AddFlags {
        incr: true,
        ..AddFlags::default()
    };
    let tally = add(ctx, &args[1], args.from(2), flags)?;
    reply.double(tally.score.expect("no flag refuses it"));
    Ok(())
}

/// Result of adding members.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) new: u64,
    pub(crate) changed: u64,
    /// Score of the last member that was not refused.
    score: Option<f64>,
}

/// Adds pairs of score and member. If a score is no number, none is added.
fn add(ctx: &mut Ctx<'_>, key: &[u8], pairs: Args<'_>, flags: AddFlags) -> Result<Tally, Error> {
    for index in (0..pairs.len()).step_by(2) {
        float(&pairs[index])?;
    }
    let pair = |index: usize| {
        let score = float(&pairs[index * 2]).expect("parsed above");
        (score, &pairs[index * 2 + 1])
    };
    add_all(ctx, key, pairs.len() / 2, pair, flags)
}

/// Adds this number of pairs of score and member, with their event.
pub(crate) fn add_all<'a>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    pairs: usize,
    pair: impl Fn(usize) -> (f64, &'a [u8]),
    flags: AddFlags,
) -> Result<Tally, Error> {
    let mut failed = None;
    let tally = ctx
        .keys
        .write_or_new_if::<Zset, _>(key, !flags.xx, |zset, limits| {
            let mut tally = Tally::default();
            if zset.expect(pairs, limits).is_err() {
                failed = Some(full());
                return tally;
            }
            for index in 0..pairs {
                let (score, member) = pair(index);
                match zset.add(member, score, flags, limits) {
                    Ok(Added::New(score)) => {
                        tally.new += 1;
                        tally.score = Some(score);
                    }
                    Ok(Added::Changed(score)) => {
                        tally.changed += 1;
                        tally.score = Some(score);
                    }
                    Ok(Added::Same(score)) => tally.score = Some(score),
                    Ok(Added::Refused) => {}
                    Err(error) => {
                        failed = Some(add_error(error));
                        break;
                    }
                }
            }
            tally
        })?;
    let tally = tally.unwrap_or_default();
    if tally.new + tally.changed > 0 {
        let event = if flags.incr { "zincr" } else { "zadd" };
        ctx.keys.changed(Classes::ZSET, event, key);
        ctx.keys.count_changes(tally.new + tally.changed - 1);
    }
    failed.map_or(Ok(tally), Err)
}

pub(crate) fn add_error(error: AddError) -> Error {
    match error {
        AddError::NotANumber => Error::line("ERR resulting score is not a number (NaN)"),
        AddError::Full => full(),
    }
}

fn full() -> Error {
    Error::line("ERR the sorted set has no room for another member")
}

/// ZREM key member [member …]
pub(crate) fn zrem(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let members = args.from(2);
    let removed = ctx.keys.write::<Zset, _>(&args[1], |zset, _| {
        members
            .iter()
            .filter(|member| zset.remove(member).is_some())
            .count()
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.keys.changed(Classes::ZSET, "zrem", &args[1]);
        ctx.keys.count_changes(removed as u64 - 1);
    }
    reply.integer(removed as i64);
    Ok(())
}

/// ZCARD key
pub(crate) fn zcard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let found = ctx.keys.find(&args[1], Trace::Read);
    let len = found.map(Found::len::<Zset>).transpose()?;
    reply.integer(len.unwrap_or(0) as i64);
    Ok(())
}

/// ZSCORE key member
pub(crate) fn zscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let zset = ctx.keys.read::<Zset>(&args[1])?;
    match zset.and_then(|zset| zset.score(&args[2])) {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
    Ok(())
}

/// ZMSCORE key member [member …]
pub(crate) fn zmscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let zset = ctx.keys.read::<Zset>(&args[1])?;
    let members = args.from(2);
    reply.array(members.len());
    for member in members.iter() {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => reply.double(score),
            None => reply.null(),
        }
    }
    Ok(())
}

/// ZRANK key member [WITHSCORE]
pub(crate) fn zrank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Zrank, &args, 3);
    Ok(rank(ctx, args, words, |rank, _| rank, reply)?)
}

/// ZREVRANK key member [WITHSCORE]
pub(crate) fn zrevrank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Zrevrank, &args, 3);
    Ok(rank(ctx, args, words, |rank, len| len - 1 - rank, reply)?)
}

fn rank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    mut words: Words<'_>,
    counted: impl FnOnce(usize, usize) -> usize,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    if words.len() > 1 {
        return Err(words.wrong_arity());
    }
    let with_score = words.flag("WITHSCORE");
    words.end()?;
    let zset = ctx.keys.read::<Zset>(&args[1])?;
    match zset.and_then(|zset| Some((zset.len(), zset.rank(&args[2])?))) {
        None if with_score => reply.null_array(),
        None => reply.null(),
        Some((len, (rank, score))) => {
            if with_score {
                reply.array(2);
            }
            reply.integer(counted(rank, len) as i64);
            if with_score {
                reply.double(score);
            }
        }
    }
    Ok(())
}

// ---- random members and scans -------------------------------------------------------------------

/// ZRANDMEMBER key [count [WITHSCORES]]
pub(crate) fn zrandmember(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut rng = ctx.keys.local.rng.clone();
    let random = &mut || rng.u64(..);
    let Some(count) = args.get(2) else {
        let zset = ctx.keys.read::<Zset>(&args[1])?;
        match zset.and_then(|zset| zset.random_member(random)) {
            Some((member, _)) => bulk(reply, member),
            None => reply.null(),
        }
        ctx.keys.local.rng = rng;
        return Ok(());
    };
    let count = signed_count(count)?;
    let mut words = Words::new(CommandId::Zrandmember, &args, 3);
    let with_scores = words.flag("WITHSCORES");
    words.end()?;
    let most = if with_scores { i64::MAX / 2 } else { i64::MAX };
    if count < -most || count > most {
        return Err(Error::OutOfRange.into());
    }
    let bytes_max = ctx.bulk_bytes_max;
    let Some(zset) = ctx.keys.read::<Zset>(&args[1])? else {
        reply.array(0);
        return Ok(());
    };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 {
        Pairs::begin(reply, wanted, with_scores);
        draw(reply, wanted, bytes_max, |reply, portion, bound| {
            for _ in 0..portion {
                if !bound.leaves_room(reply) {
                    break;
                }
                let (member, score) = zset
                    .random_member(random)
                    .expect("a stored set is not empty");
                Pairs::go_on(reply, with_scores).write(member, score);
            }
        })?;
    } else {
        let given = wanted.min(zset.len());
        let mut pairs = Pairs::begin(reply, given, with_scores);
        zset.random_distinct_members(given, random, |member, score| pairs.write(member, score));
    }
    ctx.keys.local.rng = rng;
    Ok(())
}

/// ZSCAN key cursor [MATCH pattern] [COUNT count] [NOSCORES]
pub(crate) fn zscan(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let cursor = scan::cursor(&args[2])?;
    let Some(zset) = ctx.keys.read::<Zset>(&args[1])? else {
        return scan::framed(reply, |_| Ok((0, 0)));
    };
    let options = ScanOptions::parse(Words::new(CommandId::Zscan, &args, 3))?;
    scan::framed(reply, |reply| {
        let mut elements = 0;
        let mut text = Vec::new();
        let next = zset.scan(cursor, options.count as usize, |member, score| {
            if options.matches(member.bytes(&mut IntBuf::new())) {
                bulk(reply, member);
                elements += 1;
                if options.no_values {
                    return;
                }
                text.clear();
                format_double(score, &mut text);
                reply.bulk(&text);
                elements += 1;
            }
        });
        Ok((next, elements))
    })
}

// ---- common parts of the files below -------------------------------------------------------------

/// Writer of an array of members, with their scores if wanted: in RESP3 each pair is an array of its own.
struct Pairs<'r, 'b> {
    reply: &'r mut Reply<'b>,
    with_scores: bool,
    nested: bool,
}

impl<'r, 'b> Pairs<'r, 'b> {
    fn begin(reply: &'r mut Reply<'b>, members: usize, with_scores: bool) -> Pairs<'r, 'b> {
        let nested = with_scores && reply.proto() == Proto::Resp3;
        reply.array(if with_scores && !nested {
            members * 2
        } else {
            members
        });
        Pairs {
            reply,
            with_scores,
            nested,
        }
    }

    /// Continues a reply that has begun.
    fn go_on(reply: &'r mut Reply<'b>, with_scores: bool) -> Pairs<'r, 'b> {
        let nested = with_scores && reply.proto() == Proto::Resp3;
        Pairs {
            reply,
            with_scores,
            nested,
        }
    }

    #[inline]
    fn write(&mut self, member: Element<'_>, score: f64) {
        if self.nested {
            self.reply.array(2);
        }
        bulk(self.reply, member);
        if self.with_scores {
            self.reply.double(score);
        }
    }
}

/// Stores this set at the destination and replies with its size; an empty one removes the key.
pub(crate) fn store(
    ctx: &mut Ctx<'_>,
    destination: &[u8],
    result: Zset,
    event: &'static str,
    reply: &mut Reply<'_>,
) {
    let members = result.len();
    if members > 0 {
        ctx.keys.insert(destination, result, Expiry::Clear);
        ctx.keys.changed(Classes::ZSET, event, destination);
    } else if ctx.keys.remove_for_nothing(destination) {
        ctx.keys.changed(Classes::GENERIC, "del", destination);
    }
    reply.integer(members as i64);
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn adding() {
        let mut db = TestDb::new();
        db.script(&[
            ("ZADD z 1 a 2 b", ":2"),
            ("ZADD z 1 a 3 b 4 c", ":1"),
            ("ZADD z CH 2 a 3 b", ":1"),
            ("ZADD z NX 9 a", ":0"),
            ("ZADD z XX CH 9 a 1 x", ":1"),
            ("ZADD z GT CH 1 a", ":0"),
            ("ZADD z LT CH 1 a", ":1"),
            ("ZADD z INCR 1.5 a", "$3|2.5"),
            ("ZADD z NX INCR 1 a", "$-1"),
            (
                "ZADD z INCR 1 a 2 b",
                "-ERR INCR option supports a single increment-element pair",
            ),
            (
                "ZADD z NX XX 1 a",
                "-ERR XX and NX options at the same time are not compatible",
            ),
            (
                "ZADD z GT LT 1 a",
                "-ERR GT, LT, and/or NX options at the same time are not compatible",
            ),
            ("ZADD z 1 a 2", "-ERR syntax error"),
            ("ZADD z x a", "-ERR value is not a valid float"),
            ("ZADD none XX 1 a", ":0"),
            ("EXISTS none", ":0"),
            ("ZINCRBY z GT 1", "-ERR syntax error"),
            ("ZINCRBY z ch nan", "-ERR syntax error"),
            ("ZINCRBY z inf a", "$3|inf"),
            (
                "ZINCRBY z -inf a",
                "-ERR resulting score is not a number (NaN)",
            ),
            ("ZSCORE z b", "$1|3"),
            ("ZMSCORE z b x", "*2|$1|3|$-1"),
            ("ZREM z a b c", ":3"),
            ("ZCARD z", ":0"),
        ]);
    }
}
