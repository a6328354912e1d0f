//! Any stream of commands against one keyspace, each with just the stripes that the server would hold: nothing
//! panics, no handler touches a key whose stripe its row does not name, and every command gives one whole reply.
//!
//! The input is read as a stream of choices: a command, its words, the time that passes.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use redline_commands::{Ctx, Error, handler};
use redline_keyspace::{
    Classes, Held, Keyspace, Local, View, hash,
    lock::{StripeSet, Wake, WakeToken},
    stripe_of,
};
use redline_resp::{Args, ArgsBuf, Proto, Reply, ReplyBuffer, Skipper};
use redline_spec::{self as spec, CommandId, Plane, Scope};
use redline_types::Limits;

/// Commands of one input.
const COMMANDS_MAX: usize = 60;

/// Words that mean something to some command.
const WORDS: [&str; 104] = [
    "k",
    "l",
    "m",
    "n",
    "k",
    "l",
    "m",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "-2",
    "10",
    "100",
    "1000",
    "1.5",
    "-0.5",
    "1e3",
    "inf",
    "-inf",
    "+inf",
    "nan",
    "(1",
    "[a",
    "(b",
    "+",
    "-",
    "*",
    "?",
    "a*",
    "[a-c]",
    "a",
    "b",
    "c",
    "d",
    "",
    "9223372036854775807",
    "-9223372036854775808",
    "1700000000500",
    "1700000000",
    "NX",
    "XX",
    "GT",
    "LT",
    "CH",
    "INCR",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "GET",
    "SET",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "WEIGHTS",
    "AGGREGATE",
    "SUM",
    "MIN",
    "MAX",
    "WITHSCORES",
    "WITHSCORE",
    "WITHVALUES",
    "LIMIT",
    "REV",
    "BYSCORE",
    "BYLEX",
    "COUNT",
    "MATCH",
    "TYPE",
    "NOVALUES",
    "STORE",
    "REPLACE",
    "DB",
    "RANK",
    "MAXLEN",
    "MINID",
    "~",
    "=",
    "NOMKSTREAM",
    "1-1",
    "1-*",
    "5-0",
    "0-0",
    "1700000000000-3",
    "IDX",
    "LEN",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "BY",
    "ASC",
    "DESC",
    "ALPHA",
    "ENCODING",
    "FREQ",
    "FIELDS",
    "u8",
    "i64",
    "OVERFLOW",
    "string",
];

struct NobodyWaits;

impl Wake for NobodyWaits {
    fn wake(&self, _: WakeToken) {}
}

/// The input as a stream of choices.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<&'a [u8]> {
        let choice = usize::from(self.byte()?);
        if let Some(word) = WORDS.get(choice) {
            return Some(word.as_bytes());
        }
        if choice == 255 {
            // Longer than the compact encodings hold.
            return Some(&[b'v'; 70]);
        }
        let (word, rest) = self.0.split_at((choice % 6).min(self.0.len()));
        self.0 = rest;
        Some(word)
    }
}

/// What the server holds for a command that stands alone.
fn held<'a>(id: CommandId, args: Args<'_>, set: &'a mut StripeSet) -> Held<'a> {
    match spec::gate(id).scope {
        Scope::None | Scope::Counters | Scope::OneStripe => Held::None,
        Scope::All | Scope::KeysPlus => Held::All,
        Scope::Keys => {
            spec::reachable_keys(id, args.len(), |at| args.get(at).unwrap_or_default())
                .filter_map(|key| args.get(key.position))
                .for_each(|key| set.insert(stripe_of(hash(key))));
            Held::Set(set)
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let data_plane: Vec<CommandId> = CommandId::ALL
        .into_iter()
        .filter(|id| spec::gate(*id).plane == Plane::Data)
        .collect();
    let mut choices = Choices(data);
    // One for all inputs, since its tables are never freed; each input leaves it empty.
    static SPACE: LazyLock<Keyspace> = LazyLock::new(|| Keyspace::new(4, Box::new(NobodyWaits)));
    let space = &*SPACE;
    let mut local = Local::new(fastrand::Rng::with_seed(1), Limits::default());
    local.notify = Classes(u32::MAX);
    let (mut now_ms, mut out) = (1_700_000_000_000, ReplyBuffer::new());
    let mut argv = ArgsBuf::default();
    for _ in 0..COMMANDS_MAX {
        let (Some(command), Some(shape)) = (choices.byte(), choices.byte()) else {
            break;
        };
        let id = data_plane[usize::from(command) % data_plane.len()];
        now_ms += i64::from(shape >> 4);
        argv.clear();
        spec::row(id)
            .full_name
            .split('|')
            .for_each(|name| argv.push(name.as_bytes()));
        for _ in 0..shape & 15 {
            let Some(word) = choices.word() else { break };
            argv.push(word);
        }
        let args = argv.as_args();
        if !spec::gate(id).arity_allows(args.len()) {
            continue;
        }
        let mut set = StripeSet::EMPTY;
        let held = held(id, args, &mut set);
        let keys = View::new(space, held, &mut local, u32::from(command >> 7), now_ms);
        let mut ctx = Ctx {
            keys,
            bulk_bytes_max: 64 * 1024,
            in_script: false,
            reads_every_key: true,
            waiter: None,
        };
        let proto = if shape & 16 == 0 {
            Proto::Resp2
        } else {
            Proto::Resp3
        };
        let result = handler(id).expect("a command of the data plane")(
            &mut ctx,
            args,
            &mut Reply::new(&mut out, proto),
        );
        ctx.keys.finish();
        match result {
            // Nobody waits here: the reply for such callers is there.
            Ok(()) | Err(Error::Block(_)) => {}
            Err(error) => {
                out.clear();
                Reply::new(&mut out, proto).error(&error.text());
            }
        }
        let reply: Vec<u8> = out.chunks().flatten().copied().collect();
        #[cfg(feature = "planted")]
        assert!(
            id != CommandId::Lpop || !reply.starts_with(b"$") || reply.starts_with(b"$-"),
            "the planted fault"
        );
        let skipped = Skipper::new().skip(&reply).expect("a reply");
        assert_eq!(
            (skipped.replies, skipped.consumed),
            (1, reply.len()),
            "one whole reply"
        );
        out.clear();
        local.events.drain(..);
        local.garbage.clear();
        let flushed: Vec<_> = local.flushed.drain(..).collect();
        flushed
            .into_iter()
            .for_each(|table| table.free(space, &mut local.heap));
    }
    local.heap.tick();
    // Everything goes, and nothing is left in the accounts.
    let mut view = View::new(space, Held::All, &mut local, 0, now_ms);
    (0..4).for_each(|db| drop(view.flush(db)));
    view.finish();
    let flushed: Vec<_> = local.flushed.drain(..).collect();
    flushed
        .into_iter()
        .for_each(|table| table.free(space, &mut local.heap));
    local.flush_account(space);
});
