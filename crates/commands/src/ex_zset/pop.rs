//! Removal of members from either end of exZsets, at once or blocking.

use redline_keyspace::Classes;
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{DataType, ExZset, Kind};

use super::{find, score::write};
use crate::{
    Ctx, Error, Failure,
    block::{self, Block},
    words::{Words, integer_in},
};

/// End that is popped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Min,
    Max,
}

/// EXZPOPMIN key [count]
pub(crate) fn exzpopmin(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exzpopmin, &args, 2);
    Ok(pop(ctx, &args[1], words, Side::Min, reply)?)
}

/// EXZPOPMAX key [count]
pub(crate) fn exzpopmax(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let words = Words::new(CommandId::Exzpopmax, &args, 2);
    Ok(pop(ctx, &args[1], words, Side::Max, reply)?)
}

fn pop(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    mut words: Words<'_>,
    side: Side,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let count = match words.next() {
        None => 1,
        Some(count) => integer_in(count, 0.., Error::NotInteger)? as usize,
    };
    words.end()?;
    let len = find(ctx, key)?.map_or(0, ExZset::len);
    let given = count.min(len);
    reply.array(given * 2);
    match given {
        0 => Ok(()),
        given => take(ctx, key, side, given, reply),
    }
}

/// Pops this number of members of a set that has as many.
fn take(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    side: Side,
    count: usize,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    ctx.keys.write::<ExZset, _>(key, |zset, _| {
        let give = |(member, score): (&[u8], Vec<f64>)| {
            reply.bulk(member);
            write(reply, &score);
        };
        let ranks = match side {
            Side::Min => 0..count,
            Side::Max => zset.len() - count..zset.len(),
        };
        match side {
            Side::Min => zset.range(ranks.clone()).for_each(give),
            Side::Max => zset.range(ranks.clone()).rev().for_each(give),
        }
        zset.remove_range(ranks)
    })?;
    let event = match side {
        Side::Min => "exzpopmin",
        Side::Max => "exzpopmax",
    };
    ctx.keys.changed(Classes::MODULE, event, key);
    ctx.keys.count_changes(count as u64 - 1);
    Ok(())
}

/// EXBZPOPMIN key [key …] timeout
pub(crate) fn exbzpopmin(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    pop_or_wait(ctx, args, Side::Min, reply)
}

/// EXBZPOPMAX key [key …] timeout
pub(crate) fn exbzpopmax(
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
        if find(ctx, key)?.is_some() {
            ctx.claim()?;
            reply.array(3);
            reply.bulk(key);
            take(ctx, key, side, 1, reply)?;
            let name: &[u8] = match side {
                Side::Min => b"EXZPOPMIN",
                Side::Max => b"EXZPOPMAX",
            };
            ctx.keys.propagate(&[name, key]);
            return Ok(());
        }
    }
    reply.null_array();
    Err(Block::on(Kind::ExZset, 1..last, timeout_ms).into())
}
