//! `redline server`: connections, workers, configuration, the admin plane, wiring. Commands are run by `redline_engine`.
//!
//! Start with [`Server::start`] (the parts of a server), then `worker.rs` (the loop), then `worker/outlet.rs` (the
//! surroundings of an executor).
//!
//! | | file | holds |
//! |---|---|---|
//! | start | `start`, [`command_line`], `service` | a server's start and end; its command line; the process as a service |
//! | | `memory_test` | `--test-memory` |
//! | settings | [`config`], `settings` | the table of parameters, files, REWRITE; the structure that workers read |
//! | | `users` | sources of users |
//! | the loop | `worker` | its turn, connections; `worker/serve`: groups of sessions; `worker/mail`: messages to sessions |
//! | | `worker/outlet` | the worker's services for its executor |
//! | | `balance`, `worker/handover` | the choice of a client's worker; how a client changes its worker |
//! | | `bandwidth`, `worker/pace` | the limits on bandwidth: the rate; who waits for it |
//! | | `cron` | the timer: expiry, eviction, idle clients |
//! | the end | `ending` | SHUTDOWN and the signals: time for replicas, then the files |
//! | files | `persistence` | snapshots: when they are taken, slices of the walk, loading |
//! | | `cluster` | this server as the node of a cluster |
//! | | `shared`, `session` | state that all workers share; a connection with its caller |
//! | commands | `admin` | commands that need the worker, its connections or the configuration, by group |
//! | figures | `memory`, `rates` | memory; rates of the last moments |
//! | | `info`, `metrics`, `site` | INFO; Prometheus's page; it, health checks and the status page as resources |
//! | | `log` | the log |
//!
//! Must not know: the proxy, the bench.

#![forbid(unsafe_code)]

mod admin;
mod balance;
mod bandwidth;
mod cluster;
pub mod command_line;
pub mod config;
mod cron;
mod ending;
mod examine;
mod failover;
mod following;
mod info;
mod log;
mod memory;
mod memory_test;
mod metrics;
mod migrate;
mod persistence;
mod rates;
mod replication;
mod service;
mod session;
mod settings;
mod shared;
mod site;
mod start;
mod start_block;
mod stream;
mod users;
mod worker;

pub use redline_engine::{Names, settings::BusyScope};
pub use redline_net::{
    console,
    log_line::{Format as LogFormat, Timestamp as LogTimestamp},
    tls::ClientAuth,
};
pub use service::{OomScore, Service, Supervision};
pub use settings::{
    EndpointType, OutputLimit, Permission, ServiceSettings, Settings, TlsSettings, UserLine,
};
pub use start::{Origin, Server, StartError};

use shared::{Message, Shared};
use std::sync::atomic::Ordering;

pub use redline_engine::{REDIS_VERSION, REDLINE_VERSION};

/// Ends all workers; returns at once.
pub(crate) fn stop_workers(shared: &Shared) {
    if !shared.stopping.swap(true, Ordering::AcqRel) {
        if let Some(service) = &shared.origin.service {
            service.stopping();
        }
        // Before the first connection is closed: its client may connect again at once.
        shared.close_listeners();
        shared
            .workers()
            .iter()
            .for_each(|worker| worker.mailbox.send(Message::Stop));
    }
}
