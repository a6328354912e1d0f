//! The metrics of the proxy for Prometheus. The number of series is bounded: commands are those of the command table,
//! servers those of the configuration or the cluster, users by name are a hundred at most, and no key ever is a label.
//!
//! Counters count from the start of the process, independent of CONFIG RESETSTAT. Must not know HTTP.

use std::io;
use std::sync::Arc;

use redline_net::http::Responder;
use redline_net::{Listener, UnixAccess, clock, process};
use redline_observe::histogram::Distribution;
use redline_observe::metrics::{Page, Sort};
use redline_proxy_config::Place;

use super::info::named;
use super::site::Pages;
use super::stats::{CommandTotals, NodeTotals, Totals};
use crate::host::Process;
use crate::route::{Node, Routes};
use crate::shared::Shared;
use crate::start::spawn;

/// Largest number of connections that wait to be accepted.
const BACKLOG: u32 = 16;
/// Number of histogram bounds, which double from 1,024 ns, about a microsecond.
const BOUNDS: u32 = 20;

/// Listens for Prometheus.
pub fn listen(place: &Place) -> io::Result<Responder> {
    let listeners = match place {
        Place::Tcp { host, port } => Listener::bind_tcp(&[host], *port, BACKLOG),
        Place::Unix(path) => {
            Listener::bind_unix(path, UnixAccess::default(), BACKLOG).map(|listener| vec![listener])
        }
    };
    let named = |error: redline_net::NetError| io::Error::other(format!("metrics: {error}"));
    Responder::new(listeners.map_err(named)?)
}

/// Answers on a separate thread, until the process ends.
pub fn start(responder: Responder, shared: &Arc<Shared>, process: &Arc<Process>) -> io::Result<()> {
    let mut pages = Pages::new(Arc::clone(shared), Arc::clone(process));
    let run = move || {
        if let Err(error) = responder.run(|| false, &mut pages) {
            super::log::error(&format!("metrics listener failed: {error}"));
        }
    };
    spawn("proxy-metrics", run)?;
    Ok(())
}

/// Returns the whole page.
pub(super) fn page(shared: &Shared, host: &Process) -> String {
    let routes = host.routes.current();
    let totals = Totals::of(
        &shared.observations.workers,
        &routes.nodes,
        super::log::missed(),
    );
    let mut page = Page::default();
    process_wide(&mut page, shared, host, &totals);
    counters(&mut page, &totals);
    servers(&mut page, &routes, &totals);
    commands(&mut page, &totals);
    users(&mut page, &totals);
    page.text
}

fn process_wide(page: &mut Page, shared: &Shared, host: &Process, totals: &Totals) {
    let name = "redline_proxy_info";
    page.family(name, Sort::Gauge, "Which proxy this is.");
    let labels = [
        ("name", shared.observations.name.as_str()),
        ("version", env!("CARGO_PKG_VERSION")),
    ];
    page.sample(name, &labels, 1);
    let uptime_s = (clock::wall_ms() / 1000).saturating_sub(host.began_s);
    page.gauge(
        "redline_proxy_uptime_seconds",
        "How long it has run.",
        uptime_s,
    );
    page.gauge(
        "redline_proxy_workers",
        "Threads that serve clients.",
        host.workers.len(),
    );
    page.gauge(
        "redline_proxy_clients",
        "Clients that are connected.",
        host.client_count(),
    );
    page.gauge(
        "redline_proxy_buffer_bytes",
        "Bytes of requests and replies that are held.",
        totals.counters.buffer_bytes,
    );
    page.gauge(
        "redline_proxy_resident_bytes",
        "Memory of the process.",
        process::resident_bytes().unwrap_or(0),
    );
    let cpu = process::cpu_self();
    let name = "redline_proxy_cpu_seconds_total";
    page.family(name, Sort::Counter, "CPU time.");
    page.sample(name, &[("mode", "user")], cpu.user.as_secs_f64());
    page.sample(name, &[("mode", "system")], cpu.system.as_secs_f64());
}

fn counters(page: &mut Page, totals: &Totals) {
    let counters = &totals.counters;
    for (name, help, value) in [
        (
            "redline_proxy_connections_accepted_total",
            "Clients that came.",
            counters.accepted,
        ),
        (
            "redline_proxy_connections_rejected_total",
            "Clients that were turned away by limits.clients.",
            counters.rejected,
        ),
        (
            "redline_proxy_requests_total",
            "Requests of clients.",
            counters.requests,
        ),
        (
            "redline_proxy_responses_total",
            "Replies to clients.",
            counters.responses,
        ),
        (
            "redline_proxy_client_received_bytes_total",
            "Bytes that came from clients.",
            counters.received_bytes,
        ),
        (
            "redline_proxy_client_sent_bytes_total",
            "Bytes that went to clients.",
            counters.sent_bytes,
        ),
        (
            "redline_proxy_requests_refused_for_memory_total",
            "Requests that limits.memory refused.",
            counters.refused_for_memory,
        ),
        (
            "redline_proxy_clients_evicted_total",
            "Clients that limits.memory closed.",
            counters.evicted_clients,
        ),
        (
            "redline_proxy_log_lines_left_out_total",
            "Log lines for which the queue had no room.",
            totals.log_lines_left_out,
        ),
        (
            "redline_proxy_cache_hits_total",
            "Calls of GET that the cache answered.",
            counters.cache.hits,
        ),
        (
            "redline_proxy_cache_misses_total",
            "Calls of GET that it might have answered.",
            counters.cache.misses,
        ),
        (
            "redline_proxy_cache_invalidations_total",
            "Keys of which servers said that they have changed.",
            counters.cache.invalidated,
        ),
        (
            "redline_proxy_cache_evictions_total",
            "Values that the cache threw away for want of room.",
            counters.cache.evicted,
        ),
    ] {
        page.counter(name, help, value);
    }
    page.gauge(
        "redline_proxy_cache_entries",
        "Values in the cache.",
        counters.cache.entries,
    );
    page.gauge(
        "redline_proxy_cache_bytes",
        "What they take.",
        counters.cache.bytes,
    );
}

