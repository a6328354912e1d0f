//! Count-min sketches: the commands CMS. Replies and errors are those of the module `bf` of Redis 8.

use redline_keyspace::{Classes, Expiry, Trace};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{CountMin, number};

use crate::{
    Ctx, Error, Failure,
    bloom::{existing, field},
    words::Words,
};

const MISSING: Error = Error::line("CMS: key does not exist");
const OVERFLOW: &str = "CMS: INCRBY overflow";

/// CMS.INITBYDIM key width depth
pub(crate) fn cms_initbydim(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    ensure_new(ctx, &args[1])?;
    let positive = |word| number::parse_i64(word).filter(|number| *number > 0);
    let width = positive(&args[2]).ok_or(Error::line("CMS: invalid width"))?;
    let depth = positive(&args[3]).ok_or(Error::line("CMS: invalid depth"))?;
    make(
        ctx,
        &args[1],
        (width as u64, depth as u64),
        "cms.initbydim",
        reply,
    )
}

/// CMS.INITBYPROB key error probability
pub(crate) fn cms_initbyprob(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    ensure_new(ctx, &args[1])?;
    let share = |word| number::parse_f64(word).filter(|number| *number > 0.0 && *number < 1.0);
    let error = share(&args[2]).ok_or(Error::line("CMS: invalid overestimation value"))?;
    let probability = share(&args[3]).ok_or(Error::line("CMS: invalid prob value"))?;
    let dimensions = CountMin::dimensions(error, probability);
    make(ctx, &args[1], dimensions, "cms.initbyprob", reply)
}

fn ensure_new(ctx: &Ctx<'_>, key: &[u8]) -> Result<(), Failure> {
    match ctx.keys.find(key, Trace::Write) {
        Some(_) => Err(Error::line("CMS: key already exists").into()),
        None => Ok(()),
    }
}

fn make(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    (width, depth): (u64, u64),
    event: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let fits = width
        .checked_mul(depth)
        .is_some_and(|n| n > 0 && i64::try_from(n).is_ok());
    if !fits {
        return Err(Error::line("CMS: invalid init arguments").into());
    }
    let sketch = CountMin::new(width, depth);
    let sketch = sketch.ok_or(Error::line("CMS: Insufficient memory to create the key"))?;
    ctx.keys.insert(key, sketch, Expiry::Clear);
    ctx.keys.changed(Classes::MODULE, event, key);
    reply.ok();
    Ok(())
}

/// CMS.INCRBY key item increment [item increment …]
pub(crate) fn cms_incrby(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if !args.len().is_multiple_of(2) {
        return Err(Words::new(CommandId::CmsIncrby, &args, 2)
            .wrong_arity()
            .into());
    }
    let key = &args[1];
    let times_at = |at: usize| {
        let times = number::parse_i64(&args[at + 1]);
        let times = times.ok_or(Error::line("CMS: Cannot parse number"))?;
        u64::try_from(times).map_err(|_| Error::line("CMS: Number cannot be negative"))
    };
    let items = (2..args.len()).step_by(2);
    let added = ctx.keys.write::<CountMin, _>(key, |sketch, _| {
        // All numbers are read before anything is counted.
        items.clone().try_for_each(|at| times_at(at).map(drop))?;
        reply.array(items.len());
        for at in items {
            match sketch.add(&args[at], times_at(at)?) {
                u32::MAX => reply.error(OVERFLOW),
                count => reply.integer(count.into()),
            }
        }
        Ok::<(), Error>(())
    })?;
    added.ok_or(MISSING)??;
    ctx.keys.changed(Classes::MODULE, "cms.incrby", key);
    Ok(())
}

/// CMS.QUERY key item [item …]
pub(crate) fn cms_query(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let sketch = existing::<CountMin>(ctx, &args[1], MISSING)?;
    reply.array(args.len() - 2);
    for item in args.from(2).iter() {
        reply.integer(sketch.count_of(item).into());
    }
    Ok(())
}

/// CMS.MERGE destination numKeys source [source …] [WEIGHTS weight [weight …]]
pub(crate) fn cms_merge(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let destination = existing::<CountMin>(ctx, key, MISSING)?;
    let count = number::parse_i64(&args[2]).ok_or(Error::line("CMS: invalid numkeys"))?;
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 {
        return Err(Error::line("CMS: Number of keys must be positive").into());
    }
    let mut words = Words::new(CommandId::CmsMerge, &args, 3);
    let sources = words.take_args(count);
    let sources = sources.ok_or(Error::line("CMS: wrong number of keys"))?;
    let weights = match words.is_empty() {
        true => None,
        false if words.len() == count + 1 && words.undocumented("WEIGHTS") => Some(words.rest()),
        false if sources.iter().any(is_weights) || words.rest().iter().any(is_weights) => {
            return Err(Error::line("CMS: wrong number of keys/weights").into());
        }
        false => return Err(Error::line("CMS: wrong number of keys").into()),
    };
    let mut parts = Vec::with_capacity(count);
    for at in 0..count {
        let weight = match &weights {
            None => Some(1),
            Some(weights) => number::parse_i64(&weights[at]),
        };
        let weight = weight.ok_or(Error::line("CMS: invalid weight value"))?;
        let source = existing::<CountMin>(ctx, &sources[at], MISSING)?;
        let alike = source.width() == destination.width() && source.depth() == destination.depth();
        if !alike {
            return Err(Error::line("CMS: width/depth is not equal").into());
        }
        parts.push((source, weight));
    }
    let sum = CountMin::sum(&parts).ok_or(Error::line("CMS: MERGE overflow"))?;
    ctx.keys
        .write::<CountMin, _>(key, |sketch, _| *sketch = sum)?;
    ctx.keys.changed(Classes::MODULE, "cms.merge", key);
    reply.ok();
    Ok(())
}

fn is_weights(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"WEIGHTS")
}

/// CMS.INFO key
pub(crate) fn cms_info(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let sketch = existing::<CountMin>(ctx, &args[1], MISSING)?;
    reply.map(3);
    field(reply, "width", sketch.width());
    field(reply, "depth", sketch.depth());
    field(reply, "count", sketch.count());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn tables_that_take_all_memory_are_refused() {
        let mut db = TestDb::new();
        db.script(&[
            (
                "CMS.INITBYDIM m 4294967296 4294967296",
                "-CMS: invalid init arguments",
            ),
            (
                "CMS.INITBYDIM m 1073741825 1",
                "-CMS: Insufficient memory to create the key",
            ),
            (
                "CMS.INITBYPROB m 1e-300 0.1",
                "-CMS: invalid init arguments",
            ),
            ("EXISTS m", ":0"),
        ]);
    }

    #[test]
    fn a_merge_that_overflows_changes_nothing() {
        let mut db = TestDb::new();
        db.script(&[
            ("CMS.INITBYDIM m 10 2", "+OK"),
            ("CMS.INCRBY m a 5", "*1|:5"),
            (
                "CMS.MERGE m 1 m WEIGHTS 9223372036854775807",
                "-CMS: MERGE overflow",
            ),
            ("CMS.MERGE m 1 m WEIGHTS -1", "-CMS: MERGE overflow"),
            ("CMS.MERGE m 99999999999 m", "-CMS: wrong number of keys"),
            ("CMS.QUERY m a", "*1|:5"),
        ]);
    }
}
