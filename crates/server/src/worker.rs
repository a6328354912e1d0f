//! A worker: one thread, its poller, its connections, its timers.
//!
//! One turn of the loop: wait for events, read the clock, fetch messages, serve the sessions that are
//! ready, look after the timers. Sessions are served in *groups*: sockets are read until there is enough for some dozens of
//! requests, so that the passes of `exec.rs` have something to overlap also where pipelines are short; then all of it
//! is decoded, the group is executed, and each session written to once.
//!
//! A session that is being served is taken out of the slab. While a script turns the loop from inside
//! (see `planes/scripting.rs`), what arrives for such a session waits in its place.
//!
//! Must not know: what any command does.

use std::{collections::VecDeque, io, mem, sync::Arc, sync::atomic::Ordering, time::Duration};

use redline_acl::User;
use redline_keyspace::{
    Hint, Local, WaitSlot, Waiter,
    lock::Wait,
    upkeep::{Expiring, ExpiryCursor},
};
use redline_net::{
    BufferPool, Flush, Interest, Listener, Mailbox, PeerAddr, Poller, Read, Signal, Signals,
    Stream, Timers, clock, flush,
};
use redline_resp::{Blob, Decoded, Proto, ProtocolError, Reply, ReplyBuffer, RequestLimits};
use redline_scripting::Host;
use redline_table::heap::Compaction;

use crate::{
    block::Again,
    cron,
    exec::Batch,
    log, monitor,
    planes::client::described,
    pubsub::Delivery,
    session::{
        Aside, Card, Deferred, EndedWatch, Names, ReplyMode, Session, Token, Unit, flag, state,
    },
    settings::Settings,
    shared::{Message, Pause, Shared},
    stats::WorkerStats,
    timing::Timing,
    tracking::{self, Invalidation, News},
};

/// Requests that are prefetched and executed together. What one session has sent is not torn apart below this: its
/// replies would be written twice.
const GROUP_REQUESTS_MAX: usize = 1024;
/// Bytes of requests with which a group is large enough: about a hundred small requests, whose keys' cache lines fit
/// into the CPU's nearer caches.
const GROUP_BYTES_ENOUGH: usize = 4 * 1024;
/// Sessions of one group.
const GROUP_SESSIONS_MAX: usize = 64;
/// Groups between two looks at the poller, the mailbox and the timer: whoever sends without end keeps nobody waiting.
const GROUPS_PER_TURN_MAX: usize = 16;
/// What one read of a socket takes at most.
const READ_BYTES_MAX: usize = 16 * 1024;
/// A reply buffer that has grown beyond this is given back when it is empty.
const REPLY_BYTES_KEPT_MAX: usize = 64 * 1024;
/// Redis keeps replies up to this size in a buffer, and larger ones in a list of such pieces, as CLIENT LIST tells.
const REPLY_PIECE_BYTES: usize = 16 * 1024;
/// Empty reply buffers that are kept for the next sessions.
const REPLY_BUFFERS_MAX: usize = 256;
/// Output that no limit counts: in Redis each client has a fixed buffer of that size.
const OUTPUT_BYTES_FREE: u64 = 16 * 1024;
/// What a client that has not authenticated may leave unread (CVE-2025-21605).
const UNAUTHENTICATED_OUTPUT_BYTES_MAX: usize = 1024;
/// What a client that has not authenticated may have in its query buffer.
const UNAUTHENTICATED_QUERY_BYTES_MAX: u64 = 1024 * 1024;
/// A handshake of TLS that takes longer is broken off: milliseconds.
const HANDSHAKE_MS_MAX: u64 = 10_000;
/// Pieces of one vectored write.
const SLICES_MAX: usize = 64;

const WAKER: usize = 0;
const SIGNALS: usize = 1;
const FIRST_LISTENER: usize = 2;
const FIRST_SESSION: usize = 64;

/// What a worker is given at its start.
pub struct Start {
    /// Its number.
    pub number: usize,
    /// What it shares.
    pub shared: Arc<Shared>,
    /// Its poller, with the mailbox's waker registered.
    pub poller: Poller,
    /// Its mailbox.
    pub mailbox: Mailbox<Message>,
    /// Listeners; the first worker has them all.
    pub listeners: Vec<Arc<Listener>>,
    /// Signals; the first worker has them, and not inside another program.
    pub signals: Option<Signals>,
}

/// See the module's text.
pub struct Worker {
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// Its number.
    pub number: usize,
    /// The settings, as of `epoch`.
    pub settings: Arc<Settings>,
    /// The epoch of `settings`.
    pub epoch: u64,
    /// The version of the users in `settings`, as the sessions have it.
    pub rules: u64,
    /// Its share of the keyspace's memory, randomness and counters.
    pub local: Local,
    /// Its counters.
    pub stats: Arc<WorkerStats>,
    /// Wall clock of this turn: Unix time in milliseconds.
    pub now_ms: i64,
    /// Its Lua interpreter; taken out while a script runs.
    pub host: Option<Host>,
    /// What the last script had as its unit, empty again.
    pub(crate) spare_unit: Option<Box<Unit>>,
    /// Depth of turns inside a script's hook.
    pub depth: u32,
    /// Replies of a session beyond this are looked at before its next request: the least hard limit of output.
    pub(crate) output_watched_bytes: usize,
    /// Limits on requests, for sessions that are authenticated.
    pub request_limits: RequestLimits,
    /// Watches whose stripe was in use when they ended.
    pub unwatching: Vec<EndedWatch>,
    /// Ended waits that still stand in queues whose stripe was in use.
    pub(crate) leaving: Vec<Arc<Waiter>>,
    /// When waits for keys end.
    pub(crate) waits: Timers<Arc<Waiter>>,
    /// What CLIENT PAUSE holds back.
    pub(crate) pause: Option<Pause>,
    /// Somebody is shown every command.
    pub(crate) monitored: bool,
    /// No command may take the straight path: something may hold it back, or has to see it.
    pub(crate) detour: bool,
    /// Active expiry.
    pub expiry: ExpiryCursor,
    /// The same for elements of collections.
    pub element_expiry: ExpiryCursor,
    /// A compaction that this worker carries out, and the next stripe.
    pub compaction: Option<(Compaction, usize)>,
    /// When the timer is due: milliseconds of the monotonic clock.
    pub next_tick_ms: u64,
    /// When active expiry goes on, if its last slice left something due: microseconds of the monotonic clock.
    pub(crate) expiry_due_us: Option<u64>,
    /// Whether active expiry rests after its next slice.
    pub(crate) expiry_rests: bool,
    /// When a compaction goes on: the same.
    pub(crate) compaction_due_us: Option<u64>,
    /// How it takes the time of calls.
    pub(crate) timing: Timing,
    /// As of which CONFIG RESETSTAT it takes times; see `Shared::stats_epoch`.
    pub(crate) stats_epoch: u64,
    /// Ticks so far.
    pub ticks: u64,
    /// Set by SHUTDOWN and the signals.
    pub stop: bool,
    poller: Poller,
    mailbox: Mailbox<Message>,
    messages: Vec<Message>,
    /// Messages that were fetched before their time, see `read_own_mail`.
    early: Vec<Message>,
    listeners: Vec<Arc<Listener>>,
    signals: Option<Signals>,
    places: Vec<Place>,
    free: Vec<usize>,
    ready: VecDeque<usize>,
    buffers: BufferPool,
    /// Memory for replies; see [`ReplyBuffer::lend`].
    replies: Vec<Vec<u8>>,
    /// Out while a group is served.
    batch: Option<Box<Batch>>,
    /// The keys of a request of many keys.
    pub(crate) hints: Vec<Hint>,
    group: Vec<Member>,
    /// Connections wait that could not be accepted; they raise no event of their own.
    accept: Accept,
    /// Connections that began with a handshake, and when it must be over, in order.
    handshakes: VecDeque<(Token, u64)>,
}

