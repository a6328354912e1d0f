//! One load thread: its connections and its event loop. The hot path.
//!
//! Must not know titles, reports or other threads; state shared with them is in [`Shared`]. Its [`Load`] decides what to
//! send and when, and handles replies: batches for redis-benchmark's command line, `drive` for a measured run.
//!
//! # Cost of a batch
//!
//! One `send`, one `recv`, and a share of one `epoll_wait`. Sockets are registered once, edge-triggered; a read that
//! fills less than its room has emptied the socket, so it is not repeated; the next batch leaves in the same turn that
//! saw the last reply of the one before, without asking whether there is room to write. All connections send from one
//! buffer. The clock is read once per read: the time at which replies arrived is also the time at which the next batch
//! leaves. Figures are kept in plain memory of the thread; once a turn they are published for the live line.
//! The worker is compiled once for each kind of load: nothing is looked up at run time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redline_net::tls::ClientTls;
use redline_net::{
    Address, Alarm, Endpoint, Event, Interest, Poller, Read, Shutdown, Stream, Waker, clock,
    connect_endpoint,
};
use redline_resp::Skipper;

use crate::load::failure::{Failure, said};
use crate::load::outgoing::Outgoing;

/// The load of a worker: which requests it sends, when, and how it takes their replies. One per thread.
pub trait Load {
    /// State that the load keeps of a connection.
    type Pending: Send;

    /// True if the load sends by the clock: [`Load::due`] then has to be asked.
    const PACED: bool = false;

    /// Returns the state of a connection that has sent nothing yet.
    fn pending(&self) -> Self::Pending;

    /// Begins the test: the number of connections, and the time at which the gate opened.
    fn begin(&mut self, connections: usize, now_ns: u64);

    /// Returns the index in [`Shared::places`] of a connection's server; larger tokens wrap around.
    fn place(&self, token: usize) -> usize {
        token
    }

    /// Returns true if an established connection that has sent nothing is to send at once.
    fn start(&mut self, token: usize) -> bool;

    /// Returns the next bytes of a connection that is to send.
    fn next(&mut self, token: usize, pending: &mut Self::Pending, now_ns: u64) -> &[u8];

    /// Returns the bytes that [`Load::next`] has just returned for a connection, shared for as long as needed.
    fn part_with(&mut self, token: usize) -> Arc<Vec<u8>>;

    /// Takes bytes that arrived; returns how many may be dropped, and the next action.
    fn take(&mut self, arrived: Arrived<'_, Self::Pending>) -> Result<Taken, Failure>;

    /// Returns a connection whose next request is due without a reply.
    fn due(&mut self, _now_ns: u64) -> Option<usize> {
        None
    }

    /// Returns the time until which there is nothing to do, unless bytes arrive.
    fn wait(&mut self) -> Wait {
        Wait::ForEvents
    }

    /// Returns the time-out of a replacement connection.
    fn connects_within(&self) -> Duration {
        HANDSHAKE_WITHIN
    }

    /// Handles an established replacement connection; returns true if it is to send at once.
    fn reconnected(&mut self, _token: usize, _pending: &mut Self::Pending, _now_ns: u64) -> bool {
        true
    }

    /// Handles a connection that is lost, or could not be replaced; returns the pause before the next attempt. `None`
    /// ends the test with the failure. Called only for paced loads.
    fn lost(
        &mut self,
        _token: usize,
        _pending: &mut Self::Pending,
        _failure: &Failure,
        _now_ns: u64,
    ) -> Option<Duration> {
        None
    }

    /// Returns a connection whose oldest request may have timed out; each is returned once.
    fn suspect(&mut self, _now_ns: u64) -> Option<usize> {
        None
    }

    /// Returns true if a suspect's oldest request has timed out.
    fn is_overdue(&mut self, _token: usize, _pending: &mut Self::Pending, _now_ns: u64) -> bool {
        false
    }

    /// Returns true if a connection waits for replies, or will be used; any other may be closed by the server.
    fn needs(&self, pending: &Self::Pending) -> bool;

    /// Returns true if any request is in flight or still to be sent.
    fn is_active(&self) -> bool;

    /// Ends a turn of the loop.
    fn turned(&mut self) {}

    /// Notes that the test ended while the connection waited for replies, or for nothing.
    fn give_up(&mut self, _pending: &mut Self::Pending, _now_ns: u64) {}

    /// Notes the end of the test, early or not.
    fn end(&mut self, _now_ns: u64) {}

    /// Returns the number of answered requests so far, and the sum of their latencies in microseconds.
    fn progress(&self) -> (u64, u64);
}

/// Bytes that arrived on a connection, and the connection's state.
pub struct Arrived<'a, P> {
    /// The connection's token.
    pub token: usize,
    /// The state that the load keeps of the connection.
    pub pending: &'a mut P,
    /// The state of its reply stream.
    pub skipper: &'a mut Skipper,
    /// Due replies that answer the prefix, and are not the load's.
    pub prefix_awaited: &'a mut u64,
    /// The bytes, from the start of a line on.
    pub bytes: &'a [u8],
    /// Time of arrival.
    pub now_ns: u64,
}

