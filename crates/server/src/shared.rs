//! State that all workers share: that of the engine, the configuration, ports, figures.
//!
//! Must not know: what sockets carry, how a command runs.

use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use redline_engine::{
    Engine, ExecutorHandle,
    caller::{ClientInfo, Token, flag},
    stats::{self, ExecutorStats, Totals},
};
use redline_front::Certificates;
use redline_net::{Listener, PeerAddr, Sender, Stream, clock, supervisor::ENDED, tls::ServerTls};
use redline_observe::histogram::Distribution;

use crate::{
    bandwidth::Bucket,
    cluster::{self, Cluster},
    ending::Ending,
    failover::Failover,
    following::{self, Following},
    log,
    migrate::Migrations,
    persistence::{self, Persistence},
    rates::Rates,
    replication::{self, Replication},
    settings::{Published, Settings},
    start::Origin,
    worker::Worker,
};

/// One of the two TCP ports for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpPort {
    /// Port of the parameter `port`: no TLS.
    Plain,
    /// Port of the parameter `tls-port`: every connection begins with a handshake.
    Tls,
}

impl TcpPort {
    /// Both ports.
    pub const ALL: [TcpPort; 2] = [TcpPort::Plain, TcpPort::Tls];

    /// Returns the name of its parameter.
    pub fn parameter(self) -> &'static str {
        match self {
            TcpPort::Plain => "port",
            TcpPort::Tls => "tls-port",
        }
    }

    /// Returns the configured port; `None`: the server does not listen on it.
    pub fn configured(self, settings: &Settings) -> Option<u16> {
        match self {
            TcpPort::Plain => settings.port,
            TcpPort::Tls => settings.tls.port,
        }
    }

    /// Returns true if a listener's connections are like this port's: with TLS or without. A unix socket has no port.
    pub fn is_like(self, listener: &Listener) -> bool {
        listener.is_tls() == (self == TcpPort::Tls)
    }
}

/// Message in a worker's mailbox.
pub enum Message {
    /// A connection to take over.
    Connection(Stream, PeerAddr),
    /// Message about clients of the worker, from an executor or a lock.
    Engine(redline_engine::Message),
    /// There is something to send to this replica.
    Feed(Token),
    /// A function to run on the worker.
    Run(Box<dyn FnOnce(&mut Worker) + Send>),
    /// Stop: close everything and return.
    Stop,
}

impl Message {
    /// Returns the message, if it is about clients.
    pub fn mail_mut(&mut self) -> Option<&mut redline_engine::Message> {
        match self {
            Message::Engine(message) => Some(message),
            _ => None,
        }
    }
}

/// A worker, as seen by other threads.
pub struct WorkerHandle {
    /// Mailbox of the worker.
    pub mailbox: Sender<Message>,
    /// Counters of the worker.
    pub stats: Arc<ExecutorStats>,
    /// Number of its connections, those on their way included.
    pub connections: AtomicUsize,
    /// Recent load: a [`Load`](crate::balance::Load).
    pub load: AtomicU64,
    /// True if its clients have been moved to another worker, and new ones go there too, while clients are balanced.
    pub rests: AtomicBool,
    /// Progress of its loop.
    pub turning: Turning,
}

/// Progress of a worker's loop: when it last began a turn, and whether it sleeps since. Only the worker changes it.
#[derive(Debug)]
pub struct Turning(AtomicU64);

impl Turning {
    /// Bit of a loop that sleeps; above it the time is, in milliseconds of the coarse clock.
    const SLEEPS: u64 = 1;

    /// Makes that of a loop that has not begun.
    pub fn new() -> Turning {
        Turning(Turning::SLEEPS.into())
    }

    /// Notes that a turn begins.
    pub fn begin(&self, now_ms: u64) {
        self.0.store(now_ms << 1, Ordering::Relaxed);
    }

    /// Notes that the loop sleeps until the next turn.
    pub fn sleep(&self) {
        let turned = self.0.load(Ordering::Relaxed);
        self.0.store(turned | Turning::SLEEPS, Ordering::Relaxed);
    }

