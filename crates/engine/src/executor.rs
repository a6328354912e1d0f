//! An executor: runs commands for callers, on one thread.
//!
//! Everything that leaves it beside replies goes through its [`Outlet`]: the server's worker, or a test. It is a type
//! parameter, so the way of a GET is one function, whatever its surroundings.
//!
//! | file | holds |
//! |---|---|
//! | `run` | the way of a request, from its checks to its handler |
//! | `batch` | requests that run together, and the steps to their keys |
//! | `replay` | calls of a stream that another server has told, likewise |
//! | `units` | the stripes of a command, an EXEC, a script |
//! | `block` | clients that wait for keys: how they are served, how a wait ends |
//! | `access` | whether a user may make a call |
//! | `eviction`, `watch`, `figures` | eviction before writes; ends of watches; counters, logs and MONITOR |
//!
//! Must not know: sockets, files, threads.

pub mod access;
mod batch;
pub mod block;
pub mod eviction;
pub mod figures;
pub(crate) mod gate;
mod replay;
mod run;
pub mod slots;
pub mod units;
pub mod watch;

use std::sync::{Arc, atomic::Ordering};

use redline_keyspace::{Hint, Local, Waiter, journal::Queue};
use redline_resp::{Args, Blob};
use redline_scripting::Host;
use redline_spec::CommandId;

use crate::{
    caller::{Caller, EndedWatch, Token},
    engine::{Engine, Message, Pause},
    refusals::{self, Reason},
    session,
    settings::{BusyScope, Settings},
    stats::ExecutorStats,
    timing::{Timing, Used},
    tracking::{By, Changes},
};

pub use batch::Batch;
use block::{Outcome, Waits};
pub use replay::{Planned, Replay, Replayed};
pub use run::Halt;
pub(crate) use run::{count_command, runs_script};
pub use units::Compound;
pub(crate) use units::add_stripes;

/// Source of time for an executor: the machine's clocks, or those of a simulation.
pub trait Clock {
    /// Returns nanoseconds of a clock that never goes back; its zero is arbitrary.
    fn monotonic_ns(&self) -> u64;

    /// Returns milliseconds of [`Clock::monotonic_ns`].
    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ns() / 1_000_000
    }

    /// Returns the same as [`Clock::monotonic_ms`]; may be cheaper, and a few milliseconds late.
    fn monotonic_coarse_ms(&self) -> u64;

    /// Returns microseconds since 1970, of a clock that may jump.
    fn wall_us(&self) -> u64;

    /// Returns milliseconds since 1970, of a clock that may jump.
    fn wall_ms(&self) -> u64 {
        self.wall_us() / 1_000
    }

    /// Returns the CPU time that the calling thread has used so far, and how often it has slept.
    fn used(&self) -> Used;
}

/// Level of a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For developers.
    Debug,
    /// Details for operators.
    Verbose,
    /// Events of interest to operators.
    Notice,
    /// Problems that operators must know of.
    Warning,
}

/// A fault that a simulation plants, to show that it detects such faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EXEC ignores changes of watched keys.
    IgnoresWatches,
    /// The journal has the effects of calls that have waited before those of the unit that has served them.
    ReordersRecords,
    /// Clients that track keys are not notified of changes by scripts.
    LosesInvalidations,
    /// Of several clients that a unit has served, the last one is not notified.
    LosesWakeUps,
}

/// The surroundings of an executor: takes everything that leaves it beside replies, and does what needs a connection.
///
/// Functions that may run other commands are given the whole executor, of which the outlet is a part.
pub trait Outlet: Clock + Sized {
    /// A client's part of a batch.
    type Member: Member;

    /// The planted fault: none outside simulations.
    const FAULT: Option<Fault> = None;

    /// Writes a line to the log.
    fn log(level: Level, text: &str);

    /// Returns true if the parameter of that name must not be shown.
    fn is_secret_parameter(name: &[u8]) -> bool;

    /// Runs a command of the admin plane; it writes its reply to the caller.
    fn run_admin(
        executor: &mut Executor<'_, Self>,
        caller: &mut Caller,
        id: CommandId,
        args: Args<'_>,
    ) -> Result<(), Halt>;

