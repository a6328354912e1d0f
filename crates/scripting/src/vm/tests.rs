//! Scripts against the interpreter, with a server of a few commands.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redline_resp::{Args, ArgsBuf, Proto, Reply, ReplyBuffer};

use crate::{Host, Limits, Origin, ScriptEnv, Scripts, Tick};

#[derive(Default)]
struct FakeServer {
    data: HashMap<Vec<u8>, Vec<u8>>,
    logged: Vec<(i64, String)>,
    kill_after: Option<Duration>,
    started: Option<Instant>,
    /// In CPU time.
    killed_at: Option<Duration>,
    last_tick: Option<Duration>,
    gap_max: Duration,
    ticks: u64,
}

impl ScriptEnv for FakeServer {
    fn call(&mut self, args: Args<'_>, proto: Proto, reply: &mut ReplyBuffer) {
        let mut reply = Reply::new(reply, proto);
        match (&args[0].to_ascii_lowercase()[..], args.len()) {
            (b"get", 2) => match self.data.get(&args[1]) {
                Some(value) => reply.bulk(value),
                None => reply.null(),
            },
            (b"set", 3) => {
                self.data.insert(args[1].to_vec(), args[2].to_vec());
                reply.ok();
            }
            (b"hgetall", 2) => {
                reply.map(1);
                reply.bulk(b"a");
                reply.bulk(b"1");
            }
            (b"smembers", 2) => {
                reply.set(1);
                reply.bulk(b"x");
            }
            (b"zscore", 3) => reply.double(1.5),
            (b"get" | b"set", _) => {
                reply.error("ERR Wrong number of args calling Redis command from script");
            }
            (b"raw", 2) => reply.raw(&args[1]),
            (b"argv", _) => {
                reply.array(args.len() - 1);
                args.from(1).iter().for_each(|arg| reply.bulk(arg));
            }
            _ => reply.error("ERR Unknown Redis command called from script"),
        }
    }

    fn tick(&mut self) -> Tick {
        self.ticks += 1;
        let now = cpu_time();
        self.gap_max = self
            .gap_max
            .max(now - self.last_tick.replace(now).unwrap_or(now));
        let started = *self.started.get_or_insert_with(Instant::now);
        if self
            .kill_after
            .is_some_and(|after| started.elapsed() >= after)
        {
            self.killed_at.get_or_insert(now);
            return Tick::Kill("Script killed by user with SCRIPT KILL.".into());
        }
        Tick::Continue
    }

    fn log(&mut self, level: i64, text: &[u8]) {
        self.logged
            .push((level, String::from_utf8_lossy(text).into_owned()));
    }

    fn acl_check(&mut self, args: Args<'_>) -> Option<bool> {
        match &args[0] {
            b"get" => Some(true),
            b"set" => Some(false),
            _ => None,
        }
    }

    fn set_repl(&mut self, _: u8) {}
}

struct Bench {
    host: Host,
    scripts: Scripts,
    server: FakeServer,
}

impl Bench {
    fn new() -> Bench {
        Bench::with_memory(64 << 20)
    }

    fn with_memory(memory_bytes_max: usize) -> Bench {
        Bench {
            host: Host::new(
                Limits {
                    memory_bytes_max,
                    ..Limits::default()
                },
                0,
            )
            .expect("room for the sandbox"),
            scripts: Scripts::new(),
            server: FakeServer::default(),
        }
    }

    fn eval(&mut self, source: &str) -> String {
        self.eval_with(source, &[b"k1", b"k2"], &[b"a1"], Proto::Resp2)
    }

    fn eval3(&mut self, source: &str) -> String {
        self.eval_with(source, &[b"k1", b"k2"], &[b"a1"], Proto::Resp3)
    }

    fn eval_with(&mut self, source: &str, keys: &[&[u8]], argv: &[&[u8]], proto: Proto) -> String {
        let reply = self.eval_bytes(source.as_bytes(), keys, argv, proto);
        String::from_utf8_lossy(&reply).into_owned()
    }