    /// Notes that the loop has ended.
    pub fn end(&self) {
        self.0.store(ENDED, Ordering::Relaxed);
    }

    /// Returns true if a turn takes longer than that.
    pub fn lags(&self, now_ms: u64, turn_ms_max: u64) -> bool {
        let turned = self.0.load(Ordering::Relaxed);
        turned & Turning::SLEEPS == 0 && now_ms.saturating_sub(turned >> 1) > turn_ms_max
    }

    /// Returns a number that changes as long as the loop turns: see [`ProcessState::turns`].
    ///
    /// [`ProcessState::turns`]: redline_net::supervisor::ProcessState::turns
    pub fn turns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// See the head of the module.
pub struct Shared {
    /// State that commands share.
    pub engine: Engine,
    /// The configuration.
    pub settings: Published,
    /// This structure, for what outlives a call.
    this: OnceLock<Weak<Shared>>,
    client_eviction: Mutex<()>,
    workers: OnceLock<Box<[WorkerHandle]>>,
    /// Id of this run: 40 hexadecimal digits, new at every start.
    pub run_id: String,
    /// Time of the process's start: Unix time in microseconds.
    pub started_us: u64,
    /// Source of the settings, and the process around the server.
    pub origin: Origin,
    /// Ports and paths of the listeners, in words.
    pub listening: OnceLock<Vec<String>>,
    /// Bound number of [`TcpPort::Plain`] (configured, or chosen by the system); 0: none.
    pub port: AtomicUsize,
    /// Bound number of [`TcpPort::Tls`].
    pub tls_port: AtomicUsize,
    /// Listeners, of which the first worker has those that are open.
    listeners: Mutex<Vec<Weak<Listener>>>,
    /// Certificates and rules of new connections with TLS.
    pub tls: Certificates,
    /// Distributions at the last CONFIG RESETSTAT.
    distributions_baseline: Mutex<Vec<Distribution>>,
    /// Counters at the last CONFIG RESETSTAT.
    baseline: Mutex<Totals>,
    /// Time since which the data exceeds `maxmemory`: milliseconds of the monotonic clock; 0: it does not.
    over_limit_since_ms: AtomicU64,
    /// Total time for which it did before: milliseconds.
    over_limit_ms: AtomicU64,
    /// True while the reaper has yet to carry out a `Chore::Maintain`.
    pub(crate) is_maintained: AtomicBool,
    /// Number of values that the reaper has freed.
    pub reaper_freed: AtomicU64,
    /// Number of scripts evicted from the cache up to the last CONFIG RESETSTAT.
    pub evicted_scripts_before: AtomicU64,
    /// Rates of the last moments.
    pub rates: Rates,
    /// Peak memory of keys and values, as far as it was sampled.
    pub peak_bytes: AtomicU64,
    /// Time of that peak: Unix time in seconds.
    pub peak_at_s: AtomicU64,
    /// Number of connections accepted and refused since the start.
    pub connections_received: AtomicU64,
    /// See `connections_received`.
    pub connections_rejected: AtomicU64,
    /// DEBUG SET-ACTIVE-EXPIRE.
    pub active_expire: AtomicBool,
    /// Traffic of clients, while there is a limit on it.
    pub(crate) bandwidth: Bucket,
    /// Time for which workers have held clients back because of that limit, summed up: microseconds.
    pub(crate) bandwidth_held_us: AtomicU64,
    /// Number of commands of a primary or an append-only file that were answered by an error.
    pub(crate) refused_effects: AtomicU64,
    /// Snapshots and their files.
    pub(crate) persistence: Persistence,
    /// The server as a replica.
    pub(crate) following: Following,
    /// The end of the server, once it is asked for.
    pub(crate) ending: Ending,
    /// FAILOVER, while there is one.
    pub(crate) failover: Failover,
    /// The stream for replicas, and these.
    pub(crate) replication: Replication,
    /// The node of a cluster, if this is one.
    pub(crate) cluster: Option<Cluster>,
    /// Keys on their way to other servers.
    pub(crate) migrations: Migrations,
    /// DEBUG PAUSE-CRON: the timers do nothing.
    pub timers_rest: AtomicBool,
    /// True after SHUTDOWN and SIGTERM.
    pub stopping: AtomicBool,
}

impl Deref for Shared {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl Shared {
    /// Creates everything but the workers, which come with [`Shared::set_workers`].
    pub fn new(
        engine: Engine,
        settings: Published,
        run_id: String,
        started_us: u64,
        origin: Origin,
        persistence: Persistence,
        cluster: Option<Cluster>,
    ) -> Shared {
        let replication = Replication::new(&settings.current());
        Shared {
            engine,
            settings,
            this: OnceLock::new(),
            client_eviction: Mutex::new(()),
            workers: OnceLock::new(),
            run_id,
            started_us,
            origin,
            listening: OnceLock::new(),
            port: AtomicUsize::new(0),
            listeners: Mutex::default(),
            tls_port: AtomicUsize::new(0),
            tls: Certificates::default(),
            distributions_baseline: Mutex::default(),
            baseline: Mutex::default(),
            over_limit_since_ms: AtomicU64::new(0),
            over_limit_ms: AtomicU64::new(0),
            is_maintained: AtomicBool::new(false),
            reaper_freed: AtomicU64::new(0),
            evicted_scripts_before: AtomicU64::new(0),
            rates: Rates::default(),
            peak_bytes: AtomicU64::new(0),
            peak_at_s: AtomicU64::new(started_us / 1_000_000),
            connections_received: AtomicU64::new(0),
            connections_rejected: AtomicU64::new(0),
            bandwidth: Bucket::default(),
            bandwidth_held_us: AtomicU64::new(0),
            refused_effects: AtomicU64::new(0),
            persistence,
            following: Following::new(),
            ending: Ending::default(),
            failover: Failover::default(),
            replication,
            cluster,
            migrations: Migrations::default(),
            active_expire: AtomicBool::new(true),
            timers_rest: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        }
    }

