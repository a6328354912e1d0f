//! FCALL and FUNCTION: the libraries of functions, which live in one interpreter that all workers share.
//!
//! The holder of the script mutex has that interpreter. So a library is loaded, replaced or deleted for all workers at
//! once, and the state that it keeps between calls is the same for all of them.

use std::{
    borrow::Cow,
    sync::{PoisonError, atomic::Ordering},
};

use redline_commands::{Error, Words};
use redline_keyspace::Unit;
use redline_rdb::functions as payload;
use redline_resp::{Args, Proto, ReplyBuffer};
use redline_scripting::{
    Family, FunctionRef, Host, Libraries, Library, Limits, RestorePolicy, ScriptEnv, Tick,
};
use redline_spec::CommandId;
use redline_types::glob::{self, Case};

use super::{Program, busy_error, call_errors, check_flags, counted_keys, kill, log_line, run};
use crate::{
    caller::Caller,
    executor::{Executor, Halt, Outlet, block, units},
};

/// Time limit for the text of a library.
const LOAD_MS_MAX: u64 = 500;

pub(crate) fn fcall<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    call(executor, caller, args, false)
}

pub(crate) fn fcall_ro<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    call(executor, caller, args, true)
}

fn call<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
    read_only: bool,
) -> Result<(), Halt> {
    let function = find(executor, &args[1])?;
    let bad_count = Error::line("ERR Bad number of keys provided");
    let key_count = counted_keys(args, bad_count)?;
    check_flags(executor, function.function().flags, read_only)?;
    run(
        executor,
        caller,
        Program::Function(&function),
        args,
        key_count,
        read_only,
    )
}

fn find<O: Outlet>(executor: &Executor<'_, O>, name: &[u8]) -> Result<FunctionRef, Error> {
    let found = executor.engine.libraries.function(name);
    found.ok_or(Error::line("ERR Function not found"))
}

/// Takes the interpreter of the libraries; the caller holds the script mutex and gives it back with [`give_host_back`].
pub(super) fn take_host<O: Outlet>(executor: &mut Executor<'_, O>) -> Result<Host, Error> {
    let host = executor
        .engine
        .function_host
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(host) = host {
        return Ok(host);
    }
    let seed = executor.local.rng.u64(..);
    Host::for_functions(Limits::default(), seed)
        .ok_or_else(|| Error::line("ERR the script interpreter could not be started"))
}

pub(super) fn give_host_back<O: Outlet>(executor: &Executor<'_, O>, host: Host) {
    *executor
        .engine
        .function_host
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(host);
}

/// Takes the script mutex for a call that may run.
fn take_script<'e, O: Outlet>(
    executor: &mut Executor<'e, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<Unit<'e>, Halt> {
    units::take_for_call(executor, caller, args, |executor, caller| {
        units::take_script(executor, caller)
    })
}

/// Changes the libraries, under the script mutex, and records the call in the journal.
fn change<O: Outlet, R>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
    change: impl FnOnce(&Libraries, &mut Host, &mut LoadEnv<'_, O>) -> Result<R, Error>,
) -> Result<R, Halt> {
    let mut held = match executor.compound.is_some() {
        true => None,
        false => Some(take_script(executor, caller, args)?),
    };
    let result = take_host(executor).and_then(|mut host| {
        let mut env = LoadEnv::new(&executor.outlet);
        let result = change(&executor.engine.libraries, &mut host, &mut env);
        give_host_back(executor, host);
        result
    });
    if result.is_ok() && executor.engine.keyspace.journal().is_attached() {
        let compound = executor
            .compound
            .as_mut()
            .map(|compound| &mut compound.unit);
        let unit = held.as_mut().or(compound);
        let unit = unit.expect("the libraries are changed in a unit");
        unit.view(&mut executor.local, caller.db, executor.now_ms)
            .propagate(args.iter());
    }
    if let Some(unit) = held {
        caller.note_record(block::commit(executor, unit));
    }
    let result = result?;
    // Redis counts a change of the libraries as a change of the data.
    executor.local.changes += 1;
    Ok(result)
}

/// The server's interface for the text of a library: no calls, and a time limit.
struct LoadEnv<'a, O> {
    outlet: &'a O,
    began_ms: u64,
}

