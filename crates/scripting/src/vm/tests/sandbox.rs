//! Tests of the things that scripts can and cannot reach: one another, the interpreter's internals, the wire.

use std::time::Duration;

use redline_resp::{Proto, ReplyDecoder};

use super::Bench;
use crate::{Host, Limits, Origin};

/// Attempts of a script to leave something behind for the next, which may be another user's.
const TRACES: &[&str] = &[
    "x = 1",
    "_G.x = 1",
    "rawset(_G, 'x', 1)",
    "_G._G.x = 1",
    "redis.x = 1",
    "server.x = 1",
    "server = 1",
    "_G.server = redis",
    "rawset(server, 'x', 1)",
    "setmetatable(server, {})",
    "getmetatable(server).__index = 1",
    "for k in pairs(server) do server[k] = nil end",
    "local f, t = pairs(server) f(t).x = 1",
    "table.sort(server) error('')",
    "function server.call() end",
    "string.x = 1",
    "rawset(string, 'x', 1)",
    "table.insert(string, 1)",
    "table.insert(_G, 1)",
    "table.insert(_G, 1, 'x')",
    "string.upper = 1",
    "redis.call = nil",
    "for k in pairs(redis) do redis[k] = nil end",
    "for k in next, string do string[k] = nil end",
    "local _, t = pairs(string) t.x = 1",
    "local f, t = pairs(redis) f(t).x = 1",
    "table.sort(redis) error('')",
    "table.remove(redis) error('')",
    "table.foreach(redis, function(k) redis[k] = nil end)",
    "setmetatable(_G, {})",
    "setmetatable(_G, nil)",
    "setmetatable(string, {__index = function() return 1 end})",
    "getmetatable(_G).__index = function() return 1 end",
    "getmetatable(_G).__newindex = nil",
    "rawset(getmetatable(_G), '__newindex', nil)",
    "getmetatable('').__index = function() return 1 end",
    "getmetatable('').__add = function() return 1 end",
    "getmetatable('').__metatable = nil",
    "rawset(getmetatable(''), '__index', {})",
    "setmetatable(getmetatable(''), {})",
    "setmetatable('', {})",
    "getmetatable(getmetatable('').__index).__index = 1",
    "getmetatable('').__index.upper = 1",
    "('').x = 1",
    "getmetatable(1).__index = 1",
    "getmetatable(nil).__index = 1",
    "getmetatable(true).__index = 1",
    "getmetatable(print_).__index = 1",
    "getmetatable(function() end).__index = 1",
    "getmetatable(coroutine.create(function() end)).__index = 1",
    "local ok, m = pcall(getmetatable, 1LL) m.__index = 1",
    "bit.x = 1",
    "math.random = function() return 4 end",
    "math.pi = 3",
    "os.clock = 1",
    "coroutine.x = 1",
    "KEYS = {1}",
    "ARGV = {1}",
    "function redis.call() end",
    "local function f() x = 1 end f()",
    "loadstring('x = 1')()",
    "load(function() return nil end, 'c')() loadstring('_G.x = 1')()",
    "coroutine.wrap(function() x = 1 end)()",
    "pcall(function() x = 1 end) error('')",
    "collectgarbage('stop') redis.setresp(3) KEYS[1] = 'left' ARGV.x = 1 setmetatable(KEYS, {__index = function() return 1 end}) error('')",
    "string.gsub('a', 'a', function() string.upper = 1 end)",
    "return setfenv(1, {})",
    "return getfenv(0)",
    "return debug.getregistry()",
    "return require('ffi')",
    "return package.loaded",
    "return io.open('/etc/passwd')",
    "return os.execute('true')",
    "return os.getenv('HOME')",
    "return dofile('/etc/passwd')",
    "return loadfile('/etc/passwd')",
    "return jit.on()",
    "return newproxy(true)",
];

