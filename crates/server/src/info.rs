//! The text of INFO: one function per section.
//!
//! Fields have the names that tools read. Those of a part that does not exist are zero, or in Redis's words "not in
//! use". Must not know: the callers.

use std::{
    fmt::{self, Write},
    sync::atomic::Ordering,
};

use redline_keyspace::{SIZE_CLASSES, Sizes, Unit};
use redline_net::{clock, process};
use redline_replica::{Replid, link::State as LinkState, primary::State};
use redline_resp::Args;
use redline_spec::{self as spec, CommandId, Module};
use redline_types::Kind;

use crate::{
    cron, failover,
    memory::{Memory, ratio},
    settings::Settings,
    shared::Shared,
    worker::Worker,
};
use redline_engine::{
    REDIS_VERSION, REDLINE_VERSION, SERVER_NAME,
    caller::flag,
    executor::figures,
    pubsub,
    session::connection,
    stats::{ERROR_CODES_MAX, Totals},
};

type Render = fn(&Facts<'_>, &Totals, &mut Out<'_>) -> fmt::Result;

/// Name, title, whether it is shown by default, and the function that writes it.
const SECTIONS: &[(&str, &str, bool, Render)] = &[
    ("server", "Server", true, server),
    ("clients", "Clients", true, clients),
    ("memory", "Memory", true, memory),
    ("persistence", "Persistence", true, persistence),
    ("threads", "Threads", true, threads),
    ("stats", "Stats", true, stats),
    ("replication", "Replication", true, replication),
    ("cpu", "CPU", true, cpu),
    ("modules", "Modules", true, modules),
    ("commandstats", "Commandstats", false, commandstats),
    ("errorstats", "Errorstats", true, errorstats),
    ("latencystats", "Latencystats", false, latencystats),
    ("cluster", "Cluster", true, cluster),
    ("keyspace", "Keyspace", true, keyspace),
    ("keysizes", "Keysizes", true, keysizes),
];

/// The subject of the sections: what any thread can read of the server.
pub struct Facts<'a> {
    shared: &'a Shared,
    settings: &'a Settings,
    /// A walk that gives memory back is on its way.
    compacts: bool,
    now_ms: i64,
    now_s: u32,
}

impl<'a> Facts<'a> {
    /// Returns the facts for a thread that is no worker.
    pub fn of(shared: &'a Shared, settings: &'a Settings) -> Facts<'a> {
        Facts {
            shared,
            settings,
            compacts: false,
            now_ms: clock::wall_ms() as i64,
            now_s: (clock::wall_ms() / 1000) as u32,
        }
    }

    /// Returns the fields of sections that walk no data, as INFO has them, with these counts.
    pub fn sections(&self, totals: &Totals, wanted: &[&str]) -> String {
        let unit = Unit::none(&self.shared.keyspace);
        let mut out = Out {
            text: String::new(),
            unit: &unit,
            start: 0,
        };
        for (_, _, _, render) in SECTIONS.iter().filter(|(name, ..)| wanted.contains(name)) {
            render(self, totals, &mut out).expect("writing to a string does not fail");
        }
        out.text
    }
}

/// Returns the requested sections; without a name, the usual ones. `unit`: the caller's, or one that holds nothing.
pub fn render(worker: &Worker, unit: &Unit<'_>, wanted: Args<'_>) -> String {
    figures::copy_counts(worker.executor);
    cron::note_memory(worker);
    let facts = Facts {
        shared: worker.shared,
        settings: &worker.outlet.settings,
        compacts: worker.outlet.compaction.is_some(),
        now_ms: worker.now_ms,
        now_s: worker.local.clock.now_s,
    };
    let asked = |name: &str| {
        wanted
            .iter()
            .any(|word| word.eq_ignore_ascii_case(name.as_bytes()))
    };
    let everything = asked("all") || asked("everything");
    let usual = wanted.is_empty() || asked("default");
    let totals = worker.shared.totals();
    let mut out = Out {
        text: String::new(),
        unit,
        start: clock::wall_us(),
    };
    for (name, title, default, render) in SECTIONS {
        if everything || asked(name) || (usual && *default) {
            if !out.text.is_empty() {
                out.text.push_str("\r\n");
            }
            out.text.push_str(&format!("# {title}\r\n"));
            render(&facts, &totals, &mut out).expect("writing to a string does not fail");
        }
    }
    out.text
}

