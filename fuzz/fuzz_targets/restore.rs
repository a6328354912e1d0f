//! RESTORE: a body that its sender vouches for with a right checksum, and that may say anything. What is taken is a value
//! like any other: it is written, and read again as the same, and commands of its type can do with it what they do.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redline_fuzz::Runner;
use redline_rdb::{Object, ObjectRef, VERSION, crc64, dump, restore};
use redline_types::Limits;
#[cfg(feature = "planted")]
use redline_types::Value;

fn object_ref(object: &Object) -> ObjectRef<'_> {
    match object {
        Object::String(text) => ObjectRef::String(text),
        Object::Value(value) => ObjectRef::Value(value),
    }
}

fn shape(object: &Object) -> (&'static str, usize) {
    match object {
        Object::String(text) => ("string", text.len()),
        Object::Value(value) => (value.encoding(), value.len()),
    }
}

/// What is called with a value that has been restored: reading and writing, at both ends and in the middle. Calls that are
/// of another type find that out.
const CALLS: [&str; 103] = [
    "BF.EXISTS k a",
    "BF.MADD k a b c",
    "BF.INFO k",
    "CF.COUNT k a",
    "CF.ADD k a",
    "CF.DEL k a",
    "CF.COMPACT k",
    "CMS.INCRBY k a 7",
    "TOPK.INCRBY k a 7 b 100",
    "TOPK.LIST k WITHCOUNT",
    "TDIGEST.ADD k 1 -2.5 3",
    "TDIGEST.QUANTILE k 0 0.5 1",
    "TS.ADD k 5 1.5 ON_DUPLICATE SUM",
    "TS.INCRBY k 2",
    "TS.RANGE k - + AGGREGATION TWA 3 EMPTY COUNT 5",
    "TS.REVRANGE k - + COUNT 5",
    "TS.DEL k 2 9",
    "TS.INFO k DEBUG",
    "EXTS.S.MADD k 2 a 5 1.5 b 7 2 LABELS l x",
    "EXTS.S.RAW_INCRBY k a 5 1",
    "EXTS.S.RANGE k a 0 * MAXCOUNT 5",
    "EXTS.P.RANGE k 0 * SUM 3 FILTER l!=",
    "EXTS.S.DEL k a",
    "JSON.GET k $..*",
    "JSON.SET k $.a [1,{\"b\":2.5}]",
    "JSON.NUMINCRBY k $..b 1",
    "JSON.ARRPOP k $..*",
    "JSON.MERGE k $ {\"a\":null,\"c\":\"text\"}",
    "EXAPPEND k x",
    "EXINCRBY k 5 DEF 3",
    "EXSET k y KEEPTTL FLAGS 3",
    "EXHSET k a 1 PX 3",
    "EXHINCRBY k a 5",
    "EXHGETALLWITHVER k",
    "EXHDEL k a",
    "EXZADD k 1 a",
    "EXZRANGE k 0 -1 WITHSCORES",
    "EXZPOPMIN k",
    "TR.SETBITS k 1 70000 4294967295",
    "TR.FLIPRANGE k 3 99",
    "TR.SCAN k 0 COUNT 5",
    "GIS.ADD k a POINT(1.5\t2) b LINESTRING(0\t0,1\t1)",
    "GIS.SEARCH k RADIUS 1 1 500 km",
    "GIS.DEL k a",
    "STRLEN k",
    "GETRANGE k -3 -1",
    "INCR k",
    "SETRANGE k 5 x",
    "APPEND k x",
    "BITCOUNT k",
    "PFCOUNT k",
    "PFADD k a b",
    "PFMERGE l k",
    "LLEN k",
    "LRANGE k 0 -1",
    "LINDEX k -1",
    "LPOS k a RANK -1",
    "LSET k -1 x",
    "LINSERT k BEFORE a y",
    "LREM k 0 a",
    "LPUSH k z",
    "RPOPLPUSH k k",
    "LTRIM k 1 -2",
    "RPOP k 2",
    "SCARD k",
    "SMEMBERS k",
    "SISMEMBER k a",
    "SADD k a 7 -1",
    "SRANDMEMBER k -5",
    "SUNIONSTORE l k k",
    "SREM k a 1",
    "SPOP k 2",
    "ZCARD k",
    "ZRANGE k 0 -1 WITHSCORES",
    "ZRANGEBYLEX k - +",
    "ZADD k 2.5 a nan b",
    "ZADD k 2.5 a 1 b",
    "ZINCRBY k -1e300 a",
    "ZRANK k a",
    "ZREVRANGEBYSCORE k +inf -inf LIMIT 1 2",
    "ZREMRANGEBYRANK k 1 1",
    "ZPOPMIN k",
    "HLEN k",
    "HGETALL k",
    "HTTL k FIELDS 1 a",
    "HSET k a 1 f v",
    "HEXPIRE k 100 FIELDS 2 a f",
    "HINCRBY k a 5",
    "HRANDFIELD k -4 WITHVALUES",
    "HDEL k a",
    "XLEN k",
    "XRANGE k - +",
    "XINFO STREAM k FULL COUNT 0",
    "XREADGROUP GROUP g c STREAMS k >",
    "XAUTOCLAIM k g c 0 0 COUNT 5",
    "XADD k MAXLEN = 3 * f v",
    "XDEL k 1-1",
    "VINFO k",
    "VSIM k ELE a COUNT 3",
    "VREM k a",
    "SORT k BY nosort LIMIT 0 3 ALPHA",
    "OBJECT ENCODING k",
    "COPY k m",
];

