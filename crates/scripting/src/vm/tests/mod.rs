//! Scripts against the interpreter, with a server of a few commands.

mod libraries;
mod limits;
mod replies;
mod sandbox;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redline_resp::{Args, ArgsBuf, Proto, Reply, ReplyBuffer};

use crate::{Family, Host, Limits, Origin, ScriptEnv, Scripts, Tick};

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
    fn call(&mut self, args: Args<'_>, _: Family, proto: Proto, reply: &mut ReplyBuffer) {
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
            (b"panic", _) => panic!("as the test wants"),
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
        let now = limits::cpu_time();
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
                    message_bytes_max: 32 << 20,
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
