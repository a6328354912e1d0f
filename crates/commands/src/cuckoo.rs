//! Cuckoo filters: the commands CF. Replies and errors are those of the module `bf` of Redis 8.
//!
//! As there, the commands that look for items take a key of another type for a missing one.

use redline_keyspace::{Classes, Expiry, journal::Word};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    Cuckoo,
    cuckoo::{Added, Shape},
    number,
};

use crate::{
    Ctx, Error, Failure,
    bloom::{
        CAPACITY_MAX, CHUNK_BYTES_MAX, EXISTS, EXPANSION_MAX, NOT_FOUND, ensure_new, existing,
        field, of_type,
    },
    word,
    words::Words,
};

const BAD_CAPACITY: Error = Error::line("Bad capacity");
const CAPACITY_RANGE: Error =
    Error::line("Capacity must be in the range [2 * BUCKETSIZE, 1073741824]");
const NO_ROOM: Error = Error::line("Couldn't create Cuckoo Filter");
const BAD_POSITION: Error = Error::line("Invalid position");
const FULL: &str = "Filter is full";
const CANNOT_GROW: &str = "Memory allocation failure";

/// The properties of a filter that is to be made.
struct Wanted {
    capacity: i64,
    bucket_size: u16,
    iterations_max: u16,
    expansion: u16,
}

impl Wanted {
    fn by_default(ctx: &Ctx<'_>) -> Wanted {
        let limits = &ctx.keys.local.limits;
        Wanted {
            capacity: limits.cf_initial_size as i64,
            bucket_size: limits.cf_bucket_size as u16,
            iterations_max: limits.cf_max_iterations as u16,
            expansion: limits.cf_expansion_factor as u16,
        }
    }

    fn check_capacity(&self) -> Result<(), Error> {
        let least = 2 * i64::from(self.bucket_size);
        match (least..=CAPACITY_MAX).contains(&self.capacity) {
            true => Ok(()),
            false => Err(CAPACITY_RANGE),
        }
    }

    /// Reports to the journal that the filter was made, with all its properties: those that a call leaves out are settings,
    /// which a reader may have set otherwise.
    fn propagate(&self, ctx: &mut Ctx<'_>, key: &[u8]) {
        let words = [
            ("", self.capacity),
            ("BUCKETSIZE", self.bucket_size.into()),
            ("MAXITERATIONS", self.iterations_max.into()),
            ("EXPANSION", self.expansion.into()),
        ];
        let words = words.map(|(name, value)| [name.to_owned(), value.to_string()]);
        let words = words.iter().flatten().filter(|word| !word.is_empty());
        let words = [b"CF.RESERVE", key]
            .into_iter()
            .chain(words.map(|word| word.as_bytes()));
        ctx.keys.propagate(words.map(Word::Bytes));
    }

    fn make(&self) -> Result<Cuckoo, Error> {
        let shape = Shape::for_capacity(
            self.capacity as u64,
            self.bucket_size,
            self.iterations_max,
            self.expansion,
        );
        Cuckoo::new(shape).ok_or(NO_ROOM)
    }
}

/// CF.RESERVE key capacity [BUCKETSIZE n] [MAXITERATIONS n] [EXPANSION n]
pub(crate) fn cf_reserve(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::CfReserve, &args, 3);
    if args.len().is_multiple_of(2) {
        return Err(words.wrong_arity().into());
    }
    let capacity = number::parse_i64(&args[2]).ok_or(BAD_CAPACITY)?;
    let mut wanted = Wanted {
        capacity,
        ..Wanted::by_default(ctx)
    };
    let (mut iterations, mut bucket_size, mut expansion) = (None, None, None);
    while !words.is_empty() {
        if let Some(value) = words.value("MAXITERATIONS") {
            iterations = Some(value);
        } else if let Some(value) = words.value("BUCKETSIZE") {
            bucket_size = Some(value);
        } else if let Some(value) = words.value("EXPANSION") {
            expansion = Some(value);
        } else {
            // The module looks for the words that it knows, wherever they are, and reads no other.
            words.next();
        }
    }
    if let Some(value) = iterations {
        let number = number::parse_i64(value).ok_or(Error::line("Couldn't parse MAXITERATIONS"))?;
        let number = u16::try_from(number).ok().filter(|number| *number > 0);
        wanted.iterations_max = number.ok_or(Error::line(
            "MAXITERATIONS: value must be in the range [1, 65535]",
        ))?;
    }
    if let Some(value) = bucket_size {
        let number = number::parse_i64(value).ok_or(Error::line("Couldn't parse BUCKETSIZE"))?;
        let number = u8::try_from(number).ok().filter(|number| *number > 0);
        let number = number.ok_or(Error::line(
            "BUCKETSIZE: value must be in the range [1, 255]",
        ))?;
        wanted.bucket_size = number.into();
    }
    if let Some(value) = expansion {
        let number = number::parse_i64(value).ok_or(Error::line("Couldn't parse EXPANSION"))?;
        if !(0..=EXPANSION_MAX).contains(&number) {
            return Err(Error::line("EXPANSION: value must be in the range [0, 32768]").into());
        }
        wanted.expansion = number as u16;
    }
    wanted.check_capacity()?;
    let key = &args[1];
    ensure_new::<Cuckoo>(ctx, key, EXISTS)?;
    ctx.keys.insert(key, wanted.make()?, Expiry::Clear);
    wanted.propagate(ctx, key);
    ctx.keys.changed(Classes::MODULE, "cf.reserve", key);
    reply.ok();
    Ok(())
}

