//! Counters: each worker has its own, written with plain stores, read by whoever wants a sum.
//!
//! Must not know: what INFO makes of them.

use std::sync::atomic::{AtomicU64, Ordering};

use redline_spec::CommandId;

/// A counter with one writer: adding costs no atomic read-modify-write.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owning worker may.
    #[inline]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// The value now.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Overwrites; only the owning worker may, and CONFIG RESETSTAT.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// What is counted for one command.
#[derive(Debug, Default)]
pub struct CommandStats {
    /// Times that it ran.
    pub calls: Counter,
    /// Nanoseconds that it ran, fast commands measured in runs.
    pub ns: Counter,
    /// Times that it was refused before it ran.
    pub rejected: Counter,
    /// Times that it ran and answered with an error.
    pub failed: Counter,
}

/// Counters of one worker.
pub struct WorkerStats {
    /// By command.
    pub commands: Box<[CommandStats]>,
    /// Bytes read from clients.
    pub net_in: Counter,
    /// Bytes written to clients.
    pub net_out: Counter,
    /// Reads and writes: system calls.
    pub reads: Counter,
    /// See `reads`.
    pub writes: Counter,
    /// Commands run.
    pub processed: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Lookups that found a key, lookups that did not, expired and evicted keys: copies of the keyspace's counts.
    pub hits: Counter,
    /// See `hits`.
    pub misses: Counter,
    /// See `hits`.
    pub expired: Counter,
    /// See `hits`.
    pub evicted: Counter,
    /// Sessions put aside because a stripe was in use.
    pub put_aside: Counter,
    /// Clients closed because they did not read their replies.
    pub output_limit_closed: Counter,
    /// Clients closed because their query buffer was too large.
    pub query_limit_closed: Counter,
}

impl Default for WorkerStats {
    fn default() -> Self {
        WorkerStats {
            commands: (0..CommandId::COUNT).map(|_| CommandStats::default()).collect(),
            net_in: Counter::default(),
            net_out: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            processed: Counter::default(),
            errors: Counter::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            expired: Counter::default(),
            evicted: Counter::default(),
            put_aside: Counter::default(),
            output_limit_closed: Counter::default(),
            query_limit_closed: Counter::default(),
        }
    }
}
