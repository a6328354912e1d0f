//! EVAL, EVALSHA, SCRIPT: the server's side of a running script.
//!
//! A script holds the script mutex and takes stripes on demand, so undeclared keys work and no other worker sees it
//! half done. Past `busy-reply-threshold` its worker turns its own loop from the interpreter's hook: other sessions are
//! served, those that need the script's stripes get -BUSY (with `busy-reply-scope all` nearly all, at the gate: `check`
//! in `executor/run.rs`), and SCRIPT KILL works.

pub mod functions;

use std::{borrow::Cow, sync::atomic::Ordering};

use redline_acl::Context;
use redline_commands::Error;
use redline_keyspace::{Keyspace, Unit};
use redline_resp::{Args, Proto, Reply, ReplyBuffer};
use redline_scripting::{
    Family, FunctionRef, Host, Limits, LoadError, Origin, Script, ScriptEnv, ScriptFlags, Tick,
};
use redline_spec::{self as spec, CommandId, Flags};
use redline_types::number;

use crate::{
    caller::Caller,
    engine::{Engine, Message},
    errors,
    executor::{Compound, Executor, Halt, Level, Outlet, access, block, figures, slots, units},
    refusals::Reason,
    running_script::{Slow, Unkillable},
};

/// Length of a script's name: a name of any other length is unknown.
const SHA1_HEX_BYTES: usize = 40;
const NO_SCRIPT: Error = Error::line("NOSCRIPT No matching script. Please use EVAL.");
const KILLED: &str = "Script killed by user with SCRIPT KILL...";
const MAY_WRITE: Error =
    Error::line("ERR Can not execute a script with write flag using *_ro command.");

pub(crate) use functions::{
    fcall, fcall_ro, function_delete, function_dump, function_flush, function_kill, function_list,
    function_load, function_restore, function_stats,
};

pub(crate) fn eval<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    eval_text(executor, caller, args, false)
}

pub(crate) fn eval_ro<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    eval_text(executor, caller, args, true)
}

fn eval_text<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
    read_only: bool,
) -> Result<(), Halt> {
    let key_count = counted_keys(args, Error::NotInteger)?;
    let mut host = take_host(executor)?;
    let loaded = host.load(&executor.engine.scripts, &args[1], Origin::Eval);
    let result = match loaded {
        Ok(script) => check_flags(executor, script.flags(), read_only)
            .map_err(Halt::from)
            .and_then(|()| {
                let program = Program::Script(&mut host, &script);
                run(executor, caller, program, args, key_count, read_only)
            }),
        Err(error) => Err(load_error(&error).into()),
    };
    executor.host = Some(host);
    result
}

pub(crate) fn evalsha<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    eval_named(executor, caller, args, false)
}

pub(crate) fn evalsha_ro<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    eval_named(executor, caller, args, true)
}

fn eval_named<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
    read_only: bool,
) -> Result<(), Halt> {
    if args[1].len() != SHA1_HEX_BYTES {
        return Err(NO_SCRIPT.into());
    }
    let key_count = counted_keys(args, Error::NotInteger)?;
    let script = executor.engine.scripts.get(&args[1]).ok_or(NO_SCRIPT)?;
    check_flags(executor, script.flags(), read_only)?;
    let mut host = take_host(executor)?;
    let program = Program::Script(&mut host, &script);
    let result = run(executor, caller, program, args, key_count, read_only);
    executor.host = Some(host);
    result
}

fn load_error(error: &LoadError) -> Error {
    Error::Line(Cow::Owned(error.to_string()))
}

/// Refuses a script that may not run in a cluster, or may write where it may not, while nothing is changed, or while memory is over the limit. Without declared flags each of
/// its calls is checked instead.
fn check_flags<O: Outlet>(
    executor: &Executor<'_, O>,
    flags: ScriptFlags,
    read_only: bool,
) -> Result<(), Error> {
    if flags.contains(ScriptFlags::NO_CLUSTER) && executor.engine.keyspace.is_of_cluster() {
        return Err(Error::line(
            "ERR Can not run script on cluster, 'no-cluster' flag is set.",
        ));
    }
    if flags.contains(ScriptFlags::UNDECLARED) || flags.contains(ScriptFlags::NO_WRITES) {
        return Ok(());
    }
    // As in Redis before it begins: nothing that it does would be kept.
    if let Some(error) = executor.engine.refusals.of_changes(executor.refusals) {
        return Err(error);
    }
    if !flags.contains(ScriptFlags::ALLOW_OOM) && executor.engine.keyspace.over_limit() {
        return Err(errors::OOM);
    }
    match read_only {
        true => Err(MAY_WRITE),
        false => Ok(()),
    }
}

