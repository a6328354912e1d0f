//! Combinations of several sorted sets (and sets): union, intersection, difference.

use redline_keyspace::{Found, Trace, ValueRef};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    DataType, Value, Zset,
    zset::algebra::{Aggregate, Input, Source, difference, intersection, intersection_len, union},
};

use super::{Pairs, full, store};
use crate::{
    Ctx, Error, Failure,
    words::{Words, float, integer_in},
};

/// ZUNION numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(crate) fn zunion(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Zunion, &args, 1);
    Ok(combine(ctx, words, Operation::Union, reply)?)
}

/// ZINTER numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(crate) fn zinter(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Zinter, &args, 1);
    Ok(combine(ctx, words, Operation::Inter, reply)?)
}

/// ZDIFF numkeys key [key …] [WITHSCORES]
pub(crate) fn zdiff(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Zdiff, &args, 1);
    Ok(combine(ctx, words, Operation::Diff, reply)?)
}

/// ZUNIONSTORE destination numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX]
pub(crate) fn zunionstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Zunionstore, &args, 2);
    Ok(combine_and_store(
        ctx,
        &args[1],
        words,
        Operation::Union,
        reply,
    )?)
}

/// ZINTERSTORE destination numkeys key [key …] [WEIGHTS weight …] [AGGREGATE SUM | MIN | MAX]
pub(crate) fn zinterstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Zinterstore, &args, 2);
    Ok(combine_and_store(
        ctx,
        &args[1],
        words,
        Operation::Inter,
        reply,
    )?)
}

/// ZDIFFSTORE destination numkeys key [key …]
pub(crate) fn zdiffstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Zdiffstore, &args, 2);
    Ok(combine_and_store(
        ctx,
        &args[1],
        words,
        Operation::Diff,
        reply,
    )?)
}

/// ZINTERCARD numkeys key [key …] [LIMIT limit]
pub(crate) fn zintercard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::Zintercard, &args, 1);
    let sources = sources(ctx, &mut words)?;
    let mut limit = 0;
    while !words.is_empty() {
        let value = words.value("LIMIT").ok_or(Error::Syntax)?;
        limit = integer_in(value, 0.., Error::NEGATIVE_LIMIT)? as usize;
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
    /// Reads `numkeys key … options`.
    fn parse(
        ctx: &'v Ctx<'_>,
        mut words: Words<'_>,
        operation: Operation,
        stores: bool,
    ) -> Result<Combination<'v>, Error> {
        let sources = sources(ctx, &mut words)?;
        let mut inputs: Vec<Input<'v>> = sources
            .into_iter()
            .map(|source| Input {
                source,
                weight: 1.0,
            })
            .collect();
        let (mut aggregate, mut with_scores) = (Aggregate::Sum, false);
        let weighs = operation != Operation::Diff;
        while !words.is_empty() {
            if weighs && let Some(weights) = words.list("WEIGHTS", inputs.len()) {
                for (input, weight) in inputs.iter_mut().zip(weights.iter()) {
                    input.weight = float(weight)
                        .map_err(|_| Error::line("ERR weight value is not a float"))?;
                }
            } else if weighs && words.flag("AGGREGATE") {
                let how = words.one_of(&[
                    ("SUM", Aggregate::Sum),
                    ("MIN", Aggregate::Min),
                    ("MAX", Aggregate::Max),
                ]);
                aggregate = how.ok_or(Error::Syntax)?;
            } else if !stores && words.flag("WITHSCORES") {
                with_scores = true;
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

/// Takes `numkeys key …` and looks up the keys.
fn sources<'v>(ctx: &'v Ctx<'_>, words: &mut Words<'_>) -> Result<Vec<Source<'v>>, Error> {
    let keys = words.read::<i64>()?;
    if keys < 1 {
        let name = words.name();
        return Err(Error::Line(
            format!("ERR at least 1 input key is needed for '{name}' command").into(),
        ));
    }
    let keys = words.take_args(keys as usize).ok_or(Error::Syntax)?;
    keys.iter().map(|key| source(ctx, key)).collect()
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
    words: Words<'_>,
    operation: Operation,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let combination = Combination::parse(ctx, words, operation, false)?;
    let result = operation.run(&combination)?;
    let mut pairs = Pairs::begin(reply, result.len(), combination.with_scores);
    result
        .iter()
        .for_each(|(member, score)| pairs.write(member, score));
    Ok(())
}

fn combine_and_store(
    ctx: &mut Ctx<'_>,
    destination: &[u8],
    words: Words<'_>,
    operation: Operation,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let combination = Combination::parse(ctx, words, operation, true)?;
    let mut result = operation.run(&combination)?;
    result.pack_if_small(&ctx.keys.local.limits);
    store(ctx, destination, result, words.name(), reply);
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