    fn eval_bytes(
        &mut self,
        source: &[u8],
        keys: &[&[u8]],
        argv: &[&[u8]],
        proto: Proto,
    ) -> Vec<u8> {
        let keys: ArgsBuf = keys.iter().copied().collect();
        let argv: ArgsBuf = argv.iter().copied().collect();
        let mut out = ReplyBuffer::new();
        let mut reply = Reply::new(&mut out, proto);
        let loaded = self.host.load(&self.scripts, source, Origin::Eval);
        match loaded {
            Err(error) => reply.error(&error.to_string()),
            Ok(script) => self.host.eval(
                &script,
                keys.as_args(),
                argv.as_args(),
                &mut self.server,
                &mut reply,
            ),
        }
        assert!(!out.has_blobs());
        out.bytes().to_vec()
    }
}

#[test]
fn a_script_calls_commands() {
    let mut bench = Bench::new();
    assert_eq!(bench.eval("return 1"), ":1\r\n");
    assert_eq!(
        bench.eval("return redis.call('set', KEYS[1], ARGV[1])"),
        "+OK\r\n"
    );
    assert_eq!(
        bench.eval("return redis.call('get', KEYS[1])"),
        "$2\r\na1\r\n"
    );
    assert_eq!(bench.eval("return redis.call('get', KEYS[2])"), "$-1\r\n");
    assert_eq!(bench.eval3("return redis.call('get', KEYS[2])"), "_\r\n");
}

/// Scripts that end only if they are killed.
const ENDLESS: &[&str] = &[
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do pcall(pcall, pcall, error) end",
    "local function f() pcall(f) f() end while true do pcall(f) end",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
    "xpcall(error, function() while true do end end)",
    "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    "while true do coroutine.wrap(function() while true do pcall(coroutine.yield) end end)() end",
    "local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end",
    "string.gsub(string.rep('a', 1000), 'a', function() while true do end end)",
    "while true do string.gsub('aaa', 'a', function() end) end",
    "table.sort({3, 2, 1}, function() while true do end end)",
    "while true do table.sort({3, 2, 1}) end",
    "return setmetatable({}, {__index = function() while true do end end}).x",
    "local m = {__lt = function() while true do end end} return setmetatable({}, m) < setmetatable({}, m)",
    "tostring(setmetatable({}, {__tostring = function() while true do end end}))",
    "load(function() while true do end end)",
    "load(function() return 'x=1 ' end)",
    "while true do loadstring('while true do end') end",
    "while true do loadstring('local a = 1')() end",
    "while true do string.rep('x', 1e6) end",
    "while true do string.rep('x', 3e7) end",
    "while true do pcall(string.rep, 'x', 1e9) end",
    "local s = '' while true do s = s .. 'x' if #s > 1e6 then s = '' end end",
    "while true do redis.call('get', 'x') end",
    "while true do redis.pcall('nosuch') end",
    "while true do pcall(redis.call, 'nosuch') end",
    "while true do collectgarbage() end",
    "for i = 1, math.huge do end",
    "for i = 1, 2, 0 do end",
    "repeat until false",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do unpack(t, 1, 7000) end",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.insert(t, 1, 1) table.remove(t) end",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.concat(t) end",
    "local t = {} for i = 1, 1e5 do t[i] = -i end while true do table.sort(t) table.sort(t, function(a, b) return a > b end) end",
    "local s = string.rep('a', 1e7) local a, b = s .. 'a', s .. 'b' while true do local _ = a < b end",
    "local s = string.rep('a', 1e7) while true do s:find('b', 1, true) end",
    "local s = string.rep('a', 1e7) while true do s:upper() s:reverse() s:byte(1, 100) end",
    "local s = string.rep('a', 1e6) while true do s:find(string.rep('a', 5e5) .. 'b', 1, true) end",
    "string.rep('a', 1e5):find('.-.-.-.-.-.-.-.-x')",
    "return string.rep('a', 1e5):match('a*a*a*a*a*a*a*x')",
    "string.gsub(string.rep('a', 1e5), 'a-a-a-a-a-a-x', '')",
    "for _ in string.gmatch(string.rep('a', 1e5), '(.-.-.-.-.-.-.-x)') do end",
    "string.gsub(string.rep('a', 1e5), '.-.-.-.-.-.-.-x', function() end)",
    "local t = {} for i = 1, 1e6 do t[i] = i end while true do table.concat(t, ',') end",
    "local t = setmetatable({}, {__index = function(t, k) return k end}) while true do local _ = t.x end",
    "local t = {} while true do for k in pairs(t) do end t[1] = next(t) end",
];

