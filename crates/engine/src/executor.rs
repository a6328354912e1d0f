//! An executor: runs commands for callers, on one thread.
//!
//! What leaves it beside replies goes through its [`Outlet`]: the server's worker, or a test. It is a type parameter, so
//! the way of a GET is one function, whatever stands around it.
//!
//! | file | holds |
//! |---|---|
//! | `run` | the way of a request, from its checks to its handler |
//! | `batch` | requests that run together, and the steps to their keys |
//! | `units` | the stripes of a command, an EXEC, a script |
//! | `block` | clients that wait for keys: how they are served, how a wait ends |
//! | `access` | whether a user may make a call |
//! | `eviction`, `watch`, `figures` | room for what is written; ends of watches; what is counted, logged and shown |
//!
//! Must not know: sockets, files, threads.

pub mod access;
mod batch;
pub mod block;
pub mod eviction;
pub mod figures;
mod run;
pub mod units;
pub mod watch;

use std::sync::{Arc, atomic::Ordering};

use redline_keyspace::{Hint, Local, Waiter};
use redline_resp::{Args, Blob};
use redline_scripting::Host;
use redline_spec::CommandId;

use crate::{
    caller::{Caller, EndedWatch, Token},
    engine::{Engine, Pause},
    session,
    settings::{BusyScope, Settings},
    stats::ExecutorStats,
    timing::{Timing, Used},
    tracking::{By, Changes},
};

pub use batch::Batch;
use block::{Outcome, Waits};
pub use run::Halt;
pub(crate) use run::{count_command, runs_script};
pub use units::Compound;
pub(crate) use units::add_stripes;

/// Source of time for an executor: the machine's clocks, or those of a simulation.
pub trait Clock {
    /// Nanoseconds of a clock that never goes back; its zero is arbitrary.
    fn monotonic_ns(&self) -> u64;

    /// Milliseconds of [`Clock::monotonic_ns`].
    fn monotonic_ms(&self) -> u64 {
        self.monotonic_ns() / 1_000_000
    }

    /// As [`Clock::monotonic_ms`]; may be cheaper, and a few milliseconds late.
    fn monotonic_coarse_ms(&self) -> u64;

    /// Microseconds since 1970, of a clock that may jump.
    fn wall_us(&self) -> u64;

    /// Milliseconds since 1970, of a clock that may jump.
    fn wall_ms(&self) -> u64 {
        self.wall_us() / 1_000
    }

    /// Returns the CPU time that the calling thread has used so far, and how often it has slept.
    fn used(&self) -> Used;
}

/// Weight of a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For developers.
    Debug,
    /// Details for operators.
    Verbose,
    /// An operator wants to know.
    Notice,
    /// An operator must know.
    Warning,
}

/// A fault that a simulation plants, to show that it finds such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EXEC does not look at what was watched.
    IgnoresWatches,
    /// The effects of calls that have waited come before those of the unit that has served them in the journal.
    ReordersRecords,
    /// Clients that track keys are not told of what scripts change.
    LosesInvalidations,
    /// Of several clients that a unit has served, the last one is not told.
    LosesWakeUps,
}

/// The surroundings of an executor: takes what leaves it beside replies, and does what needs a connection.
///
/// Functions that may run other commands are given the whole executor, of which the outlet is a part.
pub trait Outlet: Clock + Sized {
    /// A client's part of a batch.
    type Member: Member;

    /// The fault that is planted: none but in simulations.
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

    /// Returns true if everything is to end, a running script included.
    fn stops(&self) -> bool;

