//! Bloom filters: the commands BF. Replies and errors are those of the module `bf` of Redis 8.
//!
//! As there, the commands that look for items take a key of another type for a missing one.

use redline_keyspace::{Classes, Expiry, Found, Trace, journal::Word};
use redline_resp::{Args, Proto, Reply};
use redline_spec::CommandId;
use redline_types::{
    Bloom, Collection,
    bloom::{AddError, ChunkError, options::WIDE_HASH},
    number,
};

use crate::{Ctx, Error, Failure, word, words::Words};

/// Largest capacity that a client may ask for.
pub(crate) const CAPACITY_MAX: i64 = 1 << 30;
/// Largest factor by which layers grow.
pub(crate) const EXPANSION_MAX: i64 = 32_768;
/// Largest rate of errors: a client that asks for a higher one gets it.
pub(crate) const ERROR_RATE_MAX: f64 = 0.25;
/// Largest number of bytes that SCANDUMP returns at once.
pub(crate) const CHUNK_BYTES_MAX: usize = 10 * 1024 * 1024;

/// Error for a key that has to exist.
pub(crate) const NOT_FOUND: Error = Error::line("ERR not found");
/// Error for a key that must not exist.
pub(crate) const EXISTS: Error = Error::line("ERR item exists");
const NO_ROOM: Error = Error::line("ERR Insufficient memory to create filter");
const FULL: &str = "ERR non scaling filter is full";
const CANNOT_GROW: &str = "ERR problem inserting into filter";

/// Checks that a key is missing.
///
/// # Errors
/// With an own one if it has a value of this type already.
pub(crate) fn ensure_new<T: Collection>(
    ctx: &Ctx<'_>,
    key: &[u8],
    exists: Error,
) -> Result<(), Failure> {
    let found = ctx.keys.find(key, Trace::Write);
    match found.map(Found::collection::<T>).transpose()? {
        Some(_) => Err(exists.into()),
        None => Ok(()),
    }
}

/// Returns the collection under a key.
///
/// # Errors
/// With an own one if the key is missing.
pub(crate) fn existing<'a, T: Collection>(
    ctx: &'a Ctx<'_>,
    key: &[u8],
    missing: Error,
) -> Result<&'a T, Failure> {
    let found = ctx.keys.read::<T>(key)?;
    found.ok_or_else(|| missing.into())
}

/// Returns the collection under a key, if it has one of this type.
pub(crate) fn of_type<'a, T: Collection>(ctx: &'a Ctx<'_>, key: &[u8]) -> Option<&'a T> {
    ctx.keys.read::<T>(key).ok().flatten()
}

/// Writes the name of a field of INFO.
pub(crate) fn field(reply: &mut Reply<'_>, name: &str, value: u64) {
    reply.simple(name);
    reply.integer(value as i64);
}

/// The properties of a filter that is to be made.
struct Wanted {
    capacity: u64,
    error_rate: f64,
    expansion: u32,
    is_fixed: bool,
}

impl Wanted {
    fn by_default(ctx: &Ctx<'_>) -> Wanted {
        let limits = &ctx.keys.local.limits;
        Wanted {
            capacity: limits.bf_initial_size,
            error_rate: limits.bf_error_rate.get(),
            expansion: limits.bf_expansion_factor,
            is_fixed: limits.bf_expansion_factor == 0,
        }
    }

    /// Reports to the journal that the filter was made, with all its properties: those that a call leaves out are settings,
    /// which a reader may have set otherwise.
    fn propagate(&self, ctx: &mut Ctx<'_>, key: &[u8]) {
        let (rate, capacity) = (self.error_rate.to_string(), self.capacity.to_string());
        let expansion = self.expansion.to_string();
        let growth: &[&str] = match self.is_fixed {
            true => &["NONSCALING"],
            false => &["EXPANSION", &expansion],
        };
        let words = [b"BF.RESERVE", key, rate.as_bytes(), capacity.as_bytes()];
        let growth = growth.iter().map(|word| word.as_bytes());
        let words = words.into_iter().chain(growth);
        ctx.keys.propagate(words.map(Word::Bytes));
    }

