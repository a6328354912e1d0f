//! Observability of the data path: counters, latencies, frequent and large keys, MONITOR.
//!
//! | file | holds |
//! |---|---|
//! | `stats` | counters of each worker, and the sums |
//! | `steps` | predixy's latency monitors |
//! | `record` | recording of replies: the only part on the request path, once for each run of them |
//! | `keys` | frequent keys, large keys |
//! | `tune` | settings that CONFIG SET changes |
//! | `monitor` | MONITOR |
//! | `memory` | memory of buffers, and the limit |
//!
//! Must not know how requests are routed.

pub mod keys;
pub mod memory;
pub mod monitor;
pub mod record;
pub mod stats;
pub mod steps;
pub mod tune;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use redline_observe::latency::Events;
use redline_observe::slowlog;
use redline_proxy_config::Config;

pub use memory::OUT_OF_MEMORY;
pub use memory::tell_of_query_buffer;
pub use record::{MIXED, Recorder};
pub use stats::{Counters, NodeStats};

use crate::route::{Node, NodeId, Routes};
use stats::{Totals, WorkerStats, lock};
use steps::Monitors;
use tune::Tune;

/// Observability state that all workers share.
pub struct Observations {
    /// The proxy's name.
    pub name: String,
    /// The name of its data centre.
    pub local_data_center: String,
    /// The first listener's address.
    pub bind: String,
    /// Latency monitors.
    pub monitors: Arc<Monitors>,
    /// Counters of each worker.
    pub workers: Vec<Arc<WorkerStats>>,
    /// Totals at the time of the last CONFIG RESETSTAT.
    pub baseline: Mutex<Totals>,
    /// The slow log.
    pub slow: slowlog::Log,
    /// Events of the latency monitor.
    pub events: Events,
    /// Settings that CONFIG SET changes.
    pub tune: Tune,
    /// Number of clients that called MONITOR.
    pub watchers: AtomicUsize,
}

impl Observations {
    /// Returns the state of this many workers.
    pub fn new(config: &Config, workers: usize) -> Observations {
        Observations {
            name: config.name.clone(),
            local_data_center: config.local_data_center.clone(),
            bind: config
                .listeners
                .first()
                .map(|listener| listener.bind.to_string())
                .unwrap_or_default(),
            monitors: Arc::new(Monitors::of(&config.latency_monitors)),
            workers: (0..workers).map(|_| Arc::default()).collect(),
            baseline: Mutex::default(),
            slow: slowlog::Log::default(),
            events: Events::default(),
            tune: Tune::new(config),
            watchers: AtomicUsize::new(0),
        }
    }

    /// Returns the totals since CONFIG RESETSTAT. `lines_left_out`: log lines for which the queue had no room.
    pub fn totals(&self, routes: &Routes, lines_left_out: u64) -> Totals {
        let mut totals = Totals::of(&self.workers, &routes.nodes, lines_left_out);
        totals.subtract(&lock(&self.baseline));
        totals
    }

    /// Returns the number of clients' requests that the server `node`, whose number is `number`, has answered since the start.
    pub fn answers_of(&self, number: NodeId, node: &Node) -> u64 {
        let workers = self.workers.iter();
        workers.map(|worker| worker.answers_of(number, node)).sum()
    }

    /// Handles CONFIG RESETSTAT. `lines_left_out`: log lines for which the queue had no room.
    pub fn reset(&self, routes: &Routes, lines_left_out: u64) {
        *lock(&self.baseline) = Totals::of(&self.workers, &routes.nodes, lines_left_out);
        for worker in &self.workers {
            lock(&worker.frequent).clear();
            lock(&worker.largest).clear();
        }
        // Workers adopt it in the way of a changed setting.
        self.tune.change(|_| ());
    }
}