/// Hands a filter to `edit`, one that is made if the key is missing; `edit` returns true if it changed something.
fn edit<R>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    wanted: Option<&Wanted>,
    event: &'static str,
    mut edit: impl FnMut(&mut Cuckoo) -> (bool, R),
) -> Result<R, Failure> {
    let key = &args[1];
    let edited = ctx.keys.write::<Cuckoo, _>(key, |cuckoo, limits| {
        let may_grow = cuckoo.layers().len() < limits.cf_max_expansions;
        may_grow.then(|| edit(cuckoo))
    })?;
    let (changed, result) = match edited {
        Some(edited) => edited.ok_or(Error::line("Maximum expansions reached"))?,
        None => {
            let wanted = wanted.ok_or(NOT_FOUND)?;
            let mut cuckoo = wanted.make()?;
            let (_, result) = edit(&mut cuckoo);
            ctx.keys.insert(key, cuckoo, Expiry::Clear);
            wanted.propagate(ctx, key);
            ctx.keys.propagate((0..args.len()).map(|at| word(args, at)));
            (true, result)
        }
    };
    if changed {
        ctx.keys.changed(Classes::MODULE, event, key);
    }
    Ok(result)
}

fn add(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    if_absent: bool,
    event: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let wanted = Wanted::by_default(ctx);
    let added = edit(ctx, args, Some(&wanted), event, |cuckoo| {
        let added = cuckoo.add(&args[2], if_absent);
        (added == Added::Yes, added)
    })?;
    match added {
        Added::Yes => reply.bool(true),
        Added::Found => reply.bool(false),
        Added::Full => return Err(Error::line(FULL).into()),
        Added::TooLarge => return Err(Error::line(CANNOT_GROW).into()),
    }
    Ok(())
}

/// CF.ADD key item
pub(crate) fn cf_add(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    add(ctx, args, false, "cf.add", reply)
}

/// CF.ADDNX key item
pub(crate) fn cf_addnx(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    add(ctx, args, true, "cf.addnx", reply)
}

fn insert(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    id: CommandId,
    event: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut wanted = Wanted::by_default(ctx);
    let mut creates = true;
    let mut words = Words::new(id, &args, 2);
    while !words.flag("ITEMS") {
        if words.len() < 2 {
            return Err(words.wrong_arity().into());
        } else if let Some(capacity) = words.value("CAPACITY") {
            wanted.capacity = number::parse_i64(capacity).ok_or(BAD_CAPACITY)?;
            wanted.check_capacity()?;
        } else if words.flag("NOCREATE") {
            creates = false;
        } else {
            return Err(Error::line("Unknown argument received").into());
        }
    }
    if words.is_empty() {
        return Err(words.wrong_arity().into());
    }
    let if_absent = id == CommandId::CfInsertnx;
    let items = words.rest();
    let wanted = creates.then_some(&wanted);
    edit(ctx, args, wanted, event, |cuckoo| {
        let mut changed = false;
        reply.array(items.len());
        for item in items.iter() {
            match cuckoo.add(item, if_absent) {
                Added::Yes => {
                    changed = true;
                    reply.bool(true);
                }
                Added::Found => reply.bool(false),
                Added::Full => reply.integer(-1),
                Added::TooLarge => reply.error(CANNOT_GROW),
            }
        }
        (changed, ())
    })
}