/// The text so far, and access to keys for it.
struct Out<'a> {
    text: String,
    unit: &'a Unit<'a>,
    /// Position at which the walk begins: any number.
    start: u64,
}

impl Out<'_> {
    fn field(&mut self, name: &str, value: impl fmt::Display) -> fmt::Result {
        write!(self.text, "{name}:{value}\r\n")
    }

    /// Writes bytes, also in a unit for people.
    fn bytes(&mut self, name: &str, bytes: u64) -> fmt::Result {
        self.field(name, bytes)?;
        self.field(&format!("{name}_human"), human(bytes))
    }

    /// Writes fields that are zero because their part does not exist.
    fn zeros(&mut self, names: &[&str]) -> fmt::Result {
        names.iter().try_for_each(|name| self.field(name, 0))
    }
}

/// Returns the average times to live of the keys of each database that has keys, in milliseconds.
pub fn average_ttls_ms(worker: &Worker) -> Vec<(u32, u64)> {
    let space = &worker.shared.keyspace;
    let (unit, start) = (Unit::none(space), fastrand::u64(..));
    let used = space.used_databases().filter(|db| space.key_count(*db) > 0);
    used.map(|db| (db, space.average_ttl_ms(db, &unit, start, worker.now_ms)))
        .collect()
}

fn modules(_: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    let options = "handle-io-errors|handle-repl-async-load";
    Module::all().try_for_each(|module| {
        let Module { name, version, .. } = module;
        let rest = format!("api=1,filters=0,usedby=[],using=[],options=[{options}]");
        out.field("module", format_args!("name={name},ver={version},{rest}"))
    })
}

fn server(facts: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    let shared = facts.shared;
    let now_us = clock::wall_us();
    let uptime_s = now_us.saturating_sub(shared.started_us) / 1_000_000;
    let path = |path: Option<std::path::PathBuf>| path.unwrap_or_default().display().to_string();
    out.field("redis_version", REDIS_VERSION)?;
    out.field("server_name", SERVER_NAME)?;
    out.field("redline_version", REDLINE_VERSION)?;
    out.field("redis_git_sha1", "00000000")?;
    out.field("redis_git_dirty", 0)?;
    out.field("redis_build_id", 0)?;
    let mode = match facts.settings.extended_redis_compatibility {
        true => "redis_mode",
        false => "server_mode",
    };
    out.field(mode, connection::mode(&shared.engine))?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    out.field(
        "os",
        format_args!("Linux {} {}", kernel.trim(), std::env::consts::ARCH),
    )?;
    out.field("arch_bits", usize::BITS)?;
    out.field("monotonic_clock", "POSIX clock_gettime")?;
    out.field("multiplexing_api", "epoll")?;
    out.field("process_id", std::process::id())?;
    let service = shared.origin.service.as_ref();
    let supervisor = service.map_or("no", |service| service.supervisor());
    out.field("process_supervised", supervisor)?;
    out.field("run_id", &shared.run_id)?;
    let tcp_port = match shared.port.load(Ordering::Relaxed) {
        0 => shared.tls_port.load(Ordering::Relaxed),
        port => port,
    };
    out.field("tcp_port", tcp_port)?;
    out.field("server_time_usec", now_us)?;
    out.field("uptime_in_seconds", uptime_s)?;
    out.field("uptime_in_days", uptime_s / 86_400)?;
    out.field("hz", facts.settings.hz)?;
    out.field("configured_hz", facts.settings.hz)?;
    out.field("lru_clock", facts.now_s & 0xff_ffff)?;
    out.field("executable", path(std::env::current_exe().ok()))?;
    out.field("config_file", path(shared.origin.config_file.clone()))?;
    out.field("io_threads_active", 0)?;
    out.field("worker_threads", shared.workers().len())?;
    let zone = &facts.settings.availability_zone;
    if !zone.is_empty() {
        out.field("availability_zone", zone)?;
    }
    if let Some(left_ms) = shared.ending.left_ms() {
        out.field("shutdown_in_milliseconds", left_ms)?;
    }
    listeners(facts, out)
}

