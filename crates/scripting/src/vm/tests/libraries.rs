//! `cjson`, `cmsgpack` and `struct` beside the recordings of `redis_libraries.txt`: order, endings, and faults of these
//! libraries elsewhere.

use super::Bench;

fn integer(n: i64) -> String {
    format!(":{n}\r\n")
}

#[test]
fn values_survive_both_formats() {
    let mut bench = Bench::new();
    let same = "local function same(a, b) \
          if type(a) ~= 'table' or type(b) ~= 'table' then return a == b end \
          for k, v in pairs(a) do if not same(v, b[k]) then return false end end \
          for k, v in pairs(b) do if not same(v, a[k]) then return false end end \
          return true end ";
    let same = same.replace("local function same", "local same same = function");
    for value in [
        "{}",
        "{1, 2.5, -3, 'x', true, false}",
        "{a = {b = {c = {1, {2, {}}}}}, ['\\0'] = '\\0\\255', ['/'] = '\\n'}",
        "{{{{{{{}}}}}}}",
        "{k1 = 1, k2 = {x = 'y', z = {1, 2, 3}}, k3 = 'v'}",
    ] {
        for codec in [
            "cjson.decode(cjson.encode(v))",
            "cmsgpack.unpack(cmsgpack.pack(v))",
        ] {
            let source = format!("{same} local v = {value} return same(v, {codec})");
            assert_eq!(bench.eval(&source), integer(1), "{source}");
        }
    }
    let sparse = "local t = cjson.decode(cjson.encode({a = 1, [5] = 2})) return {t.a, t['5']}";
    assert_eq!(bench.eval(sparse), "*2\r\n:1\r\n:2\r\n");
    let sparse =
        "local t = cmsgpack.unpack(cmsgpack.pack({[1] = 1, [2^40] = 2})) return {t[1], t[2^40]}";
    assert_eq!(bench.eval(sparse), "*2\r\n:1\r\n:2\r\n");
}

#[test]
fn settings_of_json_end_with_the_script() {
    let mut bench = Bench::new();
    for change in [
        "cjson.encode_max_depth(3)",
        "cjson.encode_max_depth(3) error('x')",
        "cjson.encode_invalid_numbers('null') cjson.encode_number_precision(1)",
        "cjson.encode_sparse_array(true, 1, 1) cjson.decode_max_depth(1)",
    ] {
        bench.eval(change);
        let reply = bench.eval(
            "return {cjson.encode_max_depth(), cjson.decode_max_depth(), cjson.encode_number_precision(), \
             tostring(cjson.encode_invalid_numbers()), (select(3, cjson.encode_sparse_array()))}",
        );
        assert_eq!(
            reply, "*5\r\n:1000\r\n:1000\r\n:14\r\n$5\r\nfalse\r\n:10\r\n",
            "{change}"
        );
    }
}

/// CVE-2022-24834: neither lengths nor counts of cjson and cmsgpack overflow.
#[test]
fn cve_2022_24834_lengths_of_json_and_msgpack_do_not_overflow() {
    let mut bench = Bench::new();
    for source in [
        "cjson.encode_sparse_array(true, 2^31 - 1, 2^31 - 1) return cjson.encode({[2^31 - 1] = 1})",
        "cjson.encode_sparse_array(false, 2^31 - 1, 0) return cjson.encode({[2^31 - 1] = 1, 2, 3, 4})",
        "cjson.encode_sparse_array(false, 0, 0) return cjson.encode({[2^31 - 1] = 1})",
        "return cjson.encode(('\\1'):rep(3e7))",
        "return cmsgpack.pack(('x'):rep(3e7), ('x'):rep(3e7), ('x'):rep(3e7))",
    ] {
        let reply = bench.eval(source);
        assert!(
            reply.starts_with("-ERR not enough memory script: ")
                || reply.starts_with(
                    "-ERR user_script:1: Cannot serialise table: excessively sparse array"
                ),
            "{source}: {}",
            &reply[..reply.len().min(200)]
        );
    }
    for key in ["2^31", "2^32 + 1", "2^53", "2^63", "-2^31", "0", "1/0"] {
        let source = format!(
            "cjson.encode_invalid_numbers(true) return #cjson.encode({{[{key}] = 1}}) < 40"
        );
        assert_eq!(bench.eval(&source), integer(1), "{key}");
    }
}

