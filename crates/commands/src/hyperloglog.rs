//! Commands of the group `hyperloglog`: strings that estimate how many different elements were added.

use redline_keyspace::{Classes, Found, StringRef, Trace};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::hll::{self, Corrupt, Encoding, Registers};

use crate::{Ctx, Error, Failure, words::Words};

/// PFADD key [element …]
pub(crate) fn pfadd(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let encoding = existing(ctx, key)?.map(hll::encoding);
    let missing = encoding.is_none();
    let mut updated = u64::from(missing);
    if encoding == Some(Encoding::Dense) {
        ctx.keys.edit_bytes(key, |value| {
            let changed = args
                .from(2)
                .iter()
                .map(|element| hll::add_to_dense(value, element));
            updated = changed.map(u64::from).sum();
            if updated > 0 {
                hll::forget_count(value);
            }
        })?;
    } else {
        edit(ctx, key, missing, |value, sparse_bytes_max| {
            for element in args.from(2).iter() {
                updated += u64::from(hll::add(value, element, sparse_bytes_max)?);
            }
            if updated > 0 {
                hll::forget_count(value);
            }
            Ok(())
        })?;
    }
    if updated > 0 {
        ctx.keys.changed(Classes::STRING, "pfadd", key);
        ctx.keys.count_changes(updated - 1);
    }
    reply.integer(i64::from(updated > 0));
    Ok(())
}

/// PFCOUNT key [key …]
pub(crate) fn pfcount(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    if args.len() > 2 {
        let mut merged = Registers::new();
        for key in args.from(1).iter() {
            if let Some(value) = read(ctx, key)? {
                merged.merge(value)?;
            }
        }
        reply.integer(merged.count() as i64);
        return Ok(());
    }
    let key = &args[1];
    let Some(value) = read(ctx, key)? else {
        reply.integer(0);
        return Ok(());
    };
    let count = match hll::cached_count(value) {
        Some(count) => count,
        None => {
            let count = hll::count(value)?;
            ctx.keys
                .edit_bytes(key, |value| hll::remember_count(value, count))?;
            // The string has changed, though without an event.
            ctx.keys.touch_watchers(key);
            ctx.keys.count_changes(1);
            count
        }
    };
    reply.integer(count as i64);
    Ok(())
}

/// PFDEBUG GETREG | DECODE | ENCODING | TODENSE key
///
/// PFDEBUG SIMD ON | OFF
pub(crate) fn pfdebug(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[2];
    let mut words = Words::new(CommandId::Pfdebug, &args, 1);
    if words.undocumented("SIMD") {
        if !words.undocumented("ON") && !words.undocumented("OFF") {
            return Err(Error::line("ERR Argument must be ON or OFF").into());
        }
        // The CPU's features decide, and there is no switch: the reply of Redis where it has no such code.
        reply.simple("disabled");
        return Ok(());
    }
    let value = existing(ctx, key)?.ok_or(Error::line("ERR The specified key does not exist"))?;
    let encoding = hll::encoding(value);
    if words.undocumented("GETREG") {
        let mut registers = Registers::new();
        registers.merge(value)?;
        make_dense(ctx, key)?;
        reply.array(hll::REGISTERS);
        registers.iter().for_each(|r| reply.integer(i64::from(r)));
    } else if words.undocumented("DECODE") {
        if encoding != Encoding::Sparse {
            return Err(Error::line("ERR HLL encoding is not sparse").into());
        }
        reply.bulk(hll::describe_runs(value).as_bytes());
    } else if words.undocumented("ENCODING") {
        reply.simple(match encoding {
            Encoding::Dense => "dense",
            Encoding::Sparse => "sparse",
        });
    } else if words.undocumented("TODENSE") {
        let converted = make_dense(ctx, key)?;
        reply.integer(i64::from(converted));
    } else {
        return Err(Error::quoting("ERR Unknown PFDEBUG subcommand '", &args[1], "'").into());
    }
    Ok(())
}

/// PFMERGE destkey [sourcekey …]
pub(crate) fn pfmerge(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let (mut merged, mut dense) = (Registers::new(), false);
    for key in args.from(1).iter() {
        if let Some(value) = read(ctx, key)? {
            dense |= hll::encoding(value) == Encoding::Dense;
            merged.merge(value)?;
        }
    }
    let key = &args[1];
    let missing = ctx.keys.find(key, Trace::Quiet).is_none();
    edit(ctx, key, missing, |value, sparse_bytes_max| {
        if dense {
            merged.write_dense(value);
        } else {
            merged.raise(value, sparse_bytes_max)?;
        }
        hll::forget_count(value);
        Ok(())
    })?;
    ctx.keys.changed(Classes::STRING, "pfadd", key);
    reply.ok();
    Ok(())
}

/// Returns the bytes of a key that is read; `None` if it is missing.
fn read<'a>(ctx: &'a Ctx<'_>, key: &[u8]) -> Result<Option<&'a [u8]>, Error> {
    ctx.keys
        .string(key)?
        .map(StringRef::as_bytes)
        .map(checked)
        .transpose()
}

/// Returns the bytes of a key that is going to be changed; `None` if it is missing.
fn existing<'a>(ctx: &'a Ctx<'_>, key: &[u8]) -> Result<Option<&'a [u8]>, Error> {
    let found = ctx.keys.find(key, Trace::Quiet);
    let string = found.map(Found::string).transpose()?;
    string.map(StringRef::as_bytes).map(checked).transpose()
}