/// Numbers each kind of listener separately, as in Redis.
fn listeners(facts: &Facts<'_>, out: &mut Out<'_>) -> fmt::Result {
    let (shared, settings) = (facts.shared, facts.settings);
    let binds: String = settings.bind.iter().map(|a| format!(",bind={a}")).collect();
    let port = |place: &std::sync::atomic::AtomicUsize| place.load(Ordering::Relaxed);
    if settings.port.is_some() {
        let port = port(&shared.port);
        out.field("listener0", format_args!("name=tcp{binds},port={port}"))?;
    }
    if let Some(path) = &settings.unixsocket {
        out.field("listener1", format_args!("name=unix,bind={path}"))?;
    }
    if settings.tls.port.is_some() {
        let port = port(&shared.tls_port);
        out.field("listener2", format_args!("name=tls{binds},port={port}"))?;
    }
    Ok(())
}

fn clients(facts: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    let infos = facts.shared.client_infos();
    let flagged = |bit| {
        infos
            .iter()
            .filter(|info| info.flags.load(Ordering::Relaxed) & bit != 0)
            .count()
    };
    let largest = |bytes: fn(&redline_engine::caller::ClientInfo) -> u64| {
        infos.iter().map(|info| bytes(info)).max().unwrap_or(0)
    };
    let watched = || infos.iter().map(|info| info.watched().0);
    // As in Redis, replicas are not among them.
    let replicas = flagged(flag::REPLICA);
    out.field("connected_clients", infos.len().saturating_sub(replicas))?;
    out.field("cluster_connections", 0)?;
    out.field("maxclients", facts.settings.maxclients)?;
    let input = largest(|info| info.query_capacity.load(Ordering::Relaxed));
    let output = largest(|info| info.output_bytes.load(Ordering::Relaxed));
    out.field("client_recent_max_input_buffer", input)?;
    out.field("client_recent_max_output_buffer", output)?;
    out.field("blocked_clients", flagged(flag::BLOCKED))?;
    out.field("tracking_clients", facts.shared.tracking.client_count())?;
    out.field("pubsub_clients", flagged(flag::PUBSUB))?;
    out.field(
        "watching_clients",
        watched().filter(|count| *count > 0).count(),
    )?;
    let timed = facts.shared.timed_waits.load(Ordering::Relaxed);
    out.field("clients_in_timeout_table", timed)?;
    out.field("total_watched_keys", watched().sum::<u32>())?;
    let (keys, when_gone) = facts.shared.keyspace.waited_keys();
    out.field("total_blocking_keys", keys)?;
    out.field("total_blocking_keys_on_nokey", when_gone)
}

