//! Commands of the group `bitmap`: strings as rows of bits.

use std::ops::Range;

use redline_keyspace::{Classes, Expiry, Found, Owned, StringRef, Trace};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::{
    bitmap::{self, Combination, Field, Overflow},
    number::parse_i64,
};

use crate::{
    Ctx, Error, Failure,
    words::{Words, integer},
};

/// BITCOUNT key [start end [BYTE | BIT]]
pub(crate) fn bitcount(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let range = match args.len() {
        2 => None,
        4 | 5 => {
            let mut words = Words::new(CommandId::Bitcount, &args, 2);
            let (start, end): (i64, i64) = (words.read()?, words.read()?);
            Some((start, end, Unit::parse(words)?))
        }
        _ => return Err(Error::Syntax.into()),
    };
    let bytes = string(ctx, &args[1])?.unwrap_or(b"");
    let ones = match range {
        None => bitmap::count(bytes),
        // Before Redis adds the length, such a range is empty; after that both ends may become index 0.
        Some((start, end, _)) if start < 0 && end < 0 && start > end => 0,
        Some((start, end, unit)) => {
            bitmap::count_in(bytes, unit.bits(start, Some(end), bytes.len()))
        }
    };
    reply.integer(ones as i64);
    Ok(())
}

/// BITFIELD key [GET encoding offset | [OVERFLOW WRAP | SAT | FAIL] SET encoding offset value | INCRBY encoding offset
/// increment …]
pub(crate) fn bitfield(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let steps = Step::parse_all(ctx, Words::new(CommandId::Bitfield, &args, 2))?;
    let Some(end) = steps.iter().filter_map(Step::written_end).max() else {
        return Ok(read_fields(ctx, &args[1], &steps, reply)?);
    };
    let key = &args[1];
    let bytes = usize::try_from(end.div_ceil(8)).map_err(|_| Error::StringTooLong)?;
    let grown = bytes.saturating_sub(len(ctx, key)?);
    reply.array(steps.len());
    let mut run = |value: &mut [u8]| {
        let mut changes = 0;
        for step in &steps {
            match step.run(value) {
                None => reply.null(),
                Some((answer, changed)) => {
                    reply.integer(answer);
                    let writes = step.written_end().is_some();
                    changes += u64::from(changed || writes && grown > 0);
                }
            }
        }
        changes
    };
    let changes = match grown {
        0 => ctx.keys.edit_bytes(key, run)?.unwrap_or(0),
        _ => ctx.keys.edit_string(key, grown, |value| {
            grow(value, bytes);
            Ok::<_, Error>(run(value))
        })?,
    };
    if changes > 0 {
        ctx.keys.changed(Classes::STRING, "setbit", key);
        ctx.keys.count_changes(changes - 1);
    } else if grown > 0 {
        // Every step failed, but the string is longer now: as in Redis this is no event.
        ctx.keys.touch_watchers(key);
        ctx.keys.count_changes(1);
    }
    Ok(())
}

/// BITFIELD_RO key [GET encoding offset …]
pub(crate) fn bitfield_ro(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    // Redis parses every step of BITFIELD, and then refuses those that write.
    let steps = Step::parse_all(ctx, Words::new(CommandId::Bitfield, &args, 2))?;
    if steps.iter().any(|step| step.written_end().is_some()) {
        return Err(Error::line("ERR BITFIELD_RO only supports the GET subcommand").into());
    }
    Ok(read_fields(ctx, &args[1], &steps, reply)?)
}

