//! From a decoded request to its reply: the batch, the gate, the locks, the handler.
//!
//! # Five steps to a key
//!
//! A GET on a large keyspace is four dependent cache misses: the slot, its directory, the bucket, the entry. One after
//! the other they cost more than everything else together, so a batch takes each step for many keys before the next:
//! while requests are decoded and hashed, their slots are prefetched, and the directories and then the buckets of those
//! some requests before; while they are executed, the entries of those that come next. Both are in
//! [`redline_keyspace::Walk`]; none but the last step takes a lock, and a wrong result of the others does no harm.
//!
//! # A unit
//!
//! A single command takes the stripes in its row's scope, runs, publishes its keyspace events, and releases them.
//! Inside EXEC or a script the stripes are held by the [`Compound`](super::Compound) of the worker. A session that fails to get a stripe
//! is suspended and its command runs again from the start when the stripe is free: nothing has happened until then.
//!
//! Must not know: what any command does.

use std::sync::atomic::{AtomicU64, Ordering};

use redline_commands::{Ctx, Error, Failure, Stop};
use redline_keyspace::{Hint, Unit};
use redline_resp::{Args, Reply};
use redline_spec::{self as spec, CommandId, Flags, Gate, Plane, Scope};

use super::batch::Known;

use crate::{
    caller::{Caller, ReplyMode, Suspended, Token, flag, state},
    errors,
    executor::{Executor, Fault, Level, Outlet, access, block, figures, gate, units},
    refusals::Reason,
    session,
    timing::INSIDE_PER_TIMED,
    tracking,
};

/// Time of a call after which the wall clock is read again: nanoseconds.
const CLOCK_STANDS_NS_MAX: u64 = 1_000_000;

/// State that the unit around a command shares with the command's handler, in both directions.
#[derive(Default)]
pub(super) struct Inside {
    pub(super) in_script: bool,
    /// Number of changes: a script that has made some cannot be killed.
    pub(super) changes: u64,
}

/// Reason why a command did not run to its end.
pub enum Halt {
    /// Replies with this error.
    Error(Error),
    /// It is suspended and runs again later.
    Suspended(Suspended),
}

/// Outcome of a request on the straight path.
pub(super) enum Straight {
    /// It has run, and its reply is written.
    Done,
    /// Its reply is an error.
    Failed,
    /// It is not for this path: nothing has happened.
    Refused,
}

impl<E: Into<Error>> From<E> for Halt {
    fn from(error: E) -> Halt {
        Halt::Error(error.into())
    }
}

