//! Commands of the group `zset`.

use std::ops::Range;

use redline_keyspace::{Classes, Expiry, ValueRef};
use redline_resp::{Args, Proto, Reply, format_double};
use redline_types::{
    DataType, Element, IntBuf, Kind, Value, Zset,
    number::IntText,
    zset::{
        AddError, AddFlags, Added, LexRange, ScoreRange,
        algebra::{Aggregate, Input, Source, difference, intersection, intersection_len, union},
        index_range,
    },
};

use crate::{
    Ctx, Error,
    block::{self, Block},
    element::{bulk, draw},
    parse::{float, integer, is, random_count},
    scan::{self, ScanOptions, Scanned},
};

const NOT_A_SCORE_RANGE: Error = Error::line("ERR min or max is not a float");
const NOT_A_LEX_RANGE: Error = Error::line("ERR min or max not valid string range item");

// ---- single members -----------------------------------------------------------------------------

/// ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member …]
pub(crate) fn zadd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut flags = AddFlags::default();
    let mut count_changed = false;
    let mut at = 2;
    while let Some(option) = args.get(at) {
        if is(option, "NX") {
            flags.nx = true;
        } else if is(option, "XX") {
            flags.xx = true;
        } else if is(option, "CH") {
            count_changed = true;
        } else if is(option, "INCR") {
            flags.incr = true;
        } else if is(option, "GT") {
            flags.gt = true;
        } else if is(option, "LT") {
            flags.lt = true;
        } else {
            break;
        }
        at += 1;
    }
    let pairs = args.from(at);
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Error::Syntax);
    }
    if flags.nx && flags.xx {
        return Err(Error::line(
            "ERR XX and NX options at the same time are not compatible",
        ));
    }
    if u8::from(flags.nx) + u8::from(flags.gt) + u8::from(flags.lt) > 1 {
        return Err(Error::line(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        ));
    }
    if flags.incr && pairs.len() > 2 {
        return Err(Error::line(
            "ERR INCR option supports a single increment-element pair",
        ));
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
) -> Result<(), Error> {
    let flags = AddFlags {
        incr: true,
        ..AddFlags::default()
    };
    let tally = add(ctx, &args[1], args.from(2), flags)?;
    reply.double(tally.score.expect("no flag refuses it"));
    Ok(())
}

/// What came of adding members.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) new: u64,
    pub(crate) changed: u64,
    /// The score of the last member that was not refused.
    score: Option<f64>,
}

/// Adds pairs of score and member, all or none of which are numbers.
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