/// BITOP AND | OR | XOR | NOT | DIFF | DIFF1 | ANDOR | ONE destkey key [key …]
pub(crate) fn bitop(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    use Combination::*;
    const NAMES: &[(&str, Combination)] = &[
        ("AND", And),
        ("OR", Or),
        ("XOR", Xor),
        ("NOT", Not),
        ("DIFF", Diff),
        ("DIFF1", Diff1),
        ("ANDOR", AndOr),
        ("ONE", One),
    ];
    let mut words = Words::new(CommandId::Bitop, &args, 1);
    let how = words.one_of(NAMES).ok_or(Error::Syntax)?;
    let sources = args.from(3);
    if how == Not && sources.len() != 1 {
        return Err(Error::line("ERR BITOP NOT must be called with a single source key.").into());
    }
    if matches!(how, Diff | Diff1 | AndOr) && sources.len() < 2 {
        let name = args[1].to_ascii_uppercase();
        let after = " must be called with at least two source keys.";
        return Err(Error::quoting("ERR BITOP ", &name, after).into());
    }
    let strings = sources
        .iter()
        .map(|key| Ok(string(ctx, key)?.unwrap_or(b"")))
        .collect::<Result<Vec<_>, Error>>()?;
    let result = bitmap::combine(how, &strings);
    let (destination, bytes) = (&args[2], result.len());
    if bytes > 0 {
        let raw = Owned::Bytes {
            bytes: result,
            raw: true,
        };
        ctx.keys.insert(destination, raw, Expiry::Clear);
        ctx.keys.changed(Classes::STRING, "set", destination);
    } else if ctx.keys.remove_for_nothing(destination) {
        ctx.keys.changed(Classes::GENERIC, "del", destination);
    }
    reply.integer(bytes as i64);
    Ok(())
}

/// BITPOS key bit [start [end [BYTE | BIT]]]
pub(crate) fn bitpos(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let set = match integer(&args[2])? {
        0 => false,
        1 => true,
        _ => return Err(Error::line("ERR The bit argument must be 1 or 0.").into()),
    };
    if args.len() > 6 {
        return Err(Error::Syntax.into());
    }
    let start = args.get(3).map_or(Ok(0), integer)?;
    let unit = Unit::parse(Words::new(CommandId::Bitpos, &args, 5))?;
    let end = args.get(4).map(integer).transpose()?;
    let found = match string(ctx, &args[1])? {
        None => (!set).then_some(0),
        Some(bytes) => {
            let range = unit.bits(start, end, bytes.len());
            let searched = !range.is_empty();
            bitmap::position(bytes, range, set)
                // Without an end, a string counts as followed by zeros.
                .or((searched && !set && end.is_none()).then_some(bytes.len() as u64 * 8))
        }
    };
    reply.integer(found.map_or(-1, |at| at as i64));
    Ok(())
}

/// GETBIT key offset
pub(crate) fn getbit(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let at = bit_offset(ctx, &args[2])?;
    let bytes = string(ctx, &args[1])?.unwrap_or(b"");
    let byte = usize::try_from(at / 8).ok().and_then(|at| bytes.get(at));
    reply.integer(i64::from(byte.is_some_and(|byte| byte & mask(at) != 0)));
    Ok(())
}

/// SETBIT key offset value
pub(crate) fn setbit(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    const NOT_A_BIT: Error = Error::line("ERR bit is not an integer or out of range");
    let key = &args[1];
    let at = bit_offset(ctx, &args[2])?;
    let on = match parse_i64(&args[3]).ok_or(NOT_A_BIT)? {
        0 => false,
        1 => true,
        _ => return Err(NOT_A_BIT.into()),
    };
    let byte = usize::try_from(at / 8).map_err(|_| Error::StringTooLong)?;
    let missing = (byte + 1).saturating_sub(len(ctx, key)?);
    let set = |value: &mut [u8]| {
        let was = value[byte] & mask(at) != 0;
        if was != on {
            value[byte] ^= mask(at);
        }
        was
    };
    let was = match missing {
        0 => ctx.keys.edit_bytes(key, set)?.unwrap_or(false),
        _ => ctx.keys.edit_string(key, missing, |value| {
            grow(value, byte + 1);
            Ok::<_, Error>(set(value))
        })?,
    };
    if missing > 0 || was != on {
        ctx.keys.changed(Classes::STRING, "setbit", key);
    }
    reply.integer(i64::from(was));
    Ok(())
}

/// Unit of the numbers of a range.
#[derive(Clone, Copy)]
enum Unit {
    Byte,
    Bit,
}