/// CF.INSERT key [CAPACITY n] [NOCREATE] ITEMS item [item …]
pub(crate) fn cf_insert(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    insert(ctx, args, CommandId::CfInsert, "cf.insert", reply)
}

/// CF.INSERTNX key [CAPACITY n] [NOCREATE] ITEMS item [item …]
pub(crate) fn cf_insertnx(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    insert(ctx, args, CommandId::CfInsertnx, "cf.insertnx", reply)
}

/// CF.EXISTS key item
pub(crate) fn cf_exists(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let cuckoo = of_type::<Cuckoo>(ctx, &args[1]);
    reply.bool(cuckoo.is_some_and(|cuckoo| cuckoo.contains(&args[2])));
    Ok(())
}

/// CF.MEXISTS key item [item …]
pub(crate) fn cf_mexists(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let cuckoo = of_type::<Cuckoo>(ctx, &args[1]);
    reply.array(args.len() - 2);
    for item in args.from(2).iter() {
        reply.bool(cuckoo.is_some_and(|cuckoo| cuckoo.contains(item)));
    }
    Ok(())
}

/// CF.COUNT key item
pub(crate) fn cf_count(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let cuckoo = of_type::<Cuckoo>(ctx, &args[1]);
    reply.integer(cuckoo.map_or(0, |cuckoo| cuckoo.count(&args[2]) as i64));
    Ok(())
}

/// CF.DEL key item
pub(crate) fn cf_del(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let deleted = ctx
        .keys
        .write::<Cuckoo, _>(key, |cuckoo, _| cuckoo.delete(&args[2]));
    let Ok(Some(deleted)) = deleted else {
        return Err(Error::line("Not found").into());
    };
    if deleted {
        ctx.keys.changed(Classes::MODULE, "cf.del", key);
    }
    reply.bool(deleted);
    Ok(())
}

/// CF.COMPACT key
pub(crate) fn cf_compact(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let compacted = ctx
        .keys
        .write::<Cuckoo, _>(key, |cuckoo, _| cuckoo.compact_layers(true));
    let Ok(Some(())) = compacted else {
        return Err(Error::line("Cuckoo filter was not found").into());
    };
    ctx.keys.changed(Classes::MODULE, "cf.compact", key);
    reply.ok();
    Ok(())
}

/// CF.INFO key
pub(crate) fn cf_info(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    /// Bytes that RedisBloom counts for a filter, and for a layer.
    const FILTER_BYTES: usize = 40;
    const LAYER_BYTES: usize = 16;
    let cuckoo = existing::<Cuckoo>(ctx, &args[1], NOT_FOUND)?;
    let shape = cuckoo.shape();
    let layers = cuckoo.layers().len();
    let size = FILTER_BYTES + layers * LAYER_BYTES + cuckoo.places();
    reply.map(8);
    field(reply, "Size", size as u64);
    field(reply, "Number of buckets", shape.buckets);
    field(reply, "Number of filters", layers as u64);
    field(reply, "Number of items inserted", cuckoo.items());
    field(reply, "Number of items deleted", cuckoo.deletions());
    field(reply, "Bucket size", shape.bucket_size.into());
    field(reply, "Expansion rate", shape.expansion.into());
    field(reply, "Max iterations", shape.iterations_max.into());
    Ok(())
}

/// CF.DEBUG key
pub(crate) fn cf_debug(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let cuckoo = existing::<Cuckoo>(ctx, &args[1], NOT_FOUND)?;
    let shape = cuckoo.shape();
    let line = format!(
        "bktsize:{} buckets:{} items:{} deletes:{} filters:{} max_iterations:{} expansion:{}",
        shape.bucket_size,
        shape.buckets,
        cuckoo.items(),
        cuckoo.deletions(),
        cuckoo.layers().len(),
        shape.iterations_max,
        shape.expansion,
    );
    reply.bulk(line.as_bytes());
    Ok(())
}

