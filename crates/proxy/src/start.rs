//! Creates listeners, workers and signals, and waits for the end. Must not know the configuration's form.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use redline_net::http::Responder;
use redline_net::supervisor::{self, ProcessState, Reporter};
use redline_net::{Listener, Mailbox, Sender, Signal, Signals, clock, error_text, limits, thread};
use redline_proxy_core::scripts::Scripts;

use crate::access::Identities;
use crate::admission::Traffic;
use crate::cluster_view::ClusterView;
use crate::command_names::Names;
use crate::control::Reload;
use crate::host::{Process, WorkerHandle};
use crate::observability::{Observations, log, metrics};
use crate::published::Published;
use crate::report::Report;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::tls_config::Doors;
use crate::worker::{Start, WAKER_TOKEN, Worker, poller};

/// Largest number of connections that wait to be accepted, if the system allows it (`net.core.somaxconn`). A connection
/// beyond it retries after a second or more, and many come at once when processes restart.
pub const BACKLOG: u32 = 65_535;
/// Number of descriptors beside those of clients, if the limit allows it; else a quarter of the limit.
const DESCRIPTORS_SPARE: u64 = 1024;

/// The parts that a proxy is made from.
pub struct Setup {
    /// The listeners, and the numbers of their doors; at least one.
    pub listeners: Vec<(Arc<Listener>, u16)>,
    /// Settings of each listener for the connections that it accepts.
    pub doors: Arc<Doors>,
    /// Number of workers; at least one.
    pub threads: usize,
    /// Limits and time-outs.
    pub settings: Settings,
    /// The routing table.
    pub routes: Arc<Published>,
    /// The queue for workers' reports about servers.
    pub reports: Option<Sender<Report>>,
    /// The entry for another configuration.
    pub reload: Option<Arc<Reload>>,
    /// The users; none: every client may call everything.
    pub identities: Option<Arc<Identities>>,
    /// Injected faults, and copies for other pools.
    pub traffic: Traffic,
    /// Renamed commands, and commands that the table does not have.
    pub names: Names,
    /// The answers to CLUSTER; none: those of a server without a cluster.
    pub cluster_view: Option<ClusterView>,
    /// Counters and logs, for as many workers.
    pub observations: Observations,
    /// The responder for Prometheus.
    pub metrics: Option<Responder>,
}

/// Runs until SIGTERM or SIGINT.
pub fn run(mut setup: Setup) -> io::Result<()> {
    let threads = setup.threads.max(1);
    leave_descriptors(&mut setup.settings);
    redline_alloc::start()?;
    let signals = Signals::install(&[Signal::Terminate, Signal::Interrupt, Signal::Hangup])?;
    let mut parts = Vec::with_capacity(threads);
    for _ in 0..threads {
        let mut poller = poller()?;
        let mailbox = Mailbox::new(poller.waker(WAKER_TOKEN)?);
        parts.push((poller, mailbox));
    }
    let shared = Arc::new(Shared {
        settings: setup.settings,
        identities: setup.identities,
        traffic: setup.traffic,
        names: setup.names,
        cluster_view: setup.cluster_view,
        scripts: Scripts::default(),
        port: setup
            .listeners
            .iter()
            .find_map(|(listener, _)| listener.port())
            .unwrap_or(0),
        workers: threads,
        observations: setup.observations,
    });
    let process = Arc::new(Process {
        routes: setup.routes,
        reports: setup.reports,
        reload: setup.reload,
        doors: setup.doors,
        workers: parts
            .iter()
            .map(|(_, mailbox)| WorkerHandle {
                mailbox: mailbox.sender(),
                clients: AtomicUsize::new(0),
                ticks: AtomicU64::new(0),
            })
            .collect(),
        next_client: AtomicU64::new(1),
        clients: Mutex::default(),
        drains: AtomicBool::new(false),
        began_s: clock::wall_ms() / 1000,
    });
    if let Some(responder) = setup.metrics {
        metrics::start(responder, &shared, &process)?;
    }
    let mut listeners = Some(setup.listeners);
    let mut signals = Some(signals);
    let mut handles = Vec::with_capacity(threads);
    for (number, (poller, mailbox)) in parts.into_iter().enumerate() {
        let start = Start {
            number,
            shared: Arc::clone(&shared),
            process: Arc::clone(&process),
            poller,
            mailbox,
            listeners: listeners.take().unwrap_or_default(),
            signals: signals.take(),
        };
        let run = move || Worker::new(start).run();
        handles.push(spawn(&format!("proxy-{number}"), run)?);
    }
    let reporter = Reporter::start(last_words, {
        let process = Arc::clone(&process);
        move || state_of(&process)
    })?;
    told(supervisor::ready(READY));
    for handle in handles {
        handle
            .join()
            .expect("a thread that panics ends the process");
    }
    drop(reporter);
    Ok(())
}

/// Status while connections are accepted.
pub const READY: &str = "Ready to accept connections";
/// Status while it drains.
pub const DRAINING: &str = "Draining";

/// Logs why the supervisor was not notified, if so. Without a supervisor there is nothing to log.
pub fn told(notified: io::Result<bool>) {
    if let Err(error) = notified {
        log::warning(&format!(
            "systemd supervision error: sd_notify: {}",
            error_text(&error)
        ));
    }
}

/// Returns the proxy's state for its supervisor.
fn state_of(process: &Process) -> ProcessState {
    let clients = process.client_count();
    let is_draining = process.drains.load(Ordering::Relaxed);
    let doing = if is_draining { DRAINING } else { READY };
    ProcessState {
        status: format!("{doing}: {clients} clients"),
        needs_time: is_draining,
        turns: process.ticks(),
    }
}

/// Starts a thread. If it panics, the process ends: a proxy without one of its workers, or with a fixed routing table,
/// would still accept clients, and its supervisor would not restart it.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::spawn(name, last_words, body)
}

/// Logs that a thread has panicked.
fn last_words() {
    log::error("a thread of the proxy has panicked, the process ends");
    log::flush();
}

/// Lowers the limit of clients if the system allows fewer descriptors: without any left, no server could be reached.
fn leave_descriptors(settings: &mut Settings) {
    let wanted = (settings.clients_max as u64).saturating_add(DESCRIPTORS_SPARE);
    let Ok(raised) = limits::raise_open_files(wanted) else {
        return;
    };
    let spare = DESCRIPTORS_SPARE.min(raised.granted / 4);
    let allowed = usize::try_from(raised.granted - spare).unwrap_or(usize::MAX);
    if allowed < settings.clients_max && settings.clients_max < usize::MAX {
        log::warning(&format!(
            "limits.clients is {}, but the system allows only {} open files: at most {allowed} clients are accepted",
            settings.clients_max, raised.granted
        ));
    }
    settings.clients_max = settings.clients_max.min(allowed);
}
