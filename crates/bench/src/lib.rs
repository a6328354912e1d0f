//! Workloads, load engine, measurement, reports: `redline bench`, with redis-benchmark's command line.
//!
//! Must not know the keyspace or the server: what `--embedded` starts comes in from outside.
#![forbid(unsafe_code)]

pub mod batch;
pub mod compat;
pub mod options;
pub mod report;
pub mod suite;
mod usage;
