//! A caller: what commands know of the client that they run for. It needs no connection.
//!
//! A caller belongs to one executor. Its [`ClientInfo`] is what other threads may see and do: CLIENT LIST reads it,
//! CLIENT KILL marks it. Must not know: how commands run.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering},
};

use redline_acl::{User, Users};
use redline_keyspace::{WaitSlot, WatchFlag};
use redline_resp::{ArgsBuf, Mark, Proto, ProtocolError, Reply, ReplyBuffer};
use redline_spec::CommandId;

use crate::{
    executor::block::{Again, Wait},
    pubsub::Kind,
    subscriptions::Subscriptions,
    tracking::Mode,
};

/// Names a session on some worker: worker, place in its slab, generation of that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

impl Token {
    const INDEX_BITS: u32 = 24;
    const GENERATION_BITS: u32 = 28;
    const FIRST_STRIPE_INDEX: usize = (1 << Self::INDEX_BITS) - redline_keyspace::lock::STRIPES;

    /// Packs the three.
    pub fn new(executor: usize, index: usize, generation: u32) -> Token {
        debug_assert!(index < 1 << Self::INDEX_BITS);
        let generation = u64::from(generation) & ((1 << Self::GENERATION_BITS) - 1);
        Token(
            (executor as u64) << (Self::INDEX_BITS + Self::GENERATION_BITS)
                | generation << Self::INDEX_BITS
                | index as u64,
        )
    }

    /// Names a worker's unfinished unwatching in a stripe: a place that no session takes.
    pub fn of_stripe(executor: usize, stripe: u16) -> Token {
        Token::new(executor, Self::FIRST_STRIPE_INDEX + usize::from(stripe), 0)
    }

    /// The stripe, if this is one of those.
    pub fn stripe(self) -> Option<u16> {
        Some(self.index().checked_sub(Self::FIRST_STRIPE_INDEX)? as u16)
    }

    /// The worker's number.
    pub fn executor(self) -> usize {
        (self.0 >> (Self::INDEX_BITS + Self::GENERATION_BITS)) as usize
    }

    /// The place in the worker's slab.
    pub fn index(self) -> usize {
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as usize
    }
}

/// In place of the number of a client's last command: it has called none yet, or one that does not exist.
pub const NO_COMMAND: u16 = u16::MAX;

/// Public state of a client, which every worker may read. Counters are written by its worker only, with plain stores.
// As with `Session`.
#[repr(C)]
pub struct ClientInfo {
    /// Set by CLIENT KILL, and when a limit ends it: no command runs after this, the worker closes it.
    pub killed: AtomicBool,
    /// Last command, as its number, or [`NO_COMMAND`].
    pub command: AtomicU16,
    /// Last activity: Unix time in seconds.
    pub active_s: AtomicU32,
    /// Bytes read from and written to the peer, commands run.
    pub net_in: AtomicU64,
    /// See `net_in`.
    pub net_out: AtomicU64,
    /// See `net_in`.
    pub commands: AtomicU64,
    /// Most bytes of replies of a batch, lately.
    pub output_peak: AtomicU64,
    /// Bytes in the query buffer after the last batch, and its capacity.
    pub query_bytes: AtomicU64,
    /// See `query_bytes`.
    pub query_capacity: AtomicU64,
    /// Bytes of replies that wait for the peer.
    pub output_bytes: AtomicU64,
    /// Bytes that the reply buffer has memory for.
    pub output_capacity: AtomicU64,
    /// Pieces that Redis would keep these bytes in, if they do not fit a small buffer.
    pub output_pieces: AtomicU32,
    /// Bytes of arguments that have arrived of a request that is not whole, or of the call that waits.
    pub argument_bytes: AtomicU64,
    /// Bytes of queued commands.
    pub multi_bytes: AtomicU64,
    /// All of its memory: bytes.
    pub memory_bytes: AtomicU64,
    /// The client's id: unique for the life of the process, ascending.
    pub id: u64,
    /// See [`ClientInfo::token`].
    pub(crate) place: AtomicU64,
    /// The peer's address, as CLIENT LIST prints it.
    pub addr: String,
    /// Our own address.
    pub laddr: String,
    /// It comes from this host: by a unix socket, or a loopback address.
    pub is_local: bool,
    /// The socket's descriptor.
    pub fd: i32,
    /// When it connected: Unix time in milliseconds.
    pub created_ms: u64,
    /// Names that it gave itself: CLIENT SETNAME, and CLIENT SETINFO's library and version.
    pub(crate) names: Mutex<Names>,
    /// Selected database.
    pub db: AtomicU32,
    /// 2 or 3.
    pub resp: AtomicU16,
    /// See [`flag`].
    pub flags: AtomicU32,
    /// The client that is told what this one tracks; 0: itself, -1: it does not track.
    pub redirect: AtomicI64,
    /// Channels, patterns.
    pub channels: AtomicU32,
    /// See `channels`.
    pub patterns: AtomicU32,
    /// See `channels`.
    pub shard_channels: AtomicU32,
    /// See [`ClientInfo::watched`].
    pub(crate) watch: Mutex<Watch>,
    /// Queued commands plus one; 0: not in MULTI.
    pub multi: AtomicU32,
    /// Its wait in a blocking command, for those who may end it.
    pub wait: WaitSlot,
}

