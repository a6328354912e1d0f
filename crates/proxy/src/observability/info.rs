//! INFO: the sections and names of predixy, and those that clients of Redis look for. Must not know how counters are
//! kept.

use std::fmt::{Display, Write};

use redline_net::{clock, process};
use redline_observe::histogram::Distribution;
use redline_resp::Args;
use redline_spec::{self as spec, CommandId};

use super::stats::Totals;
use super::steps::StepTotals;
use crate::Context;
use crate::access;
use crate::requests::Flow;
use crate::route::NodeId;
use crate::slab::Ref;

/// Sections that INFO alone does not show.
const ONLY_BY_NAME: [&str; 2] = ["Commandstats", "Latencystats"];

/// The text so far.
#[derive(Default)]
struct Text(String);

impl Text {
    fn section(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        self.push(format_args!("# {name}\r\n"));
    }

    fn line(&mut self, name: &str, value: impl Display) {
        self.push(format_args!("{name}:{value}\r\n"));
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.0.write_fmt(text);
    }
}

/// Handles INFO and its sub-commands of predixy: `INFO Latency name`, `INFO ServerLatency address [name]`, `INFO
/// ResetStats`.
pub(crate) fn info(ctx: &mut Context, me: Ref, args: Args<'_>) -> Flow {
    let is = |at: usize, name: &str| {
        let word = args.get(at);
        word.is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let may_reset = !ctx.shared.names.is_forbidden(CommandId::ConfigResetstat);
    if is(1, "ResetStats") && args.len() == 2 && may_reset {
        // predixy permits it to all; here it requires the permission for CONFIG RESETSTAT.
        return match access::refusal(&mut ctx.clients, me, CommandId::ConfigResetstat, args) {
            Some(line) => ctx.clients.refuse(me, &line),
            None => reset_stats(ctx, me),
        };
    }
    ctx.publish_counters();
    let totals = ctx
        .shared
        .observations
        .totals(&ctx.routes, super::log::missed());
    let text = if is(1, "Latency") && args.len() == 3 {
        one_monitor(ctx, &args[2], &totals)
    } else if is(1, "ServerLatency") && (3..=4).contains(&args.len()) {
        monitors_of_server(ctx, &args[2], args.get(3), &totals)
    } else {
        Ok(sections(ctx, args, &totals))
    };
    match text {
        Ok(text) => ctx
            .clients
            .answer(me, |reply| reply.verbatim("txt", text.as_bytes())),
        Err(line) => ctx.clients.refuse(me, line),
    }
}

/// Handles CONFIG RESETSTAT.
pub(crate) fn reset_stats(ctx: &mut Context, me: Ref) -> Flow {
    ctx.publish_counters();
    let shared = std::sync::Arc::clone(&ctx.shared);
    shared.observations.reset(&ctx.routes, super::log::missed());
    ctx.recorder.tune(&shared.observations);
    ctx.clients.status(me, "OK")
}

fn sections(ctx: &Context, args: Args<'_>, totals: &Totals) -> String {
    let words: Vec<String> = args
        .iter()
        .skip(1)
        .map(|word| String::from_utf8_lossy(word).to_ascii_lowercase())
        .collect();
    let has = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    let wanted = |name: &str| {
        let is_usual = !ONLY_BY_NAME.contains(&name);
        has(name)
            || has("all")
            || has("everything")
            || is_usual && (words.is_empty() || has("default"))
    };
    let mut text = Text::default();
    if wanted("Server") || wanted("Proxy") {
        server(ctx, &mut text);
    }
    if wanted("Clients") {
        text.section("Clients");
        text.line("connected_clients", client_count(ctx));
        text.line("maxclients", ctx.shared.settings.clients_max);
    }
    if wanted("Memory") {
        text.section("Memory");
        text.line("used_memory", totals.counters.buffer_bytes);
        text.line("used_memory_rss", process::resident_bytes().unwrap_or(0));
        text.line("maxmemory", ctx.recorder.tuning.memory_bytes_max);
        text.line("maxmemory_policy", "noeviction");
    }
    if wanted("SystemResource") || wanted("CPU") {
        let cpu = process::cpu_self();
        text.section("SystemResource");
        text.line("UsedMemory", totals.counters.buffer_bytes);
        text.line("MaxMemory", ctx.recorder.tuning.memory_bytes_max);
        text.line("MaxRSS", peak_resident_bytes());
        text.line(
            "UsedCpuSys",
            format_args!("{:.3}", cpu.system.as_secs_f64()),
        );
        text.line("UsedCpuUser", format_args!("{:.3}", cpu.user.as_secs_f64()));
        text.line(
            "used_cpu_sys",
            format_args!("{:.6}", cpu.system.as_secs_f64()),
        );
        text.line(
            "used_cpu_user",
            format_args!("{:.6}", cpu.user.as_secs_f64()),
        );
    }
    if wanted("Stats") {
        stats(ctx, &mut text, totals);
    }
    if wanted("Replication") {
        text.section("Replication");
        text.line("role", "master");
        text.line("connected_slaves", 0);
    }
    if wanted("Cluster") {
        text.section("Cluster");
        text.line(
            "cluster_enabled",
            u8::from(ctx.shared.cluster_view.is_some()),
        );
    }
    if wanted("Servers") {
        servers(ctx, &mut text, totals);
    }
    if wanted("Commandstats") {
        text.section("Commandstats");
        for (name, command) in named(totals) {
            let mean = command.us as f64 / command.calls.max(1) as f64;
            text.push(format_args!(
                "cmdstat_{name}:calls={},usec={},usec_per_call={mean:.2},rejected_calls={},failed_calls={}\r\n",
                command.calls, command.us, command.rejected, command.failed
            ));
        }
    }
    if wanted("Latencystats") {
        text.section("Latencystats");
        let timed = named(totals).filter(|(_, command)| command.latency.count() > 0);
        for (name, command) in timed {
            text.push(format_args!(
                "latency_percentiles_usec_{name}:{}\r\n",
                percentiles(&command.latency)
            ));
        }
    }
    if wanted("LatencyMonitor") {
        text.section("LatencyMonitor");
        let names: Vec<&str> = ctx.shared.observations.monitors.names().collect();
        for (number, name) in names.into_iter().enumerate() {
            table(ctx, number, name, None, totals, &mut text.0);
        }
    }
    text.0
}

fn server(ctx: &Context, text: &mut Text) {
    let shared = &ctx.shared;
    let uptime_s = (clock::wall_ms() / 1000).saturating_sub(ctx.shell.process.began_s);
    let workers = ctx.shell.process.workers.len();
    text.section("Server");
    text.line("redis_version", spec::REFERENCE);
    let is_cluster = shared.cluster_view.is_some();
    text.line(
        "redis_mode",
        if is_cluster { "cluster" } else { "standalone" },
    );
    text.line("os", "Linux");
    text.line("arch_bits", usize::BITS);
    text.line("process_id", std::process::id());
    text.line("tcp_port", shared.port);
    text.line("uptime_in_seconds", uptime_s);
    text.line("uptime_in_days", uptime_s / (24 * 3600));
    text.line("Version", env!("CARGO_PKG_VERSION"));
    text.line("Name", &shared.observations.name);
    text.line("Bind", &shared.observations.bind);
    text.line("RedisMode", "proxy");
    text.line("SingleThread", if workers == 1 { "true" } else { "false" });
    text.line("WorkerThreads", workers);
    text.line("Uptime", uptime_s);
    let since = clock::local(ctx.shell.process.began_s);
    text.push(format_args!(
        "UptimeSince:{:04}-{:02}-{:02} {:02}:{:02}:{:02}\r\n",
        since.year, since.month, since.day, since.hour, since.minute, since.second
    ));
}

fn stats(ctx: &Context, text: &mut Text, totals: &Totals) {
    let counters = &totals.counters;
    text.section("Stats");
    text.line("Accept", counters.accepted);
    text.line("ClientConnections", client_count(ctx));
    text.line("TotalRequests", counters.requests);
    text.line("TotalResponses", counters.responses);
    text.line("TotalRecvClientBytes", counters.received_bytes);
    text.line("TotalSendServerBytes", totals.server_sent_bytes);
    text.line("TotalRecvServerBytes", totals.server_received_bytes);
    text.line("TotalSendClientBytes", counters.sent_bytes);
    text.line("total_connections_received", counters.accepted);
    text.line("rejected_connections", counters.rejected);
    text.line("total_commands_processed", counters.requests);
    text.line("instantaneous_ops_per_sec", counters.requests_per_second);
    text.line("total_net_input_bytes", counters.received_bytes);
    text.line("total_net_output_bytes", counters.sent_bytes);
    text.line("refused_for_memory", counters.refused_for_memory);
    text.line("evicted_clients", counters.evicted_clients);
    text.line("slowlog_passed_over", counters.slow_passed_over);
    text.line("log_lines_left_out", totals.log_lines_left_out);
    let cache = &counters.cache;
    text.line("cache_hits", cache.hits);
    text.line("cache_misses", cache.misses);
    text.line("cache_invalidations", cache.invalidated);
    text.line("cache_evictions", cache.evicted);
    text.line("cache_entries", cache.entries);
    text.line("cache_bytes", cache.bytes);
}

fn servers(ctx: &Context, text: &mut Text, totals: &Totals) {
    text.section("Servers");
    for (number, node) in ctx.routes.nodes.iter().enumerate() {
        let (role, group) = role(ctx, number as NodeId);
        let default = Default::default();
        let stats = totals.nodes.get(number).unwrap_or(&default);
        if !node.is_used && stats.connections == 0 {
            continue;
        }
        text.line("Server", &node.name);
        text.line("Role", role);
        text.line("Group", group);
        text.line("DC", &node.data_center);
        text.line("CurrentIsFail", u8::from(node.ejected));
        text.line("Connections", stats.connections);
        text.line("Connect", stats.connects);
        text.line("Requests", stats.requests);
        text.line("Responses", stats.responses);
        text.line("SendBytes", stats.sent_bytes);
        text.line("RecvBytes", stats.received_bytes);
        text.line("TimedOut", stats.timed_out);
        let pool = ctx.routes.pools.get(usize::from(node.pool));
        if pool.is_some_and(|pool| pool.caching.is_some()) {
            text.line("CacheWorkers", stats.caches);
        }
        text.push(format_args!(
            "LatencyUs:{}\r\n\r\n",
            percentiles(&stats.latency)
        ));
    }
}

/// Returns the role of a server, and its shard and pool.
pub(crate) fn role(ctx: &Context, node: NodeId) -> (&'static str, String) {
    let number = ctx.routes.nodes[usize::from(node)].pool;
    let Some(pool) = ctx.routes.pools.get(usize::from(number)) else {
        return ("none", String::new());
    };
    for (number, shard) in pool.shards.iter().enumerate() {
        if shard.primary == node {
            return ("master", format!("{}/{number}", pool.name));
        }
        if shard.replicas.contains(&node) {
            return ("slave", format!("{}/{number}", pool.name));
        }
    }
    ("none", pool.name.clone())
}

fn client_count(ctx: &Context) -> usize {
    ctx.shell.process.client_count()
}

/// Writes the table of one monitor, of one server or of all together.
pub(crate) fn table(
    ctx: &Context,
    number: usize,
    name: &str,
    server: Option<usize>,
    totals: &Totals,
    text: &mut String,
) {
    let mut sum = StepTotals::default();
    for (at, node) in totals.nodes.iter().enumerate() {
        if server.is_none_or(|server| server == at)
            && let Some(steps) = node.steps.get(number)
        {
            sum.add_totals(steps);
        }
    }
    let head = match server {
        None => format!("LatencyMonitorName:{name}\r\n"),
        Some(server) => format!(
            "ServerLatencyMonitorName:{} {name}\r\n",
            ctx.routes.nodes[server].name
        ),
    };
    text.push_str(&head);
    ctx.shared.observations.monitors.write(number, &sum, text);
    text.push_str("\r\n");
}

/// Returns one monitor, in total and by server.
fn one_monitor(ctx: &Context, wanted: &[u8], totals: &Totals) -> Result<String, &'static str> {
    let names: Vec<&str> = ctx.shared.observations.monitors.names().collect();
    let found = names.iter().position(|name| name.as_bytes() == wanted);
    let number = found.ok_or("ERR no such latency monitor")?;
    let mut text = String::from("# LatencyMonitor\r\n");
    table(ctx, number, names[number], None, totals, &mut text);
    text.push_str("# ServerLatencyMonitor\r\n");
    for (server, node) in ctx.routes.nodes.iter().enumerate() {
        if node.is_used {
            table(ctx, number, names[number], Some(server), totals, &mut text);
        }
    }
    Ok(text)
}