    /// Makes the structure known to itself. Called once, before the workers begin.
    pub fn set_this(self: &Arc<Shared>) {
        let _ = self.this.set(Arc::downgrade(self));
    }

    /// Returns this structure, counted.
    pub fn this(&self) -> Arc<Shared> {
        let this = self.this.get().and_then(Weak::upgrade);
        this.expect("set at the start, and it lives as long as its users")
    }

    /// Sets the listeners of a port, and the number that was bound.
    pub fn set_port(&self, which: TcpPort, listeners: &[Arc<Listener>]) {
        let own = || {
            let listeners = listeners.iter();
            listeners.filter(move |listener| which.is_like(listener))
        };
        let port = own().find_map(|listener| listener.port());
        let wanted = which.configured(&self.settings.current());
        // Without an address the port stays that of the next address.
        if port.is_some() || wanted.is_none() {
            let port = usize::from(port.unwrap_or(0));
            self.bound(which).store(port, Ordering::Release);
        }
        let mut known = self.listeners.lock().expect("no panic under the listeners");
        known.retain(|listener| listener.strong_count() > 0);
        known.extend(own().map(Arc::downgrade));
    }

    /// Returns the number of the port that was bound; 0: none so far.
    pub fn bound_port(&self, which: TcpPort) -> u16 {
        self.bound(which).load(Ordering::Acquire) as u16
    }

    fn bound(&self, which: TcpPort) -> &AtomicUsize {
        match which {
            TcpPort::Plain => &self.port,
            TcpPort::Tls => &self.tls_port,
        }
    }

    /// Returns the open listeners of a port.
    pub fn tcp_listeners(&self, which: TcpPort) -> Vec<Arc<Listener>> {
        let known = self.listeners.lock().expect("no panic under the listeners");
        let open = known.iter().filter_map(Weak::upgrade);
        open.filter(|listener| which.is_like(listener) && listener.port().is_some())
            .collect()
    }

