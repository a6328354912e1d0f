//! Scripts and libraries that use Valkey's table, `server`, on both servers: each as EVAL, EVAL_RO and FCALL. Replies
//! must be equal.
//!
//! Must not know the effect of scripts.

use redline_resp::reply_decoder::Value;

use crate::pair::Pair;

/// Bodies of scripts and functions. `KEYS` and `ARGV` have one each.
const BODIES: &[&str] = &[
    "local r = {} for k, v in pairs(server) do r[#r + 1] = k .. ':' .. type(v) end table.sort(r) return r",
    "return {type(server), tostring(getmetatable(server)), #server, type(_G.server)}",
    "return {server.LOG_DEBUG, server.LOG_VERBOSE, server.LOG_NOTICE, server.LOG_WARNING}",
    "return {server.REPL_ALL, server.REPL_AOF, server.REPL_SLAVE, server.REPL_REPLICA, server.REPL_NONE}",
    "return {server.VALKEY_VERSION, server.VALKEY_VERSION_NUM}",
    "return {type(server.SERVER_NAME), type(server.REDIS_VERSION), type(server.REDIS_VERSION_NUM)}",
    "return {tostring(server.SERVER_VERSION), tostring(server.nosuch), tostring(server.register_function)}",
    "return server.call('SET', KEYS[1], ARGV[1])",
    "return server.call('GET', KEYS[1])",
    "return server.pcall('GET', KEYS[1])",
    "return {server.call('INCR', 'n'), server.call('ECHO', 1.5), server.call('ECHO', 1e20)}",
    "return server.call('LPUSH', KEYS[1], 'x')",
    "return server.pcall('LPUSH', KEYS[1], 'x')",
    "return server.pcall('LPUSH', KEYS[1], 'x').err",
    "local ok, e = pcall(server.call, 'nosuch') return {tostring(ok), e}",
    "server.call('HSET', 'h', 'f', 'v') server.setresp(3) return server.call('HGETALL', 'h')",
    "server.setresp(3) return server.call('ZSCORE', 'z', 'm')",
    "server.setresp(2) return server.call('HGETALL', 'h')",
    "return server.call()",
    "return server.pcall()",
    "return server.call({})",
    "return server.pcall('SET', KEYS[1], {})",
    "return server.call('nosuch')",
    "return server.pcall('nosuch')",
    "return server.call('GET')",
    "return server.pcall('SET', KEYS[1])",
    "return server.call('SUBSCRIBE', 'c')",
    "return server.pcall('EVAL', 'return 1', 0)",
    "return server.call('SCRIPT', 'FLUSH')",
    "return server.sha1hex('')",
    "return server.sha1hex(ARGV[1])",
    "return {server.sha1hex(nil), server.sha1hex(1), server.sha1hex(true)}",
    "return server.sha1hex()",
    "return server.sha1hex(1, 2)",
    "return server.error_reply('MY own')",
    "return server.error_reply('-MY own')",
    "return server.error_reply('word')",
    "return server.error_reply({})",
    "return server.error_reply()",
    "error(server.error_reply('MY own'))",
    "return server.status_reply('FINE')",
    "return server.status_reply(1)",
    "return server.status_reply()",
    "return server.log(server.LOG_DEBUG, 'a', 1)",
    "return server.log()",
    "return server.log('x', 'y')",
    "return server.log(9, 'y')",
    "return server.setresp()",
    "return server.setresp(9)",
    "return server.set_repl(server.REPL_ALL)",
    "return server.set_repl()",
    "return server.set_repl(9)",
    "return server.replicate_commands()",
    "return server.breakpoint()",
    "return server.debug('x')",
    "return server.acl_check_cmd('GET', KEYS[1])",
    "return server.acl_check_cmd()",
    "return server.acl_check_cmd('nosuch')",
    "return server.acl_check_cmd({})",
    "return server.register_function('f', function() end)",
    "return server.nosuch()",
    "server.x = 1",
    "server.call = nil",
    "server = 1",
    "_G.server = nil",
    "rawset(server, 'x', 1)",
    "setmetatable(server, {})",
    "for k in pairs(server) do server[k] = nil end",
    "local call = server.call return call('GET', KEYS[1])",
    "return setmetatable({}, {__index = server}).sha1hex('a')",
    "local e = server.pcall('nosuch') return {e.err, tostring(e.ignore_error_stats_update), tostring(e.line)}",
    "return redis.call('GET', KEYS[1])",
];

