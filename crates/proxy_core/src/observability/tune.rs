//! Settings that CONFIG SET changes while the proxy runs, and their publication to workers. Must not know their names in CONFIG.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use redline_proxy_config::{Config, Samples, Span};

use super::stats::lock;

/// Settings that may change at runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// Latency from which calls enter the slow log: microseconds; negative: none.
    pub slower_than_us: i64,
    /// Largest number of entries of the slow log.
    pub slow_max: usize,
    /// Latency from which replies are events of the latency monitor: milliseconds; 0: none.
    pub latency_threshold_ms: u64,
    /// Memory limit of buffers of the process: bytes; 0: no limit.
    pub memory_bytes_max: u64,
    /// Time-out of idle clients: seconds; 0: none.
    pub client_idle_s: u64,
    /// Log lines may be left out.
    pub may_drop: bool,
    /// Sampling intervals of log lines.
    pub samples: Samples,
    /// Number of requests of which one is inspected for its keys; 0: none.
    pub key_sample: u32,
}

/// The current settings, for all workers.
pub struct Tune {
    epoch: AtomicU64,
    tuning: Mutex<Tuning>,
}

impl Tune {
    /// Returns the settings of a configuration.
    pub fn new(config: &Config) -> Tune {
        let observe = &config.observe;
        let us = |span: Span| span.0.as_micros() as u64;
        let tuning = Tuning {
            slower_than_us: match observe.slowlog_log_slower_than.on() {
                Some(span) => span.as_micros() as i64,
                None => -1,
            },
            slow_max: observe.slowlog_max_len as usize,
            latency_threshold_ms: us(observe.latency_monitor_threshold).div_ceil(1_000),
            memory_bytes_max: config.limits.memory.0,
            client_idle_s: us(config.timeouts.client_idle).div_ceil(1_000_000),
            may_drop: config.log.may_drop,
            samples: config.log.sample.clone(),
            key_sample: observe.key_sample,
        };
        Tune {
            epoch: AtomicU64::new(1),
            tuning: Mutex::new(tuning),
        }
    }

    /// Returns a number that differs after each change: one load per turn.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the current settings.
    pub fn current(&self) -> Tuning {
        lock(&self.tuning).clone()
    }

    /// Changes the settings, and the epoch.
    pub fn change(&self, change: impl FnOnce(&mut Tuning)) {
        let mut tuning = lock(&self.tuning);
        change(&mut tuning);
        self.epoch.fetch_add(1, Ordering::Release);
    }
}
