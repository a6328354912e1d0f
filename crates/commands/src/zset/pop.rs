//! Removal of members from sorted sets: from either end, at once or blocking, and by range.

use std::ops::Range;

use redline_keyspace::{Classes, Found, Trace, WrongType};
use redline_resp::{Args, Proto, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, Element, Kind, Zset,
    number::IntText,
    zset::{LexRange, ScoreRange, index_range},
};

use super::{NOT_A_LEX_RANGE, NOT_A_SCORE_RANGE};
use crate::{
    Ctx, Error, Failure,
    block::{self, Block},
    element::bulk,
    multi_pop::MultiPop,
    words::{Words, integer, positive},
};

/// ZPOPMIN key [count]
pub(crate) fn zpopmin(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(pop(ctx, args, Side::Min, reply)?)
}

/// ZPOPMAX key [count]
pub(crate) fn zpopmax(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(pop(ctx, args, Side::Max, reply)?)
}

/// End that is popped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Min,
    Max,
}

impl Side {
    const WORDS: &[(&str, Side)] = &[("MIN", Side::Min), ("MAX", Side::Max)];

    fn event(self) -> &'static str {
        if self == Side::Min {
            "zpopmin"
        } else {
            "zpopmax"
        }
    }
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, side: Side, reply: &mut Reply<'_>) -> Result<(), Error> {
    let count = match args.len() {
        2 => None,
        3 => Some(positive(&args[2])?),
        _ => return Err(Error::Syntax),
    };
    let len = len_to_write(ctx, &args[1])?.unwrap_or(0);
    let given = count.unwrap_or(1).min(len);
    let nested = count.is_some() && reply.proto() == Proto::Resp3;
    reply.array(if nested { given } else { given * 2 });
    if given > 0 {
        take(ctx, &args[1], side, given, nested, reply)?;
    }
    Ok(())
}

/// Pops `count` members of a set with at least as many, each as a pair of its own or in a flat array.
fn take(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    side: Side,
    count: usize,
    nested: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    ctx.keys.write::<Zset, _>(key, |zset, _| {
        let ranks = match side {
            Side::Min => 0..count,
            Side::Max => zset.len() - count..zset.len(),
        };
        let write = |(member, score): (Element<'_>, f64)| {
            if nested {
                reply.array(2);
            }
            bulk(reply, member);
            reply.double(score);
        };
        match side {
            Side::Min => zset.range(ranks.clone()).for_each(write),
            Side::Max => zset.range(ranks.clone()).rev().for_each(write),
        }
        zset.remove_range(ranks);
    })?;
    ctx.keys.changed(Classes::ZSET, side.event(), key);
    ctx.keys.count_changes(count as u64 - 1);
    Ok(())
}

/// Records in the journal that this number of members was taken from an end of a sorted set; `None`: one, by a command that
/// takes no count.
fn propagate_pop(ctx: &mut Ctx<'_>, key: &[u8], side: Side, count: Option<usize>) {
    let name: &[u8] = match side {
        Side::Min => b"ZPOPMIN",
        Side::Max => b"ZPOPMAX",
    };
    match count.map(|count| IntText::new(count as i64)) {
        Some(count) => ctx.keys.propagate(&[name, key, count.as_ref()]),
        None => ctx.keys.propagate(&[name, key]),
    }
}

/// ZMPOP numkeys key [key …] MIN | MAX [COUNT count]
pub(crate) fn zmpop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let many = MultiPop::parse(Words::new(CommandId::Zmpop, &args, 1), Side::WORDS)?;
    if !pop_first(ctx, args, &many, reply)? {
        reply.null_array();
    }
    Ok(())
}

/// BZMPOP timeout numkeys key [key …] MIN | MAX [COUNT count]
pub(crate) fn bzmpop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let many = MultiPop::parse(Words::new(CommandId::Bzmpop, &args, 2), Side::WORDS)?;
    let timeout_ms = block::seconds(ctx, &args[1])?;
    if pop_first(ctx, args, &many, reply)? {
        return Ok(());
    }
    reply.null_array();
    Err(Block::on(Kind::Zset, many.keys, timeout_ms).into())
}