    /// Visits the callers of all clients of this executor that are not being served.
    fn for_each_caller(
        executor: &mut Executor<'_, Self>,
        visit: impl FnMut(&mut Executor<'_, Self>, &mut Caller),
    );

    /// Has a client of this executor, which is not being served, looked at again soon.
    fn look_again(executor: &mut Executor<'_, Self>, client: Token);

    /// Gives the caller, which is being served, what its own command and others have published to it, so that it stands behind
    /// that command's reply.
    fn read_own_mail(executor: &mut Executor<'_, Self>, caller: &mut Caller);

    /// Takes invalidation messages back that are on their way to the caller.
    fn drop_old_invalidations(executor: &mut Executor<'_, Self>, caller: &Caller);

    /// Too much is on its way to subscribers: hands out what is for clients of this executor, and gives others time.
    fn hand_out(executor: &mut Executor<'_, Self>, caller: &mut Caller);

    /// The wait of a client of this executor has ended.
    fn wait_ended(executor: &mut Executor<'_, Self>, waiter: Arc<Waiter>, outcome: Outcome);

    /// Closes clients while all together take more memory than they may.
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
}

/// A client of a group that is served together: its caller, and the bytes of its requests.
pub trait Member {
    /// The caller.
    fn caller(&self) -> &Caller;

    /// The caller, the bytes that the spans of its requests refer to, and their large arguments.
    fn parts(&mut self) -> (&mut Caller, &[u8], &[Blob]);

    /// The bytes and the large arguments.
    fn requests(&self) -> (&[u8], &[Blob]);

    /// Returns true if requests of it were deferred: those that follow wait for them.
    fn is_deferred(&self) -> bool;
}

/// See the module's text.
pub struct Executor<'e, O: Outlet> {
    /// State that all executors share.
    pub engine: &'e Engine,
    /// Its number.
    pub number: usize,
    /// The settings, as of `epoch`.
    pub settings: Arc<Settings>,
    /// The epoch of `settings`.
    pub epoch: u64,
    /// The version of the users in `settings`, as the callers have it.
    pub rules: u64,
    /// Its share of the keyspace's memory, randomness and counters.
    pub local: Local,
    /// Changes that the running unit has made under prefixes that clients track.
    pub changes: Changes,
    /// Its counters.
    pub stats: Arc<ExecutorStats>,
    /// Wall clock: Unix time in milliseconds. Stands still within a unit.
    pub now_ms: i64,
    /// Its Lua interpreter; taken out while a script runs.
    pub host: Option<Host>,
    /// The unit of the EXEC or script that is running.
    pub compound: Option<Box<Compound<'e>>>,
    /// That of the last script, which holds nothing any more, for reuse.
    pub(crate) spare_compound: Option<Box<Compound<'e>>>,
    /// Depth of turns inside a script's hook.
    pub depth: u32,
    /// Replies of a caller beyond this are looked at before its next request: bytes.
    pub output_watched_bytes: usize,
    /// Watches whose stripe was in use when they ended.
    pub(crate) unwatching: Vec<EndedWatch>,
    /// Ended waits that still stand in queues whose stripe was in use.
    pub(crate) leaving: Vec<Arc<Waiter>>,
    /// When waits for keys end.
    pub waits: Waits,
    /// The calls that CLIENT PAUSE holds back.
    pub pause: Option<Pause>,
    /// Somebody is shown every command.
    pub(crate) monitored: bool,
    /// A script is over its threshold, and all commands are to be refused, as of `epoch`; see [`Executor::refuses_all`].
    busy_to_all: bool,
    /// No command may take the straight path: something may hold it back, or has to see it.
    pub(crate) detour: bool,
    /// How it takes the time of calls.
    pub timing: Timing,
    /// As of which reset of the counters it takes times; see `Engine::stats_epoch`.
    stats_epoch: u64,
    /// The keys of a request of many keys.
    pub(crate) hints: Vec<Hint>,
    /// The surroundings.
    pub outlet: O,
}

impl<'e, O: Outlet> Executor<'e, O> {
    /// An executor of that number; `seed` of its randomness.
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
            detour: false,
            timing: Timing::default(),
            stats_epoch: u64::MAX,
            hints: Vec::new(),
            engine,
            outlet,
        };
        executor.refresh();
        executor
    }

    /// Reads the wall clock. It is read once per turn of a loop, and after whatever took long.
    pub fn read_clock(&mut self) {
        self.now_ms = self.outlet.wall_ms() as i64;
        self.local.clock.now_s = (self.now_ms / 1000) as u32;
    }

    /// Takes over settings if they were published since; before whatever goes by them.
    #[inline]
    pub fn refresh_if_changed(&mut self) {
        if self.engine.settings.epoch() != self.epoch {
            self.refresh();
        }
    }

    fn set_detour(&mut self) {
        self.detour = self.monitored || self.pause.is_some() || self.busy_to_all;
    }

    /// Is every command refused, but for those that are for such times? A script is over its threshold then.
    pub fn refuses_all(&self) -> bool {
        self.busy_to_all && self.engine.running_script.busy.load(Ordering::Acquire)
    }

    /// Takes over settings that were published since.
    pub fn refresh(&mut self) {
        self.epoch = self.engine.settings.epoch();
        self.settings = self.engine.settings.current();
        self.pause = *self.engine.pause.lock().expect("no panic under the pause");
        self.local.keeps_expired = self.pause.is_some();
        self.monitored = self.engine.monitors.some();
        self.busy_to_all = self.settings.busy_reply_scope == BusyScope::All
            && self.engine.running_script.busy.load(Ordering::Acquire);
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

    /// Lets the commands go on that CLIENT PAUSE has held back, if its time is over or it was called off.
    pub fn end_pause(&mut self) {
        let Some(pause) = self.pause else { return };
        if self.outlet.monotonic_ms() >= pause.end_ms {
            self.pause = None;
            self.local.keeps_expired = false;
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

    /// Before more is published: if too much is on its way to subscribers, has it handed out.
    #[inline]
    pub(crate) fn hand_out(&mut self, caller: &mut Caller) {
        let mut executors = self.engine.executors().iter();
        if executors.any(|executor| executor.transit.is_full()) {
            O::hand_out(self, caller);
        }
    }

    /// A turn of the loop around it begins, by the coarse clock.
    #[inline]
    pub fn begin_turn(&mut self, now_ms: u64) {
        self.timing.begin_turn(now_ms, &self.outlet);
    }

    /// A turn has ended: passed to [`Timing::note_turn`]; ended waits are taken out of queues whose stripe was in use.
    pub fn end_turn(&mut self, began_ms: u64, ended_ms: u64) {
        if !self.leaving.is_empty() {
            block::leave_queues(self);
        }
        self.timing.note_turn(began_ms, ended_ms, &self.outlet);
    }

    /// Hands its share of the keyspace's memory account over.
    pub fn flush_account(&mut self) {
        self.local.flush_account(&self.engine.keyspace);
    }

    /// Publishes the keyspace events of a unit whose stripes are still held.
    pub fn publish_events(&mut self, by: By<'_>) {
        session::publish_events(self.engine, &mut self.local, &mut self.changes, by);
    }
}