impl<O: Outlet> Executor<'_, O> {
    /// Runs one request. Afterwards either its reply is written, or the session is suspended.
    pub fn run_request(&mut self, caller: &mut Caller, args: Args<'_>, known: Option<Known<'_>>) {
        self.refresh_if_changed();
        if caller.info.killed.load(Ordering::Acquire) {
            caller.closing = true;
            return;
        }
        if caller.rules != self.rules && !access::adopt_rules(self, caller) {
            return;
        }
        if let Some(known) = known
            && caller.state & !state::LISTENS == 0
            && !self.detour
            && self.run_plain(caller, args, known)
        {
            if caller.is(state::LISTENS) {
                O::read_own_mail(self, caller);
            }
            return;
        }
        self.run_any(caller, args);
        if caller.is(state::LISTENS | state::TRACKING | state::MONITOR)
            && caller.suspended.is_none()
        {
            O::read_own_mail(self, caller);
        }
    }

    /// Runs a request on the straight path: one key, no special state. Returns false, with no effect, for any other.
    #[inline]
    fn run_plain(&mut self, caller: &mut Caller, args: Args<'_>, known: Known<'_>) -> bool {
        let plain = spec::plain(known.id);
        if (plain.needs_memory && self.settings.maxmemory_bytes != 0)
            || (plain.writes && self.refusals.has(Reason::ReadOnly))
        {
            return false;
        }
        !matches!(self.run_straight(caller, args, known), Straight::Refused)
    }

    /// Runs a request on the straight path, without a check of whether its caller may make it.
    // Its two callers are one function each with it: a call of its own costs a GET 38 instructions of 1,100.
    #[inline(always)]
    pub(super) fn run_straight(
        &mut self,
        caller: &mut Caller,
        args: Args<'_>,
        known: Known<'_>,
    ) -> Straight {
        let Known { id, ahead, bytes } = known;
        let plain = spec::plain(id);
        if !plain.allows(args.len())
            || self.timing.closely
            || u64::from(bytes) >= self.timing.heavy_bytes
        {
            return Straight::Refused;
        }
        let Some(handler) = redline_commands::handler(id) else {
            return Straight::Refused;
        };
        let key = &args[usize::from(plain.key)];
        let (engine, place) = (self.engine, ahead.place());
        let Some(mut unit) = Unit::try_one(&engine.keyspace, place.stripe()) else {
            return Straight::Refused;
        };
        if self.is_behind() {
            return Straight::Refused;
        }
        if engine.keyspace.is_of_cluster() {
            if !engine.keyspace.serves(place)
                || plain.needs_memory && engine.keyspace.is_full(caller.db, place)
            {
                return Straight::Refused;
            }
            // By the stripe, so that the unit has no address.
            caller.note_seen_record(engine.keyspace.last_record_of(place.stripe()));
        }
        if engine.keyspace.anybody_waits() && plain.writes && unit.is_waited_for(key, place) {
            return Straight::Refused;
        }
        let mark = caller.out.mark();
        let before_bytes = caller.out.len_bytes();
        let mut ctx = Ctx {
            keys: unit.view(&mut self.local, caller.db, self.now_ms),
            bulk_bytes_max: self.settings.bulk_bytes_max,
            in_script: false,
            reads_every_key: true,
            waiter: None,
        };
        ctx.keys.hint(key, ahead);
        let result = handler(
            &mut ctx,
            args,
            &mut Reply::new(&mut caller.out, caller.proto),
        );
        ctx.keys.finish();
        if ctx.keys.is_journaled() {
            redline_commands::propagate(&mut ctx.keys, id, args);
        }
        if !self.local.events.is_empty() {
            let by = tracking::By::Client(&caller.info);
            session::publish_events(engine, &mut self.local, &mut self.changes, by);
        }
        caller.note_record(block::commit(self, unit));
        let stats = &self.stats.commands[id as usize];
        stats.calls.add(1);
        note_command(caller, id);
        let reply_bytes = caller.out.len_bytes().saturating_sub(before_bytes) as u64;
        if reply_bytes >= self.timing.reply_bytes {
            figures::log_command(self, caller, id, args, None, reply_bytes);
        }
        if let Err(failure) = result {
            let error = failure.expect_error();
            stats.failed.add(1);
            log_damage::<O>(&error);
            let text = error.text();
            self.stats.note_error(&text);
            caller.out.truncate(mark);
            caller.reply().error_bytes(&text);
            return Straight::Failed;
        }
        Straight::Done
    }

    /// Runs a request on every other path.
    fn run_any(&mut self, caller: &mut Caller, args: Args<'_>) {
        if caller.reply_mode == ReplyMode::SkipNext {
            caller.reply_mode = ReplyMode::Skipping;
        }
        let mark = caller.out.mark();
        let outcome = self.gate_and_run(caller, args);
        match outcome {
            Ok(()) => {}
            Err(Halt::Error(error)) => {
                log_damage::<O>(&error);
                let text = error.text();
                self.stats.note_error(&text);
                caller.out.truncate(mark);
                caller.reply().error_bytes(&text);
            }
            Err(Halt::Suspended(reason)) => {
                caller.out.truncate(mark);
                caller.suspended = Some(reason);
                if reason.is_wanted() {
                    caller.info.set_flag(flag::BLOCKED, true);
                    caller.rounds = 0;
                    units::give_way(self, caller);
                } else {
                    self.stats.suspended.add(1);
                }
                if matches!(reason, Suspended::File | Suspended::Target) {
                    // Stripes reserved for this call would keep the snapshot that it waits for from its end, or keep others
                    // waiting for a network.
                    caller.rounds = 0;
                    units::give_way(self, caller);
                }
                return;
            }
        }
        if caller.is(state::ASKING) && !caller.is(state::MULTI) && !is_asking(caller) {
            caller.set_state(state::ASKING, false);
        }
        caller.rounds = 0;
        // Refused on its last round (-BUSY, OOM): its reserved stripes are free for others.
        units::give_way(self, caller);
        caller.settle_reply(mark);
        if caller.is(state::TRACKING) {
            let name = self.engine.names.resolve(&args[0], args.get(1));
            tracking::after_command(caller, name.ok());
        }
    }

    /// Makes Redis's checks in Redis's order, then runs the command or adds it to the transaction's queue.
    fn gate_and_run(&mut self, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
        let id = match gate::resolve(self, caller, args) {
            Ok(id) => id,
            Err(_) if redline_resp::is_of_http(&args[0]) => {
                end_http::<O>(caller, self.outlet.monotonic_ms());
                return Ok(());
            }
            Err(error) => return Err(gate::reject(self, caller, args, &error)),
        };
        if caller.is(state::REPLICA) && gate::is_out_of_place(caller, id) {
            gate::end_replica::<O>(caller, id, spec::gate(id));
            return Ok(());
        }
        gate::let_in(self, caller, id, args)?;
        if caller.is(state::MULTI) && !session::transaction::runs_at_once(id) {
            session::transaction::enqueue(caller, id, args);
            return Ok(());
        }
        self.was_let_in = true;
        let result = self.call(caller, id, args);
        self.was_let_in = false;
        result
    }

    /// Runs a command that may run: times it, counts it.
    pub fn call(&mut self, caller: &mut Caller, id: CommandId, args: Args<'_>) -> Result<(), Halt> {
        let gate = spec::gate(id);
        let inside = self.compound.is_some();
        let heavy = payload_bytes(args) >= self.timing.heavy_bytes;
        let apart = self.timing.closely || heavy || !gate.is_brief(args.len());
        let timed = apart || (inside && self.timing.sample_inside());
        if timed {
            self.timing.call_began_ns = self.outlet.monotonic_ns();
        }
        let began_ns = self.timing.call_began_ns;
        let before_bytes = caller.out.len_bytes();
        let result = match gate.plane {
            Plane::Data if !gate.arity_allows(args.len()) => {
                if self.monitored {
                    let in_script = units::is_in_script(self);
                    figures::show(self, caller, id, args, in_script);
                }
                Err(errors::wrong_arity(id).into())
            }
            Plane::Data => {
                let result = units::run_data(self, caller, id, gate, args);
                if id == CommandId::Flushall && result.is_ok() {
                    O::flushed_all(self);
                }
                result
            }
            Plane::Session | Plane::Admin => {
                let result = match gate.plane {
                    Plane::Session => session::run(self, caller, id, args),
                    _ => O::run_admin(self, caller, id, args),
                };
                if self.monitored {
                    figures::show_returned(self, caller, id, args, &result);
                }
                result
            }
            Plane::Container => unreachable!("a container has no arity that lets a call through"),
        };
        if let Err(Halt::Suspended(reason)) = result {
            if let (Suspended::Keys, Some(wait), true) = (reason, &mut caller.wait, timed) {
                wait.note_time(self.outlet.monotonic_ns().saturating_sub(began_ns));
            }
            return result;
        }
        count_command(caller);
        let stats = &self.stats.commands[id as usize];
        stats.calls.add(1);
        if result.is_err() {
            stats.failed.add(1);
        }
        let took_ns = timed.then(|| self.outlet.monotonic_ns().saturating_sub(began_ns));
        if let Some(ns) = took_ns {
            let times = if apart {
                1
            } else {
                u64::from(INSIDE_PER_TIMED)
            };
            stats.note_time(ns, times, self.timing.distributions);
            self.note_time(gate, inside, ns);
        }
        let reply_bytes = caller.out.len_bytes().saturating_sub(before_bytes) as u64;
        if heavy
            || reply_bytes >= self.timing.reply_bytes
            || took_ns.is_some_and(|ns| ns >= self.timing.watched_ns)
        {
            figures::log_command(self, caller, id, args, took_ns, reply_bytes);
        }
        result
    }

    /// Passes on the time of a call to its other uses: the batch around it, the latency monitor, the wall clock. `inside`:
    /// it ran inside EXEC or a script, whose own time contains it.
    fn note_time(&mut self, gate: Gate, inside: bool, ns: u64) {
        if !inside {
            self.timing.note_apart(ns);
        }
        if ns >= self.timing.watched_ns {
            // It may have had brief calls inside.
            self.timing.suspect_if(!gate.is_brief(0), &self.outlet);
            let event = match gate.flags.has(Flags::FAST) {
                true => "fast-command",
                false => "command",
            };
            figures::note_latency(self, event, ns);
        }
        if ns > CLOCK_STANDS_NS_MAX && !inside {
            self.read_clock();
        }
    }

    /// Calls the handler; its stripes are held.
    pub(super) fn handle(
        &mut self,
        caller: &mut Caller,
        id: CommandId,
        args: Args<'_>,
        unit: &mut Unit<'_>,
        hints: &[Hint],
    ) -> Result<(), Failure> {
        self.handle_inside(caller, id, args, unit, hints, &mut Inside::default())
    }

    /// Does the same inside EXEC or a script.
    pub(super) fn handle_inside(
        &mut self,
        caller: &mut Caller,
        id: CommandId,
        args: Args<'_>,
        unit: &mut Unit<'_>,
        hints: &[Hint],
        inside: &mut Inside,
    ) -> Result<(), Failure> {
        let handler = redline_commands::handler(id).expect("a row of the data plane has a handler");
        let engine = self.engine;
        // CLIENT NO-TOUCH: only TOUCH still updates the access clock.
        self.local.clock.frozen = caller.is(state::NO_TOUCH) && id != CommandId::Touch;
        let finds_keys = matches!(spec::gate(id).scope, Scope::KeysPlus | Scope::OneStripe);
        let reads_every_key = !finds_keys || access::may_read_every_key(caller, id, args);
        // The primary's stream says itself when its keys go.
        let is_own = self.refusals.has(Reason::Follows)
            && caller.info.token() != Token::LINK
            && spec::gate(id).flags.has(Flags::WRITE);
        let mut ctx = Ctx {
            keys: unit.view(&mut self.local, caller.db, self.now_ms),
            bulk_bytes_max: self.settings.bulk_bytes_max,
            in_script: inside.in_script,
            reads_every_key,
            waiter: None,
        };
        ctx.keys.hints(hints);
        let result = handler(
            &mut ctx,
            args,
            &mut Reply::new(&mut caller.out, caller.proto),
        );
        inside.changes += ctx.keys.changes();
        if is_own && ctx.keys.changes() > 0 {
            engine.own_keys.note_call(&ctx.keys, caller.db, id, args);
        }
        ctx.keys.finish();
        if ctx.keys.is_journaled() {
            redline_commands::propagate(&mut ctx.keys, id, args);
        }
        self.local.clock.frozen = false;
        let has_run = !matches!(
            result,
            Err(Failure::Stop(
                Stop::Busy(_) | Stop::Widen(_) | Stop::Expired(_)
            ))
        );
        // A call that has waited was sent to monitors as it began to.
        if self.monitored && has_run && caller.again.is_none() {
            figures::show(self, caller, id, args, inside.in_script);
        }
        if O::FAULT == Some(Fault::LosesInvalidations) && inside.in_script {
            self.local.events.drain(..);
        }
        if !self.local.events.is_empty() {
            let by = match inside.in_script {
                true => tracking::By::Script(&caller.info),
                false => tracking::By::Client(&caller.info),
            };
            session::publish_events(engine, &mut self.local, &mut self.changes, by);
            if inside.in_script {
                self.hand_out(caller);
            }
        }
        if caller.is(state::TRACKING) && has_run && tracking::remembers(caller, id) {
            self.remember_keys(caller.info.token(), id, args);
        }
        result
    }
}

