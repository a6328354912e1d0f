//! Cost of one EVAL beside the commands that it calls: nanoseconds, the best of five rounds.
//! Run by `cargo bench -p redline-scripting`.

use std::hint::black_box;
use std::time::Instant;

use redline_resp::{Args, ArgsBuf, Proto, Reply, ReplyBuffer};
use redline_scripting::{Family, Host, Limits, Origin, ScriptEnv, Scripts, Tick};

/// A server that gives every command the same reply.
struct Canned(&'static [u8]);

impl ScriptEnv for Canned {
    fn call(&mut self, args: Args<'_>, _: Family, _: Proto, reply: &mut ReplyBuffer) {
        black_box(&args[0]);
        reply.push_bytes(self.0);
    }

    fn tick(&mut self) -> Tick {
        Tick::Continue
    }

    fn log(&mut self, _: i64, _: &[u8]) {}

    fn acl_check(&mut self, _: Args<'_>) -> Option<bool> {
        Some(true)
    }

    fn set_repl(&mut self, _: u8) {}
}

const CASES: [(&str, &str, &[u8]); 7] = [
    ("nothing", "return", b""),
    (
        "one GET",
        "return redis.call('get', KEYS[1])",
        b"$16\r\n0123456789abcdef\r\n",
    ),
    (
        "one SET",
        "return redis.call('set', KEYS[1], ARGV[1])",
        b"+OK\r\n",
    ),
    (
        "a lock released",
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
        b"$16\r\n0123456789abcdef\r\n",
    ),
    (
        "a rate limit",
        "local n = redis.call('incr', KEYS[1]) if tonumber(n) == 1 then redis.call('expire', KEYS[1], ARGV[1]) end return n",
        b":7\r\n",
    ),
    (
        "an error",
        "return redis.call('get', KEYS[1])",
        b"-WRONGTYPE x\r\n",
    ),
    (
        "100 GETs",
        "for i = 1, 100 do redis.call('get', KEYS[1]) end",
        b"$3\r\nabc\r\n",
    ),
];

fn main() {
    let scripts = Scripts::new();
    let mut host = Host::new(Limits::default(), 1).expect("room for the sandbox");
    let keys: ArgsBuf = [&b"key:000000000001"[..]].into_iter().collect();
    let argv: ArgsBuf = [&b"0123456789abcdef"[..]].into_iter().collect();
    let mut out = ReplyBuffer::new();
    for (name, source, reply) in CASES {
        let mut env = Canned(reply);
        let mut round = |n: u32| {
            let start = Instant::now();
            for _ in 0..n {
                let script = host
                    .load(&scripts, source.as_bytes(), Origin::Eval)
                    .expect("a script");
                let mut reply = Reply::new(&mut out, Proto::Resp2);
                host.eval(
                    &script,
                    keys.as_args(),
                    argv.as_args(),
                    &mut env,
                    &mut reply,
                );
                out.clear();
            }
            start.elapsed().as_nanos() as f64 / f64::from(n)
        };
        round(1_000);
        let best = (0..5).map(|_| round(100_000)).fold(f64::INFINITY, f64::min);
        println!("{name:<16} {best:>8.0} ns");
    }
}