/// Summary of a client's watched keys, for other readers.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Keys.
    pub keys: u32,
    /// Flag that tells whether one of them has changed.
    pub flag: Option<Arc<WatchFlag>>,
}

/// See [`ClientInfo::names`].
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub library: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub library_version: Vec<u8>,
    /// The user that it has logged in as.
    pub user: Vec<u8>,
}

/// Bits of [`ClientInfo::flags`].
pub mod flag {
    /// Subscribed to something (`P`).
    pub const PUBSUB: u32 = 1;
    /// In MULTI (`x`).
    pub const MULTI: u32 = 2;
    /// CLIENT NO-EVICT (`e`).
    pub const NO_EVICT: u32 = 8;
    /// CLIENT NO-TOUCH (`T`).
    pub const NO_TOUCH: u32 = 16;
    /// In a blocking command, or held back by CLIENT PAUSE (`b`).
    pub const BLOCKED: u32 = 32;
    /// To be closed after its reply (`c`).
    pub const CLOSING: u32 = 64;
    /// Through a unix socket (`U`).
    pub const UNIX: u32 = 128;
    /// Tracks keys (`t`).
    pub const TRACKING: u32 = 256;
    /// Tracks keys for a client that has gone (`R`).
    pub const BROKEN_REDIRECT: u32 = 512;
    /// Tracks prefixes (`B`).
    pub const BROADCAST: u32 = 1024;
    /// Tracks keys, but not what it changes itself.
    pub const NO_LOOP: u32 = 2048;
    /// Is shown what runs (`O`).
    pub const MONITOR: u32 = 4096;
    /// CLIENT CAPA redirect.
    pub const FOLLOWS_REDIRECTS: u32 = 8192;
}

/// Facts about a client that do not change while it is there.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Its id: unique for the life of the process, ascending.
    pub id: u64,
    /// The peer's address, as CLIENT LIST prints it.
    pub addr: String,
    /// Our own address.
    pub laddr: String,
    /// It comes from this host: by a unix socket, or a loopback address.
    pub is_local: bool,
    /// It comes by a unix socket.
    pub is_unix: bool,
    /// The socket's descriptor.
    pub fd: i32,
    /// When it connected: Unix time in milliseconds.
    pub created_ms: u64,
}

impl ClientInfo {
    /// The info of a client that has just come, as `user`.
    pub fn new(origin: Origin, token: Token, user: &User) -> ClientInfo {
        ClientInfo {
            id: origin.id,
            place: token.0.into(),
            addr: origin.addr,
            laddr: origin.laddr,
            is_local: origin.is_local,
            fd: origin.fd,
            created_ms: origin.created_ms,
            names: Mutex::new(Names {
                user: user.name().to_vec(),
                ..Names::default()
            }),
            active_s: ((origin.created_ms / 1000) as u32).into(),
            db: 0.into(),
            command: NO_COMMAND.into(),
            resp: 2.into(),
            flags: if origin.is_unix { flag::UNIX } else { 0 }.into(),
            redirect: (-1).into(),
            channels: 0.into(),
            patterns: 0.into(),
            shard_channels: 0.into(),
            watch: Mutex::default(),
            multi: 0.into(),
            query_bytes: 0.into(),
            query_capacity: 0.into(),
            argument_bytes: 0.into(),
            multi_bytes: 0.into(),
            output_bytes: 0.into(),
            output_pieces: 0.into(),
            output_capacity: 0.into(),
            output_peak: 0.into(),
            memory_bytes: 0.into(),
            net_in: 0.into(),
            net_out: 0.into(),
            commands: 0.into(),
            killed: false.into(),
            wait: WaitSlot::default(),
        }
    }

