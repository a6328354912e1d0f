//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC is one unit: it takes the stripes of all queued commands and of all watched keys, checks the watch flag under
//! them, and runs the queue. With a command in the queue that may come to need further stripes (a script, SORT) it
//! takes the script mutex first, whose holder may take more.

use std::sync::{Arc, atomic::Ordering};

use redline_acl::{Context, Reason};
use redline_commands::Error;
use redline_keyspace::{Unit, lock::StripeSet};
use redline_resp::{Args, ArgsBuf};
use redline_spec::{self as spec, CommandId, Scope};

use crate::{
    caller::{Caller, Multi, Watched, flag, state},
    executor::{
        Compound, Executor, Fault, Halt, Outlet, access, add_stripes, block, figures, slots, units,
        watch,
    },
};

/// Returns true for commands that are not queued inside MULTI.
pub fn runs_at_once(id: CommandId) -> bool {
    matches!(
        id,
        CommandId::Exec
            | CommandId::Discard
            | CommandId::Multi
            | CommandId::Watch
            | CommandId::Quit
            | CommandId::Reset
    )
}

/// Queues a command of an open transaction.
pub fn enqueue(caller: &mut Caller, id: CommandId, args: Args<'_>) {
    if !caller.multi.broken {
        let args = ArgsBuf::from(args);
        caller.multi.bytes += size_of::<(CommandId, ArgsBuf)>() + args.heap_bytes();
        caller.multi.queue.push((id, args));
        let queued = caller.multi.queue.len() as u32;
        caller.info.multi.store(queued + 1, Ordering::Relaxed);
    }
    caller.reply().simple("QUEUED");
}

pub(crate) fn multi<O: Outlet>(
    _: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    if caller.is(state::MULTI) {
        return Err(Error::line("ERR MULTI calls can not be nested").into());
    }
    caller.set_state(state::MULTI, true);
    caller.info.set_flag(flag::MULTI, true);
    caller.info.multi.store(1, Ordering::Relaxed);
    caller.reply().ok();
    Ok(())
}

pub(crate) fn discard<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    if !caller.is(state::MULTI) {
        return Err(Error::line("ERR DISCARD without MULTI").into());
    }
    abandon(executor, caller);
    caller.reply().ok();
    Ok(())
}

/// Ends the transaction without running it.
pub fn abandon<O: Outlet>(executor: &mut Executor<'_, O>, caller: &mut Caller) {
    close_multi(caller);
    forget_multi(caller);
    watch::unwatch(executor, caller);
}

fn close_multi(caller: &mut Caller) -> Multi {
    caller.set_state(state::MULTI, false);
    std::mem::take(&mut caller.multi)
}

/// Clears the transaction in the client info: CLIENT LIST shows it until it has run.
fn forget_multi(caller: &Caller) {
    caller.info.set_flag(flag::MULTI, false);
    caller.info.multi.store(0, Ordering::Relaxed);
}

pub(crate) fn exec<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if !caller.is(state::MULTI) {
        return Err(Error::line("ERR EXEC without MULTI").into());
    }
    if caller.multi.broken {
        abandon(executor, caller);
        return Err(
            Error::line("EXECABORT Transaction discarded because of previous errors.").into(),
        );
    }
    let mut unit = units::take_for_call(executor, caller, args, take_unit)?;
    if let Err(refusal) = slots::check_again(executor, caller, CommandId::Exec, args, &mut unit) {
        drop(unit);
        let halt = refusal.halt();
        if matches!(halt, Halt::Error(_)) {
            abandon(executor, caller);
        }
        return Err(halt);
    }
    let aborted = O::FAULT != Some(Fault::IgnoresWatches)
        && (caller.watch_flag.is_raised() || watched_key_expired(executor, caller, &mut unit));
    let multi = close_multi(caller);
    executor.compound = Some(Box::new(Compound::new(unit)));
    if aborted {
        caller.reply().null_array();
    } else {
        run_queue(executor, caller, multi);
        // Replies that CLIENT REPLY forbids have been dropped already.
        let settled = caller.is(state::REPLY);
        caller.set_state(state::CONFIRMED, settled);
    }
    if executor.monitored {
        figures::show(executor, caller, CommandId::Exec, args, false);
    }
    forget_multi(caller);
    let mut compound = executor
        .compound
        .take()
        .expect("the queue leaves the unit in place");
    caller.note_seen(&compound.unit);
    caller.note_record(block::end_compound_effects(executor, &mut compound.unit));
    if !caller.watched.is_empty() {
        unwatch_held(caller, &mut compound.unit);
    }
    Ok(())
}

