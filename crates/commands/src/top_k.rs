//! The most frequent items: the commands TOPK. Replies and errors are those of the module `bf` of Redis 8.

use redline_keyspace::{Classes, Expiry, Trace};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{TopK, number};

use crate::{
    Ctx, Error, Failure,
    bloom::{existing, field},
    words::Words,
};

/// Largest increment of an item in one call.
const INCREMENT_MAX: u32 = 100_000;
const WIDTH_DEFAULT: u32 = 8;
const DEPTH_DEFAULT: u32 = 7;
const DECAY_DEFAULT: f64 = 0.9;

const MISSING: Error = Error::line("TopK: key does not exist");
/// The module has a line of its source in it, indentation and all.
const BAD_INCREMENT: &str = "TopK: increment must be an integer greater or equal to 0                            and smaller or equal to 100,000";

/// TOPK.RESERVE key topk [width depth decay]
pub(crate) fn topk_reserve(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if args.len() != 3 && args.len() != 6 {
        return Err(Words::new(CommandId::TopkReserve, &args, 3)
            .wrong_arity()
            .into());
    }
    let key = &args[1];
    if ctx.keys.find(key, Trace::Write).is_some() {
        return Err(Error::line("TopK: key already exists").into());
    }
    let positive = |at: usize| {
        let number = number::parse_i64(&args[at])?;
        u32::try_from(number).ok().filter(|number| *number > 0)
    };
    let k = positive(2).ok_or(Error::line("TopK: invalid k"))?;
    let (mut width, mut depth, mut decay) = (WIDTH_DEFAULT, DEPTH_DEFAULT, DECAY_DEFAULT);
    if args.len() == 6 {
        width = positive(3).ok_or(Error::line("TopK: invalid width"))?;
        depth = positive(4).ok_or(Error::line("TopK: invalid depth"))?;
        let number = number::parse_f64(&args[5]).filter(|number| *number > 0.0 && *number <= 1.0);
        decay = number.ok_or(Error::line(
            "TopK: invalid decay value. must be '<= 1' & '> 0'",
        ))?;
    }
    let top = TopK::new(k, width, depth, decay);
    let top = top.ok_or(Error::line("TopK: Insufficient memory to create the key"))?;
    ctx.keys.insert(key, top, Expiry::Clear);
    ctx.keys.changed(Classes::MODULE, "topk.reserve", key);
    reply.ok();
    Ok(())
}

/// Writes the item that is no longer kept.
fn write_expelled(reply: &mut Reply<'_>, item: Option<Box<[u8]>>) {
    match item {
        Some(item) => reply.bulk(&item),
        None => reply.null(),
    }
}

/// TOPK.ADD key item [item …]
pub(crate) fn topk_add(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let added = ctx.keys.write::<TopK, _>(key, |top, _| {
        reply.array(args.len() - 2);
        for item in args.from(2).iter() {
            write_expelled(reply, top.add(item, 1));
        }
    })?;
    added.ok_or(MISSING)?;
    ctx.keys.changed(Classes::MODULE, "topk.add", key);
    Ok(())
}

/// TOPK.INCRBY key item increment [item increment …]
pub(crate) fn topk_incrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if !args.len().is_multiple_of(2) {
        return Err(Words::new(CommandId::TopkIncrby, &args, 2)
            .wrong_arity()
            .into());
    }
    let key = &args[1];
    let changed = ctx.keys.write::<TopK, _>(key, |top, _| {
        let mut changed = false;
        reply.array(args.len() / 2 - 1);
        for at in (2..args.len()).step_by(2) {
            let times = number::parse_i64(&args[at + 1]);
            let times = times.and_then(|times| u32::try_from(times).ok());
            match times.filter(|times| *times <= INCREMENT_MAX) {
                Some(times) => {
                    changed = true;
                    write_expelled(reply, top.add(&args[at], times));
                }
                None => reply.error(BAD_INCREMENT),
            }
        }
        changed
    })?;
    if changed.ok_or(MISSING)? {
        ctx.keys.changed(Classes::MODULE, "topk.incrby", key);
    }
    Ok(())
}

/// TOPK.QUERY key item [item …]
pub(crate) fn topk_query(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let top = existing::<TopK>(ctx, &args[1], MISSING)?;
    reply.array(args.len() - 2);
    for item in args.from(2).iter() {
        reply.bool(top.contains(item));
    }
    Ok(())
}

/// TOPK.COUNT key item [item …]
pub(crate) fn topk_count(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let top = existing::<TopK>(ctx, &args[1], MISSING)?;
    reply.array(args.len() - 2);
    for item in args.from(2).iter() {
        reply.integer(top.count_of(item).into());
    }
    Ok(())
}

/// TOPK.LIST key [WITHCOUNT]
pub(crate) fn topk_list(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::TopkList, &args, 2);
    if words.len() > 1 {
        return Err(words.wrong_arity().into());
    }
    let top = existing::<TopK>(ctx, &args[1], MISSING)?;
    let with_count = words.flag("WITHCOUNT");
    if !words.is_empty() {
        return Err(Error::line("WITHCOUNT keyword expected").into());
    }
    let list = top.list();
    reply.array(list.len() * (1 + usize::from(with_count)));
    for entry in list {
        reply.bulk(&entry.item);
        if with_count {
            reply.integer(entry.count.into());
        }
    }
    Ok(())
}

/// TOPK.INFO key
pub(crate) fn topk_info(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let top = existing::<TopK>(ctx, &args[1], MISSING)?;
    reply.map(4);
    field(reply, "k", top.k().into());
    field(reply, "width", top.width().into());
    field(reply, "depth", top.depth().into());
    reply.simple("decay");
    reply.double(top.decay());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn increments_out_of_range_count_nothing() {
        let mut db = TestDb::new();
        db.words("TOPK.RESERVE t 3");
        for increment in ["-1", "100001", "x", "9223372036854775808"] {
            let reply = db.words(&format!("TOPK.INCRBY t a {increment}"));
            assert!(reply.starts_with("*1|-TopK: increment"), "{reply}");
            assert_eq!(db.changes, 0);
        }
        assert_eq!(db.words("TOPK.LIST t"), "*0");
        assert_eq!(
            db.words("TOPK.RESERVE u 4294967295 4294967295 4294967295 0.9"),
            "-TopK: Insufficient memory to create the key"
        );
    }
}
