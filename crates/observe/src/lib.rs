//! Counts, times and logs requests, and reports on them: counters with one writer, histograms, the log of slow calls,
//! the latency monitor, Prometheus's text format and its listener, lines for MONITOR.
//!
//! The server and the proxy use it alike. It must not know keys, sessions, workers or configuration.

#![forbid(unsafe_code)]

pub mod counter;
pub mod histogram;
pub mod latency;
pub mod metrics;
pub mod quote;
pub mod secret;
pub mod slowlog;

pub use counter::Counter;
