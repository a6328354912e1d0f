//! The process around the core of a worker: sockets, clocks, the log, other workers. Must not know the meaning of requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redline_net::{
    Interest, NetError, PeerAddr, Pipe, Poller, Sender, Stream, clock, connect_endpoint,
    error_text, is_out_of_descriptors,
};
use redline_proxy_core::client_info::{self, ClientInfo};
use redline_proxy_core::shell::{ConnectError, Level, Shell};
use redline_resp::Args;
use redline_spec::CommandId;

use crate::client::ReplyMode;
use crate::control::Reload;
use crate::local_commands;
use crate::observability::{commands, log};
use crate::published::{PoolsTls, Published};
use crate::report::Report;
use crate::requests::Flow;
use crate::route::{Endpoint, Node, Pool};
use crate::slab::Ref;
use crate::tls_config::Doors;

/// The first token of connections; lower ones are those of the waker, of signals and of listeners, which have numbers of
/// 16 bits.
pub(crate) const FIRST_CONNECTION: usize = 1 << 17;

/// A message in a worker's mailbox.
pub enum Message {
    /// A connection to serve, and the number of its pool.
    Connection(Stream, PeerAddr, u16),
    /// Lines for MONITOR.
    Watched(Arc<[u8]>),
    /// CLIENT KILL of the clients with these numbers.
    Kill(Arc<BTreeSet<u64>>),
    /// The end: close everything and return.
    Stop,
    /// The reply to CONFIG RELOAD, for the request of a client: `None` after success, or an error.
    Answer(Ref, u32, ReplyMode, Option<String>),
}

/// State that all workers share, beside that of the core.
pub struct Process {
    /// The routing table.
    pub routes: Arc<Published>,
    /// The queue for reports.
    pub reports: Option<Sender<Report>>,
    /// The entry for another configuration.
    pub reload: Option<Arc<Reload>>,
    /// Settings of each listener for the connections that it accepts.
    pub doors: Arc<Doors>,
    /// The workers.
    pub workers: Vec<WorkerHandle>,
    /// The number of the next client.
    pub next_client: AtomicU64,
    /// Every client, by its number.
    pub clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    /// True once it drains.
    pub drains: AtomicBool,
    /// Time at which the process began: seconds since 1970.
    pub began_s: u64,
}

/// A worker, as seen by other threads.
pub struct WorkerHandle {
    /// Its mailbox.
    pub mailbox: Sender<Message>,
    /// Number of its clients.
    pub clients: AtomicUsize,
    /// Number of ticks of its timer, by which others see that its loop turns; `ENDED` once it has ended.
    pub ticks: AtomicU64,
}

impl Process {
    /// Returns the number of clients.
    pub fn client_count(&self) -> usize {
        let clients = self.workers.iter().map(|worker| &worker.clients);
        clients.map(|clients| clients.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of ticks of each worker's timer.
    pub fn ticks(&self) -> Vec<u64> {
        let ticks = self.workers.iter().map(|worker| &worker.ticks);
        ticks.map(|ticks| ticks.load(Ordering::Relaxed)).collect()
    }

    /// Returns every client, by its number.
    pub fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientInfo>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's process: what the core needs of it.
pub struct Host {
    /// The worker's number.
    pub(crate) number: usize,
    pub(crate) process: Arc<Process>,
    pub(crate) poller: Poller,
    /// TLS to the servers of each pool.
    pub(crate) tls: PoolsTls,
    /// Empty pipes, for later long bulks.
    pub(crate) pipes: Vec<Pipe>,
    /// Read buffer for clients and servers; empty between reads.
    pub(crate) received: Vec<u8>,
}

/// A connection, and the pipe for a long bulk that arrives on it.
pub struct Socket {
    pub(crate) stream: Stream,
    pub(crate) pipe: Option<Pipe>,
}

impl Socket {
    /// Returns the socket of a connection.
    pub(crate) fn new(stream: Stream) -> Socket {
        Socket { stream, pipe: None }
    }
}

impl Shell for Host {
    type ClientSocket = Socket;
    type ServerSocket = Socket;

    fn connect(&mut self, at: u32, node: &Node, pool: &Pool) -> Result<Socket, ConnectError> {
        let endpoint = match &node.endpoint {
            Endpoint::Tcp(address) => redline_net::Endpoint::Tcp(*address),
            Endpoint::Unix(path) => redline_net::Endpoint::Unix(path.clone()),
        };
        let attempt = connect_endpoint(&endpoint).and_then(|stream| {
            let failed = |error| NetError::new(&node.name, error);
            stream.set_nodelay(true).map_err(failed)?;
            if pool.keepalive_s > 0 {
                stream.set_keepalive(pool.keepalive_s).map_err(failed)?;
            }
            Ok(stream)
        });
        let stream = attempt.map_err(|error| ConnectError {
            reason: error_text(&error.error),
            // If the process has no descriptors left, the server is not the cause.
            is_own: is_out_of_descriptors(&error.error),
        })?;
        let token = server_token(at);
        let watched = self.poller.register(&stream, token, Interest::ReadWrite);
        watched.map_err(|error| ConnectError {
            reason: error_text(&error),
            is_own: true,
        })?;
        Ok(Socket::new(stream))
    }

    fn close_client(&mut self, mut socket: Socket, info: &ClientInfo) {
        let worker = &self.process.workers[self.number];
        worker.clients.fetch_sub(1, Ordering::Relaxed);
        self.process.clients().remove(&info.id);
        log::verbose(|| format!("client {} from {} is gone", info.id, info.addr));
        socket.stream.close_notify();
    }

    fn close_server(&mut self, mut socket: Socket) {
        socket.stream.close_notify();
    }

    fn report(&self, report: Report) {
        if let Some(reports) = &self.process.reports {
            reports.send(report);
        }
    }

    fn has_control(&self) -> bool {
        self.process.reports.is_some()
    }

    fn log(&self, level: Level, line: impl FnOnce() -> String) {
        match level {
            Level::Debug => log::debug(line),
            Level::Verbose => log::verbose(line),
            Level::Warning => log::warning(&line()),
        }
    }

    fn monotonic_us(&self) -> u64 {
        clock::monotonic_us()
    }

    fn wall_us(&self) -> u64 {
        clock::wall_us()
    }

    fn command(conns: &mut crate::Connections, me: Ref, id: CommandId, args: Args<'_>) -> Flow {
        local_commands::call(&mut conns.ctx, me, id, args)
    }

    fn proxy(conns: &mut crate::Connections, me: Ref, args: Args<'_>) -> Flow {
        commands::proxy(&mut conns.ctx, me, args)
    }

    fn config_reload(conns: &mut crate::Connections, me: Ref, args: Args<'_>) -> Flow {
        local_commands::config_reload(&mut conns.ctx, me, args)
    }
}

/// Returns the token of a client's connection.
pub(crate) fn client_token(at: u32) -> usize {
    FIRST_CONNECTION + 2 * at as usize
}

/// Returns the token of a connection to a server.
pub(crate) fn server_token(at: u32) -> usize {
    FIRST_CONNECTION + 2 * at as usize + 1
}

/// Returns a peer's address as the core has it.
pub(crate) fn address(addr: PeerAddr) -> client_info::PeerAddr {
    match addr {
        PeerAddr::Tcp(address) => client_info::PeerAddr::Tcp(address),
        PeerAddr::Unix(path) => client_info::PeerAddr::Unix(path),
    }
}
