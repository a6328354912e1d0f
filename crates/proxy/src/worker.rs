//! A worker: its poller, its clients, its connections to servers, and the turn of its loop.
//!
//! One turn: requests of all clients that sent something are decoded, routed and queued ([`requests`](crate::requests)); each
//! server that got some is written to once; replies of the servers that answered are handed to the clients
//! ([`replies`](crate::replies)); each client that got some is written to once. So the requests of many clients share their
//! system calls, the more the busier the worker is.
//!
//! Must not know how requests are routed, or what any command does.

use crate::command_names;
use crate::control::reload;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redline_net::{
    Event, Gathering, Interest, Listener, Mailbox, PeerAddr, Poller, Sender, Signal, Signals,
    Stream, Stretch, clock, error_text,
};
use redline_resp::RequestLimits;

use crate::access::Identities;
use crate::admission::Traffic;
use crate::cache::Cache;
use crate::cached_reads;
use crate::class::Command;
use crate::client::{Client, Pause, ReplyMode};
use crate::clients::Clients;
use crate::cluster_view::ClusterView;
use crate::connections::Connections;
use crate::context::Context;
use crate::control::Reload;
use crate::errors;
use crate::gathers::Gathers;
use crate::leases::Session;
use crate::links::Links;
use crate::local_commands;
use crate::local_commands::Card;
use crate::observability::commands;
use crate::observability::log;
use crate::observability::memory;
use crate::observability::monitor;
use crate::observability::{Counters, Seeing, Seen, tell_of_query_buffer};
use crate::published::Published;
use crate::report::Report;
use crate::requests::Requests;
use crate::retry::{LOOK_MS, Retries};
use crate::scripts::Scripts;
use crate::settings::Settings;
use crate::slab::Ref;
use crate::sockets;
use crate::splice;
use crate::streaming;
use crate::subscriptions::Subscriptions;
use crate::subscriptions::upkeep;
use crate::tls_config::Doors;
use crate::upstream::State;

