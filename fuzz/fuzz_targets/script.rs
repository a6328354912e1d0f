//! Any text as a script, and any bytes through the libraries that scripts have: nothing panics, every script has one
//! whole reply, what it has done to the sandbox is gone with it, and what the libraries write they read as the same.
//!
//! The first byte says what the rest is: the text of a script, or an argument of one of those below.

#![no_main]

use std::borrow::Cow;
use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use redline_resp::{Args, ArgsBuf, Proto, Reply, ReplyBuffer, Skipper};
use redline_scripting::{Family, Host, Limits, Origin, ScriptEnv, Scripts, Tick};

/// Turns of a script before it is killed: a turn is about a millisecond.
const TURNS_MAX: u32 = 30;
/// Texts that are kept compiled.
const SCRIPTS_MAX: u32 = 2000;

/// What is done with bytes that are no script. ARGV[1] and ARGV[2] are the two parts of the input.
const USES: [&str; 8] = [
    "local ok, v = pcall(cjson.decode, ARGV[1]) if not ok then return v end
     local ok, text = pcall(cjson.encode, v) if not ok then return text end
     local again = cjson.encode(cjson.decode(text))
     if #again ~= #text then return redis.error_reply('BUG json ' .. text .. ' ' .. again) end
     return text",
    "local ok, v = pcall(cmsgpack.unpack_one, ARGV[1]) if not ok then return v end
     local ok, text = pcall(cmsgpack.pack, v) if not ok then return text end
     local again = cmsgpack.pack(cmsgpack.unpack(text))
     if #again ~= #text then return redis.error_reply('BUG msgpack') end
     return {cmsgpack.unpack(ARGV[1])}",
    "local ok, size = pcall(struct.size, ARGV[1])
     local v = {pcall(struct.unpack, ARGV[1], ARGV[2])} if not v[1] then return v[2] end
     return {pcall(struct.pack, ARGV[1], unpack(v, 2))}",
    "return {pcall(string.find, ARGV[2], ARGV[1])}",
    "return {pcall(string.gsub, ARGV[2], ARGV[1], '%1%0')}",
    "local out = {} pcall(function() for a, b in string.gmatch(ARGV[2], ARGV[1]) do out[#out + 1] = a end end) return out",
    "return {pcall(string.format, ARGV[1], ARGV[2], 1.5, -3, ARGV[2])}",
    "local f = load(ARGV[1]) or loadstring(ARGV[2]) return {pcall(redis.pcall, ARGV[1], ARGV[2]), f and pcall(f),
     redis.sha1hex(ARGV[1]), redis.status_reply(ARGV[1])}",
];

/// What a script sees of the sandbox that earlier ones may have left.
const CANARY: &str = "local n, names = 0, {}
    for name, v in pairs(_G) do
        n = n + 1
        if type(v) == 'table' and v ~= _G then for _ in pairs(v) do n = n + 1 end end
    end
    local meta = getmetatable('')
    return {n, ('x'):rep(3), tostring(rawget(_G, 'x')), cjson.encode({1, {a = 2}}), cjson.encode_max_depth(),
        meta and tostring(meta.__index == string), cmsgpack.unpack(cmsgpack.pack(7)), struct.size('i4')}";

/// A server of few words.
struct Server {
    turns: u32,
}

impl ScriptEnv for Server {
    fn call(&mut self, args: Args<'_>, _: Family, proto: Proto, reply: &mut ReplyBuffer) {
        let mut reply = Reply::new(reply, proto);
        match (args[0].to_ascii_lowercase().as_slice(), args.len()) {
            (b"get", 2) => reply.bulk(&args[1]),
            (b"set", 3) => reply.ok(),
            (b"null", _) => reply.null(),
            (b"incr", _) => reply.integer(i64::MAX),
            (b"array", count) => {
                reply.array(count);
                args.iter().for_each(|arg| reply.bulk(arg));
            }
            (b"map", _) => {
                reply.map(1);
                reply.bulk(b"k");
                reply.double(f64::NAN);
            }
            _ => reply.error("ERR unknown command"),
        }
    }

    fn tick(&mut self) -> Tick {
        self.turns += 1;
        if self.turns > TURNS_MAX {
            return Tick::Kill(Cow::Borrowed("Script killed by user"));
        }
        Tick::Continue
    }

    fn log(&mut self, _: i64, _: &[u8]) {}

    fn acl_check(&mut self, args: Args<'_>) -> Option<bool> {
        (args.len() > 1).then_some(true)
    }

    fn set_repl(&mut self, _: u8) {}
}

/// An interpreter, and what its sandbox looked like when it was new.
struct Bench {
    host: Host,
    scripts: Scripts,
    runs: u32,
    canary: Vec<u8>,
}

impl Bench {
    fn new() -> Bench {
        let limits = Limits {
            memory_bytes_max: 16 << 20,
            message_bytes_max: 1 << 20,
        };
        let mut bench = Bench {
            host: Host::new(limits, 7).expect("room for a sandbox"),
            scripts: Scripts::default(),
            runs: 0,
            canary: Vec::new(),
        };
        bench.canary = bench.run(CANARY.as_bytes(), &[], Proto::Resp2);
        assert!(
            bench.canary.starts_with(b"*8\r\n"),
            "{}",
            bench.canary.escape_ascii()
        );
        bench
    }

    /// The reply of a script.
    fn run(&mut self, source: &[u8], argv: &[&[u8]], proto: Proto) -> Vec<u8> {
        let script = match self.host.load(&self.scripts, source, Origin::Eval) {
            Ok(script) => script,
            Err(error) => return format!("-{error}\r\n").into_bytes(),
        };
        let mut args = ArgsBuf::default();
        argv.iter().for_each(|arg| args.push(arg));
        let mut out = ReplyBuffer::new();
        let mut server = Server { turns: 0 };
        self.host.eval(
            &script,
            ArgsBuf::default().as_args(),
            args.as_args(),
            &mut server,
            &mut Reply::new(&mut out, proto),
        );
        let reply = out.chunks().collect::<Vec<_>>().concat();
        let skipped = Skipper::new().skip(&reply).expect("a reply");
        assert_eq!(
            (skipped.replies, skipped.consumed),
            (1, reply.len()),
            "one whole reply"
        );
        reply
    }
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::new());
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else {
        return;
    };
    let proto = match how & 1 {
        0 => Proto::Resp2,
        _ => Proto::Resp3,
    };
    BENCH.with_borrow_mut(|bench| {
        bench.runs += 1;
        if bench.runs > SCRIPTS_MAX {
            *bench = Bench::new();
        }
        let reply = match usize::from(how >> 1) % (USES.len() * 2) {
            use_at if use_at < USES.len() => {
                let middle = rest.iter().position(|byte| *byte == 0);
                let middle = middle.unwrap_or(rest.len() / 2);
                let (first, second) = rest.split_at(middle);
                bench.run(USES[use_at].as_bytes(), &[first, second], proto)
            }
            _ => bench.run(rest, &[b"1", b"two", b"[3]"], proto),
        };
        assert!(!reply.starts_with(b"-BUG"), "{}", reply.escape_ascii());
        #[cfg(feature = "planted")]
        assert!(
            usize::from(how >> 1) % (USES.len() * 2) != 1 || !reply.starts_with(b"*5\r\n"),
            "the planted fault: five values are one too many"
        );
        let canary = bench.run(CANARY.as_bytes(), &[], Proto::Resp2);
        assert!(
            canary == bench.canary,
            "the sandbox has changed: {}",
            canary.escape_ascii()
        );
    });
});
