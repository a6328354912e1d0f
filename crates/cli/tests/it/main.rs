//! Integration tests of the program, in one binary: each starts its own processes.

mod append;
mod append_faults;
mod bench;
mod bench_run;
mod bench_tls;
mod check;
mod console;
#[path = "../../../bench/tests/it/fake_server/mod.rs"]
mod fake_server;
mod limits;
mod live;
mod memory;
mod proxy;
mod proxy_cache;
mod proxy_commands;
mod proxy_faults;
mod proxy_large;
mod proxy_log;
mod proxy_order;
mod proxy_others;
mod proxy_patience;
mod proxy_pools;
mod proxy_reads;
mod proxy_rights;
mod proxy_routing;
mod proxy_seeing;
mod proxy_sentinels;
mod proxy_session;
mod proxy_subscriptions;
mod proxy_tls;
mod proxy_traffic;
mod proxying;
mod request_limits;
mod running;
mod server;
mod service;
