//! Observability of the proxy: counters, latencies, logs, keys that come often or are large, MONITOR.
//!
//! | file | holds |
//! |---|---|
//! | `stats` | what each worker counts, and the sums |
//! | `steps` | predixy's latency monitors |
//! | `record` | what a worker does when replies come: the only part on the way of requests, once for each run of them |
//! | `keys` | keys that come often, keys of much |
//! | `tune` | what CONFIG SET changes |
//! | `log` | the log file |
//! | `info`, `config`, `commands` | INFO, CONFIG, SLOWLOG, LATENCY, PROXY |
//! | `monitor` | MONITOR |
//! | `memory` | what buffers use, and the limit |
//! | `metrics` | the page for Prometheus |
//!
//! Must not know how requests are routed.

pub(crate) mod commands;
pub(crate) mod config;
pub(crate) mod info;
mod keys;
pub mod log;
pub(crate) mod memory;
pub mod metrics;
pub(crate) mod monitor;
mod record;
mod stats;
mod steps;
mod tune;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use redline_observe::latency::Events;
use redline_observe::slowlog;
use redline_proxy_config::Config;

pub use memory::OUT_OF_MEMORY;
pub(crate) use memory::tell_of_query_buffer;
pub use record::{MIXED, Seeing};
pub use stats::{Counters, NodeStats};

use crate::route::{Node, NodeId, Routes};
use stats::{Totals, WorkerStats, lock};
use steps::Monitors;
use tune::Tune;

/// Observability state that all workers share.
pub struct Seen {
    /// The proxy's name.
    name: String,
    /// The place that it is in.
    local_data_center: String,
    /// The first listener's address.
    bind: String,
    monitors: Arc<Monitors>,
    workers: Vec<Arc<WorkerStats>>,
    /// Totals at the time of the last CONFIG RESETSTAT.
    baseline: Mutex<Totals>,
    slow: slowlog::Log,
    events: Events,
    tune: Tune,
    /// Clients that called MONITOR.
    watchers: AtomicUsize,
}

impl Seen {
    /// Of so many workers.
    pub fn new(config: &Config, workers: usize) -> Seen {
        Seen {
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

    /// Returns the totals since CONFIG RESETSTAT.
    fn totals(&self, routes: &Routes) -> Totals {
        let mut totals = Totals::of(&self.workers, &routes.nodes);
        totals.subtract(&lock(&self.baseline));
        totals
    }

    /// How many requests of clients the server `node`, whose number is `number`, has answered since the start.
    pub fn answers_of(&self, number: NodeId, node: &Node) -> u64 {
        let workers = self.workers.iter();
        workers.map(|worker| worker.answers_of(number, node)).sum()
    }

    /// CONFIG RESETSTAT.
    fn reset(&self, routes: &Routes) {
        *lock(&self.baseline) = Totals::of(&self.workers, &routes.nodes);
        for worker in &self.workers {
            lock(&worker.frequent).clear();
            lock(&worker.largest).clear();
        }
        // Workers take it up as they take up a setting.
        self.tune.change(|_| ());
    }
}
