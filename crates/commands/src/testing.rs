//! A keyspace without a server, for tests of handlers: commands go in as words, replies are the bytes that a client
//! would get. Must not know any one command.
//!
//! ```ignore
//! let mut db = TestDb::new();
//! assert_eq!(db.run(&["SET", "k", "v"]), "+OK");
//! assert_eq!(db.words("SET k v EX 10"), "+OK");
//! assert_eq!(db.events(), ["set k", "expire k"]);
//! ```

use redline_keyspace::{
    Classes, Keyspace, Local, Unit,
    lock::{Wake, WakeToken},
};
use redline_resp::{Args, ArgsBuf, Proto, Reply, ReplyBuffer};
use redline_spec::{gate, resolve};
use redline_types::Limits;

use crate::{Ctx, Failure, Stop, handler};

struct NobodyWaits;

impl Wake for NobodyWaits {
    fn wake(&self, _token: WakeToken) {}
}

/// One client, alone with a keyspace of 16 databases. Its clock advances only when a test sets it.
pub(crate) struct TestDb {
    pub(crate) space: Keyspace,
    pub(crate) local: Local,
    /// Selected database.
    pub(crate) db: u32,
    pub(crate) now_ms: i64,
    pub(crate) proto: Proto,
    pub(crate) bulk_bytes_max: u64,
    /// Number of changes that the last command reported.
    pub(crate) changes: u64,
    out: ReplyBuffer,
}

impl TestDb {
    /// Creates empty databases; all keyspace events are recorded; RESP2.
    pub(crate) fn new() -> TestDb {
        let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
        local.notify = Classes::ALL;
        let now_ms = 1_700_000_000_000;
        local.clock.now_s = (now_ms / 1000) as u32;
        TestDb {
            space: Keyspace::new(16, Box::new(NobodyWaits)),
            local,
            db: 0,
            now_ms,
            proto: Proto::Resp2,
            bulk_bytes_max: redline_resp::limits::BULK_BYTES_MAX,
            changes: 0,
            out: ReplyBuffer::new(),
        }
    }

    /// Runs a command as a unit that holds all stripes; returns its reply's bytes.
    pub(crate) fn run_bytes(&mut self, args: Args<'_>) -> Vec<u8> {
        let id = resolve(&args[0], args.get(1)).expect("a command of the table");
        let arity = gate(id).arity;
        let fits = if arity < 0 {
            args.len() >= -arity as usize
        } else {
            args.len() == arity as usize
        };
        assert!(
            fits,
            "the caller of a handler has checked the arity: {args:?}"
        );
        let handler = handler(id).expect("a command of the data plane");
        let mut unit = Unit::exclusive(&mut self.space);
        let mut ctx = Ctx {
            keys: unit.view(&mut self.local, self.db, self.now_ms),
            bulk_bytes_max: self.bulk_bytes_max,
            in_script: false,
            reads_every_key: true,
            waiter: None,
        };
        let mut reply = Reply::new(&mut self.out, self.proto);
        let mark = reply.mark();
        match handler(&mut ctx, args, &mut reply) {
            // No client blocks here: the reply for such callers has been written.
            Ok(()) | Err(Failure::Stop(Stop::Wait(_))) => {}
            Err(failure) => {
                reply.truncate(mark);
                reply.error_bytes(&failure.expect_error().text());
            }
        }
        ctx.keys.finish();
        self.changes = ctx.keys.changes();
        let bytes = self.out.chunks().flatten().copied().collect();
        self.out.clear();
        bytes
    }

    /// Runs a command; returns its reply with `|` for the line ends and without the last one: `$1|v`, `*2|:1|:2`, `-ERR
    /// syntax error`.
    pub(crate) fn run<A: AsRef<[u8]>>(&mut self, words: &[A]) -> String {
        let args: ArgsBuf = words.iter().map(AsRef::as_ref).collect();
        let bytes = self.run_bytes(args.as_args());
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "|");
        text.strip_suffix('|')
            .expect("a reply ends with a line end")
            .to_owned()
    }

    /// Runs a command line without spaces in its words.
    pub(crate) fn words(&mut self, line: &str) -> String {
        self.run(&line.split_ascii_whitespace().collect::<Vec<_>>())
    }

    /// Runs each line and compares its reply.
    #[track_caller]
    pub(crate) fn script(&mut self, lines: &[(&str, &str)]) {
        for (line, expected) in lines {
            assert_eq!(self.words(line), *expected, "{line}");
        }
    }

    /// Returns the keyspace events since the last call, as `name key` (`name key @db` outside database 0).
    pub(crate) fn events(&mut self) -> Vec<String> {
        let events = self.local.events.drain(..);
        events
            .map(|event| {
                let key = String::from_utf8_lossy(&event.key);
                match event.db {
                    0 => format!("{} {key}", event.name),
                    db => format!("{} {key} @{db}", event.name),
                }
            })
            .collect()
    }

    /// Advances the clock.
    pub(crate) fn pass_ms(&mut self, ms: i64) {
        self.now_ms += ms;
        self.local.clock.now_s = (self.now_ms / 1000) as u32;
    }
}
