//! Ranges of exZsets, by rank, by score and by member: read, counted, removed.

use std::ops::Range;

use redline_keyspace::Classes;
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, ExZset,
    number::parse_i64,
    zset::{LexRange, index_range, several::Bound},
};

use super::{
    find,
    score::{INVALID_SCORE, bound, parse, write},
};
use crate::{Ctx, Error, Failure, words::Words};

const NOT_A_LEX_RANGE: Error = Error::line("ERR min or max not valid string range item");

/// A range of ranks, scores or members.
enum By<'a> {
    Rank(i64, i64),
    Score(Bound, Bound),
    Lex(LexRange<'a>),
}

impl<'a> By<'a> {
    fn rank(start: &[u8], stop: &[u8]) -> Result<By<'a>, Error> {
        let read = |word| parse_i64(word).ok_or(Error::OutOfRange);
        Ok(By::Rank(read(start)?, read(stop)?))
    }

    fn score(min: &[u8], max: &[u8]) -> Result<By<'a>, Error> {
        Ok(By::Score(bound(min)?, bound(max)?))
    }

    fn lex(min: &'a [u8], max: &'a [u8]) -> Result<By<'a>, Error> {
        let range = LexRange::parse(min, max);
        range.map(By::Lex).map_err(|_| NOT_A_LEX_RANGE)
    }

    /// Returns the ranks of a set that are in the range. Ranks of `from_back` count from the highest score.
    fn ranks(&self, zset: &ExZset, from_back: bool) -> Result<Range<usize>, Error> {
        Ok(match self {
            By::Rank(start, stop) => {
                let len = zset.len();
                let ranks = index_range(*start, *stop, len);
                match from_back {
                    true => len - ranks.end..len - ranks.start,
                    false => ranks,
                }
            }
            By::Score(min, max) => {
                if [min, max].iter().any(|b| b.score.len() != zset.parts()) {
                    return Err(INVALID_SCORE);
                }
                zset.score_range(min, max)
            }
            By::Lex(range) => zset.lex_range(range),
        })
    }
}

/// Options of a range that is read.
#[derive(Default)]
struct Reading {
    with_scores: bool,
    from_back: bool,
    /// Members to leave out, and to give at most; negative: none are given, and all.
    limit: Option<(i64, i64)>,
}

impl Reading {
    /// Reads the options behind a range.
    fn parse(mut words: Words<'_>, has_limit: bool, has_scores: bool) -> Result<Reading, Error> {
        let mut reading = Reading::default();
        while !words.is_empty() {
            if has_scores && words.flag("WITHSCORES") {
                reading.with_scores = true;
            } else if has_limit && let Some([offset, count]) = words.values("LIMIT") {
                let read = |word| parse_i64(word).ok_or(Error::OutOfRange);
                reading.limit = Some((read(offset)?, read(count)?));
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(reading)
    }

    fn cut(&self, ranks: Range<usize>) -> Range<usize> {
        let Some((offset, count)) = self.limit else {
            return ranks;
        };
        // A negative offset passes over everything.
        let offset = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(ranks.len());
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let count = count.min(ranks.len() - offset);
        match self.from_back {
            true => ranks.end - offset - count..ranks.end - offset,
            false => ranks.start + offset..ranks.start + offset + count,
        }
    }
}

fn read(
    ctx: &Ctx<'_>,
    key: &[u8],
    by: &By<'_>,
    reading: &Reading,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let Some(zset) = ctx.keys.read::<ExZset>(key)? else {
        reply.array(0);
        return Ok(());
    };
    let ranks = reading.cut(by.ranks(zset, reading.from_back)?);
    reply.array(ranks.len() * if reading.with_scores { 2 } else { 1 });
    let mut give = |(member, score): (&[u8], Vec<f64>)| {
        reply.bulk(member);
        if reading.with_scores {
            write(reply, &score);
        }
    };
    match reading.from_back {
        true => zset.range(ranks).rev().for_each(&mut give),
        false => zset.range(ranks).for_each(&mut give),
    }
    Ok(())
}

/// EXZRANGE key start stop [WITHSCORES]
pub(crate) fn exzrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::rank(&args[2], &args[3])?;
    let words = Words::new(CommandId::Exzrange, &args, 4);
    let reading = Reading::parse(words, false, true)?;
    Ok(read(ctx, &args[1], &by, &reading, reply)?)
}

/// EXZREVRANGE key start stop [WITHSCORES]
pub(crate) fn exzrevrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::rank(&args[2], &args[3])?;
    let words = Words::new(CommandId::Exzrevrange, &args, 4);
    let mut reading = Reading::parse(words, false, true)?;
    reading.from_back = true;
    Ok(read(ctx, &args[1], &by, &reading, reply)?)
}

/// EXZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]
pub(crate) fn exzrangebyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::score(&args[2], &args[3])?;
    let words = Words::new(CommandId::Exzrangebyscore, &args, 4);
    let reading = Reading::parse(words, true, true)?;
    Ok(read(ctx, &args[1], &by, &reading, reply)?)
}

/// EXZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]
pub(crate) fn exzrevrangebyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::score(&args[3], &args[2])?;
    let words = Words::new(CommandId::Exzrevrangebyscore, &args, 4);
    let mut reading = Reading::parse(words, true, true)?;
    reading.from_back = true;
    Ok(read(ctx, &args[1], &by, &reading, reply)?)
}

/// EXZRANGEBYLEX key min max [LIMIT offset count]
pub(crate) fn exzrangebylex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::lex(&args[2], &args[3])?;
    let words = Words::new(CommandId::Exzrangebylex, &args, 4);
    let reading = Reading::parse(words, true, false)?;
    Ok(read(ctx, &args[1], &by, &reading, reply)?)
}

/// EXZREVRANGEBYLEX key max min [LIMIT offset count]
pub(crate) fn exzrevrangebylex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::lex(&args[3], &args[2])?;
    let words = Words::new(CommandId::Exzrevrangebylex, &args, 4);
    let mut reading = Reading::parse(words, true, false)?;
    reading.from_back = true;
    Ok(read(ctx, &args[1], &by, &reading, reply)?)
}

fn count(ctx: &Ctx<'_>, key: &[u8], by: &By<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let zset = ctx.keys.read::<ExZset>(key)?;
    let ranks = zset.map(|zset| by.ranks(zset, false)).transpose()?;
    reply.integer(ranks.map_or(0, |ranks| ranks.len()) as i64);
    Ok(())
}

/// EXZCOUNT key min max
pub(crate) fn exzcount(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::score(&args[2], &args[3])?;
    Ok(count(ctx, &args[1], &by, reply)?)
}

/// EXZLEXCOUNT key min max
pub(crate) fn exzlexcount(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::lex(&args[2], &args[3])?;
    Ok(count(ctx, &args[1], &by, reply)?)
}

fn remove(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    by: &By<'_>,
    event: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let Some(zset) = find(ctx, key)? else {
        reply.integer(0);
        return Ok(());
    };
    let ranks = by.ranks(zset, false)?;
    let removed = match ranks.is_empty() {
        true => None,
        false => ctx
            .keys
            .write::<ExZset, _>(key, |zset, _| zset.remove_range(ranks))?,
    };
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.keys.changed(Classes::MODULE, event, key);
        ctx.keys.count_changes(removed as u64 - 1);
    }
    reply.integer(removed as i64);
    Ok(())
}

/// EXZREMRANGEBYSCORE key min max
pub(crate) fn exzremrangebyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::score(&args[2], &args[3])?;
    Ok(remove(ctx, &args[1], &by, "exzremrangebyscore", reply)?)
}

/// EXZREMRANGEBYRANK key start stop
pub(crate) fn exzremrangebyrank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::rank(&args[2], &args[3])?;
    Ok(remove(ctx, &args[1], &by, "exzremrangebyrank", reply)?)
}

/// EXZREMRANGEBYLEX key min max
pub(crate) fn exzremrangebylex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let by = By::lex(&args[2], &args[3])?;
    Ok(remove(ctx, &args[1], &by, "exzremrangebylex", reply)?)
}

/// EXZRANKBYSCORE key score
pub(crate) fn exzrankbyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(rank_by_score(ctx, args, false, reply)?)
}

/// EXZREVRANKBYSCORE key score
pub(crate) fn exzrevrankbyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(rank_by_score(ctx, args, true, reply)?)
}

/// Counts the members with lower scores, or of `from_back` all others.
fn rank_by_score(
    ctx: &Ctx<'_>,
    args: Args<'_>,
    from_back: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let zset = ctx.keys.read::<ExZset>(&args[1])?;
    let (Some(zset), Some(score)) = (zset, parse(&args[2])) else {
        reply.null();
        return Ok(());
    };
    let place = Bound {
        score,
        exclusive: false,
    };
    let lower = zset.score_range(&place, &place).start;
    let count = if from_back { zset.len() - lower } else { lower };
    reply.integer(count as i64);
    Ok(())
}