impl Unit {
    fn parse(mut words: Words<'_>) -> Result<Unit, Error> {
        let unit = words.one_of(&[("BYTE", Unit::Byte), ("BIT", Unit::Bit)]);
        words.end()?;
        Ok(unit.unwrap_or(Unit::Byte))
    }

    /// Returns the bits from one index to another, both inclusive; negative ones count from the end, and `None` is the end.
    fn bits(self, start: i64, end: Option<i64>, bytes: usize) -> Range<u64> {
        let (places, width) = match self {
            Unit::Byte => (bytes as i64, 8),
            Unit::Bit => (bytes as i64 * 8, 1),
        };
        let from_start = |place: i64| match place {
            ..0 => (places + place).max(0),
            _ => place,
        };
        let start = from_start(start);
        let end = end.map_or(places - 1, |end| from_start(end).min(places - 1));
        if start > end {
            return 0..0;
        }
        start as u64 * width..(end as u64 + 1) * width
    }
}

/// One step of BITFIELD.
struct Step {
    action: Action,
    field: Field,
    offset: u64,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

impl Step {
    fn parse_all(ctx: &Ctx<'_>, mut words: Words<'_>) -> Result<Vec<Step>, Error> {
        let (mut steps, mut overflow) = (Vec::new(), Overflow::Wrap);
        while !words.is_empty() {
            if words.len() > 1 && words.flag("OVERFLOW") {
                let how = words.one_of(&[
                    ("WRAP", Overflow::Wrap),
                    ("SAT", Overflow::Saturate),
                    ("FAIL", Overflow::Fail),
                ]);
                overflow = how.ok_or(Error::line("ERR Invalid OVERFLOW type specified"))?;
                continue;
            }
            let place = |field, offset| {
                let field = parse_field(field)?;
                Ok::<_, Error>((field, field_offset(ctx, offset, field)?))
            };
            let ((field, offset), action) = if let Some([field, offset]) = words.values("GET") {
                (place(field, offset)?, Action::Get)
            } else if let Some([field, offset, value]) = words.values("SET") {
                let place = place(field, offset)?;
                (place, Action::Set(integer(value)?, overflow))
            } else if let Some([field, offset, by]) = words.values("INCRBY") {
                let place = place(field, offset)?;
                (place, Action::Add(integer(by)?, overflow))
            } else {
                return Err(Error::Syntax);
            };
            steps.push(Step {
                action,
                field,
                offset,
            });
        }
        Ok(steps)
    }

    /// Returns the bit after the field, if the step writes.
    fn written_end(&self) -> Option<u64> {
        match self.action {
            Action::Get => None,
            _ => Some(self.offset + u64::from(self.field.bits())),
        }
    }

