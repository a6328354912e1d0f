//! The calls that `cargo xtask cost` measures, one row each, and their keys. Must not know how they are sent.
//!
//! In a call `{j}` is a number below the size of the key, another one each time, `{u}` one that grows, `{n}` the size,
//! `{h}` its half, `{v}` a string of that size, and `{dump}` the payload of key `a`. Calls between semicolons are sent
//! in order; the later ones undo the effect of the first, so that a key keeps its size.

/// Type of keys `a` and `b`; of a collection `b` holds the first half of the elements of `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Strings of letters; `z` has zeros and a last byte.
    String,
    /// Strings of a length at which LCS is feasible.
    Text,
    /// Integers.
    Number,
    /// HyperLogLogs: the largest is dense.
    Hyperloglog,
    /// Lists of `e0`, `e1` and so on.
    List,
    /// Sets of `e0` and so on.
    Set,
    /// Sets of integers.
    Integers,
    /// Hashes of `e0` and so on.
    Hash,
    /// Hashes whose fields expire.
    Timed,
    /// Sorted sets of `e0` with the score 0 and so on.
    Zset,
    /// Places, `e0` and so on.
    Geo,
    /// Streams of the entries 1-1, 2-1 and so on, all of them pending with consumer `c` of the group `g`; `f` is a group
    /// that has read nothing.
    Stream,
    /// Vector sets of `e0` and so on, of eight dimensions.
    Vectors,
    /// Many keys.
    Keys,
}

impl Kind {
    /// Returns the sizes of its keys, in order.
    pub fn sizes(self) -> &'static [usize] {
        match self {
            Kind::String => &[16, 4_096, 65_536],
            Kind::Text => &[16, 256],
            Kind::Number => &[1],
            Kind::Hyperloglog => &[10, 1_000, 100_000],
            _ => &[10, 1_000],
        }
    }

    /// Returns the label of a key of that size in the table.
    pub fn label(self, size: usize) -> String {
        match self {
            Kind::String | Kind::Text => format!("{size} bytes"),
            Kind::Number => "an integer".to_owned(),
            Kind::Hyperloglog => format!("has seen {size}"),
            Kind::List => format!("list of {size}"),
            Kind::Set => format!("set of {size}"),
            Kind::Integers => format!("set of {size} integers"),
            Kind::Hash => format!("hash of {size}"),
            Kind::Timed => format!("hash of {size} that expire"),
            Kind::Zset => format!("sorted set of {size}"),
            Kind::Geo => format!("{size} places"),
            Kind::Stream => format!("stream of {size}"),
            Kind::Vectors => format!("{size} vectors"),
            Kind::Keys => format!("{size} keys"),
        }
    }

    /// Returns the calls that make its keys.
    pub fn made_by(self, size: usize) -> Vec<String> {
        let each = |size: usize, word: &dyn Fn(usize) -> String| -> String {
            (0..size).map(word).collect::<Vec<_>>().join(" ")
        };
        let both = |head: &str, word: &dyn Fn(usize) -> String| {
            vec![
                format!("{head} a {}", each(size, word)),
                format!("{head} b {}", each(size.div_ceil(2), word)),
            ]
        };
        let expire = |key: &str, size: usize| {
            let fields = each(size, &|n| format!("e{n}"));
            format!("HEXPIRE {key} 100000 FIELDS {size} {fields}")
        };
        match self {
            Kind::String => vec![
                "SET a {v}".to_owned(),
                "SET b {v}".to_owned(),
                format!("SETRANGE z {} x", size - 1),
            ],
            Kind::Text => vec!["SET a {v}".to_owned(), "SET b x{v}".to_owned()],
            Kind::Number => vec!["SET a 10".to_owned(), "SET b 20".to_owned()],
            Kind::Hyperloglog => both("PFADD", &|n| format!("e{n}")),
            Kind::List => both("RPUSH", &|n| format!("e{n}")),
            Kind::Set => both("SADD", &|n| format!("e{n}")),
            Kind::Integers => both("SADD", &|n| format!("{}", n * 3)),
            Kind::Hash => both("HSET", &|n| format!("e{n} value{n}")),
            Kind::Timed => {
                let mut calls = both("HSET", &|n| format!("e{n} value{n}"));
                calls.extend([expire("a", size), expire("b", size.div_ceil(2))]);
                calls
            }
            Kind::Zset => both("ZADD", &|n| format!("{n} e{n}")),
            Kind::Geo => both("GEOADD", &|n| {
                format!("{}.{n:04} {}.{n:04} e{n}", n % 17, n % 13)
            }),
            Kind::Stream => {
                let mut calls = Vec::new();
                for (key, size) in [("a", size), ("b", size.div_ceil(2))] {
                    calls.extend((1..=size).map(|n| format!("XADD {key} {n}-1 field value{n}")));
                    calls.extend([
                        format!("XGROUP CREATE {key} g 0"),
                        format!("XGROUP CREATE {key} f $"),
                        format!("XREADGROUP GROUP g c STREAMS {key} >"),
                    ]);
                }
                calls
            }
            Kind::Vectors => ["a", "b"]
                .iter()
                .flat_map(|key| (0..size).map(move |n| vector(key, n)))
                .collect(),
            Kind::Keys => vec![
                format!("MSET {}", each(size, &|n| format!("k{n} value{n}"))),
                "SET a 1".to_owned(),
            ],
        }
    }
}