#[test]
fn a_script_leaves_nothing_for_the_next() {
    let mut bench = Bench::new();
    let look = "local r = {} for _, t in ipairs({_G, redis, server, string, table, math, os, coroutine, bit, getmetatable('')}) do \
                for k, v in pairs(t) do r[#r + 1] = tostring(k) .. tostring(v) end r[#r + 1] = #t end \
                table.sort(r, function(a, b) return tostring(a) < tostring(b) end) \
                return {table.concat(r, ','), tostring(rawget(_G, 'x')), tostring(KEYS[3]), tostring(ARGV.x), ('x'):upper(), \
                tostring(redis.call('get', 'k')), tostring(getmetatable(KEYS)), tostring(string.upper), \
                tostring(getmetatable(_G).__index), tostring(getmetatable('').__index)}";
    // The addresses of KEYS and ARGV are the only thing that may differ.
    let seen = |bench: &mut Bench| {
        bench
            .eval(look)
            .replace(|c: char| c.is_ascii_hexdigit(), "")
    };
    let before = seen(&mut bench);
    assert!(before.len() > 1_000, "{before}");
    for source in TRACES {
        let reply = bench.eval(source);
        assert!(reply.starts_with("-ERR"), "{source}: {reply}");
        assert_eq!(seen(&mut bench), before, "after {source}");
    }
}

#[test]
fn scripts_of_valkey_found_no_table_of_theirs() {
    let mut bench = Bench::new();
    let names = "local r = {} for k, v in pairs(T) do r[#r + 1] = k .. ':' .. type(v) end \
                 table.sort(r) return table.concat(r, ' ')";
    let both = "LOG_DEBUG:number LOG_NOTICE:number LOG_VERBOSE:number LOG_WARNING:number REDIS_VERSION:string \
                REDIS_VERSION_NUM:number REPL_ALL:number REPL_AOF:number REPL_NONE:number REPL_REPLICA:number \
                REPL_SLAVE:number";
    let functions = "acl_check_cmd:function breakpoint:function call:function debug:function error_reply:function \
                     log:function pcall:function replicate_commands:function set_repl:function setresp:function \
                     sha1hex:function status_reply:function";
    let valkeys = "SERVER_NAME:string VALKEY_VERSION:string VALKEY_VERSION_NUM:number";
    let mut shown = |table: &str| {
        let reply = bench.eval(&names.replace('T', table));
        reply.lines().nth(1).unwrap_or(&reply).to_owned()
    };
    assert_eq!(shown("redis"), format!("{both} {functions}"));
    assert_eq!(shown("server"), format!("{both} {valkeys} {functions}"));
    for (source, reply) in [
        ("return server.SERVER_NAME", "$7\r\nredline\r\n"),
        ("return server.VALKEY_VERSION", "$5\r\n9.1.2\r\n"),
        ("return server.VALKEY_VERSION_NUM", ":590082\r\n"),
        ("return server.REDIS_VERSION", "$5\r\n8.2.3\r\n"),
        ("return server.LOG_WARNING", ":3\r\n"),
        ("return server.call('set', 'k', 'v')", "+OK\r\n"),
        ("return server.pcall('get', 'k')", "$1\r\nv\r\n"),
        ("return server.status_reply('FINE')", "+FINE\r\n"),
        ("return server.error_reply('MY own')", "-MY own\r\n"),
        ("return server.acl_check_cmd('get', 'k')", ":1\r\n"),
        (
            "return server.sha1hex('')",
            "$40\r\nda39a3ee5e6b4b0d3255bfef95601890afd80709\r\n",
        ),
        (
            "return {tostring(getmetatable(server))}",
            "*1\r\n$3\r\nnil\r\n",
        ),
        (
            "server.setresp(3) return server.call('zscore', 'z', 'm')",
            "$3\r\n1.5\r\n",
        ),
        ("return server.replicate_commands()", ":1\r\n"),
        ("return server.nosuch", "$-1\r\n"),
    ] {
        assert_eq!(bench.eval(source), reply, "{source}");
    }
    bench.eval("server.log(server.LOG_NOTICE, 'a', 1)");
    assert_eq!(bench.server.logged, [(2, "a 1".to_owned())]);
}

