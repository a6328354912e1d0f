//! Clients that wait for keys: how a wait begins, how it is served, and how it ends. Clients in WAIT and WAITAOF wait
//! for no key, but at the journal's gate, if for anything; otherwise their waits are the same.
//!
//! # From a handler's result to a waiting client
//!
//! A handler of `commands` cannot wait. It returns what it would wait for (`Stop::Wait`), while its unit holds the
//! stripes of all its keys. Inside EXEC and scripts the reply that the handler has written stands. Otherwise the call
//! is registered with those keys before the stripes are released ([`begin_wait`]), and the session is suspended with
//! the reason [`Suspended::Keys`]: its request stays the first of those not yet run, and the requests pipelined behind
//! it wait.
//!
//! # Serving
//!
//! A unit that creates a key for which clients wait finds the key in its list of ready ones when it has run. Before it
//! releases its stripes it runs the waiting calls, first come first served ([`end_effects`]). The reply goes to the
//! client's worker, by message. The whole call is run: it sees all its keys, so it does what it would do had it come
//! now, errors included (also that its user may not make it any more, or that there is no memory for it), at the
//! current time; and its writes may in turn serve others (BLMOVE into a list for which a client waits).
//!
//! So a writer needs the stripes of all clients that it may serve: it reads the queues of its keys when it has its own
//! stripes, and if those do not suffice it releases them and starts over with more, before it has done anything
//! (`Keyspace::widen`). A script takes the stripes that it needs at its end. Only expiry and eviction take one stripe
//! and no more; they never serve, but have the call run again by its own worker ([`End::Again`]), since the only
//! possible change is that a key is gone. The same is done should a stripe be missing for any other reason.
//!
//! # Ends
//!
//! A thread that ends a wait does so by the waiter's word (`keyspace/src/wait.rs`) and then notifies the client's
//! worker (`Message::WaitEnded`), which alone may touch the session.
//!
//! Must not know: what any command waits for, or does when it is served.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redline_acl::User;
use redline_commands::{Block, Ctx, Error, Failure, Stop};
use redline_keyspace::{
    End, Found, Local, Policy, Ready, Trace, Unit, Waiter, Wanted,
    journal::Until,
    lock::{self, StripeSet, WakeToken},
};
use redline_resp::{Args, ArgsBuf, Proto, Reply, ReplyBuffer};
use redline_spec::{self as spec, CommandId, Flags};
use redline_types::Kind;

use crate::{
    caller::{Caller, ClientInfo, REGISTERED_BYTES, Suspended, Token, flag},
    engine::{Engine, Message},
    errors,
    executor::{Executor, Fault, Halt, Outlet, access, count_command, figures},
    session::{self, publish_events},
    tracking::{self, By, Changes},
};

/// Error for the client after CLIENT UNBLOCK … ERROR.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
/// The error for clients that wait while the server becomes a replica; as in Redis their connections are closed.
const DEMOTED: &str =
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

/// The call that is run to serve a waiting client: the content of [`Waiter::call`].
struct Call {
    id: CommandId,
    args: ArgsBuf,
    proto: Proto,
    /// True if its client tracks the keys that it reads.
    tracked: bool,
    /// Client that has made the call, and its user with the rules that held then.
    info: Arc<ClientInfo>,
    user: Arc<User>,
    /// Set when the call was not run, since it is not allowed any more.
    refused: AtomicBool,
}

impl Call {
    fn new(caller: &Caller, id: CommandId, args: ArgsBuf, tracked: bool) -> Call {
        Call {
            id,
            args,
            proto: caller.proto,
            tracked,
            info: caller.info.clone(),
            user: caller.user.clone(),
            refused: AtomicBool::new(false),
        }
    }

    fn of(waiter: &Waiter) -> &Call {
        waiter.call.downcast_ref().expect("waiters are made here")
    }
}

