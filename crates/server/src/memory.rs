//! Memory use: the figures behind INFO memory and MEMORY.
//!
//! `used_bytes` is the account that `maxmemory` limits: the keyspace, with keys, values and their tables. Other memory of the
//! process (buffers of clients, interpreters, scripts) is counted separately and no part of it. Must not know: the callers.

use std::sync::atomic::Ordering;

use redline_net::process;
use redline_scripting::Host;
use redline_table::heap;

use crate::{cron, shared::Shared, worker::Worker};

/// Figures of one moment: bytes, unless stated otherwise.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Bytes of keys, values, tables, and of an empty keyspace.
    pub used_bytes: u64,
    /// The part of it that an empty keyspace has.
    pub startup_bytes: u64,
    /// Peak of `used_bytes`.
    pub peak_bytes: u64,
    /// Time of the peak: Unix time in seconds.
    pub peak_at_s: u64,
    /// Bytes of the process that are resident in memory.
    pub resident_bytes: u64,
    /// Allocated objects of our own arenas, and values that are too large for them.
    pub live_bytes: u64,
    /// Bytes that the arenas hold from the operating system, and the same values.
    pub mapped_bytes: u64,
    /// Buffers of clients.
    pub client_bytes: u64,
    /// Cached scripts.
    pub script_bytes: u64,
    /// Libraries of functions.
    pub function_bytes: u64,
    /// Heaps of the interpreters of scripts.
    pub script_heap_bytes: u64,
    /// Heap of the interpreter of functions; 0 while it runs.
    pub function_heap_bytes: u64,
    /// Databases that hold keys.
    pub databases: Vec<Database>,
}

/// Memory of a database's tables.
#[derive(Clone, Copy, Debug)]
pub struct Database {
    /// Number of the database.
    pub number: u32,
    /// Number of keys.
    pub keys: u64,
    /// Bytes of the table of keys.
    pub table_bytes: u64,
    /// Bytes of the tables for expiry.
    pub expiry_bytes: u64,
}

impl Memory {
    /// Returns the current figures.
    pub fn now(worker: &Worker) -> Memory {
        cron::note_memory(worker);
        Memory::of(worker.shared)
    }

    /// Returns the figures as far as workers have noted them.
    pub fn of(shared: &Shared) -> Memory {
        let (entries, tables) = (heap::stats(), heap::table_stats());
        let space = &shared.keyspace;
        let database = |number| {
            let (table_bytes, expiry_bytes) = space.table_bytes(number);
            Database {
                number,
                keys: space.key_count(number),
                table_bytes,
                expiry_bytes,
            }
        };
        let databases = space.used_databases().map(database);
        let function_host = shared.function_host.lock();
        let function_host = function_host.expect("no panic under the interpreter's place");
        let script_heaps = shared.workers().iter();
        let used_bytes = space.used_bytes();
        let live_bytes = (entries.live_bytes + tables.live_bytes) as u64;
        let outside = used_bytes.saturating_sub(live_bytes);
        let mapped_bytes = (entries.mapped_bytes + tables.mapped_bytes) as u64;
        Memory {
            used_bytes,
            startup_bytes: space.fixed_bytes(),
            // Another worker may have counted more since the peak was noted.
            peak_bytes: shared.peak_bytes.load(Ordering::Relaxed).max(used_bytes),
            peak_at_s: shared.peak_at_s.load(Ordering::Relaxed),
            resident_bytes: process::resident_bytes().unwrap_or(0),
            live_bytes: live_bytes + outside,
            mapped_bytes: mapped_bytes + outside,
            client_bytes: shared.client_bytes(),
            script_bytes: shared.scripts.bytes() as u64,
            function_bytes: shared.libraries.bytes() as u64,
            script_heap_bytes: script_heaps.map(|w| w.stats.interpreter_bytes.get()).sum(),
            function_heap_bytes: function_host.as_ref().map_or(0, Host::memory_bytes) as u64,
            databases: databases.filter(|database| database.keys > 0).collect(),
        }
    }

    /// Returns the number of keys of all databases.
    pub fn keys(&self) -> u64 {
        self.databases.iter().map(|database| database.keys).sum()
    }

    /// Returns the part of the used bytes that is tables.
    pub fn table_bytes(&self) -> u64 {
        let bytes = |database: &Database| database.table_bytes + database.expiry_bytes;
        self.databases.iter().map(bytes).sum()
    }

    /// Returns the part of the used bytes that is neither keys nor values.
    pub fn overhead_bytes(&self) -> u64 {
        self.startup_bytes + self.table_bytes()
    }

    /// Returns the bytes that keys have added to those used at startup.
    pub fn net_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.startup_bytes)
    }

    /// Returns the part of the used bytes that is keys and values.
    pub fn dataset_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.overhead_bytes())
    }

    /// Returns the bytes of all interpreters' heaps.
    pub fn interpreter_bytes(&self) -> u64 {
        self.script_heap_bytes + self.function_heap_bytes
    }
}

/// Returns `part` in relation to `whole`; 1 if `whole` is 0.
pub fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 1.0,
        _ => part as f64 / whole as f64,
    }
}