    /// The names that it gave itself, for as long as nobody else may read or change them.
    pub fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().expect("no panic under the names")
    }

    /// Where to reach its session now. A message to where it was before is sent on, see `worker/handover.rs`.
    #[inline]
    pub fn token(&self) -> Token {
        Token(self.place.load(Ordering::Acquire))
    }

    /// From now on its session is there.
    pub fn move_to(&self, to: Token) {
        self.place.store(to.0, Ordering::Release);
    }

    /// The number of keys that it watches, none if one of them has changed: EXEC will fail, whatever becomes of the others.
    /// And whether that is so.
    pub fn watched(&self) -> (u32, bool) {
        let watch = self.watch.lock().expect("no panic under the watch");
        match &watch.flag {
            Some(flag) if flag.is_raised() => (0, true),
            _ => (watch.keys, false),
        }
    }

    /// Notes what it watches.
    pub fn set_watched(&self, keys: u32, flag: Option<Arc<WatchFlag>>) {
        *self.watch.lock().expect("no panic under the watch") = Watch { keys, flag };
    }

    /// Sets or clears bits of `flags`.
    pub fn set_flag(&self, bits: u32, on: bool) {
        let flags = self.flags.load(Ordering::Relaxed);
        self.flags.store(
            if on { flags | bits } else { flags & !bits },
            Ordering::Relaxed,
        );
    }
}

/// Why a session waits, holding nothing. Whoever clears the reason wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// This stripe is in use.
    Stripe(u16),
    /// Somebody else has the ticket.
    Ticket,
    /// A script is running.
    Script,
    /// Too much is on its way to subscribers.
    Transit,
    /// A blocking command waits for its keys.
    Keys,
    /// CLIENT PAUSE holds its command back.
    Pause,
}

impl Suspended {
    /// Does it wait because somebody wanted it to, and perhaps for long? The other reasons pass by themselves, soon.
    pub fn is_wanted(self) -> bool {
        matches!(self, Suspended::Keys | Suspended::Pause)
    }
}

/// Mode set by CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyMode {
    /// Replies are sent.
    #[default]
    On,
    /// No replies.
    Off,
    /// The reply of the next command is not sent; then on again.
    SkipNext,
    /// The running command's reply is not sent.
    Skipping,
}

/// A transaction being queued.
#[derive(Default)]
pub struct Multi {
    /// The commands, in order.
    pub queue: Vec<(CommandId, ArgsBuf)>,
    /// Bytes of their arguments; they count as part of the query buffer.
    pub bytes: usize,
    /// A command was refused: EXEC will abort.
    pub broken: bool,
}

/// A key that the session watches.
pub struct Watched {
    /// Its database.
    pub db: u32,
    /// The key.
    pub key: Box<[u8]>,
    /// It existed when it was watched: then its expiry counts as a change.
    pub existed: bool,
}

/// A watch that has ended and is yet to be taken off its key.
pub struct EndedWatch {
    /// The key's database.
    pub db: u32,
    /// The key.
    pub key: Box<[u8]>,
    /// Flag by which the key's stripe knows the watcher.
    pub flag: Arc<WatchFlag>,
    /// The stripe was in use; it wakes the worker.
    pub waits: bool,
}

/// The state of a client that its commands use, and the place of their replies. Needs no connection.
// What every batch uses stands first, in as few cache lines as it takes: the kernel leaves none of them near.
#[repr(C)]
pub struct Caller {
    /// Its public part.
    pub info: Arc<ClientInfo>,
    /// Replies that wait to be sent.
    pub out: ReplyBuffer,
    /// Everything but ordinary request and reply (MULTI, subscriptions, missing authentication, CLIENT REPLY, …) sets
    /// a bit here, so that an ordinary command checks one word.
    pub state: u32,
    /// The selected database.
    pub db: u32,
    /// The protocol of its replies.
    pub proto: Proto,
    /// Mode set by CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// No command runs any more; the connection is closed once `out` has gone.
    pub closing: bool,
    /// Its client info says that it holds no buffers.
    pub shown_empty: bool,
    /// Was told to wait for the ticket or the script mutex: stands in line, or has been handed it.
    pub in_line: bool,
    /// Failed rounds of the command that was suspended; see the ticket.
    pub rounds: u32,
    /// The version of the users that `user` is of.
    pub rules: u64,
    /// Suspended, and why.
    pub suspended: Option<Suspended>,
    /// The open transaction.
    pub multi: Multi,
    /// User that the client has logged in as.
    pub user: Arc<User>,
    /// Watched keys, and the flag that says that one changed.
    pub watched: Vec<Watched>,
    /// See `watched`.
    pub watch_flag: Arc<WatchFlag>,
    /// Subscriptions of the client, if it has any.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// How it tracks keys, if it does.
    pub tracking: Option<Box<Mode>>,
    /// Memory that its subscriptions, watches and prefixes take, here and where they are looked up: bytes.
    pub registered_bytes: usize,
    /// Its wait, if the reason is its keys.
    pub wait: Option<Wait>,
    /// The call has waited and runs again, as this.
    pub again: Option<Again>,
    /// Owns the ticket for these stripes.
    pub ticket: Option<Box<redline_keyspace::lock::StripeSet>>,
}

