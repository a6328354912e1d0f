//! A worker: its poller, its clients, its connections to servers, and the turn of its loop.
//!
//! One turn: requests of all clients that sent something are decoded, routed and queued ([`serve`](crate::serve)); each
//! server that got some is written to once; replies of the servers that answered are handed to the clients
//! ([`replies`](crate::replies)); each client that got some is written to once. So the requests of many clients share their
//! system calls, the more the busier the worker is.
//!
//! Must not know how requests are routed, or what any command does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redline_net::{
    Event, Gathering, Interest, Listener, Mailbox, PeerAddr, Pipe, Poller, Sender, Signal, Signals,
    Stream, Stretch, clock, error_text,
};
use redline_resp::{HEADS, Heads, ReplyBuffer, RequestLimits, Span};
use redline_spec::CommandId;

use crate::access::Identities;
use crate::admit::Traffic;
use crate::cache::Cache;
use crate::class::Command;
use crate::client::{Client, OUT_BYTES_KEPT_MAX, Pause, ReplyMode};
use crate::cluster_view::ClusterView;
use crate::command_names::Names;
use crate::control::{Reload, reload};
use crate::delay::Delayed;
use crate::errors;
use crate::gather::Gather;
use crate::later::{LOOK_MS, Later};
use crate::link::Links;
use crate::local::Card;
use crate::private::Session;
use crate::published::{PoolsTls, Published};
use crate::pubsub::PubSub;
use crate::report::Report;
use crate::route::Routes;
use crate::scripts::Scripts;
use crate::seeing::{Counters, Seeing, Seen, log, tell_of_query_buffer};
use crate::settings::Settings;
use crate::slab::{Ref, Slab};
use crate::tls_config::Doors;
use crate::upstream::{State, Upstream};

/// Events taken in one turn.
const EVENTS_MAX: usize = 1024;
/// Connections that one listener's turn takes; what is left waits for the next.
const ACCEPTED_PER_TURN_MAX: usize = 100;
/// How often time-outs are looked at: milliseconds.
const TICK_MS: u64 = 100;
/// Ticks after which a worker lets the allocator look at what others have freed of its memory.
const TICKS_PER_COLLECTION: u32 = 10;
/// Bytes that one read of a client takes at most.
pub(crate) const CLIENT_READ_BYTES_MAX: usize = 64 * 1024;
/// Bytes that one read of a server takes at most.
pub(crate) const UPSTREAM_READ_BYTES_MAX: usize = 64 * 1024;
/// Output buffers that are kept for the next clients.
const OUTS_MAX: usize = 256;
const WAKER: usize = 0;
const SIGNALS: usize = 1;
const FIRST_LISTENER: usize = 2;
pub(crate) const FIRST_CONNECTION: usize = 64;

/// A message in a worker's mailbox.
pub enum Message {
    /// A connection to take over, and the number of its pool.
    Connection(Stream, PeerAddr, u16),
    /// Lines for those who watch.
    Watched(Arc<[u8]>),
    /// CLIENT KILL of the clients with these numbers.
    Kill(Arc<BTreeSet<u64>>),
    /// The end: close everything and return.
    Stop,
    /// The answer to CONFIG RELOAD, for the request of a client: `None` if all went well, or an error.
    Answer(Ref, u32, ReplyMode, Option<String>),
}

/// State that all workers share.
pub struct Shared {
    /// The picture of the servers.
    pub routes: Arc<Published>,
    /// Limits.
    pub settings: Settings,
    /// Where reports go.
    pub reports: Option<Sender<Report>>,
    /// How another configuration comes in.
    pub reload: Option<Arc<Reload>>,
    /// The users; none: every client may do everything.
    pub identities: Option<Arc<Identities>>,
    /// Settings of each listener for the connections that it accepts.
    pub doors: Arc<Doors>,
    /// Faults on purpose, and copies for other pools.
    pub traffic: Traffic,
    /// Commands under other names, and such that the table does not have.
    pub names: Names,
    /// How CLUSTER is answered; none: as a server that is in no cluster does.
    pub cluster_view: Option<ClusterView>,
    /// A worker's mailbox, and how many clients it has.
    pub workers: Vec<(Sender<Message>, AtomicUsize)>,
    /// The number of the next client.
    pub next_client: AtomicU64,
    /// Every client, by its number.
    pub clients: Mutex<BTreeMap<u64, Arc<Card>>>,
    /// Scripts that went through.
    pub scripts: Scripts,
    /// When the process began: seconds since 1970.
    pub began_s: u64,
    /// The port of the first listener.
    pub port: u16,
    /// Counters and logs.
    pub seen: Seen,
}

