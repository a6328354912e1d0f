//! A worker: one thread, its poller, its connections, its timers.
//!
//! One turn of the loop: wait for events, read the clock, fetch messages, serve the sessions that are ready
//! (`worker/serve.rs`), run the timers that are due.
//!
//! A session that is being served is taken out of the slab. While a script turns the loop from inside (see
//! `engine/src/session/scripting.rs`), messages for such a session wait in its place.
//!
//! Must not know: what any command does.

pub(crate) mod handover;
mod mail;
mod outlet;
pub(crate) mod pace;
pub(crate) mod serve;

use std::{
    collections::VecDeque,
    mem,
    ops::{Deref, DerefMut},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redline_acl::User;
use redline_engine::{
    Caller, Executor, Message as Mail,
    caller::{ClientInfo, Origin, Token, state},
    executor::{Batch, block, units, watch},
    monitor, subscriptions, tracking,
};
use redline_front::{Accepted, Acceptor, Admission, Handshakes, Share, prepare, refuse};
use redline_keyspace::upkeep::{Expiring, ExpiryCursor};
use redline_net::{
    BufferPool, Gathering, Interest, Listener, Mailbox, PeerAddr, Poller, Signal, Signals, Stream,
    Stretch, clock,
};
use redline_resp::{Blob, RequestLimits};
use redline_table::heap::Compaction;

use crate::{
    admin::migrate,
    cluster, cron, ending, following, log, persistence, replication,
    session::Session,
    settings::Settings,
    shared::{Message, Shared, TcpPort},
};
use handover::HandOver;
use pace::Pace;

/// Bytes of output that no limit counts: in Redis each client has a fixed buffer of that size.
const OUTPUT_BYTES_FREE: u64 = 16 * 1024;

const WAKER: usize = 0;
const SIGNALS: usize = 1;
const FIRST_LISTENER: usize = 2;
const FIRST_SESSION: usize = 64;

/// Parameters that a worker is given at its start.
pub struct Start {
    /// Number of the worker.
    pub number: usize,
    /// Poller, with the mailbox's waker registered.
    pub poller: Poller,
    /// Mailbox of the worker.
    pub mailbox: Mailbox<Message>,
    /// Listeners; the first worker has them all.
    pub listeners: Vec<Arc<Listener>>,
    /// Signals; the first worker has them, unless embedded in another program.
    pub signals: Option<Arc<Signals>>,
}

/// A worker's part of the server, besides its executor.
pub struct Shell<'s> {
    /// State that all workers share.
    shared: &'s Shared,
    /// Settings as of the executor's epoch.
    pub settings: Arc<Settings>,
    /// True if a session may exceed its soft limit of output.
    pub(crate) soft_limits_run: bool,
    /// Limits on requests, for sessions that are authenticated.
    pub request_limits: RequestLimits,
    /// State of active expiry.
    pub expiry: ExpiryCursor,
    /// State of active expiry of elements of collections.
    pub element_expiry: ExpiryCursor,
    /// Compaction that this worker carries out, and the next stripe.
    pub compaction: Option<(Compaction, usize)>,
    /// Time of the next tick: milliseconds of the monotonic clock.
    pub next_tick_ms: u64,
    /// Time of the last check for changed certificate files; of worker 0 alone.
    pub certificates_seen_ms: u64,
    /// Time at which active expiry goes on, if its last slice left keys due: microseconds of the monotonic clock.
    pub(crate) expiry_due_us: Option<u64>,
    /// True if active expiry pauses after its next slice.
    pub(crate) expiry_rests: bool,
    /// Time at which a compaction goes on, likewise.
    pub(crate) compaction_due_us: Option<u64>,
    /// Time at which the walk of a snapshot goes on, likewise.
    pub(crate) snapshot_due_us: Option<u64>,
    /// Number of ticks.
    pub ticks: u64,
    /// Set by SHUTDOWN and the signals.
    pub stop: bool,
    /// Clients that move to other workers.
    pub(crate) handover: HandOver,
    /// Limits on bandwidth.
    pub(crate) pace: Pace,
    poller: Poller,
    gathering: Gathering,
    mailbox: Mailbox<Message>,
    messages: Vec<Message>,
    /// Messages that were fetched early, see `read_own_mail`.
    early: mail::Early,
    acceptor: Acceptor<TcpPort>,
    signals: Option<Arc<Signals>>,
    places: Vec<Place>,
    free: Vec<usize>,
    ready: VecDeque<usize>,
    /// Replicas that are sent something at the end of the turn.
    to_feed: Vec<Token>,
    /// True if messages have come at the end of the turn, which may have set what only a turn looks at.
    turns_again: bool,
    buffers: BufferPool,
    /// Memory for replies; see [`lend`](redline_resp::ReplyBuffer::lend).
    replies: Vec<Vec<u8>>,
    /// Batch for reuse; `None` while a group is served.
    batch: Option<Box<Batch>>,
    group: Vec<Member>,
    /// Members whose replies wait for the pump; empty between turns.
    held: Vec<Member>,
    handshakes: Handshakes<Token>,
}

