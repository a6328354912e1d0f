//! State that all workers share: the keyspace, the settings, the registries, the mailboxes.
//!
//! Must not know: what sockets carry, how a command runs.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use redline_commands::Error;
use redline_keyspace::{
    Flushed, Garbage, Keyspace, Waiter,
    lock::{Wake, WakeToken},
};
use redline_net::{Listener, PeerAddr, Sender, Stream, clock, tls::ServerTls};
use redline_observe::{histogram::Distribution, latency::Events};
use redline_scripting::{Host, Libraries, Scripts};

use crate::{
    block::Outcome,
    commandlog::CommandLogs,
    errors, log,
    monitor::{Line, Monitors},
    names::Names,
    pubsub::{Delivery, PubSub, Transit},
    session::{Card, Token, flag},
    settings::{Published, Settings},
    start::Origin,
    stats::{Rates, Totals, WorkerStats},
    tracking::{Invalidation, Redirected, Tracking},
    worker::Worker,
};

/// One of the two TCP ports that clients come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpPort {
    /// That of the parameter `port`: no TLS.
    Plain,
    /// That of `tls-port`: every connection begins with a handshake.
    Tls,
}

impl TcpPort {
    /// Both.
    pub const ALL: [TcpPort; 2] = [TcpPort::Plain, TcpPort::Tls];

    /// The parameter that sets it.
    pub fn parameter(self) -> &'static str {
        match self {
            TcpPort::Plain => "port",
            TcpPort::Tls => "tls-port",
        }
    }

    /// Returns the configured port; `None`: nothing is to be listened on.
    pub fn configured(self, settings: &Settings) -> Option<u16> {
        match self {
            TcpPort::Plain => settings.port,
            TcpPort::Tls => settings.tls.port,
        }
    }

    /// Returns true if a listener's connections are as this port's: with TLS or without. That of a unix socket has none.
    pub fn is_like(self, listener: &Listener) -> bool {
        listener.is_tls() == (self == TcpPort::Tls)
    }
}

/// Message in a worker's mailbox.
pub enum Message {
    /// A connection to take over.
    Connection(Stream, PeerAddr),
    /// A put-aside session may try again.
    Wake(Token),
    /// Something was published to these sessions.
    Deliver(Delivery),
    /// Keys have changed that these sessions track.
    Invalidate(Invalidation),
    /// Keys have changed that another session tracks on behalf of this one.
    Redirected(Redirected),
    /// A command has run that these sessions are shown.
    Monitored(Line),
    /// Somebody has ended this client's wait for keys; the reply, if it was served.
    WaitEnded(Arc<Waiter>, Outcome),
    /// CLIENT KILL and the like: close this session.
    Kill(Token),
    /// A script has passed the busy threshold: sessions put aside for it are answered.
    ScriptBusy,
    /// Something else that only the worker can do.
    Run(Box<dyn FnOnce(&mut Worker) + Send>),
    /// The end: close everything and return.
    Stop,
}

/// Work that is done behind the commands, on a thread of its own.
pub enum Chore {
    /// Drop a large value.
    Drop(Garbage),
    /// Free a flushed database.
    Free(Flushed),
    /// Give memory that is free back to the system, that of the chores before included.
    Purge,
    /// Nothing more will come.
    Stop,
}

/// How much a chore frees.
#[derive(Default)]
pub struct Size {
    /// Values.
    pub objects: u64,
    /// Bytes of a value.
    bytes: u64,
    /// Databases.
    databases: u64,
}

impl Chore {
    /// How much it frees.
    pub fn size(&self) -> Size {
        match self {
            Chore::Drop(garbage) => Size {
                objects: 1,
                bytes: garbage.heap_bytes() as u64,
                databases: 0,
            },
            Chore::Free(flushed) => Size {
                objects: flushed.len(),
                bytes: 0,
                databases: 1,
            },
            Chore::Purge | Chore::Stop => Size::default(),
        }
    }
}