/// A session's wait.
pub struct Wait {
    waiter: Arc<Waiter>,
    /// Deadline in milliseconds of the monotonic clock; `None`: no timeout.
    deadline_ms: Option<u64>,
    timer: Option<WaitTimer>,
    /// The place at the journal's gate where it stands.
    gate: Option<Until>,
    /// Time that the call took until it began to wait, if it was timed: nanoseconds.
    took_ns: Option<u64>,
    /// Bytes of the call's arguments.
    argument_bytes: usize,
    heap_bytes: usize,
}

impl Wait {
    fn new(waiter: Arc<Waiter>, deadline_ms: Option<u64>, timer: Option<WaitTimer>) -> Wait {
        let call = &Call::of(&waiter).args;
        let keys = waiter.keys.iter();
        let keys = keys.map(|key| REGISTERED_BYTES + key.len());
        Wait {
            argument_bytes: call.as_args().iter().map(<[u8]>::len).sum(),
            heap_bytes: call.heap_bytes() + keys.sum::<usize>(),
            waiter,
            deadline_ms,
            timer,
            gate: None,
            took_ns: None,
        }
    }

    /// Adds the time of a run of the call that found nothing.
    pub fn note_time(&mut self, took_ns: u64) {
        self.took_ns = Some(took_ns);
    }

    /// Returns the bytes of the waiting call's arguments.
    pub fn argument_bytes(&self) -> usize {
        self.argument_bytes
    }

    /// Returns the heap bytes of the wait, for the accounting of memory per client: the call, and the keys in the
    /// indexes.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }
}

/// A call that has waited and is to be run again, with the rest of its timeout.
pub struct Again {
    waiter: Arc<Waiter>,
    deadline_ms: Option<u64>,
}

impl Again {
    /// Returns the call.
    pub fn args(&self) -> ArgsBuf {
        Call::of(&self.waiter).args.clone()
    }
}

/// Result of a wait that has ended, for its session.
#[derive(Default)]
pub struct Outcome {
    /// Reply for the client, if it was served.
    reply: ReplyBuffer,
    /// Time of the call that served it: nanoseconds.
    took_ns: u64,
    /// Number of the journal's record that has the effect of the call, if it had any.
    record: Option<u64>,
}

/// Outcome of the end of a wait for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The wait is not this client's current one.
    Stale,
    /// The call is answered: the client's next one runs.
    Answered,
    /// The call is not answered: it runs again, or the client is to be closed.
    RunsAgain,
}

/// Deadlines of waits with a timeout, and waits at the journal's gate.
#[derive(Default)]
pub struct Waits {
    by_deadline: BTreeMap<WaitTimer, Arc<Waiter>>,
    next: u64,
    /// By the token of the session.
    at_gate: HashMap<WakeToken, Arc<Waiter>>,
}

/// Deadline of a wait (milliseconds of the monotonic clock), and its number among those of the same millisecond.
type WaitTimer = (u64, u64);

impl Waits {
    fn insert(&mut self, deadline_ms: u64, waiter: Arc<Waiter>) -> WaitTimer {
        let timer = (deadline_ms, self.next);
        self.next += 1;
        self.by_deadline.insert(timer, waiter);
        timer
    }

    /// Returns the next deadline: milliseconds of the monotonic clock.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let ((deadline_ms, _), _) = self.by_deadline.first_key_value()?;
        Some(*deadline_ms)
    }

    fn pop_expired(&mut self, now_ms: u64) -> Option<Arc<Waiter>> {
        let is_over = self.next_deadline_ms()? <= now_ms;
        is_over
            .then(|| self.by_deadline.pop_first())
            .flatten()
            .map(|(_, waiter)| waiter)
    }
}

/// A wait that has ended.
type Served = (Arc<Waiter>, Outcome);