/// How accepting stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accept {
    /// Listeners are accepted from as they report connections.
    OnEvents,
    /// The last try failed, most likely for want of a descriptor: tried again at the next tick.
    AtTick,
    /// The same, and something was closed since: tried again in this turn.
    AtOnce,
}

/// A place in the slab.
#[derive(Default)]
struct Place {
    generation: u32,
    used: bool,
    /// `None` while the session is being served, and in unused places.
    session: Option<Box<Session>>,
    /// In `ready`.
    queued: bool,
    /// Bytes may be waiting in the socket.
    readable: bool,
    /// The peer has sent all that it will.
    closed: bool,
    /// Messages for a session that was being served.
    mail: Vec<Message>,
}

/// A session of the group being served, with what its requests refer to.
pub struct Member {
    /// The session.
    pub session: Box<Session>,
    /// Its query buffer.
    pub query: Vec<u8>,
    /// The end of the last request that was decoded.
    pub decoded: usize,
    /// Large arguments of its requests.
    pub blobs: Vec<Blob>,
}

impl Worker {
    /// A worker that has not begun.
    pub fn new(start: Start) -> Worker {
        let Start {
            number,
            shared,
            poller,
            mailbox,
            listeners,
            signals,
        } = start;
        let settings = shared.settings.current();
        let stats = shared.workers()[number].stats.clone();
        let workers = shared.workers().len();
        let mut worker = Worker {
            local: Local::new(fastrand::Rng::new(), settings.limits.clone()),
            epoch: 0,
            rules: u64::MAX,
            stats,
            now_ms: clock::wall_ms() as i64,
            host: None,
            spare_unit: None,
            depth: 0,
            output_watched_bytes: usize::MAX,
            request_limits: RequestLimits::default(),
            unwatching: Vec::new(),
            leaving: Vec::new(),
            waits: Timers::new(),
            pause: None,
            monitored: false,
            detour: false,
            expiry: ExpiryCursor::new(Expiring::Keys, number, workers),
            element_expiry: ExpiryCursor::new(Expiring::Elements, number, workers),
            compaction: None,
            next_tick_ms: clock::monotonic_coarse_ms(),
            expiry_due_us: None,
            expiry_rests: false,
            compaction_due_us: None,
            timing: Timing::default(),
            stats_epoch: u64::MAX,
            ticks: 0,
            stop: false,
            messages: Vec::new(),
            early: Vec::new(),
            places: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            buffers: BufferPool::default(),
            replies: Vec::new(),
            batch: None,
            hints: Vec::new(),
            group: Vec::new(),
            accept: Accept::OnEvents,
            handshakes: VecDeque::new(),
            shared,
            number,
            settings,
            poller,
            mailbox,
            listeners,
            signals,
        };
        worker.refresh();
        worker
    }

    /// Runs until told to stop.
    pub fn run(mut self) {
        self.watch_listeners();
        if let Some(signals) = &self.signals {
            self.poller
                .register(signals, SIGNALS, Interest::Read)
                .expect("signals can be watched");
        }
        while !self.stop {
            self.turn(true);
        }
        self.close_all();
        self.local.flush_account(&self.shared.keyspace);
    }

    /// One turn of the loop. `wait`: sleep until something happens; otherwise only look.
    pub fn turn(&mut self, wait: bool) {
        let sleep = self.mailbox.prepare_to_sleep()
            && wait
            && self.ready.is_empty()
            && self.early.is_empty();
        let timeout = if sleep {
            self.time_to_sleep()
        } else {
            Duration::ZERO
        };
        if let Err(error) = self.poller.poll(Some(timeout)) {
            panic!("the poller failed, nothing can be served any more: {error}");
        }
        self.read_clock();
        let began_ms = clock::monotonic_coarse_ms();
        // What is read and decoded goes by limits, too.
        self.refresh_if_changed();
        for index in 0..self.poller.event_count() {
            let event = self.poller.event(index);
            match event.token {
                WAKER => {}
                SIGNALS => self.on_signal(),
                token if token < FIRST_SESSION => self.accept(token - FIRST_LISTENER),
                token => self.on_event(token - FIRST_SESSION, &event),
            }
        }
        self.fetch_messages();
        self.expire_waits();
        self.end_pause();
        self.serve_ready();
        if !self.leaving.is_empty() {
            self.leave_queues();
        }
        let ended_ms = clock::monotonic_coarse_ms();
        self.timing.note_turn(began_ms, ended_ms);
        if ended_ms >= self.next_tick_ms {
            cron::tick(self);
            if self.accept == Accept::AtTick {
                self.accept = Accept::AtOnce;
            }
        }
        if self.expiry_due_us.is_some() || self.compaction_due_us.is_some() {
            cron::go_on(self);
        }
        if self.accept == Accept::AtOnce {
            self.accept_again();
        }
        self.local.heap.tick();
    }

    /// How long until something is due.
    fn time_to_sleep(&self) -> Duration {
        let pause_ms = self.pause.map(|pause| pause.end_ms);
        let due_ms = self.waits.next_deadline_ms().into_iter().chain(pause_ms);
        let mut span_ms = self
            .next_tick_ms
            .saturating_sub(clock::monotonic_coarse_ms());
        // A wait ends to the millisecond, a tick need not.
        if let Some(due_ms) = due_ms.min() {
            span_ms = span_ms.min(due_ms.saturating_sub(clock::monotonic_ms()));
        }
        let slices = [self.expiry_due_us, self.compaction_due_us];
        if let Some(due_us) = slices.into_iter().flatten().min() {
            span_ms = span_ms.min(due_us.saturating_sub(clock::monotonic_us()).div_ceil(1000));
        }
        Duration::from_millis(span_ms)
    }