    fn make(&self) -> Result<Bloom, Error> {
        let rate = self.error_rate.min(ERROR_RATE_MAX);
        let bloom = Bloom::new(self.capacity, rate, self.expansion, self.is_fixed);
        bloom.ok_or(NO_ROOM)
    }
}

/// BF.RESERVE key error_rate capacity [EXPANSION n] [NONSCALING]
pub(crate) fn bf_reserve(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::BfReserve, &args, 4);
    if args.len() > 7 {
        return Err(words.wrong_arity().into());
    }
    let error_rate = number::parse_f64(&args[2]).ok_or(Error::line("ERR bad error rate"))?;
    if !(error_rate > 0.0 && error_rate < 1.0) {
        return Err(Error::line("ERR error rate must be in the range (0.000000, 1.000000)").into());
    }
    let capacity = number::parse_i64(&args[3]).ok_or(Error::line("ERR bad capacity"))?;
    if !(1..=CAPACITY_MAX).contains(&capacity) {
        return Err(Error::line("ERR capacity must be in the range [1, 1073741824]").into());
    }
    let mut wanted = Wanted {
        capacity: capacity as u64,
        error_rate,
        ..Wanted::by_default(ctx)
    };
    let (mut expansion, mut nonscaling) = (None, false);
    while !words.is_empty() {
        if words.flag("NONSCALING") {
            nonscaling = true;
        } else if let Some(value) = words.value("EXPANSION") {
            expansion = Some(value);
        } else if words.undocumented("EXPANSION") {
            return Err(Error::line("ERR no expansion").into());
        } else {
            // The module looks for the words that it knows, wherever they are, and reads no other.
            words.next();
        }
    }
    if let Some(expansion) = expansion {
        if nonscaling {
            return Err(Error::line("Nonscaling filters cannot expand").into());
        }
        let expansion = number::parse_i64(expansion).ok_or(Error::line("ERR bad expansion"))?;
        if !(0..=EXPANSION_MAX).contains(&expansion) {
            return Err(Error::line("ERR expansion must be in the range [0, 32768]").into());
        }
        wanted.expansion = expansion as u32;
        wanted.is_fixed = expansion == 0;
    }
    wanted.is_fixed |= nonscaling;
    let key = &args[1];
    ensure_new::<Bloom>(ctx, key, EXISTS)?;
    ctx.keys.insert(key, wanted.make()?, Expiry::Clear);
    wanted.propagate(ctx, key);
    ctx.keys.changed(Classes::MODULE, "bf.reserve", key);
    reply.ok();
    Ok(())
}

/// BF.ADD key item
pub(crate) fn bf_add(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let wanted = Wanted::by_default(ctx);
    let item = &args[2];
    let added = edit(ctx, args, Some(&wanted), "bf.add", |bloom| {
        let added = bloom.add(item);
        (added == Ok(true), added)
    })?;
    match added {
        Ok(is_new) => reply.bool(is_new),
        Err(error) => return Err(Error::line(text_of(error)).into()),
    }
    Ok(())
}

fn text_of(error: AddError) -> &'static str {
    match error {
        AddError::Full => FULL,
        AddError::TooLarge => CANNOT_GROW,
    }
}

/// BF.MADD key item [item …]
pub(crate) fn bf_madd(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let wanted = Wanted::by_default(ctx);
    add_all(ctx, args, 2, Some(&wanted), "bf.madd", reply)
}

