//! Unions, intersections and differences of exZsets.

use std::collections::HashMap;

use redline_keyspace::{Classes, Expiry};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{DataType, ExZset, number::parse_f64, zset::several::compare};

use super::score::{INVALID_SCORE, write};
use crate::{
    Ctx, Error, Failure,
    words::{Words, integer, integer_in},
};

/// Operation on sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// Score of a member that several sets have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn add(self, score: &mut Vec<f64>, other: Vec<f64>) {
        match self {
            Aggregate::Sum => {
                for (part, other) in score.iter_mut().zip(other) {
                    *part = or_zero(*part + other);
                }
            }
            Aggregate::Min if compare(score, &other).is_gt() => *score = other,
            Aggregate::Max if compare(score, &other).is_lt() => *score = other,
            Aggregate::Min | Aggregate::Max => {}
        }
    }
}

/// Returns 0 for what is no number: the sum of both infinities, or an infinity times 0.
fn or_zero(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number }
}

/// A call: its operation, its keys, and how scores are combined.
struct Call<'a> {
    operation: Operation,
    keys: Args<'a>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
}

impl<'a> Call<'a> {
    /// Reads the arguments from the number of keys on. `stores`: there is no WITHSCORES.
    fn parse(
        ctx: &Ctx<'_>,
        operation: Operation,
        mut words: Words<'a>,
        stores: bool,
    ) -> Result<Call<'a>, Error> {
        let keys = keys(ctx, &mut words)?;
        let mut call = Call {
            operation,
            keys,
            weights: vec![1.0; keys.len()],
            aggregate: Aggregate::Sum,
            with_scores: false,
        };
        let combines = operation != Operation::Diff;
        while !words.is_empty() {
            if combines && let Some(weights) = words.list("WEIGHTS", keys.len()) {
                let read = |weight| parse_f64(weight);
                let weights = weights.iter().map(read).collect::<Option<_>>();
                call.weights = weights.ok_or(Error::line("ERR weight value is not a float"))?;
            } else if combines && let Some(word) = words.value("AGGREGATE") {
                call.aggregate = match &word.to_ascii_uppercase()[..] {
                    b"SUM" => Aggregate::Sum,
                    b"MIN" => Aggregate::Min,
                    b"MAX" => Aggregate::Max,
                    _ => return Err(Error::Syntax),
                };
            } else if !stores && words.flag("WITHSCORES") {
                call.with_scores = true;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(call)
    }

    /// Returns the result.
    fn run(&self, ctx: &Ctx<'_>) -> Result<ExZset, Error> {
        let sets = self.keys.iter().map(|key| ctx.keys.read::<ExZset>(key));
        let sets = sets.collect::<Result<Vec<_>, _>>()?;
        let mut result = ExZset::default();
        match self.operation {
            Operation::Union => {
                let mut scores: HashMap<&[u8], Vec<f64>> = HashMap::new();
                for (at, zset) in sets.iter().enumerate() {
                    let Some(zset) = zset else { continue };
                    for (member, score) in zset.range(0..zset.len()) {
                        let score = self.weighted(at, score);
                        match scores.get_mut(member) {
                            Some(present) => self.aggregate.add(present, score),
                            None => {
                                scores.insert(member, score);
                            }
                        }
                    }
                }
                for (member, score) in scores {
                    result.add(member, &score)?;
                }
            }
            Operation::Inter => {
                let [Some(first), others @ ..] = &sets[..] else {
                    return Ok(result);
                };
                'members: for (member, score) in first.range(0..first.len()) {
                    let mut score = self.weighted(0, score);
                    for (at, other) in (1..).zip(others) {
                        let Some(other) = other.and_then(|zset| zset.score(member)) else {
                            continue 'members;
                        };
                        self.aggregate.add(&mut score, self.weighted(at, other));
                    }
                    result.add(member, &score)?;
                }
            }
            Operation::Diff => {
                let [Some(first), others @ ..] = &sets[..] else {
                    return Ok(result);
                };
                for (member, score) in first.range(0..first.len()) {
                    let mut others = others.iter().flatten();
                    if others.all(|zset| zset.rank(member).is_none()) {
                        result.add(member, &score)?;
                    }
                }
            }
        }
        Ok(result)
    }

    /// Returns a score times the weight of its set.
    fn weighted(&self, set: usize, mut score: Vec<f64>) -> Vec<f64> {
        let weight = self.weights[set];
        score
            .iter_mut()
            .for_each(|part| *part = or_zero(*part * weight));
        score
    }
}

