//! A caller: the state of a client that its commands use. It needs no connection.
//!
//! A caller belongs to one executor. Its [`ClientInfo`] is the part that other threads read and change: CLIENT LIST
//! reads it, CLIENT KILL marks it. Must not know: how commands run.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering},
};

use redline_acl::{User, Users};
use redline_keyspace::{Unit, WaitSlot, WatchFlag};
use redline_resp::{ArgsBuf, Mark, Proto, ProtocolError, Reply, ReplyBuffer};
use redline_spec::CommandId;

use crate::{
    executor::block::{Again, Wait},
    pubsub::Kind,
    subscriptions::Subscriptions,
    tracking::Mode,
};

/// Identifies a session on some worker: worker, place in its slab, generation of that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

impl Token {
    const INDEX_BITS: u32 = 24;
    const GENERATION_BITS: u32 = 28;
    const FIRST_STRIPE_INDEX: usize = (1 << Self::INDEX_BITS) - redline_keyspace::lock::STRIPES;

    /// Packs the three parts.
    pub fn new(executor: usize, index: usize, generation: u32) -> Token {
        debug_assert!(index < 1 << Self::INDEX_BITS);
        let generation = u64::from(generation) & ((1 << Self::GENERATION_BITS) - 1);
        Token(
            (executor as u64) << (Self::INDEX_BITS + Self::GENERATION_BITS)
                | generation << Self::INDEX_BITS
                | index as u64,
        )
    }

    /// Returns the token of a worker's unfinished unwatching in a stripe: a place that no session takes.
    pub fn of_stripe(executor: usize, stripe: u16) -> Token {
        Token::new(executor, Self::FIRST_STRIPE_INDEX + usize::from(stripe), 0)
    }

    /// The token of the link to a primary, with the first executor: a place that no session takes, and no stripe.
    pub const LINK: Token = Token(Self::FIRST_STRIPE_INDEX as u64 - 1);

    /// Returns the stripe, if this is the token of one.
    pub fn stripe(self) -> Option<u16> {
        Some(self.index().checked_sub(Self::FIRST_STRIPE_INDEX)? as u16)
    }

    /// Returns the worker's number.
    pub fn executor(self) -> usize {
        (self.0 >> (Self::INDEX_BITS + Self::GENERATION_BITS)) as usize
    }

    /// Returns the place in the worker's slab.
    pub fn index(self) -> usize {
        (self.0 & ((1 << Self::INDEX_BITS) - 1)) as usize
    }
}

/// Stands for the number of a client's last command if it has called none yet, or one that does not exist.
pub const NO_COMMAND: u16 = u16::MAX;

/// Public state of a client, which every worker may read. Counters are written by its worker only, with plain stores.
// As with `Session`.
#[repr(C)]
pub struct ClientInfo {
    /// Set by CLIENT KILL, and when a limit ends the client: no command runs after this, the worker closes the connection.
    pub killed: AtomicBool,
    /// Number of the last command, or [`NO_COMMAND`].
    pub command: AtomicU16,
    /// Time of the last activity: Unix time in seconds.
    pub active_s: AtomicU32,
    /// Bytes read from and written to the peer, commands run.
    pub net_in: AtomicU64,
    /// See `net_in`.
    pub net_out: AtomicU64,
    /// See `net_in`.
    pub commands: AtomicU64,
    /// Largest number of reply bytes of a recent batch.
    pub output_peak: AtomicU64,
    /// Bytes in the query buffer after the last batch, and its capacity.
    pub query_bytes: AtomicU64,
    /// See `query_bytes`.
    pub query_capacity: AtomicU64,
    /// Bytes of replies that wait to be sent.
    pub output_bytes: AtomicU64,
    /// Capacity of the reply buffer: bytes.
    pub output_capacity: AtomicU64,
    /// Number of blocks in which Redis would keep these bytes, if they do not fit a small buffer.
    pub output_pieces: AtomicU32,
    /// Bytes of arguments that have arrived of an incomplete request, or of the blocked call.
    pub argument_bytes: AtomicU64,
    /// Bytes of queued commands.
    pub multi_bytes: AtomicU64,
    /// Total memory of the client: bytes.
    pub memory_bytes: AtomicU64,
    /// The client's id: unique for the life of the process, ascending.
    pub id: u64,
    /// See [`ClientInfo::token`].
    pub(crate) place: AtomicU64,
    /// The peer's address, as CLIENT LIST prints it.
    pub addr: String,
    /// Local address of the connection.
    pub laddr: String,
    /// True if the peer is on this host: by a unix socket, or a loopback address.
    pub is_local: bool,
    /// The socket's descriptor.
    pub fd: i32,
    /// Time of the connection's opening: Unix time in milliseconds.
    pub created_ms: u64,
    /// Names that the client has set: CLIENT SETNAME, and CLIENT SETINFO's library and version.
    pub(crate) names: Mutex<Names>,
    /// Selected database.
    pub db: AtomicU32,
    /// Version of RESP: 2 or 3.
    pub resp: AtomicU16,
    /// See [`flag`].
    pub flags: AtomicU32,
    /// Id of the client that is notified of the keys that this one tracks; 0: itself, -1: it does not track.
    pub redirect: AtomicI64,
    /// Number of channels, and of patterns.
    pub channels: AtomicU32,
    /// See `channels`.
    pub patterns: AtomicU32,
    /// See `channels`.
    pub shard_channels: AtomicU32,
    /// See [`ClientInfo::watched`].
    pub(crate) watch: Mutex<Watch>,
    /// Number of queued commands plus one; 0: not in MULTI.
    pub multi: AtomicU32,
    /// The client's wait in a blocking command, for those who may end it.
    pub wait: WaitSlot,
}