/// BF.INSERT key [CAPACITY n] [ERROR rate] [EXPANSION n] [NOCREATE] [NONSCALING] ITEMS item [item …]
pub(crate) fn bf_insert(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    const BAD_RATE: Error = Error::line("Bad error rate");
    const BAD_CAPACITY: Error = Error::line("Bad capacity");
    const BAD_EXPANSION: Error = Error::line("Bad expansion");
    let mut wanted = Wanted::by_default(ctx);
    let (mut creates, mut nonscaling) = (true, false);
    let mut words = Words::new(CommandId::BfInsert, &args, 2);
    while !words.flag("ITEMS") {
        if words.len() < 2 {
            return Err(words.wrong_arity().into());
        } else if let Some(capacity) = words.value("CAPACITY") {
            let capacity = number::parse_i64(capacity);
            let capacity = capacity.filter(|n| (1..=CAPACITY_MAX).contains(n));
            wanted.capacity = capacity.ok_or(BAD_CAPACITY)? as u64;
        } else if let Some(rate) = words.value("ERROR") {
            let rate = number::parse_f64(rate).filter(|rate| *rate > 0.0 && *rate < 1.0);
            wanted.error_rate = rate.ok_or(BAD_RATE)?;
        } else if let Some(expansion) = words.value("EXPANSION") {
            let expansion = number::parse_i64(expansion);
            let expansion = expansion.filter(|n| (0..=EXPANSION_MAX).contains(n));
            wanted.expansion = expansion.ok_or(BAD_EXPANSION)? as u32;
            wanted.is_fixed = wanted.expansion == 0;
        } else if words.flag("NOCREATE") {
            creates = false;
        } else if words.flag("NONSCALING") {
            nonscaling = true;
        } else {
            return Err(Error::line("Unknown argument received").into());
        }
    }
    if words.is_empty() {
        return Err(words.wrong_arity().into());
    }
    wanted.is_fixed |= nonscaling;
    let wanted = creates.then_some(&wanted);
    add_all(ctx, args, words.at(), wanted, "bf.insert", reply)
}

/// Hands a filter to `edit`, one that is made if the key is missing; `edit` returns true if it changed something.
fn edit<R>(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    wanted: Option<&Wanted>,
    event: &'static str,
    mut edit: impl FnMut(&mut Bloom) -> (bool, R),
) -> Result<R, Failure> {
    let key = &args[1];
    let edited = ctx.keys.write::<Bloom, _>(key, |bloom, _| edit(bloom))?;
    let (changed, result) = match edited {
        Some(edited) => edited,
        None => {
            let wanted = wanted.ok_or(NOT_FOUND)?;
            let mut bloom = wanted.make()?;
            let (_, result) = edit(&mut bloom);
            ctx.keys.insert(key, bloom, Expiry::Clear);
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

fn add_all(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    items_from: usize,
    wanted: Option<&Wanted>,
    event: &'static str,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    edit(ctx, args, wanted, event, |bloom| {
        let mark = reply.mark();
        let (mut replies, mut changed) = (0, false);
        for item in args.from(items_from).iter() {
            replies += 1;
            match bloom.add(item) {
                Ok(is_new) => {
                    changed |= is_new;
                    reply.bool(is_new);
                }
                Err(error) => {
                    reply.error(text_of(error));
                    break;
                }
            }
        }
        reply.insert_array_header(mark, replies);
        (changed, ())
    })
}

/// BF.EXISTS key item
pub(crate) fn bf_exists(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let bloom = of_type::<Bloom>(ctx, &args[1]);
    reply.bool(bloom.is_some_and(|bloom| bloom.contains(&args[2])));
    Ok(())
}

/// BF.MEXISTS key item [item …]
pub(crate) fn bf_mexists(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let bloom = of_type::<Bloom>(ctx, &args[1]);
    reply.array(args.len() - 2);
    for item in args.from(2).iter() {
        reply.bool(bloom.is_some_and(|bloom| bloom.contains(item)));
    }
    Ok(())
}

/// BF.CARD key
pub(crate) fn bf_card(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let bloom = ctx.keys.read::<Bloom>(&args[1])?;
    reply.integer(bloom.map_or(0, |bloom| bloom.items() as i64));
    Ok(())
}

/// Returns the number of bytes that RedisBloom counts for a filter.
fn size_of(bloom: &Bloom) -> u64 {
    const FILTER_BYTES: usize = 32;
    const LAYER_BYTES: usize = 64;
    (FILTER_BYTES + bloom.layers().len() * LAYER_BYTES + bloom.bits_bytes()) as u64
}

/// BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION]
pub(crate) fn bf_info(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::BfInfo, &args, 2);
    if words.len() > 1 {
        return Err(words.wrong_arity().into());
    }
    let bloom = existing::<Bloom>(ctx, &args[1], NOT_FOUND)?;
    let fields = [
        ("Capacity", Some(bloom.capacity())),
        ("Size", Some(size_of(bloom))),
        ("Number of filters", Some(bloom.layers().len() as u64)),
        ("Number of items inserted", Some(bloom.items())),
        (
            "Expansion rate",
            (!bloom.is_fixed()).then(|| u64::from(bloom.growth())),
        ),
    ];
    if !words.is_empty() {
        let at = words.one_of(&[
            ("CAPACITY", 0),
            ("SIZE", 1),
            ("FILTERS", 2),
            ("ITEMS", 3),
            ("EXPANSION", 4),
        ]);
        let at = at.ok_or(Error::line("Invalid information value"))?;
        let (name, value) = fields[at];
        match reply.proto() {
            Proto::Resp2 => reply.array(1),
            Proto::Resp3 => {
                reply.map(1);
                reply.simple(name);
            }
        }
        match value {
            Some(value) => reply.integer(value as i64),
            None => reply.null(),
        }
        return Ok(());
    }
    reply.map(fields.len());
    for (name, value) in fields {
        reply.simple(name);
        match value {
            Some(value) => reply.integer(value as i64),
            None => reply.null(),
        }
    }
    Ok(())
}