/// Reads the number of keys and the keys, whose scores must have as many parts.
fn keys<'a>(ctx: &Ctx<'_>, words: &mut Words<'a>) -> Result<Args<'a>, Error> {
    let count = integer(words.next().ok_or(Error::Syntax)?)?;
    if count < 1 {
        return Err(Error::line("ERR at least 1 input key is needed"));
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let keys = words.take_args(count).ok_or(Error::Syntax)?;
    let mut parts = None;
    for key in keys.iter() {
        if let Some(zset) = ctx.keys.read::<ExZset>(key)?
            && *parts.get_or_insert(zset.parts()) != zset.parts()
        {
            return Err(INVALID_SCORE);
        }
    }
    Ok(keys)
}

fn read(ctx: &Ctx<'_>, call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let zset = call.run(ctx)?;
    reply.array(zset.len() * if call.with_scores { 2 } else { 1 });
    for (member, score) in zset.range(0..zset.len()) {
        reply.bulk(member);
        if call.with_scores {
            write(reply, &score);
        }
    }
    Ok(())
}

/// EXZUNION numkeys key [key …] [WEIGHTS weight [weight …]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(crate) fn exzunion(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exzunion, &args, 1);
    let call = Call::parse(ctx, Operation::Union, words, false)?;
    Ok(read(ctx, &call, reply)?)
}

/// EXZINTER numkeys key [key …] [WEIGHTS weight [weight …]] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(crate) fn exzinter(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exzinter, &args, 1);
    let call = Call::parse(ctx, Operation::Inter, words, false)?;
    Ok(read(ctx, &call, reply)?)
}

/// EXZDIFF numkeys key [key …] [WITHSCORES]
pub(crate) fn exzdiff(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exzdiff, &args, 1);
    let call = Call::parse(ctx, Operation::Diff, words, false)?;
    Ok(read(ctx, &call, reply)?)
}

/// EXZINTERCARD numkeys key [key …] [LIMIT limit]
pub(crate) fn exzintercard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::Exzintercard, &args, 1);
    let keys = keys(ctx, &mut words)?;
    let limit = match words.value("LIMIT") {
        None => 0,
        Some(limit) => integer_in(limit, 0.., Error::NEGATIVE_LIMIT)? as usize,
    };
    words.end()?;
    let sets = keys.iter().map(|key| ctx.keys.read::<ExZset>(key));
    let sets = sets
        .collect::<Result<Option<Vec<_>>, _>>()?
        .unwrap_or_default();
    let smallest = sets.iter().min_by_key(|zset| zset.len());
    let most = if limit == 0 { usize::MAX } else { limit };
    let count = smallest.map_or(0, |smallest| {
        let members = smallest.range(0..smallest.len());
        let is_common = |member: &[u8]| sets.iter().all(|zset| zset.rank(member).is_some());
        members
            .filter(|(member, _)| is_common(member))
            .take(most)
            .count()
    });
    reply.integer(count as i64);
    Ok(())
}

fn store(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    operation: Operation,
    words: Words<'_>,
    event: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let zset = Call::parse(ctx, operation, words, true)?.run(ctx)?;
    let len = zset.len();
    if len > 0 {
        ctx.keys.insert(key, zset, Expiry::Clear);
        ctx.keys.changed(Classes::MODULE, event, key);
    } else if ctx.keys.remove_for_nothing(key) {
        ctx.keys.changed(Classes::GENERIC, "del", key);
    }
    reply.integer(len as i64);
    Ok(())
}

/// EXZUNIONSTORE destination numkeys key [key …] [WEIGHTS weight [weight …]] [AGGREGATE SUM | MIN | MAX]
pub(crate) fn exzunionstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exzunionstore, &args, 2);
    let event = "exzunionstore";
    Ok(store(ctx, &args[1], Operation::Union, words, event, reply)?)
}

/// EXZINTERSTORE destination numkeys key [key …] [WEIGHTS weight [weight …]] [AGGREGATE SUM | MIN | MAX]
pub(crate) fn exzinterstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exzinterstore, &args, 2);
    let event = "exzinterstore";
    Ok(store(ctx, &args[1], Operation::Inter, words, event, reply)?)
}

/// EXZDIFFSTORE destination numkeys key [key …]
pub(crate) fn exzdiffstore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exzdiffstore, &args, 2);
    let event = "exzdiffstore";
    Ok(store(ctx, &args[1], Operation::Diff, words, event, reply)?)
}