fn memory(facts: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    let shared = facts.shared;
    let memory = Memory::of(facts.shared);
    let (used, rss) = (memory.used_bytes, memory.resident_bytes);
    let (live, mapped) = (memory.live_bytes, memory.mapped_bytes);
    let percent = |part, whole| format!("{:.2}%", 100.0 * ratio(part, whole));
    out.bytes("used_memory", used)?;
    out.bytes("used_memory_rss", rss)?;
    out.bytes("used_memory_peak", memory.peak_bytes)?;
    out.field("used_memory_peak_time", memory.peak_at_s)?;
    out.field("used_memory_peak_perc", percent(used, memory.peak_bytes))?;
    out.field("used_memory_overhead", memory.overhead_bytes())?;
    out.field("used_memory_startup", memory.startup_bytes)?;
    let dataset = memory.dataset_bytes();
    out.field("used_memory_dataset", dataset)?;
    out.field(
        "used_memory_dataset_perc",
        percent(dataset, memory.net_bytes()),
    )?;
    out.field("allocator_allocated", live)?;
    out.field("allocator_active", mapped)?;
    out.field("allocator_resident", mapped)?;
    out.field("allocator_muzzy", 0)?;
    let machine = process::machine_memory_bytes().unwrap_or(0);
    out.bytes("total_system_memory", machine)?;
    let scripts_heap = memory.script_heap_bytes;
    out.field("used_memory_lua", scripts_heap)?;
    out.field("used_memory_vm_eval", scripts_heap)?;
    out.field("used_memory_lua_human", human(scripts_heap))?;
    out.field("used_memory_scripts_eval", memory.script_bytes)?;
    out.field("number_of_cached_scripts", shared.scripts.len())?;
    let (libraries, functions) = shared.libraries.counts();
    out.field("number_of_functions", functions)?;
    out.field("number_of_libraries", libraries)?;
    out.field("used_memory_vm_functions", memory.function_heap_bytes)?;
    out.bytes("used_memory_vm_total", memory.interpreter_bytes())?;
    out.field("used_memory_functions", memory.function_bytes)?;
    let scripts = memory.script_bytes + memory.function_bytes;
    out.bytes("used_memory_scripts", scripts)?;
    out.bytes("maxmemory", facts.settings.maxmemory_bytes)?;
    out.field("maxmemory_policy", facts.settings.maxmemory_policy.name())?;
    let two = |value: f64| format!("{value:.2}");
    out.field("allocator_frag_ratio", two(ratio(mapped, live)))?;
    out.field("allocator_frag_bytes", mapped.saturating_sub(live))?;
    out.field("allocator_rss_ratio", "1.00")?;
    out.field("allocator_rss_bytes", 0)?;
    out.field("rss_overhead_ratio", two(ratio(rss, mapped)))?;
    out.field("rss_overhead_bytes", rss as i64 - mapped as i64)?;
    out.field("mem_fragmentation_ratio", two(ratio(rss, used)))?;
    out.field("mem_fragmentation_bytes", rss as i64 - used as i64)?;
    let primary = facts.shared.replication.primary();
    let blocks = primary.log().blocks();
    let kept = blocks.map_or(0, |blocks| blocks.memory_len());
    // Without a replica nothing is kept for one, only whole blocks of the backlog.
    let backlog = match primary.has_replicas() {
        true => kept.min(primary.limits().backlog_bytes),
        false => kept,
    };
    drop(primary);
    // Neither counts as used memory.
    out.zeros(&["mem_not_counted_for_evict"])?;
    out.field("mem_replication_backlog", backlog)?;
    out.field("mem_total_replication_buffers", kept)?;
    // A snapshot on its way is in a file.
    out.zeros(&["mem_replica_full_sync_buffer"])?;
    out.field("mem_clients_slaves", kept - backlog)?;
    out.field("mem_clients_normal", memory.client_bytes)?;
    out.zeros(&["mem_cluster_links", "mem_aof_buffer"])?;
    out.field("mem_allocator", "redline")?;
    out.field("mem_overhead_db_hashtable_rehashing", 0)?;
    let defrag = u8::from(facts.compacts);
    out.field("active_defrag_running", defrag)?;
    let pending = shared.backlog.objects.load(Ordering::Relaxed);
    out.field("lazyfree_pending_objects", pending)?;
    let freed = shared.reaper_freed.load(Ordering::Relaxed);
    out.field("lazyfreed_objects", freed)
}

