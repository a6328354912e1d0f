//! State that all threads share that run commands: the keyspace, the settings, the registries, the mailboxes.
//!
//! Must not know: sockets, and how a command runs.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
        mpsc,
    },
};

use redline_keyspace::{
    Keyspace, Waiter,
    journal::OnDisk,
    lock::{Wake, WakeToken},
};
use redline_observe::latency::Events;
use redline_scripting::{Host, Libraries, Scripts};

use crate::{
    caller::{ClientInfo, Token},
    chores::{Backlog, Chore},
    commandlog::CommandLogs,
    executor::block::Outcome,
    monitor::{Line, Monitors},
    own_keys::OwnKeys,
    pubsub::{Delivery, PubSub, Transit},
    refusals::Refusals,
    rename_command::Names,
    running_script::RunningScript,
    settings::{Published, Settings},
    stats::ExecutorStats,
    tracking::{Invalidation, Redirected, Tracking},
};

/// Message to the thread of an executor, about its own clients.
pub enum Message {
    /// A suspended client may try again.
    Wake(Token),
    /// Something was published to these clients.
    Deliver(Delivery),
    /// Keys have changed that these clients track.
    Invalidate(Invalidation),
    /// Keys have changed that another client tracks on behalf of this one.
    Redirected(Redirected),
    /// A command has run that these clients are shown.
    Monitored(Line),
    /// The wait of a client for keys has ended; the reply, if it was served.
    WaitEnded(Arc<Waiter>, Outcome),
    /// CLIENT KILL and the like: close this client's connection.
    Kill(Token),
    /// A script has passed the busy threshold: clients that were suspended because of it get their replies.
    ScriptBusy,
    /// CLIENT UNPAUSE: clients that were suspended by CLIENT PAUSE go on.
    Resume,
    /// Clients of this executor that wait at the journal's gate may go on: see [`Executor::gate`](crate::Executor::gate).
    Released,
    /// The executor is to offer itself to the journal's pump: see [`Executor::pump_now`](crate::Executor::pump_now).
    Pump,
}

/// Mailbox of an executor's thread.
#[derive(Clone)]
pub struct Mailbox(Arc<dyn Fn(Message) + Send + Sync>);

impl Mailbox {
    /// Creates a mailbox that calls `send`, which may be called on any thread and with stripes held, and must not block.
    pub fn new(send: impl Fn(Message) + Send + Sync + 'static) -> Mailbox {
        Mailbox(Arc::new(send))
    }

    /// Sends a message.
    pub fn send(&self, message: Message) {
        (self.0)(message);
    }
}

/// An executor, as seen by other threads.
pub struct ExecutorHandle {
    /// Mailbox of the executor.
    pub mailbox: Mailbox,
    /// Counters of the executor.
    pub stats: Arc<ExecutorStats>,
    /// Published messages on their way to its clients.
    pub transit: Arc<Transit>,
}

/// The calls that CLIENT PAUSE suspends.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// End of the pause: milliseconds of the monotonic clock.
    pub end_ms: u64,
    /// True if every command is suspended, not only those that write.
    pub all: bool,
}

/// A reason to suspend calls that write for as long as it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// A replica is to come to the end of the stream, to change roles.
    Failover = 1,
    /// The server is about to end.
    Shutdown = 2,
    /// No other server has what would be written.
    Unconfirmed = 4,
}

