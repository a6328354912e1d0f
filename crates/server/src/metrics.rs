//! The metrics of the server in Prometheus's text format (version 0.0.4), for `redline_observe`'s listener.
//!
//! Names are those of redis_exporter for the same fact, so that dashboards made for it work; names of our own begin
//! with `redline_`. Counters go on from the start of the process and ignore CONFIG RESETSTAT, as rates need it, but those
//! of connections, of errors by their first word and some of INFO. Everything is read without a request to a worker.
//!
//! Must not know: HTTP, sessions beyond their client infos.

mod exporter;

use std::sync::atomic::Ordering;

use redline_net::{clock, process};
use redline_observe::{
    histogram::Distribution,
    metrics::{Page, Sort},
};
use redline_spec::{self as spec, CommandId};

use crate::{
    info::Facts,
    settings::Settings,
    shared::{Shared, WorkerHandle},
};
use redline_engine::{
    REDIS_VERSION, REDLINE_VERSION,
    caller::flag,
    commandlog::Kind as Log,
    pubsub::Kind,
    session::connection,
    stats::{self, CommandTotals, Totals},
};

/// Returns the whole page. `ttls_ms`: average times to live, by database.
pub(crate) fn page(shared: &Shared, ttls_ms: &[(u32, u64)]) -> String {
    let (settings, totals) = (shared.settings.current(), Totals::of(shared.executors()));
    let mut page = Page::default();
    instance(&mut page, shared, &settings);
    clients(&mut page, shared, &settings);
    memory(&mut page, shared, &settings);
    counters(&mut page, shared, &totals);
    keys(&mut page, shared, ttls_ms);
    commands(&mut page, &totals);
    latencies(&mut page, shared, &totals);
    percentiles(&mut page, shared, &settings, &totals);
    workers(&mut page, shared);
    let info = Facts::of(shared, &settings).sections(&totals, &exporter::SECTIONS);
    exporter::write(&mut page, &info);
    page.text
}

fn instance(page: &mut Page, shared: &Shared, settings: &Settings) {
    page.gauge("redis_up", "The server runs.", 1);
    let started_s = shared.started_us / 1_000_000;
    page.gauge(
        "redis_start_time_seconds",
        "When the process started, as Unix time.",
        started_s,
    );
    page.gauge(
        "redis_uptime_in_seconds",
        "How long ago that was.",
        (clock::wall_us() / 1_000_000).saturating_sub(started_s),
    );
    let name = "redis_instance_info";
    page.family(name, Sort::Gauge, "Which server this is.");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let port = shared.port.load(Ordering::Relaxed);
    let labels = [
        (
            "role",
            if settings.primary.is_some() {
                "slave"
            } else {
                "master"
            },
        ),
        ("redis_version", REDIS_VERSION),
        ("redis_build_id", "0"),
        ("redis_mode", connection::mode(&shared.engine)),
        (
            "os",
            &format!("Linux {} {}", kernel.trim(), std::env::consts::ARCH),
        ),
        ("maxmemory_policy", settings.maxmemory_policy.name()),
        ("tcp_port", &port.to_string()),
        ("run_id", &shared.run_id),
        ("process_id", &std::process::id().to_string()),
    ];
    page.sample(name, &labels, 1);
    let name = "redline_build_info";
    page.family(
        name,
        Sort::Gauge,
        "The program, and the Redis that it follows.",
    );
    let labels = [
        ("version", REDLINE_VERSION),
        ("redis_version", REDIS_VERSION),
    ];
    page.sample(name, &labels, 1);
    let cpu = process::cpu_self();
    page.counter(
        "redis_cpu_user_seconds_total",
        "CPU time spent in the program.",
        cpu.user.as_secs_f64(),
    );
    page.counter(
        "redis_cpu_sys_seconds_total",
        "CPU time spent in the kernel on its behalf.",
        cpu.system.as_secs_f64(),
    );
    page.gauge("redis_process_id", "Id of the process.", std::process::id());
    page.gauge(
        "redis_cluster_enabled",
        "The server is a node of a cluster.",
        u8::from(shared.cluster.is_some()),
    );
    page.gauge(
        "redis_config_maxclients",
        "The parameter maxclients.",
        settings.maxclients,
    );
    page.gauge(
        "redis_config_maxmemory",
        "The parameter maxmemory; 0: no limit.",
        settings.maxmemory_bytes,
    );
    let name = "redis_exporter_build_info";
    page.family(
        name,
        Sort::Gauge,
        "What exports these metrics: the server itself.",
    );
    page.sample(name, &[("version", REDLINE_VERSION)], 1);
    page.gauge(
        "redis_slowlog_length",
        "Entries of the slow log.",
        shared.command_logs.len(Log::Slow),
    );
    let newest = shared.command_logs.newest(Log::Slow, 1);
    let newest = newest.first();
    page.gauge(
        "redis_slowlog_last_id",
        "Id of the newest entry of the slow log; 0 without one.",
        newest.map_or(0, |entry| entry.id),
    );
    page.gauge(
        "redis_last_slow_execution_duration_seconds",
        "Duration of the newest call in the slow log; 0 without one.",
        newest.map_or(0.0, |entry| entry.value as f64 / 1e6),
    );
}

