//! `redline server`: sessions, workers, configuration, the session and admin planes, wiring.
//!
//! Start with [`Server::start`] (what is made), then `worker.rs` (the loop), then `exec.rs` (the way of a
//! request).
//!
//! | | file | holds |
//! |---|---|---|
//! | start | `start`, [`command_line`], `service` | what is made and how it ends; redis-server's words; the process as a service |
//! | | `memory_test` | `--test-memory` |
//! | settings | [`config`], `settings` | the table of parameters, files, REWRITE; the structure that workers read |
//! | | `names` | what commands are called here |
//! | the loop | `worker` | its turn, connections; `worker/serve`: groups of sessions; `worker/mail`: messages to sessions |
//! | | `balance`, `worker/handover` | which worker serves whom; how a client changes its worker |
//! | | `cron` | the timer: expiry, eviction, idle clients |
//! | | `shared`, `session` | what all workers share; what is known of a connection, and what others may see of it |
//! | a request | `exec` | from the batch to the reply; `exec/batch`: steps to its keys; `exec/locked`: its stripes |
//! | | `access`, `errors` | whether a user may; refusals in Redis's words |
//! | | `block` | clients that wait for keys |
//! | | `planes` | commands that need the worker or the session, by group; those on keys are in `redline_commands` |
//! | told to others | `pubsub`, `subscribe` | channels; a session's part in them |
//! | | `subscribers` | who is told of one channel, pattern or prefix |
//! | | `tracking`, `monitor` | invalidation messages; MONITOR |
//! | figures | `stats`, `timing`, `memory` | counters, times of commands, memory |
//! | | `info`, `metrics` | INFO; Prometheus's page |
//! | | `commandlog`, `log`, `redact` | SLOWLOG's entries; the log; what must not be shown |
//!
//! Must not know: the proxy, the bench.

#![forbid(unsafe_code)]

mod access;
mod balance;
mod block;
pub mod command_line;
mod commandlog;
pub mod config;
mod cron;
mod errors;
mod exec;
mod info;
mod log;
mod memory;
mod memory_test;
mod metrics;
mod monitor;
mod names;
mod planes;
mod pubsub;
mod redact;
mod service;
mod session;
mod settings;
mod shared;
mod start;
mod stats;
mod subscribe;
mod subscribers;
mod timing;
mod tracking;
mod worker;

pub use commandlog::Threshold;
pub use log::{LogFormat, LogTimestamp};
pub use names::Names;
pub use redline_net::{console, tls::ClientAuth};
pub use service::{OomScore, Service, ServiceSettings, Supervision};
pub use settings::{BusyScope, OutputLimit, Permission, Settings, TlsSettings, UserLine};
pub use start::{Origin, Server, StartError};

use shared::{Message, Shared};
use std::sync::atomic::Ordering;

/// The Redis whose behaviour decides: what INFO and HELLO report as `redis_version`.
pub const REDIS_VERSION: &str = redline_spec::REFERENCE;
/// The module in which Redis brings vector sets, as clients are told of it.
pub(crate) const VECTOR_SETS: &str = "vectorset";
/// Name of this program where a server names itself.
pub(crate) const SERVER_NAME: &str = "redline";
/// Our own version.
pub const REDLINE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Ends all workers because a user wants it; returns at once.
pub(crate) fn shutdown(shared: &Shared) {
    if !shared.stopping.load(Ordering::Acquire) {
        log::notice("User requested shutdown...");
    }
    stop_workers(shared);
}

/// Ends all workers; returns at once.
pub(crate) fn stop_workers(shared: &Shared) {
    if !shared.stopping.swap(true, Ordering::AcqRel) {
        if let Some(service) = &shared.origin.service {
            service.stopping();
        }
        // Before the first client sees its connection end: it may connect again at once.
        shared.close_listeners();
        shared
            .workers()
            .iter()
            .for_each(|worker| worker.mailbox.send(Message::Stop));
    }
}