/// See the head of the module. It is the executor with its surroundings, and is created again each time the executor is
/// given back to the server.
pub struct Worker<'w, 'e, 's> {
    /// State that all workers share.
    pub shared: &'s Shared,
    /// Executor, where several of its parts are used at once.
    pub(crate) executor: &'w mut Executor<'e, Shell<'s>>,
}

impl<'e, 's> Deref for Worker<'_, 'e, 's> {
    type Target = Executor<'e, Shell<'s>>;

    #[inline]
    fn deref(&self) -> &Executor<'e, Shell<'s>> {
        self.executor
    }
}

impl<'e, 's> DerefMut for Worker<'_, 'e, 's> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Executor<'e, Shell<'s>> {
        self.executor
    }
}

/// A place in the slab.
#[derive(Default)]
struct Place {
    generation: u32,
    used: bool,
    /// `None` while the session is being served, and in unused places.
    session: Option<Box<Session>>,
    /// True if it is in `ready`.
    queued: bool,
    /// Lowest bits of the number of the tick before which the last event came.
    heard_at_tick: u32,
    /// True if bytes may be waiting in the socket.
    readable: bool,
    /// True if the peer has ended its direction.
    closed: bool,
    /// True if the peer has sent bytes out of band: a short read need not have emptied the socket.
    urgent: bool,
    /// Messages for a session that was being served, or has yet to arrive.
    mail: Vec<Mail>,
    /// Token of the session on another worker, once it has moved there.
    moved_to: Option<Token>,
}

/// A session of the group being served, with the buffers of its requests.
pub struct Member {
    /// The session.
    pub session: Box<Session>,
    /// Query buffer of the session.
    pub query: Vec<u8>,
    /// End of the last request that was decoded.
    pub decoded: usize,
    /// Large arguments of its requests.
    pub blobs: Vec<Blob>,
}

