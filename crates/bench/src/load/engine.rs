//! One test: starts its threads, watches them, sums up their measurements.
//!
//! Must not know how results are printed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use redline_net::tls::ClientTls;
use redline_net::{Stream, Waker, clock, limits};

use crate::load::control::Control;
use crate::load::failure::Failure;
use crate::load::worker::{Ended, Gate, Load, Place, Progress, Shared, Worker};

/// The servers of a test, and the number and kind of the connections to them.
pub struct Plan {
    /// The servers, among which each thread's load distributes its connections; at least one.
    pub places: Vec<Place>,
    /// TLS of connections, if it is used.
    pub tls: Option<ClientTls>,
    /// Connections over all threads, at least 1.
    pub clients: usize,
    /// False if each connection sends one batch: then saving its events is not worth a call.
    pub keep_alive: bool,
}

/// Result of a test.
pub struct Outcome<L> {
    /// The load of each thread, with what it measured.
    pub loads: Vec<L>,
    /// From the first write to the last reply, or to the early end.
    pub elapsed: Duration,
    /// The reason why the test ended early, if it did.
    pub failure: Option<Failure>,
    /// The connections. Closing them makes some servers end threads, whose figures the system then drops: callers that
    /// read those drop these later.
    pub open: Vec<Stream>,
}

/// Counts so far, while a test runs.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    /// Requests answered.
    pub finished: u64,
    /// Sum of their latencies.
    pub latency_us: u64,
    /// Since the first write.
    pub elapsed: Duration,
}

/// Largest latency that is recorded.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// Returns an empty histogram: 1 us to 1 h.
pub fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, digits)
        .expect("bounds and digits are within what the histogram takes")
}

/// Raises the system's limits for this many connections and threads, or returns an error: running into the limits takes
/// long, since free ports become rare as well.
///
/// `ends` is the number of ends of each connection in this process, or the number of connections of each client.
pub fn allow_connections(clients: usize, ends: usize, threads: usize) -> Result<(), Failure> {
    let own = OWN_FILES + FILES_OF_THREAD * threads as u64;
    let connections = (clients as u64).saturating_mul(ends as u64);
    let wanted = connections.saturating_add(own + OTHER_FILES);
    let Ok(raised) = limits::raise_open_files(wanted) else {
        // Limits that are not known may suffice.
        return Ok(());
    };
    if connections.saturating_add(own) <= raised.granted {
        return Ok(());
    }
    Err(Failure::Local(format!(
        "{clients} clients need {} open files, and {} are allowed (ulimit -n).",
        connections.saturating_add(own),
        raised.granted
    )))
}

/// Descriptors beside those of connections: of other files, and those without which nothing runs.
const OTHER_FILES: u64 = 1100;
const OWN_FILES: u64 = 16;
/// A poller, its waker, its alarm.
const FILES_OF_THREAD: u64 = 3;

/// Observes a running test.
pub trait Observer {
    /// Returns the time of the next observation, if there is one.
    fn next(&self) -> Option<Instant>;
    /// Observes, at that time or a little later.
    fn observe(&mut self, totals: &Totals) -> Result<(), Failure>;
}

/// The code that a thread of a test runs.
pub trait Engine: Send {
    /// The load, with its measurements.
    type Load: Send;
    /// Returns a handle that makes the thread check [`Shared::stop`].
    fn waker(&mut self) -> std::io::Result<Waker>;
    /// Opens `clients` connections, calls `connected`, waits at the gate, and sends until it is done.
    fn run(self, clients: usize, connected: impl FnOnce()) -> Ended<Self::Load>;
}

impl<L: Load + Send> Engine for Worker<'_, L> {
    type Load = L;

    fn waker(&mut self) -> std::io::Result<Waker> {
        Worker::waker(self)
    }

    fn run(self, clients: usize, connected: impl FnOnce()) -> Ended<L> {
        Worker::run(self, clients, connected)
    }
}

impl Plan {
    /// Returns the state that the threads of a test share, and their number of connections.
    pub fn share(self) -> (Shared, usize) {
        let shared = Shared {
            places: self.places,
            tls: self.tls,
            keep_alive: self.keep_alive,
            stop: AtomicBool::new(false),
            gate: Gate::default(),
        };
        (shared, self.clients)
    }
}

/// Runs one test, a thread for each load, to its end, or to its failure, which the outcome has. There must be at least
/// one load, and not more than clients.
pub fn run<L: Load + Send>(
    control: &mut Control,
    plan: Plan,
    loads: Vec<L>,
    observer: &mut dyn Observer,
) -> Result<Outcome<L>, Failure> {
    let (shared, clients) = plan.share();
    let progress: Vec<Progress> = loads.iter().map(|_| Progress::default()).collect();
    let workers = progress.iter().zip(loads);
    let workers = workers.map(|(progress, load)| Worker::new(&shared, progress, load));
    let workers: std::io::Result<Vec<_>> = workers.collect();
    let workers = workers.map_err(|error| Failure::local("epoll", &error))?;
    run_engines(control, &shared, &progress, workers, clients, observer)
}

