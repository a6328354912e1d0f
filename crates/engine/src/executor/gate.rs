//! The gate: the checks between the lookup of a command and its execution, in Redis's order, for calls of clients.
//!
//! Must not know: what a command does, which path it then takes.

use std::sync::atomic::Ordering;

use redline_commands::Error;
use redline_resp::{Args, ArgsBuf};
use redline_spec::{self as spec, CommandId, Flags, Gate};

use super::{Executor, Halt, Level, Outlet, access, eviction, figures, slots};
use crate::{
    caller::{Caller, NO_COMMAND, Suspended, flag, state},
    errors,
    refusals::Reason,
    session,
};

/// Flags of commands on keys.
const ON_KEYS: Flags = Flags::WRITE
    .with(Flags::READONLY)
    .with(Flags::MAY_REPLICATE);

pub(super) fn let_in<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
) -> Result<(), Halt> {
    let gate = spec::gate(id);
    if let Err(halt) = check_all(executor, caller, id, gate, args) {
        executor.stats.commands[id as usize].rejected.add(1);
        return Err(halt);
    }
    match is_held_back(executor, caller, id, gate, args) {
        true => Err(Halt::Suspended(Suspended::Pause)),
        false => Ok(()),
    }
}

/// Makes all checks between lookup and execution.
fn check_all<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    gate: Gate,
    args: Args<'_>,
) -> Result<(), Halt> {
    if let Err(error) = check_caller(executor, caller, id, gate, args) {
        return Err(reject(executor, caller, args, &error));
    }
    if let Err(refusal) = slots::check(executor, caller, id, args) {
        if refusal == slots::Refusal::Aside {
            return Err(Halt::Suspended(Suspended::Pause));
        }
        break_multi(caller);
        if id == CommandId::Exec {
            // Its error is not wrapped in one of EXEC, since clients follow it.
            session::transaction::abandon(executor, caller);
        }
        return Err(Halt::Error(refusal.error()));
    }
    let checked = check(executor, caller, id, gate, args);
    checked.map_err(|error| reject(executor, caller, args, &error))
}

/// Returns true if a call has to pass the gate again, now that its unit holds stripes: the role, or anything else that it
/// was let in by, may have changed before. Such a change holds every stripe, so it shows here, and what is not behind now
/// runs before the next one. Calls of a stream or of a file were not let in, and are not asked again.
#[inline]
pub(crate) fn must_pass_again<O: Outlet>(executor: &Executor<'_, O>) -> bool {
    executor.was_let_in && executor.is_behind()
}

/// Lets a call in again, or refuses it: see [`must_pass_again`]. Its unit has released everything.
#[cold]
pub(crate) fn pass_again<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    executor.refresh();
    match resolve(executor, caller, args) {
        Ok(id) => let_in(executor, caller, id, args),
        Err(error) => Err(reject(executor, caller, args, &error)),
    }
}

/// Returns true if CLIENT PAUSE suspends this command.
fn is_held_back<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    gate: Gate,
    args: Args<'_>,
) -> bool {
    let Some(pause) = executor.pause.filter(|_| !caller.is(state::MONITOR)) else {
        return false;
    };
    let writes = |id, gate: Gate, args: Args<'_>| {
        let by_row = gate.flags.has_any(Flags::WRITE.with(Flags::MAY_REPLICATE));
        session::scripting::may_write(executor.engine, id, args, by_row)
    };
    let queue_writes = || {
        let mut queue = caller.multi.queue.iter();
        let queued =
            |(id, args): &(CommandId, ArgsBuf)| writes(*id, spec::gate(*id), args.as_args());
        id == CommandId::Exec && queue.any(queued)
    };
    executor.outlet.monotonic_ms() < pause.end_ms
        && (pause.all || writes(id, gate, args) || queue_writes())
}

/// Returns the error reply for a call that may not run. It breaks a transaction; a refused EXEC discards it, even
/// where there is none.
pub(super) fn reject<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
    error: &Error,
) -> Halt {
    break_multi(caller);
    if !args[0].eq_ignore_ascii_case(b"exec") {
        return Halt::Error(error.clone());
    }
    session::transaction::abandon(executor, caller);
    if executor.monitored {
        // Of all refused calls, monitors get this one.
        figures::show(executor, caller, CommandId::Exec, args, false);
    }
    Halt::Error(errors::exec_aborted(&error.text()))
}

/// Looks up the command. CLIENT LIST shows it from now on, even if the call is refused.
pub(super) fn resolve<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &Caller,
    args: Args<'_>,
) -> Result<CommandId, Error> {
    let resolved = executor.engine.names.resolve(&args[0], args.get(1));
    let number = resolved.as_ref().map_or(NO_COMMAND, |id| *id as u16);
    caller.info.command.store(number, Ordering::Relaxed);
    let id = resolved.map_err(|unresolved| match unresolved {
        spec::Unresolved::Command => errors::unknown_command(args),
        spec::Unresolved::Subcommand(container) => errors::unknown_subcommand(container, args),
    })?;
    if !spec::gate(id).lets_pass(args.len()) {
        executor.stats.commands[id as usize].rejected.add(1);
        return Err(errors::wrong_arity(id));
    }
    Ok(id)
}

