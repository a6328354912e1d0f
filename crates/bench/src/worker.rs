//! One load thread: its connections, its event loop, its histogram. The hot path.
//!
//! Must not know titles, reports or other threads; what it shares with them is in [`Shared`].
//!
//! # What a batch costs
//!
//! One `send`, one `recv`, and a share of one `epoll_wait`. Sockets are registered once, edge-triggered; a read that
//! fills less than its room has emptied the socket, so it is not repeated; the next batch leaves in the same turn that
//! saw the last reply of the one before, without asking whether there is room to write. All connections send from one
//! buffer, in which only random digits are written again. Replies are counted by their headers and jumped over. The
//! clock is read once per read: the time at which replies arrived is also the time at which the next batch leaves.
//! Figures are kept in plain memory of the thread; once a turn they are published for the live line.
//!
//! # Latency
//!
//! A request's latency lasts from the write of its batch to the arrival of its own reply. Replies that arrive
//! together are recorded together, which is also what makes recording cheap: a batch of 50 mostly comes back in
//! one piece.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use redline_net::tls::ClientTls;
use redline_net::{
    Address, Endpoint, Event, Interest, Poller, Read, Stream, Waker, clock, connect_endpoint,
};
use redline_resp::Skipper;

use crate::batch::Batch;
use crate::failure::Failure;

/// What the threads of one test have in common.
pub struct Shared {
    /// The server as the user wrote it, for messages.
    pub address: Address,
    /// The server.
    pub endpoint: Endpoint,
    /// How connections are secured, if they are.
    pub tls: Option<ClientTls>,
    /// Sent once on each connection, in front of its first batch.
    pub prefix: Prefix,
    /// False: each batch gets a connection of its own.
    pub keep_alive: bool,
    /// Batches that no thread has taken yet.
    pub quota: Quota,
    /// Set to end the test early.
    pub stop: AtomicBool,
    /// Opened when the connections of all threads stand.
    pub gate: Gate,
}

/// Holds threads back until it is opened.
#[derive(Default)]
pub struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Lets everybody through from now on.
    pub fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = self.opened.wait_while(is_open, |is_open| !*is_open);
        drop(passed.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Requests that prepare a connection, and how many replies they bring.
#[derive(Default)]
pub struct Prefix {
    /// Their bytes.
    pub bytes: Vec<u8>,
    /// Replies that are not counted.
    pub replies: u64,
}

/// Batches still to be sent. Threads take some at a time, so that the counter is touched rarely and a fast thread
/// takes over what a slow one leaves.
pub struct Quota {
    left: AtomicU64,
    threads: u64,
}

/// What one thread takes of the quota at once.
const TAKEN_MAX: u64 = 1024;

impl Quota {
    /// `batches` for so many threads.
    pub fn new(batches: u64, threads: usize) -> Quota {
        Quota {
            left: AtomicU64::new(batches),
            threads: threads as u64,
        }
    }

    /// Some of what is left; 0 if nothing is.
    fn take(&self) -> u64 {
        let share = |left: u64| match self.threads {
            1 => left,
            threads => (left / (8 * threads)).clamp(1, TAKEN_MAX).min(left),
        };
        // Relaxed: the number is all that is shared.
        match self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left - share(left))
            }) {
            Ok(left) => share(left),
            Err(_) => 0,
        }
    }
}

/// A thread's figures as others may see them while it runs. Padded: no two threads write to one cache line.
#[derive(Default)]
#[repr(align(128))]
pub struct Progress {
    /// Requests answered.
    pub finished: AtomicU64,
    /// Sum of their latencies.
    pub latency_us: AtomicU64,
    /// When the first batch left, on the monotonic clock; 0 before.
    pub started_ns: AtomicU64,
}

/// What a thread came to.
pub struct Tally {
    /// Requests answered.
    pub finished: u64,
    /// Latencies in microseconds.
    pub latency: Histogram<u64>,
    /// When the first batch left, on the monotonic clock; 0 if none did.
    pub started_ns: u64,
    /// When the last reply arrived, or when the test was ended early.
    pub ended_ns: u64,
    /// Why it ended early, if it did on its own account.
    pub failure: Option<Failure>,
}