/// Runs one test with existing engines: each publishes in the progress at its index.
pub fn run_engines<E: Engine>(
    control: &mut Control,
    shared: &Shared,
    progress: &[Progress],
    mut engines: Vec<E>,
    clients: usize,
    observer: &mut dyn Observer,
) -> Result<Outcome<E::Load>, Failure> {
    let threads = engines.len();
    let wakers: std::io::Result<Vec<Waker>> = engines.iter_mut().map(Engine::waker).collect();
    let wakers = wakers.map_err(|error| Failure::local("eventfd", &error))?;
    redline_alloc::start().map_err(|error| Failure::local("Could not start a thread", &error))?;
    thread::scope(|scope| {
        let (sender, messages) = mpsc::channel();
        let mut overseer = Overseer {
            shared,
            progress,
            wakers: &wakers,
            messages,
            running: 0,
            connecting: threads,
            ended: Vec::with_capacity(threads),
            failure: None,
        };
        for (index, engine) in engines.into_iter().enumerate() {
            let line = Line {
                messages: sender.clone(),
                main: control.waker(),
            };
            // Connections are distributed in turn, the first ones to the first threads.
            let clients = clients / threads + usize::from(index < clients % threads);
            let spawned = thread::Builder::new()
                .name(format!("load-{index}"))
                .spawn_scoped(scope, move || {
                    let ended = engine.run(clients, || line.send(Message::Connected));
                    line.send(Message::Done(Box::new(ended)));
                });
            match spawned {
                Ok(_) => overseer.running += 1,
                Err(error) => {
                    overseer.end(Failure::local("Could not start a thread", &error));
                    break;
                }
            }
        }
        overseer.oversee(control, observer);
        Ok(overseer.outcome())
    })
}

/// Message from a worker to the main thread.
enum Message<L> {
    Connected,
    Done(Box<Ended<L>>),
    /// The thread panicked: the scope raises the panic when all threads have ended.
    Panicked,
}

/// A worker's channel to the main thread.
struct Line<L> {
    messages: mpsc::Sender<Message<L>>,
    main: Waker,
}

impl<L> Line<L> {
    fn send(&self, message: Message<L>) {
        // The main thread receives until the last worker has ended.
        let _ = self.messages.send(message);
        self.main.wake();
    }
}

impl<L> Drop for Line<L> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.send(Message::Panicked);
        }
    }
}

/// The main thread's view of a running test.
struct Overseer<'a, L> {
    shared: &'a Shared,
    progress: &'a [Progress],
    wakers: &'a [Waker],
    messages: mpsc::Receiver<Message<L>>,
    /// Number of threads that have not ended.
    running: usize,
    /// Number of threads whose connections are not established yet.
    connecting: usize,
    ended: Vec<Ended<L>>,
    failure: Option<Failure>,
}

impl<L> Overseer<'_, L> {
    fn oversee(&mut self, control: &mut Control, observer: &mut dyn Observer) {
        loop {
            while let Ok(message) = self.messages.try_recv() {
                self.take(message);
            }
            if self.running == 0 {
                return;
            }
            if control.interrupted() {
                self.end(Failure::Interrupted);
            }
            let now = Instant::now();
            let ending = self.shared.stop.load(Ordering::Relaxed);
            let next = if ending { None } else { observer.next() };
            if next.is_some_and(|next| next <= now)
                && let Err(failure) = observer.observe(&self.totals())
            {
                self.end(failure);
                continue;
            }
            let timeout = next.map(|_| {
                observer
                    .next()
                    .map_or(Duration::ZERO, |next| next - now.min(next))
            });
            if let Err(error) = control.wait(timeout) {
                self.end(Failure::local("epoll", &error));
                // Without a poller the channel is left, whose next message is the end of a worker.
                if let Ok(message) = self.messages.recv() {
                    self.take(message);
                }
            }
        }
    }

    fn take(&mut self, message: Message<L>) {
        match message {
            Message::Connected => {
                self.connecting -= 1;
                if self.connecting == 0 {
                    self.shared.gate.open();
                }
            }
            Message::Done(mut ended) => {
                self.running -= 1;
                if let Some(failure) = ended.failure.take() {
                    self.end(failure);
                }
                self.ended.push(*ended);
            }
            Message::Panicked => {
                self.running -= 1;
                self.end(Failure::Local("A load thread panicked.".into()));
            }
        }
    }

    /// Ends the test early. The first reason is kept, except that Ctrl-C replaces it, which may have ended the server as well.
    fn end(&mut self, failure: Failure) {
        if self.failure.is_none() || matches!(failure, Failure::Interrupted) {
            self.failure = Some(failure);
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.gate.open();
        for waker in self.wakers {
            waker.wake();
        }
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let mut started_ns = u64::MAX;
        for progress in self.progress {
            totals.finished += progress.finished.load(Ordering::Relaxed);
            totals.latency_us += progress.latency_us.load(Ordering::Relaxed);
            let started = progress.started_ns.load(Ordering::Relaxed);
            if started > 0 {
                started_ns = started_ns.min(started);
            }
        }
        totals.elapsed = Duration::from_nanos(clock::monotonic_ns().saturating_sub(started_ns));
        totals
    }

    fn outcome(self) -> Outcome<L> {
        let started = || self.ended.iter().filter(|ended| ended.started_ns > 0);
        let from = started().map(|ended| ended.started_ns).min().unwrap_or(0);
        let to = started().map(|ended| ended.ended_ns).max().unwrap_or(0);
        let (mut loads, mut open) = (Vec::new(), Vec::new());
        for ended in self.ended {
            loads.push(ended.load);
            open.extend(ended.open);
        }
        Outcome {
            loads,
            elapsed: Duration::from_nanos(to.saturating_sub(from)),
            failure: self.failure,
            open,
        }
    }
}
