//! Compressed bitmaps: the TR commands of TairRoaring, version 2.2.
//!
//! Offsets are integers of 32 bits; a missing key is an empty bitmap. Where its documentation is silent, they are as the
//! commands of strings of bits: errors have the same words.

use std::ops::RangeInclusive;

use redline_keyspace::{Classes, Expiry, StringRef};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    Roaring,
    roaring_bitmap::{Containers, Operation},
};

use crate::{
    Ctx, Error, Failure,
    words::{Words, integer, integer_in},
};

const LAST: i64 = u32::MAX as i64;
const BAD_OFFSET: Error = Error::line("ERR bit offset is not an integer or out of range");
const BAD_BIT: Error = Error::line("ERR bit is not an integer or out of range");
const BAD_BITS: Error = Error::line("ERR bit array may only have 0 and 1");
/// Largest number of offsets that a reply has.
const OFFSETS_MAX: u64 = 1 << 24;
const TOO_MANY: Error = Error::line(
    "ERR the range has too many bits for one reply, ask for a part of it or use TR.SCAN",
);
/// Number of offsets that TR.SCAN returns by default.
const SCAN_COUNT: u64 = 10;

/// TR.APPENDBITARRAY key offset bits
pub(crate) fn tr_appendbitarray(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (before, bits) = (offset(&args[2])?, bits(&args[3])?);
    let cardinality = edit(ctx, &args[1], "tr.appendbitarray", |bitmap| {
        // The bits stand behind that offset.
        if let Some(first) = before.checked_add(1) {
            bitmap.write(first, bits);
        }
        bitmap.cardinality()
    })?;
    reply.integer(cardinality as i64);
    Ok(())
}

/// TR.APPENDINTARRAY key offset [offset …]
pub(crate) fn tr_appendintarray(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let offsets = offsets(args.from(2))?;
    edit(ctx, &args[1], "tr.appendintarray", |bitmap| {
        bitmap.set_all(offsets.into_iter());
    })?;
    reply.ok();
    Ok(())
}

/// TR.BITCOUNT key [start end]
pub(crate) fn tr_bitcount(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let counted = match args.len() {
        2 => 0..=u32::MAX,
        4 => range(&args[2], &args[3])?,
        _ => return Err(Error::Syntax.into()),
    };
    let bitmap = ctx.keys.read::<Roaring>(&args[1])?;
    reply.integer(bitmap.map_or(0, |bitmap| bitmap.count_in(counted)) as i64);
    Ok(())
}

/// TR.BITOP destination AND | OR | XOR | NOT | DIFF key [key …]
pub(crate) fn tr_bitop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let result = combine(ctx, Words::new(CommandId::TrBitop, &args, 2))?;
    let cardinality = result.cardinality();
    store(ctx, &args[1], "tr.bitop", result)?;
    reply.integer(cardinality as i64);
    Ok(())
}

/// TR.BITOPCARD AND | OR | XOR | NOT | DIFF key [key …]
pub(crate) fn tr_bitopcard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let result = combine(ctx, Words::new(CommandId::TrBitopcard, &args, 1))?;
    reply.integer(result.cardinality() as i64);
    Ok(())
}

/// TR.BITPOS key bit [count]
pub(crate) fn tr_bitpos(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let bit = bit(&args[2])?;
    let count = args.get(3).map_or(Ok(1), integer)?;
    let empty = Roaring::default();
    let bitmap = ctx.keys.read::<Roaring>(&args[1])?.unwrap_or(&empty);
    let all = match bit {
        true => bitmap.cardinality(),
        false => (1 << 32) - bitmap.cardinality(),
    };
    // From the first on, or from the last one back.
    let index = match count {
        0 => {
            return Err(
                Error::line("ERR count is zero: bits are counted from 1, or back from -1").into(),
            );
        }
        1.. => Some(count as u64 - 1),
        _ => all.checked_sub(count.unsigned_abs()),
    };
    let found = index.and_then(|index| bitmap.select(bit, index));
    reply.integer(found.map_or(-1, i64::from));
    Ok(())
}

