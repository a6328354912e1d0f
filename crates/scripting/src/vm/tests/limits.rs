//! Scripts that take too much: time, memory, native stack.

use std::time::Duration;

use super::{Bench, FakeServer};
use crate::{Host, Limits};

/// Scripts that end only if they are killed.
const ENDLESS: &[&str] = &[
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do cjson.encode(t) end",
    "local t = {} for i = 1, 1e5 do t['k' .. i] = i end while true do cjson.encode(t) end",
    "local s = '[' .. ('1,'):rep(5e5) .. '1]' while true do cjson.decode(s) end",
    "local s = '\"' .. ('x'):rep(1e7) .. '\"' while true do cjson.decode(s) end",
    "local s = (' '):rep(1e7) while true do pcall(cjson.decode, s) end",
    "local s = ('x'):rep(1e7) while true do cjson.encode(s) end",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do cmsgpack.pack(t) end",
    "local s = '\\221\\0\\15\\0\\0' .. ('\\1'):rep(2e6) while true do cmsgpack.unpack_one(s) end",
    "local f = ('x'):rep(1e7) while true do struct.pack(f) end",
    "local f = ('x'):rep(1e7) while true do struct.unpack(f, f) end",
    "local f = ('x'):rep(1e7) while true do struct.size(f) end",
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
    "while true do string.rep('x', 2e7) end",
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

/// Returns the CPU time of this thread: waiting for other processes of a busy machine is not the interpreter's fault.
pub(super) fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is ours to write.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Limit on the CPU time from the request to kill a script to its end, and between two reads of the clock. Without
/// optimisation, and on a machine whose caches others use, everything takes several times as long.
const DEATH_MAX: Duration = Duration::from_millis(if cfg!(debug_assertions) { 50 } else { 10 });
const GAP_MAX: Duration = Duration::from_millis(if cfg!(debug_assertions) { 300 } else { 80 });

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
        if took > DEATH_MAX {
            bad.push(format!("{source}: died slowly: {took:?}"));
        }
        if bench.server.gap_max > GAP_MAX {
            bad.push(format!(
                "{source}: long between ticks: {:?}",
                bench.server.gap_max
            ));
        }
        if !reply.contains("Script killed by user with SCRIPT KILL.") {
            bad.push(format!("{source}: {reply}"));
        }
        bench.server = FakeServer::default();
        bench.server.kill_after = Some(Duration::ZERO);
        let reply = bench.eval("while true do end");
        assert!(
            reply.contains("SCRIPT KILL"),
            "the hook is off after {source}"
        );
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
    "cjson.encode_sparse_array(false, 0, 0) return cjson.encode({[2^31 - 1] = 1})",
    "local s = ('\\1'):rep(2e7) return cjson.encode(s)",
    "local s = ('x'):rep(2e7) return cjson.encode({s, s, s, s, s})",
    "local s = ('x'):rep(2e7) return cmsgpack.pack(s, s, s, s, s)",
    "local s = ('x'):rep(2e7) return struct.pack('sssss', s, s, s, s, s)",
    "return cjson.decode('[' .. ('{},'):rep(1e7) .. '{}]')",
    "return cmsgpack.unpack('\\221\\127\\255\\255\\255' .. ('\\128'):rep(1e7))",
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

#[test]
fn a_call_that_failed_halfway_leaves_nothing_for_the_next() {
    let mut bench = Bench::with_memory(8 << 20);
    bench.server.data.insert(b"k".to_vec(), b"v".to_vec());
    bench
        .server
        .data
        .insert(b"large".to_vec(), vec![b'x'; 6_000_000]);
    let source = "local ok, e = pcall(function() local a = redis.call('get', 'large') return a .. a end) \
                  local t = {} local ok2 = pcall(function() while true do t[#t + 1] = redis.call('argv', #t) end end) \
                  t = nil return {ok and 1 or 0, tostring(e), ok2 and 1 or 0, redis.call('get', 'k')}";
    assert_eq!(
        bench.eval(source),
        "*4\r\n:0\r\n$17\r\nnot enough memory\r\n:0\r\n$1\r\nv\r\n"
    );
    assert_eq!(bench.eval("return redis.call('get', 'k')"), "$1\r\nv\r\n");
}