impl Shared {
    /// Every client, by its number.
    pub fn cards(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Card>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's text.
pub struct Worker {
    pub(crate) number: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) routes: Arc<Routes>,
    /// TLS to the servers of each pool.
    pub(crate) tls: PoolsTls,
    epoch: u64,
    pub(crate) poller: Poller,
    mailbox: Mailbox<Message>,
    messages: Vec<Message>,
    listeners: Vec<(Listener, u16)>,
    signals: Option<Signals>,
    pub(crate) clients: Slab<Client>,
    pub(crate) upstreams: Slab<Upstream>,
    pub(crate) gathers: Slab<Gather>,
    pub(crate) spare_gathers: Vec<Gather>,
    pub(crate) links: Links,
    /// Requests that will be sent again.
    pub(crate) later: Vec<Later>,
    /// When they are looked at next, if they are many: milliseconds.
    pub(crate) later_look_ms: u64,
    /// Clients that wait for a moment.
    pub(crate) delayed: Vec<Delayed>,
    /// The request that is looked at may be looked at again: an inline one may not.
    pub(crate) may_put_off: bool,
    pub(crate) pubsub: PubSub,
    pub(crate) cache: Cache,
    /// Which of several servers reads go to: changes with every client that is served.
    pub(crate) reads_turn: u32,
    pub(crate) heads: Heads,
    /// The commands that `heads` numbers.
    pub(crate) named: [Command; HEADS],
    pub(crate) commands: Box<[Command]>,
    pub(crate) spans: Vec<Span>,
    pub(crate) limits: RequestLimits,
    /// Where clients and servers are read into; empty between.
    pub(crate) received: Vec<u8>,
    /// Where replies of our own are made; empty between.
    pub(crate) reply: ReplyBuffer,
    /// Where parts of requests are made, and replies out of parts, and keys are put in order; empty between.
    pub(crate) request: Vec<u8>,
    pub(crate) merged: Vec<u8>,
    pub(crate) groups: Vec<u32>,
    pub(crate) sorted: Vec<u32>,
    /// Clients to serve, in this turn or the next.
    ready: VecDeque<u32>,
    dirty_clients: Vec<u32>,
    pub(crate) dirty_upstreams: Vec<u32>,
    ready_upstreams: VecDeque<u32>,
    outs: Vec<Vec<u8>>,
    /// Clients that had no TLS yet when they came, and when that was, the oldest first.
    pub(crate) handshakes: VecDeque<(Ref, u64)>,
    /// The time of this turn: milliseconds of the monotonic clock.
    pub(crate) now_ms: u64,
    /// Everything that had arrived by this time has been processed. Servers are late by this time only: one whose answer came
    /// while this process, or its machine, stood still is not.
    pub(crate) heard_to_ms: u64,
    next_tick_ms: u64,
    gathering: Gathering,
    /// Empty pipes, for the next long bulks.
    pub(crate) pipes: Vec<Pipe>,
    /// Connections to servers whose requests wait for more.
    pub(crate) lingering: Vec<u32>,
    /// How often it has looked after what takes time: once in 100 ms.
    pub(crate) ticks: u32,
    /// Clients from which something came in this turn, and how many of them had been silent since the last tick.
    heard: (u32, u32),
    /// Listeners from which nobody could be let in: they are tried again at the next tick.
    accept_again: bool,
    /// Those at which more wait than one turn takes.
    accept_next: Vec<usize>,
    pub(crate) counters: Counters,
    pub(crate) seeing: Seeing,
    /// Clients that called MONITOR.
    pub(crate) monitoring: Vec<Ref>,
    /// The end was asked for: clients get what they have asked for until then.
    drains_until_ms: Option<u64>,
}

/// The parts that a worker is made from.
pub struct Start {
    /// Its number.
    pub number: usize,
    /// The state that all workers share.
    pub shared: Arc<Shared>,
    /// Its poller, with the mailbox's waker registered.
    pub poller: Poller,
    /// Its mailbox.
    pub mailbox: Mailbox<Message>,
    /// With the numbers of their doors. The first worker has them all.
    pub listeners: Vec<(Listener, u16)>,
    /// The first worker has them.
    pub signals: Option<Signals>,
}

/// The token of the poller's waker.
pub const WAKER_TOKEN: usize = WAKER;

/// A poller for a worker.
pub fn poller() -> std::io::Result<Poller> {
    Poller::new(EVENTS_MAX)
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
        let commands: Box<[Command]> = redline_spec::table::all()
            .iter()
            .map(|row| shared.names.command(row.id))
            .collect();
        let (routes, tls) = shared.routes.latest();
        let cache = Cache::new(shared.names.custom(), shared.workers.len(), &routes);
        let settings = &shared.settings;
        let limits = RequestLimits {
            bulk_bytes_max: settings.bulk_bytes_max,
            big_bulk_bytes_min: usize::MAX,
            ..RequestLimits::default()
        };
        Worker {
            number,
            epoch: shared.routes.epoch(),
            routes,
            tls,
            poller,
            mailbox,
            messages: Vec::new(),
            listeners,
            signals,
            clients: Slab::new(),
            upstreams: Slab::new(),
            gathers: Slab::new(),
            spare_gathers: Vec::new(),
            links: Links::default(),
            later: Vec::new(),
            later_look_ms: 0,
            delayed: Vec::new(),
            may_put_off: true,
            pubsub: PubSub::default(),
            cache,
            reads_turn: number as u32,
            heads: Heads::new(),
            named: [commands[CommandId::Get as usize]; HEADS],
            commands,
            spans: Vec::new(),
            limits,
            received: Vec::with_capacity(UPSTREAM_READ_BYTES_MAX),
            reply: ReplyBuffer::new(),
            request: Vec::new(),
            merged: Vec::new(),
            groups: Vec::new(),
            sorted: Vec::new(),
            ready: VecDeque::new(),
            dirty_clients: Vec::new(),
            dirty_upstreams: Vec::new(),
            ready_upstreams: VecDeque::new(),
            outs: Vec::new(),
            handshakes: VecDeque::new(),
            now_ms: clock::monotonic_coarse_ms(),
            heard_to_ms: 0,
            next_tick_ms: 0,
            gathering: Gathering::new(Stretch::IfSeldom),
            lingering: Vec::new(),
            pipes: Vec::new(),
            ticks: 1,
            heard: (0, 0),
            accept_again: false,
            accept_next: Vec::new(),
            counters: Counters::default(),
            seeing: Seeing::new(&shared.seen, number),
            monitoring: Vec::new(),
            drains_until_ms: None,
            shared,
        }
    }