    /// Returns the step's reply, and true if the field has changed; `None` if it failed by an overflow.
    fn run(&self, bytes: &mut [u8]) -> Option<(i64, bool)> {
        let old = self.field.read(bytes, self.offset);
        let (new, answers_new) = match self.action {
            Action::Get => return Some((old, false)),
            Action::Set(value, overflow) => (self.field.add(value, 0, overflow)?, false),
            Action::Add(by, overflow) => (self.field.add(old, by, overflow)?, true),
        };
        self.field.write(bytes, self.offset, new);
        Some((if answers_new { new } else { old }, new != old))
    }
}

fn read_fields(
    ctx: &Ctx<'_>,
    key: &[u8],
    steps: &[Step],
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let bytes = string(ctx, key)?.unwrap_or(b"");
    reply.array(steps.len());
    for step in steps {
        reply.integer(step.field.read(bytes, step.offset));
    }
    Ok(())
}

fn parse_field(word: &[u8]) -> Result<Field, Error> {
    let field = match word.split_first() {
        Some((b'i', bits)) => parse_i64(bits).and_then(|bits| Field::new(true, bits)),
        Some((b'u', bits)) => parse_i64(bits).and_then(|bits| Field::new(false, bits)),
        _ => None,
    };
    field.ok_or(Error::line(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
    ))
}

const BAD_OFFSET: Error = Error::line("ERR bit offset is not an integer or out of range");

fn bit_offset(ctx: &Ctx<'_>, word: &[u8]) -> Result<u64, Error> {
    check_offset(ctx, parse_i64(word).ok_or(BAD_OFFSET)?)
}

/// Reads the offset of a field: a bit offset, or `#3` for the fourth field of its width.
fn field_offset(ctx: &Ctx<'_>, word: &[u8], field: Field) -> Result<u64, Error> {
    let Some(number) = word.strip_prefix(b"#") else {
        return bit_offset(ctx, word);
    };
    let fields = parse_i64(number).ok_or(BAD_OFFSET)?;
    // Redis checks the product after it wrapped around in 64 bits, and clients see which offsets pass.
    check_offset(ctx, fields.wrapping_mul(i64::from(field.bits())))
}

fn check_offset(ctx: &Ctx<'_>, offset: i64) -> Result<u64, Error> {
    let offset = u64::try_from(offset).map_err(|_| BAD_OFFSET)?;
    if offset / 8 >= ctx.bulk_bytes_max {
        return Err(BAD_OFFSET);
    }
    Ok(offset)
}

/// Returns the length of a string that is about to be changed.
fn len(ctx: &Ctx<'_>, key: &[u8]) -> Result<usize, Error> {
    let found = ctx.keys.find(key, Trace::Quiet);
    let string = found.map(Found::string).transpose()?;
    Ok(string.map_or(0, |string| string.as_bytes().len()))
}

/// Returns the bytes of a string; `None` if the key is missing.
fn string<'a>(ctx: &'a Ctx<'_>, key: &[u8]) -> Result<Option<&'a [u8]>, Error> {
    Ok(ctx.keys.string(key)?.map(StringRef::as_bytes))
}

/// Pads a string with zeros to a length.
fn grow(value: &mut Vec<u8>, bytes: usize) {
    if value.is_empty() {
        // Zeros from the operating system cost nothing.
        *value = vec![0; bytes];
    } else if value.len() < bytes {
        value.resize(bytes, 0);
    }
}

fn mask(bit: u64) -> u8 {
    0x80 >> (bit % 8)
}

#[cfg(test)]
mod tests {
    use redline_resp::Proto;

    use crate::testing::TestDb;

    #[test]
    fn bits_are_set_counted_and_found() {
        let mut db = TestDb::new();
        db.script(&[
            ("SETBIT b 7 1", ":0"),
            ("SETBIT b 7 1", ":1"),
            ("GETBIT b 7", ":1"),
            ("GETBIT b 100", ":0"),
            ("GET b", "$1|\u{1}"),
            ("OBJECT ENCODING b", "$3|raw"),
            ("SETBIT b 20 1", ":0"),
            ("STRLEN b", ":3"),
            ("BITCOUNT b", ":2"),
            ("BITCOUNT b 0 0", ":1"),
            ("BITCOUNT b 8 20 BIT", ":1"),
            ("BITCOUNT b 8 19 BIT", ":0"),
            ("BITCOUNT b -1 -2", ":0"),
            ("BITCOUNT b 0", "-ERR syntax error"),
            ("BITPOS b 1", ":7"),
            ("BITPOS b 1 1", ":20"),
            ("BITPOS b 0 0 0 BIT", ":0"),
            ("BITPOS none 0", ":0"),
            ("BITPOS none 1", ":-1"),
            ("BITPOS b 2", "-ERR The bit argument must be 1 or 0."),
            ("BITFIELD ones SET u8 0 255", "*1|:0"),
            ("BITPOS ones 0", ":8"),
            ("BITPOS ones 0 0 -1", ":-1"),
            ("SETBIT b 0 2", "-ERR bit is not an integer or out of range"),
            (
                "SETBIT b 4294967296 1",
                "-ERR bit offset is not an integer or out of range",
            ),
        ]);
    }