fn persistence(facts: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    let files = facts.shared.persistence.figures();
    let loading = &facts.shared.persistence.loading;
    let status = |is_ok| if is_ok { "ok" } else { "err" };
    let or_none = |seconds: Option<u64>| seconds.map_or(-1, |seconds| seconds as i64);
    let received = facts.shared.following.link().loading;
    let is_beside = received.as_ref().is_some_and(|it| it.is_beside());
    let is_loading = loading.is_on() || received.is_some() && !is_beside;
    out.field("loading", u8::from(is_loading))?;
    out.field("async_loading", u8::from(is_beside))?;
    out.zeros(&["current_cow_peak"])?;
    // What a copy of pages is elsewhere: encoded entries that wait to be written.
    out.field("current_cow_size", files.waiting_bytes)?;
    out.zeros(&["current_cow_size_age"])?;
    out.field("current_fork_perc", "0.00")?;
    let (processed, total) = files.entries.unwrap_or((0, 0));
    out.field("current_save_keys_processed", processed)?;
    out.field("current_save_keys_total", total)?;
    let changes = facts.shared.changes().saturating_sub(files.changes_saved);
    out.field("rdb_changes_since_last_save", changes)?;
    // One that was called off goes on until all entries are marked, and only then comes the next.
    let is_saving = files.running_s.is_some()
        || files.is_scheduled
        || facts.shared.replication.primary().is_walking()
        || facts.shared.keyspace.is_snapshot_running()
            && !facts.shared.persistence.is_making_base();
    out.field("rdb_bgsave_in_progress", u8::from(is_saving))?;
    out.field("rdb_last_save_time", files.saved_at_s)?;
    out.field("rdb_last_bgsave_status", status(files.is_ok))?;
    out.field("rdb_last_bgsave_time_sec", or_none(files.took_s))?;
    out.field("rdb_current_bgsave_time_sec", or_none(files.running_s))?;
    out.field("rdb_saves", files.saves)?;
    out.zeros(&["rdb_last_cow_size"])?;
    let expired = loading.keys_expired.load(Ordering::Relaxed);
    out.field("rdb_last_load_keys_expired", expired)?;
    let loaded = loading.keys_loaded.load(Ordering::Relaxed);
    out.field("rdb_last_load_keys_loaded", loaded)?;
    let append = facts.shared.persistence.append.figures();
    out.field("aof_enabled", u8::from(append.is_on))?;
    out.field("aof_rewrite_in_progress", u8::from(append.is_rewriting))?;
    out.field("aof_rewrite_scheduled", u8::from(append.is_scheduled))?;
    out.field("aof_last_rewrite_time_sec", or_none(append.rewrite_took_s))?;
    out.field(
        "aof_current_rewrite_time_sec",
        or_none(append.rewrite_running_s),
    )?;
    out.field(
        "aof_last_bgrewrite_status",
        status(append.is_last_rewrite_done),
    )?;
    out.field("aof_rewrites", append.rewrites)?;
    out.field("aof_rewrites_consecutive_failures", append.rewrites_failed)?;
    out.field("aof_last_write_status", status(append.is_last_write_done))?;
    out.zeros(&[
        "aof_last_cow_size",
        "module_fork_in_progress",
        "module_fork_last_cow_size",
    ])?;
    if append.is_on {
        out.field("aof_current_size", append.current_bytes)?;
        out.field("aof_base_size", append.base_bytes)?;
        out.field("aof_pending_rewrite", u8::from(append.is_scheduled))?;
        out.field("aof_buffer_length", append.pending_bytes)?;
        out.field("aof_pending_bio_fsync", append.pending_syncs)?;
        out.zeros(&["aof_delayed_fsync"])?;
    }
    if is_loading || is_beside {
        // How long a snapshot is that comes is not known.
        let (bytes, total, began_s) = match &received {
            Some(received) => (received.bytes(), 0, received.began_s),
            None => (
                loading.bytes(),
                loading.total_bytes.load(Ordering::Relaxed),
                loading.began_s.load(Ordering::Relaxed),
            ),
        };
        let span_s = (clock::wall_ms() / 1000).saturating_sub(began_s);
        let left = total.saturating_sub(bytes);
        let eta_s = (span_s * left).checked_div(bytes).unwrap_or(1);
        out.field("loading_start_time", began_s)?;
        out.field("loading_total_bytes", total)?;
        out.zeros(&["loading_rdb_used_mem"])?;
        out.field("loading_loaded_bytes", bytes)?;
        let percent = match total {
            0 => 0.0,
            _ => 100.0 * bytes as f64 / total as f64,
        };
        out.field("loading_loaded_perc", format_args!("{percent:.2}"))?;
        out.field("loading_eta_seconds", eta_s)?;
    }
    Ok(())
}

fn threads(facts: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    for (number, handle) in facts.shared.workers().iter().enumerate() {
        let clients = handle.connections.load(Ordering::Relaxed);
        let (reads, writes) = (handle.stats.reads.get(), handle.stats.writes.get());
        let text = format_args!("clients={clients},reads={reads},writes={writes}");
        out.field(&format!("io_thread_{number}"), text)?;
    }
    Ok(())
}