/// Returns the declared flags of the script or function named by a call, if it declares any.
fn declared(engine: &Engine, id: CommandId, args: Args<'_>) -> Option<ScriptFlags> {
    let script_flags = || engine.scripts.get(&args[1]).map(|script| script.flags());
    let flags = match id {
        CommandId::Eval | CommandId::EvalRo => ScriptFlags::declared_by(&args[1]),
        CommandId::Evalsha | CommandId::EvalshaRo => script_flags(),
        CommandId::Fcall | CommandId::FcallRo => {
            let function = engine.libraries.function(&args[1]);
            function.map(|function| function.function().flags)
        }
        _ => None,
    };
    flags.filter(|flags| !flags.contains(ScriptFlags::UNDECLARED))
}

/// Returns true if this call may write. `by_row`: the row's value, used unless the call names a script that declares flags.
pub(crate) fn may_write(engine: &Engine, id: CommandId, args: Args<'_>, by_row: bool) -> bool {
    declared(engine, id, args).map_or(by_row, |flags| !flags.contains(ScriptFlags::NO_WRITES))
}

/// Returns true if this call is refused while memory is over the limit. `by_row`: as for [`may_write`].
pub(crate) fn needs_memory(engine: &Engine, id: CommandId, args: Args<'_>, by_row: bool) -> bool {
    let excused = |flags: ScriptFlags| {
        flags.contains(ScriptFlags::NO_WRITES) || flags.contains(ScriptFlags::ALLOW_OOM)
    };
    declared(engine, id, args).map_or(by_row, |flags| !excused(flags))
}