/// Garbage that waits for the reaper. There is one for all workers, so they may be faster: then who makes more frees it.
#[derive(Default)]
pub struct Backlog {
    /// Values that it has yet to free.
    pub objects: AtomicU64,
    bytes: AtomicU64,
    databases: AtomicU64,
}

impl Backlog {
    /// Bytes of values that may wait, and one more.
    const BYTES_MAX: u64 = 64 << 20;
    /// Databases with few keys that may wait. Those with many take longer to fill than to free.
    const DATABASES_MAX: u64 = 16;
    const FEW_KEYS: u64 = 1024;

    /// May more be put into it?
    pub fn has_room_for(&self, chore: &Chore) -> bool {
        let within = |count: &AtomicU64, max| count.load(Ordering::Relaxed) <= max;
        match chore {
            Chore::Drop(_) => within(&self.bytes, Self::BYTES_MAX),
            Chore::Free(flushed) => {
                flushed.len() > Self::FEW_KEYS || within(&self.databases, Self::DATABASES_MAX)
            }
            Chore::Purge | Chore::Stop => true,
        }
    }

    fn add(&self, size: &Size) {
        self.objects.fetch_add(size.objects, Ordering::Relaxed);
        self.bytes.fetch_add(size.bytes, Ordering::Relaxed);
        self.databases.fetch_add(size.databases, Ordering::Relaxed);
    }

    /// A chore of this size is done.
    pub fn take_off(&self, size: &Size) {
        self.objects.fetch_sub(size.objects, Ordering::Relaxed);
        self.bytes.fetch_sub(size.bytes, Ordering::Relaxed);
        self.databases.fetch_sub(size.databases, Ordering::Relaxed);
    }
}

/// The other end of a worker.
pub struct WorkerHandle {
    /// Its mailbox.
    pub mailbox: Sender<Message>,
    /// Its counters.
    pub stats: Arc<WorkerStats>,
    /// How many connections it has, those on their way included.
    pub connections: AtomicUsize,
    /// Published messages on their way to its clients.
    pub transit: Arc<Transit>,
    /// Its recent load: a [`Load`](crate::balance::Load).
    pub load: AtomicU64,
    /// Its clients have been brought to another, and new ones go there too, while clients are balanced.
    pub rests: AtomicBool,
}

/// The script that holds the script mutex and runs, seen from outside.
#[derive(Default)]
pub struct RunningScript {
    /// It has passed the busy threshold. Changes are published with an epoch of the settings.
    pub busy: AtomicBool,
    /// The run's number and the bits below in one word, so that nobody ends another run than the one looked at.
    word: AtomicU64,
    /// It has run for a while, and `slow` says what it is.
    noticed: AtomicBool,
    /// See `noticed`.
    slow: Mutex<Option<Slow>>,
}

/// A script or function that has run for a while.
#[derive(Clone, Debug)]
pub struct Slow {
    /// A function, not a script.
    pub is_function: bool,
    /// The function's name.
    pub name: Vec<u8>,
    /// The call.
    pub command: Vec<Vec<u8>>,
    /// When it began, by the monotonic clock.
    pub began_ms: u64,
}

/// A look at [`RunningScript`]: names one run.
#[derive(Clone, Copy)]
pub struct ScriptRun(u64);

impl ScriptRun {
    /// Has it written?
    pub fn has_written(self) -> bool {
        self.0 & RunningScript::WROTE != 0
    }
}

/// Why a script is not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkillable {
    /// That run is over, or there was none.
    Over,
    /// It has written.
    Wrote,
}

impl RunningScript {
    const RUNNING: u64 = 1;
    const KILLED: u64 = 2;
    const WROTE: u64 = 4;
    const ONE_RUN: u64 = 8;

    /// A run begins; the caller holds the script mutex. `wrote`: the transaction around it has changed something.
    pub fn begin(&self, wrote: bool) {
        let number = self.word.load(Ordering::Relaxed) & !(Self::ONE_RUN - 1);
        let wrote = if wrote { Self::WROTE } else { 0 };
        self.word.store(
            number.wrapping_add(Self::ONE_RUN) | Self::RUNNING | wrote,
            Ordering::Release,
        );
    }

