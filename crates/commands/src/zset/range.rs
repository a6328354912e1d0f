//! Ranges of sorted sets, by rank, score or name: counted, read and stored.

use std::ops::Range;

use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, IntBuf, Zset,
    zset::{AddFlags, LexRange, ScoreRange, index_range},
};

use super::{NOT_A_LEX_RANGE, NOT_A_SCORE_RANGE, Pairs, add_error, full, store};
use crate::{
    Ctx, Error, Failure,
    words::{Words, integer},
};

/// ZCOUNT key min max
pub(crate) fn zcount(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let range = ScoreRange::parse(&args[2], &args[3]).map_err(|_| NOT_A_SCORE_RANGE)?;
    let zset = ctx.keys.read::<Zset>(&args[1])?;
    reply.integer(zset.map_or(0, |zset| zset.score_range(&range).len() as i64));
    Ok(())
}

/// ZLEXCOUNT key min max
pub(crate) fn zlexcount(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let range = LexRange::parse(&args[2], &args[3]).map_err(|_| NOT_A_LEX_RANGE)?;
    let zset = ctx.keys.read::<Zset>(&args[1])?;
    reply.integer(zset.map_or(0, |zset| zset.lex_range(&range, false).len() as i64));
    Ok(())
}

/// Criterion of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// Query for a range, in the common form of the nine commands.
struct Query<'a> {
    bounds: Bounds<'a>,
    reverse: bool,
    offset: i64,
    /// Number of members; negative: no limit.
    count: i64,
    with_scores: bool,
}

enum Bounds<'a> {
    Rank(i64, i64),
    Score(ScoreRange),
    Lex(LexRange<'a>),
}

/// Returns the criterion of the range, and true if it is reversed, where the command's name fixes them.
fn settled(id: CommandId) -> (Option<By>, Option<bool>) {
    match id {
        CommandId::Zrevrange => (Some(By::Rank), Some(true)),
        CommandId::Zrangebyscore => (Some(By::Score), Some(false)),
        CommandId::Zrevrangebyscore => (Some(By::Score), Some(true)),
        CommandId::Zrangebylex => (Some(By::Lex), Some(false)),
        CommandId::Zrevrangebylex => (Some(By::Lex), Some(true)),
        _ => (None, None),
    }
}

impl<'a> Query<'a> {
    /// Reads the bounds, the first of which is at `at`, and the options after them.
    fn parse(args: &'a Args<'a>, at: usize, id: CommandId) -> Result<Query<'a>, Error> {
        // Redis reads the words of ZRANGE for all of them, and then refuses combinations that are not valid.
        let mut words = Words::new(CommandId::Zrange, args, at);
        let (first, second): (&[u8], &[u8]) = (words.read()?, words.read()?);
        let (mut by, mut reverse) = settled(id);
        let (mut offset, mut count, mut with_scores) = (0, -1, false);
        while !words.is_empty() {
            if id != CommandId::Zrangestore && words.flag("WITHSCORES") {
                with_scores = true;
            } else if let Some([from, most]) = words.values("LIMIT") {
                (offset, count) = (integer(from)?, integer(most)?);
            } else if reverse.is_none() && words.flag("REV") {
                reverse = Some(true);
            } else if by.is_none() && words.flag("BYLEX") {
                by = Some(By::Lex);
            } else if by.is_none() && words.flag("BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(Error::Syntax);
            }
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if count != -1 && by == By::Rank {
            return Err(Error::line(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Lex {
            return Err(Error::line(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let (min, max) = if reverse {
            (second, first)
        } else {
            (first, second)
        };
        let bounds = match by {
            By::Rank => Bounds::Rank(integer(first)?, integer(second)?),
            By::Score => Bounds::Score(ScoreRange::parse(min, max).map_err(|_| NOT_A_SCORE_RANGE)?),
            By::Lex => Bounds::Lex(LexRange::parse(min, max).map_err(|_| NOT_A_LEX_RANGE)?),
        };
        Ok(Query {
            bounds,
            reverse,
            offset,
            count,
            with_scores,
        })
    }

    /// Returns the ranks of the query's members, counted from the lowest score.
    fn ranks(&self, zset: &Zset) -> Range<usize> {
        let len = zset.len();
        let found = match &self.bounds {
            Bounds::Rank(start, stop) => {
                let range = index_range(*start, *stop, len);
                return if self.reverse {
                    len - range.end..len - range.start
                } else {
                    range
                };
            }
            Bounds::Score(range) => zset.score_range(range),
            Bounds::Lex(range) => zset.lex_range(range, self.reverse),
        };
        let Ok(offset) = usize::try_from(self.offset) else {
            return 0..0;
        };
        let offset = offset.min(found.len());
        let count = usize::try_from(self.count)
            .unwrap_or(usize::MAX)
            .min(found.len() - offset);
        if self.reverse {
            found.end - offset - count..found.end - offset
        } else {
            found.start + offset..found.start + offset + count
        }
    }
}

fn range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    id: CommandId,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let query = Query::parse(&args, 2, id)?;
    let Some(zset) = ctx.keys.read::<Zset>(&args[1])? else {
        reply.array(0);
        return Ok(());
    };
    let ranks = query.ranks(zset);
    let mut pairs = Pairs::begin(reply, ranks.len(), query.with_scores);
    let write = |(member, score)| pairs.write(member, score);
    if query.reverse {
        zset.range(ranks).rev().for_each(write);
    } else {
        zset.range(ranks).for_each(write);
    }
    Ok(())
}

/// ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]
pub(crate) fn zrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(range(ctx, args, CommandId::Zrange, reply)?)
}

/// ZREVRANGE key start stop [WITHSCORES]
pub(crate) fn zrevrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(range(ctx, args, CommandId::Zrevrange, reply)?)
}

/// ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]
pub(crate) fn zrangebyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(range(ctx, args, CommandId::Zrangebyscore, reply)?)
}

/// ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]
pub(crate) fn zrevrangebyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(range(ctx, args, CommandId::Zrevrangebyscore, reply)?)
}

/// ZRANGEBYLEX key min max [LIMIT offset count]
pub(crate) fn zrangebylex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(range(ctx, args, CommandId::Zrangebylex, reply)?)
}