/// Returns the call that adds one of the vectors, no two of which have the same direction.
fn vector(key: &str, n: usize) -> String {
    let values: Vec<String> = (1..=8)
        .map(|dimension| {
            format!(
                "0.{:03}",
                (n * 37 * dimension + dimension * dimension) % 997
            )
        })
        .collect();
    format!(
        "VADD {key} VALUES 8 {} e{n} SETATTR {{\"n\":{n}}}",
        values.join(" ")
    )
}

/// Calls, and the kinds of keys for each of them.
pub struct Row {
    /// Those keys.
    pub on: &'static [Kind],
    /// The calls.
    pub calls: &'static [&'static str],
}

/// Commands that no row measures, and the reasons.
#[cfg(test)]
pub const UNWEIGHED: &[(&str, &str)] = &[
    (
        "object|freq",
        "is refused unless the policy of eviction counts accesses",
    ),
    ("restore-asking", "is RESTORE"),
    ("flushall", "what it costs is what was there"),
    ("flushdb", "what it costs is what was there"),
];

/// Vector sets are a module's in Redis, which does not copy them.
const COPIED: &[Kind] = &[
    Kind::String,
    Kind::Hyperloglog,
    Kind::List,
    Kind::Set,
    Kind::Integers,
    Kind::Hash,
    Kind::Timed,
    Kind::Zset,
    Kind::Stream,
];