/// A family with a sample for each server: its name, help, kind, and value.
type OfServer = (&'static str, &'static str, Sort, fn(&NodeTotals) -> u64);

const OF_SERVER: [OfServer; 8] = [
    (
        "redline_proxy_server_connections",
        "Connections to the server.",
        Sort::Gauge,
        |node| node.connections,
    ),
    (
        "redline_proxy_server_cache_workers",
        "Workers that cache what the server answers: none while it does not tell what changes.",
        Sort::Gauge,
        |node| node.caches,
    ),
    (
        "redline_proxy_server_connects_total",
        "Connections that were begun.",
        Sort::Counter,
        |node| node.connects,
    ),
    (
        "redline_proxy_server_requests_total",
        "Requests that went to the server.",
        Sort::Counter,
        |node| node.requests,
    ),
    (
        "redline_proxy_server_responses_total",
        "Replies that came from the server.",
        Sort::Counter,
        |node| node.responses,
    ),
    (
        "redline_proxy_server_sent_bytes_total",
        "Bytes that went to the server.",
        Sort::Counter,
        |node| node.sent_bytes,
    ),
    (
        "redline_proxy_server_received_bytes_total",
        "Bytes that came from the server.",
        Sort::Counter,
        |node| node.received_bytes,
    ),
    (
        "redline_proxy_server_timeouts_total",
        "Connections and requests that took too long.",
        Sort::Counter,
        |node| node.timed_out,
    ),
];

/// A server's labels, the server, and its totals.
type OfNode<'a> = ([(&'static str, &'a str); 2], &'a Node, &'a NodeTotals);

fn servers(page: &mut Page, routes: &Routes, totals: &Totals) {
    let default = NodeTotals::default();
    let used: Vec<OfNode<'_>> = routes
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| node.is_used)
        .map(|(at, node)| {
            // A server of two pools is two nodes.
            let pool = routes.pools.get(usize::from(node.pool));
            let pool = pool.map_or("", |pool| pool.name.as_str());
            let labels = [("server", node.name.as_str()), ("pool", pool)];
            (labels, node, totals.nodes.get(at).unwrap_or(&default))
        })
        .collect();
    let name = "redline_proxy_server_up";
    page.family(name, Sort::Gauge, "Whether the server is taken to work.");
    for (labels, node, _) in &used {
        page.sample(name, labels, u8::from(!node.ejected));
    }
    for (name, help, sort, value) in OF_SERVER {
        page.family(name, sort, help);
        for (labels, _, stats) in &used {
            page.sample(name, labels, value(stats));
        }
    }
    let name = "redline_proxy_server_latency_seconds";
    page.family(
        name,
        Sort::Histogram,
        "From a request to its reply, as the proxy sees it.",
    );
    for (labels, _, stats) in &used {
        histogram(page, name, labels, &stats.latency, stats.us);
    }
}

/// A family with a sample for each command: its name, help, and value.
type OfCommand = (&'static str, &'static str, fn(&CommandTotals) -> u64);

const OF_COMMAND: [OfCommand; 3] = [
    (
        "redline_proxy_command_calls_total",
        "Calls that were answered, by servers or by the proxy.",
        |command| command.calls,
    ),
    (
        "redline_proxy_command_failed_total",
        "Replies that were errors.",
        |command| command.failed,
    ),
    (
        "redline_proxy_command_rejected_total",
        "Calls that the proxy refused.",
        |command| command.rejected,
    ),
];

fn commands(page: &mut Page, totals: &Totals) {
    for (name, help, value) in OF_COMMAND {
        page.family(name, Sort::Counter, help);
        for (command, stats) in named(totals) {
            page.sample(name, &[("cmd", command)], value(stats));
        }
    }
    let name = "redline_proxy_command_latency_seconds";
    page.family(
        name,
        Sort::Histogram,
        "From a call to its reply, as the proxy sees it.",
    );
    for (command, stats) in named(totals) {
        histogram(page, name, &[("cmd", command)], &stats.latency, stats.us);
    }
}

fn users(page: &mut Page, totals: &Totals) {
    if totals.users.is_empty() {
        return;
    }
    let name = "redline_proxy_user_requests_total";
    page.family(name, Sort::Counter, "Requests by user.");
    for (user, requests) in &totals.users {
        let user = String::from_utf8_lossy(user);
        page.sample(name, &[("user", &user)], requests);
    }
}

fn histogram(
    page: &mut Page,
    name: &str,
    labels: &[(&str, &str)],
    latency: &Distribution,
    sum_us: u64,
) {
    let bucket = format!("{name}_bucket");
    let mut count = |bound: &str, count: u64| {
        let mut labels = labels.to_vec();
        labels.push(("le", bound));
        page.sample(&bucket, &labels, count);
    };
    for power in 0..BOUNDS {
        let bound_ns = 1024_u64 << power;
        count(
            &(bound_ns as f64 / 1e9).to_string(),
            latency.below(bound_ns),
        );
    }
    count("+Inf", latency.count());
    page.sample(&format!("{name}_sum"), labels, sum_us as f64 / 1e6);
    page.sample(&format!("{name}_count"), labels, latency.count());
}