    /// Closes all listeners.
    pub fn close_listeners(&self) {
        let known = self.listeners.lock().expect("no panic under the listeners");
        let open = known.iter().filter_map(Weak::upgrade);
        open.for_each(|listener| listener.close());
    }

    /// Sets the title in the list of processes, if the process is the server's own.
    pub fn show_title(&self) {
        let Some(service) = &self.origin.service else {
            return;
        };
        let ports = [&self.port, &self.tls_port].map(|port| port.load(Ordering::Acquire));
        let path = self.origin.config_file.as_ref();
        let path = path.map(|path| path.display().to_string());
        service.show_title(&self.settings.current(), path.as_deref(), ports);
    }

    /// Reads the files of TLS again if one of them has changed.
    pub fn reload_changed_tls(&self) {
        let tls = self.tls.current();
        let options = self.settings.current().tls.options();
        if tls.is_some_and(|tls| tls.is_outdated(&options)) {
            self.reload_tls();
        }
    }

    /// Reads the files of TLS again, if there is TLS. On a failure the settings stay.
    pub fn reload_tls(&self) {
        let settings = self.settings.current();
        if settings.tls.port.is_none() {
            return;
        }
        match ServerTls::new(&settings.tls.options()) {
            Ok(tls) => {
                self.tls.replace(Some(tls));
                log::notice("TLS certificates reloaded.");
            }
            Err(error) => log::warning(&format!(
                "Failed to reload TLS certificates, still using the previous ones: {error}"
            )),
        }
    }

    /// Sets the workers. Called once, before the first worker runs.
    pub fn set_workers(&self, workers: Box<[WorkerHandle]>) {
        assert!(
            self.workers.set(workers).is_ok(),
            "the workers are set once"
        );
    }

    /// Changes the settings, those of the engine among them; on an error of `change` they stay. When this returns,
    /// every command that begins later on any worker sees the new ones.
    pub fn change_settings<E>(
        &self,
        change: impl FnOnce(&mut Settings) -> Result<(), E>,
    ) -> Result<(), E> {
        self.settings.update(&self.engine, change)?;
        persistence::note_refusal(self);
        persistence::append::adopt(self);
        following::note_role(self);
        replication::adopt(self);
        cluster::adopt(self);
        Ok(())
    }

    /// Returns the state of a node whose cluster is in etcd, if this is one.
    #[inline]
    pub(crate) fn etcd(&self) -> Option<&cluster::etcd::Membership> {
        self.cluster.as_ref()?.etcd.as_ref()
    }

    /// Returns true if this is a node whose cluster is in etcd.
    pub(crate) fn has_etcd(&self) -> bool {
        self.etcd().is_some()
    }

    /// Returns all workers, by number.
    #[inline]
    pub fn workers(&self) -> &[WorkerHandle] {
        self.workers
            .get()
            .expect("set before the first worker runs")
    }

    /// Returns the memory of all clients: bytes, as of the last time that each was served.
    pub fn client_bytes(&self) -> u64 {
        let of = |executor: &ExecutorHandle| executor.stats.client_bytes.get();
        self.executors().iter().map(of).sum()
    }

    /// Closes the clients with most memory until all together are within `limit_bytes` (`maxmemory-clients`), and
    /// returns their number.
    pub fn evict_clients(&self, limit_bytes: u64) -> u64 {
        if self.client_bytes() <= limit_bytes {
            return 0;
        }
        // One thread at a time: two with the same clients would close more than necessary.
        let _alone = self.client_eviction.lock();
        let mut infos = self.client_infos();
        let bytes = |info: &Arc<ClientInfo>| info.memory_bytes.load(Ordering::Relaxed);
        let mut total: u64 = infos.iter().map(bytes).sum();
        infos.retain(|info| {
            let kept = flag::NO_EVICT | flag::REPLICA | flag::PRIMARY;
            info.flags.load(Ordering::Relaxed) & kept == 0
        });
        infos.sort_by_cached_key(|info| std::cmp::Reverse(bytes(info)));
        let mut evicted = 0;
        for info in infos {
            if total <= limit_bytes {
                break;
            }
            total = total.saturating_sub(bytes(&info));
            log::notice(&format!(
                "Evicting client: id={} addr={}",
                info.id, info.addr
            ));
            self.kill(&info);
            evicted += 1;
        }
        evicted
    }