impl<O: Outlet> Executor<'_, O> {
    /// Registers the keys of a call for a client that tracks them; their stripes are held.
    pub fn remember_keys(&mut self, who: Token, id: CommandId, args: Args<'_>) {
        tracking::remember(self.engine, who, id, args);
        let keys_max = self.settings.tracking_keys_max;
        let rng = &mut self.local.rng;
        let table = &self.engine.tracking;
        table.evict(self.engine.executors(), keys_max, || rng.usize(..));
    }
}

/// Returns true if it is one of the commands that run a script.
#[inline]
pub fn runs_script(id: CommandId) -> bool {
    use CommandId::{Eval, EvalRo, Evalsha, EvalshaRo, Fcall, FcallRo};
    matches!(id, Eval | EvalRo | Evalsha | EvalshaRo | Fcall | FcallRo)
}

/// Returns the number of bytes of all arguments.
#[inline]
fn payload_bytes(args: Args<'_>) -> u64 {
    args.iter().map(<[u8]>::len).sum::<usize>() as u64
}

/// Returns true if the client's last command is ASKING.
fn is_asking(caller: &Caller) -> bool {
    caller.info.command.load(Ordering::Relaxed) == CommandId::Asking as u16
}

#[inline]
fn note_last(caller: &Caller, id: CommandId) {
    caller.info.command.store(id as u16, Ordering::Relaxed);
}

