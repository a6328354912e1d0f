//! The thread that has the connection to the primary: it carries out what the link wants.
//!
//! Another thread loads a snapshot into tables that nobody uses ([`snapshot`](super::snapshot)), and worker 0 publishes
//! them. The stream is handed to worker 0 as it comes.
//!
//! Must not know: what the primary says, which is the link's part; what a command does.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    thread::JoinHandle,
    time::Duration,
};

use redline_cluster::control::Event;
use redline_engine::caller::{ClientInfo, Origin, Token, flag};
use redline_net::{
    Address, Interest, Mailbox, PeerAddr, Poller, Read, Sender, Stream, clock, connect,
    tls::ClientTls,
};
use redline_replica::{
    Replid,
    link::{Introduction, Link, State, Wish},
};

use super::{
    apply::link_user,
    note_link, note_role,
    snapshot::{Attempt, Receiving},
};
use crate::{
    cluster::deciding,
    failover, log, replication,
    settings::Settings,
    shared::{Shared, TcpPort},
    start::{self, StartError},
};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 * 1024;
/// Longest sleep: milliseconds. Settings that change are noticed after it.
const SLEEP_MS_MAX: u64 = 1000;
const WAKER: usize = 0;
const SOCKET: usize = 1;

/// Message to the thread.
pub(super) enum Order {
    /// Follow this primary from now on.
    Follow {
        /// Number of the change of the role.
        term: u64,
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
    },
    /// Follow nobody.
    Leave {
        /// Number of the change of the role.
        term: u64,
    },
    /// The bytes that waited to be applied are taken.
    Drained,
    /// A snapshot was published up to an offset, or cannot be used.
    Loaded {
        /// The attempt that it came of.
        attempt: Arc<Attempt>,
        /// The offset.
        result: Result<u64, String>,
    },
    /// CLIENT KILL: close the connection.
    Kill,
    /// DEBUG SLEEP: do nothing for so long.
    Hold(Duration),
    /// The primary wants to know how much is applied.
    Acknowledge {
        /// Number of the change of the role for which it asked.
        term: u64,
    },
    /// More of what was applied may be on disk, which the primary waits for.
    Synced,
    /// The bytes of the primary are no stream.
    Broken {
        /// Number of the change of the role for which it came.
        term: u64,
        /// A line for the log.
        why: String,
    },
    /// End.
    End,
}

/// The connection, from the attempt on.
struct Socket {
    stream: Stream,
    is_connected: bool,
    /// True if bytes may be waiting in it.
    is_readable: bool,
}

struct Shell {
    shared: Arc<Shared>,
    poller: Poller,
    mailbox: Mailbox<Order>,
    link: Link,
    term: u64,
    primary: Option<(String, u16)>,
    socket: Option<Socket>,
    /// Term of the node's shard that the connection has named; `None`: it is no node's.
    named: Option<u64>,
    /// True if the node has heard that the stream flows.
    is_linked: bool,
    /// The connection among the clients, while the stream flows.
    shown: Option<Arc<ClientInfo>>,
    /// The snapshot that is being received.
    receiving: Option<Receiving>,
    /// Bytes of the stream of which the primary wants to hear when they are on disk.
    asked: u64,
    /// The snapshot that is being received or loaded.
    attempt: Option<Arc<Attempt>>,
    /// Bytes that were read and not taken by the link.
    buffer: Vec<u8>,
    /// False while worker 0 has enough to do.
    reads: bool,
    ends: bool,
}

/// Starts the thread.
pub(super) fn start(shared: &Arc<Shared>) -> Result<(Sender<Order>, JoinHandle<()>), StartError> {
    let failed = |error| StartError::System("link", error);
    let mut poller = Poller::new(16).map_err(failed)?;
    let mailbox = Mailbox::new(poller.waker(WAKER).map_err(failed)?);
    let orders = mailbox.sender();
    let mut shell = Shell {
        shared: shared.clone(),
        poller,
        mailbox,
        link: Link::default(),
        term: 0,
        primary: None,
        socket: None,
        named: None,
        is_linked: false,
        shown: None,
        receiving: None,
        asked: 0,
        attempt: None,
        buffer: Vec::new(),
        reads: true,
        ends: false,
    };
    let thread = start::spawn("link", move || {
        while !shell.ends {
            shell.turn();
        }
        shell.drop_all();
    })?;
    Ok((orders, thread))
}