fn stats(facts: &Facts<'_>, totals: &Totals, out: &mut Out<'_>) -> fmt::Result {
    let shared = facts.shared;
    let [commands, input, output, turns, turn_us] = shared.rates.per_second();
    let kilobytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1024.0);
    let received = shared.connections_received.load(Ordering::Relaxed);
    out.field("total_connections_received", received)?;
    out.field("total_commands_processed", totals.calls())?;
    out.field("instantaneous_ops_per_sec", commands)?;
    out.field("total_net_input_bytes", totals.net_in())?;
    out.field("total_net_output_bytes", totals.net_out())?;
    out.zeros(&["total_net_repl_input_bytes"])?;
    let sent = &facts.shared.replication.sent_bytes;
    out.field("total_net_repl_output_bytes", sent.load(Ordering::Relaxed))?;
    out.field("instantaneous_input_kbps", kilobytes(input))?;
    out.field("instantaneous_output_kbps", kilobytes(output))?;
    out.field("instantaneous_input_repl_kbps", "0.00")?;
    out.field("instantaneous_output_repl_kbps", "0.00")?;
    out.field("bandwidth_limit", facts.settings.bandwidth_limit)?;
    let held_us = shared.bandwidth_held_us.load(Ordering::Relaxed);
    out.field("bandwidth_held_ms", held_us / 1000)?;
    let rejected = shared.connections_rejected.load(Ordering::Relaxed);
    out.field("rejected_connections", rejected)?;
    let syncs = facts.shared.replication.primary().figures;
    out.field("sync_full", syncs.full)?;
    out.field("sync_partial_ok", syncs.partial_ok)?;
    out.field("sync_partial_err", syncs.partial_refused)?;
    out.field("expired_subkeys", totals.expired_elements())?;
    out.field("expired_keys", totals.expired())?;
    out.field("expired_stale_perc", "0.00")?;
    let cut_short = totals.expiry_cut_short();
    out.field("expired_time_cap_reached_count", cut_short)?;
    let expiry_ms = totals.expiry_us() / 1000;
    out.field("expire_cycle_cpu_milliseconds", expiry_ms)?;
    out.field("evicted_keys", totals.evicted())?;
    out.field("evicted_clients", totals.evicted_clients())?;
    let before = shared.evicted_scripts_before.load(Ordering::Relaxed);
    let scripts = shared.scripts.evicted().saturating_sub(before);
    out.field("evicted_scripts", scripts)?;
    let (total_ms, current_ms) = shared.over_limit_ms();
    out.field("total_eviction_exceeded_time", total_ms)?;
    out.field("current_eviction_exceeded_time", current_ms)?;
    out.field("keyspace_hits", totals.hits())?;
    out.field("keyspace_misses", totals.misses())?;
    out.field(
        "pubsub_channels",
        shared.pubsub.channel_count(pubsub::Kind::Channel),
    )?;
    out.field("pubsub_patterns", shared.pubsub.pattern_count())?;
    let shard_channels = shared.pubsub.channel_count(pubsub::Kind::Shard);
    out.field("pubsubshard_channels", shard_channels)?;
    out.zeros(&["latest_fork_usec", "total_forks"])?;
    out.field("migrate_cached_sockets", shared.migrations.kept())?;
    out.zeros(&[
        "slave_expires_tracked_keys",
        "active_defrag_hits",
        "active_defrag_misses",
        "active_defrag_key_hits",
        "active_defrag_key_misses",
        "total_active_defrag_time",
        "current_active_defrag_time",
    ])?;
    out.field("tracking_total_keys", shared.tracking.key_count())?;
    out.field("tracking_total_items", shared.tracking.item_count())?;
    out.field("tracking_total_prefixes", shared.tracking.prefix_count())?;
    let refused = shared.refused_effects.load(Ordering::Relaxed);
    out.field("unexpected_error_replies", refused)?;
    out.field("total_error_replies", totals.errors())?;
    out.field("dump_payload_sanitizations", 0)?;
    out.field("total_reads_processed", totals.reads())?;
    out.field("total_writes_processed", totals.writes())?;
    out.zeros(&[
        "io_threaded_reads_processed",
        "io_threaded_writes_processed",
        "io_threaded_total_prefetch_batches",
        "io_threaded_total_prefetch_entries",
    ])?;
    out.field(
        "client_query_buffer_limit_disconnections",
        totals.query_limit_closed(),
    )?;
    out.field(
        "client_output_buffer_limit_disconnections",
        totals.output_limit_closed(),
    )?;
    out.zeros(&["reply_buffer_shrinks", "reply_buffer_expands"])?;
    out.field("eventloop_cycles", totals.turns())?;
    out.field("eventloop_duration_sum", totals.turn_ms() * 1000)?;
    let commands_us = totals.command_ns() / 1000;
    out.field("eventloop_duration_cmd_sum", commands_us)?;
    out.field("instantaneous_eventloop_cycles_per_sec", turns)?;
    let each_us = turn_us.checked_div(turns).unwrap_or(0);
    out.field("instantaneous_eventloop_duration_usec", each_us)?;
    out.field("acl_access_denied_auth", totals.denied_auth())?;
    out.field("acl_access_denied_cmd", totals.denied_command())?;
    out.field("acl_access_denied_key", totals.denied_key())?;
    out.field("acl_access_denied_channel", totals.denied_channel())
}