/// TR.CLEARBITS key offset [offset …]
pub(crate) fn tr_clearbits(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (key, offsets) = (&args[1], offsets(args.from(2))?);
    let cleared = ctx
        .keys
        .write::<Roaring, _>(key, |bitmap, _| bitmap.clear_all(offsets.into_iter()))?;
    if cleared > Some(0) {
        ctx.keys.changed(Classes::MODULE, "tr.clearbits", key);
    }
    reply.integer(cleared.unwrap_or(0) as i64);
    Ok(())
}

/// TR.CONTAINS key other
pub(crate) fn tr_contains(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let is_in = match two(ctx, &args[1], &args[2])? {
        [None, _] => true,
        [Some(one), None] => one.cardinality() == 0,
        [Some(one), Some(other)] => one.is_in(other),
    };
    reply.bool(is_in);
    Ok(())
}

/// TR.DIFF destination key other
pub(crate) fn tr_diff(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let result = Roaring::combine(Operation::Diff, &two(ctx, &args[2], &args[3])?);
    store(ctx, &args[1], "tr.diff", result)?;
    reply.ok();
    Ok(())
}

/// TR.FLIPRANGE key start end
pub(crate) fn tr_fliprange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let flipped = range(&args[2], &args[3])?;
    let cardinality = edit(ctx, &args[1], "tr.fliprange", |bitmap| {
        bitmap.flip_range(flipped);
        bitmap.cardinality()
    })?;
    reply.integer(cardinality as i64);
    Ok(())
}

/// TR.GETBIT key offset
pub(crate) fn tr_getbit(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let at = offset(&args[2])?;
    let bitmap = ctx.keys.read::<Roaring>(&args[1])?;
    reply.integer(i64::from(bitmap.is_some_and(|bitmap| bitmap.get(at))));
    Ok(())
}

/// TR.GETBITS key offset [offset …]
pub(crate) fn tr_getbits(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let offsets = offsets(args.from(2))?;
    let bitmap = ctx.keys.read::<Roaring>(&args[1])?;
    reply.array(offsets.len());
    for at in offsets {
        reply.integer(i64::from(bitmap.is_some_and(|bitmap| bitmap.get(at))));
    }
    Ok(())
}

/// TR.JACCARD key other
pub(crate) fn tr_jaccard(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let share = match two(ctx, &args[1], &args[2])? {
        [Some(one), Some(other)] => one.jaccard(other),
        _ => 0.0,
    };
    reply.double(share);
    Ok(())
}

/// TR.LOAD key source
pub(crate) fn tr_load(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let cardinality = load(ctx, &args[1], &args[2])?;
    reply.integer(cardinality as i64);
    Ok(())
}

/// TR.LOADSTRING key source: another name of TR.LOAD.
pub(crate) fn tr_loadstring(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    tr_load(ctx, args, reply)
}

/// Stores the bits of a string; returns how many are set.
fn load(ctx: &mut Ctx<'_>, key: &[u8], source: &[u8]) -> Result<u64, Error> {
    let source = ctx.keys.string(source)?.map(StringRef::as_bytes);
    let loaded = Roaring::of_string(source.unwrap_or_default());
    let cardinality = loaded.cardinality();
    store(ctx, key, "tr.load", loaded)?;
    Ok(cardinality)
}

/// TR.MAX key
pub(crate) fn tr_max(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let bitmap = ctx.keys.read::<Roaring>(&args[1])?;
    reply.integer(bitmap.and_then(Roaring::max).map_or(-1, i64::from));
    Ok(())
}

/// TR.MIN key
pub(crate) fn tr_min(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let bitmap = ctx.keys.read::<Roaring>(&args[1])?;
    reply.integer(bitmap.and_then(Roaring::min).map_or(-1, i64::from));
    Ok(())
}

/// TR.OPTIMIZE key
pub(crate) fn tr_optimize(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let found = ctx
        .keys
        .write::<Roaring, _>(key, |bitmap, _| bitmap.optimize())?;
    if found.is_some() {
        ctx.keys.changed(Classes::MODULE, "tr.optimize", key);
    }
    reply.ok();
    Ok(())
}

