//! Start and end of a server: listeners, workers, the reaper thread.
//!
//! Must not know: the syntax of its settings.

use std::{
    fmt, mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering, mpsc},
    thread::JoinHandle,
};

use redline_keyspace::{Keyspace, journal::Stream};
use redline_net::http::{DESCRIPTORS, Responder};
use redline_net::{
    Endpoint, Listener, Mailbox, NetError, PeerAddr, Poller, Signal, Signals, UnixAccess, Waker,
    clock, cpu, limits, process,
    supervisor::Reporter,
    thread,
    tls::{ServerTls, TlsError},
};
use redline_table::{Heap, heap};

use crate::{
    cluster::{self, Cluster},
    following, log,
    persistence::{self, Persistence},
    service::{Service, apply_oom_score},
    settings::{Published, Settings},
    shared::{Message, Shared, TcpPort, Turning, WorkerHandle},
    site::Pages,
    users,
    worker::{Start, Worker},
};
use redline_engine::{Engine, ExecutorHandle, caller::Token, chores::Chore, engine::Bell};

/// Returns the number of descriptors needed beside clients: as many as Redis for up to four workers.
pub(crate) fn reserved_descriptors(settings: &Settings, workers: usize) -> u64 {
    let metrics = match settings.metrics_port {
        Some(_) => DESCRIPTORS + settings.metrics_bind.len() as u64,
        None => 0,
    };
    (16 + 4 * workers as u64).max(32) + metrics
}

/// Number of events that one wait of a worker reports.
const EVENTS_MAX: usize = 1024;
/// Number of connections that may wait at the metrics' listeners.
const METRICS_BACKLOG: u32 = 64;

/// Least limit on addresses (`ulimit -v`) to start with: four times the need of a small keyspace, since each of its
/// ranges takes a quarter of the limit.
const ADDRESSES_BYTES_MIN: usize = 512 << 20;

/// A running server. Dropping it stops it.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    reaper: Option<JoinHandle<()>>,
    files: Option<JoinHandle<()>>,
    disk: Option<JoinHandle<()>>,
    metrics: Option<Metrics>,
    /// Reports to the supervisor, until all else has ended.
    reporter: Option<Reporter>,
    /// Signals, read by the first worker. They are received until all workers have ended: a further one must not kill
    /// the process during its shutdown.
    _signals: Option<Arc<Signals>>,
}

/// The thread that serves metrics.
struct Metrics {
    port: u16,
    listening: Vec<String>,
    waker: Waker,
    thread: JoinHandle<()>,
}

/// A process that has a port.
#[derive(Debug)]
pub struct Holder {
    pid: u32,
    name: String,
}

impl Holder {
    /// Returns the process that listens on a port of this machine, on any address.
    fn of(port: u16) -> Option<Holder> {
        let local = [
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
        ];
        let pid = local
            .into_iter()
            .find_map(|address| process::listening_at(&Endpoint::Tcp(address)).ok()?)?;
        let name = process::name_of(pid).unwrap_or_default();
        Some(Holder { pid, name })
    }
}