/// Bytes taken by a name under which a session is registered, besides the name itself: about a node of the map in which it
/// is looked up, and its places in lists.
pub const REGISTERED_BYTES: usize = 96;

/// Bits of [`Caller::state`].
pub mod state {
    /// A password is required and was not given.
    pub const UNAUTHENTICATED: u32 = 1;
    /// In MULTI.
    pub const MULTI: u32 = 2;
    /// Subscribed, and speaking RESP2: few commands are allowed.
    pub const SUBSCRIBED: u32 = 4;
    /// CLIENT REPLY OFF or SKIP.
    pub const REPLY: u32 = 8;
    /// CLIENT NO-TOUCH.
    pub const NO_TOUCH: u32 = 16;
    /// CLIENT TRACKING.
    pub const TRACKING: u32 = 32;
    /// Subscribed, in whichever protocol: it may be sent what its own command publishes.
    pub const LISTENS: u32 = 64;
    /// The running command has confirmed a subscription, which is news and no reply.
    pub const CONFIRMED: u32 = 128;
    /// MONITOR: it is shown what runs, and may not touch keys itself.
    pub const MONITOR: u32 = 256;
    /// Its user may not do everything.
    pub const RESTRICTED: u32 = 1 << 31;
}

impl Caller {
    /// A caller that has just come, logged in as `user`, which may be found not to be logged in yet (see `access.rs`).
    pub fn new(info: Arc<ClientInfo>, user: Arc<User>) -> Caller {
        Caller {
            info,
            out: ReplyBuffer::new(),
            state: 0,
            db: 0,
            proto: Proto::Resp2,
            reply_mode: ReplyMode::On,
            closing: false,
            shown_empty: false,
            in_line: false,
            rounds: 0,
            rules: 0,
            suspended: None,
            multi: Multi::default(),
            user,
            watched: Vec::new(),
            watch_flag: Arc::default(),
            subscriptions: None,
            tracking: None,
            registered_bytes: 0,
            wait: None,
            again: None,
            ticket: None,
        }
    }

    /// If CLIENT PAUSE has suspended it, it goes on. Says whether that is so.
    pub(crate) fn end_pause(&mut self) -> bool {
        let paused = self.suspended == Some(Suspended::Pause);
        if paused {
            self.suspended = None;
            self.info.set_flag(flag::BLOCKED, false);
        }
        paused
    }