fn clients(page: &mut Page, shared: &Shared, settings: &Settings) {
    let infos = shared.client_infos();
    let flagged = |bit| {
        infos
            .iter()
            .filter(|info| info.flags.load(Ordering::Relaxed) & bit != 0)
            .count()
    };
    page.gauge(
        "redis_connected_clients",
        "Clients that are connected.",
        infos.len(),
    );
    page.gauge(
        "redis_blocked_clients",
        "Clients in a blocking command, or held back by CLIENT PAUSE.",
        flagged(flag::BLOCKED),
    );
    page.gauge(
        "redis_tracking_clients",
        "Clients that track keys.",
        shared.tracking.client_count(),
    );
    page.gauge(
        "redis_max_clients",
        "Most clients at a time.",
        settings.maxclients,
    );
    page.gauge(
        "redis_pubsub_channels",
        "Channels that somebody listens to.",
        shared.pubsub.channel_count(Kind::Channel),
    );
    page.gauge(
        "redis_pubsub_patterns",
        "Patterns that somebody listens to.",
        shared.pubsub.pattern_count(),
    );
    page.gauge(
        "redis_mem_clients_normal",
        "Memory of clients: bytes.",
        shared.client_bytes(),
    );
}

fn memory(page: &mut Page, shared: &Shared, settings: &Settings) {
    let used = shared.keyspace.used_bytes();
    let peak = shared
        .peak_bytes
        .fetch_max(used, Ordering::Relaxed)
        .max(used);
    page.gauge(
        "redis_memory_used_bytes",
        "Memory of keys and values, tables included: what maxmemory limits.",
        used,
    );
    page.gauge(
        "redis_memory_used_peak_bytes",
        "The most of it, as far as anybody looked.",
        peak,
    );
    page.gauge(
        "redis_memory_used_rss_bytes",
        "Resident memory of the process.",
        process::resident_bytes().unwrap_or(0),
    );
    page.gauge(
        "redis_memory_max_bytes",
        "The parameter maxmemory; 0: no limit.",
        settings.maxmemory_bytes,
    );
    page.gauge(
        "redis_memory_used_scripts_bytes",
        "Memory of cached scripts and libraries of functions.",
        shared.scripts.bytes() + shared.libraries.bytes(),
    );
}

