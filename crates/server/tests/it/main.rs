//! Integration tests of the server, in one binary: each starts servers of its own, in this process. Those that measure or
//! change the whole process are in `tests/alone`.

mod acl;
mod admin;
mod bad_days;
mod bad_input;
mod bandwidth;
mod blocking;
mod client;
mod client_memory;
mod cluster;
mod config_live;
mod debug;
mod ending;
mod functions;
mod handover;
mod info;
mod journal;
mod limits;
mod memory;
mod metrics;
mod monitor;
mod observe;
mod pubsub;
mod replication;
mod roles;
mod scripts_busy;
mod snapshot_oracle;
mod snapshots;
mod sort;
mod stress;
mod tair;
mod time_series;
mod tls;
mod tracking;
mod types_replay;
mod waiting;