/// TR.RANGE key start end
pub(crate) fn tr_range(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let looked = range(&args[2], &args[3])?;
    let empty = Roaring::default();
    let bitmap = ctx.keys.read::<Roaring>(&args[1])?.unwrap_or(&empty);
    let count = bitmap.count_in(looked.clone());
    if count > OFFSETS_MAX {
        return Err(TOO_MANY.into());
    }
    reply.array(count as usize);
    for at in bitmap.range(looked) {
        reply.integer(i64::from(at));
    }
    Ok(())
}

/// TR.RANGEBITARRAY key start end
pub(crate) fn tr_rangebitarray(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let looked = range(&args[2], &args[3])?;
    let first = *looked.start();
    let bytes = u64::from(looked.end() - first) + 1;
    if bytes > OFFSETS_MAX.min(ctx.bulk_bytes_max) {
        return Err(TOO_MANY.into());
    }
    let mut bits = vec![b'0'; bytes as usize];
    if let Some(bitmap) = ctx.keys.read::<Roaring>(&args[1])? {
        for at in bitmap.range(looked) {
            bits[(at - first) as usize] = b'1';
        }
    }
    reply.bulk(&bits);
    Ok(())
}

/// TR.RANK key offset
pub(crate) fn tr_rank(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let at = offset(&args[2])?;
    let bitmap = ctx.keys.read::<Roaring>(&args[1])?;
    reply.integer(bitmap.map_or(0, |bitmap| bitmap.rank(at)) as i64);
    Ok(())
}

/// TR.SCAN key start [COUNT count]
pub(crate) fn tr_scan(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let start = offset(&args[2])?;
    let mut words = Words::new(CommandId::TrScan, &args, 3);
    let count = match words.value("COUNT") {
        None => SCAN_COUNT,
        Some(count) => integer_in(count, 1..=OFFSETS_MAX as i64, Error::Syntax)? as u64,
    };
    words.end()?;
    let empty = Roaring::default();
    let bitmap = ctx.keys.read::<Roaring>(&args[1])?.unwrap_or(&empty);
    let offsets = || bitmap.range(start..=u32::MAX);
    let next = offsets().nth(count as usize);
    reply.array(2);
    reply.integer(i64::from(next.unwrap_or(0)));
    reply.array(offsets().take(count as usize).count());
    for at in offsets().take(count as usize) {
        reply.integer(i64::from(at));
    }
    Ok(())
}

/// TR.SETBIT key offset bit
pub(crate) fn tr_setbit(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (at, bit) = (offset(&args[2])?, bit(&args[3])?);
    let was = edit(ctx, &args[1], "tr.setbit", |bitmap| bitmap.set(at, bit))?;
    reply.integer(i64::from(was));
    Ok(())
}

/// TR.SETBITARRAY key bits
pub(crate) fn tr_setbitarray(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut bitmap = Roaring::default();
    bitmap.write(0, bits(&args[2])?);
    store(ctx, &args[1], "tr.setbitarray", bitmap)?;
    reply.ok();
    Ok(())
}

/// TR.SETBITS key offset [offset …]
pub(crate) fn tr_setbits(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let offsets = offsets(args.from(2))?;
    let cardinality = edit(ctx, &args[1], "tr.setbits", |bitmap| {
        bitmap.set_all(offsets.into_iter());
        bitmap.cardinality()
    })?;
    reply.integer(cardinality as i64);
    Ok(())
}

/// TR.SETINTARRAY key offset [offset …]
pub(crate) fn tr_setintarray(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let bitmap = Roaring::of(offsets(args.from(2))?);
    store(ctx, &args[1], "tr.setintarray", bitmap)?;
    reply.ok();
    Ok(())
}

/// TR.SETRANGE key start end
pub(crate) fn tr_setrange(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let set = range(&args[2], &args[3])?;
    let new = edit(ctx, &args[1], "tr.setrange", |bitmap| bitmap.set_range(set))?;
    reply.integer(new as i64);
    Ok(())
}