/// CPU time of this thread: what waits for other processes of a busy machine is not the interpreter's fault.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux kernel");
    let nanos = stat.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanos.expect("a number"))
}

#[test]
fn endless_scripts_can_be_killed_at_once() {
    let mut bad = Vec::new();
    for source in ENDLESS {
        let mut bench = Bench::new();
        bench.server.kill_after = Some(Duration::from_millis(20));
        let reply = bench.eval(source);
        let Some(killed_at) = bench.server.killed_at else {
            bad.push(format!("{source}: ended by itself: {reply}"));
            continue;
        };
        let took = cpu_time() - killed_at;
        println!(
            "{took:>8.2?} to die, at most {:>8.2?} between ticks, {} ticks: {source}",
            bench.server.gap_max, bench.server.ticks
        );
        if took > Duration::from_millis(10) {
            bad.push(format!("{source}: died slowly: {took:?}"));
        }
        if bench.server.gap_max > Duration::from_millis(80) {
            bad.push(format!(
                "{source}: long between ticks: {:?}",
                bench.server.gap_max
            ));
        }
        if !reply.contains("Script killed by user with SCRIPT KILL.") {
            bad.push(format!("{source}: {reply}"));
        }
        bench.server = FakeServer::default();
        assert_eq!(
            bench.eval("return {pcall(function() return 1 end)}"),
            "*2\r\n:1\r\n:1\r\n",
            "after {source}"
        );
    }
    assert!(bad.is_empty(), "{bad:#?}");
}

/// Scripts that want more memory than there is.
const GREEDY: &[&str] = &[
    "return string.rep('x', 1e9)",
    "return string.rep('x', 2^31 - 1)",
    "local s = 'x' while true do s = s .. s end",
    "local t = {} while true do t[#t + 1] = {} end",
    "local t = {} for i = 1, 1e9 do t[i] = i end",
    "local t = {} for i = 1, 1e9 do t['k' .. i] = i end",
    "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
    "local t = {} while true do t[#t + 1] = assert(loadstring('return 1')) end",
    "local s = string.rep('x', 1e6) local t = {} for i = 1, 1e5 do t[i] = s end return table.concat(t)",
    "return string.gsub(string.rep('x', 1e6), 'x', string.rep('y', 1e6))",
    "return string.gsub(string.rep('x', 1e3), 'x', function() return string.rep('y', 1e6) end)",
    "local s = string.rep('%s', 1000) local a = string.rep('y', 1e6) local t = {} for i = 1, 1000 do t[i] = a end return string.format(s, unpack(t))",
    "load(function() return string.rep('x = 1 ', 1e5) end) error('not enough memory')",
    "local function f(...) return f(1, ...) end f()",
    "local s = string.rep('x', 1e7) KEYS[1] = s:upper() KEYS[2] = s:reverse() KEYS[3] = s .. s KEYS[4] = KEYS[3] .. KEYS[3]",
];

#[test]
fn greedy_scripts_end_in_an_error() {
    for source in GREEDY {
        let mut bench = Bench::with_memory(32 << 20);
        let reply = bench.eval(source);
        assert!(
            reply.starts_with('-')
                && (reply.contains("not enough memory") || reply.contains("stack overflow")),
            "{source}: {reply}"
        );
        // A script that catches the error goes on, and finds the memory free again.
        let caught = bench.eval(&format!("return pcall(function() {source} end) and 1 or 2"));
        assert_eq!(caught, ":2\r\n", "{source}");
        assert_eq!(
            bench.eval("return #string.rep('x', 1e7)"),
            ":10000000\r\n",
            "{source}"
        );
        assert!(
            bench.host.memory_bytes() < 16 << 20,
            "{source}: {}",
            bench.host.memory_bytes()
        );
    }
}