/// Bodies of libraries, which run when the library is loaded. A real Valkey 9.1.2 ends when `server.log` is called
/// there.
const LOADS: &[&str] = &[
    "server.register_function('f', function(keys, args) return {keys, args} end)",
    "server.register_function(1, function() return 1 end)",
    "redis.register_function('f', function() return server.call('PING') end)",
    "server.register_function{function_name = 'f', callback = function() return 1 end, flags = {'no-writes'}, description = 'd'}",
    "server.register_function{function_name = 'f', callback = function() return server.call('SET', 'k', 'v') end, flags = {'no-writes'}}",
    "server.register_function{function_name = 'f', callback = function() end, flags = {'nosuch'}}",
    "server.register_function{function_name = 'f', callback = function() end, flags = 1}",
    "server.register_function{function_name = 'f', callback = function() end, description = {}}",
    "server.register_function{function_name = 'f', callback = function() end, nosuch = 1}",
    "server.register_function{function_name = 'f', callback = function() end, [{}] = 1}",
    "server.register_function{function_name = {}, callback = function() end}",
    "server.register_function{function_name = 'f', callback = 1}",
    "server.register_function{function_name = 'f'}",
    "server.register_function{callback = function() end}",
    "server.register_function{}",
    "server.register_function()",
    "server.register_function('f')",
    "server.register_function('f', 1)",
    "server.register_function({}, function() end)",
    "server.register_function('f', function() end, 1)",
    "server.register_function('a.b', function() end)",
    "server.register_function('f', function() end) server.register_function('f', function() end)",
    "local t = server server.register_function('f', function() return {type(t.register_function), tostring(t == server)} end)",
    "local t = server server.register_function('f', function() t.register_function('g', function() end) end)",
    "local t = server server.register_function('f', function() t.x = 1 end)",
    "local x = {server.VALKEY_VERSION, server.VALKEY_VERSION_NUM, server.LOG_NOTICE} server.register_function('f', function() return x end)",
    "local x = {server.LOG_DEBUG, server.LOG_VERBOSE, server.LOG_WARNING} server.register_function('f', function() return x end)",
    "local x = server.SERVER_NAME and server.REDIS_VERSION and server.REDIS_VERSION_NUM server.register_function('f', function() return 1 end)",
    "local x = server.SERVER_VERSION",
    "local x = server.REPL_ALL",
    "local x = server.setresp",
    "server.call('GET', 'k')",
    "server.pcall('GET', 'k')",
    "server.sha1hex('')",
    "server.x = 1",
    "server = 1",
    "return pairs(server)",
];

/// First lines of libraries, and of scripts.
const HEADS: &[&str] = &[
    "#!lua name=lib",
    "#!LUA name=lib",
    "#!Lua name=lib",
    "#!lua",
    "#!lua name=a.b",
    "#!lua name=lib x=1",
    "#!valkey name=lib",
];

/// Runs all of them; returns the number of calls.
pub(super) fn run(pair: &mut Pair) -> Result<usize, String> {
    let mut calls = 0;
    let mut same = |call: &[&str]| {
        let call: Vec<String> = call.iter().map(|word| (*word).to_owned()).collect();
        let (ours, theirs) = pair.both(&call)?;
        let (ours, theirs) = (comparable(ours), comparable(theirs));
        calls += 1;
        match ours == theirs {
            true => Ok(()),
            false => Err(format!("{call:?}\n  ours   {ours:?}\n  theirs {theirs:?}")),
        }
    };
    same(&["FLUSHALL"])?;
    same(&["ZADD", "z", "1.5", "m"])?;
    for body in BODIES {
        same(&["EVAL", body, "1", "k", "v"])?;
        same(&["EVAL_RO", body, "1", "k", "v"])?;
        same(&["EVAL", &format!("#!lua\n{body}"), "1", "k", "v"])?;
        let library = format!(
            "#!lua name=lib\nserver.register_function('f', function(KEYS, ARGV)\n{body}\nend)"
        );
        same(&["FUNCTION", "LOAD", "REPLACE", &library])?;
        same(&["FCALL", "f", "1", "k", "v"])?;
        same(&["FCALL_RO", "f", "1", "k", "v"])?;
    }
    let heads = HEADS
        .iter()
        .map(|head| format!("{head}\nserver.register_function('f', function() end)"));
    let loads = LOADS.iter().map(|body| format!("#!lua name=lib\n{body}"));
    for library in heads.chain(loads) {
        same(&["FUNCTION", "FLUSH"])?;
        same(&["FUNCTION", "LOAD", &library])?;
        same(&["FUNCTION", "LIST"])?;
        same(&["FCALL", "f", "1", "k", "v"])?;
    }
    same(&["FUNCTION", "FLUSH"])?;
    Ok(calls)
}

/// Returns a reply without the name of the script in its error: a real Valkey 9.1.2 leaves it out.
fn comparable(reply: Value) -> Value {
    let Value::Error(text) = &reply else {
        return reply;
    };
    let text = String::from_utf8_lossy(text);
    match text.split_once(" script: ") {
        Some((before, behind)) => {
            let place = behind.find("on @").map_or("", |at| &behind[at..]);
            Value::Error(format!("{before} script: {place}").into_bytes())
        }
        None => reply,
    }
}