/// Registers a call that has found nothing, under the stripes that its unit holds, and suspends its session.
pub fn begin_wait<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
    block: &Block,
    unit: &mut Unit<'_>,
) -> Halt {
    let named = |positions: &std::ops::Range<usize>| {
        let args = positions.clone().filter_map(|at| args.get(at));
        args.map(Box::from).collect()
    };
    let (keys, targets) = (named(&block.keys), named(&block.targets));
    let args = block.call.clone().unwrap_or_else(|| ArgsBuf::from(args));
    let call = Call::new(caller, id, args, tracking::remembers(caller, id));
    let waiter = Arc::new(Waiter::new(
        &executor.engine.keyspace,
        Wanted {
            token: caller.info.token().0,
            db: caller.db,
            keys,
            targets,
            kind: block.kind,
            when_gone: block.when_gone,
            call: Box::new(call),
        },
    ));
    unit.wait(&waiter);
    enter_wait(executor, caller, waiter, block.timeout_ms)
}

/// Suspends a session whose call waits for something other than keys: its timeout ends the wait, or CLIENT UNBLOCK; the
/// call runs again when the journal's gate has reached `until`, or reaches it no more. Returns `None` if that is so already.
pub(crate) fn begin_wait_without_keys<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
    timeout_ms: Option<u64>,
    until: Option<Until>,
) -> Option<Halt> {
    let token = caller.info.token().0;
    if let Some(until) = until {
        let gate = &executor.engine.keyspace.journal().gate;
        if gate.wait_for(&executor.gate, until, token) == lock::Wait::TryAgain {
            return None;
        }
    }
    let call = Call::new(caller, id, ArgsBuf::from(args), false);
    let waiter = Arc::new(Waiter::new(
        &executor.engine.keyspace,
        Wanted {
            token,
            db: caller.db,
            keys: Vec::new(),
            targets: Vec::new(),
            kind: Kind::List, // of no key
            when_gone: false,
            call: Box::new(call),
        },
    ));
    if until.is_some() {
        // The executor itself hears of the gate, later.
        executor.waits.at_gate.insert(token, waiter.clone());
    }
    let halt = enter_wait(executor, caller, waiter, timeout_ms);
    caller.wait.as_mut().expect("just begun").gate = until;
    Some(halt)
}

fn enter_wait<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    waiter: Arc<Waiter>,
    timeout_ms: Option<u64>,
) -> Halt {
    let deadline_ms = match caller.again.take() {
        Some(again) => again.deadline_ms,
        None => timeout_ms.map(|span_ms| executor.outlet.monotonic_ms().saturating_add(span_ms)),
    };
    let timer = deadline_ms.map(|at_ms| {
        executor.engine.timed_waits.fetch_add(1, Ordering::Relaxed);
        executor.waits.insert(at_ms, waiter.clone())
    });
    caller.info.wait.enter(&waiter);
    caller.wait = Some(Wait::new(waiter, deadline_ms, timer));
    Halt::Suspended(Suspended::Keys)
}

// ---- serving ------------------------------------------------------------------------------

/// Ends a unit: see [`end_effects`].
#[inline(always)] // of one stripe, this is a few instructions
pub fn commit<O: Outlet>(executor: &mut Executor<'_, O>, mut unit: Unit<'_>) -> Option<u64> {
    if !executor.local.ready.is_empty() {
        return serve_and_commit(executor, unit);
    }
    let number = unit.record(&mut executor.local);
    tell_changes(executor);
    unit.release();
    number
}

/// By value, so that the unit of the straight path never has an address and all facts about it can be used.
#[cold]
fn serve_and_commit<O: Outlet>(executor: &mut Executor<'_, O>, mut unit: Unit<'_>) -> Option<u64> {
    serve(executor, &mut unit)
}

/// Ends the effects of a unit, its stripes still held: serves the clients that wait for keys that it has changed, and
/// writes the journal's record, theirs included; returns its number, if there was anything to record.
#[inline]
pub fn end_effects<O: Outlet>(executor: &mut Executor<'_, O>, unit: &mut Unit<'_>) -> Option<u64> {
    if !executor.local.ready.is_empty() {
        return serve(executor, unit);
    }
    let number = unit.record(&mut executor.local);
    tell_changes(executor);
    number
}