#[test]
fn messages_out_of_one_large_string_end_in_an_error() {
    let mut bench = Bench::new();
    let many = "local s = string.rep('x', 1e6) local t = {} for i = 1, 5000 do t[i] = s end ";
    let reply = bench.eval(&format!("{many} return t"));
    assert_eq!(reply, "-ERR The reply of the script is too large\r\n");
    let reply = bench.eval(&format!("{many} return {{{{{{t}}}}, t}}"));
    assert_eq!(reply, "-ERR The reply of the script is too large\r\n");
    for call in ["redis.call('argv', unpack(t))", "redis.log(1, unpack(t))"] {
        let reply = bench.eval(&format!("{many} return {call}"));
        assert!(
            reply.starts_with("-ERR Arguments of a command are too large script: "),
            "{reply}"
        );
    }
    assert_eq!(bench.eval("return 1"), ":1\r\n");
}

#[test]
fn an_interpreter_needs_room() {
    let limits = |memory_bytes_max| Limits {
        memory_bytes_max,
        ..Limits::default()
    };
    assert!(Host::new(limits(64 << 10), 0).is_none());
    let host = Host::new(limits(1 << 20), 0).expect("room for the sandbox");
    assert!(host.memory_bytes() < 256 << 10);
}

/// Scripts that nest without end, in each way that takes native stack.
const NESTED: &[&str] = &[
    "local function f() return f() + 1 end f()",
    "local function f() local ok, e = pcall(f) error(e, 0) end f()",
    "local function f() local ok, e = xpcall(f, tostring) error(e, 0) end f()",
    "local function f() coroutine.wrap(f)() end f()",
    "local function f() local ok, e = coroutine.resume(coroutine.create(f)) error(e, 0) end f()",
    "local function f() string.gsub('a', 'a', f) end f()",
    "local function f() table.sort({1, 2}, f) end f()",
    "local function f() for _ in string.gmatch('a', 'a') do f() end end f()",
    "local function f() local _, e = load(f) error(e, 0) end f()",
    "local t t = setmetatable({}, {__tostring = function() return string.format('%s', t) end}) return tostring(t)",
    "local t t = setmetatable({}, {__tostring = function() return tostring(t) .. '' end}) return tostring(t)",
    "local t t = setmetatable({}, {__index = function(_, k) return t[k + 1] + 1 end}) return t[1]",
    "local t t = setmetatable({}, {__lt = function() return not (t < t) end}) return t < t",
    "local t t = setmetatable({}, {__concat = function() return (t .. t) .. '' end}) return t .. t",
    "local t t = setmetatable({}, {__call = function() return t() + 1 end}) return t()",
    "local t t = setmetatable({}, {__len = function() return #t + 1 end, __unm = function() return -t + 1 end}) return -t",
    "local t t = setmetatable({}, {__eq = function() return not (t == setmetatable({}, getmetatable(t))) end}) return t == setmetatable({}, getmetatable(t))",
    "local t t = setmetatable({}, {__newindex = function() t[1] = 1 return 1 end}) t[1] = 1",
    "return string.find(string.rep('a', 1e5), string.rep('(a', 100))",
    "return string.find(string.rep('a', 1e5), string.rep('a?', 1e5))",
    "return loadstring('return ' .. string.rep('(', 1e5) .. '1' .. string.rep(')', 1e5))()",
    "return loadstring('return ' .. string.rep('{', 1e5) .. '1' .. string.rep('}', 1e5))()",
    "return loadstring('return ' .. string.rep('- ', 1e5) .. '1')()",
    "return loadstring('return ' .. string.rep('not ', 1e5) .. '1')()",
    "return loadstring('return ' .. string.rep('1 .. ', 1e5) .. '1')()",
    "return loadstring('return ' .. string.rep('2 ^ ', 1e5) .. '1')()",
    "return loadstring(string.rep('do ', 1e5) .. string.rep('end ', 1e5))()",
    "return loadstring(string.rep('local function f() ', 1e5) .. string.rep('end ', 1e5))()",
    "return loadstring('x = a' .. string.rep('.a', 1e6))()",
    "return loadstring('a' .. string.rep('()', 1e6))()",
    "local yielded = {} for i = 1, 1e3 do yielded[i] = coroutine.create(function() pcall(coroutine.yield) coroutine.resume(yielded[i + 1]) end) coroutine.resume(yielded[i]) end coroutine.resume(yielded[1]) error('survived')",
    "yielded = 1 local function f(n) local co = coroutine.wrap(function() return f(n + 1) end) return co() + 1 end f(1)",
];