/// Checks if the caller may make this call at all.
fn check_caller<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    gate: Gate,
    args: Args<'_>,
) -> Result<(), Error> {
    // A client that connected before the password was set, or after it was removed, needs none.
    let locked = caller.is(state::UNAUTHENTICATED) && executor.settings.acl.login_required();
    if locked && !gate.flags.has(Flags::NO_AUTH) {
        return Err(errors::NO_AUTH);
    }
    if caller.is(state::MULTI) && gate.flags.has(Flags::NO_MULTI) {
        return Err(Error::line("ERR Command not allowed inside a transaction"));
    }
    access::permit(executor, caller, id, args)
}

/// Makes the other checks between lookup and execution: of the server's state, and of the caller's.
fn check<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    gate: Gate,
    args: Args<'_>,
) -> Result<(), Error> {
    let refuses_all = executor.refuses_all();
    if !refuses_all {
        check_memory(executor, caller, id, gate, args)?;
    }
    if executor.refusals.any() {
        check_refusals(executor, caller, id, gate)?;
    }
    if executor.refusals.has(Reason::ReadOnly) && queued_or_own(caller, id, Flags::WRITE, true) {
        return Err(errors::READ_ONLY);
    }
    if caller.is(state::SUBSCRIBED) && !session::allowed_while_subscribed(id) {
        return Err(errors::subscribed(id));
    }
    if executor.refusals.has(Reason::Stale) && queued_or_own(caller, id, Flags::STALE, false) {
        return Err(errors::PRIMARY_DOWN);
    }
    let is_loading =
        executor.refusals.has(Reason::Loading) || executor.refusals.has(Reason::Emptied);
    let refuses_some = executor.refusals.has(Reason::LoadsBeside);
    if is_loading && !gate.flags.has(Flags::LOADING)
        || refuses_some && gate.flags.has(Flags::NO_ASYNC_LOADING)
    {
        return Err(errors::LOADING);
    }
    // A call that has waited has passed this check before.
    if refuses_all && !gate.flags.has(Flags::ALLOW_BUSY) && caller.again.is_none() {
        return Err(executor.engine.running_script.busy_error());
    }
    if caller.is(state::MONITOR) && gate.flags.has_any(ON_KEYS) {
        return Err(errors::MONITOR_TOUCHES_KEYS);
    }
    Ok(())
}

/// Refuses calls that change data while it cannot be kept. As in Redis also PING, by which probes learn of it.
fn check_refusals<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    gate: Gate,
) -> Result<(), Error> {
    let writes = |id: CommandId| spec::gate(id).flags.has(Flags::WRITE);
    let mut queued = caller.multi.queue.iter();
    let is_write =
        gate.flags.has(Flags::WRITE) || id == CommandId::Exec && queued.any(|(id, _)| writes(*id));
    let refusals = &executor.engine.refusals;
    let refusal = match id {
        CommandId::Ping => refusals.of_files(executor.refusals),
        _ if is_write => refusals.of_changes(executor.refusals),
        _ => None,
    };
    refusal.map_or(Ok(()), Err)
}

/// Evicts keys where a limit is set; refuses calls that need memory when there is none.
pub fn check_memory<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    gate: Gate,
    args: Args<'_>,
) -> Result<(), Error> {
    if executor.settings.maxmemory_bytes == 0 || executor.compound.is_some() {
        return Ok(());
    }
    if eviction::make_room(executor) {
        return Ok(());
    }
    let needs = |id: CommandId, gate: Gate, args: Args<'_>| {
        let by_row = gate.flags.has(Flags::DENYOOM);
        session::scripting::needs_memory(executor.engine, id, args, by_row)
    };
    let mut queued = caller.multi.queue.iter();
    let refused = needs(id, gate, args)
        || id == CommandId::Exec
            && queued.any(|(id, args)| needs(*id, spec::gate(*id), args.as_args()));
    match refused {
        true => Err(errors::OOM),
        false => Ok(()),
    }
}

fn break_multi(caller: &mut Caller) {
    if caller.is(state::MULTI) {
        caller.multi.broken = true;
    }
}

/// Returns true if the caller is a replica, and the call has a reply, which would stand in its stream.
pub(super) fn is_out_of_place(caller: &Caller, id: CommandId) -> bool {
    let is_replica = caller.info.flags.load(Ordering::Relaxed) & flag::REPLICA != 0;
    is_replica && !matches!(id, CommandId::Replconf | CommandId::Psync | CommandId::Sync)
}

/// Ends a replica that makes such a call, in Redis's words.
pub(super) fn end_replica<O: Outlet>(caller: &mut Caller, id: CommandId, gate: Gate) {
    let (name, addr) = (spec::row(id).full_name, &caller.info.addr);
    if gate.flags.has_any(ON_KEYS) {
        let text = format!(
            "== CRITICAL == This master is sending an error to its replica: 'Replica can't interact with the keyspace' after processing the command '{name}'"
        );
        O::log(Level::Warning, &text);
    }
    let text = format!("Replica generated a reply to command '{name}', disconnecting it: {addr}");
    O::log(Level::Warning, &text);
    caller.closing = true;
    caller.info.set_flag(flag::CLOSING, true);
}

/// Returns true if the command has that flag, or has it not; if it is EXEC, also if that holds for one that it runs.
fn queued_or_own(caller: &Caller, id: CommandId, flag: Flags, has: bool) -> bool {
    let holds = |id: CommandId| spec::gate(id).flags.has(flag) == has;
    let mut queued = caller.multi.queue.iter();
    holds(id) || id == CommandId::Exec && queued.any(|(id, _)| holds(*id))
}