impl<'a, O: Outlet> LoadEnv<'a, O> {
    fn new(outlet: &'a O) -> LoadEnv<'a, O> {
        LoadEnv {
            began_ms: outlet.monotonic_ms(),
            outlet,
        }
    }
}

impl<O: Outlet> ScriptEnv for LoadEnv<'_, O> {
    fn call(&mut self, _: Args<'_>, family: Family, proto: Proto, reply: &mut ReplyBuffer) {
        redline_resp::Reply::new(reply, proto).error(call_errors(family).denied);
    }

    fn tick(&mut self) -> Tick {
        match self.outlet.monotonic_ms() - self.began_ms < LOAD_MS_MAX {
            true => Tick::Continue,
            false => Tick::Kill("FUNCTION LOAD timeout".into()),
        }
    }

    fn log(&mut self, level: i64, text: &[u8]) {
        log_line::<O>(level, text);
    }

    fn acl_check(&mut self, _: Args<'_>) -> Option<bool> {
        None
    }

    fn set_repl(&mut self, _: u8) {}
}

fn reply_error(error: &impl ToString) -> Error {
    Error::Line(Cow::Owned(error.to_string()))
}

/// Replaces all libraries by those of these texts; the caller holds the script mutex, or nobody runs scripts. On an error,
/// which is described, none has changed.
pub fn restore_libraries<O: Outlet>(
    executor: &mut Executor<'_, O>,
    texts: &[Vec<u8>],
) -> Result<(), String> {
    if texts.is_empty() && executor.engine.libraries.all().is_empty() {
        return Ok(());
    }
    restore(executor, texts, RestorePolicy::Flush)
}

/// Adds libraries of these texts to those that are there, of which `replaces` has those of the same names removed;
/// otherwise one of the same name is an error. The caller and errors are as with [`restore_libraries`].
pub fn merge_libraries<O: Outlet>(
    executor: &mut Executor<'_, O>,
    texts: &[Vec<u8>],
    replaces: bool,
) -> Result<(), String> {
    let policy = match replaces {
        true => RestorePolicy::Replace,
        false => RestorePolicy::Append,
    };
    match texts {
        [] => Ok(()),
        texts => restore(executor, texts, policy),
    }
}

fn restore<O: Outlet>(
    executor: &mut Executor<'_, O>,
    texts: &[Vec<u8>],
    policy: RestorePolicy,
) -> Result<(), String> {
    let mut host = take_host(executor).map_err(|error| text_of(&error))?;
    let mut env = LoadEnv::new(&executor.outlet);
    let texts = texts.iter().map(Vec::as_slice);
    let libraries = &executor.engine.libraries;
    let restored = libraries.restore(&mut host, texts, policy, &mut env);
    give_host_back(executor, host);
    restored.map_err(|error| error.to_string())
}

fn text_of(error: &Error) -> String {
    String::from_utf8_lossy(&error.text()).into_owned()
}

pub(crate) fn function_load<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut words = Words::new(CommandId::FunctionLoad, &args, 2);
    let mut replaces = false;
    while words.len() > 1 {
        let option = words.peek().unwrap_or_default();
        if !words.flag("REPLACE") {
            return Err(Error::quoting("ERR Unknown option given: ", option, "").into());
        }
        replaces = true;
    }
    let code = &args[args.len() - 1];
    let name = change(executor, caller, args, |libraries, host, env| {
        libraries
            .load(host, code, replaces, env)
            .map_err(|error| reply_error(&error))
    })?;
    caller.reply().bulk(name.as_bytes());
    Ok(())
}

pub(crate) fn function_delete<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    change(
        executor,
        caller,
        args,
        |libraries, host, _| match libraries.delete(host, &args[2]) {
            true => Ok(()),
            false => Err(Error::line("ERR Library not found")),
        },
    )?;
    caller.reply().ok();
    Ok(())
}

pub(crate) fn function_flush<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut words = Words::new(CommandId::FunctionFlush, &args, 2);
    if words.len() > 1 {
        return Err(words.wrong_arity().into());
    }
    let _ = words.flag("SYNC") || words.flag("ASYNC");
    if !words.is_empty() {
        return Err(Error::line("ERR FUNCTION FLUSH only supports SYNC|ASYNC option").into());
    }
    change(executor, caller, args, |libraries, host, _| {
        libraries.flush(host);
        Ok(())
    })?;
    caller.reply().ok();
    Ok(())
}