fn checked(bytes: &[u8]) -> Result<&[u8], Error> {
    if hll::is_valid(bytes) {
        Ok(bytes)
    } else {
        Err(Error::line(
            "WRONGTYPE Key is not a valid HyperLogLog string value.",
        ))
    }
}

/// Changes a checked value, after creating an empty one if needed; the edit also gets the limit of the sparse encoding.
fn edit(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    missing: bool,
    edit: impl FnOnce(&mut Vec<u8>, usize) -> Result<(), Corrupt>,
) -> Result<(), Error> {
    let sparse_bytes_max = ctx.keys.local.limits.hll_sparse_max_bytes;
    ctx.keys.edit_string(key, 0, |value| {
        if missing {
            *value = hll::empty();
        }
        edit(value, sparse_bytes_max)?;
        Ok(())
    })
}

/// Makes a value dense; returns true if it was sparse. Counts as a change, though without an event.
fn make_dense(ctx: &mut Ctx<'_>, key: &[u8]) -> Result<bool, Error> {
    let mut converted = false;
    edit(ctx, key, false, |value, _| {
        converted = hll::to_dense(value)?;
        Ok(())
    })?;
    // The bytes differ, the set is the same.
    ctx.keys.unreported(key);
    ctx.keys.count_changes(u64::from(converted));
    Ok(converted)
}

impl From<Corrupt> for Failure {
    fn from(error: Corrupt) -> Failure {
        Failure::Reply(error.into())
    }
}

impl From<Corrupt> for Error {
    fn from(_: Corrupt) -> Error {
        Error::line("INVALIDOBJ Corrupted HLL object detected")
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;

    const WRONG: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.";
    const CORRUPT: &str = "-INVALIDOBJ Corrupted HLL object detected";

    #[test]
    fn elements_are_counted_once() {
        let mut db = TestDb::new();
        db.script(&[
            ("PFADD h", ":1"),
            ("PFADD h", ":0"),
            ("PFADD h a b c", ":1"),
            ("PFADD h a b c", ":0"),
            ("PFCOUNT h", ":3"),
            ("PFCOUNT none", ":0"),
            ("PFADD g c d", ":1"),
            ("PFCOUNT h g none", ":4"),
            ("PFMERGE m h g none", "+OK"),
            ("PFCOUNT m", ":4"),
            ("PFDEBUG ENCODING m", "+sparse"),
            ("PFDEBUG TODENSE m", ":1"),
            ("PFCOUNT m", ":4"),
            ("PFMERGE g m", "+OK"),
            ("PFDEBUG ENCODING g", "+dense"),
            ("PFCOUNT g", ":4"),
            ("OBJECT ENCODING h", "$3|raw"),
        ]);
        db.events();
        db.words("PFADD h z");
        db.words("PFMERGE h g");
        assert_eq!(db.events(), ["pfadd h", "pfadd h"]);
    }

    #[test]
    fn a_count_is_remembered_in_the_string() {
        let mut db = TestDb::new();
        db.words("PFADD h a b");
        let header = |db: &mut TestDb| db.words("GETRANGE h 8 15");
        assert_ne!(header(&mut db), "$8|\u{2}\0\0\0\0\0\0\0");
        db.words("PFCOUNT h");
        assert_eq!(db.changes, 1);
        assert_eq!(header(&mut db), "$8|\u{2}\0\0\0\0\0\0\0");
        db.words("PFCOUNT h");
        assert_eq!(db.changes, 0);
    }

    #[test]
    fn what_is_no_hyperloglog_is_refused() {
        let mut db = TestDb::new();
        db.script(&[
            ("SET s abc", "+OK"),
            ("PFADD s a", WRONG),
            ("PFCOUNT s", WRONG),
            ("PFMERGE d s", WRONG),
            ("PFDEBUG ENCODING s", WRONG),
            (
                "PFDEBUG ENCODING none",
                "-ERR The specified key does not exist",
            ),
            ("PFADD h a", ":1"),
            (
                "PFDEBUG nonesuch h",
                "-ERR Unknown PFDEBUG subcommand 'nonesuch'",
            ),
            ("PFDEBUG SIMD x", "-ERR Argument must be ON or OFF"),
        ]);
        // CVE-2019-10192 and CVE-2019-10193: strings with a valid header, cut short.
        db.words("PFDEBUG TODENSE h");
        db.words("SETRANGE h 12304 x");
        assert_eq!(db.words("PFADD h b"), WRONG);
    }

    #[test]
    fn runs_that_overflow_the_registers_are_refused() {
        // CVE-2025-32023.
        let mut db = TestDb::new();
        for runs in [
            &b"\x7f\xff\x80"[..],
            &[0x7f; 30_000],
            b"\x7f",
            b"\x80",
            &[0xff; 5000],
        ] {
            let mut value = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
            value.extend_from_slice(runs);
            db.run(&[b"SET", &b"h"[..], &value]);
            assert_eq!(db.words("PFCOUNT h"), CORRUPT);
            assert_eq!(db.words("PFCOUNT h h"), CORRUPT);
            assert_eq!(db.words("PFMERGE d h"), CORRUPT);
            assert_eq!(db.words("EXISTS d"), ":0");
            assert_eq!(db.words("PFDEBUG GETREG h"), CORRUPT);
            assert_eq!(db.words("PFDEBUG TODENSE h"), CORRUPT);
            db.words("PFDEBUG DECODE h");
            for element in 0..100 {
                db.words(&format!("PFADD h {element}"));
            }
        }
    }
}