/// BF.DEBUG key
pub(crate) fn bf_debug(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let bloom = existing::<Bloom>(ctx, &args[1], NOT_FOUND)?;
    reply.array(1 + bloom.layers().len());
    reply.bulk(format!("size:{}", bloom.items()).as_bytes());
    for layer in bloom.layers() {
        let width = match bloom.options() & WIDE_HASH {
            0 => 32,
            _ => 64,
        };
        let line = format!(
            "bytes:{} bits:{} hashes:{} hashwidth:{width} capacity:{} size:{} ratio:{}",
            layer.bytes.len(),
            layer.bits,
            layer.hashes,
            layer.capacity,
            layer.items,
            six_digits(layer.error_rate),
        );
        reply.bulk(line.as_bytes());
    }
    Ok(())
}

/// Returns a number between 0 and 1 as C's `%g` writes it.
fn six_digits(number: f64) -> String {
    let rounded = format!("{number:.5e}");
    let (digits, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent >= -4 {
        let places = (5 - exponent).max(0) as usize;
        let text = format!("{number:.places$}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}e-{:02}", exponent.abs())
}

/// BF.SCANDUMP key iterator
pub(crate) fn bf_scandump(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let bloom = existing::<Bloom>(ctx, &args[1], NOT_FOUND)?;
    let position = number::parse_i64(&args[2]);
    let position = position.ok_or(Error::line("Second argument must be numeric"))?;
    reply.array(2);
    if position == 0 {
        reply.integer(1);
        reply.bulk(&bloom.header());
    } else {
        let (next, chunk) = bloom.chunk(position, CHUNK_BYTES_MAX).unwrap_or_default();
        reply.integer(next);
        reply.bulk(chunk);
    }
    Ok(())
}

/// BF.LOADCHUNK key iterator data
pub(crate) fn bf_loadchunk(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    const BAD_DATA: Error = Error::line("ERR received bad data");
    let position = number::parse_i64(&args[2]);
    let position = position.ok_or(Error::line("ERR Second argument must be numeric"))?;
    let (key, chunk) = (&args[1], &args[3]);
    let found = ctx.keys.find(key, Trace::Write);
    let is_there = found.map(Found::collection::<Bloom>).transpose()?.is_some();
    if !is_there {
        if position != 1 {
            return Err(NOT_FOUND.into());
        }
        let bloom = Bloom::from_header(chunk).ok_or(BAD_DATA)?;
        ctx.keys.insert(key, bloom, Expiry::Clear);
    } else {
        let loaded = ctx
            .keys
            .write::<Bloom, _>(key, |bloom, _| bloom.load_chunk(position, chunk))?;
        loaded.ok_or(NOT_FOUND)?.map_err(|error| match error {
            ChunkError::Position => BAD_DATA,
            ChunkError::NoLayer => Error::line("ERR invalid offset - no link found"),
            ChunkError::TooLong => Error::line("ERR invalid chunk - Too big for current filter"),
        })?;
    }
    ctx.keys.changed(Classes::MODULE, "bf.loadchunk", key);
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDb;

    #[test]
    fn replies_are_booleans_in_resp3_and_info_is_a_map() {
        let mut db = TestDb::new();
        db.proto = Proto::Resp3;
        db.script(&[
            ("BF.ADD b one", "#t"),
            ("BF.MADD b one two", "*2|#f|#t"),
            ("BF.EXISTS b two", "#t"),
            ("BF.MEXISTS none one", "*1|#f"),
            ("BF.CARD b", ":2"),
            ("BF.INFO b ITEMS", "%1|+Number of items inserted|:2"),
        ]);
        assert!(db.words("BF.INFO b").starts_with("%5|+Capacity|:100|"));
    }

    #[test]
    fn only_what_changes_a_filter_is_an_event_and_a_change() {
        let mut db = TestDb::new();
        db.words("BF.ADD b one");
        assert!(db.events().contains(&"bf.add b".to_owned()));
        db.words("BF.ADD b one");
        assert_eq!((db.changes, db.events().len()), (0, 0));
        db.words("BF.MADD b one two");
        assert_eq!((db.changes, db.events()), (1, vec!["bf.madd b".to_owned()]));
    }

    #[test]
    fn a_filter_moves_by_its_chunks_and_no_garbage_gets_in() {
        let mut db = TestDb::new();
        db.words("BF.RESERVE b 0.01 10");
        (0..50).for_each(|n| drop(db.words(&format!("BF.ADD b item{n}"))));
        let bloom = |db: &mut TestDb, key: &str| {
            let debug = db.words(&format!("BF.DEBUG {key}"));
            assert!(debug.starts_with('*'), "{debug}");
            debug
        };
        let whole = bloom(&mut db, "b");
        let mut position = "0".to_owned();
        loop {
            let call: redline_resp::ArgsBuf = ["BF.SCANDUMP", "b", &position]
                .iter()
                .map(|word| word.as_bytes())
                .collect();
            let reply = db.run_bytes(call.as_args());
            let mut lines = reply.splitn(4, |byte| *byte == b'\n').skip(1);
            let next = lines.next().unwrap();
            position = String::from_utf8_lossy(&next[1..next.len() - 1]).into_owned();
            if position == "0" {
                break;
            }
            let chunk = lines.nth(1).unwrap();
            let chunk = &chunk[..chunk.len() - 2];
            let load = [b"BF.LOADCHUNK", &b"c"[..], position.as_bytes(), chunk];
            assert_eq!(db.run(&load), "+OK");
        }
        assert_eq!(bloom(&mut db, "c"), whole);
        for n in 0..50 {
            assert_eq!(db.words(&format!("BF.EXISTS c item{n}")), ":1");
        }
        db.script(&[
            ("BF.LOADCHUNK c 1 garbage", "-ERR received bad data"),
            ("BF.LOADCHUNK d 1 garbage", "-ERR received bad data"),
            ("BF.LOADCHUNK d 2 garbage", "-ERR not found"),
            (
                "BF.LOADCHUNK c 99999 garbage",
                "-ERR invalid offset - no link found",
            ),
            (
                "BF.LOADCHUNK c x garbage",
                "-ERR Second argument must be numeric",
            ),
            ("EXISTS d", ":0"),
        ]);
        assert_eq!(bloom(&mut db, "c"), whole);
    }

    #[test]
    fn filters_that_take_all_memory_are_refused() {
        let mut db = TestDb::new();
        let no_room = "-ERR Insufficient memory to create filter";
        let rate = "-ERR error rate must be in the range (0.000000, 1.000000)";
        db.script(&[
            ("BF.RESERVE b 1e-300 1073741824", no_room),
            ("BF.RESERVE b 1e-400 1", "-ERR bad error rate"),
            ("BF.RESERVE b nan 1", "-ERR bad error rate"),
            ("BF.RESERVE b inf 1", rate),
            (
                "BF.RESERVE b 0.01 18446744073709551616",
                "-ERR bad capacity",
            ),
            (
                "BF.RESERVE b 0.01 1 EXPANSION 1099511627776",
                "-ERR expansion must be in the range [0, 32768]",
            ),
            ("EXISTS b", ":0"),
        ]);
    }

    #[test]
    fn numbers_are_written_with_six_digits() {
        for (number, text) in [
            (0.005, "0.005"),
            (0.123456789, "0.123457"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.25e-20, "1.25e-20"),
            (0.25, "0.25"),
        ] {
            assert_eq!(six_digits(number), text);
        }
    }
}