    /// The run is over; the script mutex is still held.
    pub fn end(&self) {
        self.word.fetch_and(!Self::RUNNING, Ordering::AcqRel);
    }

    /// The script has written: from now on it cannot be ended.
    pub fn note_write(&self) {
        self.word.fetch_or(Self::WROTE, Ordering::AcqRel);
    }

    /// Is the running script to end? Not if it has written since SCRIPT KILL was answered.
    pub fn is_killed(&self) -> bool {
        self.word.load(Ordering::Acquire) & (Self::KILLED | Self::WROTE) == Self::KILLED
    }

    /// It runs for a while already: who asks is told what it is. Only the first word of a run counts.
    pub fn notice(&self, slow: impl FnOnce() -> Slow) {
        if !self.noticed.swap(true, Ordering::AcqRel) {
            *self.slow.lock().unwrap_or_else(PoisonError::into_inner) = Some(slow());
        }
    }

    /// It has passed the threshold; whoever tries is to be told so.
    pub fn set_busy(&self) {
        self.busy.store(true, Ordering::Release);
    }

    /// It is over; nobody is to be refused any more. Says whether anybody was.
    pub fn end_slow(&self) -> bool {
        let busy = self.busy.load(Ordering::Relaxed);
        if busy {
            self.busy.store(false, Ordering::Release);
        }
        if self.noticed.swap(false, Ordering::AcqRel) {
            *self.slow.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        busy
    }

    /// Returns the script or function that has run for a while and still runs, if there is one.
    pub fn slow(&self) -> Option<Slow> {
        let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        slow.clone()
    }

    /// Returns the error that other clients get meanwhile.
    pub fn busy_error(&self) -> Error {
        let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        match slow.as_ref().is_some_and(|slow| slow.is_function) {
            true => errors::BUSY_FUNCTION,
            false => errors::BUSY,
        }
    }

    /// Returns the current state of the script run.
    pub fn look(&self) -> ScriptRun {
        ScriptRun(self.word.load(Ordering::Acquire))
    }

    /// Has this run end, and no other that may have taken its place since.
    pub fn kill(&self, run: ScriptRun) -> Result<(), Unkillable> {
        let mut seen = run.0;
        loop {
            if seen & Self::RUNNING == 0 || (seen ^ run.0) >= Self::ONE_RUN {
                return Err(Unkillable::Over);
            }
            if seen & Self::WROTE != 0 {
                return Err(Unkillable::Wrote);
            }
            match self.word.compare_exchange(
                seen,
                seen | Self::KILLED,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(()),
                Err(other) => seen = other,
            }
        }
    }
}

/// The calls that CLIENT PAUSE holds back.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// Until when: milliseconds of the monotonic clock.
    pub end_ms: u64,
    /// Every command, not only those that write.
    pub all: bool,
}

