//! EVAL, EVALSHA, SCRIPT: the server's side of a running script.
//!
//! A script holds the script mutex and takes stripes on demand, so undeclared keys work and no other worker sees
//! it half done. Past `busy-reply-threshold` its worker turns its own loop from the interpreter's hook: other
//! sessions are served, those that need what the script holds get -BUSY (with `busy-reply-scope all` nearly all, at the
//! gate: `check` in `exec.rs`), and SCRIPT KILL reaches it.

mod functions;

use std::{borrow::Cow, sync::atomic::Ordering};

use redline_acl::Context;
use redline_commands::Error;
use redline_keyspace::Unit;
use redline_net::clock;
use redline_resp::{Args, Proto, Reply, ReplyBuffer};
use redline_scripting::{
    Family, FunctionRef, Host, Limits, LoadError, Origin, Script, ScriptEnv, ScriptFlags, Tick,
};
use redline_spec::{self as spec, CommandId, Flags};
use redline_types::number;

use crate::{
    access, errors,
    exec::{Compound, Halt},
    session::Caller,
    shared::{Message, Shared, Slow, Unkillable},
    worker::Worker,
};

/// A name of any other length names no script.
const SHA1_HEX_BYTES: usize = 40;
const NO_SCRIPT: Error = Error::line("NOSCRIPT No matching script. Please use EVAL.");
const KILLED: &str = "Script killed by user with SCRIPT KILL...";
const MAY_WRITE: Error =
    Error::line("ERR Can not execute a script with write flag using *_ro command.");

pub(crate) use functions::{
    fcall, fcall_ro, function_delete, function_dump, function_flush, function_kill, function_list,
    function_load, function_restore, function_stats,
};

pub(crate) fn eval(worker: &mut Worker, caller: &mut Caller, args: Args<'_>) -> Result<(), Halt> {
    eval_text(worker, caller, args, false)
}

pub(crate) fn eval_ro(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    eval_text(worker, caller, args, true)
}

fn eval_text(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
    read_only: bool,
) -> Result<(), Halt> {
    let key_count = counted_keys(args, Error::NotInteger)?;
    let mut host = take_host(worker)?;
    let loaded = host.load(&worker.shared.scripts, &args[1], Origin::Eval);
    let result = match loaded {
        Ok(script) => check_flags(worker, script.flags(), read_only)
            .map_err(Halt::from)
            .and_then(|()| {
                let program = Program::Script(&mut host, &script);
                run(worker, caller, program, args, key_count, read_only)
            }),
        Err(error) => Err(load_error(&error).into()),
    };
    worker.host = Some(host);
    result
}

pub(crate) fn evalsha(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    eval_named(worker, caller, args, false)
}

pub(crate) fn evalsha_ro(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    eval_named(worker, caller, args, true)
}

fn eval_named(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
    read_only: bool,
) -> Result<(), Halt> {
    if args[1].len() != SHA1_HEX_BYTES {
        return Err(NO_SCRIPT.into());
    }
    let key_count = counted_keys(args, Error::NotInteger)?;
    let script = worker.shared.scripts.get(&args[1]).ok_or(NO_SCRIPT)?;
    check_flags(worker, script.flags(), read_only)?;
    let mut host = take_host(worker)?;
    let program = Program::Script(&mut host, &script);
    let result = run(worker, caller, program, args, key_count, read_only);
    worker.host = Some(host);
    result
}

fn load_error(error: &LoadError) -> Error {
    Error::Line(Cow::Owned(error.to_string()))
}

/// Refuses what may write where it may not, or memory is over the limit. A script that declares nothing is judged by each
/// of its calls instead.
fn check_flags(worker: &Worker, flags: ScriptFlags, read_only: bool) -> Result<(), Error> {
    if flags.contains(ScriptFlags::UNDECLARED) || flags.contains(ScriptFlags::NO_WRITES) {
        return Ok(());
    }
    if !flags.contains(ScriptFlags::ALLOW_OOM) && worker.shared.keyspace.over_limit() {
        return Err(errors::OOM);
    }
    match read_only {
        true => Err(MAY_WRITE),
        false => Ok(()),
    }
}