    /// Lets the commands go on that CLIENT PAUSE has held back, if its time is over or it was called off.
    pub(crate) fn end_pause(&mut self) {
        let Some(pause) = self.pause else { return };
        if clock::monotonic_ms() >= pause.end_ms {
            self.pause = None;
            self.local.keeps_expired = false;
            self.detour = self.monitored;
            self.resume();
        }
    }

    /// Wakes all sessions that CLIENT PAUSE has put aside; if it still holds, they are put aside again.
    pub(crate) fn resume(&mut self) {
        self.for_each_session(|worker, session| {
            if session.aside == Some(Aside::Pause) {
                session.aside = None;
                session.card.set_flag(flag::BLOCKED, false);
                worker.look_again(session);
            }
        });
    }

    /// Reads the wall clock. It is read once per turn, and after whatever took long.
    pub fn read_clock(&mut self) {
        self.now_ms = clock::wall_ms() as i64;
        self.local.clock.now_s = (self.now_ms / 1000) as u32;
    }

    /// Takes over settings if they were published since; before whatever goes by them.
    #[inline]
    pub fn refresh_if_changed(&mut self) {
        if self.shared.settings.epoch() != self.epoch {
            self.refresh();
        }
    }

    /// Listens on these instead of the TCP listeners of before, either those with TLS or those without.
    pub fn replace_tcp_listeners(&mut self, fresh: Vec<Arc<Listener>>, tls: bool) {
        // Who has been let in by the kernel is not turned away for it.
        (0..self.listeners.len()).for_each(|index| self.accept(index));
        let (old, kept) = mem::take(&mut self.listeners)
            .into_iter()
            .partition::<Vec<_>, _>(|listener: &Arc<Listener>| {
                listener.port().is_some() && listener.is_tls() == tls
            });
        for listener in old.iter().chain(&kept) {
            // What cannot be taken off goes when its descriptor closes.
            let _ = self.poller.deregister(&**listener);
        }
        self.listeners = kept.into_iter().chain(fresh).collect();
        self.watch_listeners();
    }

    fn watch_listeners(&self) {
        for (index, listener) in self.listeners.iter().enumerate() {
            self.poller
                .register(&**listener, FIRST_LISTENER + index, Interest::Read)
                .expect("a fresh listener can be watched");
        }
    }

    /// Takes over settings that were published since.
    pub fn refresh(&mut self) {
        self.epoch = self.shared.settings.epoch();
        self.settings = self.shared.settings.current();
        self.pause = *self.shared.pause.lock().expect("no panic under the pause");
        self.local.keeps_expired = self.pause.is_some();
        self.monitored = self.shared.monitors.some();
        self.detour = self.monitored || self.pause.is_some();
        let settings = &self.settings;
        self.timing.adopt(settings, false);
        let stats_epoch = self.shared.stats_epoch.load(Ordering::Acquire);
        if self.stats_epoch != stats_epoch {
            self.stats_epoch = stats_epoch;
            self.timing.begin_anew();
        }
        self.local.limits = settings.limits.clone();
        self.local.notify = settings.notify;
        self.local.clock.lfu = settings.maxmemory_policy.is_lfu();
        self.local.clock.log_factor = settings.lfu_log_factor;
        self.local.clock.decay_minutes = settings.lfu_decay_minutes;
        self.request_limits.bulk_bytes_max = settings.bulk_bytes_max;
        let hard = settings.output_limits.iter().map(|limit| limit.hard_bytes);
        let least = hard.filter(|bytes| *bytes != 0).min();
        self.output_watched_bytes = least.map_or(usize::MAX, |bytes| {
            usize::try_from(bytes.saturating_add(OUTPUT_BYTES_FREE)).unwrap_or(usize::MAX)
        });
        self.local.clock.now_s = (self.now_ms / 1000) as u32;
        self.adopt_users();
    }

    // ---- sessions -----------------------------------------------------------------------------

    fn on_event(&mut self, index: usize, event: &redline_net::Event) {
        let Some(place) = self.places.get_mut(index).filter(|place| place.used) else {
            return;
        };
        place.readable |= event.readable || event.error || event.closed;
        place.closed |= event.closed || event.error;
        self.enqueue(index);
    }

    fn enqueue(&mut self, index: usize) {
        let place = &mut self.places[index];
        if place.used && !place.queued {
            place.queued = true;
            self.ready.push_back(index);
        }
    }

    fn fetch_messages(&mut self) {
        let mut messages = mem::take(&mut self.messages);
        messages.append(&mut self.early);
        self.mailbox.drain(&mut messages);
        for message in messages.drain(..) {
            self.on_message(message);
        }
        // A nested turn may have left a buffer here; keep the larger one.
        if self.messages.capacity() < messages.capacity() {
            self.messages = messages;
        }
    }

    pub(crate) fn on_message(&mut self, message: Message) {
        match message {
            Message::Connection(stream, peer) => self.open(stream, peer),
            Message::Wake(token) if token.stripe().is_some() => self.unwatch_left(token.stripe()),
            Message::Wake(token) => {
                self.with_session(
                    token,
                    || Message::Wake(token),
                    |worker, session| {
                        if let Some(number) = session.gate
                            && worker.shared.keyspace.journal().gate.is_reached(number)
                        {
                            session.gate = None;
                            worker.write_replies(session);
                            worker.enqueue(token.index());
                        }
                        // A wake-up for an earlier reason may come late.
                        if session.aside.is_some_and(|reason| !reason.is_wanted()) {
                            session.aside = None;
                            worker.enqueue(token.index());
                        }
                    },
                );
            }
            Message::WaitEnded(waiter, outcome) => {
                // A message that has to wait for its session comes again, with its reply.
                let token = Token(waiter.token);
                let mut outcome = Some(outcome);
                let held_back = self.is_out(token);
                if held_back {
                    let outcome = outcome.take().unwrap_or_default();
                    self.places[token.index()]
                        .mail
                        .push(Message::WaitEnded(waiter, outcome));
                    return;
                }
                self.with_session(
                    token,
                    || unreachable!("its session is in its place"),
                    |worker, session| {
                        worker.finish_wait(session, &waiter, outcome.take().unwrap_or_default());
                    },
                );
            }
            Message::Kill(token) => {
                self.with_session(
                    token,
                    || Message::Kill(token),
                    |worker, session| {
                        session.closing = true;
                        session.out.clear();
                        worker.enqueue(token.index());
                    },
                );
            }
            Message::Deliver(delivery) => self.deliver(&delivery),
            Message::Invalidate(invalidation) => self.invalidate(&invalidation),
            Message::Redirected(redirected) => {
                let to = redirected.to;
                let again = || Message::Redirected(redirected.clone());
                self.with_session(to, again, |worker, session| {
                    crate::tracking::write(session, &redirected.news, true);
                    worker.enqueue(to.index());
                });
            }
            Message::Monitored(line) => {
                for token in &line.to {
                    let one = || Message::Monitored(line.to_one(*token));
                    self.with_session(*token, one, |worker, session| {
                        if monitor::write(session, &line) {
                            worker.enqueue(token.index());
                        }
                    });
                }
            }
            Message::ScriptBusy => self.answer_busy(),
            Message::Run(run) => run(self),
            Message::Stop => self.stop = true,
        }
    }