    /// Returns for each worker a number that changes as long as its loop turns.
    pub fn turns(&self) -> Vec<u64> {
        let workers = self.workers().iter();
        workers.map(|worker| worker.turning.turns()).collect()
    }

    /// Returns the number of connections of clients.
    pub fn connection_count(&self) -> usize {
        let workers = self.workers().iter();
        workers
            .map(|worker| worker.connections.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns the number of changes of the data since the start.
    pub fn changes(&self) -> u64 {
        Totals::of(self.executors()).changes()
    }

    /// Returns the counters since the start, or since CONFIG RESETSTAT.
    pub fn totals(&self) -> Totals {
        let baseline = self.baseline.lock().expect("no panic under the baseline");
        Totals::of(self.executors()).since(&baseline)
    }

    /// Returns the distribution of each command's times, since the start or since CONFIG RESETSTAT.
    pub fn distributions(&self) -> Vec<Distribution> {
        let mut all = stats::distributions(self.executors());
        let baseline = self.distributions_baseline.lock();
        let baseline = baseline.expect("no panic under the baseline");
        for (now, then) in all.iter_mut().zip(baseline.iter()) {
            now.subtract(then);
        }
        all
    }

    /// Handles CONFIG RESETSTAT. Counters have one writer each, so they are not reset: their values are kept as a baseline.
    pub fn reset_stats(&self) {
        self.stats_epoch.fetch_add(1, Ordering::Release);
        self.engine.settings.move_epoch();
        for executor in self.executors() {
            let codes = executor.stats.errors_by_code.lock();
            codes.expect("no panic under the error counts").clear();
        }
        *self.baseline.lock().expect("no panic under the baseline") = Totals::of(self.executors());
        let mut distributions = self
            .distributions_baseline
            .lock()
            .expect("no panic under the baseline");
        *distributions = stats::distributions(self.executors());
        self.connections_received.store(0, Ordering::Relaxed);
        self.connections_rejected.store(0, Ordering::Relaxed);
        let evicted = self.scripts.evicted();
        self.evicted_scripts_before
            .store(evicted, Ordering::Relaxed);
        self.replication.primary().figures = redline_replica::primary::Figures::default();
        self.rates.reset();
        self.over_limit_ms.store(0, Ordering::Relaxed);
        self.reaper_freed.store(0, Ordering::Relaxed);
        self.bandwidth_held_us.store(0, Ordering::Relaxed);
        self.refused_effects.store(0, Ordering::Relaxed);
    }

    /// Checks if the data exceeds its limit; called by the first worker's timer.
    pub fn note_limit(&self) {
        let now_ms = clock::monotonic_ms().max(1);
        let since_ms = self.over_limit_since_ms.load(Ordering::Relaxed);
        match (self.keyspace.over_limit(), since_ms) {
            (true, 0) => self.over_limit_since_ms.store(now_ms, Ordering::Relaxed),
            (false, 1..) => {
                self.over_limit_since_ms.store(0, Ordering::Relaxed);
                let span_ms = now_ms.saturating_sub(since_ms);
                self.over_limit_ms.fetch_add(span_ms, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Returns for how long the data has exceeded its limit: milliseconds, in all and since it last began to.
    pub fn over_limit_ms(&self) -> (u64, u64) {
        let current = match self.over_limit_since_ms.load(Ordering::Relaxed) {
            0 => 0,
            since_ms => clock::monotonic_ms().saturating_sub(since_ms),
        };
        let before = self.over_limit_ms.load(Ordering::Relaxed);
        (before + current, current)
    }
}