/// Returns the flags that the script or function named by a call declares, if it declares anything.
fn declared(shared: &Shared, id: CommandId, args: Args<'_>) -> Option<ScriptFlags> {
    let script_flags = || shared.scripts.get(&args[1]).map(|script| script.flags());
    let flags = match id {
        CommandId::Eval | CommandId::EvalRo => ScriptFlags::declared_by(&args[1]),
        CommandId::Evalsha | CommandId::EvalshaRo => script_flags(),
        CommandId::Fcall | CommandId::FcallRo => {
            let function = shared.libraries.function(&args[1]);
            function.map(|function| function.function().flags)
        }
        _ => None,
    };
    flags.filter(|flags| !flags.contains(ScriptFlags::UNDECLARED))
}

/// May this call write? `by_row`: what its row says, which counts unless it names a script that declares what it does.
pub(crate) fn may_write(shared: &Shared, id: CommandId, args: Args<'_>, by_row: bool) -> bool {
    declared(shared, id, args).map_or(by_row, |flags| !flags.contains(ScriptFlags::NO_WRITES))
}

/// Is this call refused while memory is over the limit? `by_row`: as for [`may_write`].
pub(crate) fn needs_memory(shared: &Shared, id: CommandId, args: Args<'_>, by_row: bool) -> bool {
    let excused = |flags: ScriptFlags| {
        flags.contains(ScriptFlags::NO_WRITES) || flags.contains(ScriptFlags::ALLOW_OOM)
    };
    declared(shared, id, args).map_or(by_row, |flags| !excused(flags))
}