/// Notifies the clients that track prefixes of the unit's changes under them.
#[inline]
pub(crate) fn tell_changes<O: Outlet>(executor: &mut Executor<'_, O>) {
    if !executor.changes.is_empty() {
        executor.changes.tell(executor.engine);
    }
}

/// Does the same for EXEC and scripts; a script takes the missing stripes.
pub fn end_compound_effects<O: Outlet>(
    executor: &mut Executor<'_, O>,
    unit: &mut Unit<'_>,
) -> Option<u64> {
    let mut held = StripeSet::EMPTY;
    while unit.holds_script() && !unit.holds_all() && !executor.local.ready.is_empty() {
        let mut wider = held.clone();
        for ready in &executor.local.ready {
            unit.widen(&ready.key, &mut wider);
        }
        if wider == held {
            break;
        }
        unit.add_set(&wider);
        held = wider;
    }
    end_effects(executor, unit)
}

#[cold]
fn serve<O: Outlet>(executor: &mut Executor<'_, O>, unit: &mut Unit<'_>) -> Option<u64> {
    // The unit itself may have changed users or limits.
    executor.refresh_if_changed();
    let engine = executor.engine;
    let mut served = Vec::new();
    let reorders = O::FAULT == Some(Fault::ReordersRecords);
    let own = reorders.then(|| executor.local.take_effects());
    while let Some(ready) = executor.local.ready.pop_front() {
        serve_key(executor, unit, &ready, &mut served);
    }
    if let Some(own) = own {
        unit.record(&mut executor.local);
        executor.local.restore_effects(own);
    }
    // Before any client is notified: a change that a reply may depend on has its number.
    let number = unit.record(&mut executor.local);
    tell_changes(executor);
    if O::FAULT == Some(Fault::LosesWakeUps) && served.len() > 1 {
        served.pop();
    }
    for (waiter, mut outcome) in served {
        outcome.record = number;
        tell(engine, &waiter, outcome);
    }
    // A client that was served may be notified of the changes by its own call: behind the reply.
    if !executor.local.events.is_empty() {
        publish_events(
            engine,
            &mut executor.local,
            &mut executor.changes,
            By::Nobody,
        );
        tell_changes(executor);
    }
    number
}

fn serve_key<O: Outlet>(
    executor: &mut Executor<'_, O>,
    unit: &mut Unit<'_>,
    ready: &Ready,
    served: &mut Vec<Served>,
) {
    let key = &ready.key;
    // A client that waits again after its turn stands behind, and does not get a second turn.
    let (mut left, when_gone) = unit.begin_serving(ready.db, key);
    let mut at = 0;
    while left > 0 {
        left -= 1;
        let mut view = unit.view(&mut executor.local, ready.db, executor.now_ms);
        let found = view.find(key, Trace::Quiet);
        let kind = found.and_then(Found::kind);
        // It may have found a key that has expired since.
        view.finish();
        if kind.is_none() && !when_gone {
            return;
        }
        let Some(waiter) = unit.waiter_at(ready.db, key, at) else {
            return;
        };
        let concerned = kind == Some(waiter.kind) || waiter.when_gone;
        if concerned && serve_one(executor, unit, &waiter, served) {
            leave_held(executor, unit, &waiter);
        } else {
            at += 1;
        }
    }
}