    /// Returns a writer of replies in the client's protocol.
    #[inline]
    pub fn reply(&mut self) -> Reply<'_> {
        Reply::new(&mut self.out, self.proto)
    }

    /// The peer has broken the protocol: it is told so, and that is the end.
    pub fn break_off(&mut self, error: ProtocolError) {
        self.reply().error_bytes(&error.error_line());
        self.closing = true;
    }

    /// Sets or clears bits of `state`.
    pub fn set_state(&mut self, bits: u32, on: bool) {
        self.state = if on {
            self.state | bits
        } else {
            self.state & !bits
        };
    }

    /// Is it in this state?
    #[inline]
    pub fn is(&self, bits: u32) -> bool {
        self.state & bits != 0
    }

    /// It is registered under this name somewhere: a channel, a pattern, a watched key, a prefix.
    pub fn note_registered(&mut self, name: &[u8]) {
        self.registered_bytes += REGISTERED_BYTES + name.len();
        self.shown_empty = false;
    }

    /// The reverse.
    pub fn note_unregistered(&mut self, name: &[u8]) {
        self.registered_bytes -= REGISTERED_BYTES + name.len();
        self.shown_empty = false;
    }

    /// Ends it without a word: nothing of its runs any more, and what waits to be sent, encrypted or not, is not waited
    /// for.
    pub fn end_at_once(&mut self) {
        self.closing = true;
        self.out.clear();
        self.info.killed.store(true, Ordering::Release);
    }

    /// The reply of a command stands behind `mark`, unless CLIENT REPLY is against it. What confirms subscriptions is
    /// not concerned.
    pub fn settle_reply(&mut self, mark: Mark) {
        if !self.is(state::REPLY) {
            return;
        }
        self.settle_part(mark);
        if self.reply_mode == ReplyMode::Skipping {
            self.reply_mode = ReplyMode::On;
            self.set_state(state::REPLY, false);
        }
    }

    /// The same for a part of a reply: that of a queued command.
    pub fn settle_part(&mut self, mark: Mark) {
        if !self.is(state::REPLY) {
            return;
        }
        let confirmed = self.is(state::CONFIRMED);
        self.set_state(state::CONFIRMED, false);
        if !confirmed && matches!(self.reply_mode, ReplyMode::Off | ReplyMode::Skipping) {
            self.out.truncate(mark);
        }
    }

    /// From now on the session is this user's.
    pub fn become_user(&mut self, user: &Arc<User>, rules: u64) {
        self.set_state(state::RESTRICTED, !user.is_unrestricted());
        if self.user.name() != user.name() {
            let mut names = self.info.names();
            names.user = user.name().to_vec();
        }
        self.user = user.clone();
        self.rules = rules;
    }

    /// As a fresh connection: the default user's, who may have to log in.
    pub fn become_default(&mut self, users: &Users) {
        self.become_user(users.default_user(), users.version());
        self.set_state(state::UNAUTHENTICATED, users.login_required());
    }

    /// Does it hold a subscription that its user may not have any more?
    pub(crate) fn has_lost_channels(&self, before: &User, user: &User) -> bool {
        let Some(subscriptions) = self.subscriptions.as_deref() else {
            return false;
        };
        user.channels_left_after(before).is_some_and(|left| {
            [Kind::Channel, Kind::Shard, Kind::Pattern]
                .into_iter()
                .any(|kind| {
                    let mut names = subscriptions.of(kind).iter();
                    !names.all(|name| left.allow(name, kind == Kind::Pattern))
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use redline_acl::Dialect;

    use super::*;

    fn caller() -> Caller {
        let users = Users::new(&Dialect {
            open_channels: false,
            split: redline_resp::split_words,
        });
        let user = users.default_user().clone();
        let origin = Origin {
            id: 1,
            addr: "127.0.0.1:1".into(),
            laddr: "127.0.0.1:2".into(),
            is_local: true,
            is_unix: false,
            fd: 3,
            created_ms: 4_000,
        };
        let info = ClientInfo::new(origin, Token::new(0, 0, 0), &user);
        Caller::new(Arc::new(info), user)
    }

    #[test]
    fn a_token_names_executor_and_place() {
        let token = Token::new(511, 70_000, 5);
        assert_eq!((token.executor(), token.index()), (511, 70_000));
        assert_eq!(token.stripe(), None);
        assert_ne!(token, Token::new(511, 70_000, 6));
        let of_stripe = Token::of_stripe(3, 1023);
        assert_eq!((of_stripe.executor(), of_stripe.stripe()), (3, Some(1023)));
    }

    #[test]
    fn a_skipped_reply_is_taken_back_and_the_next_is_not() {
        let mut caller = caller();
        caller.reply_mode = ReplyMode::Skipping;
        caller.set_state(state::REPLY, true);
        let mark = caller.out.mark();
        caller.reply().ok();
        caller.settle_reply(mark);
        assert_eq!(caller.out.bytes(), b"");
        let mark = caller.out.mark();
        caller.reply().ok();
        caller.settle_reply(mark);
        assert_eq!(caller.out.bytes(), b"+OK\r\n");
    }

    #[test]
    fn what_confirms_a_subscription_is_no_reply() {
        let mut caller = caller();
        caller.reply_mode = ReplyMode::Off;
        caller.set_state(state::REPLY | state::CONFIRMED, true);
        let mark = caller.out.mark();
        caller.reply().ok();
        caller.settle_reply(mark);
        assert_eq!(caller.out.bytes(), b"+OK\r\n");
        assert!(!caller.is(state::CONFIRMED), "one reply only");
    }
}