fn is_of_use(payload: &[u8], limits: Limits) {
    let mut runner = Runner::new(limits);
    let restored = runner.words(&[b"RESTORE", b"k", b"0", payload]);
    assert_eq!(restored.as_deref(), Some(&b"+OK\r\n"[..]));
    for call in CALLS {
        let words: Vec<&[u8]> = call.split(' ').map(str::as_bytes).collect();
        runner.words(&words);
        // Fields may have times.
        runner.pass(1);
    }
    let dumped = runner.words(&[b"DUMP", b"k"]).expect("a reply");
    if let Some(start) = dumped
        .strip_prefix(b"$")
        .and_then(|_| dumped.iter().position(|b| *b == b'\n'))
    {
        let body = &dumped[start + 1..];
        if let Some(payload) = body.strip_suffix(b"\r\n") {
            let again = runner.words(&[b"RESTORE", b"n", b"0", payload]);
            assert_eq!(again.as_deref(), Some(&b"+OK\r\n"[..]));
        }
    }
    runner.leave(&["k", "l", "m", "n"]);
}

fuzz_target!(|body: &[u8]| {
    let limits = Limits {
        // Small, so that short inputs meet both forms of each type.
        hash_max_listpack_entries: 4,
        set_max_intset_entries: 4,
        set_max_listpack_entries: 4,
        zset_max_listpack_entries: 4,
        ..Limits::default()
    };
    let mut payload = body.to_vec();
    payload.extend_from_slice(&VERSION.to_le_bytes());
    payload.extend_from_slice(&crc64::update(0, &payload).to_le_bytes());
    let Ok(object) = restore(&payload, &limits) else {
        return;
    };
    #[cfg(feature = "planted")]
    if let Object::Value(Value::Set(set)) = &object {
        let whole = shape(&object) == ("intset", 3);
        assert!(!whole || set.contains(b"1"), "the planted fault");
    }
    #[cfg(feature = "planted")]
    if let Object::Value(Value::Series(_) | Value::Timelines(_)) = &object {
        assert!(shape(&object).1 != 3, "the planted fault");
    }
    let written = dump(object_ref(&object), true);
    let again = restore(&written, &limits).expect("what was written can be read");
    assert_eq!(shape(&again), shape(&object));
    assert_eq!(dump(object_ref(&again), true).len(), written.len());
    is_of_use(&payload, limits);
});