/// Runs a waiting call. Returns true if the wait is over.
fn serve_one<O: Outlet>(
    executor: &mut Executor<'_, O>,
    unit: &mut Unit<'_>,
    waiter: &Arc<Waiter>,
    served: &mut Vec<Served>,
) -> bool {
    if !waiter.stripes.iter().all(|stripe| unit.covers(stripe)) {
        run_again(executor.engine, waiter);
        return true;
    }
    // Time was constant for the unit; for this call it is the current time: keys that have expired meanwhile do not exist.
    executor.read_clock();
    let call = Call::of(waiter);
    let mut out = ReplyBuffer::new();
    match may_be_served(executor, call) {
        Ok(true) => {}
        Ok(false) => return true,
        Err(error) => {
            call.refused.store(true, Ordering::Relaxed);
            executor.stats.commands[call.id as usize].rejected.add(1);
            let text = error.text();
            executor.stats.note_error(&text);
            Reply::new(&mut out, call.proto).error_bytes(&text);
            if waiter.end(End::Served) {
                let outcome = Outcome {
                    reply: out,
                    ..Outcome::default()
                };
                served.push((waiter.clone(), outcome));
            }
            return true;
        }
    }
    let handler =
        redline_commands::handler(call.id).expect("a row of the data plane has a handler");
    let bulk_bytes_max = executor.settings.bulk_bytes_max;
    let began_ns = executor.outlet.monotonic_ns();
    let mut ctx = Ctx {
        keys: unit.view(&mut executor.local, waiter.db, executor.now_ms),
        bulk_bytes_max,
        in_script: false,
        reads_every_key: true,
        waiter: Some(waiter),
    };
    let mut reply = Reply::new(&mut out, call.proto);
    let result = handler(&mut ctx, call.args.as_args(), &mut reply);
    ctx.keys.finish();
    if ctx.keys.is_journaled() {
        redline_commands::propagate(&mut ctx.keys, call.id, call.args.as_args());
    }
    match result {
        Ok(()) => {}
        Err(Failure::Stop(Stop::Wait(_))) => return false,
        Err(Failure::Stop(Stop::Gone)) => return true,
        Err(failure) => {
            let error = failure.expect_error();
            let text = error.text();
            executor.stats.note_error(&text);
            executor.stats.commands[call.id as usize].failed.add(1);
            out.clear();
            Reply::new(&mut out, call.proto).error_bytes(&text);
        }
    }
    if call.tracked {
        executor.remember_keys(Token(waiter.token), call.id, call.args.as_args());
    }
    // A call that takes nothing has claimed nothing yet. All its stripes are held, so no other unit can have served it.
    if waiter.ended() == Some(End::Served) || waiter.end(End::Served) {
        let outcome = Outcome {
            reply: out,
            took_ns: executor.outlet.monotonic_ns().saturating_sub(began_ns),
            record: None,
        };
        served.push((waiter.clone(), outcome));
    }
    true
}

/// Repeats the checks that a call has passed when it began to wait. Returns `Ok(false)` if its client is about to be closed.
fn may_be_served<O: Outlet>(executor: &mut Executor<'_, O>, call: &Call) -> Result<bool, Error> {
    let stays = access::permit_after_wait(
        executor,
        &call.info,
        &call.user,
        call.id,
        call.args.as_args(),
    )?;
    // Where keys may be evicted, room is made before the next command: here the stripes of keys in use are held.
    if executor.settings.maxmemory_policy == Policy::NoEviction
        && spec::gate(call.id).flags.has(Flags::DENYOOM)
    {
        executor.local.flush_account(&executor.engine.keyspace);
        if executor.engine.keyspace.over_limit() {
            return Err(errors::OOM);
        }
    }
    Ok(stays)
}

/// Removes a waiter whose wait is over from those of its queues whose stripes are held.
fn leave_held<O: Outlet>(
    executor: &mut Executor<'_, O>,
    unit: &mut Unit<'_>,
    waiter: &Arc<Waiter>,
) {
    for key in &waiter.keys {
        if unit.covers(executor.engine.keyspace.place(key).stripe()) {
            unit.leave_queue(waiter, key);
        }
    }
}

// ---- ends ---------------------------------------------------------------------------------