pub(crate) fn function_list<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let (mut pattern, mut with_code) = (None, false);
    let mut words = Words::new(CommandId::FunctionList, &args, 2);
    while let Some(option) = words.peek() {
        if !with_code && words.flag("WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && words.flag("LIBRARYNAME") {
            const NO_NAME: Error = Error::line("ERR library name argument was not given");
            pattern = Some(words.next().ok_or(NO_NAME)?);
        } else {
            return Err(Error::quoting("ERR Unknown argument ", option, "").into());
        }
    }
    let mut libraries = executor.engine.libraries.all();
    libraries.retain(|library| {
        pattern.is_none_or(|pattern| {
            glob::matches(pattern, library.name.as_bytes(), Case::Insensitive)
        })
    });
    caller.reply().array(libraries.len());
    for library in &libraries {
        write_library(caller, library, with_code);
    }
    Ok(())
}

fn write_library(caller: &mut Caller, library: &Library, with_code: bool) {
    let mut reply = caller.reply();
    reply.map(3 + usize::from(with_code));
    reply.bulk(b"library_name");
    reply.bulk(library.name.as_bytes());
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(function.name.as_bytes());
        reply.bulk(b"description");
        match &function.description {
            Some(text) => reply.bulk(text),
            None => reply.null(),
        }
        reply.bulk(b"flags");
        reply.set(function.flags.names().count());
        for name in function.flags.names() {
            reply.simple(str::from_utf8(name).unwrap_or_default());
        }
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}

pub(crate) fn function_stats<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let engine = &executor.engine.running_script;
    let mut running = engine.slow();
    if running.as_ref().is_some_and(|slow| !slow.is_function) {
        if engine.busy.load(Ordering::Acquire) {
            return Err(busy_error(executor).into());
        }
        running = None;
    }
    let (libraries, functions) = executor.engine.libraries.counts();
    let mut reply = caller.reply();
    reply.map(2);
    reply.bulk(b"running_script");
    match running {
        None => reply.null(),
        Some(slow) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&slow.name);
            reply.bulk(b"command");
            reply.array(slow.command.len());
            for word in &slow.command {
                reply.bulk(word);
            }
            reply.bulk(b"duration_ms");
            let duration_ms = executor.outlet.monotonic_ms().saturating_sub(slow.began_ms);
            reply.integer(duration_ms as i64);
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.integer(libraries as i64);
    reply.bulk(b"functions_count");
    reply.integer(functions as i64);
    Ok(())
}

pub(crate) fn function_kill<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    kill(executor, caller, true)
}

pub(crate) fn function_dump<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    let libraries = executor.engine.libraries.all();
    let codes = libraries.iter().map(|library| &*library.code);
    let payload = payload::dump(codes, executor.settings.limits.payload_compressed);
    caller.reply().bulk(&payload);
    Ok(())
}

pub(crate) fn function_restore<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    let mut words = Words::new(CommandId::FunctionRestore, &args, 3);
    if words.len() > 1 {
        return Err(words.wrong_arity().into());
    }
    let policy = words.one_of(&[
        ("APPEND", RestorePolicy::Append),
        ("REPLACE", RestorePolicy::Replace),
        ("FLUSH", RestorePolicy::Flush),
    ]);
    if !words.is_empty() {
        return Err(Error::line(
            "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
        )
        .into());
    }
    let policy = policy.unwrap_or(RestorePolicy::Append);
    let codes = payload::restore(&args[2]).map_err(|error| {
        Error::line(match error {
            payload::Refused::VersionOrChecksum => "ERR DUMP payload version or checksum are wrong",
            payload::Refused::Type => "ERR given type is not a function",
            payload::Refused::Damaged => "ERR Failed loading library payload",
        })
    })?;
    change(executor, caller, args, |libraries, host, env| {
        let codes = codes.iter().map(|code| &**code);
        libraries
            .restore(host, codes, policy, env)
            .map_err(|error| reply_error(&error))
    })?;
    caller.reply().ok();
    Ok(())
}
