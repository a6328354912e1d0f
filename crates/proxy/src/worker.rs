//! A worker: its poller, its clients, its connections to servers, and the turn of its loop.
//!
//! One turn: requests of all clients with new bytes are decoded, routed and queued ([`requests`](crate::requests)); each
//! server with new requests is written to once; replies of servers are delivered to clients
//! ([`replies`](crate::replies)); each client with new replies is written to once. So the requests of many clients share
//! system calls, the more the busier the worker is.
//!
//! Must not know how requests are routed, or the effect of any command.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redline_front::{Accepted, Acceptor, Admission, Handshakes, Share, prepare, refuse};
use redline_net::{
    Event, Gathering, Interest, Listener, Mailbox, PeerAddr, Poller, Signal, Signals, Stream,
    Stretch, clock, error_text, supervisor,
};
use redline_proxy_core::client_info::ClientInfo;

use crate::client::Pause;
use crate::control::reload;
use crate::host::{FIRST_CONNECTION, Host, Message, Process, Socket, address, client_token};
use crate::leases::Session;
use crate::observability::memory::{self, tell_of_query_buffer};
use crate::observability::{commands, log, monitor};
use crate::retry::LOOK_MS;
use crate::shared::Shared;
use crate::slab::Ref;
use crate::start::{DRAINING, READY, told};
use crate::subscriptions::upkeep;
use crate::upstream::State;
use crate::{Core, cached_reads, local_commands, sockets, splice, streaming};

/// Largest number of events in one turn.
const EVENTS_MAX: usize = 1024;
/// Interval of time-out checks: milliseconds.
const TICK_MS: u64 = 100;
/// Ticks after which a worker lets the allocator collect what other threads have freed of its memory.
const TICKS_PER_COLLECTION: u32 = 10;
/// Size of one read of a client: bytes.
pub(crate) const CLIENT_READ_BYTES_MAX: usize = 64 * 1024;
/// Size of one read of a server: bytes.
pub(crate) const UPSTREAM_READ_BYTES_MAX: usize = 64 * 1024;
const WAKER: usize = 0;
const SIGNALS: usize = 1;
const FIRST_LISTENER: usize = 2;

/// A worker of the proxy.
pub struct Worker {
    mailbox: Mailbox<Message>,
    messages: Vec<Message>,
    /// Listeners, and the numbers of their doors.
    acceptor: Acceptor<u16>,
    signals: Option<Signals>,
    handshakes: Handshakes<Ref>,
    /// The epoch of the current routing table.
    epoch: u64,
    next_tick_ms: u64,
    gathering: Gathering,
    /// Number of clients with new bytes in this turn, and number of those without any since the last tick.
    heard: (u32, u32),
    core: Core,
}

/// The parts that a worker is made from.
pub struct Start {
    /// Its number.
    pub number: usize,
    /// The core's state that all workers share.
    pub shared: Arc<Shared>,
    /// The other state that all workers share.
    pub process: Arc<Process>,
    /// Its poller, with the mailbox's waker registered.
    pub poller: Poller,
    /// Its mailbox.
    pub mailbox: Mailbox<Message>,
    /// The listeners, and the numbers of their doors. The first worker has them all.
    pub listeners: Vec<(Arc<Listener>, u16)>,
    /// The first worker has them.
    pub signals: Option<Signals>,
}

/// The token of the poller's waker.
pub const WAKER_TOKEN: usize = WAKER;

/// Returns a poller for a worker.
pub fn poller() -> std::io::Result<Poller> {
    Poller::new(EVENTS_MAX)
}

impl Worker {
    /// Closes clients whose TLS handshake has timed out.
    fn check_handshakes(&mut self) {
        let now_ms = self.core.conns.ctx.now_ms;
        while let Some(client) = self.handshakes.next_overdue(now_ms) {
            let goes_on = self.core.conns.ctx.clients.find(client);
            if goes_on.is_some_and(|client| client.socket.stream.is_handshaking()) {
                self.core.conns.close_client(client.at);
            }
        }
    }

