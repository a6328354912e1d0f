//! Figures of what runs: counters, the logs of commands, the latency monitor, MONITOR's lines.
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
    redaction,
};

impl<O: Outlet> Executor<'_, O> {
    /// Something took so long: an event of the latency monitor, if it is on and that is long enough.
    pub fn note_latency(&self, event: &'static str, ns: u64) {
        let (threshold_ms, ms) = (self.settings.latency_monitor_threshold_ms, ns / 1_000_000);
        if threshold_ms != 0 && ms >= threshold_ms {
            let at_s = self.now_ms / 1000;
            self.engine.latency_events.add(event, at_s, ms);
        }
    }

    /// Makes the keyspace's counts visible to others.
    pub fn copy_counts(&self) {
        let (stats, local) = (&self.stats, &self.local);
        stats.turns.set(self.timing.turns);
        stats.turn_ms.set(self.timing.turn_ms);
        stats.hits.set(local.hits.get());
        stats.misses.set(local.misses.get());
        stats.expired.set(local.expired.get());
        stats.expired_elements.set(local.expired_elements);
        stats.evicted.set(local.evicted);
        stats.changes.set(local.changes);
    }

    /// Puts a call that has run into the logs whose thresholds it passes.
    #[cold]
    pub fn log_command(
        &self,
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
            let threshold = self.settings.command_log(kind);
            if let (Some(value), Some(least)) = (value, threshold.least())
                && value >= least
            {
                let entry = self.entry_of(caller, id, args, value);
                let logs = &self.engine.command_logs;
                logs.push(kind, threshold.entries_max, entry);
            }
        }
    }

    fn entry_of(&self, caller: &Caller, id: CommandId, args: Args<'_>, value: u64) -> Entry {
        let from_script = self.is_in_script();
        let (addr, name) = match from_script {
            true => (String::new(), Vec::new()),
            false => {
                let names = caller.card.names();
                (caller.card.addr.clone(), names.name.clone())
            }
        };
        Entry {
            id: 0,
            at_s: self.now_ms / 1000,
            value,
            args: shortened(args.len(), |index| redaction::shown::<O>(id, args, index)),
            addr,
            name,
        }
    }

    /// Shows the monitors a call that has run. `script`: a script has made it.
    #[cold]
    pub fn show(&self, caller: &Caller, id: CommandId, args: Args<'_>, script: bool) {
        if spec::gate(id).flags.has(Flags::ADMIN) {
            return;
        }
        let now_us = self.outlet.wall_us();
        let (seconds, us) = (now_us / 1_000_000, now_us % 1_000_000);
        let mut line = format!("{seconds}.{us:06} [{} ", caller.db).into_bytes();
        let flags = caller.card.flags.load(Ordering::Relaxed);
        match flags & flag::UNIX != 0 {
            _ if script => line.extend(b"lua"),
            true => {
                let path = &caller.card.laddr;
                let path = path.strip_suffix(":0").unwrap_or(path);
                line.extend(format!("unix:{path}").as_bytes());
            }
            false => line.extend(caller.card.addr.as_bytes()),
        }
        line.push(b']');
        for index in 0..args.len() {
            line.push(b' ');
            quote(redaction::shown::<O>(id, args, index), &mut line);
        }
        let line = String::from_utf8_lossy(&line);
        self.engine.monitors.show(self.engine, &line);
    }

    /// Shows the monitors a call of the session or the admin plane, whose handler has returned.
    #[cold]
    pub(crate) fn show_returned(
        &self,
        caller: &Caller,
        id: CommandId,
        args: Args<'_>,
        result: &Result<(), Halt>,
    ) {
        let has_shown_itself = result.is_ok() && (runs_script(id) || id == CommandId::Exec);
        let runs_again = matches!(result, Err(Halt::Aside(reason)) if !reason.is_wanted());
        if !has_shown_itself && !runs_again {
            let in_script = self.is_in_script();
            self.show(caller, id, args, in_script);
        }
    }
}