/// Returns the number of keys that a call names; `bad_count` if that is no number.
fn counted_keys(args: Args<'_>, bad_count: Error) -> Result<usize, Error> {
    let count = number::parse_i64(&args[2]).ok_or(bad_count)?;
    if count > args.len() as i64 - 3 {
        return Err(Error::line(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    usize::try_from(count).map_err(|_| Error::line("ERR Number of keys can't be negative"))
}

/// Takes the worker's interpreter, made at its first use. While a script of this worker runs there is none: but then
/// the script mutex keeps every other script out, so this is not called.
fn take_host<O: Outlet>(executor: &mut Executor<'_, O>) -> Result<Host, Halt> {
    if let Some(host) = executor.host.take() {
        return Ok(host);
    }
    if executor.engine.running_script.busy.load(Ordering::Acquire) {
        return Err(busy_error(executor).into());
    }
    let seed = executor.local.rng.u64(..);
    Host::new(Limits::default(), seed)
        .ok_or_else(|| Error::line("ERR the script interpreter could not be started").into())
}

/// The script or function to run.
enum Program<'a> {
    Script(&'a mut Host, &'a Script),
    Function(&'a FunctionRef),
}

impl Program<'_> {
    fn flags(&self) -> ScriptFlags {
        match self {
            Program::Script(_, script) => script.flags(),
            Program::Function(function) => function.function().flags,
        }
    }
}

fn run<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    program: Program<'_>,
    args: Args<'_>,
    key_count: usize,
    read_only: bool,
) -> Result<(), Halt> {
    if units::is_in_script(executor) {
        return Err(Error::line(call_errors(Family::Redis).denied).into());
    }
    let flags = program.flags();
    let read_only = read_only || flags.contains(ScriptFlags::NO_WRITES);
    let inside_exec = executor.compound.is_some();
    let keys = args.from(3);
    let slot = keys.first(key_count).iter().next();
    let slot = slot.map(redline_slot::slot_of);
    if !inside_exec {
        begin_unit(executor, caller)?;
        keep_slot(executor, caller, slot, args)?;
    }
    if executor.monitored
        && let Ok(id) = executor.engine.names.resolve(&args[0], None)
    {
        // Before the commands that it calls.
        figures::show(executor, caller, id, args, false);
    }
    let running = executor.compound.as_mut();
    let compound = running.expect("made above, or by EXEC");
    compound.in_script = true;
    compound.read_only = read_only;
    let changes_before = compound.changes;
    executor.engine.running_script.begin(changes_before > 0);

    let (db, proto) = (caller.db, caller.proto);
    let mut out = std::mem::take(&mut caller.out);
    let began_ms = executor.timing.call_began_ns / 1_000_000;
    let function_host = match program {
        Program::Script(..) => Ok(None),
        Program::Function(_) => functions::take_host(executor).map(Some),
    };
    let mark = out.mark();
    let mut env = Env {
        executor,
        caller,
        failures: Failures::default(),
        began_ms,
        changes_before,
        flags,
        slot,
        call: args,
        function: match program {
            Program::Script(..) => None,
            Program::Function(function) => Some(function),
        },
    };
    let reply = &mut Reply::new(&mut out, proto);
    let (keys, argv) = (keys.first(key_count), keys.from(key_count));
    match (program, function_host) {
        (Program::Script(host, script), _) => host.eval(script, keys, argv, &mut env, reply),
        (Program::Function(function), Ok(Some(mut host))) => {
            host.call(function, keys, argv, &mut env, reply);
            functions::give_host_back(env.executor, host);
        }
        (Program::Function(_), Ok(None)) => unreachable!("a function has an interpreter"),
        (Program::Function(_), Err(error)) => reply.error_bytes(&error.text()),
    }
    let failures = env.failures;
    count_failures(executor, &args[0], out.bytes_since(mark), failures);
    // A script during which the loop turned may have pushes in its session by now.
    out.append(&mut caller.out);
    caller.out = out;
    // SELECT inside a script ends with it, in the client's info as well.
    caller.db = db;
    caller.info.db.store(db, Ordering::Relaxed);
    let running = executor.compound.as_mut();
    let compound = running.expect("the environment leaves it in place");
    compound.in_script = false;
    compound.read_only = false;
    // Before the locks are released: the next script must neither find this one's state, nor lose its own.
    let running = &executor.engine.running_script;
    running.end();
    if running.end_slow() {
        executor.engine.settings.move_epoch();
    }
    if !inside_exec {
        end_unit(executor, caller);
    }
    Ok(())
}

/// Takes the script mutex and creates the unit of a script that is not part of a transaction.
fn begin_unit<O: Outlet>(executor: &mut Executor<'_, O>, caller: &mut Caller) -> Result<(), Halt> {
    let compound = Compound::new(units::take_script(executor, caller)?);
    // The role may have changed before; its calls are checked one by one.
    executor.refresh_if_changed();
    executor.compound = Some(match executor.spare_compound.take() {
        Some(mut spare) => {
            *spare = compound;
            spare
        }
        None => Box::new(compound),
    });
    Ok(())
}

/// Takes the stripe of the declared keys in a cluster, and refuses the script if their slot has ceased to be served since it
/// was judged: its client is told where to go, which the script could not do later.
fn keep_slot<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    slot: Option<u16>,
    args: Args<'_>,
) -> Result<(), Halt> {
    let (Some(slot), true) = (slot, executor.engine.keyspace.is_of_cluster()) else {
        return Ok(());
    };
    if let Some(compound) = &mut executor.compound {
        compound.unit.add(Keyspace::stripe_of_slot(slot));
    }
    let Ok(id) = executor.engine.names.resolve(&args[0], None) else {
        return Ok(());
    };
    let Some(mut compound) = executor.compound.take() else {
        return Ok(());
    };
    let judged = slots::check_again(executor, caller, id, args, &mut compound.unit);
    executor.compound = Some(compound);
    judged.map_err(|refusal| {
        end_unit(executor, caller);
        refusal.halt()
    })
}

/// Publishes the changes of that unit, and releases its stripes and the script mutex.
fn end_unit<O: Outlet>(executor: &mut Executor<'_, O>, caller: &mut Caller) {
    let mut compound = executor.compound.take().expect("`begin_unit` made it");
    caller.note_seen(&compound.unit);
    caller.note_record(block::end_compound_effects(executor, &mut compound.unit));
    compound.unit = Unit::none(&executor.engine.keyspace);
    executor.spare_compound = Some(compound);
}