/// Returns one monitor of a server, or all.
fn monitors_of_server(
    ctx: &Context,
    server: &[u8],
    wanted: Option<&[u8]>,
    totals: &Totals,
) -> Result<String, &'static str> {
    let mut nodes = ctx.routes.nodes.iter();
    let found = nodes.position(|node| node.name.as_bytes() == server);
    let server = found.ok_or("ERR no such server")?;
    let names: Vec<&str> = ctx.shared.observations.monitors.names().collect();
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name.as_bytes());
    if wanted.is_some() && !names.iter().any(|name| is_wanted(name)) {
        return Err("ERR no such latency monitor");
    }
    let mut text = String::from("# ServerLatencyMonitor\r\n");
    for (number, name) in names.into_iter().enumerate() {
        if is_wanted(name) {
            table(ctx, number, name, Some(server), totals, &mut text);
        }
    }
    Ok(text)
}

/// Returns the commands that were called, by name.
pub(super) fn named(
    totals: &Totals,
) -> impl Iterator<Item = (&'static str, &super::stats::CommandTotals)> {
    totals.commands.iter().filter_map(|(number, command)| {
        let id = CommandId::ALL.get(usize::from(*number))?;
        Some((spec::row(*id).full_name, command))
    })
}

fn percentiles(latency: &Distribution) -> String {
    let us = |percent| latency.percentile_ns(percent).unwrap_or(0) as f64 / 1000.0;
    format!(
        "p50={:.3},p99={:.3},p99.9={:.3}",
        us(50.0),
        us(99.0),
        us(99.9)
    )
}

/// Returns the peak resident memory of the process.
fn peak_resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kb.unwrap_or(0) * 1024
}
