//! Counters: each worker has its own, written with plain stores, and readers sum them.
//!
//! Must not know: how INFO shows them.

use std::{
    collections::BTreeMap,
    sync::{Mutex, OnceLock},
};

use redline_spec::CommandId;

pub use redline_observe::Counter;
use redline_observe::histogram::{Distribution, Histogram};

use crate::engine::ExecutorHandle;

/// Counters of one command.
#[derive(Default)]
pub struct CommandStats {
    /// Number of calls that ran.
    pub calls: Counter,
    /// Nanoseconds that they took, brief commands measured in batches.
    pub ns: Counter,
    /// Number of calls that were refused before they ran.
    pub rejected: Counter,
    /// Number of calls that ran and replied with an error.
    pub failed: Counter,
    /// Distribution of the times, once one was taken with `latency-tracking` on.
    pub distribution: OnceLock<Histogram>,
}

impl CommandStats {
    /// Adds `times` calls that took `ns` each. `distribution`: adds them to the distribution as well.
    #[inline]
    pub fn note_time(&self, ns: u64, times: u64, distribution: bool) {
        self.ns.add(ns * times);
        if distribution {
            let histogram = self.distribution.get_or_init(Histogram::default);
            histogram.record(ns, times);
        }
    }
}

/// Returns the distribution of each command's times, over all workers.
pub fn distributions(executors: &[ExecutorHandle]) -> Vec<Distribution> {
    let mut all = vec![Distribution::default(); CommandId::COUNT];
    for stats in executors.iter().map(|executor| &executor.stats) {
        for (sum, own) in all.iter_mut().zip(&stats.commands) {
            if let Some(histogram) = own.distribution.get() {
                sum.add(histogram);
            }
        }
    }
    all
}

/// Counters of one worker.
pub struct ExecutorStats {
    /// Counters by command.
    pub commands: Box<[CommandStats]>,
    /// Bytes read from clients.
    pub net_in: Counter,
    /// Bytes written to clients.
    pub net_out: Counter,
    /// Number of read and write system calls.
    pub reads: Counter,
    /// See `reads`.
    pub writes: Counter,
    /// Number of error replies.
    pub errors: Counter,
    /// Number of error replies, by the first word of their line. Written by its worker, read by INFO.
    pub errors_by_code: Mutex<BTreeMap<Box<str>, u64>>,
    /// Number of lookups that found a key and that did not, of expired and evicted keys: copies of the keyspace's counts.
    pub hits: Counter,
    /// See `hits`.
    pub misses: Counter,
    /// See `hits`.
    pub expired: Counter,
    /// Number of elements of collections that expired: likewise.
    pub expired_elements: Counter,
    /// See `hits`.
    pub evicted: Counter,
    /// Number of changes of keys by commands: likewise.
    pub changes: Counter,
    /// Number of denied logins, commands, keys and channels.
    pub denied_auth: Counter,
    /// See `denied_auth`.
    pub denied_command: Counter,
    /// See `denied_auth`.
    pub denied_key: Counter,
    /// See `denied_auth`.
    pub denied_channel: Counter,
    /// Number of times that a client was suspended because a stripe was in use.
    pub suspended: Counter,
    /// Number of polls for events that were delayed to let events gather.
    pub gathered: Counter,
    /// Number of clients that it has handed over to other workers.
    pub handed_over: Counter,
    /// Number of clients closed because they did not read their replies.
    pub output_limit_closed: Counter,
    /// Number of clients closed because their query buffer was too large.
    pub query_limit_closed: Counter,
    /// Number of clients closed because all together took too much memory.
    pub evicted_clients: Counter,
    /// Number of turns of its loop, and milliseconds that they took.
    pub turns: Counter,
    /// See `turns`.
    pub turn_ms: Counter,
    /// Microseconds that active expiry took, and number of times that its slice ended before it was done.
    pub expiry_us: Counter,
    /// See `expiry_us`.
    pub expiry_cut_short: Counter,
    /// Memory of its clients now: bytes.
    pub client_bytes: Counter,
    /// Memory of its interpreter as of the last update: bytes.
    pub interpreter_bytes: Counter,
}

impl Default for ExecutorStats {
    fn default() -> Self {
        ExecutorStats {
            commands: (0..CommandId::COUNT)
                .map(|_| CommandStats::default())
                .collect(),
            net_in: Counter::default(),
            net_out: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            errors: Counter::default(),
            errors_by_code: Mutex::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            expired: Counter::default(),
            expired_elements: Counter::default(),
            evicted: Counter::default(),
            changes: Counter::default(),
            denied_auth: Counter::default(),
            denied_command: Counter::default(),
            denied_key: Counter::default(),
            denied_channel: Counter::default(),
            suspended: Counter::default(),
            gathered: Counter::default(),
            handed_over: Counter::default(),
            output_limit_closed: Counter::default(),
            query_limit_closed: Counter::default(),
            evicted_clients: Counter::default(),
            turns: Counter::default(),
            turn_ms: Counter::default(),
            expiry_us: Counter::default(),
            expiry_cut_short: Counter::default(),
            client_bytes: Counter::default(),
            interpreter_bytes: Counter::default(),
        }
    }
}