    /// Is this session of ours, and being served?
    fn is_out(&self, token: Token) -> bool {
        self.places.get(token.index()).is_some_and(|place| {
            let own = Token::new(self.number, token.index(), place.generation) == token;
            place.used && own && place.session.is_none()
        })
    }

    /// Does something with a session; if it is being served, the message waits for it.
    fn with_session(
        &mut self,
        token: Token,
        message: impl FnOnce() -> Message,
        act: impl FnOnce(&mut Worker, &mut Session),
    ) {
        let Some(place) = self.places.get_mut(token.index()) else {
            return;
        };
        if !place.used || Token::new(self.number, token.index(), place.generation) != token {
            return;
        }
        match place.session.take() {
            None => place.mail.push(message()),
            Some(mut session) => {
                act(self, &mut session);
                self.places[token.index()].session = Some(session);
            }
        }
    }

    fn deliver(&mut self, delivery: &Delivery) {
        for token in &delivery.to {
            let one = || {
                Message::Deliver(Delivery {
                    to: vec![*token],
                    ..delivery.clone()
                })
            };
            self.with_session(*token, one, |worker, session| {
                // Published before the session unsubscribed, and overtaken by that: it would be taken for a reply.
                if !session.closing && crate::subscribe::is_subscribed(session, delivery) {
                    crate::subscribe::write_message(session, delivery);
                    worker.enqueue(token.index());
                }
            });
        }
    }

    fn invalidate(&mut self, invalidation: &Invalidation) {
        for token in &invalidation.to {
            let one = || {
                Message::Invalidate(Invalidation {
                    to: vec![*token],
                    news: invalidation.news.clone(),
                })
            };
            self.with_session(*token, one, |worker, session| {
                if tracking::hear(session, &invalidation.news) {
                    worker.enqueue(token.index());
                }
            });
        }
    }

    /// Takes what others, or its own command, have to tell a session that is being served out of the mailbox, and
    /// writes it behind the reply of that command: after all of its pipeline would be late. All messages stay in order.
    pub(crate) fn read_own_mail(&mut self, session: &mut Session) {
        let mut messages = Vec::new();
        self.mailbox.drain(&mut messages);
        self.early.extend(messages);
        let own = session.card.token;
        let mut early = mem::take(&mut self.early);
        let mail = &mut self.places[own.index()].mail;
        // What was published comes before what was invalidated, as from Redis.
        for invalidations in [false, true] {
            for message in mail.iter_mut().chain(early.iter_mut()) {
                if matches!(message, Message::Invalidate(_)) == invalidations {
                    hear_early(message, own, session);
                }
            }
        }
        mail.retain(|message| !is_delivered(message));
        early.retain(|message| !is_delivered(message));
        self.early = early;
    }

    /// A session that did not track keys begins to: what changed before is no news for it.
    pub(crate) fn drop_old_invalidations(&mut self, session: &Session) {
        let mut messages = Vec::new();
        self.mailbox.drain(&mut messages);
        self.early.extend(messages);
        let own = session.card.token;
        let mail = &mut self.places[own.index()].mail;
        for message in mail.iter_mut().chain(self.early.iter_mut()) {
            if let Message::Invalidate(invalidation) = message {
                invalidation.to.retain(|token| *token != own);
            }
        }
        mail.retain(|message| !is_delivered(message));
        self.early.retain(|message| !is_delivered(message));
    }

