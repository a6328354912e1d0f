//! Tair's exZsets, whose scores have several parts: `1#2.5#3`. Single members here; ranges, algebra and removal from an end
//! in the files below.

mod combine;
mod pop;
mod range;
mod score;

pub(crate) use combine::*;
pub(crate) use pop::*;
pub(crate) use range::*;

use redline_keyspace::{Classes, Found, Trace};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, ExZset,
    zset::{Full, several::Added},
};

use crate::{
    Ctx, Error, Failure,
    element::draw,
    scan::{self, ScanOptions},
    words::{Words, signed_count},
};
use score::{INVALID_SCORE, parse, write};

const TOO_MANY: Error = Error::line("ERR the sorted set has no room for more members");

impl From<Full> for Error {
    fn from(_: Full) -> Error {
        TOO_MANY
    }
}

/// Returns an exZset that is about to be changed.
fn find<'v>(ctx: &'v Ctx<'_>, key: &[u8]) -> Result<Option<&'v ExZset>, Error> {
    let found = ctx.keys.find(key, Trace::Write);
    Ok(found.map(Found::collection::<ExZset>).transpose()?)
}

/// Conditions of EXZADD, and what it answers.
#[derive(Clone, Copy, Debug, Default)]
struct AddFlags {
    nx: bool,
    xx: bool,
    ch: bool,
    incr: bool,
}

/// EXZADD key [NX | XX] [CH] [INCR] score member [score member …]
pub(crate) fn exzadd(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::Exzadd, &args, 2);
    let mut flags = AddFlags::default();
    loop {
        match () {
            () if words.flag("NX") => flags.nx = true,
            () if words.flag("XX") => flags.xx = true,
            () if words.flag("CH") => flags.ch = true,
            () if words.flag("INCR") => flags.incr = true,
            () => break,
        }
    }
    Ok(add(ctx, &args[1], flags, words.rest(), "exzadd", reply)?)
}

/// EXZINCRBY key increment member
pub(crate) fn exzincrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let flags = AddFlags {
        incr: true,
        ..AddFlags::default()
    };
    Ok(add(ctx, &args[1], flags, args.from(2), "exzincrby", reply)?)
}

fn add(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    flags: AddFlags,
    pairs: Args<'_>,
    event: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    if flags.nx && flags.xx {
        return Err(Error::line(
            "ERR XX and NX options at the same time are not compatible",
        ));
    }
    if flags.incr && pairs.len() > 2 {
        return Err(Error::line(
            "ERR INCR option supports a single increment-element pair",
        ));
    }
    let mut given = Vec::with_capacity(pairs.len() / 2);
    for at in (0..pairs.len()).step_by(2) {
        let score = parse(&pairs[at]).ok_or(INVALID_SCORE)?;
        given.push((score, &pairs[at + 1]));
    }
    let parts = given[0].0.len();
    if given.iter().any(|(score, _)| score.len() != parts) {
        return Err(INVALID_SCORE);
    }
    let found = find(ctx, key)?;
    if found.is_some_and(|zset| zset.parts() != parts) {
        return Err(INVALID_SCORE);
    }
    if flags.incr
        && let Some(present) = found.and_then(|zset| zset.score(given[0].1))
        && !flags.nx
    {
        for (part, present) in given[0].0.iter_mut().zip(present) {
            *part += present;
            if part.is_nan() {
                return Err(Error::line("ERR resulting score is not a number (NaN)"));
            }
        }
    }
    let (mut added, mut changed, mut processed) = (0, 0, 0);
    let mut result = Ok(());
    if found.is_some() || !flags.xx {
        result = ctx.keys.write_or_new::<ExZset, _>(key, |zset, _| {
            for (score, member) in &given {
                if (flags.nx || flags.xx) && zset.score(member).is_some() != flags.xx {
                    continue;
                }
                processed += 1;
                match zset.add(member, score)? {
                    Added::New => added += 1,
                    Added::Changed => changed += 1,
                    Added::Same => {}
                }
            }
            Ok::<_, Full>(())
        })?;
    }
    // What was added before there was no room stays, and is told.
    if added + changed > 0 {
        ctx.keys.changed(Classes::MODULE, event, key);
        ctx.keys.count_changes((added + changed - 1) as u64);
    }
    result?;
    match (flags.incr, processed) {
        (true, 0) => reply.null(),
        (true, _) => write(reply, &given[0].0),
        (false, _) => reply.integer(if flags.ch { added + changed } else { added }),
    }
    Ok(())
}

/// EXZSCORE key member
pub(crate) fn exzscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let zset = ctx.keys.read::<ExZset>(&args[1])?;
    match zset.and_then(|zset| zset.score(&args[2])) {
        Some(score) => write(reply, &score),
        None => reply.null(),
    }
    Ok(())
}