/// See the module's text.
pub struct Shared {
    /// The data.
    pub keyspace: Keyspace,
    /// The configuration.
    pub settings: Published,
    /// Subscribers of each channel.
    pub pubsub: PubSub,
    /// Clients that are notified of changed keys.
    pub tracking: Tracking,
    /// Clients that are shown the commands that run. Published with an epoch of the settings.
    pub monitors: Monitors,
    /// Cached scripts.
    pub scripts: Scripts,
    /// Libraries of functions.
    pub libraries: Libraries,
    /// Their interpreter, made when it is first needed. Who holds the script mutex may take it out.
    pub function_host: Mutex<Option<Host>>,
    /// Log of the accesses that users were refused.
    pub acl_log: Mutex<redline_acl::Log>,
    /// Names by which commands are called.
    pub names: Names,
    /// The script that is running.
    pub running_script: RunningScript,
    clients: Mutex<BTreeMap<u64, Arc<Card>>>,
    next_client_id: AtomicU64,
    client_eviction: Mutex<()>,
    workers: OnceLock<Box<[WorkerHandle]>>,
    /// Hands work to the reaper thread.
    pub chores: Mutex<std::sync::mpsc::Sender<Chore>>,
    /// 40 hexadecimal digits, new at every start.
    pub run_id: String,
    /// 40 hexadecimal digits: which history of changes this server's is. DEBUG CHANGE-REPL-ID makes new ones.
    pub replication_id: Mutex<String>,
    /// When the process started: Unix time in microseconds.
    pub started_us: u64,
    /// Where the settings came from, and the process around the server.
    pub origin: Origin,
    /// Ports and paths that are listened on, in words.
    pub listening: OnceLock<Vec<String>>,
    /// The number of [`TcpPort::Plain`] that was bound (the configured one, or the one that the system chose); 0: none.
    pub port: AtomicUsize,
    /// That of [`TcpPort::Tls`].
    pub tls_port: AtomicUsize,
    /// The listeners, of which the first worker has those that are open.
    listeners: Mutex<Vec<Weak<Listener>>>,
    /// How connections with TLS are made; read by whoever accepts.
    pub tls: Mutex<Option<ServerTls>>,
    /// Calls that took long or moved much.
    pub command_logs: CommandLogs,
    /// The latency monitor.
    pub latency_events: Events,
    /// Distributions at the last CONFIG RESETSTAT.
    distributions_baseline: Mutex<Vec<Distribution>>,
    /// Counters at the last CONFIG RESETSTAT.
    baseline: Mutex<Totals>,
    /// Since when the data takes more than `maxmemory` allows: milliseconds of the monotonic clock; 0: it does not.
    over_limit_since_ms: AtomicU64,
    /// How long it did before, in all: milliseconds.
    over_limit_ms: AtomicU64,
    /// Garbage that the reaper has been given and has not yet freed.
    pub backlog: Backlog,
    /// Values that it has freed.
    pub reaper_freed: AtomicU64,
    /// Scripts that the cache had forgotten at the last CONFIG RESETSTAT.
    pub evicted_scripts_before: AtomicU64,
    /// Rates of the last moments.
    pub rates: Rates,
    /// The most memory that keys and values have taken, as far as anybody looked.
    pub peak_bytes: AtomicU64,
    /// Since when: Unix time in seconds.
    pub peak_at_s: AtomicU64,
    /// Connections accepted and refused since the start.
    pub connections_received: AtomicU64,
    /// See `connections_received`.
    pub connections_rejected: AtomicU64,
    /// How often CONFIG RESETSTAT was called. Published with an epoch of the settings.
    pub stats_epoch: AtomicU64,
    /// DEBUG SET-ACTIVE-EXPIRE.
    pub active_expire: AtomicBool,
    /// DEBUG PAUSE-CRON: the timers do nothing.
    pub timers_rest: AtomicBool,
    /// DEBUG SET-DISABLE-DENY-SCRIPTS: scripts may call what only looks, though its row denies it.
    pub scripts_may_look: AtomicBool,
    /// The calls that CLIENT PAUSE holds back. Published with an epoch of the settings.
    pub pause: Mutex<Option<Pause>>,
    /// Clients that wait for keys and not for ever.
    pub timed_waits: AtomicU64,
    /// Set by SHUTDOWN and SIGTERM.
    pub stopping: AtomicBool,
}