impl Shell {
    fn turn(&mut self) {
        let now_ms = clock::monotonic_ms();
        let due_ms = self.link.next_ms().unwrap_or(u64::MAX);
        let mut sleep_ms = due_ms.saturating_sub(now_ms).min(SLEEP_MS_MAX);
        let has_bytes = self
            .socket
            .as_ref()
            .is_some_and(|socket| socket.is_readable);
        if !self.mailbox.prepare_to_sleep() || has_bytes && self.takes_bytes() {
            sleep_ms = 0;
        }
        if let Err(error) = self.poller.poll(Some(Duration::from_millis(sleep_ms))) {
            panic!("the poller failed, the primary cannot be followed: {error}");
        }
        let events: Vec<_> = self.poller.events().collect();
        let mut orders = Vec::new();
        self.mailbox.drain(&mut orders);
        for order in orders {
            self.carry_out(order);
        }
        for event in events.iter().filter(|event| event.token == SOCKET) {
            if let Some(socket) = &mut self.socket {
                socket.is_readable |= event.readable || event.closed || event.error;
                if !socket.is_connected && (event.writable || event.error || event.closed) {
                    self.finish_connect();
                }
            }
        }
        self.read();
        let (applied, synced) = replication::applied(&self.shared);
        let now_ms = clock::monotonic_ms();
        if !self.reads {
            self.link.waits_for_loader(now_ms);
        }
        if let Some(attempt) = &self.attempt {
            attempt.adopt(&self.shared.settings.current());
        }
        let wish = self.link.tick(applied, synced, now_ms);
        self.meet(wish);
        let state = self.link.state();
        // Whoever is told by the first acknowledgement asks for a promise at once.
        self.tell_node(state);
        self.write();
        let state = self.link.state();
        if state == State::Streaming {
            self.show();
        }
        note_link(&self.shared, state);
        self.tell_node(state);
    }

    /// Tells the node of a cluster if its data are whole and follow the primary.
    fn tell_node(&mut self, state: State) {
        let is_linked = state == State::Streaming;
        if is_linked == self.is_linked {
            return;
        }
        self.is_linked = is_linked;
        let Some(etcd) = self.shared.etcd() else {
            return;
        };
        match self.named.filter(|_| is_linked) {
            Some(term) => {
                etcd.keep_term(term);
                etcd.deciding.linked(term);
            }
            None => etcd.deciding.post(Event::Unlinked),
        }
    }

    /// Tells the primary what was applied and is on disk; if that is less than it asked for, once more when it is.
    fn acknowledge(&mut self) {
        let owes = &self.shared.following.owes_on_disk;
        // Before the look: what comes to the disk behind it is heard of.
        owes.store(true, Ordering::Release);
        let (applied, synced) = replication::applied(&self.shared);
        self.link
            .acknowledge(applied, synced, clock::monotonic_ms());
        if synced.is_none_or(|synced| synced >= self.asked) {
            owes.store(false, Ordering::Release);
        }
    }

    fn takes_bytes(&self) -> bool {
        self.reads && self.link.takes_bytes()
    }

    fn carry_out(&mut self, order: Order) {
        let now_ms = clock::monotonic_ms();
        match order {
            Order::Follow { term, host, port } => {
                self.drop_all();
                self.term = term;
                self.primary = Some((host, port));
                self.link.follow(now_ms);
            }
            Order::Leave { term } => {
                self.drop_all();
                self.term = term;
                self.primary = None;
                self.link.stop();
            }
            Order::Drained => self.reads = true,
            // It may have come for a connection that is closed already.
            Order::Kill => {
                let is_killed = |info: &Arc<ClientInfo>| info.killed.load(Ordering::Acquire);
                if self.shown.as_ref().is_some_and(is_killed) {
                    self.lose("it was killed");
                }
            }
            Order::Hold(span) => std::thread::sleep(span),
            Order::Loaded { attempt, result } if self.is_current(&attempt) => {
                if result.is_ok() {
                    self.end_attempt();
                    log::notice("MASTER <-> REPLICA sync: Finished with success");
                }
                let wish = self.link.loaded(result, now_ms);
                self.meet(wish);
            }
            Order::Acknowledge { term } if term == self.term => {
                self.asked = replication::identity(&self.shared).offset();
                self.acknowledge();
            }
            Order::Synced => self.acknowledge(),
            Order::Broken { term, why } if term == self.term => {
                let wish = self.link.give_up(why, now_ms);
                self.meet(Some(wish));
            }
            Order::Loaded { .. } | Order::Acknowledge { .. } | Order::Broken { .. } => {}
            Order::End => self.ends = true,
        }
    }