    /// Runs until told to stop.
    pub fn run(mut self) {
        for (index, (listener, _)) in self.listeners.iter().enumerate() {
            self.poller
                .register(listener, FIRST_LISTENER + index, Interest::Read)
                .expect("a fresh listener can be watched");
        }
        if let Some(signals) = &self.signals {
            self.poller
                .register(signals, SIGNALS, Interest::Read)
                .expect("signals can be watched");
        }
        while !self.has_drained() {
            self.turn();
        }
    }

    fn turn(&mut self) {
        let may_sleep = self.mailbox.prepare_to_sleep()
            && self.ready.is_empty()
            && self.ready_upstreams.is_empty()
            && self.accept_next.is_empty();
        let timeout = match may_sleep {
            true if !self.is_owed_a_look() => {
                Duration::from_millis(self.next_tick_ms.saturating_sub(self.now_ms).max(1))
            }
            true => Duration::from_millis(LOOK_MS),
            false => Duration::ZERO,
        };
        self.heard_to_ms = self.now_ms;
        if let Err(error) = self.poller.poll(Some(timeout)) {
            panic!("the poller failed, nothing can be served any more: {error}");
        }
        let now_us = clock::monotonic_us();
        self.now_ms = now_us / 1000;
        self.cache.now_ms = self.now_ms;
        self.seeing.begin_turn(&self.shared.seen, now_us);
        if self.shared.routes.epoch() != self.epoch {
            self.epoch = self.shared.routes.epoch();
            let (fresh, tls) = self.shared.routes.latest();
            self.tls = tls;
            self.adopt(fresh);
        }
        for listener in std::mem::take(&mut self.accept_next) {
            self.accept(listener);
        }
        for index in 0..self.poller.event_count() {
            let event = self.poller.event(index);
            match event.token {
                WAKER => {}
                SIGNALS => self.on_signal(),
                token if token < FIRST_CONNECTION => self.accept(token - FIRST_LISTENER),
                token => {
                    let place = (token - FIRST_CONNECTION) as u32;
                    match place & 1 {
                        0 => self.on_client_event(place >> 1, &event),
                        _ => self.on_upstream_event(place >> 1, &event),
                    }
                }
            }
        }
        let (clients, were_silent) = std::mem::take(&mut self.heard);
        self.gathering.note(clients, were_silent);
        if self.poller.has_gathered() && !self.gathering.go_on(self.poller.event_count()) {
            self.poller.set_gathering(Duration::ZERO);
        }
        self.fetch_messages();
        for _ in 0..self.ready.len() {
            let Some(at) = self.ready.pop_front() else {
                break;
            };
            self.serve_client(at);
        }
        self.let_linger();
        self.write_upstreams();
        for _ in 0..self.ready_upstreams.len() {
            let Some(at) = self.ready_upstreams.pop_front() else {
                break;
            };
            self.read_upstream(at);
        }
        if !self.later.is_empty() {
            self.send_later();
        }
        if !self.delayed.is_empty() {
            self.release_delayed();
        }
        self.end_lingering();
        // Requests that had to be sent again, or elsewhere.
        self.write_upstreams();
        self.hand_lines_on();
        self.write_clients();
        if self.now_ms >= self.next_tick_ms {
            self.next_tick_ms = self.now_ms + TICK_MS;
            self.tick();
            self.write_upstreams();
            self.write_clients();
        }
        self.tell_what_was_seen();
        if self.cache.is_on {
            self.counters.cache = self.cache.counts();
        }
        self.seeing.end_turn(&self.counters);
        self.clients.end_turn();
        self.upstreams.end_turn();
        self.gathers.end_turn();
    }