    /// Called when the executor has taken over new settings.
    fn refresh(executor: &mut Executor<'_, Self>);

    /// Serves other clients for a moment: called from inside a script that has passed the busy threshold.
    fn turn(executor: &mut Executor<'_, Self>);

    /// Returns true if the server is shutting down; a running script ends, too.
    fn stops(&self) -> bool;

    /// Visits the callers of all clients of this executor that are not being served.
    fn for_each_caller(
        executor: &mut Executor<'_, Self>,
        visit: impl FnMut(&mut Executor<'_, Self>, &mut Caller),
    );

    /// Schedules a client of this executor, which is not being served, to be served again soon.
    fn look_again(executor: &mut Executor<'_, Self>, client: Token);

    /// Delivers messages that the caller's own command and others have published to it; they stand behind that
    /// command's reply. The caller is being served.
    fn read_own_mail(executor: &mut Executor<'_, Self>, caller: &mut Caller);

    /// Drops invalidation messages that are on their way to the caller.
    fn drop_old_invalidations(executor: &mut Executor<'_, Self>, caller: &Caller);

    /// Delivers messages to clients of this executor, and lets others do so: too many bytes are on their way.
    fn hand_out(executor: &mut Executor<'_, Self>, caller: &mut Caller);

    /// Called when the wait of a client of this executor has ended.
    fn wait_ended(executor: &mut Executor<'_, Self>, waiter: Arc<Waiter>, outcome: Outcome);

    /// Closes clients while their total memory is above its limit.
    fn evict_clients(executor: &mut Executor<'_, Self>);

    /// Keeps the requests of a member that have not run, from `first` of the batch on. `number`: its place in the group.
    fn defer(
        executor: &mut Executor<'_, Self>,
        member: &mut Self::Member,
        batch: &Batch,
        first: usize,
        number: usize,
    );

    /// Called when a caller's replies are more than [`Executor::output_watched_bytes`].
    fn limit_output(executor: &mut Executor<'_, Self>, member: &mut Self::Member);

    /// Called when FLUSHALL has emptied all databases.
    fn flushed_all(_: &mut Executor<'_, Self>) {}

    /// Returns the reason why this node does not serve a slot, in words for this caller. Asked where the keyspace is a
    /// cluster's and says so.
    fn unserved(_: &Executor<'_, Self>, _: &Caller, _slot: u16) -> slots::Unserved {
        slots::Unserved::Nobody
    }

    /// Passes a published message on to the other nodes of a cluster. Returns false if there are none that get it so.
    fn pass_on(_: &mut Executor<'_, Self>, _: Args<'_>) -> bool {
        false
    }

    /// Called when a caller waits for replicas to have this record: they are to tell how far they are.
    fn ask_replicas(_: &mut Executor<'_, Self>, _record: u64) {}
}

/// A client of a group that is served together: its caller, and the bytes of its requests.
pub trait Member {
    /// Returns the caller.
    fn caller(&self) -> &Caller;

    /// Returns the caller, the bytes that the spans of its requests refer to, and their large arguments.
    fn parts(&mut self) -> (&mut Caller, &[u8], &[Blob]);

    /// Returns the bytes and the large arguments.
    fn requests(&self) -> (&[u8], &[Blob]);

    /// Returns true if requests of it were deferred: later ones wait for them.
    fn is_deferred(&self) -> bool;
}

/// See the head of the module.
pub struct Executor<'e, O: Outlet> {
    /// State that all executors share.
    pub engine: &'e Engine,
    /// Number of the executor.
    pub number: usize,
    /// Settings as of `epoch`.
    pub settings: Arc<Settings>,
    /// Epoch of `settings`.
    pub epoch: u64,
    /// Version of the users in `settings`, as adopted by the callers.
    pub rules: u64,
    /// Local part of the keyspace's memory, randomness and counters.
    pub local: Local,
    /// Changes that the running unit has made under prefixes that clients track.
    pub changes: Changes,
    /// Counters of the executor.
    pub stats: Arc<ExecutorStats>,
    /// Wall clock: Unix time in milliseconds. Constant within a unit.
    pub now_ms: i64,
    /// Lua interpreter of the executor; taken out while a script runs.
    pub host: Option<Host>,
    /// The unit of the EXEC or script that is running.
    pub compound: Option<Box<Compound<'e>>>,
    /// Unit of the last script, which holds nothing any more, for reuse.
    pub(crate) spare_compound: Option<Box<Compound<'e>>>,
    /// Depth of nested turns inside a script's hook.
    pub depth: u32,
    /// Reply bytes of a caller above which its limits are checked before its next request.
    pub output_watched_bytes: usize,
    /// Ended watches whose stripe was in use.
    pub(crate) unwatching: Vec<EndedWatch>,
    /// Ended waits that still stand in queues whose stripe was in use.
    pub(crate) leaving: Vec<Arc<Waiter>>,
    /// Deadlines of waits for keys.
    pub waits: Waits,
    /// The calls that CLIENT PAUSE suspends.
    pub pause: Option<Pause>,
    /// True if a client is in MONITOR.
    pub(crate) monitored: bool,
    /// True if a busy script has all commands refused, as of `epoch`; see [`Executor::refuses_all`].
    busy_to_all: bool,
    /// Reasons to refuse calls, as of `epoch`.
    pub(crate) refusals: refusals::Held,
    /// True if no command may take the straight path, since a check or a monitor needs the longer one.
    pub(crate) detour: bool,
    /// True while a call runs that was checked, as those of clients are.
    pub(crate) was_let_in: bool,
    /// Timing of calls.
    pub timing: Timing,
    /// Number of the reset of the counters since which times are taken; see `Engine::stats_epoch`.
    stats_epoch: u64,
    /// Clients of the executor that wait at the journal's gate.
    pub gate: Arc<Queue>,
    /// The keys of a request of many keys.
    pub(crate) hints: Vec<Hint>,
    /// The surroundings.
    pub outlet: O,
}

impl<'e, O: Outlet> Executor<'e, O> {
    /// Creates the executor of that number; `seed` of its randomness.
    pub fn new(engine: &'e Engine, number: usize, seed: u64, outlet: O) -> Executor<'e, O> {
        let settings = engine.settings.current();
        let mut executor = Executor {
            number,
            local: Local::new(fastrand::Rng::with_seed(seed), settings.limits.clone()),
            settings,
            epoch: 0,
            rules: u64::MAX,
            changes: Changes::default(),
            stats: engine.executors()[number].stats.clone(),
            now_ms: outlet.wall_ms() as i64,
            host: None,
            compound: None,
            spare_compound: None,
            depth: 0,
            output_watched_bytes: usize::MAX,
            unwatching: Vec::new(),
            leaving: Vec::new(),
            waits: Waits::default(),
            pause: None,
            monitored: false,
            busy_to_all: false,
            refusals: refusals::Held::default(),
            detour: false,
            was_let_in: false,
            timing: Timing::default(),
            stats_epoch: u64::MAX,
            gate: engine.keyspace.journal().gate.make_queue(number),
            hints: Vec::new(),
            engine,
            outlet,
        };
        executor.refresh();
        executor
    }

    /// Reads the wall clock: once per turn of the loop, and after each step that took long.
    pub fn read_clock(&mut self) {
        self.now_ms = self.outlet.wall_ms() as i64;
        self.local.clock.now_s = (self.now_ms / 1000) as u32;
    }

    /// Takes over settings if they were published since; called before they are used.
    #[inline]
    pub fn refresh_if_changed(&mut self) {
        if self.is_behind() {
            self.refresh();
        }
    }

    /// Returns true if settings, or what goes with their epoch, were published since the executor took them over.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.engine.settings.epoch() != self.epoch
    }

    fn set_detour(&mut self) {
        self.detour =
            self.monitored || self.pause.is_some() || self.busy_to_all || self.refusals.any();
    }

    /// Returns true if a script is over its threshold: every command is refused but those that are allowed then.
    pub fn refuses_all(&self) -> bool {
        self.busy_to_all && self.engine.running_script.busy.load(Ordering::Acquire)
    }

    /// Returns true if the server follows a primary: expired keys stay until that one says that they are gone.
    #[inline]
    pub fn follows(&self) -> bool {
        self.refusals.has(Reason::Follows)
    }

    /// Returns true if expired keys stay for now: the server follows a primary, which says when they go, or nothing is to be
    /// changed, as under CLIENT PAUSE.
    pub fn keeps_expired(&self) -> bool {
        self.pause.is_some() || self.follows() || self.refusals.has(Reason::Unconfirmed)
    }

    /// Takes over settings that were published since.
    pub fn refresh(&mut self) {
        self.epoch = self.engine.settings.epoch();
        self.settings = self.engine.settings.current();
        let suspended_all = self.pause.is_some_and(|pause| pause.all);
        self.pause = self.pause_now();
        if suspended_all && self.pause.is_some_and(|pause| !pause.all) {
            // Calls that only read may wait.
            let own = &self.engine.executors()[self.number];
            own.mailbox.send(Message::Resume);
        }
        self.monitored = self.engine.monitors.some();
        self.busy_to_all = self.settings.busy_reply_scope == BusyScope::All
            && self.engine.running_script.busy.load(Ordering::Acquire);
        self.refusals = self.engine.refusals.now();
        self.local.keeps_expired = self.keeps_expired();
        self.set_detour();
        let settings = &self.settings;
        self.timing.adopt(settings, false);
        let stats_epoch = self.engine.stats_epoch.load(Ordering::Acquire);
        if self.stats_epoch != stats_epoch {
            self.stats_epoch = stats_epoch;
            self.timing.begin_anew();
        }
        self.local.limits = settings.limits.clone();
        self.local.notify = settings.notify;
        self.local.clock.lfu = settings.maxmemory_policy.is_lfu();
        self.local.clock.log_factor = settings.lfu_log_factor;
        self.local.clock.decay_minutes = settings.lfu_decay_minutes;
        self.local.clock.now_s = (self.now_ms / 1000) as u32;
        O::refresh(self);
        access::adopt_users(self);
    }

    /// Returns the reasons to refuse calls that this executor goes by.
    #[inline]
    pub fn refusals(&self) -> refusals::Held {
        self.refusals
    }

    /// Returns the pause of CLIENT PAUSE, or, if that is over or there is none, that of a [`Hold`](crate::engine::Hold).
    fn pause_now(&self) -> Option<Pause> {
        let pause = *self.engine.pause.lock().expect("no panic under the pause");
        let holds_writes = self.engine.holds_writes();
        let is_over = |pause: Pause| self.outlet.monotonic_ms() >= pause.end_ms;
        match holds_writes && pause.is_none_or(is_over) {
            true => Some(Pause {
                end_ms: u64::MAX,
                all: false,
            }),
            false => pause,
        }
    }

    /// Resumes the clients that CLIENT PAUSE has suspended, if its time is over or it was called off.
    pub fn end_pause(&mut self) {
        let Some(pause) = self.pause else { return };
        if self.outlet.monotonic_ms() >= pause.end_ms {
            let holds_writes = self.engine.holds_writes();
            self.pause = self.pause_now().filter(|_| holds_writes);
            self.local.keeps_expired = self.keeps_expired();
            self.set_detour();
            self.resume();
        }
    }

    /// Wakes all clients that CLIENT PAUSE has suspended; if it still holds, they are suspended again.
    pub fn resume(&mut self) {
        O::for_each_caller(self, |executor, caller| {
            if caller.end_pause() {
                O::look_again(executor, caller.info.token());
            }
        });
    }

    /// Has messages delivered, if too many bytes are on their way to subscribers. Called before more is published.
    #[inline]
    pub(crate) fn hand_out(&mut self, caller: &mut Caller) {
        let mut executors = self.engine.executors().iter();
        if executors.any(|executor| executor.transit.is_full()) {
            O::hand_out(self, caller);
        }
    }

    /// Begins a turn of the surrounding loop, by the coarse clock.
    #[inline]
    pub fn begin_turn(&mut self, now_ms: u64) {
        self.timing.begin_turn(now_ms, &self.outlet);
    }

    /// Ends a turn: passes it to [`Timing::note_turn`], and takes ended waits out of queues whose stripe was in use.
    pub fn end_turn(&mut self, began_ms: u64, ended_ms: u64) {
        if !self.leaving.is_empty() {
            block::leave_queues(self);
        }
        self.timing.note_turn(began_ms, ended_ms, &self.outlet);
    }

    /// Offers the thread to the journal's pump, if units of the executor have written records. Called when they have ended: at
    /// the end of a batch, before its replies leave, and at the end of a turn.
    #[inline]
    pub fn pump(&mut self) {
        if self.local.has_journal_news() {
            self.pump_now();
        }
    }

    /// Offers the thread to the pump in any case. Who has pumped for long asks another executor to go on; so does the worker of
    /// a script that holds stripes, as the stream may block. (Without another one it pumps when the script has ended, unless
    /// some thread of the server does.)
    #[cold]
    pub fn pump_now(&mut self) {
        /// Time after which the role is handed on: nanoseconds.
        const PUMPED_NS_MAX: u64 = 1_000_000;
        let executors = self.engine.executors();
        let next = &executors[(self.number + 1) % executors.len()];
        let is_alone = executors.len() == 1;
        let mut hands_on = self.depth > 0;
        if !hands_on {
            let began_ns = self.outlet.monotonic_ns();
            hands_on = self.engine.keyspace.journal().pump(&mut || {
                !is_alone && self.outlet.monotonic_ns().saturating_sub(began_ns) >= PUMPED_NS_MAX
            });
        } else if is_alone {
            return;
        }
        if hands_on {
            next.mailbox.send(Message::Pump);
        }
        self.local.forget_journal_news();
    }

    /// Adds the local account of memory to the keyspace's.
    pub fn flush_account(&mut self) {
        self.local.flush_account(&self.engine.keyspace);
    }

    /// Publishes the keyspace events of a unit whose stripes are still held.
    pub fn publish_events(&mut self, by: By<'_>) {
        session::publish_events(self.engine, &mut self.local, &mut self.changes, by);
    }
}
