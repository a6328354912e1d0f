//! Figures of commands: counters, the logs of calls, the latency monitor, MONITOR's lines.
//!
//! Must not know: how they are shown.

use std::sync::atomic::Ordering;

use redline_observe::{
    quote::quote,
    slowlog::{Entry, shortened},
};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Flags};

use super::{Executor, Halt, Outlet, runs_script};
use crate::{
    caller::{Caller, flag},
    commandlog::{Kind, request_bytes},
    executor::units,
    redaction,
};

/// Records an event of the latency monitor, if it is on and the time is above its threshold.
pub fn note_latency<O: Outlet>(executor: &Executor<'_, O>, event: &'static str, ns: u64) {
    let (threshold_ms, ms) = (
        executor.settings.latency_monitor_threshold_ms,
        ns / 1_000_000,
    );
    if threshold_ms != 0 && ms >= threshold_ms {
        let at_s = executor.now_ms / 1000;
        executor.engine.latency_events.add(event, at_s, ms);
    }
}

/// Copies the keyspace's counts to where other threads read them.
pub fn copy_counts<O: Outlet>(executor: &Executor<'_, O>) {
    let (stats, local) = (&executor.stats, &executor.local);
    stats.turns.set(executor.timing.turns);
    stats.turn_ms.set(executor.timing.turn_ms);
    stats.hits.set(local.hits.get());
    stats.misses.set(local.misses.get());
    stats.expired.set(local.expired.get());
    stats.expired_elements.set(local.expired_elements);
    stats.evicted.set(local.evicted);
    stats.changes.set(local.changes);
}

/// Adds a call that has run to the logs whose thresholds it passes.
#[cold]
pub fn log_command<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    args: Args<'_>,
    took_ns: Option<u64>,
    reply_bytes: u64,
) {
    if spec::gate(id).flags.has(Flags::SKIP_SLOWLOG) {
        return;
    }
    let values = [
        (Kind::Slow, took_ns.map(|ns| ns / 1000)),
        (Kind::LargeRequest, Some(request_bytes(args))),
        (Kind::LargeReply, Some(reply_bytes)),
    ];
    for (kind, value) in values {
        let threshold = executor.settings.command_log(kind);
        if let (Some(value), Some(least)) = (value, threshold.least())
            && value >= least
        {
            let entry = entry_of(executor, caller, id, args, value);
            let logs = &executor.engine.command_logs;
            logs.push(kind, threshold.entries_max, entry);
        }
    }
}

fn entry_of<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    args: Args<'_>,
    value: u64,
) -> Entry {
    let from_script = units::is_in_script(executor);
    let (addr, name) = match from_script {
        true => (String::new(), Vec::new()),
        false => {
            let names = caller.info.names();
            (caller.info.addr.clone(), names.name.clone())
        }
    };
    Entry {
        id: 0,
        at_s: executor.now_ms / 1000,
        value,
        args: shortened(args.len(), |index| redaction::shown::<O>(id, args, index)),
        addr,
        name,
    }
}

/// Sends a call that has run to the clients in MONITOR. `script`: made by a script.
#[cold]
pub fn show<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    args: Args<'_>,
    script: bool,
) {
    if spec::gate(id).flags.has(Flags::ADMIN) {
        return;
    }
    let now_us = executor.outlet.wall_us();
    let (seconds, us) = (now_us / 1_000_000, now_us % 1_000_000);
    let mut line = format!("{seconds}.{us:06} [{} ", caller.db).into_bytes();
    let flags = caller.info.flags.load(Ordering::Relaxed);
    match flags & flag::UNIX != 0 {
        _ if script => line.extend(b"lua"),
        true => {
            let path = &caller.info.laddr;
            let path = path.strip_suffix(":0").unwrap_or(path);
            line.extend(format!("unix:{path}").as_bytes());
        }
        false => line.extend(caller.info.addr.as_bytes()),
    }
    line.push(b']');
    for index in 0..args.len() {
        line.push(b' ');
        quote(redaction::shown::<O>(id, args, index), &mut line);
    }
    let line = String::from_utf8_lossy(&line);
    executor.engine.monitors.show(executor.engine, &line);
}

/// Sends a call of the session or the admin plane, whose handler has returned, to the clients in MONITOR.
#[cold]
pub(crate) fn show_returned<O: Outlet>(
    executor: &Executor<'_, O>,
    caller: &Caller,
    id: CommandId,
    args: Args<'_>,
    result: &Result<(), Halt>,
) {
    let has_shown_itself = result.is_ok() && (runs_script(id) || id == CommandId::Exec);
    let runs_again = matches!(result, Err(Halt::Suspended(reason)) if !reason.is_wanted());
    if !has_shown_itself && !runs_again {
        let in_script = units::is_in_script(executor);
        show(executor, caller, id, args, in_script);
    }
}
