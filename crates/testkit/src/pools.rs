//! The words of generated calls: few, so that calls share keys, and edge cases.

/// Keys of strings.
pub const STRING_KEYS: &[&str] = &["s1", "s2", "s3", "{t}s"];
/// Keys of lists.
pub const LIST_KEYS: &[&str] = &["l1", "l2", "l3"];
/// Keys of hashes.
pub const HASH_KEYS: &[&str] = &["h1", "h2"];
/// Keys of sets.
pub const SET_KEYS: &[&str] = &["set1", "set2", "set3", "ints"];
/// Keys of sorted sets.
pub const ZSET_KEYS: &[&str] = &["z1", "z2", "z3"];
/// Keys of HyperLogLogs.
pub const HLL_KEYS: &[&str] = &["p1", "p2", "p3"];
/// Keys of sorted sets of places.
pub const GEO_KEYS: &[&str] = &["g1", "g2"];
/// Longitudes.
pub const LONGITUDES: &[&str] = &[
    "13.361389",
    "15.087269",
    "12.758489",
    "17.24151",
    "15",
    "0",
    "-0.1",
    "2.35",
    "2.3522",
    "-74.006",
    "139.6917",
    "180",
    "-180",
    "179.9",
    "-179.9",
    "100.5",
    "13.3",
    "16",
    "14.2",
    "-0.2",
];
/// Latitudes.
pub const LATITUDES: &[&str] = &[
    "38.115556",
    "37.502669",
    "38.788135",
    "37",
    "0",
    "0.1",
    "48.85",
    "48.8566",
    "40.7128",
    "35.6895",
    "-33.9",
    "85.05112878",
    "-85.05112878",
    "84.9",
    "-70",
    "67",
    "38.1",
    "37.9",
    "36.5",
    "81",
];
/// Distances.
pub const DISTANCES: &[&str] = &[
    "100", "200", "1", "0", "400", "5000", "20000", "50000", "0.5", "166.2742", "1e10", "1000000",
    "150000", "300", "7000", "0.001",
];
/// Words that are no coordinate and no distance.
pub const OFF_THE_MAP: &[&str] = &[
    "180.1", "-181", "85.1", "90", "-1", "abc", "inf", "-inf", "nan", "", "1e300", " 1",
];
/// Keys of streams.
pub const STREAM_KEYS: &[&str] = &["x1", "x2"];
/// Keys of vector sets, each for vectors of one shape.
pub const VECTOR_KEYS: &[&str] = &["v1", "v2", "v3", "v4"];
/// All of them, and keys that never exist.
pub const ALL_KEYS: &[&str] = &[
    "s1", "s2", "s3", "{t}s", "l1", "l2", "l3", "h1", "h2", "set1", "set2", "set3", "ints", "z1",
    "z2", "z3", "x1", "x2", "p1", "g1", "v1", "v3", "none1", "",
];
/// Fields, members, elements.
pub const MEMBERS: &[&str] = &[
    "a",
    "b",
    "c",
    "d",
    "e",
    "f",
    "aa",
    "ab",
    "",
    "1",
    "2",
    "3",
    "10",
    "-5",
    "100000",
    "3.5",
    "-0",
    "inf",
    "a b",
    "é",
    "\0\u{1}\r\n",
    "\"q\"",
    "9223372036854775807",
    "a member of more than sixty-four bytes, which no listpack takes by default",
];
/// Values of strings: MEMBERS, and numbers in all spellings.
pub const VALUES: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "5",
    "12",
    "10.5",
    "3.0e3",
    "1e400",
    "-inf",
    "nan",
    " 1",
    "1 ",
    "+1",
    "007",
    "0x10",
    "hello",
    "hello world",
    "ohmytext",
    "mynewtext",
    "\0\u{7f}\u{80}",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "forty-four bytes are the most that is embedded",
    "exactly forty-four bytes in this very string",
];
/// Integers: small ones twice, then edge cases and invalid ones.
pub const INTEGERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-2",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "5",
    "10",
    "-10",
    "100",
    "-100",
    "2147483647",
    "-2147483648",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775807",
    "18446744073709551615",
    "1.5",
    "abc",
    "",
    "01",
    "+1",
    " 1",
    "1 ",
    "0x1",
    "1e1",
];
/// Types of integers inside a string.
pub const BIT_FIELDS: &[&str] = &[
    "u1", "i1", "u8", "i8", "u4", "i5", "u13", "i16", "u32", "i63", "u63", "i64", "u64", "i65",
    "u0", "i0", "x8", "8", "i", "", "u-1", "I8", "u08",
];
/// Offsets of bits. None far away: such a string would be made.
pub const BIT_OFFSETS: &[&str] = &[
    "0",
    "1",
    "2",
    "7",
    "8",
    "9",
    "31",
    "63",
    "64",
    "100",
    "1000",
    "#0",
    "#1",
    "#2",
    "#10",
    "-1",
    "#-1",
    "#",
    "abc",
    "",
    "4294967296",
    "#9223372036854775807",
    "9223372036854775807",
    "#abc",
    "01",
    "200000",
];
/// Floating-point numbers and invalid ones.
pub const DOUBLES: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "-1",
    "1.5",
    "-2.25",
    "0.1",
    "1e3",
    "1e308",
    "-1e308",
    "1e-5",
    "inf",
    "-inf",
    "+inf",
    "nan",
    "abc",
    "",
    "0x1p3",
    "3.0",
    "1e400",
    "5e-324",
    "17.123456789012345678",
    "123456789012345680",
    "1e21",
    " 1",
    "Infinity",
];
/// Spans of time in seconds: in the past, or far away.
pub const SECONDS: &[&str] = &[
    "100",
    "1000",
    "5000",
    "100000",
    "100",
    "0",
    "-1",
    "-100",
    "9223372036854775",
    "9223372036854775807",
    "-9223372036854775808",
    "abc",
    "",
];
/// Spans of time in milliseconds.
pub const MILLISECONDS: &[&str] = &[
    "100000",
    "1000000",
    "500000",
    "0",
    "-1",
    "-100",
    "9223372036854775807",
    "9223372036854775000",
    "-9223372036854775808",
    "abc",
    "1.5",
];
/// Times in seconds since the epoch.
pub const UNIX_SECONDS: &[&str] = &[
    "1",
    "0",
    "-1",
    "4000000000",
    "4000000001",
    "5000000000",
    "9223372036854775",
    "9223372036854775807",
    "abc",
];
/// Times in milliseconds since the epoch.
pub const UNIX_MILLISECONDS: &[&str] = &[
    "1",
    "0",
    "-1",
    "4000000000000",
    "4000000000001",
    "9223372036854775807",
    "-9223372036854775808",
    "abc",
];
/// Patterns.
pub const PATTERNS: &[&str] = &[
    "*", "?1", "s*", "[a-l]*", "[^s]*", "\\*", "", "h[12]", "*a*", "[", "a[b-", "none*", "[z-a]1",
    "s\\1",
];
/// Patterns of SORT: for the values of other keys, for fields of hashes, and for nothing.
pub const SORT_PATTERNS: &[&str] = &[
    "s*", "s*", "s*", "h*->a", "h*->a", "h*->", "h*->none", "#", "nosort", "nosort", "*", "*->a",
    "l*", "none*", "", "->", "s*x*",
];
/// Bounds by score.
pub const SCORE_BOUNDS: &[&str] = &[
    "-inf", "+inf", "0", "1", "2", "(1", "(2", "3.5", "(inf", "(-inf", "inf", "abc", "(", "",
    "(nan", "1e3",
];
/// Bounds by member.
pub const LEX_BOUNDS: &[&str] = &[
    "-", "+", "[a", "(a", "[b", "(c", "[", "(", "a", "", "[aa", "(f",
];
/// Ids of streams.
pub const STREAM_IDS: &[&str] = &[
    "1-1",
    "2-*",
    "3-0",
    "5",
    "5-*",
    "7-3",
    "8-*",
    "9-9",
    "10-*",
    "0-1",
    "0-0",
    "11-*",
    "12-*",
    "18446744073709551615-18446744073709551615",
    "18446744073709551616-0",
    "a-1",
    "1-a",
    "-",
    "1-",
    "",
    "13-18446744073709551615",
    "13-*",
    "*-1",
];
/// Start ids of XREADGROUP.
pub const READ_IDS: &[&str] = &[
    ">", ">", ">", ">", "0", "0", "3-0", "$", "+", "-", "a", "1-",
];
/// Groups of consumers.
pub const GROUPS: &[&str] = &["g1", "g1", "g2", "none1"];
/// Consumers.
pub const CONSUMERS: &[&str] = &["c1", "c2", "c3"];
/// Bounds by id.
pub const ID_BOUNDS: &[&str] = &[
    "-",
    "+",
    "1",
    "1-1",
    "3-0",
    "(2-0",
    "(3-0",
    "5",
    "(5",
    "7-3",
    "(0-0",
    "(18446744073709551615-18446744073709551615",
    "0",
    "0-0",
    "a",
    "(-",
    "(+",
    "9999999999999999999999",
    "8-0",
    "12",
];
/// Parameters that CONFIG SET may change on both sides without harm, with valid and invalid values.
pub const PARAMETERS: &[(&str, &[&str])] = &[
    ("hash-max-listpack-entries", &["128", "4", "abc", "-1", ""]),
    ("hash-max-listpack-value", &["64", "8", "x"]),
    ("set-max-intset-entries", &["512", "3"]),
    ("set-max-listpack-entries", &["128", "4"]),
    ("zset-max-listpack-entries", &["128", "4"]),
    // No other size: Redis splits an existing list at the size it was made with, this server at the current one.
    ("list-max-listpack-size", &["abc", ""]),
    (
        "maxmemory-policy",
        &["noeviction", "allkeys-lru", "nonsense"],
    ),
    ("maxmemory", &["0", "1gb", "100mb", "-1", "1zb"]),
    ("notify-keyspace-events", &["", "KEA", "Kx", "!"]),
    ("slowlog-log-slower-than", &["10000", "-1"]),
    ("timeout", &["0", "abc", "-1"]),
    ("nonesuch", &["1"]),
    ("databases", &["4"]),
    ("proto-max-bulk-len", &["512mb", "1mb", "1"]),
    ("lua-time-limit", &["5000"]),
    ("appendonly", &["no"]),
    ("save", &[""]),
];
/// Scripts, each with its number of keys.
pub const SCRIPTS: &[(&str, usize)] = &[
    ("return 1", 0),
    ("return {1,2,{3,'four'}}", 0),
    ("return {KEYS[1],ARGV[1]}", 1),
    ("return redis.call('get',KEYS[1])", 1),
    ("return redis.call('set',KEYS[1],ARGV[1])", 1),
    ("return redis.pcall('incr',KEYS[1])", 1),
    ("redis.call('incr',KEYS[1]) error('boom')", 1),
    ("return redis.call('nonesuch')", 0),
    ("return redis.pcall('nonesuch')", 0),
    ("return redis.call('get')", 0),
    ("return redis.error_reply('MY error')", 0),
    ("return redis.error_reply('one')", 0),
    ("return redis.status_reply('FINE')", 0),
    ("return {ok='fine'}", 0),
    ("return {err='ERR bad'}", 0),
    ("return nil", 0),
    ("return false", 0),
    ("return true", 0),
    ("return 3.99", 0),
    ("return -3.99", 0),
    ("return {1,nil,3}", 0),
    ("return {double=3.5}", 0),
    ("redis.setresp(3) return {double=3.5}", 0),
    ("redis.setresp(3) return true", 0),
    (
        "redis.setresp(3) redis.call('del',KEYS[1]) redis.call('hset',KEYS[1],'f','v') return redis.call('hgetall',KEYS[1])",
        1,
    ),
    ("return {map={a=1}}", 0),
    ("redis.setresp(3) return {map={a=1}}", 0),
    (
        "redis.setresp(3) return {big_number='12345678901234567890'}",
        0,
    ),
    (
        "redis.setresp(3) return {verbatim_string={format='txt',string='hi'}}",
        0,
    ),
    ("redis.setresp(4)", 0),
    ("x = 1", 0),
    ("return x", 0),
    ("return", 0),
    ("this is no Lua", 0),
    ("error('plain')", 0),
    ("error({err='ERR table'})", 0),
    ("return redis.sha1hex('')", 0),
    ("return tostring(1e15)", 0),
    ("return tonumber('0x10')", 0),
    ("return string.format('%.17g %d %s',0.1,7,'x')", 0),
    ("return cjson.encode({1,2,{a='b'}})", 0),
    ("return cjson.decode('[1,2,{\"a\":3}]')[3].a", 0),
    ("return cmsgpack.unpack(cmsgpack.pack({1,'a'}))", 0),
    ("return bit.band(12,10)", 0),
    ("return struct.unpack('>I2',struct.pack('>I2',513))", 0),
    ("return type(os.clock())", 0),
    ("return type(os.time)", 0),
    ("return type(io)", 0),
    ("return type(require)", 0),
    ("return #KEYS + #ARGV", 0),
    ("return redis.call('lpush',KEYS[1],unpack(ARGV))", 1),
    ("return redis.call('zrange',KEYS[1],0,-1,'withscores')", 1),
    ("return redis.call('multi')", 0),
    ("return redis.call('subscribe','x')", 0),
    ("return redis.call('select','1')", 0),
    ("return redis.call()", 0),
    ("return redis.call({})", 0),
    ("return redis.call('echo',12.5)", 0),
    ("return redis.call('echo',true)", 0),
    (
        "local r = redis.pcall('lpush',KEYS[1],'x') if type(r)=='table' and r.err then return r.err end return r",
        1,
    ),
    ("return redis.log(redis.LOG_DEBUG,'x')", 0),
    ("return redis.REDIS_VERSION_NUM > 0", 0),
    ("return redis.acl_check_cmd('get','x')", 0),
    ("return redis.replicate_commands()", 0),
    ("return math.random() < 1", 0),
    ("return string.rep('x',100)", 0),
    ("return pcall(redis.call,'nonesuch')", 0),
    ("#!lua name=x\nreturn 1", 0),
    (
        "#!lua flags=no-writes\nreturn redis.call('set','s1','1')",
        0,
    ),
    ("#!lua flags=nonesuch\nreturn 1", 0),
    ("#!lua\nreturn redis.call('get','s1')", 0),
];

/// Time-outs of blocking commands: short ones, and invalid ones. Seconds.
pub const TIMEOUTS: &[&str] = &[
    "0.001", "0.002", "1e-3", "0.0005", "0.001", ".001", "x", "-1", "nan", "inf", "", "1e400",
    "-0.5",
];
/// Time-outs of blocking commands, in whole milliseconds.
pub const BLOCK_MILLISECONDS: &[&str] = &["1", "2", "1", "-1", "abc", "1.5", "9223372036854775807"];
/// Start ids of XREAD.
pub const AFTER_IDS: &[&str] = &[
    "0",
    "0-0",
    "$",
    "+",
    "1-1",
    "3",
    "5-1",
    "8",
    "9-9",
    ">",
    "x",
    "18446744073709551615-18446744073709551615",
];