/// Adds the errors that a run has ended with to the statistics of the command that called it. An error reply that the
/// interpreter has not reported is one, too.
fn count_failures<O: Outlet>(
    executor: &Executor<'_, O>,
    command: &[u8],
    reply: &[u8],
    mut failures: Failures,
) {
    if let Some((b'-', line)) = reply.split_first()
        && failures == Failures::default()
    {
        let line = line.split(|byte| *byte == b'\r').next();
        executor.stats.note_error(line.unwrap_or_default());
        failures.new = true;
    }
    if failures != Failures::default()
        && let Ok(id) = executor.engine.names.resolve(command, None)
    {
        let failed = &executor.stats.commands[id as usize].failed;
        failed.add(failures.counted + u64::from(failures.new));
    }
}

/// Errors that a script has ended with.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Failures {
    /// True if there was one not yet in the statistics: however many, the run counts as one that failed.
    new: bool,
    /// Number of those already in the statistics: each counts as a failure of its own, as in Redis.
    counted: u64,
}

/// Time after which a running script is described to other clients: milliseconds. Most end sooner.
const NOTICED_MS: u64 = 10;

/// The server's interface for the running script.
struct Env<'a, 's, O: Outlet> {
    executor: &'a mut Executor<'s, O>,
    caller: &'a mut Caller,
    began_ms: u64,
    changes_before: u64,
    failures: Failures,
    /// Declared flags of the script.
    flags: ScriptFlags,
    /// Slot of the keys so far, the declared ones included.
    slot: Option<u16>,
    /// The call that runs it, and the function that is called.
    call: Args<'a>,
    function: Option<&'a FunctionRef>,
}

/// Error texts for a script's call that leads to no command.
struct CallErrors {
    unknown: &'static str,
    arity: &'static str,
    denied: &'static str,
}

fn call_errors(family: Family) -> &'static CallErrors {
    match family {
        Family::Redis => &CallErrors {
            unknown: "ERR Unknown Redis command called from script",
            arity: "ERR Wrong number of args calling Redis command from script",
            denied: "ERR This Redis command is not allowed from script",
        },
        Family::Valkey => &CallErrors {
            unknown: "ERR Unknown command called from script",
            arity: "ERR Wrong number of args calling command from script",
            denied: "ERR This Valkey command is not allowed from script",
        },
    }
}

impl<O: Outlet> Env<'_, '_, O> {
    fn refusal(&mut self, id: CommandId, args: Args<'_>, errors: &CallErrors) -> Option<Error> {
        let gate = spec::gate(id);
        if !gate.lets_pass(args.len()) {
            return Some(Error::line(errors.arity));
        }
        if gate.flags.has(Flags::NOSCRIPT) && !self.may_look(id) {
            return Some(Error::line(errors.denied));
        }
        if let Err(denied) =
            access::check_access(self.executor, self.caller, id, args, Context::Script)
        {
            let why = access::refusal_text(&self.caller.user, id, args, denied);
            return Some(Error::Line(
                format!("ERR ACL failure in script: {why}").into(),
            ));
        }
        let running = self.executor.compound.as_ref();
        let compound = running.expect("a script runs inside a unit");
        if compound.read_only && gate.flags.has_any(Flags::WRITE.with(Flags::MAY_REPLICATE)) {
            return Some(Error::line(
                "ERR Write commands are not allowed from read-only scripts.",
            ));
        }
        if gate.flags.has(Flags::WRITE)
            && let Some(error) = self
                .executor
                .engine
                .refusals
                .of_changes(self.executor.refusals)
        {
            return Some(error);
        }
        let refusals = self.executor.refusals;
        if gate.flags.has(Flags::WRITE) && refusals.has(Reason::ReadOnly) {
            return Some(errors::READ_ONLY);
        }
        if !gate.flags.has(Flags::STALE) && refusals.has(Reason::Stale) {
            return Some(errors::STALE_SCRIPT);
        }
        // Declared flags were checked before it began.
        if gate.flags.has(Flags::DENYOOM)
            && self.flags.contains(ScriptFlags::UNDECLARED)
            && compound.changes == self.changes_before
            && self.executor.engine.keyspace.over_limit()
        {
            return Some(errors::OOM);
        }
        // A script without declared flags may, as ever, go from slot to slot.
        let goes_anywhere = self.flags.contains(ScriptFlags::UNDECLARED)
            || self.flags.contains(ScriptFlags::ALLOW_CROSS_SLOT_KEYS);
        let own = (!goes_anywhere).then_some(&mut self.slot);
        slots::check_in_script(self.executor, self.caller, own, id, args).err()
    }
}