    /// Returns a worker that has not begun.
    pub fn new(start: Start) -> Worker {
        let Start {
            number,
            shared,
            process,
            poller,
            mailbox,
            listeners,
            signals,
        } = start;
        let epoch = process.routes.epoch();
        let (routes, tls) = process.routes.latest();
        let host = Host {
            number,
            process,
            poller,
            tls,
            pipes: Vec::new(),
            received: Vec::with_capacity(UPSTREAM_READ_BYTES_MAX),
        };
        let core = Core::new(host, shared, number, routes, clock::monotonic_us());
        Worker {
            epoch,
            mailbox,
            messages: Vec::new(),
            acceptor: Acceptor::new(listeners, FIRST_LISTENER),
            signals,
            handshakes: Handshakes::default(),
            next_tick_ms: 0,
            gathering: Gathering::new(Stretch::IfSeldom),
            heard: (0, 0),
            core,
        }
    }

    /// Runs until told to stop.
    pub fn run(mut self) {
        let watched = self.acceptor.watch(&self.core.conns.ctx.shell.poller);
        watched.expect("a fresh listener can be watched");
        if let Some(signals) = &self.signals {
            self.core
                .conns
                .ctx
                .shell
                .poller
                .register(signals, SIGNALS, Interest::Read)
                .expect("signals can be watched");
        }
        while !self.has_drained() {
            self.turn();
        }
        self.note_ticks(supervisor::ENDED);
    }

    /// Shows other threads that the loop turns.
    fn note_ticks(&self, ticks: u64) {
        let ctx = &self.core.conns.ctx;
        let worker = &ctx.shell.process.workers[ctx.number];
        worker.ticks.store(ticks, Ordering::Relaxed);
    }