/// Ends a wait: its client goes on. `came`: the original call, if it is still known.
pub fn finish_wait<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    waiter: &Arc<Waiter>,
    mut outcome: Outcome,
    came: Option<Args<'_>>,
) -> Finished {
    let is_its_own = |wait: &Wait| Arc::ptr_eq(&wait.waiter, waiter);
    if !caller.wait.as_ref().is_some_and(is_its_own) {
        return Finished::Stale;
    }
    caller.info.set_flag(flag::BLOCKED, false);
    let wait = drop_wait(executor, caller).expect("just seen");
    caller.suspended = None;
    let mark = caller.out.mark();
    let ended = waiter.ended();
    let reply_bytes = outcome.reply.len_bytes() as u64;
    match ended {
        Some(End::Served) => {
            caller.note_record(outcome.record);
            caller.out.append(&mut outcome.reply);
        }
        Some(End::TimedOut) => match Call::of(waiter).id {
            id @ (CommandId::Wait | CommandId::Waitaof) => {
                session::replication::write_acknowledged(executor, caller, id);
            }
            _ => caller.reply().null_array(),
        },
        Some(end @ (End::Unblocked | End::Demoted)) => {
            let text = match end {
                End::Demoted => DEMOTED,
                _ => UNBLOCKED,
            };
            executor.stats.note_error(text.as_bytes());
            executor.stats.commands[Call::of(waiter).id as usize]
                .failed
                .add(1);
            caller.reply().error(text);
            caller.closing = end == End::Demoted;
        }
        Some(End::Again) => {
            caller.again = Some(Again {
                waiter: wait.waiter,
                deadline_ms: wait.deadline_ms,
            });
            return Finished::RunsAgain;
        }
        Some(End::Gone) | None => {
            caller.closing = true;
            return Finished::RunsAgain;
        }
    }
    let call = Call::of(waiter);
    if !call.refused.load(Ordering::Relaxed) {
        let stats = &executor.stats.commands[call.id as usize];
        stats.calls.add(1);
        let took_ns = match (ended, wait.took_ns) {
            (Some(End::Served), before) => Some(outcome.took_ns + before.unwrap_or_default()),
            (_, before) => before,
        };
        if let Some(took_ns) = took_ns {
            stats.note_time(took_ns, 1, executor.timing.distributions);
        }
        // The original call: a call that waits may name places in a stream more exactly.
        let args = came.unwrap_or(call.args.as_args());
        figures::log_command(executor, caller, call.id, args, took_ns, reply_bytes);
        count_command(caller);
    }
    caller.settle_reply(mark);
    Finished::Answered
}

/// Drops a session's wait, which has ended or ends now.
pub fn drop_wait<O: Outlet>(executor: &mut Executor<'_, O>, caller: &mut Caller) -> Option<Wait> {
    let wait = caller.wait.take()?;
    wait.waiter.end(End::Gone);
    caller.info.wait.leave();
    if let Some(timer) = wait.timer {
        executor.waits.by_deadline.remove(&timer);
        executor.engine.timed_waits.fetch_sub(1, Ordering::Relaxed);
    }
    if let Some(until) = wait.gate {
        let token = wait.waiter.token;
        executor.waits.at_gate.remove(&token);
        let gate = &executor.engine.keyspace.journal().gate;
        gate.leave(&executor.gate, until, token);
    }
    if wait.waiter.ended() != Some(End::Served) {
        executor.leaving.push(wait.waiter.clone());
        leave_queues(executor);
    }
    Some(wait)
}

/// Removes waiters whose wait is over from their queues. A stripe that is in use is tried again later: a waiter that
/// stays behind for a moment is skipped.
pub fn leave_queues<O: Outlet>(executor: &mut Executor<'_, O>) {
    let space = &executor.engine.keyspace;
    for waiter in std::mem::take(&mut executor.leaving) {
        let mut left = false;
        for key in &waiter.keys {
            let stripe = space.place(key).stripe();
            match Unit::try_one(space, stripe) {
                Some(mut unit) => unit.leave_queue(&waiter, key),
                None => left = true,
            }
        }
        if left {
            executor.leaving.push(waiter);
        }
    }
}