impl<O: Outlet> Env<'_, '_, O> {
    /// Returns true if this is a call that tests make from scripts, and they have enabled it. The other commands denied
    /// to scripts would run a script in a script, wait, or change the session around it.
    fn may_look(&self, id: CommandId) -> bool {
        matches!(id, CommandId::Debug | CommandId::ClientList)
            && self
                .executor
                .engine
                .scripts_may_look
                .load(Ordering::Relaxed)
    }
}

impl<O: Outlet> ScriptEnv for Env<'_, '_, O> {
    fn call(&mut self, args: Args<'_>, family: Family, proto: Proto, reply: &mut ReplyBuffer) {
        let errors = call_errors(family);
        let names = &self.executor.engine.names;
        let refusal = match names.resolve(&args[0], args.get(1)) {
            Err(_) => Err(Error::line(errors.unknown)),
            Ok(id) => match self.refusal(id, args, errors) {
                None => Ok(id),
                Some(error) => {
                    self.executor.stats.commands[id as usize].rejected.add(1);
                    Err(error)
                }
            },
        };
        std::mem::swap(&mut self.caller.out, reply);
        let own_proto = std::mem::replace(&mut self.caller.proto, proto);
        let outcome = match refusal {
            Ok(id) => self.executor.call(self.caller, id, args),
            Err(error) => Err(Halt::Error(error)),
        };
        self.executor.sweep();
        if let Err(Halt::Error(error)) = outcome {
            let text = error.text();
            self.caller.out.clear();
            self.caller.reply().error_bytes(&text);
            self.executor.stats.note_error(&text);
        }
        self.caller.proto = own_proto;
        std::mem::swap(&mut self.caller.out, reply);
        let running = self.executor.compound.as_ref();
        let compound = running.expect("a script runs inside a unit");
        if compound.changes > self.changes_before {
            self.executor.engine.running_script.note_write();
        }
    }

    fn failed(&mut self, error: &[u8], counted: bool) {
        if counted {
            self.failures.counted += 1;
        } else {
            self.executor.stats.note_error(error);
            self.failures.new = true;
        }
    }

    fn tick(&mut self) -> Tick {
        let threshold_ms = self.executor.settings.busy_reply_threshold_ms;
        let running = &self.executor.engine.running_script;
        let ran_ms = self.executor.outlet.monotonic_ms() - self.began_ms;
        if ran_ms >= NOTICED_MS {
            running.notice(|| self.described());
        }
        // A client on another worker may kill it before the threshold, too.
        if running.is_killed() {
            return Tick::Kill(KILLED.into());
        }
        if threshold_ms == 0 || ran_ms < threshold_ms {
            return Tick::Continue;
        }
        if !running.busy.load(Ordering::Acquire) {
            running.notice(|| self.described());
            running.set_busy();
            self.executor.engine.settings.move_epoch();
            let text = format!(
                "Slow script detected: still in execution after {threshold_ms} milliseconds. SCRIPT KILL ends it."
            );
            O::log(Level::Warning, &text);
            for other in self.executor.engine.executors() {
                other.mailbox.send(Message::ScriptBusy);
            }
        }
        // For the script, time is constant.
        let (now_ms, clock) = (self.executor.now_ms, self.executor.local.clock);
        // Keys that this script has made ready are served at its end, not by others' units, which have records of their own.
        let ready = std::mem::take(&mut self.executor.local.ready);
        let effects = self.executor.local.take_effects();
        let compound = self.executor.compound.take();
        self.executor.depth += 1;
        O::turn(self.executor);
        self.executor.depth -= 1;
        self.executor.local.restore_effects(effects);
        self.executor.compound = compound;
        self.executor.local.ready = ready;
        (self.executor.now_ms, self.executor.local.clock) = (now_ms, clock);
        if self.executor.engine.running_script.is_killed() || self.executor.outlet.stops() {
            return Tick::Kill(KILLED.into());
        }
        Tick::Continue
    }