/// Returns the number of members of a sorted set that is about to be changed; `None` if the key is missing.
fn len_to_write(ctx: &Ctx<'_>, key: &[u8]) -> Result<Option<usize>, WrongType> {
    let found = ctx.keys.find(key, Trace::Write);
    found.map(Found::len::<Zset>).transpose()
}

/// Pops from the first sorted set that exists; returns true if there was one.
fn pop_first(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    many: &MultiPop<Side>,
    reply: &mut Reply<'_>,
) -> Result<bool, Failure> {
    for key in many.keys_of(args) {
        if let Some(len) = len_to_write(ctx, key)? {
            let given = many.count.min(len);
            ctx.claim()?;
            reply.array(2);
            reply.bulk(key);
            reply.array(given);
            take(ctx, key, many.side, given, true, reply)?;
            propagate_pop(ctx, key, many.side, Some(given));
            return Ok(true);
        }
    }
    Ok(false)
}

/// BZPOPMIN key [key …] timeout
pub(crate) fn bzpopmin(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    pop_or_wait(ctx, args, Side::Min, reply)
}

/// BZPOPMAX key [key …] timeout
pub(crate) fn bzpopmax(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    pop_or_wait(ctx, args, Side::Max, reply)
}

fn pop_or_wait(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    side: Side,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let last = args.len() - 1;
    let timeout_ms = block::seconds(ctx, &args[last])?;
    for key in args.first(last).from(1).iter() {
        if len_to_write(ctx, key)?.is_some() {
            ctx.claim()?;
            reply.array(3);
            reply.bulk(key);
            take(ctx, key, side, 1, false, reply)?;
            propagate_pop(ctx, key, side, None);
            return Ok(());
        }
    }
    reply.null_array();
    Err(Block::on(Kind::Zset, 1..last, timeout_ms).into())
}

/// ZREMRANGEBYRANK key start stop
pub(crate) fn zremrangebyrank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (start, stop) = (integer(&args[2])?, integer(&args[3])?);
    let ranks = |zset: &Zset| index_range(start, stop, zset.len());
    Ok(remove_range(
        ctx,
        &args[1],
        "zremrangebyrank",
        ranks,
        reply,
    )?)
}

/// ZREMRANGEBYSCORE key min max
pub(crate) fn zremrangebyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let range = ScoreRange::parse(&args[2], &args[3]).map_err(|_| NOT_A_SCORE_RANGE)?;
    let ranks = |zset: &Zset| zset.score_range(&range);
    Ok(remove_range(
        ctx,
        &args[1],
        "zremrangebyscore",
        ranks,
        reply,
    )?)
}

/// ZREMRANGEBYLEX key min max
pub(crate) fn zremrangebylex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let range = LexRange::parse(&args[2], &args[3]).map_err(|_| NOT_A_LEX_RANGE)?;
    let ranks = |zset: &Zset| zset.lex_range(&range, false);
    Ok(remove_range(ctx, &args[1], "zremrangebylex", ranks, reply)?)
}

fn remove_range(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    event: &'static str,
    ranks: impl FnOnce(&Zset) -> Range<usize>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let removed = ctx.keys.write::<Zset, _>(key, |zset, _| {
        let ranks = ranks(zset);
        zset.remove_range(ranks)
    })?;
    let removed = removed.unwrap_or(0);
    if removed > 0 {
        ctx.keys.changed(Classes::ZSET, event, key);
        ctx.keys.count_changes(removed as u64 - 1);
    }
    reply.integer(removed as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn popping() {
        let mut db = TestDb::new();
        db.script(&[
            ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
            ("ZPOPMIN z", "*2|$1|a|$1|1"),
            ("ZPOPMAX z 2", "*4|$1|d|$1|4|$1|c|$1|3"),
            ("ZPOPMIN z 0", "*0"),
            ("ZPOPMIN none", "*0"),
            (
                "ZPOPMIN z -1",
                "-ERR value is out of range, must be positive",
            ),
            ("ZMPOP 2 none z MAX COUNT 3", "*2|$1|z|*1|*2|$1|b|$1|2"),
            ("ZMPOP 1 none MIN", "*-1"),
        ]);
        assert_eq!(
            db.events(),
            ["zadd z", "zpopmin z", "zpopmax z", "zpopmax z", "del z"]
        );
    }
}