/// Takes all stripes that the transaction needs, or suspends the session.
fn take_unit<'s, O: Outlet>(
    executor: &mut Executor<'s, O>,
    caller: &mut Caller,
) -> Result<Unit<'s>, Halt> {
    let space = &executor.engine.keyspace;
    let mut stripes = StripeSet::EMPTY;
    let mut all = false;
    let mut script = false;
    for (id, args) in &caller.multi.queue {
        all |= spec::gate(*id).scope.inside_unit() == Scope::All;
        script |= spec::gate(*id).scope == Scope::KeysPlus;
        add_stripes(space, &mut stripes, *id, args.as_args());
    }
    for watched in &caller.watched {
        stripes.insert(space.place(&watched.key).stripe());
    }
    if all {
        stripes = StripeSet::all();
    }
    if script {
        let mut unit = units::take_script(executor, caller)?;
        // The holder of the script mutex may wait, so this neither gives the mutex up again nor needs the ticket:
        // stripes reserved while their owner queues for the mutex would keep all others waiting, too.
        unit.add_set(&stripes);
        return Ok(unit);
    }
    take_for_waiters(executor, caller, stripes)
}

/// Takes these stripes, and those of all clients that the transaction may serve.
fn take_for_waiters<'s, O: Outlet>(
    executor: &mut Executor<'s, O>,
    caller: &mut Caller,
    mut stripes: StripeSet,
) -> Result<Unit<'s>, Halt> {
    if let Some(reserved) = &caller.ticket {
        // Found by an earlier round.
        stripes.extend(reserved);
    }
    loop {
        let unit = units::take_set(executor, caller, &stripes)?;
        let queue = caller.multi.queue.iter();
        let commands = queue.map(|(id, args)| (*id, args.as_args()));
        let Some(wider) = units::wider(executor, &unit, &stripes, commands) else {
            return Ok(unit);
        };
        // The ticket, if there is one, is kept for the wider set.
        stripes = wider;
    }
}

/// Returns true if a watched key existed and has expired, which counts as a change. It stays: EXEC only reads.
fn watched_key_expired<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &Caller,
    unit: &mut Unit<'_>,
) -> bool {
    let mut existed = caller.watched.iter().filter(|watched| watched.existed);
    existed.any(|watched| unit.is_stale(watched.db, &watched.key, executor.now_ms))
}

/// Runs the whole queue: also if one of its commands closes the connection by removing the user. As in Redis, the rest
/// is run as the default user then, and its replies are not sent.
///
/// CLIENT REPLY concerns each reply separately, and the array header as well: if the queue switches replies on or off,
/// elements come without their array, or the reverse. As in Redis; the client has to know.
fn run_queue<O: Outlet>(executor: &mut Executor<'_, O>, caller: &mut Caller, multi: Multi) {
    let head = caller.out.mark();
    caller.reply().array(multi.queue.len());
    caller.settle_part(head);
    let mut last_sent = None;
    for (id, args) in multi.queue {
        let mark = caller.out.mark();
        if caller.rules != executor.rules && !access::adopt_rules(executor, caller) {
            last_sent.get_or_insert(mark);
            if access::has_lost_user(executor, caller) {
                caller.become_default(&executor.settings.acl);
            }
        }
        match call_queued(executor, caller, id, args.as_args()) {
            Ok(()) => {}
            Err(Halt::Error(error)) => {
                let text = error.text();
                executor.stats.note_error(&text);
                caller.out.truncate(mark);
                caller.reply().error_bytes(&text);
            }
            Err(Halt::Suspended(_)) => unreachable!("the unit holds all that its commands need"),
        }
        caller.settle_part(mark);
        executor.sweep();
    }
    if let Some(mark) = last_sent {
        caller.out.truncate(mark);
    }
}