    fn log(&mut self, level: i64, text: &[u8]) {
        log_line::<O>(level, text);
    }

    fn acl_check(&mut self, args: Args<'_>) -> Option<bool> {
        let names = &self.executor.engine.names;
        let id = names.resolve(&args[0], args.get(1)).ok()?;
        Some(access::call_allowed(&self.caller.user, id, args).is_ok())
    }

    /// Does nothing: effects have one destination, the journal, which gets them in any case.
    fn set_repl(&mut self, _: u8) {}
}

impl<O: Outlet> Env<'_, '_, O> {
    /// Returns a description of the script or function that runs, to be shown to other clients.
    fn described(&self) -> Slow {
        let name = |function: &FunctionRef| function.function().name.clone().into_bytes();
        Slow {
            is_function: self.function.is_some(),
            name: self.function.map(name).unwrap_or_default(),
            command: self.call.iter().map(<[u8]>::to_vec).collect(),
            began_ms: self.began_ms,
        }
    }
}

fn log_line<O: Outlet>(level: i64, text: &[u8]) {
    let level = match level {
        ..=0 => Level::Debug,
        1 => Level::Verbose,
        2 => Level::Notice,
        _ => Level::Warning,
    };
    O::log(level, &String::from_utf8_lossy(text));
}

fn busy_error<O: Outlet>(executor: &Executor<'_, O>) -> Error {
    executor.engine.running_script.busy_error()
}

pub(crate) fn script_load<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut host = take_host(executor)?;
    let loaded = host.load(&executor.engine.scripts, &args[2], Origin::Load);
    executor.host = Some(host);
    let script = loaded.map_err(|error| load_error(&error))?;
    caller.reply().bulk(script.sha());
    Ok(())
}

pub(crate) fn script_exists<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let shas = args.from(2);
    caller.reply().array(shas.len());
    for sha in shas.iter() {
        let exists = executor.engine.scripts.exists(sha);
        caller.reply().integer(i64::from(exists));
    }
    Ok(())
}

pub(crate) fn script_show<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let script = Some(&args[2])
        .filter(|sha| sha.len() == SHA1_HEX_BYTES)
        .and_then(|sha| executor.engine.scripts.get(sha))
        .ok_or(Error::line("NOSCRIPT No matching script."))?;
    caller.reply().bulk(script.source());
    Ok(())
}

pub(crate) fn script_flush<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut words = redline_commands::Words::new(CommandId::ScriptFlush, &args, 2);
    let _ = words.flag("SYNC") || words.flag("ASYNC");
    if !words.is_empty() {
        return Err(Error::line("ERR SCRIPT FLUSH only support SYNC|ASYNC option").into());
    }
    executor.engine.scripts.flush();
    caller.reply().ok();
    Ok(())
}

pub(crate) fn script_kill<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    kill(executor, caller, false)
}

/// Refuses SCRIPT DEBUG: there is no debugger.
pub(crate) fn script_debug<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut words = redline_commands::Words::new(CommandId::ScriptDebug, &args, 2);
    if words.flag("YES") || words.flag("SYNC") {
        return Err(Error::line("ERR there is no script debugger in this server").into());
    }
    if !words.flag("NO") {
        return Err(Error::line("ERR Use SCRIPT DEBUG YES/SYNC/NO").into());
    }
    caller.reply().ok();
    Ok(())
}

/// Kills the running script or function. A script is not killed by FUNCTION KILL, nor the reverse.
fn kill<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    is_function: bool,
) -> Result<(), Halt> {
    let running = &executor.engine.running_script;
    let run = running.look();
    let slow = running.slow();
    let killed = if slow.is_none_or(|slow| slow.is_function == is_function) || run.has_written() {
        running.kill(run)
    } else if running.busy.load(Ordering::Acquire) {
        return Err(busy_error(executor).into());
    } else {
        Err(Unkillable::Over)
    };
    killed.map_err(|reason| {
        Error::line(match reason {
            Unkillable::Over => "NOTBUSY No scripts in execution right now.",
            Unkillable::Wrote => "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        })
    })?;
    caller.reply().ok();
    Ok(())
}
