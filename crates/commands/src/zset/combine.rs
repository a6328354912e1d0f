//! Combinations of several sorted sets (and sets): union, intersection, difference.

use redline_keyspace::{Found, Trace, ValueRef};
use redline_resp::{Args, Reply};
use redline_types::{
    DataType, Value, Zset,
    zset::algebra::{Aggregate, Input, Source, difference, intersection, intersection_len, union},
};

use super::{Pairs, full, store};
use crate::{
    Ctx, Error, Failure,
    parse::{float, integer, is},
};

/// ZUNION numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(crate) fn zunion(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(combine(ctx, args, Operation::Union, "zunion", reply)?)
}

/// ZINTER numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(crate) fn zinter(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(combine(ctx, args, Operation::Inter, "zinter", reply)?)
}

/// ZDIFF numkeys key [key …] [WITHSCORES]
pub(crate) fn zdiff(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(combine(ctx, args, Operation::Diff, "zdiff", reply)?)
}

/// ZUNIONSTORE destination numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX]
pub(crate) fn zunionstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(combine_and_store(
        ctx,
        args,
        Operation::Union,
        "zunionstore",
        reply,
    )?)
}

/// ZINTERSTORE destination numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX]
pub(crate) fn zinterstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(combine_and_store(
        ctx,
        args,
        Operation::Inter,
        "zinterstore",
        reply,
    )?)
}

/// ZDIFFSTORE destination numkeys key [key …]
pub(crate) fn zdiffstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    Ok(combine_and_store(
        ctx,
        args,
        Operation::Diff,
        "zdiffstore",
        reply,
    )?)
}

/// ZINTERCARD numkeys key [key …] [LIMIT limit]
pub(crate) fn zintercard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (sources, options) = sources(ctx, args.from(1), "zintercard")?;
    let mut limit = 0;
    let mut words = options.iter();
    while let Some(option) = words.next() {
        let value = words
            .next()
            .filter(|_| is(option, "LIMIT"))
            .ok_or(Error::Syntax)?;
        let value = integer(value).map_err(|_| Error::NEGATIVE_LIMIT)?;
        limit = usize::try_from(value).map_err(|_| Error::NEGATIVE_LIMIT)?;
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
    match ctx.keys.find(key, Trace::Read).map(Found::value) {
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
    result.pack_if_small(&ctx.keys.local.limits);
    store(ctx, &args[1], result, name, reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

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