/// Closes a connection that sends HTTP, so that a browser's form does not run commands: no further request is read, and unsent
/// replies are dropped.
fn end_http<O: Outlet>(caller: &mut Caller, now_ms: u64) {
    /// Interval between two lines in the log: an attacker may connect often.
    const PAUSE_MS: u64 = 60_000;
    static NEXT_MS: AtomicU64 = AtomicU64::new(0);
    caller.closing = true;
    caller.out.clear();
    // No reply is left that CLIENT REPLY could drop.
    caller.set_state(state::REPLY, false);
    if now_ms >= NEXT_MS.load(Ordering::Relaxed) {
        NEXT_MS.store(now_ms + PAUSE_MS, Ordering::Relaxed);
        let text = format!(
            "Possible SECURITY ATTACK: {} sends POST or Host:, as a browser would for somebody else. Connection closed.",
            caller.info.addr
        );
        O::log(Level::Warning, &text);
    }
}

#[inline]
fn note_command(caller: &Caller, id: CommandId) {
    note_last(caller, id);
    count_command(caller);
}

/// Counts a command of this client. CLIENT LIST does not count itself.
#[inline]
pub(crate) fn count_command(caller: &Caller) {
    let commands = &caller.info.commands;
    commands.store(commands.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Logs the reason for which a payload is damaged; the client gets the error only.
fn log_damage<O: Outlet>(error: &Error) {
    if let Error::Damaged(what) = error {
        let text = format!("Payload integrity check failed: {what}");
        O::log(Level::Warning, &text);
    }
}