/// Adds so many pairs of score and member, with their event.
pub(crate) fn add_all<'a>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    pairs: usize,
    pair: impl Fn(usize) -> (f64, &'a [u8]),
    flags: AddFlags,
) -> Result<Tally, Error> {
    let mut failed = None;
    let tally = ctx.keys.update::<Zset, _>(key, !flags.xx, |zset, limits| {
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
pub(crate) fn zrem(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let members = args.from(2);
    let removed = ctx.keys.update::<Zset, _>(&args[1], false, |zset, _| {
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
pub(crate) fn zcard(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let len = ctx.keys.collection_len::<Zset>(&args[1])?;
    reply.integer(len.unwrap_or(0) as i64);
    Ok(())
}

/// ZSCORE key member
pub(crate) fn zscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let zset = ctx.keys.collection::<Zset>(&args[1])?;
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
) -> Result<(), Error> {
    let zset = ctx.keys.collection::<Zset>(&args[1])?;
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
pub(crate) fn zrank(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    rank(ctx, args, "zrank", |rank, _| rank, reply)
}

/// ZREVRANK key member [WITHSCORE]
pub(crate) fn zrevrank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    rank(ctx, args, "zrevrank", |rank, len| len - 1 - rank, reply)
}

fn rank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    name: &str,
    counted: impl FnOnce(usize, usize) -> usize,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let with_score = match args.len() {
        3 => false,
        4 if is(&args[3], "WITHSCORE") => true,
        4 => return Err(Error::Syntax),
        _ => return Err(Error::wrong_arity(name)),
    };
    let zset = ctx.keys.collection::<Zset>(&args[1])?;
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

// ---- taking out ---------------------------------------------------------------------------------

/// ZPOPMIN key [count]
pub(crate) fn zpopmin(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    pop(ctx, args, Side::Min, reply)
}

/// ZPOPMAX key [count]
pub(crate) fn zpopmax(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    pop(ctx, args, Side::Max, reply)
}

/// Which end is popped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Min,
    Max,
}

impl Side {
    fn event(self) -> &'static str {
        if self == Side::Min {
            "zpopmin"
        } else {
            "zpopmax"
        }
    }
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, side: Side, reply: &mut Reply<'_>) -> Result<(), Error> {
    const NOT_POSITIVE: Error = Error::line("ERR value is out of range, must be positive");
    let count = match args.len() {
        2 => None,
        3 => {
            let count = integer(&args[2]).map_err(|_| NOT_POSITIVE)?;
            Some(usize::try_from(count).map_err(|_| NOT_POSITIVE)?)
        }
        _ => return Err(Error::Syntax),
    };
    let len = ctx.keys.len_to_write::<Zset>(&args[1])?.unwrap_or(0);
    let given = count.unwrap_or(1).min(len);
    let nested = count.is_some() && reply.proto() == Proto::Resp3;
    reply.array(if nested { given } else { given * 2 });
    if given > 0 {
        take(ctx, &args[1], side, given, nested, reply)?;
    }
    Ok(())
}

/// Pops `count` members of a set that has as many, each as a pair of its own or all in a row.
fn take(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    side: Side,
    count: usize,
    nested: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    ctx.keys.update::<Zset, _>(key, false, |zset, _| {
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

/// Journals that so many members were taken from a side of a sorted set.
fn propagate_pop(ctx: &mut Ctx<'_>, key: &[u8], side: Side, count: usize) {
    let name: &[u8] = match side {
        Side::Min => b"ZPOPMIN",
        Side::Max => b"ZPOPMAX",
    };
    let text = IntText::new(count as i64);
    ctx.keys.propagate(&[name, key, text.as_ref()]);
}

/// ZMPOP numkeys key [key …] MIN | MAX [COUNT count]
pub(crate) fn zmpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let many = Many::parse(args, 1)?;
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
) -> Result<(), Error> {
    let many = Many::parse(args, 2)?;
    let timeout_ms = block::seconds(ctx, &args[1])?;
    if pop_first(ctx, args, &many, reply)? {
        return Ok(());
    }
    reply.null_array();
    Err(Block::on(Kind::Zset, many.keys, timeout_ms).into())
}

/// What ZMPOP is to pop.
struct Many {
    /// Which arguments are the keys.
    keys: Range<usize>,
    side: Side,
    count: usize,
}

impl Many {
    /// `at`: the position of the number of keys.
    fn parse(args: Args<'_>, at: usize) -> Result<Many, Error> {
        const NO_KEYS: Error = Error::line("ERR numkeys should be greater than 0");
        const NO_COUNT: Error = Error::line("ERR count should be greater than 0");
        let keys = integer(&args[at])
            .ok()
            .filter(|keys| *keys > 0)
            .ok_or(NO_KEYS)?;
        let keys = usize::try_from(keys).map_err(|_| Error::Syntax)?;
        let end_of_keys = keys
            .checked_add(at + 1)
            .filter(|end| *end < args.len())
            .ok_or(Error::Syntax)?;
        let side = if is(&args[end_of_keys], "MIN") {
            Side::Min
        } else if is(&args[end_of_keys], "MAX") {
            Side::Max
        } else {
            return Err(Error::Syntax);
        };
        let mut count = None;
        let mut options = args.from(end_of_keys + 1).iter();
        while let Some(option) = options.next() {
            let value = options
                .next()
                .filter(|_| count.is_none() && is(option, "COUNT"));
            let value = integer(value.ok_or(Error::Syntax)?)
                .ok()
                .filter(|count| *count > 0);
            count = Some(value.ok_or(NO_COUNT)?);
        }
        Ok(Many {
            keys: at + 1..end_of_keys,
            side,
            count: count.unwrap_or(1) as usize,
        })
    }
}

/// Pops from the first sorted set that there is; says whether there was one.
fn pop_first(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    many: &Many,
    reply: &mut Reply<'_>,
) -> Result<bool, Error> {
    for key in args.from(many.keys.start).first(many.keys.len()).iter() {
        if let Some(len) = ctx.keys.len_to_write::<Zset>(key)? {
            let given = many.count.min(len);
            ctx.claim()?;
            reply.array(2);
            reply.bulk(key);
            reply.array(given);
            take(ctx, key, many.side, given, true, reply)?;
            propagate_pop(ctx, key, many.side, given);
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
) -> Result<(), Error> {
    pop_or_wait(ctx, args, Side::Min, reply)
}

/// BZPOPMAX key [key …] timeout
pub(crate) fn bzpopmax(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    pop_or_wait(ctx, args, Side::Max, reply)
}

fn pop_or_wait(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    side: Side,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let last = args.len() - 1;
    let timeout_ms = block::seconds(ctx, &args[last])?;
    for key in args.first(last).from(1).iter() {
        if ctx.keys.len_to_write::<Zset>(key)?.is_some() {
            ctx.claim()?;
            reply.array(3);
            reply.bulk(key);
            take(ctx, key, side, 1, false, reply)?;
            propagate_pop(ctx, key, side, 1);
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
) -> Result<(), Error> {
    let (start, stop) = (integer(&args[2])?, integer(&args[3])?);
    let ranks = |zset: &Zset| index_range(start, stop, zset.len());
    remove_range(ctx, &args[1], "zremrangebyrank", ranks, reply)
}

/// ZREMRANGEBYSCORE key min max
pub(crate) fn zremrangebyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let range = ScoreRange::parse(&args[2], &args[3]).map_err(|_| NOT_A_SCORE_RANGE)?;
    let ranks = |zset: &Zset| zset.score_range(&range);
    remove_range(ctx, &args[1], "zremrangebyscore", ranks, reply)
}

/// ZREMRANGEBYLEX key min max
pub(crate) fn zremrangebylex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let range = LexRange::parse(&args[2], &args[3]).map_err(|_| NOT_A_LEX_RANGE)?;
    let ranks = |zset: &Zset| zset.lex_range(&range, false);
    remove_range(ctx, &args[1], "zremrangebylex", ranks, reply)
}

fn remove_range(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    event: &'static str,
    ranks: impl FnOnce(&Zset) -> Range<usize>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let removed = ctx.keys.update::<Zset, _>(key, false, |zset, _| {
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

// ---- ranges -------------------------------------------------------------------------------------

/// ZCOUNT key min max
pub(crate) fn zcount(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let range = ScoreRange::parse(&args[2], &args[3]).map_err(|_| NOT_A_SCORE_RANGE)?;
    let zset = ctx.keys.collection::<Zset>(&args[1])?;
    reply.integer(zset.map_or(0, |zset| zset.score_range(&range).len() as i64));
    Ok(())
}

/// ZLEXCOUNT key min max
pub(crate) fn zlexcount(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let range = LexRange::parse(&args[2], &args[3]).map_err(|_| NOT_A_LEX_RANGE)?;
    let zset = ctx.keys.collection::<Zset>(&args[1])?;
    reply.integer(zset.map_or(0, |zset| zset.lex_range(&range, false).len() as i64));
    Ok(())
}

/// What a range goes by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Lex,
}

/// A query for a range, as one of the nine commands asks it.
struct Query<'a> {
    bounds: Bounds<'a>,
    reverse: bool,
    offset: i64,
    /// Negative: no limit.
    count: i64,
    with_scores: bool,
}

enum Bounds<'a> {
    Rank(i64, i64),
    Score(ScoreRange),
    Lex(LexRange<'a>),
}

/// What the command's name settles; the rest are options.
struct Form {
    by: Option<By>,
    reverse: Option<bool>,
    stores: bool,
}

impl<'a> Query<'a> {
    /// Parses the bounds and the options behind them: `args` begins with the first bound.
    fn parse(args: Args<'a>, form: &Form) -> Result<Query<'a>, Error> {
        let mut by = form.by;
        let mut reverse = form.reverse;
        let (mut offset, mut count, mut with_scores) = (0, -1, false);
        let mut at = 2;
        while let Some(option) = args.get(at) {
            if !form.stores && is(option, "WITHSCORES") {
                with_scores = true;
            } else if is(option, "LIMIT") && at + 2 < args.len() {
                offset = integer(&args[at + 1])?;
                count = integer(&args[at + 2])?;
                at += 2;
            } else if reverse.is_none() && is(option, "REV") {
                reverse = Some(true);
            } else if by.is_none() && is(option, "BYLEX") {
                by = Some(By::Lex);
            } else if by.is_none() && is(option, "BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(Error::Syntax);
            }
            at += 1;
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
        let (first, second) = (
            args.get(0).unwrap_or_default(),
            args.get(1).unwrap_or_default(),
        );
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

    /// The ranks that the query means, counted from the lowest score.
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
    form: &Form,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let query = Query::parse(args.from(2), form)?;
    let Some(zset) = ctx.keys.collection::<Zset>(&args[1])? else {
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

/// An array of members, with their scores if wanted: in RESP3 each pair is an array of its own.
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

    /// Further members of a reply that has begun.
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

/// ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]
pub(crate) fn zrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    range(
        ctx,
        args,
        &Form {
            by: None,
            reverse: None,
            stores: false,
        },
        reply,
    )
}

/// ZREVRANGE key start stop [WITHSCORES]
pub(crate) fn zrevrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    range(
        ctx,
        args,
        &Form {
            by: Some(By::Rank),
            reverse: Some(true),
            stores: false,
        },
        reply,
    )
}

/// ZRANGEBYSCORE key min max [WITHSCORES] [LIMIT offset count]
pub(crate) fn zrangebyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    range(
        ctx,
        args,
        &Form {
            by: Some(By::Score),
            reverse: Some(false),
            stores: false,
        },
        reply,
    )
}

/// ZREVRANGEBYSCORE key max min [WITHSCORES] [LIMIT offset count]
pub(crate) fn zrevrangebyscore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    range(
        ctx,
        args,
        &Form {
            by: Some(By::Score),
            reverse: Some(true),
            stores: false,
        },
        reply,
    )
}

/// ZRANGEBYLEX key min max [LIMIT offset count]
pub(crate) fn zrangebylex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    range(
        ctx,
        args,
        &Form {
            by: Some(By::Lex),
            reverse: Some(false),
            stores: false,
        },
        reply,
    )
}

/// ZREVRANGEBYLEX key max min [LIMIT offset count]
pub(crate) fn zrevrangebylex(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    range(
        ctx,
        args,
        &Form {
            by: Some(By::Lex),
            reverse: Some(true),
            stores: false,
        },
        reply,
    )
}

/// ZRANGESTORE destination source min max [BYSCORE | BYLEX] [REV] [LIMIT offset count]
pub(crate) fn zrangestore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let form = Form {
        by: None,
        reverse: None,
        stores: true,
    };
    let query = Query::parse(args.from(3), &form)?;
    let limits = ctx.keys.limits().clone();
    let mut result = Zset::new();
    if let Some(zset) = ctx.keys.collection::<Zset>(&args[2])? {
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

/// Makes the destination this set and replies with its size; an empty one removes the key.
fn store(
    ctx: &mut Ctx<'_>,
    destination: &[u8],
    result: Zset,
    event: &'static str,
    reply: &mut Reply<'_>,
) {
    let members = result.len();
    if members > 0 {
        ctx.keys.set_collection(destination, result, Expiry::Clear);
        ctx.keys.changed(Classes::ZSET, event, destination);
    } else if ctx.keys.delete(destination) {
        ctx.keys.changed(Classes::GENERIC, "del", destination);
    }
    reply.integer(members as i64);
}

// ---- random members and scans -------------------------------------------------------------------

/// ZRANDMEMBER key [count [WITHSCORES]]
pub(crate) fn zrandmember(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let mut rng = ctx.keys.local.rng.clone();
    let random = &mut || rng.u64(..);
    let Some(count) = args.get(2) else {
        let zset = ctx.keys.collection::<Zset>(&args[1])?;
        match zset.and_then(|zset| zset.random_member(random)) {
            Some((member, _)) => bulk(reply, member),
            None => reply.null(),
        }
        ctx.keys.local.rng = rng;
        return Ok(());
    };
    let count = random_count(count)?;
    let with_scores = match args.len() {
        3 => false,
        4 if is(&args[3], "WITHSCORES") => true,
        _ => return Err(Error::Syntax),
    };
    let most = if with_scores { i64::MAX / 2 } else { i64::MAX };
    if count < -most || count > most {
        return Err(Error::OutOfRange);
    }
    let bytes_max = ctx.bulk_bytes_max;
    let Some(zset) = ctx.keys.collection::<Zset>(&args[1])? else {
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
pub(crate) fn zscan(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let cursor = scan::cursor(&args[2])?;
    let Some(zset) = ctx.keys.collection::<Zset>(&args[1])? else {
        return scan::framed(reply, |_| Ok((0, 0)));
    };
    let options = ScanOptions::parse(args.from(3), Scanned::Zset)?;
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

// ---- algebra ------------------------------------------------------------------------------------

/// ZUNION numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(crate) fn zunion(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    combine(ctx, args, Operation::Union, "zunion", reply)
}

/// ZINTER numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(crate) fn zinter(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    combine(ctx, args, Operation::Inter, "zinter", reply)
}

/// ZDIFF numkeys key [key …] [WITHSCORES]
pub(crate) fn zdiff(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    combine(ctx, args, Operation::Diff, "zdiff", reply)
}

/// ZUNIONSTORE destination numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX]
pub(crate) fn zunionstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    combine_and_store(ctx, args, Operation::Union, "zunionstore", reply)
}

/// ZINTERSTORE destination numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX]
pub(crate) fn zinterstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    combine_and_store(ctx, args, Operation::Inter, "zinterstore", reply)
}

/// ZDIFFSTORE destination numkeys key [key …]
pub(crate) fn zdiffstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    combine_and_store(ctx, args, Operation::Diff, "zdiffstore", reply)
}

/// ZINTERCARD numkeys key [key …] [LIMIT limit]
pub(crate) fn zintercard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    const NEGATIVE: Error = Error::line("ERR LIMIT can't be negative");
    let (sources, options) = sources(ctx, args.from(1), "zintercard")?;
    let mut limit = 0;
    let mut words = options.iter();
    while let Some(option) = words.next() {
        let value = words
            .next()
            .filter(|_| is(option, "LIMIT"))
            .ok_or(Error::Syntax)?;
        let value = integer(value).map_err(|_| NEGATIVE)?;
        limit = usize::try_from(value).map_err(|_| NEGATIVE)?;
    }
    reply.integer(intersection_len(&sources, limit) as i64);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

impl Operation {
    fn run(self, combination: &Combination<'_>) -> Result<Zset, Error> {
        let (inputs, aggregate) = (&combination.inputs, combination.aggregate);
        match self {
            Operation::Union => union(inputs, aggregate),
            Operation::Inter => intersection(inputs, aggregate),
            Operation::Diff => {
                let sources: Vec<Source<'_>> = inputs.iter().map(|input| input.source).collect();
                difference(&sources)
            }
        }
        .map_err(|_| full())
    }
}

struct Combination<'v> {
    inputs: Vec<Input<'v>>,
    aggregate: Aggregate,
    with_scores: bool,
}

impl<'v> Combination<'v> {
    /// Parses `numkeys key … options`.
    fn parse(
        ctx: &'v Ctx<'_>,
        args: Args<'_>,
        operation: Operation,
        stores: bool,
        name: &str,
    ) -> Result<Combination<'v>, Error> {
        let (sources, options) = sources(ctx, args, name)?;
        let mut inputs: Vec<Input<'v>> = sources
            .into_iter()
            .map(|source| Input {
                source,
                weight: 1.0,
            })
            .collect();
        let (mut aggregate, mut with_scores) = (Aggregate::Sum, false);
        let mut at = 0;
        while let Some(option) = options.get(at) {
            let left = options.len() - at;
            if operation != Operation::Diff && left > inputs.len() && is(option, "WEIGHTS") {
                for (index, input) in inputs.iter_mut().enumerate() {
                    let weight = float(&options[at + 1 + index]);
                    input.weight =
                        weight.map_err(|_| Error::line("ERR weight value is not a float"))?;
                }
                at += 1 + inputs.len();
            } else if operation != Operation::Diff && left >= 2 && is(option, "AGGREGATE") {
                let word = &options[at + 1];
                aggregate = if is(word, "SUM") {
                    Aggregate::Sum
                } else if is(word, "MIN") {
                    Aggregate::Min
                } else if is(word, "MAX") {
                    Aggregate::Max
                } else {
                    return Err(Error::Syntax);
                };
                at += 2;
            } else if !stores && is(option, "WITHSCORES") {
                with_scores = true;
                at += 1;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(Combination {
            inputs,
            aggregate,
            with_scores,
        })
    }
}

/// The inputs under `numkeys key …`, and the arguments behind them.
fn sources<'v, 'a>(
    ctx: &'v Ctx<'_>,
    args: Args<'a>,
    name: &str,
) -> Result<(Vec<Source<'v>>, Args<'a>), Error> {
    let keys = integer(&args[0])?;
    if keys < 1 {
        return Err(Error::Line(
            format!("ERR at least 1 input key is needed for '{name}' command").into(),
        ));
    }
    let keys = usize::try_from(keys)
        .ok()
        .filter(|keys| *keys < args.len())
        .ok_or(Error::Syntax)?;
    let found = args
        .from(1)
        .first(keys)
        .iter()
        .map(|key| source(ctx, key))
        .collect::<Result<_, _>>()?;
    Ok((found, args.from(1 + keys)))
}

fn source<'v>(ctx: &'v Ctx<'_>, key: &[u8]) -> Result<Source<'v>, Error> {
    match ctx.keys.value(key) {
        None => Ok(Source::Empty),
        Some(ValueRef::Object(Value::Zset(zset))) => Ok(Source::Zset(zset)),
        Some(ValueRef::Object(Value::Set(set))) => Ok(Source::Set(set)),
        Some(_) => Err(Error::WrongType),
    }
}

fn combine(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    operation: Operation,
    name: &str,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let combination = Combination::parse(ctx, args.from(1), operation, false, name)?;
    let result = operation.run(&combination)?;
    let mut pairs = Pairs::begin(reply, result.len(), combination.with_scores);
    result
        .iter()
        .for_each(|(member, score)| pairs.write(member, score));
    Ok(())
}

fn combine_and_store(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    operation: Operation,
    name: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let combination = Combination::parse(ctx, args.from(2), operation, true, name)?;
    let mut result = operation.run(&combination)?;
    result.pack_if_small(ctx.keys.limits());
    store(ctx, &args[1], result, name, reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use redline_resp::Proto;

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

    #[test]
    fn algebra() {
        let mut db = TestDb::new();
        db.script(&[
            ("ZADD a 1 x 2 y", ":2"),
            ("ZADD b 10 y 20 z", ":2"),
            ("SADD s x", ":1"),
            (
                "ZUNION 2 a b WITHSCORES",
                "*6|$1|x|$1|1|$1|y|$2|12|$1|z|$2|20",
            ),
            (
                "ZINTER 2 a b WEIGHTS 2 1 AGGREGATE MAX WITHSCORES",
                "*2|$1|y|$2|10",
            ),
            ("ZDIFF 2 a b", "*1|$1|x"),
            ("ZINTERCARD 2 a s", ":1"),
            ("ZUNIONSTORE u 3 a b s", ":3"),
            ("ZSCORE u x", "$1|2"),
            ("ZDIFFSTORE u 1 none", ":0"),
            ("EXISTS u", ":0"),
            (
                "ZUNION 0 a",
                "-ERR at least 1 input key is needed for 'zunion' command",
            ),
            ("ZUNION 3 a", "-ERR syntax error"),
            ("ZUNION 1 a WEIGHTS x", "-ERR weight value is not a float"),
        ]);
    }
}