/// One load thread.
pub struct Worker<'a> {
    shared: &'a Shared,
    progress: &'a Progress,
    poller: Poller,
    connections: Vec<Connection>,
    batch: Batch,
    random: fastrand::Rng,
    /// Every read goes here.
    receive: Vec<u8>,
    latency: Histogram<u64>,
    /// Batches taken of the quota and not sent.
    granted: u64,
    /// Connections that wait for replies, or for their connection to stand.
    busy: usize,
    finished: u64,
    latency_us: u64,
    started_ns: u64,
    last_reply_ns: u64,
}

struct Connection {
    stream: Stream,
    skipper: Skipper,
    connecting: bool,
    /// When the batch under way was written.
    sent_ns: u64,
    /// Replies that the batch under way still waits for.
    awaited: u64,
    /// Replies before those, that answer the prefix.
    prefix_awaited: u64,
    /// What the socket did not take of the batch under way.
    unsent: Vec<u8>,
    /// The start of a line whose rest has not arrived.
    held: Vec<u8>,
}

/// Room of one read: many replies of 1 KiB, or one LRANGE of 600 elements, many times over.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Events taken in one turn.
const EVENTS_MAX: usize = 1024;
/// Connections that one thread opens at a time: a server's backlog is limited.
const CONNECTING_MAX: usize = 64;
/// How long to wait for room in the backlog of a unix socket, which refuses instead of queueing.
const BACKLOG_PAUSE: Duration = Duration::from_millis(1);
const WAKE_TOKEN: usize = usize::MAX;