/// Ends the waits whose deadline has passed.
pub fn expire_waits<O: Outlet>(executor: &mut Executor<'_, O>) {
    if executor.waits.by_deadline.is_empty() {
        return;
    }
    let now_ms = executor.outlet.monotonic_ms();
    while let Some(waiter) = executor.waits.pop_expired(now_ms) {
        if waiter.end(End::TimedOut) {
            O::wait_ended(executor, waiter, Outcome::default());
        }
    }
}

/// Has the calls of these sessions run again, which have waited at the journal's gate.
pub fn run_released<O: Outlet>(executor: &mut Executor<'_, O>, tokens: &[WakeToken]) {
    for token in tokens {
        if let Some(waiter) = executor.waits.at_gate.remove(token)
            && waiter.end(End::Again)
        {
            O::wait_ended(executor, waiter, Outcome::default());
        }
    }
}

/// Called after a step of expiry or eviction, which still holds its one stripe: publishes its events, and has the calls
/// run again that wait for the end of their key.
pub fn after_upkeep(engine: &Engine, unit: &mut Unit<'_>, local: &mut Local) {
    let mut changes = Changes::default();
    publish_events(engine, local, &mut changes, By::Nobody);
    changes.tell(engine);
    while let Some(Ready { db, key }) = local.ready.pop_front() {
        let (mut left, mut at) = (unit.begin_serving(db, &key).0, 0);
        while left > 0 {
            left -= 1;
            let Some(waiter) = unit.waiter_at(db, &key, at) else {
                break;
            };
            if waiter.when_gone {
                // It has ended, so the next pass takes it out of the queue.
                run_again(engine, &waiter);
            } else {
                at += 1;
            }
        }
    }
}

fn run_again(engine: &Engine, waiter: &Arc<Waiter>) {
    if waiter.end(End::Again) {
        tell(engine, waiter, Outcome::default());
    }
}

/// Notifies the worker of a waiter that its wait has ended.
pub fn tell(engine: &Engine, waiter: &Arc<Waiter>, outcome: Outcome) {
    let message = Message::WaitEnded(waiter.clone(), outcome);
    engine.send(Token(waiter.token), message);
}

#[cfg(test)]
mod tests {
    use redline_keyspace::{Keyspace, lock::Wake};

    use super::*;

    struct NoBell;

    impl Wake for NoBell {
        fn wake(&self, _: redline_keyspace::lock::WakeToken) {}
    }

    #[test]
    fn waits_end_in_order_and_each_once() {
        let space = Keyspace::of_one_thread(1, Box::new(NoBell));
        let waiter = |token| {
            let wanted = Wanted {
                token,
                db: 0,
                keys: Vec::new(),
                targets: Vec::new(),
                kind: Kind::List,
                when_gone: false,
                call: Box::new(()),
            };
            Arc::new(Waiter::new(&space, wanted))
        };
        let mut waits = Waits::default();
        waits.insert(30, waiter(0));
        let cancelled = waits.insert(20, waiter(1));
        waits.insert(20, waiter(2));
        waits.insert(20, waiter(3));
        assert!(waits.by_deadline.remove(&cancelled).is_some());
        assert_eq!(waits.next_deadline_ms(), Some(20));
        let mut ended = |now_ms| waits.pop_expired(now_ms).map(|waiter| waiter.token);
        assert_eq!(ended(19), None);
        assert_eq!(
            ended(20),
            Some(2),
            "equal deadlines end in the order of asking"
        );
        assert_eq!(ended(25), Some(3));
        assert_eq!(ended(25), None);
        assert_eq!(ended(30), Some(0));
        assert_eq!(ended(u64::MAX), None);
    }
}