/// See the head of the module.
pub struct Engine {
    /// The data.
    pub keyspace: Keyspace,
    /// The settings of commands.
    pub settings: Published,
    /// Subscribers of each channel.
    pub pubsub: PubSub,
    /// Clients that are notified of changed keys.
    pub tracking: Tracking,
    /// Clients in MONITOR. Published with an epoch of the settings.
    pub monitors: Monitors,
    /// Cached scripts.
    pub scripts: Scripts,
    /// Libraries of functions.
    pub libraries: Libraries,
    /// Interpreter of the libraries, made at its first use. The holder of the script mutex may take it out.
    pub function_host: Mutex<Option<Host>>,
    /// Log of denied accesses.
    pub acl_log: Mutex<redline_acl::Log>,
    /// Names by which commands are called.
    pub names: Names,
    /// The script that is running.
    pub running_script: RunningScript,
    /// Logs of slow and large calls.
    pub command_logs: CommandLogs,
    /// The latency monitor.
    pub latency_events: Events,
    /// Number of resets of the counters. Published with an epoch of the settings.
    pub stats_epoch: AtomicU64,
    /// DEBUG SET-DISABLE-DENY-SCRIPTS: scripts may call commands that only read, though their row denies it.
    pub scripts_may_look: AtomicBool,
    /// The calls that CLIENT PAUSE suspends. Published with an epoch of the settings.
    pub pause: Mutex<Option<Pause>>,
    /// Bits of [`Hold`]: who suspends calls that write, beside CLIENT PAUSE. Published likewise.
    holds: AtomicU8,
    /// Reasons to refuse calls. Published with an epoch of the settings.
    pub refusals: Refusals,
    /// Keys that a writable replica removes itself when they are due.
    pub own_keys: OwnKeys,
    /// Number of clients that wait for keys with a timeout.
    pub timed_waits: AtomicU64,
    /// Garbage that was handed over and is not yet freed.
    pub backlog: Backlog,
    chores: Mutex<mpsc::Sender<Chore>>,
    clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    next_client_id: AtomicU64,
    executors: OnceLock<Box<[ExecutorHandle]>>,
}

impl Engine {
    /// Creates everything but the executors, which come with [`Engine::set_executors`]. Garbage goes to `chores`.
    pub fn new(
        keyspace: Keyspace,
        settings: Settings,
        names: Names,
        chores: mpsc::Sender<Chore>,
    ) -> Engine {
        Engine {
            keyspace,
            settings: Published::new(settings),
            pubsub: PubSub::default(),
            tracking: Tracking::default(),
            monitors: Monitors::default(),
            scripts: Scripts::new(),
            libraries: Libraries::default(),
            function_host: Mutex::new(None),
            acl_log: Mutex::default(),
            names,
            running_script: RunningScript::default(),
            command_logs: CommandLogs::default(),
            latency_events: Events::default(),
            stats_epoch: AtomicU64::new(0),
            scripts_may_look: AtomicBool::new(false),
            pause: Mutex::new(None),
            holds: AtomicU8::new(0),
            refusals: Refusals::default(),
            own_keys: OwnKeys::default(),
            timed_waits: AtomicU64::new(0),
            backlog: Backlog::default(),
            chores: Mutex::new(chores),
            clients: Mutex::new(BTreeMap::new()),
            next_client_id: AtomicU64::new(1),
            executors: OnceLock::new(),
        }
    }

    /// Suspends calls that write, or resumes them if nobody else has them suspended.
    pub fn hold_writes(&self, hold: Hold, holds: bool) {
        let bit = hold as u8;
        let before = match holds {
            true => self.holds.fetch_or(bit, Ordering::AcqRel),
            false => self.holds.fetch_and(!bit, Ordering::AcqRel),
        };
        if (before & bit != 0) == holds {
            return;
        }
        self.settings.move_epoch();
        if before == bit {
            self.resume_all();
        }
    }

    /// Has all calls that were put aside run again; those that may not run yet are put aside once more.
    pub fn resume_all(&self) {
        for executor in self.executors() {
            executor.mailbox.send(Message::Resume);
        }
    }

    /// Returns true if somebody has calls that write suspended, beside CLIENT PAUSE.
    pub fn holds_writes(&self) -> bool {
        self.holds.load(Ordering::Acquire) != 0
    }

    /// Sets the executors. Called once, before the first executor runs.
    pub fn set_executors(&self, executors: Box<[ExecutorHandle]>) {
        assert!(
            self.executors.set(executors).is_ok(),
            "the executors are set once"
        );
    }

    /// Returns all executors, by number.
    #[inline]
    pub fn executors(&self) -> &[ExecutorHandle] {
        self.executors
            .get()
            .expect("set before the first executor runs")
    }

    /// Sends a message to the executor that a client belongs to.
    pub fn send(&self, to: Token, message: Message) {
        self.executors()[to.executor()].mailbox.send(message);
    }