fn replication(facts: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    // Its lock comes before that of the primary.
    let failover = failover::state_name(facts.shared);
    let primary = facts.shared.replication.primary();
    let now_ms = clock::monotonic_ms();
    let settings = facts.settings;
    let identity = primary.log().identity();
    // Inside EXEC, REPLICAOF has changed it already, and this worker's settings have not.
    match &facts.shared.settings.current().primary {
        None => out.field("role", "master")?,
        Some(address) => follower(facts, address, identity.offset(), out)?,
    }
    let replicas = || {
        let all = primary.replicas().iter();
        all.filter(|replica| replica.state != State::Handshake)
    };
    out.field("connected_slaves", replicas().count())?;
    if settings.min_replicas > 0 {
        let good = primary.good_replicas(settings.min_replicas_lag_s * 1000, now_ms);
        out.field("min_slaves_good_slaves", good)?;
    }
    for (number, replica) in replicas().enumerate() {
        out.field(
            &format!("slave{number}"),
            format_args!(
                "ip={},port={},state={},offset={},lag={}",
                replica.peer.shown_ip(),
                replica.peer.port,
                replica.state_name(),
                replica.acked,
                replica.lag_ms(now_ms) / 1000,
            ),
        )?;
    }
    out.field("master_failover_state", failover)?;
    out.field("master_replid", identity.replid())?;
    let former = identity.former();
    out.field(
        "master_replid2",
        former.map_or(Replid::NONE, |former| former.replid),
    )?;
    out.field("master_repl_offset", identity.offset())?;
    let end = former.map_or(-1, |former| former.end as i64);
    out.field("second_repl_offset", end)?;
    let blocks = primary.log().blocks();
    out.field("repl_backlog_active", u8::from(blocks.is_some()))?;
    out.field("repl_backlog_size", settings.backlog_bytes)?;
    let first = blocks.map_or(0, |blocks| blocks.begin() + 1);
    out.field("repl_backlog_first_byte_offset", first)?;
    let kept = blocks.map_or(0, |blocks| blocks.len());
    out.field("repl_backlog_histlen", kept)?;
    let spooled = blocks.map_or(0, |blocks| blocks.len() - blocks.memory_len());
    out.field("repl_backlog_spooled", spooled)
}

/// Tells of the link to the primary.
fn follower(
    facts: &Facts<'_>,
    (host, port): &(String, u16),
    offset: u64,
    out: &mut Out<'_>,
) -> fmt::Result {
    let settings = facts.settings;
    let link = facts.shared.following.link();
    let since_s = |ms: u64| clock::monotonic_ms().saturating_sub(ms) / 1000;
    let is_up = link.state == LinkState::Streaming;
    let syncs = matches!(link.state, LinkState::Transfer | LinkState::Loading);
    out.field("role", "slave")?;
    out.field("master_host", host)?;
    out.field("master_port", port)?;
    out.field("master_link_status", if is_up { "up" } else { "down" })?;
    let heard_s = link.heard_ms.filter(|_| is_up).map(since_s);
    let heard_s = heard_s.map_or(-1, |seconds| seconds as i64);
    out.field("master_last_io_seconds_ago", heard_s)?;
    out.field("master_sync_in_progress", u8::from(syncs))?;
    out.field("slave_read_repl_offset", offset)?;
    out.field("slave_repl_offset", offset)?;
    if syncs {
        out.field("master_sync_total_bytes", -1)?;
        out.field("master_sync_read_bytes", link.snapshot_bytes.unwrap_or(0))?;
    }
    if let Some(since_ms) = link.down_since_ms {
        out.field("master_link_down_since_seconds", since_s(since_ms))?;
    }
    out.field("slave_priority", settings.replica_priority)?;
    out.field("slave_read_only", u8::from(settings.replica_read_only))?;
    out.field("replica_announced", u8::from(settings.replica_announced))
}

fn cpu(_: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    let figures = [
        ("", process::cpu_self()),
        ("_children", process::cpu_children()),
        ("_main_thread", process::cpu_thread()),
    ];
    for (who, time) in figures {
        let seconds = |time: std::time::Duration| format!("{:.6}", time.as_secs_f64());
        out.field(&format!("used_cpu_sys{who}"), seconds(time.system))?;
        out.field(&format!("used_cpu_user{who}"), seconds(time.user))?;
    }
    Ok(())
}

fn commandstats(_: &Facts<'_>, totals: &Totals, out: &mut Out<'_>) -> fmt::Result {
    for (id, count) in CommandId::ALL.iter().zip(&totals.commands) {
        if count.calls + count.rejected == 0 {
            continue;
        }
        let usec = count.ns / 1000;
        let per_call = count.ns as f64 / 1000.0 / count.calls.max(1) as f64;
        out.field(
            &format!("cmdstat_{}", spec::row(*id).full_name),
            format_args!(
                "calls={},usec={usec},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
                count.calls, count.rejected, count.failed
            ),
        )?;
    }
    Ok(())
}