#[test]
fn errors_of_valkeys_table_spoke_of_redis() {
    let mut bench = Bench::new();
    for (call, valkeys, rediss) in [
        (
            "log()",
            "server.log() requires two arguments or more.",
            "redis.log() requires two arguments or more.",
        ),
        (
            "setresp()",
            "server.setresp() requires one argument.",
            "redis.setresp() requires one argument.",
        ),
        (
            "set_repl()",
            "server.set_repl() requires one argument.",
            "redis.set_repl() requires one argument.",
        ),
        (
            "acl_check_cmd('x')",
            "Invalid command passed to server.acl_check_cmd()",
            "Invalid command passed to redis.acl_check_cmd()",
        ),
        (
            "call()",
            "Please specify at least one argument for this call",
            "Please specify at least one argument for this redis lib call",
        ),
        (
            "pcall()",
            "Please specify at least one argument for this call",
            "Please specify at least one argument for this redis lib call",
        ),
        (
            "call('get', {})",
            "Command arguments must be strings or integers",
            "Lua redis lib command arguments must be strings or integers",
        ),
        (
            "acl_check_cmd({})",
            "Command arguments must be strings or integers",
            "Lua redis lib command arguments must be strings or integers",
        ),
    ] {
        for (table, text) in [("server", valkeys), ("redis", rediss)] {
            let reply = bench.eval(&format!("return {table}.{call}"));
            assert!(
                reply.starts_with(&format!("-ERR {text}")),
                "{table}.{call}: {reply}"
            );
        }
    }
}

/// CVE-2025-67733: a script's return value is one reply, whatever line ends and NULs it has.
#[test]
fn cve_2025_67733_replies_cannot_be_injected() {
    let mut bench = Bench::new();
    let evil = r"'a\r\n+INJECTED\r\n\0$5\r\nxx\n\r\0\r\n'";
    let long = r"('x\r\n+OK\r\n'):rep(1e5)";
    for text in [evil, long] {
        for source in [
            "return redis.error_reply(T)",
            "return redis.status_reply(T)",
            "return {err = T}",
            "return {ok = T}",
            "return {{err = T}, {ok = T}, {map = {[T] = {err = T}}}}",
            "return {verbatim_string = {format = T, string = T}}",
            "return {double = tonumber(T)}",
            "return T",
            "error(T)",
            "error({err = T})",
            "error(redis.error_reply(T))",
            "error(setmetatable({}, {__tostring = function() return T end}))",
            "assert(false, T)",
            "_G[T] = 1",
            "return _G[T]",
            "return loadstring(T)()",
            "loadstring('error(1)', T)()",
            "loadstring('error(1)', '@' .. T)()",
            "loadstring('error(1)', '=' .. T)()",
            "redis.call(T)",
            "return redis.pcall(T)",
            "redis.setresp(3) return {T, {err = T}}",
        ] {
            let source = format!("local T = {text} {source}");
            for proto in [Proto::Resp2, Proto::Resp3] {
                let reply = bench.eval_bytes(source.as_bytes(), &[], &[], proto);
                let decoded = ReplyDecoder::new().decode(&reply);
                let decoded = decoded.unwrap_or_else(|error| panic!("{source}: {error:?}"));
                assert!(decoded.value.is_some(), "{source}: half a reply");
                assert_eq!(decoded.consumed, reply.len(), "{source}");
            }
        }
    }
    // What is no number is no valid reply, but it stays in its line.
    let reply = bench.eval3(&format!("return {{big_number = {evil}}}"));
    assert_eq!(reply, "(a  +INJECTED  \r\n");
    // The errors of the compiler as well.
    let reply = bench.eval("return 'a\r\n+INJECTED\r\n");
    assert_eq!(reply.find("\r\n"), Some(reply.len() - 2), "{reply}");
}