fn counters(page: &mut Page, shared: &Shared, totals: &Totals) {
    let accepted = shared.connections_received.load(Ordering::Relaxed);
    let rejected = shared.connections_rejected.load(Ordering::Relaxed);
    for (name, help, value) in [
        (
            "redis_connections_received_total",
            "Connections accepted.",
            accepted,
        ),
        (
            "redis_rejected_connections_total",
            "Connections turned away, by maxclients or protected mode.",
            rejected,
        ),
        (
            "redis_commands_processed_total",
            "Commands that ran.",
            totals.calls(),
        ),
        (
            "redis_net_input_bytes_total",
            "Bytes read from clients.",
            totals.net_in(),
        ),
        (
            "redis_net_output_bytes_total",
            "Bytes written to clients.",
            totals.net_out(),
        ),
        (
            "redis_total_reads_processed",
            "Reads of sockets.",
            totals.reads(),
        ),
        (
            "redis_total_writes_processed",
            "Writes to sockets.",
            totals.writes(),
        ),
        (
            "redis_keyspace_hits_total",
            "Lookups that found a key.",
            totals.hits(),
        ),
        (
            "redis_keyspace_misses_total",
            "Lookups that did not.",
            totals.misses(),
        ),
        (
            "redis_expired_keys_total",
            "Keys that expired.",
            totals.expired(),
        ),
        (
            "redis_expired_subkeys_total",
            "Fields of hashes that expired.",
            totals.expired_elements(),
        ),
        (
            "redis_evicted_keys_total",
            "Keys evicted for memory.",
            totals.evicted(),
        ),
        (
            "redis_evicted_clients_total",
            "Clients closed for memory of all clients.",
            totals.evicted_clients(),
        ),
        (
            "redis_total_error_replies",
            "Error replies.",
            totals.errors(),
        ),
        (
            "redis_client_query_buffer_limit_disconnections_total",
            "Clients closed for the size of their requests.",
            totals.query_limit_closed(),
        ),
        (
            "redis_client_output_buffer_limit_disconnections_total",
            "Clients closed for replies that they left unread.",
            totals.output_limit_closed(),
        ),
        (
            "redis_acl_access_denied_auth_total",
            "Logins refused.",
            totals.denied_auth(),
        ),
        (
            "redis_acl_access_denied_cmd_total",
            "Commands refused to users.",
            totals.denied_command(),
        ),
        (
            "redis_acl_access_denied_key_total",
            "Keys refused to users.",
            totals.denied_key(),
        ),
        (
            "redis_acl_access_denied_channel_total",
            "Channels refused to users.",
            totals.denied_channel(),
        ),
    ] {
        page.counter(name, help, value);
    }
    let name = "redis_errors_total";
    page.family(name, Sort::Counter, "Error replies by the first word.");
    for (code, count) in &totals.errors_by_code {
        page.sample(name, &[("err", code)], count);
    }
}

fn keys(page: &mut Page, shared: &Shared, ttls_ms: &[(u32, u64)]) {
    let space = &shared.keyspace;
    let dbs: Vec<(String, u64, u64)> = space
        .used_databases()
        .map(|db| {
            let (keys, expiring) = (space.key_count(db), space.expiring_key_count(db));
            (format!("db{db}"), keys, expiring)
        })
        // The first is always shown; there may be very many others.
        .filter(|(db, keys, _)| *keys > 0 || db == "db0")
        .collect();
    let name = "redis_db_keys";
    page.family(name, Sort::Gauge, "Keys by database.");
    for (db, keys, _) in &dbs {
        page.sample(name, &[("db", db)], keys);
    }
    let name = "redis_db_keys_expiring";
    page.family(name, Sort::Gauge, "Keys that will expire, by database.");
    for (db, _, expiring) in &dbs {
        page.sample(name, &[("db", db)], expiring);
    }
    let name = "redis_db_avg_ttl_seconds";
    page.family(
        name,
        Sort::Gauge,
        "Average time that keys with an expiry have to live, by database, as of the scrape before.",
    );
    for (db, ttl_ms) in ttls_ms {
        let db = format!("db{db}");
        page.sample(name, &[("db", &db)], *ttl_ms as f64 / 1000.0);
    }
}

fn commands(page: &mut Page, totals: &Totals) {
    type Value = fn(&CommandTotals) -> f64;
    let families: [(&str, &str, Value); 4] = [
        (
            "redis_commands_total",
            "Times that a command ran.",
            |command| command.calls as f64,
        ),
        (
            "redis_commands_duration_seconds_total",
            "Time that it ran for.",
            |command| command.ns as f64 / 1e9,
        ),
        (
            "redis_commands_rejected_calls_total",
            "Times that it was refused before it ran.",
            |command| command.rejected as f64,
        ),
        (
            "redis_commands_failed_calls_total",
            "Times that it ran and answered with an error.",
            |command| command.failed as f64,
        ),
    ];
    for (name, help, value) in families {
        page.family(name, Sort::Counter, help);
        for (id, command) in CommandId::ALL.iter().zip(&totals.commands) {
            if command.calls + command.rejected > 0 {
                page.sample(name, &[("cmd", spec::row(*id).full_name)], value(command));
            }
        }
    }
}

/// Number of bounds of the histograms.
pub(crate) const BOUNDS: usize = 21;

/// Returns the upper bounds of the histograms: nanoseconds, from 1 us to 1 s, each twice the one before.
pub(crate) fn bounds_ns() -> impl Iterator<Item = u64> {
    (0..BOUNDS).map(|bound| 1024 << bound)
}