/// Reason why a server did not start. One line, which names the cause.
#[derive(Debug)]
pub enum StartError {
    /// A unix socket cannot be listened on.
    Listen(NetError),
    /// A port cannot be listened on.
    Port {
        /// The port.
        port: u16,
        /// tcp, tls or metrics.
        protocol: &'static str,
        /// The address and the reason.
        error: NetError,
        /// The process that has the port, if it can be seen.
        holder: Option<Holder>,
    },
    /// A certificate, a cipher, or another part of TLS is wrong.
    Tls(TlsError),
    /// The limit on open files is too low: the limit, and the number needed.
    Descriptors(u64, u64),
    /// The limit on addresses is too low: the limit in bytes.
    Addresses(usize),
    /// Another call of the operating system failed.
    System(&'static str, std::io::Error),
    /// The users are wrong, as the configuration or the file defines them.
    Users(String),
    /// The files of the data cannot be used.
    Files(String),
    /// The cluster cannot be taken up.
    Cluster(String),
    /// There is no address to listen on.
    NoListener,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(error) => write!(f, "Could not listen on {error}"),
            StartError::Port {
                port,
                protocol,
                error,
                holder,
            } => {
                // Whoever starts servers looks for these words, to try another port.
                write!(
                    f,
                    "Failed listening on port {port} ({protocol}), aborting: {error}"
                )?;
                match holder {
                    Some(Holder { pid, name }) => write!(f, " (process {pid}, {name}, has it)"),
                    None => Ok(()),
                }
            }
            StartError::Tls(error) => write!(f, "Failed to configure TLS: {error}"),
            StartError::Descriptors(limit, needed) => write!(
                f,
                "Your current 'ulimit -n' of {limit} is not enough for the server to start. Please increase your open file limit to at least {needed}. Exiting."
            ),
            StartError::Addresses(limit) => write!(
                f,
                "Your current 'ulimit -v' of {} kB is not enough for the server to start. Please increase your limit on address space to at least {} kB. Exiting.",
                limit >> 10,
                ADDRESSES_BYTES_MIN >> 10
            ),
            StartError::System(what, error) => write!(f, "{what}: {error}"),
            StartError::Users(why) | StartError::Files(why) | StartError::Cluster(why) => {
                f.write_str(why)
            }
            StartError::NoListener => f.write_str(
                "nothing to listen on: port and tls-port are 0 and there is no unixsocket",
            ),
        }
    }
}

impl std::error::Error for StartError {}

/// Source of the settings, and the process around the server.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// Path of the configuration file.
    pub config_file: Option<PathBuf>,
    /// The process, if it is the server's own.
    pub service: Option<Service>,
}

impl Server {
    /// Starts the workers. `signals`: SIGTERM and SIGINT stop the server, a further SIGINT ends the process, SIGHUP has
    /// certificates read again (not when embedded in another program).
    pub fn start(
        mut settings: Settings,
        origin: Origin,
        signals: bool,
    ) -> Result<Server, StartError> {
        let wanted = [Signal::Terminate, Signal::Interrupt, Signal::Hangup];
        let signals = signals.then(|| Signals::install(&wanted).map(Signals::insistently));
        let signals = signals.transpose();
        let signals = signals
            .map_err(|e| StartError::System("signals", e))?
            .map(Arc::new);
        let workers = worker_count(&settings);
        cluster::check_settings(&settings).map_err(StartError::Cluster)?;
        cluster::adjust_settings(&mut settings);
        raise_descriptor_limit(&mut settings, workers)?;
        keep_within_addresses(&mut settings)?;
        // A failure is logged; it does not prevent the start.
        let _ = apply_oom_score(&settings.service);
        let users = users::users_at_start(&settings).map_err(StartError::Users)?;
        settings.acl = Arc::new(users);
        let tls = settings
            .tls
            .port
            .map(|_| ServerTls::new(&settings.tls.options()));
        let tls = tls.transpose().map_err(StartError::Tls)?;
        let listeners: Vec<Arc<Listener>> = listen(&settings)?.into_iter().map(Arc::new).collect();
        let responder = metrics_responder(&settings)?;
        let bell = Bell::default();
        let (chores, todo) = mpsc::channel();
        let databases = settings.databases as usize;
        let node = cluster_node(&mut settings, &listeners)?;
        let mut keyspace = match workers {
            1 => Keyspace::of_one_thread(databases, Box::new(bell.clone())),
            _ => Keyspace::new(databases, Box::new(bell.clone())),
        };
        if let Some(node) = &node {
            keyspace = keyspace.of_cluster();
            node.begin_to_serve(&mut keyspace);
        }
        apply_to_keyspace(&keyspace, &settings);
        // The working directory may change before the file is read.
        let absolute = |path: &String| std::path::absolute(path).unwrap_or_else(|_| path.into());
        let unixsocket = settings.unixsocket.as_ref().map(absolute);
        let started_us = clock::wall_us();
        let (persistence, todo_files) = Persistence::new(started_us / 1_000_000);
        let shared = Arc::new(Shared::new(
            Engine::new(
                keyspace,
                settings.engine.clone(),
                settings.names.clone(),
                chores,
            ),
            Published::new(settings),
            random_id(),
            started_us,
            origin,
            persistence,
            node,
        ));
        cluster::adopt(&shared);
        shared.tls.replace(tls);
        for which in TcpPort::ALL {
            shared.set_port(which, &listeners);
        }
        shared.show_title();
        let listening = in_words(&listeners, unixsocket.as_deref());
        let _ = shared.listening.set(listening);
        let starts = prepare_workers(&shared, &bell, workers, listeners, signals.clone())?;
        redline_alloc::start().map_err(|error| StartError::System("thread", error))?;
        let reaper = spawn("reaper", {
            let shared = shared.clone();
            move || reap(&shared, &todo)
        })?;
        shared.set_this();
        let files = spawn("files", {
            let shared = shared.clone();
            move || persistence::write_files(&shared, &todo_files.snapshots)
        })?;
        let disk = spawn("disk", {
            let shared = shared.clone();
            move || persistence::append::run_jobs(&shared, &todo_files.jobs)
        })?;
        persistence::loading::begin(&shared)?;
        cluster::etcd::begin(&shared)?;
        let threads = spawn_workers(&shared, starts)?;
        let service = shared.origin.service.as_ref();
        let reporter = service.map(|service| service.report(&shared)).transpose()?;
        let reporter = reporter.flatten();
        let metrics = responder
            .map(|responder| start_metrics(&shared, responder))
            .transpose()?;
        Ok(Server {
            shared,
            threads,
            reaper: Some(reaper),
            files: Some(files),
            disk: Some(disk),
            metrics,
            reporter,
            _signals: signals,
        })
    }