impl<'a> Worker<'a> {
    /// A thread's state without its connections.
    pub fn new(
        shared: &'a Shared,
        progress: &'a Progress,
        batch: Batch,
        random: fastrand::Rng,
        latency: Histogram<u64>,
    ) -> std::io::Result<Worker<'a>> {
        Ok(Worker {
            shared,
            progress,
            poller: Poller::new(EVENTS_MAX)?,
            connections: Vec::new(),
            batch,
            random,
            receive: vec![0; RECEIVE_BYTES],
            latency,
            granted: 0,
            busy: 0,
            finished: 0,
            latency_us: 0,
            started_ns: 0,
            last_reply_ns: 0,
        })
    }

    /// What makes this thread look at [`Shared::stop`].
    pub fn waker(&mut self) -> std::io::Result<Waker> {
        self.poller.waker(WAKE_TOKEN)
    }

    /// Opens `clients` connections, calls `connected`, waits at the gate, and sends until the quota is used up.
    pub fn run(mut self, clients: usize, connected: impl FnOnce()) -> Tally {
        let opened = self.open(clients);
        let result = opened.and_then(|()| {
            connected();
            self.shared.gate.pass();
            self.send_all()
        });
        let stopped = result.is_err() || self.stopped();
        Tally {
            finished: self.finished,
            started_ns: self.started_ns,
            ended_ns: if stopped {
                clock::monotonic_ns()
            } else {
                self.last_reply_ns
            },
            latency: self.latency,
            failure: result.err(),
        }
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn open(&mut self, clients: usize) -> Result<(), Failure> {
        while !self.stopped() && (self.connections.len() < clients || self.busy > 0) {
            let mut timeout = None;
            while self.connections.len() < clients && self.busy < CONNECTING_MAX {
                let token = self.connections.len();
                match self.connect(token)? {
                    Some(connection) => self.connections.push(connection),
                    None => {
                        timeout = Some(BACKLOG_PAUSE);
                        break;
                    }
                }
                self.busy += 1;
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
                    self.busy -= 1;
                }
            }
        }
        Ok(())
    }

    /// Starts to connect; `None` if the server's backlog is full now.
    fn connect(&self, token: usize) -> Result<Option<Connection>, Failure> {
        let stream = match connect_endpoint(&self.shared.endpoint) {
            Ok(stream) => stream,
            Err(error) if error.error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(Failure::connect_endpoint(&self.shared.address, &error)),
        };
        let failed = |error| Failure::connect(&self.shared.address, &error);
        stream.set_nodelay(true).map_err(failed)?;
        self.poller
            .register(&stream, token, Interest::ReadWrite)
            .map_err(failed)?;
        Ok(Some(Connection {
            stream,
            skipper: Skipper::new(),
            connecting: true,
            sent_ns: 0,
            awaited: 0,
            prefix_awaited: self.shared.prefix.replies,
            unsent: self.shared.prefix.bytes.clone(),
            held: Vec::new(),
        }))
    }

    /// Looks whether a connection stands, its TLS included.
    fn connected(&mut self, token: usize) -> Result<bool, Failure> {
        let connection = &mut self.connections[token];
        let failed = |error| Failure::connect(&self.shared.address, &error);
        if let Some(error) = connection.stream.take_error().map_err(failed)? {
            return Err(failed(error));
        }
        if let Some(tls) = &self.shared.tls
            && !secure(&mut connection.stream, tls)?
        {
            return Ok(false);
        }
        connection.connecting = false;
        // A connection of one batch is not worth the call that would spare it write events.
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

    fn send_all(&mut self) -> Result<(), Failure> {
        if self.stopped() {
            return Ok(());
        }
        self.started_ns = clock::monotonic_ns();
        self.last_reply_ns = self.started_ns;
        self.progress
            .started_ns
            .store(self.started_ns, Ordering::Relaxed);
        for token in 0..self.connections.len() {
            if self.stopped() || !self.grant() {
                break;
            }
            self.busy += 1;
            self.send(token, clock::monotonic_ns())?;
        }
        while self.busy > 0 && !self.stopped() {
            self.poll(None)?;
            for index in 0..self.poller.event_count() {
                self.on_event(self.poller.event(index))?;
            }
            self.progress
                .finished
                .store(self.finished, Ordering::Relaxed);
            self.progress
                .latency_us
                .store(self.latency_us, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes leave to send one batch.
    fn grant(&mut self) -> bool {
        if self.granted == 0 {
            self.granted = self.shared.quota.take();
        }
        if self.granted == 0 {
            return false;
        }
        self.granted -= 1;
        true
    }

    fn on_event(&mut self, event: Event) -> Result<(), Failure> {
        let Some(connection) = self.connections.get(event.token) else {
            return Ok(()); // the waker
        };
        if connection.connecting {
            if !self.connected(event.token)? {
                return Ok(());
            }
            return self.send(event.token, clock::monotonic_ns());
        }
        if event.writable && (!connection.unsent.is_empty() || connection.stream.has_unsent()) {
            self.send_rest(event.token)?;
        }
        if event.readable || event.closed || event.error {
            self.receive(event.token, event.closed)?;
        }
        Ok(())
    }

    /// Sends the next batch on a connection that waits for nothing.
    fn send(&mut self, token: usize, now_ns: u64) -> Result<(), Failure> {
        let connection = &mut self.connections[token];
        connection.sent_ns = now_ns;
        connection.awaited = self.batch.requests();
        let bytes = self.batch.next(&mut self.random);
        if !connection.unsent.is_empty() {
            // The first batch follows the prefix in one write.
            connection.unsent.extend_from_slice(bytes);
            return self.send_rest(token);
        }
        match connection.stream.write(bytes) {
            Ok(Some(written)) if written == bytes.len() && !connection.stream.has_unsent() => {
                Ok(())
            }
            Ok(written) => {
                // The buffer is the next connection's, so the rest is copied.
                connection
                    .unsent
                    .extend_from_slice(&bytes[written.unwrap_or(0)..]);
                self.await_room(token)
            }
            Err(error) => Err(self.reason_of_broken_write(token, error)),
        }
    }

    fn send_rest(&mut self, token: usize) -> Result<(), Failure> {
        let connection = &mut self.connections[token];
        match connection.stream.write(&connection.unsent) {
            Ok(written) => {
                connection.unsent.drain(..written.unwrap_or(0));
                if !connection.unsent.is_empty() || connection.stream.has_unsent() {
                    return self.await_room(token);
                }
                if connection.unsent.capacity() > RECEIVE_BYTES {
                    connection.unsent = Vec::new();
                }
                Ok(())
            }
            Err(error) => Err(self.reason_of_broken_write(token, error)),
        }
    }

    /// Asks for write events, for the rest of this connection's life: once it was needed, it will be again.
    fn await_room(&mut self, token: usize) -> Result<(), Failure> {
        self.poller
            .reregister(&self.connections[token].stream, token, Interest::ReadWrite)
            .map_err(|error| Failure::local("epoll", &error))
    }

    /// A server that closes after an error reply, as at its limit of clients, breaks our write: the reply says why.
    fn reason_of_broken_write(&mut self, token: usize, error: std::io::Error) -> Failure {
        match self.receive(token, true) {
            Err(Failure::Reply(text)) => Failure::Reply(text),
            _ => Failure::Io(error),
        }
    }

    /// Takes in replies, and sends the next batch after the last one. `to_the_end` reads until nothing is left.
    fn receive(&mut self, token: usize, to_the_end: bool) -> Result<(), Failure> {
        loop {
            let connection = &mut self.connections[token];
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
                // A connection that waits for nothing may go.
                Ok(Read::Eof) if connection.awaited == 0 => return Ok(()),
                Ok(Read::Eof) => return Err(Failure::Closed),
                Err(error) => return Err(Failure::Io(error)),
            };
            let now_ns = clock::monotonic_ns();
            let arrived = &self.receive[..held + bytes];
            let skipped = connection.skipper.skip(arrived)?;
            if skipped.errors > 0 {
                return Err(Failure::Reply(first_error(&connection.skipper)));
            }
            connection
                .held
                .extend_from_slice(&arrived[skipped.consumed..]);
            if self.count(token, skipped.replies, now_ns) {
                let same_connection = self.batch_done(token, now_ns)?;
                if !same_connection {
                    return Ok(());
                }
            }
            if drained && !to_the_end {
                return Ok(());
            }
        }
    }

    /// Records replies that arrived together; true if the batch is answered.
    fn count(&mut self, token: usize, mut replies: u64, now_ns: u64) -> bool {
        let connection = &mut self.connections[token];
        if connection.prefix_awaited > 0 {
            let prefix = replies.min(connection.prefix_awaited);
            connection.prefix_awaited -= prefix;
            replies -= prefix;
        }
        // A server that says more than it was asked for (messages of a subscription) is not counted for it.
        let replies = replies.min(connection.awaited);
        if replies == 0 {
            return false;
        }
        connection.awaited -= replies;
        let latency_us = (now_ns.saturating_sub(connection.sent_ns) + 500) / 1000;
        self.latency.saturating_record_n(latency_us, replies);
        self.finished += replies;
        self.latency_us += latency_us * replies;
        self.last_reply_ns = now_ns;
        connection.awaited == 0
    }

    /// Goes on with the next batch, if there is one. False if the connection is not the same any more.
    fn batch_done(&mut self, token: usize, now_ns: u64) -> Result<bool, Failure> {
        if !self.grant() {
            self.busy -= 1;
            return Ok(true);
        }
        if self.shared.keep_alive {
            self.send(token, now_ns)?;
            return Ok(true);
        }
        loop {
            if let Some(connection) = self.connect(token)? {
                self.connections[token] = connection;
                return Ok(false);
            }
            std::thread::sleep(BACKLOG_PAUSE);
        }
    }
}

/// Carries the handshake on; whether it is done.
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

fn first_error(skipper: &Skipper) -> String {
    String::from_utf8_lossy(skipper.first_error().unwrap_or_default()).into_owned()
}