impl Shared {
    /// Everything but the workers, which come with [`Shared::set_workers`].
    pub fn new(
        keyspace: Keyspace,
        settings: Published,
        chores: std::sync::mpsc::Sender<Chore>,
        run_id: String,
        started_us: u64,
        origin: Origin,
    ) -> Shared {
        Shared {
            pubsub: PubSub::default(),
            tracking: Tracking::default(),
            monitors: Monitors::default(),
            scripts: Scripts::new(),
            libraries: Libraries::default(),
            function_host: Mutex::new(None),
            acl_log: Mutex::default(),
            names: settings.current().names.clone(),
            keyspace,
            settings,
            running_script: RunningScript::default(),
            clients: Mutex::new(BTreeMap::new()),
            next_client_id: AtomicU64::new(1),
            client_eviction: Mutex::new(()),
            workers: OnceLock::new(),
            chores: Mutex::new(chores),
            replication_id: Mutex::new(crate::start::random_id()),
            run_id,
            started_us,
            origin,
            listening: OnceLock::new(),
            port: AtomicUsize::new(0),
            listeners: Mutex::default(),
            tls_port: AtomicUsize::new(0),
            tls: Mutex::new(None),
            command_logs: CommandLogs::default(),
            latency_events: Events::default(),
            distributions_baseline: Mutex::default(),
            baseline: Mutex::default(),
            over_limit_since_ms: AtomicU64::new(0),
            over_limit_ms: AtomicU64::new(0),
            backlog: Backlog::default(),
            reaper_freed: AtomicU64::new(0),
            evicted_scripts_before: AtomicU64::new(0),
            rates: Rates::default(),
            peak_bytes: AtomicU64::new(0),
            peak_at_s: AtomicU64::new(started_us / 1_000_000),
            connections_received: AtomicU64::new(0),
            connections_rejected: AtomicU64::new(0),
            stats_epoch: AtomicU64::new(0),
            active_expire: AtomicBool::new(true),
            timers_rest: AtomicBool::new(false),
            scripts_may_look: AtomicBool::new(false),
            pause: Mutex::new(None),
            timed_waits: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// Takes note of the listeners of a port, and of the number that was bound.
    pub fn set_port(&self, which: TcpPort, listeners: &[Arc<Listener>]) {
        let own = || {
            let listeners = listeners.iter();
            listeners.filter(move |listener| which.is_like(listener))
        };
        let port = own().find_map(|listener| listener.port());
        let wanted = which.configured(&self.settings.current());
        // With no address to listen on the port stays the one of the next address.
        if port.is_some() || wanted.is_none() {
            let port = usize::from(port.unwrap_or(0));
            self.bound(which).store(port, Ordering::Release);
        }
        let mut known = self.listeners.lock().expect("no panic under the listeners");
        known.retain(|listener| listener.strong_count() > 0);
        known.extend(own().map(Arc::downgrade));
    }

    /// The number of the port that was bound; 0: none so far.
    pub fn bound_port(&self, which: TcpPort) -> u16 {
        self.bound(which).load(Ordering::Acquire) as u16
    }

    fn bound(&self, which: TcpPort) -> &AtomicUsize {
        match which {
            TcpPort::Plain => &self.port,
            TcpPort::Tls => &self.tls_port,
        }
    }

    /// The listeners of a port that are open.
    pub fn tcp_listeners(&self, which: TcpPort) -> Vec<Arc<Listener>> {
        let known = self.listeners.lock().expect("no panic under the listeners");
        let open = known.iter().filter_map(Weak::upgrade);
        open.filter(|listener| which.is_like(listener) && listener.port().is_some())
            .collect()
    }

    /// Lets nobody connect any more.
    pub fn close_listeners(&self) {
        let known = self.listeners.lock().expect("no panic under the listeners");
        let open = known.iter().filter_map(Weak::upgrade);
        open.for_each(|listener| listener.close());
    }

    /// Shows in the list of processes what is served, if the process is the server's own.
    pub fn show_title(&self) {
        let Some(service) = &self.origin.service else {
            return;
        };
        let ports = [&self.port, &self.tls_port].map(|port| port.load(Ordering::Acquire));
        let path = self.origin.config_file.as_ref();
        let path = path.map(|path| path.display().to_string());
        service.show_title(&self.settings.current(), path.as_deref(), ports);
    }

    /// Connections with TLS are made like this from now on.
    pub fn set_tls(&self, tls: ServerTls) {
        *self.tls.lock().expect("no panic under TLS") = Some(tls);
    }

    /// Reads the files of TLS again if one of them has changed.
    pub fn reload_changed_tls(&self) {
        let tls = self.tls.lock().expect("no panic under TLS").clone();
        let options = self.settings.current().tls.options();
        if tls.is_some_and(|tls| tls.is_outdated(&options)) {
            self.reload_tls();
        }
    }

    /// Reads the files of TLS again, if there is TLS. On a failure what was there stays.
    pub fn reload_tls(&self) {
        let settings = self.settings.current();
        if settings.tls.port.is_none() {
            return;
        }
        match ServerTls::new(&settings.tls.options()) {
            Ok(tls) => {
                self.set_tls(tls);
                log::notice("The certificates have been read again.");
            }
            Err(error) => log::warning(&format!("The certificates stay as they were: {error}")),
        }
    }

    /// To be called once, before the first worker runs.
    pub fn set_workers(&self, workers: Box<[WorkerHandle]>) {
        assert!(
            self.workers.set(workers).is_ok(),
            "the workers are set once"
        );
    }

    /// All workers, by number.
    #[inline]
    pub fn workers(&self) -> &[WorkerHandle] {
        self.workers
            .get()
            .expect("set before the first worker runs")
    }

    /// A new client id.
    pub fn next_client_id(&self) -> u64 {
        self.next_client_id.fetch_add(1, Ordering::Relaxed)
    }

    /// All clients, by id: a leaf among the locks.
    pub fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Card>>> {
        self.clients.lock().expect("no panic under the clients")
    }

    /// The clients now, by ascending id. Those that have been killed are gone for everybody, though their workers may
    /// not have closed them yet.
    pub fn client_cards(&self) -> Vec<Arc<Card>> {
        let clients = self.clients();
        let cards = clients.values();
        let there = cards.filter(|card| !card.killed.load(Ordering::Acquire));
        there.cloned().collect()
    }

    /// Where to reach this client's session.
    pub fn token_of(&self, id: u64) -> Option<Token> {
        let clients = self.clients();
        clients.get(&id).map(|card| card.token())
    }

    /// Marks a client as killed and tells its worker. When this returns, none of its commands begins.
    pub fn kill(&self, card: &Card) {
        card.killed.store(true, Ordering::Release);
        card.wait.kill();
        // Read once: it may be moving to another worker, and the old place sends this on, but only what names it.
        let token = card.token();
        self.workers()[token.worker()]
            .mailbox
            .send(Message::Kill(token));
    }

    /// Memory of all clients: bytes, as of the last time that each was served.
    pub fn client_bytes(&self) -> u64 {
        let of = |worker: &WorkerHandle| worker.stats.client_bytes.get();
        self.workers().iter().map(of).sum()
    }

    /// Closes the clients with most memory until all together keep `limit_bytes` (`maxmemory-clients`), and says how
    /// many.
    pub fn evict_clients(&self, limit_bytes: u64) -> u64 {
        if self.client_bytes() <= limit_bytes {
            return 0;
        }
        // One at a time: two that look at the same clients would close more than need be.
        let _alone = self.client_eviction.lock();
        let mut cards = self.client_cards();
        let bytes = |card: &Arc<Card>| card.memory_bytes.load(Ordering::Relaxed);
        let mut total: u64 = cards.iter().map(bytes).sum();
        cards.retain(|card| card.flags.load(Ordering::Relaxed) & flag::NO_EVICT == 0);
        cards.sort_by_cached_key(|card| std::cmp::Reverse(bytes(card)));
        let mut evicted = 0;
        for card in cards {
            if total <= limit_bytes {
                break;
            }
            total = total.saturating_sub(bytes(&card));
            log::notice(&format!(
                "Evicting client: id={} addr={}",
                card.id, card.addr
            ));
            self.kill(&card);
            evicted += 1;
        }
        evicted
    }

    /// The counters since the start, or since CONFIG RESETSTAT.
    pub fn totals(&self) -> Totals {
        let baseline = self.baseline.lock().expect("no panic under the baseline");
        Totals::of(self.workers()).since(&baseline)
    }

    /// How the times of each command are distributed, since the start or since CONFIG RESETSTAT.
    pub fn distributions(&self) -> Vec<Distribution> {
        let mut all = crate::stats::distributions(self.workers());
        let baseline = self.distributions_baseline.lock();
        let baseline = baseline.expect("no panic under the baseline");
        for (now, then) in all.iter_mut().zip(baseline.iter()) {
            now.subtract(then);
        }
        all
    }

    /// CONFIG RESETSTAT. Counters have one writer each, so they go on, and what they were is remembered.
    pub fn reset_stats(&self) {
        self.stats_epoch.fetch_add(1, Ordering::Release);
        self.settings.move_epoch();
        for worker in self.workers() {
            let codes = worker.stats.errors_by_code.lock();
            codes.expect("no panic under the error counts").clear();
        }
        *self.baseline.lock().expect("no panic under the baseline") = Totals::of(self.workers());
        let mut distributions = self
            .distributions_baseline
            .lock()
            .expect("no panic under the baseline");
        *distributions = crate::stats::distributions(self.workers());
        self.connections_received.store(0, Ordering::Relaxed);
        self.connections_rejected.store(0, Ordering::Relaxed);
        let evicted = self.scripts.evicted();
        self.evicted_scripts_before
            .store(evicted, Ordering::Relaxed);
        self.rates.reset();
        self.over_limit_ms.store(0, Ordering::Relaxed);
        self.reaper_freed.store(0, Ordering::Relaxed);
    }

    /// Looks whether the data takes more than it may; the first worker's timer does.
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

    /// For how long the data has taken more than it may: milliseconds, in all and since it last began to.
    pub fn over_limit_ms(&self) -> (u64, u64) {
        let current = match self.over_limit_since_ms.load(Ordering::Relaxed) {
            0 => 0,
            since_ms => clock::monotonic_ms().saturating_sub(since_ms),
        };
        let before = self.over_limit_ms.load(Ordering::Relaxed);
        (before + current, current)
    }

    /// Hands work to the reaper.
    pub fn chore(&self, chore: Chore) {
        self.backlog.add(&chore.size());
        // A send fails only when the reaper has gone, at the very end: then the memory goes with the process.
        let _ = self
            .chores
            .lock()
            .expect("no panic under the chores")
            .send(chore);
    }
}

/// Wakes put-aside sessions through their workers' mailboxes. Made before the workers are.
#[derive(Clone, Default)]
pub struct Bell(Arc<OnceLock<Vec<Sender<Message>>>>);

impl Bell {
    /// To be called once, before the first worker runs.
    pub fn set(&self, mailboxes: Vec<Sender<Message>>) {
        assert!(self.0.set(mailboxes).is_ok(), "the mailboxes are set once");
    }
}

impl Wake for Bell {
    fn wake(&self, token: WakeToken) {
        let token = Token(token);
        let mailboxes = self.0.get().expect("set before the first worker runs");
        mailboxes[token.worker()].send(Message::Wake(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_meant_for_one_script_does_not_hit_the_next() {
        let running = RunningScript::default();
        assert_eq!(running.kill(running.look()), Err(Unkillable::Over));
        running.begin(false);
        let first = running.look();
        running.end();
        assert_eq!(running.kill(first), Err(Unkillable::Over));
        running.begin(false);
        assert_eq!(running.kill(first), Err(Unkillable::Over));
        assert!(!running.is_killed(), "the second was hit");
        assert_eq!(running.kill(running.look()), Ok(()));
        assert!(running.is_killed());
        running.end();
        running.begin(false);
        assert!(!running.is_killed(), "nor does the third inherit it");
        let third = running.look();
        running.note_write();
        assert_eq!(running.kill(third), Err(Unkillable::Wrote));
    }
}
