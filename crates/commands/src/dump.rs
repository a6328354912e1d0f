//! DUMP and RESTORE: keys as serialised bytes. Must not know the form of those bytes.

use redline_keyspace::{Classes, Found, Owned, StringRef, Trace, ValueRef, journal::Word};
use redline_rdb::{Object, ObjectRef, RestoreError};
use redline_resp::{Args, Reply};
use redline_spec::CommandId;
use redline_types::number::IntText;

use crate::{
    Ctx, Error, Failure, word,
    words::{Words, integer},
};

const BUSY_KEY: Error = Error::line("BUSYKEY Target key name already exists.");
const NEGATIVE_TTL: Error = Error::line("ERR Invalid TTL value, must be >= 0");
const WRONG_FOOTER: Error = Error::line("ERR DUMP payload version or checksum are wrong");

/// DUMP key
pub(crate) fn dump(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let compresses = ctx.keys.local.limits.payload_compressed;
    match ctx.keys.find(&args[1], Trace::Read) {
        Some(found) => reply.bulk(&redline_rdb::dump(object_of(found.value()), compresses)),
        None => reply.null(),
    }
    Ok(())
}

/// RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]
pub(crate) fn restore(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let key = &args[1];
    let options = Options::parse(Words::new(CommandId::Restore, &args, 4))?;
    let old_type = ctx.keys.find(key, Trace::Quiet).map(Found::type_name);
    if old_type.is_some() && !options.replace {
        return Err(BUSY_KEY.into());
    }
    let ttl_ms = integer(&args[2])?;
    if ttl_ms < 0 {
        return Err(NEGATIVE_TTL.into());
    }
    let object =
        redline_rdb::restore(&args[3], &ctx.keys.local.limits).map_err(|error| match error {
            RestoreError::VersionOrChecksum => WRONG_FOOTER,
            RestoreError::Object(damage) => Error::Damaged(damage.0),
        })?;
    let deleted = ctx.keys.remove(key);
    let now_ms = ctx.keys.now_ms();
    let expire_at_ms = match ttl_ms {
        0 => None,
        at_ms if options.absolute => Some(at_ms),
        // A span beyond all time wraps around, as in Redis: the key has expired already.
        span_ms => Some(now_ms.wrapping_add(span_ms)),
    };
    if expire_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
        if deleted {
            ctx.keys.changed(Classes::GENERIC, "del", key);
            ctx.keys.propagate(&[b"DEL", key]);
        }
        reply.ok();
        return Ok(());
    }
    let (value, new_type) = match object {
        Object::String(bytes) => (Owned::Bytes { bytes, raw: false }, "string"),
        Object::Value(value) => {
            let name = value.kind().name();
            (Owned::Object(value), name)
        }
    };
    ctx.keys.put_owned(key, value, expire_at_ms);
    if let Some(stored) = ctx.keys.find(key, Trace::Quiet) {
        stored.set_access(options.idle_s, options.frequency);
    }
    ctx.keys.changed(Classes::GENERIC, "restore", key);
    if let Some(at_ms) = expire_at_ms.filter(|_| !options.absolute)
        && ctx.keys.is_journaled()
    {
        let at_ms = IntText::new(at_ms);
        let head = [&args[0], key, at_ms.as_ref()].map(Word::Bytes).into_iter();
        let rest = (3..args.len()).map(|index| word(args, index));
        ctx.keys
            .propagate(head.chain(rest).chain([Word::Bytes(b"ABSTTL")]));
    }
    if let Some(old_type) = old_type {
        ctx.keys.notify_replaced(key, old_type, new_type);
    }
    reply.ok();
    Ok(())
}