    /// Returns a new client id.
    pub fn next_client_id(&self) -> u64 {
        self.next_client_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns all clients, by id: a leaf among the locks.
    pub fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientInfo>>> {
        self.clients.lock().expect("no panic under the clients")
    }

    /// Returns the clients now, by ascending id. Killed clients are not among them, though their connections may not
    /// have been closed yet.
    pub fn client_infos(&self) -> Vec<Arc<ClientInfo>> {
        let clients = self.clients();
        let infos = clients.values();
        let there = infos.filter(|info| !info.killed.load(Ordering::Acquire));
        there.cloned().collect()
    }

    /// Returns the token by which this client is reached.
    pub fn token_of(&self, id: u64) -> Option<Token> {
        let clients = self.clients();
        clients.get(&id).map(|info| info.token())
    }

    /// Marks a client as killed and notifies its executor's thread. When this returns, none of its commands begins.
    pub fn kill(&self, info: &ClientInfo) {
        info.killed.store(true, Ordering::Release);
        info.wait.kill();
        // Read once: the client may be moving to another executor, and only messages that name it are forwarded.
        let token = info.token();
        self.send(token, Message::Kill(token));
    }

    /// Reports that the journal's records up to this one are on disk: replies that have waited for it may leave. Called on any
    /// thread.
    pub fn release_replies(&self, synced: u64) {
        let gate = &self.keyspace.journal().gate;
        gate.advance(synced, &mut |number| self.tell_released(number));
    }

    /// Reports that replies need not wait for the journal any more.
    pub fn release_all_replies(&self) {
        let gate = &self.keyspace.journal().gate;
        gate.open(&mut |number| self.tell_released(number));
    }

    /// Reports how much of the journal is on disk, for those who wait in a call. One report comes after the other. Called on
    /// any thread.
    pub fn report_disk(&self, on_disk: OnDisk) {
        let gate = &self.keyspace.journal().gate;
        gate.report(on_disk, &mut |number| self.tell_released(number));
    }

    /// Reports the last record that each replica has, and the last that it has on disk, for those who wait in a call. One report
    /// comes after the other. Called on any thread.
    pub fn report_replicas(&self, acked: Vec<u64>, on_disk: Vec<u64>) {
        let gate = &self.keyspace.journal().gate;
        gate.report_replicas(acked, on_disk, &mut |number| self.tell_released(number));
    }

    /// Reports that enough other servers have the journal's records up to this one: replies that have waited for it may leave.
    /// Called on any thread.
    pub fn confirm(&self, record: u64) {
        let gate = &self.keyspace.journal().gate;
        gate.confirm(record, &mut |number| self.tell_released(number));
    }

    /// Reports that replies need not wait for other servers any more.
    pub fn confirm_all(&self) {
        let gate = &self.keyspace.journal().gate;
        gate.confirm_all(&mut |number| self.tell_released(number));
    }

    fn tell_released(&self, number: usize) {
        self.executors()[number].mailbox.send(Message::Released);
    }

    /// Hands work to the background thread.
    pub fn chore(&self, chore: Chore) {
        self.backlog.add(&chore.size());
        // A send fails only when the reaper has ended, at exit: then the memory is released with the process.
        let _ = self
            .chores
            .lock()
            .expect("no panic under the chores")
            .send(chore);
    }
}

/// Wakes suspended clients through the mailboxes of their executors. Made before the executors are.
#[derive(Clone, Default)]
pub struct Bell(Arc<OnceLock<Vec<Mailbox>>>);

impl Bell {
    /// Sets the mailboxes. Called once, before the first executor runs.
    pub fn set(&self, mailboxes: Vec<Mailbox>) {
        assert!(self.0.set(mailboxes).is_ok(), "the mailboxes are set once");
    }
}

impl Wake for Bell {
    fn wake(&self, token: WakeToken) {
        let token = Token(token);
        let mailboxes = self.0.get().expect("set before the first executor runs");
        mailboxes[token.executor()].send(Message::Wake(token));
    }
}
