//! State that all threads share that run commands: the keyspace, the settings, the registries, the mailboxes.
//!
//! Must not know: sockets, and how a command runs.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
};

use redline_keyspace::{
    Keyspace, Waiter,
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
    pubsub::{Delivery, PubSub, Transit},
    rename_command::Names,
    running_script::RunningScript,
    settings::{Published, Settings},
    stats::ExecutorStats,
    tracking::{Invalidation, Redirected, Tracking},
};

/// Message to the thread of an executor, about clients of its own.
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
    /// Somebody has ended this client's wait for keys; the reply, if it was served.
    WaitEnded(Arc<Waiter>, Outcome),
    /// CLIENT KILL and the like: close this client's connection.
    Kill(Token),
    /// A script has passed the busy threshold: clients that were suspended because of it are answered.
    ScriptBusy,
    /// CLIENT UNPAUSE: clients that were suspended by CLIENT PAUSE go on.
    Resume,
}

/// The way to the thread of an executor.
#[derive(Clone)]
pub struct Mailbox(Arc<dyn Fn(Message) + Send + Sync>);

impl Mailbox {
    /// One whose messages are given to `send`, which may be called on any thread and with stripes held, and must not wait.
    pub fn new(send: impl Fn(Message) + Send + Sync + 'static) -> Mailbox {
        Mailbox(Arc::new(send))
    }

    /// Sends a message.
    pub fn send(&self, message: Message) {
        (self.0)(message);
    }
}

/// An executor, as other threads know it.
pub struct ExecutorHandle {
    /// Its mailbox.
    pub mailbox: Mailbox,
    /// Its counters.
    pub stats: Arc<ExecutorStats>,
    /// Published messages on their way to its clients.
    pub transit: Arc<Transit>,
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
pub struct Engine {
    /// The data.
    pub keyspace: Keyspace,
    /// The settings that commands go by.
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
    /// Calls that took long or moved much.
    pub command_logs: CommandLogs,
    /// The latency monitor.
    pub latency_events: Events,
    /// How often the counters were reset. Published with an epoch of the settings.
    pub stats_epoch: AtomicU64,
    /// DEBUG SET-DISABLE-DENY-SCRIPTS: scripts may call what only looks, though its row denies it.
    pub scripts_may_look: AtomicBool,
    /// The calls that CLIENT PAUSE holds back. Published with an epoch of the settings.
    pub pause: Mutex<Option<Pause>>,
    /// Clients that wait for keys and not for ever.
    pub timed_waits: AtomicU64,
    /// Garbage that was handed over and is not yet freed.
    pub backlog: Backlog,
    chores: Mutex<mpsc::Sender<Chore>>,
    clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    next_client_id: AtomicU64,
    executors: OnceLock<Box<[ExecutorHandle]>>,
}

impl Engine {
    /// Everything but the executors, which come with [`Engine::set_executors`]. Garbage goes to `chores`.
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
            timed_waits: AtomicU64::new(0),
            backlog: Backlog::default(),
            chores: Mutex::new(chores),
            clients: Mutex::new(BTreeMap::new()),
            next_client_id: AtomicU64::new(1),
            executors: OnceLock::new(),
        }
    }

    /// To be called once, before the first executor runs.
    pub fn set_executors(&self, executors: Box<[ExecutorHandle]>) {
        assert!(
            self.executors.set(executors).is_ok(),
            "the executors are set once"
        );
    }

    /// All executors, by number.
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

    /// A new client id.
    pub fn next_client_id(&self) -> u64 {
        self.next_client_id.fetch_add(1, Ordering::Relaxed)
    }

    /// All clients, by id: a leaf among the locks.
    pub fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientInfo>>> {
        self.clients.lock().expect("no panic under the clients")
    }

    /// The clients now, by ascending id. Those that have been killed are gone for everybody, though their connections may
    /// not have been closed yet.
    pub fn client_infos(&self) -> Vec<Arc<ClientInfo>> {
        let clients = self.clients();
        let infos = clients.values();
        let there = infos.filter(|info| !info.killed.load(Ordering::Acquire));
        there.cloned().collect()
    }

    /// Where to reach this client.
    pub fn token_of(&self, id: u64) -> Option<Token> {
        let clients = self.clients();
        clients.get(&id).map(|info| info.token())
    }

    /// Marks a client as killed and tells its executor's thread. When this returns, none of its commands begins.
    pub fn kill(&self, info: &ClientInfo) {
        info.killed.store(true, Ordering::Release);
        info.wait.kill();
        // Read once: it may be moving to another executor, and the old place sends this on, but only what names it.
        let token = info.token();
        self.send(token, Message::Kill(token));
    }

    /// Hands work to the thread behind the commands.
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

/// Wakes suspended clients through the mailboxes of their executors. Made before the executors are.
#[derive(Clone, Default)]
pub struct Bell(Arc<OnceLock<Vec<Mailbox>>>);

impl Bell {
    /// To be called once, before the first executor runs.
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