/// Returns a key's value as the encoder takes it.
pub fn object_of(value: ValueRef<'_>) -> ObjectRef<'_> {
    match value {
        ValueRef::String(StringRef::Inline { bytes, .. }) => ObjectRef::String(bytes),
        ValueRef::String(StringRef::Blob(blob)) => ObjectRef::String(blob),
        ValueRef::Object(value) => ObjectRef::Value(value),
    }
}

#[derive(Default)]
struct Options {
    replace: bool,
    /// True if the time to live is a time, not a span.
    absolute: bool,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl Options {
    fn parse(mut words: Words<'_>) -> Result<Options, Error> {
        const BAD_IDLE: Error = Error::line("ERR Invalid IDLETIME value, must be >= 0");
        const BAD_FREQUENCY: Error = Error::line("ERR Invalid FREQ value, must be >= 0 and <= 255");
        let mut options = Options::default();
        while !words.is_empty() {
            if words.flag("REPLACE") {
                options.replace = true;
            } else if words.flag("ABSTTL") {
                options.absolute = true;
            } else if options.frequency.is_none()
                && let Some(idle_s) = words.pair::<i64>("IDLETIME")?
            {
                options.idle_s = Some(u64::try_from(idle_s).map_err(|_| BAD_IDLE)?);
            } else if options.idle_s.is_none()
                && let Some(frequency) = words.pair::<i64>("FREQ")?
            {
                options.frequency = Some(u8::try_from(frequency).map_err(|_| BAD_FREQUENCY)?);
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::TestDb;
    use redline_resp::ArgsBuf;

    /// Returns the reply of DUMP without the bulk's frame.
    fn dump(db: &mut TestDb, key: &str) -> Vec<u8> {
        let args: ArgsBuf = [&b"DUMP"[..], key.as_bytes()].into_iter().collect();
        let reply = db.run_bytes(args.as_args());
        let start = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        reply[start..reply.len() - 2].to_vec()
    }

    fn restore(db: &mut TestDb, key: &str, ttl: &str, payload: &[u8], options: &str) -> String {
        let mut words = vec![&b"RESTORE"[..], key.as_bytes(), ttl.as_bytes(), payload];
        words.extend(options.split_ascii_whitespace().map(str::as_bytes));
        db.run(&words)
    }

    #[test]
    fn a_key_travels() {
        let mut db = TestDb::new();
        db.script(&[
            ("DUMP none", "$-1"),
            ("RPUSH l a 1 b", ":3"),
            ("ZADD z 1.5 m", ":1"),
            ("SET s v", "+OK"),
        ]);
        let (list, zset) = (dump(&mut db, "l"), dump(&mut db, "z"));
        db.events();
        assert_eq!(restore(&mut db, "m", "0", &list, ""), "+OK");
        assert_eq!(db.words("LRANGE m 0 -1"), "*3|$1|a|$1|1|$1|b");
        assert_eq!(
            restore(&mut db, "m", "0", &list, ""),
            "-BUSYKEY Target key name already exists."
        );
        assert_eq!(restore(&mut db, "s", "5000", &zset, "REPLACE"), "+OK");
        db.script(&[("ZSCORE s m", "$3|1.5"), ("PTTL s", ":5000")]);
        assert_eq!(
            restore(&mut db, "s", "1700000000001", &zset, "absttl replace"),
            "+OK"
        );
        assert_eq!(db.words("PTTL s"), ":1");
        assert_eq!(restore(&mut db, "s", "5", &zset, "ABSTTL REPLACE"), "+OK");
        assert_eq!(db.words("EXISTS s"), ":0");
        assert_eq!(
            restore(&mut db, "q", "9223372036854775807", &zset, ""),
            "+OK"
        );
        assert_eq!(db.words("EXISTS q"), ":0");
        assert_eq!(
            db.events()
                .into_iter()
                .filter(|event| !event.starts_with("keymiss"))
                .collect::<Vec<_>>(),
            ["restore m", "restore s", "restore s", "del s"]
        );
    }

    #[test]
    fn accesses_travel_along() {
        let mut db = TestDb::new();
        db.words("SET s v");
        let payload = dump(&mut db, "s");
        assert_eq!(restore(&mut db, "i", "0", &payload, "IDLETIME 100"), "+OK");
        assert_eq!(db.words("OBJECT IDLETIME i"), ":100");
        assert_eq!(restore(&mut db, "f", "0", &payload, "FREQ 10"), "+OK");
        assert_eq!(db.words("OBJECT IDLETIME f"), ":0");
        db.local.clock.lfu = true;
        assert_eq!(
            restore(&mut db, "f", "0", &payload, "REPLACE FREQ 10"),
            "+OK"
        );
        assert_eq!(db.words("OBJECT FREQ f"), ":10");
        assert_eq!(
            restore(&mut db, "f", "0", &payload, "REPLACE IDLETIME 9"),
            "+OK"
        );
        assert_eq!(db.words("OBJECT FREQ f"), ":5");
    }

    #[test]
    fn refusals_in_the_order_of_redis() {
        let mut db = TestDb::new();
        db.words("SET s v");
        let payload = dump(&mut db, "s");
        for (key, ttl, body, options, expected) in [
            ("s", "x", &b"x"[..], "FOO", "-ERR syntax error"),
            ("n", "0", b"x", "FREQ", "-ERR syntax error"),
            ("n", "0", b"x", "FREQ 1 IDLETIME 1", "-ERR syntax error"),
            (
                "n",
                "0",
                b"x",
                "IDLETIME -1",
                "-ERR Invalid IDLETIME value, must be >= 0",
            ),
            (
                "n",
                "0",
                b"x",
                "FREQ 256",
                "-ERR Invalid FREQ value, must be >= 0 and <= 255",
            ),
            (
                "s",
                "x",
                b"x",
                "",
                "-BUSYKEY Target key name already exists.",
            ),
            (
                "n",
                "x",
                b"x",
                "",
                "-ERR value is not an integer or out of range",
            ),
            ("n", "-1", b"x", "", "-ERR Invalid TTL value, must be >= 0"),
            (
                "n",
                "0",
                b"",
                "",
                "-ERR DUMP payload version or checksum are wrong",
            ),
        ] {
            assert_eq!(restore(&mut db, key, ttl, body, options), expected);
        }
        let mut empty_list = b"\x01\x00\x0c\x00".to_vec();
        let checksum = redline_rdb::crc64::update(0, &empty_list);
        empty_list.extend_from_slice(&checksum.to_le_bytes());
        assert_eq!(
            restore(&mut db, "n", "0", &empty_list, ""),
            "-ERR Bad data format"
        );
        assert_eq!(restore(&mut db, "n", "0", &payload, ""), "+OK");
    }
}