/// ZREVRANGEBYLEX key max min [LIMIT offset count]
pub(crate) fn zrevrangebylex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(range(ctx, args, CommandId::Zrevrangebylex, reply)?)
}

/// ZRANGESTORE destination source min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]
pub(crate) fn zrangestore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let query = Query::parse(&args, 3, CommandId::Zrangestore)?;
    let limits = ctx.keys.local.limits.clone();
    let mut result = Zset::new();
    if let Some(zset) = ctx.keys.read::<Zset>(&args[2])? {
        let ranks = query.ranks(zset);
        result.expect(ranks.len(), &limits).map_err(|_| full())?;
        for (member, score) in zset.range(ranks) {
            let member = member.bytes(&mut IntBuf::new()).to_vec();
            result
                .add(&member, score, AddFlags::default(), &limits)
                .map_err(add_error)?;
        }
    }
    store(ctx, &args[1], result, "zrangestore", reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use redline_resp::Proto;

    use crate::testing::TestDb;

    #[test]
    fn ranges() {
        let mut db = TestDb::new();
        db.script(&[
            ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
            ("ZRANGE z 0 -1", "*4|$1|a|$1|b|$1|c|$1|d"),
            ("ZRANGE z 1 2 WITHSCORES", "*4|$1|b|$1|2|$1|c|$1|3"),
            ("ZRANGE z 0 1 REV", "*2|$1|d|$1|c"),
            ("ZRANGE z (1 3 BYSCORE", "*2|$1|b|$1|c"),
            ("ZRANGE z 3 (1 BYSCORE REV LIMIT 1 1", "*1|$1|b"),
            ("ZRANGE z 0 1 LIMIT 0 1", "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"),
            ("ZRANGE z - + BYLEX WITHSCORES", "-ERR syntax error, WITHSCORES not supported in combination with BYLEX"),
            ("ZREVRANGEBYSCORE z +inf 3", "*2|$1|d|$1|c"),
            ("ZRANGEBYSCORE z 1 x", "-ERR min or max is not a float"),
            ("ZCOUNT z 2 (4", ":2"),
            ("ZRANK z c", ":2"),
            ("ZREVRANK z c WITHSCORE", "*2|:1|$1|3"),
            ("ZRANK z x", "$-1"),
            ("ZRANK z x WITHSCORE", "*-1"),
            ("ZRANGESTORE y z 1 2", ":2"),
            ("ZRANGE y 0 -1", "*2|$1|b|$1|c"),
            ("ZRANGESTORE y z 9 10", ":0"),
            ("EXISTS y", ":0"),
            ("ZREMRANGEBYRANK z 0 0", ":1"),
            ("ZREMRANGEBYSCORE z 4 9", ":1"),
            ("ZADD l 0 a 0 b 0 c", ":3"),
            ("ZRANGEBYLEX l [b +", "*2|$1|b|$1|c"),
            ("ZREVRANGEBYLEX l (c -", "*2|$1|b|$1|a"),
            ("ZLEXCOUNT l - (c", ":2"),
            ("ZREMRANGEBYLEX l [a [b", ":2"),
        ]);
        db.proto = Proto::Resp3;
        db.script(&[("ZRANGE z 0 -1 WITHSCORES", "*2|*2|$1|b|,2|*2|$1|c|,3")]);
    }
}