/// Summary of a client's watched keys, for other readers.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Number of keys.
    pub keys: u32,
    /// Flag that is set when one of them has changed.
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
    /// The user that the client has logged in as.
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
    /// In a blocking command, or suspended by CLIENT PAUSE (`b`).
    pub const BLOCKED: u32 = 32;
    /// To be closed after its reply (`c`).
    pub const CLOSING: u32 = 64;
    /// Connected by a unix socket (`U`).
    pub const UNIX: u32 = 128;
    /// Tracks keys (`t`).
    pub const TRACKING: u32 = 256;
    /// Tracks keys for a client that has disconnected (`R`).
    pub const BROKEN_REDIRECT: u32 = 512;
    /// Tracks prefixes (`B`).
    pub const BROADCAST: u32 = 1024;
    /// Tracks keys, except those that it changes itself.
    pub const NO_LOOP: u32 = 2048;
    /// In MONITOR (`O`).
    pub const MONITOR: u32 = 4096;
    /// CLIENT CAPA redirect.
    pub const FOLLOWS_REDIRECTS: u32 = 8192;
    /// A replica (`S`).
    pub const REPLICA: u32 = 16384;
    /// The primary that this server follows (`M`).
    pub const PRIMARY: u32 = 32768;
    /// READONLY (`r`).
    pub const READONLY: u32 = 65536;
}

/// Facts about a client that never change.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The client's id: unique for the life of the process, ascending.
    pub id: u64,
    /// The peer's address, as CLIENT LIST prints it.
    pub addr: String,
    /// Local address of the connection.
    pub laddr: String,
    /// True if the peer is on this host: by a unix socket, or a loopback address.
    pub is_local: bool,
    /// True if the client is connected by a unix socket.
    pub is_unix: bool,
    /// The socket's descriptor.
    pub fd: i32,
    /// Time of the connection's opening: Unix time in milliseconds.
    pub created_ms: u64,
}

impl ClientInfo {
    /// Creates the info of a new client, as `user`.
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

    /// Locks and returns the names that the client has set.
    pub fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().expect("no panic under the names")
    }

    /// Returns the token of its session now. Messages to an earlier token are forwarded, see `worker/handover.rs`.
    #[inline]
    pub fn token(&self) -> Token {
        Token(self.place.load(Ordering::Acquire))
    }

    /// Sets the token of its session.
    pub fn move_to(&self, to: Token) {
        self.place.store(to.0, Ordering::Release);
    }

    /// Returns the number of watched keys, 0 if one of them has changed: EXEC will fail, whatever happens to the
    /// others. And true if one has changed.
    pub fn watched(&self) -> (u32, bool) {
        let watch = self.watch.lock().expect("no panic under the watch");
        match &watch.flag {
            Some(flag) if flag.is_raised() => (0, true),
            _ => (watch.keys, false),
        }
    }

    /// Sets the number of watched keys and their flag.
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