/// Number of codes that are counted separately; scripts can make up any number. Above it no code is shown any more.
pub const ERROR_CODES_MAX: usize = 128;
/// Number of bytes after which a word is not taken for a code.
const ERROR_CODE_BYTES_MAX: usize = 30;

impl ExecutorStats {
    /// Returns the number of calls that ran.
    pub fn calls(&self) -> u64 {
        self.commands
            .iter()
            .map(|command| command.calls.get())
            .sum()
    }

    /// Counts an error reply.
    pub fn note_error(&self, line: &[u8]) {
        self.errors.add(1);
        let code = line.iter().position(|byte| *byte == b' ');
        let code = code.and_then(|end| str::from_utf8(&line[..end]).ok());
        let code = code.unwrap_or("ERR");
        let code = match code.len() {
            0..=ERROR_CODE_BYTES_MAX => code,
            _ => "ERR",
        };
        let mut codes = self
            .errors_by_code
            .lock()
            .expect("no panic under the error counts");
        if let Some(count) = codes.get_mut(code) {
            *count += 1;
        } else if codes.len() <= ERROR_CODES_MAX {
            codes.insert(code.into(), 1);
        }
    }
}

/// Counters of one command, over all workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommandTotals {
    /// Sum of the field of [`CommandStats`].
    pub calls: u64,
    /// Sum of the field of [`CommandStats`].
    pub ns: u64,
    /// Sum of the field of [`CommandStats`].
    pub rejected: u64,
    /// Sum of the field of [`CommandStats`].
    pub failed: u64,
}

/// Sums over all workers.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Counters by command.
    pub commands: Vec<CommandTotals>,
    /// Plain counters, by name.
    counts: [u64; COUNTERS.len()],
    /// Number of error replies by code.
    pub errors_by_code: BTreeMap<Box<str>, u64>,
}

macro_rules! counters {
    ($($name:ident),*) => {
        const COUNTERS: &[fn(&ExecutorStats) -> u64] = &[$(|stats| stats.$name.get()),*];

        #[allow(non_camel_case_types)]
        enum Place { $($name),* }

        impl Totals {
            $(
                #[doc = concat!("See [`ExecutorStats::", stringify!($name), "`].")]
                pub fn $name(&self) -> u64 {
                    self.counts[Place::$name as usize]
                }
            )*
        }
    };
}

counters!(
    net_in,
    net_out,
    reads,
    writes,
    errors,
    hits,
    misses,
    expired,
    expired_elements,
    evicted,
    changes,
    denied_auth,
    denied_command,
    denied_key,
    denied_channel,
    output_limit_closed,
    query_limit_closed,
    evicted_clients,
    turns,
    turn_ms,
    expiry_us,
    expiry_cut_short
);

/// Counters that CONFIG RESETSTAT does not reset, as in Redis.
const KEPT: [usize; 5] = [
    Place::changes as usize,
    Place::denied_auth as usize,
    Place::denied_command as usize,
    Place::denied_key as usize,
    Place::denied_channel as usize,
];

impl Totals {
    /// Returns the current sums.
    pub fn of(executors: &[ExecutorHandle]) -> Totals {
        let mut totals = Totals {
            commands: vec![Default::default(); CommandId::COUNT],
            ..Totals::default()
        };
        for stats in executors.iter().map(|executor| &executor.stats) {
            for (total, own) in totals.commands.iter_mut().zip(&stats.commands) {
                total.calls += own.calls.get();
                total.ns += own.ns.get();
                total.rejected += own.rejected.get();
                total.failed += own.failed.get();
            }
            for (total, read) in totals.counts.iter_mut().zip(COUNTERS) {
                *total += read(stats);
            }
            let codes = stats
                .errors_by_code
                .lock()
                .expect("no panic under the error counts");
            for (code, count) in codes.iter() {
                *totals.errors_by_code.entry(code.clone()).or_default() += count;
            }
        }
        totals
    }

    /// Returns the amounts that were added since `earlier`.
    pub fn since(mut self, earlier: &Totals) -> Totals {
        for (now, then) in self.commands.iter_mut().zip(&earlier.commands) {
            now.calls = now.calls.saturating_sub(then.calls);
            now.ns = now.ns.saturating_sub(then.ns);
            now.rejected = now.rejected.saturating_sub(then.rejected);
            now.failed = now.failed.saturating_sub(then.failed);
        }
        for (at, (now, then)) in self.counts.iter_mut().zip(&earlier.counts).enumerate() {
            if !KEPT.contains(&at) {
                *now = now.saturating_sub(*then);
            }
        }
        self
    }

    /// Returns the nanoseconds that commands took.
    pub fn command_ns(&self) -> u64 {
        self.commands.iter().map(|command| command.ns).sum()
    }

    /// Returns the number of calls that ran.
    pub fn calls(&self) -> u64 {
        self.commands.iter().map(|command| command.calls).sum()
    }
}