/// CVE-2025-49844: the parser must hold on to the name of its chunk while garbage is collected.
#[test]
fn cve_2025_49844_the_parser_survives_collections() {
    let mut bench = Bench::new();
    let source = "local kept = {} \
        for i = 1, 300 do \
          local n = 0 \
          kept[i % 7] = load(function() \
            n = n + 1 \
            collectgarbage() \
            if n < 4 then return 'local v' .. n .. ' = \"' .. string.rep('x', i) .. n .. '\" ' end \
            if n == 4 then return 'return v1' end \
          end, '@chunk' .. i .. string.rep('n', i)) \
          loadstring('return ' .. string.rep('{', i % 150) .. string.rep('}', i % 150), string.rep('n', i * 10) .. i) \
          loadstring('syntax error ' .. i, '=' .. string.rep('m', i) .. i) \
        end \
        collectgarbage() \
        return {kept[1](), kept[6]() == string.rep('x', 300 - 300 % 7 + 6 - 7 * ((300 % 7 < 6) and 1 or 0)) .. '1' and 1 or 0}";
    let reply = bench.eval(source);
    assert!(reply.starts_with("*2\r\n$"), "{reply}");
    assert!(reply.ends_with(":1\r\n"), "{reply}");
}

/// CVE-2024-46981: a collection in the middle of a script frees nothing that it still uses.
#[test]
fn cve_2024_46981_collections_in_the_middle_harm_nothing() {
    let mut bench = Bench::new();
    let source = "local kept = {} \
        for i = 1, 200 do \
          local t = setmetatable({}, {__index = function(t, k) collectgarbage() return k .. i end, \
            __tostring = function() collectgarbage() return string.rep('t', i) end, __mode = 'kv', __gc = function() end}) \
          local co = coroutine.wrap(function(a) collectgarbage() local b = coroutine.yield(a .. i) collectgarbage() return b end) \
          kept[i % 5 + 1] = {t.x, tostring(t), co('a'), co('b'), loadstring('return ...')(i)} \
          string.gsub(string.rep('a', 20), 'a', function() collectgarbage('step') return {} and 'b' end) \
          table.sort({3, 1, 2, i}, function(a, b) collectgarbage('step') return a < b end) \
          cjson.decode(cjson.encode(kept[1] or {})) cmsgpack.unpack(cmsgpack.pack(kept[1] or {})) \
          if i % 50 == 0 then kept = {} collectgarbage() end \
        end \
        for i = 1, 5 do kept[i] = {redis.call('get', 'nothing'), collectgarbage(), {string.rep('x', 100)}} end \
        return kept";
    for _ in 0..3 {
        let reply = bench.eval(source);
        assert!(reply.starts_with("*5\r\n*"), "{reply}");
    }
}

/// CVE-2025-46818: one user's changes to values of the basic types do not reach another user's scripts.
#[test]
fn cve_2025_46818_strings_of_others_have_no_methods_of_mine() {
    let mut bench = Bench::new();
    for mine in [
        "getmetatable('').__index = function() return 'mine' end",
        "getmetatable('').__index.mine = function() return 'mine' end",
        "getmetatable('').__call = function() return 'mine' end",
        "getmetatable('').__concat = function() return 'mine' end",
        "string.mine = function() return 'mine' end",
        "rawset(getmetatable(''), '__unm', function() return 'mine' end)",
        "setmetatable(0, {__index = function() return 'mine' end})",
        "getmetatable(true).__index = function() return 'mine' end",
        "local m = getmetatable('') for k in pairs(m) do m[k] = nil end",
    ] {
        assert!(bench.eval(mine).starts_with("-ERR"), "{mine}");
        for other in [
            "return ('x').mine",
            "return pcall(function() return ('x')() end)",
        ] {
            assert!(!bench.eval(other).contains("mine\r\n"), "{mine}: {other}");
        }
        assert_eq!(
            bench.eval("return 'a' .. ('b'):upper()"),
            "$2\r\naB\r\n",
            "{mine}"
        );
    }
}