/// Result of a load's handling of bytes that arrived.
pub struct Taken {
    /// Number of bytes that were handled; the rest is the start of a line.
    pub consumed: usize,
    /// True if there was a reply that counts: the last of these ends the test.
    pub counted: bool,
    /// Next action of the connection.
    pub then: Then,
}

/// Next action of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Waits: for more replies, or for nothing.
    Wait,
    /// Sends.
    Send,
    /// Is replaced by a new connection, which sends.
    Reconnect,
}

/// Longest sleep of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until something arrives.
    ForEvents,
    /// Until that time at most, on the monotonic clock.
    Until(u64),
}

/// State that the threads of one test share.
pub struct Shared {
    /// The servers, among which each thread's load distributes its connections; at least one.
    pub places: Vec<Place>,
    /// TLS of connections, if it is used.
    pub tls: Option<ClientTls>,
    /// False: each batch gets a connection of its own.
    pub keep_alive: bool,
    /// Set to end the test early.
    pub stop: AtomicBool,
    /// Opened when the connections of all threads are established.
    pub gate: Gate,
}

/// A server, and the requests that it gets first.
#[derive(Clone)]
pub struct Place {
    /// As the user wrote it, or a node of a cluster, for messages.
    pub address: Address,
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// Sent once on each connection, before its first batch.
    pub prefix: Prefix,
}

/// Holds threads back until it is opened.
#[derive(Default)]
pub struct Gate {
    /// Time at which it was opened, on the monotonic clock; 0 before.
    opened_ns: Mutex<u64>,
    opened: Condvar,
}

impl Gate {
    /// Opens the gate for all threads.
    pub fn open(&self) {
        let mut opened_ns = self.lock();
        if *opened_ns == 0 {
            *opened_ns = clock::monotonic_ns();
        }
        drop(opened_ns);
        self.opened.notify_all();
    }