    fn open(&mut self, stream: Stream, peer: PeerAddr) {
        self.refresh_if_changed();
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        let token = Token::new(self.number, index, self.places[index].generation);
        if self
            .poller
            .register(&stream, FIRST_SESSION + index, Interest::Read)
            .is_err()
        {
            // The descriptor is of no use: the peer sees its connection closed.
            self.free.push(index);
            self.shared.workers()[self.number]
                .connections
                .fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let user = self.settings.acl.default_user().clone();
        let session = Session::open(&self.shared, token, stream, peer, user, self.now_ms);
        let mut session = Box::new(session);
        session.become_default(&self.settings.acl);
        if session.stream.is_handshaking() {
            let deadline_ms = clock::monotonic_coarse_ms() + HANDSHAKE_MS_MAX;
            self.handshakes.push_back((token, deadline_ms));
        }
        self.update_card(&mut session);
        let card = session.card.clone();
        self.shared
            .clients
            .lock()
            .expect("no panic under the clients")
            .insert(card.id, card);
        let place = &mut self.places[index];
        place.used = true;
        place.session = Some(session);
    }

    /// Closes a session for good; it is out of the slab.
    fn close(&mut self, mut session: Box<Session>) {
        let index = session.card.token.index();
        // The socket closes with the session; a failure to deregister is of no consequence then.
        session.stream.close_notify();
        let _ = self.poller.deregister(&session.stream);
        crate::subscribe::forget(self, &mut session);
        tracking::end(&self.shared, &mut session);
        monitor::end(&self.shared, &mut session);
        let bytes = session.card.memory_bytes.load(Ordering::Relaxed);
        self.stats.client_bytes.add(bytes.wrapping_neg());
        self.unwatch(&mut session);
        self.drop_wait(&mut session);
        self.give_way(&mut session);
        self.shared
            .clients
            .lock()
            .expect("no panic under the clients")
            .remove(&session.card.id);
        self.shared.workers()[self.number]
            .connections
            .fetch_sub(1, Ordering::Relaxed);
        self.keep_query(mem::take(&mut session.query));
        let place = &mut self.places[index];
        *place = Place {
            generation: place.generation.wrapping_add(1),
            ..Place::default()
        };
        self.free.push(index);
        if self.accept == Accept::AtTick {
            self.accept = Accept::AtOnce;
        }
    }

    fn close_all(&mut self) {
        for index in 0..self.places.len() {
            if let Some(mut session) = self.places[index].session.take() {
                if session.gate.is_none() {
                    self.write_out(&mut session);
                }
                self.close(session);
            }
        }
    }

    /// Visits every session that is not being served.
    pub fn for_each_session(&mut self, mut visit: impl FnMut(&mut Worker, &mut Session)) {
        for index in 0..self.places.len() {
            if let Some(mut session) = self.places[index].session.take() {
                visit(self, &mut session);
                self.places[index].session = Some(session);
            }
        }
    }

    /// Has `session`, which waits for its turn, looked at again soon.
    pub fn look_again(&mut self, session: &Session) {
        self.enqueue(session.card.token.index());
    }

    // ---- serving ------------------------------------------------------------------------------

    fn serve_ready(&mut self) {
        for _ in 0..GROUPS_PER_TURN_MAX {
            if self.ready.is_empty() || (self.depth > 0 && self.stop) {
                return;
            }
            let mut group = mem::take(&mut self.group);
            let mut batch = self.batch.take().unwrap_or_default();
            let mut bytes = 0;
            while bytes < GROUP_BYTES_ENOUGH && group.len() < GROUP_SESSIONS_MAX {
                let Some(&index) = self.ready.front() else {
                    break;
                };
                // Deferred requests run as their session joins. One may be a script that turns the loop from
                // inside, and then nobody else may be out of the slab.
                let place = &self.places[index];
                let deferred = place
                    .session
                    .as_ref()
                    .is_some_and(|session| session.deferred.is_some());
                if deferred && !group.is_empty() {
                    break;
                }
                self.ready.pop_front();
                self.places[index].queued = false;
                let Some(session) = self.places[index].session.take() else {
                    continue;
                };
                let member = self.join(session);
                bytes += member.query.len();
                group.push(member);
            }
            // All are read before the first is decoded: the kernel leaves little of our code in the caches.
            for (number, member) in group.iter_mut().enumerate() {
                self.decode(member, number, &mut batch);
            }
            self.execute(&mut group, &mut batch);
            batch.clear();
            for member in group.drain(..) {
                self.leave(member);
            }
            self.group = group;
            self.batch = Some(batch);
        }
    }

    /// Reads what a ready session has sent.
    fn join(&mut self, mut session: Box<Session>) -> Member {
        let index = session.card.token.index();
        if !session.out.has_memory()
            && let Some(memory) = self.replies.pop()
        {
            session.out.lend(memory);
        }
        let mut member = Member {
            query: mem::take(&mut session.query),
            session,
            decoded: 0,
            blobs: Vec::new(),
        };
        if member.session.deferred.is_some() && !member.session.is_put_aside() {
            self.run_deferred(&mut member.session);
        }
        // What is there already comes first: else a long pipeline would pile up in the buffer.
        if !member.session.is_put_aside()
            && !member.session.closing
            && self.places[index].readable
            && !member.session.undecoded
        {
            self.read(&mut member);
        }
        member
    }

    fn read(&mut self, member: &mut Member) {
        let session = &mut member.session;
        let place = &mut self.places[session.card.token.index()];
        if member.query.capacity() == 0 {
            member.query = self.buffers.take();
        }
        let read = match session.decoder.big_bulk() {
            // A large argument is read straight into the allocation that becomes the value.
            Some(bulk) => session.stream.read_into(bulk.reserved(), usize::MAX),
            None => session.stream.read_into(&mut member.query, READ_BYTES_MAX),
        };
        self.stats.reads.add(1);
        match read {
            Ok(Read::Data { bytes, drained }) => {
                place.readable = !drained || place.closed;
                self.stats.net_in.add(bytes as u64);
                let card = &session.card;
                card.net_in.store(
                    card.net_in.load(Ordering::Relaxed) + bytes as u64,
                    Ordering::Relaxed,
                );
                card.active_s
                    .store((self.now_ms / 1000) as u32, Ordering::Relaxed);
                let unauthenticated = session.is(state::UNAUTHENTICATED);
                let limit = match self.settings.query_buffer_bytes_max {
                    limit if unauthenticated => limit.min(UNAUTHENTICATED_QUERY_BYTES_MAX),
                    limit => limit,
                };
                let held = member.query.len() + session.decoder.heap_bytes() + session.multi.bytes;
                if held as u64 > limit {
                    self.stats.query_limit_closed.add(1);
                    session.end_at_once();
                    let client = described(&session.card, self.now_ms);
                    log::warning(&format!(
                        "Closing client that reached max query buffer length: {client} ({held} bytes)"
                    ));
                }
            }
            Ok(Read::WouldBlock) => place.readable = false,
            Ok(Read::Eof) => {
                place.readable = false;
                session.eof_seen = true;
            }
            Err(error) => {
                place.readable = false;
                session.eof_seen = true;
                if session.stream.is_handshaking() {
                    log::warning(&format!(
                        "Error accepting a client connection: {error} (addr={} laddr={})",
                        session.card.addr, session.card.laddr
                    ));
                }
            }
        }
    }

    /// Takes the requests that a session has sent into the batch, as far as that has room.
    fn decode(&mut self, member: &mut Member, number: usize, batch: &mut Batch) {
        let session = &mut member.session;
        if session.is_put_aside() || session.closing {
            return;
        }
        let unauthenticated = session.is(state::UNAUTHENTICATED);
        self.request_limits.unauthenticated = unauthenticated;
        session.undecoded = false;
        while member.decoded < member.query.len() {
            // The limits may be others once an AUTH has run: until then it is one request at a time.
            if batch.len() >= GROUP_REQUESTS_MAX || (unauthenticated && member.decoded > 0) {
                session.undecoded = true;
                break;
            }
            let bytes = &mut member.query[member.decoded..];
            match session.decoder.decode_with(
                &mut batch.heads,
                bytes,
                &self.request_limits,
                &mut batch.spans,
            ) {
                Ok(Decoded::Request { consumed, args, .. }) => {
                    let at = member.decoded;
                    member.decoded += consumed;
                    let (space, blobs) = (&self.shared.keyspace, session.decoder.blobs());
                    batch.add(
                        &self.shared.names,
                        space,
                        number,
                        session.db,
                        &member.query[at..],
                        consumed,
                        blobs,
                        at,
                        args,
                    );
                }
                Ok(Decoded::Empty { consumed }) => member.decoded += consumed,
                Ok(Decoded::Incomplete { need }) => {
                    let wanted = member.query.len() - member.decoded + need;
                    // Room for what is known to come, within reason: the rest grows with what arrives.
                    member.query.reserve(need.min(wanted).min(READ_BYTES_MAX));
                    break;
                }
                Ok(Decoded::Big { keep, taken }) => {
                    let from = member.decoded + keep;
                    member.query.drain(from..from + taken);
                }
                Err(error) => {
                    batch.add_error(number, error);
                    member.decoded = member.query.len();
                    break;
                }
            }
        }
        if !session.decoder.blobs().is_empty() {
            member.blobs = session.decoder.blobs().to_vec();
            session.decoder.release_blobs();
        }
    }

    /// After its requests: writes the replies, keeps what is left of the query, puts the session back.
    fn leave(&mut self, member: Member) {
        let Member {
            mut session,
            mut query,
            decoded,
            ..
        } = member;
        let index = session.card.token.index();
        if decoded >= query.len() {
            self.keep_query(query);
        } else {
            query.drain(..decoded);
            session.query = query;
        }
        if session.rules != self.rules {
            self.adopt_rules(&mut session);
        }
        tracking::before_write(&mut session);
        if session.out.is_empty() || !self.wait_for_gate(&mut session) {
            self.write_replies(&mut session);
        } else {
            self.enforce_output_limit(&mut session);
        }
        // Nobody is there any more to wait: what comes for it stays where it is.
        session.closing |= self.places[index].closed && session.aside.is_some_and(Aside::is_wanted);
        let more = !session.is_put_aside()
            && !session.closing
            && (session.deferred.is_some() || self.places[index].readable || session.undecoded);
        // A peer that has only ended its own direction still gets every reply.
        let ended = session.closing || (session.eof_seen && !more && !session.is_put_aside());
        let done = ended && session.out.is_empty() && !session.stream.has_unsent();
        if done || session.card.killed.load(Ordering::Relaxed) {
            return self.close(session);
        }
        if session.out.is_empty() {
            let mut memory = session.out.give_back();
            if memory.capacity() > REPLY_BYTES_KEPT_MAX {
                memory.shrink_to(REPLY_BYTES_KEPT_MAX);
            }
            if memory.capacity() > 0 && self.replies.len() < REPLY_BUFFERS_MAX {
                self.replies.push(memory);
            }
        }
        self.update_card(&mut session);
        let place = &mut self.places[index];
        place.session = Some(session);
        let mail = mem::take(&mut place.mail);
        if self.settings.client_memory_max != 0 {
            self.evict_clients();
        }
        if more {
            self.enqueue(index);
        }
        for message in mail {
            self.on_message(message);
        }
    }

    /// Holds the session's replies back while they may not leave; says whether they stay. Whatever its commands have
    /// seen has a number by now, its own effects included; what it asks next waits for its turn.
    fn wait_for_gate(&self, session: &mut Session) -> bool {
        let gate = &self.shared.keyspace.journal().gate;
        if let Some(number) = session.gate.take()
            && !gate.is_reached(number)
        {
            session.gate = Some(number);
            return true;
        }
        if gate.is_open() {
            return false;
        }
        let number = self.shared.keyspace.journal().last();
        if gate.wait_for(number, session.card.token.0) == Wait::TryAgain {
            return false;
        }
        session.gate = Some(number);
        self.stats.put_aside.add(1);
        true
    }

    /// Writes what is there, and lets others hear what they may hear once the replies are written.
    #[inline]
    fn write_replies(&mut self, session: &mut Session) {
        self.write_out(session);
        if session.is(state::TRACKING) {
            tracking::after_write(self, session);
            self.write_out(session);
        }
    }

    /// Lets others see what the session holds; mostly that is nothing, as before.
    #[inline]
    fn update_card(&self, session: &mut Session) {
        let holds_nothing = session.holds_nothing();
        if !(holds_nothing && session.shown_empty) {
            session.shown_empty = holds_nothing;
            self.fill_card(session);
        }
    }

    fn fill_card(&self, session: &Session) {
        let card = &session.card;
        card.query_bytes
            .store(session.query.len() as u64, Ordering::Relaxed);
        card.query_capacity
            .store(session.query.capacity() as u64, Ordering::Relaxed);
        card.output_bytes
            .store(session.out.len_bytes() as u64, Ordering::Relaxed);
        let pieces = match session.out.len_bytes() {
            0..=REPLY_PIECE_BYTES => 0,
            _ => {
                let plain = session.out.plain_bytes();
                plain.div_ceil(REPLY_PIECE_BYTES) + session.out.blob_count()
            }
        };
        card.output_pieces.store(pieces as u32, Ordering::Relaxed);
        let capacity = session.out.heap_bytes() as u64;
        card.output_capacity.store(capacity, Ordering::Relaxed);
        let arguments = session.decoder.heap_bytes() as u64;
        card.argument_bytes.store(arguments, Ordering::Relaxed);
        let queued = session.multi.bytes as u64;
        card.multi_bytes.store(queued, Ordering::Relaxed);
        let fixed = mem::size_of::<Session>() + mem::size_of::<Card>();
        let bytes = (fixed + session.query.capacity()) as u64 + capacity + arguments + queued;
        let before = card.memory_bytes.load(Ordering::Relaxed);
        card.memory_bytes.store(bytes, Ordering::Relaxed);
        self.stats.client_bytes.add(bytes.wrapping_sub(before));
    }

    /// Keeps `maxmemory-clients`.
    pub(crate) fn evict_clients(&self) {
        if let Some(limit_bytes) = self.settings.client_memory_limit() {
            let evicted = self.shared.evict_clients(limit_bytes);
            self.stats.evicted_clients.add(evicted);
        }
    }

    /// Writes as much of the replies as the peer takes.
    fn write_out(&mut self, session: &mut Session) {
        let waiting = session.out.len_bytes();
        if waiting == 0 && !session.stream.has_unsent() {
            return;
        }
        let peak = &session.card.output_peak;
        if waiting as u64 > peak.load(Ordering::Relaxed) {
            peak.store(waiting as u64, Ordering::Relaxed);
        }
        let written = if session.out.has_blobs() {
            self.write_pieces(session)
        } else {
            self.stats.writes.add(1);
            let taken = session.stream.write(session.out.bytes());
            taken.map(|taken| {
                session.out.advance(taken.unwrap_or(0));
                taken.unwrap_or(0)
            })
        };
        match written {
            Ok(bytes) => {
                self.stats.net_out.add(bytes as u64);
                let sent = &session.card.net_out;
                sent.store(
                    sent.load(Ordering::Relaxed) + bytes as u64,
                    Ordering::Relaxed,
                );
            }
            Err(_) => session.end_at_once(),
        }
        let wanted = !session.out.is_empty() || session.stream.has_unsent();
        if wanted != session.writable_wanted {
            self.want_writable(session, wanted);
        }
        self.enforce_output_limit(session);
    }

    /// The same for replies with large values in between, which are sent from where they lie. Says how many bytes.
    #[inline(never)]
    fn write_pieces(&mut self, session: &mut Session) -> io::Result<usize> {
        let mut written = 0;
        loop {
            let mut slices = [io::IoSlice::new(&[]); SLICES_MAX];
            let count = session.out.io_slices(&mut slices);
            let offered = slices[..count].iter().map(|slice| slice.len()).sum();
            self.stats.writes.add(1);
            let taken = match flush(&mut session.stream, &mut slices[..count]) {
                Flush::Done => offered,
                Flush::Partial(taken) => taken,
                Flush::Closed(error) => return Err(error),
            };
            session.out.advance(taken);
            written += taken;
            if taken < offered || session.out.is_empty() || session.stream.has_unsent() {
                return Ok(written);
            }
        }
    }

    /// Asks for an event when the peer takes more, or no longer.
    #[cold]
    fn want_writable(&self, session: &mut Session, wanted: bool) {
        session.writable_wanted = wanted;
        let token = FIRST_SESSION + session.card.token.index();
        let interest = if wanted {
            Interest::ReadWrite
        } else {
            Interest::Read
        };
        // It worked for reading; should it fail now, the next read or write will tell.
        let _ = self.poller.reregister(&session.stream, token, interest);
    }

    /// Closes whoever leaves too much unread, or a good deal for too long.
    #[inline]
    pub fn enforce_output_limit(&mut self, session: &mut Session) {
        match session.out.len_bytes() as u64 {
            0 => session.soft_limit_since_s = None,
            bytes => self.enforce_limit_of(session, bytes),
        }
    }

    fn enforce_limit_of(&mut self, session: &mut Session, bytes: u64) {
        let class = usize::from(session.is(state::LISTENS)) * 2;
        let limit = self.settings.output_limits[class];
        let now_s = (self.now_ms / 1000) as u64;
        let counted = bytes.saturating_sub(OUTPUT_BYTES_FREE);
        let mut over = limit.hard_bytes != 0 && counted > limit.hard_bytes;
        if limit.soft_bytes != 0 && counted > limit.soft_bytes {
            let since = *session.soft_limit_since_s.get_or_insert(now_s);
            over |= now_s.saturating_sub(since) > limit.soft_seconds;
        } else {
            session.soft_limit_since_s = None;
        }
        if session.is(state::UNAUTHENTICATED) {
            over |= bytes > UNAUTHENTICATED_OUTPUT_BYTES_MAX as u64;
        }
        if over {
            self.stats.output_limit_closed.add(1);
            self.update_card(session);
            session.end_at_once();
            let client = described(&session.card, self.now_ms);
            log::warning(&format!(
                "Client {client} scheduled to be closed ASAP for overcoming of output buffer limits."
            ));
        }
    }

    fn keep_query(&mut self, query: Vec<u8>) {
        if query.capacity() > 0 {
            self.buffers.give(query);
        }
    }

    /// Closes connections that have not become sessions in time.
    pub fn close_stalled_handshakes(&mut self) {
        let now_ms = clock::monotonic_coarse_ms();
        while let Some(&(token, deadline_ms)) = self.handshakes.front()
            && deadline_ms <= now_ms
        {
            self.handshakes.pop_front();
            // Being served, it is through with its handshake.
            let nothing = || Message::Run(Box::new(|_| ()));
            self.with_session(token, nothing, |worker, session| {
                if session.stream.is_handshaking() {
                    session.end_at_once();
                    worker.enqueue(token.index());
                }
            });
        }
    }

    /// Gives memory back that a peak left behind; once a second.
    pub fn trim(&mut self) {
        self.buffers.trim();
        self.replies.truncate(self.replies.len() / 2 + 1);
    }

    // ---- putting aside ------------------------------------------------------------------------

    /// Moves the requests of a session that have not run, from `first` on, out of the batch.
    pub(crate) fn defer(&self, member: &mut Member, batch: &Batch, first: usize, number: usize) {
        let mut deferred = Deferred {
            buffer: Vec::new(),
            spans: Vec::new(),
            requests: VecDeque::new(),
            blobs: member.blobs.clone(),
            broken: None,
        };
        let base = batch.requests[first].at();
        deferred
            .buffer
            .extend_from_slice(&member.query[base..member.decoded]);
        for request in batch.requests[first..]
            .iter()
            .filter(|request| request.member() == number)
        {
            if let Some(error) = request.protocol_error() {
                deferred.broken = Some(error);
                break;
            }
            let from = deferred.spans.len();
            deferred
                .spans
                .extend_from_slice(&batch.spans[request.spans()]);
            deferred
                .requests
                .push_back((request.at() - base, from..deferred.spans.len()));
        }
        member.session.deferred = Some(Box::new(deferred));
    }

    fn run_deferred(&mut self, session: &mut Session) {
        let Some(mut deferred) = session.deferred.take() else {
            return;
        };
        while let Some((at, spans)) = deferred.requests.front().cloned() {
            if session.closing {
                return;
            }
            if let Some(call) = session.again.as_ref().map(Again::args) {
                self.run_request(session, call.as_args(), None);
            } else {
                let args = redline_resp::Args::with_big(
                    &deferred.buffer[at..],
                    &deferred.spans[spans],
                    &deferred.blobs,
                );
                self.run_request(session, args, None);
            }
            if session.out.len_bytes() > self.output_watched_bytes {
                self.enforce_output_limit(session);
            }
            if session.aside.is_some() {
                session.deferred = Some(deferred);
                return;
            }
            session.again = None;
            deferred.requests.pop_front();
        }
        if let Some(error) = deferred.broken {
            session.break_off(error);
        }
    }

    /// A script has become busy: whoever was put aside because of it is answered.
    fn answer_busy(&mut self) {
        self.for_each_session(|worker, session| {
            if !matches!(
                session.aside,
                Some(Aside::Stripe(_) | Aside::Script | Aside::Ticket)
            ) {
                return;
            }
            session.aside = None;
            worker.look_again(session);
        });
    }

    // ---- listeners and signals ----------------------------------------------------------------

    fn accept(&mut self, index: usize) {
        self.refresh_if_changed();
        loop {
            // The listeners may have been replaced since the event.
            let Some(listener) = self.listeners.get(index) else {
                return;
            };
            match listener.accept() {
                Ok(Some((stream, peer))) => {
                    let tls = listener.is_tls();
                    self.admit(stream, peer, tls);
                }
                Ok(None) => return,
                Err(error) => {
                    if self.accept == Accept::OnEvents {
                        log::warning(&format!("Accepting client connection: {error}"));
                    }
                    self.accept = Accept::AtTick;
                    return;
                }
            }
        }
    }

    /// Accepts what could not be accepted before.
    fn accept_again(&mut self) {
        let mut failed = false;
        for index in 0..self.listeners.len() {
            self.accept = Accept::AtOnce; // a further failure is no news for the log
            self.accept(index);
            failed |= self.accept == Accept::AtTick;
        }
        self.accept = if failed {
            Accept::AtTick
        } else {
            Accept::OnEvents
        };
    }

    /// Lets a connection in, to the worker with the fewest, or turns it away with a reason.
    fn admit(&mut self, mut stream: Stream, peer: PeerAddr, tls: bool) {
        self.shared
            .connections_received
            .fetch_add(1, Ordering::Relaxed);
        let open: usize = self
            .shared
            .workers()
            .iter()
            .map(|worker| worker.connections.load(Ordering::Relaxed))
            .sum();
        let refusal = if open >= self.settings.maxclients {
            Some("-ERR max number of clients reached\r\n")
        } else if self.settings.protected_mode
            && self.settings.acl.default_user().takes_any_password()
            && !peer.is_local()
        {
            Some(PROTECTED)
        } else {
            None
        };
        if let Some(text) = refusal {
            // Best effort: the connection closes in any case. Before a handshake nothing can be said.
            if !tls {
                let _ = stream.write(text.as_bytes());
            }
            self.shared
                .connections_rejected
                .fetch_add(1, Ordering::Relaxed);
            return;
        }
        if !stream.is_unix() {
            // A socket that refuses these options works all the same.
            let _ = stream.set_nodelay(true);
            if self.settings.tcp_keepalive_s > 0 {
                let _ = stream.set_keepalive(self.settings.tcp_keepalive_s);
            }
        }
        if tls {
            let settings = self.shared.tls.lock().expect("no panic under TLS").clone();
            // Without, the port has just been closed.
            let Some(Ok(())) = settings.map(|settings| stream.accept_tls(&settings)) else {
                return;
            };
        }
        let fewest = self
            .shared
            .workers()
            .iter()
            .min_by_key(|worker| worker.connections.load(Ordering::Relaxed))
            .expect("there is a worker");
        fewest.connections.fetch_add(1, Ordering::Relaxed);
        fewest.mailbox.send(Message::Connection(stream, peer));
    }

    fn on_signal(&mut self) {
        let mut signals = self.signals.take();
        while let Some(signal) = signals.as_mut().and_then(Signals::next) {
            match signal {
                Signal::Terminate | Signal::Interrupt => {
                    log::notice(&format!(
                        "Received {} scheduling shutdown...",
                        if signal == Signal::Interrupt {
                            "SIGINT"
                        } else {
                            "SIGTERM"
                        }
                    ));
                    crate::shutdown(&self.shared);
                }
                Signal::Hangup => self.shared.reload_tls(),
            }
        }
        self.signals = signals;
    }
}

/// What a client from elsewhere is told in protected mode.
const PROTECTED: &str = "-DENIED Redline is running in protected mode because no password is set \
for the default user. In this mode connections are accepted from this machine only (loopback and \
unix sockets). To accept others, either set a password (CONFIG SET requirepass <password>, or \
requirepass in the configuration file), or switch the protection off (CONFIG SET protected-mode no, \
or --protected-mode no at the start) if nobody untrusted can reach this port.\r\n";

/// Lets a session hear of what is meant for it, and takes it off the list of those who have yet to.
fn hear_early(message: &mut Message, own: Token, session: &mut Session) {
    match message {
        Message::Deliver(delivery) => {
            // Somebody may be among the subscribers of a pattern and of the channel: each is a message of its own.
            if let Some(at) = delivery.to.iter().position(|token| *token == own) {
                delivery.to.remove(at);
                if crate::subscribe::is_subscribed(session, delivery) {
                    crate::subscribe::write_message(session, delivery);
                }
            }
        }
        // What goes to another client, or is gathered, waits until the replies are written.
        Message::Invalidate(invalidation)
            if matches!(invalidation.news, News::Key(_) | News::All)
                && session
                    .tracking
                    .as_ref()
                    .is_some_and(|mode| mode.redirect.is_none()) =>
        {
            if let Some(at) = invalidation.to.iter().position(|token| *token == own) {
                invalidation.to.remove(at);
                tracking::hear(session, &invalidation.news);
            }
        }
        Message::Monitored(line) => {
            if let Some(at) = line.to.iter().position(|token| *token == own) {
                line.to.remove(at);
                monitor::write(session, line);
            }
        }
        _ => {}
    }
}

/// Has everybody it was for got this message?
fn is_delivered(message: &Message) -> bool {
    match message {
        Message::Deliver(delivery) => delivery.to.is_empty(),
        Message::Invalidate(invalidation) => invalidation.to.is_empty(),
        Message::Monitored(line) => line.to.is_empty(),
        _ => false,
    }
}

impl Session {
    fn open(
        shared: &Shared,
        token: Token,
        stream: Stream,
        peer: PeerAddr,
        user: Arc<User>,
        now_ms: i64,
    ) -> Session {
        let unix = stream.is_unix();
        let laddr = stream
            .local_address()
            .map_or_else(|_| String::new(), |a| a.to_string());
        let card = Arc::new(Card {
            id: shared.next_client_id(),
            token,
            addr: peer.to_string(),
            laddr,
            fd: stream.fd(),
            created_ms: now_ms as u64,
            names: std::sync::Mutex::new(Names {
                user: user.name().to_vec(),
                ..Names::default()
            }),
            active_s: ((now_ms / 1000) as u32).into(),
            db: 0.into(),
            command: u16::MAX.into(),
            resp: 2.into(),
            flags: if unix { flag::UNIX } else { 0 }.into(),
            redirect: (-1).into(),
            channels: 0.into(),
            patterns: 0.into(),
            shard_channels: 0.into(),
            watched: 0.into(),
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
        });
        Session {
            card,
            stream,
            peer,
            query: Vec::new(),
            decoder: Default::default(),
            out: ReplyBuffer::new(),
            proto: Proto::Resp2,
            db: 0,
            state: 0,
            user,
            rules: 0,
            multi: Default::default(),
            watched: Vec::new(),
            watch_flag: Arc::default(),
            channels: Vec::new(),
            patterns: Vec::new(),
            shard_channels: Vec::new(),
            tracking: None,
            reply_mode: ReplyMode::On,
            aside: None,
            gate: None,
            wait: None,
            again: None,
            rounds: 0,
            in_line: false,
            ticket: None,
            unit: None,
            deferred: None,
            closing: false,
            writable_wanted: false,
            undecoded: false,
            eof_seen: false,
            shown_empty: false,
            sent_before: 0,
            soft_limit_since_s: None,
        }
    }

    /// Writes replies in the session's protocol.
    #[inline]
    pub fn reply(&mut self) -> Reply<'_> {
        Reply::new(&mut self.out, self.proto)
    }

    /// The peer has broken the protocol: it is told so, and that is the end.
    pub fn break_off(&mut self, error: ProtocolError) {
        self.reply().error_bytes(&error.error_line());
        self.closing = true;
    }
}