    /// Waits until the data is loaded, and returns true; false: the server ends before. Until then clients get -LOADING.
    pub fn wait_until_loaded(&self) -> bool {
        self.shared.persistence.loading.wait()
    }

    /// Returns the TCP port that it listens on; 0: none.
    pub fn port(&self) -> u16 {
        self.shared.bound_port(TcpPort::Plain)
    }

    /// Returns the port with TLS; 0: none.
    pub fn tls_port(&self) -> u16 {
        self.shared.bound_port(TcpPort::Tls)
    }

    /// Returns the port of the metrics; 0: none.
    pub fn metrics_port(&self) -> u16 {
        self.metrics.as_ref().map_or(0, |metrics| metrics.port)
    }

    /// Returns the addresses at which metrics can be read, in words.
    pub fn metrics_listening(&self) -> &[String] {
        self.metrics
            .as_ref()
            .map_or(&[], |metrics| metrics.listening.as_slice())
    }

    /// Returns the addresses that it listens on, in words.
    pub fn listening(&self) -> &[String] {
        self.shared.listening.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the keyspace, for what reads its journal inside the process.
    pub fn keyspace(&self) -> &Keyspace {
        &self.shared.keyspace
    }

    /// Attaches a stream to the keyspace's journal; returns the number after which it begins. A worker does it, since with
    /// one worker no other thread may take stripes.
    ///
    /// # Panics
    ///
    /// If the server ends meanwhile, or if there is a stream already.
    pub fn attach_stream(&self, stream: Box<dyn Stream>) -> u64 {
        let (tell, told) = mpsc::channel();
        attach_on_worker(&self.shared, stream, tell);
        told.recv().expect("the server runs")
    }

    /// Reports that whoever takes the journal's stream has all records up to this one: replies that waited for it leave.
    pub fn release_replies(&self, synced: u64) {
        self.shared.release_replies(synced);
    }

    /// Reports that replies need not wait for the journal any more.
    pub fn release_all_replies(&self) {
        self.shared.release_all_replies();
    }

    /// Returns the number of workers.
    pub fn workers(&self) -> usize {
        self.shared.workers().len()
    }

    /// Returns the number of the last record of the journal whose effect the newest snapshot has, be it under way or
    /// written; 0 before the first. For tests that compare files with the journal.
    pub fn snapshot_record(&self) -> u64 {
        self.shared.persistence.last_record()
    }

    /// Requests the stop; [`Server::join`] waits for it.
    pub fn stop(&self) {
        crate::stop_workers(&self.shared);
    }

    /// Waits until it has stopped, by [`Server::stop`], a signal or SHUTDOWN.
    pub fn join(mut self) {
        self.wait();
    }

    fn wait(&mut self) {
        for thread in self.threads.drain(..) {
            thread
                .join()
                .expect("a thread that panics ends the process");
        }
        if let Some(metrics) = self.metrics.take() {
            metrics.waker.wake();
            let _ = metrics.thread.join();
        }
        following::end(&self.shared);
        cluster::etcd::end(&self.shared);
        if let Some(files) = self.files.take() {
            self.shared.persistence.stop_writing();
            let _ = files.join();
        }
        if let Some(disk) = self.disk.take() {
            persistence::append::end(&self.shared);
            self.shared.keyspace.journal().detach();
            self.shared.persistence.append.stop_jobs();
            let _ = disk.join();
        }
        if let Some(reaper) = self.reaper.take() {
            self.shared.chore(Chore::Stop);
            let _ = reaper.join();
        }
        self.reporter = None;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        self.wait();
    }
}

/// Takes up the node of a cluster, if the settings ask for one. With etcd the records say whom it follows.
fn cluster_node(
    settings: &mut Settings,
    listeners: &[Arc<Listener>],
) -> Result<Option<Cluster>, StartError> {
    if !settings.cluster_enabled {
        return Ok(None);
    }
    if settings.cluster_etcd.is_empty() {
        let path = Path::new(&settings.cluster_config_file);
        return Cluster::open(path).map(Some).map_err(StartError::Cluster);
    }
    let port = |which: TcpPort| {
        let mut ports = listeners.iter().filter(|listener| which.is_like(listener));
        ports.find_map(|listener| listener.port()).unwrap_or(0)
    };
    let ports = (port(TcpPort::Plain), port(TcpPort::Tls));
    let (node, primary) = cluster::entering::open(settings, ports).map_err(StartError::Cluster)?;
    settings.primary = primary;
    Ok(Some(node))
}

/// Returns the address of each listener, as people write it.
fn in_words(listeners: &[Arc<Listener>], unixsocket: Option<&Path>) -> Vec<String> {
    let addresses = listeners
        .iter()
        .filter_map(|listener| listener.local_address().ok());
    let words = addresses.map(|address| match (&address, unixsocket) {
        (PeerAddr::Unix(_), Some(path)) => path.display().to_string(),
        _ => address.to_string(),
    });
    words.collect()
}

/// Creates the parts of every worker that exist before it begins, and connects them. The first one gets the listeners
/// and the signals.
fn prepare_workers(
    shared: &Arc<Shared>,
    bell: &Bell,
    count: usize,
    mut listeners: Vec<Arc<Listener>>,
    mut signals: Option<Arc<Signals>>,
) -> Result<Vec<Start>, StartError> {
    let (mut starts, mut handles) = (Vec::new(), Vec::new());
    for number in 0..count {
        let system = |error| StartError::System("worker", error);
        let mut poller = Poller::new(EVENTS_MAX).map_err(system)?;
        let mailbox: Mailbox<Message> = Mailbox::new(poller.waker(0).map_err(system)?);
        handles.push(WorkerHandle {
            mailbox: mailbox.sender(),
            stats: Arc::default(),
            connections: 0.into(),
            load: 0.into(),
            rests: false.into(),
            turning: Turning::new(),
        });
        starts.push(Start {
            number,
            poller,
            mailbox,
            listeners: mem::take(&mut listeners),
            signals: signals.take(),
        });
    }
    let mailboxes: Vec<redline_engine::Mailbox> = handles
        .iter()
        .map(|handle| {
            let (mailbox, weak) = (handle.mailbox.clone(), Arc::downgrade(shared));
            redline_engine::Mailbox::new(move |message| match message {
                // Its thread is no worker.
                redline_engine::Message::Kill(Token::LINK) => {
                    if let Some(shared) = weak.upgrade() {
                        shared.following.kill();
                    }
                }
                message => mailbox.send(Message::Engine(message)),
            })
        })
        .collect();
    bell.set(mailboxes.clone());
    let executors = handles.iter().zip(mailboxes);
    let executors = executors.map(|(handle, mailbox)| ExecutorHandle {
        mailbox,
        stats: handle.stats.clone(),
        transit: Arc::default(),
    });
    shared.set_executors(executors.collect());
    shared.set_workers(handles.into_boxed_slice());
    Ok(starts)
}

fn spawn_workers(
    shared: &Arc<Shared>,
    starts: Vec<Start>,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let cpus = shared.settings.current().server_cpulist.clone();
    let threads = starts.into_iter().map(|start| {
        let (shared, cpus) = (shared.clone(), cpus.clone());
        spawn(&format!("worker-{}", start.number), move || {
            pin(cpus.as_deref());
            crate::worker::run(&shared, start);
        })
    });
    threads.collect()
}

/// Checks those parts of a start that open nothing: users, certificates, CPUs.
pub(crate) fn check_parts(settings: &Settings) -> Result<(), String> {
    users::users_at_start(settings)?;
    cluster::check_settings(settings)?;
    if settings.tls.port.is_some() {
        ServerTls::new(&settings.tls.options())
            .map_err(|error| StartError::Tls(error).to_string())?;
    }
    if settings.port.is_none() && settings.tls.port.is_none() && settings.unixsocket.is_none() {
        return Err(StartError::NoListener.to_string());
    }
    match settings.server_cpulist.as_deref() {
        Some(list) if cpu::parse_list(list).is_none() => Err(unknown_cpus(list)),
        _ => Ok(()),
    }
}

/// Passes the keyspace the settings that it reads by itself.
pub(crate) fn apply_to_keyspace(keyspace: &Keyspace, settings: &Settings) {
    let own = &keyspace.settings;
    own.maxmemory_bytes.store(
        within_addresses(settings.maxmemory_bytes),
        Ordering::Relaxed,
    );
    own.policy
        .store(settings.maxmemory_policy as u32, Ordering::Relaxed);
    own.samples
        .store(settings.maxmemory_samples, Ordering::Relaxed);
    own.lfu_log_factor
        .store(settings.lfu_log_factor, Ordering::Relaxed);
    own.lfu_decay_minutes
        .store(settings.lfu_decay_minutes, Ordering::Relaxed);
    own.notify.store(settings.notify.0, Ordering::Relaxed);
}

fn listen(settings: &Settings) -> Result<Vec<Listener>, StartError> {
    let mut listeners = Vec::new();
    if let Some(port) = settings.port {
        let bound = Listener::bind_tcp(&settings.bind, port, settings.tcp_backlog);
        listeners.extend(bound.map_err(|error| not_listening(port, "tcp", error))?);
    }
    if let Some(port) = settings.tls.port {
        let bound = Listener::bind_tcp(&settings.bind, port, settings.tcp_backlog);
        let bound = bound.map_err(|error| not_listening(port, "tls", error))?;
        listeners.extend(bound.into_iter().map(Listener::for_tls));
    }
    if let Some(path) = &settings.unixsocket {
        let access = UnixAccess {
            mode: (settings.unixsocketperm != 0).then_some(settings.unixsocketperm),
            group: settings.unixsocketgroup.as_deref(),
        };
        let bound = Listener::bind_unix(path, access, settings.tcp_backlog);
        listeners.push(bound.map_err(StartError::Listen)?);
    }
    if listeners.is_empty() {
        return Err(StartError::NoListener);
    }
    Ok(listeners)
}

/// Listens for readers of metrics, if configured.
fn metrics_responder(
    settings: &Settings,
) -> Result<Option<(u16, Vec<String>, Responder)>, StartError> {
    let Some(port) = settings.metrics_port else {
        return Ok(None);
    };
    let bound = Listener::bind_tcp(&settings.metrics_bind, port, METRICS_BACKLOG);
    let listeners = bound.map_err(|error| not_listening(port, "metrics", error))?;
    let port = listeners.iter().find_map(Listener::port);
    let port = port.ok_or(StartError::NoListener)?;
    let system = |error| StartError::System("metrics", error);
    let addresses = listeners.iter().filter_map(|it| it.local_address().ok());
    let listening = addresses.map(|address| address.to_string()).collect();
    let responder = Responder::new(listeners).map_err(system)?;
    for address in responder.open_addresses() {
        log::warning(&format!(
            "The metrics port {address} is open to other machines, without a password: limit metrics-bind if it need not be"
        ));
    }
    Ok(Some((port, listening, responder)))
}

fn start_metrics(
    shared: &Arc<Shared>,
    (port, listening, mut responder): (u16, Vec<String>, Responder),
) -> Result<Metrics, StartError> {
    let system = |error| StartError::System("metrics", error);
    let waker = responder.waker().map_err(system)?;
    let shared = shared.clone();
    let thread = spawn("metrics", move || {
        let is_over = || shared.stopping.load(Ordering::Acquire);
        if let Err(error) = responder.run(is_over, &mut Pages::new(shared.clone())) {
            log::warning(&format!("Metrics listener failed: {error}"));
        }
    })?;
    Ok(Metrics {
        port,
        listening,
        waker,
        thread,
    })
}

/// Returns the error for a port, with the process that has it.
fn not_listening(port: u16, protocol: &'static str, error: NetError) -> StartError {
    let is_busy = error.error.kind() == std::io::ErrorKind::AddrInUse;
    StartError::Port {
        port,
        protocol,
        error,
        holder: is_busy.then(|| Holder::of(port)).flatten(),
    }
}

/// Returns the number of workers: the configured one; else one for each CPU that they may use.
pub(crate) fn worker_count(settings: &Settings) -> usize {
    if settings.threads != 0 {
        return settings.threads;
    }
    let listed = settings.server_cpulist.as_deref().and_then(cpu::parse_list);
    let listed = listed.map_or(usize::MAX, |cpus| cpus.len());
    cpu::usable_count().min(listed)
}

/// Raises the limit on descriptors to the number that `maxclients` needs; with fewer, lowers `maxclients` and logs it.
fn raise_descriptor_limit(settings: &mut Settings, workers: usize) -> Result<(), StartError> {
    let reserved = reserved_descriptors(settings, workers);
    let wanted = settings.maxclients as u64 + reserved;
    let system = |error| StartError::System("the limit of open files", error);
    let before = limits::open_files().map_err(system)?.soft;
    let raised = limits::raise_open_files(wanted).map_err(system)?;
    let granted = raised.granted;
    if granted >= wanted {
        if granted > before {
            log::notice(&format!(
                "Increased maximum number of open files to {granted} (it was originally set to {before})."
            ));
        }
        return Ok(());
    }
    if granted <= reserved {
        return Err(StartError::Descriptors(granted, wanted));
    }
    let possible = (granted - reserved) as usize;
    log::warning(&format!(
        "You requested maxclients of {} requiring at least {wanted} max file descriptors.",
        settings.maxclients
    ));
    if let Some(error) = raised.refused {
        log::warning(&format!(
            "Server can't set maximum open files to {wanted} because of OS error: {}.",
            redline_net::error_text(&error)
        ));
    }
    log::warning(&format!(
        "Current maximum open files is {granted}. maxclients has been reduced to {possible} to compensate for low ulimit. If you need higher maxclients increase 'ulimit -n'."
    ));
    settings.maxclients = possible;
    Ok(())
}

/// Lowers `maxmemory` so that exhausted addresses give an OOM reply, where the process has a limit on them.
fn keep_within_addresses(settings: &mut Settings) -> Result<(), StartError> {
    let Some(limit) = redline_alloc::os::address_limit_bytes() else {
        return Ok(());
    };
    if limit < ADDRESSES_BYTES_MIN {
        return Err(StartError::Addresses(limit));
    }
    redline_alloc::os::share_c_heap();
    let possible = within_addresses(settings.maxmemory_bytes);
    if possible != settings.maxmemory_bytes {
        log::warning(&format!(
            "The limit on address space ('ulimit -v') is {} kB. maxmemory has been set to {possible} bytes, so that writes are refused before it is used up. If you need more memory increase 'ulimit -v' to six times as much.",
            limit >> 10
        ));
        settings.maxmemory_bytes = possible;
    }
    Ok(())
}

/// Returns the effective `maxmemory` (0: none): where the process has a limit on addresses it is three quarters of the
/// most that entries or tables may take. The last quarter is for what size classes and spans leave free.
pub(crate) fn within_addresses(maxmemory_bytes: u64) -> u64 {
    if redline_alloc::os::address_limit_bytes().is_none() {
        return maxmemory_bytes;
    }
    let possible = (heap::reserve_addresses() / 4 * 3) as u64;
    match maxmemory_bytes {
        0 => possible,
        wanted => wanted.min(possible),
    }
}

/// Binds the calling thread to these CPUs.
fn pin(cpus: Option<&str>) {
    let Some(list) = cpus else { return };
    let pinned = cpu::parse_list(list).map(|cpus| cpu::pin_current_thread(&cpus));
    if !matches!(pinned, Some(Ok(()))) {
        log::warning(&unknown_cpus(list));
    }
}

fn unknown_cpus(list: &str) -> String {
    format!("The workers cannot be kept on the CPUs '{list}'")
}

/// Number of segments per arena that [`Chore::Maintain`] makes huge pages of.
const SEGMENTS_PER_CHORE: usize = 1;

/// Frees the garbage of commands, and looks after the heap.
fn reap(shared: &Shared, todo: &mpsc::Receiver<Chore>) {
    let mut heap = Heap::new();
    while let Ok(chore) = todo.recv() {
        let size = chore.size();
        match chore {
            Chore::Drop(garbage) => drop(garbage),
            Chore::Free(flushed) => flushed.free(&shared.keyspace, &mut heap),
            Chore::Purge => redline_alloc::purge(),
            Chore::Maintain => {
                heap::maintain(SEGMENTS_PER_CHORE);
                shared.is_maintained.store(false, Ordering::Relaxed);
            }
            Chore::Stop => return,
        }
        heap.flush();
        shared
            .reaper_freed
            .fetch_add(size.objects, Ordering::Relaxed);
        shared.backlog.take_off(&size);
    }
}

pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    thread::spawn(name, last_words, body).map_err(|error| StartError::System("thread", error))
}

/// Logs that a thread has panicked.
pub(crate) fn last_words() {
    log::warning("a thread of the server has panicked, the process ends");
}

/// Returns 40 random hexadecimal digits.
pub(crate) fn random_id() -> String {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).expect("the operating system gives randomness");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a random number.
pub(crate) fn random_number() -> u64 {
    getrandom::u64().expect("the operating system gives randomness")
}

/// Has the first worker attach a stream, at once or as soon as no stripe is in use.
fn attach_on_worker(shared: &Shared, stream: Box<dyn Stream>, tell: mpsc::Sender<u64>) {
    let attach = move |worker: &mut Worker| {
        match worker.shared.keyspace.try_attach_stream(stream) {
            Ok(after) => {
                worker.pump_now();
                // The caller may have given up.
                let _ = tell.send(after);
            }
            Err(stream) => attach_on_worker(worker.shared, stream, tell),
        }
    };
    shared.workers()[0]
        .mailbox
        .send(Message::Run(Box::new(attach)));
}