/// TR.STAT key [JSON]
pub(crate) fn tr_stat(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let mut words = Words::new(CommandId::TrStat, &args, 2);
    let json = words.flag("JSON");
    words.end()?;
    match ctx.keys.read::<Roaring>(&args[1])? {
        None => reply.null(),
        Some(bitmap) => reply.bulk(figures(bitmap, json).as_bytes()),
    }
    Ok(())
}

/// Returns the figures of a bitmap as text, or as a JSON object.
fn figures(bitmap: &Roaring, json: bool) -> String {
    let Containers { arrays, bits, runs } = bitmap.containers();
    let kinds = [("array", arrays), ("bitset", bits), ("run", runs)];
    let whole = [
        ("cardinality", bitmap.cardinality()),
        (
            "number_of_containers",
            kinds.iter().map(|(_, kind)| u64::from(kind.count)).sum(),
        ),
        ("max_value", bitmap.max().unwrap_or(0).into()),
        ("min_value", bitmap.min().unwrap_or(0).into()),
    ];
    let parts = kinds.map(|(name, kind)| {
        let figures = [
            ("number_of_containers", u64::from(kind.count)),
            ("container_cardinality", kind.bits),
            ("container_allocated_bytes", kind.bytes),
        ];
        (format!("{name}_container"), figures)
    });
    let mut text = String::new();
    if json {
        let member = |(name, value): &(&str, u64)| format!("\"{name}\":{value}");
        let object = |members: Vec<String>| format!("{{{}}}", members.join(","));
        let mut members: Vec<String> = whole.iter().map(member).collect();
        members.extend(parts.iter().map(|(name, figures)| {
            format!(
                "\"{name}\":{}",
                object(figures.iter().map(member).collect())
            )
        }));
        return object(members);
    }
    let mut line = |before: &str, (name, value): &(&str, u64)| {
        text += &format!("{before}{}: {value}\r\n", name.replace('_', " "));
    };
    whole.iter().for_each(|figure| line("", figure));
    for (name, figures) in &parts {
        let name = format!("{}, ", name.replace('_', " "));
        figures.iter().for_each(|figure| line(&name, figure));
    }
    text
}

/// Changes the bitmap under a key, which is made if there is none.
fn edit<R>(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    event: &'static str,
    change: impl FnOnce(&mut Roaring) -> R,
) -> Result<R, Error> {
    let result = ctx
        .keys
        .write_or_new::<Roaring, _>(key, |bitmap, _| change(bitmap))?;
    ctx.keys.changed(Classes::MODULE, event, key);
    Ok(result)
}

/// Puts a bitmap under a key, in place of a bitmap or of nothing.
fn store(ctx: &mut Ctx<'_>, key: &[u8], event: &'static str, bitmap: Roaring) -> Result<(), Error> {
    // A value of another type is not written over.
    ctx.keys.read::<Roaring>(key)?;
    ctx.keys.insert(key, bitmap, Expiry::Clear);
    ctx.keys.changed(Classes::MODULE, event, key);
    Ok(())
}

/// Combines the bitmaps of a call: the operation, then their keys.
fn combine(ctx: &Ctx<'_>, mut words: Words<'_>) -> Result<Roaring, Error> {
    const NAMES: &[(&str, Operation)] = &[
        ("AND", Operation::And),
        ("OR", Operation::Or),
        ("XOR", Operation::Xor),
        ("NOT", Operation::Not),
        ("DIFF", Operation::Diff),
    ];
    let operation = words.one_of(NAMES).ok_or(Error::Syntax)?;
    let keys = words.rest();
    if operation == Operation::Not && keys.len() != 1 {
        return Err(Error::line(
            "ERR TR.BITOP NOT must be called with a single source key.",
        ));
    }
    let bitmaps = keys
        .iter()
        .map(|key| Ok(ctx.keys.read::<Roaring>(key)?))
        .collect::<Result<Vec<_>, Error>>()?;
    Ok(Roaring::combine(operation, &bitmaps))
}

fn two<'a>(ctx: &'a Ctx<'_>, one: &[u8], other: &[u8]) -> Result<[Option<&'a Roaring>; 2], Error> {
    Ok([
        ctx.keys.read::<Roaring>(one)?,
        ctx.keys.read::<Roaring>(other)?,
    ])
}