    /// Returns true if something waits that no event will bring up again.
    fn is_owed_a_look(&self) -> bool {
        !(self.later.is_empty() && self.delayed.is_empty() && self.lingering.is_empty())
    }

    fn on_signal(&mut self) {
        let Some(signals) = &self.signals else {
            return;
        };
        while let Some(signal) = signals.next() {
            match signal {
                Signal::Terminate | Signal::Interrupt => {
                    for (mailbox, _) in &self.shared.workers {
                        mailbox.send(Message::Stop);
                    }
                }
                Signal::Hangup => {
                    if let Some(reload) = &self.shared.reload {
                        let begun = reload.begin(|ended| {
                            if let Err(error) = ended {
                                reload::say_why(&error);
                            }
                        });
                        if let Err(error) = begun {
                            reload::say_why(&error_text(&error));
                        }
                    }
                }
                // Not asked for.
                Signal::Quit | Signal::Suspend => {}
            }
        }
    }

    fn fetch_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.mailbox.drain(&mut messages);
        for message in messages.drain(..) {
            match message {
                // Nobody is let in any more: the stream is closed.
                Message::Connection(..) if self.drains_until_ms.is_some() => {}
                Message::Connection(stream, addr, pool) => self.welcome(stream, addr, pool),
                Message::Kill(ids) => {
                    let is_meant = |at: &u32| {
                        let client = self.clients.look(*at);
                        client.is_some_and(|client| ids.contains(&client.id))
                    };
                    let found: Vec<u32> = self.clients.taken().filter(is_meant).collect();
                    found.into_iter().for_each(|at| self.close_client(at));
                }
                Message::Watched(lines) => self.take_lines(&lines),
                Message::Stop => self.drain(),
                Message::Answer(client, number, reply_mode, error) => {
                    self.reloaded(client, number, reply_mode, error);
                }
            }
        }
        self.messages = messages;
    }

    /// Takes in who has connected, within the measure of a turn: who connects without end keeps no client waiting.
    fn accept(&mut self, number: usize) {
        for _ in 0..ACCEPTED_PER_TURN_MAX {
            let Some((listener, door)) = self.listeners.get(number) else {
                return;
            };
            let door = *door;
            match listener.accept() {
                Ok(Some((stream, addr))) => self.hand_over(stream, addr, door),
                Ok(None) => return,
                // Most likely for want of a descriptor: again at the next tick.
                Err(_) => {
                    self.accept_again = true;
                    return;
                }
            }
        }
        if !self.accept_next.contains(&number) {
            self.accept_next.push(number);
        }
    }

    /// Gives a new connection to the worker with the fewest clients.
    fn hand_over(&mut self, mut stream: Stream, addr: PeerAddr, door: u16) {
        self.counters.accepted += 1;
        let Some(pool) = self.let_in(&mut stream, door) else {
            return;
        };
        let count = |(_, clients): &(_, AtomicUsize)| clients.load(Ordering::Relaxed);
        let workers = &self.shared.workers;
        if workers.iter().map(count).sum::<usize>() >= self.shared.settings.clients_max {
            self.counters.rejected += 1;
            if !stream.is_tls() {
                let _ = stream.write(format!("-{}\r\n", errors::CLIENTS_MAX).as_bytes());
            }
            return;
        }
        let (to, (mailbox, clients)) = workers
            .iter()
            .enumerate()
            .min_by_key(|(_, worker)| count(worker))
            .expect("there is a worker: this one");
        clients.fetch_add(1, Ordering::Relaxed);
        if to == self.number {
            self.welcome(stream, addr, pool);
        } else {
            mailbox.send(Message::Connection(stream, addr, pool));
        }
    }

    fn welcome(&mut self, stream: Stream, addr: PeerAddr, pool: u16) {
        let place = self.clients.next_place();
        let token = FIRST_CONNECTION + 2 * place.at as usize;
        let watched = stream
            .set_nodelay(true)
            .and_then(|()| self.poller.register(&stream, token, Interest::Read));
        if watched.is_err() {
            self.shared.workers[self.number]
                .1
                .fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let id = self.shared.next_client.fetch_add(1, Ordering::Relaxed);
        let since_s = clock::wall_coarse_ms() / 1000;
        let card = Arc::new(Card {
            id,
            addr,
            laddr: stream.local_address().ok(),
            fd: stream.fd(),
            since_s,
            active_s: AtomicU32::new((self.now_ms / 1000) as u32),
            last: AtomicU16::new(crate::local::NO_COMMAND),
            subscriptions: Default::default(),
            told: Mutex::default(),
        });
        log::verbose(|| format!("client {id} has come from {}", card.addr));
        self.shared.cards().insert(id, Arc::clone(&card));
        let mut client = Client::new(stream, id, card);
        client.pool = pool;
        self.shared.introduce(&mut client);
        if client.stream.is_handshaking() {
            self.handshakes.push_back((place, self.now_ms));
        }
        self.clients.put(client);
    }

    fn on_client_event(&mut self, at: u32, event: &Event) {
        let Some(client) = self.clients.get(at) else {
            return;
        };
        client.peer_closed |= event.closed || event.error;
        client.urgent |= event.urgent;
        if event.error || client.peer_closed && client.waits_in_vain() && client.out.is_empty() {
            // Nobody is there any more to wait: what comes for it stays where it is.
            return self.close_client(at);
        }
        if client.peer_closed && client.booking.take().is_some() {
            client.waits_since_ms = Some(self.now_ms);
        }
        if event.readable || event.closed || event.urgent {
            client.readable = true;
            self.heard.0 += 1;
            self.heard.1 += u32::from(client.heard_at_tick != self.ticks);
            client.heard_at_tick = self.ticks;
            self.enqueue(at);
        }
        if event.writable {
            self.mark_client(at);
        }
    }

    fn on_upstream_event(&mut self, at: u32, event: &Event) {
        let Some(upstream) = self.upstreams.get(at) else {
            return;
        };
        upstream.closed |= event.closed || event.error;
        if upstream.state == State::Connecting {
            if event.writable || event.error || event.closed || upstream.stream.is_tls() {
                self.connected(at);
            }
            return;
        }
        if event.writable {
            self.mark_upstream(at);
        }
        if event.readable || event.closed || event.error {
            self.enqueue_upstream(at);
        }
    }

    /// The client is served in this turn, or in the next if this one has done so already.
    pub(crate) fn enqueue(&mut self, at: u32) {
        if let Some(client) = self.clients.get(at)
            && !client.queued
        {
            client.queued = true;
            self.ready.push_back(at);
        }
    }

    pub(crate) fn enqueue_upstream(&mut self, at: u32) {
        if let Some(upstream) = self.upstreams.get(at)
            && !upstream.queued
        {
            upstream.queued = true;
            self.ready_upstreams.push_back(at);
        }
    }

    /// The client has got something, or something has changed for it: it is looked at before the turn ends.
    #[inline]
    pub(crate) fn mark_client(&mut self, at: u32) {
        if let Some(client) = self.clients.get(at)
            && !client.dirty
        {
            client.dirty = true;
            self.dirty_clients.push(at);
        }
    }

    /// The server is to be sent something.
    #[inline]
    pub(crate) fn mark_upstream(&mut self, at: u32) {
        if let Some(upstream) = self.upstreams.get(at)
            && !upstream.dirty
        {
            upstream.dirty = true;
            self.dirty_upstreams.push(at);
        }
    }

    /// Watches a connection to a server.
    pub(crate) fn watch_upstream(&mut self, at: u32, stream: &Stream) -> std::io::Result<()> {
        let token = FIRST_CONNECTION + 2 * at as usize + 1;
        self.poller.register(stream, token, Interest::ReadWrite)
    }

    /// Asks, or no longer asks, for events of room to write.
    pub(crate) fn want_room(&mut self, at: u32, wants: bool) {
        let Some(upstream) = self.upstreams.get(at) else {
            return;
        };
        if upstream.wants_room == wants {
            return;
        }
        upstream.wants_room = wants;
        let interest = if wants {
            Interest::ReadWrite
        } else {
            Interest::Read
        };
        let token = FIRST_CONNECTION + 2 * at as usize + 1;
        // Where it fails, the connection is gone, and the next read or write says so.
        let _ = self.poller.reregister(&upstream.stream, token, interest);
    }

    /// Reads what a client has sent, and serves what was left of before.
    fn serve_client(&mut self, at: u32) {
        let Some(client) = self.clients.get(at) else {
            return;
        };
        client.queued = false;
        let passes = matches!(client.session, Session::Passing(_));
        // Who has begun a large request when the end is asked for may end it.
        if client.closing && !passes || client.pause != Pause::No {
            return self.read_ahead(at);
        }
        if passes && self.pipe_request(at) {
            return;
        }
        let Some(client) = self.clients.get(at) else {
            return;
        };
        let mut query = std::mem::take(&mut client.query);
        let own = query.is_empty();
        if own {
            query = std::mem::take(&mut self.received);
        }
        let client = self.clients.get(at).expect("it was there just now");
        if let Some(piece) = client.ahead.take() {
            query.extend_from_slice(&piece);
        } else if client.readable {
            match client.stream.read_into(&mut query, CLIENT_READ_BYTES_MAX) {
                Ok(redline_net::Read::Data { drained, bytes }) => {
                    self.counters.received_bytes += bytes as u64;
                    // The end of a stream raises no event of its own.
                    client.readable = !drained || client.peer_closed || client.urgent;
                    client.card.heard(self.now_ms);
                }
                Ok(redline_net::Read::WouldBlock) => {
                    client.readable = false;
                }
                Ok(redline_net::Read::Eof) | Err(_) => {
                    client.readable = false;
                    client.eof = true;
                }
            }
        }
        if client.stream.has_unsent() {
            // TLS has something to say by itself.
            self.mark_client(at);
        }
        let before = self.counters.requests;
        let consumed = self.serve(at, &mut query);
        if self.shared.identities.is_some() {
            self.count_user(at, self.counters.requests - before);
        }
        let query_bytes_max = self.shared.settings.query_bytes_max;
        if let Some(client) = self.clients.get(at) {
            client.show_last();
            let rest = query.len() - consumed;
            if rest > query_bytes_max {
                tell_of_query_buffer(&client.card.addr, query_bytes_max);
                client.closing = true;
                client.query = Vec::new();
            } else if own && rest > 0 {
                client.query = query[consumed..].to_vec();
            } else if !own {
                query.drain(..consumed);
                if !query.is_empty() {
                    client.query = std::mem::take(&mut query);
                }
            }
            let passes = matches!(client.session, Session::Passing(_));
            let may_have_more = client.readable || !client.ahead.is_empty();
            if may_have_more && client.pause == Pause::No && (!client.closing || passes) {
                self.enqueue(at);
            }
        }
        if own {
            query.clear();
            self.received = query;
        }
        if self
            .clients
            .get(at)
            .is_some_and(|client| client.eof || client.closing)
        {
            self.mark_client(at);
        }
    }

    fn write_clients(&mut self) {
        while let Some(at) = self.dirty_clients.pop() {
            self.write_client(at);
        }
    }

    pub(crate) fn write_client(&mut self, at: u32) {
        let settings = &self.shared.settings;
        let Some(client) = self.clients.get(at) else {
            return;
        };
        client.dirty = false;
        let mut lost = false;
        let mut full = false;
        if client.stream.has_unsent() {
            lost = client.stream.write(&[]).is_err();
        }
        while client.sent < client.out.len() && !full {
            match client.stream.write(&client.out[client.sent..]) {
                Ok(Some(written)) => {
                    self.counters.sent_bytes += written as u64;
                    full = written < client.unsent();
                    client.advance(written);
                    if let Some(rates) = &client.rates {
                        rates.take_bytes(written, clock::monotonic_us());
                    }
                }
                Ok(None) => full = true,
                Err(_) => {
                    lost = true;
                    break;
                }
            }
        }
        // What is encrypted and not taken by the socket.
        full |= client.stream.has_unsent();
        let (limit, output_max) = match client.subscribed.is_some() || client.monitors {
            true => (
                "subscriber-output-buffer",
                settings.subscriber_output_bytes_max,
            ),
            false => ("output-buffer", settings.client_output_bytes_max),
        };
        if client.owed() > output_max && !lost {
            return self.close_for_output(at, limit, output_max);
        }
        let done = client.out.is_empty()
            && !full
            && (client.closing && client.pending() == 0 || client.eof && client.is_forsaken());
        if lost || done {
            return self.close_client(at);
        }
        if client.wants_room != full {
            client.wants_room = full;
            let interest = if full {
                Interest::ReadWrite
            } else {
                Interest::Read
            };
            let token = FIRST_CONNECTION + 2 * at as usize;
            let _ = self.poller.reregister(&client.stream, token, interest);
        }
        let sticks = full && client.readable && client.pause != Pause::No && !client.queued;
        if client.out.is_empty() && client.out.capacity() > 0 {
            let mut memory = std::mem::take(&mut client.out);
            if self.outs.len() < OUTS_MAX {
                memory.shrink_to(OUT_BYTES_KEPT_MAX);
                self.outs.push(memory);
            }
        }
        let feeds = match client.unsent() < settings.client_output_bytes_high / 2 {
            true => client.feeds.take(),
            false => None,
        };
        let (pause, owed, pending) = (client.pause, client.owed(), client.pending());
        if self.is_over(pause, owed, pending)
            && let Some(client) = self.clients.get(at)
            && client.go_on()
        {
            self.calm(at);
            self.enqueue(at);
        }
        if let Some(place) = feeds {
            self.go_on_feeding(place);
        }
        if sticks {
            self.read_ahead(at);
        }
    }

    /// Memory for a client's output, if it has none.
    #[inline]
    pub(crate) fn lend_output(outs: &mut Vec<Vec<u8>>, client: &mut Client) {
        if client.out.capacity() == 0
            && let Some(memory) = outs.pop()
        {
            client.out = memory;
        }
    }

    /// Hands replies to a client, if it is still there.
    #[inline]
    pub(crate) fn deliver(&mut self, to: Ref, first: u32, count: u32, bytes: &[u8]) {
        let Some(client) = self.clients.find(to) else {
            return;
        };
        Self::lend_output(&mut self.outs, client);
        client.deliver(first, count, bytes);
        self.counters.responses += u64::from(count);
        if !client.dirty {
            client.dirty = true;
            self.dirty_clients.push(to.at);
        }
    }

    fn count_user(&mut self, at: u32, requests: u64) {
        let user = self
            .clients
            .look(at)
            .and_then(|client| client.user.as_ref());
        if let Some(user) = user {
            self.seeing.count_user(user.name(), requests);
        }
    }

    /// Hands over what was counted, for whoever asks within this turn.
    pub(crate) fn publish_counters(&mut self) {
        self.counters.cache = self.cache.counts();
        self.seeing.end_turn(&self.counters);
    }

    /// The end was asked for: nobody comes in, nothing new is taken, and who waits for nothing is let go. Asked for twice,
    /// it comes at once.
    fn drain(&mut self) {
        let again = self.drains_until_ms.is_some();
        let span_ms = if again {
            0
        } else {
            self.shared.settings.drain_timeout_ms
        };
        let until_ms = match (again, span_ms) {
            // Off: however long it takes.
            (false, 0) => u64::MAX,
            _ => self.now_ms + span_ms,
        };
        self.drains_until_ms = Some(until_ms);
        if self.number == 0 {
            log::notice(match again {
                true => "asked to end again: at once",
                false => "asked to end: nobody comes in, clients get what they have asked for",
            });
        }
        self.listeners.clear();
        for at in self.clients.taken().collect::<Vec<_>>() {
            let Some(client) = self.clients.get(at) else {
                continue;
            };
            client.closing = true;
            if client.pending() == 0 && client.owed() == 0 {
                self.close_client(at);
            }
        }
    }

    /// Returns true if the end was asked for.
    pub(crate) fn drains(&self) -> bool {
        self.drains_until_ms.is_some()
    }

    fn has_drained(&self) -> bool {
        let over = |until_ms| self.now_ms >= until_ms || self.clients.taken().next().is_none();
        self.drains_until_ms.is_some_and(over)
    }

    /// Ends a client's connection.
    pub(crate) fn close_client(&mut self, at: u32) {
        let Some(me) = self.clients.place(at) else {
            return;
        };
        let Some(mut client) = self.clients.take(at) else {
            return;
        };
        self.leave_all(me, client.subscribed.take());
        if client.monitors {
            self.monitor_no_more(me);
        }
        if let Some(place) = client.feeds.take() {
            self.go_on_feeding(place);
        }
        let workers = &self.shared.workers;
        workers[self.number].1.fetch_sub(1, Ordering::Relaxed);
        self.shared.cards().remove(&client.id);
        log::verbose(|| format!("client {} from {} is gone", client.id, client.card.addr));
        client.stream.close_notify();
        if client.pause == Pause::Time {
            self.delayed.retain(|delayed| delayed.client != me);
        }
        self.abandon(std::mem::replace(&mut client.session, Session::Shared));
    }

    fn tick(&mut self) {
        self.ticks = self.ticks.wrapping_add(1);
        let allowed = Duration::from_micros(self.shared.settings.event_coalescing_us);
        let (now_us, used_us) = (clock::monotonic_us(), clock::thread_cpu_us());
        let cost = self.poller.rest_cost();
        let span = self.gathering.tick(now_us, used_us, None, allowed, cost);
        self.poller.set_gathering(span);
        if std::mem::take(&mut self.accept_again) {
            (0..self.listeners.len()).for_each(|listener| self.accept(listener));
        }
        self.seeing.tick(&mut self.counters);
        self.look_at_memory(self.ticks);
        self.look_into_pipes();
        self.check_upstreams();
        self.check_handshakes();
        self.check_readers();
        self.check_senders();
        self.check_forsaken();
        self.check_subscriptions();
        self.mend_subscriptions();
        self.tend_cache();
        if self.ticks.is_multiple_of(TICKS_PER_COLLECTION) {
            redline_alloc::collect(false);
        }
        let timeout_s = self.seeing.tuning.client_idle_s;
        if timeout_s > 0 {
            let now_s = self.now_ms / 1000;
            let idle: Vec<u32> = self
                .clients
                .taken()
                .collect::<Vec<_>>()
                .into_iter()
                .filter(|at| {
                    self.clients.get(*at).is_some_and(|client| {
                        // Nobody keeps a server's connection by WATCH or MULTI either.
                        client.pending() == 0
                            && !matches!(client.session, Session::Leaving(_))
                            && client.subscribed.is_none()
                            && !client.monitors
                            && now_s
                                .saturating_sub(client.card.active_s.load(Ordering::Relaxed).into())
                                > timeout_s
                    })
                })
                .collect();
            idle.into_iter().for_each(|at| self.close_client(at));
        }
    }
}