/// Events taken in one turn.
const EVENTS_MAX: usize = 1024;
/// Connections that one listener's turn takes; what is left waits for the next.
const ACCEPTED_PER_TURN_MAX: usize = 100;
/// How often time-outs are looked at: milliseconds.
const TICK_MS: u64 = 100;
/// Ticks after which a worker lets the allocator look at what others have freed of its memory.
const TICKS_PER_COLLECTION: u32 = 10;
/// A handshake of TLS that takes longer is broken off: milliseconds. The server has the same.
const HANDSHAKE_MS: u64 = 10_000;
/// Bytes that one read of a client takes at most.
pub(crate) const CLIENT_READ_BYTES_MAX: usize = 64 * 1024;
/// Bytes that one read of a server takes at most.
pub(crate) const UPSTREAM_READ_BYTES_MAX: usize = 64 * 1024;
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
    /// The routing table.
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
    pub names: command_names::Names,
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
    mailbox: Mailbox<Message>,
    messages: Vec<Message>,
    listeners: Vec<(Listener, u16)>,
    signals: Option<Signals>,
    /// Clients that had no TLS yet when they came, and when that was, the oldest first.
    handshakes: VecDeque<(Ref, u64)>,
    /// The routing table that is in use.
    epoch: u64,
    next_tick_ms: u64,
    gathering: Gathering,
    /// Clients from which something came in this turn, and how many of them had been silent since the last tick.
    heard: (u32, u32),
    /// Listeners from which nobody could be let in: they are tried again at the next tick.
    accept_again: bool,
    /// Those at which more wait than one turn takes.
    accept_next: Vec<usize>,
    requests: Requests,
    conns: Connections,
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
    /// The number of the pool of somebody who comes in by this door; nothing: it cannot have what the door asks for.
    fn let_in(&self, stream: &mut Stream, door: u16) -> Option<u16> {
        let door = self.conns.ctx.shared.doors.get(door)?;
        if door.keepalive_s > 0 {
            // Without it a client that is gone without a word is noticed later.
            let _ = stream.set_keepalive(door.keepalive_s);
        }
        if let Some(tls) = door.tls() {
            stream.accept_tls(&tls).ok()?;
        }
        Some(door.pool)
    }

    /// Closes clients whose TLS takes too long.
    fn check_handshakes(&mut self) {
        while let Some(&(client, since_ms)) = self.handshakes.front()
            && self.conns.ctx.now_ms.saturating_sub(since_ms) > HANDSHAKE_MS
        {
            self.handshakes.pop_front();
            let goes_on = self.conns.ctx.clients.find(client);
            if goes_on.is_some_and(|client| client.stream.is_handshaking()) {
                self.conns.close_client(client.at);
            }
        }
    }

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
        let ctx = Context {
            number,
            routes,
            tls,
            poller,
            clients: Clients::new(),
            links: Links::default(),
            gathers: Gathers::default(),
            cache,
            limits,
            may_put_off: true,
            reads_turn: number as u32,
            now_ms: clock::monotonic_coarse_ms(),
            heard_to_ms: 0,
            ticks: 1,
            pipes: Vec::new(),
            counters: Counters::default(),
            seeing: Seeing::new(&shared.seen, number),
            monitoring: Vec::new(),
            drains_until_ms: None,
            commands,
            shared,
        };
        Worker {
            epoch: ctx.shared.routes.epoch(),
            mailbox,
            messages: Vec::new(),
            listeners,
            signals,
            handshakes: VecDeque::new(),
            next_tick_ms: 0,
            gathering: Gathering::new(Stretch::IfSeldom),
            heard: (0, 0),
            accept_again: false,
            accept_next: Vec::new(),
            requests: Requests::new(&ctx.commands),
            conns: Connections {
                ctx,
                subscriptions: Subscriptions::default(),
                retries: Retries::default(),
                received: Vec::with_capacity(UPSTREAM_READ_BYTES_MAX),
            },
        }
    }

    /// Runs until told to stop.
    pub fn run(mut self) {
        for (index, (listener, _)) in self.listeners.iter().enumerate() {
            self.conns
                .ctx
                .poller
                .register(listener, FIRST_LISTENER + index, Interest::Read)
                .expect("a fresh listener can be watched");
        }
        if let Some(signals) = &self.signals {
            self.conns
                .ctx
                .poller
                .register(signals, SIGNALS, Interest::Read)
                .expect("signals can be watched");
        }
        while !self.has_drained() {
            self.turn();
        }
    }

    fn turn(&mut self) {
        let may_sleep = self.mailbox.prepare_to_sleep()
            && self.conns.ctx.clients.ready.is_empty()
            && self.conns.ctx.links.ready.is_empty()
            && self.accept_next.is_empty();
        let timeout = match may_sleep {
            true if !self.is_owed_a_look() => Duration::from_millis(
                self.next_tick_ms
                    .saturating_sub(self.conns.ctx.now_ms)
                    .max(1),
            ),
            true => Duration::from_millis(LOOK_MS),
            false => Duration::ZERO,
        };
        self.conns.ctx.heard_to_ms = self.conns.ctx.now_ms;
        if let Err(error) = self.conns.ctx.poller.poll(Some(timeout)) {
            panic!("the poller failed, nothing can be served any more: {error}");
        }
        let now_us = clock::monotonic_us();
        self.conns.ctx.now_ms = now_us / 1000;
        self.conns.ctx.cache.now_ms = self.conns.ctx.now_ms;
        self.conns
            .ctx
            .seeing
            .begin_turn(&self.conns.ctx.shared.seen, now_us);
        if self.conns.ctx.shared.routes.epoch() != self.epoch {
            self.epoch = self.conns.ctx.shared.routes.epoch();
            let (fresh, tls) = self.conns.ctx.shared.routes.latest();
            self.conns.ctx.tls = tls;
            self.conns.adopt(fresh);
        }
        for listener in std::mem::take(&mut self.accept_next) {
            self.accept(listener);
        }
        for index in 0..self.conns.ctx.poller.event_count() {
            let event = self.conns.ctx.poller.event(index);
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
        if self.conns.ctx.poller.has_gathered()
            && !self.gathering.go_on(self.conns.ctx.poller.event_count())
        {
            self.conns.ctx.poller.set_gathering(Duration::ZERO);
        }
        self.fetch_messages();
        for _ in 0..self.conns.ctx.clients.ready.len() {
            let Some(at) = self.conns.ctx.clients.ready.pop_front() else {
                break;
            };
            self.serve_client(at);
        }
        self.conns.ctx.let_linger();
        sockets::write_upstreams(&mut self.conns);
        for _ in 0..self.conns.ctx.links.ready.len() {
            let Some(at) = self.conns.ctx.links.ready.pop_front() else {
                break;
            };
            sockets::read_upstream(&mut self.conns, at);
        }
        if !self.conns.retries.is_empty() {
            self.conns.retries.send_due(&mut self.conns.ctx);
        }
        if self.conns.ctx.clients.has_delayed() {
            self.conns
                .ctx
                .clients
                .release_delayed(self.conns.ctx.now_ms);
        }
        self.conns.ctx.links.end_lingering();
        // Requests that had to be sent again, or elsewhere.
        sockets::write_upstreams(&mut self.conns);
        monitor::hand_lines_on(&mut self.conns.ctx);
        sockets::write_clients(&mut self.conns);
        if self.conns.ctx.now_ms >= self.next_tick_ms {
            self.next_tick_ms = self.conns.ctx.now_ms + TICK_MS;
            self.tick();
            sockets::write_upstreams(&mut self.conns);
            sockets::write_clients(&mut self.conns);
        }
        commands::tell_what_was_seen(&mut self.conns.ctx);
        if self.conns.ctx.cache.is_on {
            self.conns.ctx.counters.cache = self.conns.ctx.cache.counts();
        }
        self.conns.ctx.counters.responses = self.conns.ctx.clients.responses;
        self.conns.ctx.seeing.end_turn(&self.conns.ctx.counters);
        self.conns.ctx.clients.end_turn();
        self.conns.ctx.links.end_turn();
        self.conns.ctx.gathers.end_turn();
    }

    /// Returns true if something waits that no event will bring up again.
    fn is_owed_a_look(&self) -> bool {
        !(self.conns.retries.is_empty()
            && !self.conns.ctx.clients.has_delayed()
            && self.conns.ctx.links.lingering.is_empty())
    }

    fn on_signal(&mut self) {
        let Some(signals) = &self.signals else {
            return;
        };
        while let Some(signal) = signals.next() {
            match signal {
                Signal::Terminate | Signal::Interrupt => {
                    for (mailbox, _) in &self.conns.ctx.shared.workers {
                        mailbox.send(Message::Stop);
                    }
                }
                Signal::Hangup => {
                    if let Some(reload) = &self.conns.ctx.shared.reload {
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
                Message::Connection(..) if self.conns.ctx.drains_until_ms.is_some() => {}
                Message::Connection(stream, addr, pool) => self.welcome(stream, addr, pool),
                Message::Kill(ids) => {
                    let is_meant = |at: &u32| {
                        let client = self.conns.ctx.clients.look(*at);
                        client.is_some_and(|client| ids.contains(&client.id))
                    };
                    let found: Vec<u32> = self.conns.ctx.clients.taken().filter(is_meant).collect();
                    found.into_iter().for_each(|at| self.conns.close_client(at));
                }
                Message::Watched(lines) => monitor::take_lines(&mut self.conns.ctx, &lines),
                Message::Stop => self.drain(),
                Message::Answer(client, number, reply_mode, error) => {
                    local_commands::reloaded(
                        &mut self.conns.ctx,
                        client,
                        number,
                        reply_mode,
                        error,
                    );
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
        self.conns.ctx.counters.accepted += 1;
        let Some(pool) = self.let_in(&mut stream, door) else {
            return;
        };
        let count = |(_, clients): &(_, AtomicUsize)| clients.load(Ordering::Relaxed);
        let workers = &self.conns.ctx.shared.workers;
        if workers.iter().map(count).sum::<usize>() >= self.conns.ctx.shared.settings.clients_max {
            self.conns.ctx.counters.rejected += 1;
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
        if to == self.conns.ctx.number {
            self.welcome(stream, addr, pool);
        } else {
            mailbox.send(Message::Connection(stream, addr, pool));
        }
    }

    fn welcome(&mut self, stream: Stream, addr: PeerAddr, pool: u16) {
        let place = self.conns.ctx.clients.next_place();
        let token = FIRST_CONNECTION + 2 * place.at as usize;
        let watched = stream.set_nodelay(true).and_then(|()| {
            self.conns
                .ctx
                .poller
                .register(&stream, token, Interest::Read)
        });
        if watched.is_err() {
            self.conns.ctx.shared.workers[self.conns.ctx.number]
                .1
                .fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let id = self
            .conns
            .ctx
            .shared
            .next_client
            .fetch_add(1, Ordering::Relaxed);
        let since_s = clock::wall_coarse_ms() / 1000;
        let card = Arc::new(Card {
            id,
            addr,
            laddr: stream.local_address().ok(),
            fd: stream.fd(),
            since_s,
            active_s: AtomicU32::new((self.conns.ctx.now_ms / 1000) as u32),
            last: AtomicU16::new(crate::local_commands::NO_COMMAND),
            subscriptions: Default::default(),
            told: Mutex::default(),
        });
        log::verbose(|| format!("client {id} has come from {}", card.addr));
        self.conns.ctx.shared.cards().insert(id, Arc::clone(&card));
        let mut client = Client::new(stream, id, card);
        client.pool = pool;
        self.conns.ctx.shared.introduce(&mut client);
        if client.stream.is_handshaking() {
            self.handshakes.push_back((place, self.conns.ctx.now_ms));
        }
        self.conns.ctx.clients.put(client);
    }

    fn on_client_event(&mut self, at: u32, event: &Event) {
        let Some(client) = self.conns.ctx.clients.get(at) else {
            return;
        };
        client.peer_closed |= event.closed || event.error;
        client.urgent |= event.urgent;
        if event.error || client.peer_closed && client.waits_in_vain() && client.out.is_empty() {
            // Nobody is there any more to wait: what comes for it stays where it is.
            return self.conns.close_client(at);
        }
        if client.peer_closed && client.booking.take().is_some() {
            client.waits_since_ms = Some(self.conns.ctx.now_ms);
        }
        if event.readable || event.closed || event.urgent {
            client.readable = true;
            self.heard.0 += 1;
            self.heard.1 += u32::from(client.heard_at_tick != self.conns.ctx.ticks);
            client.heard_at_tick = self.conns.ctx.ticks;
            self.conns.ctx.clients.enqueue(at);
        }
        if event.writable {
            self.conns.ctx.clients.mark(at);
        }
    }

    fn on_upstream_event(&mut self, at: u32, event: &Event) {
        let Some(upstream) = self.conns.ctx.links.get(at) else {
            return;
        };
        upstream.closed |= event.closed || event.error;
        if upstream.state == State::Connecting {
            if event.writable || event.error || event.closed || upstream.stream.is_tls() {
                sockets::connected(&mut self.conns, at);
            }
            return;
        }
        if event.writable {
            self.conns.ctx.links.mark(at);
        }
        if event.readable || event.closed || event.error {
            self.conns.ctx.links.enqueue(at);
        }
    }

    /// Reads what a client has sent, and serves what was left of before.
    fn serve_client(&mut self, at: u32) {
        let Some(client) = self.conns.ctx.clients.get(at) else {
            return;
        };
        client.queued = false;
        let passes = matches!(client.session, Session::Passing(_));
        // Who has begun a large request when the end is asked for may end it.
        if client.closing && !passes || client.pause != Pause::No {
            return sockets::read_ahead(&mut self.conns, at);
        }
        if passes && splice::pipe_request(&mut self.conns, at) {
            return;
        }
        let Some(client) = self.conns.ctx.clients.get(at) else {
            return;
        };
        let mut query = std::mem::take(&mut client.query);
        let own = query.is_empty();
        if own {
            query = std::mem::take(&mut self.conns.received);
        }
        let client = self
            .conns
            .ctx
            .clients
            .get(at)
            .expect("it was there just now");
        if let Some(piece) = client.ahead.take() {
            query.extend_from_slice(&piece);
        } else if client.readable {
            match client.stream.read_into(&mut query, CLIENT_READ_BYTES_MAX) {
                Ok(redline_net::Read::Data { drained, bytes }) => {
                    self.conns.ctx.counters.received_bytes += bytes as u64;
                    // The end of a stream raises no event of its own.
                    client.readable = !drained || client.peer_closed || client.urgent;
                    client.card.heard(self.conns.ctx.now_ms);
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
            self.conns.ctx.clients.mark(at);
        }
        let before = self.conns.ctx.counters.requests;
        let consumed = self.requests.serve(&mut self.conns, at, &mut query);
        if self.conns.ctx.shared.identities.is_some() {
            self.count_user(at, self.conns.ctx.counters.requests - before);
        }
        let query_bytes_max = self.conns.ctx.shared.settings.query_bytes_max;
        if let Some(client) = self.conns.ctx.clients.get(at) {
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
                self.conns.ctx.clients.enqueue(at);
            }
        }
        if own {
            query.clear();
            self.conns.received = query;
        }
        if self
            .conns
            .ctx
            .clients
            .get(at)
            .is_some_and(|client| client.eof || client.closing)
        {
            self.conns.ctx.clients.mark(at);
        }
    }

    fn count_user(&mut self, at: u32, requests: u64) {
        let user = self
            .conns
            .ctx
            .clients
            .look(at)
            .and_then(|client| client.user.as_ref());
        if let Some(user) = user {
            self.conns.ctx.seeing.count_user(user.name(), requests);
        }
    }

    /// The end was asked for: nobody comes in, nothing new is taken, and who waits for nothing is let go. Asked for twice,
    /// it comes at once.
    fn drain(&mut self) {
        let again = self.conns.ctx.drains_until_ms.is_some();
        let span_ms = if again {
            0
        } else {
            self.conns.ctx.shared.settings.drain_timeout_ms
        };
        let until_ms = match (again, span_ms) {
            // Off: however long it takes.
            (false, 0) => u64::MAX,
            _ => self.conns.ctx.now_ms + span_ms,
        };
        self.conns.ctx.drains_until_ms = Some(until_ms);
        if self.conns.ctx.number == 0 {
            log::notice(match again {
                true => "asked to end again: at once",
                false => "asked to end: nobody comes in, clients get what they have asked for",
            });
        }
        self.listeners.clear();
        for at in self.conns.ctx.clients.taken().collect::<Vec<_>>() {
            let Some(client) = self.conns.ctx.clients.get(at) else {
                continue;
            };
            client.closing = true;
            if client.pending() == 0 && client.owed() == 0 {
                self.conns.close_client(at);
            }
        }
    }

    fn has_drained(&self) -> bool {
        let over = |until_ms| {
            self.conns.ctx.now_ms >= until_ms || self.conns.ctx.clients.taken().next().is_none()
        };
        self.conns.ctx.drains_until_ms.is_some_and(over)
    }

    fn tick(&mut self) {
        self.conns.ctx.ticks = self.conns.ctx.ticks.wrapping_add(1);
        let allowed = Duration::from_micros(self.conns.ctx.shared.settings.event_coalescing_us);
        let (now_us, used_us) = (clock::monotonic_us(), clock::thread_cpu_us());
        let cost = self.conns.ctx.poller.rest_cost();
        let span = self.gathering.tick(now_us, used_us, None, allowed, cost);
        self.conns.ctx.poller.set_gathering(span);
        if std::mem::take(&mut self.accept_again) {
            (0..self.listeners.len()).for_each(|listener| self.accept(listener));
        }
        self.conns.ctx.seeing.tick(&mut self.conns.ctx.counters);
        memory::look_at_memory(&mut self.conns);
        splice::look_into_pipes(&mut self.conns.ctx);
        self.conns.check_upstreams();
        self.check_handshakes();
        streaming::check_readers(&mut self.conns);
        streaming::check_senders(&mut self.conns);
        sockets::check_forsaken(&mut self.conns);
        upkeep::check(&mut self.conns);
        upkeep::mend(&mut self.conns);
        cached_reads::tend_cache(&mut self.conns);
        if self.conns.ctx.ticks.is_multiple_of(TICKS_PER_COLLECTION) {
            redline_alloc::collect(false);
        }
        let timeout_s = self.conns.ctx.seeing.tuning.client_idle_s;
        if timeout_s > 0 {
            let now_s = self.conns.ctx.now_ms / 1000;
            let idle: Vec<u32> = self
                .conns
                .ctx
                .clients
                .taken()
                .collect::<Vec<_>>()
                .into_iter()
                .filter(|at| {
                    self.conns.ctx.clients.get(*at).is_some_and(|client| {
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
            idle.into_iter().for_each(|at| self.conns.close_client(at));
        }
    }
}