fn offset(word: &[u8]) -> Result<u32, Error> {
    Ok(integer_in(word, 0..=LAST, BAD_OFFSET)? as u32)
}

fn offsets(words: Args<'_>) -> Result<Vec<u32>, Error> {
    words.iter().map(offset).collect()
}

fn range(start: &[u8], end: &[u8]) -> Result<RangeInclusive<u32>, Error> {
    let (start, end) = (offset(start)?, offset(end)?);
    match start <= end {
        true => Ok(start..=end),
        false => Err(Error::line("ERR start is behind end")),
    }
}

fn bit(word: &[u8]) -> Result<bool, Error> {
    match word {
        b"0" => Ok(false),
        b"1" => Ok(true),
        _ => Err(BAD_BIT),
    }
}

fn bits(word: &[u8]) -> Result<impl Iterator<Item = bool> + '_, Error> {
    match word.iter().all(|byte| matches!(byte, b'0' | b'1')) {
        true => Ok(word.iter().map(|byte| *byte == b'1')),
        false => Err(BAD_BITS),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    /// Runs calls, and compares their replies.
    fn replies(calls: &[(&str, &str)]) {
        let mut db = TestDb::new();
        for (call, reply) in calls {
            assert_eq!(db.words(call), *reply, "{call}");
        }
    }

    #[test]
    fn bits_are_set_cleared_and_read() {
        replies(&[
            ("TR.SETBIT k 3 1", ":0"),
            ("TR.GETBIT k 3", ":1"),
            ("TR.SETBIT k 3 0", ":1"),
            ("TYPE k", "+tairroar-"),
            ("TR.MIN k", ":-1"),
            ("TR.SETBITS k 3 4 5", ":3"),
            ("TR.SETBITS k 8 9", ":5"),
            ("TR.CLEARBITS k 4 5 6", ":2"),
            ("TR.CLEARBITS none 4", ":0"),
            ("EXISTS none", ":0"),
            ("TR.GETBITS k 3 4 8 4294967295", "*4|:1|:0|:1|:0"),
            (
                "TR.SETBIT k 4294967296 1",
                "-ERR bit offset is not an integer or out of range",
            ),
            (
                "TR.SETBIT k -1 1",
                "-ERR bit offset is not an integer or out of range",
            ),
            (
                "TR.SETBIT k 1 2",
                "-ERR bit is not an integer or out of range",
            ),
            ("SET s x", "+OK"),
            (
                "TR.SETBIT s 1 1",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ]);
    }

    #[test]
    fn ranges_are_set_flipped_listed_and_counted() {
        replies(&[
            ("TR.SETRANGE r 1 3", ":3"),
            ("TR.SETRANGE r 2 5", ":2"),
            ("TR.SETRANGE r 5 4", "-ERR start is behind end"),
            ("TR.SETBITS k 0 2 3 5", ":4"),
            ("TR.RANGE k 0 5", "*4|:0|:2|:3|:5"),
            ("TR.RANGE none 0 5", "*0"),
            ("TR.RANGEBITARRAY k 0 5", "$6|101101"),
            ("TR.FLIPRANGE k 0 5", ":2"),
            ("TR.RANGE k 0 9", "*2|:1|:4"),
            ("TR.SETINTARRAY k 1 2 3 10", "+OK"),
            ("TR.BITCOUNT k", ":4"),
            ("TR.BITCOUNT k 2 3", ":2"),
            ("TR.BITCOUNT k 2", "-ERR syntax error"),
            ("TR.RANK k 10", ":4"),
            ("TR.RANK k 9", ":3"),
            ("TR.MAX k", ":10"),
            ("TR.BITPOS k 1", ":1"),
            ("TR.BITPOS k 1 2", ":2"),
            ("TR.BITPOS k 1 -1", ":10"),
            ("TR.BITPOS k 1 5", ":-1"),
            ("TR.BITPOS k 1 -5", ":-1"),
            ("TR.BITPOS k 0 2", ":4"),
            ("TR.BITPOS k 0 -1", ":4294967295"),
            ("TR.BITPOS none 0", ":0"),
            ("TR.SETRANGE all 0 4294967295", ":4294967296"),
            (
                "TR.RANGE all 0 4294967295",
                "-ERR the range has too many bits for one reply, ask for a part of it or use TR.SCAN",
            ),
            (
                "TR.RANGEBITARRAY none 0 4294967295",
                "-ERR the range has too many bits for one reply, ask for a part of it or use TR.SCAN",
            ),
        ]);
    }

    #[test]
    fn arrays_of_bits_and_of_offsets_are_written() {
        replies(&[
            ("TR.SETBITS k 0 1 2 3 4 5", ":6"),
            ("TR.APPENDBITARRAY k 1 1101", ":5"),
            ("TR.RANGEBITARRAY k 0 5", "$6|111101"),
            ("TR.APPENDBITARRAY k 4294967295 1", ":5"),
            (
                "TR.APPENDBITARRAY k 1 12",
                "-ERR bit array may only have 0 and 1",
            ),
            ("TR.SETINTARRAY k 2 4", "+OK"),
            ("TR.APPENDINTARRAY k 9 10", "+OK"),
            ("TR.RANGE k 0 20", "*4|:2|:4|:9|:10"),
            ("TR.SETBITARRAY k 10101001", "+OK"),
            ("TR.RANGE k 0 20", "*4|:0|:2|:4|:7"),
            ("SETBIT s 9 1", ":0"),
            ("TR.LOAD k s", ":1"),
            ("TR.RANGE k 0 20", "*1|:9"),
            ("TR.LOADSTRING k none", ":0"),
            ("TR.SCAN k 0", "*2|:0|*0"),
            ("TR.SETINTARRAY k 1 2 3 10", "+OK"),
            ("TR.SCAN k 0 COUNT 2", "*2|:3|*2|:1|:2"),
            ("TR.SCAN k 3 COUNT 2", "*2|:0|*2|:3|:10"),
        ]);
    }

    #[test]
    fn bitmaps_are_combined_and_compared() {
        replies(&[
            ("TR.SETBITS a 0 2 3 5", ":4"),
            ("TR.SETBITS b 2 3", ":2"),
            ("TR.SETBITS c 1 4", ":2"),
            ("TR.BITOP d AND a b", ":2"),
            ("TR.RANGE d 0 9", "*2|:2|:3"),
            ("TR.BITOP d OR a c none", ":6"),
            ("TR.BITOP d NOT a", ":2"),
            ("TR.RANGE d 0 9", "*2|:1|:4"),
            ("TR.BITOPCARD XOR a c", ":6"),
            ("TR.BITOPCARD DIFF a b", ":2"),
            (
                "TR.BITOPCARD NOT a b",
                "-ERR TR.BITOP NOT must be called with a single source key.",
            ),
            ("TR.BITOPCARD MEAN a b", "-ERR syntax error"),
            ("TR.DIFF d a b", "+OK"),
            ("TR.RANGE d 0 9", "*2|:0|:5"),
            ("TR.CONTAINS b a", ":1"),
            ("TR.CONTAINS a b", ":0"),
            ("TR.JACCARD a b", "$3|0.5"),
            ("TR.JACCARD a none", "$1|0"),
            ("TR.OPTIMIZE a", "+OK"),
            ("TR.RANGE a 0 9", "*4|:0|:2|:3|:5"),
            ("SET s x", "+OK"),
            (
                "TR.BITOP s OR a",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            ("GET s", "$1|x"),
        ]);
    }

    #[test]
    fn figures_are_text_or_json() {
        let mut db = TestDb::new();
        db.words("TR.SETBITS k 1 2 3");
        let json = db.words("TR.STAT k JSON");
        assert!(
            json.contains("\"cardinality\":3,\"number_of_containers\":1,\"max_value\":3"),
            "{json}"
        );
        let text = db.words("TR.STAT k");
        assert!(
            text.contains("array container, container cardinality: 3"),
            "{text}"
        );
    }
}