impl<'s> Shell<'s> {
    fn new(shared: &'s Shared, start: Start) -> Shell<'s> {
        let Start {
            number,
            poller,
            mailbox,
            listeners,
            signals,
        } = start;
        let workers = shared.workers().len();
        Shell {
            settings: shared.settings.current(),
            soft_limits_run: false,
            request_limits: RequestLimits::default(),
            expiry: ExpiryCursor::new(Expiring::Keys, number, workers),
            element_expiry: ExpiryCursor::new(Expiring::Elements, number, workers),
            compaction: None,
            next_tick_ms: clock::monotonic_coarse_ms(),
            certificates_seen_ms: clock::monotonic_coarse_ms(),
            expiry_due_us: None,
            expiry_rests: false,
            compaction_due_us: None,
            snapshot_due_us: None,
            ticks: 0,
            stop: false,
            handover: HandOver::default(),
            pace: Pace::default(),
            messages: Vec::new(),
            early: mail::Early::default(),
            places: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            to_feed: Vec::new(),
            turns_again: false,
            buffers: BufferPool::default(),
            replies: Vec::new(),
            batch: None,
            group: Vec::new(),
            held: Vec::new(),
            handshakes: Handshakes::default(),
            shared,
            poller,
            gathering: Gathering::new(Stretch::ByCost),
            mailbox,
            acceptor: Acceptor::new(labelled(listeners), FIRST_LISTENER),
            signals,
        }
    }
}

/// Runs a worker until it is stopped.
pub fn run(shared: &Shared, start: Start) {
    let (number, seed) = (start.number, fastrand::u64(..));
    let shell = Shell::new(shared, start);
    let mut executor = Executor::new(&shared.engine, number, seed, shell);
    Worker::of(&mut executor).run();
}

impl<'w, 'e, 's> Worker<'w, 'e, 's> {
    /// Creates the worker of an executor.
    pub fn of(executor: &'w mut Executor<'e, Shell<'s>>) -> Worker<'w, 'e, 's> {
        Worker {
            shared: executor.outlet.shared,
            executor,
        }
    }

    fn run(mut self) {
        let watched = self.outlet.acceptor.watch(&self.outlet.poller);
        watched.expect("a fresh listener can be watched");
        if let Some(signals) = &self.outlet.signals {
            self.outlet
                .poller
                .register(&**signals, SIGNALS, Interest::Read)
                .expect("signals can be watched");
        }
        while !self.outlet.stop {
            self.turn(true);
        }
        self.close_all();
        self.flush_account();
        self.shared.workers()[self.number].turning.end();
    }

    /// Runs one turn of the loop. `wait`: sleeps until an event; otherwise only polls.
    pub fn turn(&mut self, wait: bool) {
        let turns_again = mem::take(&mut self.outlet.turns_again);
        let sleep = self.outlet.mailbox.prepare_to_sleep()
            && wait
            && !turns_again
            && self.outlet.ready.is_empty()
            && self.outlet.early.is_empty()
            && !self.outlet.acceptor.is_due();
        let (timeout, is_deaf) = match sleep {
            true if self.outlet.pace.holds() => pace::sleep(self, self.time_to_sleep()),
            true => (self.time_to_sleep(), false),
            false => (Duration::ZERO, false),
        };
        let turning = &self.shared.workers()[self.number].turning;
        if !timeout.is_zero() {
            turning.sleep();
        }
        let polled = match is_deaf {
            true => self.outlet.poller.poll_after(timeout),
            false => self.outlet.poller.poll(Some(timeout)),
        };
        if let Err(error) = polled {
            panic!("the poller failed, nothing can be served any more: {error}");
        }
        self.read_clock();
        let began_ms = clock::monotonic_coarse_ms();
        turning.begin(began_ms);
        self.begin_turn(began_ms);
        // Reading and decoding have limits in the settings, too.
        self.refresh_if_changed();
        for share in self.outlet.acceptor.take_due() {
            self.accept(share);
        }
        let events = self.outlet.poller.event_count();
        let (mut clients, mut were_silent) = (0, 0);
        for index in 0..events {
            let event = self.outlet.poller.event(index);
            match event.token {
                WAKER => {}
                SIGNALS => self.on_signal(),
                token if token < FIRST_SESSION => {
                    let share = self.outlet.acceptor.share(token);
                    self.accept(share);
                }
                token => {
                    clients += 1;
                    were_silent += u32::from(self.on_event(token - FIRST_SESSION, &event));
                }
            }
        }
        self.outlet.gathering.note(clients, were_silent);
        if self.outlet.poller.has_gathered() {
            self.stats.gathered.add(1);
            if !self.outlet.gathering.go_on(events) {
                self.outlet.poller.set_gathering(Duration::ZERO);
            }
        }
        mail::fetch_messages(self);
        block::expire_waits(self.executor);
        self.end_pause();
        if self.outlet.pace.holds() {
            pace::go_on(self);
        }
        serve::serve_ready(self);
        for token in self.shared.executors()[self.number].transit.released() {
            self.shared.send(token, Mail::Wake(token));
        }
        let ended_ms = clock::monotonic_coarse_ms();
        self.end_turn(began_ms, ended_ms);
        self.outlet
            .handover
            .note_turn(ended_ms.saturating_sub(began_ms));
        if self.outlet.handover.is_under_way() && self.depth == 0 {
            handover::hand_over(self);
        }
        if ended_ms >= self.outlet.next_tick_ms {
            cron::tick(self);
            self.outlet.acceptor.retry();
        }
        if self.outlet.expiry_due_us.is_some() || self.outlet.compaction_due_us.is_some() {
            cron::go_on(self);
        }
        if self.shared.keyspace.is_snapshot_running() {
            persistence::slices::run(self, clients > 0);
        }
        if self.number == 0 && self.depth == 0 && persistence::has_wishes(self.shared) {
            persistence::drive(self);
        }
        if self.number == 0 && self.depth == 0 && self.shared.ending.has_work() {
            ending::drive(self);
        }
        if self.number == 0 && self.depth == 0 && self.shared.following.has_work() {
            following::drive(self);
        }
        if self.number == 0
            && self.depth == 0
            && let Some(node) = &self.shared.cluster
            && let Some(etcd) = &node.etcd
            && etcd.has_work()
        {
            cluster::etcd::drive(self);
        }
        if self.number == 0
            && self.depth == 0
            && let Some(node) = &self.shared.cluster
            && let Some(etcd) = &node.etcd
            && etcd.lost.has_work()
        {
            cluster::lost::drive(self);
        }
        if self.number == 0 && self.depth == 0 && self.shared.replication.has_wishes() {
            replication::drive(self);
        }
        self.pump();
        mail::feed_replicas(self);
        self.local.heap.tick();
    }

    /// Returns the time until the next timer is due.
    fn time_to_sleep(&self) -> Duration {
        let pause_ms = self.pause.map(|pause| pause.end_ms);
        let due_ms = self.waits.next_deadline_ms().into_iter().chain(pause_ms);
        let mut span_ms = self
            .outlet
            .next_tick_ms
            .saturating_sub(clock::monotonic_coarse_ms());
        // A wait ends to the millisecond, a tick need not.
        if let Some(due_ms) = due_ms.min() {
            span_ms = span_ms.min(due_ms.saturating_sub(clock::monotonic_ms()));
        }
        let slices = [
            self.outlet.expiry_due_us,
            self.outlet.compaction_due_us,
            self.outlet.snapshot_due_us,
        ];
        if let Some(due_us) = slices.into_iter().flatten().min() {
            span_ms = span_ms.min(due_us.saturating_sub(clock::monotonic_us()).div_ceil(1000));
        }
        Duration::from_millis(span_ms)
    }

    /// Listens on these instead of a port's earlier listeners.
    pub fn replace_tcp_listeners(&mut self, which: TcpPort, fresh: Vec<Arc<Listener>>) {
        // A connection accepted by the kernel is not refused for it.
        for share in self.outlet.acceptor.all() {
            self.accept(share);
        }
        let is_old = |listener: &Listener| listener.port().is_some() && which.is_like(listener);
        let outlet = &mut self.executor.outlet;
        let replaced = outlet
            .acceptor
            .replace(&outlet.poller, is_old, labelled(fresh));
        replaced.expect("a fresh listener can be watched");
    }

    /// Adopts settings that the executor has taken over.
    pub(super) fn adopt_settings(&mut self) {
        self.outlet.settings = self.shared.settings.current();
        let settings = self.outlet.settings.clone();
        self.outlet.request_limits.bulk_bytes_max = settings.bulk_bytes_max;
        let hard = settings.output_limits.iter().map(|limit| limit.hard_bytes);
        let least = hard.filter(|bytes| *bytes != 0).min();
        self.output_watched_bytes = least.map_or(usize::MAX, |bytes| {
            usize::try_from(bytes.saturating_add(OUTPUT_BYTES_FREE)).unwrap_or(usize::MAX)
        });
        pace::adopt(self);
    }

    // ---- sessions -----------------------------------------------------------------------------

    /// Handles an event. Returns true if it is the first from that client since the last tick.
    fn on_event(&mut self, index: usize, event: &redline_net::Event) -> bool {
        let Some(place) = self
            .executor
            .outlet
            .places
            .get_mut(index)
            .filter(|place| place.used)
        else {
            return false;
        };
        place.readable |= event.readable || event.error || event.closed || event.urgent;
        place.closed |= event.closed || event.error;
        place.urgent |= event.urgent;
        let tick = self.executor.outlet.ticks as u32;
        let first = mem::replace(&mut place.heard_at_tick, tick) != tick;
        self.enqueue(index);
        first
    }

    /// Decides at every tick whether requests may gather until the next.
    pub fn set_gathering(&mut self, now_us: u64, used_us: u64) {
        // Each of several workers gets its part of the requests only: it sleeps longer, for as many to gather.
        let workers = self.shared.workers().iter();
        let serve = workers.filter(|worker| !worker.rests.load(Ordering::Relaxed));
        let several = 1 + u64::from(serve.count() > 1);
        let allowed = Duration::from_micros(self.outlet.settings.event_coalescing_us * several);
        let cost = self.outlet.poller.rest_cost();
        let served = Some(self.stats.calls());
        let span = self
            .outlet
            .gathering
            .tick(now_us, used_us, served, allowed, cost);
        self.outlet.poller.set_gathering(span);
    }

    fn enqueue(&mut self, index: usize) {
        let place = &mut self.outlet.places[index];
        if place.used && !place.queued {
            place.queued = true;
            self.outlet.ready.push_back(index);
        }
    }

    /// Has a replica sent what there is at the end of the turn, if it is still there.
    fn feed_soon(&mut self, token: Token) {
        self.outlet.to_feed.push(token);
    }

    /// Returns true if a session of ours has this token.
    fn has_session(&self, token: Token) -> bool {
        let place = self.outlet.places.get(token.index());
        place.is_some_and(|place| {
            place.used && Token::new(self.number, token.index(), place.generation) == token
        })
    }

    /// Returns an unused place and its token.
    fn free_place(&mut self) -> (usize, Token) {
        let index = self.outlet.free.pop().unwrap_or_else(|| {
            self.outlet.places.push(Place::default());
            self.outlet.places.len() - 1
        });
        let generation = self.outlet.places[index].generation;
        (index, Token::new(self.number, index, generation))
    }

    /// Frees a place; its token is not valid any more.
    fn vacate(&mut self, index: usize) {
        let place = &mut self.outlet.places[index];
        *place = Place {
            generation: place.generation.wrapping_add(1),
            ..Place::default()
        };
        self.outlet.free.push(index);
    }

    fn open(&mut self, stream: Stream, peer: PeerAddr) {
        self.refresh_if_changed();
        let (index, token) = self.free_place();
        if self
            .outlet
            .poller
            .register(&stream, FIRST_SESSION + index, Interest::Read)
            .is_err()
        {
            // The descriptor is of no use: the connection is closed.
            self.outlet.free.push(index);
            self.shared.workers()[self.number]
                .connections
                .fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let user = self.outlet.settings.acl.default_user().clone();
        let session = Session::open(self.shared, token, stream, peer, user, self.now_ms);
        let mut session = Box::new(session);
        session.become_default(&self.outlet.settings.acl);
        if session.stream.is_handshaking() {
            let now_ms = clock::monotonic_coarse_ms();
            self.outlet.handshakes.begin(token, now_ms);
        }
        serve::update_info(self, &mut session);
        let info = session.info.clone();
        self.shared.clients().insert(info.id, info);
        let place = &mut self.outlet.places[index];
        place.used = true;
        place.session = Some(session);
    }

    /// Closes a session; it is out of the slab.
    fn close(&mut self, mut session: Box<Session>) {
        let index = session.info.token().index();
        // The socket closes with the session; a failure to deregister has no effect then.
        session.stream.close_notify();
        let _ = self.outlet.poller.deregister(&session.stream);
        subscriptions::forget(self, &mut session);
        tracking::end(self.shared, &mut session);
        monitor::end(self.shared, &mut session);
        let bytes = session.info.memory_bytes.load(Ordering::Relaxed);
        self.stats.client_bytes.add(bytes.wrapping_neg());
        watch::unwatch(self.executor, &mut session);
        block::drop_wait(self.executor, &mut session);
        units::give_way(self.executor, &mut session);
        migrate::forget(self, session.info.id);
        if session.is(state::REPLICA) {
            replication::gone(self.shared, &session);
            pace::forget(self, session.info.token());
        }
        self.shared.clients().remove(&session.info.id);
        self.shared.workers()[self.number]
            .connections
            .fetch_sub(1, Ordering::Relaxed);
        serve::keep_query(self, mem::take(&mut session.query));
        self.vacate(index);
        self.outlet.acceptor.retry();
    }

    fn close_all(&mut self) {
        for index in 0..self.outlet.places.len() {
            if let Some(mut session) = self.outlet.places[index].session.take() {
                if session.gate.is_none() {
                    serve::write_out(self, &mut session);
                }
                self.close(session);
            }
        }
    }

    /// Visits every session that is not being served.
    pub fn for_each_session(&mut self, mut visit: impl FnMut(&mut Worker, &mut Session)) {
        for index in 0..self.outlet.places.len() {
            if let Some(mut session) = self.outlet.places[index].session.take() {
                visit(self, &mut session);
                self.outlet.places[index].session = Some(session);
            }
        }
    }

    /// Schedules `session`, which is not being served, to be served again soon.
    pub fn look_again(&mut self, session: &Session) {
        self.enqueue(session.info.token().index());
    }

    /// Closes connections that have not become sessions in time.
    pub fn close_stalled_handshakes(&mut self) {
        let now_ms = clock::monotonic_coarse_ms();
        while let Some(token) = self.outlet.handshakes.next_overdue(now_ms) {
            // A session that is being served has finished its handshake.
            if mail::is_out(self, token) {
                continue;
            }
            let nothing = || unreachable!("its session is in its place");
            mail::with_session(self, token, nothing, |worker, session| {
                if session.stream.is_handshaking() {
                    session.end_at_once();
                    worker.enqueue(token.index());
                }
            });
        }
    }

    /// Releases memory that a peak left behind; called once a second.
    pub fn trim(&mut self) {
        self.executor.outlet.buffers.trim();
        self.executor
            .outlet
            .replies
            .truncate(self.executor.outlet.replies.len() / 2 + 1);
    }

    // ---- listeners and signals ----------------------------------------------------------------

    /// Accepts the connections of a listener's share.
    fn accept(&mut self, mut share: Share) {
        if self.shared.stopping.load(Ordering::Acquire) {
            return;
        }
        self.refresh_if_changed();
        while let Some(next) = self.outlet.acceptor.next(&mut share) {
            match next {
                Ok(accepted) => self.admit(accepted),
                Err(error) => log::warning(&format!("Accepting client connection: {error}")),
            }
        }
    }

    /// Accepts a connection or refuses it with a reason.
    fn admit(&mut self, accepted: Accepted<TcpPort>) {
        let Accepted {
            mut stream,
            peer,
            port,
        } = accepted;
        self.shared
            .connections_received
            .fetch_add(1, Ordering::Relaxed);
        let settings = &self.outlet.settings;
        let admission = Admission {
            clients_max: settings.maxclients,
            is_protected: settings.protected_mode
                && settings.acl.default_user().takes_any_password(),
        };
        let workers = self.shared.workers().iter();
        let open = workers.map(|worker| worker.connections.load(Ordering::Relaxed));
        let is_tls = port == TcpPort::Tls;
        if let Some(line) = admission.refusal(open.sum(), &peer) {
            refuse(stream, is_tls, line);
            self.shared
                .connections_rejected
                .fetch_add(1, Ordering::Relaxed);
            return;
        }
        let tls = is_tls.then(|| self.shared.tls.current()).flatten();
        // Without certificates, the port has just been closed.
        let may_begin = !is_tls || tls.is_some();
        let keepalive_s = settings.tcp_keepalive_s;
        if !may_begin || prepare(&mut stream, keepalive_s, tls.as_ref()).is_err() {
            return;
        }
        let worker = handover::for_new_client(self);
        worker.connections.fetch_add(1, Ordering::Relaxed);
        worker.mailbox.send(Message::Connection(stream, peer));
    }

    fn on_signal(&mut self) {
        while let Some(signal) = self
            .outlet
            .signals
            .as_ref()
            .and_then(|signals| signals.next())
        {
            match signal {
                Signal::Terminate | Signal::Interrupt => {
                    let settings = self.shared.settings.current();
                    let (name, manner) = match signal {
                        Signal::Interrupt => ("SIGINT", settings.service.on_sigint),
                        _ => ("SIGTERM", settings.service.on_sigterm),
                    };
                    log::notice(&format!("Received {name} scheduling shutdown..."));
                    if !self.shared.stopping.load(Ordering::Acquire) {
                        ending::begin(self.shared, manner, None);
                    }
                }
                Signal::Hangup => {
                    let service = self.shared.origin.service.as_ref();
                    service.inspect(|service| service.reloading());
                    self.shared.reload_tls();
                    service.inspect(|service| service.ready());
                }
                // Not requested.
                Signal::Quit | Signal::Suspend => {}
            }
        }
    }
}

/// Returns listeners with the ports that they are like.
fn labelled(listeners: Vec<Arc<Listener>>) -> Vec<(Arc<Listener>, TcpPort)> {
    let of = |listener: Arc<Listener>| match TcpPort::Tls.is_like(&listener) {
        true => (listener, TcpPort::Tls),
        false => (listener, TcpPort::Plain),
    };
    listeners.into_iter().map(of).collect()
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
        let laddr = stream
            .local_address()
            .map_or_else(|_| String::new(), |a| a.to_string());
        let origin = Origin {
            id: shared.next_client_id(),
            addr: peer.to_string(),
            laddr,
            is_local: peer.is_local(),
            is_unix: stream.is_unix(),
            fd: stream.fd(),
            created_ms: now_ms as u64,
        };
        let info = Arc::new(ClientInfo::new(origin, token, &user));
        Session {
            stream,
            query: Vec::new(),
            decoder: Default::default(),
            writable_wanted: false,
            undecoded: false,
            eof_seen: false,
            deferred: None,
            gate: None,
            caller: Caller::new(info, user),
            soft_limit_since_s: None,
            peer,
            sent_before: 0,
            worked_before: 0,
            work_lately: 0,
        }
    }
}
