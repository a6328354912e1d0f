//! Observability of the process: shows, logs and exports the counters of the data path.
//!
//! | file | holds |
//! |---|---|
//! | `log` | the log file |
//! | `info`, `config`, `commands` | INFO, CONFIG, SLOWLOG, LATENCY, PROXY |
//! | `metrics` | the page for Prometheus |
//! | `site` | it, health checks and the status page as resources |
//!
//! Must not know how requests are routed.

pub(crate) mod commands;
pub(crate) mod config;
pub(crate) mod info;
pub mod log;
pub mod metrics;
mod site;

pub(crate) use redline_proxy_core::observability::{
    Observations, keys, memory, monitor, record, stats, steps, tune,
};
