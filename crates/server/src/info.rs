//! The text of INFO. Must not know: who asks.

use std::fmt::Write;

use redline_net::process;
use redline_resp::Args;

use crate::{REDIS_VERSION, REDLINE_VERSION, worker::Worker};

/// The sections that were asked for.
pub fn render(worker: &Worker, _: Args<'_>) -> String {
    let mut out = String::new();
    let shared = &worker.shared;
    let space = &shared.keyspace;
    let _ = write!(
        out,
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nserver_name:redline\r\nredline_version:{REDLINE_VERSION}\r\nredis_mode:standalone\r\nprocess_id:{}\r\nrun_id:{}\r\ntcp_port:{}\r\n\r\n# Clients\r\nconnected_clients:{}\r\nblocked_clients:0\r\n\r\n# Memory\r\nused_memory:{}\r\nused_memory_rss:{}\r\n\r\n# Keyspace\r\n",
        std::process::id(),
        shared.run_id,
        shared.port.load(std::sync::atomic::Ordering::Relaxed),
        shared.client_count(),
        space.used_bytes(),
        process::resident_bytes().unwrap_or(0),
    );
    for db in 0..space.databases() {
        let keys = space.key_count(db);
        if keys > 0 {
            let _ = write!(out, "db{db}:keys={keys},expires={},avg_ttl=0\r\n", space.expiring_key_count(db));
        }
    }
    out
}