    /// Waits until it is open, and returns the time of the opening.
    pub fn pass(&self) -> u64 {
        let passed = self.opened.wait_while(self.lock(), |ns| *ns == 0);
        *passed.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, u64> {
        self.opened_ns
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A timer in a thread's poller, made when it is first set: the poller's own time-outs are whole milliseconds.
#[derive(Default)]
pub struct PollerAlarm(Option<Alarm>);

impl PollerAlarm {
    /// Ends the next poll at this time of the monotonic clock. A failure is one of this machine.
    pub fn set(&mut self, poller: &Poller, at_ns: u64) -> Result<(), Failure> {
        let failed = |error| Failure::local("timerfd", &error);
        let alarm = match &mut self.0 {
            Some(alarm) => alarm,
            unmade => {
                let alarm = Alarm::new().map_err(failed)?;
                poller
                    .register(&alarm, ALARM_TOKEN, Interest::Read)
                    .map_err(failed)?;
                unmade.insert(alarm)
            }
        };
        alarm.set(at_ns).map_err(failed)
    }
}

/// Requests that prepare a connection, and the number of their replies.
#[derive(Clone, Default)]
pub struct Prefix {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// Replies that are not counted.
    pub replies: u64,
}

/// A thread's figures, readable by other threads. Padded: no two threads write to one cache line.
#[derive(Default)]
#[repr(align(128))]
pub struct Progress {
    /// Requests answered.
    pub finished: AtomicU64,
    /// Sum of their latencies.
    pub latency_us: AtomicU64,
    /// Time at which the first batch was sent, on the monotonic clock; 0 before.
    pub started_ns: AtomicU64,
}

/// Result of a thread.
pub struct Ended<L> {
    /// Its load, with what was measured.
    pub load: L,
    /// Its connections, which are still open.
    pub open: Vec<Stream>,
    /// Time at which the first request was sent, on the monotonic clock; 0: none was.
    pub started_ns: u64,
    /// Time at which the last reply arrived, or at which the test was ended early.
    pub ended_ns: u64,
    /// The reason why it ended early by itself, if it did.
    pub failure: Option<Failure>,
}

/// One load thread.
pub struct Worker<'a, L: Load> {
    shared: &'a Shared,
    progress: &'a Progress,
    load: L,
    poller: Poller,
    /// Created when the load first needs it.
    alarm: PollerAlarm,
    connections: Vec<Connection<L::Pending>>,
    /// The read buffer.
    receive: Vec<u8>,
    /// Connections with unread bytes.
    unread: Vec<usize>,
    /// Number of connections that are being opened.
    opening: usize,
    /// Lost connections, and the times of the next attempts.
    retries: BTreeSet<(u64, usize)>,
    /// Connections begun during the test that may not be established yet, and their start times; all have one time-out.
    attempts: VecDeque<(u64, usize)>,
    started_ns: u64,
    last_reply_ns: u64,
}

struct Connection<P> {
    stream: Stream,
    skipper: Skipper,
    connecting: bool,
    /// Time at which it was begun.
    begun_ns: u64,
    /// Closed, and to be replaced: later events of its socket are ignored.
    lost: bool,
    pending: P,
    /// In [`Worker::unread`].
    unread: bool,
    /// Number of due replies to the prefix, before those of the load.
    prefix_awaited: u64,
    /// Bytes that the socket did not take.
    unsent: Outgoing,
    /// The start of a line whose rest has not arrived.
    held: Vec<u8>,
}

/// Size of one read: many replies of 1 KiB, or one LRANGE of 600 elements, many times over.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Largest number of reads of one connection in one turn.
const READS_MAX: usize = 16;
/// Largest unsent rest that is copied.
const COPIED_BYTES_MAX: usize = 256 * 1024;
/// Largest number of events in one turn.
const EVENTS_MAX: usize = 1024;
/// Largest number of connections that one thread opens at a time: a server's backlog is limited.
const CONNECTING_MAX: usize = 64;
/// Pause before a new attempt if the backlog of a unix socket is full, which refuses instead of queueing.
const BACKLOG_PAUSE: Duration = Duration::from_millis(1);
const WAKE_TOKEN: usize = usize::MAX;
const ALARM_TOKEN: usize = usize::MAX - 1;

impl<'a, L: Load> Worker<'a, L> {
    /// Returns a thread's state without its connections.
    pub fn new(
        shared: &'a Shared,
        progress: &'a Progress,
        load: L,
    ) -> std::io::Result<Worker<'a, L>> {
        Ok(Worker {
            shared,
            progress,
            load,
            poller: Poller::new(EVENTS_MAX)?,
            alarm: PollerAlarm::default(),
            connections: Vec::new(),
            receive: vec![0; RECEIVE_BYTES],
            unread: Vec::new(),
            opening: 0,
            retries: BTreeSet::new(),
            attempts: VecDeque::new(),
            started_ns: 0,
            last_reply_ns: 0,
        })
    }

    /// Returns a handle that makes this thread check [`Shared::stop`].
    pub fn waker(&mut self) -> std::io::Result<Waker> {
        self.poller.waker(WAKE_TOKEN)
    }

    /// Opens `clients` connections, calls `connected`, waits at the gate, and sends until the load is done.
    pub fn run(mut self, clients: usize, connected: impl FnOnce()) -> Ended<L> {
        let opened = self.open(clients);
        let result = opened.and_then(|()| {
            connected();
            let opened_ns = self.shared.gate.pass();
            self.send_all(opened_ns)
        });
        let stopped = result.is_err() || self.stopped();
        let now_ns = clock::monotonic_ns();
        for connection in &mut self.connections {
            self.load.give_up(&mut connection.pending, now_ns);
        }
        self.load.end(now_ns);
        let open = self.connections.into_iter();
        Ended {
            load: self.load,
            open: open.map(|connection| connection.stream).collect(),
            started_ns: self.started_ns,
            ended_ns: if stopped { now_ns } else { self.last_reply_ns },
            failure: result.err(),
        }
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn open(&mut self, clients: usize) -> Result<(), Failure> {
        let mut patience = Patience::new(self.shared.tls.as_ref());
        while !self.stopped() && (self.connections.len() < clients || self.opening > 0) {
            let mut timeout = patience.left();
            while self.connections.len() < clients && self.opening < CONNECTING_MAX {
                let token = self.connections.len();
                match self.connect(token)? {
                    Some(connection) => self.connections.push(connection),
                    None => {
                        timeout = Some(BACKLOG_PAUSE);
                        break;
                    }
                }
                self.opening += 1;
            }
            self.poll(timeout)?;
            for index in 0..self.poller.event_count() {
                let event = self.poller.event(index);
                if self
                    .connections
                    .get(event.token)
                    .is_some_and(|connection| connection.connecting)
                    && self.connected(event.token)?
                {
                    self.opening -= 1;
                    patience.renew();
                }
            }
            patience.check()?;
        }
        Ok(())
    }

    fn place(&self, token: usize) -> &'a Place {
        let places = &self.shared.places;
        &places[self.load.place(token) % places.len()]
    }

    /// Starts to connect; `None` if the server's backlog is full now.
    fn connect(&self, token: usize) -> Result<Option<Connection<L::Pending>>, Failure> {
        let place = self.place(token);
        let stream = match connect_endpoint(&place.endpoint) {
            Ok(stream) => stream,
            Err(error) if error.error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(Failure::connect_endpoint(&place.address, &error)),
        };
        let failed = |error| Failure::connect(&place.address, &error);
        stream.set_nodelay(true).map_err(failed)?;
        self.poller
            .register(&stream, token, Interest::ReadWrite)
            .map_err(failed)?;
        Ok(Some(Connection {
            stream,
            skipper: Skipper::new(),
            connecting: true,
            begun_ns: clock::monotonic_ns(),
            lost: false,
            pending: self.load.pending(),
            unread: false,
            prefix_awaited: place.prefix.replies,
            unsent: Outgoing::of(&place.prefix.bytes),
            held: Vec::new(),
        }))
    }

    /// Returns true if a connection is established, its TLS included.
    fn connected(&mut self, token: usize) -> Result<bool, Failure> {
        let place = self.place(token);
        let connection = &mut self.connections[token];
        let failed = |error| Failure::connect(&place.address, &error);
        if let Some(error) = connection.stream.take_error().map_err(failed)? {
            return Err(failed(error));
        }
        if let Some(tls) = &self.shared.tls
            && !secure(&mut connection.stream, tls)?
        {
            return Ok(false);
        }
        connection.connecting = false;
        // For one batch the call that disables write events is not worth it.
        if self.shared.keep_alive {
            self.poller
                .reregister(&connection.stream, token, Interest::Read)
                .map_err(failed)?;
        }
        Ok(true)
    }

    fn poll(&mut self, timeout: Option<Duration>) -> Result<(), Failure> {
        self.poller
            .poll(timeout)
            .map_err(|error| Failure::local("epoll", &error))
    }

    fn send_all(&mut self, opened_ns: u64) -> Result<(), Failure> {
        if self.stopped() {
            return Ok(());
        }
        self.started_ns = clock::monotonic_ns();
        self.last_reply_ns = self.started_ns;
        self.progress
            .started_ns
            .store(self.started_ns, Ordering::Relaxed);
        self.load.begin(self.connections.len(), opened_ns);
        for token in 0..self.connections.len() {
            if self.stopped() || !self.load.start(token) {
                break;
            }
            let sent = self.send(token, clock::monotonic_ns());
            self.survive(token, sent)?;
        }
        while self.load.is_active() && !self.stopped() {
            self.sleep()?;
            let unread = std::mem::take(&mut self.unread);
            for index in 0..self.poller.event_count() {
                let event = self.poller.event(index);
                let done = self.on_event(event);
                self.survive(event.token, done)?;
            }
            for token in unread {
                // It may have been replaced.
                let connection = &mut self.connections[token];
                if std::mem::take(&mut connection.unread) && !connection.lost {
                    let done = self.receive(token, false);
                    self.survive(token, done)?;
                }
            }
            if L::PACED {
                self.send_due()?;
            }
            self.give_up_attempts()?;
            self.load.turned();
            let (finished, latency_us) = self.load.progress();
            self.progress.finished.store(finished, Ordering::Relaxed);
            self.progress
                .latency_us
                .store(latency_us, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sends requests that are due by the clock.
    fn send_due(&mut self) -> Result<(), Failure> {
        loop {
            let now_ns = clock::monotonic_ns();
            let Some(token) = self.load.due(now_ns) else {
                return self.look_after(now_ns);
            };
            let sent = self.send(token, now_ns);
            self.survive(token, sent)?;
        }
    }

    /// Closes connections that have timed out, and opens lost ones again.
    fn look_after(&mut self, now_ns: u64) -> Result<(), Failure> {
        while let Some(token) = self.load.suspect(now_ns) {
            let connection = &mut self.connections[token];
            if !connection.lost && self.load.is_overdue(token, &mut connection.pending, now_ns) {
                self.survive(token, Err(Failure::TimedOut))?;
            }
        }
        while let Some(&(at_ns, token)) = self.retries.first() {
            if at_ns > now_ns {
                break;
            }
            self.retries.pop_first();
            match self.connect(token) {
                Ok(Some(connection)) => self.replace(token, connection),
                Ok(None) => {
                    let pause = BACKLOG_PAUSE.as_nanos() as u64;
                    self.retries.insert((now_ns + pause, token));
                }
                Err(failure) => self.survive(token, Err(failure))?,
            }
        }
        Ok(())
    }

    /// Replaces a lost connection by one that is not established yet.
    fn replace(&mut self, token: usize, connection: Connection<L::Pending>) {
        // The kernel has a time-out for connecting, which suffices here: but not for a handshake, which has none, nor
        // where another attempt would follow.
        if L::PACED || self.shared.tls.is_some() {
            let begun_ns = connection.begun_ns;
            self.attempts.push_back((begun_ns, token));
        }
        self.connections[token] = connection;
    }

    /// Returns the time-out of the oldest attempt to connect.
    fn attempt_ends_ns(&mut self) -> Option<u64> {
        while let Some(&(begun_ns, token)) = self.attempts.front() {
            let connection = &self.connections[token];
            if connection.connecting && !connection.lost && connection.begun_ns == begun_ns {
                let patience_ns = self.load.connects_within().as_nanos() as u64;
                return Some(begun_ns.saturating_add(patience_ns));
            }
            self.attempts.pop_front();
        }
        None
    }

    /// Closes attempts to connect that have timed out.
    fn give_up_attempts(&mut self) -> Result<(), Failure> {
        while let Some(until_ns) = self.attempt_ends_ns() {
            if clock::monotonic_ns() < until_ns {
                break;
            }
            let Some((_, token)) = self.attempts.pop_front() else {
                break;
            };
            let failure = if self.shared.tls.is_some() {
                Failure::unanswered_handshake()
            } else {
                let error = std::io::ErrorKind::TimedOut.into();
                Failure::connect(&self.place(token).address, &error)
            };
            self.survive(token, Err(failure))?;
        }
        Ok(())
    }

    /// Continues without a connection, if the load can; all other failures end the test.
    #[inline]
    fn survive(&mut self, token: usize, done: Result<(), Failure>) -> Result<(), Failure> {
        match done {
            Err(failure) if L::PACED && failure.is_of_connection() => self.lose(token, failure),
            done => done,
        }
    }

    fn lose(&mut self, token: usize, failure: Failure) -> Result<(), Failure> {
        let now_ns = clock::monotonic_ns();
        let connection = &mut self.connections[token];
        let pending = &mut connection.pending;
        let Some(pause) = self.load.lost(token, pending, &failure, now_ns) else {
            return Err(failure);
        };
        self.replace_later(token, now_ns + pause.as_nanos() as u64);
        Ok(())
    }

    /// Closes a connection, and schedules its replacement for that time.
    fn replace_later(&mut self, token: usize, at_ns: u64) {
        let connection = &mut self.connections[token];
        connection.lost = true;
        connection.unsent.clear();
        // A failed socket may have left the poller, and may be shut already.
        let _ = self.poller.deregister(&connection.stream);
        let _ = connection.stream.shutdown(Shutdown::Both);
        self.retries.insert((at_ns, token));
    }

    /// Waits for events, or until the load is due.
    fn sleep(&mut self) -> Result<(), Failure> {
        if !self.unread.is_empty() {
            return self.poll(Some(Duration::ZERO));
        }
        let retry = self.retries.first().map(|&(at_ns, _)| at_ns);
        let attempt = self.attempt_ends_ns();
        let soonest = retry.into_iter().chain(attempt).min();
        let at_ns = match (self.load.wait(), soonest) {
            (Wait::ForEvents, None) => return self.poll(None),
            (Wait::ForEvents, Some(at_ns)) | (Wait::Until(at_ns), None) => at_ns,
            (Wait::Until(at_ns), Some(soonest_ns)) => at_ns.min(soonest_ns),
        };
        if at_ns <= clock::monotonic_ns() {
            return self.poll(Some(Duration::ZERO));
        }
        self.alarm.set(&self.poller, at_ns)?;
        self.poll(None)
    }

    fn on_event(&mut self, event: Event) -> Result<(), Failure> {
        let Some(connection) = self.connections.get(event.token) else {
            return Ok(()); // the waker, or the alarm
        };
        if connection.lost {
            return Ok(());
        }
        if connection.connecting {
            if !self.connected(event.token)? {
                return Ok(());
            }
            let now_ns = clock::monotonic_ns();
            let pending = &mut self.connections[event.token].pending;
            if !self.load.reconnected(event.token, pending, now_ns) {
                return Ok(());
            }
            return self.send(event.token, now_ns);
        }
        if event.writable && (!connection.unsent.is_empty() || connection.stream.has_unsent()) {
            self.send_rest(event.token)?;
        }
        if event.readable || event.closed || event.error {
            self.receive(event.token, event.closed)?;
        }
        Ok(())
    }

    /// Sends the next bytes of a connection.
    fn send(&mut self, token: usize, now_ns: u64) -> Result<(), Failure> {
        let connection = &mut self.connections[token];
        let bytes = self.load.next(token, &mut connection.pending, now_ns);
        if bytes.is_empty() {
            return Ok(());
        }
        if !connection.unsent.is_empty() && bytes.len() > COPIED_BYTES_MAX {
            match connection.stream.write(connection.unsent.rest()) {
                Ok(written) => connection.unsent.left(written.unwrap_or(0)),
                Err(error) => return Err(self.reason_of_broken_write(token, error)),
            }
        }
        if !connection.unsent.is_empty() {
            // The first requests follow the prefix in one write, and none may overtake another.
            connection.unsent.more().extend_from_slice(bytes);
            return self.send_rest(token);
        }
        match connection.stream.write(bytes) {
            Ok(Some(written)) if written == bytes.len() && !connection.stream.has_unsent() => {
                Ok(())
            }
            Ok(written) => {
                let written = written.unwrap_or(0);
                // The buffer is reused for the next connection, so the rest is copied, if that costs less than a buffer.
                if bytes.len() - written <= COPIED_BYTES_MAX {
                    let rest = &bytes[written..];
                    connection.unsent.more().extend_from_slice(rest);
                } else {
                    connection.unsent = Outgoing::behind(self.load.part_with(token), written);
                }
                self.await_room(token)
            }
            Err(error) => Err(self.reason_of_broken_write(token, error)),
        }
    }

    fn send_rest(&mut self, token: usize) -> Result<(), Failure> {
        let connection = &mut self.connections[token];
        match connection.stream.write(connection.unsent.rest()) {
            Ok(written) => {
                connection.unsent.left(written.unwrap_or(0));
                if !connection.unsent.is_empty() || connection.stream.has_unsent() {
                    return self.await_room(token);
                }
                Ok(())
            }
            Err(error) => Err(self.reason_of_broken_write(token, error)),
        }
    }

    /// Enables write events, for the rest of this connection's life: once needed, they will be again.
    fn await_room(&mut self, token: usize) -> Result<(), Failure> {
        self.poller
            .reregister(&self.connections[token].stream, token, Interest::ReadWrite)
            .map_err(|error| Failure::local("epoll", &error))
    }

    /// Returns the failure of a broken write: the error reply of a server that closes after it, if there is one.
    fn reason_of_broken_write(&mut self, token: usize, error: std::io::Error) -> Failure {
        match self.receive(token, true) {
            Err(said @ (Failure::Reply(_) | Failure::Unwelcome(_))) => said,
            _ => Failure::Io(error),
        }
    }

    /// Takes replies, and sends the next requests. `to_the_end` reads until nothing is left.
    fn receive(&mut self, token: usize, to_the_end: bool) -> Result<(), Failure> {
        for reads in 0.. {
            let connection = &mut self.connections[token];
            if reads == READS_MAX && !to_the_end {
                // A long reply delays neither the other connections, nor the end of the test.
                if !std::mem::replace(&mut connection.unread, true) {
                    self.unread.push(token);
                }
                return Ok(());
            }
            let held = connection.held.len();
            if held > 0 {
                self.receive
                    .resize(self.receive.len().max(held + RECEIVE_BYTES), 0);
                self.receive[..held].copy_from_slice(&connection.held);
                connection.held.clear();
            }
            let (bytes, drained) = match connection.stream.read(&mut self.receive[held..]) {
                Ok(Read::Data { bytes, drained }) => (bytes, drained),
                Ok(Read::WouldBlock) => {
                    connection.held.extend_from_slice(&self.receive[..held]);
                    return Ok(());
                }
                Ok(Read::Eof) if !self.load.needs(&connection.pending) => return Ok(()),
                Ok(Read::Eof) => return Err(Failure::Closed),
                Err(error) => return Err(Failure::Io(error)),
            };
            let now_ns = clock::monotonic_ns();
            let arrived = &self.receive[..held + bytes];
            let taken = self.load.take(Arrived {
                token,
                pending: &mut connection.pending,
                skipper: &mut connection.skipper,
                prefix_awaited: &mut connection.prefix_awaited,
                bytes: arrived,
                now_ns,
            })?;
            connection
                .held
                .extend_from_slice(&arrived[taken.consumed..]);
            if taken.counted {
                self.last_reply_ns = now_ns;
            }
            match taken.then {
                Then::Wait => {}
                Then::Send => self.send(token, now_ns)?,
                Then::Reconnect => return self.reconnect(token),
            }
            if drained && !to_the_end {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Replaces a connection that has sent its batch.
    fn reconnect(&mut self, token: usize) -> Result<(), Failure> {
        while !self.stopped() {
            if let Some(connection) = self.connect(token)? {
                self.replace(token, connection);
                return Ok(());
            }
            if L::PACED {
                // The other connections, and the end of the test, do not wait for room in the backlog.
                let pause_ns = BACKLOG_PAUSE.as_nanos() as u64;
                self.replace_later(token, clock::monotonic_ns() + pause_ns);
                return Ok(());
            }
            std::thread::sleep(BACKLOG_PAUSE);
        }
        Ok(())
    }
}

/// Advances the handshake; returns true if it is done.
pub fn secure(stream: &mut Stream, tls: &ClientTls) -> Result<bool, Failure> {
    let begun = if stream.is_tls() {
        Ok(())
    } else {
        stream.connect_tls(tls)
    };
    begun
        .and_then(|()| stream.handshake())
        .map_err(|error| Failure::handshake(&error))
}

/// Time-out of a handshake; servers have the same for clients.
pub const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);

/// Time-out of handshakes of many connections together: slow progress of all says nothing of one.
pub struct Patience(Option<Instant>);

impl Patience {
    /// Begins now. Without TLS it never ends: the kernel has a time-out for connecting.
    pub fn new(tls: Option<&ClientTls>) -> Patience {
        Patience(tls.map(|_| Instant::now() + HANDSHAKE_WITHIN))
    }

    /// Returns the time that is left.
    pub fn left(&self) -> Option<Duration> {
        self.0
            .map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Begins anew, since a connection was established.
    pub fn renew(&mut self) {
        if let Some(until) = &mut self.0 {
            *until = Instant::now() + HANDSHAKE_WITHIN;
        }
    }

    /// Returns an error after its end.
    pub fn check(&self) -> Result<(), Failure> {
        match self.left() {
            Some(Duration::ZERO) => Err(Failure::unanswered_handshake()),
            _ => Ok(()),
        }
    }
}

/// Returns the text of the first error reply of a connection.
pub fn first_error(skipper: &Skipper) -> String {
    said(skipper.first_error().unwrap_or_default())
}