/// CVE-2025-46817: the ends of ranges must not overflow.
#[test]
fn cve_2025_46817_ranges_do_not_overflow() {
    let mut bench = Bench::new();
    for range in [
        "0, 2^31 - 1",
        "-2^31, 2^31 - 1",
        "-2^62, 2^62",
        "2^31 - 100000, 2^31 - 1",
        "1, 8000",
        "-2^53, 2^53",
    ] {
        let reply = bench.eval(&format!("return unpack({{1, 2}}, {range})"));
        assert!(
            reply.contains("too many results to unpack"),
            "{range}: {reply}"
        );
    }
    for range in ["1, 2^63", "-2^63, 2^63", "1, 1e300", "-1/0, 1/0"] {
        // An end that is no integer is the smallest one.
        let reply = bench.eval(&format!("return select('#', unpack({{1, 2}}, {range}))"));
        assert!(reply == ":0\r\n" || reply == ":1\r\n", "{range}: {reply}");
    }
    assert_eq!(bench.eval("return #{unpack({}, 1, 7900)}"), ":0\r\n");
    assert_eq!(
        bench.eval("return select('#', unpack({}, 2^31 - 1, 2^31 + 1))"),
        ":3\r\n"
    );
    assert_eq!(bench.eval("return {unpack({1}, 2^63, -2^63)}"), "*0\r\n");
    for call in [
        "string.rep('x', -2^63)",
        "string.sub('abc', -2^63, 2^63)",
        "string.sub('abc', 2^31, -2^31)",
        "string.byte('abc', 2^63)",
        "string.find('abc', 'b', 2^63)",
        "string.find('abc', 'b', -2^63)",
        "string.gsub('abc', 'b', 'x', -2^63)",
        "string.gsub('abc', 'b', 'x', 2^63)",
        "table.concat({1}, ',', 2^63, 2^63)",
        "table.remove({1}, 2^63)",
        "table.insert({1}, 2^40, 1)",
        "select(-1, 1)",
        "string.format('%d %x %c %5d', 2^63, -2^63, 2^40, 1/0)",
        "bit.lshift(1, 2^40)",
        "math.random(-2^31, 2^31 - 1)",
        "math.random(2^40)",
    ] {
        let reply = bench.eval(&format!("{call} return 1"));
        assert!(
            reply == ":1\r\n" || reply.starts_with("-ERR user_script:1: "),
            "{call}: {reply}"
        );
    }
}

/// CVE-2025-46819: long brackets are read within their text.
#[test]
fn cve_2025_46819_long_brackets_end_with_the_text() {
    let mut bench = Bench::new();
    for level in [0, 1, 2, 100, 65_535, 100_000] {
        let equals = "=".repeat(level);
        for text in [
            format!("return [{equals}[a]{equals}]"),
            format!("return [{equals}[a]{equals}"),
            format!("return [{equals}[a"),
            format!("return [{equals}["),
            format!("return [{equals}"),
            format!("--[{equals}[a]{equals}] return 1"),
            format!("--[{equals}[a"),
            format!("--[{equals}"),
            format!("return [{equals}[\r\n]{equals}]"),
            format!("return [{equals}[\0]{equals}]"),
        ] {
            let reply = bench.eval(&text);
            assert!(!reply.is_empty());
        }
    }
    assert_eq!(bench.eval("return [==[a]=]b]==]"), "$5\r\na]=]b\r\n");
}

/// CVE-2024-31449: the number of digits is bounded on both sides.
#[test]
fn cve_2024_31449_tohex_has_at_most_eight_digits() {
    let mut bench = Bench::new();
    for digits in [
        "-2147483648",
        "2147483647",
        "-2^40",
        "2^63",
        "-1/0",
        "1/0",
        "9",
        "-9",
    ] {
        let reply = bench.eval(&format!("return #bit.tohex(65535, {digits})"));
        assert_eq!(reply, ":8\r\n", "{digits}");
    }
}