fn latencies(page: &mut Page, shared: &Shared, totals: &Totals) {
    let name = "redis_commands_latencies_usec";
    page.family(
        name,
        Sort::Histogram,
        "Times that a command took, in microseconds, while latency-tracking is on.",
    );
    let all = stats::distributions(shared.executors());
    let timed = all.iter().zip(&totals.commands);
    for (id, (distribution, command)) in CommandId::ALL.iter().zip(timed) {
        if distribution.count() > 0 {
            histogram(page, name, spec::row(*id).full_name, distribution, command);
        }
    }
}

fn histogram(
    page: &mut Page,
    name: &str,
    command: &str,
    distribution: &Distribution,
    totals: &CommandTotals,
) {
    let bucket = format!("{name}_bucket");
    for bound_ns in bounds_ns() {
        let le = (bound_ns as f64 / 1000.0).to_string();
        let labels = [("cmd", command), ("le", &le)];
        page.sample(&bucket, &labels, distribution.below(bound_ns));
    }
    let count = distribution.count();
    page.sample(&bucket, &[("cmd", command), ("le", "+Inf")], count);
    let us = totals.ns as f64 / 1000.0;
    page.sample(&format!("{name}_sum"), &[("cmd", command)], us);
    page.sample(&format!("{name}_count"), &[("cmd", command)], count);
}

/// Writes the percentiles of INFO latencystats; they count from the start, and not over a time.
fn percentiles(page: &mut Page, shared: &Shared, settings: &Settings, totals: &Totals) {
    let name = "redis_latency_percentiles_usec";
    page.family(
        name,
        Sort::Summary,
        "Percentiles of the times that a command took since the start, in microseconds (latency-tracking-info-percentiles).",
    );
    let all = stats::distributions(shared.executors());
    let timed = all.iter().zip(&totals.commands);
    for (id, (distribution, command)) in CommandId::ALL.iter().zip(timed) {
        if distribution.count() == 0 {
            continue;
        }
        let cmd = ("cmd", spec::row(*id).full_name);
        for text in &settings.latency_percentiles {
            let percent = text.parse().ok();
            let ns = percent.and_then(|percent| distribution.percentile_ns(percent));
            let us = ns.unwrap_or(0) as f64 / 1000.0;
            page.sample(name, &[cmd, ("quantile", text.as_str())], us);
        }
        page.sample(&format!("{name}_sum"), &[cmd], command.ns as f64 / 1000.0);
        page.sample(&format!("{name}_count"), &[cmd], distribution.count());
    }
}

fn workers(page: &mut Page, shared: &Shared) {
    page.gauge("redline_workers", "Worker threads.", shared.workers().len());
    type Figure = fn(&WorkerHandle) -> f64;
    let families: [(&str, Sort, &str, Figure); 6] = [
        (
            "redline_worker_connections",
            Sort::Gauge,
            "Connections of each worker.",
            |worker| worker.connections.load(Ordering::Relaxed) as f64,
        ),
        (
            "redline_worker_put_aside_total",
            Sort::Counter,
            "Times that a session of a worker was suspended: something that it needed was in use.",
            |worker| worker.stats.suspended.get() as f64,
        ),
        (
            "redline_worker_gathered_total",
            Sort::Counter,
            "Times that a worker let requests gather before it looked for them (event-coalescing-us).",
            |worker| worker.stats.gathered.get() as f64,
        ),
        (
            "redline_worker_handed_over_total",
            Sort::Counter,
            "Clients that a worker has handed over to others (balance-clients).",
            |worker| worker.stats.handed_over.get() as f64,
        ),
        (
            "redline_worker_turns_total",
            Sort::Counter,
            "Turns of a worker's event loop.",
            |worker| worker.stats.turns.get() as f64,
        ),
        (
            "redline_worker_busy_seconds_total",
            Sort::Counter,
            "Time that a worker's turns took, without its waits for events.",
            |worker| worker.stats.turn_ms.get() as f64 / 1000.0,
        ),
    ];
    for (name, sort, help, figure) in families {
        page.family(name, sort, help);
        for (number, worker) in shared.workers().iter().enumerate() {
            page.sample(name, &[("worker", &number.to_string())], figure(worker));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.sample("a", &[("b", "x\"y\\z\n"), ("c", "d")], 1.5);
        assert_eq!(page.text, "a{b=\"x\\\"y\\\\z\\n\",c=\"d\"} 1.5\n");
    }
}