/// Reason why a session is suspended, holding nothing. The thread that removes the reason wakes the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// A stripe in use.
    Stripe(u16),
    /// The ticket, held by another session.
    Ticket,
    /// A script is running.
    Script,
    /// Too many bytes on their way to subscribers.
    Transit,
    /// A blocking command that waits for its keys.
    Keys,
    /// CLIENT PAUSE.
    Pause,
    /// A file that is being written or loaded.
    File,
    /// Another server, to which keys are sent.
    Target,
}

impl Suspended {
    /// Returns true if a client asked for the wait, which may be long. The other reasons pass by themselves, soon.
    pub fn is_wanted(self) -> bool {
        matches!(self, Suspended::Keys | Suspended::Pause)
    }

    /// Returns true if the session of a peer that has gone need not go on waiting, which may take long.
    pub fn ends_with_peer(self) -> bool {
        self.is_wanted() || self == Suspended::File
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

/// A transaction that is being queued.
#[derive(Default)]
pub struct Multi {
    /// The commands, in order.
    pub queue: Vec<(CommandId, ArgsBuf)>,
    /// Bytes of their arguments, counted as part of the query buffer.
    pub bytes: usize,
    /// True if a command was refused: EXEC will abort.
    pub broken: bool,
}

/// A key that the session watches.
pub struct Watched {
    /// Database of the key.
    pub db: u32,
    /// The key.
    pub key: Box<[u8]>,
    /// True if the key existed when it was watched: then its expiry counts as a change.
    pub existed: bool,
}

/// A watch that has ended and is yet to be removed from its key.
pub struct EndedWatch {
    /// The key's database.
    pub db: u32,
    /// The key.
    pub key: Box<[u8]>,
    /// Flag that stands for the watcher in the key's stripe.
    pub flag: Arc<WatchFlag>,
    /// True if the stripe was in use; it wakes the worker.
    pub waits: bool,
}

/// State of a client that its commands use, and the buffer of their replies. Needs no connection.
// Fields that every batch uses stand first, in as few cache lines as possible: the kernel evicts them from the near caches.
#[repr(C)]
pub struct Caller {
    /// Public part of the state.
    pub info: Arc<ClientInfo>,
    /// Replies that wait to be sent.
    pub out: ReplyBuffer,
    /// Everything but ordinary request and reply (MULTI, subscriptions, missing authentication, CLIENT REPLY, …) sets
    /// a bit here, so that an ordinary command checks one word.
    pub state: u32,
    /// The selected database.
    pub db: u32,
    /// Protocol of the replies.
    pub proto: Proto,
    /// Mode set by CLIENT REPLY.
    pub reply_mode: ReplyMode,
    /// True if no command runs any more; the connection is closed once `out` has been sent.
    pub closing: bool,
    /// True if the client info reports no buffers.
    pub shown_empty: bool,
    /// True if the client was queued for the ticket or the script mutex, or has been handed it.
    pub in_line: bool,
    /// Number of failed rounds of the suspended command; see the ticket.
    pub rounds: u32,
    /// Version of the users that `user` belongs to.
    pub rules: u64,
    /// Reason for which the client is suspended, if it is.
    pub suspended: Option<Suspended>,
    /// The open transaction.
    pub multi: Multi,
    /// User that the client has logged in as.
    pub user: Arc<User>,
    /// Watched keys, and the flag that is set when one changes.
    pub watched: Vec<Watched>,
    /// See `watched`.
    pub watch_flag: Arc<WatchFlag>,
    /// Subscriptions of the client, if it has any.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// Mode in which the client tracks keys, if it does.
    pub tracking: Option<Box<Mode>>,
    /// Memory of its subscriptions, watches and prefixes, here and in the indexes: bytes.
    pub registered_bytes: usize,
    /// The client's wait, if it is suspended for keys.
    pub wait: Option<Wait>,
    /// State of a call that has waited and runs again.
    pub again: Option<Again>,
    /// Number of the journal's last record that is due to this client's calls; 0: none.
    pub own_record: u64,
    /// Number of the last record of another's that replies of this client may tell of, where such replies wait for other
    /// servers.
    pub seen_record: u64,
    /// Number of changes of what is served, in a cluster, when its call was judged: see `executor/slots.rs`. `None`: it is
    /// obeyed without a judgement, as a file that is loaded. [`u64::MAX`]: it is judged again in any case.
    pub judged_at: Option<u64>,
    /// Stripes that the client's ticket covers, if it owns the ticket.
    pub ticket: Option<Box<redline_keyspace::lock::StripeSet>>,
}

/// Bytes taken by a name under which a session is registered, besides the name itself: about a node of the map that
/// indexes it, and its places in lists.
pub const REGISTERED_BYTES: usize = 96;

/// Bits of [`Caller::state`].
pub mod state {
    /// A password is required and was not given.
    pub const UNAUTHENTICATED: u32 = 1;
    /// In MULTI.
    pub const MULTI: u32 = 2;
    /// Subscribed, in RESP2: few commands are allowed.
    pub const SUBSCRIBED: u32 = 4;
    /// CLIENT REPLY OFF or SKIP.
    pub const REPLY: u32 = 8;
    /// CLIENT NO-TOUCH.
    pub const NO_TOUCH: u32 = 16;
    /// CLIENT TRACKING.
    pub const TRACKING: u32 = 32;
    /// Subscribed, in either protocol: its own command may publish to it.
    pub const LISTENS: u32 = 64;
    /// The running command has confirmed a subscription, which is a push and no reply.
    pub const CONFIRMED: u32 = 128;
    /// MONITOR: commands on keys are refused.
    pub const MONITOR: u32 = 256;
    /// Has spoken of replication: it is, or may become, a replica.
    pub const REPLICA: u32 = 512;
    /// Another node of the cluster, which passes on what is published there.
    pub const NODE: u32 = 1 << 20;
    /// ASKING: the next call, or the transaction that it opens, is served in a slot that is on its way to this node.
    pub const ASKING: u32 = 1 << 21;
    /// The user has restrictions.
    pub const RESTRICTED: u32 = 1 << 31;
}

impl Caller {
    /// Creates a new caller, logged in as `user`; it may turn out not to be logged in yet (see `access.rs`).
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
            own_record: 0,
            seen_record: 0,
            judged_at: None,
            ticket: None,
        }
    }