/// CVE-2018-11218: cmsgpack bounds the values that it puts on the stack, whatever the input claims.
#[test]
fn cve_2018_11218_msgpack_does_not_overflow_the_stack() {
    let mut bench = Bench::new();
    for (source, error) in [
        ("cmsgpack.unpack(('\\145'):rep(1e6))", "stack overflow"),
        ("cmsgpack.unpack(('\\129'):rep(1e6))", "stack overflow"),
        ("cmsgpack.unpack(('\\129\\1'):rep(1e6))", "stack overflow"),
        ("cmsgpack.unpack(('\\1'):rep(1e6))", "stack overflow"),
        (
            "cmsgpack.unpack_limit(('\\1'):rep(1e6), 1e6)",
            "stack overflow",
        ),
        (
            "cmsgpack.unpack('\\221\\255\\255\\255\\255')",
            "Missing bytes",
        ),
        (
            "cmsgpack.unpack('\\223\\255\\255\\255\\255')",
            "Missing bytes",
        ),
        (
            "cmsgpack.unpack('\\219\\255\\255\\255\\255')",
            "Missing bytes",
        ),
    ] {
        let reply = bench.eval(&format!("return {source}"));
        assert!(
            reply.starts_with("-ERR user_script:1: ") && reply.contains(error),
            "{source}: {reply}"
        );
    }
    let deep = "local t = {} for i = 1, 1e5 do t = {t, [t] = t} end return #cmsgpack.pack(t) < 1e6";
    let mut limited = Bench::new();
    limited.server.kill_after = Some(std::time::Duration::from_millis(300));
    let reply = limited.eval(deep);
    assert!(
        reply.contains("SCRIPT KILL") || reply.contains("not enough memory"),
        "{reply}"
    );
}

/// CVE-2018-11219 and CVE-2020-14147: sizes in formats of struct do not overflow.
#[test]
fn cve_2018_11219_sizes_of_struct_do_not_overflow() {
    let mut bench = Bench::new();
    for format in [
        "c2147483648",
        "c4294967295",
        "c4294967296",
        "c18446744073709551615",
        "c99999999999999999999999999",
        "i2147483647",
        "I4294967297",
        "!4294967296b",
        "!2147483648b",
        "!0b",
    ] {
        for call in [
            format!("struct.unpack('{format}', 'abc')"),
            format!("struct.pack('{format}', 'abc')"),
            format!("struct.size('{format}')"),
        ] {
            let reply = bench.eval(&format!("return {call}"));
            assert!(reply.starts_with("-ERR user_script:1: "), "{call}: {reply}");
        }
    }
    for position in ["2^31", "2^32 - 1", "2^63", "-2^63", "-1", "1/0", "2^53"] {
        for format in ["b", "c2147483647", "s", "!8d", "c2147483647c2147483647"] {
            let call = format!("struct.unpack('{format}', 'abc', {position})");
            let reply = bench.eval(&format!("return {call}"));
            assert!(reply.starts_with("-ERR user_script:1: "), "{call}: {reply}");
        }
    }
    for n in ["-1", "2^31", "2^53", "2^63", "1/0", "0/0", "-2^63"] {
        let call = format!("struct.unpack('<dc0', struct.pack('<d', {n}) .. 'abc')");
        let reply = bench.eval(&format!("return {call}"));
        assert!(
            reply.contains("data string too short") || n == "1/0" || n == "0/0",
            "{call}: {reply}"
        );
    }
    assert_eq!(
        bench
            .eval("return {struct.unpack('!2147483648', 'abc')}")
            .get(..5),
        Some("-ERR ")
    );
}

/// A NaN whose bits the interpreter would take for something else than a number.
#[test]
fn numbers_from_outside_are_numbers() {
    let mut bench = Bench::new();
    for high in ["255\\255", "255\\248", "255\\241", "127\\255", "127\\241"] {
        for source in [
            format!("cmsgpack.unpack('\\203\\{high}\\255\\255\\1\\2\\3\\4')"),
            format!("(struct.unpack('>d', '\\{high}\\255\\255\\1\\2\\3\\4'))"),
            format!("cmsgpack.unpack('\\202\\{high}\\1\\2')"),
            format!("(struct.unpack('>f', '\\{high}\\1\\2'))"),
        ] {
            let reply = bench.eval(&format!(
                "local n = {source} return type(n) .. tostring(n == n)"
            ));
            assert_eq!(reply, "$11\r\nnumberfalse\r\n", "{source}");
        }
    }
}
