//! Makes everything and waits for the end: listeners, workers, signals. Must not know how anything is configured.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use redline_net::http::Responder;
use redline_net::{Listener, Mailbox, Sender, Signal, Signals, clock, limits, thread};

use crate::access::Identities;
use crate::admission::Traffic;
use crate::cluster_view::ClusterView;
use crate::command_names::Names;
use crate::control::Reload;
use crate::observability::{Seen, log, metrics};
use crate::published::Published;
use crate::report::Report;
use crate::scripts::Scripts;
use crate::settings::Settings;
use crate::tls_config::Doors;
use crate::worker::{Shared, Start, WAKER_TOKEN, Worker, poller};

/// Connections that may wait to be accepted, if the system lets so many (`net.core.somaxconn`). Who finds no room waits a second
/// and more before it tries again, and many come at once where processes begin anew.
pub const BACKLOG: u32 = 65_535;
/// Descriptors beside those of clients, if there may be so many; else a quarter of what there is.
const DESCRIPTORS_SPARE: u64 = 1024;

/// The parts that a proxy is made from.
pub struct Setup {
    /// Where clients come, and the numbers of their doors; at least one.
    pub listeners: Vec<(Listener, u16)>,
    /// Settings of each listener for the connections that it accepts.
    pub doors: Arc<Doors>,
    /// Workers; at least one.
    pub threads: usize,
    /// Limits and time-outs.
    pub settings: Settings,
    /// The routing table.
    pub routes: Arc<Published>,
    /// Where workers report what happens to servers.
    pub reports: Option<Sender<Report>>,
    /// How another configuration comes in.
    pub reload: Option<Arc<Reload>>,
    /// The users; none: every client may do everything.
    pub identities: Option<Arc<Identities>>,
    /// Faults on purpose, and copies for other pools.
    pub traffic: Traffic,
    /// Commands under other names, and such that the table does not have.
    pub names: Names,
    /// How CLUSTER is answered; none: as a server that is in no cluster does.
    pub cluster_view: Option<ClusterView>,
    /// Counters and logs, of as many workers.
    pub seen: Seen,
    /// Where Prometheus asks.
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
        routes: setup.routes,
        settings: setup.settings,
        reports: setup.reports,
        reload: setup.reload,
        identities: setup.identities,
        doors: setup.doors,
        traffic: setup.traffic,
        names: setup.names,
        cluster_view: setup.cluster_view,
        workers: parts
            .iter()
            .map(|(_, mailbox)| (mailbox.sender(), AtomicUsize::new(0)))
            .collect(),
        next_client: AtomicU64::new(1),
        clients: Mutex::default(),
        scripts: Scripts::default(),
        began_s: clock::wall_ms() / 1000,
        port: setup
            .listeners
            .iter()
            .find_map(|(listener, _)| listener.port())
            .unwrap_or(0),
        seen: setup.seen,
    });
    if let Some(responder) = setup.metrics {
        metrics::start(responder, &shared)?;
    }
    let mut listeners = Some(setup.listeners);
    let mut signals = Some(signals);
    let mut handles = Vec::with_capacity(threads);
    for (number, (poller, mailbox)) in parts.into_iter().enumerate() {
        let start = Start {
            number,
            shared: Arc::clone(&shared),
            poller,
            mailbox,
            listeners: listeners.take().unwrap_or_default(),
            signals: signals.take(),
        };
        let run = move || Worker::new(start).run();
        handles.push(spawn(&format!("proxy-{number}"), run)?);
    }
    for handle in handles {
        handle
            .join()
            .expect("a thread that panics ends the process");
    }
    Ok(())
}

/// Starts a thread. If it panics, the process ends: a proxy without one of its workers, or whose routing table stays
/// as it is, still takes clients, and whoever looks after it does not start it anew.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let last_words = || {
        log::error("a thread of the proxy has panicked, the process ends");
        log::flush();
    };
    thread::spawn(name, last_words, body)
}

/// Lets in fewer clients where the system allows fewer descriptors: without any left, no server could be reached.
fn leave_descriptors(settings: &mut Settings) {
    let wanted = (settings.clients_max as u64).saturating_add(DESCRIPTORS_SPARE);
    let Ok(raised) = limits::raise_open_files(wanted) else {
        return;
    };
    let spare = DESCRIPTORS_SPARE.min(raised.granted / 4);
    let allowed = usize::try_from(raised.granted - spare).unwrap_or(usize::MAX);
    if allowed < settings.clients_max && settings.clients_max < usize::MAX {
        log::warning(&format!(
            "limits.clients is {}, but the system allows only {} open files: at most {allowed} clients are let in",
            settings.clients_max, raised.granted
        ));
    }
    settings.clients_max = settings.clients_max.min(allowed);
}