    fn meet(&mut self, wish: Option<Wish<'_>>) {
        match wish {
            None => {}
            Some(Wish::Connect) => self.connect(),
            Some(Wish::Failed(why)) => {
                log::warning(&why);
                self.drop_all();
                self.shared
                    .following
                    .drop_unapplied(&self.shared, self.term);
            }
            Some(Wish::Note(text)) => log::notice(&text),
            Some(Wish::Begin(history)) => {
                match history {
                    Some((replid, offset)) => {
                        log::notice(&format!("Full resync from master: {replid}:{offset}"));
                    }
                    None => log::notice("Retrying with SYNC..."),
                }
                failover::accepted(&self.shared);
                if !self.may_empty() {
                    return self.fail("The data of this node cannot be given up yet".to_owned());
                }
                if let Err(error) = self.begin_snapshot(history) {
                    self.fail(format!(
                        "Opening the temp file needed for MASTER <-> REPLICA synchronization: {error}"
                    ));
                }
            }
            Some(Wish::Snapshot(bytes)) => {
                let Some(receiving) = &mut self.receiving else {
                    return;
                };
                let orders = self.mailbox.sender();
                let taken = receiving.take(&self.shared, bytes, orders);
                self.shared.following.facts().snapshot_bytes = Some(receiving.bytes());
                match taken {
                    Ok(goes_on) => self.reads = goes_on,
                    Err(why) => self.fail(why),
                }
            }
            Some(Wish::Load { surplus }) => {
                self.shared.following.facts().snapshot_bytes = None;
                let orders = self.mailbox.sender();
                let receiving = self.receiving.take();
                let begun = receiving.map(|it| it.end(&self.shared, surplus, orders));
                if let Some(Err(why)) = begun {
                    self.fail(why);
                }
            }
            Some(Wish::Refused(why)) => {
                self.meet(Some(Wish::Failed(why)));
                failover::refused(&self.shared);
            }
            Some(Wish::Continue(replid)) => {
                replication::go_on(&self.shared, replid);
                failover::accepted(&self.shared);
                log::notice("Successful partial resynchronization with master.");
            }
            Some(Wish::Stream(bytes)) => {
                let shared = &self.shared;
                self.reads = shared.following.take(shared, self.term, bytes);
            }
        }
    }

    /// Returns true if the data may be given up for a snapshot: those of a node may be counted on.
    fn may_empty(&self) -> bool {
        let following = &self.shared.following;
        let ends = &self.shared.stopping;
        let goes_on = || !ends.load(Ordering::Acquire) && following.applier().term == self.term;
        self.shared
            .etcd()
            .is_none_or(|etcd| etcd.deciding.may_empty(goes_on))
    }

    fn fail(&mut self, why: String) {
        let wish = self.link.give_up(why, clock::monotonic_ms());
        self.meet(Some(wish));
    }

    /// Shows the connection among the clients, as that of a primary.
    fn show(&mut self) {
        let (None, Some(socket)) = (&self.shown, &self.socket) else {
            return;
        };
        let text = |address: io::Result<PeerAddr>| {
            address.map_or_else(|_| String::new(), |it| it.to_string())
        };
        let origin = Origin {
            id: self.shared.next_client_id(),
            addr: text(socket.stream.peer_address()),
            laddr: text(socket.stream.local_address()),
            is_local: false,
            is_unix: false,
            fd: socket.stream.fd(),
            created_ms: clock::wall_ms(),
        };
        let info = Arc::new(ClientInfo::new(origin, Token::LINK, &link_user()));
        info.names().user = b"(superuser)".to_vec();
        info.set_flag(flag::PRIMARY, true);
        self.shared.clients().insert(info.id, info.clone());
        self.shown = Some(info);
    }

    /// Drops the connection and what has come of a snapshot.
    fn drop_all(&mut self) {
        if let Some(info) = self.shown.take() {
            self.shared.clients().remove(&info.id);
        }
        if let Some(mut socket) = self.socket.take() {
            let _ = self.poller.deregister(&socket.stream);
            socket.stream.close_notify();
        }
        // In this order: its loader knows that it is given up when no more bytes come.
        self.end_attempt();
        self.receiving = None;
        self.shared.following.facts().snapshot_bytes = None;
        self.buffer.clear();
        self.reads = true;
    }

    // ---- the connection -----------------------------------------------------------------------

    fn connect(&mut self) {
        let Some((host, port)) = &self.primary else {
            return;
        };
        log::notice(&format!("Connecting to MASTER {host}:{port}"));
        let address = Address::tcp(host.clone(), *port);
        let made = connect(&address).map_err(|error| error.to_string());
        let made = made.and_then(|stream| {
            let registered = self.poller.register(&stream, SOCKET, Interest::ReadWrite);
            registered
                .map(|()| stream)
                .map_err(|error| error.to_string())
        });
        match made {
            Ok(stream) => {
                log::notice("MASTER <-> REPLICA sync started");
                self.socket = Some(Socket {
                    stream,
                    is_connected: false,
                    is_readable: false,
                });
            }
            Err(why) => self.lose(&why),
        }
    }