/// Compiled code is not checked when it is run, so there is no way to bring any in.
#[test]
fn compiled_code_is_refused() {
    let mut bench = Bench::new();
    for source in [
        "return type(loadstring(string.dump(function() return 1 end)))",
        "return type(loadstring(string.dump(function() return 1 end), '=x'))",
        "local d = string.dump(function() return 1 end) return type(load(function() local r = d d = nil return r end))",
        "local d = string.dump(function() return 1 end) local i = 0 return type(load(function() i = i + 1 return i <= #d and d:sub(i, i) or nil end))",
        "return type(loadstring('\\27LJ\\2'))",
        "return type(loadstring('\\27'))",
    ] {
        assert_eq!(bench.eval(source), "$3\r\nnil\r\n", "{source}");
    }
    assert!(
        bench
            .eval("\x1bLJ\x02")
            .starts_with("-ERR Error compiling script")
    );
    assert!(
        bench
            .eval("#!lua\n\x1bLJ\x02")
            .starts_with("-ERR Error compiling script")
    );
}

#[test]
fn a_flush_drops_what_was_compiled_and_spares_what_runs() {
    let mut bench = Bench::new();
    let old = bench
        .host
        .load(&bench.scripts, b"return 1", Origin::Load)
        .expect("a script");
    bench.eval("return 1");
    bench.scripts.flush();
    assert!(!bench.scripts.exists(old.sha()));
    let filler = "--".repeat(10_000);
    for i in 0..3_000 {
        assert_eq!(
            bench.eval(&format!("return {i} {filler}")),
            format!(":{i}\r\n")
        );
    }
    assert_eq!(bench.eval("return 1"), ":1\r\n");
    assert!(
        bench.host.memory_bytes() < 4 << 20,
        "{}",
        bench.host.memory_bytes()
    );
    bench.scripts.flush();
    assert_eq!(bench.eval("return 2"), ":2\r\n");
}

#[test]
fn what_a_script_chose_ends_with_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.eval3("redis.setresp(3) return true"), "#t\r\n");
    assert_eq!(bench.eval3("return true"), ":1\r\n");
    bench.eval3("redis.setresp(3) error('x')");
    assert_eq!(bench.eval3("return true"), ":1\r\n");
}

#[test]
fn the_log_gets_its_pieces_in_one_line() {
    let mut bench = Bench::new();
    bench.eval("redis.log(redis.LOG_WARNING, 'a', 1, {}, 'b') redis.log('0', 'x')");
    let logged = [(3, "a 1  b".to_owned()), (0, "x".to_owned())];
    assert_eq!(bench.server.logged, logged);
}

#[test]
fn each_interpreter_has_its_own_random_numbers() {
    let draw = |seed| {
        let mut bench = Bench::new();
        bench.host = Host::new(Limits::default(), seed).expect("room for the sandbox");
        bench.eval("return {math.random(1e9), math.random(1e9)}")
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn interpreters_can_move_between_threads_and_be_many() {
    let mut hosts: Vec<Host> = (0..50)
        .map(|seed| Host::new(Limits::default(), seed).expect("room for the sandbox"))
        .collect();
    let thread = std::thread::spawn(move || {
        for host in hosts.drain(..) {
            let mut bench = Bench::new();
            bench.host = host;
            assert_eq!(bench.eval("return redis.call('get', 'k')"), "$-1\r\n");
        }
    });
    thread.join().expect("no failure");
}

/// A panic of the server while it runs a command must end the process, not reach the script's `pcall`.
#[test]
fn a_panic_of_the_server_is_not_caught_by_a_script() {
    const CHILD: &str = "REDLINE_TEST_PANICKING_SERVER";
    if std::env::var_os(CHILD).is_some() {
        let mut bench = Bench::new();
        bench.server.kill_after = Some(Duration::MAX);
        bench.eval("while true do pcall(redis.call, 'panic') end");
        return;
    }
    let name = "vm::tests::sandbox::a_panic_of_the_server_is_not_caught_by_a_script";
    let status = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .expect("a child");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(status.signal(), Some(libc::SIGABRT));
}