fn latencystats(facts: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    let distributions = facts.shared.distributions();
    let percentiles: Vec<(&str, f64)> = facts
        .settings
        .latency_percentiles
        .iter()
        .filter_map(|text| Some((text.as_str(), text.parse().ok()?)))
        .collect();
    for (id, distribution) in CommandId::ALL.iter().zip(&distributions) {
        if distribution.count() == 0 {
            continue;
        }
        let mut text = String::new();
        for (name, percent) in &percentiles {
            let us = distribution.percentile_ns(*percent).unwrap_or(0) as f64 / 1000.0;
            let comma = if text.is_empty() { "" } else { "," };
            write!(text, "{comma}p{name}={us:.3}")?;
        }
        let name = spec::row(*id).full_name;
        out.field(&format!("latency_percentiles_usec_{name}"), text)?;
    }
    Ok(())
}

fn errorstats(_: &Facts<'_>, totals: &Totals, out: &mut Out<'_>) -> fmt::Result {
    if totals.errors_by_code.len() > ERROR_CODES_MAX {
        return out.field("errorstat_ERRORSTATS_DISABLED", "count=1");
    }
    totals.errors_by_code.iter().try_for_each(|(code, count)| {
        out.field(&format!("errorstat_{code}"), format_args!("count={count}"))
    })
}

fn cluster(facts: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    out.field("cluster_enabled", u8::from(facts.shared.cluster.is_some()))
}

fn keyspace(facts: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    let space = &facts.shared.keyspace;
    for db in space.used_databases() {
        let (keys, expiring) = (space.key_count(db), space.expiring_key_count(db));
        if keys > 0 {
            let timed = space.timed_key_count(db);
            let ttl_ms = space.average_ttl_ms(db, out.unit, out.start, facts.now_ms);
            let text =
                format_args!("keys={keys},expires={expiring},avg_ttl={ttl_ms},subexpiry={timed}");
            out.field(&format!("db{db}"), text)?;
        }
    }
    Ok(())
}

fn keysizes(facts: &Facts<'_>, _: &Totals, out: &mut Out<'_>) -> fmt::Result {
    const NAMES: [(Kind, &str); 4] = [
        (Kind::List, "lists"),
        (Kind::Set, "sets"),
        (Kind::Zset, "zsets"),
        (Kind::Hash, "hashes"),
    ];
    let space = &facts.shared.keyspace;
    for db in space.used_databases().filter(|db| space.key_count(*db) > 0) {
        let sizes = space.value_sizes(db, out.unit, out.start);
        distribution(
            out,
            &format!("db{db}_distrib_strings_sizes"),
            &sizes.strings,
        )?;
        for (kind, name) in NAMES {
            let of_kind = sizes.collections.iter().find(|(known, _)| *known == kind);
            let of_kind = of_kind.map_or(&[0; SIZE_CLASSES], |(_, sizes)| sizes);
            distribution(out, &format!("db{db}_distrib_{name}_items"), of_kind)?;
        }
    }
    Ok(())
}

/// Writes `0=1,2=3,8K=1`: lower bound of a size, and number.
fn distribution(out: &mut Out<'_>, name: &str, sizes: &Sizes) -> fmt::Result {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut text = String::new();
    for (class, count) in sizes.iter().enumerate().filter(|(_, count)| **count > 0) {
        let comma = if text.is_empty() { "" } else { "," };
        let (from, unit) = match class {
            0 => (0, ""),
            _ => (1 << ((class - 1) % 10), UNITS[(class - 1) / 10]),
        };
        write!(text, "{comma}{from}{unit}={count}")?;
    }
    match text.is_empty() {
        true => Ok(()),
        false => out.field(name, text),
    }
}

/// Returns `1.50K`, as Redis rounds.
fn human(bytes: u64) -> String {
    const UNITS: [(&str, u32); 5] = [("P", 50), ("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    match UNITS.iter().find(|(_, shift)| bytes >= 1 << shift) {
        Some((unit, shift)) => format!("{:.2}{unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_for_people() {
        assert_eq!(super::human(0), "0B");
        assert_eq!(super::human(1023), "1023B");
        assert_eq!(super::human(1536), "1.50K");
        assert_eq!(super::human(25_276_502_016), "23.54G");
    }
}