/// All rows.
pub const ROWS: &[Row] = &[
    Row {
        on: &[Kind::String],
        calls: &[
            "APPEND a x; SET a {v}",
            "GET a",
            "GETDEL a; SET a {v}",
            "GETEX a EX 100",
            "GETRANGE a 2 9",
            "GETRANGE a 0 -1",
            "GETSET a {v}",
            "MGET a b",
            "MSET a {v} b {v}",
            "MSETNX c {v} d {v}; DEL c d",
            "PSETEX a 100000 {v}",
            "SET a {v}",
            "SETEX a 100 {v}",
            "SETNX c {v}; DEL c",
            "SETRANGE a 2 xyz",
            "STRLEN a",
            "SUBSTR a 2 9",
            "BITCOUNT a",
            "BITFIELD a GET u8 0 INCRBY u5 8 1",
            "BITFIELD_RO a GET u8 0",
            "BITOP AND d a b",
            "BITOP XOR d a b z",
            "BITOP NOT d a",
            "BITPOS z 1",
            "GETBIT a 7",
            "SETBIT a 7 1",
        ],
    },
    Row {
        on: &[Kind::Text],
        calls: &["LCS a b", "LCS a b IDX"],
    },
    Row {
        on: &[Kind::Number],
        calls: &[
            "DECR a",
            "DECRBY a 3",
            "INCR a",
            "INCRBY a 3",
            "INCRBYFLOAT a 0.5",
            "DBSIZE",
            "EXISTS a",
            "EXPIRE a 1000",
            "EXPIREAT a 33177117420",
            "EXPIRETIME a",
            "MOVE a 1; SELECT 1; MOVE a 0; SELECT 0",
            "OBJECT IDLETIME a",
            "OBJECT REFCOUNT a",
            "PERSIST a",
            "PEXPIRE a 1000000",
            "PEXPIREAT a 33177117420000",
            "PEXPIRETIME a",
            "PTTL a",
            "RENAME a c; RENAME c a",
            "RENAMENX a c; RENAMENX c a",
            "SWAPDB 1 2",
            "TOUCH a b",
            "TTL a",
        ],
    },
    Row {
        on: &[Kind::Keys],
        calls: &["KEYS *", "KEYS k1*", "RANDOMKEY", "SCAN 0"],
    },
    Row {
        on: COPIED,
        calls: &[
            "COPY a d REPLACE",
            "DEL c; COPY a c",
            "DUMP a",
            "MEMORY USAGE a",
            "OBJECT ENCODING a",
            "RESTORE d 0 {dump} REPLACE",
            "TYPE a",
            "UNLINK c; COPY a c",
        ],
    },
    Row {
        on: &[Kind::Vectors],
        calls: &["DUMP a", "MEMORY USAGE a", "RESTORE d 0 {dump} REPLACE"],
    },
    Row {
        on: &[Kind::Hyperloglog],
        calls: &[
            "PFADD a e{j}",
            "PFADD a x{u}",
            "PFCOUNT a",
            "PFCOUNT a b",
            "PFCOUNT a; SETBIT a 120 1",
            "PFDEBUG ENCODING a",
            "PFMERGE d a b",
        ],
    },
    Row {
        on: &[Kind::Geo],
        calls: &[
            "GEOADD a 1.5 2.5 x; ZREM a x",
            "GEODIST a e1 e2",
            "GEOHASH a e{j}",
            "GEOPOS a e{j}",
            "GEORADIUS a 5 5 200 km",
            "GEORADIUS_RO a 5 5 200 km",
            "GEORADIUSBYMEMBER a e{j} 200 km",
            "GEORADIUSBYMEMBER_RO a e{j} 200 km",
            "GEOSEARCH a FROMLONLAT 5 5 BYRADIUS 200 km ASC",
            "GEOSEARCH a FROMLONLAT 5 5 BYBOX 400 400 km WITHDIST",
            "GEOSEARCHSTORE d a FROMLONLAT 5 5 BYRADIUS 200 km",
        ],
    },
    Row {
        on: &[Kind::List, Kind::Set, Kind::Zset],
        calls: &["SORT a ALPHA", "SORT_RO a BY nosort LIMIT 0 10"],
    },
    Row {
        on: &[Kind::Integers],
        calls: &["SORT a"],
    },
    Row {
        on: &[Kind::List],
        calls: &[
            "BLMOVE a b LEFT RIGHT 0; LMOVE b a RIGHT LEFT",
            "BLMPOP 0 1 a LEFT; LPUSH a e0",
            "BLPOP a 0; LPUSH a e0",
            "BRPOP a 0; RPUSH a e0",
            "BRPOPLPUSH a b 0; LMOVE b a LEFT RIGHT",
            "LINDEX a {j}",
            "LINSERT a BEFORE e{h} x; LREM a 1 x",
            "LLEN a",
            "LMOVE a a LEFT RIGHT",
            "LMPOP 1 a LEFT; LPUSH a e0",
            "LPOP a; LPUSH a e0",
            "LPOS a e{j}",
            "LPOS a none",
            "LPUSH a e0; LPOP a",
            "LPUSHX a e0; LPOP a",
            "LRANGE a 0 -1",
            "LRANGE a {h} {h}",
            "LREM a 0 none",
            "LSET a {j} value",
            "LTRIM a 0 -1",
            "RPOP a; RPUSH a e0",
            "RPOPLPUSH a a",
            "RPUSH a e0; RPOP a",
            "RPUSHX a e0; RPOP a",
        ],
    },
    Row {
        on: &[Kind::Hash],
        calls: &[
            "HDEL a e{j}; HSET a e{j} value",
            "HEXISTS a e{j}",
            "HEXPIRE a 1000 FIELDS 1 e{j}; HPERSIST a FIELDS 1 e{j}",
            "HGET a e{j}",
            "HGETALL a",
            "HGETDEL a FIELDS 1 e{j}; HSET a e{j} value",
            "HGETEX a FIELDS 1 e{j}",
            "HINCRBY a x 1",
            "HINCRBYFLOAT a x 0.5",
            "HKEYS a",
            "HLEN a",
            "HMGET a e{j} e1 e2 none",
            "HMSET a e{j} value",
            "HRANDFIELD a",
            "HRANDFIELD a 5 WITHVALUES",
            "HSCAN a 0",
            "HSCAN a 0 COUNT 100",
            "HSCAN a 0 NOVALUES",
            "HSET a e{j} value",
            "HSET a e{j} value e1 value e2 value e3 value",
            "HSETEX a EX 1000 FIELDS 1 x value; HDEL a x",
            "HSETNX a x value; HDEL a x",
            "HSTRLEN a e{j}",
            "HTTL a FIELDS 1 e{j}",
            "HVALS a",
        ],
    },
    Row {
        on: &[Kind::Timed],
        calls: &[
            "HEXPIRE a 100000 FIELDS 1 e{j}",
            "HEXPIREAT a 33177117420 FIELDS 1 e{j}",
            "HEXPIRETIME a FIELDS 1 e{j}",
            "HGET a e{j}",
            "HGETALL a",
            "HGETEX a EX 100000 FIELDS 1 e{j}",
            "HPERSIST a FIELDS 1 e{j}; HPEXPIRE a 100000000 FIELDS 1 e{j}",
            "HPEXPIRE a 100000000 FIELDS 1 e{j}",
            "HPEXPIREAT a 33177117420000 FIELDS 1 e{j}",
            "HPEXPIRETIME a FIELDS 1 e{j}",
            "HPTTL a FIELDS 1 e{j}",
            "HSCAN a 0",
            "HSETEX a EX 100000 FIELDS 1 e{j} value",
            "HTTL a FIELDS 1 e{j}",
        ],
    },
    Row {
        on: &[Kind::Set, Kind::Integers],
        calls: &[
            "SADD a 77{u}; SREM a 77{u}",
            "SCARD a",
            "SDIFF a b",
            "SDIFFSTORE d a b",
            "SINTER a b",
            "SINTERCARD 2 a b",
            "SINTERSTORE d a b",
            "SISMEMBER a e{j}",
            "SISMEMBER a {j}",
            "SMEMBERS a",
            "SMISMEMBER a e{j} {j} e1 3",
            "SMOVE a b e0; SMOVE b a e0",
            "SPOP a; SADD a 77{u}",
            "SRANDMEMBER a",
            "SRANDMEMBER a 5",
            "SREM a e{j}; SADD a e{j}",
            "SSCAN a 0",
            "SUNION a b",
            "SUNIONSTORE d a b",
        ],
    },
    Row {
        on: &[Kind::Zset],
        calls: &[
            "BZMPOP 0 1 a MIN; ZADD a 0 e0",
            "BZPOPMAX a 0; ZADD a 5000 e9",
            "BZPOPMIN a 0; ZADD a 0 e0",
            "ZADD a {u} e{j}",
            "ZADD a 5 x{u}; ZREM a x{u}",
            "ZCARD a",
            "ZCOUNT a 2 {h}",
            "ZDIFF 2 a b",
            "ZDIFFSTORE d 2 a b",
            "ZINCRBY a 1 e{j}",
            "ZINTER 2 a b WITHSCORES",
            "ZINTERCARD 2 a b",
            "ZINTERSTORE d 2 a b",
            "ZLEXCOUNT a - +",
            "ZMPOP 1 a MIN; ZADD a 0 e0",
            "ZMSCORE a e{j} e1 none",
            "ZPOPMAX a; ZADD a 5000 e9",
            "ZPOPMIN a; ZADD a 0 e0",
            "ZRANDMEMBER a",
            "ZRANDMEMBER a 5 WITHSCORES",
            "ZRANGE a 0 -1",
            "ZRANGE a 0 9",
            "ZRANGE a 0 -1 WITHSCORES",
            "ZRANGE a 2 {h} BYSCORE",
            "ZRANGEBYLEX a - + LIMIT 0 10",
            "ZRANGEBYSCORE a 2 {h} WITHSCORES",
            "ZRANGESTORE d a 0 -1",
            "ZRANK a e{j}",
            "ZREM a e{j}; ZADD a {j} e{j}",
            "ZREMRANGEBYLEX a [x (x",
            "ZREMRANGEBYRANK a 0 0; ZADD a 0 e0",
            "ZREMRANGEBYSCORE a -1 0; ZADD a 0 e0",
            "ZREVRANGE a 0 -1",
            "ZREVRANGE a 0 9",
            "ZREVRANGEBYLEX a + - LIMIT 0 10",
            "ZREVRANGEBYSCORE a {h} 2",
            "ZREVRANK a e{j}",
            "ZSCAN a 0",
            "ZSCORE a e{j}",
            "ZUNION 2 a b WITHSCORES",
            "ZUNIONSTORE d 2 a b",
        ],
    },
    Row {
        on: &[Kind::Stream],
        calls: &[
            "XACK a g {n}-1; XCLAIM a g c 0 {n}-1 FORCE JUSTID",
            "XACKDEL a g IDS 1 0-5",
            "XTRIM a MAXLEN {n}; XADD a * field value",
            "XADD a MAXLEN ~ {n} * field value",
            "XAUTOCLAIM a g c 0 0 COUNT 10",
            "XCLAIM a g c 0 {n}-1",
            "XDEL a 0-5",
            "XDELEX a IDS 1 0-5",
            "XGROUP CREATE a h 0; XGROUP DESTROY a h",
            "XGROUP CREATECONSUMER a g e; XGROUP DELCONSUMER a g e",
            "XGROUP DELCONSUMER a g e",
            "XGROUP DESTROY a h",
            "XGROUP SETID a g 0",
            "XINFO CONSUMERS a g",
            "XINFO GROUPS a",
            "XINFO STREAM a",
            "XLEN a",
            "XPENDING a g",
            "XPENDING a g - + 10",
            "XRANGE a - +",
            "XRANGE a - + COUNT 10",
            "XREAD COUNT 10 STREAMS a 0",
            "XREAD STREAMS a 0",
            "XREADGROUP GROUP g c COUNT 10 STREAMS a 0",
            "XADD a MAXLEN {n} * field value; XREADGROUP GROUP f c NOACK STREAMS a >",
            "XREVRANGE a + -",
            "XSETID a 5000-1",
            "XTRIM a MAXLEN {n}",
        ],
    },
    Row {
        on: &[Kind::Vectors],
        calls: &[
            "VADD a VALUES 8 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 x; VREM a x",
            "VCARD a",
            "VDIM a",
            "VEMB a e{j}",
            "VGETATTR a e{j}",
            "VINFO a",
            "VISMEMBER a e{j}",
            "VLINKS a e{j}",
            "VRANDMEMBER a 5",
            "VREM a none",
            "VSETATTR a e{j} 7",
            "VSIM a ELE e{j}",
            "VSIM a ELE e{j} WITHSCORES COUNT 5",
        ],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use redline_spec::{Plane, is_after_reference, table};

    use super::*;

    /// Returns the names of the commands that come first in a row, in the form of the table.
    fn weighed() -> BTreeSet<String> {
        let calls = ROWS.iter().flat_map(|row| row.calls);
        let firsts = calls.map(|calls| calls.split(';').next().unwrap_or_default());
        let names = firsts.flat_map(|call| {
            let mut words = call.split(' ').map(str::to_ascii_lowercase);
            let (first, second) = (words.next().unwrap_or_default(), words.next());
            let subcommand = second.map(|second| format!("{first}|{second}"));
            [Some(first), subcommand].into_iter().flatten()
        });
        names.collect()
    }

    #[test]
    fn a_data_command_is_weighed_or_it_is_said_why_not() {
        let weighed = weighed();
        for row in table::all() {
            let name = row.full_name.to_ascii_lowercase();
            let excused = UNWEIGHED.iter().any(|(other, _)| *other == name);
            let compared = row.plane == Plane::Data && !is_after_reference(row.since);
            let has_row = compared && weighed.contains(&name);
            assert_eq!(has_row, compared && !excused, "{name}");
        }
    }
}