    fn turn(&mut self) {
        let may_sleep = self.mailbox.prepare_to_sleep()
            && self.core.conns.ctx.clients.ready.is_empty()
            && self.core.conns.ctx.links.ready.is_empty()
            && !self.acceptor.is_due();
        let timeout = match may_sleep {
            true if !self.is_owed_a_look() => Duration::from_millis(
                self.next_tick_ms
                    .saturating_sub(self.core.conns.ctx.now_ms)
                    .max(1),
            ),
            true => Duration::from_millis(LOOK_MS),
            false => Duration::ZERO,
        };
        if let Err(error) = self.core.conns.ctx.shell.poller.poll(Some(timeout)) {
            panic!("the poller failed, nothing can be served any more: {error}");
        }
        let now_us = clock::monotonic_us();
        self.core.begin_turn(now_us);
        if self.core.conns.ctx.shell.process.routes.epoch() != self.epoch {
            self.epoch = self.core.conns.ctx.shell.process.routes.epoch();
            let (fresh, tls) = self.core.conns.ctx.shell.process.routes.latest();
            self.core.conns.ctx.shell.tls = tls;
            self.core.conns.adopt(fresh);
        }
        for share in self.acceptor.take_due() {
            self.accept(share);
        }
        for index in 0..self.core.conns.ctx.shell.poller.event_count() {
            let event = self.core.conns.ctx.shell.poller.event(index);
            match event.token {
                WAKER => {}
                SIGNALS => self.on_signal(),
                token if token < FIRST_CONNECTION => self.accept(self.acceptor.share(token)),
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
        if self.core.conns.ctx.shell.poller.has_gathered()
            && !self
                .gathering
                .go_on(self.core.conns.ctx.shell.poller.event_count())
        {
            self.core
                .conns
                .ctx
                .shell
                .poller
                .set_gathering(Duration::ZERO);
        }
        self.fetch_messages();
        for _ in 0..self.core.conns.ctx.clients.ready.len() {
            let Some(at) = self.core.conns.ctx.clients.ready.pop_front() else {
                break;
            };
            self.serve_client(at);
        }
        let is_gathering = self.core.conns.ctx.shell.poller.is_gathering();
        self.core.conns.ctx.let_linger(is_gathering);
        sockets::write_upstreams(&mut self.core.conns);
        for _ in 0..self.core.conns.ctx.links.ready.len() {
            let Some(at) = self.core.conns.ctx.links.ready.pop_front() else {
                break;
            };
            sockets::read_upstream(&mut self.core.conns, at);
        }
        if !self.core.conns.retries.is_empty() {
            self.core.conns.retries.send_due(&mut self.core.conns.ctx);
        }
        if self.core.conns.ctx.clients.has_delayed() {
            self.core
                .conns
                .ctx
                .clients
                .release_delayed(self.core.conns.ctx.now_ms);
        }
        self.core.conns.ctx.links.end_lingering();
        // Requests that had to be sent again, or elsewhere.
        sockets::write_upstreams(&mut self.core.conns);
        self.hand_lines_on();
        sockets::write_clients(&mut self.core.conns);
        if self.core.conns.ctx.now_ms >= self.next_tick_ms {
            self.next_tick_ms = self.core.conns.ctx.now_ms + TICK_MS;
            self.tick();
            sockets::write_upstreams(&mut self.core.conns);
            sockets::write_clients(&mut self.core.conns);
        }
        commands::tell_what_was_seen(&mut self.core.conns.ctx);
        self.core.end_turn();
    }

    /// Passes lines for MONITOR on, to clients here and at the other workers.
    fn hand_lines_on(&mut self) {
        let ctx = &mut self.core.conns.ctx;
        let Some(lines) = monitor::noted(ctx) else {
            return;
        };
        for (number, worker) in ctx.shell.process.workers.iter().enumerate() {
            if number != ctx.number {
                worker.mailbox.send(Message::Watched(Arc::clone(&lines)));
            }
        }
        monitor::take_lines(ctx, &lines);
    }

    /// Returns true if work is pending that no event will announce.
    fn is_owed_a_look(&self) -> bool {
        !(self.core.conns.retries.is_empty()
            && !self.core.conns.ctx.clients.has_delayed()
            && self.core.conns.ctx.links.lingering.is_empty())
    }

    fn on_signal(&mut self) {
        let Some(signals) = &self.signals else {
            return;
        };
        while let Some(signal) = signals.next() {
            match signal {
                Signal::Terminate | Signal::Interrupt => {
                    for worker in &self.core.conns.ctx.shell.process.workers {
                        worker.mailbox.send(Message::Stop);
                    }
                }
                Signal::Hangup => {
                    if let Some(reload) = &self.core.conns.ctx.shell.process.reload {
                        told(supervisor::reloading());
                        let begun = reload.begin(|ended| {
                            if let Err(error) = ended {
                                reload::say_why(&error);
                            }
                            told(supervisor::ready(READY));
                        });
                        if let Err(error) = begun {
                            reload::say_why(&error_text(&error));
                            told(supervisor::ready(READY));
                        }
                    }
                }
                // Not subscribed.
                Signal::Quit | Signal::Suspend => {}
            }
        }
    }

    fn fetch_messages(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        self.mailbox.drain(&mut messages);
        for message in messages.drain(..) {
            match message {
                // New connections are refused: the stream is closed.
                Message::Connection(..) if self.core.conns.ctx.drains_until_ms.is_some() => {}
                Message::Connection(stream, addr, pool) => self.welcome(stream, addr, pool),
                Message::Kill(ids) => {
                    let is_meant = |at: &u32| {
                        let client = self.core.conns.ctx.clients.look(*at);
                        client.is_some_and(|client| ids.contains(&client.id))
                    };
                    let found: Vec<u32> = self
                        .core
                        .conns
                        .ctx
                        .clients
                        .taken()
                        .filter(is_meant)
                        .collect();
                    found
                        .into_iter()
                        .for_each(|at| self.core.conns.close_client(at));
                }
                Message::Watched(lines) => monitor::take_lines(&mut self.core.conns.ctx, &lines),
                Message::Stop => self.drain(),
                Message::Answer(client, number, reply_mode, error) => {
                    local_commands::reloaded(
                        &mut self.core.conns.ctx,
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

    /// Accepts the connections of a listener's share.
    fn accept(&mut self, mut share: Share) {
        while let Some(next) = self.acceptor.next(&mut share) {
            // It fails most likely for want of a descriptor: again at the next tick.
            if let Ok(accepted) = next {
                self.hand_over(accepted);
            }
        }
    }

    /// Gives a new connection to the worker with the fewest clients.
    fn hand_over(&mut self, accepted: Accepted<u16>) {
        let Accepted {
            mut stream,
            peer,
            port,
        } = accepted;
        let ctx = &mut self.core.conns.ctx;
        ctx.counters.accepted += 1;
        let process = &ctx.shell.process;
        let Some(door) = process.doors.get(port) else {
            return;
        };
        let tls = door.tls.current();
        let admission = Admission {
            clients_max: ctx.shared.settings.clients_max,
            is_protected: false,
        };
        let open = process.client_count();
        if let Some(line) = admission.refusal(open, &peer) {
            ctx.counters.rejected += 1;
            return refuse(stream, tls.is_some(), line);
        }
        if prepare(&mut stream, door.keepalive_s, tls.as_ref()).is_err() {
            return;
        }
        let workers = process.workers.iter().enumerate();
        let (to, worker) = workers
            .min_by_key(|(_, worker)| worker.clients.load(Ordering::Relaxed))
            .expect("there is a worker: this one");
        worker.clients.fetch_add(1, Ordering::Relaxed);
        let pool = door.pool;
        if to == ctx.number {
            self.welcome(stream, peer, pool);
        } else {
            worker.mailbox.send(Message::Connection(stream, peer, pool));
        }
    }

    fn welcome(&mut self, stream: Stream, addr: PeerAddr, pool: u16) {
        let place = self.core.conns.ctx.clients.next_place();
        let token = client_token(place.at);
        let poller = &self.core.conns.ctx.shell.poller;
        if poller.register(&stream, token, Interest::Read).is_err() {
            self.core.conns.ctx.shell.process.workers[self.core.conns.ctx.number]
                .clients
                .fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let process = &self.core.conns.ctx.shell.process;
        let id = process.next_client.fetch_add(1, Ordering::Relaxed);
        let addresses = (address(addr), stream.local_address().ok().map(address));
        let since_s = clock::wall_coarse_ms() / 1000;
        let active_s = (self.core.conns.ctx.now_ms / 1000) as u32;
        let info = ClientInfo::new(id, addresses, stream.fd(), (since_s, active_s));
        let info = Arc::new(info);
        log::verbose(|| format!("client {id} has come from {}", info.addr));
        process.clients().insert(id, Arc::clone(&info));
        if stream.is_handshaking() {
            self.handshakes.begin(place, self.core.conns.ctx.now_ms);
        }
        self.core.client_opened(Socket::new(stream), info, pool);
    }

    fn on_client_event(&mut self, at: u32, event: &Event) {
        let Some(client) = self.core.conns.ctx.clients.get(at) else {
            return;
        };
        client.peer_closed |= event.closed || event.error;
        client.urgent |= event.urgent;
        if event.error || client.peer_closed && client.waits_in_vain() && client.out.is_empty() {
            // The client is gone: later replies to it are dropped.
            return self.core.conns.close_client(at);
        }
        if client.peer_closed && client.booking.take().is_some() {
            client.waits_since_ms = Some(self.core.conns.ctx.now_ms);
        }
        if event.readable || event.closed || event.urgent {
            client.readable = true;
            self.heard.0 += 1;
            self.heard.1 += u32::from(client.heard_at_tick != self.core.conns.ctx.ticks);
            client.heard_at_tick = self.core.conns.ctx.ticks;
            self.core.conns.ctx.clients.enqueue(at);
        }
        if event.writable {
            self.core.conns.ctx.clients.mark(at);
        }
    }

    fn on_upstream_event(&mut self, at: u32, event: &Event) {
        let Some(upstream) = self.core.conns.ctx.links.get(at) else {
            return;
        };
        upstream.closed |= event.closed || event.error;
        if upstream.state == State::Connecting {
            if event.writable || event.error || event.closed || upstream.socket.stream.is_tls() {
                sockets::connected(&mut self.core.conns, at);
            }
            return;
        }
        if event.writable {
            self.core.conns.ctx.links.mark(at);
        }
        if event.readable || event.closed || event.error {
            self.core.conns.ctx.links.enqueue(at);
        }
    }

    /// Reads bytes of a client, and handles earlier ones.
    fn serve_client(&mut self, at: u32) {
        let Some(client) = self.core.conns.ctx.clients.get(at) else {
            return;
        };
        client.queued = false;
        let passes = matches!(client.session, Session::Passing(_));
        // A large request that was begun before draining may finish.
        if client.closing && !passes || client.pause != Pause::No {
            return sockets::read_ahead(&mut self.core.conns, at);
        }
        if passes && splice::pipe_request(&mut self.core.conns, at) {
            return;
        }
        let Some(client) = self.core.conns.ctx.clients.get(at) else {
            return;
        };
        let mut query = std::mem::take(&mut client.query);
        let own = query.is_empty();
        if own {
            query = std::mem::take(&mut self.core.conns.ctx.shell.received);
        }
        let client = self
            .core
            .conns
            .ctx
            .clients
            .get(at)
            .expect("it was there just now");
        if let Some(piece) = client.ahead.take() {
            query.extend_from_slice(&piece);
        } else if client.readable {
            match client
                .socket
                .stream
                .read_into(&mut query, CLIENT_READ_BYTES_MAX)
            {
                Ok(redline_net::Read::Data { drained, bytes }) => {
                    self.core.conns.ctx.counters.received_bytes += bytes as u64;
                    // The end of a stream raises no event of its own.
                    client.readable = !drained || client.peer_closed || client.urgent;
                    client.info.heard(self.core.conns.ctx.now_ms);
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
        if client.socket.stream.has_unsent() {
            // TLS has bytes to send of its own.
            self.core.conns.ctx.clients.mark(at);
        }
        let before = self.core.conns.ctx.counters.requests;
        let consumed = self.core.client_bytes(at, &mut query);
        if self.core.conns.ctx.shared.identities.is_some() {
            self.count_user(at, self.core.conns.ctx.counters.requests - before);
        }
        let query_bytes_max = self.core.conns.ctx.shared.settings.query_bytes_max;
        if let Some(client) = self.core.conns.ctx.clients.get(at) {
            client.show_last();
            let rest = query.len() - consumed;
            if rest > query_bytes_max {
                tell_of_query_buffer(
                    &self.core.conns.ctx.shell,
                    &client.info.addr,
                    query_bytes_max,
                );
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
                self.core.conns.ctx.clients.enqueue(at);
            }
        }
        if own {
            query.clear();
            self.core.conns.ctx.shell.received = query;
        }
        if self
            .core
            .conns
            .ctx
            .clients
            .get(at)
            .is_some_and(|client| client.eof || client.closing)
        {
            self.core.conns.ctx.clients.mark(at);
        }
    }

    fn count_user(&mut self, at: u32, requests: u64) {
        let user = self
            .core
            .conns
            .ctx
            .clients
            .look(at)
            .and_then(|client| client.user.as_ref());
        if let Some(user) = user {
            self.core
                .conns
                .ctx
                .recorder
                .count_user(user.name(), requests);
        }
    }

    /// Begins to drain: no new clients, no new requests, and idle clients are closed. A second call ends at once.
    fn drain(&mut self) {
        let again = self.core.conns.ctx.drains_until_ms.is_some();
        let span_ms = if again {
            0
        } else {
            self.core.conns.ctx.shared.settings.drain_timeout_ms
        };
        let until_ms = match (again, span_ms) {
            // Off: without a limit.
            (false, 0) => u64::MAX,
            _ => self.core.conns.ctx.now_ms + span_ms,
        };
        self.core.conns.ctx.drains_until_ms = Some(until_ms);
        if self.core.conns.ctx.number == 0 {
            log::notice(match again {
                true => "draining is cut short: a second signal",
                false => "draining: no new clients are accepted, requests under way are answered",
            });
        }
        if self.core.conns.ctx.number == 0 {
            let process = &self.core.conns.ctx.shell.process;
            process.drains.store(true, Ordering::Relaxed);
            told(supervisor::stopping(DRAINING));
        }
        self.acceptor.clear();
        for at in self.core.conns.ctx.clients.taken().collect::<Vec<_>>() {
            let Some(client) = self.core.conns.ctx.clients.get(at) else {
                continue;
            };
            client.closing = true;
            if client.pending() == 0 && client.owed() == 0 {
                self.core.conns.close_client(at);
            }
        }
    }

    fn has_drained(&self) -> bool {
        let over = |until_ms| {
            self.core.conns.ctx.now_ms >= until_ms
                || self.core.conns.ctx.clients.taken().next().is_none()
        };
        self.core.conns.ctx.drains_until_ms.is_some_and(over)
    }

    fn tick(&mut self) {
        self.core.conns.ctx.ticks = self.core.conns.ctx.ticks.wrapping_add(1);
        self.note_ticks(self.core.conns.ctx.ticks.into());
        let allowed =
            Duration::from_micros(self.core.conns.ctx.shared.settings.event_coalescing_us);
        let (now_us, used_us) = (clock::monotonic_us(), clock::thread_cpu_us());
        let cost = self.core.conns.ctx.shell.poller.rest_cost();
        let span = self.gathering.tick(now_us, used_us, None, allowed, cost);
        self.core.conns.ctx.shell.poller.set_gathering(span);
        self.acceptor.retry();
        self.core.conns.ctx.recorder.now_s = clock::wall_coarse_ms() / 1000;
        self.core
            .conns
            .ctx
            .recorder
            .tick(&mut self.core.conns.ctx.counters);
        memory::look_at_memory(&mut self.core.conns);
        splice::look_into_pipes(&mut self.core.conns.ctx);
        self.core.conns.check_upstreams();
        self.check_handshakes();
        streaming::check_readers(&mut self.core.conns);
        streaming::check_senders(&mut self.core.conns);
        sockets::check_forsaken(&mut self.core.conns);
        upkeep::check(&mut self.core.conns);
        upkeep::mend(&mut self.core.conns);
        cached_reads::tend_cache(&mut self.core.conns);
        if self
            .core
            .conns
            .ctx
            .ticks
            .is_multiple_of(TICKS_PER_COLLECTION)
        {
            redline_alloc::collect(false);
        }
        let timeout_s = self.core.conns.ctx.recorder.tuning.client_idle_s;
        if timeout_s > 0 {
            let now_s = self.core.conns.ctx.now_ms / 1000;
            let idle: Vec<u32> = self
                .core
                .conns
                .ctx
                .clients
                .taken()
                .collect::<Vec<_>>()
                .into_iter()
                .filter(|at| {
                    self.core.conns.ctx.clients.get(*at).is_some_and(|client| {
                        // No client holds a server's connection by WATCH or MULTI either.
                        client.pending() == 0
                            && !matches!(client.session, Session::Leaving(_))
                            && client.subscribed.is_none()
                            && !client.monitors
                            && now_s
                                .saturating_sub(client.info.active_s.load(Ordering::Relaxed).into())
                                > timeout_s
                    })
                })
                .collect();
            idle.into_iter()
                .for_each(|at| self.core.conns.close_client(at));
        }
    }
}