/// CF.SCANDUMP key iterator
pub(crate) fn cf_scandump(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let position = number::parse_i64(&args[2]).filter(|position| *position >= 0);
    let position = position.ok_or(BAD_POSITION)?;
    let cuckoo = existing::<Cuckoo>(ctx, &args[1], NOT_FOUND)?;
    reply.array(2);
    let chunk = match (cuckoo.items(), position) {
        (0, _) => None,
        (_, 0) => {
            reply.integer(1);
            reply.bulk(&cuckoo.header());
            return Ok(());
        }
        _ => cuckoo.chunk(position, CHUNK_BYTES_MAX),
    };
    match chunk {
        Some((next, chunk)) => {
            reply.integer(next);
            reply.bulk(chunk);
        }
        None => {
            reply.integer(0);
            reply.null();
        }
    }
    Ok(())
}

/// CF.LOADCHUNK key iterator data
pub(crate) fn cf_loadchunk(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let position = number::parse_i64(&args[2]).filter(|position| *position != 0);
    let position = position.ok_or(BAD_POSITION)?;
    let (key, chunk) = (&args[1], &args[3]);
    if position == 1 {
        ensure_new::<Cuckoo>(ctx, key, EXISTS)?;
        if !Cuckoo::has_header_len(chunk) {
            return Err(Error::line("Invalid header").into());
        }
        let cuckoo = Cuckoo::from_header(chunk);
        let cuckoo = cuckoo.ok_or(Error::line("Couldn't create filter!"))?;
        ctx.keys.insert(key, cuckoo, Expiry::Clear);
    } else {
        let loaded = ctx
            .keys
            .write::<Cuckoo, _>(key, |cuckoo, _| cuckoo.load_chunk(position, chunk))?;
        if !loaded.ok_or(NOT_FOUND)? {
            return Err(Error::line("Couldn't load chunk!").into());
        }
    }
    ctx.keys.changed(Classes::MODULE, "cf.loadchunk", key);
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    #[test]
    fn only_what_changes_a_filter_is_an_event_and_a_change() {
        let mut db = TestDb::new();
        db.words("CF.RESERVE c 4 BUCKETSIZE 1 EXPANSION 0");
        db.events();
        db.words("CF.INSERT c ITEMS k0 k1 k2 k3");
        assert_eq!(
            (db.changes, db.events()),
            (1, vec!["cf.insert c".to_owned()])
        );
        for call in ["CF.ADD c k4", "CF.ADDNX c k0", "CF.DEL c other-item-7"] {
            db.words(call);
            assert_eq!((db.changes, db.events().len()), (0, 0), "{call}");
        }
        assert_eq!(db.words("CF.INSERT c ITEMS k4 k5"), "*2|:-1|:-1");
        assert_eq!(db.words("CF.DEL c k0"), ":1");
        assert_eq!(db.events(), ["cf.del c"]);
    }

    #[test]
    fn a_filter_takes_no_more_at_its_largest_number_of_layers() {
        let mut db = TestDb::new();
        db.local.limits.cf_max_expansions = 2;
        db.words("CF.RESERVE c 2 BUCKETSIZE 1 EXPANSION 1");
        let replies: Vec<String> = (0..9)
            .map(|n| db.words(&format!("CF.ADD c k{n}")))
            .collect();
        let refused = "-Maximum expansions reached".to_owned();
        assert!(replies.contains(&refused), "{replies:?}");
    }

    #[test]
    fn garbage_does_not_get_into_a_filter() {
        let mut db = TestDb::new();
        db.words("CF.ADD c item");
        let before = db.words("CF.SCANDUMP c 1");
        db.script(&[
            ("CF.LOADCHUNK c 1 garbage", "-ERR item exists"),
            ("CF.LOADCHUNK c 0 garbage", "-Invalid position"),
            ("CF.LOADCHUNK c -9 garbage", "-Couldn't load chunk!"),
            ("CF.LOADCHUNK c 1028 garbage", "-Couldn't load chunk!"),
            ("CF.LOADCHUNK d 1 garbage", "-Invalid header"),
            ("CF.LOADCHUNK d 2 garbage", "-ERR not found"),
            ("CF.SCANDUMP c -1", "-Invalid position"),
            ("EXISTS d", ":0"),
        ]);
        let header = [0xff; 38];
        let load = [b"CF.LOADCHUNK", &b"d"[..], b"1", &header];
        assert_eq!(db.run(&load), "-Couldn't create filter!");
        assert_eq!(db.words("CF.SCANDUMP c 1"), before);
    }
}