    fn finish_connect(&mut self) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        match socket.stream.take_error() {
            Ok(None) => {
                socket.is_connected = true;
                // A socket that refuses it works, too.
                let _ = socket.stream.set_nodelay(true);
                let tls = self.shared.settings.current().tls.clone();
                if tls.replication {
                    let made = ClientTls::new(&tls.client_options()).map_err(io::Error::other);
                    let begun = made.and_then(|made| socket.stream.connect_tls(&made));
                    if let Err(error) = begun {
                        return self.lose(&error.to_string());
                    }
                }
                let introduction = self.introduction();
                self.named = introduction.node.as_ref().map(|name| name.term);
                self.link.connected(introduction, clock::monotonic_ms());
            }
            Ok(Some(error)) | Err(error) => self.lose(&error.to_string()),
        }
    }

    fn introduction(&self) -> Introduction {
        let settings = self.shared.settings.current();
        let identity = replication::identity(&self.shared);
        let settings: &Settings = &settings;
        let own_port = self.shared.bound_port(match settings.tls.replication {
            true => TcpPort::Tls,
            false => TcpPort::Plain,
        });
        let is_failover = failover::is_under_way(&self.shared);
        let may_resume = is_failover || self.shared.following.may_resume();
        Introduction {
            user: settings.primary_user.clone().map(String::into_bytes),
            password: settings.primary_password.clone(),
            port: settings.replica_announce_port.unwrap_or(own_port),
            address: settings.replica_announce_ip.clone(),
            resume: may_resume.then(|| (identity.replid(), identity.offset())),
            is_failover,
            timeout_ms: settings.repl_timeout_s * 1000,
            node: deciding::link_name(&self.shared),
        }
    }

    fn lose(&mut self, why: &str) {
        let wish = self.link.lost(why, clock::monotonic_ms());
        self.meet(wish);
    }

    /// Reads what is there, as far as it is taken.
    fn read(&mut self) {
        loop {
            self.give();
            if !self.takes_bytes() || !self.buffer.is_empty() {
                return;
            }
            let Some(socket) = &mut self.socket else {
                return;
            };
            if !socket.is_connected || !socket.is_readable {
                return;
            }
            self.buffer.reserve(READ_BYTES);
            match socket.stream.read_into(&mut self.buffer, READ_BYTES) {
                Ok(Read::Data { bytes, .. }) => {
                    let mut facts = self.shared.following.facts();
                    facts.heard_ms = Some(clock::monotonic_ms());
                    facts.bytes += bytes as u64;
                    if let Some(info) = &self.shown {
                        let now_s = clock::wall_ms() / 1000;
                        info.active_s.store(now_s as u32, Ordering::Relaxed);
                        info.net_in.fetch_add(bytes as u64, Ordering::Relaxed);
                    }
                }
                Ok(Read::WouldBlock) => socket.is_readable = false,
                Ok(Read::Eof) => self.lose("it closed the connection"),
                Err(error) => self.lose(&error.to_string()),
            }
        }
    }

    /// Gives the link the bytes that were read.
    fn give(&mut self) {
        while !self.buffer.is_empty() && self.takes_bytes() {
            let buffer = std::mem::take(&mut self.buffer);
            let mut wishes = Vec::new();
            let taken = self.link.take(&buffer, clock::monotonic_ms(), &mut wishes);
            for wish in wishes {
                self.meet(Some(wish));
            }
            if taken == buffer.len() {
                if buffer.capacity() <= 2 * READ_BYTES {
                    self.buffer = buffer;
                    self.buffer.clear();
                }
            } else if self.socket.is_some() {
                self.buffer = buffer[taken..].to_vec();
            }
        }
    }

    fn write(&mut self) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        while socket.is_connected
            && (!self.link.out().is_empty() || socket.stream.has_unsent())
            && !socket.stream.is_handshaking()
        {
            match socket.stream.write(self.link.out()) {
                Ok(Some(0)) => return,
                Ok(Some(bytes)) => drop(self.link.out().drain(..bytes)),
                Ok(None) => return,
                Err(error) => return self.lose(&error.to_string()),
            }
        }
    }

    // ---- snapshots ----------------------------------------------------------------------------

    fn begin_snapshot(&mut self, history: Option<(Replid, u64)>) -> io::Result<()> {
        let attempt = Arc::new(Attempt::new(&self.shared, self.term, history));
        self.receiving = Some(Receiving::begin(&self.shared, attempt.clone())?);
        self.attempt = Some(attempt);
        self.shared.following.facts().snapshot_bytes = Some(0);
        Ok(())
    }

    fn is_current(&self, attempt: &Arc<Attempt>) -> bool {
        let current = self.attempt.as_ref();
        current.is_some_and(|current| Arc::ptr_eq(current, attempt))
    }

    /// Forgets the attempt. Whoever loads for it stops, and clients are served again.
    fn end_attempt(&mut self) {
        let Some(attempt) = self.attempt.take() else {
            return;
        };
        attempt.give_up();
        self.shared.following.facts().loading = None;
        note_role(&self.shared);
    }
}