/// Runs a queued command, if the current rules still allow it.
fn call_queued<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    id: CommandId,
    args: Args<'_>,
) -> Result<(), Halt> {
    if let Err(denied) = access::check_access(executor, caller, id, args, Context::Multi) {
        let reason = match denied.reason {
            Reason::Command => "no permission to execute the command or subcommand",
            Reason::Key => "no permission to touch the specified keys",
            Reason::Channel => "no permission to access one of the channels used as arguments",
            Reason::Auth => "no permission",
        };
        return Err(Error::Line(
            format!("NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {reason}").into(),
        )
        .into());
    }
    executor.call(caller, id, args)
}

pub(crate) fn watch<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    args: Args<'_>,
) -> Result<(), Halt> {
    if caller.is(state::MULTI) {
        return Err(Error::line("ERR WATCH inside MULTI is not allowed").into());
    }
    let space = &executor.engine.keyspace;
    let mut stripes = StripeSet::EMPTY;
    for key in args.iter().skip(1) {
        stripes.insert(space.place(key).stripe());
    }
    let mut unit = if executor.refuses_all() {
        let ticket = caller.ticket.is_some();
        let Ok(unit) = Unit::try_set(space, &stripes, ticket) else {
            watch_unseen(caller, args);
            return Ok(());
        };
        unit
    } else {
        units::take_set(executor, caller, &stripes)?
    };
    for key in args.iter().skip(1) {
        let found = unit.watch(caller.db, key, &caller.watch_flag, executor.now_ms);
        if let Some(existed) = found {
            caller.watched.push(Watched {
                db: caller.db,
                key: key.into(),
                existed,
            });
            caller.note_registered(key);
        }
    }
    drop(unit);
    confirm_watches(caller);
    Ok(())
}

/// Watches keys while a script over its threshold holds one of them. WATCH is allowed then and may not wait, but
/// whether the script has changed them already cannot be seen: they count as changed.
fn watch_unseen(caller: &mut Caller, args: Args<'_>) {
    caller.watch_flag.raise();
    for key in args.iter().skip(1) {
        caller.watched.push(Watched {
            db: caller.db,
            key: key.into(),
            existed: false,
        });
        caller.note_registered(key);
    }
    confirm_watches(caller);
}

fn confirm_watches(caller: &mut Caller) {
    let flag = Some(caller.watch_flag.clone());
    caller.info.set_watched(caller.watched.len() as u32, flag);
    caller.reply().ok();
}

pub(crate) fn unwatch<O: Outlet>(
    executor: &mut Executor<'_, O>,
    caller: &mut Caller,
    _: Args<'_>,
) -> Result<(), Halt> {
    watch::unwatch(executor, caller);
    caller.reply().ok();
    Ok(())
}

/// Removes the watches while the unit holds their stripes.
fn unwatch_held(caller: &mut Caller, unit: &mut Unit<'_>) {
    for watched in std::mem::take(&mut caller.watched) {
        caller.note_unregistered(&watched.key);
        unit.unwatch(watched.db, &watched.key, &caller.watch_flag);
    }
    forget_watches(caller);
}

pub(crate) fn forget_watches(caller: &mut Caller) {
    caller.watch_flag = Arc::default();
    caller.info.set_watched(0, None);
}