    /// Notes the number of a record that one of its calls has led to.
    #[inline]
    pub(crate) fn note_record(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.own_record = number;
        }
    }

    /// Notes what a reply may tell of that is made with the stripes of this unit held.
    #[inline]
    pub(crate) fn note_seen(&mut self, unit: &Unit<'_>) {
        if unit.space().is_of_cluster() {
            self.note_seen_record(unit.last_record());
        }
    }

    /// Notes the last record that a reply may tell of.
    #[inline]
    pub(crate) fn note_seen_record(&mut self, record: u64) {
        self.seen_record = self.seen_record.max(record);
    }

    /// Returns the last record that replies of this client may tell of.
    pub fn told_record(&self) -> u64 {
        self.own_record.max(self.seen_record)
    }

    /// Resumes the client if CLIENT PAUSE has suspended it. Returns true if it has.
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

    /// Replies with a protocol error and closes the connection.
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

    /// Returns true if it is in this state.
    #[inline]
    pub fn is(&self, bits: u32) -> bool {
        self.state & bits != 0
    }

    /// Counts a name under which the client is registered: a channel, a pattern, a watched key, a prefix.
    pub fn note_registered(&mut self, name: &[u8]) {
        self.registered_bytes += REGISTERED_BYTES + name.len();
        self.shown_empty = false;
    }

    /// Reverses [`Caller::note_registered`].
    pub fn note_unregistered(&mut self, name: &[u8]) {
        self.registered_bytes -= REGISTERED_BYTES + name.len();
        self.shown_empty = false;
    }

    /// Closes the client without a reply: none of its commands runs any more, and replies that wait to be sent,
    /// encrypted or not, are dropped.
    pub fn end_at_once(&mut self) {
        self.closing = true;
        self.out.clear();
        self.info.killed.store(true, Ordering::Release);
    }

    /// Keeps the reply of a command behind `mark`, unless CLIENT REPLY forbids it. Confirmations of subscriptions are
    /// kept always.
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

    /// Does the same for a part of a reply: that of a queued command.
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

    /// Changes the user of the session.
    pub fn become_user(&mut self, user: &Arc<User>, rules: u64) {
        self.set_state(state::RESTRICTED, !user.is_unrestricted());
        if self.user.name() != user.name() {
            let mut names = self.info.names();
            names.user = user.name().to_vec();
        }
        self.user = user.clone();
        self.rules = rules;
    }

    /// Resets the user as for a new connection: the default user, which may have to log in.
    pub fn become_default(&mut self, users: &Users) {
        self.become_user(users.default_user(), users.version());
        self.set_state(state::UNAUTHENTICATED, users.login_required());
    }

    /// Returns true if it holds a subscription that its user may not have any more.
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