#[test]
fn nested_scripts_leave_the_native_stack_whole() {
    // Half of what threads get by default.
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    let run = || {
        for source in NESTED {
            let mut bench = Bench::new();
            let reply = bench.eval(source);
            assert!(reply.starts_with('-'), "{source}: {reply}");
            assert_eq!(bench.eval("return 1"), ":1\r\n");
        }
    };
    thread
        .spawn(run)
        .expect("a thread")
        .join()
        .expect("no failure");
}

/// A line of `redis_replies.txt`, where what is not printable is escaped.
fn unescape(line: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        out.push(match bytes.next().expect("an escaped byte") {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'x' => {
                let mut digit = || char::from(bytes.next().expect("a digit")).to_digit(16);
                (digit().expect("hexadecimal") << 4 | digit().expect("hexadecimal")) as u8
            }
            other => other,
        });
    }
    out
}

/// One script of `redis_replies.txt`.
#[derive(Default)]
struct Recorded {
    source: String,
    resp2: String,
    resp3: Option<String>,
    ours2: Option<String>,
    ours3: Option<String>,
}

/// The scripts and replies in `redis_replies.txt`:
/// `eval` a script, `2` and `3` Redis's reply in RESP2 and (if it is another) in RESP3,
/// `ours2` and (if it is another) `ours3` what we answer instead, `#` why.
fn recorded() -> Vec<Recorded> {
    let mut all: Vec<Recorded> = Vec::new();
    for line in include_str!("redis_replies.txt").lines() {
        let (kind, text) = line.split_once(' ').expect("a kind and a text");
        let text = text.to_owned();
        if kind == "eval" {
            all.push(Recorded {
                source: text,
                ..Recorded::default()
            });
            continue;
        }
        let last = all.last_mut().expect("a script first");
        match kind {
            "2" => last.resp2 = text,
            "3" => last.resp3 = Some(text),
            "ours2" => last.ours2 = Some(text),
            "ours3" => last.ours3 = Some(text),
            "#" => {}
            other => panic!("no such kind: {other}"),
        }
    }
    all
}

#[test]
fn replies_are_those_of_redis() {
    let mut bench = Bench::new();
    assert!(
        bench
            .eval("return redis.call('nosuch')")
            .ends_with(", on @user_script:1.\r\n"),
        "LuaJIT was built without the TARGET_FLAGS of .cargo/config.toml: cargo clean -p mlua-sys"
    );
    let mut differences = Vec::new();
    for recorded in recorded() {
        let source = unescape(&recorded.source);
        let sha = String::from_utf8(crate::sha1_hex(&source).to_vec()).expect("hexadecimal");
        let wanted2 = recorded.ours2.as_ref().unwrap_or(&recorded.resp2);
        let redis3 = recorded.ours2.as_ref().or(recorded.resp3.as_ref());
        let wanted3 = recorded.ours3.as_ref().or(redis3).unwrap_or(wanted2);
        for (proto, wanted) in [(Proto::Resp2, wanted2), (Proto::Resp3, wanted3)] {
            let wanted = unescape(&wanted.replace("{sha}", &sha));
            let got = bench.eval_bytes(&source, &[b"k1", b"k2"], &[b"a1"], proto);
            if got != wanted {
                differences.push(format!(
                    "eval {}\nredis {}\nours{} {}",
                    recorded.source,
                    wanted.escape_ascii(),
                    if proto == Proto::Resp2 { 2 } else { 3 },
                    got.escape_ascii()
                ));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differ\n{}",
        differences.len(),
        differences.join("\n")
    );
}