/// How many keys a call names; `bad_count` if that is no number.
fn counted_keys(args: Args<'_>, bad_count: Error) -> Result<usize, Error> {
    let count = number::parse_i64(&args[2]).ok_or(bad_count)?;
    if count > args.len() as i64 - 3 {
        return Err(Error::line(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    usize::try_from(count).map_err(|_| Error::line("ERR Number of keys can't be negative"))
}

/// The worker's interpreter, made when it is first needed. While a script of this worker runs there is none:
/// but then the script mutex keeps every other script out, so nobody comes here.
fn take_host(worker: &mut Worker) -> Result<Host, Halt> {
    if let Some(host) = worker.host.take() {
        return Ok(host);
    }
    if worker.shared.running_script.busy.load(Ordering::Acquire) {
        return Err(busy_error(worker).into());
    }
    let seed = worker.local.rng.u64(..);
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

fn run(
    worker: &mut Worker,
    caller: &mut Caller,
    program: Program<'_>,
    args: Args<'_>,
    key_count: usize,
    read_only: bool,
) -> Result<(), Halt> {
    if worker.is_in_script() {
        return Err(Error::line(words(Family::Redis).denied).into());
    }
    let flags = program.flags();
    let read_only = read_only || flags.contains(ScriptFlags::NO_WRITES);
    let inside_exec = worker.compound.is_some();
    if !inside_exec {
        begin_unit(worker, caller)?;
    }
    if worker.monitored
        && let Ok(id) = worker.shared.names.resolve(&args[0], None)
    {
        // Before what it calls.
        worker.show(caller, id, args, false);
    }
    let running = worker.compound.as_mut();
    let compound = running.expect("made above, or by EXEC");
    compound.in_script = true;
    compound.read_only = read_only;
    let changes_before = compound.changes;
    worker.shared.running_script.begin(changes_before > 0);

    let keys = args.from(3);
    let (db, proto) = (caller.db, caller.proto);
    let mut out = std::mem::take(&mut caller.out);
    let began_ms = worker.timing.call_began_ns / 1_000_000;
    let function_host = match program {
        Program::Script(..) => Ok(None),
        Program::Function(_) => functions::take_host(worker).map(Some),
    };
    let mark = out.mark();
    let mut env = Env {
        worker,
        caller,
        failures: Failures::default(),
        began_ms,
        changes_before,
        flags,
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
            functions::give_host_back(env.worker, host);
        }
        (Program::Function(_), Ok(None)) => unreachable!("a function has an interpreter"),
        (Program::Function(_), Err(error)) => reply.error_bytes(&error.text()),
    }
    let failures = env.failures;
    count_failures(worker, &args[0], out.bytes_since(mark), failures);
    // A script that kept the worker's loop turning may have got pushes into its session meanwhile.
    out.append(&mut caller.out);
    caller.out = out;
    // SELECT inside a script ends with it, for those who look at the client as well.
    caller.db = db;
    caller.card.db.store(db, Ordering::Relaxed);
    let running = worker.compound.as_mut();
    let compound = running.expect("the environment leaves it in place");
    compound.in_script = false;
    compound.read_only = false;
    // Before the locks go: whoever comes next must find neither this script's state, nor lose its own.
    let running = &worker.shared.running_script;
    running.end();
    if running.end_slow() {
        worker.shared.settings.move_epoch();
    }
    if !inside_exec {
        end_unit(worker);
    }
    Ok(())
}

/// Takes the script mutex and makes the unit of a script that is not part of a transaction.
fn begin_unit(worker: &mut Worker, caller: &mut Caller) -> Result<(), Halt> {
    let compound = Compound::new(worker.take_script(caller)?);
    worker.compound = Some(match worker.spare_compound.take() {
        Some(mut spare) => {
            *spare = compound;
            spare
        }
        None => Box::new(compound),
    });
    Ok(())
}

/// Tells of what that unit has changed, and lets go of its stripes and of the script mutex.
fn end_unit(worker: &mut Worker) {
    let mut compound = worker.compound.take().expect("`begin_unit` made it");
    worker.end_compound_effects(&mut compound.unit);
    compound.unit = Unit::none(&worker.shared.keyspace);
    worker.spare_compound = Some(compound);
}

/// Adds the errors that a run has ended with to the statistics of the command that called it. A reply that is an error
/// and was not told of by the interpreter is one, too.
fn count_failures(worker: &Worker, command: &[u8], reply: &[u8], mut failures: Failures) {
    if let Some((b'-', line)) = reply.split_first()
        && failures == Failures::default()
    {
        let line = line.split(|byte| *byte == b'\r').next();
        worker.stats.note_error(line.unwrap_or_default());
        failures.new = true;
    }
    if failures != Failures::default()
        && let Ok(id) = worker.shared.names.resolve(command, None)
    {
        let failed = &worker.stats.commands[id as usize].failed;
        failed.add(failures.counted + u64::from(failures.new));
    }
}

/// The errors that a script has ended with.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Failures {
    /// There was one that no statistics had: however many, the run counts as one that failed.
    new: bool,
    /// Those that were in the statistics: each counts as a failure of its own, as in Redis.
    counted: u64,
}

/// So long a script runs before others can learn what it is: milliseconds. Most end sooner.
const NOTICED_MS: u64 = 10;

/// The server, as the running script sees it.
struct Env<'a, 's> {
    worker: &'a mut Worker<'s>,
    caller: &'a mut Caller,
    began_ms: u64,
    changes_before: u64,
    failures: Failures,
    /// Flags that it declares.
    flags: ScriptFlags,
    /// The call that runs it, and the function that this calls.
    call: Args<'a>,
    function: Option<&'a FunctionRef>,
}

/// Error texts for a script's call that comes to no command.
struct Words {
    unknown: &'static str,
    arity: &'static str,
    denied: &'static str,
}

fn words(family: Family) -> &'static Words {
    match family {
        Family::Redis => &Words {
            unknown: "ERR Unknown Redis command called from script",
            arity: "ERR Wrong number of args calling Redis command from script",
            denied: "ERR This Redis command is not allowed from script",
        },
        Family::Valkey => &Words {
            unknown: "ERR Unknown command called from script",
            arity: "ERR Wrong number of args calling command from script",
            denied: "ERR This Valkey command is not allowed from script",
        },
    }
}

impl Env<'_, '_> {
    fn refusal(&mut self, id: CommandId, args: Args<'_>, words: &Words) -> Option<Error> {
        let gate = spec::gate(id);
        if !gate.lets_pass(args.len()) {
            return Some(Error::line(words.arity));
        }
        if gate.flags.has(Flags::NOSCRIPT) && !self.may_look(id) {
            return Some(Error::line(words.denied));
        }
        if let Err(denied) = self
            .worker
            .check_access(self.caller, id, args, Context::Script)
        {
            let why = access::refusal_text(&self.caller.user, id, args, denied);
            return Some(Error::Line(
                format!("ERR ACL failure in script: {why}").into(),
            ));
        }
        let running = self.worker.compound.as_ref();
        let compound = running.expect("a script runs inside a unit");
        if compound.read_only && gate.flags.has_any(Flags::WRITE.with(Flags::MAY_REPLICATE)) {
            return Some(Error::line(
                "ERR Write commands are not allowed from read-only scripts.",
            ));
        }
        // What declares something was judged before it began.
        if gate.flags.has(Flags::DENYOOM)
            && self.flags.contains(ScriptFlags::UNDECLARED)
            && compound.changes == self.changes_before
            && self.worker.shared.keyspace.over_limit()
        {
            return Some(errors::OOM);
        }
        None
    }
}

impl Env<'_, '_> {
    /// Is this a call that tests want to make from scripts, and have they asked for it? Others of the commands that
    /// scripts are denied would run a script in a script, wait, or change the session around it.
    fn may_look(&self, id: CommandId) -> bool {
        matches!(id, CommandId::Debug | CommandId::ClientList)
            && self.worker.shared.scripts_may_look.load(Ordering::Relaxed)
    }
}

impl ScriptEnv for Env<'_, '_> {
    fn call(&mut self, args: Args<'_>, family: Family, proto: Proto, reply: &mut ReplyBuffer) {
        let words = words(family);
        let names = &self.worker.shared.names;
        let refusal = match names.resolve(&args[0], args.get(1)) {
            Err(_) => Err(Error::line(words.unknown)),
            Ok(id) => match self.refusal(id, args, words) {
                None => Ok(id),
                Some(error) => {
                    self.worker.stats.commands[id as usize].rejected.add(1);
                    Err(error)
                }
            },
        };
        std::mem::swap(&mut self.caller.out, reply);
        let own_proto = std::mem::replace(&mut self.caller.proto, proto);
        let outcome = match refusal {
            Ok(id) => self.worker.call(self.caller, id, args),
            Err(error) => Err(Halt::Error(error)),
        };
        self.worker.sweep();
        if let Err(Halt::Error(error)) = outcome {
            let text = error.text();
            self.caller.out.clear();
            self.caller.reply().error_bytes(&text);
            self.worker.stats.note_error(&text);
        }
        self.caller.proto = own_proto;
        std::mem::swap(&mut self.caller.out, reply);
        let running = self.worker.compound.as_ref();
        let compound = running.expect("a script runs inside a unit");
        if compound.changes > self.changes_before {
            self.worker.shared.running_script.note_write();
        }
    }

    fn failed(&mut self, error: &[u8], counted: bool) {
        if counted {
            self.failures.counted += 1;
        } else {
            self.worker.stats.note_error(error);
            self.failures.new = true;
        }
    }

    fn tick(&mut self) -> Tick {
        let threshold_ms = self.worker.settings.busy_reply_threshold_ms;
        let running = &self.worker.shared.running_script;
        let ran_ms = clock::monotonic_ms() - self.began_ms;
        if ran_ms >= NOTICED_MS {
            running.notice(|| self.described());
        }
        // Who is on another worker may end it before the threshold, too.
        if running.is_killed() {
            return Tick::Kill(KILLED.into());
        }
        if threshold_ms == 0 || ran_ms < threshold_ms {
            return Tick::Continue;
        }
        if !running.busy.load(Ordering::Acquire) {
            running.notice(|| self.described());
            running.set_busy();
            self.worker.shared.settings.move_epoch();
            crate::log::warning(&format!(
                "Slow script detected: still in execution after {threshold_ms} milliseconds. SCRIPT KILL ends it."
            ));
            for other in self.worker.shared.workers() {
                other.mailbox.send(Message::ScriptBusy);
            }
        }
        // For the script, time stands still.
        let (now_ms, clock) = (self.worker.now_ms, self.worker.local.clock);
        // What this script has made ready is served at its end, not by others' units, and those have records of their own.
        let ready = std::mem::take(&mut self.worker.local.ready);
        let effects = self.worker.local.take_effects();
        let compound = self.worker.compound.take();
        self.worker.depth += 1;
        self.worker.turn(false);
        self.worker.depth -= 1;
        self.worker.local.restore_effects(effects);
        self.worker.compound = compound;
        self.worker.local.ready = ready;
        (self.worker.now_ms, self.worker.local.clock) = (now_ms, clock);
        if self.worker.shared.running_script.is_killed() || self.worker.stop {
            return Tick::Kill(KILLED.into());
        }
        Tick::Continue
    }

    fn log(&mut self, level: i64, text: &[u8]) {
        log_line(level, text);
    }

    fn acl_check(&mut self, args: Args<'_>) -> Option<bool> {
        let names = &self.worker.shared.names;
        let id = names.resolve(&args[0], args.get(1)).ok()?;
        Some(access::call_allowed(&self.caller.user, id, args).is_ok())
    }

    /// Effects have one destination, the journal, which gets them in any case.
    fn set_repl(&mut self, _: u8) {}
}

impl Env<'_, '_> {
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

fn log_line(level: i64, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    match level {
        ..=0 => crate::log::debug(&text),
        1 => crate::log::verbose(&text),
        2 => crate::log::notice(&text),
        _ => crate::log::warning(&text),
    }
}

fn busy_error(worker: &Worker) -> Error {
    worker.shared.running_script.busy_error()
}

pub(crate) fn script_load(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut host = take_host(worker)?;
    let loaded = host.load(&worker.shared.scripts, &args[2], Origin::Load);
    worker.host = Some(host);
    let script = loaded.map_err(|error| load_error(&error))?;
    caller.reply().bulk(script.sha());
    Ok(())
}

pub(crate) fn script_exists(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let shas = args.from(2);
    caller.reply().array(shas.len());
    for sha in shas.iter() {
        let exists = worker.shared.scripts.exists(sha);
        caller.reply().integer(i64::from(exists));
    }
    Ok(())
}

pub(crate) fn script_show(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let script = Some(&args[2])
        .filter(|sha| sha.len() == SHA1_HEX_BYTES)
        .and_then(|sha| worker.shared.scripts.get(sha))
        .ok_or(Error::line("NOSCRIPT No matching script."))?;
    caller.reply().bulk(script.source());
    Ok(())
}

pub(crate) fn script_flush(
    worker: &mut Worker,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut words = redline_commands::Words::new(CommandId::ScriptFlush, &args, 2);
    let _ = words.flag("SYNC") || words.flag("ASYNC");
    if !words.is_empty() {
        return Err(Error::line("ERR SCRIPT FLUSH only support SYNC|ASYNC option").into());
    }
    worker.shared.scripts.flush();
    caller.reply().ok();
    Ok(())
}

pub(crate) fn script_kill(
    worker: &mut Worker,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    kill(worker, caller, false)
}

/// There is no debugger, so none can be asked for.
pub(crate) fn script_debug(
    _: &mut Worker,
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

/// Ends the script or the function that runs. One is not ended by the word for the other.
fn kill(worker: &mut Worker, caller: &mut Caller, is_function: bool) -> Result<(), Halt> {
    let running = &worker.shared.running_script;
    let run = running.look();
    let slow = running.slow();
    let killed = if slow.is_none_or(|slow| slow.is_function == is_function) || run.has_written() {
        running.kill(run)
    } else if running.busy.load(Ordering::Acquire) {
        return Err(busy_error(worker).into());
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
