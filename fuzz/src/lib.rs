//! What several targets share: an input as a stream of choices, and commands that run against a keyspace with just the
//! stripes that the server would hold.

use std::sync::{LazyLock, OnceLock};

use redline_commands::{Ctx, Failure, Stop, handler};
use redline_keyspace::{
    Classes, Keyspace, Local, Trace, Unit,
    lock::{StripeSet, Wake, WakeToken},
};
use redline_resp::{Args, ArgsBuf, Proto, Reply, ReplyBuffer, Skipper};
use redline_spec::{self as spec, CommandId, Scope};
use redline_types::Limits;

/// The input as a stream of choices.
pub struct Choices<'a>(pub &'a [u8]);

impl<'a> Choices<'a> {
    /// The next byte, until the end.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// So many of the bytes that are left.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

struct NobodyWaits;

impl Wake for NobodyWaits {
    fn wake(&self, _: WakeToken) {}
}

const DATABASES: u32 = 4;

// One for all inputs, since its tables are never freed; each input leaves it empty.
static SPACE: LazyLock<Keyspace> =
    LazyLock::new(|| Keyspace::new(DATABASES as usize, Box::new(NobodyWaits)));

// What the account of an otherwise empty keyspace says with one key in it.
static WEIGHT: OnceLock<u64> = OnceLock::new();

/// Runs the commands of one input.
pub struct Runner {
    local: Local,
    out: ReplyBuffer,
    now_ms: i64,
}

impl Runner {
    /// A runner in an empty keyspace.
    pub fn new(limits: Limits) -> Runner {
        let mut local = Local::new(fastrand::Rng::with_seed(1), limits);
        local.notify = Classes(u32::MAX);
        Runner {
            local,
            out: ReplyBuffer::new(),
            now_ms: 1_700_000_000_000,
        }
    }

    /// Time passes.
    pub fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
    }

    /// Runs one command, its name included in `args`, and returns its reply: one, and whole. None if it may not have
    /// that many arguments.
    pub fn call(
        &mut self,
        id: CommandId,
        args: Args<'_>,
        db: u32,
        proto: Proto,
    ) -> Option<Vec<u8>> {
        if !spec::gate(id).arity_allows(args.len()) {
            return None;
        }
        let mut unit = unit(id, args);
        let mut ctx = Ctx {
            keys: unit.view(&mut self.local, db, self.now_ms),
            bulk_bytes_max: 64 * 1024,
            in_script: false,
            reads_every_key: true,
            waiter: None,
        };
        let run = handler(id).expect("a command of the data plane");
        let result = run(&mut ctx, args, &mut Reply::new(&mut self.out, proto));
        ctx.keys.finish();
        unit.commit(&mut self.local);
        match result {
            // Nobody waits here: the reply for such callers is there.
            Ok(()) | Err(Failure::Stop(Stop::Wait(_))) => {}
            // As the executor does: the key goes, and the command runs again.
            Err(Failure::Stop(Stop::Expired(key))) => {
                self.out.clear();
                let stripe = SPACE.place(&key).stripe();
                let mut unit = Unit::try_one(&SPACE, stripe).expect("nobody else is here");
                let mut view = unit.view(&mut self.local, db, self.now_ms);
                assert!(view.find(&key, Trace::Quiet).is_none(), "it has expired");
                view.finish();
                unit.commit(&mut self.local);
                return self.call(id, args, db, proto);
            }
            Err(failure) => {
                self.out.clear();
                Reply::new(&mut self.out, proto).error_bytes(&failure.expect_error().text());
            }
        }
        let reply = self.out.chunks().collect::<Vec<_>>().concat();
        let skipped = Skipper::new().skip(&reply).expect("a reply");
        assert_eq!(
            (skipped.replies, skipped.consumed),
            (1, reply.len()),
            "one whole reply"
        );
        self.out.clear();
        self.local.events.drain(..);
        self.local.garbage.clear();
        self.free_flushed();
        Some(reply)
    }

    /// The same in database 0, by the words of a command.
    pub fn words(&mut self, words: &[&[u8]]) -> Option<Vec<u8>> {
        let second = words.get(1).copied();
        let id = spec::resolve(words[0], second).expect("a command");
        let mut argv = ArgsBuf::default();
        words.iter().for_each(|word| argv.push(word));
        self.call(id, argv.as_args(), 0, Proto::Resp2)
    }

    /// The only keys that there are go: less work than [`Runner::finish`].
    pub fn leave(mut self, keys: &[&str]) {
        for key in keys {
            self.words(&[b"DEL", key.as_bytes()]);
        }
        self.local.heap.tick();
        self.weigh();
    }

    /// Everything goes, key by key, and nothing is left in the account. A flush would look at every slot.
    pub fn finish(mut self) {
        // Back to where nothing has expired, so that a walk meets all keys.
        self.now_ms = 1;
        let del = spec::resolve(b"DEL", None).expect("a command");
        let mut argv = ArgsBuf::default();
        for db in 0..DATABASES {
            argv.clear();
            argv.push(b"DEL");
            let mut unit = take(&StripeSet::all());
            let mut view = unit.view(&mut self.local, db, self.now_ms);
            view.database().for_each(|key, _| argv.push(key));
            view.finish();
            unit.commit(&mut self.local);
            self.call(del, argv.as_args(), db, Proto::Resp2);
            assert_eq!(SPACE.key_count(db), 0, "keys are left");
        }
        self.local.heap.tick();
        self.weigh();
    }

    /// The account is as it was when it was empty: with a key in it, since it says nothing below zero.
    fn weigh(&mut self) {
        self.words(&[b"SET", b"weight", &[b'w'; 10_000]]);
        self.local.flush_account(&SPACE);
        let weight = SPACE.used_bytes();
        assert_eq!(
            weight,
            *WEIGHT.get_or_init(|| weight),
            "bytes are left in the account, or were taken out twice"
        );
        self.words(&[b"DEL", b"weight"]);
        self.local.flush_account(&SPACE);
    }

    fn free_flushed(&mut self) {
        let flushed: Vec<_> = self.local.flushed.drain(..).collect();
        flushed
            .into_iter()
            .for_each(|table| table.free(&SPACE, &mut self.local.heap));
    }
}

/// Takes what the server takes for a command that stands alone.
fn unit(id: CommandId, args: Args<'_>) -> Unit<'static> {
    match spec::gate(id).scope {
        Scope::None | Scope::Counters | Scope::OneStripe => Unit::none(&SPACE),
        Scope::All | Scope::KeysPlus => take(&StripeSet::all()),
        Scope::Keys => {
            let mut set = StripeSet::EMPTY;
            spec::reachable_keys(id, args.len(), |at| args.get(at).unwrap_or_default())
                .filter_map(|key| args.get(key.position))
                .for_each(|key| set.insert(SPACE.place(key).stripe()));
            take(&set)
        }
    }
}

fn take(set: &StripeSet) -> Unit<'static> {
    Unit::try_set(&SPACE, set, false).expect("nobody else is here")
}