    #[test]
    fn a_bit_that_stays_is_no_change() {
        let mut db = TestDb::new();
        db.words("SETBIT b 7 1");
        assert_eq!(db.changes, 1);
        db.events();
        db.words("SETBIT b 7 1");
        assert_eq!(db.changes, 0);
        assert!(db.events().is_empty());
        db.words("SETBIT b 7 0");
        assert_eq!(db.events(), ["setbit b"]);
        db.words("SETBIT b 8 0");
        assert_eq!(db.events(), ["setbit b"]);
    }

    #[test]
    fn a_large_bitmap_is_changed_where_it_stands() {
        let mut db = TestDb::new();
        db.words("SETBIT b 8000000 1");
        let place = |db: &mut TestDb| {
            let args: redline_resp::ArgsBuf = [&b"b"[..]].into_iter().collect();
            let mut unit = redline_keyspace::Unit::exclusive(&mut db.space);
            let keys = unit.view(&mut db.local, 0, db.now_ms);
            let bytes = keys.string(&args.as_args()[0]).unwrap().unwrap();
            bytes.as_bytes().as_ptr() as usize
        };
        let before = place(&mut db);
        db.words("SETBIT b 12345 1");
        assert_eq!(place(&mut db), before);
        assert_eq!(db.words("BITCOUNT b"), ":2");
    }

    #[test]
    fn combinations_are_stored_as_raw_strings() {
        let mut db = TestDb::new();
        db.script(&[
            ("SET a abc EX 10", "+OK"),
            ("SET b ab", "+OK"),
            ("BITOP AND a a b", ":3"),
            ("GET a", "$3|ab\0"),
            ("TTL a", ":-1"),
            ("OBJECT ENCODING a", "$3|raw"),
            ("BITOP XOR d b b", ":2"),
            ("GET d", "$2|\0\0"),
            ("BITOP OR d none", ":0"),
            ("EXISTS d", ":0"),
            ("BITOP NAND d b", "-ERR syntax error"),
            (
                "BITOP NOT d a b",
                "-ERR BITOP NOT must be called with a single source key.",
            ),
            (
                "BITOP diff1 d a",
                "-ERR BITOP DIFF1 must be called with at least two source keys.",
            ),
            ("LPUSH l x", ":1"),
            (
                "BITOP OR d b l",
                "-WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
        ]);
        db.events();
        db.words("BITOP ONE l a b");
        assert_eq!(db.events(), ["set l"]);
        db.words("BITOP OR l none");
        assert_eq!(db.events(), ["del l"]);
    }

    #[test]
    fn fields_of_any_width() {
        let mut db = TestDb::new();
        db.script(&[
            ("BITFIELD f SET i5 0 -1 GET u4 0 GET i5 0", "*3|:0|:15|:-1"),
            ("BITFIELD f INCRBY u8 #2 255 INCRBY u8 #2 2", "*2|:255|:1"),
            (
                "BITFIELD f OVERFLOW SAT INCRBY i4 32 9 OVERFLOW FAIL INCRBY i4 32 1",
                "*2|:7|$-1",
            ),
            ("BITFIELD f", "*0"),
            ("BITFIELD_RO none GET u63 1000", "*1|:0"),
            (
                "BITFIELD_RO f SET u8 0 1",
                "-ERR BITFIELD_RO only supports the GET subcommand",
            ),
            (
                "BITFIELD f OVERFLOW x",
                "-ERR Invalid OVERFLOW type specified",
            ),
            ("BITFIELD f OVERFLOW", "-ERR syntax error"),
            (
                "BITFIELD f GET u64 0",
                "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
            ),
            (
                "BITFIELD f GET u8 #-1",
                "-ERR bit offset is not an integer or out of range",
            ),
        ]);
        db.proto = Proto::Resp3;
        assert_eq!(db.words("BITFIELD new OVERFLOW FAIL SET u8 0 256"), "*1|_");
        // A key that exists after a restart, too, is a change, even if Redis counts none.
        assert_eq!((db.changes, db.words("EXISTS new")), (1, ":1".to_owned()));
    }
}