/// EXZMSCORE key member [member …]
pub(crate) fn exzmscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let zset = ctx.keys.read::<ExZset>(&args[1])?;
    let members = args.from(2);
    reply.array(members.len());
    for member in members.iter() {
        match zset.and_then(|zset| zset.score(member)) {
            Some(score) => write(reply, &score),
            None => reply.null(),
        }
    }
    Ok(())
}

/// EXZCARD key
pub(crate) fn exzcard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let zset = ctx.keys.read::<ExZset>(&args[1])?;
    reply.integer(zset.map_or(0, ExZset::len) as i64);
    Ok(())
}

/// EXZREM key member [member …]
pub(crate) fn exzrem(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let removed = ctx.keys.write::<ExZset, _>(key, |zset, _| {
        let members = args.from(2);
        members.iter().filter(|member| zset.remove(member)).count()
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.keys.changed(Classes::MODULE, "exzrem", key);
        ctx.keys.count_changes(removed as u64 - 1);
    }
    reply.integer(removed as i64);
    Ok(())
}

/// EXZRANK key member
pub(crate) fn exzrank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(rank(ctx, args, reply, |zset, rank| rank.min(zset.len()))?)
}

/// EXZREVRANK key member
pub(crate) fn exzrevrank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(rank(ctx, args, reply, |zset, rank| zset.len() - 1 - rank)?)
}

fn rank(
    ctx: &Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    turned: impl Fn(&ExZset, usize) -> usize,
) -> Result<(), Error> {
    let zset = ctx.keys.read::<ExZset>(&args[1])?;
    match zset.and_then(|zset| Some(turned(zset, zset.rank(&args[2])?))) {
        Some(rank) => reply.integer(rank as i64),
        None => reply.null(),
    }
    Ok(())
}

/// EXZRANDMEMBER key [count [WITHSCORES]]
pub(crate) fn exzrandmember(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut rng = ctx.keys.local.rng.clone();
    let Some(count) = args.get(2) else {
        let zset = ctx.keys.read::<ExZset>(&args[1])?;
        match zset.and_then(|zset| zset.get(rng.usize(..zset.len()))) {
            Some((member, _)) => reply.bulk(member),
            None => reply.null(),
        }
        ctx.keys.local.rng = rng;
        return Ok(());
    };
    let count = signed_count(count)?;
    let mut words = Words::new(CommandId::Exzrandmember, &args, 3);
    let with_scores = words.flag("WITHSCORES");
    words.end()?;
    let most = if with_scores { i64::MAX / 2 } else { i64::MAX };
    if count < -most || count > most {
        return Err(Error::OutOfRange.into());
    }
    let bytes_max = ctx.bulk_bytes_max;
    let Some(zset) = ctx.keys.read::<ExZset>(&args[1])? else {
        reply.array(0);
        return Ok(());
    };
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let each = if with_scores { 2 } else { 1 };
    let give = |reply: &mut Reply<'_>, rank: usize| {
        let (member, score) = zset.get(rank).expect("the rank is below the length");
        reply.bulk(member);
        if with_scores {
            write(reply, &score);
        }
    };
    if count < 0 {
        reply.array(wanted * each);
        draw(reply, wanted, bytes_max, |reply, portion, bound| {
            for _ in 0..portion {
                if !bound.leaves_room(reply) {
                    break;
                }
                give(reply, rng.usize(..zset.len()));
            }
        })?;
    } else {
        // Each rank is taken with the chance that the ranks left have: a random subset, in order.
        let (mut left, len) = (wanted.min(zset.len()), zset.len());
        reply.array(left * each);
        for rank in 0..len {
            if left > 0 && rng.usize(..len - rank) < left {
                give(reply, rank);
                left -= 1;
            }
        }
    }
    ctx.keys.local.rng = rng;
    Ok(())
}

/// EXZSCAN key cursor [MATCH pattern] [COUNT count]
pub(crate) fn exzscan(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let cursor = scan::cursor(&args[2])?;
    let Some(zset) = ctx.keys.read::<ExZset>(&args[1])? else {
        return scan::framed(reply, |_| Ok((0, 0)));
    };
    let options = ScanOptions::parse(Words::new(CommandId::Exzscan, &args, 3))?;
    scan::framed(reply, |reply| {
        let mut elements = 0;
        let next = zset.scan(cursor, options.count as usize, |member, score| {
            if options.matches(member) {
                reply.bulk(member);
                write(reply, score);
                elements += 2;
            }
        });
        Ok((next, elements))
    })
}
